//! CAs and client certificates for tests: by rcgen, and by hand where it cannot make what must be refused.
#![expect(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "a failed step fails the test")]

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, DnValue, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, PublicKeyData, SanType, SigningKey, date_time_ymd,
};
use rustls_pki_types::CertificateDer;

/// 2025-06-01, in the middle of what these certificates last.
pub(crate) fn noon() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_748_736_000)
}

pub(crate) struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    pub(crate) fn new(name: &str) -> Self {
        Self(CertifiedIssuer::self_signed(Self::params(name), KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn under(&self, name: &str) -> Self {
        Self(CertifiedIssuer::signed_by(Self::params(name), KeyPair::generate().unwrap(), &self.0).unwrap())
    }

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2028, 1, 1);
        params
    }

    pub(crate) fn der(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    /// A client certificate for 2021 to 2030 without any name, changed by `edit`.
    pub(crate) fn leaf(&self, edit: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.not_before = date_time_ymd(2021, 1, 1);
        params.not_after = date_time_ymd(2030, 1, 1);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        edit(&mut params);
        params.signed_by(&KeyPair::generate().unwrap(), &self.0).unwrap().der().clone()
    }

    pub(crate) fn uri(&self, uri: &str) -> CertificateDer<'static> {
        self.leaf(|params| params.subject_alt_names = vec![san_uri(uri)])
    }

    pub(crate) fn cn(&self, name: impl Into<DnValue>) -> CertificateDer<'static> {
        self.leaf(|params| params.distinguished_name = subject(name))
    }

    /// A client certificate with this subject and these extensions, both in DER, signed like any other.
    pub(crate) fn by_hand(&self, subject: &[u8], extensions: &[u8]) -> CertificateDer<'static> {
        let key = KeyPair::generate().unwrap();
        let own = self.der();
        let (_, own) = x509_parser::parse_x509_certificate(&own).unwrap();
        let ecdsa_with_sha256 = der(0x30, &[b"\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02"]);
        let to_sign = der(
            0x30,
            &[
                b"\xa0\x03\x02\x01\x02",
                b"\x02\x01\x07",
                &ecdsa_with_sha256,
                own.subject().as_raw(),
                &der(0x30, &[b"\x17\x0d210101000000Z", b"\x17\x0d300101000000Z"]),
                subject,
                &key.subject_public_key_info(),
                &der(0xa3, &[&der(0x30, &[extensions])]),
            ],
        );
        let signature = self.0.key().sign(&to_sign).unwrap();
        der(0x30, &[&to_sign, &ecdsa_with_sha256, &der(0x03, &[&[0], &signature])]).into()
    }
}

/// The extension that every client certificate needs.
pub(crate) const FOR_CLIENTS: &[u8] =
    b"\x30\x13\x06\x03\x55\x1d\x25\x04\x0c\x30\x0a\x06\x08\x2b\x06\x01\x05\x05\x07\x03\x02";

pub(crate) fn subject(name: impl Into<DnValue>) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    subject
}

pub(crate) fn san_uri(uri: &str) -> SanType {
    SanType::URI(uri.try_into().unwrap())
}

/// One part of a subject: a set of common names and of organizations.
pub(crate) fn rdn(values: &[(&[u8], &[u8])]) -> Vec<u8> {
    let values: Vec<_> =
        values.iter().map(|(oid, value)| der(0x30, &[&der(0x06, &[oid]), &der(0x0c, &[value])])).collect();
    der(0x31, &[&values.concat()])
}

pub(crate) const CN: &[u8] = b"\x55\x04\x03";
pub(crate) const O: &[u8] = b"\x55\x04\x0a";

pub(crate) fn der(tag: u8, contents: &[&[u8]]) -> Vec<u8> {
    let content = contents.concat();
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    let header: &[u8] = match length {
        [0, short] if short < 0x80 => &[tag, short],
        [0, byte] => &[tag, 0x81, byte],
        [high, low] => &[tag, 0x82, high, low],
    };
    [header, &content].concat()
}
