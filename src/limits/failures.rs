//! Failures per key: a quota, and beyond it a delay that doubles.
//!
//! Must not know what a key stands for, nor whether an attempt was any good: it is told.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;

use super::rate::Rate;
use super::{Exceeded, FULL_SWEEP_EVERY};

pub(super) struct Failures<K> {
    limit: &'static str,
    rate: Rate,
    most: usize,
    table: Mutex<Table<K>>,
}

struct Table<K> {
    own: HashMap<K, Record>,
    /// Of all keys that came when the table was full.
    shared: Record,
    swept: Duration,
}

impl<K: Hash + Eq> Failures<K> {
    pub(super) fn new(limit: &'static str, rate: Rate, most: usize) -> Self {
        let table = Table { own: HashMap::new(), shared: Record::default(), swept: Duration::ZERO };
        Self { limit, rate, most, table: Mutex::new(table) }
    }

    pub(super) fn may_try(&self, key: &K, now: Duration) -> Result<(), Exceeded> {
        let table = self.table.lock();
        let record = match table.own.get(key) {
            Some(record) => record,
            None if table.own.len() >= self.most => &table.shared,
            None => return Ok(()),
        };
        record.may_try(self.limit, now)
    }

    pub(super) fn failed(&self, key: K, now: Duration) -> Result<(), Exceeded> {
        let mut table = self.table.lock();
        let Table { own, shared, swept } = &mut *table;
        if own.len() >= self.most && now.saturating_sub(*swept) >= FULL_SWEEP_EVERY && !own.contains_key(&key) {
            *swept = now;
            own.retain(|_, record| !record.is_at_rest(self.rate, now));
        }
        if own.len() >= self.most && !own.contains_key(&key) {
            // No growth here: it would let a spray keep out everybody who is new for long after it has ended.
            return shared.fail(self.limit, self.rate, FIRST_DELAY, now);
        }
        own.entry(key).or_default().fail(self.limit, self.rate, LONGEST_DELAY, now)
    }

    pub(super) fn sweep(&self, now: Duration) {
        let mut table = self.table.lock();
        table.own.retain(|_, record| !record.is_at_rest(self.rate, now));
        table.own.shrink_to_fit();
    }

    pub(super) fn len(&self) -> usize {
        self.table.lock().own.len()
    }
}

impl<K> fmt::Debug for Failures<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failures").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// What is remembered of one key's failures.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Record {
    /// When the whole quota is there again; each failure moves it by its share of the period.
    replenished: Duration,
    /// Failures beyond the quota.
    beyond: u32,
    /// No attempt before this.
    until: Duration,
}

impl Record {
    pub(super) fn may_try(&self, limit: &'static str, now: Duration) -> Result<(), Exceeded> {
        match self.until.saturating_sub(now) {
            Duration::ZERO => Ok(()),
            wait => Err(Exceeded::new(limit, wait)),
        }
    }

    /// Counts a failure; `longest` bounds the delay.
    pub(super) fn fail(
        &mut self,
        limit: &'static str,
        rate: Rate,
        longest: Duration,
        now: Duration,
    ) -> Result<(), Exceeded> {
        if self.is_at_rest(rate, now) {
            *self = Self::default();
        }
        // Once beyond the quota, only a quiet time leads back: one attempt now and then, as the quota would allow it,
        // must not keep the delay short.
        if self.beyond == 0 && self.take(rate, now) {
            return Ok(());
        }
        let delay = FIRST_DELAY.saturating_mul(2_u32.saturating_pow(self.beyond)).min(longest);
        self.beyond = self.beyond.saturating_add(1);
        self.until = now.saturating_add(delay);
        Err(Exceeded::new(limit, delay))
    }

    /// Nothing in it that a fresh record would not say.
    pub(super) fn is_at_rest(&self, rate: Rate, now: Duration) -> bool {
        let rest = if self.beyond == 0 { self.replenished } else { self.until.saturating_add(rate.period()) };
        rest <= now
    }

    fn take(&mut self, rate: Rate, now: Duration) -> bool {
        let next = self.replenished.max(now).saturating_add(rate.each());
        let room = next.saturating_sub(now) <= rate.period();
        if room {
            self.replenished = next;
        }
        room
    }
}

const FIRST_DELAY: Duration = Duration::from_secs(1);
pub(super) const LONGEST_DELAY: Duration = Duration::from_secs(15 * 60);
