//! `[[grant]]` as values: to whom, on which tables, what, and of that which rows and columns.
//!
//! Must not know what several grants mean together: that is `access/grants.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use portcullis_auth::{Action, TableName};

use super::{Grantee, NonEmpty};

/// One `[[grant]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// To whom.
    pub to: NonEmpty<Grantee>,
    /// On which tables, of those there are and of those to come.
    pub on: TablePattern,
    /// What may be done; not empty.
    pub allow: BTreeSet<Action>,
    /// On which rows.
    pub rows: RowRule,
    /// Columns, and the SQL expressions in their places; only where `allow` has [`Action::Select`].
    pub masks: BTreeMap<String, String>,
    /// Where the configuration has it, for messages.
    pub line: usize,
}

/// `rows`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowRule {
    /// All of them.
    All,
    /// Those for which this SQL predicate is true.
    Where(String),
}

/// `on`: `catalog.schema.table`, each a name or `*`; `*` alone is every table. A name with a dot, a quote, an asterisk
/// or space around it stands in double quotes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TablePattern {
    /// The catalog.
    pub catalog: NamePattern,
    /// The schema.
    pub schema: NamePattern,
    /// The table.
    pub table: NamePattern,
}

/// One part of a [`TablePattern`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NamePattern {
    /// `*`: every name.
    Any,
    /// Exactly this name; upper and lower case differ.
    Named(String),
}

impl TablePattern {
    /// Whether it is on this table.
    pub fn matches(&self, table: TableName<'_>) -> bool {
        self.catalog.matches(table.catalog) && self.schema.matches(table.schema) && self.table.matches(table.table)
    }

    /// Whether a table can have a name that both are on.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.catalog.overlaps(&other.catalog)
            && self.schema.overlaps(&other.schema)
            && self.table.overlaps(&other.table)
    }
}

impl NamePattern {
    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Named(named) => named == name,
        }
    }

    fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) | (_, Self::Any) => true,
            (Self::Named(one), Self::Named(another)) => one == another,
        }
    }
}

impl FromStr for TablePattern {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "*" {
            return Ok(Self { catalog: NamePattern::Any, schema: NamePattern::Any, table: NamePattern::Any });
        }
        let mut parts = Vec::new();
        let mut rest = text;
        loop {
            let (part, behind) = next_part(rest)?;
            parts.push(part);
            match behind.strip_prefix('.') {
                Some(more) => rest = more,
                None if behind.is_empty() => break,
                None => return Err("has something between a quoted name and the next dot"),
            }
        }
        match <[NamePattern; 3]>::try_from(parts) {
            Ok([catalog, schema, table]) => Ok(Self { catalog, schema, table }),
            Err(_) => Err("must be `catalog.schema.table`, each a name or `*`, or `*` alone"),
        }
    }
}

/// The part that `text` begins with, and what is behind it.
fn next_part(text: &str) -> Result<(NamePattern, &str), &'static str> {
    let Some(mut quoted) = text.strip_prefix('"') else {
        let end = text.find('.').unwrap_or(text.len());
        let (name, behind) = text.split_at_checked(end).unwrap_or((text, ""));
        return match name {
            "" => Err("has an empty part"),
            "*" => Ok((NamePattern::Any, behind)),
            name if name.contains('*') => Err("has a `*` that is not a whole part"),
            name if name.contains('"') => Err("has a quote inside a name that is not quoted"),
            name if name.trim() != name => Err("has space around a name that is not quoted"),
            name => Ok((NamePattern::Named(name.to_owned()), behind)),
        };
    };
    let mut name = String::new();
    loop {
        let Some((inside, behind)) = quoted.split_once('"') else { return Err("has a quote that is not closed") };
        name.push_str(inside);
        match behind.strip_prefix('"') {
            // Two quotes are one that belongs to the name.
            Some(more) => {
                name.push('"');
                quoted = more;
            }
            None if name.is_empty() => return Err("has an empty part"),
            None => return Ok((NamePattern::Named(name), behind)),
        }
    }
}

impl fmt::Display for TablePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.catalog, self.schema, self.table)
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Named(name) if name.contains(['.', '"', '*']) || name.trim() != name => {
                write!(f, "\"{}\"", name.replace('"', "\"\""))
            }
            Self::Named(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;

    fn named(parts: [&str; 3]) -> TablePattern {
        let [catalog, schema, table] = parts.map(|part| NamePattern::Named(part.to_owned()));
        TablePattern { catalog, schema, table }
    }

    #[test]
    fn a_pattern_is_read_and_written() {
        for (text, names) in [
            ("sales.public.orders", ["sales", "public", "orders"]),
            ("big sales.public.Orders", ["big sales", "public", "Orders"]),
            ("sales.\"a.b\".\"*\"", ["sales", "a.b", "*"]),
            ("\"say \"\"no\"\"\".\" x \".t", ["say \"no\"", " x ", "t"]),
        ] {
            let pattern: TablePattern = text.parse().unwrap();
            assert_eq!(pattern, named(names), "{text}");
            assert_eq!(pattern.to_string(), text);
        }
        let quoted: TablePattern = "\"sales\".\"public\".\"orders\"".parse().unwrap();
        assert_eq!(quoted.to_string(), "sales.public.orders");
        assert_eq!("*".parse::<TablePattern>(), "*.*.*".parse());
        assert_eq!("*.public.*".parse::<TablePattern>().unwrap().to_string(), "*.public.*");
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in [
            "",
            ".",
            "..",
            "a",
            "a.b",
            "a.b.c.d",
            "a..c",
            "a.b.",
            ".b.c",
            "*.*",
            "a.b.c*",
            "a.b.**",
            "a. b.c",
            "a.b.c ",
            "\"a.b.c",
            "\"a\"b.c.d",
            "a.b\".c",
            "a.\"\".c",
            "a.b.\"c\"\"",
            "'a'.b.*x",
        ] {
            assert!(text.parse::<TablePattern>().is_err(), "{text}");
        }
    }

    #[test]
    fn patterns_match_whole_names_of_the_same_case() {
        let on = |pattern: &str, [catalog, schema, table]: [&str; 3]| {
            pattern.parse::<TablePattern>().unwrap().matches(TableName { catalog, schema, table })
        };
        for pattern in ["*", "sales.*.*", "*.public.*", "*.*.orders", "sales.public.orders"] {
            assert!(on(pattern, ["sales", "public", "orders"]), "{pattern}");
        }
        for pattern in ["sale.*.*", "sales.publi.*", "*.*.Orders", "*.*.order", "\"*\".public.orders", "public.sales.*"]
        {
            assert!(!on(pattern, ["sales", "public", "orders"]), "{pattern}");
        }
    }

    #[test]
    fn patterns_overlap_when_one_name_fits_both() {
        let overlap = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|text| text.parse::<TablePattern>().unwrap());
            assert_eq!(one.overlaps(&other), other.overlaps(&one));
            one.overlaps(&other)
        };
        assert!(overlap("*", "a.b.c") && overlap("a.*.c", "*.b.*") && overlap("a.b.c", "a.b.c"));
        assert!(!overlap("a.*.*", "b.*.*") && !overlap("a.*.c", "*.b.d") && !overlap("a.b.c", "a.b.C"));
    }
}
