//! The session actions of Flight: their messages, which `arrow-flight` lacks, and what they do.
//!
//! Options are `catalog`, `schema` and the settings that SQL's SET takes; an unknown one is an error of that key alone
//! (rule R24). Must not reach a session other than the caller's.

use std::collections::HashMap;

use crate::sql::settings::{self, Refused};
use crate::status::Failure;
use crate::workspace::Workspace;

/// `arrow.flight.protocol.SetSessionOptionsRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SetSessionOptionsRequest {
    /// The options to set; an empty value takes an option back.
    #[prost(map = "string, message", tag = "1")]
    pub session_options: HashMap<String, SessionOptionValue>,
}

/// `arrow.flight.protocol.SessionOptionValue`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SessionOptionValue {
    /// Absent: take the option back.
    #[prost(oneof = "OptionValue", tags = "1, 2, 3, 4, 5")]
    pub option_value: Option<OptionValue>,
}

/// The value of a session option.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum OptionValue {
    /// Text.
    #[prost(string, tag = "1")]
    String(String),
    /// A switch.
    #[prost(bool, tag = "2")]
    Bool(bool),
    /// A whole number.
    #[prost(sfixed64, tag = "3")]
    Int64(i64),
    /// A number.
    #[prost(double, tag = "4")]
    Double(f64),
    /// Several texts.
    #[prost(message, tag = "5")]
    StringList(StringListValue),
}

/// `arrow.flight.protocol.SessionOptionValue.StringListValue`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StringListValue {
    /// The texts.
    #[prost(string, repeated, tag = "1")]
    pub values: Vec<String>,
}

/// `arrow.flight.protocol.SetSessionOptionsResult`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SetSessionOptionsResult {
    /// The options that were not set.
    #[prost(map = "string, message", tag = "1")]
    pub errors: HashMap<String, SetSessionOptionError>,
}

/// `arrow.flight.protocol.SetSessionOptionsResult.Error`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(super) struct SetSessionOptionError {
    /// 1 unknown name, 2 unusable value, 3 another error.
    #[prost(int32, tag = "1")]
    pub value: i32,
}

/// `arrow.flight.protocol.GetSessionOptionsRequest`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(super) struct GetSessionOptionsRequest {}

/// `arrow.flight.protocol.GetSessionOptionsResult`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct GetSessionOptionsResult {
    /// The options and their values.
    #[prost(map = "string, message", tag = "1")]
    pub session_options: HashMap<String, SessionOptionValue>,
}

/// `arrow.flight.protocol.CloseSessionRequest`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(super) struct CloseSessionRequest {}

/// `arrow.flight.protocol.CloseSessionResult`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(super) struct CloseSessionResult {
    /// 1 closed, 2 closing, 3 not closeable.
    #[prost(int32, tag = "1")]
    pub status: i32,
}

/// `CloseSessionResult.Status.CLOSED`.
pub(super) const CLOSED: i32 = 1;
/// `CloseSessionResult.Status.NOT_CLOSEABLE`.
pub(super) const NOT_CLOSEABLE: i32 = 3;
const INVALID_NAME: i32 = 1;
const INVALID_VALUE: i32 = 2;

/// Sets what can be set. `catalog` comes before `schema`, since the schema is looked up in it.
pub(super) async fn set(workspace: &Workspace, request: SetSessionOptionsRequest) -> SetSessionOptionsResult {
    let mut options: Vec<_> = request.session_options.into_iter().collect();
    options.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut errors = HashMap::new();
    for (name, value) in options.into_iter().take(MAX_OPTIONS) {
        let done = match (key(&name), text(value.option_value)) {
            (Err(refused), _) | (Ok(_), Err(refused)) => Err(refused),
            (Ok(key), Ok(Some(value))) => workspace.set(key, &value).await,
            (Ok(key), Ok(None)) => {
                workspace.reset(key);
                Ok(())
            }
        };
        if let Err(refused) = done {
            let value = match refused {
                Refused::Name => INVALID_NAME,
                Refused::Value => INVALID_VALUE,
            };
            errors.insert(name, SetSessionOptionError { value });
        }
    }
    SetSessionOptionsResult { errors }
}

/// The options of the caller's session.
pub(super) async fn get(workspace: &Workspace) -> Result<GetSessionOptionsResult, Failure> {
    let mut session_options = HashMap::new();
    for (key, _) in settings::SETTABLE {
        if let Some(value) = workspace.option(key).await? {
            let name = match *key {
                settings::CATALOG => "catalog",
                settings::SCHEMA => "schema",
                other => other,
            };
            let value = SessionOptionValue { option_value: Some(OptionValue::String(value)) };
            session_options.insert(name.to_owned(), value);
        }
    }
    Ok(GetSessionOptionsResult { session_options })
}

fn key(name: &str) -> Result<&'static str, Refused> {
    let name = match name {
        "catalog" => settings::CATALOG,
        "schema" => settings::SCHEMA,
        other => other,
    };
    settings::SETTABLE.iter().map(|(key, _)| *key).find(|key| *key == name).ok_or(Refused::Name)
}

fn text(value: Option<OptionValue>) -> Result<Option<String>, Refused> {
    match value {
        None => Ok(None),
        Some(OptionValue::String(text)) => Ok(Some(text)),
        Some(OptionValue::Bool(switch)) => Ok(Some(switch.to_string())),
        Some(OptionValue::Int64(number)) => Ok(Some(number.to_string())),
        Some(OptionValue::Double(_) | OptionValue::StringList(_)) => Err(Refused::Value),
    }
}

const MAX_OPTIONS: usize = 64;
