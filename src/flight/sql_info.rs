//! What this server is and can do, in the codes of `SqlInfo`.
//!
//! All codes of the specification and no other: a driver that meets one it does not know fails, and so do drivers that
//! miss one or find it of another type (rule R17). Must say no for whatever is not built.

mod vocabulary;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::sql::metadata::SqlInfoDataBuilder;
use arrow_flight::sql::{
    CommandGetSqlInfo, SqlInfo, SqlNullOrdering, SqlOuterJoinsSupportLevel,
    SqlSupportedCaseSensitivity as CaseSensitivity, SqlSupportedGroupBy, SqlSupportedResultSetConcurrency,
    SqlSupportedResultSetType, SqlSupportedSubqueries, SqlSupportedTransaction, SqlSupportedUnions,
    SqlTransactionIsolationLevel, SupportedSqlGrammar,
};
use datafusion::execution::SessionState;

use self::vocabulary::Kind;
use super::results::SINGLE_ROW;
use crate::status::Failure;

/// What the configuration decides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// How long a prepared handle is good for.
    pub(super) prepared_lifetime: Duration,
    /// The length of the longest statement.
    pub(super) statement_bytes: usize,
    /// What SQL can change outside its session.
    pub(super) changes: Changes,
}

/// What SQL can change outside its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Changes {
    Nothing,
    /// It makes and drops tables.
    Tables,
}

