//! Rows and columns: what the policy lets a principal see of a table, as a part of the plan.
//!
//! [`enforce`] puts in the place of every [`Guarded`] scan the real table behind the policy's filter and masks. A query
//! over that errs exactly when it errs on a copy of the table with nothing else in it: unless all of its expressions
//! are leak-proof, a barrier keeps them from being computed on rows that are filtered out. Must not decide whether a
//! table may be read at all; that is `access.rs`.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::DataFusionError;
use datafusion::functions_nested::expr_fn::make_array;
use datafusion::logical_expr::utils::disjunction;
use datafusion::logical_expr::{
    ExprSchemable, LogicalPlan, LogicalPlanBuilder, TableScan, TableSource, cast, lit, when,
};
use datafusion::prelude::Expr;
use portcullis_auth::{Access, Rows};

use super::access::Asker;
use super::{failure, leakproof};
use crate::catalog::guarded::{Guarded, Owner};
use crate::status::Failure;

/// The plan with the real tables in it, each behind its policy. `plan` was judged, and may be shown; what comes back
/// may not.
#[expect(clippy::wildcard_enum_match_arm, reason = "only scans are replaced")]
pub(super) fn enforce(plan: LogicalPlan, asker: &Asker<'_>) -> Result<LogicalPlan, Failure> {
    let barrier = barrier_for(&plan, asker)?;
    plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::TableScan(scan) => match guarded(&scan) {
            Some(table) => real(&scan, &table, asker, barrier).map(Transformed::yes),
            None => Ok(Transformed::no(LogicalPlan::TableScan(scan))),
        },
        // Nullability may have changed below.
        above => above.recompute_schema().map(Transformed::yes),
    })
    .map(|transformed| transformed.data)
    .map_err(|error| failure::of_planning(&error))
}

/// Whether rows or columns of a table in `plan` are hidden from the one who asks.
pub(super) fn hides(plan: &LogicalPlan, asker: &Asker<'_>) -> Result<bool, Failure> {
    let mut hidden = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(table) = guarded(scan)
        {
            let access = access_to(&table, asker);
            hidden = hidden || *access.rows() != Rows::All || !access.masks().is_empty();
        }
        Ok(if hidden { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })
    .map_err(|error| failure::of_planning(&error))?;
    Ok(hidden)
}

/// The table behind a scan, when it is a guarded one.
pub(super) fn guarded(scan: &TableScan) -> Option<GuardedScan> {
    guarded_source(&scan.source)
}

/// The table behind a source, when it is a guarded one.
pub(super) fn guarded_source(source: &Arc<dyn TableSource>) -> Option<GuardedScan> {
    let provider = source_as_provider(source).ok()?;
    provider.is::<Guarded>().then_some(GuardedScan(provider))
}

/// A provider that is a [`Guarded`].
pub(super) struct GuardedScan(Arc<dyn datafusion::catalog::TableProvider>);

impl GuardedScan {
    /// The table.
    pub(super) fn table(&self) -> Option<&Guarded> {
        self.0.downcast_ref::<Guarded>()
    }
}

fn access_to(scan: &GuardedScan, asker: &Asker<'_>) -> Access {
    scan.table().map_or_else(Access::none, |table| asker.access_to(table))
}

/// Whether expressions of the statement must be kept above the policy's filter.
///
/// The barrier is an UNNEST of one element, with every column a CASE over that element: neither the logical optimizer
/// nor the physical one moves a filter, a projection or a join condition below it. (A volatile column does not do: the
/// physical optimizer's `FilterExec` takes volatile conditions from above into its own.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Barrier {
    NotNeeded,
    Raised,
}

fn barrier_for(plan: &LogicalPlan, asker: &Asker<'_>) -> Result<Barrier, Failure> {
    if !hides(plan, asker)? {
        return Ok(Barrier::NotNeeded);
    }
    let options = asker.state.config_options();
    let analyzed = asker
        .state
        .analyzer()
        .execute_and_check(plan.clone(), options, |_, _| ())
        .map_err(|error| failure::of_planning(&error))?;
    match leakproof::is_leak_proof(&analyzed).map_err(|error| failure::of_planning(&error))? {
        true => Ok(Barrier::NotNeeded),
        false => Ok(Barrier::Raised),
    }
}

fn real(
    scan: &TableScan,
    guarded: &GuardedScan,
    asker: &Asker<'_>,
    barrier: Barrier,
) -> Result<LogicalPlan, DataFusionError> {
    let lost = || DataFusionError::Internal("a scan lost its table".to_owned());
    let table = guarded.table().ok_or_else(lost)?;
    if !scan.filters.is_empty() || scan.fetch.is_some() {
        return Err(DataFusionError::Internal("a plan was optimized before its policy was in it".to_owned()));
    }
    let access = asker.access_to(table);
    let source = provider_as_source(Arc::clone(table.real()));
    let plan = LogicalPlanBuilder::scan(scan.table_name.clone(), source, None)?.build()?;
    let plan = match (access.rows(), access.masks().is_empty()) {
        (Rows::All, true) => plan,
        (rows, _) => {
            behind_policy(plan, scan, rows, &access, asker, barrier).map_err(|error| of_policy(table, &error))?
        }
    };
    match &scan.projection {
        None => Ok(plan),
        Some(indices) => {
            let columns: Vec<Expr> = indices
                .iter()
                .filter(|index| **index < plan.schema().fields().len())
                .map(|index| Expr::Column(Column::from(plan.schema().qualified_field(*index))))
                .collect();
            LogicalPlanBuilder::from(plan).project(columns)?.build()
        }
    }
}

