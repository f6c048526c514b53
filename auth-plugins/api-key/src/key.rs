//! The form of a key, and its hash.
//!
//! `pk1.` + 12 characters of id + `.` + 43 characters of secret, both base64url without padding, so that a key survives
//! URLs, shells and configuration files unquoted. Must not show a secret or compare hashes with `==`.

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};

/// What every key starts with, and by which this scheme knows its own.
pub(crate) const PREFIX: &str = "pk1.";

/// Random bytes of an id: enough that two keys never share one.
pub(crate) const ID_BYTES: usize = 9;

/// Random bytes of a secret.
pub(crate) const SECRET_BYTES: usize = 32;

/// The id in a key of the right form; nothing about whether such a key exists.
pub(crate) fn id_of(key: &str) -> Option<&str> {
    let (id, secret) = key.strip_prefix(PREFIX)?.split_once('.')?;
    (is_id(id) && is_base64url(secret, SECRET_CHARS)).then_some(id)
}

/// Whether this can be the id of a key.
pub(crate) fn is_id(id: &str) -> bool {
    is_base64url(id, ID_CHARS)
}

/// The SHA-256 of a whole key. Without `PartialEq`: the only comparison takes constant time.
#[derive(Clone)]
pub(crate) struct KeyHash([u8; SHA256_OUTPUT_LEN]);

impl KeyHash {
    /// What no key hashes to, so that an unknown id costs the same comparison as a wrong secret.
    pub(crate) const NOBODY: Self = Self([0; SHA256_OUTPUT_LEN]);

    pub(crate) fn of(key: &[u8]) -> Option<Self> {
        digest(&SHA256, key).as_ref().try_into().ok().map(Self)
    }

    /// Reads `sha256:` and 64 hexadecimal digits.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix("sha256:")?;
        let mut digits = hex.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()));
        let mut hash = [0; SHA256_OUTPUT_LEN];
        for byte in &mut hash {
            let (high, low) = (digits.next()??, digits.next()??);
            *byte = (high << 4) | low;
        }
        digits.next().is_none().then_some(Self(hash))
    }

    pub(crate) fn matches(&self, other: &Self) -> bool {
        verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Of no use to a thief, and of none to a reader either.
        f.write_str("sha256:…")
    }
}

fn is_base64url(text: &str, len: usize) -> bool {
    text.len() == len && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

const ID_CHARS: usize = 12;
const SECRET_CHARS: usize = 43;

#[cfg(test)]
mod tests {
    use super::{KeyHash, id_of};

    #[test]
    fn the_id_of_a_well_formed_key_is_found() {
        let secret = "s".repeat(43);
        let id = |key: &str| id_of(key).map(str::to_owned);
        assert_eq!(id(&format!("pk1.AZaz09-_AZaz.{secret}")).as_deref(), Some("AZaz09-_AZaz"));
        for bad in [
            "",
            "pk1",
            "pk1.",
            "pk1..",
            "pk1.AZaz09-_AZaz",
            "pk1.AZaz09-_AZaz.",
            &format!("pk1.AZaz09-_AZaz.{secret}s"),
            &format!("pk1.AZaz09-_AZaz.{}", "s".repeat(42)),
            &format!("pk1.AZaz09-_AZaz.{secret}."),
            &format!("pk1.AZaz09-_AZaz.{}.", "s".repeat(42)),
            &format!("pk1.AZaz09-_AZaz.{}=", "s".repeat(42)),
            &format!("pk1.AZaz09-_AZa.{secret}"),
            &format!("pk1.AZaz09-_AZazz.{secret}"),
            &format!("pk1.AZaz09+/AZaz.{secret}"),
            &format!("pk1.AZaz09-_AZé.{secret}"),
            &format!("PK1.AZaz09-_AZaz.{secret}"),
            &format!("pk2.AZaz09-_AZaz.{secret}"),
            &format!("pk1.AZaz09-_AZaz.{}~", "s".repeat(42)),
        ] {
            assert_eq!(id(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_hash_is_the_one_that_other_tools_compute() {
        // printf abc | sha256sum
        let abc = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(KeyHash::of(b"abc").map(|hash| hash.to_string()).as_deref(), Some(abc));
        let stored = KeyHash::parse(abc);
        assert!(stored.is_some_and(|stored| KeyHash::of(b"abc").is_some_and(|hash| hash.matches(&stored))));
        assert!(KeyHash::parse(&abc.to_uppercase().replace("SHA256", "sha256")).is_some());
    }

    #[test]
    fn a_bad_hash_is_not_read() {
        let hex = "0".repeat(64);
        assert!(KeyHash::parse(&format!("sha256:{hex}")).is_some());
        for bad in [
            hex.clone(),
            format!("sha512:{hex}"),
            format!("sha256:{hex}0"),
            format!("sha256:0{hex}"),
            format!("sha256:{}", "0".repeat(63)),
            format!("sha256:{}g", "0".repeat(63)),
            "sha256:".to_owned(),
            format!("sha256: {hex}"),
            format!("sha256:{}é", "0".repeat(62)),
            String::new(),
        ] {
            assert!(KeyHash::parse(&bad).is_none(), "{bad}");
        }
    }
}
