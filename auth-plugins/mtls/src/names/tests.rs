//! One spelling for one name, and nothing that reads as another.

use super::canonical;
use crate::rules::Field;

fn check(field: Field, good: &[&str], bad: &[&str]) {
    for name in good {
        assert_eq!(canonical(field, name).as_deref(), Ok(*name));
    }
    for name in bad {
        assert!(canonical(field, name).is_err(), "{name:?}");
    }
}

#[test]
fn a_spiffe_id_has_one_spelling() {
    let long = format!("spiffe://corp/{}", "a".repeat(2000));
    let domain = format!("spiffe://{}/a", "a".repeat(256));
    check(
        Field::Uri,
        &["spiffe://corp/svc/etl", "spiffe://td_1.corp-2.example/ns/A-b/sa/c_d.e", "spiffe://corp/..."],
        &[
            "",
            "spiffe",
            "spiffe:",
            "spiffe:/corp/svc",
            "spiffe:corp/svc",
            "spiffe://",
            "spiffe:///svc",
            "spiffe:////svc",
            "spiffe://corp",
            "spiffe://corp/",
            "spiffe://corp/svc/",
            "spiffe://corp//svc",
            "spiffe://corp/svc/../admin",
            "spiffe://corp/./svc",
            "spiffe://corp/svc/.",
            "spiffe://corp/%2e%2e/admin",
            "spiffe://corp/a%2Fb",
            "spiffe://Corp/svc/etl",
            "SPIFFE://corp/svc/etl",
            "Spiffe://corp/svc/etl",
            "spiffe://corp:443/svc",
            "spiffe://user@corp/svc",
            "spiffe://corp/svc?admin",
            "spiffe://corp/svc#admin",
            "spiffe://corp/svc etl",
            "spiffe://corp/svc\\etl",
            "spiffe://corp/svc~etl",
            "spiffe://corp/svc@etl",
            "spiffe://corp/svc:etl",
            "spiffe://corp/*",
            "spiffe://corp/svc\0",
            "spiffe://corp/svc\n",
            "spiffe://corp/s\u{e9}",
            "spiffe://corp/\u{202e}cte",
            " spiffe://corp/svc",
            &long,
            &domain,
        ],
    );
}

#[test]
fn other_uris_have_one_spelling_too() {
    check(
        Field::Uri,
        &["urn:uuid:7c3", "https://id.corp/users/7", "https://id.corp:8443/u", "tag:corp,2026:x", "x:/a"],
        &[
            ":a",
            "1x:a",
            "Https://id.corp/a",
            "https://ID.corp/a",
            "https://a@b/c",
            "https:///a",
            "urn:",
            "a:b?c",
            "a:b#c",
            "a:b%20",
            "a:/b/../c",
            "a:..",
            "a:{b}",
            "no-scheme",
        ],
    );
}

#[test]
fn a_dns_name_is_in_lower_case_without_wildcards() {
    check(
        Field::Dns,
        &["a", "etl.corp.example", "_x.a-b.c1"],
        &["", ".", "a.", ".a", "a..b", "*.corp", "-a.b", "a-.b", "a b", "a\0b", "a/b", "a@b", "\u{e9}.b", "a:1"],
    );
    assert_eq!(canonical(Field::Dns, "ETL.Corp").as_deref(), Ok("etl.corp"));
    assert!(canonical(Field::Dns, &"a".repeat(64)).is_err());
    assert!(canonical(Field::Dns, &vec!["a"; 128].join(".")).is_err());
}

#[test]
fn an_email_address_keeps_the_case_of_its_local_part_only() {
    check(
        Field::Email,
        &["ada@corp.example", "A.da+x@corp"],
        &[
            "",
            "ada",
            "@corp",
            "ada@",
            "a@b@c",
            "\"a b\"@corp",
            "a b@corp",
            "ada@corp.",
            "ada@*.corp",
            "a*@corp",
            "a\0@corp",
            "\u{e9}@corp",
            "a,b@corp",
            "<a@corp>",
        ],
    );
    assert_eq!(canonical(Field::Email, "Ada@CORP.Example").as_deref(), Ok("Ada@corp.example"));
    assert!(canonical(Field::Email, &format!("{}@corp", "a".repeat(65))).is_err());
}

#[test]
fn a_common_name_is_what_it_looks_like() {
    let long = "a".repeat(251);
    check(
        Field::Cn,
        &["admin", "Ada Lovelace", "x,OU=admin", "x\\,OU=admin", "\u{c9}mile", "*", "a.b@c"],
        &["", " ", " admin", "admin ", "admin\0.evil", "ad\tmin", "a\nb", "\u{202e}nimda", "ad\u{200b}min", &long],
    );
}
