//! Removes what nobody needs any more: rows of tables that were dropped, replaced or never made, and records that newer
//! ones have replaced.
//!
//! Nothing goes before it is long over: a query that began before may still read the rows, and another gate may be
//! writing them. Must not remove a file that it cannot explain.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use super::place::Place;
use super::record::{DataId, State};
use super::{FullName, StorageError};

/// One round. `limit` is further back than any statement began.
pub(super) async fn sweep(place: &Place, limit: SystemTime) -> Result<(), StorageError> {
    // ORDER: rows are listed before records, so that those of a table that is published meanwhile are seen to be used.
    let mut unused: BTreeMap<DataId, bool> = BTreeMap::new();
    place
        .each_file(|id, file| {
            let all_old = unused.entry(id).or_insert(true);
            *all_old = *all_old && SystemTime::from(file.last_modified) < limit;
        })
        .await?;
    let mut versions: BTreeMap<FullName, BTreeMap<u64, bool>> = BTreeMap::new();
    place
        .each_record(|name, version, file| {
            versions.entry(name).or_default().insert(version, SystemTime::from(file.last_modified) < limit);
        })
        .await?;

    let mut used = BTreeSet::new();
    for (name, versions) in versions {
        let mut newer_is_old = false;
        for (index, (version, is_old)) in versions.into_iter().rev().enumerate() {
            let record = place.get(&name, version).await?;
            // A record is over once the next one is old; the last one of a name only if it says that there is nothing.
            let over = newer_is_old || (index == 0 && is_old && record.is_dropped());
            newer_is_old = newer_is_old || is_old;
            if over {
                place.forget(&name, version).await?;
            } else if let State::Table { data, .. } = record.state {
                used.insert(data);
            }
        }
    }
    for (id, all_old) in unused {
        if all_old && !used.contains(&id) {
            place.remove(&id).await?;
        }
    }
    Ok(())
}
