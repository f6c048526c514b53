//! The accept loop: from a socket to connections that have shown they speak our transport.
//!
//! A connection takes a place under the caps when it is accepted and gives it back when it is dropped. What a client
//! does before its first HTTP/2 bytes arrive (nothing, a slow handshake, another protocol) costs a place and a timer,
//! and never holds up others. The order is: a place in total, the header of a trusted proxy, a place of the source, the
//! rate of the source, cryptography. Must not look at an HTTP header or decide who somebody is: it records a [`Peer`].

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use portcullis_auth::Clock;
use rustls::server::Acceptor;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_rustls::LazyConfigAcceptor;
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::audit::Audit;
use crate::limits::{Limiter, Source, Ticks};
use crate::tls::{H2, TlsIdentity};

mod client;
mod conn;
mod places;
mod proxy;
mod turned;

pub use client::TlsClient;
pub use conn::Conn;
pub use proxy::{InvalidNetwork, Network};

use places::{Places, Socket};
use proxy::Said;
use turned::{Reports, Turned};

/// Who is at the other end of a connection, in the extensions of every request that comes over it.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The address of the client: what limits, logs and rules go by.
    pub addr: SocketAddr,
    /// What TLS established about it.
    pub tls: PeerTls,
    /// Who told the address.
    pub via: Via,
}

/// How a connection came here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// From the peer's own socket.
    Direct,
    /// From a trusted proxy at this address, which says that the client is the peer. If it says that it does not know
    /// the client, the peer's address is this one too.
    Proxy(SocketAddr),
}

/// What TLS says about a peer; an absence has a reason.
#[derive(Clone, Debug)]
pub enum PeerTls {
    /// The listener does not speak TLS.
    Plain,
    /// TLS, and what the client showed in its handshake.
    Tls(TlsClient),
}

/// How bytes travel on a listener.
#[derive(Clone, Debug)]
pub enum Transport {
    /// Without TLS: only for a loopback address, or behind something that ends TLS.
    DangerPlaintext,
    /// TLS with HTTP/2 agreed by ALPN.
    Tls(TlsIdentity),
}

/// What strangers may take.
#[derive(Clone, Debug)]
pub struct ListenLimits {
    /// Open connections, handshakes included; one more is closed at once.
    pub connections: usize,
    /// Open connections of one source.
    pub connections_per_ip: usize,
    /// From accept to the end of the HTTP/2 preface.
    pub handshake_timeout: Duration,
    /// Counts TLS handshakes per source.
    pub strangers: Arc<Limiter>,
    /// From where a PROXY protocol header is believed, and required. Empty: from nowhere.
    pub trusted_proxies: Vec<Network>,
    /// Where TLS handshakes that failed, and limits of connections, are put on record.
    pub audit: Audit,
    /// The time of the record.
    pub clock: Arc<dyn Clock>,
}

/// A bound socket that does not accept yet.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
}

impl Listener {
    /// Binds; port 0 lets the system choose.
    pub async fn bind(addr: SocketAddr) -> io::Result<Self> {
        Ok(Self { socket: TcpListener::bind(addr).await? })
    }

    /// The address that is really bound.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Starts to accept. The stream ends, and the port closes, on `shutdown` or when the stream is dropped; open
    /// connections live on.
    pub fn into_incoming(self, transport: Transport, limits: ListenLimits, shutdown: CancellationToken) -> Incoming {
        let (ready, conns) = mpsc::channel(READY_QUEUE);
        let accepting = tokio::spawn(accept(self.socket, Entry::new(transport, limits), ready, shutdown));
        Incoming { conns, _accepting: AbortOnDropHandle::new(accepting) }
    }
}

/// The connections that are ready to serve.
#[derive(Debug)]
pub struct Incoming {
    conns: mpsc::Receiver<Conn>,
    _accepting: AbortOnDropHandle<()>,
}

impl Stream for Incoming {
    type Item = io::Result<Conn>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.conns.poll_recv(cx).map(|conn| conn.map(Ok))
    }
}

async fn accept(socket: TcpListener, entry: Arc<Entry>, ready: mpsc::Sender<Conn>, shutdown: CancellationToken) {
    // Dropped with this task, and every unfinished handshake with it.
    let mut entering = JoinSet::new();
    let mut backoff = BACKOFF_FIRST;
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            // Reaps what has finished, so that the set holds only what is under way.
            Some(_finished) = entering.join_next() => continue,
            accepted = socket.accept() => accepted,
        };
        match accepted {
            Ok((stream, addr)) => {
                backoff = BACKOFF_FIRST;
                let Some(place) = entry.places.socket() else {
                    entry.reports.closed(addr, &Turned::Full);
                    continue;
                };
                let (entry, ready) = (Arc::clone(&entry), ready.clone());
                entering.spawn(async move {
                    if let Some(conn) = entry.admit(stream, addr, place).await {
                        // Fails only while the server goes away.
                        drop(ready.send(conn).await);
                    }
                });
            }
            Err(problem) if of_one_connection(&problem) => (),
            Err(problem) => {
                // Out of file descriptors or memory: accepting again at once would only spin.
                tracing::warn!(%problem, "cannot accept connections for now");
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    () = sleep(backoff) => (),
                }
                backoff = backoff.saturating_mul(2).min(BACKOFF_LAST);
            }
        }
    }
}

/// Errors of `accept` that belong to the connection that was waiting, not to the listener.
fn of_one_connection(problem: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, Interrupted, TimedOut, WouldBlock};
    [BrokenPipe, ConnectionAborted, ConnectionReset, Interrupted, TimedOut, WouldBlock].contains(&problem.kind())
}

