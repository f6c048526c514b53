//! The HTTP client of stores: bounded in time, and going nowhere but where it is told.
//!
//! No proxy from the environment. Must not know what is asked for.

use std::time::Duration;

use object_stores::client::{HttpClient, HttpConnector, ReqwestConnector};
use object_stores::{Certificate, ClientOptions};

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
        let options = self.cas.iter().cloned().fold(options.clone(), ClientOptions::with_root_certificate);
        let options = options
            // A proxy that is said and never used: else one would be taken from the environment.
            .with_proxy_url("http://127.0.0.1:9")
            .with_proxy_excludes("*,0.0.0.0/0,::/0")
            .with_connect_timeout(CONNECT)
            // From one piece of an answer to the next: a whole answer is as long as the file and its reader.
            .with_timeout_disabled()
            .with_read_timeout(READ)
            .with_pool_max_idle_per_host(IDLE);
        ReqwestConnector::default().connect(&options)
    }
}

const CONNECT: Duration = Duration::from_secs(5);
const READ: Duration = Duration::from_secs(30);
const IDLE: usize = 16;
