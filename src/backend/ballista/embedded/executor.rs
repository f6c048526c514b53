//! One executor of the embedded cluster: its tasks, its ports, its end.
//!
//! Does what Ballista's own executor process does, except for its signal handlers: SIGTERM is the gate's. Must not
//! listen anywhere but on loopback.

use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdTcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::error::BallistaError;
use ballista_core::registry::BallistaFunctionRegistry;
use ballista_core::serde::BallistaCodec;
use ballista_core::serde::protobuf::ExecutorRegistration;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_core::serde::scheduler::{ExecutorOperatingSystemSpecification, ExecutorSpecification};
use ballista_core::utils::{default_config_producer, default_session_builder};
use ballista_core::{BALLISTA_PROTOCOL_VERSION, RuntimeProducer};
use ballista_executor::executor::Executor;
use ballista_executor::executor_process::ExecutorProcessConfig;
use ballista_executor::executor_server;
use ballista_executor::flight_service::BallistaFlightService;
use ballista_executor::health::ExecutorHealth;
use ballista_executor::metrics::LoggingMetricsCollector;
use ballista_executor::shutdown::ShutdownNotifier;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};

use super::stopping::StoppingEngine;
use super::{EmbeddedConfig, EmbeddedError, MAX_MESSAGE, MAX_MESSAGE_U32, STOP, Storage};

/// One executor: its Flight port for results, its gRPC port for tasks.
pub(super) struct RunningExecutor {
    pub(super) flight: SocketAddr,
    notifier: ShutdownNotifier,
    grpc: JoinHandle<Result<(), BallistaError>>,
    flight_server: JoinHandle<()>,
    flight_stop: CancellationToken,
    /// Kept open: the executor's gRPC service sends its stop request here.
    _stop_requests: mpsc::Receiver<bool>,
}

impl RunningExecutor {
    pub(super) fn is_lost(&self) -> bool {
        self.grpc.is_finished() || self.flight_server.is_finished()
    }

    pub(super) fn kill(&self) {
        // The heartbeat ends with the notification, the ports with the aborts.
        drop(self.notifier.notify_shutdown.send(()));
        self.grpc.abort();
        self.flight_server.abort();
    }

    pub(super) async fn stop(self) {
        drop(self.notifier.notify_shutdown.send(()));
        self.flight_stop.cancel();
        let both = async {
            drop(self.grpc.await);
            drop(self.flight_server.await);
        };
        if tokio::time::timeout(STOP, both).await.is_err() {
            tracing::warn!("an executor did not stop in time");
        }
    }
}

