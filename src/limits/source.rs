//! Whom limits count as one stranger.
//!
//! Must not be used as an identity: an address is what a network says, and many people may share it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IPv4 address, or the /64 network of an IPv6 address: whoever has one of its addresses has them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Network(u64),
    V4(Ipv4Addr),
}

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        // A socket for both families shows IPv4 clients as mapped addresses, which all lie in one /64.
        match address.to_canonical() {
            IpAddr::V4(address) => Self(Kind::V4(address)),
            IpAddr::V6(address) => {
                let [a, b, c, d, e, f, g, h, ..] = address.octets();
                Self(Kind::Network(u64::from_be_bytes([a, b, c, d, e, f, g, h])))
            }
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Kind::Network(upper) => write!(f, "{}/64", Ipv6Addr::from(u128::from(upper) << 64)),
            Kind::V4(address) => address.fmt(f),
        }
    }
}
