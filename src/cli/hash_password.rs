//! `hash-password`: a password from standard input becomes what `users.toml` stores.
//!
//! Must not take a password from the command line, where every user of the machine can read it, and must not echo it.

use std::io::Read as _;

use portcullis_auth::Secret;
use zeroize::Zeroizing;

use super::{Ended, say};

pub(super) fn run() -> Result<(), Ended> {
    let mut typed = Zeroizing::new(Vec::new());
    std::io::stdin()
        .lock()
        .take(LONGEST)
        .read_to_end(&mut typed)
        .map_err(|error| Ended::Configuration(format!("the password cannot be read: {error}")))?;
    // The end of the line that a terminal or `echo` adds, and no other space.
    let password = typed.strip_suffix(b"\n").unwrap_or(&typed);
    let password = password.strip_suffix(b"\r").unwrap_or(password);
    let hash = portcullis_auth_password::hash(&Secret::new(password))
        .map_err(|error| Ended::Configuration(error.to_string()))?;
    say(hash)
}

/// Beyond what any password may have, so that a longer one is refused and not cut.
const LONGEST: u64 = 64 * 1024;
