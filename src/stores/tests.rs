//! What is reached, what is refused by name, and what never shows.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::catalog::TableProvider;
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::execution::SessionStateBuilder;
use datafusion::object_store::ObjectStoreExt as _;
use datafusion::object_store::path::Path;
use datafusion::prelude::{SessionConfig, SessionContext};
use portcullis_auth::Secret;

use super::configured::{
    Azure, AzureCredentials, Endpoint, ExtraCa, Gcs, GcsCredentials, ObjectStore, Plaintext, S3, S3Credentials, Service,
};
use super::testing::{At, Web};
use super::*;
use crate::config::{Format, Table};

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

fn store(text: &str, service: Service) -> ObjectStore {
    ObjectStore { url: url(text), service, plaintext: Plaintext::Refused, ca: ExtraCa::No, line: 7 }
}

fn s3(bucket: &str, credentials: S3Credentials) -> ObjectStore {
    let endpoint = Endpoint::At(url("https://minio.example.com:9000/"));
    store(&format!("s3://{bucket}/"), Service::S3(S3 { region: "eu-central-1".to_owned(), endpoint, credentials }))
}

fn keys() -> S3Credentials {
    let [id, key, token] = SECRETS.map(Secret::new);
    S3Credentials::Keys { id, key, session_token: Some(token) }
}

const SECRETS: [&str; 3] = ["AKIDSECRET1", "hunter2-secret", "token-secret"];

#[tokio::test]
async fn a_configured_store_is_read() {
    let web = Web::serve([("/data/x.csv", At::File(b"a,b\n1,2\n".to_vec()))]).await;
    let stores = Stores::open(&[web.store()]).unwrap();
    let store = stores.get_store(&web.url.join("data/x.csv").unwrap()).unwrap();
    let path = Path::from("data/x.csv");
    assert_eq!(store.head(&path).await.unwrap().size, 8);
    assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), "a,b\n1,2\n");
    assert_eq!(store.get_range(&path, 4..7).await.unwrap(), "1,2");
    let gone = store.get(&Path::from("gone.csv")).await.map(drop).unwrap_err();
    assert!(matches!(gone, datafusion::object_store::Error::NotFound { .. }), "{gone:?}");
}

#[tokio::test]
async fn what_is_not_configured_is_refused_by_name() {
    let stores = Arc::new(Stores::open(&[s3("lake", S3Credentials::Anonymous)]).unwrap());
    for known in ["s3://lake/orders/", "s3://lake", "file:///tmp/x"] {
        assert!(stores.get_store(&url(known)).is_ok(), "{known}");
    }
    for (unknown, named) in [
        ("s3://other/orders/", "s3://other"),
        ("s3://lake:9000/", "s3://lake:9000"),
        ("s3://Lake/", "s3://Lake"),
        ("gs://lake/", "gs://lake"),
        ("https://minio.example.com:9000/lake/", "https://minio.example.com:9000"),
        ("http://169.254.169.254/latest/meta-data", "http://169.254.169.254"),
        ("file://host/etc/passwd", "file://host"),
        ("hdfs://lake/", "hdfs://lake"),
        ("s3://user:word@lake/", "s3://lake"),
    ] {
        let error = stores.get_store(&url(unknown)).unwrap_err().strip_backtrace();
        assert_eq!(error, format!("Error during planning: there is no object store `{named}`"));
    }
    let nothing = Stores::local_only();
    assert!(nothing.get_store(&url("file:///tmp/x")).is_ok() && nothing.get_store(&url("s3://lake/")).is_err());
}

#[tokio::test]
async fn nobody_adds_a_store_later() {
    let stores = Arc::new(Stores::local_only());
    let runtime = stores.within(&RuntimeEnv::default()).unwrap();
    assert!(runtime.register_object_store(&url("s3://lake"), Arc::new(LocalFileSystem::new())).is_none());
    assert!(runtime.object_store(ListingTableUrl::parse("s3://lake/x").unwrap()).is_err());
    assert!(stores.deregister_store(&url("file:///")).is_err());
    assert!(stores.get_store(&url("file:///tmp/x")).is_ok());
}

#[test]
fn an_environment_keeps_its_bounds_and_reads_through_the_stores() {
    let pool = Arc::new(datafusion::execution::memory_pool::GreedyMemoryPool::new(4711));
    let bounded = RuntimeEnvBuilder::new().with_memory_pool(pool).build().unwrap();
    let within = Arc::new(Stores::local_only()).within(&bounded).unwrap();
    assert!(Arc::ptr_eq(&bounded.memory_pool, &within.memory_pool));
    assert!(Arc::ptr_eq(&bounded.disk_manager, &within.disk_manager));
    assert!(within.object_store(ListingTableUrl::parse("s3://lake/x").unwrap()).is_err());
}

