//! The Flight service: ten RPCs, each a typed command, a decision elsewhere, and an answer.
//!
//! Written against `FlightService` itself, because the blanket service of `arrow-flight` hard-codes several of them.
//! Must not read a header (identity comes as [`Caller`]), name Ballista, or build a `Status` (that is [`Failure`]'s).

mod account;
mod command;
mod handle;
mod jobs;
mod making;
mod metadata;
mod queries;
mod results;
mod session_actions;
mod sql_info;
mod statement;
mod xdbc_types;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::Schema;
use arrow::ipc::writer::IpcWriteOptions;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::{ActionCreatePreparedStatementResult, DoPutUpdateResult, ProstMessageExt};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, HandshakeResponse,
    IpcMessage, PollInfo, PutResult, SchemaAsIpc, SchemaResult, Ticket,
};
use bytes::{BufMut, Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use portcullis_auth::{Clock, Principal};
use prost::Message;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use self::command::{Act, Read, Update};
use self::handle::Handles;
use self::queries::Queries;
use crate::audit::{Audit, Event, Origin, SessionEnd, What};
use crate::backend::{BackendSession, QueryBackend};
use crate::gate::caller::{Caller, Minted};
use crate::gate::session::{Begins, Session, SessionEnded, SessionId, SessionKind, Sessions};
use crate::local::Local;
use crate::seal::Sealer;
use crate::sql::{Source, Statements};
use crate::status::{Class, Failure};
use crate::workspace::{Template, Workspace};

/// Everything the service needs, made once.
#[derive(Debug)]
pub struct Parts {
    /// The cluster.
    pub backend: Arc<dyn QueryBackend>,
    /// Seals tickets and handles.
    pub sealer: Arc<Sealer>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The SQL compiler.
    pub statements: Statements,
    /// Where new sessions start.
    pub template: Template,
    /// Runs what needs no cluster.
    pub local: Local,
    /// Limits of queries.
    pub limits: QueryLimits,
    /// Where the ends of statements and sessions are written down.
    pub audit: Audit,
}

/// What one identity's queries may take.
#[derive(Clone, Debug)]
pub struct QueryLimits {
    /// Running at the same time; as many more wait.
    pub running_per_principal: usize,
    /// The same for who has one of these roles; the largest counts.
    pub running_per_role: BTreeMap<String, usize>,
    /// From start to last status.
    pub timeout: Duration,
    /// How long a prepared handle is good for.
    pub prepared_lifetime: Duration,
}

impl QueryLimits {
    /// How many queries of this principal may run at the same time.
    pub(crate) fn running(&self, principal: &Principal) -> usize {
        let of_roles = principal.roles().iter().filter_map(|role| self.running_per_role.get(role));
        of_roles.max().copied().unwrap_or(self.running_per_principal)
    }
}

/// The Flight SQL service. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Flight {
    core: Arc<Core>,
    sessions: Arc<Sessions>,
}

/// What lives as long as the server.
#[derive(Debug)]
pub struct Core {
    backend: Arc<dyn QueryBackend>,
    handles: Handles,
    statements: Statements,
    template: Arc<Template>,
    local: Local,
    limits: QueryLimits,
    audit: Audit,
    clock: Arc<dyn Clock>,
    queries: Queries,
    workspaces: Mutex<HashMap<SessionId, Arc<Workspace>>>,
}

impl Core {
    /// The part that sessions report their end to; [`Flight::new`] needs those sessions.
    pub fn new(parts: Parts) -> Arc<Self> {
        let handles = Handles::new(parts.sealer, Arc::clone(&parts.clock), parts.limits.prepared_lifetime);
        Arc::new(Self {
            queries: Queries::new(Arc::clone(&parts.backend)),
            backend: parts.backend,
            handles,
            statements: parts.statements,
            template: Arc::new(parts.template),
            local: parts.local,
            limits: parts.limits,
            audit: parts.audit,
            clock: parts.clock,
            workspaces: Mutex::default(),
        })
    }

    /// Ends results and lets go of idle states until `stop`.
    pub async fn keep_swept(self: Arc<Self>, stop: CancellationToken) {
        let mut tick = tokio::time::interval(SWEEP);
        while stop.run_until_cancelled(tick.tick()).await.is_some() {
            self.queries.sweep();
            for workspace in self.workspaces.lock().values() {
                workspace.rest(REST);
            }
        }
    }

