//! Good files, and what each mistake in one is told.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

use std::time::{Duration, UNIX_EPOCH};

use portcullis_auth::{Expiry, Secret};

use super::{InvalidRecord, KeyFile, KeyRecord};

#[test]
fn a_full_and_a_short_record_are_read() {
    let text = format!(
        "# keys\n[key.AAAAAAAAAAAA]\nhash = \"sha256:{HEX}\"\nprincipal = \"alice\"\n\
         roles = [\"analyst\", \"writer\"]\nexpires = 2027-01-01T02:00:00+02:00\nattributes = {{ region = \"EU\" }}\n\n\
         [key.-_-_-_-_-_-_]\r\nhash = \"sha256:{HEX}\"\r\nprincipal = \"bob\"\r\n"
    );
    let records = KeyFile::parse(&text).unwrap().into_records();
    let alice = records.get("AAAAAAAAAAAA").unwrap();
    assert_eq!(alice.principal, "alice");
    assert_eq!(alice.roles.iter().collect::<Vec<_>>(), ["analyst", "writer"]);
    assert_eq!(alice.attributes.get("region").unwrap(), "EU");
    assert_eq!(alice.expires, Expiry::At(UNIX_EPOCH + Duration::from_secs(1_798_761_600)));
    let bob = records.get("-_-_-_-_-_-_").unwrap();
    assert!(bob.roles.is_empty() && bob.attributes.is_empty() && bob.expires == Expiry::Never);
    assert!(KeyFile::parse("").unwrap().is_empty());
}

#[test]
fn every_mistake_names_its_line_and_key() {
    let good = format!("[key.AAAAAAAAAAAA]\nhash = \"sha256:{HEX}\"\nprincipal = \"alice\"\n");
    assert_eq!(KeyFile::parse(&good).unwrap().len(), 1);

    for (more, expected) in [
        ("role = [\"x\"]", "line 4: `key.AAAAAAAAAAAA.role` is not known"),
        ("roles = \"x\"", "line 4: `key.AAAAAAAAAAAA.roles` must be a list of different strings"),
        ("roles = [1]", "line 4: `key.AAAAAAAAAAAA.roles` must be a list of different strings"),
        ("roles = [\"x\",\n\"x\"]", "line 4: `key.AAAAAAAAAAAA.roles` must be a list of different strings"),
        ("roles = [\"\"]", "line 1: `key.AAAAAAAAAAAA` is not usable: role is empty"),
        ("attributes = 1", "line 4: `key.AAAAAAAAAAAA.attributes` must be a table"),
        ("attributes = { a = 1 }", "line 4: `key.AAAAAAAAAAAA.attributes` must be a table of strings"),
        ("[keys]", "line 4: `keys` is not known; keys are `[key.<id>]`"),
        ("[key.short]", "line 4: `key` holds an id that is not 12 letters, digits, `-` or `_`"),
        ("[key.BBBBBBBBBBBB]", "line 4: `key.BBBBBBBBBBBB` lacks its `hash`"),
        ("\n[key.BBBBBBBBBBBB.roles]\nx = 1", "line 5: `key.BBBBBBBBBBBB.roles` must be a list of different strings"),
        ("[key.AAAAAAAAAAAA]", "line 4: duplicate key"),
        ("principal = \"eve\"", "line 4: duplicate key"),
    ] {
        check(&format!("{good}{more}\n"), expected);
    }
    for date in
        ["2027-01-01", "2027-01-01T00:00:00", "00:00:00", "\"2027-01-01T00:00:00Z\"", "1969-12-31T23:59:59Z", "1"]
    {
        check(
            &format!("{good}expires = {date}\n"),
            "line 4: `key.AAAAAAAAAAAA.expires` must be a date and time with an offset, such as 2027-01-01T00:00:00Z, \
             and not before 1970",
        );
    }
    let hash = "line 2: `key.AAAAAAAAAAAA.hash` must be `sha256:` and 64 hexadecimal digits";
    check("[key.AAAAAAAAAAAA]\nhash = \"sha256:12\"\nprincipal = \"a\"", hash);
    check(&format!("[key.AAAAAAAAAAAA]\nhash = \"{HEX}\"\nprincipal = \"a\""), hash);
    check(&format!("[key.AAAAAAAAAAAA]\nhash = \"sha512:{HEX}\"\nprincipal = \"a\""), hash);
    check("[key.AAAAAAAAAAAA]\nhash = 12\n", "line 2: `key.AAAAAAAAAAAA.hash` must be a string");
    check(
        &format!("\n[key.AAAAAAAAAAAA]\nhash = \"sha256:{HEX}\""),
        "line 2: `key.AAAAAAAAAAAA` lacks its `principal`",
    );
    for (name, problem) in [
        ("", "is empty"),
        ("role:x", "is reserved"),
        ("*", "is reserved"),
        ("a\\u0000b", CONTROL),
        ("\\u202Ea", CONTROL),
    ] {
        let text = format!("[key.AAAAAAAAAAAA]\nhash = \"sha256:{HEX}\"\nprincipal = \"{name}\"");
        check(&text, &format!("line 1: `key.AAAAAAAAAAAA` is not usable: name {problem}"));
    }
    check("key = 1", "line 1: `key` must be a table");
    check(&format!("\u{FEFF}{good}"), "line 1: the file starts with a byte order mark");
    check("[key]\nAAAAAAAAAAAA = 1", "line 2: `key.AAAAAAAAAAAA` must be a table");
}

