//! A stock Ballista cluster in other processes: reached, lost, found again, and never pointed elsewhere.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use arrow_flight::FlightDescriptor;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_core::serde::protobuf::{
    ExecuteQueryResult, ExecuteQuerySuccessResult, GetJobStatusParams, execute_query_result, job_status,
};
use http_body_util::Full;
use portcullis::backend::ballista::remote::{self, ClusterIdentity, ClusterTls, RemoteConfig, Results};
use portcullis::backend::ballista::{ExecutorAllowList, Headers};
use portcullis_auth::{BoxFuture, Clock, Secret, SystemClock};
use prost::Message;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tonic::Code;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::server::TcpIncoming;
use tower::Service;
use url::Url;

use crate::support::client::{Client, code, statement};
use crate::support::login::Login;
use crate::support::nodes::{Node, Nodes, free_port};
use crate::support::process::run;
use crate::support::{Gate, Seen, Settings, directory, on_runtime, until};

#[test]
fn a_stock_cluster_of_two_executors_answers_straight_and_through_its_proxy() {
    on_runtime(async {
        let nodes = Nodes::start(2).await;
        for results in [straight(&nodes.ports()), Results::Proxy(url("http", nodes.scheduler_port))] {
            let gate = gate(RemoteConfig { results: results.clone(), ..plain(&nodes) }).await;
            let client = gate.client(&Login::key("alice"));
            assert_eq!(client.text(QUICK).await.unwrap(), ["25"], "{results:?}");
            let joined = "SELECT r_name, count(*) FROM nation JOIN region ON n_regionkey = r_regionkey \
                          GROUP BY r_name ORDER BY r_name";
            let rows = client.text(joined).await.unwrap();
            assert_eq!(rows, ["AFRICA|5", "AMERICA|5", "ASIA|5", "EUROPE|5", "MIDDLE EAST|5"], "{results:?}");
            // What executors compress is sent as clients read it: whole, and without a codec.
            let ticket = client.ticket("SELECT * FROM orders").await.unwrap();
            let rows: usize = client.read(ticket).await.unwrap().iter().map(|batch| batch.num_rows()).sum();
            assert_eq!(rows, 15_000, "{results:?}");
        }
    });
}

#[test]
fn a_killed_executor_is_unavailable_soon_and_the_next_query_works() {
    on_runtime(async {
        let mut nodes = Nodes::start(2).await;
        let gate = gate(plain(&nodes)).await;
        let client = gate.client(&Login::key("alice"));
        let mut tickets = Vec::new();
        for _ in 0..6 {
            tickets.push(client.ticket("SELECT n_name FROM nation").await.unwrap());
        }
        assert!(client.read(tickets[0].clone()).await.is_ok());

        let holds_results = |node: &Node| !job_ids_of(&node.work_dir).is_empty();
        let holder = nodes.executors.iter().position(holds_results).unwrap_or_else(|| panic!("results lie nowhere"));
        drop(nodes.executors.remove(holder));
        let mut codes = Vec::new();
        for ticket in tickets {
            let answer = timeout(SOON, client.read(ticket)).await.unwrap_or_else(|_| panic!("no answer"));
            codes.push(code(&answer));
        }
        assert!(codes.contains(&Code::Unavailable), "some results lay on the executor that died: {codes:?}");
        assert!(codes.iter().all(|code| matches!(code, Code::Ok | Code::Unavailable)), "{codes:?}");
        works_again(&client).await;
        for _ in 0..4 {
            assert_eq!(client.text(QUICK).await.unwrap(), ["25"], "and goes on working");
        }

        // The last one too, and then another comes that the list has as well.
        drop(nodes.executors.remove(0));
        let alone = timeout(SOON, client.text(QUICK)).await.unwrap_or_else(|_| panic!("no answer without executors"));
        assert_eq!(code(&alone), Code::Unavailable, "{alone:?}");
        nodes.add_executor().await;
        drop(gate);
        let gate = self::gate(plain(&nodes)).await;
        works_again(&gate.client(&Login::key("alice"))).await;
    });
}

