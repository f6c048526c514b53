//! Connections into the cluster: TLS, and the metadata that its gateways may ask for.
//!
//! A header is a secret as often as not: values are marked sensitive and nothing here prints one.

use std::fmt;
use std::sync::Arc;

use tonic::metadata::{Ascii, MetadataKey, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Status};

/// A connection whose calls carry the configured headers.
pub type Wire = InterceptedService<Channel, Headers>;

/// `cluster.headers`: what every call into the cluster carries.
#[derive(Clone, Default)]
pub struct Headers(Arc<[(MetadataKey<Ascii>, MetadataValue<Ascii>)]>);

impl Headers {
    /// Headers with these names and values.
    pub fn new(headers: impl IntoIterator<Item = (MetadataKey<Ascii>, MetadataValue<Ascii>)>) -> Self {
        let sensitive = |(name, mut value): (MetadataKey<Ascii>, MetadataValue<Ascii>)| {
            value.set_sensitive(true);
            (name, value)
        };
        Self(headers.into_iter().map(sensitive).collect())
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl Interceptor for Headers {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        for (name, value) in self.0.iter() {
            request.metadata_mut().insert(name.clone(), value.clone());
        }
        Ok(request)
    }
}

pub(super) fn with_headers(channel: Channel, headers: Headers) -> Wire {
    InterceptedService::new(channel, headers)
}
