//! A Substrait plan as a plan of the engine: relations over tables that the session's catalog names.
//!
//! Decides nothing about rights: what comes out goes the way of every other plan, and looks like one that SQL made, so
//! that nothing behind it has to know: scans have neither filters nor projections of their own. Starts from *no*:
//! files, writes, extensions and relations that are not listed here are refused before the engine's reader sees them.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::common::{Column, DFSchema, TableReference, not_impl_err, plan_err};
use datafusion::datasource::provider_as_source;
use datafusion::error::DataFusionError;
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use datafusion::prelude::Expr;
use datafusion_substrait::extensions::Extensions;
use datafusion_substrait::logical_plan::consumer::{
    SubstraitConsumer, from_read_rel, from_substrait_named_struct, from_substrait_plan_with_consumer,
    from_substrait_rel,
};
use datafusion_substrait::substrait::proto::expression::MaskExpression;
use datafusion_substrait::substrait::proto::plan_rel;
use datafusion_substrait::substrait::proto::read_rel::{NamedTable, ReadType};
use datafusion_substrait::substrait::proto::rel::RelType;
use datafusion_substrait::substrait::proto::rel_common::EmitKind;
use datafusion_substrait::substrait::proto::sort_field::{SortDirection, SortKind};
use datafusion_substrait::substrait::proto::{
    AggregateRel, ExchangeRel, NamedStruct, Plan, ReadRel, Rel, RelCommon, SortField,
};
use futures::FutureExt;
use parking_lot::RwLock;
use prost::Message;

use super::{expansion, failure};
use crate::status::{Class, Failure};

/// What the bytes of a plan say; nothing is decided about it yet.
pub(crate) async fn planned(bytes: &[u8], state: &SessionState) -> Result<LogicalPlan, Failure> {
    // Messages deeper than a hundred levels are not decoded, so that no stack has to bear them.
    let plan = Plan::decode(bytes).map_err(|error| unreadable().because(error))?;
    match plan.relations.first().and_then(|first| first.rel_type.as_ref()) {
        Some(plan_rel::RelType::Rel(_)) => (),
        Some(plan_rel::RelType::Root(root)) if root.input.is_some() => (),
        Some(plan_rel::RelType::Root(_)) | None => return Err(unreadable()),
    }
    let extensions = Extensions::try_from(&plan.extensions).map_err(|error| refused(&error))?;
    if !extensions.type_variations.is_empty() {
        return Err(Failure::unimplemented("a variation of a type in a Substrait plan"));
    }
    let reader = Reader { extensions: &extensions, state, outer: RwLock::default(), relations: AtomicUsize::new(0) };
    let read = from_substrait_plan_with_consumer(&reader, &plan);
    match AssertUnwindSafe(read).catch_unwind().await {
        Ok(read) => read.map_err(|error| refused(&error)),
        // The engine's reader takes much of what a plan must have for given.
        Err(_) => Err(unreadable()),
    }
}

fn unreadable() -> Failure {
    Failure::new(Class::InvalidArgument, "the plan is not one of Substrait, or something that it must have is missing")
}

#[expect(clippy::wildcard_enum_match_arm, reason = "others are as they are for SQL")]
fn refused(error: &DataFusionError) -> Failure {
    match error {
        DataFusionError::Substrait(about) => {
            let about = about.lines().next().unwrap_or_default();
            Failure::about_request(Class::InvalidArgument, format!("the Substrait plan cannot be read: {about}"))
        }
        other => failure::of_planning(other),
    }
}

/// Reads one plan.
struct Reader<'a> {
    extensions: &'a Extensions,
    state: &'a SessionState,
    /// The columns around the subquery that is being read, innermost last.
    outer: RwLock<Vec<Arc<DFSchema>>>,
    /// Scans so far, those behind views included.
    relations: AtomicUsize,
}

