//! Configured tables: opened when used, once for everybody, fresh, bounded, and never an end of the gate.
#![expect(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "a failed step fails the test")]

mod avro;
mod fakes;
mod scan;

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, StringViewArray};
use datafusion::catalog::{CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::prelude::SessionContext;
use tokio::time::Instant;

use self::fakes::{Counting, Folder, catalogs, catalogs_over, table};
use super::*;
use crate::config::Format;

#[tokio::test]
async fn a_table_is_known_before_it_is_opened_and_opened_when_it_is_used() {
    let folder = Folder::new("lazy");
    let store = Counting::new();
    let catalogs = catalogs_over(&store, &[table(&folder, "orders", Format::Parquet)], Times::default());
    let schema = schema(&catalogs);
    assert_eq!(schema.table_names(), ["orders"]);
    assert!(schema.table_exist("orders") && !schema.table_exist("absent"));
    assert!(schema.table_type("orders").await.unwrap().is_some());
    assert!(schema.table_type("absent").await.unwrap().is_none());
    assert!(schema.table("absent").await.unwrap().is_none());
    assert_eq!(store.listings(), 0, "names cost nothing");

    folder.parquet("orders/one.parquet", &[("id", numbers(3))]);
    assert_eq!(columns(&open(&catalogs, "orders").await.unwrap()), ["id"]);
    let listings = store.listings();
    assert!(listings > 0);
    open(&catalogs, "orders").await.unwrap();
    assert_eq!(store.listings(), listings, "the second use finds it open");
}

#[tokio::test]
async fn however_many_ask_at_once_a_table_is_opened_once() {
    let folder = Folder::new("once");
    folder.parquet("orders/one.parquet", &[("id", numbers(3))]);
    let store = Counting::new();
    let catalogs = catalogs_over(&store, &[table(&folder, "orders", Format::Parquet)], Times::default());
    let asked = futures::future::join_all((0..50).map(|_| open(&catalogs, "orders"))).await;
    let first = Arc::clone(asked.first().unwrap().as_ref().unwrap());
    assert!(asked.iter().all(|answer| Arc::ptr_eq(answer.as_ref().unwrap(), &first)), "all have one provider");
    let alone = store.listings();

    let other = Counting::new();
    let catalogs = catalogs_over(&other, &[table(&folder, "orders", Format::Parquet)], Times::default());
    open(&catalogs, "orders").await.unwrap();
    assert_eq!(alone, other.listings(), "fifty cost what one costs");
}

#[tokio::test]
async fn a_failure_is_forgotten_after_a_moment() {
    let folder = Folder::new("failure");
    let times = Times { broken: Duration::from_millis(100), ..Times::default() };
    let store = Counting::new();
    let catalogs = catalogs_over(&store, &[table(&folder, "orders", Format::Parquet)], times);
    let refused = open(&catalogs, "orders").await.unwrap_err();
    let listings = store.listings();
    open(&catalogs, "orders").await.unwrap_err();
    assert_eq!(store.listings(), listings, "a broken table is not asked again at once");
    // What the client is told of this is that files cannot be read; where they are is for the log.
    assert!(matches!(refused, DataFusionError::IoError(_)), "{refused}");
    assert!(refused.to_string().contains("there is no file named `*.parquet` at file://"), "{refused}");

    folder.parquet("orders/one.parquet", &[("id", numbers(3))]);
    eventually("it opens", async || open(&catalogs, "orders").await.is_ok()).await;
}

#[tokio::test]
async fn a_broken_table_leaves_the_others_alone_and_is_named_with_its_line() {
    let folder = Folder::new("broken");
    folder.parquet("orders/one.parquet", &[("id", numbers(3))]);
    fs::create_dir_all(folder.path("empty")).unwrap();
    folder.write("torn/one.parquet", b"PAR1 but not for long");
    let mut tables = Vec::new();
    for (line, name) in [(7, "torn"), (3, "orders"), (5, "empty")] {
        tables.push(Table { line, ..table(&folder, name, Format::Parquet) });
    }
    let catalogs = catalogs(&tables);
    let told: Vec<_> = catalogs.open_all().await.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    let begins = |at: usize, with: &str| told.get(at).unwrap().starts_with(with);
    assert!(begins(0, "5: catalog.sales.public.empty: the table cannot be opened: "), "{told:?}");
    assert!(begins(1, "7: catalog.sales.public.torn: the table cannot be opened: "), "{told:?}");
    assert!(open(&catalogs, "orders").await.is_ok());
}

#[tokio::test]
async fn who_asks_for_a_slow_table_waits_no_longer_than_allowed_and_finds_it_open_later() {
    let folder = Folder::new("slow");
    folder.parquet("orders/one.parquet", &[("id", numbers(3))]);
    let times = Times { wait: Duration::from_millis(50), ..Times::default() };
    let store = Counting::new();
    store.hold();
    let catalogs = catalogs_over(&store, &[table(&folder, "orders", Format::Parquet)], times);
    let asked = Instant::now();
    let refused = open(&catalogs, "orders").await.unwrap_err();
    assert!(asked.elapsed() < Duration::from_secs(5));
    assert!(refused.to_string().contains("still being opened"), "{refused}");
    store.let_go();
    eventually("it opens", async || open(&catalogs, "orders").await.is_ok()).await;
}

#[tokio::test]
async fn an_opening_that_never_ends_is_ended() {
    let folder = Folder::new("endless");
    let times = Times { open: Duration::from_millis(50), ..Times::default() };
    let store = Counting::new();
    store.hold();
    let catalogs = catalogs_over(&store, &[table(&folder, "orders", Format::Parquet)], times);
    let refused = open(&catalogs, "orders").await.unwrap_err();
    assert!(refused.to_string().contains("were not read within 50ms"), "{refused}");
}

#[tokio::test]
async fn a_column_that_a_new_file_brings_is_seen_when_the_table_is_looked_at_again() {
    let folder = Folder::new("fresh");
    folder.parquet("orders/one.parquet", &[("id", numbers(3))]);
    let catalogs = fakes::with_times(&[table(&folder, "orders", Format::Parquet)], at_once());
    let first = open(&catalogs, "orders").await.unwrap();
    let again = open(&catalogs, "orders").await.unwrap();
    assert!(Arc::ptr_eq(&first, &again), "what has not changed is not opened anew");
    folder.parquet("orders/two.parquet", &[("id", numbers(3)), ("note", texts(3))]);
    assert_eq!(columns(&open(&catalogs, "orders").await.unwrap()), ["id", "note"]);

    let lazy = fakes::with_times(
        &[table(&folder, "orders", Format::Parquet)],
        Times { fresh: Duration::ZERO, ..Times::default() },
    );
    open(&lazy, "orders").await.unwrap();
    folder.parquet("orders/four.parquet", &[("tax", numbers(3))]);
    assert_eq!(columns(&open(&lazy, "orders").await.unwrap()), ["id", "note"], "nobody waits for a look");
    eventually("a look", async || columns(&open(&lazy, "orders").await.unwrap()).len() == 3).await;

    let slow = catalogs_over(&Counting::new(), &[table(&folder, "orders", Format::Parquet)], Times::default());
    open(&slow, "orders").await.unwrap();
    folder.parquet("orders/three.parquet", &[("price", numbers(3))]);
    assert_eq!(columns(&open(&slow, "orders").await.unwrap()), ["tax", "id", "note"], "not before its time");
}

#[tokio::test]
async fn a_table_whose_files_are_away_stays_as_it_was() {
    let folder = Folder::new("away");
    folder.parquet("orders/one.parquet", &[("id", numbers(3))]);
    let catalogs = fakes::with_times(&[table(&folder, "orders", Format::Parquet)], at_once());
    let before = open(&catalogs, "orders").await.unwrap();
    fs::remove_dir_all(folder.path("orders")).unwrap();
    let meanwhile = open(&catalogs, "orders").await.unwrap();
    assert!(Arc::ptr_eq(&before, &meanwhile));
    folder.parquet("orders/one.parquet", &[("name", texts(1))]);
    assert_eq!(columns(&open(&catalogs, "orders").await.unwrap()), ["name"]);
}

#[tokio::test]
async fn a_new_configuration_is_seen_by_open_sessions_and_what_stayed_the_same_stays_open() {
    let folder = Folder::new("replace");
    for name in ["same", "moved", "gone", "new"] {
        folder.parquet(&format!("{name}/one.parquet"), &[(name, numbers(3))]);
    }
    let of = |name| table(&folder, name, Format::Parquet);
    let catalogs = catalogs(&[of("same"), of("moved"), of("gone")]);
    let session = fakes::session(&catalogs).await;
    let same = in_session(&session, "same").await.unwrap().unwrap();
    assert_eq!(columns(&in_session(&session, "moved").await.unwrap().unwrap()), ["moved"]);

    let moved = Table { location: of("new").location, ..of("moved") };
    catalogs.replace(&[Table { line: 99, ..of("same") }, moved, of("new")]);
    let later = in_session(&session, "same").await.unwrap().unwrap();
    assert!(Arc::ptr_eq(&same, &later), "another line is no other table");
    assert_eq!(columns(&in_session(&session, "moved").await.unwrap().unwrap()), ["new"]);
    assert!(in_session(&session, "gone").await.unwrap().is_none());
    assert!(in_session(&session, "new").await.unwrap().is_some());

    catalogs.replace(&[]);
    assert_eq!(session.catalog_list().catalog_names(), ["home"], "which is there whatever is in it");
}

#[tokio::test]
async fn partition_columns_come_last_and_are_of_the_configured_types() {
    let folder = Folder::new("partitions");
    folder.parquet("orders/year=2024/month=a/one.parquet", &[("id", numbers(1))]);
    folder.parquet("orders/year=2025/month=b/one.parquet", &[("id", numbers(2))]);
    let partitions = vec![
        ("year".to_owned(), crate::config::PartitionType::Int),
        ("month".to_owned(), crate::config::PartitionType::Varchar),
    ];
    let catalogs = catalogs(&[Table { partitions, ..table(&folder, "orders", Format::Parquet) }]);
    let orders = open(&catalogs, "orders").await.unwrap();
    let types: Vec<_> = orders.schema().fields().iter().map(|field| field.to_string()).collect();
    assert_eq!(columns(&orders), ["id", "year", "month"]);
    assert!(types.get(1).unwrap().contains("Int32") && types.get(2).unwrap().contains("Utf8"), "{types:?}");
}

#[tokio::test]
async fn texts_that_were_written_as_views_are_read_as_texts() {
    let folder = Folder::new("views");
    let texts: ArrayRef = Arc::new(StringViewArray::from(vec!["longer than twelve bytes", "short"]));
    folder.parquet("orders/one.parquet", &[("id", numbers(2)), ("text", texts)]);
    let catalogs = catalogs(&[table(&folder, "orders", Format::Parquet)]);
    let context = SessionContext::new();
    context.register_table("orders", open(&catalogs, "orders").await.unwrap()).unwrap();
    let sql = "SELECT text FROM orders WHERE text LIKE 'longer%' AND text = 'longer than twelve bytes'";
    let rows = context.sql(sql).await.unwrap().collect().await.unwrap();
    let texts: Vec<_> = rows.iter().flat_map(|rows| rows.column(0).as_string::<i32>().iter().flatten()).collect();
    assert_eq!(texts, ["longer than twelve bytes"]);
}

#[tokio::test]
async fn a_table_of_too_many_files_is_refused_in_words_that_name_no_place() {
    let store = Counting::new();
    let folder = Folder::new("many");
    folder.parquet("orders/one.parquet", &[("id", numbers(1))]);
    store.pretend(listing::MAX_FILES);
    let catalogs = catalogs_over(&store, &[table(&folder, "orders", Format::Parquet)], at_once());
    assert_eq!(columns(&open(&catalogs, "orders").await.unwrap()), ["id"], "so many may be");
    // One more comes while it is open.
    store.pretend(listing::MAX_FILES + 1);
    let refused = open(&catalogs, "orders").await.unwrap_err();
    let told = "table `sales.public.orders` has more than 100000 files";
    assert!(matches!(&refused, DataFusionError::Plan(text) if text == told), "{refused}");
}

#[tokio::test]
async fn a_table_of_too_many_columns_is_refused() {
    let folder = Folder::new("wide");
    let wide = |columns: usize| {
        let names: Vec<_> = (0..columns).map(|number| format!("c{number}")).collect();
        let text = names.join(",");
        format!("{text}\n{text}\n")
    };
    folder.write("most/one.csv", wide(listing::MAX_COLUMNS).as_bytes());
    folder.write("more/one.csv", wide(listing::MAX_COLUMNS + 1).as_bytes());
    let catalogs = catalogs(&[table(&folder, "most", Format::Csv), table(&folder, "more", Format::Csv)]);
    assert_eq!(columns(&open(&catalogs, "most").await.unwrap()).len(), listing::MAX_COLUMNS);
    let refused = open(&catalogs, "more").await.unwrap_err().to_string();
    assert!(refused.contains("table `sales.public.more` has more than 2000 columns"), "{refused}");
}

#[tokio::test]
async fn only_the_beginning_of_a_text_file_is_read_for_its_columns() {
    use datafusion::object_store::local::LocalFileSystem;
    use datafusion::object_store::path::Path;
    use datafusion::object_store::{ObjectStore, ObjectStoreExt};

    let folder = Folder::new("beginning");
    folder.write("lines.txt", b"first\nsecond\nthird\n");
    let whole: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new());
    let file = Path::from_absolute_path(folder.path("lines.txt")).unwrap();
    let all = beginnings::Beginnings::of(Arc::clone(&whole)).get(&file).await.unwrap();
    assert_eq!(all.bytes().await.unwrap(), "first\nsecond\nthird\n");
    let cut = beginnings::Beginnings::of_length(Arc::clone(&whole), 9).get(&file).await.unwrap();
    assert_eq!(cut.bytes().await.unwrap(), "first\n", "half a line would be a wrong record");
    let short = beginnings::Beginnings::of_length(whole, 3);
    assert_eq!(short.get(&file).await.unwrap().bytes().await.unwrap(), "fir");
    assert!(short.delete(&file).await.is_err() && short.put(&file, "x".into()).await.is_err());
    assert!(folder.path("lines.txt").exists());
}

