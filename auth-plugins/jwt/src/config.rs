//! What an embedder says about an issuer: whose tokens count, for whom, and where the keys come from.
//!
//! Everything is checked when [`Jwt`](crate::Jwt) is made, so that a contradiction stops the start and not a call. Must
//! not have a default for what decides who gets in: issuer, audience, algorithms and keys are always given.

use std::collections::BTreeMap;
use std::time::Duration;

use url::Url;

use crate::algorithm::Algorithm;
use crate::deny::DenyList;
use crate::keys::StaticKeys;
use crate::path::ClaimPath;
use crate::token::TokenType;

/// One issuer of tokens.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct IssuerConfig {
    /// What `iss` must be, exactly.
    pub issuer: String,
    /// Of these, `aud` must name one.
    pub audience: Vec<String>,
    /// What its tokens may be signed with.
    pub algorithms: Vec<Algorithm>,
    /// Where its keys come from.
    pub keys: KeySource,
    /// Which claim names the principal; `sub` by default.
    pub principal_claim: ClaimPath,
    /// Whether its tokens bring roles along; by default they do not.
    pub roles_claim: Roles,
    /// Attributes of the principal, by name; none by default.
    pub attributes: BTreeMap<String, ClaimPath>,
    /// What claims must say: be this text, or a list that holds it. In `scope` and `scp`, words are entries too; none
    /// by default.
    pub required: BTreeMap<ClaimPath, String>,
    /// How far clocks may differ: 30 s by default, 120 s at most.
    pub leeway: Duration,
    /// How long a token may live: 24 h by default.
    pub max_lifetime: Duration,
    /// What `typ` may be. By default it may be absent, `JWT` or `at+jwt`.
    pub types: Vec<TokenType>,
    /// Tokens and principals to refuse.
    pub denied: DenyList,
    /// Whose certificates are believed when keys are fetched; those of the system by default.
    pub trust: Trust,
    /// Whether keys may be fetched without TLS; refused by default.
    pub http: Http,
}

impl IssuerConfig {
    /// An issuer with the defaults for everything that has one.
    pub fn new(issuer: impl Into<String>, audience: Vec<String>, algorithms: Vec<Algorithm>, keys: KeySource) -> Self {
        Self {
            issuer: issuer.into(),
            audience,
            algorithms,
            keys,
            principal_claim: ClaimPath::subject(),
            roles_claim: Roles::None,
            attributes: BTreeMap::new(),
            required: BTreeMap::new(),
            leeway: Duration::from_secs(30),
            max_lifetime: Duration::from_secs(24 * 60 * 60),
            types: vec![TokenType::Absent, TokenType::named("JWT"), TokenType::named("at+jwt")],
            denied: DenyList::default(),
            trust: Trust::System,
            http: Http::Refused,
        }
    }

    /// What contradicts itself, or would let in too much.
    pub(crate) fn check(&self) -> Result<(), String> {
        let name = |text: &str| !text.is_empty() && text.len() <= MAX_URI && !text.chars().any(char::is_control);
        let refuse = |problem: &str| Err(problem.to_owned());
        if !name(&self.issuer) {
            return refuse("the issuer must be 1 to 2048 bytes without control characters");
        }
        if self.audience.is_empty() || !self.audience.iter().all(|audience| name(audience)) {
            return refuse("`audience` must name at least one, and none may be empty");
        }
        if self.algorithms.is_empty() {
            return refuse("`algorithms` must name at least one");
        }
        if self.types.is_empty() {
            return refuse("there must be a `typ` that is accepted");
        }
        if self.attributes.keys().any(|attribute| !name(attribute) || attribute.len() > MAX_ATTRIBUTE) {
            return refuse("the name of an attribute must be 1 to 256 bytes without control characters");
        }
        if self.required.values().any(String::is_empty) {
            return refuse("what a claim is required to say must not be empty");
        }
        if self.leeway > MAX_LEEWAY {
            return refuse("`leeway` must be at most 120 s");
        }
        if self.max_lifetime.is_zero() || self.max_lifetime > MAX_LIFETIME {
            return refuse("`max_lifetime` must be more than nothing and at most 366 days");
        }
        match &self.keys {
            KeySource::Discovery | KeySource::Url(_) => Ok(()),
            KeySource::File(keys) if keys.0.serves(&self.algorithms) => Ok(()),
            KeySource::File(_) => refuse("none of the keys fits one of the `algorithms`"),
        }
    }
}

/// Where the keys of an issuer come from.
#[derive(Clone, Debug)]
pub enum KeySource {
    /// From where the issuer's own `/.well-known/openid-configuration` says.
    Discovery,
    /// The operator has handed them over; [`Jwt::replace_keys`](crate::Jwt::replace_keys) changes them.
    File(StaticKeys),
    /// From this address.
    Url(String),
}

/// Whether tokens bring roles along.
#[derive(Clone, Debug)]
pub enum Roles {
    /// The roles are in this claim: a list of strings, or one string.
    Claim(ClaimPath),
    /// They do not.
    None,
}

/// Whose certificates are believed when keys are fetched.
#[derive(Clone, Debug)]
pub enum Trust {
    /// These CAs and no others, as PEM.
    Only(String),
    /// The CAs of the system.
    System,
}

/// Whether keys may be fetched without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http {
    /// From loopback addresses: for tests, and for a proxy beside the gate.
    DangerLoopback,
    /// Never.
    Refused,
}

impl Http {
    /// The address, if keys may be fetched from there.
    pub(crate) fn admit(self, address: &str) -> Result<Url, String> {
        let refuse = |problem: &str| Err(problem.to_owned());
        let Ok(url) = Url::parse(address) else { return refuse("the address of the keys is not a URL") };
        if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
            return refuse("the address of the keys must hold neither a user nor a fragment");
        }
        match (url.scheme(), self) {
            ("https", _) => Ok(url),
            ("http", Self::DangerLoopback) if is_loopback(&url) => Ok(url),
            ("http", Self::DangerLoopback) => refuse("without TLS, keys are fetched from loopback addresses only"),
            _ => refuse("the address of the keys must begin with https://"),
        }
    }
}

/// Why the issuers cannot be used as they are configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("issuer `{issuer}`: {problem}")]
pub struct IssuerError {
    issuer: String,
    problem: String,
}

impl IssuerError {
    pub(crate) fn new(issuer: &str, problem: impl Into<String>) -> Self {
        Self { issuer: issuer.to_owned(), problem: problem.into() }
    }

    /// Which issuer; empty if there is none.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

const MAX_ATTRIBUTE: usize = 256;
const MAX_URI: usize = 2048;
const MAX_LEEWAY: Duration = Duration::from_secs(120);
const MAX_LIFETIME: Duration = Duration::from_secs(366 * 24 * 60 * 60);
