//! The real-client suites: the released binary of the gate, started as a user would, and pytest beside it.
//!
//! Must not decide what is tested: that is in `tests/clients`. A missing tool is a failure, never a skip.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::Places;
use crate::gate::Gate;
use crate::python;
use crate::report::{Count, Report};
use crate::run::{Stopwatch, Trouble, say, succeed};
use crate::rust::{cargo, tools};

/// Prepares Python, builds the gate, starts it, runs pytest against it and stops it.
pub(crate) fn test(places: &Places, report: &mut Report) {
    let mut python = None;
    report.check("client tools", || {
        tools()?;
        python = Some(python::prepare(places)?);
        Ok(())
    });
    let built = report.check("build the gate", || {
        succeed(cargo(places).args(["build", "--package", "portcullis", "--bin", "portcullis", "--example", "query"]))
    });
    let (Some(python), true) = (python, built) else { return };

    let run = places.target.join("clients-run");
    let mut gate = None;
    report.check("the gate starts", || {
        gate = Some(Gate::start(&places.binaries.join("portcullis"), &run)?);
        Ok(())
    });
    let Some(gate) = gate else { return };
    say(&format!("the gate answers at {}", gate.url));

    pytest(places, &python, &gate, &run, report);
    report.check("the gate stops cleanly", || gate.stop());
}

/// Runs pytest and takes over the counts that `conftest.py` leaves, one row per test file.
fn pytest(places: &Places, python: &Path, gate: &Gate, run: &Path, report: &mut Report) {
    let counts = run.join("counts.txt");
    let watch = Stopwatch::start();
    let ended = succeed(
        Command::new(python)
            .current_dir(places.root.join("tests/clients"))
            .args(["-m", "pytest", "-p", "no:cacheprovider", "--tb=short", "-q"])
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PORTCULLIS_URL", &gate.url)
            .env("PORTCULLIS_TOKEN_FILE", gate.folder.join("token"))
            .env("PORTCULLIS_CA", gate.folder.join("ca.pem"))
            .env("PORTCULLIS_OUTPUT", &gate.output)
            .env("PORTCULLIS_PID", gate.process_id())
            .env("PORTCULLIS_RUST_CLIENT", places.binaries.join("examples/query"))
            .env("PORTCULLIS_COUNTS", &counts),
    );
    let rows = fs::read_to_string(&counts).unwrap_or_default();
    let rows: Vec<(&str, Count, Duration)> = rows.lines().filter_map(row).collect();
    let failed = rows.iter().any(|(_, count, _)| count.failed > 0);
    for (suite, count, took) in &rows {
        report.add(suite, *count, Ok(()), *took);
    }
    // pytest's own verdict is added only where the counts do not show it: a crash, or no test at all.
    match ended {
        Err(trouble) if !failed => report.add("pytest", Count::default(), Err(trouble), watch.took()),
        Ok(()) if rows.is_empty() => {
            let trouble = Trouble::new("pytest left no counts".to_owned());
            report.add("pytest", Count::default(), Err(trouble), watch.took());
        }
        Ok(()) | Err(_) => (),
    }
}

/// `test_adbc.py 51 0 12.5`: file, passed, failed, seconds.
fn row(line: &str) -> Option<(&str, Count, Duration)> {
    let words: Vec<&str> = line.split(' ').collect();
    let [suite, passed, failed, seconds] = words.as_slice() else { return None };
    let count = Count { passed: passed.parse().ok()?, failed: failed.parse().ok()? };
    Some((suite, count, Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_the_counts_is_read() {
        let expected = ("test_adbc.py", Count { passed: 51, failed: 2 }, Duration::from_millis(12_500));
        assert_eq!(row("test_adbc.py 51 2 12.5"), Some(expected));
    }

    #[test]
    fn a_broken_row_is_not_a_row() {
        for line in ["", "test_adbc.py", "test_adbc.py 1 2", "test_adbc.py a b c", "test_adbc.py 1 2 -1"] {
            assert!(row(line).is_none(), "{line}");
        }
    }
}
