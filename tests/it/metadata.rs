//! What tools ask before they show anything: the reports MD-01 to MD-21 about other servers, and the start-up calls of
//! BI tools, one test for each.
//!
//! Commands are sent as drivers send them, and what is told is compared with what SQL says. Drivers themselves are in
//! `tests/clients`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Fields, Int32Type, Schema, SchemaRef, TimeUnit, UInt32Type};
use arrow_flight::sql::{
    Any, CommandGetCatalogs, CommandGetCrossReference, CommandGetDbSchemas, CommandGetExportedKeys,
    CommandGetImportedKeys, CommandGetPrimaryKeys, CommandGetSqlInfo, CommandGetTableTypes, CommandGetTables,
    CommandGetXdbcTypeInfo, ProstMessageExt,
};
use arrow_flight::{FlightDescriptor, IpcMessage};
use async_trait::async_trait;
use datafusion::catalog::{
    CatalogProvider, MemTable, MemoryCatalogProvider, MemoryCatalogProviderList, SchemaProvider, TableProvider,
};
use datafusion::common::{Constraint, Constraints};
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::logical_expr::TableType;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::prelude::SessionConfig;
use portcullis::backend::QueryBackend;
use portcullis::catalog::{BuildError, SessionBuilder};
use portcullis::config::{Allow, Format, Grantee, Location, NonEmpty, Table};
use portcullis_auth::Principal;
use prost::Message;
use tonic::Code;
use url::Url;

use crate::schema::metadata;
use crate::support::client::{Client, as_text, code, only_ticket};
use crate::support::login::Login;
use crate::support::{Gate, Settings, directory, on_runtime};

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

