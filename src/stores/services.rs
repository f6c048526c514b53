//! Opens a configured store: its client, its credentials, its bounds.
//!
//! Credentials are those of the configuration; what the libraries would look for by themselves, in the environment or
//! in files of a home folder, is closed to them. Must not call anybody.

use std::sync::Arc;
use std::time::Duration;

use object_stores::aws::AmazonS3Builder;
use object_stores::azure::MicrosoftAzureBuilder;
use object_stores::gcp::{GcpCredential, GcpSigningCredential, GoogleCloudStorageBuilder};
use object_stores::http::HttpBuilder;
use object_stores::{BackoffConfig, ClientOptions, RetryConfig, StaticCredentialProvider};
use portcullis_auth::Secret;

use super::adapter::Adapter;
use super::connector::{Connector, ConnectorError};
use crate::config::stores::{
    Azure, AzureCredentials, Endpoint, Gcs, GcsCredentials, ObjectStore, Plaintext, S3, S3Credentials, Service,
};

/// Why a store cannot be opened. Says nothing of a credential.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error(transparent)]
    Connector(#[from] ConnectorError),
    /// The library's own words could repeat what it was given.
    #[error("its credentials cannot be used")]
    Credentials,
}

/// The store behind the engine's trait.
pub(super) fn open(store: &ObjectStore) -> Result<Adapter, Unusable> {
    let connector = Connector::new(&store.ca)?;
    let plaintext = match store.plaintext {
        Plaintext::Danger => true,
        Plaintext::Refused => false,
    };
    let options = ClientOptions::new().with_allow_http(plaintext);
    let opened: Arc<dyn object_stores::ObjectStore> = match &store.service {
        Service::Azure(azure) => Arc::new(
            with_azure_credentials(MicrosoftAzureBuilder::new(), &azure.credentials)?
                .with_account(&azure.account)
                .with_container_name(bucket(store))
                .with_client_options(options)
                .with_retry(retries())
                .with_http_connector(connector)
                .with_endpoint(azure_endpoint(azure))
                .build()
                .map_err(|_| Unusable::Credentials)?,
        ),
        Service::Gcs(gcs) => Arc::new(
            with_gcs_endpoint(with_gcs_credentials(GoogleCloudStorageBuilder::new(), &gcs.credentials)?, gcs)
                .with_bucket_name(bucket(store))
                .with_client_options(options)
                .with_retry(retries())
                .with_http_connector(connector)
                .build()
                .map_err(|_| Unusable::Credentials)?,
        ),
        Service::S3(s3) => Arc::new(
            with_s3_endpoint(with_s3_credentials(AmazonS3Builder::new(), &s3.credentials)?, s3)
                .with_bucket_name(bucket(store))
                .with_region(&s3.region)
                .with_client_options(options)
                .with_retry(retries())
                .with_http_connector(connector)
                .build()
                .map_err(|_| Unusable::Credentials)?,
        ),
        Service::Web => Arc::new(
            HttpBuilder::new()
                .with_url(store.url.as_str())
                .with_client_options(options)
                .with_retry(retries())
                .with_http_connector(connector)
                .build()
                .map_err(|_| Unusable::Credentials)?,
        ),
    };
    Ok(Adapter::new(opened, store.name(), unspeakable(&store.service)))
}

fn bucket(store: &ObjectStore) -> &str {
    store.url.host_str().unwrap_or_default()
}

fn with_s3_credentials(builder: AmazonS3Builder, credentials: &S3Credentials) -> Result<AmazonS3Builder, Unusable> {
    Ok(match credentials {
        S3Credentials::Anonymous => builder.with_skip_signature(true),
        S3Credentials::Instance => builder,
        S3Credentials::Keys { id, key, session_token } => {
            let builder = builder.with_access_key_id(text(id)?).with_secret_access_key(text(key)?);
            match session_token {
                Some(token) => builder.with_token(text(token)?),
                None => builder,
            }
        }
    })
}

