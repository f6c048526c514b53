//! The stores that the files of tables are in: local files, and what the configuration names.
//!
//! [`Stores`] is the registry that the gate plans with and that embedded schedulers and executors read through. It
//! knows what was configured before anybody came in, and refuses everything else by name, without looking anything up.
//! No credential of a store is ever a setting of a session or a part of a plan: those are shown.

mod adapter;
mod connector;
mod remote;
mod services;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use datafusion::error::DataFusionError;
use datafusion::execution::object_store::ObjectStoreRegistry;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::object_store::ObjectStore;
use datafusion::object_store::local::LocalFileSystem;
use url::Url;

use crate::config::stores as configured;

pub use remote::notes_for_remote;

/// The stores that can be reached.
pub struct Stores {
    local: Arc<dyn ObjectStore>,
    remote: BTreeMap<String, Arc<dyn ObjectStore>>,
}

impl Stores {
    /// Local files and `stores`. Nobody is called before something is read.
    ///
    /// # Errors
    ///
    /// A credential or CA that cannot be used.
    pub fn open(stores: &[configured::ObjectStore]) -> Result<Self, StoreError> {
        let mut remote: BTreeMap<String, Arc<dyn ObjectStore>> = BTreeMap::new();
        for store in stores {
            let opened = services::open(store).map_err(|cause| StoreError {
                line: store.line,
                store: store.name().to_owned(),
                cause,
            })?;
            remote.insert(key(&store.url), Arc::new(opened));
        }
        Ok(Self { local: Arc::new(LocalFileSystem::new()), remote })
    }

    /// Local files alone.
    pub fn local_only() -> Self {
        Self { local: Arc::new(LocalFileSystem::new()), remote: BTreeMap::new() }
    }

    /// `environment` as it is, with its memory, its disk and its caches, but reading through these stores.
    ///
    /// # Errors
    ///
    /// What the engine says when it puts an environment together.
    pub fn within(self: &Arc<Self>, environment: &RuntimeEnv) -> Result<Arc<RuntimeEnv>, DataFusionError> {
        RuntimeEnvBuilder::from_runtime_env(environment).with_object_store_registry(Arc::clone(self) as _).build_arc()
    }
}

impl fmt::Debug for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stores").field("remote", &self.remote.keys()).finish_non_exhaustive()
    }
}

impl ObjectStoreRegistry for Stores {
    /// Adds nothing: what can be reached was decided by the configuration.
    fn register_store(&self, url: &Url, _store: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        tracing::error!(store = key(url), "a store was to be added while the gate runs; it was not");
        None
    }

    fn get_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>, DataFusionError> {
        if url.scheme() == "file" && !url.has_host() {
            return Ok(Arc::clone(&self.local));
        }
        let store = key(url);
        match self.remote.get(&store) {
            Some(known) if url.username().is_empty() && url.password().is_none() => Ok(Arc::clone(known)),
            Some(_) | None => Err(DataFusionError::Plan(format!("there is no object store `{store}`"))),
        }
    }
}

/// A configured store that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{line}: object_store.\"{store}\": {cause}")]
pub struct StoreError {
    line: usize,
    store: String,
    cause: services::Unusable,
}

/// What an operator should know about stores that are not wrong.
pub fn notes(stores: &[configured::ObjectStore]) -> Vec<String> {
    let plain = stores.iter().filter(|store| store.plaintext == configured::Plaintext::Danger);
    let note = |store: &configured::ObjectStore| {
        format!("danger_http: credentials and rows of `{}` may travel without TLS", store.name())
    };
    plain.map(note).collect()
}

/// A store without what is in it and without whoever asks: `s3://lake`, `https://files.example.com:8443`.
fn key(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{}://{host}:{port}", url.scheme()),
        None => format!("{}://{host}", url.scheme()),
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
