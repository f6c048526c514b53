//! TLS and client certificates against a gate over TCP: the catalogue's C.5.
//!
//! Who TLS refuses has no connection, who the scheme refuses reads the one refusal; each test says which. Must not
//! repeat what unit tests of the listener and of the certificates show on a socket as well: `docs/bad-inputs.md` names
//! them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use portcullis::config::CertificateRole;
use portcullis::gate::chain::Chain;
use portcullis::tls::{ClientAuth, ClientTrust, MinVersion, TlsIdentity};
use portcullis_auth::{Clock, SystemClock};
use portcullis_auth_mtls::{ClientCertificates, Field, Rules};
use rcgen::{CertificateParams, DnType, DnValue, ExtendedKeyUsagePurpose, KeyUsagePurpose, SanType, date_time_ymd};
use rustls::version::{TLS12, TLS13};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::Code;

use crate::support::client::{Client, code};
use crate::support::login::Login;
use crate::support::schemes::{
    Ca, Certified, Checked, Shipped, Watched, list_actions, optional, rules, service_rules, trust, trust_at, uri,
};
use crate::support::wire::{self, DEADLINE, PREFACE, Shown};
use crate::support::{Gate, PKI, Settings, on_runtime};

/// A gate for certificates alone.
async fn certificates(identity: TlsIdentity, rules: Rules) -> Watched {
    let mut settings = Settings::shared().await;
    settings.identity = identity;
    settings.chain = Some(Chain::new(Arc::new(ClientCertificates::new("certificates", rules))));
    Watched::start(settings).await
}

fn shown(gate: &Gate, certificate: &Certified) -> Client {
    certificate.client(gate, &Login::Nothing)
}

/// Whether TLS refuses: the call fails, and nothing of the server's HTTP was seen.
async fn has_no_connection(client: &Client) -> bool {
    list_actions(client).await.is_err() && client.tape().headers.is_empty()
}

/// Sends bytes, and reads what comes until the server hangs up.
async fn until_closed(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // Fails when the server hangs up early.
    drop(stream.write_all(bytes).await);
    let mut answer = Vec::new();
    let read = timeout(DEADLINE, stream.read_to_end(&mut answer)).await;
    drop(read.unwrap_or_else(|_| panic!("the connection stays open")));
    answer
}

/// M01 and M03.
#[test]
fn what_is_not_http2_over_tls_is_closed() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let address = gate.running.address();
        let both = |alpn: &[&[u8]]| Arc::new(wire::client(rustls::ALL_VERSIONS, alpn, Shown::Nothing));
        assert!(wire::connect(address, &both(&[b"h2"])).await.is_ok());
        for plain in [PREFACE, b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n", b"SSH-2.0-x\r\n", &[0x80, 0x2e, 1, 0, 2]] {
            assert_eq!(until_closed(address, plain).await, b"", "{plain:?}");
        }
        for alpn in [&[][..], &[b"http/1.1".as_slice()], &[b"h3"], &[b"h2c"]] {
            assert!(wire::connect(address, &both(alpn)).await.is_err(), "{alpn:?}");
        }
        assert!(wire::connect(address, &both(&[b"http/1.1", b"h2"])).await.is_ok(), "one of two");
    });
}

/// M02, and M05: an old hello, whole and in crumbs.
#[test]
fn old_versions_of_tls_are_refused_with_an_alert() {
    on_runtime(async {
        let only = |version| Arc::new(wire::client(&[version], &[b"h2"], Shown::Nothing));
        for (min, old) in [(MinVersion::Tls12, true), (MinVersion::Tls13, false)] {
            let mut settings = Settings::shared().await;
            settings.identity = PKI.asking(min, ClientAuth::None);
            let gate = Gate::start(settings).await;
            let address = gate.running.address();
            assert!(wire::connect(address, &only(&TLS13)).await.is_ok());
            assert_eq!(wire::connect(address, &only(&TLS12)).await.is_ok(), old, "TLS 1.2 with {min:?}");
            for minor in [0, 1, 2] {
                let hello = hello(minor);
                let crumbs: Vec<u8> = hello.iter().flat_map(|byte| record(minor, &[*byte])).collect();
                for bytes in [record(minor, &hello), crumbs] {
                    let answer = until_closed(address, &bytes).await;
                    assert_eq!(answer.first(), Some(&ALERT), "1.{minor}: {answer:?}");
                }
            }
            assert!(wire::connect(address, &only(&TLS13)).await.is_ok(), "alive");
        }
    });
}

