//! Whether a chain that was good in the handshake still is, asked on every call of a long connection.
//!
//! A connection outlives certificates, CRLs and the trust in a CA. The whole chain is verified again whenever something
//! was replaced or an end has come; between these an answer costs a comparison. Must not close anything itself.

use std::time::SystemTime;

use parking_lot::Mutex;
use portcullis_auth::Expiry;
use rustls::{CertificateError, Error};
use rustls_pki_types::{CertificateDer, UnixTime};

use super::clients::ClientAuth;
use super::{Current, TlsIdentity};

/// What is known about the client's chain of one connection. Every connection has its own.
#[derive(Debug, Default)]
pub struct ClientStanding {
    known: Mutex<Option<Known>>,
}

#[derive(Debug)]
struct Known {
    epoch: u64,
    answer: Result<Good, Distrust>,
}

#[derive(Clone, Copy, Debug)]
struct Good {
    since: SystemTime,
    until: Expiry,
}

impl ClientStanding {
    /// Nothing is known yet: between the handshake and the first call something may have been replaced.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the chain this connection came with counts at `now`; empty if it came without.
    pub fn check(
        &self,
        identity: &TlsIdentity,
        chain: &[CertificateDer<'static>],
        now: SystemTime,
    ) -> Result<(), Distrust> {
        let current = identity.current();
        if let Some(known) = &*self.known.lock()
            && known.epoch == current.epoch
        {
            match known.answer {
                // A clock that was set back makes the answer one about another time.
                Ok(good) if good.since <= now && !good.until.passed(now) => return Ok(()),
                Ok(_) => (),
                // Sticky, so that a client that is not trusted cannot have its chain verified over and over.
                Err(distrust) => return Err(distrust),
            }
        }
        let answer = current.verify(chain, now).map(|until| Good { since: now, until });
        let outcome = answer.map(|_good| ());
        *self.known.lock() = Some(Known { epoch: current.epoch, answer });
        outcome
    }
}

impl Current {
    /// Until when the chain counts, if nothing is replaced.
    pub(super) fn verify(&self, chain: &[CertificateDer<'static>], now: SystemTime) -> Result<Expiry, Distrust> {
        let (leaf, others) = match (&self.clients, chain.split_first()) {
            (ClientAuth::None | ClientAuth::Optional(_), None) => return Ok(Expiry::Never),
            (ClientAuth::Required(_), None) => return Err(Distrust::Missing),
            (ClientAuth::None | ClientAuth::Optional(_) | ClientAuth::Required(_), Some(chain)) => chain,
        };
        let trust = self.clients.trust().ok_or(Distrust::NotAsked)?;
        let now = now.duration_since(SystemTime::UNIX_EPOCH).map_err(|_| Distrust::NotYetValid)?;
        trust.verify(leaf, others, UnixTime::since_unix_epoch(now)).map_err(|problem| Distrust::of(&problem))
    }
}

/// Why a connection's client is not trusted, or no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Distrust {
    /// A certificate of the chain has expired.
    #[error("the client certificate or its CA has expired")]
    Expired,
    /// A certificate is needed now, and the client came without.
    #[error("a client certificate is required, and this connection has none")]
    Missing,
    /// Certificates are no longer asked for, so nothing can be said about one.
    #[error("client certificates are no longer accepted")]
    NotAsked,
    /// A certificate of the chain is not valid yet.
    #[error("the client certificate or its CA is not valid yet")]
    NotYetValid,
    /// A certificate of the chain is on a CRL.
    #[error("the client certificate or its CA is revoked")]
    Revoked,
    /// No CRL says anything about it, or the one that does is too old or not genuine.
    #[error("no CRL in force covers the client certificate and its CA")]
    RevocationUnknown,
    /// No CA that counts has signed it.
    #[error("the client certificate leads to no CA that is trusted")]
    UnknownAuthority,
    /// It is broken, not for clients, or too large.
    #[error("the client certificate is not usable")]
    Unusable,
}

impl Distrust {
    fn of(problem: &Error) -> Self {
        use CertificateError as Cert;

        if matches!(problem, Error::InvalidCertRevocationList(_)) {
            return Self::RevocationUnknown;
        }
        let Error::InvalidCertificate(found) = problem else { return Self::Unusable };
        if matches!(found, Cert::Revoked) {
            Self::Revoked
        } else if matches!(found, Cert::Expired | Cert::ExpiredContext { .. }) {
            Self::Expired
        } else if matches!(found, Cert::NotValidYet | Cert::NotValidYetContext { .. }) {
            Self::NotYetValid
        } else if matches!(
            found,
            Cert::UnknownRevocationStatus | Cert::ExpiredRevocationList | Cert::ExpiredRevocationListContext { .. }
        ) {
            Self::RevocationUnknown
        // A CA of the right name with another key makes a bad signature.
        } else if matches!(found, Cert::UnknownIssuer | Cert::BadSignature) {
            Self::UnknownAuthority
        } else {
            Self::Unusable
        }
    }
}

#[cfg(test)]
mod tests;
