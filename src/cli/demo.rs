//! `demo`: a gate to try, from nothing but this program.
//!
//! Makes tables, a certificate, a token and a configuration in one directory, then serves that configuration. There is
//! no user, no password and no key that is the same twice.

mod tables;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use portcullis_auth::Expiry;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use super::serve::serve;
use super::{DemoArguments, Ended, on_runtime, say};
use crate::config::Config;
use crate::logging;

pub(super) fn run(arguments: &DemoArguments) -> Result<(), Ended> {
    if !(arguments.scale.is_finite() && arguments.scale > 0.0) {
        return Err(Ended::Configuration("--scale must be more than 0".to_owned()));
    }
    let dir = std::path::absolute(&arguments.dir).map_err(|error| Ended::Configuration(error.to_string()))?;
    private_directory(&dir)?;
    let tables = tables::make(&dir.join("tpch"), arguments.scale)?;
    certificate(&dir)?;
    let token = token(&dir)?;
    let file = dir.join("portcullis.toml");
    write(&file, &configuration(arguments, &tables), Mode::Secret)?;

    let config = Config::load(&file).map_err(|errors| Ended::Internal(errors.to_string()))?;
    logging::start(&config.log).map_err(Ended::Internal)?;
    on_runtime(serve(&file, config, |gate| say(welcome(&dir, &token, &format!("grpc+tls://{}", gate.address())))))
}

fn configuration(arguments: &DemoArguments, tables: &[(&str, PathBuf)]) -> String {
    let mut text = format!(
        "# Made by `portcullis demo`; start the same setup with `portcullis serve --config` and this file.\n\
         [server]\nlisten = \"{}\"\ndrain = \"5s\"\n\n\
         [server.tls]\ncert = \"server.pem\"\nkey = \"server.key\"\n\n\
         [cluster]\nmode = \"embedded\"\nwork_dir = \"work\"\n\n\
         [[auth]]\nscheme = \"api-key\"\nkeys = \"keys.toml\"\n\n\
         [session]\ndefault_catalog = \"tpch\"\ndefault_schema = \"public\"\n\n\
         [storage]\nmanaged = \"tables\"\nviews = \"session\"\n\n\
         [[grant]]\nto = [\"user:demo\"]\non = \"tpch.public.*\"\nallow = [\"select\", \"create\"]\n\n\
         [log]\nlevel = \"warn\"\n",
        arguments.listen
    );
    for (name, location) in tables {
        text += &format!(
            "\n[catalog.tpch.public.{name}]\nlocation = \"{}\"\nformat = \"parquet\"\n",
            toml_escaped(&location.display().to_string())
        );
    }
    text
}

fn toml_escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// A fresh CA and a server certificate for this machine's own names.
fn certificate(dir: &Path) -> Result<(), Ended> {
    let failed = |error: rcgen::Error| Ended::Internal(format!("the certificate cannot be made: {error}"));
    let ca_key = KeyPair::generate().map_err(failed)?;
    let mut ca = CertificateParams::new(Vec::new()).map_err(failed)?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    ca.distinguished_name.push(DnType::CommonName, "Portcullis demo CA");
    let ca_certificate = ca.self_signed(&ca_key).map_err(failed)?;
    // The CA's key ends with this function: nothing else can be signed with it.
    let issuer = Issuer::new(ca, ca_key);

    let key = KeyPair::generate().map_err(failed)?;
    let mut server = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).map_err(failed)?;
    server.distinguished_name.push(DnType::CommonName, "Portcullis demo");
    server.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = server.signed_by(&key, &issuer).map_err(failed)?;

    write(&dir.join("ca.pem"), &ca_certificate.pem(), Mode::Public)?;
    write(&dir.join("server.pem"), &certificate.pem(), Mode::Public)?;
    write(&dir.join("server.key"), &key.serialize_pem(), Mode::Secret)
}

fn token(dir: &Path) -> Result<String, Ended> {
    let new = portcullis_auth_api_key::generate("demo", &["demo"], Expiry::Never)
        .map_err(|error| Ended::Internal(error.to_string()))?;
    let token = String::from_utf8(new.key.expose().to_vec()).map_err(|error| Ended::Internal(error.to_string()))?;
    write(&dir.join("keys.toml"), &new.record, Mode::Secret)?;
    write(&dir.join("token"), &format!("{token}\n"), Mode::Secret)?;
    Ok(token)
}

fn welcome(dir: &Path, token: &str, url: &str) -> String {
    let path = |name: &str| dir.join(name).display().to_string();
    let (token_file, ca, config) = (path("token"), path("ca.pem"), path("portcullis.toml"));
    let endpoint = url.replace("grpc+tls://", "https://");
    let address = url.trim_start_matches("grpc+tls://");
    format!(
        r#"Portcullis listens on {url}
token {token}
(also in {token_file}; start the same setup again with: portcullis serve --config {config})

ADBC, in Python (pip install adbc-driver-flightsql pyarrow):

from adbc_driver_flightsql import dbapi
token, ca = open("{token_file}").read().strip(), open("{ca}").read()
db_kwargs = {{"adbc.flight.sql.authorization_header": f"Bearer {{token}}", "adbc.flight.sql.client_option.tls_root_certs": ca}}
with dbapi.connect("{url}", db_kwargs=db_kwargs, autocommit=True) as connection, connection.cursor() as cursor:
    cursor.execute("SELECT n_name, count(*) FROM nation JOIN customer ON n_nationkey = c_nationkey GROUP BY n_name ORDER BY 2 DESC LIMIT 5")
    print(cursor.fetch_arrow_table())

JDBC, in Java (org.apache.arrow:flight-sql-jdbc-driver, --add-opens=java.base/java.nio=ALL-UNNAMED), with the token from above:

jdbc:arrow-flight-sql://{address}/?useEncryption=true&tlsRootCerts={ca}&token=TOKEN

Rust, in an async function (arrow-flight 59 with feature flight-sql, tonic 0.14 with feature tls-aws-lc, futures):

let tls = tonic::transport::ClientTlsConfig::new().ca_certificate(tonic::transport::Certificate::from_pem(std::fs::read("{ca}")?));
let channel = tonic::transport::Endpoint::from_static("{endpoint}").tls_config(tls)?.connect().await?;
let mut client = arrow_flight::sql::client::FlightSqlServiceClient::new(channel);
client.set_token(std::fs::read_to_string("{token_file}")?.trim().to_owned());
let info = client.execute("SELECT n_name FROM nation ORDER BY 1".to_owned(), None).await?;
let ticket = info.endpoint[0].ticket.clone().ok_or("no ticket")?;
let batches: Vec<_> = futures::TryStreamExt::try_collect(client.do_get(ticket).await?).await?;
println!("{{batches:?}}");

Stop with Ctrl-C."#
    )
}

enum Mode {
    Public,
    Secret,
}

/// Written beside and renamed, with its mode from the first byte on.
fn write(path: &Path, text: &str, mode: Mode) -> Result<(), Ended> {
    let failed = |error: std::io::Error| Ended::Configuration(format!("cannot write `{}`: {error}", path.display()));
    let beside = path.with_extension("new");
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(
        &mut options,
        match mode {
            Mode::Public => 0o644,
            Mode::Secret => 0o600,
        },
    );
    // A file left from an earlier start would keep its own mode.
    drop(fs::remove_file(&beside));
    let mut file = options.open(&beside).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    drop(file);
    fs::rename(&beside, path).map_err(failed)
}

fn private_directory(dir: &Path) -> Result<(), Ended> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir).map_err(|error| Ended::Configuration(format!("cannot make `{}`: {error}", dir.display())))
}
