//! JWT against the contract of every scheme.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed step fails the test")]

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portcullis_auth::TestClock;
use portcullis_auth::conformance::{Part, Sample, Samples, block_on, conforms};
use portcullis_auth_jwt::{Algorithm, DenyList, IssuerConfig, Jwt, KeySource, StaticKeys};
use serde_json::{Value, json};

#[test]
fn jwt_follows_the_contract() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
    let (key, stranger) = (new_key(), new_key());
    let mut issuer = IssuerConfig::new(
        ISSUER,
        vec!["gate".to_owned()],
        vec![Algorithm::Es256],
        KeySource::File(StaticKeys::parse(&key_set(&key)).unwrap()),
    );
    issuer.denied = DenyList::parse("tokens = [\"denied\"]").unwrap();
    let jwt = Jwt::new("corp", vec![issuer], Arc::new(TestClock::new(now))).unwrap();

    let header = json!({"alg": "ES256", "kid": "k1"});
    let changed = |name: &str, value: Value| {
        let mut claims = claims();
        claims[name] = value;
        token(&key, &header, &claims)
    };
    let good = token(&key, &header, &claims());
    let nameless = token(&key, &json!({"alg": "ES256", "typ": "at+jwt"}), &claims());
    let forged = token(&stranger, &header, &claims());
    let expired = changed("exp", json!(NOW - 60));
    let bearer = |token: &str| Sample::authorization(format!("Bearer {token}"));

    let samples = Samples::new(now)
        .with(Part::Good, bearer(&good))
        .with(Part::Good, bearer(&nameless))
        .with(Part::Good, Sample::authorization(format!("bEARER {good}")))
        .with(Part::Unknown, bearer(&changed("iss", json!("https://id.test/realms/nobody"))))
        .with(Part::Unknown, bearer(&token(&key, &json!({"alg": "ES256", "kid": "k2"}), &claims())))
        .with(Part::Wrong, bearer(&forged))
        .with(Part::Wrong, bearer(&changed("aud", json!("another"))))
        .with(Part::Wrong, bearer(&changed("jti", json!("denied"))))
        .with(Part::Wrong, bearer(&token(&key, &json!({"alg": "none", "kid": "k1"}), &claims())))
        .with(Part::Expired, bearer(&expired))
        .with(Part::Malformed, bearer(&format!("{good}.AAAA")))
        .with(Part::Malformed, bearer(&format!("{good}.AAAA.AAAA")))
        .with(Part::Malformed, bearer("a.b.c"))
        .with(Part::Malformed, bearer("eyJhbGciOiJFUzI1NiJ9.e30."))
        .with(Part::Malformed, bearer(&changed("exp", json!("never"))))
        .with(Part::Foreign, bearer("pk1.AAAAAAAAAAAA.AAAA"))
        .with(Part::Foreign, bearer("ps1.AAAAAAAAAAAA.AAAA"))
        .with(Part::Foreign, bearer("opaque"))
        .with(Part::Foreign, bearer("a.b"))
        .with(Part::Foreign, Sample::authorization("Basic ZXlKLmUzMC5BOng="))
        .with(Part::Foreign, Sample::authorization("Negotiate a.b.c"))
        .with(Part::Foreign, Sample::none().with_peer_certs(vec![vec![0x30].into()]))
        .secret(&good)
        .secret(&nameless)
        .secret(&forged)
        .secret(&expired);
    block_on(conforms(&jwt, &samples)).unwrap();
}

fn claims() -> Value {
    json!({"iss": ISSUER, "aud": "gate", "sub": "alice", "iat": NOW - 100, "exp": NOW + 60, "jti": "t1"})
}

fn new_key() -> EcdsaKeyPair {
    EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap()
}

fn key_set(key: &EcdsaKeyPair) -> String {
    let point = key.public_key().as_ref();
    let (x, y) = (point.get(1..33).unwrap(), point.get(33..).unwrap());
    let jwk = json!({
        "kty": "EC", "crv": "P-256", "kid": "k1", "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
    });
    json!({ "keys": [jwk] }).to_string()
}

fn token(key: &EcdsaKeyPair, header: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", part(header), part(claims));
    let signature = key.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

const NOW: u64 = 1_800_000_000;
const ISSUER: &str = "https://id.test/realms/corp";
