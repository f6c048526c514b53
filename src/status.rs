//! The one writer of client-visible errors.
//!
//! Every refusal and fault in the gate ends here as a [`Failure`]: a gRPC class, a sentence about the client's own
//! request, and a cause for the operator that never leaves the process. Must not know Ballista, and must not put a
//! host, a path, a stack or a secret into a message. INVARIANT: `tonic::Status` is built nowhere else in `src/`
//! (`tests/tidy.rs` holds it).

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// A failed call: what the client is told, and what the operator is told.
#[derive(Debug)]
pub struct Failure {
    class: Class,
    sentence: Cow<'static, str>,
    cause: Option<String>,
    retry_after: Option<Duration>,
}

/// The classes a client can meet, in the terms of the gRPC status guide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The client, or this gate on its behalf, stopped the work.
    Cancelled,
    /// A deadline of the client or of the configuration passed.
    DeadlineExceeded,
    /// The object is not in a state in which the call makes sense.
    FailedPrecondition,
    /// A fault of the gate or the cluster that the client did not cause.
    Internal,
    /// The request itself is wrong: SQL, ticket, handle, option.
    InvalidArgument,
    /// Unknown, foreign and hidden objects alike.
    NotFound,
    /// The identity may not do this.
    PermissionDenied,
    /// A limit; carries `RetryInfo` when waiting helps.
    ResourceExhausted,
    /// No credential, or one that was not accepted.
    Unauthenticated,
    /// The cluster or an authenticator is away for now.
    Unavailable,
    /// Not built, or not offered by this gate.
    Unimplemented,
}

impl Failure {
    /// A failure with a fixed sentence.
    pub fn new(class: Class, sentence: &'static str) -> Self {
        Self { class, sentence: Cow::Borrowed(sentence), cause: None, retry_after: None }
    }

    /// The refusal of identity: one text for every reason, so that it tells an attacker nothing.
    pub fn unauthenticated() -> Self {
        Self::new(Class::Unauthenticated, UNAUTHENTICATED)
    }

    /// A message about the client's *own* SQL, option or name. The caller vouches that `sentence` was made from what
    /// the client itself sent and from names it may see.
    pub fn about_request(class: Class, sentence: String) -> Self {
        Self { class, sentence: Cow::Owned(bounded(sentence)), cause: None, retry_after: None }
    }

    /// Something this gate does not serve; `what` is its name in the Flight SQL specification.
    pub fn unimplemented(what: &'static str) -> Self {
        Self {
            class: Class::Unimplemented,
            sentence: Cow::Owned(format!("{what} is not supported")),
            cause: None,
            retry_after: None,
        }
    }

    /// A fault that the client did not cause; only the request id is told.
    pub fn internal(cause: impl fmt::Display) -> Self {
        Self::new(Class::Internal, "internal error").because(cause)
    }

    /// Adds the operator's cause; the client never sees it.
    #[must_use]
    pub fn because(mut self, cause: impl fmt::Display) -> Self {
        self.cause = Some(cause.to_string());
        self
    }

    /// The same with another sentence for the client; the operator learns of the first one.
    #[must_use]
    pub fn told_as(self, sentence: String) -> Self {
        let cause = self.cause.unwrap_or_else(|| self.sentence.into_owned());
        Self { sentence: Cow::Owned(bounded(sentence)), cause: Some(cause), ..self }
    }

    /// Adds the time after which a retry makes sense (`google.rpc.RetryInfo`).
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// The class, for audit and for tests.
    pub fn class(&self) -> Class {
        self.class
    }

    /// The client's sentence.
    pub fn sentence(&self) -> &str {
        &self.sentence
    }

    /// Logs the cause once with the request id and renders what the client may see.
    pub fn into_status(self, request: &RequestId) -> Status {
        let message = match self.class {
            Class::Internal => format!("{} (request {request})", self.sentence),
            Class::Cancelled
            | Class::DeadlineExceeded
            | Class::FailedPrecondition
            | Class::InvalidArgument
            | Class::NotFound
            | Class::PermissionDenied
            | Class::ResourceExhausted
            | Class::Unauthenticated
            | Class::Unavailable
            | Class::Unimplemented => self.sentence.into_owned(),
        };
        match (self.class, &self.cause) {
            (Class::Internal | Class::Unavailable, cause) => {
                let cause = cause.as_deref().unwrap_or("-");
                tracing::error!(%request, class = ?self.class, cause, "call failed");
            }
            (class, Some(cause)) => tracing::info!(request = %request, ?class, %cause, "call refused"),
            (class, None) => tracing::debug!(request = %request, ?class, "call refused"),
        }
        match self.retry_after {
            Some(wait) => {
                Status::with_error_details(self.class.code(), message, ErrorDetails::with_retry_info(Some(wait)))
            }
            None => Status::new(self.class.code(), message),
        }
    }
}

impl Class {
    fn code(self) -> Code {
        match self {
            Self::Cancelled => Code::Cancelled,
            Self::DeadlineExceeded => Code::DeadlineExceeded,
            Self::FailedPrecondition => Code::FailedPrecondition,
            Self::Internal => Code::Internal,
            Self::InvalidArgument => Code::InvalidArgument,
            Self::NotFound => Code::NotFound,
            Self::PermissionDenied => Code::PermissionDenied,
            Self::ResourceExhausted => Code::ResourceExhausted,
            Self::Unauthenticated => Code::Unauthenticated,
            Self::Unavailable => Code::Unavailable,
            Self::Unimplemented => Code::Unimplemented,
        }
    }
}

/// Names one call in the log; random, so that it says nothing about the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(u64);

impl RequestId {
    /// A fresh id for a call that has just arrived. Never taken from the client.
    pub fn fresh() -> Self {
        let mut bytes = [0_u8; 8];
        // A failing generator only costs a readable log line; nothing secret hangs on this value.
        if aws_lc_rs::rand::fill(&mut bytes).is_err() {
            bytes = [0; 8];
        }
        Self(u64::from_le_bytes(bytes))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// gRPC carries messages in a header; clients give up at 8 KiB of headers (rule R31), so a sentence keeps well below.
fn bounded(mut sentence: String) -> String {
    if sentence.len() > MAX_SENTENCE {
        let mut end = MAX_SENTENCE;
        while !sentence.is_char_boundary(end) {
            end = end.saturating_sub(1);
        }
        sentence.truncate(end);
        sentence.push('…');
    }
    sentence
}

/// Percent-encoding may triple it on the wire.
const MAX_SENTENCE: usize = 2000;
const UNAUTHENTICATED: &str = "authentication failed: this server needs a valid credential in the authorization header";
