//! Which executors results may be fetched from: the one rule between a scheduler's word and a connection.
//!
//! A scheduler that was taken over must not be able to point the gate at other services of its network. Decides only;
//! must not resolve a name or open a connection.

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use parking_lot::Mutex;

/// The addresses results may be fetched from. Nothing else is ever dialled.
#[derive(Clone)]
pub enum ExecutorAllowList {
    /// Those of the configuration (`cluster.executors`).
    Configured(Arc<[ExecutorPattern]>),
    /// The executors that this process started, by their exact addresses. Shared, since they can be replaced.
    Started(Arc<Mutex<HashSet<SocketAddr>>>),
}

/// One entry of `cluster.executors`: `10.1.0.0/16:50051`, `[fd00::/8]:50051`, `10.1.2.3:50051` or `executor-1:50051`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutorPattern {
    host: HostPattern,
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostPattern {
    /// Every address whose first `bits` are those of `network`.
    Network { network: IpAddr, bits: u32 },
    /// Exactly this name, in lower case, wherever the resolver says that it is.
    Name(String),
}

impl ExecutorAllowList {
    /// Whether an executor that a scheduler calls `host` may be dialled at `address`, which is where `host` was found.
    pub(super) fn allows(&self, host: &str, address: SocketAddr) -> bool {
        match self {
            Self::Configured(patterns) => patterns.iter().any(|pattern| pattern.allows(host, address)),
            Self::Started(addresses) => addresses.lock().contains(&address),
        }
    }
}

impl fmt::Debug for ExecutorAllowList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configured(patterns) => f.debug_tuple("Configured").field(patterns).finish(),
            Self::Started(_) => f.write_str("Started"),
        }
    }
}

impl ExecutorPattern {
    fn allows(&self, host: &str, address: SocketAddr) -> bool {
        if self.port != address.port() {
            return false;
        }
        match &self.host {
            HostPattern::Name(name) => name.eq_ignore_ascii_case(host),
            HostPattern::Network { network, bits } => prefix(*network, *bits) == prefix(address.ip(), *bits),
        }
    }
}

/// The first `bits` of an address, which differ between the two families.
fn prefix(address: IpAddr, bits: u32) -> (u8, u128) {
    match address.to_canonical() {
        IpAddr::V4(four) => (4, u128::from(u32::from(four).checked_shr(V4_BITS.saturating_sub(bits)).unwrap_or(0))),
        IpAddr::V6(six) => (6, u128::from(six).checked_shr(V6_BITS.saturating_sub(bits)).unwrap_or(0)),
    }
}

impl FromStr for ExecutorPattern {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, port) = text.rsplit_once(':').ok_or("has no port")?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or("has no port from 1 to 65535 at its end")?;
        let host = match host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
            Some(inner) => network(inner).filter(|(network, _)| network.is_ipv6()).ok_or("is no IPv6 network")?,
            None if host.contains('/') => {
                network(host).filter(|(network, _)| network.is_ipv4()).ok_or("is no IPv4 network")?
            }
            None => match host.parse::<IpAddr>() {
                Ok(IpAddr::V4(four)) => (IpAddr::V4(four), V4_BITS),
                Ok(IpAddr::V6(_)) => return Err("needs brackets around its IPv6 address"),
                Err(_) if is_name(host) => {
                    return Ok(Self { host: HostPattern::Name(host.to_ascii_lowercase()), port });
                }
                Err(_) => return Err("is no address, network or host name"),
            },
        };
        let (network, bits) = host;
        Ok(Self { host: HostPattern::Network { network, bits }, port })
    }
}

/// `10.1.0.0/16`, or an address, which is a network of one. A network of everything would not be a list.
fn network(text: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address.parse::<IpAddr>().ok()?, Some(bits.parse::<u32>().ok()?)),
        None => (text.parse::<IpAddr>().ok()?, None),
    };
    let all = if address.is_ipv4() { V4_BITS } else { V6_BITS };
    let bits = bits.unwrap_or(all);
    (1..=all).contains(&bits).then_some((address, bits))
}

/// A host name: letters, digits, hyphens, underscores and dots.
pub(super) fn is_name(host: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !host.is_empty() && host.len() <= 253 && host.bytes().all(plain) && host.bytes().any(|b| b.is_ascii_alphabetic())
}

const V4_BITS: u32 = 32;
const V6_BITS: u32 = 128;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;

    fn list(patterns: &[&str]) -> ExecutorAllowList {
        ExecutorAllowList::Configured(patterns.iter().map(|pattern| pattern.parse().unwrap()).collect())
    }

    #[test]
    fn a_network_allows_its_own_addresses_at_its_own_port_only() {
        let list = list(&["10.1.0.0/16:50051", "[fd00:1::/32]:50051", "192.168.7.9:50060"]);
        for good in ["10.1.0.1:50051", "10.1.255.255:50051", "[fd00:1::7]:50051", "192.168.7.9:50060"] {
            assert!(list.allows("whatever", good.parse().unwrap()), "{good}");
        }
        assert!(list.allows("x", "[::ffff:10.1.0.1]:50051".parse().unwrap()), "an IPv4 address in IPv6 clothes");
        for bad in [
            "10.2.0.1:50051",
            "10.1.0.1:50052",
            "169.254.169.254:50051",
            "127.0.0.1:50051",
            "[fd00:2::7]:50051",
            "192.168.7.8:50060",
            "[::a01:1]:50051",
        ] {
            assert!(!list.allows("whatever", bad.parse().unwrap()), "{bad}");
        }
    }

    #[test]
    fn a_name_allows_the_name_that_the_scheduler_said_and_no_other() {
        let list = list(&["Executor-1.internal:50051"]);
        let somewhere = "10.9.9.9:50051".parse().unwrap();
        assert!(list.allows("executor-1.INTERNAL", somewhere));
        assert!(!list.allows("executor-2.internal", somewhere));
        assert!(!list.allows("10.9.9.9", somewhere));
        assert!(!list.allows("executor-1.internal", "10.9.9.9:50052".parse().unwrap()));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        assert!("10.0.0.1:1".parse::<ExecutorPattern>().is_ok());
        for bad in [
            "",
            "10.0.0.1",
            "10.0.0.1:0",
            "10.0.0.1:70000",
            "10.0.0.0/33:1",
            "0.0.0.0/0:1",
            "[::/0]:1",
            "::1:50051",
            "[10.0.0.0/8]:1",
            "fd00::/8:1",
            "a b:1",
            "http://host:1",
            "*:50051",
            "10.0.0.0/8/8:1",
            "10.0.0:1",
            ":1",
        ] {
            assert!(bad.parse::<ExecutorPattern>().is_err(), "{bad}");
        }
    }
}
