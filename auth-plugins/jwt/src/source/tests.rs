//! When keys are fetched, by whom, how often, and what happens meanwhile.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed step fails the test")]

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use portcullis_auth::{Attempt, Authenticator as _, Cost, RejectKind, TestClock, Verdict};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Fetched, Fetcher, MAX_UNKNOWN, MAX_WAITING, Pace};
use crate::testing::{
    Answer, ISSUER, NOW, Server, TestKey, admitted, ask, at, bearer, claims, clock, fixed, judge, jwks, now, reason,
    rejected, until,
};
use crate::token::KeyId;
use crate::{Algorithm, Http, IssuerConfig, Jwt, KeySource};

#[tokio::test]
async fn keys_are_fetched_once_for_many_tokens() {
    let key = TestKey::es256("k1");
    let world = World::new(&[&key]).await;
    assert_eq!(world.jwt.prefetch().await, [(ISSUER.to_owned(), Ok(1))]);
    for number in 0..20 {
        admitted(world.ask(&numbered(&key, number)).await);
    }
    assert_eq!((world.server.requests(), world.jwt.counters().fetches), (1, 1));
    assert_eq!(world.jwt.counters().verified, 20);
}

#[tokio::test]
async fn a_token_does_not_need_a_prefetch() {
    let key = TestKey::es256("k1");
    let world = World::new(&[&key]).await;
    admitted(world.ask(&key.token(&claims())).await);
    assert_eq!(world.server.requests(), 1);
}

#[tokio::test]
async fn without_keys_a_token_is_unavailable_and_never_invalid() {
    // K01, K08, K13.
    let key = TestKey::es256("k1");
    let world = World::new(&[&key]).await;
    let bad = [Answer::with("500 Oops", "", b""), Answer::with("404 None", "", b""), Answer::ok("<html>")];
    for (number, bad) in (0..).zip(bad) {
        world.server.answer("/jwks", bad);
        world.cool_down();
        for _ in 0..3 {
            assert!(is_unavailable(&world.ask(&numbered(&key, number)).await));
        }
        let reports = world.jwt.prefetch().await;
        assert!(
            matches!(&*reports, [(issuer, Err(problem))] if issuer == ISSUER && !problem.is_empty()),
            "{reports:?}"
        );
    }
    let rejection = rejected(world.ask(&key.token(&claims())).await);
    assert_eq!(rejection.kind(), RejectKind::Unavailable { retry_after: Duration::from_secs(5) });
    assert_eq!(rejection.reason(), format!("the issuer's keys could not be fetched: issuer `{ISSUER}`"));

    // What can be refused without keys is refused.
    assert_eq!(reason(world.ask("a.b.c").await), "a part of the token is not base64url");

    world.server.answer("/jwks", Answer::ok(&jwks(&[&key])));
    assert!(is_unavailable(&world.ask(&key.token(&claims())).await), "not again within the cooldown");
    world.cool_down();
    admitted(world.ask(&key.token(&claims())).await);
}

#[tokio::test]
async fn a_new_key_is_found_when_a_token_names_it() {
    let (old, new) = (TestKey::es256("old"), TestKey::es256("new"));
    let world = World::new(&[&old]).await;
    world.jwt.prefetch().await;
    admitted(world.ask(&old.token(&claims())).await);

    world.server.answer("/jwks", Answer::ok(&jwks(&[&old, &new])));
    assert_eq!(reason(world.ask(&new.token(&claims())).await), "the issuer has no such key", "still cooling down");
    world.cool_down();
    admitted(world.ask(&new.token(&claims())).await);
    admitted(world.ask(&old.token(&claims())).await);
    assert_eq!(world.server.requests(), 2);
}

