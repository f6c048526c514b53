//! What somebody may do, as a policy answers it: the seam for an embedder's own policy engine.
//!
//! The gate asks an [`Authorizer`] for every table of every statement and for every name in a listing, and holds the
//! answer against what is wanted. Starts from *no*: [`Access::none`] means that the table does not exist for the
//! principal, in SQL, metadata and errors alike. Must not know a plan, an engine or a configuration file.
//!
//! ```
//! use portcullis_auth::{Access, Action, Authorizer, Decision, Principal, Reach, TableName};
//!
//! /// Everybody reads the rows of their own department.
//! #[derive(Debug)]
//! struct Departments;
//!
//! impl Authorizer for Departments {
//!     fn table(&self, principal: &Principal, table: TableName<'_>) -> Access {
//!         if table.schema != "public" || !principal.attributes().contains_key("department") {
//!             return Access::none();
//!         }
//!         Access::to([Action::Select]).only_rows(["department = user_attribute('department')".to_owned()])
//!     }
//!
//!     fn location(&self, _principal: &Principal, _location: &str, _reach: Reach) -> Decision {
//!         Decision::Deny
//!     }
//! }
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::principal::Principal;

/// Decides who may do what with which table and which location.
///
/// Both questions are asked while a statement is planned and must be answered from memory: a policy that lives
/// elsewhere is mirrored. What it answers is not remembered beyond the statement.
pub trait Authorizer: fmt::Debug + Send + Sync + 'static {
    /// What `principal` may do with `table`, which may not exist (yet).
    fn table(&self, principal: &Principal, table: TableName<'_>) -> Access;

    /// Whether `principal` may reach `location` in a statement of its own: a URL without `..`, links or escapes.
    fn location(&self, principal: &Principal, location: &str, reach: Reach) -> Decision;
}

/// A table's whole name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableName<'a> {
    /// The catalog.
    pub catalog: &'a str,
    /// The schema.
    pub schema: &'a str,
    /// The table.
    pub table: &'a str,
}

/// What can be done with a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Make it.
    Create,
    /// Remove rows.
    Delete,
    /// Remove it.
    Drop,
    /// Add rows.
    Insert,
    /// Read it.
    Select,
    /// Change rows.
    Update,
}

impl Action {
    /// Every action, for a grant of all.
    pub const ALL: [Self; 6] = [Self::Create, Self::Delete, Self::Drop, Self::Insert, Self::Select, Self::Update];
}

/// What a principal may do with one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    actions: BTreeSet<Action>,
    rows: Rows,
    masks: BTreeMap<String, String>,
}

/// Which rows of a table may be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rows {
    /// All.
    All,
    /// Those for which at least one of these SQL predicates is true.
    AnyOf(BTreeSet<String>),
}

impl Access {
    /// Nothing: the table does not exist for the principal.
    pub fn none() -> Self {
        Self { actions: BTreeSet::new(), rows: Rows::All, masks: BTreeMap::new() }
    }

    /// These actions, on all rows and with all columns as they are.
    pub fn to(actions: impl IntoIterator<Item = Action>) -> Self {
        Self { actions: actions.into_iter().collect(), ..Self::none() }
    }

    /// The same for the rows only for which one of `predicates` is true; without a predicate there are no such rows.
    #[must_use]
    pub fn only_rows(self, predicates: impl IntoIterator<Item = String>) -> Self {
        Self { rows: Rows::AnyOf(predicates.into_iter().collect()), ..self }
    }

    /// The same with `column` replaced by an SQL expression over the table's columns.
    #[must_use]
    pub fn masking(mut self, column: impl Into<String>, expression: impl Into<String>) -> Self {
        self.masks.insert(column.into(), expression.into());
        self
    }

    /// Whether the table exists for the principal at all.
    pub fn is_none(&self) -> bool {
        self.actions.is_empty()
    }

    /// Whether `action` is among what may be done.
    pub fn allows(&self, action: Action) -> bool {
        self.actions.contains(&action)
    }

    /// The rows that may be seen.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// The columns that are replaced, and by what.
    pub fn masks(&self) -> &BTreeMap<String, String> {
        &self.masks
    }
}

/// What is done at a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Files are read.
    Read,
    /// Files are made.
    Write,
}

/// A yes or a no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Yes.
    Allow,
    /// No.
    Deny,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_allowed_that_was_not_said() {
        let access = Access::to([Action::Select]).masking("email", "'***'");
        assert!(access.allows(Action::Select) && !access.is_none());
        for action in Action::ALL.into_iter().filter(|action| *action != Action::Select) {
            assert!(!access.allows(action), "{action:?}");
        }
        assert!(Access::none().is_none() && Access::to([]).is_none());
        assert_eq!(*access.only_rows([]).rows(), Rows::AnyOf(BTreeSet::new()));
    }
}
