//! What policies give, lift, take away and must not say.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeSet;

use portcullis_auth::{Assertion, Expiry, Rows};

use super::*;

#[test]
fn a_table_without_a_policy_does_not_exist() {
    assert!(access(READ_ORDERS, &user("ann"), "orders").allows(Action::Select));
    for (policies, who, table) in [("", "ann", "orders"), (READ_ORDERS, "bob", "orders"), (READ_ORDERS, "ann", "items")]
    {
        assert!(access(policies, &user(who), table).is_none(), "{policies} {who} {table}");
    }
}

#[test]
fn a_permit_gives_its_actions_and_no_others() {
    let policies = r#"permit(principal == User::"ann", action in [Action::"insert", Action::"drop"],
        resource == Table::"sales.public.orders");"#;
    let access = access(policies, &user("ann"), "orders");
    let allowed: Vec<Action> = Action::ALL.into_iter().filter(|action| access.allows(*action)).collect();
    assert_eq!(allowed, [Action::Drop, Action::Insert]);
    assert_eq!(*access.rows(), Rows::AnyOf(BTreeSet::new()), "who may not read is shown no row");
}

#[test]
fn a_forbid_overrides_every_permit() {
    let forbid = r#"forbid(principal, action == Action::"select", resource == Table::"sales.public.orders")
        when { principal in Role::"intern" };"#;
    let policies = format!(r#"permit(principal == User::"ann", action, resource); {READ_ORDERS} {forbid}"#);
    assert!(access(&policies, &user("ann"), "orders").allows(Action::Select));
    let intern = access(&policies, &with("ann", ["intern"], []), "orders");
    assert!(intern.allows(Action::Insert) && !intern.allows(Action::Select));
}

#[test]
fn a_role_is_a_parent_of_the_principal() {
    let policies = r#"permit(principal in Role::"analyst", action == Action::"select", resource);"#;
    assert!(access(policies, &with("ann", ["analyst", "staff"], []), "orders").allows(Action::Select));
    assert!(access(policies, &with("ann", ["staff"], []), "orders").is_none());
    assert!(access(policies, &user("analyst"), "orders").is_none(), "a name is no role");
}

#[test]
fn schema_and_catalog_are_parents_of_a_table() {
    for parent in [r#"Schema::"sales.public""#, r#"Catalog::"sales""#] {
        let gate = gate(&format!(r#"permit(principal, action == Action::"select", resource in {parent});"#));
        assert!(gate.table(&user("ann"), ORDERS).allows(Action::Select), "{parent}");
        assert!(gate.table(&user("ann"), TableName { catalog: "hr", ..ORDERS }).is_none(), "{parent}");
    }
    let gate = gate(r#"permit(principal, action == Action::"select", resource in Schema::"sales.public");"#);
    assert!(gate.table(&user("ann"), TableName { schema: "private", ..ORDERS }).is_none());
}

#[test]
fn a_dot_in_a_name_makes_it_no_other_name() {
    let (in_schema, in_table) =
        (TableName { catalog: "a", schema: "b.c", table: "d" }, TableName { catalog: "a", schema: "b", table: "c.d" });
    let gate = gate(r#"permit(principal, action == Action::"select", resource == Table::"a.\"b.c\".d");"#);
    assert!(gate.table(&user("ann"), in_schema).allows(Action::Select));
    assert!(gate.table(&user("ann"), in_table).is_none());
    assert!(gate.table(&user("ann"), TableName { schema: "\"b.c\"", ..in_schema }).is_none());
}

#[test]
fn attributes_of_the_principal_are_tags() {
    let policies = r#"permit(principal, action == Action::"select", resource)
        when { principal.hasTag("team") && principal.getTag("team") == "emea" };"#;
    assert!(access(policies, &with("ann", [], [("team", "emea")]), "orders").allows(Action::Select));
    assert!(access(policies, &with("ann", [], [("team", "apac")]), "orders").is_none());
    assert!(access(policies, &user("ann"), "orders").is_none());
}

#[test]
fn an_identity_of_another_authority_can_be_told_apart() {
    let policies = r#"permit(principal == User::"ann", action == Action::"select", resource)
        when { principal.scheme == "test" && principal.authority == "here" && principal.subject == "ann" };"#;
    assert!(access(policies, &user("ann"), "orders").allows(Action::Select));
    assert!(access(&policies.replace("here", "there"), &user("ann"), "orders").is_none());
}

#[test]
fn rows_of_several_policies_are_united() {
    let eu = r#"@rows("region = 'EU'") permit(principal, action == Action::"select", resource);"#;
    let own = r#"@rows("owner = current_user()") permit(principal, action == Action::"select", resource)
        when { principal in Role::"seller" };"#;
    let policies = format!("{eu} {own}");
    assert_eq!(*access(&policies, &user("ann"), "orders").rows(), any_of(["region = 'EU'"]));
    let seller = with("ann", ["seller"], []);
    assert_eq!(*access(&policies, &seller, "orders").rows(), any_of(["region = 'EU'", "owner = current_user()"]));
    assert_eq!(*access(&format!("{policies} {READ_ORDERS}"), &seller, "orders").rows(), Rows::All);
}

#[test]
fn a_permit_to_write_lifts_nothing_that_hides() {
    let reading = r#"@rows("a") @mask_email("NULL") permit(principal, action == Action::"select", resource);"#;
    let writing = r#"permit(principal, action == Action::"insert", resource);"#;
    let access = access(&format!("{reading} {writing}"), &user("ann"), "orders");
    assert!(access.allows(Action::Insert));
    assert_eq!(*access.rows(), any_of(["a"]));
    assert_eq!(masks(&access), [("email", "NULL")]);
}

#[test]
fn a_column_is_masked_if_every_policy_masks_it() {
    let both = r#"@mask_email("'***'") @mask_Phone("NULL") permit(principal, action == Action::"select", resource);"#;
    let email = r#"@mask_email("'***'") permit(principal, action == Action::"select", resource)
        when { principal in Role::"caller" };"#;
    let caller = with("ann", ["caller"], []);
    let policies = format!("{both} {email}");
    assert_eq!(masks(&access(&policies, &user("ann"), "orders")), [("Phone", "NULL"), ("email", "'***'")]);
    assert_eq!(masks(&access(&policies, &caller, "orders")), [("email", "'***'")]);
    assert_eq!(masks(&access(&format!("{policies} {READ_ORDERS}"), &caller, "orders")), []);
    let other = policies.replacen("'***'", "left(email, 1)", 1);
    assert_eq!(masks(&access(&other, &caller, "orders")), [("email", "NULL")], "two masks of one column");
}

#[test]
fn a_policy_that_fails_leaves_nothing() {
    let overflow = r#"forbid(principal in Role::"staff", action == Action::"drop", resource)
        when { 9223372036854775807 + 1 > 0 };"#;
    let gate = gate(&format!("{READ_ORDERS} {overflow}"));
    assert!(gate.table(&user("ann"), ORDERS).allows(Action::Select));
    let staff = with("ann", ["staff"], []);
    assert!(gate.table(&staff, ORDERS).is_none(), "a rule about another action fails, and so does all");
    assert!(gate.access(&staff, ORDERS).unwrap_err().to_string().contains("overflow"));
}

#[test]
fn a_location_is_reached_where_a_policy_says_so() {
    let gate = gate(
        r#"permit(principal in Role::"loader", action == Action::"read", resource)
            when { resource.url like "s3://lake/in/*" };
        permit(principal, action == Action::"select", resource);"#,
    );
    let (loader, other) = (with("ann", ["loader"], []), user("ann"));
    let (inside, outside) = ("s3://lake/in/a.parquet", "s3://lake/inside/a.parquet");
    assert_eq!(gate.location(&loader, inside, Reach::Read), Decision::Allow);
    assert_eq!(gate.location(&loader, inside, Reach::Write), Decision::Deny);
    assert_eq!(gate.location(&loader, outside, Reach::Read), Decision::Deny);
    assert_eq!(gate.location(&other, inside, Reach::Read), Decision::Deny);
}

#[test]
fn a_location_is_not_reached_if_a_policy_fails() {
    let permit = r#"permit(principal, action == Action::"read", resource);"#;
    let overflow = r#"forbid(principal, action == Action::"read", resource) when { 9223372036854775807 + 1 > 0 };"#;
    assert_eq!(gate(permit).location(&user("ann"), "s3://lake/a", Reach::Read), Decision::Allow);
    let broken = gate(&format!("{permit} {overflow}"));
    assert_eq!(broken.location(&user("ann"), "s3://lake/a", Reach::Read), Decision::Deny);
}

#[test]
fn policies_that_are_not_sound_are_refused() {
    let good = r#"@id("orders") @rows("a") @mask_b("c") permit(principal, action == Action::"select", resource);"#;
    assert_eq!(CedarAuthorizer::new(good).map(drop), Ok(()));
    for (what, policies) in [
        ("no syntax", good.replace(';', "")),
        ("an unknown action", good.replace("\"select\"", "\"selekt\"")),
        ("an unknown type", r#"permit(principal == Usr::"ann", action, resource);"#.to_owned()),
        ("an unknown attribute", r#"permit(principal, action, resource) when { principal.team == "a" };"#.to_owned()),
        ("never true", r#"permit(principal == Role::"ann", action, resource);"#.to_owned()),
        ("a template", r#"permit(principal == ?principal, action, resource);"#.to_owned()),
        ("a misspelt annotation", good.replace("@rows", "@row")),
        ("an annotation of another case", good.replace("@rows", "@Rows")),
        ("no predicate", good.replace("(\"a\")", "")),
        ("an empty predicate", good.replace("(\"a\")", "(\" \")")),
        ("a mask of no column", good.replace("mask_b", "mask_")),
        ("two predicates", good.replace("@rows", "@rows(\"d\") @rows")),
        ("rows of a forbid", good.replace("permit", "forbid")),
        ("rows of any action", good.replace("action == Action::\"select\"", "action")),
        ("rows of a write", good.replace("\"select\"", "\"insert\"")),
        ("rows of several actions", good.replace("== Action::\"select\"", "in [Action::\"select\", Action::\"drop\"]")),
    ] {
        assert_ne!(policies, good, "{what}");
        assert!(CedarAuthorizer::new(&policies).is_err(), "{what}");
    }
}

const ORDERS: TableName<'static> = TableName { catalog: "sales", schema: "public", table: "orders" };
const READ_ORDERS: &str = r#"permit(principal == User::"ann", action == Action::"select",
    resource == Table::"sales.public.orders");"#;

fn gate(policies: &str) -> CedarAuthorizer {
    CedarAuthorizer::new(policies).unwrap()
}

fn access(policies: &str, principal: &Principal, table: &str) -> Access {
    let access = gate(policies).access(principal, TableName { table, ..ORDERS }).unwrap();
    assert_eq!(gate(policies).table(principal, TableName { table, ..ORDERS }), access);
    access
}

fn user(name: &str) -> Principal {
    with(name, [], [])
}

fn with<const R: usize, const A: usize>(name: &str, roles: [&str; R], attributes: [(&str, &str); A]) -> Principal {
    Principal::assertion(Assertion {
        name: name.to_owned(),
        scheme: "test",
        authority: "here".to_owned(),
        subject: name.to_owned(),
        roles: roles.map(str::to_owned).into(),
        attributes: attributes.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        expires: Expiry::Never,
        credential_id: "test-1".to_owned(),
    })
    .unwrap()
}

fn any_of<const N: usize>(predicates: [&str; N]) -> Rows {
    Rows::AnyOf(predicates.map(str::to_owned).into())
}

fn masks(access: &Access) -> Vec<(&str, &str)> {
    access.masks().iter().map(|(column, mask)| (column.as_str(), mask.as_str())).collect()
}
