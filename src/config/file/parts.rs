//! What each section of the file means: keys, defaults, ranges, and the rules between keys.
//!
//! Goes on after a finding, so that all are told at once: an optional value falls back to its default, a required one
//! leaves its part absent. Must not touch the file system or the environment itself ([`Surroundings`] does).

use std::collections::BTreeMap;
use std::time::Duration;

use portcullis_auth::Secret;
use url::Url;

use super::section::{At, Item, Section};
use super::stores::{self, Stores};
use super::{Surroundings, auth, grants, values};
use crate::audit::Wording;
use crate::backend::ballista::remote::{ClusterIdentity, ClusterTls, RemoteConfig, Results};
use crate::backend::ballista::{ExecutorAllowList, Headers};
use crate::config::error::Problem;
use crate::config::{
    Allow, Audit, AuditTarget, CertificateRole, ClientAuth, ClientCertificates, Cluster, Config, Embedded, Format,
    Home, Limits, Location, Log, LogFormat, LogLevel, NonEmpty, Revocations, RoleLimits, SealKeys, Server, Session,
    Storage, Table, TlsFiles, TlsVersion, Transport, Views, WorkDir,
};

/// The whole file; `None` after a finding without which there is no configuration.
pub(super) fn config(root: &mut Section<'_>, around: &Surroundings<'_>) -> Option<Config> {
    let server = root.section("server", |section| server(section, around));
    let cluster = root.section("cluster", |section| cluster(section, around));
    let chain = auth::chain(root, around);
    let (mut session, homes) = root.section("session", |section| session(section, around));
    let limits = root.section("limits", limits);
    let audit = root.section("audit", |section| audit(section, around));
    let log = root.section("log", log);
    let grants = grants::grants(root);
    let stores = stores::stores(root, around);
    let storage = root.section("storage", |section| storage(section, around, &stores));
    let locations = root.sections("location", |section| location(section, around, &stores, &storage));
    let tables = root.section("catalog", |section| tables(section, around, &stores));

    if let (Some((at, server)), Some(chain)) = (&server, &chain) {
        auth::fits_transport(root, at, server, chain);
    }
    let first_configured = || tables.first().map(|table| table.catalog.clone());
    homes.settle(&mut session, first_configured);
    let chain = chain?;
    let auth = NonEmpty { first: chain.first.1, rest: chain.rest.into_iter().map(|(_, entry)| entry).collect() };
    let object_stores = stores.usable;
    Some(Config {
        server: server?.1,
        cluster: cluster?,
        auth,
        audit,
        session,
        limits,
        log,
        object_stores,
        storage,
        grants,
        locations,
        tables,
    })
}

/// `[server]`, with the place where its transport is chosen.
fn server(section: &mut Section<'_>, around: &Surroundings<'_>) -> Option<(At, Server)> {
    let listen = section.required("listen", values::address);
    let drain = section.optional("drain", Duration::from_secs(30), values::duration("0s", "1d"));
    let danger = section.optional("danger_plaintext", None, |item| {
        // `false` says what an absent key says.
        values::switch(Some(item.at.clone()), None)(item)
    });
    let (at, transport) = match (danger, section.given_section("tls", |tls| tls_files(tls, around))) {
        (None, Some((at, files))) => (at, Transport::Tls(files?)),
        (None, None) => {
            section.report_absence(section.at(), Problem::NoTransport);
            return None;
        }
        (Some(at), None) => (at, Transport::DangerPlaintext),
        (Some(at), Some(_)) => {
            section.report(&at, Problem::TwoTransports);
            return None;
        }
    };
    let trusted_proxies = section.list("trusted_proxies", values::network).unwrap_or_default();
    let trusted_proxies = trusted_proxies.into_iter().map(|(_, network)| network).collect();
    Some((at, Server { listen: listen?, drain, transport, trusted_proxies }))
}

