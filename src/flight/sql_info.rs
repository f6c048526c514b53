//! What this server is and can do, in the codes of `SqlInfo`.
//!
//! Only codes of the published specification: a driver that meets another fails (rule R17). Must say no for whatever is
//! not built.

use std::sync::LazyLock;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::sql::metadata::{SqlInfoData, SqlInfoDataBuilder};
use arrow_flight::sql::{
    CommandGetSqlInfo, SqlInfo, SqlNullOrdering, SqlSupportedCaseSensitivity, SqlSupportedTransaction,
};

use crate::status::Failure;

/// The schema of the answer, whatever is asked.
pub(super) fn schema() -> SchemaRef {
    SqlInfoDataBuilder::schema().clone().into()
}

/// The known ones of the codes asked for; all of them for an empty list.
pub(super) fn answer(command: CommandGetSqlInfo) -> Result<RecordBatch, Failure> {
    let data = INFO.as_ref().map_err(Failure::internal)?;
    let wanted = if command.info.is_empty() {
        CODES.iter().map(|code| code_number(*code)).collect()
    } else {
        let mut wanted = command.info;
        wanted.retain(|code| CODES.iter().any(|known| code_number(*known) == *code));
        if wanted.is_empty() {
            return Ok(RecordBatch::new_empty(schema()));
        }
        wanted
    };
    data.record_batch(wanted).map_err(Failure::internal)
}

fn code_number(code: SqlInfo) -> u32 {
    u32::try_from(i32::from(code)).unwrap_or_default()
}

static INFO: LazyLock<Result<SqlInfoData, String>> = LazyLock::new(|| {
    let mut info = SqlInfoDataBuilder::new();
    info.append(SqlInfo::FlightSqlServerName, "Portcullis");
    info.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    info.append(SqlInfo::FlightSqlServerArrowVersion, ARROW_FORMAT);
    info.append(SqlInfo::FlightSqlServerReadOnly, true);
    info.append(SqlInfo::FlightSqlServerSql, true);
    info.append(SqlInfo::FlightSqlServerSubstrait, false);
    info.append(SqlInfo::FlightSqlServerTransaction, i32::from(SqlSupportedTransaction::None));
    info.append(SqlInfo::FlightSqlServerCancel, false);
    info.append(SqlInfo::FlightSqlServerBulkIngestion, false);
    info.append(SqlInfo::FlightSqlServerStatementTimeout, 0_i32);
    info.append(SqlInfo::SqlDdlCatalog, false);
    info.append(SqlInfo::SqlDdlSchema, false);
    info.append(SqlInfo::SqlDdlTable, false);
    info.append(SqlInfo::SqlIdentifierCase, i32::from(SqlSupportedCaseSensitivity::SqlCaseSensitivityLowercase));
    info.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    info.append(
        SqlInfo::SqlQuotedIdentifierCase,
        i32::from(SqlSupportedCaseSensitivity::SqlCaseSensitivityCaseInsensitive),
    );
    info.append(SqlInfo::SqlAllTablesAreSelectable, true);
    info.append(SqlInfo::SqlNullOrdering, i32::from(SqlNullOrdering::SqlNullsSortedHigh));
    info.build().map_err(|error| error.to_string())
});

/// What [`INFO`] holds, in order.
const CODES: &[SqlInfo] = &[
    SqlInfo::FlightSqlServerName,
    SqlInfo::FlightSqlServerVersion,
    SqlInfo::FlightSqlServerArrowVersion,
    SqlInfo::FlightSqlServerReadOnly,
    SqlInfo::FlightSqlServerSql,
    SqlInfo::FlightSqlServerSubstrait,
    SqlInfo::FlightSqlServerTransaction,
    SqlInfo::FlightSqlServerCancel,
    SqlInfo::FlightSqlServerBulkIngestion,
    SqlInfo::FlightSqlServerStatementTimeout,
    SqlInfo::SqlDdlCatalog,
    SqlInfo::SqlDdlSchema,
    SqlInfo::SqlDdlTable,
    SqlInfo::SqlIdentifierCase,
    SqlInfo::SqlIdentifierQuoteChar,
    SqlInfo::SqlQuotedIdentifierCase,
    SqlInfo::SqlAllTablesAreSelectable,
    SqlInfo::SqlNullOrdering,
];

/// The Arrow columnar format, as drivers print it.
const ARROW_FORMAT: &str = "1.5";

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;

    #[test]
    fn every_code_has_a_value_and_unknown_codes_are_left_out() {
        assert_eq!(answer(CommandGetSqlInfo { info: vec![] }).unwrap().num_rows(), CODES.len());
        assert_eq!(answer(CommandGetSqlInfo { info: vec![0, 1, 99_999] }).unwrap().num_rows(), 2);
        let none = answer(CommandGetSqlInfo { info: vec![99_999] }).unwrap();
        assert_eq!((none.num_rows(), none.schema()), (0, schema()));
    }
}
