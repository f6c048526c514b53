//! Monotonic time for limits, as the time since the gate started.
//!
//! Must not be used for expiry or anything else that a calendar decides: that is `portcullis_auth::Clock`.

use std::time::Duration;

use governor::clock::Clock;
use tokio::time::Instant;

/// A clock that never goes back. Clones show the same time.
#[derive(Clone, Debug)]
pub struct Ticks(Hand);

#[derive(Clone, Debug)]
enum Hand {
    #[cfg(test)]
    Moved(std::sync::Arc<parking_lot::Mutex<Duration>>),
    Running(Instant),
}

impl Ticks {
    /// The clock of the operating system, from now on.
    pub fn start() -> Self {
        Self(Hand::Running(Instant::now()))
    }

    /// A clock that moves only when it is told to.
    #[cfg(test)]
    pub(crate) fn still() -> Self {
        // Not at zero, so that what is held does not look like what was never set.
        Self(Hand::Moved(std::sync::Arc::new(parking_lot::Mutex::new(Duration::from_secs(1_000)))))
    }

    /// Moves a clock made by `still`.
    #[cfg(test)]
    pub(crate) fn advance(&self, by: Duration) {
        match &self.0 {
            Hand::Moved(time) => {
                let mut time = time.lock();
                *time = time.saturating_add(by);
            }
            Hand::Running(_) => (),
        }
    }

    pub(super) fn now(&self) -> Duration {
        match &self.0 {
            #[cfg(test)]
            Hand::Moved(time) => *time.lock(),
            Hand::Running(start) => start.elapsed(),
        }
    }
}

impl Clock for Ticks {
    type Instant = Duration;

    fn now(&self) -> Duration {
        Self::now(self)
    }
}
