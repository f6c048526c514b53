//! Queries end: when their client goes, when their time is over, when an executor dies, when the gate drains.
//!
//! The cluster here has one place for one task, so that a query that goes on is seen by the next one waiting.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::FlightDescriptor;
use bytes::Bytes;
use prost::Message;
use tokio::time::{Instant, timeout};
use tonic::Code;

use crate::support::client::{Client, code, statement};
use crate::support::login::Login;
use crate::support::{Cluster, Gate, Seen, Settings, Size, on_runtime, until};

#[test]
fn a_client_that_goes_away_takes_its_job_along() {
    on_runtime(async {
        let cluster = Cluster::start(ONE).await;
        let gate = Gate::start(Settings::over(&cluster)).await;
        let client = gate.client(&Login::key("alice"));
        assert_eq!(client.text(QUICK).await.unwrap(), ["25"]);
        assert!(timeout(BUSY, client.info(ENDLESS)).await.is_err(), "the query is not quick");

        // The future is dropped, and with it the call; what waits behind the job gets its place.
        let started = Instant::now();
        let answer = timeout(RELEASED, client.text(QUICK)).await;
        assert_eq!(answer.unwrap_or_else(|_| panic!("the job goes on")).unwrap(), ["25"]);
        assert!(started.elapsed() < RELEASED);

        // A whole connection that is lost is the same.
        let leaving = gate.client(&Login::key("bob"));
        let call = tokio::spawn(async move { leaving.info(ENDLESS).await });
        busy(&client).await;
        call.abort();
        let answer = timeout(RELEASED, client.text(QUICK)).await;
        assert_eq!(answer.unwrap_or_else(|_| panic!("the job goes on")).unwrap(), ["25"]);
        drop(gate);
        cluster.embedded.stop().await;
    });
}

#[test]
fn the_deadline_of_a_client_and_of_the_configuration_stop_the_work() {
    on_runtime(async {
        let cluster = Cluster::start(ONE).await;
        let mut settings = Settings::over(&cluster);
        settings.limits.query_timeout = Duration::from_secs(4);
        let gate = Gate::start(settings).await;
        let client = gate.client(&Login::key("alice"));
        assert_eq!(client.text(QUICK).await.unwrap(), ["25"]);

        // The configuration's, on the cluster and in the gate.
        let late = timeout(RELEASED, client.info(ENDLESS)).await.unwrap_or_else(|_| panic!("no deadline")).unwrap_err();
        assert_eq!(late.code(), Code::DeadlineExceeded, "{late}");
        let here = client.ticket("SELECT count(*) FROM generate_series(1, 100000000000)").await.unwrap();
        let late = timeout(RELEASED, client.read(here)).await.unwrap_or_else(|_| panic!("no deadline")).unwrap_err();
        assert_eq!(late.code(), Code::DeadlineExceeded, "{late}");
        assert_eq!(timeout(RELEASED, client.text(QUICK)).await.unwrap().unwrap(), ["25"], "the place is free");

        // The client's own.
        let mut request = tonic::Request::new(FlightDescriptor::new_cmd(statement(ENDLESS).encode_to_vec()));
        request.set_timeout(Duration::from_secs(1));
        let started = Instant::now();
        let late =
            timeout(RELEASED, client.flight().get_flight_info(request)).await.unwrap_or_else(|_| panic!("no deadline"));
        assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
        assert_eq!(timeout(RELEASED, client.text(QUICK)).await.unwrap().unwrap(), ["25"], "the place is free");
        // The crate's client counts as well, and names it in its own way.
        assert!(matches!(code(&late), Code::Cancelled | Code::DeadlineExceeded), "{late:?}");
        drop(gate);
        cluster.embedded.stop().await;
    });
}

