//! Functions that make much out of little, such as `repeat`, and a bound to what one call may make.
//!
//! The engine's memory pool does not count what a function makes, and constants are computed in the gate itself:
//! without a bound one short statement takes all memory of the process. [`bounded`] are the engine's functions with a
//! look at their arguments first. Must not change what a function makes.

use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{
    DataType, FieldRef, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use arrow::util::display::FormatOptions;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionStateDefaults;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

/// What one call, on one batch of rows, may make, in bytes.
const MOST: u64 = 64 * 1024 * 1024;

/// The functions that grow, each under its own name and with its aliases, to be registered after the engine's.
pub(crate) fn bounded() -> Vec<Arc<ScalarUDF>> {
    let all = SessionStateDefaults::default_scalar_functions().into_iter();
    all.filter_map(|inner| {
        let (_, growth) = GROWING.iter().find(|(name, _)| *name == inner.name())?;
        Some(Arc::new(ScalarUDF::from(Bounded { inner, growth: *growth })))
    })
    .collect()
}

/// How large a result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Growth {
    /// As many values as the second argument says; the argument at this place is one of them.
    Counted { value: usize },
    /// As many characters as the second argument says, filled up with those of the third.
    Padded,
    /// A number for each step from the first argument to the second, by the third.
    Series,
}

const GROWING: &[(&str, Growth)] = &[
    ("array_repeat", Growth::Counted { value: 0 }),
    ("array_resize", Growth::Counted { value: 2 }),
    ("generate_series", Growth::Series),
    ("lpad", Growth::Padded),
    ("range", Growth::Series),
    ("repeat", Growth::Counted { value: 0 }),
    ("rpad", Growth::Padded),
];

#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded {
    inner: Arc<ScalarUDF>,
    growth: Growth,
}

impl Bounded {
    fn too_much(&self) -> String {
        format!("`{}` would make more than {} MiB", self.name(), MOST / 1024 / 1024)
    }

    /// Whether it would make more than [`MOST`] of `arguments`. Whatever the function itself refuses is not too much.
    fn exceeds(&self, arguments: &[ColumnarValue], rows: usize) -> Result<bool> {
        let constant = arguments.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { rows };
        let counts = match self.growth {
            Growth::Counted { .. } | Growth::Padded => whole(arguments.get(1), rows)?,
            Growth::Series => steps(arguments, rows)?,
        };
        let sizes = match self.growth {
            Growth::Counted { value } => sizes(arguments.get(value), rows)?,
            Growth::Padded => Sizes::Same(widest(arguments.get(2))?),
            Growth::Series => Sizes::Same(NUMBER),
        };
        let made = counts.iter().enumerate().map(|(row, count)| {
            let count = u64::try_from(count.unwrap_or_default()).unwrap_or_default();
            count.saturating_mul(sizes.of(row))
        });
        Ok(made.fold(0, u64::saturating_add) > MOST)
    }
}

/// Bytes of what is repeated, by row.
enum Sizes {
    Same(u64),
    Each(Vec<u64>),
}

impl Sizes {
    fn of(&self, row: usize) -> u64 {
        match self {
            Self::Same(size) => *size,
            Self::Each(sizes) => sizes.get(row).copied().unwrap_or(NUMBER),
        }
    }
}

/// What a number takes, and no value takes less in a list.
const NUMBER: u64 = 8;

/// A number that does not fit is an error: NULL would pass for nothing.
const EXACT: CastOptions<'static> = CastOptions { safe: false, format_options: FormatOptions::new() };

fn whole(argument: Option<&ColumnarValue>, rows: usize) -> Result<Vec<Option<i64>>> {
    let Some(argument) = argument else { return Ok(Vec::new()) };
    let array = cast_with_options(&argument.to_array(rows)?, &DataType::Int64, &EXACT)?;
    Ok(array.as_primitive::<Int64Type>().iter().collect())
}

/// Bytes of the widest letter that `argument` may have.
fn widest(argument: Option<&ColumnarValue>) -> Result<u64> {
    let ascii = match argument {
        None => true,
        Some(ColumnarValue::Scalar(value)) => value.try_as_str().flatten().is_some_and(str::is_ascii),
        Some(ColumnarValue::Array(array)) => {
            cast(array, &DataType::LargeUtf8)?.as_string::<i64>().iter().flatten().all(str::is_ascii)
        }
    };
    Ok(if ascii { 1 } else { 4 })
}

