//! Verdicts, bad inputs, equal answers, floods, reload and standing. The ids are those of the catalogue of bad inputs.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

use std::num::NonZero;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use argon2::Params;
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE};
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use parking_lot::Mutex;
use portcullis_auth::{
    Assertion, Attempt, Authenticator, Cost, Expiry, Principal, RejectKind, Rejection, Secret, Standing, Verdict,
};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Passwords, RETRY_AFTER, SCHEME};
use crate::file::{UserFile, UserRecord};
use crate::held::{Held, until};
use crate::phc::{Memory, Outcome, StoredHash};
use crate::pool::HashingConfig;

#[tokio::test]
async fn a_password_opens_as_the_user_of_its_record() {
    let record = UserRecord {
        roles: ["analyst".to_owned()].into(),
        attributes: [("region".to_owned(), "EU".to_owned())].into(),
        expires: Expiry::At(noon()),
        ..user("alice", "secret")
    };
    let id = record.credential_id();
    let alice = admitted(&passwords([record]), "alice", "secret").await;
    assert_eq!((alice.name(), alice.scheme(), alice.expires()), ("alice", SCHEME, Expiry::At(noon())));
    assert_eq!((alice.key().authority(), alice.key().subject()), ("staff", "alice"));
    assert_eq!(alice.roles().iter().collect::<Vec<_>>(), ["analyst"]);
    assert_eq!(alice.attributes().get("region").unwrap(), "EU");
    assert_eq!(alice.credential_id(), id);
}

#[tokio::test]
async fn the_first_colon_ends_the_user() {
    // B01
    let passwords = passwords([user("alice", "se:cr:et"), user("bob", ":")]);
    assert_eq!(admitted(&passwords, "alice", "se:cr:et").await.name(), "alice");
    assert_eq!(admitted(&passwords, "bob", ":").await.name(), "bob");
    rejected(&passwords, "alice", "se").await;
    rejected(&passwords, "alice", "cr:et").await;
}

#[tokio::test]
async fn what_is_no_basic_credential_is_abstained_on_without_a_hash() {
    let passwords = passwords([user("alice", "secret")]);
    let good = basic("alice", "secret");
    let encoded = good.strip_prefix("Basic ").unwrap();
    let of = |bytes: &[u8]| format!("Basic {}", BASE64_STANDARD.encode(bytes));
    for (id, value) in [
        ("B02", of(b"alice")),
        ("B03", of(b":secret")),
        ("B04", format!("Basic !{encoded}")),
        ("B04", format!("{good}=")),
        ("B04", format!("Basic {}", BASE64_URL_SAFE.encode("alice:~~~???"))),
        ("B04", format!("Basic {} {encoded}", "YWxp")),
        ("B05", of(b"alice:\xff\xfe")),
        ("B06", of(b"alice\0x:secret")),
        ("B06", of(b"alice:secret\0")),
        ("B06", of(b"alice:secret\n")),
        ("B08", of(format!("alice:{}", "x".repeat(1025)).as_bytes())),
        ("long user", of(format!("{}:secret", "x".repeat(257)).as_bytes())),
        ("bearer", "Bearer c2VjcmV0".to_owned()),
        ("other", format!("Negotiate {encoded}")),
    ] {
        let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(&value).unwrap())]);
        let attempt = Attempt::new(&headers, BEFORE);
        let verdict = passwords.authenticate(&attempt).await;
        assert!(matches!(verdict, Verdict::Abstain), "{id}: {verdict:?}");
        assert_eq!(passwords.cost(&attempt), Cost::Cheap, "{id}");
    }
    assert_eq!(passwords.hashes_done(), 0);
    admitted(&passwords, "alice", "secret").await;
    assert_eq!(passwords.hashes_done(), 1);
}

#[tokio::test]
async fn an_empty_password_is_refused_without_a_hash() {
    // B03; the stored hash is one that nothing of ours would make.
    let passwords = passwords([user("alice", ""), user("bob", "secret")]);
    admitted(&passwords, "bob", "secret").await;
    for name in ["alice", "bob", "nobody"] {
        assert_eq!(rejected(&passwords, name, "").await.kind(), RejectKind::Malformed);
    }
    assert_eq!(passwords.hashes_done(), 1);
}

