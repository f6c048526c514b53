//! Health for everybody, Flight for callers, and an answer even for a panic.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

use std::sync::Arc;

use http::HeaderValue;
use parking_lot::Mutex;
use portcullis_auth::{
    Assertion, Attempt, Authenticator, BoxFuture, Credential, Expiry, Principal, Standing, SystemClock, Verdict,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic::server::NamedService;

use super::*;
use crate::audit::{Audit, SessionEnd};
use crate::gate::GateParts;
use crate::gate::caller::Caller;
use crate::gate::chain::Chain;
use crate::gate::session::{Session, SessionEnded, SessionPolicy, Sessions, Sharing};
use crate::limits::{Limiter, PerPrincipal, Rate, Rates, Ticks};
use crate::listen::{ListenLimits, Listener, Peer, Transport};
use crate::seal::Sealer;

const GOOD: &str = "Bearer good";
const CHECK: &str = "/grpc.health.v1.Health/Check";
const OK: &str = "/arrow.flight.protocol.FlightService/DoGet";
const PANIC: &str = "/arrow.flight.protocol.FlightService/DoPut";
const WAIT: &str = "/arrow.flight.protocol.FlightService/DoAction";

#[derive(Debug)]
struct OneToken;

impl Authenticator for OneToken {
    fn scheme(&self) -> &'static str {
        "one"
    }

    fn name(&self) -> &str {
        "one"
    }

    fn authenticate<'a>(&'a self, attempt: &'a Attempt<'a>) -> BoxFuture<'a, Verdict> {
        let admit = matches!(attempt.credential(), Credential::Bearer(token) if token.starts_with("good"));
        Box::pin(async move {
            if !admit {
                return Verdict::Abstain;
            }
            let who = Assertion {
                name: "alice".to_owned(),
                scheme: "one",
                authority: "one".to_owned(),
                subject: "alice".to_owned(),
                roles: [].into(),
                attributes: [].into(),
                expires: Expiry::Never,
                credential_id: "1".to_owned(),
            };
            Verdict::Admit(Principal::assertion(who).unwrap())
        })
    }

    fn standing(&self, _principal: &Principal, _now: std::time::SystemTime) -> Standing {
        Standing::Good
    }
}

#[derive(Debug)]
struct Nothing;

impl SessionEnded for Nothing {
    fn ended(&self, _session: &Session, _why: SessionEnd) {}
}

/// Answers, panics or waits, by path; keeps the peer it saw.
#[derive(Clone, Default)]
struct Flight {
    entered: Arc<Notify>,
    peer: Arc<Mutex<Vec<Peer>>>,
}

impl NamedService for Flight {
    const NAME: &'static str = "arrow.flight.protocol.FlightService";
}

impl Service<Request<Body>> for Flight {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            assert_eq!(Caller::from_extensions(request.extensions()).unwrap().principal().name(), "alice");
            this.peer.lock().extend(request.extensions().get::<Peer>().cloned());
            match request.uri().path() {
                OK => Ok(Failure::new(Class::NotFound, "no such ticket").into_status(&RequestId::fresh()).into_http()),
                WAIT => {
                    this.entered.notify_one();
                    std::future::pending().await
                }
                _ => panic!("a bug in a handler"),
            }
        })
    }
}

fn gate() -> GateLayer {
    let policy = SessionPolicy {
        idle: Duration::from_secs(60),
        lifetime: Duration::from_secs(600),
        max_per_principal: 4,
        max_total: 16,
    };
    let sealer = Arc::new(Sealer::random().unwrap());
    let clock = Arc::new(SystemClock);
    let sessions = Arc::new(Sessions::new(sealer, clock.clone(), policy, Sharing::Alone, Arc::new(Nothing)));
    GateLayer::new(GateParts {
        chain: Chain::new(Arc::new(OneToken)),
        sessions,
        clock,
        strangers: strangers(),
        principals: Arc::new(PerPrincipal::new(Rate::per_second(1000), [].into(), &Ticks::start())),
        audit: Audit::off(),
        patience: Duration::from_secs(60),
    })
    .unwrap()
}

fn strangers() -> Arc<Limiter> {
    let rate = Rate::per_second(1000);
    let rates = Rates { preauth_per_ip: rate, failed_auth_per_ip: rate, failed_auth_per_name: rate };
    Arc::new(Limiter::new(rates, Ticks::start()))
}

fn listen_limits() -> ListenLimits {
    ListenLimits {
        connections: 4,
        connections_per_ip: 4,
        handshake_timeout: Duration::from_secs(60),
        strangers: strangers(),
        trusted_proxies: Vec::new(),
        audit: Audit::off(),
        clock: Arc::new(SystemClock),
    }
}

