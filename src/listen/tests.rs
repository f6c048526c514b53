//! Strangers cost a place and a timer, and never the service of others.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::path::Path;

use portcullis_auth::Secret;
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;
use tokio_stream::StreamExt;

use super::turned::tests::Log;
use super::*;
use crate::limits::{Rate, Rates};
use crate::tls::{ClientAuth, MinVersion};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(60);
static BOTH: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12, &rustls::version::TLS13];
static OLD: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12];

struct Running {
    addr: SocketAddr,
    incoming: Incoming,
    shutdown: CancellationToken,
}

impl Running {
    async fn start(transport: Transport, connections: usize, handshake_timeout: Duration) -> Self {
        Self::with(transport, ListenLimits { connections, handshake_timeout, ..limits() }).await
    }

    async fn with(transport: Transport, limits: ListenLimits) -> Self {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let (addr, shutdown) = (listener.local_addr().unwrap(), CancellationToken::new());
        Self { addr, incoming: listener.into_incoming(transport, limits, shutdown.clone()), shutdown }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.addr).await.unwrap()
    }

    /// From a loopback address other than the usual one.
    async fn connect_from(&self, address: &str) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(address.parse().unwrap(), 0)).unwrap();
        socket.connect(self.addr).await.unwrap()
    }

    async fn next(&mut self) -> Conn {
        tokio::time::timeout(LONG, self.incoming.next()).await.unwrap().unwrap().unwrap()
    }
}

/// Nobody is in the way of another.
fn limits() -> ListenLimits {
    ListenLimits {
        connections: 1_000,
        connections_per_ip: 1_000,
        handshake_timeout: LONG,
        strangers: strangers("100000/s"),
        trusted_proxies: Vec::new(),
        audit: crate::audit::Audit::off(),
        clock: Arc::new(portcullis_auth::SystemClock),
    }
}

fn strangers(preauth_per_ip: &str) -> Arc<Limiter> {
    let rates = Rates {
        preauth_per_ip: preauth_per_ip.parse().unwrap(),
        failed_auth_per_ip: Rate::per_minute(1),
        failed_auth_per_name: Rate::per_minute(1),
    };
    Arc::new(Limiter::new(rates, Ticks::start()))
}

/// A server's identity and the roots that know it.
fn identity(min: MinVersion) -> (TlsIdentity, RootCertStore) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (Secret::new(made.cert.pem()), Secret::new(made.signing_key.serialize_pem()));
    let file = Path::new("test");
    let identity = TlsIdentity::from_pem((file, &cert), (file, &key), min, ClientAuth::None).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    (identity, roots)
}

async fn tls_connect(
    stream: TcpStream,
    roots: &RootCertStore,
    alpn: &[&[u8]],
    versions: &[&'static SupportedProtocolVersion],
) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots.clone())
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Reads until the other side closes, in whichever way it does.
async fn closed(mut stream: impl AsyncReadExt + Unpin) {
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(LONG, stream.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "still open");
}

#[tokio::test]
async fn a_plain_connection_carries_bytes_and_its_peer() {
    let mut server = Running::start(Transport::DangerPlaintext, 4, LONG).await;
    let mut client = server.connect().await;
    client.write_all(PREFACE).await.unwrap();
    let mut conn = server.next().await;
    assert_eq!(conn.peer().addr, client.local_addr().unwrap());
    assert!(matches!(conn.peer().tls, PeerTls::Plain));
    assert_eq!(conn.peer().via, Via::Direct);

    let mut seen = [0; 24];
    conn.read_exact(&mut seen).await.unwrap();
    assert_eq!(seen, PREFACE);
    conn.write_all(b"answer").await.unwrap();
    let mut answer = [0; 6];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"answer");
}

#[tokio::test]
async fn a_client_that_says_nothing_is_given_up() {
    let mut server = Running::start(Transport::DangerPlaintext, 4, SHORT).await;
    let mut client = server.connect().await;
    let mut conn = server.next().await;
    client.write_all(PREFACE.split_at(23).0).await.unwrap();
    let mut seen = [0; 24];
    assert_eq!(conn.read_exact(&mut seen).await.unwrap_err().kind(), io::ErrorKind::TimedOut);

    let mut client = server.connect().await;
    let mut conn = server.next().await;
    client.write_all(PREFACE).await.unwrap();
    conn.read_exact(&mut seen).await.unwrap();
    let waiting = timeout_at(Instant::now() + SHORT * 2, conn.read_u8()).await;
    assert!(waiting.is_err(), "after the preface it may be silent");
}

#[tokio::test]
async fn a_tls_connection_carries_bytes() {
    let (identity, roots) = identity(MinVersion::Tls12);
    let mut server = Running::start(Transport::Tls(identity), 4, LONG).await;
    for versions in [BOTH, OLD] {
        let mut client = tls_connect(server.connect().await, &roots, &[b"h2"], versions).await.unwrap();
        client.write_all(PREFACE).await.unwrap();
        let mut conn = server.next().await;
        assert!(matches!(conn.peer().tls, PeerTls::Tls(ref client) if client.chain().is_empty()));
        let mut seen = [0; 24];
        conn.read_exact(&mut seen).await.unwrap();
        assert_eq!(seen, PREFACE);
    }
}

