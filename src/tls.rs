//! The server's side of TLS: from PEM files to a rustls configuration.
//!
//! The cryptography provider is named here and never taken from a process-wide default. HTTP/2 is the only protocol
//! offered. Must not know a header, a principal or a scheme: client certificates are checked here and judged elsewhere.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use portcullis_auth::Secret;
use rustls::crypto::aws_lc_rs;
use rustls::{ServerConfig, SupportedProtocolVersion, version};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate chain with its key, ready to serve. Clones share it, and [`TlsIdentity::replace`] reaches all of them.
#[derive(Clone)]
pub struct TlsIdentity {
    current: Arc<RwLock<Arc<ServerConfig>>>,
}

/// The oldest protocol version a client may speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinVersion {
    /// TLS 1.2 with forward-secret AEAD suites, or 1.3.
    Tls12,
    /// TLS 1.3 only.
    Tls13,
}

/// Whether clients are asked for certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// They are not.
    None,
}

impl TlsIdentity {
    /// Reads a PEM chain (leaf first) and its PEM key, and refuses a pair that does not belong together.
    pub fn load(cert: &Path, key: &Path, min: MinVersion) -> Result<Self, TlsError> {
        let chain = read(cert)?;
        let secret = read(key)?;
        Self::from_pem((cert, &chain), (key, &secret), min, ClientAuth::None)
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
        let builder = match clients {
            // When certificates are asked for, resumption must go as well (no tickets, no session storage): rustls
            // takes the client's chain from the resumed session without looking at it again.
            ClientAuth::None => builder.with_no_client_auth(),
        };
        let mut config =
            builder.with_single_cert(chain, private).map_err(|problem| TlsError::new(key, Problem::Rustls(problem)))?;
        config.alpn_protocols = vec![H2.to_vec()];
        Ok(Self { current: Arc::new(RwLock::new(Arc::new(config))) })
    }

    /// Serves `fresh` from the next handshake on. Connections that are open keep what they agreed on.
    pub fn replace(&self, fresh: &Self) {
        // Built from nothing, never an edited copy: a shared session store would carry old decisions over.
        let config = fresh.config();
        *self.current.write() = config;
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
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
    #[error("there is no certificate in this file")]
    NoCertificate,
    #[error("there is no private key in this file that can be used; an encrypted key must be decrypted first")]
    NoKey,
    #[error("not readable as PEM: {0}")]
    Pem(pem::Error),
    #[error("cannot be read: {0}")]
    Read(io::Error),
    #[error("certificate and key cannot be served: {0}")]
    Rustls(rustls::Error),
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
mod tests;
