//! What a statement may do: what is refused and as what, where files may be read, and the caps that keep the process
//! alive.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use portcullis::config::{Allow, Grant, Grantee, Location, NonEmpty};
use portcullis_auth::Action;
use tokio::time::{Instant, timeout};
use tonic::Code;
use url::Url;

use crate::support::client::{Client, code};
use crate::support::login::Login;
use crate::support::{Gate, Settings, directory, on_runtime, reading};

#[test]
fn what_is_not_built_is_refused_by_its_name() {
    on_runtime(async {
        // Somebody who may do all of it: others are refused before.
        let allowed = Grant { allow: BTreeSet::from(Action::ALL), ..reading("*", Grantee::Everyone) };
        let place = Location {
            prefix: Url::from_directory_path(directory()).unwrap(),
            to: NonEmpty { first: Grantee::Everyone, rest: Vec::new() },
            allow: Allow::ReadWrite,
        };
        let settings = Settings { grants: vec![allowed], locations: vec![place], ..Settings::shared().await };
        let gate = Gate::start(settings).await;
        let client = gate.client(&Login::key("alice"));
        assert_eq!(client.text("SELECT count(*) FROM nation").await.unwrap(), ["25"]);
        let target = directory().join("copied");
        for (sql, named) in [
            ("INSERT INTO nation SELECT * FROM nation".to_owned(), "INSERT"),
            ("DELETE FROM nation".to_owned(), "DELETE"),
            ("UPDATE nation SET n_name = 'x'".to_owned(), "UPDATE"),
            (format!("COPY nation TO '{}' STORED AS CSV", target.display()), "COPY"),
            (format!("COPY (SELECT 1) TO '{}' STORED AS PARQUET", target.display()), "COPY"),
            (format!("EXPLAIN COPY nation TO '{}' STORED AS CSV", target.display()), "COPY"),
            ("EXPLAIN INSERT INTO nation SELECT * FROM nation".to_owned(), "INSERT"),
            ("CREATE TABLE t (a INT)".to_owned(), "CREATE TABLE"),
            ("CREATE TABLE t AS SELECT 1".to_owned(), "CREATE TABLE"),
            ("EXPLAIN CREATE TABLE t AS SELECT 1".to_owned(), "CREATE TABLE"),
            ("CREATE SCHEMA s".to_owned(), "CREATE SCHEMA"),
            ("CREATE DATABASE d".to_owned(), "CREATE DATABASE"),
            ("DROP SCHEMA public".to_owned(), "DROP SCHEMA"),
            ("CREATE FUNCTION f(INT) RETURNS INT RETURN $1 + 1".to_owned(), "CREATE FUNCTION"),
            ("DROP FUNCTION abs".to_owned(), "DROP FUNCTION"),
            ("CREATE INDEX i ON nation (n_nationkey)".to_owned(), "CREATE INDEX"),
            ("EXPLAIN ANALYZE SELECT count(*) FROM nation".to_owned(), "EXPLAIN ANALYZE"),
            ("PREPARE p AS SELECT 1".to_owned(), "PREPARE"),
            ("EXECUTE p".to_owned(), "PREPARE"),
            ("DEALLOCATE p".to_owned(), "PREPARE"),
            ("BEGIN".to_owned(), "BEGIN"),
            ("COMMIT".to_owned(), "transaction"),
        ] {
            let (query, update) = (client.rows(&sql).await.unwrap_err(), client.update(&sql).await.unwrap_err());
            assert_eq!(query.code(), Code::Unimplemented, "{sql}: {query}");
            assert!(query.message().contains(named), "{sql}: {query}");
            assert_eq!((update.code(), update.message()), (query.code(), query.message()), "{sql}, as an update");
            let prepared = client.prepare(&sql).await.unwrap_err();
            assert_eq!((prepared.code(), prepared.message()), (query.code(), query.message()), "{sql}, prepared");
        }
        assert!(!target.exists());
        assert_eq!(client.text("SELECT count(*) FROM nation").await.unwrap(), ["25"]);
    });
}