#[test]
fn a_scheduler_that_restarts_is_unavailable_soon_and_the_next_query_works() {
    on_runtime(async {
        let mut nodes = Nodes::start(2).await;
        let gate = gate(plain(&nodes)).await;
        let client = gate.signed_in("alice").await;
        client.update("CREATE VIEW v AS SELECT n_name FROM nation").await.unwrap();
        assert_eq!(client.text("SELECT count(*) FROM v").await.unwrap(), ["25"]);
        let before = job_ids(&nodes);

        let running = tokio::spawn({
            let client = client.clone();
            async move { client.info(ENDLESS).await }
        });
        until("the long query runs", SOON, || async { Seen::when(new_job(&nodes, &before).is_some()) }).await;
        nodes.restart_scheduler().await;
        let lost = timeout(SOON, running).await.unwrap_or_else(|_| panic!("the lost query hangs")).unwrap();
        assert_eq!(code(&lost), Code::Unavailable, "{lost:?}");
        works_again(&client).await;
        assert_eq!(client.text("SELECT count(*) FROM v").await.unwrap(), ["25"], "the session is the gate's");

        nodes.stop_scheduler();
        let started = Instant::now();
        let away = timeout(SOON, client.text(QUICK)).await.unwrap_or_else(|_| panic!("no answer without scheduler"));
        assert_eq!(code(&away), Code::Unavailable, "{away:?}");
        assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
        assert_eq!(client.text("SELECT 1").await.unwrap(), ["1"], "the gate needs no cluster for that");
    });
}

#[test]
fn a_deadline_cancels_the_job_on_the_scheduler() {
    on_runtime(async {
        let nodes = Nodes::start(1).await;
        let gate = gate(plain(&nodes)).await;
        let client = gate.client(&Login::key("alice"));
        assert_eq!(client.text(QUICK).await.unwrap(), ["25"]);
        until("the quick job's folder is there", SOON, || async { Seen::when(!job_ids(&nodes).is_empty()) }).await;
        let before = job_ids(&nodes);

        let mut request = tonic::Request::new(FlightDescriptor::new_cmd(statement(ENDLESS).encode_to_vec()));
        request.set_timeout(Duration::from_secs(6));
        let late = tokio::spawn({
            let mut flight = client.flight();
            async move { flight.get_flight_info(request).await }
        });
        until("the long query has an id", SOON, || async { Seen::when(new_job(&nodes, &before).is_some()) }).await;
        let asked = GetJobStatusParams { job_id: new_job(&nodes, &before).unwrap() };
        let scheduler = SchedulerGrpcClient::connect(url("http", nodes.scheduler_port).to_string()).await.unwrap();
        let status = || async {
            let answer = scheduler.clone().get_job_status(asked.clone()).await.unwrap().into_inner();
            answer.status.and_then(|status| status.status)
        };
        until("the long query runs", SOON, || async {
            Seen::when(matches!(status().await, Some(job_status::Status::Running(_))))
        })
        .await;

        let late = timeout(SOON, late).await.unwrap_or_else(|_| panic!("hangs")).unwrap();
        assert!(matches!(code(&late), Code::Cancelled | Code::DeadlineExceeded), "{late:?}");
        // Failed as cancelled, and soon after forgotten with its data.
        until("the job does not run any more", SOON, || async {
            Seen::when(matches!(status().await, None | Some(job_status::Status::Failed(_))))
        })
        .await;
    });
}

#[test]
fn only_executors_in_the_list_are_dialled() {
    on_runtime(async {
        let nodes = Nodes::start(1).await;
        let allowed = gate(plain(&nodes)).await;
        assert_eq!(allowed.client(&Login::key("alice")).text(QUICK).await.unwrap(), ["25"]);

        let elsewhere = RemoteConfig { results: straight(&[free_port()]), ..plain(&nodes) };
        let gate = gate(elsewhere).await;
        let client = gate.client(&Login::key("alice"));
        let refused = client.text(QUICK).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable);
        for port in nodes.ports() {
            assert!(!refused.message().contains(&port.to_string()), "{refused}");
        }
    });
}

