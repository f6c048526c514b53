//! A service that the client suites need: a process that says `ready ADDRESS` and ends with its input.
//!
//! Its input is held here, so that it also ends when this program dies. Must not know what it serves.

use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use crate::run::{Trouble, for_each_line, say};

/// A service that answers.
pub(crate) struct Running {
    name: &'static str,
    input: Option<ChildStdin>,
    ended: Receiver<std::io::Result<ExitStatus>>,
}

impl Running {
    /// Starts it and returns when it says that it answers, `within` at the most.
    pub(crate) fn start(name: &'static str, mut command: Command, within: Duration) -> Result<Self, Trouble> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Trouble::new(format!("cannot start {name}: {error}")))?;
        let input = child.stdin.take();
        let ready = ready_line(&mut child);
        let mut running = Self { name, input, ended: when_ended(child) };
        match ready.recv_timeout(within) {
            Ok(address) => {
                say(&format!("{name} answers at {address}"));
                Ok(running)
            }
            // It has said why on its error output.
            Err(_) => {
                running.end();
                Err(Trouble::new(format!("{name} did not start")))
            }
        }
    }

    pub(crate) fn stop(mut self) -> Result<(), Trouble> {
        let name = self.name;
        match self.end() {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(Trouble::new(format!("{name} ended with {status}"))),
            None => Err(Trouble::new(format!("{name} still ran after {} s", STOP.as_secs()))),
        }
    }

    fn end(&mut self) -> Option<ExitStatus> {
        drop(self.input.take());
        self.ended.recv_timeout(STOP).ok().and_then(Result::ok)
    }
}

/// The address, once it is known.
fn ready_line(child: &mut Child) -> Receiver<String> {
    let (found, ready) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        thread::spawn(move || {
            for_each_line(stdout, |line| {
                if let Some(address) = line.strip_prefix("ready ") {
                    let _ = found.send(address.to_owned());
                }
            });
        });
    }
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

const STOP: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_service_answers_and_ends_with_its_input() {
        let service = shell("echo starting; echo ready nowhere; cat");
        Running::start("the service", service, Duration::from_secs(30)).unwrap().stop().unwrap();
    }

    #[test]
    fn a_service_that_does_not_start_or_does_not_end_well_is_trouble() {
        let silent = Running::start("the service", shell("echo no"), Duration::from_secs(30)).err();
        assert_eq!(silent.unwrap().to_string(), "the service did not start");
        let running = Running::start("the service", shell("echo ready x; cat; exit 3"), Duration::from_secs(30));
        let ended = running.unwrap().stop().err();
        assert!(ended.unwrap().to_string().starts_with("the service ended with "));
    }
}
