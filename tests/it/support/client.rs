//! Clients: the crate's Flight client over TLS, on a line that adds credentials and writes down what comes back.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult,
    Any, CommandPreparedStatementQuery, CommandStatementQuery, CommandStatementUpdate, DoPutUpdateResult,
    ProstMessageExt,
};
use arrow_flight::{Action, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, Ticket};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, HeaderValue};
use http_body::{Frame, SizeHint};
use portcullis_auth::BoxFuture;
use prost::Message;
use tonic::body::Body;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Status};
use tower::Service;

use super::PKI;
use super::login::Login;

/// One connection with one credential.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    line: Line,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr, login: &Login) -> Self {
        Self::connect_to(address, login, &PKI.ca)
    }

    /// With another CA than this run's own.
    pub(crate) fn connect_to(address: SocketAddr, login: &Login, ca: &str) -> Self {
        Self::connect_by(address, login, tls(ca))
    }

    /// With its own idea of TLS, such as a certificate of the client.
    pub(crate) fn connect_by(address: SocketAddr, login: &Login, tls: ClientTlsConfig) -> Self {
        Self { line: Line::new(channel(address, tls), login) }
    }

    /// The same connection with another credential.
    pub(crate) fn with(&self, login: &Login) -> Self {
        Self { line: Line::new(self.line.channel.clone(), login) }
    }

    /// The same connection and credential, and these `cookie` headers.
    pub(crate) fn with_cookies(&self, cookies: &[&str]) -> Self {
        let cookies = cookies.iter().map(|cookie| HeaderValue::from_str(cookie).unwrap()).collect();
        Self { line: Line { cookies, tape: Arc::default(), ..self.line.clone() } }
    }

    /// The Flight client below.
    pub(crate) fn flight(&self) -> FlightServiceClient<Line> {
        FlightServiceClient::new(self.line.clone())
    }

    /// The Flight SQL client of `arrow-flight`, as users have it.
    pub(crate) fn sql(&self) -> FlightSqlServiceClient<Line> {
        FlightSqlServiceClient::new(self.line.clone())
    }

    pub(crate) fn line(&self) -> Line {
        self.line.clone()
    }

    /// Everything that came over this line so far.
    pub(crate) fn tape(&self) -> Tape {
        self.line.tape.lock().unwrap().clone()
    }

    /// Signs in, and takes the token from the initial headers.
    pub(crate) async fn handshake(&self) -> Result<String, Status> {
        let response = self.flight().handshake(futures::stream::iter([HandshakeRequest::default()])).await?;
        let header = response.metadata().get("authorization").map(|value| value.to_str().unwrap().to_owned());
        let _: Vec<_> = response.into_inner().try_collect().await?;
        Ok(header.and_then(|header| header.strip_prefix("Bearer ").map(str::to_owned)).unwrap_or_default())
    }

    pub(crate) async fn info_of(&self, command: Any) -> Result<FlightInfo, Status> {
        let descriptor = FlightDescriptor::new_cmd(command.encode_to_vec());
        self.flight().get_flight_info(descriptor).await.map(tonic::Response::into_inner)
    }

    pub(crate) async fn info(&self, sql: &str) -> Result<FlightInfo, Status> {
        self.info_of(statement(sql)).await
    }

    /// Runs a statement and gives its ticket.
    pub(crate) async fn ticket(&self, sql: &str) -> Result<Ticket, Status> {
        self.info(sql).await.map(|info| only_ticket(&info))
    }

    pub(crate) async fn schema(&self, command: Any) -> Result<Schema, Status> {
        let descriptor = FlightDescriptor::new_cmd(command.encode_to_vec());
        let result = self.flight().get_schema(descriptor).await?.into_inner();
        Ok(Schema::try_from(&result).unwrap())
    }

    pub(crate) async fn messages(&self, ticket: Ticket) -> Result<Vec<FlightData>, Status> {
        self.flight().do_get(ticket).await?.into_inner().try_collect().await
    }

    pub(crate) async fn read(&self, ticket: Ticket) -> Result<Vec<RecordBatch>, Status> {
        self.read_with_schema(ticket).await.map(|(_, batches)| batches)
    }

    pub(crate) async fn read_with_schema(&self, ticket: Ticket) -> Result<(Schema, Vec<RecordBatch>), Status> {
        let messages = self.messages(ticket).await?;
        let schema = Schema::try_from(messages.first().unwrap()).unwrap();
        let messages = futures::stream::iter(messages).map(Ok::<_, FlightError>);
        let batches = FlightRecordBatchStream::new_from_flight_data(messages.boxed()).try_collect().await.unwrap();
        Ok((schema, batches))
    }

    /// Runs a statement and reads its rows.
    pub(crate) async fn rows(&self, sql: &str) -> Result<Vec<RecordBatch>, Status> {
        let ticket = self.ticket(sql).await?;
        self.read(ticket).await
    }

    /// All values of a statement as text, row by row.
    pub(crate) async fn text(&self, sql: &str) -> Result<Vec<String>, Status> {
        Ok(as_text(&self.rows(sql).await?))
    }

    pub(crate) async fn update(&self, sql: &str) -> Result<i64, Status> {
        let command = CommandStatementUpdate { query: sql.to_owned(), transaction_id: None };
        self.put(command.as_any()).await
    }

    pub(crate) async fn put(&self, command: Any) -> Result<i64, Status> {
        let descriptor = FlightDescriptor::new_cmd(command.encode_to_vec());
        let first = FlightData::new().with_descriptor(descriptor);
        let results: Vec<_> =
            self.flight().do_put(futures::stream::iter([first])).await?.into_inner().try_collect().await?;
        Ok(DoPutUpdateResult::decode(results[0].app_metadata.clone()).unwrap().record_count)
    }

    pub(crate) async fn action(&self, name: &str, body: impl Into<Bytes>) -> Result<Vec<Bytes>, Status> {
        let results = self.flight().do_action(Action::new(name, body)).await?.into_inner();
        results.map_ok(|result| result.body).try_collect().await
    }

    pub(crate) async fn prepare(&self, sql: &str) -> Result<ActionCreatePreparedStatementResult, Status> {
        let request = ActionCreatePreparedStatementRequest { query: sql.to_owned(), transaction_id: None };
        let bodies = self.action("CreatePreparedStatement", request.as_any().encode_to_vec()).await?;
        Ok(Any::decode(bodies[0].clone()).unwrap().unpack().unwrap().unwrap())
    }

    pub(crate) async fn close_prepared(&self, handle: Bytes) -> Result<Vec<Bytes>, Status> {
        let request = ActionClosePreparedStatementRequest { prepared_statement_handle: handle };
        self.action("ClosePreparedStatement", request.as_any().encode_to_vec()).await
    }
}