#[tokio::test]
async fn a_removed_key_ends_with_the_next_fetch() {
    // K09.
    let (old, new) = (TestKey::es256("old"), TestKey::es256("new"));
    let world = World::new(&[&old, &new]).await;
    world.jwt.prefetch().await;
    let token = old.token(&claims());
    admitted(world.ask(&token).await);
    world.server.answer("/jwks", Answer::ok(&jwks(&[&new])));
    admitted(world.ask(&token).await);
    world.jwt.prefetch().await;
    assert_eq!(reason(world.ask(&token).await), "the key of the token is no longer the issuer's");
    assert_eq!(reason(world.ask(&numbered(&old, 1)).await), "the issuer has no such key");
    admitted(world.ask(&new.token(&claims())).await);
}

#[tokio::test]
async fn the_last_good_keys_count_for_a_day() {
    // K02, K06.
    let (key, new) = (TestKey::es256("k1"), TestKey::es256("k2"));
    let world = World::new(&[&key]).await;
    world.jwt.prefetch().await;
    let hour = Duration::from_secs(3600);
    let after = |hours: u64| at(NOW + hours * 3600);
    let lasting = |key: &TestKey, jti: &str, hours: u64| {
        let mut claims = claims();
        let issued = NOW + hours * 3600;
        (claims["iat"], claims["exp"], claims["jti"]) = (json!(issued), json!(issued + 7200), json!(jti));
        key.token(&claims)
    };
    world.server.answer("/jwks", Answer::ok("{\"keys\":[]}"));
    world.clock.advance(hour * 23);
    assert!(world.jwt.prefetch().await.iter().all(|(_, outcome)| outcome.is_err()));
    let seen = lasting(&key, "seen", 23);
    admitted(world.ask_at(&seen, after(23)).await);
    // Whether there is such a key, nobody can say now.
    assert!(is_unavailable(&world.ask_at(&lasting(&new, "new", 23), after(23)).await));

    world.clock.advance(hour);
    assert!(is_unavailable(&world.ask_at(&lasting(&key, "fresh", 24), after(24)).await));
    assert!(is_unavailable(&world.ask_at(&seen, after(24)).await), "what was seen is no better known");
    world.cool_down();
    world.server.answer("/jwks", Answer::ok(&jwks(&[&key])));
    admitted(world.ask_at(&seen, after(24)).await);
    admitted(world.ask_at(&lasting(&key, "fresh", 24), after(24)).await);
}

#[tokio::test]
async fn one_issuer_does_not_wait_for_another() {
    // K12.
    let (key, other) = (TestKey::es256("k1"), TestKey::es256("k1"));
    let up = Server::start(Answer::ok(&jwks(&[&key]))).await;
    let down = Server::start(Answer::Held(jwks(&[&other]))).await;
    let mut partner = issuer(&down);
    partner.issuer = "https://id.test/realms/partner".to_owned();
    let pace = Pace { wait: Duration::from_millis(200), fetch: Duration::from_millis(500), ..Pace::DEFAULT };
    let jwt = Jwt::with_pace("corp".to_owned(), vec![issuer(&up), partner], clock(), pace).unwrap();

    let mut theirs = claims();
    theirs["iss"] = json!("https://id.test/realms/partner");
    let token = other.token(&theirs);
    let mut waiting = pin!(ask(&jwt, &token, now()));
    assert!(poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context).is_pending())).await);
    admitted(ask(&jwt, &key.token(&claims()), now()).await);
    assert!(is_unavailable(&waiting.await));

    let reports = jwt.prefetch().await;
    let outcomes: Vec<_> = reports.iter().map(|(issuer, outcome)| (issuer.as_str(), outcome.is_ok())).collect();
    assert_eq!(outcomes, [(ISSUER, true), ("https://id.test/realms/partner", false)]);
}

