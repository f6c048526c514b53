//! The process around an example's gate: a runtime, an embedded cluster, one line when it listens, and an orderly end.
//!
//! Must not know a scheme, or where a gate listens: an example says so.

use std::error::Error;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use portcullis::audit::Audit;
use portcullis::backend::QueryBackend;
use portcullis::backend::ballista::embedded::{Embedded, EmbeddedConfig};
use portcullis::config::{Limits, Session};
use portcullis::gate::chain::Chain;
use portcullis::gate::session::Sharing;
use portcullis::listen::{Network, Transport};
use portcullis::seal::Sealer;
use portcullis::server::{Catalogs, Server};
use portcullis::storage::Keeping;
use portcullis_auth::{Authenticator, Authorizer, SystemClock};

/// How a gate is reached, and what it allows.
pub(crate) struct Door {
    pub(crate) listen: SocketAddr,
    pub(crate) transport: Transport,
    pub(crate) session: Session,
    pub(crate) limits: Limits,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) trusted_proxies: Vec<Network>,
}

/// Serves whom `scheme` lets in and what `catalogs` makes over the cluster, until `end`.
pub(crate) fn serve(
    door: Door,
    scheme: impl Authenticator,
    catalogs: impl FnOnce(Arc<dyn QueryBackend>) -> Catalogs,
    end: impl Future<Output = io::Result<()>>,
) -> Result<(), Box<dyn Error>> {
    // The embedded scheduler plans by recursion.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().thread_stack_size(32 * 1024 * 1024).build()?;
    runtime.block_on(async {
        let cluster = Embedded::start(&EmbeddedConfig {
            executors: NonZeroUsize::MIN,
            vcores: NonZeroUsize::MIN,
            work_dir: std::env::temp_dir(),
            executor_memory: NonZeroUsize::new(1 << 30).ok_or("no memory")?,
            result_ttl: Duration::from_secs(900),
        })
        .await?;
        let backend: Arc<dyn QueryBackend> = Arc::new(cluster.backend());
        let gate = Server {
            listen: door.listen,
            transport: door.transport,
            chain: Chain::new(Arc::new(scheme)),
            clock: Arc::new(SystemClock),
            sealer: Sealer::random()?,
            catalogs: catalogs(Arc::clone(&backend)),
            backend,
            session: door.session,
            limits: door.limits,
            keeping: Keeping::Nowhere,
            authorizer: door.authorizer,
            // The sealing key is this process's own.
            sharing: Sharing::Alone,
            trusted_proxies: door.trusted_proxies,
            audit: Audit::off(),
        }
        .start()
        .await?;
        writeln!(io::stdout(), "listening address={}", gate.address())?;
        end.await?;
        gate.drain(Duration::from_secs(5)).await;
        cluster.stop().await;
        Ok(())
    })
}
