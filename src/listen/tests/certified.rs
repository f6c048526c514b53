//! A client with a certificate: what it showed, and whether that counts, for as long as its connection lasts.

use std::path::Path;
use std::sync::Arc;

use portcullis_auth::{Clock, Secret, SystemClock};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{PrivateKeyDer, ServerName};
use tokio_rustls::TlsConnector;

use super::{Running, limits};
use crate::listen::{PeerTls, Transport};
use crate::tls::{ClientAuth, ClientTrust, Distrust, MinVersion, TlsIdentity};

type Ca = CertifiedIssuer<'static, KeyPair>;

fn ca() -> Ca {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A server with `ca`'s certificate that asks for certificates of `clients`.
fn identity(ca: &Ca, clients: &Ca) -> TlsIdentity {
    let key = KeyPair::generate().unwrap();
    let made = CertificateParams::new(["localhost".to_owned()]).unwrap().signed_by(&key, ca).unwrap();
    let (cert, key) = (Secret::new(made.pem()), Secret::new(key.serialize_pem()));
    let trust = ClientTrust::parse((Path::new("ca"), clients.pem().as_bytes()), &[], SystemClock.now()).unwrap();
    let file = Path::new("test");
    TlsIdentity::from_pem((file, &cert), (file, &key), MinVersion::Tls13, ClientAuth::Optional(trust)).unwrap()
}

#[tokio::test]
async fn a_certificate_is_shown_and_judged_again_when_something_was_replaced() {
    let ca = ca();
    let served = identity(&ca, &ca);
    let mut server = Running::with(Transport::Tls(served.clone()), limits()).await;

    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let cert = params.signed_by(&key, &ca).unwrap().der().clone();
    let mut roots = RootCertStore::empty();
    roots.add(ca.der().clone()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![cert.clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    let stream = server.connect().await;
    let _client = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();

    let conn = server.next().await;
    let client = match &conn.peer().tls {
        PeerTls::Tls(client) => Some(client),
        PeerTls::Plain => None,
    };
    let client = client.unwrap();
    let now = SystemClock.now();
    assert_eq!(client.chain(), [cert]);
    client.still_trusted(now).unwrap();
    served.replace(&identity(&ca, &ca));
    client.still_trusted(now).unwrap();
    served.replace(&identity(&ca, &self::ca()));
    assert_eq!(client.still_trusted(now).unwrap_err(), Distrust::UnknownAuthority);
    assert_eq!(client.clone().still_trusted(now).unwrap_err(), Distrust::UnknownAuthority);
}
