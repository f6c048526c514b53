//! Session tokens and cookies in wrong hands and at wrong times: the catalogue's C.7 against gates over TCP.
//!
//! What lives in a session and how one ends by itself is in `session.rs`; tickets and handles are in `handles.rs`. Each
//! test shows the token at work before it is refused.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use portcullis::gate::revocations::RevocationList;
use portcullis::gate::session::Sharing;
use portcullis::seal::Sealer;
use portcullis_auth::{Secret, SystemClock};
use portcullis_auth_password::UserFile;
use prost::Message;
use tonic::Code;

use crate::support::client::{Client, code, statement};
use crate::support::login::Login;
use crate::support::schemes::{Shipped, Watched, b64, list_actions, password, users_file};
use crate::support::{Gate, Seen, Settings, directory, on_runtime, until};

const ENDED: &str = "refused: no such session, or it has ended";
const FALLEN: &str = "refused: the credential behind the session does not stand any more";

async fn token_of(gate: &Gate, user: &str) -> String {
    gate.client(&Login::pair(user)).handshake().await.unwrap()
}

fn bearer(gate: &Gate, token: &str) -> Client {
    gate.client(&Login::Bearer(token.to_owned()))
}

/// S01 and S07: nothing but a token of this gate opens a session, whatever bit of it was changed.
#[test]
fn no_changed_bit_of_a_token_is_accepted() {
    on_runtime(async {
        let watched = Watched::start(Settings::shared().await).await;
        let gate = &watched.gate;
        let token = token_of(gate, "alice").await;
        assert_eq!(watched.verdict(&bearer(gate, &token)).await, "admitted: alice");
        let sealed = URL_SAFE_NO_PAD.decode(token.strip_prefix("ps1.").unwrap()).unwrap();
        let over_one_connection = gate.client(&Login::Nothing);
        let refused = |bytes: Vec<u8>| {
            let client = over_one_connection.with(&Login::Bearer(format!("ps1.{}", b64(bytes))));
            async move { list_actions(&client).await.unwrap_err().code() }
        };
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1 << (at % 8);
            assert_eq!(refused(changed).await, Code::Unauthenticated, "byte {at}");
        }
        for length in (0..sealed.len()).step_by(7).skip(1) {
            assert_eq!(refused(sealed[..length].to_vec()).await, Code::Unauthenticated, "{length} bytes");
        }
        for version in [0, 2, 255] {
            let other = [&[version], &sealed[1..]].concat();
            assert_eq!(refused(other).await, Code::Unauthenticated, "version {version}");
        }
        for longer in [[&sealed[..], &[0]].concat(), [&sealed[..], &sealed[..]].concat()] {
            assert_eq!(refused(longer).await, Code::Unauthenticated);
        }
        for text in [
            "ps1.AAAA",
            "ps1.0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0",
            "PS1.AAAA",
            &token.to_uppercase(),
            &format!("{token}="),
            &format!("ps1.{token}"),
        ] {
            assert!(watched.verdict(&bearer(gate, text)).await.starts_with("refused"), "{text}");
        }
        assert_eq!(watched.verdict(&bearer(gate, &token)).await, "admitted: alice", "it was left alone");
    });
}

/// S07: a box for one purpose opens for no other.
#[test]
fn a_ticket_is_no_token_and_a_token_is_no_ticket() {
    on_runtime(async {
        let watched = Watched::start(Settings::shared().await).await;
        let gate = &watched.gate;
        let token = token_of(gate, "alice").await;
        let client = bearer(gate, &token);
        let ticket = client.ticket("SELECT 1").await.unwrap();
        let handle = client.prepare("SELECT 1").await.unwrap().prepared_statement_handle;
        let any = arrow_flight::sql::Any::decode(ticket.ticket).unwrap();
        let query = any.unpack::<arrow_flight::sql::TicketStatementQuery>().unwrap().unwrap();
        for sealed in [&query.statement_handle, &handle] {
            assert_eq!(watched.verdict(&bearer(gate, &format!("ps1.{}", b64(sealed)))).await, ENDED);
        }
        let sealed = URL_SAFE_NO_PAD.decode(token.strip_prefix("ps1.").unwrap()).unwrap();
        let answer = client.info_of(crate::support::client::prepared(sealed.clone().into())).await;
        assert_eq!(code(&answer), Code::NotFound);
        for bytes in [Bytes::from(sealed), Bytes::from(token)] {
            assert_eq!(code(&client.messages(arrow_flight::Ticket::new(bytes)).await), Code::InvalidArgument);
        }
    });
}

