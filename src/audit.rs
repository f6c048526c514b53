//! The audit log: one JSON line per decision and per end of a statement, for whoever has to answer "who did what".
//!
//! [`Audit::record`] never blocks and never loses in silence: one thread writes, a bounded queue leads to it, and what
//! found no place there is counted, said in the process's log and on record itself as `audit.lost`. A line that was
//! taken is kept until it is written, however long the disk refuses; with [`Audit::record_or_wait`] a decision can be
//! refused that would go unaudited. Must not decide anything, and must not be given a credential: `docs/audit.md` says
//! what is in a line and what never is.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::timeout;

mod event;
mod hidden;
mod line;
mod loss;
mod queue;
mod target;
mod timestamp;
mod writer;

pub use event::{
    Admission, End, Event, Named, Origin, Outcome, Peer, Reload, SealedKind, SessionEnd, Statement, StatementKind,
    StatementText, What, Wording,
};

pub(crate) use hidden::HidingKey;
pub(crate) use line::MAX_SQL;
use queue::{Queue, Unrecorded};
use target::Target;

/// Where the gate's decisions are recorded. Cheap to clone; all clones write to one place.
#[derive(Clone, Debug)]
pub struct Audit {
    sink: Sink,
    wording: Wording,
    texts: HidingKey,
}

#[derive(Clone, Debug)]
enum Sink {
    Off,
    Queue(Queue),
}

impl Audit {
    /// Records nothing: for tests, for embedders who keep records of their own, and for a gate whose configuration
    /// asks for none.
    pub fn off() -> Self {
        Self::over(Sink::Off)
    }

    /// Appends to a file, which is made with mode 0600 if there is none.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened or is a pipe, or the writer's thread cannot be started.
    pub fn to_file(path: impl Into<PathBuf>) -> io::Result<Self> {
        Target::file(path.into()).and_then(Self::start)
    }

    /// Writes to the process's standard output.
    ///
    /// # Errors
    ///
    /// If the writer's thread cannot be started.
    pub fn to_stdout() -> io::Result<Self> {
        Self::to_writer(Box::new(io::stdout()))
    }

    /// Writes to whatever takes bytes. Several lines may come in one write; a write that fails is tried again.
    ///
    /// # Errors
    ///
    /// If the writer's thread cannot be started.
    pub fn to_writer(writer: Box<dyn Write + Send>) -> io::Result<Self> {
        Self::start(Target::Writer(writer))
    }

    /// With this on record of the texts of statements; without being asked, it is [`Wording::Hash`].
    #[must_use]
    pub fn with_wording(self, wording: Wording) -> Self {
        Self { wording, ..self }
    }

    /// What is to be on record of this text.
    pub fn wording_of<'a>(&self, statement: &'a str) -> StatementText<'a> {
        match (&self.sink, self.wording) {
            (Sink::Off, _) => StatementText::None,
            (Sink::Queue(_), Wording::Danger) => StatementText::Danger(statement),
            (Sink::Queue(_), Wording::Hash) => StatementText::Hash(self.texts.hide(statement)),
        }
    }

    /// Records `event` if there is room for it, and counts it as lost otherwise. Never waits for the writer.
    pub fn record(&self, event: Event<'_>) {
        let Sink::Queue(queue) = &self.sink else { return };
        let unrecorded = Unrecorded::new(queue, event.time);
        let Ok(line) = line::of_event(&event) else { return };
        if let Some(place) = queue.free_place(&line) {
            // A writer that is gone has counted the line.
            let _gone = unrecorded.put(line, place);
        }
    }

    /// Records `event` as soon as there is room for it, and waits for that at most `within`.
    ///
    /// # Errors
    ///
    /// If the line found no room in time: it is counted as lost, and what it was to record should not happen.
    pub async fn record_or_wait(&self, event: Event<'_>, within: Duration) -> Result<(), AuditBehind> {
        let Sink::Queue(queue) = &self.sink else { return Ok(()) };
        // Dropped half-way, by a client that left, the line is lost as well and has to be counted.
        let unrecorded = Unrecorded::new(queue, event.time);
        let line = line::of_event(&event).map_err(|_unwritable| AuditBehind)?;
        let place = match queue.free_place(&line) {
            Some(place) => place,
            None => timeout(within, queue.place(&line)).await.ok().flatten().ok_or(AuditBehind)?,
        };
        unrecorded.put(line, place)
    }

    /// Goes on in a new file of the same path, after the old one was renamed. What was recorded before goes to the old
    /// one. If there can be no new file the old one is kept, and the log says so. Without effect on what is no file.
    pub fn reopen(&self) {
        match &self.sink {
            Sink::Off => (),
            Sink::Queue(queue) => queue.reopen(),
        }
    }

    /// Waits until all that was recorded so far is written, at most `within`. To be called before the process ends.
    ///
    /// # Errors
    ///
    /// If it is not written by then; the process's log has the number of lines.
    pub async fn flush(&self, within: Duration) -> Result<(), AuditBehind> {
        match &self.sink {
            Sink::Off => Ok(()),
            Sink::Queue(queue) => queue.flush(within).await,
        }
    }

    /// How many lines were lost since the start.
    pub fn lost(&self) -> u64 {
        match &self.sink {
            Sink::Off => 0,
            Sink::Queue(queue) => queue.lost(),
        }
    }

    fn start(target: Target) -> io::Result<Self> {
        Queue::start(target).map(Sink::Queue).map(Self::over)
    }

    fn over(sink: Sink) -> Self {
        Self { sink, wording: Wording::Hash, texts: HidingKey::fresh() }
    }
}

/// The audit log cannot be written as fast as it is asked to, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the audit log is behind")]
pub struct AuditBehind;

#[cfg(test)]
mod tests;
