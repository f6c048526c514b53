//! CAs, client certificates and CRLs for the tests of TLS, and a client that shakes hands over loopback.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use portcullis_auth::{Clock, Secret, SystemClock};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, CustomExtension, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::{ClientConfig, HandshakeKind, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{ClientAuth, ClientTrust, MinVersion, TlsError, TlsIdentity};

pub(super) fn now() -> SystemTime {
    SystemClock.now()
}

/// Midnight of the first of January.
pub(super) fn year(year: i32) -> SystemTime {
    date_time_ymd(year, 1, 1).into()
}

pub(super) struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    pub(super) fn new(name: &str) -> Self {
        Self(CertifiedIssuer::self_signed(params(name), KeyPair::generate().unwrap()).unwrap())
    }

    pub(super) fn under(&self, name: &str) -> Self {
        let mut params = params(name);
        params.serial_number = Some(SerialNumber::from(77));
        Self(CertifiedIssuer::signed_by(params, KeyPair::generate().unwrap(), &self.0).unwrap())
    }

    /// Another certificate of the same name and key.
    pub(super) fn twin(&self, name: &str) -> Self {
        let key = KeyPair::try_from(self.0.key().serialize_der()).unwrap();
        Self(CertifiedIssuer::self_signed(params(name), key).unwrap())
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(super) fn der(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    /// A client with this serial number, from 2020 to 2090.
    pub(super) fn client(&self, serial: u64) -> Client {
        self.client_of(serial, [2020, 2090], &[ExtendedKeyUsagePurpose::ClientAuth])
    }

    pub(super) fn client_of(&self, serial: u64, years: [i32; 2], uses: &[ExtendedKeyUsagePurpose]) -> Client {
        self.issue(serial, years, |params| params.extended_key_usages = uses.to_vec())
    }

    /// A client whose certificate is larger than this.
    pub(super) fn large_client(&self, bytes: usize) -> Client {
        let padding = CustomExtension::from_oid_content(&[1, 2, 3], vec![0; bytes]);
        self.issue(1, [2020, 2090], |params| params.custom_extensions = vec![padding])
    }

    fn issue(&self, serial: u64, [first, last]: [i32; 2], edit: impl FnOnce(&mut CertificateParams)) -> Client {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        (params.not_before, params.not_after) = (date_time_ymd(first, 1, 1), date_time_ymd(last, 1, 1));
        params.serial_number = Some(SerialNumber::from(serial));
        edit(&mut params);
        let cert = params.signed_by(&key, &self.0).unwrap();
        Client { chain: vec![cert.der().clone()], key: PrivateKeyDer::Pkcs8(key.serialize_der().into()) }
    }

    /// A CRL of 2020 (or later) that ends in `until` and lists these serial numbers.
    pub(super) fn crl(&self, [from, until]: [i32; 2], revoked: &[u64]) -> rcgen::CertificateRevocationList {
        let revoked_certs = revoked.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(from, 1, 1),
            next_update: date_time_ymd(until, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked_certs.collect(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        list.signed_by(&self.0).unwrap()
    }
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// What a client needs to show a certificate.
pub(super) struct Client {
    pub(super) chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Client {
    /// Sends this CA's certificate behind its own.
    pub(super) fn through(mut self, ca: &Ca) -> Self {
        self.chain.push(ca.der());
        self
    }
}

pub(super) fn trust(ca: &str, crls: &[&[u8]]) -> Result<ClientTrust, TlsError> {
    trust_at(ca, crls, now())
}

pub(super) fn trust_at(ca: &str, crls: &[&[u8]], now: SystemTime) -> Result<ClientTrust, TlsError> {
    let crls: Vec<_> = crls.iter().map(|crl| (Path::new("clients.crl"), *crl)).collect();
    ClientTrust::parse((Path::new("ca.pem"), ca.as_bytes()), &crls, now)
}

/// A server's certificate with its key, and the roots that know it.
pub(super) struct Server {
    cert: Secret,
    key: Secret,
    roots: RootCertStore,
}

impl Server {
    pub(super) fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        Self { cert: Secret::new(made.cert.pem()), key: Secret::new(made.signing_key.serialize_pem()), roots }
    }

    pub(super) fn identity(&self, min: MinVersion, clients: ClientAuth) -> TlsIdentity {
        let (cert, key) = ((Path::new("server.pem"), &self.cert), (Path::new("server.key"), &self.key));
        TlsIdentity::from_pem(cert, key, min, clients).unwrap()
    }

    /// A client's configuration, which remembers sessions.
    pub(super) fn client(
        &self,
        client: Option<&Client>,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(self.roots.clone());
        let mut config = match client {
            None => builder.with_no_client_auth(),
            Some(client) => builder.with_client_auth_cert(client.chain.clone(), client.key.clone_key()).unwrap(),
        };
        config.alpn_protocols = vec![super::H2.to_vec()];
        Arc::new(config)
    }
}

/// A server that sends one byte over each connection and keeps it open for echoes.
pub(super) struct Echo {
    addr: SocketAddr,
    _serving: tokio_util::task::AbortOnDropHandle<()>,
}

impl Echo {
    pub(super) async fn start(identity: TlsIdentity) -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = socket.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = socket.accept().await {
                let config = identity.config();
                tokio::spawn(async move {
                    let mut stream = TlsAcceptor::from(config).accept(stream).await?;
                    stream.write_u8(b'!').await?;
                    let (mut from, mut to) = tokio::io::split(stream);
                    tokio::io::copy(&mut from, &mut to).await
                });
            }
        });
        Self { addr, _serving: tokio_util::task::AbortOnDropHandle::new(serving) }
    }

    /// A connection over which the server has spoken: in TLS 1.3 the client learns only then that it was accepted.
    pub(super) async fn connect(&self, client: &Arc<ClientConfig>) -> io::Result<Connection> {
        let name = ServerName::try_from("localhost").unwrap();
        let connected = async {
            let stream = TcpStream::connect(self.addr).await?;
            let mut stream = TlsConnector::from(Arc::clone(client)).connect(name, stream).await?;
            assert_eq!(stream.read_u8().await?, b'!');
            Ok(Connection(stream))
        };
        tokio::time::timeout(DEADLINE, connected).await.unwrap()
    }
}

#[derive(Debug)]
pub(super) struct Connection(tokio_rustls::client::TlsStream<TcpStream>);

impl Connection {
    pub(super) fn kind(&self) -> HandshakeKind {
        self.0.get_ref().1.handshake_kind().unwrap()
    }

    /// Tickets for a later connection that the server has sent.
    pub(super) fn tickets(&self) -> u32 {
        self.0.get_ref().1.tls13_tickets_received()
    }

    /// Says something and hears it again.
    pub(super) async fn echo(&mut self) {
        self.0.write_u8(b'?').await.unwrap();
        let heard = tokio::time::timeout(DEADLINE, self.0.read_u8()).await.unwrap().unwrap();
        assert_eq!(heard, b'?');
    }
}

const DEADLINE: Duration = Duration::from_secs(60);
