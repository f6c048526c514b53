//! The four places where a client learns a schema say the same, nullability included.
//!
//! A driver compares them and gives up when they differ.

use arrow::datatypes::{DataType, Schema};
use arrow_flight::IpcMessage;
use arrow_flight::sql::{
    ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult, Any, CommandGetCatalogs,
    CommandGetCrossReference, CommandGetDbSchemas, CommandGetExportedKeys, CommandGetImportedKeys,
    CommandGetPrimaryKeys, CommandGetSqlInfo, CommandGetTableTypes, CommandGetTables, CommandGetXdbcTypeInfo,
    ProstMessageExt,
};
use prost::Message;

use crate::support::client::{Client, as_text, only_ticket, prepared, statement};
use crate::support::login::Login;
use crate::support::{Gate, on_runtime};

#[test]
fn the_schema_of_a_query_is_one_in_all_four_places() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.signed_in("alice").await;
        client
            .update("CREATE VIEW v AS SELECT n_name AS name, count(*) AS n FROM nation GROUP BY n_name")
            .await
            .unwrap();
        for sql in QUERIES {
            let info = client.info(sql).await.unwrap_or_else(|status| panic!("{sql}: {status}"));
            assert_eq!(info.endpoint.len(), 1, "{sql}");
            assert!(info.endpoint[0].location.is_empty(), "{sql}");
            let told = info.clone().try_decode_schema().unwrap();
            assert!(!told.fields().is_empty(), "{sql}");

            assert_eq!(client.schema(statement(sql)).await.unwrap(), told, "GetSchema of {sql}");
            let made = client.prepare(sql).await.unwrap();
            assert_eq!(Schema::try_from(IpcMessage(made.dataset_schema)).unwrap(), told, "dataset_schema of {sql}");
            let handle = made.prepared_statement_handle;
            assert_eq!(client.schema(prepared(handle.clone())).await.unwrap(), told, "GetSchema of prepared {sql}");
            let again = client.info_of(prepared(handle)).await.unwrap();
            assert_eq!(again.clone().try_decode_schema().unwrap(), told, "FlightInfo of prepared {sql}");
            for ticket in [only_ticket(&info), only_ticket(&again)] {
                let (sent, batches) =
                    client.read_with_schema(ticket).await.unwrap_or_else(|status| panic!("{sql}: {status}"));
                assert_eq!(sent, told, "the stream of {sql}");
                for batch in batches {
                    assert_eq!(*batch.schema(), told, "a batch of {sql}");
                    for (field, column) in told.fields().iter().zip(batch.columns()) {
                        assert!(field.is_nullable() || column.null_count() == 0, "{sql}: {field} has nulls");
                    }
                }
            }
        }
    });
}

#[test]
fn a_statement_without_rows_answers_a_count_and_is_prepared_as_an_update() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.signed_in("alice").await;
        let sql = "SET datafusion.execution.batch_size = 4096";
        let info = client.info(sql).await.unwrap();
        let told = info.clone().try_decode_schema().unwrap();
        assert_eq!(told.fields().len(), 1);
        assert_eq!((told.field(0).name().as_str(), told.field(0).data_type()), ("count", &DataType::Int64));
        assert_eq!(client.schema(statement(sql)).await.unwrap(), told);
        let (sent, batches) = client.read_with_schema(only_ticket(&info)).await.unwrap();
        assert_eq!((sent, batches[0].num_rows()), (told, 1));

        let request = ActionCreatePreparedStatementRequest { query: sql.to_owned(), transaction_id: None };
        let bodies = client.action("CreatePreparedStatement", request.as_any().encode_to_vec()).await.unwrap();
        let result = Any::decode(bodies[0].clone()).unwrap();
        let made: ActionCreatePreparedStatementResult = result.unpack().unwrap().unwrap();
        assert!(made.dataset_schema.is_empty());
        assert!(Schema::try_from(IpcMessage(made.parameter_schema)).unwrap().fields().is_empty());
        // `is_update`, field 4, which the crate's message lacks.
        assert!(result.value.ends_with(&[4 << 3, 1]));
        assert_eq!(client.info_of(prepared(made.prepared_statement_handle)).await.unwrap().endpoint.len(), 1);
    });
}

#[test]
fn types_that_a_driver_cannot_read_are_not_sent() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        for (sql, sent) in [
            ("arrow_cast(n_name, 'Utf8View')", "Utf8"),
            ("arrow_cast(n_name, 'BinaryView')", "Binary"),
            ("arrow_cast(n_name, 'Dictionary(Int32, Utf8)')", "Utf8"),
            ("arrow_cast(n_nationkey, 'Float16')", "Float32"),
            ("arrow_cast(n_nationkey, 'Decimal32(9, 2)')", "Decimal128(9, 2)"),
            ("n_name", "Utf8"),
            ("n_nationkey", "Int64"),
        ] {
            for from in ["nation", "(SELECT 'x' AS n_name, 7 AS n_nationkey)"] {
                let query = format!("SELECT {sql} AS x FROM {from}");
                let info = client.info(&query).await.unwrap_or_else(|status| panic!("{query}: {status}"));
                let told = info.clone().try_decode_schema().unwrap();
                assert_eq!(told.field(0).data_type().to_string(), sent, "{query}");
                assert!(client.read(only_ticket(&info)).await.is_ok(), "{query}");
            }
        }
    });
}

