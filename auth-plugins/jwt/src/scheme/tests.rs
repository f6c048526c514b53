//! Several issuers, what is remembered, reload, standing, and what cannot be configured.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed step fails the test")]

use std::time::Duration;

use portcullis_auth::{Assertion, Attempt, Authenticator as _, Cost, Expiry, Principal, RejectKind, Standing, Verdict};
use serde_json::json;

use super::{Jwt, SCHEME};
use crate::testing::{
    Bench, ISSUER, NOW, TestKey, admitted, at, bearer, claims, clock, fixed, judge, jwks, now, reason, rejected,
};
use crate::{Algorithm, DenyList, Http, IssuerConfig, KeySource, StaticKeys, Trust};

#[test]
fn what_is_no_jwt_is_left_to_others() {
    let bench = Bench::new();
    let judge_header = |value: &str| {
        let headers =
            http::HeaderMap::from_iter([(http::header::AUTHORIZATION, http::HeaderValue::from_str(value).unwrap())]);
        portcullis_auth::conformance::block_on(bench.jwt.authenticate(&Attempt::new(&headers, now())))
    };
    let good = bench.key.token(&claims());
    admitted(judge_header(&format!("bearer {good}")));
    for foreign in ["Bearer pk1.a.b", "Bearer ps1.a.b", "Bearer abc", "Basic YTpi", "Negotiate a.b.c", ""] {
        assert!(matches!(judge_header(foreign), Verdict::Abstain), "{foreign}");
    }
    // J27: the JSON serialization is no token68, so the gate refuses it before it asks.
    assert!(matches!(judge_header("Bearer {\"payload\":\"e30\"}"), Verdict::Abstain));
}

#[test]
fn an_issuer_speaks_for_its_own_people_only() {
    // J36: two issuers, whose keys have one name.
    let (ours, theirs) = (TestKey::es256("k1"), TestKey::es256("k1"));
    let mut partner = fixed(&[&theirs]);
    partner.issuer = "https://id.test/realms/partner".to_owned();
    let jwt = Jwt::new("corp", vec![fixed(&[&ours]), partner], clock()).unwrap();
    let mut claims_of_partner = claims();
    claims_of_partner["iss"] = json!("https://id.test/realms/partner");

    let alice = admitted(judge(&jwt, &ours.token(&claims()), now()));
    let other = admitted(judge(&jwt, &theirs.token(&claims_of_partner), now()));
    assert_eq!(alice.name(), other.name());
    assert_ne!(alice.key(), other.key());

    for forged in [theirs.token(&claims()), ours.token(&claims_of_partner)] {
        assert_eq!(reason(judge(&jwt, &forged, now())), "the signature does not verify");
    }
    let mut stranger = claims();
    stranger["iss"] = json!("https://id.test/realms/nobody");
    let rejection = rejected(judge(&jwt, &ours.token(&stranger), now()));
    assert_eq!((rejection.kind(), rejection.reason()), (RejectKind::Invalid, "the issuer of the token is unknown"));
}

#[test]
fn the_second_call_costs_a_hash() {
    let bench = Bench::new();
    let token = bench.key.token(&claims());
    let cost = |token: &str| bench.jwt.cost(&Attempt::new(&bearer(token), now()));
    assert_eq!(cost(&token), Cost::Dear);
    let first = admitted(bench.token(&token));
    assert_eq!(cost(&token), Cost::Cheap);
    for _ in 0..9 {
        assert_eq!(admitted(bench.token(&token)).key(), first.key());
    }
    let counters = bench.jwt.counters();
    assert_eq!((counters.verified, counters.cache_hits, counters.fetches), (1, 9, 0));

    // A refusal is not remembered, and what is not ours costs nothing.
    let forged = TestKey::es256("k1").token(&claims());
    rejected(bench.token(&forged));
    assert_eq!(cost(&forged), Cost::Dear);
    assert_eq!(cost("pk1.a.b"), Cost::Cheap);
    assert_eq!(cost("a.b.c.d"), Cost::Cheap);
    assert_eq!(bench.jwt.cost(&Attempt::new(&http::HeaderMap::new(), now())), Cost::Cheap);
}

