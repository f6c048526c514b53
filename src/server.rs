//! A running gate: the parts put together, a port, and an end.
//!
//! [`Server::start`] makes everything that a configuration names and listens only when queries can be answered;
//! [`Running::drain`] ends it in order. Must not read files or the environment (that is the configuration's part).

use std::convert::Infallible;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use portcullis_auth::{Authorizer, Clock, Secret};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::Routes;
use tower::Service;

use crate::audit::{Audit, Event, Origin, What};
use crate::backend::QueryBackend;
use crate::catalog::{ConfiguredCatalogs, SessionBuilder};
use crate::config::{Limits, Session, Table};
use crate::flight::{Core, Flight, Parts, QueryLimits};
use crate::gate::chain::Chain;
use crate::gate::session::{SessionPolicy, Sessions, Sharing};
use crate::gate::{GateLayer, GateParts};
use crate::limits::{Limiter, PerPrincipal, Rates, Ticks};
use crate::listen::{ListenLimits, Listener, Network, Transport};
use crate::local::Local;
use crate::seal::Sealer;
use crate::sql::{SqlCaps, Statements};
use crate::stack::{self, Stack, StackLimits};
use crate::storage::Keeping;
use crate::stores::Stores;
use crate::workspace::Template;
use arrow_flight::flight_service_server::FlightServiceServer;

/// What a gate is made of. Each decision is required; there is no default for who may come in.
#[derive(Debug)]
pub struct Server {
    /// Where to listen; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// TLS, or the danger of none.
    pub transport: Transport,
    /// Who may come in.
    pub chain: Chain,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Seals tokens, tickets and handles.
    pub sealer: Sealer,
    /// The cluster.
    pub backend: Arc<dyn QueryBackend>,
    /// What is planned against.
    pub catalogs: Catalogs,
    /// Session times and caps.
    pub session: Session,
    /// Limits.
    pub limits: Limits,
    /// Where SQL may keep tables.
    pub keeping: Keeping,
    /// Who may do what; see [`crate::access`] for what the configuration and builders of catalogs make of it.
    pub authorizer: Arc<dyn Authorizer>,
    /// Who else knows the sealing keys.
    pub sharing: Sharing,
    /// From where a PROXY protocol header is required and believed.
    pub trusted_proxies: Vec<Network>,
    /// Where decisions and ends of statements are written down.
    pub audit: Audit,
}

/// Where a session's tables come from.
#[derive(Debug)]
pub enum Catalogs {
    /// An embedder's own builder.
    Built(Arc<dyn SessionBuilder>),
    /// The configured tables.
    Configured {
        /// Which, and where.
        tables: Vec<Table>,
        /// What their files are read through in the gate; the cluster has its own.
        stores: Arc<Stores>,
    },
}

impl Catalogs {
    /// No tables: constants, and what sessions make.
    pub fn nothing() -> Self {
        Self::Configured { tables: Vec::new(), stores: Arc::new(Stores::local_only()) }
    }
}

/// A gate that listens.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    core: Arc<Core>,
    sessions: Arc<Sessions>,
    /// None where an embedder's builder makes them.
    configured: Option<Arc<ConfiguredCatalogs>>,
    audit: Audit,
    clock: Arc<dyn Clock>,
}

