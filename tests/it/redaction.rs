//! The log at its most talkative holds no secret: no key, no token, no ticket, no password.
//!
//! What is looked for, and in which forms, is in [`found`]. Each run also puts every secret into a line of its own log
//! and looks again: a search that finds nothing there has shown nothing.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;

use portcullis_auth::{Clock, SystemClock};
use serde_json::json;
use tonic::transport::Identity;

use crate::cli::{PASSWORD, Place};
use crate::gate::{Material, RPCS};
use crate::support::client::{Client, tls};
use crate::support::directory;
use crate::support::login::Login;
use crate::support::on_runtime;
use crate::support::process::{Channel, Process};

#[test]
fn the_log_at_level_trace_holds_no_secret() {
    for (format, mark) in [("text", "listening address="), ("json", "\"message\":\"listening\"")] {
        let dir = directory().join(format!("redaction-{format}"));
        let arguments = ["demo", "--listen", "127.0.0.1:0", "--scale", "0.001", "--dir"];
        let mut demo = Process::start(directory(), &[&arguments[..], &[&dir.display().to_string()]].concat());
        demo.line_with(Channel::Out, "Stop with Ctrl-C");
        demo.signal("TERM");
        assert_eq!(demo.exit_code(), 0);

        let config = dir.join("portcullis.toml");
        let log = format!("level = \"trace\"\nformat = \"{format}\"");
        fs::write(&config, fs::read_to_string(&config).unwrap().replace("level = \"warn\"", &log)).unwrap();
        let mut served = Process::start(&dir, &["serve", "--config", "portcullis.toml"]);
        let line = served.line_with(Channel::Err, mark);
        let (_, port) = line.split_once(mark).unwrap().1.split_once("127.0.0.1:").unwrap();
        let port: u16 = port.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap();

        let token = fs::read_to_string(dir.join("token")).unwrap().trim().to_owned();
        let ca = fs::read_to_string(dir.join("ca.pem")).unwrap();
        let secrets = on_runtime(talk(port, token, ca));
        served.signal("TERM");
        assert_eq!(served.exit_code(), 0);

        let (out, err) = (served.text(Channel::Out), served.text(Channel::Err));
        assert_eq!(out, "\u{4}");
        assert!(
            err.contains("not admitted") && err.contains("admitted") && err.len() > 10_000,
            "it was talkative: {}",
            err.len()
        );
        for secret in secrets {
            assert_eq!(found(&secret, &err), None, "`{secret}` is in the log as {format}");
            would_be_found(&secret, &err);
        }
    }
}

