//! Verdicts, reload and standing.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

use std::time::{Duration, SystemTime};

use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use portcullis_auth::conformance::block_on;
use portcullis_auth::{
    Assertion, Attempt, Authenticator, Expiry, Principal, RejectKind, Rejection, Secret, Standing, Verdict,
};

use super::{ApiKeys, SCHEME};
use crate::{KeyFile, NewKey, generate};

#[test]
fn a_key_opens_as_the_principal_of_its_record() {
    let key = generate("alice", &["analyst"], Expiry::At(noon())).unwrap();
    let alice = admitted(&keys(&key), &key.key);
    assert_eq!((alice.name(), alice.scheme(), alice.expires()), ("alice", SCHEME, Expiry::At(noon())));
    assert_eq!(alice.roles().iter().collect::<Vec<_>>(), ["analyst"]);
    assert_eq!((alice.key().authority(), alice.key().subject()), ("keys", "alice"));
    let text = String::from_utf8(key.key.expose().to_vec()).unwrap();
    assert_eq!(Some(alice.credential_id()), text.split('.').nth(1));
}

#[test]
fn two_keys_of_one_principal_are_one_identity() {
    let (old, new) = (generate("alice", &[], Expiry::Never).unwrap(), generate("alice", &[], Expiry::Never).unwrap());
    let both = ApiKeys::new("keys", KeyFile::parse(&format!("{}\n{}", old.record, new.record)).unwrap());
    assert_eq!(admitted(&both, &old.key).key(), admitted(&both, &new.key).key());
    let elsewhere = ApiKeys::new("other", KeyFile::parse(&old.record).unwrap());
    assert_ne!(admitted(&both, &old.key).key(), admitted(&elsewhere, &old.key).key());
}

#[test]
fn an_unknown_id_and_a_wrong_secret_are_refused_alike() {
    let (mine, other) = (generate("alice", &[], Expiry::Never).unwrap(), generate("bob", &[], Expiry::Never).unwrap());
    let keys = keys(&mine);
    admitted(&keys, &mine.key);
    let unknown = rejected(&keys, other.key.expose());

    let (mine, other) = (text(&mine.key), text(&other.key));
    let (id, secret) = (mine.split('.').nth(1).unwrap(), other.rsplit('.').next().unwrap());
    let wrong = rejected(&keys, format!("pk1.{id}.{secret}").as_bytes());
    let own_secret_of_another_id =
        format!("pk1.{}.{}", other.split('.').nth(1).unwrap(), mine.rsplit('.').next().unwrap());
    let mixed = rejected(&keys, own_secret_of_another_id.as_bytes());

    let words = |rejection: &Rejection| rejection.reason().split('`').next().map(str::to_owned);
    for rejection in [&unknown, &wrong, &mixed] {
        assert_eq!(rejection.kind(), RejectKind::Invalid);
        assert_eq!(words(rejection), words(&unknown));
        assert!(!rejection.reason().contains(secret));
    }
}

#[test]
fn a_malformed_key_is_rejected_and_not_passed_on() {
    let key = generate("alice", &[], Expiry::Never).unwrap();
    let keys = keys(&key);
    admitted(&keys, &key.key);
    let good = text(&key.key);
    for bad in [
        "pk1.",
        "pk1.a",
        "pk1..",
        "pk1.a.b",
        &format!("{good}x"),
        &format!("{good}.x"),
        &format!("{good}="),
        good.get(..58).unwrap(),
    ] {
        assert_eq!(rejected(&keys, bad.as_bytes()).kind(), RejectKind::Malformed, "{bad}");
    }
}

#[test]
fn an_expired_key_is_refused() {
    let key = generate("alice", &[], Expiry::At(noon())).unwrap();
    let keys = keys(&key);
    let second = Duration::from_secs(1);
    assert!(matches!(judge(&keys, key.key.expose(), noon() - second), Verdict::Admit(_)));
    for now in [noon(), noon() + second] {
        let Verdict::Reject(rejection) = judge(&keys, key.key.expose(), now) else { panic!("admitted at {now:?}") };
        assert_eq!(rejection.kind(), RejectKind::Invalid);
        assert!(rejection.reason().starts_with("the key has expired"), "{rejection:?}");
    }
    let wrong = format!("pk1.{}.{}", text(&key.key).split('.').nth(1).unwrap(), "A".repeat(43));
    let Verdict::Reject(rejection) = judge(&keys, wrong.as_bytes(), noon()) else { panic!("admitted") };
    assert!(!rejection.reason().contains("expired"), "only the holder of a key learns that it has expired");
}

#[test]
fn keys_are_replaced_at_once() {
    let (old, new) = (generate("alice", &[], Expiry::Never).unwrap(), generate("alice", &[], Expiry::Never).unwrap());
    let keys = keys(&old);
    let alice = admitted(&keys, &old.key);
    assert_eq!(keys.standing(&alice, BEFORE), Standing::Good);

    assert!(keys.replace(KeyFile::parse(&new.record).unwrap()).is_empty());
    rejected(&keys, old.key.expose());
    assert_eq!(keys.standing(&alice, BEFORE), Standing::Revoked);
    let again = admitted(&keys, &new.key);
    assert_eq!(keys.standing(&again, BEFORE), Standing::Good);

    keys.replace(KeyFile::default());
    rejected(&keys, new.key.expose());
    assert_eq!(keys.standing(&again, BEFORE), Standing::Revoked);
}

