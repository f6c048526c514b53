//! Who may do what: every RPC, command and action with every kind of credential of every scheme, as a table.
//!
//! The table is checked in; `PORTCULLIS_BLESS=1` writes it anew, and what changed in it is then a diff to be looked at.
//! A call that exists and is not in it fails the last test. Must not look for reasons: a client sees none.

use std::collections::{BTreeMap, BTreeSet};

use arrow_flight::sql::{
    ActionBeginSavepointRequest, ActionBeginTransactionRequest, ActionCancelQueryRequest,
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest,
    ActionCreatePreparedSubstraitPlanRequest, ActionEndSavepointRequest, ActionEndTransactionRequest, Any, Command,
    CommandGetCatalogs, CommandGetCrossReference, CommandGetDbSchemas, CommandGetExportedKeys, CommandGetImportedKeys,
    CommandGetPrimaryKeys, CommandGetSqlInfo, CommandGetTableTypes, CommandGetTables, CommandGetXdbcTypeInfo,
    CommandPreparedStatementQuery, CommandPreparedStatementUpdate, CommandStatementIngest, CommandStatementQuery,
    CommandStatementSubstraitPlan, CommandStatementUpdate, ProstMessageExt, TicketStatementQuery,
};
use arrow_flight::{Action, Criteria, Empty, FlightData, FlightDescriptor, HandshakeRequest, Ticket};
use bytes::Bytes;
use futures::{Stream, TryStreamExt};
use prost::Message;
use serde_json::json;
use tonic::{Code, Status};

use crate::gate::{RPCS, compare};
use crate::support::client::{Client, only_ticket, prepared, statement};
use crate::support::login::{LATE, Login};
use crate::support::schemes::{Certified, REFUSAL, Shipped, b64, optional, password, uri, users_file};
use crate::support::{Gate, on_runtime};
use crate::whose::ways::one_row;

/// What calls need that the gate made before, and for whom it made it.
struct Material {
    query: Ticket,
    metadata: Ticket,
    select: Bytes,
    update: Bytes,
}

impl Material {
    async fn of(client: &Client) -> Self {
        Self {
            query: client.ticket("SELECT 1").await.unwrap(),
            metadata: only_ticket(&client.info_of(CommandGetCatalogs {}.as_any()).await.unwrap()),
            select: client.prepare("SELECT 1").await.unwrap().prepared_statement_handle,
            update: client.prepare(UPDATE).await.unwrap().prepared_statement_handle,
        }
    }
}

/// One row of the table: an RPC and what it carries.
struct Call {
    rpc: &'static str,
    what: &'static str,
    way: Way,
}

/// How a call is made.
enum Way {
    Act(fn(&Material) -> Vec<u8>),
    Exchange,
    Get(fn(&Material) -> Ticket),
    Handshake,
    Info(fn(&Material) -> Any),
    ListActions,
    ListFlights,
    Poll,
    Put(fn(&Material) -> Any),
    Schema,
}

impl Call {
    fn name(&self) -> String {
        format!("{} {}", self.rpc, self.what).trim_end().to_owned()
    }

    /// Makes the call and reads the answer to its end.
    async fn make(&self, client: &Client, material: &Material) -> Result<(), Status> {
        let mut flight = client.flight();
        let query = || FlightDescriptor::new_cmd(prepared(material.select.clone()).encode_to_vec());
        match &self.way {
            Way::Act(body) => all(flight.do_action(Action::new(self.what, body(material))).await?.into_inner()).await,
            Way::Exchange => {
                let first = FlightData::new().with_descriptor(query());
                all(flight.do_exchange(futures::stream::iter([first])).await?.into_inner()).await
            }
            Way::Get(ticket) => client.messages(ticket(material)).await.map(drop),
            Way::Handshake => {
                let messages = futures::stream::iter([HandshakeRequest::default()]);
                all(flight.handshake(messages).await?.into_inner()).await
            }
            Way::Info(command) => client.info_of(command(material)).await.map(drop),
            Way::ListActions => all(flight.list_actions(Empty {}).await?.into_inner()).await,
            Way::ListFlights => all(flight.list_flights(Criteria::default()).await?.into_inner()).await,
            Way::Poll => flight.poll_flight_info(query()).await.map(drop),
            Way::Put(command) => client.put(command(material)).await.map(drop),
            Way::Schema => flight.get_schema(query()).await.map(drop),
        }
    }
}

