//! Who calls: what a handler knows about the client, and all it may know.
//!
//! INVARIANT: only the gate makes a [`Caller`], after a scheme has admitted the call; a handler finds one in the
//! request's extensions or refuses.

use std::sync::Arc;

use http::Extensions;
use portcullis_auth::{Credential, Principal};

use super::session::{Session, SessionToken, TOKEN_PREFIX};
use crate::audit::Peer;
use crate::status::{Failure, RequestId};

/// An admitted call: its principal, its session and its name in the log.
#[derive(Clone, Debug)]
pub struct Caller {
    principal: Principal,
    session: Arc<Session>,
    request: RequestId,
    peer: Peer,
    credential: CredentialKind,
    minted: Minted,
}

/// What the gate made for the client on this call.
#[derive(Clone, Debug)]
pub enum Minted {
    /// Nothing: the client goes on with what it has.
    Nothing,
    /// A session, by a handshake; its token is to be told to the client.
    Token(Arc<SessionToken>),
}

/// What the client showed on this call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialKind {
    /// Nothing, and a scheme admits that.
    Anonymous,
    /// A name and a password.
    Basic,
    /// A bearer token that is not a session's.
    Bearer,
    /// A client certificate.
    Certificate,
    /// An `authorization` header in a form of the embedder's own.
    Other,
    /// The token of a session.
    Session,
}

impl Caller {
    /// The caller of a request that passed the gate. A request that did not has none, and is refused.
    pub fn from_extensions(extensions: &Extensions) -> Result<Self, Failure> {
        extensions
            .get::<Self>()
            .cloned()
            .ok_or_else(|| Failure::unauthenticated().because("the request did not pass the gate"))
    }

    /// Who calls, by the credential of this very call.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The session the call belongs to.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The call's name in the log.
    pub fn request(&self) -> &RequestId {
        &self.request
    }

    /// Where the call comes from, for the record.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// What the client showed.
    pub fn credential(&self) -> CredentialKind {
        self.credential
    }

    /// What the gate made for the client on this call.
    pub fn minted(&self) -> &Minted {
        &self.minted
    }

    pub(super) fn admitted(
        principal: Principal,
        session: Arc<Session>,
        (request, peer): (RequestId, Peer),
        credential: CredentialKind,
        minted: Minted,
    ) -> Self {
        Self { principal, session, request, peer, credential, minted }
    }
}

impl CredentialKind {
    pub(super) fn of(credential: &Credential<'_>, certificates: usize) -> Self {
        match credential {
            Credential::Absent | Credential::Malformed(_) if certificates > 0 => Self::Certificate,
            Credential::Absent | Credential::Malformed(_) => Self::Anonymous,
            Credential::Basic(_) => Self::Basic,
            Credential::Bearer(token) if token.starts_with(TOKEN_PREFIX) => Self::Session,
            Credential::Bearer(_) => Self::Bearer,
            Credential::Unknown => Self::Other,
        }
    }
}
