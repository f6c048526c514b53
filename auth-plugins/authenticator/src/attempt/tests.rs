//! What clients and attackers put into the `authorization` header, row by row.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::SystemTime;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE};
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use super::{Attempt, Credential};

#[test]
fn no_header_is_no_credential() {
    check_all(&[], "absent");
}

#[test]
fn a_bearer_token_is_read() {
    check("Bearer abc.DEF-1_2~3+4/5==", "bearer abc.DEF-1_2~3+4/5==");
    check("bearer tok", "bearer tok");
    check("BEARER tok", "bearer tok");
    check("Bearer None", "bearer None");
    let jwt = "x".repeat(30 * 1024);
    check(&format!("Bearer {jwt}"), &format!("bearer {jwt}"));
    let longest = "x".repeat(32 * 1024);
    check(&format!("Bearer {longest}"), &format!("bearer {longest}"));
}

#[test]
fn a_bad_bearer_token_is_malformed() {
    check("Bearer tok", "bearer tok");
    check("Bearer", "malformed: the credential is missing");
    check("Bearer ", "malformed: the credential is missing");
    let character = "malformed: the credential holds a character that it must not";
    for bad in [
        "Bearer  tok",
        "Bearer tok ",
        "Bearer tok tok",
        "Bearer tok,",
        "Bearer a,b",
        "Bearer =",
        "Bearer a=b",
        "Bearer {}",
        "Bearer \"tok\"",
        "Bearer tok, Basic YTpi",
        "Bearer tok,Bearer tok",
        "Bearer a:b",
        "Bearer a%20b",
    ] {
        check(bad, character);
    }
    check(&format!("Bearer {}", "x".repeat(32 * 1024 + 1)), "malformed: the header is too long");
    check(&format!("Bearer {}", "x".repeat(100 * 1024)), "malformed: the header is too long");
    check(&format!("Bearer {}=", "x".repeat(32 * 1024)), "malformed: the header is too long");
}

#[test]
fn two_credentials_are_ambiguous() {
    let ambiguous = "malformed: ambiguous: there is more than one credential";
    check_all(&[b"Bearer tok"], "bearer tok");
    check_all(&[b"Bearer tok", b"Bearer tok"], ambiguous);
    check_all(&[b"Bearer tok", b"garbage"], ambiguous);
    check_all(&[b"garbage", b"Bearer tok"], ambiguous);
    check_all(&[b"", b"Bearer tok"], ambiguous);
    check("Negotiate abc, Bearer tok", ambiguous);
    check("Negotiate abc,basic YTpi", ambiguous);
}

#[test]
fn bytes_that_are_not_printable_are_malformed() {
    let unprintable = "malformed: the header holds bytes that are not printable ASCII";
    for bad in [
        &b"Bearer\ttok"[..],
        b"Bearer tok\t",
        b"Bearer t\xffk",
        b"\xe9\xe9\xe9\xe9\xe9",
        "Bearer é".as_bytes(),
        b"Basic \x80",
    ] {
        check_all(&[bad], unprintable);
    }
    check("", "malformed: the scheme word is missing");
    check(" Bearer tok", "malformed: the scheme word is missing");
}

#[test]
fn another_scheme_word_is_left_to_others() {
    for other in [
        "Token abc",
        "Negotiate YTpi",
        "Digest username=\"a\", realm=\"b\"",
        "Bearertok",
        "ps1.abc",
        "Basic:YTpi",
        "Bearer,tok",
    ] {
        check(other, "unknown");
    }
}

#[test]
fn other_places_for_a_credential_are_ignored() {
    let mut headers = HeaderMap::new();
    for name in
        ["auth-token-bin", "authorization-bin", "x-api-key", "cookie", "x-user", "access_token", "proxy-authorization"]
    {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static("Bearer tok"));
    }
    assert_eq!(show(&Attempt::new(&headers, SystemTime::UNIX_EPOCH).credential()), "absent");
    headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer real"));
    assert_eq!(show(&Attempt::new(&headers, SystemTime::UNIX_EPOCH).credential()), "bearer real");
}

#[test]
fn a_basic_credential_is_read_padded_and_unpadded() {
    for (text, expected) in [
        ("alice:secret", "basic alice secret"),
        ("alice:a:b:c", "basic alice a:b:c"),
        ("alice:", "basic alice "),
        ("Alice : x ", "basic Alice   x "),
        ("zoë:pässwörd 王", "basic zoë pässwörd 王"),
        ("ａdmin:x", "basic ａdmin x"),
        ("e\u{301}:x", "basic e\u{301} x"),
        ("a:b", "basic a b"),
        ("a:bc", "basic a bc"),
        ("a:bcd", "basic a bcd"),
    ] {
        check(&format!("Basic {}", BASE64_STANDARD.encode(text)), expected);
        check(&format!("basic {}", BASE64_STANDARD_NO_PAD.encode(text)), expected);
    }
    let (user, password) = ("u".repeat(256), "p".repeat(1024));
    check_basic(format!("{user}:{password}"), &format!("basic {user} {password}"));
}

