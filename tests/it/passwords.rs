//! Passwords against a gate over TCP: the catalogue's C.2, as far as a hash is involved.
//!
//! The forms of a `Basic` header are in `credentials.rs`, the delays after failures in `limits.rs`. Must not measure
//! time: the unit tests of the scheme do.

use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis::gate::chain::Chain;
use portcullis_auth::Secret;
use portcullis_auth_password::{HashingConfig, Passwords, UserFile, hash};
use tokio::time::timeout;
use tonic::Code;

use crate::support::login::Login;
use crate::support::schemes::{
    Checked, PASSWORD, REFUSAL, Watched, list_actions, password, passwords, users_file, wait_of,
};
use crate::support::wire::{self, DEADLINE, Shown};
use crate::support::{Gate, Seen, Settings, on_runtime, until};

async fn behind(passwords: &Arc<Passwords>) -> Settings {
    let mut settings = Settings::shared().await;
    settings.chain = Some(Chain::new(Arc::clone(passwords) as _));
    settings
}

/// B01, B07 to B10 and B18.
#[test]
fn users_and_passwords_count_to_the_last_byte() {
    on_runtime(async {
        let long = "x".repeat(1024);
        let composed = "\u{e9}cole";
        let mut file = users_file(&[("alice", ""), (composed, ""), ("late", "expires = 2020-01-01T00:00:00Z")]);
        file += &format!("[user.long]\npassword = \"{}\"\n", hash(&Secret::new(long.as_str())).unwrap());
        let users = passwords(&file);
        let watched = Watched::start(behind(&users).await).await;
        let with = |user: &str, password: &str| Login::Basic(user.to_owned(), password.to_owned());
        const WRONG: &str = "refused: no such user, or a wrong password: user hash";
        let cases = vec![
            ("B01 colons in the password", password("alice"), "admitted: alice"),
            ("B09 1024 bytes", with("long", &long), "admitted: long"),
            ("B07 as it is stored", password(composed), "admitted: \u{e9}cole"),
            ("B07 upper case", password("Alice"), WRONG),
            ("B07 a space behind", password("alice "), WRONG),
            ("B07 a space before", password(" alice"), WRONG),
            ("B07 full width", password("\u{ff41}lice"), WRONG),
            ("B07 decomposed", password("e\u{301}cole"), WRONG),
            ("B09 without its last byte", with("long", long.split_at(1).1), WRONG),
            ("B09 the first 72 bytes", with("long", long.split_at(72).0), WRONG),
            ("B10 a wrong password", with("alice", "open"), WRONG),
            ("B10 nobody", password("mallory"), WRONG),
            ("a space behind the password", with("alice", "open:sesame:1 "), WRONG),
            ("its user's time is over", password("late"), "refused: the user has expired"),
            ("the hash for the password", with("alice", "$argon2id$v=19$m=19456,t=2,p=1$AAAA$AAAA"), WRONG),
        ];
        let mut checked = Checked::default();
        let before = users.hashes_done();
        let all = cases.len();
        for (what, login, expected) in cases {
            checked.that(what, &watched.verdict(&watched.gate.client(&login)).await, expected);
        }
        checked.done();
        assert_eq!(users.hashes_done() - before, u64::try_from(all).unwrap(), "one hash each, known user or not");

        let counted = users.hashes_done();
        for (what, login, expected) in [
            ("B03 no password", with("alice", ""), "refused: the password is empty"),
            ("B08 1025 bytes", with("alice", &"p".repeat(1025)), "refused: the password is too long"),
            ("B06 NUL", with("alice", "open\0"), "refused: user or password hold a control character"),
        ] {
            let found = watched.verdict(&watched.gate.client(&login)).await;
            assert_eq!(found, expected, "{what}");
        }
        assert_eq!(users.hashes_done(), counted, "nothing was hashed");
    });
}

/// B10: one user's name told from nobody's would be half of a guess.
#[test]
fn nobody_and_a_wrong_password_look_the_same_to_the_byte() {
    on_runtime(async {
        let gate = Gate::start(behind(&passwords(&users_file(&[("alice", "")]))).await).await;
        assert!(list_actions(&gate.client(&password("alice"))).await.is_ok());
        let mut forms = std::collections::HashSet::new();
        for login in [password("mallory"), Login::Basic("alice".to_owned(), "x".to_owned()), Login::Nothing] {
            let client = gate.client(&login);
            assert_eq!(client.handshake().await.unwrap_err().message(), REFUSAL);
            assert_eq!(list_actions(&client).await.unwrap_err().message(), REFUSAL);
            forms.extend(client.tape().distinct_headers());
        }
        assert_eq!(forms.len(), 1, "{forms:#?}");
    });
}

