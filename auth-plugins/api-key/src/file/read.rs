//! From the text of `keys.toml` to records, with the line of every error.
//!
//! Walks the parsed document by hand, since a derived reader forgets where a value stood. Must not repeat a value.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use portcullis_auth::Expiry;
use time::{Date, Month, OffsetDateTime, PrimitiveDateTime, Time, UtcOffset};
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use toml::value::{Datetime, Offset};

use super::{KeyFile, KeyFileError, KeyRecord};
use crate::key::{self, KeyHash};

pub(super) fn key_file(text: &str) -> Result<KeyFile, KeyFileError> {
    // The parser would skip it, and other readers of the file would not.
    if text.starts_with('\u{FEFF}') {
        let problem = "the file starts with a byte order mark".to_owned();
        return Err(KeyFileError { line: 1, key: String::new(), problem });
    }
    let document = DeTable::parse(text).map_err(|err| {
        let problem = err.message().lines().collect::<Vec<_>>().join("; ");
        let span = err.span().unwrap_or(0..0);
        // The parser's own words: what it says of a token is its kind, never its text.
        KeyFileError { line: line(text, &span), key: String::new(), problem }
    })?;

    let mut records = BTreeMap::new();
    for (name, value) in document.get_ref() {
        if name.get_ref() != "key" {
            return Err(Place::new(text, name.span(), shown(name.get_ref()).to_owned())
                .error("is not known; keys are `[key.<id>]`"));
        }
        let place = Place::new(text, value.span(), "key".to_owned());
        for (id, value) in place.table(value)? {
            let place = Place::new(text, id.span(), "key".to_owned());
            if !key::is_id(id.get_ref()) {
                return Err(place.error("holds an id that is not 12 letters, digits, `-` or `_`"));
            }
            let record = record(text, id, value)?;
            records.insert(record.id.clone(), record);
        }
    }
    Ok(KeyFile { records })
}

fn record(text: &str, id: &Spanned<Text<'_>>, value: &Spanned<DeValue<'_>>) -> Result<KeyRecord, KeyFileError> {
    let whole = Place::new(text, id.span(), format!("key.{}", id.get_ref()));
    let (mut hash, mut principal) = (None, None);
    let (mut roles, mut attributes, mut expires) = (BTreeSet::new(), BTreeMap::new(), Expiry::Never);

    for (name, value) in whole.table(value)? {
        let place = Place::new(text, name.span(), format!("{}.{}", whole.key, shown(name.get_ref())));
        match name.get_ref().as_ref() {
            "attributes" => attributes = place.texts_by_name(value)?,
            "expires" => expires = Expiry::At(place.time(value)?),
            "hash" => {
                let parsed = KeyHash::parse(&place.text(value)?);
                hash = Some(parsed.ok_or_else(|| place.error("must be `sha256:` and 64 hexadecimal digits"))?);
            }
            "principal" => principal = Some(place.text(value)?),
            "roles" => roles = place.texts(value)?,
            _ => return Err(place.error("is not known")),
        }
    }

    let record = KeyRecord {
        id: id.get_ref().to_string(),
        hash: hash.ok_or_else(|| whole.error("lacks its `hash`"))?,
        principal: principal.ok_or_else(|| whole.error("lacks its `principal`"))?,
        roles,
        attributes,
        expires,
    };
    match record.check() {
        Ok(()) => Ok(record),
        Err(invalid) => Err(whole.error(&format!("is not usable: {invalid}"))),
    }
}

type Text<'a> = std::borrow::Cow<'a, str>;

/// Where in the file something stands, and what it is called.
struct Place<'a> {
    text: &'a str,
    span: Range<usize>,
    key: String,
}

impl<'a> Place<'a> {
    fn new(text: &'a str, span: Range<usize>, key: String) -> Self {
        Self { text, span, key }
    }

    fn error(&self, problem: &str) -> KeyFileError {
        KeyFileError { line: line(self.text, &self.span), key: self.key.clone(), problem: problem.to_owned() }
    }

    fn table<'v, 'i>(&self, value: &'v Spanned<DeValue<'i>>) -> Result<&'v DeTable<'i>, KeyFileError> {
        value.get_ref().as_table().ok_or_else(|| self.error("must be a table"))
    }

    fn text(&self, value: &Spanned<DeValue<'_>>) -> Result<String, KeyFileError> {
        value.get_ref().as_str().map(str::to_owned).ok_or_else(|| self.error("must be a string"))
    }

    fn texts(&self, value: &Spanned<DeValue<'_>>) -> Result<BTreeSet<String>, KeyFileError> {
        let wrong = || self.error("must be a list of different strings");
        let values = value.get_ref().as_array().ok_or_else(wrong)?;
        let texts: BTreeSet<_> = values
            .iter()
            .map(|value| value.get_ref().as_str().map(str::to_owned))
            .collect::<Option<_>>()
            .ok_or_else(wrong)?;
        if texts.len() == values.len() { Ok(texts) } else { Err(wrong()) }
    }

    fn texts_by_name(&self, value: &Spanned<DeValue<'_>>) -> Result<BTreeMap<String, String>, KeyFileError> {
        let text = |value: &Spanned<DeValue<'_>>| value.get_ref().as_str().map(str::to_owned);
        self.table(value)?
            .iter()
            .map(|(name, value)| Some((name.get_ref().to_string(), text(value)?)))
            .collect::<Option<_>>()
            .ok_or_else(|| self.error("must be a table of strings"))
    }

    fn time(&self, value: &Spanned<DeValue<'_>>) -> Result<SystemTime, KeyFileError> {
        let written = value.get_ref().as_datetime();
        written.and_then(system_time).ok_or_else(|| {
            self.error("must be a date and time with an offset, such as 2027-01-01T00:00:00Z, and not before 1970")
        })
    }
}

/// A moment, which only a date, a time and an offset together are.
fn system_time(written: &Datetime) -> Option<SystemTime> {
    let (date, time) = (written.date?, written.time?);
    let offset = match written.offset? {
        Offset::Z => UtcOffset::UTC,
        Offset::Custom { minutes } => UtcOffset::from_whole_seconds(i32::from(minutes).checked_mul(60)?).ok()?,
    };
    let month = Month::try_from(date.month).ok()?;
    let date = Date::from_calendar_date(i32::from(date.year), month, date.day).ok()?;
    let (second, nanosecond) = (time.second.unwrap_or(0), time.nanosecond.unwrap_or(0));
    let time = Time::from_hms_nano(time.hour, time.minute, second, nanosecond).ok()?;
    let moment: OffsetDateTime = PrimitiveDateTime::new(date, time).assume_offset(offset);
    let seconds = u64::try_from(moment.unix_timestamp()).ok()?;
    UNIX_EPOCH.checked_add(Duration::new(seconds, nanosecond))
}

/// A name as an error may repeat it: a word of the file's language or close to one, and surely not a pasted key.
fn shown(name: &str) -> &str {
    let word = name.len() <= MAX_SHOWN && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    if word { name } else { "(a name)" }
}

fn line(text: &str, span: &Range<usize>) -> usize {
    let before = text.as_bytes().iter().take(span.start);
    before.filter(|b| **b == b'\n').count().saturating_add(1)
}

const MAX_SHOWN: usize = 32;
