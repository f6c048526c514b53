//! Clients that take their time, and what they cost: readers that stop (H09), connections that say nothing (H18),
//! passwords by the hundred (B13).
//!
//! Memory is looked at from outside and of a process of its own, since the tests share theirs. Must not measure speed.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use arrow_flight::Ticket;
use prost::Message;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;
use tonic::Code;

use crate::cli::{PASSWORD, Place};
use crate::reload::trusting;
use crate::support::client::Client;
use crate::support::login::{KEYS, Login};
use crate::support::process::{Channel, Process};
use crate::support::schemes::{Watched, list_actions};
use crate::support::wire::{self, DEADLINE, Fate, Wire};
use crate::support::{PKI, Seen, Settings, on_runtime, until};

/// H09: a window of nothing. The gate keeps a message in hand for it, and not for ever.
#[test]
fn a_reader_that_stops_is_ended_in_time_and_holds_up_nobody() {
    on_runtime(async {
        let mut settings = Settings::shared().await;
        settings.limits.query_timeout = Duration::from_secs(8);
        settings.limits.queries_per_principal = 1;
        let watched = Watched::start(settings).await;
        let gate = &watched.gate;
        let (alice, bob) = (gate.client(&Login::key("alice")), gate.client(&Login::key("bob")));
        assert_eq!(alice.text("SELECT count(*) FROM nation").await.unwrap(), ["25"]);
        for (what, sql) in [("computed in the gate", ENDLESS), ("on the cluster", LARGE)] {
            let ticket = alice.ticket(sql).await.unwrap();
            drop(watched.decisions().await);
            let mut wire = stopped(gate.running.address(), &[&PKI.ca]).await;
            wire.send(&do_get(1, KEYS.of("alice"), &ticket)).await.unwrap();
            assert!(matches!(wire.fate(1).await, Fate::Answered(_)), "{what}");
            let answer = timeout(DEADLINE, bob.text("SELECT count(*) FROM nation")).await;
            assert_eq!(answer.unwrap_or_else(|_| panic!("{what}: held up")).unwrap(), ["25"]);
            until(&format!("{what}: the end is on record"), Duration::from_secs(25), || async {
                let ended = |line: &Value| line["event"] == "statement.end" && line["principal"] == "alice";
                Seen::when(watched.decisions().await.iter().any(ended))
            })
            .await;
            let place = timeout(DEADLINE, alice.text("SELECT count(*) FROM nation")).await;
            assert_eq!(place.unwrap_or_else(|_| panic!("{what}: no place")).unwrap(), ["25"]);
            // It is told so as soon as it reads.
            wire.send(&wire::frame(wire::WINDOW_UPDATE, 0, 1, &(1_u32 << 30).to_be_bytes())).await.unwrap();
            assert!(matches!(wire.fate(1).await, Fate::Answered(_)), "{what}: trailers");
        }
    });
}

/// H09: what readers that stop are worth in memory.
#[test]
fn readers_that_stop_hold_little_of_a_large_result() {
    let place = Place::make("slow-readers");
    let (gate, address) = serve(&place, "");
    let key = fs::read_to_string(place.0.join("key")).unwrap();
    let ca = fs::read_to_string(place.0.join("server.pem")).unwrap();
    let folder = place.0.clone();
    on_runtime(async move {
        let client = Client::connect_to(address, &Login::Bearer(key.clone()), &ca);
        let ticket = client.ticket(MILLIONS).await.unwrap();
        let mut whole = 0;
        let mut stream = client.flight().do_get(ticket.clone()).await.unwrap().into_inner();
        while let Some(message) = stream.message().await.unwrap() {
            whole += message.data_body.len();
        }
        assert!(whole > 100 << 20, "{whole} bytes");

        let before = settled(&folder).await;
        let mut readers = Vec::new();
        for _ in 0..READERS {
            let mut wire = stopped(address, &[&ca]).await;
            wire.send(&do_get(1, &key, &ticket)).await.unwrap();
            assert!(matches!(wire.fate(1).await, Fate::Answered(_)));
            // A little is read, so that everything before the client's window is filled.
            wire.send(&wire::frame(wire::WINDOW_UPDATE, 0, 1, &100_000_u32.to_be_bytes())).await.unwrap();
            readers.push(wire);
        }
        let grown = settled(&folder).await.saturating_sub(before);
        assert!(grown < EACH * READERS, "{grown} bytes for {READERS} readers");
        assert!(list_actions(&client).await.is_ok());
    });
    drop(gate);
}

