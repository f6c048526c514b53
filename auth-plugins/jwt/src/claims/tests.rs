//! Audience, time, requirements and identity. Every token here has a genuine signature.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed step fails the test")]

use std::collections::BTreeMap;
use std::time::Duration;

use portcullis_auth::{Attempt, Authenticator as _, Expiry, Verdict, conformance::block_on};
use rustls_pki_types::CertificateDer;
use serde_json::{Value, json};

use crate::testing::{Bench, ISSUER, NOW, admitted, at, b64, bearer, claims, judge, reason, rejected};
use crate::{IssuerConfig, Roles};

#[test]
fn a_good_token_opens_as_its_subject() {
    let alice = admitted(Bench::new().claims(|_| ()));
    assert_eq!((alice.name(), alice.scheme(), alice.credential_id()), ("alice", "jwt", "t1"));
    assert_eq!((alice.key().authority(), alice.key().subject()), (ISSUER, "alice"));
    assert_eq!(alice.expires(), Expiry::At(at(NOW + 3600 + 30)), "within its leeway it is not over");
    assert!(alice.roles().is_empty() && alice.attributes().is_empty());
}

#[test]
fn the_issuer_is_a_string_and_one_that_is_configured() {
    // J06.
    let bench = Bench::new();
    admitted(bench.claims(|_| ()));
    for wrong in [format!("{ISSUER}/"), ISSUER.to_uppercase(), "https://id.test".to_owned(), String::new()] {
        let verdict = bench.claims(|claims| claims["iss"] = json!(wrong));
        assert_eq!(reason(verdict), "the issuer of the token is unknown", "{wrong}");
    }
    for wrong in [json!(7), json!(null), json!([ISSUER]), json!({"iss": ISSUER})] {
        assert_eq!(reason(bench.claims(|claims| claims["iss"] = wrong.clone())), "`iss` is not a string", "{wrong}");
    }
    assert_eq!(reason(without(&bench, "iss")), "`iss` is not a string");
}

#[test]
fn the_audience_names_us() {
    // J07, J37.
    let bench = Bench::with(|config| config.audience = vec!["other".to_owned(), "gate".to_owned()]);
    for good in [json!("gate"), json!("other"), json!(["gate"]), json!(["fe", "gate"]), json!(vec!["gate"; 16])] {
        admitted(bench.claims(|claims| claims["aud"] = good.clone()));
    }
    for wrong in [json!("gate/"), json!("Gate"), json!("gateway"), json!(""), json!([]), json!(["fe"]), json!("a gate")]
    {
        let verdict = bench.claims(|claims| claims["aud"] = wrong.clone());
        assert_eq!(reason(verdict), "the token is meant for somebody else", "{wrong}");
    }
    let malformed = "`aud` is neither a string nor a short list of strings";
    for wrong in [json!(null), json!(7), json!(true), json!(["gate", 1]), json!({"a": "gate"}), json!(vec!["gate"; 17])]
    {
        assert_eq!(reason(bench.claims(|claims| claims["aud"] = wrong.clone())), malformed, "{wrong}");
    }
    assert_eq!(reason(without(&bench, "aud")), malformed);
}

#[test]
fn a_token_ends() {
    // J08, J09.
    let bench = Bench::new();
    let exp = |exp: Value| bench.claims(|claims| claims["exp"] = exp);
    admitted(exp(json!(NOW + 60)));
    assert_eq!(admitted(exp(json!(NOW as f64 + 0.5))).expires(), Expiry::At(at(NOW + 30) + Duration::from_millis(500)));
    let with_iat = |exp: u64| bench.claims(|claims| (claims["iat"], claims["exp"]) = (json!(NOW - 600), json!(exp)));
    admitted(with_iat(NOW - 20));
    admitted(with_iat(NOW - 29));
    for past in [NOW - 30, NOW - 31, NOW - 500] {
        assert_eq!(reason(with_iat(past)), "the token has expired", "{past}");
    }
    for bad in [json!("never"), json!((NOW + 60).to_string()), json!(-1), json!(-0.5), json!(1e300), json!(u64::MAX)] {
        assert_eq!(reason(exp(bad.clone())), "`exp` is not a date", "{bad}");
    }
    for bad in [json!(null), json!([NOW + 60]), json!({}), json!(true), json!(253_402_300_800_u64)] {
        assert_eq!(reason(exp(bad.clone())), "`exp` is not a date", "{bad}");
    }
    assert_eq!(reason(exp(json!(0))), "the token has expired");
    assert_eq!(reason(without(&bench, "exp")), "`exp` is missing");
}

