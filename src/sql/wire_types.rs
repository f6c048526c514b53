//! The types that clients can read: casts of the root columns, and the schema that is declared for them.
//!
//! Views, dictionaries, run ends, small decimals and half floats are unknown to one driver or another (rule R10), so
//! they are cast inside the submitted plan, where executors do the work. Must not change names, order or nullability.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use datafusion::common::Column;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast};
use datafusion::prelude::Expr::Column as ColumnExpr;

use super::failure;
use crate::status::Failure;

/// `plan` with its root columns cast to readable types; the same plan when all are readable.
pub(super) fn readable(plan: LogicalPlan) -> Result<LogicalPlan, Failure> {
    cast_columns(plan, client_type).map_err(|error| failure::of_planning(&error))
}

/// `plan` with its root columns cast to what `wanted` says of their types; the same plan when they are that.
pub(super) fn cast_columns(
    plan: LogicalPlan,
    wanted: impl Fn(&DataType) -> DataType,
) -> Result<LogicalPlan, DataFusionError> {
    let schema = Arc::clone(plan.schema());
    if schema.fields().iter().all(|field| wanted(field.data_type()) == *field.data_type()) {
        return Ok(plan);
    }
    let columns: Vec<Expr> = schema
        .iter()
        .map(|(qualifier, field)| {
            let column = ColumnExpr(Column::new(qualifier.cloned(), field.name()));
            let wanted = wanted(field.data_type());
            if wanted == *field.data_type() {
                column
            } else {
                cast(column, wanted).alias_qualified(qualifier.cloned(), field.name())
            }
        })
        .collect();
    LogicalPlanBuilder::from(plan).project(columns).and_then(LogicalPlanBuilder::build)
}

/// The one schema of a statement. Taken before optimization, where nullability is never stricter than the data.
pub(super) fn declared(plan: &LogicalPlan) -> SchemaRef {
    let fields: Vec<Field> = plan
        .schema()
        .fields()
        .iter()
        .map(|field| Field::new(field.name(), field.data_type().clone(), field.is_nullable()))
        .collect();
    Arc::new(Schema::new(fields))
}

/// The type in which a column of type `from` is sent.
pub(crate) fn client_type(from: &DataType) -> DataType {
    let nested =
        |field: &Arc<Field>| Arc::new(Field::new(field.name(), client_type(field.data_type()), field.is_nullable()));
    match from {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::Dictionary(_, value) => client_type(value),
        DataType::RunEndEncoded(_, values) => client_type(values.data_type()),
        DataType::Float16 => DataType::Float32,
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            DataType::Decimal128(*precision, *scale)
        }
        DataType::List(item) | DataType::LargeList(item) | DataType::ListView(item) | DataType::LargeListView(item) => {
            DataType::List(nested(item))
        }
        DataType::FixedSizeList(item, length) => DataType::FixedSizeList(nested(item), *length),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(nested).collect::<Fields>()),
        DataType::Map(entries, sorted) => DataType::Map(nested(entries), *sorted),
        DataType::Null
        | DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32
        | DataType::UInt64
        | DataType::Float32
        | DataType::Float64
        | DataType::Timestamp(_, _)
        | DataType::Date32
        | DataType::Date64
        | DataType::Time32(_)
        | DataType::Time64(_)
        | DataType::Duration(_)
        | DataType::Interval(_)
        | DataType::Binary
        | DataType::FixedSizeBinary(_)
        | DataType::LargeBinary
        | DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Union(_, _)
        | DataType::Decimal128(_, _)
        | DataType::Decimal256(_, _) => from.clone(),
    }
}
