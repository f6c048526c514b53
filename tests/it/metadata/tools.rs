//! What tools do when they start: the reports BI-01 to BI-11.

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, Schema, UInt32Type};
use arrow_flight::sql::{
    CommandGetCatalogs, CommandGetDbSchemas, CommandGetSqlInfo, CommandGetTableTypes, CommandGetTables,
    CommandGetXdbcTypeInfo, ProstMessageExt,
};
use arrow_flight::{FlightDescriptor, IpcMessage};
use prost::Message;

use super::keys::keys_of;
use super::{rows, tables, with_schema};
use crate::support::client::{as_text, only_ticket};
use crate::support::login::Login;
use crate::support::{Gate, on_runtime};

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
