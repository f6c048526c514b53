//! Texts that go on record as a hash: equal ones are seen to be equal, and nobody can look up what they were.
//!
//! The key lives as long as the process and is nowhere else. Must not keep a text.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::{hmac, rand};

/// A key of this process. Cheap to clone.
#[derive(Clone)]
pub(crate) enum HidingKey {
    Fresh(Arc<hmac::Key>),
    /// There was no randomness. A key that can be guessed would not hide what is short, so all texts look alike.
    Missing,
}

impl HidingKey {
    /// A key that no other process has.
    pub(crate) fn fresh() -> Self {
        let mut key = [0; 32];
        match rand::fill(&mut key) {
            Ok(()) => Self::Fresh(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, &key))),
            Err(_unspecified) => Self::Missing,
        }
    }

    /// What stands for `text`: the start of a keyed hash.
    pub(crate) fn hide(&self, text: &str) -> [u8; 16] {
        match self {
            Self::Fresh(key) => {
                hmac::sign(key, text.as_bytes()).as_ref().first_chunk::<16>().copied().unwrap_or_default()
            }
            Self::Missing => [0; 16],
        }
    }
}

impl fmt::Debug for HidingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HidingKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_seen_to_be_equal_by_one_process_only() {
        let (here, elsewhere) = (HidingKey::fresh(), HidingKey::fresh());
        assert_eq!(here.hide("alice"), here.clone().hide("alice"));
        assert_ne!(here.hide("alice"), here.hide("bob"));
        assert_ne!(here.hide("alice"), elsewhere.hide("alice"));
    }

    #[test]
    fn without_a_key_nothing_can_be_told_apart() {
        assert_eq!(HidingKey::Missing.hide("alice"), HidingKey::Missing.hide("bob"));
    }
}
