//! One configured table: known by name, opened when somebody asks, looked at again every now and then.
//!
//! However many ask, one looks, and it goes on looking when those who asked have given up. A table that cannot be
//! opened is asked again after a moment; one that could be opened before stays as it was. Must not decide who may ask.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::DataType;
use datafusion::catalog::TableProvider;
use datafusion::common::{Constraints, DFSchema, TableReference};
use datafusion::datasource::listing::ListingTable;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::logical_expr::CreateExternalTable;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::listing::{self, Columns, Counted, Stamp, Unlisted};
use crate::config::{Format, PartitionType, Table};

/// Why a table is not open.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unopened {
    /// It, or what it needs, is away. Holds places: for the operator.
    #[error("{0}")]
    Away(Arc<str>),
    /// There is more of something than there may be. Its user may know.
    #[error("{0}")]
    TooMuch(Arc<str>),
}

impl From<Unopened> for DataFusionError {
    fn from(unopened: Unopened) -> Self {
        match unopened {
            // Which is not told.
            Unopened::Away(cause) => Self::IoError(std::io::Error::other(cause.to_string())),
            Unopened::TooMuch(told) => Self::Plan(told.to_string()),
        }
    }
}

impl From<Unlisted> for Unopened {
    fn from(unlisted: Unlisted) -> Self {
        match unlisted {
            Unlisted::Engine(error) => Self::Away(error.strip_backtrace().into()),
            Unlisted::TooMuch(told) => Self::TooMuch(told.into()),
        }
    }
}

/// What opens tables, shared by all of them.
pub(super) struct Opener {
    state: SessionState,
    /// Where the files are read, whatever thread asks: the threads of the gate's own engine reach no network.
    runtime: Handle,
    places: Semaphore,
    counted: Arc<Counted>,
    times: Times,
}

/// How long things take and last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// An open table's files are looked at again after this long. Who asks meanwhile gets the table as it was.
    pub(super) fresh: Duration,
    /// After this long they wait for it.
    pub(super) stale: Duration,
    /// A failure is an answer for this long.
    pub(super) broken: Duration,
    /// Whoever asks waits this long. Less than a statement may take to plan, so that its author learns why.
    pub(super) wait: Duration,
    /// One look, and one opening, takes no longer.
    pub(super) open: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            fresh: Duration::from_secs(60),
            stale: Duration::from_secs(10 * 60),
            broken: Duration::from_secs(2),
            wait: Duration::from_secs(8),
            open: Duration::from_secs(60),
        }
    }
}

impl Opener {
    /// `state` plans nothing here: it lends its formats and its stores, and must not remember listings.
    pub(super) fn new(state: SessionState, runtime: Handle, counted: Arc<Counted>, times: Times) -> Self {
        Self { state, runtime, places: Semaphore::new(AT_A_TIME), counted, times }
    }

    async fn open(&self, table: &Table) -> Result<(Arc<ListingTable>, Stamp), Unopened> {
        let partitions = table.partitions.iter().map(|(name, kind)| (name.clone(), partition_type(*kind))).collect();
        let command = command(table);
        let (opened, stamp) = self.in_time(listing::open(&self.state, &command, Columns::InFiles(partitions))).await?;
        self.counted.note(&opened);
        Ok((Arc::new(opened), stamp))
    }

    async fn look(&self, table: &Table, open: &ListingTable) -> Result<Stamp, Unopened> {
        let stamp = self.in_time(listing::look(&self.state, &reference(table), open)).await?;
        self.counted.note(open);
        Ok(stamp)
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T, Unlisted>>) -> Result<T, Unopened> {
        let _place = self.places.acquire().await.map_err(|closed| Unopened::Away(closed.to_string().into()))?;
        match timeout(self.times.open, work).await {
            Ok(done) => Ok(done?),
            Err(_) => Err(Unopened::Away(format!("its files were not read within {:?}", self.times.open).into())),
        }
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener").field("times", &self.times).finish_non_exhaustive()
    }
}

