//! The Rust suites: format, lint, tests; and the run that rewrites the snapshots.
//!
//! Must not start a gate: what needs one is in `clients.rs`.

use std::process::Command;

use crate::Places;
use crate::protoc;
use crate::report::{Count, Report};
use crate::run::{Stopwatch, Trouble, answers, succeed, succeed_reading};

/// Format, lint and tests, in the order of their cost.
pub(crate) fn test(places: &Places, report: &mut Report) {
    if !report.check("tools for Rust", || tools(places)) {
        return;
    }
    report.check("format", || succeed(cargo(places).args(["fmt", "--all", "--check"])));
    report.check("lint", || {
        let mut clippy = cargo(places);
        clippy.args(["clippy", "--workspace", "--all-targets"]).args(FEATURES);
        succeed(clippy.args(["--", "-D", "warnings"]))
    });
    // As it is without a word about features: what a user builds first.
    report.check("lint without features", || {
        succeed(cargo(places).args(["clippy", "--package", "portcullis", "--lib", "--bins", "--", "-D", "warnings"]))
    });
    run_tests("rust tests", cargo(places).args(["test", "--workspace", "--no-fail-fast"]).args(FEATURES), report);
    test_cedar(places, report);
}

/// The same for the example that is a workspace of its own. Its target folder is named, or it would be inside the
/// example.
fn test_cedar(places: &Places, report: &mut Report) {
    let cargo = |words: &[&str]| {
        let mut command = cargo(places);
        command.args(words).args(["--manifest-path", CEDAR]);
        command
    };
    report.check("cedar example: format", || succeed(&mut cargo(&["fmt", "--check"])));
    report.check("cedar example: lint", || {
        let mut clippy = cargo(&["clippy", "--all-targets"]);
        succeed(clippy.arg("--target-dir").arg(&places.target).args(["--", "-D", "warnings"]))
    });
    let mut tests = cargo(&["test", "--no-fail-fast"]);
    run_tests("cedar example: tests", tests.arg("--target-dir").arg(&places.target), report);
}

fn run_tests(suite: &str, tests: &mut Command, report: &mut Report) {
    let watch = Stopwatch::start();
    let mut count = Count::default();
    let mut failures = Failures::default();
    let ended = succeed_reading(tests, |line| {
        count = count.plus(counted(line));
        failures.read(line);
    });
    report.add(suite, count, ended, watch.took());
    for failure in failures.found {
        report.note(suite, &failure);
    }
}

/// Runs the same tests and lets those that compare with a checked-in file write it instead.
pub(crate) fn bless(places: &Places) -> Result<(), Trouble> {
    protoc::prepare(places)?;
    let mut tests = cargo(places);
    tests.args(["test", "--workspace", "--no-fail-fast"]).args(FEATURES);
    succeed(tests.env("PORTCULLIS_BLESS", "1"))
}

/// Cargo in the repository, whatever folder this program was started from, with the `protoc` that [`FEATURES`] need.
pub(crate) fn cargo(places: &Places) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(&places.root).env("PROTOC", protoc::path(places));
    command
}

/// The gate is tested with all that it can have.
pub(crate) const FEATURES: [&str; 2] = ["--features", "portcullis/substrait"];

/// Names what is missing before an hour of building does.
pub(crate) fn tools(places: &Places) -> Result<(), Trouble> {
    let needed = [
        ("cc", ["--version"].as_slice(), "a C compiler, such as Debian's `gcc`"),
        ("cargo", &["fmt", "--version"], "rustfmt: `rustup component add rustfmt`"),
        ("cargo", &["clippy", "--version"], "clippy: `rustup component add clippy`"),
    ];
    for (program, arguments, package) in needed {
        if !answers(Command::new(program).args(arguments)) {
            return Err(Trouble::new(format!("`{program} {}` does not work; install {package}", arguments.join(" "))));
        }
    }
    protoc::prepare(places)
}

/// Reads libtest's `test result: ok. 12 passed; 0 failed; 0 ignored; …`; an ignored test is a failed one here.
fn counted(line: &str) -> Count {
    let Some((_, numbers)) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". ")) else {
        return Count::default();
    };
    numbers.split("; ").fold(Count::default(), |sum, part| {
        let number = part.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
        match part.rsplit(' ').next() {
            Some("passed") => sum.plus(Count { passed: number, failed: 0 }),
            Some("failed" | "ignored") => sum.plus(Count { passed: 0, failed: number }),
            Some(_) | None => sum,
        }
    })
}

/// What failed tests say of themselves: of what libtest prints below `---- the::test stdout ----`, the lines from
/// `thread … panicked at` to the backtrace.
#[derive(Default)]
struct Failures {
    found: Vec<String>,
    part: Part,
}

/// Which part of libtest's output a line belongs to.
#[derive(Default)]
enum Part {
    #[default]
    Elsewhere,
    OutputOf(String),
    PanicWithLinesLeft(usize),
}

impl Failures {
    fn read(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            self.part = Part::OutputOf(name.to_owned());
            return;
        }
        match &mut self.part {
            Part::OutputOf(name) if line.starts_with("thread '") && line.contains("panicked at") => {
                self.found.push(format!("{name}\n{line}"));
                self.part = Part::PanicWithLinesLeft(PANIC_LINES);
            }
            Part::PanicWithLinesLeft(0) => self.part = Part::Elsewhere,
            Part::PanicWithLinesLeft(_) if line == "stack backtrace:" => self.part = Part::Elsewhere,
            Part::PanicWithLinesLeft(left) => {
                *left = left.saturating_sub(1);
                if let Some(failure) = self.found.last_mut() {
                    failure.push('\n');
                    failure.extend(line.chars().take(PANIC_WIDTH));
                }
            }
            Part::Elsewhere | Part::OutputOf(_) => {}
        }
    }
}

const PANIC_LINES: usize = 8;
/// In characters.
const PANIC_WIDTH: usize = 2_000;

const CEDAR: &str = "examples/cedar/Cargo.toml";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_of_a_test_binary_is_counted() {
        let line = "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.05s";
        assert_eq!(counted(line), Count { passed: 12, failed: 0 });
    }

    #[test]
    fn an_ignored_test_is_a_failed_one() {
        let line = "test result: FAILED. 1 passed; 2 failed; 4 ignored; 0 measured; 0 filtered out; finished in 0.05s";
        assert_eq!(counted(line), Count { passed: 1, failed: 6 });
    }

    #[test]
    fn a_failed_test_is_told_with_its_panic() {
        let mut failures = Failures::default();
        for line in [
            "test a::b ... FAILED",
            "thread 'main' panicked at elsewhere",
            "---- a::b stdout ----",
            "",
            "thread 'a::b' (7) panicked at tests/a.rs:1:5:",
            "left and right differ",
            "stack backtrace:",
            "   0: __rustc::rust_begin_unwind",
            "---- c stdout ----",
            "thread 'c' (8) panicked at tests/c.rs:1:5:",
            "failures:",
        ] {
            failures.read(line);
        }
        let told = [
            "a::b\nthread 'a::b' (7) panicked at tests/a.rs:1:5:\nleft and right differ",
            "c\nthread 'c' (8) panicked at tests/c.rs:1:5:\nfailures:",
        ];
        assert_eq!(failures.found, told);
    }

    #[test]
    fn other_lines_count_nothing() {
        for line in ["", "running 12 tests", "test result: ", "test result: ok", "test a ... ok", "12 passed; 1 failed"]
        {
            assert_eq!(counted(line), Count::default(), "{line}");
        }
    }
}
