//! The small examples do what they say, as processes of their own.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use arrow_flight::FlightDescriptor;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::{CommandStatementQuery, ProstMessageExt};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use portcullis_auth::{Clock, SystemClock};
use prost::Message;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};

use crate::support::login::KEYS;
use crate::support::{directory, on_runtime};

#[test]
fn a_header_that_the_proxy_signed_signs_in_and_no_other() {
    on_runtime(async {
        let folder = folder("signed");
        let file = folder.join("key");
        std::fs::write(&file, [7; 32]).unwrap();
        let example = Example::start("custom_authenticator", &[&file]).await;
        let until = SystemClock.now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 600;
        let signed = |key: u8, name: &str, until: u64| {
            let said = format!("{name};{until}");
            let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &[key; 32]), said.as_bytes());
            format!("{said};{}", BASE64_URL_SAFE_NO_PAD.encode(tag))
        };
        let good = signed(7, "alice", until);
        assert_eq!(example.ask("SELECT 1", &[("x-signed-user", &good)]).await, Code::Ok);
        for bad in [
            signed(8, "alice", until),
            signed(7, "alice", until - 601),
            good.replace("alice", "admin"),
            "alice".to_owned(),
            String::new(),
        ] {
            assert_eq!(example.ask("SELECT 1", &[("x-signed-user", &bad)]).await, Code::Unauthenticated, "{bad}");
        }
        let two = [("x-signed-user", good.as_str()), ("authorization", "Bearer x")];
        assert_eq!(example.ask("SELECT 1", &two).await, Code::Unauthenticated);
        assert_eq!(example.ask("SELECT 1", &[]).await, Code::Unauthenticated);
    });
}

#[test]
fn everybody_finds_notes_of_their_own_and_nobody_anothers() {
    on_runtime(async {
        let folder = folder("notes");
        std::fs::write(folder.join("alice.csv"), "note\nbuy milk\n").unwrap();
        let example = Example::start("custom_catalog", &[&keys(&folder), &folder]).await;
        let as_user = |user: &str| format!("Bearer {}", KEYS.of(user));
        let (alice, bob) = (as_user("alice"), as_user("bob"));
        assert_eq!(example.ask("SELECT note FROM notes", &[("authorization", &alice)]).await, Code::Ok);
        assert_eq!(example.ask("SELECT note FROM notes", &[("authorization", &bob)]).await, Code::InvalidArgument);
        assert_eq!(example.ask("SELECT 1", &[("authorization", &bob)]).await, Code::Ok);
    });
}

#[test]
fn a_scheduler_mounts_the_gate_on_a_server_of_its_own() {
    on_runtime(async {
        let folder = folder("embedded");
        let configuration = folder.join("portcullis.toml");
        let keys = keys(&folder);
        std::fs::write(
            &configuration,
            format!(
                "[server]\nlisten = \"127.0.0.1:0\"\ndanger_plaintext = true\n\n[cluster]\nmode = \"embedded\"\n\n\
                 [[auth]]\nscheme = \"api-key\"\nkeys = {:?}\n",
                keys.display().to_string()
            ),
        )
        .unwrap();
        let executors = PathBuf::from("127.0.0.1:50051");
        let example = Example::start("embed_in_scheduler", &[&configuration, &executors]).await;
        let alice = format!("Bearer {}", KEYS.of("alice"));
        assert_eq!(example.ask("SELECT 1", &[("authorization", &alice)]).await, Code::Ok);
        assert_eq!(example.ask("SELECT 1", &[]).await, Code::Unauthenticated);
    });
}

/// A running example. It ends with the standard input that is held here.
struct Example {
    process: Child,
    client: FlightServiceClient<Channel>,
}

impl Example {
    async fn start(name: &str, arguments: &[&Path]) -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_portcullis")).parent().unwrap().join("examples").join(name);
        let mut process = Command::new(&program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let out = BufReader::new(process.stdout.take().unwrap());
        let said = tokio::task::spawn_blocking(move || {
            out.lines().map_while(Result::ok).find(|line| line.contains("listening"))
        });
        let said = tokio::time::timeout(Duration::from_secs(60), said).await.unwrap().unwrap().unwrap();
        let address = said.split("address=").nth(1).unwrap().split(' ').next().unwrap();
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        let client = FlightServiceClient::new(channel);
        Self { process, client }
    }

    /// Runs a statement with these headers, and reads its rows.
    async fn ask(&self, sql: &str, headers: &[(&'static str, &str)]) -> Code {
        let mut client = self.client.clone();
        let query = CommandStatementQuery { query: sql.to_owned(), transaction_id: None };
        let descriptor = FlightDescriptor::new_cmd(query.as_any().encode_to_vec());
        let info = match client.get_flight_info(with(headers, descriptor)).await {
            Ok(info) => info.into_inner(),
            Err(status) => return status.code(),
        };
        let ticket = info.endpoint[0].ticket.clone().unwrap();
        let mut rows = match client.do_get(with(headers, ticket)).await {
            Ok(rows) => rows.into_inner(),
            Err(status) => return status.code(),
        };
        loop {
            match rows.message().await {
                Ok(Some(_)) => (),
                Ok(None) => return Code::Ok,
                Err(status) => return status.code(),
            }
        }
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn with<T>(headers: &[(&'static str, &str)], message: T) -> Request<T> {
    let mut request = Request::new(message);
    for (name, value) in headers {
        request.metadata_mut().insert(*name, value.parse().unwrap());
    }
    request
}

fn folder(name: &str) -> PathBuf {
    let folder = directory().join("examples").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn keys(folder: &Path) -> PathBuf {
    let file = folder.parent().unwrap().join("keys.toml");
    std::fs::write(&file, KEYS.text()).unwrap();
    file
}
