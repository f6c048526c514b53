//! Boxes, tickets, prepared handles, session tokens and cookies: what the gate sealed, and what it did not.
//!
//! Nothing opens that was not sealed for this purpose and this owner, and what is inside a box is read with the same
//! distrust as what is outside.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::sql::{Any, ProstMessageExt, TicketStatementQuery};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, HeaderValue};
use portcullis_auth::{Attempt, Credential};
use prost::Message;

use super::handle::{Handles, QueryId, Ticket};
use super::input::Input;
use super::{Gate, Still, now};
use crate::audit::SessionEnd;
use crate::gate::session::{
    Adopted, Binding, ByToken, Session, SessionEnded, SessionKind, SessionPolicy, Sessions, Sharing, TOKEN_PREFIX,
};
use crate::seal::{Purpose, Sealer, owner_bytes};
use crate::sql::Source;

impl Gate {
    /// Any bytes; a plaintext for a purpose; a good box with edits.
    pub fn sealed_box(&self, data: &[u8]) {
        let mut input = Input::new(data);
        let owners = [owner_bytes(self.caller.key()), owner_bytes(self.stranger.key()), Vec::new()];
        let openers = || PURPOSES.iter().flat_map(|purpose| owners.iter().map(move |owner| (*purpose, owner)));
        let [ours, ..] = &owners;
        match input.choice(3) {
            0 => {
                let sealed = input.rest();
                assert!(openers().all(|(purpose, owner)| self.unused.open(purpose, owner, sealed).is_err()));
            }
            1 => {
                let purpose = PURPOSES.get(usize::from(input.choice(5))).copied().unwrap();
                let plain = input.rest();
                let sealed = self.sealer.seal(purpose, ours, plain).unwrap();
                for (other, owner) in openers() {
                    let opened = self.sealer.open(other, owner, &sealed);
                    assert_eq!(opened.is_ok(), other == purpose && owner == ours, "{other:?}");
                    assert!(opened.is_ok_and(|opened| opened == plain) || other != purpose || owner != ours);
                }
            }
            _ => {
                let good = self.sealer.seal(Purpose::Ticket, ours, b"what is inside").unwrap();
                let sealed = input.edited(&good);
                let opens = openers().filter(|(purpose, owner)| self.sealer.open(*purpose, owner, &sealed).is_ok());
                assert_eq!(opens.count(), usize::from(sealed == good), "a box that was changed opens");
            }
        }
    }

