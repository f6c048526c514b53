//! Statements that write: what their targets need, asked of the policy before it is said that some of them do not run.
//!
//! Must not look at what is written: the rows come from a query, which is judged as any other.

use std::collections::BTreeSet;

use datafusion::common::TableReference;
use datafusion::logical_expr::dml::{CopyTo, InsertOp, MergeIntoAction};
use datafusion::logical_expr::{CreateMemoryTable, DmlStatement, WriteOp};
use portcullis_auth::{Access, Action};

use super::{Asker, not_found};
use crate::sql::creation::MAX_NAME;
use crate::sql::{location, policy};
use crate::status::{Class, Failure};
use crate::storage::{FullName, Keeping};

/// Why a table may not be written, if so.
pub(super) fn refusal(dml: &DmlStatement, asker: &Asker<'_>) -> Option<Failure> {
    let target = policy::guarded_source(&dml.target);
    let access =
        target.as_ref().and_then(|target| target.table()).map_or_else(Access::none, |table| asker.access_to(table));
    if access.is_none() {
        return Some(not_found(&dml.table_name, asker));
    }
    let missing = needed(&dml.op).into_iter().find(|action| !access.allows(*action))?;
    Some(may_not(missing, &dml.table_name))
}

/// Why a place may not be written, if so.
pub(super) fn copy_refusal(copy: &CopyTo, asker: &Asker<'_>) -> Option<Failure> {
    // Other options carry endpoints and credentials of stores.
    if let Some(option) = copy.options.keys().find(|key| !key.to_ascii_lowercase().starts_with("format.")) {
        return Some(Failure::about_request(Class::PermissionDenied, format!("option `{option}` may not be set")));
    }
    let allowed = location::written_at(&copy.output_url).is_some_and(|real| asker.may_write(&real));
    // One text whatever is there, so that nothing can be probed.
    (!allowed).then(|| Failure::new(Class::PermissionDenied, "the location is not one that you may write"))
}

/// Why a table may not be made, if so. Whether there is one already is asked later, of those who may know.
pub(super) fn creation_refusal(table: &CreateMemoryTable, asker: &Asker<'_>) -> Option<Failure> {
    match asker.keeping {
        Keeping::At(_) => (),
        Keeping::Nowhere => return Some(Failure::unimplemented("CREATE TABLE")),
    }
    let name = asker.full_name(&table.name);
    let access = asker.authorizer.table(asker.principal, name.as_name());
    if !access.allows(Action::Create) {
        return Some(may_not(Action::Create, &table.name));
    }
    if table.constraints.iter().next().is_some() {
        return Some(Failure::unimplemented("a constraint on a table"));
    }
    if !table.column_defaults.is_empty() {
        return Some(Failure::unimplemented("a default for a column"));
    }
    name_refusal(&name)
}

/// Why a kept table may not have this name, if so.
pub(in crate::sql) fn name_refusal(name: &FullName) -> Option<Failure> {
    (name.table.len() > MAX_NAME || name.table.trim().is_empty()).then(|| {
        Failure::about_request(
            Class::InvalidArgument,
            format!("the name of a table has between one and {MAX_NAME} bytes"),
        )
    })
}

/// Why a table may not be dropped, if so.
pub(in crate::sql) fn drop_refusal(name: &TableReference, access: &Access, asker: &Asker<'_>) -> Option<Failure> {
    if access.is_none() {
        return Some(not_found(name, asker));
    }
    (!access.allows(Action::Drop)).then(|| may_not(Action::Drop, name))
}

fn may_not(action: Action, table: &TableReference) -> Failure {
    Failure::about_request(Class::PermissionDenied, format!("you may not {} table `{}`", deed(action), table.table()))
}

/// Everything that the statement does to its target.
#[expect(clippy::wildcard_enum_match_arm, reason = "the engine may learn of more writes")]
fn needed(op: &WriteOp) -> BTreeSet<Action> {
    match op {
        WriteOp::Insert(InsertOp::Append) | WriteOp::Ctas => [Action::Insert].into(),
        WriteOp::Insert(InsertOp::Overwrite | InsertOp::Replace) => [Action::Insert, Action::Delete].into(),
        WriteOp::Delete | WriteOp::Truncate => [Action::Delete].into(),
        WriteOp::Update => [Action::Update].into(),
        WriteOp::MergeInto(merge) => merge
            .clauses
            .iter()
            .map(|clause| match clause.action {
                MergeIntoAction::Update(_) => Action::Update,
                MergeIntoAction::Insert { .. } => Action::Insert,
                MergeIntoAction::Delete => Action::Delete,
            })
            .collect(),
        // One that this version does not know may do anything.
        _ => Action::ALL.into(),
    }
}

fn deed(action: Action) -> &'static str {
    match action {
        Action::Create => "create",
        Action::Delete => "delete from",
        Action::Drop => "drop",
        Action::Insert => "insert into",
        Action::Select => "read",
        Action::Update => "update",
    }
}