#[test]
fn a_key_pasted_into_the_wrong_place_does_not_show() {
    let key = format!("pk1.AAAAAAAAAAAA.{SECRET}");
    for text in [
        key.clone(),
        format!("{key} = 1"),
        format!("[{key}]"),
        format!("\"{key}\" = 1"),
        format!("[key.\"{key}\"]"),
        format!("[key.{SECRET}]"),
        format!("[key.AAAAAAAAAAAA]\nhash = \"{key}\""),
        format!("[key.AAAAAAAAAAAA]\nhash = {key}"),
        format!("[key.AAAAAAAAAAAA]\n{SECRET} = 1"),
        format!("[key.AAAAAAAAAAAA]\nhash = \"{key}"),
        format!("[key.AAAAAAAAAAAA]\n\"{key}\" = 1\n\"{key}\" = 1"),
        format!("[key.AAAAAAAAAAAA]\nprincipal = [\"{key}\"]"),
    ] {
        let refused = KeyFile::parse(&text).unwrap_err();
        let shown = format!("{refused} {refused:?}");
        assert!(!shown.contains(SECRET), "{shown}");
    }
}

#[test]
fn a_record_can_be_made_for_a_key_that_exists() {
    let key = Secret::new(format!("pk1.AAAAAAAAAAAA.{SECRET}"));
    let mut record = KeyRecord::for_key(&key, "alice", &["b", "a"], Expiry::Never).unwrap();
    record.attributes.insert("a key".to_owned(), "a \"value\"".to_owned());
    assert_eq!(record.id(), "AAAAAAAAAAAA");

    let stored = record.to_toml().unwrap();
    let read = KeyFile::parse(&stored).unwrap().into_records().remove("AAAAAAAAAAAA").unwrap();
    assert!(read.hash.matches(&record.hash));
    assert_eq!((read.principal, read.roles, read.attributes), (record.principal, record.roles, record.attributes));

    for bad in ["", "pk1.", "pk1.AAAAAAAAAAAA.short", "ps1.AAAAAAAAAAAA"] {
        let refused = KeyRecord::for_key(&Secret::new(bad), "alice", &[], Expiry::Never).unwrap_err();
        assert_eq!(refused, InvalidRecord::Key);
    }
}

fn check(text: &str, expected: &str) {
    let Err(refused) = KeyFile::parse(text) else { panic!("read:\n{text}") };
    assert_eq!(refused.to_string(), expected, "for\n{text}");
    assert!(expected.starts_with(&format!("line {}:", refused.line())));
    assert!(expected.contains(refused.key()));
}

const HEX: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
const SECRET: &str = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFG";
const CONTROL: &str = "holds a control or bidirectional character";
