//! A JSON reader for text from strangers: one meaning or none.
//!
//! A name that occurs twice in an object is refused at every level, since two readers may choose differently.
//! Nesting is bounded. Must not say in an error what it read.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Array(Vec<Self>),
    Bool(bool),
    Null,
    Number(Number),
    Object(Object),
    String(String),
}

/// An object: every name once.
pub(crate) type Object = BTreeMap<String, Json>;

/// A number, as it was written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Float(f64),
    Negative(i64),
    Whole(u64),
}

impl Json {
    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            Self::Array(_) | Self::Bool(_) | Self::Null | Self::Number(_) | Self::Object(_) => None,
        }
    }

    pub(crate) fn as_array(&self) -> Option<&[Self]> {
        match self {
            Self::Array(values) => Some(values),
            Self::Bool(_) | Self::Null | Self::Number(_) | Self::Object(_) | Self::String(_) => None,
        }
    }

    pub(crate) fn as_object(&self) -> Option<&Object> {
        match self {
            Self::Object(members) => Some(members),
            Self::Array(_) | Self::Bool(_) | Self::Null | Self::Number(_) | Self::String(_) => None,
        }
    }
}

/// Reads a text that is one object and nothing else.
pub(crate) fn object(text: &[u8]) -> Option<Object> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = Value { depth: MAX_DEPTH }.deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    match value {
        Json::Object(members) => Some(members),
        Json::Array(_) | Json::Bool(_) | Json::Null | Json::Number(_) | Json::String(_) => None,
    }
}

/// Reads one value that may hold values up to this depth.
#[derive(Clone, Copy)]
struct Value {
    depth: usize,
}

impl Value {
    fn inner<E: Error>(self) -> Result<Self, E> {
        self.depth.checked_sub(1).map(|depth| Self { depth }).ok_or_else(|| E::custom("nested too deeply"))
    }
}

impl<'de> DeserializeSeed<'de> for Value {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(Number::Whole(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(u64::try_from(value).map_or(Number::Negative(value), Number::Whole)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Number(Number::Float(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(Json::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
        let inner = self.inner()?;
        let mut values = Vec::new();
        while let Some(value) = access.next_element_seed(inner)? {
            values.push(value);
        }
        Ok(Json::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
        let inner = self.inner()?;
        let mut members = Object::new();
        while let Some(name) = access.next_key::<String>()? {
            let value = access.next_value_seed(inner)?;
            if members.insert(name, value).is_some() {
                return Err(A::Error::custom("a name occurs twice"));
            }
        }
        Ok(Json::Object(members))
    }
}

// Claims of real identity providers nest three or four deep.
const MAX_DEPTH: usize = 16;

#[cfg(test)]
mod tests {
    use super::{Json, Number, Object, object};

    #[test]
    fn an_object_is_read() {
        let text = br#"{"a": [null, true, "x"], "b": {"c": 18446744073709551615}, "d": -1, "e": 1.5}"#;
        let inner = Object::from([("c".to_owned(), Json::Number(Number::Whole(u64::MAX)))]);
        let expected = Object::from([
            ("a".to_owned(), Json::Array(vec![Json::Null, Json::Bool(true), Json::String("x".to_owned())])),
            ("b".to_owned(), Json::Object(inner)),
            ("d".to_owned(), Json::Number(Number::Negative(-1))),
            ("e".to_owned(), Json::Number(Number::Float(1.5))),
        ]);
        assert_eq!(object(text), Some(expected));
        assert_eq!(object(b" {} "), Some(Object::new()));
    }

    #[test]
    fn what_is_not_one_object_is_refused() {
        for bad in
            [&b""[..], b"[]", b"\"x\"", b"null", b"1", b"{", b"{}{}", b"{} x", b"{\"a\":1,}", b"\xff", b"{\"\xff\":1}"]
        {
            assert_eq!(object(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_name_that_occurs_twice_is_refused_at_every_level() {
        for bad in [r#"{"a":1,"a":1}"#, r#"{"a":{"b":1,"b":2}}"#, r#"{"a":[{"b":1,"b":2}]}"#, r#"{"a":1,"\u0061":2}"#] {
            assert_eq!(object(bad.as_bytes()), None, "{bad}");
        }
        assert!(object(br#"{"a":{"b":1},"b":{"b":2}}"#).is_some());
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(object(nested(15).as_bytes()).is_some());
        assert_eq!(object(nested(16).as_bytes()), None);
        assert_eq!(object(nested(100_000).as_bytes()), None);
    }
}
