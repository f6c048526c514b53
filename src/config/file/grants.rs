//! `[[grant]]`: keys, the rules between keys, and the rules between grants.
//!
//! A grant that does nothing, or two that say different things about one column, are findings here and not surprises
//! later. Must not decide what grants mean together: that is `access/grants.rs`.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_auth::Action;

use super::parts::{non_empty, unique};
use super::section::{At, Item, Section};
use super::values;
use crate::access::expression;
use crate::config::error::Problem;
use crate::config::{Grant, Grantee, NamePattern, RowRule, TablePattern};

/// Every `[[grant]]`, in the order of the file.
pub(super) fn grants(root: &mut Section<'_>) -> Vec<Grant> {
    let written = root.sections("grant", grant);
    conflicts(root, &written);
    written.into_iter().map(|written| written.grant).collect()
}

/// Whom something is granted to: a list, or one text.
pub(super) fn grantees(section: &mut Section<'_>) -> Option<Vec<Grantee>> {
    let given = section.required_one_or_more("to", values::grantee)?;
    Some(given.into_iter().map(|(_, grantee)| grantee).collect())
}

/// A grant, and where its masks are written.
struct Written {
    grant: Grant,
    masks: Vec<(String, At)>,
}

fn grant(section: &mut Section<'_>) -> Option<Written> {
    const ACTIONS: &[(&str, &[Action])] = &[
        ("select", &[Action::Select]),
        ("insert", &[Action::Insert]),
        ("update", &[Action::Update]),
        ("delete", &[Action::Delete]),
        ("create", &[Action::Create]),
        ("drop", &[Action::Drop]),
        ("all", &Action::ALL),
    ];
    let to = grantees(section);
    let on = section.required("on", table_pattern);
    let allow = section.required_list("allow", |item| Ok((values::word(ACTIONS)(item)?, values::text(item)?)));
    let rows = section.given("rows", expression);
    let masks = section.given_section("mask", masks);

    let mut words = Vec::new();
    for (at, (_, word)) in allow.iter().flatten() {
        unique(section, &mut words, at, word);
    }
    let actions: Option<BTreeSet<Action>> =
        allow.map(|allow| allow.into_iter().flat_map(|(_, (actions, _))| actions.iter().copied()).collect());
    // Without an action there was a finding already.
    if let Some(actions) = actions.as_ref().filter(|actions| !actions.is_empty()) {
        does_something(section, actions, rows.as_ref().map(|(at, _)| at), masks.as_ref().map(|(at, _)| at));
    }
    let rows = rows.map_or(Some(RowRule::All), |(_, predicate)| predicate.map(RowRule::Where));
    let masks = masks.map(|(_, masks)| masks).unwrap_or_default();
    let grant = Grant {
        to: non_empty(to?)?,
        on: on?,
        allow: actions?,
        rows: rows?,
        masks: masks.iter().map(|(column, (_, mask))| (column.clone(), mask.clone())).collect(),
        line: section.at().line(),
    };
    Some(Written { grant, masks: masks.into_iter().map(|(column, (at, _))| (column, at)).collect() })
}

/// Reports what limits an action that is not granted.
fn does_something(section: &Section<'_>, actions: &BTreeSet<Action>, rows: Option<&At>, masks: Option<&At>) {
    let about_rows = [Action::Select, Action::Insert, Action::Update, Action::Delete];
    if let Some(at) = rows
        && !about_rows.iter().any(|action| actions.contains(action))
    {
        let rule = "means nothing where `allow` has none of `select`, `insert`, `update` and `delete`";
        section.report(at, values::rule("rows", rule));
    }
    if let Some(at) = masks
        && !actions.contains(&Action::Select)
    {
        section.report(at, values::rule("mask", "means nothing where `allow` has no `select`"));
    }
}

type Masks = BTreeMap<String, (At, String)>;

fn masks(section: &mut Section<'_>) -> Masks {
    if section.is_empty() {
        section.report_absence(section.at(), Problem::Empty);
    }
    let masks = section.values(|item| Ok((item.at.clone(), expression(item)?)));
    for (column, (at, _)) in &masks {
        if let Err(problem) = values::identifier(column) {
            section.report(at, problem);
        }
    }
    masks.into_iter().collect()
}

/// `catalog.schema.table`, whose names are such as tables can have.
fn table_pattern(item: &Item<'_>) -> Result<TablePattern, Problem> {
    let given = values::text(item)?;
    let pattern: TablePattern = given.parse().map_err(|broken| values::rule(given, broken))?;
    for part in [&pattern.catalog, &pattern.table] {
        judge_name(part, values::identifier)?;
    }
    judge_name(&pattern.schema, values::schema)?;
    Ok(pattern)
}

fn judge_name(part: &NamePattern, judge: impl Fn(&str) -> Result<String, Problem>) -> Result<(), Problem> {
    match part {
        NamePattern::Any => Ok(()),
        NamePattern::Named(name) => judge(name).map(drop),
    }
}

/// The text of one SQL expression.
fn expression(item: &Item<'_>) -> Result<String, Problem> {
    let given = values::text(item)?.trim();
    if given.is_empty() {
        return Err(Problem::Empty);
    }
    match expression::parse(given) {
        Ok(_) => Ok(given.to_owned()),
        Err(unusable) => Err(Problem::NotAnExpression { given: given.to_owned(), why: unusable.to_string() }),
    }
}

/// Reports each mask that somebody could get together with another one of the same column.
fn conflicts(root: &Section<'_>, written: &[Written]) {
    let mut by_column: BTreeMap<&str, Vec<(&Written, &At)>> = BTreeMap::new();
    for of_grant in written {
        for (column, at) in &of_grant.masks {
            let earlier = by_column.entry(column).or_default();
            let conflict = earlier.iter().find(|(other, _)| {
                other.grant.masks.get(column) != of_grant.grant.masks.get(column) && meet(&other.grant, &of_grant.grant)
            });
            if let Some((_, other)) = conflict {
                let problem = Problem::MaskConflict { column: column.clone(), other_line: other.line() };
                root.report(at, problem);
            }
            earlier.push((of_grant, at));
        }
    }
}

/// Whether both can apply to one principal and one table.
fn meet(one: &Grant, other: &Grant) -> bool {
    let may_be_one = |a: &Grantee, b: &Grantee| match (a, b) {
        (Grantee::User(one), Grantee::User(other)) => one == other,
        // Anybody can have any role, and several.
        (Grantee::Everyone | Grantee::Role(_) | Grantee::User(_), Grantee::Everyone | Grantee::Role(_))
        | (Grantee::Everyone | Grantee::Role(_), Grantee::User(_)) => true,
    };
    one.on.overlaps(&other.on) && one.to.iter().any(|a| other.to.iter().any(|b| may_be_one(a, b)))
}
