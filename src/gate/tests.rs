//! Nobody passes without a credential that a scheme vouches for, and nothing of the credential passes with them.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::convert::Infallible;

use parking_lot::Mutex;
use portcullis_auth::Expiry;
use tonic::Code;
use tower::ServiceExt;

use http::Extensions;
use std::net::SocketAddr;
use tonic::transport::server::TcpConnectInfo;

use super::caller::{Caller, CredentialKind};
use super::fakes::{Badge, FakeClock, HeaderBadge, Manner, POLICY, limits, limits_with, principal, replica, sessions};
use super::session::Binding;
use super::source::Source;
use super::*;
use crate::audit::SessionEnd;
use crate::limits::Rate;
use crate::listen::{Peer, PeerTls, Via};
use crate::seal::Sealer;

const HANDSHAKE: &str = "/arrow.flight.protocol.FlightService/Handshake";
const DO_GET: &str = "/arrow.flight.protocol.FlightService/DoGet";

/// A gate with schemes `red` (as told) and `any` (which admits whatever reaches it, except where it is left out).
struct Setup {
    clock: Arc<FakeClock>,
    sessions: Arc<Sessions>,
    inner: Inner,
    gate: Gate<Inner>,
}

/// Keeps what reaches it, and answers with an `authorization` header of its own.
#[derive(Clone, Default)]
struct Inner {
    seen: Arc<Mutex<Vec<Request<()>>>>,
}

impl Service<Request<Body>> for Inner {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.seen.lock().push(request.map(drop));
        let mut response = Response::new(Body::new(Endless));
        response.headers_mut().insert(AUTHORIZATION, HeaderValue::from_static("Bearer fresh"));
        std::future::ready(Ok(response))
    }
}

/// A stream that has more to say and has not said it yet.
struct Endless;

impl http_body::Body for Endless {
    type Data = bytes::Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, Infallible>>> {
        Poll::Pending
    }
}

impl Inner {
    fn calls(&self) -> usize {
        self.seen.lock().len()
    }

    fn last(&self) -> Request<()> {
        self.seen.lock().pop().unwrap()
    }
}

impl Setup {
    fn new(manner: Manner) -> Self {
        let clock = FakeClock::new();
        let (sessions, _) = sessions(&clock);
        Self::of(clock, Chain::new(Badge::new("red", manner)), sessions, limits())
    }

    fn of(
        clock: Arc<FakeClock>,
        chain: Chain,
        sessions: Arc<Sessions>,
        (strangers, principals): (Arc<Limiter>, Arc<PerPrincipal>),
    ) -> Self {
        let parts = GateParts {
            chain,
            sessions: sessions.clone(),
            clock: clock.clone(),
            strangers,
            principals,
            audit: Audit::off(),
            patience: Duration::from_secs(60),
        };
        let inner = Inner::default();
        let gate = GateLayer::new(parts).unwrap().layer(inner.clone());
        Self { clock, sessions, gate, inner }
    }

    async fn send(&self, request: Request<Body>) -> Response<Body> {
        self.gate.clone().oneshot(request).await.unwrap()
    }

    async fn call(&self, path: &str, credentials: &[&str]) -> Response<Body> {
        self.send(request(path, credentials)).await
    }
}

fn request(path: &str, credentials: &[&str]) -> Request<Body> {
    let mut request = Request::builder().uri(path).method("POST").header(CONTENT_TYPE, "application/grpc");
    for credential in credentials {
        request = request.header(AUTHORIZATION, *credential);
    }
    request.body(Body::empty()).unwrap()
}

fn code(response: &Response<Body>) -> Code {
    response.headers().get("grpc-status").map_or(Code::Ok, |code| Code::from_bytes(code.as_bytes()))
}

fn text<'a>(response: &'a Response<Body>, header: &str) -> &'a str {
    response.headers().get(header).map_or("", |value| value.to_str().unwrap())
}

#[tokio::test]
async fn an_admitted_call_arrives_with_its_caller_and_without_its_credential() {
    let setup = Setup::new(Manner::AdmitsGood);
    assert_eq!(code(&setup.call(DO_GET, &["Bearer red.alice"]).await), Code::Ok);
    let seen = setup.inner.last();
    let caller = Caller::from_extensions(seen.extensions()).unwrap();
    assert_eq!((caller.principal().name(), caller.credential()), ("alice", CredentialKind::Bearer));
    assert_eq!(seen.headers().get(AUTHORIZATION), None);

    setup.call(DO_GET, &["Bearer red.alice"]).await;
    let again = Caller::from_extensions(setup.inner.last().extensions()).unwrap();
    assert_eq!(again.session().id(), caller.session().id(), "the default session is the same");
    assert_ne!(again.request(), caller.request());
}

