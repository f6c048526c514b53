//! Bytes that never show: not in `Debug`, not in an error, not in memory after use.
//!
//! Must not grow `Display`, `PartialEq` or `Serialize`: each would be a way out, or a comparison that stops early.

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// A password, key or token. Overwritten in memory when dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes the bytes over; a `String` or `Vec` is not copied.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(Zeroizing::new(bytes.into()))
    }

    /// The bytes themselves; search for this name to find every place that sees them.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Whether `other` is the same secret, in a time that depends on the lengths only.
    pub fn matches(&self, other: &[u8]) -> bool {
        self.0.ct_eq(other).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

/// What stands in `Debug` output in place of a secret.
pub(crate) const REDACTED: &str = "[redacted]";

#[cfg(test)]
mod tests {
    use super::Secret;

    #[test]
    fn a_secret_matches_itself_and_nothing_else() {
        let secret = Secret::new("correct horse");
        assert!(secret.matches(b"correct horse"));
        for other in [&b""[..], b"correct hors", b"correct horse ", b"Correct horse", b"correct\0horse"] {
            assert!(!secret.matches(other), "{other:?}");
        }
        assert!(Secret::new("").matches(b""), "an empty password is a password");
    }

    #[test]
    fn a_secret_does_not_show_in_debug() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret:?} {:#?}", Some(&secret)), "[redacted] Some(\n    [redacted],\n)");
    }
}