/// B13: many wrong passwords at once. Who is signed in does not wait for them.
#[test]
fn a_flood_of_wrong_passwords_is_bounded_and_holds_up_nobody_who_is_signed_in() {
    on_runtime(async {
        let config = HashingConfig {
            threads: NonZero::<usize>::MIN,
            queue: 2,
            wait: Duration::from_secs(5),
            remember: Duration::from_secs(60),
        };
        let users = UserFile::parse(&users_file(&[("alice", "")])).unwrap();
        let users = Arc::new(Passwords::new("staff", users, config).unwrap());
        let gate = Arc::new(Gate::start(behind(&users).await).await);
        let client = gate.client(&password("alice"));
        let session = gate.client(&Login::Bearer(client.handshake().await.unwrap()));
        assert_eq!(session.text("SELECT 1").await.unwrap(), ["1"]);
        let before = users.hashes_done();
        let attempts: Vec<_> = (0..100)
            .map(|at| {
                let attempt = client.with(&Login::Basic("alice".to_owned(), format!("wrong-{at}")));
                tokio::spawn(async move { list_actions(&attempt).await.unwrap_err() })
            })
            .collect();
        // Meanwhile: a session, and a password that was good a moment ago.
        for client in [&session, &client] {
            let answer = timeout(Duration::from_secs(10), client.text("SELECT 1")).await;
            assert_eq!(answer.unwrap_or_else(|_| panic!("held up")).unwrap(), ["1"]);
        }
        let (mut refused, mut away) = (0, 0);
        for attempt in attempts {
            let status = timeout(DEADLINE, attempt).await.unwrap_or_else(|_| panic!("an attempt waits")).unwrap();
            if status.code() == Code::Unauthenticated {
                refused += 1;
            } else {
                assert_eq!(status.code(), Code::Unavailable, "{status}");
                assert!(wait_of(&status) > Duration::ZERO);
                away += 1;
            }
        }
        assert!(refused > 0 && away > 0, "{refused} judged and {away} sent away");
        let hashed = users.hashes_done() - before;
        assert_eq!(hashed, u64::try_from(refused).unwrap(), "who was sent away was not hashed");
    });
}

/// B14 and H03: calls with a password that are reset before they are answered.
#[test]
fn calls_that_are_reset_at_once_cost_few_hashes_and_their_connection() {
    on_runtime(async {
        let users = passwords(&users_file(&[("alice", "")]));
        let gate = Gate::start(behind(&users).await).await;
        let good = gate.client(&password("alice"));
        assert!(list_actions(&good).await.is_ok());
        let before = users.hashes_done();
        let config = Arc::new(wire::client(rustls::ALL_VERSIONS, &[b"h2"], Shown::Nothing));
        let wire = wire::connect(gate.running.address(), &config).await.unwrap();
        let mut flood = Vec::new();
        for at in 0..1000_u32 {
            let basic = format!("Basic {}", STANDARD.encode(format!("alice:wrong-{at}")));
            let stream = at * 2 + 1;
            flood.extend(wire::call(
                stream,
                "/arrow.flight.protocol.FlightService/ListActions",
                &[("authorization", basic.as_bytes())],
            ));
            flood.extend(wire::frame(wire::RST_STREAM, 0, stream, &[0, 0, 0, 8]));
        }
        let frames = wire.flood(&flood).await;
        assert!(frames.iter().any(|frame| frame.kind == wire::GOAWAY), "{} frames", frames.len());
        until("the gate is at rest", Duration::from_secs(20), || async {
            Seen::when(timeout(Duration::from_secs(2), list_actions(&good)).await.is_ok_and(|answer| answer.is_ok()))
        })
        .await;
        let hashed = users.hashes_done() - before;
        assert!(hashed < 200, "{hashed} hashes");
        assert_eq!(good.text("SELECT 1").await.unwrap(), ["1"]);
        assert!(list_actions(&good.with(&Login::Basic("alice".to_owned(), PASSWORD.to_owned()))).await.is_ok());
    });
}
