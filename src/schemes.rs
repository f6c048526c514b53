//! Configured schemes into authenticators: the one file of the library that names plugin crates.
//!
//! Reads what a scheme keeps outside the configuration, on start and again whenever somebody says so: all of it is read
//! before any of it is used. Must not see a request.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use portcullis_auth::{Authenticator, Clock};
use portcullis_auth_api_key::{ApiKeys, KeyFile};
use portcullis_auth_jwt::{
    ClaimPath, DenyList, Http, IssuerConfig, Jwt, KeySource, Roles, StaticKeys, TokenType, Trust,
};
use portcullis_auth_mtls::{ClientCertificates, Eku, Field, Rule, RulePart, Rules, check_roles};
use portcullis_auth_password::{HashingConfig, Passwords, UserFile};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio_util::sync::CancellationToken;

use crate::config::auth::{self, CertificateField, Entry, ExtendedKeyUsage, Issuer, Keys, Scheme, TokenUser};
use crate::config::{self, CertificateRole, NonEmpty};
use crate::gate::chain::{Chain, DuplicateName};

mod anonymous;
mod token_user;

use anonymous::DangerAnonymous;

/// The schemes of a configuration, and where what they know comes from.
#[derive(Debug)]
pub struct Schemes {
    chain: Chain,
    sources: Vec<Source>,
    tokens: Option<Arc<Jwt>>,
    notes: Vec<String>,
}

/// What was read again, and not used yet.
pub struct Fresh(Vec<Box<dyn FnOnce() + Send>>);

/// Why a scheme cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SchemeError {
    /// Two schemes have one name.
    #[error(transparent)]
    Duplicate(#[from] DuplicateName),
    /// The scheme's file does not hold what it should.
    #[error("{file}: {problem}")]
    File {
        /// The scheme's file.
        file: String,
        /// What is wrong there, and in which line where there are lines.
        problem: String,
    },
    /// The scheme's file cannot be read.
    #[error("cannot read `{file}`: {cause}")]
    Read {
        /// The scheme's file.
        file: String,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The scheme cannot work as it is configured.
    #[error("scheme `{name}`: {problem}")]
    Scheme {
        /// The entry's name.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl Schemes {
    /// The chain in the order of the configuration, with everything that it reads. All issuers of tokens are one
    /// claimant, in the place and under the name of the first.
    pub fn load(
        entries: &NonEmpty<Entry>,
        clients: &config::ClientCertificates,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, SchemeError> {
        let mut made = Made { sources: Vec::new(), tokens: None, notes: Vec::new() };
        let mut schemes: Vec<Arc<dyn Authenticator>> = Vec::new();
        for entry in entries.iter() {
            let scheme = match &entry.scheme {
                Scheme::Jwt(_) if made.tokens.is_some() => continue,
                Scheme::Jwt(_) => made.issuers(entries, entry, clock)?,
                Scheme::ApiKey(_) | Scheme::DangerAnonymous(_) | Scheme::Mtls(_) | Scheme::Password(_) => {
                    made.other(&entry.name, &entry.scheme, clients)?
                }
            };
            schemes.push(match &entry.token_user {
                TokenUser::Named(user) => Arc::new(token_user::TokenUser::new(user.clone(), scheme)),
                TokenUser::Refused => scheme,
            });
        }
        let mut schemes = schemes.into_iter();
        let missing = || SchemeError::Scheme { name: "-".to_owned(), problem: "there is none".to_owned() };
        let mut chain = Chain::new(schemes.next().ok_or_else(missing)?).with_certificates(role(clients));
        for scheme in schemes {
            chain = chain.then(scheme)?;
        }
        Ok(Self { chain, sources: made.sources, tokens: made.tokens, notes: made.notes })
    }

    /// The chain.
    pub fn chain(&self) -> Chain {
        self.chain.clone()
    }

    /// Reads every file again. Nothing is used before [`Fresh::take_effect`].
    ///
    /// # Errors
    ///
    /// The first file that cannot be used.
    pub fn read_again(&self) -> Result<Fresh, SchemeError> {
        self.sources.iter().map(Source::read_again).collect::<Result<_, _>>().map(Fresh)
    }

    /// The files that schemes read.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.sources.iter().map(Source::file)
    }

    /// What an operator should know about the rules and the files as they were at the start: each note is one line.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Fetches the keys of issuers once and says what failed. A failure is no reason not to start: tokens of that
    /// issuer are unavailable until its keys are there.
    pub async fn fetch_keys(&self) -> Vec<String> {
        let Some(tokens) = &self.tokens else { return Vec::new() };
        let outcomes = tokens.prefetch().await;
        let failed = |(issuer, outcome): (String, Result<usize, String>)| match outcome {
            Ok(_) => None,
            Err(problem) => Some(format!("the keys of issuer `{issuer}` cannot be fetched: {problem}")),
        };
        outcomes.into_iter().filter_map(failed).collect()
    }

    /// Keeps fetched keys fresh until `stop`.
    pub async fn keep_fresh(&self, stop: CancellationToken) {
        match &self.tokens {
            Some(tokens) => tokens.keep_fresh(stop).await,
            None => stop.cancelled().await,
        }
    }
}

impl Fresh {
    /// From here on, everything that was read is what counts.
    pub fn take_effect(self) {
        self.0.into_iter().for_each(|replace| replace());
    }
}

impl std::fmt::Debug for Fresh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Fresh").field(&self.0.len()).finish()
    }
}