/// A value by its member of the union.
#[derive(Debug, PartialEq)]
enum Value {
    Bits(i32),
    Flag(bool),
    Lists(BTreeMap<i32, Vec<i32>>),
    Number(i64),
    Text(&'static str),
    Words(Vec<String>),
}

/// The schema of the answer, whatever is asked.
pub(super) fn schema() -> SchemaRef {
    SqlInfoDataBuilder::schema().clone().into()
}

/// The known ones of the codes asked for, each once; all of them for an empty list.
pub(super) fn answer(command: CommandGetSqlInfo, state: &SessionState, facts: &Facts) -> Result<RecordBatch, Failure> {
    let wanted: BTreeSet<i32> = if command.info.is_empty() {
        (0..=LAST).collect()
    } else {
        command.info.iter().filter_map(|code| i32::try_from(*code).ok()).collect()
    };
    let mut builder = SqlInfoDataBuilder::new();
    for code in wanted.into_iter().filter_map(|code| SqlInfo::try_from(code).ok()) {
        match value(code, state, facts) {
            Value::Bits(bits) => builder.append(code, bits),
            Value::Flag(flag) => builder.append(code, flag),
            Value::Lists(lists) => builder.append(code, lists),
            Value::Number(number) => builder.append(code, number),
            Value::Text(text) => builder.append(code, text),
            Value::Words(words) => builder.append(code, words),
        }
    }
    let rows = builder.build().and_then(|data| data.record_batch(None)).map_err(Failure::internal)?;
    RecordBatch::try_new(schema(), rows.columns().to_vec()).map_err(Failure::internal)
}

fn value(code: SqlInfo, state: &SessionState, facts: &Facts) -> Value {
    match code {
        SqlInfo::FlightSqlServerName => Value::Text("Portcullis"),
        SqlInfo::FlightSqlServerVersion => Value::Text(env!("CARGO_PKG_VERSION")),
        SqlInfo::FlightSqlServerArrowVersion => Value::Text(ARROW_FORMAT),
        SqlInfo::FlightSqlServerSubstrait => Value::Flag(cfg!(feature = "substrait")),
        #[cfg(feature = "substrait")]
        SqlInfo::FlightSqlServerSubstraitMinVersion | SqlInfo::FlightSqlServerSubstraitMaxVersion => {
            Value::Text(crate::sql::substrait::VERSION)
        }
        // Not in this build. It cannot be null in the builder of the crate.
        #[cfg(not(feature = "substrait"))]
        SqlInfo::FlightSqlServerSubstraitMinVersion | SqlInfo::FlightSqlServerSubstraitMaxVersion => Value::Text(""),
        SqlInfo::FlightSqlServerTransaction => Value::Bits(i32::from(SqlSupportedTransaction::None)),
        SqlInfo::FlightSqlServerStatementTimeout => {
            Value::Bits(i32::try_from(facts.prepared_lifetime.as_millis()).unwrap_or(i32::MAX))
        }
        SqlInfo::FlightSqlServerTransactionTimeout => Value::Bits(0),

        SqlInfo::SqlIdentifierCase => Value::Bits(i32::from(identifier_case(state))),
        SqlInfo::SqlIdentifierQuoteChar => Value::Text("\""),
        // Quoted names keep their case and are told apart by it, for which there is no number.
        SqlInfo::SqlQuotedIdentifierCase => Value::Bits(i32::from(CaseSensitivity::SqlCaseSensitivityUnknown)),
        // Last when ascending, first when descending.
        SqlInfo::SqlNullOrdering => Value::Bits(i32::from(SqlNullOrdering::SqlNullsSortedHigh)),
        SqlInfo::SqlKeywords => Value::Words(vocabulary::keywords()),
        SqlInfo::SqlNumericFunctions => Value::Words(vocabulary::functions(Kind::Numeric, state)),
        SqlInfo::SqlStringFunctions => Value::Words(vocabulary::functions(Kind::String, state)),
        SqlInfo::SqlSystemFunctions => Value::Words(vocabulary::functions(Kind::System, state)),
        SqlInfo::SqlDatetimeFunctions => Value::Words(vocabulary::functions(Kind::Datetime, state)),
        SqlInfo::SqlSearchStringEscape => Value::Text("\\"),
        SqlInfo::SqlExtraNameCharacters => Value::Text("#$@"),
        SqlInfo::SqlSupportsConvert => Value::Lists(vocabulary::conversions()),
        SqlInfo::SqlSupportedGroupBy => {
            bits([SqlSupportedGroupBy::SqlGroupByUnrelated, SqlSupportedGroupBy::SqlGroupByBeyondSelect])
        }
        // As far as queries go.
        SqlInfo::SqlSupportedGrammar => {
            bits([SupportedSqlGrammar::SqlMinimumGrammar, SupportedSqlGrammar::SqlCoreGrammar])
        }
        SqlInfo::SqlAnsi92SupportedLevel => bits([ANSI92_ENTRY]),
        SqlInfo::SqlOuterJoinsSupportLevel => {
            bits([SqlOuterJoinsSupportLevel::SqlLimitedOuterJoins, SqlOuterJoinsSupportLevel::SqlFullOuterJoins])
        }
        SqlInfo::SqlSchemaTerm => Value::Text("schema"),
        // There are none.
        SqlInfo::SqlProcedureTerm => Value::Text(""),
        SqlInfo::SqlCatalogTerm => Value::Text("catalog"),
        // Quantified ones (ANY, ALL) cannot be sent to the cluster.
        SqlInfo::SqlSupportedSubqueries => bits([
            SqlSupportedSubqueries::SqlSubqueriesInComparisons,
            SqlSupportedSubqueries::SqlSubqueriesInExists,
            SqlSupportedSubqueries::SqlSubqueriesInIns,
        ]),
        SqlInfo::SqlSupportedUnions => bits([SqlSupportedUnions::SqlUnion, SqlSupportedUnions::SqlUnionAll]),
        SqlInfo::SqlSupportedTransactionsIsolationLevels => bits([SqlTransactionIsolationLevel::SqlTransactionNone]),
        SqlInfo::SqlSupportedResultSetTypes => bits([SqlSupportedResultSetType::SqlResultSetTypeForwardOnly]),
        SqlInfo::SqlSupportedConcurrenciesForResultSetForwardOnly => {
            bits([SqlSupportedResultSetConcurrency::SqlResultSetConcurrencyReadOnly])
        }
        // Nothing of these.
        SqlInfo::SqlSchemasSupportedActions
        | SqlInfo::SqlCatalogsSupportedActions
        | SqlInfo::SqlSupportedPositionedCommands
        | SqlInfo::SqlSupportedConcurrenciesForResultSetUnspecified
        | SqlInfo::SqlSupportedConcurrenciesForResultSetScrollSensitive
        | SqlInfo::SqlSupportedConcurrenciesForResultSetScrollInsensitive => Value::Bits(0),

        SqlInfo::FlightSqlServerReadOnly => Value::Flag(facts.changes == Changes::Nothing),
        SqlInfo::SqlDdlTable => Value::Flag(facts.changes == Changes::Tables),
        SqlInfo::FlightSqlServerSql
        | SqlInfo::SqlAllTablesAreSelectable
        | SqlInfo::SqlSupportsColumnAliasing
        | SqlInfo::SqlNullPlusNullIsNull
        | SqlInfo::SqlSupportsTableCorrelationNames
        | SqlInfo::SqlSupportsExpressionsInOrderBy
        | SqlInfo::SqlSupportsOrderByUnrelated
        // In a table that SQL made.
        | SqlInfo::SqlSupportsNonNullableColumns
        | SqlInfo::SqlCatalogAtStart
        | SqlInfo::SqlCorrelatedSubqueriesSupported
        | SqlInfo::SqlMaxRowSizeIncludesBlobs => Value::Flag(true),
        SqlInfo::FlightSqlServerCancel
        | SqlInfo::FlightSqlServerBulkIngestion
        | SqlInfo::FlightSqlServerIngestTransactionsSupported
        | SqlInfo::SqlDdlCatalog
        | SqlInfo::SqlDdlSchema
        // An alias may be the name of another table.
        | SqlInfo::SqlSupportsDifferentTableCorrelationNames
        // Only the backslash can be named in an ESCAPE.
        | SqlInfo::SqlSupportsLikeEscapeClause
        | SqlInfo::SqlSupportsIntegrityEnhancementFacility
        | SqlInfo::SqlSelectForUpdateSupported
        | SqlInfo::SqlStoredProceduresSupported
        | SqlInfo::SqlTransactionsSupported
        | SqlInfo::SqlDataDefinitionCausesTransactionCommit
        | SqlInfo::SqlDataDefinitionsInTransactionsIgnored
        | SqlInfo::SqlBatchUpdatesSupported
        | SqlInfo::SqlSavepointsSupported
        | SqlInfo::SqlNamedParametersSupported
        | SqlInfo::SqlLocatorsUpdateCopy
        | SqlInfo::SqlStoredFunctionsUsingCallSyntaxSupported => Value::Flag(false),

        SqlInfo::SqlMaxRowSize => int64(SINGLE_ROW),
        SqlInfo::SqlMaxStatementLength => int64(facts.statement_bytes),
        SqlInfo::SqlDefaultTransactionIsolation => Value::Number(i64::from(i32::from(ISOLATION))),
        // No limit but the statement's.
        SqlInfo::SqlMaxBinaryLiteralLength
        | SqlInfo::SqlMaxCharLiteralLength
        | SqlInfo::SqlMaxColumnNameLength
        | SqlInfo::SqlMaxColumnsInGroupBy
        | SqlInfo::SqlMaxColumnsInIndex
        | SqlInfo::SqlMaxColumnsInOrderBy
        | SqlInfo::SqlMaxColumnsInSelect
        | SqlInfo::SqlMaxColumnsInTable
        | SqlInfo::SqlMaxConnections
        | SqlInfo::SqlMaxCursorNameLength
        | SqlInfo::SqlMaxIndexLength
        | SqlInfo::SqlDbSchemaNameLength
        | SqlInfo::SqlMaxProcedureNameLength
        | SqlInfo::SqlMaxCatalogNameLength
        | SqlInfo::SqlMaxStatements
        | SqlInfo::SqlMaxTableNameLength
        | SqlInfo::SqlMaxTablesInSelect
        | SqlInfo::SqlMaxUsernameLength => Value::Number(0),
    }
}

/// Unquoted names become lower case, unless the session has turned that off.
fn identifier_case(state: &SessionState) -> CaseSensitivity {
    if state.config_options().sql_parser.enable_ident_normalization {
        CaseSensitivity::SqlCaseSensitivityLowercase
    } else {
        CaseSensitivity::SqlCaseSensitivityUnknown
    }
}

/// A bit for each, at the place that is its number.
fn bits<T: Into<i32>, const N: usize>(each: [T; N]) -> Value {
    let bits =
        each.into_iter().filter_map(|one| u32::try_from(one.into()).ok().and_then(|place| 1_i32.checked_shl(place)));
    Value::Bits(bits.fold(0, |all, bit| all | bit))
}

fn int64(number: usize) -> Value {
    Value::Number(i64::try_from(number).unwrap_or(i64::MAX))
}

/// `ANSI92_ENTRY_SQL`, whose enumeration the crate does not export.
const ANSI92_ENTRY: i32 = 0;
/// The Arrow columnar format, as drivers print it.
const ARROW_FORMAT: &str = "1.5";
const ISOLATION: SqlTransactionIsolationLevel = SqlTransactionIsolationLevel::SqlTransactionNone;
/// The last code of the specification.
const LAST: i32 = SqlInfo::SqlStoredFunctionsUsingCallSyntaxSupported as i32;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use arrow::array::{AsArray, UInt32Array};
    use arrow::datatypes::UInt32Type;
    use datafusion::execution::SessionStateBuilder;
    use datafusion::prelude::SessionConfig;

