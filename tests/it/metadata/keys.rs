//! Keys of tables, declared or not.

use arrow::datatypes::{DataType, Field, Schema};
use arrow_flight::sql::{
    Any, CommandGetCrossReference, CommandGetExportedKeys, CommandGetImportedKeys, CommandGetPrimaryKeys,
    ProstMessageExt,
};
use portcullis::config::{Allow, Grantee, Location, NonEmpty};
use url::Url;

use super::rows;
use crate::support::client::as_text;
use crate::support::login::Login;
use crate::support::{Gate, Settings, directory, on_runtime};

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

pub(super) fn keys_of(catalog: Option<&str>, db_schema: Option<&str>, table: &str) -> Any {
    let (catalog, db_schema) = (catalog.map(str::to_owned), db_schema.map(str::to_owned));
    CommandGetPrimaryKeys { catalog, db_schema, table: table.to_owned() }.as_any()
}
