//! What can be on record, as types.
//!
//! Texts are bounded and escaped when the line is made, so that they may come from a client. Must not have a place for
//! a credential, nor for a name that was presented and not admitted.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use portcullis_auth::Principal;

use crate::status::Class;

/// One thing that happened, when and where.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// When it happened, by the gate's clock.
    pub time: SystemTime,
    /// On whose behalf.
    pub origin: Origin<'a>,
    /// What happened.
    pub what: What<'a>,
}

/// On whose behalf something happened.
#[derive(Clone, Copy, Debug)]
pub enum Origin<'a> {
    /// A call.
    Call {
        /// The call's name in the log.
        request: &'a str,
        /// Where it came from.
        peer: Peer,
    },
    /// A connection on which no call was made yet.
    Connection(Peer),
    /// Nobody's: the gate did it.
    Gate,
}

/// Where a connection came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Straight from the client.
    Direct(SocketAddr),
    /// Through a trusted proxy, which told the client's address.
    Proxied {
        /// The client, as the proxy says.
        client: SocketAddr,
        /// The proxy.
        proxy: SocketAddr,
    },
    /// The server that the gate is mounted on does not say.
    Unknown,
}

/// What happened. Closed: a new event needs a place in `docs/audit.md`.
#[derive(Clone, Copy, Debug)]
pub enum What<'a> {
    /// A credential was not accepted.
    AuthnFailure {
        /// The configured name of the scheme that refused; `-` if none did.
        scheme: &'a str,
        /// Why, as the scheme says: never a secret and never the presented name.
        reason: &'a str,
        /// The RPC.
        call: &'a str,
        /// Which name was presented.
        user: Named,
    },
    /// A credential was accepted.
    AuthnSuccess(Admission<'a>),
    /// A credential was not judged, because too many before it failed or came.
    AuthnThrottled {
        /// Which limit.
        limit: &'a str,
        /// When the next attempt makes sense.
        retry_after: Duration,
        /// The RPC.
        call: &'a str,
    },
    /// A credential could not be judged.
    AuthnUnavailable {
        /// The configured name of the scheme.
        scheme: &'a str,
        /// What is away.
        reason: &'a str,
    },
    /// An identity may not do what it asked for.
    AuthzDenied {
        /// Who asked.
        principal: &'a Principal,
        /// For what, such as `select`.
        action: &'a str,
        /// On what, such as the name of a table.
        object: &'a str,
        /// The RPC.
        call: &'a str,
    },
    /// The gate serves.
    GateStarted {
        /// The version of the gate.
        version: &'a str,
        /// The address of the Flight port.
        address: SocketAddr,
    },
    /// The gate has stopped.
    GateStopped {
        /// The version of the gate.
        version: &'a str,
        /// The address of the Flight port.
        address: SocketAddr,
    },
    /// A limit was reached, by a connection or by an identity. A call whose credential has to wait is
    /// [`What::AuthnThrottled`].
    LimitExceeded {
        /// Which limit.
        limit: &'a str,
        /// Who reached it; `None` for a client that has not signed in.
        principal: Option<&'a Principal>,
    },
    /// Something was read again, or could not be.
    Reloaded {
        /// What: the gate says `credentials`.
        what: &'a str,
        /// Whether it is used now.
        outcome: Reload<'a>,
    },
    /// A ticket or handle was refused. The client is not told why.
    SealedRefused {
        /// Who brought it.
        principal: &'a Principal,
        /// What it should have been.
        kind: SealedKind,
        /// Why.
        reason: &'a str,
    },
    /// A session is over.
    SessionEnded {
        /// The short name of the session.
        session: &'a str,
        /// Whose it was.
        principal: &'a Principal,
        /// Why it is over.
        why: SessionEnd,
    },
    /// A session was opened.
    SessionOpened {
        /// The short name of the session.
        session: &'a str,
        /// Whose it is.
        principal: &'a Principal,
    },
    /// A statement has ended, well or not.
    StatementEnd(Statement<'a>),
    /// A TLS handshake failed.
    TlsFailed {
        /// Why.
        reason: &'a str,
    },
}

/// A credential that was accepted.
#[derive(Clone, Copy, Debug)]
pub struct Admission<'a> {
    /// The configured name of the scheme that admitted it.
    pub scheme: &'a str,
    /// Whose it is, by which authority, and which credential it was.
    pub principal: &'a Principal,
    /// The short name of the call's session; `None` if none could be opened.
    pub session: Option<&'a str>,
    /// The RPC.
    pub call: &'a str,
}

/// The name that came with a credential which was not accepted. People type passwords where names belong, so it is a
/// hash under a key that nobody can look up, good enough to see that it was the same one again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// The start of a keyed hash of the name.
    Hash([u8; 16]),
    /// None was presented, or it could not be read.
    Nobody,
}

/// What came of reading something again.
#[derive(Clone, Copy, Debug)]
pub enum Reload<'a> {
    /// What was there before stays in use.
    Failed {
        /// What is wrong with the new one.
        problem: &'a str,
    },
    /// The new one is in use.
    Ok,
}

/// What a client carries for the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealedKind {
    /// The state of a query that it polls.
    Poll,
    /// A prepared statement handle.
    Prepared,
    /// A ticket.
    Ticket,
}

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// The client closed it.
    Closed,
    /// It had to make room for another one of its identity.
    Evicted,
    /// Its time, or that of the credential that opened it, was over.
    Expired,
    /// It was not used for too long.
    Idle,
    /// The credential that opened it no longer counts.
    Revoked,
}

/// The end of a statement.
#[derive(Clone, Copy, Debug)]
pub struct Statement<'a> {
    /// Whose statement.
    pub principal: &'a Principal,
    /// The short name of its session.
    pub session: &'a str,
    /// The name of the query; `None` for what never became one.
    pub query: Option<&'a str>,
    /// What kind of statement.
    pub kind: StatementKind,
    /// The tables it names, with catalog and schema.
    pub tables: &'a [String],
    /// How it ended.
    pub end: End,
    /// What it said.
    pub text: StatementText<'a>,
}

/// What a statement did until it ended.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Rows that were sent or changed.
    pub rows: u64,
    /// Bytes that were sent.
    pub bytes: u64,
    /// From the call that brought it to its end.
    pub elapsed: Duration,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a statement ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The client, or the gate on its behalf, stopped it.
    Cancelled,
    /// It was not allowed.
    Denied,
    /// It failed.
    Error(Class),
    /// It did what it should.
    Ok,
}

/// The kinds of statement that an auditor tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// `CREATE`, `DROP`, `ALTER`.
    Ddl,
    /// `INSERT`, `UPDATE`, `DELETE`, `COPY`.
    Dml,
    /// `EXPLAIN`.
    Explain,
    /// Rows that a client uploads.
    Ingest,
    /// A query.
    Select,
    /// `SET` and `RESET`.
    Set,
    /// It could not be read.
    Unknown,
}

/// What the record has of the text of a statement.
#[derive(Clone, Copy, Debug)]
pub enum StatementText<'a> {
    /// The text, with all literals in it, which may be personal or secret: only if the operator has asked for that.
    Danger(&'a str),
    /// The start of a keyed hash of it, good enough to see that it was the same one again.
    Hash([u8; 16]),
    /// Nothing: there was no text, or there is no record.
    None,
}

/// What the operator wants to have on record of the texts of statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wording {
    /// The texts themselves, with their literals.
    Danger,
    /// A hash.
    Hash,
}