#[test]
fn bad_sql_is_told_in_terms_of_the_clients_own_text() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        for (sql, told) in [
            ("SELEC 1", "SELEC"),
            ("SELECT nothing FROM nation", "nothing"),
            ("SELECT * FROM nowhere", "nowhere"),
            ("SELECT no_such_function(1)", "no_such_function"),
            ("SELECT 'unterminated", "nterminated"),
            ("SELECT 1 /* unterminated", "comment"),
            ("SELECT 1; SELECT 2", "one"),
            ("SELECT 1; DROP TABLE nation", "one"),
            ("", ""),
            (";", ""),
            ("SELECT * FROM '/etc/passwd'", "passwd"),
            ("SELECT * FROM \"/etc/passwd\"", "passwd"),
            ("SELECT * FROM 'https://localhost/x.csv'", "x.csv"),
            ("SELECT * FROM read_csv('/etc/passwd')", "read_csv"),
            ("SELECT $1", "parameters"),
            ("SELECT 1 / 0", "ivide by zero"),
            ("SELECT CAST(n_name AS INT) FROM nation", "ALGERIA"),
            ("SELECT n_nationkey / (n_nationkey - n_nationkey) FROM nation", "ivide by zero"),
        ] {
            let refused = client.rows(sql).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{sql}: {refused}");
            assert!(refused.message().contains(told), "{sql}: {refused}");
        }
        assert_eq!(client.text("SELECT 1;").await.unwrap(), ["1"], "one statement may end with a semicolon");
    });
}

#[test]
fn options_of_the_runtime_are_neither_set_nor_shown() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.signed_in("alice").await;
        client.update("SET datafusion.execution.target_partitions = 3").await.unwrap();
        let shown = client.text("SHOW ALL").await.unwrap();
        assert!(shown.iter().any(|row| row == "datafusion.execution.target_partitions|3"), "{shown:?}");
        for row in &shown {
            let listed =
                ["datafusion.catalog.", "datafusion.execution.", "datafusion.optimizer.", "datafusion.sql_parser."];
            assert!(listed.iter().any(|prefix| row.starts_with(prefix)), "{row}");
        }
        assert_eq!(
            client.text("SELECT name, value FROM information_schema.df_settings").await.unwrap().len(),
            shown.len()
        );
        assert!(shown.len() < 20, "{shown:?}");

        let stray = directory().join("stray");
        for (key, value) in [
            ("datafusion.runtime.temp_directory", format!("'{}'", stray.display())),
            ("datafusion.runtime.memory_limit", "'100G'".to_owned()),
            ("datafusion.runtime.max_temp_directory_size", "'1T'".to_owned()),
            ("datafusion.sql_parser.recursion_limit", "100000".to_owned()),
            ("datafusion.catalog.location", "'/etc'".to_owned()),
            ("datafusion.catalog.information_schema", "false".to_owned()),
            ("datafusion.execution.parquet.pushdown_filters", "true".to_owned()),
            ("ballista.shuffle.compression.codec", "'lz4'".to_owned()),
            ("ballista.job.name", "'x'".to_owned()),
        ] {
            assert_eq!(code(&client.update(&format!("SET {key} = {value}")).await), Code::PermissionDenied, "{key}");
            assert_eq!(code(&client.update(&format!("RESET {key}")).await), Code::PermissionDenied, "{key}");
            let shown = client.text(&format!("SHOW {key}")).await;
            assert!(shown.as_ref().is_err() || shown.as_ref().is_ok_and(Vec::is_empty), "{key}: {shown:?}");
        }
        assert!(!stray.exists());
        for (key, value) in [("batch_size", "0"), ("batch_size", "100000000"), ("target_partitions", "1000000")] {
            let set = client.update(&format!("SET datafusion.execution.{key} = {value}")).await;
            assert_eq!(code(&set), Code::InvalidArgument, "{key} = {value}");
        }
    });
}

