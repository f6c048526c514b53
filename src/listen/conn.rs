//! One accepted connection as tonic serves it: bytes, the peer, and a place under the connection caps.
//!
//! Reads fail when the HTTP/2 preface has not arrived by the deadline: the HTTP stack waits for it without a timer of
//! its own, so a client that connects and says nothing would otherwise stay for ever. They fail at the first byte that
//! is not of the preface, so that the operator reads which mistake was made. Must not change a byte.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::places::Place;
use super::turned::{Reports, Turned};
use super::{Peer, TLS_HANDSHAKE};

pub(super) type Tls = TlsStream<TcpStream>;

/// A connection that passed its handshake.
pub struct Conn {
    bytes: Bytes,
    peer: Peer,
    preface: Preface,
    /// Given back when the connection is dropped.
    _place: Place,
}

impl Conn {
    pub(super) fn plain(stream: TcpStream, peer: Peer, deadline: Sleep, place: Place, reports: Arc<Reports>) -> Self {
        Self { bytes: Bytes::Plain(stream), peer, preface: Preface::awaited(deadline, reports), _place: place }
    }

    pub(super) fn tls(stream: Tls, peer: Peer, deadline: Sleep, place: Place, reports: Arc<Reports>) -> Self {
        Self { bytes: Bytes::Tls(Box::new(stream)), peer, preface: Preface::awaited(deadline, reports), _place: place }
    }

    /// Who is at the other end.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }
}

impl Connected for Conn {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conn").field("peer", &self.peer).finish_non_exhaustive()
    }
}

enum Bytes {
    Plain(TcpStream),
    Tls(Box<Tls>),
}

enum Preface {
    Awaited { missing: &'static [u8], deadline: Pin<Box<Sleep>>, reports: Arc<Reports> },
    Seen,
}

impl Preface {
    fn awaited(deadline: Sleep, reports: Arc<Reports>) -> Self {
        Self::Awaited { missing: PREFACE, deadline: Box::pin(deadline), reports }
    }
}

impl AsyncRead for Conn {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = match &mut this.bytes {
            Bytes::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Bytes::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        };
        let Preface::Awaited { missing, deadline, reports } = &mut this.preface else {
            return read;
        };
        if read.is_pending() {
            return deadline.as_mut().poll(cx).map(|()| {
                reports.closed(this.peer.addr, &Turned::Late);
                Err(io::Error::from(io::ErrorKind::TimedOut))
            });
        }
        let new = buf.filled().get(before..).unwrap_or_default();
        let (expected, rest) = missing.split_at_checked(new.len()).unwrap_or((missing, &[]));
        if !new.starts_with(expected) {
            let mistake = if new.first() == Some(&TLS_HANDSHAKE) { Turned::Tls } else { Turned::NotHttp2 };
            reports.closed(this.peer.addr, &mistake);
            return Poll::Ready(Err(io::Error::from(io::ErrorKind::InvalidData)));
        }
        *missing = rest;
        if rest.is_empty() {
            this.preface = Preface::Seen;
        }
        read
    }
}

impl AsyncWrite for Conn {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().bytes {
            Bytes::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Bytes::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().bytes {
            Bytes::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Bytes::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.bytes {
            Bytes::Plain(stream) => stream.is_write_vectored(),
            Bytes::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().bytes {
            Bytes::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Bytes::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().bytes {
            Bytes::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Bytes::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// How a client opens HTTP/2 (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