#[test]
fn the_schema_of_metadata_is_one_in_all_places() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        for command in metadata() {
            let info = client.info_of(command.clone()).await.unwrap();
            assert_eq!((info.endpoint.len(), info.endpoint[0].location.len()), (1, 0), "{}", command.type_url);
            let told = info.clone().try_decode_schema().unwrap();
            assert_eq!(client.schema(command.clone()).await.unwrap(), told, "{}", command.type_url);
            let (sent, _) = client.read_with_schema(only_ticket(&info)).await.unwrap();
            assert_eq!(sent, told, "{}", command.type_url);
        }
    });
}

#[test]
fn the_rust_client_reads_and_prepares() {
    on_runtime(async {
        use futures::TryStreamExt;
        let gate = Gate::shared().await;
        let mut client = gate.client(&Login::Nothing).sql();
        client.handshake("alice", "open:sesame:1").await.unwrap();
        let info = client.execute("SELECT n_name FROM nation ORDER BY 1 LIMIT 2".to_owned(), None).await.unwrap();
        let batches: Vec<_> = client.do_get(only_ticket(&info)).await.unwrap().try_collect().await.unwrap();
        assert_eq!(as_text(&batches), ["ALGERIA", "ARGENTINA"]);

        let mut statement = client.prepare("SELECT count(*) AS n FROM region".to_owned(), None).await.unwrap();
        assert_eq!(statement.dataset_schema().unwrap().field(0).name(), "n");
        let info = statement.execute().await.unwrap();
        let batches: Vec<_> = client.do_get(only_ticket(&info)).await.unwrap().try_collect().await.unwrap();
        assert_eq!(as_text(&batches), ["5"]);
        statement.close().await.unwrap();
        assert_eq!(client.execute_update("CREATE VIEW rust AS SELECT 1".to_owned(), None).await.unwrap(), 0);
        client.close().await.unwrap();
    });
}

#[test]
fn metadata_tells_the_sessions_own_catalog() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.signed_in("alice").await;
        client.update("CREATE VIEW mine AS SELECT 1 AS one").await.unwrap();
        let read = async |client: &Client, command: Any| {
            let ticket = only_ticket(&client.info_of(command).await.unwrap());
            as_text(&client.read(ticket).await.unwrap())
        };
        assert_eq!(read(&client, CommandGetCatalogs {}.as_any()).await, ["tpch"]);
        let names = |pattern: &str| CommandGetTables {
            table_name_filter_pattern: Some(pattern.to_owned()),
            db_schema_filter_pattern: Some("public".to_owned()),
            ..CommandGetTables::default()
        };
        let all = ["customer", "mine", "nation", "orders", "region"].map(|name| {
            let kind = if name == "mine" { "VIEW" } else { "TABLE" };
            format!("tpch|public|{name}|{kind}")
        });
        assert_eq!(read(&client, names("%").as_any()).await, all);
        assert_eq!(read(&client, names("n_tion").as_any()).await, ["tpch|public|nation|TABLE"]);
        let other = gate.signed_in("alice").await;
        assert_eq!(read(&other, names("mine").as_any()).await, [""; 0]);
    });
}

/// Every metadata command.
pub(crate) fn metadata() -> Vec<Any> {
    let (catalog, db_schema, table) = (Some("tpch".to_owned()), Some("public".to_owned()), "nation".to_owned());
    vec![
        CommandGetCatalogs {}.as_any(),
        CommandGetDbSchemas { catalog: None, db_schema_filter_pattern: None }.as_any(),
        CommandGetTables::default().as_any(),
        CommandGetTables { include_schema: true, ..CommandGetTables::default() }.as_any(),
        CommandGetTableTypes {}.as_any(),
        CommandGetSqlInfo { info: Vec::new() }.as_any(),
        CommandGetSqlInfo { info: vec![0, 1, 2] }.as_any(),
        CommandGetXdbcTypeInfo { data_type: None }.as_any(),
        CommandGetXdbcTypeInfo { data_type: Some(12) }.as_any(),
        CommandGetPrimaryKeys { catalog: catalog.clone(), db_schema: db_schema.clone(), table: table.clone() }.as_any(),
        CommandGetExportedKeys { catalog: catalog.clone(), db_schema: None, table: table.clone() }.as_any(),
        CommandGetImportedKeys { catalog: None, db_schema: db_schema.clone(), table: table.clone() }.as_any(),
        CommandGetCrossReference {
            pk_catalog: catalog.clone(),
            pk_db_schema: db_schema.clone(),
            pk_table: "region".to_owned(),
            fk_catalog: catalog,
            fk_db_schema: db_schema,
            fk_table: table,
        }
        .as_any(),
    ]
}