/// H18, and H09 for a client that is gone without a word: connections whose other end does not answer.
#[test]
fn a_client_that_answers_no_ping_is_gone_within_a_minute() {
    on_runtime(async {
        let watched = Watched::start(Settings::shared().await).await;
        let gate = &watched.gate;
        let address = gate.running.address();
        let ticket = gate.client(&Login::key("alice")).ticket(LARGE).await.unwrap();
        let mut reading = stopped(address, &[&PKI.ca]).await;
        reading.send(&do_get(1, KEYS.of("alice"), &ticket)).await.unwrap();
        assert!(matches!(reading.fate(1).await, Fate::Answered(_)));
        let mut silent = stopped(address, &[&PKI.ca]).await;
        let mut answering = stopped(address, &[&PKI.ca]).await;
        drop(watched.decisions().await);

        let closed = async |wire: &mut Wire| {
            let read = timeout(Duration::from_secs(70), wire.stream.read_to_end(&mut Vec::new())).await;
            drop(read.unwrap_or_else(|_| panic!("the connection stays open")));
        };
        let both = async { tokio::join!(closed(&mut silent), closed(&mut reading)) };
        tokio::select! {
            _ = both => (),
            () = answer_pings(&mut answering) => panic!("one that answers is closed"),
        }
        until("the end is on record", Duration::from_secs(5), || async {
            Seen::when(watched.decisions().await.iter().any(|line| line["outcome"] == "cancelled"))
        })
        .await;
        let key = format!("Bearer {}", KEYS.of("alice"));
        let path = "/arrow.flight.protocol.FlightService/ListActions";
        let call = [wire::call(1, path, &[("authorization", key.as_bytes())]), wire::nothing(1)].concat();
        answering.send(&call).await.unwrap();
        assert!(matches!(answering.fate(1).await, Fate::Answered(_)), "it is still there");
    });
}

/// B13: a hundred wrong passwords at once take the memory of as many hashes as are made at once.
#[test]
fn a_flood_of_wrong_passwords_takes_the_memory_of_a_few_hashes() {
    let place = Place::make("slow-passwords");
    let limits = "[limits]\nfailed_auth_per_ip = \"100000/s\"\nfailed_auth_per_name = \"100000/s\"\n\
                  preauth_per_ip = \"100000/s\"\n";
    let (gate, address) = serve(&place, limits);
    let key = fs::read_to_string(place.0.join("key")).unwrap();
    let ca = fs::read_to_string(place.0.join("server.pem")).unwrap();
    let folder = place.0.clone();
    on_runtime(async move {
        let basic = |password: &str| Login::Basic("alice".to_owned(), password.to_owned());
        let client = Client::connect_to(address, &Login::Bearer(key), &ca);
        assert!(list_actions(&client).await.is_ok());
        settled(&folder).await;
        forget_peak(&folder);
        let before = memory(&folder, PEAK);
        let attempts: Vec<_> = (0..100)
            .map(|at| {
                let attempt = client.with(&basic(&format!("wrong-{at}")));
                tokio::spawn(async move { list_actions(&attempt).await.unwrap_err().code() })
            })
            .collect();
        let mut judged = 0;
        for attempt in attempts {
            let waited = timeout(DEADLINE, attempt).await.unwrap_or_else(|_| panic!("an attempt waits"));
            let code = waited.unwrap();
            if code == Code::Unauthenticated {
                judged += 1;
            } else {
                assert_eq!(code, Code::Unavailable);
            }
        }
        let cores = std::thread::available_parallelism().unwrap().get();
        let permits = u64::try_from(cores.div_ceil(2).min(4)).unwrap();
        let grown = memory(&folder, PEAK) - before;
        assert!(judged > permits, "{judged} were judged");
        // One hash takes 19 MiB, which is seen, less what is used again of what was given back before; the calls
        // and the program's own pages take a few MiB. One hash more would be out of this.
        const HASH: u64 = 19 << 20;
        let hashes = (permits * HASH - HASH / 2)..((permits + 1) * HASH - (4 << 20));
        assert!(hashes.contains(&grown), "{grown} bytes for {permits} hashes at a time");
        assert!(list_actions(&client.with(&basic(PASSWORD))).await.is_ok());
    });
    drop(gate);
}

