//! Connections that are closed before any request: why, one line for the operator, and one on record if it was decided.
//!
//! Strangers make these lines, so they are few per second, and the next one says how many were left out. Must not
//! repeat bytes of a client.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use portcullis_auth::Clock;

use super::proxy::HeaderError;
use crate::audit::{Audit, Event, Origin, What};
use crate::limits::{Exceeded, Ticks};

/// Why a connection was closed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Turned {
    #[error("its source has too many connections")]
    Crowded,
    #[error("there are too many connections")]
    Full,
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    #[error("the handshake was not done in time")]
    Late,
    #[error("it did not agree on HTTP/2: the ALPN protocol must be `h2`")]
    NoHttp2,
    #[error("it does not speak HTTP/2")]
    NotHttp2,
    #[error("it does not speak TLS, and this port does not speak anything else")]
    NotTls,
    #[error("the header of the proxy cannot be used: {0}")]
    Proxy(HeaderError),
    #[error("it left without a word")]
    Silent,
    #[error("it speaks TLS, and this port does not")]
    Tls,
    #[error("the TLS handshake failed: {0}")]
    TlsFailed(io::Error),
    #[error("{0}, by TLS handshakes of its source")]
    TooFast(Exceeded),
    #[error("it sends a PROXY header, and its address is not in `trusted_proxies`")]
    UntrustedProxy,
}

impl Turned {
    /// Those who only look whether the port is open, as health checks do.
    fn is_worth_a_line(&self) -> bool {
        match self {
            Self::Io(_) | Self::Silent => false,
            Self::Crowded
            | Self::Full
            | Self::Late
            | Self::NoHttp2
            | Self::NotHttp2
            | Self::NotTls
            | Self::Proxy(_)
            | Self::Tls
            | Self::TlsFailed(_)
            | Self::TooFast(_)
            | Self::UntrustedProxy => true,
        }
    }
}

/// Writes the lines.
pub(super) struct Reports {
    audit: Audit,
    clock: Arc<dyn Clock>,
    lines: RateLimiter<NotKeyed, InMemoryState, Ticks, NoOpMiddleware<Duration>>,
    left_out: AtomicU64,
}

impl Reports {
    pub(super) fn new(ticks: Ticks, audit: Audit, clock: Arc<dyn Clock>) -> Self {
        let quota = Quota::per_second(LINES_PER_SECOND);
        Self {
            audit,
            clock,
            lines: RateLimiter::new(quota, InMemoryState::default(), ticks),
            left_out: AtomicU64::new(0),
        }
    }

    pub(super) fn closed(&self, peer: SocketAddr, reason: &Turned) {
        if !reason.is_worth_a_line() {
            tracing::debug!(%peer, %reason, "connection closed before any request");
            return;
        }
        if self.lines.check().is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        tracing::info!(%peer, %reason, left_out, "connection closed before any request");
        let text = reason.to_string();
        let what = match reason {
            Turned::TlsFailed(_) => What::TlsFailed { reason: &text },
            Turned::Crowded => What::LimitExceeded { limit: "connections_per_ip", principal: None },
            Turned::Full => What::LimitExceeded { limit: "connections", principal: None },
            Turned::TooFast(exceeded) => What::LimitExceeded { limit: exceeded.limit, principal: None },
            // Nothing was decided: it spoke something else, or nothing.
            Turned::Io(_)
            | Turned::Late
            | Turned::NoHttp2
            | Turned::NotHttp2
            | Turned::NotTls
            | Turned::Proxy(_)
            | Turned::Silent
            | Turned::Tls
            | Turned::UntrustedProxy => return,
        };
        let origin = Origin::Connection(crate::audit::Peer::Direct(peer));
        self.audit.record(Event { time: self.clock.now(), origin, what });
    }
}

impl fmt::Debug for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reports").field("left_out", &self.left_out).finish_non_exhaustive()
    }
}

pub(super) const LINES_PER_SECOND: NonZeroU32 = NonZeroU32::MIN.saturating_add(4);

#[cfg(test)]
pub(super) mod tests;
