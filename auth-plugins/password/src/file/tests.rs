//! Good files, and what each mistake in one is told.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

use std::time::{Duration, UNIX_EPOCH};

use portcullis_auth::Expiry;

use super::{UserFile, UserRecord};

#[test]
fn a_full_and_a_short_record_are_read() {
    let text = format!(
        "# users\n[user.alice]\npassword = \"{HASH}\"\nroles = [\"analyst\", \"writer\"]\n\
         expires = 2027-01-01T02:00:00+02:00\nattributes = {{ region = \"EU\" }}\n\n\
         [user.\"bob@example.com\"]\r\npassword = '{HASH}'\r\n"
    );
    let file = UserFile::parse(&text).unwrap();
    assert_eq!((file.len(), file.is_empty()), (2, false));
    let records = file.into_records();
    let alice = records.get("alice").unwrap();
    assert_eq!(alice.user, "alice");
    assert_eq!(alice.stored.to_string(), HASH);
    assert_eq!(alice.roles.iter().collect::<Vec<_>>(), ["analyst", "writer"]);
    assert_eq!(alice.attributes.get("region").unwrap(), "EU");
    assert_eq!(alice.expires, Expiry::At(UNIX_EPOCH + Duration::from_secs(1_798_761_600)));
    let bob = records.get("bob@example.com").unwrap();
    assert!(bob.roles.is_empty() && bob.attributes.is_empty() && bob.expires == Expiry::Never);
    assert!(UserFile::parse("").unwrap().is_empty());
}

#[test]
fn names_that_only_look_alike_are_different_users() {
    let names = ["admin", "Admin", "admin ", " admin", "ａdmin", "\u{e9}", "e\u{301}"];
    let text: String = names.iter().map(|name| format!("[user.\"{name}\"]\npassword = \"{HASH}\"\n")).collect();
    let records = UserFile::parse(&text).unwrap().into_records();
    assert_eq!(records.len(), names.len());
    assert!(names.iter().all(|name| records.contains_key(*name)));
}

#[test]
fn every_mistake_names_its_line_and_key() {
    let good = format!("[user.alice]\npassword = \"{HASH}\"\n");
    assert_eq!(UserFile::parse(&good).unwrap().len(), 1);

    for (more, expected) in [
        ("role = [\"x\"]", "line 3: `user.alice.role` is not known"),
        ("roles = \"x\"", "line 3: `user.alice.roles` must be a list of different strings"),
        ("roles = [1]", "line 3: `user.alice.roles` must be a list of different strings"),
        ("roles = [\"x\",\n\"x\"]", "line 3: `user.alice.roles` must be a list of different strings"),
        ("roles = [\"\"]", "line 1: `user.alice` is not usable: role is empty"),
        ("attributes = 1", "line 3: `user.alice.attributes` must be a table"),
        ("attributes = { a = 1 }", "line 3: `user.alice.attributes` must be a table of strings"),
        ("expires = 2027-01-01", EXPIRES),
        ("expires = 2027-01-01T00:00:00", EXPIRES),
        ("expires = \"2027-01-01T00:00:00Z\"", EXPIRES),
        ("expires = 1969-12-31T23:59:59Z", EXPIRES),
        ("[users]", "line 3: `users` is not known; users are `[user.<name>]`"),
        ("[user.bob]", "line 3: `user.bob` lacks its `password`"),
        ("\n[user.bob.roles]\nx = 1", "line 4: `user.bob.roles` must be a list of different strings"),
        // The same user twice, however it is written.
        ("[user.alice]", "line 3: duplicate key"),
        ("[user.\"alice\"]", "line 3: duplicate key"),
        ("[user.'alice']", "line 3: duplicate key"),
        ("[user.\"\\u0061lice\"]", "line 3: duplicate key"),
        ("password = \"x\"", "line 3: duplicate key"),
    ] {
        check(&format!("{good}{more}\n"), expected);
    }
    for garbage in ["garbage", "}", "\"", "= 1", "alice:x", "\u{0}"] {
        let refused = UserFile::parse(&format!("{good}{garbage}")).unwrap_err();
        assert_eq!(refused.line(), 3, "{garbage:?}: {refused}");
    }
    check(&format!("\u{FEFF}{good}"), "line 1: the file starts with a byte order mark");
    check("user = 1", "line 1: `user` must be a table");
    check("[user]\nalice = 1", "line 2: `user.alice` must be a table");
    check("[user.alice]\npassword = 12\n", "line 2: `user.alice.password` must be a string");
}

