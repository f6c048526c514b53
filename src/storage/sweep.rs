//! Removes what nobody needs any more: rows of tables that were dropped, replaced or never made, and records that newer
//! ones have replaced.
//!
//! Nothing goes before it is long over: a query that began before may still read the rows, and another gate may be
//! writing them. Must not remove a file that it cannot explain.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use datafusion::object_store::ObjectStoreExt;
use datafusion::object_store::path::Path;
use futures::{StreamExt, TryStreamExt};

use super::record::{DataId, State};
use super::{FullName, Storage, StorageError, record_name};

/// One round. `limit` is further back than any statement began.
pub(super) async fn sweep(storage: &Storage, limit: SystemTime) -> Result<(), StorageError> {
    let old = |file: &datafusion::object_store::ObjectMeta| SystemTime::from(file.last_modified) < limit;

    // ORDER: rows are listed before records, so that those of a table that is published meanwhile are seen to be used.
    let data = storage.data();
    let mut unused: BTreeMap<DataId, bool> = BTreeMap::new();
    let mut files = storage.store.list(Some(&data));
    while let Some(file) = files.try_next().await? {
        let Some(id) = data_id(&data, &file.location) else { continue };
        let all_old = unused.entry(id).or_insert(true);
        *all_old = *all_old && old(&file);
    }

    let records = storage.records();
    let mut versions: BTreeMap<FullName, BTreeMap<u64, bool>> = BTreeMap::new();
    let mut files = storage.store.list(Some(&records));
    while let Some(file) = files.try_next().await? {
        let Some((name, version)) = record_name(&records, &file.location) else { continue };
        versions.entry(name).or_default().insert(version, old(&file));
    }

    let mut used = BTreeSet::new();
    for (name, versions) in versions {
        let mut newer_is_old = false;
        for (index, (version, is_old)) in versions.into_iter().rev().enumerate() {
            let record = storage.get(&name, version).await?;
            // A record is over once the next one is old; the last one of a name only if it says that there is nothing.
            let over = newer_is_old || (index == 0 && is_old && !record.is_table());
            newer_is_old = newer_is_old || is_old;
            if over {
                storage.store.delete(&storage.record_at(&name, version)).await?;
            } else if let State::Table { data, .. } = record.state {
                used.insert(data);
            }
        }
    }
    for (id, all_old) in unused {
        if all_old && !used.contains(&id) {
            remove(storage, &id).await?;
        }
    }
    Ok(())
}

/// Removes the rows of one table.
pub(super) async fn remove(storage: &Storage, id: &DataId) -> Result<(), StorageError> {
    let folder = storage.data().join(id.as_str());
    let files = storage.store.list(Some(&folder)).map_ok(|file| file.location).boxed();
    storage.store.delete_stream(files).try_collect::<Vec<Path>>().await?;
    if let Ok(folder) = storage.place_of(id)?.to_file_path() {
        // Stores have no folders; a disk has, and one with something in it stays.
        drop(std::fs::remove_dir(folder));
    }
    Ok(())
}

fn data_id(data: &Path, file: &Path) -> Option<DataId> {
    DataId::parse(file.prefix_match(data)?.next()?.as_ref())
}