/// `[server.tls]`.
fn tls_files(section: &mut Section<'_>, around: &Surroundings<'_>) -> Option<TlsFiles> {
    const VERSIONS: &[(&str, TlsVersion)] = &[("1.2", TlsVersion::Tls12), ("1.3", TlsVersion::Tls13)];
    let cert = section.required("cert", |item| around.readable(item));
    let key = section.required("key", |item| around.readable(item));
    let min_version = section.optional("min_version", TlsVersion::Tls12, values::word(VERSIONS));
    let clients = client_certificates(section, around);
    Some(TlsFiles { cert: cert?, key: key?, min_version, clients: clients? })
}

/// `client_ca` and what only has a meaning beside it.
fn client_certificates(section: &mut Section<'_>, around: &Surroundings<'_>) -> Option<ClientCertificates> {
    const AUTH: &[(&str, ClientAuth)] = &[("optional", ClientAuth::Optional), ("required", ClientAuth::Required)];
    const ROLES: &[(&str, CertificateRole)] =
        &[("identity", CertificateRole::Identity), ("channel", CertificateRole::Channel)];
    let ca = section.given("client_ca", |item| around.readable(item));
    let auth = section.given("client_auth", values::word(AUTH));
    let role = section.given("client_cert", values::word(ROLES));
    let crl = section.list("crl", |item| around.readable(item));
    let Some((_, ca)) = ca else {
        let lists = crl.iter().flatten().map(|(at, _)| at).next();
        for at in [auth.as_ref().map(|(at, _)| at), role.as_ref().map(|(at, _)| at), lists].into_iter().flatten() {
            section.report(at, values::rule("…", "means nothing without `server.tls.client_ca`"));
        }
        return Some(ClientCertificates::NotAsked);
    };
    Some(ClientCertificates::Asked {
        ca: ca?,
        crl: crl.unwrap_or_default().into_iter().map(|(_, path)| path).collect(),
        auth: auth.map_or(Some(ClientAuth::Optional), |(_, auth)| auth)?,
        role: role.map_or(Some(CertificateRole::Identity), |(_, role)| role)?,
    })
}

/// `[cluster]`.
fn cluster(section: &mut Section<'_>, around: &Surroundings<'_>) -> Option<Cluster> {
    const MODES: &[(&str, Mode)] = &[("embedded", Mode::Embedded), ("remote", Mode::Remote)];
    match section.required("mode", values::word(MODES)) {
        Some(Mode::Embedded) => Some(Cluster::Embedded(embedded(section, around))),
        Some(Mode::Remote) => remote(section, around).map(|remote| Cluster::Remote(Box::new(remote))),
        None => {
            // Which keys are known depends on the mode.
            section.skip_rest();
            None
        }
    }
}

#[derive(Clone, Copy)]
enum Mode {
    Embedded,
    Remote,
}

fn embedded(section: &mut Section<'_>, around: &Surroundings<'_>) -> Embedded {
    let executors = section.optional("executors", 1, values::count(1..=64));
    let vcores = section.optional("vcores", available_cores(), values::count(1..=MAX_VCORES));
    let work_dir = section.optional("work_dir", WorkDir::Temporary, |item| around.work_dir(item));
    let memory = section.optional("memory", Embedded::MEMORY, values::size_between("64MiB", "1024GiB"));
    let spill = section.optional("spill", Embedded::SPILL, values::size_between("1MiB", "1048576GiB"));
    Embedded { executors, vcores, work_dir, memory, spill }
}

