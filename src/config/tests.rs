//! What operators read, file by file, and what a good file means.
//!
//! `tests/config/*.toml` are configurations, `tests/expect/config/*.txt` what is said about them. With
//! `PORTCULLIS_BLESS` set, the expectations are written instead of compared.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::env::VarError;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portcullis_auth::{Action, Assertion, Expiry};

use super::auth::{CertificateField, CertificateRule, ExtendedKeyUsage, Http, Keys, Scheme, TokenUser};
use super::*;
use crate::backend::ballista::ExecutorAllowList;
use crate::backend::ballista::remote::{ClusterIdentity, ClusterTls, Results};

#[test]
fn every_configuration_is_judged_as_expected() {
    let expect = tests_dir().join("expect/config");
    let names = stems(&tests_dir().join("config"), "toml");
    assert!(names.contains("minimal") && names.contains("full"), "the good files come with the bad ones");

    let mut wrong = Vec::new();
    for name in &names {
        let said = match judged(name) {
            Ok(_) => "usable\n".to_owned(),
            Err(errors) => format!("{errors}\n"),
        };
        // The file is named as it was loaded, which is not the same on every machine.
        let said = said.replace(&format!("{}/", tests_dir().join("config").display()), "");
        let file = expect.join(format!("{name}.txt"));
        if std::env::var_os("PORTCULLIS_BLESS").is_some() {
            fs::write(&file, &said).unwrap();
        }
        let expected = fs::read_to_string(&file).unwrap_or_default();
        if said != expected {
            wrong.push(format!("{name}.toml\n  expected: {expected}\n  said:     {said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(stems(&expect, "txt"), names, "an expectation without its configuration");
}

#[test]
fn the_least_configuration_has_the_documented_defaults() {
    let config = judged("minimal").unwrap();
    assert_eq!(config.server.drain, Duration::from_secs(30));
    let Transport::Tls(files) = &config.server.transport else { panic!("TLS was configured") };
    assert_eq!(files.min_version, TlsVersion::Tls12);
    assert_eq!(files.cert, tests_dir().join("config/files/certificate.txt"));
    let Cluster::Embedded(embedded) = &config.cluster else { panic!("an embedded cluster was configured") };
    assert_eq!((embedded.executors, &embedded.work_dir), (1, &WorkDir::Temporary));
    assert!((1..=1024).contains(&embedded.vcores));
    assert_eq!(config.auth.first.name, "api-key");
    assert!(config.auth.rest.is_empty());
    let session = &config.session;
    assert_eq!((session.idle, session.lifetime), (Duration::from_secs(1800), Duration::from_secs(43_200)));
    assert_eq!((session.max_per_principal, session.max_total), (32, 10_000));
    assert_eq!((session.default_catalog.as_str(), session.default_schema.as_str()), ("portcullis", "public"));
    assert!(matches!(session.keys, SealKeys::RandomPerProcess));
    let limits = &config.limits;
    assert_eq!((limits.connections, limits.handshake_timeout), (1024, Duration::from_secs(10)));
    assert_eq!((limits.queries_per_principal, limits.query_timeout), (64, Duration::from_secs(3600)));
    assert_eq!(limits.connections_per_ip, 512);
    let rates = [limits.preauth_per_ip, limits.failed_auth_per_ip, limits.failed_auth_per_name];
    assert_eq!(rates, ["200/s", "300/m", "10/m"].map(|rate| rate.parse().unwrap()));
    assert_eq!(limits.requests_per_principal, "5000/s".parse().unwrap());
    assert!(limits.roles.is_empty() && config.server.trusted_proxies.is_empty());
    assert_eq!(files.clients.clone(), ClientCertificates::NotAsked);
    assert_eq!(config.audit, Audit { target: AuditTarget::Nowhere, wording: Wording::Hash });
    assert_eq!((&config.auth.first.token_user, &session.revocations), (&TokenUser::Refused, &Revocations::Unshared));
    assert_eq!((limits.sql_bytes, limits.sql_depth, limits.sql_chain), (1 << 20, 50, 200));
    assert_eq!((config.log.level, config.log.format), (LogLevel::Info, LogFormat::Text));
    assert!(config.grants.is_empty() && config.locations.is_empty() && config.tables.is_empty());
    assert!(session.roles.is_empty() && session.users.is_empty());
}

#[test]
fn a_remote_cluster_is_read_with_its_list_and_its_secrets() {
    let Cluster::Remote(direct) = judged("cluster-remote").unwrap().cluster else { panic!("a remote cluster") };
    assert_eq!(direct.scheduler.as_str(), "http://10.1.0.1:50050/");
    assert_eq!(direct.result_ttl, Duration::from_secs(300), "the scheduler's own default");
    assert!(matches!(direct.tls, ClusterTls::None));
    let Results::Executors(ExecutorAllowList::Configured(list)) = &direct.results else { panic!("executors") };
    assert_eq!(list.len(), 3);

    let Cluster::Remote(proxied) = judged("cluster-remote-proxy").unwrap().cluster else { panic!("a remote cluster") };
    let Results::Proxy(proxy) = &proxied.results else { panic!("a proxy") };
    assert_eq!(proxy.as_str(), "https://scheduler.internal:50051/");
    assert_eq!(proxied.result_ttl, Duration::from_secs(3600));
    let ClusterTls::Tls { ca, identity: ClusterIdentity::Certificate { chain, key } } = &proxied.tls else {
        panic!("TLS with a certificate")
    };
    assert!(!ca.is_empty() && !chain.is_empty() && !key.expose().is_empty());
    let shown = format!("{proxied:?}");
    assert!(shown.contains("x-tenant") && !shown.contains("AgME"), "{shown}");
}

#[test]
fn every_key_has_its_meaning() {
    let config = judged("full").unwrap();
    let dir = tests_dir().join("config");
    assert_eq!((config.server.listen.port(), config.server.drain), (32010, Duration::from_secs(300)));
    let Transport::Tls(files) = &config.server.transport else { panic!("TLS was configured") };
    assert_eq!(files.min_version, TlsVersion::Tls13);
    let Cluster::Embedded(embedded) = &config.cluster else { panic!("an embedded cluster was configured") };
    assert_eq!((embedded.executors, embedded.vcores), (2, 4));
    assert_eq!(embedded.work_dir, WorkDir::At(dir.join("work")));
    assert_eq!(config.server.trusted_proxies.len(), 2);
    let expected = ClientCertificates::Asked {
        ca: dir.join("files/client-ca.txt"),
        crl: vec![dir.join("files/clients-crl.txt")],
        auth: ClientAuth::Optional,
        role: CertificateRole::Identity,
    };
    assert_eq!(files.clients, expected);
    let names = config.auth.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>();
    assert_eq!(names, ["corp", "partner", "machines", "services", "staff"]);
    let session = &config.session;
    assert_eq!(session.revocations, Revocations::Shared(dir.join("revocations.db")));
    assert_eq!((session.idle, session.lifetime), (Duration::from_secs(600), Duration::from_secs(86_400)));
    assert_eq!((session.default_catalog.as_str(), session.default_schema.as_str()), ("sales", "raw"));
    let SealKeys::Given(keys) = &session.keys else { panic!("keys were given") };
    assert_eq!(keys.iter().map(|key| *key.expose().last().unwrap()).collect::<Vec<_>>(), [31, 32, 30, 33]);
    let limits = &config.limits;
    assert_eq!((limits.handshake_timeout, limits.sql_bytes), (Duration::from_millis(250), 512 << 10));
    assert_eq!(limits.connections_per_ip, 3);
    let rates = [limits.preauth_per_ip, limits.failed_auth_per_ip, limits.failed_auth_per_name];
    assert_eq!(rates, ["20/s", "30/m", "5/h"].map(|rate| rate.parse().unwrap()));
    assert_eq!(limits.requests_per_principal, "100/s".parse().unwrap());
    let roles = limits.roles.iter().map(|(role, of)| (role.as_str(), of.requests, of.queries)).collect::<Vec<_>>();
    let expected = [("analyst", "100/s".parse().unwrap(), 8), ("big jobs", "1000/m".parse().unwrap(), 2)];
    assert_eq!(roles, expected, "what a role does not say is as for everybody");
    let file = AuditTarget::File(dir.join("audit.jsonl"));
    assert_eq!(config.audit, Audit { target: file, wording: Wording::Danger });
    assert_eq!((config.log.level.as_str(), config.log.format), ("debug", LogFormat::Json));
    let kept = Url::parse("s3://lake/portcullis/").unwrap();
    assert_eq!(config.storage, Storage::Managed(kept, Views::InSession));
    let prefixes = config.locations.iter().map(|location| location.prefix.as_str()).collect::<Vec<_>>();
    let scratch = Url::from_directory_path(dir.join("scratch")).unwrap();
    assert_eq!(prefixes, [scratch.as_str(), "file:///srv/shared/", "s3://lake/inbox/"]);
    let rights =
        config.locations.iter().map(|location| (location.to.first.clone(), location.allow)).collect::<Vec<_>>();
    let expected = [
        (Grantee::Role("writer".to_owned()), Allow::ReadWrite),
        (Grantee::Everyone, Allow::Read),
        (Grantee::Role("loader".to_owned()), Allow::Write),
    ];
    assert_eq!(rights, expected);
    let [sales, archive] = config.tables.as_slice() else { panic!("two tables were configured") };
    assert_eq!((sales.catalog.as_str(), sales.schema.as_str(), sales.name.as_str()), ("sales", "public", "orders"));
    assert_eq!(sales.location, Url::from_directory_path(dir.join("files/orders")).unwrap());
    assert_eq!(sales.partitions.first().unwrap(), &("year".to_owned(), PartitionType::Int));
    assert_eq!(sales.options.get("has_header").map(String::as_str), Some("true"));
    assert_eq!(archive.location, Url::from_file_path(dir.join("files/orders/part-0.csv")).unwrap());
}

#[test]
fn the_least_of_each_scheme_has_the_documented_defaults() {
    let config = judged("auth-least").unwrap();
    let Transport::Tls(files) = &config.server.transport else { panic!("TLS was configured") };
    let ClientCertificates::Asked { auth, role, crl, .. } = &files.clients else { panic!("clients are asked") };
    assert_eq!((*auth, *role, crl.len()), (ClientAuth::Optional, CertificateRole::Identity, 0));
    let schemes = config.auth.iter().map(|entry| (entry.name.as_str(), entry.scheme.word())).collect::<Vec<_>>();
    assert_eq!(schemes, ["jwt", "mtls", "password", "api-key"].map(|word| (word, word)));
    assert!(config.auth.iter().all(|entry| entry.token_user == TokenUser::Refused));
    let mut entries = config.auth.iter();
    let Some(Scheme::Jwt(issuer)) = entries.next().map(|entry| &entry.scheme) else { panic!("tokens") };
    assert_eq!((issuer.leeway, issuer.max_lifetime), (Duration::from_secs(30), Duration::from_secs(86_400)));
    assert_eq!((issuer.principal_claim.as_str(), &issuer.roles_claim), ("sub", &None));
    assert_eq!((issuer.http, &issuer.ca, &issuer.denied), (Http::Refused, &None, &None));
    assert!(issuer.types.is_empty() && issuer.attributes.is_empty() && issuer.required.is_empty());
    let Some(Scheme::Mtls(certificates)) = entries.next().map(|entry| &entry.scheme) else { panic!("certificates") };
    assert_eq!(certificates.usage, ExtendedKeyUsage::Required);
    assert!(certificates.roles.is_empty());

    let Scheme::DangerAnonymous(anonymous) = judged("auth-anonymous").unwrap().auth.first.scheme else {
        panic!("anonymous")
    };
    assert_eq!((anonymous.principal.as_str(), anonymous.roles), ("anonymous", Vec::new()));
}

#[test]
fn every_key_of_a_scheme_has_its_meaning() {
    let config = judged("full").unwrap();
    let dir = tests_dir().join("config/files");
    let named = |name| config.auth.iter().find(|entry| entry.name == name).unwrap();
    let Scheme::Jwt(corp) = &named("corp").scheme else { panic!("tokens") };
    assert_eq!(corp.issuer, "https://id.example.com/realms/corp");
    assert_eq!(corp.audience.iter().collect::<Vec<_>>(), ["portcullis", "https://sql.example.com"]);
    assert_eq!(corp.algorithms.iter().collect::<Vec<_>>(), ["RS256", "ES256", "EdDSA"]);
    let Keys::Url(url) = &corp.keys else { panic!("a URL") };
    assert_eq!(url.as_str(), "https://id.example.com/realms/corp/certs");
    assert_eq!((corp.leeway, corp.max_lifetime), (Duration::from_secs(120), Duration::from_secs(604_800)));
    assert_eq!(corp.principal_claim, "preferred_username");
    assert_eq!(corp.roles_claim.as_deref(), Some("realm_access.roles"));
    assert_eq!(corp.attributes.get("region").map(String::as_str), Some("address.region"));
    assert_eq!(corp.required.get("acr").map(String::as_str), Some("high"));
    assert_eq!((corp.ca.clone(), corp.denied.clone()), (Some(dir.join("client-ca.txt")), Some(dir.join("denied.txt"))));
    assert_eq!(corp.types, ["at+jwt"]);
    assert_eq!(named("corp").token_user, TokenUser::Named("token".to_owned()));
    assert_eq!(named("services").token_user, TokenUser::Named("key".to_owned()));

    let Scheme::Jwt(partner) = &named("partner").scheme else { panic!("tokens") };
    assert!(matches!(partner.keys, Keys::Discovery));
    assert_eq!(partner.leeway, Duration::ZERO);

    let Scheme::Mtls(machines) = &named("machines").scheme else { panic!("certificates") };
    let rule = |rule: &CertificateRule| (rule.field, rule.pattern.clone(), rule.name.clone());
    let rules = machines.principals.iter().map(rule).collect::<Vec<_>>();
    let expected = [
        (CertificateField::Uri, "spiffe://corp/svc/*", "svc-$1"),
        (CertificateField::Dns, "*.jobs.example.com", "job-$1"),
        (CertificateField::Email, "*@example.com", "$1"),
        (CertificateField::Cn, "*", "cn-$1"),
    ];
    assert_eq!(rules, expected.map(|(field, pattern, name)| (field, pattern.to_owned(), name.to_owned())));
    assert_eq!(machines.roles.get("svc-etl").unwrap(), &["writer", "reader"]);
    assert_eq!(machines.usage, ExtendedKeyUsage::DangerOptional);
    let Scheme::Password(users) = &named("staff").scheme else { panic!("users") };
    assert_eq!(users, &dir.join("users.txt"));
}

#[test]
fn every_key_of_a_grant_has_its_meaning() {
    let config = judged("full").unwrap();
    let [analysts, everybody, owners] = config.grants.as_slice() else { panic!("three grants were configured") };
    let analyst_and_alice = [Grantee::Role("analyst".to_owned()), Grantee::User("alice".to_owned())];
    assert_eq!(analysts.to.iter().cloned().collect::<Vec<_>>(), analyst_and_alice);
    assert_eq!((analysts.on.to_string().as_str(), &analysts.allow), ("sales.*.*", &BTreeSet::from([Action::Select])));
    assert_eq!(analysts.rows, RowRule::Where("region = 'EU' OR owner = current_user()".to_owned()));
    let masks = analysts.masks.iter().map(|(column, mask)| (column.as_str(), mask.as_str())).collect::<Vec<_>>();
    assert_eq!(masks, [("email", "'***'"), ("phone", "NULL")]);
    let text = fs::read_to_string(tests_dir().join("config/full.toml")).unwrap();
    assert_eq!(text.lines().nth(analysts.line.checked_sub(1).unwrap()).unwrap(), "[[grant]]");

    assert_eq!((&everybody.to.first, everybody.to.rest.len()), (&Grantee::Everyone, 0));
    assert_eq!(everybody.on.to_string(), "archive.public.orders");
    assert_eq!((&everybody.rows, everybody.masks.len()), (&RowRule::All, 0));
    assert_eq!(owners.on.to_string(), "*.*.*");
    for of_everything in [everybody, owners] {
        assert_eq!(of_everything.allow, BTreeSet::from(Action::ALL));
    }
}

#[test]
fn the_defaults_of_a_user_go_before_those_of_a_role_and_these_before_everybodys() {
    let session = judged("full").unwrap().session;
    let of = |name: &str, roles: &[&str]| {
        let (catalog, schema) = session.defaults_for(&principal(name, roles));
        format!("{catalog}.{schema}")
    };
    assert_eq!(of("bob", &[]), "sales.raw");
    assert_eq!(of("bob", &["alice", "Analyst"]), "sales.raw", "names of users and of roles are apart");
    assert_eq!(of("bob", &["analyst"]), "archive.public");
    assert_eq!(of("bob", &["big jobs"]), "archive.raw", "what a role does not say is as for everybody");
    assert_eq!(of("bob", &["big jobs", "writer", "analyst"]), "archive.public", "the first by alphabet");
    assert_eq!(of("alice", &["analyst"]), "sales.public", "what a user does not say is as for everybody");
    let homes = session.homes().collect::<BTreeSet<_>>();
    assert_eq!(
        homes,
        BTreeSet::from([("sales", "raw"), ("archive", "public"), ("archive", "raw"), ("sales", "public")])
    );

    let table = "[catalog.zoo.public.t]\nlocation = \"files/orders\"\nformat = \"csv\"\n";
    let session = with_minimal(&format!("[session.role.x]\ndefault_schema = \"s\"\n{table}")).unwrap().session;
    assert_eq!(session.defaults_for(&principal("bob", &["x"])), ("zoo", "s"), "the first configured catalog");
}

#[test]
fn the_first_configured_catalog_is_the_default_one() {
    let tables = ["zoo", "ark"]
        .map(|catalog| format!("[catalog.{catalog}.public.t]\nlocation = \"files/orders\"\nformat = \"csv\"\n"));
    let config = with_minimal(&tables.concat()).unwrap();
    assert_eq!(config.session.default_catalog, "zoo");
}

#[test]
fn an_idle_time_that_was_not_chosen_follows_a_short_lifetime() {
    let session = with_minimal("[session]\nlifetime = \"5m\"\n").unwrap().session;
    assert_eq!(session.idle, Duration::from_secs(300));
}

#[test]
fn plaintext_is_for_this_machine() {
    let on = |address: &str| {
        let minimal = fs::read_to_string(tests_dir().join("config/plaintext-off-loopback.toml")).unwrap();
        parse_here(&minimal.replace("0.0.0.0", address))
    };
    for address in ["127.0.0.1", "127.8.9.10", "[::1]", "[::ffff:127.0.0.1]"] {
        assert!(matches!(on(address).unwrap().server.transport, Transport::DangerPlaintext), "{address}");
    }
    for address in ["0.0.0.0", "10.0.0.1", "[::]", "[::ffff:10.0.0.1]", "[fe80::1]"] {
        let errors = on(address).unwrap_err();
        let kinds = errors.iter().map(LoadError::kind).collect::<Vec<_>>();
        assert!(matches!(kinds.as_slice(), [Problem::DangerPlaintextReachable { .. }]), "{address}");
    }
}

#[test]
fn a_configuration_that_is_not_there_is_one_finding() {
    let errors = Config::load(Path::new("no-such-folder/portcullis.toml")).unwrap_err();
    assert_eq!(errors.to_string(), "no-such-folder/portcullis.toml: cannot read the configuration: no such file");
    let errors = Config::load(&tests_dir()).unwrap_err();
    assert!(errors.to_string().ends_with(": cannot read the configuration: it is a folder"));
}

#[test]
fn findings_name_file_key_and_line() {
    let errors = judged("tls-file-missing").unwrap_err();
    let finding = errors.iter().next().unwrap();
    assert_eq!(finding.file(), tests_dir().join("config/tls-file-missing.toml"));
    assert_eq!((finding.key(), finding.line()), ("server.tls.cert", 7));
    assert!(matches!(finding.kind(), Problem::CannotRead { .. }));
}

#[test]
fn no_secret_is_printed() {
    let good = judged("full").unwrap();
    assert!(!format!("{good:?}").contains("AAECAwQF"));
    let leaks = ["correct", "horse", "AAECAwQF"];
    for name in stems(&tests_dir().join("expect/config"), "txt") {
        let text = fs::read_to_string(tests_dir().join(format!("expect/config/{name}.txt"))).unwrap();
        assert!(leaks.iter().all(|leak| !text.contains(leak)), "{name}");
    }
}

#[test]
fn a_finding_stays_on_its_line() {
    let errors = with_minimal("[log]\nlevel = \"a\\nb\\u001b[2J\\u202e\"\n").unwrap_err();
    let text = errors.to_string();
    assert!(text.contains("`a\\nb\\u{1b}[2J\\u{202e}`"), "{text}");
    assert!(!text.chars().any(char::is_control));
}

#[cfg(unix)]
#[test]
fn a_secret_file_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = TestFolder::new("secret-file");
    let key = folder.0.join("seal.key");
    fs::write(&key, format!("{KEY}\n")).unwrap();
    let text = format!("{}[session]\nkeys = [{{ file = \"seal.key\" }}]\n", minimal().replace("files/", &in_files()));
    let read_with = |mode| {
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        Config::parse(&text, &folder.0.join("portcullis.toml"))
    };

    for mode in [0o600, 0o400] {
        let SealKeys::Given(keys) = read_with(mode).unwrap().session.keys else { panic!("a key was given") };
        assert_eq!(keys.first.expose().len(), 32);
    }
    for mode in [0o640, 0o604, 0o660, 0o644, 0o610] {
        let errors = read_with(mode).unwrap_err().to_string();
        assert!(errors.contains("session.keys[0]: `seal.key` can be read by its group or by everyone"), "{errors}");
    }
}

#[test]
fn a_folder_above_is_resolved_before_it_gets_into_a_url() {
    let path = tests_dir().join("config/files/../portcullis.toml");
    let text = format!("{}[[location]]\nprefix = \"scratch\"\nto = [\"*\"]\nallow = [\"read\"]\n", minimal());
    let config = Config::parse(&text, &path).unwrap();
    assert!(!config.locations.first().unwrap().prefix.as_str().contains(".."));
}

#[test]
fn a_damaged_file_is_never_refused_without_a_finding() {
    let path = tests_dir().join("config/full.toml");
    let text = fs::read_to_string(&path).unwrap();
    let key = |_: &str| Ok(KEY.to_owned());
    let mut refused = 0_usize;
    for (at, damaged) in text.char_indices().flat_map(|(at, _)| ["", "["].map(|with| (at, with))) {
        let mut damaged_text = text.clone();
        damaged_text.replace_range(at..=at, damaged);
        if let Err(errors) = file::parse_with(&damaged_text, &path, &key) {
            assert!(errors.iter().next().is_some(), "byte {at} replaced with `{damaged}`");
            refused = refused.saturating_add(1);
        }
    }
    assert!(refused > text.len() / 2, "most damage is noticed");
}

/// What `Config::load` would say, with one variable in the environment.
fn judged(name: &str) -> Result<Config, LoadErrors> {
    let path = tests_dir().join(format!("config/{name}.toml"));
    let text = fs::read_to_string(&path).unwrap();
    file::parse_with(&text, &path, &|name| match name {
        "PORTCULLIS_TEST_KEY" => Ok("AgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4fICE=".to_owned()),
        _ => Err(VarError::NotPresent),
    })
}

fn principal(name: &str, roles: &[&str]) -> Principal {
    Principal::assertion(Assertion {
        name: name.to_owned(),
        scheme: "test",
        authority: "test".to_owned(),
        subject: name.to_owned(),
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        attributes: BTreeMap::new(),
        expires: Expiry::Never,
        credential_id: "test".to_owned(),
    })
    .unwrap()
}

fn with_minimal(more: &str) -> Result<Config, LoadErrors> {
    parse_here(&format!("{}{more}", minimal()))
}

fn parse_here(text: &str) -> Result<Config, LoadErrors> {
    Config::parse(text, &tests_dir().join("config/portcullis.toml"))
}

fn minimal() -> String {
    fs::read_to_string(tests_dir().join("config/minimal.toml")).unwrap()
}

fn in_files() -> String {
    format!("{}/", tests_dir().join("config/files").display())
}

fn tests_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn stems(folder: &Path, extension: &str) -> BTreeSet<String> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let wanted = paths.filter(|path| path.extension().is_some_and(|found| found == extension));
    wanted.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

/// A folder that goes away with the test.
#[derive(Debug)]
struct TestFolder(PathBuf);

impl TestFolder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("portcullis-config-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        // A folder that stays behind harms nobody.
        drop(fs::remove_dir_all(&self.0));
    }
}

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
