//! Views that are kept: what outlives the session, and that a view gives nobody a right.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use arrow_flight::sql::{CommandGetTables, ProstMessageExt};
use portcullis::config::{Grant, Grantee, RowRule, Views};
use portcullis_auth::Action;
use tonic::Code;

use super::{columns, folder, gate, gate_of, gate_whose_views_are, gate_with, person};
use crate::support::client::{Client, code};
use crate::support::login::Login;
use crate::support::{Seen, Settings, on_runtime, reading, until};
use crate::whose::ways::read;

async fn listed(client: &Client) -> Vec<String> {
    read(client, CommandGetTables::default().as_any()).await.unwrap().rows
}

#[test]
fn a_view_outlives_the_session_and_the_gate() {
    on_runtime(async {
        let folder = folder();
        let first = gate(&folder).await;
        let alice = person(&first, "alice");
        let made = alice.update("CREATE VIEW europe AS SELECT n_name AS name FROM nation WHERE n_regionkey = 3").await;
        assert_eq!(made.unwrap(), 0);
        let few = "CREATE VIEW few (one, n) AS SELECT min(name), count(*) FROM europe";
        assert_eq!(alice.text(few).await.unwrap(), ["0"]);
        let both = "CREATE VIEW both AS SELECT * FROM europe, few";
        assert!(alice.prepare(both).await.unwrap().dataset_schema.is_empty(), "a statement without rows");
        alice.update(both).await.unwrap();

        let session = alice.with(&Login::Bearer(alice.handshake().await.unwrap()));
        let second = gate(&folder).await;
        for client in [&alice, &session, &person(&second, "alice")] {
            assert_eq!(client.text("SELECT * FROM few").await.unwrap(), ["FRANCE|5"]);
            let joined = "SELECT count(*) FROM both b JOIN tpch.public.europe e ON b.name = e.name WHERE b.n = 5";
            assert_eq!(client.text(joined).await.unwrap(), ["5"]);
            let nested = "SELECT r_name FROM region WHERE r_regionkey < (SELECT max(n) FROM few) AND EXISTS \
                          (SELECT 1 FROM europe e WHERE e.name = 'RUSSIA' AND r_regionkey = 3)";
            assert_eq!(client.text(nested).await.unwrap(), ["EUROPE"]);
            assert_eq!(columns(client, "few").await, ["n|Int64|NO", "one|Utf8|YES"]);
            let listed = listed(client).await;
            assert_eq!(listed.iter().filter(|row| row.ends_with("|VIEW")).count(), 3, "{listed:?}");
        }
        let plan = alice.text("EXPLAIN SELECT * FROM few").await.unwrap().join("");
        assert!(plan.contains("TableScan: nation"), "{plan}");
        let shown = alice.text("SHOW CREATE TABLE few").await.unwrap().join("");
        assert!(shown.contains(few), "{shown}");
    });
}

