//! What a run found: one row per suite, and the closing line that counts them.
//!
//! Must not run anything. INVARIANT: a suite that ended badly counts at least one failure, whatever it printed.

use std::time::Duration;

use crate::run::{Stopwatch, Trouble, say};

/// The rows in the order in which the suites ran.
#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
    troubles: Vec<String>,
}

/// What one suite counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

struct Row {
    suite: String,
    count: Count,
    took: Duration,
}

impl Report {
    /// Adds a suite that counts its tests itself, and judges by how it ended what it counted.
    pub(crate) fn add(&mut self, suite: &str, mut count: Count, ended: Result<(), Trouble>, took: Duration) {
        if let Err(trouble) = ended {
            self.troubles.push(format!("error: {suite}: {trouble}"));
            count.failed = count.failed.max(1);
        }
        self.rows.push(Row { suite: suite.to_owned(), count, took });
    }

    /// Runs something that is one test by itself, such as the format check, and says whether it passed.
    pub(crate) fn check(&mut self, suite: &str, check: impl FnOnce() -> Result<(), Trouble>) -> bool {
        let watch = Stopwatch::start();
        let ended = check();
        let passed = u64::from(ended.is_ok());
        self.add(suite, Count { passed, failed: 0 }, ended, watch.took());
        passed == 1
    }

    /// Something of `suite` that is read at the end, where whoever has only the end of a log finds it.
    pub(crate) fn note(&mut self, suite: &str, what: &str) {
        self.troubles.push(format!("{suite}: {what}"));
    }

    /// The table, what went wrong, and as the very last line the sum.
    pub(crate) fn print(&self) {
        say(&format!("\n{:<32} {:>8} {:>8} {:>9}", "suite", "passed", "failed", "seconds"));
        for row in &self.rows {
            let Count { passed, failed } = row.count;
            say(&format!("{:<32} {passed:>8} {failed:>8} {:>9.1}", row.suite, row.took.as_secs_f64()));
        }
        for trouble in &self.troubles {
            say(&format!("\n{trouble}"));
        }
        let Count { passed, failed } = self.total();
        say(&format!("\n{passed} passed, {failed} failed"));
    }

    /// A run that tested nothing is not green.
    pub(crate) fn is_green(&self) -> bool {
        let Count { passed, failed } = self.total();
        failed == 0 && passed > 0
    }

    fn total(&self) -> Count {
        self.rows.iter().fold(Count::default(), |sum, row| sum.plus(row.count))
    }
}

impl Count {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { passed: self.passed.saturating_add(other.passed), failed: self.failed.saturating_add(other.failed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_that_ended_badly_counts_a_failure_even_when_it_counted_none() {
        let mut report = Report::default();
        report.add("good", Count { passed: 3, failed: 0 }, Ok(()), Duration::ZERO);
        assert!(report.is_green());
        report.add("bad", Count { passed: 2, failed: 0 }, Err(Trouble::new("it crashed".to_owned())), Duration::ZERO);
        assert_eq!(report.total(), Count { passed: 5, failed: 1 });
        assert!(!report.is_green());
    }

    #[test]
    fn a_run_without_any_test_is_not_green() {
        assert!(!Report::default().is_green());
    }
}
