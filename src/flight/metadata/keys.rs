//! Primary and foreign keys, in the schemas of the specification.
//!
//! A table that declares a primary key is told with it. The engine knows no foreign keys, so that there are none. Names
//! are exact here, not patterns; a table that is not there has no keys, which is what drivers expect.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_flight::sql::CommandGetPrimaryKeys;
use datafusion::catalog::TableProvider;
use datafusion::common::Constraint;
use datafusion::execution::SessionState;

use super::{Place, open_all, schemas};
use crate::status::Failure;

/// The schema of primary keys.
pub(super) fn primary_schema() -> SchemaRef {
    Arc::clone(&PRIMARY)
}

/// The schema of exported keys, of imported keys and of a cross-reference.
pub(super) fn foreign_schema() -> SchemaRef {
    Arc::clone(&FOREIGN)
}

/// The columns of the primary keys of the tables of one name.
pub(super) async fn primary(command: CommandGetPrimaryKeys, state: &SessionState) -> Result<RecordBatch, Failure> {
    let named = schemas(state, command.catalog.as_deref())
        .into_iter()
        .filter(|(_, schema, provider)| {
            command.db_schema.as_ref().is_none_or(|wanted| wanted == schema) && provider.table_exist(&command.table)
        })
        .map(|(catalog, schema, provider)| Place { catalog, schema, table: command.table.clone(), provider })
        .collect();
    let mut rows: Vec<(Place, String, i32)> = Vec::new();
    for (place, table) in open_all(named).await? {
        for (column, sequence) in table.iter().flat_map(|table| key_columns(table.as_ref())) {
            rows.push((place.clone(), column, sequence));
        }
    }
    let text = |of: fn(&(Place, String, i32)) -> &str| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(rows.iter().map(of)))
    };
    let columns = vec![
        text(|(place, _, _)| &place.catalog),
        text(|(place, _, _)| &place.schema),
        text(|(place, _, _)| &place.table),
        text(|(_, column, _)| column),
        Arc::new(Int32Array::from_iter_values(rows.iter().map(|(_, _, sequence)| *sequence))),
        // The engine's keys have no names.
        Arc::new(StringArray::new_null(rows.len())),
    ];
    RecordBatch::try_new(primary_schema(), columns).map_err(Failure::internal)
}

/// The columns of a table's primary key in their order, counted from one.
fn key_columns(table: &dyn TableProvider) -> Vec<(String, i32)> {
    let schema = table.schema();
    let indices = table.constraints().and_then(|constraints| {
        constraints.iter().find_map(|constraint| match constraint {
            Constraint::PrimaryKey(indices) => Some(indices.clone()),
            Constraint::Unique(_) => None,
        })
    });
    indices
        .unwrap_or_default()
        .into_iter()
        .filter_map(|index| schema.fields().get(index).map(|field| field.name().clone()))
        .zip(1..)
        .collect()
}

static PRIMARY: LazyLock<SchemaRef> = LazyLock::new(|| {
    Arc::new(Schema::new(vec![
        Field::new("catalog_name", DataType::Utf8, true),
        Field::new("db_schema_name", DataType::Utf8, true),
        Field::new("table_name", DataType::Utf8, false),
        Field::new("column_name", DataType::Utf8, false),
        // In the order of every implementation; the comment in the specification has these two the other way round.
        Field::new("key_sequence", DataType::Int32, false),
        Field::new("key_name", DataType::Utf8, true),
    ]))
});

static FOREIGN: LazyLock<SchemaRef> = LazyLock::new(|| {
    Arc::new(Schema::new(vec![
        Field::new("pk_catalog_name", DataType::Utf8, true),
        Field::new("pk_db_schema_name", DataType::Utf8, true),
        Field::new("pk_table_name", DataType::Utf8, false),
        Field::new("pk_column_name", DataType::Utf8, false),
        Field::new("fk_catalog_name", DataType::Utf8, true),
        Field::new("fk_db_schema_name", DataType::Utf8, true),
        Field::new("fk_table_name", DataType::Utf8, false),
        Field::new("fk_column_name", DataType::Utf8, false),
        Field::new("key_sequence", DataType::Int32, false),
        Field::new("fk_key_name", DataType::Utf8, true),
        Field::new("pk_key_name", DataType::Utf8, true),
        Field::new("update_rule", DataType::UInt8, false),
        Field::new("delete_rule", DataType::UInt8, false),
    ]))
});
