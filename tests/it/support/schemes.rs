//! The shipped schemes with credentials of every kind, and a gate whose decisions are on record.
//!
//! Issuers, CAs and hashes are made once per run or per test; nothing secret is kept in a file. Must not assert a
//! promise of its own but one: a refusal tells the client nothing and the auditor one line.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, SystemTime};

use arrow_flight::Empty;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::TryStreamExt;
use portcullis::audit::Audit;
use portcullis::config::CertificateRole;
use portcullis::gate::chain::Chain;
use portcullis::tls::{ClientAuth, ClientTrust, MinVersion, TlsIdentity};
use portcullis_auth::{Clock, Expiry, Secret, SystemClock};
use portcullis_auth_api_key::{ApiKeys, KeyFile, generate};
use portcullis_auth_jwt::{Algorithm, DenyList, IssuerConfig, Jwt, KeySource, StaticKeys};
use portcullis_auth_mtls::{ClientCertificates, Eku, Field, Rule, Rules};
use portcullis_auth_password::{HashingConfig, Passwords, UserFile, hash};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tonic::transport::Identity;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::client::{Client, tls};
use super::login::Login;
use super::{Gate, PKI, Settings};

/// What every client reads that is not let in.
pub(crate) const REFUSAL: &str =
    "authentication failed: this server needs a valid credential in the authorization header";

/// An issuer of tokens and the key it signs with.
pub(crate) struct Signer {
    pub(crate) issuer: &'static str,
    kid: &'static str,
    key: EcdsaKeyPair,
}

impl Signer {
    pub(crate) fn new(issuer: &'static str, kid: &'static str) -> Self {
        Self { issuer, kid, key: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap() }
    }

    pub(crate) fn jwk(&self) -> Value {
        let (_, point) = self.key.public_key().as_ref().split_first().unwrap();
        let (x, y) = point.split_at(32);
        json!({"kty": "EC", "crv": "P-256", "kid": self.kid, "x": b64(x), "y": b64(y)})
    }

    pub(crate) fn public_key(&self) -> &[u8] {
        self.key.public_key().as_ref()
    }

    /// With this key alone, and no roles.
    pub(crate) fn config(&self) -> IssuerConfig {
        self.config_with(&[self.jwk()])
    }

    pub(crate) fn config_with(&self, keys: &[Value]) -> IssuerConfig {
        let keys = StaticKeys::parse(&json!({ "keys": keys }).to_string()).unwrap();
        IssuerConfig::new(self.issuer, vec![AUDIENCE.to_owned()], Algorithm::ALL.to_vec(), KeySource::File(keys))
    }

    pub(crate) fn header(&self) -> Value {
        json!({"alg": "ES256", "typ": "at+jwt", "kid": self.kid})
    }

    /// Good for an hour from `now`.
    pub(crate) fn claims(&self, subject: &str, now: SystemTime) -> Value {
        let now = seconds(now);
        json!({"iss": self.issuer, "aud": AUDIENCE, "sub": subject, "iat": now - 10, "exp": now + 3600})
    }

    pub(crate) fn token(&self, claims: &Value) -> String {
        self.token_of(self.header().to_string(), claims.to_string())
    }

    pub(crate) fn token_with(&self, header: &Value, claims: &Value) -> String {
        self.token_of(header.to_string(), claims.to_string())
    }

