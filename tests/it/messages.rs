//! No message is larger than clients take, whatever the rows are.

use std::time::Duration;

use arrow::array::{Array, AsArray};
use arrow_flight::FlightData;
use arrow_flight::sql::client::FlightSqlServiceClient;
use futures::TryStreamExt;
use prost::Message;
use tokio::time::timeout;
use tonic::Code;

use crate::support::client::only_ticket;
use crate::support::login::Login;
use crate::support::{Gate, on_runtime};

#[test]
fn wide_rows_come_in_messages_that_every_client_takes() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        for (sql, rows) in [
            ("SELECT repeat(o_comment, 50) AS c FROM orders", 15_000),
            ("SELECT repeat('x', 100000) AS c FROM orders LIMIT 300", 300),
            ("SELECT repeat(substr(n_name, 1, 1), 1000000) AS a, repeat(n_name, 100000) AS b FROM nation", 25),
            ("SELECT repeat('x', 100000) AS c FROM generate_series(1, 300)", 300),
            ("SELECT o_comment, o_comment, o_comment AS c FROM (SELECT *, 1 FROM orders)", 0),
            ("SELECT * FROM orders", 15_000),
            ("SELECT arrow_cast(repeat(o_comment, 50), 'Utf8View') AS c FROM orders", 15_000),
            ("SELECT [repeat(o_comment, 20), o_clerk] AS c FROM orders", 15_000),
        ] {
            if rows == 0 {
                // Two columns of one name cannot be told apart by name, and the planner says so.
                assert!(client.info(sql).await.is_err());
                continue;
            }
            let ticket = client.ticket(sql).await.unwrap_or_else(|status| panic!("{sql}: {status}"));
            let messages = client.messages(ticket.clone()).await.unwrap_or_else(|status| panic!("{sql}: {status}"));
            let largest = messages.iter().map(FlightData::encoded_len).max().unwrap();
            assert!(largest <= FOUR_MIB, "{sql}: a message of {largest} bytes");
            let batches = client.read(ticket).await.unwrap();
            assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), rows, "{sql}");
        }
    });
}

#[test]
fn rows_keep_their_order_and_their_values_when_they_are_cut() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        let sql = "SELECT o_orderkey, repeat(o_comment, 50) AS c FROM orders ORDER BY o_orderkey";
        let batches = client.rows(sql).await.unwrap();
        assert!(batches.len() > 5, "it was cut");
        let keys: Vec<i64> = batches
            .iter()
            .flat_map(|batch| batch.column(0).as_primitive::<arrow::datatypes::Int64Type>().values().to_vec())
            .collect();
        assert_eq!(keys.len(), 15_000);
        assert!(keys.is_sorted());
        let bytes: usize = batches
            .iter()
            .map(|batch| {
                let texts = batch.column(1).as_string::<i32>();
                (0..texts.len()).map(|row| texts.value(row).len()).sum::<usize>()
            })
            .sum();
        assert_eq!(client.text("SELECT sum(length(o_comment)) * 50 FROM orders").await.unwrap(), [bytes.to_string()]);
    });
}

/// An ordered exchange of Ballista sends a string view with the whole buffer behind it in each slice: two such sorts at
/// once, one of them far from its rows, filled an executor's memory.
#[test]
fn sorts_of_wide_texts_run_side_by_side() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        let sql = "SELECT o_orderkey, repeat(o_comment, 50) AS c FROM orders ORDER BY o_orderkey";
        for _ in 0..4 {
            let one = || async { client.ticket(sql).await.unwrap() };
            let both = async { tokio::join!(one(), one()) };
            let (one, other) = timeout(SORTED, both).await.unwrap_or_else(|_| panic!("not within {SORTED:?}"));
            for ticket in [one, other] {
                let batches = client.read(ticket).await.unwrap();
                assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 15_000);
            }
        }
    });
}

#[test]
fn a_large_cell_passes_and_a_larger_one_is_refused_clearly() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        let flight = client.flight().max_decoding_message_size(SIXTEEN_MIB);
        let mut sql = FlightSqlServiceClient::new_from_inner(flight);
        for (cell, from) in [("'x'", ""), ("substr(n_name, 1, 1)", " FROM nation LIMIT 1")] {
            let ten = format!("SELECT repeat({cell}, {}) AS c{from}", 10 * 1024 * 1024);
            let info = sql.execute(ten.clone(), None).await.unwrap();
            let batches: Vec<_> = sql.do_get(only_ticket(&info)).await.unwrap().try_collect().await.unwrap();
            assert_eq!(batches[0].column(0).as_string::<i32>().value(0).len(), 10 * 1024 * 1024, "{ten}");

            let twenty = format!("SELECT repeat({cell}, {}) AS c{from}", 20 * 1024 * 1024);
            let ticket = client.ticket(&twenty).await.unwrap();
            let refused = client.messages(ticket).await.unwrap_err();
            assert_eq!(refused.code(), Code::ResourceExhausted, "{twenty}: {refused}");
            assert!(refused.message().contains("too large"), "{refused}");
            assert_eq!(client.text("SELECT 1").await.unwrap(), ["1"], "the connection is usable");
        }
    });
}

#[test]
fn results_come_without_compression() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        let ticket = client.ticket("SELECT * FROM orders").await.unwrap();
        let mut batches = 0;
        for message in client.messages(ticket).await.unwrap() {
            let header = arrow::ipc::root_as_message(&message.data_header).unwrap();
            if let Some(batch) = header.header_as_record_batch() {
                assert!(batch.compression().is_none());
                batches += 1;
            }
            assert!(header.header_as_dictionary_batch().is_none());
        }
        assert!(batches > 0);
        assert!(!client.tape().headers.iter().any(|headers| headers.contains_key("grpc-encoding")));
    });
}

const FOUR_MIB: usize = 4 * 1024 * 1024;
const SIXTEEN_MIB: usize = 16 * 1024 * 1024;
const SORTED: Duration = Duration::from_secs(60);