#[test]
fn a_name_is_given_once_whether_to_a_table_or_to_a_view() {
    on_runtime(async {
        let folder = folder();
        let creates = BTreeSet::from([Action::Create]);
        let anywhere = Grant { allow: creates, ..reading("*", Grantee::User("frank".to_owned())) };
        let gate = gate_with(&folder, vec![anywhere]).await;
        let (alice, bob) = (person(&gate, "alice"), person(&gate, "bob"));
        alice.update("CREATE VIEW v AS SELECT 1 AS a").await.unwrap();
        alice.update("CREATE TABLE t AS SELECT 1 AS a").await.unwrap();
        for (sql, name) in [
            ("CREATE VIEW v AS SELECT 2 AS a", "v"),
            ("CREATE TABLE v (a INT)", "v"),
            ("CREATE VIEW t AS SELECT 2", "t"),
        ] {
            let refused = alice.update(sql).await.unwrap_err();
            let told = format!("table `{name}` already exists");
            assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, told.as_str()), "{sql}");
        }
        alice.update("CREATE OR REPLACE VIEW v AS SELECT a + 1 AS b FROM t").await.unwrap();
        assert_eq!(alice.text("SELECT b FROM v").await.unwrap(), ["2"]);
        for (sql, told) in [
            ("CREATE OR REPLACE TABLE v (a INT)", "`v` is a view"),
            ("CREATE OR REPLACE VIEW t AS SELECT 1 AS a", "`t` is a table"),
            ("DROP TABLE v", "`v` is a view"),
            ("DROP VIEW t", "`t` is a table"),
        ] {
            assert_eq!(alice.update(sql).await.unwrap_err().message(), told, "{sql}");
        }
        // Bob may make some there, and so learns of names.
        assert_eq!(bob.rows("SELECT * FROM v").await.unwrap_err().message(), "you may not read table `v`");
        for sql in ["DROP VIEW v", "CREATE OR REPLACE VIEW v AS SELECT 3 AS a"] {
            assert_eq!(bob.update(sql).await.unwrap_err().message(), "you may not drop table `v`", "{sql}");
        }
        alice.update("DROP VIEW v").await.unwrap();
        assert_eq!(code(&alice.update("DROP VIEW v").await), Code::InvalidArgument);
        assert_eq!(alice.update("DROP VIEW IF EXISTS v").await.unwrap(), 0);
        bob.update("CREATE VIEW v AS SELECT 4 AS a").await.unwrap();
        assert_eq!(bob.text("SELECT a FROM v").await.unwrap(), ["4"]);
        // Nothing is kept where there is no schema, whatever a grant says.
        let [erin, everywhere] = ["erin", "frank"].map(|name| person(&gate, name));
        assert_eq!(code(&erin.update("CREATE VIEW tpch.nowhere.v AS SELECT 1 AS a").await), Code::InvalidArgument);
        let refused = everywhere.update("CREATE VIEW tpch.nowhere.v AS SELECT 1 AS a").await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, "there is no schema `tpch.nowhere`"));
        for sql in ["CREATE VIEW twice AS SELECT a.a, b.a FROM v a, v b", "INSERT INTO v VALUES (1)"] {
            assert_ne!(code(&bob.update(sql).await), Code::Ok, "{sql}");
        }
    });
}

#[test]
fn what_means_something_in_the_session_alone_stays_there() {
    on_runtime(async {
        let folder = folder();
        let gate = gate(&folder).await;
        let (alice, carol) = (person(&gate, "alice"), person(&gate, "carol"));
        let one = alice.with(&Login::Bearer(alice.handshake().await.unwrap()));
        let other = alice.with(&Login::Bearer(alice.handshake().await.unwrap()));
        one.update("CREATE TEMPORARY VIEW own AS SELECT 1 AS a").await.unwrap();
        one.update("CREATE VIEW onown AS SELECT a FROM own").await.unwrap();
        one.update("CREATE VIEW kept AS SELECT 2 AS a").await.unwrap();
        one.update("SET datafusion.sql_parser.enable_ident_normalization = false").await.unwrap();
        one.update("CREATE VIEW spelled AS SELECT N FROM (SELECT 3 AS N) AS S").await.unwrap();
        assert_eq!(one.text("SELECT * FROM own, onown, kept, spelled").await.unwrap(), ["1|1|2|3"]);
        assert_eq!(other.text("SELECT * FROM kept").await.unwrap(), ["2"]);
        for absent in ["own", "onown", "spelled"] {
            assert_eq!(code(&other.rows(&format!("SELECT * FROM {absent}")).await), Code::InvalidArgument, "{absent}");
        }
        // Who may make nothing there has views all the same.
        carol.update("CREATE VIEW hers AS SELECT count(*) AS n FROM nation").await.unwrap();
        assert_eq!(carol.text("SELECT n FROM hers").await.unwrap(), ["25"]);
        assert_eq!(code(&alice.rows("SELECT n FROM hers").await), Code::InvalidArgument);
        carol.update("DROP VIEW hers").await.unwrap();
    });
}