fn remote(section: &mut Section<'_>, around: &Surroundings<'_>) -> Option<RemoteConfig> {
    let address = |item: &Item<'_>| values::cluster_url(item).map(|url| (item.at.clone(), url));
    let scheduler = section.required("scheduler", address);
    let tls = section.given_section("tls", |tls| cluster_tls(tls, around));
    let headers = section.given_section("headers", |headers| {
        headers.values(|item| around.secret(item).and_then(|secret| values::header_value(&secret)))
    });
    let results = results(section, scheduler.as_ref().map(|(_, url)| url));
    let result_ttl = section.optional("result_ttl", Duration::from_secs(300), values::duration("10s", LONGEST));

    let (at, scheduler) = scheduler?;
    let tls = match (scheduler.scheme(), tls) {
        ("https", Some((_, tls))) => tls?,
        ("https", None) => {
            section.report(&at, values::rule(scheduler.as_str(), "needs `cluster.tls.ca`"));
            return None;
        }
        (_, Some((tls_at, _))) => {
            section.report(&tls_at, values::rule(scheduler.as_str(), "is spoken to without TLS: write `https`"));
            return None;
        }
        (_, None) => ClusterTls::None,
    };
    let headers = match headers {
        None => Headers::default(),
        Some((at, headers)) => {
            if matches!(tls, ClusterTls::None) && !values::is_loopback(&scheduler) {
                section.report(&at, values::rule(scheduler.as_str(), "must be `https` when `headers` go there"));
            }
            Headers::new(headers.into_iter().filter_map(|(name, value)| match name.parse() {
                Ok(key) => Some((key, value)),
                Err(_) => {
                    section.report(&at, values::rule(&name, "is not the name of a header"));
                    None
                }
            }))
        }
    };
    Some(RemoteConfig { scheduler, tls, headers, results: results?, result_ttl })
}

/// `fetch` and what it needs; what only the other choice needs may stand there and is judged all the same.
fn results(section: &mut Section<'_>, scheduler: Option<&Url>) -> Option<Results> {
    const FETCHES: &[(&str, Fetch)] = &[("executors", Fetch::Executors), ("proxy", Fetch::Proxy)];
    let scheme = scheduler.map(Url::scheme);
    let proxy = |item: &Item<'_>| {
        let proxy = values::cluster_url(item)?;
        if scheme.is_some_and(|scheme| scheme != proxy.scheme()) {
            return Err(values::rule(proxy.as_str(), "must have the scheme of `cluster.scheduler`"));
        }
        Ok(Results::Proxy(proxy))
    };
    match section.optional("fetch", Fetch::Executors, values::word(FETCHES)) {
        Fetch::Executors => {
            let executors = section.required_list("executors", values::executor);
            section.optional("proxy", None, |item| proxy(item).map(Some));
            let executors = executors?.into_iter().map(|(_, executor)| executor).collect();
            Some(Results::Executors(ExecutorAllowList::Configured(executors)))
        }
        Fetch::Proxy => {
            section.list("executors", values::executor);
            section.required("proxy", proxy)
        }
    }
}

#[derive(Clone, Copy)]
enum Fetch {
    Executors,
    Proxy,
}

/// `[cluster.tls]`.
fn cluster_tls(section: &mut Section<'_>, around: &Surroundings<'_>) -> Option<ClusterTls> {
    let ca = section.required("ca", |item| around.text_of(item));
    let cert = section.optional("cert", None, |item| Ok(Some((item.at.clone(), around.text_of(item)?))));
    let key = section.optional("key", None, |item| Ok(Some((item.at.clone(), Secret::new(around.text_of(item)?)))));
    let identity = match (cert, key) {
        (Some((_, chain)), Some((_, key))) => ClusterIdentity::Certificate { chain, key },
        (None, None) => ClusterIdentity::Anonymous,
        (Some((at, _)), None) | (None, Some((at, _))) => {
            section.report(&at, values::rule("…", "needs its other half: `cert` and `key` go together"));
            return None;
        }
    };
    Some(ClusterTls::Tls { ca: ca?, identity })
}

