//! Who gets through the handshake, and which files are refused before there is one.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use rcgen::ExtendedKeyUsagePurpose::{ClientAuth as ForClients, ServerAuth};
use rustls::{HandshakeKind, SupportedProtocolVersion, version};

use super::*;
use crate::tls::testing::{Ca, Client, Echo, Server, now, trust, trust_at, year};
use crate::tls::{MinVersion, TlsIdentity};

static BOTH: [&[&SupportedProtocolVersion]; 2] = [&[&version::TLS12], &[&version::TLS13]];

fn required(ca: &Ca, crls: &[&[u8]]) -> ClientAuth {
    ClientAuth::Required(trust(&ca.pem(), crls).unwrap())
}

/// Whether the handshake succeeds: in both protocol versions, or in neither.
async fn lets_in(server: &Server, clients: ClientAuth, client: Option<&Client>) -> bool {
    let echo = Echo::start(server.identity(MinVersion::Tls12, clients)).await;
    let [mut old, mut new] = [false, false];
    for (outcome, versions) in [&mut old, &mut new].into_iter().zip(BOTH) {
        *outcome = echo.connect(&server.client(client, versions)).await.is_ok();
    }
    assert_eq!(old, new);
    new
}

#[tokio::test]
async fn a_client_may_come_without_a_certificate_only_where_it_is_optional() {
    let (server, ca) = (Server::new(), Ca::new("CA"));
    let trusted = trust(&ca.pem(), &[]).unwrap();
    let good = ca.client(1);
    for (clients, without) in [
        (ClientAuth::None, true),
        (ClientAuth::Optional(trusted.clone()), true),
        (ClientAuth::Required(trusted), false),
    ] {
        assert!(lets_in(&server, clients.clone(), Some(&good)).await, "{clients:?}");
        assert_eq!(lets_in(&server, clients.clone(), None).await, without, "{clients:?}");
    }
}

#[tokio::test]
async fn a_bad_certificate_is_refused_even_where_it_is_optional() {
    let (server, ca) = (Server::new(), Ca::new("CA"));
    let below = ca.under("below");
    let long = (0..10).fold(below.client(1), |client, _| client.through(&below));
    let optional = || ClientAuth::Optional(trust(&ca.pem(), &[]).unwrap());
    assert!(lets_in(&server, optional(), Some(&ca.client(1))).await);
    assert!(lets_in(&server, optional(), Some(&below.client(1).through(&below))).await);
    for (what, client) in [
        ("of an unknown CA", Ca::new("other").client(1)),
        ("of an unknown CA with the name of a known one", Ca::new("CA").client(1)),
        ("expired", ca.client_of(1, [2020, 2021], &[ForClients])),
        ("not valid yet", ca.client_of(1, [2089, 2090], &[ForClients])),
        ("for servers only", ca.client_of(1, [2020, 2090], &[ServerAuth])),
        ("without the CA between", below.client(1)),
        ("with more certificates than a chain has", long),
    ] {
        assert!(!lets_in(&server, optional(), Some(&client)).await, "{what}");
    }
}

