//! The authenticator: claims every bearer token of a JWT's form, and judges it by the issuer it names.
//!
//! All issuers together are one claimant: a token of an issuer that is not configured is refused here and asked about
//! nowhere else. Must not put anything that a token holds into a reason.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::RwLock;
use portcullis_auth::{
    Attempt, Authenticator, BoxFuture, Clock, Cost, Credential, Principal, Rejection, Standing, Token, Verdict,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cache::{Cache, Seen};
use crate::claims;
use crate::config::{IssuerConfig, IssuerError, KeySource};
use crate::deny::DenyList;
use crate::fault::Fault;
use crate::fetch::Fetcher;
use crate::keys::StaticKeys;
use crate::source::{Fetched, Pace, Source};
use crate::token::{Form, Signed, Unverified};

/// Tokens of one or more issuers, as an authenticator.
pub struct Jwt {
    name: String,
    issuers: BTreeMap<String, Issuer>,
    seen: Cache,
    verified: AtomicU64,
    cache_hits: AtomicU64,
}

impl Jwt {
    /// Issuers under the configured name of this authenticator. `clock` says how old keys are; whether a token has
    /// expired is judged by [`Attempt::now`].
    ///
    /// # Errors
    ///
    /// If there is no issuer, if two have one name, or if one is not usable as it is configured.
    pub fn new(
        name: impl Into<String>,
        issuers: Vec<IssuerConfig>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, IssuerError> {
        Self::with_pace(name.into(), issuers, clock, Pace::DEFAULT)
    }

    /// Fetches the keys of every issuer once, all at the same time, and says per issuer how many keys there are, or
    /// what failed. A failure stops nothing: tokens of that issuer are unavailable until a later fetch succeeds.
    pub async fn prefetch(&self) -> Vec<(String, Result<usize, String>)> {
        let mut outcomes = Vec::new();
        let mut flights = JoinSet::new();
        for (name, issuer) in &self.issuers {
            match &issuer.keys {
                Source::Fixed(keys) => outcomes.push((name.clone(), Ok(keys.read().len()))),
                Source::Fetched(fetched) => {
                    let (name, fetched) = (name.clone(), Arc::clone(fetched));
                    flights.spawn(async move { (name, fetched.refresh().await.map_err(|err| err.to_string())) });
                }
            }
        }
        while let Some(outcome) = flights.join_next().await {
            outcomes.extend(outcome.ok());
        }
        outcomes.sort_by(|(a, _), (b, _)| a.cmp(b));
        outcomes
    }

    /// Fetches keys again and again, about every ten minutes, until `stop`. To be spawned once.
    pub async fn keep_fresh(&self, stop: CancellationToken) {
        let mut loops = JoinSet::new();
        for issuer in self.issuers.values() {
            if let Source::Fetched(fetched) = &issuer.keys {
                loops.spawn(Arc::clone(fetched).keep_fresh(stop.clone()));
            }
        }
        stop.cancelled().await;
        loops.shutdown().await;
    }

    /// Puts these keys in place of the present ones, at once for every call that starts from now on.
    ///
    /// # Errors
    ///
    /// If no such issuer has its keys from a file, or if none of the keys fits its algorithms; then nothing changes.
    pub fn replace_keys(&self, issuer: &str, keys: StaticKeys) -> Result<(), IssuerError> {
        let refuse = |problem: &str| Err(IssuerError::new(issuer, problem));
        let Some(known) = self.issuers.get(issuer) else { return refuse(NOT_CONFIGURED) };
        let Source::Fixed(current) = &known.keys else { return refuse("its keys are fetched and not from a file") };
        if !keys.0.serves(&known.config.algorithms) {
            return refuse("none of the keys fits one of the `algorithms`");
        }
        *current.write() = keys.0;
        Ok(())
    }

    /// Puts this deny list in place of the present one, for tokens that were seen before as well.
    ///
    /// # Errors
    ///
    /// If there is no such issuer.
    pub fn replace_denied(&self, issuer: &str, denied: DenyList) -> Result<(), IssuerError> {
        let known = self.issuers.get(issuer).ok_or_else(|| IssuerError::new(issuer, NOT_CONFIGURED))?;
        *known.denied.write() = Arc::new(denied);
        Ok(())
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        let fetches = self.issuers.values().map(|issuer| match &issuer.keys {
            Source::Fetched(fetched) => fetched.fetches(),
            Source::Fixed(_) => 0,
        });
        Counters {
            verified: self.verified.load(Ordering::Relaxed),
            cache_hits: self.cache_hits.load(Ordering::Relaxed),
            fetches: fetches.fold(0, u64::saturating_add),
        }
    }

    pub(crate) fn with_pace(
        name: String,
        issuers: Vec<IssuerConfig>,
        clock: Arc<dyn Clock>,
        pace: Pace,
    ) -> Result<Self, IssuerError> {
        if issuers.is_empty() {
            return Err(IssuerError::new("", "there must be at least one issuer"));
        }
        if name.is_empty() {
            return Err(IssuerError::new("", "the authenticator must have a name"));
        }
        let mut known = BTreeMap::new();
        for config in issuers {
            let name = config.issuer.clone();
            let issuer = Issuer::new(config, pace, &clock).map_err(|problem| IssuerError::new(&name, problem))?;
            if known.insert(name.clone(), issuer).is_some() {
                return Err(IssuerError::new(&name, "is configured twice"));
            }
        }
        Ok(Self {
            name,
            issuers: known,
            seen: Cache::new(MAX_SEEN, MAX_SEEN_BYTES),
            verified: AtomicU64::new(0),
            cache_hits: AtomicU64::new(0),
        })
    }

    async fn judge(&self, attempt: &Attempt<'_>) -> Verdict {
        let Some(token) = bearer(attempt) else { return Verdict::Abstain };
        let verdict = match Form::of(token.expose()) {
            Form::Foreign => return Verdict::Abstain,
            Form::Signed(signed) => self.judge_token(token, &signed, attempt).await,
            Form::Unsupported => Err(Rejection::malformed("a token of four or five parts is not a signed JWT")),
        };
        match verdict {
            Ok(principal) => Verdict::Admit(principal),
            Err(rejection) => Verdict::Reject(rejection),
        }
    }

    async fn judge_token(
        &self,
        token: Token<'_>,
        signed: &Signed<'_>,
        attempt: &Attempt<'_>,
    ) -> Result<Principal, Rejection> {
        let hash = TokenHash::of(token).ok_or_else(|| Rejection::invalid("the token could not be hashed"))?;
        if let Some(seen) = self.seen.get(&hash)
            && let Some(verdict) = self.judge_again(&seen, attempt)
        {
            return verdict;
        }

        let unverified = Unverified::read(signed).map_err(Fault::rejection)?;
        let named = unverified.issuer().map_err(Fault::rejection)?;
        // Not an absence: an unknown issuer must not reach the next scheme.
        let issuer = self.issuers.get(named).ok_or_else(|| Rejection::invalid("the issuer of the token is unknown"))?;
        let judged = async {
            let header = unverified.header();
            issuer.accepts(header.algorithm, &header.kind)?;
            let key = issuer.keys.key(&header.kid, header.algorithm).await?;
            self.verified.fetch_add(1, Ordering::Relaxed);
            let verified = unverified.verify(&key)?;
            let judged = claims::judge(&verified, &hash, &issuer.config, attempt)?;
            issuer.wants(&judged.principal)?;
            Ok(Seen { judged, key })
        };
        let seen = judged.await.map_err(|fault: Fault| fault.rejection_of(&issuer.config.issuer))?;
        let principal = seen.judged.principal.clone();
        self.seen.insert(hash, token.expose().len().saturating_add(ENTRY_BYTES), seen, attempt.now);
        Ok(principal)
    }

    /// Judges a token that was verified before by what may have changed since. None if that cannot be told now.
    fn judge_again(&self, seen: &Seen, attempt: &Attempt<'_>) -> Option<Result<Principal, Rejection>> {
        let principal = &seen.judged.principal;
        let issuer = self.issuers.get(principal.key().authority())?;
        let keys = issuer.keys.current()?;
        let check = || {
            if !keys.holds(&seen.key) {
                return Err(Fault::invalid("the key of the token is no longer the issuer's"));
            }
            if principal.expires().passed(attempt.now) {
                return Err(Fault::invalid("the token has expired"));
            }
            // A clock that was put back.
            if attempt.now < seen.judged.starts {
                return Err(Fault::invalid("the token is not valid yet"));
            }
            seen.judged.binding.check(attempt)?;
            issuer.wants(principal)
        };
        self.cache_hits.fetch_add(1, Ordering::Relaxed);
        Some(check().map(|()| principal.clone()).map_err(|fault| fault.rejection_of(&issuer.config.issuer)))
    }
}

impl Authenticator for Jwt {
    fn scheme(&self) -> &'static str {
        SCHEME
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn authenticate<'a>(&'a self, attempt: &'a Attempt<'a>) -> BoxFuture<'a, Verdict> {
        Box::pin(self.judge(attempt))
    }

    /// A hash for a token that was seen before; for any other, a signature and perhaps a fetch.
    fn cost(&self, attempt: &Attempt<'_>) -> Cost {
        let Some(token) = bearer(attempt) else { return Cost::Cheap };
        match Form::of(token.expose()) {
            Form::Foreign | Form::Unsupported => Cost::Cheap,
            Form::Signed(_) if TokenHash::of(token).is_some_and(|hash| self.seen.holds(&hash)) => Cost::Cheap,
            Form::Signed(_) => Cost::Dear,
        }
    }

    /// Revoked once the token or its principal is denied, its issuer is gone, or it has expired.
    fn standing(&self, principal: &Principal, now: SystemTime) -> Standing {
        let issuer = self.issuers.get(principal.key().authority());
        let wanted = issuer.is_some_and(|issuer| issuer.wants(principal).is_ok());
        if principal.scheme() == SCHEME && wanted && !principal.expires().passed(now) {
            return Standing::Good;
        }
        Standing::Revoked
    }
}

