//! What a scheme hands in to be checked: sample credentials by what must become of them, and its secrets.
//!
//! Must not show a credential in `Debug`.

use std::fmt;
use std::time::SystemTime;

use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use rustls_pki_types::CertificateDer;

use crate::attempt::Attempt;

/// Sample credentials of a scheme.
///
/// Every [`Part`] needs a sample, or a reason why this scheme lacks it: a suite that checks nothing proves nothing.
#[derive(Clone)]
pub struct Samples<'a> {
    now: SystemTime,
    samples: Vec<(Part, Sample)>,
    lacking: Vec<(Part, &'a str)>,
    secrets: Vec<&'a [u8]>,
    names: Vec<&'a str>,
}

impl<'a> Samples<'a> {
    /// No samples yet, to be judged at `now`.
    pub fn new(now: SystemTime) -> Self {
        Self { now, samples: Vec::new(), lacking: Vec::new(), secrets: Vec::new(), names: Vec::new() }
    }

    /// One more sample of this part.
    pub fn with(mut self, part: Part, sample: Sample) -> Self {
        self.samples.push((part, sample));
        self
    }

    /// Says why there can be no sample of this part.
    pub fn lacks(mut self, part: Part, reason: &'a str) -> Self {
        self.lacking.push((part, reason));
        self
    }

    /// Something that must never show: each secret of each sample, and every secret the scheme was configured with.
    pub fn secret(mut self, secret: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        self.secrets.push(secret.as_ref());
        self
    }

    /// A name that a sample presents where only its scheme finds it, such as in a token or a certificate: no reason may
    /// quote it. Names and passwords of `Basic`, whole tokens and whole headers are found without this.
    pub fn name(mut self, name: &'a str) -> Self {
        self.names.push(name);
        self
    }

    pub(super) fn now(&self) -> SystemTime {
        self.now
    }

    /// The samples of a part, with a label that tells them apart.
    pub(super) fn of(&self, part: Part) -> impl Iterator<Item = (String, &Sample)> {
        self.samples
            .iter()
            .filter(move |(of, _)| *of == part)
            .zip(1_usize..)
            .map(move |((_, sample), number)| (format!("{part:?} {number}"), sample))
    }

    pub(super) fn is_missing(&self, part: Part) -> bool {
        let has = self.samples.iter().any(|(of, _)| *of == part);
        let argued = self.lacking.iter().any(|(of, reason)| *of == part && !reason.is_empty());
        // A good credential is what makes the refusals mean something: nothing excuses its absence.
        !has && (part == Part::Good || !argued)
    }

    pub(super) fn secrets(&self) -> &[&'a [u8]] {
        &self.secrets
    }

    pub(super) fn names(&self) -> &[&'a str] {
        &self.names
    }
}

impl fmt::Debug for Samples<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Samples")
            .field("now", &self.now)
            .field("samples", &self.samples)
            .field("lacking", &self.lacking)
            .field("secrets", &self.secrets.len())
            .field("names", &self.names.len())
            .finish()
    }
}

/// What must become of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Was good and has expired: rejected.
    Expired,
    /// Good, but for another scheme: abstained on.
    Foreign,
    /// Admitted.
    Good,
    /// Of this scheme's form, but broken: rejected.
    Malformed,
    /// Well-formed, of an identity or key that does not exist: rejected like [`Part::Wrong`].
    Unknown,
    /// Well-formed, of an identity or key that exists, with a wrong secret or signature: rejected.
    Wrong,
}

impl Part {
    pub(super) const ALL: [Self; 6] =
        [Self::Expired, Self::Foreign, Self::Good, Self::Malformed, Self::Unknown, Self::Wrong];
}

/// A credential as a client presents it: headers, certificates, or both.
#[derive(Clone, Default)]
pub struct Sample {
    headers: HeaderMap,
    peer_certs: Vec<CertificateDer<'static>>,
}

impl Sample {
    /// Nothing at all.
    pub fn none() -> Self {
        Self::default()
    }

    /// An `authorization` header. Bytes that no header may hold leave the value empty.
    pub fn authorization(value: impl AsRef<[u8]>) -> Self {
        Self::none().with_authorization(value)
    }

    /// One more `authorization` header.
    pub fn with_authorization(mut self, value: impl AsRef<[u8]>) -> Self {
        let value = HeaderValue::from_bytes(value.as_ref()).unwrap_or(HeaderValue::from_static(""));
        self.headers.append(AUTHORIZATION, value);
        self
    }

    /// These headers.
    pub fn headers(headers: HeaderMap) -> Self {
        Self { headers, peer_certs: Vec::new() }
    }

    /// With this certificate chain, leaf first.
    pub fn with_peer_certs(self, peer_certs: Vec<CertificateDer<'static>>) -> Self {
        Self { peer_certs, ..self }
    }

    pub(super) fn attempt(&self, now: SystemTime) -> Attempt<'_> {
        Attempt::new(&self.headers, now).with_peer_certs(&self.peer_certs)
    }

    pub(super) fn authorization_value(&self) -> Option<&[u8]> {
        self.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes)
    }
}

impl fmt::Debug for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sample")
            .field("headers", &self.headers.len())
            .field("peer_certs", &self.peer_certs.len())
            .finish()
    }
}
