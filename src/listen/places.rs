//! Places for connections: so many in total, and so many for one source.
//!
//! A source without an open connection is forgotten, so what is held is bounded by the total. Must not wait: who finds
//! no place is turned away.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::Source;

#[derive(Debug)]
pub(super) struct Places {
    total: Arc<Semaphore>,
    per_source: usize,
    open: Mutex<HashMap<Source, usize>>,
}

/// A socket's place under the total; given back when this is dropped.
#[derive(Debug)]
pub(super) struct Socket {
    _held: OwnedSemaphorePermit,
}

/// A connection's place under both bounds; given back when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    _socket: Socket,
    source: Source,
    places: Arc<Places>,
}

impl Places {
    pub(super) fn new(total: usize, per_source: usize) -> Arc<Self> {
        let total = Arc::new(Semaphore::new(total.min(Semaphore::MAX_PERMITS)));
        Arc::new(Self { total, per_source, open: Mutex::default() })
    }

    /// A place for a socket of which nothing is known yet.
    pub(super) fn socket(&self) -> Option<Socket> {
        Arc::clone(&self.total).try_acquire_owned().ok().map(|held| Socket { _held: held })
    }

    /// The place of a connection whose source is known.
    pub(super) fn of_source(self: &Arc<Self>, socket: Socket, source: Source) -> Option<Place> {
        let mut open = self.open.lock();
        let count = open.get(&source).copied().unwrap_or_default();
        if count >= self.per_source {
            return None;
        }
        open.insert(source, count.saturating_add(1));
        Some(Place { _socket: socket, source, places: Arc::clone(self) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.places.open.lock();
        let count = open.get(&self.source).copied().unwrap_or_default();
        if count > 1 {
            open.insert(self.source, count.saturating_sub(1));
        } else {
            open.remove(&self.source);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use std::net::{IpAddr, Ipv6Addr};

    use super::*;

    fn network(number: u32) -> Source {
        Source::from(IpAddr::V6(Ipv6Addr::from(u128::from(number) << 64)))
    }

    fn enter(places: &Arc<Places>, source: Source) -> Option<Place> {
        places.of_source(places.socket()?, source)
    }

    #[test]
    fn a_source_has_its_places_and_gets_them_back() {
        let places = Places::new(10, 2);
        let (first, second) = (enter(&places, network(1)).unwrap(), enter(&places, network(1)).unwrap());
        assert!(enter(&places, network(1)).is_none());
        let _other = enter(&places, network(2)).unwrap();
        drop(first);
        let third = enter(&places, network(1)).unwrap();
        assert!(enter(&places, network(1)).is_none());
        drop((second, third));
        assert_eq!(places.open.lock().len(), 1, "only the other source is left");
        assert_eq!(places.total.available_permits(), 9, "a refused connection holds no place in total either");
    }

    #[test]
    fn sources_without_connections_are_forgotten_and_the_total_bounds_the_rest() {
        let places = Places::new(100, 1);
        for number in 0..100_000 {
            enter(&places, network(number)).unwrap();
        }
        assert_eq!(places.open.lock().len(), 0);
        let held: Vec<_> = (0..100_000).filter_map(|number| enter(&places, network(number))).collect();
        assert_eq!((held.len(), places.open.lock().len()), (100, 100));
        drop(held);
        assert_eq!((places.open.lock().len(), places.total.available_permits()), (0, 100));
    }
}