/// MD-09 (Doris PR #66344).
#[test]
fn nested_and_temporal_columns_are_told_as_they_are_sent() {
    on_runtime(async {
        let mut settings = Settings::shared().await;
        settings.tables = vec![types_table()];
        let gate = Gate::start(settings).await;
        let client = gate.client(&Login::key("alice"));
        let told = tables(&client, with_schema("types")).await.remove("types").unwrap();
        let (sent, batches) =
            client.read_with_schema(client.ticket("SELECT * FROM types").await.unwrap()).await.unwrap();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
        assert_eq!(bare(&told), sent);
        let kind = |name: &str| told.field_with_name(name).unwrap().data_type().clone();
        assert_eq!(kind("date"), DataType::Date32);
        assert_eq!(kind("decimal"), DataType::Decimal128(12, 3));
        let DataType::List(item) = kind("list") else { panic!("{}", kind("list")) };
        assert_eq!(item.data_type(), &DataType::Utf8);
        let DataType::Struct(fields) = kind("struct") else { panic!("{}", kind("struct")) };
        assert_eq!(fields.iter().map(|field| field.name().as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let DataType::Map(entries, _) = kind("map") else { panic!("{}", kind("map")) };
        let DataType::Struct(entry) = entries.data_type() else { panic!("{entries}") };
        assert_eq!(
            entry.iter().map(|field| field.data_type().clone()).collect::<Vec<_>>(),
            [DataType::Utf8, DataType::Int32]
        );
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

/// MD-13 (influxdb_iox#7253). The map is held against what SQL does.
#[test]
fn conversions_that_are_told_are_those_that_sql_makes() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        let told = rows(&client, CommandGetSqlInfo { info: vec![517] }.as_any()).await;
        let union = told.column(1).as_union();
        assert_eq!((told.num_rows(), union.type_id(0)), (1, 5));
        let map = union.value(0);
        let map = map.as_map();
        let lists = map.values().as_list::<i32>();
        let told: BTreeMap<i32, Vec<i32>> = map
            .keys()
            .as_primitive::<Int32Type>()
            .values()
            .iter()
            .zip(lists.iter())
            .map(|(from, into)| (*from, into.unwrap().as_primitive::<Int32Type>().values().to_vec()))
            .collect();
        assert_eq!(told.keys().copied().collect::<Vec<_>>(), NAMES.iter().map(|(code, _)| *code).collect::<Vec<_>>());
        let mut works = BTreeMap::<i32, Vec<i32>>::new();
        for (from, from_name) in NAMES {
            let into = works.entry(*from).or_default();
            for (to, to_name) in NAMES {
                let sql = format!("SELECT CAST(CAST(NULL AS {from_name}) AS {to_name})");
                match client.rows(&sql).await {
                    Ok(_) => into.push(*to),
                    Err(status) => assert!(status.message().contains("CAST"), "{sql}: {status}"),
                }
            }
        }
        assert_eq!(told, works);
    });
}

/// MD-15 (spiceai PR #1563, arrow-adbc#2222).
#[test]
fn keys_of_a_table_without_keys_are_empty_and_in_the_schema_of_the_specification() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        let text = |name: &str| Field::new(name, DataType::Utf8, true);
        let name = |name: &str| Field::new(name, DataType::Utf8, false);
        let sequence = Field::new("key_sequence", DataType::Int32, false);
        let rule = |name: &str| Field::new(name, DataType::UInt8, false);
        let primary = Schema::new(vec![
            text("catalog_name"),
            text("db_schema_name"),
            name("table_name"),
            name("column_name"),
            sequence.clone(),
            text("key_name"),
        ]);
        let foreign = Schema::new(vec![
            text("pk_catalog_name"),
            text("pk_db_schema_name"),
            name("pk_table_name"),
            name("pk_column_name"),
            text("fk_catalog_name"),
            text("fk_db_schema_name"),
            name("fk_table_name"),
            name("fk_column_name"),
            sequence,
            text("fk_key_name"),
            text("pk_key_name"),
            rule("update_rule"),
            rule("delete_rule"),
        ]);
        for (catalog, db_schema, table) in [
            (Some("tpch"), Some("public"), "nation"),
            (None, None, "nation"),
            (Some(""), Some(""), "nation"),
            (None, None, "nothing"),
            (None, None, ""),
            (None, Some("public"), "%"),
        ] {
            let (catalog, db_schema) = (catalog.map(str::to_owned), db_schema.map(str::to_owned));
            let table = table.to_owned();
            for (command, schema) in [
                (keys_of(catalog.as_deref(), db_schema.as_deref(), &table), &primary),
                (
                    CommandGetExportedKeys {
                        catalog: catalog.clone(),
                        db_schema: db_schema.clone(),
                        table: table.clone(),
                    }
                    .as_any(),
                    &foreign,
                ),
                (
                    CommandGetImportedKeys {
                        catalog: catalog.clone(),
                        db_schema: db_schema.clone(),
                        table: table.clone(),
                    }
                    .as_any(),
                    &foreign,
                ),
                (
                    CommandGetCrossReference {
                        pk_catalog: catalog.clone(),
                        pk_db_schema: db_schema.clone(),
                        pk_table: table.clone(),
                        fk_catalog: catalog.clone(),
                        fk_db_schema: db_schema.clone(),
                        fk_table: "region".to_owned(),
                    }
                    .as_any(),
                    &foreign,
                ),
            ] {
                assert_eq!(client.schema(command.clone()).await.unwrap(), *schema);
                let rows = rows(&client, command).await;
                assert_eq!((rows.num_rows(), rows.schema().as_ref()), (0, schema));
            }
        }
    });
}

