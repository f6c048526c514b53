//! The scheme that judges session tokens.
//!
//! A token is good while its session lives, *and* the credential behind the session still stands with the scheme that
//! admitted it, *and* the connection shows the certificate that the session began under. Must not mint anything: tokens
//! come from a handshake.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use portcullis_auth::{
    Attempt, Authenticator, BoxFuture, Cost, Credential, Principal, Rejection, Standing, Token, Verdict,
};

use super::{Adopted, Binding, ByToken, Foreign, Session, Sessions, TOKEN_PREFIX};
use crate::audit::SessionEnd;
use crate::config::CertificateRole;

/// Judges bearer tokens that begin with [`TOKEN_PREFIX`], and abstains from everything else.
#[derive(Debug)]
pub struct SessionTokens {
    sessions: Arc<Sessions>,
    schemes: Arc<[Arc<dyn Authenticator>]>,
    certificates: CertificateRole,
}

impl SessionTokens {
    /// `schemes` are the others of the chain: whose credentials sessions may have been opened with.
    pub fn new(sessions: Arc<Sessions>, schemes: Arc<[Arc<dyn Authenticator>]>, certificates: CertificateRole) -> Self {
        Self { sessions, schemes, certificates }
    }

    fn judge(&self, attempt: &Attempt<'_>) -> Verdict {
        let Credential::Bearer(token) = attempt.credential() else {
            return Verdict::Abstain;
        };
        if !token.starts_with(TOKEN_PREFIX) {
            return Verdict::Abstain;
        }
        let session = match self.resolve(&token) {
            Ok(session) => session,
            Err(rejection) => return Verdict::Reject(rejection),
        };
        if let Err(rejection) = self.binding_holds(session.binding(), attempt) {
            return Verdict::Reject(rejection);
        }
        match self.standing(session.principal(), attempt.now) {
            Standing::Good => Verdict::Admit(session.principal().clone()),
            Standing::Revoked => {
                // Final, even if the credential should come back.
                self.sessions.end(session.id(), SessionEnd::Revoked);
                Verdict::Reject(Rejection::invalid("the credential behind the session does not stand any more"))
            }
        }
    }

    fn resolve(&self, token: &Token<'_>) -> Result<Arc<Session>, Rejection> {
        const NONE: &str = "no such session, or it has ended";
        match self.sessions.by_token(token) {
            ByToken::Found(session) => Ok(session),
            ByToken::Nothing => Err(Rejection::invalid(NONE)),
            ByToken::Unknown(unreadable) => Err(Rejection::unavailable(unreadable.to_string(), LIST_RETRY)),
            ByToken::Elsewhere(foreign) => match self.adopt(foreign) {
                // The token is as good at a full gate: that there is no place is said when its session is looked for.
                Adopted::Here(session) | Adopted::Full(session) => Ok(session),
                Adopted::Over => Err(Rejection::invalid(NONE)),
            },
        }
    }

    fn adopt(&self, foreign: Foreign) -> Adopted {
        let mut kinds = self.schemes.iter().map(|scheme| scheme.scheme());
        match kinds.find(|kind| *kind == foreign.scheme()) {
            Some(scheme) => self.sessions.adopt(foreign, scheme),
            None => Adopted::Over,
        }
    }

    /// A session that began under a certificate needs it again; where certificates say who calls, one that did not
    /// may not come with somebody's.
    fn binding_holds(&self, binding: Binding, attempt: &Attempt<'_>) -> Result<(), Rejection> {
        match (binding, Binding::to(attempt.peer_certs), self.certificates) {
            (Binding::Certificate(needed), Binding::Certificate(shown), _) if needed == shown => Ok(()),
            (Binding::Free, Binding::Free, _) | (Binding::Free, Binding::Certificate(_), CertificateRole::Channel) => {
                Ok(())
            }
            (Binding::Certificate(_), _, _) | (Binding::Free, Binding::Certificate(_), CertificateRole::Identity) => {
                Err(Rejection::invalid("the session belongs to another client certificate"))
            }
        }
    }

    /// The scheme that made a principal is the one its authority names, or else the only one of its kind.
    fn maker(&self, principal: &Principal) -> Option<&Arc<dyn Authenticator>> {
        let alike = || self.schemes.iter().filter(|scheme| scheme.scheme() == principal.scheme());
        let mut named = alike().filter(|scheme| scheme.name() == principal.key().authority());
        named.next().or_else(|| {
            let mut alike = alike();
            let only = alike.next();
            if alike.next().is_some() { None } else { only }
        })
    }
}

impl Authenticator for SessionTokens {
    fn scheme(&self) -> &'static str {
        "session"
    }

    fn name(&self) -> &str {
        "session"
    }

    fn authenticate<'a>(&'a self, attempt: &'a Attempt<'a>) -> BoxFuture<'a, Verdict> {
        Box::pin(std::future::ready(self.judge(attempt)))
    }

    /// A box that opens, and lookups.
    fn cost(&self, _attempt: &Attempt<'_>) -> Cost {
        Cost::Cheap
    }

    fn standing(&self, principal: &Principal, now: SystemTime) -> Standing {
        match self.maker(principal) {
            Some(scheme) if !principal.expires().passed(now) => scheme.standing(principal, now),
            // Nobody vouches for it any more.
            Some(_) | None => Standing::Revoked,
        }
    }
}

const LIST_RETRY: Duration = Duration::from_secs(5);
