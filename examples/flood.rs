//! Measures what strangers cost: a signed-in client while others guess passwords, and a seen token against no sign-in.
//!
//! `cargo run --release --example flood -- [SECONDS]`, the seconds of each of four turns (15). Starts its own gate, in
//! plain text on loopback; clients say by the PROXY protocol where they come from. Strangers have machines of their
//! own: they run in a second process, on another processor than the gate, its cluster and the client that is measured
//! (by `taskset` of util-linux). Prints one line a figure. It is no test and asserts nothing.

#![expect(clippy::print_stdout, clippy::arithmetic_side_effects, reason = "a measuring program prints its figures")]

use std::collections::BTreeMap;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow_flight::FlightDescriptor;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::{CommandGetCatalogs, CommandStatementQuery, ProstMessageExt};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use futures::TryStreamExt;
use hyper_util::rt::TokioIo;
use mimalloc::MiMalloc;
use portcullis::access::CatalogDecides;
use portcullis::audit::Audit;
use portcullis::backend::ballista::embedded::{Embedded, EmbeddedConfig};
use portcullis::config::{Limits, Session};
use portcullis::gate::chain::Chain;
use portcullis::gate::session::Sharing;
use portcullis::listen::Transport;
use portcullis::seal::Sealer;
use portcullis::server::{Catalogs, Running, Server};
use portcullis::storage::Keeping;
use portcullis_auth::{
    Assertion, Attempt, Authenticator, BoxFuture, Clock, Cost, Expiry, Principal, Secret, Standing, SystemClock,
    Verdict,
};
use portcullis_auth_jwt::{Algorithm, IssuerConfig, Jwt, KeySource, StaticKeys};
use portcullis_auth_password::{HashingConfig, Passwords, UserFile, hash};
use prost::Message;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request};

/// As the server's.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

type Failed = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().map_or(Ok(15), |text| text.parse())?;
    let strangers_of = arguments.next().zip(arguments.next());
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().thread_stack_size(32 * 1024 * 1024).build()?;
    match strangers_of {
        Some((gate, round)) => runtime.block_on(strangers(gate.parse()?, seconds, round.parse()?)),
        None => runtime.block_on(measure(seconds)),
    }
}

/// What the second process does.
async fn strangers(gate: SocketAddr, seconds: u64, round: u32) -> Result<(), Failed> {
    let (guesses, sprayed) = tokio::try_join!(guess(gate, seconds), spray(gate, seconds, round))?;
    println!("guesses from one source: {guesses:?}");
    println!("guesses from {} sources: {sprayed:?}", SPRAY / ROUNDS);
    Ok(())
}

async fn measure(seconds: u64) -> Result<(), Failed> {
    let cluster = Embedded::start(&EmbeddedConfig {
        executors: NonZeroUsize::MIN,
        vcores: NonZeroUsize::MIN,
        work_dir: std::env::temp_dir(),
        executor_memory: NonZeroUsize::new(1 << 30).ok_or("no memory")?,
        result_ttl: Duration::from_secs(900),
    })
    .await?;
    let (tokens, token) = tokens()?;
    let users = format!("[user.alice]\npassword = \"{}\"\n", hash(&Secret::new("correct horse"))?);
    let users = Passwords::new("password", UserFile::parse(&users)?, HashingConfig::default())?;
    let gate = gate(Chain::new(Arc::new(tokens)).then(Arc::new(users))?, &cluster).await?;
    let open = self::gate(Chain::new(Arc::new(Everyone)), &cluster).await?;

    // By now all threads are there; what is started later inherits it.
    Command::new("taskset").args(["-acp", "0", &std::process::id().to_string()]).stdout(Stdio::null()).status()?;
    let mut client = Client::connect(gate.address(), Ipv4Addr::new(10, 1, 1, 1), format!("Bearer {token}")).await?;
    client.select_one().await?;
    let before = resident();
    // In turns, so that both meet the same machine.
    let (mut quiet, mut flooded) = (Latencies::default(), Latencies::default());
    for round in 0..ROUNDS {
        client.latencies(seconds, &mut quiet).await?;
        let mut strangers = Command::new("taskset")
            .args(["-c", "1"])
            .arg(std::env::current_exe()?)
            .args([seconds.to_string(), gate.address().to_string(), round.to_string()])
            .spawn()?;
        client.latencies(seconds, &mut flooded).await?;
        tokio::task::spawn_blocking(move || strangers.wait()).await??;
    }
    println!("quiet: {}", quiet.figures());
    println!("flood: {}", flooded.figures());
    println!("p99 flood / quiet: {:.2}", flooded.at(99) / quiet.at(99));
    println!("resident memory: {before} KiB before, {} KiB after", resident());

    let mut everyone = Client::connect(open.address(), Ipv4Addr::new(10, 1, 1, 2), "Bearer x".to_owned()).await?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        with.push(client.catalogs_per_second().await?);
        without.push(everyone.catalogs_per_second().await?);
    }
    let (with, without) = (median(with), median(without));
    println!("metadata calls/s: {with:.0} with a seen JWT, {without:.0} with no sign-in: {:.3}", with / without);
    gate.drain(Duration::from_secs(1)).await;
    open.drain(Duration::from_secs(1)).await;
    cluster.stop().await;
    Ok(())
}