#[tokio::test]
async fn many_tokens_wait_for_one_fetch() {
    // K13.
    let key = TestKey::es256("k1");
    let world = World::new(&[&key]).await;
    world.server.answer("/jwks", Answer::Held(jwks(&[&key])));
    let mut calls = JoinSet::new();
    for number in 0..100 {
        let (jwt, token) = (Arc::clone(&world.jwt), numbered(&key, number));
        calls.spawn(async move { ask(&jwt, &token, now()).await });
    }
    until(|| world.server.requests() == 1).await;
    world.server.release(1);
    let verdicts = calls.join_all().await;
    assert_eq!(verdicts.len(), 100);
    verdicts.into_iter().for_each(|verdict| drop(admitted(verdict)));
    assert_eq!((world.server.requests(), world.jwt.counters().fetches), (1, 1));
}

#[tokio::test]
async fn waiting_is_bounded_in_number() {
    let key = TestKey::es256("k1");
    let world = World::new(&[&key]).await;
    world.server.answer("/jwks", Answer::Held(jwks(&[&key])));
    let turned_away = Arc::new(AtomicUsize::new(0));
    let mut calls = JoinSet::new();
    for number in 0..300 {
        let (jwt, token, turned_away) = (Arc::clone(&world.jwt), numbered(&key, number), Arc::clone(&turned_away));
        calls.spawn(async move {
            let verdict = ask(&jwt, &token, now()).await;
            if is_unavailable(&verdict) {
                turned_away.fetch_add(1, Ordering::SeqCst);
            }
            verdict
        });
    }
    until(|| turned_away.load(Ordering::SeqCst) == 300 - MAX_WAITING).await;
    until(|| world.server.requests() == 1).await;
    world.server.release(1);
    let verdicts = calls.join_all().await;
    let admitted = verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Admit(_))).count();
    assert_eq!((admitted, world.jwt.counters().fetches), (MAX_WAITING, 1));
}

#[tokio::test]
async fn waiting_is_bounded_in_time() {
    let key = TestKey::es256("k1");
    let world = World::with_pace(&[&key], Pace { wait: Duration::from_millis(200), ..Pace::DEFAULT }).await;
    world.server.answer("/jwks", Answer::Held(jwks(&[&key])));
    let token = key.token(&claims());
    let verdict = tokio::time::timeout(Duration::from_secs(4), world.ask(&token)).await;
    assert!(is_unavailable(&verdict.unwrap()));
    // The fetch goes on for whoever comes next.
    until(|| world.server.requests() == 1).await;
    world.server.release(1);
    until(|| format!("{:?}", world.jwt).contains("k1")).await;
    admitted(world.ask(&token).await);
    assert_eq!(world.jwt.counters().fetches, 1);
}

#[tokio::test]
async fn a_storm_of_unknown_keys_causes_one_fetch_in_a_cooldown() {
    // J21.
    let key = TestKey::es256("k1");
    let world = World::new(&[&key]).await;
    world.jwt.prefetch().await;
    let good = key.token(&claims());
    let (front, signature) = good.rsplit_once('.').unwrap();
    let payload = front.split('.').nth(1).unwrap();
    let storm = async |round: usize| {
        for number in 0..10_000 {
            let header = json!({"alg": "ES256", "kid": format!("{round}-{number}")}).to_string();
            let token = format!("{}.{payload}.{signature}", crate::testing::b64(header));
            assert_eq!(reason(world.ask(&token).await), "the issuer has no such key");
        }
    };
    storm(1).await;
    assert_eq!(world.server.requests(), 1);
    world.cool_down();
    storm(2).await;
    assert_eq!(world.server.requests(), 2);
    admitted(world.ask(&good).await);
    assert_eq!(world.jwt.counters().verified, 1);
}

#[tokio::test]
async fn a_key_that_was_asked_for_in_vain_is_not_fetched_for_at_once_again() {
    let (key, late) = (TestKey::es256("k1"), TestKey::es256("late"));
    let world = World::new(&[&key]).await;
    rejected(world.ask(&late.token(&claims())).await);
    assert_eq!(world.server.requests(), 1);
    world.server.answer("/jwks", Answer::ok(&jwks(&[&key, &late])));
    world.cool_down();
    assert_eq!(reason(world.ask(&late.token(&claims())).await), "the issuer has no such key");
    assert_eq!(world.server.requests(), 1);
    world.cool_down();
    admitted(world.ask(&late.token(&claims())).await);
    assert_eq!(world.server.requests(), 2);
}

