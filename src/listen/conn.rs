//! One accepted connection as tonic serves it: bytes, the peer, and a place under the connection cap.
//!
//! Reads fail when the HTTP/2 preface has not arrived by the deadline: the HTTP stack waits for it without a timer of
//! its own, so a client that connects and says nothing would otherwise stay for ever.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::Peer;

pub(super) type Tls = TlsStream<TcpStream>;

/// A connection that passed its handshake.
pub struct Conn {
    bytes: Bytes,
    peer: Peer,
    preface: Preface,
    /// Given back when the connection is dropped.
    _place: OwnedSemaphorePermit,
}

impl Conn {
    pub(super) fn plain(stream: TcpStream, peer: Peer, deadline: Sleep, place: OwnedSemaphorePermit) -> Self {
        Self { bytes: Bytes::Plain(stream), peer, preface: Preface::awaited(deadline), _place: place }
    }

    pub(super) fn tls(stream: Tls, peer: Peer, deadline: Sleep, place: OwnedSemaphorePermit) -> Self {
        Self { bytes: Bytes::Tls(Box::new(stream)), peer, preface: Preface::awaited(deadline), _place: place }
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
    Awaited { missing: usize, deadline: Pin<Box<Sleep>> },
    Seen,
}

impl Preface {
    fn awaited(deadline: Sleep) -> Self {
        Self::Awaited { missing: PREFACE_LEN, deadline: Box::pin(deadline) }
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
        let Preface::Awaited { missing, deadline } = &mut this.preface else {
            return read;
        };
        if read.is_pending() {
            return deadline.as_mut().poll(cx).map(|()| Err(io::Error::from(io::ErrorKind::TimedOut)));
        }
        *missing = missing.saturating_sub(buf.filled().len().saturating_sub(before));
        if *missing == 0 {
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

/// `PRI * HTTP/2.0`, two empty lines around `SM` (RFC 9113, section 3.4).
const PREFACE_LEN: usize = 24;
