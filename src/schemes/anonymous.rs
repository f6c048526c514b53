//! `danger-anonymous`: whoever shows nothing is somebody.
//!
//! For a gate on this machine that nobody else reaches. Claims calls without any credential and nothing else; must not
//! admit one that a scheme before it could have been meant for.

use std::time::SystemTime;

use portcullis_auth::{
    Assertion, Attempt, Authenticator, BoxFuture, Cost, Credential, Expiry, InvalidAssertion, Principal, Standing,
    Verdict,
};

use crate::config::auth::Anonymous;

/// Admits calls that bring no credential.
#[derive(Debug)]
pub(super) struct DangerAnonymous {
    name: String,
    principal: Principal,
}

impl DangerAnonymous {
    /// Under the configured name of the entry.
    pub(super) fn new(name: &str, config: &Anonymous) -> Result<Self, InvalidAssertion> {
        let principal = Principal::assertion(Assertion {
            name: config.principal.clone(),
            scheme: SCHEME,
            authority: name.to_owned(),
            subject: config.principal.clone(),
            roles: config.roles.iter().cloned().collect(),
            attributes: [].into(),
            expires: Expiry::Never,
            credential_id: "none".to_owned(),
        })?;
        Ok(Self { name: name.to_owned(), principal })
    }
}

impl Authenticator for DangerAnonymous {
    fn scheme(&self) -> &'static str {
        SCHEME
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn authenticate<'a>(&'a self, attempt: &'a Attempt<'a>) -> BoxFuture<'a, Verdict> {
        let verdict = match attempt.credential() {
            Credential::Absent if attempt.peer_certs.is_empty() => Verdict::Admit(self.principal.clone()),
            Credential::Absent
            | Credential::Basic(_)
            | Credential::Bearer(_)
            | Credential::Malformed(_)
            | Credential::Unknown => Verdict::Abstain,
        };
        Box::pin(std::future::ready(verdict))
    }

    fn cost(&self, _attempt: &Attempt<'_>) -> Cost {
        Cost::Cheap
    }

    fn standing(&self, principal: &Principal, _now: SystemTime) -> Standing {
        if principal.key() == self.principal.key() { Standing::Good } else { Standing::Revoked }
    }
}

const SCHEME: &str = "danger-anonymous";