async fn all<T>(answers: impl Stream<Item = Result<T, Status>>) -> Result<(), Status> {
    answers.try_for_each(|_| async { Ok(()) }).await
}

/// The rows. The one that ends a session comes last.
fn calls() -> Vec<Call> {
    let rpc = |rpc, way| Call { rpc, what: "", way };
    let act = |what, body| Call { rpc: "DoAction", what, way: Way::Act(body) };
    let info = |what, command| Call { rpc: "GetFlightInfo", what, way: Way::Info(command) };
    let put = |what, command| Call { rpc: "DoPut", what, way: Way::Put(command) };
    let get = |what, ticket| Call { rpc: "DoGet", what, way: Way::Get(ticket) };
    vec![
        rpc("Handshake", Way::Handshake),
        rpc("ListActions", Way::ListActions),
        rpc("ListFlights", Way::ListFlights),
        rpc("GetSchema", Way::Schema),
        rpc("PollFlightInfo", Way::Poll),
        rpc("DoExchange", Way::Exchange),
        info("CommandStatementQuery", |_| statement("SELECT 1")),
        info("CommandPreparedStatementQuery", |own| prepared(own.select.clone())),
        info("CommandStatementSubstraitPlan", |_| {
            CommandStatementSubstraitPlan { plan: Some(one_row()), transaction_id: None }.as_any()
        }),
        info("CommandGetCatalogs", |_| CommandGetCatalogs {}.as_any()),
        info("CommandGetCrossReference", |_| CommandGetCrossReference::default().as_any()),
        info("CommandGetDbSchemas", |_| CommandGetDbSchemas::default().as_any()),
        info("CommandGetExportedKeys", |_| CommandGetExportedKeys::default().as_any()),
        info("CommandGetImportedKeys", |_| CommandGetImportedKeys::default().as_any()),
        info("CommandGetPrimaryKeys", |_| CommandGetPrimaryKeys::default().as_any()),
        info("CommandGetSqlInfo", |_| CommandGetSqlInfo::default().as_any()),
        info("CommandGetTableTypes", |_| CommandGetTableTypes {}.as_any()),
        info("CommandGetTables", |_| CommandGetTables::default().as_any()),
        info("CommandGetXdbcTypeInfo", |_| CommandGetXdbcTypeInfo::default().as_any()),
        get("TicketStatementQuery", |own| own.query.clone()),
        get("TicketStatementQuery of metadata", |own| own.metadata.clone()),
        put("CommandStatementUpdate", |_| {
            CommandStatementUpdate { query: UPDATE.to_owned(), transaction_id: None }.as_any()
        }),
        put("CommandPreparedStatementUpdate", |own| {
            CommandPreparedStatementUpdate { prepared_statement_handle: own.update.clone() }.as_any()
        }),
        put("CommandPreparedStatementQuery", |own| prepared(own.select.clone())),
        put("CommandStatementIngest", |_| CommandStatementIngest::default().as_any()),
        act("BeginSavepoint", |_| ActionBeginSavepointRequest::default().as_any().encode_to_vec()),
        act("BeginTransaction", |_| ActionBeginTransactionRequest::default().as_any().encode_to_vec()),
        act("CancelFlightInfo", |_| Vec::new()),
        act("CancelQuery", |_| ActionCancelQueryRequest::default().as_any().encode_to_vec()),
        act("EndSavepoint", |_| ActionEndSavepointRequest::default().as_any().encode_to_vec()),
        act("EndTransaction", |_| ActionEndTransactionRequest::default().as_any().encode_to_vec()),
        act("RenewFlightEndpoint", |_| Vec::new()),
        act("CreatePreparedSubstraitPlan", |_| {
            let request = ActionCreatePreparedSubstraitPlanRequest { plan: Some(one_row()), transaction_id: None };
            request.as_any().encode_to_vec()
        }),
        act("CreatePreparedStatement", |_| {
            let request = ActionCreatePreparedStatementRequest { query: "SELECT 1".to_owned(), transaction_id: None };
            request.as_any().encode_to_vec()
        }),
        act("ClosePreparedStatement", |own| {
            let prepared_statement_handle = own.select.clone();
            ActionClosePreparedStatementRequest { prepared_statement_handle }.as_any().encode_to_vec()
        }),
        act("SetSessionOptions", |_| Vec::new()),
        act("GetSessionOptions", |_| Vec::new()),
        act("CloseSession", |_| Vec::new()),
    ]
}

