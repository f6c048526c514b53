//! Verdicts, authorities, reload and standing.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

use std::time::Duration;

use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderValue};
use portcullis_auth::RejectKind;
use portcullis_auth::conformance::block_on;

use super::*;
use crate::testing::{Ca, noon, san_uri, subject};
use crate::{Field, Rule};

type Chain = Vec<CertificateDer<'static>>;

/// The rules of the handbook, with these CAs.
fn rules(cas: &[&Ca], eku: Eku) -> Rules {
    let principals = vec![
        Rule::parse(Field::Uri, "spiffe://corp/svc/*", "svc-$1").unwrap(),
        Rule::parse(Field::Cn, "*", "$1").unwrap(),
    ];
    let roles = [("svc-etl".to_owned(), ["writer".to_owned()].into())].into();
    Rules::new(principals, roles, &cas.iter().map(|ca| ca.der()).collect::<Vec<_>>(), eku).unwrap()
}

fn scheme(cas: &[&Ca]) -> ClientCertificates {
    ClientCertificates::new("certs", rules(cas, Eku::Required))
}

fn judge_at(scheme: &ClientCertificates, chain: &Chain, now: SystemTime) -> Verdict {
    let headers = HeaderMap::new();
    block_on(scheme.authenticate(&Attempt::new(&headers, now).with_peer_certs(chain)))
}

fn admitted(scheme: &ClientCertificates, chain: &Chain) -> Principal {
    match judge_at(scheme, chain, noon()) {
        Verdict::Admit(principal) => principal,
        other @ (Verdict::Abstain | Verdict::Reject(_)) => panic!("{other:?}"),
    }
}

fn rejected(verdict: Verdict) -> Rejection {
    match verdict {
        Verdict::Reject(rejection) => rejection,
        other @ (Verdict::Abstain | Verdict::Admit(_)) => panic!("{other:?}"),
    }
}

fn refused(scheme: &ClientCertificates, chain: &Chain) -> String {
    rejected(judge_at(scheme, chain, noon())).reason().to_owned()
}

#[test]
fn a_certificate_opens_as_the_principal_its_name_gives() {
    let ca = Ca::new("CA");
    let leaf = ca.leaf(|params| {
        params.subject_alt_names = vec![san_uri("spiffe://corp/svc/etl")];
        params.serial_number = Some(rcgen::SerialNumber::from_slice(&[7, 0xab]));
    });
    let etl = admitted(&scheme(&[&ca]), &vec![leaf]);
    assert_eq!((etl.name(), etl.scheme(), etl.credential_id()), ("svc-etl", "mtls", "07ab"));
    assert_eq!(etl.roles().iter().collect::<Vec<_>>(), ["writer"]);
    assert_eq!(etl.key().subject(), "uri:spiffe://corp/svc/etl");
    assert_eq!(etl.key().authority().len(), 64);
    assert_eq!(etl.expires(), Expiry::At(SystemTime::UNIX_EPOCH + Duration::from_secs(1_893_456_000)));
    assert!(etl.attributes().is_empty());

    let ada = admitted(&scheme(&[&ca]), &vec![ca.cn("ada")]);
    assert_eq!((ada.name(), ada.key().subject(), ada.roles().len()), ("ada", "cn:ada", 0));
}

#[test]
fn the_next_certificate_of_the_same_name_is_the_same_identity() {
    let ca = Ca::new("CA");
    let scheme = scheme(&[&ca]);
    let [old, new] = [ca.uri("spiffe://corp/svc/etl"), ca.uri("spiffe://corp/svc/etl")].map(|cert| vec![cert]);
    let (old, new) = (admitted(&scheme, &old), admitted(&scheme, &new));
    assert_eq!(old.key(), new.key());
    assert_ne!(old.credential_id(), new.credential_id());
}

