//! Frames, lengths and headers that no client library sends: the catalogue's C.6 against a gate over TCP.
//!
//! Whatever comes, strangers are refused before anything is looked at, a flood takes its own connection along and no
//! other, and the gate goes on. The announced limits and the flood of malformed calls are in `src/stack/tests.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::HandshakeRequest;
use bytes::Bytes;
use futures::StreamExt;
use tokio::time::{Instant, timeout};
use tonic::Code;
use tonic::body::Body;
use tower::ServiceExt;

use crate::support::client::Client;
use crate::support::login::{KEYS, Login};
use crate::support::schemes::{Watched, list_actions};
use crate::support::wire::{self, DEADLINE, Fate, Shown, Wire};
use crate::support::{Gate, Settings, on_runtime};

const LIST_ACTIONS: &str = "/arrow.flight.protocol.FlightService/ListActions";

async fn connect(gate: &Gate) -> Wire {
    let config = Arc::new(wire::client(rustls::ALL_VERSIONS, &[b"h2"], Shown::Nothing));
    wire::connect(gate.running.address(), &config).await.unwrap()
}

fn good() -> Vec<u8> {
    format!("Bearer {}", KEYS.of("alice")).into_bytes()
}

/// H04 and H05: frames that only cost.
#[test]
fn a_flood_of_frames_ends_its_connection_and_no_other() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        assert!(list_actions(&client).await.is_ok());
        let never_ending = {
            let open = wire::frame(wire::HEADERS, 0, 1, &[0x83, 0x87]);
            let more = wire::frame(wire::CONTINUATION, 0, 1, &[0, 1, b'a', 1, b'b'].repeat(200));
            [open, more.repeat(5_000)].concat()
        };
        // A call that waits for its message, so that the data belongs to somebody.
        let call = wire::call(1, LIST_ACTIONS, &[("authorization", &good())]);
        let empty = [call, wire::frame(wire::DATA, 0, 1, &[]).repeat(200_000)].concat();
        for (what, flood) in [("H04 headers that never end", never_ending), ("H05 data without data", empty)] {
            let frames = connect(&gate).await.flood(&flood).await;
            assert!(frames.iter().any(|frame| frame.kind == wire::GOAWAY), "{what}: {} frames", frames.len());
            assert!(list_actions(&client).await.is_ok(), "{what}: the other connection goes on");
        }
    });
}

/// H06 and H07: small frames, and what asks for an answer, from a client that reads none.
#[test]
fn small_frames_of_a_client_that_does_not_read_are_bounded() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        // H06: a message of 16 MiB in crumbs.
        let put = wire::call(1, "/arrow.flight.protocol.FlightService/DoPut", &[("authorization", &good())]);
        let put = [put, wire::frame(wire::DATA, 0, 1, &[0, 1, 0, 0, 0])].concat();
        for (what, first, kind, stream, payload) in [
            ("SETTINGS", vec![], wire::SETTINGS, 0, &[][..]),
            ("PING", vec![], wire::PING, 0, &[7; 8]),
            ("PRIORITY", vec![], wire::PRIORITY, 1, &[0, 0, 0, 0, 1]),
            ("WINDOW_UPDATE", vec![], wire::WINDOW_UPDATE, 0, &[0, 0, 0, 1]),
            ("DATA of one byte", put, wire::DATA, 1, &[7]),
        ] {
            let flood = [first, wire::frame(kind, 0, stream, payload).repeat(100_000)].concat();
            let mut wire = connect(&gate).await;
            // Whether it is taken or stopped by full buffers: the gate stays.
            drop(timeout(Duration::from_secs(3), wire.send(&flood)).await);
            let answer = timeout(Duration::from_secs(10), list_actions(&client)).await;
            assert!(answer.is_ok_and(|answer| answer.is_ok()), "{what}: the other connection goes on");
        }
    });
}

