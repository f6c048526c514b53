//! Tables and views that SQL makes and that outlive their session: `[storage] managed`.
//!
//! Everything is below one prefix of one store. A table's rows are Parquet files below `data/`, which are never changed
//! once they are written; that the table exists is one small record below `tables/`, written last and in one step that
//! fails when somebody else was first. So a table is there whole or not at all, whatever ends in between, and several
//! gates may keep their tables in one place. A view is its record alone. Knows who made a table and must not decide who
//! may use it.

mod place;
mod record;
mod sweep;
mod tables;
mod temporary;
mod view;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use futures::{StreamExt, TryStreamExt};
use parking_lot::RwLock;
use portcullis_auth::{Clock, IdentityKey, TableName};
use tokio_util::sync::CancellationToken;
use url::Url;

use self::place::{Newest, Place, Put};
use self::record::{DataId, Record, State};
use self::tables::Kept;
use crate::config::Views;
use crate::stores::Stores;

pub(crate) use self::record::Definition;
pub use self::record::Maker;
pub(crate) use self::tables::WithKept;
pub(crate) use self::temporary::Temporary;
pub(crate) use self::view::KeptView;

/// What of it a gate has.
#[derive(Clone, Debug)]
pub enum Keeping {
    /// A place for tables.
    At(Arc<Storage>),
    /// None: statements that make tables are refused.
    Nowhere,
}

/// The place for tables, and what is known to be in it.
pub struct Storage {
    place: Place,
    known: RwLock<Arc<Known>>,
    bounds: Bounds,
    views: Views,
}

/// What all principals together may have in one place.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    tables: usize,
    /// With those of tables that were dropped lately.
    names: usize,
    /// Records of one name: how often it can be made before the sweep has come by.
    records: usize,
}

/// A table's whole name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FullName {
    pub(crate) catalog: String,
    pub(crate) schema: String,
    pub(crate) table: String,
}

impl FullName {
    /// As an authorizer is asked for it.
    pub(crate) fn as_name(&self) -> TableName<'_> {
        TableName { catalog: &self.catalog, schema: &self.schema, table: &self.table }
    }
}

impl From<TableName<'_>> for FullName {
    fn from(name: TableName<'_>) -> Self {
        let TableName { catalog, schema, table } = name;
        Self { catalog: catalog.to_owned(), schema: schema.to_owned(), table: table.to_owned() }
    }
}

type Known = BTreeMap<FullName, Entry>;

/// The newest record of a name, also of one that was dropped: the next is numbered after it.
#[derive(Clone, Debug)]
struct Entry {
    version: u64,
    state: Standing,
}

#[derive(Clone, Debug)]
enum Standing {
    Dropped,
    There(Arc<Kept>),
}

/// A place for a table's rows that belongs to no table yet.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    data: DataId,
    place: Url,
}

impl Draft {
    /// The folder for the files; ends with `/`.
    pub(crate) fn place(&self) -> &Url {
        &self.place
    }
}

/// What is published under a name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum New<'a> {
    /// A table whose rows are all written.
    Table(&'a Draft),
    /// A view.
    View(&'a Definition),
}

/// What a name must be for something to be published under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unless {
    /// Free.
    Taken,
    /// Whatever it is.
    Never,
}

/// Why something was not published.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unpublished {
    /// The name is somebody's.
    #[error("the name is taken")]
    Taken,
    /// There is no such table any more.
    #[error("there is no such table")]
    Gone,
    /// Others publish under the same name all the time.
    #[error("the name was changed by others at the same time")]
    Contended,
    /// There are as many tables, or names of tables, as there may be.
    #[error("there are too many tables")]
    Full,
    /// The name was made and dropped as often as it may be.
    #[error("the name was made too often")]
    Worn,
    /// What the store said; may hold places.
    #[error(transparent)]
    Store(#[from] StorageError),
}

/// Why the place for tables cannot be used. Holds places: for the operator.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The store failed.
    #[error("storage.managed: {0}")]
    Store(#[from] datafusion::object_store::Error),
    /// The store did not answer in time.
    #[error("storage.managed: the store does not answer in time")]
    Late,
    /// The place is not one of a store that is known.
    #[error("storage.managed: {0}")]
    Place(String),
    /// A record is not one that this version wrote.
    #[error("storage.managed: the record `{0}` cannot be read: {1}")]
    Record(String, String),
    /// The operating system gave no random bytes.
    #[error("storage.managed: the operating system gave no random bytes")]
    Random,
}

impl Storage {
    /// Opens the place and learns what is in it. `place` ends with `/`.
    ///
    /// # Errors
    ///
    /// When the store does not answer, or holds records that this version does not understand.
    pub async fn open(place: Url, stores: &Stores) -> Result<Self, StorageError> {
        let storage =
            Self { place: Place::open(place, stores)?, known: RwLock::default(), bounds: BOUNDS, views: Views::Kept };
        storage.refresh().await?;
        Ok(storage)
    }

