//! What the small examples share: a gate on a loopback port before an embedded cluster, until standard input closes.
//!
//! Without TLS, since nothing leaves this machine. A gate that others reach is started with `Transport::Tls`, see
//! `examples/basic_gate.rs`.

use std::error::Error;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use portcullis::audit::Audit;
use portcullis::backend::QueryBackend;
use portcullis::backend::ballista::embedded::{Embedded, EmbeddedConfig};
use portcullis::config::{Limits, Session};
use portcullis::gate::chain::Chain;
use portcullis::gate::session::Sharing;
use portcullis::listen::Transport;
use portcullis::seal::Sealer;
use portcullis::server::{Catalogs, Server};
use portcullis_auth::{Authenticator, SystemClock};

/// Serves whom `scheme` lets in and what `catalogs` makes over the cluster.
pub(crate) fn serve(
    scheme: impl Authenticator,
    catalogs: impl FnOnce(Arc<dyn QueryBackend>) -> Catalogs,
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
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            transport: Transport::DangerPlaintext,
            chain: Chain::new(Arc::new(scheme)),
            clock: Arc::new(SystemClock),
            sealer: Sealer::random()?,
            catalogs: catalogs(Arc::clone(&backend)),
            backend,
            session: Session::default(),
            limits: Limits::default(),
            locations: Vec::new(),
            sharing: Sharing::Alone,
            trusted_proxies: Vec::new(),
            audit: Audit::off(),
        }
        .start()
        .await?;
        writeln!(std::io::stdout(), "listening address={}", gate.address())?;
        tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await?;
        gate.drain(Duration::from_secs(5)).await;
        cluster.stop().await;
        Ok(())
    })
}
