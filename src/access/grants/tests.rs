//! What grants and locations mean, rule by rule, and against a naive evaluation of the same rules.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed step fails the test")]

use std::collections::{BTreeMap, BTreeSet};

use portcullis_auth::{Access, Action, Assertion, Authorizer, Decision, Expiry, Principal, Reach, Rows, TableName};
use url::Url;

use crate::access::{CatalogDecides, Grants, SharedGrants};
use crate::config::{Allow, Format, Grant, Grantee, Location, NonEmpty, RowRule, Table};

#[test]
fn without_a_grant_there_is_no_table() {
    let grants = Grants::new(vec![grant("user:alice", "sales.public.orders", "select")], Vec::new());
    assert_eq!(of(&grants, &alice(), ORDERS), Access::to([Action::Select]));
    assert!(of(&grants, &principal("bob", &["alice"]), ORDERS).is_none());
    assert!(of(&grants, &alice(), "sales.public.order").is_none());
    assert!(of(&Grants::default(), &alice(), ORDERS).is_none());
}

#[test]
fn a_grant_is_to_everybody_a_role_or_a_user() {
    for (to, alice_may, bob_may) in [
        ("*", 1, 1),
        ("role:analyst", 1, 0),
        ("role:writer", 1, 0),
        ("role:Analyst", 0, 0),
        ("role:alice", 0, 0),
        ("role:*", 0, 0),
        ("user:alice", 1, 0),
        ("user:Alice", 0, 0),
        ("user:analyst", 0, 0),
        ("role:nobody user:bob", 0, 1),
        ("user:bob user:alice", 1, 1),
    ] {
        let grants = Grants::new(vec![grant(to, ORDERS, "select")], Vec::new());
        for (who, may) in [(alice(), alice_may), (principal("bob", &[]), bob_may)] {
            assert_eq!(!of(&grants, &who, ORDERS).is_none(), may == 1, "{to}: {who:?}");
        }
    }
}

#[test]
fn actions_add_up() {
    let grants = Grants::new(
        vec![
            grant("role:analyst", "sales.*.*", "select"),
            grant("role:writer", "*.public.*", "insert delete"),
            grant("user:alice", ORDERS, "drop"),
            grant("user:bob", "*", "update"),
        ],
        Vec::new(),
    );
    let expected = [Action::Select, Action::Insert, Action::Delete, Action::Drop];
    assert_eq!(of(&grants, &alice(), ORDERS), Access::to(expected));
    let all = Grants::new(vec![grant("*", "*", "all")], Vec::new());
    assert_eq!(of(&all, &alice(), ORDERS), Access::to(Action::ALL));
}

#[test]
fn row_filters_widen_each_other_and_a_grant_without_one_lifts_them() {
    let eu = || grant("*", "sales.*.*", "select").on_rows("region = 'EU'");
    let own = || grant("user:alice", ORDERS, "select insert").on_rows("owner = current_user()");
    let lifting = || grant("role:analyst", "*.*.orders", "select");
    let rows = |rules: Vec<Grant>| of(&Grants::new(rules, Vec::new()), &alice(), ORDERS).rows().clone();
    let any_of = |texts: &[&str]| Rows::AnyOf(texts.iter().map(|text| (*text).to_owned()).collect());

    assert_eq!(rows(vec![eu()]), any_of(&["region = 'EU'"]));
    assert_eq!(rows(vec![eu(), own()]), any_of(&["region = 'EU'", "owner = current_user()"]));
    assert_eq!(rows(vec![eu(), eu()]), any_of(&["region = 'EU'"]));
    for rules in [vec![eu(), own(), lifting()], vec![lifting(), own(), eu()], vec![own(), lifting()]] {
        assert_eq!(rows(rules), Rows::All);
    }
}

