//! Public reports that only a scheme which takes `Basic` can show, each as a test named after it.
//!
//! The other reports are tests of the real clients in `tests/clients/test_reports_*.py`. Must not repeat what
//! `handshake` and `session` show already: AU-04 and AU-10 are theirs.

use std::time::Duration;

use arrow_flight::HandshakeRequest;
use futures::TryStreamExt;
use tokio::time::timeout;
use tonic::Code;

use crate::support::login::Login;
use crate::support::{Gate, on_runtime};

/// AU-06 (apache/arrow#37722): client and server waited for each other, the one with its credential in the headers and
/// a stream without a message.
#[test]
fn au_06_a_handshake_is_answered_from_its_header_while_its_stream_stays_open() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::pair("alice"));
        let silent = futures::stream::pending::<HandshakeRequest>();
        let answer = timeout(SOON, client.flight().handshake(silent)).await.unwrap().unwrap();
        let authorization = answer.metadata().get("authorization").unwrap().to_str().unwrap().to_owned();
        let messages: Vec<_> = timeout(SOON, answer.into_inner().try_collect()).await.unwrap().unwrap();
        assert!(messages.len() <= 1);
        let token = authorization.strip_prefix("Bearer ").unwrap().to_owned();
        assert_eq!(gate.client(&Login::Bearer(token)).text("SELECT 1").await.unwrap(), ["1"]);

        let wrong = gate.client(&Login::Basic("alice".to_owned(), "wrong".to_owned()));
        let silent = futures::stream::pending::<HandshakeRequest>();
        let refused = timeout(SOON, wrong.flight().handshake(silent)).await.unwrap();
        assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
    });
}

/// A server that waits for a message never comes back; one that does not is long done.
const SOON: Duration = Duration::from_secs(10);
