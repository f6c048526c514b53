//! Tickets and handles: whose they are, how long they are good, and what becomes of everything that looks like one.

use std::time::Duration;

use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest, CommandGetCatalogs, CommandGetTables,
    CommandPreparedStatementUpdate, CommandStatementUpdate, ProstMessageExt,
};
use arrow_flight::{Action, Criteria, FlightData, FlightDescriptor, HandshakeRequest, Ticket};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use prost::Message;
use tonic::{Code, Status};

use crate::support::client::{Client, code, only_ticket, prepared, statement};
use crate::support::login::Login;
use crate::support::{Dice, Gate, on_runtime};

#[test]
fn a_ticket_is_read_by_its_owner_only_and_more_than_once() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let (alice, bob) = (gate.client(&Login::key("alice")), gate.client(&Login::key("bob")));
        let namesake = gate.client(&Login::pair("alice"));
        for sql in ["SELECT n_name FROM nation ORDER BY 1", "SELECT 42", "SHOW TABLES", "EXPLAIN SELECT 1"] {
            let ticket = alice.ticket(sql).await.unwrap();
            let first = alice.read(ticket.clone()).await.unwrap();
            assert!(!first.is_empty(), "{sql}");
            for thief in [&bob, &namesake] {
                let refused = thief.read(ticket.clone()).await.unwrap_err();
                assert_eq!(refused.code(), Code::InvalidArgument, "{sql}: {refused}");
            }
            assert_eq!(alice.read(ticket).await.unwrap(), first, "{sql}, read again");
        }
        let metadata = only_ticket(&alice.info_of(CommandGetCatalogs {}.as_any()).await.unwrap());
        assert_eq!(alice.read(metadata.clone()).await.unwrap()[0].num_rows(), 1);
        assert_eq!(code(&bob.read(metadata).await), Code::InvalidArgument);
    });
}

#[test]
fn a_prepared_statement_is_its_makers_only() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let (alice, bob) = (gate.client(&Login::key("alice")), gate.client(&Login::key("bob")));
        let handle = alice.prepare("SELECT count(*) FROM nation").await.unwrap().prepared_statement_handle;
        let ticket = only_ticket(&alice.info_of(prepared(handle.clone())).await.unwrap());
        assert_eq!(alice.read(ticket).await.unwrap()[0].num_rows(), 1);

        assert_eq!(code(&bob.info_of(prepared(handle.clone())).await), Code::NotFound);
        assert_eq!(code(&bob.schema(prepared(handle.clone())).await), Code::NotFound);
        let update = CommandPreparedStatementUpdate { prepared_statement_handle: handle.clone() };
        assert_eq!(code(&bob.put(update.as_any()).await), Code::NotFound);
        drop(bob.close_prepared(handle.clone()).await);
        assert!(alice.info_of(prepared(handle.clone())).await.is_ok(), "bob's close closed nothing of alice's");
        assert!(alice.close_prepared(handle.clone()).await.is_ok());
        assert!(alice.close_prepared(handle).await.is_ok(), "twice is fine");
    });
}

#[test]
fn a_ticket_and_a_handle_end_with_their_time() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        let info = client.info("SELECT count(*) FROM nation").await.unwrap();
        let told = info.endpoint[0].expiration_time.unwrap();
        let ticket = only_ticket(&info);
        let handle = client.prepare("SELECT 1").await.unwrap().prepared_statement_handle;
        let now = portcullis_auth::Clock::now(&*gate.clock);
        let told = std::time::SystemTime::try_from(told).unwrap().duration_since(now).unwrap();
        assert!(told > Duration::from_secs(30) && told <= Duration::from_secs(900), "{told:?}");

        gate.clock.advance(told - Duration::from_secs(1));
        assert!(client.read(ticket.clone()).await.is_ok(), "good until the time that was told");
        gate.clock.advance(Duration::from_secs(2));
        assert_eq!(code(&client.read(ticket).await), Code::InvalidArgument);
        assert!(client.info_of(prepared(handle.clone())).await.is_ok());
        gate.clock.advance(Duration::from_secs(13 * 60 * 60));
        assert_eq!(code(&client.info_of(prepared(handle)).await), Code::NotFound);
    });
}

