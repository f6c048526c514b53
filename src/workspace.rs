//! A session's own part of the engine: its settings, its views and tables, its state.
//!
//! Configured catalogs are shared and read only; what a session makes is laid over them. The built state is large and
//! can be made again at any time, so a session at rest keeps the overlay and the settings alone. Must not run a query.

mod overlay;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use datafusion::catalog::CatalogProviderList;
use datafusion::execution::{FunctionRegistry, SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;
use parking_lot::Mutex;
use portcullis_auth::{Authorizer, Principal};
use tokio::time::Instant;

pub(crate) use self::overlay::without_session;
use self::overlay::{Overlay, OverlayCatalogList};
use crate::backend::{BackendSession, QueryBackend};
use crate::catalog::SessionBuilder;
use crate::catalog::guarded::{Viewer, Visible};
use crate::config::Session;
use crate::sql::settings::{self, Refused};
use crate::sql::{ABOUT_FILES, SessionStatement, failure, identity_functions};
use crate::status::{Class, Failure};
use crate::storage::{FullName, Keeping, Temporary, WithKept};

/// Where a new workspace starts.
#[derive(Clone)]
pub struct Template {
    /// Makes the state for a principal.
    pub builder: Arc<dyn SessionBuilder>,
    /// Decides what of it the principal sees.
    pub authorizer: Arc<dyn Authorizer>,
    /// Where tables are kept.
    pub keeping: Keeping,
    /// The cluster whose session configuration is used.
    pub backend: Arc<dyn QueryBackend>,
    /// Where unqualified names are looked up.
    pub session: Arc<Session>,
    /// Nesting that the parser accepts.
    pub sql_depth: usize,
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template").field("builder", &self.builder).finish_non_exhaustive()
    }
}

/// One session's workspace.
#[derive(Debug)]
pub struct Workspace {
    template: Arc<Template>,
    principal: Principal,
    backend_session: BackendSession,
    overlay: Arc<Overlay>,
    /// In the order in which they were set.
    settings: Mutex<Vec<(String, String)>>,
    built: Mutex<Built>,
    /// One statement that changes the session at a time.
    changing: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
enum Built {
    Not,
    Since { state: Arc<SessionState>, used: Instant },
}

impl Workspace {
    /// An empty workspace of `principal`; nothing is built until it is used.
    pub fn new(template: Arc<Template>, principal: Principal, backend_session: BackendSession) -> Self {
        Self {
            template,
            principal,
            backend_session,
            overlay: Arc::default(),
            settings: Mutex::default(),
            built: Mutex::new(Built::Not),
            changing: tokio::sync::Mutex::default(),
        }
    }

    /// A workspace that begins with what this one has set and made.
    pub fn copy(&self, principal: Principal, backend_session: BackendSession) -> Self {
        Self {
            overlay: Arc::new(self.overlay.copy()),
            settings: Mutex::new(self.settings.lock().clone()),
            ..Self::new(Arc::clone(&self.template), principal, backend_session)
        }
    }

    /// Whose workspace it is.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The engine's name for this session.
    pub fn backend_session(&self) -> &BackendSession {
        &self.backend_session
    }

    /// The state to plan with. Built when it is not there.
    pub async fn state(&self) -> Result<Arc<SessionState>, Failure> {
        if let Built::Since { state, used } = &mut *self.built.lock() {
            *used = Instant::now();
            return Ok(Arc::clone(state));
        }
        let state = self.build().await?;
        let state = Arc::new(state);
        *self.built.lock() = Built::Since { state: Arc::clone(&state), used: Instant::now() };
        Ok(state)
    }

    /// Lets go of a state that was not used for `rest`.
    pub fn rest(&self, rest: Duration) {
        let mut built = self.built.lock();
        match &*built {
            Built::Since { used, .. } if used.elapsed() >= rest => *built = Built::Not,
            Built::Since { .. } | Built::Not => (),
        }
    }

    /// Runs an authorized session statement.
    pub async fn change(&self, statement: SessionStatement) -> Result<(), Failure> {
        let _one = self.changing.lock().await;
        match statement {
            SessionStatement::Ddl(plan) => self.run_ddl(plan).await,
            SessionStatement::Set { key, value } => {
                self.set(&key, &value).await.map_err(|refused| refused.into_failure(&key, &value))
            }
            SessionStatement::Reset(key) => {
                self.settings.lock().retain(|(set, _)| *set != key);
                *self.built.lock() = Built::Not;
                Ok(())
            }
        }
    }

