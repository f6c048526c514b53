//! Who gets in: nobody by another way than the one, and a refusal looks the same whatever its reason.
//!
//! What each call answers to each credential is in `matrix.rs`. Must not know a scheme's own rules.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::time::Duration;

use arrow_flight::sql::{CommandStatementUpdate, ProstMessageExt};
use arrow_flight::{Action, Criteria, Empty, FlightData, FlightDescriptor, HandshakeRequest, Ticket};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::TryStreamExt;
use prost::Message;
use tonic::body::Body;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::ServiceExt;

use crate::support::client::{Client, prepared, statement};
use crate::support::login::{KEYS, LATE, Login};
use crate::support::{Gate, Settings, on_runtime};

/// The ten RPCs of Flight.
pub(crate) const RPCS: &[Rpc] = &[
    Rpc::DoAction,
    Rpc::DoExchange,
    Rpc::DoGet,
    Rpc::DoPut,
    Rpc::GetFlightInfo,
    Rpc::GetSchema,
    Rpc::Handshake,
    Rpc::ListActions,
    Rpc::ListFlights,
    Rpc::PollFlightInfo,
];

#[derive(Clone, Copy, Debug)]
pub(crate) enum Rpc {
    DoAction,
    DoExchange,
    DoGet,
    DoPut,
    GetFlightInfo,
    GetSchema,
    Handshake,
    ListActions,
    ListFlights,
    PollFlightInfo,
}

/// What a call needs that the gate made before, and for whom it made it.
#[derive(Clone)]
pub(crate) struct Material {
    pub(crate) ticket: Ticket,
    pub(crate) handle: Bytes,
}

impl Material {
    pub(crate) async fn of(client: &Client) -> Self {
        Self {
            ticket: client.ticket("SELECT 1").await.unwrap(),
            handle: client.prepare("SELECT 1").await.unwrap().prepared_statement_handle,
        }
    }
}

impl Rpc {
    pub(crate) fn name(self) -> String {
        format!("{self:?}")
    }

    /// Makes the call and reads the answer to its end.
    pub(crate) async fn call(self, client: &Client, material: &Material) -> Result<(), Status> {
        let mut flight = client.flight();
        let query = || FlightDescriptor::new_cmd(prepared(material.handle.clone()).encode_to_vec());
        match self {
            Self::DoAction => {
                let request = arrow_flight::sql::ActionCreatePreparedStatementRequest {
                    query: "SELECT 1".to_owned(),
                    transaction_id: None,
                };
                let action = Action::new("CreatePreparedStatement", request.as_any().encode_to_vec());
                flight.do_action(action).await?.into_inner().try_for_each(|_| async { Ok(()) }).await
            }
            Self::DoExchange => {
                let first = FlightData::new().with_descriptor(query());
                flight
                    .do_exchange(futures::stream::iter([first]))
                    .await?
                    .into_inner()
                    .try_for_each(|_| async { Ok(()) })
                    .await
            }
            Self::DoGet => client.messages(material.ticket.clone()).await.map(drop),
            Self::DoPut => {
                let query = "SET datafusion.execution.batch_size = 1024".to_owned();
                client.put(CommandStatementUpdate { query, transaction_id: None }.as_any()).await.map(drop)
            }
            Self::GetFlightInfo => flight.get_flight_info(query()).await.map(drop),
            Self::GetSchema => flight.get_schema(query()).await.map(drop),
            Self::Handshake => {
                let messages = futures::stream::iter([HandshakeRequest::default()]);
                flight.handshake(messages).await?.into_inner().try_for_each(|_| async { Ok(()) }).await
            }
            Self::ListActions => {
                flight.list_actions(Empty {}).await?.into_inner().try_for_each(|_| async { Ok(()) }).await
            }
            Self::ListFlights => {
                flight.list_flights(Criteria::default()).await?.into_inner().try_for_each(|_| async { Ok(()) }).await
            }
            Self::PollFlightInfo => flight.poll_flight_info(query()).await.map(drop),
        }
    }
}

