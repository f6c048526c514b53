//! Catalogs, schemas, tables, table types and keys, from the session's real catalog.
//!
//! What the session's state does not hold does not exist here either. Schemas are the specification's to the byte
//! (rule R19). Names are filtered before anything is opened, and what is opened is opened a few at a time, so that a
//! catalog far away costs no more than the question needs (rule R23). Must not plan SQL.

mod columns;
mod keys;
mod pattern;

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow_flight::sql::metadata::{GetDbSchemasBuilder, GetTablesBuilder};
use arrow_flight::sql::{CommandGetCatalogs, CommandGetDbSchemas, CommandGetTableTypes, CommandGetTables};
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::logical_expr::TableType;
use futures::{StreamExt, TryStreamExt};

pub(super) use self::columns::sql_type_name;
use self::pattern::Pattern;
use super::command::Metadata;
use super::sql_info::{self, Facts};
use super::xdbc_types;
use crate::sql::failure;
use crate::status::Failure;

/// The schema of a metadata command's answer.
pub(super) fn schema(command: &Metadata) -> SchemaRef {
    match command {
        Metadata::Catalogs => CommandGetCatalogs {}.into_builder().schema(),
        Metadata::CrossReference(_) | Metadata::ExportedKeys(_) | Metadata::ImportedKeys(_) => keys::foreign_schema(),
        Metadata::DbSchemas(_) => db_schemas_builder().schema(),
        Metadata::PrimaryKeys(_) => keys::primary_schema(),
        Metadata::SqlInfo(_) => sql_info::schema(),
        Metadata::TableTypes => CommandGetTableTypes {}.into_builder().schema(),
        Metadata::Tables(command) => tables_builder(command).schema(),
        Metadata::XdbcTypeInfo(_) => xdbc_types::schema(),
    }
}

/// The answer to a metadata command.
pub(super) async fn answer(command: Metadata, state: &SessionState, facts: &Facts) -> Result<RecordBatch, Failure> {
    match command {
        Metadata::Catalogs => {
            let mut builder = CommandGetCatalogs {}.into_builder();
            for name in state.catalog_list().catalog_names() {
                builder.append(name);
            }
            builder.build().map_err(Failure::internal)
        }
        Metadata::CrossReference(_) | Metadata::ExportedKeys(_) | Metadata::ImportedKeys(_) => {
            Ok(RecordBatch::new_empty(keys::foreign_schema()))
        }
        Metadata::DbSchemas(command) => db_schemas(command, state),
        Metadata::PrimaryKeys(command) => keys::primary(command, state).await,
        Metadata::SqlInfo(command) => sql_info::answer(command, state, facts),
        Metadata::TableTypes => {
            let mut builder = CommandGetTableTypes {}.into_builder();
            for kind in KINDS {
                builder.append(type_name(kind));
            }
            builder.build().map_err(Failure::internal)
        }
        Metadata::Tables(command) => tables(command, state).await,
        Metadata::XdbcTypeInfo(command) => xdbc_types::answer(command),
    }
}

/// A table, or the name of one, in the schema that may hold it.
#[derive(Clone, Debug)]
struct Place {
    catalog: String,
    schema: String,
    table: String,
    provider: Arc<dyn SchemaProvider>,
}

fn db_schemas(command: CommandGetDbSchemas, state: &SessionState) -> Result<RecordBatch, Failure> {
    let wanted = pattern(command.db_schema_filter_pattern.as_deref())?;
    let mut builder = db_schemas_builder();
    for (catalog, schema, _) in schemas(state, command.catalog.as_deref()) {
        if fits(wanted.as_ref(), &schema)? {
            builder.append(&catalog, schema);
        }
    }
    builder.build().map_err(Failure::internal)
}

async fn tables(command: CommandGetTables, state: &SessionState) -> Result<RecordBatch, Failure> {
    let wanted_schema = pattern(command.db_schema_filter_pattern.as_deref())?;
    let wanted_table = pattern(command.table_name_filter_pattern.as_deref())?;
    let mut places = Vec::new();
    for (catalog, schema, provider) in schemas(state, command.catalog.as_deref()) {
        if !fits(wanted_schema.as_ref(), &schema)? {
            continue;
        }
        for table in provider.table_names() {
            if fits(wanted_table.as_ref(), &table)? {
                let (catalog, schema, provider) = (catalog.clone(), schema.clone(), Arc::clone(&provider));
                places.push(Place { catalog, schema, table, provider });
            }
        }
    }
    if command.include_schema {
        if !command.table_types.is_empty() {
            places = of_types(places, &command.table_types).await?.into_iter().map(|(place, _)| place).collect();
        }
        let opened = open_all(places).await?;
        let rows = opened.into_iter().map(|(place, table)| match table {
            Some(table) => (place, table.table_type(), table.schema()),
            // It is there, and what it has can be asked again.
            None => (place, TableType::Base, Arc::new(Schema::empty())),
        });
        return listing(&command, rows.collect()).await;
    }
    let none = Arc::new(Schema::empty());
    let found = of_types(places, &command.table_types).await?;
    listing(&command, found.into_iter().map(|(place, kind)| (place, kind, Arc::clone(&none))).collect()).await
}

