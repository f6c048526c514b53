//! Which names match, what a match gives, and which rules and sets are refused.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use super::*;
use crate::testing::{Ca, san_uri, subject};

fn gives(field: Field, pattern: &str, name: &str, value: &str) -> Option<String> {
    Rule::parse(field, pattern, name).unwrap().name_for(value)
}

#[test]
fn a_pattern_covers_the_whole_name() {
    assert_eq!(gives(Field::Cn, "svc", "a", "svc").as_deref(), Some("a"));
    for other in ["svc-evil", "evil-svc", "sv", "SVC", "svc ", ""] {
        assert_eq!(gives(Field::Cn, "svc", "a", other), None, "{other}");
    }
    let uri = "spiffe://corp/svc/*";
    assert_eq!(gives(Field::Uri, uri, "svc-$1", "spiffe://corp/svc/etl").as_deref(), Some("svc-etl"));
    for other in [
        "spiffe://corp/svc/",
        "spiffe://corp/svc",
        "spiffe://corp/svc/etl/admin",
        "spiffe://corp/svc/a/../b",
        "spiffe://corp.evil/svc/etl",
        "spiffe://evil/svc/etl",
        "spiffe://evil/spiffe://corp/svc/etl",
        "xspiffe://corp/svc/etl",
        "https://corp/svc/etl",
    ] {
        assert_eq!(gives(Field::Uri, uri, "svc-$1", other), None, "{other}");
    }
}

#[test]
fn a_star_stays_in_its_segment() {
    assert_eq!(gives(Field::Dns, "*.corp.example", "$1", "etl.corp.example").as_deref(), Some("etl"));
    for other in ["a.b.corp.example", "corp.example", "etl.corp.example.evil"] {
        assert_eq!(gives(Field::Dns, "*.corp.example", "$1", other), None, "{other}");
    }
    assert_eq!(gives(Field::Email, "*@corp.example", "$1", "ada.l@corp.example").as_deref(), Some("ada.l"));
    assert_eq!(gives(Field::Email, "*@corp.example", "$1", "ada@evil.example"), None);
    assert_eq!(gives(Field::Email, "*@*.example", "$2/$1", "ada@a.b.example").as_deref(), Some("a.b/ada"));
    assert_eq!(gives(Field::Cn, "*", "$1", "x,OU=admin").as_deref(), Some("x,OU=admin"));
    assert_eq!(gives(Field::Cn, "svc-*.x", "$1", "svc-a.x").as_deref(), Some("a"));
    for other in ["svc-.x", "svc-x", "asvc-a.x"] {
        assert_eq!(gives(Field::Cn, "svc-*.x", "$1", other), None, "{other}");
    }
    // What stands before and behind a star may not share a character.
    assert_eq!(gives(Field::Cn, "aba*ba", "x", "ababa"), None);
    assert_eq!(gives(Field::Cn, "aba*ba", "$1", "abaxba").as_deref(), Some("x"));
}

#[test]
fn captures_go_where_they_are_named() {
    let ns = "spiffe://corp/ns/*/sa/job-*";
    let name = "spiffe://corp/ns/prod/sa/job-7";
    assert_eq!(gives(Field::Uri, ns, "$2.$1.$2", name).as_deref(), Some("7.prod.7"));
    assert_eq!(gives(Field::Uri, ns, "$$1-$1", name).as_deref(), Some("$1-prod"));
    assert_eq!(gives(Field::Uri, ns, "$12", name).as_deref(), Some("prod2"), "one digit");
    assert_eq!(gives(Field::Uri, ns, "jobs", name).as_deref(), Some("jobs"), "a name for all of them");
}

