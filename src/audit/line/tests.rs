//! What is written for each event, to the letter.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use portcullis_auth::{Assertion, Expiry};
use serde_json::Value;

use super::*;

#[test]
fn every_event_is_written_as_the_documentation_shows_it() {
    let alice = principal("alice");
    let mut written: Vec<String> = events(&alice).iter().map(line).collect();
    let first = time().checked_sub(Duration::from_millis(1002)).unwrap();
    written.push(text(of_loss(&Loss { lines: 17, first, last: time() })));

    let documented = examples(DOCUMENTATION);
    assert_eq!(documented.len(), written.len(), "one example per event");
    for (documented, written) in documented.iter().zip(&written) {
        assert_eq!(documented, written);
    }
}

#[test]
fn every_member_and_every_event_has_a_place_in_the_documentation() {
    let alice = principal("alice");
    let mut all: Vec<String> = events(&alice).iter().map(line).collect();
    let many: Vec<String> = (0..51).map(|number| format!("t{number}")).collect();
    let statement = Statement { tables: &many, text: StatementText::Danger("SELECT 1"), ..statement(&alice) };
    all.push(line(&call(What::StatementEnd(statement))));
    let (rows, rest): (Vec<&str>, Vec<&str>) = DOCUMENTATION.lines().partition(|line| line.starts_with("| `"));
    let first_cells: String = rows.iter().filter_map(|row| row.split('|').nth(1)).collect();
    for line in all {
        let members: BTreeMap<String, Value> = serde_json::from_str(&line).unwrap();
        for member in members.keys() {
            assert!(first_cells.contains(&format!("`{member}`")), "`{member}` is in no table");
        }
        let event = members.get("event").and_then(Value::as_str).unwrap();
        let introduced = rest.iter().any(|line| line.starts_with('`') && line.contains(&format!("`{event}`")));
        assert!(introduced, "`{event}` is not introduced");
    }
}