fn sizes(argument: Option<&ColumnarValue>, rows: usize) -> Result<Sizes> {
    let size = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
    match argument {
        None => Ok(Sizes::Same(NUMBER)),
        Some(ColumnarValue::Scalar(value)) => Ok(Sizes::Same(match value.try_as_str() {
            Some(text) => size(text.map_or(0, str::len)).max(1),
            None => size(value.size()),
        })),
        Some(ColumnarValue::Array(array)) => Ok(Sizes::Each(if is_text(array.data_type()) {
            let array = cast(array, &DataType::LargeUtf8)?;
            array.as_string::<i64>().iter().map(|text| size(text.map_or(0, str::len)).max(1)).collect()
        } else {
            (0..rows.min(array.len()))
                .map(|row| size(array.slice(row, 1).to_data().get_slice_memory_size().unwrap_or(0)).max(NUMBER))
                .collect()
        })),
    }
}

fn is_text(kind: &DataType) -> bool {
    [DataType::Utf8, DataType::LargeUtf8, DataType::Utf8View].contains(kind)
}

/// How many steps there are in each row; with one argument the first is 0.
fn steps(arguments: &[ColumnarValue], rows: usize) -> Result<Vec<Option<i64>>> {
    let of_time = arguments.first().is_some_and(|first| first.data_type().is_temporal());
    let ends: Vec<_> = match (arguments, of_time) {
        ([end], false) => whole(Some(end), rows)?.into_iter().map(|end| Some((0, end?))).collect(),
        ([start, end, ..], false) => pairs(whole(Some(start), rows)?, whole(Some(end), rows)?),
        ([start, end, ..], true) => pairs(instants(start, rows)?, instants(end, rows)?),
        _ => Vec::new(),
    };
    let by = match (arguments.get(2), of_time) {
        (None, _) => vec![Some(1); ends.len()],
        (by @ Some(_), false) => whole(by, rows)?,
        (Some(by), true) => intervals(by, rows)?,
    };
    let count = |((start, end), by): ((i64, i64), i64)| {
        // Steps of nothing are the function's to refuse.
        let steps = end.abs_diff(start).checked_div(by.unsigned_abs()).unwrap_or(0);
        i64::try_from(steps).unwrap_or(i64::MAX)
    };
    Ok(ends.into_iter().zip(by).map(|(ends, by)| Some(count((ends?, by?)))).collect())
}

fn pairs(starts: Vec<Option<i64>>, ends: Vec<Option<i64>>) -> Vec<Option<(i64, i64)>> {
    starts.into_iter().zip(ends).map(|(start, end)| Some((start?, end?))).collect()
}

/// In microseconds: all dates that there are fit.
fn instants(argument: &ColumnarValue, rows: usize) -> Result<Vec<Option<i64>>> {
    let kind = DataType::Timestamp(TimeUnit::Microsecond, None);
    whole(Some(&ColumnarValue::Array(cast_with_options(&argument.to_array(rows)?, &kind, &EXACT)?)), rows)
}

/// In microseconds, of the shortest months and never less than one.
fn intervals(argument: &ColumnarValue, rows: usize) -> Result<Vec<Option<i64>>> {
    let array = cast(&argument.to_array(rows)?, &DataType::Interval(IntervalUnit::MonthDayNano))?;
    let micros = |interval: IntervalMonthDayNano| {
        let days = i64::from(interval.months).saturating_mul(28).saturating_add(i64::from(interval.days));
        let micros = days.saturating_mul(DAY).saturating_add(interval.nanoseconds / 1000);
        if micros == 0 && interval.nanoseconds != 0 { 1 } else { micros }
    };
    Ok(array.as_primitive::<IntervalMonthDayNanoType>().iter().map(|interval| interval.map(micros)).collect())
}

