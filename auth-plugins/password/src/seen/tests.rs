//! What is remembered, for how long, and how much of it.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::{Duration, SystemTime};

use argon2::Params;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use portcullis_auth::{Attempt, BasicCredential, Credential, Secret};
use tokio::time::Instant;

use super::{CredentialTag, Fingerprint, MAX_SEEN, ProcessKey, Question, Seen};
use crate::phc::StoredHash;

#[test]
fn a_good_credential_is_remembered_for_its_time_and_no_longer() {
    let (seen, now) = (Seen::new(MINUTE), Instant::now());
    assert!(!seen.knows(&Question::numbered(1), now));
    seen.remember(Question::numbered(1), now);
    assert!(seen.knows(&Question::numbered(1), now + MINUTE - TICK));
    // Asking does not prolong it.
    assert!(!seen.knows(&Question::numbered(1), now + MINUTE));
    assert!(!seen.knows(&Question::numbered(2), now), "another credential");
    let another_password_stored = Question { stored: Fingerprint([9; 32]), ..Question::numbered(1) };
    assert!(!seen.knows(&another_password_stored, now));
}

#[test]
fn without_time_to_remember_nothing_is_known() {
    let (seen, now) = (Seen::new(Duration::ZERO), Instant::now());
    seen.remember(Question::numbered(1), now);
    assert!(!seen.knows(&Question::numbered(1), now));
}

#[test]
fn what_is_remembered_is_bounded_and_the_oldest_goes_first() {
    let (seen, now) = (Seen::new(MINUTE), Instant::now());
    let count = u32::try_from(MAX_SEEN).unwrap();
    for number in 0..count + 10 {
        seen.remember(Question::numbered(number), now + TICK * number);
        assert!(seen.len() <= MAX_SEEN);
    }
    let later = now + TICK * (count + 10);
    assert!((0..10).all(|number| !seen.knows(&Question::numbered(number), later)));
    assert!((10..count + 10).all(|number| seen.knows(&Question::numbered(number), later)));

    seen.remember(Question::numbered(count + 10), later + MINUTE);
    assert_eq!(seen.len(), 1, "what has ended makes room first");
}

#[test]
fn what_fitted_a_hash_that_is_gone_is_forgotten() {
    let (seen, now) = (Seen::new(MINUTE), Instant::now());
    let (kept, gone) = (Question::numbered(1), Question { stored: Fingerprint([9; 32]), ..Question::numbered(2) });
    seen.remember(kept, now);
    seen.remember(gone, now);
    assert!(seen.knows(&kept, now) && seen.knows(&gone, now));
    seen.forget_unless(|stored| stored == kept.stored);
    assert!(seen.knows(&kept, now) && !seen.knows(&gone, now));
    assert_eq!(seen.len(), 1);
}

#[test]
fn no_two_credentials_and_no_two_processes_look_alike() {
    let (key, other) = (ProcessKey::random().unwrap(), ProcessKey::random().unwrap());
    let tag = |key: &ProcessKey, user, password| key.credential(&basic(user, password)).0;
    assert_eq!(tag(&key, "alice", "secret"), tag(&key, "alice", "secret"));
    for (user, password) in [("alices", "ecret"), ("alice", "secret "), ("alice", ""), ("Alice", "secret")] {
        assert_ne!(tag(&key, "alice", "secret"), tag(&key, user, password), "{user}:{password}");
    }
    assert_ne!(tag(&key, "alice", "secret"), tag(&other, "alice", "secret"));
    assert_eq!(key.user("alice"), key.user("alice"));
    assert_ne!(key.user("alice"), key.user("alicf"));
    assert_ne!(key.user("alice"), other.user("alice"));
    assert_eq!(key.user("alice").len(), 12);
}

#[test]
fn a_fingerprint_names_one_password_of_one_user_in_every_process() {
    let params = Params::new(64, 1, 1, None).unwrap();
    let (one, two) =
        (StoredHash::make(&Secret::new("x"), &params).unwrap(), StoredHash::make(&Secret::new("x"), &params).unwrap());
    assert_eq!(Fingerprint::of("alice", &one), Fingerprint::of("alice", &one.clone()));
    assert_ne!(Fingerprint::of("alice", &one), Fingerprint::of("bob", &one));
    assert_ne!(Fingerprint::of("alice", &one), Fingerprint::of("alice", &two));
    // Gates of several versions must agree on it: sha256 of `portcullis user`, NUL, user, NUL, PHC string.
    let nobody = StoredHash::nobody(None);
    assert_eq!(Fingerprint::of("alice", &nobody).to_string(), "8ce23b5d7dd37309db6aa78f82b7c8b2");
}

impl Question {
    /// A question for tests, each number another one.
    pub(crate) fn numbered(number: u32) -> Self {
        let mut tag = [0; 32];
        tag.iter_mut().zip(number.to_le_bytes()).for_each(|(to, from)| *to = from);
        Self { credential: CredentialTag(tag), stored: Fingerprint([0; 32]) }
    }
}

fn basic(user: &str, password: &str) -> BasicCredential {
    use base64::Engine as _;
    let encoded = base64::prelude::BASE64_STANDARD.encode(format!("{user}:{password}"));
    let value = HeaderValue::from_str(&format!("Basic {encoded}")).unwrap();
    let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
    match Attempt::new(&headers, SystemTime::UNIX_EPOCH).credential() {
        Credential::Basic(basic) => Some(basic),
        Credential::Absent | Credential::Bearer(_) | Credential::Malformed(_) | Credential::Unknown => None,
    }
    .unwrap()
}

const MINUTE: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(1);