#[test]
fn a_grant_to_write_lifts_nothing_of_what_is_read() {
    let read = || grant("*", ORDERS, "select").on_rows("region = 'EU'").masked("email", "'***'");
    let write = || grant("role:writer", ORDERS, "insert update delete create drop");
    for rules in [vec![read(), write()], vec![write(), read()]] {
        let access = of(&Grants::new(rules, Vec::new()), &alice(), ORDERS);
        assert!(Action::ALL.into_iter().all(|action| access.allows(action)));
        assert_eq!(*access.rows(), Rows::AnyOf(BTreeSet::from(["region = 'EU'".to_owned()])));
        assert_eq!(access.masks().keys().collect::<Vec<_>>(), ["email"]);
    }
    // Who may only write may not read a row.
    let access = of(&Grants::new(vec![write()], Vec::new()), &alice(), ORDERS);
    assert!(!access.is_none() && !access.allows(Action::Select));
    assert_eq!(*access.rows(), Rows::AnyOf(BTreeSet::new()));
}

#[test]
fn each_action_has_the_rows_of_the_grants_that_give_it() {
    let grants = Grants::new(
        vec![
            grant("*", ORDERS, "select"),
            grant("role:writer", ORDERS, "insert delete").on_rows("region = 'EU'"),
            grant("user:alice", ORDERS, "insert").on_rows("region = 'US'"),
        ],
        Vec::new(),
    );
    let rows = |action| grants.rows_for(&alice(), name(ORDERS), action);
    let any_of = |texts: &[&str]| Rows::AnyOf(texts.iter().map(|text| (*text).to_owned()).collect());
    assert_eq!(rows(Action::Select), Rows::All);
    assert_eq!(rows(Action::Insert), any_of(&["region = 'EU'", "region = 'US'"]));
    assert_eq!(rows(Action::Delete), any_of(&["region = 'EU'"]));
    assert_eq!(rows(Action::Update), any_of(&[]), "not granted");
}

#[test]
fn a_column_is_masked_when_every_grant_that_gives_it_masks_it() {
    let masks = |rules: Vec<Grant>| {
        of(&Grants::new(rules, Vec::new()), &alice(), ORDERS).masks().clone().into_iter().collect::<Vec<_>>()
    };
    let both = || grant("*", "sales.*.*", "select").masked("email", "'***'").masked("phone", "NULL");
    let email = || grant("role:analyst", "*", "select").masked("email", "'***'");
    let pair = |column: &str, mask: &str| (column.to_owned(), mask.to_owned());

    assert_eq!(masks(vec![both()]), [pair("email", "'***'"), pair("phone", "NULL")]);
    for rules in [vec![both(), email()], vec![email(), both()]] {
        assert_eq!(masks(rules), [pair("email", "'***'")]);
    }
    assert_eq!(masks(vec![both(), email(), grant("user:alice", ORDERS, "select")]), []);
    assert_eq!(masks(vec![both(), grant("user:bob", ORDERS, "select")]).len(), 2, "it is not to alice");
}

#[test]
fn masks_that_disagree_show_nothing() {
    let mask = |to: &str, with: &str| grant(to, ORDERS, "select").masked("email", with);
    let (one, other, third) = (mask("*", "'a'"), mask("role:analyst", "'b'"), mask("user:alice", "'a'"));
    for rules in [[&one, &other, &third], [&other, &one, &third], [&third, &one, &other]] {
        let grants = Grants::new(rules.into_iter().cloned().collect(), Vec::new());
        assert_eq!(of(&grants, &alice(), ORDERS).masks()["email"], "NULL");
    }
}