/// H08: headers beyond what is announced.
#[test]
fn headers_that_are_too_many_or_too_long_reach_nobody() {
    on_runtime(async {
        let watched = Watched::start(Settings::shared().await).await;
        let gate = &watched.gate;
        let key = good();
        let mut wire = connect(gate).await;
        let calls = [wire::call(1, LIST_ACTIONS, &[("authorization", &key)]), wire::nothing(1)].concat();
        wire.send(&calls).await.unwrap();
        assert!(matches!(wire.fate(1).await, Fate::Answered(_)));
        drop(watched.decisions().await);
        let many = [("x", b"y".as_slice())].repeat(10_000);
        let long = [("x", [b'y'; 120].as_slice())].repeat(1_000);
        for headers in [many, long] {
            let mut all = headers;
            all.push(("authorization", &key));
            let mut wire = connect(gate).await;
            // Larger than one frame may be: continued in as many as it takes.
            let block = wire::call(1, LIST_ACTIONS, &all).split_off(9);
            let mut chunks = block.chunks(16_000).peekable();
            let mut bytes = wire::frame(wire::HEADERS, 0, 1, chunks.next().unwrap());
            while let Some(chunk) = chunks.next() {
                let flags = if chunks.peek().is_none() { wire::END_HEADERS } else { 0 };
                bytes.extend(wire::frame(wire::CONTINUATION, flags, 1, chunk));
            }
            bytes.extend(wire::nothing(1));
            drop(wire.send(&bytes).await);
            match wire.fate(1).await {
                Fate::Gone | Fate::Reset => (),
                // `:status: 431` in Huffman's code, and nothing else: not an answer of gRPC.
                Fate::Answered(block) => assert_eq!(block, [0x48, 0x83, 0x69, 0x90, 0xff]),
            }
        }
        assert!(watched.decisions().await.is_empty(), "the gate was never asked");
        assert!(list_actions(&gate.client(&Login::key("alice"))).await.is_ok());
    });
}

/// H12 and H13: other methods, media types and headers of HTTP/1. Identity first.
#[test]
fn a_call_in_another_form_is_refused_to_strangers_first() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let (friend, stranger) = (gate.client(&Login::key("alice")), gate.client(&Login::Nothing));
        let usual = |method: &str, media: &str| {
            http::Request::builder().method(method).uri(LIST_ACTIONS).header("content-type", media)
        };
        assert_eq!(status(&friend, usual("POST", "application/grpc"), &[0; 5]).await, "0");
        let mut served = Vec::new();
        for (method, media) in [
            ("GET", "application/grpc"),
            ("PUT", "application/grpc"),
            ("OPTIONS", "application/grpc"),
            ("DELETE", "application/grpc"),
            ("POST", "text/plain"),
            ("POST", "application/grpc-web"),
            ("POST", "application/json"),
        ] {
            assert_eq!(status(&stranger, usual(method, media), &[0; 5]).await, "16", "{method} {media}");
            if status(&friend, usual(method, media), &[0; 5]).await == "0" {
                served.push(format!("{method} {media}"));
            }
        }
        assert!(served.is_empty(), "these are served: {served:?}");
        for (name, value) in
            [("connection", "close"), ("transfer-encoding", "chunked"), ("upgrade", "h2c"), ("keep-alive", "x")]
        {
            let mut wire = connect(&gate).await;
            let headers = [("authorization", good()), (name, value.as_bytes().to_vec())];
            let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_slice())).collect();
            wire.send(&[wire::call(1, LIST_ACTIONS, &headers), wire::nothing(1)].concat()).await.unwrap();
            let fate = wire.fate(1).await;
            assert!(matches!(fate, Fate::Gone | Fate::Reset), "{name}: {fate:?}");
        }
        assert!(list_actions(&friend).await.is_ok());
    });
}

/// H14: a message that is not what its prefix says.
#[test]
fn a_length_that_lies_costs_nothing() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let (friend, stranger) = (gate.client(&Login::key("alice")), gate.client(&Login::Nothing));
        let call = |encoding: &str| {
            let call = http::Request::post(LIST_ACTIONS).header("content-type", "application/grpc");
            if encoding.is_empty() { call } else { call.header("grpc-encoding", encoding) }
        };
        assert_eq!(status(&friend, call(""), &[0; 5]).await, "0");
        for (what, encoding, bytes) in [
            ("4 GiB", "", &[0, 0xff, 0xff, 0xff, 0xff, 1][..]),
            ("more than is taken", "", &[0, 2, 0, 0, 0, 1]),
            ("less than is said", "", &[0, 0, 0, 0, 9, 1]),
            ("half a prefix", "", &[0, 0, 0]),
            ("compressed by nothing", "", &[1, 0, 0, 0, 0]),
            ("compressed by gzip", "gzip", &[1, 0, 0, 0, 2, 0x1f, 0x8b]),
            ("compressed by what nobody knows", "zz", &[1, 0, 0, 0, 0]),
            ("another flag", "", &[7, 0, 0, 0, 0]),
        ] {
            assert_eq!(status(&stranger, call(encoding), bytes).await, "16", "{what}");
            let answer = status(&friend, call(encoding), bytes).await;
            assert!(!["0", "none", "16", "2"].contains(&answer.as_str()), "{what}: {answer}");
        }
        assert!(list_actions(&friend).await.is_ok());
    });
}