fn stack(limits: &StackLimits, flight: Flight) -> Stack {
    let (_reporter, health) = tonic_health::server::health_reporter();
    service(limits, gate(), Routes::new(health), Routes::new(flight))
}

fn request(path: &str, credential: &str) -> Request<Body> {
    // An empty message is a valid health check.
    let body = Body::new(http_body_of(&[0, 0, 0, 0, 0]));
    let mut request = Request::builder().method("POST").uri(path).header("content-type", "application/grpc");
    if !credential.is_empty() {
        request = request.header(AUTHORIZATION, credential);
    }
    request.body(body).unwrap()
}

fn http_body_of(bytes: &'static [u8]) -> impl http_body::Body<Data = bytes::Bytes, Error = Infallible> {
    struct Once(Option<bytes::Bytes>);
    impl http_body::Body for Once {
        type Data = bytes::Bytes;
        type Error = Infallible;
        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            _cx: &mut Context<'_>,
        ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, Infallible>>> {
            Poll::Ready(self.0.take().map(|bytes| Ok(http_body::Frame::data(bytes))))
        }
    }
    Once(Some(bytes::Bytes::from_static(bytes)))
}

async fn code(stack: &Stack, path: &str, credential: &str) -> Code {
    let response = stack.clone().oneshot(request(path, credential)).await.unwrap();
    assert_eq!(response.status(), 200);
    response.headers().get("grpc-status").map_or(Code::Ok, |code| Code::from_bytes(code.as_bytes()))
}

#[tokio::test]
async fn only_health_is_outside_the_gate() {
    let stack = stack(&StackLimits::default(), Flight::default());
    assert_eq!(code(&stack, CHECK, "").await, Code::Ok);
    assert_eq!(code(&stack, OK, GOOD).await, Code::NotFound, "the handler's own answer");
    for path in [OK, PANIC, "/", "//", "/x", "/grpc.health.v1.Health", "/grpc.health.v1.health/Check"] {
        assert_eq!(code(&stack, path, "").await, Code::Unauthenticated, "{path}");
    }
    // What is not Flight's is unknown, to callers only; and health serves nothing but health.
    assert_eq!(code(&stack, "/no.such.Service/Nothing", GOOD).await, Code::Unimplemented);
    for path in ["/grpc.health.v1.Health/Nope", "/grpc.health.v1.Health/../arrow.flight.protocol.FlightService/DoGet"] {
        assert_eq!(code(&stack, path, "").await, Code::Unimplemented, "{path}");
    }
}

#[tokio::test]
async fn a_panic_is_an_internal_error_that_tells_nothing() {
    let stack = stack(&StackLimits::default(), Flight::default());
    let response = stack.clone().oneshot(request(PANIC, GOOD)).await.unwrap();
    assert_eq!(response.headers().get("grpc-status"), Some(&HeaderValue::from_static("13")));
    let message = response.headers().get("grpc-message").unwrap().to_str().unwrap();
    assert!(message.starts_with("internal%20error") && !message.contains("bug"), "{message}");
    assert_eq!(code(&stack, OK, GOOD).await, Code::NotFound, "the next call is served");
}

#[tokio::test]
async fn a_full_server_says_so_and_stays_healthy() {
    let flight = Flight::default();
    let stack = stack(&StackLimits { calls: 1, ..StackLimits::default() }, flight.clone());
    let waiting = tokio::spawn(stack.clone().oneshot(request(WAIT, GOOD)));
    flight.entered.notified().await;
    assert_eq!(code(&stack, OK, GOOD).await, Code::ResourceExhausted);
    assert_eq!(code(&stack, CHECK, "").await, Code::Ok);
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    assert_eq!(code(&stack, OK, GOOD).await, Code::NotFound);
}