#[test]
fn a_location_is_reached_below_the_prefix_of_a_rule() {
    let grants = Grants::new(
        Vec::new(),
        vec![
            location("s3://lake/scratch/", "role:analyst", Allow::ReadWrite),
            location("file:///srv/in/", "*", Allow::Read),
            location("file:///srv/out/", "user:bob user:alice", Allow::Write),
        ],
    );
    let decide = |who: &Principal, at: &str, reach| grants.location(who, at, reach) == Decision::Allow;
    for (at, reads, writes) in [
        ("s3://lake/scratch/", 1, 1),
        ("s3://lake/scratch/a/b.parquet", 1, 1),
        ("s3://lake/scratch", 0, 0),
        ("s3://lake/scratch2/a", 0, 0),
        ("s3://lake/", 0, 0),
        ("s3://lake2/scratch/a", 0, 0),
        ("s3://other/s3://lake/scratch/", 0, 0),
        ("file:///srv/in/a.csv", 1, 0),
        ("file:///srv/out/a.csv", 0, 1),
        ("file:///srv/in/../key", 0, 0),
        ("file:///srv/in/./a", 0, 0),
        ("file:///srv/in/%2e%2E/key", 0, 0),
        ("file:///srv/in/..%2Fkey", 0, 0),
        ("file:///srv/in/a\\..\\key", 0, 0),
        ("file:///srv/in/..a/b...", 1, 0),
        ("file:///srv/in/100%25.csv", 1, 0),
        ("", 0, 0),
    ] {
        assert_eq!(decide(&alice(), at, Reach::Read), reads == 1, "read {at}");
        assert_eq!(decide(&alice(), at, Reach::Write), writes == 1, "write {at}");
    }
    assert!(!decide(&principal("carol", &[]), "s3://lake/scratch/a", Reach::Read));
    assert!(!decide(&principal("carol", &[]), "file:///srv/out/a", Reach::Write));
    assert!(decide(&principal("carol", &[]), "file:///srv/in/a", Reach::Read));
}

#[test]
fn an_embedders_catalog_decides_what_is_read_and_nothing_else() {
    let access = CatalogDecides.table(&alice(), name(ORDERS));
    assert_eq!(access, Access::to([Action::Select]));
    for reach in [Reach::Read, Reach::Write] {
        assert_eq!(CatalogDecides.location(&alice(), "file:///srv/in/a", reach), Decision::Deny);
    }
}

#[test]
fn grants_are_replaced_as_a_whole() {
    let first = || {
        let to_read = grant("*", ORDERS, "select").masked("email", "'***'");
        Grants::new(vec![to_read], vec![location("file:///srv/in/", "*", Allow::Read)])
    };
    let shared = SharedGrants::new(first());
    let held = shared.present();
    assert!(!shared.table(&alice(), name(ORDERS)).is_none());
    assert_eq!(shared.location(&alice(), "file:///srv/in/a", Reach::Read), Decision::Allow);
    shared.replace(Grants::default());
    assert!(shared.table(&alice(), name(ORDERS)).is_none());
    assert_eq!(shared.location(&alice(), "file:///srv/in/a", Reach::Read), Decision::Deny);
    assert!(!held.table(&alice(), name(ORDERS)).is_none(), "who has begun with the old ones goes on with them");

    // Nobody ever sees the actions of one policy with the masks of another.
    let wide = || Grants::new(vec![grant("*", ORDERS, "all")], Vec::new());
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for _ in 0..500 {
                shared.replace(first());
                shared.replace(wide());
            }
        });
        for _ in 0..5000 {
            let access = shared.table(&alice(), name(ORDERS));
            let masked = access.masks().contains_key("email");
            assert!(access.is_none() || masked != access.allows(Action::Drop), "{access:?}");
        }
    });
}

#[test]
fn grants_on_nothing_are_named() {
    let table = |catalog: &str, name: &str| Table {
        catalog: catalog.to_owned(),
        schema: "public".to_owned(),
        name: name.to_owned(),
        location: Url::parse("file:///srv/data/").unwrap(),
        format: Format::Csv,
        partitions: Vec::new(),
        options: BTreeMap::new(),
        line: 1,
    };
    let on = [ORDERS, "sales.*.*", "*", "sale.public.orders", "sales.public.order", "archive.*.orders", "*.*.old"];
    let grants = on.iter().enumerate().map(|(line, on)| Grant { line, ..grant("*", on, "select") });
    let grants = Grants::new(grants.collect(), Vec::new());
    assert_eq!(
        grants.of_nothing(&[table("sales", "orders"), table("archive", "old")]),
        [
            "line 3: the grant on `sale.public.orders` is on no configured table",
            "line 4: the grant on `sales.public.order` is on no configured table",
            "line 5: the grant on `archive.*.orders` is on no configured table",
        ]
    );
    assert_eq!(grants.of_nothing(&[]).len(), on.len());
}

