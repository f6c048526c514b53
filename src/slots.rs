//! Places per identity: how many of its statements may be in one stage at the same time, and how many more may wait.
//!
//! Bounded in memory as well: an identity without statements keeps nothing. Must not know what the places are for.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use portcullis_auth::IdentityKey;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// A place; it is free again when this is dropped.
pub(crate) type Place = OwnedSemaphorePermit;

/// Places for every identity.
#[derive(Debug)]
pub(crate) struct Slots {
    wait: Duration,
    held: Mutex<HashMap<IdentityKey, Arc<Semaphore>>>,
}

/// What one identity may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Places.
    pub(crate) places: usize,
    /// How many more may wait for one.
    pub(crate) waiting: usize,
}

/// All places are taken, and as many wait for one; or the wait was too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Slots {
    /// No place is taken; who wants one waits no longer than `wait`.
    pub(crate) fn new(wait: Duration) -> Self {
        Self { wait, held: Mutex::default() }
    }

    /// A place for `owner` after a bounded wait.
    pub(crate) async fn take(&self, owner: &IdentityKey, Room { places: each, waiting }: Room) -> Result<Place, Full> {
        let places = {
            let mut held = self.held.lock();
            if held.len() >= SWEEP_AT {
                held.retain(|_, places| Arc::strong_count(places) > 1);
            }
            Arc::clone(held.entry(owner.clone()).or_insert_with(|| Arc::new(Semaphore::new(each))))
        };
        if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
            return Ok(place);
        }
        // Held by the map, by each taken place, by each that waits, and by this call.
        if Arc::strong_count(&places) > each.saturating_add(waiting).saturating_add(1) {
            return Err(Full);
        }
        match timeout(self.wait, places.acquire_owned()).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) | Err(_) => Err(Full),
        }
    }
}

const SWEEP_AT: usize = 1024;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use std::collections::{BTreeMap, BTreeSet};

    use portcullis_auth::{Assertion, Expiry, Principal};

    use super::*;

    const ONE: Room = Room { places: 1, waiting: 1 };
    const TWO: Room = Room { places: 2, waiting: 2 };

    fn key(subject: &str) -> IdentityKey {
        let assertion = Assertion {
            name: subject.to_owned(),
            scheme: "test",
            authority: "test".to_owned(),
            subject: subject.to_owned(),
            roles: BTreeSet::new(),
            attributes: BTreeMap::new(),
            expires: Expiry::Never,
            credential_id: "1".to_owned(),
        };
        Principal::assertion(assertion).unwrap().key().clone()
    }

    #[tokio::test]
    async fn an_identity_has_its_places_and_as_many_waiters_and_no_more() {
        let slots = Arc::new(Slots::new(Duration::from_secs(5)));
        let alice = key("alice");
        let (first, _second) = (slots.take(&alice, TWO).await.unwrap(), slots.take(&alice, TWO).await.unwrap());
        assert!(slots.take(&key("bob"), TWO).await.is_ok(), "another identity is not concerned");

        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let (slots, alice) = (Arc::clone(&slots), alice.clone());
                tokio::spawn(async move { slots.take(&alice, TWO).await.map(drop) })
            })
            .collect();
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        assert_eq!(slots.take(&alice, TWO).await.unwrap_err(), Full, "a third may not even wait");
        drop(first);
        for waiter in waiters {
            assert_eq!(waiter.await.unwrap(), Ok(()), "those that wait get the freed place");
        }
    }

    #[tokio::test]
    async fn a_wait_ends() {
        let slots = Slots::new(Duration::from_millis(50));
        let _taken = slots.take(&key("alice"), ONE).await.unwrap();
        assert_eq!(slots.take(&key("alice"), ONE).await.unwrap_err(), Full);
    }
}
