//! Tokens that were verified before, so that the second call costs a hash instead of a signature.
//!
//! Bounded in number and in bytes: what has ended goes first, then what came first. Must not hold a token itself, nor
//! anything about a token that was refused.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use portcullis_auth::Expiry;

use crate::claims::Judged;
use crate::keys::Key;
use crate::scheme::TokenHash;

/// A token that was verified.
pub(crate) struct Seen {
    pub(crate) judged: Judged,
    /// The key it was verified with, which must still be the issuer's.
    pub(crate) key: Arc<Key>,
}

/// What was verified, by the hash of the token.
pub(crate) struct Cache {
    state: Mutex<State>,
    max_entries: usize,
    max_bytes: usize,
}

impl Cache {
    pub(crate) fn new(max_entries: usize, max_bytes: usize) -> Self {
        Self { state: Mutex::default(), max_entries, max_bytes }
    }

    pub(crate) fn get(&self, token: &TokenHash) -> Option<Arc<Seen>> {
        self.state.lock().entries.get(token).map(|entry| Arc::clone(&entry.seen))
    }

    pub(crate) fn holds(&self, token: &TokenHash) -> bool {
        self.state.lock().entries.contains_key(token)
    }

    /// Remembers a token of this length.
    pub(crate) fn insert(&self, token: TokenHash, bytes: usize, seen: Seen, now: SystemTime) {
        let mut state = self.state.lock();
        state.remove(&token);
        while state.entries.len() >= self.max_entries || state.bytes.saturating_add(bytes) > self.max_bytes {
            let Some(token) = state.dispensable(now) else { return };
            state.remove(&token);
        }
        state.insert(token, bytes, seen);
    }
}

#[derive(Default)]
struct State {
    entries: HashMap<TokenHash, Entry>,
    by_age: BTreeMap<u64, TokenHash>,
    by_end: BTreeMap<(SystemTime, u64), TokenHash>,
    bytes: usize,
    next: u64,
}

struct Entry {
    seen: Arc<Seen>,
    bytes: usize,
    age: u64,
    end: SystemTime,
}

impl State {
    fn insert(&mut self, token: TokenHash, bytes: usize, seen: Seen) {
        let Expiry::At(end) = seen.judged.principal.expires() else { return };
        let age = self.next;
        self.next = age.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        self.by_age.insert(age, token);
        self.by_end.insert((end, age), token);
        self.entries.insert(token, Entry { seen: Arc::new(seen), bytes, age, end });
    }

    fn remove(&mut self, token: &TokenHash) {
        let Some(entry) = self.entries.remove(token) else { return };
        self.bytes = self.bytes.saturating_sub(entry.bytes);
        self.by_age.remove(&entry.age);
        self.by_end.remove(&(entry.end, entry.age));
    }

    /// What can be done without: what has ended, otherwise what came first.
    fn dispensable(&self, now: SystemTime) -> Option<TokenHash> {
        let ended = self.by_end.first_key_value().filter(|((end, _), _)| *end <= now).map(|(_, token)| *token);
        ended.or_else(|| self.by_age.first_key_value().map(|(_, token)| *token))
    }
}

#[cfg(test)]
mod tests;