#[test]
fn no_ticket_promises_more_than_the_cluster_keeps() {
    on_runtime(async {
        let nodes = Nodes::start(1).await;
        let gate = gate(RemoteConfig { result_ttl: Duration::from_secs(60), ..plain(&nodes) }).await;
        let client = gate.client(&Login::key("alice"));
        let info = client.info(QUICK).await.unwrap();
        let ends = info.endpoint[0].expiration_time.unwrap();
        let now = SystemClock.now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let left = u64::try_from(ends.seconds).unwrap().saturating_sub(now);
        assert!((30..60).contains(&left), "{left} s");
    });
}

#[test]
fn a_function_that_stock_executors_lack_is_named() {
    on_runtime(async {
        let nodes = Nodes::start(1).await;
        let gate = gate(plain(&nodes)).await;
        let client = gate.client(&Login::key("alice"));
        assert_eq!(client.text("SELECT count(*) FROM nation WHERE md5(n_name) <> ''").await.unwrap(), ["25"]);
        let lacking = client.text("SELECT make_array(n_nationkey, n_regionkey) FROM nation").await.unwrap_err();
        assert_eq!(lacking.code(), Code::Unimplemented);
        assert!(lacking.message().contains("`make_array`"), "{lacking}");
    });
}

#[test]
fn tls_with_a_certificate_of_the_gate_reaches_a_scheduler_and_its_proxy() {
    on_runtime(async {
        let nodes = Nodes::start(2).await;
        let sidecar = Sidecar::before(nodes.scheduler_port).await;
        let over_tls = |tls| RemoteConfig {
            scheduler: url("https", sidecar.port),
            tls,
            results: Results::Proxy(url("https", sidecar.port)),
            ..plain(&nodes)
        };
        let good = ClusterTls::Tls { ca: sidecar.ca.clone(), identity: sidecar.identity() };
        let backend = remote::backend(over_tls(good)).unwrap();
        backend.greet().await.unwrap();
        let gate = gate_over(backend).await;
        let client = gate.client(&Login::key("alice"));
        let stages = "SELECT o_orderpriority, count(*) FROM orders GROUP BY o_orderpriority ORDER BY 1";
        assert_eq!(client.text(stages).await.unwrap().len(), 5);
        assert!(sidecar.accepted() > 0);

        // Without the certificate, with another CA, and in plain text nobody comes in.
        let nobody = ClusterTls::Tls { ca: sidecar.ca.clone(), identity: ClusterIdentity::Anonymous };
        let other_ca = ClusterTls::Tls { ca: authority().0, identity: sidecar.identity() };
        for refused in [
            over_tls(nobody),
            over_tls(other_ca),
            RemoteConfig { scheduler: url("http", sidecar.port), ..plain(&nodes) },
        ] {
            let shown = format!("{refused:?}");
            let refused = timeout(SOON, remote::backend(refused).unwrap().greet()).await;
            assert!(refused.unwrap_or_else(|_| panic!("hangs: {shown}")).is_err(), "{shown}");
        }
        // And when it is gone in the middle of things, queries fail and say so.
        drop(sidecar);
        let gone = timeout(SOON, client.text(QUICK)).await.unwrap_or_else(|_| panic!("no answer without the sidecar"));
        assert_eq!(code(&gone), Code::Unavailable, "{gone:?}");
    });
}

#[test]
fn a_scheduler_of_another_version_is_refused_by_name_and_headers_reach_it() {
    on_runtime(async {
        let known = Impostor::start(ballista_core::BALLISTA_VERSION).await;
        let header = ("x-tenant".parse().unwrap(), "blue".parse().unwrap());
        let config = |port| RemoteConfig {
            scheduler: url("http", port),
            tls: ClusterTls::None,
            headers: Headers::new([header.clone()]),
            results: straight(&[free_port()]),
            result_ttl: Duration::from_secs(300),
        };
        remote::backend(config(known.port)).unwrap().greet().await.unwrap();
        assert_eq!(known.headers.lock().unwrap().as_slice(), ["blue"], "as configured");

        let old = Impostor::start("54.0.0").await;
        let refused = remote::backend(config(old.port)).unwrap().greet().await.unwrap_err().to_string();
        assert!(refused.contains("54.0.0") && refused.contains(ballista_core::BALLISTA_VERSION), "{refused}");
        let gate = gate(config(old.port)).await;
        let query = gate.client(&Login::key("alice")).text(QUICK).await.unwrap_err();
        assert_eq!(query.code(), Code::Internal);
        assert!(!query.message().contains("54.0"), "the operator's affair: {query}");

        // The program says it to the operator before it serves anybody.
        let dir = directory().join("old-scheduler");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("gate.toml"), configuration(old.port, &[free_port()])).unwrap();
        std::fs::write(dir.join("keys.toml"), "").unwrap();
        let said = tokio::task::spawn_blocking(move || run(&dir, &["check", "--config", "gate.toml"])).await.unwrap();
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        assert_eq!(said.status.code(), Some(69), "{text}");
        assert!(text.contains("54.0.0"), "{text}");
    });
}

