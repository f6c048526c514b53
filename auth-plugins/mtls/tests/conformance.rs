//! Client certificates against the contract of every scheme.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use portcullis_auth::conformance::{Part, Sample, Samples, block_on, conforms};
use portcullis_auth_mtls::{ClientCertificates, Eku, Field, Rule, Rules};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType};
use rustls_pki_types::CertificateDer;

type Ca = CertifiedIssuer<'static, KeyPair>;

fn ca() -> Ca {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn client(ca: &Ca, uri: &str, last_year: i32) -> CertificateDer<'static> {
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.not_after = rcgen::date_time_ymd(last_year, 1, 1);
    params.signed_by(&KeyPair::generate().unwrap(), ca).unwrap().der().clone()
}

#[test]
fn client_certificates_follow_the_contract() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_748_736_000);
    let (ours, theirs) = (ca(), ca());
    let rules = vec![Rule::parse(Field::Uri, "spiffe://corp/svc/*", "svc-$1").unwrap()];
    let rules = Rules::new(rules, BTreeMap::new(), &[ours.der().clone()], Eku::Required).unwrap();
    let scheme = ClientCertificates::new("certs", rules);

    let shown = |certs: &[CertificateDer<'static>]| Sample::none().with_peer_certs(certs.to_vec());
    let good = client(&ours, "spiffe://corp/svc/etl", 2030);
    let two = |value: &str| Sample::authorization(value).with_peer_certs(vec![good.clone()]);
    let samples = Samples::new(now)
        .with(Part::Good, shown(std::slice::from_ref(&good)))
        .with(Part::Good, shown(&[client(&ours, "spiffe://corp/svc/web", 2030), ours.der().clone()]))
        .with(Part::Unknown, shown(&[client(&ours, "spiffe://corp/dev/etl", 2030)]))
        .with(Part::Wrong, shown(&[client(&theirs, "spiffe://corp/svc/etl", 2030)]))
        .with(Part::Wrong, shown(&[client(&theirs, "spiffe://corp/svc/etl", 2030), ours.der().clone()]))
        .with(Part::Wrong, two("Bearer abc"))
        .with(Part::Wrong, two("Basic YTpi"))
        .with(Part::Expired, shown(&[client(&ours, "spiffe://corp/svc/etl", 2024)]))
        .with(Part::Malformed, shown(&[vec![0x30].into()]))
        .with(Part::Malformed, shown(&[vec![0; 64 * 1024].into(), good.clone()]))
        .with(Part::Foreign, Sample::authorization("Bearer abc"))
        .with(Part::Foreign, Sample::authorization("Basic YTpi"))
        .with(Part::Foreign, two("Bearer  abc"));
    block_on(conforms(&scheme, &samples)).unwrap();
}
