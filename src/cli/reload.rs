//! Reading again what may change while the gate serves: certificates, CAs, CRLs, users, keys, deny lists, and of the
//! configuration its grants, locations and tables.
//!
//! On `SIGHUP`, and when a file changes. All or nothing: everything is read and judged before any of it is used, and
//! what was there before stays when something is wrong. Must not use what else the configuration says by then: that
//! takes a restart.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use portcullis_auth::Clock;
use tokio::signal::unix::Signal;
use tokio_util::sync::CancellationToken;

use crate::access::{Grants, SharedGrants};
use crate::audit::{Audit, Event, Origin, Reload, What};
use crate::catalog::ConfiguredCatalogs;
use crate::config::{Config, TlsFiles};
use crate::schemes::Schemes;
use crate::tls::TlsIdentity;

/// What can be read again.
#[derive(Debug)]
pub(super) struct Reloading {
    /// The configuration.
    pub(super) file: PathBuf,
    pub(super) grants: Arc<SharedGrants>,
    pub(super) catalogs: Option<Arc<ConfiguredCatalogs>>,
    pub(super) schemes: Arc<Schemes>,
    pub(super) tls: Tls,
    pub(super) audit: Audit,
    pub(super) clock: Arc<dyn Clock>,
}

/// What the Flight port shows.
#[derive(Debug)]
pub(super) enum Tls {
    /// From these files.
    From(TlsFiles, TlsIdentity),
    /// Nothing.
    Plaintext,
}

impl Reloading {
    /// Until `stop`: reads again on a signal, and when a file has changed and stayed as it is for a moment.
    pub(super) async fn keep_fresh(self, mut hangup: Signal, stop: CancellationToken) {
        let mut used = self.stamps();
        let mut seen = used.clone();
        let mut tick = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(()) = hangup.recv() => {
                    self.audit.reopen();
                    used = self.stamps();
                    self.reload();
                }
                _ = tick.tick() => {
                    let now = self.stamps();
                    // Half-written files settle first.
                    if now != used && now == seen {
                        used = now.clone();
                        self.reload();
                    }
                    seen = now;
                }
            }
        }
    }

    fn reload(&self) {
        let read = self.read_again();
        let outcome = match &read {
            Ok(()) => {
                tracing::info!("certificates, users, keys, grants, locations and tables were read again");
                Reload::Ok
            }
            Err(problem) => {
                tracing::error!(problem, "nothing was reloaded: what was there before stays");
                Reload::Failed { problem }
            }
        };
        for part in ["credentials", "grants"] {
            let what = What::Reloaded { what: part, outcome };
            self.audit.record(Event { time: self.clock.now(), origin: Origin::Gate, what });
        }
    }

    fn read_again(&self) -> Result<(), String> {
        let config = Config::load(&self.file).map_err(|errors| errors.to_string().replace('\n', "; "))?;
        let grants = Grants::new(config.grants, config.locations);
        let schemes = self.schemes.read_again().map_err(|error| error.to_string())?;
        match &self.tls {
            Tls::From(files, serving) => {
                let fresh = super::serve::tls_identity(files, &*self.clock).map_err(|error| error.to_string())?;
                serving.replace(&fresh);
            }
            Tls::Plaintext => (),
        }
        schemes.take_effect();
        for note in grants.of_nothing(&config.tables) {
            tracing::warn!("{note}");
        }
        self.grants.replace(grants);
        if let Some(catalogs) = &self.catalogs {
            catalogs.replace(&config.tables);
        }
        Ok(())
    }

    /// What the files look like from outside.
    fn stamps(&self) -> BTreeMap<PathBuf, Stamp> {
        let tls = match &self.tls {
            Tls::From(files, _) => super::serve::files_of(files),
            Tls::Plaintext => Vec::new(),
        };
        let all = std::iter::once(self.file.as_path()).chain(tls).chain(self.schemes.files());
        all.map(|path| (path.to_owned(), Stamp::of(path))).collect()
    }
}

/// What tells that a file is another one than before; a symbolic link is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stamp {
    Missing,
    Seen { length: u64, changed: Option<SystemTime> },
}

impl Stamp {
    fn of(path: &Path) -> Self {
        match std::fs::metadata(path) {
            Ok(found) => Self::Seen { length: found.len(), changed: found.modified().ok() },
            Err(_) => Self::Missing,
        }
    }
}

/// How often files are looked at. They are few, and a look costs microseconds.
const LOOK: Duration = Duration::from_millis(1000);
