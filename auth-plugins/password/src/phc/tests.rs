//! Good hashes, and what each bad one is told.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

use argon2::Params;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use portcullis_auth::Secret;

use super::{HashError, Memory, Outcome, StoredHash, hash};

#[test]
fn a_new_hash_is_owasps_and_fits_its_password_only() {
    let text = hash(&Secret::new("correct horse")).unwrap();
    assert!(text.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{text}");
    let stored = StoredHash::parse(&text).unwrap();
    assert_eq!(stored.to_string(), text);
    assert_eq!((stored.salt.len(), stored.output.len(), stored.is_weak()), (16, 32, false));

    let mut memory = Memory::default();
    assert_eq!(stored.check(&mut memory, b"correct horse"), Outcome::Fits);
    assert_eq!(stored.check(&mut memory, b"correct hors"), Outcome::Wrong);
}

#[test]
fn two_hashes_of_one_password_differ() {
    let (one, two) = (quick("same"), quick("same"));
    assert!(one.salt != two.salt && one.output != two.output, "the salt is not random");
}

#[test]
fn hashes_of_the_reference_implementation_fit() {
    // From the test vectors of the argon2 reference implementation; the second has two lanes.
    let text = "$argon2id$v=19$m=65536,t=1,p=1$c29tZXNhbHQ$9qWtwbpyPd3vm1rB1GThgPzZ3/ydHL92zKL+15XZypg";
    let mut memory = Memory::default();
    assert_eq!(StoredHash::parse(text).unwrap().check(&mut memory, b"password"), Outcome::Fits);

    let output = BASE64_STANDARD_NO_PAD.decode("bQk8UB/VmZZF4Oo79iDXuL5/0ttZwg2f/5U52iv1cDc").unwrap();
    let lanes = StoredHash { params: params(256, 2, 2), salt: b"somesalt".to_vec(), output };
    assert_eq!(lanes.check(&mut memory, b"password"), Outcome::Fits);
    assert_eq!(lanes.check(&mut memory, b"passwort"), Outcome::Wrong);
}

#[test]
fn every_byte_of_a_long_password_counts() {
    let mut memory = Memory::default();
    // 72 bytes are where bcrypt stops reading, 1024 are what a client may send.
    for len in [1, 64, 71, 72, 73, 128, 1024] {
        let mut password = "p".repeat(len);
        let stored = quick(&password);
        assert_eq!(stored.check(&mut memory, password.as_bytes()), Outcome::Fits, "{len} bytes");
        password.pop();
        assert_eq!(stored.check(&mut memory, format!("{password}q").as_bytes()), Outcome::Wrong, "{len} bytes");
        assert_eq!(stored.check(&mut memory, format!("{password}pp").as_bytes()), Outcome::Wrong, "{len} bytes");
    }
}

#[test]
fn memory_is_used_again_and_holds_nothing_of_the_last_password() {
    let mut memory = Memory::default();
    let (small, large) = (quick("s"), StoredHash::make(&Secret::new("l"), &params(128, 1, 1)).unwrap());
    for (stored, password, blocks) in [(&small, "s", 64), (&large, "l", 128), (&small, "s", 128), (&large, "l", 128)] {
        assert_eq!(stored.check(&mut memory, password.as_bytes()), Outcome::Fits);
        assert_eq!(memory.0.len(), blocks);
        assert!(memory.0.iter().all(|block| block.as_ref().iter().all(|word| *word == 0)), "blocks are left");
    }
}

#[test]
fn a_password_that_cannot_be_sent_is_not_hashed() {
    let refused = |password: &[u8]| hash(&Secret::new(password)).unwrap_err();
    assert!(hash(&Secret::new("é".repeat(512))).is_ok());
    assert_eq!(refused(b""), HashError::Empty);
    assert_eq!(refused("x".repeat(1025).as_bytes()), HashError::TooLong);
    assert_eq!(refused(b"caf\xe9"), HashError::NotText);
    for control in ["secret\n", "secret\r\n", "\tsecret", "se\0cret", "se\u{7f}cret", "se\u{85}cret"] {
        assert_eq!(refused(control.as_bytes()), HashError::ControlCharacter);
    }
}

#[test]
fn what_is_not_the_one_form_is_refused() {
    let good = |numbers: &str| format!("$argon2id$v=19${numbers}${SALT}${OUTPUT}");
    for numbers in ["m=7168,t=1,p=1", "m=262144,t=10,p=4", "m=19456,t=2,p=1"] {
        let text = good(numbers);
        assert_eq!(StoredHash::parse(&text).unwrap().to_string(), text);
    }

    for (text, problem) in [
        ("", "argon2id"),
        ("hunter2", "argon2id"),
        ("$1$abcdefgh$abcdefghijklmnopqrstuv", "argon2id"),
        ("$2b$12$abcdefghijklmnopqrstuvabcdefghijklmnopqrstuvwxyzabcde", "argon2id"),
        (&good("m=7168,t=1,p=1").replace("argon2id", "argon2i"), "argon2id"),
        (&good("m=7168,t=1,p=1").replace("argon2id", "argon2d"), "argon2id"),
        (&good("m=7168,t=1,p=1").replace("argon2id", "Argon2id"), "argon2id"),
        (&format!(" {}", good("m=7168,t=1,p=1")), "argon2id"),
        (&good("m=7168,t=1,p=1").replace("v=19", "v=16"), "version 19"),
        (&good("m=7168,t=1,p=1").replace("v=19$", ""), "version 19"),
        (&good("m=7168,t=1,p=1").replace("v=19", "v=019"), "version 19"),
        (&good("m=7167,t=1,p=1"), "`m`"),
        (&good("m=0,t=1,p=1"), "`m`"),
        (&good("m=262145,t=1,p=1"), "`m`"),
        (&good("m=4194304,t=1,p=1"), "`m`"),
        (&good("m=4294967295,t=1,p=1"), "`m`"),
        (&good("m=7168,t=0,p=1"), "`t`"),
        (&good("m=7168,t=11,p=1"), "`t`"),
        (&good("m=7168,t=1,p=0"), "`p`"),
        (&good("m=7168,t=1,p=5"), "`p`"),
        (&good("m=4294967296,t=1,p=1"), "parameters"),
        (&good("m=+7168,t=1,p=1"), "parameters"),
        (&good("m=07168,t=1,p=1"), "parameters"),
        (&good("m=7168,t=1,p="), "parameters"),
        (&good("m= 7168,t=1,p=1"), "parameters"),
        (&good("t=1,m=7168,p=1"), "parameters"),
        (&good("m=7168,t=1"), "parameters"),
        (&good("m=7168,t=1,p=1,keyid=AAAA"), "parameters"),
        (&good("m=7168,t=1,p=1,data=AAAA"), "parameters"),
        (&good(""), "parameters"),
        (&good("m=7168,t=1,p=1").replace(SALT, "AAAAAAAAAA"), "salt"),
        (&good("m=7168,t=1,p=1").replace(SALT, ""), "salt"),
        (&good("m=7168,t=1,p=1").replace(SALT, &"A".repeat(88)), "salt"),
        (&good("m=7168,t=1,p=1").replace(SALT, &format!("{SALT}==")), "salt"),
        (&good("m=7168,t=1,p=1").replace(SALT, "AAAAAAAAAAAAAAAAAAAAAB"), "salt"),
        (&good("m=7168,t=1,p=1").replace(SALT, "AAAAAAAA-_AAAAAAAAAAAA"), "salt"),
        (&good("m=7168,t=1,p=1").replace(OUTPUT, &"A".repeat(20)), "output"),
        (&good("m=7168,t=1,p=1").replace(OUTPUT, ""), "output"),
        (&good("m=7168,t=1,p=1").replace(OUTPUT, &"A".repeat(88)), "output"),
        (&format!("{}\n", good("m=7168,t=1,p=1")), "output"),
        (&format!("{}$", good("m=7168,t=1,p=1")), "nothing else"),
        (&good("m=7168,t=1,p=1").replace(&format!("${OUTPUT}"), ""), "nothing else"),
    ] {
        let Err(told) = StoredHash::parse(text) else { panic!("read: {text}") };
        assert!(told.contains(problem), "{text}: {told}");
    }
}

#[test]
fn what_costs_less_than_owasp_asks_for_is_weak() {
    let is_weak = |m, t| {
        let text = format!("$argon2id$v=19$m={m},t={t},p=1${SALT}${OUTPUT}");
        StoredHash::parse(&text).unwrap().is_weak()
    };
    for (m, t) in [(47104, 1), (19456, 2), (12288, 3), (9216, 4), (7168, 5), (262_144, 10)] {
        assert!(!is_weak(m, t), "m={m},t={t}");
    }
    for (m, t) in [(7168, 1), (7168, 4), (19456, 1)] {
        assert!(is_weak(m, t), "m={m},t={t}");
    }
}

#[test]
fn a_hash_does_not_show_in_debug() {
    let stored = quick("secret");
    let text = stored.to_string();
    let salt = text.split('$').nth(4).unwrap();
    assert!(!format!("{stored:?}").contains(salt));
}

fn quick(password: &str) -> StoredHash {
    StoredHash::make(&Secret::new(password), &params(64, 1, 1)).unwrap()
}

fn params(m: u32, t: u32, p: u32) -> Params {
    Params::new(m, t, p, None).unwrap()
}

const SALT: &str = "AAAAAAAAAAAAAAAAAAAAAA";
const OUTPUT: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
