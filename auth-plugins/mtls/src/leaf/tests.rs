//! What a certificate says, and which certificates are not a client's.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use rcgen::{BasicConstraints, CustomExtension, DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose};

use super::*;
use crate::testing::{CN, Ca, FOR_CLIENTS, O, der, rdn, san_uri};

fn unusable(value: &Value) -> bool {
    matches!(value, Value::Unusable(_))
}

#[test]
fn a_client_certificate_is_taken_apart() {
    let cert = Ca::new("CA").leaf(|params| {
        params.serial_number = Some(rcgen::SerialNumber::from_slice(&[0x9a, 0x00, 0x0b]));
        params.distinguished_name.push(DnType::OrganizationName, "Corp");
        params.distinguished_name.push(DnType::CommonName, "ada");
        params.subject_alt_names = vec![
            san_uri("spiffe://corp/svc/etl"),
            rcgen::SanType::DnsName("ETL.corp".try_into().unwrap()),
            rcgen::SanType::Rfc822Name("ada@Corp".try_into().unwrap()),
            rcgen::SanType::IpAddress([127, 0, 0, 1].into()),
        ];
    });
    let leaf = Leaf::parse(&cert).unwrap();
    let names = [Field::Uri, Field::Dns, Field::Email, Field::Cn].map(|field| leaf.name(field).unwrap());
    assert_eq!(names, ["spiffe://corp/svc/etl", "etl.corp", "ada@corp", "ada"]);
    assert_eq!((leaf.serial(), leaf.purpose()), ("9a000b", Purpose::Client));
    let since_epoch = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    assert_eq!(since_epoch(leaf.not_before()), 1_609_459_200);
    assert_eq!(since_epoch(leaf.not_after()), 1_893_456_000);
    assert_eq!(Leaf::parse(&Ca::new("CA").leaf(|_| ())).unwrap().name(Field::Cn), None);
}

#[test]
fn times_before_1970_are_times() {
    let cert = Ca::new("CA").leaf(|params| params.not_before = rcgen::date_time_ymd(1960, 1, 1));
    assert!(Leaf::parse(&cert).unwrap().not_before() < SystemTime::UNIX_EPOCH);
}

#[test]
fn purposes_are_told_apart() {
    let ca = Ca::new("CA");
    let purpose = |purposes: &[ExtendedKeyUsagePurpose]| {
        let cert = ca.leaf(|params| params.extended_key_usages = purposes.to_vec());
        Leaf::parse(&cert).unwrap().purpose()
    };
    use ExtendedKeyUsagePurpose::{Any, ClientAuth, ServerAuth};
    assert_eq!(purpose(&[ServerAuth, ClientAuth]), Purpose::Client);
    assert_eq!(purpose(&[ServerAuth]), Purpose::Other);
    assert_eq!(purpose(&[Any]), Purpose::Other);
    assert_eq!(purpose(&[]), Purpose::Unsaid);
}

#[test]
fn a_certificate_that_signs_others_is_nobodys() {
    let ca = Ca::new("CA");
    let with = |is_ca: IsCa, usages: &[KeyUsagePurpose]| {
        let cert = ca.leaf(|params| (params.is_ca, params.key_usages) = (is_ca, usages.to_vec()));
        Leaf::parse(&cert).map(drop)
    };
    use KeyUsagePurpose::{CrlSign, DigitalSignature, KeyCertSign};
    assert_eq!(with(IsCa::NoCa, &[]), Ok(()));
    assert_eq!(with(IsCa::ExplicitNoCa, &[DigitalSignature]), Ok(()));
    assert_eq!(with(IsCa::Ca(BasicConstraints::Unconstrained), &[]), Err(LeafError::Authority));
    assert_eq!(with(IsCa::Ca(BasicConstraints::Constrained(0)), &[DigitalSignature]), Err(LeafError::Authority));
    assert_eq!(with(IsCa::NoCa, &[DigitalSignature, KeyCertSign]), Err(LeafError::Authority));
    assert_eq!(with(IsCa::ExplicitNoCa, &[CrlSign]), Err(LeafError::Authority));
}

#[test]
fn two_names_of_a_kind_are_none() {
    let ca = Ca::new("CA");
    let uris = |uris: &[&str]| {
        let cert = ca.leaf(|params| params.subject_alt_names = uris.iter().map(|uri| san_uri(uri)).collect());
        Leaf::parse(&cert).unwrap().value(Field::Uri).clone()
    };
    assert_eq!(uris(&["spiffe://corp/a"]), Value::One("spiffe://corp/a".to_owned()));
    assert!(unusable(&uris(&["spiffe://corp/a", "spiffe://corp/b"])));
    assert!(unusable(&uris(&["spiffe://corp/a", "spiffe://corp/a"])));
    assert!(unusable(&uris(&["spiffe://corp/a/../b", "spiffe://corp/a"])));
    assert!(unusable(&uris(&["spiffe://corp/a/../b"])));
}