#[tokio::test]
async fn users_and_passwords_are_compared_exactly() {
    // B07
    let passwords = passwords([user("admin", "secret"), user("ren\u{e9}", "caf\u{e9}")]);
    admitted(&passwords, "admin", "secret").await;
    admitted(&passwords, "ren\u{e9}", "caf\u{e9}").await;
    for (name, password) in [
        ("Admin", "secret"),
        ("ADMIN", "secret"),
        ("admin ", "secret"),
        (" admin", "secret"),
        ("ａdmin", "secret"),
        ("adm\u{200b}in", "secret"),
        ("admin", "Secret"),
        ("admin", "secret "),
        ("admin", " secret"),
        ("rene\u{301}", "caf\u{e9}"),
        ("ren\u{e9}", "cafe\u{301}"),
    ] {
        assert_eq!(rejected(&passwords, name, password).await.kind(), RejectKind::Invalid, "{name:?}:{password:?}");
    }
}

#[tokio::test]
async fn long_passwords_count_to_the_last_byte() {
    // B09
    for len in [64, 72, 73, 1024] {
        let password = "p".repeat(len);
        let passwords = passwords([user("alice", &password)]);
        admitted(&passwords, "alice", &password).await;
        rejected(&passwords, "alice", &"p".repeat(len - 1)).await;
        rejected(&passwords, "alice", &format!("{}q", "p".repeat(len - 1))).await;
    }
}

#[tokio::test]
async fn an_unknown_user_and_a_wrong_password_get_the_same_answer() {
    let passwords = passwords([user("alice", "secret")]);
    admitted(&passwords, "alice", "secret").await;
    let wrong = rejected(&passwords, "alice", "guess").await;
    let unknown = rejected(&passwords, "s3cr3t-typed-as-user", "guess").await;
    let again = rejected(&passwords, "s3cr3t-typed-as-user", "other").await;
    let words = |rejection: &Rejection| rejection.reason().split('`').next().map(str::to_owned);
    assert_eq!(words(&wrong).unwrap(), "no such user, or a wrong password: user hash ");
    assert_eq!((wrong.kind(), words(&wrong)), (unknown.kind(), words(&unknown)));
    assert_eq!(wrong.kind(), RejectKind::Invalid);
    for rejection in [&wrong, &unknown] {
        let shown = format!("{rejection:?}");
        assert!(["alice", "s3cr3t", "guess"].iter().all(|sent| !shown.contains(sent)), "{shown}");
    }
    // Two failures of one name can be told to be of one name.
    assert_eq!(unknown.reason(), again.reason());
    assert_ne!(unknown.reason(), wrong.reason());
}

#[tokio::test]
async fn an_unknown_user_and_a_wrong_password_take_the_same_time() {
    // B10
    let stored = |password| StoredHash::make(&Secret::new(password), &Params::new(512, 1, 1, None).unwrap()).unwrap();
    let passwords = passwords([UserRecord::new("alice", stored("secret"))]);
    admitted(&passwords, "alice", "secret").await;

    // A difference that is there is there each time; one that a busy machine makes is not.
    let mut ratios = Vec::new();
    for round in 0..4 {
        let ratio = unknown_to_wrong(&passwords, round).await;
        if (0.8..1.25).contains(&ratio) {
            return;
        }
        ratios.push(ratio);
    }
    panic!("median time of an unknown user over that of a wrong password: {ratios:?}");
}

/// The medians of 200 calls each, one over the other; each call must hash once.
async fn unknown_to_wrong(passwords: &Passwords, round: usize) -> f64 {
    let (mut unknown, mut wrong) = (Vec::new(), Vec::new());
    for number in 0..400 {
        // In changing turns, so that what else the machine does falls on both: unknown, wrong, wrong, unknown.
        let (name, times) = if matches!(number % 4, 0 | 3) { ("nobody", &mut unknown) } else { ("alice", &mut wrong) };
        let (hashes, start) = (passwords.hashes_done(), Instant::now());
        rejected(passwords, name, &format!("guess {number} of round {round}")).await;
        times.push(start.elapsed());
        assert_eq!(passwords.hashes_done().checked_sub(hashes), Some(1), "{name}");
    }
    assert_eq!((unknown.len(), wrong.len()), (200, 200));
    let [unknown, wrong] = [unknown, wrong].map(|mut times: Vec<Duration>| {
        times.sort();
        times.get(100).unwrap().as_secs_f64()
    });
    unknown / wrong
}

