//! The admission of one call: limits, the chain, the session, and a line for the auditor.
//!
//! Every way out of here but one is a refusal. What costs work is spent on a stranger within limits only; a credential
//! that is cheap to verify is verified whoever else has failed before. Must not read a body, and must not tell a client
//! why it was refused.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, HeaderValue, request};
use portcullis_auth::{Attempt, Clock, Cost, Credential, Expiry, Principal, RejectKind, Rejection};

use super::caller::{Caller, CredentialKind, Minted};
use super::chain::{Chain, Judgement, NO_SCHEME};
use super::session::{Adopted, Binding, ByToken, InUse, Session, SessionRefused, Sessions};
use super::source::Source;
use crate::audit::{self, Admission, Audit, Event, HidingKey, Origin, What};
use crate::limits::{Exceeded, Limiter, Named, PerPrincipal};
use crate::status::{Class, Failure, RequestId};

/// What every clone of a gate shares.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) chain: Chain,
    pub(super) sessions: Arc<Sessions>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) strangers: Arc<Limiter>,
    pub(super) principals: Arc<PerPrincipal>,
    pub(super) audit: Audit,
    /// Hides names that were presented and not admitted: people type passwords there.
    pub(super) names: HidingKey,
}

/// A call that may go on.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) in_use: InUse,
    /// When the credential of the call is over.
    pub(super) ends: Expiry,
    pub(super) cookie: Cookie,
}

/// A cookie for the answer.
#[derive(Debug)]
pub(super) enum Cookie {
    /// None is needed.
    Nothing,
    /// A client that keeps it gets a session of its own.
    Offer(HeaderValue),
}

/// Whether a call may make a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    Handshake,
    Other,
}

impl CallKind {
    pub(super) fn of(parts: &request::Parts) -> Self {
        if parts.uri.path() == HANDSHAKE { Self::Handshake } else { Self::Other }
    }
}

impl Keeper {
    /// On success the request carries a [`Caller`] and no credential; otherwise it goes nowhere.
    pub(super) async fn admit(&self, parts: &mut request::Parts, id: RequestId) -> Result<Admitted, Failure> {
        // INVARIANT: whatever an outer layer may have left there, a caller is what this gate made.
        parts.extensions.remove::<Caller>();
        let source = Source::of(&parts.extensions);
        let now = self.clock.now();
        let mut attempt = Attempt::new(&parts.headers, now).with_peer_certs(source.certificates());
        if let Some(addr) = source.addr() {
            attempt = attempt.with_peer_addr(addr);
        }
        let call = Call { request: &id.to_string(), source: &source, name: call_name(parts) };

        let (by, principal) = self.identify(&attempt, &call).await?;
        let credential = attempt.credential();
        let kind = CredentialKind::of(&credential, attempt.peer_certs.len());
        self.rights(&principal, &call)?;
        let found = match CallKind::of(parts) {
            CallKind::Handshake => self.handshake_session(&attempt, &credential, kind, &principal),
            CallKind::Other => self
                .session(&parts.headers, &credential, kind, &principal)
                .map(|(session, cookie)| (session, Minted::Nothing, cookie)),
        };
        let (session, minted, cookie) = match found {
            Ok(found) => found,
            Err(failure) => {
                let (name, reason) = (principal.name(), failure.sentence());
                tracing::info!(request = %id, peer = %source, scheme = %by, principal = name, reason, "no session");
                let admission = Admission { scheme: &by, principal: &principal, session: None, call: call.name };
                self.audit.record(call.event(now, What::AuthnSuccess(admission)));
                return Err(failure);
            }
        };
        let (name, at) = (principal.name(), session.id());
        tracing::debug!(request = %id, peer = %source, scheme = %by, principal = name, session = %at, "admitted");
        let admission =
            Admission { scheme: &by, principal: &principal, session: Some(&at.to_string()), call: call.name };
        // What cannot be put on record does not happen.
        self.audit.record_or_wait(call.event(now, What::AuthnSuccess(admission)), AUDIT_WAIT).await.map_err(
            |behind| {
                Failure::new(Class::Unavailable, "the server cannot take this call now")
                    .because(behind)
                    .retry_after(RETRY)
            },
        )?;
        if let Minted::Token(_) = minted {
            let what = What::SessionOpened { session: &at.to_string(), principal: &principal };
            self.audit.record(call.event(now, what));
        }
        let in_use = self.sessions.begin(&session);
        let ends = session.expires().earlier(principal.expires());
        forget_credential(&mut parts.headers);
        parts.extensions.insert(Caller::admitted(principal, session, (id, source.peer()), kind, minted));
        Ok(Admitted { in_use, ends, cookie })
    }