    /// A token of these very bytes, with a signature that is right for them.
    pub(crate) fn token_of(&self, header: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> String {
        let message = format!("{}.{}", b64(header), b64(payload));
        let signature = self.key.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", b64(signature))
    }
}

pub(crate) fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(crate) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

pub(crate) const AUDIENCE: &str = "portcullis";

/// A CA of clients.
pub(crate) struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn der(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    /// Its own certificate, shown as a client's.
    pub(crate) fn itself(&self) -> Certified {
        let key = self.0.key();
        Certified {
            chain: self.pem(),
            der: self.der(),
            key: key.serialize_pem(),
            key_der: PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        }
    }

    /// A client certificate for 2020 to 2090, changed by `edit`.
    pub(crate) fn client(&self, serial: u64, edit: impl FnOnce(&mut CertificateParams)) -> Certified {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2090, 1, 1));
        params.serial_number = Some(SerialNumber::from(serial));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        edit(&mut params);
        let made = params.signed_by(&key, &self.0).unwrap();
        Certified {
            chain: made.pem(),
            der: made.der().clone(),
            key: key.serialize_pem(),
            key_der: PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        }
    }

    /// With the SPIFFE id of a service.
    pub(crate) fn service(&self, serial: u64, name: &str) -> Certified {
        self.client(serial, |params| params.subject_alt_names = vec![uri(&format!("spiffe://corp/svc/{name}"))])
    }

    /// A list of today that ends in `until` and names these serial numbers.
    pub(crate) fn crl(&self, until: i32, revoked: &[u64]) -> String {
        let revoked_certs = revoked.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(until, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked_certs.collect(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        list.signed_by(&self.0).unwrap().pem().unwrap()
    }
}

pub(crate) fn uri(name: &str) -> SanType {
    SanType::URI(name.try_into().unwrap())
}

/// A certificate with its key.
pub(crate) struct Certified {
    pub(crate) chain: String,
    pub(crate) der: CertificateDer<'static>,
    key: String,
    key_der: PrivateKeyDer<'static>,
}

impl Certified {
    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        self.key_der.clone_key()
    }

    /// A connection of its own that shows it.
    pub(crate) fn client(&self, gate: &Gate, login: &Login) -> Client {
        let tls = tls(&PKI.ca).identity(Identity::from_pem(&self.chain, &self.key));
        Client::connect_by(gate.running.address(), login, tls)
    }
}

/// The clients of these CAs, by these lists.
pub(crate) fn trust(cas: &[&Ca], crls: &[String]) -> ClientTrust {
    trust_at(cas, crls, SystemClock.now())
}

pub(crate) fn trust_at(cas: &[&Ca], crls: &[String], now: SystemTime) -> ClientTrust {
    let cas: String = cas.iter().map(|ca| ca.pem()).collect();
    let crls: Vec<_> = crls.iter().map(|crl| (Path::new("clients.crl"), crl.as_bytes())).collect();
    ClientTrust::parse((Path::new("clients.pem"), cas.as_bytes()), &crls, now).unwrap()
}

/// The run's own server certificate, and who has a certificate of these CAs may show it.
pub(crate) fn optional(cas: &[&Ca], crls: &[String]) -> TlsIdentity {
    PKI.asking(MinVersion::Tls12, ClientAuth::Optional(trust(cas, crls)))
}

/// SPIFFE services by their name, and nobody else.
pub(crate) fn service_rules(cas: &[&Ca]) -> Rules {
    rules(cas, &[(Field::Uri, "spiffe://corp/svc/*", "$1")])
}

pub(crate) fn rules(cas: &[&Ca], rules: &[(Field, &str, &str)]) -> Rules {
    let rules = rules.iter().map(|(field, pattern, name)| Rule::parse(*field, pattern, name).unwrap()).collect();
    let authorities: Vec<_> = cas.iter().map(|ca| ca.der()).collect();
    Rules::new(rules, BTreeMap::new(), &authorities, Eku::Required).unwrap()
}