#[test]
fn a_rule_that_cannot_be_meant_is_refused() {
    for (field, pattern, name) in [
        (Field::Cn, "", "a"),
        (Field::Cn, "*", ""),
        (Field::Cn, "a*b*c", "$1"),
        (Field::Cn, "**", "$1"),
        (Field::Cn, " a", "a"),
        (Field::Cn, "a\0", "a"),
        (Field::Cn, "a", "$1"),
        (Field::Cn, "*", "$2"),
        (Field::Cn, "*", "$0"),
        (Field::Cn, "*", "$"),
        (Field::Cn, "*", "$x"),
        (Field::Cn, "*", "a\n"),
        (Field::Cn, "*", "*"),
        (Field::Cn, "*", "role:$1"),
        (Field::Uri, "*", "$1"),
        (Field::Uri, "*://corp/a", "$1"),
        (Field::Uri, "spiffe:*", "$1"),
        (Field::Uri, "spiffe://*", "$1"),
        (Field::Uri, "spiffe://*/svc", "$1"),
        (Field::Uri, "spiffe://corp.*/svc", "$1"),
        (Field::Uri, "https://*.corp/svc", "$1"),
        (Field::Uri, "spiffe://corp", "a"),
        (Field::Uri, "spiffe://corp/", "a"),
        (Field::Uri, "spiffe://Corp/*", "$1"),
        (Field::Uri, "spiffe://corp/a/../*", "$1"),
        (Field::Uri, "spiffe://corp/**", "$1"),
        (Field::Uri, "spiffe://corp/*/*/*/*/*/*/*/*/*/*", "$1"),
        (Field::Dns, "*.Corp", "$1"),
        (Field::Dns, "*.corp.", "$1"),
        (Field::Email, "corp.example", "a"),
        (Field::Email, "*@Corp", "$1"),
    ] {
        let problem = Rule::parse(field, pattern, name).unwrap_err().to_string();
        assert!(problem.starts_with(&format!("{{ {} = ", field.name())), "{problem}");
    }
}

#[test]
fn a_wrong_rule_says_which_half_is_wrong() {
    let wrong = |pattern, name| {
        let error = Rule::parse(Field::Uri, pattern, name).unwrap_err();
        (error.part(), error.problem(), error.to_string())
    };
    let (part, problem, shown) = wrong("spiffe://corp/a/../*", "$1");
    assert_eq!((part, problem), (RulePart::Pattern, "holds a dot segment"));
    assert!(shown.ends_with("}: the pattern holds a dot segment"), "{shown}");
    let (part, problem, shown) = wrong("spiffe://corp/*", "$2");
    assert_eq!((part, problem), (RulePart::Name, "has a `$` for a `*` that the pattern has not"));
    assert!(shown.contains("}: the name to give has a `$`"), "{shown}");
}

#[test]
fn roles_and_their_names_are_plain_and_not_too_many() {
    assert_eq!(check_roles("svc-etl", ["writer", "reader"]), Ok(()));
    assert_eq!(check_roles("a", vec!["r"; MAX_ROLES]), Ok(()));
    for (principal, roles, told) in [
        ("", vec!["writer"], "`` is empty"),
        ("a", vec!["writer", ""], "`` is empty"),
        ("a", vec!["writer "], "`writer ` begins or ends with white space"),
        ("a", vec!["r"; MAX_ROLES.saturating_add(1)], "`a` has more than 200 roles"),
    ] {
        assert_eq!(check_roles(principal, roles).unwrap_err().to_string(), told);
    }
}

#[test]
fn what_a_pattern_covers_it_also_meets_and_neither_is_guessed() {
    use pattern::Pattern;

    let patterns = ["a", "ab", "aba", "*", "a*", "*a", "a*a", "ab*", "*b", "b*", "ab*ba", "a*ba", "c*"];
    // Every name of up to seven letters stands for all: no pattern has more than four letters outside its `*`.
    let mut names = vec![String::new()];
    for length in 1..=7 {
        let longer: Vec<_> = names.iter().filter(|name| name.len() + 1 == length).cloned().collect();
        names.extend(longer.iter().flat_map(|name| ["a", "b", "c"].map(|letter| format!("{name}{letter}"))));
    }
    for (one, other) in patterns.iter().flat_map(|one| patterns.map(|other| (*one, other))) {
        let [parsed, against] = [one, other].map(|text| Pattern::parse(Field::Cn, text).unwrap());
        let fits = |pattern: &Pattern, name: &String| pattern.captures(name).is_some();
        let covered = names.iter().filter(|name| fits(&against, name)).all(|name| fits(&parsed, name));
        assert_eq!(parsed.covers(&against), covered, "{one} covers {other}");
        let met = names.iter().any(|name| fits(&against, name) && fits(&parsed, name));
        assert_eq!(parsed.meets(&against), met, "{one} meets {other}");
    }
}