#[test]
fn check_runs_a_query_and_finds_an_executor_that_is_not_in_the_list() {
    on_runtime(async {
        let nodes = Nodes::start(1).await;
        let dir = directory().join("checked");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("keys.toml"), "").unwrap();
        std::fs::write(dir.join("good.toml"), configuration(nodes.scheduler_port, &nodes.ports())).unwrap();
        std::fs::write(dir.join("bad.toml"), configuration(nodes.scheduler_port, &[free_port()])).unwrap();
        let executor = nodes.executors[0].port;
        let check = |file: &'static str| {
            let dir = dir.clone();
            tokio::task::spawn_blocking(move || run(&dir, &["check", "--config", file]))
        };
        let good = check("good.toml").await.unwrap();
        assert!(good.status.success(), "{}", String::from_utf8_lossy(&good.stderr));
        let bad = check("bad.toml").await.unwrap();
        let text = String::from_utf8_lossy(&bad.stderr).into_owned();
        assert_eq!(bad.status.code(), Some(69), "{text}");
        assert!(text.contains(&format!("127.0.0.1:{executor}")), "{text}");
    });
}

/// The cluster without TLS, results straight from its executors.
fn plain(nodes: &Nodes) -> RemoteConfig {
    RemoteConfig {
        scheduler: url("http", nodes.scheduler_port),
        tls: ClusterTls::None,
        headers: Headers::default(),
        results: straight(&nodes.ports()),
        result_ttl: Duration::from_secs(300),
    }
}

fn straight(ports: &[u16]) -> Results {
    let executors = ports.iter().map(|port| format!("127.0.0.1:{port}").parse().unwrap());
    Results::Executors(ExecutorAllowList::Configured(executors.collect()))
}

fn url(scheme: &str, port: u16) -> Url {
    // The sidecar's certificate has this name.
    Url::parse(&format!("{scheme}://localhost:{port}")).unwrap()
}

async fn gate(config: RemoteConfig) -> Gate {
    gate_over(remote::backend(config).unwrap()).await
}

async fn gate_over(backend: impl portcullis::backend::QueryBackend) -> Gate {
    Gate::start(Settings::with(Arc::new(backend))).await
}

async fn works_again(client: &Client) {
    until("queries work again", Duration::from_secs(40), || async {
        let again = timeout(SOON, client.text(QUICK)).await.unwrap_or_else(|_| panic!("no answer"));
        assert!(matches!(code(&again), Code::Ok | Code::Unavailable), "{again:?}");
        Seen::when(again.is_ok())
    })
    .await;
}

fn new_job(nodes: &Nodes, before: &[String]) -> Option<String> {
    job_ids(nodes).into_iter().find(|job| !before.contains(job))
}

fn job_ids(nodes: &Nodes) -> Vec<String> {
    nodes.executors.iter().flat_map(|node| job_ids_of(&node.work_dir)).collect()
}

/// An executor makes one folder for each job, and others for what spills.
fn job_ids_of(work_dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(work_dir).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.path().is_dir());
    let names = folders.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.starts_with("datafusion-")).collect()
}

