//! The key that signed a leaf: the authority of an identity.
//!
//! # Why that key
//!
//! * Not the CA's name: two CAs can have one, and each would then vouch for the other's subjects.
//! * Not the trust anchor: CAs below one root would then vouch for each other's subjects.
//! * Not the certificate that the client sent behind its leaf: a client may send any certificate there, another CA's
//!   included. So the path is built and its signatures are checked again, as TLS has done. To be another CA's identity
//!   one would have to forge a signature of that CA's key.
//!
//! A CA that is renewed with its key stays the same authority; one with a new key is a new one. Must not check
//! revocation: TLS has, with the CRLs that are configured there.

use std::time::SystemTime;

use aws_lc_rs::digest::{SHA256, digest};
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use crate::leaf::{hex, time};
use crate::rules::RulesError;

/// The CAs whose word counts.
#[derive(Debug)]
pub(crate) struct Authorities(Vec<TrustAnchor<'static>>);

impl Authorities {
    pub(crate) fn new(certs: &[CertificateDer<'_>]) -> Result<Self, RulesError> {
        if certs.is_empty() {
            return Err(RulesError::NoAuthority);
        }
        let anchor = |(cert, number)| match anchor_from_trusted_cert(cert) {
            Ok(anchor) => Ok(anchor.to_owned()),
            Err(_) => Err(RulesError::Authority { number }),
        };
        certs.iter().zip(1..).map(anchor).collect::<Result<_, _>>().map(Self)
    }

    /// Who signed the leaf of this chain, if it leads to one of these CAs at `now`.
    pub(crate) fn vouch(&self, chain: &[CertificateDer<'static>], now: SystemTime) -> Option<Vouched> {
        let (leaf, others) = chain.split_first()?;
        if others.len() > MAX_OTHERS {
            return None;
        }
        let since_epoch = now.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let leaf = EndEntityCert::try_from(leaf).ok()?;
        let path = leaf
            .verify_for_usage(
                ALL_VERIFICATION_ALGS,
                &self.0,
                others,
                UnixTime::since_unix_epoch(since_epoch),
                KeyUsage::client_auth(),
                None,
                None,
            )
            .ok()?;

        let mut vouched = Vouched {
            authority: hex(digest(&SHA256, &path.issuer_spki()).as_ref()),
            from: SystemTime::UNIX_EPOCH,
            until: None,
        };
        for between in path.intermediate_certificates() {
            let der = between.der();
            let (_, cert) = x509_parser::parse_x509_certificate(&der).ok()?;
            vouched.from = vouched.from.max(time(cert.validity().not_before).ok()?);
            let end = time(cert.validity().not_after).ok()?;
            vouched.until = Some(vouched.until.map_or(end, |until| until.min(end)));
        }
        Some(vouched)
    }
}

/// That a chain leads to a CA, and from when until when the certificates between them say so.
#[derive(Clone, Debug)]
pub(crate) struct Vouched {
    /// The SHA-256 of the key that signed the leaf.
    pub(crate) authority: String,
    from: SystemTime,
    /// None where a trust anchor itself signed the leaf.
    until: Option<SystemTime>,
}

impl Vouched {
    pub(crate) fn holds(&self, now: SystemTime) -> bool {
        self.from <= now && self.until.is_none_or(|until| now < until)
    }

    /// Whichever ends first: the leaf, or what lies between it and the anchor.
    pub(crate) fn end(&self, leaf: SystemTime) -> SystemTime {
        self.until.map_or(leaf, |until| until.min(leaf))
    }
}

const MAX_OTHERS: usize = 9;
