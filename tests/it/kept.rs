//! Tables that are kept: made by SQL, there whole or not at all, and whose they are.

mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow_flight::sql::{CommandGetTables, ProstMessageExt};
use portcullis::config::{Allow, Grant, Grantee, Location, NonEmpty, RowRule, Session, Views};
use portcullis::storage::{Keeping, Storage};
use portcullis::stores::Stores;
use portcullis_auth::Action;
use tonic::Code;
use url::Url;

use crate::support::client::{Client, code};
use crate::support::login::Login;
use crate::support::{Gate, Seen, Settings, directory, on_runtime, reading, until};
use crate::whose::ways::read;

/// A folder for the tables of one test.
fn folder() -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let folder = directory().join("kept").join(NEXT.fetch_add(1, Ordering::Relaxed).to_string());
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A gate that keeps tables in `folder`. Everybody reads `tpch`; alice and bob may also make tables in `tpch.public`.
async fn gate(folder: &Path) -> Gate {
    gate_with(folder, Vec::new()).await
}

async fn gate_with(folder: &Path, more: Vec<Grant>) -> Gate {
    gate_of(folder, more, Settings::shared().await).await
}

async fn gate_of(folder: &Path, more: Vec<Grant>, settings: Settings) -> Gate {
    gate_whose_views_are(Views::Kept, folder, more, settings).await
}

async fn gate_whose_views_are(views: Views, folder: &Path, more: Vec<Grant>, settings: Settings) -> Gate {
    let place = Url::from_directory_path(folder).unwrap();
    let storage = Storage::open(place, &Stores::local_only()).await.unwrap().with_views(views);
    let keeping = Keeping::At(Arc::new(storage));
    let makes = |user: &str| Grant {
        allow: BTreeSet::from([Action::Create]),
        ..reading("tpch.public.*", Grantee::User(user.to_owned()))
    };
    let read = ["region", "nation", "orders"].map(|table| reading(&format!("tpch.public.{table}"), Grantee::Everyone));
    let grants = [read.to_vec(), vec![makes("alice"), makes("bob")], more].concat();
    let session = Session { default_catalog: "tpch".to_owned(), ..Session::default() };
    Gate::start(Settings { keeping, grants, session, ..settings }).await
}

fn person(gate: &Gate, name: &str) -> Client {
    gate.client(&Login::pair(name))
}

async fn columns(client: &Client, table: &str) -> Vec<String> {
    let columns = "SELECT column_name, data_type, is_nullable FROM information_schema.columns";
    client.text(&format!("{columns} WHERE table_name = '{table}' ORDER BY 1")).await.unwrap()
}

/// Folders with rows in them.
fn data(folder: &Path) -> usize {
    std::fs::read_dir(folder.join("data")).map_or(0, |entries| entries.count())
}

#[test]
fn what_a_query_finds_becomes_a_table_that_outlives_the_session_and_the_gate() {
    on_runtime(async {
        let folder = folder();
        let first = gate(&folder).await;
        let alice = person(&first, "alice");
        let made =
            alice.update("CREATE TABLE big AS SELECT n_name, n_regionkey FROM nation WHERE n_regionkey = 3").await;
        assert_eq!(made.unwrap(), 5);
        let joined = "CREATE TABLE joined AS SELECT r_name, count(*) AS n FROM region JOIN nation \
                      ON r_regionkey = n_regionkey GROUP BY r_name";
        assert_eq!(alice.text(joined).await.unwrap(), ["5"], "by GetFlightInfo, with its count as the row");
        let handle = alice.prepare("CREATE TABLE some AS SELECT * FROM orders WHERE o_orderkey < 100").await.unwrap();
        assert!(handle.dataset_schema.is_empty(), "a statement without rows");

        let session = alice.with(&Login::Bearer(alice.handshake().await.unwrap()));
        let second = gate(&folder).await;
        for client in [&alice, &session, &person(&second, "alice")] {
            assert_eq!(
                client.text("SELECT n_name FROM tpch.public.big ORDER BY n_name LIMIT 2").await.unwrap(),
                ["FRANCE", "GERMANY"]
            );
            assert_eq!(client.text("SELECT sum(n) FROM joined").await.unwrap(), ["25"]);
            let joined = "SELECT count(*) FROM big JOIN region ON n_regionkey = r_regionkey";
            assert_eq!(client.text(joined).await.unwrap(), ["5"]);
            let names = "SELECT table_name FROM information_schema.tables WHERE table_name IN ('big', 'joined')";
            assert_eq!(client.text(names).await.unwrap().len(), 2);
            assert_eq!(columns(client, "joined").await, ["n|Int64|NO", "r_name|Utf8|NO"]);
        }
    });
}

