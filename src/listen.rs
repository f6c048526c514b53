//! The accept loop: from a socket to connections that have shown they speak our transport.
//!
//! A connection takes a place under the cap when it is accepted and gives it back when it is dropped. What a client
//! does before its first HTTP/2 bytes arrive (nothing, a slow handshake, another protocol) costs a place and a timer,
//! and never holds up others. Must not look at a header or decide who somebody is: it records a [`Peer`].

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::server::Acceptor;
use rustls_pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_rustls::LazyConfigAcceptor;
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::tls::{H2, TlsIdentity};

mod conn;

pub use conn::Conn;

/// Who is at the other end of a connection, in the extensions of every request that comes over it.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The address the connection came from.
    pub addr: SocketAddr,
    /// What TLS established about it.
    pub tls: PeerTls,
}

/// What TLS says about a peer; an absence has a reason.
#[derive(Clone, Debug)]
pub enum PeerTls {
    /// TLS, and the client showed this chain, leaf first, which was verified.
    Mutual(Arc<[CertificateDer<'static>]>),
    /// The listener does not speak TLS.
    Plain,
    /// TLS, and the client showed no certificate.
    Tls,
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
#[derive(Clone, Copy, Debug)]
pub struct ListenLimits {
    /// Open connections, handshakes included; one more is closed at once.
    pub connections: usize,
    /// From accept to the end of the HTTP/2 preface.
    pub handshake_timeout: Duration,
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
                let Ok(place) = Arc::clone(&entry.places).try_acquire_owned() else {
                    tracing::debug!(peer = %addr, "connection closed: the connection limit is reached");
                    continue;
                };
                let (entry, ready) = (Arc::clone(&entry), ready.clone());
                entering.spawn(async move {
                    match entry.admit(stream, addr, place).await {
                        // Fails only while the server goes away.
                        Ok(conn) => drop(ready.send(conn).await),
                        Err(problem) => tracing::debug!(peer = %addr, %problem, "connection closed before any request"),
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
    places: Arc<Semaphore>,
    handshakes: Semaphore,
}

impl Entry {
    fn new(transport: Transport, limits: ListenLimits) -> Arc<Self> {
        Arc::new(Self {
            transport,
            timeout: limits.handshake_timeout,
            places: Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS))),
            handshakes: Semaphore::new(HANDSHAKES_AT_ONCE),
        })
    }

    async fn admit(&self, stream: TcpStream, addr: SocketAddr, place: OwnedSemaphorePermit) -> io::Result<Conn> {
        // One deadline for all steps, so that a slow client cannot have it again for each.
        let now = Instant::now();
        let deadline = now.checked_add(self.timeout).unwrap_or(now);
        // Small calls go back and forth; waiting for more bytes would cost each of them 40 ms.
        stream.set_nodelay(true)?;
        match &self.transport {
            Transport::DangerPlaintext => {
                let peer = Peer { addr, tls: PeerTls::Plain };
                Ok(Conn::plain(stream, peer, sleep_until(deadline), place))
            }
            Transport::Tls(identity) => {
                let secured = timeout_at(deadline, self.secure(stream, identity)).await;
                let stream = secured.map_err(|_elapsed| io::Error::from(io::ErrorKind::TimedOut))??;
                let (_, session) = stream.get_ref();
                if session.alpn_protocol() != Some(H2) {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "the client did not agree on `h2`"));
                }
                let tls = match session.peer_certificates() {
                    Some(chain) if !chain.is_empty() => PeerTls::Mutual(chain.iter().cloned().collect()),
                    Some(_) | None => PeerTls::Tls,
                };
                Ok(Conn::tls(stream, Peer { addr, tls }, sleep_until(deadline), place))
            }
        }
    }

    async fn secure(&self, stream: TcpStream, identity: &TlsIdentity) -> io::Result<conn::Tls> {
        // ORDER: the permit comes after the client's whole first message. Clients that connect and stay silent then
        // wait beside the handshakes of others, not before them.
        let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let _permit = self.handshakes.acquire().await.map_err(io::Error::other)?;
        hello.into_stream(identity.config()).await
    }
}

/// TLS handshakes under way at one time; more wait within their deadline.
const HANDSHAKES_AT_ONCE: usize = 256;
/// Connections that are ready and not yet taken by the server, which takes them at once.
const READY_QUEUE: usize = 64;
const BACKOFF_FIRST: Duration = Duration::from_millis(5);
const BACKOFF_LAST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