impl fmt::Debug for Jwt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let issuers = self.issuers.iter().map(|(name, issuer)| (name, &issuer.keys));
        f.debug_struct("Jwt")
            .field("name", &self.name)
            .field("issuers", &issuers.collect::<BTreeMap<_, _>>())
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}

/// What an authenticator has done since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Signatures that were checked.
    pub verified: u64,
    /// Tokens that had been verified before.
    pub cache_hits: u64,
    /// Fetches of keys that were begun.
    pub fetches: u64,
}

/// The scheme's name in the configuration and in identity keys.
pub(crate) const SCHEME: &str = "jwt";

/// The SHA-256 of a whole token, by which it is remembered.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TokenHash([u8; SHA256_OUTPUT_LEN]);

impl TokenHash {
    /// What a token without a usable `jti` is called: nobody can find the token from it.
    pub(crate) fn id(&self) -> String {
        let (half, _) = self.0.split_at_checked(ID_BYTES).unwrap_or((&self.0, &[]));
        URL_SAFE_NO_PAD.encode(half)
    }

    pub(crate) fn of(token: Token<'_>) -> Option<Self> {
        digest(&SHA256, token.expose().as_bytes()).as_ref().try_into().ok().map(Self)
    }
}

/// One issuer, its keys and whom it no longer speaks for.
struct Issuer {
    config: IssuerConfig,
    keys: Source,
    denied: RwLock<Arc<DenyList>>,
}

