//! The one thread that writes.
//!
//! What it has taken it keeps until it is written: a target that refuses is tried again, every second in the end, while
//! the queue fills and the gate learns from that. Must not block on anything but its queue and its target.

use std::io::{self, Write as _};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

use tokio::time::Instant;

use super::line;
use super::queue::{Message, Place, Shared};
use super::target::{Reopened, Target};

/// Takes lines from the queue and writes them.
pub(super) struct Writer {
    outbox: mpsc::Receiver<Message>,
    shared: Arc<Shared>,
    target: Target,
    /// Whole lines.
    batch: Vec<u8>,
    lines: u64,
    places: Vec<Place>,
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    GiveUp,
    GoOn,
}

impl Writer {
    pub(super) fn new(outbox: mpsc::Receiver<Message>, shared: Arc<Shared>, target: Target) -> Self {
        Self { outbox, shared, target, batch: Vec::new(), lines: 0, places: Vec::new() }
    }

    /// Until the gate's end of the queue is gone and all is written.
    pub(super) fn run(mut self) {
        while let Ok(message) = self.outbox.recv() {
            let mut next = self.take(message);
            while next == Next::GoOn && self.batch.len() < BATCH {
                match self.outbox.try_recv() {
                    Ok(message) => next = self.take(message),
                    Err(mpsc::TryRecvError::Disconnected | mpsc::TryRecvError::Empty) => break,
                }
            }
            if next == Next::GiveUp || self.write_batch() == Next::GiveUp {
                return;
            }
        }
    }

    fn take(&mut self, message: Message) -> Next {
        match message {
            Message::Flush(done) => {
                let next = self.write_batch();
                if next == Next::GoOn {
                    // Who asked may have stopped waiting.
                    let _gone = done.send(());
                }
                next
            }
            Message::Line { bytes, place } => {
                self.batch.extend_from_slice(&bytes);
                self.lines = self.lines.saturating_add(1);
                self.places.push(place);
                Next::GoOn
            }
            Message::Lost => {
                if let Some(Ok(line)) = self.shared.losses.take().as_ref().map(line::of_loss) {
                    self.batch.extend_from_slice(&line);
                }
                Next::GoOn
            }
            Message::Reopen => {
                let next = self.write_batch();
                // It is done already if the target refused meanwhile.
                let _between_lines = self.reopen_if_asked();
                next
            }
        }
    }

    /// Writes all of the batch, however often it has to be tried, and gives its places back.
    fn write_batch(&mut self) -> Next {
        let mut written = 0_usize;
        let mut trouble = Trouble::default();
        loop {
            let rest = self.batch.get(written..).unwrap_or_default();
            match write_some(&mut self.target, rest) {
                Ok(_flushed) if rest.is_empty() => break,
                Ok(bytes) => written = written.saturating_add(bytes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => {
                    trouble.met(&error);
                    if self.shared.closing.load(Ordering::Acquire) {
                        return Next::GiveUp;
                    }
                    // `Queue` wakes it when there is a new file to try, or nobody left to write for.
                    std::thread::park_timeout(trouble.pause());
                    match self.reopen_if_asked() {
                        Reopened::New => written = start_of_line(&self.batch, written),
                        Reopened::Same => (),
                    }
                }
            }
        }
        trouble.is_over();
        self.batch.clear();
        self.batch.shrink_to(BATCH);
        self.places.clear();
        self.shared.waiting.fetch_sub(std::mem::take(&mut self.lines), Ordering::AcqRel);
        Next::GoOn
    }

    fn reopen_if_asked(&mut self) -> Reopened {
        if !self.shared.reopen.swap(false, Ordering::AcqRel) {
            return Reopened::Same;
        }
        self.target.reopen().unwrap_or_else(|error| {
            tracing::error!(%error, "the audit log cannot be opened anew; the old file is written on");
            Reopened::Same
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Whoever waits for a place must not wait for one that never comes.
        self.shared.places.close();
        let lines = self.shared.waiting.load(Ordering::Acquire);
        if lines > 0 {
            tracing::error!(lines, "audit lines are lost: the audit log could not be written");
        }
    }
}

/// Writes the start of `rest` and says how long it was; of what is empty, all that the target still holds.
fn write_some(target: &mut Target, rest: &[u8]) -> io::Result<usize> {
    // An embedder's writer that panics is one that refuses: it must not take the record of everything with it.
    let tried = AssertUnwindSafe(|| if rest.is_empty() { target.flush().map(|()| 0) } else { target.write(rest) });
    match std::panic::catch_unwind(tried) {
        Ok(Ok(0)) if !rest.is_empty() => Err(io::ErrorKind::WriteZero.into()),
        Ok(result) => result,
        Err(_panic) => Err(io::Error::other("the writer panicked")),
    }
}

/// A target that refuses, said in the log once per second.
#[derive(Debug, Default)]
struct Trouble {
    said: Option<Instant>,
    pause: Duration,
}

impl Trouble {
    fn met(&mut self, error: &io::Error) {
        let now = Instant::now();
        if self.said.is_none_or(|said| now.saturating_duration_since(said) >= LONGEST_PAUSE) {
            self.said = Some(now);
            tracing::error!(%error, "the audit log cannot be written; its lines wait");
        }
    }

    /// How long to wait before the next try: longer each time.
    fn pause(&mut self) -> Duration {
        self.pause = self.pause.saturating_mul(2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.pause
    }

    fn is_over(&self) {
        if self.said.is_some() {
            tracing::warn!("the audit log is written again");
        }
    }
}

/// The start of the line in which `at` is: a line that was begun in one file is written whole into the next.
fn start_of_line(batch: &[u8], at: usize) -> usize {
    let before = batch.get(..at).unwrap_or_default();
    before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end.saturating_add(1))
}

/// Bytes that are written at once when many lines wait.
const BATCH: usize = 64 * 1024;
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_begun_starts_anew() {
        let batch = b"one\ntwo\nthree\n";
        for (at, start) in [(0, 0), (2, 0), (3, 0), (4, 4), (5, 4), (8, 8), (13, 8), (14, 14), (99, 0)] {
            assert_eq!(start_of_line(batch, at), start, "{at}");
        }
    }

    #[test]
    fn tries_become_rarer_and_never_rarer_than_one_per_second() {
        let mut trouble = Trouble::default();
        let pauses: Vec<u128> = (0..9).map(|_| trouble.pause().as_millis()).collect();
        assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1000, 1000, 1000]);
    }
}