#[test]
fn a_bad_basic_credential_is_malformed() {
    check("Basic YTpi", "basic a b");
    check("Basic", "malformed: the credential is missing");
    check("Basic ", "malformed: the credential is missing");
    let base64 = "malformed: user and password are not base64";
    // `a:bc` is YTpiYw==, `a:b` is YTpi.
    for bad in ["YTpiYw=", "YTpiYw===", "YTpi=", "YTpi====", "YTpiY", "YTpiYx==", "YTpiYx", "YTp-", "YTp_", "YT.pi"] {
        check(&format!("Basic {bad}"), base64);
    }
    check("Basic YTpi YTpi", "malformed: the credential holds a character that it must not");
    check("Basic YT=pi", "malformed: the credential holds a character that it must not");
    check(&format!("Basic {}", BASE64_URL_SAFE.encode("a:\u{fff}\u{fff}??>>")), base64);

    check_basic(b"a:\xff\xfe".to_vec(), "malformed: user and password are not UTF-8");
    check_basic("alice", "malformed: there is no colon between user and password");
    check_basic(":secret", "malformed: the user is empty");
    check_basic(":", "malformed: the user is empty");
    check_basic(format!("{}:x", "u".repeat(257)), "malformed: the user is too long");
    check_basic(format!("a:{}", "p".repeat(1025)), "malformed: the password is too long");
    for control in ["admin\0x:y", "admin:\0", "a:b\n", "a\r:b", "a:\u{7f}", "a:\u{85}"] {
        check_basic(control, "malformed: user or password hold a control character");
    }
    check(&format!("Basic {}", "A".repeat(4097)), "malformed: the credential is too long");
}

#[test]
fn nothing_that_was_sent_shows_in_debug() {
    let basic = format!("Basic {}", BASE64_STANDARD.encode("sesame-user:sesame-password"));
    for sent in ["Bearer sesame-token", &basic, "Bearer sesame token", "Sesame abc"] {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_str(sent).unwrap());
        headers.insert("pasword", HeaderValue::from_static("sesame"));
        let attempt = Attempt::new(&headers, SystemTime::UNIX_EPOCH);
        let shown = format!("{attempt:?} {:?}", attempt.credential());
        assert!(!shown.to_lowercase().contains("sesame"), "{shown}");
    }
}

#[test]
fn random_headers_never_panic_and_every_reading_keeps_its_promise() {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap() % below
    };
    const PARTS: [&[u8]; 16] = [
        b"Bearer",
        b"Basic",
        b"bearer ",
        b"basic ",
        b" ",
        b"  ",
        b"\t",
        b",",
        b"=",
        b"==",
        b"YTpi",
        b"YTpiYw",
        b".",
        b"\xc3\xa9",
        b"\xff",
        b":",
    ];
    for _ in 0..50_000 {
        let mut value = Vec::new();
        for _ in 0..random(6) {
            match random(PARTS.len() * 2) {
                known if known < PARTS.len() => value.extend_from_slice(PARTS.get(known).unwrap()),
                _ => value.push(u8::try_from(random(256)).unwrap()),
            }
        }
        let Ok(value) = HeaderValue::from_bytes(&value) else { continue };
        let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
        match Attempt::new(&headers, SystemTime::UNIX_EPOCH).credential() {
            Credential::Bearer(token) => {
                assert!(!token.expose().is_empty() && !token.expose().contains([' ', ',', '\t']))
            }
            Credential::Basic(basic) => assert!(!basic.user().is_empty() && !basic.user().contains([':', '\0'])),
            Credential::Malformed(why) => assert!(!why.is_empty()),
            Credential::Unknown => (),
            Credential::Absent => assert!(headers.is_empty(), "a header was lost"),
        }
    }
}

fn check(value: &str, expected: &str) {
    check_all(&[value.as_bytes()], expected);
}

fn check_basic(decoded: impl Into<Vec<u8>>, expected: &str) {
    let decoded = decoded.into();
    check(&format!("Basic {}", BASE64_STANDARD.encode(&decoded)), expected);
    check(&format!("Basic {}", BASE64_STANDARD_NO_PAD.encode(&decoded)), expected);
}

fn check_all(values: &[&[u8]], expected: &str) {
    let mut headers = HeaderMap::new();
    for value in values {
        headers.append(AUTHORIZATION, HeaderValue::from_bytes(value).unwrap());
    }
    let shown = show(&Attempt::new(&headers, SystemTime::UNIX_EPOCH).credential());
    assert!(shown == expected, "{:?} was read as {shown:.80}, not {expected:.80}", headers.get(AUTHORIZATION));
}

fn show(credential: &Credential<'_>) -> String {
    match credential {
        Credential::Absent => "absent".to_owned(),
        Credential::Basic(basic) => {
            format!("basic {} {}", basic.user(), std::str::from_utf8(basic.password().expose()).unwrap())
        }
        Credential::Bearer(token) => format!("bearer {}", token.expose()),
        Credential::Malformed(why) => format!("malformed: {why}"),
        Credential::Unknown => "unknown".to_owned(),
    }
}
