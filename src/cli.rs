//! The command line: what was asked for, and the exit code that says how it went.
//!
//! Exit codes: 0 done, 64 usage or configuration, 69 a needed service is away, 70 internal, 130 interrupted. Must not
//! know a protocol.

mod check;
mod demo;
mod hash_password;
mod new_key;
mod reload;
mod serve;

use std::fmt;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

/// The guarded gate in front of a Ballista cluster.
#[derive(Debug, Parser)]
#[command(name = "portcullis", disable_version_flag = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start an embedded cluster with TPC-H tables, a fresh certificate and one random token (the default)
    Demo(DemoArguments),
    /// Serve what a configuration file says
    Serve(ConfigArgument),
    /// Check a configuration and everything it names
    Check(ConfigArgument),
    /// Read a password from standard input and print its argon2id hash for `users.toml`
    HashPassword,
    /// Print a fresh sealing key, or an API key and its stored hash
    NewKey(NewKeyArguments),
    /// Print the versions
    Version,
}

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
struct DemoArguments {
    /// Where to listen; port 0 lets the system choose
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:32010")]
    listen: SocketAddr,
    /// Where tables, certificate, token and configuration are kept
    #[arg(long, value_name = "DIR", default_value = "portcullis-demo")]
    dir: PathBuf,
    /// The TPC-H scale factor
    #[arg(long, value_name = "SF", default_value_t = 0.01)]
    scale: f64,
}

/// The one argument of `serve` and `check`.
#[derive(Debug, clap::Args)]
struct ConfigArgument {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// Arguments of `new-key`.
#[derive(Debug, clap::Args)]
struct NewKeyArguments {
    /// An API key instead of a sealing key
    #[arg(long)]
    api_key: bool,
    /// Whom the API key identifies
    #[arg(long, value_name = "NAME", default_value = "service", requires = "api_key")]
    principal: String,
    /// A role of that principal; may be repeated
    #[arg(long = "role", value_name = "ROLE", requires = "api_key")]
    roles: Vec<String>,
}

/// How a command ended when it did not end well.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Usage or configuration.
    Configuration(String),
    /// A service that is needed is away, or a port is taken.
    Unreachable(String),
    /// A fault of this program.
    Internal(String),
    /// By a signal from the keyboard.
    Interrupted,
}

/// Runs the process's command line.
#[expect(clippy::wildcard_enum_match_arm, reason = "all of clap's other errors are wrong usage")]
pub fn run() -> ExitCode {
    let command = match Arguments::try_parse() {
        Ok(arguments) => arguments.command.unwrap_or_else(demo_by_default),
        Err(error) => {
            drop(error.print());
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ => ExitCode::from(EX_USAGE),
            };
        }
    };
    let ended = match command {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Serve(ConfigArgument { config }) => serve::run(&config),
        Command::Check(ConfigArgument { config }) => check::run(&config),
        Command::HashPassword => hash_password::run(),
        Command::NewKey(arguments) => new_key::run(&arguments),
        Command::Version => say(format_args!(
            "portcullis {}\nballista {}\ndatafusion {}",
            env!("CARGO_PKG_VERSION"),
            ballista_core::BALLISTA_VERSION,
            datafusion::DATAFUSION_VERSION
        )),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(ended) => ended.report(),
    }
}

fn demo_by_default() -> Command {
    Command::Demo(DemoArguments {
        listen: SocketAddr::from(([127, 0, 0, 1], 32_010)),
        dir: PathBuf::from("portcullis-demo"),
        scale: 0.01,
    })
}

impl Ended {
    fn report(self) -> ExitCode {
        let (code, text) = match self {
            Self::Configuration(text) => (EX_USAGE, text),
            Self::Unreachable(text) => (EX_UNAVAILABLE, text),
            Self::Internal(text) => (EX_SOFTWARE, text),
            Self::Interrupted => return ExitCode::from(INTERRUPTED),
        };
        // Nobody is left to tell when even this fails.
        drop(writeln!(std::io::stderr().lock(), "{text}"));
        ExitCode::from(code)
    }
}

/// Writes to standard output; a closed pipe ends the command quietly.
pub(crate) fn say(text: impl fmt::Display) -> Result<(), Ended> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| Ended::Internal(error.to_string()))
}

/// Runs `work` on a runtime whose threads have room for the engine's recursion.
pub(crate) fn on_runtime(work: impl Future<Output = Result<(), Ended>>) -> Result<(), Ended> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(STACK)
        .build()
        .map_err(|error| Ended::Internal(error.to_string()))?;
    let ended = runtime.block_on(work);
    runtime.shutdown_timeout(SHUTDOWN);
    ended
}

const EX_USAGE: u8 = 64;
const EX_UNAVAILABLE: u8 = 69;
const EX_SOFTWARE: u8 = 70;
const INTERRUPTED: u8 = 130;
/// The embedded scheduler decodes and plans on the runtime's own threads (finding F6).
const STACK: usize = 32 * 1024 * 1024;
const SHUTDOWN: std::time::Duration = std::time::Duration::from_secs(5);
