//! What every test stands on: one runtime, one embedded cluster, gates with their own settings.
//!
//! Clients are in [`client`], credentials in [`login`], started processes in [`process`]. Must not assert a promise.

pub(crate) mod client;
pub(crate) mod login;
pub(crate) mod nodes;
pub(crate) mod process;
pub(crate) mod schemes;
pub(crate) mod wire;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use arrow::array::RecordBatchReader;
use datafusion::parquet::arrow::ArrowWriter;
use futures::FutureExt;
use portcullis::access::{Grants, SharedGrants};
use portcullis::audit::Audit;
use portcullis::backend::QueryBackend;
use portcullis::backend::ballista::embedded::{Embedded, EmbeddedConfig};
use portcullis::catalog::SessionBuilder;
use portcullis::config::{
    Format, Grant, Grantee, Limits, Location, Log, LogFormat, LogLevel, NonEmpty, RowRule, Session, Table,
};
use portcullis::gate::chain::Chain;
use portcullis::gate::session::Sharing;
use portcullis::limits::Rate;
use portcullis::listen::{Network, Transport};
use portcullis::logging;
use portcullis::seal::Sealer;
use portcullis::server::{Catalogs, Running, Server};
use portcullis::storage::Keeping;
use portcullis::stores::Stores;
use portcullis::tls::{ClientAuth, MinVersion, TlsIdentity};
use portcullis_auth::{Action, Clock, Secret, SystemClock, TestClock};
use portcullis_auth_api_key::ApiKeys;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;
use tokio::time::Instant;
use tpchgen::generators::{CustomerGenerator, NationGenerator, OrderGenerator, RegionGenerator};
use tpchgen_arrow::{CustomerArrow, NationArrow, OrderArrow, RegionArrow};
use url::Url;

use self::client::Client;
use self::login::{KEYS, Login, Pairs};

/// Runs a test on the shared runtime. Its threads have room for the engine's recursion, and it outlives every test, as
/// the cluster on it must.
pub(crate) fn on_runtime<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let work = AssertUnwindSafe(work).catch_unwind().map(|done| done.map_err(|_| LAST_PANIC.take()));
    match RUNTIME.block_on(RUNTIME.spawn(work)).unwrap() {
        Ok(value) => value,
        // Said again on the test's own thread, whose output the harness keeps.
        Err(panic) => panic!("{panic}"),
    }
}

/// Waits until `probe` says so, and fails the test when it does not within `within`.
pub(crate) async fn until<F: Future<Output = Seen>>(what: &str, within: Duration, mut probe: impl FnMut() -> F) {
    let deadline = Instant::now() + within;
    loop {
        match probe().await {
            Seen::Yes => return,
            Seen::NotYet if Instant::now() < deadline => tokio::time::sleep(Duration::from_millis(20)).await,
            Seen::NotYet => panic!("{what}: not within {within:?}"),
        }
    }
}

/// What a probe saw.
pub(crate) enum Seen {
    NotYet,
    Yes,
}

impl Seen {
    pub(crate) fn when(condition: bool) -> Self {
        if condition { Self::Yes } else { Self::NotYet }
    }
}

/// An embedded cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) embedded: Embedded,
}

/// The cluster that tests share. Whoever blocks or breaks one starts their own.
pub(crate) async fn cluster() -> &'static Cluster {
    static SHARED: OnceCell<Cluster> = OnceCell::const_new();
    SHARED.get_or_init(|| Cluster::start(Size { executors: 2, vcores: 4 })).await
}

/// How large a cluster is.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) executors: usize,
    pub(crate) vcores: usize,
}

impl Cluster {
    pub(crate) async fn start(size: Size) -> Self {
        let config = EmbeddedConfig {
            executors: NonZeroUsize::new(size.executors).unwrap(),
            vcores: NonZeroUsize::new(size.vcores).unwrap(),
            work_dir: directory().join("work"),
            executor_memory: NonZeroUsize::new(1 << 30).unwrap(),
            result_ttl: Duration::from_secs(900),
        };
        let embedded = Embedded::start(&config).await.unwrap();
        Self { embedded }
    }
}

