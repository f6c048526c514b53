//! API keys: long random tokens for programs, `pk1.<id>.<secret>`, sent as `Bearer`.
//!
//! The gate stores only a hash of each key, finds it by its id, and compares in constant time. A key has 256 random
//! bits, so a fast hash is enough and a check costs microseconds.
//!
//! | module | holds |
//! |---|---|
//! | `scheme` | [`ApiKeys`], the authenticator |
//! | `key` | the form of a key, and its hash |
//! | `file` | [`KeyFile`], the stored keys as `keys.toml` has them |
//! | `generate` | [`generate`], a new key and the record to store |
//!
//! Claims bearer tokens that start with `pk1.` and nothing else: never `Basic`, never a certificate. Must not touch
//! files or the network; whoever embeds it reads `keys.toml` and hands over the text.
//!
//! ```
//! use portcullis_auth::Expiry;
//! use portcullis_auth_api_key::{ApiKeys, KeyFile, generate};
//!
//! let new = generate("etl", &["writer"], Expiry::Never)?;
//! // `new.key` is shown to its owner once; `new.record` goes into `keys.toml`.
//! let keys = ApiKeys::new("keys", KeyFile::parse(&new.record)?);
//! # let _ = keys;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod scheme;

mod file;
mod generate;
mod key;

pub use file::{InvalidRecord, KeyFile, KeyFileError, KeyRecord};
pub use generate::{GenerateError, NewKey, generate};
pub use scheme::ApiKeys;
