//! Statements: planned, run, and kept for their reader.
//!
//! A statement runs inside `GetFlightInfo` (drivers need its errors there); what changes the session runs exactly once,
//! there or in `DoPut`. `DoGet` only reads. Must not authorize: nothing comes here that [`Statements`] did not compile.
//!
//! [`Statements`]: crate::sql::Statements

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use arrow_flight::{FlightDescriptor, FlightEndpoint, FlightInfo, Ticket as FlightTicket};
use bytes::Bytes;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use futures::StreamExt;

use super::account::Account;
use super::command::{Metadata, Read, Update};
use super::handle::{QueryId, Ticket};
use super::jobs::{self, Finished};
use super::queries::{Answer, Kept};
use super::results::{self, FlightStream};
use super::sql_info::{Changes, Facts};
use super::{Core, metadata};
use crate::audit::{Event, Origin, SealedKind, What};
use crate::backend::Submission;
use crate::gate::caller::Caller;
use crate::local::Local;
use crate::slots::Place;
use crate::sql::{Compiled, Source, Work, count_schema, failure};
use crate::status::{Class, Failure};
use crate::storage::Keeping;
use crate::workspace::Workspace;

impl Core {
    /// Runs what has to run and says where the rows can be read: one endpoint, no location (rule R8).
    pub(super) async fn flight_info(
        &self,
        caller: &Caller,
        read: Read,
        descriptor: FlightDescriptor,
    ) -> Result<FlightInfo, Failure> {
        let (schema, ticket, rows) = match read {
            Read::Metadata(command) => (metadata::schema(&command), Ticket::Metadata(command.to_any()), None),
            Read::Statement(source) => self.start(caller, &source).await?,
            Read::Prepared(handle) => {
                let source = self.prepared(caller, &handle)?;
                self.start(caller, &source).await?
            }
        };
        let lifetime = self.queries.ticket_lifetime();
        let (ticket, ends) = self.handles.ticket(caller.principal().key(), &ticket, lifetime)?;
        let endpoint = FlightEndpoint::new().with_ticket(FlightTicket { ticket }).with_expiration_time(ends.into());
        let total = rows.and_then(|rows| i64::try_from(rows).ok()).unwrap_or(-1);
        FlightInfo::new()
            .with_descriptor(descriptor)
            .with_endpoint(endpoint)
            .with_total_records(total)
            .try_with_schema(&schema)
            .map_err(Failure::internal)
    }

    /// The schema that the rows would have; nothing runs.
    pub(super) async fn schema(&self, caller: &Caller, read: Read) -> Result<SchemaRef, Failure> {
        let source = match read {
            Read::Metadata(command) => return Ok(metadata::schema(&command)),
            Read::Statement(source) => source,
            Read::Prepared(handle) => self.prepared(caller, &handle)?,
        };
        self.statements.compile(&self.workspace(caller), &source).await.map(|compiled| compiled.schema)
    }

    /// Runs a statement that has no rows.
    pub(super) async fn update(&self, caller: &Caller, update: Update) -> Result<i64, Failure> {
        let source = match update {
            Update::Statement(source) => source,
            Update::Prepared(handle) => self.prepared(caller, &handle)?,
        };
        let mut account = Account::open(&self.audit, &self.clock, caller, &source.wording());
        let workspace = self.workspace(caller);
        let changed = async {
            let compiled = self.statements.compile(&workspace, &source).await?;
            account.is(compiled.facts);
            match compiled.work {
                Work::Keep(keep) => self.keep(caller, *keep).await,
                Work::Make(making) => self.make(caller, &workspace, compiled.state, *making).await,
                Work::Nothing => Ok(0),
                Work::Session(statement) => workspace.change(*statement).await.map(|()| 0),
                Work::Unmake(unmaking) => self.unmake(unmaking).await,
                Work::Answer(_) | Work::Cluster(_) | Work::Here(_) => {
                    Err(Failure::new(Class::InvalidArgument, "the statement has rows: it is a query, not an update"))
                }
            }
        }
        .await;
        account.ended(&changed);
        changed
    }

    /// The rows behind a ticket.
    pub(super) async fn read(&self, caller: &Caller, ticket: &Bytes) -> Result<FlightStream, Failure> {
        let owner = caller.principal().key();
        let opened = self.handles.open_ticket(owner, ticket);
        let query = match self.told(caller, SealedKind::Ticket, opened)? {
            Ticket::Query(query) => query,
            Ticket::Metadata(command) => {
                let command = Metadata::from_any(command)?;
                let state = self.workspace(caller).state().await?;
                let facts = Facts {
                    prepared_lifetime: self.limits.prepared_lifetime,
                    statement_bytes: self.statements.longest(),
                    changes: match &self.template.keeping {
                        Keeping::At(_) => Changes::Tables,
                        Keeping::Nowhere => Changes::Nothing,
                    },
                };
                let rows = tokio::time::timeout(METADATA, metadata::answer(command, &state, &facts))
                    .await
                    .map_err(|_| Failure::new(Class::DeadlineExceeded, "the catalog did not answer in time"))??;
                return Ok(results::of_batches(rows.schema(), futures::stream::iter([Ok(rows)]).boxed()));
            }
        };
        let record = self.told(caller, SealedKind::Ticket, self.queries.find(query, owner))?;
        let schema = Arc::clone(&record.schema);
        let stream = match &record.answer {
            Answer::Rows(rows) => results::of_batches(schema, futures::stream::iter([Ok(rows.clone())]).boxed()),
            Answer::Here { plan, state } => {
                let slot = self.slot(caller).await?;
                let deadline = tokio::time::sleep(self.limits.timeout);
                let rows = self.local.run(plan.clone(), Arc::clone(state)).map(move |batch| {
                    let _slot_is_taken = &slot;
                    batch.map_err(|error| failure::of_execution(&error))
                });
                let late = futures::stream::once(async move {
                    deadline.await;
                    Err(jobs::too_late())
                });
                results::of_batches(schema, until_late(rows.boxed(), late.boxed()))
            }
            Answer::Job { parts, .. } => results::of_parts(schema, Arc::clone(&self.backend), parts.clone()),
        };
        // The record is held until the stream ends, so that its data is not cleaned under the reader.
        let done = Arc::clone(&record);
        let end = futures::stream::once(async move { done.was_read() }).filter_map(|()| std::future::ready(None));
        let stream = Arc::clone(&record.account).reading(caller, stream);
        Ok(stream
            .map(move |message| {
                let _stays = &record;
                message
            })
            .chain(end)
            .boxed())
    }