/// The answer for these tables. Thousands of schemas are a second's work, which a reactor's thread has not got.
async fn listing(command: &CommandGetTables, rows: Vec<(Place, TableType, SchemaRef)>) -> Result<RecordBatch, Failure> {
    let mut builder = tables_builder(command);
    let work = move || {
        for (place, kind, schema) in &rows {
            let name = [place.catalog.as_str(), place.schema.as_str(), place.table.as_str()];
            let [catalog, db_schema, table] = name;
            builder
                .append(catalog, db_schema, table, type_name(*kind), &columns::table_schema(schema, name))
                .map_err(Failure::internal)?;
        }
        builder.build().map_err(Failure::internal)
    };
    tokio::task::spawn_blocking(work).await.map_err(Failure::internal)?
}

/// The places whose tables are of one of the wanted types; all without a wish. A table that went meanwhile is left out.
async fn of_types(places: Vec<Place>, wanted: &[String]) -> Result<Vec<(Place, TableType)>, Failure> {
    let wanted: HashSet<&str> = wanted.iter().map(String::as_str).collect();
    if !wanted.is_empty() && !KINDS.iter().any(|kind| wanted.contains(type_name(*kind))) {
        return Ok(Vec::new());
    }
    let found: Vec<_> = futures::stream::iter(places)
        .map(|place| async move {
            let kind = place.provider.table_type(&place.table).await?;
            Ok::<_, DataFusionError>(kind.map(|kind| (place, kind)))
        })
        .buffered(AT_A_TIME)
        .try_collect()
        .await
        .map_err(|error| failure::of_planning(&error))?;
    let right = |kind| wanted.is_empty() || wanted.contains(type_name(kind));
    Ok(found.into_iter().flatten().filter(|(_, kind)| right(*kind)).collect())
}

/// Opens tables in order, a few at a time. One that cannot be opened does not hide the others; when none can be, that
/// is the answer. A table that went meanwhile is left out.
async fn open_all(places: Vec<Place>) -> Result<Vec<(Place, Option<Arc<dyn TableProvider>>)>, Failure> {
    let mut asked = futures::stream::iter(places)
        .map(|place| async move { (place.provider.table(&place.table).await, place) })
        .buffered(AT_A_TIME);
    let mut opened = Vec::new();
    let mut refused = None;
    let mut any = false;
    while let Some((answer, place)) = asked.next().await {
        match answer {
            Ok(None) => (),
            Ok(Some(table)) => {
                any = true;
                opened.push((place, Some(table)));
            }
            Err(error) => {
                refused.get_or_insert(error);
                opened.push((place, None));
            }
        }
    }
    match refused {
        Some(error) if !any => Err(failure::of_planning(&error)),
        Some(_) | None => Ok(opened),
    }
}

/// The schemas of the catalogs that a filter lets through, sorted: all without a filter, and none of ours for the empty
/// name, which asks for schemas without a catalog.
fn schemas(state: &SessionState, catalog: Option<&str>) -> Vec<(String, String, Arc<dyn SchemaProvider>)> {
    let list = state.catalog_list();
    sorted(list.catalog_names())
        .into_iter()
        .filter(|name| catalog.is_none_or(|wanted| wanted == name))
        .filter_map(|name| list.catalog(&name).map(|catalog| (name, catalog)))
        .flat_map(|(name, catalog)| {
            let of_catalog = |schema: String| catalog.schema(&schema).map(|provider| (name.clone(), schema, provider));
            sorted(catalog.schema_names()).into_iter().filter_map(of_catalog).collect::<Vec<_>>()
        })
        .collect()
}

fn pattern(text: Option<&str>) -> Result<Option<Pattern>, Failure> {
    text.map(Pattern::new).transpose()
}

fn fits(pattern: Option<&Pattern>, name: &str) -> Result<bool, Failure> {
    pattern.map_or(Ok(true), |pattern| pattern.matches(name))
}

/// The crate's builder without its own filters, which compile a pattern into a regular expression for each batch.
fn db_schemas_builder() -> GetDbSchemasBuilder {
    GetDbSchemasBuilder::new(None::<String>, None::<String>)
}

fn tables_builder(command: &CommandGetTables) -> GetTablesBuilder {
    let no_types: [String; 0] = [];
    GetTablesBuilder::new(None::<String>, None::<String>, None::<String>, no_types, command.include_schema)
}

/// JDBC's names for kinds of tables; tools filter by them.
fn type_name(kind: TableType) -> &'static str {
    match kind {
        TableType::Base => "TABLE",
        TableType::View => "VIEW",
        TableType::Temporary => "LOCAL TEMPORARY",
    }
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

const KINDS: [TableType; 3] = [TableType::Base, TableType::View, TableType::Temporary];
/// Tables that are opened at the same time: enough for a catalog far away, few enough for the catalog.
const AT_A_TIME: usize = 16;
