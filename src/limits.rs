//! How often: strangers per source, failures per source and per name, requests per identity.
//!
//! Every answer is `Ok`, or [`Exceeded`] with a wait after which the same request passes. All state is bounded: beyond
//! [`MOST_KEYS`] keys, those not yet known share one bucket, and what has come to rest is forgotten by `sweep`. Time is
//! monotonic. Must not know HTTP, gRPC or credentials: a name is kept as a keyed hash, and nothing else of an attempt.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

mod failures;
mod keyed;
mod known;
mod principal;
mod rate;
mod source;
mod ticks;

pub use principal::PerPrincipal;
pub use rate::{InvalidRate, Rate};
pub use source::Source;
pub use ticks::Ticks;

use failures::Failures;
use keyed::Keyed;
use known::Known;

/// A limit is reached. The name of the limit is its key in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit `{limit}` is reached")]
pub struct Exceeded {
    /// Which limit.
    pub limit: &'static str,
    /// After this time, never zero, the same request passes if no other took its place.
    pub retry_after: Duration,
}

impl Exceeded {
    fn new(limit: &'static str, wait: Duration) -> Self {
        Self { limit, retry_after: wait.max(SHORTEST_WAIT) }
    }

    fn longer(self, other: Self) -> Self {
        if other.retry_after > self.retry_after { other } else { self }
    }
}

/// The rates for those who have not signed in.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// TLS handshakes and credentials that are dear to judge, per source.
    pub preauth_per_ip: Rate,
    /// Failed attempts per source.
    pub failed_auth_per_ip: Rate,
    /// Failed attempts per name.
    pub failed_auth_per_name: Rate,
}

/// The name that an attempt gives; it proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named<'a> {
    /// This one.
    Name(&'a str),
    /// None: a token, a key, a certificate.
    Nobody,
}

/// What strangers may do, one for the whole gate.
///
/// Failures within their quota cost nothing. Each failure beyond it doubles the time until the next attempt, from one
/// second to fifteen minutes, and a quiet time as long as the delay and the quota's period ends that. The delay of a
/// name does not concern sources that have lately signed in with it: those have a quota of their own, so that nobody
/// can lock a user out from elsewhere.
#[derive(Debug)]
pub struct Limiter {
    ticks: Ticks,
    strangers: Keyed<Source>,
    sources: Failures<Source>,
    names: Failures<u64>,
    known: Known,
    hasher: RandomState,
}

impl Limiter {
    /// A limiter that has seen nobody yet.
    pub fn new(rates: Rates, ticks: Ticks) -> Self {
        Self {
            strangers: Keyed::new(PREAUTH_PER_IP, rates.preauth_per_ip, MOST_KEYS, ticks.clone()),
            sources: Failures::new(FAILED_AUTH_PER_IP, rates.failed_auth_per_ip, MOST_KEYS),
            names: Failures::new(FAILED_AUTH_PER_NAME, rates.failed_auth_per_name, MOST_KEYS),
            known: Known::new(FAILED_AUTH_PER_NAME, rates.failed_auth_per_name, MOST_KEYS),
            hasher: RandomState::new(),
            ticks,
        }
    }

    /// Counts a TLS handshake, or a credential that is dear to judge, of `source`.
    pub fn stranger(&self, source: Source) -> Result<(), Exceeded> {
        self.strangers.check(&source)
    }

    /// Whether `source` may try a dear credential with `name` now. Asked before any hashing; counts nothing.
    pub fn may_try(&self, source: Source, name: Named<'_>) -> Result<(), Exceeded> {
        let now = self.ticks.now();
        let by_source = self.sources.may_try(&source, now);
        let by_name = match name {
            Named::Name(name) => {
                let name = self.hasher.hash_one(name);
                self.known.may_try(name, source, now).unwrap_or_else(|| self.names.may_try(&name, now))
            }
            Named::Nobody => Ok(()),
        };
        match (by_source, by_name) {
            (Ok(()), Ok(())) => Ok(()),
            (Err(exceeded), Ok(())) | (Ok(()), Err(exceeded)) => Err(exceeded),
            // After the shorter wait the other would still refuse.
            (Err(one), Err(other)) => Err(one.longer(other)),
        }
    }

    /// Counts a failure; an error says that `source` has failed too often.
    pub fn failed(&self, source: Source, name: Named<'_>) -> Result<(), Exceeded> {
        let now = self.ticks.now();
        match name {
            Named::Name(name) => {
                let name = self.hasher.hash_one(name);
                if !self.known.failed(name, source, now) {
                    // The delay of the name is told to whoever tries it next.
                    let _told_later = self.names.failed(name, now);
                }
            }
            Named::Nobody => (),
        }
        self.sources.failed(source, now)
    }

    /// Forgets the failures of `name` from `source`, which from now on is known for it. What the source did with other
    /// names stays: an account of one's own must not buy more guesses at those of others.
    pub fn succeeded(&self, source: Source, name: Named<'_>) {
        match name {
            Named::Name(name) => self.known.remember(self.hasher.hash_one(name), source, self.ticks.now()),
            Named::Nobody => (),
        }
    }

    /// Forgets what has come to rest and gives its memory back. To be called every [`SWEEP_EVERY`].
    pub fn sweep(&self) {
        let now = self.ticks.now();
        self.strangers.sweep();
        self.sources.sweep(now);
        self.names.sweep(now);
        self.known.sweep(now);
    }

    /// Keys held, at most four times [`MOST_KEYS`].
    pub fn keys_held(&self) -> usize {
        [self.strangers.len(), self.sources.len(), self.names.len(), self.known.len()]
            .into_iter()
            .fold(0, usize::saturating_add)
    }
}

/// Keys that one limit keeps apart. More share one bucket.
pub const MOST_KEYS: usize = 65_536;
/// How often `sweep` is due.
pub const SWEEP_EVERY: Duration = Duration::from_secs(30);

const FAILED_AUTH_PER_IP: &str = "failed_auth_per_ip";
const FAILED_AUTH_PER_NAME: &str = "failed_auth_per_name";
const PREAUTH_PER_IP: &str = "preauth_per_ip";
/// Less is below what timers of clients can tell apart.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
/// When a limit is full it looks for keys at rest, but not for every stranger of a spray again.
const FULL_SWEEP_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
