//! Lines: an event as one JSON object with its members in a fixed order.
//!
//! Nothing that a client sent can end the line, forge another one, or tell a terminal what to do: control characters
//! and those that hide or reorder text are escaped, strings and lists are cut. Must not fail on any text.

use std::fmt;
use std::io;
use std::time::Duration;

use portcullis_auth::Principal;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::ser::Formatter;

use super::event::{
    Admission, End, Event, Named, Origin, Outcome, Peer, Reload, SealedKind, SessionEnd, Statement, StatementKind,
    StatementText, What,
};
use super::loss::Loss;
use super::timestamp::Timestamp;
use crate::status::Class;

/// The line of an event, with its end.
pub(super) fn of_event(event: &Event<'_>) -> Result<Vec<u8>, serde_json::Error> {
    written(&EventLine(event))
}

/// The line that stands for lines that are missing.
pub(super) fn of_loss(loss: &Loss) -> Result<Vec<u8>, serde_json::Error> {
    written(&LossLine(loss))
}

fn written(line: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = Vec::with_capacity(USUAL);
    line.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, OneLine))?;
    bytes.push(b'\n');
    Ok(bytes)
}

struct EventLine<'a>(&'a Event<'a>);

impl Serialize for EventLine<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Event { time, origin, what } = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("v", &VERSION)?;
        map.serialize_entry("time", &Timestamp(*time))?;
        map.serialize_entry("event", name(what))?;
        origin_members(&mut map, origin)?;
        what_members(&mut map, what)?;
        map.end()
    }
}

struct LossLine<'a>(&'a Loss);

impl Serialize for LossLine<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Loss { lines, first, last } = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("v", &VERSION)?;
        map.serialize_entry("time", &Timestamp(*last))?;
        map.serialize_entry("event", "audit.lost")?;
        origin_members(&mut map, &Origin::Gate)?;
        map.serialize_entry("lines", lines)?;
        map.serialize_entry("since", &Timestamp(*first))?;
        map.end()
    }
}

