//! `serve`: a gate as the configuration says, until a signal.
//!
//! `demo` goes through here as well, so that what it writes is what runs. Must not decide anything about security.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use portcullis_auth::SystemClock;
use tokio::signal::unix::{SignalKind, signal};

use super::{Ended, on_runtime};
use crate::backend::ballista::embedded::{Embedded, EmbeddedConfig};
use crate::config::{self, Cluster, Config, WorkDir};
use crate::listen;
use crate::server::{self, Catalogs, Running, Server, StartError, at_least_one};
use crate::tls::{MinVersion, TlsIdentity};
use crate::{logging, schemes};

pub(super) fn run(file: &Path) -> Result<(), Ended> {
    let config = Config::load(file).map_err(|errors| Ended::Configuration(errors.to_string()))?;
    logging::start(&config.log).map_err(Ended::Internal)?;
    on_runtime(serve(file, config, |_| Ok(())))
}

/// Serves until a signal; `ready` is told the address once queries can be answered.
pub(super) async fn serve(
    file: &Path,
    config: Config,
    ready: impl FnOnce(&Running) -> Result<(), Ended>,
) -> Result<(), Ended> {
    // Before anything is started, so that no signal is lost while it starts.
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| Ended::Internal(error.to_string()))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| Ended::Internal(error.to_string()))?;
    let drain = config.server.drain;
    let (gate, cluster) = tokio::select! {
        started = start(file, config) => started?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Err(Ended::Interrupted),
    };
    tracing::info!(address = %gate.address(), "listening");
    ready(&gate)?;
    let ended = tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Err(Ended::Interrupted),
    };
    tracing::info!("draining");
    gate.drain(drain).await;
    cluster.stop().await;
    ended
}

/// Everything a configuration names, running.
pub(super) async fn start(file: &Path, config: Config) -> Result<(Running, Embedded), Ended> {
    let transport = transport(&config)?;
    let chain = schemes::chain(&config.auth).map_err(|error| Ended::Configuration(error.to_string()))?;
    let sealer = server::sealer(&config.session.keys).map_err(|error| Ended::Configuration(error.to_string()))?;
    for note in notes(&config) {
        tracing::warn!("{note}");
    }
    let cluster = match &config.cluster {
        Cluster::Embedded(embedded) => {
            Embedded::start(&embedded_config(embedded)?).await.map_err(|error| Ended::Unreachable(error.to_string()))?
        }
    };
    let started = Server {
        listen: config.server.listen,
        transport,
        chain,
        clock: Arc::new(SystemClock),
        sealer,
        backend: Arc::new(cluster.backend()),
        catalogs: Catalogs::Configured(config.tables),
        session: config.session,
        limits: config.limits,
        locations: config.locations,
    }
    .start()
    .await;
    match started {
        Ok(gate) => Ok((gate, cluster)),
        Err(error) => {
            cluster.stop().await;
            Err(match error {
                StartError::Listen { .. } => Ended::Unreachable(error.to_string()),
                StartError::Chain(_) => Ended::Configuration(error.to_string()),
                StartError::Table(error) => Ended::Configuration(format!("{}:{error}", file.display())),
                StartError::Local(_) | StartError::Planner(_) => Ended::Internal(error.to_string()),
            })
        }
    }
}

/// What an operator should know about a configuration that is not wrong.
pub(super) fn notes(config: &Config) -> Vec<&'static str> {
    let mut notes = Vec::new();
    match config.server.transport {
        config::Transport::DangerPlaintext => {
            notes.push("danger_plaintext: credentials and results travel without TLS");
        }
        config::Transport::Tls(_) => (),
    }
    match config.session.keys {
        config::SealKeys::RandomPerProcess => {
            notes.push("session.keys is absent: sessions, tickets and prepared statements end with this process");
        }
        config::SealKeys::Given(_) => (),
    }
    match config.cluster {
        Cluster::Embedded(_) => {
            notes.push("embedded cluster: its loopback ports trust every process on this machine");
        }
    }
    notes
}

fn transport(config: &Config) -> Result<listen::Transport, Ended> {
    match &config.server.transport {
        config::Transport::DangerPlaintext => Ok(listen::Transport::DangerPlaintext),
        config::Transport::Tls(files) => {
            let min = match files.min_version {
                config::TlsVersion::Tls12 => MinVersion::Tls12,
                config::TlsVersion::Tls13 => MinVersion::Tls13,
            };
            TlsIdentity::load(&files.cert, &files.key, min)
                .map(listen::Transport::Tls)
                .map_err(|error| Ended::Configuration(error.to_string()))
        }
    }
}

fn embedded_config(embedded: &config::Embedded) -> Result<EmbeddedConfig, Ended> {
    let count = |number| NonZeroUsize::new(number).ok_or_else(|| Ended::Configuration("a count of zero".to_owned()));
    Ok(EmbeddedConfig {
        executors: count(embedded.executors)?,
        vcores: count(embedded.vcores)?,
        work_dir: match &embedded.work_dir {
            WorkDir::At(path) => path.clone(),
            WorkDir::Temporary => temporary(),
        },
        executor_memory: EXECUTOR_MEMORY,
        result_ttl: RESULT_TTL,
    })
}

fn temporary() -> PathBuf {
    std::env::temp_dir()
}

/// Tasks of one executor spill beyond it.
const EXECUTOR_MEMORY: NonZeroUsize = at_least_one(4 * 1024 * 1024 * 1024);
/// Longer than a ticket and its last reader.
const RESULT_TTL: Duration = Duration::from_secs(900);
