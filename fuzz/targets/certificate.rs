//! Client certificates: what their names may look like, and that they name whom the rules say or nobody.
#![expect(clippy::unwrap_used, clippy::panic, clippy::arithmetic_side_effects, reason = "a failed step is a finding")]

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use http::HeaderMap;
use portcullis_auth::{Attempt, Authenticator, Principal, Standing, Verdict};
use portcullis_auth_mtls::{ClientCertificates, Eku, Field, Leaf, Rule, Rules};
use rustls_pki_types::CertificateDer;

use crate::input::Input;
use crate::judged;

mod der;

use der::Authority;

/// Any bytes; a good certificate with edits; a subject and extensions in DER, signed by the CA; names as text, signed.
pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    match input.choice(4) {
        0 => {
            let der = input.rest();
            leaf(der);
            assert!(admitted(der).is_none_or(|_| der == GOOD.as_slice()), "what the CA has not signed was admitted");
        }
        1 => {
            let der = input.edited(&GOOD);
            leaf(&der);
            let good = admitted(&GOOD).unwrap();
            assert!(admitted(&der).is_none_or(|other| other.key() == good.key() && other.name() == good.name()));
        }
        2 => {
            let subject = input.line();
            named(&CA.issue(subject, &der::with_client_usage(input.rest())));
        }
        _ => {
            let cn = input.line();
            let subject = if cn.is_empty() { der::sequence(&[]) } else { der::common_name(cn) };
            let mut names = Vec::new();
            loop {
                let line = input.line();
                let Some((kind, name)) = line.split_first() else { break };
                // The digit is the kind as RFC 5280 numbers them: 1 e-mail, 2 DNS, 6 URI.
                names.push(der::tagged(0x80 | (kind & 0x0f), name));
            }
            let names = if names.is_empty() { Vec::new() } else { der::alternative_names(&names.concat()) };
            named(&CA.issue(&subject, &der::with_client_usage(&names)));
        }
    }
}

/// What a certificate says about itself has the form of its kind, whoever signed it.
fn leaf(der: &[u8]) {
    let Ok(leaf) = Leaf::parse(der) else { return };
    for field in [Field::Cn, Field::Dns, Field::Email, Field::Uri] {
        let Some(name) = leaf.name(field) else { continue };
        assert!(!name.is_empty() && !name.chars().any(char::is_control), "a name hides something");
        match field {
            Field::Cn => (),
            Field::Dns => {
                assert!(!name.bytes().any(|b| b.is_ascii_uppercase() || b == b'*'), "a DNS name is not plain")
            }
            Field::Email => assert_eq!(name.matches('@').count(), 1),
            Field::Uri => assert!(name.contains(':') && name.is_ascii() && !name.contains(['%', '?', '#', ' '])),
        }
    }
}

/// A certificate that the CA has signed: whom it names must be read off one name that stands in it.
fn named(der: &[u8]) {
    leaf(der);
    let Some(principal) = admitted(der) else { return };
    let leaf = Leaf::parse(der).unwrap();
    let subject = principal.key().subject();
    let (field, value) = subject.split_once(':').unwrap();
    let (field, expected) = match field {
        "cn" => (Field::Cn, Some(format!("cn-{value}"))),
        "dns" => (Field::Dns, one_segment(value.strip_suffix(".clients.example"), '.')),
        "email" => {
            (Field::Email, one_segment(value.strip_suffix("@example.com"), '@').map(|user| format!("mail-{user}")))
        }
        "uri" => {
            let service = one_segment(value.strip_prefix("spiffe://corp/svc/"), '/');
            (Field::Uri, service.map(|service| format!("svc-{service}")))
        }
        _ => panic!("a subject of no kind"),
    };
    assert_eq!(Some(principal.name()), expected.as_deref(), "the name is not what the rule makes of `{value}`");
    assert_eq!(leaf.name(field), Some(value), "the certificate does not say `{value}`");
    if field == Field::Cn {
        let others = [Field::Dns, Field::Email, Field::Uri];
        assert!(others.iter().all(|field| leaf.name(*field).is_none()), "a common name beside a name that rules read");
    }
    assert!(der.windows(value.len()).any(|part| part.eq_ignore_ascii_case(value.as_bytes())), "`{value}` is not in it");
    assert_eq!(SCHEME.standing(&principal, now()), Standing::Good);
    assert!(!principal.expires().passed(now()));
}

fn one_segment(value: Option<&str>, separator: char) -> Option<String> {
    value.filter(|value| !value.is_empty() && !value.contains(separator)).map(str::to_owned)
}

fn admitted(der: &[u8]) -> Option<Principal> {
    let (headers, chain) = (HeaderMap::new(), [CertificateDer::from(der.to_vec())]);
    let attempt = Attempt::new(&headers, now()).with_peer_certs(&chain);
    match (judged(&*SCHEME, &attempt), judged(&*SCHEME, &attempt)) {
        (Verdict::Admit(first), Verdict::Admit(second)) => {
            assert_eq!((first.key(), first.name()), (second.key(), second.name()));
            Some(first)
        }
        (Verdict::Reject(first), Verdict::Reject(second)) => {
            assert_eq!(first.kind(), second.kind());
            None
        }
        (Verdict::Abstain | Verdict::Admit(_) | Verdict::Reject(_), _) => panic!("a certificate was not judged"),
    }
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_750_000_000)
}

pub(crate) static SCHEME: LazyLock<ClientCertificates> = LazyLock::new(|| {
    let rules = [
        (Field::Uri, "spiffe://corp/svc/*", "svc-$1"),
        (Field::Dns, "*.clients.example", "$1"),
        (Field::Email, "*@example.com", "mail-$1"),
        (Field::Cn, "*", "cn-$1"),
    ];
    let rules = rules.map(|(field, pattern, name)| Rule::parse(field, pattern, name).unwrap()).to_vec();
    let authority = CertificateDer::from(CA.certificate());
    ClientCertificates::new("clients", Rules::new(rules, [].into(), &[authority], Eku::Required).unwrap())
});

static CA: LazyLock<Authority> = LazyLock::new(|| Authority::new(3));

static GOOD: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let names = der::alternative_names(&der::tagged(0x86, b"spiffe://corp/svc/etl"));
    let good = CA.issue(&der::common_name(b"etl"), &der::with_client_usage(&names));
    assert_eq!(admitted(&good).unwrap().name(), "svc-etl");
    good
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_name_admits() {
        let admitted = |name: &[u8]| admitted(&CA.issue(&der::sequence(&[]), &der::with_client_usage(name)));
        for (kind, name, expected) in [
            (1, "al@example.com", "mail-al"),
            (2, "Web.Clients.example", "web"),
            (6, "spiffe://corp/svc/etl", "svc-etl"),
        ] {
            let names = der::alternative_names(&der::tagged(0x80 | kind, name.as_bytes()));
            assert_eq!(admitted(&names).unwrap().name(), expected);
        }
        assert!(super::admitted(&CA.issue(&der::common_name(b"etl"), &der::with_client_usage(&[]))).is_some());
        assert!(admitted(&[]).is_none());
    }
}
