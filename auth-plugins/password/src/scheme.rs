//! The authenticator: claims `Basic` and judges it by the stored hashes.
//!
//! An unknown user and a wrong password take the same path, cost one hash each, and get the same answer. Must not do
//! I/O or hash on the thread of the call, and must not put a user that failed into a reason.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::RwLock;
use portcullis_auth::{
    Attempt, Authenticator, BasicCredential, BoxFuture, Cost, Credential, Principal, Rejection, Standing, Verdict,
};
use tokio::time::Instant;

use crate::file::{UserFile, UserRecord};
use crate::phc::{Outcome, StoredHash};
use crate::pool::{Check, HashingConfig, NoAnswer, Pool, StartError};
use crate::seen::{Fingerprint, ProcessKey, Question, Seen};

/// The users of one `users.toml`, as an authenticator.
///
/// Users are compared byte by byte. Where stored hashes differ in their parameters, an unknown user costs as much as
/// the dearest of them, so the time of a cheaper one tells that it exists: give all users the same parameters.
///
/// Its futures need a tokio runtime with timers.
pub struct Passwords {
    name: String,
    users: RwLock<Arc<Users>>,
    key: ProcessKey,
    seen: Arc<Seen>,
    pool: Pool,
}

impl Passwords {
    /// Users under the configured name of this authenticator. Starts the hashing threads, which end when it is dropped.
    ///
    /// # Errors
    ///
    /// If the operating system gives no threads or no random bytes.
    pub fn new(name: impl Into<String>, users: UserFile, config: HashingConfig) -> Result<Self, StartError> {
        Self::checked_by(name, users, config, Arc::new(StoredHash::check))
    }

    /// Puts these users in place of the present ones, at once for every call that starts from now on.
    ///
    /// Sessions of users that are gone, or that have another password, other roles or other attributes, end by
    /// [`Authenticator::standing`]. A call that waits for its hash meanwhile is judged by the new users.
    pub fn replace(&self, users: UserFile) {
        let users = Arc::new(Users::new(users));
        *self.users.write() = Arc::clone(&users);
        let kept: HashSet<_> = users.by_name.values().map(|record| record.fingerprint).collect();
        self.seen.forget_unless(|fingerprint| kept.contains(&fingerprint));
    }

    /// How many passwords were hashed so far.
    pub fn hashes_done(&self) -> u64 {
        self.pool.done()
    }

    fn checked_by(
        name: impl Into<String>,
        users: UserFile,
        config: HashingConfig,
        check: Arc<Check>,
    ) -> Result<Self, StartError> {
        let seen = Arc::new(Seen::new(config.remember));
        Ok(Self {
            name: name.into(),
            users: RwLock::new(Arc::new(Users::new(users))),
            key: ProcessKey::random().map_err(|_| StartError::Random)?,
            pool: Pool::start(&config, Arc::clone(&seen), check)?,
            seen,
        })
    }

    async fn judge(&self, attempt: &Attempt<'_>) -> Verdict {
        match attempt.credential() {
            Credential::Basic(basic) => self.judge_basic(&basic, attempt.now).await,
            Credential::Absent
            | Credential::Bearer(_)
            // Whose a credential is that cannot be read, nobody knows: the gate refuses it by itself.
            | Credential::Malformed(_)
            | Credential::Unknown => Verdict::Abstain,
        }
    }

    async fn judge_basic(&self, basic: &BasicCredential, now: SystemTime) -> Verdict {
        if basic.password().expose().is_empty() {
            return Verdict::Reject(Rejection::malformed("the password is empty"));
        }
        let users = self.current();
        let (question, stored) = self.question(&users, basic);
        let outcome = if self.seen.knows(&question, Instant::now()) {
            Ok(Outcome::Fits)
        } else {
            self.pool.ask(question, stored, basic.password()).await
        };
        let rejection = match outcome {
            // Users may have been replaced while this one waited: the answer counts for the stored hash it was asked
            // about, and for nobody who has another by now.
            Ok(Outcome::Fits) => match self.current().by_name.get(basic.user()) {
                Some(record) if record.fingerprint == question.stored => return self.judge_record(record, now),
                Some(_) | None => self.refused(basic),
            },
            Ok(Outcome::Wrong) => self.refused(basic),
            Ok(Outcome::Failed) => Rejection::unavailable("there was not enough memory to hash", RETRY_AFTER),
            Err(NoAnswer::Full) => Rejection::unavailable("too many passwords wait to be hashed", RETRY_AFTER),
            Err(NoAnswer::TooLate) => Rejection::unavailable("the password was not hashed in time", RETRY_AFTER),
            Err(NoAnswer::Stopped) => Rejection::unavailable("the hashing threads have ended", RETRY_AFTER),
        };
        Verdict::Reject(rejection)
    }

