//! What a client showed in its handshake, as long as its connection lasts.
//!
//! Must not say who the client is: schemes read the chain.

use std::sync::Arc;
use std::time::SystemTime;

use rustls_pki_types::CertificateDer;

use crate::tls::{ClientStanding, Distrust, TlsIdentity};

/// A client on one connection, with a certificate or without. Clones share what is known about it.
#[derive(Clone, Debug)]
pub struct TlsClient(Arc<Facts>);

#[derive(Debug)]
struct Facts {
    chain: Box<[CertificateDer<'static>]>,
    identity: TlsIdentity,
    standing: ClientStanding,
}

impl TlsClient {
    /// A client whose `chain`, leaf first, `identity` has verified; empty if it showed none.
    pub(crate) fn new(chain: &[CertificateDer<'static>], identity: &TlsIdentity) -> Self {
        Self(Arc::new(Facts { chain: chain.into(), identity: identity.clone(), standing: ClientStanding::new() }))
    }

    /// What it showed, leaf first; empty if it showed nothing.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.0.chain
    }

    /// Whether that still counts, or is still enough, at `now`, by the CAs and CRLs that are served now.
    pub fn still_trusted(&self, now: SystemTime) -> Result<(), Distrust> {
        let Facts { chain, identity, standing } = &*self.0;
        standing.check(identity, chain, now)
    }
}
