//! What tests of schemes need and should not each write again: a clock and a tiny executor.
//!
//! Must not be used outside tests: the clock does not move, and the executor blocks its thread.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, SystemTime};

use crate::clock::Clock;

/// A clock that moves when it is told to.
#[derive(Debug)]
pub struct TestClock(Mutex<SystemTime>);

impl TestClock {
    /// A clock that stands at `now`.
    pub fn new(now: SystemTime) -> Self {
        Self(Mutex::new(now))
    }

    /// Puts the clock at `now`, which may lie in the past.
    pub fn set(&self, now: SystemTime) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// Moves the clock forward; it stays where it is if the time cannot be represented.
    pub fn advance(&self, by: Duration) {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *now = now.checked_add(by).unwrap_or(*now);
    }
}

impl Clock for TestClock {
    fn now(&self) -> SystemTime {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a future to its end on this thread, without timers and without I/O.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