/// Why a gate did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Two schemes have one name.
    #[error(transparent)]
    Chain(#[from] crate::gate::chain::DuplicateName),
    /// The port cannot be had.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// The address of the configuration.
        address: SocketAddr,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The gate's own engine did not start.
    #[error(transparent)]
    Local(#[from] crate::local::StartError),
    /// The stores cannot be put into the engine.
    #[error("the stores cannot be used: {0}")]
    Stores(datafusion::error::DataFusionError),
    /// The planning threads did not start.
    #[error("the planning threads did not start: {0}")]
    Planner(std::io::Error),
    /// A configured table cannot be opened.
    #[error(transparent)]
    Table(#[from] crate::catalog::OpenError),
}

impl Server {
    /// Starts everything; the port listens when this returns.
    pub async fn start(mut self) -> Result<Running, StartError> {
        let transport = std::mem::replace(&mut self.transport, Transport::DangerPlaintext);
        let trusted_proxies = std::mem::take(&mut self.trusted_proxies);
        let (connections, connections_per_ip) = (self.limits.connections, self.limits.connections_per_ip);
        let (wanted, handshake_timeout) = (self.listen, self.limits.handshake_timeout);
        let Assembled { gate, flight, mut running, strangers } = self.assemble().await?;

        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_serving::<FlightServiceServer<Flight>>().await;
        let listen_error = |cause| StartError::Listen { address: wanted, cause };
        let listener = Listener::bind(wanted).await.map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        let limits = ListenLimits {
            connections,
            connections_per_ip,
            handshake_timeout,
            strangers,
            trusted_proxies,
            audit: running.audit.clone(),
            clock: Arc::clone(&running.clock),
        };
        let stop = running.stop.clone();
        let incoming = listener.into_incoming(transport, limits, stop.clone());
        let layers = StackLimits::default();
        let service = stack::service(&layers, gate, Routes::new(health_service), Routes::new(flight));
        let serving = stack::server(&layers).serve_with_incoming_shutdown(service, incoming, stop.cancelled_owned());
        running.tasks.spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "the server ended with an error");
            }
        });
        running.address = address;
        running.told(What::GateStarted { version: VERSION, address });
        Ok(running)
    }

    /// Starts everything but a port: a service for the embedder's own tonic server, to be made with
    /// [`stack::server`], whose limits the gate relies on.
    ///
    /// `transport`, `trusted_proxies` and the limits of connections are that server's business and are not looked at
    /// here, and health is. The gate is told addresses by it and no certificates, so that no client signs in by one.
    /// `listen` only says for the record where the server listens.
    pub async fn mount(self) -> Result<(GateService, Running), StartError> {
        let Assembled { gate, flight, running, strangers: _ } = self.assemble().await?;
        let service = stack::service(&StackLimits::default(), gate, Routes::default(), Routes::new(flight));
        running.told(What::GateStarted { version: VERSION, address: running.address });
        Ok((GateService(service), running))
    }

    async fn assemble(self) -> Result<Assembled, StartError> {
        let local = Local::start(LOCAL_THREADS, LOCAL_MEMORY)?;
        let (builder, configured): (Arc<dyn SessionBuilder>, _) = match self.catalogs {
            Catalogs::Built(builder) => (builder, None),
            Catalogs::Configured { tables, stores } => {
                let environment = stores.within(&local.environment()).map_err(StartError::Stores)?;
                let backend = Arc::clone(&self.backend);
                let opened = ConfiguredCatalogs::new(&tables, self.session.homes(), backend, &environment)?;
                let opened = Arc::new(opened);
                (Arc::clone(&opened) as _, Some(opened))
            }
        };
        let session = Arc::new(self.session);
        let sealer = Arc::new(self.sealer);
        let caps = SqlCaps { bytes: self.limits.sql_bytes, depth: self.limits.sql_depth, chain: self.limits.sql_chain };
        let statements =
            Statements::new(caps, Arc::clone(&self.authorizer), self.keeping.clone()).map_err(StartError::Planner)?;
        let roles = self.limits.roles.iter();
        let core = Core::new(Parts {
            backend: Arc::clone(&self.backend),
            sealer: Arc::clone(&sealer),
            clock: Arc::clone(&self.clock),
            statements,
            template: Template {
                builder,
                authorizer: self.authorizer,
                keeping: self.keeping.clone(),
                backend: self.backend,
                session: Arc::clone(&session),
                sql_depth: self.limits.sql_depth,
            },
            local,
            audit: self.audit.clone(),
            limits: QueryLimits {
                running_per_principal: self.limits.queries_per_principal,
                running_per_role: roles.clone().map(|(role, limits)| (role.clone(), limits.queries)).collect(),
                timeout: self.limits.query_timeout,
                prepared_lifetime: session.lifetime,
            },
        });
        let policy = SessionPolicy {
            idle: session.idle,
            lifetime: session.lifetime,
            max_per_principal: session.max_per_principal,
            max_total: session.max_total,
        };
        let list = match &self.sharing {
            Sharing::Listed(list) => Some(Arc::clone(list)),
            Sharing::Alone | Sharing::Unlisted => None,
        };
        let sessions =
            Arc::new(Sessions::new(sealer, Arc::clone(&self.clock), policy, self.sharing, Arc::clone(&core) as _));
        let rates = Rates {
            preauth_per_ip: self.limits.preauth_per_ip,
            failed_auth_per_ip: self.limits.failed_auth_per_ip,
            failed_auth_per_name: self.limits.failed_auth_per_name,
        };
        let ticks = Ticks::start();
        let strangers = Arc::new(Limiter::new(rates, ticks.clone()));
        let overrides = roles.map(|(role, limits)| (role.clone(), limits.requests)).collect();
        let principals = Arc::new(PerPrincipal::new(self.limits.requests_per_principal, overrides, &ticks));
        let gate = GateLayer::new(GateParts {
            chain: self.chain,
            sessions: Arc::clone(&sessions),
            clock: Arc::clone(&self.clock),
            strangers: Arc::clone(&strangers),
            principals: Arc::clone(&principals),
            audit: self.audit.clone(),
            patience: self.limits.query_timeout,
        })?;

        let flight = FlightServiceServer::new(Flight::new(Arc::clone(&core), Arc::clone(&sessions)))
            .max_decoding_message_size(MAX_REQUEST)
            // Results are cut by their own rule; this is the net below it.
            .max_encoding_message_size(MAX_RESPONSE);

        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&core).keep_swept(stop.clone()));
        let swept = Arc::clone(&sessions);
        let until = stop.clone();
        tasks.spawn(async move { swept.keep_swept(SESSION_SWEEP, until).await });
        let until = stop.clone();
        let limiter = Arc::clone(&strangers);
        tasks.spawn(async move {
            while until.run_until_cancelled(tokio::time::sleep(LIMIT_SWEEP)).await.is_some() {
                limiter.sweep();
                principals.sweep();
            }
        });
        if let Keeping::At(storage) = self.keeping {
            let longest = self.limits.query_timeout;
            tasks.spawn(storage.keep_in_step(Arc::clone(&self.clock), longest, stop.clone()));
        }
        if let Some(list) = list {
            tasks.spawn(list.keep_in_step(stop.clone()));
        }
        if let Some(configured) = &configured {
            // What cannot be opened is logged at start, and the others are warm. Nobody waits for it.
            let (configured, until) = (Arc::clone(configured), stop.clone());
            tasks.spawn(async move { drop(until.run_until_cancelled(configured.open_all()).await) });
        }
        let running = Running {
            address: self.listen,
            stop,
            tasks,
            core,
            sessions,
            configured,
            audit: self.audit,
            clock: self.clock,
        };
        Ok(Assembled { gate, flight, running, strangers })
    }
}

