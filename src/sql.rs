//! From a statement's source to something that may run: caps, planning, authorization, the types clients can read.
//!
//! [`Statements::compile`] is the one way in; every RPC that carries SQL or a plan goes through it. Must not touch a
//! header, a `Status` or an address, and runs nothing itself.

pub mod access;
mod callable;
mod caps;
mod creation;
mod expansion;
pub(crate) mod failure;
mod files;
mod identity;
mod leakproof;
mod location;
mod planner;
mod policy;
pub mod settings;
#[cfg(feature = "substrait")]
pub(crate) mod substrait;
mod view_types;
mod views;
mod wire_types;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{DdlStatement, LogicalPlan, Statement};
use futures::executor::block_on;
use portcullis_auth::Authorizer;

use self::access::Asker;
use self::callable::callable;
pub use self::caps::SqlCaps;
pub use self::creation::{Keep, Making};
use self::planner::{Planner, PlannerError};
use crate::audit::StatementKind;
use crate::slots::{Full, Room, Slots};
use crate::status::{Class, Failure};
use crate::storage::{FullName, Keeping, Storage};
use crate::workspace::Workspace;

/// Compiles SQL within the limits of the configuration.
#[derive(Debug)]
pub struct Statements {
    caps: SqlCaps,
    authorizer: Arc<dyn Authorizer>,
    keeping: Keeping,
    planner: Planner,
    planning: Slots,
}

/// A statement as a client brings it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// SQL text.
    Sql(String),
    /// A plan of Substrait, as bytes of its protobuf message.
    #[cfg(feature = "substrait")]
    Substrait(bytes::Bytes),
}

impl Source {
    /// How the auditor knows it.
    pub(crate) fn wording(&self) -> Cow<'_, str> {
        match self {
            Self::Sql(sql) => Cow::Borrowed(sql),
            #[cfg(feature = "substrait")]
            Self::Substrait(plan) => Cow::Owned(format!("substrait:{}", crate::flight::hex(plan))),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Sql(sql) => sql.len(),
            #[cfg(feature = "substrait")]
            Self::Substrait(plan) => plan.len(),
        }
    }
}

/// A statement that was planned and authorized.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// What every schema source tells the client, nullability included (rule R9).
    pub schema: SchemaRef,
    /// What is to be done.
    pub work: Work,
    /// The session's state that it was planned in.
    pub state: Arc<SessionState>,
    /// What the auditor is told.
    pub facts: StatementFacts,
}

/// What a statement is, for the auditor.
#[derive(Clone, Debug)]
pub struct StatementFacts {
    /// Its kind.
    pub kind: StatementKind,
    /// The tables it reads or makes, with catalog and schema where it is known, each once.
    pub tables: Vec<String>,
}

/// One verdict per plan: where it runs.
#[derive(Clone, Debug)]
pub enum Work {
    /// Rows that are known already (EXPLAIN).
    Answer(RecordBatch),
    /// An optimized plan for the cluster.
    Cluster(LogicalPlan),
    /// An optimized plan that needs nothing but the gate: constants, `information_schema`.
    Here(LogicalPlan),
    /// A view to be kept.
    Keep(Box<Keep>),
    /// A table to be made.
    Make(Box<Making>),
    /// A statement that finds everything as it wants it, and answers with a count.
    Nothing,
    /// A statement that changes the session and answers with a count.
    Session(Box<SessionStatement>),
    /// A kept table or view that is to go.
    Unmake(Unmaking),
}

impl Work {
    fn in_session(ddl: DdlStatement) -> Self {
        Self::Session(Box::new(SessionStatement::Ddl(LogicalPlan::Ddl(ddl))))
    }
}

/// A kept table or view that is to go.
#[derive(Clone, Debug)]
pub struct Unmaking {
    /// Where it is kept.
    pub(crate) storage: Arc<Storage>,
    /// Its name.
    pub(crate) name: FullName,
    /// Whether it may be gone already.
    pub(crate) missing: Missing,
}

/// What is said of a table that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Fine,
    Wrong,
}

/// What changes a session.
#[derive(Clone, Debug)]
pub enum SessionStatement {
    /// CREATE VIEW, CREATE EXTERNAL TABLE, DROP VIEW, DROP TABLE: authorized, run through the session's own catalog.
    Ddl(LogicalPlan),
    /// RESET.
    Reset(String),
    /// SET.
    Set {
        /// The option's key.
        key: String,
        /// Its new value.
        value: String,
    },
}

impl Statements {
    /// A compiler with its own planning threads.
    pub fn new(caps: SqlCaps, authorizer: Arc<dyn Authorizer>, keeping: Keeping) -> std::io::Result<Self> {
        let planning = Slots::new(PLANNING);
        Ok(Self { caps, authorizer, keeping, planner: Planner::start(PLANNERS, QUEUE, PLANNING)?, planning })
    }

    /// The bytes of the longest statement.
    pub fn longest(&self) -> usize {
        self.caps.bytes
    }