#[test]
fn the_running_queries_of_one_identity_are_bounded_and_others_are_not_held_up() {
    on_runtime(async {
        let mut settings = Settings::shared().await;
        settings.limits.queries_per_principal = 1;
        let gate = Gate::start(settings).await;
        let (alice, bob) = (gate.client(&Login::key("alice")), gate.client(&Login::key("bob")));
        assert_eq!(alice.text(QUICK).await.unwrap(), ["25"]);
        // A statement that the gate computes holds a place as long as it is read.
        let ticket = alice.ticket("SELECT * FROM generate_series(1, 100000000)").await.unwrap();
        let mut stream = alice.flight().do_get(ticket).await.unwrap().into_inner();
        assert!(stream.message().await.unwrap().is_some());
        let waiting: Vec<_> = (0..4)
            .map(|_| {
                let alice = alice.clone();
                tokio::spawn(async move { alice.text(QUICK).await })
            })
            .collect();
        assert_eq!(bob.text(QUICK).await.unwrap(), ["25"], "bob has places of his own");
        drop(stream);
        let mut codes = Vec::new();
        for call in waiting {
            let answer = timeout(RELEASED, call).await.unwrap_or_else(|_| panic!("a call waits for ever")).unwrap();
            codes.push(code(&answer));
        }
        assert!(codes.contains(&Code::Ok), "{codes:?}");
        assert!(codes.iter().all(|code| matches!(code, Code::Ok | Code::ResourceExhausted)), "{codes:?}");
    });
}

#[test]
fn results_are_cleaned_with_their_session() {
    on_runtime(async {
        let cluster = Cluster::start(ONE).await;
        let gate = Gate::start(Settings::over(&cluster)).await;
        let client = gate.signed_in("alice").await;
        for _ in 0..3 {
            let ticket = client.ticket("SELECT o_orderkey FROM orders").await.unwrap();
            assert!(client.read(ticket).await.is_ok());
        }
        assert_eq!(gate.running.results_held(), 3);
        assert!(files(cluster.embedded.work_dir()) > 0, "results lie in the work directory");
        client.action("CloseSession", Bytes::new()).await.unwrap();
        assert_eq!(gate.running.results_held(), 0);
        until("the files of the session are gone", RELEASED, || async {
            Seen::when(files(cluster.embedded.work_dir()) == 0)
        })
        .await;
        let work_dir = cluster.embedded.work_dir().to_owned();
        drop(gate);
        cluster.embedded.stop().await;
        assert!(!work_dir.exists(), "a cluster that stops leaves nothing");
    });
}

#[test]
fn a_dead_executor_is_unavailable_soon_and_the_gate_recovers() {
    on_runtime(async {
        let cluster = Cluster::start(Size { executors: 2, vcores: 2 }).await;
        let gate = Gate::start(Settings::over(&cluster)).await;
        let client = gate.client(&Login::key("alice"));
        let ticket = client.ticket("SELECT n_name FROM nation").await.unwrap();
        assert!(client.read(ticket.clone()).await.is_ok());

        cluster.embedded.danger_kill_executors();
        let started = Instant::now();
        let lost = timeout(SOON, client.read(ticket)).await.unwrap_or_else(|_| panic!("no answer for a lost result"));
        assert_eq!(code(&lost), Code::Unavailable, "{lost:?}");
        assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());

        // A query that comes now either fails soon or runs on what the cluster has started since.
        let now = timeout(SOON, client.text(QUICK)).await.unwrap_or_else(|_| panic!("no answer for a new query"));
        assert!(matches!(code(&now), Code::Ok | Code::Unavailable), "{now:?}");
        assert_eq!(
            gate.client(&Login::key("bob")).text("SELECT 1").await.unwrap(),
            ["1"],
            "the gate needs no executor"
        );

        until("queries work again", Duration::from_secs(40), || async {
            let again = timeout(SOON, client.text(QUICK)).await.unwrap_or_else(|_| panic!("no answer"));
            assert!(matches!(code(&again), Code::Ok | Code::Unavailable), "{again:?}");
            Seen::when(again.is_ok())
        })
        .await;
        for _ in 0..5 {
            assert_eq!(client.text(QUICK).await.unwrap(), ["25"], "and go on working");
        }
        drop(gate);
        cluster.embedded.stop().await;
    });
}