impl Issuer {
    fn new(config: IssuerConfig, pace: Pace, clock: &Arc<dyn Clock>) -> Result<Self, String> {
        config.check()?;
        let fetcher = Fetcher::new(&config, pace.fetch)?;
        let keys = match (&config.keys, fetcher) {
            (KeySource::File(keys), _) => Source::Fixed(RwLock::new(Arc::clone(&keys.0))),
            (KeySource::Discovery | KeySource::Url(_), Some(fetcher)) => {
                Source::Fetched(Arc::new(Fetched::new(&config.issuer, fetcher, pace, Arc::clone(clock))))
            }
            (KeySource::Discovery | KeySource::Url(_), None) => return Err("has no keys".to_owned()),
        };
        let denied = RwLock::new(Arc::new(config.denied.clone()));
        Ok(Self { config, keys, denied })
    }

    fn accepts(&self, algorithm: crate::Algorithm, kind: &crate::TokenType) -> Result<(), Fault> {
        if !self.config.algorithms.contains(&algorithm) {
            return Err(Fault::invalid("the algorithm is not accepted"));
        }
        if !self.config.types.contains(kind) {
            return Err(Fault::invalid("a token of this type is not accepted"));
        }
        Ok(())
    }

    fn wants(&self, principal: &Principal) -> Result<(), Fault> {
        if self.denied.read().names(principal) {
            return Err(Fault::invalid("the token or its principal is denied"));
        }
        Ok(())
    }
}

fn bearer<'a>(attempt: &Attempt<'a>) -> Option<Token<'a>> {
    match attempt.credential() {
        Credential::Bearer(token) => Some(token),
        Credential::Absent
        | Credential::Basic(_)
        // Whose a credential is that cannot be read, nobody knows: the gate refuses it by itself.
        | Credential::Malformed(_)
        | Credential::Unknown => None,
    }
}

const NOT_CONFIGURED: &str = "is not configured";

const MAX_SEEN: usize = 10_000;
const MAX_SEEN_BYTES: usize = 64 * 1024 * 1024;
/// What remembering a token takes besides what it says.
const ENTRY_BYTES: usize = 1024;
const ID_BYTES: usize = 16;

#[cfg(test)]
mod tests;