#[test]
fn a_chain_with_very_many_paths_is_given_up() {
    let (ca, maze) = (Ca::new("CA"), Ca::new("maze"));
    let trusted = trust(&ca.pem(), &[]).unwrap();
    let at = UnixTime::since_unix_epoch(now().duration_since(SystemTime::UNIX_EPOCH).unwrap());
    let verify = |chain: &[CertificateDer<'static>]| {
        let (leaf, others) = chain.split_first().unwrap();
        trusted.verify(leaf, others, at)
    };
    assert!(verify(&ca.client(1).chain).is_ok());
    // Each has signed each, so every order of them is a path, and none leads anywhere.
    let lost = (0..9).fold(maze.client(1), |client, _| client.through(&maze.twin("maze")));
    let begun = tokio::time::Instant::now();
    assert!(verify(&lost.chain).is_err());
    // Milliseconds in fact; without a budget it would be hundreds of thousands of signatures.
    assert!(begun.elapsed() < std::time::Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_revoked_certificate_is_refused() {
    let (server, ca) = (Server::new(), Ca::new("CA"));
    let crl = ca.crl([2024, 2090], &[2]);
    let (pem, der) = (crl.pem().unwrap(), crl.der().to_vec());
    for crl in [pem.as_bytes(), &der] {
        assert!(lets_in(&server, required(&ca, &[crl]), Some(&ca.client(1))).await);
        assert!(!lets_in(&server, required(&ca, &[crl]), Some(&ca.client(2))).await);
    }
    assert!(lets_in(&server, required(&ca, &[]), Some(&ca.client(2))).await, "without CRLs nothing is revoked");
}

#[tokio::test]
async fn every_ca_of_a_chain_needs_its_crl() {
    let (server, ca) = (Server::new(), Ca::new("CA"));
    let below = ca.under("below");
    let client = below.client(1).through(&below);
    let pem = |ca: &Ca, revoked: &[u64]| ca.crl([2024, 2090], revoked).pem().unwrap();
    let (of_ca, of_below) = (pem(&ca, &[]), pem(&below, &[]));
    let both = format!("{of_ca}\n{of_below}");
    assert!(lets_in(&server, required(&ca, &[of_ca.as_bytes(), of_below.as_bytes()]), Some(&client)).await);
    assert!(lets_in(&server, required(&ca, &[both.as_bytes()]), Some(&client)).await, "two in one file");
    assert!(!lets_in(&server, required(&ca, &[of_ca.as_bytes()]), Some(&client)).await);
    assert!(!lets_in(&server, required(&ca, &[of_below.as_bytes()]), Some(&client)).await);
    let revoked = pem(&ca, &[77]);
    assert!(!lets_in(&server, required(&ca, &[revoked.as_bytes(), of_below.as_bytes()]), Some(&client)).await);
    // A list that another key has signed in this CA's name says nothing.
    let forged = pem(&Ca::new("CA"), &[]);
    assert!(!lets_in(&server, required(&ca, &[forged.as_bytes(), of_below.as_bytes()]), Some(&client)).await);
}

fn guarded(ca: &str, crls: &[&[u8]]) -> Result<ClientTrust, TlsError> {
    let crls: Vec<_> = crls.iter().map(|crl| (Path::new("clients.crl"), *crl)).collect();
    ClientTrust::guarded((Path::new("ca.pem"), ca.as_bytes()), &crls, now())
}

/// What rustls does with such lists is shown with its own verifier: it would refuse everybody, without a word at start.
#[test]
fn lists_that_would_keep_out_every_client_of_a_ca_are_refused_in_files() {
    let (ca, other) = (Ca::new("CA"), Ca::new("Other CA"));
    let of = |ca: &Ca| ca.crl([2024, 2090], &[]).pem().unwrap();
    let (of_ca, of_other, forged) = (of(&ca), of(&other), of(&Ca::new("CA")));
    let cas = format!("{}{}", ca.pem(), other.pem());
    let mut roots = RootCertStore::empty();
    for ca in [&ca, &other] {
        roots.add(ca.der()).unwrap();
    }
    let roots = Arc::new(roots);
    let at = UnixTime::since_unix_epoch(now().duration_since(SystemTime::UNIX_EPOCH).unwrap());
    let verdicts = |lists: &[&String]| {
        let lists = lists.iter().map(|list| CertificateRevocationListDer::from_pem_slice(list.as_bytes()).unwrap());
        let unguarded = verifier(&roots, lists.collect()).unwrap();
        [&ca, &other].map(|ca| unguarded.verify_client_cert(ca.client(1).chain.first().unwrap(), &[], at).map(drop))
    };
    let read = |lists: &[&String]| guarded(&cas, &lists.iter().map(|list| list.as_bytes()).collect::<Vec<_>>());

    assert_eq!(verdicts(&[&of_ca, &of_other]), [Ok(()), Ok(())]);
    assert!(read(&[&of_ca, &of_other]).unwrap().notes().is_empty());

    let unknown = Err(CertificateError::UnknownRevocationStatus.into());
    assert_eq!(verdicts(&[&of_ca]), [Ok(()), unknown.clone()]);
    let problem = read(&[&of_ca]).unwrap_err();
    assert_eq!(problem.file(), Path::new("ca.pem"));
    assert!(problem.to_string().contains("`Other CA` has no CRL while there are others"), "{problem}");

    assert!(matches!(verdicts(&[&forged, &of_other]), [Err(Error::InvalidCertRevocationList(_)), Ok(())]));
    let problem = read(&[&forged, &of_other]).unwrap_err();
    assert_eq!(problem.file(), Path::new("clients.crl"));
    assert!(problem.to_string().contains("BadSignature"), "{problem}");
    // Beside a good one, too: which of the two the verifier takes is up to their dates.
    assert!(read(&[&forged, &of_ca, &of_other]).is_err());

    // Of a CA that is not in the file: of one below it, or by mistake.
    let below = of(&ca.under("below"));
    assert_eq!(verdicts(&[&below]), [unknown.clone(), unknown]);
    assert!(read(&[&below]).unwrap_err().to_string().contains("`CA` has no CRL"));
    let notes = read(&[&below, &of_ca, &of_other]).unwrap().notes();
    assert!(matches!(notes.as_slice(), [note] if note.starts_with("clients.crl: a CRL of no CA in client_ca")));
    assert!(guarded(&cas, &[]).unwrap().notes().is_empty(), "without lists nothing is looked up");
}

#[test]
fn a_crl_is_its_cas_whatever_the_kind_of_key() {
    let kinds = [
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &rcgen::PKCS_ECDSA_P384_SHA384,
        &rcgen::PKCS_ED25519,
        &rcgen::PKCS_RSA_SHA256,
        &rcgen::PKCS_RSA_SHA512,
    ];
    for kind in kinds {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca = rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate_for(kind).unwrap()).unwrap();
        let list = rcgen::CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2024, 1, 1),
            next_update: rcgen::date_time_ymd(2090, 1, 1),
            crl_number: rcgen::SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        let crl = list.signed_by(&ca).unwrap();
        assert!(guarded(&ca.pem(), &[crl.der()]).is_ok(), "{kind:?}");
        let mut damaged = crl.der().to_vec();
        *damaged.last_mut().unwrap() ^= 1;
        assert!(guarded(&ca.pem(), &[&damaged]).is_err(), "{kind:?}");
    }
}

