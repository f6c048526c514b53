//! Shapes, headers and encodings. Each refused token carries a signature that is right for its bytes.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed step fails the test")]

use portcullis_auth::{RejectKind, Verdict};
use serde_json::{Value, json};

mod wycheproof;

use super::{Form, KeyId, TokenType};
use crate::json::Json;
use crate::testing::{Bench, NOW, admitted, b64, claims, reason, rejected};
use crate::{Algorithm, IssuerConfig};

#[test]
fn a_jwt_is_known_by_its_shape() {
    let form = |token: &str| match Form::of(token) {
        Form::Foreign => "foreign",
        Form::Signed(_) => "signed",
        Form::Unsupported => "unsupported",
    };
    for signed in ["eyJ.e30.AAAA", "a.b.", "..", "A-_9.b.c", "PK1.a.b"] {
        assert_eq!(form(signed), "signed", "{signed}");
    }
    // J26.
    for unsupported in ["a.b.c.d", "a.b.c.d.e", "a..c.d.e", "...", "...."] {
        assert_eq!(form(unsupported), "unsupported", "{unsupported}");
    }
    for foreign in ["", "a", "a.b", ".", "a.b.c.d.e.f", "pk1.a.b", "ps1.a.b", "a.b.c=", "a.b+.c", "a.b/.c", "a~.b.c"] {
        assert_eq!(form(foreign), "foreign", "{foreign}");
    }
}