#[test]
fn a_name_cannot_forge_a_line_or_move_a_cursor() {
    check_reason("plain, \"quoted\" and \\", r#"plain, \"quoted\" and \\"#);
    check_reason("\u{1b}[2J\n{\"event\":\"authn.success\"}", r#"\u001b[2J\n{\"event\":\"authn.success\"}"#);
    check_reason("a\r\nb\tc\0d", r"a\r\nb\tc\u0000d");
    check_reason("all of it ASCII\u{7f}", r"all of it ASCII\u007f");
    check_reason("\u{7f}\u{85}\u{9b}31m", r"\u007f\u0085\u009b31m");
    check_reason("a\u{2028}b\u{2029}c", r"a\u2028b\u2029c");
    check_reason("\u{202e}ecila\u{200b}\u{feff}\u{2066}", r"\u202eecila\u200b\ufeff\u2066");
    check_reason("tag \u{e0041}", r"tag \udb40\udc41");
    check_reason("größer 表 🦀", "größer 表 🦀");
}

#[test]
fn a_line_is_bounded_whatever_is_in_it() {
    check_reason(&"é".repeat(256), &"é".repeat(256));
    check_reason(&"é".repeat(257), &format!("{}…", "é".repeat(255)));
    check_reason(&"\0".repeat(1_000_000), &format!("{}…", r"\u0000".repeat(255)));

    let alice = principal("alice");
    let many: Vec<String> = (0..5000).map(|number| format!("{number}{}", "\0".repeat(5000))).collect();
    let sql = "\0".repeat(1_000_000);
    let statement = Statement { tables: &many, text: StatementText::Danger(&sql), ..statement(&alice) };
    let line = line(&call(What::StatementEnd(statement)));
    assert!(line.len() < 128 * 1024, "{} bytes", line.len());
    let line: Value = serde_json::from_str(&line).unwrap();
    let member = |name: &str| line.get(name).unwrap();
    assert_eq!(member("tables").as_array().unwrap().len(), 50);
    assert_eq!(member("tables_more"), 4950);
    assert_eq!(member("sql").as_str().unwrap().chars().count(), 4096);
}

#[test]
fn the_text_of_a_statement_is_written_only_if_it_is_handed_over() {
    let alice = principal("alice");
    let with = Statement { text: StatementText::Danger("SELECT 'secret'"), ..statement(&alice) };
    let with = line(&call(What::StatementEnd(with)));
    assert!(with.ends_with(r#""outcome":"ok","sql":"SELECT 'secret'"}"#), "{with}");
    let hashed = Statement { text: StatementText::Hash([0xab; 16]), ..statement(&alice) };
    let hashed = line(&call(What::StatementEnd(hashed)));
    assert!(hashed.ends_with(&format!(r#""outcome":"ok","sql_hash":"{}"}}"#, "ab".repeat(16))), "{hashed}");
    assert!(!line(&call(What::StatementEnd(statement(&alice)))).contains("sql"));
}

#[test]
fn what_there_is_nothing_to_say_about_is_absent() {
    let alice = principal("alice");
    let origin = Origin::Call { request: "1", peer: Peer::Unknown };
    let admission = Admission { scheme: "a", principal: &alice, session: None, call: "DoGet" };
    let admitted = line(&Event { time: time(), origin, what: What::AuthnSuccess(admission) });
    assert!(admitted.contains(r#""request":"1","peer":null,"scheme":"a""#), "{admitted}");
    assert!(admitted.ends_with(r#""credential":"jti-77","call":"DoGet"}"#), "{admitted}");

    let user = Named::Nobody;
    let refused = line(&call(What::AuthnFailure { scheme: "-", reason: "none", call: "DoGet", user }));
    assert!(refused.ends_with(r#""scheme":"-","reason":"none","call":"DoGet"}"#), "{refused}");
}

#[test]
fn every_outcome_has_its_name() {
    let alice = principal("alice");
    let check = |outcome, expected: &str| {
        let end = End { outcome, ..statement(&alice).end };
        let line = line(&call(What::StatementEnd(Statement { end, ..statement(&alice) })));
        assert!(line.ends_with(expected), "{line}");
    };
    check(Outcome::Ok, r#""ms":42,"outcome":"ok"}"#);
    check(Outcome::Cancelled, r#""ms":42,"outcome":"cancelled"}"#);
    check(Outcome::Denied, r#""ms":42,"outcome":"denied"}"#);
    for (class, name) in [
        (Class::Cancelled, "CANCELLED"),
        (Class::DeadlineExceeded, "DEADLINE_EXCEEDED"),
        (Class::FailedPrecondition, "FAILED_PRECONDITION"),
        (Class::Internal, "INTERNAL"),
        (Class::InvalidArgument, "INVALID_ARGUMENT"),
        (Class::NotFound, "NOT_FOUND"),
        (Class::PermissionDenied, "PERMISSION_DENIED"),
        (Class::ResourceExhausted, "RESOURCE_EXHAUSTED"),
        (Class::Unauthenticated, "UNAUTHENTICATED"),
        (Class::Unavailable, "UNAVAILABLE"),
        (Class::Unimplemented, "UNIMPLEMENTED"),
    ] {
        check(Outcome::Error(class), &format!(r#""ms":42,"outcome":"error","class":"{name}"}}"#));
    }
}

#[test]
fn every_end_and_every_kind_has_its_name() {
    let alice = principal("alice");
    for (why, name) in [
        (SessionEnd::Closed, "closed"),
        (SessionEnd::Evicted, "evicted"),
        (SessionEnd::Expired, "expired"),
        (SessionEnd::Idle, "idle"),
        (SessionEnd::Revoked, "revoked"),
    ] {
        let line = line(&call(What::SessionEnded { session: "5e1f0a92", principal: &alice, why }));
        assert!(line.ends_with(&format!(r#""why":"{name}"}}"#)), "{line}");
    }
    for (kind, name) in [
        (StatementKind::Ddl, "ddl"),
        (StatementKind::Dml, "dml"),
        (StatementKind::Explain, "explain"),
        (StatementKind::Ingest, "ingest"),
        (StatementKind::Select, "select"),
        (StatementKind::Set, "set"),
        (StatementKind::Unknown, "unknown"),
    ] {
        let line = line(&call(What::StatementEnd(Statement { kind, ..statement(&alice) })));
        assert!(line.contains(&format!(r#""statement":"{name}","#)), "{line}");
    }
    for (kind, name) in [(SealedKind::Poll, "poll"), (SealedKind::Prepared, "prepared"), (SealedKind::Ticket, "ticket")]
    {
        let line = line(&call(What::SealedRefused { principal: &alice, kind, reason: "does not open" }));
        assert!(line.contains(&format!(r#""what":"{name}","#)), "{line}");
    }
}

/// As a reason it is written so, on one line, and read back as JSON it is the same unless it was cut.
fn check_reason(reason: &str, expected: &str) {
    let line = line(&call(What::TlsFailed { reason }));
    let (_, written) = line.split_once(r#""reason":""#).unwrap();
    assert_eq!(written.strip_suffix(r#""}"#).unwrap(), expected);
    let read: Value = serde_json::from_str(&line).unwrap();
    let read = read.get("reason").and_then(Value::as_str).unwrap();
    if reason.chars().count() <= MAX_TEXT {
        assert_eq!(read, reason);
    } else {
        assert_eq!(read.chars().count(), MAX_TEXT);
    }
}

/// One of each, in the order of the documentation.
fn events(alice: &Principal) -> Vec<Event<'_>> {
    let proxied = Peer::Proxied { client: address("203.0.113.7:50112"), proxy: address("10.0.0.2:44100") };
    let request = "8f2c4d1e9a0b7c35";
    let session = "5e1f0a92";
    let gate = |what| Event { time: time(), origin: Origin::Gate, what };
    let connection = |what| Event { time: time(), origin: Origin::Connection(peer()), what };
    let admission = Admission { scheme: "corporate", principal: alice, session: Some(session), call: "Handshake" };
    let hash = [0x9d, 0x41, 0xc8, 0xa0, 0x7b, 0xe2, 0x5f, 0x13, 0x66, 0x0e, 0x94, 0xd2, 0xb8, 0x17, 0x5a, 0xc3];
    let text = [0x41, 0x7e, 0x02, 0xd9, 0xb6, 0x8c, 0x1f, 0x50, 0x3a, 0xe4, 0x97, 0x2b, 0xc5, 0x60, 0x8d, 0x13];
    let unreadable = Statement {
        query: None,
        kind: StatementKind::Unknown,
        tables: &[],
        end: End {
            rows: 0,
            bytes: 0,
            elapsed: Duration::from_millis(1),
            outcome: Outcome::Error(Class::InvalidArgument),
        },
        ..statement(alice)
    };
    vec![
        Event { time: time(), origin: Origin::Call { request, peer: proxied }, what: What::AuthnSuccess(admission) },
        call(What::AuthnFailure {
            scheme: "staff",
            reason: "unknown user or wrong password",
            call: "Handshake",
            user: Named::Hash(hash),
        }),
        call(What::AuthnThrottled {
            limit: "failed_auth_per_ip",
            retry_after: Duration::from_secs(4),
            call: "Handshake",
        }),
        call(What::AuthnUnavailable { scheme: "corporate", reason: "keys not fetched" }),
        connection(What::TlsFailed { reason: "the client's certificate has expired" }),
        call(What::SessionOpened { session, principal: alice }),
        gate(What::SessionEnded { session, principal: alice, why: SessionEnd::Idle }),
        call(What::StatementEnd(Statement { text: StatementText::Hash(text), ..statement(alice) })),
        call(What::StatementEnd(unreadable)),
        call(What::AuthzDenied {
            principal: alice,
            action: "select",
            object: "hr.public.salaries",
            call: "GetFlightInfo",
        }),
        call(What::SealedRefused { principal: alice, kind: SealedKind::Ticket, reason: "does not open" }),
        call(What::LimitExceeded { limit: "queries_per_principal", principal: Some(alice) }),
        connection(What::LimitExceeded { limit: "connections_per_ip", principal: None }),
        connection(What::LimitExceeded { limit: "preauth_per_ip", principal: None }),
        gate(What::GateStarted { version: "0.1.0", address: address("0.0.0.0:32010") }),
        gate(What::GateStopped { version: "0.1.0", address: address("0.0.0.0:32010") }),
        gate(What::Reloaded { what: "credentials", outcome: Reload::Ok }),
        gate(What::Reloaded {
            what: "credentials",
            outcome: Reload::Failed { problem: "users.toml:7: not an argon2id string" },
        }),
    ]
}

fn statement(principal: &Principal) -> Statement<'_> {
    Statement {
        principal,
        session: "5e1f0a92",
        query: Some("c0ffee00c0ffee00"),
        kind: StatementKind::Select,
        tables: TABLES.get_or_init(|| vec!["sales.public.orders".to_owned()]),
        end: End { rows: 1000, bytes: 65_536, elapsed: Duration::from_micros(42_900), outcome: Outcome::Ok },
        text: StatementText::None,
    }
}

fn call(what: What<'_>) -> Event<'_> {
    Event { time: time(), origin: Origin::Call { request: "8f2c4d1e9a0b7c35", peer: peer() }, what }
}

fn peer() -> Peer {
    Peer::Direct(address("203.0.113.7:50112"))
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn time() -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(1_796_193_728_042)).unwrap()
}

fn principal(name: &str) -> Principal {
    let assertion = Assertion {
        name: name.to_owned(),
        scheme: "jwt",
        authority: "https://id.example.com".to_owned(),
        subject: "00u1a2b3".to_owned(),
        roles: BTreeSet::from(["analyst".to_owned()]),
        attributes: BTreeMap::from([("region".to_owned(), "EU".to_owned())]),
        expires: Expiry::Never,
        credential_id: "jti-77".to_owned(),
    };
    Principal::assertion(assertion).unwrap()
}

fn line(event: &Event<'_>) -> String {
    text(of_event(event))
}

/// Without its end, of which there is one.
fn text(line: Result<Vec<u8>, serde_json::Error>) -> String {
    let line = String::from_utf8(line.unwrap()).unwrap();
    let line = line.strip_suffix('\n').unwrap();
    assert!(!line.chars().any(deceives), "not harmless: {line:?}");
    line.to_owned()
}

/// The lines of the blocks that show events; what is indented goes on with the line before.
fn examples(page: &str) -> Vec<String> {
    let blocks = page.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut examples: Vec<String> = Vec::new();
    for line in blocks.flat_map(str::lines) {
        match line.strip_prefix("  ") {
            Some(more) => examples.last_mut().unwrap().push_str(more),
            None => examples.push(line.to_owned()),
        }
    }
    examples
}

static TABLES: std::sync::OnceLock<Vec<String>> = std::sync::OnceLock::new();
const DOCUMENTATION: &str = include_str!("../../../docs/audit.md");
