//! The stored keys, as `keys.toml` has them.
//!
//! ```toml
//! [key.Zm9vYmFyYmF6]                        # the id of the key
//! hash = "sha256:…"                         # of the whole key
//! principal = "alice"
//! roles = ["analyst"]                       # may be absent
//! expires = 2027-01-01T00:00:00Z            # may be absent; the offset may not
//! attributes = { region = "EU" }            # may be absent
//! ```
//!
//! Read with positions, so that every error names its line. Must not repeat a value in an error: it may be a key that
//! somebody pasted into the wrong place.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use portcullis_auth::{Assertion, Expiry, InvalidAssertion, Principal, Secret};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::key::{self, KeyHash};
use crate::scheme::SCHEME;

/// All the keys an authenticator knows.
#[derive(Clone, Debug, Default)]
pub struct KeyFile {
    records: BTreeMap<String, KeyRecord>,
}

impl KeyFile {
    /// Reads the text of a `keys.toml`. A file without keys is allowed: it lets nobody in.
    ///
    /// # Errors
    ///
    /// If the text is not TOML, holds a member that is not known, or a key that is not usable.
    pub fn parse(text: &str) -> Result<Self, KeyFileError> {
        read::key_file(text)
    }

    /// Just one key.
    pub fn single(record: KeyRecord) -> Self {
        Self { records: BTreeMap::from([(record.id.clone(), record)]) }
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are no keys at all.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(crate) fn into_records(self) -> BTreeMap<String, KeyRecord> {
        self.records
    }
}

/// What is stored about one key. It holds a hash, from which the key cannot be found.
#[derive(Clone, Debug)]
pub struct KeyRecord {
    pub(crate) id: String,
    pub(crate) hash: KeyHash,
    pub(crate) principal: String,
    pub(crate) roles: BTreeSet<String>,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) expires: Expiry,
}

impl KeyRecord {
    /// The record of a key that exists already; of `expires`, whole seconds count.
    ///
    /// # Errors
    ///
    /// If this is not a key, if the principal or a role is not usable as a name, or if the expiry cannot be written as
    /// a date.
    pub fn for_key(key: &Secret, principal: &str, roles: &[&str], expires: Expiry) -> Result<Self, InvalidRecord> {
        let text = std::str::from_utf8(key.expose()).map_err(|_| InvalidRecord::Key)?;
        let record = Self {
            id: key::id_of(text).ok_or(InvalidRecord::Key)?.to_owned(),
            hash: KeyHash::of(key.expose()).ok_or(InvalidRecord::Key)?,
            principal: principal.to_owned(),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
            attributes: BTreeMap::new(),
            expires: match expires {
                Expiry::At(end) => Expiry::At(whole_second(end)?),
                Expiry::Never => Expiry::Never,
            },
        };
        record.check()?;
        Ok(record)
    }

    /// The id: what logs, revocations and `keys.toml` call the key.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The table for `keys.toml`.
    ///
    /// # Errors
    ///
    /// If the expiry cannot be written as a date.
    pub fn to_toml(&self) -> Result<String, InvalidRecord> {
        let quote = |text: &str| toml::Value::from(text).to_string();
        let mut table =
            format!("[key.{}]\nhash = \"{}\"\nprincipal = {}\n", self.id, self.hash, quote(&self.principal));
        if !self.roles.is_empty() {
            let roles: Vec<_> = self.roles.iter().map(|role| quote(role)).collect();
            table.push_str(&format!("roles = [{}]\n", roles.join(", ")));
        }
        if let Expiry::At(end) = self.expires {
            table.push_str(&format!("expires = {}\n", date(end)?));
        }
        if !self.attributes.is_empty() {
            let members: Vec<_> = self.attributes.iter().map(|(k, v)| format!("{} = {}", quote(k), quote(v))).collect();
            table.push_str(&format!("attributes = {{ {} }}\n", members.join(", ")));
        }
        Ok(table)
    }

    /// What the holder of this key is, as the authenticator called `authority` says it.
    pub(crate) fn assertion(&self, authority: &str) -> Assertion {
        Assertion {
            name: self.principal.clone(),
            scheme: SCHEME,
            authority: authority.to_owned(),
            subject: self.principal.clone(),
            roles: self.roles.clone(),
            attributes: self.attributes.clone(),
            expires: self.expires,
            credential_id: self.id.clone(),
        }
    }

    /// Whether a principal can be made of it, so that the answer does not come with the first call.
    fn check(&self) -> Result<(), InvalidAssertion> {
        Principal::assertion(self.assertion(SCHEME)).map(drop)
    }
}

/// Why a record cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRecord {
    /// The time lies before 1970 or after the year 9999.
    #[error("the expiry cannot be written as a date")]
    Expiry,
    /// Not of the form of a key.
    #[error("this is not an api key")]
    Key,
    /// The principal or a role is not usable as a name.
    #[error(transparent)]
    Name(#[from] InvalidAssertion),
}

/// What is wrong with a `keys.toml`, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFileError {
    line: usize,
    key: String,
    problem: String,
}

impl KeyFileError {
    /// The line, counted from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The TOML key, such as `key.Zm9vYmFyYmF6.hash`; empty where the text is not TOML at all.
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, key, problem } = self;
        if key.is_empty() { write!(f, "line {line}: {problem}") } else { write!(f, "line {line}: `{key}` {problem}") }
    }
}

impl std::error::Error for KeyFileError {}

fn whole_second(time: SystemTime) -> Result<SystemTime, InvalidRecord> {
    let seconds = time.duration_since(UNIX_EPOCH).map_err(|_| InvalidRecord::Expiry)?.as_secs();
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).ok_or(InvalidRecord::Expiry)
}

fn date(time: SystemTime) -> Result<String, InvalidRecord> {
    let seconds = time.duration_since(UNIX_EPOCH).map_err(|_| InvalidRecord::Expiry)?.as_secs();
    let seconds = i64::try_from(seconds).map_err(|_| InvalidRecord::Expiry)?;
    let date = OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| InvalidRecord::Expiry)?;
    date.format(&Rfc3339).map_err(|_| InvalidRecord::Expiry)
}

mod read;

#[cfg(test)]
mod tests;
