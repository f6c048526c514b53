//! The authenticator: claims `Bearer pk1.…` and judges it by the stored hashes.
//!
//! An unknown id and a wrong secret do the same work and get the same answer. Must not do I/O, and must not put more of
//! a key than its id into a reason.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use portcullis_auth::{
    Attempt, Authenticator, BoxFuture, Cost, Credential, Principal, Rejection, Standing, Token, Verdict,
};

use crate::file::{KeyFile, KeyRecord};
use crate::key::{self, KeyHash};

/// The keys of one `keys.toml`, as an authenticator.
pub struct ApiKeys {
    name: String,
    state: RwLock<Arc<State>>,
}

impl ApiKeys {
    /// Keys under the configured name of this authenticator.
    pub fn new(name: impl Into<String>, keys: KeyFile) -> Self {
        let (state, _) = State::default().next(keys);
        Self { name: name.into(), state: RwLock::new(Arc::new(state)) }
    }

    /// Puts these keys in place of the present ones, at once for every call that starts from now on.
    ///
    /// An id names one key for as long as this process runs: a record that gives a known id another hash is left out,
    /// since sessions opened with the old key could not be told from those of the new one. The ids left out are
    /// returned, for a warning to the operator.
    pub fn replace(&self, keys: KeyFile) -> Vec<String> {
        let mut current = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let (next, left_out) = current.next(keys);
        *current = Arc::new(next);
        left_out
    }

    fn judge(&self, attempt: &Attempt<'_>) -> Verdict {
        match attempt.credential() {
            Credential::Bearer(token) if token.starts_with(key::PREFIX) => self.judge_key(token, attempt.now),
            Credential::Bearer(_)
            | Credential::Absent
            | Credential::Basic(_)
            // Whose a credential is that cannot be read, nobody knows: the gate refuses it by itself.
            | Credential::Malformed(_)
            | Credential::Unknown => Verdict::Abstain,
        }
    }

    fn judge_key(&self, token: Token<'_>, now: SystemTime) -> Verdict {
        let Some(id) = key::id_of(token.expose()) else {
            return Verdict::Reject(Rejection::malformed("not of the form of an api key"));
        };
        let Some(presented) = KeyHash::of(token.expose().as_bytes()) else {
            return Verdict::Reject(Rejection::invalid("the key could not be hashed"));
        };

        let state = self.current();
        let record = state.keys.get(id);
        let matches = record.map_or(&KeyHash::NOBODY, |record| &record.hash).matches(&presented);
        match record {
            Some(record) if matches => self.judge_record(record, now),
            Some(_) | None => Verdict::Reject(Rejection::invalid(format!("no such key, or a wrong secret: id `{id}`"))),
        }
    }

    /// The key was the right one: the rest may be said plainly.
    fn judge_record(&self, record: &KeyRecord, now: SystemTime) -> Verdict {
        if record.expires.passed(now) {
            return Verdict::Reject(Rejection::invalid(format!("the key has expired: id `{}`", record.id)));
        }
        match Principal::assertion(record.assertion(&self.name)) {
            Ok(principal) => Verdict::Admit(principal),
            // The record was checked when it was read, so it can only be the configured name.
            Err(invalid) => Verdict::Reject(Rejection::invalid(format!("unusable configuration: {invalid}"))),
        }
    }

    fn current(&self) -> Arc<State> {
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Authenticator for ApiKeys {
    fn scheme(&self) -> &'static str {
        SCHEME
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn authenticate<'a>(&'a self, attempt: &'a Attempt<'a>) -> BoxFuture<'a, Verdict> {
        Box::pin(async move { self.judge(attempt) })
    }

    /// A hash and a lookup, whatever was sent.
    fn cost(&self, _attempt: &Attempt<'_>) -> Cost {
        Cost::Cheap
    }

    /// Revoked once the key is gone, its principal, roles or attributes are others, or it has expired.
    fn standing(&self, principal: &Principal, now: SystemTime) -> Standing {
        let state = self.current();
        let Some(record) = state.keys.get(principal.credential_id()) else { return Standing::Revoked };
        let same = principal.scheme() == SCHEME
            && principal.key().authority() == self.name
            && principal.key().subject() == record.principal
            && principal.name() == record.principal
            && *principal.roles() == record.roles
            && *principal.attributes() == record.attributes;
        if same && !record.expires.passed(now) && !principal.expires().passed(now) {
            return Standing::Good;
        }
        Standing::Revoked
    }
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKeys").field("name", &self.name).field("keys", &self.current().keys.len()).finish()
    }
}

/// The scheme's name in the configuration and in identity keys.
pub(crate) const SCHEME: &str = "api-key";

/// What one call sees, whatever is replaced meanwhile.
#[derive(Default)]
struct State {
    keys: HashMap<String, KeyRecord>,
    /// The first hash this process has seen for each id, kept when the id goes: an operator's edits bound its size.
    first_seen: HashMap<String, KeyHash>,
}

impl State {
    /// The state with these keys, and the ids that had to be left out.
    fn next(&self, file: KeyFile) -> (Self, Vec<String>) {
        let mut next = Self { keys: HashMap::new(), first_seen: self.first_seen.clone() };
        let mut left_out = Vec::new();
        for (id, record) in file.into_records() {
            let first = next.first_seen.entry(id.clone()).or_insert_with(|| record.hash.clone());
            if first.matches(&record.hash) {
                next.keys.insert(id, record);
            } else {
                left_out.push(id);
            }
        }
        (next, left_out)
    }
}

#[cfg(test)]
mod tests;
