//! Words, functions and conversions of the engine, told from the engine's own lists.
//!
//! Nothing is told that a session has not: functions are those of its registry, conversions those of Arrow's kernels,
//! words those of the parser. Must not plan SQL.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use arrow::compute::can_cast_types;
use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use arrow_flight::sql::SqlSupportsConvert;
use datafusion::execution::SessionState;
use datafusion::functions;
use datafusion::logical_expr::ScalarUDF;
use datafusion::sql::sqlparser::keywords::{
    ALL_KEYWORDS, ALL_KEYWORDS_INDEX, RESERVED_FOR_COLUMN_ALIAS, RESERVED_FOR_IDENTIFIER, RESERVED_FOR_TABLE_ALIAS,
};

/// What a list of functions is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Datetime,
    Numeric,
    String,
    System,
}

/// The session's functions of one kind with all their names, sorted.
pub(super) fn functions(kind: Kind, state: &SessionState) -> Vec<String> {
    let known: Vec<Arc<ScalarUDF>> = match kind {
        Kind::Datetime => functions::datetime::functions(),
        Kind::Numeric => functions::math::functions(),
        Kind::String => {
            [functions::string::functions(), functions::unicode::functions(), functions::regex::functions()].concat()
        }
        Kind::System => functions::core::functions(),
    };
    let names: BTreeSet<String> = known
        .iter()
        .flat_map(|function| std::iter::once(function.name()).chain(function.aliases().iter().map(String::as_str)))
        .filter(|name| state.scalar_functions().contains_key(*name))
        .map(str::to_owned)
        .collect();
    names.into_iter().collect()
}

/// The words that have a meaning in a statement: those that must be quoted to be a name, and those of the grammar.
pub(super) fn keywords() -> Vec<String> {
    let reserved = [RESERVED_FOR_COLUMN_ALIAS, RESERVED_FOR_IDENTIFIER, RESERVED_FOR_TABLE_ALIAS].concat();
    ALL_KEYWORDS_INDEX
        .iter()
        .zip(ALL_KEYWORDS)
        .filter(|(keyword, text)| reserved.contains(keyword) || GRAMMAR.contains(text))
        .map(|(_, text)| (*text).to_owned())
        .collect()
}

/// Which types `CAST` takes into which, by their numbers.
pub(super) fn conversions() -> BTreeMap<i32, Vec<i32>> {
    CONVERSIONS.clone()
}

static CONVERSIONS: LazyLock<BTreeMap<i32, Vec<i32>>> = LazyLock::new(|| {
    let types = convertible();
    let into = |from: &DataType| {
        types.iter().filter(|(_, to)| can_cast_types(from, to)).map(|(number, _)| i32::from(*number)).collect()
    };
    types.iter().map(|(number, from)| (i32::from(*number), into(from))).collect()
});

/// The engine's type behind each type of the specification that SQL can name. There are no long texts or bytes.
fn convertible() -> Vec<(SqlSupportsConvert, DataType)> {
    use SqlSupportsConvert as Number;
    let decimal = DataType::Decimal128(38, 10);
    // The one interval of the engine holds both.
    let interval = DataType::Interval(IntervalUnit::MonthDayNano);
    vec![
        (Number::SqlConvertBigint, DataType::Int64),
        (Number::SqlConvertBinary, DataType::Binary),
        (Number::SqlConvertBit, DataType::Boolean),
        (Number::SqlConvertChar, DataType::Utf8),
        (Number::SqlConvertDate, DataType::Date32),
        (Number::SqlConvertDecimal, decimal.clone()),
        (Number::SqlConvertFloat, DataType::Float32),
        (Number::SqlConvertInteger, DataType::Int32),
        (Number::SqlConvertIntervalDayTime, interval.clone()),
        (Number::SqlConvertIntervalYearMonth, interval),
        (Number::SqlConvertNumeric, decimal),
        (Number::SqlConvertReal, DataType::Float32),
        (Number::SqlConvertSmallint, DataType::Int16),
        (Number::SqlConvertTime, DataType::Time64(TimeUnit::Nanosecond)),
        (Number::SqlConvertTimestamp, DataType::Timestamp(TimeUnit::Nanosecond, None)),
        (Number::SqlConvertTinyint, DataType::Int8),
        (Number::SqlConvertVarbinary, DataType::Binary),
        (Number::SqlConvertVarchar, DataType::Utf8),
    ]
}

