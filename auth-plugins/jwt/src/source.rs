//! The keys of an issuer at this moment: handed over by the operator, or fetched and kept fresh.
//!
//! However many calls need new keys, one fetch is in flight, and strangers cause at most one in a few seconds. It runs
//! as a task of its own, so that a client who hangs up cannot stop it. After a failure the last good keys count on, for
//! a day. Must not hold a lock while it waits.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use aws_lc_rs::rand;
use parking_lot::{Mutex, RwLock};
use portcullis_auth::Clock;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::algorithm::Algorithm;
use crate::fault::Fault;
use crate::fetch::{FetchError, Fetcher};
use crate::keys::{Found, Key, KeySet};
use crate::token::KeyId;

/// The keys of one issuer.
#[derive(Debug)]
pub(crate) enum Source {
    Fetched(Arc<Fetched>),
    Fixed(RwLock<Arc<KeySet>>),
}

impl Source {
    /// The key for a token of this header. Waits for a fetch if there is no other way to know, and not for long.
    pub(crate) async fn key(&self, kid: &KeyId, algorithm: Algorithm) -> Result<Arc<Key>, Fault> {
        match self {
            Self::Fetched(fetched) => fetched.key(kid, algorithm).await,
            Self::Fixed(keys) => choose(&keys.read(), kid, algorithm).unwrap_or_else(|Unknown| Err(unknown_key())),
        }
    }

    /// The keys that count now; none if they were never fetched, or too long ago.
    pub(crate) fn current(&self) -> Option<Arc<KeySet>> {
        match self {
            Self::Fetched(fetched) => fetched.current(),
            Self::Fixed(keys) => Some(Arc::clone(&keys.read())),
        }
    }
}

/// Keys that come over the network.
pub(crate) struct Fetched {
    issuer: String,
    fetcher: Fetcher,
    pace: Pace,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    waiting: Semaphore,
    fetches: AtomicU64,
}

#[derive(Default)]
struct State {
    keys: Option<(Arc<KeySet>, SystemTime)>,
    tried: Option<SystemTime>,
    failure: Option<FetchError>,
    flight: Option<watch::Receiver<()>>,
    /// Names that a fetch was made for in vain, and when: not worth another one for a while.
    unknown: HashMap<KeyId, SystemTime>,
}

/// How often and how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// From one fetch in the background to the next.
    pub(crate) refresh: Duration,
    /// The same after a failure.
    pub(crate) retry: Duration,
    /// Between two fetches that strangers cause.
    pub(crate) cooldown: Duration,
    /// For how long a name that is not there is not looked for again.
    pub(crate) unknown: Duration,
    /// How long one fetch may take.
    pub(crate) fetch: Duration,
    /// How long a call may wait for keys.
    pub(crate) wait: Duration,
    /// For how long keys count that cannot be fetched again.
    pub(crate) stale: Duration,
}

impl Pace {
    pub(crate) const DEFAULT: Self = Self {
        refresh: Duration::from_secs(10 * 60),
        retry: Duration::from_secs(30),
        cooldown: Duration::from_secs(5),
        unknown: Duration::from_secs(10),
        fetch: Duration::from_secs(5),
        wait: Duration::from_secs(6),
        stale: Duration::from_secs(24 * 60 * 60),
    };
}

impl Fetched {
    pub(crate) fn new(issuer: &str, fetcher: Fetcher, pace: Pace, clock: Arc<dyn Clock>) -> Self {
        Self {
            issuer: issuer.to_owned(),
            fetcher,
            pace,
            clock,
            state: Mutex::default(),
            waiting: Semaphore::new(MAX_WAITING),
            fetches: AtomicU64::new(0),
        }
    }

    /// How many fetches were begun.
    pub(crate) fn fetches(&self) -> u64 {
        self.fetches.load(Ordering::Relaxed)
    }

    /// Fetches now, unless that is already going on, and says how many keys there are.
    pub(crate) async fn refresh(self: &Arc<Self>) -> Result<usize, FetchError> {
        if let Start::Flight(flight) = self.start(Cause::Operator) {
            landed(flight).await;
        }
        let state = self.state.lock();
        match (&state.failure, &state.keys) {
            (Some(failure), _) => Err(failure.clone()),
            (None, Some((keys, _))) => Ok(keys.len()),
            (None, None) => Err(FetchError::Stopped),
        }
    }

