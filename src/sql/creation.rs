//! CREATE TABLE, CREATE TABLE AS and CREATE VIEW: what is to be made and where, from a statement that was authorized.
//!
//! The rows of a table are written by the cluster, as COPY to a place that only the gate chooses. Runs nothing.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::datasource::file_format::format_as_file_type;
use datafusion::datasource::file_format::parquet::ParquetFormatFactory;
use datafusion::logical_expr::{
    CreateMemoryTable, CreateView, DdlStatement, LogicalPlan, LogicalPlanBuilder, TableType,
};
use datafusion::sql::parser::Statement as ParsedStatement;
use datafusion::sql::sqlparser::ast::{OnCommit, Statement as Sql};
use portcullis_auth::{Access, Action};

use super::access::{self, Asker, Place, writes};
use super::caps::SqlCaps;
use super::{Missing, Unmaking, Work, failure, files, optimized, policy, views, wire_types};
use crate::catalog::guarded::{Guarded, Owner};
use crate::catalog::listing::MAX_COLUMNS;
use crate::config::Views;
use crate::status::{Class, Failure};
use crate::storage::{Definition, Draft, FullName, Keeping, Storage, Unless};

/// A table to be made.
#[derive(Clone, Debug)]
pub struct Making {
    /// Where its rows are to be kept.
    pub(crate) storage: Arc<Storage>,
    /// Under which name.
    pub(crate) name: FullName,
    /// Where its rows go.
    pub(crate) draft: Draft,
    /// Its columns.
    pub(crate) schema: SchemaRef,
    /// For whom it is.
    pub(crate) lasts: Lasts,
    /// Its rows.
    pub(crate) rows: RowsOf,
}

/// How long a table is to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lasts {
    /// Until it is dropped; what may stand in the way.
    Kept(Unless),
    /// With the session.
    Session,
}

/// A view to be kept.
#[derive(Clone, Debug)]
pub struct Keep {
    /// Where it is to be kept.
    pub(crate) storage: Arc<Storage>,
    /// Under which name.
    pub(crate) name: FullName,
    /// What it reads.
    pub(crate) definition: Definition,
    /// Its columns.
    pub(crate) schema: SchemaRef,
    /// What may stand in the way.
    pub(crate) unless: Unless,
}

/// Where the rows of a new table come from.
#[derive(Clone, Debug)]
pub(crate) enum RowsOf {
    /// An optimized plan for the cluster, which writes them and answers with their number.
    Cluster(LogicalPlan),
    /// An optimized plan whose rows the gate writes: constants, `information_schema`.
    Here(LogicalPlan),
    /// There are none.
    Nothing,
}

/// Whether a statement makes a temporary table; the engine's planner knows no such tables, so that is taken from it,
/// and what else says that it is the session's (as Tableau writes it).
pub(super) fn take_temporary(statement: &mut ParsedStatement) -> bool {
    let ParsedStatement::Statement(statement) = statement else { return false };
    let Sql::CreateTable(table) = statement.as_mut() else { return false };
    if !std::mem::take(&mut table.temporary) {
        return false;
    }
    table.global.take_if(|global| !*global);
    table.on_commit.take_if(|on_commit| *on_commit == OnCommit::PreserveRows);
    true
}

/// What `table` asks for, whose maker has been found to be allowed to.
pub(super) async fn work(table: CreateMemoryTable, asker: &Asker<'_>) -> Result<Work, Failure> {
    let storage = storage(asker.keeping)?;
    let name = asker.full_name(&table.name);
    schema_of(&name, asker)?;
    let lasts = match standing(&name, asker).await? {
        Standing::Free if table.temporary => Lasts::Session,
        Standing::Free => Lasts::Kept(Unless::Taken),
        Standing::Own if table.temporary && table.or_replace => Lasts::Session,
        Standing::Kept(access, kind) if table.or_replace && !table.temporary => {
            may_go(&table.name, &access, asker)?;
            is_a(TableType::Base, kind, &name)?;
            Lasts::Kept(Unless::Never)
        }
        Standing::Kept(..) | Standing::Other | Standing::Own if table.if_not_exists => return Ok(Work::Nothing),
        Standing::Kept(..) | Standing::Other | Standing::Own => return Err(taken(&name)),
    };
    let query = Arc::unwrap_or_clone(table.input);
    let empty = matches!(&query, LogicalPlan::EmptyRelation(nothing) if !nothing.produce_one_row);
    let query = wire_types::readable(query)?;
    let schema = wire_types::declared(&query);
    fits(&schema)?;
    let draft = storage.draft().map_err(Failure::internal)?;
    let rows = if empty { RowsOf::Nothing } else { rows(query, &draft, asker).await? };
    Ok(Work::Make(Box::new(Making { storage: Arc::clone(storage), name, draft, schema, lasts, rows })))
}

