//! From the text of a bearer token to verified claims, in three steps that cannot be swapped or left out.
//!
//! [`Form`] tells by shape whether a token is a JWT at all, [`Unverified`] holds what it says about itself, and only
//! [`Unverified::verify`] makes [`Verified`] claims. Of an unverified token nothing is used but `alg`, `kid`, `typ` and
//! `iss`, and nothing in it is ever followed. Must not decrypt or decompress.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::algorithm::Algorithm;
use crate::fault::Fault;
use crate::json::{self, Json, Object};
use crate::keys::Key;

/// Whose form a bearer token has.
pub(crate) enum Form<'a> {
    /// Somebody else's.
    Foreign,
    /// Three parts, as a signed JWT has.
    Signed(Signed<'a>),
    /// Four or five parts: encrypted, or cut together.
    Unsupported,
}

impl<'a> Form<'a> {
    pub(crate) fn of(token: &'a str) -> Self {
        // Keys and session tokens of the gate itself share the shape.
        if token.starts_with("pk1.") || token.starts_with("ps1.") {
            return Self::Foreign;
        }
        let base64url = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        if !token.bytes().all(base64url) {
            return Self::Foreign;
        }
        let mut parts = token.split('.');
        match (parts.next(), parts.next(), parts.next(), parts.next(), parts.nth(1)) {
            (Some(header), Some(payload), Some(signature), None, _) => {
                let message = token.get(..token.len().saturating_sub(signature.len()).saturating_sub(1));
                let message = message.unwrap_or_default();
                Self::Signed(Signed { header, payload, signature, message })
            }
            (_, _, _, Some(_), None) => Self::Unsupported,
            _ => Self::Foreign,
        }
    }
}

/// A token of three parts.
pub(crate) struct Signed<'a> {
    header: &'a str,
    payload: &'a str,
    signature: &'a str,
    message: &'a str,
}

/// What a token says about itself.
pub(crate) struct Unverified<'a> {
    header: Header,
    claims: Object,
    signature: Vec<u8>,
    message: &'a str,
}

impl<'a> Unverified<'a> {
    pub(crate) fn read(token: &Signed<'a>) -> Result<Self, Fault> {
        let whole = token.message.len().saturating_add(token.signature.len()).saturating_add(1);
        if whole > MAX_TOKEN {
            return Err(Fault::malformed("the token is too long"));
        }
        if token.header.len() > MAX_HEADER {
            return Err(Fault::malformed("the header of the token is too long"));
        }
        let header = json::object(&decoded(token.header)?);
        let header = header.ok_or_else(|| Fault::malformed("the header of the token is not a plain JSON object"))?;
        let claims = json::object(&decoded(token.payload)?);
        let claims = claims.ok_or_else(|| Fault::malformed("the claims are not a plain JSON object"))?;
        let signature = decoded(token.signature)?;
        if signature.is_empty() {
            return Err(Fault::malformed("the token has no signature"));
        }
        Ok(Self { header: Header::read(&header)?, claims, signature, message: token.message })
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// The issuer it claims: good for choosing the keys that it is verified with, and for nothing else.
    pub(crate) fn issuer(&self) -> Result<&str, Fault> {
        // A list that holds the right one among others is not a string.
        self.claims.get("iss").and_then(Json::as_str).ok_or_else(|| Fault::malformed("`iss` is not a string"))
    }

    pub(crate) fn verify(self, key: &Key) -> Result<Verified, Fault> {
        if key.verifies(self.header.algorithm, self.message.as_bytes(), &self.signature) {
            return Ok(Verified(self.claims));
        }
        Err(Fault::invalid("the signature does not verify"))
    }
}

/// Claims whose signature was verified: there is no other way to make one.
pub(crate) struct Verified(Object);

impl Verified {
    pub(crate) fn claims(&self) -> &Object {
        &self.0
    }
}

/// The header of a token.
pub(crate) struct Header {
    pub(crate) algorithm: Algorithm,
    pub(crate) kid: KeyId,
    pub(crate) kind: TokenType,
}

impl Header {
    fn read(members: &Object) -> Result<Self, Fault> {
        if REFUSED.into_iter().any(|name| members.contains_key(name)) {
            return Err(Fault::malformed("the header of the token holds a member that is never followed"));
        }
        let algorithm = members.get("alg").and_then(Json::as_str).and_then(|name| name.parse().ok());
        let algorithm = algorithm.ok_or_else(|| Fault::invalid("the algorithm is not accepted"))?;
        let kid = match members.get("kid") {
            None => KeyId::Absent,
            Some(kid) => KeyId::read(kid).ok_or_else(|| Fault::malformed("`kid` is not a short printable string"))?,
        };
        let kind = match members.get("typ") {
            None => TokenType::Absent,
            Some(Json::String(kind)) => TokenType::named(kind),
            Some(Json::Array(_) | Json::Bool(_) | Json::Null | Json::Number(_) | Json::Object(_)) => {
                return Err(Fault::malformed("`typ` is not a string"));
            }
        };
        Ok(Self { algorithm, kid, kind })
    }
}

/// Which key a token or a key set means: a name to look up and never a path, a query or an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum KeyId {
    Absent,
    Named(String),
}

impl KeyId {
    pub(crate) fn read(kid: &Json) -> Option<Self> {
        let kid = kid.as_str()?;
        let usable = (1..=MAX_KID).contains(&kid.len()) && kid.bytes().all(|b| matches!(b, b' '..=b'~'));
        usable.then(|| Self::Named(kid.to_owned()))
    }
}

/// What kind of token it says to be: `typ`, without `application/` and in lower case, since media types have no case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TokenType {
    /// There is no `typ`.
    Absent,
    /// This one.
    Named(String),
}

impl TokenType {
    /// A `typ` such as `JWT` or `at+jwt`.
    pub fn named(kind: &str) -> Self {
        let kind = kind.to_ascii_lowercase();
        Self::Named(kind.strip_prefix("application/").map(str::to_owned).unwrap_or(kind))
    }
}

fn decoded(part: &str) -> Result<Vec<u8>, Fault> {
    // Without padding and with zero trailing bits: a token has one spelling.
    URL_SAFE_NO_PAD.decode(part).map_err(|_| Fault::malformed("a part of the token is not base64url"))
}

/// Members that bring a key or name a place of one, change what is signed, or say that the token is something else.
const REFUSED: [&str; 9] = ["b64", "crit", "enc", "jku", "jwk", "url", "x5c", "x5u", "zip"];

// Identity providers that list groups make long tokens.
const MAX_TOKEN: usize = 16 * 1024;
/// In base64url.
const MAX_HEADER: usize = 2 * 1024;
const MAX_KID: usize = 256;

#[cfg(test)]
mod tests;
