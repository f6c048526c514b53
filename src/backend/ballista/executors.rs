//! Fetching results from executors: who may be dialled, pooled connections, raw blocks.
//!
//! INVARIANT: [`PartLocation`] is made by [`Executors::accept`] alone, from a job result of the scheduler. No byte of a
//! client reaches an address here, and [`Executors::dial`] opens none that the allow-list does not hold.

mod allowed;

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{Schema, SchemaRef};
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::{MessageHeader, root_as_message};
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{Action, Ticket};
use ballista_core::serde::protobuf;
use ballista_core::serde::protobuf::{FetchPartition, PartitionLocation, ShuffleFileKind, ShuffleLayout};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use prost::Message;
use tonic::transport::Endpoint;

pub use self::allowed::{ExecutorAllowList, ExecutorPattern};
use super::failure;
use super::frames::Frames;
use super::wire::{Headers, Wire, with_headers};
use crate::backend::{BackendError, IpcMessage, JobId, PartStream, ResultPart};

/// Where a part of a result lies, as the scheduler said it.
#[derive(Clone, Debug)]
pub(in crate::backend) struct PartLocation {
    host: String,
    port: u16,
    job: JobId,
    stage: u32,
    partition: u32,
    file: Option<u64>,
    layout: ShuffleLayout,
}

/// How results are reached.
#[derive(Clone)]
pub(super) enum Route {
    /// From the executors themselves, if the list has them.
    Direct(ExecutorAllowList),
    /// Through the scheduler's own Flight proxy, whose address is the configuration's. It dials the executors.
    Proxy(Wire),
}

/// Pooled connections to executors.
#[derive(Clone)]
pub(super) struct Executors {
    route: Route,
    channels: Arc<Mutex<HashMap<SocketAddr, Wire>>>,
}

impl fmt::Debug for Executors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let route: &dyn fmt::Debug = match &self.route {
            Route::Direct(allowed) => allowed,
            Route::Proxy(_) => &"proxy",
        };
        f.debug_struct("Executors").field("route", route).finish_non_exhaustive()
    }
}

impl Executors {
    pub(super) fn new(route: Route) -> Self {
        Self { route, channels: Arc::default() }
    }

    /// Takes over a location that the scheduler reported.
    pub(super) fn accept(&self, location: PartitionLocation) -> Result<ResultPart, BackendError> {
        let layout = location.layout();
        let executor =
            location.executor_meta.ok_or_else(|| BackendError::protocol("a result part without executor"))?;
        let part = location.partition_id.ok_or_else(|| BackendError::protocol("a result part without partition"))?;
        let port = u16::try_from(executor.port)
            .map_err(|_| BackendError::protocol(format!("executor port {}", executor.port)))?;
        if executor.host.parse::<std::net::IpAddr>().is_err() && !allowed::is_name(&executor.host) {
            return Err(BackendError::protocol("an executor host is neither an address nor a name"));
        }
        let stats = location.partition_stats;
        let count = |n: i64| u64::try_from(n).ok();
        Ok(ResultPart {
            rows: stats.as_ref().and_then(|stats| count(stats.num_rows)),
            bytes: stats.as_ref().and_then(|stats| count(stats.num_bytes)),
            location: Arc::new(PartLocation {
                host: executor.host,
                port,
                job: JobId::parse(&part.job_id)?,
                stage: part.stage_id,
                partition: part.partition_id,
                file: location.file_id,
                layout: layout.into(),
            }),
        })
    }

    pub(super) async fn fetch(&self, part: &PartLocation) -> Result<PartStream, BackendError> {
        match (&self.route, part.layout) {
            // The proxy knows no raw blocks.
            (Route::Proxy(proxy), ShuffleLayout::Passthrough | ShuffleLayout::Sort) => {
                decoded(proxy.clone(), part).await
            }
            // One partition in one file: forwarded as it lies on the executor's disk.
            (Route::Direct(allowed), ShuffleLayout::Passthrough) => match self.direct(allowed, part, blocks).await {
                Err(BackendError::Protocol(_)) => self.direct(allowed, part, decoded).await,
                result => result,
            },
            (Route::Direct(allowed), ShuffleLayout::Sort) => self.direct(allowed, part, decoded).await,
        }
    }

    /// Asks the executor itself; a connection that fails is not kept.
    async fn direct<'a, F>(
        &self,
        allowed: &ExecutorAllowList,
        part: &'a PartLocation,
        read: impl FnOnce(Wire, &'a PartLocation) -> F,
    ) -> Result<PartStream, BackendError>
    where
        F: Future<Output = Result<PartStream, BackendError>>,
    {
        let address = dialled(allowed, part).await?;
        let answer = read(self.dial(address)?, part).await;
        if let Err(BackendError::Unavailable(_)) = answer {
            self.channels.lock().remove(&address);
        }
        answer
    }

