//! The chain: which scheme judges a credential, and that exactly one does.
//!
//! Schemes are asked in order, and the first that does not abstain has the last word, whether it admits, rejects,
//! fails, hangs or panics. The chain cannot be empty. Must not know a scheme by name, or tell a client anything.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use portcullis_auth::{Attempt, Authenticator, Cost, Credential, Principal, Rejection, Verdict};
use tokio::time::timeout;

use super::session::TOKEN_PREFIX;
use crate::config::CertificateRole;

/// An ordered, non-empty list of schemes.
#[derive(Clone, Debug)]
pub struct Chain {
    first: Arc<dyn Authenticator>,
    rest: Vec<Arc<dyn Authenticator>>,
    certificates: CertificateRole,
}

/// What the chain as a whole says; there is no abstaining any more.
#[derive(Debug)]
pub enum Judgement {
    /// The named scheme vouches for this principal.
    Admitted {
        /// The configured name of the scheme.
        by: String,
        /// Whom it admits.
        principal: Principal,
    },
    /// The call is refused.
    Refused {
        /// The configured name of the scheme, or what stands in for one.
        by: String,
        /// Why, for the operator.
        rejection: Rejection,
    },
    /// The call is refused, because all schemes abstained.
    Unclaimed {
        /// The same, for the operator.
        rejection: Rejection,
    },
}

impl Chain {
    /// A chain of one scheme, for which a client certificate is a credential.
    pub fn new(first: Arc<dyn Authenticator>) -> Self {
        Self { first, rest: Vec::new(), certificates: CertificateRole::Identity }
    }

    /// With another meaning of client certificates.
    #[must_use]
    pub fn with_certificates(self, certificates: CertificateRole) -> Self {
        Self { certificates, ..self }
    }

    /// What a client certificate means.
    pub fn certificates(&self) -> CertificateRole {
        self.certificates
    }

    /// Adds a scheme that is asked after all others.
    pub fn then(mut self, next: Arc<dyn Authenticator>) -> Result<Self, DuplicateName> {
        self.refuse_duplicate(&*next)?;
        self.rest.push(next);
        Ok(self)
    }

    /// Adds a scheme that is asked before all others.
    pub fn preceded_by(mut self, first: Arc<dyn Authenticator>) -> Result<Self, DuplicateName> {
        self.refuse_duplicate(&*first)?;
        self.rest.insert(0, std::mem::replace(&mut self.first, first));
        Ok(self)
    }

    /// The schemes in order.
    pub fn schemes(&self) -> impl Iterator<Item = &Arc<dyn Authenticator>> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// What judging this attempt would take. A scheme that panics over the question is taken to be dear.
    pub fn cost(&self, attempt: &Attempt<'_>) -> Cost {
        if self.one_well_formed_credential(attempt).is_err() {
            return Cost::Cheap;
        }
        let dear = |scheme: &Arc<dyn Authenticator>| {
            !matches!(catch_unwind(AssertUnwindSafe(|| scheme.cost(attempt))), Ok(Cost::Cheap))
        };
        if self.schemes().any(dear) { Cost::Dear } else { Cost::Cheap }
    }

    /// The one judgement of an attempt.
    pub async fn judge(&self, attempt: &Attempt<'_>) -> Judgement {
        if let Err(rejection) = self.one_well_formed_credential(attempt) {
            return Judgement::Refused { by: NO_SCHEME.to_owned(), rejection };
        }
        for scheme in self.schemes() {
            match ask(&**scheme, attempt).await {
                Verdict::Abstain => (),
                Verdict::Admit(principal) if principal.expires().passed(attempt.now) => {
                    let rejection = Rejection::invalid("the credential has expired");
                    return Judgement::Refused { by: scheme.name().to_owned(), rejection };
                }
                Verdict::Admit(principal) => return Judgement::Admitted { by: scheme.name().to_owned(), principal },
                Verdict::Reject(rejection) => {
                    return Judgement::Refused { by: scheme.name().to_owned(), rejection };
                }
            }
        }
        Judgement::Unclaimed { rejection: Rejection::invalid("no scheme claimed the credential") }
    }

    /// What no scheme may see: a header that cannot be read in one way only, and two credentials in one request.
    fn one_well_formed_credential(&self, attempt: &Attempt<'_>) -> Result<(), Rejection> {
        match (attempt.credential(), self.certificates) {
            (Credential::Malformed(reason), _) => Err(Rejection::malformed(reason)),
            (Credential::Absent, _) | (_, CertificateRole::Channel) => Ok(()),
            (_, CertificateRole::Identity) if attempt.peer_certs.is_empty() => Ok(()),
            // Such a token says itself which certificate it needs.
            (Credential::Bearer(token), CertificateRole::Identity) if token.starts_with(TOKEN_PREFIX) => Ok(()),
            (Credential::Basic(_) | Credential::Bearer(_) | Credential::Unknown, CertificateRole::Identity) => {
                Err(Rejection::malformed("a client certificate and an authorization header in one request"))
            }
        }
    }

    fn refuse_duplicate(&self, new: &dyn Authenticator) -> Result<(), DuplicateName> {
        if self.schemes().any(|scheme| scheme.name() == new.name()) {
            return Err(DuplicateName { name: new.name().to_owned() });
        }
        Ok(())
    }
}

impl Judgement {
    /// The configured name of the scheme that decided.
    pub fn by(&self) -> &str {
        match self {
            Self::Admitted { by, .. } | Self::Refused { by, .. } => by,
            Self::Unclaimed { .. } => NO_SCHEME,
        }
    }
}

/// Two schemes of a chain have one name: a log line could not say which of them decided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("two authentication schemes are named `{name}`")]
pub struct DuplicateName {
    name: String,
}

/// One scheme's verdict. A scheme that breaks has claimed the credential: asking the next one would turn its failure
/// into an abstention.
async fn ask(scheme: &dyn Authenticator, attempt: &Attempt<'_>) -> Verdict {
    // The call itself is inside as well: a panic before the first `await` is a panic too.
    let verdict = AssertUnwindSafe(async { scheme.authenticate(attempt).await }).catch_unwind();
    match timeout(DEADLINE, verdict).await {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(_panic)) => Verdict::Reject(Rejection::unavailable("the scheme panicked", RETRY_AFTER)),
        Err(_elapsed) => Verdict::Reject(Rejection::unavailable("the scheme did not answer in time", RETRY_AFTER)),
    }
}

/// How long one scheme may take.
const DEADLINE: Duration = if cfg!(test) { Duration::from_millis(200) } else { Duration::from_secs(10) };
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Stands where a scheme's name would, when none was asked or none answered.
pub(super) const NO_SCHEME: &str = "-";

#[cfg(test)]
mod tests;