#[test]
fn a_table_is_made_of_columns_of_constants_and_of_nothing() {
    on_runtime(async {
        let folder = folder();
        let gate = gate(&folder).await;
        let alice = person(&gate, "alice");
        assert_eq!(
            alice.update("CREATE TABLE empty (a BIGINT NOT NULL, b VARCHAR, c DECIMAL(10, 2))").await.unwrap(),
            0
        );
        assert_eq!(alice.text("SELECT count(*) FROM empty").await.unwrap(), ["0"]);
        assert_eq!(alice.text("SELECT a, b, c FROM empty").await.unwrap(), [""; 0]);
        assert_eq!(columns(&alice, "empty").await, ["a|Int64|NO", "b|Utf8|YES", "c|Decimal128(10, 2)|YES"]);
        assert_eq!(alice.update("CREATE TABLE three AS VALUES (1, 'x'), (2, 'y'), (3, NULL)").await.unwrap(), 3);
        assert_eq!(alice.text("SELECT * FROM three ORDER BY 1").await.unwrap(), ["1|x", "2|y", "3|"]);
        let names = "CREATE TABLE names AS SELECT table_name FROM information_schema.tables";
        assert!(alice.update(names).await.unwrap() > 3);
        assert_eq!(
            alice.update("CREATE TABLE none AS SELECT n_name FROM nation WHERE n_regionkey > 99").await.unwrap(),
            0
        );
        assert_eq!(alice.text("SELECT count(*) FROM none").await.unwrap(), ["0"]);
        assert_eq!(alice.update("CREATE TABLE nothing AS SELECT 1 AS a WHERE false").await.unwrap(), 0);
        assert_eq!(alice.text("SELECT a FROM nothing").await.unwrap(), [""; 0]);
    });
}

#[test]
fn a_name_is_given_once_and_can_be_replaced_and_dropped_by_its_maker() {
    on_runtime(async {
        let folder = folder();
        let gate = gate(&folder).await;
        let alice = person(&gate, "alice");
        alice.update("CREATE TABLE t AS SELECT 1 AS a").await.unwrap();
        let again = alice.update("CREATE TABLE t AS SELECT 2 AS a").await.unwrap_err();
        assert_eq!((again.code(), again.message()), (Code::InvalidArgument, "table `t` already exists"));
        assert_eq!(alice.update("CREATE TABLE IF NOT EXISTS t AS SELECT 3 AS a").await.unwrap(), 0);
        assert_eq!(alice.text("SELECT a FROM t").await.unwrap(), ["1"]);
        alice.update("CREATE OR REPLACE TABLE t AS SELECT 4 AS b FROM nation").await.unwrap();
        assert_eq!(alice.text("SELECT DISTINCT b FROM t").await.unwrap(), ["4"]);
        // From itself: what is read stays until nobody can be reading it.
        alice.update("CREATE OR REPLACE TABLE t AS SELECT b + 1 AS b FROM t LIMIT 2").await.unwrap();
        assert_eq!(alice.text("SELECT b FROM t").await.unwrap(), ["5", "5"]);

        alice.update("DROP TABLE t").await.unwrap();
        let gone = alice.rows("SELECT * FROM t").await.unwrap_err();
        assert_eq!(gone.message(), alice.rows("SELECT * FROM u").await.unwrap_err().message().replace(".u'", ".t'"));
        assert_eq!(code(&alice.update("DROP TABLE t").await), Code::InvalidArgument);
        assert_eq!(alice.update("DROP TABLE IF EXISTS t").await.unwrap(), 0);
        alice.update("CREATE TABLE t AS SELECT 6 AS a").await.unwrap();
        assert_eq!(alice.text("SELECT a FROM t").await.unwrap(), ["6"]);

        // What is configured is not touched, whatever may be made beside it.
        for sql in ["CREATE TABLE nation AS SELECT 1 AS a", "CREATE OR REPLACE TABLE nation AS SELECT 1 AS a"] {
            assert_eq!(alice.update(sql).await.unwrap_err().message(), "table `nation` already exists", "{sql}");
        }
        assert_eq!(code(&alice.update("DROP TABLE nation").await), Code::InvalidArgument);
        assert_eq!(alice.text("SELECT count(*) FROM nation").await.unwrap(), ["25"]);
        // The session's own view comes before.
        alice.update("CREATE TEMPORARY VIEW v AS SELECT 7 AS a").await.unwrap();
        assert_eq!(
            alice.update("CREATE TABLE v AS SELECT 8 AS a").await.unwrap_err().message(),
            "table `v` already exists"
        );
    });
}

