//! One session: whose it is, when it ends, and whether somebody is using it.
//!
//! Must not end itself: only the store does, so that the end is announced once.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand;
use portcullis_auth::{Clock, Expiry, Principal};
use rustls_pki_types::CertificateDer;

use super::millis;

/// A session of one principal.
#[derive(Debug)]
pub struct Session {
    id: SessionId,
    principal: Principal,
    kind: SessionKind,
    binding: Binding,
    begins: Begins,
    opened: SystemTime,
    expires: Expiry,
    /// Milliseconds since the epoch.
    last_used: AtomicU64,
    calls: AtomicUsize,
    ended: AtomicBool,
}

/// How a session is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionKind {
    /// By a cookie beside the credential; it starts as a copy of the default session.
    Cookie,
    /// By the identity alone.
    Default,
    /// By the token of a handshake.
    Token,
}

/// What a session is when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// What this other session of the same identity is by then.
    As(SessionId),
    /// Nothing has been set.
    Empty,
}

/// What must be shown together with a session's token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// The client certificate with this SHA-256, on the same connection.
    Certificate([u8; 32]),
    /// Nothing.
    Free,
}

impl Binding {
    /// To the leaf of this chain; an empty chain binds to nothing.
    pub fn to(chain: &[CertificateDer<'_>]) -> Self {
        let Some(leaf) = chain.first() else { return Self::Free };
        let mut thumbprint = [0; 32];
        // A digest of another length cannot be; all zeros would match no certificate.
        if let Ok(digest) = <[u8; 32]>::try_from(digest(&SHA256, leaf).as_ref()) {
            thumbprint = digest;
        }
        Self::Certificate(thumbprint)
    }
}

impl fmt::Debug for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificate(_) => f.write_str("Certificate"),
            Self::Free => f.write_str("Free"),
        }
    }
}

/// Names a session inside the gate. Not a credential, but whole it is shown to nobody.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId([u8; SESSION_ID_LEN]);

impl Session {
    pub(super) fn new(
        id: SessionId,
        principal: Principal,
        kind: SessionKind,
        binding: Binding,
        opened: SystemTime,
        lifetime: Duration,
    ) -> Self {
        let expires = match kind {
            // Every call brings a credential that is judged anew.
            SessionKind::Cookie | SessionKind::Default => Expiry::Never,
            SessionKind::Token => {
                let end = opened.checked_add(lifetime).map_or(Expiry::Never, Expiry::At);
                end.earlier(principal.expires())
            }
        };
        Self {
            id,
            principal,
            kind,
            binding,
            begins: Begins::Empty,
            opened,
            expires,
            last_used: AtomicU64::new(millis(opened)),
            calls: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
        }
    }

    /// The same, beginning as another session.
    pub(super) fn beginning(self, begins: Begins) -> Self {
        Self { begins, ..self }
    }

    /// The session's name.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Who opened it. The credential of the present call may be a newer one of the same identity.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// How it is reached.
    pub fn kind(&self) -> SessionKind {
        self.kind
    }

    /// What must be shown together with its token.
    pub fn binding(&self) -> Binding {
        self.binding
    }

    /// What it is when it begins.
    pub fn begins(&self) -> Begins {
        self.begins
    }

    /// When it was opened.
    pub fn opened(&self) -> SystemTime {
        self.opened
    }

    /// When it ends even if it is used.
    pub fn expires(&self) -> Expiry {
        self.expires
    }

    /// Whether it is over. A call that is under way may still hold it; nothing new should be kept for it.
    pub fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub(super) fn alive(&self, now: SystemTime, idle: Duration) -> bool {
        if self.is_ended() || self.expires.passed(now) {
            return false;
        }
        // A clock that went back makes nothing idle.
        let rested = millis(now).saturating_sub(self.last_used());
        self.in_use() || u128::from(rested) < idle.as_millis()
    }

    /// Whether a call of this principal may use it: the same identity with the same roles and attributes.
    pub(super) fn fits(&self, principal: &Principal) -> bool {
        self.principal.key() == principal.key()
            && self.principal.roles() == principal.roles()
            && self.principal.attributes() == principal.attributes()
    }

    pub(super) fn touch(&self, now: SystemTime) {
        self.last_used.fetch_max(millis(now), Ordering::AcqRel);
    }

    pub(super) fn last_used(&self) -> u64 {
        self.last_used.load(Ordering::Acquire)
    }

    pub(super) fn in_use(&self) -> bool {
        self.calls.load(Ordering::Acquire) > 0
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }
}

impl SessionId {
    pub(super) fn random() -> Option<Self> {
        let mut bytes = [0; SESSION_ID_LEN];
        rand::fill(&mut bytes).ok()?;
        Some(Self(bytes))
    }

    pub(in crate::gate) fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// All of it, for a name that stays inside the gate and its cluster.
    pub fn as_bytes(&self) -> &[u8; SESSION_ID_LEN] {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Enough to follow one session through a log, too little to name it anywhere else.
        self.0.iter().take(4).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({self})")
    }
}

/// A call that uses a session. While one exists the session is not at rest; when the last goes, its rest begins.
#[derive(Debug)]
pub struct InUse {
    session: Arc<Session>,
    clock: Arc<dyn Clock>,
}

impl InUse {
    pub(super) fn begin(session: Arc<Session>, clock: Arc<dyn Clock>) -> Self {
        session.calls.fetch_add(1, Ordering::AcqRel);
        Self { session, clock }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        // ORDER: used first, free second, so that no sweep sees it free with an old time.
        self.session.touch(self.clock.now());
        self.session.calls.fetch_sub(1, Ordering::AcqRel);
    }
}

const SESSION_ID_LEN: usize = 16;
