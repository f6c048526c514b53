//! What a principal's SQL is planned against: the seam for embedders and the configured tables.
//!
//! [`SessionBuilder`] makes a state per principal; [`ConfiguredCatalogs`] is the one behind `[catalog…]`. The tables
//! are opened when they are used, once for everybody: a session costs pointers. Must not know a request or a token.

mod beginnings;
mod configured;
pub(crate) mod guarded;
pub(crate) mod listing;
mod slot;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::CatalogProviderList;
use datafusion::error::DataFusionError;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::prelude::SessionConfig;
use portcullis_auth::Principal;
use tokio::runtime::Handle;

use self::configured::{Broken, Configured, Home};
use self::listing::{Counted, FileTables};
use self::slot::{Opener, Times};
use crate::backend::QueryBackend;
use crate::config::Table;

/// Builds the state that a principal's SQL is planned with.
///
/// Embedders give their own. What the returned state's catalogs do not hold does not exist for the principal.
#[async_trait]
pub trait SessionBuilder: fmt::Debug + Send + Sync + 'static {
    /// A state for `principal` that starts from `config`, which holds what the cluster needs.
    async fn build(&self, principal: &Principal, config: SessionConfig) -> Result<SessionState, BuildError>;
}

/// Why a session's catalog cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("the session's catalog cannot be built: {0}")]
pub struct BuildError(pub String);

/// Catalogs from the configuration, the same for everybody: what of it somebody sees is decided elsewhere.
///
/// A table is known by name at once and opened when somebody uses it. Its files are looked at again when it is used
/// more than a minute later, and its columns are read again where they have changed. The cluster lists them for every
/// query, so that a new file of known columns is read by the next one.
#[derive(Debug)]
pub struct ConfiguredCatalogs {
    backend: Arc<dyn QueryBackend>,
    configured: Arc<Configured>,
    counted: Arc<Counted>,
    runtime: Arc<RuntimeEnv>,
}

impl ConfiguredCatalogs {
    /// Knows every configured table, and has opened none. The catalogs and schemas in which sessions begin are there
    /// whatever is in them, so that names resolve.
    ///
    /// # Errors
    ///
    /// When it is not made within a runtime, in which tables will be opened.
    pub fn new<'a>(
        tables: &[Table],
        homes: impl IntoIterator<Item = (&'a str, &'a str)>,
        backend: Arc<dyn QueryBackend>,
        runtime: &RuntimeEnv,
    ) -> Result<Self, OpenError> {
        let homes = homes.into_iter().map(|(catalog, schema)| (catalog.to_owned(), schema.to_owned())).collect();
        Self::with_times(tables, homes, backend, runtime, Times::default()).map_err(|error| OpenError {
            line: 0,
            table: String::from("*"),
            cause: error.strip_backtrace(),
        })
    }

    fn with_times(
        tables: &[Table],
        homes: Vec<Home>,
        backend: Arc<dyn QueryBackend>,
        runtime: &RuntimeEnv,
        times: Times,
    ) -> Result<Self, DataFusionError> {
        let runtime = without_listings(runtime)?;
        let state = backend.planning_state(backend.session_config()).with_runtime_env(Arc::clone(&runtime)).build();
        let reactor = Handle::try_current().map_err(|error| DataFusionError::External(Box::new(error)))?;
        let counted = Arc::<Counted>::default();
        let opener = Opener::new(state, reactor, Arc::clone(&counted), times);
        let configured = Arc::new(Configured::new(tables, homes, opener));
        Ok(Self { backend, configured, counted, runtime })
    }

    /// Opens every table, a few at a time, and tells those that cannot be opened, in the order of the configuration.
    /// Each of them is also logged.
    pub async fn open_all(&self) -> Vec<OpenError> {
        let broken = self.configured.open_all().await.into_iter();
        broken.map(|Broken { line, table, why }| OpenError { line, table, cause: why.to_string() }).collect()
    }

    /// Knows these tables instead, in all sessions and from the next statement on. A table that is configured as it was
    /// before stays open.
    pub fn replace(&self, tables: &[Table]) {
        self.configured.replace(tables);
    }
}

#[async_trait]
impl SessionBuilder for ConfiguredCatalogs {
    async fn build(&self, _principal: &Principal, config: SessionConfig) -> Result<SessionState, BuildError> {
        let state = self
            .backend
            .planning_state(config.with_extension(Arc::clone(&self.counted)))
            .with_catalog_list(Arc::clone(&self.configured) as Arc<dyn CatalogProviderList>)
            .with_runtime_env(Arc::clone(&self.runtime));
        Ok(with_file_tables(state).build())
    }
}

/// `CREATE EXTERNAL TABLE` makes tables within the same bounds as the configuration.
fn with_file_tables(state: SessionStateBuilder) -> SessionStateBuilder {
    FORMATS.iter().fold(state, |state, format| state.with_table_factory((*format).to_owned(), Arc::new(FileTables)))
}

/// The same environment, except that a folder which was listed once is listed again.
fn without_listings(runtime: &RuntimeEnv) -> Result<Arc<RuntimeEnv>, DataFusionError> {
    let mut builder = RuntimeEnvBuilder::from_runtime_env(runtime);
    builder.cache_manager = builder.cache_manager.with_list_files_cache(None).with_list_files_cache_limit(0);
    builder.build_arc()
}

/// A configured table that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{line}: catalog.{table}: the table cannot be opened: {cause}")]
pub struct OpenError {
    line: usize,
    table: String,
    cause: String,
}

/// Formats of external tables, as SQL names them.
const FORMATS: &[&str] = &["ARROW", "AVRO", "CSV", "JSON", "NDJSON", "PARQUET"];

#[cfg(test)]
mod tests;