    use super::*;

    const FACTS: Facts =
        Facts { prepared_lifetime: Duration::from_secs(60), statement_bytes: 1000, changes: Changes::Nothing };

    fn told(info: &[u32]) -> RecordBatch {
        let state = SessionStateBuilder::new_with_default_features().build();
        answer(CommandGetSqlInfo { info: info.to_vec() }, &state, &FACTS).unwrap()
    }

    fn codes(rows: &RecordBatch) -> UInt32Array {
        rows.column(0).as_primitive::<UInt32Type>().clone()
    }

    #[test]
    fn an_empty_list_asks_for_every_code_of_the_specification_once() {
        let specified: Vec<u32> = (0..=11).chain([100, 101]).chain(500..=576).collect();
        assert_eq!(codes(&told(&[])).values(), &specified);
        assert_eq!(told(&[]).schema(), schema());
        for code in specified {
            assert_eq!(codes(&told(&[code])).values(), &[code]);
        }
    }

    #[test]
    fn a_code_asked_for_twice_has_one_row_and_unknown_ones_have_none() {
        assert_eq!(codes(&told(&[504, 0, 504, 99_999, 12, 577, u32::MAX])).values(), &[0, 504]);
        let none = told(&[99_999, 10_000]);
        assert_eq!((none.num_rows(), none.schema()), (0, schema()));
    }

