//! Fetching results from executors: who may be dialled, pooled connections, raw blocks.
//!
//! INVARIANT: [`PartLocation`] is made by [`Executors::accept`] alone, from a job result of the scheduler and after the
//! allow-list. No byte of a client reaches an address here.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
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
use tonic::transport::{Channel, Endpoint};

use super::failure;
use super::frames::Frames;
use crate::backend::{BackendError, IpcMessage, JobId, PartStream, ResultPart};

/// The addresses results may be fetched from. Nothing else is ever dialled.
#[derive(Clone)]
pub enum ExecutorAllowList {
    /// The executors that this process started, by their exact addresses. Shared, since they can be replaced.
    Started(Arc<Mutex<HashSet<SocketAddr>>>),
}

impl ExecutorAllowList {
    fn allows(&self, address: SocketAddr) -> bool {
        match self {
            Self::Started(addresses) => addresses.lock().contains(&address),
        }
    }
}

impl fmt::Debug for ExecutorAllowList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started(_) => f.write_str("Started"),
        }
    }
}

/// Where a part of a result lies; evidence that the address passed the allow-list.
#[derive(Clone, Debug)]
pub(in crate::backend) struct PartLocation {
    address: SocketAddr,
    job: JobId,
    stage: u32,
    partition: u32,
    file: Option<u64>,
    layout: ShuffleLayout,
}

/// Pooled connections to executors.
#[derive(Clone)]
pub(super) struct Executors {
    allowed: ExecutorAllowList,
    channels: Arc<Mutex<HashMap<SocketAddr, Channel>>>,
}

impl fmt::Debug for Executors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executors").field("allowed", &self.allowed).finish_non_exhaustive()
    }
}

impl Executors {
    pub(super) fn new(allowed: ExecutorAllowList) -> Self {
        Self { allowed, channels: Arc::default() }
    }

    /// Checks a location that the scheduler reported.
    pub(super) fn accept(&self, location: PartitionLocation) -> Result<ResultPart, BackendError> {
        let layout = location.layout();
        let executor =
            location.executor_meta.ok_or_else(|| BackendError::protocol("a result part without executor"))?;
        let part = location.partition_id.ok_or_else(|| BackendError::protocol("a result part without partition"))?;
        let address = numeric_address(&executor.host, executor.port)?;
        if !self.allowed.allows(address) {
            return Err(BackendError::unavailable(format!("executor {address} is not in the allow-list")));
        }
        let stats = location.partition_stats;
        let count = |n: i64| u64::try_from(n).ok();
        Ok(ResultPart {
            rows: stats.as_ref().and_then(|stats| count(stats.num_rows)),
            bytes: stats.as_ref().and_then(|stats| count(stats.num_bytes)),
            location: Arc::new(PartLocation {
                address,
                job: JobId::parse(&part.job_id)?,
                stage: part.stage_id,
                partition: part.partition_id,
                file: location.file_id,
                layout: layout.into(),
            }),
        })
    }

    pub(super) async fn fetch(&self, part: &PartLocation) -> Result<PartStream, BackendError> {
        // Asked again: an executor that this process replaced since is gone.
        if !self.allowed.allows(part.address) {
            return Err(BackendError::unavailable(format!("executor {} is gone", part.address)));
        }
        match part.layout {
            // One partition in one file: forwarded as it lies on the executor's disk.
            ShuffleLayout::Passthrough => match self.blocks(part).await {
                Err(BackendError::Protocol(_)) => self.decoded(part).await,
                result => result,
            },
            ShuffleLayout::Sort => self.decoded(part).await,
        }
    }

