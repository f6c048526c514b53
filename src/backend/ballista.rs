//! The Ballista backend: the public `SchedulerGrpc` protocol and the executors' Flight port.
//!
//! Generic over the gRPC service, so that one implementation talks to a remote scheduler and to one in this process.
//! Must not name a type of `ballista-scheduler` (that is [`embedded`]'s), and must not dial an address that is neither
//! the configuration's nor out of a job result and past [`ExecutorAllowList`].

pub mod embedded;
mod executors;
mod failure;
mod frames;
mod functions;
mod job_ids;
mod polling;
pub mod remote;
mod unary;
mod wire;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
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
    CancelJobParams, CleanJobDataParams, ExecuteQueryParams, GetJobStatusParams, GetJobStatusResult, KeyValuePair,
    RemoveSessionParams, execute_query_result, job_status,
};
use ballista_core::version::{check_compatibility, insert_version_header, version_from_metadata};
use bytes::Bytes;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::SessionConfig;
use datafusion_proto::logical_plan::AsLogicalPlan;
use datafusion_proto::protobuf::LogicalPlanNode;
use futures::{StreamExt, TryStreamExt, stream};
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codegen::{Body as HttpBody, StdError};

pub(in crate::backend) use self::executors::PartLocation;
pub use self::executors::{ExecutorAllowList, ExecutorPattern};
use self::executors::{Executors, Route};
pub use self::wire::{Headers, Wire};
use crate::backend::{
    BackendError, BackendSession, JobId, JobResult, JobStatus, PartStream, QueryBackend, ResultPart, StatusStream,
    Submission,
};
use crate::growth;

/// A Ballista cluster behind the gate.
#[derive(Clone)]
pub struct BallistaBackend<S> {
    scheduler: SchedulerGrpcClient<S>,
    service: S,
    executors: Executors,
    shuffle_compression: ShuffleCompression,
    following: Following,
    result_ttl: Duration,
}