#[test]
fn an_encrypted_token_is_refused_and_not_passed_on() {
    // J26: four parts, and a JWE of five.
    let bench = Bench::new();
    let good = bench.key.token(&claims());
    admitted(bench.token(&good));
    let jwe = format!("{}..AAAA.AAAA.AAAA", b64(r#"{"alg":"dir","enc":"A256GCM","zip":"DEF"}"#));
    for bad in [format!("{good}.AAAA"), format!("{good}.AAAA.AAAA"), jwe] {
        assert_eq!(rejected(bench.token(&bad)).kind(), RejectKind::Malformed);
    }
}

#[test]
fn an_algorithm_that_is_not_accepted_is_refused() {
    let bench = Bench::new();
    admitted(bench.header(|_| ()));
    // J01, J03, J04, J05.
    for bad in [
        json!("none"),
        json!("None"),
        json!("NoNe"),
        json!(""),
        json!("HS256"),
        json!("HS512"),
        json!("hs256"),
        json!("es256"),
        json!("dir"),
        json!(["ES256"]),
        json!(256),
        json!(null),
    ] {
        assert_eq!(
            reason(bench.header(|header| header["alg"] = bad.clone())),
            "the algorithm is not accepted",
            "{bad}"
        );
    }
    let missing = bench.header(|header| drop(header.as_object_mut().unwrap().remove("alg")));
    assert_eq!(reason(missing), "the algorithm is not accepted");

    // One that exists, and is not this issuer's.
    let narrow = Bench::with(|config: &mut IssuerConfig| config.algorithms = vec![Algorithm::Es256]);
    admitted(narrow.header(|_| ()));
    assert_eq!(reason(narrow.header(|header| header["alg"] = json!("ES384"))), "the algorithm is not accepted");
    // And one of this issuer's that is not this key's.
    let unfit = bench.header(|header| header["alg"] = json!("RS256"));
    assert_eq!(reason(unfit), "the key of the token is not for its algorithm");
}

#[test]
fn a_public_key_is_no_shared_secret() {
    // J02: a HMAC over the public key in every form it is published in.
    use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};

    let bench = Bench::new();
    admitted(bench.token(&bench.key.token(&claims())));
    let jwk = bench.key.jwk().to_string();
    for secret in [bench.key.public_bytes(), jwk.into_bytes()] {
        for alg in ["HS256", "ES256"] {
            let header = json!({"alg": alg, "kid": "k1"}).to_string();
            let message = format!("{}.{}", b64(header), b64(claims().to_string()));
            let tag = sign(&Key::new(HMAC_SHA256, &secret), message.as_bytes());
            let token = format!("{message}.{}", b64(tag));
            assert_eq!(rejected(bench.token(&token)).kind(), RejectKind::Invalid, "{alg}");
        }
    }
}

#[test]
fn a_header_that_brings_or_changes_something_is_refused() {
    let bench = Bench::new();
    admitted(bench.header(|header| header["x5t"] = json!("AAAA")));
    let own = bench.key.jwk();
    for (name, value) in [
        // J16.
        ("crit", json!(["x"])),
        ("crit", json!([])),
        ("crit", json!(["b64"])),
        ("b64", json!(false)),
        ("b64", json!(true)),
        // J17: nothing is fetched, since nothing in this crate could.
        ("jku", json!("https://attacker.test/jwks")),
        ("x5u", json!("https://attacker.test/cert")),
        ("url", json!("https://attacker.test/")),
        // J18, J19.
        ("jwk", own),
        ("x5c", json!(["AAAA"])),
        // J30.
        ("zip", json!("DEF")),
        ("enc", json!("A256GCM")),
        ("jku", json!(null)),
    ] {
        let verdict = bench.header(|header| header[name] = value.clone());
        assert_eq!(reason(verdict), "the header of the token holds a member that is never followed", "{name}");
    }
}

#[test]
fn an_embedded_key_is_not_believed() {
    // J18 with the matching signature of somebody else's key, with and without the known name.
    let bench = Bench::new();
    admitted(bench.header(|_| ()));
    let stranger = crate::testing::TestKey::es256("k1");
    let mut header = stranger.header();
    assert_eq!(reason(bench.token(&stranger.token_with(&header, &claims()))), "the signature does not verify");
    header["jwk"] = stranger.jwk();
    rejected(bench.token(&stranger.token_with(&header, &claims())));
}

#[test]
fn a_key_id_is_a_name_and_nothing_else() {
    // J20.
    let bench = Bench::new();
    admitted(bench.header(|_| ()));
    for unknown in ["../../dev/null", "/etc/passwd", "' OR 1=1--", "|id", "K1", "k1 ", &"k".repeat(256)] {
        assert_eq!(reason(bench.header(|header| header["kid"] = json!(unknown))), "the issuer has no such key");
    }
    for bad in [json!(""), json!("a\nb"), json!("a\0"), json!("é"), json!(7), json!(null), json!("k".repeat(257))] {
        let verdict = bench.header(|header| header["kid"] = bad.clone());
        assert_eq!(reason(verdict), "`kid` is not a short printable string", "{bad}");
    }
    let huge = bench.header(|header| header["kid"] = json!("k".repeat(10_000)));
    assert_eq!(reason(huge), "the header of the token is too long");
    assert_eq!(KeyId::read(&Json::String("k".repeat(256))), Some(KeyId::Named("k".repeat(256))));
}

#[test]
fn a_token_type_is_accepted_or_not() {
    // J29.
    let bench = Bench::new();
    for good in ["JWT", "jwt", "at+jwt", "AT+JWT", "application/at+jwt"] {
        admitted(bench.header(|header| header["typ"] = json!(good)));
    }
    admitted(bench.header(|header| drop(header.as_object_mut().unwrap().remove("typ"))));
    for bad in ["logout+jwt", "dpop+jwt", "garbage", "", "JWE", "id_token"] {
        let verdict = bench.header(|header| header["typ"] = json!(bad));
        assert_eq!(reason(verdict), "a token of this type is not accepted", "{bad}");
    }
    for bad in [json!(1), json!(null), json!(["JWT"])] {
        assert_eq!(reason(bench.header(|header| header["typ"] = bad.clone())), "`typ` is not a string");
    }

    let strict = Bench::with(|config| config.types = vec![TokenType::named("at+jwt")]);
    admitted(strict.header(|_| ()));
    rejected(strict.header(|header| header["typ"] = json!("JWT")));
    rejected(strict.header(|header| drop(header.as_object_mut().unwrap().remove("typ"))));
}

#[test]
fn a_name_that_occurs_twice_is_refused() {
    let bench = Bench::with(|config| config.principal_claim = "email".parse().unwrap());
    let rest = format!(r#""iss":"{}","aud":"gate","exp":{}"#, crate::testing::ISSUER, NOW + 60);
    let header = bench.key.header().to_string();
    let judge = |header: &str, claims: &str| bench.token(&bench.key.token_of(header, claims));
    admitted(judge(&header, &format!(r#"{{{rest},"sub":"a","email":"a@x"}}"#)));
    // J14: the registered ones and the one the principal is named by.
    for twice in [
        r#""sub":"a","sub":"b","email":"a@x""#,
        r#""sub":"a","email":"a@x","email":"b@x""#,
        r#""sub":"a","email":"a@x","iss":"other""#,
        r#""sub":"a","email":"a@x","aud":"gate""#,
        r#""sub":"a","email":"a@x","exp":9999999999"#,
        r#""sub":"a","email":"a@x","\u0065mail":"b@x""#,
        r#""sub":"a","email":"a@x","deep":{"a":1,"a":2}"#,
    ] {
        let verdict = judge(&header, &format!("{{{rest},{twice}}}"));
        assert_eq!(reason(verdict), "the claims are not a plain JSON object", "{twice}");
    }
    // J15.
    let good = format!(r#"{{{rest},"sub":"a","email":"a@x"}}"#);
    for twice in [
        r#"{"alg":"ES256","kid":"k1","alg":"none"}"#,
        r#"{"alg":"ES256","kid":"k1","kid":"k2"}"#,
        r#"{"alg":"ES256"}{}"#,
    ] {
        assert_eq!(reason(judge(twice, &good)), "the header of the token is not a plain JSON object", "{twice}");
    }
}

#[test]
fn a_token_has_one_spelling() {
    // J25.
    let bench = Bench::new();
    let good = bench.key.token(&claims());
    admitted(bench.token(&good));
    let mut parts = good.split('.');
    let (header, payload, signature) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
    let reason_of = |token: String| reason(bench.token(&token));

    assert_eq!(reason_of(format!("{header}.{payload}.")), "the token has no signature");
    assert_eq!(reason_of(format!("{header}.{payload}.AA")), "the signature does not verify");
    // The last of 86 characters carries four bits that must be zero.
    let last = signature.chars().last().unwrap();
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let same_byte = alphabet.chars().nth(alphabet.find(last).unwrap() + 1).unwrap();
    let other = format!("{}{same_byte}", signature.strip_suffix(last).unwrap());
    assert_eq!(reason_of(format!("{header}.{payload}.{other}")), "a part of the token is not base64url");
    let (first, rest) = payload.split_at(10);
    rejected(bench.token(&format!("{header}.{first}A{rest}.{signature}")));
    // What is not base64url at all is no JWT by shape, and nobody else's either.
    for foreign in [format!("{good}="), format!("{good}=="), good.replacen('.', "+.", 1)] {
        assert!(matches!(bench.token(&foreign), Verdict::Abstain));
    }
}

#[test]
fn claims_are_an_object_of_bounded_size_and_depth() {
    // J28.
    let bench = Bench::new();
    let header = bench.key.header().to_string();
    let judge = |claims: &[u8]| bench.token(&bench.key.token_of(&header, claims));
    admitted(judge(claims().to_string().as_bytes()));
    let nested = claims().to_string().replacen('{', &format!("{{\"a\":{}{},", "[".repeat(200), "]".repeat(200)), 1);
    for bad in [&b"[]"[..], b"\"str\"", b"null", b"", b"{", b"{\"iss\":\"\xff\"}", nested.as_bytes()] {
        assert_eq!(reason(judge(bad)), "the claims are not a plain JSON object");
    }
    let with_filler = |bytes: usize| {
        let mut claims = claims();
        claims["filler"] = Value::String("x".repeat(bytes));
        judge(claims.to_string().as_bytes())
    };
    admitted(with_filler(11_000));
    assert_eq!(reason(with_filler(12_300)), "the token is too long");
    assert!(matches!(with_filler(1_000_000), Verdict::Abstain), "the gate refuses such a header before it asks");
    let long = bench.header(|header| header["filler"] = Value::String("x".repeat(2000)));
    assert_eq!(reason(long), "the header of the token is too long");
}
