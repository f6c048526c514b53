//! What a client asks for, parsed once: Flight descriptors, tickets and actions into typed commands.
//!
//! Decodes protobuf and nothing else: no SQL, no Arrow IPC, no authorization. What is not served is named here and
//! answered UNIMPLEMENTED (rule R25), what cannot be decoded INVALID_ARGUMENT.

use arrow_flight::flight_descriptor::DescriptorType;
use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest, Any, Command, CommandGetCrossReference,
    CommandGetDbSchemas, CommandGetExportedKeys, CommandGetImportedKeys, CommandGetPrimaryKeys, CommandGetSqlInfo,
    CommandGetTables, CommandGetXdbcTypeInfo,
};
use arrow_flight::{Action, FlightDescriptor};
use bytes::Bytes;
use prost::Message;

use super::session_actions::{CloseSessionRequest, GetSessionOptionsRequest, SetSessionOptionsRequest};
use crate::sql::Source;
use crate::status::{Class, Failure};

/// A command that has a result.
#[derive(Clone, Debug)]
pub(super) enum Read {
    /// A metadata command.
    Metadata(Metadata),
    /// A prepared statement, by its handle.
    Prepared(Bytes),
    /// A statement.
    Statement(Source),
}

/// The metadata commands: all of the specification.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Metadata {
    Catalogs,
    CrossReference(CommandGetCrossReference),
    DbSchemas(CommandGetDbSchemas),
    ExportedKeys(CommandGetExportedKeys),
    ImportedKeys(CommandGetImportedKeys),
    PrimaryKeys(CommandGetPrimaryKeys),
    SqlInfo(CommandGetSqlInfo),
    TableTypes,
    Tables(CommandGetTables),
    XdbcTypeInfo(CommandGetXdbcTypeInfo),
}

/// A command that changes something and answers with a count.
#[derive(Clone, Debug)]
pub(super) enum Update {
    /// A prepared statement, by its handle.
    Prepared(Bytes),
    /// A statement.
    Statement(Source),
}

/// The actions that are served.
#[derive(Debug)]
pub(super) enum Act {
    CloseSession,
    ClosePrepared,
    CreatePrepared(Source),
    GetSessionOptions,
    SetSessionOptions(SetSessionOptionsRequest),
}

impl Read {
    /// The command of a `GetFlightInfo` or `GetSchema`.
    pub(super) fn from_descriptor(descriptor: FlightDescriptor) -> Result<Self, Failure> {
        if descriptor.r#type() != DescriptorType::Cmd {
            return Err(Failure::unimplemented("a descriptor that is not a Flight SQL command"));
        }
        Self::from_any(decode_any(descriptor.cmd)?)
    }

    fn from_any(any: Any) -> Result<Self, Failure> {
        match decode_command(any)? {
            Command::CommandStatementQuery(query) => {
                outside_transaction(query.transaction_id.as_ref())?;
                Ok(Self::Statement(Source::Sql(query.query)))
            }
            #[cfg(feature = "substrait")]
            Command::CommandStatementSubstraitPlan(command) => {
                outside_transaction(command.transaction_id.as_ref())?;
                plan(command.plan).map(Self::Statement)
            }
            Command::CommandPreparedStatementQuery(query) => Ok(Self::Prepared(query.prepared_statement_handle)),
            command => Metadata::from_command(command).map(Self::Metadata),
        }
    }
}

impl Metadata {
    /// The command inside a metadata ticket, which this gate sealed itself.
    pub(super) fn from_any(any: Any) -> Result<Self, Failure> {
        Self::from_command(decode_command(any)?)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "what is not served is refused by name")]
    fn from_command(command: Command) -> Result<Self, Failure> {
        match command {
            Command::CommandGetCatalogs(_) => Ok(Self::Catalogs),
            Command::CommandGetCrossReference(command) => Ok(Self::CrossReference(command)),
            Command::CommandGetDbSchemas(command) => Ok(Self::DbSchemas(command)),
            Command::CommandGetExportedKeys(command) => Ok(Self::ExportedKeys(command)),
            Command::CommandGetImportedKeys(command) => Ok(Self::ImportedKeys(command)),
            Command::CommandGetPrimaryKeys(command) => Ok(Self::PrimaryKeys(command)),
            Command::CommandGetSqlInfo(command) => Ok(Self::SqlInfo(command)),
            Command::CommandGetTableTypes(_) => Ok(Self::TableTypes),
            Command::CommandGetTables(command) => Ok(Self::Tables(command)),
            Command::CommandGetXdbcTypeInfo(command) => Ok(Self::XdbcTypeInfo(command)),
            other => Err(not_served(&other)),
        }
    }

    /// The command as it travels in a ticket.
    pub(super) fn to_any(&self) -> Any {
        use arrow_flight::sql::{CommandGetCatalogs, CommandGetTableTypes, ProstMessageExt};
        match self {
            Self::Catalogs => CommandGetCatalogs {}.as_any(),
            Self::CrossReference(command) => command.as_any(),
            Self::DbSchemas(command) => command.as_any(),
            Self::ExportedKeys(command) => command.as_any(),
            Self::ImportedKeys(command) => command.as_any(),
            Self::PrimaryKeys(command) => command.as_any(),
            Self::SqlInfo(command) => command.as_any(),
            Self::TableTypes => CommandGetTableTypes {}.as_any(),
            Self::Tables(command) => command.as_any(),
            Self::XdbcTypeInfo(command) => command.as_any(),
        }
    }
}

