//! What every way to a table or a file answers to an analyst, a writer, an owner and a stranger, as a table.
//!
//! The table is checked in, and written anew as that of `tests/it/matrix.rs` is. A kind of plan or a command that is
//! not in it fails the last test.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use arrow_flight::sql::Command;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::{FutureExt, StreamExt};
use tonic::Status;

use super::house::{House, PEOPLE, ROOT};
use super::ways::{Answer, COMMANDS, KINDS, Way, in_place, kinds, leads_to_tables, ways};
use crate::gate::compare;
use crate::support::client::Client;
use crate::support::on_runtime;

#[test]
fn every_way_answers_everybody_as_the_table_says() {
    on_runtime(async {
        let house = House::open().await;
        let clients: Vec<_> = PEOPLE.iter().map(|who| (*who, house.client(who))).collect();
        let asked: Vec<_> = ways()
            .into_iter()
            .flat_map(|way| {
                let tables: &'static [&'static str] = if way.has_table() { &TABLES } else { &["-"] };
                tables.iter().map(|table| (way, *table)).collect::<Vec<_>>()
            })
            .collect();
        // Boxed, because the compiler cannot see that futures of all lifetimes can be sent.
        let asking: Vec<_> = asked.iter().map(|(way, table)| ask(way, table, &clients).boxed()).collect();
        let answers: Vec<_> = futures::stream::iter(asking).buffered(AT_A_TIME).collect().await;
        let mut text = HEAD.to_owned();
        let mut last = String::new();
        for ((way, table), told) in asked.iter().zip(answers) {
            let name = way.name();
            if name != last {
                text += &format!("\n## {}\n", name.replace('\n', "\\n"));
                last = name;
            }
            let mut outcomes: Vec<(String, Vec<&str>)> = Vec::new();
            for (who, outcome) in told {
                match outcomes.iter_mut().find(|(known, _)| *known == outcome) {
                    Some((_, people)) => people.push(who),
                    None => outcomes.push((outcome, vec![who])),
                }
            }
            for (outcome, people) in outcomes {
                text += &format!("{table:<7} {:<31} {outcome}\n", people.join(" "));
            }
        }
        assert!(!ROOT.join("inbox/copied.csv").exists() && !ROOT.join("inbox/copied.parquet").exists());
        compare("access-matrix.txt", &text);
    });
}

/// What everybody is told, each in a session of its own.
async fn ask(way: &Way, table: &str, clients: &[(&'static str, Client)]) -> Vec<(&'static str, String)> {
    let mut told = Vec::new();
    for (who, client) in clients {
        let client = House::session_on(client).await;
        told.push((*who, outcome(way.go(&client, table).await)));
    }
    told
}

/// One line of what a client is told.
pub(super) fn outcome(answer: Result<Answer, Status>) -> String {
    let text = match answer {
        Err(status) => format!("{:?}: {}", status.code(), status.message()),
        Ok(answer) if answer.schemas.is_empty() => format!("Ok {}", answer.told.join(", ")),
        Ok(answer) if answer.schemas.len() == 1 => format!("Ok schema {}", columns(&answer.schemas[0])),
        Ok(answer) => {
            assert_eq!(answer.schemas[0].fields(), answer.schemas[1].fields(), "one schema, wherever it is told");
            format!("Ok {} rows: {}", answer.rows.len(), answer.rows.join(" ; "))
        }
    };
    let text = text.replace(&ROOT.display().to_string(), "{root}").replace('\n', "\\n");
    if text.chars().nth(LONGEST).is_some() { text.chars().take(LONGEST).chain(['…']).collect() } else { text }
}

fn columns(schema: &Schema) -> String {
    let one = |field: &Field| {
        let kind = field.data_type();
        let text = [DataType::Utf8, DataType::Utf8View].contains(kind);
        let kind = if text { "text".to_owned() } else { kind.to_string() };
        format!("{} {kind}{}", field.name(), if field.is_nullable() { "" } else { " not null" })
    };
    schema.fields().iter().map(|field| one(field)).collect::<Vec<_>>().join(", ")
}

#[test]
fn every_command_and_every_kind_of_plan_is_in_the_table() {
    let sent = ways().into_iter().map(|way| Command::try_from(way.message()).unwrap());
    let sent: BTreeSet<&str> = sent.map(|command| leads_to_tables(&command)).filter(|name| !name.is_empty()).collect();
    assert_eq!(sent.into_iter().collect::<Vec<_>>(), COMMANDS);

    on_runtime(async {
        let context = SessionContext::new_with_config(SessionConfig::new().with_information_schema(true));
        let columns = [("id", DataType::Int64), ("v", DataType::Int64), ("region", DataType::Utf8)];
        let schema = Schema::new(columns.map(|(name, kind)| Field::new(name, kind, true)).to_vec());
        let table = MemTable::try_new(Arc::new(schema), vec![Vec::new()]).unwrap();
        context.register_table("orders", Arc::new(table)).unwrap();
        let mut found = BTreeSet::new();
        for sql in ways().iter().flat_map(|way| way.statements().collect::<Vec<_>>()) {
            // Some are no statements, and some are over tables that are not here.
            if let Ok(plan) = context.state().create_logical_plan(&in_place(sql, "orders")).await {
                plan.apply_with_subqueries(|node| {
                    kinds(node, &mut found);
                    Ok(TreeNodeRecursion::Continue)
                })
                .unwrap();
            }
        }
        let missing: Vec<_> = KINDS.iter().filter(|kind| !found.contains(**kind)).collect();
        assert!(missing.is_empty(), "no statement makes a {missing:?}; there are {found:?}");
        for write in ["Insert", "Delete", "Update", "MergeInto"] {
            assert!(found.iter().any(|kind| kind.starts_with(write)), "{write}: {found:?}");
        }
    });
}

/// Of all of them an analyst sees a part of the first, a writer adds to the third, and the owner reads all.
const TABLES: [&str; 3] = ["orders", "vault", "drafts"];
const AT_A_TIME: usize = 4;
const LONGEST: usize = 240;
const HEAD: &str = "\
# What each way to a table or a file answers to whom. Written by tests/it/whose/matrix.rs with PORTCULLIS_BLESS=1; a test
# compares. Of `orders` the analyst sees the rows of the EU without cards; `vault` is the owner's; the writer may add to
# `drafts` and read below {root}/inbox; the owner reads every table and {root}/outbox; the stranger has no grant.
# Rows are sorted.
";
