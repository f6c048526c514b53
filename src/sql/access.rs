//! The one authorization function: what a plan may do, and where it may run.
//!
//! Every plan passes [`authorize`] before anything runs, whichever RPC and form it came in. Starts from *no*: a node
//! that is not known to be harmless is refused. No I/O except the look at a local path that a location rule needs.

pub(super) mod writes;

use std::cell::OnceCell;
use std::sync::Arc;

use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, TableReference};
use datafusion::config::ConfigOptions;
use datafusion::datasource::source_as_provider;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::functions_table::generate_series::GenerateSeriesTable;
use datafusion::logical_expr::{
    CreateExternalTable, DdlStatement, LogicalPlan, LogicalPlanBuilder, Statement, TableScan, WriteOp, lit,
};
use datafusion::prelude::Expr;
use datafusion::sql::sqlparser::ast::ExprWithAlias;
use portcullis_auth::{Access, Action, Authorizer, Decision, Principal, Reach};
use url::Url;

use super::{ddl_kind, failure, location, policy, settings};
use crate::access::expression;
use crate::catalog::guarded::{Guarded, Owner};
use crate::status::{Class, Failure};
use crate::storage::Keeping;

/// The one whose statement is judged, and who decides.
pub(super) struct Asker<'a> {
    /// What the statement was planned in.
    pub(super) state: &'a SessionState,
    /// Whose statement it is.
    pub(super) principal: &'a Principal,
    /// The policy.
    pub(super) authorizer: &'a dyn Authorizer,
    /// Where tables can be kept.
    pub(super) keeping: &'a Keeping,
    /// What the policy's own SQL is planned in.
    policy_state: OnceCell<SessionState>,
}

impl<'a> Asker<'a> {
    pub(super) fn new(
        state: &'a SessionState,
        principal: &'a Principal,
        authorizer: &'a dyn Authorizer,
        keeping: &'a Keeping,
    ) -> Self {
        Self { state, principal, authorizer, keeping, policy_state: OnceCell::new() }
    }

    /// What may be done with a table; all with one's own.
    pub(super) fn access_to(&self, table: &Guarded) -> Access {
        match table.owner() {
            Owner::Catalog(name) => self.authorizer.table(self.principal, name.as_name()),
            Owner::Kept(_, maker) if maker.is(self.principal.key()) => Access::to(Action::ALL),
            Owner::Kept(name, _) => self.authorizer.table(self.principal, name.as_name()),
            Owner::Session => Access::to(Action::ALL),
        }
    }

    /// A policy's SQL over the columns of a table. What the client has set for its own SQL has no part in it.
    pub(super) fn expression(&self, text: &str, schema: &DFSchema) -> Result<Expr, DataFusionError> {
        let parsed = expression::parse(text).map_err(|unusable| DataFusionError::Plan(unusable.to_string()))?;
        let state = self.policy_state.get_or_init(|| {
            let mut state = self.state.clone();
            let options = state.config_mut().options_mut();
            let plain = ConfigOptions::new();
            options.sql_parser = plain.sql_parser;
            options.execution.time_zone = plain.execution.time_zone;
            state
        });
        state.create_logical_expr_from_sql_expr(ExprWithAlias { expr: parsed, alias: None }, schema)
    }

    fn may_read(&self, location: &Url) -> bool {
        self.may_reach(location, Reach::Read)
    }

    fn may_write(&self, location: &Url) -> bool {
        self.may_reach(location, Reach::Write)
    }

    fn may_reach(&self, location: &Url, reach: Reach) -> bool {
        // No rule gives away where everybody's tables are, however it came to be written.
        let reserved = match self.keeping {
            Keeping::At(storage) => storage.overlaps(location),
            Keeping::Nowhere => false,
        };
        !reserved && self.authorizer.location(self.principal, location.as_str(), reach) == Decision::Allow
    }
}

/// Where an authorized query runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the cluster.
    Cluster,
    /// In the gate: constants and `information_schema`.
    Here,
}

