//! Sessions are found by whom they belong to, end when they should, and never grow beyond their caps.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

use std::sync::atomic::Ordering;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use portcullis_auth::conformance::{Part, Sample, Samples, conforms};
use portcullis_auth::{Attempt, Authenticator, Credential, Expiry, Verdict};

use super::super::fakes::{Badge, Ended, FakeClock, Manner, POLICY, principal, sessions};
use super::*;
use crate::config::CertificateRole;

const SECOND: Duration = Duration::from_secs(1);
const ROLE: CertificateRole = CertificateRole::Identity;

struct Setup {
    clock: Arc<FakeClock>,
    sessions: Arc<Sessions>,
    ended: Arc<Ended>,
}

impl Setup {
    fn new() -> Self {
        let clock = FakeClock::new();
        let (sessions, ended) = sessions(&clock);
        Self { clock, sessions, ended }
    }

    fn find(&self, token: &SessionToken) -> Option<SessionId> {
        with_token(token.bearer().unwrap(), |token| found(self.sessions.by_token(token)))
    }

    fn ended(&self) -> Vec<SessionId> {
        std::mem::take(&mut *self.ended.0.lock())
    }
}

fn with_token<T>(bearer: HeaderValue, then: impl FnOnce(&Token<'_>) -> T) -> T {
    let headers = HeaderMap::from_iter([(AUTHORIZATION, bearer)]);
    match Attempt::new(&headers, SystemTime::UNIX_EPOCH).credential() {
        Credential::Bearer(token) => then(&token),
        other @ (Credential::Absent | Credential::Basic(_) | Credential::Malformed(_) | Credential::Unknown) => {
            panic!("not a bearer token: {other:?}")
        }
    }
}

fn found(by: ByToken) -> Option<SessionId> {
    match by {
        ByToken::Found(session) => Some(session.id()),
        ByToken::Elsewhere(_) | ByToken::Nothing | ByToken::Unknown(_) => None,
    }
}

fn alice() -> Principal {
    principal("alice", "analyst", Expiry::Never)
}

#[test]
fn a_token_leads_to_its_session_until_that_is_closed() {
    let setup = Setup::new();
    let (token, session) = setup.sessions.open(&alice(), Binding::Free).unwrap();
    assert!(token.expose().starts_with(b"ps1."));
    assert_eq!(setup.find(&token), Some(session.id()));
    assert_eq!((session.kind(), session.principal().name()), (SessionKind::Token, "alice"));

    setup.sessions.end(session.id(), SessionEnd::Closed);
    assert_eq!(setup.find(&token), None);
    assert!(session.is_ended());
    setup.sessions.end(session.id(), SessionEnd::Closed);
    assert_eq!(setup.ended(), [session.id()], "the end is told once");
}

#[test]
fn a_forged_token_leads_nowhere() {
    let setup = Setup::new();
    let (token, _) = setup.sessions.open(&alice(), Binding::Free).unwrap();
    let good = token.bearer().unwrap();
    assert!(with_token(good.clone(), |token| found(setup.sessions.by_token(token))).is_some());

    let good = good.to_str().unwrap().to_owned();
    let mut forged =
        vec!["Bearer ps1.".to_owned() + "A", "Bearer ps1.AAAA".to_owned(), format!("{good}A"), format!("{good}=")];
    for at in "Bearer ps1.".len()..good.len() {
        let (before, after) = good.split_at(at);
        let (letter, rest) = after.split_at(1);
        forged.push(format!("{before}{}{rest}", if letter == "A" { "B" } else { "A" }));
        if at > "Bearer ps1.".len() {
            forged.push(before.to_owned());
        }
    }
    for token in forged {
        let found =
            with_token(HeaderValue::from_str(&token).unwrap(), |token| found(setup.sessions.by_token(token)).is_some());
        assert!(!found, "{token}");
    }
    let other_gate = Setup::new().sessions.open(&alice(), Binding::Free).unwrap().0;
    assert_eq!(setup.find(&other_gate), None);
}

#[test]
fn a_session_ends_when_it_rests_too_long_and_use_postpones_that() {
    let setup = Setup::new();
    let (token, session) = setup.sessions.open(&alice(), Binding::Free).unwrap();
    for _ in 0..3 {
        setup.clock.advance(POLICY.idle - SECOND);
        assert!(setup.find(&token).is_some());
    }
    setup.clock.advance(POLICY.idle);
    assert_eq!(setup.find(&token), None);
    assert_eq!(setup.ended(), [session.id()]);
}

#[test]
fn a_session_in_use_is_not_idle() {
    let setup = Setup::new();
    let (_, session) = setup.sessions.open(&alice(), Binding::Free).unwrap();
    let call = setup.sessions.begin(&session);
    setup.clock.advance(POLICY.idle * 2);
    assert_eq!(setup.sessions.sweep(), 0);
    drop(call);
    setup.clock.advance(POLICY.idle - SECOND);
    assert_eq!(setup.sessions.sweep(), 0, "its rest began when the call ended");
    setup.clock.advance(SECOND);
    assert_eq!(setup.sessions.sweep(), 1);
}

#[test]
fn a_token_ends_at_its_lifetime_however_busy() {
    let setup = Setup::new();
    let (token, session) = setup.sessions.open(&alice(), Binding::Free).unwrap();
    let _call = setup.sessions.begin(&session);
    setup.clock.advance(POLICY.lifetime - SECOND);
    assert!(setup.find(&token).is_some());
    setup.clock.advance(SECOND);
    assert_eq!(setup.find(&token), None);
}

#[test]
fn a_token_never_outlives_its_credential() {
    let setup = Setup::new();
    let end = setup.clock.now() + Duration::from_secs(60);
    let (token, session) = setup.sessions.open(&principal("alice", "analyst", Expiry::At(end)), Binding::Free).unwrap();
    assert_eq!(session.expires(), Expiry::At(end));
    setup.clock.advance(59 * SECOND);
    assert!(setup.find(&token).is_some());
    setup.clock.advance(SECOND);
    assert_eq!(setup.sessions.sweep(), 1);
    assert_eq!(setup.find(&token), None);
}

#[test]
fn at_the_cap_of_one_identity_the_session_that_rested_longest_ends() {
    let setup = Setup::new();
    let open = |setup: &Setup| setup.sessions.open(&alice(), Binding::Free).unwrap();
    let tokens: Vec<_> = (0..POLICY.max_per_principal)
        .map(|_| {
            setup.clock.advance(SECOND);
            open(&setup)
        })
        .collect();
    let [(first, _), (second, second_session), (third, _)] = tokens.as_slice() else { panic!("three") };
    setup.clock.advance(SECOND);
    assert!(setup.find(first).is_some(), "used last, so it stays");
    let (fourth, _) = open(&setup);
    assert_eq!(setup.ended(), [second_session.id()]);
    assert_eq!(setup.find(second), None);
    assert!([first, third, &fourth].into_iter().all(|token| setup.find(token).is_some()));

    let bob = setup.sessions.open(&principal("bob", "analyst", Expiry::Never), Binding::Free).unwrap().0;
    assert!(setup.find(&bob).is_some() && setup.ended().is_empty(), "another identity has a cap of its own");
}

#[test]
fn a_session_in_use_is_not_evicted() {
    let setup = Setup::new();
    let calls: Vec<_> = (0..POLICY.max_per_principal)
        .map(|_| setup.sessions.begin(&setup.sessions.open(&alice(), Binding::Free).unwrap().1))
        .collect();
    assert_eq!(setup.sessions.open(&alice(), Binding::Free).unwrap_err(), SessionRefused::TooMany);
    drop(calls);
    assert!(setup.sessions.open(&alice(), Binding::Free).is_ok());
}

#[test]
fn at_the_cap_of_all_no_session_is_opened() {
    let setup = Setup::new();
    let open = |subject: &str| setup.sessions.open(&principal(subject, "r", Expiry::Never), Binding::Free).map(drop);
    for at in 0..POLICY.max_total {
        open(&format!("user-{at}")).unwrap();
    }
    assert_eq!(open("late").unwrap_err(), SessionRefused::TooMany);
    assert_eq!(setup.sessions.default_for(&alice()).unwrap_err(), SessionRefused::TooMany);
    assert_eq!(setup.sessions.count(), POLICY.max_total);
    setup.clock.advance(POLICY.idle);
    assert_eq!(setup.sessions.sweep(), POLICY.max_total);
    assert_eq!(setup.ended().len(), POLICY.max_total);
    open("late").unwrap();
}

#[test]
fn the_default_session_is_one_per_identity_and_rights() {
    let setup = Setup::new();
    let id = |principal: &Principal| setup.sessions.default_for(principal).unwrap().id();
    let first = id(&alice());
    assert_eq!(id(&alice()), first);
    let end = setup.clock.now() + SECOND;
    assert_eq!(id(&principal("alice", "analyst", Expiry::At(end))), first, "a renewed credential is the same identity");
    assert_ne!(id(&principal("alice", "writer", Expiry::Never)), first);
    assert_ne!(id(&principal("bob", "analyst", Expiry::Never)), first);
    assert_ne!(setup.sessions.open(&alice(), Binding::Free).unwrap().1.id(), first);
}

#[test]
fn the_default_session_outlives_credentials_but_not_rest() {
    let setup = Setup::new();
    let brief = principal("alice", "analyst", Expiry::At(setup.clock.now() + SECOND));
    let first = setup.sessions.default_for(&brief).unwrap().id();
    setup.clock.advance(POLICY.idle - SECOND);
    assert_eq!(setup.sessions.default_for(&alice()).unwrap().id(), first);
    setup.clock.advance(POLICY.idle);
    assert_ne!(setup.sessions.default_for(&alice()).unwrap().id(), first);
    assert_eq!(setup.ended(), [first]);
    assert_eq!(setup.sessions.count(), 1);
}

#[test]
fn changing_rights_cannot_fill_the_store() {
    let setup = Setup::new();
    for at in 0..100 {
        setup.sessions.default_for(&principal("alice", &format!("role-{at}"), Expiry::Never)).unwrap();
    }
    assert_eq!(setup.sessions.count(), POLICY.max_per_principal);
    assert_eq!(setup.ended().len(), 100 - POLICY.max_per_principal);
}

#[test]
fn an_empty_store_keeps_nothing_of_those_who_left() {
    let setup = Setup::new();
    for at in 0..POLICY.max_total {
        setup.sessions.open(&principal(&format!("user-{at}"), "r", Expiry::Never), Binding::Free).unwrap();
    }
    setup.clock.advance(POLICY.idle);
    setup.sessions.sweep();
    let store = setup.sessions.store.lock();
    assert!(store.by_id.is_empty() && store.by_owner.is_empty());
}

#[tokio::test]
async fn a_session_token_is_judged_by_its_session_and_by_the_scheme_behind_it() {
    let setup = Setup::new();
    let door = Badge::new("door", Manner::AdmitsGood);
    let tokens = SessionTokens::new(setup.sessions.clone(), Arc::from([door.clone() as Arc<dyn Authenticator>]), ROLE);
    let (token, session) = setup.sessions.open(&alice(), Binding::Free).unwrap();
    let headers = HeaderMap::from_iter([(AUTHORIZATION, token.bearer().unwrap())]);
    let attempt = Attempt::new(&headers, setup.clock.now());

    assert!(matches!(tokens.authenticate(&attempt).await, Verdict::Admit(who) if who.key() == alice().key()));
    door.revoked.store(true, Ordering::SeqCst);
    assert!(matches!(tokens.authenticate(&attempt).await, Verdict::Reject(_)));
    door.revoked.store(false, Ordering::SeqCst);
    assert!(matches!(tokens.authenticate(&attempt).await, Verdict::Reject(_)), "revoked once is over");
    assert_eq!(setup.ended(), [session.id()]);
}

#[tokio::test]
async fn session_tokens_follow_the_contract_of_schemes() {
    let (setup, elsewhere) = (Setup::new(), Setup::new());
    let door: Arc<dyn Authenticator> = Badge::new("door", Manner::AdmitsGood);
    let tokens = SessionTokens::new(setup.sessions.clone(), Arc::from([door]), ROLE);
    let open = |setup: &Setup, who: &Principal| setup.sessions.open(who, Binding::Free).unwrap();
    let sample = |token: &SessionToken| Sample::authorization([b"Bearer ", token.expose()].concat());
    let brief = principal("brief", "analyst", Expiry::At(setup.clock.now() + SECOND));
    let (expired, _) = open(&setup, &brief);
    setup.clock.advance(SECOND);
    let (good, _) = open(&setup, &alice());
    let (ended, session) = open(&setup, &alice());
    setup.sessions.end(session.id(), SessionEnd::Closed);
    let (foreign, _) = open(&elsewhere, &alice());

    let samples = Samples::new(setup.clock.now())
        .with(Part::Good, sample(&good))
        .with(Part::Unknown, sample(&ended))
        .with(Part::Wrong, sample(&foreign))
        .with(Part::Expired, sample(&expired))
        .with(Part::Malformed, Sample::authorization("Bearer ps1."))
        .with(Part::Malformed, Sample::authorization("Bearer ps1.AAAA"))
        .with(Part::Foreign, Sample::authorization("Bearer pk1.AAAAAAAAAAAA.AAAA"))
        .with(Part::Foreign, Sample::authorization("Basic cHMxLkE6eA=="))
        .with(Part::Foreign, Sample::none().with_peer_certs(vec![vec![0x30].into()]))
        .secret(good.expose())
        .secret(ended.expose())
        .secret(foreign.expose())
        .secret(expired.expose())
        .name("alice")
        .name("brief");
    conforms(&tokens, &samples).await.unwrap();
}

#[tokio::test]
async fn a_session_whose_scheme_has_left_the_chain_is_over() {
    let setup = Setup::new();
    let (token, _) = setup.sessions.open(&alice(), Binding::Free).unwrap();
    let headers = HeaderMap::from_iter([(AUTHORIZATION, token.bearer().unwrap())]);
    let attempt = Attempt::new(&headers, setup.clock.now());
    let others: [Arc<dyn Authenticator>; 2] =
        [Badge::new("a", Manner::AdmitsGood), Badge::new("b", Manner::AdmitsGood)];
    let tokens = SessionTokens::new(setup.sessions.clone(), Arc::from(others), ROLE);
    assert!(matches!(tokens.authenticate(&attempt).await, Verdict::Reject(_)), "neither is the one that made it");
}

#[tokio::test]
async fn other_credentials_are_no_business_of_session_tokens() {
    let setup = Setup::new();
    let tokens = SessionTokens::new(setup.sessions.clone(), Arc::from([]), ROLE);
    for value in ["Bearer pk1.a.b", "Basic YTpi", "Negotiate x", "Bearer PS1.abc"] {
        let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(value))]);
        let attempt = Attempt::new(&headers, setup.clock.now());
        assert!(matches!(tokens.authenticate(&attempt).await, Verdict::Abstain), "{value}");
    }
}

#[test]
fn neither_token_nor_id_shows_in_debug() {
    let setup = Setup::new();
    let (token, session) = setup.sessions.open(&alice(), Binding::Free).unwrap();
    let shown = format!("{token:?} {session:?} {} {:?} {:?}", session.id(), setup.sessions, token.bearer().unwrap());
    assert!(!shown.contains(std::str::from_utf8(token.expose()).unwrap()));
    assert_eq!(session.id().to_string().len(), 8);
}
