//! What a failure of the cluster means to the author of the query.
//!
//! The engine reports failures as nested text that mixes the author's own mistake (a cast, a division) with hosts,
//! paths and job ids. This takes out the sentence that is about the query's own data, by a list of the forms such
//! sentences have, and leaves everything else for the log.

use ballista_core::serde::protobuf::ExecuteQueryFailureResult;
use ballista_core::serde::protobuf::execute_query_failure_result::Failure;

use crate::backend::BackendError;

/// A failed call to the scheduler or an executor.
pub(super) fn of_rpc(status: &tonic::Status) -> BackendError {
    let text = format!("{:?}: {}", status.code(), status.message());
    match status.code() {
        tonic::Code::Unavailable
        | tonic::Code::Cancelled
        | tonic::Code::DeadlineExceeded
        | tonic::Code::Unknown
        | tonic::Code::ResourceExhausted => BackendError::Unavailable(text),
        tonic::Code::FailedPrecondition | tonic::Code::Unimplemented | tonic::Code::Unauthenticated => {
            BackendError::Protocol(text)
        }
        tonic::Code::Ok
        | tonic::Code::InvalidArgument
        | tonic::Code::NotFound
        | tonic::Code::AlreadyExists
        | tonic::Code::PermissionDenied
        | tonic::Code::Aborted
        | tonic::Code::OutOfRange
        | tonic::Code::Internal
        | tonic::Code::DataLoss => of_job(&text),
    }
}

/// A submission that the scheduler answered with a failure instead of a job.
pub(super) fn of_submission(failed: ExecuteQueryFailureResult) -> BackendError {
    match failed.failure {
        Some(Failure::PlanParsingFailure(text) | Failure::SqlParsingFailure(text)) => of_job(&text),
        Some(Failure::SessionNotFound(text)) => BackendError::Unavailable(text),
        None => BackendError::protocol("a submission failed without a cause"),
    }
}

/// A failed job, or a failure text of an executor.
pub(super) fn of_job(text: &str) -> BackendError {
    if let Some(about) = own_fault(text) {
        return BackendError::Query { about, cause: text.to_owned() };
    }
    if text.contains(ONE_PARTITION) {
        let about = "a window that is partitioned by a column with one value only".to_owned();
        return BackendError::Unsupported { about, cause: text.to_owned() };
    }
    if let Some(about) = function_fault(text) {
        return BackendError::Query { about, cause: text.to_owned() };
    }
    if let Some((_, about)) = EXHAUSTED.iter().find(|(form, _)| text.contains(form)) {
        return BackendError::Exhausted { about, cause: text.to_owned() };
    }
    if text.contains(NO_STORE) {
        let about = "the cluster does not know the object store of a table".to_owned();
        return BackendError::Unsupported { about, cause: text.to_owned() };
    }
    if let Some(about) = not_supported(text) {
        return BackendError::Unsupported { about, cause: text.to_owned() };
    }
    if AWAY.iter().any(|form| text.contains(form)) {
        return BackendError::Unavailable(text.to_owned());
    }
    BackendError::Failed(text.to_owned())
}

/// A plan that has no encoding for the cluster: a table of a kind that executors do not know, or an expression that
/// the optimizer left where it was.
pub(super) fn of_encoding(text: &str) -> BackendError {
    let about = text
        .split_once("Proto serialization error: ")
        .map(|(_, about)| about.lines().next().unwrap_or_default())
        .filter(|about| !about.is_empty() && !looks_internal(about))
        .unwrap_or("something in the statement");
    BackendError::Unsupported { about: about.to_owned(), cause: text.to_owned() }
}

/// The sentence about the query's own data, if there is one that is safe to repeat.
fn own_fault(text: &str) -> Option<String> {
    for (form, kind) in OWN_FAULTS {
        let Some((_, after)) = text.split_once(form) else { continue };
        let class = match kind {
            Detail::Fixed(sentence) => return Some((*sentence).to_owned()),
            Detail::Follows(class) => class,
        };
        let detail = after.lines().next().unwrap_or_default();
        let detail = detail.split(['"', '\\']).next().unwrap_or_default().trim_end_matches(['(', ')', ' ', ',']).trim();
        if detail.is_empty() || looks_internal(detail) {
            return Some((*class).to_owned());
        }
        return Some(format!("{class}: {detail}"));
    }
    None
}

/// The sentence of a function that cannot be computed for a value, if it is not about the engine's own work.
fn function_fault(text: &str) -> Option<String> {
    let (_, after) = text.split_once("runtime execution error: ")?.1.split_once("Execution(\"")?;
    let detail = after.split(['"', '\\']).next().unwrap_or_default().trim();
    let own = !detail.is_empty() && !OF_THE_ENGINE.iter().any(|word| detail.contains(word));
    own.then(|| if looks_internal(detail) { "a function failed".to_owned() } else { detail.to_owned() })
}

/// What the engine cannot do, in its own words, if those are safe to repeat.
fn not_supported(text: &str) -> Option<String> {
    let told = text.split_once("This feature is not implemented: ").map(|(_, told)| told).or_else(|| {
        let (_, told) = text.split_once("Execution error: ")?;
        told.lines().next()?.contains("not support").then_some(told)
    })?;
    let told = told.lines().next()?.split(['"', '\\', '(']).next()?.trim();
    (!told.is_empty() && !looks_internal(told)).then(|| told.to_owned())
}

/// Data may look like anything; what looks like a path, an address or a URL is not repeated.
fn looks_internal(detail: &str) -> bool {
    detail.contains("://")
        || detail.contains("/")
        || detail.contains("127.0.0.1")
        || detail.contains("localhost")
        || detail.split(':').skip(1).any(|after| after.starts_with(|c: char| c.is_ascii_digit()))
        || detail.len() > 500
}

