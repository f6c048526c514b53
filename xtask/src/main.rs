//! `cargo xtask`: the one test command and what belongs to it.
//!
//! Runs other programs (cargo, Python, the gate itself) and adds up what they say. Must not link the engine or any
//! crate of the gate: it has to build in seconds on a machine that has nothing yet.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod clients;
mod cluster;
mod fuzz;
mod gate;
mod go;
mod idp;
mod java;
mod protoc;
mod python;
mod report;
mod run;
mod rust;
mod s3;
mod service;
mod tools;

use crate::report::Report;
use crate::run::{Trouble, say};

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if fuzz::is_compiler(&words) {
        return fuzz::compile(&words);
    }
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let Some(task) = Task::parse(&words) else {
        say(&format!("unknown task `{}`\n\n{HELP}", words.join(" ")));
        return ExitCode::from(EX_USAGE);
    };
    let places = match Places::find() {
        Ok(places) => places,
        Err(trouble) => {
            say(&format!("error: {trouble}"));
            return ExitCode::FAILURE;
        }
    };
    match task {
        Task::Bless => ended(rust::bless(&places)),
        Task::Cluster(executors) => ended(cluster::run(&places, executors)),
        Task::Fuzz(order) => ended(fuzz::run(&places, &order)),
        Task::Help => {
            say(HELP);
            ExitCode::SUCCESS
        }
        Task::Test(scope) => {
            let report = test(&places, scope);
            report.print();
            if report.is_green() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}

fn ended(ended: Result<(), Trouble>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            say(&format!("error: {trouble}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs every suite of the scope, also after one has failed: a run tells all that is wrong.
fn test(places: &Places, scope: Scope) -> Report {
    let mut report = Report::default();
    match scope {
        Scope::All => {
            rust::test(places, &mut report);
            clients::test(places, &mut report);
        }
        Scope::Clients => clients::test(places, &mut report),
        Scope::Rust => rust::test(places, &mut report),
    }
    report
}

enum Task {
    Bless,
    Cluster(usize),
    Fuzz(fuzz::Order),
    Help,
    Test(Scope),
}

#[derive(Clone, Copy)]
enum Scope {
    All,
    Clients,
    Rust,
}

impl Task {
    fn parse(words: &[String]) -> Option<Self> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            [] | ["help" | "--help" | "-h"] => Some(Self::Help),
            ["bless"] => Some(Self::Bless),
            ["cluster"] => Some(Self::Cluster(2)),
            ["cluster", "--executors", number] => {
                number.parse().ok().filter(|number| (1..=64).contains(number)).map(Self::Cluster)
            }
            ["fuzz", words @ ..] => fuzz::Order::parse(words).map(Self::Fuzz),
            ["test"] => Some(Self::Test(Scope::All)),
            ["test", "clients"] => Some(Self::Test(Scope::Clients)),
            ["test", "rust"] => Some(Self::Test(Scope::Rust)),
            _ => None,
        }
    }
}

/// The two folders that everything is named from.
pub(crate) struct Places {
    /// The repository.
    pub(crate) root: PathBuf,
    /// Where cargo puts the binaries of the profile that this program was itself built with, `<target>/debug`.
    pub(crate) binaries: PathBuf,
    /// Cargo's target folder: everything that a run makes is below it.
    pub(crate) target: PathBuf,
}

impl Places {
    /// The target folder is found from where this program lies, so that it is right whichever way cargo was told of it.
    fn find() -> Result<Self, Trouble> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf);
        let own =
            std::env::current_exe().map_err(|error| Trouble::new(format!("cannot find this program: {error}")))?;
        let binaries = own.parent().map(Path::to_path_buf);
        let target = binaries.as_deref().and_then(Path::parent).map(Path::to_path_buf);
        match (root, binaries, target) {
            (Some(root), Some(binaries), Some(target)) => Ok(Self { root, binaries, target }),
            (None, _, _) | (_, None, _) | (_, _, None) => Err(Trouble::new("cannot find the target folder".to_owned())),
        }
    }
}

const EX_USAGE: u8 = 64;

const HELP: &str = "\
cargo xtask test            format, lint, Rust tests, then the real clients against a started gate
cargo xtask test rust       format, lint and Rust tests only
cargo xtask test clients    the real clients only
cargo xtask cluster [--executors N]
                            a stock Ballista cluster on this machine, to put a gate before
cargo xtask fuzz --seconds N [TARGET]...
                            gives each fuzz target, or these, so much time; needs a C++ compiler as well
cargo xtask bless           run the Rust tests and let them rewrite their checked-in snapshots
cargo xtask help            this text

Needs Rust with rustfmt and clippy, a C compiler and Python 3.11 or newer. What the clients need besides is fetched
from the package registries into cargo's target folder: Python environments, jars, an identity provider, an S3 server, a
command line client, and Java and Go where the machine has none.";
