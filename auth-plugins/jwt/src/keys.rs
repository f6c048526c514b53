//! The keys of an issuer, from a JSON Web Key Set (RFC 7517).
//!
//! A key that may not be used, for whatever reason, is left out; a set that contradicts itself is refused as a whole.
//! Must not keep a key that is not meant for signatures, too weak, secret, or not a point of its curve.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, UnparsedPublicKey, VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::DecodingKey;
use jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER;

use crate::algorithm::Algorithm;
use crate::json::{self, Json, Object};
use crate::token::KeyId;

/// Keys that the operator has handed over, as the text of a JWKS.
#[derive(Clone, Debug)]
pub struct StaticKeys(pub(crate) Arc<KeySet>);

impl StaticKeys {
    /// Reads the text of a `jwks.json`.
    ///
    /// # Errors
    ///
    /// If the text is not a key set, contradicts itself, or holds no key that can be used.
    pub fn parse(text: &str) -> Result<Self, KeySetError> {
        KeySet::parse(text.as_bytes()).map(Arc::new).map(Self)
    }

    /// How many keys can be used.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// Why a text is not a set of keys. It repeats nothing of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeySetError {
    /// Two keys that differ have one `kid`.
    #[error("two different keys have the same `kid`")]
    Ambiguous,
    /// Nothing in it can be used.
    #[error("holds no key that can be used")]
    NoneUsable,
    /// Not an object whose `keys` is a list of objects.
    #[error("is not a JSON object with a list of `keys`, or holds a name twice")]
    NotASet,
    /// More bytes than a key set has.
    #[error("is too large")]
    TooLarge,
    /// More keys than an issuer has.
    #[error("holds too many keys")]
    TooMany,
}

/// The usable keys of one issuer.
pub(crate) struct KeySet {
    keys: Vec<Arc<Key>>,
}

impl KeySet {
    pub(crate) fn parse(text: &[u8]) -> Result<Self, KeySetError> {
        if text.len() > MAX_SET {
            return Err(KeySetError::TooLarge);
        }
        let set = json::object(text).ok_or(KeySetError::NotASet)?;
        let members = set.get("keys").and_then(Json::as_array).ok_or(KeySetError::NotASet)?;
        if members.len() > MAX_KEYS {
            return Err(KeySetError::TooMany);
        }

        let mut keys: Vec<Key> = Vec::new();
        for member in members {
            let Some(mut key) = Key::read(member.as_object().ok_or(KeySetError::NotASet)?) else { continue };
            let same_kid = |other: &&mut Key| other.kid == key.kid && key.kid != KeyId::Absent;
            match keys.iter_mut().find(same_kid) {
                // One key, listed once for each algorithm.
                Some(known) if known.thumbprint == key.thumbprint => known.algorithms.append(&mut key.algorithms),
                Some(_) => return Err(KeySetError::Ambiguous),
                None => keys.push(key),
            }
        }
        if keys.is_empty() {
            return Err(KeySetError::NoneUsable);
        }
        Ok(Self { keys: keys.into_iter().map(Arc::new).collect() })
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is a key for one of these algorithms.
    pub(crate) fn serves(&self, algorithms: &[Algorithm]) -> bool {
        self.keys.iter().any(|key| algorithms.iter().any(|algorithm| key.algorithms.contains(algorithm)))
    }

    /// The key that a token of this header must have been signed with.
    pub(crate) fn find(&self, kid: &KeyId, algorithm: Algorithm) -> Found {
        let mut candidates = self.keys.iter().filter(|key| match kid {
            KeyId::Absent => key.algorithms.contains(&algorithm),
            KeyId::Named(_) => key.kid == *kid,
        });
        match (candidates.next(), candidates.next()) {
            (None, _) => Found::Unknown,
            (Some(key), None) if key.algorithms.contains(&algorithm) => Found::Key(Arc::clone(key)),
            (Some(_), None) => Found::Unfit,
            (Some(_), Some(_)) => Found::Ambiguous,
        }
    }

    /// Whether this very key, under this name, is still among them.
    pub(crate) fn holds(&self, key: &Key) -> bool {
        self.keys.iter().any(|own| own.kid == key.kid && own.thumbprint == key.thumbprint)
    }

    /// Whether the two hold the same keys.
    pub(crate) fn same(&self, other: &Self) -> bool {
        self.len() == other.len() && self.keys.iter().all(|key| other.holds(key))
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|key| &key.kid)).finish()
    }
}

/// What a set says to a header.
pub(crate) enum Found {
    /// Several keys would fit.
    Ambiguous,
    Key(Arc<Key>),
    /// The key of that name is not for that algorithm.
    Unfit,
    Unknown,
}

/// A public key and what it may verify.
pub(crate) struct Key {
    kid: KeyId,
    algorithms: BTreeSet<Algorithm>,
    thumbprint: [u8; SHA256_OUTPUT_LEN],
    key: DecodingKey,
}

