//! From when until when a certificate or a CRL counts.
//!
//! Reads no more than the way to two dates, of bytes whose form the verifier has checked before. Whatever it does not
//! understand has no dates, and what has no dates is not trusted. Must not decide what a date means.

use std::time::{Duration, SystemTime};

/// `notBefore` and `notAfter`, or `thisUpdate` and `nextUpdate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dates {
    pub(super) from: SystemTime,
    pub(super) until: SystemTime,
}

/// The validity of a certificate.
pub(super) fn of_certificate(der: &[u8]) -> Option<Dates> {
    let mut to_sign = Reader(Reader(der).value(SEQUENCE)?).inside()?;
    if to_sign.next_is(VERSION) {
        to_sign.value(VERSION)?;
    }
    // Serial number, algorithm, issuer.
    to_sign.value(INTEGER)?;
    to_sign.value(SEQUENCE)?;
    to_sign.value(SEQUENCE)?;
    to_sign.inside()?.dates()
}

/// The dates of a CRL; one that does not say when the next will come has none.
pub(super) fn of_crl(der: &[u8]) -> Option<Dates> {
    let mut to_sign = Reader(Reader(der).value(SEQUENCE)?).inside()?;
    if to_sign.next_is(INTEGER) {
        to_sign.value(INTEGER)?;
    }
    // Algorithm, issuer.
    to_sign.value(SEQUENCE)?;
    to_sign.value(SEQUENCE)?;
    to_sign.dates()
}

/// DER from front to back.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn next_is(&self, tag: u8) -> bool {
        self.0.first() == Some(&tag)
    }

    /// The value that comes next, if it has this tag.
    fn value(&mut self, expected: u8) -> Option<&'a [u8]> {
        let (tag, value, rest) = element(self.0)?;
        if tag != expected {
            return None;
        }
        self.0 = rest;
        Some(value)
    }

    fn inside(&mut self) -> Option<Self> {
        self.value(SEQUENCE).map(Self)
    }

    fn dates(&mut self) -> Option<Dates> {
        Some(Dates { from: self.time()?, until: self.time()? })
    }

    fn time(&mut self) -> Option<SystemTime> {
        if self.next_is(UTC_TIME) {
            let text = self.value(UTC_TIME)?;
            let (year, rest) = number(text, 2)?;
            // RFC 5280, 4.1.2.5.1.
            let century: u64 = if year < 50 { 2000 } else { 1900 };
            return instant(century.checked_add(year)?, rest);
        }
        let (year, rest) = number(self.value(GENERALIZED_TIME)?, 4)?;
        instant(year, rest)
    }
}

/// Tag, value, and what comes behind.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match *first {
        short @ 0..=0x7f => (usize::from(short), rest),
        // A file of 4 GiB is no CRL.
        long @ 0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            let length = length.iter().try_fold(0_usize, |sum, byte| {
                sum.checked_mul(256).and_then(|sum| sum.checked_add(usize::from(*byte)))
            })?;
            (length, rest)
        }
        0x80 | 0x85..=0xff => return None,
    };
    let (value, rest) = rest.split_at_checked(length)?;
    Some((*tag, value, rest))
}

fn number(text: &[u8], digits: usize) -> Option<(u64, &[u8])> {
    let (digits, rest) = text.split_at_checked(digits)?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some((std::str::from_utf8(digits).ok()?.parse().ok()?, rest))
}

/// `MMDDHHMMSSZ` of this year.
fn instant(year: u64, text: &[u8]) -> Option<SystemTime> {
    let (month, text) = number(text, 2)?;
    let (day, text) = number(text, 2)?;
    let (hour, text) = number(text, 2)?;
    let (minute, text) = number(text, 2)?;
    let (second, text) = number(text, 2)?;
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let february = if leap { 29 } else { 28 };
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before = usize::try_from(month.checked_sub(1)?).ok()?;
    if text != b"Z" || !(1..=*months.get(before)?).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }

    let days_before_year = |year: u64| {
        // Of the years 1 to `year - 1`.
        let past = year.saturating_sub(1);
        past.saturating_mul(365).saturating_add(past / 4).saturating_sub(past / 100).saturating_add(past / 400)
    };
    let days =
        days_before_year(year).checked_add(months.iter().take(before).sum())?.checked_add(day.saturating_sub(1))?;
    let since_year_one = [(24, hour), (60, minute), (60, second)]
        .into_iter()
        .try_fold(days, |sum, (in_one, more)| sum.checked_mul(in_one).and_then(|sum: u64| sum.checked_add(more)))?;
    let seconds = |count| Duration::from_secs(count);
    // Before 1970 there is nothing to tell apart: it is long past.
    let epoch = days_before_year(1970).saturating_mul(86_400);
    SystemTime::UNIX_EPOCH.checked_add(seconds(since_year_one.saturating_sub(epoch)))
}

const INTEGER: u8 = 0x02;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

#[cfg(test)]
mod tests;