#[tokio::test]
async fn every_refusal_of_identity_reads_the_same() {
    let setup = Setup::new(Manner::AdmitsGood);
    assert_eq!(code(&setup.call(DO_GET, &["Bearer red.alice"]).await), Code::Ok);
    let mut answers = Vec::new();
    for credentials in [
        &[][..],
        &["Bearer red.bad"],
        &["Bearer nobody"],
        &["Bearer ps1.AAAA"],
        &["Bearer red.alice", "Bearer red.alice"],
        &["Bearer red.alice, Bearer red.bob"],
        &["Basic !!!"],
        &["Basic YTpi"],
        &["Negotiate abc"],
    ] {
        for path in [DO_GET, HANDSHAKE, "/no.such.Service/Nothing", "/", "//", "/grpc.health.v1.Healthy/Check"] {
            let response = setup.call(path, credentials).await;
            assert_eq!(code(&response), Code::Unauthenticated, "{path} {credentials:?}");
            assert_eq!(response.status(), 200);
            assert_eq!(text(&response, "content-type"), "application/grpc");
            assert_eq!(text(&response, "www-authenticate"), CHALLENGE);
            assert_eq!(response.headers().get(AUTHORIZATION), None);
            answers.push(response.headers().clone());
        }
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(setup.inner.calls(), 1, "only the first call went through");
}

#[tokio::test]
async fn a_caller_that_somebody_left_in_the_request_counts_for_nothing() {
    let setup = Setup::new(Manner::AdmitsGood);
    setup.call(DO_GET, &["Bearer red.admin"]).await;
    let admin = Caller::from_extensions(setup.inner.last().extensions()).unwrap();

    let mut forged = request(DO_GET, &[]);
    forged.extensions_mut().insert(admin.clone());
    assert_eq!(code(&setup.send(forged).await), Code::Unauthenticated);
    let mut forged = request(DO_GET, &["Bearer red.alice"]);
    forged.extensions_mut().insert(admin);
    setup.send(forged).await;
    assert_eq!(Caller::from_extensions(setup.inner.last().extensions()).unwrap().principal().name(), "alice");
}

#[test]
fn a_request_that_did_not_pass_the_gate_has_no_caller() {
    let failure = Caller::from_extensions(&Extensions::new()).unwrap_err();
    assert_eq!(failure.class(), Class::Unauthenticated);
}

#[tokio::test]
async fn a_session_token_leads_to_its_session_until_that_ends() {
    let setup = Setup::new(Manner::AdmitsGood);
    let (token, session) = setup.sessions.open(&principal("alice", "guest", Expiry::Never), Binding::Free).unwrap();
    let bearer = token.bearer().unwrap();
    let bearer = bearer.to_str().unwrap();
    assert_eq!(code(&setup.call(DO_GET, &[bearer]).await), Code::Ok);
    let caller = Caller::from_extensions(setup.inner.last().extensions()).unwrap();
    assert_eq!(caller.session().id(), session.id());
    assert_eq!((caller.principal().name(), caller.credential()), ("alice", CredentialKind::Session));

    setup.sessions.end(session.id(), SessionEnd::Closed);
    assert_eq!(code(&setup.call(DO_GET, &[bearer]).await), Code::Unauthenticated);
}

#[tokio::test]
async fn a_scheme_that_claims_session_tokens_cannot_borrow_a_session() {
    let setup = Setup::new(Manner::AdmitsAnything);
    assert_eq!(code(&setup.call(DO_GET, &["Bearer red.alice"]).await), Code::Ok);
    assert_eq!(code(&setup.call(DO_GET, &["Bearer ps1.AAAA"]).await), Code::Unauthenticated);
}

#[tokio::test]
async fn a_session_is_in_use_until_its_response_has_been_read() {
    let setup = Setup::new(Manner::AdmitsGood);
    let response = setup.call(DO_GET, &["Bearer red.alice"]).await;
    setup.clock.advance(POLICY.idle * 2);
    assert_eq!(setup.sessions.sweep(), 0);
    drop(response);
    setup.clock.advance(POLICY.idle);
    assert_eq!(setup.sessions.sweep(), 1);
}

#[tokio::test]
async fn only_the_handshake_answers_with_a_token() {
    let setup = Setup::new(Manner::AdmitsGood);
    assert_eq!(text(&setup.call(HANDSHAKE, &["Bearer red.alice"]).await, "authorization"), "Bearer fresh");
    for path in [DO_GET, "/arrow.flight.protocol.FlightService/Handshake/", "/Handshake"] {
        assert_eq!(setup.call(path, &["Bearer red.alice"]).await.headers().get(AUTHORIZATION), None, "{path}");
    }
}

#[tokio::test]
async fn a_scheme_that_is_down_makes_the_call_unavailable() {
    for manner in [Manner::Unavailable, Manner::Panics, Manner::Hangs] {
        let setup = Setup::new(manner);
        let response = setup.call(DO_GET, &["Bearer red.alice"]).await;
        assert_eq!(code(&response), Code::Unavailable, "{manner:?}");
        assert_eq!(text(&response, "grpc-message"), "authentication%20is%20unavailable%20for%20now");
        assert!(response.headers().contains_key("grpc-status-details-bin"), "carries RetryInfo");
        assert_eq!(setup.inner.calls(), 0);
    }
}

#[tokio::test]
async fn when_no_session_can_be_had_the_limit_is_named() {
    let setup = Setup::new(Manner::AdmitsGood);
    for at in 0..POLICY.max_total {
        assert_eq!(code(&setup.call(DO_GET, &[&format!("Bearer red.user-{at}")]).await), Code::Ok);
    }
    let response = setup.call(DO_GET, &["Bearer red.late"]).await;
    assert_eq!(code(&response), Code::ResourceExhausted);
    assert_eq!(response.headers().get(WWW_AUTHENTICATE), None);
    assert!(response.headers().contains_key("grpc-status-details-bin"), "carries RetryInfo");
    assert_eq!(code(&setup.call(DO_GET, &["Bearer red.user-0"]).await), Code::Ok, "those inside stay inside");
}

#[tokio::test]
async fn a_session_of_another_gate_is_told_that_this_one_is_full() {
    let (clock, sealer) = (FakeClock::new(), Arc::new(Sealer::random().unwrap()));
    let (first, full) = (replica(&clock, &sealer), replica(&clock, &sealer));
    let setup = Setup::of(clock, Chain::new(Badge::new("red", Manner::AdmitsGood)), full.clone(), limits());
    let (token, session) = first.open(&principal("alice", "guest", Expiry::Never), Binding::Free).unwrap();
    let bearer = token.bearer().unwrap();
    let bearer = bearer.to_str().unwrap();
    let mut others: Vec<_> = (0..POLICY.max_total)
        .map(|at| full.open(&principal(&format!("user-{at}"), "guest", Expiry::Never), Binding::Free).unwrap().1)
        .collect();

    let response = setup.call(DO_GET, &[bearer]).await;
    assert_eq!(code(&response), Code::ResourceExhausted);
    assert_eq!(text(&response, "grpc-message"), "too%20many%20sessions%20are%20open");
    assert_eq!(response.headers().get(WWW_AUTHENTICATE), None);
    assert!(response.headers().contains_key("grpc-status-details-bin"), "carries RetryInfo");
    assert_eq!(setup.inner.calls(), 0);

    full.end(others.pop().unwrap().id(), SessionEnd::Closed);
    assert_eq!(code(&setup.call(DO_GET, &[bearer]).await), Code::Ok);
    let caller = Caller::from_extensions(setup.inner.last().extensions()).unwrap();
    assert_eq!((caller.session().id(), caller.credential()), (session.id(), CredentialKind::Session));
}

#[tokio::test]
async fn failures_in_a_header_of_an_embedders_own_count_and_its_absence_does_not() {
    let clock = FakeClock::new();
    let (sessions, _) = sessions(&clock);
    let setup = Setup::of(clock, Chain::new(Arc::new(HeaderBadge)), sessions, limits_with(Rate::per_minute(3)));
    let call = async |badge: Option<&'static str>| {
        let mut request = request(DO_GET, &[]);
        request
            .headers_mut()
            .extend(badge.map(|badge| (http::HeaderName::from_static("x-badge"), HeaderValue::from_static(badge))));
        code(&setup.send(request).await)
    };
    assert_eq!(call(Some("good")).await, Code::Ok);
    for _ in 0..20 {
        assert_eq!(call(None).await, Code::Unauthenticated);
        assert_eq!(call(Some("away")).await, Code::Unavailable);
    }
    for _ in 0..3 {
        assert_eq!(call(Some("bad")).await, Code::Unauthenticated);
    }
    assert_eq!(call(Some("bad")).await, Code::ResourceExhausted);
    assert_eq!(call(Some("good")).await, Code::ResourceExhausted, "what is dear to judge waits");
}

