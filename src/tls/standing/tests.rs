//! A chain that was good is asked about again.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use rcgen::ExtendedKeyUsagePurpose::{ClientAuth as ForClients, ServerAuth};

use super::*;
use crate::tls::MinVersion;
use crate::tls::testing::{Ca, Server, trust, trust_at, year};

fn identity(clients: ClientAuth) -> TlsIdentity {
    Server::new().identity(MinVersion::Tls13, clients)
}

fn required(ca: &Ca, crls: &[&[u8]]) -> ClientAuth {
    ClientAuth::Required(trust(&ca.pem(), crls).unwrap())
}

#[test]
fn what_was_replaced_counts_for_open_connections() {
    let (ca, other) = (Ca::new("CA"), Ca::new("other"));
    let chain = ca.client(2).chain;
    let running = identity(required(&ca, &[]));
    let standing = ClientStanding::new();
    let check = || {
        let (remembered, verified) =
            (standing.check(&running, &chain, year(2030)), running.still_trusted(&chain, year(2030)));
        assert_eq!(remembered, verified);
        assert_eq!(standing.check(&running, &chain, year(2030)), verified, "the second time as well");
        verified
    };
    assert_eq!(check(), Ok(()));
    for (number, (clients, expected)) in [
        (required(&ca, &[ca.crl([2024, 2090], &[2]).der()]), Err(Distrust::Revoked)),
        (required(&ca, &[ca.crl([2024, 2090], &[1]).der()]), Ok(())),
        (required(&ca, &[other.crl([2024, 2090], &[]).der()]), Err(Distrust::RevocationUnknown)),
        (required(&ca, &[Ca::new("CA").crl([2024, 2090], &[]).der()]), Err(Distrust::RevocationUnknown)),
        (required(&other, &[]), Err(Distrust::UnknownAuthority)),
        (required(&Ca::new("CA"), &[]), Err(Distrust::UnknownAuthority)),
        (ClientAuth::Optional(trust(&other.pem(), &[]).unwrap()), Err(Distrust::UnknownAuthority)),
        (ClientAuth::None, Err(Distrust::NotAsked)),
        (ClientAuth::Optional(trust(&ca.pem(), &[]).unwrap()), Ok(())),
    ]
    .into_iter()
    .enumerate()
    {
        let before = running.epoch();
        running.replace(&identity(clients));
        assert!(running.epoch() > before);
        assert_eq!(check(), expected, "{number}");
    }
}

#[test]
fn a_chain_ends_while_its_connection_is_open() {
    let ca = Ca::new("CA");
    let chain = ca.client_of(1, [2020, 2031], &[ForClients]).chain;
    let running = identity(required(&ca, &[]));
    let standing = ClientStanding::new();
    assert_eq!(standing.check(&running, &chain, year(2030)), Ok(()));
    assert_eq!(standing.check(&running, &chain, year(2032)), Err(Distrust::Expired));
    assert_eq!(running.still_trusted(&chain, year(2032)), Err(Distrust::Expired));
    assert_eq!(running.still_trusted(&chain, year(2019)), Err(Distrust::NotYetValid));
    assert_eq!(ClientStanding::new().check(&running, &chain, year(2019)), Err(Distrust::NotYetValid));
}

#[test]
fn a_clock_that_was_set_back_is_asked_again() {
    let ca = Ca::new("CA");
    let chain = ca.client_of(1, [2025, 2031], &[ForClients]).chain;
    let running = identity(required(&ca, &[]));
    let standing = ClientStanding::new();
    assert_eq!(standing.check(&running, &chain, year(2030)), Ok(()));
    assert_eq!(standing.check(&running, &chain, year(2024)), Err(Distrust::NotYetValid));
}

#[test]
fn a_crl_ends_while_the_connection_is_open() {
    let ca = Ca::new("CA");
    let chain = ca.client(1).chain;
    let crl = ca.crl([2024, 2031], &[]);
    let trust = trust_at(&ca.pem(), &[crl.der()], year(2030)).unwrap();
    let running = identity(ClientAuth::Required(trust));
    let standing = ClientStanding::new();
    assert_eq!(standing.check(&running, &chain, year(2030)), Ok(()));
    assert_eq!(standing.check(&running, &chain, year(2031)), Err(Distrust::RevocationUnknown));
}

#[test]
fn a_connection_without_a_certificate_ends_once_one_is_required() {
    let ca = Ca::new("CA");
    let running = identity(ClientAuth::None);
    let standing = ClientStanding::new();
    assert_eq!(standing.check(&running, &[], year(2030)), Ok(()));
    running.replace(&identity(ClientAuth::Optional(trust(&ca.pem(), &[]).unwrap())));
    assert_eq!(standing.check(&running, &[], year(2030)), Ok(()));
    running.replace(&identity(required(&ca, &[])));
    assert_eq!(standing.check(&running, &[], year(2030)), Err(Distrust::Missing));
}

#[test]
fn a_certificate_for_something_else_is_not_usable() {
    let ca = Ca::new("CA");
    let running = identity(required(&ca, &[]));
    let check = |chain: &[CertificateDer<'static>]| running.still_trusted(chain, year(2030));
    assert_eq!(check(&ca.client(1).chain), Ok(()));
    assert_eq!(check(&ca.client_of(1, [2020, 2090], &[ServerAuth]).chain), Err(Distrust::Unusable));
    assert_eq!(check(&[ca.der()]), Err(Distrust::Unusable));
    assert_eq!(check(&[vec![0x30].into()]), Err(Distrust::Unusable));
    assert_eq!(check(&ca.large_client(15 * 1024).chain), Ok(()));
    assert_eq!(check(&ca.large_client(17 * 1024).chain), Err(Distrust::Unusable));
}

#[test]
fn an_answer_is_remembered_until_something_changes() {
    let ca = Ca::new("CA");
    let running = identity(required(&ca, &[]));
    let (good, standing) = (ca.client(1).chain, ClientStanding::new());
    assert_eq!(standing.check(&running, &good, year(2030)), Ok(()));
    // Whatever else is asked on this connection, nothing is verified again: a chain that is none has the same answer.
    assert_eq!(standing.check(&running, &[vec![0].into()], year(2030)), Ok(()));
    running.replace(&identity(required(&ca, &[])));
    assert_eq!(standing.check(&running, &[vec![0].into()], year(2030)), Err(Distrust::Unusable));
    assert_eq!(standing.check(&running, &good, year(2030)), Err(Distrust::Unusable), "and a refusal stays");
    running.replace(&identity(required(&ca, &[])));
    assert_eq!(standing.check(&running, &good, year(2030)), Ok(()));
}