#[test]
fn all_refusals_are_the_same_to_the_byte() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let alice = Material::of(&gate.client(&Login::key("alice"))).await;
        let mut forms = HashSet::new();
        for (_, login) in refused_logins(&gate).await {
            let client = gate.client(&login);
            for rpc in RPCS {
                assert!(rpc.call(&client, &alice).await.is_err());
            }
            let tape = client.tape();
            assert_eq!((tape.headers.len(), tape.trailers.len(), tape.data.len()), (RPCS.len(), 0, 0), "headers alone");
            forms.extend(tape.distinct_headers());
        }
        assert_eq!(forms.len(), 1, "{forms:#?}");
        let form = forms.into_iter().next().unwrap();
        assert!(form.contains("www-authenticate: \"Bearer realm=\\\"portcullis\\\"\""), "{form}");
        assert!(!form.contains("error="), "{form}");
    });
}

#[test]
fn the_scheme_word_may_be_written_in_any_case() {
    on_runtime(async {
        let gate = Gate::shared().await;
        for word in ["Bearer", "bearer", "BEARER"] {
            let login = Login::Headers(vec![format!("{word} {}", KEYS.of("alice")).into_bytes()]);
            assert_eq!(gate.client(&login).text("SELECT 1").await.unwrap(), ["1"], "{word}");
        }
    });
}

#[test]
fn other_places_for_a_credential_do_not_count() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::Nothing);
        assert_eq!(gate.client(&Login::key("alice")).text("SELECT 1").await.unwrap(), ["1"]);
        let key = KEYS.of("alice");
        for (name, value) in [
            ("cookie", format!("authorization=Bearer {key}")),
            ("x-api-key", key.to_owned()),
            ("x-user", "alice".to_owned()),
            ("x-forwarded-client-cert", "By=spiffe://x;Subject=\"CN=alice\"".to_owned()),
            ("proxy-authorization", format!("Bearer {key}")),
            ("grpc-metadata-authorization", format!("Bearer {key}")),
        ] {
            let mut request = tonic::Request::new(Empty {});
            request.metadata_mut().insert(name, value.parse().unwrap());
            let refused = client.flight().list_actions(request).await;
            assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated, "{name}");
        }
        let path = format!("/arrow.flight.protocol.FlightService/ListActions?access_token={key}");
        assert_eq!(raw(&client, &path).await, "16");
    });
}

#[test]
fn a_path_that_nobody_serves_is_refused_to_strangers_and_unimplemented_to_friends() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let (friend, stranger) = (gate.client(&Login::key("alice")), gate.client(&Login::Nothing));
        for path in [
            "/nothing.Here/AtAll",
            "/",
            "/arrow.flight.protocol.FlightService/DoGet/",
            "/arrow.flight.protocol.FlightService/%44oGet",
            "/arrow.flight.protocol.FlightService/doget",
            "//arrow.flight.protocol.FlightService/DoGet",
            "/grpc.health.v1.HealthX/Check",
            "/ballista.protobuf.SchedulerGrpc/ExecuteQuery",
        ] {
            assert_eq!(raw(&friend, path).await, "12", "{path}");
            assert_eq!(raw(&stranger, path).await, "16", "{path}");
        }
        // The service that answers without a credential does nothing but tell health.
        assert_eq!(
            raw(&stranger, "/grpc.health.v1.Health/../arrow.flight.protocol.FlightService/ListActions").await,
            "12"
        );
    });
}

#[test]
fn health_needs_no_credential() {
    on_runtime(async {
        let gate = Gate::shared().await;
        for login in [Login::Nothing, Login::Bearer("pk1.wrong".to_owned())] {
            let mut health = HealthClient::new(gate.client(&login).line());
            for service in ["", "arrow.flight.protocol.FlightService"] {
                let answer = health.check(HealthCheckRequest { service: service.to_owned() }).await.unwrap();
                assert_eq!(answer.into_inner().status, 1, "serving");
            }
        }
    });
}

