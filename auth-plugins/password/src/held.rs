//! A check for tests that answers only when it is let go, and knows how many were held at once.
//!
//! Must not be used outside tests: it says what it is told, whatever the password.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::time::{sleep, timeout};

use crate::phc::{Memory, Outcome, StoredHash};
use crate::pool::Check;

/// Holds every hash until [`Held::let_go`].
#[derive(Clone, Default)]
pub(crate) struct Held(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    free: bool,
    now: usize,
    most: usize,
    begun: Vec<Vec<u8>>,
}

impl Held {
    /// Holds, and then answers that the password `good` fits.
    pub(crate) fn check(&self) -> Arc<Check> {
        let held = self.clone();
        Arc::new(move |_: &StoredHash, _: &mut Memory, password: &[u8]| {
            let (state, changed) = &*held.0;
            let mut state = state.lock();
            state.now = state.now.saturating_add(1);
            state.most = state.most.max(state.now);
            state.begun.push(password.to_vec());
            changed.wait_while(&mut state, |state| !state.free);
            state.now = state.now.saturating_sub(1);
            if password == b"good" { Outcome::Fits } else { Outcome::Wrong }
        })
    }

    pub(crate) fn let_go(&self) {
        let (state, changed) = &*self.0;
        state.lock().free = true;
        changed.notify_all();
    }

    /// The passwords whose hashing has begun, in order.
    pub(crate) fn begun(&self) -> Vec<String> {
        self.0.0.lock().begun.iter().map(|password| String::from_utf8_lossy(password).into_owned()).collect()
    }

    /// How many hashes ran at the same time at most.
    pub(crate) fn most(&self) -> usize {
        self.0.0.lock().most
    }
}

/// Waits until something is true, and fails the test if it does not become so.
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let poll = async {
        while !is_so() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(timeout(Duration::from_secs(30), poll).await.is_ok(), "never: {what}");
}
