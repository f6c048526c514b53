//! Which CA a CRL belongs to, found out before a client is refused for want of one.
//!
//! The verifier looks a CRL up by the issuer's name, and checks its signature only when a certificate is judged: a CA
//! without a CRL, or with one that another key signed, lets none of its clients in. Must not decide about a
//! certificate: the verifier does, with the same algorithms.

use rustls::crypto::aws_lc_rs;
use rustls_pki_types::TrustAnchor;

/// Whose a CRL is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Issuer {
    /// It has the name of this CA, and another key than that CA's has signed it.
    Forged,
    /// It is of the CA at this place.
    Known(usize),
    /// It has the name of none of these CAs: of one below them perhaps.
    Unknown,
}

/// Finds the CA that has issued a CRL. No two of them have one name.
pub(super) fn issuer(crl: &[u8], authorities: &[TrustAnchor<'_>]) -> Issuer {
    let Some(crl) = Signed::parse(crl) else { return Issuer::Unknown };
    let named = authorities.iter().enumerate().find(|(_, authority)| *authority.subject == *crl.issuer);
    match named {
        None => Issuer::Unknown,
        Some((at, authority)) if crl.is_signed_by(authority) => Issuer::Known(at),
        Some(_) => Issuer::Forged,
    }
}

/// What a person calls a CA: the last text in its name, which is its common name where it has one.
pub(super) fn name(authority: &TrustAnchor<'_>) -> String {
    let mut parts = Der(&authority.subject);
    let mut last = "";
    while let Some(part) = parts.take(SET) {
        // A part is a set of pairs; of several, the first will do.
        let value = Der(part).take(SEQUENCE).and_then(|pair| {
            let mut pair = Der(pair);
            pair.take(OID)?;
            pair.next()
        });
        last = value.and_then(|(_, text)| std::str::from_utf8(text).ok()).unwrap_or(last);
    }
    last.chars().take(LONGEST_NAME).flat_map(char::escape_debug).collect()
}

/// The parts of a CRL that say who signed it.
struct Signed<'a> {
    /// What is signed, with its own tag and length.
    content: &'a [u8],
    issuer: &'a [u8],
    algorithm: &'a [u8],
    signature: &'a [u8],
}

impl<'a> Signed<'a> {
    fn parse(crl: &'a [u8]) -> Option<Self> {
        let mut outer = Der(Der(crl).take(SEQUENCE)?);
        let all = outer.0;
        let mut inner = Der(outer.take(SEQUENCE)?);
        let content = all.get(..all.len().checked_sub(outer.0.len())?)?;
        if inner.0.first() == Some(&INTEGER) {
            inner.take(INTEGER)?;
        }
        inner.take(SEQUENCE)?;
        let issuer = inner.take(SEQUENCE)?;
        let algorithm = outer.take(SEQUENCE)?;
        Some(Self { content, issuer, algorithm, signature: outer.bits()? })
    }

    fn is_signed_by(&self, authority: &TrustAnchor<'_>) -> bool {
        let mut key = Der(&authority.subject_public_key_info);
        let (Some(kind), Some(key)) = (key.take(SEQUENCE), key.bits()) else { return false };
        let known = aws_lc_rs::default_provider().signature_verification_algorithms.all;
        known.iter().any(|algorithm| {
            algorithm.signature_alg_id().as_ref() == self.algorithm
                && algorithm.public_key_alg_id().as_ref() == kind
                && algorithm.verify_signature(key, self.content, self.signature).is_ok()
        })
    }
}

/// DER from front to back.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The value that comes next, if it has this tag.
    fn take(&mut self, expected: u8) -> Option<&'a [u8]> {
        if self.0.first() != Some(&expected) {
            return None;
        }
        self.next().map(|(_, value)| value)
    }

    /// The whole bytes of the bit string that comes next.
    fn bits(&mut self) -> Option<&'a [u8]> {
        self.take(BIT_STRING)?.strip_prefix(&[0])
    }

    /// The next tag and its value.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (tag, rest) = self.0.split_first()?;
        let (first, rest) = rest.split_first()?;
        // The short form, or so many bytes of length.
        let (length, rest) = match first.checked_sub(0x80) {
            None => (usize::from(*first), rest),
            Some(bytes) => {
                let (length, rest) = rest.split_at_checked(usize::from(bytes))?;
                let add = |sum: usize, byte: &u8| sum.checked_mul(256)?.checked_add(usize::from(*byte));
                (length.iter().try_fold(0, add)?, rest)
            }
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, value))
    }
}

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OID: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const LONGEST_NAME: usize = 100;
