//! Patterns over names, and the principal's name that a match makes.
//!
//! A pattern always covers the whole name, segment by segment, so there is nothing to anchor and nothing to backtrack.
//! Must not know certificates.

use super::Field;
use crate::names;

/// A name with holes: `*` stands for one or more characters of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    field: Field,
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Exact(String),
    Open { before: String, after: String },
}

impl Pattern {
    pub(super) fn parse(field: Field, text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err("is empty");
        }
        // With each hole filled it must be a name, or no name could ever match; and in the spelling of names.
        let filled = text.replace('*', "x");
        if names::canonical(field, &filled)? != filled {
            return Err("is not in lower case where names are");
        }
        if field == Field::Uri && !has_fixed_host(text) {
            return Err("has a `*` in its scheme or host: whose names these are must be written out");
        }
        let segments = split(field, text).into_iter().map(Segment::parse).collect::<Result<Vec<_>, _>>()?;
        let pattern = Self { field, segments };
        if pattern.holes() > MAX_HOLES {
            return Err("has more than nine `*`");
        }
        Ok(pattern)
    }

    pub(super) fn holes(&self) -> usize {
        self.segments.iter().filter(|segment| matches!(segment, Segment::Open { .. })).count()
    }

    /// What stands in the holes, if the whole of `name` matches.
    pub(super) fn captures<'n>(&self, name: &'n str) -> Option<Vec<&'n str>> {
        let parts = split(self.field, name);
        if parts.len() != self.segments.len() {
            return None;
        }
        let mut captures = Vec::new();
        for (segment, part) in self.segments.iter().zip(parts) {
            match segment {
                Segment::Exact(text) if text == part => (),
                Segment::Exact(_) => return None,
                Segment::Open { before, after } => {
                    captures.push(held(before, after, part)?);
                }
            }
        }
        Some(captures)
    }

    /// Whether every name that `other` fits is one that this pattern fits.
    pub(super) fn covers(&self, other: &Self) -> bool {
        self.pairs(other).is_some_and(|mut pairs| pairs.all(|(one, other)| one.covers(other)))
    }

    /// Whether there is a name that both fit.
    pub(super) fn meets(&self, other: &Self) -> bool {
        self.pairs(other).is_some_and(|mut pairs| pairs.all(|(one, other)| one.meets(other)))
    }

    /// Whether nothing of a name is written out.
    pub(super) fn is_all_open(&self) -> bool {
        self.segments.iter().all(|segment| match segment {
            Segment::Exact(_) => false,
            Segment::Open { before, after } => before.is_empty() && after.is_empty(),
        })
    }

    /// The segments of both side by side, where there are as many.
    fn pairs<'a>(&'a self, other: &'a Self) -> Option<impl Iterator<Item = (&'a Segment, &'a Segment)>> {
        let alike = self.field == other.field && self.segments.len() == other.segments.len();
        alike.then(|| self.segments.iter().zip(&other.segments))
    }
}

impl Segment {
    fn holds(&self, part: &str) -> bool {
        match self {
            Self::Exact(text) => text == part,
            Self::Open { before, after } => held(before, after, part).is_some(),
        }
    }

    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Exact(text)) => self.holds(text),
            (Self::Exact(_), Self::Open { .. }) => false,
            (Self::Open { before, after }, Self::Open { before: narrower, after: behind }) => {
                narrower.starts_with(before) && behind.ends_with(after)
            }
        }
    }

    fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Exact(text)) => self.holds(text),
            (Self::Exact(text), Self::Open { .. }) => other.holds(text),
            // The longer of each with something between them.
            (Self::Open { before, after }, Self::Open { before: other, after: behind }) => {
                let begin = before.starts_with(other.as_str()) || other.starts_with(before);
                let end = after.ends_with(behind.as_str()) || behind.ends_with(after);
                begin && end
            }
        }
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        let Some((before, after)) = text.split_once('*') else { return Ok(Self::Exact(text.to_owned())) };
        if after.contains('*') {
            return Err("has two `*` in one segment: where the first ends would be a guess");
        }
        Ok(Self::Open { before: before.to_owned(), after: after.to_owned() })
    }
}

/// What a `*` between these stands for; never nothing.
fn held<'n>(before: &str, after: &str, part: &'n str) -> Option<&'n str> {
    part.strip_prefix(before)?.strip_suffix(after).filter(|held| !held.is_empty())
}

fn split(field: Field, name: &str) -> Vec<&str> {
    match field {
        Field::Uri => name.split('/').collect(),
        Field::Dns => name.split('.').collect(),
        Field::Email => name.split('@').collect(),
        Field::Cn => vec![name],
    }
}

fn has_fixed_host(pattern: &str) -> bool {
    let Some((fixed, _)) = pattern.split_once('*') else { return true };
    match fixed.split_once(':') {
        None => false,
        Some((_, rest)) => rest.strip_prefix("//").is_none_or(|rest| rest.contains('/')),
    }
}

/// The name to give, with `$1` to `$9` for what was captured and `$$` for a dollar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(char),
    /// Counted from zero.
    Capture(usize),
}

impl Template {
    pub(super) fn parse(text: &str, holes: usize) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err("is empty");
        }
        if text == "*" || text.starts_with("role:") {
            return Err("is reserved");
        }
        // What a name may hold is what a common name may hold.
        names::canonical(Field::Cn, text)?;
        let mut pieces = Vec::new();
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            if c != '$' {
                pieces.push(Piece::Text(c));
                continue;
            }
            match rest.next() {
                Some('$') => pieces.push(Piece::Text('$')),
                Some(digit @ '1'..='9') => {
                    let number = digit.to_digit(10).and_then(|digit| usize::try_from(digit).ok()).unwrap_or(usize::MAX);
                    if number > holes {
                        return Err("has a `$` for a `*` that the pattern has not");
                    }
                    pieces.push(Piece::Capture(number.saturating_sub(1)));
                }
                Some(_) | None => return Err("has a `$` that is followed by neither `1` to `9` nor `$`"),
            }
        }
        Ok(Self(pieces))
    }

    /// Whether everybody gets the same name.
    pub(super) fn is_fixed(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, Piece::Text(_)))
    }

    pub(super) fn fill(&self, captures: &[&str]) -> String {
        let mut name = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(c) => name.push(*c),
                // In range, since `parse` has counted the holes.
                Piece::Capture(at) => name.push_str(captures.get(*at).copied().unwrap_or_default()),
            }
        }
        name
    }
}

const MAX_HOLES: usize = 9;