#[tokio::test]
async fn an_unknown_user_costs_as_much_as_the_dearest_user() {
    let of = |name, m, t| {
        let params = Params::new(m, t, 1, None).unwrap();
        UserRecord::new(name, StoredHash::make(&Secret::new("secret"), &params).unwrap())
    };
    let asked = Arc::new(Mutex::new(Vec::new()));
    let check = {
        let asked = Arc::clone(&asked);
        move |stored: &StoredHash, _: &mut Memory, _: &[u8]| {
            asked.lock().push(stored.cost());
            Outcome::Wrong
        }
    };
    let all = users([of("cheap", 64, 1), of("dear", 64, 3), of("large", 128, 1)]);
    let passwords = Passwords::checked_by("staff", all, config(), Arc::new(check)).unwrap();
    for name in ["cheap", "dear", "large", "nobody"] {
        rejected(&passwords, name, "guess").await;
    }
    assert_eq!(*asked.lock(), [64, 192, 128, 192]);

    passwords.replace(users([of("cheap", 64, 1)]));
    rejected(&passwords, "nobody", "guess").await;
    passwords.replace(UserFile::default());
    rejected(&passwords, "nobody", "guess").await;
    // Without users, as much as a new one would.
    assert_eq!(asked.lock().split_off(4), [64, 19456 * 2]);
}

#[tokio::test]
async fn a_flood_of_wrong_passwords_is_bounded() {
    // B13
    let held = Held::default();
    let config = HashingConfig { threads: NonZero::new(2).unwrap(), queue: 8, ..config() };
    let passwords =
        Arc::new(Passwords::checked_by("staff", users([user("alice", "good")]), config, held.check()).unwrap());
    let mut flood = JoinSet::new();
    for number in 0..100 {
        let passwords = Arc::clone(&passwords);
        flood.spawn(async move { rejected(&passwords, "alice", &format!("guess {number}")).await.kind() });
    }
    for _ in 0..90 {
        let kind = flood.join_next().await.unwrap().unwrap();
        assert_eq!(kind, RejectKind::Unavailable { retry_after: RETRY_AFTER });
    }
    until("both threads hash", || held.begun().len() == 2).await;
    held.let_go();
    while let Some(kind) = flood.join_next().await {
        assert_eq!(kind.unwrap(), RejectKind::Invalid);
    }
    assert_eq!((passwords.hashes_done(), held.most()), (10, 2));
    admitted(&passwords, "alice", "good").await;
}

#[tokio::test]
async fn callers_that_hang_up_leave_no_hashes_behind() {
    // B14, as far as this scheme sees it.
    let held = Held::default();
    let config = HashingConfig { threads: NonZero::new(1).unwrap(), queue: 8, ..config() };
    let passwords = Passwords::checked_by("staff", users([user("alice", "good")]), config, held.check()).unwrap();
    for number in 0..1000 {
        let headers = headers(&basic("alice", &format!("guess {number}")));
        let attempt = Attempt::new(&headers, BEFORE);
        let mut call = passwords.authenticate(&attempt);
        // Polled once, then dropped.
        std::future::poll_fn(|context| {
            assert!(call.as_mut().poll(context).is_pending(), "call {number} was answered");
            std::task::Poll::Ready(())
        })
        .await;
    }
    held.let_go();
    admitted(&passwords, "alice", "good").await;
    assert!(passwords.hashes_done() <= 2, "{} hashes", passwords.hashes_done());
}