/// MD-15: a key that is declared is told.
#[test]
fn a_declared_primary_key_is_told_in_its_order() {
    on_runtime(async {
        let mut settings = Settings::shared().await;
        let folder = directory().join("keys");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("t.csv"), "a,b,c\n1,2,3\n").unwrap();
        settings.locations = vec![Location {
            prefix: Url::from_directory_path(&folder).unwrap(),
            to: NonEmpty { first: Grantee::Everyone, rest: Vec::new() },
            allow: Allow::Read,
        }];
        let gate = Gate::start(settings).await;
        let client = gate.signed_in("alice").await;
        let sql = format!(
            "CREATE EXTERNAL TABLE t (a INT NOT NULL, b INT NOT NULL, c INT, PRIMARY KEY (b, a)) STORED AS CSV \
             LOCATION '{}/t.csv' OPTIONS ('format.has_header' 'true')",
            folder.display()
        );
        client.update(&sql).await.unwrap();
        assert_eq!(client.text("SELECT * FROM t").await.unwrap(), ["1|2|3"]);
        let expected = ["tpch|public|t|b|1|", "tpch|public|t|a|2|"];
        for (catalog, schema) in [(Some("tpch"), Some("public")), (None, None), (None, Some("public"))] {
            assert_eq!(as_text(&[rows(&client, keys_of(catalog, schema, "t")).await]), expected);
        }
        for (catalog, schema, table) in
            [(Some(""), None, "t"), (None, Some(""), "t"), (None, Some("p%"), "t"), (None, None, "T")]
        {
            assert_eq!(rows(&client, keys_of(catalog, schema, table)).await.num_rows(), 0);
        }
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
            ("SHOW COLUMNS FROM nation", "tpch|public|nation|n_name|Utf8View|NO"),
            ("DESCRIBE nation", "n_name|Utf8View|NO"),
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

/// MD-21 (gizmosql PR #164).
#[test]
fn every_column_says_its_type_and_decimals_their_precision() {
    on_runtime(async {
        let mut settings = Settings::shared().await;
        settings.tables.push(types_table());
        let gate = Gate::start(settings).await;
        let client = gate.signed_in("alice").await;
        client.update("CREATE VIEW v AS SELECT 1.25 AS d, 'x' AS t, true AS b").await.unwrap();
        let tables = tables(&client, with_schema("%")).await;
        assert!(tables.contains_key("v") && tables.contains_key("types"));
        for (table, schema) in &tables {
            assert!(!schema.fields().is_empty(), "{table}");
            for field in schema.fields() {
                let about = |key: &str| field.metadata().get(&format!("ARROW:FLIGHT:SQL:{key}")).map(String::as_str);
                assert_eq!(about("CATALOG_NAME"), Some("tpch"), "{table}.{field}");
                assert_eq!(about("SCHEMA_NAME"), Some("public"), "{table}.{field}");
                assert_eq!(about("DB_SCHEMA_NAME"), Some("public"), "{table}.{field}");
                assert_eq!(about("TABLE_NAME"), Some(table.as_str()), "{table}.{field}");
                let is_text = field.data_type() == &DataType::Utf8 || field.data_type() == &DataType::LargeUtf8;
                assert_eq!(about("IS_CASE_SENSITIVE"), Some(if is_text { "1" } else { "0" }), "{table}.{field}");
                assert_eq!(about("IS_AUTO_INCREMENT"), Some("0"), "{table}.{field}");
                assert_eq!(about("IS_READ_ONLY"), Some("1"), "{table}.{field}");
                assert_eq!(about("IS_SEARCHABLE"), Some("1"), "{table}.{field}");
                let decimal = if let DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) =
                    field.data_type()
                {
                    Some((precision.to_string(), scale.to_string()))
                } else {
                    None
                };
                assert_eq!(about("PRECISION").zip(about("SCALE")), decimal.as_ref().map(|(p, s)| (&**p, &**s)));
                assert!(about("TYPE_NAME").is_some_and(|name| !name.is_empty()), "{table}.{field}");
            }
        }
        let name = |table: &str, column: &str| {
            let field = tables[table].field_with_name(column).unwrap();
            field.metadata()["ARROW:FLIGHT:SQL:TYPE_NAME"].clone()
        };
        for (column, expected) in [
            ("int", "INTEGER"),
            ("decimal", "DECIMAL"),
            ("timestamp", "TIMESTAMP"),
            ("timestamp_tz", "TIMESTAMP WITH TIME ZONE"),
            ("date", "DATE"),
            ("time", "TIME"),
            ("text", "VARCHAR"),
            ("bytes", "BYTEA"),
            ("bool", "BOOLEAN"),
            ("list", "ARRAY"),
            ("map", "MAP"),
            ("struct", "STRUCT"),
        ] {
            assert_eq!(name("types", column), expected, "{column}");
        }
        assert_eq!(tables["types"].field_with_name("decimal").unwrap().metadata()["ARROW:FLIGHT:SQL:SCALE"], "3");
    });
}

/// BI-01 (datafusion-ballista#428, PR #475).
#[test]
fn the_start_of_tableau_goes_through() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.signed_in("alice").await;
        assert_eq!(rows(&client, CommandGetSqlInfo { info: Vec::new() }.as_any()).await.num_rows(), 91);
        assert_eq!(as_text(&[rows(&client, CommandGetCatalogs {}.as_any()).await]), ["tpch"]);
        let schemas = CommandGetDbSchemas { catalog: Some("tpch".to_owned()), db_schema_filter_pattern: None };
        assert_eq!(as_text(&[rows(&client, schemas.as_any()).await]), ["tpch|public"]);
        let types = as_text(&[rows(&client, CommandGetTableTypes {}.as_any()).await]);
        assert_eq!(types, ["LOCAL TEMPORARY", "TABLE", "VIEW"]);
        let command = CommandGetTables { table_types: types, ..with_schema("%") };
        assert_eq!(tables(&client, command).await.len(), 4);
        assert!(!client.prepare("SELECT 1").await.unwrap().dataset_schema.is_empty());
        assert_eq!(rows(&client, keys_of(Some("tpch"), Some("public"), "nation")).await.num_rows(), 0);
        assert_eq!(client.text("SELECT 1").await.unwrap(), ["1"]);
    });
}