#[test]
fn names_that_no_rule_maps_and_names_of_two_readings_are_refused() {
    let ca = Ca::new("CA");
    let scheme = scheme(&[&ca]);
    admitted(&scheme, &vec![ca.uri("spiffe://corp/svc/etl")]);
    for uri in [
        "http://corp/svc/etl",
        "spiffe://evil/svc/etl",
        "spiffe://corp/",
        "spiffe://corp/svc/a/../etl",
        "spiffe://corp/svc/%2e%2e",
        "spiffe://corp/svc/etl/",
        "spiffe://CORP/svc/etl",
        "spiffe://corp:1/svc/etl",
        "spiffe://etl@corp/svc/etl",
        "spiffe://corp/svc/etl?x",
        "spiffe://corp/svc/etl-\n",
    ] {
        // A common name beside it that the rules would take does not help.
        let cert = ca.leaf(|params| {
            params.distinguished_name = subject("svc-etl");
            params.subject_alt_names = vec![san_uri(uri)];
        });
        assert!(refused(&scheme, &vec![cert]).ends_with('`'), "{uri}");
    }
    let two = ca.leaf(|params| {
        params.subject_alt_names = vec![san_uri("spiffe://corp/svc/etl"), san_uri("spiffe://corp/svc/web")];
    });
    assert!(refused(&scheme, &vec![two]).starts_with("there is more than one name of this kind"));
    assert!(refused(&scheme, &vec![ca.leaf(|_| ())]).starts_with("no rule maps"));
    for reserved in ["*", "role:admin"] {
        assert!(refused(&scheme, &vec![ca.cn(reserved)]).contains("is reserved"), "{reserved}");
    }
}

#[test]
fn a_certificate_must_be_for_clients() {
    let ca = Ca::new("CA");
    let [strict, lenient] =
        [Eku::Required, Eku::DangerOptional].map(|eku| ClientCertificates::new("certs", rules(&[&ca], eku)));
    let made = |purposes: &[rcgen::ExtendedKeyUsagePurpose]| {
        vec![ca.leaf(|params| {
            params.distinguished_name = subject("ada");
            params.extended_key_usages = purposes.to_vec();
        })]
    };
    let [clients, unsaid, servers] = [
        made(&[rcgen::ExtendedKeyUsagePurpose::ClientAuth]),
        made(&[]),
        made(&[rcgen::ExtendedKeyUsagePurpose::ServerAuth]),
    ];
    admitted(&strict, &clients);
    admitted(&lenient, &clients);
    assert!(refused(&strict, &unsaid).starts_with("the certificate does not say"));
    admitted(&lenient, &unsaid);
    for scheme in [&strict, &lenient] {
        assert!(refused(scheme, &servers).starts_with("the certificate is for something else"));
    }
}

#[test]
fn a_ca_is_not_a_client() {
    let ca = Ca::new("CA");
    let scheme = scheme(&[&ca]);
    let below = ca.under("svc-etl");
    admitted(&scheme, &vec![below.cn("ada"), below.der()]);
    assert_eq!(refused(&scheme, &vec![below.der()]), "the certificate is one that signs others");
    assert_eq!(refused(&scheme, &vec![ca.der()]), "the certificate is one that signs others");
}

#[test]
fn a_certificate_ends_while_its_connection_is_open() {
    let ca = Ca::new("CA");
    let scheme = scheme(&[&ca]);
    let chain = vec![ca.cn("ada")];
    let ada = admitted(&scheme, &chain);
    let Expiry::At(end) = ada.expires() else { panic!("a certificate ends") };
    let just_before = end - Duration::from_secs(1);
    assert!(matches!(judge_at(&scheme, &chain, just_before), Verdict::Admit(_)));
    assert_eq!(scheme.standing(&ada, just_before), Standing::Good);
    assert!(rejected(judge_at(&scheme, &chain, end)).reason().starts_with("the certificate has expired"));
    assert_eq!(scheme.standing(&ada, end), Standing::Revoked);
    let before = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    assert!(rejected(judge_at(&scheme, &chain, before)).reason().starts_with("the certificate is not valid yet"));
}

#[test]
fn a_principal_ends_with_the_ca_that_vouches() {
    let root = Ca::new("CA");
    let scheme = scheme(&[&root]);
    let below = root.under("below");
    // CAs here end in 2028, their leaves in 2030.
    let chain = vec![below.cn("ada"), below.der()];
    let ada = admitted(&scheme, &chain);
    let end = SystemTime::UNIX_EPOCH + Duration::from_secs(1_830_297_600);
    assert_eq!(ada.expires(), Expiry::At(end));
    assert!(matches!(judge_at(&scheme, &chain, end - Duration::from_secs(1)), Verdict::Admit(_)));
    let late = rejected(judge_at(&scheme, &chain, end + Duration::from_secs(1)));
    assert!(late.reason().starts_with("the certificate leads to no CA"), "though it was remembered");
}