    /// Results held at the moment, for tests and metrics.
    pub fn results_held(&self) -> usize {
        self.queries.count()
    }

    fn workspace(&self, caller: &Caller) -> Arc<Workspace> {
        let session = caller.session();
        let mut workspaces = self.workspaces.lock();
        let workspace = match workspaces.get(&session.id()) {
            Some(workspace) => Arc::clone(workspace),
            None => {
                let name = BackendSession::new(hex(session.id().as_bytes()));
                let principal = session.principal().clone();
                let model = match session.begins() {
                    Begins::As(other) => workspaces.get(&other),
                    Begins::Empty => None,
                };
                let fresh = Arc::new(match model {
                    Some(model) => model.copy(principal, name),
                    None => Workspace::new(Arc::clone(&self.template), principal, name),
                });
                workspaces.insert(session.id(), Arc::clone(&fresh));
                fresh
            }
        };
        if session.is_ended() {
            // Closed since the gate admitted this call, and perhaps already announced: nothing may stay for it.
            workspaces.remove(&session.id());
        }
        workspace
    }
}

impl SessionEnded for Core {
    fn ended(&self, session: &Session, why: SessionEnd) {
        let id = session.id();
        self.audit.record(Event {
            time: self.clock.now(),
            origin: Origin::Gate,
            what: What::SessionEnded { session: &id.to_string(), principal: session.principal(), why },
        });
        self.queries.end_session(id);
        let workspace = self.workspaces.lock().remove(&id);
        if let (Some(workspace), Ok(runtime)) = (workspace, tokio::runtime::Handle::try_current()) {
            let backend = Arc::clone(&self.backend);
            runtime.spawn(async move {
                if let Err(error) = backend.close(workspace.backend_session()).await {
                    tracing::debug!(%error, "a session could not be closed on the cluster");
                }
            });
        }
    }
}

impl Flight {
    /// The service over `core` for callers with `sessions`.
    pub fn new(core: Arc<Core>, sessions: Arc<Sessions>) -> Self {
        Self { core, sessions }
    }

    async fn act(&self, caller: &Caller, action: Action) -> Result<Bytes, Failure> {
        match Act::from_action(action)? {
            Act::CreatePrepared(source) => self.create_prepared(caller, &source).await,
            // Nothing is kept for a handle, so that closing one is always fine, twice too.
            Act::ClosePrepared => Ok(Bytes::new()),
            Act::SetSessionOptions(request) => {
                let workspace = self.core.workspace(caller);
                Ok(session_actions::set(&workspace, request).await.encode_to_vec().into())
            }
            Act::GetSessionOptions => {
                let workspace = self.core.workspace(caller);
                Ok(session_actions::get(&workspace).await?.encode_to_vec().into())
            }
            Act::CloseSession => {
                let status = match caller.session().kind() {
                    SessionKind::Cookie | SessionKind::Token => {
                        self.sessions.end(caller.session().id(), SessionEnd::Closed);
                        session_actions::CLOSED
                    }
                    // Shared by every connection with this credential: not one connection's to end.
                    SessionKind::Default => session_actions::NOT_CLOSEABLE,
                };
                Ok(session_actions::CloseSessionResult { status }.encode_to_vec().into())
            }
        }
    }

    async fn create_prepared(&self, caller: &Caller, source: &Source) -> Result<Bytes, Failure> {
        let compiled = self.core.statements.compile(&self.core.workspace(caller), source).await?;
        let result = ActionCreatePreparedStatementResult {
            prepared_statement_handle: self.core.handles.prepared(caller.principal().key(), source)?,
            // Drivers tell queries from updates by this being empty (rule R11).
            dataset_schema: if compiled.is_update() { Bytes::new() } else { schema_bytes(&compiled.schema)? },
            // No parameters, which is not the same as not knowing: the R client asks before it runs anything.
            parameter_schema: schema_bytes(&Schema::empty())?,
        };
        let mut any = result.as_any();
        if compiled.is_update() {
            // `is_update`, field 4, which the crate's message lacks: a varint that says true.
            let mut value = BytesMut::from(any.value.as_ref());
            value.put_slice(&[4 << 3, 1]);
            any.value = value.freeze();
        }
        Ok(any.encode_to_vec().into())
    }