const DAY: i64 = 24 * 60 * 60 * 1_000_000;

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(arguments)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn simplify(&self, arguments: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        // Constants are told here: where they are computed, an error is forgotten, and somebody else computes them.
        let constants = arguments.iter().map(|argument| argument.as_literal().cloned().map(ColumnarValue::Scalar));
        if let Some(constants) = constants.collect::<Option<Vec<_>>>()
            && self.exceeds(&constants, 1)?
        {
            return Err(DataFusionError::Plan(self.too_much()));
        }
        self.inner.simplify(arguments, info)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if self.exceeds(&arguments.args, arguments.number_rows)? {
            return Err(DataFusionError::Execution(self.too_much()));
        }
        self.inner.invoke_with_args(arguments)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use datafusion::execution::SessionStateBuilder;
    use datafusion::prelude::SessionContext;

    use super::*;

    fn context() -> SessionContext {
        let functions = [SessionStateDefaults::default_scalar_functions(), bounded()].concat();
        let state = SessionStateBuilder::new().with_default_features().with_scalar_functions(functions).build();
        SessionContext::new_with_state(state)
    }

    async fn failed(sql: &str) -> Option<String> {
        let asked = context().sql(sql).await.unwrap().collect().await;
        asked.err().map(|error| error.strip_backtrace())
    }

    #[test]
    fn every_function_is_found_by_its_name() {
        let names: Vec<_> = bounded().iter().map(|function| function.name().to_owned()).collect();
        assert_eq!(names.len(), GROWING.len(), "{names:?}");
    }

    #[tokio::test]
    async fn what_is_made_within_the_bound_is_as_before() {
        let plain = SessionContext::new();
        for sql in [
            "SELECT repeat('ab', 3), repeat(NULL, 3), repeat(x, n) FROM (VALUES ('x', 2), (NULL, -1)) t(x, n)",
            "SELECT lpad('a', 3), lpad('a', 3, 'xy'), rpad(x, n, x) FROM (VALUES ('x', 5), ('yz', NULL)) t(x, n)",
            "SELECT array_repeat(7, 2), list_repeat([1], n), array_repeat(x, n) FROM (VALUES ('x', 2)) t(x, n)",
            "SELECT array_resize([1], 3), array_resize([1, 2], n, 9) FROM (VALUES (3)) t(n)",
            "SELECT range(3), range(1, n), range(5, 1, -2), generate_series(1, 3) FROM (VALUES (3)) t(n)",
            "SELECT generate_series(DATE '2020-01-01', DATE '2020-03-01', INTERVAL '1 month')",
            "SELECT range(TIMESTAMP '2020-01-01', TIMESTAMP '2020-01-02', INTERVAL '6 hours')",
            "SELECT repeat('x', 1000000), length(repeat('x', 60000000))",
            "SELECT max(length(lpad('a', 4000 + value, 'filling'))) FROM generate_series(1, 8000) t(value)",
        ] {
            let rows = plain.sql(sql).await.unwrap().collect().await.unwrap();
            assert_eq!(context().sql(sql).await.unwrap().collect().await.unwrap(), rows, "{sql}");
        }
    }

    #[tokio::test]
    async fn what_is_beyond_the_bound_is_refused_before_it_is_made() {
        for sql in [
            "SELECT repeat('a', 2000000000)",
            "SELECT repeat('ab', n) FROM (VALUES (40000000)) t(n)",
            "SELECT repeat(x, 10000000) FROM (VALUES ('abcdefgh'), ('b')) t(x)",
            "SELECT repeat(repeat('a', 1000000), 1000)",
            "SELECT lpad('a', 2000000000), 1",
            "SELECT rpad('a', n, 'b') FROM (VALUES (2000000000)) t(n)",
            "SELECT lpad('a', 20000000, 'é')",
            "SELECT array_repeat(1, 100000000)",
            "SELECT list_repeat('abcdefghijklmnop', n) FROM (VALUES (10000000)) t(n)",
            "SELECT array_repeat(x, 1000000) FROM (VALUES ([1, 2, 3, 4, 5, 6, 7, 8, 9])) t(x)",
            "SELECT array_resize([1], 1000000000, 1)",
            "SELECT range(100000000)",
            "SELECT range(n) FROM (VALUES (9223372036854775807)) t(n)",
            "SELECT generate_series(9223372036854775807, -9223372036854775807, -1)",
            "SELECT range(TIMESTAMP '2020-01-01', TIMESTAMP '2021-01-01', INTERVAL '1 nanosecond')",
            "SELECT generate_series(DATE '0001-01-01', DATE '9999-01-01', INTERVAL '1 second')",
        ] {
            let said = failed(sql).await.unwrap_or_default();
            assert!(said.contains("would make more than 64 MiB"), "{sql}: {said}");
        }
    }

    #[tokio::test]
    async fn a_count_that_is_no_count_is_an_error() {
        for sql in [
            "SELECT array_repeat(1, 18446744073709551615)",
            "SELECT array_repeat(1, n) FROM (VALUES (18446744073709551615)) t(n)",
            "SELECT array_resize([1], arrow_cast(18446744073709551615, 'UInt64'), 1)",
            "SELECT range(arrow_cast(9000000000000000000, 'Timestamp(Second, None)'), now(), INTERVAL '1 day')",
        ] {
            let planned = context().sql(sql).await;
            let asked = match planned {
                Ok(planned) => planned.collect().await.map(drop),
                Err(error) => Err(error),
            };
            let said = asked.unwrap_err().strip_backtrace();
            assert!(!said.contains("Internal"), "{sql}: {said}");
        }
    }
}
