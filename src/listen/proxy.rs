//! The PROXY protocol, versions 1 and 2: who is behind a proxy that the configuration trusts.
//!
//! A header is read from the socket to its last byte and no further, so that whatever follows it, TLS or HTTP/2, finds
//! its own first byte. Must be asked only about sockets whose address is in a [`Network`] of `trusted_proxies`: from
//! anybody else a header is a lie.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use ppp::v2::{Command, Protocol};
use ppp::{v1, v2};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Addresses that share a prefix, such as `10.0.0.0/8`; an address alone is the network of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    prefix: u32,
}

/// A text that is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a network: {problem}")]
pub struct InvalidNetwork {
    text: String,
    problem: &'static str,
}

/// What a trusted proxy says about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// It passes on the connection of this client.
    Client(SocketAddr),
    /// The connection is the proxy's own, a health check.
    Itself,
    /// It passes on a connection of which it knows no address.
    Unknown,
}

/// Why a connection of a trusted proxy is closed.
#[derive(Debug, thiserror::Error)]
pub(super) enum HeaderError {
    #[error("it ended early")]
    Ended,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it is malformed")]
    Malformed,
    #[error("it is missing")]
    Missing,
    #[error("it tells of something other than TCP")]
    NotTcp,
    #[error("it is too long")]
    TooLong,
}

impl Network {
    /// Whether `address` is one of them; an IPv4-mapped IPv6 address is its IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let same: u32 = match (self.first, address.to_canonical()) {
            (IpAddr::V4(first), IpAddr::V4(address)) => (first.to_bits() ^ address.to_bits()).leading_zeros(),
            (IpAddr::V6(first), IpAddr::V6(address)) => (first.to_bits() ^ address.to_bits()).leading_zeros(),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
        };
        same >= self.prefix
    }

    /// Whether it is all addresses of its family: no network of proxies.
    pub fn is_everything(&self) -> bool {
        self.prefix == 0
    }
}

impl FromStr for Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let invalid = |problem| InvalidNetwork { text: text.chars().take(LONGEST_SHOWN).collect(), problem };
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let first: IpAddr = address.parse().map_err(|_| invalid("write it as `10.0.0.0/8` or `2001:db8::/32`"))?;
        if first.to_canonical() != first {
            return Err(invalid("write the IPv4 network that it stands for"));
        }
        let (width, unused) = match first {
            IpAddr::V4(first) => (u32::BITS, first.to_bits().trailing_zeros()),
            IpAddr::V6(first) => (u128::BITS, first.to_bits().trailing_zeros()),
        };
        let prefix = match prefix {
            Some(digits) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok().filter(|prefix| *prefix <= width)
            }
            Some(_) => None,
            None => Some(width),
        };
        let prefix = prefix.ok_or_else(|| invalid("what follows the `/` is not the length of a prefix"))?;
        if prefix.saturating_add(unused) < width {
            return Err(invalid("the address has bits beyond its prefix"));
        }
        Ok(Self { first, prefix })
    }
}

/// Reads the header that must come first. Waits as long as the proxy does: the caller has the deadline.
pub(super) async fn read(stream: &mut TcpStream) -> Result<Said, HeaderError> {
    let mut header = Vec::new();
    loop {
        // Looks without taking: what lies behind the header belongs to somebody else.
        let mut window = [0; WINDOW];
        let available = stream.peek(&mut window).await?;
        if available == 0 {
            return Err(HeaderError::Ended);
        }
        let seen: Vec<u8> = header.iter().chain(window.iter().take(available)).copied().collect();
        let end = extent(&seen)?;
        let take_to = match end {
            Extent::Known(length) => length,
            Extent::Open => seen.len(),
        };
        let missing = take_to.saturating_sub(header.len());
        let missing = u64::try_from(missing).map_err(|_too_large| HeaderError::TooLong)?;
        (&mut *stream).take(missing).read_to_end(&mut header).await?;
        if header.len() < take_to {
            return Err(HeaderError::Ended);
        }
        match end {
            Extent::Known(_) => return parse(&header),
            Extent::Open => (),
        }
    }
}