#[tokio::test]
async fn the_limits_of_http2_are_announced_and_a_flood_of_malformed_calls_is_cut_off() {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let (addr, shutdown) = (listener.local_addr().unwrap(), CancellationToken::new());
    let listen = listen_limits();
    let incoming = listener.into_incoming(Transport::DangerPlaintext, listen, shutdown.clone());
    let limits = StackLimits::default();
    let serving = tokio::spawn(server(&limits).serve_with_incoming_shutdown(
        stack(&limits, Flight::default()),
        incoming,
        shutdown.clone().cancelled_owned(),
    ));

    let mut socket = tokio::net::TcpStream::connect(addr).await.unwrap();
    let (mut reader, mut writer) = socket.split();
    let flood = async {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frame(4, 0, 0, &[]));
        // A request with `:status: 200` among its pseudo-headers.
        (0..1100_u32).for_each(|at| bytes.extend(frame(1, 0x5, at * 2 + 1, &[0x82, 0x86, 0x84, 0x88])));
        // Fails when the server hangs up early, which is what is asked of it.
        drop(writer.write_all(&bytes).await);
    };
    let mut answer = Vec::new();
    let (_, _) = tokio::join!(flood, reader.read_to_end(&mut answer));
    let frames = frames(&answer);

    let (_, settings) = frames.iter().find(|(kind, _)| *kind == 4).unwrap();
    let settings: Vec<_> = settings.chunks_exact(6).collect();
    assert!(settings.contains(&&[0, 3, 0, 0, 1, 0][..]), "256 streams: {settings:?}");
    assert!(settings.contains(&&[0, 6, 0, 1, 0, 0][..]), "64 KiB of headers: {settings:?}");
    let resets = frames.iter().filter(|(kind, _)| *kind == 3).count();
    assert!((1..=1025).contains(&resets), "{resets}");
    // GOAWAY with ENHANCE_YOUR_CALM.
    assert!(frames.iter().any(|(kind, goaway)| *kind == 7 && goaway.get(4..8) == Some(&[0, 0, 0, 11])));

    drop(socket);
    shutdown.cancel();
    serving.await.unwrap().unwrap();
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [length.split_at(1).1, &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Kind and payload of every whole frame.
fn frames(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    while let Some((&[a, b, c, kind, _, _, _, _, _], rest)) = bytes.split_first_chunk::<9>() {
        let length = usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap();
        let Some((payload, rest)) = rest.split_at_checked(length) else { break };
        frames.push((kind, payload.to_vec()));
        bytes = rest;
    }
    frames
}

#[tokio::test]
async fn over_the_wire_a_long_token_passes_and_the_handler_sees_the_peer() {
    let flight = Flight::default();
    let limits = StackLimits::default();
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let (addr, shutdown) = (listener.local_addr().unwrap(), CancellationToken::new());
    let listen = listen_limits();
    let incoming = listener.into_incoming(Transport::DangerPlaintext, listen, shutdown.clone());
    let serving = tokio::spawn(server(&limits).serve_with_incoming_shutdown(
        stack(&limits, flight.clone()),
        incoming,
        shutdown.clone().cancelled_owned(),
    ));

    let channel = tonic::transport::Endpoint::from_shared(format!("http://{addr}")).unwrap().connect().await.unwrap();
    let token = format!("Bearer good.{}", "a".repeat(30 * 1024));
    let response = channel.clone().oneshot(request(OK, &token)).await.unwrap();
    assert_eq!(response.headers().get("grpc-status"), Some(&HeaderValue::from_static("5")));
    assert_eq!(flight.peer.lock().len(), 1);
    let response = channel.clone().oneshot(request(OK, "Bearer wrong")).await.unwrap();
    assert_eq!(response.headers().get("grpc-status"), Some(&HeaderValue::from_static("16")));

    drop(channel);
    shutdown.cancel();
    serving.await.unwrap().unwrap();
}

/// H18: a client that answers pings may stay for a while and is asked to come again.
#[tokio::test]
async fn a_connection_of_great_age_is_asked_to_end() {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let (addr, shutdown) = (listener.local_addr().unwrap(), CancellationToken::new());
    let incoming = listener.into_incoming(Transport::DangerPlaintext, listen_limits(), shutdown.clone());
    let limits = StackLimits { connection_age: Duration::from_millis(200), ..StackLimits::default() };
    let serving = tokio::spawn(server(&limits).serve_with_incoming_shutdown(
        stack(&limits, Flight::default()),
        incoming,
        shutdown.clone().cancelled_owned(),
    ));

    let mut socket = tokio::net::TcpStream::connect(addr).await.unwrap();
    let opening = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(4, 0, 0, &[])].concat();
    socket.write_all(&opening).await.unwrap();
    let mut answer = Vec::new();
    let asked = tokio::time::timeout(Duration::from_secs(10), async {
        while !frames(&answer).iter().any(|(kind, goaway)| *kind == 7 && goaway.get(4..8) == Some(&[0, 0, 0, 0])) {
            assert_ne!(socket.read_buf(&mut answer).await.unwrap(), 0, "closed without a word: {answer:?}");
        }
    });
    asked.await.unwrap();

    drop(socket);
    shutdown.cancel();
    serving.await.unwrap().unwrap();
}
