//! What an identity provider may answer, and what must not be followed. Each refusal comes after a good fetch.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls_pki_types::PrivateKeyDer;
use serde_json::json;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;

use super::{FetchError, Fetcher, is_never_an_issuer};
use crate::keys::KeySetError;
use crate::testing::{Answer, ISSUER, Server, TestKey, jwks, set_of};
use crate::{Algorithm, Http, IssuerConfig, KeySource, Trust};

#[tokio::test]
async fn keys_are_fetched() {
    let (key, other) = (TestKey::es256("k1"), TestKey::rsa("k2"));
    let server = Server::start(Answer::ok(&jwks(&[&key, &other]))).await;
    assert_eq!(fetched(&from(&server)).await, Ok(2));
    assert_eq!(server.requests(), 1);

    // K06: keys there are, and none that this issuer may use.
    let mut config = from(&server);
    config.algorithms = vec![Algorithm::EdDsa];
    assert_eq!(fetched(&config).await, Err(FetchError::Keys(KeySetError::NoneUsable)));
}

#[tokio::test]
async fn an_answer_that_is_no_key_set_is_refused() {
    let good = jwks(&[&TestKey::es256("k1")]);
    let server = Server::start(Answer::ok(&good)).await;
    let config = from(&server);
    let after = async |answer: Answer| {
        server.answer("/jwks", answer);
        fetched(&config).await
    };
    assert_eq!(after(Answer::ok(&good)).await, Ok(1));
    // K01.
    for status in [500, 503, 404, 204, 201, 401] {
        let answer = Answer::with(&format!("{status} Odd"), "", if status == 204 { b"" } else { good.as_bytes() });
        assert_eq!(after(answer).await, Err(FetchError::Status(status)));
    }
    // K06, K07, K08.
    let many = set_of(&vec![json!({}); 10_000]);
    let twice = jwks(&[&TestKey::es256("k1"), &TestKey::es256("k1")]);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (body, error) in [
        ("{\"keys\":[]}", KeySetError::NoneUsable),
        ("{\"keys\":[{\"kty\":\"oct\",\"k\":\"AAAA\"}]}", KeySetError::NoneUsable),
        ("<!doctype html><title>Sign in</title>", KeySetError::NotASet),
        ("", KeySetError::NotASet),
        (&deep, KeySetError::NotASet),
        (&many, KeySetError::TooMany),
        (&twice, KeySetError::Ambiguous),
    ] {
        assert_eq!(after(Answer::ok(body)).await, Err(FetchError::Keys(error)));
    }
    // Not unpacked, whatever is in it.
    for coding in ["gzip", "br", "deflate", "zstd", "identity"] {
        let answer = Answer::with("200 OK", &format!("content-encoding: {coding}\r\n"), good.as_bytes());
        assert_eq!(after(answer).await, Err(FetchError::Encoded), "{coding}");
    }
    for broken in [&b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{\"keys\":"[..], b"garbage", b""] {
        assert!(matches!(after(Answer::Raw(broken.to_vec())).await, Err(FetchError::Transport(_))));
    }
    assert_eq!(after(Answer::ok(&good)).await, Ok(1));
}

#[tokio::test]
async fn a_large_or_slow_answer_is_cut_off() {
    // K03.
    let good = jwks(&[&TestKey::es256("k1")]);
    let server = Server::start(Answer::ok(&good)).await;
    assert_eq!(fetched(&from(&server)).await, Ok(1));
    let padded = format!("{good}{}", " ".repeat(300 * 1024));
    server.answer("/jwks", Answer::ok(&padded));
    assert_eq!(fetched(&from(&server)).await, Err(FetchError::Keys(KeySetError::TooLarge)));
    // Without a length, so that only counting helps.
    server.answer("/jwks", Answer::Raw(format!("HTTP/1.1 200 OK\r\n\r\n{padded}").into_bytes()));
    assert_eq!(fetched(&from(&server)).await, Err(FetchError::Keys(KeySetError::TooLarge)));

    server.answer("/jwks", Answer::Flood);
    assert_eq!(fetched(&from(&server)).await, Err(FetchError::Keys(KeySetError::TooLarge)));

    for slow in [Answer::Drip, Answer::Held(good)] {
        server.answer("/jwks", slow);
        let fetcher = Fetcher::new(&from(&server), Duration::from_millis(300)).unwrap().unwrap();
        let outcome = tokio::time::timeout(Duration::from_secs(10), fetcher.fetch()).await.unwrap();
        assert_eq!(outcome.map(|keys| keys.len()), Err(FetchError::Timeout));
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    // K04.
    let good = jwks(&[&TestKey::es256("k1")]);
    let elsewhere = Server::start(Answer::ok(&good)).await;
    let server = Server::start(Answer::ok(&good)).await;
    assert_eq!(fetched(&from(&server)).await, Ok(1));
    for (status, location) in [
        (302, elsewhere.url("/jwks")),
        (307, elsewhere.url("/jwks")),
        (301, "http://169.254.169.254/latest/meta-data/".to_owned()),
        (308, "/jwks2".to_owned()),
    ] {
        server.answer("/jwks", Answer::with(&format!("{status} Moved"), &format!("location: {location}\r\n"), b""));
        assert_eq!(fetched(&from(&server)).await, Err(FetchError::Status(status)));
    }
    assert_eq!((elsewhere.requests(), server.requests()), (0, 5));
}

#[tokio::test]
async fn nobody_at_the_address_is_a_failure() {
    let server = Server::start(Answer::ok(&jwks(&[&TestKey::es256("k1")]))).await;
    let config = from(&server);
    assert_eq!(fetched(&config).await, Ok(1));
    drop(server);
    let Err(FetchError::Transport(problem)) = fetched(&config).await else { panic!("it was fetched") };
    assert!(!problem.is_empty() && problem.chars().count() <= 300, "{problem}");
    assert!(!problem.contains("jwks"), "an address may hold a secret: {problem}");
}

#[tokio::test]
async fn discovery_leads_to_the_keys() {
    let server = Server::start(Answer::ok(&jwks(&[&TestKey::es256("k1")]))).await;
    let mut config = from(&server);
    config.issuer = server.url("/realms/corp");
    config.keys = KeySource::Discovery;
    let document = "/realms/corp/.well-known/openid-configuration";
    let after = async |issuer: &str, jwks_uri: serde_json::Value| {
        server.answer(document, Answer::ok(&json!({"issuer": issuer, "jwks_uri": jwks_uri, "x": [1]}).to_string()));
        fetched(&config).await
    };
    assert_eq!(after(&config.issuer, json!(server.url("/jwks"))).await, Ok(1));
    assert_eq!(server.requests(), 2);

    // K10.
    for other in [format!("{}/", config.issuer), config.issuer.to_uppercase(), String::new()] {
        let outcome = after(&other, json!(server.url("/jwks"))).await;
        assert_eq!(outcome, Err(FetchError::Discovery("speaks of another issuer")));
    }
    // K11, K05.
    let refused = Err(FetchError::Discovery("has a `jwks_uri` that is not allowed"));
    for bad in [
        "http://id.test/jwks",
        "https://169.254.169.254/latest/meta-data/",
        "https://[fe80::1]/",
        "https://[::ffff:169.254.169.254]/",
        "https://2852039166/",
        "https://0/",
        "https://u:p@id.test/jwks",
        "file:///etc/passwd",
        "/jwks",
        "",
    ] {
        assert_eq!(after(&config.issuer, json!(bad)).await, refused, "{bad}");
    }
    for bad in [json!(7), json!(null), json!([server.url("/jwks")])] {
        let outcome = after(&config.issuer, bad).await;
        assert_eq!(outcome, Err(FetchError::Discovery("lacks its `jwks_uri`")));
    }
    let before = server.requests();
    for bad in ["<html>", "[]", "{\"issuer\":1,\"issuer\":2}"] {
        server.answer(document, Answer::ok(bad));
        assert_eq!(fetched(&config).await, Err(FetchError::Discovery("is not a plain JSON object")));
    }
    server.answer(document, Answer::with("404 Not Found", "", b""));
    assert_eq!(fetched(&config).await, Err(FetchError::Status(404)));
    assert_eq!(server.requests(), before + 4, "the keys were not asked for");
}

#[tokio::test]
async fn the_document_of_an_issuer_with_a_slash_stands_at_one_place() {
    let server = Server::start(Answer::ok(&jwks(&[&TestKey::es256("k1")]))).await;
    let mut config = from(&server);
    config.issuer = server.url("/");
    config.keys = KeySource::Discovery;
    let document = json!({"issuer": config.issuer, "jwks_uri": server.url("/jwks")}).to_string();
    server.answer("/.well-known/openid-configuration", Answer::ok(&document));
    assert_eq!(fetched(&config).await, Ok(1));
}

#[tokio::test]
async fn a_server_is_believed_by_its_certificate() {
    let good = jwks(&[&TestKey::es256("k1")]);
    let (ca, other) = (Authority::new(), Authority::new());
    let (in_2020, in_time) = ([2020, 2021], [2020, 2060]);

    let server = Server::start_tls(Answer::ok(&good), ca.server("localhost", in_time)).await;
    let config = |server: &Server, trust: &Authority| {
        let url = format!("https://localhost:{}/jwks", server.port());
        let mut config = issuer(KeySource::Url(url));
        config.trust = Trust::Only(trust.pem.clone());
        config
    };
    assert_eq!(fetched(&config(&server, &ca)).await, Ok(1));
    // K14: a CA that is not believed, somebody else's name, a certificate that has expired, no certificate at all.
    let refused = async |config: IssuerConfig| matches!(fetched(&config).await, Err(FetchError::Transport(_)));
    assert!(refused(config(&server, &other)).await);
    assert_eq!(server.requests(), 1, "nothing was asked for");
    let misnamed = Server::start_tls(Answer::ok(&good), ca.server("elsewhere.test", in_time)).await;
    assert!(refused(config(&misnamed, &ca)).await);
    let expired = Server::start_tls(Answer::ok(&good), ca.server("localhost", in_2020)).await;
    assert!(refused(config(&expired, &ca)).await);
    let plain = Server::start(Answer::ok(&good)).await;
    let fetcher = Fetcher::new(&config(&plain, &ca), Duration::from_millis(300)).unwrap().unwrap();
    assert_eq!(fetcher.fetch().await.map(|keys| keys.len()), Err(FetchError::Timeout));
    // The danger of plain HTTP is no danger to TLS.
    let mut careless = config(&server, &other);
    careless.http = Http::DangerLoopback;
    assert!(refused(careless).await);
}

#[test]
fn no_issuer_lives_where_clouds_keep_credentials() {
    let never = |address: &str| is_never_an_issuer(address.parse::<IpAddr>().unwrap());
    for address in ["10.0.0.1", "127.0.0.1", "::1", "192.0.2.1", "2001:db8::1", "fd00::1", "::ffff:10.0.0.1"] {
        assert!(!never(address), "{address}");
    }
    // K05.
    for address in [
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "fd00:ec2::254",
        "fe80::1",
        "0.0.0.0",
        "::",
        "255.255.255.255",
        "224.0.0.1",
        "ff02::1",
    ] {
        assert!(never(address), "{address}");
    }
}

async fn fetched(config: &IssuerConfig) -> Result<usize, FetchError> {
    let fetcher = Fetcher::new(config, Duration::from_secs(5)).unwrap().unwrap();
    fetcher.fetch().await.map(|keys| keys.len())
}

fn from(server: &Server) -> IssuerConfig {
    let mut config = issuer(KeySource::Url(server.url("/jwks")));
    config.http = Http::DangerLoopback;
    config
}

fn issuer(keys: KeySource) -> IssuerConfig {
    IssuerConfig::new(ISSUER, vec!["gate".to_owned()], vec![Algorithm::Es256, Algorithm::Rs256], keys)
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn server(&self, name: &str, [from, until]: [i32; 2]) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(until, 1, 1));
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap());
        TlsAcceptor::from(Arc::new(config.unwrap()))
    }
}
