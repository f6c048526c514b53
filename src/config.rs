//! The configuration as the rest of the gate sees it: values that can be used as they are.
//!
//! Every path is absolute, every file that a path names could be read when the configuration was loaded, every number
//! is within its range, there is at least one authentication scheme. Must not know TOML, serde, the environment or the
//! file system: `config/file.rs` is the only reader of those.

mod access;
pub mod auth;
mod error;
mod file;
pub mod stores;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portcullis_auth::{Principal, Secret};
use url::Url;

use crate::audit::Wording;
use crate::backend::ballista::remote::RemoteConfig;
use crate::limits::Rate;
use crate::listen::Network;

pub use access::{Grant, NamePattern, RowRule, TablePattern};
pub use error::{LoadError, LoadErrors, Problem};

/// A whole configuration.
#[derive(Debug)]
pub struct Config {
    /// Where the gate listens, and how.
    pub server: Server,
    /// The cluster behind the gate.
    pub cluster: Cluster,
    /// The authentication chain, in the order in which schemes are asked.
    pub auth: NonEmpty<auth::Entry>,
    /// Where decisions and statements are written down.
    pub audit: Audit,
    /// Sessions and the keys that seal what clients carry.
    pub session: Session,
    /// Caps on what one client and all clients may use.
    pub limits: Limits,
    /// The log.
    pub log: Log,
    /// The stores that tables and locations may be in, besides local files; none by default.
    pub object_stores: Vec<stores::ObjectStore>,
    /// Where tables that SQL makes are kept.
    pub storage: Storage,
    /// Who may do what with which tables, in the order of the file; nobody anything by default.
    pub grants: Vec<Grant>,
    /// Where statements may reach outside the configured tables; nothing by default.
    pub locations: Vec<Location>,
    /// The configured tables, in the order of the file.
    pub tables: Vec<Table>,
}

impl Config {
    /// Reads the file at `path` and everything it refers to.
    ///
    /// # Errors
    ///
    /// All findings at once, each with file, key and line.
    pub fn load(path: &Path) -> Result<Self, LoadErrors> {
        file::load(path)
    }

    /// Reads `text` as if it stood in the file at `path`, which need not exist: relative paths are relative to its
    /// folder.
    ///
    /// # Errors
    ///
    /// As [`Config::load`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, LoadErrors> {
        file::parse(text, path)
    }
}

/// A list that cannot be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NonEmpty<T> {
    /// The first element.
    pub first: T,
    /// The others, in order.
    pub rest: Vec<T>,
}

impl<T> NonEmpty<T> {
    /// All elements, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.first).chain(&self.rest)
    }
}

impl<T> IntoIterator for NonEmpty<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::iter::Once<T>, std::vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        std::iter::once(self.first).chain(self.rest)
    }
}

/// `[storage]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// `managed`: a folder or a prefix in a store, which ends with `/`; and `views`.
    Managed(Url, Views),
    /// Nowhere, the default: statements that make tables are refused.
    Nowhere,
}

/// `views` of `[storage]`: what becomes of a view that is not temporary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Views {
    /// It is kept as tables are; the default.
    Kept,
    /// It lives in its session.
    InSession,
}

/// `[server]`.
#[derive(Clone, Debug)]
pub struct Server {
    /// The address of the Flight port.
    pub listen: SocketAddr,
    /// How long running streams may go on after a `SIGTERM`; 30 s by default, zero stops at once.
    pub drain: Duration,
    /// TLS, or the danger that was chosen instead.
    pub transport: Transport,
    /// From where a PROXY protocol header is required and believed; nowhere by default.
    pub trusted_proxies: Vec<Network>,
}

/// How the Flight port is protected.
#[derive(Clone, Debug)]
pub enum Transport {
    /// No protection; `listen` is a loopback address when the chain has a scheme that sends its secret.
    DangerPlaintext,
    /// TLS.
    Tls(TlsFiles),
}

/// `[server.tls]`. Both files could be read; what they hold has not been looked at.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate chain (PEM).
    pub cert: PathBuf,
    /// The private key (PEM).
    pub key: PathBuf,
    /// The oldest version that is spoken; 1.2 by default.
    pub min_version: TlsVersion,
    /// Whether clients are asked for certificates.
    pub clients: ClientCertificates,
}

/// Certificates of clients. The files could be read; what they hold has not been looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Clients are asked for one.
    Asked {
        /// The CAs (PEM).
        ca: PathBuf,
        /// Revocation lists (PEM or DER); none means that nothing is ever revoked.
        crl: Vec<PathBuf>,
        /// Whether it may be missing; `optional` by default.
        auth: ClientAuth,
        /// What it says; `identity` by default.
        role: CertificateRole,
    },
    /// They are not asked.
    NotAsked,
}

/// `client_auth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// A client may have no certificate.
    Optional,
    /// A connection without one ends in the handshake.
    Required,
}