async fn rows(query: LogicalPlan, draft: &Draft, asker: &Asker<'_>) -> Result<RowsOf, Failure> {
    let place = access::place(&query)?;
    let query = policy::enforce(query, asker)?;
    match place {
        Place::Here => Ok(RowsOf::Here(optimized(query, asker.state)?)),
        Place::Cluster => {
            let parquet = format_as_file_type(Arc::new(ParquetFormatFactory::new()));
            let to = draft.place().to_string();
            let copy = LogicalPlanBuilder::copy_to(query, to, parquet, HashMap::new(), Vec::new())
                .and_then(LogicalPlanBuilder::build)
                .map_err(|error| failure::of_planning(&error))?;
            let copy = optimized(copy, asker.state)?;
            files::present(&copy, asker.state).await?;
            Ok(RowsOf::Cluster(copy))
        }
    }
}

/// Where `view` goes: it is kept when its maker may create there and it means the same to others, and is the session's
/// otherwise. `written` is what it reads before kept views were put into that.
pub(super) async fn view(
    view: CreateView,
    written: Option<&LogicalPlan>,
    asker: &Asker<'_>,
    caps: &SqlCaps,
) -> Result<Work, Failure> {
    let name = asker.full_name(&view.name);
    let may = asker.authorizer.table(asker.principal, name.as_name()).allows(Action::Create);
    let (Keeping::At(storage), Some(written), true) = (asker.keeping, written, may) else {
        return Ok(in_session(view));
    };
    if view.temporary || storage.views() == Views::InSession {
        return Ok(in_session(view));
    }
    schema_of(&name, asker)?;
    let unless = match standing(&name, asker).await? {
        Standing::Free => Unless::Taken,
        Standing::Kept(access, kind) if view.or_replace => {
            may_go(&view.name, &access, asker)?;
            is_a(TableType::View, kind, &name)?;
            Unless::Never
        }
        Standing::Kept(..) => return Err(taken(&name)),
        Standing::Other | Standing::Own => return Ok(in_session(view)),
    };
    let Some(definition) = views::definition(&view, written, asker, caps).await else {
        return Ok(in_session(view));
    };
    if let Some(refusal) = writes::name_refusal(&name) {
        return Err(refusal);
    }
    let schema = Arc::clone(view.input.schema().inner());
    fits(&schema)?;
    if definition.sql.len() > MAX_DEFINITION {
        return Err(Failure::about_request(
            Class::InvalidArgument,
            format!("a view that is kept has at most {MAX_DEFINITION} bytes of SQL; a temporary one may have more"),
        ));
    }
    Ok(Work::Keep(Box::new(Keep { storage: Arc::clone(storage), name, definition, schema, unless })))
}

fn in_session(mut view: CreateView) -> Work {
    // To the engine there are no others.
    view.temporary = false;
    Work::in_session(DdlStatement::CreateView(view))
}

/// What a DROP asks for: of what is kept here, of anything else in the session.
pub(super) async fn dropping(drop: DdlStatement, asker: &Asker<'_>) -> Result<Work, Failure> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "what else there is to drop was refused before")]
    let (written, if_exists, kind) = match &drop {
        DdlStatement::DropTable(table) => (&table.name, table.if_exists, TableType::Base),
        DdlStatement::DropView(view) => (&view.name, view.if_exists, TableType::View),
        _ => return Ok(Work::in_session(drop)),
    };
    let name = asker.full_name(written);
    match standing(&name, asker).await? {
        Standing::Kept(access, is) => {
            may_go(written, &access, asker)?;
            is_a(kind, is, &name)?;
            let missing = if if_exists { Missing::Fine } else { Missing::Wrong };
            Ok(Work::Unmake(Unmaking { storage: Arc::clone(storage(asker.keeping)?), name, missing }))
        }
        Standing::Free | Standing::Other | Standing::Own => Ok(Work::in_session(drop)),
    }
}

