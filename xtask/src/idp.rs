//! The identity provider of the client suites: one process for all of them, started once and stopped at the end.
//!
//! The work is that of `tests/clients/idp.py`, in the Python environment of the suites. Must not know which provider it
//! is, and must not see its passwords.

use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use crate::Places;
use crate::run::{Trouble, for_each_line, say};

/// A provider that is built and can be started.
pub(crate) struct Provider {
    python: PathBuf,
    script: PathBuf,
    home: String,
    java: String,
    /// Where the suites find its address, its CA and its administrator.
    folder: PathBuf,
}

/// Fetches and builds what is not here yet; the first time takes a minute.
pub(crate) fn prepare(places: &Places, python: &Path) -> Result<Provider, Trouble> {
    let script = places.root.join("tests/clients/idp.py");
    let folder = places.target.join("clients-idp");
    say(&format!("\nidentity provider: {}", folder.display()));
    let output = script_command(python, &script)
        .arg("prepare")
        .arg(&folder)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Trouble::new(format!("cannot run `idp.py`: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match (output.status.success(), homes(&text)) {
        (true, Some((home, java))) => Ok(Provider {
            python: python.to_path_buf(),
            script,
            home: home.to_owned(),
            java: java.to_owned(),
            folder: places.target.join("clients-idp-run"),
        }),
        (true | false, _) => {
            Err(Trouble::new(format!("`idp.py` could not prepare the identity provider ({})", output.status)))
        }
    }
}

impl Provider {
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts it and returns when it says that it answers.
    pub(crate) fn start(&self) -> Result<Running, Trouble> {
        let mut child = script_command(&self.python, &self.script)
            .args(["serve", &self.home, &self.java])
            .arg(&self.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Trouble::new(format!("cannot run `idp.py`: {error}")))?;
        let input = child.stdin.take();
        let ready = ready_line(&mut child);
        let mut running = Running { input, ended: when_ended(child) };
        match ready.recv_timeout(START) {
            Ok(address) => {
                say(&format!("the identity provider answers at {address}"));
                Ok(running)
            }
            // It has said why on its error output.
            Err(_) => {
                running.end();
                Err(Trouble::new("the identity provider did not start".to_owned()))
            }
        }
    }
}

/// A provider that answers. It ends with its input, so also when this program dies.
pub(crate) struct Running {
    input: Option<ChildStdin>,
    ended: Receiver<std::io::Result<ExitStatus>>,
}

impl Running {
    pub(crate) fn stop(mut self) -> Result<(), Trouble> {
        match self.end() {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(Trouble::new(format!("the identity provider ended with {status}"))),
            None => Err(Trouble::new(format!("the identity provider still ran after {} s", STOP.as_secs()))),
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

fn script_command(python: &Path, script: &Path) -> Command {
    let mut command = Command::new(python);
    command.arg(script).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// The two last lines: the provider's home and Java's.
fn homes(text: &str) -> Option<(&str, &str)> {
    let mut lines = text.lines().rev();
    let (java, home) = (lines.next()?, lines.next()?);
    (home.starts_with('/') && java.starts_with('/')).then_some((home, java))
}

/// Longer than what `idp.py` allows itself.
const START: Duration = Duration::from_secs(240);
const STOP: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_homes_are_the_two_last_lines() {
        assert_eq!(homes("fetching\n/target/idp\n/usr/lib/jvm/x\n"), Some(("/target/idp", "/usr/lib/jvm/x")));
    }

    #[test]
    fn without_both_homes_there_are_none() {
        for text in ["", "/target/idp\n", "fetching\n/usr/lib/jvm/x\n", "/target/idp\nno Java\n"] {
            assert_eq!(homes(text), None, "{text}");
        }
    }
}
