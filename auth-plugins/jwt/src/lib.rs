//! JSON Web Tokens (RFC 7519) of one or more issuers, sent as `Bearer`, by a strict profile (RFC 8725, RFC 9068).
//!
//! A token is admitted if an issuer that is configured has signed it with a published key and an accepted algorithm,
//! for this gate, for now, and for somebody. Nothing in a token is ever followed: not `jku`, not `x5u`, not `jwk`.
//! A token that was verified is remembered, so that the second call costs a hash.
//!
//! | module | holds |
//! |---|---|
//! | `scheme` | [`Jwt`], the authenticator |
//! | `config` | [`IssuerConfig`], what an embedder says about an issuer |
//! | `token` | from text to verified claims |
//! | `claims` | from verified claims to a principal |
//! | `keys` | a key set, and which of its keys may be used |
//! | `source` | the keys that count now: fixed, or fetched and kept fresh |
//! | `fetch` | how keys are fetched |
//! | `cache` | tokens that were verified before |
//! | `deny` | [`DenyList`], tokens and principals that are no longer wanted |
//! | `algorithm`, `path`, `json`, `fault` | small words of the above |
//!
//! Claims bearer tokens of three to five parts in base64url, whoever issued them, and nothing else: never a key of the
//! gate (`pk1.`, `ps1.`), never `Basic`. Must not touch files; whoever embeds it reads them and hands over the text.
//! Fetching keys needs a Tokio runtime; without one, tokens of issuers whose keys are fetched are unavailable.
//!
//! ```
//! use std::sync::Arc;
//!
//! use portcullis_auth::SystemClock;
//! use portcullis_auth_jwt::{Algorithm, IssuerConfig, Jwt, KeySource, Roles};
//!
//! let keys = KeySource::Url("https://id.example.com/realms/corp/certs".to_owned());
//! let mut corp = IssuerConfig::new(
//!     "https://id.example.com/realms/corp",
//!     vec!["portcullis".to_owned()],
//!     vec![Algorithm::Rs256, Algorithm::Es256],
//!     keys,
//! );
//! corp.roles_claim = Roles::Claim("realm_access.roles".parse()?);
//! let jwt = Jwt::new("corp", vec![corp], Arc::new(SystemClock))?;
//! // Then `jwt.prefetch().await` once, and `jwt.keep_fresh(stop)` in a task of its own.
//! # let _ = jwt;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod scheme;

mod claims;
mod config;
mod token;

mod fetch;
mod keys;
mod source;

mod cache;
mod deny;

mod algorithm;
mod fault;
mod json;
mod path;

#[cfg(test)]
mod testing;

pub use algorithm::{Algorithm, UnknownAlgorithm};
pub use config::{Http, IssuerConfig, IssuerError, KeySource, Roles, Trust};
pub use deny::{DenyList, DenyListError};
pub use keys::{KeySetError, StaticKeys};
pub use path::{ClaimPath, InvalidClaimPath};
pub use scheme::{Counters, Jwt};
pub use token::TokenType;