#[test]
fn rules_that_get_in_each_others_way_are_noted() {
    let notes = |rules: &[(Field, &str, &str)]| set(rules).notes();
    let (etl, every) = ((Field::Uri, "spiffe://corp/svc/etl", "loader"), (Field::Uri, "spiffe://corp/svc/*", "svc-$1"));
    assert_eq!(notes(&[every]), Vec::<String>::new());
    assert_eq!(notes(&[every, (Field::Uri, "spiffe://corp/job/*", "job-$1")]), Vec::<String>::new());
    let (one, other) = ("rule 1 (`uri = \"spiffe://corp/svc/*\"`)", "rule 2 (`uri = \"spiffe://corp/svc/etl\"`)");
    assert_eq!(notes(&[every, etl]), [format!("{other} is never reached: {one} fits every name that it fits")]);
    let [(_, exception, _), (_, wide, _)] = [etl, every];
    let told = format!(
        "rule 1 (`uri = \"{exception}\"`) and rule 2 (`uri = \"{wide}\"`) fit some of the same names: the first says \
         who that is"
    );
    assert_eq!(notes(&[etl, every]), [told]);
    // Whoever both fit has one name.
    let fixed = |pattern| (Field::Dns, pattern, "farm");
    assert_eq!(notes(&[fixed("a-*.farm"), fixed("*-b.farm")]), Vec::<String>::new());
    let parts = [(Field::Dns, "a-*.farm", "$1"), (Field::Dns, "*-b.farm", "$1")];
    assert!(matches!(notes(&parts).as_slice(), [note] if note.contains("some of the same names")), "{parts:?}");

    let two_kinds = notes(&[every, (Field::Email, "*@corp.example", "$1"), (Field::Cn, "svc-*", "$1")]);
    let told = "rules read `uri`, `email`: a certificate with several of them is who the first rule that fits says";
    assert_eq!(two_kinds, [told]);
    let told = "rule 1 (`cn = \"*\"`) fits the common name of every certificate of the CAs";
    assert_eq!(notes(&[(Field::Cn, "*", "$1")]), [told]);
    assert!(matches!(notes(&[(Field::Email, "*@*", "$1")]).as_slice(), [note] if note.contains("every certificate")));
    assert!(notes(&[(Field::Email, "*@corp", "$1")]).is_empty());
}

#[test]
fn a_set_that_cannot_be_meant_is_refused() {
    let ca = [Ca::new("CA").der()];
    let any = || vec![Rule::parse(Field::Cn, "*", "$1").unwrap()];
    let new = |principals, roles: &[(&str, &[&str])], cas: &[_]| {
        let roles = roles
            .iter()
            .map(|(name, roles)| (name.to_string(), roles.iter().map(ToString::to_string).collect::<BTreeSet<_>>()));
        Rules::new(principals, roles.collect(), cas, Eku::Required).map(drop)
    };
    assert_eq!(new(any(), &[("a", &["writer"])], &ca), Ok(()));
    assert_eq!(new(Vec::new(), &[], &ca), Err(RulesError::NoRule));
    assert_eq!(new(any(), &[], &[]), Err(RulesError::NoAuthority));
    let [good] = ca.clone();
    assert_eq!(new(any(), &[], &[good, vec![0x30].into()]), Err(RulesError::Authority { number: 2 }));
    let twice = [any(), vec![Rule::parse(Field::Cn, "*", "b").unwrap()]].concat();
    assert_eq!(new(twice, &[], &ca), Err(RulesError::Repeated { rule: 2 }));
    for roles in [&[("", &["writer"][..])][..], &[("a", &[""])], &[("a", &["w\n"])]] {
        assert!(matches!(new(any(), roles, &ca), Err(RulesError::Role { .. })), "{roles:?}");
    }
}

