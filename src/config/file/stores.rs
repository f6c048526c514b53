//! `[object_store."…"]`: keys, and the rules between them.
//!
//! Which keys are known depends on the kind of store. Nothing is taken from the surroundings that was not asked for:
//! without a credential or `credentials` there is no store. Must not open one.

use url::Url;

use super::section::{At, Section};
use super::{Surroundings, values};
use crate::config::error::Problem;
use crate::config::stores::{
    Azure, AzureCredentials, Endpoint, ExtraCa, Gcs, GcsCredentials, ObjectStore, Plaintext, S3, S3Credentials, Service,
};

/// The configured stores, and every name under which one was attempted: what is wrong with those was told already.
pub(super) struct Stores {
    pub(super) usable: Vec<ObjectStore>,
    named: Vec<(Url, At)>,
}

impl Stores {
    /// A location, if the store that it is in is configured.
    pub(super) fn known(&self, location: Url) -> Result<Url, Problem> {
        let place = |url: &Url| (url.scheme().to_owned(), url.authority().to_owned());
        if location.scheme() == "file" || self.named.iter().any(|(store, _)| place(store) == place(&location)) {
            return Ok(location);
        }
        Err(Problem::NoStore { store: format!("{}://{}", location.scheme(), location.authority()) })
    }
}

/// Every `[object_store."…"]`, in the order of the file.
pub(super) fn stores(root: &mut Section<'_>, around: &Surroundings<'_>) -> Stores {
    let mut stores = Stores { usable: Vec::new(), named: Vec::new() };
    root.section("object_store", |named| {
        named.named(
            shape,
            |given| values::store(given).map(String::from),
            |url, section| {
                // It was a URL a moment ago.
                let Ok(url) = Url::parse(url) else { return };
                if let Some((_, other)) = stores.named.iter().find(|(other, _)| *other == url) {
                    // The walk is by name, and the same name can be written in two ways.
                    let mut places = [other, section.at()];
                    places.sort_by_key(|at| at.line());
                    let [first, second] = places;
                    let problem = Problem::Duplicate { given: url.to_string(), first_line: first.line() };
                    section.report(second, problem);
                }
                stores.named.push((url.clone(), section.at().clone()));
                stores.usable.extend(store(section, around, url));
            },
        );
    });
    stores.usable.sort_by_key(|store| store.line);
    stores
}

fn shape(found: &'static str) -> Problem {
    Problem::WrongType { expected: "a table, such as `[object_store.\"s3://bucket\"]`", found }
}

fn store(section: &mut Section<'_>, around: &Surroundings<'_>, url: Url) -> Option<ObjectStore> {
    let danger = section.optional("danger_http", None, |item| values::switch(Some(item.at.clone()), None)(item));
    let ca = section.given("ca", |item| around.text_of(item));
    let address = match url.scheme() {
        "az" | "gs" | "s3" => endpoint(section),
        _ => Some((section.at().clone(), Endpoint::At(url.clone()))),
    };
    let at = |address: &Option<(At, Endpoint)>| address.as_ref().map(|(_, endpoint)| endpoint.clone());
    let service = match url.scheme() {
        "az" => azure(section, around, at(&address)),
        "gs" => gcs(section, around, at(&address)),
        "s3" => s3(section, around, at(&address)),
        _ => Some(Service::Web),
    };
    let plaintext = match (address, danger) {
        (Some((at, Endpoint::At(address))), None) if address.scheme() == "http" => {
            let rule = "is spoken to without TLS: credentials and rows could be read on the way. If that is meant, \
                        write `danger_http = true`";
            section.report(&at, values::rule(address.as_str(), rule));
            return None;
        }
        (Some((_, Endpoint::At(address))), Some(_)) if address.scheme() == "http" => Plaintext::Danger,
        (Some(_), Some(at)) => {
            section.report(&at, values::rule("true", "means nothing: this store is spoken to with TLS"));
            return None;
        }
        (Some(_), None) => Plaintext::Refused,
        (None, _) => return None,
    };
    let ca = match ca {
        None => ExtraCa::No,
        Some((_, pem)) => ExtraCa::Pem(pem?),
    };
    Some(ObjectStore { url, service: service?, plaintext, ca, line: section.at().line() })
}

/// `endpoint` with its place; `None` after a finding.
fn endpoint(section: &mut Section<'_>) -> Option<(At, Endpoint)> {
    match section.given("endpoint", values::cluster_url) {
        None => Some((section.at().clone(), Endpoint::Usual)),
        Some((at, url)) => Some((at, Endpoint::At(url?))),
    }
}

fn s3(section: &mut Section<'_>, around: &Surroundings<'_>, endpoint: Option<Endpoint>) -> Option<Service> {
    let region = section.optional("region", "us-east-1".to_owned(), values::label);
    let credentials = s3_credentials(section, around);
    Some(Service::S3(S3 { region, endpoint: endpoint?, credentials: credentials? }))
}

