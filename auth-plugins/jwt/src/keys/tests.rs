//! Which keys may be used, and what a signature must be.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed step fails the test")]

use portcullis_auth::RejectKind;
use serde_json::{Value, json};

use super::{KeySet, KeySetError, StaticKeys};
use crate::testing::{
    Bench, ISSUER, TestKey, admitted, b64, claims, clock, fixed, judge, jwks, now, reason, rejected, set_of,
};
use crate::{Algorithm, IssuerConfig, Jwt, KeySource};

#[test]
fn a_token_of_every_algorithm_is_verified() {
    let keys = [TestKey::es256("a"), TestKey::es384("b"), TestKey::ed("c"), TestKey::rsa("d")];
    let all = keys.each_ref();
    let jwt = Jwt::new("corp", vec![fixed(&all)], clock()).unwrap();
    let rsa =
        [Algorithm::Ps256, Algorithm::Ps384, Algorithm::Ps512, Algorithm::Rs256, Algorithm::Rs384, Algorithm::Rs512];
    for key in &keys {
        let algorithms = if key.algorithm() == Algorithm::Rs256 { &rsa[..] } else { &[key.algorithm()] };
        for algorithm in algorithms {
            let mut header = key.header();
            header["alg"] = json!(algorithm.as_str());
            let token = key.token_by(*algorithm, header.to_string(), claims().to_string());
            assert_eq!(admitted(judge(&jwt, &token, now())).name(), "alice", "{algorithm}");
            // The same signature under another payload.
            let (front, signature) = token.rsplit_once('.').unwrap();
            let header = front.split('.').next().unwrap();
            let mut other = claims();
            other["sub"] = json!("root");
            let forged = format!("{header}.{}.{signature}", b64(other.to_string()));
            assert_eq!(reason(judge(&jwt, &forged, now())), "the signature does not verify", "{algorithm}");
        }
    }
    // PS256 said, RS256 done.
    let mut header = TestKey::rsa("d").header();
    header["alg"] = json!("PS256");
    let mixed = TestKey::rsa("d").token_by(Algorithm::Rs256, header.to_string(), claims().to_string());
    assert_eq!(reason(judge(&jwt, &mixed, now())), "the signature does not verify");
}

#[test]
fn an_edge_of_ecdsa_is_no_signature() {
    // J24: each number is 32 bytes, big-endian; n is the order of P-256.
    let order = [
        0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc, 0xe6,
        0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
    ];
    let (zero, one) = ([0; 32], { [&[0; 31][..], &[1]].concat() });
    let bench = Bench::new();
    let message = format!("{}.{}", b64(bench.key.header().to_string()), b64(claims().to_string()));
    let good = bench.key.sign(Algorithm::Es256, message.as_bytes());
    let with = |signature: &[u8]| bench.token(&format!("{message}.{}", b64(signature)));
    admitted(with(&good));

    let (r, s) = good.split_at(32);
    let der = [&[0x30, 0x44, 0x02, 0x20][..], r, &[0x02, 0x20], s].concat();
    for bad in [
        [zero, zero].concat(),
        [&zero[..], s].concat(),
        [r, &zero].concat(),
        [&order[..], s].concat(),
        [r, &order].concat(),
        [order, order].concat(),
        [&*one, &one].concat(),
        [0xff; 64].to_vec(),
        der,
        good.iter().copied().take(63).collect(),
        [&*good, &[0]].concat(),
        [&[0], &*good].concat(),
        [&good[..], &good].concat(),
        [s, r].concat(),
        vec![0],
    ] {
        let verdict = rejected(with(&bad));
        assert_eq!(verdict.kind(), RejectKind::Invalid, "{bad:?}");
        assert!(verdict.reason().starts_with("the signature does not verify"), "{bad:?}");
    }
    for at in 0..good.len() {
        let mut flipped = good.clone();
        *flipped.get_mut(at).unwrap() ^= 1;
        rejected(with(&flipped));
    }
}

