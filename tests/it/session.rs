//! Sessions: what lives in one, who shares one, and how one ends.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::sql::{CommandPreparedStatementUpdate, ProstMessageExt};
use bytes::Bytes;
use portcullis_auth::Clock;
use tonic::Code;
use tonic_types::StatusExt;

use crate::support::client::{Client, code};
use crate::support::login::Login;
use crate::support::{Gate, Seen, Settings, on_runtime, until};

#[test]
fn what_a_session_makes_is_seen_in_that_session_only() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let (one, other) = (gate.signed_in("alice").await, gate.signed_in("alice").await);
        let stranger = gate.signed_in("bob").await;

        // Once by each way in which drivers send statements without rows.
        assert_eq!(one.text("CREATE VIEW europe AS SELECT * FROM nation WHERE n_regionkey = 3").await.unwrap(), ["0"]);
        assert_eq!(one.update("CREATE VIEW few AS SELECT * FROM europe LIMIT 2").await.unwrap(), 0);
        let prepared = one.prepare("CREATE VIEW none AS SELECT * FROM few LIMIT 0").await.unwrap();
        assert!(prepared.dataset_schema.is_empty(), "an update has no result");
        let command = CommandPreparedStatementUpdate { prepared_statement_handle: prepared.prepared_statement_handle };
        assert_eq!(one.put(command.as_any()).await.unwrap(), 0);
        assert_eq!(one.update("SET datafusion.execution.batch_size = 777").await.unwrap(), 0);

        assert_eq!(one.text("SELECT count(*) FROM europe").await.unwrap(), ["5"]);
        assert_eq!(one.text("SELECT count(*) FROM few").await.unwrap(), ["2"]);
        assert_eq!(one.text("SELECT count(*) FROM none").await.unwrap(), ["0"]);
        assert_eq!(batch_size(&one).await, "777");

        for client in [&other, &stranger] {
            assert_eq!(client.text("SELECT count(*) FROM nation").await.unwrap(), ["25"]);
            let unseen = client.rows("SELECT count(*) FROM europe").await.unwrap_err();
            assert_eq!(unseen.code(), Code::InvalidArgument);
            assert!(unseen.message().contains("europe"), "{unseen}");
            let listed =
                client.text("SELECT table_name FROM information_schema.tables WHERE table_name = 'europe'").await;
            assert_eq!(listed.unwrap(), [""; 0]);
            assert_ne!(batch_size(client).await, "777");
        }
    });
}

#[test]
fn a_view_can_be_dropped_and_a_configured_table_cannot() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.signed_in("alice").await;
        client.update("CREATE VIEW v AS SELECT 1 AS one").await.unwrap();
        assert_eq!(client.text("SELECT * FROM v").await.unwrap(), ["1"]);
        client.update("DROP VIEW v").await.unwrap();
        assert_eq!(code(&client.rows("SELECT * FROM v").await), Code::InvalidArgument);
        for sql in [
            "DROP TABLE nation",
            "DROP VIEW nation",
            "CREATE VIEW nation AS SELECT 1",
            "CREATE OR REPLACE VIEW nation AS SELECT 1",
        ] {
            assert_eq!(code(&client.update(sql).await), Code::InvalidArgument, "{sql}");
            assert_eq!(client.text("SELECT count(*) FROM nation").await.unwrap(), ["25"], "{sql}");
        }
    });
}

#[test]
fn reset_takes_an_option_back() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.signed_in("alice").await;
        let before = batch_size(&client).await;
        client.update("SET datafusion.execution.batch_size = 777").await.unwrap();
        assert_eq!(batch_size(&client).await, "777");
        client.update("RESET datafusion.execution.batch_size").await.unwrap();
        assert_eq!(batch_size(&client).await, before);
    });
}

#[test]
fn closing_a_session_ends_its_token_and_its_results() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let (closing, staying) = (gate.signed_in("alice").await, gate.signed_in("alice").await);
        let sql = "SELECT count(*) FROM nation";
        let (lost, kept) = (closing.ticket(sql).await.unwrap(), staying.ticket(sql).await.unwrap());
        assert_eq!(closing.messages(lost.clone()).await.unwrap().len(), 2);
        // One identity's tickets can be read from all its sessions, as drivers open new connections to read.
        assert!(staying.read(lost.clone()).await.is_ok());
        assert_eq!(gate.running.results_held(), 2);

        assert_eq!(closing.action("CloseSession", Bytes::new()).await.unwrap(), [CLOSED]);
        for result in [closing.rows("SELECT 1").await.err(), closing.action("CloseSession", Bytes::new()).await.err()] {
            assert_eq!(result.unwrap().code(), Code::Unauthenticated);
        }
        assert_eq!(code(&staying.read(lost).await), Code::InvalidArgument);
        assert!(staying.read(kept).await.is_ok());
        assert_eq!(gate.running.results_held(), 1);
    });
}

#[test]
fn connections_with_one_key_share_a_session_that_none_of_them_can_close() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let (one, other) = (gate.client(&Login::key("alice")), gate.client(&Login::key("alice")));
        let (bob, namesake) = (gate.client(&Login::key("bob")), gate.client(&Login::pair("alice")));
        one.update("CREATE VIEW shared AS SELECT 7 AS n").await.unwrap();
        assert_eq!(one.action("CloseSession", Bytes::new()).await.unwrap(), [NOT_CLOSEABLE]);
        assert_eq!(other.text("SELECT * FROM shared").await.unwrap(), ["7"]);
        for client in [bob, namesake] {
            assert_eq!(code(&client.rows("SELECT * FROM shared").await), Code::InvalidArgument);
        }
    });
}