#[test]
fn a_file_is_read_only_where_a_rule_says_so() {
    on_runtime(async {
        let places = Places::make("rules");
        let mut settings = Settings::shared().await;
        let everyone = NonEmpty { first: Grantee::Everyone, rest: Vec::new() };
        let bob = NonEmpty { first: Grantee::User("bob".to_owned()), rest: vec![Grantee::Role("bob".to_owned())] };
        let rule = |place: &str, to, allow| Location {
            prefix: Url::from_directory_path(places.at(place)).unwrap(),
            to,
            allow,
        };
        settings.locations = vec![
            rule("allowed", everyone.clone(), Allow::Read),
            rule("bobs", bob, Allow::ReadWrite),
            rule("drop", everyone, Allow::Write),
        ];
        let gate = Gate::start(settings).await;
        let (alice, bob) = (gate.signed_in("alice").await, gate.client(&Login::key("bob")));

        let inside = places.at("allowed/good.csv");
        for location in [
            inside.display().to_string(),
            format!("file://{}", inside.display()),
            format!("{}/", places.at("allowed/folder").display()),
        ] {
            assert_eq!(read(&alice, &location, "").await.unwrap(), ["1"], "{location}");
        }
        assert_eq!(
            read(&alice, &inside.display().to_string(), "OPTIONS ('format.delimiter' ';')").await.unwrap(),
            ["1"]
        );
        assert_eq!(read(&bob, &places.text("bobs/good.csv"), "").await.unwrap(), ["1"]);

        let mut texts = std::collections::BTreeSet::new();
        for location in [
            places.text("outside/secret.csv"),
            places.text("outside/"),
            places.text("outside/no-such.csv"),
            format!("file://{}", places.text("outside/secret.csv")),
            format!("file:{}", places.text("outside/secret.csv")),
            format!("FILE://{}", places.text("outside/secret.csv")),
            format!("file://localhost{}", places.text("outside/secret.csv")),
            places.text("allowed/../outside/secret.csv"),
            format!("file://{}", places.text("allowed/../outside/secret.csv")),
            format!("file://{}", places.text("allowed/%2e%2e/outside/secret.csv")),
            format!("file://{}", places.text("allowed/..%2foutside/secret.csv")),
            places.text("allowed/link.csv"),
            places.text("allowed/linked-folder/secret.csv"),
            places.text("allowed/linked-folder/"),
            places.text("allowed-neighbour/secret.csv"),
            places.text("allowed/no-such.csv"),
            places.text("bobs/good.csv"),
            places.text("drop/good.csv"),
            "outside/secret.csv".to_owned(),
            "/etc/passwd".to_owned(),
            "file:///etc/passwd".to_owned(),
            "/proc/self/environ".to_owned(),
            "http://127.0.0.1:1/x.csv".to_owned(),
            "https://localhost/x.csv".to_owned(),
            "s3://bucket/x.csv".to_owned(),
            "gs://bucket/x.csv".to_owned(),
            "hdfs://host/x.csv".to_owned(),
            "data:text/csv,a".to_owned(),
            "memory:///x.csv".to_owned(),
            String::new(),
        ] {
            let refused = read(&alice, &location, "").await.unwrap_err();
            assert_eq!(refused.code(), Code::PermissionDenied, "{location}: {refused}");
            texts.insert(refused.message().to_owned());
        }
        assert_eq!(texts.len(), 1, "nothing can be told apart: {texts:?}");

        for option in ["'aws.endpoint' 'http://127.0.0.1:1'", "'aws.access_key_id' 'x'", "'AWS.REGION' 'x'"] {
            let refused =
                read(&alice, &inside.display().to_string(), &format!("OPTIONS ({option})")).await.unwrap_err();
            assert_eq!(refused.code(), Code::PermissionDenied, "{option}");
        }
        let unbounded = alice
            .update(&format!("CREATE UNBOUNDED EXTERNAL TABLE u STORED AS CSV LOCATION '{}'", inside.display()))
            .await;
        assert_eq!(code(&unbounded), Code::Unimplemented);
        let format =
            alice.update(&format!("CREATE EXTERNAL TABLE a STORED AS AVRO LOCATION '{}'", inside.display())).await;
        assert!(matches!(code(&format), Code::Unimplemented | Code::InvalidArgument), "{format:?}");
    });
}

#[test]
fn a_folder_that_may_be_read_gives_nothing_that_its_links_point_to() {
    on_runtime(async {
        let places = Places::make("links");
        let mut settings = Settings::shared().await;
        settings.locations = vec![Location {
            prefix: Url::from_directory_path(places.at("allowed")).unwrap(),
            to: NonEmpty { first: Grantee::Everyone, rest: Vec::new() },
            allow: Allow::Read,
        }];
        let gate = Gate::start(settings).await;
        let alice = gate.signed_in("alice").await;
        let folder = format!("{}/", places.text("allowed/folder"));
        assert_eq!(read(&alice, &folder, "").await.unwrap(), ["1"]);
        symlink(places.at("outside/secret.csv"), places.at("allowed/folder/second.csv")).unwrap();
        symlink(places.at("outside"), places.at("allowed/folder/third")).unwrap();
        match read(&alice, &folder, "").await {
            Ok(rows) => assert!(!rows.iter().any(|row| row.contains("secret")), "{rows:?}"),
            Err(refused) => assert!(!refused.message().contains("secret"), "{refused}"),
        }
    });
}

