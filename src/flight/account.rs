//! What is put on record about a statement: opened when it is compiled, written when its rows have been read, when it
//! failed, or when nobody reads it any more.
//!
//! Every reading of a result is a line of its own, under the query's name. Must not keep the text of a statement
//! unless the record is to have it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_flight::FlightData;
use futures::StreamExt;
use portcullis_auth::{Clock, Principal};
use tokio::time::Instant;

use super::handle::QueryId;
use super::results::{self, FlightStream};
use crate::audit::{Audit, End, Event, MAX_SQL, Origin, Outcome, Peer, Statement, StatementKind, StatementText, What};
use crate::gate::caller::Caller;
use crate::sql::StatementFacts;
use crate::status::{Class, Failure};

/// The record of one statement.
#[derive(Debug)]
pub(super) struct Account {
    audit: Audit,
    clock: Arc<dyn Clock>,
    principal: Principal,
    session: String,
    request: String,
    peer: Peer,
    began: Instant,
    query: String,
    facts: StatementFacts,
    text: Text,
    told: AtomicBool,
}

impl Account {
    /// For a statement that `caller` has just brought.
    pub(super) fn open(audit: &Audit, clock: &Arc<dyn Clock>, caller: &Caller, sql: &str) -> Self {
        Self {
            audit: audit.clone(),
            clock: Arc::clone(clock),
            principal: caller.principal().clone(),
            session: caller.session().id().to_string(),
            request: caller.request().to_string(),
            peer: caller.peer(),
            began: Instant::now(),
            query: String::new(),
            facts: StatementFacts { kind: StatementKind::Unknown, tables: Vec::new() },
            text: Text::of(audit.wording_of(sql)),
            told: AtomicBool::new(false),
        }
    }

    /// What it turned out to be.
    pub(super) fn is(&mut self, facts: StatementFacts) {
        self.facts = facts;
    }

    /// The name under which its rows can be read.
    pub(super) fn named(&mut self, query: QueryId) {
        self.query = query.to_string();
    }

    /// It ended here, with this result.
    pub(super) fn ended<T>(&self, result: &Result<T, Failure>) {
        let outcome = match result {
            Ok(_) => Outcome::Ok,
            Err(failure) => outcome(failure),
        };
        self.tell(&self.request, self.peer, self.began, (0, 0), outcome);
    }

    /// The same stream; when it ends, or is dropped before, that is on record with what it sent.
    pub(super) fn reading(self: Arc<Self>, caller: &Caller, stream: FlightStream) -> FlightStream {
        match self.facts.kind {
            // It was done and told when it was started: what is read is its count.
            StatementKind::Ddl | StatementKind::Dml | StatementKind::Ingest | StatementKind::Set => return stream,
            StatementKind::Explain | StatementKind::Select | StatementKind::Unknown => (),
        }
        let began = if self.told.load(Ordering::Acquire) { Instant::now() } else { self.began };
        let mut reading = Reading {
            account: self,
            began,
            request: caller.request().to_string(),
            peer: caller.peer(),
            rows: 0,
            bytes: 0,
            outcome: Outcome::Cancelled,
        };
        stream
            .map(Said::Message)
            .chain(futures::stream::iter([Said::All]))
            .filter_map(move |said| std::future::ready(reading.hear(said)))
            .boxed()
    }

    fn tell(&self, request: &str, peer: Peer, began: Instant, (rows, bytes): (u64, u64), outcome: Outcome) {
        self.told.store(true, Ordering::Release);
        let query = (!self.query.is_empty()).then_some(self.query.as_str());
        self.audit.record(Event {
            time: self.clock.now(),
            origin: Origin::Call { request, peer },
            what: What::StatementEnd(Statement {
                principal: &self.principal,
                session: &self.session,
                query,
                kind: self.facts.kind,
                tables: &self.facts.tables,
                end: End { rows, bytes, elapsed: began.elapsed(), outcome },
                text: self.text.as_recorded(),
            }),
        });
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        // Nobody has read it, or its call went away.
        if !self.told.load(Ordering::Acquire) {
            self.tell(&self.request, self.peer, self.began, (0, 0), Outcome::Cancelled);
        }
    }
}

/// What the record will have of the text, for as long as the result lives.
#[derive(Debug)]
enum Text {
    Danger(String),
    Hash([u8; 16]),
    None,
}

impl Text {
    fn of(text: StatementText<'_>) -> Self {
        match text {
            // One character more than a line has room for, so that it shows that there was more.
            StatementText::Danger(sql) => Self::Danger(sql.chars().take(MAX_SQL.saturating_add(1)).collect()),
            StatementText::Hash(hash) => Self::Hash(hash),
            StatementText::None => Self::None,
        }
    }

    fn as_recorded(&self) -> StatementText<'_> {
        match self {
            Self::Danger(sql) => StatementText::Danger(sql),
            Self::Hash(hash) => StatementText::Hash(*hash),
            Self::None => StatementText::None,
        }
    }
}

/// A stream's messages, and that there is none left.
enum Said {
    Message(Result<FlightData, Failure>),
    All,
}

/// One reading of a result.
struct Reading {
    account: Arc<Account>,
    began: Instant,
    request: String,
    peer: Peer,
    rows: u64,
    bytes: u64,
    outcome: Outcome,
}

impl Reading {
    fn hear(&mut self, said: Said) -> Option<Result<FlightData, Failure>> {
        match said {
            Said::All => {
                if self.outcome == Outcome::Cancelled {
                    self.outcome = Outcome::Ok;
                }
                None
            }
            Said::Message(Ok(message)) => {
                let length = message.data_header.len().saturating_add(message.data_body.len());
                self.bytes = self.bytes.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
                self.rows = self.rows.saturating_add(results::rows_of(&message));
                Some(Ok(message))
            }
            Said::Message(Err(failure)) => {
                self.outcome = outcome(&failure);
                Some(Err(failure))
            }
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.account.tell(&self.request, self.peer, self.began, (self.rows, self.bytes), self.outcome);
    }
}

fn outcome(failure: &Failure) -> Outcome {
    match failure.class() {
        Class::Cancelled => Outcome::Cancelled,
        Class::PermissionDenied => Outcome::Denied,
        class @ (Class::DeadlineExceeded
        | Class::FailedPrecondition
        | Class::Internal
        | Class::InvalidArgument
        | Class::NotFound
        | Class::ResourceExhausted
        | Class::Unauthenticated
        | Class::Unavailable
        | Class::Unimplemented) => Outcome::Error(class),
    }
}
