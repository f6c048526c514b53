//! The server's side of TLS: from PEM files to a rustls configuration.
//!
//! The cryptography provider is named here and never taken from a process-wide default. HTTP/2 is the only protocol
//! offered. Where client certificates are asked for, no session is ever resumed: rustls takes the client's chain from
//! the resumed session without looking at it again. Must not know a header, a principal or a scheme: client
//! certificates are checked here and judged elsewhere.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::RwLock;
use portcullis_auth::Secret;
use rustls::crypto::aws_lc_rs;
use rustls::server::{NoServerSessionStorage, VerifierBuilderError};
use rustls::{ServerConfig, SupportedProtocolVersion, version};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

mod clients;
mod dates;
mod standing;

pub use clients::{ClientAuth, ClientFiles, ClientTrust, Presence};
pub use standing::{ClientStanding, Distrust};

/// A certificate chain with its key and what is asked of clients, ready to serve. Clones share it, and
/// [`TlsIdentity::replace`] reaches all of them.
#[derive(Clone)]
pub struct TlsIdentity {
    current: Arc<RwLock<Arc<Current>>>,
}

/// What is replaced as one.
struct Current {
    config: Arc<ServerConfig>,
    clients: ClientAuth,
    epoch: u64,
}

/// The oldest protocol version a client may speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinVersion {
    /// TLS 1.2 with forward-secret AEAD suites, or 1.3.
    Tls12,
    /// TLS 1.3 only.
    Tls13,
}

impl TlsIdentity {
    /// Reads a PEM chain (leaf first) and its PEM key, and refuses a pair that does not belong together.
    pub fn load(cert: &Path, key: &Path, min: MinVersion) -> Result<Self, TlsError> {
        let chain = read(cert)?;
        let secret = read(key)?;
        Self::from_pem((cert, &chain), (key, &secret), min, ClientAuth::None)
    }

    /// The same, and asks clients for certificates. A CRL that is too old at `now` is an error.
    pub fn load_with_clients(
        cert: &Path,
        key: &Path,
        min: MinVersion,
        clients: &ClientFiles,
        now: SystemTime,
    ) -> Result<Self, TlsError> {
        let chain = read(cert)?;
        let secret = read(key)?;
        Self::from_pem((cert, &chain), (key, &secret), min, clients.read(now)?)
    }