    /// The same, with views as the configuration says.
    #[must_use]
    pub fn with_views(self, views: Views) -> Self {
        Self { views, ..self }
    }

    /// What becomes of a view.
    pub(crate) fn views(&self) -> Views {
        self.views
    }

    /// Whether a statement that names `location` would reach into everybody's tables.
    pub(crate) fn overlaps(&self, location: &Url) -> bool {
        self.place.overlaps(location)
    }

    /// A new place for rows.
    pub(crate) fn draft(&self) -> Result<Draft, StorageError> {
        let data = DataId::random().ok_or(StorageError::Random)?;
        let place = self.place.url_of(&data)?;
        Ok(Draft { data, place })
    }

    /// From here on `name` is `new`, with these columns.
    pub(crate) async fn publish(
        &self,
        name: &FullName,
        new: New<'_>,
        schema: &SchemaRef,
        maker: &IdentityKey,
        unless: Unless,
    ) -> Result<(), Unpublished> {
        let maker = Maker::from(maker);
        let record = match new {
            New::Table(draft) => Record::table(maker, draft.data.clone(), schema),
            New::View(definition) => Record::view(maker, definition.clone(), schema),
        };
        let text = record.to_json().map_err(|error| StorageError::Record(name.table.clone(), error.to_string()))?;
        for _ in 0..ATTEMPTS {
            let (version, there) = match self.place.newest(name).await? {
                // A store may have done what it did not say it did.
                Some(Newest { version, record: found, .. }) if found == record => {
                    self.learn(name, Entry { version, state: self.standing(&record)? });
                    return Ok(());
                }
                Some(newest) if newest.records >= self.bounds.records => return Err(Unpublished::Worn),
                Some(newest) => (newest.version, !newest.record.is_dropped()),
                None => (0, false),
            };
            if there && unless == Unless::Taken {
                return Err(Unpublished::Taken);
            }
            if !there && !self.has_room_for(name) {
                return Err(Unpublished::Full);
            }
            let version = version.saturating_add(1);
            if self.place.put(name, version, &text).await? == Put::Done {
                self.learn(name, Entry { version, state: self.standing(&record)? });
                return Ok(());
            }
        }
        Err(Unpublished::Contended)
    }

    /// The table of a draft whose rows are all written, for the session that made it.
    pub(crate) fn temporary(draft: &Draft, schema: &SchemaRef, lasts: Duration) -> Result<Temporary, StorageError> {
        let table = tables::rows(draft.place.clone(), Arc::clone(schema));
        Ok(Temporary::new(table.map_err(|error| StorageError::Place(error.strip_backtrace()))?, lasts))
    }

    /// From here on there is nothing called `name`; a table's files go when nobody can be reading them any more.
    pub(crate) async fn withdraw(&self, name: &FullName) -> Result<(), Unpublished> {
        let record = Record::dropped();
        let text = record.to_json().map_err(|error| StorageError::Record(name.table.clone(), error.to_string()))?;
        for attempt in 0..ATTEMPTS {
            let version = match self.place.newest(name).await? {
                Some(newest) if !newest.record.is_dropped() => newest.version,
                Some(Newest { version, .. }) => {
                    self.learn(name, Entry { version, state: Standing::Dropped });
                    // By somebody else, or by the attempt before.
                    return if attempt == 0 { Err(Unpublished::Gone) } else { Ok(()) };
                }
                None => return Err(Unpublished::Gone),
            };
            let version = version.saturating_add(1);
            if self.place.put(name, version, &text).await? == Put::Done {
                self.learn(name, Entry { version, state: Standing::Dropped });
                return Ok(());
            }
        }
        Err(Unpublished::Contended)
    }

    /// Forgets a draft that became no table.
    pub(crate) async fn discard(&self, draft: &Draft) {
        if let Err(error) = self.place.remove(&draft.data).await {
            // The sweep finds it.
            tracing::warn!(%error, "the rows of a table that was not made are still there");
        }
    }

    /// Writes one file of a draft.
    pub(crate) async fn write(&self, draft: &Draft, content: Vec<u8>) -> Result<(), StorageError> {
        self.place.write(&draft.data, content).await
    }

