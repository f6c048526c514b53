//! The gate: in front of every RPC, and the only way in.
//!
//! It names the call, asks the chain, and either answers with the one refusal or passes the request on with a
//! [`Caller`] and without its credential. Must not read a body or SQL, and must not tell a client why it was refused.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, SET_COOKIE, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Request, Response, request};
use portcullis_auth::{BoxFuture, Clock};
use tonic::body::Body;
use tower::{Layer, Service};

use crate::audit::{Audit, HidingKey};
use crate::limits::{Limiter, PerPrincipal};
use crate::status::{Class, Failure, RequestId};

pub mod caller;
pub mod chain;
pub mod revocations;
pub mod session;

mod body;
mod keeper;
mod source;

use body::{Life, Used, Whole};
use chain::{Chain, DuplicateName};
use keeper::{Admitted, CallKind, Cookie, Keeper};
use session::{SessionTokens, Sessions};

/// What a gate is made of.
#[derive(Debug)]
pub struct GateParts {
    /// Who may come in.
    pub chain: Chain,
    /// Where callers come back to.
    pub sessions: Arc<Sessions>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What strangers may take.
    pub strangers: Arc<Limiter>,
    /// What an identity may take.
    pub principals: Arc<PerPrincipal>,
    /// Where decisions are written down.
    pub audit: Audit,
    /// For how long nobody may read an answer before its call is given up.
    pub patience: Duration,
}

/// Puts a [`Gate`] in front of a service.
#[derive(Clone, Debug)]
pub struct GateLayer {
    keeper: Arc<Keeper>,
    patience: Duration,
}

impl GateLayer {
    /// A gate that asks for session tokens first and then the chain.
    pub fn new(parts: GateParts) -> Result<Self, DuplicateName> {
        let GateParts { chain, sessions, clock, strangers, principals, audit, patience } = parts;
        let makers = chain.schemes().map(Arc::clone).collect();
        let tokens = SessionTokens::new(Arc::clone(&sessions), makers, chain.certificates());
        let chain = chain.preceded_by(Arc::new(tokens))?;
        Ok(Self {
            keeper: Arc::new(Keeper {
                chain,
                sessions,
                clock,
                strangers,
                principals,
                audit,
                names: HidingKey::fresh(),
            }),
            patience,
        })
    }
}

impl<S> Layer<S> for GateLayer {
    type Service = Gate<S>;

    fn layer(&self, inner: S) -> Gate<S> {
        Gate { keeper: Arc::clone(&self.keeper), patience: self.patience, inner }
    }
}

/// A service that nobody reaches without a [`Caller`].
#[derive(Clone)]
pub struct Gate<S> {
    keeper: Arc<Keeper>,
    patience: Duration,
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
        let (keeper, patience) = (Arc::clone(&self.keeper), self.patience);
        // The clone that was polled ready is the one to call.
        let unready = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, unready);
        Box::pin(async move {
            let id = RequestId::fresh();
            let (mut parts, body) = request.into_parts();
            let kind = CallKind::of(&parts);
            match keeper.admit(&mut parts, id).await {
                Ok(_) if !is_grpc(&parts) => Ok(refusal(Failure::unimplemented("a call in this form"), id)),
                Ok(Admitted { in_use, ends, cookie }) => {
                    let body = if sends_a_stream(&parts) { body } else { Body::new(Whole::within(PATIENCE, body)) };
                    let mut response = inner.call(Request::from_parts(parts, body)).await?;
                    match kind {
                        CallKind::Handshake => (),
                        // Some drivers take any such header for a new token of theirs.
                        CallKind::Other => drop(response.headers_mut().remove(AUTHORIZATION)),
                    }
                    match cookie {
                        Cookie::Offer(cookie) => drop(response.headers_mut().insert(SET_COOKIE, cookie)),
                        Cookie::Nothing => (),
                    }
                    let life = Life::new(ends, Arc::clone(&keeper.clock), id);
                    Ok(response.map(|body| Body::new(Used::new(body, in_use, life, patience))))
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

/// What gRPC looks like; the server behind looks at neither.
fn is_grpc(parts: &request::Parts) -> bool {
    let media = parts.headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let form = media.strip_prefix(b"application/grpc").and_then(|rest| rest.first());
    parts.method == Method::POST && (media == b"application/grpc" || matches!(form, Some(b'+' | b';')))
}

/// Of these, handlers wait for the messages themselves.
fn sends_a_stream(parts: &request::Parts) -> bool {
    ["/DoExchange", "/DoPut", "/Handshake"].iter().any(|rpc| parts.uri.path().ends_with(rpc))
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

/// How long the one message of a call may take to arrive.
const PATIENCE: Duration = Duration::from_secs(20);
const CHALLENGE: &str = "Bearer realm=\"portcullis\"";

#[cfg(test)]
mod fakes;
#[cfg(test)]
mod tests;
