//! Every way that leads to a table or a file: statements of every kind, commands, actions.
//!
//! `{t}` in a text is the table, `{root}` the folder of the files. Must not say what the answer should be.

use std::collections::BTreeSet;

use arrow::datatypes::Schema;
use arrow_flight::FlightDescriptor;
use arrow_flight::sql::{
    ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult,
    ActionCreatePreparedSubstraitPlanRequest, Any, Command, CommandGetCatalogs, CommandGetCrossReference,
    CommandGetDbSchemas, CommandGetExportedKeys, CommandGetImportedKeys, CommandGetPrimaryKeys, CommandGetTables,
    CommandPreparedStatementUpdate, CommandStatementIngest, CommandStatementSubstraitPlan, CommandStatementUpdate,
    ProstMessageExt, SubstraitPlan, TableDefinitionOptions,
};
use bytes::Bytes;
use datafusion::logical_expr::{DdlStatement, LogicalPlan, Statement};
use prost::Message;
use tonic::Status;

use super::house::ROOT;
use super::statements::{ABOUT, FILES, READING, SESSION, WRITING};
use crate::support::client::{Client, as_text, only_ticket, prepared, statement};

/// One way, as a row of the table has it.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    /// How the request is sent.
    pub(crate) by: By,
    /// Statements before it in the same session, each of which must succeed or is the answer.
    pub(crate) before: &'static [&'static str],
}

