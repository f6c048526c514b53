//! Measures what many tables and many idle sessions cost, through a gate of its own on loopback.
//!
//! `cargo run --release --example catalog_scale -- [TABLES] [SESSIONS]`, 5000 and 10000 by default. All tables are one
//! small file under different names. Prints one line a figure. It is no test and asserts nothing.

#![expect(clippy::print_stdout, clippy::arithmetic_side_effects, reason = "a measuring program prints its figures")]

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_flight::sql::CommandGetTables;
use arrow_flight::sql::client::FlightSqlServiceClient;
use datafusion::parquet::arrow::ArrowWriter;
use futures::{StreamExt, TryStreamExt};
use mimalloc::MiMalloc;
use portcullis::access::CatalogDecides;
use portcullis::audit::Audit;
use portcullis::backend::ballista::embedded::{Embedded, EmbeddedConfig};
use portcullis::config::{Format, Limits, Session, Table};
use portcullis::gate::chain::Chain;
use portcullis::gate::session::Sharing;
use portcullis::limits::Rate;
use portcullis::listen::Transport;
use portcullis::seal::Sealer;
use portcullis::server::{Catalogs, Running, Server};
use portcullis::storage::Keeping;
use portcullis::stores::Stores;
use portcullis_auth::{
    Assertion, Attempt, Authenticator, BoxFuture, Cost, Credential, Expiry, Principal, Rejection, Standing,
    SystemClock, Verdict,
};
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};
use url::Url;

/// As the server's.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

type Failed = Box<dyn Error + Send + Sync>;
type Client = FlightSqlServiceClient<Channel>;

fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1);
    let tables = arguments.next().map_or(Ok(5_000), |text| text.parse())?;
    let sessions = arguments.next().map_or(Ok(10_000), |text| text.parse())?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().thread_stack_size(32 * 1024 * 1024).build()?;
    let folder = Folder::new()?;
    runtime.block_on(measure(&folder, tables, sessions))
}

async fn measure(folder: &Folder, tables: usize, sessions: usize) -> Result<(), Failed> {
    let cluster = Embedded::start(&EmbeddedConfig {
        executors: NonZeroUsize::MIN,
        vcores: NonZeroUsize::MIN,
        work_dir: folder.0.join("work"),
        executor_memory: NonZeroUsize::new(1 << 30).ok_or("no memory")?,
        // What the cluster remembers of finished queries is not the sessions'.
        result_ttl: Duration::from_secs(30),
    })
    .await?;
    let configured = folder.tables(tables)?;
    let start = Instant::now();
    let gate = gate(configured, sessions, &cluster).await?;
    println!("start with {tables} tables: {:?}", start.elapsed());
    let channel = Endpoint::from_shared(format!("http://{}", gate.address()))?.tcp_nodelay(true).connect().await?;

    catalogs(&channel, tables).await?;
    // The memory of what all sessions share is there before they are counted.
    for name in 0..100 {
        one_session(&channel, &format!("warm{name}"), "SELECT count(*) FROM t00000").await?;
    }
    idle(&gate, &channel, sessions / 2, "SELECT 1").await?;
    idle(&gate, &channel, sessions - sessions / 2, "SELECT count(*) FROM t00000").await?;
    gate.drain(Duration::from_secs(1)).await;
    cluster.stop().await;
    Ok(())
}

/// The first use of a session on the catalog, and the listing of it.
async fn catalogs(channel: &Channel, tables: usize) -> Result<(), Failed> {
    let mut times = Vec::new();
    for number in 0..21 {
        let start = Instant::now();
        run(&mut client(channel, &format!("first{number}")), "SELECT count(*) FROM information_schema.schemata")
            .await?;
        times.push(start.elapsed());
    }
    println!("first statement of the first session: {:?}", times.remove(0));
    println!("first statement of another session: p50 {:?}, most {:?}", at(&mut times, 50), at(&mut times, 100));

    let mut client = client(channel, "lister");
    for (what, include_schema) in [("names", false), ("schemas, none open", true), ("schemas", true), ("schemas", true)]
    {
        let start = Instant::now();
        let info = client.get_tables(CommandGetTables { include_schema, ..CommandGetTables::default() }).await?;
        let mut found = 0;
        for endpoint in info.endpoint {
            let mut rows = client.do_get(endpoint.ticket.ok_or("no ticket")?).await?;
            while let Some(batch) = rows.try_next().await? {
                found += batch.num_rows();
            }
        }
        if found != tables {
            return Err(format!("{found} tables were listed").into());
        }
        println!("GetTables with {what}: {:?}", start.elapsed());
    }
    Ok(())
}

/// Sessions that have run a query and a SET, and what they keep once they rest.
async fn idle(gate: &Running, channel: &Channel, count: usize, sql: &str) -> Result<(), Failed> {
    let before = settled().await;
    let open_before = gate.sessions_open();
    let start = Instant::now();
    futures::stream::iter(0..count)
        .map(|number| async move { one_session(channel, &format!("idle{open_before}-{number}"), sql).await })
        .buffer_unordered(32)
        .try_for_each(|()| async { Ok(()) })
        .await?;
    let opened = gate.sessions_open() - open_before;
    println!("{opened} sessions with `{sql}` and a SET in {:?}, {} MiB more", start.elapsed(), mib(before));
    let each = settled().await.saturating_sub(before) as f64 / opened.max(1) as f64;
    println!("at rest: {each:.1} KiB each");
    Ok(())
}