/// Words of the statements that the gate runs, beside the reserved ones.
const GRAMMAR: &[&str] = &[
    "ALL",
    "AND",
    "AS",
    "ASC",
    "BETWEEN",
    "BIGINT",
    "BOOLEAN",
    "BY",
    "BYTEA",
    "CASE",
    "CAST",
    "CHAR",
    "COLUMNS",
    "CREATE",
    "CUBE",
    "CURRENT_DATE",
    "CURRENT_TIME",
    "CURRENT_TIMESTAMP",
    "DATE",
    "DAY",
    "DECIMAL",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "DOUBLE",
    "DROP",
    "ELSE",
    "EXTERNAL",
    "EXTRACT",
    "FALSE",
    "FILTER",
    "FIRST",
    "FLOAT",
    "FOLLOWING",
    "FUNCTIONS",
    "GROUPING",
    "HOUR",
    "IF",
    "ILIKE",
    "IN",
    "INT",
    "INTEGER",
    "IS",
    "LAST",
    "LIKE",
    "LOCATION",
    "MINUTE",
    "MONTH",
    "NOT",
    "NULL",
    "NULLS",
    "NUMERIC",
    "OR",
    "OVER",
    "OVERLAY",
    "PARTITIONED",
    "POSITION",
    "PRECEDING",
    "RANGE",
    "REAL",
    "RECURSIVE",
    "REPLACE",
    "RESET",
    "ROLLUP",
    "ROW",
    "ROWS",
    "SECOND",
    "SETS",
    "SHOW",
    "SIMILAR",
    "SMALLINT",
    "STORED",
    "SUBSTRING",
    "TABLE",
    "TABLES",
    "THEN",
    "TIME",
    "TIMESTAMP",
    "TINYINT",
    "TO",
    "TRUE",
    "TRY_CAST",
    "UNBOUNDED",
    "UNNEST",
    "UNSIGNED",
    "VARCHAR",
    "WHEN",
    "WITHIN",
    "YEAR",
    "ZONE",
];

#[cfg(test)]
mod tests {
    use datafusion::execution::SessionStateBuilder;

    use super::*;

    #[test]
    fn the_words_of_the_grammar_are_the_parsers() {
        let told = keywords();
        let missing: Vec<_> = GRAMMAR.iter().filter(|word| !told.iter().any(|told| told == *word)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        for word in ["SELECT", "FROM", "WHERE", "EXISTS", "INTERVAL", "UNION", "WITH"] {
            assert!(told.iter().any(|told| told == word), "{word}");
        }
        assert!(told.is_sorted(), "as tools look them up");
    }

    #[test]
    fn a_session_tells_the_functions_that_it_has_and_no_other() {
        let with = SessionStateBuilder::new_with_default_features().build();
        let without = SessionStateBuilder::new().build();
        for (kind, some) in [
            (Kind::Datetime, ["date_trunc", "now", "to_timestamp"]),
            (Kind::Numeric, ["abs", "pow", "power"]),
            (Kind::String, ["btrim", "char_length", "upper"]),
            (Kind::System, ["coalesce", "ifnull", "version"]),
        ] {
            let told = functions(kind, &with);
            for name in some {
                assert!(told.iter().any(|told| told == name), "{name}");
            }
            assert!(told.is_sorted());
            assert!(functions(kind, &without).is_empty());
        }
    }

    #[test]
    fn every_type_converts_into_itself_and_into_text() {
        let conversions = conversions();
        let text = i32::from(SqlSupportsConvert::SqlConvertVarchar);
        for (from, into) in &conversions {
            assert!(into.contains(from) && into.contains(&text), "{from}: {into:?}");
        }
        let into = |from: SqlSupportsConvert| conversions.get(&i32::from(from)).cloned().unwrap_or_default();
        let date = i32::from(SqlSupportsConvert::SqlConvertDate);
        assert!(into(SqlSupportsConvert::SqlConvertTimestamp).contains(&date));
        assert!(!into(SqlSupportsConvert::SqlConvertBit).contains(&date));
        assert!(into(SqlSupportsConvert::SqlConvertLongvarchar).is_empty());
    }
}
