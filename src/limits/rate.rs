//! A rate as the configuration says it: `200/s`, `300/m`, `10/h`.
//!
//! Must not know what is counted.

use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use governor::Quota;

/// A count per period. As many may come at once, and from then on as many in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    count: NonZeroU32,
    period: Duration,
}

/// A text that is no rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a rate: write a number from 1 to {MOST}, `/`, and `s`, `m` or `h` for a second, a minute or an \
     hour, such as `200/s`"
)]
pub struct InvalidRate {
    text: String,
}

impl Rate {
    /// So many in a second, at least one.
    pub const fn per_second(count: u32) -> Self {
        Self::new(count, SECOND)
    }

    /// So many in a minute, at least one.
    pub const fn per_minute(count: u32) -> Self {
        Self::new(count, MINUTE)
    }

    const fn new(count: u32, period: Duration) -> Self {
        match NonZeroU32::new(if count < MOST { count } else { MOST }) {
            Some(count) => Self { count, period },
            None => Self { count: NonZeroU32::MIN, period },
        }
    }

    /// How many in a period, and how many at once.
    pub fn count(self) -> NonZeroU32 {
        self.count
    }

    /// The period.
    pub fn period(self) -> Duration {
        self.period
    }

    /// Whether it allows more in the long run, or as much and more of it at once.
    pub(super) fn is_more_generous_than(self, other: Self) -> bool {
        let rank = |one: Self, period: Duration| u128::from(one.count.get()).saturating_mul(period.as_nanos());
        // count / period, compared without a division
        (rank(self, other.period), self.count) > (rank(other, self.period), other.count)
    }

    /// The time in which one more is allowed.
    pub(super) fn each(self) -> Duration {
        self.period.checked_div(self.count.get()).unwrap_or(self.period)
    }

    pub(super) fn quota(self) -> Quota {
        // NOTE: never zero, because a count is bounded; a minute would be the safe side.
        let one = Quota::with_period(self.each()).unwrap_or(Quota::per_minute(NonZeroU32::MIN));
        one.allow_burst(self.count)
    }
}

impl FromStr for Rate {
    type Err = InvalidRate;

    fn from_str(text: &str) -> Result<Self, InvalidRate> {
        let invalid = || InvalidRate { text: text.chars().take(LONGEST_SHOWN).collect() };
        let (count, unit) = text.split_once('/').ok_or_else(invalid)?;
        let period = match unit {
            "s" => SECOND,
            "m" => MINUTE,
            "h" => HOUR,
            _ => return Err(invalid()),
        };
        // The standard parser would also take `+5`.
        if !count.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(invalid());
        }
        let count: NonZeroU32 = count.parse().map_err(|_not_a_count| invalid())?;
        if count.get() > MOST {
            return Err(invalid());
        }
        Ok(Self { count, period })
    }
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const MOST: u32 = 1_000_000;
const LONGEST_SHOWN: usize = 40;