/// What has been made of a configuration so far.
struct Made {
    sources: Vec<Source>,
    tokens: Option<Arc<Jwt>>,
    notes: Vec<String>,
}

impl Made {
    fn other(
        &mut self,
        name: &str,
        scheme: &Scheme,
        clients: &config::ClientCertificates,
    ) -> Result<Arc<dyn Authenticator>, SchemeError> {
        match scheme {
            Scheme::ApiKey(file) => {
                let keys = Arc::new(ApiKeys::new(name, key_file(file)?));
                self.sources.push(Source::Keys(Arc::clone(&keys), file.clone()));
                Ok(keys)
            }
            Scheme::DangerAnonymous(anonymous) => {
                Ok(Arc::new(DangerAnonymous::new(name, anonymous).map_err(|invalid| unusable(name, &invalid))?))
            }
            Scheme::Mtls(certificates) => {
                let config::ClientCertificates::Asked { ca, .. } = clients else {
                    return Err(unusable(name, &"clients are not asked for certificates"));
                };
                let rules = rules(name, certificates, ca)?;
                self.notes.extend(rules.notes().into_iter().map(|note| format!("scheme `{name}`: {note}")));
                let scheme = Arc::new(ClientCertificates::new(name, rules));
                self.sources.push(Source::Rules(Arc::clone(&scheme), certificates.clone(), ca.clone()));
                Ok(scheme)
            }
            Scheme::Password(file) => {
                let users = user_file(file)?;
                let weak =
                    |user| format!("{}: the hash of user `{user}` is weaker than OWASP asks for", file.display());
                self.notes.extend(users.weak().into_iter().map(weak));
                let users = Passwords::new(name, users, HashingConfig::default());
                let users = Arc::new(users.map_err(|error| unusable(name, &error))?);
                self.sources.push(Source::Users(Arc::clone(&users), file.clone()));
                Ok(users)
            }
            // All issuers together are made of the first.
            Scheme::Jwt(_) => Err(unusable(name, &"an issuer alone is no scheme")),
        }
    }

    fn issuers(
        &mut self,
        entries: &NonEmpty<Entry>,
        first: &Entry,
        clock: &Arc<dyn Clock>,
    ) -> Result<Arc<dyn Authenticator>, SchemeError> {
        let mut issuers = Vec::new();
        let mut files = Vec::new();
        for entry in entries.iter() {
            let Scheme::Jwt(issuer) = &entry.scheme else { continue };
            issuers.push(issuer_config(&entry.name, issuer)?);
            if let Keys::File(file) = &issuer.keys {
                files.push((issuer.issuer.clone(), file.clone(), Content::Keys));
            }
            if let Some(file) = &issuer.denied {
                files.push((issuer.issuer.clone(), file.clone(), Content::Denied));
            }
        }
        let tokens = Jwt::new(first.name.as_str(), issuers, Arc::clone(clock));
        let tokens = Arc::new(tokens.map_err(|error| unusable(&first.name, &error))?);
        self.sources.extend(files.into_iter().map(|(issuer, file, content)| match content {
            Content::Denied => Source::Denied(Arc::clone(&tokens), issuer, file),
            Content::Keys => Source::KeySet(Arc::clone(&tokens), issuer, file),
        }));
        self.tokens = Some(Arc::clone(&tokens));
        Ok(tokens)
    }
}