/// S10, S17 and O01: who tries another's ticket or handle reads what anybody reads; the auditor reads who it was.
#[test]
fn a_ticket_in_wrong_hands_is_on_record() {
    on_runtime(async {
        let watched = Watched::start(Settings::shared().await).await;
        let (alice, bob) = (watched.gate.client(&Login::key("alice")), watched.gate.client(&Login::key("bob")));
        let ticket = alice.ticket("SELECT 1").await.unwrap();
        let handle = alice.prepare("SELECT 1").await.unwrap().prepared_statement_handle;
        assert!(alice.messages(ticket.clone()).await.is_ok());
        drop(watched.decisions().await);
        assert_eq!(code(&bob.messages(ticket).await), Code::InvalidArgument);
        assert_eq!(code(&bob.info_of(crate::support::client::prepared(handle)).await), Code::NotFound);
        let lines = watched.decisions().await;
        let rejected: Vec<_> = lines.iter().filter(|line| line["event"] == "ticket.rejected").collect();
        assert_eq!(rejected.len(), 2, "{lines:#?}");
        for (line, what) in rejected.into_iter().zip(["ticket", "prepared"]) {
            assert_eq!((line["principal"].as_str(), line["what"].as_str()), (Some("bob"), Some(what)));
        }
    });
}

/// S02: every end of a session, and what the auditor reads.
#[test]
fn a_token_dies_with_its_session_and_its_user() {
    on_runtime(async {
        let schemes = Shipped::new();
        let mut settings = schemes.settings().await;
        settings.session.idle = Duration::from_secs(600);
        settings.session.lifetime = Duration::from_secs(3600);
        let watched = Watched::start(settings).await;
        let gate = &watched.gate;
        let sign_in = async |user: &str| {
            let client = bearer(gate, &gate.client(&password(user)).handshake().await.unwrap());
            assert_eq!(watched.verdict(&client).await, format!("admitted: {user}"));
            client
        };

        let closed = sign_in("alice").await;
        assert_eq!(ending(&watched, &closed, Ends::ByClosing).await, "closed");
        assert_eq!(watched.verdict(&closed).await, ENDED);
        assert_eq!(watched.verdict(&closed).await, ENDED, "and stays so");

        let idle = sign_in("alice").await;
        gate.clock.advance(Duration::from_secs(601));
        assert_eq!(ending(&watched, &idle, Ends::ByItself).await, "idle");
        assert_eq!(watched.verdict(&idle).await, ENDED);

        let busy = sign_in("alice").await;
        for _ in 0..7 {
            gate.clock.advance(Duration::from_secs(500));
            assert_eq!(watched.verdict(&busy).await, "admitted: alice");
        }
        gate.clock.advance(Duration::from_secs(500));
        assert_eq!(ending(&watched, &busy, Ends::ByItself).await, "expired");
        assert_eq!(watched.verdict(&busy).await, ENDED);

        let (removed, changed, kept) = (sign_in("carol").await, sign_in("bob").await, sign_in("alice").await);
        let users = users_file(&[("alice", ""), ("bob", "roles = [\"analyst\"]")]);
        schemes.passwords.replace(UserFile::parse(&users).unwrap());
        assert_eq!(ending(&watched, &removed, Ends::ByItself).await, "revoked");
        assert_eq!(watched.verdict(&changed).await, FALLEN, "other roles are other rights");
        assert_eq!(watched.verdict(&kept).await, "admitted: alice");
        // Final, even if the user comes back.
        schemes.passwords.replace(UserFile::parse(&users_file(&[("alice", ""), ("bob", ""), ("carol", "")])).unwrap());
        assert_eq!(watched.verdict(&removed).await, ENDED);
        assert_eq!(watched.verdict(&sign_in("carol").await).await, "admitted: carol");
    });
}