#[test]
fn a_ticket_of_another_gate_opens_nothing() {
    on_runtime(async {
        let (here, there) = (Gate::shared().await, Gate::shared().await);
        let (near, far) = (here.client(&Login::key("alice")), there.client(&Login::key("alice")));
        let ticket = near.ticket("SELECT 1").await.unwrap();
        assert!(near.read(ticket.clone()).await.is_ok());
        assert_eq!(code(&far.read(ticket).await), Code::InvalidArgument);
        let token = here.client(&Login::pair("alice")).handshake().await.unwrap();
        assert!(here.client(&Login::Bearer(token.clone())).rows("SELECT 1").await.is_ok());
        assert_eq!(code(&there.client(&Login::Bearer(token)).rows("SELECT 1").await), Code::Unauthenticated);
    });
}

#[test]
fn one_kind_of_object_does_not_pass_for_another() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        let handle = client.prepare("SELECT 1").await.unwrap().prepared_statement_handle;
        let ticket = client.ticket("SELECT 1").await.unwrap();
        let sealed: arrow_flight::sql::TicketStatementQuery =
            arrow_flight::sql::Any::decode(ticket.ticket.clone()).unwrap().unpack().unwrap().unwrap();
        assert!(client.read(ticket).await.is_ok());

        let swapped = arrow_flight::sql::TicketStatementQuery { statement_handle: handle.clone() };
        for forged in [swapped.as_any().encode_to_vec(), handle.to_vec(), prepared(handle).encode_to_vec()] {
            assert_eq!(code(&client.read(Ticket::new(forged)).await), Code::InvalidArgument);
        }
        // A command is no ticket either: nothing runs that GetFlightInfo did not answer.
        for command in [statement("SELECT 1"), CommandGetCatalogs {}.as_any()] {
            assert_eq!(code(&client.read(Ticket::new(command.encode_to_vec())).await), Code::InvalidArgument);
        }
        assert_eq!(code(&client.info_of(prepared(sealed.statement_handle)).await), Code::NotFound);
    });
}

#[test]
fn damaged_tickets_and_handles_open_nothing() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        let ticket = client.ticket("SELECT 1").await.unwrap();
        assert!(client.read(ticket.clone()).await.is_ok());
        let handle = client.prepare("SELECT 1").await.unwrap().prepared_statement_handle;
        assert!(client.info_of(prepared(handle.clone())).await.is_ok());

        for damaged in every_bit_and_length(&ticket.ticket) {
            assert_eq!(code(&client.read(Ticket::new(damaged)).await), Code::InvalidArgument);
        }
        for damaged in every_bit_and_length(&handle) {
            let answer = client.info_of(prepared(damaged.into())).await;
            assert_eq!(code(&answer), Code::NotFound);
        }
        assert!(client.read(ticket).await.is_ok());
    });
}

/// Random bytes, and good requests with damage, as everything that a client can send on every RPC.
#[test]
fn no_bytes_make_a_fault_of_the_gate() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        let good = good_requests(&client).await;
        let mut dice = Dice::new(20_262_298);
        let mut answered = 0;
        for round in 0..ROUNDS {
            let bytes = match dice.below(4) {
                0 => {
                    let length = dice.below(200);
                    dice.bytes(length)
                }
                _ => {
                    let at = dice.below(good.len());
                    damage(&good[at], &mut dice)
                }
            };
            for (rpc, code) in send_everywhere(&client, &bytes).await {
                let fault = matches!(
                    code,
                    Code::Internal | Code::Unknown | Code::Unavailable | Code::DataLoss | Code::Unauthenticated
                );
                assert!(!fault, "round {round}: {rpc} with {bytes:02x?} answered {code:?}");
                answered += 1;
            }
        }
        assert!(answered > 3000, "{answered} calls");
        assert_eq!(client.text("SELECT count(*) FROM nation").await.unwrap(), ["25"], "the gate is alive");
    });
}