    /// Any bytes; a good ticket and a good prepared handle with edits; any bytes inside a box; a round trip.
    pub fn handle(&self, data: &[u8]) {
        let mut input = Input::new(data);
        let handles = Handles::new(Arc::clone(&self.sealer), Arc::new(Still), LIFE);
        let (caller, stranger) = (self.caller.key(), self.stranger.key());
        match input.choice(4) {
            0 => {
                let handles = Handles::new(Arc::clone(&self.unused), Arc::new(Still), LIFE);
                let bytes = Bytes::copy_from_slice(input.rest());
                assert!(handles.open_ticket(caller, &bytes).is_err() && handles.open_prepared(caller, &bytes).is_err());
            }
            1 => {
                let ticket = Ticket::Query(QueryId::random().unwrap());
                let (good, _) = handles.ticket(caller, &ticket, LIFE).unwrap();
                let prepared = handles.prepared(caller, &Source::Sql("SELECT 1".to_owned())).unwrap();
                let edits = input.rest();
                let edited = Bytes::from(Input::new(edits).edited(&good));
                // The envelope is protobuf and may be written in several ways; what it holds may not.
                assert!(handles.open_ticket(caller, &edited).is_ok_and(|opened| opened == ticket) || edited != good);
                assert!(handles.open_ticket(caller, &edited).is_err() || holds_same_box(&edited, &good));
                assert!(handles.open_ticket(stranger, &edited).is_err());
                let edited = Bytes::from(Input::new(edits).edited(&prepared));
                assert_eq!(handles.open_prepared(caller, &edited).is_ok(), edited == prepared);
                assert!(handles.open_prepared(stranger, &edited).is_err());
            }
            2 => {
                let plain = input.rest();
                let seal = |purpose| Bytes::from(self.sealer.seal(purpose, &owner_bytes(caller), plain).unwrap());
                let ticket = TicketStatementQuery { statement_handle: seal(Purpose::Ticket) }.as_any();
                let ticket = Bytes::from(ticket.encode_to_vec());
                let lives = plain.get(1..9).and_then(|ends| ends.try_into().ok()).map(u64::from_be_bytes);
                let lives = lives.is_some_and(|ends| ends > NOW_MILLIS);
                if let Ok(opened) = handles.open_ticket(caller, &ticket) {
                    assert!(lives, "a ticket opens after its end");
                    let (again, _) = handles.ticket(caller, &opened, LIFE).unwrap();
                    assert_eq!(handles.open_ticket(caller, &again).unwrap(), opened);
                }
                if let Ok(source) = handles.open_prepared(caller, &seal(Purpose::Prepared)) {
                    let again = handles.prepared(caller, &source).unwrap();
                    assert!(lives && handles.open_prepared(caller, &again).unwrap() == source);
                }
                assert!(handles.open_ticket(caller, &seal(Purpose::Prepared)).is_err());
            }
            _ => {
                let (sql, value) = (String::from_utf8_lossy(input.line()), Bytes::copy_from_slice(input.rest()));
                let source = Source::Sql(sql.clone().into_owned());
                let prepared = handles.prepared(caller, &source).unwrap();
                assert_eq!(handles.open_prepared(caller, &prepared).unwrap(), source);
                assert!(handles.open_prepared(stranger, &prepared).is_err());
                let ticket = Ticket::Metadata(Any { type_url: sql.into_owned(), value });
                let (bytes, _) = handles.ticket(caller, &ticket, LIFE).unwrap();
                assert_eq!(handles.open_ticket(caller, &bytes).unwrap(), ticket);
                assert!(handles.open_ticket(stranger, &bytes).is_err());
            }
        }
    }

    /// Any text; a good token with edits; any facts about a session, sealed by a gate with the same keys.
    pub fn session_token(&self, data: &[u8]) {
        let mut input = Input::new(data);
        let sessions = sessions(&self.sealer);
        match input.choice(3) {
            0 => {
                let sessions = self::sessions(&self.unused);
                let (found, prefixed) = (input.rest(), [TOKEN_PREFIX.as_bytes(), data].concat());
                for token in [found, &prefixed] {
                    assert!(matches!(find(&sessions, token), None | Some(ByToken::Nothing)));
                }
            }
            1 => {
                let (token, session) = sessions.open(&self.caller, Binding::Free).unwrap();
                let edited = input.edited(token.expose());
                match find(&sessions, &edited) {
                    Some(ByToken::Found(found)) => assert!(edited == token.expose() && found.id() == session.id()),
                    Some(ByToken::Nothing) | None => assert_ne!(edited, token.expose()),
                    Some(ByToken::Elsewhere(_) | ByToken::Unknown(_)) => panic!("a token of this gate is another's"),
                }
                sessions.end(session.id(), SessionEnd::Closed);
                assert!(matches!(find(&sessions, token.expose()), Some(ByToken::Nothing)), "it opens after its end");
            }
            _ => {
                let sealed = self.sealer.seal(Purpose::Session, b"", input.rest()).unwrap();
                let token = [TOKEN_PREFIX, &URL_SAFE_NO_PAD.encode(sealed)].concat();
                let Some(ByToken::Elsewhere(foreign)) = find(&sessions, token.as_bytes()) else { return };
                let says = foreign.scheme().to_owned();
                let Adopted::Here(session) = sessions.adopt(foreign, self.caller.scheme()) else { return };
                assert_eq!((says.as_str(), session.principal().scheme()), (self.caller.scheme(), self.caller.scheme()));
                assert!(!session.principal().expires().passed(now()), "a session outlives its credential");
                assert!(!session.expires().passed(now()), "a session begins after its end");
                match find(&sessions, token.as_bytes()) {
                    Some(ByToken::Found(found)) => assert_eq!(found.id(), session.id()),
                    _ => panic!("a session that was taken over is not found"),
                }
                sessions.end(session.id(), SessionEnd::Closed);
                assert!(matches!(find(&sessions, token.as_bytes()), Some(ByToken::Nothing)), "it opens after its end");
            }
        }
    }

