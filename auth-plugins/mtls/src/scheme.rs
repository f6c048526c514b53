//! The authenticator: claims every attempt that holds a client certificate and judges it by the rules.
//!
//! Must not do I/O. Signatures are checked once for each chain and remembered, so that a call costs a hash.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use aws_lc_rs::digest::{Context, SHA256};
use portcullis_auth::{
    Assertion, Attempt, Authenticator, BoxFuture, Cost, Credential, Expiry, Principal, Rejection, Standing, Verdict,
};
use rustls_pki_types::CertificateDer;

use crate::leaf::{Leaf, LeafError, Purpose};
use crate::path::Vouched;
use crate::rules::{Eku, Rules, Unnamed};

/// Client certificates, as an authenticator.
pub struct ClientCertificates {
    name: String,
    state: RwLock<Arc<State>>,
}

impl ClientCertificates {
    /// Certificates under the configured name of this authenticator.
    pub fn new(name: impl Into<String>, rules: Rules) -> Self {
        Self { name: name.into(), state: RwLock::new(State::new(rules)) }
    }

    /// Puts these rules and CAs in place of the present ones, at once for every call that starts from now on.
    pub fn replace(&self, rules: Rules) {
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = State::new(rules);
    }

    fn judge(&self, attempt: &Attempt<'_>) -> Verdict {
        let Some(leaf) = attempt.peer_certs.first() else { return Verdict::Abstain };
        match attempt.credential() {
            Credential::Absent => (),
            // Whose a credential is that cannot be read, nobody knows: the gate refuses it by itself.
            Credential::Malformed(_) => return Verdict::Abstain,
            // Whoever configured how two combine has had the other scheme asked before.
            Credential::Basic(_) | Credential::Bearer(_) | Credential::Unknown => {
                return Verdict::Reject(Rejection::invalid("a certificate and another credential in one call"));
            }
        }
        match Leaf::parse(leaf) {
            Ok(leaf) => self.judge_leaf(&leaf, attempt).unwrap_or_else(Verdict::Reject),
            Err(problem @ LeafError::Authority) => Verdict::Reject(Rejection::invalid(problem.to_string())),
            Err(problem @ (LeafError::TooLarge | LeafError::Unreadable)) => {
                Verdict::Reject(Rejection::malformed(problem.to_string()))
            }
        }
    }

    fn judge_leaf(&self, leaf: &Leaf, attempt: &Attempt<'_>) -> Result<Verdict, Rejection> {
        let refused = |problem: &str| Rejection::invalid(format!("{problem}: serial `{}`", leaf.serial()));
        let state = self.current();

        if attempt.now < leaf.not_before() {
            return Err(refused("the certificate is not valid yet"));
        }
        if Expiry::At(leaf.not_after()).passed(attempt.now) {
            return Err(refused("the certificate has expired"));
        }
        match (leaf.purpose(), state.rules.eku()) {
            (Purpose::Client, Eku::Required | Eku::DangerOptional) | (Purpose::Unsaid, Eku::DangerOptional) => (),
            (Purpose::Unsaid, Eku::Required) => {
                return Err(refused("the certificate does not say that it is for clients"));
            }
            (Purpose::Other, Eku::Required | Eku::DangerOptional) => {
                return Err(refused("the certificate is for something else than clients"));
            }
        }
        let named = state.rules.decide(leaf).map_err(|problem| match problem {
            Unnamed::NoRule => refused("no rule maps the certificate"),
            Unnamed::Unusable(problem) => refused(&problem),
        })?;
        let vouched = state
            .vouch(attempt.peer_certs, attempt.now)
            .ok_or_else(|| refused("the certificate leads to no CA of this scheme"))?;

        let assertion = Assertion {
            roles: state.rules.roles_of(&named.name),
            subject: named.subject(),
            name: named.name,
            scheme: SCHEME,
            expires: Expiry::At(vouched.end(leaf.not_after())),
            authority: vouched.authority,
            attributes: Default::default(),
            credential_id: leaf.serial().to_owned(),
        };
        Principal::assertion(assertion).map(Verdict::Admit).map_err(|invalid| refused(&invalid.to_string()))
    }

    fn current(&self) -> Arc<State> {
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Authenticator for ClientCertificates {
    fn scheme(&self) -> &'static str {
        SCHEME
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn authenticate<'a>(&'a self, attempt: &'a Attempt<'a>) -> BoxFuture<'a, Verdict> {
        Box::pin(async move { self.judge(attempt) })
    }

    /// Nobody gets here who has not completed a handshake, and each chain is verified once.
    fn cost(&self, _attempt: &Attempt<'_>) -> Cost {
        Cost::Cheap
    }

    /// Revoked once the rules give the subject another name or other roles, or the certificate has expired.
    ///
    /// The subject is all that is known here. A new rule for another kind of name, put in front of the one that gave
    /// the name, counts from the next sign-in on. Whether the certificate is on a CRL, and whether its CA still counts,
    /// is checked by the gate on the connection itself.
    fn standing(&self, principal: &Principal, now: SystemTime) -> Standing {
        let state = self.current();
        let same = principal.scheme() == SCHEME
            && state.rules.name_of(principal.key().subject()).as_deref() == Some(principal.name())
            && *principal.roles() == state.rules.roles_of(principal.name())
            && principal.attributes().is_empty();
        if same && !principal.expires().passed(now) { Standing::Good } else { Standing::Revoked }
    }
}

impl fmt::Debug for ClientCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificates").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What one call sees, whatever is replaced meanwhile.
struct State {
    rules: Rules,
    /// What these CAs said about a chain, by its hash.
    vouched: Mutex<HashMap<[u8; 32], Vouched>>,
}

impl State {
    fn new(rules: Rules) -> Arc<Self> {
        Arc::new(Self { rules, vouched: Mutex::default() })
    }

    fn vouch(&self, chain: &[CertificateDer<'static>], now: SystemTime) -> Option<Vouched> {
        let key = fingerprint(chain)?;
        let known = self.vouched.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(vouched) = known.filter(|vouched| vouched.holds(now)) {
            return Some(vouched);
        }
        let vouched = self.rules.authorities().vouch(chain, now)?;
        let mut known = self.vouched.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN {
            // They come back at the price of a signature each.
            known.clear();
        }
        known.insert(key, vouched.clone());
        Some(vouched)
    }
}

/// A hash of the whole chain; each length goes in as well, so that no two chains run together.
fn fingerprint(chain: &[CertificateDer<'static>]) -> Option<[u8; 32]> {
    let mut hash = Context::new(&SHA256);
    for cert in chain {
        hash.update(&u64::try_from(cert.len()).ok()?.to_be_bytes());
        hash.update(cert);
    }
    hash.finish().as_ref().try_into().ok()
}

/// The scheme's name in the configuration and in identity keys.
const SCHEME: &str = "mtls";
const MAX_KNOWN: usize = 4096;

#[cfg(test)]
mod tests;
