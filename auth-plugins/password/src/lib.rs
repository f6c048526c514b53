//! Passwords: users of one `users.toml` with argon2id hashes, sent as `Basic`.
//!
//! A password is the one secret that can be guessed, so checking one costs time and memory on purpose. That cost is
//! bounded here: a few threads of its own hash, few calls wait for them, and a credential that was good a moment ago is
//! not hashed again.
//!
//! | module | holds |
//! |---|---|
//! | `scheme` | [`Passwords`], the authenticator |
//! | `pool` | the threads that hash, and the queue in front of them |
//! | `seen` | which credentials were good a moment ago |
//! | `file` | [`UserFile`], the users as `users.toml` has them |
//! | `phc` | one stored hash, and [`hash()`], a new one |
//!
//! Claims `Basic` and nothing else: a bearer token in a password field is not its business. Must not touch files or the
//! network; whoever embeds it reads `users.toml` and hands over the text.
//!
//! ```
//! use portcullis_auth::Secret;
//! use portcullis_auth_password::{HashingConfig, Passwords, UserFile, hash};
//!
//! let stored = hash(&Secret::new("correct horse"))?;
//! let users = UserFile::parse(&format!("[user.alice]\npassword = \"{stored}\"\nroles = [\"analyst\"]\n"))?;
//! let passwords = Passwords::new("staff", users, HashingConfig::default())?;
//! # let _ = passwords;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod scheme;

mod pool;
mod seen;

mod file;
mod phc;

#[cfg(test)]
mod held;

pub use file::{UserFile, UserFileError};
pub use phc::{HashError, hash};
pub use pool::{HashingConfig, StartError};
pub use scheme::Passwords;