async fn gate(chain: Chain, cluster: &Embedded) -> Result<Running, Failed> {
    let server = Server {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        transport: Transport::DangerPlaintext,
        chain,
        clock: Arc::new(SystemClock),
        sealer: Sealer::random()?,
        backend: Arc::new(cluster.backend()),
        catalogs: Catalogs::nothing(),
        session: Session::default(),
        limits: Limits::default(),
        keeping: Keeping::Nowhere,
        authorizer: Arc::new(CatalogDecides),
        sharing: Sharing::Alone,
        trusted_proxies: vec!["127.0.0.0/8".parse()?],
        audit: Audit::off(),
    };
    Ok(server.start().await?)
}

/// An issuer of one key, and a token of it.
fn tokens() -> Result<(Jwt, String), Failed> {
    let key = Ed25519KeyPair::generate().map_err(|_| "no key")?;
    let x = BASE64_URL_SAFE_NO_PAD.encode(key.public_key().as_ref());
    let keys = format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","kid":"1","x":"{x}"}}]}}"#);
    let issuer = "https://id.test";
    let source = KeySource::File(StaticKeys::parse(&keys)?);
    let config = IssuerConfig::new(issuer, vec!["portcullis".to_owned()], vec![Algorithm::EdDsa], source);
    let end = SystemClock.now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs() + 3600;
    let claims = format!(r#"{{"iss":"{issuer}","aud":"portcullis","sub":"alice","exp":{end}}}"#);
    let parts = [r#"{"alg":"EdDSA","kid":"1"}"#, &claims].map(|part| BASE64_URL_SAFE_NO_PAD.encode(part));
    let signed = parts.join(".");
    let signature = BASE64_URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()));
    Ok((Jwt::new("jwt", vec![config], Arc::new(SystemClock))?, format!("{signed}.{signature}")))
}

/// No sign-in at all.
#[derive(Debug)]
struct Everyone;

impl Authenticator for Everyone {
    fn scheme(&self) -> &'static str {
        "everyone"
    }

    fn name(&self) -> &str {
        "everyone"
    }

    fn authenticate<'a>(&'a self, _attempt: &'a Attempt<'a>) -> BoxFuture<'a, Verdict> {
        let principal = Principal::assertion(Assertion {
            name: "anybody".to_owned(),
            scheme: "everyone",
            authority: "everyone".to_owned(),
            subject: "anybody".to_owned(),
            roles: [].into(),
            attributes: [].into(),
            expires: Expiry::Never,
            credential_id: "none".to_owned(),
        });
        Box::pin(std::future::ready(principal.map_or(Verdict::Abstain, Verdict::Admit)))
    }

    fn cost(&self, _attempt: &Attempt<'_>) -> Cost {
        Cost::Cheap
    }

    fn standing(&self, _principal: &Principal, _now: SystemTime) -> Standing {
        Standing::Good
    }
}

/// A client from a source of its own.
struct Client {
    flight: FlightServiceClient<Channel>,
    authorization: String,
}

impl Client {
    async fn connect(gate: SocketAddr, from: Ipv4Addr, authorization: String) -> Result<Self, Failed> {
        let connect = move |_: Uri| async move {
            let mut stream = TcpStream::connect(gate).await?;
            stream.set_nodelay(true)?;
            stream.write_all(format!("PROXY TCP4 {from} 127.0.0.1 40000 32010\r\n").as_bytes()).await?;
            Ok::<_, std::io::Error>(TokioIo::new(stream))
        };
        let channel =
            Endpoint::from_shared(format!("http://{gate}"))?.connect_with_connector(tower::service_fn(connect)).await?;
        Ok(Self { flight: FlightServiceClient::new(channel), authorization })
    }

