//! The trait a scheme implements, and what it may answer.
//!
//! [`Verdict`], [`Cost`] and [`Standing`] are closed enums on purpose: a new answer must be looked at by every match
//! that decides. Must not know how the gate tells the client.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use crate::attempt::Attempt;
use crate::principal::Principal;

/// A boxed future, written by hand to keep procedural macros out of the contract.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An authentication scheme.
///
/// # Contract
///
/// Each line is checked by the `conformance` suite under the rule named in brackets.
///
/// * It abstains when the attempt holds no credential (`AbstainsWithoutCredential`).
/// * It abstains on a credential of another form (`AbstainsOnForeign`). The form is told by shape, such as a token
///   prefix, and never by trying.
/// * It admits a good credential, and always as the same identity (`AdmitsGood`, `SameIdentity`).
/// * It rejects a credential of its own form that is unknown, wrong, expired or malformed; it never abstains on one,
///   since the next scheme would be asked (`RejectsBad`).
/// * An unknown identity and a wrong secret get rejections of one kind (`UnknownLooksWrong`), and should cost one time.
/// * Whatever bytes arrive, it neither admits them nor panics (`NeverAdmitsGarbage`, `NeverPanics`). That includes two
///   credentials in one attempt.
/// * A future that is dropped half-way leaves nothing behind (`CancelSafe`).
/// * Whom it has just admitted is in good standing (`StandingAfterAdmit`).
/// * No secret shows in `Debug` of the scheme, of a verdict or of a principal, nor in a reason (`NoSecretShows`).
/// * No reason quotes a name or a credential that was presented (`NothingPresentedShows`). What is public and no name,
///   such as the id of a key, it may quote.
/// * It has a scheme and a name (`IsNamed`).
///
/// A header that is [`Credential::Malformed`](crate::Credential::Malformed) belongs to nobody: the gate refuses it
/// before it asks, and a scheme abstains.
///
/// What no suite can check: it must judge expiry by [`Attempt::now`] and not by a clock of its own, must not block the
/// thread, and must answer [`Rejection::unavailable`] when it cannot judge.
pub trait Authenticator: fmt::Debug + Send + Sync + 'static {
    /// The kind of scheme, such as `api-key`: used in configuration, logs, metrics and identity keys.
    fn scheme(&self) -> &'static str;

    /// The configured name, unique in the chain.
    fn name(&self) -> &str;

    /// Looks for this scheme's credential and judges it.
    fn authenticate<'a>(&'a self, attempt: &'a Attempt<'a>) -> BoxFuture<'a, Verdict>;

    /// What judging this attempt would take: asked before [`Authenticator::authenticate`], without having verified
    /// anything. A gate spends [`Cost::Dear`] work on a stranger only within its limits, and never lets the failures of
    /// others stand in the way of a [`Cost::Cheap`] credential. Must itself be cheap and do no I/O.
    fn cost(&self, _attempt: &Attempt<'_>) -> Cost {
        Cost::Dear
    }

    /// Whether the credential that made `principal` still counts: asked on every call of a session which that
    /// credential opened, so it must be cheap and do no I/O.
    ///
    /// A principal that this scheme did not make, or no longer knows, is [`Standing::Revoked`]. The gate ends
    /// a session at [`Principal::expires`] by itself.
    fn standing(&self, principal: &Principal, now: SystemTime) -> Standing;
}

/// What it takes to judge an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// A lookup or a hash: microseconds, whoever asks. Also the cost of abstaining.
    Cheap,
    /// A signature, a slow password hash, or a question to somebody else.
    Dear,
}

/// Whether a credential that was good still is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// As far as the scheme knows, nothing has changed.
    Good,
    /// The credential was deleted, denied, changed or has expired.
    Revoked,
}

/// What a scheme says about an attempt.
#[derive(Debug)]
#[must_use]
pub enum Verdict {
    /// There is no credential of this scheme; ask the next.
    Abstain,
    /// The credential is good.
    Admit(Principal),
    /// There is a credential of this scheme and it is not accepted. Final: no other scheme is asked.
    Reject(Rejection),
}

/// A refusal, with a reason for the audit log that the client never sees.
#[derive(Clone, Debug)]
pub struct Rejection {
    kind: RejectKind,
    reason: Cow<'static, str>,
}

impl Rejection {
    /// The credential was understood and is not accepted: unknown, wrong, expired or revoked.
    pub fn invalid(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(RejectKind::Invalid, reason.into())
    }

    /// The credential claims this scheme's form and does not have it.
    pub fn malformed(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(RejectKind::Malformed, reason.into())
    }

    /// The scheme cannot judge now; the client may try again after `retry_after`.
    pub fn unavailable(reason: impl Into<Cow<'static, str>>, retry_after: Duration) -> Self {
        Self::new(RejectKind::Unavailable { retry_after }, reason.into())
    }

    /// What class of refusal this is.
    pub fn kind(&self) -> RejectKind {
        self.kind
    }

    /// The reason for the audit log: one short line, never a secret and never the presented name.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    fn new(kind: RejectKind, reason: Cow<'static, str>) -> Self {
        // Whatever part of what a client sent gets into a reason, it must not be able to forge a second line in a log.
        let clean = reason.chars().count() <= MAX_REASON_CHARS && !reason.chars().any(char::is_control);
        let reason = if clean {
            reason
        } else {
            reason.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_REASON_CHARS).collect()
        };
        Self { kind, reason }
    }
}

/// Classes of refusal. Open: a new one may not loosen anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RejectKind {
    /// Understood and not accepted.
    Invalid,
    /// Not of the form it claims.
    Malformed,
    /// The scheme cannot judge now.
    Unavailable {
        /// How long the client should wait.
        retry_after: Duration,
    },
}

const MAX_REASON_CHARS: usize = 300;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{RejectKind, Rejection};

    #[test]
    fn a_rejection_keeps_its_kind_and_reason() {
        let busy = Rejection::unavailable("keys not fetched", Duration::from_secs(3));
        assert_eq!(busy.kind(), RejectKind::Unavailable { retry_after: Duration::from_secs(3) });
        assert_eq!(busy.reason(), "keys not fetched");
        assert_eq!(Rejection::invalid("wrong").kind(), RejectKind::Invalid);
        assert_eq!(Rejection::malformed("no dot").kind(), RejectKind::Malformed);
    }

    #[test]
    fn a_reason_is_one_short_line() {
        let forged = Rejection::invalid("user `a\nadmitted root\u{1b}[2J`");
        assert_eq!(forged.reason(), "user `a admitted root [2J`");
        assert_eq!(Rejection::invalid("é".repeat(1000)).reason(), "é".repeat(300));
    }
}
