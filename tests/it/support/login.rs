//! Credentials: API keys of the shipped scheme, and a scheme of the test's own for `Basic`.
//!
//! The second one is what an embedder would write; with it handshakes make sessions.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use portcullis_auth::{
    Assertion, Attempt, Authenticator, BoxFuture, Clock, Cost, Credential, Expiry, Principal, Rejection, Standing,
    SystemClock, Verdict,
};
use portcullis_auth_api_key::{KeyFile, generate};

/// What a client shows on every call.
#[derive(Clone, Debug)]
pub(crate) enum Login {
    /// User and password.
    Basic(String, String),
    /// A token.
    Bearer(String),
    /// `authorization` headers, as they are.
    Headers(Vec<Vec<u8>>),
    /// Nothing.
    Nothing,
}

impl Login {
    /// The pair that `user` has.
    pub(crate) fn pair(user: &str) -> Self {
        let (user, password) = PAIRS.iter().find(|(name, _)| *name == user).unwrap();
        Self::Basic((*user).to_owned(), (*password).to_owned())
    }

    /// The API key that `user` has.
    pub(crate) fn key(user: &str) -> Self {
        Self::Bearer(KEYS.of(user).to_owned())
    }

    pub(crate) fn headers(&self) -> Vec<HeaderValue> {
        match self {
            Self::Basic(user, password) => {
                let encoded = STANDARD.encode(format!("{user}:{password}"));
                vec![HeaderValue::try_from(format!("Basic {encoded}")).unwrap()]
            }
            Self::Bearer(token) => vec![HeaderValue::try_from(format!("Bearer {token}")).unwrap()],
            Self::Headers(values) => values.iter().map(|value| HeaderValue::from_bytes(value).unwrap()).collect(),
            Self::Nothing => Vec::new(),
        }
    }
}

/// The API keys of this run.
pub(crate) struct Keys(Vec<(&'static str, String, String)>);

pub(crate) static KEYS: LazyLock<Keys> = LazyLock::new(|| {
    let yesterday = SystemClock.now() - Duration::from_secs(24 * 60 * 60);
    let users = [("alice", Expiry::Never), ("bob", Expiry::Never), ("expired", Expiry::At(yesterday))];
    let made = users.into_iter().map(|(user, expires)| {
        let new = generate(user, &[user], expires).unwrap();
        (user, String::from_utf8(new.key.expose().to_vec()).unwrap(), new.record)
    });
    Keys(made.collect())
});

impl Keys {
    pub(crate) fn of(&self, user: &str) -> &str {
        self.0.iter().find(|(name, _, _)| *name == user).map(|(_, key, _)| key).unwrap()
    }

    pub(crate) fn file(&self) -> KeyFile {
        KeyFile::parse(&self.text()).unwrap()
    }

    /// What `keys.toml` has.
    pub(crate) fn text(&self) -> String {
        let records: Vec<_> = self.0.iter().map(|(_, _, record)| record.as_str()).collect();
        records.join("\n")
    }
}

/// A scheme as an embedder writes one: `Basic` with fixed pairs, each of which can be revoked.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    revoked: Mutex<HashSet<String>>,
}

impl Pairs {
    /// From here on `user` does not exist.
    pub(crate) fn revoke(&self, user: &str) {
        self.revoked.lock().unwrap().insert(user.to_owned());
    }

    fn stands(&self, user: &str) -> Standing {
        if self.revoked.lock().unwrap().contains(user) { Standing::Revoked } else { Standing::Good }
    }

    fn judge(&self, attempt: &Attempt<'_>) -> Verdict {
        let Credential::Basic(basic) = attempt.credential() else { return Verdict::Abstain };
        let fits =
            |(user, password): &(&str, &str)| *user == basic.user() && basic.password().matches(password.as_bytes());
        let known = PAIRS.iter().chain([&LATE]).any(fits);
        match self.stands(basic.user()) {
            Standing::Good if known => Verdict::Admit(principal(basic.user())),
            Standing::Good | Standing::Revoked => Verdict::Reject(Rejection::invalid("no such pair")),
        }
    }
}

impl Authenticator for Pairs {
    fn scheme(&self) -> &'static str {
        "test-basic"
    }

    fn name(&self) -> &str {
        "test-basic"
    }

    fn authenticate<'a>(&'a self, attempt: &'a Attempt<'a>) -> BoxFuture<'a, Verdict> {
        Box::pin(std::future::ready(self.judge(attempt)))
    }

    fn cost(&self, _attempt: &Attempt<'_>) -> Cost {
        Cost::Cheap
    }

    fn standing(&self, principal: &Principal, _now: SystemTime) -> Standing {
        self.stands(principal.name())
    }
}

fn principal(user: &str) -> Principal {
    Principal::assertion(Assertion {
        name: user.to_owned(),
        scheme: "test-basic",
        authority: "test-basic".to_owned(),
        subject: user.to_owned(),
        roles: BTreeSet::new(),
        attributes: BTreeMap::new(),
        expires: if user == LATE.0 { Expiry::At(SystemTime::UNIX_EPOCH) } else { Expiry::Never },
        credential_id: user.to_owned(),
    })
    .unwrap()
}

/// Whom the scheme admits although their time is over: the gate does not.
pub(crate) const LATE: (&str, &str) = ("late", "too-late");

/// A password of every kind that clients have trouble with. Their lengths need two, one and no `=` of padding.
pub(crate) const PAIRS: &[(&str, &str)] = &[
    ("alice", "open:sesame:1"),
    ("bob", "correct-horse"),
    ("carol", "battery-stapl"),
    ("dave", "päßwörd"),
    ("erin", "staple-and-glue"),
    ("frank", "glue-and-staple"),
    ("nobody", ""),
];
