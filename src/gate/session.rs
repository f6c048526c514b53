//! Sessions: what a principal comes back to, and the token that leads there.
//!
//! A *token* session is opened by a handshake and found by its token; the *default* session of an identity serves calls
//! that carry only a credential; a *cookie* session serves those of one client that keeps cookies. All live here and
//! nowhere else, bounded in number and in time. Must not know SQL or the backend: it says when a session ended, and
//! whoever keeps something for it cleans up.
//!
//! INVARIANT: a token never outlives the credential that opened its session, and opens nothing for anybody else. A
//! cookie chooses among the sessions of an identity that was established without it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{COOKIE, InvalidHeaderValue};
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use portcullis_auth::{Clock, Expiry, IdentityKey, Principal, Secret, Token};
use tokio_util::sync::CancellationToken;

use super::revocations::{ListUnreadable, RevocationList};
use crate::audit::SessionEnd;
use crate::seal::{Purpose, Sealer, owner_bytes};

mod one;
mod token;
mod tokens;

pub use one::{Begins, Binding, InUse, Session, SessionId, SessionKind};
use token::{Facts, Origin, Place};
pub use tokens::SessionTokens;

/// Every open session of this gate.
pub struct Sessions {
    sealer: Arc<Sealer>,
    clock: Arc<dyn Clock>,
    policy: SessionPolicy,
    sharing: Sharing,
    ended: Arc<dyn SessionEnded>,
    store: Mutex<Store>,
}

/// Who else knows the sealing keys, and how this gate learns what has ended there.
#[derive(Debug)]
pub enum Sharing {
    /// Nobody: the keys were made in this process. It knows every session there is.
    Alone,
    /// Others, who tell: a token is good everywhere for as long as its session may live.
    Listed(Arc<RevocationList>),
    /// Others, who do not tell: a token whose session is not known here is good for 15 minutes after its handshake.
    Unlisted,
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
    fn ended(&self, session: &Session, why: SessionEnd);
}

/// Where the session of a token is.
#[derive(Debug)]
pub enum ByToken {
    /// In this gate.
    Found(Arc<Session>),
    /// Nowhere, or it has ended.
    Nothing,
    /// Nobody can say whether it has ended elsewhere.
    Unknown(ListUnreadable),
    /// Another gate with the same keys made it, and here it is not yet.
    Elsewhere(Foreign),
}

/// A session that another gate made, as its token describes it.
#[derive(Debug)]
pub struct Foreign {
    id: SessionId,
    origin: Box<Origin>,
}

impl Foreign {
    /// The kind of scheme that admitted its principal.
    pub fn scheme(&self) -> &str {
        self.origin.scheme()
    }
}