    /// A connection to an address that [`dialled`] found in the list.
    fn dial(&self, address: SocketAddr) -> Result<Wire, BackendError> {
        let mut channels = self.channels.lock();
        if let Some(channel) = channels.get(&address) {
            return Ok(channel.clone());
        }
        if channels.len() >= MAX_POOLED {
            channels.clear();
        }
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(BackendError::unavailable)?;
        let wire = with_headers(for_results(endpoint).connect_lazy(), Headers::default());
        channels.insert(address, wire.clone());
        Ok(wire)
    }
}

/// The settings of a connection that carries results.
pub(super) fn for_results(endpoint: Endpoint) -> Endpoint {
    endpoint
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW)
        // All clients' reads share one connection: a reader that rests must not use up what the others need.
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(Duration::from_secs(10))
        .keep_alive_timeout(Duration::from_secs(10))
}

/// The address of an executor, if it may be dialled. A name is resolved here and judged by what was found.
async fn dialled(allowed: &ExecutorAllowList, part: &PartLocation) -> Result<SocketAddr, BackendError> {
    let PartLocation { host, port, .. } = part;
    let found: Vec<SocketAddr> = match host.parse() {
        Ok(ip) => vec![SocketAddr::new(ip, *port)],
        Err(_) => match tokio::time::timeout(CONNECT, tokio::net::lookup_host((host.as_str(), *port))).await {
            Ok(Ok(found)) => found.collect(),
            Ok(Err(error)) => return Err(BackendError::unavailable(format!("executor `{host}`: {error}"))),
            Err(_) => return Err(BackendError::unavailable(format!("executor `{host}` was not resolved in time"))),
        },
    };
    found.into_iter().find(|address| allowed.allows(host, *address)).ok_or_else(|| {
        BackendError::unavailable(format!("executor `{host}:{port}` is not one that results may be fetched from"))
    })
}

/// Raw blocks of the file (`IO_BLOCK_TRANSPORT`).
async fn blocks(executor: Wire, part: &PartLocation) -> Result<PartStream, BackendError> {
    let action = Action { r#type: "IO_BLOCK_TRANSPORT".to_owned(), body: request(part).into() };
    let response = answered(part, client(executor).do_action(action)).await?;
    let blocks = response.map_ok(|block| block.body).map_err(|status| failure::of_rpc(&status)).boxed();
    with_schema(Frames::new(each_in_time(blocks)).boxed()).await
}

/// Messages that the executor decoded and encoded again (`DoGet`).
async fn decoded(executor: Wire, part: &PartLocation) -> Result<PartStream, BackendError> {
    let ticket = Ticket { ticket: request(part).into() };
    let response = answered(part, client(executor).do_get(ticket)).await?;
    let messages = response
        .map_ok(|data| IpcMessage { header: data.data_header, body: data.data_body })
        .map_err(|status| failure::of_rpc(&status));
    with_schema(each_in_time(messages.boxed())).await
}

fn client(executor: Wire) -> FlightServiceClient<Wire> {
    FlightServiceClient::new(executor).max_decoding_message_size(MAX_MESSAGE).max_encoding_message_size(MAX_MESSAGE)
}

async fn answered<T>(
    part: &PartLocation,
    rpc: impl Future<Output = Result<tonic::Response<tonic::Streaming<T>>, tonic::Status>>,
) -> Result<tonic::Streaming<T>, BackendError> {
    match tokio::time::timeout(FIRST_ANSWER, rpc).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(failure::of_rpc(&status)),
        Err(_) => {
            Err(BackendError::unavailable(format!("executor {}:{} did not answer in time", part.host, part.port)))
        }
    }
}

/// Every item has a deadline, counted while somebody waits for it: a reader that rests is not the executor's fault.
fn each_in_time<T: Send + 'static>(
    items: BoxStream<'static, Result<T, BackendError>>,
) -> BoxStream<'static, Result<T, BackendError>> {
    futures::stream::unfold(Some(items), |items| async move {
        let mut items = items?;
        match tokio::time::timeout(NEXT_ITEM, items.next()).await {
            Ok(item) => item.map(|item| (item, Some(items))),
            Err(_) => Some((Err(BackendError::unavailable("an executor stopped sending a result")), None)),
        }
    })
    .boxed()
}

