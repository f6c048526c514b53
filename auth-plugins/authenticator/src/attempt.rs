//! What a scheme may look at, and the one parser of the `authorization` header.
//!
//! The header is parsed here, so that no two schemes can disagree about what a client sent. Must not look at bodies,
//! at the handshake payload, at `auth-token-bin` or at any other place where a credential could hide: one place, one
//! credential. Every byte here comes from a stranger.

use std::fmt;
use std::net::SocketAddr;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use rustls_pki_types::CertificateDer;
use zeroize::Zeroizing;

use crate::secret::{REDACTED, Secret};

/// Somebody knocks: everything a scheme may base its verdict on.
#[derive(Clone)]
#[non_exhaustive]
pub struct Attempt<'a> {
    /// The headers of the call.
    pub headers: &'a HeaderMap,
    /// The client's certificate chain as TLS has verified it, leaf first; empty when none was given.
    pub peer_certs: &'a [CertificateDer<'static>],
    /// Where the call comes from, where that is known.
    pub peer_addr: Option<SocketAddr>,
    /// The time by which expiry is judged.
    pub now: SystemTime,
}

impl<'a> Attempt<'a> {
    /// An attempt with these headers at this time, without a certificate and from nowhere.
    pub fn new(headers: &'a HeaderMap, now: SystemTime) -> Self {
        Self { headers, peer_certs: &[], peer_addr: None, now }
    }

    /// With the certificate chain that TLS has verified, leaf first.
    pub fn with_peer_certs(self, peer_certs: &'a [CertificateDer<'static>]) -> Self {
        Self { peer_certs, ..self }
    }

    /// With the address of the peer.
    pub fn with_peer_addr(self, peer_addr: SocketAddr) -> Self {
        Self { peer_addr: Some(peer_addr), ..self }
    }

    /// The same attempt with other headers: for a scheme that reads a credential out of another one.
    pub fn with_headers<'b>(&'b self, headers: &'b HeaderMap) -> Attempt<'b> {
        Attempt { headers, ..*self }
    }

    /// What the `authorization` header holds.
    pub fn credential(&self) -> Credential<'a> {
        let mut values = self.headers.get_all(AUTHORIZATION).iter();
        match (values.next(), values.next()) {
            (None, _) => Credential::Absent,
            (Some(value), None) => parse(value.as_bytes()).unwrap_or_else(Credential::Malformed),
            // Choosing one of two would let a proxy and the gate disagree about who is calling.
            (Some(_), Some(_)) => Credential::Malformed(AMBIGUOUS),
        }
    }
}

impl fmt::Debug for Attempt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Clients put passwords into headers of any name, so not even the other values may show.
        f.debug_struct("Attempt")
            .field("headers", &self.headers.len())
            .field("peer_certs", &self.peer_certs.len())
            .field("peer_addr", &self.peer_addr)
            .field("now", &self.now)
            .finish()
    }
}

/// What the `authorization` header holds.
#[derive(Clone, Debug)]
pub enum Credential<'a> {
    /// There is no such header.
    Absent,
    /// `Basic`, RFC 7617.
    Basic(BasicCredential),
    /// `Bearer`, RFC 6750.
    Bearer(Token<'a>),
    /// More than one credential, or none that can be read; the text says why and holds nothing that was sent.
    Malformed(&'static str),
    /// Another scheme word, for schemes that read the header themselves.
    Unknown,
}

/// A bearer token: 1 byte to 32 KiB of letters, digits and `-._~+/`, with `=` at the end only.
#[derive(Clone, Copy)]
pub struct Token<'a>(&'a str);

impl<'a> Token<'a> {
    /// The token itself; search for this name to find every place that sees it.
    pub fn expose(&self) -> &'a str {
        self.0
    }

    /// Whether the token has this prefix: how schemes that share `Bearer` tell their tokens apart.
    pub fn starts_with(&self, prefix: &str) -> bool {
        self.0.starts_with(prefix)
    }
}

impl fmt::Debug for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

