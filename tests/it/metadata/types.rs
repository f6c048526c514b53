//! Types: what is told of a column and of a conversion is what SQL does with them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Fields, Int32Type, Schema, TimeUnit};
use arrow_flight::sql::{CommandGetSqlInfo, CommandGetXdbcTypeInfo, ProstMessageExt};
use datafusion::parquet::arrow::ArrowWriter;
use portcullis::config::{Format, Table};
use url::Url;

use super::{bare, rows, tables, with_schema};
use crate::support::login::Login;
use crate::support::{Gate, Settings, directory, on_runtime};

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
