//! A new key and the record to store.
//!
//! The key leaves this module once and is kept nowhere. Must not write files or print.

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use portcullis_auth::{Expiry, Secret};
use zeroize::Zeroizing;

use crate::file::{InvalidRecord, KeyRecord};
use crate::key;

/// A key nobody has seen yet.
#[derive(Debug)]
pub struct NewKey {
    /// The whole key, `pk1.<id>.<secret>`: letters, digits and `-_.` only. To be shown to its owner once.
    pub key: Secret,
    /// The table to add to `keys.toml`. It holds a hash, from which the key cannot be found.
    pub record: String,
}

/// A new random key for `principal`; of `expires`, whole seconds count.
///
/// # Errors
///
/// If the principal or a role is not usable as a name, if the expiry cannot be written as a date, or if the operating
/// system gives no random bytes.
pub fn generate(principal: &str, roles: &[&str], expires: Expiry) -> Result<NewKey, GenerateError> {
    let id = BASE64_URL_SAFE_NO_PAD.encode(*random::<{ key::ID_BYTES }>()?);
    let secret = Zeroizing::new(BASE64_URL_SAFE_NO_PAD.encode(*random::<{ key::SECRET_BYTES }>()?));
    let key = Secret::new([key::PREFIX, &id, ".", &secret].concat());
    let record = KeyRecord::for_key(&key, principal, roles, expires)?.to_toml()?;
    Ok(NewKey { key, record })
}

/// Why there is no new key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// The operating system gave no random bytes.
    #[error("the operating system gave no random bytes")]
    Random,
    /// No record can be made with these names or this expiry.
    #[error(transparent)]
    Record(#[from] InvalidRecord),
}

fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>, GenerateError> {
    let mut bytes = Zeroizing::new([0; N]);
    rand::fill(&mut *bytes).map_err(|_| GenerateError::Random)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use std::collections::BTreeSet;
    use std::time::{Duration, SystemTime};

    use portcullis_auth::Expiry;

    use super::{GenerateError, generate};
    use crate::KeyFile;
    use crate::file::InvalidRecord;

    #[test]
    fn a_new_key_has_the_promised_form_and_its_record_can_be_read() {
        let keys: BTreeSet<String> = (0..100)
            .map(|_| {
                let new = generate("alice", &["analyst", "writer"], Expiry::Never).unwrap();
                let key = String::from_utf8(new.key.expose().to_vec()).unwrap();
                assert!(key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)), "{key}");
                assert_eq!(key.split('.').map(str::len).collect::<Vec<_>>(), [3, 12, 43]);
                assert_eq!(KeyFile::parse(&new.record).unwrap().len(), 1);
                let (_, secret) = key.rsplit_once('.').unwrap();
                assert!(!new.record.contains(secret) && !format!("{new:?}").contains(secret), "the secret shows");
                key
            })
            .collect();
        assert_eq!(keys.len(), 100, "a key came twice");
    }

    #[test]
    fn a_record_is_a_table_that_people_can_read() {
        let end = SystemTime::UNIX_EPOCH + Duration::from_millis(1_798_761_600_750);
        let new = generate("O\"Neill \\ 王", &["analyst"], Expiry::At(end)).unwrap();
        let mut lines = new.record.lines();
        assert!(lines.next().unwrap().starts_with("[key."), "{}", new.record);
        assert!(lines.next().unwrap().starts_with("hash = \"sha256:"), "{}", new.record);
        assert_eq!(
            lines.collect::<Vec<_>>(),
            ["principal = 'O\"Neill \\ 王'", "roles = [\"analyst\"]", "expires = 2027-01-01T00:00:00Z"]
        );
        KeyFile::parse(&new.record).unwrap();

        let plain = generate("alice", &[], Expiry::Never).unwrap();
        assert_eq!(plain.record.lines().skip(2).collect::<Vec<_>>(), ["principal = \"alice\""]);
    }

    #[test]
    fn names_and_dates_that_cannot_be_stored_are_refused() {
        assert!(generate("alice", &["analyst"], Expiry::Never).is_ok());
        for (principal, roles) in [("", vec![]), ("a\nb", vec![]), ("role:admin", vec![]), ("alice", vec![""])] {
            let refused = generate(principal, &roles, Expiry::Never).unwrap_err();
            assert!(matches!(refused, GenerateError::Record(InvalidRecord::Name(_))), "{principal:?}: {refused}");
        }
        for seconds in [Duration::from_secs(253_402_300_800), Duration::from_secs(1 << 62)] {
            let Some(end) = SystemTime::UNIX_EPOCH.checked_add(seconds) else { continue };
            let refused = generate("alice", &[], Expiry::At(end)).unwrap_err();
            assert_eq!(refused, GenerateError::Record(InvalidRecord::Expiry));
        }
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert!(generate("alice", &[], Expiry::At(before)).is_err());
    }
}
