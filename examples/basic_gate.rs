//! A gate with an embedder's own scheme: user and password, one pair a line of a file, before an embedded cluster.
//!
//! `basic_gate CONFIGURATION PAIRS`, until Ctrl-C. Takes tables, certificate and sessions from the configuration and
//! its chain from here. The client tests sign in by it as JDBC and ADBC do with a user and a password. Pairs in plain
//! text are for trying out only.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use portcullis::access::Grants;
use portcullis::config::{Config, Transport};
use portcullis::server::Catalogs;
use portcullis::stores::Stores;
use portcullis::tls::{MinVersion, TlsIdentity};
use portcullis_auth::{
    Assertion, Attempt, Authenticator, BoxFuture, Cost, Credential, Expiry, Principal, Rejection, Secret, Standing,
    Verdict,
};
use process::Door;

#[path = "support/process.rs"]
mod process;

#[derive(Debug)]
struct Pairs(Vec<(String, Secret)>);

impl Pairs {
    fn judge(&self, attempt: &Attempt<'_>) -> Verdict {
        let Credential::Basic(basic) = attempt.credential() else { return Verdict::Abstain };
        let user = basic.user();
        if !self.0.iter().any(|(name, password)| name == user && password.matches(basic.password().expose())) {
            return Verdict::Reject(Rejection::invalid("no such pair"));
        }
        let assertion = Assertion {
            name: user.to_owned(),
            scheme: self.scheme(),
            authority: self.name().to_owned(),
            subject: user.to_owned(),
            roles: Default::default(),
            attributes: Default::default(),
            expires: Expiry::Never,
            credential_id: user.to_owned(),
        };
        match Principal::assertion(assertion) {
            Ok(principal) => Verdict::Admit(principal),
            Err(invalid) => Verdict::Reject(Rejection::invalid(invalid.to_string())),
        }
    }
}

impl Authenticator for Pairs {
    fn scheme(&self) -> &'static str {
        "pairs"
    }

    fn name(&self) -> &str {
        "pairs"
    }

    fn authenticate<'a>(&'a self, attempt: &'a Attempt<'a>) -> BoxFuture<'a, Verdict> {
        Box::pin(std::future::ready(self.judge(attempt)))
    }

    /// Nothing is hashed: a few comparisons.
    fn cost(&self, _attempt: &Attempt<'_>) -> Cost {
        Cost::Cheap
    }

    fn standing(&self, principal: &Principal, _now: SystemTime) -> Standing {
        if self.0.iter().any(|(name, _)| name == principal.name()) { Standing::Good } else { Standing::Revoked }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [configuration, pairs] = arguments.as_slice() else {
        return Err("usage: basic_gate CONFIGURATION PAIRS".into());
    };
    let config = Config::load(Path::new(configuration))?;
    let pairs = std::fs::read_to_string(pairs)?;
    let pairs = pairs.lines().filter_map(|line| line.split_once(':'));
    let pairs = pairs.map(|(user, password)| (user.to_owned(), Secret::new(password))).collect();
    let Transport::Tls(files) = &config.server.transport else { return Err("TLS is needed for passwords".into()) };
    let identity = TlsIdentity::load(&files.cert, &files.key, MinVersion::Tls12)?;

    let door = Door {
        listen: config.server.listen,
        transport: portcullis::listen::Transport::Tls(identity),
        session: config.session,
        limits: config.limits,
        authorizer: Arc::new(Grants::new(config.grants, config.locations)),
        trusted_proxies: config.server.trusted_proxies,
    };
    let end = async { tokio::signal::ctrl_c().await };
    process::serve(
        door,
        Pairs(pairs),
        |_| Catalogs::Configured { tables: config.tables, stores: Arc::new(Stores::local_only()) },
        end,
    )
}