impl Update {
    /// The command of a `DoPut`.
    pub(super) fn from_descriptor(descriptor: FlightDescriptor) -> Result<Self, Failure> {
        if descriptor.r#type() != DescriptorType::Cmd {
            return Err(Failure::unimplemented("a descriptor that is not a Flight SQL command"));
        }
        match decode_command(decode_any(descriptor.cmd)?)? {
            Command::CommandStatementUpdate(update) => {
                outside_transaction(update.transaction_id.as_ref())?;
                Ok(Self::Statement(Source::Sql(update.query)))
            }
            #[cfg(feature = "substrait")]
            Command::CommandStatementSubstraitPlan(command) => {
                outside_transaction(command.transaction_id.as_ref())?;
                plan(command.plan).map(Self::Statement)
            }
            Command::CommandPreparedStatementUpdate(update) => Ok(Self::Prepared(update.prepared_statement_handle)),
            other => Err(not_served(&other)),
        }
    }
}

impl Act {
    /// The action of a `DoAction`.
    pub(super) fn from_action(action: Action) -> Result<Self, Failure> {
        match action.r#type.as_str() {
            "CreatePreparedStatement" => {
                let request: ActionCreatePreparedStatementRequest = unpack(action.body)?;
                outside_transaction(request.transaction_id.as_ref())?;
                Ok(Self::CreatePrepared(Source::Sql(request.query)))
            }
            #[cfg(feature = "substrait")]
            "CreatePreparedSubstraitPlan" => {
                let request: arrow_flight::sql::ActionCreatePreparedSubstraitPlanRequest = unpack(action.body)?;
                outside_transaction(request.transaction_id.as_ref())?;
                plan(request.plan).map(Self::CreatePrepared)
            }
            "ClosePreparedStatement" => {
                unpack::<ActionClosePreparedStatementRequest>(action.body).map(|_| Self::ClosePrepared)
            }
            // Flight's own actions are not wrapped in Any.
            "CloseSession" => CloseSessionRequest::decode(action.body).map(|_| Self::CloseSession).map_err(undecodable),
            "GetSessionOptions" => {
                GetSessionOptionsRequest::decode(action.body).map(|_| Self::GetSessionOptions).map_err(undecodable)
            }
            "SetSessionOptions" => {
                SetSessionOptionsRequest::decode(action.body).map(Self::SetSessionOptions).map_err(undecodable)
            }
            _ => Err(Failure::unimplemented("the action")),
        }
    }
}

fn decode_any(bytes: Bytes) -> Result<Any, Failure> {
    Any::decode(bytes).map_err(undecodable)
}

fn decode_command(any: Any) -> Result<Command, Failure> {
    Command::try_from(any).map_err(|error| invalid().because(error))
}

fn unpack<M: arrow_flight::sql::ProstMessageExt>(bytes: Bytes) -> Result<M, Failure> {
    decode_any(bytes)?.unpack::<M>().map_err(|error| invalid().because(error))?.ok_or_else(invalid)
}

fn undecodable(error: prost::DecodeError) -> Failure {
    invalid().because(error)
}

fn invalid() -> Failure {
    Failure::new(Class::InvalidArgument, "the command is not a message of Flight SQL")
}

#[cfg(feature = "substrait")]
fn plan(plan: Option<arrow_flight::sql::SubstraitPlan>) -> Result<Source, Failure> {
    plan.map(|plan| Source::Substrait(plan.plan)).ok_or_else(invalid)
}

fn outside_transaction(transaction: Option<&Bytes>) -> Result<(), Failure> {
    match transaction {
        Some(id) if !id.is_empty() => Err(Failure::unimplemented("a transaction")),
        Some(_) | None => Ok(()),
    }
}

