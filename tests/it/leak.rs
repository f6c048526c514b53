//! Everything that a client receives in a run, searched for what is the cluster's affair.
//!
//! Hosts, ports, paths and job ids must not be found, neither in the clear nor behind base64.

use std::collections::BTreeSet;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use bytes::Bytes;

use crate::gate::{Material, RPCS};
use crate::schema::{QUERIES, metadata};
use crate::support::client::{only_ticket, prepared};
use crate::support::{Cluster, Gate, Settings, Size, directory, on_runtime};

#[test]
fn nothing_of_the_cluster_reaches_a_client() {
    on_runtime(async {
        let cluster = Cluster::start(Size { executors: 2, vcores: 2 }).await;
        let gate = Gate::start(Settings::over(&cluster)).await;
        let client = gate.signed_in("alice").await;
        client
            .update("CREATE VIEW v AS SELECT n_name AS name, count(*) AS n FROM nation GROUP BY n_name")
            .await
            .unwrap();
        let mut tickets = Vec::new();
        let mut jobs = BTreeSet::new();
        for sql in QUERIES {
            let ticket = client.ticket(sql).await.unwrap_or_else(|status| panic!("{sql}: {status}"));
            tickets.push(ticket.ticket.to_vec());
            assert!(client.read(ticket).await.is_ok(), "{sql}");
            let handle = client.prepare(sql).await.unwrap().prepared_statement_handle;
            drop(client.schema(prepared(handle)).await);
            jobs.extend(job_ids(cluster.embedded.work_dir()));
        }
        for command in metadata() {
            let info = client.info_of(command).await.unwrap();
            assert!(client.read(only_ticket(&info)).await.is_ok());
        }
        for sql in CURIOUS {
            drop(client.rows(sql).await);
            drop(client.update(sql).await);
            drop(client.prepare(sql).await);
        }
        let material = Material::of(&client).await;
        for rpc in RPCS {
            drop(rpc.call(&client, &material).await);
        }
        for action in ["GetSessionOptions", "SetSessionOptions", "CancelFlightInfo", "IO_BLOCK_TRANSPORT"] {
            drop(client.action(action, Bytes::new()).await);
        }
        // What fails on the cluster is told by the cluster.
        let lost = client.ticket("SELECT n_name FROM nation").await.unwrap();
        let ports = listening();
        cluster.embedded.danger_kill_executors();
        assert!(client.read(lost).await.is_err());
        drop(client.rows("SELECT count(*) FROM nation").await);
        client.action("CloseSession", Bytes::new()).await.unwrap();

        let tape = client.tape();
        let text = tape.text();
        assert!(
            text.contains("ALGERIA") && text.contains("grpc-status: 3") && text.len() > 100_000,
            "{} bytes",
            text.len()
        );
        assert!(jobs.len() > 5, "job ids were found: {jobs:?}");
        let own = gate.running.address().port();
        let mut needles: Vec<String> = jobs.into_iter().collect();
        needles.extend(ports.into_iter().filter(|port| *port != own).map(|port| format!(":{port}")));
        needles.extend(
            ["127.0.0.1", "localhost", "0.0.0.0", "ballista", "executor-", "scheduler", "shuffle", ".parquet"]
                .map(str::to_owned),
        );
        needles.extend(["/proc/", "/src/", "file://", ".rs:", "backtrace"].map(str::to_owned));
        needles.extend([directory(), Path::new(env!("CARGO_MANIFEST_DIR"))].map(|path| path.display().to_string()));
        needles.push(std::env::temp_dir().join("").display().to_string());
        needles.push(cluster.embedded.work_dir().file_name().unwrap().to_string_lossy().into_owned());

        let mut haystacks = vec![text.clone()];
        haystacks.extend(tickets.iter().map(|ticket| String::from_utf8_lossy(ticket).into_owned()));
        haystacks.extend(decoded(&text));
        for hay in haystacks {
            let hay = hay.to_ascii_lowercase();
            for needle in &needles {
                if let Some(at) = hay.find(&needle.to_ascii_lowercase()) {
                    let around: String =
                        hay.chars().skip(hay.split_at(at).0.chars().count().saturating_sub(200)).take(400).collect();
                    panic!("`{needle}` reached the client: …{around}…");
                }
            }
        }
        drop(gate);
        cluster.embedded.stop().await;
    });
}