/// How the end of a session shows.
enum Ends {
    ByClosing,
    ByItself,
}

/// Why a session ends, by the one line about it.
async fn ending(watched: &Watched, client: &Client, ends: Ends) -> String {
    drop(watched.decisions().await);
    match ends {
        Ends::ByClosing => drop(client.action("CloseSession", Bytes::new()).await.unwrap()),
        Ends::ByItself => assert_eq!(code(&list_actions(client).await), Code::Unauthenticated),
    }
    let lines = watched.decisions().await;
    let ended: Vec<_> = lines.iter().filter(|line| line["event"] == "session.ended").collect();
    assert_eq!(ended.len(), 1, "{lines:#?}");
    ended[0]["why"].as_str().unwrap().to_owned()
}

/// S06: the one that had to go is on record, and so is the one that it went for.
#[test]
fn a_session_that_makes_room_is_on_record() {
    on_runtime(async {
        let mut settings = Settings::shared().await;
        settings.session.max_per_principal = 2;
        let watched = Watched::start(settings).await;
        let gate = &watched.gate;
        let mut clients = Vec::new();
        for _ in 0..2 {
            clients.push(bearer(gate, &token_of(gate, "alice").await));
            gate.clock.advance(Duration::from_secs(1));
        }
        assert_eq!(watched.verdict(&clients[0]).await, "admitted: alice");
        drop(watched.decisions().await);
        let third = bearer(gate, &token_of(gate, "alice").await);
        let lines = watched.decisions().await;
        let of = |event: &str| lines.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
        let (ended, opened, admitted) = (of("session.ended"), of("session.opened"), of("authn.success"));
        assert_eq!((ended.len(), opened.len(), admitted.len()), (1, 1, 1), "{lines:#?}");
        assert_eq!(ended[0]["why"], "evicted");
        assert_eq!(opened[0]["session"], admitted[0]["session"]);
        assert_ne!(opened[0]["session"], ended[0]["session"]);
        assert_eq!(watched.verdict(&clients[0]).await, "admitted: alice");
        assert_eq!(watched.verdict(&clients[1]).await, ENDED, "it had rested longest");
        assert_eq!(watched.verdict(&third).await, "admitted: alice");
    });
}

/// S03: a token of a certificate's session, as the auditor reads it; `matrix.rs` has every call.
#[test]
fn a_token_of_a_certificate_needs_that_certificate() {
    on_runtime(async {
        let schemes = Shipped::new();
        let watched = Watched::start(schemes.settings().await).await;
        let gate = &watched.gate;
        let (own, renewed) = (schemes.cas[0].service(1, "alice"), schemes.cas[0].service(2, "alice"));
        let token = own.client(gate, &Login::Nothing).handshake().await.unwrap();
        let login = Login::Bearer(token);
        assert_eq!(watched.verdict(&own.client(gate, &login)).await, "admitted: alice");
        const OTHER: &str = "refused: the session belongs to another client certificate";
        for client in [renewed.client(gate, &login), schemes.cas[1].service(1, "alice").client(gate, &login)] {
            assert_eq!(watched.verdict(&client).await, OTHER);
        }
        assert_eq!(watched.verdict(&gate.client(&login)).await, OTHER, "none at all");
        assert_eq!(watched.verdict(&own.client(gate, &login)).await, "admitted: alice");
    });
}

/// S20: one connection, another credential on each call.
#[test]
fn each_call_of_one_connection_is_judged_alone() {
    on_runtime(async {
        let watched = Watched::start(Settings::shared().await).await;
        let gate = &watched.gate;
        let alice = gate.client(&Login::key("alice"));
        let (bob, nobody) = (alice.with(&Login::key("bob")), alice.with(&Login::Nothing));
        let session = alice.with(&Login::Bearer(token_of(gate, "carol").await));
        for _ in 0..3 {
            assert_eq!(watched.verdict(&alice).await, "admitted: alice");
            assert!(watched.verdict(&nobody).await.starts_with("refused"));
            assert_eq!(watched.verdict(&bob).await, "admitted: bob");
            assert_eq!(watched.verdict(&session).await, "admitted: carol");
        }
    });
}

