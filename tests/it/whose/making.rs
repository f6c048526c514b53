//! What people can make of a table where tables and views are kept, and who can read it then, as a table.
//!
//! The table is checked in, and written anew as that of [`matrix`](super::matrix) is.

use std::collections::BTreeSet;
use std::sync::Arc;

use portcullis::config::{Grant, Grantee};
use portcullis::storage::{Keeping, Storage};
use portcullis::stores::Stores;
use portcullis_auth::Action;
use url::Url;

use super::house::{House, PEOPLE, ROOT, grants, tables};
use super::matrix::outcome;
use super::ways::{in_place, query};
use crate::gate::compare;
use crate::support::{directory, on_runtime, reading};

#[test]
fn what_somebody_makes_shows_nobody_what_is_hidden_from_them() {
    on_runtime(async {
        let folder = directory().join("kept-in-the-house");
        let place = Url::from_directory_path(&folder).unwrap();
        let storage = Storage::open(place, &Stores::local_only()).await.unwrap();
        let house = House::keeping(Keeping::At(Arc::new(storage)), tables(), [grants(), makers()].concat()).await;
        let mut text = HEAD.to_owned();
        for statement in STATEMENTS {
            text += &format!("\n## {statement}\n");
            for table in TABLES {
                for maker in PEOPLE {
                    text += &made(&house, statement, table, maker).await;
                }
            }
        }
        assert!(!text.contains(&ROOT.display().to_string()) && !text.contains(&folder.display().to_string()));
        compare("access-made.txt", &text);
    });
}

/// What the maker is told, and then what everybody is who reads it, those of one answer together.
async fn made(house: &House, statement: &'static str, table: &str, maker: &str) -> String {
    let client = house.client(maker);
    let session = House::session_on(&client).await;
    let told = outcome(query(statement).go(&session, table).await);
    let mut text = format!("{table:<7} {maker:<9} {told}\n");
    let made = if in_place(statement, table).contains(" c ") { "c" } else { table };
    if told.starts_with("Ok") {
        let mut outcomes: Vec<(String, Vec<&str>)> = Vec::new();
        for reader in PEOPLE {
            let client = if reader == maker { House::session_on(&client).await } else { house.client(reader) };
            let told = outcome(query("SELECT * FROM {t}").go(&client, made).await);
            match outcomes.iter_mut().find(|(known, _)| *known == told) {
                Some((_, people)) => people.push(reader),
                None => outcomes.push((told, vec![reader])),
            }
        }
        for (told, people) in outcomes {
            text += &format!("        {:<31} {told}\n", people.join(" "));
        }
    }
    for what in ["TABLE", "VIEW"] {
        // One of them is refused, and there may be nothing.
        drop(session.update(&format!("DROP {what} IF EXISTS {made}")).await);
    }
    text
}

/// All but the stranger may make `c`, the writer also what is called as the tables are; the analyst and the owner read
/// `c`, whoever made it, and the owner may drop it.
fn makers() -> Vec<Grant> {
    let may = |who: &str, on: &str, actions: &[Action]| Grant {
        allow: BTreeSet::from_iter(actions.iter().copied()),
        ..reading(on, Grantee::Role(who.to_owned()))
    };
    vec![
        may("analyst", "shop.public.c", &[Action::Select, Action::Create]),
        may("writer", "shop.public.*", &[Action::Create]),
        may("owner", "shop.public.c", &[Action::Create, Action::Drop]),
    ]
}

const STATEMENTS: [&str; 9] = [
    "CREATE TABLE c AS SELECT * FROM {t}",
    "CREATE VIEW c AS SELECT * FROM {t}",
    "CREATE VIEW c AS SELECT id, count(*) AS n FROM {t} WHERE v / (id - 2) IS NOT NULL GROUP BY id",
    "CREATE TEMPORARY TABLE c AS SELECT * FROM {t}",
    "CREATE TEMPORARY VIEW c AS SELECT * FROM {t}",
    "CREATE TABLE {t} (id BIGINT)",
    "CREATE OR REPLACE TABLE {t} (id BIGINT)",
    "CREATE VIEW {t} AS SELECT 1 AS id",
    "CREATE OR REPLACE VIEW {t} AS SELECT 1 AS id",
];
const TABLES: [&str; 3] = ["orders", "vault", "drafts"];
const HEAD: &str = "\
# What each can make of a table, and below each what everybody reads of it then, the maker in another session. Written by
# tests/it/whose/making.rs with PORTCULLIS_BLESS=1; a test compares. Who may see what of the three tables is as in
# access-matrix.txt; analyst, writer and owner may create `c`, the writer also under the names of the three; analyst and
# owner may read `c`.
";