fn set(rules: &[(Field, &str, &str)]) -> Rules {
    let rules = rules.iter().map(|(field, pattern, name)| Rule::parse(*field, pattern, name).unwrap()).collect();
    Rules::new(rules, BTreeMap::new(), &[Ca::new("CA").der()], Eku::Required).unwrap()
}

#[test]
fn the_first_rule_that_matches_decides() {
    let ca = Ca::new("CA");
    let rules = set(&[
        (Field::Uri, "spiffe://corp/svc/etl", "loader"),
        (Field::Uri, "spiffe://corp/svc/*", "svc-$1"),
        (Field::Dns, "*.corp", "host-$1"),
        (Field::Cn, "*", "$1"),
    ]);
    let decide = |leaf: CertificateDer<'_>| rules.decide(&Leaf::parse(&leaf).unwrap()).map(|named| named.name);
    assert_eq!(decide(ca.uri("spiffe://corp/svc/etl")).as_deref(), Ok("loader"));
    assert_eq!(decide(ca.uri("spiffe://corp/svc/web")).as_deref(), Ok("svc-web"));
    assert_eq!(decide(ca.uri("spiffe://evil/svc/web")), Err(Unnamed::NoRule));
    assert_eq!(decide(ca.cn("ada")).as_deref(), Ok("ada"));
    assert_eq!(decide(ca.leaf(|_| ())), Err(Unnamed::NoRule));
    let both = ca.leaf(|params| {
        params.subject_alt_names =
            vec![san_uri("spiffe://evil/svc/web"), rcgen::SanType::DnsName("db.corp".try_into().unwrap())];
    });
    assert_eq!(decide(both).as_deref(), Ok("host-db"), "the list goes on to the next kind");
}

#[test]
fn a_common_name_counts_only_where_no_other_name_is_read() {
    let ca = Ca::new("CA");
    let with = |uri: &str| {
        ca.leaf(|params| {
            params.distinguished_name = subject("admin");
            params.subject_alt_names = vec![san_uri(uri)];
        })
    };
    let (cn, uri) = ((Field::Cn, "*", "$1"), (Field::Uri, "spiffe://corp/svc/*", "svc-$1"));
    for rules in [set(&[uri, cn]), set(&[cn, uri])] {
        let decide = |leaf: CertificateDer<'_>| rules.decide(&Leaf::parse(&leaf).unwrap());
        let bob = decide(with("spiffe://corp/svc/bob")).unwrap();
        assert_eq!((bob.name.as_str(), bob.subject().as_str()), ("svc-bob", "uri:spiffe://corp/svc/bob"));
        assert_eq!(decide(with("spiffe://evil/svc/bob")), Err(Unnamed::NoRule));
        assert!(matches!(decide(with("spiffe://corp/svc/../bob")), Err(Unnamed::Unusable(_))));
        assert_eq!(decide(ca.cn("admin")).unwrap().subject(), "cn:admin");
    }
    let only_cn = set(&[cn]);
    assert_eq!(only_cn.decide(&Leaf::parse(&with("spiffe://evil/x")).unwrap()).unwrap().name, "admin");
}

#[test]
fn a_subject_is_named_by_rules_of_its_kind() {
    let rules = set(&[(Field::Uri, "spiffe://corp/svc/*", "svc-$1"), (Field::Cn, "*", "$1")]);
    assert_eq!(rules.name_of("uri:spiffe://corp/svc/a").as_deref(), Some("svc-a"));
    assert_eq!(rules.name_of("cn:spiffe://corp/svc/a").as_deref(), Some("spiffe://corp/svc/a"));
    for none in ["uri:spiffe://corp/x/a", "dns:a", "ca:a", "cn", ""] {
        assert_eq!(rules.name_of(none), None, "{none}");
    }
}
