//! What a cluster of stock processes can read of the configured tables.
//!
//! Ballista's own scheduler and executor programs know local files, S3 with what their own environment says, and web
//! servers; they learn nothing from the gate. Must not look anywhere: an operator is told what to look at.

use std::collections::BTreeMap;

use super::{configured, key};
use crate::config::Table;
use crate::config::stores::{Endpoint, ExtraCa, ObjectStore, Plaintext, S3, S3Credentials, Service};

/// For each table, what it takes that a stock cluster can read it; tables of one store share a note.
pub fn notes_for_remote(tables: &[Table], stores: &[configured::ObjectStore]) -> Vec<String> {
    let mut by_store: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for table in tables {
        let name = format!("{}.{}.{}", table.catalog, table.schema, table.name);
        by_store.entry(key(&table.location)).or_default().push(name);
    }
    let mut notes: Vec<String> = by_store.iter().map(|(store, tables)| note(store, stores, &listed(tables))).collect();
    notes.extend(disagreement(stores.iter().filter(|store| by_store.contains_key(&key(&store.url)))));
    notes
}

fn note(store: &str, stores: &[ObjectStore], tables: &str) -> String {
    let Some(known) = stores.iter().find(|known| key(&known.url) == store) else {
        return format!("{tables}: the scheduler and every executor must see these files under the same paths");
    };
    let name = known.name();
    match &known.service {
        Service::Azure(_) | Service::Gcs(_) => format!(
            "{tables}: a stock scheduler or executor cannot read `{name}`; use an embedded cluster, or programs of \
             your own with this store"
        ),
        Service::S3(s3) => format!(
            "{tables}: a stock scheduler and its executors read `{name}` by their own environment, which must have {}",
            environment(s3, known.plaintext)
        ),
        Service::Web => match known.ca {
            ExtraCa::No => format!("{tables}: a stock scheduler and its executors must reach `{name}`"),
            ExtraCa::Pem(_) => {
                format!("{tables}: a stock scheduler and its executors must reach `{name}` and trust its CA")
            }
        },
    }
}

/// The variables that a stock process makes its S3 client of; of the secret ones the names.
fn environment(s3: &S3, plaintext: Plaintext) -> String {
    let mut variables = vec![format!("AWS_REGION={}", s3.region)];
    match &s3.credentials {
        S3Credentials::Anonymous => variables.push("AWS_SKIP_SIGNATURE=true".to_owned()),
        S3Credentials::Instance => variables.push("no other credential than the machine's".to_owned()),
        S3Credentials::Keys { session_token, .. } => {
            variables.extend(["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].map(str::to_owned));
            variables.extend(session_token.as_ref().map(|_| "AWS_SESSION_TOKEN".to_owned()));
        }
    }
    if let Endpoint::At(url) = &s3.endpoint {
        variables.push(format!("AWS_ENDPOINT={}", url.as_str().trim_end_matches('/')));
    }
    if plaintext == Plaintext::Danger {
        variables.push("AWS_ALLOW_HTTP=true".to_owned());
    }
    variables.join(", ")
}

/// A process has one environment, for all buckets.
fn disagreement<'a>(stores: impl Iterator<Item = &'a ObjectStore>) -> Option<String> {
    let mut buckets = stores.filter_map(|store| match &store.service {
        Service::S3(s3) => Some((store.name(), s3, store.plaintext)),
        Service::Azure(_) | Service::Gcs(_) | Service::Web => None,
    });
    let (first, like, plaintext) = buckets.next()?;
    let (other, _, _) = buckets.find(|(_, s3, http)| {
        !same_right(&like.credentials, &s3.credentials)
            || (&like.region, &like.endpoint, plaintext) != (&s3.region, &s3.endpoint, *http)
    })?;
    Some(format!(
        "`{first}` and `{other}` differ in endpoint, region or credentials: a stock process has one of each, and reads \
         only one of them"
    ))
}

fn same_right(one: &S3Credentials, other: &S3Credentials) -> bool {
    match (one, other) {
        (S3Credentials::Anonymous, S3Credentials::Anonymous) | (S3Credentials::Instance, S3Credentials::Instance) => {
            true
        }
        (
            S3Credentials::Keys { id, key, session_token },
            S3Credentials::Keys { id: other_id, key: other_key, session_token: other_token },
        ) => {
            let same_token = match (session_token, other_token) {
                (None, None) => true,
                (Some(one), Some(other)) => one.matches(other.expose()),
                (None, Some(_)) | (Some(_), None) => false,
            };
            id.matches(other_id.expose()) && key.matches(other_key.expose()) && same_token
        }
        (S3Credentials::Anonymous | S3Credentials::Instance | S3Credentials::Keys { .. }, _) => false,
    }
}

/// The first tables by name, and how many there are besides.
fn listed(tables: &[String]) -> String {
    let shown: Vec<&str> = tables.iter().take(SHOWN).map(String::as_str).collect();
    match tables.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more tables", shown.join(", ")),
    }
}

const SHOWN: usize = 20;