/// How a job's end is learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Following {
    /// By asking: a scheduler in another process names a job at once only when it does not push.
    Poll,
    /// By being told: a scheduler in this process has let its id be caught.
    Push,
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
    /// A backend over `scheduler` (a channel, or a scheduler's service in this process).
    fn new(
        scheduler: S,
        route: Route,
        shuffle_compression: ShuffleCompression,
        following: Following,
        result_ttl: Duration,
    ) -> Self {
        let service = scheduler.clone();
        let scheduler = SchedulerGrpcClient::new(scheduler)
            .max_encoding_message_size(MAX_MESSAGE)
            .max_decoding_message_size(MAX_MESSAGE);
        Self { scheduler, service, executors: Executors::new(route), shuffle_compression, following, result_ttl }
    }

    /// Asks whether a scheduler of our version answers, without making a job.
    ///
    /// # Errors
    ///
    /// [`BackendError::Unavailable`] when none answers, [`BackendError::Protocol`] with both versions when one of
    /// another version does.
    pub async fn greet(&self) -> Result<(), BackendError> {
        // A scheduler says its version only with the answer to a submission; an empty plan is answered and not queued.
        let request = versioned(ExecuteQueryParams {
            session_id: String::new(),
            settings: Vec::new(),
            operation_id: GREETING.to_owned(),
            query: Some(Query::LogicalPlan(Vec::new())),
        });
        let answer = unary::execute_query(self.service.clone(), request).await?;
        compatible(&answer).map_err(BackendError::Protocol)
    }

    async fn submit_and_be_told(&self, request: ExecuteQueryParams) -> Result<StatusStream, BackendError> {
        let mut scheduler = self.scheduler.clone();
        let (response, known) = job_ids::catching(call(scheduler.execute_query_push(versioned(request)))).await;
        let response = response?;
        let version = compatible(&response);
        let executors = self.executors.clone();
        let statuses = response
            .into_inner()
            .map_err(|status| failure::of_rpc(&status))
            .and_then(move |update| std::future::ready(read_update(update, &executors, &version)));
        let first = known.map(|job| Ok((job, JobStatus::Queued)));
        Ok(stream::iter(first).chain(statuses).boxed())
    }

    async fn submit_and_ask(
        &self,
        request: ExecuteQueryParams,
        missing: BTreeSet<String>,
    ) -> Result<StatusStream, BackendError> {
        let response = unary::execute_query(self.service.clone(), versioned(request)).await?;
        let version = compatible(&response);
        let job = match response.into_inner().result {
            Some(execute_query_result::Result::Success(queued)) => JobId::parse(&queued.job_id)?,
            Some(execute_query_result::Result::Failure(failed)) => return Err(failure::of_submission(failed)),
            None => return Err(BackendError::protocol("a submission was answered with nothing")),
        };
        if let Err(mismatch) = version {
            // The job id is told along, so that the caller can cancel what an old scheduler has queued already.
            return Ok(stream::iter([Ok((job, JobStatus::Failed(BackendError::protocol(mismatch))))]).boxed());
        }
        let (service, executors) = (self.service.clone(), self.executors.clone());
        let request = GetJobStatusParams { job_id: job.as_str().to_owned() };
        let missing = Arc::new(missing);
        Ok(polling::statuses(job, move || {
            let missing = Arc::clone(&missing);
            let (service, executors, request) = (service.clone(), executors.clone(), request.clone());
            async move {
                let answer = unary::get_job_status(service, request).await?.into_inner();
                match answer.status {
                    Some(status) => Ok(polling::Answer::Known(match read_status(status.status, &executors)? {
                        JobStatus::Failed(error) => JobStatus::Failed(functions::explained(error, &missing)),
                        status @ (JobStatus::Queued | JobStatus::Running | JobStatus::Succeeded(_)) => status,
                    })),
                    None => Ok(polling::Answer::Unknown),
                }
            }
        }))
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
    fn result_ttl(&self) -> Duration {
        self.result_ttl
    }

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
            .with_scalar_functions([ballista_scalar_functions(), growth::bounded()].concat())
            .with_aggregate_functions(ballista_aggregate_functions())
            .with_window_functions(ballista_window_functions())
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
        let request = ExecuteQueryParams {
            session_id: query.session.as_str().to_owned(),
            settings: settings(&config),
            operation_id: query.label,
            query: Some(Query::LogicalPlan(plan)),
        };
        match self.following {
            Following::Poll => self.submit_and_ask(request, functions::missing(&query.plan)).await,
            Following::Push => self.submit_and_be_told(request).await,
        }
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

/// Says our version along, which a scheduler of another one refuses.
fn versioned(request: ExecuteQueryParams) -> tonic::Request<ExecuteQueryParams> {
    let mut request = tonic::Request::new(request);
    insert_version_header(request.metadata_mut());
    request
}

/// A scheduler that is too old to refuse us says no version.
fn compatible<T>(response: &tonic::Response<T>) -> Result<(), String> {
    check_compatibility(Some(BALLISTA_VERSION), version_from_metadata(response.metadata()))
}

fn read_update(
    update: GetJobStatusResult,
    executors: &Executors,
    version: &Result<(), String>,
) -> Result<(JobId, JobStatus), BackendError> {
    let status = update.status.ok_or_else(|| BackendError::protocol("a status update without a status"))?;
    let job = JobId::parse(&status.job_id)?;
    match version {
        Ok(()) => Ok((job, read_status(status.status, executors)?)),
        // The job id is told along, so that the caller can cancel what an old scheduler has queued already.
        Err(mismatch) => Ok((job, JobStatus::Failed(BackendError::protocol(mismatch)))),
    }
}

fn read_status(status: Option<job_status::Status>, executors: &Executors) -> Result<JobStatus, BackendError> {
    match status {
        None | Some(job_status::Status::Queued(_)) => Ok(JobStatus::Queued),
        Some(job_status::Status::Running(_)) => Ok(JobStatus::Running),
        Some(job_status::Status::Failed(failed)) => Ok(JobStatus::Failed(failure::of_job(&failed.error))),
        Some(job_status::Status::Successful(done)) => {
            let parts = done
                .partition_location
                .into_iter()
                .map(|location| executors.accept(location))
                .collect::<Result<Vec<_>, _>>()?;
            Ok(JobStatus::Succeeded(JobResult { parts }))
        }
    }
}

/// The name of the operation that is none.
const GREETING: &str = "portcullis-greeting";
const CALL_DEADLINE: Duration = Duration::from_secs(20);
/// A plan must fit into a message, beside the session's settings.
const MAX_PLAN: usize = MAX_MESSAGE - 1024 * 1024;
/// Plans and job results; the scheduler's own default.
const MAX_MESSAGE: usize = 16 * 1024 * 1024;