/// What a connection passes on its way in.
struct Entry {
    transport: Transport,
    timeout: Duration,
    trusted_proxies: Vec<Network>,
    places: Arc<Places>,
    strangers: Arc<Limiter>,
    handshakes: Semaphore,
    reports: Arc<Reports>,
}

impl Entry {
    fn new(transport: Transport, limits: ListenLimits) -> Arc<Self> {
        Arc::new(Self {
            transport,
            timeout: limits.handshake_timeout,
            trusted_proxies: limits.trusted_proxies,
            places: Places::new(limits.connections, limits.connections_per_ip),
            strangers: limits.strangers,
            handshakes: Semaphore::new(HANDSHAKES_AT_ONCE),
            reports: Arc::new(Reports::new(Ticks::start(), limits.audit, limits.clock)),
        })
    }

    /// None if the connection was closed, which has then been told.
    async fn admit(&self, mut stream: TcpStream, addr: SocketAddr, socket: Socket) -> Option<Conn> {
        // One deadline for all steps, so that a slow client cannot have it again for each.
        let now = Instant::now();
        let deadline = now.checked_add(self.timeout).unwrap_or(now);
        let (addr, via) = match timeout_at(deadline, self.client_of(&mut stream, addr)).await {
            Ok(Ok(client)) => client,
            Ok(Err(reason)) => return self.turn_away(addr, &reason),
            Err(_elapsed) => return self.turn_away(addr, &Turned::Late),
        };
        match self.secure(stream, (addr, via), socket, deadline).await {
            Ok(conn) => Some(conn),
            Err(reason) => self.turn_away(addr, &reason),
        }
    }

    fn turn_away(&self, addr: SocketAddr, reason: &Turned) -> Option<Conn> {
        self.reports.closed(addr, reason);
        None
    }

    /// Who is behind a socket: whoever it comes from, unless that is a trusted proxy.
    async fn client_of(&self, stream: &mut TcpStream, addr: SocketAddr) -> Result<(SocketAddr, Via), Turned> {
        if !self.trusted_proxies.iter().any(|network| network.contains(addr.ip())) {
            return Ok((addr, Via::Direct));
        }
        Ok(match proxy::read(stream).await.map_err(Turned::Proxy)? {
            Said::Client(client) => (client, Via::Proxy(addr)),
            Said::Itself => (addr, Via::Direct),
            Said::Unknown => (addr, Via::Proxy(addr)),
        })
    }

    async fn secure(
        &self,
        stream: TcpStream,
        (addr, via): (SocketAddr, Via),
        socket: Socket,
        deadline: Instant,
    ) -> Result<Conn, Turned> {
        let source = Source::from(addr.ip());
        let place = self.places.of_source(socket, source).ok_or(Turned::Crowded)?;
        // Small calls go back and forth; waiting for more bytes would cost each of them 40 ms.
        stream.set_nodelay(true)?;
        match &self.transport {
            Transport::DangerPlaintext => {
                let peer = Peer { addr, tls: PeerTls::Plain, via };
                Ok(Conn::plain(stream, peer, sleep_until(deadline), place, Arc::clone(&self.reports)))
            }
            Transport::Tls(identity) => {
                self.strangers.stranger(source).map_err(Turned::TooFast)?;
                let shaken = timeout_at(deadline, self.shake_hands(stream, identity)).await;
                let stream = shaken.map_err(|_elapsed| Turned::Late)??;
                let (_, session) = stream.get_ref();
                if session.alpn_protocol() != Some(H2) {
                    return Err(Turned::NoHttp2);
                }
                let chain = session.peer_certificates().unwrap_or_default();
                let tls = PeerTls::Tls(TlsClient::new(chain, identity));
                let peer = Peer { addr, tls, via };
                Ok(Conn::tls(stream, peer, sleep_until(deadline), place, Arc::clone(&self.reports)))
            }
        }
    }

    async fn shake_hands(&self, stream: TcpStream, identity: &TlsIdentity) -> Result<conn::Tls, Turned> {
        // Only to name the mistake: what rustls says of plaintext helps nobody.
        let mut first = [0; FIRST_LOOK];
        let seen = stream.peek(&mut first).await?;
        match first.get(..seen).unwrap_or_default() {
            [] => return Err(Turned::Silent),
            [TLS_HANDSHAKE, ..] => (),
            bytes if proxy::looks_like_header(bytes) => return Err(Turned::UntrustedProxy),
            [_, ..] => return Err(Turned::NotTls),
        }
        // ORDER: the permit comes after the client's whole first message. Clients that connect and stay silent then
        // wait beside the handshakes of others, not before them.
        let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await.map_err(Turned::TlsFailed)?;
        let _permit = self.handshakes.acquire().await.map_err(io::Error::other)?;
        hello.into_stream(identity.config()).await.map_err(Turned::TlsFailed)
    }
}

/// TLS handshakes under way at one time; more wait within their deadline.
const HANDSHAKES_AT_ONCE: usize = 256;
/// Connections that are ready and not yet taken by the server, which takes them at once.
const READY_QUEUE: usize = 64;
/// The first byte of TLS: the content type of a handshake.
const TLS_HANDSHAKE: u8 = 0x16;
/// Enough to tell a PROXY header from other mistakes.
const FIRST_LOOK: usize = 16;
const BACKOFF_FIRST: Duration = Duration::from_millis(5);
const BACKOFF_LAST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