#[test]
fn a_user_that_nobody_could_be_is_refused() {
    for (name, problem) in [
        ("", "` is not usable: name is empty"),
        ("role:x", "(a name)` holds a colon, which ends the user in a `Basic` credential"),
        ("*", "(a name)` is not usable: name is reserved"),
        ("a\\u0000b", "(a name)` is not usable: name holds a control or bidirectional character"),
        ("\\u202Ea", "(a name)` is not usable: name holds a control or bidirectional character"),
        (&"x".repeat(257), "(a name)` is longer than 256 bytes"),
        (&"é".repeat(129), "(a name)` is longer than 256 bytes"),
    ] {
        check(&format!("\n[user.\"{name}\"]\npassword = \"{HASH}\""), &format!("line 2: `user.{problem}"));
    }
    for name in ["x".repeat(256), "é".repeat(128)] {
        assert_eq!(UserFile::parse(&format!("[user.\"{name}\"]\npassword = \"{HASH}\"")).unwrap().len(), 1);
    }
}

#[test]
fn a_hash_that_is_no_argon2id_or_costs_too_much_is_refused_with_its_line() {
    let form = "must be an argon2id hash, `$argon2id$v=19$…`, as `portcullis hash-password` prints it";
    for (hash, problem) in [
        ("hunter2", form),
        ("", form),
        ("$2b$12$abcdefghijklmnopqrstuvabcdefghijklmnopqrstuvwxyzabcde", form),
        ("$1$abcdefgh$abcdefghijklmnopqrstuv", form),
        (&HASH.replace("argon2id", "argon2i"), form),
        (&HASH.replace("argon2id", "argon2d"), form),
        (&HASH.replace("v=19", "v=16"), "must be of version 19 (`v=19`)"),
        (&HASH.replace("m=19456", "m=4194304"), "must have an `m` from 7168 to 262144 (KiB of memory)"),
        (&HASH.replace("t=2", "t=11"), "must have a `t` from 1 to 10 (passes)"),
        (&HASH.replace("p=1", "p=5"), "must have a `p` from 1 to 4 (lanes)"),
    ] {
        check(
            &format!("[user.alice]\nroles = []\npassword = '{hash}'"),
            &format!("line 3: `user.alice.password` {problem}"),
        );
    }
}

#[test]
fn users_with_weak_hashes_are_named() {
    let weak = HASH.replace("t=2", "t=1");
    let text = format!(
        "[user.zoe]\npassword = \"{weak}\"\n[user.alice]\npassword = \"{HASH}\"\n[user.bob]\npassword = \"{weak}\"\n"
    );
    assert_eq!(UserFile::parse(&text).unwrap().weak(), ["bob", "zoe"]);
}

#[test]
fn a_password_written_into_the_file_does_not_show() {
    for text in [
        SECRET.to_owned(),
        format!("{SECRET} = 1"),
        format!("[{SECRET}]"),
        format!("\"{SECRET}\" = 1"),
        format!("[user.\"{SECRET}\"]"),
        format!("[user.alice]\npassword = \"{SECRET}\""),
        format!("[user.alice]\npassword = {SECRET}"),
        format!("[user.alice]\npassword = \"{SECRET}"),
        format!("[user.alice]\n\"{SECRET}\" = 1"),
        format!("[user.alice]\nroles = [\"{SECRET}\", \"{SECRET}\"]"),
        format!("[user.alice]\npassword = \"{HASH}\"\nroles = [\"{SECRET}\\n\"]"),
    ] {
        let refused = UserFile::parse(&text).unwrap_err();
        let shown = format!("{refused} {refused:?}");
        assert!(!shown.contains(SECRET), "{shown}");
    }
    let salt = HASH.split('$').nth(4).unwrap();
    let file = UserFile::parse(&format!("[user.alice]\npassword = \"{HASH}\"")).unwrap();
    assert!(!format!("{file:?}").contains(salt));
}

impl UserFile {
    /// Users for tests, whatever their hashes cost.
    pub(crate) fn of<const N: usize>(records: [UserRecord; N]) -> Self {
        Self { records: records.into_iter().map(|record| (record.user.clone(), record)).collect() }
    }
}

fn check(text: &str, expected: &str) {
    let Err(refused) = UserFile::parse(text) else { panic!("read:\n{text}") };
    assert_eq!(refused.to_string(), expected, "for\n{text}");
    assert!(expected.starts_with(&format!("line {}:", refused.line())));
    assert!(expected.contains(refused.key()));
}

const HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
// Too long, and of the wrong characters, to be taken for a name.
const SECRET: &str = "correct horse battery staple!";
const EXPIRES: &str = "line 3: `user.alice.expires` must be a date and time with an offset, \
                       such as 2027-01-01T00:00:00Z, and not before 1970";
