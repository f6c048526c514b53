//! The way to the writer: bounded, and with a memory of what found no room.
//!
//! INVARIANT: a line is in the channel only together with its place, which it gives back when it is written; the places
//! are the bound. What else is in the channel is bounded by itself: one mark for losses, one for a new file, and one
//! for each caller that waits in [`Queue::flush`]. Must not block.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::Thread;
use std::time::{Duration, SystemTime};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout};

use super::AuditBehind;
use super::loss::{Losses, Mark, Noted};
use super::target::Target;
use super::writer::Writer;

/// The gate's end of the queue.
#[derive(Clone, Debug)]
pub(super) struct Queue(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    inbox: mpsc::Sender<Message>,
    writer: Thread,
    shared: Arc<Shared>,
}

/// What the gate and the writer both look at.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) places: Arc<Semaphore>,
    pub(super) losses: Losses,
    /// Lines that were taken and are not written.
    pub(super) waiting: AtomicU64,
    /// Somebody asked for a new file.
    pub(super) reopen: AtomicBool,
    /// Nobody can record any more.
    pub(super) closing: AtomicBool,
}

/// What the writer is to do, in this order.
#[derive(Debug)]
pub(super) enum Message {
    /// Say when all before it is written.
    Flush(oneshot::Sender<()>),
    /// Write a line, and give its place back.
    Line { bytes: Vec<u8>, place: Place },
    /// Say that lines are missing here.
    Lost,
    /// Go on in a new file.
    Reopen,
}

/// Room for one line.
pub(super) type Place = OwnedSemaphorePermit;

impl Queue {
    /// A queue with its writer, which ends when all clones of the queue are gone.
    pub(super) fn start(target: Target) -> io::Result<Self> {
        let (inbox, outbox) = mpsc::channel();
        let shared = Arc::new(Shared {
            places: Arc::new(Semaphore::new(PLACES)),
            losses: Losses::default(),
            waiting: AtomicU64::new(0),
            reopen: AtomicBool::new(false),
            closing: AtomicBool::new(false),
        });
        let writer = Writer::new(outbox, Arc::clone(&shared), target);
        let thread = std::thread::Builder::new().name("audit".to_owned()).spawn(move || writer.run())?;
        Ok(Self(Arc::new(Handle { inbox, writer: thread.thread().clone(), shared })))
    }

    /// Room for `line`, if there is any now.
    pub(super) fn free_place(&self, line: &[u8]) -> Option<Place> {
        Arc::clone(&self.0.shared.places).try_acquire_many_owned(places_of(line)).ok()
    }

    /// Room for `line`, when there is; none if the writer is gone.
    pub(super) async fn place(&self, line: &[u8]) -> Option<Place> {
        Arc::clone(&self.0.shared.places).acquire_many_owned(places_of(line)).await.ok()
    }

    pub(super) fn reopen(&self) {
        if !self.0.shared.reopen.swap(true, Ordering::AcqRel) {
            // A writer that is gone has no file.
            let _gone = self.0.inbox.send(Message::Reopen);
        }
        // It may be waiting for a disk that is full, and the new file may be on another.
        self.0.writer.unpark();
    }

    pub(super) async fn flush(&self, within: Duration) -> Result<(), AuditBehind> {
        let (done, written) = oneshot::channel();
        // If the writer is gone, `done` is dropped and says so.
        let _gone = self.0.inbox.send(Message::Flush(done));
        if let Ok(Ok(())) = timeout(within, written).await {
            return Ok(());
        }
        let lines = self.0.shared.waiting.load(Ordering::Acquire);
        tracing::error!(lines, "audit lines are not written yet");
        Err(AuditBehind)
    }

    pub(super) fn lost(&self) -> u64 {
        self.0.shared.losses.total()
    }

    fn put(&self, bytes: Vec<u8>, place: Place) -> Result<(), AuditBehind> {
        self.0.shared.waiting.fetch_add(1, Ordering::AcqRel);
        self.0.inbox.send(Message::Line { bytes, place }).map_err(|_gone| {
            self.0.shared.waiting.fetch_sub(1, Ordering::AcqRel);
            AuditBehind
        })
    }

    fn lose(&self, time: SystemTime) {
        let Noted { mark, to_say: lines } = self.0.shared.losses.note(time, Instant::now());
        match mark {
            Mark::Again => (),
            // If the writer is gone, the log alone tells of the loss.
            Mark::First => drop(self.0.inbox.send(Message::Lost)),
        }
        if lines > 0 {
            tracing::error!(lines, "audit lines are lost: the audit log cannot be written fast enough, or not at all");
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        // It may be waiting to try again.
        self.writer.unpark();
    }
}

/// A line on its way to the queue. Dropped before it is there, it is counted as lost.
#[derive(Debug)]
pub(super) struct Unrecorded<'a> {
    queue: &'a Queue,
    time: SystemTime,
    fate: Fate,
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Lost,
    Recorded,
}

impl<'a> Unrecorded<'a> {
    pub(super) fn new(queue: &'a Queue, time: SystemTime) -> Self {
        Self { queue, time, fate: Fate::Lost }
    }

    /// Puts the line into the room that was found for it.
    pub(super) fn put(mut self, line: Vec<u8>, place: Place) -> Result<(), AuditBehind> {
        self.queue.put(line, place)?;
        self.fate = Fate::Recorded;
        Ok(())
    }
}

impl Drop for Unrecorded<'_> {
    fn drop(&mut self) {
        match self.fate {
            Fate::Lost => self.queue.lose(self.time),
            Fate::Recorded => (),
        }
    }
}

/// A line takes a place for each KiB that it has begun, so that places bound the memory as well as the number.
fn places_of(line: &[u8]) -> u32 {
    let places = (line.len() / BYTES_PER_PLACE).saturating_add(1).min(PLACES);
    u32::try_from(places).unwrap_or(u32::MAX)
}

/// Room for that many usual lines, or as many KiB of long ones.
pub(super) const PLACES: usize = 8192;
const BYTES_PER_PLACE: usize = 1024;