#[tokio::test]
async fn the_address_comes_from_our_listener_or_from_the_embedders_server() {
    let addr: SocketAddr = "192.0.2.7:4711".parse().unwrap();
    let mut extensions = Extensions::new();
    assert_eq!(Source::of(&extensions).to_string(), "-");
    extensions.insert(TcpConnectInfo { local_addr: None, remote_addr: Some(addr) });
    assert_eq!(Source::of(&extensions).to_string(), "192.0.2.7:4711");
    extensions.insert(Peer { addr: "192.0.2.8:1".parse().unwrap(), tls: PeerTls::Plain, via: Via::Direct });
    let source = Source::of(&extensions);
    assert_eq!((source.to_string().as_str(), source.certificates().len()), ("192.0.2.8:1", 0));
}

#[test]
fn the_name_session_is_taken() {
    let clock = FakeClock::new();
    let layer = |name| {
        let (strangers, principals) = limits();
        GateLayer::new(GateParts {
            chain: Chain::new(Badge::new(name, Manner::AdmitsGood)),
            sessions: sessions(&clock).0,
            clock: clock.clone(),
            strangers,
            principals,
            audit: Audit::off(),
            patience: Duration::from_secs(60),
        })
    };
    assert!(layer("red").is_ok());
    assert!(layer("session").is_err());
}