/// S05, S19 and what a cookie is good for: it chooses among the sessions of whoever shows a credential.
#[test]
fn a_cookie_chooses_a_session_of_its_owner_only() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let (alice, bob) = (gate.client(&Login::key("alice")), gate.client(&Login::key("bob")));
        // The first call has no cookie yet, and what it sets is not lost.
        set(&alice, "111").await;
        let (first, second) = (cookie(&alice).await, cookie(&alice).await);
        assert_ne!(first, second);
        let (one, two) = (alice.with_cookies(&[&first]), alice.with_cookies(&[&second]));
        assert_eq!(get(&one).await, "111", "carried over");
        set(&one, "222").await;
        set(&two, "333").await;
        assert_eq!((get(&one).await, get(&two).await, get(&alice).await), ("222".into(), "333".into(), "111".into()));

        // Whoever takes it gets nothing by it; nor does whoever guesses or proposes one.
        let bobs = get(&bob).await;
        assert!(!["111", "222", "333"].contains(&bobs.as_str()), "{bobs}");
        let (name, value) = first.split_once('=').unwrap();
        let changed: String = value.chars().rev().collect();
        for (client, cookies, expected) in [
            (&bob, vec![first.clone()], &bobs),
            (&alice, vec![format!("{name}={changed}")], &"111".to_owned()),
            (&alice, vec![format!("{name}=mine")], &"111".to_owned()),
            (&alice, vec![format!("{name}=")], &"111".to_owned()),
            (&alice, vec![format!("{first}; {second}")], &"111".to_owned()),
            (&alice, vec![first.clone(), second.clone()], &"111".to_owned()),
            (&alice, vec![format!("other=x; {first}")], &"222".to_owned()),
        ] {
            let cookies: Vec<_> = cookies.iter().map(String::as_str).collect();
            assert_eq!(get(&client.with_cookies(&cookies)).await, *expected, "{cookies:?}");
        }
        // A cookie is no credential, and a stolen one is none with a bad credential.
        for login in [Login::Nothing, Login::Bearer("pk1.short".to_owned()), Login::pair("alice")] {
            let thief = gate.client(&login).with_cookies(&[&first]);
            match login {
                Login::Basic(..) => assert_ne!(get(&thief).await, "222", "a namesake is somebody else"),
                Login::Bearer(_) | Login::Headers(_) | Login::Nothing => {
                    assert_eq!(code(&list_actions(&thief).await), Code::Unauthenticated)
                }
            }
        }

        // Closing one leaves the other.
        one.action("CloseSession", Bytes::new()).await.unwrap();
        assert_eq!((get(&one).await, get(&two).await), ("111".into(), "333".into()));
    });
}

/// The session that a client which keeps cookies goes on with.
async fn cookie(client: &Client) -> String {
    let descriptor = arrow_flight::FlightDescriptor::new_cmd(statement("SELECT 1").encode_to_vec());
    let answer = client.flight().get_flight_info(descriptor).await.unwrap();
    let offered = answer.metadata().get("set-cookie").unwrap().to_str().unwrap();
    assert!(offered.contains("HttpOnly"), "{offered}");
    offered.split(';').next().unwrap().to_owned()
}

async fn set(client: &Client, size: &str) {
    client.update(&format!("SET datafusion.execution.batch_size = {size}")).await.unwrap();
}

async fn get(client: &Client) -> String {
    let shown = client.text("SHOW datafusion.execution.batch_size").await.unwrap();
    shown[0].rsplit_once('|').unwrap().1.to_owned()
}

/// The same sealing keys, newest first.
fn sealer(keys: &[u8]) -> Sealer {
    let bytes = |key: u8| Secret::new((0..32).map(|at| key.wrapping_mul(31) ^ at).collect::<Vec<u8>>());
    Sealer::new(keys.iter().map(|key| bytes(*key)).collect()).unwrap()
}

