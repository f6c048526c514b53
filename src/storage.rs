//! Tables that SQL makes and that outlive their session: `[storage] managed`.
//!
//! Everything is below one prefix of one store. A table's rows are Parquet files below `data/`, which are never changed
//! once they are written; that the table exists is one small record below `tables/`, written last and in one step that
//! fails when somebody else was first. So a table is there whole or not at all, whatever ends in between, and several
//! gates may keep their tables in one place. Knows who made a table and must not decide who may use it.

mod record;
mod sweep;
mod tables;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::object_store::ObjectStoreRegistry;
use datafusion::object_store::path::Path;
use datafusion::object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use futures::TryStreamExt;
use parking_lot::RwLock;
use percent_encoding::percent_decode_str;
use portcullis_auth::{Clock, IdentityKey, TableName};
use tokio_util::sync::CancellationToken;
use url::Url;

use self::record::{DataId, Record, State};
use self::tables::Kept;
use crate::stores::Stores;

pub use self::record::Maker;
pub(crate) use self::tables::WithKept;

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
    store: Arc<dyn ObjectStore>,
    place: Url,
    prefix: Path,
    known: RwLock<Arc<Known>>,
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

/// What a name must be for a table to be published under it.
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
    /// There are as many tables as there may be.
    #[error("there are {MAX_TABLES} tables")]
    Full,
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
        let unusable = |error: &dyn fmt::Display| StorageError::Place(error.to_string());
        if let Ok(folder) = place.to_file_path() {
            std::fs::create_dir_all(&folder).map_err(|error| unusable(&error))?;
        }
        let store = stores.get_store(&place).map_err(|error: DataFusionError| unusable(&error.strip_backtrace()))?;
        let prefix = Path::from_url_path(place.path()).map_err(|error| unusable(&error))?;
        let storage = Self { store, place, prefix, known: RwLock::default() };
        storage.refresh().await?;
        Ok(storage)
    }

    /// A new place for rows.
    pub(crate) fn draft(&self) -> Result<Draft, StorageError> {
        let data = DataId::random().ok_or(StorageError::Random)?;
        let place = self.place_of(&data)?;
        Ok(Draft { data, place })
    }

    /// Makes a draft whose rows are all written the table `name`.
    pub(crate) async fn publish(
        &self,
        name: &FullName,
        draft: &Draft,
        schema: &SchemaRef,
        maker: &IdentityKey,
        unless: Unless,
    ) -> Result<(), Unpublished> {
        let record = Record::table(Maker::from(maker), draft.data.clone(), schema);
        let text = record.to_json().map_err(|error| StorageError::Record(name.table.clone(), error.to_string()))?;
        for _ in 0..ATTEMPTS {
            let (version, there) = match self.newest(name).await? {
                // A store may have done what it did not say it did.
                Some((version, found)) if found == record => {
                    self.learn(name, Entry { version, state: self.standing(&record)? });
                    return Ok(());
                }
                Some((version, found)) => (version, found.is_table()),
                None => (0, false),
            };
            if there && unless == Unless::Taken {
                return Err(Unpublished::Taken);
            }
            if !there && self.count() >= MAX_TABLES {
                return Err(Unpublished::Full);
            }
            let version = version.saturating_add(1);
            if self.put(name, version, &text).await? == Put::Done {
                self.learn(name, Entry { version, state: self.standing(&record)? });
                return Ok(());
            }
        }
        Err(Unpublished::Contended)
    }

    /// From here on there is no table `name`; its files go when nobody can be reading them any more.
    pub(crate) async fn withdraw(&self, name: &FullName) -> Result<(), Unpublished> {
        let record = Record::dropped();
        let text = record.to_json().map_err(|error| StorageError::Record(name.table.clone(), error.to_string()))?;
        for attempt in 0..ATTEMPTS {
            let version = match self.newest(name).await? {
                Some((version, found)) if found.is_table() => version,
                Some((version, _)) => {
                    self.learn(name, Entry { version, state: Standing::Dropped });
                    // By somebody else, or by the attempt before.
                    return if attempt == 0 { Err(Unpublished::Gone) } else { Ok(()) };
                }
                None => return Err(Unpublished::Gone),
            };
            let version = version.saturating_add(1);
            if self.put(name, version, &text).await? == Put::Done {
                self.learn(name, Entry { version, state: Standing::Dropped });
                return Ok(());
            }
        }
        Err(Unpublished::Contended)
    }

    /// Forgets a draft that became no table.
    pub(crate) async fn discard(&self, draft: &Draft) {
        if let Err(error) = sweep::remove(self, &draft.data).await {
            // The sweep finds it.
            tracing::warn!(%error, "the rows of a table that was not made are still there");
        }
    }

    /// Writes one file of a draft.
    pub(crate) async fn write(&self, draft: &Draft, content: Vec<u8>) -> Result<(), StorageError> {
        let path = self.data().join(draft.data.as_str()).join("rows.parquet");
        self.store.put(&path, PutPayload::from(content)).await?;
        Ok(())
    }

    /// Keeps in step with what other gates do, and removes what nobody needs, until `stop`.
    pub(crate) async fn keep_in_step(
        self: Arc<Self>,
        clock: Arc<dyn Clock>,
        abandoned: Duration,
        stop: CancellationToken,
    ) {
        let mut last_sweep = tokio::time::Instant::now();
        while stop.run_until_cancelled(tokio::time::sleep(REFRESH)).await.is_some() {
            if let Err(error) = self.refresh().await {
                tracing::warn!(%error, "the kept tables cannot be looked at");
            }
            if last_sweep.elapsed() >= SWEEP {
                last_sweep = tokio::time::Instant::now();
                let Some(limit) = clock.now().checked_sub(abandoned) else { continue };
                if let Err(error) = sweep::sweep(&self, limit).await {
                    tracing::warn!(%error, "the files of dropped tables cannot be removed");
                }
            }
        }
    }

    /// Learns what is there now.
    pub(crate) async fn refresh(&self) -> Result<(), StorageError> {
        let before = self.now();
        let mut known = Known::new();
        for (name, version) in self.newest_of_all().await? {
            let entry = match before.get(&name).filter(|entry| entry.version >= version) {
                Some(entry) => entry.clone(),
                None => {
                    let record = self.get(&name, version).await?;
                    Entry { version, state: self.standing(&record)? }
                }
            };
            known.insert(name, entry);
        }
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

    fn count(&self) -> usize {
        self.now().values().filter(|entry| matches!(entry.state, Standing::There(_))).count()
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
                let kept = Kept::new(maker.clone(), self.place_of(data)?, Arc::clone(schema));
                let kept = kept.map_err(|error| StorageError::Place(error.strip_backtrace()))?;
                Standing::There(Arc::new(kept))
            }
        })
    }

    fn place_of(&self, data: &DataId) -> Result<Url, StorageError> {
        self.place.join(&format!("{DATA}/{}/", data.as_str())).map_err(|error| StorageError::Place(error.to_string()))
    }

    fn data(&self) -> Path {
        self.prefix.clone().join(DATA)
    }

    fn records(&self) -> Path {
        self.prefix.clone().join(TABLES)
    }

    fn records_of(&self, name: &FullName) -> Path {
        self.records().join(name.catalog.as_str()).join(name.schema.as_str()).join(name.table.as_str())
    }

    fn record_at(&self, name: &FullName, version: u64) -> Path {
        self.records_of(name).join(format!("{version:020}.json"))
    }

    /// The newest record of each name.
    async fn newest_of_all(&self) -> Result<BTreeMap<FullName, u64>, StorageError> {
        let mut newest = BTreeMap::new();
        let records = self.records();
        let mut listed = self.store.list(Some(&records));
        while let Some(file) = listed.try_next().await? {
            let Some((name, version)) = record_name(&records, &file.location) else { continue };
            let known = newest.entry(name).or_insert(version);
            *known = version.max(*known);
        }
        Ok(newest)
    }

    async fn newest(&self, name: &FullName) -> Result<Option<(u64, Record)>, StorageError> {
        let records = self.records();
        let of_name = self.records_of(name);
        let mut listed = self.store.list(Some(&of_name));
        let mut newest = None;
        while let Some(file) = listed.try_next().await? {
            newest = newest.max(record_name(&records, &file.location).map(|(_, version)| version));
        }
        match newest {
            Some(version) => Ok(Some((version, self.get(name, version).await?))),
            None => Ok(None),
        }
    }

    async fn get(&self, name: &FullName, version: u64) -> Result<Record, StorageError> {
        let path = self.record_at(name, version);
        let found = self.store.get(&path).await?;
        if found.meta.size > MAX_RECORD {
            return Err(StorageError::Record(path.to_string(), "it is too large".to_owned()));
        }
        let text = found.bytes().await?;
        Record::parse(&text).map_err(|error| StorageError::Record(path.to_string(), error))
    }

    async fn put(&self, name: &FullName, version: u64, text: &str) -> Result<Put, StorageError> {
        let options = PutOptions::from(PutMode::Create);
        let payload = PutPayload::from(text.to_owned().into_bytes());
        match self.store.put_opts(&self.record_at(name, version), payload, options).await {
            Ok(_) => Ok(Put::Done),
            Err(
                datafusion::object_store::Error::AlreadyExists { .. }
                | datafusion::object_store::Error::Precondition { .. },
            ) => Ok(Put::TooLate),
            Err(error) => Err(error.into()),
        }
    }
}

/// The name and the version that a record's place tells; other files are none of ours.
fn record_name(records: &Path, file: &Path) -> Option<(FullName, u64)> {
    let mut parts = file.prefix_match(records)?;
    let mut part = || parts.next().map(|part| decoded(part.as_ref()));
    let name = FullName { catalog: part()??, schema: part()??, table: part()?? };
    let version = part()??.strip_suffix(".json")?.parse().ok()?;
    Some((name, version))
}

/// A store's path has its parts escaped.
fn decoded(part: &str) -> Option<String> {
    percent_decode_str(part).decode_utf8().ok().map(Cow::into_owned)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Put {
    Done,
    TooLate,
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Storage").field("tables", &self.count()).finish_non_exhaustive()
    }
}

const DATA: &str = "data";
const TABLES: &str = "tables";
/// Tables of all principals together.
const MAX_TABLES: usize = 10_000;
/// In bytes. The widest table there may be, with long names.
const MAX_RECORD: u64 = 4 * 1024 * 1024;
/// Tries to publish under a name that others publish under.
const ATTEMPTS: usize = 8;
/// How long another gate's table stays unknown.
const REFRESH: Duration = Duration::from_secs(10);
const SWEEP: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests;
