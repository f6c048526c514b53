//! What a cluster makes of a table that was opened here: the plan goes over the wire and is run on the other side.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::ipc::writer::FileWriter;
use arrow::util::pretty::pretty_format_batches;
use datafusion::common::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_plan::collect;
use datafusion::prelude::SessionContext;
use datafusion_proto::logical_plan::{AsLogicalPlan, DefaultLogicalExtensionCodec};
use datafusion_proto::physical_plan::{AsExecutionPlan, DefaultPhysicalExtensionCodec};
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};

use super::fakes::{self, Folder, location, table};
use super::{avro, batch, numbers, texts};
use crate::catalog::ConfiguredCatalogs;
use crate::config::Format;

#[tokio::test]
async fn tables_of_every_configured_format_are_read_on_the_other_side() {
    let folder = Folder::new("formats");
    let rows = [("id", numbers(2)), ("name", texts(2))];
    folder.parquet("parquet/one.parquet", &rows);
    folder.write("csv/one.csv", b"id,name\n0,text\n1,text\n");
    folder.write("json/one.json", b"{\"id\":0,\"name\":\"text\"}\n{\"id\":1,\"name\":\"text\"}\n");
    folder.write("arrow/one.arrow", &arrow_file(&batch(&rows)));
    let formats =
        [("parquet", Format::Parquet), ("csv", Format::Csv), ("json", Format::Json), ("arrow", Format::Arrow)];
    let tables: Vec<_> = formats.iter().map(|(name, format)| table(&folder, name, *format)).collect();
    let catalogs = fakes::catalogs(&tables);
    for (name, _) in formats {
        let found =
            on_the_other_side(&catalogs, &format!("SELECT id, name FROM sales.public.{name} ORDER BY id")).await;
        assert_eq!(found.unwrap(), ["0 text", "1 text"], "{name}");
    }
}

#[tokio::test]
async fn an_external_table_of_avro_files_is_read_on_the_other_side() {
    let folder = Folder::new("avro");
    folder.write("notes/one.avro", &avro::container(&[(1, "milk"), (-300, "bread")]));
    folder.write("notes/two.avro", &avro::container(&[(2, "salt")]));
    let catalogs = fakes::catalogs(&[]);
    let place = location(&folder.path("notes/"));
    let context = session(&catalogs).await;
    run(&context, &format!("CREATE EXTERNAL TABLE notes STORED AS AVRO LOCATION '{place}'")).await.unwrap();
    let found = across(&context, "SELECT id, name FROM notes ORDER BY id").await.unwrap();
    assert_eq!(found, ["-300 bread", "1 milk", "2 salt"]);
}

#[tokio::test]
async fn a_new_file_is_read_by_the_next_query_and_a_stray_one_by_none() {
    let folder = Folder::new("next");
    folder.parquet("orders/one.parquet", &[("id", numbers(1))]);
    folder.write("orders/_SUCCESS", b"left by another engine");
    let catalogs = fakes::catalogs(&[table(&folder, "orders", Format::Parquet)]);
    let count = "SELECT count(*) FROM sales.public.orders";
    assert_eq!(on_the_other_side(&catalogs, count).await.unwrap(), ["1"]);
    folder.parquet("orders/two.parquet", &[("id", numbers(2))]);
    assert_eq!(on_the_other_side(&catalogs, count).await.unwrap(), ["3"]);
    fs::remove_file(folder.path("orders/one.parquet")).unwrap();
    assert_eq!(on_the_other_side(&catalogs, count).await.unwrap(), ["2"]);
}

#[tokio::test]
async fn an_external_table_is_listed_anew_each_time_it_is_made() {
    let folder = Folder::new("again");
    folder.parquet("notes/one.parquet", &[("id", numbers(1))]);
    let context = session(&fakes::catalogs(&[])).await;
    let make = format!("CREATE EXTERNAL TABLE notes STORED AS PARQUET LOCATION '{}'", location(&folder.path("notes/")));
    run(&context, &make).await.unwrap();
    folder.parquet("notes/two.parquet", &[("id", numbers(1)), ("name", texts(1))]);
    run(&context, "DROP TABLE notes").await.unwrap();
    run(&context, &make).await.unwrap();
    assert_eq!(across(&context, "SELECT count(name) FROM notes").await.unwrap(), ["1"]);
}

