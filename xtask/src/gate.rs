//! A started gate: the real binary in demo mode, its output in a file, and a stop that has to be clean.
//!
//! Must not know what is asked of it, and must not print its output: that holds the token.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

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
    /// Starts `binary` in a fresh folder and returns when it says that it can answer.
    pub(crate) fn start(binary: &Path, run: &Path) -> Result<Self, Trouble> {
        if run.exists() {
            fs::remove_dir_all(run).map_err(|error| trouble("remove", run, &error))?;
        }
        let folder = run.join("demo");
        fs::create_dir_all(&folder).map_err(|error| trouble("make", &folder, &error))?;
        let output = run.join("gate-output.txt");
        let log = File::options()
            .create(true)
            .append(true)
            .open(&output)
            .map_err(|error| trouble("write", &output, &error))?;
        let stderr = log.try_clone().map_err(|error| trouble("write", &output, &error))?;

        let mut child = Command::new(binary)
            .args(["demo", "--listen", "127.0.0.1:0", "--dir"])
            .arg(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::from(stderr))
            .spawn()
            .map_err(|error| trouble("start", binary, &error))?;
        let process = child.id();
        let ready = ready_line(&mut child, log);
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

/// Copies standard output into the log for as long as the process lives, and sends the address once.
fn ready_line(child: &mut Child, mut log: File) -> Receiver<String> {
    let (found, ready) = mpsc::channel();
    let stdout = child.stdout.take();
    thread::spawn(move || {
        let Some(stdout) = stdout else { return };
        let mut found = Some(found);
        for_each_line(stdout, |line| {
            let _ = writeln!(log, "{line}");
            if let Some(url) = address(line)
                && let Some(found) = found.take()
            {
                let _ = found.send(url);
            }
        });
    });
    ready
}

/// Waits in a thread, because the standard library cannot wait with a deadline.
fn when_ended(mut child: Child) -> Receiver<std::io::Result<ExitStatus>> {
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || {
        let _ = sender.send(child.wait());
    });
    ended
}

/// `grpc+tls://127.0.0.1:PORT` out of whatever sentence the gate puts it in.
fn address(line: &str) -> Option<String> {
    let (_, rest) = line.split_once(SCHEME_AND_HOST)?;
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
        ] {
            assert_eq!(address(line), expected, "{line}");
        }
    }

    #[test]
    fn other_lines_hold_no_address() {
        for line in ["", "listening", "grpc+tls://127.0.0.1:", "grpc+tls://127.0.0.1:0", "grpc+tls://127.0.0.1:99999"] {
            assert_eq!(address(line), None, "{line}");
        }
    }
}
