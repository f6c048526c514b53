//! The HTTP client of stores: bounded in time, and going nowhere but where it is told.
//!
//! No redirect, which could lead a credential or a request of the gate to any address; no proxy from the environment.
//! Must not know what is asked for.

use std::time::Duration;

use object_stores::client::{HttpClient, HttpConnector};
use object_stores::{ClientConfigKey, ClientOptions};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client};

use crate::config::stores::ExtraCa;

/// Makes clients.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    cas: Vec<Certificate>,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectorError {
    #[error("`ca` holds no usable certificate")]
    Ca,
}

impl Connector {
    pub(super) fn new(ca: &ExtraCa) -> Result<Self, ConnectorError> {
        let cas = match ca {
            ExtraCa::No => Vec::new(),
            ExtraCa::Pem(pem) => match Certificate::from_pem_bundle(pem.as_bytes()) {
                Ok(cas) if !cas.is_empty() => cas,
                Ok(_) | Err(_) => return Err(ConnectorError::Ca),
            },
        };
        Ok(Self { cas })
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_stores::Result<HttpClient> {
        // Set for a store by its operator, and by the library for the metadata service of a machine.
        let plaintext = options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|allowed| allowed == "true");
        let client = Client::builder()
            .user_agent(concat!("portcullis/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
            .no_proxy()
            .referer(false)
            .https_only(!plaintext)
            .tls_certs_merge(self.cas.iter().cloned())
            .connect_timeout(CONNECT)
            // From one piece of an answer to the next: a whole answer is as long as the file and its reader.
            .read_timeout(READ)
            .pool_max_idle_per_host(IDLE)
            // The length of a file is that of its answer.
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .build();
        match client {
            Ok(client) => Ok(HttpClient::new(client)),
            Err(error) => Err(object_stores::Error::Generic { store: "object store", source: Box::new(error) }),
        }
    }
}

const CONNECT: Duration = Duration::from_secs(5);
const READ: Duration = Duration::from_secs(30);
const IDLE: usize = 16;