    /// Fetches again and again until `stop`.
    pub(crate) async fn keep_fresh(self: Arc<Self>, stop: CancellationToken) {
        let mut pause = if self.state.lock().keys.is_some() { self.pace.refresh } else { Duration::ZERO };
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(with_jitter(pause)) => (),
            }
            pause = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                outcome = self.refresh() => if outcome.is_ok() { self.pace.refresh } else { self.pace.retry },
            };
        }
    }

    async fn key(self: &Arc<Self>, kid: &KeyId, algorithm: Algorithm) -> Result<Arc<Key>, Fault> {
        if let Some(keys) = self.current() {
            match choose(&keys, kid, algorithm) {
                Ok(decided) => return decided,
                Err(Unknown) if self.is_known_not_to_exist(kid) => return Err(unknown_key()),
                Err(Unknown) => (),
            }
        }
        let news = self.wait_for_keys().await?;
        let keys = self.current().ok_or(Fault::Unavailable(self.pace.cooldown))?;
        choose(&keys, kid, algorithm).unwrap_or_else(|Unknown| Err(self.give_up(kid, news)))
    }

    fn current(&self) -> Option<Arc<KeySet>> {
        let state = self.state.lock();
        let (keys, fetched) = state.keys.as_ref()?;
        self.within(*fetched, self.pace.stale).then(|| Arc::clone(keys))
    }

    /// Waits until there may be newer keys: for the fetch in flight, or for one begun here.
    async fn wait_for_keys(self: &Arc<Self>) -> Result<News, Fault> {
        let busy = Fault::Unavailable(self.pace.cooldown);
        let Start::Flight(flight) = self.start(Cause::Stranger) else { return Ok(News::None) };
        let Ok(_place) = self.waiting.try_acquire() else { return Err(busy) };
        tokio::time::timeout(self.pace.wait, landed(flight)).await.map(|()| News::Asked).map_err(|_| busy)
    }

    /// What a token is told whose key is not there.
    fn give_up(&self, kid: &KeyId, news: News) -> Fault {
        let mut state = self.state.lock();
        // While the issuer does not answer nobody knows whether it has such a key.
        if state.failure.is_some() {
            return Fault::Unavailable(self.pace.cooldown);
        }
        if news == News::None {
            return unknown_key();
        }
        if state.unknown.len() >= MAX_UNKNOWN {
            state.unknown.retain(|_, asked| self.within(*asked, self.pace.unknown));
        }
        if state.unknown.len() < MAX_UNKNOWN {
            state.unknown.insert(kid.clone(), self.clock.now());
        }
        unknown_key()
    }

    fn is_known_not_to_exist(&self, kid: &KeyId) -> bool {
        self.state.lock().unknown.get(kid).is_some_and(|asked| self.within(*asked, self.pace.unknown))
    }

    fn start(self: &Arc<Self>, cause: Cause) -> Start {
        let mut state = self.state.lock();
        // A flight whose sender is gone has ended, even if its task was dropped before it could say so.
        if let Some(flight) = state.flight.as_ref().filter(|flight| flight.has_changed().is_ok()) {
            return Start::Flight(flight.clone());
        }
        let cooling = state.tried.is_some_and(|tried| self.within(tried, self.pace.cooldown));
        if cause == Cause::Stranger && cooling {
            return Start::NotNow;
        }
        let Ok(runtime) = Handle::try_current() else { return Start::NotNow };

        let (done, flight) = watch::channel(());
        state.tried = Some(self.clock.now());
        state.flight = Some(flight.clone());
        self.fetches.fetch_add(1, Ordering::Relaxed);
        let fetched = Arc::clone(self);
        runtime.spawn(async move {
            let outcome = fetched.fetcher.fetch().await;
            fetched.settle(outcome);
            drop(done);
        });
        Start::Flight(flight)
    }

    fn settle(&self, outcome: Result<KeySet, FetchError>) {
        match outcome {
            Ok(keys) => {
                let keys = Arc::new(keys);
                let before = self.keep(Arc::clone(&keys));
                if !before.is_some_and(|before| before.same(&keys)) {
                    tracing::info!(issuer = self.issuer, keys = keys.len(), "the keys of an issuer are new");
                }
            }
            Err(error) => {
                tracing::warn!(issuer = self.issuer, %error, "the keys of an issuer could not be fetched");
                self.state.lock().failure = Some(error);
            }
        }
    }

    /// Puts these keys in place of those before.
    fn keep(&self, keys: Arc<KeySet>) -> Option<Arc<KeySet>> {
        let mut state = self.state.lock();
        state.failure = None;
        state.keys.replace((keys, self.clock.now())).map(|(before, _)| before)
    }

    /// Whether less than `span` has gone by. A clock that was put back makes everything long ago.
    fn within(&self, then: SystemTime, span: Duration) -> bool {
        self.clock.now().duration_since(then).is_ok_and(|gone| gone < span)
    }
}

impl fmt::Debug for Fetched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("Fetched")
            .field("keys", &state.keys)
            .field("tried", &state.tried)
            .field("failure", &state.failure)
            .field("unknown", &state.unknown.len())
            .finish_non_exhaustive()
    }
}

/// Who wants newer keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// The start, or the clock.
    Operator,
    /// A token that nobody has verified.
    Stranger,
}

/// Whether the issuer was asked on behalf of a token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum News {
    Asked,
    None,
}

enum Start {
    Flight(watch::Receiver<()>),
    NotNow,
}

/// The set has no key for that header.
struct Unknown;

fn choose(keys: &KeySet, kid: &KeyId, algorithm: Algorithm) -> Result<Result<Arc<Key>, Fault>, Unknown> {
    match keys.find(kid, algorithm) {
        Found::Ambiguous => Ok(Err(Fault::invalid("the token names no key, and several would fit"))),
        Found::Key(key) => Ok(Ok(key)),
        Found::Unfit => Ok(Err(Fault::invalid("the key of the token is not for its algorithm"))),
        Found::Unknown => Err(Unknown),
    }
}

fn unknown_key() -> Fault {
    Fault::invalid("the issuer has no such key")
}

/// The end of a flight is the end of its sender.
async fn landed(mut flight: watch::Receiver<()>) {
    while flight.changed().await.is_ok() {}
}

/// A tenth more or less, so that the gates of a fleet do not ask all at once.
fn with_jitter(pause: Duration) -> Duration {
    let mut byte = [0];
    if rand::fill(&mut byte).is_err() {
        return pause;
    }
    let [byte] = byte;
    pause.mul_f64(0.9 + 0.2 * f64::from(byte) / 255.0)
}

/// Calls that wait for keys at the same time.
const MAX_WAITING: usize = 256;
const MAX_UNKNOWN: usize = 1000;

#[cfg(test)]
mod tests;
