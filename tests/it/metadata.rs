//! What tools ask before they show anything: the reports MD-01 to MD-21 about other servers, and the start-up calls of
//! BI tools, one test for each.
//!
//! Commands are sent as drivers send them, and what is told is compared with what SQL says. Drivers themselves are in
//! `tests/clients`.

mod far;
mod keys;
mod tools;
mod types;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, UInt32Type};
use arrow_flight::IpcMessage;
use arrow_flight::sql::{Any, CommandGetDbSchemas, CommandGetSqlInfo, CommandGetTables, ProstMessageExt};
use tonic::Code;

use crate::schema::metadata;
use crate::support::client::{Client, code, only_ticket};
use crate::support::login::Login;
use crate::support::{Gate, on_runtime};

/// MD-01 (arrow-rs#5540).
#[test]
fn every_ticket_of_a_metadata_command_is_understood() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        for command in metadata() {
            let empty = command.type_url.contains("Key") || command.type_url.contains("CrossReference");
            let rows = rows(&client, command.clone()).await;
            assert_eq!(rows.num_rows() == 0, empty, "{}: {rows:?}", command.type_url);
        }
    });
}

/// MD-03 (sqlflite#26).
#[test]
fn tickets_read_in_another_order_answer_what_they_were_made_for() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        let mut tickets = Vec::new();
        for command in metadata() {
            let told = client.schema(command.clone()).await.unwrap();
            tickets.push((told, only_ticket(&client.info_of(command).await.unwrap())));
        }
        for (told, ticket) in tickets.into_iter().rev() {
            let (sent, _) = client.read_with_schema(ticket).await.unwrap();
            assert_eq!(sent, told);
        }
    });
}

/// MD-05 (orionbelt-semantic-layer PR #433).
#[test]
fn a_table_has_four_columns_and_a_fifth_when_its_schema_is_asked_for() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        let without = rows(&client, CommandGetTables::default().as_any()).await;
        let with = rows(&client, with_schema("%").as_any()).await;
        assert_eq!((without.num_columns(), with.num_columns()), (4, 5));
        assert_eq!(without.num_rows(), with.num_rows());
        let field = with.schema().field(4).clone();
        assert_eq!(field, Field::new("table_schema", DataType::Binary, false));
        assert_eq!(with.column(4).null_count(), 0);
    });
}

/// MD-07 (xtdb#5551).
#[test]
fn a_tables_schema_is_the_schema_of_its_rows() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.signed_in("alice").await;
        let view = "CREATE VIEW v AS SELECT n_name, count(*) AS n, arrow_cast(n_name, 'Utf8View') AS w, NULL AS nothing \
                    FROM nation GROUP BY n_name";
        client.update(view).await.unwrap();
        let tables = tables(&client, with_schema("%")).await;
        assert_eq!(tables.keys().collect::<Vec<_>>(), ["customer", "nation", "orders", "region", "v"]);
        for (table, told) in &tables {
            assert_eq!(bare(told), *selected(&client, table).await, "{table}");
        }
    });
}

/// MD-11 (xtdb#5553).
#[test]
fn info_codes_have_one_row_each_and_unknown_ones_none() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        let told = async |codes: &[u32]| {
            let rows = rows(&client, CommandGetSqlInfo { info: codes.to_vec() }.as_any()).await;
            rows.column(0).as_primitive::<UInt32Type>().values().to_vec()
        };
        let specified: Vec<u32> = (0..=11).chain([100, 101]).chain(500..=576).collect();
        assert_eq!(told(&[]).await, specified);
        assert_eq!(told(&[0, 1, 2, 3]).await, [0, 1, 2, 3]);
        assert_eq!(told(&[504]).await, [504]);
        assert_eq!(told(&[504, 504]).await, [504]);
        assert!(told(&[99_999]).await.is_empty());
        assert_eq!(told(&[99_999, 0, u32::MAX, 12]).await, [0]);
    });
}

/// MD-17 (datafusion#1984, #1592, #8916).
#[test]
fn show_describe_and_information_schema_have_rows_by_default() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        for (sql, row) in [
            ("SHOW TABLES", "tpch|public|nation|BASE TABLE"),
            ("SHOW COLUMNS FROM nation", "tpch|public|nation|n_name|Utf8|NO"),
            ("DESCRIBE nation", "n_name|Utf8|NO"),
            ("SELECT schema_name FROM information_schema.schemata", "public"),
        ] {
            let rows = client.text(sql).await.unwrap_or_else(|status| panic!("{sql}: {status}"));
            assert!(rows.iter().any(|found| found == row), "{sql}: {rows:?}");
        }
    });
}