#[tokio::test]
async fn silent_and_slow_handshakes_are_closed_in_time() {
    let (identity, roots) = identity(MinVersion::Tls13);
    let server = Running::start(Transport::Tls(identity), 4, SHORT).await;
    tls_connect(server.connect().await, &roots, &[b"h2"], BOTH).await.unwrap();
    closed(server.connect().await).await;
    let mut slow = server.connect().await;
    slow.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01]).await.unwrap();
    closed(slow).await;
}

#[tokio::test]
async fn silent_clients_do_not_keep_others_waiting() {
    let (identity, roots) = identity(MinVersion::Tls13);
    let mut server = Running::start(Transport::Tls(identity), 400, LONG).await;
    let mut silent = Vec::new();
    for _ in 0..HANDSHAKES_AT_ONCE + 44 {
        silent.push(server.connect().await);
    }
    let good = tls_connect(server.connect().await, &roots, &[b"h2"], BOTH);
    let good = timeout_at(Instant::now() + LONG / 2, good).await.unwrap().unwrap();
    assert_eq!(server.next().await.peer().addr, good.get_ref().0.local_addr().unwrap());
}

#[tokio::test]
async fn what_does_not_agree_on_http2_by_tls_is_closed() {
    let (identity, roots) = identity(MinVersion::Tls13);
    let mut server = Running::start(Transport::Tls(identity), 4, LONG).await;

    let mut plain = server.connect().await;
    plain.write_all(PREFACE).await.unwrap();
    closed(plain).await;
    assert!(tls_connect(server.connect().await, &roots, &[b"http/1.1"], BOTH).await.is_err());
    assert!(tls_connect(server.connect().await, &roots, &[b"h2"], OLD).await.is_err(), "too old");
    closed(tls_connect(server.connect().await, &roots, &[], BOTH).await.unwrap()).await;

    let good = tls_connect(server.connect().await, &roots, &[b"http/1.1", b"h2"], BOTH).await.unwrap();
    assert_eq!(server.next().await.peer().addr, good.get_ref().0.local_addr().unwrap(), "the first to come through");
}

#[tokio::test]
async fn a_replaced_identity_is_served_from_the_next_handshake_on() {
    let (identity, old_roots) = identity(MinVersion::Tls13);
    let server = Running::start(Transport::Tls(identity.clone()), 8, LONG).await;
    tls_connect(server.connect().await, &old_roots, &[b"h2"], BOTH).await.unwrap();
    let (fresh, new_roots) = self::identity(MinVersion::Tls13);
    identity.replace(&fresh);
    tls_connect(server.connect().await, &new_roots, &[b"h2"], BOTH).await.unwrap();
    assert!(tls_connect(server.connect().await, &old_roots, &[b"h2"], BOTH).await.is_err());
}

#[tokio::test]
async fn over_the_cap_a_connection_is_closed_and_a_place_comes_back() {
    let mut server = Running::start(Transport::DangerPlaintext, 1, LONG).await;
    let _first = server.connect().await;
    let conn = server.next().await;
    closed(server.connect().await).await;
    drop(conn);
    let third = server.connect().await;
    assert_eq!(server.next().await.peer().addr, third.local_addr().unwrap());
}

#[tokio::test]
async fn a_failed_handshake_gives_its_place_back() {
    let (identity, roots) = identity(MinVersion::Tls13);
    let mut server = Running::start(Transport::Tls(identity), 1, LONG).await;
    let mut plain = server.connect().await;
    plain.write_all(PREFACE).await.unwrap();
    closed(plain).await;
    let good = loop {
        // The place is free a moment after the client sees the end.
        if let Ok(good) = tls_connect(server.connect().await, &roots, &[b"h2"], BOTH).await {
            break good;
        }
    };
    assert_eq!(server.next().await.peer().addr, good.get_ref().0.local_addr().unwrap());
}

#[tokio::test]
async fn shutdown_closes_the_port_and_leaves_open_connections() {
    let mut server = Running::start(Transport::DangerPlaintext, 4, LONG).await;
    let mut client = server.connect().await;
    let mut conn = server.next().await;
    server.shutdown.cancel();
    assert!(server.incoming.next().await.is_none());
    let deadline = Instant::now() + LONG;
    while TcpStream::connect(server.addr).await.is_ok() {
        assert!(Instant::now() < deadline, "the port is still open");
    }
    client.write_all(PREFACE).await.unwrap();
    let mut seen = [0; 24];
    conn.read_exact(&mut seen).await.unwrap();
}