#[test]
fn bytes_that_are_no_crl_belong_to_nobody() {
    let ca = Ca::new("CA");
    let mut roots = RootCertStore::empty();
    roots.add(ca.der()).unwrap();
    let crl = ca.crl([2024, 2090], &[1]).der().to_vec();
    assert_eq!(lists::issuer(&crl, &roots.roots), Issuer::Known(0));
    for end in 0..crl.len() {
        assert_eq!(lists::issuer(crl.get(..end).unwrap(), &roots.roots), Issuer::Unknown, "{end}");
    }
    for at in 0..crl.len() {
        let mut damaged = crl.clone();
        *damaged.get_mut(at).unwrap() ^= 0x81;
        assert_ne!(lists::issuer(&damaged, &roots.roots), Issuer::Known(0), "{at}");
    }
}

#[tokio::test]
async fn the_newest_crl_of_a_ca_counts() {
    let (server, ca) = (Server::new(), Ca::new("CA"));
    let (old, new) = (ca.crl([2020, 2090], &[]).pem().unwrap(), ca.crl([2024, 2090], &[2]).pem().unwrap());
    for crls in [[old.as_bytes(), new.as_bytes()], [new.as_bytes(), old.as_bytes()]] {
        assert!(lets_in(&server, required(&ca, &crls), Some(&ca.client(1))).await);
        assert!(!lets_in(&server, required(&ca, &crls), Some(&ca.client(2))).await);
    }
}

#[tokio::test]
async fn a_crl_that_ends_after_it_was_read_lets_nobody_in() {
    let (server, ca) = (Server::new(), Ca::new("CA"));
    let crl = ca.crl([2020, 2022], &[]).pem().unwrap();
    let read_in = |year_of_reading| trust_at(&ca.pem(), &[crl.as_bytes()], year(year_of_reading));
    let stale = read_in(2021).unwrap();
    let (leaf, at) = (ca.client(1), |time: SystemTime| {
        UnixTime::since_unix_epoch(time.duration_since(SystemTime::UNIX_EPOCH).unwrap())
    });
    let leaf_cert = leaf.chain.first().unwrap();
    assert_eq!(stale.verify(leaf_cert, &[], at(year(2021))), Ok(Expiry::At(year(2022))));
    assert!(!lets_in(&server, ClientAuth::Required(stale), Some(&leaf)).await);
    let problem = read_in(2022).unwrap_err();
    assert_eq!(problem.file(), Path::new("clients.crl"));
    assert!(problem.to_string().contains("past its next update"), "{problem}");
}

#[derive(Debug, PartialEq, Eq)]
enum Offers {
    Nothing,
    Tickets,
}

