//! `serve`: a gate as the configuration says, until a signal.
//!
//! `demo` goes through here as well, so that what it writes is what runs. Must not decide anything about security.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use portcullis_auth::{Clock, SystemClock};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::reload::{self, Reloading};
use super::{Ended, on_runtime};
use crate::access::{Grants, SharedGrants};
use crate::audit::{Audit, Wording};
use crate::backend::ballista::BallistaBackend;
use crate::backend::ballista::embedded::{Embedded, EmbeddedConfig, Storage};
use crate::backend::ballista::remote::{self, ClusterTls, RemoteScheduler, Results};
use crate::backend::{BackendError, QueryBackend};
use crate::config::auth::{ExtendedKeyUsage, Http, Scheme};
use crate::config::{self, ClientCertificates, Cluster, Config, Revocations, WorkDir};
use crate::gate::revocations::RevocationList;
use crate::gate::session::Sharing;
use crate::schemes::Schemes;
use crate::server::{self, Catalogs, Running, Server, StartError};
use crate::storage::{self as tables, Keeping};
use crate::stores::{self, Stores};
use crate::tls::{ClientFiles, MinVersion, Presence, TlsError, TlsIdentity};
use crate::{listen, logging};

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
    let hangup = signal(SignalKind::hangup()).map_err(|error| Ended::Internal(error.to_string()))?;
    let drain = config.server.drain;
    let Started { gate, cluster, reloading, notes: _ } = tokio::select! {
        started = start(file, config) => started?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Err(Ended::Interrupted),
    };
    tracing::info!(address = %gate.address(), "listening");
    ready(&gate)?;
    let stop = CancellationToken::new();
    let _stops = stop.clone().drop_guard();
    let schemes = Arc::clone(&reloading.schemes);
    tokio::spawn({
        let stop = stop.clone();
        async move { schemes.keep_fresh(stop).await }
    });
    tokio::spawn(reloading.keep_fresh(hangup, stop));
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
pub(super) struct Started {
    pub(super) gate: Running,
    pub(super) cluster: Behind,
    pub(super) reloading: Reloading,
    /// What an operator should know that only the start has found out. It was logged.
    pub(super) notes: Vec<String>,
}

