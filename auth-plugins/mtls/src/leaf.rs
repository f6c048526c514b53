//! What a client certificate says about itself: its names, its serial number, how long it lasts and what it is for.
//!
//! TLS has verified the certificate, but lets pass what an identity must not rest on: two names of a kind, odd string
//! types, keys that sign other certificates. Must not verify signatures, and must not choose among names.

use std::time::{Duration, SystemTime};

use x509_parser::asn1_rs::Tag;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_EXT_BASIC_CONSTRAINTS};
use x509_parser::time::ASN1Time;
use x509_parser::x509::{X509Name, X509Version};

use crate::names;
use crate::rules::Field;

/// An end-entity certificate, taken apart. Whether somebody trustworthy signed it is another question.
#[derive(Clone, Debug)]
pub struct Leaf {
    serial: String,
    not_before: SystemTime,
    not_after: SystemTime,
    purpose: Purpose,
    cn: Value,
    dns: Value,
    email: Value,
    uri: Value,
}

impl Leaf {
    /// Takes a certificate apart. Any bytes may be given.
    ///
    /// # Errors
    ///
    /// If it is not a certificate, is larger than 16 KiB, or is one that signs certificates or CRLs.
    pub fn parse(der: &[u8]) -> Result<Self, LeafError> {
        if der.len() > MAX_LEAF {
            return Err(LeafError::TooLarge);
        }
        let (rest, cert) = x509_parser::parse_x509_certificate(der).map_err(|_| LeafError::Unreadable)?;
        if !rest.is_empty() || cert.version() != X509Version::V3 {
            return Err(LeafError::Unreadable);
        }
        // Of two extensions of one kind, two readers would choose differently.
        cert.extensions_map().map_err(|_| LeafError::Unreadable)?;
        if signs_others(&cert)? {
            return Err(LeafError::Authority);
        }

        let [mut dns, mut email, mut uri] = [Value::Absent, Value::Absent, Value::Absent];
        let names = cert.subject_alternative_name().map_err(|_| LeafError::Unreadable)?;
        for name in names.iter().flat_map(|names| &names.value.general_names) {
            match name {
                GeneralName::RFC822Name(text) => email.add(Field::Email, text),
                GeneralName::DNSName(text) => dns.add(Field::Dns, text),
                GeneralName::URI(text) => uri.add(Field::Uri, text),
                // Not even text, or of no kind there is: no other name is to be trusted beside it.
                GeneralName::Invalid(..) => return Err(LeafError::Unreadable),
                GeneralName::OtherName(..)
                | GeneralName::X400Address(_)
                | GeneralName::DirectoryName(_)
                | GeneralName::EDIPartyName(_)
                | GeneralName::IPAddress(_)
                | GeneralName::RegisteredID(_) => (),
            }
        }
        Ok(Self {
            serial: serial(cert.raw_serial()),
            not_before: time(cert.validity().not_before)?,
            not_after: time(cert.validity().not_after)?,
            purpose: purpose(&cert)?,
            cn: common_name(cert.subject()),
            dns,
            email,
            uri,
        })
    }

    /// The name of this kind, where there is exactly one and it has the form of its kind.
    pub fn name(&self, field: Field) -> Option<&str> {
        match self.value(field) {
            Value::One(name) => Some(name),
            Value::Absent | Value::Unusable(_) => None,
        }
    }

    pub(crate) fn value(&self, field: Field) -> &Value {
        match field {
            Field::Cn => &self.cn,
            Field::Dns => &self.dns,
            Field::Email => &self.email,
            Field::Uri => &self.uri,
        }
    }

    pub(crate) fn serial(&self) -> &str {
        &self.serial
    }

    pub(crate) fn not_before(&self) -> SystemTime {
        self.not_before
    }

    pub(crate) fn not_after(&self) -> SystemTime {
        self.not_after
    }

    pub(crate) fn purpose(&self) -> Purpose {
        self.purpose
    }
}

