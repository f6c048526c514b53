//! Sessions: what a principal comes back to, and the token that leads there.
//!
//! A *token* session is opened by a handshake and found by its token; the *default* session of an identity serves calls
//! that carry only a credential. Both live here and nowhere else, bounded in number and in time. Must not know SQL or
//! the backend: it says when a session ended, and whoever keeps something for it cleans up.
//!
//! INVARIANT: a token never outlives the credential that opened its session, and opens nothing for anybody else.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;
use http::header::InvalidHeaderValue;
use parking_lot::Mutex;
use portcullis_auth::{Clock, IdentityKey, Principal, Secret, Token};
use tokio_util::sync::CancellationToken;

use crate::seal::{Purpose, Sealer};

mod one;
mod tokens;

pub use one::{InUse, Session, SessionId, SessionKind};
pub use tokens::SessionTokens;

/// Every open session of this gate.
pub struct Sessions {
    sealer: Arc<Sealer>,
    clock: Arc<dyn Clock>,
    policy: SessionPolicy,
    ended: Arc<dyn SessionEnded>,
    store: Mutex<Store>,
}

/// How long sessions live, and how many there may be.
#[derive(Clone, Copy, Debug)]
pub struct SessionPolicy {
    /// Without a call for this long, a session ends.
    pub idle: Duration,
    /// A token ends this long after its handshake, however busy its session is. Default sessions have no such end:
    /// every call that reaches them brings a credential that is judged anew.
    pub lifetime: Duration,
    /// Token sessions, and likewise default sessions, of one identity.
    pub max_per_principal: usize,
    /// Sessions of everybody together.
    pub max_total: usize,
}

/// Told when a session is over, so that what belongs to it can be released.
pub trait SessionEnded: fmt::Debug + Send + Sync + 'static {
    /// Called once per session, from any thread and outside every lock of the store; must not block.
    fn ended(&self, id: SessionId);
}

/// The secret that leads to a session.
#[derive(Debug)]
pub struct SessionToken(Secret);

impl SessionToken {
    /// The token as a client sends it after `Bearer`.
    pub fn expose(&self) -> &[u8] {
        self.0.expose()
    }

    /// `Bearer` and the token, marked as sensitive.
    pub fn bearer(&self) -> Result<HeaderValue, InvalidHeaderValue> {
        let mut value = HeaderValue::from_bytes(&[b"Bearer ", self.expose()].concat())?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// Why there is no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionRefused {
    /// A cap is reached, and nothing that could be ended is at rest.
    #[error("too many sessions are open")]
    TooMany,
    /// The operating system gave no randomness.
    #[error("no session can be opened now")]
    Unavailable,
}

impl Sessions {
    /// An empty store.
    pub fn new(
        sealer: Arc<Sealer>,
        clock: Arc<dyn Clock>,
        policy: SessionPolicy,
        ended: Arc<dyn SessionEnded>,
    ) -> Self {
        Self { sealer, clock, policy, ended, store: Mutex::new(Store::default()) }
    }

    /// Opens a session of its own for a handshake. At the cap of one identity, the one that has rested longest ends.
    pub fn open(&self, principal: &Principal) -> Result<(SessionToken, Arc<Session>), SessionRefused> {
        let session = self.fresh(principal, SessionKind::Token)?;
        let token = self.mint(session.id())?;
        let evicted = self.store.lock().insert(&session, self.policy)?;
        self.announce(evicted);
        Ok((token, session))
    }

    /// The session that an identity has, with exactly these roles and attributes, when it brings no token.
    pub fn default_for(&self, principal: &Principal) -> Result<Arc<Session>, SessionRefused> {
        let now = self.clock.now();
        let mut store = self.store.lock();
        let found = store.default_for(principal);
        let stale = match found {
            Some(session) if session.alive(now, self.policy.idle) => {
                session.touch(now);
                return Ok(session);
            }
            Some(session) => store.remove(session.id()),
            None => None,
        };
        // ORDER: found and inserted under one lock, so that two first calls agree on one session.
        let opened = self.fresh(principal, SessionKind::Default).and_then(|session| {
            let evicted = store.insert(&session, self.policy)?;
            Ok((session, evicted))
        });
        drop(store);
        self.announce(stale);
        let (session, evicted) = opened?;
        self.announce(evicted);
        Ok(session)
    }

    /// The living session of a token. Finding it counts as use.
    pub fn by_token(&self, token: &Token<'_>) -> Option<Arc<Session>> {
        let id = self.read(token)?;
        let now = self.clock.now();
        let mut store = self.store.lock();
        let session = store.by_id.get(&id).map(Arc::clone)?;
        match session.kind() {
            SessionKind::Token if session.alive(now, self.policy.idle) => {
                session.touch(now);
                Some(session)
            }
            SessionKind::Token => {
                let ended = store.remove(id);
                drop(store);
                self.announce(ended);
                None
            }
            // No token is ever minted for one.
            SessionKind::Default => None,
        }
    }

    /// Marks a session as used now.
    pub fn touch(&self, session: &Session) {
        session.touch(self.clock.now());
    }

