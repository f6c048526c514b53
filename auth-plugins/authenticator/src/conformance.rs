//! The contract of [`Authenticator`] as a test suite, and a clock that stands still.
//!
//! A scheme hands in sample credentials and [`conforms`] checks every rule of the contract with them. For tests only:
//! nothing here belongs into a running gate. Must not print what a sample holds, and must not pass by having had
//! nothing to check.
//!
//! ```
//! use std::time::SystemTime;
//!
//! use portcullis_auth::conformance::{Part, Sample, Samples, block_on, conforms};
//! # use portcullis_auth::{Assertion, Attempt, Authenticator, BoxFuture, Credential, Expiry, Principal, Rejection};
//! # use portcullis_auth::{Standing, Verdict};
//! # #[derive(Debug)]
//! # struct Badge;
//! # impl Badge {
//! #     fn judge(attempt: &Attempt<'_>) -> Verdict {
//! #         let Credential::Bearer(token) = attempt.credential() else { return Verdict::Abstain };
//! #         if !token.starts_with("badge.") {
//! #             return Verdict::Abstain;
//! #         }
//! #         if token.expose() != "badge.blue" {
//! #             return Verdict::Reject(Rejection::invalid("no such badge"));
//! #         }
//! #         match Principal::assertion(Assertion {
//! #             name: "guard".to_owned(),
//! #             scheme: "badge",
//! #             authority: "door".to_owned(),
//! #             subject: "guard".to_owned(),
//! #             roles: Default::default(),
//! #             attributes: Default::default(),
//! #             expires: Expiry::Never,
//! #             credential_id: "1".to_owned(),
//! #         }) {
//! #             Ok(principal) => Verdict::Admit(principal),
//! #             Err(_) => Verdict::Reject(Rejection::invalid("unusable")),
//! #         }
//! #     }
//! # }
//! # impl Authenticator for Badge {
//! #     fn scheme(&self) -> &'static str { "badge" }
//! #     fn name(&self) -> &str { "door" }
//! #     fn authenticate<'a>(&'a self, attempt: &'a Attempt<'a>) -> BoxFuture<'a, Verdict> {
//! #         Box::pin(async move { Self::judge(attempt) })
//! #     }
//! #     fn standing(&self, _: &Principal, _: SystemTime) -> Standing { Standing::Good }
//! # }
//! let samples = Samples::new(SystemTime::UNIX_EPOCH)
//!     .with(Part::Good, Sample::authorization("Bearer badge.blue"))
//!     .with(Part::Wrong, Sample::authorization("Bearer badge.red"))
//!     .with(Part::Foreign, Sample::authorization("Bearer pk1.abc"))
//!     .with(Part::Malformed, Sample::authorization("Bearer badge."))
//!     .lacks(Part::Unknown, "a badge names nobody")
//!     .lacks(Part::Expired, "a badge does not expire")
//!     .secret("badge.blue")
//!     .secret("badge.red");
//! block_on(conforms(&Badge, &samples)).expect("a badge follows the contract");
//! ```

mod check;
mod sample;
mod support;

pub use check::{Rule, Violation, conforms};
pub use sample::{Part, Sample, Samples};
pub use support::{TestClock, block_on};

#[cfg(doc)]
use crate::Authenticator;

#[cfg(test)]
mod tests;