    /// Keeps in step with what other gates do, and removes what nobody needs, until `stop`. `longest` is what a
    /// statement may take.
    pub(crate) async fn keep_in_step(
        self: Arc<Self>,
        clock: Arc<dyn Clock>,
        longest: Duration,
        stop: CancellationToken,
    ) {
        let abandoned = Self::abandoned(longest);
        let in_step = async {
            let mut last_sweep = tokio::time::Instant::now();
            loop {
                tokio::time::sleep(REFRESH).await;
                if let Err(error) = self.refresh().await {
                    tracing::warn!(%error, "the kept tables cannot be looked at");
                }
                if last_sweep.elapsed() < SWEEP {
                    continue;
                }
                last_sweep = tokio::time::Instant::now();
                let Some(limit) = clock.now().checked_sub(abandoned) else { continue };
                if let Err(error) = sweep::sweep(&self.place, limit).await {
                    tracing::warn!(%error, "the files of dropped tables cannot be removed");
                }
            }
        };
        let _stopped = stop.run_until_cancelled(in_step).await;
    }

    /// How old rows are at least when nobody can be reading them that no table names. `longest` is what a statement may
    /// take.
    pub(crate) fn abandoned(longest: Duration) -> Duration {
        longest.saturating_mul(2).saturating_add(Temporary::LASTS).max(ABANDONED)
    }

    /// Learns what is there now.
    pub(crate) async fn refresh(&self) -> Result<(), StorageError> {
        let before = self.now();
        let newest = self.place.newest_of_all().await?;
        let mut known: Known = futures::stream::iter(newest)
            .map(|(name, version)| {
                let before = before.get(&name).filter(|entry| entry.version >= version).cloned();
                async move {
                    let entry = match before {
                        Some(entry) => entry,
                        None => Entry { version, state: self.standing(&self.place.get(&name, version).await?)? },
                    };
                    Ok::<_, StorageError>((name, entry))
                }
            })
            .buffer_unordered(AT_A_TIME)
            .try_collect()
            .await?;
        let mut now = self.known.write();
        // What was published here meanwhile.
        for (name, entry) in now.iter() {
            let newer = before.get(name).is_none_or(|old| old.version < entry.version);
            if newer && known.get(name).is_none_or(|found| found.version < entry.version) {
                known.insert(name.clone(), entry.clone());
            }
        }
        *now = Arc::new(known);
        Ok(())
    }

    fn kept(&self, name: TableName<'_>) -> Option<Arc<Kept>> {
        match &self.now().get(&FullName::from(name))?.state {
            Standing::Dropped => None,
            Standing::There(kept) => Some(Arc::clone(kept)),
        }
    }

    /// The tables of a schema, by name.
    fn in_schema(&self, catalog: &str, schema: &str) -> Vec<String> {
        let now = self.now();
        let first = FullName { catalog: catalog.to_owned(), schema: schema.to_owned(), table: String::new() };
        let own = now.range(first..).take_while(|(name, _)| name.catalog == catalog && name.schema == schema);
        own.filter(|(_, entry)| matches!(entry.state, Standing::There(_))).map(|(name, _)| name.table.clone()).collect()
    }

    fn has_room_for(&self, name: &FullName) -> bool {
        let now = self.now();
        tables(&now) < self.bounds.tables && (now.contains_key(name) || now.len() < self.bounds.names)
    }

    fn now(&self) -> Arc<Known> {
        Arc::clone(&self.known.read())
    }

    fn learn(&self, name: &FullName, entry: Entry) {
        let mut known = self.known.write();
        // A refresh may have seen a newer one.
        if known.get(name).is_none_or(|old| old.version < entry.version) {
            Arc::make_mut(&mut known).insert(name.clone(), entry);
        }
    }

    fn standing(&self, record: &Record) -> Result<Standing, StorageError> {
        Ok(match &record.state {
            State::Dropped => Standing::Dropped,
            State::Table { maker, data, schema } => {
                let kept = Kept::table(maker.clone(), self.place.url_of(data)?, Arc::clone(schema));
                let kept = kept.map_err(|error| StorageError::Place(error.strip_backtrace()))?;
                Standing::There(Arc::new(kept))
            }
            State::View { maker, definition, schema } => {
                let view = KeptView::new(definition.clone(), Arc::clone(schema));
                Standing::There(Arc::new(Kept::view(maker.clone(), view)))
            }
        })
    }
}

fn tables(known: &Known) -> usize {
    known.values().filter(|entry| matches!(entry.state, Standing::There(_))).count()
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Storage").field("tables", &tables(&self.now())).finish_non_exhaustive()
    }
}

const BOUNDS: Bounds = Bounds { tables: 10_000, names: 20_000, records: 1_000 };
/// Records that are read at the same time.
const AT_A_TIME: usize = 16;
/// Tries to publish under a name that others publish under.
const ATTEMPTS: usize = 8;
/// How long another gate's table stays unknown.
const REFRESH: Duration = Duration::from_secs(10);
const ABANDONED: Duration = Duration::from_secs(24 * 3600);
const SWEEP: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests;
