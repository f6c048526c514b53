//! What the tests of this crate share: keys that sign, tokens, and servers that answer as they are told.
//!
//! Must not check anything: a test says itself what it expects.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
    RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding,
    RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use parking_lot::Mutex;
use portcullis_auth::conformance::{TestClock, block_on};
use portcullis_auth::{Attempt, Authenticator as _, Principal, Rejection, Verdict};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::{Algorithm, IssuerConfig, Jwt, KeySource, StaticKeys};

/// 2027-01-15T08:00:00Z
pub(crate) const NOW: u64 = 1_800_000_000;
pub(crate) const ISSUER: &str = "https://id.test/realms/corp";

pub(crate) fn now() -> SystemTime {
    at(NOW)
}

pub(crate) fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap()
}

pub(crate) fn clock() -> Arc<TestClock> {
    Arc::new(TestClock::new(now()))
}

/// A key that signs tokens.
pub(crate) struct TestKey {
    kid: String,
    signer: Signer,
}

enum Signer {
    Ed(Ed25519KeyPair),
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Rsa(&'static RsaKeyPair),
}

impl TestKey {
    pub(crate) fn ed(kid: &str) -> Self {
        Self { kid: kid.to_owned(), signer: Signer::Ed(Ed25519KeyPair::generate().unwrap()) }
    }

    pub(crate) fn es256(kid: &str) -> Self {
        let signer = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        Self { kid: kid.to_owned(), signer: Signer::P256(signer) }
    }

    pub(crate) fn es384(kid: &str) -> Self {
        let signer = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).unwrap();
        Self { kid: kid.to_owned(), signer: Signer::P384(signer) }
    }

    /// Always the same key: making one takes long.
    pub(crate) fn rsa(kid: &str) -> Self {
        static KEY: LazyLock<RsaKeyPair> = LazyLock::new(|| RsaKeyPair::generate(KeySize::Rsa2048).unwrap());
        Self { kid: kid.to_owned(), signer: Signer::Rsa(&KEY) }
    }

    pub(crate) fn jwk(&self) -> Value {
        let kid = &self.kid;
        match &self.signer {
            Signer::Ed(key) => json!({"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": b64(key.public_key())}),
            Signer::P256(key) => ec_jwk(kid, "P-256", key),
            Signer::P384(key) => ec_jwk(kid, "P-384", key),
            Signer::Rsa(key) => {
                let n = key.public_key().modulus().big_endian_without_leading_zero();
                let e = key.public_key().exponent().big_endian_without_leading_zero();
                json!({"kty": "RSA", "kid": kid, "n": b64(n), "e": b64(e)})
            }
        }
    }

    pub(crate) fn public_bytes(&self) -> Vec<u8> {
        match &self.signer {
            Signer::Ed(key) => key.public_key().as_ref().to_vec(),
            Signer::P256(key) | Signer::P384(key) => key.public_key().as_ref().to_vec(),
            Signer::Rsa(key) => key.public_key().as_ref().to_vec(),
        }
    }

    /// The algorithm that this key signs with if nothing else is said.
    pub(crate) fn algorithm(&self) -> Algorithm {
        match &self.signer {
            Signer::Ed(_) => Algorithm::EdDsa,
            Signer::P256(_) => Algorithm::Es256,
            Signer::P384(_) => Algorithm::Es384,
            Signer::Rsa(_) => Algorithm::Rs256,
        }
    }

    pub(crate) fn header(&self) -> Value {
        json!({"alg": self.algorithm().as_str(), "typ": "at+jwt", "kid": self.kid})
    }

    pub(crate) fn token(&self, claims: &Value) -> String {
        self.token_with(&self.header(), claims)
    }

    pub(crate) fn token_with(&self, header: &Value, claims: &Value) -> String {
        self.token_of(header.to_string(), claims.to_string())
    }