/// A query as the Flight SQL command.
pub(crate) fn statement(sql: &str) -> Any {
    CommandStatementQuery { query: sql.to_owned(), transaction_id: None }.as_any()
}

/// A prepared query as the Flight SQL command.
pub(crate) fn prepared(handle: Bytes) -> Any {
    CommandPreparedStatementQuery { prepared_statement_handle: handle }.as_any()
}

/// The one ticket of a result.
pub(crate) fn only_ticket(info: &FlightInfo) -> Ticket {
    assert_eq!(info.endpoint.len(), 1, "one endpoint");
    info.endpoint[0].ticket.clone().unwrap()
}

/// Cells of a row are joined with `|`.
pub(crate) fn as_text(batches: &[RecordBatch]) -> Vec<String> {
    let mut lines = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let cells =
                batch.columns().iter().map(|column| arrow::util::display::array_value_to_string(column, row).unwrap());
            lines.push(cells.collect::<Vec<_>>().join("|"));
        }
    }
    lines
}

/// What became of a call; `Ok` is a code too.
pub(crate) fn code<T>(result: &Result<T, Status>) -> Code {
    result.as_ref().err().map_or(Code::Ok, Status::code)
}

/// TLS with a server of this CA.
pub(crate) fn tls(ca: &str) -> ClientTlsConfig {
    ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)).domain_name("localhost")
}

fn channel(address: SocketAddr, tls: ClientTlsConfig) -> Channel {
    Endpoint::from_shared(format!("https://{address}")).unwrap().tls_config(tls).unwrap().connect_lazy()
}

/// What came over a line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tape {
    pub(crate) headers: Vec<HeaderMap>,
    pub(crate) trailers: Vec<HeaderMap>,
    pub(crate) data: Vec<u8>,
}

impl Tape {
    /// Everything as one text, in the order of kinds.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for map in self.headers.iter().chain(&self.trailers) {
            for (name, value) in map {
                text += &format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()));
            }
        }
        text + &String::from_utf8_lossy(&self.data)
    }

    /// The headers of all responses without the date, each form once.
    pub(crate) fn distinct_headers(&self) -> HashSet<String> {
        let one = |map: &HeaderMap| {
            let mut lines: Vec<_> = map
                .iter()
                .filter(|(name, _)| *name != http::header::DATE)
                .map(|(name, value)| format!("{name}: {value:?}"))
                .collect();
            lines.sort();
            lines.join("\n")
        };
        self.headers.iter().map(one).collect()
    }
}

/// A channel that adds `authorization` headers and keeps a [`Tape`].
#[derive(Clone, Debug)]
pub(crate) struct Line {
    channel: Channel,
    authorization: Vec<HeaderValue>,
    cookies: Vec<HeaderValue>,
    tape: Arc<Mutex<Tape>>,
}

impl Line {
    fn new(channel: Channel, login: &Login) -> Self {
        Self { channel, authorization: login.headers(), cookies: Vec::new(), tape: Arc::default() }
    }
}

impl Service<http::Request<Body>> for Line {
    type Response = http::Response<Body>;
    type Error = tonic::transport::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<http::Request<Body>>::poll_ready(&mut self.channel, cx)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        for value in &self.authorization {
            request.headers_mut().append(AUTHORIZATION, value.clone());
        }
        for value in &self.cookies {
            request.headers_mut().append(COOKIE, value.clone());
        }
        let tape = Arc::clone(&self.tape);
        let answer = self.channel.call(request);
        Box::pin(async move {
            let response = answer.await?;
            tape.lock().unwrap().headers.push(response.headers().clone());
            Ok(response.map(|body| Body::new(Taped { body, tape })))
        })
    }
}

struct Taped {
    body: Body,
    tape: Arc<Mutex<Tape>>,
}

impl http_body::Body for Taped {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            let mut tape = self.tape.lock().unwrap();
            if let Some(data) = frame.data_ref() {
                tape.data.extend_from_slice(data);
            }
            if let Some(trailers) = frame.trailers_ref() {
                tape.trailers.push(trailers.clone());
            }
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