/// Whether bytes may be the beginning of a header: for the log of those who have no right to send one.
pub(super) fn looks_like_header(bytes: &[u8]) -> bool {
    bytes.starts_with(TEXT) || bytes.starts_with(v2::PROTOCOL_PREFIX)
}

/// How far a header reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// So many bytes from the beginning.
    Known(usize),
    /// Beyond all bytes that are there.
    Open,
}

/// Finds the end of the header that `seen` begins with; refuses whatever cannot become one.
fn extent(seen: &[u8]) -> Result<Extent, HeaderError> {
    let may_be = |magic: &[u8]| magic.starts_with(seen) || seen.starts_with(magic);
    if may_be(v2::PROTOCOL_PREFIX) {
        let Some(&[high, low]) = seen.get(LENGTH_AT..FIXED) else { return Ok(Extent::Open) };
        let whole = FIXED.saturating_add(usize::from(u16::from_be_bytes([high, low])));
        return if whole <= LONGEST { Ok(Extent::Known(whole)) } else { Err(HeaderError::TooLong) };
    }
    if may_be(TEXT) {
        let line = seen.windows(LINE_END.len()).take(LONGEST_LINE).position(|bytes| bytes == LINE_END);
        let whole = line.map(|start| start.saturating_add(LINE_END.len()));
        return match whole {
            Some(whole) if whole <= LONGEST_LINE => Ok(Extent::Known(whole)),
            None if seen.len() < LONGEST_LINE => Ok(Extent::Open),
            Some(_) | None => Err(HeaderError::TooLong),
        };
    }
    Err(HeaderError::Missing)
}

/// Understands a whole header.
fn parse(header: &[u8]) -> Result<Said, HeaderError> {
    if header.starts_with(TEXT) {
        let header = v1::Header::try_from(header).map_err(|_detail| HeaderError::Malformed)?;
        return Ok(match header.addresses {
            v1::Addresses::Tcp4(ends) => client(ends.source_address.into(), ends.source_port),
            v1::Addresses::Tcp6(ends) => client(ends.source_address.into(), ends.source_port),
            v1::Addresses::Unknown => Said::Unknown,
        });
    }
    let header = v2::Header::try_from(header).map_err(|_detail| HeaderError::Malformed)?;
    match header.command {
        // Whatever else it says has no meaning then.
        Command::Local => return Ok(Said::Itself),
        Command::Proxy => (),
    }
    if header.tlvs().any(|entry| entry.is_err()) {
        return Err(HeaderError::Malformed);
    }
    match (header.protocol, header.addresses) {
        (Protocol::Stream, v2::Addresses::IPv4(ends)) => Ok(client(ends.source_address.into(), ends.source_port)),
        (Protocol::Stream, v2::Addresses::IPv6(ends)) => Ok(client(ends.source_address.into(), ends.source_port)),
        (Protocol::Stream | Protocol::Unspecified, v2::Addresses::Unspecified) => Ok(Said::Unknown),
        (Protocol::Stream, v2::Addresses::Unix(_))
        | (Protocol::Unspecified, v2::Addresses::IPv4(_) | v2::Addresses::IPv6(_) | v2::Addresses::Unix(_))
        | (Protocol::Datagram, _) => Err(HeaderError::NotTcp),
    }
}

fn client(address: IpAddr, port: u16) -> Said {
    Said::Client(SocketAddr::new(address, port))
}

/// How version 1 begins.
const TEXT: &[u8] = b"PROXY ";
const LINE_END: &[u8] = b"\r\n";
/// Of version 1, line end included.
const LONGEST_LINE: usize = 107;
/// Of version 2: the part before the addresses, and where in it their length stands.
const FIXED: usize = 16;
const LENGTH_AT: usize = 14;
/// Of version 2, everything included. The longest addresses make 232 bytes; the rest is for what proxies add.
const LONGEST: usize = 4096;
const WINDOW: usize = 256;
const LONGEST_SHOWN: usize = 60;

#[cfg(test)]
mod tests;