#[test]
fn a_token_begins() {
    // J10, J11.
    let bench = Bench::new();
    for claim in ["nbf", "iat"] {
        let begins = |value: Value| bench.claims(|claims| claims[claim] = value);
        for good in [json!(NOW), json!(NOW + 30), json!(NOW as f64 - 0.5), json!(NOW - 3600)] {
            admitted(begins(good));
        }
        for future in [NOW + 31, NOW + 3600] {
            let expected =
                if claim == "nbf" { "the token is not valid yet" } else { "the token was issued in the future" };
            assert_eq!(reason(begins(json!(future))), expected);
        }
        for bad in [json!("now"), json!(NOW.to_string()), json!(null), json!([NOW]), json!(-1), json!(1e300), json!({})]
        {
            assert_eq!(reason(begins(bad.clone())), format!("`{claim}` is not a date"), "{bad}");
        }
        admitted(without(&bench, claim));
    }
}

#[test]
fn a_token_does_not_live_too_long() {
    // J12.
    let bench = Bench::new();
    let day = 24 * 3600;
    let lives = |iat: u64, exp: u64| bench.claims(|claims| (claims["iat"], claims["exp"]) = (json!(iat), json!(exp)));
    admitted(lives(NOW, NOW + day));
    assert_eq!(reason(lives(NOW, NOW + day + 1)), "the token lives too long");
    assert_eq!(reason(lives(NOW, NOW + 3650 * day)), "the token lives too long");
    assert_eq!(reason(lives(NOW - day, NOW + 1)), "the token lives too long");
    assert_eq!(reason(lives(NOW + 20, NOW + 10)), "the token ends before it begins");
    // Without a time of issue, what is left counts.
    let left = |exp: u64| {
        let mut claims = claims();
        claims["exp"] = json!(exp);
        claims.as_object_mut().unwrap().remove("iat");
        bench.token(&bench.key.token(&claims))
    };
    admitted(left(NOW + day + 30));
    assert_eq!(reason(left(NOW + day + 31)), "the token lives too long");
    let short = Bench::with(|config| config.max_lifetime = Duration::from_secs(60));
    assert_eq!(reason(short.claims(|_| ())), "the token lives too long");
}

#[test]
fn a_principal_has_a_usable_name() {
    // J13.
    let bench = Bench::new();
    let sub = |sub: Value| bench.claims(|claims| claims["sub"] = sub);
    assert_eq!(admitted(sub(json!("Алиса 1"))).name(), "Алиса 1");
    let missing = "the principal claim is missing, empty or not a string";
    for bad in [json!(7), json!(""), json!(null), json!(["alice"]), json!({})] {
        assert_eq!(reason(sub(bad.clone())), missing, "{bad}");
    }
    assert_eq!(reason(without(&bench, "sub")), missing);
    for bad in ["a\u{0}b", "a\nb", "\u{202e}a", &"a".repeat(300), "*", "role:admin"] {
        let reason = reason(sub(json!(bad)));
        assert!(reason.starts_with("not usable as an identity: name "), "{reason}");
    }
}

#[test]
fn another_claim_may_name_the_principal() {
    let bench = Bench::with(|config| config.principal_claim = "profile.email".parse().unwrap());
    let named = |profile: Value, sub: Value| bench.claims(|claims| (claims["profile"], claims["sub"]) = (profile, sub));
    let alice = admitted(named(json!({"email": "alice@x"}), json!("0017")));
    assert_eq!((alice.name(), alice.key().subject()), ("alice@x", "0017"));
    for bad in [json!({"email": 7}), json!({"email": ""}), json!({}), json!("alice@x"), json!([{"email": "alice@x"}])] {
        rejected(named(bad, json!("0017")));
    }
    for bad in [json!(7), json!(""), json!(null)] {
        assert_eq!(reason(named(json!({"email": "alice@x"}), bad)), "`sub` is empty or not a string");
    }
    let subjectless = bench.claims(|claims| {
        claims.as_object_mut().unwrap().remove("sub");
        claims["profile"] = json!({"email": "alice@x"});
    });
    assert_eq!(admitted(subjectless).key().subject(), "alice@x");
}