/// A user and a password, as they were typed: nothing is trimmed, folded or normalized.
#[derive(Clone)]
pub struct BasicCredential {
    user: String,
    password: Secret,
}

impl BasicCredential {
    /// The user: 1 to 256 bytes without control characters. People type passwords here too, so treat the user of
    /// a failed attempt as a secret.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The password: up to 1024 bytes, possibly none.
    pub fn password(&self) -> &Secret {
        &self.password
    }
}

impl fmt::Debug for BasicCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BasicCredential").field("user", &REDACTED).field("password", &self.password).finish()
    }
}

/// `scheme SP token68`, and exactly that: no list, no second space, no tab, nothing behind.
fn parse(value: &[u8]) -> Result<Credential<'_>, &'static str> {
    // `Bearer` + one space + the longest token.
    if value.len() > MAX_TOKEN.saturating_add(7) {
        return Err("the header is too long");
    }
    // Bytes beyond ASCII have no agreed meaning here; control bytes have none anywhere.
    let text = std::str::from_utf8(value).map_err(|_| UNPRINTABLE)?;
    if !text.bytes().all(|b| matches!(b, b' '..=b'~')) {
        return Err(UNPRINTABLE);
    }
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    if word.is_empty() {
        return Err("the scheme word is missing");
    }
    if word.eq_ignore_ascii_case("bearer") {
        return token68(rest, MAX_TOKEN).map(|token| Credential::Bearer(Token(token)));
    }
    if word.eq_ignore_ascii_case("basic") {
        return basic(token68(rest, MAX_BASIC)?).map(Credential::Basic);
    }
    // Two headers joined into a list are two credentials, whichever comes first.
    let joined = |part: &str| {
        let word = part.trim_start().split(' ').next().unwrap_or_default();
        word.eq_ignore_ascii_case("bearer") || word.eq_ignore_ascii_case("basic")
    };
    if text.split(',').skip(1).any(joined) {
        return Err(AMBIGUOUS);
    }
    Ok(Credential::Unknown)
}

fn token68(text: &str, max: usize) -> Result<&str, &'static str> {
    if text.is_empty() {
        return Err("the credential is missing");
    }
    if text.len() > max {
        return Err("the credential is too long");
    }
    let body = text.trim_end_matches('=');
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~' | b'+' | b'/');
    if body.is_empty() || !body.bytes().all(plain) {
        return Err("the credential holds a character that it must not");
    }
    Ok(text)
}

fn basic(encoded: &str) -> Result<BasicCredential, &'static str> {
    // Go's driver sends no padding at all and the others send all of it; what lies between was damaged on the way.
    if encoded.contains('=') && !encoded.len().is_multiple_of(4) {
        return Err(NOT_BASE64);
    }
    let decoded = Zeroizing::new(BASE64.decode(encoded).map_err(|_| NOT_BASE64)?);
    let text = std::str::from_utf8(&decoded).map_err(|_| "user and password are not UTF-8")?;
    let (user, password) = text.split_once(':').ok_or("there is no colon between user and password")?;
    if user.is_empty() {
        return Err("the user is empty");
    }
    if user.len() > MAX_USER {
        return Err("the user is too long");
    }
    if password.len() > MAX_PASSWORD {
        return Err("the password is too long");
    }
    if text.chars().any(char::is_control) {
        return Err("user or password hold a control character");
    }
    Ok(BasicCredential { user: user.to_owned(), password: Secret::new(password) })
}

/// Padding is checked above; trailing bits must be zero, so that one credential has one spelling.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

// Identity providers that list groups make tokens of tens of KiB.
const MAX_TOKEN: usize = 32 * 1024;
const MAX_BASIC: usize = 4 * 1024;
const MAX_USER: usize = 256;
const MAX_PASSWORD: usize = 1024;

const AMBIGUOUS: &str = "ambiguous: there is more than one credential";
const NOT_BASE64: &str = "user and password are not base64";
const UNPRINTABLE: &str = "the header holds bytes that are not printable ASCII";

#[cfg(test)]
mod tests;