    #[test]
    fn a_value_is_of_the_type_that_drivers_take_it_for() {
        let rows = told(&[]);
        let values = rows.column(1).as_union();
        for (row, code) in codes(&rows).values().iter().enumerate() {
            let member = match code {
                0 | 1 | 2 | 6 | 7 | 504 | 513 | 514 | 529..=531 => 0,
                3..=5 | 9..=11 | 500..=502 | 506 | 515 | 516 | 518..=521 | 523 | 524 | 527 | 532 => 1,
                536 | 537 | 539 | 556 | 563 | 565 | 566 | 572..=576 => 1,
                541..=555 | 557..=562 => 2,
                508..=512 => 4,
                517 => 5,
                _ => 3,
            };
            assert_eq!(values.type_id(row), member, "{code}");
        }
    }

    #[test]
    fn bits_are_at_the_places_of_their_numbers() {
        assert_eq!(bits([SqlSupportedUnions::SqlUnion, SqlSupportedUnions::SqlUnionAll]), Value::Bits(3));
        let joins =
            bits([SqlOuterJoinsSupportLevel::SqlLimitedOuterJoins, SqlOuterJoinsSupportLevel::SqlFullOuterJoins]);
        assert_eq!(joins, Value::Bits(6));
    }

    #[test]
    fn the_configuration_and_the_session_are_told() {
        let facts = FACTS;
        let state = SessionStateBuilder::new().build();
        let flags =
            |facts| [SqlInfo::FlightSqlServerReadOnly, SqlInfo::SqlDdlTable].map(|code| value(code, &state, &facts));
        assert_eq!(flags(facts), [Value::Flag(true), Value::Flag(false)]);
        assert_eq!(flags(Facts { changes: Changes::Tables, ..facts }), [Value::Flag(false), Value::Flag(true)]);
        assert_eq!(value(SqlInfo::FlightSqlServerStatementTimeout, &state, &facts), Value::Bits(60_000));
        assert_eq!(value(SqlInfo::SqlMaxStatementLength, &state, &facts), Value::Number(1000));
        assert_eq!(value(SqlInfo::SqlIdentifierCase, &state, &facts), Value::Bits(3));
        let config = SessionConfig::new().set_bool("datafusion.sql_parser.enable_ident_normalization", false);
        let state = SessionStateBuilder::new().with_config(config).build();
        assert_eq!(value(SqlInfo::SqlIdentifierCase, &state, &facts), Value::Bits(0));
    }
}
