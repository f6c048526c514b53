//! What several gates tell each other about sessions and credentials that have ended.
//!
//! A text file that every gate appends to and reads again several times a second. One line is one fact:
//!
//! ```text
//! session 0f1e2d3c4b5a69788796a5b4c3d2e1f0 1798761600      the session, and when its token ends by itself
//! credential jwt 5a1d2e2f-7c3e-4d43-9f6a-0b7a6d1c2e3f      the scheme, and what it calls the credential
//! ```
//!
//! Gates write the first kind, operators may add the second. Lines that say nothing new any more are dropped now and
//! then. When the file cannot be read for a while nobody knows what has ended, and the list says so instead of
//! guessing. Must not hold a token or a name.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use portcullis_auth::{Clock, Expiry};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::session::SessionId;

/// A file of ended sessions and denied credentials.
pub struct RevocationList {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    known: Mutex<Known>,
    to_write: mpsc::Sender<Line>,
    /// Until [`RevocationList::keep_in_step`] takes it.
    writes: Mutex<Option<mpsc::Receiver<Line>>>,
}

/// The list could not be read lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the list of revocations cannot be read")]
pub struct ListUnreadable;

impl RevocationList {
    /// Reads the file, and makes it if it is not there.
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let (to_write, writes) = mpsc::channel(QUEUE);
        let list = Self {
            path: path.to_owned(),
            clock,
            known: Mutex::new(Known::new()),
            to_write,
            writes: Mutex::new(Some(writes)),
        };
        drop(writable(path)?);
        list.read_news()?;
        Ok(list)
    }

    /// Whether a session has ended somewhere.
    pub fn has_ended(&self, session: SessionId) -> Result<bool, ListUnreadable> {
        let known = self.known.lock();
        known.fresh()?;
        Ok(known.sessions.contains_key(session.as_bytes()))
    }

    /// Whether somebody has denied this credential.
    pub fn denies(&self, scheme: &str, credential: &str) -> Result<bool, ListUnreadable> {
        let known = self.known.lock();
        known.fresh()?;
        Ok(known.credentials.get(scheme).is_some_and(|ids| ids.contains(credential)))
    }

    /// Tells the others that a session is over; `ends` is when its token would have ended.
    pub fn ended(&self, session: SessionId, ends: Expiry) {
        let ends = match ends {
            Expiry::At(end) => seconds(end),
            Expiry::Never => u64::MAX,
        };
        self.known.lock().sessions.insert(*session.as_bytes(), ends);
        if self.to_write.try_send(Line { session, ends }).is_err() {
            tracing::error!(%session, "the end of a session could not be told to other gates: too many wait");
        }
    }

    /// Reads what others write and writes what this gate has to say, until `stop`.
    pub async fn keep_in_step(self: Arc<Self>, stop: CancellationToken) {
        let Some(mut writes) = self.writes.lock().take() else { return };
        let mut tick = tokio::time::interval(READ_EVERY);
        loop {
            let lines = tokio::select! {
                () = stop.cancelled() => drain(&mut writes),
                _ = tick.tick() => drain(&mut writes),
                Some(line) = writes.recv() => std::iter::once(line).chain(drain(&mut writes)).collect(),
            };
            let list = Arc::clone(&self);
            let done = tokio::task::spawn_blocking(move || {
                list.append(&lines)?;
                list.read_news()?;
                list.forget_what_is_over()
            });
            if let Ok(Err(problem)) = done.await {
                tracing::error!(%problem, "the list of revocations cannot be read or written");
            }
            if stop.is_cancelled() {
                return;
            }
        }
    }

    fn append(&self, lines: &[Line]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut file = self.locked()?;
        let text: String = lines.iter().map(Line::to_string).collect();
        file.write_all(text.as_bytes())?;
        file.sync_data()
    }

    /// The file with its lock, which is that of the path at the moment and not of one that was replaced meanwhile.
    fn locked(&self) -> io::Result<File> {
        loop {
            let file = writable(&self.path)?;
            file.lock()?;
            if identity(&file.metadata()?) == identity(&std::fs::metadata(&self.path)?) {
                return Ok(file);
            }
        }
    }

    fn read_news(&self) -> io::Result<()> {
        let mut file = File::open(&self.path)?;
        let found = file.metadata()?;
        let (which, from) = {
            let known = self.known.lock();
            (known.file, known.read_to)
        };
        // Another file, or a shorter one, is read from its start; what is known stays known.
        let from = if which == identity(&found) && found.len() >= from { from } else { 0 };
        file.seek(SeekFrom::Start(from))?;
        let mut text = Vec::new();
        file.take(MAX_FILE).read_to_end(&mut text)?;
        // A line without its end is still being written.
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at.saturating_add(1));
        let now = seconds(self.clock.now());
        let mut known = self.known.lock();
        for line in text.get(..whole).unwrap_or_default().split(|byte| *byte == b'\n') {
            known.learn(line, now);
        }
        known.file = identity(&found);
        known.read_to = from.saturating_add(u64::try_from(whole).unwrap_or(u64::MAX));
        known.read_at = Instant::now();
        known.sessions.retain(|_, ends| *ends > now);
        Ok(())
    }

    /// Writes the file anew when most of it is about sessions that ended by themselves long ago.
    fn forget_what_is_over(&self) -> io::Result<()> {
        let now = seconds(self.clock.now());
        if self.known.lock().over < MANY_OVER {
            return Ok(());
        }
        let old = self.locked()?;
        let mut text = String::new();
        File::open(&self.path)?.take(MAX_FILE).read_to_string(&mut text)?;
        let kept: String = text.split_inclusive('\n').filter(|line| !is_over(line.as_bytes(), now)).collect();
        let fresh = self.path.with_extension("tmp");
        let mut file = File::create(&fresh)?;
        file.write_all(kept.as_bytes())?;
        file.sync_data()?;
        std::fs::rename(&fresh, &self.path)?;
        drop(old);
        self.known.lock().over = 0;
        Ok(())
    }
}