    /// What to ask about this credential. Of an unknown user it is something that is never true.
    fn question<'u>(&self, users: &'u Users, basic: &BasicCredential) -> (Question, &'u Arc<StoredHash>) {
        let (stored, hash) = match users.by_name.get(basic.user()) {
            Some(record) => (record.fingerprint, &record.stored),
            None => (users.nobodys_fingerprint, &users.nobody),
        };
        (Question { credential: self.key.credential(basic), stored }, hash)
    }

    fn refused(&self, basic: &BasicCredential) -> Rejection {
        let user = self.key.user(basic.user());
        Rejection::invalid(format!("no such user, or a wrong password: user hash `{user}`"))
    }

    /// The password was the right one: the rest may be said, but for the name, which no reason quotes.
    fn judge_record(&self, record: &UserRecord, now: SystemTime) -> Verdict {
        if record.expires.passed(now) {
            let user = self.key.user(&record.user);
            return Verdict::Reject(Rejection::invalid(format!("the user has expired: user hash `{user}`")));
        }
        match Principal::assertion(record.assertion(&self.name)) {
            Ok(principal) => Verdict::Admit(principal),
            // The record was checked when it was read, so it can only be the configured name.
            Err(invalid) => Verdict::Reject(Rejection::invalid(format!("unusable configuration: {invalid}"))),
        }
    }

    fn current(&self) -> Arc<Users> {
        Arc::clone(&self.users.read())
    }
}

impl Authenticator for Passwords {
    fn scheme(&self) -> &'static str {
        SCHEME
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn authenticate<'a>(&'a self, attempt: &'a Attempt<'a>) -> BoxFuture<'a, Verdict> {
        Box::pin(self.judge(attempt))
    }

    /// Dear for a password that has to be hashed, known or not; cheap for one that was good a moment ago.
    fn cost(&self, attempt: &Attempt<'_>) -> Cost {
        match attempt.credential() {
            Credential::Basic(basic) => {
                let (question, _) = self.question(&self.current(), &basic);
                if self.seen.knows(&question, Instant::now()) { Cost::Cheap } else { Cost::Dear }
            }
            Credential::Absent | Credential::Bearer(_) | Credential::Malformed(_) | Credential::Unknown => Cost::Cheap,
        }
    }

    /// Revoked once the user is gone, its password, roles or attributes are others, or it has expired.
    fn standing(&self, principal: &Principal, now: SystemTime) -> Standing {
        let users = self.current();
        let Some(record) = users.by_name.get(principal.key().subject()) else { return Standing::Revoked };
        let same = principal.scheme() == SCHEME
            && principal.key().authority() == self.name
            && principal.name() == record.user
            && principal.credential_id() == record.credential_id()
            && *principal.roles() == record.roles
            && *principal.attributes() == record.attributes;
        if same && !record.expires.passed(now) && !principal.expires().passed(now) {
            return Standing::Good;
        }
        Standing::Revoked
    }
}

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passwords")
            .field("name", &self.name)
            .field("users", &self.current().by_name.len())
            .field("seen", &self.seen.len())
            .finish_non_exhaustive()
    }
}

/// The scheme's name in the configuration and in identity keys.
pub(crate) const SCHEME: &str = "password";

const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What one call sees, whatever is replaced meanwhile.
struct Users {
    by_name: HashMap<String, UserRecord>,
    /// What an unknown user's password is hashed against.
    nobody: Arc<StoredHash>,
    nobodys_fingerprint: Fingerprint,
}

impl Users {
    fn new(file: UserFile) -> Self {
        let by_name: HashMap<_, _> = file.into_records().into_iter().collect();
        let dearest = by_name.values().map(|record| &*record.stored).max_by_key(|stored| stored.cost());
        let nobody = StoredHash::nobody(dearest);
        // No user has an empty name.
        Self { by_name, nobodys_fingerprint: Fingerprint::of("", &nobody), nobody: Arc::new(nobody) }
    }
}

#[cfg(test)]
mod tests;