#[tokio::test]
async fn what_is_remembered_of_unknown_keys_is_bounded() {
    let key = TestKey::es256("k1");
    let server = Server::start(Answer::ok(&jwks(&[&key]))).await;
    let clock = clock();
    let fetcher = Fetcher::new(&issuer(&server), Duration::from_secs(5)).unwrap().unwrap();
    // So hasty that every name gets a fetch of its own.
    let pace = Pace { cooldown: Duration::ZERO, ..Pace::DEFAULT };
    let fetched = Arc::new(Fetched::new(ISSUER, fetcher, pace, Arc::clone(&clock) as _));
    let asked = async |number: usize| {
        let kid = KeyId::Named(format!("{number}"));
        assert!(fetched.key(&kid, Algorithm::Es256).await.is_err());
        fetched.state.lock().unknown.contains_key(&kid)
    };
    for number in 0..MAX_UNKNOWN {
        assert!(asked(number).await);
    }
    assert!(!asked(MAX_UNKNOWN).await);
    assert_eq!(fetched.state.lock().unknown.len(), MAX_UNKNOWN);
    clock.advance(Duration::from_secs(10));
    assert!(asked(MAX_UNKNOWN + 1).await);
    assert_eq!(fetched.state.lock().unknown.len(), 1);
}

#[tokio::test]
async fn a_client_that_hangs_up_does_not_stop_the_fetch() {
    let key = TestKey::es256("k1");
    let world = World::new(&[&key]).await;
    world.server.answer("/jwks", Answer::Held(jwks(&[&key])));
    let token = key.token(&claims());
    {
        let mut call = pin!(world.ask(&token));
        assert!(poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_pending())).await);
    }
    until(|| world.server.requests() == 1).await;
    world.server.release(1);
    until(|| format!("{:?}", world.jwt).contains("k1")).await;
    admitted(world.ask(&token).await);
    assert_eq!(world.server.requests(), 1);
}

#[tokio::test]
async fn keys_are_kept_fresh_in_the_background() {
    let (old, new) = (TestKey::es256("old"), TestKey::es256("new"));
    let tick = Duration::from_millis(20);
    let world = World::with_pace(&[&old], Pace { refresh: tick, retry: tick, ..Pace::DEFAULT }).await;
    let stop = CancellationToken::new();
    let (jwt, stopped) = (Arc::clone(&world.jwt), stop.clone());
    let fresh = tokio::spawn(async move { jwt.keep_fresh(stopped).await });
    until(|| world.server.requests() >= 3).await;
    admitted(world.ask(&old.token(&claims())).await);

    world.server.answer("/jwks", Answer::with("500 Oops", "", b""));
    let before = world.server.requests();
    until(|| world.server.requests() >= before + 3).await;
    admitted(world.ask(&numbered(&old, 1)).await);

    world.server.answer("/jwks", Answer::ok(&jwks(&[&new])));
    let before = world.server.requests();
    until(|| world.server.requests() >= before + 2).await;
    assert_eq!(reason(world.ask(&numbered(&old, 2)).await), "the issuer has no such key");
    admitted(world.ask(&new.token(&claims())).await);

    stop.cancel();
    tokio::time::timeout(Duration::from_secs(10), fresh).await.unwrap().unwrap();
    let before = world.jwt.counters().fetches;
    tokio::time::sleep(tick * 10).await;
    assert_eq!(world.jwt.counters().fetches, before);
}

#[tokio::test]
async fn what_is_fixed_needs_no_refresh() {
    let jwt = Jwt::new("corp", vec![fixed(&[&TestKey::es256("k1")])], clock()).unwrap();
    assert_eq!(jwt.prefetch().await, [(ISSUER.to_owned(), Ok(1))]);
    let stop = CancellationToken::new();
    stop.cancel();
    jwt.keep_fresh(stop).await;
    assert_eq!(jwt.counters().fetches, 0);
}