#[test]
fn the_same_name_from_two_cas_is_two_identities() {
    // Not even the CAs' names differ.
    let (a, b) = (Ca::new("CA"), Ca::new("CA"));
    let scheme = scheme(&[&a, &b]);
    let name = "spiffe://corp/svc/etl";
    let (from_a, from_b) = (admitted(&scheme, &vec![a.uri(name)]), admitted(&scheme, &vec![b.uri(name)]));
    assert_eq!((from_a.name(), from_a.key().subject()), (from_b.name(), from_b.key().subject()));
    assert_ne!(from_a.key(), from_b.key());

    // Whatever a client sends behind its leaf, the key that signed the leaf says whose it is.
    for behind in [vec![b.der()], vec![b.der(), a.der()], vec![a.der(), b.der()]] {
        let chain = [vec![a.uri(name)], behind].concat();
        assert_eq!(admitted(&scheme, &chain).key(), from_a.key());
    }
}

#[test]
fn cas_below_one_root_do_not_vouch_for_each_other() {
    let root = Ca::new("CA");
    let scheme = scheme(&[&root]);
    let (x, y) = (root.under("sub"), root.under("sub"));
    let name = "spiffe://corp/svc/etl";
    let of_x = admitted(&scheme, &vec![x.uri(name), x.der()]);
    let of_y = admitted(&scheme, &vec![y.uri(name), x.der(), y.der()]);
    let of_root = admitted(&scheme, &vec![root.uri(name)]);
    assert_ne!(of_x.key(), of_y.key());
    assert_ne!(of_x.key(), of_root.key());
    assert_eq!(admitted(&scheme, &vec![x.uri(name), y.der(), x.der()]).key(), of_x.key());
    // An intermediate that is configured as a CA stays who it is.
    let direct = ClientCertificates::new("certs", rules(&[&x], Eku::Required));
    assert_eq!(admitted(&direct, &vec![x.uri(name)]).key(), of_x.key());
}

#[test]
fn a_chain_that_leads_nowhere_is_refused() {
    let (ca, other) = (Ca::new("CA"), Ca::new("CA"));
    let scheme = scheme(&[&ca]);
    let below = ca.under("below");
    admitted(&scheme, &vec![below.cn("ada"), below.der()]);
    let nowhere = "the certificate leads to no CA of this scheme";
    assert!(refused(&scheme, &vec![below.cn("ada")]).starts_with(nowhere), "the CA between is missing");
    assert!(refused(&scheme, &vec![other.cn("ada")]).starts_with(nowhere));
    assert!(refused(&scheme, &vec![other.cn("ada"), other.der(), ca.der()]).starts_with(nowhere));
    let long = [vec![below.cn("ada")], vec![below.der(); 10]].concat();
    assert!(refused(&scheme, &long).starts_with(nowhere), "too long");
}

#[test]
fn a_certificate_and_another_credential_are_two() {
    let ca = Ca::new("CA");
    let (scheme, chain) = (scheme(&[&ca]), vec![ca.cn("ada")]);
    admitted(&scheme, &chain);
    let with = |value: &'static str| {
        let headers: HeaderMap = [(AUTHORIZATION, HeaderValue::from_static(value))].into_iter().collect();
        block_on(scheme.authenticate(&Attempt::new(&headers, noon()).with_peer_certs(&chain)))
    };
    for value in ["Bearer abc", "Basic YTpi", "Negotiate abc"] {
        assert!(rejected(with(value)).reason().starts_with("a certificate and another"), "{value}");
    }
    assert!(matches!(with("Bearer  x"), Verdict::Abstain), "the gate refuses what cannot be read");
}

#[test]
fn bytes_that_are_no_certificate_are_malformed() {
    let ca = Ca::new("CA");
    let scheme = scheme(&[&ca]);
    admitted(&scheme, &vec![ca.cn("ada")]);
    for bytes in [vec![], vec![0x30], vec![0xff; 20_000]] {
        let chain = vec![CertificateDer::from(bytes)];
        assert_eq!(rejected(judge_at(&scheme, &chain, noon())).kind(), RejectKind::Malformed);
    }
}