#[test]
fn what_is_not_a_request_is_refused_by_its_kind() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        for bytes in [&b""[..], b"\0", b"\xff\xff\xff\xff", b"SELECT 1", &[0x0b; 300]] {
            assert_eq!(
                code(&client.read(Ticket::new(bytes.to_vec())).await),
                Code::InvalidArgument,
                "ticket {bytes:02x?}"
            );
            let descriptor = FlightDescriptor::new_cmd(bytes.to_vec());
            let info = client.flight().get_flight_info(descriptor.clone()).await;
            assert_eq!(code(&info), Code::InvalidArgument, "command {bytes:02x?}");
            let schema = client.flight().get_schema(descriptor.clone()).await;
            assert_eq!(code(&schema), Code::InvalidArgument, "command {bytes:02x?}");
            let first = FlightData::new().with_descriptor(descriptor);
            let put = client.flight().do_put(futures::stream::iter([first])).await;
            assert_eq!(code(&put), Code::InvalidArgument, "put {bytes:02x?}");
            assert_eq!(
                code(&client.info_of(prepared(bytes.to_vec().into())).await),
                Code::NotFound,
                "handle {bytes:02x?}"
            );
        }
        for name in
            ["", "Nothing", "IO_BLOCK_TRANSPORT", "remove_job_data", "CancelFlightInfo", "createpreparedstatement"]
        {
            assert_eq!(code(&client.action(name, Bytes::new()).await), Code::Unimplemented, "action {name}");
        }
        for name in ["CreatePreparedStatement", "ClosePreparedStatement"] {
            for body in [&b""[..], b"\xff\xff", b"SELECT 1"] {
                assert_eq!(
                    code(&client.action(name, body.to_vec()).await),
                    Code::InvalidArgument,
                    "{name} {body:02x?}"
                );
            }
        }
        for path in [vec![], vec!["etc".to_owned(), "passwd".to_owned()]] {
            let info = client.flight().get_flight_info(FlightDescriptor::new_path(path)).await;
            assert_eq!(code(&info), Code::Unimplemented);
        }
        let empty = client.flight().do_put(futures::stream::iter(Vec::<FlightData>::new())).await;
        assert_eq!(code(&empty), Code::InvalidArgument, "a put without a message");
        let bare = client.flight().do_put(futures::stream::iter([FlightData::new()])).await;
        assert_eq!(code(&bare), Code::InvalidArgument, "a put without a descriptor");
    });
}

async fn good_requests(client: &Client) -> Vec<Vec<u8>> {
    let handle = client.prepare("SELECT 1").await.unwrap().prepared_statement_handle;
    let tables = CommandGetTables {
        catalog: Some("tpch".to_owned()),
        db_schema_filter_pattern: Some("p%".to_owned()),
        table_name_filter_pattern: None,
        table_types: vec!["TABLE".to_owned()],
        include_schema: true,
    };
    let close = ActionClosePreparedStatementRequest { prepared_statement_handle: handle.clone() };
    let create = ActionCreatePreparedStatementRequest { query: "SELECT 1".to_owned(), transaction_id: None };
    let update =
        CommandStatementUpdate { query: "SET datafusion.execution.batch_size = 999".to_owned(), transaction_id: None };
    vec![
        client.ticket("SELECT 1").await.unwrap().ticket.to_vec(),
        statement("SELECT 1 + 1 AS two, 'x'").encode_to_vec(),
        prepared(handle).encode_to_vec(),
        tables.as_any().encode_to_vec(),
        close.as_any().encode_to_vec(),
        create.as_any().encode_to_vec(),
        update.as_any().encode_to_vec(),
    ]
}

fn damage(good: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for _ in 0..=dice.below(4) {
        let at = dice.below(bytes.len().max(1));
        match dice.below(4) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, dice.next().to_le_bytes()[0]),
            2 => {
                let more = dice.bytes(8);
                bytes.extend(more);
            }
            _ if bytes.is_empty() => bytes.push(0),
            _ => bytes[at] ^= 1 << dice.below(8),
        }
        if bytes.is_empty() {
            bytes.push(0);
        }
    }
    bytes
}

