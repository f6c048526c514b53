//! What stands between yes and no: the annotations `@rows` and `@mask_…` of policies.
//!
//! Must not know SQL: whether an expression can be applied shows when the table is read.

use std::collections::{BTreeMap, BTreeSet};

use cedar_policy::{ActionConstraint, Effect, Policy};
use portcullis_auth::{Action, Rows};

use crate::names::{uid, word};
use crate::{Undecided, because};

/// Refuses what would pass unseen and restrict nobody, since annotations are nothing to Cedar.
pub(crate) fn check(policy: &Policy) -> Result<(), Undecided> {
    let select = ActionConstraint::Eq(uid("Action", word(Action::Select))?);
    for (name, value) in policy.annotations().filter(|(name, _)| *name != "id") {
        let known = name == ROWS || name.strip_prefix(MASK).is_some_and(|column| !column.is_empty());
        if !known || value.trim().is_empty() {
            return Err(because(format!("{}: `@{name}` says nothing here", policy.id())));
        }
        if policy.effect() != Effect::Permit || policy.action_constraint() != select {
            return Err(because(format!("{}: `@{name}` is for a permit of select alone", policy.id())));
        }
    }
    Ok(())
}

/// The rows that `policies` show together. One without `@rows` shows all of them.
pub(crate) fn rows(policies: &[&Policy]) -> Rows {
    let predicates = policies.iter().map(|policy| policy.annotation(ROWS).map(str::to_owned));
    predicates.collect::<Option<BTreeSet<_>>>().map_or(Rows::All, Rows::AnyOf)
}

/// The masks that all of `policies` have. Where they differ, the column is NULL.
pub(crate) fn masks(policies: &[&Policy]) -> BTreeMap<String, String> {
    policies.iter().map(|policy| masks_of(policy)).reduce(common).unwrap_or_default()
}

fn masks_of(policy: &Policy) -> BTreeMap<String, String> {
    let named = policy.annotations().filter_map(|(name, mask)| Some((name.strip_prefix(MASK)?, mask)));
    named.map(|(column, mask)| (column.to_owned(), mask.to_owned())).collect()
}

fn common(mut one: BTreeMap<String, String>, other: BTreeMap<String, String>) -> BTreeMap<String, String> {
    one.retain(|column, _| other.contains_key(column));
    for (column, mask) in &mut one {
        if other.get(column) != Some(mask) {
            "NULL".clone_into(mask);
        }
    }
    one
}

const MASK: &str = "mask_";
const ROWS: &str = "rows";
