//! What the small examples share: a gate on a loopback port before an embedded cluster, until standard input closes.
//!
//! Without TLS, since nothing leaves this machine. A gate that others reach is started with `Transport::Tls`, see
//! `examples/basic_gate.rs`.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use portcullis::access::CatalogDecides;
use portcullis::backend::QueryBackend;
use portcullis::config::{Limits, Session};
use portcullis::listen::Transport;
use portcullis::server::Catalogs;
use portcullis_auth::Authenticator;
use process::Door;

#[path = "process.rs"]
mod process;

/// Serves whom `scheme` lets in and what `catalogs` makes over the cluster.
pub(crate) fn serve(
    scheme: impl Authenticator,
    catalogs: impl FnOnce(Arc<dyn QueryBackend>) -> Catalogs,
) -> Result<(), Box<dyn Error>> {
    let door = Door {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        transport: Transport::DangerPlaintext,
        session: Session::default(),
        limits: Limits::default(),
        authorizer: Arc::new(CatalogDecides),
        trusted_proxies: Vec::new(),
    };
    let end = async { tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await.map(drop) };
    process::serve(door, scheme, catalogs, end)
}
