//! What is hidden is not there: every way answers about it, to the byte, as about a name that nobody has used.

use super::house::{House, ROOT};
use super::ways::{Answer, Way, ways};
use crate::support::client::Client;
use crate::support::on_runtime;
use futures::StreamExt;
use tonic::Status;

#[test]
fn a_hidden_table_is_one_that_does_not_exist_by_every_way() {
    on_runtime(async {
        let house = House::open().await;
        let people: Vec<_> = ["stranger", "analyst", "writer"].iter().map(|who| (*who, house.client(who))).collect();
        let people = &people;
        let differing: Vec<_> = futures::stream::iter(ways().into_iter().filter(Way::has_table))
            .map(|way| async move {
                let mut differing = Vec::new();
                for (who, client) in people {
                    let hidden = told(client, &way, "vault").await;
                    let absent = told(client, &way, "vaulx").await.replace("vaulx", "vault");
                    if hidden != absent {
                        differing.push(format!("{who}, {}:\n  {hidden}\n  {absent}", way.name()));
                    }
                }
                differing
            })
            .buffered(4)
            .concat()
            .await;
        assert!(differing.is_empty(), "{}", differing.join("\n"));

        // And the owner can tell.
        let owner = house.client("owner");
        for way in [0, 1] {
            let way = &ways()[way];
            assert_ne!(told(&owner, way, "vault").await, told(&owner, way, "vaulx").await.replace("vaulx", "vault"));
        }
    });
}

#[test]
fn a_schema_or_catalog_of_hidden_tables_is_one_that_does_not_exist() {
    on_runtime(async {
        let house = House::open().await;
        for who in ["stranger", "analyst", "writer"] {
            let client = house.client(who);
            for text in [
                "SELECT * FROM {s}.wine",
                "SELECT * FROM shop.{s}.wine",
                "SELECT * FROM {c}.zqbox.chest",
                "SELECT * FROM {c}.public.orders",
                "DESCRIBE {s}.wine",
                "SHOW COLUMNS FROM {c}.zqbox.chest",
                "SHOW CREATE TABLE {s}.wine",
                "SHOW TABLES FROM {s}",
                "SET datafusion.catalog.default_catalog = '{c}'",
                "SET datafusion.catalog.default_schema = '{s}'",
                "USE {c}",
                "CREATE VIEW {s}.v AS SELECT 1",
                "CREATE VIEW {c}.zqbox.v AS SELECT 1",
                "CREATE EXTERNAL TABLE {s}.f STORED AS CSV LOCATION '{root}/inbox/in.csv'",
                "CREATE SCHEMA shop.{s}",
                "CREATE SCHEMA {c}.{s}",
                "DROP SCHEMA {s}",
                "DROP SCHEMA {c}.zqbox CASCADE",
                "CREATE DATABASE {c}",
                "DROP TABLE {s}.wine",
                "DROP TABLE {c}.zqbox.chest",
                "INSERT INTO {s}.wine (id) VALUES (1)",
                "SELECT * FROM information_schema.tables WHERE table_schema = '{s}' OR table_catalog = '{c}'",
                "SELECT * FROM information_schema.schemata WHERE schema_name = '{s}' OR catalog_name = '{c}'",
                "SELECT * FROM {c}.information_schema.tables",
                "SELECT * FROM {c}.information_schema.schemata",
            ] {
                let of = async |schema: &str, catalog: &str| {
                    let sql = text.replace("{s}", schema).replace("{c}", catalog);
                    let sql = sql.replace("{root}", &ROOT.display().to_string());
                    let client = House::session_on(&client).await;
                    full(&client, client.rows(&sql).await.map(|rows| crate::support::client::as_text(&rows)))
                };
                let hidden = of("zqcellar", "zqattic").await;
                let absent =
                    of("zqcellax", "zqattix").await.replace("zqcellax", "zqcellar").replace("zqattix", "zqattic");
                assert_eq!(hidden, absent, "{who}: {text}");
            }
        }
        let owner = house.client("owner");
        assert_eq!(owner.text("SELECT count(*) FROM zqcellar.wine").await.unwrap(), ["3"]);
        assert_eq!(owner.text("SELECT count(*) FROM zqattic.zqbox.chest").await.unwrap(), ["3"]);
    });
}

/// What comes back for a way in a fresh session, all of it.
async fn told(client: &Client, way: &Way, table: &str) -> String {
    let client = House::session_on(client).await;
    let answer: Result<Answer, Status> = way.go(&client, table).await;
    full(&client, answer)
}

/// The answer, and every header and trailer of the line but the date.
fn full<T: std::fmt::Debug>(client: &Client, answer: Result<T, Status>) -> String {
    let tape = client.tape();
    let mut lines: Vec<String> = tape
        .headers
        .iter()
        .chain(&tape.trailers)
        .flat_map(|map| map.iter().map(|(name, value)| format!("{name}: {value:?}")))
        .filter(|line| !line.starts_with("date:"))
        .collect();
    lines.sort();
    let answer = match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(status) => format!("{:?} {} {:?}", status.code(), status.message(), status.details()),
    };
    format!("{answer}\n  {}", lines.join("\n  "))
}
