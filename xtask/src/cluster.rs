//! A stock Ballista cluster on this machine: one scheduler and its executors, each a process of its own.
//!
//! The processes are the `ballista_node` example, which is Ballista's own start with a few settings; they end with the
//! standard input that is held here, also when this program is killed. Must not know the gate.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::Duration;

use crate::Places;
use crate::run::{Stopwatch, Trouble, say, succeed};
use crate::rust::cargo;

/// A running cluster. Dropping it ends every process.
pub(crate) struct Cluster {
    scheduler: Node,
    executors: Vec<Node>,
}

struct Node {
    port: u16,
    /// Every port on which the process listens.
    ports: Vec<u16>,
    process: Child,
}

impl Cluster {
    /// Starts the built `ballista_node` in `folder`; all ports answer when this returns.
    pub(crate) fn start(binaries: &Path, folder: &Path, executors: usize) -> Result<Self, Trouble> {
        let program = binaries.join("examples/ballista_node");
        fs::create_dir_all(folder)
            .map_err(|error| Trouble::new(format!("cannot make `{}`: {error}", folder.display())))?;
        let port = free_port()?;
        let scheduler = Node::start(&program, folder, "scheduler", vec![port], &[("--port", port.to_string())])?;
        let mut cluster = Self { scheduler, executors: Vec::new() };
        for number in 1..=executors {
            let work_dir = folder.join(format!("executor-{number}"));
            fs::create_dir_all(&work_dir)
                .map_err(|error| Trouble::new(format!("cannot make `{}`: {error}", work_dir.display())))?;
            let (port, grpc) = (free_port()?, free_port()?);
            let words = [
                ("--port", port.to_string()),
                ("--grpc-port", grpc.to_string()),
                ("--scheduler-port", cluster.scheduler.port.to_string()),
                ("--work-dir", work_dir.display().to_string()),
            ];
            cluster.executors.push(Node::start(
                &program,
                folder,
                &format!("executor-{number}"),
                vec![port, grpc],
                &words,
            )?);
        }
        Ok(cluster)
    }

    /// `[cluster]` of a gate in front of it.
    pub(crate) fn section(&self) -> String {
        let executors: Vec<_> = self.executors.iter().map(|node| format!("\"127.0.0.1:{}\"", node.port)).collect();
        format!(
            "[cluster]\nmode = \"remote\"\nscheduler = \"http://127.0.0.1:{}\"\nexecutors = [{}]\n",
            self.scheduler.port,
            executors.join(", ")
        )
    }

    /// Every port of every process, for a search through what clients were told.
    pub(crate) fn ports(&self) -> String {
        let ports = self.executors.iter().chain([&self.scheduler]).flat_map(|node| &node.ports);
        ports.map(ToString::to_string).collect::<Vec<_>>().join(",")
    }
}

/// `cargo xtask cluster`: builds, starts, says how to reach it, and waits for its end.
pub(crate) fn run(places: &Places, executors: usize) -> Result<(), Trouble> {
    succeed(cargo(places).args(["build", "--package", "portcullis", "--example", "ballista_node"]))?;
    let folder = places.target.join("cluster");
    let cluster = Cluster::start(&places.binaries, &folder, executors)?;
    say(&format!(
        "\nA Ballista cluster of {executors} executors; put this into the gate's configuration:\n\n{}\n\
         Logs and results are in {}. Ends with Ctrl-C.",
        cluster.section(),
        folder.display()
    ));
    loop {
        thread::park();
    }
}

impl Node {
    fn start(
        program: &Path,
        folder: &Path,
        name: &str,
        ports: Vec<u16>,
        words: &[(&str, String)],
    ) -> Result<Self, Trouble> {
        let log: PathBuf = folder.join(format!("{name}.log"));
        let cannot =
            |what: &str, error: &std::io::Error| Trouble::new(format!("cannot {what} `{}`: {error}", log.display()));
        let output = fs::File::create(&log).map_err(|error| cannot("write", &error))?;
        let errors = output.try_clone().map_err(|error| cannot("write", &error))?;
        let process = Command::new(program)
            .arg(name.split('-').next().unwrap_or(name))
            .args(words.iter().flat_map(|(key, value)| [*key, value.as_str()]))
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(|error| Trouble::new(format!("cannot start `{}`: {error}", program.display())))?;
        let port = ports.first().copied().unwrap_or_default();
        let mut node = Self { port, ports, process };
        let watch = Stopwatch::start();
        while TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).is_err() {
            if matches!(node.process.try_wait(), Ok(Some(_)) | Err(_)) || watch.took() > START {
                let text = fs::read_to_string(&log).unwrap_or_default();
                return Err(Trouble::new(format!("{name} of the cluster does not answer; its output:\n{text}")));
            }
            thread::park_timeout(PAUSE);
        }
        Ok(node)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A port that was free a moment ago: stock nodes take no other. None of those that the system gives to connections,
/// or one of these may have it by the time the node wants it.
///
/// Five digits, because what clients receive is searched for them, and a round number is somebody's data.
fn free_port() -> Result<u16, Trouble> {
    static NEXT: AtomicU16 = AtomicU16::new(FIRST_PORT);
    let tried = || NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |port| port.checked_add(1)).ok();
    std::iter::from_fn(tried)
        .take_while(|port| *port < LAST_PORT)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .ok_or_else(|| Trouble::new("no port is free".to_owned()))
}

const FIRST_PORT: u16 = 31_137;
const LAST_PORT: u16 = 32_700;

const START: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);