/// `[session]`, and what was chosen of the default catalogs and schemas.
fn session(section: &mut Section<'_>, around: &Surroundings<'_>) -> (Session, Homes) {
    let default = Session::default();
    let lifetime = section.optional("lifetime", default.lifetime, values::duration("1ms", LONGEST));
    let idle = section.optional("idle", default.idle.min(lifetime), |item| {
        let idle = values::duration("1ms", LONGEST)(item)?;
        if idle > lifetime {
            return Err(values::rule(values::text(item)?, "is longer than `session.lifetime`"));
        }
        Ok(idle)
    });
    let max_per_principal = section.optional("max_per_principal", default.max_per_principal, values::count(1..=MANY));
    let max_total = section.optional("max_total", default.max_total, values::count(1..=MANY));
    let everybody = Chosen::read(section);
    let mut homes = Homes { everybody, roles: BTreeMap::new(), users: BTreeMap::new() };
    for (key, shape, chosen) in [
        ("role", "a table, such as `[session.role.analyst]`", &mut homes.roles),
        ("user", "a table, such as `[session.user.alice]`", &mut homes.users),
    ] {
        let shape = |found| Problem::WrongType { expected: shape, found };
        section.section(key, |named| {
            named.named(shape, role_name, |name, section| drop(chosen.insert(name.to_owned(), Chosen::read(section))));
        });
    }
    let keys = seal_keys(section, around);
    let revocations = match section.given("revocations", |item| around.writable(item)) {
        None => Revocations::Unshared,
        Some((at, file)) => {
            if let SealKeys::RandomPerProcess = keys {
                let problem = "needs `session.keys`: without them no other gate knows a session of this one";
                section.report(&at, values::rule("…", problem));
            }
            file.map_or(Revocations::Unshared, Revocations::Shared)
        }
    };
    let session = Session { idle, lifetime, max_per_principal, max_total, keys, revocations, ..default };
    (session, homes)
}

/// The default catalogs and schemas as far as they were chosen: the rest depends on the configured tables.
struct Homes {
    everybody: Chosen,
    roles: BTreeMap<String, Chosen>,
    users: BTreeMap<String, Chosen>,
}

struct Chosen {
    catalog: Option<String>,
    schema: Option<String>,
}

impl Chosen {
    fn read(section: &mut Section<'_>) -> Self {
        let name = |item: &Item<'_>| values::identifier(values::text(item)?).map(Some);
        let schema = |item: &Item<'_>| values::schema(values::text(item)?).map(Some);
        Self {
            catalog: section.optional("default_catalog", None, name),
            schema: section.optional("default_schema", None, schema),
        }
    }

    /// What a role or a user does not say is as for everybody.
    fn or(self, everybody: &Home) -> Home {
        Home {
            catalog: self.catalog.unwrap_or_else(|| everybody.catalog.clone()),
            schema: self.schema.unwrap_or_else(|| everybody.schema.clone()),
        }
    }
}

impl Homes {
    /// `first` is the first configured catalog.
    fn settle(mut self, session: &mut Session, first: impl FnOnce() -> Option<String>) {
        self.everybody.catalog = self.everybody.catalog.or_else(first);
        let built_in = Home { catalog: session.default_catalog.clone(), schema: session.default_schema.clone() };
        let everybody = self.everybody.or(&built_in);
        let settled = |homes: BTreeMap<String, Chosen>| {
            homes.into_iter().map(|(name, chosen)| (name, chosen.or(&everybody))).collect()
        };
        session.roles = settled(self.roles);
        session.users = settled(self.users);
        session.default_catalog = everybody.catalog;
        session.default_schema = everybody.schema;
    }
}

fn seal_keys(section: &mut Section<'_>, around: &Surroundings<'_>) -> SealKeys {
    let given = section.list("keys", |item| values::seal_key(&around.secret(item)?)).unwrap_or_default();
    let mut keys: Vec<Secret> = Vec::new();
    for (at, key) in given {
        if keys.iter().any(|earlier| earlier.matches(key.expose())) {
            section.report(&at, Problem::DuplicateKey);
        }
        keys.push(key);
    }
    non_empty(keys).map_or(SealKeys::RandomPerProcess, SealKeys::Given)
}

