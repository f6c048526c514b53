//! A token in the place of a password, for tools that know only user and password (Tableau).
//!
//! One user name, chosen by the operator, says that its password is a bearer token of the scheme behind. Must not try:
//! the name decides, so that no password of anybody is ever shown to a token scheme.

use std::time::SystemTime;

use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use portcullis_auth::{Attempt, Authenticator, BoxFuture, Cost, Credential, Principal, Rejection, Standing, Verdict};

/// A token scheme that also takes its tokens as the password of one user.
#[derive(Debug)]
pub(super) struct TokenUser<A> {
    user: String,
    tokens: A,
}

impl<A> TokenUser<A> {
    /// Tokens of `tokens` as the password of exactly `user`.
    pub(super) fn new(user: String, tokens: A) -> Self {
        Self { user, tokens }
    }

    /// The headers as if the password had come as a bearer token; nothing for any other user.
    fn as_bearer(&self, attempt: &Attempt<'_>) -> Option<Result<HeaderMap, Rejection>> {
        let Credential::Basic(basic) = attempt.credential() else { return None };
        if basic.user() != self.user {
            return None;
        }
        let bearer = HeaderValue::from_bytes(&[b"Bearer ", basic.password().expose()].concat());
        Some(match bearer {
            Ok(mut bearer) => {
                bearer.set_sensitive(true);
                let mut headers = attempt.headers.clone();
                headers.insert(AUTHORIZATION, bearer);
                Ok(headers)
            }
            Err(_) => Err(Rejection::malformed("the password is not a token")),
        })
    }
}

impl<A: AsRef<dyn Authenticator> + std::fmt::Debug + Send + Sync + 'static> Authenticator for TokenUser<A> {
    fn scheme(&self) -> &'static str {
        self.tokens.as_ref().scheme()
    }

    fn name(&self) -> &str {
        self.tokens.as_ref().name()
    }

    fn authenticate<'a>(&'a self, attempt: &'a Attempt<'a>) -> BoxFuture<'a, Verdict> {
        let tokens = self.tokens.as_ref();
        match self.as_bearer(attempt) {
            None => tokens.authenticate(attempt),
            Some(Err(rejection)) => Box::pin(std::future::ready(Verdict::Reject(rejection))),
            Some(Ok(headers)) => Box::pin(async move {
                match tokens.authenticate(&attempt.with_headers(&headers)).await {
                    // The user name has said whose credential it is.
                    Verdict::Abstain => Verdict::Reject(Rejection::malformed("the password is not a token")),
                    verdict @ (Verdict::Admit(_) | Verdict::Reject(_)) => verdict,
                }
            }),
        }
    }

    fn cost(&self, attempt: &Attempt<'_>) -> Cost {
        match self.as_bearer(attempt) {
            None => self.tokens.as_ref().cost(attempt),
            Some(Err(_)) => Cost::Cheap,
            Some(Ok(headers)) => self.tokens.as_ref().cost(&attempt.with_headers(&headers)),
        }
    }

    fn standing(&self, principal: &Principal, now: SystemTime) -> Standing {
        self.tokens.as_ref().standing(principal, now)
    }
}