#[test]
fn a_key_that_may_not_be_used_is_left_out() {
    let (good, ec, rsa) = (TestKey::ed("good"), TestKey::es256("bad"), TestKey::rsa("bad"));
    let usable = |jwk: &Value| StaticKeys::parse(&set_of(&[good.jwk(), jwk.clone()])).unwrap().count() == 2;
    let changed = |key: &TestKey, changes: &[(&str, Value)]| {
        let mut jwk = key.jwk();
        for (name, value) in changes {
            jwk[*name] = value.clone();
        }
        usable(&jwk)
    };
    assert!(changed(&ec, &[]) && changed(&rsa, &[]));
    assert!(changed(&ec, &[("use", json!("sig")), ("alg", json!("ES256")), ("key_ops", json!(["verify"]))]));
    assert!(changed(&rsa, &[("alg", json!("PS512")), ("x5c", json!(["AAAA"])), ("x5u", json!("https://a.test"))]));

    // J22.
    for (name, value) in [
        ("use", json!("enc")),
        ("use", json!(1)),
        ("key_ops", json!(["encrypt"])),
        ("key_ops", json!([])),
        ("key_ops", json!("verify")),
        ("alg", json!("ES384")),
        ("alg", json!("RS256")),
        ("alg", json!("HS256")),
        ("alg", json!("none")),
        ("alg", json!(7)),
        ("kid", json!("")),
        ("kid", json!(7)),
        // J23.
        ("crv", json!("P-384")),
        ("crv", json!("P-521")),
        ("crv", json!("secp256k1")),
        ("kty", json!("RSA")),
        ("kty", json!("oct")),
        ("kty", json!("ec")),
        ("x", ec.jwk()["y"].clone()),
        ("y", json!(b64([0; 32]))),
        ("x", json!(b64([0; 31]))),
        ("x", json!("!")),
        ("x", json!(7)),
        ("d", json!("AAAA")),
    ] {
        assert!(!changed(&ec, &[(name, value.clone())]), "{name} {value}");
    }
    for (name, value) in [
        ("n", json!(b64([0xff; 128]))),
        ("n", json!(b64([&[0x7f][..], &[0xff; 255]].concat()))),
        ("n", json!(b64([&[0xff; 255][..], &[0xfe]].concat()))),
        ("n", json!(b64([&[0; 200][..], &[0xff; 128]].concat()))),
        ("n", json!(b64([0xff; 1025]))),
        ("n", json!("")),
        ("e", json!(b64([1]))),
        ("e", json!(b64([0, 0, 1]))),
        ("e", json!(b64([2]))),
        ("e", json!(b64([1, 0, 0]))),
        ("e", json!(b64([1, 0, 0, 0, 1]))),
        ("e", json!("")),
        ("alg", json!("RSA-OAEP")),
        ("p", json!("AAAA")),
    ] {
        assert!(!changed(&rsa, &[(name, value.clone())]), "{name} {value}");
    }
    assert!(!usable(&json!({"kty": "oct", "kid": "bad", "k": b64([7; 32])})));
    assert!(!usable(&json!({"kty": "OKP", "crv": "X25519", "kid": "bad", "x": b64([9; 32])})));
    assert!(!usable(&json!({})));
}

#[test]
fn a_leading_zero_does_not_make_a_key_weaker_or_unusable() {
    let key = TestKey::rsa("k1");
    let mut jwk = key.jwk();
    let n = base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, jwk["n"].as_str().unwrap());
    jwk["n"] = json!(b64([&[0], &*n.unwrap()].concat()));
    let jwt = over(&set_of(&[jwk]));
    admitted(judge(&jwt, &key.token(&claims()), now()));
}

#[test]
fn a_key_verifies_only_what_it_is_published_for() {
    // J22 with a genuine signature.
    let key = TestKey::rsa("k1");
    let token = key.token(&claims());
    let published = |changes: Value| {
        let mut jwk = key.jwk();
        jwk.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        judge(&over(&set_of(&[jwk, TestKey::ed("other").jwk()])), &token, now())
    };
    admitted(published(json!({})));
    admitted(published(json!({"alg": "RS256", "use": "sig"})));
    assert_eq!(reason(published(json!({"use": "enc"}))), "the issuer has no such key");
    assert_eq!(reason(published(json!({"key_ops": ["encrypt"]}))), "the issuer has no such key");
    assert_eq!(reason(published(json!({"alg": "RS512"}))), "the key of the token is not for its algorithm");
}

