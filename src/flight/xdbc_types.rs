//! The SQL types that a column of a result can have, as ODBC's `SQLGetTypeInfo` wants them.
//!
//! Names are the ones that a table's schema carries and that `CAST` takes. Lists, structs and maps are missing: XDBC
//! has no number for them, and a driver would take "unknown" for "all types".

use std::sync::LazyLock;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, IntervalUnit, SchemaRef, TimeUnit};
use arrow_flight::sql::metadata::{XdbcTypeInfo, XdbcTypeInfoData, XdbcTypeInfoDataBuilder};
use arrow_flight::sql::{CommandGetXdbcTypeInfo, Nullable, Searchable, XdbcDataType, XdbcDatetimeSubcode};

use super::metadata::sql_type_name;
use crate::status::Failure;

/// The schema of the answer.
pub(super) fn schema() -> SchemaRef {
    XdbcTypeInfoDataBuilder::new().schema()
}

/// All types, or those of one number; none for a number that no type has.
pub(super) fn answer(command: CommandGetXdbcTypeInfo) -> Result<RecordBatch, Failure> {
    let types = TYPES.as_ref().map_err(Failure::internal)?;
    types.record_batch(command.data_type).map_err(Failure::internal)
}

static TYPES: LazyLock<Result<XdbcTypeInfoData, String>> = LazyLock::new(|| {
    let mut builder = XdbcTypeInfoDataBuilder::new();
    for info in types() {
        builder.append(info);
    }
    builder.build().map_err(|error| error.to_string())
});

fn types() -> Vec<XdbcTypeInfo> {
    let instants = [(None, 29, XdbcDatetimeSubcode::XdbcSubcodeTimestamp), (Some("Z".into()), 35, WITH_TIME_ZONE)];
    let instants = instants.into_iter().map(|(zone, size, subcode)| XdbcTypeInfo {
        create_params: Some(vec!["precision".to_owned()]),
        ..datetime(&DataType::Timestamp(TimeUnit::Nanosecond, zone), XdbcDataType::XdbcTimestamp, size, subcode)
    });
    [
        XdbcTypeInfo { column_size: Some(1), ..plain(&DataType::Boolean, XdbcDataType::XdbcBit) },
        integer(&DataType::Int8, XdbcDataType::XdbcTinyint, 3, Sign::Signed),
        integer(&DataType::Int16, XdbcDataType::XdbcSmallint, 5, Sign::Signed),
        integer(&DataType::Int32, XdbcDataType::XdbcInteger, 10, Sign::Signed),
        integer(&DataType::Int64, XdbcDataType::XdbcBigint, 19, Sign::Signed),
        integer(&DataType::UInt8, XdbcDataType::XdbcTinyint, 3, Sign::Unsigned),
        integer(&DataType::UInt16, XdbcDataType::XdbcSmallint, 5, Sign::Unsigned),
        integer(&DataType::UInt32, XdbcDataType::XdbcInteger, 10, Sign::Unsigned),
        integer(&DataType::UInt64, XdbcDataType::XdbcBigint, 20, Sign::Unsigned),
        // Sizes in bits.
        number(&DataType::Float32, XdbcDataType::XdbcReal, 24, 2),
        number(&DataType::Float64, XdbcDataType::XdbcDouble, 53, 2),
        XdbcTypeInfo {
            create_params: Some(vec!["precision".to_owned(), "scale".to_owned()]),
            minimum_scale: Some(0),
            maximum_scale: Some(MAX_DECIMAL),
            ..number(&DataType::Decimal256(76, 0), XdbcDataType::XdbcDecimal, MAX_DECIMAL, 10)
        },
        XdbcTypeInfo {
            column_size: Some(i32::MAX),
            create_params: Some(vec!["length".to_owned()]),
            case_sensitive: true,
            // With LIKE as well.
            searchable: Searchable::Full,
            ..quoted("'", plain(&DataType::Utf8, XdbcDataType::XdbcVarchar))
        },
        XdbcTypeInfo {
            column_size: Some(i32::MAX),
            ..quoted("X'", plain(&DataType::Binary, XdbcDataType::XdbcVarbinary))
        },
        // The specification's name for the number that ODBC gives to dates.
        XdbcTypeInfo {
            minimum_scale: None,
            maximum_scale: None,
            ..datetime(&DataType::Date32, XdbcDataType::XdbcDate, 10, XdbcDatetimeSubcode::XdbcSubcodeYear)
        },
        datetime(
            &DataType::Time64(TimeUnit::Nanosecond),
            XdbcDataType::XdbcTime,
            18,
            XdbcDatetimeSubcode::XdbcSubcodeTime,
        ),
        XdbcTypeInfo {
            // Months, days and nanoseconds in one, for which there is no number.
            datetime_subcode: Some(XdbcDatetimeSubcode::XdbcSubcodeUnknown),
            ..quoted("INTERVAL '", plain(&DataType::Interval(IntervalUnit::MonthDayNano), XdbcDataType::XdbcInterval))
        },
    ]
    .into_iter()
    .chain(instants)
    .collect()
}

enum Sign {
    Signed,
    Unsigned,
}

fn plain(sent: &DataType, number: XdbcDataType) -> XdbcTypeInfo {
    XdbcTypeInfo {
        type_name: sql_type_name(sent).to_owned(),
        data_type: number,
        sql_data_type: number,
        nullable: Nullable::NullabilityNullable,
        searchable: Searchable::Basic,
        ..XdbcTypeInfo::default()
    }
}

fn number(sent: &DataType, number: XdbcDataType, size: i32, radix: i32) -> XdbcTypeInfo {
    XdbcTypeInfo {
        column_size: Some(size),
        unsigned_attribute: Some(false),
        auto_increment: Some(false),
        num_prec_radix: Some(radix),
        ..plain(sent, number)
    }
}

fn integer(sent: &DataType, data_type: XdbcDataType, digits: i32, sign: Sign) -> XdbcTypeInfo {
    let unsigned = match sign {
        Sign::Signed => false,
        Sign::Unsigned => true,
    };
    XdbcTypeInfo {
        unsigned_attribute: Some(unsigned),
        minimum_scale: Some(0),
        maximum_scale: Some(0),
        ..number(sent, data_type, digits, 10)
    }
}

/// Sizes are those of the text; fractions of a second have up to nine digits.
fn datetime(sent: &DataType, number: XdbcDataType, size: i32, subcode: XdbcDatetimeSubcode) -> XdbcTypeInfo {
    let info = plain(sent, number);
    let prefix = format!("{} '", info.type_name);
    XdbcTypeInfo {
        column_size: Some(size),
        sql_data_type: XdbcDataType::XdbcDatetime,
        datetime_subcode: Some(subcode),
        minimum_scale: Some(0),
        maximum_scale: Some(9),
        ..quoted(&prefix, info)
    }
}

fn quoted(prefix: &str, info: XdbcTypeInfo) -> XdbcTypeInfo {
    XdbcTypeInfo { literal_prefix: Some(prefix.to_owned()), literal_suffix: Some("'".to_owned()), ..info }
}

const MAX_DECIMAL: i32 = 76;
const WITH_TIME_ZONE: XdbcDatetimeSubcode = XdbcDatetimeSubcode::XdbcSubcodeTimestampWithTimezone;