fn with_s3_endpoint(builder: AmazonS3Builder, s3: &S3) -> AmazonS3Builder {
    match &s3.endpoint {
        Endpoint::At(url) => builder.with_endpoint(url.as_str().trim_end_matches('/')),
        Endpoint::Usual => builder,
    }
}

fn with_gcs_credentials(
    builder: GoogleCloudStorageBuilder,
    credentials: &GcsCredentials,
) -> Result<GoogleCloudStorageBuilder, Unusable> {
    Ok(match credentials {
        GcsCredentials::Anonymous => {
            // Given, so that it is not looked for.
            let nobody = GcpCredential { bearer: String::new() };
            let signs_nothing = GcpSigningCredential { email: String::new(), private_key: None };
            builder
                .with_credentials(Arc::new(StaticCredentialProvider::new(nobody)))
                .with_signing_credentials(Arc::new(StaticCredentialProvider::new(signs_nothing)))
                .with_skip_signature(true)
        }
        GcsCredentials::Instance => builder,
        GcsCredentials::ServiceAccount(json) => builder.with_service_account_key(text(json)?),
    })
}

fn with_gcs_endpoint(builder: GoogleCloudStorageBuilder, gcs: &Gcs) -> GoogleCloudStorageBuilder {
    match &gcs.endpoint {
        Endpoint::At(url) => builder.with_base_url(url.as_str().trim_end_matches('/')),
        Endpoint::Usual => builder,
    }
}

fn with_azure_credentials(
    builder: MicrosoftAzureBuilder,
    credentials: &AzureCredentials,
) -> Result<MicrosoftAzureBuilder, Unusable> {
    Ok(match credentials {
        AzureCredentials::AccessKey(key) => builder.with_access_key(text(key)?),
        AzureCredentials::Anonymous => builder.with_skip_signature(true),
        AzureCredentials::Instance => builder,
        AzureCredentials::Sas(sas) => {
            let sas = text(sas)?;
            let pairs = url::form_urlencoded::parse(sas.trim_start_matches('?').as_bytes());
            builder.with_sas_authorization(pairs.into_owned().collect::<Vec<_>>())
        }
    })
}

fn azure_endpoint(azure: &Azure) -> String {
    match &azure.endpoint {
        Endpoint::At(url) => url.as_str().trim_end_matches('/').to_owned(),
        Endpoint::Usual => format!("https://{}.blob.core.windows.net", azure.account),
    }
}

/// What must not be repeated, whatever a store answers.
fn unspeakable(service: &Service) -> Vec<Vec<u8>> {
    let mut secrets = Vec::new();
    match service {
        Service::Azure(azure) => match &azure.credentials {
            AzureCredentials::AccessKey(key) => secrets.push(key.expose().to_vec()),
            AzureCredentials::Sas(sas) => {
                secrets.push(sas.expose().to_vec());
                let signature = url::form_urlencoded::parse(sas.expose()).find(|(name, _)| name.ends_with("sig"));
                secrets.extend(signature.map(|(_, value)| value.into_owned().into_bytes()));
            }
            AzureCredentials::Anonymous | AzureCredentials::Instance => (),
        },
        Service::Gcs(gcs) => match &gcs.credentials {
            GcsCredentials::ServiceAccount(json) => secrets.push(json.expose().to_vec()),
            GcsCredentials::Anonymous | GcsCredentials::Instance => (),
        },
        Service::S3(s3) => match &s3.credentials {
            S3Credentials::Keys { id, key, session_token } => {
                secrets.extend([id, key].into_iter().chain(session_token).map(|secret| secret.expose().to_vec()));
            }
            S3Credentials::Anonymous | S3Credentials::Instance => (),
        },
        Service::Web => (),
    }
    secrets
}

fn text(secret: &Secret) -> Result<&str, Unusable> {
    std::str::from_utf8(secret.expose()).map_err(|_| Unusable::Credentials)
}

fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig { max_backoff: Duration::from_secs(2), ..BackoffConfig::default() },
        max_retries: 3,
        retry_timeout: Duration::from_secs(60),
    }
}
