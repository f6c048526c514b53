//! Tokens and people that are no longer wanted, although their issuer still vouches for them.
//!
//! ```toml
//! tokens = ["4f1c9f0e"]              # `jti`, or the id that the audit log shows
//! principals = ["mallory"]           # the name, or `sub`
//! ```
//!
//! Must not repeat a value in an error: it may be a token that somebody pasted into the wrong place.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use portcullis_auth::Principal;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What one issuer's tokens are refused for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DenyList {
    tokens: BTreeSet<String>,
    principals: BTreeSet<String>,
}

impl DenyList {
    /// Reads the text of a deny list. An empty text denies nobody.
    ///
    /// # Errors
    ///
    /// If the text is not TOML, holds a member that is not known, or something else than lists of usable names.
    pub fn parse(text: &str) -> Result<Self, DenyListError> {
        let document = DeTable::parse(text).map_err(|err| {
            let problem = err.message().lines().collect::<Vec<_>>().join("; ");
            DenyListError { line: line(text, &err.span().unwrap_or(0..0)), problem }
        })?;

        let mut list = Self::default();
        for (name, value) in document.get_ref() {
            let entries = match name.get_ref().as_ref() {
                "principals" => &mut list.principals,
                "tokens" => &mut list.tokens,
                _ => return Err(DenyListError::new(text, name.span(), "only `tokens` and `principals` are known")),
            };
            *entries = names(text, value)?;
        }
        Ok(list)
    }

    /// How many tokens and principals it names.
    pub fn len(&self) -> usize {
        self.tokens.len().saturating_add(self.principals.len())
    }

    /// Whether it denies nobody.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn names(&self, principal: &Principal) -> bool {
        self.tokens.contains(principal.credential_id())
            || self.principals.contains(principal.name())
            || self.principals.contains(principal.key().subject())
    }
}

/// What is wrong with a deny list, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenyListError {
    line: usize,
    problem: String,
}

impl DenyListError {
    /// The line, counted from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    fn new(text: &str, span: Range<usize>, problem: &str) -> Self {
        Self { line: line(text, &span), problem: problem.to_owned() }
    }
}

impl fmt::Display for DenyListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for DenyListError {}

fn names(text: &str, value: &Spanned<DeValue<'_>>) -> Result<BTreeSet<String>, DenyListError> {
    let wrong = |span| DenyListError::new(text, span, "must be a list of strings of 1 to 2048 bytes");
    let entries = value.get_ref().as_array().ok_or_else(|| wrong(value.span()))?;
    let name = |entry: &Spanned<DeValue<'_>>| {
        let name = entry.get_ref().as_str().filter(|name| !name.is_empty() && name.len() <= MAX_NAME);
        name.map(str::to_owned).ok_or_else(|| wrong(entry.span()))
    };
    entries.iter().map(name).collect()
}

fn line(text: &str, span: &Range<usize>) -> usize {
    let before = text.as_bytes().iter().take(span.start);
    before.filter(|b| **b == b'\n').count().saturating_add(1)
}

/// As long as a subject may be.
const MAX_NAME: usize = 2048;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::DenyList;

    #[test]
    fn a_list_is_read() {
        let list = DenyList::parse("tokens = [\"a\", \"b\", \"a\"]\nprincipals = [\"mallory\"] # gone\n").unwrap();
        assert_eq!(list.len(), 3);
        assert!(list.tokens.contains("b") && list.principals.contains("mallory"));
        assert!(DenyList::parse("").unwrap().is_empty());
        assert!(DenyList::parse("tokens = []").unwrap().is_empty());
    }

    #[test]
    fn an_error_names_its_line_and_no_value() {
        for (bad, line) in [
            ("tokens = [\"a\"]\nprincipal = [\"topsecret\"]", 2),
            ("\n\ntokens = \"topsecret\"", 3),
            ("tokens = [\n\"a\",\n7,\n]", 3),
            ("tokens = [\n\"\",\n]", 2),
            ("tokens = [\"a\"]\n[principals]\ntopsecret = 1", 2),
            ("tokens = [\"a\"]\ntokens = [\"topsecret\"]", 2),
            ("tokens = [\n\"topsecret", 2),
        ] {
            let error = DenyList::parse(bad).unwrap_err();
            assert_eq!(error.line(), line, "{bad}: {error}");
            assert!(!error.to_string().contains("topsecret"), "{error}");
        }
    }
}
