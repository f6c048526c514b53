//! The seam between the gate and the engine that runs queries: plans, job ids and Arrow, nothing else.
//!
//! [`QueryBackend`] is what the Flight side knows of a cluster. It must not know tonic, HTTP or a Flight command, and
//! nothing a client sent may reach it except inside a plan that was authorized.

pub mod ballista;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use bytes::Bytes;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionConfig;
use futures::stream::BoxStream;

/// Runs plans somewhere else and gives back Arrow.
///
/// Every call may be dropped at any point; what it started is then undone by the caller through [`cancel`],
/// [`clean`] and [`close`](Self::close), which are idempotent.
///
/// [`cancel`]: Self::cancel
/// [`clean`]: Self::clean
#[async_trait]
pub trait QueryBackend: fmt::Debug + Send + Sync + 'static {
    /// How long the engine keeps a finished result by itself; no ticket may promise more.
    fn result_ttl(&self) -> Duration;

    /// The engine's own session configuration: what SQL must be planned with so that the plan can be distributed.
    fn session_config(&self) -> SessionConfig;

    /// A state builder with the engine's functions and optimizer rules, without any catalog.
    fn planning_state(&self, config: SessionConfig) -> SessionStateBuilder;

    /// Submits an authorized, optimized plan. The stream ends after the first terminal status.
    async fn submit(&self, query: Submission) -> Result<StatusStream, BackendError>;

    /// Reads one part of a finished job's result.
    async fn fetch(&self, part: &ResultPart) -> Result<PartStream, BackendError>;

    /// Stops a job.
    async fn cancel(&self, job: &JobId) -> Result<(), BackendError>;

    /// Removes a finished job's data.
    async fn clean(&self, job: &JobId) -> Result<(), BackendError>;

    /// Forgets a session and what hangs on it.
    async fn close(&self, session: &BackendSession) -> Result<(), BackendError>;
}

/// The engine's name for a gate session. Made by the gate, never by a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BackendSession(Arc<str>);

impl BackendSession {
    /// Wraps the gate's own session name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name as the engine sees it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What is submitted: one plan in one session.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The session that the plan was made in.
    pub session: BackendSession,
    /// The settings of that session.
    pub config: SessionConfig,
    /// The optimized plan; its root columns are of types that clients can read.
    pub plan: LogicalPlan,
    /// Shown in the engine's own job list; holds no SQL and no name of a person.
    pub label: String,
}

/// The engine's name for a job. Only characters that are safe in a file name, since engines build paths from it
/// (finding F2).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobId(Arc<str>);

impl JobId {
    /// Parses a job id that the engine sent.
    pub fn parse(text: &str) -> Result<Self, BackendError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if text.is_empty() || text.len() > 128 || !text.chars().all(plain) {
            return Err(BackendError::protocol("the cluster sent a job id with unexpected characters"));
        }
        Ok(Self(text.into()))
    }

    /// The id as the engine sees it. Never shown to a client.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The life of a job, as the engine tells it.
#[derive(Clone, Debug)]
pub enum JobStatus {
    /// The engine said that the job failed.
    Failed(BackendError),
    /// Known to the engine, not running yet.
    Queued,
    /// Running.
    Running,
    /// All parts of the result are ready to be fetched.
    Succeeded(JobResult),
}

/// A job's status changes; the job id comes with each.
pub type StatusStream = BoxStream<'static, Result<(JobId, JobStatus), BackendError>>;

/// A finished job's result: parts in order.
#[derive(Clone, Debug)]
pub struct JobResult {
    /// In the order in which rows must be read.
    pub parts: Vec<ResultPart>,
}

/// Where one part of a result lies. Opaque to everything outside the backend that made it.
#[derive(Clone, Debug)]
pub struct ResultPart {
    /// Rows in this part where the engine counted them.
    pub rows: Option<u64>,
    /// Bytes in this part where the engine counted them.
    pub bytes: Option<u64>,
    pub(in crate::backend) location: Arc<ballista::PartLocation>,
}

/// One part's rows as Arrow IPC messages.
pub struct PartStream {
    /// The schema as the part was written, which is not always the declared one.
    pub schema: SchemaRef,
    /// Record batch messages.
    pub messages: BoxStream<'static, Result<IpcMessage, BackendError>>,
}

impl fmt::Debug for PartStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartStream").field("schema", &self.schema).finish_non_exhaustive()
    }
}

/// One encapsulated Arrow IPC message, apart into its flatbuffer and its body.
#[derive(Clone, Debug)]
pub struct IpcMessage {
    /// The `Message` flatbuffer.
    pub header: Bytes,
    /// The body that it describes.
    pub body: Bytes,
}

/// What can go wrong behind the gate, by what the client should do about it. The text is for the operator.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BackendError {
    /// The query itself is at fault; `about` may be told to its author.
    #[error("the query failed: {cause}")]
    Query {
        /// A sentence about the query's own data and expressions, without anything of the cluster.
        about: String,
        /// Everything, for the log.
        cause: String,
    },
    /// The query needs more of something than it may use; `about` may be told to its author.
    #[error("exhausted: {cause}")]
    Exhausted {
        /// What it needs too much of.
        about: &'static str,
        /// Everything, for the log.
        cause: String,
    },
    /// The cluster spoke in a way that this gate does not understand.
    #[error("protocol: {0}")]
    Protocol(String),
    /// The plan holds something that cannot be distributed; `about` may be told to its author.
    #[error("the plan cannot be distributed: {cause}")]
    Unsupported {
        /// What it is, in the terms of SQL.
        about: String,
        /// Everything, for the log.
        cause: String,
    },
    /// The cluster, or the part of it that holds the result, cannot be reached.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// The job failed and its cause is not for the client.
    #[error("the job failed: {0}")]
    Failed(String),
}

impl BackendError {
    /// A [`BackendError::Protocol`].
    pub fn protocol(text: impl fmt::Display) -> Self {
        Self::Protocol(text.to_string())
    }

    /// A [`BackendError::Unavailable`].
    pub fn unavailable(text: impl fmt::Display) -> Self {
        Self::Unavailable(text.to_string())
    }
}
