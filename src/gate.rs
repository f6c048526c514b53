//! The gate: in front of every RPC, and the only way in.
//!
//! It names the call, asks the chain, and either answers with the one refusal or passes the request on with a
//! [`Caller`] and without its credential. Must not read a body or SQL, and must not tell a client why it was refused.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{Extensions, HeaderMap, HeaderValue, Request, Response, request};
use portcullis_auth::{Attempt, BoxFuture, Clock, Credential, Principal, RejectKind, Rejection};
use rustls_pki_types::CertificateDer;
use tonic::body::Body;
use tonic::transport::server::TcpConnectInfo;
use tower::{Layer, Service};

use crate::listen::{Peer, PeerTls};
use crate::status::{Class, Failure, RequestId};

pub mod caller;
pub mod chain;
pub mod session;

mod body;

use body::Used;
use caller::{Caller, CredentialKind, Minted};
use chain::{Chain, DuplicateName, Judgement};
use session::{InUse, Session, SessionRefused, SessionTokens, Sessions};

/// Puts a [`Gate`] in front of a service.
#[derive(Clone, Debug)]
pub struct GateLayer {
    keeper: Arc<Keeper>,
}

impl GateLayer {
    /// A gate that asks for session tokens first and then `chain`.
    pub fn new(chain: Chain, sessions: Arc<Sessions>, clock: Arc<dyn Clock>) -> Result<Self, DuplicateName> {
        let makers = chain.schemes().map(Arc::clone).collect();
        let chain = chain.preceded_by(Arc::new(SessionTokens::new(Arc::clone(&sessions), makers)))?;
        Ok(Self { keeper: Arc::new(Keeper { chain, sessions, clock }) })
    }
}

impl<S> Layer<S> for GateLayer {
    type Service = Gate<S>;

    fn layer(&self, inner: S) -> Gate<S> {
        Gate { keeper: Arc::clone(&self.keeper), inner }
    }
}

/// A service that nobody reaches without a [`Caller`].
#[derive(Clone)]
pub struct Gate<S> {
    keeper: Arc<Keeper>,
    inner: S,
}

impl<S> Service<Request<Body>> for Gate<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let keeper = Arc::clone(&self.keeper);
        // The clone that was polled ready is the one to call.
        let unready = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, unready);
        Box::pin(async move {
            let id = RequestId::fresh();
            let (mut parts, body) = request.into_parts();
            let kind = call_kind(&parts);
            match keeper.admit(&mut parts, id).await {
                Ok(in_use) => {
                    let mut response = inner.call(Request::from_parts(parts, body)).await?;
                    match kind {
                        CallKind::Handshake => (),
                        // Some drivers take any such header for a new token of theirs.
                        CallKind::Other => drop(response.headers_mut().remove(AUTHORIZATION)),
                    }
                    Ok(response.map(|body| Body::new(Used::new(body, in_use))))
                }
                Err(failure) => Ok(refusal(failure, id)),
            }
        })
    }
}

impl<S> fmt::Debug for Gate<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("keeper", &self.keeper).finish_non_exhaustive()
    }
}

/// What every clone of a gate shares.
#[derive(Debug)]
struct Keeper {
    chain: Chain,
    sessions: Arc<Sessions>,
    clock: Arc<dyn Clock>,
}

impl Keeper {
    /// On success the request carries a [`Caller`] and no credential; otherwise it goes nowhere.
    async fn admit(&self, parts: &mut request::Parts, id: RequestId) -> Result<InUse, Failure> {
        // INVARIANT: whatever an outer layer may have left there, a caller is what this gate made.
        parts.extensions.remove::<Caller>();
        let source = Source::of(&parts.extensions);
        let certificates = source.certificates();

        let mut attempt = Attempt::new(&parts.headers, self.clock.now()).with_peer_certs(certificates);
        if let Some(addr) = source.addr() {
            attempt = attempt.with_peer_addr(addr);
        }
        let (by, principal) = match self.chain.judge(&attempt).await {
            Judgement::Admitted { by, principal } => (by, principal),
            Judgement::Refused { by, rejection } => {
                let reason = rejection.reason();
                tracing::info!(request = %id, peer = %source, scheme = %by, reason, "not admitted");
                return Err(refused(&rejection));
            }
        };

        let credential = attempt.credential();
        let kind = CredentialKind::of(&credential, certificates.len());
        let found = match call_kind(parts) {
            CallKind::Handshake => self.handshake_session(&credential, kind, &principal),
            CallKind::Other => self.session(&credential, kind, &principal).map(|session| (session, Minted::Nothing)),
        };
        let (session, minted) = match found {
            Ok(found) => found,
            Err(failure) => {
                let (principal, reason) = (principal.name(), failure.sentence());
                tracing::info!(request = %id, peer = %source, scheme = %by, principal, reason, "no session");
                return Err(failure);
            }
        };
        let (name, at) = (principal.name(), session.id());
        tracing::debug!(request = %id, peer = %source, scheme = %by, principal = name, session = %at, "admitted");
        let in_use = self.sessions.begin(&session);
        forget_credential(&mut parts.headers);
        parts.extensions.insert(Caller::admitted(principal, session, id, kind, minted));
        Ok(in_use)
    }

