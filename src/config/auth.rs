//! `[[auth]]`: the schemes of the chain as they are configured.
//!
//! What a scheme keeps outside the configuration (keys, users, key sets, denied tokens) is named here by its path and
//! read in [`crate::schemes`], on start and on every reload. Must not name a plugin crate.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use super::NonEmpty;

/// One `[[auth]]` entry.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The name in logs, unique in the chain; the scheme's name by default.
    pub name: String,
    /// What it looks for.
    pub scheme: Scheme,
    /// Whether a password may be such a token.
    pub token_user: TokenUser,
}

/// A kind of credential, and how it is judged. Every path is absolute and could be read; what the file holds has not
/// been looked at.
#[derive(Clone, Debug)]
pub enum Scheme {
    /// `api-key`: random keys, stored hashed, in this file.
    ApiKey(PathBuf),
    /// `danger-anonymous`: whoever shows nothing is this principal.
    DangerAnonymous(Anonymous),
    /// `jwt`: tokens of one issuer.
    Jwt(Box<Issuer>),
    /// `mtls`: client certificates.
    Mtls(Certificates),
    /// `password`: users with argon2id hashes in this file.
    Password(PathBuf),
}

impl Scheme {
    /// The word in the configuration.
    pub fn word(&self) -> &'static str {
        match self {
            Self::ApiKey(_) => "api-key",
            Self::DangerAnonymous(_) => "danger-anonymous",
            Self::Jwt(_) => "jwt",
            Self::Mtls(_) => "mtls",
            Self::Password(_) => "password",
        }
    }
}

/// Tools that know only user and password (Tableau) may send a token as the password of one user name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenUser {
    /// They may not.
    Refused,
    /// Of the user with exactly this name.
    Named(String),
}

/// Who somebody without a credential is.
#[derive(Clone, Debug)]
pub struct Anonymous {
    /// The name; `anonymous` by default.
    pub principal: String,
    /// The roles; none by default.
    pub roles: Vec<String>,
}

/// An issuer of tokens, and what its tokens must be.
#[derive(Clone, Debug)]
pub struct Issuer {
    /// The exact `iss`.
    pub issuer: String,
    /// One of these must be in `aud`.
    pub audience: NonEmpty<String>,
    /// The signature algorithms, as words of RFC 7518 and 8037; one at least, none of them symmetric.
    pub algorithms: NonEmpty<String>,
    /// Where the keys are.
    pub keys: Keys,
    /// The CAs that are believed when keys are fetched, in PEM, instead of those of the system.
    pub ca: Option<PathBuf>,
    /// The claim that names the principal; `sub` by default.
    pub principal_claim: String,
    /// The claim that lists the roles.
    pub roles_claim: Option<String>,
    /// Attributes of the principal, and the claims that they come from.
    pub attributes: BTreeMap<String, String>,
    /// Claims that must be there, with these values.
    pub required: BTreeMap<String, String>,
    /// The clock difference that is tolerated; 30 s by default, 120 s at most.
    pub leeway: Duration,
    /// The longest life of a token; 24 h by default.
    pub max_lifetime: Duration,
    /// The values of `typ` that are accepted; those of access tokens by default.
    pub types: Vec<String>,
    /// Tokens and principals that are denied, in a file that is read again when it changes.
    pub denied: Option<PathBuf>,
    /// Whether keys may be fetched without TLS.
    pub http: Http,
}

/// Where an issuer's keys are.
#[derive(Clone, Debug)]
pub enum Keys {
    /// In the metadata that OpenID Connect Discovery finds under the issuer.
    Discovery,
    /// In a file.
    File(PathBuf),
    /// Under a URL.
    Url(Url),
}

/// Whether keys may be fetched without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http {
    /// From this machine: for tests and development.
    DangerLoopback,
    /// They may not.
    Refused,
}

/// How client certificates become principals.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// The rules, in order; the first that fits decides.
    pub principals: NonEmpty<CertificateRule>,
    /// Roles by the principal's name.
    pub roles: BTreeMap<String, Vec<String>>,
    /// Whether the certificate must say that it is for clients.
    pub usage: ExtendedKeyUsage,
}

/// One rule: a field of the certificate, a pattern for it, and the name that it gives.
#[derive(Clone, Debug)]
pub struct CertificateRule {
    /// Which field.
    pub field: CertificateField,
    /// What the whole of it must be; `*` stands for one part.
    pub pattern: String,
    /// The principal's name, with `$1` for what the first `*` stood for.
    pub name: String,
}

/// A field of a certificate that can name somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateField {
    /// The common name of the subject.
    Cn,
    /// A DNS name.
    Dns,
    /// An e-mail address.
    Email,
    /// A URI, such as a SPIFFE id.
    Uri,
}

/// What a certificate must say about its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtendedKeyUsage {
    /// Nothing; when it says something, clients must be among it.
    DangerOptional,
    /// That it is for clients.
    Required,
}