async fn replica(keys: &[u8], sharing: Sharing) -> Watched {
    let mut settings = Settings::shared().await;
    (settings.sealer, settings.sharing) = (sealer(keys), sharing);
    Watched::start(settings).await
}

/// S04, S08 and S23: keys that another gate has, had, or never had.
#[test]
fn a_token_is_good_where_its_key_is() {
    on_runtime(async {
        let first = replica(&[1], Sharing::Unlisted).await;
        let token = token_of(&first.gate, "alice").await;
        assert_eq!(first.verdict(&bearer(&first.gate, &token)).await, "admitted: alice");
        for (keys, expected) in [
            (&[1][..], "admitted: alice"),
            (&[2, 1], "admitted: alice"),
            (&[2, 3, 1], "admitted: alice"),
            (&[2], ENDED),
            (&[2, 3], ENDED),
        ] {
            let other = replica(keys, Sharing::Unlisted).await;
            assert_eq!(other.verdict(&bearer(&other.gate, &token)).await, expected, "keys {keys:?}");
        }
        // A gate that is alone knows all sessions there are.
        let alone = replica(&[1], Sharing::Alone).await;
        assert_eq!(alone.verdict(&bearer(&alone.gate, &token)).await, ENDED);
        // A token of the new key is unknown to who has only the old one.
        let rotated = replica(&[2, 1], Sharing::Unlisted).await;
        let newer = token_of(&rotated.gate, "alice").await;
        assert_eq!(rotated.verdict(&bearer(&rotated.gate, &newer)).await, "admitted: alice");
        assert_eq!(first.verdict(&bearer(&first.gate, &newer)).await, ENDED);
    });
}

#[test]
fn without_a_list_another_gate_takes_a_token_for_a_quarter_of_an_hour() {
    on_runtime(async {
        let (home, early, late) = (
            replica(&[1], Sharing::Unlisted).await,
            replica(&[1], Sharing::Unlisted).await,
            replica(&[1], Sharing::Unlisted).await,
        );
        let token = token_of(&home.gate, "alice").await;
        early.gate.clock.advance(Duration::from_secs(14 * 60));
        assert_eq!(early.verdict(&bearer(&early.gate, &token)).await, "admitted: alice");
        // There it is a session like any other from then on.
        early.gate.clock.advance(Duration::from_secs(10 * 60));
        assert_eq!(early.verdict(&bearer(&early.gate, &token)).await, "admitted: alice");
        late.gate.clock.advance(Duration::from_secs(16 * 60));
        assert_eq!(late.verdict(&bearer(&late.gate, &token)).await, ENDED);
        home.gate.clock.advance(Duration::from_secs(16 * 60));
        assert_eq!(home.verdict(&bearer(&home.gate, &token)).await, "admitted: alice");

        // A user who is gone there is not let in there, and one session that was closed there does not come back.
        let carol = token_of(&home.gate, "carol").await;
        let other = replica(&[1], Sharing::Unlisted).await;
        other.gate.pairs.revoke("carol");
        assert_eq!(other.verdict(&bearer(&other.gate, &carol)).await, FALLEN);
        let bob = token_of(&home.gate, "bob").await;
        let there = bearer(&other.gate, &bob);
        other.gate.clock.advance(Duration::from_secs(16 * 60 + 1));
        home.gate.clock.advance(Duration::from_secs(60));
        assert_eq!(other.verdict(&there).await, "admitted: bob");
        there.action("CloseSession", Bytes::new()).await.unwrap();
        assert_eq!(other.verdict(&there).await, ENDED);
    });
}

