//! What a good `[object_store…]` means; what is said about a bad one is among the snapshots.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

use std::env::VarError;
use std::path::Path;

use super::*;
use crate::config::Config;
use crate::config::error::LoadErrors;

fn with(text: &str, environment: &[(&str, &str)]) -> Result<Config, LoadErrors> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config");
    let minimal = std::fs::read_to_string(dir.join("minimal.toml")).unwrap();
    super::super::parse_with(&format!("{minimal}{text}"), &dir.join("portcullis.toml"), &|name| {
        let found = environment.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned()).ok_or(VarError::NotPresent)
    })
}

fn only(text: &str, environment: &[(&str, &str)]) -> ObjectStore {
    let mut stores = with(text, environment).unwrap().object_stores;
    assert_eq!(stores.len(), 1);
    stores.pop().unwrap()
}

#[test]
fn a_bucket_is_read_with_its_keys() {
    let store = only(
        "[object_store.\"s3://lake\"]\nregion = \"eu-central-1\"\nendpoint = \"https://minio.example.com:9000\"\n\
         access_key_id = \"AKID\"\nsecret_access_key = { env = \"LAKE\" }\nsession_token = \"t\"\n",
        &[("LAKE", " hunter2\n")],
    );
    assert_eq!((store.name(), store.plaintext, &store.ca), ("s3://lake", Plaintext::Refused, &ExtraCa::No));
    let Service::S3(s3) = &store.service else { panic!("a bucket") };
    assert_eq!(s3.region, "eu-central-1");
    assert_eq!(s3.endpoint, Endpoint::At(Url::parse("https://minio.example.com:9000/").unwrap()));
    let S3Credentials::Keys { id, key, session_token: Some(token) } = &s3.credentials else { panic!("keys") };
    assert!(id.matches(b"AKID") && key.matches(b"hunter2") && token.matches(b"t"));
    assert!(!format!("{store:?}").contains("hunter2"));
}

#[test]
fn the_environment_is_read_where_it_is_named_only() {
    let variables = [
        ("AWS_ACCESS_KEY_ID", "AKID"),
        ("AWS_SECRET_ACCESS_KEY", "hunter2"),
        ("AWS_ENDPOINT", "http://169.254.169.254"),
        ("AZURE_STORAGE_ACCOUNT_KEY", "aHVudGVyMg=="),
    ];
    let silent = with("[object_store.\"s3://lake\"]\n", &variables).unwrap_err().to_string();
    assert!(silent.contains("needs `access_key_id` and `secret_access_key`, or `credentials`"), "{silent}");

    let store = only("[object_store.\"s3://lake\"]\ncredentials = \"environment\"\n", &variables);
    let Service::S3(s3) = &store.service else { panic!("a bucket") };
    assert_eq!((s3.region.as_str(), &s3.endpoint), ("us-east-1", &Endpoint::Usual));
    let S3Credentials::Keys { key, session_token: None, .. } = &s3.credentials else { panic!("keys") };
    assert!(key.matches(b"hunter2"));

    let store = only("[object_store.\"az://lake\"]\naccount = \"a\"\ncredentials = \"environment\"\n", &variables);
    let Service::Azure(azure) = &store.service else { panic!("a container") };
    let AzureCredentials::AccessKey(key) = &azure.credentials else { panic!("a key") };
    assert!(key.matches(b"aHVudGVyMg=="));
}

#[test]
fn a_public_store_and_the_machines_own_right_are_said_in_a_word() {
    for scheme in ["s3", "gs", "az"] {
        for (word, shown) in [("anonymous", "Anonymous"), ("instance", "Instance")] {
            let account = if scheme == "az" { "account = \"acme\"\n" } else { "" };
            let text = format!("[object_store.\"{scheme}://lake\"]\ncredentials = \"{word}\"\n{account}");
            assert!(format!("{:?}", only(&text, &[]).service).contains(shown), "{text}");
        }
    }
}

#[test]
fn a_web_server_has_one_name() {
    let store = only("[object_store.\"https://Files.example.com:443/\"]\n", &[]);
    assert_eq!(store.name(), "https://files.example.com");
    assert!(matches!(store.service, Service::Web));
    let store = only("[object_store.\"http://127.0.0.1:8080\"]\ndanger_http = true\n", &[]);
    assert_eq!((store.name(), store.plaintext), ("http://127.0.0.1:8080", Plaintext::Danger));
}

#[test]
fn tables_and_locations_may_be_in_configured_stores() {
    let config = with(
        "[object_store.\"https://files.example.com:8443\"]\n[object_store.\"s3://lake\"]\ncredentials = \"instance\"\n\
         [catalog.a.b.c]\nlocation = \"https://files.example.com:8443/x/y.csv\"\nformat = \"csv\"\n\
         [catalog.a.b.d]\nlocation = \"s3://lake/x y/\"\nformat = \"parquet\"\n\
         [[location]]\nprefix = \"s3://lake/in/\"\nto = \"*\"\nallow = [\"read\"]\n",
        &[],
    )
    .unwrap();
    let locations: Vec<_> = config.tables.iter().map(|table| table.location.as_str()).collect();
    assert_eq!(locations, ["https://files.example.com:8443/x/y.csv", "s3://lake/x%20y/"]);
    assert_eq!(config.locations.first().unwrap().prefix.as_str(), "s3://lake/in/");
    assert_eq!(
        config.object_stores.iter().map(ObjectStore::name).collect::<Vec<_>>(),
        ["https://files.example.com:8443", "s3://lake"]
    );
}