/// A certificate that cannot be a client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeafError {
    /// It is a CA, or may sign certificates or CRLs.
    #[error("the certificate is one that signs others")]
    Authority,
    /// It is larger than a client certificate has reason to be.
    #[error("the certificate is too large")]
    TooLarge,
    /// It is not an X.509 v3 certificate, or one that two readers could read differently.
    #[error("the certificate cannot be read")]
    Unreadable,
}

/// What extended key usage says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Client authentication is in the list.
    Client,
    /// There is a list without it. "Any purpose" does not count: it is what a CA writes that did not think of us.
    Other,
    /// There is no list.
    Unsaid,
}

/// The names of one kind in a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Absent,
    /// In its one spelling.
    One(String),
    /// More than one, or one that is not of its form.
    Unusable(String),
}

impl Value {
    fn add(&mut self, field: Field, text: &str) {
        *self = match self {
            Self::Absent => match names::canonical(field, text) {
                Ok(name) => Self::One(name),
                Err(problem) => Self::Unusable(format!("{} {problem}", field.noun())),
            },
            Self::One(_) | Self::Unusable(_) => Self::Unusable("there is more than one name of this kind".to_owned()),
        };
    }
}

fn signs_others(cert: &X509Certificate<'_>) -> Result<bool, LeafError> {
    // Not by `basic_constraints`, which takes an extension that it cannot read for none.
    let constraints = cert.get_extension_unique(&OID_X509_EXT_BASIC_CONSTRAINTS).map_err(|_| LeafError::Unreadable)?;
    let ca = match constraints.map(|extension| extension.parsed_extension()) {
        None => false,
        Some(ParsedExtension::BasicConstraints(constraints)) => constraints.ca,
        Some(_) => return Err(LeafError::Unreadable),
    };
    let usage = cert.key_usage().map_err(|_| LeafError::Unreadable)?;
    Ok(ca || usage.is_some_and(|usage| usage.value.key_cert_sign() || usage.value.crl_sign()))
}

fn purpose(cert: &X509Certificate<'_>) -> Result<Purpose, LeafError> {
    Ok(match cert.extended_key_usage().map_err(|_| LeafError::Unreadable)? {
        None => Purpose::Unsaid,
        Some(usage) if usage.value.client_auth => Purpose::Client,
        Some(_) => Purpose::Other,
    })
}

fn common_name(subject: &X509Name<'_>) -> Value {
    let mut found = Value::Absent;
    for part in subject.iter_rdn() {
        let several = part.iter().count() > 1;
        for attribute in part.iter().filter(|attribute| *attribute.attr_type() == OID_X509_COMMON_NAME) {
            if several {
                let problem = "the common name is one of several values in one part of the subject";
                return Value::Unusable(problem.to_owned());
            }
            let value = attribute.attr_value();
            // The other string types have encodings that readers disagree about.
            let plain = [Tag::Utf8String, Tag::PrintableString, Tag::Ia5String].contains(&value.tag());
            match std::str::from_utf8(value.data) {
                Ok(text) if plain => found.add(Field::Cn, text),
                Ok(_) | Err(_) => {
                    return Value::Unusable("the common name is of a string type that is not accepted".to_owned());
                }
            }
        }
    }
    found
}

fn serial(raw: &[u8]) -> String {
    // DER puts a zero in front of numbers whose first bit is set; tools print them without.
    let digits = raw.strip_prefix(&[0]).filter(|rest| !rest.is_empty()).unwrap_or(raw);
    hex(digits)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect()
}

pub(crate) fn time(time: ASN1Time) -> Result<SystemTime, LeafError> {
    let seconds = time.timestamp();
    let distance = Duration::from_secs(seconds.unsigned_abs());
    let epoch = SystemTime::UNIX_EPOCH;
    let at = if seconds < 0 { epoch.checked_sub(distance) } else { epoch.checked_add(distance) };
    at.ok_or(LeafError::Unreadable)
}

/// Far above what a name, a key and a signature need, post-quantum ones included.
const MAX_LEAF: usize = 16 * 1024;

#[cfg(test)]
mod tests;