#[test]
fn a_table_is_its_makers_and_for_others_what_a_grant_says() {
    on_runtime(async {
        let folder = folder();
        let shown = Grant {
            rows: RowRule::Where("a > 1".to_owned()),
            masks: BTreeMap::from([("b".to_owned(), "'***'".to_owned())]),
            ..reading("tpch.public.shown", Grantee::User("carol".to_owned()))
        };
        let gate = gate_with(&folder, vec![shown]).await;
        let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| person(&gate, name));
        for table in ["shown", "own"] {
            alice.update(&format!("CREATE TABLE {table} AS VALUES (1, 'zqone'), (2, 'zqtwo')")).await.unwrap();
            alice
                .update(&format!("CREATE OR REPLACE TABLE {table} AS SELECT column1 AS a, column2 AS b FROM {table}"))
                .await
                .unwrap();
        }
        assert_eq!(alice.text("SELECT * FROM shown ORDER BY a").await.unwrap(), ["1|zqone", "2|zqtwo"]);
        assert_eq!(carol.text("SELECT * FROM shown").await.unwrap(), ["2|***"]);

        // For carol the other is not there.
        let absent = carol.rows("SELECT * FROM zqnone").await.unwrap_err();
        for sql in ["SELECT * FROM own", "INSERT INTO own VALUES (1, 'x')", "CREATE VIEW w AS SELECT * FROM own"] {
            let refused = carol.rows(sql).await.unwrap_err();
            assert_eq!(refused.message(), absent.message().replace("zqnone", "own"), "{sql}");
        }
        let listed = read(&carol, CommandGetTables::default().as_any()).await.unwrap().rows;
        let own = |rows: &[String]| rows.iter().filter(|row| row.contains("|own|")).count();
        assert_eq!((own(&listed), listed.iter().filter(|row| row.contains("|shown|")).count()), (0, 1));
        assert_eq!(own(&read(&alice, CommandGetTables::default().as_any()).await.unwrap().rows), 1);
        let none = "SELECT count(*) FROM information_schema.tables WHERE table_name = 'own'";
        assert_eq!(carol.text(none).await.unwrap(), ["0"]);
        for sql in ["DROP TABLE own", "DROP TABLE zqnone"] {
            assert_eq!(code(&carol.update(sql).await), Code::InvalidArgument, "{sql}");
        }
        assert_eq!(carol.update("DROP TABLE shown").await.unwrap_err().message(), "you may not drop table `shown`");

        // She may make none, whatever is there.
        for sql in [
            "CREATE TABLE own AS SELECT 1 AS a",
            "CREATE TABLE zqnone AS SELECT 1 AS a",
            "CREATE OR REPLACE TABLE shown (a INT)",
        ] {
            let refused = carol.update(sql).await.unwrap_err();
            assert_eq!(refused.code(), Code::PermissionDenied, "{sql}");
            assert!(refused.message().starts_with("you may not create table"), "{refused}");
        }
        // Bob may make tables there, so that he learns of names; no more.
        assert_eq!(bob.rows("SELECT * FROM own").await.unwrap_err().message(), "you may not read table `own`");
        assert_eq!(bob.update("CREATE TABLE own (a INT)").await.unwrap_err().message(), "table `own` already exists");
        for sql in ["DROP TABLE own", "CREATE OR REPLACE TABLE own (a INT)"] {
            assert_eq!(bob.update(sql).await.unwrap_err().message(), "you may not drop table `own`", "{sql}");
        }
        // The same name in another schema of nobody's, and one that is not there.
        assert_eq!(code(&alice.update("CREATE TABLE tpch.other.own (a INT)").await), Code::PermissionDenied);
    });
}

