//! One process of a stock Ballista cluster, for tests and for trying a gate out: a scheduler or an executor.
//!
//! Starts them by the same calls as Ballista's own programs, with nothing of the gate in them. What is set otherwise
//! than by default is what a cluster behind a gate wants: the push policy, and dead executors noticed within seconds.
//! Ends when its standard input closes, so that it never outlives whoever started it.

use std::error::Error;
use std::io::Read;
use std::sync::Arc;

use ballista_core::config::TaskSchedulingPolicy;
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::start_server;
use clap::Parser;

#[derive(Parser)]
enum Node {
    /// A scheduler on 127.0.0.1.
    Scheduler {
        /// Its gRPC port.
        #[arg(long)]
        port: u16,
        /// Seconds for which finished results are kept.
        #[arg(long, default_value_t = 300)]
        result_ttl: u64,
    },
    /// An executor on 127.0.0.1.
    Executor {
        /// The port results are fetched from.
        #[arg(long)]
        port: u16,
        /// The port tasks come through.
        #[arg(long)]
        grpc_port: u16,
        /// The scheduler's port.
        #[arg(long)]
        scheduler_port: u16,
        /// Where shuffle files and results are written.
        #[arg(long)]
        work_dir: String,
        /// Tasks at a time.
        #[arg(long, default_value_t = 2)]
        vcores: usize,
    },
}

fn main() -> Result<(), Box<dyn Error>> {
    let node = Node::parse();
    std::thread::spawn(|| {
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        std::process::exit(0);
    });
    tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::WARN).init();
    // Plans are decoded by recursion: as much stack as Ballista's own scheduler has.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().thread_stack_size(32 * 1024 * 1024).build()?;
    runtime.block_on(async {
        match node {
            Node::Scheduler { port, result_ttl } => {
                let config = SchedulerConfig {
                    bind_port: port,
                    external_host: "127.0.0.1".to_owned(),
                    scheduling_policy: TaskSchedulingPolicy::PushStaged,
                    finished_job_data_clean_up_interval_seconds: result_ttl,
                    executor_timeout_seconds: 10,
                    expire_dead_executor_interval_seconds: 1,
                    no_executors_grace_period_seconds: 10,
                    enable_embedded_flight_proxy: true,
                    ..SchedulerConfig::default()
                };
                let cluster = BallistaCluster::new_from_config(&config).await?;
                start_server(cluster, ([127, 0, 0, 1], port).into(), Arc::new(config)).await
            }
            Node::Executor { port, grpc_port, scheduler_port, work_dir, vcores } => {
                let config = ExecutorProcessConfig {
                    external_host: Some("127.0.0.1".to_owned()),
                    port,
                    grpc_port,
                    scheduler_host: "127.0.0.1".to_owned(),
                    scheduler_port,
                    scheduler_connect_timeout_seconds: 30,
                    vcores,
                    task_scheduling_policy: TaskSchedulingPolicy::PushStaged,
                    work_dir: Some(work_dir),
                    executor_heartbeat_interval_seconds: 2,
                    ..ExecutorProcessConfig::default()
                };
                start_executor_process(Arc::new(config)).await
            }
        }
    })?;
    Ok(())
}