#[tokio::test]
async fn who_waits_too_long_is_told_to_come_back() {
    let held = Held::default();
    let config = HashingConfig { wait: Duration::from_millis(20), ..config() };
    let passwords = Passwords::checked_by("staff", users([user("alice", "good")]), config, held.check()).unwrap();
    for name in ["alice", "nobody"] {
        let refused = rejected(&passwords, name, "good").await;
        assert_eq!(refused.kind(), RejectKind::Unavailable { retry_after: RETRY_AFTER });
        assert_eq!(refused.reason(), "the password was not hashed in time");
    }
    held.let_go();
    // A busy machine may be too late again, but not always.
    for _ in 0..1000 {
        match judge(&passwords, "alice", "good", BEFORE).await {
            Verdict::Admit(_) => return,
            Verdict::Reject(rejection) => assert_eq!(rejection.reason(), "the password was not hashed in time"),
            Verdict::Abstain => panic!("abstained"),
        }
    }
    panic!("never hashed in time");
}

#[tokio::test]
async fn a_good_credential_is_hashed_once_while_it_is_remembered() {
    let passwords = passwords([user("alice", "secret"), user("bob", "secret")]);
    assert_eq!(cost(&passwords, "alice", "secret"), Cost::Dear);
    for _ in 0..3 {
        admitted(&passwords, "alice", "secret").await;
        assert_eq!(passwords.hashes_done(), 1);
        assert_eq!(cost(&passwords, "alice", "secret"), Cost::Cheap);
    }
    for (name, password) in [("alice", "guess"), ("bob", "secret"), ("nobody", "secret"), ("Alice", "secret")] {
        assert_eq!(cost(&passwords, name, password), Cost::Dear, "{name}");
    }

    // What was wrong is hashed each time: an answer from memory would come faster.
    for hashes in 2..5 {
        rejected(&passwords, "alice", "guess").await;
        assert_eq!(passwords.hashes_done(), hashes);
        assert_eq!(cost(&passwords, "alice", "guess"), Cost::Dear);
    }
}

#[tokio::test]
async fn what_is_remembered_ends() {
    let config = HashingConfig { remember: Duration::ZERO, ..config() };
    let passwords = Passwords::new("staff", users([user("alice", "secret")]), config).unwrap();
    for hashes in 1..4 {
        admitted(&passwords, "alice", "secret").await;
        assert_eq!(passwords.hashes_done(), hashes);
        assert_eq!(cost(&passwords, "alice", "secret"), Cost::Dear);
    }
}

#[tokio::test]
async fn fifty_calls_with_one_good_credential_hash_once() {
    let passwords = Arc::new(passwords([user("alice", "secret")]));
    let mut calls = JoinSet::new();
    for _ in 0..50 {
        let passwords = Arc::clone(&passwords);
        calls.spawn(async move { admitted(&passwords, "alice", "secret").await.name().to_owned() });
    }
    assert_eq!(calls.join_all().await, vec!["alice"; 50]);
    assert_eq!(passwords.hashes_done(), 1);
}

#[tokio::test]
async fn users_are_replaced_at_once() {
    let passwords = passwords([user("alice", "old"), user("bob", "secret"), user("carol", "secret")]);
    let (old, bob) = (admitted(&passwords, "alice", "old").await, admitted(&passwords, "bob", "secret").await);
    let carol = admitted(&passwords, "carol", "secret").await;
    assert_eq!(passwords.standing(&old, BEFORE), Standing::Good);
    assert_eq!(passwords.standing(&bob, BEFORE), Standing::Good);

    let unchanged = passwords.current().by_name.get("carol").unwrap().clone();
    passwords.replace(users([user("alice", "new"), unchanged]));
    assert_eq!(passwords.standing(&old, BEFORE), Standing::Revoked, "the password is another");
    assert_eq!(passwords.standing(&bob, BEFORE), Standing::Revoked, "the user is gone");
    assert_eq!(passwords.standing(&carol, BEFORE), Standing::Good);
    assert_eq!(cost(&passwords, "alice", "old"), Cost::Dear);
    assert_eq!(cost(&passwords, "carol", "secret"), Cost::Cheap, "whoever did not change stays remembered");
    assert_eq!(passwords.seen.len(), 1);

    let hashes = passwords.hashes_done();
    rejected(&passwords, "alice", "old").await;
    rejected(&passwords, "bob", "secret").await;
    let new = admitted(&passwords, "alice", "new").await;
    admitted(&passwords, "carol", "secret").await;
    assert_eq!(passwords.hashes_done(), hashes + 3);
    assert_eq!(new.key(), old.key(), "a new password is no new identity");
    assert_eq!(passwords.standing(&new, BEFORE), Standing::Good);

    passwords.replace(UserFile::default());
    rejected(&passwords, "alice", "new").await;
    assert_eq!(passwords.standing(&new, BEFORE), Standing::Revoked);
}

