//! A Ballista cluster inside this process: one scheduler with the push policy and its executors.
//!
//! With the files below it the one place that names `ballista-scheduler` and `ballista-executor`. The scheduler is
//! called without a socket by the gate; executors still need loopback ports among themselves and towards the
//! scheduler, and those ports trust every process on this machine (findings F1-F3): `serve`, `demo` and `check` say so.

mod executor;
mod stopping;

use std::collections::HashSet;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::serde::protobuf::scheduler_grpc_server::SchedulerGrpcServer;
use ballista_core::utils::{default_config_producer, default_session_builder};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::create_scheduler;
use ballista_scheduler::scheduler_server::{JobIdGenerator, SchedulerServer, SessionBuilder};
use datafusion::error::DataFusionError;
use datafusion::execution::{FunctionRegistry as _, SessionState, SessionStateBuilder};
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use self::executor::RunningExecutor;
use super::executors::Route;
use super::{BallistaBackend, ExecutorAllowList, Following, ShuffleCompression, job_ids};
use crate::growth;
use crate::stores::Stores;

/// How large the embedded cluster is and where it works.
#[derive(Clone, Debug)]
pub struct EmbeddedConfig {
    /// Executors in this process.
    pub executors: NonZeroUsize,
    /// Tasks that one executor runs at a time.
    pub vcores: NonZeroUsize,
    /// Shuffle and result files are kept below, in a directory that each start makes and each end removes.
    pub work_dir: PathBuf,
    /// Memory in bytes that the tasks of one executor may use before they spill.
    pub executor_memory: NonZeroUsize,
    /// How long the scheduler keeps a finished job's data when nobody cleans it.
    pub result_ttl: Duration,
}

/// What the tasks of an embedded cluster may reach besides its work directory, and how much of that they may fill.
#[derive(Clone, Debug)]
pub struct Storage {
    /// The stores that tables are read from.
    pub stores: Arc<Stores>,
    /// Bytes that the tasks of one executor may have spilled at a time; what goes beyond fails. Shuffle and result
    /// files are not counted.
    pub spill: NonZeroUsize,
}

impl Default for Storage {
    /// Local files, and 50 GiB.
    fn default() -> Self {
        Self {
            stores: Arc::new(Stores::local_only()),
            spill: NonZeroUsize::new(crate::config::Embedded::SPILL).unwrap_or(NonZeroUsize::MAX),
        }
    }
}

/// A running embedded cluster. Dropping it stops everything; [`stop`](Self::stop) also waits and cleans.
pub struct Embedded {
    backend: BallistaBackend<EmbeddedScheduler>,
    executors: Arc<Mutex<Vec<RunningExecutor>>>,
    addresses: Arc<Mutex<HashSet<SocketAddr>>>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    work_dir: PathBuf,
}

/// The scheduler's service in this process.
pub type EmbeddedScheduler = SchedulerGrpcServer<SchedulerServer<LogicalPlanNode, PhysicalPlanNode>>;

/// A backend over a scheduler that the embedder has started in this process, and executors anywhere.
///
/// The scheduler is called without a socket. Results come from the executors in the list, and from no other.
pub fn over(
    scheduler: SchedulerServer<LogicalPlanNode, PhysicalPlanNode>,
    executors: ExecutorAllowList,
    result_ttl: Duration,
) -> BallistaBackend<EmbeddedScheduler> {
    let service = SchedulerGrpcServer::new(scheduler)
        .max_decoding_message_size(MAX_MESSAGE)
        .max_encoding_message_size(MAX_MESSAGE);
    // Its job ids are not ours to hand out, so that they are asked for.
    let following = Following::Poll;
    BallistaBackend::new(service, Route::Direct(executors), ShuffleCompression::Lz4, following, result_ttl)
}

/// Why the embedded cluster did not start.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// The work directory cannot be used.
    #[error("the work directory cannot be used: {0}")]
    WorkDir(std::io::Error),
    /// A loopback port cannot be had.
    #[error("no loopback port: {0}")]
    Port(std::io::Error),
    /// Ballista refused to start.
    #[error("ballista did not start: {0}")]
    Ballista(String),
}

impl Embedded {
    /// Starts scheduler and executors for tables in local files; returns when all executors are registered.
    pub async fn start(config: &EmbeddedConfig) -> Result<Self, EmbeddedError> {
        Self::start_with(config, &Storage::default()).await
    }

