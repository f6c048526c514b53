//! The header that brings a credential: what is read, what is refused, and what the auditor reads about it.
//!
//! The catalogue's C.1 and the forms of C.2 against a gate over TCP. Each table begins with what is let in. Must not
//! know how a scheme judges: `passwords.rs` and `jwt.rs` do.

use std::sync::Arc;

use arrow_flight::Empty;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use tonic::Code;
use tonic::metadata::MetadataValue;
use tower::ServiceExt;

use crate::gate::{Material, RPCS};
use crate::support::login::{KEYS, Login};
use crate::support::schemes::{Checked, Watched, list_actions};
use crate::support::wire::{self, Fate, Shown};
use crate::support::{Settings, on_runtime};

/// C01 to C12 where a client library can send it; `gate.rs` has the places that do not count (C10, C11).
#[test]
fn a_bearer_credential_has_one_form() {
    on_runtime(async {
        let watched = Watched::start(Settings::shared().await).await;
        let (key, other) = (KEYS.of("alice"), KEYS.of("bob"));
        let one = |text: String| vec![text.into_bytes()];
        let two = |first: String, second: String| vec![first.into_bytes(), second.into_bytes()];
        let bearer = |key: &str| format!("Bearer {key}");
        let cases: Vec<(&str, Vec<Vec<u8>>, &str)> = vec![
            ("C04 as it should be", one(bearer(key)), "admitted: alice"),
            ("C04 lower case", one(format!("bearer {key}")), "admitted: alice"),
            ("C04 upper case", one(format!("BEARER {key}")), "admitted: alice"),
            ("C01 none", vec![], "refused: no scheme claimed the credential"),
            ("C02 good and garbage", two(bearer(key), bearer("x")), "refused: ambiguous"),
            ("C02 garbage and good", two(bearer("x"), bearer(key)), "refused: ambiguous"),
            ("C02 the same twice", two(bearer(key), bearer(key)), "refused: ambiguous"),
            ("C02 two good ones", two(bearer(key), bearer(other)), "refused: ambiguous"),
            ("C02 good and empty", two(bearer(key), String::new()), "refused: ambiguous"),
            ("C03 joined", one(format!("Bearer {key}, Basic YWxpY2U6eA==")), "refused: the credential holds"),
            (
                "C03 joined without a space",
                one(format!("Bearer {key},Bearer {other}")),
                "refused: the credential holds",
            ),
            ("C03 joined behind another word", one(format!("Digest a=b, Bearer {key}")), "refused: ambiguous"),
            ("C05 two spaces", one(format!("Bearer  {key}")), "refused: the credential holds"),
            ("C05 a tab", one(format!("Bearer\t{key}")), "refused: the header holds bytes"),
            ("C05 a tab behind", one(format!("Bearer {key}\t.")), "refused: the header holds bytes"),
            ("C06 empty", one("Bearer ".to_owned()), "refused: the credential is missing"),
            ("C06 the word alone", one("Bearer".to_owned()), "refused: the credential is missing"),
            ("C06 nothing at all", one(String::new()), "refused: the scheme word is missing"),
            ("C07 Token", one(format!("Token {key}")), "refused: no scheme claimed"),
            ("C07 Negotiate", one("Negotiate YIIB".to_owned()), "refused: no scheme claimed"),
            ("C07 Digest", one("Digest username=\"alice\"".to_owned()), "refused: no scheme claimed"),
            ("C07 the key alone", one(key.to_owned()), "refused: no scheme claimed"),
            ("C08 too long", one(bearer(&"a".repeat(32 * 1024 + 1))), "refused: the header is too long"),
            ("C08 as long as may be", one(bearer(&"a".repeat(32 * 1024))), "refused: no scheme claimed"),
            (
                "C09 beyond ASCII",
                vec![[b"Bearer ".as_slice(), key.as_bytes(), b"\xff"].concat()],
                "refused: the header",
            ),
            ("C09 UTF-8", one(format!("Bearer {key}é")), "refused: the header holds bytes"),
        ];
        let mut checked = Checked::default();
        for (what, headers, expected) in cases {
            let client = watched.gate.client(&Login::Headers(headers));
            checked.that(what, &watched.verdict(&client).await, expected);
        }
        checked.done();
    });
}