/// What a file of an issuer holds.
enum Content {
    Denied,
    Keys,
}

/// A file, and who knows what it holds.
#[derive(Debug)]
enum Source {
    Denied(Arc<Jwt>, String, PathBuf),
    KeySet(Arc<Jwt>, String, PathBuf),
    Keys(Arc<ApiKeys>, PathBuf),
    Rules(Arc<ClientCertificates>, auth::Certificates, PathBuf),
    Users(Arc<Passwords>, PathBuf),
}

impl Source {
    fn file(&self) -> &Path {
        match self {
            Self::Denied(_, _, file)
            | Self::KeySet(_, _, file)
            | Self::Keys(_, file)
            | Self::Rules(_, _, file)
            | Self::Users(_, file) => file,
        }
    }

    fn read_again(&self) -> Result<Box<dyn FnOnce() + Send>, SchemeError> {
        Ok(match self {
            Self::Denied(tokens, issuer, file) => {
                let (tokens, issuer, denied) = (Arc::clone(tokens), issuer.clone(), deny_list(file)?);
                Box::new(move || {
                    if let Err(error) = tokens.replace_denied(&issuer, denied) {
                        tracing::error!(%error, "a deny list was not replaced");
                    }
                })
            }
            Self::KeySet(tokens, issuer, file) => {
                let (tokens, issuer, keys) = (Arc::clone(tokens), issuer.clone(), key_set(file)?);
                Box::new(move || {
                    if let Err(error) = tokens.replace_keys(&issuer, keys) {
                        tracing::error!(%error, "the keys of an issuer were not replaced");
                    }
                })
            }
            Self::Keys(keys, file) => {
                let (keys, fresh) = (Arc::clone(keys), key_file(file)?);
                Box::new(move || {
                    for id in keys.replace(fresh) {
                        tracing::warn!(%id, "a key was left out: its id named another key before");
                    }
                })
            }
            Self::Rules(scheme, certificates, ca) => {
                let (scheme, fresh) = (Arc::clone(scheme), rules(scheme.name(), certificates, ca)?);
                Box::new(move || scheme.replace(fresh))
            }
            Self::Users(users, file) => {
                let (users, fresh) = (Arc::clone(users), user_file(file)?);
                Box::new(move || users.replace(fresh))
            }
        })
    }
}

fn issuer_config(name: &str, issuer: &Issuer) -> Result<IssuerConfig, SchemeError> {
    let claim = |path: &String| path.parse::<ClaimPath>().map_err(|error| unusable(name, &error));
    let algorithms = issuer.algorithms.iter().map(|word| word.parse().map_err(|error| unusable(name, &error)));
    let keys = match &issuer.keys {
        Keys::Discovery => KeySource::Discovery,
        Keys::File(file) => KeySource::File(key_set(file)?),
        Keys::Url(url) => KeySource::Url(url.to_string()),
    };
    let audience = issuer.audience.iter().cloned().collect();
    let mut config = IssuerConfig::new(&issuer.issuer, audience, algorithms.collect::<Result<_, _>>()?, keys);
    config.principal_claim = claim(&issuer.principal_claim)?;
    if let Some(roles) = &issuer.roles_claim {
        config.roles_claim = Roles::Claim(claim(roles)?);
    }
    for (attribute, path) in &issuer.attributes {
        config.attributes.insert(attribute.clone(), claim(path)?);
    }
    for (path, value) in &issuer.required {
        config.required.insert(claim(path)?, value.clone());
    }
    config.leeway = issuer.leeway;
    config.max_lifetime = issuer.max_lifetime;
    if !issuer.types.is_empty() {
        config.types = issuer.types.iter().map(|kind| TokenType::named(kind)).collect();
    }
    if let Some(file) = &issuer.denied {
        config.denied = deny_list(file)?;
    }
    if let Some(file) = &issuer.ca {
        config.trust = Trust::Only(text(file)?);
    }
    config.http = match issuer.http {
        auth::Http::DangerLoopback => Http::DangerLoopback,
        auth::Http::Refused => Http::Refused,
    };
    Ok(config)
}