enum Detail {
    /// The whole sentence.
    Fixed(&'static str),
    /// The class of fault; the rest of the line says what was at fault.
    Follows(&'static str),
}

const OWN_FAULTS: &[(&str, Detail)] = &[
    // Plans travel as protobuf, which is not read deeper than 100 messages.
    ("RecursionLimitReached", Detail::Fixed(TOO_DEEP)),
    ("recursion limit reached", Detail::Fixed(TOO_DEEP)),
    ("Divide by zero", Detail::Fixed("divide by zero")),
    ("DivideByZero", Detail::Fixed("divide by zero")),
    ("Cast error: ", Detail::Follows("cast error")),
    ("CastError(\"", Detail::Follows("cast error")),
    ("Parser error: ", Detail::Follows("cannot parse a value")),
    ("ParseError(\"", Detail::Follows("cannot parse a value")),
    ("Arithmetic overflow", Detail::Fixed("arithmetic overflow")),
    ("ArithmeticOverflow", Detail::Fixed("arithmetic overflow")),
    ("Overflow happened", Detail::Fixed("arithmetic overflow")),
    ("Compute error: ", Detail::Follows("compute error")),
    ("ComputeError(\"", Detail::Follows("compute error")),
    ("InvalidArgumentError(\"", Detail::Follows("a value cannot be what it should")),
];

/// The engine's words for what is full. The quota comes first: it is reached only by what does not fit into memory.
const EXHAUSTED: &[(&str, &str)] = &[
    ("The used disk space during the spilling process", "the query spills more to disk than an executor may fill"),
    ("Resources exhausted", "the query needs more memory than an executor may use"),
    ("ResourcesExhausted", "the query needs more memory than an executor may use"),
];
/// Words of execution errors that are not about a value.
const OF_THE_ENGINE: &[&str] = &["panicked", "shuffle", "task", "stage", "channel", "stream", "executor", "Expects"];
/// Ballista drops from a stage what the one before it knew of constants, and then finds its own plan wrong.
const ONE_PARTITION: &str = "Expects PARTITION BY expression to be ordered";
/// The engine's words for a table in a store that a scheduler or executor does not know.
const NO_STORE: &str = "No suitable object store found";

const TOO_DEEP: &str = "the statement nests too deeply for the cluster";
/// The engine's words for an executor that is gone.
const AWAY: &[&str] = &[
    "Connection refused",
    "Connection reset",
    "connection closed",
    "broken pipe",
    "h2 protocol error",
    "http2 error",
    "ConnectionRefused",
    "GrpcConnectionError",
    "GrpcActionError",
    "transport error",
    "FetchFailed",
    "no executors",
    "No executors",
    "no available executor",
    "executor lost",
    "ExecutorLost",
    "Executor lost",
];

#[cfg(test)]
mod tests {
    #![expect(clippy::panic, clippy::wildcard_enum_match_arm, reason = "a failed step fails the test")]

    use super::*;

    #[test]
    fn a_fault_of_the_querys_own_data_is_told_without_the_cluster() {
        for (text, told) in [
            ("Job XyZ failed: Task failed: DataFusionError(ArrowError(DivideByZero, None))", "divide by zero"),
            ("Arrow error: Divide by zero error", "divide by zero"),
            (
                "Arrow error: Cast error: Cannot cast string 'abc' to value of Int32 type",
                "cast error: Cannot cast string 'abc' to value of Int32 type",
            ),
            (
                "DataFusionError(ArrowError(CastError(\"Cannot cast string 'x' to value of Int64 type\"), None))",
                "cast error: Cannot cast string 'x' to value of Int64 type",
            ),
            ("Cast error: Cannot cast string '/var/lib/x' to value", "cast error"),
            (
                "runtime execution error: Shared(External(ArrowError(ComputeError(\"no root of -1\"))))",
                "compute error: no root of -1",
            ),
            (
                "Task failed due to runtime execution error: DataFusionError(Shared(Execution(\"month 0 is none\")))\n",
                "month 0 is none",
            ),
            ("a runtime execution error: Execution(\"cannot reach db.corp:5432\")", "a function failed"),
        ] {
            match of_job(text) {
                BackendError::Query { about, .. } => assert_eq!(about, told),
                other => panic!("{text} became {other:?}"),
            }
        }
    }

    #[test]
    fn what_is_full_and_what_is_not_known_is_told_as_such() {
        let memory = of_job("Resources exhausted: Failed to allocate 9 B for SortExec[0] at /var/lib");
        assert!(matches!(memory, BackendError::Exhausted { about, .. } if about.contains("memory")));
        let disk = of_job("Resources exhausted: The used disk space during the spilling process has exceeded 1 B");
        assert!(matches!(disk, BackendError::Exhausted { about, .. } if about.contains("disk")));
        let store = of_job("Internal error: No suitable object store found for s3://lake/. See `RuntimeEnv`");
        assert!(matches!(store, BackendError::Unsupported { about, .. } if !about.contains("lake")));
    }

    #[test]
    fn a_lost_executor_is_unavailable_and_the_rest_is_not_told() {
        assert!(matches!(
            of_job("GrpcConnectionError(\"Error connecting to 10.0.0.1:50051\")"),
            BackendError::Unavailable(_)
        ));
        assert!(matches!(of_job("Io error: No such file /tmp/x"), BackendError::Failed(_)));
        let panicked = "runtime execution error: DataFusionError(Execution(\"shuffle-write drain task panicked\"))";
        assert!(matches!(of_job(panicked), BackendError::Failed(_)));
    }
}