/// MD-19 (duckdb-adbc-client PR #5, arrow-adbc#427).
#[test]
fn no_filter_is_not_the_empty_filter() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        for (catalog, expected) in
            [(None, 1), (Some("tpch"), 1), (Some(""), 0), (Some("%"), 0), (Some("t_ch"), 0), (Some("TPCH"), 0)]
        {
            let command = CommandGetDbSchemas { catalog: catalog.map(str::to_owned), db_schema_filter_pattern: None };
            assert_eq!(rows(&client, command.as_any()).await.num_rows(), expected, "catalog {catalog:?}");
            let command = CommandGetTables { catalog: catalog.map(str::to_owned), ..CommandGetTables::default() };
            assert_eq!(rows(&client, command.as_any()).await.num_rows(), expected * 4, "catalog {catalog:?}");
        }
        for (pattern, expected) in
            [(None, 1), (Some("%"), 1), (Some(""), 0), (Some("p_bl%"), 1), (Some(r"p\_blic"), 0), (Some("tpch"), 0)]
        {
            let pattern = pattern.map(str::to_owned);
            let schemas = CommandGetDbSchemas { catalog: None, db_schema_filter_pattern: pattern.clone() };
            assert_eq!(rows(&client, schemas.as_any()).await.num_rows(), expected, "schema {pattern:?}");
            let tables = CommandGetTables { db_schema_filter_pattern: pattern.clone(), ..CommandGetTables::default() };
            assert_eq!(rows(&client, tables.as_any()).await.num_rows(), expected * 4, "schema {pattern:?}");
        }
    });
}

/// Rules R22 and R17: pandas sends a statement as a pattern, JDBC escapes with what SqlInfo calls the escape.
#[test]
fn every_text_is_a_pattern() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.signed_in("alice").await;
        for name in ["a_b", "axb", "a%b", "a\\b"] {
            client.update(&format!("CREATE VIEW \"{name}\" AS SELECT 1 AS one")).await.unwrap();
        }
        let found = async |pattern: &str| {
            let command =
                CommandGetTables { table_name_filter_pattern: Some(pattern.to_owned()), ..CommandGetTables::default() };
            let rows = rows(&client, command.as_any()).await;
            rows.column(2).as_string::<i32>().iter().map(|name| name.unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(found("a_b").await, ["a%b", "a\\b", "a_b", "axb"]);
        assert_eq!(found(r"a\_b").await, ["a_b"]);
        assert_eq!(found(r"a\%b").await, ["a%b"]);
        assert_eq!(found(r"a\\b").await, ["a\\b"]);
        assert_eq!(found(r"a\b").await, ["a\\b"]);
        assert_eq!(found("%t%n").await, ["nation"]);
        assert_eq!(found("NATION").await, [""; 0]);
        for text in ["select 'a%b''c' -- \"", "(((((.*)+)+)+)+$", "[", "\\", "%\\", "\0", "é_%"] {
            assert_eq!(found(text).await, [""; 0], "{text}");
        }
        let statement = "SELECT '%_%_%' || n_name FROM nation WHERE n_name LIKE '%a%b%' ".repeat(15_000);
        assert_eq!(found(&statement).await, [""; 0]);
        let command = CommandGetTables {
            table_name_filter_pattern: Some("%".repeat(1024 * 1024 + 1)),
            ..CommandGetTables::default()
        };
        let ticket = only_ticket(&client.info_of(command.as_any()).await.unwrap());
        assert_eq!(code(&client.read(ticket).await), Code::InvalidArgument);
    });
}

/// The one batch of an answer; an empty one when nothing came but the schema.
async fn rows(client: &Client, command: Any) -> RecordBatch {
    let about = command.type_url.clone();
    let info = client.info_of(command).await.unwrap_or_else(|status| panic!("{about}: {status}"));
    let read = client.read_with_schema(only_ticket(&info)).await;
    let (schema, batches) = read.unwrap_or_else(|status| panic!("{about}: {status}"));
    let schema: SchemaRef = Arc::new(schema);
    arrow::compute::concat_batches(&schema, &batches).unwrap()
}

/// The schemas of the tables that a command finds, by name.
async fn tables(client: &Client, command: CommandGetTables) -> BTreeMap<String, Schema> {
    let rows = rows(client, command.as_any()).await;
    let (names, schemas) = (rows.column(2).as_string::<i32>(), rows.column(4).as_binary::<i32>());
    let read = |bytes: &[u8]| Schema::try_from(IpcMessage(bytes.to_vec().into())).unwrap();
    names.iter().zip(schemas.iter()).map(|(name, schema)| (name.unwrap().to_owned(), read(schema.unwrap()))).collect()
}

/// What `SELECT *` declares.
async fn selected(client: &Client, table: &str) -> SchemaRef {
    let info = client.info(&format!("SELECT * FROM {table}")).await.unwrap();
    Arc::new(info.try_decode_schema().unwrap())
}

/// Without what describes the fields.
fn bare(schema: &Schema) -> Schema {
    Schema::new(
        schema
            .fields()
            .iter()
            .map(|field| field.as_ref().clone().with_metadata(Default::default()))
            .collect::<Fields>(),
    )
}

fn with_schema(pattern: &str) -> CommandGetTables {
    CommandGetTables {
        table_name_filter_pattern: Some(pattern.to_owned()),
        include_schema: true,
        ..CommandGetTables::default()
    }
}
