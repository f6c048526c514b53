//! The `[[grant]]` and `[[location]]` rules as an [`Authorizer`].
//!
//! Without a grant there is no table, without a rule no location. Grants add up: what one gives, another does not take
//! away, and each row filter and mask is lifted by a grant to read without it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portcullis_auth::{Access, Action, Authorizer, Decision, Principal, Reach, Rows, TableName};

use super::index::Index;
use crate::config::{Allow, Grant, Grantee, Location, RowRule, Table};

/// A policy out of rules.
#[derive(Debug, Default)]
pub struct Grants {
    grants: Vec<Arc<Grant>>,
    index: Index,
    locations: Vec<Location>,
}

impl Grants {
    /// The rules of a configuration; none of them means that nobody may do anything.
    ///
    /// A configuration in which two grants mask one column differently is refused when it is loaded. Where such grants
    /// come from elsewhere, the column is NULL.
    pub fn new(grants: Vec<Grant>, locations: Vec<Location>) -> Self {
        let grants: Vec<Arc<Grant>> = grants.into_iter().map(Arc::new).collect();
        let mut index = Index::default();
        grants.iter().for_each(|grant| index.add(grant));
        Self { grants, index, locations }
    }

    /// The rows of `table` on which `principal` may do `action`: those that it may read, those that it may make, those
    /// that it may change. [`Authorizer::table`] tells of the rows to read alone.
    pub fn rows_for(&self, principal: &Principal, table: TableName<'_>, action: Action) -> Rows {
        let mut rows = Rows::AnyOf(BTreeSet::new());
        self.index.visit(principal, table, &mut |grant| {
            if grant.allow.contains(&action) {
                widen(&mut rows, &grant.rows);
            }
        });
        rows
    }

    /// One sentence for each grant that is on none of `tables`: most likely a name in it is wrong.
    pub fn of_nothing(&self, tables: &[Table]) -> Vec<String> {
        let is_one = |grant: &Grant, table: &Table| {
            grant.on.matches(TableName { catalog: &table.catalog, schema: &table.schema, table: &table.name })
        };
        let without = self.grants.iter().filter(|grant| !tables.iter().any(|table| is_one(grant, table)));
        without
            .map(|grant| format!("line {}: the grant on `{}` is on no configured table", grant.line, grant.on))
            .collect()
    }
}

impl Authorizer for Grants {
    fn table(&self, principal: &Principal, table: TableName<'_>) -> Access {
        let mut actions = BTreeSet::new();
        let mut rows = Rows::AnyOf(BTreeSet::new());
        let mut masks = Masks::default();
        self.index.visit(principal, table, &mut |grant| {
            actions.extend(grant.allow.iter().copied());
            // Who may only write has not been shown anything, so nothing that hides is lifted.
            if grant.allow.contains(&Action::Select) {
                widen(&mut rows, &grant.rows);
                masks.keep_those_of(&grant.masks);
            }
        });
        let access = match rows {
            Rows::All => Access::to(actions),
            Rows::AnyOf(predicates) => Access::to(actions).only_rows(predicates),
        };
        masks.in_force().into_iter().fold(access, |access, (column, mask)| access.masking(column, mask))
    }

    fn location(&self, principal: &Principal, location: &str, reach: Reach) -> Decision {
        let reached = |rule: &&Location| match (rule.allow, reach) {
            (Allow::Read | Allow::ReadWrite, Reach::Read) | (Allow::Write | Allow::ReadWrite, Reach::Write) => true,
            (Allow::Write, Reach::Read) | (Allow::Read, Reach::Write) => false,
        };
        // Prefixes end with `/`, so that a neighbour with the same beginning is not below.
        let below = |rule: &&Location| location.starts_with(rule.prefix.as_str());
        let mut rules = self.locations.iter().filter(below).filter(reached);
        if is_plain(location) && rules.any(|rule| rule.to.iter().any(|grantee| is_to(grantee, principal))) {
            return Decision::Allow;
        }
        Decision::Deny
    }
}

/// Adds the rows of one more grant.
fn widen(rows: &mut Rows, more: &RowRule) {
    match (&mut *rows, more) {
        (Rows::All, _) => (),
        (Rows::AnyOf(_), RowRule::All) => *rows = Rows::All,
        (Rows::AnyOf(predicates), RowRule::Where(predicate)) => drop(predicates.insert(predicate.clone())),
    }
}

/// The masks that all grants so far have in common.
#[derive(Debug, Default)]
enum Masks {
    /// No grant was seen.
    #[default]
    Unseen,
    Common(BTreeMap<String, String>),
}

impl Masks {
    fn keep_those_of(&mut self, masks: &BTreeMap<String, String>) {
        match self {
            Self::Unseen => *self = Self::Common(masks.clone()),
            Self::Common(common) => {
                common.retain(|column, _| masks.contains_key(column));
                for (column, mask) in common {
                    if masks.get(column) != Some(mask) {
                        NOTHING.clone_into(mask);
                    }
                }
            }
        }
    }

    fn in_force(self) -> BTreeMap<String, String> {
        match self {
            Self::Unseen => BTreeMap::new(),
            Self::Common(masks) => masks,
        }
    }
}

fn is_to(grantee: &Grantee, principal: &Principal) -> bool {
    match grantee {
        Grantee::Everyone => true,
        Grantee::Role(role) => principal.roles().contains(role),
        Grantee::User(user) => principal.name() == user,
    }
}

/// Whether a location is as the contract promises it: what leads elsewhere on the way is below nothing.
fn is_plain(location: &str) -> bool {
    let lower = location.to_ascii_lowercase();
    let hidden = ["%2e", "%2f", "%5c", "%00"].iter().any(|escape| lower.contains(escape));
    !hidden && !location.contains('\\') && !location.split('/').any(|segment| segment == "." || segment == "..")
}

/// A mask that tells nothing, of whatever type the column is.
const NOTHING: &str = "NULL";

#[cfg(test)]
mod tests;
