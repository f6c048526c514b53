//! The Ballista backend: the public `SchedulerGrpc` protocol and the executors' Flight port.
//!
//! Generic over the gRPC service, so that one implementation talks to a remote scheduler and to one in this process.
//! Must not name a type of `ballista-scheduler` (that is [`embedded`]'s), and must not dial an address that did not
//! come out of a job result and pass [`ExecutorAllowList`].

pub mod embedded;
mod executors;
mod failure;
mod frames;
mod job_ids;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use ballista_core::BALLISTA_VERSION;
use ballista_core::extension::{
    SessionConfigExt, ballista_aggregate_functions, ballista_scalar_functions, ballista_window_functions,
};
use ballista_core::optimizer::ballista_default_optimizer_rules;
use ballista_core::serde::protobuf::execute_query_params::Query;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_core::serde::protobuf::{
    CancelJobParams, CleanJobDataParams, CreateUpdateSessionParams, ExecuteQueryParams, GetJobStatusResult,
    KeyValuePair, RemoveSessionParams, job_status,
};
use ballista_core::version::{check_compatibility, insert_version_header, version_from_metadata};
use bytes::Bytes;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::SessionConfig;
use datafusion_proto::logical_plan::AsLogicalPlan;
use datafusion_proto::protobuf::LogicalPlanNode;
use futures::{StreamExt, TryStreamExt};
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codegen::{Body as HttpBody, StdError};

pub use self::executors::ExecutorAllowList;
use self::executors::Executors;
pub(in crate::backend) use self::executors::PartLocation;
use crate::backend::{
    BackendError, BackendSession, JobId, JobResult, JobStatus, PartStream, QueryBackend, ResultPart, StatusStream,
    Submission,
};

/// A Ballista cluster behind the gate.
#[derive(Clone)]
pub struct BallistaBackend<S> {
    scheduler: SchedulerGrpcClient<S>,
    executors: Executors,
    shuffle_compression: ShuffleCompression,
}

/// How the cluster compresses what it writes between stages and as results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShuffleCompression {
    /// LZ4 frames: fewer bytes on a network between executors, decoded in the gate for clients.
    Lz4,
    /// Nothing: the gate forwards results without decoding them. The better choice where no network lies between.
    None,
}

impl<S> BallistaBackend<S>
where
    S: GrpcService<Body> + Clone + Send + Sync + 'static,
    S::Error: Into<StdError>,
    S::Future: Send,
    S::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <S::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    /// A backend over `scheduler` (a channel, or a scheduler's service in this process) that fetches results from the
    /// executors in `allowed` only.
    pub fn new(scheduler: S, allowed: ExecutorAllowList, shuffle_compression: ShuffleCompression) -> Self {
        let scheduler = SchedulerGrpcClient::new(scheduler)
            .max_encoding_message_size(MAX_MESSAGE)
            .max_decoding_message_size(MAX_MESSAGE);
        Self { scheduler, executors: Executors::new(allowed), shuffle_compression }
    }
}

impl<S> fmt::Debug for BallistaBackend<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BallistaBackend").field("executors", &self.executors).finish_non_exhaustive()
    }
}