#[tokio::test]
async fn dropping_the_stream_closes_the_port() {
    let server = Running::start(Transport::DangerPlaintext, 4, LONG).await;
    let addr = server.addr;
    drop(server);
    let deadline = Instant::now() + LONG;
    while TcpStream::connect(addr).await.is_ok() {
        assert!(Instant::now() < deadline, "the port is still open");
    }
}

#[test]
fn only_errors_of_one_connection_are_passed_over_in_silence() {
    assert!(of_one_connection(&io::ErrorKind::ConnectionAborted.into()));
    // EMFILE, ENFILE and ENOMEM
    for code in [24, 23, 12] {
        assert!(!of_one_connection(&io::Error::from_raw_os_error(code)), "{code}");
    }
}

#[tokio::test]
async fn a_source_has_its_places_and_another_source_still_gets_in() {
    let limits = ListenLimits { connections_per_ip: 2, ..limits() };
    let mut server = Running::with(Transport::DangerPlaintext, limits).await;
    let _clients = (server.connect().await, server.connect().await);
    let (first, _second) = (server.next().await, server.next().await);
    closed(server.connect().await).await;

    let other = server.connect_from("127.0.0.2").await;
    let conn = server.next().await;
    assert_eq!(conn.peer().addr, other.local_addr().unwrap());
    drop(first);
    let again = server.connect().await;
    assert_eq!(server.next().await.peer().addr, again.local_addr().unwrap());
}

#[tokio::test]
async fn too_many_handshakes_of_a_source_are_closed_before_any_cryptography() {
    let (identity, roots) = identity(MinVersion::Tls13);
    let limits = ListenLimits { strangers: strangers("2/h"), ..limits() };
    let mut server = Running::with(Transport::Tls(identity), limits).await;
    for _ in 0..2 {
        tls_connect(server.connect().await, &roots, &[b"h2"], BOTH).await.unwrap();
        server.next().await;
    }
    let mut third = server.connect().await;
    let mut answer = Vec::new();
    // Without a word of the client, and without an alert for it.
    let ended = tokio::time::timeout(LONG, third.read_to_end(&mut answer)).await.unwrap();
    assert!(ended.is_err() || answer.is_empty(), "{answer:?}");

    let other = server.connect_from("127.0.0.2").await;
    tls_connect(other, &roots, &[b"h2"], BOTH).await.unwrap();
}

#[tokio::test]
async fn the_operator_reads_why_a_connection_was_closed() {
    let log = Log::of_this_thread();
    let (identity, roots) = identity(MinVersion::Tls13);
    let secure = Running::with(Transport::Tls(identity), limits()).await;
    tls_connect(secure.connect().await, &roots, &[b"h2"], BOTH).await.unwrap();
    assert!(log.lines().is_empty(), "a good client makes no line");

    let mut plain = secure.connect().await;
    let plain_addr = plain.local_addr().unwrap();
    plain.write_all(PREFACE).await.unwrap();
    closed(plain).await;
    told(&log, &format!("peer={plain_addr} reason=it does not speak TLS")).await;

    let (stranger, other_roots) = self::identity(MinVersion::Tls13);
    drop(stranger);
    tls_connect(secure.connect().await, &other_roots, &[b"h2"], BOTH).await.unwrap_err();
    told(&log, "the TLS handshake failed: received fatal alert").await;
    tls_connect(secure.connect().await, &roots, &[b"h2"], OLD).await.unwrap_err();
    told(&log, "the TLS handshake failed: peer is incompatible").await;
    closed(tls_connect(secure.connect().await, &roots, &[], BOTH).await.unwrap()).await;
    told(&log, "the ALPN protocol must be `h2`").await;

    let log = Log::of_this_thread();
    let mut seen = [0; 24];
    let mut hasty = Running::start(Transport::DangerPlaintext, 4, SHORT).await;
    let _late = hasty.connect().await;
    hasty.next().await.read_exact(&mut seen).await.unwrap_err();
    told(&log, "not done in time").await;

    let mut open = Running::with(Transport::DangerPlaintext, limits()).await;
    let client = tls_connect(open.connect().await, &roots, &[b"h2"], BOTH);
    let served = async { open.next().await.read_exact(&mut seen).await.unwrap_err() };
    let (refused, problem) = tokio::join!(client, served);
    assert!(refused.is_err());
    assert_eq!(problem.kind(), io::ErrorKind::InvalidData);
    told(&log, "it speaks TLS, and this port does not").await;
    open.connect().await.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    open.next().await.read_exact(&mut seen).await.unwrap_err();
    told(&log, "it does not speak HTTP/2").await;
}

/// Waits until this is the last line of the log.
async fn told(log: &Log, text: &str) {
    let deadline = Instant::now().checked_add(LONG).unwrap();
    while !log.lines().last().is_some_and(|line| line.contains(text)) {
        assert!(Instant::now() < deadline, "{text}: {:#?}", log.lines());
        tokio::task::yield_now().await;
    }
}

mod certified;
mod proxied;
