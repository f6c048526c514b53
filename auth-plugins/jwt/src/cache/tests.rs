//! Bounds, and what goes first.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

use std::sync::Arc;
use std::time::SystemTime;

use portcullis_auth::{Assertion, Attempt, Credential, Expiry, Principal};

use super::{Cache, Seen};
use crate::Algorithm;
use crate::claims::{Binding, Judged};
use crate::keys::{Found, Key, KeySet};
use crate::scheme::TokenHash;
use crate::testing::{NOW, TestKey, at, bearer, jwks, now};
use crate::token::KeyId;

#[test]
fn what_has_ended_goes_first_and_then_what_came_first() {
    let cache = Cache::new(3, 1000);
    let key = key();
    let put = |name: &str, end: u64, now: SystemTime| cache.insert(hash(name), 1, seen(&key, end), now);
    let held =
        || ["a", "b", "c", "d", "e", "f"].into_iter().filter(|name| cache.holds(&hash(name))).collect::<Vec<_>>();

    put("a", NOW + 100, now());
    put("b", NOW + 10, now());
    put("c", NOW + 200, now());
    assert_eq!(held(), ["a", "b", "c"]);
    put("d", NOW + 300, at(NOW + 10));
    assert_eq!(held(), ["a", "c", "d"], "`b` had ended");
    put("e", NOW + 5, at(NOW + 10));
    assert_eq!(held(), ["c", "d", "e"], "`a` was the oldest");
    // Put again, it takes no other's place and is the youngest.
    put("d", NOW + 300, now());
    assert_eq!(held(), ["c", "d", "e"]);
    put("f", NOW + 200, now());
    assert_eq!(held(), ["d", "e", "f"]);
    assert_eq!(cache.get(&hash("e")).unwrap().judged.principal.expires(), Expiry::At(at(NOW + 5)));
    assert!(cache.get(&hash("a")).is_none());
}

#[test]
fn bytes_are_bounded_as_well() {
    let cache = Cache::new(100, 10);
    let key = key();
    let put = |name: &str, bytes: usize| cache.insert(hash(name), bytes, seen(&key, NOW + 9), now());
    put("a", 5);
    put("b", 5);
    assert!(cache.holds(&hash("a")) && cache.holds(&hash("b")));
    put("c", 6);
    assert!(!cache.holds(&hash("a")) && !cache.holds(&hash("b")) && cache.holds(&hash("c")));
    put("d", 11);
    assert!(!cache.holds(&hash("d")), "it alone is too much");
    put("e", 10);
    assert!(cache.holds(&hash("e")));
}

#[test]
fn a_flood_of_tokens_leaves_nothing_behind() {
    let cache = Cache::new(10, 1000);
    let key = key();
    for number in 0..1000 {
        cache.insert(hash(&number.to_string()), 1, seen(&key, NOW + number % 7), at(NOW + number % 5));
    }
    let state = cache.state.lock();
    assert_eq!([state.entries.len(), state.by_age.len(), state.by_end.len(), state.bytes], [10; 4]);
}

fn hash(name: &str) -> TokenHash {
    let headers = bearer(name);
    let Credential::Bearer(token) = Attempt::new(&headers, now()).credential() else { panic!("no bearer token") };
    TokenHash::of(token).unwrap()
}

fn seen(key: &Arc<Key>, end: u64) -> Seen {
    let assertion = Assertion {
        name: "alice".to_owned(),
        scheme: "jwt",
        authority: "issuer".to_owned(),
        subject: "alice".to_owned(),
        roles: Default::default(),
        attributes: Default::default(),
        expires: Expiry::At(at(end)),
        credential_id: "t1".to_owned(),
    };
    let principal = Principal::assertion(assertion).unwrap();
    let judged = Judged { principal, binding: Binding::None, starts: SystemTime::UNIX_EPOCH };
    Seen { judged, key: Arc::clone(key) }
}

fn key() -> Arc<Key> {
    let set = KeySet::parse(jwks(&[&TestKey::ed("k1")]).as_bytes()).unwrap();
    match set.find(&KeyId::Absent, Algorithm::EdDsa) {
        Found::Key(key) => Some(key),
        Found::Ambiguous | Found::Unfit | Found::Unknown => None,
    }
    .unwrap()
}
