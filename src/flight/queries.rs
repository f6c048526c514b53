//! Started queries, from GetFlightInfo to the end of their tickets.
//!
//! Bounded per identity and in total; every entry ends by itself, and its data on the cluster with it. A record is
//! found only by the identity that started it. Must not decide how long results live on the cluster, only clean them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use parking_lot::Mutex;
use portcullis_auth::IdentityKey;
use tokio::time::Instant;

use super::account::Account;
use super::handle::{QueryId, invalid_ticket};
use super::jobs;
use crate::backend::{JobId, QueryBackend, ResultPart};
use crate::gate::session::SessionId;
use crate::slots::{Full, Place, Room, Slots};
use crate::status::{Class, Failure};

/// Everything this gate holds results for.
#[derive(Debug)]
pub(super) struct Queries {
    backend: Arc<dyn QueryBackend>,
    running: Slots,
    records: Mutex<HashMap<QueryId, Arc<Record>>>,
    ticket_lifetime: Duration,
}

/// One query whose result can be read.
#[derive(Debug)]
pub(super) struct Record {
    owner: IdentityKey,
    session: SessionId,
    pub(super) account: Arc<Account>,
    pub(super) schema: SchemaRef,
    pub(super) answer: Answer,
    ends: Mutex<Instant>,
    /// To its end, at least once.
    read: AtomicBool,
}

/// Whose result is kept, and what is on record about it.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) owner: IdentityKey,
    pub(super) session: SessionId,
    pub(super) account: Account,
}

/// Where the rows are.
#[derive(Debug)]
pub(super) enum Answer {
    /// Computed in the gate when they are read.
    Here { plan: LogicalPlan, state: Arc<SessionState> },
    /// On the cluster.
    Job { job: JobId, parts: Vec<ResultPart> },
    /// Known.
    Rows(RecordBatch),
}

impl Queries {
    pub(super) fn new(backend: Arc<dyn QueryBackend>) -> Self {
        let ticket_lifetime = backend.result_ttl().saturating_sub(CLEANED_EARLY).min(TICKET_LIFETIME);
        Self { ticket_lifetime, backend, running: Slots::new(WAIT), records: Mutex::default() }
    }

    /// A place among the `running` queries of `owner`. As many more wait, bounded in time.
    pub(super) async fn slot(&self, owner: &IdentityKey, running: usize) -> Result<Place, Failure> {
        self.running.take(owner, Room { places: running, waiting: running }).await.map_err(|Full| {
            Failure::new(Class::ResourceExhausted, "too many queries of this identity run at the moment")
                .retry_after(Duration::from_secs(5))
        })
    }

    /// How long a ticket is good for.
    pub(super) fn ticket_lifetime(&self) -> Duration {
        self.ticket_lifetime
    }

    /// Keeps a result for as long as its ticket is good.
    pub(super) fn keep(
        &self,
        id: QueryId,
        Kept { owner, session, account }: Kept,
        schema: SchemaRef,
        answer: Answer,
    ) -> Result<(), Failure> {
        let ends = Mutex::new(after(self.ticket_lifetime));
        let read = AtomicBool::new(false);
        let record = Arc::new(Record { owner, session, account: Arc::new(account), schema, answer, ends, read });
        let mut records = self.records.lock();
        let own = records.values().filter(|other| other.owner == record.owner).count();
        let full = own >= MAX_PER_PRINCIPAL || records.len() >= MAX_TOTAL;
        // What was read is kept for another try, as long as there is room.
        let of = |other: &Record| own < MAX_PER_PRINCIPAL || other.owner == record.owner;
        let gone = if full { take_one_that_was_read(&mut records, of) } else { None };
        if full && gone.is_none() {
            drop(records);
            self.clean(&record);
            return Err(Failure::new(
                Class::ResourceExhausted,
                "too many results wait to be read; read or close some first",
            )
            .retry_after(SHORTENED));
        }
        records.insert(id, record);
        drop(records);
        if let Some(gone) = gone {
            self.clean(&gone);
        }
        Ok(())
    }

    /// The record behind an opened ticket.
    pub(super) fn find(&self, id: QueryId, owner: &IdentityKey) -> Result<Arc<Record>, Failure> {
        self.records
            .lock()
            .get(&id)
            .filter(|record| record.owner == *owner && *record.ends.lock() > Instant::now())
            .map(Arc::clone)
            .ok_or_else(invalid_ticket)
    }

    /// Ends what is over; to be called every now and then.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        // A record that is being read is held by its stream as well and stays until the read is over.
        self.remove(|record| *record.ends.lock() <= now && Arc::strong_count(record) == 1);
    }

    /// Ends everything of a session.
    pub(super) fn end_session(&self, session: SessionId) {
        self.remove(|record| record.session == session);
    }

    /// How many results are held.
    pub(super) fn count(&self) -> usize {
        self.records.lock().len()
    }

    fn remove(&self, over: impl Fn(&Arc<Record>) -> bool) {
        let ended: Vec<_> =
            self.records.lock().extract_if(|_, record| over(record)).map(|(_, record)| record).collect();
        for record in ended {
            self.clean(&record);
        }
    }

    /// In the background: nobody waits for it.
    fn clean(&self, record: &Record) {
        let Answer::Job { job, .. } = &record.answer else { return };
        let (backend, job) = (Arc::clone(&self.backend), job.clone());
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move { jobs::clean(&*backend, &job).await })),
            Err(_) => tracing::debug!("no runtime to clean a job in; it expires on the cluster"),
        }
    }
}

impl Record {
    /// After a complete read the result is kept only for another try.
    pub(super) fn was_read(&self) {
        self.read.store(true, Ordering::Release);
        let mut ends = self.ends.lock();
        *ends = (*ends).min(after(SHORTENED));
    }
}

/// The one that would end first of those that nobody reads again at the moment.
fn take_one_that_was_read(
    records: &mut HashMap<QueryId, Arc<Record>>,
    of: impl Fn(&Record) -> bool,
) -> Option<Arc<Record>> {
    let done = |record: &Arc<Record>| record.read.load(Ordering::Acquire) && Arc::strong_count(record) == 1;
    let all = records.iter().filter(|(_, record)| done(record) && of(record));
    let id = all.min_by_key(|(_, record)| *record.ends.lock()).map(|(id, _)| *id)?;
    records.remove(&id)
}

fn after(time: Duration) -> Instant {
    Instant::now().checked_add(time).unwrap_or_else(Instant::now)
}

/// How long a ticket is good for, unless the cluster forgets its result earlier.
const TICKET_LIFETIME: Duration = Duration::from_secs(300);
/// The cluster's clock for a result started before ours.
const CLEANED_EARLY: Duration = Duration::from_secs(2);
const SHORTENED: Duration = Duration::from_secs(60);
const WAIT: Duration = Duration::from_secs(30);
const MAX_PER_PRINCIPAL: usize = 4096;
const MAX_TOTAL: usize = 65_536;