/// A configuration file over a remote cluster.
fn configuration(scheduler: u16, executors: &[u16]) -> String {
    let executors: Vec<_> = executors.iter().map(|port| format!("\"127.0.0.1:{port}\"")).collect();
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndanger_plaintext = true\n\
         [cluster]\nmode = \"remote\"\nscheduler = \"http://127.0.0.1:{scheduler}\"\nexecutors = [{}]\n\
         [[auth]]\nscheme = \"api-key\"\nkeys = \"keys.toml\"\n",
        executors.join(", ")
    )
}

/// What a cluster without TLS gets put before it: ends TLS, demands a certificate, passes bytes on.
struct Sidecar {
    port: u16,
    ca: String,
    client: (String, String),
    accepted: Arc<Mutex<usize>>,
    task: tokio::task::JoinHandle<()>,
}

impl Sidecar {
    async fn before(scheduler: u16) -> Self {
        let (ca, issuer) = authority();
        let certificate = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            (params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
        };
        let (server, client) = (certificate("localhost"), certificate("gate"));
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().unwrap();
        let mut tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(server.0.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(server.1.as_bytes()).unwrap(),
            )
            .unwrap();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let (acceptor, listener) =
            (TlsAcceptor::from(Arc::new(tls)), TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap());
        let port = listener.local_addr().unwrap().port();
        let accepted = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&accepted);
        let task = tokio::spawn(async move {
            // Dropped with this task, and with it every connection.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, counted) = (acceptor.clone(), Arc::clone(&counted));
                connections.spawn(async move {
                    let Ok(mut outer) = acceptor.accept(socket).await else { return };
                    *counted.lock().unwrap() += 1;
                    let mut inner = TcpStream::connect((Ipv4Addr::LOCALHOST, scheduler)).await.unwrap();
                    drop(copy_bidirectional(&mut outer, &mut inner).await);
                });
            }
        });
        Self { port, ca, client, accepted, task }
    }

    fn identity(&self) -> ClusterIdentity {
        ClusterIdentity::Certificate { chain: self.client.0.clone(), key: Secret::new(self.client.1.clone()) }
    }

    fn accepted(&self) -> usize {
        *self.accepted.lock().unwrap()
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A CA: its certificate, and what signs for it.
fn authority() -> (String, Issuer<'static, KeyPair>) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    (params.self_signed(&key).unwrap().pem(), Issuer::new(params, key))
}

/// Answers every call as a scheduler that took a query, and says the version that it was given.
struct Impostor {
    port: u16,
    headers: Arc<Mutex<Vec<String>>>,
}

impl Impostor {
    async fn start(version: &'static str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let headers = Arc::new(Mutex::new(Vec::new()));
        let answer = Answer { version, headers: Arc::clone(&headers) };
        let server = tonic::transport::Server::builder().add_service(answer);
        tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
        Self { port, headers }
    }
}

#[derive(Clone)]
struct Answer {
    version: &'static str,
    headers: Arc<Mutex<Vec<String>>>,
}

impl NamedService for Answer {
    const NAME: &'static str = "ballista.protobuf.SchedulerGrpc";
}

impl Service<http::Request<Body>> for Answer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let tenant = request.headers().get("x-tenant").map(|value| value.to_str().unwrap().to_owned());
        self.headers.lock().unwrap().extend(tenant);
        let queued = ExecuteQuerySuccessResult { job_id: "abc".to_owned(), session_id: "s".to_owned() };
        let message =
            ExecuteQueryResult { result: Some(execute_query_result::Result::Success(queued)), ..Default::default() }
                .encode_to_vec();
        let mut frame = vec![0];
        frame.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        frame.extend(message);
        let response = http::Response::builder()
            .header("content-type", "application/grpc")
            .header("grpc-status", "0")
            .header("ballista-version", self.version)
            .body(Body::new(Full::from(frame)))
            .unwrap();
        Box::pin(std::future::ready(Ok(response)))
    }
}

const QUICK: &str = "SELECT count(*) FROM nation";
/// Years of work in one task.
const ENDLESS: &str = "SELECT count(*) FROM orders a CROSS JOIN orders b CROSS JOIN orders c \
                       WHERE a.o_totalprice + b.o_totalprice > c.o_totalprice";
const SOON: Duration = Duration::from_secs(20);