/// One column: a credential and whose objects it is shown with.
struct Column<'a> {
    credential: &'static str,
    client: Client,
    material: &'a Material,
}

fn column<'a>(credential: &'static str, client: Client, material: &'a Material) -> Column<'a> {
    Column { credential, client, material }
}

#[test]
fn every_call_with_every_credential_answers_as_the_table_says() {
    on_runtime(async {
        let mut table = Table::default();
        let schemes = Shipped::new();
        let gate = Gate::start(schemes.settings().await).await;
        jwt(&gate, &schemes, &mut table).await;
        api_key(&gate, &schemes, &mut table).await;
        passwords(&gate, &schemes, &mut table).await;
        mtls(&gate, &schemes, &mut table).await;
        own(&mut table).await;
        compare("rpc-matrix.txt", &table.text());
    });
}

async fn jwt(gate: &Gate, schemes: &Shipped, table: &mut Table) {
    let [one, two] = &schemes.issuers;
    let now = gate_time(gate);
    let with = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut claims = one.claims("alice", now);
        change(&mut claims);
        gate.client(&Login::Bearer(one.token(&claims)))
    };
    let client = |token: String| gate.client(&Login::Bearer(token));
    let good = with(&|_| ());
    let alice = Material::of(&good).await;
    let revoked = with(&|claims| claims["jti"] = json!("gone"));
    assert!(revoked.text("SELECT 1").await.is_ok(), "before it is denied");
    schemes.deny("gone");
    let unknown = json!({"iss": "https://id.test/three"});
    let stranger = with(&|claims| claims["iss"] = unknown["iss"].clone());
    let columns = vec![
        column("none", gate.client(&Login::Nothing), &alice),
        column("malformed: three parts without JSON", client("YQ.YQ.YQ".to_owned()), &alice),
        column("malformed: no algorithm", client(format!("{}.{}.", b64(r#"{"alg":"none"}"#), b64("{}"))), &alice),
        column("wrong: signed by another issuer", client(two.token(&one.claims("alice", now))), &alice),
        column("wrong: an issuer nobody knows", stranger, &alice),
        column("wrong: for somebody else", with(&|claims| claims["aud"] = json!("another")), &alice),
        column("expired", with(&|claims| claims["exp"] = json!(claims["iat"].as_u64().unwrap() - 3000)), &alice),
        column("revoked", revoked, &alice),
        column("another identity's objects", client(one.token(&one.claims("bob", now))), &alice),
        column("the same name from another issuer", client(two.token(&two.claims("alice", now))), &alice),
        column("good", good, &alice),
    ];
    table.add("jwt", columns).await;
}

async fn api_key(gate: &Gate, schemes: &Shipped, table: &mut Table) {
    let key = |text: &str| gate.client(&Login::Bearer(text.to_owned()));
    let (alice_key, bob_key, carol_key) = (schemes.key("alice"), schemes.key("bob"), schemes.key("carol"));
    let alice = Material::of(&key(&alice_key)).await;
    let revoked = key(&carol_key);
    assert!(revoked.text("SELECT 1").await.is_ok(), "before it is taken away");
    schemes.keys.replace(schemes.keys_without("carol"));
    let (start, _) = alice_key.rsplit_once('.').unwrap();
    let (_, secret) = bob_key.rsplit_once('.').unwrap();
    let columns = vec![
        column("none", gate.client(&Login::Nothing), &alice),
        column("malformed", key("pk1.short"), &alice),
        column("wrong: another key's secret", key(&format!("{start}.{secret}")), &alice),
        column("wrong: no such key", key(&format!("pk1.AAAAAAAAAAAA.{secret}")), &alice),
        column("expired", key(&schemes.key("late")), &alice),
        column("revoked", revoked, &alice),
        column("another identity's objects", key(&bob_key), &alice),
        column("the same name of another scheme", gate.client(&schemes.token("alice", gate_time(gate))), &alice),
        column("good", key(&alice_key), &alice),
    ];
    table.add("api-key", columns).await;
}

async fn passwords(gate: &Gate, schemes: &Shipped, table: &mut Table) {
    let basic = |user: &str| gate.client(&password(user));
    let good = basic("alice");
    let alice = Material::of(&good).await;
    let revoked = signed_in(gate, &basic("carol")).await;
    assert!(revoked.text("SELECT 1").await.is_ok(), "before the user is taken away");
    let left: Vec<_> = crate::support::schemes::USERS.iter().copied().filter(|(user, _)| *user != "carol").collect();
    schemes.passwords.replace(portcullis_auth_password::UserFile::parse(&users_file(&left)).unwrap());
    let session = signed_in(gate, &good).await;
    let columns = vec![
        column("none", gate.client(&Login::Nothing), &alice),
        column("malformed: no colon", gate.client(&Login::Headers(vec![b"Basic YWxpY2U=".to_vec()])), &alice),
        column("wrong: password", gate.client(&Login::Basic("alice".to_owned(), "open".to_owned())), &alice),
        column("wrong: no such user", basic("mallory"), &alice),
        column("expired", basic("late"), &alice),
        column("revoked", basic("carol"), &alice),
        column("revoked: its session", revoked, &alice),
        column("another identity's objects", basic("bob"), &alice),
        column("the same name of another scheme", gate.client(&schemes.token("alice", gate_time(gate))), &alice),
        column("good", good, &alice),
        column("good: its session", session, &alice),
    ];
    table.add("password", columns).await;
}

async fn mtls(gate: &Gate, schemes: &Shipped, table: &mut Table) {
    let [one, two] = &schemes.cas;
    let shown = |certificate: &Certified| certificate.client(gate, &Login::Nothing);
    let certificate = one.service(1, "alice");
    let good = shown(&certificate);
    let alice = Material::of(&good).await;
    let token = good.handshake().await.unwrap();
    let late = one.client(2, |params| {
        params.subject_alt_names = vec![uri("spiffe://corp/svc/alice")];
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    });
    let both = one.client(3, |params| {
        params.subject_alt_names = vec![uri("spiffe://corp/svc/alice"), uri("spiffe://corp/svc/bob")];
    });
    let nobody = one.client(4, |params| params.subject_alt_names = vec![uri("spiffe://evil/svc/alice")]);
    let elsewhere = crate::support::schemes::Ca::new("clients").service(1, "alice");
    let gone = one.service(66, "alice");
    let revoked = shown(&gone);
    assert!(revoked.text("SELECT 1").await.is_ok(), "before it is revoked");
    // Connections that are open stay open, and their certificates are looked at again.
    schemes.identity.replace(&optional(&[one, two], &[one.crl(2090, &[66]), two.crl(2090, &[])]));
    let columns = vec![
        column("none", gate.client(&Login::Nothing), &alice),
        column("malformed: two names", shown(&both), &alice),
        column("wrong: no rule for the name", shown(&nobody), &alice),
        column("wrong: a CA nobody knows", shown(&elsewhere), &alice),
        column("expired", shown(&late), &alice),
        column("revoked on an open connection", revoked, &alice),
        column("revoked", shown(&gone), &alice),
        column("another identity's objects", shown(&one.service(5, "bob")), &alice),
        column("the same name from another CA", shown(&two.service(6, "alice")), &alice),
        column("the session of another certificate", shown_with(gate, &one.service(7, "alice"), &token), &alice),
        column("the session without its certificate", gate.client(&Login::Bearer(token.clone())), &alice),
        column("good", good, &alice),
        column("good: its session", shown_with(gate, &certificate, &token), &alice),
    ];
    table.add("mtls", columns).await;
}

/// The embedder's scheme, behind API keys.
async fn own(table: &mut Table) {
    let gate = Gate::shared().await;
    let basic = |user: &str| gate.client(&Login::pair(user));
    let good = basic("alice");
    let alice = Material::of(&good).await;
    let revoked = signed_in(&gate, &basic("carol")).await;
    assert!(revoked.text("SELECT 1").await.is_ok(), "before the user is taken away");
    gate.pairs.revoke("carol");
    let session = signed_in(&gate, &good).await;
    let pair = |user: &str, password: &str| gate.client(&Login::Basic(user.to_owned(), password.to_owned()));
    let columns = vec![
        column("none", gate.client(&Login::Nothing), &alice),
        column("malformed: no colon", gate.client(&Login::Headers(vec![b"Basic YWxpY2U=".to_vec()])), &alice),
        column("wrong: password", pair("alice", "open"), &alice),
        column("wrong: no such user", pair("mallory", "open"), &alice),
        column("expired", pair(LATE.0, LATE.1), &alice),
        column("revoked", basic("carol"), &alice),
        column("revoked: its session", revoked, &alice),
        column("another identity's objects", basic("bob"), &alice),
        column("the same name of another scheme", gate.client(&Login::key("alice")), &alice),
        column("good", good, &alice),
        column("good: its session", session, &alice),
    ];
    table.add("an embedder's own", columns).await;
}

fn gate_time(gate: &Gate) -> std::time::SystemTime {
    portcullis_auth::Clock::now(&*gate.clock)
}

fn shown_with(gate: &Gate, certificate: &Certified, token: &str) -> Client {
    certificate.client(gate, &Login::Bearer(token.to_owned()))
}

async fn signed_in(gate: &Gate, client: &Client) -> Client {
    gate.client(&Login::Bearer(client.handshake().await.unwrap()))
}

/// The text that is compared: a block for each scheme, a letter for each credential, a mark for each answer.
#[derive(Default)]
struct Table {
    blocks: String,
    /// Marks by code and message, in the order in which they came.
    marks: Vec<(String, String)>,
}

impl Table {
    async fn add(&mut self, scheme: &str, columns: Vec<Column<'_>>) {
        self.blocks += &format!("\n## {scheme}\n");
        for (column, letter) in columns.iter().zip('a'..) {
            self.blocks += &format!("#  {letter}  {}\n", column.credential);
        }
        let letters: String = columns.iter().zip('a'..).map(|(_, letter)| format!(" {letter:<3}")).collect();
        self.blocks += &format!("{:<50}{}\n", "#", letters.trim_end());
        let mut rows = BTreeMap::new();
        for call in calls() {
            let mut row = String::new();
            for column in &columns {
                let mark = self.mark(answer(&call, column).await, &call);
                row += &format!(" {mark:<3}");
            }
            rows.insert(call.name(), row);
        }
        for (name, row) in rows {
            self.blocks += &format!("{name:<50}{}\n", row.trim_end());
        }
    }

    fn mark(&mut self, (code, message): (String, String), call: &Call) -> String {
        if code == "Ok" {
            return ".".to_owned();
        }
        let message = match call.what {
            "" => message.replace(call.rpc, "{it}"),
            what => message.replace(what, "{it}"),
        };
        let alike = self.marks.iter().filter(|(mark, _)| mark.starts_with(&code));
        let number = alike.clone().count() + 1;
        let known = alike.clone().position(|(_, text)| *text == message);
        let letter = letter(&code);
        if let Some(at) = known {
            return format!("{letter}{}", at + 1);
        }
        self.marks.push((format!("{code}{number}"), message));
        format!("{letter}{number}")
    }

    fn text(&self) -> String {
        let mut legend = String::new();
        let mut marks = self.marks.clone();
        marks.sort();
        for (mark, message) in &marks {
            let (code, number) = mark.split_at(mark.trim_end_matches(|c: char| c.is_ascii_digit()).len());
            legend += &format!("# {}{number:<2} {code}: {message}\n", letter(code));
        }
        format!("{HEAD}{legend}{}", self.blocks)
    }
}

fn letter(code: &str) -> char {
    match code {
        "Unauthenticated" => 'U',
        "InvalidArgument" => 'I',
        "NotFound" => 'F',
        "Unimplemented" => 'X',
        "no connection" => 'T',
        _ => '?',
    }
}

/// Code and message. A client that TLS does not let in reads neither.
async fn answer(call: &Call, column: &Column<'_>) -> (String, String) {
    let before = column.client.tape().headers.len();
    match call.make(&column.client, column.material).await {
        Ok(()) => ("Ok".to_owned(), String::new()),
        Err(_) if column.client.tape().headers.len() == before => {
            ("no connection".to_owned(), "TLS refuses the client".to_owned())
        }
        Err(status) => {
            let told = (format!("{:?}", status.code()), status.message().to_owned());
            assert_eq!(status.code() == Code::Unauthenticated, told.1 == REFUSAL, "{}: {status:?}", call.name());
            told
        }
    }
}

const HEAD: &str = "\
# What each call answers to each credential. Written by tests/it/matrix.rs with PORTCULLIS_BLESS=1; a test compares.
#
# .   the call is served
";

const UPDATE: &str = "SET datafusion.execution.batch_size = 1024";

#[test]
fn every_rpc_command_and_action_that_exists_is_in_the_table() {
    let calls = calls();
    let rpcs: BTreeSet<&str> = calls.iter().map(|call| call.rpc).collect();
    // The compiler holds the service to its trait, so what stands there is what there is.
    let service = include_str!("../../src/flight.rs").split_once("impl FlightService for Flight {").unwrap().1;
    let methods = service.split("\n}").next().unwrap().split("    async fn ").skip(1);
    let served: BTreeSet<String> = methods.map(|method| camel(method.split('(').next().unwrap())).collect();
    assert_eq!(served, rpcs.iter().map(|rpc| (*rpc).to_owned()).collect());
    assert_eq!(served, RPCS.iter().map(|rpc| rpc.name()).collect(), "the other tests know them too");

    let carried: BTreeSet<&str> = calls.iter().map(|call| call.what.split(' ').next().unwrap()).collect();
    for any in every_message() {
        match part(&Command::try_from(any.clone()).unwrap()) {
            Part::Action(name) => assert!(carried.contains(name), "the action {name}"),
            Part::Command => {
                let name = any.type_url.rsplit('.').next().unwrap();
                assert!(carried.contains(name), "{name}");
            }
            Part::Answer => (),
        }
    }
    on_runtime(async {
        let gate = Gate::shared().await;
        let client = gate.client(&Login::key("alice"));
        let listed: Vec<_> =
            client.flight().list_actions(Empty {}).await.unwrap().into_inner().try_collect().await.unwrap();
        let calls = self::calls();
        for action in listed {
            assert!(calls.iter().any(|call| call.what == action.r#type), "the action {}", action.r#type);
        }
    });
}

fn camel(name: &str) -> String {
    name.split('_').map(|word| word.split_at(1)).map(|(first, rest)| first.to_uppercase() + rest).collect()
}

/// What a message of Flight SQL is for.
enum Part {
    Action(&'static str),
    Answer,
    Command,
}

/// Every message there is by name: a new one does not compile before it is known here.
fn part(command: &Command) -> Part {
    match command {
        Command::ActionBeginSavepointRequest(_) => Part::Action("BeginSavepoint"),
        Command::ActionBeginTransactionRequest(_) => Part::Action("BeginTransaction"),
        Command::ActionCancelQueryRequest(_) => Part::Action("CancelQuery"),
        Command::ActionClosePreparedStatementRequest(_) => Part::Action("ClosePreparedStatement"),
        Command::ActionCreatePreparedStatementRequest(_) => Part::Action("CreatePreparedStatement"),
        Command::ActionCreatePreparedSubstraitPlanRequest(_) => Part::Action("CreatePreparedSubstraitPlan"),
        Command::ActionEndSavepointRequest(_) => Part::Action("EndSavepoint"),
        Command::ActionEndTransactionRequest(_) => Part::Action("EndTransaction"),
        Command::CommandGetCatalogs(_)
        | Command::CommandGetCrossReference(_)
        | Command::CommandGetDbSchemas(_)
        | Command::CommandGetExportedKeys(_)
        | Command::CommandGetImportedKeys(_)
        | Command::CommandGetPrimaryKeys(_)
        | Command::CommandGetSqlInfo(_)
        | Command::CommandGetTableTypes(_)
        | Command::CommandGetTables(_)
        | Command::CommandGetXdbcTypeInfo(_)
        | Command::CommandPreparedStatementQuery(_)
        | Command::CommandPreparedStatementUpdate(_)
        | Command::CommandStatementIngest(_)
        | Command::CommandStatementQuery(_)
        | Command::CommandStatementSubstraitPlan(_)
        | Command::CommandStatementUpdate(_)
        | Command::TicketStatementQuery(_) => Part::Command,
        Command::ActionBeginSavepointResult(_)
        | Command::ActionBeginTransactionResult(_)
        | Command::ActionCancelQueryResult(_)
        | Command::ActionCreatePreparedStatementResult(_)
        | Command::DoPutPreparedStatementResult(_)
        | Command::DoPutUpdateResult(_)
        | Command::Unknown(_) => Part::Answer,
    }
}

/// One of each that a client may send.
fn every_message() -> Vec<Any> {
    vec![
        ActionBeginSavepointRequest::default().as_any(),
        ActionBeginTransactionRequest::default().as_any(),
        ActionCancelQueryRequest::default().as_any(),
        ActionClosePreparedStatementRequest::default().as_any(),
        ActionCreatePreparedStatementRequest::default().as_any(),
        ActionCreatePreparedSubstraitPlanRequest::default().as_any(),
        ActionEndSavepointRequest::default().as_any(),
        ActionEndTransactionRequest::default().as_any(),
        CommandGetCatalogs {}.as_any(),
        CommandGetCrossReference::default().as_any(),
        CommandGetDbSchemas::default().as_any(),
        CommandGetExportedKeys::default().as_any(),
        CommandGetImportedKeys::default().as_any(),
        CommandGetPrimaryKeys::default().as_any(),
        CommandGetSqlInfo::default().as_any(),
        CommandGetTableTypes {}.as_any(),
        CommandGetTables::default().as_any(),
        CommandGetXdbcTypeInfo::default().as_any(),
        CommandPreparedStatementQuery::default().as_any(),
        CommandPreparedStatementUpdate::default().as_any(),
        CommandStatementIngest::default().as_any(),
        CommandStatementQuery::default().as_any(),
        CommandStatementSubstraitPlan::default().as_any(),
        CommandStatementUpdate::default().as_any(),
        TicketStatementQuery::default().as_any(),
    ]
}
