//! What a session token holds: facts that only a gate with the sealing key can read or write.
//!
//! A token carries the identity that it was made for, so that another gate with the same key, or this one after a
//! restart, can open the session again. Must not decide whether that is allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use portcullis_auth::{Assertion, Expiry, Principal};
use serde::{Deserialize, Serialize};

use super::{Binding, Session, SessionId, millis};

/// What a token says about its session.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) id: SessionId,
    pub(super) place: Place,
}

/// Where the session can be found.
#[derive(Debug)]
pub(super) enum Place {
    /// Wherever the sealing key is.
    Anywhere(Box<Origin>),
    /// Only in the gate that made it: its identity is too large for a token.
    HereOnly,
}

/// Enough to open a session again.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Origin {
    /// Milliseconds since 1970.
    opened: u64,
    ends: Option<u64>,
    certificate: Option<[u8; 32]>,
    name: String,
    scheme: String,
    authority: String,
    subject: String,
    roles: BTreeSet<String>,
    attributes: BTreeMap<String, String>,
    expires: Option<(u64, u32)>,
    credential: String,
}

impl Facts {
    /// The bytes to seal for `session`.
    pub(super) fn of(session: &Session) -> Vec<u8> {
        let origin = serde_json::to_vec(&Origin::of(session)).ok().filter(|text| text.len() <= MAX_ORIGIN);
        let kind = if origin.is_some() { ANYWHERE } else { HERE_ONLY };
        [&[kind], session.id().as_bytes().as_slice(), origin.as_deref().unwrap_or_default()].concat()
    }

    /// What was sealed; nothing if it was sealed by a gate of another version.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (id, origin) = rest.split_first_chunk::<16>()?;
        let place = match *kind {
            ANYWHERE => Place::Anywhere(Box::new(serde_json::from_slice(origin).ok()?)),
            HERE_ONLY if origin.is_empty() => Place::HereOnly,
            _ => return None,
        };
        Some(Self { id: SessionId::from_slice(id)?, place })
    }
}

impl Origin {
    fn of(session: &Session) -> Self {
        let principal = session.principal();
        let key = principal.key();
        Self {
            opened: millis(session.opened()),
            ends: match session.expires() {
                Expiry::At(end) => Some(millis(end)),
                Expiry::Never => None,
            },
            certificate: match session.binding() {
                Binding::Certificate(thumbprint) => Some(thumbprint),
                Binding::Free => None,
            },
            name: principal.name().to_owned(),
            scheme: principal.scheme().to_owned(),
            authority: key.authority().to_owned(),
            subject: key.subject().to_owned(),
            roles: principal.roles().clone(),
            attributes: principal.attributes().clone(),
            // To the nanosecond: schemes compare it with what they store.
            expires: match principal.expires() {
                Expiry::At(end) => {
                    let since = end.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                    Some((since.as_secs(), since.subsec_nanos()))
                }
                Expiry::Never => None,
            },
            credential: principal.credential_id().to_owned(),
        }
    }

    /// When the handshake was.
    pub(super) fn opened(&self) -> SystemTime {
        after_epoch(Duration::from_millis(self.opened))
    }

    /// When the session ends in any case.
    pub(super) fn ends(&self) -> Expiry {
        self.ends.map_or(Expiry::Never, |end| Expiry::At(after_epoch(Duration::from_millis(end))))
    }

    /// What the session is bound to.
    pub(super) fn binding(&self) -> Binding {
        self.certificate.map_or(Binding::Free, Binding::Certificate)
    }

    /// The kind of scheme that admitted the principal.
    pub(super) fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The principal, as the scheme of that name asserted it before it was sealed.
    pub(super) fn principal(self, scheme: &'static str) -> Option<Principal> {
        let expires = match self.expires {
            Some((seconds, nanos)) => {
                Expiry::At(after_epoch(Duration::from_secs(seconds).saturating_add(Duration::from_nanos(nanos.into()))))
            }
            None => Expiry::Never,
        };
        Principal::assertion(Assertion {
            name: self.name,
            scheme: (self.scheme == scheme).then_some(scheme)?,
            authority: self.authority,
            subject: self.subject,
            roles: self.roles,
            attributes: self.attributes,
            expires,
            credential_id: self.credential,
        })
        .ok()
    }
}

fn after_epoch(time: Duration) -> SystemTime {
    // A time beyond what the clock can say is one that has passed.
    SystemTime::UNIX_EPOCH.checked_add(time).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// First byte: the version, and where the session can be found.
const HERE_ONLY: u8 = 2;
const ANYWHERE: u8 = 3;
/// Java's client takes headers of 8 KiB all told; sealed and in base64 this is half of that.
const MAX_ORIGIN: usize = 2900;