fn name(what: &What<'_>) -> &'static str {
    match what {
        What::AuthnFailure { .. } => "authn.failure",
        What::AuthnSuccess(_) => "authn.success",
        What::AuthnThrottled { .. } => "authn.throttled",
        What::AuthnUnavailable { .. } => "authn.unavailable",
        What::AuthzDenied { .. } => "authz.denied",
        What::GateStarted { .. } => "gate.started",
        What::GateStopped { .. } => "gate.stopped",
        What::LimitExceeded { .. } => "limit.exceeded",
        What::Reloaded { outcome: Reload::Failed { .. }, .. } => "reload.failed",
        What::Reloaded { outcome: Reload::Ok, .. } => "reload.ok",
        What::SealedRefused { .. } => "ticket.rejected",
        What::SessionEnded { .. } => "session.ended",
        What::SessionOpened { .. } => "session.opened",
        What::StatementEnd(_) => "statement.end",
        What::TlsFailed { .. } => "tls.failed",
    }
}

fn origin_members<M: SerializeMap>(map: &mut M, origin: &Origin<'_>) -> Result<(), M::Error> {
    let (request, peer) = match origin {
        Origin::Call { request, peer } => (Some(Text(request)), *peer),
        Origin::Connection(peer) => (None, *peer),
        Origin::Gate => (None, Peer::Unknown),
    };
    map.serialize_entry("request", &request)?;
    match peer {
        Peer::Direct(client) => map.serialize_entry("peer", &client),
        Peer::Proxied { client, proxy } => {
            map.serialize_entry("peer", &client)?;
            map.serialize_entry("via", &proxy)
        }
        Peer::Unknown => map.serialize_entry("peer", &()),
    }
}

fn what_members<M: SerializeMap>(map: &mut M, what: &What<'_>) -> Result<(), M::Error> {
    match what {
        What::AuthnFailure { scheme, reason, call, user } => {
            text(map, "scheme", scheme)?;
            text(map, "reason", reason)?;
            text(map, "call", call)?;
            match user {
                Named::Hash(hash) => map.serialize_entry("user", &Hex(hash)),
                Named::Nobody => Ok(()),
            }
        }
        What::AuthnSuccess(admission) => admission_members(map, admission),
        What::AuthnThrottled { limit, retry_after, call } => {
            text(map, "limit", limit)?;
            map.serialize_entry("retry_ms", &millis(*retry_after))?;
            text(map, "call", call)
        }
        What::AuthnUnavailable { scheme, reason } => {
            text(map, "scheme", scheme)?;
            text(map, "reason", reason)
        }
        What::AuthzDenied { principal, action, object, call } => {
            who(map, principal)?;
            text(map, "action", action)?;
            text(map, "object", object)?;
            text(map, "call", call)
        }
        What::GateStarted { version, address } | What::GateStopped { version, address } => {
            text(map, "version", version)?;
            map.serialize_entry("address", address)
        }
        What::LimitExceeded { limit, principal } => {
            text(map, "limit", limit)?;
            principal.map_or(Ok(()), |principal| who(map, principal))
        }
        What::Reloaded { what, outcome } => {
            text(map, "what", what)?;
            match outcome {
                Reload::Failed { problem } => text(map, "problem", problem),
                Reload::Ok => Ok(()),
            }
        }
        What::SealedRefused { principal, kind, reason } => {
            who(map, principal)?;
            map.serialize_entry("what", sealed_name(*kind))?;
            text(map, "reason", reason)
        }
        What::SessionEnded { session, principal, why } => {
            who(map, principal)?;
            text(map, "session", session)?;
            map.serialize_entry("why", end_name(*why))
        }
        What::SessionOpened { session, principal } => {
            who(map, principal)?;
            text(map, "session", session)
        }
        What::StatementEnd(statement) => statement_members(map, statement),
        What::TlsFailed { reason } => text(map, "reason", reason),
    }
}

fn admission_members<M: SerializeMap>(map: &mut M, admission: &Admission<'_>) -> Result<(), M::Error> {
    let Admission { scheme, principal, session, call } = admission;
    text(map, "scheme", scheme)?;
    who(map, principal)?;
    text(map, "authority", principal.key().authority())?;
    text(map, "subject", principal.key().subject())?;
    text(map, "credential", principal.credential_id())?;
    session.map_or(Ok(()), |session| text(map, "session", session))?;
    text(map, "call", call)
}

fn statement_members<M: SerializeMap>(map: &mut M, statement: &Statement<'_>) -> Result<(), M::Error> {
    let Statement { principal, session, query, kind, tables, end, text: sql } = statement;
    let End { rows, bytes, elapsed, outcome } = end;
    who(map, principal)?;
    text(map, "session", session)?;
    query.map_or(Ok(()), |query| text(map, "query", query))?;
    map.serialize_entry("statement", statement_name(*kind))?;
    map.serialize_entry("tables", &Tables(tables))?;
    match tables.len().saturating_sub(MAX_LIST) {
        0 => (),
        more => map.serialize_entry("tables_more", &more)?,
    }
    map.serialize_entry("rows", rows)?;
    map.serialize_entry("bytes", bytes)?;
    map.serialize_entry("ms", &millis(*elapsed))?;
    match outcome {
        Outcome::Cancelled => map.serialize_entry("outcome", "cancelled")?,
        Outcome::Denied => map.serialize_entry("outcome", "denied")?,
        Outcome::Error(class) => {
            map.serialize_entry("outcome", "error")?;
            map.serialize_entry("class", class_name(*class))?;
        }
        Outcome::Ok => map.serialize_entry("outcome", "ok")?,
    }
    match sql {
        StatementText::Danger(sql) => map.serialize_entry("sql", &Cut { text: sql, most: MAX_SQL }),
        StatementText::Hash(hash) => map.serialize_entry("sql_hash", &Hex(hash)),
        StatementText::None => Ok(()),
    }
}

/// Who, in short: the same subject of another scheme is somebody else.
fn who<M: SerializeMap>(map: &mut M, principal: &Principal) -> Result<(), M::Error> {
    text(map, "principal", principal.name())?;
    map.serialize_entry("kind", principal.scheme())
}

fn text<M: SerializeMap>(map: &mut M, name: &'static str, value: &str) -> Result<(), M::Error> {
    map.serialize_entry(name, &Text(value))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn sealed_name(kind: SealedKind) -> &'static str {
    match kind {
        SealedKind::Poll => "poll",
        SealedKind::Prepared => "prepared",
        SealedKind::Ticket => "ticket",
    }
}

fn end_name(why: SessionEnd) -> &'static str {
    match why {
        SessionEnd::Closed => "closed",
        SessionEnd::Evicted => "evicted",
        SessionEnd::Expired => "expired",
        SessionEnd::Idle => "idle",
        SessionEnd::Revoked => "revoked",
    }
}

