//! Columns as metadata tells them: the types in which they are sent, and SQL's names for those.
//!
//! A driver reads a field's metadata without asking whether it is there (rule R20). Must not say what `SELECT` would
//! not: the types are those of [`client_type`].

use std::collections::HashMap;

use arrow::datatypes::{DataType, Field, Schema};

use crate::sql::client_type;

/// A table's schema in the types in which its columns are sent, every field with what the specification names.
pub(super) fn table_schema(schema: &Schema, [catalog, db_schema, table]: [&str; 3]) -> Schema {
    let fields: Vec<Field> = schema
        .fields()
        .iter()
        .map(|field| {
            let sent = client_type(field.data_type());
            let mut metadata: HashMap<String, String> = [
                ("CATALOG_NAME", catalog),
                // The specification's name of the key, and the one that the clients of all languages read.
                ("DB_SCHEMA_NAME", db_schema),
                ("SCHEMA_NAME", db_schema),
                ("TABLE_NAME", table),
                ("TYPE_NAME", sql_type_name(&sent)),
                ("IS_AUTO_INCREMENT", NO),
                ("IS_CASE_SENSITIVE", if sql_type_name(&sent) == VARCHAR { YES } else { NO }),
                // Nothing writes to a table yet.
                ("IS_READ_ONLY", YES),
                ("IS_SEARCHABLE", YES),
            ]
            .into_iter()
            .map(|(key, value)| (format!("{PREFIX}{key}"), value.to_owned()))
            .collect();
            if let DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) = &sent {
                metadata.insert(format!("{PREFIX}PRECISION"), precision.to_string());
                metadata.insert(format!("{PREFIX}SCALE"), scale.to_string());
            }
            Field::new(field.name(), sent, field.is_nullable()).with_metadata(metadata)
        })
        .collect();
    Schema::new(fields)
}

/// SQL's name of a type: what `CAST` takes, wherever the type has such a name.
pub(in crate::flight) fn sql_type_name(sent: &DataType) -> &'static str {
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
        DataType::Binary | DataType::FixedSizeBinary(_) | DataType::LargeBinary | DataType::BinaryView => "BYTEA",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => VARCHAR,
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

const PREFIX: &str = "ARROW:FLIGHT:SQL:";
const VARCHAR: &str = "VARCHAR";
const YES: &str = "1";
const NO: &str = "0";
