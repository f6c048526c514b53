//! Client certificates: the CAs that count, the CRLs, and the verifier made of both.
//!
//! With CRLs every certificate of a chain needs one that is not past its next update: what is unknown is refused.
//! Without CRLs nothing is revoked. CRLs that would keep out every client of a CA are refused where files are read.
//! Must not know whom a certificate names.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use portcullis_auth::Expiry;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::aws_lc_rs;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{
    CertRevocationListError, CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    RootCertStore, SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, TrustAnchor, UnixTime};

use super::dates::{self, Dates};
use super::{Problem, TlsError, read};

mod lists;

use lists::Issuer;

/// Whether clients are asked for certificates.
#[derive(Clone, Debug)]
pub enum ClientAuth {
    /// They are not.
    None,
    /// They are, and may have none; one that they show must be good.
    Optional(ClientTrust),
    /// Without a good one there is no connection.
    Required(ClientTrust),
}

impl ClientAuth {
    pub(super) fn trust(&self) -> Option<&ClientTrust> {
        match self {
            Self::None => None,
            Self::Optional(trust) | Self::Required(trust) => Some(trust),
        }
    }

    /// What an operator should know about the files: each note is one line.
    pub fn notes(&self) -> Vec<String> {
        self.trust().map(ClientTrust::notes).unwrap_or_default()
    }
}

/// Where the CAs and CRLs for client certificates are.
#[derive(Clone, Debug)]
pub struct ClientFiles {
    /// The CAs, PEM.
    pub ca: PathBuf,
    /// The CRLs, PEM or DER. With none there is no revocation.
    pub crls: Vec<PathBuf>,
    /// Whether a client may come without a certificate.
    pub presence: Presence,
}

/// Whether a client may come without a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It may.
    Optional,
    /// It may not.
    Required,
}

impl ClientFiles {
    /// Reads all of them; none is taken without the others.
    pub fn read(&self, now: SystemTime) -> Result<ClientAuth, TlsError> {
        let ca = read(&self.ca)?;
        let crls = self.crls.iter().map(|path| Ok((path, read(path)?))).collect::<Result<Vec<_>, TlsError>>()?;
        let crls: Vec<_> = crls.iter().map(|(path, crl)| (path.as_path(), crl.expose())).collect();
        let trust = ClientTrust::guarded((&self.ca, ca.expose()), &crls, now)?;
        Ok(match self.presence {
            Presence::Optional => ClientAuth::Optional(trust),
            Presence::Required => ClientAuth::Required(trust),
        })
    }
}

/// The CAs whose clients may come in, and the CRLs about them. Cheap to clone.
#[derive(Clone)]
pub struct ClientTrust {
    verifier: Arc<dyn ClientCertVerifier>,
    authorities: Arc<[CertificateDer<'static>]>,
    /// When the first of the CRLs is too old.
    fresh_until: Expiry,
    /// The files with CRLs of none of the CAs.
    unrelated: Arc<[PathBuf]>,
}

/// A CA whose clients would all be refused, since nothing says which of them are revoked.
#[derive(Debug, thiserror::Error)]
#[error("`{authority}` has no CRL while there are others, so every client of it would be refused")]
struct NoList {
    authority: String,
}

impl ClientTrust {
    /// From what the files hold; the paths only name the parts in an error. A CRL that is too old at `now` is refused:
    /// with it, every client would be. CRLs that fit their CAs badly are not: [`ClientFiles::read`] refuses those.
    pub fn parse(ca: (&Path, &[u8]), crls: &[(&Path, &[u8])], now: SystemTime) -> Result<Self, TlsError> {
        Self::assemble(ca, crls, now).map(|(trust, _locked_out)| trust)
    }

    /// [`ClientTrust::parse`], and not if the clients of a CA could never come in: with CRLs each CA needs one, and a
    /// CRL in its name must be signed by its key. A CRL of none of the CAs may be that of one below them.
    fn guarded(ca: (&Path, &[u8]), crls: &[(&Path, &[u8])], now: SystemTime) -> Result<Self, TlsError> {
        match Self::assemble(ca, crls, now)? {
            (trust, None) => Ok(trust),
            (_, Some(locked_out)) => Err(locked_out),
        }
    }

    /// With what would keep out every client of a CA, if something would.
    fn assemble(
        (ca, cas): (&Path, &[u8]),
        crls: &[(&Path, &[u8])],
        now: SystemTime,
    ) -> Result<(Self, Option<TlsError>), TlsError> {
        let authorities = CertificateDer::pem_slice_iter(cas)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|problem| TlsError::new(ca, Problem::Pem(problem)))?;
        if authorities.is_empty() {
            return Err(TlsError::new(ca, Problem::NoCertificate));
        }
        let mut roots = RootCertStore::empty();
        for authority in &authorities {
            roots.add(authority.clone()).map_err(|problem| TlsError::new(ca, Problem::Authority(problem)))?;
        }
        // The verifier finds a CRL by its issuer's name: of two CAs with one name it would find that of the other.
        let named_twice = |(at, root): (usize, &TrustAnchor<'_>)| {
            roots.roots.iter().take(at).any(|earlier| earlier.subject == root.subject)
        };
        if !crls.is_empty() && roots.roots.iter().enumerate().any(named_twice) {
            return Err(TlsError::new(ca, Problem::NamedTwice));
        }
        let roots = Arc::new(roots);

