//! Flight SQL commands, actions and session options: protobuf of clients.
//!
//! Whatever is decoded is one thing, is refused by one of two classes, and is the same after a way through a ticket.

use arrow_flight::sql::Any;
use arrow_flight::{Action, FlightDescriptor};
use bytes::Bytes;
use datafusion::config::ConfigOptions;
use prost::Message;

use super::command::{Act, Metadata, Read, Update};
use super::input::Input;
use super::session_actions::{OptionValue, SetSessionOptionsRequest};
use crate::sql::{Source, settings};
use crate::status::{Class, Failure};

/// A whole descriptor; the bytes of a command; the name of a message and its bytes.
pub fn command(data: &[u8]) {
    let mut input = Input::new(data);
    let descriptor = match input.choice(3) {
        0 => match FlightDescriptor::decode(input.rest()) {
            Ok(descriptor) => descriptor,
            Err(_) => return,
        },
        1 => FlightDescriptor::new_cmd(input.rest().to_vec()),
        _ => {
            let name = String::from_utf8_lossy(input.line());
            FlightDescriptor::new_cmd(any(&name, input.rest()).encode_to_vec())
        }
    };
    let read = Read::from_descriptor(descriptor.clone());
    let update = Update::from_descriptor(descriptor);
    assert!(read.is_err() || update.is_err(), "one command is read and update");
    match read {
        Ok(Read::Metadata(command)) => assert_eq!(Metadata::from_any(command.to_any()).unwrap(), command),
        Ok(Read::Prepared(_) | Read::Statement(_)) => (),
        Err(failure) => refused(&failure),
    }
    match update {
        Ok(Update::Prepared(_) | Update::Statement(_)) => (),
        Err(failure) => refused(&failure),
    }
}

/// The name of an action and its body; the name of an action, that of a message, and its bytes.
pub fn action(data: &[u8]) {
    let mut input = Input::new(data);
    let wrapped = input.choice(2) == 1;
    let kind = String::from_utf8_lossy(input.line()).into_owned();
    let body = if wrapped {
        let name = String::from_utf8_lossy(input.line());
        any(&name, input.rest()).encode_to_vec()
    } else {
        input.rest().to_vec()
    };
    match Act::from_action(Action::new(kind.clone(), body)) {
        Ok(act) => {
            let expected = match act {
                Act::ClosePrepared => "ClosePreparedStatement",
                Act::CloseSession => "CloseSession",
                Act::CreatePrepared(Source::Sql(_)) => "CreatePreparedStatement",
                #[cfg(feature = "substrait")]
                Act::CreatePrepared(Source::Substrait(_)) => "CreatePreparedSubstraitPlan",
                Act::GetSessionOptions => "GetSessionOptions",
                Act::SetSessionOptions(_) => "SetSessionOptions",
            };
            assert_eq!(kind, expected);
        }
        Err(failure) => refused(&failure),
    }
}

/// A message that sets options; one option and its value.
pub fn session_options(data: &[u8]) {
    let mut input = Input::new(data);
    if input.choice(2) == 1 {
        let name = String::from_utf8_lossy(input.line()).into_owned();
        option(&name, &String::from_utf8_lossy(input.rest()));
        return;
    }
    let Ok(Act::SetSessionOptions(request)) = Act::from_action(Action::new("SetSessionOptions", input.rest().to_vec()))
    else {
        return;
    };
    let again = SetSessionOptionsRequest::decode(request.encode_to_vec().as_slice()).unwrap();
    assert_eq!(again.session_options.len(), request.session_options.len());
    for (name, value) in request.session_options {
        if let Some(OptionValue::String(text)) = value.option_value {
            option(&name, &text);
        }
    }
}

/// Only what is listed is ever set, and only to what is short and plain.
fn option(name: &str, value: &str) {
    let mut options = ConfigOptions::new();
    let listed = settings::SETTABLE.iter().any(|(key, _)| *key == name);
    match settings::apply(&mut options, name, value) {
        Ok(()) => {
            assert!(listed && (1..=128).contains(&value.len()) && !value.chars().any(char::is_control));
            let mut again = options.clone();
            assert_eq!(settings::apply(&mut again, name, value), Ok(()));
        }
        Err(settings::Refused::Name) => assert!(!listed),
        Err(settings::Refused::Value) => assert!(listed),
    }
}

fn refused(failure: &Failure) {
    assert!(matches!(failure.class(), Class::InvalidArgument | Class::Unimplemented), "{}", failure.sentence());
}

fn any(name: &str, value: &[u8]) -> Any {
    let type_url = format!("type.googleapis.com/arrow.flight.protocol.sql.{name}");
    Any { type_url, value: Bytes::copy_from_slice(value) }
}
