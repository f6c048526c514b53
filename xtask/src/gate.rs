//! A started gate: the real binary as a demo or before another cluster, its output in a file, and a stop that has to be
//! clean.
//!
//! Must not know what is asked of it, and must not print its output: that holds the token.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::run::{Trouble, for_each_line, succeed};

/// A gate that answers queries.
pub(crate) struct Gate {
    /// `grpc+tls://127.0.0.1:PORT`, as it printed it.
    pub(crate) url: String,
    /// Where the token, the CA and the configuration were written.
    pub(crate) folder: PathBuf,
    /// Everything the process prints.
    pub(crate) output: PathBuf,
    process: u32,
    ended: Receiver<std::io::Result<ExitStatus>>,
}

impl Gate {
    /// Starts `binary` as a demo in a fresh folder and returns when it says that it can answer.
    pub(crate) fn demo(binary: &Path, run: &Path) -> Result<Self, Trouble> {
        if run.exists() {
            fs::remove_dir_all(run).map_err(|error| trouble("remove", run, &error))?;
        }
        let folder = run.join("demo");
        fs::create_dir_all(&folder).map_err(|error| trouble("make", &folder, &error))?;
        let mut command = Command::new(binary);
        command.args(["demo", "--listen", "127.0.0.1:0", "--dir"]).arg(&folder);
        Self::start(command, folder, run.join("gate-output.txt"))
    }

    /// Starts `binary` with what a demo has left in `run`, before another cluster.
    pub(crate) fn remote(binary: &Path, run: &Path, cluster: &Cluster) -> Result<Self, Trouble> {
        let folder = run.join("demo");
        let file = folder.join("portcullis.toml");
        let config = fs::read_to_string(&file).map_err(|error| trouble("read", &file, &error))?;
        let config = before_cluster(&config, &cluster.section())
            .ok_or_else(|| Trouble::new(format!("`{}` is not what a demo writes", file.display())))?;
        fs::write(&file, config).map_err(|error| trouble("write", &file, &error))?;
        let mut command = Command::new(binary);
        command.args(["serve", "--config"]).arg(&file);
        Self::start(command, folder, run.join("gate-output-remote.txt"))
    }

    fn start(mut command: Command, folder: PathBuf, output: PathBuf) -> Result<Self, Trouble> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(&output)
            .map_err(|error| trouble("write", &output, &error))?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| trouble("start", Path::new(command.get_program()), &error))?;
        let process = child.id();
        let ready = ready_line(&mut child, &log);
        let ended = when_ended(child);
        match ready.recv_timeout(START) {
            Ok(url) => Ok(Self { url, folder, output, process, ended }),
            Err(RecvTimeoutError::Disconnected) => {
                let status = ended.recv_timeout(STOP).map(|status| format!("{status:?}"));
                Err(Trouble::new(format!(
                    "the gate stopped before it could answer ({}); its output ends:\n{}",
                    status.unwrap_or_else(|_| "still running".to_owned()),
                    tail(&output)
                )))
            }
            Err(RecvTimeoutError::Timeout) => {
                let _ = signal(process, "KILL");
                let seconds = START.as_secs();
                Err(Trouble::new(format!(
                    "the gate was not ready after {seconds} s; its output ends:\n{}",
                    tail(&output)
                )))
            }
        }
    }

    /// The process id, for a client suite that looks at the gate from outside.
    pub(crate) fn process_id(&self) -> String {
        self.process.to_string()
    }

    /// Asks the gate to stop as an operator would, and demands that it does so in time and without a complaint.
    pub(crate) fn stop(self) -> Result<(), Trouble> {
        if let Ok(early) = self.ended.try_recv() {
            return Err(Trouble::new(format!("the gate had ended by itself ({early:?}):\n{}", tail(&self.output))));
        }
        signal(self.process, "TERM")?;
        match self.ended.recv_timeout(STOP) {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => {
                Err(Trouble::new(format!("the gate ended with {status} on SIGTERM:\n{}", tail(&self.output))))
            }
            Ok(Err(error)) => Err(Trouble::new(format!("cannot wait for the gate: {error}"))),
            Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => {
                let _ = signal(self.process, "KILL");
                let seconds = STOP.as_secs();
                Err(Trouble::new(format!("the gate still ran {seconds} s after SIGTERM:\n{}", tail(&self.output))))
            }
        }
    }
}