fn statement_name(kind: StatementKind) -> &'static str {
    match kind {
        StatementKind::Ddl => "ddl",
        StatementKind::Dml => "dml",
        StatementKind::Explain => "explain",
        StatementKind::Ingest => "ingest",
        StatementKind::Select => "select",
        StatementKind::Set => "set",
        StatementKind::Unknown => "unknown",
    }
}

/// The names of the gRPC status codes.
fn class_name(class: Class) -> &'static str {
    match class {
        Class::Cancelled => "CANCELLED",
        Class::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Class::FailedPrecondition => "FAILED_PRECONDITION",
        Class::Internal => "INTERNAL",
        Class::InvalidArgument => "INVALID_ARGUMENT",
        Class::NotFound => "NOT_FOUND",
        Class::PermissionDenied => "PERMISSION_DENIED",
        Class::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Class::Unauthenticated => "UNAUTHENTICATED",
        Class::Unavailable => "UNAVAILABLE",
        Class::Unimplemented => "UNIMPLEMENTED",
    }
}

/// A string of at most [`MAX_TEXT`] characters.
struct Text<'a>(&'a str);

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Cut { text: self.0, most: MAX_TEXT }.serialize(serializer)
    }
}

/// A string of at most `most` characters; one that was cut ends with an ellipsis.
struct Cut<'a> {
    text: &'a str,
    most: usize,
}

impl Serialize for Cut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { text, most } = *self;
        // A text has no more characters than bytes, and most are short. Of a long one the end is never looked at.
        if text.len() <= most || text.chars().nth(most).is_none() {
            return serializer.serialize_str(text);
        }
        let kept = text.chars().take(most.saturating_sub(1));
        serializer.serialize_str(&kept.chain(['…']).collect::<String>())
    }
}

/// The first [`MAX_LIST`] names of a list.
struct Tables<'a>(&'a [String]);

impl Serialize for Tables<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().take(MAX_LIST).map(|table| Text(table)))
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for Hex<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Compact JSON that also escapes what JSON allows in a string and a reader would be deceived by.
struct OneLine;

impl Formatter for OneLine {
    fn write_string_fragment<W: io::Write + ?Sized>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        // Nearly all are plain, and bytes are looked at faster than characters.
        if fragment.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return writer.write_all(fragment.as_bytes());
        }
        let mut rest = fragment;
        while let Some((before, sign, after)) = split_at_deceiving(rest) {
            writer.write_all(before.as_bytes())?;
            for unit in sign.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = after;
        }
        writer.write_all(rest.as_bytes())
    }
}

fn split_at_deceiving(text: &str) -> Option<(&str, char, &str)> {
    let (at, sign) = text.char_indices().find(|(_, sign)| deceives(*sign))?;
    let (before, found) = text.split_at_checked(at)?;
    Some((before, sign, found.strip_prefix(sign)?))
}

/// Control characters, among them the second set that some terminals obey; line ends by another name; what is not seen
/// or turns the order of the text around it.
fn deceives(sign: char) -> bool {
    sign.is_control()
        || matches!(
            sign,
            '\u{ad}'
                | '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// The version of the lines' form. New members and events do not change it; another meaning of an old one does.
const VERSION: u8 = 1;
/// Characters of a string.
const MAX_TEXT: usize = 256;
/// Characters of a statement.
pub(crate) const MAX_SQL: usize = 4096;
/// Members of a list.
const MAX_LIST: usize = 50;
/// Bytes that most lines have room in.
const USUAL: usize = 384;

#[cfg(test)]
mod tests;