    fn request<T>(&self, message: T) -> Result<Request<T>, Failed> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", self.authorization.parse()?);
        Ok(request)
    }

    async fn select_one(&mut self) -> Result<(), Failed> {
        let query = CommandStatementQuery { query: "SELECT 1".to_owned(), transaction_id: None };
        let descriptor = FlightDescriptor::new_cmd(query.as_any().encode_to_vec());
        let info = self.flight.get_flight_info(self.request(descriptor)?).await?.into_inner();
        for endpoint in info.endpoint {
            let ticket = self.request(endpoint.ticket.ok_or("no ticket")?)?;
            self.flight.do_get(ticket).await?.into_inner().try_for_each(|_| async { Ok(()) }).await?;
        }
        Ok(())
    }

    async fn latencies(&mut self, seconds: u64, all: &mut Latencies) -> Result<(), Failed> {
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end {
            let start = Instant::now();
            self.select_one().await?;
            all.0.push(start.elapsed().as_secs_f64() * 1000.0);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        all.0.sort_by(f64::total_cmp);
        Ok(())
    }

    async fn catalogs_per_second(&mut self) -> Result<f64, Failed> {
        let descriptor = FlightDescriptor::new_cmd(CommandGetCatalogs {}.as_any().encode_to_vec());
        let start = Instant::now();
        for _ in 0..CALLS {
            self.flight.get_flight_info(self.request(descriptor.clone())?).await?;
        }
        Ok(f64::from(CALLS) / start.elapsed().as_secs_f64())
    }

    async fn guess(&mut self) -> Result<Code, Failed> {
        let descriptor = FlightDescriptor::new_cmd(CommandGetCatalogs {}.as_any().encode_to_vec());
        let answer = self.flight.get_flight_info(self.request(descriptor)?).await;
        Ok(answer.map_or_else(|status| status.code(), |_| Code::Ok))
    }
}

/// In milliseconds, sorted.
#[derive(Default)]
struct Latencies(Vec<f64>);

impl Latencies {
    fn at(&self, percent: usize) -> f64 {
        self.0.get((self.0.len() * percent / 100).min(self.0.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
    }

    fn figures(&self) -> String {
        format!("{} times SELECT 1, p50 {:.2} ms, p99 {:.2} ms", self.0.len(), self.at(50), self.at(99))
    }
}

/// 500 wrong passwords a second from one address.
async fn guess(gate: SocketAddr, seconds: u64) -> Result<BTreeMap<String, u32>, Failed> {
    let mut guesses = JoinSet::new();
    let mut tick = tokio::time::interval(Duration::from_millis(2));
    // Late is late: what was missed must not come all at once.
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let from = Ipv4Addr::new(10, 66, 66, 66);
    let client = Client::connect(gate, from, basic("alice", "0")).await?;
    for number in 0..seconds * 500 {
        tick.tick().await;
        let mut client = Client { flight: client.flight.clone(), authorization: basic("alice", &number.to_string()) };
        guesses.spawn(async move { client.guess().await });
    }
    counted(guesses).await
}

/// One guess each from many addresses.
async fn spray(gate: SocketAddr, seconds: u64, round: u32) -> Result<BTreeMap<String, u32>, Failed> {
    let mut guesses = JoinSet::new();
    let each = Duration::from_secs(seconds) / (SPRAY / ROUNDS);
    let mut tick = tokio::time::interval(each);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in (round * SPRAY / ROUNDS)..((round + 1) * SPRAY / ROUNDS) {
        tick.tick().await;
        let from = Ipv4Addr::from(0x0b00_0000 + number);
        guesses.spawn(async move {
            Client::connect(gate, from, basic(&format!("user-{number}"), "x")).await?.guess().await
        });
    }
    counted(guesses).await
}

async fn counted(mut guesses: JoinSet<Result<Code, Failed>>) -> Result<BTreeMap<String, u32>, Failed> {
    let mut answers = BTreeMap::new();
    while let Some(guess) = guesses.join_next().await {
        let answer = guess?.map_or_else(|_| "no connection".to_owned(), |code| format!("{code:?}"));
        *answers.entry(answer).or_insert(0) += 1;
    }
    Ok(answers)
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
}

/// In KiB, where the system tells it.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or_default()
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

const SPRAY: u32 = 20_000;
const ROUNDS: u32 = 4;
const CALLS: u32 = 500;