#[test]
fn a_session_ends_when_nobody_uses_it() {
    on_runtime(async {
        let mut settings = Settings::shared().await;
        settings.session.idle = Duration::from_secs(30 * 60);
        settings.session.lifetime = Duration::from_secs(12 * 60 * 60);
        let gate = Gate::start(settings).await;
        let client = gate.signed_in("alice").await;
        for _ in 0..3 {
            gate.clock.advance(Duration::from_secs(29 * 60));
            assert_eq!(client.text("SELECT 1").await.unwrap(), ["1"], "use keeps it");
        }
        let open = gate.running.sessions_open();
        gate.clock.advance(Duration::from_secs(30 * 60));
        assert_eq!(code(&client.rows("SELECT 1").await), Code::Unauthenticated);
        assert!(gate.running.sessions_open() < open);
    });
}

#[test]
fn a_session_ends_however_busy_it_is() {
    on_runtime(async {
        let mut settings = Settings::shared().await;
        settings.session.idle = Duration::from_secs(30 * 60);
        settings.session.lifetime = Duration::from_secs(60 * 60);
        let gate = Gate::start(settings).await;
        let start = gate.clock.now();
        let client = gate.signed_in("alice").await;
        for minute in [20, 40, 59] {
            gate.clock.set(start + Duration::from_secs(minute * 60));
            assert_eq!(client.text("SELECT 1").await.unwrap(), ["1"], "minute {minute}");
        }
        gate.clock.set(start + Duration::from_secs(60 * 60));
        assert_eq!(code(&client.rows("SELECT 1").await), Code::Unauthenticated);
    });
}

#[test]
fn a_revoked_user_is_out_at_once_and_for_good() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let (client, other) = (gate.signed_in("carol").await, gate.signed_in("alice").await);
        let ticket = client.ticket("SELECT count(*) FROM nation").await.unwrap();
        assert!(client.read(ticket.clone()).await.is_ok());
        gate.pairs.revoke("carol");
        assert_eq!(code(&client.read(ticket).await), Code::Unauthenticated);
        assert_eq!(code(&gate.client(&Login::pair("carol")).handshake().await), Code::Unauthenticated);
        assert_eq!(gate.running.results_held(), 0, "what the session held is gone with it");
        assert_eq!(other.text("SELECT 1").await.unwrap(), ["1"]);
    });
}

#[test]
fn at_the_cap_of_an_identity_the_session_that_rested_longest_goes() {
    on_runtime(async {
        let mut settings = Settings::shared().await;
        settings.session.max_per_principal = 3;
        let gate = Gate::start(settings).await;
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(gate.signed_in("alice").await);
            gate.clock.advance(Duration::from_secs(1));
        }
        // The first is used again, so that the second has rested longest.
        assert_eq!(clients[0].text("SELECT 1").await.unwrap(), ["1"]);
        clients.push(gate.signed_in("alice").await);
        for (at, expected) in [Code::Ok, Code::Unauthenticated, Code::Ok, Code::Ok].into_iter().enumerate() {
            assert_eq!(code(&clients[at].rows("SELECT 1").await), expected, "session {at}");
        }
        assert_eq!(gate.signed_in("bob").await.text("SELECT 1").await.unwrap(), ["1"], "the cap is one identity's");
    });
}

#[test]
fn at_the_cap_of_all_a_newcomer_is_told_to_come_back() {
    on_runtime(async {
        let mut settings = Settings::shared().await;
        settings.session.max_total = 4;
        let gate = Gate::start(settings).await;
        let first = gate.signed_in("alice").await;
        let mut refused = None;
        for user in ["bob", "carol", "dave", "nobody"] {
            if let Err(status) = gate.client(&Login::pair(user)).handshake().await {
                refused = Some((user, status));
                break;
            }
        }
        let (user, full) = refused.unwrap();
        assert_eq!(full.code(), Code::ResourceExhausted);
        let wait = full.get_details_retry_info().and_then(|info| info.retry_delay).unwrap();
        assert!(wait > Duration::ZERO);
        first.action("CloseSession", Bytes::new()).await.unwrap();
        assert!(gate.client(&Login::pair(user)).handshake().await.is_ok());
    });
}

#[test]
fn a_stream_keeps_its_session_from_being_idle() {
    on_runtime(async {
        let mut settings = Settings::shared().await;
        settings.session.idle = Duration::from_secs(60);
        let gate = Gate::start(settings).await;
        let client = gate.signed_in("alice").await;
        let ticket = client.ticket("SELECT repeat(o_comment, 40) FROM orders").await.unwrap();
        let mut stream = client.flight().do_get(ticket).await.unwrap().into_inner();
        assert!(stream.message().await.unwrap().is_some());
        gate.clock.advance(Duration::from_secs(120));
        assert_eq!(client.text("SELECT 1").await.unwrap(), ["1"], "it is in use");
        while stream.message().await.unwrap().is_some() {}
        drop(stream);
        let running = Arc::new(gate);
        until("the session rests", Duration::from_secs(10), || {
            let (client, gate) = (client.clone(), Arc::clone(&running));
            async move {
                gate.clock.advance(Duration::from_secs(120));
                Seen::when(code(&client.rows("SELECT 1").await) == Code::Unauthenticated)
            }
        })
        .await;
    });
}

async fn batch_size(client: &Client) -> String {
    let shown = client.text("SHOW datafusion.execution.batch_size").await.unwrap();
    shown.first().and_then(|row| row.rsplit_once('|')).map(|(_, value)| value.to_owned()).unwrap()
}

/// `CloseSessionResult` with its status.
const CLOSED: &[u8] = &[8, 1];
const NOT_CLOSEABLE: &[u8] = &[8, 3];