#[test]
fn without_a_rule_no_file_is_read() {
    on_runtime(async {
        let places = Places::make("none");
        let gate = Gate::shared().await;
        let alice = gate.signed_in("alice").await;
        assert_eq!(alice.text("SELECT count(*) FROM region").await.unwrap(), ["5"]);
        for place in ["allowed/good.csv", "outside/secret.csv", "no-such"] {
            assert_eq!(code(&read(&alice, &places.text(place), "").await), Code::PermissionDenied);
        }
    });
}

#[test]
fn statements_at_the_caps_run_on_the_cluster() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        let mut failed = Vec::new();
        for (name, sql, rows) in at_the_caps(199, 49) {
            match timeout(PATIENCE, client.rows(&sql)).await {
                Ok(Ok(batches)) if batches.iter().map(|batch| batch.num_rows()).sum::<usize>() == rows => (),
                other => failed.push(format!("{name}: {other:?}")),
            }
        }
        assert_eq!(failed, [""; 0]);
    });
}

/// The cluster's own protocol nests less than SQL does.
#[test]
fn what_is_nested_too_deeply_for_the_cluster_is_the_statements_fault() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        let casts = |count: usize| format!("SELECT n_nationkey{} AS x FROM nation", "::bigint".repeat(count));
        let calls =
            |count: usize| format!("SELECT {}n_nationkey{} AS x FROM nation", "abs(".repeat(count), ")".repeat(count));
        let joins = |count: usize| {
            let more =
                (1..=count).map(|number| format!(" JOIN nation n{number} ON n{number}.n_nationkey = n0.n_nationkey"));
            format!("SELECT n0.n_name FROM nation n0{}", more.collect::<String>())
        };
        for sql in [casts(20), calls(20), joins(20)] {
            let rows = client.rows(&sql).await.unwrap_or_else(|status| panic!("{sql}: {status}"));
            assert_eq!(rows.iter().map(|batch| batch.num_rows()).sum::<usize>(), 25, "{sql}");
        }
        for sql in [casts(199), calls(49), joins(60)] {
            let refused = client.info(&sql).await;
            assert_eq!(code(&refused), Code::InvalidArgument, "{sql}: {refused:?}");
        }
    });
}

#[test]
fn statements_beyond_the_caps_are_refused_and_the_process_lives() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        assert_eq!(client.text("SELECT 1").await.unwrap(), ["1"]);
        for (chain, depth) in [(210, 60), (5_000, 1_000), (20_000, 20_000)] {
            for (name, sql, _) in at_the_caps(chain, depth) {
                for command in [sql.clone(), format!("EXPLAIN {sql}"), format!("CREATE VIEW v AS {sql}")] {
                    let refused = timeout(PATIENCE, client.info(&command))
                        .await
                        .unwrap_or_else(|_| panic!("{name} took too long"));
                    assert_eq!(code(&refused), Code::InvalidArgument, "{name} {chain}/{depth}: {refused:?}");
                }
            }
        }
        let long = format!("SELECT '{}'", "x".repeat(1024 * 1024));
        assert_eq!(code(&client.info(&long).await), Code::InvalidArgument);
        assert_eq!(code(&client.info("SELECT '\0'").await), Code::InvalidArgument);
        assert_eq!(client.text("SELECT count(*) FROM nation").await.unwrap(), ["25"], "alive");
    });
}

#[test]
fn chains_that_double_at_each_step_are_refused_soon() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.signed_in("alice").await;
        assert_eq!(client.text(&doubling(2)).await.unwrap(), ["390625"]);
        for steps in [14, 16, 30, 60] {
            let started = Instant::now();
            let refused = client.info(&doubling(steps)).await;
            let took = started.elapsed();
            assert!(
                matches!(code(&refused), Code::InvalidArgument | Code::ResourceExhausted),
                "{steps} steps: {refused:?}"
            );
            assert!(took < Duration::from_secs(3), "{steps} steps took {took:?}: it was planned");
        }
    });
}

