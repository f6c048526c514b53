//! Why a token is not accepted, before anybody is told.
//!
//! A reason names the check that failed and nothing that the token holds. Must not carry the text of a library's error:
//! those quote what they could not read.

use std::borrow::Cow;
use std::time::Duration;

use portcullis_auth::Rejection;

/// A refusal that does not name its issuer yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Understood and not accepted.
    Invalid(Cow<'static, str>),
    /// Not of the form it claims.
    Malformed(Cow<'static, str>),
    /// There are no keys to judge by.
    Unavailable(Duration),
}

impl Fault {
    pub(crate) fn invalid(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Invalid(reason.into())
    }

    pub(crate) fn malformed(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Malformed(reason.into())
    }

    /// The refusal of a token whose issuer is not known.
    pub(crate) fn rejection(self) -> Rejection {
        match self {
            Self::Invalid(reason) => Rejection::invalid(reason),
            Self::Malformed(reason) => Rejection::malformed(reason),
            Self::Unavailable(after) => Rejection::unavailable(NO_KEYS, after),
        }
    }

    /// The refusal of a token of this issuer, by its configured name.
    pub(crate) fn rejection_of(self, issuer: &str) -> Rejection {
        match self {
            Self::Invalid(reason) => Rejection::invalid(format!("{reason}: issuer `{issuer}`")),
            Self::Malformed(reason) => Rejection::malformed(format!("{reason}: issuer `{issuer}`")),
            Self::Unavailable(after) => Rejection::unavailable(format!("{NO_KEYS}: issuer `{issuer}`"), after),
        }
    }
}

const NO_KEYS: &str = "the issuer's keys could not be fetched";
