//! Signing in as each driver does it, and where the token is told.

use arrow_flight::HandshakeRequest;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use futures::TryStreamExt;
use tonic::Code;

use crate::gate::{Material, RPCS};
use crate::support::login::{KEYS, Login, PAIRS};
use crate::support::{Gate, on_runtime};

#[test]
fn basic_signs_in_padded_and_unpadded_with_any_password() {
    on_runtime(async {
        let gate = Gate::shared().await;
        for (user, password) in PAIRS {
            let pair = format!("{user}:{password}");
            for encoded in [STANDARD.encode(&pair), STANDARD_NO_PAD.encode(&pair)] {
                let login = Login::Headers(vec![format!("Basic {encoded}").into_bytes()]);
                let token = gate.client(&login).handshake().await.unwrap();
                assert!(token.starts_with("ps1."), "{user}: {token}");
                let rows = gate.client(&Login::Bearer(token)).text("SELECT 1").await.unwrap();
                assert_eq!(rows, ["1"], "{user}");
            }
        }
        for (user, password) in
            [("alice", "open"), ("alice", "open:sesame:1 "), ("Alice", "open:sesame:1"), ("nobody", "x")]
        {
            let refused = gate.client(&Login::Basic(user.to_owned(), password.to_owned())).handshake().await;
            assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated, "{user}:{password}");
        }
    });
}

#[test]
fn a_handshake_takes_no_message_one_or_several() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::pair("alice"));
        for count in [0, 1, 3] {
            let messages = futures::stream::iter(vec![HandshakeRequest::default(); count]);
            let response = client.flight().handshake(messages).await.unwrap();
            assert!(response.metadata().contains_key("authorization"), "{count} messages");
            let answers: Vec<_> = response.into_inner().try_collect().await.unwrap();
            assert!(answers.len() <= 1, "{count} messages: arrow-rs takes one answer at most");
        }
        let token = client.handshake().await.unwrap();
        assert_ne!(token, client.handshake().await.unwrap(), "every handshake makes a session of its own");
    });
}

#[test]
fn the_token_is_told_in_initial_headers_of_a_basic_handshake_only() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let basic = gate.client(&Login::pair("alice"));
        let token = basic.handshake().await.unwrap();
        assert_eq!(basic.tape().headers.iter().filter(|headers| headers.contains_key("authorization")).count(), 1);
        assert!(basic.tape().trailers.iter().all(|trailers| !trailers.contains_key("authorization")));

        // A client that has a token keeps it: another in the answer would replace it.
        for login in [Login::Bearer(token), Login::key("alice")] {
            let client = gate.client(&login);
            assert_eq!(client.handshake().await.unwrap(), "", "no new token");
            assert!(!client.tape().text().contains("authorization"));
            assert_eq!(client.text("SELECT 1").await.unwrap(), ["1"]);
        }
        let wrong = gate.client(&Login::Bearer("ps1.AAAA".to_owned())).handshake().await;
        assert_eq!(wrong.unwrap_err().code(), Code::Unauthenticated);
    });
}

#[test]
fn no_other_rpc_answers_with_an_authorization_header() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let session = gate.client(&Login::pair("alice")).handshake().await.unwrap();
        for login in [Login::pair("alice"), Login::key("alice"), Login::Bearer(session), Login::Nothing] {
            let client = gate.client(&login);
            let material = Material::of(&gate.client(&Login::pair("alice"))).await;
            for rpc in RPCS.iter().filter(|rpc| rpc.name() != "Handshake") {
                drop(rpc.call(&client, &material).await);
            }
            let tape = client.tape();
            assert!(tape.headers.len() >= RPCS.len() - 1);
            for map in tape.headers.iter().chain(&tape.trailers) {
                assert!(!map.contains_key("authorization"), "{login:?}");
            }
        }
    });
}

#[test]
fn what_a_client_shows_never_comes_back() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let (user, password) = PAIRS[0];
        let key = KEYS.of("alice");
        let (_, secret) = key.rsplit_once('.').unwrap();
        let encoded = STANDARD.encode(format!("{user}:{password}"));
        let session = gate.client(&Login::pair("alice")).handshake().await.unwrap();
        let wrong = "pk1.AAAAAAAAAAAA.wrong-wrong-wrong-wrong-wrong-wrong-wrong-w";
        let logins = [
            (Login::pair("alice"), vec![password, encoded.as_str()]),
            (Login::key("alice"), vec![key, secret]),
            (Login::Bearer(session.clone()), vec![session.as_str()]),
            (Login::Bearer(wrong.to_owned()), vec![wrong]),
        ];
        let material = Material::of(&gate.client(&Login::pair("alice"))).await;
        for (login, secrets) in logins {
            let client = gate.client(&login);
            for rpc in RPCS {
                drop(rpc.call(&client, &material).await);
            }
            for sql in ["SELECT * FROM nowhere", "SET nothing = 1", "SELECT 1 +"] {
                assert!(client.rows(sql).await.is_err());
            }
            let text = client.tape().text();
            assert!(text.contains("grpc-status"), "there is something to search");
            for secret in secrets {
                assert!(!text.contains(secret), "{secret} came back");
            }
        }
    });
}