#[test]
fn a_table_made_of_one_that_hides_something_has_what_was_seen() {
    on_runtime(async {
        let folder = folder();
        let part = Grant {
            rows: RowRule::Where("c_nationkey < 5".to_owned()),
            masks: BTreeMap::from([("c_phone".to_owned(), "'***'".to_owned())]),
            ..reading("tpch.public.customer", Grantee::User("alice".to_owned()))
        };
        let gate = gate_with(&folder, vec![part]).await;
        let alice = person(&gate, "alice");
        let seen =
            alice.text("SELECT count(*), min(c_phone), max(c_phone), max(c_nationkey) FROM customer").await.unwrap();
        assert!(seen[0].ends_with("|***|***|4"), "{seen:?}");
        alice.update("CREATE TABLE mine AS SELECT * FROM customer").await.unwrap();
        let made = "SELECT count(*), min(c_phone), max(c_phone), max(c_nationkey) FROM mine";
        assert_eq!(alice.text(made).await.unwrap(), seen);
    });
}

#[test]
fn what_goes_wrong_leaves_no_table_and_no_rows() {
    on_runtime(async {
        let folder = folder();
        let gate = gate(&folder).await;
        let alice = person(&gate, "alice");
        alice.update("CREATE TABLE good AS SELECT n_nationkey FROM nation").await.unwrap();
        let before = data(&folder);
        assert_eq!(before, 1);
        for sql in [
            "CREATE TABLE bad AS SELECT 1 / (n_nationkey - 24) AS a FROM nation",
            "CREATE TABLE bad AS SELECT CAST(n_name AS BIGINT) AS a FROM nation",
            "CREATE TABLE bad AS SELECT 1 / 0 AS a",
            "CREATE TABLE bad AS SELECT 1 AS a, 2 AS a",
            "CREATE TABLE bad AS SELECT n_name, r_name AS n_name FROM nation, region",
            "CREATE TABLE bad ()",
            "CREATE TABLE nowhere.public.bad (a INT)",
            "CREATE TABLE bad (a INT PRIMARY KEY)",
            "CREATE TABLE bad (a INT DEFAULT 1)",
            "CREATE TEMPORARY TABLE bad AS SELECT 1 / (n_nationkey - 24) AS a FROM nation",
            "CREATE TEMPORARY TABLE nation AS SELECT 1 AS a",
            "CREATE TABLE bad AS SELECT * FROM vault",
        ] {
            let refused = alice.update(sql).await.unwrap_err();
            assert!(
                [Code::InvalidArgument, Code::Unimplemented, Code::PermissionDenied].contains(&refused.code()),
                "{sql}: {refused}"
            );
            assert_eq!(code(&alice.rows("SELECT * FROM bad").await), Code::InvalidArgument, "{sql}");
        }
        let long = "x".repeat(81);
        assert_eq!(code(&alice.update(&format!("CREATE TABLE {long} (a INT)")).await), Code::InvalidArgument);
        until("the rows of what failed are gone", Duration::from_secs(20), || {
            let seen = Seen::when(data(&folder) == before);
            std::future::ready(seen)
        })
        .await;
        assert_eq!(alice.text("SELECT count(*) FROM good").await.unwrap(), ["25"]);
    });
}

