//! The `authorization` header, and which scheme claims what it holds.
//!
//! One credential has one reading, a credential that was read is written back as it was, and no two schemes claim it.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step is a finding")]

use std::sync::LazyLock;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use portcullis_auth::{Attempt, Authenticator, Cost, Credential, Expiry, Verdict};
use portcullis_auth_api_key::{ApiKeys, KeyFile, generate};
use portcullis_auth_password::{HashingConfig, Passwords, UserFile};

use crate::input::Input;
use crate::{certificate, judged, jwt};

/// Lines are header values. The choice is how many headers there are: the first line is always one.
pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let wanted = input.choice(3);
    let mut headers = HeaderMap::new();
    for _ in 0..wanted {
        // What is no header value never reaches the gate.
        if let Ok(value) = HeaderValue::from_bytes(input.line()) {
            headers.append(AUTHORIZATION, value);
        }
    }
    let attempt = Attempt::new(&headers, SystemTime::UNIX_EPOCH);
    let credential = attempt.credential();
    let values: Vec<_> = headers.get_all(AUTHORIZATION).iter().map(HeaderValue::as_bytes).collect();
    match values.as_slice() {
        [] => assert!(matches!(credential, Credential::Absent)),
        [value] => reading(value, &credential),
        _ => assert!(matches!(credential, Credential::Malformed(_)), "one of two credentials was chosen"),
    }
    claims(&attempt, &credential);
}

fn reading(value: &[u8], credential: &Credential<'_>) {
    match credential {
        Credential::Absent => panic!("a header was overlooked"),
        Credential::Basic(basic) => {
            let user = basic.user();
            assert!((1..=256).contains(&user.len()) && !user.contains(':') && !user.chars().any(char::is_control));
            assert!(basic.password().expose().len() <= 1024);
            let pair = [user.as_bytes(), b":", basic.password().expose()].concat();
            let encoded = STANDARD.encode(pair);
            let (word, sent) = value.split_at_checked("Basic ".len()).unwrap();
            assert!(word.eq_ignore_ascii_case(b"Basic "));
            assert_eq!(std::str::from_utf8(sent).unwrap().trim_end_matches('='), encoded.trim_end_matches('='));
            let same = |other: &Credential<'_>| match other {
                Credential::Basic(other) => other.user() == user && other.password().matches(basic.password().expose()),
                Credential::Absent | Credential::Bearer(_) | Credential::Malformed(_) | Credential::Unknown => false,
            };
            assert!(
                read_again(format!("Basic {encoded}").as_bytes(), same),
                "the pair is read in another way when it is written again"
            );
        }
        Credential::Bearer(token) => {
            let token = token.expose();
            let token68 = |b: u8| b.is_ascii_alphanumeric() || b"-._~+/=".contains(&b);
            assert!((1..=32 * 1024).contains(&token.len()) && token.bytes().all(token68));
            let (word, rest) = value.split_at_checked("Bearer ".len()).unwrap();
            assert!(word.eq_ignore_ascii_case(b"Bearer ") && rest == token.as_bytes());
        }
        Credential::Malformed(why) => assert!(!why.is_empty()),
        Credential::Unknown => {
            let word = value.split(|byte| *byte == b' ').next().unwrap();
            assert!(!word.eq_ignore_ascii_case(b"bearer") && !word.eq_ignore_ascii_case(b"basic"));
        }
    }
    // Long enough not to be a word of ours.
    if let Some(sent) = value.get(7..).and_then(|sent| std::str::from_utf8(sent).ok()).filter(|sent| sent.len() > 40) {
        assert!(!format!("{credential:?}").contains(sent), "the credential shows");
    }
}

fn read_again(value: &[u8], same: impl Fn(&Credential<'_>) -> bool) -> bool {
    let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_bytes(value).unwrap())]);
    same(&Attempt::new(&headers, SystemTime::UNIX_EPOCH).credential())
}

/// Nobody is let in, and what one scheme claims no other does.
fn claims(attempt: &Attempt<'_>, credential: &Credential<'_>) {
    let schemes: [&dyn Authenticator; 3] = [&*KEYS, &*jwt::SCHEME, &*certificate::SCHEME];
    let verdicts = schemes.map(|scheme| judged(scheme, attempt));
    let mut claimed = 0_usize;
    for verdict in verdicts {
        match verdict {
            Verdict::Abstain => (),
            Verdict::Admit(_) => panic!("a stranger was let in"),
            Verdict::Reject(_) => claimed = claimed.saturating_add(1),
        }
    }
    match credential {
        // To judge one is to hash it, which is not what is fuzzed here.
        Credential::Basic(_) => {
            assert_eq!(claimed, 0, "another scheme claims a user and a password");
            assert_eq!(PASSWORDS.cost(attempt), Cost::Dear);
        }
        Credential::Bearer(_) => {
            assert!(claimed <= 1, "two schemes claim one token");
            assert!(matches!(judged(&*PASSWORDS, attempt), Verdict::Abstain));
        }
        Credential::Absent | Credential::Malformed(_) | Credential::Unknown => {
            assert_eq!(claimed, 0, "a scheme claims what is no credential of its own");
            assert!(matches!(judged(&*PASSWORDS, attempt), Verdict::Abstain));
        }
    }
}

static KEYS: LazyLock<ApiKeys> = LazyLock::new(|| {
    // Random, but no input can hit it.
    let record = generate("somebody", &[], Expiry::Never).unwrap().record;
    ApiKeys::new("keys", KeyFile::parse(&record).unwrap())
});

static PASSWORDS: LazyLock<Passwords> =
    LazyLock::new(|| Passwords::new("staff", UserFile::parse("").unwrap(), HashingConfig::default()).unwrap());