/// `[limits]`.
fn limits(section: &mut Section<'_>) -> Limits {
    let default = Limits::default();
    let connections = section.optional("connections", default.connections, values::count(1..=MANY));
    let half = default.connections_per_ip.min(connections.div_ceil(2));
    let connections_per_ip = section.optional("connections_per_ip", half, values::count(1..=MANY));
    let requests_per_principal =
        section.optional("requests_per_principal", default.requests_per_principal, values::rate);
    let queries_per_principal =
        section.optional("queries_per_principal", default.queries_per_principal, values::count(1..=MANY));
    let mut roles = BTreeMap::new();
    section.section("role", |named| {
        named.named(role_shape, role_name, |role, section| {
            let requests = section.optional("requests_per_principal", requests_per_principal, values::rate);
            let queries = section.optional("queries_per_principal", queries_per_principal, values::count(1..=MANY));
            roles.insert(role.to_owned(), RoleLimits { requests, queries });
        });
    });
    Limits {
        connections,
        connections_per_ip,
        handshake_timeout: section.optional(
            "handshake_timeout",
            default.handshake_timeout,
            values::duration("1ms", "10m"),
        ),
        preauth_per_ip: section.optional("preauth_per_ip", default.preauth_per_ip, values::rate),
        failed_auth_per_ip: section.optional("failed_auth_per_ip", default.failed_auth_per_ip, values::rate),
        failed_auth_per_name: section.optional("failed_auth_per_name", default.failed_auth_per_name, values::rate),
        requests_per_principal,
        queries_per_principal,
        roles,
        query_timeout: section.optional("query_timeout", default.query_timeout, values::duration("1ms", LONGEST)),
        sql_bytes: section.optional("sql_bytes", default.sql_bytes, values::size("16MiB")),
        sql_depth: section.optional("sql_depth", default.sql_depth, values::count(1..=200)),
        sql_chain: section.optional("sql_chain", default.sql_chain, values::count(1..=500)),
    }
}

fn role_shape(found: &'static str) -> Problem {
    Problem::WrongType { expected: "a table, such as `[limits.role.analyst]`", found }
}

fn role_name(given: &str) -> Result<String, Problem> {
    if given.trim().is_empty() { Err(Problem::Empty) } else { Ok(given.to_owned()) }
}

/// `[audit]`.
fn audit(section: &mut Section<'_>, around: &Surroundings<'_>) -> Audit {
    let file = section.given("file", |item| around.writable(item));
    let stdout = section.optional("stdout", None, |item| values::switch(Some(item.at.clone()), None)(item));
    let wording =
        section.optional("danger_statement_text", Wording::Hash, values::switch(Wording::Danger, Wording::Hash));
    let target = match (file, stdout) {
        (Some((_, file)), None) => file.map_or(AuditTarget::Nowhere, AuditTarget::File),
        (None, Some(_)) => AuditTarget::Stdout,
        (None, None) => AuditTarget::Nowhere,
        (Some(_), Some(at)) => {
            section.report(&at, values::rule("true", "and `file` exclude each other: choose one of them"));
            AuditTarget::Nowhere
        }
    };
    Audit { target, wording }
}

/// `[log]`.
fn log(section: &mut Section<'_>) -> Log {
    const FORMATS: &[(&str, LogFormat)] = &[("text", LogFormat::Text), ("json", LogFormat::Json)];
    const LEVELS: &[(&str, LogLevel)] = &[
        ("error", LogLevel::Error),
        ("warn", LogLevel::Warn),
        ("info", LogLevel::Info),
        ("debug", LogLevel::Debug),
        ("trace", LogLevel::Trace),
    ];
    let default = Log::default();
    Log {
        level: section.optional("level", default.level, values::word(LEVELS)),
        format: section.optional("format", default.format, values::word(FORMATS)),
    }
}

/// `[storage]`.
fn storage(section: &mut Section<'_>, around: &Surroundings<'_>, stores: &Stores) -> Storage {
    const VIEWS: &[(&str, Views)] = &[("kept", Views::Kept), ("session", Views::InSession)];
    let views = section.optional("views", Views::Kept, values::word(VIEWS));
    section.optional("managed", Storage::Nowhere, |item| {
        let place = stores.known(values::prefix(values::text(item)?, &around.dir)?)?;
        Ok(Storage::Managed(place, views))
    })
}