#[test]
fn every_kind_of_store_opens_without_being_asked() {
    // Base64 of nothing secret.
    let account_key = || Secret::new("Y29ycmVjdCBob3JzZQ==");
    let gcs = |credentials| Service::Gcs(Gcs { endpoint: Endpoint::Usual, credentials });
    let azure =
        |credentials| Service::Azure(Azure { account: "acme".to_owned(), endpoint: Endpoint::Usual, credentials });
    let all = [
        s3("keys", keys()),
        s3("public", S3Credentials::Anonymous),
        s3("machine", S3Credentials::Instance),
        store("gs://public/", gcs(GcsCredentials::Anonymous)),
        store("az://key/", azure(AzureCredentials::AccessKey(account_key()))),
        store("az://sas/", azure(AzureCredentials::Sas(Secret::new("?sv=2024-11-04&sig=a%2Fb%3D")))),
        store("az://public/", azure(AzureCredentials::Anonymous)),
        store("az://machine/", azure(AzureCredentials::Instance)),
        store("https://files.example.com:8443/", Service::Web),
    ];
    let stores = Stores::open(&all).unwrap();
    for known in &all {
        assert!(stores.get_store(&known.url).is_ok(), "{}", known.name());
    }

    let account = Secret::new(r#"{"private_key": "hunter2", "client_email": "a@b.c", "private_key_id": "1"}"#);
    let error = Stores::open(&[store("gs://x/", gcs(GcsCredentials::ServiceAccount(account)))]).unwrap_err();
    assert_eq!(error.to_string(), "7: object_store.\"gs://x\": its credentials cannot be used");
    let mut untrusted = s3("x", S3Credentials::Anonymous);
    untrusted.ca = ExtraCa::Pem("no certificate".to_owned());
    let error = Stores::open(&[untrusted]).unwrap_err();
    assert_eq!(error.to_string(), "7: object_store.\"s3://x\": `ca` holds no usable certificate");
}

#[tokio::test]
async fn no_credential_is_in_a_plan_in_a_setting_or_in_what_is_printed() {
    let configured = [s3("lake", keys())];
    let stores = Arc::new(Stores::open(&configured).unwrap());
    let runtime = stores.within(&RuntimeEnv::default()).unwrap();
    let config = SessionConfig::new().with_information_schema(true);
    let state =
        SessionStateBuilder::new().with_default_features().with_config(config).with_runtime_env(runtime).build();
    let context = SessionContext::new_with_state(state);

    let options = ListingOptions::new(Arc::new(CsvFormat::default()));
    let table = ListingTableConfig::new(ListingTableUrl::parse("s3://lake/orders/").unwrap())
        .with_listing_options(options)
        .with_schema(Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)])));
    let table: Arc<dyn TableProvider> = Arc::new(ListingTable::try_new(table).unwrap());
    context.register_table("orders", table).unwrap();
    let plan = context.sql("SELECT a FROM orders WHERE a > 1").await.unwrap().into_unoptimized_plan();
    let sent = datafusion_proto::bytes::logical_plan_to_bytes(&plan).unwrap();
    let sent = String::from_utf8_lossy(&sent).into_owned();
    assert!(sent.contains("s3://lake"), "the plan has the table in it");

    let settings = context.sql("SELECT * FROM information_schema.df_settings").await.unwrap().collect().await.unwrap();
    let all = context.sql("SHOW ALL VERBOSE").await.unwrap().collect().await.unwrap();
    let shown = |batches: &[arrow::array::RecordBatch]| {
        arrow::util::pretty::pretty_format_batches(batches).unwrap().to_string()
    };
    assert!(shown(&settings).contains("datafusion.execution.batch_size"));
    for (where_it_is, text) in [
        ("the plan", sent),
        ("df_settings", shown(&settings)),
        ("SHOW ALL", shown(&all)),
        ("options", format!("{:?}", context.state().config_options().entries())),
        ("the plan's text", format!("{} {plan:?}", plan.display_indent_schema())),
        ("the stores", format!("{stores:?} {:#?}", stores.get_store(&url("s3://lake/")).unwrap())),
        ("the configuration", format!("{configured:?}")),
        ("the environment", format!("{:?}", context.runtime_env())),
    ] {
        assert!(SECRETS.iter().all(|secret| !text.contains(secret)), "{where_it_is}: {text}");
    }
}