#[test]
fn an_expired_token_that_was_seen_costs_no_signature() {
    let bench = Bench::new();
    let token = bench.key.token(&claims());
    admitted(bench.token(&token));
    for _ in 0..3 {
        assert_eq!(reason(judge(&bench.jwt, &token, at(NOW + 4000))), "the token has expired");
    }
    assert_eq!(bench.jwt.counters().verified, 1);
}

#[test]
fn a_denied_token_is_refused_although_it_was_seen() {
    // J34.
    let bench = Bench::new();
    let token = bench.key.token(&claims());
    let alice = admitted(bench.token(&token));
    assert_eq!(bench.jwt.standing(&alice, now()), Standing::Good);
    for list in ["tokens = [\"t1\"]", "principals = [\"alice\"]", "tokens = [\"x\", \"t1\"]\nprincipals = [\"bob\"]"] {
        bench.jwt.replace_denied(ISSUER, DenyList::parse(list).unwrap()).unwrap();
        assert_eq!(reason(bench.token(&token)), "the token or its principal is denied", "{list}");
        assert_eq!(bench.jwt.standing(&alice, now()), Standing::Revoked, "{list}");
        let fresh = bench.claims(|claims| claims["exp"] = json!(NOW + 100));
        assert_eq!(reason(fresh), "the token or its principal is denied", "{list}");
    }
    bench.jwt.replace_denied(ISSUER, DenyList::parse("tokens = [\"T1\"]").unwrap()).unwrap();
    admitted(bench.token(&token));
    assert_eq!(bench.jwt.standing(&alice, now()), Standing::Good);

    assert!(bench.jwt.replace_denied("https://id.test", DenyList::default()).is_err());
}

#[test]
fn a_principal_is_denied_by_name_and_by_subject() {
    let bench = Bench::with(|config| {
        config.principal_claim = "email".parse().unwrap();
        config.denied = DenyList::parse("principals = [\"bob@x\", \"0013\"]").unwrap();
    });
    let judge =
        |email: &str, sub: &str| bench.claims(|claims| (claims["email"], claims["sub"]) = (json!(email), json!(sub)));
    admitted(judge("alice@x", "0012"));
    rejected(judge("bob@x", "0012"));
    rejected(judge("alice@x", "0013"));
}

#[test]
fn keys_are_replaced_at_once() {
    let bench = Bench::new();
    let next = TestKey::es256("k2");
    let token = bench.key.token(&claims());
    let alice = admitted(bench.token(&token));
    bench.jwt.replace_keys(ISSUER, StaticKeys::parse(&jwks(&[&next])).unwrap()).unwrap();
    // K09, for a token that was seen and for one that was not.
    assert_eq!(reason(bench.token(&token)), "the key of the token is no longer the issuer's");
    assert_eq!(reason(bench.claims(|claims| claims["jti"] = json!("t2"))), "the issuer has no such key");
    admitted(bench.token(&next.token(&claims())));
    assert_eq!(bench.jwt.standing(&alice, now()), Standing::Good, "a session outlives the key of its token");

    // Another key under the old name is another key.
    let impostor = TestKey::es256("k1");
    bench.jwt.replace_keys(ISSUER, StaticKeys::parse(&jwks(&[&impostor])).unwrap()).unwrap();
    rejected(bench.token(&token));
    bench.jwt.replace_keys(ISSUER, StaticKeys::parse(&jwks(&[&bench.key])).unwrap()).unwrap();
    admitted(bench.token(&token));
}

#[test]
fn keys_that_do_not_fit_replace_nothing() {
    let bench = Bench::with(|config| config.algorithms = vec![Algorithm::Es256]);
    let token = bench.key.token(&claims());
    let unfit = StaticKeys::parse(&jwks(&[&TestKey::ed("k1")])).unwrap();
    assert!(bench.jwt.replace_keys(ISSUER, unfit.clone()).is_err());
    assert_eq!(bench.jwt.replace_keys("https://id.test", unfit).unwrap_err().issuer(), "https://id.test");
    admitted(bench.token(&token));
}