#[test]
fn a_gate_can_leave_views_to_their_sessions() {
    on_runtime(async {
        let folder = folder();
        let keeps = gate(&folder).await;
        person(&keeps, "alice").update("CREATE VIEW before AS SELECT 1 AS a").await.unwrap();
        let gate = gate_whose_views_are(Views::InSession, &folder, Vec::new(), Settings::shared().await).await;
        let alice = person(&gate, "alice");
        let one = alice.with(&Login::Bearer(alice.handshake().await.unwrap()));
        one.update("CREATE VIEW own AS SELECT a + 1 AS b FROM before").await.unwrap();
        assert_eq!(one.text("SELECT b FROM own").await.unwrap(), ["2"]);
        assert_eq!(code(&alice.rows("SELECT b FROM own").await), Code::InvalidArgument);
    });
}

#[test]
fn a_view_gives_nobody_a_right_and_tells_nothing_of_its_text() {
    on_runtime(async {
        let folder = folder();
        let to = |user: &str| Grantee::User(user.to_owned());
        let more = vec![
            reading("tpch.public.customer", to("alice")),
            // Carol sees a part of the table, and all of the view.
            Grant {
                rows: RowRule::Where("c_nationkey <> 7".to_owned()),
                masks: BTreeMap::from([("c_phone".to_owned(), "'***'".to_owned())]),
                ..reading("tpch.public.customer", to("carol"))
            },
            reading("tpch.public.zqview", to("carol")),
            reading("tpch.public.zqfails", to("carol")),
            // What would hide something of a table hides nothing of a view, which holds nothing.
            Grant {
                rows: RowRule::Where("c_nationkey < 0".to_owned()),
                masks: BTreeMap::from([("key".to_owned(), "-1".to_owned())]),
                ..reading("tpch.public.zqview", to("erin"))
            },
            reading("tpch.public.customer", to("erin")),
            reading("tpch.public.zqview", to("dave")),
            reading("tpch.public.zqfails", to("dave")),
        ];
        let gate = gate_with(&folder, more).await;
        let [alice, carol, dave] = ["alice", "carol", "dave"].map(|name| person(&gate, name));
        let [erin, frank] = ["erin", "frank"].map(|name| person(&gate, name));
        for sql in [
            "CREATE VIEW zqview AS SELECT c_custkey AS key, c_phone AS phone, c_nationkey AS nation FROM customer",
            "CREATE VIEW zqfails AS SELECT 1 / (c_nationkey - 7) AS q FROM customer",
            "CREATE VIEW zqonview AS SELECT * FROM zqview",
        ] {
            alice.update(sql).await.unwrap();
        }
        let of_view =
            "SELECT count(*), min(phone), count(DISTINCT phone), count(DISTINCT nation), min(key) FROM zqview";
        let direct = "SELECT count(*), min(c_phone), count(DISTINCT c_phone), count(DISTINCT c_nationkey), \
                      min(c_custkey) FROM customer";
        for client in [&alice, &carol, &erin] {
            assert_eq!(client.text(of_view).await.unwrap(), client.text(direct).await.unwrap());
        }
        let (all, part) = (alice.text(of_view).await.unwrap(), carol.text(of_view).await.unwrap());
        assert!(part[0].contains("|***|1|24|") && !all[0].contains('*'), "{all:?} {part:?}");
        // What is hidden is not found out by what fails.
        let fails = alice.rows("SELECT q FROM zqfails").await.unwrap_err();
        assert!(fails.message().to_lowercase().contains("divide by zero"), "{fails}");
        let passed = carol.text("SELECT count(q) FROM zqfails").await.unwrap();
        assert!(part[0].starts_with(&format!("{}|", passed[0])), "{passed:?} {part:?}");

        // Dave may read the views and nothing behind them.
        for sql in [
            "SELECT * FROM zqview",
            "SELECT q FROM zqfails",
            "EXPLAIN SELECT * FROM zqview",
            "CREATE VIEW mine AS SELECT key FROM zqview",
            "SELECT count(*) FROM nation WHERE n_nationkey IN (SELECT nation FROM zqview)",
        ] {
            let refused = dave.rows(sql).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{sql}");
            let view = if sql.contains("zqfails") { "zqfails" } else { "zqview" };
            let told = format!("view `{view}` reads something that is not there for you");
            assert_eq!(refused.message(), told, "{sql}");
        }
        assert_eq!(columns(&dave, "zqview").await.len(), 3);
        for client in [&dave, &carol] {
            let shown = client.text("SELECT table_name, definition FROM information_schema.views").await.unwrap();
            assert!(shown.contains(&"zqview|".to_owned()), "{shown:?}");
            assert!(!shown.iter().any(|row| row.contains("customer") && row.contains("SELECT")), "{shown:?}");
        }
        // To frank, and to those two the third, they are not there.
        let absent = frank.rows("SELECT * FROM zqnone").await.unwrap_err();
        for (client, view) in [(&frank, "zqview"), (&dave, "zqonview"), (&carol, "zqonview")] {
            let refused = client.rows(&format!("SELECT * FROM {view}")).await.unwrap_err();
            assert_eq!(refused.message(), absent.message().replace("zqnone", view));
            assert_eq!(code(&client.update(&format!("DROP VIEW {view}")).await), Code::InvalidArgument);
            let listed = listed(client).await;
            assert!(!listed.iter().any(|row| row.contains(view)), "{listed:?}");
        }
        assert_eq!(alice.text("SELECT count(*) > 0 FROM zqonview").await.unwrap(), ["true"]);
    });
}