/// Takes the schema message off the front.
async fn with_schema(
    mut messages: BoxStream<'static, Result<IpcMessage, BackendError>>,
) -> Result<PartStream, BackendError> {
    let first = tokio::time::timeout(FIRST_ANSWER, messages.next())
        .await
        .map_err(|_| BackendError::unavailable("a result part did not start in time"))?
        .ok_or_else(|| BackendError::protocol("a result part without schema"))??;
    Ok(PartStream { schema: schema_of(&first)?, messages })
}

fn schema_of(message: &IpcMessage) -> Result<SchemaRef, BackendError> {
    let root = root_as_message(&message.header).map_err(BackendError::protocol)?;
    if root.header_type() != MessageHeader::Schema {
        return Err(BackendError::protocol("a result part does not begin with its schema"));
    }
    let schema: Schema =
        root.header_as_schema().map(fb_to_schema).ok_or_else(|| BackendError::protocol("no schema"))?;
    Ok(Arc::new(schema))
}

fn request(part: &PartLocation) -> Vec<u8> {
    protobuf::Action {
        action_type: Some(protobuf::action::ActionType::FetchPartition(FetchPartition {
            job_id: part.job.as_str().to_owned(),
            stage_id: part.stage,
            partition_id: part.partition,
            host: part.host.clone(),
            port: u32::from(part.port),
            file_id: part.file,
            layout: part.layout.into(),
            file_kind: ShuffleFileKind::Data.into(),
            byte_ranges: Vec::new(),
        })),
        settings: Vec::new(),
    }
    .encode_to_vec()
}

/// Blocks are 8 MiB; their frame and the largest single batch of the decoded path need more.
const MAX_MESSAGE: usize = 256 * 1024 * 1024;
const MAX_POOLED: usize = 1024;
const CONNECT: Duration = Duration::from_secs(3);
const FIRST_ANSWER: Duration = Duration::from_secs(10);
const NEXT_ITEM: Duration = Duration::from_secs(60);
/// What a resting reader holds at most, beside the block in hand.
const STREAM_WINDOW: u32 = 8 * 1024 * 1024;
/// HTTP/2's largest: no limit beyond the streams' own.
const CONNECTION_WINDOW: u32 = 0x7FFF_FFFF;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use std::collections::HashSet;

    use ballista_core::serde::protobuf::{ExecutorMetadata, PartitionId};

    use super::*;

    fn location(host: &str, port: u32, job: &str) -> PartitionLocation {
        PartitionLocation {
            partition_id: Some(PartitionId { job_id: job.to_owned(), stage_id: 1, partition_id: 0 }),
            executor_meta: Some(ExecutorMetadata { host: host.to_owned(), port, ..ExecutorMetadata::default() }),
            ..PartitionLocation::default()
        }
    }

    async fn address_of(allowed: &ExecutorAllowList, host: &str, port: u32) -> Result<SocketAddr, BackendError> {
        let executors = Executors::new(Route::Direct(allowed.clone()));
        dialled(allowed, &executors.accept(location(host, port, "AbC-1_z"))?.location).await
    }

    #[tokio::test]
    async fn only_an_allowed_address_is_dialled() {
        let started = HashSet::from(["127.0.0.1:4000".parse().unwrap()]);
        let configured: Arc<[ExecutorPattern]> = Arc::new(["127.0.0.1:4000".parse().unwrap()]);
        for allowed in [
            ExecutorAllowList::Started(Arc::new(Mutex::new(started))),
            ExecutorAllowList::Configured(Arc::clone(&configured)),
        ] {
            assert_eq!(address_of(&allowed, "127.0.0.1", 4000).await.unwrap(), "127.0.0.1:4000".parse().unwrap());
            // A name is as good as the address behind it.
            assert!(address_of(&allowed, "localhost", 4000).await.is_ok());
            for (host, port) in [
                ("127.0.0.1", 4001),
                ("127.0.0.2", 4000),
                ("169.254.169.254", 80),
                ("localhost", 4001),
                ("127.0.0.1", 69536),
                ("127.0.0.1/x", 4000),
                ("user@127.0.0.1", 4000),
                ("", 4000),
            ] {
                assert!(address_of(&allowed, host, port).await.is_err(), "{host}:{port}");
            }
        }
    }

    #[test]
    fn a_job_id_that_could_be_a_path_is_refused() {
        assert!(JobId::parse("7nQ-1_z").is_ok());
        for bad in ["", "../x", "/etc", "a/b", "a b", "a\0", &"x".repeat(129)] {
            assert!(JobId::parse(bad).is_err(), "{bad}");
        }
    }
}