#[test]
fn a_listing_looks_at_the_grants_that_apply_and_at_no_others() {
    let mut rules: Vec<Grant> = (0..5000).map(|at| grant("*", &format!("lake.public.t{at}"), "select")).collect();
    rules.extend((0..5000).map(|at| grant(&format!("user:u{at} role:r{at}"), "lake.*.*", "insert")));
    let grants = Grants::new(rules, Vec::new());
    let someone = principal("u7", &["r8", "r9", "unknown"]);
    let mut seen = 0_usize;
    for at in 0..5000 {
        let table = format!("t{at}");
        let name = TableName { catalog: "lake", schema: "public", table: &table };
        grants.index.visit(&someone, name, &mut |grant| {
            assert!(grant.on.matches(name));
            seen = seen.saturating_add(1);
        });
    }
    // For each name: its own grant, one by user, two by role.
    assert_eq!(seen, 5000 * 4);
}

#[test]
fn grants_agree_with_a_naive_evaluation() {
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let (mut visible, mut filtered, mut masked) = (0_usize, 0_usize, 0_usize);
    for round in 0..2000 {
        let rules: Vec<Grant> = (0..dice.below(9)).map(|_| dice.grant()).collect();
        let grants = Grants::new(rules.clone(), Vec::new());
        for who in [dice.principal(), dice.principal()] {
            for _ in 0..6 {
                let table = format!("{}.{}.{}", dice.one_of(NAMES), dice.one_of(NAMES), dice.one_of(NAMES));
                let access = of(&grants, &who, &table);
                assert_eq!(access, naive(&rules, &who, name(&table)), "round {round}: {table} {who:?} {rules:#?}");
                for action in Action::ALL {
                    let rows = grants.rows_for(&who, name(&table), action);
                    assert_eq!(rows, naive_rows(&rules, &who, name(&table), action), "round {round}: {action:?}");
                    let none = Rows::AnyOf(BTreeSet::new());
                    assert_eq!(rows == none, !access.allows(action), "round {round}: no row exactly without a grant");
                }
                visible = visible.saturating_add(usize::from(access.allows(Action::Select)));
                filtered = filtered.saturating_add(usize::from(*access.rows() != Rows::All));
                masked = masked.saturating_add(usize::from(!access.masks().is_empty()));
            }
        }
    }
    assert!(
        visible > 1000 && filtered > 1000 && masked > 100,
        "{visible} {filtered} {masked}: the rounds say something"
    );
}

/// The rules word for word, each grant looked at each time.
fn naive(rules: &[Grant], who: &Principal, table: TableName<'_>) -> Access {
    let applying: Vec<&Grant> = rules.iter().filter(|rule| applies(rule, who, table)).collect();
    let access = Access::to(applying.iter().flat_map(|rule| rule.allow.iter().copied()));
    let access = match naive_rows(rules, who, table, Action::Select) {
        Rows::All => access,
        Rows::AnyOf(predicates) => access.only_rows(predicates),
    };
    let reading: Vec<&&Grant> = applying.iter().filter(|rule| rule.allow.contains(&Action::Select)).collect();
    let columns: BTreeSet<&String> = reading.iter().flat_map(|rule| rule.masks.keys()).collect();
    columns.into_iter().fold(access, |access, column| {
        let masks: Vec<Option<&String>> = reading.iter().map(|rule| rule.masks.get(column)).collect();
        match masks[0] {
            _ if masks.iter().any(Option::is_none) => access,
            Some(mask) if masks.iter().all(|other| *other == Some(mask)) => access.masking(column, mask),
            _ => access.masking(column, "NULL"),
        }
    })
}

fn naive_rows(rules: &[Grant], who: &Principal, table: TableName<'_>, action: Action) -> Rows {
    let mut giving = rules.iter().filter(|rule| applies(rule, who, table) && rule.allow.contains(&action));
    if giving.clone().any(|rule| rule.rows == RowRule::All) {
        return Rows::All;
    }
    let predicates = giving.try_fold(BTreeSet::new(), |mut all, rule| match &rule.rows {
        RowRule::All => None,
        RowRule::Where(predicate) => {
            all.insert(predicate.clone());
            Some(all)
        }
    });
    Rows::AnyOf(predicates.unwrap())
}

