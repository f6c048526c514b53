//! Walks the TOML of a configuration, and keeps what is wrong with it.
//!
//! A section hands out each key once; what nobody asked for is an unknown key, so that the keys which are known and the
//! keys which are read cannot differ. Every finding gets its full key and its line here. Must not know a single key,
//! and must not print a value: a value may be a secret.

use std::cell::RefCell;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::config::error::{LoadError, Problem};

/// The findings of one file, and what it takes to say where they are.
#[derive(Debug)]
pub(super) struct Findings<'a> {
    file: &'a Path,
    line_starts: Vec<usize>,
    found: RefCell<Vec<LoadError>>,
}

/// A place in the file.
#[derive(Clone, Debug)]
pub(super) struct At {
    key: String,
    line: usize,
}

/// A value and its place.
#[derive(Clone, Debug)]
pub(super) struct Item<'a> {
    pub(super) value: &'a DeValue<'a>,
    pub(super) at: At,
}

/// A table whose keys are being read.
#[derive(Debug)]
pub(super) struct Section<'a> {
    findings: &'a Findings<'a>,
    at: At,
    left: Vec<(&'a Spanned<DeString<'a>>, &'a Spanned<DeValue<'a>>)>,
    asked: Vec<&'static str>,
    state: State,
}

/// What the absence of a key says.
#[derive(Clone, Copy, Debug)]
enum State {
    /// That it was not written.
    Readable,
    /// Nothing: something else stands where the table should, and that was reported.
    Unreadable,
}

impl<'a> Findings<'a> {
    pub(super) fn new(file: &'a Path, text: &str) -> Self {
        let after_breaks =
            text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at.saturating_add(1));
        Self { file, line_starts: std::iter::once(0).chain(after_breaks).collect(), found: RefCell::default() }
    }

    pub(super) fn report(&self, at: &At, problem: Problem) {
        self.found.borrow_mut().push(LoadError::new(self.file, at.key.clone(), at.line, problem));
    }

    /// Reports a text that is not TOML; there is no key to name.
    pub(super) fn report_syntax(&self, error: &toml::de::Error) {
        // Only the message: the error's `Display` would print the line, which may hold a secret.
        let message = error.message().replace('\n', "; ");
        let line = error.span().map_or(0, |span| self.line(&span));
        self.report(&At { key: String::new(), line }, Problem::Syntax(message));
    }

    pub(super) fn into_inner(self) -> Vec<LoadError> {
        self.found.into_inner()
    }

    fn line(&self, span: &Range<usize>) -> usize {
        self.line_starts.partition_point(|start| *start <= span.start)
    }
}

impl At {
    /// The place of a key that is not there: without a line unless its section has one.
    fn within(&self, key: &str) -> Self {
        Self { key: joined(&self.key, key), line: self.line }
    }

    /// The line, from 1.
    pub(super) fn line(&self) -> usize {
        self.line
    }
}

impl<'a> Section<'a> {
    pub(super) fn root(findings: &'a Findings<'a>, table: &'a DeTable<'a>) -> Self {
        Self::new(findings, At { key: String::new(), line: 0 }, table)
    }

    fn new(findings: &'a Findings<'a>, at: At, table: &'a DeTable<'a>) -> Self {
        Self { findings, at, left: table.iter().collect(), asked: Vec::new(), state: State::Readable }
    }