/// Looked at again at every use.
fn at_once() -> Times {
    Times { fresh: Duration::ZERO, stale: Duration::ZERO, broken: Duration::ZERO, ..Times::default() }
}

fn schema(catalogs: &ConfiguredCatalogs) -> Arc<dyn SchemaProvider> {
    catalogs.configured.catalog("sales").unwrap().schema("public").unwrap()
}

async fn open(catalogs: &ConfiguredCatalogs, name: &str) -> Result<Arc<dyn TableProvider>, DataFusionError> {
    schema(catalogs).table(name).await.map(Option::unwrap)
}

async fn in_session(session: &SessionState, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
    session.catalog_list().catalog("sales").unwrap().schema("public").unwrap().table(name).await
}

fn columns(table: &Arc<dyn TableProvider>) -> Vec<String> {
    table.schema().fields().iter().map(|field| field.name().clone()).collect()
}

fn numbers(count: i64) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(0..count))
}

fn texts(count: usize) -> ArrayRef {
    Arc::new(StringArray::from(vec!["text"; count]))
}

fn batch(columns: &[(&str, ArrayRef)]) -> RecordBatch {
    RecordBatch::try_from_iter(columns.iter().map(|(name, column)| (*name, Arc::clone(column)))).unwrap()
}

/// Asks again until `done` says yes.
async fn eventually(what: &str, done: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done().await {
        assert!(Instant::now() < deadline, "{what}: not in time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
