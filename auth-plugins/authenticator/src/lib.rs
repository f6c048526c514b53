//! The contracts between the Portcullis gate and what decides for it: authentication schemes and a policy.
//!
//! A scheme implements [`Authenticator`]: it looks at an [`Attempt`] and answers with a [`Verdict`]. The gate asks
//! the schemes of its chain in order, and the first answer that is not [`Verdict::Abstain`] is final. A policy
//! implements
//! [`Authorizer`].
//!
//! | module | holds |
//! |---|---|
//! | `attempt` | what a scheme may look at, and the one parser of the `authorization` header |
//! | `verdict` | what a scheme answers |
//! | `principal` | who somebody is, as evidence that a scheme has admitted them |
//! | `secret` | bytes that never show |
//! | `access` | what somebody may do, as a policy answers it |
//! | `clock` | where time comes from |
//! | `conformance` | the contract as a test suite (feature `conformance`) |
//!
//! Must not know gRPC, SQL, TLS stacks or configuration files, and must stay light: whoever writes a scheme compiles
//! everything this crate depends on.
//!
//! ```
//! use std::time::SystemTime;
//!
//! use portcullis_auth::{
//!     Assertion, Attempt, Authenticator, BoxFuture, Credential, Expiry, Principal, Rejection, Secret, Standing,
//!     Verdict,
//! };
//!
//! /// One badge opens the door.
//! #[derive(Debug)]
//! struct Badge {
//!     code: Secret,
//! }
//!
//! impl Badge {
//!     fn judge(&self, attempt: &Attempt<'_>) -> Verdict {
//!         let Credential::Bearer(token) = attempt.credential() else { return Verdict::Abstain };
//!         if !token.starts_with("badge.") {
//!             return Verdict::Abstain;
//!         }
//!         if !self.code.matches(token.expose().as_bytes()) {
//!             return Verdict::Reject(Rejection::invalid("no such badge"));
//!         }
//!         let assertion = Assertion {
//!             name: "guard".to_owned(),
//!             scheme: self.scheme(),
//!             authority: self.name().to_owned(),
//!             subject: "guard".to_owned(),
//!             roles: Default::default(),
//!             attributes: Default::default(),
//!             expires: Expiry::Never,
//!             credential_id: "badge-1".to_owned(),
//!         };
//!         match Principal::assertion(assertion) {
//!             Ok(principal) => Verdict::Admit(principal),
//!             Err(invalid) => Verdict::Reject(Rejection::invalid(invalid.to_string())),
//!         }
//!     }
//! }
//!
//! impl Authenticator for Badge {
//!     fn scheme(&self) -> &'static str {
//!         "badge"
//!     }
//!
//!     fn name(&self) -> &str {
//!         "front-door"
//!     }
//!
//!     fn authenticate<'a>(&'a self, attempt: &'a Attempt<'a>) -> BoxFuture<'a, Verdict> {
//!         Box::pin(async move { self.judge(attempt) })
//!     }
//!
//!     fn standing(&self, principal: &Principal, now: SystemTime) -> Standing {
//!         if principal.expires().passed(now) { Standing::Revoked } else { Standing::Good }
//!     }
//! }
//! ```

mod access;
mod attempt;
mod verdict;

mod principal;

mod clock;
mod secret;

#[cfg(feature = "conformance")]
pub mod conformance;

pub use access::{Access, Action, Authorizer, Decision, Reach, Rows, TableName};
pub use attempt::{Attempt, BasicCredential, Credential, Token};
pub use clock::{Clock, SystemClock};
#[cfg(feature = "conformance")]
pub use conformance::TestClock;
pub use principal::{Assertion, Expiry, IdentityKey, InvalidAssertion, Principal};
pub use secret::Secret;
pub use verdict::{Authenticator, BoxFuture, Cost, RejectKind, Rejection, Standing, Verdict};