/// By the shell, which has `kill` built in: the standard library cannot send a signal, and a crate that can would give
/// the engine's build other features than `cargo run` does.
fn signal(process: u32, name: &str) -> Result<(), Trouble> {
    succeed(Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", name, &process.to_string()]))
}

/// Copies both outputs into the log for as long as the process lives, and sends the address once.
fn ready_line(child: &mut Child, log: &File) -> Receiver<String> {
    let (found, ready) = mpsc::channel();
    let streams: [Option<Box<dyn Read + Send>>; 2] =
        [child.stdout.take().map(|out| Box::new(out) as _), child.stderr.take().map(|err| Box::new(err) as _)];
    for stream in streams.into_iter().flatten() {
        let (mut found, mut log) = (Some(found.clone()), log.try_clone());
        thread::spawn(move || {
            for_each_line(stream, |line| {
                if let Ok(log) = &mut log {
                    // As one piece, since the other output goes there too.
                    let _ = log.write_all(format!("{line}\n").as_bytes());
                }
                if let Some(url) = address(line)
                    && let Some(found) = found.take()
                {
                    let _ = found.send(url);
                }
            });
        });
    }
    ready
}

/// The configuration of a demo with another `[cluster]`, and with the line that names the address in the log.
fn before_cluster(demo: &str, section: &str) -> Option<String> {
    let (before, rest) = demo.split_once("[cluster]\n")?;
    let (_, after) = rest.split_once("\n\n")?;
    let text = format!("{before}{section}\n{after}");
    text.contains("level = \"warn\"").then(|| text.replace("level = \"warn\"", "level = \"info\""))
}

/// Waits in a thread, because the standard library cannot wait with a deadline.
fn when_ended(mut child: Child) -> Receiver<std::io::Result<ExitStatus>> {
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || {
        let _ = sender.send(child.wait());
    });
    ended
}

/// `grpc+tls://127.0.0.1:PORT` out of whatever sentence the gate puts it in, or out of the log.
fn address(line: &str) -> Option<String> {
    let (_, rest) = line.split_once(SCHEME_AND_HOST).or_else(|| line.split_once("listening address=127.0.0.1:"))?;
    let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
    port.parse::<u16>().ok().filter(|port| *port != 0).map(|port| format!("{SCHEME_AND_HOST}{port}"))
}

/// The end of the gate's output, without the lines that could hold the token.
fn tail(output: &Path) -> String {
    let text = fs::read(output).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.contains("pk1.")).collect();
    lines.iter().skip(lines.len().saturating_sub(40)).map(|line| format!("    {line}\n")).collect()
}

fn trouble(what: &str, path: &Path, error: &std::io::Error) -> Trouble {
    Trouble::new(format!("cannot {what} `{}`: {error}", path.display()))
}

const SCHEME_AND_HOST: &str = "grpc+tls://127.0.0.1:";
/// The demo makes its tables and starts a cluster first; a debug build on a loaded machine takes its time.
const START: Duration = Duration::from_secs(120);
/// Longer than the default `server.drain`.
const STOP: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_in_a_sentence() {
        let expected = Some("grpc+tls://127.0.0.1:32010".to_owned());
        for line in [
            "grpc+tls://127.0.0.1:32010",
            "ready at grpc+tls://127.0.0.1:32010, stop with ctrl-c",
            "connect(\"grpc+tls://127.0.0.1:32010\", db_kwargs={})",
            "2026-01-01T00:00:00Z  INFO portcullis::cli::serve: listening address=127.0.0.1:32010",
        ] {
            assert_eq!(address(line), expected, "{line}");
        }
    }

    #[test]
    fn the_cluster_of_a_demo_is_replaced_and_the_rest_stays() {
        let demo =
            "[server]\nlisten = 1\n\n[cluster]\nmode = \"embedded\"\nwork_dir = \"work\"\n\n[log]\nlevel = \"warn\"\n";
        let expected = "[server]\nlisten = 1\n\n[cluster]\nmode = \"remote\"\n\n[log]\nlevel = \"info\"\n";
        assert_eq!(before_cluster(demo, "[cluster]\nmode = \"remote\"\n").as_deref(), Some(expected));
        assert_eq!(before_cluster("[log]\nlevel = \"warn\"\n", "[cluster]\n"), None);
    }

    #[test]
    fn other_lines_hold_no_address() {
        for line in ["", "listening", "grpc+tls://127.0.0.1:", "grpc+tls://127.0.0.1:0", "grpc+tls://127.0.0.1:99999"] {
            assert_eq!(address(line), None, "{line}");
        }
    }
}
