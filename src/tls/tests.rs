//! A pair that belongs together is served; anything else is refused by file and reason.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use super::*;

fn pair() -> (Secret, Secret) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    (Secret::new(made.cert.pem()), Secret::new(made.signing_key.serialize_pem()))
}

fn load(cert: &Secret, key: &Secret) -> Result<TlsIdentity, String> {
    let (cert, key) = ((Path::new("server.pem"), cert), (Path::new("server.key"), key));
    TlsIdentity::from_pem(cert, key, MinVersion::Tls12, ClientAuth::None).map_err(|problem| problem.to_string())
}

#[test]
fn a_chain_with_its_key_is_served_over_http2_only() {
    let (cert, key) = pair();
    assert_eq!(load(&cert, &key).unwrap().config().alpn_protocols, [H2]);
}

#[test]
fn what_cannot_be_served_is_named() {
    let (cert, key) = pair();
    let (_, other) = pair();
    let empty = Secret::new("");
    let encrypted = Secret::new("-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n");
    let broken = Secret::new("-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n");
    let half = Secret::new(cert.expose().split_at(100).0);
    let not_der = Secret::new("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    assert!(load(&cert, &key).is_ok());
    for (cert, key, expected) in [
        (&empty, &key, "`server.pem`: there is no certificate"),
        (&key, &key, "`server.pem`: there is no certificate"),
        (&broken, &key, "`server.pem`: not readable as PEM"),
        (&half, &key, "`server.pem`: "),
        (&not_der, &key, "`server.key`: certificate and key cannot be served"),
        (&cert, &empty, "`server.key`: there is no private key"),
        (&cert, &cert, "`server.key`: there is no private key"),
        (&cert, &encrypted, "`server.key`: there is no private key"),
        (&cert, &other, "`server.key`: certificate and key cannot be served"),
    ] {
        let problem = load(cert, key).unwrap_err();
        assert!(problem.starts_with(expected), "{problem}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let missing = Path::new("no-such-folder/server.pem");
    let problem = TlsIdentity::load(missing, missing, MinVersion::Tls13).unwrap_err();
    assert_eq!(problem.file(), missing);
    assert!(problem.to_string().starts_with("`no-such-folder/server.pem`: cannot be read"), "{problem}");
}

#[test]
fn debug_shows_no_key() {
    let (cert, key) = pair();
    assert_eq!(format!("{:?}", load(&cert, &key).unwrap()), "TlsIdentity { .. }");
}