#[test]
fn a_common_name_is_one_plain_string() {
    let ca = Ca::new("CA");
    let cn = |cert: &[u8]| Leaf::parse(cert).unwrap().value(Field::Cn).clone();
    let named = |name: DnValue| cn(&ca.cn(name));
    let admin = Value::One("admin".to_owned());
    assert_eq!(named(DnValue::Utf8String("admin".to_owned())), admin);
    assert_eq!(named(DnValue::PrintableString("admin".try_into().unwrap())), admin);
    assert_eq!(named(DnValue::Ia5String("admin".try_into().unwrap())), admin);
    for odd in [
        DnValue::BmpString("admin".try_into().unwrap()),
        DnValue::TeletexString("admin".try_into().unwrap()),
        DnValue::UniversalString("admin".try_into().unwrap()),
        DnValue::Utf8String("admin\0.evil".to_owned()),
        DnValue::Utf8String("\u{202e}nimda".to_owned()),
        DnValue::Utf8String(String::new()),
    ] {
        assert!(unusable(&named(odd.clone())), "{odd:?}");
    }
    assert_eq!(named(DnValue::Utf8String("x\\,OU=admin".to_owned())), Value::One("x\\,OU=admin".to_owned()));

    let by_hand = |parts: &[Vec<u8>]| cn(&ca.by_hand(&der(0x30, &[&parts.concat()]), FOR_CLIENTS));
    assert_eq!(by_hand(&[rdn(&[(O, b"Corp")]), rdn(&[(CN, b"admin")])]), admin);
    assert!(unusable(&by_hand(&[rdn(&[(CN, b"admin")]), rdn(&[(CN, b"bob")])])), "two common names");
    assert!(unusable(&by_hand(&[rdn(&[(CN, b"admin"), (CN, b"bob")])])), "two in one part");
    assert!(unusable(&by_hand(&[rdn(&[(CN, b"admin"), (O, b"Corp")])])), "with an organization in one part");
    assert!(unusable(&by_hand(&[rdn(&[(CN, b"adm\xff")])])), "not UTF-8");
}

#[test]
fn what_can_be_read_in_two_ways_is_not_read() {
    let ca = Ca::new("CA");
    let subject = der(0x30, &[&rdn(&[(CN, b"admin")])]);
    let good = ca.by_hand(&subject, FOR_CLIENTS);
    assert!(Leaf::parse(&good).is_ok());
    let parse = |extensions: &[&[u8]]| Leaf::parse(&ca.by_hand(&subject, &extensions.concat())).map(drop);
    assert_eq!(parse(&[FOR_CLIENTS, FOR_CLIENTS]), Err(LeafError::Unreadable), "an extension twice");

    let extension = |oid: &[u8], value: &[u8]| der(0x30, &[&der(0x06, &[oid]), &der(0x04, &[value])]);
    let unknown = extension(b"\x2a\x03", b"\x05\x00");
    assert_eq!(parse(&[FOR_CLIENTS, &unknown]), Ok(()));
    assert_eq!(parse(&[FOR_CLIENTS, &unknown, &unknown]), Err(LeafError::Unreadable), "even one that nobody reads");
    let names = |value: &[u8]| extension(b"\x55\x1d\x11", &der(0x30, &[value]));
    assert_eq!(parse(&[FOR_CLIENTS, &names(b"\x86\x03x:a")]), Ok(()));
    assert_eq!(parse(&[FOR_CLIENTS, &names(b"\x86\x03x:\xff")]), Err(LeafError::Unreadable), "not text");
    assert_eq!(parse(&[FOR_CLIENTS, &names(b"\x86\x09x:a")]), Err(LeafError::Unreadable), "cut off");
    let constraints = |value: &[u8]| extension(b"\x55\x1d\x13", value);
    assert_eq!(parse(&[FOR_CLIENTS, &constraints(b"\x30\x00")]), Ok(()));
    assert_eq!(parse(&[FOR_CLIENTS, &constraints(b"\x30\x03\x01\x01\xff")]), Err(LeafError::Authority));
    assert_eq!(parse(&[FOR_CLIENTS, &constraints(b"\x04\x00")]), Err(LeafError::Unreadable), "no constraints");
    let usage = |value: &[u8]| extension(b"\x55\x1d\x0f", value);
    assert_eq!(parse(&[FOR_CLIENTS, &usage(b"\x04\x00")]), Err(LeafError::Unreadable), "no key usage");
}

#[test]
fn a_certificate_has_bounds() {
    let ca = Ca::new("CA");
    let padded = |size: usize| {
        ca.leaf(|params| {
            let extension = CustomExtension::from_oid_content(&[1, 2, 3], vec![0; size]);
            params.custom_extensions = vec![extension];
        })
    };
    assert!(Leaf::parse(&padded(15 * 1024)).is_ok());
    assert_eq!(Leaf::parse(&padded(17 * 1024)).map(drop), Err(LeafError::TooLarge));
    let good = padded(1).to_vec();
    assert_eq!(Leaf::parse(&[&good[..], b"\0"].concat()).map(drop), Err(LeafError::Unreadable), "something behind");
}

#[test]
fn damaged_bytes_never_panic() {
    let good = Ca::new("CA").uri("spiffe://corp/svc/etl").to_vec();
    assert!(Leaf::parse(&good).is_ok());
    for length in 0..good.len() {
        let (cut, _) = good.split_at(length);
        assert!(Leaf::parse(cut).is_err(), "{length}");
    }
    let mut read = 0;
    for at in 0..good.len() {
        for byte in [0x00, 0x30, 0x7f, 0x80, 0x84, 0xff] {
            let mut bad = good.clone();
            *bad.get_mut(at).unwrap() = byte;
            read += usize::from(Leaf::parse(&bad).is_ok());
        }
    }
    assert!(read > 0, "the key and the signature may be anything");
}