#[test]
fn a_long_run_with_every_scheme_tells_no_secret_anywhere() {
    let place = Place::make("redaction-schemes");
    let (authority, signer) = place.write_five_schemes();
    let read = |file: &str| fs::read_to_string(place.0.join(file)).unwrap();
    let text = place.five_schemes(0).replace("level = \"warn\"", "level = \"trace\"");
    fs::write(place.0.join("all.toml"), format!("{text}\n[audit]\nfile = \"audit.jsonl\"\n")).unwrap();
    let mut served = Process::start(&place.0, &["serve", "--config", "all.toml"]);
    let line = served.line_with(Channel::Err, "listening address=");
    let address = line.split_once("address=").unwrap().1.split_whitespace().next().unwrap().parse().unwrap();

    let mut secrets = vec![read("key"), read("seal.key").trim().to_owned()];
    // Of a key in PEM and of a hash, the parts without which they are nothing.
    secrets.extend(read("server.key").lines().filter(|line| !line.starts_with('-')).map(str::to_owned));
    secrets.extend(read("users.toml").rsplit('$').take(2).map(|part| part.trim_end_matches(['"', '\n']).to_owned()));
    let now = SystemClock.now();
    let good = signer.claims("carol", now);
    let mut late = good.clone();
    late["exp"] = json!(1);
    let forged = crate::support::schemes::Signer::new("https://id.test", "k1").token(&good);
    let tokens = [signer.token(&good), signer.token(&late), forged];
    let etl = authority.service(7, "etl");
    let pem = |label: &str, body: &[u8]| {
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(body))
    };
    let identity = Identity::from_pem(&etl.chain, pem("PRIVATE KEY", etl.key().secret_der()));
    let (key, ca) = (read("key"), read("server.pem"));
    secrets.extend(on_runtime(async move {
        let by = |login: &Login| Client::connect_to(address, login, &ca);
        let basic = |password: &str| Login::Basic("alice".to_owned(), password.to_owned());
        let mut secrets = Vec::new();
        let [token, late, forged] = tokens;
        let by_password = by(&basic(PASSWORD));
        let session = by_password.handshake().await.unwrap();
        secrets.push(session.clone());
        let good = [
            by(&Login::Bearer(token.clone())),
            Client::connect_by(address, &Login::Nothing, tls(&ca).identity(identity)),
            by_password,
            by(&Login::Bearer(session)),
            by(&Login::Bearer(key.clone())),
            by(&Login::Nothing),
        ];
        let mut materials = Vec::new();
        for client in &good {
            assert_eq!(client.text("SELECT n FROM nation").await.unwrap(), ["1"]);
            client.update("SET datafusion.execution.batch_size = 1000").await.unwrap();
            let material = Material::of(client).await;
            let offered: Vec<_> =
                client.tape().headers.iter().filter_map(|map| map.get("set-cookie").cloned()).collect();
            let cookies = offered.iter().map(|cookie| cookie.to_str().unwrap().split(';').next().unwrap());
            for cookie in cookies.take(3) {
                let kept = client.with_cookies(&[cookie]);
                kept.text("SHOW datafusion.execution.batch_size").await.unwrap();
                // A forged one as well.
                drop(client.with_cookies(&[&format!("{cookie}x")]).text("SELECT 1").await);
                secrets.push(cookie.split_once('=').unwrap().1.to_owned());
            }
            materials.push(material);
        }
        let bad = [
            Login::Bearer(late.clone()),
            Login::Bearer(forged.clone()),
            basic("wrong-word-of-alice"),
            Login::Basic("wrong-name-typed-by-mistake".to_owned(), "wrong-word-of-alice".to_owned()),
            Login::Bearer(format!("{key}x")),
            Login::Bearer("ps1.wrongwrongwrongwrongwrongwrong".to_owned()),
            Login::Headers(vec![format!("Bearer {token}").into_bytes(), format!("Bearer {key}").into_bytes()]),
            Login::Headers(vec![b"Strange wrong-kind-of-word".to_vec()]),
        ];
        for rpc in RPCS {
            for (client, material) in good.iter().zip(&materials) {
                drop(rpc.call(client, material).await);
            }
            for login in &bad {
                assert!(rpc.call(&by(login), &materials[0]).await.is_err(), "{rpc:?}");
            }
        }
        drop(good[3].action("CloseSession", Bytes::new()).await);
        assert!(good[3].text("SELECT 1").await.is_err(), "the session is closed");
        secrets.extend(
            materials.iter().flat_map(|made| [&made.ticket.ticket, &made.handle]).map(|object| STANDARD.encode(object)),
        );
        secrets.extend([&token, &late, &forged].map(|token| token.rsplit_once('.').unwrap().1.to_owned()));
        secrets.extend([token, late, forged, key.rsplit_once('.').unwrap().1.to_owned()]);
        let typed =
            ["wrong-word-of-alice", "wrong-name-typed-by-mistake", "wrongwrong", "wrong-kind-of-word", PASSWORD];
        secrets.extend(typed.map(str::to_owned));
        secrets.push(format!("alice:{PASSWORD}"));
        secrets
    }));
    served.signal("HUP");
    served.line_with(Channel::Err, "were read again");
    served.signal("TERM");
    assert_eq!(served.exit_code(), 0);

    let (out, err, audit) = (served.text(Channel::Out), served.text(Channel::Err), read("audit.jsonl"));
    for scheme in ["jwt", "mtls", "password", "api-key", "danger-anonymous"] {
        assert!(audit.contains(&format!("\"{scheme}\"")), "{scheme} is on record");
    }
    assert!(err.len() > 100_000 && audit.contains("authn.failure"), "it was a long run: {}", err.len());
    for secret in &secrets {
        for (place, text) in [("output", &out), ("log", &err), ("audit log", &audit)] {
            assert_eq!(found(secret, text), None, "`{secret}` is in the {place}");
        }
        for text in [&err, &audit] {
            would_be_found(secret, text);
        }
    }
}

/// The form in which a secret is in a text.
fn found(secret: &str, text: &str) -> Option<String> {
    assert!(secret.len() >= 10, "too short to be looked for: `{secret}`");
    forms(secret).into_iter().find(|form| text.contains(form))
}

