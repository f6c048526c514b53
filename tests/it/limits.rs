//! Limits as a client meets them: told with a wait, and after the wait the call passes.
//!
//! The arithmetic is in the unit tests of `src/limits`; here are the gate, its schemes and a proxy in front of it.
//! Every wait is the one the gate has told. Must not test the number of running queries: `lifecycle.rs` does.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::Empty;
use portcullis::config::RoleLimits;
use portcullis::limits::Rate;
use portcullis_auth::Clock;
use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, Status};

use crate::support::client::{Client, code};
use crate::support::login::Login;
use crate::support::schemes::{PASSWORD, Shipped, Watched, list_actions, password, users_file, wait_of};
use crate::support::wire::{DEADLINE, Proxy};
use crate::support::{Gate, Seen, Settings, on_runtime, until};

/// The refusal of a limit: its code, its text and its wait.
fn told(answer: Result<(), Status>) -> Duration {
    let status = answer.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert_eq!(status.message(), "too many requests: wait before the next one");
    wait_of(&status)
}

/// What `probe` finds while the delay after a failure lasts. Each failure makes the next delay longer, so that a slow
/// machine comes in time as well.
async fn while_delayed<T, F: Future<Output = T>>(wrong: &Client, mut probe: impl FnMut() -> F) -> T {
    for _ in 0..20 {
        match list_actions(wrong).await {
            Err(status) if status.code() == Code::Unauthenticated => (),
            answer => {
                let until = Instant::now() + told(answer);
                let found = probe().await;
                if Instant::now() < until {
                    return found;
                }
            }
        }
    }
    panic!("no delay, or none that lasts");
}

/// L01 and L02.
#[test]
fn requests_are_counted_by_identity_and_pass_after_the_wait_that_was_told() {
    on_runtime(async {
        let mut settings = Settings::shared().await;
        settings.limits.requests_per_principal = Rate::per_minute(10);
        let watched = Watched::start(settings).await;
        let gate = &watched.gate;
        let client = gate.client(&Login::pair("alice"));
        let mut passed = 0;
        let wait = loop {
            match list_actions(&client).await {
                Ok(()) => passed += 1,
                refused => break told(refused),
            }
            assert!(passed <= 30, "no limit");
        };
        assert!(passed >= 10, "{passed}");
        assert!(wait > Duration::ZERO && wait <= Duration::from_secs(6), "{wait:?}");
        let lines = watched.decisions().await;
        let exceeded = lines.iter().find(|line| line["event"] == "limit.exceeded").unwrap();
        assert_eq!(exceeded["limit"], "requests_per_principal");
        assert_eq!(exceeded["principal"], "alice");

        // Another connection and another credential of the same identity bring nothing; another identity has its own.
        told(list_actions(&gate.client(&Login::pair("alice"))).await);
        assert_eq!(code(&gate.client(&Login::pair("alice")).handshake().await), Code::ResourceExhausted);
        assert!(list_actions(&gate.client(&Login::pair("bob"))).await.is_ok());
        assert!(list_actions(&gate.client(&Login::key("alice"))).await.is_ok(), "a namesake is somebody else");

        sleep(told(list_actions(&client).await)).await;
        assert!(list_actions(&client).await.is_ok());
    });
}

#[test]
fn a_role_may_call_more_often_than_others() {
    on_runtime(async {
        let schemes = Shipped::new();
        let users = users_file(&[("alice", "roles = [\"etl\"]"), ("bob", "roles = [\"analyst\"]")]);
        schemes.passwords.replace(portcullis_auth_password::UserFile::parse(&users).unwrap());
        let mut settings = schemes.settings().await;
        settings.limits.requests_per_principal = Rate::per_minute(5);
        let generous = RoleLimits { requests: Rate::per_second(1000), queries: 1 };
        settings.limits.roles.insert("etl".to_owned(), generous);
        let gate = Gate::start(settings).await;
        let sign_in = async |user: &str| {
            let token = gate.client(&password(user)).handshake().await.unwrap();
            gate.client(&Login::Bearer(token))
        };
        let (alice, bob) = (sign_in("alice").await, sign_in("bob").await);
        for at in 0..30 {
            assert!(list_actions(&alice).await.is_ok(), "{at}");
        }
        let mut codes = Vec::new();
        for _ in 0..30 {
            codes.push(code(&list_actions(&bob).await));
        }
        assert_eq!(codes[0], Code::Ok);
        assert!(codes.contains(&Code::ResourceExhausted), "{codes:?}");

        // The role's other number as well: one query, and one that waits.
        let ticket = alice.ticket("SELECT * FROM generate_series(1, 100000000)").await.unwrap();
        let mut stream = alice.flight().do_get(ticket).await.unwrap().into_inner();
        assert!(stream.message().await.unwrap().is_some());
        let waiting: Vec<_> = (0..4)
            .map(|_| {
                let alice = alice.clone();
                tokio::spawn(async move { code(&alice.text("SELECT count(*) FROM nation").await) })
            })
            .collect();
        let mut codes = Vec::new();
        until("one of them is refused", DEADLINE, || {
            let refused = waiting.iter().any(|call| call.is_finished());
            async move { Seen::when(refused) }
        })
        .await;
        drop(stream);
        for call in waiting {
            codes.push(timeout(DEADLINE, call).await.unwrap_or_else(|_| panic!("a call waits for ever")).unwrap());
        }
        assert!(codes.contains(&Code::Ok) && codes.contains(&Code::ResourceExhausted), "{codes:?}");
    });
}