    /// Plans one statement in `workspace` and decides about it. Nothing has run when this returns.
    pub async fn compile(&self, workspace: &Arc<Workspace>, source: &Source) -> Result<Compiled, Failure> {
        // Before anything is copied or queued.
        self.caps.check_length(source.len())?;
        let state = workspace.state().await?;
        let principal = workspace.principal().clone();
        let place = self.planning.take(principal.key(), PLANNING_ROOM).await.map_err(|Full| busy())?;
        let (source, caps, authorizer) = (source.clone(), self.caps.clone(), Arc::clone(&self.authorizer));
        let keeping = self.keeping.clone();
        self.planner
            .run(move || {
                // Until the thread is done, whether somebody still waits for it or not.
                let _place = place;
                let asker = Asker::new(&state, &principal, authorizer.as_ref(), &keeping);
                block_on(plan(&state, &source, &caps, &asker))
            })
            .await
            .map_err(|error| match error {
                PlannerError::Busy => busy(),
                PlannerError::Deadline => {
                    Failure::new(Class::ResourceExhausted, "the statement takes too long to plan; make it simpler")
                }
                PlannerError::Lost => Failure::internal("a planning thread ended"),
            })?
    }
}

fn busy() -> Failure {
    Failure::new(Class::ResourceExhausted, "too many statements are being planned at the moment")
        .retry_after(Duration::from_secs(1))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "all other plans are queries, and were authorized as such")]
async fn plan(
    state: &Arc<SessionState>,
    source: &Source,
    caps: &SqlCaps,
    asker: &Asker<'_>,
) -> Result<Compiled, Failure> {
    let plan = match source {
        Source::Sql(sql) => planned(sql, state, caps).await?,
        #[cfg(feature = "substrait")]
        Source::Substrait(plan) => substrait::planned(plan, state).await?,
    };
    // As the session planned it, with the names of kept views in it.
    let written = match &plan {
        LogicalPlan::Ddl(DdlStatement::CreateView(view)) => Some(Arc::clone(&view.input)),
        _ => None,
    };
    let mut tables = self::tables(&plan);
    let plan = views::expand(plan, asker, caps).await?;
    let plan = access::authorize(plan, asker)?;
    tables.append(&mut self::tables(&plan));
    let facts = StatementFacts { kind: kind(&plan), tables: tables.into_iter().collect() };
    let compiled = |schema: SchemaRef, work| Compiled { schema, work, state: Arc::clone(state), facts };
    match plan {
        LogicalPlan::Explain(explain) => {
            let optimized = optimized(Arc::unwrap_or_clone(explain.plan), state)?;
            let answer = explanation(&optimized)?;
            Ok(compiled(answer.schema(), Work::Answer(answer)))
        }
        LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(table)) => {
            Ok(compiled(count_schema(), creation::work(table, asker).await?))
        }
        LogicalPlan::Ddl(DdlStatement::CreateView(view)) => {
            Ok(compiled(count_schema(), creation::view(view, written.as_deref(), asker, caps).await?))
        }
        LogicalPlan::Ddl(drop @ (DdlStatement::DropTable(_) | DdlStatement::DropView(_))) => {
            Ok(compiled(count_schema(), creation::dropping(drop, asker).await?))
        }
        LogicalPlan::Ddl(ddl) => Ok(compiled(count_schema(), Work::in_session(ddl))),
        LogicalPlan::Statement(Statement::SetVariable(set)) => {
            let statement = SessionStatement::Set { key: set.variable, value: set.value };
            Ok(compiled(count_schema(), Work::Session(Box::new(statement))))
        }
        LogicalPlan::Statement(Statement::ResetVariable(reset)) => {
            let statement = SessionStatement::Reset(reset.variable);
            Ok(compiled(count_schema(), Work::Session(Box::new(statement))))
        }
        query => {
            if query_has_parameters(&query)? {
                // Not UNIMPLEMENTED: at that, ADBC takes another way and hides this sentence.
                return Err(Failure::new(Class::InvalidArgument, "a statement with parameters is not supported yet"));
            }
            let query = wire_types::readable(query)?;
            let schema = wire_types::declared(&query);
            let place = access::place(&query)?;
            let query = policy::enforce(query, asker)?;
            let optimized = optimized(query, state)?;
            if place == access::Place::Cluster {
                files::present(&optimized, state).await?;
            }
            Ok(compiled(
                schema,
                match place {
                    access::Place::Cluster => Work::Cluster(optimized),
                    access::Place::Here => Work::Here(optimized),
                },
            ))
        }
    }
}

/// An authorized query as it is handed over.
fn optimized(query: LogicalPlan, state: &SessionState) -> Result<LogicalPlan, Failure> {
    view_types::without(query).and_then(|query| state.optimize(&query)).map_err(|error| failure::of_planning(&error))
}

/// What a statement within the caps says; nothing is decided about it yet.
async fn planned(sql: &str, state: &SessionState, caps: &SqlCaps) -> Result<LogicalPlan, Failure> {
    caps.check(sql)?;
    let dialect = state.config_options().sql_parser.dialect;
    let mut statement =
        state.sql_to_statement(&callable(sql), &dialect).map_err(|error| failure::of_parsing(&error))?;
    caps.check_statement(&statement)?;
    expansion::check(&statement, state).await?;
    let temporary = creation::take_temporary(&mut statement);
    let mut plan = state.statement_to_plan(statement).await.map_err(|error| failure::of_planning(&error))?;
    if let LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(table)) = &mut plan {
        table.temporary = temporary;
    }
    Ok(plan)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "all other plans are queries")]