    /// Lines are cookie headers: as they are; a good cookie with edits.
    pub fn cookie(&self, data: &[u8]) {
        let mut input = Input::new(data);
        let choice = input.choice(2);
        let sessions = sessions(if choice == 0 { &self.unused } else { &self.sealer });
        let choose = |principal, headers: &HeaderMap| sessions.by_cookie(principal, headers).unwrap();
        if choice == 0 {
            let lines = [input.line(), input.line(), input.rest()];
            let values = lines.iter().filter_map(|line| HeaderValue::from_bytes(line).ok());
            let headers = values.map(|value| (COOKIE, value)).collect();
            assert!(choose(&self.caller, &headers).is_none(), "a cookie was taken that nobody gave");
            return;
        }
        let given = sessions.fresh_cookie(&self.caller).unwrap();
        let (good, _) = given.to_str().unwrap().split_once(';').unwrap();
        let edited = input.edited(good.as_bytes());
        let Ok(value) = HeaderValue::from_bytes(&edited) else { return };
        let headers = HeaderMap::from_iter([(COOKIE, value)]);
        match choose(&self.caller, &headers) {
            Some(session) => {
                assert_eq!((session.kind(), session.principal().key()), (SessionKind::Cookie, self.caller.key()));
                // Other cookies, quotes and spaces may stand around it.
                let value = good.split_once('=').unwrap().1;
                assert!(edited.windows(value.len()).any(|part| part == value.as_bytes()), "a changed cookie is taken");
            }
            None => assert_ne!(edited, good.as_bytes()),
        }
        assert!(choose(&self.stranger, &headers).is_none(), "a cookie chooses for a stranger");
    }
}

fn sessions(sealer: &Arc<Sealer>) -> Sessions {
    let policy = SessionPolicy { idle: LIFE, lifetime: LIFE, max_per_principal: 4, max_total: 8 };
    Sessions::new(Arc::clone(sealer), Arc::new(Still), policy, Sharing::Unlisted, Arc::new(Nobody))
}

fn holds_same_box(one: &Bytes, other: &Bytes) -> bool {
    let handle = |bytes: &Bytes| {
        let any = Any::decode(bytes.clone()).ok()?;
        Some(any.unpack::<TicketStatementQuery>().ok()??.statement_handle)
    };
    handle(one) == handle(other)
}

/// What the store makes of a bearer token, if it is one at all.
fn find(sessions: &Sessions, token: &[u8]) -> Option<ByToken> {
    let value = HeaderValue::from_bytes(&[b"Bearer ", token].concat()).ok()?;
    let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
    let Credential::Bearer(token) = Attempt::new(&headers, now()).credential() else { return None };
    Some(sessions.by_token(&token))
}

#[derive(Debug)]
struct Nobody;

impl SessionEnded for Nobody {
    fn ended(&self, _session: &Session, _why: SessionEnd) {}
}

const PURPOSES: [Purpose; 5] = [Purpose::Cookie, Purpose::Poll, Purpose::Prepared, Purpose::Session, Purpose::Ticket];
const NOW_MILLIS: u64 = 1_750_000_000_000;
/// Shorter than what an unlisted token may have left, so that both ends are met.
const LIFE: Duration = Duration::from_secs(600);
