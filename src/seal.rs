//! Sealing: what a client carries for this gate, and can neither read nor change.
//!
//! Session tokens, tickets and handles are AES-256-GCM-SIV boxes under a key of their own purpose. A box that does not
//! open says only that: never whether the key, the owner, the purpose or a bit was wrong. Must not know what is inside.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, MAX_TAG_LEN, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::{hkdf, rand};
use portcullis_auth::{IdentityKey, Secret};

/// Seals with the newest key and opens with every key it was given.
pub struct Sealer {
    newest: SealKey,
    older: Vec<SealKey>,
}

/// An identity as the owner of a box; lengths keep its parts apart.
pub fn owner_bytes(owner: &IdentityKey) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in [owner.scheme(), owner.authority(), owner.subject()] {
        bytes.extend_from_slice(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        bytes.extend_from_slice(part.as_bytes());
    }
    bytes
}

/// What a box is for; a box made for one purpose does not open for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// The cookie that chooses a session.
    Cookie,
    /// The state of a query that a client polls.
    Poll,
    /// A prepared statement handle.
    Prepared,
    /// The bearer token that a handshake gives.
    Session,
    /// A ticket or result handle.
    Ticket,
}

impl Sealer {
    /// A key that lives as long as this process: what it sealed opens nowhere else and not after a restart.
    pub fn random() -> Result<Self, SealKeyError> {
        let mut key = vec![0_u8; KEY_LEN];
        rand::fill(&mut key).map_err(|_unspecified| SealKeyError::Unusable)?;
        Self::new(vec![Secret::new(key)])
    }

    /// Keys of 32 bytes, newest first. The first seals; all of them open, so that a key can be rotated out.
    pub fn new(keys: Vec<Secret>) -> Result<Self, SealKeyError> {
        let mut keys = keys.iter().map(SealKey::derive);
        let newest = keys.next().ok_or(SealKeyError::Missing)??;
        let older = keys.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { newest, older })
    }

    /// Seals `plaintext` so that it opens only for the same purpose and the same `owner`. The owner is authenticated,
    /// not stored; it may be empty.
    pub fn seal(&self, purpose: Purpose, owner: &[u8], plaintext: &[u8]) -> Result<Vec<u8>, SealError> {
        if plaintext.len() > MAX_PLAINTEXT {
            return Err(SealError::TooLong);
        }
        let key = &self.newest;
        let mut ciphertext = plaintext.to_vec();
        let nonce = key
            .of(purpose)
            .seal_in_place_append_tag(Aad::from(bound_to(key.id, owner)), &mut ciphertext)
            .map_err(|_unspecified| SealError::Unavailable)?;

        let mut sealed = Vec::with_capacity(ciphertext.len().saturating_add(HEADER_LEN));
        sealed.push(VERSION);
        sealed.extend_from_slice(&key.id);
        sealed.extend_from_slice(nonce.as_ref());
        sealed.append(&mut ciphertext);
        Ok(sealed)
    }

    /// What was sealed for this purpose and owner, or the one refusal.
    pub fn open(&self, purpose: Purpose, owner: &[u8], sealed: &[u8]) -> Result<Vec<u8>, NotOpened> {
        // Before any cryptography, so that a long forgery costs no more than a short one.
        if sealed.len() > MAX_SEALED {
            return Err(NotOpened);
        }
        let (&VERSION, rest) = sealed.split_first().ok_or(NotOpened)? else {
            return Err(NotOpened);
        };
        let (&id, rest) = rest.split_first_chunk::<KEY_ID_LEN>().ok_or(NotOpened)?;
        let (&nonce, ciphertext) = rest.split_first_chunk::<NONCE_LEN>().ok_or(NotOpened)?;

        // Two keys may share an id by chance; each that has it is tried.
        for key in std::iter::once(&self.newest).chain(&self.older).filter(|key| key.id == id) {
            let mut opened = ciphertext.to_vec();
            let nonce = Nonce::assume_unique_for_key(nonce);
            if let Ok(plaintext) = key.of(purpose).open_in_place(nonce, Aad::from(bound_to(id, owner)), &mut opened) {
                let length = plaintext.len();
                opened.truncate(length);
                return Ok(opened);
            }
        }
        Err(NotOpened)
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("older", &self.older.len()).finish_non_exhaustive()
    }
}