/// Plants a secret in a line that was written, in every form that a mistake could give it, and looks for it.
fn would_be_found(secret: &str, log: &str) {
    let (before, after) = log.split_at(log.floor_char_boundary(log.len() / 2));
    let (before, after) = (before.rsplit_once('\n').unwrap(), after.split_once('\n').unwrap());
    let line = format!("{}{}", before.1, after.0);
    assert_eq!(found(secret, &line), None);
    let whole = |text: &str| [STANDARD.encode(text), URL_SAFE_NO_PAD.encode(text)];
    let mut planted = vec![secret.to_owned(), percent(secret, Escaped::Special), percent(secret, Escaped::All)];
    planted.extend([Escaped::All, Escaped::Special].map(|which| in_small_hex(&percent(secret, which))));
    // As the end of a pair, with anything before it and behind it.
    for before in ["", "a", "al", "alice:"] {
        planted.extend(whole(&format!("{before}{secret}")));
        planted.extend(whole(&format!("{before}{secret}, and more")));
    }
    for form in planted {
        let line = format!("{line} authorization={form} {}", after.0);
        assert!(found(secret, &line).is_some(), "`{form}` would not be found");
    }
}

/// Which bytes are escaped.
#[derive(Clone, Copy)]
enum Escaped {
    All,
    Special,
}

/// As in a URL.
fn percent(text: &str, which: Escaped) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let one = |byte: u8| match which {
        Escaped::Special if plain(byte) => char::from(byte).to_string(),
        Escaped::All | Escaped::Special => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

/// The same with the other letters that hex has.
fn in_small_hex(escaped: &str) -> String {
    let mut parts = escaped.split('%');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let (hex, rest) = part.split_at(2);
        text + "%" + &hex.to_lowercase() + rest
    })
}

/// How a secret could look where it has no business.
fn forms(secret: &str) -> Vec<String> {
    let bytes = secret.as_bytes();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let list: Vec<_> = bytes.iter().map(u8::to_string).collect();
    let mut forms = vec![secret.to_owned(), hex.to_uppercase(), hex, list.join(", "), format!("{secret:?}")];
    for which in [Escaped::All, Escaped::Special] {
        let escaped = percent(secret, which);
        forms.extend([in_small_hex(&escaped), escaped]);
    }
    // At any place of a longer text, base64 has one of three shapes; the ends depend on the neighbours.
    for skipped in 0..3 {
        let encoded = [STANDARD.encode(&bytes[skipped..]), URL_SAFE_NO_PAD.encode(&bytes[skipped..])];
        forms.extend(encoded.map(|text| text.get(..text.trim_end_matches('=').len() - 2).unwrap().to_owned()));
    }
    // What was base64 already, as bytes.
    for decoded in [STANDARD.decode(secret), URL_SAFE_NO_PAD.decode(secret)].into_iter().flatten() {
        forms.push(decoded.iter().map(|byte| format!("{byte:02x}")).collect());
        forms.push(decoded.iter().map(u8::to_string).collect::<Vec<_>>().join(", "));
    }
    forms
}

/// A run with good and bad credentials; gives back what must not be in a log.
async fn talk(port: u16, token: String, ca: String) -> Vec<String> {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let password = "open-sesame-1234567890";
    let wrong_key = "pk1.AAAAAAAAAAAA.wrongwrongwrongwrongwrongwrongwrongwrongwro";
    let wrong_session = "ps1.wrongwrongwrongwrongwrongwrongwrongwrong";
    let strange = "strange-word-with-a-secret";
    let (_, secret) = token.rsplit_once('.').unwrap();
    let mut secrets =
        vec![token.clone(), secret.to_owned(), password.to_owned(), STANDARD.encode(format!("alice:{password}"))];
    secrets.extend([wrong_key, wrong_session, strange].map(str::to_owned));
    secrets.push("wrongwrong".to_owned());

    let client = Client::connect_to(address, &Login::Bearer(token), &ca);
    assert_eq!(client.text("SELECT count(*) FROM nation").await.unwrap(), ["25"]);
    let material = Material::of(&client).await;
    for object in [&material.ticket.ticket, &material.handle] {
        secrets.extend([STANDARD.encode(object), URL_SAFE_NO_PAD.encode(object), format!("{object:?}")]);
    }
    for rpc in RPCS {
        drop(rpc.call(&client, &material).await);
    }
    drop(client.rows("SELECT CAST(n_name AS INT) FROM nation").await);
    drop(client.action("CloseSession", Bytes::new()).await);
    let header = |text: String| Login::Headers(vec![text.into_bytes()]);
    for login in [
        Login::Basic("alice".to_owned(), password.to_owned()),
        Login::Bearer(wrong_key.to_owned()),
        Login::Bearer(wrong_session.to_owned()),
        header(format!("Strange {strange}")),
        header(format!("Bearer {wrong_key}, Basic {strange}")),
        header(wrong_key.to_owned()),
        Login::Nothing,
    ] {
        let stranger = Client::connect_to(address, &login, &ca);
        for rpc in RPCS {
            assert!(rpc.call(&stranger, &material).await.is_err());
        }
    }
    secrets
}