pub(crate) const QUERIES: &[&str] = &[
    "SELECT 1",
    "SELECT 1 AS a, NULL AS b, 'x' AS c, true AS d, 1.5 AS e",
    "SELECT count(*) FROM nation",
    "SELECT count(n_name), sum(n_nationkey), avg(n_nationkey), min(n_name), max(n_nationkey) FROM nation",
    "SELECT sum(o_totalprice) FROM orders",
    "SELECT n_regionkey, count(*) AS n FROM nation GROUP BY n_regionkey ORDER BY n_regionkey",
    "SELECT n_regionkey, sum(n_nationkey) FROM nation GROUP BY ROLLUP (n_regionkey)",
    "SELECT CASE WHEN n_nationkey > 10 THEN 1 ELSE 0 END AS big FROM nation",
    "SELECT CASE WHEN n_nationkey > 10 THEN n_name END AS big FROM nation",
    "SELECT sum(CASE WHEN n_nationkey > 10 THEN 1 ELSE 0 END) AS big FROM nation",
    "SELECT coalesce(n_comment, 'none') AS c, nullif(n_name, 'CHINA') AS n FROM nation",
    "SELECT n_name FROM nation UNION ALL SELECT r_name FROM region",
    "SELECT n_name FROM nation UNION SELECT NULL",
    "SELECT n_name FROM nation INTERSECT SELECT n_name FROM nation WHERE n_nationkey < 3",
    "SELECT n_name FROM nation EXCEPT SELECT n_name FROM nation WHERE n_nationkey < 3",
    "SELECT n_name, r_name FROM nation LEFT JOIN region ON n_nationkey = r_regionkey",
    "SELECT n_name, r_name FROM nation RIGHT JOIN region ON n_nationkey = r_regionkey",
    "SELECT n_name, r_name FROM nation FULL JOIN region ON n_nationkey = r_regionkey + 3",
    "SELECT n_name, r_name FROM nation JOIN region ON n_regionkey = r_regionkey WHERE r_name = 'ASIA'",
    "SELECT n_name FROM nation WHERE EXISTS (SELECT 1 FROM region WHERE r_regionkey = n_nationkey)",
    "SELECT n_name, (SELECT max(r_name) FROM region WHERE r_regionkey = n_regionkey) AS r FROM nation",
    "SELECT n_name FROM nation WHERE n_nationkey < 0",
    "SELECT count(*) AS n, max(n_name) AS m FROM nation WHERE n_nationkey < 0",
    "SELECT n_name, row_number() OVER (ORDER BY n_name) AS i, lag(n_name) OVER (ORDER BY n_name) AS l FROM nation",
    "SELECT arrow_cast(n_name, 'Utf8View') AS v FROM nation",
    "SELECT arrow_cast(n_name, 'Dictionary(Int32, Utf8)') AS d FROM nation",
    "SELECT arrow_cast(n_name, 'LargeUtf8') AS l, arrow_cast(n_nationkey, 'UInt8') AS u FROM nation",
    "SELECT arrow_cast('x', 'Utf8View') AS v, arrow_cast('y', 'Dictionary(Int32, Utf8)') AS d",
    "SELECT array_agg(n_name) AS names FROM nation GROUP BY n_regionkey",
    "SELECT [n_nationkey, NULL] AS l, [[1], [2, 3]] AS nested FROM nation",
    "SELECT named_struct('name', n_name, 'key', n_nationkey) AS s FROM nation",
    "SELECT [arrow_cast(n_name, 'Utf8View')] AS l FROM nation",
    "SELECT o_orderdate, o_totalprice, o_orderdate + INTERVAL '1' DAY AS d FROM orders LIMIT 10",
    "SELECT date_trunc('month', o_orderdate) AS m, count(*) FROM orders GROUP BY 1 ORDER BY 1 LIMIT 3",
    "SELECT DISTINCT o_orderstatus FROM orders",
    "SELECT c_name, o_orderkey FROM customer LEFT JOIN orders ON c_custkey = o_custkey ORDER BY 2 DESC LIMIT 5",
    "SELECT * FROM (VALUES (1, 'a'), (2, NULL)) AS t (n, s)",
    "SELECT * FROM generate_series(1, 3)",
    "SELECT n_name AS same, n_comment AS same2, n_name AS \"Mixed Case\" FROM nation LIMIT 1",
    "SELECT * FROM v",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT * FROM r",
    "SELECT table_name, table_type FROM information_schema.tables",
    "SELECT column_name, is_nullable FROM information_schema.columns WHERE table_name = 'nation'",
    "SELECT * FROM information_schema.schemata",
    "EXPLAIN SELECT count(*) FROM nation",
    "SHOW TABLES",
    "SHOW ALL",
    "SHOW COLUMNS FROM nation",
    "DESCRIBE nation",
];