#[test]
fn a_token_is_called_by_its_id_or_by_its_hash() {
    let bench = Bench::new();
    let id = |jti: Value| admitted(bench.claims(|claims| claims["jti"] = jti)).credential_id().to_owned();
    assert_eq!(id(json!("4f1c-9f0e")), "4f1c-9f0e");
    let hashed = id(json!("x".repeat(300)));
    assert_eq!(hashed.len(), 22);
    for odd in [json!(""), json!("a b"), json!("a\u{202e}b"), json!("é")] {
        assert_eq!(id(odd).len(), 22);
    }
    let unnamed = admitted(without(&bench, "jti"));
    assert_eq!(unnamed.credential_id().len(), 22);
    assert_ne!(unnamed.credential_id(), hashed);
    for bad in [json!(7), json!(null), json!(["t1"])] {
        assert_eq!(reason(bench.claims(|claims| claims["jti"] = bad)), "`jti` is not a string");
    }
}

#[test]
fn roles_are_taken_whole_or_not_at_all() {
    // J35.
    let bench = Bench::with(|config| config.roles_claim = Roles::Claim("realm_access.roles".parse().unwrap()));
    let judge = |roles: Value| bench.claims(|claims| claims["realm_access"] = json!({"roles": roles}));
    let roles = |value: Value| admitted(judge(value)).roles().iter().cloned().collect::<Vec<_>>();
    assert_eq!(roles(json!(["b", "a", "b"])), ["a", "b"]);
    assert_eq!(roles(json!("one role")), ["one role"], "a space splits nothing");
    assert!(roles(json!([])).is_empty());
    assert!(admitted(bench.claims(|_| ())).roles().is_empty());

    let many: Vec<_> = (0..10_000).map(|i: u32| format!("{i:x}")).collect();
    let too_many: Vec<_> = many.iter().take(201).collect();
    for bad in
        [json!(7), json!(null), json!(true), json!({"a": "b"}), json!(["a", 7]), json!([["a"]]), json!(["a", null])]
    {
        assert_eq!(
            reason(judge(bad.clone())),
            "the claim `realm_access.roles` is neither a string nor a list of strings",
            "{bad}"
        );
    }
    assert_eq!(reason(judge(json!(too_many))), "not usable as an identity: roles are too many");
    assert!(!matches!(judge(json!(many)), Verdict::Admit(_)));
    for bad in [json!([""]), json!(""), json!(["a\nb"]), json!(["x".repeat(257)])] {
        rejected(judge(bad));
    }
}

#[test]
fn roles_that_are_not_asked_for_are_not_taken() {
    let bench = Bench::new();
    let alice = bench.claims(|claims| (claims["roles"], claims["groups"]) = (json!(["admin"]), json!(["admin"])));
    assert!(admitted(alice).roles().is_empty());
}

#[test]
fn attributes_are_plain_values() {
    let bench = Bench::with(|config| {
        let path = |name: &str| (name.to_owned(), format!("about.{name}").parse().unwrap());
        config.attributes = BTreeMap::from([path("region"), path("level"), path("staff")]);
    });
    let judge = |about: Value| bench.claims(|claims| claims["about"] = about);
    let alice = admitted(judge(json!({"region": "EU", "level": 3, "staff": true, "more": "x"})));
    let attributes: Vec<_> = alice.attributes().iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(attributes, [("level", "3"), ("region", "EU"), ("staff", "true")]);
    assert!(admitted(judge(json!({}))).attributes().is_empty());
    for bad in [json!(null), json!(["EU"]), json!({"a": 1}), json!(1.5)] {
        assert_eq!(reason(judge(json!({"region": bad}))), "the claim `about.region` is not a plain value");
    }
    rejected(judge(json!({"region": "a\nb"})));
}

#[test]
fn what_is_required_must_be_said() {
    // J33.
    let requires = |path: &str, expected: &str| {
        let entry = (path.parse().unwrap(), expected.to_owned());
        Bench::with(|config: &mut IssuerConfig| config.required = BTreeMap::from([entry]))
    };
    let scope = requires("scope", "sql");
    for good in [json!("sql"), json!("openid sql email"), json!(["openid", "sql"])] {
        admitted(scope.claims(|claims| claims["scope"] = good));
    }
    for bad in
        [json!("sqlx"), json!("SQL"), json!("openid"), json!(""), json!(["a sql"]), json!(7), json!(null), json!({})]
    {
        let verdict = scope.claims(|claims| claims["scope"] = bad.clone());
        assert_eq!(reason(verdict), "the claim `scope` does not say what is required", "{bad}");
    }
    rejected(scope.claims(|_| ()));

    let department = requires("org.department", "data");
    admitted(department.claims(|claims| claims["org"] = json!({"department": "data"})));
    rejected(department.claims(|claims| claims["org"] = json!({"department": "big data"})));
    rejected(department.claims(|claims| claims["org"] = json!({"department": "data science"})));
    let verified = requires("email_verified", "true");
    admitted(verified.claims(|claims| claims["email_verified"] = json!(true)));
    rejected(verified.claims(|claims| claims["email_verified"] = json!(false)));
    rejected(verified.claims(|claims| claims["email_verified"] = json!(1)));
}

