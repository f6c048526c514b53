//! Where a request comes from, as far as its server says.
//!
//! Headers say nothing here: whoever calls could write them. Must not decide anything.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::SystemTime;

use http::Extensions;
use rustls_pki_types::CertificateDer;
use tonic::transport::server::TcpConnectInfo;

use crate::listen::{Peer, PeerTls, Via};
use crate::tls::Distrust;
use crate::{audit, limits};

/// Where a request comes from.
pub(super) enum Source {
    /// Over a listener of ours.
    Listener(Peer),
    /// Over an embedder's server, which tells the address only.
    Mounted(SocketAddr),
    /// The server says nothing.
    Unknown,
}

impl Source {
    pub(super) fn of(extensions: &Extensions) -> Self {
        if let Some(peer) = extensions.get::<Peer>() {
            return Self::Listener(peer.clone());
        }
        extensions.get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr).map_or(Self::Unknown, Self::Mounted)
    }

    pub(super) fn addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Listener(peer) => Some(peer.addr),
            Self::Mounted(addr) => Some(*addr),
            Self::Unknown => None,
        }
    }

    /// For the record.
    pub(super) fn peer(&self) -> audit::Peer {
        match self {
            Self::Listener(Peer { addr, via: Via::Direct, .. }) | Self::Mounted(addr) => audit::Peer::Direct(*addr),
            Self::Listener(Peer { addr, via: Via::Proxy(proxy), .. }) => {
                audit::Peer::Proxied { client: *addr, proxy: *proxy }
            }
            Self::Unknown => audit::Peer::Unknown,
        }
    }

    /// Whether the client's certificate is still one to trust, and none is still enough.
    pub(super) fn still_trusted(&self, now: SystemTime) -> Result<(), Distrust> {
        match self {
            Self::Listener(Peer { tls: PeerTls::Tls(client), .. }) => client.still_trusted(now),
            Self::Listener(Peer { tls: PeerTls::Plain, .. }) | Self::Mounted(_) | Self::Unknown => Ok(()),
        }
    }

    /// As limits count it. All that come from nowhere are one.
    pub(super) fn limited(&self) -> limits::Source {
        self.addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |addr| addr.ip()).into()
    }

    pub(super) fn certificates(&self) -> &[CertificateDer<'static>] {
        match self {
            Self::Listener(Peer { tls: PeerTls::Tls(client), .. }) => client.chain(),
            Self::Listener(Peer { tls: PeerTls::Plain, .. }) | Self::Mounted(_) | Self::Unknown => &[],
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.addr() {
            Some(addr) => addr.fmt(f),
            None => f.write_str("-"),
        }
    }
}