#[async_trait]
impl<S> QueryBackend for BallistaBackend<S>
where
    S: GrpcService<Body> + Clone + Send + Sync + 'static,
    S::Error: Into<StdError>,
    S::Future: Send,
    S::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <S::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    fn session_config(&self) -> SessionConfig {
        let codec = match self.shuffle_compression {
            ShuffleCompression::Lz4 => "lz4",
            ShuffleCompression::None => "none",
        };
        SessionConfig::new_with_ballista().set_str("ballista.shuffle.compression.codec", codec)
    }

    fn planning_state(&self, config: SessionConfig) -> SessionStateBuilder {
        SessionStateBuilder::new()
            .with_config(config)
            .with_default_features()
            .with_optimizer_rules(ballista_default_optimizer_rules())
            .with_scalar_functions(ballista_scalar_functions())
            .with_aggregate_functions(ballista_aggregate_functions())
            .with_window_functions(ballista_window_functions())
    }

    async fn open(&self, session: &BackendSession, config: &SessionConfig) -> Result<(), BackendError> {
        let request = CreateUpdateSessionParams { session_id: session.as_str().to_owned(), settings: settings(config) };
        call(self.scheduler.clone().create_update_session(request)).await.map(drop)
    }

    async fn submit(&self, query: Submission) -> Result<StatusStream, BackendError> {
        let codec = query.config.ballista_logical_extension_codec();
        let mut plan = Vec::new();
        LogicalPlanNode::try_from_logical_plan(&query.plan, codec.as_ref())
            .and_then(|node| node.try_encode(&mut plan))
            .map_err(|error| failure::of_encoding(&error.strip_backtrace()))?;
        if plan.len() > MAX_PLAN {
            let about = format!("its plan has {} bytes; the limit is {MAX_PLAN}", plan.len());
            return Err(BackendError::Query { cause: about.clone(), about });
        }
        let config = query.config.with_ballista_job_name(&query.label);
        let mut request = tonic::Request::new(ExecuteQueryParams {
            session_id: query.session.as_str().to_owned(),
            settings: settings(&config),
            operation_id: query.label,
            query: Some(Query::LogicalPlan(plan)),
        });
        insert_version_header(request.metadata_mut());
        let (response, known) = job_ids::catching(call(self.scheduler.clone().execute_query_push(request))).await;
        let response = response?;
        let version = check_compatibility(Some(BALLISTA_VERSION), version_from_metadata(response.metadata()));
        let executors = self.executors.clone();
        let statuses = response
            .into_inner()
            .map_err(|status| failure::of_rpc(&status))
            .and_then(move |update| std::future::ready(read_status(update, &executors, &version)));
        let first = known.map(|job| Ok((job, JobStatus::Queued)));
        Ok(futures::stream::iter(first).chain(statuses).boxed())
    }

    async fn fetch(&self, part: &ResultPart) -> Result<PartStream, BackendError> {
        self.executors.fetch(&part.location).await
    }

    async fn cancel(&self, job: &JobId) -> Result<(), BackendError> {
        let request = CancelJobParams { job_id: job.as_str().to_owned() };
        call(self.scheduler.clone().cancel_job(request)).await.map(drop)
    }

    async fn clean(&self, job: &JobId) -> Result<(), BackendError> {
        let request = CleanJobDataParams { job_id: job.as_str().to_owned(), remove_stage_ids: Vec::new() };
        call(self.scheduler.clone().clean_job_data(request)).await.map(drop)
    }

    async fn close(&self, session: &BackendSession) -> Result<(), BackendError> {
        let request = RemoveSessionParams { session_id: session.as_str().to_owned() };
        call(self.scheduler.clone().remove_session(request)).await.map(drop)
    }
}

/// Every unary call has a deadline: a scheduler that hangs must not hold a client.
async fn call<T>(
    rpc: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<tonic::Response<T>, BackendError> {
    match tokio::time::timeout(CALL_DEADLINE, rpc).await {
        Ok(answer) => answer.map_err(|status| failure::of_rpc(&status)),
        Err(_) => Err(BackendError::unavailable("the scheduler did not answer in time")),
    }
}

/// The session's options as the scheduler takes them. Values of the runtime (paths, memory) stay here.
fn settings(config: &SessionConfig) -> Vec<KeyValuePair> {
    config
        .options()
        .entries()
        .into_iter()
        .filter(|entry| entry.value.is_some() && !entry.key.starts_with("datafusion.runtime."))
        .map(|entry| KeyValuePair { key: entry.key, value: entry.value })
        .collect()
}

fn read_status(
    update: GetJobStatusResult,
    executors: &Executors,
    version: &Result<(), String>,
) -> Result<(JobId, JobStatus), BackendError> {
    let status = update.status.ok_or_else(|| BackendError::protocol("a status update without a status"))?;
    let job = JobId::parse(&status.job_id)?;
    if let Err(mismatch) = version {
        // The job id is told along, so that the caller can cancel what an old scheduler has queued already.
        return Ok((job, JobStatus::Failed(BackendError::protocol(mismatch))));
    }
    let status = match status.status {
        None | Some(job_status::Status::Queued(_)) => JobStatus::Queued,
        Some(job_status::Status::Running(_)) => JobStatus::Running,
        Some(job_status::Status::Failed(failed)) => JobStatus::Failed(failure::of_job(&failed.error)),
        Some(job_status::Status::Successful(done)) => {
            let parts = done
                .partition_location
                .into_iter()
                .map(|location| executors.accept(location))
                .collect::<Result<Vec<_>, _>>()?;
            JobStatus::Succeeded(JobResult { parts })
        }
    };
    Ok((job, status))
}

const CALL_DEADLINE: Duration = Duration::from_secs(20);
/// A plan must fit into a message, beside the session's settings.
const MAX_PLAN: usize = MAX_MESSAGE - 1024 * 1024;
/// Plans and job results; the scheduler's own default.
const MAX_MESSAGE: usize = 16 * 1024 * 1024;
