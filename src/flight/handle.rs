//! Sealed handles: what a client carries between calls.
//!
//! A ticket names a query or a metadata command, a prepared handle holds its statement; both open only for the
//! identity they were made for, before their time is over. Must not know the backend, and must not tell why a handle
//! does not open.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow_flight::sql::{Any, ProstMessageExt, TicketStatementQuery};
use bytes::{BufMut, Bytes};
use portcullis_auth::{Clock, IdentityKey};
use prost::Message;

use crate::seal::{Purpose, Sealer, owner_bytes};
use crate::sql::Source;
use crate::status::{Class, Failure};

/// Makes and opens handles.
#[derive(Debug)]
pub(super) struct Handles {
    sealer: Arc<Sealer>,
    clock: Arc<dyn Clock>,
    prepared_lifetime: Duration,
}

/// Names a started query inside this gate.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct QueryId([u8; 16]);

impl fmt::Debug for QueryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueryId({:032x})", u128::from_be_bytes(self.0))
    }
}

impl fmt::Display for QueryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Enough to follow one query through the records.
        self.0.iter().take(6).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl QueryId {
    pub(super) fn random() -> Result<Self, Failure> {
        let mut bytes = [0; 16];
        aws_lc_rs::rand::fill(&mut bytes).map_err(|_| Failure::internal("no random numbers"))?;
        Ok(Self(bytes))
    }
}

/// What a ticket stands for.
#[derive(Debug, PartialEq)]
pub(super) enum Ticket {
    /// A metadata command, answered when it is read.
    Metadata(Any),
    /// A query that was started.
    Query(QueryId),
}

impl Handles {
    pub(super) fn new(sealer: Arc<Sealer>, clock: Arc<dyn Clock>, prepared_lifetime: Duration) -> Self {
        Self { sealer, clock, prepared_lifetime }
    }

    /// The bytes of a Flight ticket, and when it ends.
    pub(super) fn ticket(
        &self,
        owner: &IdentityKey,
        ticket: &Ticket,
        lifetime: Duration,
    ) -> Result<(Bytes, SystemTime), Failure> {
        let ends = self.end(lifetime);
        let mut plain = self.header(ends);
        match ticket {
            Ticket::Metadata(command) => {
                plain.put_u8(METADATA);
                plain.put_slice(&command.encode_to_vec());
            }
            Ticket::Query(query) => {
                plain.put_u8(QUERY);
                plain.put_slice(&query.0);
            }
        }
        let sealed = self.seal(Purpose::Ticket, owner, &plain)?;
        // Any-wrapped like every ticket of Flight SQL, so that clients that look into it find what they know.
        let message = TicketStatementQuery { statement_handle: sealed.into() };
        Ok((message.as_any().encode_to_vec().into(), ends))
    }

    /// Opens a ticket for `owner`.
    pub(super) fn open_ticket(&self, owner: &IdentityKey, bytes: &Bytes) -> Result<Ticket, Failure> {
        let sealed = Any::decode(bytes.clone())
            .ok()
            .and_then(|any| any.unpack::<TicketStatementQuery>().ok().flatten())
            .ok_or_else(invalid_ticket)?;
        let plain = self.open(Purpose::Ticket, owner, &sealed.statement_handle).ok_or_else(invalid_ticket)?;
        match plain.split_first() {
            Some((&QUERY, id)) => id.try_into().map(|id| Ticket::Query(QueryId(id))).map_err(|_| invalid_ticket()),
            Some((&METADATA, command)) => Any::decode(command).map(Ticket::Metadata).map_err(|_| invalid_ticket()),
            Some(_) | None => Err(invalid_ticket()),
        }
    }

    /// A prepared statement's handle: the statement itself, sealed. Nothing is kept for it in the gate.
    pub(super) fn prepared(&self, owner: &IdentityKey, source: &Source) -> Result<Bytes, Failure> {
        let mut plain = self.header(self.end(self.prepared_lifetime));
        match source {
            Source::Sql(sql) => {
                plain.put_u8(SQL);
                plain.put_slice(sql.as_bytes());
            }
            #[cfg(feature = "substrait")]
            Source::Substrait(plan) => {
                plain.put_u8(SUBSTRAIT);
                plain.put_slice(plan);
            }
        }
        self.seal(Purpose::Prepared, owner, &plain).map(Bytes::from)
    }

    /// The statement of a prepared handle.
    pub(super) fn open_prepared(&self, owner: &IdentityKey, handle: &Bytes) -> Result<Source, Failure> {
        self.open(Purpose::Prepared, owner, handle)
            .and_then(|plain| match plain.split_first()? {
                (&SQL, sql) => String::from_utf8(sql.to_vec()).ok().map(Source::Sql),
                #[cfg(feature = "substrait")]
                (&SUBSTRAIT, plan) => Some(Source::Substrait(Bytes::copy_from_slice(plan))),
                _ => None,
            })
            .ok_or_else(|| Failure::new(Class::NotFound, "the prepared statement does not exist or has expired"))
    }

