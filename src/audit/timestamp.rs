//! A time as audit lines have it: RFC 3339 in UTC with milliseconds, always 24 characters.
//!
//! Must not ask for the time.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Serialize, Serializer};

/// Writes its time. What lies outside the years 1970 to 9999 is shown as the nearest time inside.
#[derive(Clone, Copy)]
pub(super) struct Timestamp(pub(super) SystemTime);

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.0.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (seconds, millis) =
            if since.as_secs() > LAST_SECOND { (LAST_SECOND, 999) } else { (since.as_secs(), since.subsec_millis()) };
        let (year, month, day) = civil(seconds / SECONDS_PER_DAY);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Year, month and day of the Gregorian calendar, `days` after 1970-01-01.
///
/// Counted in periods of 400 years that begin on a 1 March, so that the leap day is the last of its year.
#[expect(clippy::arithmetic_side_effects, reason = "a u64 holds the days of 9999 years many times over")]
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + DAYS_BEFORE_EPOCH;
    let (period, day) = (days / DAYS_PER_PERIOD, days % DAYS_PER_PERIOD);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    // March is 0. Months have 30.6 days on average, in a pattern that repeats every five.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (period * 400 + year + next_year, month, day)
}

const SECONDS_PER_DAY: u64 = 86_400;
/// From 0000-03-01 to 1970-01-01.
const DAYS_BEFORE_EPOCH: u64 = 719_468;
const DAYS_PER_PERIOD: u64 = 146_097;
/// 9999-12-31T23:59:59Z.
const LAST_SECOND: u64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn check(millis: u64, expected: &str) {
        let time = UNIX_EPOCH.checked_add(Duration::from_millis(millis)).unwrap_or(UNIX_EPOCH);
        assert_eq!(Timestamp(time).to_string(), expected);
    }

    #[test]
    fn times_are_written_in_utc_with_milliseconds() {
        check(0, "1970-01-01T00:00:00.000Z");
        check(1, "1970-01-01T00:00:00.001Z");
        check(951_782_399_999, "2000-02-28T23:59:59.999Z");
        check(951_782_400_000, "2000-02-29T00:00:00.000Z");
        check(951_868_800_000, "2000-03-01T00:00:00.000Z");
        check(1_582_934_400_000, "2020-02-29T00:00:00.000Z");
        check(1_614_556_800_000, "2021-03-01T00:00:00.000Z");
        check(1_796_193_728_042, "2026-12-02T06:42:08.042Z");
        check(4_107_542_400_000, "2100-03-01T00:00:00.000Z");
        check(253_402_300_799_999, "9999-12-31T23:59:59.999Z");
        check(253_402_300_800_000, "9999-12-31T23:59:59.999Z");
        let before = UNIX_EPOCH.checked_sub(Duration::from_secs(1)).unwrap_or(UNIX_EPOCH);
        assert_eq!(Timestamp(before).to_string(), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn days_follow_each_other_through_four_centuries() {
        let mut previous = civil(0);
        for days in 1..=DAYS_PER_PERIOD {
            let today = civil(days);
            let (year, month, day) = previous;
            let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
            let last = match month {
                2 if leap => 29,
                2 => 28,
                4 | 6 | 9 | 11 => 30,
                1.. => 31,
                0 => 0,
            };
            let expected = match (month, day) {
                (12, 31) => (year.saturating_add(1), 1, 1),
                (_, day) if day == last => (year, month.saturating_add(1), 1),
                (_, day) => (year, month, day.saturating_add(1)),
            };
            assert_eq!(today, expected, "the day after {previous:?}");
            previous = today;
        }
        assert_eq!(previous, (2370, 1, 1));
    }
}