    /// Raw blocks of the file (`IO_BLOCK_TRANSPORT`).
    async fn blocks(&self, part: &PartLocation) -> Result<PartStream, BackendError> {
        let action = Action { r#type: "IO_BLOCK_TRANSPORT".to_owned(), body: request(part).into() };
        let response = self.call(part.address, |mut client| async move { client.do_action(action).await }).await?;
        let blocks = response.map_ok(|block| block.body).map_err(|status| failure::of_rpc(&status)).boxed();
        with_schema(Frames::new(each_in_time(blocks)).boxed()).await
    }

    /// Messages that the executor decoded and encoded again (`DoGet`).
    async fn decoded(&self, part: &PartLocation) -> Result<PartStream, BackendError> {
        let ticket = Ticket { ticket: request(part).into() };
        let response = self.call(part.address, |mut client| async move { client.do_get(ticket).await }).await?;
        let messages = response
            .map_ok(|data| IpcMessage { header: data.data_header, body: data.data_body })
            .map_err(|status| failure::of_rpc(&status));
        with_schema(each_in_time(messages.boxed())).await
    }

    async fn call<T, F>(
        &self,
        address: SocketAddr,
        rpc: impl FnOnce(FlightServiceClient<Channel>) -> F,
    ) -> Result<tonic::Streaming<T>, BackendError>
    where
        F: Future<Output = Result<tonic::Response<tonic::Streaming<T>>, tonic::Status>>,
    {
        let client = FlightServiceClient::new(self.channel(address)?)
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        match tokio::time::timeout(FIRST_ANSWER, rpc(client)).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => {
                self.channels.lock().remove(&address);
                Err(failure::of_rpc(&status))
            }
            Err(_) => {
                self.channels.lock().remove(&address);
                Err(BackendError::unavailable(format!("executor {address} did not answer in time")))
            }
        }
    }

    fn channel(&self, address: SocketAddr) -> Result<Channel, BackendError> {
        let mut channels = self.channels.lock();
        if let Some(channel) = channels.get(&address) {
            return Ok(channel.clone());
        }
        if channels.len() >= MAX_POOLED {
            channels.clear();
        }
        let channel = Endpoint::from_shared(format!("http://{address}"))
            .map_err(BackendError::unavailable)?
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW)
            // All clients' reads share one connection: a reader that rests must not use up what the others need.
            .initial_connection_window_size(CONNECTION_WINDOW)
            .http2_keep_alive_interval(Duration::from_secs(10))
            .keep_alive_timeout(Duration::from_secs(10))
            .connect_lazy();
        channels.insert(address, channel.clone());
        Ok(channel)
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
            host: part.address.ip().to_string(),
            port: u32::from(part.address.port()),
            file_id: part.file,
            layout: part.layout.into(),
            file_kind: ShuffleFileKind::Data.into(),
            byte_ranges: Vec::new(),
        })),
        settings: Vec::new(),
    }
    .encode_to_vec()
}

/// Names are not resolved: an address that a resolver chooses is not one that was allowed.
fn numeric_address(host: &str, port: u32) -> Result<SocketAddr, BackendError> {
    let ip: IpAddr = host.parse().map_err(|_| BackendError::protocol(format!("executor host {host} is no address")))?;
    let port = u16::try_from(port).map_err(|_| BackendError::protocol(format!("executor port {port}")))?;
    Ok(SocketAddr::new(ip, port))
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

    use ballista_core::serde::protobuf::{ExecutorMetadata, PartitionId};

    use super::*;

    fn location(host: &str, port: u32, job: &str) -> PartitionLocation {
        PartitionLocation {
            partition_id: Some(PartitionId { job_id: job.to_owned(), stage_id: 1, partition_id: 0 }),
            executor_meta: Some(ExecutorMetadata { host: host.to_owned(), port, ..ExecutorMetadata::default() }),
            ..PartitionLocation::default()
        }
    }

    #[test]
    fn only_an_allowed_address_makes_a_part() {
        let allowed = HashSet::from(["127.0.0.1:4000".parse().unwrap()]);
        let executors = Executors::new(ExecutorAllowList::Started(Arc::new(Mutex::new(allowed))));
        assert!(executors.accept(location("127.0.0.1", 4000, "AbC-1_z")).is_ok());
        for (host, port) in [
            ("127.0.0.1", 4001),
            ("127.0.0.2", 4000),
            ("169.254.169.254", 80),
            ("localhost", 4000),
            ("127.0.0.1", 69536),
        ] {
            assert!(executors.accept(location(host, port, "AbC-1_z")).is_err(), "{host}:{port}");
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