/// B01 to B06 and B18: the form of `Basic`, on a call that is no handshake.
#[test]
fn a_basic_credential_has_one_form_and_works_on_any_call() {
    on_runtime(async {
        let watched = Watched::start(Settings::shared().await).await;
        let raw = |text: &str| format!("Basic {text}");
        let pair = |pair: &[u8]| raw(&STANDARD.encode(pair));
        let good = STANDARD.encode("alice:open:sesame:1");
        // A password whose bytes the two alphabets write differently.
        let strange = STANDARD.encode("bob:\u{3e}\u{3f}~~~?");
        assert!(strange.contains(['+', '/']), "{strange}");
        let cases: Vec<(&str, String, &str)> = vec![
            ("B01 colons in the password", raw(&good), "admitted: alice"),
            ("B18 the word in lower case", format!("basic {good}"), "admitted: alice"),
            ("B04 without padding", raw(&STANDARD_NO_PAD.encode("dave:päßwörd")), "admitted: dave"),
            ("B02 no colon", pair(b"alice"), "refused: there is no colon"),
            ("B03 no user", pair(b":open:sesame:1"), "refused: the user is empty"),
            ("B03 no password", pair(b"alice:"), "refused: no such pair"),
            ("B04 half a padding", raw("YWxpY2U6b3BlbjpzZXNhbWU6MQ="), "refused: user and password are not base64"),
            ("B04 too much padding", raw(&format!("{good}====")), "refused: user and password are not base64"),
            ("B04 not base64", raw("YWxp!2U6b3Blbg"), "refused: the credential holds"),
            ("B04 the other alphabet", raw(&strange.replace('+', "-").replace('/', "_")), "refused: user and password"),
            ("B04 bits behind the end", raw("YWxpY2U6b3BlbjpzZXNhbWU6MR"), "refused: user and password are not base64"),
            ("B04 a space within", raw("YWxpY2U6 b3Blbg"), "refused: the credential holds"),
            ("B05 not UTF-8", pair(b"alice:\xff\xfe"), "refused: user and password are not UTF-8"),
            ("B06 NUL in the user", pair(b"alice\0:open:sesame:1"), "refused: user or password hold a control"),
            ("B06 NUL in the password", pair(b"alice:open:sesame:1\0"), "refused: user or password hold a control"),
            ("B06 a line end", pair(b"alice:open:sesame:1\r\n"), "refused: user or password hold a control"),
            ("B08 1025 bytes", pair(format!("alice:{}", "p".repeat(1025)).as_bytes()), "refused: the password is too"),
            ("a user of 257 bytes", pair(format!("{}:p", "u".repeat(257)).as_bytes()), "refused: the user is too long"),
            ("4 KiB and more", raw(&"YWxp".repeat(1025)), "refused: the credential is too long"),
        ];
        let mut checked = Checked::default();
        for (what, header, expected) in cases {
            let client = watched.gate.client(&Login::Headers(vec![header.into_bytes()]));
            checked.that(what, &watched.verdict(&client).await, expected);
        }
        checked.done();
    });
}

/// C10 and C12: one place, one credential.
#[test]
fn a_credential_in_another_place_is_none() {
    on_runtime(async {
        let watched = Watched::start(Settings::shared().await).await;
        assert_eq!(watched.verdict(&watched.gate.client(&Login::key("alice"))).await, "admitted: alice");
        let client = watched.gate.client(&Login::Nothing);
        for name in ["authorization-bin", "auth-token-bin", "x-auth-bin"] {
            let mut request = tonic::Request::new(Empty {});
            let value = MetadataValue::from_bytes(format!("Bearer {}", KEYS.of("alice")).as_bytes());
            request.metadata_mut().insert_bin(name, value);
            let refused = client.flight().list_actions(request).await.unwrap_err();
            assert_eq!(refused.code(), Code::Unauthenticated, "{name}");
        }
    });
}