/// A gate of its own with every scheme and what else the configuration says.
fn serve(place: &Place, more: &str) -> (Process, SocketAddr) {
    drop(place.write_five_schemes());
    let numbers: String = (0..NUMBERS).map(|number| format!("{number}\n")).collect();
    fs::write(place.0.join("nation.csv"), format!("n\n{numbers}")).unwrap();
    let text = place.five_schemes(0).replace("level = \"warn\"", "level = \"info\"");
    fs::write(place.0.join("all.toml"), format!("{text}\n{more}")).unwrap();
    let process = Process::start(&place.0, &["serve", "--config", "all.toml"]);
    let line = process.line_with(Channel::Err, "listening address=");
    let address = line.split_once("address=").unwrap().1.split_whitespace().next().unwrap().parse().unwrap();
    (process, address)
}

/// A connection on which the server may send no data.
async fn stopped(address: SocketAddr, cas: &[&str]) -> Wire {
    let mut wire = wire::connect(address, &trusting(cas)).await.unwrap();
    // SETTINGS_INITIAL_WINDOW_SIZE.
    wire.send(&wire::frame(wire::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])).await.unwrap();
    wire
}

fn do_get(stream: u32, key: &str, ticket: &Ticket) -> Vec<u8> {
    let call = wire::call(
        stream,
        "/arrow.flight.protocol.FlightService/DoGet",
        &[("authorization", format!("Bearer {key}").as_bytes())],
    );
    let message = ticket.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let data = [&[0][..], &length, &message].concat();
    [call, wire::frame(wire::DATA, wire::END_STREAM, stream, &data)].concat()
}

/// Ends when the connection does.
async fn answer_pings(wire: &mut Wire) {
    const ACK: u8 = 1;
    loop {
        match wire.next().await {
            Ok(frame) if frame.kind == wire::PING => {
                if wire.send(&wire::frame(wire::PING, ACK, 0, &frame.payload)).await.is_err() {
                    return;
                }
            }
            Ok(_) => (),
            Err(problem) if problem.kind() == std::io::ErrorKind::TimedOut => (),
            Err(_) => return,
        }
    }
}

/// The resident memory when it has stayed as it is for a second.
async fn settled(folder: &Path) -> u64 {
    let mut last = Vec::new();
    until("the memory settles", Duration::from_secs(60), || {
        last.push(memory(folder, NOW));
        let recent = last.get(last.len().saturating_sub(50)..).unwrap_or_default();
        let spread = recent.iter().max().unwrap() - recent.iter().min().unwrap();
        std::future::ready(Seen::when(recent.len() == 50 && spread < 1 << 20))
    })
    .await;
    *last.last().unwrap()
}

/// What the system says of the memory of the process that this one has started in `folder`.
fn memory(folder: &Path, what: &str) -> u64 {
    let status = fs::read_to_string(process_in(folder).join("status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// From here on the peak is that of what comes.
fn forget_peak(folder: &Path) {
    fs::write(process_in(folder).join("clear_refs"), "5").unwrap();
}

fn process_in(folder: &Path) -> std::path::PathBuf {
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let parent = format!("PPid:\t{}\n", std::process::id());
    let ours = |process: &std::path::PathBuf| {
        fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd == folder)
            && fs::read_to_string(process.join("status")).is_ok_and(|status| status.contains(&parent))
    };
    processes.filter(ours).min().unwrap()
}

const NOW: &str = "VmRSS:";
const PEAK: &str = "VmHWM:";
const ENDLESS: &str = "SELECT value, repeat('x', 1000) FROM generate_series(1, 100000000000)";
/// Some tens of megabytes.
const LARGE: &str = "SELECT repeat(o_comment, 50) FROM orders";
/// More than 100 MiB.
const MILLIONS: &str = "SELECT a.n AS one, b.n AS other, repeat('x', 40) AS text FROM nation a CROSS JOIN nation b";
const NUMBERS: usize = 1500;
const READERS: u64 = 8;
/// A message in hand here, a block there, and a window of blocks on their way; this process has both ends.
const EACH: u64 = 32 << 20;
