//! Fetches the keys of an issuer over HTTP: bounded in time and in bytes, and going nowhere but where it is told.
//!
//! No redirect, no proxy, no compression, no second try. Must never see a token: nothing that a client sends may choose
//! what is fetched from where.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{ACCEPT, CONTENT_ENCODING};
use reqwest::{Certificate, Client, StatusCode, tls};
use url::{Host, Url};

use crate::algorithm::Algorithm;
use crate::config::{Http, IssuerConfig, KeySource, Trust};
use crate::json::{self, Json};
use crate::keys::{KeySet, KeySetError, MAX_SET};

/// Fetches the keys of one issuer.
pub(crate) struct Fetcher {
    client: Client,
    route: Route,
    http: Http,
    issuer: String,
    algorithms: Vec<Algorithm>,
    /// For everything together.
    deadline: Duration,
}

/// Where the keys are.
enum Route {
    /// At this address.
    Direct(Url),
    /// Where the document at this address says.
    Discovery(Url),
}

impl Fetcher {
    /// Says how the keys of this issuer are fetched; none if they are not fetched at all.
    pub(crate) fn new(config: &IssuerConfig, deadline: Duration) -> Result<Option<Self>, String> {
        let route = match &config.keys {
            KeySource::File(_) => return Ok(None),
            KeySource::Url(address) => Route::Direct(config.http.admit(address)?),
            KeySource::Discovery => Route::Discovery(discovery(config)?),
        };
        Ok(Some(Self {
            client: client(config, &route)?,
            route,
            http: config.http,
            issuer: config.issuer.clone(),
            algorithms: config.algorithms.clone(),
            deadline,
        }))
    }

    /// The keys as they are now.
    pub(crate) async fn fetch(&self) -> Result<KeySet, FetchError> {
        tokio::time::timeout(self.deadline, self.keys()).await.unwrap_or(Err(FetchError::Timeout))
    }

    async fn keys(&self) -> Result<KeySet, FetchError> {
        let body = match &self.route {
            Route::Direct(url) => self.get(url).await?,
            Route::Discovery(url) => {
                let document = self.get(url).await?;
                self.get(&self.discovered(&document)?).await?
            }
        };
        let keys = KeySet::parse(&body)?;
        if !keys.serves(&self.algorithms) {
            return Err(FetchError::Keys(KeySetError::NoneUsable));
        }
        Ok(keys)
    }

    /// The address of the keys, if the document is this issuer's own and the address may be asked.
    fn discovered(&self, document: &[u8]) -> Result<Url, FetchError> {
        let document = json::object(document).ok_or(FetchError::Discovery("is not a plain JSON object"))?;
        let text = |name| document.get(name).and_then(Json::as_str);
        if text("issuer") != Some(&self.issuer) {
            return Err(FetchError::Discovery("speaks of another issuer"));
        }
        let address = text("jwks_uri").ok_or(FetchError::Discovery("lacks its `jwks_uri`"))?;
        let url =
            self.http.admit(address).map_err(|_| FetchError::Discovery("has a `jwks_uri` that is not allowed"))?;
        // This address is the issuer's word and not the operator's.
        if literal_address(&url).is_some_and(is_never_an_issuer) {
            return Err(FetchError::Discovery("has a `jwks_uri` that is not allowed"));
        }
        Ok(url)
    }

    async fn get(&self, url: &Url) -> Result<Vec<u8>, FetchError> {
        let request = self.client.get(url.clone()).header(ACCEPT, "application/json");
        let mut response = request.send().await.map_err(transport)?;
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status(response.status().as_u16()));
        }
        if response.headers().contains_key(CONTENT_ENCODING) {
            return Err(FetchError::Encoded);
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(transport)? {
            if body.len().saturating_add(chunk.len()) > MAX_SET {
                return Err(FetchError::Keys(KeySetError::TooLarge));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

/// Why keys were not fetched. For operators: it may quote the network, and never a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("the discovery document {0}")]
    Discovery(&'static str),
    #[error("the answer is compressed, which was not asked for")]
    Encoded,
    #[error("the answer {0}")]
    Keys(#[from] KeySetError),
    #[error("the fetch did not come to an end")]
    Stopped,
    #[error("the answer has status {0} instead of 200")]
    Status(u16),
    #[error("there was no whole answer in time")]
    Timeout,
    #[error("no connection: {0}")]
    Transport(String),
}

/// The address of the document that OpenID Connect Discovery puts beside the issuer.
fn discovery(config: &IssuerConfig) -> Result<Url, String> {
    let issuer = config.http.admit(&config.issuer)?;
    if issuer.query().is_some() {
        return Err("for discovery, the issuer must not hold a query".to_owned());
    }
    let issuer = config.issuer.trim_end_matches('/');
    config.http.admit(&format!("{issuer}/.well-known/openid-configuration"))
}

fn client(config: &IssuerConfig, route: &Route) -> Result<Client, String> {
    let (Route::Direct(url) | Route::Discovery(url)) = route;
    let builder = Client::builder()
        .user_agent(concat!("portcullis/", env!("CARGO_PKG_VERSION")))
        .https_only(config.http == Http::Refused)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .no_proxy()
        // If another crate of the process turns decompression on, it stays off here.
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .http1_only()
        .tls_version_min(tls::Version::TLS_1_2)
        .dns_resolver(Resolver)
        .pool_max_idle_per_host(0)
        .connect_timeout(CONNECT);
    let builder = match &config.trust {
        Trust::Only(pem) => {
            let roots = Certificate::from_pem_bundle(pem.as_bytes()).unwrap_or_default();
            if roots.is_empty() {
                return Err("the CA file holds no certificate in PEM".to_owned());
            }
            builder.tls_certs_only(roots)
        }
        // Without TLS no certificate is believed, and none is needed.
        Trust::System if url.scheme() == "http" => builder.tls_certs_only([]),
        Trust::System => builder,
    };
    builder.build().map_err(|err| format!("keys cannot be fetched: {}", words(&err)))
}

/// Looks names up, and drops addresses at which no issuer lives.
struct Resolver;

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let usable: Vec<SocketAddr> = found.filter(|address| !is_never_an_issuer(address.ip())).collect();
            let addresses: Addrs = Box::new(usable.into_iter());
            Ok(addresses)
        })
    }
}

fn literal_address(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Domain(_) => None,
        Host::Ipv4(address) => Some(address.into()),
        Host::Ipv6(address) => Some(address.into()),
    }
}

/// Where clouds tell a machine its own credentials, and what is no address of a machine at all.
fn is_never_an_issuer(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_unspecified() || v4.is_broadcast() || v4.is_multicast(),
        IpAddr::V6(v6) => {
            let cloud = matches!(v6.segments(), [0xfd00, 0x0ec2, ..]);
            cloud || v6.is_unicast_link_local() || v6.is_unspecified() || v6.is_multicast()
        }
    }
}

fn transport(err: reqwest::Error) -> FetchError {
    // Without the address: an operator knows it, and it may hold a key of its own.
    if err.is_timeout() { FetchError::Timeout } else { FetchError::Transport(words(&err.without_url())) }
}

/// What an error says, with its causes, in one short line.
fn words(err: &dyn Error) -> String {
    let mut words = err.to_string();
    let mut cause = err.source();
    while let Some(inner) = cause {
        words.push_str(": ");
        words.push_str(&inner.to_string());
        cause = inner.source();
    }
    words.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_WORDS).collect()
}

const CONNECT: Duration = Duration::from_secs(3);
const MAX_WORDS: usize = 300;

#[cfg(test)]
mod tests;