/// The hello of a client of SSL 3.0, TLS 1.0 or 1.1 that knows RSA key exchange with CBC only.
fn hello(minor: u8) -> Vec<u8> {
    let body = [&[3, minor][..], &[7; 32], &[0], &[0, 4, 0, 0x2f, 0, 0x35], &[1, 0]].concat();
    let length = u8::try_from(body.len()).unwrap();
    [&[1, 0, 0, length][..], &body].concat()
}

fn record(minor: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[0x16, 3, minor][..], &length, content].concat()
}

const ALERT: u8 = 0x15;

/// M06 to M12, as far as TLS itself refuses.
#[test]
fn a_certificate_that_tls_does_not_trust_makes_no_connection() {
    on_runtime(async {
        let (ca, other, stranger) = (Ca::new("clients"), Ca::new("others"), Ca::new("clients"));
        let cas = [&ca, &other];
        let name = |params: &mut CertificateParams| params.subject_alt_names = vec![uri("spiffe://corp/svc/alice")];
        let of = |first: i32, last: i32| {
            ca.client(3, |params| {
                name(params);
                (params.not_before, params.not_after) = (date_time_ymd(first, 1, 1), date_time_ymd(last, 1, 1));
            })
        };
        let for_servers = ca.client(4, |params| {
            name(params);
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        });
        let good = ca.service(1, "alice");

        let required = PKI.asking(MinVersion::Tls12, ClientAuth::Required(trust(&cas, &[])));
        let watched = certificates(required, service_rules(&cas)).await;
        let gate = &watched.gate;
        assert_eq!(watched.verdict(&shown(gate, &good)).await, "admitted: alice");
        assert!(has_no_connection(&gate.client(&Login::Nothing)).await, "M06: none, where one is required");
        for (what, certificate) in [
            ("M07: another CA of the same name", stranger.service(1, "alice")),
            ("M07: signed by itself", stranger.itself()),
            ("M07: expired", of(2020, 2021)),
            ("M07: not yet valid", of(2080, 2081)),
            ("M08: for servers", for_servers),
            ("M09: a CA", ca.itself()),
        ] {
            assert!(has_no_connection(&shown(gate, &certificate)).await, "{what}");
        }
        assert!(watched.decisions().await.iter().all(|line| line["event"] != "authn.failure"), "no scheme was asked");

        // A certificate that is bad is no certificate that is missing.
        let watched = certificates(optional(&cas, &[]), service_rules(&cas)).await;
        assert!(has_no_connection(&shown(&watched.gate, &stranger.service(1, "alice"))).await);
        assert!(watched.verdict(&watched.gate.client(&Login::Nothing)).await.starts_with("refused: no scheme"));

        let crls = [ca.crl(2090, &[66]), other.crl(2090, &[])];
        let watched = certificates(optional(&cas, &crls), service_rules(&cas)).await;
        let gate = &watched.gate;
        assert_eq!(watched.verdict(&shown(gate, &good)).await, "admitted: alice");
        assert!(has_no_connection(&shown(gate, &ca.service(66, "alice"))).await, "M10: revoked");

        let watched = certificates(optional(&cas, &crls[..1]), service_rules(&cas)).await;
        let gate = &watched.gate;
        assert_eq!(watched.verdict(&shown(gate, &good)).await, "admitted: alice");
        assert!(has_no_connection(&shown(gate, &other.service(1, "alice"))).await, "M11: no CRL of its CA");

        // It was fresh when it was read.
        let old = date_time_ymd(2023, 1, 1).into();
        let stale = ClientAuth::Optional(trust_at(&[&ca], &[ca.crl(2024, &[])], old));
        let watched = certificates(PKI.asking(MinVersion::Tls12, stale), service_rules(&cas)).await;
        assert!(has_no_connection(&shown(&watched.gate, &good)).await, "M12: a CRL that is too old");
        assert_eq!(
            code(&list_actions(&watched.gate.client(&Login::Nothing)).await),
            Code::Unauthenticated,
            "it serves"
        );
    });
}