/// The four shipped schemes in one chain, with something to revoke in each.
pub(crate) struct Shipped {
    pub(crate) issuers: [Signer; 2],
    pub(crate) jwt: Arc<Jwt>,
    pub(crate) cas: [Ca; 2],
    pub(crate) identity: TlsIdentity,
    pub(crate) keys: Arc<ApiKeys>,
    key_list: Vec<(&'static str, String, String)>,
    pub(crate) passwords: Arc<Passwords>,
}

impl Shipped {
    pub(crate) fn new() -> Self {
        let issuers = [Signer::new("https://id.test/one", "k1"), Signer::new("https://id.test/two", "k1")];
        let configs = issuers.iter().map(Signer::config).collect();
        let cas = [Ca::new("clients"), Ca::new("partners")];
        let yesterday = Expiry::At(SystemClock.now() - Duration::from_secs(24 * 60 * 60));
        let users = [("alice", Expiry::Never), ("bob", Expiry::Never), ("carol", Expiry::Never), ("late", yesterday)];
        let key_list: Vec<_> = users
            .into_iter()
            .map(|(user, expires)| {
                let new = generate(user, &[user], expires).unwrap();
                (user, String::from_utf8(new.key.expose().to_vec()).unwrap(), new.record)
            })
            .collect();
        let shipped = Self {
            jwt: Arc::new(Jwt::new("tokens", configs, Arc::new(SystemClock)).unwrap()),
            issuers,
            identity: optional(&[&cas[0], &cas[1]], &[]),
            cas,
            keys: Arc::new(ApiKeys::new("keys", KeyFile::default())),
            key_list,
            passwords: passwords(&users_file(USERS)),
        };
        shipped.keys.replace(shipped.keys_without("nobody"));
        shipped
    }

    pub(crate) fn chain(&self) -> Chain {
        let certificates = ClientCertificates::new("certificates", service_rules(&[&self.cas[0], &self.cas[1]]));
        let chain = Chain::new(Arc::clone(&self.jwt) as _).with_certificates(CertificateRole::Identity);
        let chain = chain.then(Arc::clone(&self.keys) as _).unwrap().then(Arc::clone(&self.passwords) as _).unwrap();
        chain.then(Arc::new(certificates)).unwrap()
    }

    /// In front of the usual tables.
    pub(crate) async fn settings(&self) -> Settings {
        let mut settings = Settings::shared().await;
        settings.chain = Some(self.chain());
        settings.identity = self.identity.clone();
        settings
    }

    pub(crate) fn key(&self, user: &str) -> String {
        self.key_list.iter().find(|(name, _, _)| *name == user).unwrap().1.clone()
    }

    pub(crate) fn keys_without(&self, gone: &str) -> KeyFile {
        let records = self.key_list.iter().filter(|(user, _, _)| *user != gone).map(|(_, _, record)| record.as_str());
        KeyFile::parse(&records.collect::<Vec<_>>().join("\n")).unwrap()
    }

    /// A token of the first issuer, good for an hour from `now`.
    pub(crate) fn token(&self, subject: &str, now: SystemTime) -> Login {
        let issuer = &self.issuers[0];
        Login::Bearer(issuer.token(&issuer.claims(subject, now)))
    }

    /// From here on the first issuer's tokens with this `jti` do not count.
    pub(crate) fn deny(&self, id: &str) {
        let denied = DenyList::parse(&format!("tokens = [\"{id}\"]")).unwrap();
        self.jwt.replace_denied(self.issuers[0].issuer, denied).unwrap();
    }
}

/// `users.toml` with these users, who all have [`PASSWORD`]; the second text is what else the table says.
pub(crate) fn users_file(users: &[(&str, &str)]) -> String {
    let table = |(user, more): &(&str, &str)| format!("[user.\"{user}\"]\npassword = \"{}\"\n{more}\n", *HASH);
    users.iter().map(table).collect()
}

/// With as little hashing as there can be, and nothing remembered.
pub(crate) fn passwords(users: &str) -> Arc<Passwords> {
    let config = HashingConfig { remember: Duration::ZERO, ..HashingConfig::default() };
    Arc::new(Passwords::new("staff", UserFile::parse(users).unwrap(), config).unwrap())
}

pub(crate) fn password(user: &str) -> Login {
    Login::Basic(user.to_owned(), PASSWORD.to_owned())
}

pub(crate) const PASSWORD: &str = "open:sesame:1";

/// Those of [`Shipped`].
pub(crate) const USERS: &[(&str, &str)] =
    &[("alice", ""), ("bob", ""), ("carol", ""), ("late", "expires = 2020-01-01T00:00:00Z")];

static HASH: LazyLock<String> = LazyLock::new(|| hash(&Secret::new(PASSWORD)).unwrap());

/// A gate whose decisions can be read.
pub(crate) struct Watched {
    pub(crate) gate: Gate,
    record: Record,
}

impl Watched {
    pub(crate) async fn start(mut settings: Settings) -> Self {
        let record = Record::new();
        settings.audit = record.audit.clone();
        let gate = Gate::start(settings).await;
        record.take().await;
        Self { gate, record }
    }