/// What has become of a session that another gate made.
#[derive(Debug)]
pub enum Adopted {
    /// It is open here.
    Here(Arc<Session>),
    /// There is no place for it now; this is what it would be.
    Full(Arc<Session>),
    /// It is over, or is none that this gate could have.
    Over,
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
        sharing: Sharing,
        ended: Arc<dyn SessionEnded>,
    ) -> Self {
        Self { sealer, clock, policy, sharing, ended, store: Mutex::new(Store::default()) }
    }

    /// Opens a session of its own for a handshake. At the cap of one identity, the one that has rested longest ends.
    pub fn open(
        &self,
        principal: &Principal,
        binding: Binding,
    ) -> Result<(SessionToken, Arc<Session>), SessionRefused> {
        let id = SessionId::random().ok_or(SessionRefused::Unavailable)?;
        let session = Arc::new(self.fresh(id, principal, SessionKind::Token, binding));
        let token = self.mint(&session)?;
        let evicted = self.store.lock().insert(&session, self.policy)?;
        self.announce(evicted, SessionEnd::Evicted);
        Ok((token, session))
    }

    /// The session that an identity has, with exactly these roles and attributes, when it brings no token.
    pub fn default_for(&self, principal: &Principal) -> Result<Arc<Session>, SessionRefused> {
        self.find_or_open(
            |store| store.default_for(principal),
            |_| {
                let id = SessionId::random().ok_or(SessionRefused::Unavailable)?;
                Ok(self.fresh(id, principal, SessionKind::Default, Binding::Free))
            },
        )
    }

    /// The session that this principal's cookie chooses. A cookie that this gate, or one with its keys, did not make
    /// for this identity chooses nothing, and neither do two.
    pub fn by_cookie(
        &self,
        principal: &Principal,
        headers: &HeaderMap,
    ) -> Result<Option<Arc<Session>>, SessionRefused> {
        let Some(id) = cookie(headers).and_then(|value| self.read_cookie(principal, value)) else { return Ok(None) };
        self.find_or_open(
            |store| store.by_id.get(&id).filter(|found| found.kind() == SessionKind::Cookie).map(Arc::clone),
            // The id comes out of a box of ours, so that nobody chooses one for somebody else.
            |store| {
                let session = self.fresh(id, principal, SessionKind::Cookie, Binding::Free);
                // What the client set before it had the cookie was set there.
                let begins = store.default_for(principal).map_or(Begins::Empty, |first| Begins::As(first.id()));
                Ok(session.beginning(begins))
            },
        )
        // Roles or attributes that were others when the session began are other rights.
        .map(|session| session.fits(principal).then_some(session))
    }

    /// A cookie for a client that may keep it: `Set-Cookie`. Its session begins when it comes back.
    pub fn fresh_cookie(&self, principal: &Principal) -> Result<HeaderValue, SessionRefused> {
        let id = SessionId::random().ok_or(SessionRefused::Unavailable)?;
        let sealed = self
            .sealer
            .seal(Purpose::Cookie, &owner_bytes(principal.key()), id.as_bytes())
            .map_err(|_no_randomness| SessionRefused::Unavailable)?;
        let value = format!("{COOKIE_NAME}={}; Path=/; Secure; HttpOnly", URL_SAFE_NO_PAD.encode(sealed));
        let mut value = HeaderValue::try_from(value).map_err(|_invalid| SessionRefused::Unavailable)?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// The living session of a token. Finding it counts as use.
    pub fn by_token(&self, token: &Token<'_>) -> ByToken {
        let Some(Facts { id, place }) = self.read(token) else { return ByToken::Nothing };
        match self.has_ended_elsewhere(id) {
            Ok(false) => (),
            Ok(true) => {
                self.end(id, SessionEnd::Closed);
                return ByToken::Nothing;
            }
            Err(unreadable) => return ByToken::Unknown(unreadable),
        }
        let now = self.clock.now();
        let mut store = self.store.lock();
        let Some(session) = store.by_id.get(&id).map(Arc::clone) else {
            return self.elsewhere(&store, id, place, now);
        };
        match session.kind() {
            SessionKind::Token if session.alive(now, self.policy.idle) => {
                session.touch(now);
                ByToken::Found(session)
            }
            SessionKind::Token => {
                let ended = store.remove(id, now);
                drop(store);
                self.announce(ended, why_over(&session, now));
                ByToken::Nothing
            }
            // No token is ever minted for one.
            SessionKind::Cookie | SessionKind::Default => ByToken::Nothing,
        }
    }

    /// Takes over a session that another gate made. Whether it may be used is for the caller to judge.
    pub fn adopt(&self, foreign: Foreign, scheme: &'static str) -> Adopted {
        let now = self.clock.now();
        let Some(session) = self.again(foreign, scheme) else { return Adopted::Over };
        // By this gate's own lifetime, which may be shorter.
        if session.expires().passed(now) {
            return Adopted::Over;
        }
        session.touch(now);
        let session = Arc::new(session);
        let mut store = self.store.lock();
        // Two calls with one token may come at the same time.
        if let Some(first) = store.by_id.get(&session.id()) {
            return Adopted::Here(Arc::clone(first));
        }
        let Ok(evicted) = store.insert(&session, self.policy) else { return Adopted::Full(session) };
        drop(store);
        self.announce(evicted, SessionEnd::Evicted);
        Adopted::Here(session)
    }

    /// Whether somebody has denied the credential behind a principal, by the list that several gates share.
    pub fn denies(&self, principal: &Principal) -> Result<bool, ListUnreadable> {
        match &self.sharing {
            Sharing::Listed(list) => list.denies(principal.scheme(), principal.credential_id()),
            Sharing::Alone | Sharing::Unlisted => Ok(false),
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
    pub fn end(&self, id: SessionId, why: SessionEnd) {
        let ended = self.store.lock().remove(id, self.clock.now());
        self.announce(ended, why);
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
        let ended: Vec<_> = over.into_iter().filter_map(|id| store.remove(id, now)).collect();
        store.forget_ended(now);
        drop(store);
        let count = ended.len();
        for session in ended {
            let why = why_over(&session, now);
            self.announce([session], why);
        }
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

    /// ORDER: found and inserted under one lock, so that two first calls agree on one session.
    fn find_or_open(
        &self,
        find: impl FnOnce(&Store) -> Option<Arc<Session>>,
        open: impl FnOnce(&Store) -> Result<Session, SessionRefused>,
    ) -> Result<Arc<Session>, SessionRefused> {
        let now = self.clock.now();
        let mut store = self.store.lock();
        let stale = match find(&store) {
            Some(session) if session.alive(now, self.policy.idle) => {
                session.touch(now);
                return Ok(session);
            }
            Some(session) => store.remove(session.id(), now),
            None => None,
        };
        let opened = open(&store).and_then(|session| {
            let session = Arc::new(session);
            let evicted = store.insert(&session, self.policy)?;
            Ok((session, evicted))
        });
        drop(store);
        self.announce(stale, SessionEnd::Idle);
        let (session, evicted) = opened?;
        self.announce(evicted, SessionEnd::Evicted);
        Ok(session)
    }

    fn fresh(&self, id: SessionId, principal: &Principal, kind: SessionKind, binding: Binding) -> Session {
        Session::new(id, principal.clone(), kind, binding, self.clock.now(), self.policy.lifetime)
    }

    /// The session as it was, with an end of this gate's own.
    fn again(&self, foreign: Foreign, scheme: &'static str) -> Option<Session> {
        let Foreign { id, origin } = foreign;
        let (opened, ends, binding) = (origin.opened(), origin.ends(), origin.binding());
        let principal = origin.principal(scheme)?;
        let lifetime = match ends {
            Expiry::At(end) => end.duration_since(opened).ok()?.min(self.policy.lifetime),
            Expiry::Never => self.policy.lifetime,
        };
        Some(Session::new(id, principal, SessionKind::Token, binding, opened, lifetime))
    }

    fn mint(&self, session: &Session) -> Result<SessionToken, SessionRefused> {
        let sealed = self
            .sealer
            .seal(Purpose::Session, b"", &Facts::of(session))
            .map_err(|_no_randomness| SessionRefused::Unavailable)?;
        let mut token = String::from(TOKEN_PREFIX);
        URL_SAFE_NO_PAD.encode_string(sealed, &mut token);
        Ok(SessionToken(Secret::new(token)))
    }

    fn read(&self, token: &Token<'_>) -> Option<Facts> {
        let sealed = URL_SAFE_NO_PAD.decode(token.expose().strip_prefix(TOKEN_PREFIX)?).ok()?;
        Facts::read(&self.sealer.open(Purpose::Session, b"", &sealed).ok()?)
    }

    fn read_cookie(&self, principal: &Principal, value: &str) -> Option<SessionId> {
        let sealed = URL_SAFE_NO_PAD.decode(value).ok()?;
        SessionId::from_slice(&self.sealer.open(Purpose::Cookie, &owner_bytes(principal.key()), &sealed).ok()?)
    }

    fn has_ended_elsewhere(&self, id: SessionId) -> Result<bool, ListUnreadable> {
        match &self.sharing {
            Sharing::Listed(list) => list.has_ended(id),
            Sharing::Alone | Sharing::Unlisted => Ok(false),
        }
    }

    /// What to make of a token whose session is not here.
    fn elsewhere(&self, store: &Store, id: SessionId, place: Place, now: SystemTime) -> ByToken {
        let Place::Anywhere(origin) = place else { return ByToken::Nothing };
        let age = now.duration_since(origin.opened()).unwrap_or_default();
        let young = match self.sharing {
            Sharing::Alone => false,
            Sharing::Listed(_) => true,
            Sharing::Unlisted => age < UNLISTED_LIFE,
        };
        if !young || store.has_ended(id, origin.opened()) {
            return ByToken::Nothing;
        }
        ByToken::Elsewhere(Foreign { id, origin })
    }

    fn announce(&self, sessions: impl IntoIterator<Item = Arc<Session>>, why: SessionEnd) {
        for session in sessions {
            tracing::debug!(session = %session.id(), ?why, "session ended");
            match (&self.sharing, session.kind()) {
                (Sharing::Listed(list), SessionKind::Token) => list.ended(session.id(), session.expires()),
                (Sharing::Listed(_), SessionKind::Cookie | SessionKind::Default)
                | (Sharing::Alone | Sharing::Unlisted, _) => (),
            }
            self.ended.ended(&session, why);
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
    /// Token sessions that ended here, by when they were opened: their tokens must not open them again.
    ended: BTreeMap<(u64, SessionId), Expiry>,
    /// Of sessions opened before this many milliseconds since 1970, nobody knows any more which have ended.
    ended_since: u64,
}

impl Store {
    fn default_for(&self, principal: &Principal) -> Option<Arc<Session>> {
        let owned = self.by_owner.get(principal.key())?;
        let default = |session: &&Arc<Session>| session.kind() == SessionKind::Default && session.fits(principal);
        owned.iter().find(default).map(Arc::clone)
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
        let evicted = leaving.and_then(|id| self.remove(id, session.opened()));
        if self.by_id.len() >= policy.max_total {
            return Err(SessionRefused::TooMany);
        }
        self.by_id.insert(session.id(), Arc::clone(session));
        self.by_owner.entry(owner.clone()).or_default().push(Arc::clone(session));
        Ok(evicted)
    }

    fn remove(&mut self, id: SessionId, now: SystemTime) -> Option<Arc<Session>> {
        let session = self.by_id.remove(&id)?;
        let owner = session.principal().key();
        if let Some(owned) = self.by_owner.get_mut(owner) {
            owned.retain(|other| other.id() != id);
            if owned.is_empty() {
                self.by_owner.remove(owner);
            }
        }
        session.end();
        match session.kind() {
            SessionKind::Token if !session.expires().passed(now) => {
                self.ended.insert((millis(session.opened()), id), session.expires());
                if self.ended.len() > MAX_ENDED
                    && let Some(((opened, _), _)) = self.ended.pop_first()
                {
                    self.ended_since = self.ended_since.max(opened.saturating_add(1));
                }
            }
            SessionKind::Token | SessionKind::Cookie | SessionKind::Default => (),
        }
        Some(session)
    }

    /// Whether a session that was opened then has ended here, or may have.
    fn has_ended(&self, id: SessionId, opened: SystemTime) -> bool {
        let opened = millis(opened);
        opened < self.ended_since || self.ended.contains_key(&(opened, id))
    }

    fn forget_ended(&mut self, now: SystemTime) {
        self.ended.retain(|_, ends| !ends.passed(now));
    }
}

/// Why a session that does not live any more is over.
fn why_over(session: &Session, now: SystemTime) -> SessionEnd {
    if session.expires().passed(now) { SessionEnd::Expired } else { SessionEnd::Idle }
}

/// The value of the session cookie, where there is exactly one.
fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut ours = all.flat_map(|value| value.split(';')).filter_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        (name == COOKIE_NAME).then_some(value.trim_matches('"'))
    });
    match (ours.next(), ours.next()) {
        (Some(value), None) => Some(value),
        (None, _) | (Some(_), Some(_)) => None,
    }
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// What tells a session token from every other bearer token.
pub const TOKEN_PREFIX: &str = "ps1.";
const COOKIE_NAME: &str = "portcullis_session";
/// How long a token is good at a gate that does not know its session and is told nothing.
const UNLISTED_LIFE: Duration = Duration::from_secs(15 * 60);
/// Ended sessions that are remembered.
const MAX_ENDED: usize = 100_000;

#[cfg(test)]
mod tests;
