//! Behind a proxy: who is believed, and that nothing of what follows the header is lost.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{BOTH, LONG, Log, PREFACE, Running, SHORT, closed, identity, limits, strangers, tls_connect, told};
use crate::listen::{Conn, ListenLimits, Transport, Via};
use crate::tls::MinVersion;

const TEXT: &[u8] = b"PROXY TCP4 192.0.2.7 198.51.100.1 4660 80\r\n";
const CLIENT: &str = "192.0.2.7:4660";

/// The same in version 2, with `more` entries after the addresses.
fn binary(command: u8, more: &[u8]) -> Vec<u8> {
    let ends = [192, 0, 2, 7, 198, 51, 100, 1, 0x12, 0x34, 0, 80];
    let rest = [ends.as_slice(), more].concat();
    let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", [command, 0x11].as_slice(), &length, &rest].concat()
}

/// Trusts 127.0.0.1 and nobody else.
fn trusting() -> ListenLimits {
    ListenLimits { trusted_proxies: vec!["127.0.0.1".parse().unwrap()], ..limits() }
}

async fn open() -> Running {
    Running::with(Transport::DangerPlaintext, trusting()).await
}

/// Reads the preface, which shows that no byte of it is lost and none stands before it.
async fn has_preface(conn: &mut Conn) {
    let mut seen = [0; 24];
    tokio::time::timeout(LONG, conn.read_exact(&mut seen)).await.unwrap().unwrap();
    assert_eq!(seen, PREFACE);
}

#[tokio::test]
async fn the_client_of_a_trusted_proxy_is_the_peer() {
    let mut server = open().await;
    for header in [TEXT.to_vec(), binary(0x21, &[]), binary(0x21, &[0x04, 0, 1, 0])] {
        let mut proxy = server.connect().await;
        proxy.write_all(&header).await.unwrap();
        let mut conn = server.next().await;
        assert_eq!(conn.peer().addr, CLIENT.parse().unwrap());
        assert_eq!(conn.peer().via, Via::Proxy(proxy.local_addr().unwrap()));
        proxy.write_all(PREFACE).await.unwrap();
        has_preface(&mut conn).await;
    }
}

#[tokio::test]
async fn a_proxy_that_names_no_client_is_the_peer_itself() {
    let mut server = open().await;
    let unknown = [b"PROXY UNKNOWN\r\n".to_vec(), b"PROXY UNKNOWN 192.0.2.7 198.51.100.1 1 2\r\n".to_vec()];
    for (header, is_own) in unknown.into_iter().map(|header| (header, false)).chain([(binary(0x20, &[]), true)]) {
        let mut proxy = server.connect().await;
        let addr = proxy.local_addr().unwrap();
        proxy.write_all(&header).await.unwrap();
        let mut conn = server.next().await;
        assert_eq!(conn.peer().addr, addr);
        assert_eq!(conn.peer().via, if is_own { Via::Direct } else { Via::Proxy(addr) });
        proxy.write_all(PREFACE).await.unwrap();
        has_preface(&mut conn).await;
    }
}