#[test]
fn a_temporary_table_is_its_sessions() {
    on_runtime(async {
        let folder = folder();
        let everything = reading("tpch.public.*", Grantee::User("carol".to_owned()));
        let gate = gate_with(&folder, vec![everything]).await;
        let (alice, carol) = (person(&gate, "alice"), person(&gate, "carol"));
        let one = alice.with(&Login::Bearer(alice.handshake().await.unwrap()));
        let other = alice.with(&Login::Bearer(alice.handshake().await.unwrap()));
        let make = "CREATE TEMPORARY TABLE own AS SELECT n_name, n_regionkey FROM nation WHERE n_regionkey = 3";
        assert_eq!(one.update(make).await.unwrap(), 5);
        assert_eq!(one.text("CREATE TEMPORARY TABLE three AS VALUES (1), (2), (3)").await.unwrap(), ["3"]);
        one.update("CREATE LOCAL TEMPORARY TABLE none (a BIGINT) ON COMMIT PRESERVE ROWS").await.unwrap();
        for other in ["GLOBAL TEMPORARY TABLE n (a INT)", "TEMPORARY TABLE n (a INT) ON COMMIT DROP"] {
            assert_ne!(code(&one.update(&format!("CREATE {other}")).await), Code::Ok, "{other}");
        }
        let joined = "SELECT count(*), max(r_name) FROM own JOIN region ON n_regionkey = r_regionkey, three, \
                      (SELECT count(*) AS n FROM none) WHERE n = 0";
        assert_eq!(one.text(joined).await.unwrap(), ["15|EUROPE"]);
        assert_eq!(columns(&one, "own").await, ["n_name|Utf8|NO", "n_regionkey|Int64|NO"]);
        let listed = read(&one, CommandGetTables::default().as_any()).await.unwrap().rows;
        assert!(listed.iter().any(|row| row.contains("|own|")), "{listed:?}");

        // Nobody else has it: not the maker's other session, not who may read whatever is made there.
        let absent = other.rows("SELECT * FROM zqnone").await.unwrap_err();
        for client in [&other, &carol] {
            let refused = client.rows("SELECT * FROM own").await.unwrap_err();
            assert_eq!(refused.message(), absent.message().replace("zqnone", "own"));
            let listed = read(client, CommandGetTables::default().as_any()).await.unwrap().rows;
            assert!(!listed.iter().any(|row| row.contains("|own|")), "{listed:?}");
        }
        other.update("CREATE TEMPORARY TABLE own AS SELECT 7 AS seven").await.unwrap();
        assert_eq!(other.text("SELECT seven FROM own").await.unwrap(), ["7"]);

        for sql in [make, "CREATE TABLE own (a INT)", "CREATE VIEW own AS SELECT 1 AS a"] {
            let refused = one.update(sql).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{sql}");
            assert!(refused.message().contains("already exists"), "{refused}");
        }
        assert_eq!(one.update("CREATE TEMPORARY TABLE IF NOT EXISTS own (a INT)").await.unwrap(), 0);
        one.update("CREATE OR REPLACE TEMPORARY TABLE own AS SELECT n_name FROM own LIMIT 2").await.unwrap();
        assert_eq!(one.text("SELECT count(*) FROM own").await.unwrap(), ["2"]);
        // A view of it is of no use to others.
        one.update("CREATE VIEW some AS SELECT n_name FROM own LIMIT 1").await.unwrap();
        assert_eq!(one.text("SELECT count(*) FROM some").await.unwrap(), ["1"]);
        assert_eq!(code(&other.rows("SELECT * FROM some").await), Code::InvalidArgument);
        one.update("DROP TABLE own").await.unwrap();
        assert_eq!(code(&one.rows("SELECT * FROM own").await), Code::InvalidArgument);
        assert_eq!(one.update(make).await.unwrap(), 5);

        let refused = carol.update("CREATE TEMPORARY TABLE hers AS SELECT 1 AS a").await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::PermissionDenied, "you may not create table `hers`"));
    });
}

#[test]
fn two_who_make_one_table_at_the_same_time_do_not_mix() {
    on_runtime(async {
        let folder = folder();
        let (one, two) = (gate(&folder).await, gate(&folder).await);
        let (alice, bob) = (person(&one, "alice"), person(&two, "bob"));
        let make = "CREATE TABLE race AS SELECT n_nationkey FROM nation";
        let (a, b) = tokio::join!(alice.update(make), bob.update(make));
        let (winner, refused) = match (a, b) {
            (Ok(25), Err(refused)) => (&alice, refused),
            (Err(refused), Ok(25)) => (&bob, refused),
            other => panic!("{other:?}"),
        };
        assert_eq!(refused.message(), "table `race` already exists");
        assert_eq!(winner.text("SELECT count(*) FROM race").await.unwrap(), ["25"]);
    });
}