/// Decides about a plan as SQL made it, before optimization, and gives back what may run.
#[expect(clippy::wildcard_enum_match_arm, reason = "all others are queries, whose nodes are judged one by one")]
pub(super) fn authorize(plan: LogicalPlan, asker: &Asker<'_>) -> Result<LogicalPlan, Failure> {
    match plan {
        LogicalPlan::Ddl(ddl) => authorize_ddl(ddl, asker).map(LogicalPlan::Ddl),
        LogicalPlan::Statement(statement) => authorize_statement(statement, asker.state),
        LogicalPlan::Explain(mut explain) => {
            explain.plan = Arc::new(query(Arc::unwrap_or_clone(explain.plan), asker)?);
            if explain.verbose && policy::hides(&explain.plan, asker)? {
                return Err(Failure::new(
                    Class::PermissionDenied,
                    "EXPLAIN VERBOSE is not for a statement over tables of which you may see a part only",
                ));
            }
            Ok(LogicalPlan::Explain(explain))
        }
        other => query(other, asker),
    }
}

fn authorize_ddl(ddl: DdlStatement, asker: &Asker<'_>) -> Result<DdlStatement, Failure> {
    match ddl {
        DdlStatement::CreateView(mut view) => {
            view.input = Arc::new(query(Arc::unwrap_or_clone(view.input), asker)?);
            Ok(DdlStatement::CreateView(view))
        }
        DdlStatement::CreateExternalTable(table) => {
            external_table(*table, asker).map(|table| DdlStatement::CreateExternalTable(Box::new(table)))
        }
        DdlStatement::CreateMemoryTable(mut table) => {
            if let Some(refusal) = writes::creation_refusal(&table, asker) {
                return Err(refusal);
            }
            table.input = Arc::new(query(Arc::unwrap_or_clone(table.input), asker)?);
            Ok(DdlStatement::CreateMemoryTable(table))
        }
        // Who may drop a kept table is asked when it is known to be one; the session's catalog refuses to drop what the
        // session did not make.
        DdlStatement::DropTable(_) | DdlStatement::DropView(_) => Ok(ddl),
        DdlStatement::CreateCatalogSchema(_)
        | DdlStatement::CreateCatalog(_)
        | DdlStatement::CreateIndex(_)
        | DdlStatement::DropCatalogSchema(_)
        | DdlStatement::CreateFunction(_)
        | DdlStatement::DropFunction(_) => Err(Failure::unimplemented(ddl_kind(&ddl))),
    }
}

fn external_table(mut table: CreateExternalTable, asker: &Asker<'_>) -> Result<CreateExternalTable, Failure> {
    if table.unbounded {
        return Err(Failure::unimplemented("CREATE UNBOUNDED EXTERNAL TABLE"));
    }
    if !FORMATS.contains(&table.file_type.as_str()) {
        return Err(Failure::about_request(
            Class::Unimplemented,
            format!("an external table of format `{}` is not supported", table.file_type),
        ));
    }
    // Other options carry endpoints and credentials of stores.
    if let Some(option) = table.options.keys().find(|key| !key.to_ascii_lowercase().starts_with("format.")) {
        return Err(Failure::about_request(Class::PermissionDenied, format!("option `{option}` may not be set")));
    }
    let mut allowed = Vec::with_capacity(table.locations.len());
    for location in &table.locations {
        let real = location::read_at(location).filter(|real| asker.may_read(real)).ok_or_else(denied_location)?;
        allowed.push(real.to_string());
    }
    if allowed.is_empty() {
        return Err(denied_location());
    }
    // What was checked is what is read.
    table.locations = allowed;
    // The definition would tell others of the session's identity the path again through SHOW CREATE TABLE.
    table.definition = None;
    Ok(table)
}

/// One text whether the place is forbidden, absent or unreadable, so that nothing can be probed.
fn denied_location() -> Failure {
    Failure::new(Class::PermissionDenied, "the location is not one that you may read")
}