#[test]
fn standing_follows_the_rules() {
    let ca = Ca::new("CA");
    let scheme = scheme(&[&ca]);
    let etl = admitted(&scheme, &vec![ca.uri("spiffe://corp/svc/etl")]);
    let standing_under = |pattern: &str, name: &str, roles: &[&str]| {
        let roles = [("svc-etl".to_owned(), roles.iter().map(ToString::to_string).collect())].into();
        let rule = Rule::parse(Field::Uri, pattern, name).unwrap();
        scheme.replace(Rules::new(vec![rule], roles, &[ca.der()], Eku::Required).unwrap());
        scheme.standing(&etl, noon())
    };
    assert_eq!(standing_under("spiffe://corp/svc/*", "svc-$1", &["writer"]), Standing::Good);
    assert_eq!(standing_under("spiffe://corp/svc/etl", "svc-etl", &["writer"]), Standing::Good);
    assert_eq!(standing_under("spiffe://corp/svc/*", "svc-$1", &[]), Standing::Revoked);
    assert_eq!(standing_under("spiffe://corp/svc/*", "svc-$1", &["writer", "x"]), Standing::Revoked);
    assert_eq!(standing_under("spiffe://corp/svc/*", "$1", &["writer"]), Standing::Revoked);
    assert_eq!(standing_under("spiffe://corp/svc/web", "svc-etl", &["writer"]), Standing::Revoked);
    assert_eq!(standing_under("spiffe://corp/svc/*", "svc-$1", &["writer"]), Standing::Good);
}

#[test]
fn a_principal_of_another_scheme_has_no_standing() {
    let ca = Ca::new("CA");
    let assertion = Assertion {
        name: "ada".to_owned(),
        scheme: "jwt",
        authority: "x".to_owned(),
        subject: "cn:ada".to_owned(),
        roles: Default::default(),
        attributes: Default::default(),
        expires: Expiry::Never,
        credential_id: "1".to_owned(),
    };
    let mine = Principal::assertion(Assertion { scheme: "mtls", ..assertion.clone() }).unwrap();
    let other = Principal::assertion(assertion).unwrap();
    assert_eq!(scheme(&[&ca]).standing(&mine, noon()), Standing::Good);
    assert_eq!(scheme(&[&ca]).standing(&other, noon()), Standing::Revoked);
}

#[test]
fn a_ca_that_is_taken_away_vouches_no_more() {
    let (ca, next) = (Ca::new("CA"), Ca::new("CA"));
    let (scheme, chain) = (scheme(&[&ca]), vec![ca.cn("ada")]);
    admitted(&scheme, &chain);
    admitted(&scheme, &chain);
    scheme.replace(rules(&[&next], Eku::Required));
    assert!(refused(&scheme, &chain).starts_with("the certificate leads to no CA"));
    admitted(&scheme, &vec![next.cn("ada")]);
}

#[test]
fn what_is_remembered_is_bounded() {
    let ca = Ca::new("CA");
    let scheme = scheme(&[&ca]);
    let state = scheme.current();
    let some = state.rules.authorities().vouch(&[ca.cn("ada")], noon()).unwrap();
    for number in 0..u32::try_from(MAX_KNOWN).unwrap() {
        let mut key = [0; 32];
        key.get_mut(..4).unwrap().copy_from_slice(&number.to_be_bytes());
        state.vouched.lock().unwrap().insert(key, some.clone());
    }
    admitted(&scheme, &vec![ca.cn("ada")]);
    assert_eq!(state.vouched.lock().unwrap().len(), 1);
}

#[test]
fn chains_that_join_to_the_same_bytes_are_different() {
    let chain = |certs: &[&[u8]]| certs.iter().map(|cert| CertificateDer::from(cert.to_vec())).collect::<Chain>();
    assert_eq!(fingerprint(&chain(&[b"ab", b"c"])), fingerprint(&chain(&[b"ab", b"c"])));
    assert_ne!(fingerprint(&chain(&[b"ab", b"c"])), fingerprint(&chain(&[b"a", b"bc"])));
}