#[test]
fn a_view_is_looked_up_where_it_was_made() {
    on_runtime(async {
        let folder = folder();
        let anywhere = ["tpch.public.*", "tpch.other.*"].map(|on| reading(on, Grantee::User("carol".to_owned())));
        let mut settings = Settings::shared().await;
        let mut other = settings.tables.iter().find(|table| table.name == "nation").unwrap().clone();
        (other.schema, other.name) = ("other".to_owned(), "numbers".to_owned());
        settings.tables.push(other);
        let gate = gate_of(&folder, anywhere.to_vec(), settings).await;
        let (alice, carol) = (person(&gate, "alice"), person(&gate, "carol"));
        alice.update("CREATE TABLE numbers AS SELECT 1 AS a").await.unwrap();
        alice.update("CREATE VIEW v AS SELECT a, current_user() AS me FROM numbers").await.unwrap();
        assert_eq!(alice.text("SELECT * FROM v").await.unwrap(), ["1|alice"]);
        assert_eq!(carol.text("SELECT * FROM v").await.unwrap(), ["1|carol"]);
        for setting in [
            "SET datafusion.sql_parser.enable_ident_normalization = false",
            "SET datafusion.catalog.default_schema = 'other'",
        ] {
            carol.update(setting).await.unwrap();
        }
        assert_eq!(carol.text("SELECT count(*) FROM numbers").await.unwrap(), ["25"]);
        assert_eq!(carol.text("SELECT a, me FROM tpch.public.v").await.unwrap(), ["1|carol"]);

        // A session's own table of a name is none of the view's.
        alice.update("DROP TABLE numbers").await.unwrap();
        carol.update("CREATE TEMPORARY VIEW tpch.public.numbers AS SELECT 9 AS a").await.unwrap();
        assert_eq!(carol.text("SELECT a FROM tpch.public.numbers").await.unwrap(), ["9"]);
        let gone = carol.rows("SELECT a FROM tpch.public.v").await.unwrap_err();
        assert_eq!(gone.message(), "view `v` reads something that is not there for you");
        let gone = alice.rows("SELECT a FROM v").await.unwrap_err();
        assert!(gone.message().contains("table 'tpch.public.numbers' not found"), "{gone}");

        // More columns and another order do not matter, another type does.
        alice.update("CREATE TABLE numbers AS SELECT 'more' AS b, 5 AS a").await.unwrap();
        assert_eq!(alice.text("SELECT * FROM v").await.unwrap(), ["5|alice"]);
        alice.update("CREATE OR REPLACE TABLE numbers AS SELECT 'text' AS a").await.unwrap();
        let changed = alice.rows("SELECT * FROM v").await.unwrap_err();
        assert!(changed.message().ends_with("make it again"), "{changed}");
        assert_eq!(changed.code(), Code::InvalidArgument);
    });
}

