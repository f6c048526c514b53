//! CREATE TABLE and CREATE TABLE AS: what is to be made, from a statement that was authorized.
//!
//! The rows are written by the cluster, as COPY to a place that only the gate chooses. Runs nothing.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::TableReference;
use datafusion::datasource::file_format::format_as_file_type;
use datafusion::datasource::file_format::parquet::ParquetFormatFactory;
use datafusion::logical_expr::{CreateMemoryTable, DdlStatement, DropTable, LogicalPlan, LogicalPlanBuilder};
use portcullis_auth::Access;

use super::access::{self, Asker, Place, writes};
use super::{Missing, SessionStatement, Unmaking, Work, failure, files, policy, wire_types};
use crate::catalog::guarded::{Guarded, Owner};
use crate::catalog::listing::MAX_COLUMNS;
use crate::status::{Class, Failure};
use crate::storage::{Draft, FullName, Keeping, Storage, Unless};

/// A table to be kept.
#[derive(Clone, Debug)]
pub struct Making {
    /// Where it is to be kept.
    pub(crate) storage: Arc<Storage>,
    /// Under which name.
    pub(crate) name: FullName,
    /// Where its rows go.
    pub(crate) draft: Draft,
    /// Its columns.
    pub(crate) schema: SchemaRef,
    /// What may stand in the way.
    pub(crate) unless: Unless,
    /// Its rows.
    pub(crate) rows: RowsOf,
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

/// What `table` asks for, whose maker has been found to be allowed to.
pub(super) async fn work(table: CreateMemoryTable, asker: &Asker<'_>) -> Result<Work, Failure> {
    let storage = storage(asker.keeping)?;
    let name = asker.full_name(&table.name);
    schema_of(&name, asker)?;
    let unless = match standing(&name, asker).await? {
        Standing::Free => Unless::Taken,
        Standing::Kept(access) if table.or_replace => match writes::drop_refusal(&table.name, &access, asker) {
            Some(refusal) => return Err(refusal),
            None => Unless::Never,
        },
        Standing::Kept(_) | Standing::Other if table.if_not_exists => return Ok(Work::Nothing),
        Standing::Kept(_) | Standing::Other => return Err(taken(&name)),
    };
    let query = Arc::unwrap_or_clone(table.input);
    let empty = matches!(&query, LogicalPlan::EmptyRelation(nothing) if !nothing.produce_one_row);
    let query = wire_types::readable(query)?;
    let schema = wire_types::declared(&query);
    fits(&schema)?;
    let draft = storage.draft().map_err(Failure::internal)?;
    let rows = if empty { RowsOf::Nothing } else { rows(query, &draft, asker).await? };
    Ok(Work::Make(Box::new(Making { storage: Arc::clone(storage), name, draft, schema, unless, rows })))
}

async fn rows(query: LogicalPlan, draft: &Draft, asker: &Asker<'_>) -> Result<RowsOf, Failure> {
    let place = access::place(&query)?;
    let query = policy::enforce(query, asker)?;
    let optimized = |plan: &LogicalPlan| asker.state.optimize(plan).map_err(|error| failure::of_planning(&error));
    match place {
        Place::Here => Ok(RowsOf::Here(optimized(&query)?)),
        Place::Cluster => {
            let parquet = format_as_file_type(Arc::new(ParquetFormatFactory::new()));
            let to = draft.place().to_string();
            let copy = LogicalPlanBuilder::copy_to(query, to, parquet, HashMap::new(), Vec::new())
                .and_then(LogicalPlanBuilder::build)
                .map_err(|error| failure::of_planning(&error))?;
            let copy = optimized(&copy)?;
            files::present(&copy, asker.state).await?;
            Ok(RowsOf::Cluster(copy))
        }
    }
}

/// What a DROP TABLE asks for: of a kept table here, of anything else in the session.
pub(super) async fn dropping(drop: DropTable, asker: &Asker<'_>) -> Result<Work, Failure> {
    let in_session = |drop| {
        let statement = SessionStatement::Ddl(LogicalPlan::Ddl(DdlStatement::DropTable(drop)));
        Ok(Work::Session(Box::new(statement)))
    };
    let name = asker.full_name(&drop.name);
    match standing(&name, asker).await? {
        Standing::Kept(access) => match writes::drop_refusal(&drop.name, &access, asker) {
            Some(refusal) => Err(refusal),
            None => {
                let missing = if drop.if_exists { Missing::Fine } else { Missing::Wrong };
                Ok(Work::Unmake(Unmaking { storage: Arc::clone(storage(asker.keeping)?), name, missing }))
            }
        },
        Standing::Free | Standing::Other => in_session(drop),
    }
}

/// What a name stands for in the asker's eyes.
enum Standing {
    /// Nothing.
    Free,
    /// A table that is kept, with which the asker may do this.
    Kept(Access),
    /// A configured table, or something of the session.
    Other,
}

async fn standing(name: &FullName, asker: &Asker<'_>) -> Result<Standing, Failure> {
    let catalog = asker.state.catalog_list().catalog(&name.catalog);
    let Some(schema) = catalog.and_then(|catalog| catalog.schema(&name.schema)) else { return Ok(Standing::Free) };
    let found = schema.table(&name.table).await.map_err(|error| failure::of_planning(&error))?;
    let Some(found) = found else { return Ok(Standing::Free) };
    Ok(match found.downcast_ref::<Guarded>() {
        Some(guarded) => match guarded.owner() {
            Owner::Catalog(_) | Owner::Session => Standing::Other,
            Owner::Kept(..) => Standing::Kept(asker.access_to(guarded)),
        },
        // A view of the session's.
        None => Standing::Other,
    })
}

/// A table can be made in the schemas that its maker sees.
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
            format!("the table would have more than {MAX_COLUMNS} columns"),
        ));
    }
    let mut names = BTreeSet::new();
    match schema.fields().iter().find(|field| !names.insert(field.name())) {
        Some(twice) => Err(Failure::about_request(
            Class::InvalidArgument,
            format!("the table would have two columns `{}`: give one another name with AS", twice.name()),
        )),
        None if schema.fields().is_empty() => {
            Err(Failure::new(Class::InvalidArgument, "the table would have no columns"))
        }
        None => Ok(()),
    }
}

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
