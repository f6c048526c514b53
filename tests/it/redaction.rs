//! The log at its most talkative holds no secret: no key, no token, no ticket, no password.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;

use crate::gate::{Material, RPCS};
use crate::support::client::Client;
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
            assert!(!err.contains(&secret), "`{secret}` is in the log as {format}");
        }
    }
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