    fn end(&self, lifetime: Duration) -> SystemTime {
        let now = self.clock.now();
        now.checked_add(lifetime).unwrap_or(now)
    }

    fn header(&self, ends: SystemTime) -> Vec<u8> {
        let mut plain = vec![VERSION];
        plain.put_u64(unix_millis(ends));
        plain
    }

    fn seal(&self, purpose: Purpose, owner: &IdentityKey, plain: &[u8]) -> Result<Vec<u8>, Failure> {
        self.sealer.seal(purpose, &owner_bytes(owner), plain).map_err(Failure::internal)
    }

    fn open(&self, purpose: Purpose, owner: &IdentityKey, sealed: &[u8]) -> Option<Vec<u8>> {
        let plain = self.sealer.open(purpose, &owner_bytes(owner), sealed).ok()?;
        let (version, rest) = plain.split_first()?;
        let (ends, rest) = rest.split_first_chunk::<8>()?;
        let fresh = *version == VERSION && u64::from_be_bytes(*ends) > unix_millis(self.clock.now());
        fresh.then(|| rest.to_vec())
    }
}

fn unix_millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// One answer for forged, foreign, expired and unknown tickets.
pub(super) fn invalid_ticket() -> Failure {
    Failure::new(Class::InvalidArgument, "the ticket is not valid, or not any more")
}

const VERSION: u8 = 1;
const QUERY: u8 = 1;
const METADATA: u8 = 2;
const SQL: u8 = 1;
#[cfg(feature = "substrait")]
const SUBSTRAIT: u8 = 2;

#[cfg(test)]
mod tests {
    #![expect(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "a failed step fails the test"
    )]

    use std::collections::{BTreeMap, BTreeSet};

    use arrow_flight::sql::CommandGetCatalogs;
    use portcullis_auth::{Assertion, Expiry, Principal, TestClock};

    use super::*;

    fn principal(subject: &str, authority: &str) -> Principal {
        Principal::assertion(Assertion {
            name: subject.to_owned(),
            scheme: "test",
            authority: authority.to_owned(),
            subject: subject.to_owned(),
            roles: BTreeSet::new(),
            attributes: BTreeMap::new(),
            expires: Expiry::Never,
            credential_id: "1".to_owned(),
        })
        .unwrap()
    }

    fn handles() -> (Handles, Arc<TestClock>) {
        let clock = Arc::new(TestClock::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000)));
        (Handles::new(Arc::new(Sealer::random().unwrap()), clock.clone(), Duration::from_secs(3600)), clock)
    }

    fn source() -> Source {
        Source::Sql("SELECT 1".to_owned())
    }

    #[test]
    fn a_ticket_opens_for_its_owner_until_it_expires() {
        let (handles, clock) = handles();
        let (alice, bob) = (principal("alice", "a"), principal("bob", "a"));
        let namesake = principal("alice", "another issuer");
        for ticket in [Ticket::Query(QueryId([7; 16])), Ticket::Metadata(CommandGetCatalogs {}.as_any())] {
            let (bytes, _) = handles.ticket(alice.key(), &ticket, Duration::from_secs(60)).unwrap();
            assert_eq!(handles.open_ticket(alice.key(), &bytes).unwrap(), ticket);
            for other in [&bob, &namesake] {
                assert_eq!(handles.open_ticket(other.key(), &bytes).unwrap_err().class(), Class::InvalidArgument);
            }
            clock.advance(Duration::from_secs(61));
            assert_eq!(handles.open_ticket(alice.key(), &bytes).unwrap_err().class(), Class::InvalidArgument);
        }
    }

    #[test]
    fn a_handle_of_one_kind_does_not_open_as_another() {
        let (handles, _clock) = handles();
        let alice = principal("alice", "a");
        let prepared = handles.prepared(alice.key(), &source()).unwrap();
        assert_eq!(handles.open_prepared(alice.key(), &prepared).unwrap(), source());
        let (ticket, _) =
            handles.ticket(alice.key(), &Ticket::Query(QueryId([7; 16])), Duration::from_secs(60)).unwrap();
        assert!(handles.open_prepared(alice.key(), &ticket).is_err());
        let disguised = TicketStatementQuery { statement_handle: prepared.clone() }.as_any().encode_to_vec().into();
        assert!(handles.open_ticket(alice.key(), &disguised).is_err());
    }

    #[test]
    fn no_changed_byte_is_accepted() {
        let (handles, _clock) = handles();
        let alice = principal("alice", "a");
        let handle = handles.prepared(alice.key(), &source()).unwrap().to_vec();
        assert!(handles.open_prepared(alice.key(), &handle.clone().into()).is_ok());
        for at in 0..handle.len() {
            let mut changed = handle.clone();
            changed[at] ^= 1;
            assert!(handles.open_prepared(alice.key(), &changed.into()).is_err(), "byte {at}");
            assert!(handles.open_prepared(alice.key(), &handle[..at].to_vec().into()).is_err(), "cut at {at}");
        }
    }
}