/// BI-03 (kamu-cli#309).
#[test]
fn a_name_with_dots_is_one_name() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.signed_in("alice").await;
        client.update("CREATE VIEW \"my.trading.holdings\" AS SELECT 1 AS price").await.unwrap();
        let command =
            CommandGetTables { table_name_filter_pattern: Some("my.%".to_owned()), ..CommandGetTables::default() };
        let found = as_text(&[rows(&client, command.as_any()).await]);
        assert_eq!(found, ["tpch|public|my.trading.holdings|VIEW"]);
        let sql = "SELECT \"my.trading.holdings\".\"price\" AS \"price\" \
                   FROM \"public\".\"my.trading.holdings\" \"my.trading.holdings\" LIMIT 10";
        assert_eq!(client.text(sql).await.unwrap(), ["1"]);
    });
}

/// BI-05 (arrow-rs#4054, influxdb_iox#7253).
#[test]
fn what_the_odbc_driver_asks_one_by_one_is_answered_in_the_types_of_the_specification() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        for code in (0..=11).chain([100, 101]).chain(500..=576) {
            let rows = rows(&client, CommandGetSqlInfo { info: vec![code] }.as_any()).await;
            assert_eq!(rows.num_rows(), 1, "{code}");
            assert_eq!(rows.column(0).as_primitive::<UInt32Type>().value(0), code);
            let member = match code {
                0..=2 | 6 | 7 | 504 | 513 | 514 | 529..=531 => 0,
                3..=5 | 9..=11 | 500..=502 | 506 | 515 | 516 | 518..=521 | 523 | 524 | 527 | 532 => 1,
                536 | 537 | 539 | 556 | 563 | 565 | 566 | 572..=576 => 1,
                541..=555 | 557..=562 => 2,
                508..=512 => 4,
                517 => 5,
                _ => 3,
            };
            assert_eq!(rows.column(1).as_union().type_id(0), member, "{code}");
        }
        let types = rows(&client, CommandGetXdbcTypeInfo { data_type: None }.as_any()).await;
        let numbers = types.column(1).as_primitive::<Int32Type>().values().to_vec();
        let names: Vec<_> = types.column(0).as_string::<i32>().iter().map(|name| name.unwrap().to_owned()).collect();
        let pairs: Vec<_> = numbers.iter().copied().zip(names.iter().cloned()).collect();
        assert!(pairs.is_sorted(), "by number, then name: {pairs:?}");
        assert_eq!(types.num_rows(), 19);
        // Each number alone has what the whole list has for it, and a number that no type has, nothing.
        for number in -20..=120 {
            let alone = rows(&client, CommandGetXdbcTypeInfo { data_type: Some(number) }.as_any()).await;
            assert_eq!(alone.num_rows(), numbers.iter().filter(|found| **found == number).count(), "{number}");
            assert_eq!(alone.schema(), types.schema());
        }
        assert_eq!(client.rows("SELECT * FROM nation LIMIT 1000").await.unwrap()[0].num_rows(), 25);
    });
}