impl Key {
    /// Whether the signature is this key's.
    pub(crate) fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &Vec<u8>) -> bool {
        if !self.algorithms.contains(&algorithm) {
            return false;
        }
        // The library's provider by name: asking for the default of the process could panic.
        let verifier = (DEFAULT_PROVIDER.verifier_factory)(&algorithm.library(), &self.key);
        verifier.is_ok_and(|verifier| verifier.verify(message, signature).is_ok())
    }

    /// The key, if it may be used.
    fn read(jwk: &Object) -> Option<Self> {
        if !is_for_signatures(jwk) || PRIVATE.into_iter().any(|name| jwk.contains_key(name)) {
            return None;
        }
        let kid = match jwk.get("kid") {
            None => KeyId::Absent,
            Some(kid) => KeyId::read(kid)?,
        };
        let (mut algorithms, key, material) = match jwk.get("kty")?.as_str()? {
            "EC" => elliptic(jwk)?,
            "OKP" => edwards(jwk)?,
            "RSA" => rsa(jwk)?,
            // `oct` is a shared secret: whoever published it has given it away.
            _ => return None,
        };
        if let Some(only) = jwk.get("alg") {
            let only = only.as_str()?.parse().ok()?;
            algorithms.retain(|algorithm| *algorithm == only);
        }
        if algorithms.is_empty() {
            return None;
        }
        let thumbprint = digest(&SHA256, &material).as_ref().try_into().ok()?;
        Some(Self { kid, algorithms, thumbprint, key })
    }
}

/// What a key may verify, the key, and the bytes it is told from others by.
type Material = (BTreeSet<Algorithm>, DecodingKey, Vec<u8>);

fn is_for_signatures(jwk: &Object) -> bool {
    let usage = jwk.get("use").is_none_or(|usage| usage.as_str() == Some("sig"));
    let verifies = |ops: &Json| ops.as_array().is_some_and(|ops| ops.iter().any(|op| op.as_str() == Some("verify")));
    usage && jwk.get("key_ops").is_none_or(verifies)
}

fn rsa(jwk: &Object) -> Option<Material> {
    let (n, e) = (unsigned(jwk, "n")?, unsigned(jwk, "e")?);
    let bits = n.len().checked_mul(8)?.checked_sub(usize::try_from(n.first()?.leading_zeros()).ok()?)?;
    let odd = |number: &[u8]| number.last().is_some_and(|last| last % 2 == 1);
    // An exponent of 1 makes every message its own signature; the library stops at 33 bits.
    let exponent = odd(&e) && e != [1] && e.len() <= 4;
    if !RSA_BITS.contains(&bits) || !odd(&n) || !exponent {
        return None;
    }
    let algorithms =
        [Algorithm::Ps256, Algorithm::Ps384, Algorithm::Ps512, Algorithm::Rs256, Algorithm::Rs384, Algorithm::Rs512];
    let material = [b"RSA:", &*e, b":", &*n].concat();
    Some((algorithms.into(), DecodingKey::from_rsa_raw_components(&n, &e), material))
}

fn elliptic(jwk: &Object) -> Option<Material> {
    let (x, y) = (bytes(jwk, "x")?, bytes(jwk, "y")?);
    let point = [&[4], &*x, &*y].concat();
    let (algorithm, curve, width): (_, &'static dyn VerificationAlgorithm, _) = match jwk.get("crv")?.as_str()? {
        "P-256" => (Algorithm::Es256, &ECDSA_P256_SHA256_FIXED, 32),
        "P-384" => (Algorithm::Es384, &ECDSA_P384_SHA384_FIXED, 48),
        _ => return None,
    };
    if x.len() != width || y.len() != width || !is_key(curve, &point) {
        return None;
    }
    Some(([algorithm].into(), DecodingKey::from_ec_der(&point), [b"EC:", &*point].concat()))
}

fn edwards(jwk: &Object) -> Option<Material> {
    let x = bytes(jwk, "x")?;
    if jwk.get("crv")?.as_str()? != "Ed25519" || x.len() != 32 || !is_key(&ED25519, &x) {
        return None;
    }
    Some(([Algorithm::EdDsa].into(), DecodingKey::from_ed_der(&x), [b"OKP:", &*x].concat()))
}

/// Whether these bytes are a public key, for instance a point of the curve.
fn is_key(algorithm: &'static dyn VerificationAlgorithm, bytes: &[u8]) -> bool {
    UnparsedPublicKey::new(algorithm, bytes).parse().is_ok()
}

fn bytes(jwk: &Object, name: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(jwk.get(name)?.as_str()?).ok()
}

/// A number without the leading zeros that some issuers write.
fn unsigned(jwk: &Object, name: &str) -> Option<Vec<u8>> {
    let bytes = bytes(jwk, name)?;
    Some(bytes.into_iter().skip_while(|b| *b == 0).collect())
}

/// What only a private or a shared key has. A published one is nobody's any more.
const PRIVATE: [&str; 8] = ["d", "dp", "dq", "k", "oth", "p", "q", "qi"];

const MAX_KEYS: usize = 100;
/// The largest key set that is read, from wherever it comes.
pub(crate) const MAX_SET: usize = 256 * 1024;
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

#[cfg(test)]
mod tests;