#[test]
fn a_query_whose_executor_dies_is_run_again_or_unavailable_and_holds_up_nobody() {
    on_runtime(async {
        let cluster = Cluster::start(ONE).await;
        let gate = Gate::start(Settings::over(&cluster)).await;
        let client = gate.client(&Login::key("alice"));
        assert_eq!(client.text(QUICK).await.unwrap(), ["25"]);
        let mut call = tokio::spawn({
            let client = client.clone();
            async move { client.info(ENDLESS).await }
        });
        busy(&client).await;
        cluster.embedded.danger_kill_executors();
        match timeout(BUSY, &mut call).await {
            Ok(answer) => assert_eq!(code(&answer.unwrap()), Code::Unavailable),
            // The executor that came instead has it now; its client leaves.
            Err(_) => call.abort(),
        }
        until("queries work again", Duration::from_secs(40), || async {
            let again = timeout(SOON, client.text(QUICK)).await;
            Seen::when(matches!(again, Ok(Ok(_))))
        })
        .await;
        drop(gate);
        cluster.embedded.stop().await;
    });
}

#[test]
fn draining_lets_a_running_stream_finish_and_takes_nobody_new() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        let ticket = client.ticket(LONG).await.unwrap();
        let whole = client.messages(ticket.clone()).await.unwrap().len();
        assert!(whole > 10, "{whole} messages");

        let mut stream = client.flight().do_get(ticket).await.unwrap().into_inner();
        assert!(stream.message().await.unwrap().is_some());
        let address = gate.running.address();
        let drained = tokio::spawn(gate.running.drain(Duration::from_secs(30)));
        until("the port is closed", Duration::from_secs(5), || async {
            Seen::when(tokio::net::TcpStream::connect(address).await.is_err())
        })
        .await;
        let newcomer = Client::connect(address, &Login::key("bob"));
        assert_eq!(code(&newcomer.info("SELECT 1").await), Code::Unavailable);
        assert!(!drained.is_finished(), "the stream is waited for");
        let mut count = 1;
        while stream.message().await.unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, whole, "to the last message");
        drop((stream, client));
        timeout(Duration::from_secs(10), drained).await.unwrap_or_else(|_| panic!("the drain does not end")).unwrap();
    });
}

#[test]
fn draining_ends_when_its_time_is_over() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        let ticket = client.ticket(LONG).await.unwrap();
        let mut stream = client.flight().do_get(ticket).await.unwrap().into_inner();
        assert!(stream.message().await.unwrap().is_some());
        let drain = gate.running.drain(Duration::from_millis(200));
        timeout(Duration::from_secs(5), drain).await.unwrap_or_else(|_| panic!("a reader who stops holds the drain"));
    });
}

#[test]
fn a_reader_who_leaves_and_comes_back_finds_the_result() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        let ticket = client.ticket(LONG).await.unwrap();
        let whole = client.messages(ticket.clone()).await.unwrap().len();
        for _ in 0..3 {
            let mut stream = client.flight().do_get(ticket.clone()).await.unwrap().into_inner();
            assert!(stream.message().await.unwrap().is_some());
        }
        assert_eq!(client.messages(ticket).await.unwrap().len(), whole);
        let held = Arc::new(gate);
        assert_eq!(held.running.results_held(), 1);
    });
}

/// Until the one place of the cluster is taken.
async fn busy(client: &Client) {
    until("the only place is taken", RELEASED, || async {
        Seen::when(timeout(BUSY, client.text(QUICK)).await.is_err())
    })
    .await;
}

/// Files below a directory, of everything that is not empty.
fn files(directory: &std::path::Path) -> usize {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    entries
        .map(|entry| match entry {
            Ok(entry) if entry.path().is_dir() => files(&entry.path()),
            Ok(_) => 1,
            Err(_) => 0,
        })
        .sum()
}

const ONE: Size = Size { executors: 1, vcores: 1 };
const QUICK: &str = "SELECT count(*) FROM nation";
/// Years of work in one task.
const ENDLESS: &str = "SELECT count(*) FROM orders a CROSS JOIN orders b CROSS JOIN orders c \
                       WHERE a.o_totalprice + b.o_totalprice > c.o_totalprice";
/// Some tens of megabytes.
const LONG: &str = "SELECT repeat(o_comment, 50) FROM orders";
/// Longer than the quick query takes beside other tests.
const BUSY: Duration = Duration::from_secs(3);
const RELEASED: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_secs(20);
