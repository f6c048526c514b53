//! Policies that are taken back, that ask who asks, and that no client can change.

use arrow_flight::sql::{CommandGetTables, ProstMessageExt};
use portcullis::access::Grants;
use portcullis::config::{Grant, Grantee, RowRule};
use tonic::Code;

use super::house::{House, grants, tables};
use super::ways::{read, session_option};
use crate::support::client::{Client, code, prepared};
use crate::support::{on_runtime, reading};

#[test]
fn a_view_over_a_table_that_was_taken_away_is_refused_as_if_the_table_had_never_been() {
    on_runtime(async {
        let house = House::open().await;
        let client = House::session_on(&house.client("analyst")).await;
        client.update("CREATE VIEW v AS SELECT id, note FROM orders WHERE id > 1").await.unwrap();
        client.update("CREATE VIEW w AS SELECT count(*) AS n FROM v").await.unwrap();
        let handle = client.prepare("SELECT * FROM w").await.unwrap().prepared_statement_handle;
        assert_eq!(client.text("SELECT * FROM w").await.unwrap(), ["4"]);
        assert_eq!(read(&client, prepared(handle.clone())).await.unwrap().rows, ["4"]);
        let ticket = client.ticket("SELECT id FROM v ORDER BY id").await.unwrap();

        house.gate.grants.replace(Grants::new(vec![reading("shop.public.open", role("analyst"))], Vec::new()));
        let absent = client.rows("SELECT * FROM odders").await.unwrap_err();
        assert_eq!(absent.code(), Code::InvalidArgument);
        for sql in [
            "SELECT * FROM w",
            "SELECT 1 FROM v LIMIT 0",
            "SELECT o.id FROM open o JOIN v ON v.id = o.id",
            "SELECT id FROM open WHERE id IN (SELECT id FROM v)",
            "EXPLAIN SELECT * FROM w",
            "EXPLAIN VERBOSE SELECT * FROM w",
            "CREATE VIEW x AS SELECT * FROM v",
            "SELECT * FROM orders",
        ] {
            let refused = client.rows(sql).await.unwrap_err();
            assert_eq!(refused.code(), absent.code(), "{sql}: {refused}");
            assert_eq!(refused.message(), absent.message().replace("odders", "orders"), "{sql}");
            let told = client.prepare(sql).await.unwrap_err();
            assert_eq!((told.code(), told.message()), (refused.code(), refused.message()), "{sql}, prepared");
        }
        let refused = read(&client, prepared(handle)).await.unwrap_err();
        assert_eq!(refused.message(), absent.message().replace("odders", "orders"));
        assert_eq!(client.text("SELECT count(*) FROM open").await.unwrap(), ["3"], "what is left is left");
        // What was judged before may be fetched.
        assert_eq!(crate::support::client::as_text(&client.read(ticket).await.unwrap()), ["3", "4", "5", "8"]);
        // The view is the session's own, and can be looked at and dropped.
        let listed = read(&client, CommandGetTables::default().as_any()).await.unwrap().rows;
        assert_eq!(listed, ["shop|public|open|TABLE", "shop|public|v|VIEW", "shop|public|w|VIEW"]);
        client.update("DROP VIEW w").await.unwrap();

        house.gate.grants.replace(Grants::new(grants(), Vec::new()));
        assert_eq!(client.text("SELECT count(*) FROM v").await.unwrap(), ["4"], "and given back");
    });
}

#[test]
fn a_view_shows_what_the_policy_of_the_moment_shows() {
    on_runtime(async {
        let house = House::open().await;
        let client = House::session_on(&house.client("analyst")).await;
        client.update("CREATE VIEW v AS SELECT id, card FROM orders").await.unwrap();
        let handle = client.prepare("SELECT * FROM v").await.unwrap().prepared_statement_handle;
        assert_eq!(
            client.text("SELECT * FROM v ORDER BY id").await.unwrap(),
            ["1|***", "3|***", "4|***", "5|***", "8|***"]
        );
        let of = |rows: &str| Grant { rows: RowRule::Where(rows.to_owned()), ..reading("*", role("analyst")) };
        house.gate.grants.replace(Grants::new(vec![of("id > 5")], Vec::new()));
        let expected = ["6|zqcardsix", "8|zqcardeight"];
        assert_eq!(client.text("SELECT * FROM v ORDER BY id").await.unwrap(), expected);
        assert_eq!(read(&client, prepared(handle)).await.unwrap().rows, expected);
        house.gate.grants.replace(Grants::new(vec![of("false")], Vec::new()));
        assert_eq!(client.text("SELECT * FROM v").await.unwrap(), [""; 0]);
    });
}

