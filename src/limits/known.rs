//! Sources that have lately signed in with a name, and their own failures with it.
//!
//! Bounded per name, so that an account of one's own cannot crowd out those of others, and in total. Must not hold a
//! name: a keyed hash stands for it.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;

use super::Exceeded;
use super::failures::{LONGEST_DELAY, Record};
use super::rate::Rate;
use super::source::Source;

pub(super) struct Known {
    limit: &'static str,
    rate: Rate,
    most: usize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    names: HashMap<u64, Vec<Home>>,
    homes: usize,
}

/// Where a name has signed in from.
struct Home {
    source: Source,
    seen: Duration,
    failures: Record,
}

impl Known {
    pub(super) fn new(limit: &'static str, rate: Rate, most: usize) -> Self {
        Self { limit, rate, most, table: Mutex::default() }
    }

    /// None if the source is not known for the name.
    pub(super) fn may_try(&self, name: u64, source: Source, now: Duration) -> Option<Result<(), Exceeded>> {
        let table = self.table.lock();
        let home = table.names.get(&name)?.iter().find(|home| home.is(source, now))?;
        Some(home.failures.may_try(self.limit, now))
    }

    /// Whether it was counted here: the source is known for the name.
    pub(super) fn failed(&self, name: u64, source: Source, now: Duration) -> bool {
        let mut table = self.table.lock();
        let homes = table.names.get_mut(&name).map(Vec::as_mut_slice).unwrap_or_default();
        let Some(home) = homes.iter_mut().find(|home| home.is(source, now)) else { return false };
        // The delay is told to whoever tries it next.
        let _told_later = home.failures.fail(self.limit, self.rate, LONGEST_DELAY, now);
        true
    }

    /// Without room for another source, the name is limited in common, as before.
    pub(super) fn remember(&self, name: u64, source: Source, now: Duration) {
        let fresh = Home { source, seen: now, failures: Record::default() };
        let mut table = self.table.lock();
        let Table { names, homes: total } = &mut *table;
        let homes = names.get_mut(&name).map(Vec::as_mut_slice).unwrap_or_default();
        let replaced = if let Some(same) = homes.iter().position(|home| home.source == source) {
            homes.get_mut(same)
        } else if homes.len() >= HOMES_PER_NAME {
            homes.iter_mut().min_by_key(|home| home.seen)
        } else {
            None
        };
        if let Some(home) = replaced {
            *home = fresh;
        } else if *total < self.most {
            names.entry(name).or_default().push(fresh);
            *total = total.saturating_add(1);
        }
    }

    pub(super) fn sweep(&self, now: Duration) {
        let mut table = self.table.lock();
        let Table { names, homes: total } = &mut *table;
        names.retain(|_, homes| {
            homes.retain(|home| home.is(home.source, now));
            !homes.is_empty()
        });
        names.shrink_to_fit();
        *total = names.values().map(Vec::len).fold(0, usize::saturating_add);
    }

    pub(super) fn len(&self) -> usize {
        self.table.lock().homes
    }
}

impl Home {
    fn is(&self, source: Source, now: Duration) -> bool {
        self.source == source && now.saturating_sub(self.seen) < KNOWN_FOR
    }
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known").field("sources", &self.len()).finish_non_exhaustive()
    }
}

pub(super) const HOMES_PER_NAME: usize = 16;
/// Longer than a weekend and a few days of leave.
pub(super) const KNOWN_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);