#[async_trait]
impl SubstraitConsumer for Reader<'_> {
    async fn resolve_table_ref(
        &self,
        name: &TableReference,
    ) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        match self.state.schema_for_ref(name.clone()) {
            Ok(schema) => schema.table(name.table()).await,
            // To be told apart from a table that is not there by nobody.
            Err(_) => Ok(None),
        }
    }

    fn get_extensions(&self) -> &Extensions {
        self.extensions
    }

    fn get_function_registry(&self) -> &impl FunctionRegistry {
        self.state
    }

    async fn consume_rel(&self, relation: &Rel) -> Result<LogicalPlan, DataFusionError> {
        check(relation)?;
        from_substrait_rel(self, relation).await
    }

    async fn consume_read(&self, read: &ReadRel) -> Result<LogicalPlan, DataFusionError> {
        let all = match &read.read_type {
            Some(ReadType::NamedTable(table)) => self.table(table, read.base_schema.as_ref()).await?,
            Some(ReadType::VirtualTable(_)) => {
                let rows = from_read_rel(self, read).await?;
                self.count(&rows)?;
                rows
            }
            Some(ReadType::LocalFiles(_) | ReadType::ExtensionTable(_) | ReadType::IcebergTable(_)) | None => {
                return not_impl_err!("a relation that reads something else than a table with a name");
            }
        };
        let mut part = LogicalPlanBuilder::from(all);
        if let Some(filter) = &read.filter {
            let filter = self.consume_expression(filter, part.schema()).await?;
            part = part.filter(filter)?;
        }
        if let Some(mask) = &read.projection {
            let columns = masked(mask, part.schema())?;
            part = part.project(columns)?;
        }
        part.build()
    }

    async fn consume_exchange(&self, _exchange: &ExchangeRel) -> Result<LogicalPlan, DataFusionError> {
        not_impl_err!("an exchange relation")
    }

    fn push_outer_schema(&self, schema: Arc<DFSchema>) {
        self.outer.write().push(schema);
    }

    fn pop_outer_schema(&self) {
        self.outer.write().pop();
    }

    fn get_outer_schema(&self, steps_out: usize) -> Option<Arc<DFSchema>> {
        let outer = self.outer.read();
        outer.len().checked_sub(steps_out).and_then(|index| outer.get(index).cloned())
    }
}

impl Reader<'_> {
    /// A table, with the columns that the plan takes it to have, in the plan's order.
    async fn table(&self, table: &NamedTable, columns: Option<&NamedStruct>) -> Result<LogicalPlan, DataFusionError> {
        let name = match table.names.as_slice() {
            [table] => TableReference::bare(table.as_str()),
            [schema, table] => TableReference::partial(schema.as_str(), table.as_str()),
            [catalog, schema, table] => TableReference::full(catalog.as_str(), schema.as_str(), table.as_str()),
            _ => return plan_err!("a table has one to three names"),
        };
        let Some(columns) = columns else { return plan_err!("a relation that reads a table needs a base schema") };
        let Some(provider) = self.resolve_table_ref(&name).await? else {
            let defaults = &self.state.config_options().catalog;
            let name = name.resolve(&defaults.default_catalog, &defaults.default_schema);
            return plan_err!("table '{name}' not found");
        };
        let scan = LogicalPlanBuilder::scan(name.clone(), provider_as_source(provider), None)?;
        self.count(scan.plan())?;
        let mut taken = Vec::with_capacity(columns.names.len());
        for field in from_substrait_named_struct(self, columns)?.fields() {
            let (_, there) = scan.schema().qualified_field_with_unqualified_name(field.name())?;
            if !DFSchema::datatype_is_logically_equal(there.data_type(), field.data_type()) {
                return plan_err!(
                    "column `{}` of table `{}` is not of the type in the plan",
                    field.name(),
                    name.table()
                );
            }
            taken.push(Expr::Column(Column::new(Some(name.clone()), field.name())));
        }
        scan.project(taken)?.build()
    }

    /// A plan is small; what its views read need not be.
    fn count(&self, read: &LogicalPlan) -> Result<(), DataFusionError> {
        let relations = expansion::scans(read);
        let before = self.relations.fetch_add(relations, Ordering::Relaxed);
        if before.saturating_add(relations) > expansion::MAX_RELATIONS {
            return plan_err!("{}", expansion::too_many().sentence());
        }
        Ok(())
    }
}