/// The box does not open. There is one reason for every cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sealed value does not open")]
pub struct NotOpened;

/// Nothing was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Such a box would be refused when it comes back.
    #[error("the value to seal is longer than {MAX_PLAINTEXT} bytes")]
    TooLong,
    /// The operating system gave no randomness.
    #[error("sealing is not available")]
    Unavailable,
}

/// Keys that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealKeyError {
    /// A key of another length.
    #[error("a sealing key must be {KEY_LEN} bytes, not {0}")]
    Length(usize),
    /// An empty list.
    #[error("there is no sealing key")]
    Missing,
    /// The library refused the key, or gave no randomness to make one.
    #[error("the sealing key cannot be used")]
    Unusable,
    /// All bytes equal: a placeholder, not a key.
    #[error("the sealing key is not random: every byte is the same")]
    Weak,
}

/// One configured key: its public id and a subkey for each purpose.
struct SealKey {
    id: [u8; KEY_ID_LEN],
    cookie: RandomizedNonceKey,
    poll: RandomizedNonceKey,
    prepared: RandomizedNonceKey,
    session: RandomizedNonceKey,
    ticket: RandomizedNonceKey,
}

impl SealKey {
    fn derive(secret: &Secret) -> Result<Self, SealKeyError> {
        let bytes = secret.expose();
        if bytes.len() != KEY_LEN {
            return Err(SealKeyError::Length(bytes.len()));
        }
        if bytes.iter().all(|byte| Some(byte) == bytes.first()) {
            return Err(SealKeyError::Weak);
        }
        let root = hkdf::Salt::new(hkdf::HKDF_SHA256, SALT).extract(bytes);
        let mut id = [0_u8; KEY_ID_LEN];
        expand(&root, b"id", &mut id)?;
        Ok(Self {
            id,
            cookie: subkey(&root, b"cookie")?,
            poll: subkey(&root, b"poll")?,
            prepared: subkey(&root, b"prepared")?,
            session: subkey(&root, b"session")?,
            ticket: subkey(&root, b"ticket")?,
        })
    }

    fn of(&self, purpose: Purpose) -> &RandomizedNonceKey {
        match purpose {
            Purpose::Cookie => &self.cookie,
            Purpose::Poll => &self.poll,
            Purpose::Prepared => &self.prepared,
            Purpose::Session => &self.session,
            Purpose::Ticket => &self.ticket,
        }
    }
}

fn subkey(root: &hkdf::Prk, label: &[u8]) -> Result<RandomizedNonceKey, SealKeyError> {
    let mut key = [0_u8; KEY_LEN];
    expand(root, label, &mut key)?;
    RandomizedNonceKey::new(&AES_256_GCM_SIV, &key).map_err(|_unspecified| SealKeyError::Unusable)
}

fn expand(root: &hkdf::Prk, label: &[u8], out: &mut [u8]) -> Result<(), SealKeyError> {
    root.expand(&[label], OutLen(out.len()))
        .and_then(|okm| okm.fill(out))
        .map_err(|_unspecified| SealKeyError::Unusable)
}

struct OutLen(usize);

impl hkdf::KeyType for OutLen {
    fn len(&self) -> usize {
        self.0
    }
}

/// Everything before the ciphertext is bound as well, so that no header byte can be exchanged.
fn bound_to(id: [u8; KEY_ID_LEN], owner: &[u8]) -> Vec<u8> {
    let mut aad = Vec::with_capacity(owner.len().saturating_add(HEADER_LEN));
    aad.push(VERSION);
    aad.extend_from_slice(&id);
    aad.extend_from_slice(owner);
    aad
}

const VERSION: u8 = 1;
const KEY_LEN: usize = 32;
const KEY_ID_LEN: usize = 4;
const HEADER_LEN: usize = 1 + KEY_ID_LEN + NONCE_LEN;
/// The longest box that is looked at: a prepared handle holds its statement, which may have 16 MiB.
const MAX_SEALED: usize = 17 * 1024 * 1024;
const MAX_PLAINTEXT: usize = MAX_SEALED - HEADER_LEN - MAX_TAG_LEN;
const SALT: &[u8] = b"portcullis seal v1";

#[cfg(test)]
mod tests;