    /// Starts scheduler and executors; returns when all executors are registered.
    pub async fn start_with(config: &EmbeddedConfig, storage: &Storage) -> Result<Self, EmbeddedError> {
        let work_dir = own_directory(&config.work_dir).map_err(EmbeddedError::WorkDir)?;
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(EmbeddedError::Port)?;
        let scheduler_address = listener.local_addr().map_err(EmbeddedError::Port)?;
        let scheduler = start_scheduler(scheduler_address, config.result_ttl, session_builder(&storage.stores)).await?;
        let service = SchedulerGrpcServer::new(scheduler)
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        // The builder's own switch is for listeners that it binds; without this, each round trip waits 40 ms.
        let server = Server::builder().add_service(service.clone()).serve_with_incoming_shutdown(
            TcpIncoming::from(listener).with_nodelay(Some(true)),
            stop.clone().cancelled_owned(),
        );
        tasks.spawn(async move {
            if let Err(error) = server.await {
                tracing::error!(%error, "the embedded scheduler's port closed");
            }
        });

        let addresses = Arc::new(Mutex::new(HashSet::new()));
        let executors = Arc::new(Mutex::new(Vec::new()));
        for number in 0..config.executors.get() {
            let work_dir = work_dir.join(format!("executor-{number}"));
            let executor = executor::start((config, storage), scheduler_address, &work_dir).await?;
            addresses.lock().insert(executor.flight);
            executors.lock().push(executor);
        }
        let backend = BallistaBackend::new(
            service,
            Route::Direct(ExecutorAllowList::Started(Arc::clone(&addresses))),
            // Nothing but loopback lies between, so that results are forwarded as they are.
            ShuffleCompression::None,
            Following::Push,
            config.result_ttl,
        );
        tasks.spawn(replace_lost(
            (config.clone(), storage.clone()),
            scheduler_address,
            work_dir.clone(),
            Arc::clone(&executors),
            Arc::clone(&addresses),
            stop.clone(),
        ));
        Ok(Self { backend, executors, addresses, stop, tasks, work_dir })
    }

    /// The backend over this cluster.
    pub fn backend(&self) -> BallistaBackend<EmbeddedScheduler> {
        self.backend.clone()
    }

    /// Ends every executor at once, as a crash would: the fault that tests need. The cluster starts new ones by itself.
    pub fn danger_kill_executors(&self) {
        for executor in self.executors.lock().iter() {
            // Connections that were open outlive the port they came through; nobody may use them any more.
            self.addresses.lock().remove(&executor.flight);
            executor.kill();
        }
    }

    /// Where this cluster keeps shuffle and result files.
    pub fn work_dir(&self) -> &Path {
        &self.work_dir
    }

    /// Stops everything and removes the work directory.
    pub async fn stop(mut self) {
        self.stop.cancel();
        let running: Vec<_> = self.executors.lock().drain(..).collect();
        for executor in running {
            executor.stop().await;
        }
        if tokio::time::timeout(STOP, async { while self.tasks.join_next().await.is_some() {} }).await.is_err() {
            self.tasks.abort_all();
        }
        if let Err(error) = tokio::fs::remove_dir_all(&self.work_dir).await {
            tracing::warn!(%error, "the embedded cluster's work directory could not be removed");
        }
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").finish_non_exhaustive()
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.stop.cancel();
        for executor in self.executors.lock().iter() {
            executor.kill();
        }
        // Nothing is left when `stop` ran before.
        drop(std::fs::remove_dir_all(&self.work_dir));
    }
}