#[test]
fn list_actions_tells_exactly_what_works() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        let listed: Vec<_> =
            client.flight().list_actions(Empty {}).await.unwrap().into_inner().try_collect().await.unwrap();
        let listed: BTreeSet<String> = listed.into_iter().map(|action| action.r#type).collect();
        let specified = [
            "BeginSavepoint",
            "BeginTransaction",
            "CancelFlightInfo",
            "CancelQuery",
            "ClosePreparedStatement",
            "CloseSession",
            "CreatePreparedStatement",
            "CreatePreparedSubstraitPlan",
            "EndSavepoint",
            "EndTransaction",
            "GetSessionOptions",
            "RenewFlightEndpoint",
            "SetSessionOptions",
            "IO_BLOCK_TRANSPORT",
        ];
        for action in specified {
            let answer = client.action(action, Bytes::new()).await;
            let works = answer.err().is_none_or(|status| status.code() != Code::Unimplemented);
            assert_eq!(listed.contains(action), works, "{action}");
        }
    });
}

/// Compares with the file of this name in `tests/expect`, or writes it when a blessing is asked for.
pub(crate) fn compare(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/expect").join(name);
    if std::env::var_os("PORTCULLIS_BLESS").is_some() {
        std::fs::write(&file, text).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&file).unwrap();
    for (line, (expected, found)) in expected.lines().zip(text.lines()).enumerate() {
        assert_eq!(expected, found, "{name}, line {}", line + 1);
    }
    assert_eq!(expected.lines().count(), text.lines().count(), "{name}");
}

/// Every login that must not be let in, by what is wrong with it.
async fn refused_logins(gate: &Gate) -> Vec<(&'static str, Login)> {
    let (good, other) = (KEYS.of("alice"), KEYS.of("bob"));
    let header = |text: &str| Login::Headers(vec![text.as_bytes().to_vec()]);
    let closed = session(gate, "bob").await;
    gate.client(&closed).action("CloseSession", Bytes::new()).await.unwrap();
    let revoked = session(gate, "carol").await;
    gate.client(&revoked).text("SELECT 1").await.unwrap();
    gate.pairs.revoke("carol");

    let (start, secret) = good.rsplit_once('.').unwrap();
    let (_, other_secret) = other.rsplit_once('.').unwrap();
    let live = gate.client(&Login::pair("alice")).handshake().await.unwrap();
    let basic = |pair: &[u8]| header(&format!("Basic {}", STANDARD.encode(pair)));
    vec![
        ("none", Login::Nothing),
        ("malformed: empty", header("")),
        ("malformed: no token", header("Bearer")),
        ("malformed: blank token", header("Bearer ")),
        ("malformed: two spaces", header(&format!("Bearer  {good}"))),
        ("malformed: tab", header(&format!("Bearer\t{good}"))),
        ("malformed: not ascii", Login::Headers(vec![[b"Bearer ".as_slice(), good.as_bytes(), b"\xff"].concat()])),
        ("malformed: other word", header(&format!("Token {good}"))),
        ("malformed: bare token", header(good)),
        ("malformed: too long", header(&format!("Bearer {}", "a".repeat(33 * 1024)))),
        (
            "malformed: two headers",
            Login::Headers([good, other].map(|key| format!("Bearer {key}").into_bytes()).to_vec()),
        ),
        (
            "malformed: good and garbage",
            Login::Headers(vec![format!("Bearer {good}").into_bytes(), b"Bearer x".to_vec()]),
        ),
        (
            "malformed: garbage and good",
            Login::Headers(vec![b"Bearer x".to_vec(), format!("Bearer {good}").into_bytes()]),
        ),
        ("malformed: joined by comma", header(&format!("Bearer {good}, Basic YWxpY2U6eA=="))),
        ("malformed: not base64", header("Basic !!!!")),
        ("malformed: no colon", basic(b"alice")),
        ("malformed: no user", basic(b":open:sesame:1")),
        ("malformed: nul", basic(b"alice\0:open:sesame:1")),
        ("malformed: not utf-8", basic(b"alice:\xff\xfe")),
        ("malformed: half padding", header("Basic YWxpY2U6b3BlbjpzZXNhbWU6MQ=")),
        ("malformed: api key", header("Bearer pk1.short")),
        ("malformed: session token", header("Bearer ps1.****")),
        ("wrong: no such key", header("Bearer pk1.AAAAAAAAAAAA.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")),
        ("wrong: another key's secret", header(&format!("Bearer {start}.{other_secret}"))),
        ("wrong: secret cut short", header(&format!("Bearer {start}.{}", secret.split_at(42).0))),
        ("wrong: nobody's token", header("Bearer eyJhbGciOiJub25lIn0.e30.")),
        ("wrong: password", Login::Basic("alice".to_owned(), "open".to_owned())),
        ("wrong: user", Login::Basic("mallory".to_owned(), "open:sesame:1".to_owned())),
        ("wrong: key as password", Login::Basic("alice".to_owned(), good.to_owned())),
        ("wrong: session token, changed", header(&format!("Bearer {}", changed(&live)))),
        ("wrong: session token, cut", header(&format!("Bearer {}", live.split_at(live.len() - 4).0))),
        ("expired api key", Login::key("expired")),
        ("expired basic", Login::Basic(LATE.0.to_owned(), LATE.1.to_owned())),
        ("closed session token", closed),
        ("revoked session token", revoked),
        ("revoked basic", Login::pair("carol")),
    ]
}