/// What a gate is made of; [`Settings::shared`] is the usual one.
pub(crate) struct Settings {
    pub(crate) backend: Arc<dyn QueryBackend>,
    pub(crate) tables: Vec<Table>,
    pub(crate) session: Session,
    pub(crate) limits: Limits,
    /// By default, everybody reads everything.
    pub(crate) grants: Vec<Grant>,
    pub(crate) locations: Vec<Location>,
    /// An embedder's catalog instead of the tables.
    pub(crate) builder: Option<Arc<dyn SessionBuilder>>,
    /// Another chain than API keys and fixed pairs.
    pub(crate) chain: Option<Chain>,
    /// Another certificate, or clients' certificates.
    pub(crate) identity: TlsIdentity,
    pub(crate) sealer: Sealer,
    pub(crate) sharing: Sharing,
    pub(crate) trusted_proxies: Vec<Network>,
    pub(crate) audit: Audit,
    /// Where tables are kept.
    pub(crate) keeping: Keeping,
}

impl Settings {
    /// Over the shared cluster.
    pub(crate) async fn shared() -> Self {
        Self::over(cluster().await)
    }

    pub(crate) fn over(cluster: &Cluster) -> Self {
        Self::with(Arc::new(cluster.embedded.backend()))
    }

    /// Over any cluster that reads this machine's files.
    pub(crate) fn with(backend: Arc<dyn QueryBackend>) -> Self {
        Self {
            backend,
            tables: TABLES.clone(),
            session: Session { default_catalog: "tpch".to_owned(), ..Session::default() },
            limits: Limits {
                // Every test comes from one address, and many of them guess.
                connections_per_ip: 1024,
                preauth_per_ip: Rate::per_second(100_000),
                failed_auth_per_ip: Rate::per_second(100_000),
                failed_auth_per_name: Rate::per_second(100_000),
                ..Limits::default()
            },
            grants: vec![reading("*", Grantee::Everyone)],
            locations: Vec::new(),
            builder: None,
            chain: None,
            identity: PKI.identity.clone(),
            sealer: Sealer::random().unwrap(),
            sharing: Sharing::Alone,
            trusted_proxies: Vec::new(),
            audit: Audit::off(),
            keeping: Keeping::Nowhere,
        }
    }
}

/// A grant to read.
pub(crate) fn reading(on: &str, to: Grantee) -> Grant {
    Grant {
        to: NonEmpty { first: to, rest: Vec::new() },
        on: on.parse().unwrap(),
        allow: BTreeSet::from([Action::Select]),
        rows: RowRule::All,
        masks: BTreeMap::new(),
        line: 0,
    }
}

/// A started gate with a clock that tests move and schemes that tests can revoke from.
pub(crate) struct Gate {
    pub(crate) running: Running,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) pairs: Arc<Pairs>,
    /// Which can be replaced.
    pub(crate) grants: Arc<SharedGrants>,
}

impl Gate {
    /// The usual gate.
    pub(crate) async fn shared() -> Self {
        Self::start(Settings::shared().await).await
    }

    pub(crate) async fn start(settings: Settings) -> Self {
        let clock = Arc::new(TestClock::new(SystemClock.now()));
        let pairs = Arc::new(Pairs::default());
        let keys = ApiKeys::new("keys", KEYS.file());
        let grants = Arc::new(SharedGrants::new(Grants::new(settings.grants, settings.locations)));
        let running = Server {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            transport: Transport::Tls(settings.identity),
            chain: settings.chain.unwrap_or_else(|| Chain::new(Arc::new(keys)).then(Arc::clone(&pairs) as _).unwrap()),
            clock: Arc::clone(&clock) as _,
            sealer: settings.sealer,
            backend: settings.backend,
            catalogs: settings.builder.map_or_else(
                || Catalogs::Configured { tables: settings.tables, stores: Arc::new(Stores::local_only()) },
                Catalogs::Built,
            ),
            session: settings.session,
            limits: settings.limits,
            keeping: settings.keeping,
            authorizer: Arc::clone(&grants) as _,
            sharing: settings.sharing,
            trusted_proxies: settings.trusted_proxies,
            audit: settings.audit,
        }
        .start()
        .await
        .unwrap();
        Self { running, clock, pairs, grants }
    }

