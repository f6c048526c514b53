//! Where in a token's claims something stands, such as `realm_access.roles`.
//!
//! Must not search: a path leads to one place or to none.

use std::fmt;
use std::str::FromStr;

use crate::json::{Json, Object};

/// The way to a claim: names joined by dots.
///
/// `\.` is a dot that belongs to a name, and a path that begins with `https://` or `http://` is one name as a whole,
/// since identity providers name their own claims by URLs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimPath {
    text: String,
    names: Vec<String>,
}

impl ClaimPath {
    /// The path as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The way to `sub`.
    pub(crate) fn subject() -> Self {
        Self { text: "sub".to_owned(), names: vec!["sub".to_owned()] }
    }

    /// What stands there.
    pub(crate) fn find<'a>(&self, claims: &'a Object) -> Option<&'a Json> {
        let (last, way) = self.names.split_last()?;
        let object = way.iter().try_fold(claims, |object, name| object.get(name)?.as_object())?;
        object.get(last)
    }
}

impl FromStr for ClaimPath {
    type Err = InvalidClaimPath;

    fn from_str(text: &str) -> Result<Self, InvalidClaimPath> {
        let names = if text.starts_with("https://") || text.starts_with("http://") {
            vec![text.to_owned()]
        } else {
            names(text).ok_or(InvalidClaimPath)?
        };
        let usable = text.len() <= MAX_LEN && names.len() <= MAX_NAMES && names.iter().all(|name| !name.is_empty());
        if !usable || text.chars().any(char::is_control) {
            return Err(InvalidClaimPath);
        }
        Ok(Self { text: text.to_owned(), names })
    }
}

impl fmt::Debug for ClaimPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text)
    }
}

impl fmt::Display for ClaimPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Not a way to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a claim path: names of claims joined by dots")]
pub struct InvalidClaimPath;

fn names(text: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut name = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '.' => names.push(std::mem::take(&mut name)),
            '\\' => name.push(chars.next().filter(|c| matches!(c, '.' | '\\'))?),
            c => name.push(c),
        }
    }
    names.push(name);
    Some(names)
}

const MAX_LEN: usize = 256;
const MAX_NAMES: usize = 8;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::{ClaimPath, InvalidClaimPath};
    use crate::json;

    #[test]
    fn a_path_leads_to_one_place() {
        let claims =
            br#"{"sub": "a", "realm": {"roles": "b", "x.y": "c"}, "realm.roles": "d", "https://x.test/r": "e"}"#;
        let claims = json::object(claims).unwrap();
        let at = |path: &str| path.parse::<ClaimPath>().unwrap().find(&claims).and_then(|json| json.as_str());
        assert_eq!(at("sub"), Some("a"));
        assert_eq!(at("realm.roles"), Some("b"));
        assert_eq!(at(r"realm.x\.y"), Some("c"));
        assert_eq!(at(r"realm\.roles"), Some("d"));
        assert_eq!(at("https://x.test/r"), Some("e"));
        for nowhere in ["roles", "sub.a", "realm.roles.b", "realm.x.y", "Sub"] {
            assert_eq!(at(nowhere), None, "{nowhere}");
        }
    }

    #[test]
    fn what_names_nothing_is_no_path() {
        let long = "a".repeat(257);
        for bad in ["", ".", "a.", ".a", "a..b", r"a\", r"a\b", "a\n", "a.b.c.d.e.f.g.h.i", &long] {
            assert_eq!(bad.parse::<ClaimPath>(), Err(InvalidClaimPath), "{bad}");
        }
    }
}