#[tokio::test]
async fn header_and_preface_may_come_in_one_packet_or_byte_by_byte() {
    let mut server = open().await;
    for header in [TEXT.to_vec(), binary(0x21, &[0x04, 0, 1, 0])] {
        let all = [header.as_slice(), PREFACE].concat();
        let mut proxy = server.connect().await;
        proxy.write_all(&all).await.unwrap();
        has_preface(&mut server.next().await).await;

        let mut proxy = server.connect().await;
        proxy.set_nodelay(true).unwrap();
        let dripping = async {
            for byte in &all {
                proxy.write_all(&[*byte]).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        let served = async { has_preface(&mut server.next().await).await };
        tokio::join!(dripping, served);
    }
}

#[tokio::test]
async fn tls_begins_right_behind_the_header() {
    let (identity, roots) = identity(MinVersion::Tls13);
    let mut server = Running::with(Transport::Tls(identity), trusting()).await;
    for header in [TEXT.to_vec(), binary(0x21, &[0xee, 0, 2, 0x16, 0x03])] {
        let mut proxy = server.connect().await;
        proxy.write_all(&header).await.unwrap();
        let mut client = tls_connect(proxy, &roots, &[b"h2"], BOTH).await.unwrap();
        client.write_all(PREFACE).await.unwrap();
        let mut conn = server.next().await;
        assert_eq!(conn.peer().addr, CLIENT.parse().unwrap());
        has_preface(&mut conn).await;

        let together = in_one_packet(&server, &header).await;
        let mut client = tls_connect(together, &roots, &[b"h2"], BOTH).await.unwrap();
        client.write_all(PREFACE).await.unwrap();
        has_preface(&mut server.next().await).await;
    }
}

/// A stream whose first bytes reach the server together with `header`.
async fn in_one_packet(server: &Running, header: &[u8]) -> TcpStream {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut near, _) = listener.accept().await.unwrap();
    let (mut far, header) = (server.connect().await, header.to_vec());
    tokio::spawn(async move {
        let mut hello = vec![0; 16 * 1024];
        let length = near.read(&mut hello).await.unwrap();
        hello.truncate(length);
        far.write_all(&[header, hello].concat()).await.unwrap();
        tokio::io::copy_bidirectional(&mut near, &mut far).await
    });
    client
}

#[tokio::test]
async fn a_trusted_proxy_without_a_usable_header_is_closed() {
    let log = Log::of_this_thread();
    let (identity, roots) = identity(MinVersion::Tls13);
    let mut server = Running::with(Transport::Tls(identity.clone()), trusting()).await;
    let mut proxy = server.connect().await;
    proxy.write_all(TEXT).await.unwrap();
    tls_connect(proxy, &roots, &[b"h2"], BOTH).await.unwrap();
    assert_eq!(server.next().await.peer().addr, CLIENT.parse().unwrap());
    assert!(log.lines().is_empty());

    tls_connect(server.connect().await, &roots, &[b"h2"], BOTH).await.unwrap_err();
    told(&log, "the header of the proxy cannot be used: it is missing").await;
    let endless = [b"PROXY UNKNOWN ".as_slice(), &[b'x'; 200]].concat();
    let too_long = [b"\r\n\r\n\0\r\nQUIT\n", [0x21, 0x11, 0xff, 0xff].as_slice()].concat();
    let broken = b"PROXY TCP4 192.0.2.7 nowhere 1 2\r\n".to_vec();
    for (bytes, reason) in [(endless, "it is too long"), (too_long, "it is too long"), (broken, "it is malformed")] {
        let mut proxy = server.connect().await;
        proxy.write_all(&bytes).await.unwrap();
        closed(proxy).await;
        told(&log, reason).await;
    }
    let hasty = ListenLimits { handshake_timeout: SHORT, ..trusting() };
    let hasty = Running::with(Transport::Tls(identity), hasty).await;
    closed(hasty.connect().await).await;
    told(&log, "not done in time").await;
    let mut proxy = hasty.connect().await;
    proxy.write_all(TEXT.split_at(20).0).await.unwrap();
    closed(proxy).await;
}

#[tokio::test]
async fn a_header_that_ends_early_gives_its_place_back() {
    let limits = ListenLimits { connections: 1, ..trusting() };
    let mut server = Running::with(Transport::DangerPlaintext, limits).await;
    let mut proxy = server.connect().await;
    proxy.write_all(binary(0x21, &[]).split_at(18).0).await.unwrap();
    proxy.shutdown().await.unwrap();
    closed(proxy).await;
    let mut proxy = server.connect().await;
    proxy.write_all(TEXT).await.unwrap();
    assert_eq!(server.next().await.peer().addr, CLIENT.parse().unwrap());
}

#[tokio::test]
async fn nobody_else_is_believed() {
    let mut server = open().await;
    let mut proxy = server.connect().await;
    proxy.write_all(TEXT).await.unwrap();
    assert_eq!(server.next().await.peer().addr, CLIENT.parse().unwrap());

    for header in [TEXT.to_vec(), binary(0x21, &[])] {
        let mut liar = server.connect_from("127.0.0.2").await;
        let addr = liar.local_addr().unwrap();
        liar.write_all(&header).await.unwrap();
        let mut conn = server.next().await;
        assert_eq!((conn.peer().addr, conn.peer().via), (addr, Via::Direct));
        let mut seen = [0; 24];
        assert!(conn.read_exact(&mut seen).await.is_err(), "a header is no HTTP/2");
    }
    let mut direct = server.connect_from("127.0.0.2").await;
    direct.write_all(PREFACE).await.unwrap();
    has_preface(&mut server.next().await).await;
}

#[tokio::test]
async fn a_header_of_somebody_else_fails_as_tls_and_is_told() {
    let log = Log::of_this_thread();
    let (identity, roots) = identity(MinVersion::Tls13);
    let server = Running::with(Transport::Tls(identity), trusting()).await;
    for header in [TEXT.to_vec(), binary(0x21, &[])] {
        let mut liar = server.connect_from("127.0.0.2").await;
        liar.write_all(&header).await.unwrap();
        tls_connect(liar, &roots, &[b"h2"], BOTH).await.unwrap_err();
        told(&log, "a PROXY header, and its address is not in `trusted_proxies`").await;
    }
    tls_connect(server.connect_from("127.0.0.2").await, &roots, &[b"h2"], BOTH).await.unwrap();
}

#[tokio::test]
async fn places_and_rates_go_by_the_client_and_the_total_by_sockets() {
    let (identity, roots) = identity(MinVersion::Tls13);
    let limits = ListenLimits { connections: 5, connections_per_ip: 2, strangers: strangers("3/h"), ..trusting() };
    let mut server = Running::with(Transport::Tls(identity), limits).await;
    let mut kept = Vec::new();
    for client in ["192.0.2.1", "192.0.2.1", "192.0.2.2"] {
        let stream = tls_connect(announced(&server, client).await, &roots, &[b"h2"], BOTH).await.unwrap();
        kept.push((stream, server.next().await));
    }
    let refused = tls_connect(announced(&server, "192.0.2.1").await, &roots, &[b"h2"], BOTH).await;
    assert!(refused.is_err(), "a third connection of one client, over the same proxy");

    drop(kept.remove(0));
    let third = tls_connect(announced(&server, "192.0.2.1").await, &roots, &[b"h2"], BOTH).await.unwrap();
    drop((third, server.next().await));
    let refused = tls_connect(announced(&server, "192.0.2.1").await, &roots, &[b"h2"], BOTH).await;
    assert!(refused.is_err(), "a fourth handshake within the hour: the refused one did not count");
    tls_connect(announced(&server, "192.0.2.2").await, &roots, &[b"h2"], BOTH).await.unwrap();
    drop(server.next().await);

    // Two are open; three proxies that have not said for whom they speak take the rest.
    let _silent = (server.connect().await, server.connect().await, server.connect().await);
    closed(server.connect().await).await;
}

/// A connection through the proxy on behalf of `client`.
async fn announced(server: &Running, client: &str) -> TcpStream {
    let mut proxy = server.connect().await;
    proxy.write_all(format!("PROXY TCP4 {client} 198.51.100.1 4660 80\r\n").as_bytes()).await.unwrap();
    proxy
}