/// The parts of a gate behind its port.
struct Assembled {
    gate: GateLayer,
    flight: FlightServiceServer<Flight>,
    running: Running,
    strangers: Arc<Limiter>,
}

/// The gate as a service of an embedder's tonic server: every RPC of Flight, with the gate in front.
#[derive(Clone, Debug)]
pub struct GateService(Stack);

impl NamedService for GateService {
    const NAME: &'static str = <FlightServiceServer<Flight> as NamedService>::NAME;
}

impl Service<Request<Body>> for GateService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = <Stack as Service<Request<Body>>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.0.call(request)
    }
}

impl Running {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Results held at the moment.
    pub fn results_held(&self) -> usize {
        self.core.results_held()
    }

    /// Sessions open at the moment.
    pub fn sessions_open(&self) -> usize {
        self.sessions.count()
    }

    /// The configured tables; nothing where an embedder's builder makes catalogs.
    pub fn configured(&self) -> Option<&Arc<ConfiguredCatalogs>> {
        self.configured.as_ref()
    }

    /// Takes no new connections, lets running streams finish within `grace`, then stops.
    pub async fn drain(mut self, grace: Duration) {
        self.stop.cancel();
        let finish = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, finish).await.is_err() {
            tracing::warn!("streams were still running when the drain time was over");
            self.tasks.abort_all();
        }
        self.told(What::GateStopped { version: VERSION, address: self.address });
        if let Err(behind) = self.audit.flush(AUDIT_FLUSH).await {
            tracing::error!(%behind, "the last lines of the audit log were not written");
        }
    }

    fn told(&self, what: What<'_>) {
        self.audit.record(Event { time: self.clock.now(), origin: Origin::Gate, what });
    }
}

/// Sealing keys as the configuration gives them.
pub fn sealer(keys: &crate::config::SealKeys) -> Result<Sealer, crate::seal::SealKeyError> {
    match keys {
        crate::config::SealKeys::RandomPerProcess => Sealer::random(),
        crate::config::SealKeys::Given(keys) => {
            Sealer::new(keys.iter().map(|key| Secret::new(key.expose().to_vec())).collect())
        }
    }
}

const LOCAL_THREADS: NonZeroUsize = at_least_one(2);
/// What all constant statements together may use.
const LOCAL_MEMORY: NonZeroUsize = at_least_one(256 * 1024 * 1024);
const VERSION: &str = env!("CARGO_PKG_VERSION");
const AUDIT_FLUSH: Duration = Duration::from_secs(5);
const LIMIT_SWEEP: Duration = Duration::from_secs(10);
const SESSION_SWEEP: Duration = Duration::from_secs(30);
/// A statement at its largest allowed size, in a message.
const MAX_REQUEST: usize = 17 * 1024 * 1024;
const MAX_RESPONSE: usize = 16 * 1024 * 1024;

/// `count`, or one: constants of counts are never zero.
pub(crate) const fn at_least_one(count: usize) -> NonZeroUsize {
    match NonZeroUsize::new(count) {
        Some(count) => count,
        None => NonZeroUsize::MIN,
    }
}