/// One configured table.
pub(super) struct Slot {
    table: Table,
    opener: Arc<Opener>,
    inner: Mutex<Inner>,
}

struct Inner {
    standing: Standing,
    /// The one look that is under way.
    pending: Option<Pending>,
    /// Whether the log says that it cannot be opened.
    warned: bool,
}

#[derive(Clone)]
enum Standing {
    Broken { why: Unopened, since: Instant },
    Closed,
    Open { table: Arc<ListingTable>, stamp: Stamp, looked: Instant },
}

type Outcome = Result<Arc<ListingTable>, Unopened>;
type Pending = Shared<BoxFuture<'static, Outcome>>;

impl Slot {
    /// A table that nobody has asked for.
    pub(super) fn new(table: Table, opener: Arc<Opener>) -> Self {
        let inner = Inner { standing: Standing::Closed, pending: None, warned: false };
        Self { table, opener, inner: Mutex::new(inner) }
    }

    /// Whether this is what a newer configuration says.
    pub(super) fn is(&self, newer: &Table) -> bool {
        let Table { catalog, schema, name, location, format, partitions, options, line: _ } = newer;
        let own = &self.table;
        (&own.catalog, &own.schema, &own.name) == (catalog, schema, name)
            && (&own.location, &own.format, &own.partitions, &own.options) == (location, format, partitions, options)
    }

    /// The table, opened where it is not. Waits for a bounded time.
    pub(super) async fn provider(self: &Arc<Self>) -> Result<Arc<dyn TableProvider>, Unopened> {
        let (pending, known) = match self.now() {
            Now::Answer(answer) => return answer.map(|table| table as Arc<dyn TableProvider>),
            Now::Ask { pending, known } => (pending, known),
        };
        let answer = match (timeout(self.opener.times.wait, pending).await, known) {
            (Ok(outcome), _) => outcome,
            // As it was a moment ago is better than not at all.
            (Err(_), Some(known)) => Ok(known),
            (Err(_), None) => Err(Unopened::Away("it is still being opened".into())),
        };
        answer.map(|table| table as Arc<dyn TableProvider>)
    }

    /// The same for whoever has the time.
    pub(super) async fn outcome(self: &Arc<Self>) -> Result<(), Unopened> {
        match self.now() {
            Now::Answer(answer) => answer.map(drop),
            Now::Ask { pending, known: _ } => pending.await.map(drop),
        }
    }

    fn now(self: &Arc<Self>) -> Now {
        let times = &self.opener.times;
        let mut inner = self.inner.lock();
        let known = match &inner.standing {
            Standing::Broken { why, since } if since.elapsed() < times.broken => {
                return Now::Answer(Err(why.clone()));
            }
            Standing::Open { table, looked, .. } => Some((Arc::clone(table), looked.elapsed())),
            Standing::Broken { .. } | Standing::Closed => None,
        };
        if let Some((table, age)) = &known
            && *age < times.fresh
        {
            return Now::Answer(Ok(Arc::clone(table)));
        }
        let pending = inner.pending.get_or_insert_with(|| self.begin()).clone();
        match known {
            // The look goes on by itself.
            Some((table, age)) if age < times.stale => Now::Answer(Ok(table)),
            known => Now::Ask { pending, known: known.map(|(table, _)| table) },
        }
    }

    fn begin(self: &Arc<Self>) -> Pending {
        let slot = Arc::clone(self);
        let work = self.opener.runtime.spawn(async move {
            let done = Done(slot);
            done.0.work().await
        });
        async move { work.await.unwrap_or_else(|error| Err(Unopened::Away(error.to_string().into()))) }.boxed().shared()
    }