        let mut lists = Vec::new();
        let mut listed = vec![Listed::No; roots.roots.len()];
        let mut unrelated: Vec<PathBuf> = Vec::new();
        let mut locked_out = None;
        for (path, bytes) in crls {
            for crl in read_crls(path, bytes)? {
                // One list alone, so that the error can name its file.
                verifier(&roots, vec![crl.clone()]).map_err(|problem| TlsError::new(path, problem))?;
                let dates = dates::of_crl(&crl).ok_or_else(|| TlsError::new(path, Problem::NoDates))?;
                if dates.until <= now {
                    return Err(TlsError::new(path, Problem::CrlExpired));
                }
                match lists::issuer(&crl, &roots.roots) {
                    Issuer::Known(at) => listed.iter_mut().skip(at).take(1).for_each(|found| *found = Listed::Yes),
                    Issuer::Unknown if unrelated.last().is_some_and(|last| last == path) => (),
                    Issuer::Unknown => unrelated.push((*path).to_owned()),
                    Issuer::Forged => {
                        let problem = VerifierBuilderError::InvalidCrl(CertRevocationListError::BadSignature);
                        locked_out.get_or_insert(TlsError::new(path, Problem::Verifier(problem)));
                    }
                }
                lists.push((dates, crl));
            }
        }
        let mut unlisted = roots.roots.iter().zip(&listed).filter(|(_, listed)| **listed == Listed::No);
        if let Some((root, _)) = unlisted.next().filter(|_| !lists.is_empty()) {
            let problem = Error::Other(OtherError(Arc::new(NoList { authority: lists::name(root) })));
            locked_out.get_or_insert(TlsError::new(ca, Problem::Authority(problem)));
        }
        // Of several lists about one CA the verifier takes the first: it must be the newest.
        lists.sort_by_key(|(dates, _)| std::cmp::Reverse(dates.from));
        let fresh_until = lists.iter().fold(Expiry::Never, |end, (dates, _)| end.earlier(Expiry::At(dates.until)));
        let lists = lists.into_iter().map(|(_, crl)| crl).collect();
        let verifier = verifier(&roots, lists).map_err(|problem| TlsError::new(ca, problem))?;
        let trust = Self { verifier, authorities: authorities.into(), fresh_until, unrelated: unrelated.into() };
        Ok((trust, locked_out))
    }

    /// What an operator should know about the files: each note is one line.
    pub fn notes(&self) -> Vec<String> {
        let note = |file: &PathBuf| {
            let file = file.display();
            format!("{file}: a CRL of no CA in client_ca, which counts for a CA below one of them or for nobody")
        };
        self.unrelated.iter().map(note).collect()
    }

    /// The CAs, for a scheme that tells them apart.
    pub fn authorities(&self) -> &[CertificateDer<'static>] {
        &self.authorities
    }

    /// The verifier for handshakes.
    pub(super) fn asking(&self, presence: Presence) -> Arc<dyn ClientCertVerifier> {
        Arc::new(Asking { trust: self.clone(), presence })
    }

    /// Verifies a chain, leaf first, and says until when the answer holds if nothing is replaced.
    pub(super) fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<Expiry, Error> {
        // Path building tries combinations: what it is given is bounded before it starts.
        if others.len() > MAX_OTHERS || leaf.len() > MAX_LEAF {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        self.verifier.verify_client_cert(leaf, others, now)?;
        let mut good_until = self.fresh_until;
        for cert in std::iter::once(leaf).chain(others) {
            let Dates { until, .. } = dates::of_certificate(cert).ok_or(CertificateError::BadEncoding)?;
            good_until = good_until.earlier(Expiry::At(until));
        }
        Ok(good_until)
    }
}

impl fmt::Debug for ClientTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTrust")
            .field("authorities", &self.authorities.len())
            .field("fresh_until", &self.fresh_until)
            .finish_non_exhaustive()
    }
}

/// Whether there is a CRL of a CA.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Listed {
    No,
    Yes,
}

/// All CRLs in a file: several in PEM, or one in DER.
fn read_crls(path: &Path, bytes: &[u8]) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let pem = bytes.windows(PEM.len()).any(|window| window == PEM);
    if !pem && bytes.first() == Some(&DER_SEQUENCE) {
        return Ok(vec![CertificateRevocationListDer::from(bytes.to_vec())]);
    }
    let lists = CertificateRevocationListDer::pem_slice_iter(bytes)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|problem| TlsError::new(path, Problem::Pem(problem)))?;
    if lists.is_empty() {
        return Err(TlsError::new(path, Problem::NoCrl));
    }
    Ok(lists)
}

fn verifier(
    roots: &Arc<RootCertStore>,
    crls: Vec<CertificateRevocationListDer<'static>>,
) -> Result<Arc<dyn ClientCertVerifier>, Problem> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    // The whole chain is looked up, and no answer counts as revoked: both are the builder's defaults. That a CRL may
    // be too old is not.
    WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), provider)
        .with_crls(crls)
        .enforce_revocation_expiration()
        .build()
        .map_err(Problem::Verifier)
}

/// A [`ClientTrust`] as rustls asks it in a handshake.
#[derive(Debug)]
struct Asking {
    trust: ClientTrust,
    presence: Presence,
}

impl ClientCertVerifier for Asking {
    fn client_auth_mandatory(&self) -> bool {
        match self.presence {
            Presence::Optional => false,
            Presence::Required => true,
        }
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.trust.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.trust.verify(leaf, others, now).map(|_until| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.trust.verifier.verify_tls12_signature(message, cert, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.trust.verifier.verify_tls13_signature(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.trust.verifier.supported_verify_schemes()
    }
}

const PEM: &[u8] = b"-----BEGIN";
const DER_SEQUENCE: u8 = 0x30;
/// Certificates behind the leaf.
const MAX_OTHERS: usize = 9;
/// Far above what a name, a key and a signature need, post-quantum ones included.
const MAX_LEAF: usize = 16 * 1024;

#[cfg(test)]
mod tests;