async fn start_scheduler(
    address: SocketAddr,
    result_ttl: Duration,
    session_builder: SessionBuilder,
) -> Result<SchedulerServer<LogicalPlanNode, PhysicalPlanNode>, EmbeddedError> {
    let config = SchedulerConfig::default()
        .with_hostname(address.ip().to_string())
        .with_port(address.port())
        // Pull-based executors poll: 100 ms and more for each stage.
        .with_scheduler_policy(TaskSchedulingPolicy::PushStaged)
        .with_finished_job_data_clean_up_interval_seconds(result_ttl.as_secs())
        .with_finished_job_state_clean_up_interval_seconds(result_ttl.as_secs())
        // An executor of this process that is gone is gone: a job that needs it fails instead of waiting three minutes.
        .with_no_executors_grace_period_seconds(NO_EXECUTOR_GRACE_SECONDS)
        .with_grpc_server_max_decoding_message_size(MAX_MESSAGE_U32)
        .with_grpc_server_max_encoding_message_size(MAX_MESSAGE_U32);
    let config = SchedulerConfig {
        bind_host: address.ip().to_string(),
        executor_timeout_seconds: EXECUTOR_TIMEOUT_SECONDS,
        expire_dead_executor_interval_seconds: 1,
        job_id_generator: Some(Arc::new(JobIds)),
        ..config
    };
    let cluster =
        BallistaCluster::new_memory(config.scheduler_endpoint(), session_builder, Arc::new(default_config_producer));
    create_scheduler(cluster, Arc::new(config)).await.map_err(|error| EmbeddedError::Ballista(error.to_string()))
}

/// Ballista's own sessions, which look for the files of tables in the configured stores.
fn session_builder(stores: &Arc<Stores>) -> SessionBuilder {
    let stores = Arc::clone(stores);
    Arc::new(move |config| {
        let state = with_growth_bounded(default_session_builder(config)?)?;
        let runtime = stores.within(state.runtime_env())?;
        Ok(SessionStateBuilder::new_from_existing(state).with_runtime_env(runtime).build())
    })
}

/// Scheduler and executors are in this process: its memory is theirs.
fn with_growth_bounded(mut state: SessionState) -> Result<SessionState, DataFusionError> {
    for function in growth::bounded() {
        state.register_udf(function)?;
    }
    Ok(state)
}

/// Names jobs and tells the submitting task.
struct JobIds;

#[async_trait]
impl JobIdGenerator for JobIds {
    async fn next_id(&self) -> String {
        // Without random numbers nothing else of the gate works either; the scheduler refuses a name twice.
        job_ids::hand_out().map_or_else(|_| String::from("p0"), |id| id.as_str().to_owned())
    }
}

/// Starts a new executor for each that ended; the scheduler drops the old one by its missing heartbeat or at the first
/// task that cannot be launched.
async fn replace_lost(
    (config, storage): (EmbeddedConfig, Storage),
    scheduler: SocketAddr,
    work_dir: PathBuf,
    executors: Arc<Mutex<Vec<RunningExecutor>>>,
    addresses: Arc<Mutex<HashSet<SocketAddr>>>,
    stop: CancellationToken,
) {
    let mut generation = 0_u64;
    let mut tick = tokio::time::interval(WATCH);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = tick.tick() => (),
        }
        let lost: Vec<_> = {
            let mut running = executors.lock();
            let (lost, alive) = running.drain(..).partition(RunningExecutor::is_lost);
            *running = alive;
            lost
        };
        for executor in lost {
            tracing::error!("an embedded executor ended; starting another");
            addresses.lock().remove(&executor.flight);
            executor.kill();
            generation = generation.saturating_add(1);
            let work_dir = work_dir.join(format!("replacement-{generation}"));
            match executor::start((&config, &storage), scheduler, &work_dir).await {
                Ok(executor) => {
                    addresses.lock().insert(executor.flight);
                    executors.lock().push(executor);
                }
                Err(error) => tracing::error!(%error, "an embedded executor could not be replaced"),
            }
        }
    }
}

/// A directory of this process's own, readable by its user only.
fn own_directory(parent: &Path) -> std::io::Result<PathBuf> {
    std::fs::create_dir_all(parent)?;
    let mut random = [0_u8; 8];
    aws_lc_rs::rand::fill(&mut random).map_err(|_| std::io::Error::other("no random numbers"))?;
    let directory = parent.join(format!("portcullis-{:016x}", u64::from_le_bytes(random)));
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(&directory)?;
    Ok(directory)
}

/// Ballista's default, for plans and results.
const MAX_MESSAGE: usize = 256 * 1024 * 1024;
const MAX_MESSAGE_U32: u32 = 256 * 1024 * 1024;
const STOP: Duration = Duration::from_secs(5);
const WATCH: Duration = Duration::from_millis(500);
const EXECUTOR_TIMEOUT_SECONDS: u64 = 10;
const NO_EXECUTOR_GRACE_SECONDS: u64 = 10;

#[cfg(test)]
mod tests;