fn s3_credentials(section: &mut Section<'_>, around: &Surroundings<'_>) -> Option<S3Credentials> {
    let source = section.given("credentials", values::word(SOURCES));
    let id = section.given("access_key_id", |item| values::plain_secret(around.secret(item)?));
    let key = section.given("secret_access_key", |item| values::plain_secret(around.secret(item)?));
    let token = section.given("session_token", |item| values::plain_secret(around.secret(item)?));
    if let Some((at, source)) = source {
        excludes(section, [place(&id), place(&key), place(&token)]);
        return match source? {
            Source::Anonymous => Some(S3Credentials::Anonymous),
            Source::Instance => Some(S3Credentials::Instance),
            Source::Environment => {
                let variable = |name| {
                    let value = around.variable(name).and_then(values::plain_secret);
                    value.map_err(|problem| section.report(&at, problem)).ok()
                };
                let (id, key) = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"));
                // Pairs that are good for ever have none.
                let session_token = around.variable("AWS_SESSION_TOKEN").and_then(values::plain_secret).ok();
                Some(S3Credentials::Keys { id: id?, key: key?, session_token })
            }
        };
    }
    match (id, key) {
        (Some((_, id)), Some((_, key))) => {
            let session_token = match token {
                Some((_, token)) => Some(token?),
                None => None,
            };
            Some(S3Credentials::Keys { id: id?, key: key?, session_token })
        }
        (Some((at, _)), None) => lacking(section, &at, "needs its other half, `secret_access_key`"),
        (None, Some((at, _))) => lacking(section, &at, "needs its other half, `access_key_id`"),
        (None, None) => match token {
            Some((at, _)) => lacking(section, &at, "needs `access_key_id` and `secret_access_key`"),
            None => no_credentials(section, "needs `access_key_id` and `secret_access_key`, or `credentials`"),
        },
    }
}

fn gcs(section: &mut Section<'_>, around: &Surroundings<'_>, endpoint: Option<Endpoint>) -> Option<Service> {
    let source = section.given("credentials", values::word(SOURCES));
    let account = section.given("service_account", |item| values::service_account(around.secret(item)?));
    let credentials = match (source, account) {
        (None, Some((_, account))) => account.map(GcsCredentials::ServiceAccount),
        (None, None) => no_credentials(section, "needs `service_account` or `credentials`"),
        (Some((at, source)), account) => {
            excludes(section, [place(&account)]);
            match source? {
                Source::Anonymous => Some(GcsCredentials::Anonymous),
                Source::Instance => Some(GcsCredentials::Instance),
                Source::Environment => {
                    let account =
                        around.file_of_variable("GOOGLE_APPLICATION_CREDENTIALS").and_then(values::service_account);
                    let account = account.map_err(|problem| section.report(&at, problem)).ok();
                    account.map(GcsCredentials::ServiceAccount)
                }
            }
        }
    };
    Some(Service::Gcs(Gcs { endpoint: endpoint?, credentials: credentials? }))
}

fn azure(section: &mut Section<'_>, around: &Surroundings<'_>, endpoint: Option<Endpoint>) -> Option<Service> {
    let account = section.required("account", values::label);
    let source = section.given("credentials", values::word(SOURCES));
    let key = section.given("access_key", |item| values::account_key(around.secret(item)?));
    let sas = section.given("sas", |item| values::plain_secret(around.secret(item)?));
    let credentials = match (source, key, sas) {
        (None, Some((_, key)), None) => key.map(AzureCredentials::AccessKey),
        (None, None, Some((_, sas))) => sas.map(AzureCredentials::Sas),
        (None, Some(_), Some((at, _))) => lacking(section, &at, "and `access_key` exclude each other"),
        (None, None, None) => no_credentials(section, "needs `access_key`, `sas` or `credentials`"),
        (Some((at, source)), key, sas) => {
            excludes(section, [place(&key), place(&sas)]);
            match source? {
                Source::Anonymous => Some(AzureCredentials::Anonymous),
                Source::Instance => Some(AzureCredentials::Instance),
                Source::Environment => {
                    let key = around.variable("AZURE_STORAGE_ACCOUNT_KEY").and_then(values::account_key);
                    let key = key.map_err(|problem| section.report(&at, problem)).ok();
                    key.map(AzureCredentials::AccessKey)
                }
            }
        }
    };
    Some(Service::Azure(Azure { account: account?, endpoint: endpoint?, credentials: credentials? }))
}

/// `credentials`.
#[derive(Clone, Copy)]
enum Source {
    Anonymous,
    Environment,
    Instance,
}

const SOURCES: &[(&str, Source)] =
    &[("anonymous", Source::Anonymous), ("environment", Source::Environment), ("instance", Source::Instance)];

fn place<T>(given: &Option<(At, T)>) -> Option<At> {
    given.as_ref().map(|(at, _)| at.clone())
}

/// Reports what says by what right a store is read after `credentials` has said it.
fn excludes<const N: usize>(section: &Section<'_>, given: [Option<At>; N]) {
    for at in given.into_iter().flatten() {
        section.report(&at, values::rule("…", "and `credentials` exclude each other"));
    }
}

fn lacking<T>(section: &Section<'_>, at: &At, rule: &'static str) -> Option<T> {
    section.report(at, values::rule("…", rule));
    None
}

fn no_credentials<T>(section: &Section<'_>, rule: &'static str) -> Option<T> {
    section.report(section.at(), values::rule("this store", rule));
    None
}

#[cfg(test)]
mod tests;