#[test]
fn a_bound_token_needs_its_certificate() {
    // J31, J32.
    let bench = Bench::new();
    let (mine, other) = (vec![0x30, 1, 2, 3], vec![0x30, 1, 2, 4]);
    let hash = b64(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &mine));
    let token_with = |cnf: &Value| {
        let mut claims = claims();
        claims["cnf"] = cnf.clone();
        bench.key.token(&claims)
    };
    let judge_with = |token: &str, certs: &[&[u8]]| {
        let certs: Vec<_> = certs.iter().map(|cert| CertificateDer::from(cert.to_vec())).collect();
        let headers = bearer(token);
        block_on(bench.jwt.authenticate(&Attempt::new(&headers, at(NOW)).with_peer_certs(&certs)))
    };
    let (none, another) =
        ("the token is bound to a certificate and none was presented", "the token is bound to another certificate");
    let bound = token_with(&json!({ "x5t#S256": hash }));
    // At first the token is new, then it was seen, and it is bound all the same.
    for _ in 0..2 {
        assert_eq!(reason(judge_with(&bound, &[])), none);
        assert_eq!(reason(judge_with(&bound, &[&other])), another);
        assert_eq!(reason(judge_with(&bound, &[&other, &mine])), another, "the leaf comes first");
        admitted(judge_with(&bound, &[&mine]));
        admitted(judge_with(&bound, &[&mine, &other]));
    }
    assert_eq!(bench.jwt.counters().cache_hits, 6, "all but the first four, of which one was good");

    for unsupported in [
        json!({"jkt": hash}),
        json!({"x5t#S256": hash, "jkt": hash}),
        json!({"x5t#S256": format!("{hash}=")}),
        json!({"x5t#S256": "AAAA"}),
        json!({"x5t#S256": ""}),
        json!({"x5t#S256": [hash]}),
        json!({"x5t": hash}),
        json!({}),
        json!(null),
        json!(hash),
    ] {
        let verdict = judge_with(&token_with(&unsupported), &[&mine]);
        assert_eq!(reason(verdict), "the token is bound in a way that is not supported", "{unsupported}");
    }
}

#[test]
fn a_reason_repeats_nothing_that_a_token_holds() {
    let bench = Bench::with(|config| config.roles_claim = Roles::Claim("groups".parse().unwrap()));
    for name in ["iss", "aud", "exp", "nbf", "iat", "sub", "jti", "groups", "cnf"] {
        for value in [json!("topsecret\u{0}"), json!(["topsecret", 7]), json!({"topsecret": "topsecret"})] {
            match bench.claims(|claims| claims[name] = value) {
                Verdict::Reject(rejection) => assert!(!rejection.reason().contains("topsecret"), "{rejection:?}"),
                // An odd `jti` is replaced.
                Verdict::Admit(alice) => assert!(!format!("{alice:?}").contains("topsecret"), "{name}"),
                abstained @ Verdict::Abstain => drop(rejected(abstained)),
            }
        }
    }
}

#[test]
fn a_clock_that_jumps_lets_nobody_in() {
    // J39.
    let bench = Bench::new();
    let mut short = claims();
    short["exp"] = json!(NOW + 600);
    for fresh in [false, true] {
        let token = bench.key.token(&short);
        if !fresh {
            admitted(bench.token(&token));
        }
        assert_eq!(reason(judge(&bench.jwt, &token, at(NOW + 3600))), "the token has expired");
        rejected(judge(&bench.jwt, &token, at(NOW - 3600)));
        rejected(judge(&bench.jwt, &token, at(0)));
        admitted(bench.token(&token));
    }
}

fn without(bench: &Bench, name: &str) -> Verdict {
    bench.claims(|claims| drop(claims.as_object_mut().unwrap().remove(name)))
}