    async fn work(&self) -> Outcome {
        let standing = self.inner.lock().standing.clone();
        let before = match standing {
            Standing::Open { table, stamp, .. } => match self.opener.look(&self.table, &table).await {
                Ok(now) if now == stamp => return self.settle(Ok((table, stamp))),
                Ok(_) => Some((table, stamp)),
                Err(Unopened::Away(cause)) => return self.stay(table, stamp, &cause),
                Err(beyond @ Unopened::TooMuch(_)) => return self.settle(Err(beyond)),
            },
            Standing::Broken { .. } | Standing::Closed => None,
        };
        match (self.opener.open(&self.table).await, before) {
            (Err(Unopened::Away(cause)), Some((table, stamp))) => self.stay(table, stamp, &cause),
            (opened, _) => self.settle(opened),
        }
    }

    /// Goes on with what was there before: its files may be back when they are read.
    fn stay(&self, table: Arc<ListingTable>, stamp: Stamp, cause: &str) -> Outcome {
        let mut inner = self.inner.lock();
        inner.warn(&self.table, cause);
        inner.standing = Standing::Open { table: Arc::clone(&table), stamp, looked: Instant::now() };
        Ok(table)
    }

    fn settle(&self, outcome: Result<(Arc<ListingTable>, Stamp), Unopened>) -> Outcome {
        let mut inner = self.inner.lock();
        match outcome {
            Ok((table, stamp)) => {
                if std::mem::take(&mut inner.warned) {
                    tracing::info!(table = %Name(&self.table), "the table can be opened again");
                }
                inner.standing = Standing::Open { table: Arc::clone(&table), stamp, looked: Instant::now() };
                Ok(table)
            }
            Err(why) => {
                inner.warn(&self.table, &why.to_string());
                inner.standing = Standing::Broken { why: why.clone(), since: Instant::now() };
                Err(why)
            }
        }
    }
}

impl Inner {
    /// Once until it is well again.
    fn warn(&mut self, table: &Table, cause: &str) {
        if !std::mem::replace(&mut self.warned, true) {
            tracing::warn!(table = %Name(table), cause, "a configured table cannot be opened");
        }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("table", &self.table).finish_non_exhaustive()
    }
}

enum Now {
    Answer(Outcome),
    Ask { pending: Pending, known: Option<Arc<ListingTable>> },
}

/// Makes room for the next look, however this one ended.
struct Done(Arc<Slot>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.inner.lock().pending = None;
    }
}

/// A table's whole name.
pub(super) struct Name<'a>(pub(super) &'a Table);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0.catalog, self.0.schema, self.0.name)
    }
}

fn command(table: &Table) -> CreateExternalTable {
    CreateExternalTable {
        schema: Arc::new(DFSchema::empty()),
        name: reference(table),
        locations: vec![table.location.to_string()],
        file_type: file_type(table.format).to_owned(),
        table_partition_cols: Vec::new(),
        if_not_exists: false,
        or_replace: false,
        temporary: false,
        definition: None,
        order_exprs: Vec::new(),
        unbounded: false,
        options: table.options.iter().map(|(key, value)| (format_option(key), value.clone())).collect(),
        constraints: Constraints::default(),
        column_defaults: HashMap::new(),
    }
}

fn reference(table: &Table) -> TableReference {
    TableReference::full(table.catalog.clone(), table.schema.clone(), table.name.clone())
}

fn file_type(format: Format) -> &'static str {
    match format {
        Format::Arrow => "ARROW",
        Format::Avro => "AVRO",
        Format::Csv => "CSV",
        Format::Json => "JSON",
        Format::Parquet => "PARQUET",
    }
}

/// Options of a configured table are its format's; the engine wants that said.
fn format_option(key: &str) -> String {
    if key.starts_with("format.") { key.to_owned() } else { format!("format.{key}") }
}

fn partition_type(kind: PartitionType) -> DataType {
    match kind {
        PartitionType::Bigint => DataType::Int64,
        PartitionType::Date => DataType::Date32,
        PartitionType::Int => DataType::Int32,
        PartitionType::Varchar => DataType::Utf8,
    }
}

/// Tables that are looked at at the same time, whoever asks for them.
const AT_A_TIME: usize = 32;