#[tokio::test]
async fn a_clock_that_was_put_back_asks_again() {
    // J39.
    let key = TestKey::es256("k1");
    let world = World::new(&[&key]).await;
    let token = key.token(&claims());
    admitted(world.ask(&token).await);
    world.clock.set(at(NOW - 3600));
    admitted(world.ask(&token).await);
    assert_eq!(world.server.requests(), 2);
    world.server.answer("/jwks", Answer::with("500 Oops", "", b""));
    world.clock.set(at(NOW - 7200));
    assert!(is_unavailable(&world.ask(&token).await));
}

#[tokio::test]
async fn nothing_that_a_token_holds_is_fetched() {
    // J17, J20.
    let key = TestKey::es256("k1");
    let (world, attacker) = (World::new(&[&key]).await, Server::start(Answer::ok(&jwks(&[&key]))).await);
    admitted(world.ask(&key.token(&claims())).await);
    for name in ["jku", "x5u", "url", "kid"] {
        let mut header = key.header();
        header[name] = json!(attacker.url("/jwks"));
        rejected(world.ask(&key.token_with(&header, &claims())).await);
    }
    let mut elsewhere = claims();
    elsewhere["iss"] = json!(attacker.url(""));
    rejected(world.ask(&key.token(&elsewhere)).await);
    assert_eq!(attacker.requests(), 0);
}

#[test]
fn without_a_runtime_a_token_is_unavailable() {
    let key = TestKey::es256("k1");
    let mut config = fixed(&[&key]);
    let token = key.token(&claims());
    admitted(judge(&Jwt::new("corp", vec![config.clone()], clock()).unwrap(), &token, now()));
    config.keys = KeySource::Url("http://127.0.0.1:9/".to_owned());
    config.http = Http::DangerLoopback;
    let jwt = Jwt::new("corp", vec![config], clock()).unwrap();
    assert!(is_unavailable(&judge(&jwt, &token, now())));
    assert_eq!(jwt.cost(&Attempt::new(&bearer(&token), now())), Cost::Dear);
}

/// An authenticator whose one issuer has its keys on a server here.
struct World {
    server: Server,
    clock: Arc<TestClock>,
    jwt: Arc<Jwt>,
}

impl World {
    async fn new(keys: &[&TestKey]) -> Self {
        Self::with_pace(keys, Pace::DEFAULT).await
    }

    async fn with_pace(keys: &[&TestKey], pace: Pace) -> Self {
        let server = Server::start(Answer::ok(&jwks(keys))).await;
        let clock = clock();
        let jwt = Jwt::with_pace("corp".to_owned(), vec![issuer(&server)], Arc::clone(&clock) as _, pace).unwrap();
        Self { server, clock, jwt: Arc::new(jwt) }
    }

    fn cool_down(&self) {
        self.clock.advance(Pace::DEFAULT.cooldown);
    }

    async fn ask(&self, token: &str) -> Verdict {
        ask(&self.jwt, token, now()).await
    }

    async fn ask_at(&self, token: &str, now: SystemTime) -> Verdict {
        ask(&self.jwt, token, now).await
    }
}

fn issuer(server: &Server) -> IssuerConfig {
    let keys = KeySource::Url(server.url("/jwks"));
    let mut config = IssuerConfig::new(ISSUER, vec!["gate".to_owned()], vec![Algorithm::Es256], keys);
    config.http = Http::DangerLoopback;
    config
}

fn numbered(key: &TestKey, number: usize) -> String {
    let mut claims = claims();
    claims["jti"] = json!(format!("n{number}"));
    key.token(&claims)
}

fn is_unavailable(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Reject(rejection) => matches!(rejection.kind(), RejectKind::Unavailable { .. }),
        Verdict::Abstain | Verdict::Admit(_) => false,
    }
}
