//! What the engine's errors mean to the author of a statement.
//!
//! Planning errors are about the client's own text and names and are told; everything that touched files, objects or
//! the engine's insides is not. Starts from *not told*.

use datafusion::error::DataFusionError;

use crate::backend::BackendError;
use crate::status::{Class, Failure};

/// An error of parsing, planning or optimizing.
pub(crate) fn of_planning(error: &DataFusionError) -> Failure {
    match error {
        DataFusionError::SQL(_, _) | DataFusionError::Plan(_) | DataFusionError::SchemaError(_, _) => told(error),
        DataFusionError::NotImplemented(text) => {
            Failure::about_request(Class::Unimplemented, format!("not supported: {}", first_line(text)))
        }
        DataFusionError::Configuration(_) => told(error),
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => of_planning(inner),
        DataFusionError::Shared(inner) => of_planning(inner),
        DataFusionError::Collection(errors) => match errors.first() {
            Some(first) => of_planning(first),
            None => Failure::internal(error),
        },
        DataFusionError::ArrowError(inner, _) => of_arrow(inner),
        DataFusionError::Execution(text) if own_execution_fault(text) => told(error),
        DataFusionError::ResourcesExhausted(_) => {
            Failure::new(Class::ResourceExhausted, "the statement needs more memory than it may use").because(error)
        }
        DataFusionError::ObjectStore(_) | DataFusionError::IoError(_) | DataFusionError::ParquetError(_) => {
            Failure::new(Class::Unavailable, "the files of a table cannot be read at the moment").because(error)
        }
        DataFusionError::Execution(_)
        | DataFusionError::ExecutionJoin(_)
        | DataFusionError::External(_)
        | DataFusionError::Internal(_)
        | DataFusionError::Substrait(_)
        | DataFusionError::Ffi(_) => Failure::internal(error),
    }
}

/// An error of parsing one statement.
#[expect(clippy::wildcard_enum_match_arm, reason = "every other error is one of planning")]
pub(crate) fn of_parsing(error: &DataFusionError) -> Failure {
    match error {
        DataFusionError::NotImplemented(text) if text.contains("single SQL statement") => {
            Failure::new(Class::InvalidArgument, "a request takes one statement")
        }
        other => of_planning(other),
    }
}

/// An error while rows were computed in the gate.
pub(crate) fn of_execution(error: &DataFusionError) -> Failure {
    of_planning(error)
}

/// An error of the cluster.
pub(crate) fn of_backend(error: BackendError) -> Failure {
    match error {
        BackendError::Query { about, cause } => {
            Failure::about_request(Class::InvalidArgument, format!("the query failed: {about}")).because(cause)
        }
        BackendError::Exhausted { about, cause } => Failure::new(Class::ResourceExhausted, about).because(cause),
        BackendError::Unsupported { about, cause } => {
            Failure::about_request(Class::Unimplemented, format!("the statement cannot be distributed: {about}"))
                .because(cause)
        }
        BackendError::Unavailable(cause) => Failure::new(
            Class::Unavailable,
            "the cluster, or the part of it that the query needs, is away for the moment; try again",
        )
        .because(cause),
        BackendError::Failed(cause) => Failure::new(Class::Internal, "the query failed on the cluster").because(cause),
        BackendError::Protocol(cause) => Failure::internal(cause),
    }
}

fn of_arrow(error: &arrow::error::ArrowError) -> Failure {
    use arrow::error::ArrowError;
    match error {
        ArrowError::DivideByZero
        | ArrowError::CastError(_)
        | ArrowError::ParseError(_)
        | ArrowError::ArithmeticOverflow(_)
        | ArrowError::ComputeError(_)
        | ArrowError::InvalidArgumentError(_) => {
            Failure::about_request(Class::InvalidArgument, first_line(&error.to_string()).to_owned()).because(error)
        }
        ArrowError::CsvError(_) | ArrowError::JsonError(_) | ArrowError::AvroError(_) | ArrowError::IpcError(_) => {
            Failure::new(Class::InvalidArgument, "a file of a table is not of the format that the table has")
                .because(error)
        }
        ArrowError::NotYetImplemented(_)
        | ArrowError::ExternalError(_)
        | ArrowError::MemoryError(_)
        | ArrowError::SchemaError(_)
        | ArrowError::IoError(_, _)
        | ArrowError::ParquetError(_)
        | ArrowError::CDataInterface(_)
        | ArrowError::DictionaryKeyOverflowError
        | ArrowError::RunEndIndexOverflowError
        | ArrowError::OffsetOverflowError(_) => Failure::internal(error),
    }
}

fn told(error: &DataFusionError) -> Failure {
    Failure::about_request(Class::InvalidArgument, first_line(&error.strip_backtrace()).to_owned())
}

/// Execution errors that DDL on the session's own objects makes, and functions that look at their arguments early.
fn own_execution_fault(text: &str) -> bool {
    let forms = [
        "already exists",
        "doesn't exist",
        "does not exist",
        "not found",
        "Cannot access field at argument",
        "requires non-empty constant string",
    ];
    forms.iter().any(|form| text.contains(form)) && !text.contains('/')
}

fn first_line(text: &str) -> &str {
    text.trim().lines().next().unwrap_or_default()
}