/// H15: deadlines that are not ones.
#[test]
fn a_deadline_is_kept_and_nonsense_is_none() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        for (text, expected) in
            [("3S", "0"), ("99999999H", "0"), ("-1S", "0"), ("S", "0"), ("123456789S", "0"), ("1x", "0")]
        {
            let call = http::Request::post(LIST_ACTIONS)
                .header("content-type", "application/grpc")
                .header("grpc-timeout", text);
            assert_eq!(status(&client, call, &[0; 5]).await, expected, "{text}");
        }
    });
}

/// H20 and H21: handshakes that are not ended, or say too much.
#[test]
fn handshakes_that_do_not_end_are_ended() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::pair("alice"));
        let started = Instant::now();
        let open: Vec<_> = (0..100)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move {
                    let silent = futures::stream::pending::<HandshakeRequest>();
                    let mut answers = client.flight().handshake(silent).await?.into_inner();
                    while answers.message().await?.is_some() {}
                    Ok::<_, tonic::Status>(())
                })
            })
            .collect();
        assert!(list_actions(&client).await.is_ok(), "meanwhile");
        let mut opened = 0;
        for handshake in open {
            let ended = timeout(DEADLINE, handshake).await.unwrap_or_else(|_| panic!("a handshake stays open"));
            match ended.unwrap() {
                Ok(()) => opened += 1,
                // No identity has more sessions than that at a time, and these are in use.
                Err(status) => assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}"),
            }
        }
        assert!(opened >= 32, "{opened}");
        assert!(client.handshake().await.is_ok(), "and afterwards");
        assert!(started.elapsed() < Duration::from_secs(25), "{:?}", started.elapsed());

        let endless = futures::stream::repeat(HandshakeRequest::default()).take(100_000);
        let talk = async {
            let mut answers = client.flight().handshake(endless).await?.into_inner();
            let mut count = 0;
            while answers.message().await?.is_some() {
                count += 1;
            }
            Ok::<_, tonic::Status>(count)
        };
        let count = timeout(DEADLINE, talk).await.unwrap_or_else(|_| panic!("it goes on and on"));
        assert!(count.is_ok_and(|count| count <= 1), "one answer at most");
        assert!(list_actions(&client).await.is_ok());
    });
}

/// H10: calls that never say what they want. Strangers are answered at once, others are given up.
#[test]
fn a_call_without_a_message_is_given_up() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let mut wire = connect(&gate).await;
        wire.send(&wire::call(1, LIST_ACTIONS, &[])).await.unwrap();
        assert!(matches!(timeout(Duration::from_secs(5), wire.fate(1)).await, Ok(Fate::Answered(_))), "a stranger");
        let mut open = BTreeSet::from(["ListActions", "GetFlightInfo", "GetSchema", "DoGet", "DoAction", "DoPut"]);
        let mut waiting = Vec::new();
        for rpc in &open {
            let mut wire = connect(&gate).await;
            let path = format!("/arrow.flight.protocol.FlightService/{rpc}");
            wire.send(&wire::call(1, &path, &[("authorization", &good())])).await.unwrap();
            waiting.push((*rpc, wire));
        }
        let given_up = waiting.into_iter().map(|(rpc, mut wire)| async move {
            // Whatever it is told, it is not left alone.
            timeout(Duration::from_secs(29), wire.fate(1)).await.is_ok().then_some(rpc)
        });
        for rpc in futures::future::join_all(given_up).await.into_iter().flatten() {
            open.remove(rpc);
        }
        assert!(open.is_empty(), "these wait for ever: {open:?}");
    });
}

/// The gRPC status of a call, from its headers or its trailers; `none` if it tells none.
async fn status(client: &Client, call: http::request::Builder, body: &'static [u8]) -> String {
    let body = Body::new(http_body_util::Full::new(Bytes::from_static(body)));
    let request = call.header("te", "trailers").body(body).unwrap();
    let answer = timeout(DEADLINE, client.line().oneshot(request)).await.unwrap_or_else(|_| panic!("no answer"));
    let Ok(response) = answer else { return "none".to_owned() };
    let told = |headers: &http::HeaderMap| headers.get("grpc-status").map(|code| code.to_str().unwrap().to_owned());
    if let Some(code) = told(response.headers()) {
        return code;
    }
    let collected = timeout(DEADLINE, http_body_util::BodyExt::collect(response.into_body())).await;
    let collected = collected.unwrap_or_else(|_| panic!("the answer does not end"));
    match collected {
        Ok(body) => body.trailers().and_then(told).unwrap_or_else(|| "none".to_owned()),
        Err(status) => format!("{}", i32::from(status.code())).replace(&i32::from(Code::Ok).to_string(), "none"),
    }
}