/// O01: who has no connection has no call, and one line all the same.
#[test]
fn a_handshake_that_fails_is_on_record() {
    on_runtime(async {
        let (ca, stranger) = (Ca::new("clients"), Ca::new("clients"));
        let watched = certificates(optional(&[&ca], &[]), service_rules(&[&ca])).await;
        assert_eq!(watched.verdict(&shown(&watched.gate, &ca.service(1, "alice"))).await, "admitted: alice");
        let config = wire::client(rustls::ALL_VERSIONS, &[b"h2"], Shown::Certificate(&stranger.service(1, "alice")));
        assert!(wire::connect(watched.gate.running.address(), &Arc::new(config)).await.is_err());
        let lines = watched.decisions().await;
        assert_eq!(lines.len(), 1, "{lines:#?}");
        assert_eq!(lines[0]["event"], "tls.failed");
        assert!(lines[0]["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{}", lines[0]);
    });
}

/// M08, M09 and M17 to M20: what TLS lets pass and the rules do not.
#[test]
fn a_certificate_is_somebody_by_one_plain_name_only() {
    on_runtime(async {
        let ca = Ca::new("clients");
        let by = &[
            (Field::Uri, "spiffe://corp/svc/*", "$1"),
            (Field::Dns, "*.svc.corp", "dns-$1"),
            (Field::Cn, "svc", "by-name"),
        ];
        let watched = certificates(optional(&[&ca], &[]), rules(&[&ca], by)).await;
        let named = |names: Vec<SanType>| ca.client(7, |params| params.subject_alt_names = names);
        let spiffe = |name: &str| named(vec![uri(name)]);
        let cn = |name: DnValue, names: Vec<SanType>| {
            ca.client(8, |params| {
                params.distinguished_name.push(DnType::CommonName, name);
                params.subject_alt_names = names;
            })
        };
        let text = |name: &str| DnValue::Utf8String(name.to_owned());
        let dns = |name: &str| SanType::DnsName(name.try_into().unwrap());
        let edited = |edit: &dyn Fn(&mut CertificateParams)| {
            ca.client(9, |params| {
                params.subject_alt_names = vec![uri("spiffe://corp/svc/bob")];
                edit(params);
            })
        };
        const SPIFFE: &str = "refused: the";
        const NO_RULE: &str = "refused: no rule maps the certificate";
        const SIGNS: &str = "refused: the certificate is one that signs others";
        let bmp = DnValue::BmpString(rcgen::string::BmpString::try_from("svc").unwrap());
        let cases: Vec<(&str, Certified, &str)> = vec![
            ("a good one", spiffe("spiffe://corp/svc/bob"), "admitted: bob"),
            ("another kind of name", named(vec![dns("etl.svc.corp")]), "admitted: dns-etl"),
            ("a common name", cn(text("svc"), vec![]), "admitted: by-name"),
            (
                "M08 without a purpose",
                edited(&|params| params.extended_key_usages = vec![]),
                "refused: the certificate does not say that it is for clients",
            ),
            ("M09 signs others", edited(&|params| params.key_usages = vec![KeyUsagePurpose::KeyCertSign]), SIGNS),
            ("M09 signs lists", edited(&|params| params.key_usages = vec![KeyUsagePurpose::CrlSign]), SIGNS),
            (
                "M17 two of them",
                named(vec![uri("spiffe://corp/svc/bob"), uri("spiffe://corp/svc/root")]),
                "refused: there is more than one name of this kind",
            ),
            ("M17 the same twice", named(vec![uri("spiffe://corp/svc/bob"), uri("spiffe://corp/svc/bob")]), SPIFFE_TWO),
            ("M17 another scheme", spiffe("http://corp/svc/bob"), NO_RULE),
            ("M17 another domain", spiffe("spiffe://evil/svc/bob"), NO_RULE),
            ("M17 the root", spiffe("spiffe://corp/"), SPIFFE),
            ("M17 nothing behind", spiffe("spiffe://corp/svc/"), SPIFFE),
            ("M17 dots", spiffe("spiffe://corp/svc/../root"), SPIFFE),
            ("M17 an escape", spiffe("spiffe://corp/svc/%2e%2e"), SPIFFE),
            ("M17 a slash behind", spiffe("spiffe://corp/svc/bob/"), SPIFFE),
            ("M17 upper case", spiffe("spiffe://CORP/svc/bob"), SPIFFE),
            ("M17 upper case of the scheme", spiffe("SPIFFE://corp/svc/bob"), SPIFFE),
            ("M17 a port", spiffe("spiffe://corp:8080/svc/bob"), SPIFFE),
            ("M17 a user", spiffe("spiffe://me@corp/svc/bob"), SPIFFE),
            ("M17 a query", spiffe("spiffe://corp/svc/bob?x"), SPIFFE),
            ("M17 a fragment", spiffe("spiffe://corp/svc/bob#x"), SPIFFE),
            ("M17 one level more", spiffe("spiffe://corp/svc/a/bob"), NO_RULE),
            ("M18 the URI and not the CN", cn(text("svc"), vec![uri("spiffe://corp/svc/bob")]), "admitted: bob"),
            ("M18 no way round the URI", cn(text("svc"), vec![uri("spiffe://evil/svc/bob")]), NO_RULE),
            ("M18 an empty CN", cn(text(""), vec![]), "refused"),
            ("M18 no name at all", named(vec![]), NO_RULE),
            ("M19 NUL", cn(text("svc\0.evil"), vec![]), "refused: the common name holds a control"),
            ("M19 BMPString", cn(bmp, vec![]), "refused: the common name is of a string type that is not accepted"),
            ("M19 injection", cn(text("svc,OU=admin"), vec![]), NO_RULE),
            ("M19 a space behind", cn(text("svc "), vec![]), "refused: the common name begins or ends with white"),
            ("M19 hidden", cn(text("s\u{200b}vc"), vec![]), "refused: the common name holds a control, invisible"),
            ("M20 more behind", cn(text("svc-evil"), vec![]), NO_RULE),
            ("M20 more before", cn(text("evil-svc"), vec![]), NO_RULE),
            ("M20 another label", named(vec![dns("a.b.svc.corp")]), NO_RULE),
            ("M20 more behind the domain", named(vec![dns("etl.svc.corp.evil")]), NO_RULE),
        ];
        let mut checked = Checked::default();
        for (what, certificate, expected) in cases {
            checked.that(what, &watched.verdict(&shown(&watched.gate, &certificate)).await, expected);
        }
        checked.done();
    });
}

const SPIFFE_TWO: &str = "refused: there is more than one name of this kind";

/// M14, and the same for the CA.
#[test]
fn what_is_revoked_or_distrusted_is_out_while_its_connection_is_open() {
    on_runtime(async {
        let (ca, next) = (Ca::new("clients"), Ca::new("next"));
        let identity = optional(&[&ca], &[ca.crl(2090, &[])]);
        let watched = certificates(identity.clone(), service_rules(&[&ca, &next])).await;
        let (one, other) = (ca.service(1, "alice"), ca.service(2, "bob"));
        let (alice, bob) = (shown(&watched.gate, &one), shown(&watched.gate, &other));
        let token = bob.handshake().await.unwrap();
        let session = other.client(&watched.gate, &Login::Bearer(token));
        assert_eq!(watched.verdict(&alice).await, "admitted: alice");
        assert_eq!(watched.verdict(&session).await, "admitted: bob");

        identity.replace(&optional(&[&ca], &[ca.crl(2090, &[2])]));
        const REVOKED: &str =
            "refused: the client certificate is not trusted: the client certificate or its CA is revoked";
        for client in [&bob, &session] {
            assert_eq!(watched.verdict(client).await, REVOKED);
        }
        assert_eq!(watched.verdict(&alice).await, "admitted: alice", "her connection goes on");

        identity.replace(&optional(&[&next], &[next.crl(2090, &[])]));
        let distrusted = watched.verdict(&alice).await;
        assert!(distrusted.starts_with("refused: the client certificate is not trusted"), "{distrusted}");
        assert_eq!(watched.verdict(&shown(&watched.gate, &next.service(1, "carol"))).await, "admitted: carol");
    });
}

/// M15.
#[test]
fn a_certificate_that_expires_takes_its_connection_and_its_session_along() {
    on_runtime(async {
        let ca = Ca::new("clients");
        let watched = certificates(optional(&[&ca], &[]), service_rules(&[&ca])).await;
        let start = SystemClock.now();
        let short = ca.client(1, |params| {
            params.subject_alt_names = vec![uri("spiffe://corp/svc/alice")];
            params.not_after = (start + Duration::from_secs(1200)).into();
        });
        let client = shown(&watched.gate, &short);
        let session = short.client(&watched.gate, &Login::Bearer(client.handshake().await.unwrap()));
        watched.gate.clock.set(start + Duration::from_secs(1190));
        for client in [&client, &session] {
            assert_eq!(watched.verdict(client).await, "admitted: alice");
        }
        watched.gate.clock.set(start + Duration::from_secs(1201));
        for client in [&client, &session] {
            let found = watched.verdict(client).await;
            assert!(found.starts_with("refused: the client certificate is not trusted"), "{found}");
        }
    });
}

/// M16.
#[test]
fn a_session_of_tls_is_not_resumed_past_a_revocation() {
    on_runtime(async {
        let ca = Ca::new("clients");
        let identity = optional(&[&ca], &[ca.crl(2090, &[])]);
        let watched = certificates(identity.clone(), service_rules(&[&ca])).await;
        let address = watched.gate.running.address();
        let own = ca.service(1, "alice");
        for version in [&TLS12, &TLS13] {
            // One configuration remembers sessions from one connection to the next.
            let config = Arc::new(wire::client(&[version], &[b"h2"], Shown::Certificate(&own)));
            for _ in 0..2 {
                let wire = wire::connect(address, &config).await.unwrap();
                let (_, tls) = wire.stream.get_ref();
                assert_eq!(tls.handshake_kind(), Some(rustls::HandshakeKind::Full), "{version:?}");
                assert_eq!(tls.tls13_tickets_received(), 0);
            }
            identity.replace(&optional(&[&ca], &[ca.crl(2090, &[1])]));
            assert!(wire::connect(address, &config).await.is_err(), "{version:?}");
            identity.replace(&optional(&[&ca], &[ca.crl(2090, &[])]));
            assert!(wire::connect(address, &config).await.is_ok(), "{version:?}");
        }
    });
}

/// M21: what a CA is after its key was renewed.
#[test]
fn two_cas_of_one_name_are_two_authorities() {
    on_runtime(async {
        let (old, new) = (Ca::new("clients"), Ca::new("clients"));
        let cas = [&old, &new];
        let watched = certificates(optional(&cas, &[]), service_rules(&cas)).await;
        let (one, other) =
            (shown(&watched.gate, &old.service(1, "alice")), shown(&watched.gate, &new.service(1, "alice")));
        for client in [&one, &other] {
            assert_eq!(watched.verdict(client).await, "admitted: alice");
        }
        let ticket = one.ticket("SELECT 1").await.unwrap();
        assert!(one.messages(ticket.clone()).await.is_ok());
        assert_eq!(code(&other.messages(ticket).await), Code::InvalidArgument, "the same name, and somebody else");

        // The verifier finds a list by the name of its CA alone, so with lists one of the two would be shut out.
        let pems = old.pem() + &new.pem();
        let cas = (Path::new("clients.pem"), pems.as_bytes());
        let list = old.crl(2090, &[]);
        let refused = ClientTrust::parse(cas, &[(Path::new("clients.crl"), list.as_bytes())], SystemClock.now());
        assert!(refused.unwrap_err().to_string().contains("clients.pem"));
        assert!(ClientTrust::parse(cas, &[], SystemClock.now()).is_ok());
    });
}

/// M23.
#[test]
fn a_certificate_and_another_credential_are_one_too_many() {
    on_runtime(async {
        let schemes = Shipped::new();
        let watched = Watched::start(schemes.settings().await).await;
        let own = schemes.cas[0].service(1, "alice");
        let (key, token) = (Login::Bearer(schemes.key("alice")), schemes.token("alice", watched.gate.clock.now()));
        let basic = crate::support::schemes::password("alice");
        for login in [&key, &token, &basic] {
            assert_eq!(watched.verdict(&watched.gate.client(login)).await, "admitted: alice");
        }
        assert_eq!(watched.verdict(&shown(&watched.gate, &own)).await, "admitted: alice");
        for text in ["", "Bearer", "Basic !"] {
            let found = watched.verdict(&own.client(&watched.gate, &Login::Headers(vec![text.into()]))).await;
            assert!(found.starts_with("refused: the "), "a header that cannot be read hides no certificate: {found}");
        }
        for login in [key, token, basic, Login::Headers(vec![b"Other x".to_vec()])] {
            let found = watched.verdict(&own.client(&watched.gate, &login)).await;
            assert_eq!(found, "refused: a client certificate and an authorization header in one request", "{login:?}");
        }
        // A session that began without a certificate does not take somebody's along.
        let session = watched.gate.client(&crate::support::schemes::password("bob")).handshake().await.unwrap();
        let found = watched.verdict(&own.client(&watched.gate, &Login::Bearer(session))).await;
        assert_eq!(found, "refused: the session belongs to another client certificate");

        // Where it only secures the channel it is none.
        let mut settings = schemes.settings().await;
        let keys = Chain::new(Arc::clone(&schemes.keys) as _).with_certificates(CertificateRole::Channel);
        settings.chain = Some(keys);
        let watched = Watched::start(settings).await;
        let key = Login::Bearer(schemes.key("alice"));
        assert_eq!(watched.verdict(&own.client(&watched.gate, &key)).await, "admitted: alice");
        assert!(watched.verdict(&shown(&watched.gate, &own)).await.starts_with("refused: no scheme claimed"));
    });
}
