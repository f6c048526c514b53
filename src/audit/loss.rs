//! Lines that found no room: counted for the log, which hears of them once per second, and for the record itself.
//!
//! Must not wait, and must not log: it would do so under its lock.

use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::time::Instant;

/// The losses of one audit log.
#[derive(Debug, Default)]
pub(super) struct Losses {
    state: Mutex<State>,
}

/// Lines that are missing at one place of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Loss {
    /// How many.
    pub(super) lines: u64,
    /// When the first of them happened.
    pub(super) first: SystemTime,
    /// When the last of them happened.
    pub(super) last: SystemTime,
}

/// What has to be done about a line that was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Noted {
    /// Whether the writer has to be told.
    pub(super) mark: Mark,
    /// How many lines the log should say are lost; often none, since others were said just now.
    pub(super) to_say: u64,
}

/// Whether a loss has to be announced to the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// The writer knows that there is one.
    Again,
    /// It is the first since the writer took the last.
    First,
}

#[derive(Debug, Default)]
struct State {
    pending: Option<Loss>,
    total: u64,
    unsaid: u64,
    said: Option<Instant>,
}

impl Losses {
    /// The line of an event at `time` is lost, `now`.
    pub(super) fn note(&self, time: SystemTime, now: Instant) -> Noted {
        let mut state = self.state.lock();
        let (pending, mark) = match state.pending {
            Some(Loss { lines, first, last }) => {
                let (first, last) = (first.min(time), last.max(time));
                (Loss { lines: lines.saturating_add(1), first, last }, Mark::Again)
            }
            None => (Loss { lines: 1, first: time, last: time }, Mark::First),
        };
        state.pending = Some(pending);
        state.total = state.total.saturating_add(1);
        state.unsaid = state.unsaid.saturating_add(1);
        if state.said.is_some_and(|said| now.saturating_duration_since(said) < EVERY) {
            return Noted { mark, to_say: 0 };
        }
        state.said = Some(now);
        Noted { mark, to_say: std::mem::take(&mut state.unsaid) }
    }

    /// What has to go on record now.
    pub(super) fn take(&self) -> Option<Loss> {
        self.state.lock().pending.take()
    }

    /// All since the start.
    pub(super) fn total(&self) -> u64 {
        self.state.lock().total
    }
}

const EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_said_once_per_second_and_none_is_left_out() {
        let losses = Losses::default();
        let began = Instant::now();
        let to_say = |millis| {
            let now = began.checked_add(Duration::from_millis(millis)).unwrap_or(began);
            losses.note(SystemTime::UNIX_EPOCH, now).to_say
        };
        assert_eq!(to_say(0), 1, "the first is said at once");
        assert_eq!((to_say(1), to_say(500), to_say(999)), (0, 0, 0));
        assert_eq!(to_say(1000), 4, "with those that were not said");
        assert_eq!(to_say(1500), 0);
        assert_eq!(to_say(60_000), 2);
        assert_eq!(losses.total(), 7);
    }

    #[test]
    fn the_writer_is_told_once_and_takes_all() {
        let losses = Losses::default();
        let mark = |second| {
            let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(second));
            losses.note(time.unwrap_or(SystemTime::UNIX_EPOCH), Instant::now()).mark
        };
        let taken = |loss: Option<Loss>| {
            let since = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
            loss.map(|Loss { lines, first, last }| (lines, since(first), since(last)))
        };
        assert_eq!(taken(losses.take()), None);
        // Clocks of several threads, and calls that end in another order than they began.
        assert_eq!((mark(5), mark(3), mark(9)), (Mark::First, Mark::Again, Mark::Again));
        assert_eq!(taken(losses.take()), Some((3, 3, 9)));
        assert_eq!(taken(losses.take()), None);
        assert_eq!(mark(11), Mark::First);
        assert_eq!(taken(losses.take()), Some((1, 11, 11)));
        assert_eq!(losses.total(), 4);
    }
}