#[tokio::test]
async fn the_same_password_hashed_anew_is_hashed_again_and_ends_sessions() {
    let passwords = passwords([user("alice", "secret")]);
    let old = admitted(&passwords, "alice", "secret").await;
    passwords.replace(users([user("alice", "secret")]));
    assert_eq!(passwords.standing(&old, BEFORE), Standing::Revoked);
    assert_eq!(cost(&passwords, "alice", "secret"), Cost::Dear);
    admitted(&passwords, "alice", "secret").await;
    assert_eq!(passwords.hashes_done(), 2);
}

#[tokio::test]
async fn a_hash_that_is_under_way_does_not_outlive_its_user() {
    for replaced_by in [users([user("alice", "good")]), UserFile::default()] {
        let held = Held::default();
        let passwords = Passwords::checked_by("staff", users([user("alice", "good")]), config(), held.check()).unwrap();
        let passwords = Arc::new(passwords);
        let call = {
            let passwords = Arc::clone(&passwords);
            tokio::spawn(async move { rejected(&passwords, "alice", "good").await })
        };
        until("the hash is under way", || held.begun().len() == 1).await;
        passwords.replace(replaced_by);
        held.let_go();
        assert_eq!(call.await.unwrap().kind(), RejectKind::Invalid);
    }
}

#[tokio::test]
async fn a_user_of_changed_meaning_ends_its_sessions_without_a_new_hash() {
    let record =
        UserRecord { roles: ["analyst".to_owned()].into(), expires: Expiry::At(noon()), ..user("alice", "secret") };
    let passwords = passwords([record.clone()]);
    let alice = admitted(&passwords, "alice", "secret").await;
    let changed = |change: fn(&mut UserRecord)| {
        let mut record = record.clone();
        change(&mut record);
        passwords.replace(users([record]));
        passwords.standing(&alice, BEFORE)
    };
    assert_eq!(changed(|_| ()), Standing::Good);
    assert_eq!(changed(|record| record.roles.clear()), Standing::Revoked);
    assert_eq!(changed(|record| record.attributes.extend([("a".to_owned(), "b".to_owned())])), Standing::Revoked);
    assert_eq!(changed(|record| record.expires = Expiry::At(BEFORE)), Standing::Revoked);
    assert_eq!(changed(|record| record.expires = Expiry::Never), Standing::Good);
    assert_eq!(passwords.standing(&alice, noon()), Standing::Revoked, "the session ends when its user was to end");
    assert_eq!(changed(|record| record.roles.extend(["admin".to_owned()])), Standing::Revoked);

    let again = admitted(&passwords, "alice", "secret").await;
    assert_eq!(again.roles().iter().collect::<Vec<_>>(), ["admin", "analyst"]);
    assert_eq!(passwords.hashes_done(), 1, "the password is still the same");
}

#[tokio::test]
async fn an_expired_user_is_refused() {
    let record = UserRecord { expires: Expiry::At(noon()), ..user("alice", "secret") };
    let passwords = passwords([record]);
    let second = Duration::from_secs(1);
    assert!(matches!(judge(&passwords, "alice", "secret", noon() - second).await, Verdict::Admit(_)));
    for now in [noon(), noon() + second] {
        let Verdict::Reject(rejection) = judge(&passwords, "alice", "secret", now).await else { panic!("admitted") };
        assert_eq!(rejection.kind(), RejectKind::Invalid);
        let reason = rejection.reason();
        assert!(reason.starts_with("the user has expired: user hash `") && !reason.contains("alice"), "{reason}");
    }
    let Verdict::Reject(rejection) = judge(&passwords, "alice", "guess", noon()).await else { panic!("admitted") };
    assert!(!rejection.reason().contains("expired"), "only who knows the password learns that the user has expired");
}