/// One `[[location]]`.
fn location(
    section: &mut Section<'_>,
    around: &Surroundings<'_>,
    stores: &Stores,
    storage: &Storage,
) -> Option<Location> {
    const ACCESSES: &[(&str, Allow)] = &[("read", Allow::Read), ("write", Allow::Write)];
    let prefix = section.required("prefix", |item| {
        let written = values::text(item)?;
        let prefix = stores.known(values::prefix(written, &around.dir)?)?;
        match storage {
            Storage::Managed(kept, _) if overlap(kept, &prefix) => {
                Err(values::rule(written, "reaches into `storage.managed`, where everybody's tables are"))
            }
            Storage::Managed(..) | Storage::Nowhere => Ok(prefix),
        }
    });
    let to = grants::grantees(section);
    let allow = section.required_list("allow", values::word(ACCESSES));
    let to = non_empty(to?);
    let allow = allow?
        .into_iter()
        .map(|(_, access)| access)
        .reduce(|one, other| if one == other { one } else { Allow::ReadWrite });
    Some(Location { prefix: prefix?, to: to?, allow: allow? })
}

/// Whether one place is in the other; both end with `/`.
fn overlap(one: &Url, other: &Url) -> bool {
    one.as_str().starts_with(other.as_str()) || other.as_str().starts_with(one.as_str())
}

/// `[catalog.<catalog>.<schema>.<table>]`.
fn tables(section: &mut Section<'_>, around: &Surroundings<'_>, stores: &Stores) -> Vec<Table> {
    let mut tables = Vec::new();
    section.named(table_shape, values::identifier, |catalog, schemas| {
        schemas.named(table_shape, values::schema, |schema, names| {
            names.named(table_shape, values::identifier, |name, section| {
                tables.extend(table(section, (around, stores), [catalog, schema, name]));
            });
        });
    });
    // The walk is by catalog; a file may interleave them.
    tables.sort_by_key(|table| table.line);
    tables
}

fn table_shape(found: &'static str) -> Problem {
    Problem::CatalogShape { found }
}

fn table(
    section: &mut Section<'_>,
    (around, stores): (&Surroundings<'_>, &Stores),
    [catalog, schema, name]: [&str; 3],
) -> Option<Table> {
    let location = section.required("location", |item| around.table_location(item, stores));
    let format = section.required("format", |item| match values::text(item)? {
        "avro" => Err(Problem::Unsupported("format `avro` is not supported".to_owned())),
        _ => values::word(FORMATS)(item),
    });
    let mut names = Vec::new();
    let partitions = section.list("partitions", values::partition).unwrap_or_default();
    for (at, (name, _)) in &partitions {
        unique(section, &mut names, at, name);
    }
    let options =
        section.section("options", |options| options.values(|item| values::any_text(item).map(str::to_owned)));
    section.optional("read_only", (), |item| values::switch(Ok(()), Err(not_writable()))(item)?);
    section.optional("writable", (), |item| values::switch(Err(not_writable()), Ok(()))(item)?);
    Some(Table {
        catalog: catalog.to_owned(),
        schema: schema.to_owned(),
        name: name.to_owned(),
        location: location?,
        format: format?,
        partitions: partitions.into_iter().map(|(_, partition)| partition).collect(),
        options: options.into_iter().collect(),
        line: section.at().line(),
    })
}

fn not_writable() -> Problem {
    Problem::Unsupported("writing to configured tables is not supported".to_owned())
}

/// Reports `name` when it is taken, and takes it.
pub(super) fn unique(section: &Section<'_>, names: &mut Vec<(At, String)>, at: &At, name: &str) {
    if let Some((first, _)) = names.iter().find(|(_, earlier)| earlier == name) {
        section.report(at, Problem::Duplicate { given: name.to_owned(), first_line: first.line() });
    }
    names.push((at.clone(), name.to_owned()));
}

pub(super) fn non_empty<T>(values: Vec<T>) -> Option<NonEmpty<T>> {
    let mut values = values.into_iter();
    values.next().map(|first| NonEmpty { first, rest: values.collect() })
}

fn available_cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(MAX_VCORES))
}

const FORMATS: &[(&str, Format)] = &[
    ("parquet", Format::Parquet),
    ("csv", Format::Csv),
    ("json", Format::Json),
    ("arrow", Format::Arrow),
    ("avro", Format::Avro),
];
/// As good as for ever, and far from where adding it to a clock would overflow.
const LONGEST: &str = "3650d";
const MANY: usize = 1_000_000;
const MAX_VCORES: usize = 1024;
