//! A stock Ballista cluster elsewhere: one scheduler by its address, executors by the scheduler's word and our list.
//!
//! Only the public protocol. Connections are lazy and come back by themselves after either side restarted; what was
//! running on a scheduler that restarted is lost with it.

use std::time::Duration;

use portcullis_auth::Secret;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use url::Url;

use super::executors::{ExecutorAllowList, Route, for_results};
use super::wire::{Headers, Wire, with_headers};
use super::{BallistaBackend, Following, ShuffleCompression};

/// Where a remote cluster is and how it is spoken to.
#[derive(Debug)]
pub struct RemoteConfig {
    /// The scheduler, `https` with TLS.
    pub scheduler: Url,
    /// TLS towards the scheduler and its proxy.
    pub tls: ClusterTls,
    /// What every call to the scheduler and its proxy carries.
    pub headers: Headers,
    /// How results are reached.
    pub results: Results,
    /// How long the scheduler keeps finished results.
    pub result_ttl: Duration,
}

/// How results are reached.
#[derive(Clone, Debug)]
pub enum Results {
    /// Straight from executors, if they are in the list. Stock executors speak no TLS.
    Executors(ExecutorAllowList),
    /// Through the scheduler's Flight proxy at this address; slower, and for networks that have no way to executors.
    Proxy(Url),
}

/// TLS towards the cluster.
#[derive(Debug)]
pub enum ClusterTls {
    /// Addresses are `http`.
    None,
    /// Addresses are `https`.
    Tls {
        /// The CA that signed the cluster's certificates (PEM).
        ca: String,
        /// The certificate by which the gate is known there.
        identity: ClusterIdentity,
    },
}

/// Who the gate is to the cluster.
#[derive(Debug)]
pub enum ClusterIdentity {
    /// Nobody in particular.
    Anonymous,
    /// The holder of a certificate.
    Certificate {
        /// The chain (PEM).
        chain: String,
        /// The key (PEM).
        key: Secret,
    },
}

/// A scheduler in another process.
pub type RemoteScheduler = Wire;

/// Why there is no backend for a configuration.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// A certificate, a key or an address cannot be used.
    #[error("the connection to the cluster cannot be set up: {0}")]
    Unusable(String),
}

/// A backend over the cluster in `config`. Nothing is connected yet.
pub fn backend(config: RemoteConfig) -> Result<BallistaBackend<RemoteScheduler>, RemoteError> {
    let scheduler = endpoint(&config.scheduler, &config.tls)?
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE);
    let scheduler = with_headers(scheduler.connect_lazy(), config.headers.clone());
    let route = match config.results {
        Results::Executors(allowed) => Route::Direct(allowed),
        Results::Proxy(address) => {
            let proxy = for_results(endpoint(&address, &config.tls)?);
            Route::Proxy(with_headers(proxy.connect_lazy(), config.headers))
        }
    };
    // What executors exchange crosses a network there, which is slower than decoding.
    Ok(BallistaBackend::new(scheduler, route, ShuffleCompression::Lz4, Following::Poll, config.result_ttl))
}

fn endpoint(address: &Url, tls: &ClusterTls) -> Result<Endpoint, RemoteError> {
    let unusable = |error: tonic::transport::Error| {
        // The error's own text is "transport error"; what it wraps says more, and nothing of a key.
        let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        RemoteError::Unusable(cause)
    };
    let endpoint = Endpoint::from_shared(address.to_string()).map_err(unusable)?;
    match tls {
        ClusterTls::None => Ok(endpoint),
        ClusterTls::Tls { ca, identity } => {
            let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca));
            let config = match identity {
                ClusterIdentity::Anonymous => config,
                ClusterIdentity::Certificate { chain, key } => config.identity(Identity::from_pem(chain, key.expose())),
            };
            endpoint.tls_config(config).map_err(unusable)
        }
    }
}

const CONNECT: Duration = Duration::from_secs(3);
const KEEP_ALIVE: Duration = Duration::from_secs(10);