#[tokio::test]
async fn a_principal_of_another_authenticator_has_no_standing() {
    let passwords = passwords([user("alice", "secret")]);
    let alice = admitted(&passwords, "alice", "secret").await;
    let forged = |change: fn(&mut Assertion)| {
        let mut assertion = Assertion {
            name: "alice".to_owned(),
            scheme: SCHEME,
            authority: "staff".to_owned(),
            subject: "alice".to_owned(),
            roles: Default::default(),
            attributes: Default::default(),
            expires: Expiry::Never,
            credential_id: alice.credential_id().to_owned(),
        };
        change(&mut assertion);
        passwords.standing(&Principal::assertion(assertion).unwrap(), BEFORE)
    };
    assert_eq!(forged(|_| ()), Standing::Good);
    assert_eq!(forged(|a| a.scheme = "jwt"), Standing::Revoked);
    assert_eq!(forged(|a| a.authority = "other".to_owned()), Standing::Revoked);
    assert_eq!(forged(|a| a.subject = "bob".to_owned()), Standing::Revoked);
    assert_eq!(forged(|a| a.name = "bob".to_owned()), Standing::Revoked);
    assert_eq!(forged(|a| a.credential_id = "alice".to_owned()), Standing::Revoked);
    assert_eq!(forged(|a| a.expires = Expiry::At(BEFORE)), Standing::Revoked);
}

#[tokio::test]
async fn an_unusable_configured_name_admits_nobody() {
    let nameless = Passwords::new("", users([user("alice", "secret")]), config()).unwrap();
    let rejection = rejected(&nameless, "alice", "secret").await;
    assert_eq!(rejection.reason(), "unusable configuration: authority is empty");
}

#[tokio::test]
async fn no_password_and_no_hash_shows_in_debug() {
    let record = user("alice", "correct horse");
    let stored = record.stored.to_string();
    let passwords = passwords([record]);
    let alice = admitted(&passwords, "alice", "correct horse").await;
    let shown = format!("{passwords:?} {passwords:#?} {alice:?}");
    assert!(shown.contains("staff"), "{shown}");
    let parts = stored.split('$').skip(4);
    assert!(parts.chain(["correct horse"]).all(|secret| !shown.contains(secret)), "{shown}");
}

fn passwords<const N: usize>(records: [UserRecord; N]) -> Passwords {
    Passwords::new("staff", users(records), config()).unwrap()
}

fn users<const N: usize>(records: [UserRecord; N]) -> UserFile {
    UserFile::of(records)
}

/// A user whose hash takes no time.
fn user(name: &str, password: &str) -> UserRecord {
    let params = Params::new(64, 1, 1, None).unwrap();
    UserRecord::new(name, StoredHash::make(&Secret::new(password), &params).unwrap())
}

fn config() -> HashingConfig {
    HashingConfig { wait: Duration::from_secs(30), ..HashingConfig::default() }
}

async fn admitted(passwords: &Passwords, user: &str, password: &str) -> Principal {
    match judge(passwords, user, password, BEFORE).await {
        Verdict::Admit(principal) => principal,
        other @ (Verdict::Abstain | Verdict::Reject(_)) => panic!("{other:?}"),
    }
}

async fn rejected(passwords: &Passwords, user: &str, password: &str) -> Rejection {
    match judge(passwords, user, password, BEFORE).await {
        Verdict::Reject(rejection) => rejection,
        other @ (Verdict::Abstain | Verdict::Admit(_)) => panic!("{other:?}"),
    }
}

async fn judge(passwords: &Passwords, user: &str, password: &str, now: SystemTime) -> Verdict {
    let headers = headers(&basic(user, password));
    passwords.authenticate(&Attempt::new(&headers, now)).await
}

fn cost(passwords: &Passwords, user: &str, password: &str) -> Cost {
    passwords.cost(&Attempt::new(&headers(&basic(user, password)), BEFORE))
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
}

fn headers(value: &str) -> HeaderMap {
    HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(value).unwrap())])
}

const BEFORE: SystemTime = SystemTime::UNIX_EPOCH;
/// 2027-01-01T00:00:00Z
fn noon() -> SystemTime {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(1_798_761_600)).unwrap()
}
