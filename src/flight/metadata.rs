//! Catalogs, schemas, tables and table types, from the session's real catalog.
//!
//! What the session's state does not hold does not exist here either. Schemas are the specification's to the byte
//! (rule R19), by the builders of `arrow-flight`. Must not plan SQL.

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow_flight::sql::{CommandGetCatalogs, CommandGetDbSchemas, CommandGetTableTypes, CommandGetTables};
use datafusion::execution::SessionState;
use datafusion::logical_expr::TableType;

use super::command::Metadata;
use super::sql_info;
use crate::sql::client_type;
use crate::sql::failure;
use crate::status::{Class, Failure};

/// The schema of a metadata command's answer.
pub(super) fn schema(command: &Metadata) -> SchemaRef {
    match command {
        Metadata::Catalogs => CommandGetCatalogs {}.into_builder().schema(),
        Metadata::DbSchemas(command) => command.clone().into_builder().schema(),
        Metadata::SqlInfo(_) => sql_info::schema(),
        Metadata::TableTypes => CommandGetTableTypes {}.into_builder().schema(),
        Metadata::Tables(command) => command.clone().into_builder().schema(),
    }
}

/// The answer to a metadata command.
pub(super) async fn answer(command: Metadata, state: &SessionState) -> Result<RecordBatch, Failure> {
    match command {
        Metadata::Catalogs => {
            let mut builder = CommandGetCatalogs {}.into_builder();
            for name in sorted(state.catalog_list().catalog_names()) {
                builder.append(name);
            }
            builder.build().map_err(Failure::internal)
        }
        Metadata::DbSchemas(command) => db_schemas(command, state),
        Metadata::SqlInfo(command) => sql_info::answer(command),
        Metadata::TableTypes => {
            let mut builder = CommandGetTableTypes {}.into_builder();
            for kind in [TableType::Base, TableType::View] {
                builder.append(type_name(kind));
            }
            builder.build().map_err(Failure::internal)
        }
        Metadata::Tables(command) => tables(command, state).await,
    }
}

fn db_schemas(command: CommandGetDbSchemas, state: &SessionState) -> Result<RecordBatch, Failure> {
    check_pattern(command.db_schema_filter_pattern.as_deref())?;
    let mut builder = command.clone().into_builder();
    for catalog in sorted(state.catalog_list().catalog_names()) {
        if command.catalog.as_ref().is_some_and(|wanted| *wanted != catalog) {
            continue;
        }
        let Some(provider) = state.catalog_list().catalog(&catalog) else { continue };
        for schema in sorted(provider.schema_names()) {
            builder.append(&catalog, schema);
        }
    }
    builder.build().map_err(Failure::internal)
}

async fn tables(command: CommandGetTables, state: &SessionState) -> Result<RecordBatch, Failure> {
    check_pattern(command.db_schema_filter_pattern.as_deref())?;
    check_pattern(command.table_name_filter_pattern.as_deref())?;
    let mut builder = command.clone().into_builder();
    for catalog in sorted(state.catalog_list().catalog_names()) {
        if command.catalog.as_ref().is_some_and(|wanted| *wanted != catalog) {
            continue;
        }
        let Some(provider) = state.catalog_list().catalog(&catalog) else { continue };
        for schema in sorted(provider.schema_names()) {
            let Some(provider) = provider.schema(&schema) else { continue };
            for table in sorted(provider.table_names()) {
                let failed = |error| failure::of_planning(&error);
                let Some(kind) = provider.table_type(&table).await.map_err(failed)? else { continue };
                let fields = if command.include_schema {
                    match provider.table(&table).await.map_err(failed)? {
                        Some(provider) => as_sent(&provider.schema()),
                        None => continue,
                    }
                } else {
                    Schema::empty()
                };
                builder.append(&catalog, &schema, &table, type_name(kind), &fields).map_err(Failure::internal)?;
            }
        }
    }
    builder.build().map_err(Failure::internal)
}

/// A table's schema in the types in which its columns are sent.
fn as_sent(schema: &Schema) -> Schema {
    let fields: Vec<Field> = schema
        .fields()
        .iter()
        .map(|field| Field::new(field.name(), client_type(field.data_type()), field.is_nullable()))
        .collect();
    Schema::new(fields)
}

/// JDBC's names for kinds of tables; tools filter by them.
fn type_name(kind: TableType) -> &'static str {
    match kind {
        TableType::Base => "TABLE",
        TableType::View => "VIEW",
        TableType::Temporary => "LOCAL TEMPORARY",
    }
}

/// Some clients send their SQL text as a pattern; a bound keeps that cheap.
fn check_pattern(pattern: Option<&str>) -> Result<(), Failure> {
    match pattern {
        Some(pattern) if pattern.len() > MAX_PATTERN => {
            Err(Failure::new(Class::InvalidArgument, "the filter pattern is too long"))
        }
        Some(_) | None => Ok(()),
    }
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

const MAX_PATTERN: usize = 1024 * 1024;
