//! The stored users, as `users.toml` has them.
//!
//! ```toml
//! [user.alice]                              # exactly as it will be typed; a name with a dot goes into quotes
//! password = "$argon2id$v=19$m=19456,t=2,p=1$…"
//! roles = ["analyst"]                       # may be absent
//! expires = 2027-01-01T00:00:00Z            # may be absent; the offset may not
//! attributes = { region = "EU" }            # may be absent
//! ```
//!
//! Read with positions, so that every error names its line. Must not repeat a value in an error: it may be a password
//! that somebody wrote down in place of its hash.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use portcullis_auth::{Assertion, Expiry, InvalidAssertion, Principal};

use crate::phc::StoredHash;
use crate::scheme::SCHEME;
use crate::seen::Fingerprint;

/// All the users an authenticator knows.
#[derive(Clone, Debug, Default)]
pub struct UserFile {
    records: BTreeMap<String, UserRecord>,
}

impl UserFile {
    /// Reads the text of a `users.toml`. A file without users is allowed: it lets nobody in.
    ///
    /// # Errors
    ///
    /// If the text is not TOML, holds a member that is not known, or a user that is not usable. A hash is not usable if
    /// it is not argon2id, or if checking it would cost too little or too much.
    pub fn parse(text: &str) -> Result<Self, UserFileError> {
        read::user_file(text)
    }

    /// How many users there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are no users at all.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The users whose hashes cost less than OWASP's minimum, in order: allowed, and worth a warning.
    pub fn weak(&self) -> Vec<&str> {
        let weak = self.records.values().filter(|record| record.stored.is_weak());
        weak.map(|record| record.user.as_str()).collect()
    }

    pub(crate) fn into_records(self) -> BTreeMap<String, UserRecord> {
        self.records
    }
}

/// What is stored about one user.
#[derive(Clone, Debug)]
pub(crate) struct UserRecord {
    pub(crate) user: String,
    pub(crate) stored: Arc<StoredHash>,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) roles: BTreeSet<String>,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) expires: Expiry,
}

impl UserRecord {
    /// A user without roles and attributes, that does not expire.
    pub(crate) fn new(user: &str, stored: StoredHash) -> Self {
        Self {
            user: user.to_owned(),
            fingerprint: Fingerprint::of(user, &stored),
            stored: Arc::new(stored),
            roles: BTreeSet::new(),
            attributes: BTreeMap::new(),
            expires: Expiry::Never,
        }
    }

    /// Names this password of this user: a session opened with it must not outlive it, so the user alone is not enough.
    /// The user itself is the subject of the identity key.
    pub(crate) fn credential_id(&self) -> String {
        self.fingerprint.to_string()
    }

    /// What this user is, as the authenticator called `authority` says it.
    pub(crate) fn assertion(&self, authority: &str) -> Assertion {
        Assertion {
            name: self.user.clone(),
            scheme: SCHEME,
            authority: authority.to_owned(),
            subject: self.user.clone(),
            roles: self.roles.clone(),
            attributes: self.attributes.clone(),
            expires: self.expires,
            credential_id: self.credential_id(),
        }
    }

    /// Whether a principal can be made of it, so that the answer does not come with the first login.
    fn check(&self) -> Result<(), InvalidAssertion> {
        Principal::assertion(self.assertion(SCHEME)).map(drop)
    }
}

/// What is wrong with a `users.toml`, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserFileError {
    line: usize,
    key: String,
    problem: String,
}

impl UserFileError {
    /// The line, counted from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The TOML key, such as `user.alice.password`; empty where the text is not TOML at all.
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl fmt::Display for UserFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, key, problem } = self;
        if key.is_empty() { write!(f, "line {line}: {problem}") } else { write!(f, "line {line}: `{key}` {problem}") }
    }
}

impl std::error::Error for UserFileError {}

mod read;

#[cfg(test)]
mod tests;
