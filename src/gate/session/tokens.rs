//! The scheme that judges session tokens.
//!
//! A token is good while its session lives *and* the credential behind the session still stands with the scheme that
//! admitted it. Must not mint anything: tokens come from a handshake.

use std::sync::Arc;
use std::time::SystemTime;

use portcullis_auth::{Attempt, Authenticator, BoxFuture, Credential, Principal, Rejection, Standing, Token, Verdict};

use super::{Session, Sessions, TOKEN_PREFIX};

/// Judges bearer tokens that begin with [`TOKEN_PREFIX`], and abstains from everything else.
#[derive(Debug)]
pub struct SessionTokens {
    sessions: Arc<Sessions>,
    schemes: Arc<[Arc<dyn Authenticator>]>,
}

impl SessionTokens {
    /// `schemes` are the others of the chain: whose credentials sessions may have been opened with.
    pub fn new(sessions: Arc<Sessions>, schemes: Arc<[Arc<dyn Authenticator>]>) -> Self {
        Self { sessions, schemes }
    }

    /// Which session a token leads to.
    pub fn resolve(&self, token: &Token<'_>) -> Option<Arc<Session>> {
        self.sessions.by_token(token)
    }

    fn judge(&self, attempt: &Attempt<'_>) -> Verdict {
        let Credential::Bearer(token) = attempt.credential() else {
            return Verdict::Abstain;
        };
        if !token.starts_with(TOKEN_PREFIX) {
            return Verdict::Abstain;
        }
        let Some(session) = self.resolve(&token) else {
            return Verdict::Reject(Rejection::invalid("no such session, or it has ended"));
        };
        match self.standing(session.principal(), attempt.now) {
            Standing::Good => Verdict::Admit(session.principal().clone()),
            Standing::Revoked => {
                // Final, even if the credential should come back.
                self.sessions.close(session.id());
                Verdict::Reject(Rejection::invalid("the credential behind the session does not stand any more"))
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

    fn standing(&self, principal: &Principal, now: SystemTime) -> Standing {
        match self.maker(principal) {
            Some(scheme) if !principal.expires().passed(now) => scheme.standing(principal, now),
            // Nobody vouches for it any more.
            Some(_) | None => Standing::Revoked,
        }
    }
}
