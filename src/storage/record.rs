//! The record that says that a table or a view exists: one JSON text, the same for every version of this product that
//! reads it.
//!
//! Must not do I/O.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::ipc::convert::{IpcSchemaEncoder, fb_to_schema};
use arrow::ipc::root_as_schema;
use aws_lc_rs::rand;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use portcullis_auth::IdentityKey;
use serde::{Deserialize, Serialize};

/// What is known of one name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Record {
    pub(super) state: State,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    /// There was something.
    Dropped,
    /// There is a table.
    Table {
        /// Who made it.
        maker: Maker,
        /// Where its rows are.
        data: DataId,
        /// Its columns.
        schema: SchemaRef,
    },
    /// There is a view.
    View {
        /// Who made it.
        maker: Maker,
        /// What it reads.
        definition: Definition,
        /// Its columns.
        schema: SchemaRef,
    },
}

/// A view's text, and where the names in it are looked up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Definition {
    /// The whole CREATE VIEW.
    pub(crate) sql: String,
    /// Of names without a catalog.
    pub(crate) catalog: String,
    /// Of names without a schema.
    pub(crate) schema: String,
}

/// Who made a table, as its identity is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Maker {
    scheme: String,
    authority: String,
    subject: String,
}

impl Maker {
    /// Whether this identity is the one.
    pub(crate) fn is(&self, identity: &IdentityKey) -> bool {
        self.scheme == identity.scheme() && self.authority == identity.authority() && self.subject == identity.subject()
    }
}

impl From<&IdentityKey> for Maker {
    fn from(identity: &IdentityKey) -> Self {
        Self {
            scheme: identity.scheme().to_owned(),
            authority: identity.authority().to_owned(),
            subject: identity.subject().to_owned(),
        }
    }
}

/// Names a folder of rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct DataId(String);

impl DataId {
    pub(super) fn random() -> Option<Self> {
        let mut bytes = [0; 16];
        rand::fill(&mut bytes).ok()?;
        Some(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Only what `random` makes: it becomes a part of a path.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (text.len() == 32 && text.bytes().all(hex)).then(|| Self(text.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Record {
    pub(super) fn table(maker: Maker, data: DataId, schema: &SchemaRef) -> Self {
        Self { state: State::Table { maker, data, schema: Arc::clone(schema) } }
    }

    pub(super) fn view(maker: Maker, definition: Definition, schema: &SchemaRef) -> Self {
        Self { state: State::View { maker, definition, schema: Arc::clone(schema) } }
    }

    pub(super) fn dropped() -> Self {
        Self { state: State::Dropped }
    }

    /// Whether it says that there is nothing any more.
    pub(super) fn is_dropped(&self) -> bool {
        matches!(self.state, State::Dropped)
    }

    pub(super) fn to_json(&self) -> Result<String, serde_json::Error> {
        let state = match &self.state {
            State::Dropped => Written::Dropped,
            State::Table { maker, data, schema } => {
                Written::Table { maker: maker.clone(), data: data.0.clone(), schema: written(schema) }
            }
            State::View { maker, definition, schema } => {
                Written::View { maker: maker.clone(), definition: definition.clone(), schema: written(schema) }
            }
        };
        serde_json::to_string(&Versioned { version: VERSION, state })
    }

    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let Versioned { version, state } = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if version != VERSION {
            return Err(format!("it is of version {version}, and this is {VERSION}"));
        }
        let state = match state {
            Written::Dropped => State::Dropped,
            Written::Table { maker, data, schema } => {
                let data = DataId::parse(&data).ok_or("its rows have no name of ours")?;
                State::Table { maker, data, schema: read(&schema)? }
            }
            Written::View { maker, definition, schema } => State::View { maker, definition, schema: read(&schema)? },
        };
        Ok(Self { state })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Versioned {
    version: u32,
    state: Written,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Written {
    Dropped,
    Table { maker: Maker, data: String, schema: String },
    View { maker: Maker, definition: Definition, schema: String },
}

fn written(schema: &SchemaRef) -> String {
    BASE64_STANDARD.encode(IpcSchemaEncoder::new().schema_to_fb(schema).finished_data())
}

fn read(schema: &str) -> Result<SchemaRef, String> {
    let bytes = BASE64_STANDARD.decode(schema).map_err(|error| error.to_string())?;
    Ok(Arc::new(fb_to_schema(root_as_schema(&bytes).map_err(|error| error.to_string())?)))
}

const VERSION: u32 = 1;
