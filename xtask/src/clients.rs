//! The real-client suites: the released binary of the gate, started as a user would, and pytest beside it.
//!
//! Must not decide what is tested: that is in `tests/clients`. A missing tool is a failure, never a skip.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::Places;
use crate::cluster::Cluster;
use crate::gate::Gate;
use crate::idp::Provider;
use crate::java::{self, Jars};
use crate::report::{Count, Report};
use crate::run::{Stopwatch, Trouble, say, succeed};
use crate::rust::cargo;
use crate::{go, idp, python, rust, s3, tools};

/// Prepares the clients, builds the gate, and runs every suite against an embedded and against a remote cluster.
pub(crate) fn test(places: &Places, report: &mut Report) {
    let mut clients = None;
    report.check("client tools", || {
        rust::tools(places)?;
        clients = Some(Clients::prepare(places)?);
        Ok(())
    });
    let built = report.check("build the gate", || {
        let examples = ["query", "ballista_node", "basic_gate"].into_iter().flat_map(|name| ["--example", name]);
        succeed(
            cargo(places)
                .args(["build", "--package", "portcullis"])
                .args(rust::FEATURES)
                .args(["--bin", "portcullis"])
                .args(examples),
        )
    });
    let (Some(clients), true) = (clients, built) else { return };

    let mut provider = None;
    report.check("the identity provider starts", || {
        provider = Some(clients.provider.start()?);
        Ok(())
    });
    let mut store = None;
    report.check("the S3 server starts", || {
        store = Some(clients.store.start()?);
        Ok(())
    });
    // Without them the suites fail where they need one, and the others still run.
    against_gates(places, &clients, report);
    if let Some(store) = store {
        report.check("the S3 server stops cleanly", || store.stop());
    }
    if let Some(provider) = provider {
        report.check("the identity provider stops cleanly", || provider.stop());
    }
}

fn against_gates(places: &Places, clients: &Clients, report: &mut Report) {
    let run = places.target.join("clients-run");
    let binary = places.binaries.join("portcullis");
    let mut gate = None;
    report.check("the gate starts", || {
        gate = Some(Gate::demo(&binary, &run)?);
        Ok(())
    });
    let Some(gate) = gate else { return };
    say(&format!("the gate answers at {}", gate.url));
    clients.test(places, &gate, &run, &Behind::Embedded, report);
    report.check("the gate stops cleanly", || gate.stop());

    let mut remote = None;
    report.check("a gate before two executors starts", || {
        let cluster = Cluster::start(&places.binaries, &run.join("cluster"), 2)?;
        remote = Some((Gate::remote(&binary, &run, &cluster)?, cluster));
        Ok(())
    });
    let Some((gate, cluster)) = remote else { return };
    say(&format!("the gate before {} answers at {}", cluster.ports(), gate.url));
    clients.test(places, &gate, &run, &Behind::Remote { ports: cluster.ports() }, report);
    report.check("the gate before two executors stops cleanly", || gate.stop());
}

/// What is behind the gate of a run.
enum Behind {
    Embedded,
    /// Processes of their own, which listen on these ports.
    Remote {
        ports: String,
    },
}

/// Everything that a client suite needs beside the gate.
struct Clients {
    python: PathBuf,
    /// For clients whose companions cannot live in the first environment.
    apart: PathBuf,
    go: PathBuf,
    flight_sql_client: PathBuf,
    jars: Vec<Jars>,
    provider: Provider,
    store: s3::Server,
}

impl Clients {
    fn prepare(places: &Places) -> Result<Self, Trouble> {
        let python = python::prepare(places, "tests/clients/requirements.txt", "clients-venv")?;
        Ok(Self {
            apart: python::prepare(places, "tests/clients/apart/requirements.txt", "clients-apart-venv")?,
            go: go::prepare(places, &python)?,
            flight_sql_client: tools::flight_sql_client(places)?,
            jars: java::prepare(places, &python)?,
            provider: idp::prepare(places, &python)?,
            store: s3::prepare(places)?,
            python,
        })
    }

