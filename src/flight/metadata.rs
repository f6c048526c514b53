//! Catalogs, schemas, tables and table types, from the session's real catalog.
//!
//! What the session's state does not hold does not exist here either. Schemas are the specification's to the byte
//! (rule R19), by the builders of `arrow-flight`. Must not plan SQL.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_flight::sql::{CommandGetCatalogs, CommandGetDbSchemas, CommandGetTableTypes, CommandGetTables};
use datafusion::catalog::CatalogProvider;
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
    for (catalog, provider) in catalogs(state, command.catalog.as_deref()) {
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
    for (catalog, provider) in catalogs(state, command.catalog.as_deref()) {
        for schema in sorted(provider.schema_names()) {
            let Some(provider) = provider.schema(&schema) else { continue };
            for table in sorted(provider.table_names()) {
                let failed = |error| failure::of_planning(&error);
                let Some(kind) = provider.table_type(&table).await.map_err(failed)? else { continue };
                let fields = if command.include_schema {
                    match provider.table(&table).await.map_err(failed)? {
                        Some(provider) => as_sent(&provider.schema(), [&catalog, &schema, &table]),
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

/// The catalogs that a filter lets through: all without one, and none of ours for the empty name.
fn catalogs(state: &SessionState, wanted: Option<&str>) -> Vec<(String, Arc<dyn CatalogProvider>)> {
    let list = state.catalog_list();
    sorted(list.catalog_names())
        .into_iter()
        .filter(|name| wanted.is_none_or(|wanted| wanted == name))
        .filter_map(|name| list.catalog(&name).map(|catalog| (name, catalog)))
        .collect()
}

/// A table's schema in the types in which its columns are sent. Every field says where it belongs and what SQL calls
/// its type: a driver reads these without asking whether they are there (rule R20).
fn as_sent(schema: &Schema, [catalog, db_schema, table]: [&str; 3]) -> Schema {
    let fields: Vec<Field> = schema
        .fields()
        .iter()
        .map(|field| {
            let sent = client_type(field.data_type());
            let metadata = [
                ("ARROW:FLIGHT:SQL:CATALOG_NAME", catalog),
                ("ARROW:FLIGHT:SQL:SCHEMA_NAME", db_schema),
                ("ARROW:FLIGHT:SQL:TABLE_NAME", table),
                ("ARROW:FLIGHT:SQL:TYPE_NAME", sql_type_name(&sent)),
            ];
            Field::new(field.name(), sent, field.is_nullable())
                .with_metadata(metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
        })
        .collect();
    Schema::new(fields)
}

/// SQL's name of a type.
fn sql_type_name(sent: &DataType) -> &'static str {
    match sent {
        DataType::Null => "NULL",
        DataType::Boolean => "BOOLEAN",
        DataType::Int8 => "TINYINT",
        DataType::Int16 => "SMALLINT",
        DataType::Int32 => "INTEGER",
        DataType::Int64 => "BIGINT",
        DataType::UInt8 => "TINYINT UNSIGNED",
        DataType::UInt16 => "SMALLINT UNSIGNED",
        DataType::UInt32 => "INTEGER UNSIGNED",
        DataType::UInt64 => "BIGINT UNSIGNED",
        DataType::Float16 | DataType::Float32 => "REAL",
        DataType::Float64 => "DOUBLE",
        DataType::Timestamp(_, None) => "TIMESTAMP",
        DataType::Timestamp(_, Some(_)) => "TIMESTAMP WITH TIME ZONE",
        DataType::Date32 | DataType::Date64 => "DATE",
        DataType::Time32(_) | DataType::Time64(_) => "TIME",
        DataType::Duration(_) | DataType::Interval(_) => "INTERVAL",
        DataType::Binary | DataType::FixedSizeBinary(_) | DataType::LargeBinary | DataType::BinaryView => "VARBINARY",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "VARCHAR",
        DataType::Decimal32(_, _)
        | DataType::Decimal64(_, _)
        | DataType::Decimal128(_, _)
        | DataType::Decimal256(_, _) => "DECIMAL",
        DataType::List(_)
        | DataType::ListView(_)
        | DataType::FixedSizeList(_, _)
        | DataType::LargeList(_)
        | DataType::LargeListView(_) => "ARRAY",
        DataType::Struct(_) => "STRUCT",
        DataType::Map(_, _) => "MAP",
        DataType::Union(_, _) => "UNION",
        DataType::Dictionary(_, value) => sql_type_name(value),
        DataType::RunEndEncoded(_, values) => sql_type_name(values.data_type()),
    }
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