fn applies(rule: &Grant, who: &Principal, table: TableName<'_>) -> bool {
    let is_to = rule.to.iter().any(|grantee| match grantee {
        Grantee::Everyone => true,
        Grantee::Role(role) => who.roles().iter().any(|has| has == role),
        Grantee::User(user) => user == who.name(),
    });
    // By the text, so that the patterns' own matching is held against something else.
    let parts = [table.catalog, table.schema, table.table];
    let on = rule.on.to_string();
    is_to && on.split('.').zip(parts).all(|(pattern, part)| pattern == "*" || pattern == part)
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap().checked_rem(bound).unwrap()
    }

    fn one_of<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    fn grant(&mut self) -> Grant {
        let to: Vec<&str> =
            (0..=self.below(2)).map(|_| self.one_of(&["*", "role:a", "role:b", "user:x", "user:a"])).collect();
        let mut part = || self.one_of(&["*", "a", "b", "c"]);
        let on = format!("{}.{}.{}", part(), part(), part());
        let allow: Vec<&str> =
            (0..=self.below(3)).map(|_| self.one_of(&["select", "select", "insert", "delete", "drop"])).collect();
        let mut made = grant(&to.join(" "), &on, &allow.join(" "));
        if self.below(3) > 0 {
            made = made.on_rows(self.one_of(&["p", "q"]));
        }
        for column in ["email", "phone"] {
            if self.below(2) > 0 {
                let mask = self.one_of(&["'x'", "'x'", "'x'", "'y'"]);
                made = made.masked(column, mask);
            }
        }
        made
    }

    fn principal(&mut self) -> Principal {
        let roles: Vec<&str> = (0..self.below(4)).map(|_| self.one_of(&["a", "b", "c", "x"])).collect();
        principal(self.one_of(&["x", "y", "a"]), &roles)
    }
}

/// A grant out of words with blanks between them.
fn grant(to: &str, on: &str, allow: &str) -> Grant {
    let actions = allow.split(' ').flat_map(|word| match word {
        "select" => vec![Action::Select],
        "insert" => vec![Action::Insert],
        "update" => vec![Action::Update],
        "delete" => vec![Action::Delete],
        "create" => vec![Action::Create],
        "drop" => vec![Action::Drop],
        _ => Action::ALL.to_vec(),
    });
    Grant {
        to: grantees(to),
        on: on.parse().unwrap(),
        allow: actions.collect(),
        rows: RowRule::All,
        masks: BTreeMap::new(),
        line: 1,
    }
}

impl Grant {
    fn on_rows(self, predicate: &str) -> Self {
        Self { rows: RowRule::Where(predicate.to_owned()), ..self }
    }

    fn masked(mut self, column: &str, mask: &str) -> Self {
        self.masks.insert(column.to_owned(), mask.to_owned());
        self
    }
}

fn location(prefix: &str, to: &str, allow: Allow) -> Location {
    Location { prefix: Url::parse(prefix).unwrap(), to: grantees(to), allow }
}

fn grantees(to: &str) -> NonEmpty<Grantee> {
    let mut all = to.split(' ').map(|word| match word.split_once(':') {
        Some(("role", role)) => Grantee::Role(role.to_owned()),
        Some((_, user)) => Grantee::User(user.to_owned()),
        None => Grantee::Everyone,
    });
    NonEmpty { first: all.next().unwrap(), rest: all.collect() }
}

fn alice() -> Principal {
    principal("alice", &["analyst", "writer"])
}

fn principal(name: &str, roles: &[&str]) -> Principal {
    Principal::assertion(Assertion {
        name: name.to_owned(),
        scheme: "test",
        authority: "test".to_owned(),
        subject: name.to_owned(),
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        attributes: BTreeMap::new(),
        expires: Expiry::Never,
        credential_id: "test".to_owned(),
    })
    .unwrap()
}

fn of(grants: &Grants, who: &Principal, table: &str) -> Access {
    grants.table(who, name(table))
}

fn name(table: &str) -> TableName<'_> {
    let parts: Vec<&str> = table.split('.').collect();
    TableName { catalog: parts[0], schema: parts[1], table: parts[2] }
}

const ORDERS: &str = "sales.public.orders";
const NAMES: &[&str] = &["a", "b", "c", "d"];