impl fmt::Debug for RevocationList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RevocationList").field("path", &self.path).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Known {
    /// Until when each needs to be remembered, in seconds since 1970.
    sessions: HashMap<[u8; 16], u64>,
    credentials: HashMap<String, HashSet<String>>,
    file: Identity,
    read_to: u64,
    read_at: Instant,
    /// Lines that were read and said nothing any more.
    over: usize,
}

impl Known {
    fn new() -> Self {
        Self {
            sessions: HashMap::new(),
            credentials: HashMap::new(),
            file: Identity::default(),
            read_to: 0,
            read_at: Instant::now(),
            over: 0,
        }
    }

    fn fresh(&self) -> Result<(), ListUnreadable> {
        if self.read_at.elapsed() < STALE { Ok(()) } else { Err(ListUnreadable) }
    }

    fn learn(&mut self, line: &[u8], now: u64) {
        match parse(line) {
            Some(Fact::Session(_, ends)) if ends <= now => self.over = self.over.saturating_add(1),
            Some(Fact::Session(id, ends)) => drop(self.sessions.insert(id, ends)),
            Some(Fact::Credential { scheme, id }) => {
                self.credentials.entry(scheme.to_owned()).or_default().insert(id.to_owned());
            }
            None if line.is_empty() || line.starts_with(b"#") => (),
            None => tracing::warn!("a line of the list of revocations cannot be read and is left out"),
        }
    }
}

/// What a line says.
enum Fact<'a> {
    Session([u8; 16], u64),
    Credential { scheme: &'a str, id: &'a str },
}

fn parse(line: &[u8]) -> Option<Fact<'_>> {
    let (word, rest) = std::str::from_utf8(line).ok()?.trim_end().split_once(' ')?;
    let (first, second) = rest.split_once(' ')?;
    match word {
        "session" => {
            let mut id = [0; 16];
            let mut digits = first.chars().map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok()));
            for byte in &mut id {
                let (high, low) = (digits.next()??, digits.next()??);
                *byte = (high << 4) | low;
            }
            digits.next().is_none().then_some(Fact::Session(id, second.parse().ok()?))
        }
        "credential" => Some(Fact::Credential { scheme: first, id: second }),
        _ => None,
    }
}

fn is_over(line: &[u8], now: u64) -> bool {
    matches!(parse(line), Some(Fact::Session(_, ends)) if ends <= now)
}

#[derive(Clone, Copy, Debug)]
struct Line {
    session: SessionId,
    ends: u64,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("session ")?;
        self.session.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        writeln!(f, " {}", self.ends)
    }
}

fn drain(writes: &mut mpsc::Receiver<Line>) -> Vec<Line> {
    std::iter::from_fn(|| writes.try_recv().ok()).take(QUEUE).collect()
}

fn writable(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Identity(u64, u64);

#[cfg(unix)]
fn identity(found: &std::fs::Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt as _;
    Identity(found.dev(), found.ino())
}

/// Elsewhere a replaced file shows by its length only.
#[cfg(not(unix))]
fn identity(_: &std::fs::Metadata) -> Identity {
    Identity::default()
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// How soon a gate knows what another has written.
const READ_EVERY: Duration = Duration::from_millis(200);
/// A list that was not read for this long is no list.
const STALE: Duration = Duration::from_secs(10);
/// Ends that wait to be written.
const QUEUE: usize = 4096;
const MANY_OVER: usize = 10_000;
/// What is read at one time; the rest follows with the next read.
const MAX_FILE: u64 = 64 * 1024 * 1024;

#[cfg(test)]
mod tests;