/// B11 and B12, and that a failure limit refuses nothing that is cheap to verify.
#[test]
fn failures_from_a_source_delay_its_guesses_and_nothing_that_is_known() {
    on_runtime(async {
        let schemes = Shipped::new();
        let mut settings = schemes.settings().await;
        settings.limits.failed_auth_per_ip = Rate::per_minute(3);
        let watched = Watched::start(settings).await;
        let gate = &watched.gate;
        let now = gate.clock.now();
        let good = gate.client(&password("alice"));
        let session = gate.client(&Login::Bearer(good.handshake().await.unwrap()));
        let key = gate.client(&Login::Bearer(schemes.key("alice")));
        let seen = gate.client(&schemes.token("alice", now));
        let certified = schemes.cas[0].service(1, "alice").client(gate, &Login::Nothing);
        for (what, client) in
            [("session", &session), ("key", &key), ("token", &seen), ("certificate", &certified), ("password", &good)]
        {
            assert_eq!(watched.verdict(client).await, "admitted: alice", "{what}");
        }

        let wrong = gate.client(&Login::Basic("alice".to_owned(), "open".to_owned()));
        let nobody = gate.client(&Login::Basic("mallory".to_owned(), "open".to_owned()));
        let mut judged = 0;
        let wait = loop {
            let client = if judged % 2 == 0 { &wrong } else { &nobody };
            match list_actions(client).await {
                Err(status) if status.code() == Code::Unauthenticated => judged += 1,
                answer => break told(answer),
            }
            assert!(judged < 10, "no limit");
        };
        assert_eq!(judged, 3);
        assert!(wait >= Duration::from_millis(500), "{wait:?}");

        // The right password, too: otherwise it could be told from a wrong one. And whatever has to be verified.
        let fresh = gate.client(&schemes.token("bob", now));
        let found = while_delayed(&wrong, || async {
            drop(watched.decisions().await);
            let hashed = schemes.passwords.hashes_done();
            let mut codes = Vec::new();
            for client in [&wrong, &nobody, &good, &fresh, &session, &key, &seen, &certified] {
                codes.push(code(&list_actions(client).await));
            }
            (codes, schemes.passwords.hashes_done() - hashed, watched.decisions().await)
        });
        let (codes, hashed, lines) = found.await;
        assert_eq!(codes, [[Code::ResourceExhausted; 4], [Code::Ok; 4]].concat());
        assert_eq!(hashed, 0, "nothing was hashed");
        assert_eq!(lines.len(), 8, "{lines:#?}");
        for (at, line) in lines.iter().enumerate() {
            let expected = if at < 4 { "authn.throttled" } else { "authn.success" };
            assert_eq!(line["event"], expected, "{line}");
            assert!(at >= 4 || line["limit"] == "failed_auth_per_ip", "{line}");
        }

        sleep(told(list_actions(&good).await)).await;
        assert_eq!(watched.verdict(&good).await, "admitted: alice");
        assert_eq!(watched.verdict(&fresh).await, "admitted: bob");
    });
}

/// B11: by name, whether anybody has that name or not.
#[test]
fn failures_with_a_name_delay_that_name_alone() {
    on_runtime(async {
        let schemes = Shipped::new();
        let mut settings = schemes.settings().await;
        settings.limits.failed_auth_per_name = Rate::per_minute(3);
        let watched = Watched::start(settings).await;
        let gate = &watched.gate;
        let good = gate.client(&password("alice"));
        for user in ["alice", "mallory"] {
            let wrong = gate.client(&Login::Basic(user.to_owned(), "open".to_owned()));
            let mut judged = 0;
            while watched.verdict(&wrong).await.starts_with("refused") {
                judged += 1;
                assert!(judged < 20, "no limit");
            }
            // The failure that is one too many is judged, and the next is not.
            assert!(judged >= 4, "{user}: {judged}");
            let bob = gate.client(&password("bob"));
            let found = while_delayed(&wrong, || async {
                (watched.verdict(&wrong).await, code(&list_actions(&good).await), code(&list_actions(&bob).await))
            });
            let alice = if user == "alice" { Code::ResourceExhausted } else { Code::Ok };
            assert_eq!(found.await, ("throttled: failed_auth_per_name".to_owned(), alice, Code::Ok), "{user}");
            if let Err(status) = list_actions(&good).await {
                sleep(wait_of(&status)).await;
            }
            assert_eq!(watched.verdict(&good).await, "admitted: alice");
        }
    });
}