#[test]
fn a_principal_of_another_scheme_or_issuer_has_no_standing() {
    let bench = Bench::new();
    let standing = |scheme: &'static str, authority: &str, expires: Expiry| {
        let assertion = Assertion {
            name: "alice".to_owned(),
            scheme,
            authority: authority.to_owned(),
            subject: "alice".to_owned(),
            roles: Default::default(),
            attributes: Default::default(),
            expires,
            credential_id: "t1".to_owned(),
        };
        bench.jwt.standing(&Principal::assertion(assertion).unwrap(), now())
    };
    assert_eq!(standing(SCHEME, ISSUER, Expiry::At(at(NOW + 1))), Standing::Good);
    assert_eq!(standing(SCHEME, ISSUER, Expiry::At(now())), Standing::Revoked);
    assert_eq!(standing("api-key", ISSUER, Expiry::At(at(NOW + 1))), Standing::Revoked);
    assert_eq!(standing(SCHEME, "https://id.test", Expiry::At(at(NOW + 1))), Standing::Revoked);
}

#[test]
fn a_contradiction_is_found_when_the_issuer_is_configured() {
    let key = TestKey::es256("k1");
    let problem = |change: &dyn Fn(&mut IssuerConfig)| {
        let mut config = fixed(&[&key]);
        change(&mut config);
        let issuer = config.issuer.clone();
        let error = Jwt::new("corp", vec![config], clock()).err()?;
        assert_eq!(error.issuer(), issuer);
        Some(error.to_string())
    };
    let url = |url: &str| KeySource::Url(url.to_owned());
    assert_eq!(problem(&|_| ()), None);
    assert_eq!(problem(&|c| c.leeway = Duration::from_secs(120)), None);
    assert_eq!(problem(&|c| (c.keys, c.http) = (url("http://localhost:1/"), Http::DangerLoopback)), None);
    assert_eq!(problem(&|c| (c.keys, c.http) = (url("http://[::1]:1/"), Http::DangerLoopback)), None);

    let bad: [&dyn Fn(&mut IssuerConfig); 23] = [
        &|c| c.issuer = String::new(),
        &|c| c.issuer = "a\nb".to_owned(),
        &|c| c.audience = vec![],
        &|c| c.audience = vec!["gate".to_owned(), String::new()],
        &|c| c.algorithms = vec![],
        &|c| c.algorithms = vec![Algorithm::Rs256],
        &|c| c.types = vec![],
        &|c| drop(c.attributes.insert(String::new(), "sub".parse().unwrap())),
        &|c| drop(c.required.insert("scope".parse().unwrap(), String::new())),
        &|c| c.leeway = Duration::from_secs(121),
        &|c| c.max_lifetime = Duration::ZERO,
        &|c| c.keys = url("http://id.test/jwks"),
        &|c| c.keys = url("http://127.0.0.1/jwks"),
        &|c| (c.keys, c.http) = (url("http://id.test/jwks"), Http::DangerLoopback),
        &|c| (c.keys, c.http) = (url("http://localhost.id.test/"), Http::DangerLoopback),
        &|c| c.keys = url("ftp://id.test/jwks"),
        &|c| c.keys = url("file:///etc/passwd"),
        &|c| c.keys = url("https://user:pass@id.test/jwks"),
        &|c| c.keys = url("https://id.test/jwks#x"),
        &|c| c.keys = url("jwks.json"),
        &|c| (c.issuer, c.keys) = ("corp".to_owned(), KeySource::Discovery),
        &|c| (c.issuer, c.keys) = ("https://id.test/?a=b".to_owned(), KeySource::Discovery),
        &|c| (c.keys, c.trust) = (url("https://id.test/jwks"), Trust::Only("no PEM".to_owned())),
    ];
    for (change, number) in bad.into_iter().zip(1..) {
        let problem = problem(change);
        assert!(problem.as_ref().is_some_and(|problem| problem.len() > 20), "{number}: {problem:?}");
        assert!(!problem.unwrap().contains("pass@"), "{number}");
    }
    let twice = Jwt::new("corp", vec![fixed(&[&key]), fixed(&[&key])], clock()).unwrap_err();
    assert_eq!(twice.to_string(), format!("issuer `{ISSUER}`: is configured twice"));
    assert!(Jwt::new("corp", vec![], clock()).is_err());
    assert!(Jwt::new("", vec![fixed(&[&key])], clock()).is_err());
}

#[test]
fn debug_shows_names_and_numbers_only() {
    let bench = Bench::new();
    let token = bench.key.token(&claims());
    admitted(bench.token(&token));
    let shown = format!("{:?}", bench.jwt);
    assert!(shown.contains("corp") && shown.contains(ISSUER) && shown.contains("k1"), "{shown}");
    assert!(!shown.contains(&token) && !shown.contains("alice"), "{shown}");
}