fn kind(plan: &LogicalPlan) -> StatementKind {
    match plan {
        LogicalPlan::Ddl(_) => StatementKind::Ddl,
        LogicalPlan::Dml(_) | LogicalPlan::Copy(_) => StatementKind::Dml,
        LogicalPlan::Explain(_) | LogicalPlan::Analyze(_) => StatementKind::Explain,
        LogicalPlan::Statement(_) => StatementKind::Set,
        _ => StatementKind::Select,
    }
}

/// As the plan was written, before an optimizer could drop a table that was asked for.
#[expect(clippy::wildcard_enum_match_arm, reason = "others name none")]
fn tables(plan: &LogicalPlan) -> BTreeSet<String> {
    let mut tables = BTreeSet::new();
    let found = plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::TableScan(scan) => drop(tables.insert(scan.table_name.to_string())),
            LogicalPlan::Ddl(ddl) => tables.extend(ddl_name(ddl)),
            _ => (),
        }
        Ok(TreeNodeRecursion::Continue)
    });
    // The closure does not fail.
    drop(found);
    tables
}

#[expect(clippy::wildcard_enum_match_arm, reason = "what has no table has no name here")]
fn ddl_name(ddl: &DdlStatement) -> Option<String> {
    match ddl {
        DdlStatement::CreateExternalTable(table) => Some(table.name.to_string()),
        DdlStatement::CreateMemoryTable(table) => Some(table.name.to_string()),
        DdlStatement::CreateView(view) => Some(view.name.to_string()),
        DdlStatement::DropTable(table) => Some(table.name.to_string()),
        DdlStatement::DropView(view) => Some(view.name.to_string()),
        _ => None,
    }
}

fn query_has_parameters(plan: &LogicalPlan) -> Result<bool, Failure> {
    plan.get_parameter_names().map(|names| !names.is_empty()).map_err(|error| failure::of_planning(&error))
}

/// EXPLAIN as the gate tells it: the logical plan, without files, addresses or how the cluster would go about it.
fn explanation(plan: &LogicalPlan) -> Result<RecordBatch, Failure> {
    let schema =
        Schema::new(vec![Field::new("plan_type", DataType::Utf8, false), Field::new("plan", DataType::Utf8, false)]);
    let columns: Vec<arrow::array::ArrayRef> = vec![
        Arc::new(StringArray::from(vec!["logical_plan"])),
        Arc::new(StringArray::from(vec![plan.display_indent().to_string()])),
    ];
    RecordBatch::try_new(Arc::new(schema), columns).map_err(Failure::internal)
}

/// What a statement without rows answers: one Int64 `count` (rule R13).
pub fn count_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("count", DataType::Int64, false)]))
}

impl Compiled {
    /// Whether the statement changes something, so that drivers must treat it as an update (rule R11).
    pub fn is_update(&self) -> bool {
        match self.work {
            Work::Keep(_) | Work::Make(_) | Work::Nothing | Work::Session(_) | Work::Unmake(_) => true,
            Work::Answer(_) | Work::Cluster(_) | Work::Here(_) => false,
        }
    }
}

/// The name that a DDL statement is about, for messages.
pub(crate) fn ddl_kind(ddl: &DdlStatement) -> &'static str {
    match ddl {
        DdlStatement::CreateExternalTable(_) => "CREATE EXTERNAL TABLE",
        DdlStatement::CreateMemoryTable(_) => "CREATE TABLE",
        DdlStatement::CreateView(_) => "CREATE VIEW",
        DdlStatement::CreateCatalogSchema(_) => "CREATE SCHEMA",
        DdlStatement::CreateCatalog(_) => "CREATE DATABASE",
        DdlStatement::CreateIndex(_) => "CREATE INDEX",
        DdlStatement::DropTable(_) => "DROP TABLE",
        DdlStatement::DropView(_) => "DROP VIEW",
        DdlStatement::DropCatalogSchema(_) => "DROP SCHEMA",
        DdlStatement::CreateFunction(_) => "CREATE FUNCTION",
        DdlStatement::DropFunction(_) => "DROP FUNCTION",
    }
}

/// Statements planned at the same time: planning is CPU work and a planner cannot be stopped, only waited for.
const PLANNERS: usize = 4;
/// Statements of one identity among them, so that nobody's heavy planning stops everybody's. Planning takes a
/// millisecond: many may wait for their turn.
const PLANNING_ROOM: Room = Room { places: 3, waiting: 512 };
const QUEUE: usize = 1024;
const PLANNING: Duration = Duration::from_secs(10);

pub(crate) use self::access::ABOUT_FILES;
pub(crate) use self::creation::{Lasts, RowsOf, taken};
pub(crate) use self::identity::functions as identity_functions;
pub(crate) use self::wire_types::client_type;