    /// A connection of its own with this credential on every call.
    pub(crate) fn client(&self, login: &Login) -> Client {
        Client::connect(self.running.address(), login)
    }

    /// A client with the token of a fresh session.
    pub(crate) async fn signed_in(&self, user: &str) -> Client {
        let token = self.client(&Login::pair(user)).handshake().await.unwrap();
        self.client(&Login::Bearer(token))
    }
}

/// A directory of this run; those of runs that are over are removed.
pub(crate) fn directory() -> &'static Path {
    static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| {
        let parent = Path::new(env!("CARGO_TARGET_TMPDIR")).join("portcullis-it");
        std::fs::create_dir_all(&parent).unwrap();
        for old in std::fs::read_dir(&parent).unwrap() {
            let old = old.unwrap();
            if !Path::new("/proc").join(old.file_name()).exists() {
                drop(std::fs::remove_dir_all(old.path()));
            }
        }
        let own = parent.join(std::process::id().to_string());
        std::fs::create_dir_all(&own).unwrap();
        own.canonicalize().unwrap()
    });
    &DIRECTORY
}

/// A CA of this run and a certificate for `localhost`.
pub(crate) struct Pki {
    pub(crate) ca: String,
    chain: Secret,
    key: Secret,
    identity: TlsIdentity,
}

impl Pki {
    /// The same certificate, and this is asked of clients.
    pub(crate) fn asking(&self, min: MinVersion, clients: ClientAuth) -> TlsIdentity {
        let (chain, key) = ((Path::new("chain"), &self.chain), (Path::new("key"), &self.key));
        TlsIdentity::from_pem(chain, key, min, clients).unwrap()
    }
}

pub(crate) static PKI: LazyLock<Pki> = LazyLock::new(|| {
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
    let key = KeyPair::generate().unwrap();
    let server = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let chain = Secret::new(server.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap().pem());
    let key = Secret::new(key.serialize_pem());
    let identity = TlsIdentity::from_pem(
        (Path::new("chain"), &chain),
        (Path::new("key"), &key),
        MinVersion::Tls12,
        ClientAuth::None,
    );
    Pki { ca: ca_pem, identity: identity.unwrap(), chain, key }
});

/// A generator of its own, so that a failure comes again with the same seed.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// SplitMix64.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound).unwrap()).unwrap()
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let elsewhere = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().name() == Some(WORKER) {
            LAST_PANIC.set(info.to_string());
        } else {
            elsewhere(info);
        }
    }));
    if std::env::var_os("PORTCULLIS_IT_LOG").is_some() {
        logging::start(&Log { level: LogLevel::Info, format: LogFormat::Text }).unwrap();
    }
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .thread_name(WORKER)
        .enable_all()
        .thread_stack_size(32 * 1024 * 1024)
        .build()
        .unwrap()
});

static TABLES: LazyLock<Vec<Table>> = LazyLock::new(|| {
    let readers: Vec<(&str, Box<dyn RecordBatchReader>)> = vec![
        ("customer", Box::new(CustomerArrow::new(CustomerGenerator::new(SCALE, 1, 1)))),
        ("nation", Box::new(NationArrow::new(NationGenerator::default()))),
        ("orders", Box::new(OrderArrow::new(OrderGenerator::new(SCALE, 1, 1)))),
        ("region", Box::new(RegionArrow::new(RegionGenerator::default()))),
    ];
    let folder = directory().join("tables");
    std::fs::create_dir_all(&folder).unwrap();
    readers
        .into_iter()
        .map(|(name, rows)| {
            let file = folder.join(format!("{name}.parquet"));
            let mut writer = ArrowWriter::try_new(File::create(&file).unwrap(), rows.schema(), None).unwrap();
            rows.for_each(|batch| writer.write(&batch.unwrap()).unwrap());
            writer.close().unwrap();
            Table {
                catalog: "tpch".to_owned(),
                schema: "public".to_owned(),
                name: name.to_owned(),
                location: Url::from_file_path(file).unwrap(),
                format: Format::Parquet,
                partitions: Vec::new(),
                options: Default::default(),
                line: 1,
            }
        })
        .collect()
});

thread_local! {
    /// What the panic of this thread said, and where.
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

const WORKER: &str = "it-worker";
const SCALE: f64 = 0.01;
