//! The built program as a process: its two streams, its signals, its exit code.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// A running `portcullis`. Killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    out: Stream,
    err: Stream,
}

/// Which of the two.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Channel {
    Err,
    Out,
}

/// Runs the program to its end.
pub(crate) fn run(dir: &Path, arguments: &[&str]) -> Output {
    command(dir, arguments).stdin(Stdio::null()).output().unwrap()
}

/// Runs the program to its end with `input` on its standard input.
pub(crate) fn run_with(dir: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let mut command = command(dir, arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

impl Process {
    pub(crate) fn start(dir: &Path, arguments: &[&str]) -> Self {
        let mut child =
            command(dir, arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (out, err) = (Stream::of(child.stdout.take().unwrap()), Stream::of(child.stderr.take().unwrap()));
        Self { child, out, err }
    }

    /// The first line with `mark` in it.
    pub(crate) fn line_with(&self, channel: Channel, mark: &str) -> String {
        let stream = self.stream(channel);
        let (lines, news) = &*stream.lines;
        let found = |lines: &Vec<String>| lines.iter().find(|line| line.contains(mark)).cloned();
        let waiting = |lines: &mut Vec<String>| found(lines).is_none() && !closed(lines);
        let (lines, _waited) = news.wait_timeout_while(lines.lock().unwrap(), START, waiting).unwrap();
        let line = found(&lines);
        drop(lines);
        line.unwrap_or_else(|| {
            panic!("no line with `{mark}`: {}\n{}", self.text(Channel::Out), self.text(Channel::Err))
        })
    }

    /// Waits until this many lines with `mark` were written.
    pub(crate) fn lines_with(&self, channel: Channel, mark: &str, count: usize) {
        let (lines, news) = &*self.stream(channel).lines;
        let there = |lines: &[String]| lines.iter().filter(|line| line.contains(mark)).count() >= count;
        let waiting = |lines: &mut Vec<String>| !there(lines) && !closed(lines);
        let (lines, _waited) = news.wait_timeout_while(lines.lock().unwrap(), END, waiting).unwrap();
        assert!(there(&lines), "{count} lines with `{mark}`: {lines:#?}");
    }

    /// Everything written so far.
    pub(crate) fn text(&self, channel: Channel) -> String {
        self.stream(channel).lines.0.lock().unwrap().join("\n")
    }

    /// Sends a signal by its name without `SIG`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", self.child.id())]).status().unwrap();
        assert!(sent.success());
    }

    /// The exit code, once both streams are closed.
    pub(crate) fn exit_code(&mut self) -> i32 {
        for channel in [Channel::Out, Channel::Err] {
            let (lines, news) = &*self.stream(channel).lines;
            let (lines, waited) = news.wait_timeout_while(lines.lock().unwrap(), END, |lines| !closed(lines)).unwrap();
            assert!(!waited.timed_out(), "the process did not end: {lines:?}");
        }
        self.child.wait().unwrap().code().unwrap()
    }

    fn stream(&self, channel: Channel) -> &Stream {
        match channel {
            Channel::Err => &self.err,
            Channel::Out => &self.out,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The lines of a stream, and news of more.
struct Stream {
    lines: Arc<(Mutex<Vec<String>>, Condvar)>,
}

impl Stream {
    fn of(stream: impl Read + Send + 'static) -> Self {
        let lines = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let filled = Arc::clone(&lines);
        std::thread::spawn(move || {
            let mut add = |line| {
                filled.0.lock().unwrap().push(line);
                filled.1.notify_all();
            };
            BufReader::new(stream).lines().map_while(Result::ok).for_each(&mut add);
            add(CLOSED.to_owned());
        });
        Self { lines }
    }
}

fn closed(lines: &[String]) -> bool {
    lines.last().is_some_and(|line| line == CLOSED)
}

fn command(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
    command.current_dir(dir).args(arguments);
    command
}

/// Stands behind the last line.
const CLOSED: &str = "\u{4}";
/// A first start makes the tables, without optimisation and beside other tests.
const START: Duration = Duration::from_secs(120);
const END: Duration = Duration::from_secs(60);