#[test]
fn what_is_configured_later_comes_before_a_table_of_the_same_name() {
    on_runtime(async {
        let folder = folder();
        let mut without = Settings::shared().await;
        without.tables.retain(|table| table.name != "region" && table.name != "customer");
        let first = gate_of(&folder, Vec::new(), without).await;
        let alice = person(&first, "alice");
        for table in ["region", "customer"] {
            alice.update(&format!("CREATE TABLE {table} AS SELECT 1 AS mine")).await.unwrap();
            assert_eq!(alice.text(&format!("SELECT mine FROM {table}")).await.unwrap(), ["1"]);
        }
        let second = gate(&folder).await;
        let (alice, carol) = (person(&second, "alice"), person(&second, "carol"));
        for client in [&alice, &carol] {
            assert_eq!(client.text("SELECT count(*), max(r_name) FROM region").await.unwrap(), ["5|MIDDLE EAST"]);
        }
        // Whoever made what is hidden now has no right by that to what is configured.
        assert_eq!(code(&alice.update("DROP TABLE region").await), Code::InvalidArgument);
        let refused = alice.rows("SELECT * FROM customer").await.unwrap_err();
        assert_eq!(refused.message(), "you may not read table `customer`");
        assert_eq!(alice.text("SELECT count(*) FROM region").await.unwrap(), ["5"]);
    });
}

#[test]
fn no_rule_reaches_into_the_place_of_the_tables() {
    on_runtime(async {
        let folder = folder();
        let beside = folder.join("../../beside");
        std::fs::create_dir_all(&beside).unwrap();
        std::fs::write(beside.join("a.csv"), "a\n1\n").unwrap();
        std::os::unix::fs::symlink(&folder, beside.join("link")).unwrap();
        let everything = Location {
            prefix: Url::from_directory_path(directory()).unwrap(),
            to: NonEmpty { first: Grantee::Everyone, rest: Vec::new() },
            allow: Allow::ReadWrite,
        };
        let settings = Settings { locations: vec![everything], ..Settings::shared().await };
        let gate = gate_of(&folder, Vec::new(), settings).await;
        let (alice, carol) = (person(&gate, "alice"), person(&gate, "carol"));
        alice.update("CREATE TABLE own AS SELECT n_name FROM nation").await.unwrap();
        let external = |format: &str, place: &Path| {
            format!("CREATE EXTERNAL TABLE f STORED AS {format} LOCATION '{}'", place.display())
        };
        carol.update(&external("CSV", &beside.join("a.csv"))).await.unwrap();
        carol.update("DROP TABLE f").await.unwrap();
        for place in [&folder.join("data"), &folder, &beside.join("link/data"), directory()] {
            let refused = carol.update(&external("PARQUET", place)).await.unwrap_err();
            assert_eq!(refused.message(), "the location is not one that you may read", "{}", place.display());
            let copy = format!("COPY (SELECT 1) TO '{}/x.parquet' STORED AS PARQUET", place.display());
            let refused = carol.update(&copy).await.unwrap_err();
            let expected = if place == directory() { Code::Unimplemented } else { Code::PermissionDenied };
            assert_eq!(refused.code(), expected, "{}: {refused}", place.display());
        }
    });
}

#[test]
fn another_gate_learns_of_a_table_by_itself() {
    on_runtime(async {
        let folder = folder();
        let (one, two) = (gate(&folder).await, gate(&folder).await);
        let (alice, there) = (person(&one, "alice"), person(&two, "alice"));
        alice.update("CREATE TABLE news AS SELECT 1 AS a").await.unwrap();
        until("the other gate has the table", Duration::from_secs(20), async || {
            Seen::when(there.text("SELECT a FROM news").await.is_ok_and(|rows| rows == ["1"]))
        })
        .await;
        alice.update("DROP TABLE news").await.unwrap();
        until("the other gate has it no more", Duration::from_secs(20), async || {
            Seen::when(there.rows("SELECT a FROM news").await.is_err())
        })
        .await;
    });
}

#[test]
fn a_gate_that_keeps_no_tables_says_so() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let refused = person(&gate, "alice").update("CREATE TABLE t AS SELECT 1 AS a").await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::Unimplemented, "CREATE TABLE is not supported"));
    });
}