    /// What has been decided since this was asked last.
    pub(crate) async fn decisions(&self) -> Vec<Value> {
        self.record.take().await
    }

    /// What becomes of one call, in a word and the reason of the one line about it. Whoever is refused reads the one
    /// refusal.
    pub(crate) async fn verdict(&self, client: &Client) -> String {
        drop(self.decisions().await);
        let answer = list_actions(client).await;
        let mut decisions = self.decisions().await;
        // A session may end by the way.
        decisions.retain(|decision| decision["event"] != "session.ended");
        assert_eq!(decisions.len(), 1, "one line about one call: {decisions:#?}, {answer:?}");
        let decision = &decisions[0];
        let text = |name: &str| decision[name].as_str().unwrap_or_default().to_owned();
        match (text("event").as_str(), answer) {
            ("authn.success", Ok(())) => format!("admitted: {}", text("principal")),
            ("authn.failure", Err(status)) => {
                assert_eq!((status.code(), status.message()), (Code::Unauthenticated, REFUSAL));
                assert!(status.get_error_details().retry_info().is_none(), "{status:?}");
                assert_eq!(text("call"), "ListActions");
                format!("refused: {}", text("reason"))
            }
            ("authn.throttled", Err(status)) => {
                assert_eq!(status.code(), Code::ResourceExhausted);
                assert!(wait_of(&status) > Duration::ZERO);
                format!("throttled: {}", text("limit"))
            }
            ("authn.unavailable", Err(status)) => {
                assert_eq!(status.code(), Code::Unavailable);
                assert!(wait_of(&status) > Duration::ZERO);
                format!("unavailable: {}", text("reason"))
            }
            (event, answer) => format!("{event}: {answer:?}"),
        }
    }
}

/// The least that a client can ask for.
pub(crate) async fn list_actions(client: &Client) -> Result<(), Status> {
    client.flight().list_actions(Empty {}).await?.into_inner().try_for_each(|_| async { Ok(()) }).await
}

/// After which time the gate says it will take the call.
pub(crate) fn wait_of(status: &Status) -> Duration {
    status.get_details_retry_info().and_then(|info| info.retry_delay).unwrap()
}

/// Compares what was found with what is expected, all of it before it fails. What is expected is the start of it.
#[derive(Default)]
pub(crate) struct Checked {
    looked_at: usize,
    wrong: Vec<String>,
}

impl Checked {
    pub(crate) fn that(&mut self, what: &str, found: &str, expected: &str) {
        self.looked_at += 1;
        if !found.starts_with(expected) {
            self.wrong.push(format!("{what}\n    expected {expected}\n    found    {found}"));
        }
    }

    pub(crate) fn done(self) {
        assert!(self.looked_at > 0, "nothing was looked at");
        assert!(self.wrong.is_empty(), "{} of {}:\n{}", self.wrong.len(), self.looked_at, self.wrong.join("\n"));
    }
}

/// An audit log in memory.
struct Record {
    audit: Audit,
    bytes: Shared,
}

impl Record {
    fn new() -> Self {
        let bytes = Shared::default();
        Self { audit: Audit::to_writer(Box::new(bytes.clone())).unwrap(), bytes }
    }

    async fn take(&self) -> Vec<Value> {
        self.audit.flush(Duration::from_secs(10)).await.unwrap();
        let bytes = std::mem::take(&mut *self.bytes.0.lock().unwrap());
        bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
