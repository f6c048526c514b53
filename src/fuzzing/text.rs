//! SQL text before it is planned, metadata patterns, and the header of the PROXY protocol.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::LazyLock;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use super::callable::callable;
use super::caps::SqlCaps;
use super::input::Input;
use super::pattern::Pattern;
use super::proxy;
use crate::status::Class;

/// SQL under narrow and wide caps: the wide ones take whatever the narrow ones take, and a cap that is kept is kept.
/// Nothing but the brackets of a call is blanked.
pub fn sql_caps(data: &[u8]) {
    let sql = String::from_utf8_lossy(data);
    let narrow = SqlCaps { bytes: 1000, depth: 6, chain: 12 };
    let wide = SqlCaps { bytes: 4000, depth: 12, chain: 24 };
    let (by_narrow, by_wide) = (narrow.check(&sql), wide.check(&sql));
    assert!(by_narrow.is_err() || by_wide.is_ok(), "wide caps refuse what narrow ones take");
    for (caps, checked) in [(narrow, by_narrow), (wide, by_wide)] {
        match checked {
            Ok(()) => assert!(sql.len() <= caps.bytes && !sql.contains('\0')),
            Err(failure) => assert_eq!(failure.class(), Class::InvalidArgument),
        }
    }
    let read = callable(&sql);
    assert_eq!(read.len(), sql.len());
    let blanked = |(before, after)| b"()".contains(&before) && after == b' ';
    assert!(sql.bytes().zip(read.bytes()).all(|(before, after)| before == after || blanked((before, after))));
}

/// A pattern and a name, compared with a matcher that is slow and plain.
pub fn pattern(data: &[u8]) {
    let mut input = Input::new(data);
    let (text, name) = (String::from_utf8_lossy(input.line()), String::from_utf8_lossy(input.rest()));
    let pattern = Pattern::new(&text).unwrap();
    let matches = pattern.matches(&name);
    let (text, name): (Vec<char>, Vec<char>) = (text.chars().collect(), name.chars().collect());
    if text.len().saturating_mul(name.len()) > LONG {
        return;
    }
    assert_eq!(matches.unwrap(), plainly(&text, &name));
}

/// Reads the pattern as it is written and keeps, for each beginning of the name, whether the pattern so far fits it.
fn plainly(text: &[char], name: &[char]) -> bool {
    let mut fits = vec![false; name.len().saturating_add(1)];
    if let Some(empty) = fits.first_mut() {
        *empty = true;
    }
    let mut text = text.iter().copied().peekable();
    while let Some(next) = text.next() {
        let escaped = if next == '\\' { text.next_if(|next| ['%', '_', '\\'].contains(next)) } else { None };
        fits = match (next, escaped) {
            ('%', None) => fits
                .iter()
                .scan(false, |any, fits| {
                    *any |= *fits;
                    Some(*any)
                })
                .collect(),
            (_, _) => {
                let one = |found: char| (next == '_' && escaped.is_none()) || found == escaped.unwrap_or(next);
                let longer = fits.iter().zip(name).map(|(fits, found)| *fits && one(*found));
                std::iter::once(false).chain(longer).collect()
            }
        };
    }
    fits.last().copied().unwrap_or(false)
}

/// Any bytes of a proxy; an address and what follows it, as a good header of version 1, and of version 2. A header is
/// read to its last byte and no further.
pub fn proxy_header(data: &[u8]) {
    let mut input = Input::new(data);
    let version = input.choice(3);
    let bytes = input.rest();
    if version == 0 {
        return RUNTIME.block_on(any_header(bytes));
    }
    let Some((&[a, b, c, d, high, low], behind)) = bytes.split_first_chunk() else { return };
    let client = SocketAddr::from(([a, b, c, d], u16::from_be_bytes([high, low])));
    let header = if version == 1 {
        format!("PROXY TCP4 {} 127.0.0.1 {} 443\r\n", client.ip(), client.port()).into_bytes()
    } else {
        let addresses = [a, b, c, d, 127, 0, 0, 1, high, low, 1, 187];
        [b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".as_slice(), &addresses].concat()
    };
    let read = RUNTIME.block_on(through_a_socket(&[header.as_slice(), behind].concat()));
    assert_eq!(read, Some((proxy::Said::Client(client), behind.to_vec())));
}

async fn any_header(data: &[u8]) {
    let Some((header, rest)) = through_a_socket(data).await else { return };
    assert!(data.ends_with(&rest), "what follows the header was changed");
    let length = data.len().checked_sub(rest.len()).unwrap();
    let (bytes, _) = data.split_at_checked(length).unwrap();
    assert!(proxy::looks_like_header(bytes));
    let alone = through_a_socket(bytes).await;
    assert_eq!(alone, Some((header, Vec::new())), "the header alone is read in another way");
    for short in [length / 2, length.saturating_sub(1)] {
        let (cut, _) = bytes.split_at_checked(short).unwrap();
        assert!(through_a_socket(cut).await.is_none(), "a part of the header was enough");
    }
}

/// What the gate understands, and what it leaves in the socket.
async fn through_a_socket(data: &[u8]) -> Option<(proxy::Said, Vec<u8>)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let mut proxy = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut gate, _) = listener.accept().await.unwrap();
    // Else the machine runs out of ports: a closed connection keeps its own for a minute.
    proxy.set_zero_linger().unwrap();
    gate.set_zero_linger().unwrap();
    // Small enough for the buffers of both ends.
    proxy.write_all(data).await.unwrap();
    proxy.shutdown().await.unwrap();
    let said = proxy::read(&mut gate).await.ok()?;
    let mut rest = Vec::new();
    gate.read_to_end(&mut rest).await.unwrap();
    Some((said, rest))
}

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap());

/// Up to here the comparison has as many steps as it needs.
const LONG: usize = 40_000;