#[test]
fn with_a_list_a_session_that_ends_at_one_gate_ends_at_all() {
    on_runtime(async {
        let path = directory().join("revocations.list");
        let (home, other) = (listed(&path).await, listed(&path).await);
        let sign_in = async |user: &str| {
            let token = token_of(&home.gate, user).await;
            let pair = (bearer(&home.gate, &token), bearer(&other.gate, &token));
            assert_eq!(home.verdict(&pair.0).await, format!("admitted: {user}"));
            assert_eq!(other.verdict(&pair.1).await, format!("admitted: {user}"));
            pair
        };
        let (here, there) = sign_in("alice").await;
        let (_, staying) = sign_in("bob").await;
        here.action("CloseSession", Bytes::new()).await.unwrap();
        until("the other gate knows", Duration::from_secs(10), || async {
            Seen::when(code(&list_actions(&there).await) == Code::Unauthenticated)
        })
        .await;
        assert_eq!(other.verdict(&there).await, ENDED);
        assert_eq!(other.verdict(&staying).await, "admitted: bob");
        // The other way round, and long after the quarter of an hour.
        let token = token_of(&home.gate, "alice").await;
        other.gate.clock.advance(Duration::from_secs(60 * 60));
        let (here, there) = (bearer(&home.gate, &token), bearer(&other.gate, &token));
        assert_eq!(other.verdict(&there).await, "admitted: alice");
        there.action("CloseSession", Bytes::new()).await.unwrap();
        until("the first gate knows", Duration::from_secs(10), || async {
            Seen::when(code(&list_actions(&here).await) == Code::Unauthenticated)
        })
        .await;

        // An operator's line about a credential counts for its sessions and for itself.
        let (here, there) = sign_in("carol").await;
        let basic = home.gate.client(&Login::pair("carol"));
        assert_eq!(home.verdict(&basic).await, "admitted: carol");
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"credential test-basic carol\n").unwrap();
        for client in [&here, &there, &basic] {
            until("the line is read", Duration::from_secs(10), || async {
                Seen::when(code(&list_actions(client).await) == Code::Unauthenticated)
            })
            .await;
        }
        assert_eq!(home.verdict(&basic).await, "refused: the credential is on the list of revocations");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.lines().count() >= 3 && !text.contains("ps1."), "{text}");
    });
}

async fn listed(path: &Path) -> Watched {
    let list = RevocationList::open(path, Arc::new(SystemClock)).unwrap();
    replica(&[1], Sharing::Listed(Arc::new(list))).await
}

/// S21: a stream that runs past the end of the credential that began it.
#[test]
fn a_stream_ends_with_its_credential() {
    on_runtime(async {
        let schemes = Shipped::new();
        let gate = Gate::start(schemes.settings().await).await;
        let client = gate.client(&schemes.token("alice", portcullis_auth::Clock::now(&*gate.clock)));
        let ticket = client.ticket("SELECT repeat(o_comment, 100), repeat(o_clerk, 300) FROM orders").await.unwrap();
        assert!(client.messages(ticket.clone()).await.unwrap().len() > 10);
        let mut stream = client.flight().do_get(ticket).await.unwrap().into_inner();
        assert!(stream.message().await.unwrap().is_some());
        gate.clock.advance(Duration::from_secs(3600 + 31));
        let end = async {
            loop {
                match stream.message().await {
                    Ok(Some(_)) => (),
                    Ok(None) => return Code::Ok,
                    Err(status) => return status.code(),
                }
            }
        };
        assert_eq!(end.await, Code::Unauthenticated);
    });
}

/// S13: guesses cost little and find nothing.
#[test]
fn random_tokens_and_tickets_open_nothing() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        let ticket = client.ticket("SELECT 1").await.unwrap();
        assert!(client.messages(ticket).await.is_ok());
        let mut dice = crate::support::Dice::new(7);
        for _ in 0..300 {
            let length = 1 + dice.below(400);
            let token = format!("ps1.{}", b64(dice.bytes(length)));
            let guess = client.with(&Login::Bearer(token));
            assert_eq!(code(&list_actions(&guess).await), Code::Unauthenticated);
            let ticket = arrow_flight::Ticket::new(dice.bytes(length));
            assert_eq!(code(&client.messages(ticket).await), Code::InvalidArgument);
        }
        // S12: sizes.
        for length in [0, 513, 1024 * 1024] {
            let answer = client.messages(arrow_flight::Ticket::new(vec![7; length])).await;
            assert_eq!(code(&answer), Code::InvalidArgument, "{length} bytes");
        }
        assert_eq!(client.text("SELECT 1").await.unwrap(), ["1"]);
    });
}