/// What runs of base64 letters stand for.
fn decoded(text: &str) -> Vec<String> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || "+/-_".contains(c)))
        .filter(|run| run.len() >= 16)
        .flat_map(|run| {
            let even = run.split_at(run.len() - usize::from(run.len() % 4 == 1)).0;
            [STANDARD_NO_PAD.decode(even), URL_SAFE_NO_PAD.decode(even)]
        })
        .filter_map(|bytes| bytes.ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
        .collect()
}

/// Executors make one folder for each job.
fn job_ids(work_dir: &Path) -> Vec<String> {
    let folders = |path: &Path| -> Vec<_> {
        std::fs::read_dir(path)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.is_dir())
            .collect()
    };
    let jobs = folders(work_dir).iter().flat_map(|executor| folders(executor)).collect::<Vec<_>>();
    let names = jobs.iter().filter_map(|job| job.file_name()).map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name.len() >= 6 && !name.contains('.')).collect()
}

/// The ports on which this process listens.
fn listening() -> Vec<u16> {
    let sockets: BTreeSet<String> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter_map(|link| {
            link.to_str()
                .and_then(|link| link.strip_prefix("socket:["))
                .map(|link| link.trim_end_matches(']').to_owned())
        })
        .collect();
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let ports: Vec<u16> = table
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|columns| columns[3] == "0A" && sockets.contains(columns[9]))
        .filter_map(|columns| u16::from_str_radix(columns[1].rsplit_once(':')?.1, 16).ok())
        .collect();
    assert!(ports.len() >= 6, "scheduler, two executors and a gate listen: {ports:?}");
    ports
}

/// Statements of somebody who wants to know where they are.
const CURIOUS: &[&str] = &[
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM information_schema.columns",
    "SELECT * FROM information_schema.views",
    "SELECT * FROM information_schema.df_settings",
    "SELECT * FROM information_schema.routines",
    "SELECT * FROM information_schema.parameters",
    "SHOW ALL",
    "SHOW VERBOSE ALL",
    "SHOW FUNCTIONS",
    "SHOW CREATE TABLE nation",
    "SHOW CREATE TABLE v",
    "SHOW datafusion.runtime.temp_directory",
    "SELECT version()",
    "EXPLAIN SELECT * FROM nation JOIN region ON n_regionkey = r_regionkey",
    "EXPLAIN VERBOSE SELECT * FROM nation",
    "EXPLAIN FORMAT TREE SELECT * FROM nation",
    "EXPLAIN ANALYZE SELECT * FROM nation",
    "SELECT * FROM nowhere",
    "SELECT nothing FROM nation",
    "SELECT * FROM '/etc/passwd'",
    "SELECT CAST(n_name AS INT) FROM nation",
    "SELECT CAST('x' AS INT)",
    "SELECT 1 / (n_nationkey - n_nationkey) FROM nation",
    "SELECT n_nationkey + 9223372036854775807 FROM nation",
    "SELECT to_timestamp(n_name) FROM nation",
    "SELECT repeat('x', 300000000) FROM nation",
    "SELECT arrow_cast(n_name, 'Nothing') FROM nation",
    "SELECT regexp_like(n_name, '(') FROM nation",
    "SELECT substr(n_name, 0, -1) FROM nation",
    "SELECT * FROM parquet_metadata('x')",
    "SELECT input_file_name() FROM nation",
    "SELECT file_row_index() FROM nation",
    "CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '/etc/passwd'",
    "DROP TABLE nation",
    "SET datafusion.runtime.temp_directory = '/x'",
];