    /// Keeps a session from being idle, or evicted, until the guard is dropped.
    pub fn begin(&self, session: &Arc<Session>) -> InUse {
        InUse::begin(Arc::clone(session), Arc::clone(&self.clock))
    }

    /// Ends a session; its token opens nothing from here on. Ending one that is gone does nothing.
    pub fn close(&self, id: SessionId) {
        let ended = self.store.lock().remove(id);
        self.announce(ended);
    }

    /// Ends everything whose time is over, and says how many that were.
    pub fn sweep(&self) -> usize {
        let now = self.clock.now();
        let mut store = self.store.lock();
        let over: Vec<SessionId> = store
            .by_id
            .values()
            .filter(|session| !session.alive(now, self.policy.idle))
            .map(|session| session.id())
            .collect();
        let ended: Vec<_> = over.into_iter().filter_map(|id| store.remove(id)).collect();
        drop(store);
        let count = ended.len();
        self.announce(ended);
        count
    }

    /// Sweeps every now and then until `shutdown`; to be spawned once beside the server.
    pub async fn keep_swept(&self, every: Duration, shutdown: CancellationToken) {
        while shutdown.run_until_cancelled(tokio::time::sleep(every)).await.is_some() {
            let ended = self.sweep();
            tracing::debug!(ended, "sessions swept");
        }
    }

    /// How many sessions are open.
    pub fn count(&self) -> usize {
        self.store.lock().by_id.len()
    }

    fn fresh(&self, principal: &Principal, kind: SessionKind) -> Result<Arc<Session>, SessionRefused> {
        let id = SessionId::random().ok_or(SessionRefused::Unavailable)?;
        let now = self.clock.now();
        Ok(Arc::new(Session::new(id, principal.clone(), kind, now, self.policy.lifetime)))
    }

    fn mint(&self, id: SessionId) -> Result<SessionToken, SessionRefused> {
        let content = [&[CONTENT_VERSION], id.as_bytes().as_slice()].concat();
        let sealed =
            self.sealer.seal(Purpose::Session, b"", &content).map_err(|_no_randomness| SessionRefused::Unavailable)?;
        let mut token = String::from(TOKEN_PREFIX);
        URL_SAFE_NO_PAD.encode_string(sealed, &mut token);
        Ok(SessionToken(Secret::new(token)))
    }

    fn read(&self, token: &Token<'_>) -> Option<SessionId> {
        let sealed = URL_SAFE_NO_PAD.decode(token.expose().strip_prefix(TOKEN_PREFIX)?).ok()?;
        let content = self.sealer.open(Purpose::Session, b"", &sealed).ok()?;
        let (&CONTENT_VERSION, id) = content.split_first()? else {
            return None;
        };
        SessionId::from_slice(id)
    }

    fn announce(&self, sessions: impl IntoIterator<Item = Arc<Session>>) {
        for session in sessions {
            tracing::debug!(session = %session.id(), "session ended");
            self.ended.ended(session.id());
        }
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("policy", &self.policy).field("count", &self.count()).finish_non_exhaustive()
    }
}

/// INVARIANT: both maps hold the same sessions, and no owner has an empty list.
#[derive(Default)]
struct Store {
    by_id: HashMap<SessionId, Arc<Session>>,
    /// Short lists: the caps bound them.
    by_owner: HashMap<IdentityKey, Vec<Arc<Session>>>,
}

impl Store {
    fn default_for(&self, principal: &Principal) -> Option<Arc<Session>> {
        let owned = self.by_owner.get(principal.key())?;
        owned.iter().find(|session| session.is_default_for(principal)).map(Arc::clone)
    }

    /// Makes room and inserts; gives back what had to go for it.
    fn insert(
        &mut self,
        session: &Arc<Session>,
        policy: SessionPolicy,
    ) -> Result<Option<Arc<Session>>, SessionRefused> {
        let owner = session.principal().key();
        let alike = || self.by_owner.get(owner).into_iter().flatten().filter(|other| other.kind() == session.kind());
        let leaving = if alike().count() < policy.max_per_principal {
            None
        } else {
            let rested = alike().filter(|other| !other.in_use()).min_by_key(|other| other.last_used());
            Some(rested.ok_or(SessionRefused::TooMany)?.id())
        };
        let evicted = leaving.and_then(|id| self.remove(id));
        if self.by_id.len() >= policy.max_total {
            return Err(SessionRefused::TooMany);
        }
        self.by_id.insert(session.id(), Arc::clone(session));
        self.by_owner.entry(owner.clone()).or_default().push(Arc::clone(session));
        Ok(evicted)
    }

    fn remove(&mut self, id: SessionId) -> Option<Arc<Session>> {
        let session = self.by_id.remove(&id)?;
        let owner = session.principal().key();
        if let Some(owned) = self.by_owner.get_mut(owner) {
            owned.retain(|other| other.id() != id);
            if owned.is_empty() {
                self.by_owner.remove(owner);
            }
        }
        session.end();
        Some(session)
    }
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// What tells a session token from every other bearer token.
pub const TOKEN_PREFIX: &str = "ps1.";
const CONTENT_VERSION: u8 = 1;

#[cfg(test)]
mod tests;