#[test]
fn what_a_client_sets_changes_no_policy() {
    on_runtime(async {
        let house = House::open().await;
        let question = "SELECT count(*), min(card), sum(amount) FROM shop.public.orders";
        let answer = ["5|***|210"];
        let analyst = house.client("analyst");
        let fresh = House::session_on(&analyst).await;
        assert_eq!(fresh.text(question).await.unwrap(), answer);
        let mut accepted = 0;
        for set in [
            "SET datafusion.sql_parser.enable_ident_normalization = false",
            "SET datafusion.sql_parser.parse_float_as_decimal = true",
            "SET datafusion.execution.time_zone = '+12:00'",
            "SET datafusion.execution.batch_size = 64",
            "SET datafusion.execution.target_partitions = 1",
            "SET datafusion.optimizer.prefer_hash_join = false",
            "SET datafusion.sql_parser.dialect = 'mysql'",
            "SET datafusion.sql_parser.recursion_limit = 2",
            "SET datafusion.optimizer.max_passes = 0",
            "SET datafusion.optimizer.skip_failed_rules = true",
            "SET datafusion.execution.parquet.pushdown_filters = true",
            "SET datafusion.catalog.default_schema = 'information_schema'",
            "SET current_user = 'owner'",
            "SET ROLE owner",
            "SET SESSION AUTHORIZATION owner",
            "CREATE FUNCTION has_role(VARCHAR) RETURNS BOOLEAN RETURN true",
            "CREATE FUNCTION user_attribute(VARCHAR) RETURNS VARCHAR RETURN 'US'",
            "CREATE FUNCTION current_user() RETURNS VARCHAR RETURN 'owner'",
            "DROP FUNCTION has_role",
            "CREATE VIEW \"user_attribute\" AS SELECT 'US' AS region",
        ] {
            let client = House::session_on(&analyst).await;
            accepted += usize::from(client.rows(set).await.is_ok());
            assert_eq!(client.text(question).await.unwrap(), answer, "{set}");
        }
        assert!(accepted >= 7, "only {accepted} were accepted");
        for (name, value) in [("catalog", "shop"), ("schema", "zqcellar"), ("user", "owner"), ("roles", "owner")] {
            let client = House::session_on(&analyst).await;
            client.action("SetSessionOptions", session_option(name, value)).await.unwrap();
            assert_eq!(client.text(question).await.unwrap(), answer, "{name}");
        }
    });
}

#[test]
fn a_policy_asks_who_asks() {
    on_runtime(async {
        let own = |predicate: &str, table: &str| Grant {
            rows: RowRule::Where(predicate.to_owned()),
            ..reading(&format!("shop.public.{table}"), Grantee::Everyone)
        };
        let mut rules = grants();
        rules.push(own("current_user() = 'user' || id", "open"));
        rules.push(own("CURRENT_USER = 'stranger' AND id = 3", "vault"));
        rules.push(own("has_role('writer') AND NOT has_role('owner')", "seen"));
        let house = House::with(tables(), rules).await;
        let ids = async |who: &str, table: &str| {
            let client: Client = house.client(who);
            client.text(&format!("SELECT id FROM {table} ORDER BY id")).await.unwrap()
        };
        assert_eq!(ids("user2", "open").await, ["2"]);
        assert_eq!(ids("user7", "open").await, [""; 0]);
        assert_eq!(ids("stranger", "vault").await, ["3"]);
        assert_eq!(ids("user2", "vault").await, [""; 0]);
        assert_eq!(ids("writer", "seen").await, ["1", "3", "4", "5", "8"]);
        assert_eq!(ids("stranger", "seen").await, [""; 0]);
        assert_eq!(ids("overseas", "orders").await, ["0", "2", "6"]);
        assert_eq!(ids("nowhere", "orders").await, [""; 0], "without the attribute nothing is equal to it");

        let cards =
            async |who: &str| house.client(who).text("SELECT DISTINCT card FROM orders WHERE id = 1").await.unwrap();
        assert_eq!(
            (cards("analyst").await, cards("auditor").await),
            (vec!["***".to_owned()], vec!["zqcardone".to_owned()])
        );

        let who = "SELECT current_user(), has_role('analyst'), has_role('owner'), user_attribute('region')";
        assert_eq!(house.client("analyst").text(who).await.unwrap(), ["analyst|true|false|EU"]);
        assert_eq!(house.client("owner").text(who).await.unwrap(), ["owner|false|true|"]);
        let per_row = house.client("analyst").rows("SELECT has_role(region) FROM orders").await;
        assert_eq!(code(&per_row), Code::InvalidArgument, "a question about the principal is not one about a row");
    });
}

fn role(name: &str) -> Grantee {
    Grantee::Role(name.to_owned())
}