async fn one_session(channel: &Channel, user: &str, sql: &str) -> Result<(), Failed> {
    let mut client = client(channel, user);
    run(&mut client, sql).await?;
    client.execute_update("SET datafusion.execution.batch_size = 4096".to_owned(), None).await?;
    Ok(())
}

async fn run(client: &mut Client, sql: &str) -> Result<(), Failed> {
    let info = client.execute(sql.to_owned(), None).await?;
    for endpoint in info.endpoint {
        client.do_get(endpoint.ticket.ok_or("no ticket")?).await?.try_for_each(|_| async { Ok(()) }).await?;
    }
    Ok(())
}

fn client(channel: &Channel, user: &str) -> Client {
    let mut client = FlightSqlServiceClient::new(channel.clone());
    client.set_token(user.to_owned());
    client
}

async fn gate(tables: Vec<Table>, sessions: usize, cluster: &Embedded) -> Result<Running, Failed> {
    let server = Server {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        transport: Transport::DangerPlaintext,
        chain: Chain::new(Arc::new(Anybody)),
        clock: Arc::new(SystemClock),
        sealer: Sealer::random()?,
        backend: Arc::new(cluster.backend()),
        catalogs: Catalogs::Configured { tables, stores: Arc::new(Stores::local_only()) },
        session: Session { max_total: sessions + 1_000, default_catalog: "scale".to_owned(), ..Session::default() },
        limits: Limits { preauth_per_ip: Rate::per_second(100_000), ..Limits::default() },
        keeping: Keeping::Nowhere,
        authorizer: Arc::new(CatalogDecides),
        sharing: Sharing::Alone,
        trusted_proxies: Vec::new(),
        audit: Audit::off(),
    };
    Ok(server.start().await?)
}

/// Everybody is who they say: the bearer token is the name.
#[derive(Debug)]
struct Anybody;

impl Authenticator for Anybody {
    fn scheme(&self) -> &'static str {
        "anybody"
    }

    fn name(&self) -> &str {
        "anybody"
    }

    fn authenticate<'a>(&'a self, attempt: &'a Attempt<'a>) -> BoxFuture<'a, Verdict> {
        Box::pin(std::future::ready(named(attempt)))
    }

    fn cost(&self, _attempt: &Attempt<'_>) -> Cost {
        Cost::Cheap
    }

    fn standing(&self, _principal: &Principal, _now: SystemTime) -> Standing {
        Standing::Good
    }
}

fn named(attempt: &Attempt<'_>) -> Verdict {
    let Credential::Bearer(token) = attempt.credential() else { return Verdict::Abstain };
    let name = token.expose().to_owned();
    let principal = Principal::assertion(Assertion {
        subject: name.clone(),
        credential_id: name.clone(),
        name,
        scheme: "anybody",
        authority: "anybody".to_owned(),
        roles: [].into(),
        attributes: [].into(),
        expires: Expiry::Never,
    });
    principal.map_or_else(|invalid| Verdict::Reject(Rejection::invalid(invalid.to_string())), Verdict::Admit)
}

/// A folder of this run, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, Failed> {
        let folder = std::env::temp_dir().join(format!("portcullis-scale-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    /// So many tables, each a folder with the same file in it.
    fn tables(&self, count: usize) -> Result<Vec<Table>, Failed> {
        let file = self.0.join("one.parquet");
        small(&file)?;
        (0..count).map(|number| self.table(&file, number)).collect()
    }

    fn table(&self, file: &Path, number: usize) -> Result<Table, Failed> {
        let name = format!("t{number:05}");
        let folder = self.0.join("tables").join(&name);
        std::fs::create_dir_all(&folder)?;
        std::fs::hard_link(file, folder.join("one.parquet"))?;
        Ok(Table {
            catalog: "scale".to_owned(),
            schema: "public".to_owned(),
            name,
            location: Url::from_directory_path(&folder).map_err(|()| "a folder is no URL")?,
            format: Format::Parquet,
            partitions: Vec::new(),
            options: [].into(),
            line: 0,
        })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Ten columns, a hundred rows.
fn small(file: &Path) -> Result<(), Failed> {
    let columns = (0..10).map(|number| -> (String, ArrayRef) {
        let column: ArrayRef = match number % 3 {
            0 => Arc::new(Int64Array::from_iter_values(0..100)),
            1 => Arc::new(Float64Array::from_iter_values((0..100).map(f64::from))),
            _ => Arc::new(StringArray::from_iter_values((0..100).map(|row| format!("text {row}")))),
        };
        (format!("column_{number}"), column)
    });
    let batch = RecordBatch::try_from_iter(columns)?;
    let mut writer = ArrowWriter::try_new(std::fs::File::create(file)?, batch.schema(), None)?;
    writer.write(&batch)?;
    writer.close()?;
    Ok(())
}

fn at(times: &mut [Duration], percent: usize) -> Duration {
    times.sort();
    times.get((times.len() * percent / 100).min(times.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// A session rests after a minute; in KiB, when no more comes back.
async fn settled() -> u64 {
    let end = Instant::now() + Duration::from_secs(100);
    let mut least = resident();
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_secs(1)).await;
        least = least.min(resident());
    }
    least
}

/// In KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or_default()
}

fn mib(before: u64) -> u64 {
    resident().saturating_sub(before) / 1024
}