    /// Takes a table that the session has made. A table of its own of that name goes.
    pub(crate) async fn adopt(&self, name: &FullName, table: Temporary) -> Result<(), Failure> {
        let _one = self.changing.lock().await;
        let state = self.state().await?;
        let catalog = state.catalog_list().catalog(&name.catalog);
        let schema = catalog.and_then(|catalog| catalog.schema(&name.schema));
        // It was there when the statement was planned.
        let gone = || Failure::about_request(Class::InvalidArgument, format!("there is no schema `{}`", name.schema));
        schema
            .ok_or_else(gone)?
            .register_table(name.table.clone(), Arc::new(table))
            .map(drop)
            .map_err(|error| failure::of_planning(&error))
    }

    /// Sets one option; `catalog` and `schema` must exist.
    pub async fn set(&self, key: &str, value: &str) -> Result<(), Refused> {
        let state = self.state().await.map_err(|_| Refused::Value)?;
        let mut options = state.config_options().as_ref().clone();
        settings::apply(&mut options, key, value)?;
        let known = match key {
            settings::CATALOG => state.catalog_list().catalog(value).is_some(),
            settings::SCHEMA => {
                let catalog = &state.config_options().catalog.default_catalog;
                state.catalog_list().catalog(catalog).is_some_and(|catalog| catalog.schema(value).is_some())
            }
            _ => true,
        };
        if !known {
            return Err(Refused::Value);
        }
        {
            let mut settings = self.settings.lock();
            settings.retain(|(set, _)| set != key);
            settings.push((key.to_owned(), value.to_owned()));
        }
        *self.built.lock() = Built::Not;
        Ok(())
    }

    /// An option's current value.
    pub async fn option(&self, key: &str) -> Result<Option<String>, Failure> {
        let state = self.state().await?;
        Ok(state.config_options().entries().into_iter().find(|entry| entry.key == key).and_then(|entry| entry.value))
    }

    /// Takes an option back to its default.
    pub fn reset(&self, key: &str) {
        self.settings.lock().retain(|(set, _)| set != key);
        *self.built.lock() = Built::Not;
    }

    async fn run_ddl(&self, plan: LogicalPlan) -> Result<(), Failure> {
        let state = self.state().await?;
        let context = SessionContext::new_with_state(state.as_ref().clone());
        let work =
            async { context.execute_logical_plan(plan).await.map_err(|error| failure::of_planning(&error)).map(drop) };
        tokio::time::timeout(DDL, work)
            .await
            .unwrap_or_else(|_| Err(Failure::new(Class::DeadlineExceeded, "the statement took too long")))
    }

    async fn build(&self) -> Result<SessionState, Failure> {
        let (catalog, schema) = self.template.session.defaults_for(&self.principal);
        let mut config = self
            .template
            .backend
            .session_config()
            .with_information_schema(true)
            .with_create_default_catalog_and_schema(false)
            .with_default_catalog_and_schema(catalog, schema)
            // The parser counts several levels for one of `sql_depth`, which was held against the tokens before.
            .set_usize("datafusion.sql_parser.recursion_limit", self.template.sql_depth.saturating_mul(PARSER_LEVELS));
        for (key, value) in self.settings.lock().iter() {
            // Checked when it was set.
            if settings::apply(config.options_mut(), key, value).is_err() {
                tracing::warn!(%key, "an option of the session no longer applies");
            }
        }
        let away = || Failure::new(Class::Unavailable, "the session's catalog is away for the moment");
        // An embedder's builder may ask somebody else.
        let state = tokio::time::timeout(BUILD, self.template.builder.build(&self.principal, config))
            .await
            .map_err(|_| away().because("the session builder did not answer in time"))?
            .map_err(|error| away().because(error))?;
        let viewer = Viewer {
            principal: self.principal.clone(),
            authorizer: Arc::clone(&self.template.authorizer),
            home: (catalog.to_owned(), schema.to_owned()),
        };
        let (all, viewer) = (state.catalog_list(), Arc::new(viewer));
        let seen: Arc<dyn CatalogProviderList> = Arc::new(Visible::new(Arc::clone(all), Arc::clone(&viewer)));
        let seen = match &self.template.keeping {
            Keeping::At(storage) => Arc::new(WithKept::new(Arc::clone(all), seen, Arc::clone(storage), viewer)),
            Keeping::Nowhere => seen,
        };
        let list = OverlayCatalogList::new(seen, Arc::clone(&self.overlay));
        let mut state = SessionStateBuilder::new_from_existing(state).with_catalog_list(Arc::new(list)).build();
        for function in ABOUT_FILES {
            state.deregister_udf(function).map_err(Failure::internal)?;
        }
        for function in identity_functions(&self.principal) {
            state.register_udf(function).map_err(Failure::internal)?;
        }
        Ok(state)
    }
}

/// What a bracket with a subquery in it costs at most.
const PARSER_LEVELS: usize = 4;
const BUILD: Duration = Duration::from_secs(30);
/// Creating an external table reads its files' schema.
const DDL: Duration = Duration::from_secs(60);