    fn test(&self, places: &Places, gate: &Gate, run: &Path, behind: &Behind, report: &mut Report) {
        let ca = gate.folder.join("ca.pem");
        for Suite { python, words, environment } in self.suites(&ca) {
            let mut command = Command::new(python);
            command
                .current_dir(places.root.join("tests/clients"))
                .args(["-m", "pytest", "-p", "no:cacheprovider", "--tb=short", "-q"])
                .args(words)
                .env("PYTHONDONTWRITEBYTECODE", "1")
                .env("PORTCULLIS_URL", &gate.url)
                .env("PORTCULLIS_TOKEN_FILE", gate.folder.join("token"))
                .env("PORTCULLIS_CA", &ca)
                .env("PORTCULLIS_OUTPUT", &gate.output)
                .env("PORTCULLIS_PID", gate.process_id())
                .env("PORTCULLIS_BINARY", places.binaries.join("portcullis"))
                .env("PORTCULLIS_RUST_CLIENT", places.binaries.join("examples/query"))
                .env("PORTCULLIS_BASIC_GATE", places.binaries.join("examples/basic_gate"))
                .env("PORTCULLIS_APART_PYTHON", &self.apart)
                .env("PORTCULLIS_GO_TESTS", &self.go)
                .env("PORTCULLIS_FLIGHT_SQL_CLIENT", &self.flight_sql_client)
                .env("PORTCULLIS_IDP", self.provider.folder())
                .env("PORTCULLIS_S3", self.store.folder())
                .envs(environment);
            let name = match behind {
                Behind::Embedded => "embedded",
                Behind::Remote { ports } => {
                    command.env("PORTCULLIS_CLUSTER_PORTS", ports);
                    "remote"
                }
            };
            pytest(&mut command, name, run, report);
        }
    }

    /// One process each: what cannot live together.
    fn suites(&self, ca: &Path) -> Vec<Suite<'_>> {
        let mut suites = vec![
            Suite { python: &self.python, words: &[], environment: Vec::new() },
            Suite {
                python: &self.apart,
                words: &["apart"],
                // Harlequin's driver takes a CA from nowhere else; the others must not trust it by the environment.
                environment: vec![("SSL_CERT_FILE", ca.display().to_string())],
            },
        ];
        let pool = self.jars.iter().find(|jars| jars.name == "pool").map_or("", |jars| &jars.class_path);
        for Jars { name, class_path } in &self.jars {
            let (words, class_path, version): (&[&str], _, _) = if let Some(version) = name.strip_prefix("jdbc-") {
                (JDBC, ("PORTCULLIS_JDBC_JARS", format!("{class_path}:{pool}")), version)
            } else if let Some(version) = name.strip_prefix("flight-sql-") {
                (JAVA_CLIENT, ("PORTCULLIS_FLIGHT_SQL_JARS", class_path.clone()), version)
            } else {
                continue;
            };
            let environment = vec![class_path, ("PORTCULLIS_VARIANT", version.to_owned())];
            suites.push(Suite { python: &self.python, words, environment });
        }
        suites
    }
}

struct Suite<'a> {
    python: &'a Path,
    words: &'static [&'static str],
    environment: Vec<(&'static str, String)>,
}

const JDBC: &[&str] = &[
    "java/test_jdbc.py",
    "java/test_jdbc_basic.py",
    "java/test_jdbc_mtls.py",
    "java/test_jdbc_whose.py",
    "java/test_jdbc_oauth.py",
    "test_leaks.py",
];
const JAVA_CLIENT: &[&str] = &["java/test_java_client.py", "test_leaks.py"];

/// Runs pytest and takes over the counts that `conftest.py` leaves, one row per test file.
fn pytest(command: &mut Command, name: &str, run: &Path, report: &mut Report) {
    let counts = run.join("counts.txt");
    // What another process has left says nothing about this one.
    let _ = fs::remove_file(&counts);
    let watch = Stopwatch::start();
    let ended = succeed(command.env("PORTCULLIS_COUNTS", &counts));
    let rows = fs::read_to_string(&counts).unwrap_or_default();
    let rows: Vec<(&str, Count, Duration)> = rows.lines().filter_map(row).collect();
    let failed = rows.iter().any(|(_, count, _)| count.failed > 0);
    for (suite, count, took) in &rows {
        report.add(&format!("{name} {suite}"), *count, Ok(()), *took);
    }
    // pytest's own verdict is added only where the counts do not show it: a crash, or no test at all.
    match ended {
        Err(trouble) if !failed => report.add(&format!("{name} pytest"), Count::default(), Err(trouble), watch.took()),
        Ok(()) if rows.is_empty() => {
            let trouble = Trouble::new("pytest left no counts".to_owned());
            report.add(&format!("{name} pytest"), Count::default(), Err(trouble), watch.took());
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
