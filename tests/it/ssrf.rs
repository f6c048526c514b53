//! Nothing that a client sends chooses an address that the gate dials.
//!
//! The flight proxy of a Ballista scheduler dials what a ticket names; whoever forges such a ticket here must reach
//! nobody.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_flight::sql::{Any, ProstMessageExt, TicketStatementQuery};
use arrow_flight::{Action, FlightDescriptor, Ticket};
use ballista_core::serde::protobuf;
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tonic::Code;

use crate::support::client::{code, prepared};
use crate::support::login::Login;
use crate::support::{Gate, Seen, on_runtime, until};

#[test]
fn a_forged_fetch_ticket_makes_no_connection() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let arrived = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&arrived);
        tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        let count = || arrived.load(Ordering::SeqCst);

        // The listener would notice.
        drop(TcpStream::connect(address).await.unwrap());
        until("a connection is seen", std::time::Duration::from_secs(5), || async { Seen::when(count() == 1) }).await;

        for host in ["127.0.0.1", "localhost", "::ffff:127.0.0.1"] {
            let fetch = forged(host, address.port(), "job-1");
            for ticket in disguises(&fetch) {
                let answer = client.read(Ticket::new(ticket.clone())).await;
                assert_eq!(code(&answer), Code::InvalidArgument, "{host}: {answer:?}");
                let descriptor = FlightDescriptor::new_cmd(ticket.clone());
                for answer in [
                    client.flight().get_flight_info(descriptor.clone()).await.err(),
                    client.flight().get_schema(descriptor.clone()).await.err(),
                    client.flight().poll_flight_info(descriptor).await.err(),
                ] {
                    let code = answer.unwrap().code();
                    assert!(matches!(code, Code::InvalidArgument | Code::Unimplemented), "{host}: {code:?}");
                }
                for action in ["IO_BLOCK_TRANSPORT", "remove_job_data", "FetchPartition"] {
                    let answer = client.flight().do_action(Action::new(action, ticket.clone())).await;
                    assert_eq!(code(&answer), Code::Unimplemented, "{host}");
                }
                assert_eq!(code(&client.info_of(prepared(ticket.into())).await), Code::NotFound);
            }
        }
        assert_eq!(
            client.text("SELECT count(*) FROM nation").await.unwrap(),
            ["25"],
            "alive, and dialling its own executors"
        );
        assert_eq!(count(), 1, "somebody was dialled");
    });
}

#[test]
fn a_forged_job_id_reads_no_file() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        assert!(client.rows("SELECT count(*) FROM nation").await.is_ok());
        for job in ["/etc/passwd", "../../../../etc/passwd", "..", ""] {
            for ticket in disguises(&forged("127.0.0.1", 1, job)) {
                assert_eq!(code(&client.read(Ticket::new(ticket)).await), Code::InvalidArgument, "{job}");
            }
        }
    });
}

fn forged(host: &str, port: u16, job: &str) -> Vec<u8> {
    let fetch = protobuf::FetchPartition {
        job_id: job.to_owned(),
        stage_id: 1,
        partition_id: 0,
        host: host.to_owned(),
        port: u32::from(port),
        ..protobuf::FetchPartition::default()
    };
    protobuf::Action { action_type: Some(protobuf::action::ActionType::FetchPartition(fetch)), settings: Vec::new() }
        .encode_to_vec()
}

/// As it is, and in everything that the gate unwraps.
fn disguises(fetch: &[u8]) -> Vec<Vec<u8>> {
    let wrapped = |url: &str| Any { type_url: url.to_owned(), value: fetch.to_vec().into() }.encode_to_vec();
    vec![
        fetch.to_vec(),
        wrapped("type.googleapis.com/ballista.protobuf.Action"),
        wrapped("type.googleapis.com/arrow.flight.protocol.sql.TicketStatementQuery"),
        TicketStatementQuery { statement_handle: fetch.to_vec().into() }.as_any().encode_to_vec(),
    ]
}