#[tokio::test]
async fn a_store_that_points_elsewhere_is_not_followed() {
    let elsewhere = Web::serve([("/x.csv", At::File(b"a\n1\n".to_vec()))]).await;
    let to = elsewhere.url.join("x.csv").unwrap().to_string();
    let web = Web::serve([("/here.csv", At::File(b"a\n2\n".to_vec())), ("/x.csv", At::Moved(to))]).await;
    let stores = Stores::open(&[web.store()]).unwrap();
    let store = stores.get_store(&web.url).unwrap();
    assert_eq!(store.get(&Path::from("here.csv")).await.unwrap().bytes().await.unwrap(), "a\n2\n");
    assert!(store.get(&Path::from("x.csv")).await.is_err());
    assert_eq!(elsewhere.asked(), Vec::<String>::new());
}

#[tokio::test]
async fn what_a_store_repeats_of_a_credential_is_not_told() {
    let text = format!("<Error><AWSAccessKeyId>{}</AWSAccessKeyId>{}</Error>", SECRETS[0], SECRETS[1]);
    let web = Web::serve([("/lake/x.csv", At::Failure(text))]).await;
    let mut store = s3("lake", keys());
    store.plaintext = Plaintext::Danger;
    if let Service::S3(s3) = &mut store.service {
        s3.endpoint = Endpoint::At(web.url.clone());
    }
    let stores = Stores::open(&[store]).unwrap();
    let lake = stores.get_store(&url("s3://lake/")).unwrap();
    let error = lake.get(&Path::from("x.csv")).await.map(drop).unwrap_err();
    let said = format!("{error} {error:?}");
    assert!(said.contains("AWSAccessKeyId"), "the store's own words: {said}");
    assert!(SECRETS.iter().all(|secret| !said.contains(secret)), "{said}");
}

fn table(name: &str, location: &str) -> Table {
    Table {
        catalog: "sales".to_owned(),
        schema: "public".to_owned(),
        name: name.to_owned(),
        location: url(location),
        format: Format::Parquet,
        partitions: Vec::new(),
        options: std::collections::BTreeMap::new(),
        line: 1,
    }
}

#[test]
fn an_operator_is_told_what_a_stock_cluster_needs_for_each_table() {
    let mut public = s3("public", S3Credentials::Anonymous);
    public.plaintext = Plaintext::Danger;
    let gcs = Service::Gcs(Gcs { endpoint: Endpoint::Usual, credentials: GcsCredentials::Anonymous });
    let stores = [s3("lake", keys()), public, store("gs://x/", gcs), store("https://files.example.com/", Service::Web)];
    let tables = [
        table("a", "s3://lake/a/"),
        table("b", "s3://lake/b/"),
        table("c", "s3://public/c/"),
        table("d", "gs://x/d/"),
        table("e", "https://files.example.com/e.parquet"),
        table("f", "file:///srv/f/"),
    ];
    let notes = notes_for_remote(&tables, &stores);
    let about = |name: &str| notes.iter().filter(|note| note.contains(name)).cloned().collect::<Vec<_>>().join("\n");
    assert_eq!(
        about("sales.public.a"),
        "sales.public.a, sales.public.b: a stock scheduler and its executors read `s3://lake` by their own \
         environment, which must have AWS_REGION=eu-central-1, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, \
         AWS_SESSION_TOKEN, AWS_ENDPOINT=https://minio.example.com:9000"
    );
    assert!(about("sales.public.c").contains("AWS_SKIP_SIGNATURE=true"), "{notes:?}");
    assert!(about("sales.public.c").ends_with("AWS_ALLOW_HTTP=true"), "{notes:?}");
    assert!(about("sales.public.d").contains("a stock scheduler or executor cannot read `gs://x`"), "{notes:?}");
    assert!(about("sales.public.e").ends_with("must reach `https://files.example.com`"), "{notes:?}");
    assert!(about("sales.public.f").contains("under the same paths"), "{notes:?}");
    assert!(about("differ in").contains("`s3://lake` and `s3://public`"), "{notes:?}");
    assert_eq!(notes.len(), 6);
    assert!(SECRETS.iter().all(|secret| !notes.concat().contains(secret)), "{notes:?}");

    assert!(notes_for_remote(&[], &stores).is_empty(), "stores without a table need nothing");
    let same = [s3("one", keys()), s3("two", keys())];
    let tables = [table("a", "s3://one/a/"), table("b", "s3://two/b/")];
    assert_eq!(notes_for_remote(&tables, &same).len(), 2, "two buckets by one right");
    let many: Vec<Table> = (0..100).map(|number| table(&format!("t{number}"), "s3://one/t/")).collect();
    assert!(notes_for_remote(&many, &same).concat().contains(" and 80 more tables: "));
}

#[test]
fn a_store_without_tls_is_noted() {
    let mut plain = s3("plain", S3Credentials::Anonymous);
    plain.plaintext = Plaintext::Danger;
    let said = notes(&[plain, s3("lake", keys())]);
    assert_eq!(said, ["danger_http: credentials and rows of `s3://plain` may travel without TLS"]);
}