/// The author of the statement has no part in a policy that cannot be applied, and is told nothing of it.
fn of_policy(table: &Guarded, error: &DataFusionError) -> DataFusionError {
    let name = match table.owner() {
        Owner::Catalog(name) | Owner::Kept(name, _) => format!("{:?}", name.as_name()),
        Owner::Session => "a session".to_owned(),
    };
    DataFusionError::Internal(format!("the policy of {name} cannot be applied: {error}"))
}

/// `Alias(Masks(Barrier(Filter(scan))))`, each where it is needed.
fn behind_policy(
    plan: LogicalPlan,
    scan: &TableScan,
    rows: &Rows,
    access: &Access,
    asker: &Asker<'_>,
    barrier: Barrier,
) -> Result<LogicalPlan, DataFusionError> {
    let schema = Arc::clone(plan.schema());
    let mut masks = Vec::with_capacity(access.masks().len());
    for (column, text) in access.masks() {
        let Some(index) = masked_column(&schema, column)? else { continue };
        let kind = schema.field(index).data_type().clone();
        masks.push((index, cast(asker.expression(text, &schema)?, kind)));
    }
    let mut builder = LogicalPlanBuilder::from(plan);
    if let Rows::AnyOf(predicates) = rows {
        builder = builder.filter(any_of(predicates, &schema, asker)?)?;
    }
    let barrier = match masks
        .iter()
        .try_fold(true, |safe, (_, mask)| leakproof::cannot_fail(mask, &schema).map(|this| safe && this))?
    {
        true => barrier,
        false => Barrier::Raised,
    };
    let column = |index: usize| Expr::Column(Column::from(schema.qualified_field(index)));
    let mut shown: Vec<Expr> = (0..schema.fields().len()).map(column).collect();
    if barrier == Barrier::Raised {
        let token = unused_name(&schema);
        let passed = make_array(vec![lit(true)]).alias(&token);
        builder = builder.project(shown.iter().cloned().chain([passed]).collect::<Vec<_>>())?.unnest_column(&*token)?;
        for value in &mut shown {
            // Always the first: only that no value can be had below, where rows are that have not passed.
            *value = when(Expr::Column(Column::from_name(&token)), value.clone()).otherwise(value.clone())?;
        }
    }
    let behind: Vec<Expr> = shown.clone();
    for (index, mask) in masks {
        let mask = match barrier {
            Barrier::NotNeeded => mask,
            Barrier::Raised => replaced(mask, &schema, &behind)?,
        };
        if let Some(value) = shown.get_mut(index) {
            *value = mask;
        }
    }
    let named = shown.into_iter().enumerate().map(|(index, value)| value.alias(schema.field(index).name()));
    builder.project(named.collect::<Vec<_>>())?.alias(scan.table_name.clone())?.build()
}

/// The column that a mask is for; a grant on many tables may mask what one of them does not have.
fn masked_column(schema: &DFSchema, name: &str) -> Result<Option<usize>, DataFusionError> {
    match schema.index_of_column_by_name(None, name) {
        Some(index) => Ok(Some(index)),
        // Most likely it is meant, and must not be shown.
        None if schema.fields().iter().any(|field| field.name().eq_ignore_ascii_case(name)) => {
            Err(DataFusionError::Plan(format!("the mask of `{name}` differs from a column in upper and lower case")))
        }
        None => Ok(None),
    }
}

fn any_of(predicates: &BTreeSet<String>, schema: &DFSchema, asker: &Asker<'_>) -> Result<Expr, DataFusionError> {
    let mut parsed = Vec::with_capacity(predicates.len());
    for text in predicates {
        let predicate = asker.expression(text, schema)?;
        if predicate.get_type(schema)? != DataType::Boolean {
            return Err(DataFusionError::Plan(format!("`{text}` is not a predicate")));
        }
        parsed.push(predicate);
    }
    Ok(disjunction(parsed).unwrap_or_else(|| lit(ScalarValue::Boolean(Some(false)))))
}

/// `expression` over what stands behind the barrier.
#[expect(clippy::wildcard_enum_match_arm, reason = "only columns are replaced")]
fn replaced(expression: Expr, schema: &DFSchema, behind: &[Expr]) -> Result<Expr, DataFusionError> {
    use datafusion::common::tree_node::TreeNode as _;
    expression
        .transform(|part| match &part {
            Expr::Column(column) => {
                let value = schema.maybe_index_of_column(column).and_then(|index| behind.get(index));
                let missing = || DataFusionError::Plan(format!("there is no column `{}`", column.name));
                Ok(Transformed::new(value.ok_or_else(missing)?.clone(), true, TreeNodeRecursion::Jump))
            }
            _ => Ok(Transformed::no(part)),
        })
        .map(|transformed| transformed.data)
}

fn unused_name(schema: &DFSchema) -> String {
    let mut name = "passed".to_owned();
    while schema.fields().iter().any(|field| *field.name() == name) {
        name.push('_');
    }
    name
}