/// The columns that a mask lets through.
fn masked(mask: &MaskExpression, schema: &DFSchema) -> Result<Vec<Expr>, DataFusionError> {
    let columns = schema.columns();
    let Some(select) = &mask.select else { return Ok(columns.into_iter().map(Expr::Column).collect()) };
    let mut taken = Vec::with_capacity(select.struct_items.len());
    for item in &select.struct_items {
        if item.child.is_some() {
            return not_impl_err!("a projection inside a column");
        }
        match usize::try_from(item.field).ok().and_then(|index| columns.get(index)) {
            Some(column) => taken.push(Expr::Column(column.clone())),
            None => return plan_err!("a projection names column {} of {}", item.field, columns.len()),
        }
    }
    Ok(taken)
}

/// Refuses what is not known to be harmless, and a few bytes that would become much.
fn check(relation: &Rel) -> Result<(), DataFusionError> {
    let common = match &relation.rel_type {
        Some(RelType::Aggregate(aggregate)) => {
            check_groupings(aggregate)?;
            aggregate.common.as_ref()
        }
        Some(RelType::Cross(cross)) if cross.left.is_none() || cross.right.is_none() => {
            return plan_err!("a cross join has two sides");
        }
        Some(RelType::Cross(cross)) => cross.common.as_ref(),
        Some(RelType::Fetch(fetch)) => fetch.common.as_ref(),
        Some(RelType::Filter(filter)) => filter.common.as_ref(),
        Some(RelType::Join(join)) => join.common.as_ref(),
        Some(RelType::Project(project)) => project.common.as_ref(),
        Some(RelType::Read(read)) => read.common.as_ref(),
        Some(RelType::Set(set)) => set.common.as_ref(),
        Some(RelType::Sort(sort)) => {
            check_sorts(&sort.sorts)?;
            sort.common.as_ref()
        }
        _ => {
            return not_impl_err!(
                "a relation that is not one of read, filter, project, join, aggregate, sort, set or fetch"
            );
        }
    };
    check_emit(common)
}

/// The reader copies a whole expression for each time that it is named.
fn check_emit(common: Option<&RelCommon>) -> Result<(), DataFusionError> {
    let Some(EmitKind::Emit(emit)) = common.and_then(|common| common.emit_kind.as_ref()) else { return Ok(()) };
    let mut named = HashMap::with_capacity(emit.output_mapping.len());
    for field in &emit.output_mapping {
        let times = named.entry(*field).or_insert(0_usize);
        *times = times.saturating_add(1);
        if *times > MAX_REPEATS {
            return plan_err!("a relation emits a field more than {MAX_REPEATS} times");
        }
    }
    Ok(())
}

fn check_groupings(aggregate: &AggregateRel) -> Result<(), DataFusionError> {
    let sizes: Vec<usize> = aggregate.grouping_expressions.iter().map(Message::encoded_len).collect();
    let mut copied = 0_usize;
    for reference in aggregate.groupings.iter().flat_map(|grouping| &grouping.expression_references) {
        let Some(size) = usize::try_from(*reference).ok().and_then(|index| sizes.get(index)) else {
            return plan_err!("a grouping names expression {reference} of {}", sizes.len());
        };
        copied = copied.saturating_add(*size);
        if copied > MAX_COPIED {
            return plan_err!("the groupings of an aggregate are too many for their expressions");
        }
    }
    let mut measures = aggregate.measures.iter().filter_map(|measure| measure.measure.as_ref());
    measures.try_for_each(|measure| check_sorts(&measure.sorts))
}

fn check_sorts(sorts: &[SortField]) -> Result<(), DataFusionError> {
    let directed = |sort: &SortField| match sort.sort_kind {
        Some(SortKind::Direction(direction)) => SortDirection::try_from(direction)
            .is_ok_and(|direction| !matches!(direction, SortDirection::Unspecified | SortDirection::Clustered)),
        Some(SortKind::ComparisonFunctionReference(_)) | None => false,
    };
    if sorts.iter().all(|sort| sort.expr.is_some() && directed(sort)) {
        return Ok(());
    }
    plan_err!("a sort needs an expression, and a direction with a place for nulls")
}

/// The version of Substrait that plans are read as.
pub(crate) const VERSION: &str = "0.85.0";
/// Times that a relation may emit one of its fields.
const MAX_REPEATS: usize = 16;
/// What the groupings of one aggregate may amount to, in bytes of the plan, each with its expressions written out.
const MAX_COPIED: usize = 1024 * 1024;