pub(super) async fn start(file: &Path, config: Config) -> Result<Started, Ended> {
    let wrong = |error: &dyn std::fmt::Display| Ended::Configuration(error.to_string());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let (transport, tls, clients) = match &config.server.transport {
        config::Transport::DangerPlaintext => {
            (listen::Transport::DangerPlaintext, reload::Tls::Plaintext, &ClientCertificates::NotAsked)
        }
        config::Transport::Tls(files) => {
            let identity = tls_identity(files, &*clock).map_err(|error| wrong(&error))?;
            let tls = reload::Tls::From(files.clone(), identity.clone());
            (listen::Transport::Tls(identity), tls, &files.clients)
        }
    };
    let schemes = Arc::new(Schemes::load(&config.auth, clients, &clock).map_err(|error| wrong(&error))?);
    let sealer = server::sealer(&config.session.keys).map_err(|error| wrong(&error))?;
    let sharing = sharing(&config.session, &clock)?;
    let audit = audit(&config.audit)?;
    let of_tls = match &transport {
        listen::Transport::DangerPlaintext => Vec::new(),
        listen::Transport::Tls(identity) => identity.clients().notes(),
    };
    let grants = Grants::new(config.grants.clone(), config.locations.clone());
    let mut found = [of_tls.as_slice(), schemes.notes(), &grants.of_nothing(&config.tables)].concat();
    let grants = Arc::new(SharedGrants::new(grants));
    for note in notes(&config).iter().chain(&found) {
        tracing::warn!("{note}");
    }
    for failed in schemes.fetch_keys().await {
        tracing::warn!("{failed}");
        found.push(failed);
    }
    let stores = Stores::open(&config.object_stores)
        .map_err(|error| Ended::Configuration(format!("{}:{error}", file.display())))?;
    let stores = Arc::new(stores);
    let keeping = keeping(&config.storage, &stores).await?;
    let cluster = Behind::start(config.cluster, &stores).await?;
    let started = Server {
        listen: config.server.listen,
        transport,
        chain: schemes.chain(),
        clock: Arc::clone(&clock),
        sealer,
        backend: cluster.backend(),
        catalogs: Catalogs::Configured { tables: config.tables, stores },
        session: config.session,
        limits: config.limits,
        keeping,
        authorizer: Arc::clone(&grants) as _,
        sharing,
        trusted_proxies: config.server.trusted_proxies,
        audit: audit.clone(),
    }
    .start()
    .await;
    match started {
        Ok(gate) => {
            let catalogs = gate.configured().cloned();
            let reloading = Reloading { file: file.to_owned(), grants, catalogs, schemes, tls, audit, clock };
            Ok(Started { gate, cluster, reloading, notes: found })
        }
        Err(error) => {
            cluster.stop().await;
            Err(match error {
                StartError::Listen { .. } => Ended::Unreachable(error.to_string()),
                StartError::Chain(_) => Ended::Configuration(error.to_string()),
                StartError::Table(error) => Ended::Configuration(format!("{}:{error}", file.display())),
                StartError::Local(_) | StartError::Planner(_) | StartError::Stores(_) => {
                    Ended::Internal(error.to_string())
                }
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
    async fn start(cluster: Cluster, stores: &Arc<Stores>) -> Result<Self, Ended> {
        match cluster {
            Cluster::Embedded(embedded) => {
                Embedded::start_with(&embedded_config(&embedded)?, &storage(&embedded, stores)?)
                    .await
                    .map(|embedded| Self::Embedded(Box::new(embedded)))
                    .map_err(|error| Ended::Unreachable(error.to_string()))
            }
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
pub(super) fn notes(config: &Config) -> Vec<String> {
    let mut notes = Vec::new();
    match &config.server.transport {
        config::Transport::DangerPlaintext => {
            notes.push("danger_plaintext: credentials and results travel without TLS".to_owned());
        }
        config::Transport::Tls(files) => {
            if exposed(&files.key) {
                notes.push(format!("{} can be read by others than its owner", files.key.display()));
            }
            match &files.clients {
                ClientCertificates::Asked { crl, .. } if crl.is_empty() => {
                    notes.push("server.tls.crl is absent: no client certificate is ever revoked".to_owned());
                }
                ClientCertificates::Asked { .. } | ClientCertificates::NotAsked => (),
            }
            if let (ClientCertificates::Asked { auth: config::ClientAuth::Optional, .. }, Scheme::Mtls(_), []) =
                (&files.clients, &config.auth.first.scheme, config.auth.rest.as_slice())
            {
                let note = "server.tls.client_auth is `optional` and `mtls` the only scheme: a client without a \
                            certificate gets as far as its first call; write `required`";
                notes.push(note.to_owned());
            }
        }
    }
    for entry in config.auth.iter() {
        match &entry.scheme {
            Scheme::DangerAnonymous(anonymous) => {
                notes.push(format!("danger-anonymous: whoever shows nothing is `{}`", anonymous.principal));
            }
            Scheme::Jwt(issuer) if issuer.http == Http::DangerLoopback => {
                notes.push(format!("danger_http: the keys of `{}` may be fetched without TLS", issuer.issuer));
            }
            Scheme::Mtls(certificates) if certificates.usage == ExtendedKeyUsage::DangerOptional => {
                notes.push(
                    "danger_any_usage: certificates that do not say they are for clients are accepted".to_owned(),
                );
            }
            Scheme::ApiKey(file) | Scheme::Password(file) if exposed(file) => {
                notes.push(format!("{} can be read by others than its owner", file.display()));
            }
            Scheme::ApiKey(_) | Scheme::Jwt(_) | Scheme::Mtls(_) | Scheme::Password(_) => (),
        }
    }
    match (&config.session.keys, &config.session.revocations) {
        (config::SealKeys::RandomPerProcess, _) => notes
            .push("session.keys is absent: sessions, tickets and prepared statements end with this process".to_owned()),
        (config::SealKeys::Given(_), Revocations::Unshared) => notes.push(
            "session.revocations is absent: a gate with the same keys learns of no session that ends here".to_owned(),
        ),
        (config::SealKeys::Given(_), Revocations::Shared(_)) => (),
    }
    notes.extend(stores::notes(&config.object_stores));
    if let Cluster::Remote(_) = &config.cluster {
        notes.extend(stores::notes_for_remote(&config.tables, &config.object_stores));
        if let config::Storage::Managed(..) = config.storage {
            notes.push(
                "storage.managed: every executor must be able to write there, and the scheduler to list it".to_owned(),
            );
        }
    }
    if config.grants.is_empty() && !config.tables.is_empty() {
        notes.push("grant is absent: nobody sees a configured table".to_owned());
    }
    if config.audit.target == config::AuditTarget::Nowhere {
        notes.push("audit is absent: no decision is put on record".to_owned());
    }
    if config.audit.wording == Wording::Danger {
        notes.push("danger_statement_text: the audit log holds statements with all their literals".to_owned());
    }
    match &config.cluster {
        Cluster::Embedded(_) => {
            notes.push("embedded cluster: its loopback ports trust every process on this machine".to_owned());
        }
        Cluster::Remote(remote) => {
            if let ClusterTls::None = remote.tls {
                let note = "cluster.scheduler is `http`: plans travel without TLS; keep that network to the cluster";
                notes.push(note.to_owned());
            }
            if let Results::Executors(_) = remote.results {
                let note = "cluster.fetch is `executors`: stock executors speak no TLS, results come in plain text";
                notes.push(note.to_owned());
            }
        }
    }
    notes
}

/// Whether others on the machine can read a file. One that cannot be looked at is found out when it is read.
fn exposed(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(path).is_ok_and(|found| found.mode() & 0o077 != 0)
}

/// The server's side of TLS as configured.
pub(super) fn tls_identity(files: &config::TlsFiles, clock: &dyn Clock) -> Result<TlsIdentity, TlsError> {
    let min = match files.min_version {
        config::TlsVersion::Tls12 => MinVersion::Tls12,
        config::TlsVersion::Tls13 => MinVersion::Tls13,
    };
    match &files.clients {
        ClientCertificates::NotAsked => TlsIdentity::load(&files.cert, &files.key, min),
        ClientCertificates::Asked { ca, crl, auth, role: _ } => {
            let presence = match auth {
                config::ClientAuth::Optional => Presence::Optional,
                config::ClientAuth::Required => Presence::Required,
            };
            let clients = ClientFiles { ca: ca.clone(), crls: crl.clone(), presence };
            TlsIdentity::load_with_clients(&files.cert, &files.key, min, &clients, clock.now())
        }
    }
}

/// The files that are read for it.
pub(super) fn files_of(files: &config::TlsFiles) -> Vec<&Path> {
    let mut all = vec![files.cert.as_path(), files.key.as_path()];
    match &files.clients {
        ClientCertificates::Asked { ca, crl, .. } => {
            all.push(ca);
            all.extend(crl.iter().map(PathBuf::as_path));
        }
        ClientCertificates::NotAsked => (),
    }
    all
}

async fn keeping(storage: &config::Storage, stores: &Stores) -> Result<Keeping, Ended> {
    match storage {
        config::Storage::Managed(place, views) => match tables::Storage::open(place.clone(), stores).await {
            Ok(storage) => Ok(Keeping::At(Arc::new(storage.with_views(*views)))),
            Err(error) => Err(Ended::Unreachable(error.to_string())),
        },
        config::Storage::Nowhere => Ok(Keeping::Nowhere),
    }
}

fn sharing(session: &config::Session, clock: &Arc<dyn Clock>) -> Result<Sharing, Ended> {
    match (&session.keys, &session.revocations) {
        (config::SealKeys::RandomPerProcess, _) => Ok(Sharing::Alone),
        (config::SealKeys::Given(_), Revocations::Unshared) => Ok(Sharing::Unlisted),
        (config::SealKeys::Given(_), Revocations::Shared(path)) => RevocationList::open(path, Arc::clone(clock))
            .map(|list| Sharing::Listed(Arc::new(list)))
            .map_err(|error| Ended::Configuration(format!("cannot use `{}`: {error}", path.display()))),
    }
}

fn audit(audit: &config::Audit) -> Result<Audit, Ended> {
    let opened = match &audit.target {
        config::AuditTarget::File(path) => Audit::to_file(path)
            .map_err(|error| Ended::Configuration(format!("cannot write `{}`: {error}", path.display()))),
        config::AuditTarget::Nowhere => Ok(Audit::off()),
        config::AuditTarget::Stdout => Audit::to_stdout().map_err(|error| Ended::Internal(error.to_string())),
    };
    opened.map(|opened| opened.with_wording(audit.wording))
}

fn count(number: usize) -> Result<NonZeroUsize, Ended> {
    NonZeroUsize::new(number).ok_or_else(|| Ended::Configuration("a count of zero".to_owned()))
}

fn storage(embedded: &config::Embedded, stores: &Arc<Stores>) -> Result<Storage, Ended> {
    Ok(Storage { stores: Arc::clone(stores), spill: count(embedded.spill)? })
}

fn embedded_config(embedded: &config::Embedded) -> Result<EmbeddedConfig, Ended> {
    Ok(EmbeddedConfig {
        executors: count(embedded.executors)?,
        vcores: count(embedded.vcores)?,
        work_dir: match &embedded.work_dir {
            WorkDir::At(path) => path.clone(),
            WorkDir::Temporary => temporary(),
        },
        executor_memory: count(embedded.memory)?,
        result_ttl: RESULT_TTL,
    })
}

fn temporary() -> PathBuf {
    std::env::temp_dir()
}

/// How long a start waits for its scheduler.
const SCHEDULER_START: Duration = Duration::from_secs(15);
const SCHEDULER_PAUSE: Duration = Duration::from_secs(1);
/// Longer than a ticket and its last reader.
const RESULT_TTL: Duration = Duration::from_secs(900);

#[cfg(test)]
mod tests;
