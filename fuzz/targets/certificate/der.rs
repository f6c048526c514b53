//! A CA of a few lines that signs whatever subject and extensions it is given, well-formed or not.
//!
//! By hand, since no library makes what must be refused, and with a fixed key, so that an input means one certificate.
#![expect(clippy::unwrap_used, reason = "a failed step is a finding")]

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};

/// A CA with an Ed25519 key.
pub(super) struct Authority(Ed25519KeyPair);

impl Authority {
    /// The CA with this number: its key is known to everybody.
    pub(super) fn new(number: u8) -> Self {
        Self(Ed25519KeyPair::from_seed_unchecked(&[number; 32]).unwrap())
    }

    /// The CA's own certificate.
    pub(super) fn certificate(&self) -> Vec<u8> {
        // Basic constraints: a CA. Key usage: signs certificates and CRLs.
        let constraints = b"\x30\x0f\x06\x03\x55\x1d\x13\x01\x01\xff\x04\x05\x30\x03\x01\x01\xff";
        let usage = b"\x30\x0e\x06\x03\x55\x1d\x0f\x01\x01\xff\x04\x04\x03\x02\x01\x06";
        self.issue(&common_name(NAME), &[constraints.as_slice(), usage].concat())
    }

    /// A certificate for 2020 to 2040 with this subject and these extensions, both in DER.
    pub(super) fn issue(&self, subject: &[u8], extensions: &[u8]) -> Vec<u8> {
        let algorithm = sequence(b"\x06\x03\x2b\x65\x70");
        let key = [b"\0".as_slice(), self.0.public_key().as_ref()].concat();
        let to_sign = sequence(
            &[
                b"\xa0\x03\x02\x01\x02\x02\x01\x07",
                algorithm.as_slice(),
                &common_name(NAME),
                &sequence(b"\x17\x0d200101000000Z\x17\x0d400101000000Z"),
                subject,
                &sequence(&[algorithm.as_slice(), &tagged(0x03, &key)].concat()),
                &tagged(0xa3, &sequence(extensions)),
            ]
            .concat(),
        );
        let signature = [b"\0".as_slice(), self.0.sign(&to_sign).as_ref()].concat();
        sequence(&[to_sign.as_slice(), &algorithm, &tagged(0x03, &signature)].concat())
    }
}

/// A name of one part, its common name.
pub(super) fn common_name(name: &[u8]) -> Vec<u8> {
    let value = sequence(&[b"\x06\x03\x55\x04\x03".as_slice(), &tagged(0x0c, name)].concat());
    sequence(&tagged(0x31, &value))
}

/// The extension of the subject alternative names, from names in DER.
pub(super) fn alternative_names(names: &[u8]) -> Vec<u8> {
    sequence(&[b"\x06\x03\x55\x1d\x11".as_slice(), &tagged(0x04, &sequence(names))].concat())
}

/// These extensions and the one that every client certificate needs.
pub(super) fn with_client_usage(extensions: &[u8]) -> Vec<u8> {
    [CLIENT_USAGE, extensions].concat()
}

pub(super) fn sequence(content: &[u8]) -> Vec<u8> {
    tagged(0x30, content)
}

pub(super) fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap().to_be_bytes();
    let header: &[u8] = match length {
        [0, 0, 0, short] if short < 0x80 => &[tag, short],
        [0, 0, 0, byte] => &[tag, 0x81, byte],
        [0, 0, high, low] => &[tag, 0x82, high, low],
        [a, b, c, d] => &[tag, 0x84, a, b, c, d],
    };
    [header, content].concat()
}

const NAME: &[u8] = b"Fuzz CA";
const CLIENT_USAGE: &[u8] = b"\x30\x13\x06\x03\x55\x1d\x25\x04\x0c\x30\x0a\x06\x08\x2b\x06\x01\x05\x05\x07\x03\x02";