    /// Who calls.
    async fn identify(&self, attempt: &Attempt<'_>, call: &Call<'_>) -> Result<(String, Principal), Failure> {
        let source = call.source.limited();
        let credential = attempt.credential();
        let named = match &credential {
            Credential::Basic(basic) => Named::Name(basic.user()),
            Credential::Absent | Credential::Bearer(_) | Credential::Malformed(_) | Credential::Unknown => {
                Named::Nobody
            }
        };
        let cost = self.chain.cost(attempt);
        // ORDER: before anything is verified. What is verified cheaply is not held up by what others did.
        if cost == Cost::Dear {
            self.strangers.stranger(source).map_err(|exceeded| self.throttled(call, &exceeded))?;
            self.strangers.may_try(source, named).map_err(|exceeded| self.throttled(call, &exceeded))?;
        }
        call.source.still_trusted(attempt.now).map_err(|distrust| {
            let rejection = Rejection::invalid(format!("the client certificate is not trusted: {distrust}"));
            self.refuse(call, NO_SCHEME, audit::Named::Nobody, &rejection)
        })?;
        let user = match named {
            Named::Name(name) => audit::Named::Hash(self.names.hide(name)),
            Named::Nobody => audit::Named::Nobody,
        };
        let (by, rejection) = match self.chain.judge(attempt).await {
            Judgement::Admitted { by, principal } => match self.sessions.denies(&principal) {
                Ok(false) => {
                    if cost == Cost::Dear {
                        self.strangers.succeeded(source, named);
                    }
                    return Ok((by, principal));
                }
                Ok(true) => (by, Rejection::invalid("the credential is on the list of revocations")),
                Err(unreadable) => (by, Rejection::unavailable(unreadable.to_string(), LIST_RETRY)),
            },
            Judgement::Refused { by, rejection } => (by, rejection),
            Judgement::Unclaimed { rejection } if presents_nothing(attempt) => {
                return Err(self.refuse(call, NO_SCHEME, user, &rejection));
            }
            Judgement::Unclaimed { rejection } => (NO_SCHEME.to_owned(), rejection),
        };
        let failure = self.refuse(call, &by, user, &rejection);
        match rejection.kind() {
            // Nothing was guessed.
            RejectKind::Unavailable { .. } => Err(failure),
            // The enum is open, and whatever comes is a failure. That of a header which only its scheme knows as well.
            RejectKind::Invalid | RejectKind::Malformed | _ => match self.strangers.failed(source, named) {
                Ok(()) => Err(failure),
                // One decision, one line: it was refused, and from here on it has to wait.
                Err(exceeded) => Err(wait(&exceeded)),
            },
        }
    }

    /// Whether an identity may call once more now.
    fn rights(&self, principal: &Principal, call: &Call<'_>) -> Result<(), Failure> {
        self.principals.check(principal).map_err(|exceeded| {
            let what = What::LimitExceeded { limit: exceeded.limit, principal: Some(principal) };
            self.audit.record(call.event(self.clock.now(), what));
            wait(&exceeded)
        })
    }

    /// A handshake that shows what a client would rather not show again makes a session. A bearer token goes on being
    /// used as it is: another one in the answer would replace it in some drivers (rule R6).
    fn handshake_session(
        &self,
        attempt: &Attempt<'_>,
        credential: &Credential<'_>,
        kind: CredentialKind,
        principal: &Principal,
    ) -> Result<(Arc<Session>, Minted, Cookie), Failure> {
        match kind {
            CredentialKind::Basic | CredentialKind::Certificate | CredentialKind::Other => {
                let binding = Binding::to(attempt.peer_certs);
                let (token, session) = self.sessions.open(principal, binding).map_err(no_session)?;
                Ok((session, Minted::Token(Arc::new(token)), Cookie::Nothing))
            }
            CredentialKind::Anonymous | CredentialKind::Bearer | CredentialKind::Session => self
                .session(attempt.headers, credential, kind, principal)
                .map(|(session, cookie)| (session, Minted::Nothing, cookie)),
        }
    }