    /// A token of these very bytes, with a signature that is right for them.
    pub(crate) fn token_of(&self, header: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> String {
        self.token_by(self.algorithm(), header, payload)
    }

    pub(crate) fn token_by(&self, algorithm: Algorithm, header: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> String {
        let message = format!("{}.{}", b64(header), b64(payload));
        let signature = self.sign(algorithm, message.as_bytes());
        format!("{message}.{}", b64(signature))
    }

    pub(crate) fn sign(&self, algorithm: Algorithm, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.signer {
            Signer::Ed(key) => key.sign(message).as_ref().to_vec(),
            Signer::P256(key) | Signer::P384(key) => key.sign(&random, message).unwrap().as_ref().to_vec(),
            Signer::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(rsa_encoding(algorithm), &random, message, &mut signature).unwrap();
                signature
            }
        }
    }
}

pub(crate) fn jwks(keys: &[&TestKey]) -> String {
    set_of(&keys.iter().map(|key| key.jwk()).collect::<Vec<_>>())
}

pub(crate) fn set_of(jwks: &[Value]) -> String {
    json!({ "keys": jwks }).to_string()
}

pub(crate) fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Claims that are good for an hour.
pub(crate) fn claims() -> Value {
    json!({"iss": ISSUER, "aud": "gate", "sub": "alice", "iat": NOW - 10, "exp": NOW + 3600, "jti": "t1"})
}

/// An issuer whose keys are these.
pub(crate) fn fixed(keys: &[&TestKey]) -> IssuerConfig {
    let source = KeySource::File(StaticKeys::parse(&jwks(keys)).unwrap());
    IssuerConfig::new(ISSUER, vec!["gate".to_owned()], Algorithm::ALL.to_vec(), source)
}

/// One issuer with one fixed key.
pub(crate) struct Bench {
    pub(crate) key: TestKey,
    pub(crate) jwt: Jwt,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(|_| ())
    }

    pub(crate) fn with(change: impl FnOnce(&mut IssuerConfig)) -> Self {
        let key = TestKey::es256("k1");
        let mut config = fixed(&[&key]);
        change(&mut config);
        Self { jwt: Jwt::new("corp", vec![config], clock()).unwrap(), key }
    }

    /// The verdict on the good claims after this change.
    pub(crate) fn claims(&self, change: impl FnOnce(&mut Value)) -> Verdict {
        let mut claims = claims();
        change(&mut claims);
        self.token(&self.key.token(&claims))
    }

    /// The verdict on the good header after this change.
    pub(crate) fn header(&self, change: impl FnOnce(&mut Value)) -> Verdict {
        let mut header = self.key.header();
        change(&mut header);
        self.token(&self.key.token_with(&header, &claims()))
    }

    pub(crate) fn token(&self, token: &str) -> Verdict {
        judge(&self.jwt, token, now())
    }
}

/// The verdict on a token where nothing has to be fetched.
pub(crate) fn judge(jwt: &Jwt, token: &str, now: SystemTime) -> Verdict {
    block_on(ask(jwt, token, now))
}

pub(crate) async fn ask(jwt: &Jwt, token: &str, now: SystemTime) -> Verdict {
    let headers = bearer(token);
    jwt.authenticate(&Attempt::new(&headers, now)).await
}

pub(crate) fn bearer(token: &str) -> HeaderMap {
    HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}")).unwrap())])
}

#[track_caller]
pub(crate) fn admitted(verdict: Verdict) -> Principal {
    match verdict {
        Verdict::Admit(principal) => principal,
        other @ (Verdict::Abstain | Verdict::Reject(_)) => panic!("{other:?}"),
    }
}

#[track_caller]
pub(crate) fn rejected(verdict: Verdict) -> Rejection {
    match verdict {
        Verdict::Reject(rejection) => rejection,
        other @ (Verdict::Abstain | Verdict::Admit(_)) => panic!("{other:?}"),
    }
}

/// The reason of a refusal, without the name of the issuer.
#[track_caller]
pub(crate) fn reason(verdict: Verdict) -> String {
    rejected(verdict).reason().split(": issuer").next().unwrap().to_owned()
}

/// Waits until something holds, and fails when it does not come to hold.
pub(crate) async fn until(holds: impl Fn() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it did not come to hold");
}