/// `client_cert`: what a client's certificate says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateRole {
    /// That the connection comes from a known place; who calls is said in a header.
    Channel,
    /// Who calls: it is a credential, and a second one beside it is refused.
    Identity,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// 1.2.
    Tls12,
    /// 1.3.
    Tls13,
}

/// `[cluster]`.
#[derive(Debug)]
pub enum Cluster {
    /// Scheduler and executors in this process.
    Embedded(Embedded),
    /// A cluster elsewhere.
    Remote(Box<RemoteConfig>),
}

/// An embedded cluster.
#[derive(Clone, Debug)]
pub struct Embedded {
    /// The number of executors; 1 by default, 1 to 64.
    pub executors: usize,
    /// Task slots of one executor; what the machine offers by default, 1 to 1024.
    pub vcores: usize,
    /// Where executors keep shuffle files.
    pub work_dir: WorkDir,
    /// Memory in bytes that the tasks of one executor may use before they spill; 4 GiB by default.
    pub memory: usize,
    /// Bytes that the tasks of one executor may spill at a time; 50 GiB by default.
    pub spill: usize,
}

impl Embedded {
    pub(crate) const MEMORY: usize = 4 * 1024 * 1024 * 1024;
    pub(crate) const SPILL: usize = 50 * 1024 * 1024 * 1024;
}

/// Where an embedded cluster works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkDir {
    /// In this folder, which may not exist yet.
    At(PathBuf),
    /// In a fresh temporary folder.
    Temporary,
}

/// `[session]`.
#[derive(Debug)]
pub struct Session {
    /// A session ends when it was not used for this long; never more than `lifetime`. 30 min, or `lifetime`
    /// where that is shorter, by default.
    pub idle: Duration,
    /// A session ends after this long in any case; 12 h by default.
    pub lifetime: Duration,
    /// Sessions of one identity; 32 by default.
    pub max_per_principal: usize,
    /// Sessions of all identities together; 10,000 by default.
    pub max_total: usize,
    /// The catalog of unqualified names: by default the first configured one, else `portcullis`.
    pub default_catalog: String,
    /// The schema of unqualified names; `public` by default.
    pub default_schema: String,
    /// `[session.role.<name>]`: what the two defaults are for who has that role.
    pub roles: BTreeMap<String, Home>,
    /// `[session.user.<name>]`: what they are for that principal, whatever its roles say.
    pub users: BTreeMap<String, Home>,
    /// The keys that seal session tokens, tickets and handles.
    pub keys: SealKeys,
    /// What several gates tell each other about sessions that have ended.
    pub revocations: Revocations,
}

/// Where unqualified names are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// The catalog.
    pub catalog: String,
    /// The schema.
    pub schema: String,
}

impl Session {
    /// The default catalog and schema of `principal`: those of its name; else those of the first of its roles, by
    /// alphabet, that has some; else those of everybody.
    pub fn defaults_for(&self, principal: &Principal) -> (&str, &str) {
        let of_role = || principal.roles().iter().find_map(|role| self.roles.get(role));
        match self.users.get(principal.name()).or_else(of_role) {
            Some(home) => (&home.catalog, &home.schema),
            None => (&self.default_catalog, &self.default_schema),
        }
    }

    /// Every default catalog and schema that somebody could have, so that they can be there for all.
    pub fn homes(&self) -> impl Iterator<Item = (&str, &str)> {
        let everybody = (self.default_catalog.as_str(), self.default_schema.as_str());
        let others = self.roles.values().chain(self.users.values());
        std::iter::once(everybody).chain(others.map(|home| (home.catalog.as_str(), home.schema.as_str())))
    }
}

/// `session.revocations`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revocations {
    /// In a file of this process and of others that share the sealing keys.
    Shared(PathBuf),
    /// Nothing is told: a token that this gate did not make itself is good for 15 minutes at most.
    Unshared,
}

impl Default for Session {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(30 * 60),
            lifetime: Duration::from_secs(12 * 60 * 60),
            max_per_principal: 32,
            max_total: 10_000,
            default_catalog: "portcullis".to_owned(),
            default_schema: "public".to_owned(),
            roles: BTreeMap::new(),
            users: BTreeMap::new(),
            keys: SealKeys::RandomPerProcess,
            revocations: Revocations::Unshared,
        }
    }
}

/// Where the sealing keys come from.
#[derive(Debug)]
pub enum SealKeys {
    /// From the configuration, newest first; each is 32 bytes.
    Given(NonEmpty<Secret>),
    /// Made at start: what clients carry does not survive a restart and is unknown to other gates.
    RandomPerProcess,
}

