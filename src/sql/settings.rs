//! The session options that a client may see and set, with their bounds.
//!
//! Everything that is not in the list below is refused: runtime-wide keys (memory, temporary directories), the parser's
//! own limits and whatever the engine adds later. The same list is what `SHOW ALL` shows.

use datafusion::config::ConfigOptions;

use crate::status::{Class, Failure};

/// The option that names the default catalog.
pub const CATALOG: &str = "datafusion.catalog.default_catalog";
/// The option that names the default schema.
pub const SCHEMA: &str = "datafusion.catalog.default_schema";

/// Every option a client may set, alphabetical.
pub(crate) const SETTABLE: &[(&str, Bound)] = &[
    (CATALOG, Bound::Name),
    (SCHEMA, Bound::Name),
    ("datafusion.execution.batch_size", Bound::Between(64, 65_536)),
    ("datafusion.execution.target_partitions", Bound::Between(1, 256)),
    ("datafusion.execution.time_zone", Bound::Name),
    ("datafusion.optimizer.prefer_hash_join", Bound::Switch),
    ("datafusion.optimizer.repartition_aggregations", Bound::Switch),
    ("datafusion.optimizer.repartition_joins", Bound::Switch),
    ("datafusion.sql_parser.enable_ident_normalization", Bound::Switch),
    ("datafusion.sql_parser.parse_float_as_decimal", Bound::Switch),
];

/// What a value must be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    /// A whole number in this range.
    Between(u64, u64),
    /// A short name without control characters.
    Name,
    /// `true` or `false`.
    Switch,
}

/// Why an option was not set, in the terms of `SetSessionOptionsResult.ErrorValue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No such option, or not one of a client's.
    Name,
    /// The value is out of bounds.
    Value,
}

/// Checks an option and tries it on `options`.
pub fn apply(options: &mut ConfigOptions, key: &str, value: &str) -> Result<(), Refused> {
    let bound = bound(key)?;
    let fits = match bound {
        Bound::Between(low, high) => value.parse::<u64>().is_ok_and(|number| (low..=high).contains(&number)),
        Bound::Name => !value.is_empty() && value.len() <= 128 && !value.chars().any(char::is_control),
        Bound::Switch => value == "true" || value == "false",
    };
    if !fits {
        return Err(Refused::Value);
    }
    options.set(key, value).map_err(|_| Refused::Value)
}

/// Whether a client may know the option at all.
pub(crate) fn bound(key: &str) -> Result<Bound, Refused> {
    SETTABLE.iter().find(|(name, _)| *name == key).map(|(_, bound)| *bound).ok_or(Refused::Name)
}

impl Refused {
    /// The sentence for SQL's `SET`.
    pub fn into_failure(self, key: &str, value: &str) -> Failure {
        match self {
            Self::Name => Failure::about_request(
                Class::PermissionDenied,
                format!("`{key}` is not an option that a session may set"),
            ),
            Self::Value => Failure::about_request(
                Class::InvalidArgument,
                format!("`{value}` is not a value that `{key}` may have"),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;

    #[test]
    fn only_listed_options_within_bounds_are_set() {
        let mut options = ConfigOptions::new();
        apply(&mut options, "datafusion.execution.batch_size", "1024").unwrap();
        assert_eq!(options.execution.batch_size.to_string(), "1024");
        for (key, value) in [
            ("datafusion.execution.batch_size", "1"),
            ("datafusion.execution.batch_size", "1000000"),
            ("datafusion.execution.batch_size", "x"),
            ("datafusion.optimizer.prefer_hash_join", "maybe"),
            ("datafusion.execution.time_zone", "a\u{0}b"),
        ] {
            assert_eq!(apply(&mut options, key, value), Err(Refused::Value), "{key}={value}");
        }
        for key in [
            "datafusion.runtime.temp_directory",
            "datafusion.runtime.memory_limit",
            "datafusion.sql_parser.recursion_limit",
            "ballista.shuffle.compression.codec",
            "nonsense",
        ] {
            assert_eq!(apply(&mut options, key, "1"), Err(Refused::Name), "{key}");
        }
    }

    #[test]
    fn every_listed_option_exists_in_the_engine() {
        let known: Vec<String> = ConfigOptions::new().entries().into_iter().map(|entry| entry.key).collect();
        for (key, _) in SETTABLE {
            assert!(known.iter().any(|name| name == key), "{key}");
        }
    }
}
