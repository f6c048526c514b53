//! `check`: a configuration and everything it names, without serving anybody.
//!
//! Goes as far as `serve` does and one query further: files are read, the cluster starts or is greeted, tables are
//! opened, one row comes back from an executor, and all of it is stopped again.
//! Prints findings; the exit code says whether `serve` would start.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use datafusion::logical_expr::{LogicalPlanBuilder, lit};
use futures::{StreamExt, TryStreamExt};

use super::serve::{Started, notes, start};
use super::{Ended, on_runtime, say};
use crate::backend::{BackendError, BackendSession, JobStatus, QueryBackend, Submission};
use crate::config::Config;

pub(super) fn run(file: &Path) -> Result<(), Ended> {
    let mut config = Config::load(file).map_err(|errors| Ended::Configuration(errors.to_string()))?;
    for note in notes(&config) {
        say(format_args!("note: {note}"))?;
    }
    let listen = config.server.listen;
    // The configured port may be in use by the very server whose next configuration this is.
    config.server.listen = SocketAddr::new(listen.ip(), 0);
    let tables = config.tables.len();
    on_runtime(async move {
        let Started { gate, cluster, reloading: _, notes } = start(file, config).await?;
        for note in notes {
            say(format_args!("note: {note}"))?;
        }
        let answered = one_row(&*cluster.backend()).await;
        let broken = match gate.configured() {
            Some(configured) => configured.open_all().await,
            None => Vec::new(),
        };
        gate.drain(Duration::from_secs(1)).await;
        cluster.stop().await;
        answered.map_err(|error| Ended::Unreachable(format!("the cluster does not answer a query: {error}")))?;
        match broken.is_empty() {
            true => Ok(()),
            false => {
                let lines = broken.iter().map(|error| format!("{}:{error}", file.display()));
                Err(Ended::Configuration(lines.collect::<Vec<_>>().join("\n")))
            }
        }
    })?;
    say(format_args!("ok: {} would listen on {listen} with {tables} tables", file.display()))
}

/// Has an executor make one row and fetches it, which takes all that a client's query does.
async fn one_row(backend: &dyn QueryBackend) -> Result<(), BackendError> {
    let config = backend.session_config();
    let plan = LogicalPlanBuilder::values(vec![vec![lit(1)]])
        .and_then(LogicalPlanBuilder::build)
        .map_err(|error| BackendError::protocol(error.strip_backtrace()))?;
    let session = BackendSession::new("portcullis-check");
    let submission = Submission { session: session.clone(), config, plan, label: "portcullis-check".to_owned() };
    let mut statuses = backend.submit(submission).await?;
    let answered = async {
        while let Some(status) = statuses.next().await {
            match status? {
                (_, JobStatus::Queued | JobStatus::Running) => (),
                (_, JobStatus::Failed(error)) => return Err(error),
                (job, JobStatus::Succeeded(result)) => {
                    for part in &result.parts {
                        backend.fetch(part).await?.messages.try_collect::<Vec<_>>().await?;
                    }
                    return backend.clean(&job).await;
                }
            }
        }
        Err(BackendError::unavailable("the scheduler closed the status stream before the job ended"))
    };
    let answered = tokio::time::timeout(QUERY, answered)
        .await
        .unwrap_or_else(|_| Err(BackendError::unavailable("no executor took the query in time")));
    answered.and(backend.close(&session).await)
}

const QUERY: Duration = Duration::from_secs(30);