async fn send_everywhere(client: &Client, bytes: &[u8]) -> Vec<(&'static str, Code)> {
    let mut flight = client.flight();
    let payload = Bytes::copy_from_slice(bytes);
    let descriptor = FlightDescriptor::new_cmd(payload.clone());
    let data = || {
        FlightData::new()
            .with_descriptor(descriptor.clone())
            .with_data_header(payload.clone())
            .with_data_body(payload.clone())
    };
    let name = String::from_utf8_lossy(bytes).into_owned();
    let mut codes = vec![
        ("DoGet", code(&client.messages(Ticket::new(payload.clone())).await)),
        ("GetFlightInfo", code(&flight.get_flight_info(descriptor.clone()).await)),
        ("GetSchema", code(&flight.get_schema(descriptor.clone()).await)),
        ("PollFlightInfo", code(&flight.poll_flight_info(descriptor.clone()).await)),
        ("ListFlights", code(&flight.list_flights(Criteria { expression: payload.clone() }).await)),
        ("DoPut", code(&drained(flight.do_put(futures::stream::iter([data()])).await).await)),
        ("DoExchange", code(&drained(flight.do_exchange(futures::stream::iter([data()])).await).await)),
        ("a path", code(&flight.get_flight_info(FlightDescriptor::new_path(vec![name.clone()])).await)),
        ("an action's name", code(&client.action(&name, payload.clone()).await)),
    ];
    for action in
        ["CreatePreparedStatement", "ClosePreparedStatement", "CloseSession", "GetSessionOptions", "SetSessionOptions"]
    {
        codes.push((action, code(&drained(flight.do_action(Action::new(action, payload.clone())).await).await)));
    }
    let hello = HandshakeRequest { protocol_version: 7, payload: payload.clone() };
    codes.push(("Handshake", code(&drained(flight.handshake(futures::stream::iter([hello])).await).await)));
    codes.push(("a handle", code(&client.info_of(prepared(payload)).await)));
    codes
}

async fn drained<T>(answer: Result<tonic::Response<tonic::Streaming<T>>, Status>) -> Result<(), Status> {
    answer?.into_inner().try_for_each(|_| async { Ok(()) }).await
}

fn every_bit_and_length(good: &[u8]) -> Vec<Vec<u8>> {
    let flipped = (0..good.len() * 8).map(|bit| {
        let mut bytes = good.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes
    });
    let cut = (0..good.len()).map(|length| good[..length].to_vec());
    flipped.chain(cut).collect()
}

const ROUNDS: usize = 250;

#[test]
fn who_reads_what_it_asks_for_may_ask_for_ever_and_who_does_not_is_stopped() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        let at_once = |count: usize| futures::stream::iter(0..count).map(|_| client.clone());
        let read = at_once(RESULTS + 200).map(|client| async move { client.text("SELECT 1").await });
        let read: Vec<_> = read.buffer_unordered(16).collect().await;
        assert!(read.iter().all(|answer| *answer.as_ref().unwrap() == ["1"]), "more than are kept, all of them read");

        let asked = at_once(RESULTS + 1).map(|client| async move { client.ticket("SELECT 1").await });
        let asked: Vec<_> = asked.buffer_unordered(16).collect().await;
        let refused: Vec<_> = asked.iter().filter_map(|ticket| ticket.as_ref().err()).collect();
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert_eq!(refused[0].code(), Code::ResourceExhausted);
        assert_eq!(gate.client(&Login::key("bob")).text("SELECT 1").await.unwrap(), ["1"], "another identity");

        // What is read then makes room.
        let one = asked.into_iter().find_map(Result::ok).unwrap();
        client.read(one).await.unwrap();
        assert_eq!(client.text("SELECT 1").await.unwrap(), ["1"]);
    });
}

/// That a gate keeps for one identity.
const RESULTS: usize = 4096;