    fn prepared(&self, caller: &Caller, handle: &Bytes) -> Result<Source, Failure> {
        let opened = self.handles.open_prepared(caller.principal().key(), handle);
        self.told(caller, SealedKind::Prepared, opened)
    }

    /// A ticket or handle that is not this caller's, or no longer, is on record; the client is told nothing more.
    fn told<T>(&self, caller: &Caller, kind: SealedKind, opened: Result<T, Failure>) -> Result<T, Failure> {
        if opened.is_err() {
            let reason = "forged, of another identity, or over";
            self.audit.record(Event {
                time: self.clock.now(),
                origin: Origin::Call { request: &caller.request().to_string(), peer: caller.peer() },
                what: What::SealedRefused { principal: caller.principal(), kind, reason },
            });
        }
        opened
    }

    async fn start(&self, caller: &Caller, source: &Source) -> Result<(SchemaRef, Ticket, Option<u64>), Failure> {
        let mut account = Account::open(&self.audit, &self.clock, caller, &source.wording());
        let started = self.run(caller, source, &mut account).await;
        if started.is_err() {
            account.ended(&started);
        }
        let (schema, answer, rows) = started?;
        let id = QueryId::random()?;
        account.named(id);
        let of = Kept { owner: caller.principal().key().clone(), session: caller.session().id(), account };
        self.queries.keep(id, of, Arc::clone(&schema), answer)?;
        Ok((schema, Ticket::Query(id), rows))
    }

    async fn run(
        &self,
        caller: &Caller,
        source: &Source,
        account: &mut Account,
    ) -> Result<(SchemaRef, Answer, Option<u64>), Failure> {
        let workspace = self.workspace(caller);
        let Compiled { schema, work, state, facts } = self.statements.compile(&workspace, source).await?;
        account.is(facts);
        let (answer, rows) = match work {
            Work::Answer(rows) => (Answer::Rows(rows), None),
            Work::Here(plan) => {
                let state = Local::kept_for(&plan, state);
                (Answer::Here { plan, state }, None)
            }
            Work::Keep(keep) => (done(account, self.keep(caller, *keep).await?)?, None),
            Work::Make(making) => (done(account, self.make(caller, &workspace, state, *making).await?)?, None),
            Work::Nothing => (done(account, 0)?, None),
            Work::Session(statement) => {
                workspace.change(*statement).await?;
                (done(account, 0)?, None)
            }
            Work::Unmake(unmaking) => (done(account, self.unmake(unmaking).await?)?, None),
            Work::Cluster(plan) => {
                let finished = self.on_cluster(caller, &workspace, &state, plan).await?;
                let rows = finished.result.parts.iter().map(|part| part.rows).sum();
                (Answer::Job { job: finished.job, parts: finished.result.parts }, rows)
            }
        };
        Ok((schema, answer, rows))
    }

    /// Runs a plan to its end within the caller's share of running queries.
    pub(super) async fn on_cluster(
        &self,
        caller: &Caller,
        workspace: &Workspace,
        state: &SessionState,
        plan: LogicalPlan,
    ) -> Result<Finished, Failure> {
        let _slot = self.slot(caller).await?;
        let submission = Submission {
            session: workspace.backend_session().clone(),
            config: state.config().clone(),
            plan,
            label: format!("portcullis-{}", caller.request()),
        };
        jobs::run(Arc::clone(&self.backend), submission, self.limits.timeout).await
    }

    /// A place among the running queries of the caller.
    pub(super) async fn slot(&self, caller: &Caller) -> Result<Place, Failure> {
        self.queries.slot(caller.principal().key(), self.limits.running(caller.principal())).await
    }
}

/// A statement that is done, whether its count is read or not.
fn done(account: &Account, count: i64) -> Result<Answer, Failure> {
    account.ended(&Ok(()));
    let count = RecordBatch::try_new(count_schema(), vec![Arc::new(Int64Array::from(vec![count]))]);
    Ok(Answer::Rows(count.map_err(Failure::internal)?))
}

/// `rows` until they end or `late` speaks.
fn until_late(
    rows: futures::stream::BoxStream<'static, Result<RecordBatch, Failure>>,
    late: futures::stream::BoxStream<'static, Result<RecordBatch, Failure>>,
) -> futures::stream::BoxStream<'static, Result<RecordBatch, Failure>> {
    futures::stream::unfold(Some((rows, late)), |both| async move {
        let (mut rows, mut late) = both?;
        tokio::select! {
            biased;
            batch = rows.next() => batch.map(|batch| (batch, Some((rows, late)))),
            failure = late.next() => failure.map(|failure| (failure, None)),
        }
    })
    .boxed()
}

/// A catalog may ask somebody else for its tables.
const METADATA: Duration = Duration::from_secs(30);