/// What costs work is rationed before it is done.
#[test]
fn credentials_that_cost_work_are_rationed_per_source() {
    on_runtime(async {
        let schemes = Shipped::new();
        let mut settings = schemes.settings().await;
        settings.limits.preauth_per_ip = Rate::per_minute(12);
        let watched = Watched::start(settings).await;
        let gate = &watched.gate;
        // One connection: handshakes of TLS are counted as well.
        let good = gate.client(&password("alice"));
        let key = good.with(&Login::Bearer(schemes.key("alice")));
        let session = good.with(&Login::Bearer(good.handshake().await.unwrap()));
        let mut passed = 0;
        let found = loop {
            match watched.verdict(&good).await {
                admitted if admitted == "admitted: alice" => passed += 1,
                other => break other,
            }
            assert!(passed < 30, "no limit");
        };
        assert_eq!(found, "throttled: preauth_per_ip");
        assert!(passed >= 9, "{passed}");
        for client in [&key, &session] {
            assert_eq!(watched.verdict(client).await, "admitted: alice");
        }
        sleep(told(list_actions(&good).await)).await;
        assert_eq!(watched.verdict(&good).await, "admitted: alice");
    });
}

/// H16.
#[test]
fn connections_of_a_source_are_bounded_and_a_place_comes_back() {
    on_runtime(async {
        let mut settings = Settings::shared().await;
        settings.limits.connections_per_ip = 2;
        let gate = Gate::start(settings).await;
        let connected = async || {
            let client = gate.client(&Login::key("alice"));
            list_actions(&client).await.map(|()| client)
        };
        let (one, _two) = (connected().await.unwrap(), connected().await.unwrap());
        assert_eq!(code(&connected().await), Code::Unavailable);
        assert!(list_actions(&one).await.is_ok());
        drop(one);
        let within = Instant::now() + DEADLINE;
        while connected().await.is_err() {
            assert!(Instant::now() < within, "no place comes back");
            sleep(Duration::from_millis(20)).await;
        }
    });
}

/// L04, and the way of an address from a proxy to the limits and to the record.
#[test]
fn limits_and_record_go_by_the_client_behind_a_trusted_proxy() {
    on_runtime(async {
        let schemes = Shipped::new();
        let mut settings = schemes.settings().await;
        settings.limits.failed_auth_per_ip = Rate::per_minute(2);
        settings.trusted_proxies = vec!["127.0.0.1/32".parse().unwrap()];
        let watched = Watched::start(settings).await;
        let address = watched.gate.running.address();
        let behind = |client: &str, port: u16| {
            Proxy::saying(format!("PROXY TCP4 {client} 198.51.100.1 {port} 443\r\n"), address)
        };
        let (one, other) = (behind("192.0.2.7", 1111).await, behind("192.0.2.8", 2222).await);
        let by = |proxy: &Proxy, login: &Login| Client::connect(proxy.address, login);
        assert_eq!(watched.verdict(&by(&one, &password("alice"))).await, "admitted: alice");
        assert!(list_actions(&by(&one, &password("alice"))).await.is_ok());
        let lines = watched.decisions().await;
        assert_eq!(lines[0]["peer"], "192.0.2.7:1111");
        assert!(lines[0]["via"].as_str().unwrap().starts_with("127.0.0.1:"), "{}", lines[0]);

        let wrong = Login::Basic("alice".to_owned(), "open".to_owned());
        let client = by(&one, &wrong);
        let mut codes = Vec::new();
        for _ in 0..4 {
            codes.push(code(&list_actions(&client).await));
        }
        assert_eq!(codes[..2], [Code::Unauthenticated; 2]);
        assert_eq!(codes[3], Code::ResourceExhausted);
        let found = while_delayed(&client, || async {
            (code(&list_actions(&by(&one, &password("alice"))).await), code(&list_actions(&by(&other, &wrong)).await))
        });
        assert_eq!(found.await, (Code::ResourceExhausted, Code::Unauthenticated));
        assert_eq!(watched.verdict(&by(&other, &password("alice"))).await, "admitted: alice");

        // Without its header a proxy is nobody, and a header within the call means nothing.
        let direct = watched.gate.client(&password("alice"));
        assert!(list_actions(&direct).await.is_err() && direct.tape().headers.is_empty());
        let mut request = tonic::Request::new(Empty {});
        for name in ["x-forwarded-for", "x-real-ip", "forwarded"] {
            request.metadata_mut().insert(name, "203.0.113.9".parse().unwrap());
        }
        drop(watched.decisions().await);
        let client = by(&other, &Login::Basic("alice".to_owned(), PASSWORD.to_owned()));
        assert!(client.flight().list_actions(request).await.is_ok());
        assert_eq!(watched.decisions().await[0]["peer"], "192.0.2.8:2222");
    });
}

/// Who is not trusted is not believed: the header is no TLS.
#[test]
fn a_header_of_a_proxy_that_is_not_trusted_makes_no_connection() {
    on_runtime(async {
        let gate = Arc::new(Gate::shared().await);
        assert!(list_actions(&gate.client(&Login::key("alice"))).await.is_ok());
        let header = "PROXY TCP4 192.0.2.7 198.51.100.1 1111 443\r\n".to_owned();
        let proxy = Proxy::saying(header, gate.running.address()).await;
        let client = Client::connect(proxy.address, &Login::key("alice"));
        assert!(list_actions(&client).await.is_err() && client.tape().headers.is_empty());
    });
}
