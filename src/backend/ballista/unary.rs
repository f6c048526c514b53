//! A unary call that takes its answer as soon as it is there.
//!
//! A stock scheduler leaves Nagle's algorithm on: when an answer and its trailers leave in two writes, the second waits
//! for our acknowledgement, which the system delays by 40 ms. The answer of a unary call needs nothing of its trailers:
//! a call that failed has a status and no message. On the wire a unary answer is a stream of one, and read so here.

use std::time::Duration;

use ballista_core::serde::protobuf::{ExecuteQueryParams, ExecuteQueryResult, GetJobStatusParams, GetJobStatusResult};
use bytes::Bytes;
use http::uri::PathAndQuery;
use prost::Message;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::codegen::{Body as HttpBody, StdError};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use super::failure;
use crate::backend::BackendError;

/// Submits a query and returns at once.
pub(super) async fn execute_query<S>(
    scheduler: S,
    request: Request<ExecuteQueryParams>,
) -> Result<Response<ExecuteQueryResult>, BackendError>
where
    S: GrpcService<Body>,
    S::Error: Into<StdError>,
    S::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <S::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    call(scheduler, PathAndQuery::from_static("/ballista.protobuf.SchedulerGrpc/ExecuteQuery"), request).await
}

/// Asks how a job is doing.
pub(super) async fn get_job_status<S>(
    scheduler: S,
    request: GetJobStatusParams,
) -> Result<Response<GetJobStatusResult>, BackendError>
where
    S: GrpcService<Body>,
    S::Error: Into<StdError>,
    S::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <S::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    let path = PathAndQuery::from_static("/ballista.protobuf.SchedulerGrpc/GetJobStatus");
    call(scheduler, path, Request::new(request)).await
}

async fn call<S, Q, A>(scheduler: S, path: PathAndQuery, request: Request<Q>) -> Result<Response<A>, BackendError>
where
    S: GrpcService<Body>,
    S::Error: Into<StdError>,
    S::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <S::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
    Q: Message + Send + Sync + 'static,
    A: Message + Default + Send + Sync + 'static,
{
    let mut client = Grpc::new(scheduler)
        .max_encoding_message_size(super::MAX_MESSAGE)
        .max_decoding_message_size(super::MAX_MESSAGE);
    let answered = async {
        client.ready().await.map_err(|error| BackendError::unavailable(error.into()))?;
        let failed = |status: Status| failure::of_rpc(&status);
        let stream = client.server_streaming(request, path, ProstCodec::<Q, A>::default()).await.map_err(failed)?;
        let (metadata, mut messages, extensions) = stream.into_parts();
        let answer = messages.message().await.map_err(failed)?;
        let answer = answer.ok_or_else(|| BackendError::protocol("an answer without a message"))?;
        Ok(Response::from_parts(metadata, answer, extensions))
    };
    tokio::time::timeout(DEADLINE, answered)
        .await
        .unwrap_or_else(|_| Err(BackendError::unavailable("the scheduler did not answer in time")))
}

const DEADLINE: Duration = Duration::from_secs(20);
