//! The process's log: to standard error, in the configured level and format.
//!
//! Ballista is held one level lower than asked, since it writes plans and addresses for every task. To be started once.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{Log, LogFormat, LogLevel};

/// Starts logging for the whole process.
pub fn start(log: &Log) -> Result<(), String> {
    let engine = match log.level {
        LogLevel::Error | LogLevel::Warn => "error",
        LogLevel::Info => "warn",
        LogLevel::Debug => "info",
        LogLevel::Trace => "debug",
    };
    let engines = [
        "ballista_core",
        "ballista_executor",
        "ballista_scheduler",
        "datafusion",
        "h2",
        "hyper",
        "rustls",
        "sqlparser",
        "tower",
    ];
    // Reported as errors there, and none: a reader that had enough rows, and metrics of a stage that was planned anew.
    let noise = match log.level {
        LogLevel::Error | LogLevel::Warn | LogLevel::Info => {
            ",ballista_core::execution_plans::shuffle_reader=off,ballista_scheduler::display=off"
        }
        LogLevel::Debug | LogLevel::Trace => "",
    };
    let directives =
        engines.iter().fold(log.level.as_str().to_owned(), |text, name| text + &format!(",{name}={engine}")) + noise;
    let filter = EnvFilter::try_new(directives).map_err(|error| error.to_string())?;
    let builder = fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    match log.format {
        LogFormat::Json => builder.json().finish().try_init(),
        LogFormat::Text => builder.finish().try_init(),
    }
    .map_err(|error| error.to_string())
}