/// An HTTP server on a loopback port that answers as it was told last.
pub(crate) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    answers: Mutex<HashMap<String, Answer>>,
    requests: AtomicUsize,
    /// Each held answer takes one.
    released: Semaphore,
}

/// What a server does with a request.
#[derive(Clone)]
pub(crate) enum Answer {
    /// This body, with status 200, once it is released.
    Held(String),
    /// These bytes, and nothing else.
    Raw(Vec<u8>),
    /// One byte after the other without end.
    Drip,
    /// As much as the client takes, without end.
    Flood,
}

impl Answer {
    pub(crate) fn ok(body: &str) -> Self {
        Self::with("200 OK", "content-type: application/json\r\n", body.as_bytes())
    }

    pub(crate) fn with(status: &str, headers: &str, body: &[u8]) -> Self {
        let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len());
        Self::Raw([head.as_bytes(), body].concat())
    }
}

impl Server {
    /// A server that answers `/jwks` in this way.
    pub(crate) async fn start(answer: Answer) -> Self {
        Self::serve(answer, None).await
    }

    pub(crate) async fn start_tls(answer: Answer, acceptor: TlsAcceptor) -> Self {
        Self::serve(answer, Some(acceptor)).await
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn answer(&self, path: &str, answer: Answer) {
        self.shared.answers.lock().insert(path.to_owned(), answer);
    }

    pub(crate) fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::SeqCst)
    }

    pub(crate) fn release(&self, answers: usize) {
        self.shared.released.add_permits(answers);
    }

    async fn serve(answer: Answer, acceptor: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            answers: Mutex::new(HashMap::from([("/jwks".to_owned(), answer)])),
            requests: AtomicUsize::new(0),
            released: Semaphore::new(0),
        });
        let state = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (state, acceptor) = (Arc::clone(&state), acceptor.clone());
                tokio::spawn(async move {
                    match acceptor {
                        None => state.talk(stream).await,
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                state.talk(stream).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, shared, task }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    async fn talk(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let Ok(byte) = stream.read_u8().await else { return };
            request.push(byte);
        }
        self.requests.fetch_add(1, Ordering::SeqCst);
        let path = String::from_utf8(request).unwrap().split(' ').nth(1).unwrap().to_owned();
        let answer = self.answers.lock().get(&path).cloned().unwrap_or(Answer::with("404 Not Found", "", b""));
        // A client that has gone away is no failure of the server.
        match answer {
            Answer::Drip => {
                drop(stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n{").await);
                while stream.write_all(b" ").await.is_ok() && stream.flush().await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            Answer::Flood => {
                drop(stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await);
                while stream.write_all(&[b' '; 4096]).await.is_ok() {}
            }
            Answer::Held(body) => {
                self.released.acquire().await.unwrap().forget();
                if let Answer::Raw(bytes) = Answer::ok(&body) {
                    drop(stream.write_all(&bytes).await);
                }
            }
            Answer::Raw(bytes) => drop(stream.write_all(&bytes).await),
        }
        drop(stream.shutdown().await);
    }
}

fn ec_jwk(kid: &str, curve: &str, key: &EcdsaKeyPair) -> Value {
    let point = key.public_key().as_ref().split_first().unwrap().1;
    let (x, y) = point.split_at(point.len() / 2);
    json!({"kty": "EC", "crv": curve, "kid": kid, "x": b64(x), "y": b64(y)})
}

fn rsa_encoding(algorithm: Algorithm) -> &'static dyn RsaEncoding {
    match algorithm {
        Algorithm::Ps256 => &RSA_PSS_SHA256,
        Algorithm::Ps384 => &RSA_PSS_SHA384,
        Algorithm::Ps512 => &RSA_PSS_SHA512,
        Algorithm::Rs256 => &RSA_PKCS1_SHA256,
        Algorithm::Rs384 => &RSA_PKCS1_SHA384,
        Algorithm::Rs512 => &RSA_PKCS1_SHA512,
        Algorithm::EdDsa | Algorithm::Es256 | Algorithm::Es384 => panic!("not for RSA"),
    }
}
