//! `serve`: a gate as the configuration says, until a signal.
//!
//! `demo` goes through here as well, so that what it writes is what runs. Must not decide anything about security.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use portcullis_auth::SystemClock;
use tokio::signal::unix::{SignalKind, signal};
use url::Url;

use super::{Ended, on_runtime};
use crate::backend::ballista::BallistaBackend;
use crate::backend::ballista::embedded::{Embedded, EmbeddedConfig};
use crate::backend::ballista::remote::{self, ClusterTls, RemoteScheduler, Results};
use crate::backend::{BackendError, QueryBackend};
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
pub(super) async fn start(file: &Path, config: Config) -> Result<(Running, Behind), Ended> {
    let transport = transport(&config)?;
    let chain = schemes::chain(&config.auth).map_err(|error| Ended::Configuration(error.to_string()))?;
    let sealer = server::sealer(&config.session.keys).map_err(|error| Ended::Configuration(error.to_string()))?;
    for note in notes(&config) {
        tracing::warn!("{note}");
    }
    let cluster = Behind::start(config.cluster).await?;
    let started = Server {
        listen: config.server.listen,
        transport,
        chain,
        clock: Arc::new(SystemClock),
        sealer,
        backend: cluster.backend(),
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

/// The cluster behind a gate.
pub(super) enum Behind {
    /// In this process, and ended with it.
    Embedded(Box<Embedded>),
    /// Elsewhere; it goes on.
    Remote(Box<BallistaBackend<RemoteScheduler>>),
}

impl Behind {
    async fn start(cluster: Cluster) -> Result<Self, Ended> {
        match cluster {
            Cluster::Embedded(embedded) => Embedded::start(&embedded_config(&embedded)?)
                .await
                .map(|embedded| Self::Embedded(Box::new(embedded)))
                .map_err(|error| Ended::Unreachable(error.to_string())),
            Cluster::Remote(config) => {
                let scheduler = config.scheduler.clone();
                let backend = remote::backend(*config).map_err(|error| Ended::Configuration(error.to_string()))?;
                greeted(&backend, &scheduler).await?;
                Ok(Self::Remote(Box::new(backend)))
            }
        }
    }

    pub(super) fn backend(&self) -> Arc<dyn QueryBackend> {
        match self {
            Self::Embedded(embedded) => Arc::new(embedded.backend()),
            Self::Remote(backend) => Arc::new(BallistaBackend::clone(backend)),
        }
    }

    pub(super) async fn stop(self) {
        match self {
            Self::Embedded(embedded) => embedded.stop().await,
            Self::Remote(_) => (),
        }
    }
}

/// Waits a little for the scheduler, which may start at the same time, and looks at its version.
async fn greeted(backend: &BallistaBackend<RemoteScheduler>, scheduler: &Url) -> Result<(), Ended> {
    let deadline = tokio::time::Instant::now().checked_add(SCHEDULER_START);
    loop {
        match backend.greet().await {
            Ok(()) => return Ok(()),
            Err(BackendError::Unavailable(cause)) => {
                if deadline.is_none_or(|deadline| tokio::time::Instant::now() > deadline) {
                    return Err(Ended::Unreachable(format!("no scheduler answers at {scheduler}: {cause}")));
                }
                tracing::warn!(%scheduler, cause, "the scheduler does not answer yet");
                tokio::time::sleep(SCHEDULER_PAUSE).await;
            }
            Err(error) => {
                return Err(Ended::Unreachable(format!("the scheduler at {scheduler} cannot be used: {error}")));
            }
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
    match &config.cluster {
        Cluster::Embedded(_) => {
            notes.push("embedded cluster: its loopback ports trust every process on this machine");
        }
        Cluster::Remote(remote) => {
            if let ClusterTls::None = remote.tls {
                notes.push("cluster.scheduler is `http`: plans travel without TLS; keep that network to the cluster");
            }
            if let Results::Executors(_) = remote.results {
                notes.push("cluster.fetch is `executors`: stock executors speak no TLS, results come in plain text");
            }
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

/// How long a start waits for its scheduler.
const SCHEDULER_START: Duration = Duration::from_secs(15);
const SCHEDULER_PAUSE: Duration = Duration::from_secs(1);
/// Tasks of one executor spill beyond it.
const EXECUTOR_MEMORY: NonZeroUsize = at_least_one(4 * 1024 * 1024 * 1024);
/// Longer than a ticket and its last reader.
const RESULT_TTL: Duration = Duration::from_secs(900);