#[test]
fn a_key_of_changed_meaning_ends_its_sessions() {
    let key = generate("alice", &["analyst"], Expiry::At(noon())).unwrap();
    let keys = keys(&key);
    let alice = admitted(&keys, &key.key);
    let changed = |from: &str, to: &str| {
        assert!(key.record.contains(from));
        keys.replace(KeyFile::parse(&key.record.replace(from, to)).unwrap());
        keys.standing(&alice, BEFORE)
    };
    assert_eq!(changed("alice", "alice"), Standing::Good);
    assert_eq!(changed("\"alice\"", "\"bob\""), Standing::Revoked);
    assert_eq!(changed("[\"analyst\"]", "[\"analyst\", \"admin\"]"), Standing::Revoked);
    assert_eq!(changed("roles = [\"analyst\"]", ""), Standing::Revoked);
    assert_eq!(changed("expires", "attributes = { a = \"b\" }\nexpires"), Standing::Revoked);
    assert_eq!(changed("2027-01-01", "1970-01-01"), Standing::Revoked);
    assert_eq!(changed("2027-01-01", "2030-01-01"), Standing::Good);
    assert_eq!(keys.standing(&alice, noon()), Standing::Revoked, "the session ends when its key was to end");
}

#[test]
fn an_id_never_comes_to_mean_another_key() {
    let (old, new) = (generate("alice", &[], Expiry::Never).unwrap(), generate("alice", &[], Expiry::Never).unwrap());
    let id = |key: &NewKey| text(&key.key).split('.').nth(1).unwrap().to_owned();
    let keys = keys(&old);
    let alice = admitted(&keys, &old.key);

    // The new key's hash under the old id: the operator's way to "rotate" in place.
    let rotated = new.record.replace(&id(&new), &id(&old));
    for _ in 0..2 {
        assert_eq!(keys.replace(KeyFile::parse(&rotated).unwrap()), [id(&old)]);
        assert_eq!(keys.standing(&alice, BEFORE), Standing::Revoked);
        rejected(&keys, old.key.expose());
        keys.replace(KeyFile::default());
    }
    assert!(keys.replace(KeyFile::parse(&old.record).unwrap()).is_empty());
    admitted(&keys, &old.key);
}

#[test]
fn a_principal_of_another_authenticator_has_no_standing() {
    let key = generate("alice", &[], Expiry::Never).unwrap();
    let keys = keys(&key);
    let alice = admitted(&keys, &key.key);
    let forged = |change: fn(&mut Assertion)| {
        let mut assertion = Assertion {
            name: "alice".to_owned(),
            scheme: SCHEME,
            authority: "keys".to_owned(),
            subject: "alice".to_owned(),
            roles: Default::default(),
            attributes: Default::default(),
            expires: Expiry::Never,
            credential_id: alice.credential_id().to_owned(),
        };
        change(&mut assertion);
        keys.standing(&Principal::assertion(assertion).unwrap(), BEFORE)
    };
    assert_eq!(forged(|_| ()), Standing::Good);
    assert_eq!(forged(|a| a.scheme = "jwt"), Standing::Revoked);
    assert_eq!(forged(|a| a.authority = "other".to_owned()), Standing::Revoked);
    assert_eq!(forged(|a| a.subject = "bob".to_owned()), Standing::Revoked);
    assert_eq!(forged(|a| a.credential_id = "BBBBBBBBBBBB".to_owned()), Standing::Revoked);
}

#[test]
fn an_unusable_configured_name_admits_nobody() {
    let key = generate("alice", &[], Expiry::Never).unwrap();
    let nameless = ApiKeys::new("", KeyFile::parse(&key.record).unwrap());
    let rejection = rejected(&nameless, key.key.expose());
    assert_eq!(rejection.reason(), "unusable configuration: authority is empty");
}

fn keys(key: &NewKey) -> ApiKeys {
    ApiKeys::new("keys", KeyFile::parse(&key.record).unwrap())
}

fn text(key: &Secret) -> String {
    String::from_utf8(key.expose().to_vec()).unwrap()
}

fn admitted(keys: &ApiKeys, key: &Secret) -> Principal {
    match judge(keys, key.expose(), BEFORE) {
        Verdict::Admit(principal) => principal,
        other @ (Verdict::Abstain | Verdict::Reject(_)) => panic!("{other:?}"),
    }
}

fn rejected(keys: &ApiKeys, key: &[u8]) -> Rejection {
    match judge(keys, key, BEFORE) {
        Verdict::Reject(rejection) => rejection,
        other @ (Verdict::Abstain | Verdict::Admit(_)) => panic!("{other:?}"),
    }
}

fn judge(keys: &ApiKeys, key: &[u8], now: SystemTime) -> Verdict {
    let value = HeaderValue::from_bytes(&[b"Bearer ", key].concat()).unwrap();
    let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
    block_on(keys.authenticate(&Attempt::new(&headers, now)))
}

const BEFORE: SystemTime = SystemTime::UNIX_EPOCH;
/// 2027-01-01T00:00:00Z
fn noon() -> SystemTime {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(1_798_761_600)).unwrap()
}
