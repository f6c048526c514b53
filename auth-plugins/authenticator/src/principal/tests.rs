//! Tests of what may become a principal.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::{Duration, SystemTime};

use super::{Assertion, Expiry, Principal};

#[test]
fn a_usable_assertion_becomes_a_principal() {
    let alice = Principal::assertion(assertion(|_| ())).unwrap();
    assert_eq!(alice.name(), "alice");
    assert_eq!(alice.scheme(), "jwt");
    assert_eq!(alice.roles().iter().collect::<Vec<_>>(), ["analyst"]);
    assert_eq!(alice.attributes().get("region").map(String::as_str), Some("EU"));
    assert_eq!(alice.expires(), Expiry::Never);
    assert_eq!(alice.credential_id(), "jti-1");
    assert_eq!(
        (alice.key().scheme(), alice.key().authority(), alice.key().subject()),
        ("jwt", "https://id.example.com", "a1")
    );
}

#[test]
fn misleading_and_unbounded_assertions_are_refused() {
    check(|_| (), "ok");
    check(|a| a.name = "zoë 王 O'Neill <x@y>".to_owned(), "ok");
    check(|a| a.name = "n".repeat(256), "ok");
    check(|a| a.subject = format!("spiffe://corp/{}", "p".repeat(1000)), "ok");
    check(|a| a.attributes = [("empty".to_owned(), String::new())].into(), "ok");
    check(|a| a.roles = (0..200).map(|i| format!("r{i}")).collect(), "ok");

    check(|a| a.name.clear(), "name is empty");
    check(|a| a.name = "n".repeat(257), "name is too long");
    check(|a| a.name = "é".repeat(129), "name is too long");
    check(|a| a.name = "*".to_owned(), "name is reserved");
    check(|a| a.name = "role:admin".to_owned(), "name is reserved");
    check(|a| a.scheme = "", "scheme is empty");
    check(|a| a.authority.clear(), "authority is empty");
    check(|a| a.subject.clear(), "subject is empty");
    check(|a| a.credential_id.clear(), "credential id is empty");
    check(|a| a.roles = ["".to_owned()].into(), "role is empty");
    check(|a| a.attributes = [(String::new(), "x".to_owned())].into(), "attribute name is empty");
    check(|a| a.roles = (0..201).map(|i| format!("r{i}")).collect(), "roles are too many");
    check(|a| a.roles = (0..70).map(|i| format!("{i:0>250}")).collect(), "roles are too many");
    check(|a| a.attributes = [("big".to_owned(), "x".repeat(17_000))].into(), "attributes are too many");

    for bad in
        ["a\0b", "a\nb", "a\u{7f}", "a\u{85}b", "a\u{202e}nimda", "\u{2066}a", "a\u{200f}", "a\u{2028}b", "\u{feff}a"]
    {
        let text = "holds a control or bidirectional character";
        check(|a| a.name = bad.to_owned(), &format!("name {text}"));
        check(|a| a.authority = bad.to_owned(), &format!("authority {text}"));
        check(|a| a.subject = bad.to_owned(), &format!("subject {text}"));
        check(|a| a.credential_id = bad.to_owned(), &format!("credential id {text}"));
        check(|a| a.roles = [bad.to_owned()].into(), &format!("role {text}"));
        check(|a| a.attributes = [("k".to_owned(), bad.to_owned())].into(), &format!("attribute value {text}"));
    }
}

#[test]
fn the_same_subject_of_another_authority_is_somebody_else() {
    let alice = Principal::assertion(assertion(|_| ())).unwrap();
    let renamed = Principal::assertion(assertion(|a| a.name = "Alice B.".to_owned())).unwrap();
    assert_eq!(alice.key(), renamed.key(), "a display name is no identity");
    for other in [
        assertion(|a| a.authority = "https://evil.example.com".to_owned()),
        assertion(|a| a.subject = "a2".to_owned()),
        assertion(|a| a.scheme = "mtls"),
    ] {
        assert_ne!(alice.key(), Principal::assertion(other).unwrap().key());
    }
}

#[test]
fn an_expiry_has_passed_at_its_own_time() {
    let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let second = Duration::from_secs(1);
    assert!(!Expiry::At(noon).passed(noon - second));
    assert!(Expiry::At(noon).passed(noon));
    assert!(Expiry::At(noon).passed(noon + second));
    assert!(!Expiry::Never.passed(noon));
}

#[test]
fn the_earlier_expiry_wins() {
    let (noon, one) = (SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + Duration::from_secs(3600));
    for (a, b) in [(Expiry::At(noon), Expiry::At(one)), (Expiry::At(noon), Expiry::Never)] {
        assert_eq!(a.earlier(b), Expiry::At(noon));
        assert_eq!(b.earlier(a), Expiry::At(noon));
    }
    assert_eq!(Expiry::Never.earlier(Expiry::Never), Expiry::Never);
}

#[test]
fn attribute_values_do_not_show_in_debug() {
    let alice = Principal::assertion(assertion(|a| {
        a.attributes.insert("mail".to_owned(), "alice@example.com".to_owned());
    }))
    .unwrap();
    let shown = format!("{alice:?}");
    assert!(shown.contains("mail") && shown.contains("analyst"), "{shown}");
    assert!(!shown.contains("alice@example.com"), "{shown}");
}

fn check(change: impl FnOnce(&mut Assertion), expected: &str) {
    let outcome = match Principal::assertion(assertion(change)) {
        Ok(_) => "ok".to_owned(),
        Err(invalid) => invalid.to_string(),
    };
    assert_eq!(outcome, expected);
}

fn assertion(change: impl FnOnce(&mut Assertion)) -> Assertion {
    let mut assertion = Assertion {
        name: "alice".to_owned(),
        scheme: "jwt",
        authority: "https://id.example.com".to_owned(),
        subject: "a1".to_owned(),
        roles: ["analyst".to_owned()].into(),
        attributes: [("region".to_owned(), "EU".to_owned())].into(),
        expires: Expiry::Never,
        credential_id: "jti-1".to_owned(),
    };
    change(&mut assertion);
    assertion
}