    fn session(
        &self,
        headers: &HeaderMap,
        credential: &Credential<'_>,
        kind: CredentialKind,
        principal: &Principal,
    ) -> Result<(Arc<Session>, Cookie), Failure> {
        if let (Credential::Bearer(token), CredentialKind::Session) = (credential, kind) {
            let session = match self.sessions.by_token(token) {
                ByToken::Found(session) => session,
                // When it was judged there was no place for it, and there may be one now.
                ByToken::Elsewhere(foreign) => match self.sessions.adopt(foreign, principal.scheme()) {
                    Adopted::Here(session) => session,
                    Adopted::Full(_) => return Err(no_session(SessionRefused::TooMany)),
                    Adopted::Over => return Err(Failure::unauthenticated()),
                },
                // It may have ended since it was judged.
                ByToken::Nothing | ByToken::Unknown(_) => return Err(Failure::unauthenticated()),
            };
            // It may have been judged by somebody else's scheme.
            if session.principal().key() != principal.key() {
                return Err(Failure::unauthenticated());
            }
            return Ok((session, Cookie::Nothing));
        }
        if let Some(chosen) = self.sessions.by_cookie(principal, headers).map_err(no_session)? {
            return Ok((chosen, Cookie::Nothing));
        }
        let session = self.sessions.default_for(principal).map_err(no_session)?;
        let cookie = self.sessions.fresh_cookie(principal).map_err(no_session)?;
        Ok((session, Cookie::Offer(cookie)))
    }

    fn refuse(&self, call: &Call<'_>, by: &str, user: audit::Named, rejection: &Rejection) -> Failure {
        let (now, reason) = (self.clock.now(), rejection.reason());
        tracing::info!(request = call.request, peer = %call.source, scheme = by, reason, "not admitted");
        match rejection.kind() {
            RejectKind::Unavailable { retry_after } => {
                self.audit.record(call.event(now, What::AuthnUnavailable { scheme: by, reason }));
                Failure::new(Class::Unavailable, "authentication is unavailable for now")
                    .because(reason)
                    .retry_after(retry_after)
            }
            // The enum is open, and whatever comes is a refusal.
            RejectKind::Invalid | RejectKind::Malformed | _ => {
                self.audit.record(call.event(now, What::AuthnFailure { scheme: by, reason, call: call.name, user }));
                Failure::unauthenticated()
            }
        }
    }

    fn throttled(&self, call: &Call<'_>, exceeded: &Exceeded) -> Failure {
        let Exceeded { limit, retry_after, .. } = *exceeded;
        tracing::info!(request = call.request, peer = %call.source, limit, "over a limit");
        let what = What::AuthnThrottled { limit, retry_after, call: call.name };
        self.audit.record(call.event(self.clock.now(), what));
        wait(exceeded)
    }
}

fn wait(exceeded: &Exceeded) -> Failure {
    Failure::new(Class::ResourceExhausted, "too many requests: wait before the next one")
        .retry_after(exceeded.retry_after)
}

/// What log and audit say about a call.
struct Call<'a> {
    request: &'a str,
    source: &'a Source,
    name: &'static str,
}

impl<'a> Call<'a> {
    fn event(&self, time: SystemTime, what: What<'a>) -> Event<'a> {
        Event { time, origin: Origin::Call { request: self.request, peer: self.source.peer() }, what }
    }
}

/// Neither of the two places that every scheme looks at holds anything.
fn presents_nothing(attempt: &Attempt<'_>) -> bool {
    matches!(attempt.credential(), Credential::Absent) && attempt.peer_certs.is_empty()
}

/// What the credential was is in the principal; what it said must not reach a handler, a log or the cluster.
fn forget_credential(headers: &mut HeaderMap) {
    headers.remove(AUTHORIZATION);
    headers.remove(COOKIE);
}

fn no_session(refused: SessionRefused) -> Failure {
    match refused {
        SessionRefused::TooMany => {
            Failure::new(Class::ResourceExhausted, "too many sessions are open").retry_after(SESSION_RETRY)
        }
        SessionRefused::Unavailable => Failure::internal(refused),
    }
}

/// The RPC's name; what is none of Flight's has no name of its own, since a client chose it.
fn call_name(parts: &request::Parts) -> &'static str {
    let rpc = parts.uri.path().strip_prefix(SERVICE).unwrap_or_default();
    RPCS.iter().find(|known| **known == rpc).copied().unwrap_or("-")
}

const SERVICE: &str = "/arrow.flight.protocol.FlightService/";
/// Where a session token may be answered.
const HANDSHAKE: &str = "/arrow.flight.protocol.FlightService/Handshake";
const RPCS: [&str; 10] = [
    "DoAction",
    "DoExchange",
    "DoGet",
    "DoPut",
    "GetFlightInfo",
    "GetSchema",
    "Handshake",
    "ListActions",
    "ListFlights",
    "PollFlightInfo",
];
const SESSION_RETRY: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(1);
/// How long a call waits for its line in the audit log.
const AUDIT_WAIT: Duration = Duration::from_secs(5);
const LIST_RETRY: Duration = Duration::from_secs(5);