    fn handshake_answer(
        caller: &Caller,
        messages: Streaming<HandshakeRequest>,
    ) -> Result<Response<BoxStream<'static, Result<HandshakeResponse, Status>>>, Failure> {
        let mut response =
            Response::new(open_until_half_closed(HandshakeResponse::default(), messages, HANDSHAKE_OPEN));
        match caller.minted() {
            // In the initial headers, where every client looks (rule R2).
            Minted::Token(token) => {
                let value = token.bearer().map_err(Failure::internal)?;
                response.metadata_mut().as_mut().insert(http::header::AUTHORIZATION, value);
            }
            Minted::Nothing => (),
        }
        Ok(response)
    }
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl FlightService for Flight {
    type HandshakeStream = BoxStream<'static, Result<HandshakeResponse, Status>>;
    type ListFlightsStream = BoxStream<'static, Result<FlightInfo, Status>>;
    type DoGetStream = BoxStream<'static, Result<FlightData, Status>>;
    type DoPutStream = BoxStream<'static, Result<PutResult, Status>>;
    type DoExchangeStream = BoxStream<'static, Result<FlightData, Status>>;
    type DoActionStream = BoxStream<'static, Result<arrow_flight::Result, Status>>;
    type ListActionsStream = BoxStream<'static, Result<ActionType, Status>>;

    async fn handshake(&self, request: Request<Streaming<HandshakeRequest>>) -> Answer<Self::HandshakeStream> {
        // The messages say nothing that the header does not; clients send none, one or several.
        let caller = caller(&request)?;
        Self::handshake_answer(&caller, request.into_inner()).map_err(|failure| failure.into_status(caller.request()))
    }

    async fn list_flights(&self, request: Request<Criteria>) -> Answer<Self::ListFlightsStream> {
        not_served(&request, "ListFlights")
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Answer<FlightInfo> {
        let caller = caller(&request)?;
        let descriptor = request.into_inner();
        let info = match Read::from_descriptor(descriptor.clone()) {
            Ok(read) => self.core.flight_info(&caller, read, descriptor).await,
            Err(failure) => Err(failure),
        };
        info.map(Response::new).map_err(|failure| failure.into_status(caller.request()))
    }

    async fn poll_flight_info(&self, request: Request<FlightDescriptor>) -> Answer<PollInfo> {
        not_served(&request, "PollFlightInfo")
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Answer<SchemaResult> {
        let caller = caller(&request)?;
        let schema = match Read::from_descriptor(request.into_inner()) {
            Ok(read) => self.core.schema(&caller, read).await,
            Err(failure) => Err(failure),
        };
        schema
            .and_then(|schema| schema_bytes(&schema))
            .map(|schema| Response::new(SchemaResult { schema }))
            .map_err(|failure| failure.into_status(caller.request()))
    }

    async fn do_get(&self, request: Request<Ticket>) -> Answer<Self::DoGetStream> {
        let caller = caller(&request)?;
        let in_use = self.sessions.begin(caller.session());
        let stream = self.core.read(&caller, &request.into_inner().ticket).await;
        let request = *caller.request();
        stream
            .map(|stream| {
                let stream = stream.map(move |message| {
                    let _session_stays = &in_use;
                    message.map_err(|failure| failure.into_status(&request))
                });
                Response::new(stream.boxed())
            })
            .map_err(|failure| failure.into_status(&request))
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Answer<Self::DoPutStream> {
        let caller = caller(&request)?;
        let mut messages = request.into_inner();
        let count = match first_command(&mut messages).await {
            Ok(update) => self.core.update(&caller, update).await,
            Err(failure) => Err(failure),
        };
        let record_count = count.map_err(|failure| failure.into_status(caller.request()))?;
        let result = PutResult { app_metadata: DoPutUpdateResult { record_count }.encode_to_vec().into() };
        Ok(Response::new(open_until_half_closed(result, messages, UPDATE_OPEN)))
    }

    async fn do_exchange(&self, request: Request<Streaming<FlightData>>) -> Answer<Self::DoExchangeStream> {
        not_served(&request, "DoExchange")
    }

    async fn do_action(&self, request: Request<Action>) -> Answer<Self::DoActionStream> {
        let caller = caller(&request)?;
        let body =
            self.act(&caller, request.into_inner()).await.map_err(|failure| failure.into_status(caller.request()))?;
        Ok(Response::new(futures::stream::iter([Ok(arrow_flight::Result { body })]).boxed()))
    }

    async fn list_actions(&self, request: Request<Empty>) -> Answer<Self::ListActionsStream> {
        caller(&request)?;
        let actions = ACTIONS.iter().map(|(name, description)| {
            Ok(ActionType { r#type: (*name).to_owned(), description: (*description).to_owned() })
        });
        Ok(Response::new(futures::stream::iter(actions.collect::<Vec<_>>()).boxed()))
    }
}

/// What the gate has left in the request. The gate removed the credential.
fn caller<T>(request: &Request<T>) -> Result<Caller, Status> {
    Caller::from_extensions(request.extensions())
        .map_err(|failure| failure.into_status(&crate::status::RequestId::fresh()))
}

/// The command of a `DoPut`, from its first message. The rest is not waited for (rule R16) and never decoded.
async fn first_command(messages: &mut Streaming<FlightData>) -> Result<Update, Failure> {
    let first = tokio::time::timeout(FIRST_MESSAGE, messages.message())
        .await
        .map_err(|_| Failure::new(Class::DeadlineExceeded, "no command arrived"))?
        .map_err(|status| Failure::new(Class::InvalidArgument, "the request cannot be read").because(status))?;
    match first.and_then(|message| message.flight_descriptor) {
        Some(descriptor) => Update::from_descriptor(descriptor),
        None => Err(Failure::new(Class::InvalidArgument, "the first message has no descriptor")),
    }
}

/// Answers at once and ends when the client has said all, or when it takes too long over that. A stream that ends while
/// its client still writes is one on which gRPC's C core may wait for ever.
fn open_until_half_closed<T, R>(
    answer: T,
    mut messages: Streaming<R>,
    at_most: Duration,
) -> BoxStream<'static, Result<T, Status>>
where
    T: Send + 'static,
    R: Send + 'static,
{
    let said_all = async move {
        let all = async { while let Ok(Some(_)) = messages.message().await {} };
        drop(tokio::time::timeout(at_most, all).await);
        futures::stream::empty()
    };
    futures::stream::iter([Ok(answer)]).chain(futures::stream::once(said_all).flatten()).boxed()
}

/// Refused after the identity is known, never before.
fn not_served<T, R>(request: &Request<T>, what: &'static str) -> Answer<R> {
    let caller = caller(request)?;
    Err(Failure::unimplemented(what).into_status(caller.request()))
}

/// A schema as an encapsulated IPC message.
fn schema_bytes(schema: &Schema) -> Result<Bytes, Failure> {
    let options = IpcWriteOptions::default();
    let message = IpcMessage::try_from(SchemaAsIpc::new(schema, &options)).map_err(Failure::internal)?;
    Ok(message.0)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// What `ListActions` tells: exactly what works.
const ACTIONS: &[(&str, &str)] = &[
    ("ClosePreparedStatement", "Closes a prepared statement"),
    ("CloseSession", "Ends the session of a handshake"),
    ("CreatePreparedStatement", "Prepares a statement without parameters"),
    #[cfg(feature = "substrait")]
    ("CreatePreparedSubstraitPlan", "Prepares a plan of Substrait"),
    ("GetSessionOptions", "Reads the session's options"),
    ("SetSessionOptions", "Sets the session's options"),
];
const SWEEP: Duration = Duration::from_secs(5);
/// A built state that nobody used for this long is let go of; the session keeps its settings and its own tables.
const REST: Duration = Duration::from_secs(60);
/// How long a handshake stays open for a client that has not ended its own half.
const HANDSHAKE_OPEN: Duration = Duration::from_secs(5);
/// The same for an update. Java's client never ends its half and waits for ours: each of its updates takes this long.
const UPDATE_OPEN: Duration = Duration::from_millis(50);
const FIRST_MESSAGE: Duration = Duration::from_secs(20);