#[tokio::test]
async fn no_session_is_resumed_with_certificates() {
    let (server, ca) = (Server::new(), Ca::new("CA"));
    let trusted = trust(&ca.pem(), &[]).unwrap();
    let good = ca.client(1);
    for versions in BOTH {
        // That the client would resume if it could is shown first.
        let kinds = async |clients: ClientAuth, client: Option<&Client>| {
            let echo = Echo::start(server.identity(MinVersion::Tls12, clients)).await;
            let config = server.client(client, versions);
            let mut first = echo.connect(&config).await.unwrap();
            first.echo().await;
            let second = echo.connect(&config).await.unwrap();
            let offers = if first.tickets() == 0 { Offers::Nothing } else { Offers::Tickets };
            (first.kind(), second.kind(), offers)
        };
        let (first, second, _) = kinds(ClientAuth::None, None).await;
        assert_eq!((first, second), (HandshakeKind::Full, HandshakeKind::Resumed));
        for clients in [ClientAuth::Optional(trusted.clone()), ClientAuth::Required(trusted.clone())] {
            assert_eq!(kinds(clients, Some(&good)).await, (HandshakeKind::Full, HandshakeKind::Full, Offers::Nothing));
        }
        let optional = ClientAuth::Optional(trusted.clone());
        assert_eq!(kinds(optional, None).await, (HandshakeKind::Full, HandshakeKind::Full, Offers::Nothing));
    }
}

#[tokio::test]
async fn a_reload_counts_at_once_and_drops_no_connection() {
    let (server, ca, next) = (Server::new(), Ca::new("CA"), Ca::new("CA"));
    let identity = server.identity(MinVersion::Tls12, required(&ca, &[]));
    let echo = Echo::start(identity.clone()).await;
    let [first, second, of_next] =
        [ca.client(1), ca.client(2), next.client(1)].map(|client| server.client(Some(&client), &[&version::TLS13]));
    let mut open = echo.connect(&second).await.unwrap();
    assert!(echo.connect(&of_next).await.is_err());

    let crl = ca.crl([2024, 2090], &[2]).pem().unwrap();
    identity.replace(&server.identity(MinVersion::Tls12, required(&ca, &[crl.as_bytes()])));
    assert!(echo.connect(&first).await.is_ok());
    assert!(echo.connect(&second).await.is_err(), "revoked");
    identity.replace(&server.identity(MinVersion::Tls12, required(&next, &[])));
    assert!(echo.connect(&of_next).await.is_ok());
    assert!(echo.connect(&first).await.is_err(), "its CA is gone");
    open.echo().await;
}

#[tokio::test]
async fn another_server_certificate_is_served_from_the_next_handshake_on() {
    let (old, new) = (Server::new(), Server::new());
    let identity = old.identity(MinVersion::Tls12, ClientAuth::None);
    let echo = Echo::start(identity.clone()).await;
    let [knows_old, knows_new] = [&old, &new].map(|server| server.client(None, &[&version::TLS13]));
    let mut open = echo.connect(&knows_old).await.unwrap();
    identity.replace(&new.identity(MinVersion::Tls12, ClientAuth::None));
    echo.connect(&knows_new).await.unwrap().echo().await;
    open.echo().await;
    let fresh = old.client(None, &[&version::TLS13]);
    assert!(echo.connect(&fresh).await.is_err(), "the old certificate is gone");
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let ca = Ca::new("CA");
    let crl = ca.crl([2024, 2090], &[]);
    let (pem, der) = (crl.pem().unwrap(), crl.der().to_vec());
    assert!(trust(&ca.pem(), &[pem.as_bytes(), &der]).is_ok());
    let not_der = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (cas, expected) in [
        ("", "`ca.pem`: there is no certificate"),
        (pem.as_str(), "`ca.pem`: there is no certificate"),
        (not_der, "`ca.pem`: a CA in this file cannot be used"),
        ("-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n", "`ca.pem`: not readable as PEM"),
    ] {
        let problem = trust(cas, &[]).unwrap_err().to_string();
        assert!(problem.starts_with(expected), "{problem}");
    }
    let (half, _) = pem.split_at(pem.len() / 2);
    let (half_der, _) = der.split_at(der.len() / 2);
    for (crl, expected) in [
        (&b""[..], "`clients.crl`: there is no CRL"),
        (ca.pem().as_bytes(), "`clients.crl`: there is no CRL"),
        (b"0nothing", "`clients.crl`: cannot be used"),
        (half.as_bytes(), "`clients.crl`: not readable as PEM"),
        (half_der, "`clients.crl`: cannot be used"),
        (&ca.der(), "`clients.crl`: cannot be used"),
        (ca.crl([2020, 2022], &[]).der(), "`clients.crl`: this CRL is past its next update"),
    ] {
        for crls in [vec![crl], vec![pem.as_bytes(), crl]] {
            let problem = trust(&ca.pem(), &crls).unwrap_err().to_string();
            assert!(problem.starts_with(expected), "{problem}");
        }
    }
}