fn authorize_statement(statement: Statement, state: &SessionState) -> Result<LogicalPlan, Failure> {
    match &statement {
        Statement::SetVariable(set) => {
            let mut options = state.config_options().as_ref().clone();
            settings::apply(&mut options, &set.variable, &set.value)
                .map_err(|refused| refused.into_failure(&set.variable, &set.value))?;
        }
        Statement::ResetVariable(reset) => {
            settings::bound(&reset.variable).map_err(|refused| refused.into_failure(&reset.variable, ""))?;
        }
        Statement::TransactionStart(_) | Statement::TransactionEnd(_) => {
            return Err(Failure::unimplemented("a transaction"));
        }
        Statement::Prepare(_) | Statement::Execute(_) | Statement::Deallocate(_) => {
            return Err(Failure::unimplemented("PREPARE in SQL"));
        }
    }
    Ok(LogicalPlan::Statement(statement))
}

/// A plan that reads only what may be read, all the way down, and writes nothing.
pub(super) fn query(plan: LogicalPlan, asker: &Asker<'_>) -> Result<LogicalPlan, Failure> {
    let mut nodes = 0_usize;
    let mut refused = None;
    let mut unsupported = None;
    plan.apply_with_subqueries(|node| {
        nodes = nodes.saturating_add(1);
        refused = if nodes > MAX_NODES { Some(too_large()) } else { node_refusal(node, asker) };
        if refused.is_none() {
            // Said only to those who might have asked for it.
            unsupported = unsupported.take().or_else(|| unsupported_write(node));
            node.apply_expressions(|expression| {
                expression.apply(|part| {
                    refused = expression_refusal(part);
                    Ok(if refused.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
                })
            })?;
        }
        Ok(if refused.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })
    .map_err(|error| failure::of_planning(&error))?;
    match refused.or(unsupported) {
        Some(refusal) => Err(refusal),
        None => only_settable_options(plan),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "functions are looked up in the session, which has no others")]
fn expression_refusal(expression: &Expr) -> Option<Failure> {
    match expression {
        Expr::SetComparison(_) => Some(Failure::unimplemented("a comparison with ANY or ALL of a subquery")),
        // The session has no such function; a plan that was not made from SQL may.
        Expr::ScalarFunction(call) if ABOUT_FILES.contains(&call.name()) => {
            Some(Failure::about_request(Class::InvalidArgument, format!("there is no function `{}`", call.name())))
        }
        _ => None,
    }
}

/// Starts from *no*: only what the session's catalog handed out, and what holds no data of anybody's.
fn scan_refusal(scan: &TableScan, asker: &Asker<'_>) -> Option<Failure> {
    if let Some(guarded) = policy::guarded(scan) {
        return table_refusal(&scan.table_name, guarded.table(), asker);
    }
    let harmless = is_information_schema(&scan.table_name)
        || source_as_provider(&scan.source)
            .is_ok_and(|provider| provider.is::<CteWorkTable>() || provider.is::<GenerateSeriesTable>());
    (!harmless).then(|| Failure::unimplemented("this kind of table"))
}

/// Why a table may not be read, if so.
pub(super) fn table_refusal(name: &TableReference, table: Option<&Guarded>, asker: &Asker<'_>) -> Option<Failure> {
    match table.map_or_else(Access::none, |table| asker.access_to(table)) {
        access if access.allows(Action::Select) => None,
        // A view may name a table that has been taken away.
        access if access.is_none() => Some(not_found(name, asker)),
        _ => {
            Some(Failure::about_request(Class::PermissionDenied, format!("you may not read table `{}`", name.table())))
        }
    }
}

/// In the words of the planner, so that what is hidden and what is absent read alike.
fn not_found(name: &TableReference, asker: &Asker<'_>) -> Failure {
    let defaults = &asker.state.config_options().catalog;
    let name = name.clone().resolve(&defaults.default_catalog, &defaults.default_schema);
    failure::of_planning(&DataFusionError::Plan(format!("table '{name}' not found")))
}

fn node_refusal(node: &LogicalPlan, asker: &Asker<'_>) -> Option<Failure> {
    match node {
        LogicalPlan::TableScan(scan) => scan_refusal(scan, asker),
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::EmptyRelation(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Values(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::DescribeTable(_)
        | LogicalPlan::Unnest(_)
        | LogicalPlan::RecursiveQuery(_) => None,
        LogicalPlan::Dml(dml) => writes::refusal(dml, asker),
        LogicalPlan::Copy(copy) => writes::copy_refusal(copy, asker),
        LogicalPlan::Analyze(_) => Some(Failure::unimplemented("EXPLAIN ANALYZE")),
        LogicalPlan::Explain(_) => Some(Failure::unimplemented("EXPLAIN inside a statement")),
        LogicalPlan::Ddl(ddl) => Some(Failure::unimplemented(ddl_kind(ddl))),
        LogicalPlan::Statement(_) => Some(Failure::unimplemented("a session statement inside a statement")),
        LogicalPlan::Extension(_) => Some(Failure::unimplemented("an extension of the engine")),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "what is not asked for here is judged as a node")]
fn unsupported_write(node: &LogicalPlan) -> Option<Failure> {
    match node {
        LogicalPlan::Dml(dml) => Some(Failure::unimplemented(match dml.op {
            WriteOp::Insert(_) => "INSERT",
            WriteOp::Delete => "DELETE",
            WriteOp::Update => "UPDATE",
            WriteOp::Ctas => "CREATE TABLE AS",
            WriteOp::Truncate => "TRUNCATE",
            _ => "a write",
        })),
        LogicalPlan::Copy(_) => Some(Failure::unimplemented("COPY")),
        _ => None,
    }
}

fn too_large() -> Failure {
    Failure::about_request(Class::InvalidArgument, format!("the statement expands to more than {MAX_NODES} plan nodes"))
}

/// `information_schema.df_settings` (and with it SHOW) shows the options a session may set; the others hold paths.
fn only_settable_options(plan: LogicalPlan) -> Result<LogicalPlan, Failure> {
    plan.transform_down_with_subqueries(|node| {
        let LogicalPlan::TableScan(scan) = &node else { return Ok(Transformed::no(node)) };
        if !is_information_schema(&scan.table_name) || !scan.table_name.table().eq_ignore_ascii_case("df_settings") {
            return Ok(Transformed::no(node));
        }
        let name = Expr::Column(Column::new(Some(scan.table_name.clone()), "name"));
        let visible = settings::SETTABLE.iter().map(|(key, _)| lit(*key)).collect();
        let filtered = LogicalPlanBuilder::from(node).filter(name.in_list(visible, false))?.build()?;
        Ok(Transformed::new(filtered, true, TreeNodeRecursion::Jump))
    })
    .map(|transformed| transformed.data)
    .map_err(|error| failure::of_planning(&error))
}

/// Where the plan can run, by what it reads.
#[expect(clippy::wildcard_enum_match_arm, reason = "only leaves that read something decide")]
pub(super) fn place(plan: &LogicalPlan) -> Result<Place, Failure> {
    let (mut here, mut cluster) = (0_usize, 0_usize);
    plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::TableScan(scan) if policy::guarded(scan).is_some() => cluster = cluster.saturating_add(1),
            LogicalPlan::TableScan(_) | LogicalPlan::DescribeTable(_) => here = here.saturating_add(1),
            _ => (),
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map_err(|error| failure::of_planning(&error))?;
    match (here, cluster) {
        (_, 0) => Ok(Place::Here),
        (0, _) => Ok(Place::Cluster),
        (_, _) => Err(Failure::new(
            Class::Unimplemented,
            "a statement that reads tables cannot read information_schema or a table function as well",
        )),
    }
}

fn is_information_schema(name: &TableReference) -> bool {
    name.schema().is_some_and(|schema| schema.eq_ignore_ascii_case("information_schema"))
}

/// A chain of views or common table expressions that each read the one before twice doubles the plan at each step.
const MAX_NODES: usize = 10_000;
const FORMATS: &[&str] = &["PARQUET", "CSV", "JSON", "ARROW", "AVRO"];
/// Functions that tell where on the server a row was read.
pub(crate) const ABOUT_FILES: &[&str] = &["input_file_name", "file_row_index"];