fn may_go(written: &TableReference, access: &Access, asker: &Asker<'_>) -> Result<(), Failure> {
    writes::drop_refusal(written, access, asker).map_or(Ok(()), Err)
}

/// A view is not dropped or replaced as a table, nor a table as a view.
fn is_a(wanted: TableType, is: TableType, name: &FullName) -> Result<(), Failure> {
    if wanted == is {
        return Ok(());
    }
    let what = if is == TableType::View { "a view" } else { "a table" };
    Err(Failure::about_request(Class::InvalidArgument, format!("`{}` is {what}", name.table)))
}

/// What a name stands for in the asker's eyes.
enum Standing {
    /// Nothing.
    Free,
    /// A table or a view that is kept, with which the asker may do this.
    Kept(Access, TableType),
    /// A table of the session's.
    Own,
    /// A configured table, or a view of the session's.
    Other,
}

async fn standing(name: &FullName, asker: &Asker<'_>) -> Result<Standing, Failure> {
    let catalog = asker.state.catalog_list().catalog(&name.catalog);
    let Some(schema) = catalog.and_then(|catalog| catalog.schema(&name.schema)) else { return Ok(Standing::Free) };
    let found = schema.table(&name.table).await.map_err(|error| failure::of_planning(&error))?;
    let Some(found) = found else { return Ok(Standing::Free) };
    Ok(match found.downcast_ref::<Guarded>() {
        Some(guarded) => match guarded.owner() {
            Owner::Catalog(_) => Standing::Other,
            Owner::Session => Standing::Own,
            Owner::Kept(..) => Standing::Kept(asker.access_to(guarded), guarded.table_type()),
        },
        // A view of the session's.
        None => Standing::Other,
    })
}

/// A table or a view can be made in the schemas that its maker sees.
fn schema_of(name: &FullName, asker: &Asker<'_>) -> Result<(), Failure> {
    let catalog = asker.state.catalog_list().catalog(&name.catalog);
    match catalog.and_then(|catalog| catalog.schema(&name.schema)) {
        Some(_) => Ok(()),
        None => Err(Failure::about_request(
            Class::InvalidArgument,
            format!("there is no schema `{}.{}`", name.catalog, name.schema),
        )),
    }
}

fn storage(keeping: &Keeping) -> Result<&Arc<Storage>, Failure> {
    match keeping {
        Keeping::At(storage) => Ok(storage),
        Keeping::Nowhere => Err(Failure::unimplemented("CREATE TABLE")),
    }
}

pub(crate) fn taken(name: &FullName) -> Failure {
    Failure::about_request(Class::InvalidArgument, format!("table `{}` already exists", name.table))
}

/// The schema of a table, of which every column can be named.
fn fits(schema: &SchemaRef) -> Result<(), Failure> {
    if schema.flattened_fields().len() > MAX_COLUMNS {
        return Err(Failure::about_request(
            Class::InvalidArgument,
            format!("there would be more than {MAX_COLUMNS} columns"),
        ));
    }
    let mut names = BTreeSet::new();
    match schema.fields().iter().find(|field| !names.insert(field.name())) {
        Some(twice) => Err(Failure::about_request(
            Class::InvalidArgument,
            format!("there would be two columns `{}`: give one another name with AS", twice.name()),
        )),
        None if schema.fields().is_empty() => Err(Failure::new(Class::InvalidArgument, "there would be no columns")),
        None => Ok(()),
    }
}

/// All views are in memory.
const MAX_DEFINITION: usize = 64 * 1024;
/// The longest name of a table, in bytes: it becomes a part of a path.
pub(super) const MAX_NAME: usize = 80;

impl Asker<'_> {
    /// A name as the session's defaults make it whole.
    pub(super) fn full_name(&self, name: &TableReference) -> FullName {
        let defaults = &self.state.config_options().catalog;
        let name = name.clone().resolve(&defaults.default_catalog, &defaults.default_schema);
        FullName { catalog: name.catalog.to_string(), schema: name.schema.to_string(), table: name.table.to_string() }
    }
}