    /// A handshake that shows what a client would rather not show again makes a session. A bearer token goes on being
    /// used as it is: another one in the answer would replace it in some drivers (rule R6).
    fn handshake_session(
        &self,
        credential: &Credential<'_>,
        kind: CredentialKind,
        principal: &Principal,
    ) -> Result<(Arc<Session>, Minted), Failure> {
        match kind {
            CredentialKind::Basic | CredentialKind::Certificate | CredentialKind::Other => {
                let (token, session) = self.sessions.open(principal).map_err(no_session)?;
                Ok((session, Minted::Token(Arc::new(token))))
            }
            CredentialKind::Anonymous | CredentialKind::Bearer | CredentialKind::Session => {
                self.session(credential, kind, principal).map(|session| (session, Minted::Nothing))
            }
        }
    }

    fn session(
        &self,
        credential: &Credential<'_>,
        kind: CredentialKind,
        principal: &Principal,
    ) -> Result<Arc<Session>, Failure> {
        if let (Credential::Bearer(token), CredentialKind::Session) = (credential, kind) {
            return self
                .sessions
                .by_token(token)
                // It may have ended since it was judged, and it may have been judged by somebody else's scheme.
                .filter(|session| session.principal().key() == principal.key())
                .ok_or_else(Failure::unauthenticated);
        }
        self.sessions.default_for(principal).map_err(no_session)
    }
}

/// Whether a call may make a session.
#[derive(Clone, Copy)]
enum CallKind {
    Handshake,
    Other,
}

fn call_kind(parts: &request::Parts) -> CallKind {
    if parts.uri.path() == HANDSHAKE { CallKind::Handshake } else { CallKind::Other }
}

/// Where a request came from, as far as its server says.
enum Source {
    /// Over a listener of ours.
    Listener(Peer),
    /// Over an embedder's server, which tells the address only.
    Mounted(SocketAddr),
    /// The server says nothing.
    Unknown,
}

impl Source {
    fn of(extensions: &Extensions) -> Self {
        if let Some(peer) = extensions.get::<Peer>() {
            return Self::Listener(peer.clone());
        }
        extensions.get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr).map_or(Self::Unknown, Self::Mounted)
    }

    fn addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Listener(peer) => Some(peer.addr),
            Self::Mounted(addr) => Some(*addr),
            Self::Unknown => None,
        }
    }

    fn certificates(&self) -> &[CertificateDer<'static>] {
        match self {
            Self::Listener(Peer { tls: PeerTls::Mutual(chain), .. }) => chain,
            Self::Listener(Peer { tls: PeerTls::Plain | PeerTls::Tls, .. }) | Self::Mounted(_) | Self::Unknown => &[],
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.addr() {
            Some(addr) => addr.fmt(f),
            None => f.write_str("-"),
        }
    }
}

/// What the credential was is in the principal; what it said must not reach a handler, a log or the cluster.
fn forget_credential(headers: &mut HeaderMap) {
    headers.remove(AUTHORIZATION);
}

fn refused(rejection: &Rejection) -> Failure {
    match rejection.kind() {
        RejectKind::Unavailable { retry_after } => {
            Failure::new(Class::Unavailable, "authentication is unavailable for now")
                .because(rejection.reason())
                .retry_after(retry_after)
        }
        // The enum is open, and whatever comes is a refusal.
        RejectKind::Invalid | RejectKind::Malformed | _ => Failure::unauthenticated(),
    }
}

fn no_session(refused: SessionRefused) -> Failure {
    match refused {
        SessionRefused::TooMany => {
            Failure::new(Class::ResourceExhausted, "too many sessions are open").retry_after(SESSION_RETRY)
        }
        SessionRefused::Unavailable => Failure::internal(refused),
    }
}

/// A response of headers alone, as gRPC wants it; never an HTTP error, which drivers do not understand.
fn refusal(failure: Failure, id: RequestId) -> Response<Body> {
    let challenge = failure.class() == Class::Unauthenticated;
    let mut response: Response<Body> = failure.into_status(&id).into_http();
    if challenge {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(CHALLENGE));
    }
    response
}

/// Where a session token may be answered.
const HANDSHAKE: &str = "/arrow.flight.protocol.FlightService/Handshake";
const CHALLENGE: &str = "Bearer realm=\"portcullis\"";
const SESSION_RETRY: Duration = Duration::from_secs(10);

#[cfg(test)]
mod fakes;
#[cfg(test)]
mod tests;
