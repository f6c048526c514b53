//! The smallest Rust client: one statement over TLS, its rows as an Arrow IPC stream on standard output.
//!
//! `query CA_FILE TOKEN_FILE URL < STATEMENT`. The client tests compare what it reads with another engine.

use std::error::Error;
use std::io::Read as _;

use arrow::ipc::writer::StreamWriter;
use arrow_flight::sql::client::FlightSqlServiceClient;
use futures::TryStreamExt;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [ca, token, url] = arguments.as_slice() else {
        return Err("usage: query CA_FILE TOKEN_FILE URL < STATEMENT".into());
    };
    let mut sql = String::new();
    std::io::stdin().read_to_string(&mut sql)?;

    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(std::fs::read(ca)?));
    let channel = Endpoint::from_shared(url.replace("grpc+tls://", "https://"))?.tls_config(tls)?.connect().await?;
    let mut client = FlightSqlServiceClient::new(channel);
    client.set_token(std::fs::read_to_string(token)?.trim().to_owned());

    let info = client.execute(sql, None).await?;
    let schema = info.clone().try_decode_schema()?;
    let mut out = StreamWriter::try_new(std::io::stdout().lock(), &schema)?;
    for endpoint in info.endpoint {
        let ticket = endpoint.ticket.ok_or("an endpoint without ticket")?;
        let mut batches = client.do_get(ticket).await?;
        while let Some(batch) = batches.try_next().await? {
            out.write(&batch)?;
        }
    }
    out.finish()?;
    Ok(())
}
