//! Which credentials were good a moment ago, so that `Basic` on every call does not hash on every call.
//!
//! Remembers a keyed hash of user and password, and the stored hash they fitted. Must not hold a password, and must not
//! remember what was wrong: an answer to a guess would then come faster the second time.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::{hmac, rand};
use parking_lot::Mutex;
use portcullis_auth::BasicCredential;
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::phc::StoredHash;

/// The key by which this process hashes what clients send: random, and gone when it ends.
pub(crate) struct ProcessKey(hmac::Key);

impl ProcessKey {
    pub(crate) fn random() -> Result<Self, Unspecified> {
        let mut bytes = Zeroizing::new([0; 32]);
        rand::fill(&mut *bytes)?;
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &*bytes)))
    }

    /// What stands for this user with this password.
    pub(crate) fn credential(&self, basic: &BasicCredential) -> CredentialTag {
        // A user holds no NUL, so no two credentials look alike.
        let tag = self.sign(&[b"credential\0", basic.user().as_bytes(), b"\0", basic.password().expose()]);
        let mut bytes = [0; 32];
        bytes.iter_mut().zip(tag.as_ref()).for_each(|(to, from)| *to = *from);
        CredentialTag(bytes)
    }

    /// What stands for this user in a log, where the user may be a password that somebody typed into the wrong field.
    pub(crate) fn user(&self, user: &str) -> String {
        let tag = self.sign(&[b"user\0", user.as_bytes()]);
        tag.as_ref().iter().take(LOGGED_BYTES).map(|byte| format!("{byte:02x}")).collect()
    }

    fn sign(&self, parts: &[&[u8]]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.0);
        parts.iter().for_each(|part| context.update(part));
        context.sign()
    }
}

/// A user and a password under the [`ProcessKey`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CredentialTag([u8; 32]);

/// Which stored hash of which user: another as soon as the password is set anew.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Without a process key, so that every gate with the same users says the same. The random salt in the stored hash
    /// keeps guesses away.
    pub(crate) fn of(user: &str, stored: &StoredHash) -> Self {
        let text = Zeroizing::new(format!("portcullis user\0{user}\0{stored}"));
        let mut bytes = [0; 32];
        bytes.iter_mut().zip(digest(&SHA256, text.as_bytes()).as_ref()).for_each(|(to, from)| *to = *from);
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(16).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A question to the hashing threads: does this credential fit this stored hash?
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    pub(crate) credential: CredentialTag,
    pub(crate) stored: Fingerprint,
}

/// The questions whose answer was yes, for a while.
pub(crate) struct Seen {
    remember: Duration,
    until: Mutex<HashMap<Question, Instant>>,
}

impl Seen {
    pub(crate) fn new(remember: Duration) -> Self {
        Self { remember, until: Mutex::new(HashMap::new()) }
    }

    /// Whether the answer was yes not long ago. Asking does not prolong it.
    pub(crate) fn knows(&self, question: &Question, now: Instant) -> bool {
        self.until.lock().get(question).is_some_and(|until| now < *until)
    }

    pub(crate) fn remember(&self, question: Question, now: Instant) {
        let Some(end) = now.checked_add(self.remember) else { return };
        let mut until = self.until.lock();
        if until.len() >= MAX_SEEN && !until.contains_key(&question) {
            until.retain(|_, end| now < *end);
            // Rarely: so many users have signed in within that time.
            let oldest = until.iter().min_by_key(|(_, end)| **end).map(|(question, _)| *question);
            if let Some(oldest) = oldest.filter(|_| until.len() >= MAX_SEEN) {
                until.remove(&oldest);
            }
        }
        until.insert(question, end);
    }

    /// Forgets what fitted a stored hash that is not kept any more.
    pub(crate) fn forget_unless(&self, kept: impl Fn(Fingerprint) -> bool) {
        self.until.lock().retain(|question, _| kept(question.stored));
    }

    pub(crate) fn len(&self) -> usize {
        self.until.lock().len()
    }
}

const MAX_SEEN: usize = 4096;
const LOGGED_BYTES: usize = 6;

#[cfg(test)]
mod tests;
