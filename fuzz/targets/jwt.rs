//! JSON Web Tokens: no token is admitted but one that the issuer has signed, and then for what it says.
#![expect(clippy::unwrap_used, clippy::panic, clippy::arithmetic_side_effects, reason = "a failed step is a finding")]

use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use portcullis_auth::{Attempt, Authenticator, Clock, Principal, Standing, Verdict};
use portcullis_auth_jwt::{Algorithm, IssuerConfig, Jwt, KeySource, Roles, StaticKeys};
use serde_json::Value;

use crate::input::Input;
use crate::judged;

/// Any text; a good token with edits; a header and claims, signed by the issuer; the same, signed by somebody else.
pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    match input.choice(4) {
        // The fuzzer looks over our shoulder and puts the good token into its inputs.
        0 => {
            let text = input.rest();
            assert!(admitted(text).is_none() || text == GOOD.as_bytes(), "text was admitted");
        }
        1 => {
            let token = input.edited(GOOD.as_bytes());
            let principal = admitted(&token);
            assert_eq!(principal.is_some(), token == GOOD.as_bytes(), "a token that was changed was admitted");
        }
        2 => {
            let (header, claims) = (input.line(), input.rest());
            if let Some(principal) = admitted(signed(header, claims, &ISSUERS_KEY).as_bytes()) {
                said(header, claims, &principal);
            }
        }
        _ => {
            let (header, claims) = (input.line(), input.rest());
            for token in [
                signed(header, claims, &OTHER_KEY),
                [URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims), String::new()].join("."),
                [URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims)].join("."),
            ] {
                assert!(admitted(token.as_bytes()).is_none(), "a token was admitted that the issuer has not signed");
            }
        }
    }
}

fn admitted(token: &[u8]) -> Option<Principal> {
    let value = HeaderValue::from_bytes(&[b"Bearer ", token].concat()).ok()?;
    let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
    let at = |now: SystemTime| judged(&*SCHEME, &Attempt::new(&headers, now));
    let first = at(now());
    // The second time it may be one that was seen.
    match (first, at(now())) {
        (Verdict::Admit(first), Verdict::Admit(second)) => {
            assert_eq!((first.key(), first.name()), (second.key(), second.name()));
            assert!(matches!(at(now() + A_YEAR), Verdict::Reject(_)), "an expired token was admitted");
            Some(first)
        }
        (Verdict::Reject(first), Verdict::Reject(second)) => {
            assert_eq!(first.kind(), second.kind());
            // Shorter ones may be words of ours.
            let shows = |token: &str| token.len() > 8 && first.reason().contains(token);
            assert!(!std::str::from_utf8(token).is_ok_and(shows), "a reason repeats the token");
            None
        }
        (Verdict::Abstain, Verdict::Abstain) => None,
        (Verdict::Abstain | Verdict::Admit(_) | Verdict::Reject(_), _) => panic!("two looks at one token differ"),
    }
}

/// An admitted token compared with another reader's view of what was signed.
fn said(header: &[u8], claims: &[u8], principal: &Principal) {
    let header: Value = serde_json::from_slice(header).unwrap();
    let claims: Value = serde_json::from_slice(claims).unwrap();
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    assert_eq!(text(&header, "alg").as_deref(), Some("EdDSA"));
    for member in ["b64", "crit", "jku", "jwk", "x5c", "x5u", "zip"] {
        assert!(header.get(member).is_none(), "a header with `{member}` was admitted");
    }
    assert_eq!(text(&claims, "iss").as_deref(), Some(ISSUER));
    assert!(claims.get("cnf").is_none(), "a bound token was admitted without its certificate");
    let audience = claims.get("aud").unwrap();
    let ours = |value: &Value| value.as_str() == Some(AUDIENCE);
    assert!(ours(audience) || audience.as_array().is_some_and(|all| all.iter().any(ours)), "for somebody else");
    let seconds = |name: &str| claims.get(name).and_then(Value::as_f64);
    let (now_seconds, leeway) = (now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64(), 30.0);
    assert!(seconds("exp").unwrap() + leeway >= now_seconds, "an expired token was admitted");
    for name in ["nbf", "iat"] {
        assert!(
            seconds(name).is_none_or(|begins| begins - leeway <= now_seconds),
            "a token of the future was admitted"
        );
    }

    let name = text(&claims, "sub").unwrap();
    assert_eq!((principal.name(), principal.key().subject()), (name.as_str(), name.as_str()));
    assert_eq!((principal.scheme(), principal.key().authority()), ("jwt", ISSUER));
    assert!(!principal.expires().passed(now()));
    assert_eq!(SCHEME.standing(principal, now()), Standing::Good);
    let roles = claims.get("roles");
    for role in principal.roles() {
        let same = |value: &Value| value.as_str() == Some(role);
        assert!(roles.is_some_and(|roles| same(roles) || roles.as_array().is_some_and(|all| all.iter().any(same))));
    }
}

fn signed(header: &[u8], claims: &[u8], key: &Ed25519KeyPair) -> String {
    let message = [URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims)].join(".");
    let signature = URL_SAFE_NO_PAD.encode(key.sign(message.as_bytes()));
    [message, signature].join(".")
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_750_000_000)
}

#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now(&self) -> SystemTime {
        now()
    }
}

pub(crate) static SCHEME: LazyLock<Jwt> = LazyLock::new(|| {
    let public = URL_SAFE_NO_PAD.encode(ISSUERS_KEY.public_key().as_ref());
    let keys =
        format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","alg":"EdDSA","use":"sig","kid":"k","x":"{public}"}}]}}"#);
    let keys = KeySource::File(StaticKeys::parse(&keys).unwrap());
    let mut issuer =
        IssuerConfig::new(ISSUER, vec![AUDIENCE.to_owned()], vec![Algorithm::EdDsa, Algorithm::Rs256], keys);
    issuer.roles_claim = Roles::Claim("roles".parse().unwrap());
    Jwt::new("corp", vec![issuer], Arc::new(Still)).unwrap()
});

static GOOD: LazyLock<String> = LazyLock::new(|| {
    let claims = format!(r#"{{"iss":"{ISSUER}","aud":"{AUDIENCE}","sub":"alice","iat":1749999000,"exp":1750000600}}"#);
    let token = signed(br#"{"alg":"EdDSA","kid":"k","typ":"JWT"}"#, claims.as_bytes(), &ISSUERS_KEY);
    assert!(admitted(token.as_bytes()).is_some(), "the good token is not");
    token
});

static ISSUERS_KEY: LazyLock<Ed25519KeyPair> = LazyLock::new(|| key(1));
static OTHER_KEY: LazyLock<Ed25519KeyPair> = LazyLock::new(|| key(2));

/// A key that everybody knows: inputs must mean the same in every process.
fn key(number: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[number; 32]).unwrap()
}

const ISSUER: &str = "https://id.example.com";
const AUDIENCE: &str = "portcullis";
const A_YEAR: Duration = Duration::from_secs(367 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_that_should_be_admitted_are() {
        for seed in [include_bytes!("../corpus/jwt/claims").as_slice(), include_bytes!("../corpus/jwt/all-claims")] {
            let mut input = Input::new(seed);
            assert_eq!(input.choice(4), 2);
            assert!(admitted(signed(input.line(), input.rest(), &ISSUERS_KEY).as_bytes()).is_some());
        }
    }
}