#[tokio::test]
async fn a_declared_schema_partitions_and_an_order_are_kept() {
    let folder = Folder::new("declared");
    folder.write("notes/day=1/one.csv", b"5;six\n");
    folder.write("notes/day=2/one.csv", b"7;eight\n");
    let context = session(&fakes::catalogs(&[])).await;
    let place = location(&folder.path("notes/"));
    let make = format!(
        "CREATE EXTERNAL TABLE notes (number INT, word VARCHAR, day INT) STORED AS CSV PARTITIONED BY (day) \
         WITH ORDER (number ASC) LOCATION '{place}' OPTIONS ('format.delimiter' ';', 'format.has_header' 'false')"
    );
    run(&context, &make).await.unwrap();
    let found = across(&context, "SELECT day, number, word FROM notes ORDER BY day").await.unwrap();
    assert_eq!(found, ["1 5 six", "2 7 eight"]);

    // Undeclared: partition columns are found in the names of the folders.
    folder.parquet("more/day=1/one.parquet", &[("id", numbers(1))]);
    let place = location(&folder.path("more/"));
    run(&context, &format!("CREATE EXTERNAL TABLE more STORED AS PARQUET LOCATION '{place}'")).await.unwrap();
    assert_eq!(across(&context, "SELECT id, day FROM more").await.unwrap(), ["0 1"]);
}

async fn on_the_other_side(catalogs: &ConfiguredCatalogs, sql: &str) -> Result<Vec<String>, DataFusionError> {
    across(&session(catalogs).await, sql).await
}

async fn session(catalogs: &ConfiguredCatalogs) -> SessionContext {
    let state = fakes::session(catalogs).await;
    // A place for tables of its own, as the workspace's overlay is one.
    let own = Arc::new(datafusion::catalog::MemoryCatalogProvider::new());
    let schema = Arc::new(datafusion::catalog::MemorySchemaProvider::new());
    datafusion::catalog::CatalogProvider::register_schema(own.as_ref(), "public", schema).unwrap();
    let list = Arc::new(datafusion::catalog::MemoryCatalogProviderList::new());
    for name in state.catalog_list().catalog_names() {
        let known = state.catalog_list().catalog(&name).unwrap();
        datafusion::catalog::CatalogProviderList::register_catalog(list.as_ref(), name, known);
    }
    datafusion::catalog::CatalogProviderList::register_catalog(list.as_ref(), "datafusion".to_owned(), own);
    SessionContext::new_with_state(SessionStateBuilder::new_from_existing(state).with_catalog_list(list).build())
}

async fn run(context: &SessionContext, sql: &str) -> Result<(), DataFusionError> {
    context.sql(sql).await?.collect().await.map(drop)
}

/// Plans here, and does there what a scheduler and an executor do, with nothing but the bytes.
async fn across(context: &SessionContext, sql: &str) -> Result<Vec<String>, DataFusionError> {
    let plan = context.state().create_logical_plan(sql).await?;
    let plan = context.state().optimize(&plan)?;
    let mut bytes = Vec::new();
    LogicalPlanNode::try_from_logical_plan(&plan, &DefaultLogicalExtensionCodec {})?.try_encode(&mut bytes)?;

    let scheduler = SessionContext::new();
    let plan = LogicalPlanNode::try_decode(&bytes)?
        .try_into_logical_plan(&scheduler.task_ctx(), &DefaultLogicalExtensionCodec {})?;
    let plan = scheduler.state().create_physical_plan(&plan).await?;
    let mut bytes = Vec::new();
    PhysicalPlanNode::try_from_physical_plan(plan, &DefaultPhysicalExtensionCodec {})?.try_encode(&mut bytes)?;

    let executor = SessionContext::new();
    let plan = PhysicalPlanNode::try_decode(&bytes)?
        .try_into_physical_plan(&executor.task_ctx(), &DefaultPhysicalExtensionCodec {})?;
    Ok(lines(&collect(plan, executor.task_ctx()).await?))
}

/// Each row's values with one blank between them.
fn lines(batches: &[RecordBatch]) -> Vec<String> {
    let text = pretty_format_batches(batches).unwrap().to_string();
    let rows = text.lines().skip(3).filter(|line| line.starts_with('|'));
    rows.map(|line| line.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join(" "))
        .collect()
}

fn arrow_file(batch: &RecordBatch) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = FileWriter::try_new(&mut bytes, &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    writer.finish().unwrap();
    drop(writer);
    bytes
}
