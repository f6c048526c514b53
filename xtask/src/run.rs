//! Starting other programs: one line that says what is run, a stopwatch, and what went wrong in words.
//!
//! Must not know what the programs are for.

use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Something a person has to look at.
#[derive(Debug)]
pub(crate) struct Trouble(String);

impl Trouble {
    pub(crate) fn new(sentence: String) -> Self {
        Self(sentence)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One line for the person who watches. A closed pipe is no reason to stop a test run.
pub(crate) fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// Runs a program to its end with our own output; anything but success is trouble.
pub(crate) fn succeed(command: &mut Command) -> Result<(), Trouble> {
    announce(command);
    let status = command.stdin(Stdio::null()).status().map_err(|error| cannot_start(command, &error))?;
    if status.success() { Ok(()) } else { Err(Trouble::new(format!("`{}` ended with {status}", shown(command)))) }
}

/// Runs a program to its end, shows its standard output and gives each line of it to `line`.
pub(crate) fn succeed_reading(command: &mut Command, mut line: impl FnMut(&str)) -> Result<(), Trouble> {
    announce(command);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(|error| cannot_start(command, &error))?;
    if let Some(stdout) = child.stdout.take() {
        for_each_line(stdout, |text| {
            say(text);
            line(text);
        });
    }
    let status = child.wait().map_err(|error| cannot_start(command, &error))?;
    if status.success() { Ok(()) } else { Err(Trouble::new(format!("`{}` ended with {status}", shown(command)))) }
}

/// Whether a program can be started and says it is well; used to name a missing tool before anything runs.
pub(crate) fn answers(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Reads to the end, whatever the bytes are: a test may print anything.
pub(crate) fn for_each_line(from: impl io::Read, mut line: impl FnMut(&str)) {
    let mut from = BufReader::new(from);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        match from.read_until(b'\n', &mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(_) => line(String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r'])),
        }
    }
}

/// How long something took.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "a test run is timed for a person; nothing decides on it")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn took(&self) -> Duration {
        self.0.elapsed()
    }
}

fn announce(command: &Command) {
    say(&format!("\n$ {}", shown(command)));
}

fn cannot_start(command: &Command, error: &io::Error) -> Trouble {
    Trouble::new(format!("cannot run `{}`: {error}", shown(command)))
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