/// A command of the specification that this version does not serve, or one that nobody knows.
fn not_served(command: &Command) -> Failure {
    let known = command.type_url().strip_prefix("type.googleapis.com/arrow.flight.protocol.sql.");
    match (command, known) {
        (Command::Unknown(any), None) if any.type_url.is_empty() => invalid(),
        (Command::Unknown(_), _) | (_, None) => Failure::unimplemented("the command"),
        (_, Some(name)) => Failure::about_request(Class::Unimplemented, format!("{name} is not supported")),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

    use arrow_flight::sql::{
        CommandGetCatalogs, CommandGetTableTypes, CommandPreparedStatementQuery, CommandStatementIngest,
        CommandStatementQuery, CommandStatementUpdate, ProstMessageExt,
    };

    use super::*;

    fn read(any: &Any) -> Result<Read, Failure> {
        Read::from_descriptor(FlightDescriptor::new_cmd(any.encode_to_vec()))
    }

    #[test]
    fn every_metadata_command_is_the_same_after_its_ticket() {
        let (catalog, schema, table) = (Some("c".to_owned()), Some(String::new()), "t".to_owned());
        let commands = [
            CommandGetCatalogs {}.as_any(),
            CommandGetCrossReference {
                pk_catalog: catalog.clone(),
                pk_db_schema: schema.clone(),
                pk_table: table.clone(),
                fk_catalog: None,
                fk_db_schema: schema.clone(),
                fk_table: table.clone(),
            }
            .as_any(),
            CommandGetDbSchemas { catalog: catalog.clone(), db_schema_filter_pattern: schema.clone() }.as_any(),
            CommandGetExportedKeys { catalog: None, db_schema: schema.clone(), table: table.clone() }.as_any(),
            CommandGetImportedKeys { catalog: catalog.clone(), db_schema: None, table: table.clone() }.as_any(),
            CommandGetPrimaryKeys { catalog: catalog.clone(), db_schema: schema.clone(), table }.as_any(),
            CommandGetSqlInfo { info: vec![0, 576, u32::MAX] }.as_any(),
            CommandGetTableTypes {}.as_any(),
            CommandGetTables {
                catalog,
                db_schema_filter_pattern: schema,
                table_name_filter_pattern: None,
                table_types: vec!["TABLE".to_owned()],
                include_schema: true,
            }
            .as_any(),
            CommandGetXdbcTypeInfo { data_type: None }.as_any(),
            CommandGetXdbcTypeInfo { data_type: Some(-5) }.as_any(),
        ];
        for any in commands {
            let Ok(Read::Metadata(command)) = read(&any) else { panic!("{}", any.type_url) };
            assert_eq!(command.to_any(), any);
            assert_eq!(Metadata::from_any(command.to_any()).unwrap(), command);
        }
    }

    #[test]
    fn what_is_not_read_is_unimplemented_by_name_and_what_is_no_command_is_invalid() {
        let update = CommandStatementUpdate { query: "SELECT 1".to_owned(), transaction_id: None }.as_any();
        let query = CommandStatementQuery { query: "SELECT 1".to_owned(), transaction_id: None }.as_any();
        assert!(matches!(read(&query), Ok(Read::Statement(Source::Sql(sql))) if sql == "SELECT 1"));
        let handle = CommandPreparedStatementQuery { prepared_statement_handle: Bytes::from_static(b"h") }.as_any();
        assert!(matches!(read(&handle), Ok(Read::Prepared(handle)) if handle == "h"));
        for any in [
            #[cfg(not(feature = "substrait"))]
            arrow_flight::sql::CommandStatementSubstraitPlan::default().as_any(),
            CommandStatementIngest::default().as_any(),
            update,
            Any {
                type_url: "type.googleapis.com/arrow.flight.protocol.sql.CommandGetNothing".into(),
                ..Any::default()
            },
        ] {
            let name = any.type_url.rsplit('.').next().unwrap().to_owned();
            let refused = read(&any).unwrap_err();
            assert_eq!(refused.class(), Class::Unimplemented, "{name}");
            assert!(refused.sentence().contains(&name) || refused.sentence().contains("the command"), "{name}");
        }
        #[cfg(feature = "substrait")]
        {
            use arrow_flight::sql::{CommandStatementSubstraitPlan, SubstraitPlan};
            let plan = SubstraitPlan { plan: Bytes::from_static(b"p"), version: String::new() };
            let command = CommandStatementSubstraitPlan { plan: Some(plan), transaction_id: None };
            assert!(matches!(read(&command.as_any()), Ok(Read::Statement(Source::Substrait(plan))) if plan == "p"));
            let empty = CommandStatementSubstraitPlan::default().as_any();
            assert_eq!(read(&empty).unwrap_err().class(), Class::InvalidArgument);
        }
        assert_eq!(read(&Any::default()).unwrap_err().class(), Class::InvalidArgument);
        let damaged = Any { value: Bytes::from_static(b"\xff\xff"), ..CommandGetTables::default().as_any() };
        assert_eq!(read(&damaged).unwrap_err().class(), Class::InvalidArgument);
    }
}
