//! Where time comes from.
//!
//! Expiry is a security decision, so nothing in the gate or in a scheme asks the operating system for the time except
//! [`SystemClock`]; tests use a clock that stands still. Must not sleep or schedule.

use std::fmt;
use std::time::SystemTime;

/// A source of the current time.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> SystemTime;
}

/// The clock of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that asks the operating system for the time")]
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}
