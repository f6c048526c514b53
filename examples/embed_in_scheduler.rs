//! A Ballista scheduler process with the gate on its own tonic server.
//!
//! `embed_in_scheduler CONFIGURATION EXECUTORS`: sign-in, tables and limits as configured, executors in a network such
//! as `127.0.0.1:50051`. Clients get a port of their own, since whoever reaches the scheduler's may do everything.

use std::{error::Error, io::Write as _, net::Ipv4Addr, path::Path, sync::Arc, time::Duration};

use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::{create_scheduler, start_grpc_service_with_listener};
use portcullis::backend::ballista::{ExecutorAllowList, embedded};
use portcullis::config::{ClientCertificates, Config};
use portcullis::server::{Catalogs, Server};
use portcullis::stack::{StackLimits, server};
use portcullis::{access::Grants, audit::Audit, gate::session::Sharing, listen::Transport, schemes::Schemes};
use portcullis::{seal::Sealer, storage::Keeping, stores::Stores};
use portcullis_auth::{Clock, SystemClock};
use tokio::{io, net::TcpListener};
use tonic::transport::server::TcpIncoming;

async fn serve(config: Config, executors: &str) -> Result<(), Box<dyn Error>> {
    let port = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let (inside, outside) = (port().await?, port().await?);
    let (nodes, clients) = (inside.local_addr()?, outside.local_addr()?);
    let own = SchedulerConfig::default().with_hostname(nodes.ip().to_string()).with_port(nodes.port());
    let scheduler = create_scheduler(BallistaCluster::new_from_config(&own).await?, Arc::new(own)).await?;
    let allowed = ExecutorAllowList::Configured(Arc::new([executors.parse()?]));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let (gate, running) = Server {
        listen: clients,
        transport: Transport::DangerPlaintext,
        chain: Schemes::load(&config.auth, &ClientCertificates::NotAsked, &clock)?.chain(),
        clock,
        sealer: Sealer::random()?,
        backend: Arc::new(embedded::over(scheduler.clone(), allowed, Duration::from_secs(300))),
        catalogs: Catalogs::Configured { tables: config.tables, stores: Arc::new(Stores::local_only()) },
        session: config.session,
        limits: config.limits,
        keeping: Keeping::Nowhere,
        authorizer: Arc::new(Grants::new(config.grants, config.locations)),
        sharing: Sharing::Alone,
        trusted_proxies: Vec::new(),
        audit: Audit::off(),
    }
    .mount()
    .await?;
    writeln!(std::io::stdout(), "listening address={clients} scheduler={nodes}")?;
    tokio::spawn(start_grpc_service_with_listener(inside, scheduler));
    let end = async { drop(io::copy(&mut io::stdin(), &mut io::sink()).await) };
    let outside = TcpIncoming::from(outside).with_nodelay(Some(true));
    server(&StackLimits::default()).add_service(gate).serve_with_incoming_shutdown(outside, end).await?;
    running.drain(Duration::from_secs(5)).await;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [file, executors] = words.as_slice() else { return Err("embed_in_scheduler CONFIGURATION EXECUTORS".into()) };
    let (config, mut runtime) = (Config::load(Path::new(file))?, tokio::runtime::Builder::new_multi_thread());
    runtime.enable_all().thread_stack_size(32 * 1024 * 1024).build()?.block_on(serve(config, executors))
}
