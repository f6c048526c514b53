//! A gate with an embedder's own scheme: user and password, one pair a line of a file, before an embedded cluster.
//!
//! `basic_gate CONFIGURATION PAIRS`. Takes tables, certificate and sessions from the configuration and its chain from
//! here. The client tests sign in by it as JDBC and ADBC do with a user and a password. Pairs in plain text are for
//! trying out only.

use std::error::Error;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use portcullis::audit::Audit;
use portcullis::backend::ballista::embedded::{Embedded, EmbeddedConfig};
use portcullis::config::{Config, Transport};
use portcullis::gate::chain::Chain;
use portcullis::gate::session::Sharing;
use portcullis::seal::Sealer;
use portcullis::server::{Catalogs, Server};
use portcullis::tls::{MinVersion, TlsIdentity};
use portcullis_auth::{
    Assertion, Attempt, Authenticator, BoxFuture, Cost, Credential, Expiry, Principal, Rejection, Secret, Standing,
    SystemClock, Verdict,
};

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

    // The embedded scheduler plans by recursion.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().thread_stack_size(32 * 1024 * 1024).build()?;
    runtime.block_on(async {
        let cluster = Embedded::start(&EmbeddedConfig {
            executors: NonZeroUsize::MIN,
            vcores: NonZeroUsize::MIN,
            work_dir: std::env::temp_dir(),
            executor_memory: NonZeroUsize::new(1 << 30).ok_or("no memory")?,
            result_ttl: Duration::from_secs(900),
        })
        .await?;
        let gate = Server {
            listen: config.server.listen,
            transport: portcullis::listen::Transport::Tls(identity),
            chain: Chain::new(Arc::new(Pairs(pairs))),
            clock: Arc::new(SystemClock),
            sealer: Sealer::random()?,
            backend: Arc::new(cluster.backend()),
            catalogs: Catalogs::Configured(config.tables),
            session: config.session,
            limits: config.limits,
            locations: config.locations,
            // The sealing key is this process's own.
            sharing: Sharing::Alone,
            trusted_proxies: config.server.trusted_proxies,
            audit: Audit::off(),
        }
        .start()
        .await?;
        std::io::Write::write_all(
            &mut std::io::stdout(),
            format!("listening address={}\n", gate.address()).as_bytes(),
        )?;
        tokio::signal::ctrl_c().await?;
        gate.drain(Duration::from_secs(5)).await;
        cluster.stop().await;
        Ok(())
    })
}
