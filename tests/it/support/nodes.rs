//! A stock Ballista cluster in processes of its own, by the `ballista_node` example.
//!
//! The processes end with the standard input that is held here, also when a test is killed. Must not know the gate.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use super::{Seen, directory, until};

/// One scheduler and its executors.
pub(crate) struct Nodes {
    pub(crate) scheduler_port: u16,
    pub(crate) executors: Vec<Node>,
    scheduler: Option<Node>,
}

/// A process of the cluster. Killed when it is dropped, as a crash would.
pub(crate) struct Node {
    /// Results are fetched from here; the scheduler's own port for the scheduler.
    pub(crate) port: u16,
    /// Where an executor writes; empty for a scheduler.
    pub(crate) work_dir: PathBuf,
    process: Child,
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Nodes {
    /// Starts a cluster whose ports answer; executors register by themselves.
    pub(crate) async fn start(executors: usize) -> Self {
        let scheduler = scheduler(free_port());
        let scheduler_port = scheduler.port;
        listening(scheduler_port).await;
        let mut nodes = Self { scheduler_port, executors: Vec::new(), scheduler: Some(scheduler) };
        for _ in 0..executors {
            nodes.add_executor().await;
        }
        nodes
    }

    pub(crate) async fn add_executor(&mut self) {
        static EXECUTORS: AtomicUsize = AtomicUsize::new(0);
        let work_dir = directory().join(format!("node-{}", EXECUTORS.fetch_add(1, Ordering::Relaxed)));
        std::fs::create_dir_all(&work_dir).unwrap();
        let (port, grpc_port) = (free_port(), free_port());
        let words = [
            ("--port", port.to_string()),
            ("--grpc-port", grpc_port.to_string()),
            ("--scheduler-port", self.scheduler_port.to_string()),
            ("--work-dir", work_dir.display().to_string()),
        ];
        let node = start(port, work_dir, "executor", &words);
        listening(port).await;
        self.executors.push(node);
    }

    /// The scheduler dies and another one, which remembers nothing, takes its port.
    pub(crate) async fn restart_scheduler(&mut self) {
        self.stop_scheduler();
        self.scheduler = Some(scheduler(self.scheduler_port));
        listening(self.scheduler_port).await;
    }

    pub(crate) fn stop_scheduler(&mut self) {
        self.scheduler = None;
    }

    /// Every port of the cluster that a client could be told.
    pub(crate) fn ports(&self) -> Vec<u16> {
        self.executors.iter().map(|node| node.port).chain([self.scheduler_port]).collect()
    }
}

fn scheduler(port: u16) -> Node {
    start(port, PathBuf::new(), "scheduler", &[("--port", port.to_string()), ("--result-ttl", "60".to_owned())])
}

fn start(port: u16, work_dir: PathBuf, kind: &str, words: &[(&str, String)]) -> Node {
    let program = Path::new(env!("CARGO_BIN_EXE_portcullis")).with_file_name("examples").join("ballista_node");
    assert!(program.exists(), "build it first: cargo build --example ballista_node");
    let words = words.iter().flat_map(|(key, value)| [(*key).to_owned(), value.clone()]);
    let process = Command::new(program)
        .arg(kind)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    Node { port, work_dir, process }
}

async fn listening(port: u16) {
    until("a process of the cluster listens", Duration::from_secs(60), || async {
        Seen::when(tokio::net::TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await.is_ok())
    })
    .await;
}

/// A port that was free a moment ago: stock nodes take no other. None of those that the system gives to connections,
/// or one of these may have it by the time the node wants it.
pub(crate) fn free_port() -> u16 {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() % u32::from(PORTS)).unwrap();
    let tried = (0..PORTS).map(|_| first + TRIED.fetch_add(1, Ordering::Relaxed) % PORTS);
    let free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    tried.map(|port| FIRST_PORT + port % PORTS).find(free).unwrap()
}

const FIRST_PORT: u16 = 11_000;
const PORTS: u16 = 20_000;