#[test]
fn views_that_double_at_each_step_are_refused_soon() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.signed_in("alice").await;
        client.update("CREATE VIEW v0 AS SELECT n_nationkey AS k FROM nation").await.unwrap();
        let mut last = Ok(0);
        for step in 1..40 {
            let started = Instant::now();
            let before = step - 1;
            last = client
                .update(&format!("CREATE VIEW v{step} AS SELECT a.k FROM v{before} a JOIN v{before} b ON a.k = b.k"))
                .await;
            assert!(started.elapsed() < SOON, "view {step} took {:?}", started.elapsed());
            if last.is_err() {
                break;
            }
        }
        assert!(matches!(code(&last), Code::InvalidArgument | Code::ResourceExhausted), "{last:?}");
        let started = Instant::now();
        assert_eq!(gate.client(&Login::key("bob")).text("SELECT 1").await.unwrap(), ["1"]);
        assert!(started.elapsed() < SOON, "others wait for {:?}", started.elapsed());
    });
}

#[test]
fn a_long_list_is_no_chain() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        let list: Vec<_> = (0..2_000).map(|number| number.to_string()).collect();
        let sql = format!("SELECT count(*) FROM nation WHERE n_nationkey IN ({})", list.join(", "));
        assert_eq!(client.text(&sql).await.unwrap(), ["25"]);
        let columns: Vec<_> = (0..500).map(|number| format!("n_nationkey + {number} AS c{number}")).collect();
        let batches = client.rows(&format!("SELECT {} FROM nation", columns.join(", "))).await.unwrap();
        assert_eq!(batches[0].num_columns(), 500);
    });
}

/// Statements of every kind with a chain of `chain` operators or `depth` levels, and the rows they have.
fn at_the_caps(chain: usize, depth: usize) -> Vec<(&'static str, String, usize)> {
    let nested = |open: &str, close: &str| {
        format!("SELECT {}n_nationkey{} AS x FROM nation", open.repeat(depth), close.repeat(depth))
    };
    vec![
        ("a sum", format!("SELECT n_nationkey{} AS x FROM nation", " + 1".repeat(chain)), 25),
        ("a concatenation", format!("SELECT n_name{} AS x FROM nation", " || 'x'".repeat(chain)), 25),
        (
            "ORs",
            format!("SELECT n_name FROM nation WHERE {}n_nationkey = 1", "n_nationkey = 7 OR ".repeat(chain / 2)),
            2,
        ),
        (
            "ANDs",
            format!("SELECT n_name FROM nation WHERE {}n_nationkey >= 0", "n_nationkey <> 99 AND ".repeat(chain / 2)),
            25,
        ),
        ("a union", vec!["SELECT n_name FROM nation"; chain + 1].join(" UNION ALL "), 25 * (chain + 1)),
        ("NOTs", format!("SELECT n_name FROM nation WHERE {}true", "NOT ".repeat(depth - depth % 2)), 25),
        ("signs", format!("SELECT {}n_nationkey AS x FROM nation", "- ".repeat(depth)), 25),
        ("parentheses", nested("(", ")"), 25),
        ("cases", nested("CASE WHEN true THEN ", " ELSE 0 END"), 25),
        (
            "subqueries",
            format!("SELECT n_name FROM {}nation{}", "(SELECT * FROM ".repeat(depth), ")".repeat(depth)),
            25,
        ),
    ]
}

/// Common table expressions that each read the one before twice.
fn doubling(steps: usize) -> String {
    let mut sql = String::from("WITH c0 AS (SELECT n_nationkey AS k FROM nation)");
    for step in 1..=steps {
        let before = step - 1;
        sql += &format!(", c{step} AS (SELECT a.k FROM c{before} a CROSS JOIN c{before} b)");
    }
    sql + &format!(" SELECT count(*) FROM (SELECT k FROM c{} LIMIT 1000000)", steps.min(60))
}

/// Makes the table anew and reads it.
async fn read(client: &Client, location: &str, options: &str) -> Result<Vec<String>, tonic::Status> {
    drop(client.update("DROP TABLE IF EXISTS t").await);
    client.update(&format!("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{location}' {options}")).await?;
    client.text("SELECT * FROM t").await
}

/// Folders with files that may be read, and others.
struct Places(PathBuf);

impl Places {
    fn make(name: &str) -> Self {
        let places = Self(directory().join("places").join(name));
        for folder in ["allowed/folder", "allowed-neighbour", "bobs", "drop", "outside"] {
            fs::create_dir_all(places.at(folder)).unwrap();
        }
        for file in ["allowed/good.csv", "allowed/folder/good.csv", "bobs/good.csv", "drop/good.csv"] {
            fs::write(places.at(file), "a\n1\n").unwrap();
        }
        for file in ["outside/secret.csv", "allowed-neighbour/secret.csv"] {
            fs::write(places.at(file), "a\nsecret\n").unwrap();
        }
        symlink(places.at("outside/secret.csv"), places.at("allowed/link.csv")).unwrap();
        symlink(places.at("outside"), places.at("allowed/linked-folder")).unwrap();
        places
    }

