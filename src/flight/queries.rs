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
    held: Mutex<Held>,
    ticket_lifetime: Duration,
}

/// The results by owner: what one identity has is counted and searched for with every statement of its.
#[derive(Debug, Default)]
struct Held {
    of: HashMap<IdentityKey, HashMap<QueryId, Arc<Record>>>,
    total: usize,
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
        Self { ticket_lifetime, backend, running: Slots::new(WAIT), held: Mutex::default() }
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
        let mut held = self.held.lock();
        let own = held.of.get(&record.owner).map_or(0, HashMap::len);
        // What was read is kept for another try, as long as there is room.
        let gone = if own >= MAX_PER_PRINCIPAL {
            held.take_read(Whose::Of(&record.owner), AT_ONCE)
        } else if held.total >= MAX_TOTAL {
            held.take_read(Whose::Anybodys, AT_ONCE)
        } else {
            Vec::new()
        };
        let own = held.of.get(&record.owner).map_or(0, HashMap::len);
        let full = own >= MAX_PER_PRINCIPAL || held.total >= MAX_TOTAL;
        if !full {
            held.insert(id, Arc::clone(&record));
        }
        drop(held);
        for gone in gone {
            self.clean(&gone);
        }
        if full {
            self.clean(&record);
            return Err(Failure::new(
                Class::ResourceExhausted,
                "too many results wait to be read; read or close some first",
            )
            .retry_after(SHORTENED));
        }
        Ok(())
    }

    /// The record behind an opened ticket.
    pub(super) fn find(&self, id: QueryId, owner: &IdentityKey) -> Result<Arc<Record>, Failure> {
        self.held
            .lock()
            .of
            .get(owner)
            .and_then(|own| own.get(&id))
            .filter(|record| *record.ends.lock() > Instant::now())
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
        self.held.lock().total
    }

    fn remove(&self, over: impl Fn(&Arc<Record>) -> bool) {
        let ended = self.held.lock().take(over);
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

/// Whose results.
#[derive(Clone, Copy)]
enum Whose<'a> {
    Anybodys,
    Of(&'a IdentityKey),
}

impl Held {
    fn insert(&mut self, id: QueryId, record: Arc<Record>) {
        let own = self.of.entry(record.owner.clone()).or_default();
        if own.insert(id, record).is_none() {
            self.total = self.total.saturating_add(1);
        }
    }

    fn take(&mut self, over: impl Fn(&Arc<Record>) -> bool) -> Vec<Arc<Record>> {
        let mut taken = Vec::new();
        self.of.retain(|_, own| {
            taken.extend(own.extract_if(|_, record| over(record)).map(|(_, record)| record));
            !own.is_empty()
        });
        self.total = self.total.saturating_sub(taken.len());
        taken
    }

    /// Takes up to `most` that were read and that nobody reads again at the moment: those that would end first.
    fn take_read(&mut self, whose: Whose<'_>, most: usize) -> Vec<Arc<Record>> {
        let done = |record: &Record| record.read.load(Ordering::Acquire);
        let owners: Vec<&IdentityKey> = match whose {
            Whose::Anybodys => self.of.keys().collect(),
            Whose::Of(owner) => vec![owner],
        };
        let mut read: Vec<(Instant, IdentityKey, QueryId)> = Vec::new();
        for owner in owners {
            let own = self.of.get(owner).into_iter().flatten();
            let own = own.filter(|(_, record)| done(record) && Arc::strong_count(record) == 1);
            read.extend(own.map(|(id, record)| (*record.ends.lock(), owner.clone(), *id)));
        }
        read.sort_by_key(|(ends, _, _)| *ends);
        let mut taken = Vec::new();
        for (_, owner, id) in read.into_iter().take(most) {
            let Some(own) = self.of.get_mut(&owner) else { continue };
            taken.extend(own.remove(&id));
            if own.is_empty() {
                self.of.remove(&owner);
            }
        }
        self.total = self.total.saturating_sub(taken.len());
        taken
    }
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
/// Results that make room when it is short, so that the next statements need not look for it again.
const AT_ONCE: usize = 256;
