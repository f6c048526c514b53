//! What a gate shows is replaced while it serves: M24 from outside, and M16 for a client that asks to resume.
//!
//! What a handshake shows is read from the handshake itself. The unit tests of `src/tls` say which file is at fault;
//! must not repeat them.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;

use portcullis::gate::chain::Chain;
use portcullis::tls::{ClientAuth, MinVersion};
use portcullis_auth::Expiry;
use portcullis_auth_api_key::generate;
use portcullis_auth_mtls::ClientCertificates;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, HandshakeKind, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tonic::Code;

use crate::cli::Place;
use crate::support::client::{Client, code};
use crate::support::login::Login;
use crate::support::process::{Channel, Process};
use crate::support::schemes::{Ca, list_actions, optional, service_rules};
use crate::support::wire::{self, Shown};
use crate::support::{Gate, PKI, Settings, on_runtime};

/// M24: half-written files and a key of another certificate, then a good pair.
#[test]
fn a_failed_reload_shows_the_old_certificate_and_a_good_one_the_new() {
    let place = Place::make("reload");
    drop(place.write_five_schemes());
    let path = |file: &str| place.0.join(file);
    let read = |file: &str| fs::read_to_string(path(file)).unwrap();
    fs::write(path("all.toml"), place.five_schemes(0).replace("level = \"warn\"", "level = \"info\"")).unwrap();
    let gate = Process::start(&place.0, &["serve", "--config", "all.toml"]);
    let line = gate.line_with(Channel::Err, "listening address=");
    let address = line.split_once("address=").unwrap().1.split_whitespace().next().unwrap().parse().unwrap();

    let (old, old_key) = (read("server.pem"), read("server.key"));
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (new, new_key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let config = trusting(&[&old, &new]);
    let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    assert_eq!(shown(address, &config), der(&old));

    // Good by itself, and read together with what is not: it counts with the certificate or not at all.
    let added = generate("added", &[], Expiry::Never).unwrap();
    let login = Login::Bearer(String::from_utf8(added.key.expose().to_vec()).unwrap());
    fs::write(path("keys.toml"), read("keys.toml") + "\n" + &added.record).unwrap();
    let ask = |ca: &str| {
        let (login, ca) = (login.clone(), ca.to_owned());
        on_runtime(async move { code(&list_actions(&Client::connect_to(address, &login, &ca)).await) })
    };
    let reload = |mark: &str| {
        let before = gate.text(Channel::Err).matches(mark).count();
        gate.signal("HUP");
        gate.lines_with(Channel::Err, mark, before + 1);
    };

    let half = |text: &str| text.get(..text.len() / 2).unwrap().to_owned();
    for (what, certificate, key) in [
        ("half a certificate", &half(&new), &new_key),
        ("half a key", &new, &half(&new_key)),
        ("the certificate of another key", &new, &old_key),
        ("the key of another certificate", &old, &new_key),
        ("nothing", &String::new(), &new_key),
    ] {
        fs::write(path("server.pem"), certificate).unwrap();
        fs::write(path("server.key"), key).unwrap();
        reload("nothing was reloaded");
        assert_eq!(shown(address, &config), der(&old), "{what}");
        assert_eq!(ask(&old), Code::Unauthenticated, "{what}: all or nothing");
    }

    fs::write(path("server.pem"), &new).unwrap();
    fs::write(path("server.key"), &new_key).unwrap();
    reload("were read again");
    assert_eq!(shown(address, &config), der(&new));
    assert_eq!(ask(&new), Code::Ok);
}

/// M16: no ticket is given, and one that was given elsewhere, or earlier, is worth nothing.
#[test]
fn a_client_that_asks_to_resume_shakes_hands_in_full_where_certificates_are_asked_for() {
    on_runtime(async {
        let ca = Ca::new("clients");
        let own = ca.service(1, "alice");
        for version in [&TLS12, &TLS13] {
            // No certificates are asked for at first.
            let identity = PKI.asking(MinVersion::Tls12, ClientAuth::None);
            let mut settings = Settings::shared().await;
            settings.identity = identity.clone();
            let certificates = ClientCertificates::new("certificates", service_rules(&[&ca]));
            settings.chain = Some(Chain::new(Arc::new(certificates)));
            let gate = Gate::start(settings).await;
            let address = gate.running.address();
            let config = Arc::new(wire::client(&[version], &[b"h2"], Shown::Certificate(&own)));
            let kind = async || {
                let wire = wire::connect(address, &config).await.unwrap();
                let (_, tls) = wire.stream.get_ref();
                (tls.handshake_kind().unwrap(), tls.tls13_tickets_received())
            };
            // The client does ask, and is still asking when the gate begins to ask for certificates.
            assert_eq!(kind().await.0, HandshakeKind::Full);
            assert_eq!(kind().await.0, HandshakeKind::Resumed, "{version:?}");
            identity.replace(&optional(&[&ca], &[]));
            for _ in 0..3 {
                assert_eq!(kind().await, (HandshakeKind::Full, 0), "{version:?}");
            }
            assert_eq!(code(&list_actions(&own.client(&gate, &Login::Nothing)).await), Code::Ok, "it was seen");
        }
    });
}

/// The leaf that a new connection is shown.
fn shown(address: SocketAddr, config: &Arc<ClientConfig>) -> CertificateDer<'static> {
    let config = Arc::clone(config);
    on_runtime(async move {
        let wire = wire::connect(address, &config).await.unwrap();
        let (_, tls) = wire.stream.get_ref();
        tls.peer_certificates().unwrap()[0].clone().into_owned()
    })
}

/// A client of these CAs, or of certificates that signed themselves, that remembers no session.
pub(crate) fn trusting(pems: &[&str]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for pem in pems {
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    }
    let mut config = wire::client(rustls::ALL_VERSIONS, &[b"h2"], Shown::Nothing);
    let provider = Arc::clone(config.crypto_provider());
    let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
    config.dangerous().set_certificate_verifier(verifier.build().unwrap());
    config.resumption = rustls::client::Resumption::disabled();
    Arc::new(config)
}