fn rules(name: &str, certificates: &auth::Certificates, ca: &Path) -> Result<Rules, SchemeError> {
    let rule = |rule: &auth::CertificateRule| {
        Rule::parse(field(rule.field), &rule.pattern, &rule.name).map_err(|error| unusable(name, &error))
    };
    let principals = certificates.principals.iter().map(rule).collect::<Result<_, _>>()?;
    let roles = certificates.roles.iter().map(|(name, roles)| (name.clone(), roles.iter().cloned().collect()));
    let usage = match certificates.usage {
        ExtendedKeyUsage::DangerOptional => Eku::DangerOptional,
        ExtendedKeyUsage::Required => Eku::Required,
    };
    let pem = text(ca)?;
    let authorities = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| wrong(ca, &error))?;
    Rules::new(principals, roles.collect(), &authorities, usage).map_err(|error| unusable(name, &error))
}

fn field(field: CertificateField) -> Field {
    match field {
        CertificateField::Cn => Field::Cn,
        CertificateField::Dns => Field::Dns,
        CertificateField::Email => Field::Email,
        CertificateField::Uri => Field::Uri,
    }
}

/// Whether a rule for certificates can be used, for whoever knows where it is written.
pub(crate) fn judge_rule(rule: &auth::CertificateRule) -> Result<(), WrongRule> {
    Rule::parse(field(rule.field), &rule.pattern, &rule.name).map(drop).map_err(|error| match error.part() {
        RulePart::Name => WrongRule::Name(error.problem()),
        RulePart::Pattern => WrongRule::Pattern(error.problem()),
    })
}

/// The half of a rule that is wrong, and what is said of it: "is empty".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WrongRule {
    Name(&'static str),
    Pattern(&'static str),
}

/// Whether somebody of this name can have these roles: else which of the names is wrong, and what is said of it.
pub(crate) fn judge_roles(principal: &str, roles: &[String]) -> Result<(), (String, &'static str)> {
    check_roles(principal, roles.iter().map(String::as_str))
        .map_err(|error| (error.given().to_owned(), error.problem()))
}

/// Whether a text leads to a claim of a token.
pub(crate) fn leads_to_a_claim(text: &str) -> bool {
    text.parse::<ClaimPath>().is_ok()
}

fn role(clients: &config::ClientCertificates) -> CertificateRole {
    match clients {
        config::ClientCertificates::Asked { role, .. } => *role,
        config::ClientCertificates::NotAsked => CertificateRole::Identity,
    }
}

fn key_file(path: &Path) -> Result<KeyFile, SchemeError> {
    KeyFile::parse(&text(path)?).map_err(|error| wrong(path, &error))
}

fn user_file(path: &Path) -> Result<UserFile, SchemeError> {
    UserFile::parse(&text(path)?).map_err(|error| wrong(path, &error))
}

fn key_set(path: &Path) -> Result<StaticKeys, SchemeError> {
    StaticKeys::parse(&text(path)?).map_err(|error| wrong(path, &error))
}

fn deny_list(path: &Path) -> Result<DenyList, SchemeError> {
    DenyList::parse(&text(path)?).map_err(|error| wrong(path, &error))
}

fn text(path: &Path) -> Result<String, SchemeError> {
    std::fs::read_to_string(path).map_err(|cause| SchemeError::Read { file: path.display().to_string(), cause })
}

fn wrong(path: &Path, problem: &dyn std::fmt::Display) -> SchemeError {
    SchemeError::File { file: path.display().to_string(), problem: problem.to_string() }
}

fn unusable(name: &str, problem: &dyn std::fmt::Display) -> SchemeError {
    SchemeError::Scheme { name: name.to_owned(), problem: problem.to_string() }
}