/// What carries the request.
#[derive(Clone, Copy)]
pub(crate) enum By {
    /// `GetFlightInfo` and `DoGet` of a command.
    Command(fn(&str) -> Any),
    /// An action, whose answer is bytes.
    Act(&'static str, fn(&str) -> Vec<u8>),
    /// `CreatePreparedStatement`.
    Prepare(&'static str),
    /// The rows of a prepared statement.
    PreparedRows(&'static str),
    /// `GetSchema` of a prepared statement.
    PreparedSchema(&'static str),
    /// `DoPut` of a prepared statement.
    PreparedUpdate(&'static str),
    /// `DoPut` of a command.
    Put(fn(&str) -> Any),
    /// `GetFlightInfo` and `DoGet` of SQL.
    Query(&'static str),
    /// `GetSchema` of SQL.
    Schema(&'static str),
    /// `GetSchema` of a command.
    SchemaOf(fn(&str) -> Any),
    /// `DoPut` of SQL.
    Update(&'static str),
}

/// What a client reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Values, row by row; sorted, because nothing else has an order.
    pub(crate) rows: Vec<String>,
    /// What the schema says, everywhere where one is told.
    pub(crate) schemas: Vec<Schema>,
    /// What else is told: counts, bodies.
    pub(crate) told: Vec<String>,
}

impl Answer {
    fn told(what: impl Into<String>) -> Self {
        Self { rows: Vec::new(), schemas: Vec::new(), told: vec![what.into()] }
    }
}

impl Way {
    /// As the table names it.
    pub(crate) fn name(&self) -> String {
        let mut name = self.before.iter().map(|sql| format!("{sql}; ")).collect::<String>();
        name += &match self.by {
            By::Act(action, body) => match any_of(&body("x")) {
                Some(any) => format!("{action} {}", short(&any)),
                None => action.to_owned(),
            },
            By::Command(command) => short(&command("x")),
            By::Prepare(sql) => format!("CreatePreparedStatement: {sql}"),
            By::PreparedRows(sql) => format!("CommandPreparedStatementQuery: {sql}"),
            By::PreparedSchema(sql) => format!("GetSchema of CommandPreparedStatementQuery: {sql}"),
            By::PreparedUpdate(sql) => format!("CommandPreparedStatementUpdate: {sql}"),
            By::Put(command) => format!("DoPut {}", short(&command("x"))),
            By::Query(sql) => sql.to_owned(),
            By::Schema(sql) => format!("GetSchema of CommandStatementQuery: {sql}"),
            By::SchemaOf(command) => format!("GetSchema of {}", short(&command("x"))),
            By::Update(sql) => format!("CommandStatementUpdate: {sql}"),
        };
        name
    }

    /// Whether it names a table.
    pub(crate) fn has_table(&self) -> bool {
        let differs = |command: fn(&str) -> Any| command("x") != command("y");
        match self.by {
            By::Act(_, body) => body("x") != body("y"),
            By::Command(command) | By::Put(command) | By::SchemaOf(command) => differs(command),
            By::Prepare(_)
            | By::PreparedRows(_)
            | By::PreparedSchema(_)
            | By::PreparedUpdate(_)
            | By::Query(_)
            | By::Schema(_)
            | By::Update(_) => self.statements().any(|sql| sql.contains("{t}")),
        }
    }

    /// All SQL of it.
    pub(crate) fn statements(&self) -> impl Iterator<Item = &'static str> {
        let last = match self.by {
            By::Act(..) | By::Command(_) | By::Put(_) | By::SchemaOf(_) => None,
            By::Prepare(sql)
            | By::PreparedRows(sql)
            | By::PreparedSchema(sql)
            | By::PreparedUpdate(sql)
            | By::Query(sql)
            | By::Schema(sql)
            | By::Update(sql) => Some(sql),
        };
        self.before.iter().copied().chain(last)
    }

    /// The message that it is, as the specification names it.
    pub(crate) fn message(&self) -> Any {
        match self.by {
            By::Act(_, body) => any_of(&body("x")).unwrap_or_default(),
            By::Command(command) | By::Put(command) | By::SchemaOf(command) => command("x"),
            By::Prepare(_) => ActionCreatePreparedStatementRequest::default().as_any(),
            By::PreparedRows(_) | By::PreparedSchema(_) => prepared(Bytes::new()),
            By::PreparedUpdate(_) => CommandPreparedStatementUpdate::default().as_any(),
            By::Query(_) | By::Schema(_) => statement(""),
            By::Update(_) => CommandStatementUpdate::default().as_any(),
        }
    }

    /// Goes this way to `table`, to the end.
    pub(crate) async fn go(&self, client: &Client, table: &str) -> Result<Answer, Status> {
        let text = |sql: &str| in_place(sql, table);
        for sql in self.before {
            client.rows(&text(sql)).await?;
        }
        match self.by {
            By::Act(action, body) => {
                let bodies = client.action(action, body(table)).await?;
                Ok(Answer::told(bodies.iter().map(without_handle).collect::<String>()))
            }
            By::Command(command) => read(client, command(table)).await,
            By::Prepare(sql) => {
                let made = client.prepare(&text(sql)).await?;
                Ok(Answer::told(format!("{} bytes of a schema", made.dataset_schema.len())))
            }
            By::PreparedRows(sql) => {
                let handle = client.prepare(&text(sql)).await?.prepared_statement_handle;
                read(client, prepared(handle)).await
            }
            By::PreparedSchema(sql) => {
                let handle = client.prepare(&text(sql)).await?.prepared_statement_handle;
                schema(client, prepared(handle)).await
            }
            By::PreparedUpdate(sql) => {
                let prepared_statement_handle = client.prepare(&text(sql)).await?.prepared_statement_handle;
                put(client, CommandPreparedStatementUpdate { prepared_statement_handle }.as_any()).await
            }
            By::Put(command) => put(client, command(table)).await,
            By::Query(sql) => read(client, statement(&text(sql))).await,
            By::Schema(sql) => schema(client, statement(&text(sql))).await,
            By::SchemaOf(command) => schema(client, command(table)).await,
            By::Update(sql) => {
                put(client, CommandStatementUpdate { query: text(sql), transaction_id: None }.as_any()).await
            }
        }
    }
}

/// A statement with the names in it.
pub(crate) fn in_place(sql: &str, table: &str) -> String {
    sql.replace("{t}", table).replace("{root}", &ROOT.display().to_string())
}

/// What `GetFlightInfo` and `DoGet` tell about a command.
pub(crate) async fn read(client: &Client, command: Any) -> Result<Answer, Status> {
    let info = client.info_of(command).await?;
    let promised = info.clone().try_decode_schema().unwrap();
    let (sent, batches) = client.read_with_schema(only_ticket(&info)).await?;
    let mut rows: Vec<_> = as_text(&batches).iter().map(|row| without_bytes(row)).collect();
    rows.sort();
    Ok(Answer { rows, schemas: vec![promised, sent], told: vec![info.total_records.to_string()] })
}

/// A handle is another each time.
fn without_handle(body: &Bytes) -> String {
    let made = any_of(body).and_then(|any| any.unpack::<ActionCreatePreparedStatementResult>().ok().flatten());
    match made {
        Some(made) => format!("{} bytes of a schema", made.dataset_schema.len()),
        None => format!("{body:?}"),
    }
}

/// Without schemas in bytes, whose metadata has no order.
fn without_bytes(row: &str) -> String {
    let bytes = |value: &str| value.len() > 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    row.split('|').map(|value| if bytes(value) { "(bytes)" } else { value }).collect::<Vec<_>>().join("|")
}

async fn schema(client: &Client, command: Any) -> Result<Answer, Status> {
    let descriptor = FlightDescriptor::new_cmd(command.encode_to_vec());
    let result = client.flight().get_schema(descriptor).await?.into_inner();
    Ok(Answer { rows: Vec::new(), schemas: vec![Schema::try_from(&result).unwrap()], told: Vec::new() })
}

async fn put(client: &Client, command: Any) -> Result<Answer, Status> {
    client.put(command).await.map(|count| Answer::told(format!("{count} changed")))
}

fn any_of(body: &[u8]) -> Option<Any> {
    Any::decode(body).ok().filter(|any| any.type_url.starts_with("type.googleapis.com/"))
}

fn short(any: &Any) -> String {
    any.type_url.rsplit('.').next().unwrap().to_owned()
}

pub(super) fn query(sql: &'static str) -> Way {
    Way { by: By::Query(sql), before: &[] }
}

fn by(by: By) -> Way {
    Way { by, before: &[] }
}

fn after(before: &'static [&'static str], sql: &'static str) -> Way {
    Way { by: By::Query(sql), before }
}

/// All of them.
pub(crate) fn ways() -> Vec<Way> {
    let mut ways = carried();
    ways.extend(READING.iter().copied().map(query));
    ways.extend(ABOUT.iter().copied().map(query));
    ways.extend(WRITING.iter().copied().map(query));
    ways.extend(FILES.iter().copied().map(query));
    ways.extend(SESSION.iter().copied().map(query));
    ways.extend([
        after(&["CREATE VIEW w AS SELECT * FROM {t}"], "SELECT * FROM w"),
        after(&["CREATE VIEW w AS SELECT * FROM {t}"], "DESCRIBE w"),
        after(&["CREATE VIEW w AS SELECT * FROM {t}"], "SHOW CREATE TABLE w"),
        after(&["CREATE VIEW w AS SELECT id FROM {t}", "CREATE VIEW x AS SELECT * FROM w"], "SELECT count(*) FROM x"),
        after(
            &["CREATE VIEW w AS SELECT * FROM {t}"],
            "SELECT table_name, definition FROM information_schema.views WHERE table_name = 'w'",
        ),
        after(&["CREATE VIEW {t} AS SELECT 1 AS id"], "SELECT * FROM {t}"),
        after(&["CREATE EXTERNAL TABLE f STORED AS CSV LOCATION '{root}/inbox/in.csv'"], "SELECT * FROM f"),
        after(&["CREATE EXTERNAL TABLE f STORED AS CSV LOCATION '{root}/inbox/in.csv'"], "SHOW CREATE TABLE f"),
        after(&["SET datafusion.catalog.default_schema = 'zqcellar'"], "SELECT count(*) FROM wine"),
        after(&["SET datafusion.catalog.default_catalog = 'zqattic'"], "SELECT count(*) FROM zqbox.chest"),
    ]);
    ways
}

/// The same few statements by everything that carries SQL, and the commands and actions that do without.
fn carried() -> Vec<Way> {
    let mut ways = Vec::new();
    for sql in ["SELECT * FROM {t}", "DROP TABLE {t}", "INSERT INTO {t} (id) VALUES (1)"] {
        ways.extend(
            [By::Query, By::Schema, By::Update, By::Prepare, By::PreparedRows, By::PreparedSchema, By::PreparedUpdate]
                .map(|carrier| by(carrier(sql))),
        );
    }
    ways.extend([
        by(By::Command(|_| CommandGetCatalogs {}.as_any())),
        by(By::Command(|_| CommandGetDbSchemas::default().as_any())),
        by(By::Command(|_| CommandGetTables { include_schema: true, ..CommandGetTables::default() }.as_any())),
        by(By::Command(|_| CommandGetTables::default().as_any())),
        by(By::Command(named_table)),
        by(By::SchemaOf(named_table)),
        by(By::Command(|table| CommandGetPrimaryKeys { table: table.to_owned(), ..Default::default() }.as_any())),
        by(By::Command(|table| CommandGetExportedKeys { table: table.to_owned(), ..Default::default() }.as_any())),
        by(By::Command(|table| CommandGetImportedKeys { table: table.to_owned(), ..Default::default() }.as_any())),
        by(By::Command(|table| {
            let (pk_table, fk_table) = (table.to_owned(), table.to_owned());
            CommandGetCrossReference { pk_table, fk_table, ..Default::default() }.as_any()
        })),
        by(By::Put(ingest)),
        by(By::Put(|table| substrait(table).as_any())),
        by(By::Command(|table| substrait(table).as_any())),
        by(By::SchemaOf(|table| substrait(table).as_any())),
        by(By::Act("CreatePreparedSubstraitPlan", |table| {
            let CommandStatementSubstraitPlan { plan, transaction_id } = substrait(table);
            ActionCreatePreparedSubstraitPlanRequest { plan, transaction_id }.as_any().encode_to_vec()
        })),
        by(By::Act("SetSessionOptions", |_| session_option("schema", "zqcellar"))),
        by(By::Act("SetSessionOptions", |_| session_option("catalog", "zqattic"))),
        by(By::Act("SetSessionOptions", |_| session_option("datafusion.runtime.memory_limit", "1G"))),
        by(By::Act("SetSessionOptions", |table| session_option("schema", table))),
    ]);
    ways
}

fn named_table(table: &str) -> Any {
    let table_name_filter_pattern = Some(table.to_owned());
    CommandGetTables { table_name_filter_pattern, include_schema: true, ..CommandGetTables::default() }.as_any()
}

fn ingest(table: &str) -> Any {
    CommandStatementIngest {
        table_definition_options: Some(TableDefinitionOptions { if_not_exist: 1, if_exists: 2 }),
        table: table.to_owned(),
        schema: Some("public".to_owned()),
        catalog: Some("shop".to_owned()),
        ..CommandStatementIngest::default()
    }
    .as_any()
}

/// `Plan{relations: [PlanRel{root: RelRoot{input: Rel{read: ReadRel{base_schema, named_table: NamedTable{names}}}}}]}`
/// with `NamedStruct{names: ["id"], struct: Struct{types: [Type{i64}], nullability}}`.
fn substrait(table: &str) -> CommandStatementSubstraitPlan {
    let required = [2 << 3, 2];
    let types = [message(1, &message(7, &required)), [3 << 3, 2].to_vec()].concat();
    let columns = [message(1, b"id"), message(2, &types)].concat();
    let read = message(1, &[message(2, &columns), message(7, &message(1, table.as_bytes()))].concat());
    CommandStatementSubstraitPlan { plan: Some(root(&message(1, &read))), transaction_id: None }
}

/// `ProjectRel` of a literal over a `ReadRel` with a virtual table of one row without columns: `SELECT 1`.
pub(crate) fn one_row() -> SubstraitPlan {
    let read = message(1, &[message(2, &message(2, &[])), message(5, &message(2, &[]))].concat());
    let one = message(1, &[7 << 3, 1]);
    root(&[message(1, &message(7, &[message(2, &read), message(3, &one)].concat())), message(2, b"one")].concat())
}

fn root(root: &[u8]) -> SubstraitPlan {
    SubstraitPlan { plan: message(3, &message(2, root)).into(), version: "0.85.0".to_owned() }
}

/// `SetSessionOptionsRequest{session_options: {name: SessionOptionValue{string_value}}}`.
pub(crate) fn session_option(name: &str, value: &str) -> Vec<u8> {
    message(1, &[message(1, name.as_bytes()), message(2, &message(1, value.as_bytes()))].concat())
}

/// A field of protobuf that is text or a message, of at most 127 bytes.
fn message(field: u8, bytes: &[u8]) -> Vec<u8> {
    [&[field << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

/// The name of a command that leads to tables, by SQL, by a plan or by their names; empty for one that does not. A new
/// command does not compile before that is said of it.
pub(crate) fn leads_to_tables(command: &Command) -> &'static str {
    match command {
        Command::ActionCreatePreparedStatementRequest(_) => "ActionCreatePreparedStatementRequest",
        Command::ActionCreatePreparedSubstraitPlanRequest(_) => "ActionCreatePreparedSubstraitPlanRequest",
        Command::CommandGetCatalogs(_) => "CommandGetCatalogs",
        Command::CommandGetCrossReference(_) => "CommandGetCrossReference",
        Command::CommandGetDbSchemas(_) => "CommandGetDbSchemas",
        Command::CommandGetExportedKeys(_) => "CommandGetExportedKeys",
        Command::CommandGetImportedKeys(_) => "CommandGetImportedKeys",
        Command::CommandGetPrimaryKeys(_) => "CommandGetPrimaryKeys",
        Command::CommandGetTables(_) => "CommandGetTables",
        Command::CommandPreparedStatementQuery(_) => "CommandPreparedStatementQuery",
        Command::CommandPreparedStatementUpdate(_) => "CommandPreparedStatementUpdate",
        Command::CommandStatementIngest(_) => "CommandStatementIngest",
        Command::CommandStatementQuery(_) => "CommandStatementQuery",
        Command::CommandStatementSubstraitPlan(_) => "CommandStatementSubstraitPlan",
        Command::CommandStatementUpdate(_) => "CommandStatementUpdate",
        // Answers, and what is about types, features, or what a command above has made.
        Command::ActionBeginSavepointRequest(_)
        | Command::ActionBeginSavepointResult(_)
        | Command::ActionBeginTransactionRequest(_)
        | Command::ActionBeginTransactionResult(_)
        | Command::ActionCancelQueryRequest(_)
        | Command::ActionCancelQueryResult(_)
        | Command::ActionClosePreparedStatementRequest(_)
        | Command::ActionCreatePreparedStatementResult(_)
        | Command::ActionEndSavepointRequest(_)
        | Command::ActionEndTransactionRequest(_)
        | Command::CommandGetSqlInfo(_)
        | Command::CommandGetTableTypes(_)
        | Command::CommandGetXdbcTypeInfo(_)
        | Command::DoPutPreparedStatementResult(_)
        | Command::DoPutUpdateResult(_)
        | Command::TicketStatementQuery(_)
        | Command::Unknown(_) => "",
    }
}

/// Everything that [`leads_to_tables`] names.
pub(crate) const COMMANDS: &[&str] = &[
    "ActionCreatePreparedStatementRequest",
    "ActionCreatePreparedSubstraitPlanRequest",
    "CommandGetCatalogs",
    "CommandGetCrossReference",
    "CommandGetDbSchemas",
    "CommandGetExportedKeys",
    "CommandGetImportedKeys",
    "CommandGetPrimaryKeys",
    "CommandGetTables",
    "CommandPreparedStatementQuery",
    "CommandPreparedStatementUpdate",
    "CommandStatementIngest",
    "CommandStatementQuery",
    "CommandStatementSubstraitPlan",
    "CommandStatementUpdate",
];

/// The kinds of a plan's nodes: one that the engine learns does not compile before it has a name here, and then fails
/// the test until a statement makes one.
pub(crate) fn kinds(plan: &LogicalPlan, found: &mut BTreeSet<String>) {
    let kind = match plan {
        LogicalPlan::Projection(_) => "Projection",
        LogicalPlan::Filter(_) => "Filter",
        LogicalPlan::Window(_) => "Window",
        LogicalPlan::Aggregate(_) => "Aggregate",
        LogicalPlan::Sort(_) => "Sort",
        LogicalPlan::Join(_) => "Join",
        LogicalPlan::Repartition(_) => "Repartition",
        LogicalPlan::Union(_) => "Union",
        LogicalPlan::TableScan(_) => "TableScan",
        LogicalPlan::EmptyRelation(_) => "EmptyRelation",
        LogicalPlan::Subquery(_) => "Subquery",
        LogicalPlan::SubqueryAlias(_) => "SubqueryAlias",
        LogicalPlan::Limit(_) => "Limit",
        LogicalPlan::Values(_) => "Values",
        LogicalPlan::Explain(_) => "Explain",
        LogicalPlan::Analyze(_) => "Analyze",
        LogicalPlan::Distinct(_) => "Distinct",
        LogicalPlan::Copy(_) => "Copy",
        LogicalPlan::DescribeTable(_) => "DescribeTable",
        LogicalPlan::Unnest(_) => "Unnest",
        LogicalPlan::RecursiveQuery(_) => "RecursiveQuery",
        // Not of SQL: what the gate answers when a plan has one is in `src/sql/access.rs`.
        LogicalPlan::Extension(_) => return,
        LogicalPlan::Dml(dml) => dml.op.name(),
        LogicalPlan::Statement(statement) => match statement {
            Statement::TransactionStart(_) => "TransactionStart",
            Statement::TransactionEnd(_) => "TransactionEnd",
            Statement::SetVariable(_) => "SetVariable",
            Statement::ResetVariable(_) => "ResetVariable",
            Statement::Prepare(_) => "Prepare",
            Statement::Execute(_) => "Execute",
            Statement::Deallocate(_) => "Deallocate",
        },
        LogicalPlan::Ddl(ddl) => match ddl {
            DdlStatement::CreateExternalTable(_) => "CreateExternalTable",
            DdlStatement::CreateMemoryTable(_) => "CreateMemoryTable",
            DdlStatement::CreateView(_) => "CreateView",
            DdlStatement::CreateCatalogSchema(_) => "CreateCatalogSchema",
            DdlStatement::CreateCatalog(_) => "CreateCatalog",
            DdlStatement::CreateIndex(_) => "CreateIndex",
            DdlStatement::DropTable(_) => "DropTable",
            DdlStatement::DropView(_) => "DropView",
            DdlStatement::DropCatalogSchema(_) => "DropCatalogSchema",
            DdlStatement::CreateFunction(_) => "CreateFunction",
            DdlStatement::DropFunction(_) => "DropFunction",
        },
    };
    found.insert(kind.to_owned());
}

/// Everything that [`kinds`] can find.
pub(crate) const KINDS: &[&str] = &[
    "Aggregate",
    "Analyze",
    "Copy",
    "CreateCatalog",
    "CreateCatalogSchema",
    "CreateExternalTable",
    "CreateFunction",
    "CreateIndex",
    "CreateMemoryTable",
    "CreateView",
    "Deallocate",
    "DescribeTable",
    "Distinct",
    "DropCatalogSchema",
    "DropFunction",
    "DropTable",
    "DropView",
    "EmptyRelation",
    "Execute",
    "Explain",
    "Filter",
    "Join",
    "Limit",
    "Prepare",
    "Projection",
    "RecursiveQuery",
    "Repartition",
    "ResetVariable",
    "SetVariable",
    "Sort",
    "Subquery",
    "SubqueryAlias",
    "TableScan",
    "TransactionEnd",
    "TransactionStart",
    "Union",
    "Unnest",
    "Values",
    "Window",
];
