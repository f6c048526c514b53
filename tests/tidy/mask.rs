//! Rust text without what is not code: comments and literals blanked out, so that a rule about names sees names only.
//!
//! A lexer of just that much. Must not judge.

use std::collections::BTreeSet;

/// Rust text with comments and literals blanked out; lines and columns stay.
pub(crate) struct Mask {
    pub(crate) code: String,
    /// Lines that begin or end inside a string.
    pub(crate) inside_a_string: BTreeSet<usize>,
}

impl Mask {
    /// Reads `text`, which need not compile.
    pub(crate) fn of(text: &str) -> Self {
        let mut mask = Self { code: String::with_capacity(text.len()), inside_a_string: BTreeSet::new() };
        let (mut rest, mut line) = (text, 1_usize);
        while !rest.is_empty() {
            let in_a_name = mask.code.ends_with(is_in_a_name);
            let (length, kind) = token(rest, in_a_name);
            let (taken, tail) = rest.split_at(length);
            let lines = taken.matches('\n').count();
            match kind {
                Kind::Code => mask.code.push_str(taken),
                Kind::Comment | Kind::Literal => {
                    mask.code.extend(taken.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
                }
            }
            match kind {
                Kind::Literal if lines > 0 => mask.inside_a_string.extend(line..=line.saturating_add(lines)),
                Kind::Code | Kind::Comment | Kind::Literal => (),
            }
            line = line.saturating_add(lines);
            rest = tail;
        }
        mask
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// The bytes of the next token, which is one character of code, a whole comment or a whole literal.
fn token(rest: &str, in_a_name: bool) -> (usize, Kind) {
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), Kind::Comment);
    }
    if rest.starts_with("/*") {
        return (block_comment(rest), Kind::Comment);
    }
    match if in_a_name { None } else { prefixed_string(rest) }.or_else(|| string(rest)).or_else(|| character(rest)) {
        Some(length) => (length, Kind::Literal),
        None => (rest.chars().next().map_or(rest.len(), char::len_utf8), Kind::Code),
    }
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    for (index, _) in rest.char_indices() {
        let here = rest.get(index..).unwrap_or_default();
        if here.starts_with("/*") {
            depth = depth.saturating_add(1);
        } else if here.starts_with("*/") {
            depth = depth.saturating_sub(1);
            if depth == 0 {
                return index.saturating_add(2);
            }
        }
    }
    rest.len()
}

/// `b"…"`, `c"…"`, `r"…"`, `r#"…"#` and their combinations.
fn prefixed_string(rest: &str) -> Option<usize> {
    let after = rest.trim_start_matches(['b', 'c']);
    let Some(raw) = after.strip_prefix('r') else {
        let prefix = rest.len().saturating_sub(after.len());
        return string(after).filter(|_| prefix == 1).map(|length| length.saturating_add(prefix));
    };
    let inner = raw.trim_start_matches('#');
    let hashes = raw.len().saturating_sub(inner.len());
    let body = inner.strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let tail = body.split_once(&end).map_or("", |(_, tail)| tail);
    Some(rest.len().saturating_sub(tail.len()))
}

fn string(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix('"')?;
    let mut escaped = false;
    for (index, c) in body.char_indices() {
        match c {
            '"' if !escaped => return Some(index.saturating_add(2)),
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    Some(rest.len())
}

/// A character literal, as opposed to a lifetime.
fn character(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix('\'')?;
    let mut chars = body.chars();
    let first = chars.next()?;
    if first == '\\' {
        let skipped = chars.next().map_or(1, |escaped| escaped.len_utf8().saturating_add(1));
        let end = body.get(skipped..)?.find('\'')?;
        return Some(end.saturating_add(skipped).saturating_add(2));
    }
    (chars.next() == Some('\'')).then(|| first.len_utf8().saturating_add(2))
}

/// Whether `c` goes on with a name.
pub(crate) fn is_in_a_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[test]
fn comments_and_strings_are_told_from_code() {
    for (text, code) in [
        ("let a = 1; // dbg", "let a = 1;       "),
        ("a /* b /* c */ d */ e", "a                   e"),
        ("f(\"a \\\" b\", 'c', '\\'', '\"', 'x)", "f(        ,    ,     ,    , 'x)"),
        ("r#\"a \" b\"# c", "           c"),
        ("for x in b\"y\"", "for x in     "),
    ] {
        assert_eq!(Mask::of(text).code, code, "{text}");
    }
    let mask = Mask::of("a\nb = r\"c\nd\ne\"\nf");
    assert_eq!(mask.inside_a_string, BTreeSet::from([2, 3, 4]));
}