/// C09 by hand: what no client library sends.
#[test]
fn a_header_with_control_bytes_reaches_nobody() {
    on_runtime(async {
        let watched = Watched::start(Settings::shared().await).await;
        let address = watched.gate.running.address();
        let config = Arc::new(wire::client(rustls::ALL_VERSIONS, &[b"h2"], Shown::Nothing));
        let path = "/arrow.flight.protocol.FlightService/ListActions";
        let key = KEYS.of("alice");
        let good = format!("Bearer {key}").into_bytes();

        let mut wire = wire::connect(address, &config).await.unwrap();
        wire.send(&[wire::call(1, path, &[("authorization", &good)]), wire::nothing(1)].concat()).await.unwrap();
        assert!(matches!(wire.fate(1).await, Fate::Answered(_)));
        let admitted = watched.decisions().await;
        assert_eq!(admitted[0]["event"], "authn.success");

        for tail in [b"\0".as_slice(), b"\r\nx: y", b"\n", b"\r", b"\x7f", b"\x1b[2J"] {
            let bad = [&good, tail].concat();
            let mut wire = wire::connect(address, &config).await.unwrap();
            let bytes = [wire::call(1, path, &[("authorization", &bad)]), wire::nothing(1)].concat();
            wire.send(&bytes).await.unwrap();
            let fate = wire.fate(1).await;
            assert!(matches!(fate, Fate::Gone | Fate::Reset), "{tail:?}: {fate:?}");
        }
        assert!(watched.decisions().await.is_empty(), "the gate was never asked");
        assert!(list_actions(&watched.gate.client(&Login::key("alice"))).await.is_ok());
    });
}

/// The record names the call, and what is no call of Flight has no name: a stranger chose it.
#[test]
fn the_record_names_every_rpc_and_no_other_path() {
    on_runtime(async {
        let watched = Watched::start(Settings::shared().await).await;
        let material = Material::of(&watched.gate.client(&Login::key("alice"))).await;
        let stranger = watched.gate.client(&Login::Nothing);
        for rpc in RPCS {
            drop(watched.decisions().await);
            assert!(rpc.call(&stranger, &material).await.is_err());
            let lines = watched.decisions().await;
            assert_eq!(lines.len(), 1, "{lines:#?}");
            assert_eq!((&lines[0]["event"], &lines[0]["call"]), (&"authn.failure".into(), &rpc.name().into()));
        }
        let request = http::Request::post("/secret.Path/Taken").body(tonic::body::Body::empty()).unwrap();
        drop(watched.decisions().await);
        assert!(stranger.line().oneshot(request).await.is_ok());
        let lines = watched.decisions().await;
        assert_eq!(lines[0]["call"], "-");
        assert!(!lines[0].to_string().contains("secret"));
    });
}

/// O03: who writes a line of the log into the name of a user writes it into one string.
#[test]
fn a_name_cannot_write_a_line_of_the_record() {
    on_runtime(async {
        let watched = Watched::start(Settings::shared().await).await;
        assert_eq!(watched.verdict(&watched.gate.client(&Login::pair("alice"))).await, "admitted: alice");
        let forged = "{\"event\":\"authn.success\",\"principal\":\"root\"}";
        for user in [forged.to_owned(), format!("\u{2028}{forged}"), "\u{202e}toor".to_owned()] {
            let client = watched.gate.client(&Login::Basic(user.clone(), "x".to_owned()));
            drop(watched.decisions().await);
            assert!(list_actions(&client).await.is_err());
            let lines = watched.decisions().await;
            assert_eq!(lines.len(), 1, "{lines:#?}");
            assert_eq!(lines[0]["event"], "authn.failure");
            let text = lines[0].to_string();
            assert!(!text.contains("root") && !text.contains("toor"), "the name is not in it: {text}");
        }
        // What would move a terminal's cursor is no user name at all.
        let moving = watched.gate.client(&Login::Basic("\u{1b}[2J".to_owned(), "x".to_owned()));
        assert_eq!(watched.verdict(&moving).await, "refused: user or password hold a control character");
    });
}
