//! Stand-ins for the gate's tests: a clock that is set by hand, schemes that do as told, a list of ended sessions.
#![expect(clippy::unwrap_used, clippy::panic, clippy::arithmetic_side_effects, reason = "a failed step fails the test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use portcullis_auth::{
    Assertion, Attempt, Authenticator, BoxFuture, Clock, Credential, Expiry, Principal, Rejection, Standing, Verdict,
};

use super::session::{Session, SessionEnded, SessionId, SessionPolicy, Sessions, Sharing};
use crate::audit::SessionEnd;
use crate::limits::{Limiter, PerPrincipal, Rate, Rates, Ticks};
use crate::seal::Sealer;

#[derive(Debug)]
pub(super) struct FakeClock(Mutex<SystemTime>);

impl FakeClock {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000))))
    }

    pub(super) fn advance(&self, by: Duration) {
        *self.0.lock() += by;
    }
}

impl Clock for FakeClock {
    fn now(&self) -> SystemTime {
        *self.0.lock()
    }
}

#[derive(Debug, Default)]
pub(super) struct Ended(pub(super) Mutex<Vec<SessionId>>);

impl SessionEnded for Ended {
    fn ended(&self, session: &Session, _why: SessionEnd) {
        self.0.lock().push(session.id());
    }
}

pub(super) const POLICY: SessionPolicy = SessionPolicy {
    idle: Duration::from_secs(30 * 60),
    lifetime: Duration::from_secs(12 * 60 * 60),
    max_per_principal: 3,
    max_total: 8,
};

pub(super) fn sessions(clock: &Arc<FakeClock>) -> (Arc<Sessions>, Arc<Ended>) {
    let ended = Arc::new(Ended::default());
    let sealer = Arc::new(Sealer::random().unwrap());
    (Arc::new(Sessions::new(sealer, clock.clone(), POLICY, Sharing::Alone, ended.clone())), ended)
}

/// Those of one gate among several with the same keys.
pub(super) fn replica(clock: &Arc<FakeClock>, sealer: &Arc<Sealer>) -> Arc<Sessions> {
    let ended = Arc::new(Ended::default());
    Arc::new(Sessions::new(sealer.clone(), clock.clone(), POLICY, Sharing::Unlisted, ended))
}

pub(super) fn principal(subject: &str, role: &str, expires: Expiry) -> Principal {
    Principal::assertion(Assertion {
        name: subject.to_owned(),
        scheme: "badge",
        authority: "door".to_owned(),
        subject: subject.to_owned(),
        roles: [role.to_owned()].into(),
        attributes: [].into(),
        expires,
        credential_id: format!("badge of {subject}"),
    })
    .unwrap()
}

/// How a [`Badge`] answers a credential of its own.
#[derive(Clone, Copy, Debug)]
pub(super) enum Manner {
    AdmitsAnything,
    AdmitsGood,
    AdmitsLate,
    Hangs,
    Panics,
    Unavailable,
}

/// Claims bearer tokens `<name>.…`; `<name>.<subject>` is good, and `<name>.bad` is not.
#[derive(Debug)]
pub(super) struct Badge {
    name: &'static str,
    manner: Manner,
    pub(super) asked: AtomicUsize,
    pub(super) revoked: AtomicBool,
}

impl Badge {
    pub(super) fn new(name: &'static str, manner: Manner) -> Arc<Self> {
        Arc::new(Self { name, manner, asked: AtomicUsize::new(0), revoked: AtomicBool::new(false) })
    }

    pub(super) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Authenticator for Badge {
    fn scheme(&self) -> &'static str {
        "badge"
    }

    fn name(&self) -> &str {
        self.name
    }

    fn authenticate<'a>(&'a self, attempt: &'a Attempt<'a>) -> BoxFuture<'a, Verdict> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let subject = match (attempt.credential(), self.manner) {
            (_, Manner::AdmitsAnything) => "anybody".to_owned(),
            (Credential::Bearer(token), _) => match token.expose().strip_prefix(self.name) {
                Some(rest) if rest.starts_with('.') => rest.trim_start_matches('.').to_owned(),
                _ => return Box::pin(async { Verdict::Abstain }),
            },
            _ => return Box::pin(async { Verdict::Abstain }),
        };
        match self.manner {
            Manner::Panics => panic!("asked the wrong way"),
            Manner::Hangs => Box::pin(std::future::pending()),
            Manner::Unavailable => {
                Box::pin(async { Verdict::Reject(Rejection::unavailable("the lamp is out", Duration::from_secs(7))) })
            }
            Manner::AdmitsLate => {
                let over = Expiry::At(attempt.now);
                Box::pin(async move { Verdict::Admit(principal(&subject, "guest", over)) })
            }
            Manner::AdmitsAnything | Manner::AdmitsGood => Box::pin(async move {
                if subject == "bad" {
                    return Verdict::Reject(Rejection::invalid("no such badge"));
                }
                Verdict::Admit(principal(&subject, "guest", Expiry::Never))
            }),
        }
    }

    fn standing(&self, _principal: &Principal, _now: SystemTime) -> Standing {
        if self.revoked.load(Ordering::SeqCst) { Standing::Revoked } else { Standing::Good }
    }
}

/// A scheme of an embedder's own, with a header that the gate does not know: `x-badge: good` is good.
#[derive(Debug)]
pub(super) struct HeaderBadge;

impl Authenticator for HeaderBadge {
    fn scheme(&self) -> &'static str {
        "header-badge"
    }

    fn name(&self) -> &str {
        "header-badge"
    }

    fn authenticate<'a>(&'a self, attempt: &'a Attempt<'a>) -> BoxFuture<'a, Verdict> {
        let verdict = match attempt.headers.get("x-badge").map(|value| value.as_bytes()) {
            None => Verdict::Abstain,
            Some(b"good") => Verdict::Admit(principal("alice", "guest", Expiry::Never)),
            Some(b"away") => Verdict::Reject(Rejection::unavailable("the lamp is out", Duration::from_secs(7))),
            Some(_) => Verdict::Reject(Rejection::invalid("no such badge")),
        };
        Box::pin(async { verdict })
    }

    fn standing(&self, _principal: &Principal, _now: SystemTime) -> Standing {
        Standing::Good
    }
}

/// Limits that no test reaches by accident.
pub(super) fn limits() -> (Arc<Limiter>, Arc<PerPrincipal>) {
    limits_with(Rate::per_second(1_000_000))
}

/// The same but for failures of a source.
pub(super) fn limits_with(failed_auth_per_ip: Rate) -> (Arc<Limiter>, Arc<PerPrincipal>) {
    let much = Rate::per_second(1_000_000);
    let rates = Rates { preauth_per_ip: much, failed_auth_per_ip, failed_auth_per_name: much };
    let ticks = Ticks::start();
    (Arc::new(Limiter::new(rates, ticks.clone())), Arc::new(PerPrincipal::new(much, [].into(), &ticks)))
}
