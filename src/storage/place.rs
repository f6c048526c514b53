//! Where rows and records lie in a store, and the steps that read and write them, each with a deadline.
//!
//! Must not remember anything, and chooses no name that is not a record's or random.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use datafusion::execution::object_store::ObjectStoreRegistry;
use datafusion::object_store::path::Path;
use datafusion::object_store::{
    Error, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, PutResult,
    Result as Stored,
};
use futures::{StreamExt, TryStreamExt};
use percent_encoding::percent_decode_str;
use std::sync::Arc;
use tokio::time::timeout;
use url::Url;

use super::record::{DataId, Record};
use super::{FullName, StorageError};
use crate::stores::Stores;

/// One prefix of one store.
pub(super) struct Place {
    store: Arc<dyn ObjectStore>,
    url: Url,
    prefix: Path,
}

/// The newest record of a name.
pub(super) struct Newest {
    pub(super) version: u64,
    pub(super) record: Record,
    /// How many records of that name are still there.
    pub(super) records: usize,
}

/// How a record was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    Done,
    /// Somebody else has put one of that version.
    TooLate,
}

impl Place {
    /// The place that `url` names, which ends with `/`; a folder is made where it is not there.
    pub(super) fn open(url: Url, stores: &Stores) -> Result<Self, StorageError> {
        let unusable = |error: &dyn fmt::Display| StorageError::Place(error.to_string());
        let url = match url.to_file_path() {
            // As locations are resolved, so that they can be compared.
            Ok(folder) => std::fs::create_dir_all(&folder)
                .and_then(|()| folder.canonicalize())
                .map_err(|error| unusable(&error))
                .and_then(|real| Url::from_directory_path(real).map_err(|()| unusable(&"it is no URL")))?,
            Err(()) => url,
        };
        let store = stores.get_store(&url).map_err(|error| unusable(&error.strip_backtrace()))?;
        let prefix = Path::from_url_path(url.path()).map_err(|error| unusable(&error))?;
        Ok(Self { store, url, prefix })
    }

    /// Whether `other` is in this place, or this place in `other`.
    pub(super) fn overlaps(&self, other: &Url) -> bool {
        let (own, other) = (self.url.as_str(), other.as_str());
        own.starts_with(other) || other.starts_with(own)
    }

    /// The folder of some rows.
    pub(super) fn url_of(&self, data: &DataId) -> Result<Url, StorageError> {
        self.url.join(&format!("{DATA}/{}/", data.as_str())).map_err(|error| StorageError::Place(error.to_string()))
    }

    /// Writes rows as the one file of their folder.
    pub(super) async fn write(&self, data: &DataId, content: Vec<u8>) -> Result<(), StorageError> {
        let path = self.data().join(data.as_str()).join("rows.parquet");
        step(self.store.put(&path, PutPayload::from(content))).await.map(drop)
    }

    /// Removes rows.
    pub(super) async fn remove(&self, data: &DataId) -> Result<(), StorageError> {
        let folder = self.data().join(data.as_str());
        let files = self.store.list(Some(&folder)).map_ok(|file| file.location).boxed();
        let mut removed = self.store.delete_stream(files);
        while step(removed.try_next()).await?.is_some() {}
        if let Ok(folder) = self.url_of(data)?.to_file_path() {
            // Stores have no folders; a disk has, and one with something in it stays.
            drop(std::fs::remove_dir(folder));
        }
        Ok(())
    }

    /// Every file of rows, and whose it is.
    pub(super) async fn each_file(&self, mut each: impl FnMut(DataId, ObjectMeta)) -> Result<(), StorageError> {
        let data = self.data();
        self.list(&data, |file| {
            let id = file.location.prefix_match(&data).and_then(|mut parts| DataId::parse(parts.next()?.as_ref()));
            if let Some(id) = id {
                each(id, file);
            }
        })
        .await
    }

    /// Every record, and what it is of.
    pub(super) async fn each_record(
        &self,
        mut each: impl FnMut(FullName, u64, ObjectMeta),
    ) -> Result<(), StorageError> {
        let records = self.records();
        self.list(&records, |file| {
            if let Some((name, version)) = record_name(&records, &file.location) {
                each(name, version, file);
            }
        })
        .await
    }

    /// The version of the newest record of each name.
    pub(super) async fn newest_of_all(&self) -> Result<BTreeMap<FullName, u64>, StorageError> {
        let mut newest = BTreeMap::new();
        self.each_record(|name, version, _| {
            let known = newest.entry(name).or_insert(version);
            *known = version.max(*known);
        })
        .await?;
        Ok(newest)
    }

    /// The newest record of `name`, if there is any.
    pub(super) async fn newest(&self, name: &FullName) -> Result<Option<Newest>, StorageError> {
        let all = self.records();
        let (mut newest, mut records) = (None, 0_usize);
        self.list(&self.records_of(name), |file| {
            newest = newest.max(record_name(&all, &file.location).map(|(_, version)| version));
            records = records.saturating_add(1);
        })
        .await?;
        match newest {
            Some(version) => Ok(Some(Newest { version, record: self.get(name, version).await?, records })),
            None => Ok(None),
        }
    }

    pub(super) async fn get(&self, name: &FullName, version: u64) -> Result<Record, StorageError> {
        let path = self.record_at(name, version);
        let found: GetResult = step(self.store.get(&path)).await?;
        if found.meta.size > MAX_RECORD {
            return Err(StorageError::Record(path.to_string(), "it is too large".to_owned()));
        }
        let text = step(found.bytes()).await?;
        Record::parse(&text).map_err(|error| StorageError::Record(path.to_string(), error))
    }

    /// Puts a record where there is none.
    pub(super) async fn put(&self, name: &FullName, version: u64, text: &str) -> Result<Put, StorageError> {
        let path = self.record_at(name, version);
        let payload = PutPayload::from(text.to_owned().into_bytes());
        let put: Stored<PutResult> =
            in_time(self.store.put_opts(&path, payload, PutOptions::from(PutMode::Create))).await?;
        match put {
            Ok(_) => Ok(Put::Done),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(Put::TooLate),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a record.
    pub(super) async fn forget(&self, name: &FullName, version: u64) -> Result<(), StorageError> {
        step(self.store.delete(&self.record_at(name, version))).await
    }

    async fn list(&self, below: &Path, mut each: impl FnMut(ObjectMeta)) -> Result<(), StorageError> {
        let mut files = self.store.list(Some(below));
        while let Some(file) = step(files.try_next()).await? {
            each(file);
        }
        Ok(())
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
}

async fn step<T>(work: impl Future<Output = Stored<T>>) -> Result<T, StorageError> {
    Ok(in_time(work).await??)
}

async fn in_time<T>(work: impl Future<Output = T>) -> Result<T, StorageError> {
    timeout(STEP, work).await.map_err(|_| StorageError::Late)
}

/// The name and the version that a record's place tells; other files are none of ours.
fn record_name(records: &Path, file: &Path) -> Option<(FullName, u64)> {
    let mut parts = file.prefix_match(records)?;
    // A store's path has its parts escaped.
    let mut part = || percent_decode_str(parts.next()?.as_ref()).decode_utf8().ok().map(Cow::into_owned);
    let name = FullName { catalog: part()?, schema: part()?, table: part()? };
    let version = part()?.strip_suffix(".json")?.parse().ok()?;
    Some((name, version))
}

const DATA: &str = "data";
const TABLES: &str = "tables";
/// In bytes. The widest table there may be, with long names.
const MAX_RECORD: u64 = 4 * 1024 * 1024;
/// What one request to the store may take, its client's own retries included.
const STEP: Duration = Duration::from_secs(30);