#[test]
fn a_crl_with_an_empty_list_of_reasons_is_an_error_and_no_panic() {
    let ca = Ca::new("CA");
    let list = |reasons: &[u8]| {
        // issuingDistributionPoint { distributionPoint { fullName { URI } }, onlySomeReasons }, critical.
        let point = der(0xa0, &[&der(0xa0, &[b"\x86\x03x:a"])]);
        let scope = der(0x04, &[&der(0x30, &[&point, reasons])]);
        let extension = der(0x30, &[b"\x06\x03\x55\x1d\x1c\x01\x01\xff", &scope]);
        let number = der(0x30, &[b"\x06\x03\x55\x1d\x14\x04\x03\x02\x01\x01"]);
        let ecdsa = der(0x30, &[b"\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02"]);
        let to_sign = der(
            0x30,
            &[
                b"\x02\x01\x01",
                &ecdsa,
                &der(0x30, &[]),
                b"\x17\x0d240101000000Z\x17\x0d490101000000Z",
                &der(0xa0, &[&der(0x30, &[&extension, &number])]),
            ],
        );
        der(0x30, &[&to_sign, &ecdsa, b"\x03\x02\x00\x00"])
    };
    assert!(trust(&ca.pem(), &[&list(b"")]).is_ok(), "without reasons the list is in order");
    assert!(trust(&ca.pem(), &[&list(b"\x81\x01\xff")]).is_ok(), "only users");
    for reasons in [&b"\x83\x00"[..], b"\x83\x01\x00", b"\x83\x01\xff", b"\x83\x02\x01\x80"] {
        let problem = trust(&ca.pem(), &[&list(reasons)]).unwrap_err();
        assert_eq!(problem.file(), Path::new("clients.crl"));
    }
}

fn der(tag: u8, contents: &[&[u8]]) -> Vec<u8> {
    let content = contents.concat();
    let length = u8::try_from(content.len()).unwrap();
    let header: &[u8] = if length < 0x80 { &[tag, length] } else { &[tag, 0x81, length] };
    [header, &content].concat()
}

#[test]
fn all_files_are_read_or_none() {
    let folder = std::env::temp_dir().join(format!("portcullis-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let ca = Ca::new("CA");
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (cert, key) = (file("server.pem", &made.cert.pem()), file("server.key", &made.signing_key.serialize_pem()));
    let cas = file("ca.pem", &ca.pem());
    let crl = file("clients.crl", &ca.crl([2024, 2090], &[]).pem().unwrap());
    let load = |key: &Path, crls: &[&PathBuf], presence| {
        let crls = crls.iter().map(|path| (*path).clone()).collect();
        let clients = ClientFiles { ca: cas.clone(), crls, presence };
        TlsIdentity::load_with_clients(&cert, key, MinVersion::Tls13, &clients, now())
    };
    let running = load(&key, &[&crl], Presence::Required).unwrap();
    assert!(matches!(running.clients(), ClientAuth::Required(trust) if trust.authorities() == [ca.der()]));
    assert!(matches!(load(&key, &[], Presence::Optional).unwrap().clients(), ClientAuth::Optional(_)));
    assert!(matches!(TlsIdentity::load(&cert, &key, MinVersion::Tls13).unwrap().clients(), ClientAuth::None));

    let missing = folder.join("missing.crl");
    let problem = load(&key, &[&crl, &missing], Presence::Required).unwrap_err();
    assert_eq!(problem.file(), missing);
    let stale = file("stale.crl", &ca.crl([2020, 2022], &[]).pem().unwrap());
    assert_eq!(load(&key, &[&crl, &stale], Presence::Required).unwrap_err().file(), stale);
    let of_nobody = file("other.crl", &Ca::new("other").crl([2024, 2090], &[]).pem().unwrap());
    assert_eq!(load(&key, &[&of_nobody], Presence::Required).unwrap_err().file(), cas);
    let noted = load(&key, &[&crl, &of_nobody], Presence::Optional).unwrap().clients().notes();
    assert!(matches!(noted.as_slice(), [note] if note.contains("other.crl")), "{noted:?}");
    let foreign = file("other.key", &other.signing_key.serialize_pem());
    assert_eq!(load(&foreign, &[&crl], Presence::Required).unwrap_err().file(), foreign);
    // What runs was touched by none of these.
    assert_eq!(running.epoch(), 1);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn debug_shows_no_certificate() {
    let shown = format!("{:?}", trust(&Ca::new("secret place").pem(), &[]).unwrap());
    assert_eq!(shown, "ClientTrust { authorities: 1, fresh_until: Never, .. }");
}
