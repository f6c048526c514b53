//! The filter patterns of metadata commands: `%` is any run of characters, `_` any one, `\` takes both literally.
//!
//! Clients send whole statements as a pattern and names as they are, so that every text is a pattern and a backslash
//! before anything else stands for itself. Matching has an end: no regular expression, and a bound on the steps.

use std::iter::Peekable;
use std::str::Chars;

use crate::status::{Class, Failure};

/// A pattern, read once.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    parts: Vec<Part>,
    /// No name with fewer characters can match.
    shortest: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    AnyOne,
    AnyRun,
    Just(char),
}

impl Pattern {
    /// Reads a pattern.
    pub(super) fn new(text: &str) -> Result<Self, Failure> {
        if text.len() > MAX_PATTERN {
            return Err(Failure::new(Class::InvalidArgument, "the filter pattern is too long"));
        }
        let mut parts: Vec<Part> = Vec::new();
        let mut shortest = 0_usize;
        let mut rest = text.chars().peekable();
        while let Some(part) = next_part(&mut rest) {
            match part {
                Part::AnyRun if parts.last() == Some(&Part::AnyRun) => continue,
                Part::AnyRun => (),
                Part::AnyOne | Part::Just(_) => shortest = shortest.saturating_add(1),
            }
            parts.push(part);
        }
        Ok(Self { parts, shortest })
    }

    /// Whether the whole of `name` is what the pattern describes.
    pub(super) fn matches(&self, name: &str) -> Result<bool, Failure> {
        let name: Vec<char> = name.chars().collect();
        if name.len() < self.shortest {
            return Ok(false);
        }
        let (mut parts, mut rest) = (self.parts.as_slice(), name.as_slice());
        // Behind the last run: what is left of the pattern, and the first character that the run has not taken yet.
        let mut behind_run = None;
        for _ in 0..MAX_STEPS {
            match (parts.split_first(), rest.split_first()) {
                (None, None) => return Ok(true),
                (Some((Part::AnyRun, after)), _) => {
                    behind_run = Some((after, rest));
                    parts = after;
                }
                (Some((Part::AnyOne, after)), Some((_, tail))) => (parts, rest) = (after, tail),
                (Some((Part::Just(wanted), after)), Some((found, tail))) if wanted == found => {
                    (parts, rest) = (after, tail);
                }
                _ => {
                    // The last run takes one character more.
                    let Some((after, from)) = behind_run else { return Ok(false) };
                    let Some((_, from)) = from.split_first() else { return Ok(false) };
                    behind_run = Some((after, from));
                    (parts, rest) = (after, from);
                }
            }
        }
        Err(Failure::new(Class::InvalidArgument, "the filter pattern takes too long to compare with a name"))
    }
}

fn next_part(rest: &mut Peekable<Chars<'_>>) -> Option<Part> {
    Some(match rest.next()? {
        '%' => Part::AnyRun,
        '_' => Part::AnyOne,
        '\\' => Part::Just(rest.next_if(|next| matches!(next, '%' | '_' | '\\')).unwrap_or('\\')),
        other => Part::Just(other),
    })
}

/// As long as a statement may be.
const MAX_PATTERN: usize = 1024 * 1024;
/// The square of a name of 300 characters; longer ones meet it only by patterns made for that.
const MAX_STEPS: usize = 100_000;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Pattern::new(pattern).unwrap().matches(name).unwrap()
    }

    #[test]
    fn wildcards_stand_for_any_run_and_any_one() {
        for (pattern, name) in [
            ("", ""),
            ("%", ""),
            ("%", "nation"),
            ("nation", "nation"),
            ("n%", "nation"),
            ("%n", "nation"),
            ("%ti%", "nation"),
            ("n_tion", "nation"),
            ("n%%_n", "nation"),
            ("%a%o%", "nation"),
            ("_", "é"),
            ("%aab", "aaaaab"),
            ("%.%", "my.table"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("", "nation"),
            ("_", ""),
            ("nation", "nations"),
            ("nations", "nation"),
            ("NATION", "nation"),
            ("n_n", "nation"),
            ("%x%", "nation"),
            (".*", "nation"),
            ("[a-z]*", "nation"),
            ("nation|region", "nation"),
            ("my.table", "my_table"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn a_backslash_takes_a_wildcard_literally_and_otherwise_stands_for_itself() {
        assert!(matches(r"a\_b", "a_b") && !matches(r"a\_b", "axb"));
        assert!(matches(r"a\%", "a%") && !matches(r"a\%", "ab"));
        assert!(matches(r"a\\b", r"a\b") && !matches(r"a\\b", r"a\\b"));
        assert!(matches(r"a\\%", r"a\bc") && matches(r"a\\_", r"a\b"));
        // Drivers send the name of a table as it is.
        assert!(matches(r"a\b", r"a\b") && matches(r"a\", r"a\"));
    }

    #[test]
    fn a_statement_as_a_pattern_matches_nothing_and_costs_nothing() {
        let statement = "SELECT '%_%_%_%' ".repeat(60_000);
        let pattern = Pattern::new(&statement).unwrap();
        for _ in 0..100_000 {
            assert!(!pattern.matches("nation").unwrap());
        }
        assert!(Pattern::new(&"%".repeat(MAX_PATTERN)).unwrap().matches("nation").unwrap());
        assert_eq!(Pattern::new(&"x".repeat(MAX_PATTERN + 1)).unwrap_err().class(), Class::InvalidArgument);
    }

    #[test]
    fn what_would_take_too_long_is_refused() {
        let pattern = Pattern::new(&format!("%{}b", "a".repeat(20_000))).unwrap();
        assert_eq!(pattern.matches(&"a".repeat(100_000)).unwrap_err().class(), Class::InvalidArgument);
        let longest = "a".repeat(128);
        assert!(!Pattern::new(&format!("{}b", "%a".repeat(100))).unwrap().matches(&longest).unwrap());
        assert!(!Pattern::new(&format!("%{}b", "a".repeat(64))).unwrap().matches(&longest).unwrap());
    }
}