#[test]
fn a_view_that_would_grow_without_end_is_refused() {
    on_runtime(async {
        let folder = folder();
        let gate = gate(&folder).await;
        let alice = person(&gate, "alice");
        alice.update("CREATE VIEW d0 AS SELECT n_nationkey AS k FROM nation").await.unwrap();
        alice.update("CREATE VIEW c0 AS SELECT n_nationkey AS k FROM nation").await.unwrap();
        for step in 1_u32..=9 {
            let before = step - 1;
            let doubled = format!("CREATE VIEW d{step} AS SELECT a.k FROM d{before} a JOIN d{before} b ON a.k = b.k");
            alice.update(&doubled).await.unwrap();
        }
        assert_eq!(alice.text("SELECT count(*) FROM d2").await.unwrap(), ["25"]);
        for (sql, told) in [
            ("SELECT * FROM d9 a, d9 b, d9 c, d9 d", "more than 2000 relations"),
            ("CREATE VIEW d10 AS SELECT a.k FROM d9 a JOIN d9 b ON a.k = b.k", "more than 10000 plan nodes"),
        ] {
            let refused = alice.rows(sql).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument);
            assert!(refused.message().contains(told), "{refused}");
        }
        for step in 1_u32..=15 {
            let before = step - 1;
            alice.update(&format!("CREATE VIEW c{step} AS SELECT k FROM c{before}")).await.unwrap();
        }
        assert_eq!(alice.text("SELECT count(*) FROM c15").await.unwrap(), ["25"]);
        let refused = alice.update("CREATE VIEW c16 AS SELECT k FROM c15").await.unwrap_err();
        assert!(refused.message().contains("views of more than 16 others"), "{refused}");
        for number in 0..=256 {
            alice.update(&format!("CREATE VIEW e{number} AS SELECT 1 AS k")).await.unwrap();
        }
        let all = |count: usize| {
            let names: Vec<_> = (0..count).map(|number| format!("(SELECT k FROM e{number}) AS x{number}")).collect();
            format!("EXPLAIN SELECT x0.k FROM {}", names.join(", "))
        };
        alice.text(&all(40)).await.unwrap();
        let refused = alice.rows(&all(257)).await.unwrap_err();
        assert!(refused.message().contains("more than 256 kept views"), "{refused}");
        let long = format!("VIEW long AS SELECT '{}' AS a", "x".repeat(70_000));
        let refused = alice.update(&format!("CREATE {long}")).await.unwrap_err();
        assert!(refused.message().contains("at most 65536 bytes"), "{refused}");
        alice.update(&format!("CREATE TEMPORARY {long}")).await.unwrap();
    });
}

#[test]
fn views_that_come_to_read_each_other_are_not_read_for_ever() {
    on_runtime(async {
        let folder = folder();
        let one = gate(&folder).await;
        let alice = person(&one, "alice");
        for view in ["a", "b"] {
            alice.update(&format!("CREATE VIEW {view} AS SELECT 1 AS x")).await.unwrap();
        }
        alice.update("CREATE VIEW c AS SELECT x FROM a").await.unwrap();
        let itself = alice.update("CREATE OR REPLACE VIEW a AS SELECT x FROM c").await.unwrap_err();
        assert!(itself.message().contains("reads itself"), "{itself}");
        assert_eq!(alice.text("SELECT x FROM c").await.unwrap(), ["1"]);

        // Through a gate that has not heard of it yet.
        let two = gate(&folder).await;
        let there = person(&two, "alice");
        there.text("SELECT 1").await.unwrap();
        alice.update("CREATE OR REPLACE VIEW a AS SELECT x.x FROM b x JOIN b y ON x.x = y.x").await.unwrap();
        there.update("CREATE OR REPLACE VIEW b AS SELECT x.x FROM a x JOIN a y ON x.x = y.x").await.unwrap();
        for client in [&alice, &there] {
            until("the gate knows both", Duration::from_secs(20), async || {
                Seen::when(client.rows("SELECT x FROM a").await.is_err())
            })
            .await;
            let itself = client.rows("SELECT x FROM b").await.unwrap_err();
            assert_eq!(itself.code(), Code::InvalidArgument);
            assert!(itself.message().contains("reads itself"), "{itself}");
        }
    });
}