    fn at(&self, place: &str) -> PathBuf {
        self.0.join(place)
    }

    fn text(&self, place: &str) -> String {
        format!("{}/{place}", self.0.display())
    }
}

/// What is at the caps is allowed to take a while where nothing is optimized.
const PATIENCE: Duration = Duration::from_secs(90);
/// A planner's deadline, and a little.
const SOON: Duration = Duration::from_secs(15);

#[test]
fn what_the_cluster_cannot_do_is_unimplemented_in_the_words_of_the_engine() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        assert_eq!(client.text("SELECT count(*) FROM nation WHERE n_name LIKE 'A%'").await.unwrap(), ["2"]);
        for sql in [
            "SELECT count(*) FROM nation WHERE n_name LIKE 'A!%' ESCAPE '!'",
            "SELECT n_name FROM nation WHERE n_regionkey = ANY (SELECT r_regionkey FROM region)",
            "SELECT n_name FROM nation WHERE n_regionkey > ALL (SELECT r_regionkey FROM region)",
        ] {
            let refused = client.text(sql).await.unwrap_err();
            assert!(matches!(refused.code(), Code::Unimplemented | Code::InvalidArgument), "{sql}: {refused}");
            assert!(!refused.message().contains("failed on the cluster"), "{sql}: {refused}");
        }
    });
}

#[test]
fn functions_that_tell_the_servers_files_do_not_exist() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        assert_eq!(client.text("SELECT max(upper(n_name)) FROM nation").await.unwrap(), ["VIETNAM"]);
        for function in ["input_file_name", "file_row_index"] {
            let refused = client.text(&format!("SELECT {function}() FROM nation")).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        }
    });
}

/// Q20, Q28: what makes much of little takes the memory of whoever computes it, which may be the gate.
#[test]
fn a_function_that_makes_too_much_is_refused_and_others_go_on() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let (client, other) = (gate.client(&Login::key("alice")), gate.client(&Login::key("bob")));
        assert_eq!(client.text("SELECT length(repeat(n_name, 2)) FROM nation LIMIT 1").await.unwrap().len(), 1);
        for sql in [
            "SELECT repeat('a', 2000000000)",
            "SELECT length(repeat(n_name, 100000000)) FROM nation",
            "SELECT lpad(n_name, 2000000000, n_name) FROM nation",
            "SELECT array_repeat(n_name, 100000000 + n_nationkey) FROM nation",
            "SELECT range(n_nationkey, 9223372036854775807) FROM nation",
            "SELECT generate_series(TIMESTAMP '1970-01-01', TIMESTAMP '2026-01-01', INTERVAL '1 second')",
        ] {
            let refused = client.rows(sql).await.map(|rows| rows.len()).unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{sql}: {refused}");
            assert!(refused.message().contains("would make more than 64 MiB"), "{sql}: {refused}");
            assert_eq!(other.text("SELECT count(*) FROM nation").await.unwrap(), ["25"]);
        }
        // A table function makes its rows as they are read.
        let first = client.text("SELECT * FROM generate_series(1, 9000000000000000000) LIMIT 2").await.unwrap();
        assert_eq!(first, ["1", "2"]);
    });
}

/// Q27: letters that look like others are letters, and what is no letter is no space.
#[test]
fn odd_characters_are_what_they_are() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        assert_eq!(client.text("SELECT 'é' || '\u{2028}' AS a").await.unwrap(), ["é\u{2028}"]);
        for sql in [
            "\u{feff}SELECT 1",
            "SEL\u{200b}ECT 1",
            "S\u{0415}LECT 1",
            "SELECT\u{200b}1 FROM nation",
            "SELECT * FROM nati\u{043e}n",
            "SELECT '",
            "SELECT 1 /* ",
            "",
            " ",
            ";",
            "-- nothing",
        ] {
            let refused = client.info(sql).await;
            assert_eq!(code(&refused), Code::InvalidArgument, "{sql:?}: {refused:?}");
        }
        assert_eq!(client.text("SELECT 1").await.unwrap(), ["1"]);
    });
}