#[test]
fn a_token_without_a_key_id_needs_a_set_that_leaves_no_choice() {
    let (first, second, ed) = (TestKey::es256("a"), TestKey::es256("b"), TestKey::ed("c"));
    let token = first.token_with(&json!({"alg": "ES256"}), &claims());
    admitted(judge(&over(&jwks(&[&first, &ed])), &token, now()));
    let two = judge(&over(&jwks(&[&first, &second])), &token, now());
    assert_eq!(reason(two), "the token names no key, and several would fit");
    assert_eq!(reason(judge(&over(&jwks(&[&ed])), &token, now())), "the issuer has no such key");

    // A key without a name does not answer to one.
    let mut nameless = first.jwk();
    nameless.as_object_mut().unwrap().remove("kid");
    let nameless = over(&set_of(&[nameless]));
    admitted(judge(&nameless, &token, now()));
    assert_eq!(reason(judge(&nameless, &first.token(&claims()), now())), "the issuer has no such key");
}

#[test]
fn several_keys_may_be_without_a_name() {
    let keys = [TestKey::es256("a"), TestKey::es384("b"), TestKey::ed("c")];
    let nameless = keys.each_ref().map(|key| {
        let mut jwk = key.jwk();
        jwk.as_object_mut().unwrap().remove("kid");
        jwk
    });
    let jwt = over(&set_of(&nameless));
    for key in &keys {
        let header = json!({"alg": key.algorithm().as_str()});
        admitted(judge(&jwt, &key.token_with(&header, &claims()), now()));
    }
}

#[test]
fn a_set_that_contradicts_itself_is_refused() {
    let (first, second) = (TestKey::es256("k1"), TestKey::es256("k1"));
    let parse = |set: String| StaticKeys::parse(&set).map(|keys| keys.count());
    assert_eq!(parse(jwks(&[&first])), Ok(1));
    // K07.
    assert_eq!(parse(jwks(&[&first, &second])), Err(KeySetError::Ambiguous));
    assert_eq!(parse(set_of(&vec![first.jwk(); 101])), Err(KeySetError::TooMany));
    assert_eq!(parse(set_of(&vec![first.jwk(); 100])), Ok(1));
    // K06.
    assert_eq!(parse(set_of(&[])), Err(KeySetError::NoneUsable));
    assert_eq!(parse(set_of(&[json!({"kty": "oct", "k": "AAAA"})])), Err(KeySetError::NoneUsable));
    // K08.
    let deep = format!("{{\"keys\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    let twice = format!("{{\"keys\":[],\"keys\":[{}]}}", first.jwk());
    for bad in ["", "<html>", "[]", "{}", "{\"keys\":{}}", "{\"keys\":[1]}", "{\"keys\":null}", &deep, &twice] {
        assert_eq!(parse(bad.to_owned()), Err(KeySetError::NotASet));
    }
    let large = format!("{}{}", jwks(&[&first]), " ".repeat(256 * 1024));
    assert_eq!(parse(large), Err(KeySetError::TooLarge));
}

#[test]
fn a_key_listed_once_for_each_algorithm_is_one_key() {
    let key = TestKey::rsa("k1");
    let listed = |algorithm: &str| {
        let mut jwk = key.jwk();
        jwk["alg"] = json!(algorithm);
        jwk
    };
    let jwt = over(&set_of(&[listed("RS256"), listed("PS256")]));
    for algorithm in [Algorithm::Rs256, Algorithm::Ps256] {
        let header = json!({"alg": algorithm.as_str(), "kid": "k1"}).to_string();
        admitted(judge(&jwt, &key.token_by(algorithm, header, claims().to_string()), now()));
    }
    let header = json!({"alg": "RS512", "kid": "k1"}).to_string();
    rejected(judge(&jwt, &key.token_by(Algorithm::Rs512, header, claims().to_string()), now()));
}

#[test]
fn two_sets_are_the_same_if_their_keys_are() {
    let (first, second) = (TestKey::es256("a"), TestKey::es256("b"));
    let set = |keys: &[&TestKey]| KeySet::parse(jwks(keys).as_bytes()).unwrap();
    assert!(set(&[&first, &second]).same(&set(&[&second, &first])));
    assert!(!set(&[&first]).same(&set(&[&second])));
    assert!(!set(&[&first]).same(&set(&[&first, &second])));
    assert_eq!(format!("{:?}", set(&[&first])), "[Named(\"a\")]");
}

fn over(set: &str) -> Jwt {
    let keys = KeySource::File(StaticKeys::parse(set).unwrap());
    let config = IssuerConfig::new(ISSUER, vec!["gate".to_owned()], Algorithm::ALL.to_vec(), keys);
    Jwt::new("corp", vec![config], clock()).unwrap()
}