#[test]
fn an_expired_session_token_is_refused_like_any_other() {
    on_runtime(async {
        let mut settings = Settings::shared().await;
        settings.session.idle = Duration::from_secs(60);
        let gate = Gate::start(settings).await;
        let client = gate.client(&session(&gate, "alice").await);
        assert_eq!(client.text("SELECT 1").await.unwrap(), ["1"]);
        gate.clock.advance(Duration::from_secs(61));
        let stranger = gate.client(&Login::Nothing);
        let material = Material::of(&gate.client(&Login::key("alice"))).await;
        for rpc in RPCS {
            let (late, none) = (rpc.call(&client, &material).await, rpc.call(&stranger, &material).await);
            assert_eq!(late.unwrap_err().message(), none.unwrap_err().message());
        }
    });
}

async fn session(gate: &Gate, user: &str) -> Login {
    Login::Bearer(gate.client(&Login::pair(user)).handshake().await.unwrap())
}

/// The token with another character in its middle.
fn changed(token: &str) -> String {
    let middle = token.len() / 2;
    let flip = |(at, c)| if at == middle { if c == 'A' { 'B' } else { 'A' } } else { c };
    token.chars().enumerate().map(flip).collect()
}

/// The gRPC status of a call to any path, with an empty message.
async fn raw(client: &Client, path: &str) -> String {
    let request = http::Request::post(path)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(http_body_util::Full::new(Bytes::from_static(&[0; 5]))))
        .unwrap();
    let response = client.line().oneshot(request).await.unwrap();
    response.headers().get("grpc-status").map_or("none", |value| value.to_str().unwrap()).to_owned()
}

/// The command is there so that statements can be told from handles; both go the same way.
#[test]
fn a_statement_and_a_handle_are_judged_alike() {
    on_runtime(async {
        let gate = Gate::shared().await;
        let (friend, stranger) = (gate.client(&Login::key("alice")), gate.client(&Login::Nothing));
        let handle = friend.prepare("SELECT 1").await.unwrap().prepared_statement_handle;
        for command in [statement("SELECT 1"), prepared(handle)] {
            assert!(friend.info_of(command.clone()).await.is_ok());
            assert_eq!(stranger.info_of(command).await.unwrap_err().code(), Code::Unauthenticated);
        }
    });
}
