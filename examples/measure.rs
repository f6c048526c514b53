//! Measures a running `portcullis demo` with the Rust client: latencies and rows per second, through TLS.
//!
//! `cargo run --release --example measure -- DEMO_DIR URL [REPETITIONS]`, with the directory and the address that the
//! demo printed. Prints one line a figure. It is no test and asserts nothing.

#![expect(clippy::print_stdout, reason = "a measuring program prints its figures")]

use std::error::Error;
use std::time::Duration;

use arrow_flight::sql::client::FlightSqlServiceClient;
use futures::TryStreamExt;
use tokio::time::Instant;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

type Client = FlightSqlServiceClient<Channel>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(dir), Some(url)) = (arguments.next(), arguments.next()) else {
        return Err("usage: measure DEMO_DIR URL [REPETITIONS]".into());
    };
    let repetitions: usize = arguments.next().map_or(Ok(200), |text| text.parse())?;
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(std::fs::read(format!("{dir}/ca.pem"))?));
    let channel = Endpoint::from_shared(url.replace("grpc+tls://", "https://"))?
        .tls_config(tls)?
        .tcp_nodelay(true)
        .initial_stream_window_size(16 * 1024 * 1024)
        .initial_connection_window_size(16 * 1024 * 1024)
        .connect()
        .await?;
    let mut client = FlightSqlServiceClient::new(channel);
    client.set_token(std::fs::read_to_string(format!("{dir}/token"))?.trim().to_owned());

    for sql in ["SELECT 1", "SELECT * FROM nation"] {
        rows(&mut client, sql).await?;
        let mut times = Vec::with_capacity(repetitions);
        for _ in 0..repetitions {
            let start = Instant::now();
            rows(&mut client, sql).await?;
            times.push(start.elapsed());
        }
        times.sort();
        println!("{sql}: p50 {:?}, p99 {:?} of {repetitions}", percentile(&times, 50), percentile(&times, 99));
    }
    for _ in 0..3 {
        let start = Instant::now();
        let count = rows(&mut client, "SELECT * FROM lineitem").await?;
        let seconds = start.elapsed().as_secs_f64();
        let rate = f64::from(u32::try_from(count)?) / seconds;
        println!("SELECT * FROM lineitem: {count} rows in {seconds:.2} s, {rate:.0} rows/s");
    }
    Ok(())
}

async fn rows(client: &mut Client, sql: &str) -> Result<usize, Box<dyn Error>> {
    let info = client.execute(sql.to_owned(), None).await?;
    let mut count = 0_usize;
    for endpoint in info.endpoint {
        let ticket = endpoint.ticket.ok_or("an endpoint without ticket")?;
        let mut batches = client.do_get(ticket).await?;
        while let Some(batch) = batches.try_next().await? {
            count = count.saturating_add(batch.num_rows());
        }
    }
    Ok(count)
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let at = sorted.len().saturating_mul(percent) / 100;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}