/// BI-05: the names and literals of `SQLGetTypeInfo` are SQL.
#[test]
fn types_that_are_told_can_be_cast_to_and_written() {
    on_runtime(async {
        let mut settings = Settings::shared().await;
        settings.tables.push(types_table());
        let gate = Gate::start(settings).await;
        let client = gate.client(&Login::key("alice"));
        let types = rows(&client, CommandGetXdbcTypeInfo { data_type: None }.as_any()).await;
        let text = |column: usize, row: usize| {
            let values = types.column(column).as_string::<i32>();
            values.is_valid(row).then(|| values.value(row).to_owned())
        };
        let mut known = Vec::new();
        for row in 0..types.num_rows() {
            let name = text(0, row).unwrap();
            let cast = format!("SELECT CAST(NULL AS {name}) AS x");
            assert!(client.rows(&cast).await.is_ok(), "{cast}");
            if let Some((prefix, suffix)) = text(3, row).zip(text(4, row)) {
                let sample = match name.as_str() {
                    "DATE" => "2020-01-02",
                    "TIME" => "12:34:56.123456789",
                    "TIMESTAMP" => "2020-01-02 12:34:56.123456789",
                    "TIMESTAMP WITH TIME ZONE" => "2020-01-02 12:34:56.123456789+00:00",
                    "INTERVAL" => "1 month 2 days",
                    _ => "0aff",
                };
                let literal = format!("SELECT {prefix}{sample}{suffix} AS x");
                assert!(client.rows(&literal).await.is_ok(), "{literal}");
            }
            known.push(name);
        }
        for (table, schema) in tables(&client, with_schema("%")).await {
            for field in schema.fields() {
                let name = &field.metadata()["ARROW:FLIGHT:SQL:TYPE_NAME"];
                let nested = ["ARRAY", "MAP", "STRUCT"].contains(&name.as_str());
                assert_ne!(known.contains(name), nested, "{table}.{field}: {name}");
            }
        }
    });
}

/// BI-07 (datafusion-ballista PR #501, sqlflite#11).
#[test]
fn the_statements_that_dbeaver_and_datagrip_start_with_work() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.signed_in("alice").await;
        assert_eq!(client.text("SELECT 'keep alive'").await.unwrap(), ["keep alive"]);
        assert!(!client.text("SELECT VERSION()").await.unwrap()[0].is_empty());
        assert_eq!(client.text("SELECT * FROM \"nation\" LIMIT 200").await.unwrap().len(), 25);
        let schemas = CommandGetDbSchemas { catalog: None, db_schema_filter_pattern: None };
        assert_eq!(as_text(&[rows(&client, schemas.as_any()).await]), ["tpch|public"]);
        // getColumns(null, 'public', '%', '%').
        let command = CommandGetTables { db_schema_filter_pattern: Some("public".to_owned()), ..with_schema("%") };
        assert_eq!(tables(&client, command).await.len(), 4);
    });
}

/// BI-09 (gigapi#91, grafana-flightsql-datasource PR #115, #21). Type names are exact, as the specification has them:
/// `BASE TABLE` is `information_schema`'s name and `table` nobody's.
#[test]
fn grafana_is_answered_whatever_type_names_and_empty_headers_it_sends() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        assert_eq!(client.text("select 1").await.unwrap(), ["1"]);
        for (types, expected) in [
            (vec!["TABLE"], 4),
            (vec!["TABLE", "TABLE", "VIEW"], 4),
            (vec!["BASE TABLE", "table"], 0),
            (vec!["VIEW"], 0),
            (vec!["SYSTEM TABLE"], 0),
            (vec![""], 0),
            (vec!["SYSTEM TABLE", "TABLE"], 4),
        ] {
            let names: Vec<String> = types.iter().map(|name| (*name).to_owned()).collect();
            for command in [
                CommandGetTables { table_types: names.clone(), ..CommandGetTables::default() },
                CommandGetTables { table_types: names, ..with_schema("%") },
            ] {
                assert_eq!(rows(&client, command.as_any()).await.num_rows(), expected, "{types:?}");
            }
        }
        let command = CommandGetSqlInfo { info: Vec::new() }.as_any().encode_to_vec();
        let mut request = tonic::Request::new(FlightDescriptor::new_cmd(command));
        for name in ["database", "bucket-name", "x-empty"] {
            request.metadata_mut().insert(name, "".parse().unwrap());
        }
        let info = client.flight().get_flight_info(request).await.unwrap().into_inner();
        assert_eq!((info.endpoint.len(), info.endpoint[0].location.len()), (1, 0));
        assert!(client.read(only_ticket(&info)).await.is_ok());
    });
}

