//! `[object_store."…"]` as values: where the files of tables are, and by what right they are read.
//!
//! Credentials were looked up when the configuration was loaded, wherever it said they were; only `instance` is asked
//! later, by whoever opens the store. Must not know how a store is opened: that is `stores.rs`.

use std::fmt;

use portcullis_auth::Secret;
use url::Url;

/// One `[object_store."SCHEME://NAME"]`.
#[derive(Debug)]
pub struct ObjectStore {
    /// `s3://BUCKET/`, `gs://BUCKET/`, `az://CONTAINER/`, `https://HOST[:PORT]/`, or with the danger said `http`.
    pub url: Url,
    /// What answers there.
    pub service: Service,
    /// Whether it may be spoken to without TLS.
    pub plaintext: Plaintext,
    /// More CAs that its certificate may come from.
    pub ca: ExtraCa,
    /// Where the configuration names it, for messages.
    pub line: usize,
}

impl ObjectStore {
    /// The store as configurations and messages name it: `s3://lake`.
    pub fn name(&self) -> &str {
        self.url.as_str().trim_end_matches('/')
    }
}

/// The kind of a store, and what that kind needs.
#[derive(Debug)]
pub enum Service {
    /// Azure Blob Storage.
    Azure(Azure),
    /// Google Cloud Storage.
    Gcs(Gcs),
    /// Amazon S3, and what speaks as it does.
    S3(S3),
    /// Files on a web server, without a credential; folders need WebDAV.
    Web,
}

/// An S3 bucket.
#[derive(Debug)]
pub struct S3 {
    /// The region; `us-east-1` by default.
    pub region: String,
    /// Where it is asked; by default the address that Amazon has for the region.
    pub endpoint: Endpoint,
    /// By what right.
    pub credentials: S3Credentials,
}

/// By what right a bucket is read.
#[derive(Debug)]
pub enum S3Credentials {
    /// None: the bucket is public.
    Anonymous,
    /// What the machine's metadata service says.
    Instance,
    /// A pair of keys.
    Keys {
        /// Its public half.
        id: Secret,
        /// Its secret half.
        key: Secret,
        /// Belongs to a pair that is good for a while.
        session_token: Option<Secret>,
    },
}

/// A bucket of Google Cloud Storage.
#[derive(Debug)]
pub struct Gcs {
    /// Where it is asked; Google's address by default.
    pub endpoint: Endpoint,
    /// By what right.
    pub credentials: GcsCredentials,
}

/// By what right a bucket is read.
#[derive(Debug)]
pub enum GcsCredentials {
    /// None: the bucket is public.
    Anonymous,
    /// What the machine's metadata service says.
    Instance,
    /// The JSON of a service account's key.
    ServiceAccount(Secret),
}

/// A container of Azure Blob Storage.
#[derive(Debug)]
pub struct Azure {
    /// The storage account.
    pub account: String,
    /// Where it is asked; the account's address by default.
    pub endpoint: Endpoint,
    /// By what right.
    pub credentials: AzureCredentials,
}

/// By what right a container is read.
#[derive(Debug)]
pub enum AzureCredentials {
    /// The account's key, in base64.
    AccessKey(Secret),
    /// None: the container is public.
    Anonymous,
    /// What the machine's metadata service says.
    Instance,
    /// A shared access signature.
    Sas(Secret),
}

/// Where a store is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// At the address that its operator has for everybody.
    Usual,
    /// At this one: `http` or `https`, a host, a port.
    At(Url),
}

/// Whether a store may be spoken to without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plaintext {
    /// It may: credentials and rows can be read on the way.
    Danger,
    /// It may not.
    Refused,
}

/// CAs besides those of the machine.
#[derive(Clone, PartialEq, Eq)]
pub enum ExtraCa {
    /// None.
    No,
    /// The certificates in this PEM text.
    Pem(String),
}

impl fmt::Debug for ExtraCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::No => "No",
            Self::Pem(_) => "Pem(…)",
        })
    }
}
