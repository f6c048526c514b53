//! The Rust lines that `demo` prints, to the letter but for white space, with its paths and its address as variables.
//!
//! `cli.rs` compares them with what a demo printed, and runs them against it.

/// What a user pastes.
#[expect(clippy::print_stdout, reason = "it prints what it read, as it does for the user")]
pub(crate) async fn pasted(ca: &str, token: &str, endpoint: &'static str) -> Result<(), Box<dyn std::error::Error>> {
    let tls = tonic::transport::ClientTlsConfig::new()
        .ca_certificate(tonic::transport::Certificate::from_pem(std::fs::read(ca)?));
    let channel = tonic::transport::Endpoint::from_static(endpoint).tls_config(tls)?.connect().await?;
    let mut client = arrow_flight::sql::client::FlightSqlServiceClient::new(channel);
    client.set_token(std::fs::read_to_string(token)?.trim().to_owned());
    let info = client.execute("SELECT n_name FROM nation ORDER BY 1".to_owned(), None).await?;
    let ticket = info.endpoint[0].ticket.clone().ok_or("no ticket")?;
    let batches: Vec<_> = futures::TryStreamExt::try_collect(client.do_get(ticket).await?).await?;
    println!("{batches:?}");
    Ok(())
}