/// BI-11 (r-dbi/adbi#43): no parameters is a schema without fields, and not the absence of a schema.
#[test]
fn a_statement_without_parameters_says_so() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        let made = client.prepare("SELECT * FROM nation LIMIT 10").await.unwrap();
        let parameters = Schema::try_from(IpcMessage(made.parameter_schema)).unwrap();
        assert!(parameters.fields().is_empty());
        let info = client.info_of(crate::support::client::prepared(made.prepared_statement_handle)).await.unwrap();
        let rows = client.read(only_ticket(&info)).await.unwrap();
        assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 10);
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

/// Rule R23.
#[test]
fn a_catalog_far_away_is_asked_for_what_the_filters_leave_and_a_few_at_a_time() {
    on_runtime(async {
        let mut settings = Settings::shared().await;
        let far = Arc::new(Far::default());
        settings.builder = Some(Arc::new(Embedder { backend: Arc::clone(&settings.backend), far: Arc::clone(&far) }));
        let gate = Gate::start(settings).await;
        let client = gate.client(&Login::key("alice"));
        assert_eq!(tables(&client, with_schema("t7")).await.len(), 1);
        assert_eq!(far.opened.swap(0, Ordering::SeqCst), 1, "one table was asked for");
        for nothing in [
            CommandGetTables { catalog: Some("other".to_owned()), ..with_schema("%") },
            CommandGetTables { db_schema_filter_pattern: Some("other".to_owned()), ..with_schema("%") },
            CommandGetTables { table_types: vec!["BASE TABLE".to_owned()], ..with_schema("%") },
            CommandGetTables { table_types: vec!["VIEW".to_owned()], ..with_schema("%") },
            with_schema("t1000"),
        ] {
            assert_eq!(rows(&client, nothing.as_any()).await.num_rows(), 0);
        }
        let names = CommandGetTables { table_types: vec!["TABLE".to_owned()], ..CommandGetTables::default() };
        assert_eq!(rows(&client, names.as_any()).await.num_rows(), TABLES);
        assert_eq!(far.opened.load(Ordering::SeqCst), 0, "nothing of this needs a table");
        let all = tables(&client, with_schema("%")).await;
        assert_eq!((all.len(), far.opened.load(Ordering::SeqCst)), (TABLES, TABLES), "each once");
        let most = far.most.load(Ordering::SeqCst);
        assert!((2..=32).contains(&most), "{most} at a time");
        assert_eq!(as_text(&[rows(&client, keys_of(None, None, "t3")).await]), ["far|public|t3|k|1|"]);
    });
}

/// A catalog whose tables take their time.
#[derive(Debug, Default)]
struct Far {
    opened: AtomicUsize,
    opening: AtomicUsize,
    most: AtomicUsize,
}

#[async_trait]
impl SchemaProvider for Far {
    fn table_names(&self) -> Vec<String> {
        (0..TABLES).map(|number| format!("t{number}")).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        if !self.table_exist(name) {
            return Ok(None);
        }
        self.most.fetch_max(self.opening.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        // The way there.
        tokio::time::sleep(Duration::from_millis(5)).await;
        self.opening.fetch_sub(1, Ordering::SeqCst);
        self.opened.fetch_add(1, Ordering::SeqCst);
        let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, false)]));
        let key = Constraints::new_unverified(vec![Constraint::PrimaryKey(vec![0])]);
        Ok(Some(Arc::new(MemTable::try_new(schema, vec![Vec::new()])?.with_constraints(key))))
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>, DataFusionError> {
        Ok(self.table_exist(name).then_some(TableType::Base))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.table_names().iter().any(|known| known == name)
    }
}

/// An embedder with that catalog.
#[derive(Debug)]
struct Embedder {
    backend: Arc<dyn QueryBackend>,
    far: Arc<Far>,
}

