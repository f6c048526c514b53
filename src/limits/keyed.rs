//! One rate for each of many keys, in bounded memory.
//!
//! Beyond the bound a key that has no bucket yet uses one that all such keys share: closed, but never one at the cost
//! of a key that is known. Must not know what a key stands for.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use governor::RateLimiter;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::keyed::{DashMapStateStore, ShrinkableKeyedStateStore};
use governor::state::{InMemoryState, NotKeyed, StateStore};
use parking_lot::Mutex;

use super::rate::Rate;
use super::ticks::Ticks;
use super::{Exceeded, FULL_SWEEP_EVERY};

pub(super) struct Keyed<K: Hash + Eq + Clone> {
    limit: &'static str,
    ticks: Ticks,
    buckets: Arc<Buckets<K>>,
    limiter: RateLimiter<K, Store<K>, Ticks, NoOpMiddleware<Duration>>,
    swept: Mutex<Duration>,
}

impl<K: Hash + Eq + Clone> Keyed<K> {
    pub(super) fn new(limit: &'static str, rate: Rate, most: usize, ticks: Ticks) -> Self {
        let buckets = Arc::new(Buckets { most, own: DashMapStateStore::default(), shared: InMemoryState::default() });
        let limiter = RateLimiter::new(rate.quota(), Store(Arc::clone(&buckets)), ticks.clone());
        Self { limit, swept: Mutex::new(ticks.now()), ticks, buckets, limiter }
    }

    /// Counts one for `key`.
    pub(super) fn check(&self, key: &K) -> Result<(), Exceeded> {
        if !self.buckets.own.contains_key(key) && self.buckets.is_full() && self.is_sweep_due() {
            self.sweep();
        }
        let wait = |until: governor::NotUntil<Duration>| until.wait_time_from(self.ticks.now());
        self.limiter.check_key(key).map_err(|until| Exceeded::new(self.limit, wait(until)))
    }

    pub(super) fn sweep(&self) {
        self.limiter.retain_recent();
        self.limiter.shrink_to_fit();
    }

    pub(super) fn len(&self) -> usize {
        self.limiter.len()
    }

    fn is_sweep_due(&self) -> bool {
        let now = self.ticks.now();
        let mut swept = self.swept.lock();
        let due = now.saturating_sub(*swept) >= FULL_SWEEP_EVERY;
        if due {
            *swept = now;
        }
        due
    }
}

impl<K: Hash + Eq + Clone> fmt::Debug for Keyed<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyed").field("limit", &self.limit).field("keys", &self.len()).finish_non_exhaustive()
    }
}

struct Buckets<K: Hash + Eq + Clone> {
    most: usize,
    own: DashMapStateStore<K>,
    shared: InMemoryState,
}

impl<K: Hash + Eq + Clone> Buckets<K> {
    fn is_full(&self) -> bool {
        self.own.len() >= self.most
    }
}

/// Buckets as the limiter asks for them.
struct Store<K: Hash + Eq + Clone>(Arc<Buckets<K>>);

impl<K: Hash + Eq + Clone> StateStore for Store<K> {
    type Key = K;

    fn measure_and_replace<T, F, E>(&self, key: &K, measure: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let Buckets { own, shared, .. } = &*self.0;
        if let Some(bucket) = own.get(key) {
            return bucket.measure_and_replace(&NotKeyed::NonKey, measure);
        }
        if self.0.is_full() {
            return shared.measure_and_replace(&NotKeyed::NonKey, measure);
        }
        own.measure_and_replace(key, measure)
    }
}

impl<K: Hash + Eq + Clone> ShrinkableKeyedStateStore<K> for Store<K> {
    fn retain_recent(&self, drop_below: Nanos) {
        ShrinkableKeyedStateStore::retain_recent(&self.0.own, drop_below);
    }

    fn shrink_to_fit(&self) {
        self.0.own.shrink_to_fit();
    }

    fn len(&self) -> usize {
        self.0.own.len()
    }

    fn is_empty(&self) -> bool {
        self.0.own.is_empty()
    }
}