    /// The value of `key`, which becomes a known key.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Item<'a>> {
        self.asked.push(key);
        let index = self.left.iter().position(|(name, _)| name.get_ref() == key)?;
        let (_, value) = self.left.remove(index);
        Some(self.item(key, value))
    }

    /// The value of `key`; `default` when it is absent or, after a finding, when it cannot be used.
    pub(super) fn optional<T>(
        &mut self,
        key: &'static str,
        default: T,
        parse: impl FnOnce(&Item<'a>) -> Result<T, Problem>,
    ) -> T {
        match self.take(key) {
            Some(item) => self.findings.tried(&item.at, parse(&item)).unwrap_or(default),
            None => default,
        }
    }

    /// The value of `key`; `None` after a finding: it is absent or cannot be used.
    pub(super) fn required<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&Item<'a>) -> Result<T, Problem>,
    ) -> Option<T> {
        let Some(item) = self.take(key) else {
            self.missing(key);
            return None;
        };
        self.findings.tried(&item.at, parse(&item))
    }

    /// The value of `key` with its place, where its absence says something; the value is `None` after a finding.
    pub(super) fn given<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&Item<'a>) -> Result<T, Problem>,
    ) -> Option<(At, Option<T>)> {
        let item = self.take(key)?;
        let value = self.findings.tried(&item.at, parse(&item));
        Some((item.at, value))
    }

    /// The usable elements of the array `key`, each with its place. `None` when the key is absent or, after a finding,
    /// when it is no array or an empty one.
    pub(super) fn list<T>(
        &mut self,
        key: &'static str,
        mut parse: impl FnMut(&Item<'a>) -> Result<T, Problem>,
    ) -> Option<Vec<(At, T)>> {
        let list = self.take(key)?;
        let Some(array) = list.value.as_array() else {
            let problem = Problem::WrongType { expected: "an array", found: kind(list.value) };
            self.findings.report(&list.at, problem);
            return None;
        };
        if array.is_empty() {
            self.findings.report(&list.at, Problem::Empty);
            return None;
        }
        let mut good = Vec::new();
        for (index, element) in array.iter().enumerate() {
            let at = At { key: format!("{}[{index}]", list.at.key), line: self.findings.line(&element.span()) };
            let item = Item { value: element.get_ref(), at };
            if let Some(value) = self.findings.tried(&item.at, parse(&item)) {
                good.push((item.at, value));
            }
        }
        Some(good)
    }

    /// [`Section::list`], where the key has to be there.
    pub(super) fn required_list<T>(
        &mut self,
        key: &'static str,
        parse: impl FnMut(&Item<'a>) -> Result<T, Problem>,
    ) -> Option<Vec<(At, T)>> {
        if self.left.iter().any(|(name, _)| name.get_ref() == key) {
            return self.list(key, parse);
        }
        self.asked.push(key);
        self.missing(key);
        None
    }

    /// [`Section::required_list`], where one text may stand for a list of it alone.
    pub(super) fn required_one_or_more<T>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&Item<'a>) -> Result<T, Problem>,
    ) -> Option<Vec<(At, T)>> {
        let is_text = |value: &Spanned<DeValue<'_>>| value.get_ref().as_str().is_some();
        if self.left.iter().any(|(name, value)| name.get_ref() == key && is_text(value)) {
            let (at, value) = self.given(key, &parse)?;
            return Some(vec![(at, value?)]);
        }
        self.required_list(key, parse)
    }

    /// Reads the table `key` with `read`, an absent one as an empty one.
    pub(super) fn section<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Self) -> T) -> T {
        let section = match self.take(key) {
            Some(item) => self.inner(item),
            None => Self::empty(self.findings, self.at.within(key), self.state),
        };
        section.read(read)
    }

    /// Reads the table `key` with `read` where its absence says something.
    pub(super) fn given_section<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Self) -> T) -> Option<(At, T)> {
        let item = self.take(key)?;
        let at = item.at.clone();
        Some((at, self.inner(item).read(read)))
    }

    /// Reads each table of `[[key]]` with `read`; none when the key is absent.
    pub(super) fn sections<T>(&mut self, key: &'static str, mut read: impl FnMut(&mut Self) -> Option<T>) -> Vec<T> {
        let Some(list) = self.take(key) else { return Vec::new() };
        let Some(array) = list.value.as_array() else {
            let problem = Problem::WrongType {
                expected: "an array of tables, each under a header in `[[…]]`",
                found: kind(list.value),
            };
            self.findings.report(&list.at, problem);
            return Vec::new();
        };
        let element = |(index, element): (usize, &'a Spanned<DeValue<'a>>)| {
            let at = At { key: format!("{}[{index}]", list.at.key), line: self.findings.line(&element.span()) };
            self.inner(Item { value: element.get_ref(), at }).read(&mut read)
        };
        array.iter().enumerate().filter_map(element).collect()
    }

    /// [`Section::sections`], where there has to be one.
    pub(super) fn required_sections<T>(
        &mut self,
        key: &'static str,
        read: impl FnMut(&mut Self) -> Option<T>,
    ) -> Vec<T> {
        match self.left.iter().find(|(name, _)| name.get_ref() == key) {
            None => self.missing(key),
            Some((_, value)) if value.get_ref().as_array().is_some_and(|array| array.is_empty()) => {
                self.findings.report(&self.item(key, value).at, Problem::Empty);
            }
            Some(_) => (),
        }
        self.sections(key, read)
    }

    /// Reads every key that is left as a table whose name the operator chose and `judge` accepts; `shape` says what
    /// a value of another type is.
    pub(super) fn named(
        &mut self,
        shape: impl Fn(&'static str) -> Problem,
        judge: impl Fn(&str) -> Result<String, Problem>,
        mut read: impl FnMut(&str, &mut Self),
    ) {
        for (name, value) in std::mem::take(&mut self.left) {
            let item = self.item(name.get_ref(), value);
            let DeValue::Table(table) = item.value else {
                self.findings.report(&item.at, shape(kind(item.value)));
                continue;
            };
            if let Some(name) = self.findings.tried(&item.at, judge(name.get_ref())) {
                Self::new(self.findings, item.at, table).read(|section| read(&name, section));
            }
        }
    }

    /// Reads every key that is left as a value whose name the operator chose.
    pub(super) fn values<T>(&mut self, parse: impl Fn(&Item<'a>) -> Result<T, Problem>) -> Vec<(String, T)> {
        let mut values = Vec::new();
        for (name, value) in std::mem::take(&mut self.left) {
            let item = self.item(name.get_ref(), value);
            if let Some(value) = self.findings.tried(&item.at, parse(&item)) {
                values.push((name.get_ref().clone().into_owned(), value));
            }
        }
        values
    }

    /// Whether no key is left.
    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Gives up on the keys that are left: they cannot be judged after what was already reported.
    pub(super) fn skip_rest(&mut self) {
        self.left.clear();
    }

    /// The section's own place.
    pub(super) fn at(&self) -> &At {
        &self.at
    }

    /// Reports a problem of one of the section's values, or of several together.
    pub(super) fn report(&self, at: &At, problem: Problem) {
        self.findings.report(at, problem);
    }

    /// [`Section::report`], for what is not there.
    pub(super) fn report_absence(&self, at: &At, problem: Problem) {
        match self.state {
            State::Readable => self.findings.report(at, problem),
            State::Unreadable => (),
        }
    }

    fn missing(&self, key: &str) {
        self.report_absence(&self.at.within(key), Problem::Missing);
    }

    fn item(&self, key: &str, value: &'a Spanned<DeValue<'a>>) -> Item<'a> {
        let at = At { key: joined(&self.at.key, key), line: self.findings.line(&value.span()) };
        Item { value: value.get_ref(), at }
    }

    fn inner(&self, item: Item<'a>) -> Self {
        if let DeValue::Table(table) = item.value {
            return Self::new(self.findings, item.at, table);
        }
        self.findings.report(&item.at, Problem::WrongType { expected: "a table", found: kind(item.value) });
        Self::empty(self.findings, item.at, State::Unreadable)
    }

    fn empty(findings: &'a Findings<'a>, at: At, state: State) -> Self {
        Self { findings, at, left: Vec::new(), asked: Vec::new(), state }
    }

    /// Lets `read` ask for keys; what it leaves is unknown.
    pub(super) fn read<T>(mut self, read: impl FnOnce(&mut Self) -> T) -> T {
        let value = read(&mut self);
        for (name, _) in &self.left {
            let at = At { key: joined(&self.at.key, name.get_ref()), line: self.findings.line(&name.span()) };
            let given = name.get_ref().clone().into_owned();
            self.findings.report(&at, Problem::UnknownKey { given, expected: self.asked.clone() });
        }
        value
    }
}

impl Findings<'_> {
    fn tried<T>(&self, at: &At, result: Result<T, Problem>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(problem) => {
                self.report(at, problem);
                None
            }
        }
    }
}

/// What a value is, without saying what it holds.
pub(super) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::Array(_) => "an array",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Float(_) => "a float",
        DeValue::Integer(_) => "an integer",
        DeValue::String(_) => "a string",
        DeValue::Table(_) => "a table",
    }
}

/// `section.key`, with quotes where TOML needs them.
fn joined(section: &str, key: &str) -> String {
    // Stores are named by URL: what stands before a host may be a credential.
    let key = if key.contains("://") && key.contains('@') { "…" } else { key };
    let bare = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    let dot = if section.is_empty() { "" } else { "." };
    if bare { format!("{section}{dot}{key}") } else { format!("{section}{dot}\"{key}\"") }
}