#[async_trait]
impl SessionBuilder for Embedder {
    async fn build(&self, _principal: &Principal, config: SessionConfig) -> Result<SessionState, BuildError> {
        let catalog = Arc::new(MemoryCatalogProvider::new());
        catalog.register_schema("public", Arc::clone(&self.far) as _).map_err(|error| BuildError(error.to_string()))?;
        let list = Arc::new(MemoryCatalogProviderList::new());
        datafusion::catalog::CatalogProviderList::register_catalog(list.as_ref(), "far".to_owned(), catalog);
        Ok(self.backend.planning_state(config).with_catalog_list(list).build())
    }
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

fn keys_of(catalog: Option<&str>, db_schema: Option<&str>, table: &str) -> Any {
    let (catalog, db_schema) = (catalog.map(str::to_owned), db_schema.map(str::to_owned));
    CommandGetPrimaryKeys { catalog, db_schema, table: table.to_owned() }.as_any()
}

/// A file with a column of each kind.
fn types_table() -> Table {
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    let list = DataType::List(Arc::new(text("item")));
    let entries =
        Fields::from(vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Int32, true)]);
    let entries = Field::new("entries", DataType::Struct(entries), false);
    let fields = vec![Field::new("a", DataType::Int32, true), Field::new("b", list.clone(), true)];
    let schema = Arc::new(Schema::new(vec![
        Field::new("int", DataType::Int32, false),
        Field::new("tiny", DataType::Int8, true),
        Field::new("small", DataType::UInt16, true),
        Field::new("big", DataType::UInt64, true),
        Field::new("real", DataType::Float32, true),
        Field::new("bool", DataType::Boolean, true),
        Field::new("decimal", DataType::Decimal128(12, 3), true),
        Field::new("large_decimal", DataType::Decimal256(50, 4), true),
        Field::new("date", DataType::Date32, true),
        Field::new("time", DataType::Time64(TimeUnit::Microsecond), true),
        Field::new("timestamp", DataType::Timestamp(TimeUnit::Microsecond, None), true),
        Field::new("timestamp_tz", DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())), true),
        text("text"),
        Field::new("large_text", DataType::LargeUtf8, true),
        Field::new("bytes", DataType::Binary, true),
        Field::new("fixed", DataType::FixedSizeBinary(2), true),
        Field::new("list", list, true),
        Field::new("map", DataType::Map(Arc::new(entries), false), true),
        Field::new("struct", DataType::Struct(fields.into()), true),
    ]));
    let row = r#"{"int": 1, "tiny": 2, "small": 3, "big": 4, "real": 1.5, "bool": true, "decimal": "1.250",
        "large_decimal": "2.5000", "date": "2020-01-02", "time": "12:34:56", "timestamp": "2020-01-02T12:34:56",
        "timestamp_tz": "2020-01-02T12:34:56Z", "text": "x", "large_text": "y", "bytes": "0aff", "fixed": "0aff",
        "list": ["a", null], "map": {"k": 1}, "struct": {"a": 1, "b": ["c"]}}"#;
    let batch = arrow::json::ReaderBuilder::new(Arc::clone(&schema)).build(Cursor::new(row)).unwrap().next().unwrap();
    let folder = directory().join("types");
    std::fs::create_dir_all(&folder).unwrap();
    // A name for each test, so that none reads what another is writing.
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let file = folder.join(format!("{}.parquet", NUMBER.fetch_add(1, Ordering::SeqCst)));
    let mut writer = ArrowWriter::try_new(File::create(&file).unwrap(), schema, None).unwrap();
    writer.write(&batch.unwrap()).unwrap();
    writer.close().unwrap();
    Table {
        catalog: "tpch".to_owned(),
        schema: "public".to_owned(),
        name: "types".to_owned(),
        location: Url::from_file_path(file).unwrap(),
        format: Format::Parquet,
        partitions: Vec::new(),
        options: Default::default(),
        line: 1,
    }
}

/// The types of `SqlSupportsConvert` that SQL has, by the names that it has for them.
const NAMES: &[(i32, &str)] = &[
    (0, "BIGINT"),
    (1, "BYTEA"),
    (2, "BOOLEAN"),
    (3, "CHAR"),
    (4, "DATE"),
    (5, "DECIMAL(38, 10)"),
    (6, "FLOAT"),
    (7, "INTEGER"),
    (8, "INTERVAL"),
    (9, "INTERVAL"),
    (12, "NUMERIC(38, 10)"),
    (13, "REAL"),
    (14, "SMALLINT"),
    (15, "TIME"),
    (16, "TIMESTAMP"),
    (17, "TINYINT"),
    (18, "BYTEA"),
    (19, "VARCHAR"),
];
/// How many tables are far away.
const TABLES: usize = 200;
