//! Every layer of the server, outermost first, each once and with its reason.
//!
//! Names all layers and decides nothing. The health service is the one thing outside the gate, in sight below.

mod deadline;

use std::any::Any;
use std::convert::Infallible;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use http::header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION};
use http::{Request, Response};
use tonic::body::Body;
use tonic::service::Routes;
use tonic::transport::Server;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::load_shed::error::Overloaded;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::sensitive_headers::SetSensitiveRequestHeadersLayer;

use self::deadline::Wait;
use crate::gate::GateLayer;
use crate::status::{Class, Failure, RequestId};

/// What one server may take on at a time.
#[derive(Clone, Copy, Debug)]
pub struct StackLimits {
    /// Calls of all connections that have not answered yet; one more is refused at once. A stream counts until its
    /// first message.
    pub calls: usize,
    /// Streams of one connection; a client opens one per endpoint it reads, and some for control calls.
    pub streams_per_connection: u32,
    /// When a client is told to open another connection.
    pub connection_age: Duration,
}

impl Default for StackLimits {
    fn default() -> Self {
        Self { calls: 8192, streams_per_connection: 256, connection_age: Duration::from_secs(30 * 60) }
    }
}

/// The whole service, for [`Server::serve_with_incoming_shutdown`].
pub type Stack = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// The HTTP/2 side of the server. Every limit is written out: tonic's builder hands hyper "no limit" for several of
/// those it is not told.
pub fn server(limits: &StackLimits) -> Server {
    Server::builder()
        .max_concurrent_streams(limits.streams_per_connection)
        // Streams that our side had to reset for malformed requests; then the connection goes (RUSTSEC-2024-0003).
        .http2_max_local_error_reset_streams(Some(1024))
        // Streams the client reset before they were looked at ("rapid reset", CVE-2023-44487).
        .http2_max_pending_accept_reset_streams(Some(20))
        // Identity providers issue tokens of 30 KiB.
        .http2_max_header_list_size(64 * 1024)
        // A client that vanished is noticed within a minute, and its queries are cancelled.
        .http2_keepalive_interval(Some(Duration::from_secs(30)))
        .http2_keepalive_timeout(Some(Duration::from_secs(20)))
        // A connection is told to end after a while, and its running streams may: nobody sits on a place for ever.
        // (With a grace as well, tonic would cut it off and never say so.)
        .max_connection_age(limits.connection_age)
        // Uploads in bulk need room on the way; adaptive windows would grow without asking the memory.
        .http2_adaptive_window(Some(false))
        .initial_stream_window_size(4 * 1024 * 1024)
        .initial_connection_window_size(16 * 1024 * 1024)
        // Frames that clients may send. Each is buffered whole, before anybody has signed in.
        .max_frame_size(256 * 1024)
        // Flight is HTTP/2 only.
        .accept_http1(false)
}

/// Health beside the gate, everything else behind it: a path that nobody serves is refused to strangers before
/// it is unimplemented to friends.
pub fn service(limits: &StackLimits, gate: GateLayer, health: Routes, flight: Routes) -> Stack {
    let gated = ServiceBuilder::new()
        // ORDER: before the gate, so that guessing cannot queue up work behind a full server.
        .load_shed()
        .layer(GlobalConcurrencyLimitLayer::new(limits.calls))
        // Nothing below runs without a `Caller`.
        .layer(gate)
        .service(flight);

    let stack = ServiceBuilder::new()
        // A body of one type for all of them.
        .map_response(|response: Response<_>| response.map(Body::new))
        // ORDER: outermost, so that a panic anywhere is an answer and not a lost connection.
        .layer(CatchPanicLayer::custom(panicked))
        // ORDER: before anything that may log a request.
        .layer(SetSensitiveRequestHeadersLayer::new([AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION]))
        .service(Front { health, gated });
    BoxCloneSyncService::new(stack)
}

/// Sends health checks to the health service and all other paths to the gate.
#[derive(Clone, Debug)]
struct Front<G> {
    health: Routes,
    gated: G,
}

impl<G> Service<Request<Body>> for Front<G>
where
    G: Service<Request<Body>, Response = Response<Body>, Error = BoxError> + Clone + Send + 'static,
    G::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = portcullis_auth::BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Which of the two has to be ready is known with the request.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // Nothing of Flight is mounted there, so a path that is twisted to look like health finds nothing else.
        if request.uri().path().starts_with(HEALTH) {
            Box::pin(self.health.clone().oneshot(request))
        } else {
            let wait = Wait::of(request.headers());
            Box::pin(deadline::within(wait, self.gated.clone().oneshot(request).map(answered)))
        }
    }
}

/// A layer that gives up is answered for, too.
fn answered(result: Result<Response<Body>, BoxError>) -> Result<Response<Body>, Infallible> {
    Ok(result.unwrap_or_else(|problem| {
        let failure = if problem.is::<Overloaded>() {
            Failure::new(Class::ResourceExhausted, "the server is busy").retry_after(BUSY_RETRY)
        } else {
            Failure::internal(problem)
        };
        failure.into_status(&RequestId::fresh()).into_http()
    }))
}

fn panicked(_payload: Box<dyn Any + Send>) -> Response<Body> {
    // The panic hook has told the operator; the payload may quote data.
    Failure::internal("a handler panicked").into_status(&RequestId::fresh()).into_http()
}

const HEALTH: &str = "/grpc.health.v1.Health/";
const BUSY_RETRY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