/// Starts an executor and registers it.
pub(super) async fn start(
    config: (&EmbeddedConfig, &Storage),
    scheduler: SocketAddr,
    work_dir: &Path,
) -> Result<RunningExecutor, EmbeddedError> {
    // The gRPC port is bound inside Ballista, by number: a free one is found first and the start tried again when
    // another process was quicker.
    let mut last = EmbeddedError::Ballista("no port was free".to_owned());
    for _ in 0..PORT_TRIES {
        match try_start(config, scheduler, work_dir).await {
            Ok(executor) => return Ok(executor),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn try_start(
    (config, storage): (&EmbeddedConfig, &Storage),
    scheduler: SocketAddr,
    work_dir: &Path,
) -> Result<RunningExecutor, EmbeddedError> {
    tokio::fs::create_dir_all(work_dir).await.map_err(EmbeddedError::WorkDir)?;
    let work_dir =
        work_dir.to_str().ok_or_else(|| EmbeddedError::Ballista("the work directory is not UTF-8".to_owned()))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(EmbeddedError::Port)?;
    let flight = listener.local_addr().map_err(EmbeddedError::Port)?;
    let grpc_port = free_port().map_err(EmbeddedError::Port)?;

    let channel: Channel = Endpoint::from_shared(format!("http://{scheduler}"))
        .map_err(|error| EmbeddedError::Ballista(error.to_string()))?
        .tcp_nodelay(true)
        .connect_timeout(Duration::from_secs(5))
        .connect()
        .await
        .map_err(|error| EmbeddedError::Ballista(error.to_string()))?;
    let client =
        SchedulerGrpcClient::new(channel).max_encoding_message_size(MAX_MESSAGE).max_decoding_message_size(MAX_MESSAGE);

    let process = ExecutorProcessConfig {
        bind_host: Ipv4Addr::LOCALHOST.to_string(),
        port: flight.port(),
        grpc_port,
        vcores: config.vcores.get(),
        task_scheduling_policy: TaskSchedulingPolicy::PushStaged,
        executor_heartbeat_interval_seconds: HEARTBEAT_SECONDS,
        grpc_max_decoding_message_size: MAX_MESSAGE_U32,
        grpc_max_encoding_message_size: MAX_MESSAGE_U32,
        ..ExecutorProcessConfig::default()
    };
    let registration = ExecutorRegistration {
        id: process.executor_id.clone(),
        host: Some(Ipv4Addr::LOCALHOST.to_string()),
        port: u32::from(flight.port()),
        grpc_port: u32::from(grpc_port),
        specification: Some(
            ExecutorSpecification::default().with_vcores(u32::try_from(config.vcores.get()).unwrap_or(u32::MAX)).into(),
        ),
        os_info: Some(ExecutorOperatingSystemSpecification::default().into()),
        ballista_protocol_version: BALLISTA_PROTOCOL_VERSION,
    };
    let executor = Arc::new(Executor::new(
        registration,
        work_dir,
        runtime(config, storage, work_dir)?,
        Arc::new(default_config_producer),
        Arc::new(functions()?),
        Arc::new(LoggingMetricsCollector::default()),
        config.vcores.get(),
        Arc::new(StoppingEngine::default()),
    ));

    let flight_stop = CancellationToken::new();
    let server = Server::builder()
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .add_service(
            FlightServiceServer::new(BallistaFlightService::new(work_dir.to_owned()))
                .max_decoding_message_size(MAX_MESSAGE)
                .max_encoding_message_size(MAX_MESSAGE),
        )
        .serve_with_incoming_shutdown(
            TcpIncoming::from(listener).with_nodelay(Some(true)),
            flight_stop.clone().cancelled_owned(),
        );
    let flight_server = tokio::spawn(async move {
        if let Err(error) = server.await {
            tracing::error!(%error, "an embedded executor's port closed");
        }
    });

    let notifier = ShutdownNotifier::new();
    let (stop_sender, stop_requests) = mpsc::channel(10);
    let codec: BallistaCodec<LogicalPlanNode, PhysicalPlanNode> = BallistaCodec::default();
    let grpc = executor_server::startup(
        client,
        Arc::new(process),
        executor,
        codec,
        stop_sender,
        &notifier,
        ExecutorHealth::new(),
    )
    .await;
    match grpc {
        Ok(grpc) => {
            Ok(RunningExecutor { flight, notifier, grpc, flight_server, flight_stop, _stop_requests: stop_requests })
        }
        Err(error) => {
            flight_server.abort();
            Err(EmbeddedError::Ballista(error.to_string()))
        }
    }
}

/// One for all tasks of the executor, so that its bounds are theirs together.
fn runtime(config: &EmbeddedConfig, storage: &Storage, work_dir: &str) -> Result<RuntimeProducer, EmbeddedError> {
    let runtime = RuntimeEnvBuilder::new()
        .with_temp_file_path(work_dir)
        .with_max_temp_directory_size(u64::try_from(storage.spill.get()).unwrap_or(u64::MAX))
        .with_object_store_registry(Arc::clone(&storage.stores) as _)
        .with_memory_pool(Arc::new(FairSpillPool::new(config.executor_memory.get())))
        .build_arc()
        .map_err(|error| EmbeddedError::Ballista(error.to_string()))?;
    Ok(Arc::new(move |_| Ok(Arc::clone(&runtime))))
}

/// Every function that the gate plans with; Ballista's own default lacks those on nested types.
fn functions() -> Result<BallistaFunctionRegistry, EmbeddedError> {
    let state = default_session_builder(default_config_producer())
        .and_then(super::with_growth_bounded)
        .map_err(|error| EmbeddedError::Ballista(error.strip_backtrace()))?;
    Ok(BallistaFunctionRegistry::from(&state))
}

fn free_port() -> std::io::Result<u16> {
    Ok(StdTcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

const WINDOW: u32 = 16 * 1024 * 1024;
const PORT_TRIES: usize = 5;
const HEARTBEAT_SECONDS: u64 = 2;