    /// The same from PEM text in memory; the paths only name the parts in an error.
    pub fn from_pem(
        (cert, chain): (&Path, &Secret),
        (key, secret): (&Path, &Secret),
        min: MinVersion,
        clients: ClientAuth,
    ) -> Result<Self, TlsError> {
        let chain = CertificateDer::pem_slice_iter(chain.expose())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|problem| TlsError::new(cert, Problem::Pem(problem)))?;
        if chain.is_empty() {
            return Err(TlsError::new(cert, Problem::NoCertificate));
        }
        let private = PrivateKeyDer::pem_slice_iter(secret.expose())
            .next()
            .ok_or_else(|| TlsError::new(key, Problem::NoKey))?
            .map_err(|problem| TlsError::new(key, Problem::Pem(problem)))?;

        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(min.versions())
            .map_err(|problem| TlsError::new(cert, Problem::Rustls(problem)))?;
        let builder = match &clients {
            ClientAuth::None => builder.with_no_client_auth(),
            ClientAuth::Optional(trust) => builder.with_client_cert_verifier(trust.asking(Presence::Optional)),
            ClientAuth::Required(trust) => builder.with_client_cert_verifier(trust.asking(Presence::Required)),
        };
        let mut config =
            builder.with_single_cert(chain, private).map_err(|problem| TlsError::new(key, Problem::Rustls(problem)))?;
        config.alpn_protocols = vec![H2.to_vec()];
        match &clients {
            ClientAuth::None => (),
            // A resumed session would bring its old chain along, unverified.
            ClientAuth::Optional(_) | ClientAuth::Required(_) => {
                config.send_tls13_tickets = 0;
                config.session_storage = Arc::new(NoServerSessionStorage {});
            }
        }
        let current = Current { config: Arc::new(config), clients, epoch: 1 };
        Ok(Self { current: Arc::new(RwLock::new(Arc::new(current))) })
    }

    /// Serves `fresh` from the next handshake on. Connections that are open keep what they agreed on, and the chains
    /// they came with are judged by `fresh` as well.
    pub fn replace(&self, fresh: &Self) {
        // Built from nothing, never an edited copy: a shared session store would carry old decisions over.
        let fresh = fresh.current();
        let mut current = self.current.write();
        let (config, clients) = (Arc::clone(&fresh.config), fresh.clients.clone());
        *current = Arc::new(Current { config, clients, epoch: current.epoch.saturating_add(1) });
    }

    /// Whether a chain, leaf first, that was good in a handshake still is: by the CAs and CRLs of now, at `now`. An
    /// empty chain stands for a client that came without.
    ///
    /// Verifies signatures; [`ClientStanding`] remembers the answer.
    pub fn still_trusted(&self, chain: &[CertificateDer<'static>], now: SystemTime) -> Result<(), Distrust> {
        self.current().verify(chain, now).map(|_until| ())
    }

    /// Grows at every [`TlsIdentity::replace`].
    pub fn epoch(&self) -> u64 {
        self.current().epoch
    }

    /// What is asked of clients now.
    pub fn clients(&self) -> ClientAuth {
        self.current().clients.clone()
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current().config)
    }

    fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current.read())
    }
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsIdentity").finish_non_exhaustive()
    }
}

impl MinVersion {
    fn versions(self) -> &'static [&'static SupportedProtocolVersion] {
        match self {
            Self::Tls12 => TLS_1_2_AND_UP,
            Self::Tls13 => TLS_1_3_ONLY,
        }
    }
}

/// A certificate or key that cannot be served: which file, and what is wrong with it.
#[derive(Debug, thiserror::Error)]
#[error("`{}`: {problem}", file.display())]
pub struct TlsError {
    file: PathBuf,
    problem: Problem,
}

impl TlsError {
    fn new(file: &Path, problem: Problem) -> Self {
        Self { file: file.to_owned(), problem }
    }

    /// The file at fault.
    pub fn file(&self) -> &Path {
        &self.file
    }
}

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("a CA in this file cannot be used: {0}")]
    Authority(rustls::Error),
    #[error("this CRL is past its next update: a newer one is needed")]
    CrlExpired,
    #[error("two CAs in this file have one name, which cannot be told apart in a CRL: give the new one another name")]
    NamedTwice,
    #[error("there is no certificate in this file")]
    NoCertificate,
    #[error("there is no CRL in this file")]
    NoCrl,
    #[error("this CRL does not say in a readable way when it was made and when the next one comes")]
    NoDates,
    #[error("there is no private key in this file that can be used; an encrypted key must be decrypted first")]
    NoKey,
    #[error("not readable as PEM: {0}")]
    Pem(pem::Error),
    #[error("cannot be read: {0}")]
    Read(io::Error),
    #[error("certificate and key cannot be served: {0}")]
    Rustls(rustls::Error),
    #[error("cannot be used to verify clients: {0}")]
    Verifier(VerifierBuilderError),
}

/// Certificates are public, but the key file comes the same way and must not stay in memory.
fn read(path: &Path) -> Result<Secret, TlsError> {
    std::fs::read(path).map(Secret::new).map_err(|problem| TlsError::new(path, Problem::Read(problem)))
}

static TLS_1_2_AND_UP: &[&SupportedProtocolVersion] = &[&version::TLS13, &version::TLS12];
static TLS_1_3_ONLY: &[&SupportedProtocolVersion] = &[&version::TLS13];

/// The one application protocol: gRPC needs HTTP/2.
pub(crate) const H2: &[u8] = b"h2";

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