/// `[limits]`. No value is ever zero.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections; 1024 by default.
    pub connections: usize,
    /// Open connections of one address, or of one /64 network of IPv6; half of `connections` by default.
    pub connections_per_ip: usize,
    /// From accept to the end of the TLS handshake; 10 s by default, 10 min at most.
    pub handshake_timeout: Duration,
    /// TLS handshakes of one address, and calls whose credential takes work to verify; 200/s by default.
    pub preauth_per_ip: Rate,
    /// Refused credentials of one address; 300/m by default.
    pub failed_auth_per_ip: Rate,
    /// Refused credentials that gave one user name; 10/m by default.
    pub failed_auth_per_name: Rate,
    /// Calls of one identity; 5000/s by default.
    pub requests_per_principal: Rate,
    /// Queries of one identity that run at the same time; 64 by default.
    pub queries_per_principal: usize,
    /// `[limits.role.<name>]`: what the limits of one identity are for who has that role.
    pub roles: BTreeMap<String, RoleLimits>,
    /// The deadline of one statement; 1 h by default.
    pub query_timeout: Duration,
    /// The length of one statement in bytes; 1 MiB by default, 16 MiB at most.
    pub sql_bytes: usize,
    /// The nesting of one statement; 50 by default, 200 at most.
    pub sql_depth: usize,
    /// The length of one flat chain of operators (`a AND b AND …`); 200 by default, 500 at most.
    pub sql_chain: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            connections_per_ip: 512,
            handshake_timeout: Duration::from_secs(10),
            preauth_per_ip: Rate::per_second(200),
            failed_auth_per_ip: Rate::per_minute(300),
            failed_auth_per_name: Rate::per_minute(10),
            requests_per_principal: Rate::per_second(5000),
            queries_per_principal: 64,
            roles: BTreeMap::new(),
            query_timeout: Duration::from_secs(60 * 60),
            sql_bytes: 1024 * 1024,
            sql_depth: 50,
            sql_chain: 200,
        }
    }
}

/// What a role changes; of several roles, the most generous counts.
#[derive(Clone, Copy, Debug)]
pub struct RoleLimits {
    /// Calls.
    pub requests: Rate,
    /// Queries at the same time.
    pub queries: usize,
}

/// `[audit]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Where lines go.
    pub target: AuditTarget,
    /// What they say of the texts of statements; a hash by default.
    pub wording: Wording,
}

/// Where lines of the audit log go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditTarget {
    /// Into this file, which is appended to.
    File(PathBuf),
    /// Nowhere.
    Nowhere,
    /// To standard output.
    Stdout,
}

/// `[log]`.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    /// The least important line that is written; `info` by default.
    pub level: LogLevel,
    /// The form of a line; `text` by default.
    pub format: LogFormat,
}

impl Default for Log {
    fn default() -> Self {
        Self { level: LogLevel::Info, format: LogFormat::Text }
    }
}

/// How important a log line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// What needs a person.
    Error,
    /// What may need one.
    Warn,
    /// What happened.
    Info,
    /// Why it happened.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// The word in the configuration and in filter directives.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object.
    Json,
    /// For people.
    Text,
}

/// One `[[location]]`: where `CREATE EXTERNAL TABLE` and `COPY` may reach.
#[derive(Clone, Debug)]
pub struct Location {
    /// A URL of a file or of something in a configured store, whose path ends with `/` and has no `..`,
    /// percent-encoded separator, query or fragment. Symbolic links are not resolved.
    pub prefix: Url,
    /// Who may.
    pub to: NonEmpty<Grantee>,
    /// What they may do there.
    pub allow: Allow,
}

/// Who may do something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grantee {
    /// `*`: every principal.
    Everyone,
    /// `role:NAME`.
    Role(String),
    /// `user:NAME`.
    User(String),
}

/// What may be done at a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allow {
    /// Only reading.
    Read,
    /// Both.
    ReadWrite,
    /// Only writing.
    Write,
}

/// One `[catalog.<catalog>.<schema>.<table>]`; read only.
#[derive(Clone, Debug)]
pub struct Table {
    /// The catalog.
    pub catalog: String,
    /// The schema.
    pub schema: String,
    /// The table.
    pub name: String,
    /// A `file` URL of something that exists, or a URL in a configured store; it ends with `/` when that is a folder.
    pub location: Url,
    /// The format of the files.
    pub format: Format,
    /// The partition columns, outermost first; their names are unique.
    pub partitions: Vec<(String, PartitionType)>,
    /// Options of the format, as written.
    pub options: BTreeMap<String, String>,
    /// Where the configuration names it, for messages.
    pub line: usize,
}

/// The format of a table's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Arrow IPC files.
    Arrow,
    /// Apache Avro.
    Avro,
    /// Comma separated values.
    Csv,
    /// One JSON object a line.
    Json,
    /// Apache Parquet.
    Parquet,
}

/// The type of a partition column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionType {
    /// `bigint`: 64-bit integer.
    Bigint,
    /// `date`: days.
    Date,
    /// `int`: 32-bit integer.
    Int,
    /// `varchar` or `string`: text.
    Varchar,
}
