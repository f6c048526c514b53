//! An embedder's scheme: a proxy has signed the user in, and says so in a signed header of each call.
//!
//! `custom_authenticator KEY_FILE`. The header is `x-signed-user: NAME;UNTIL;SIGNATURE`: seconds since 1970, and the
//! HMAC-SHA256 of `NAME;UNTIL` in base64url, compared in constant time. Until then it can be repeated.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use portcullis::server::Catalogs;
use portcullis_auth::{Assertion, Attempt, Authenticator, BoxFuture, Cost, Credential, Expiry};
use portcullis_auth::{Principal, Rejection, Standing, Verdict};

#[path = "support/gate.rs"]
mod gate;

#[derive(Debug)]
struct SignedUser(hmac::Key);

impl Authenticator for SignedUser {
    fn scheme(&self) -> &'static str {
        "signed-user"
    }
    fn name(&self) -> &str {
        "proxy"
    }
    fn authenticate<'a>(&'a self, attempt: &'a Attempt<'a>) -> BoxFuture<'a, Verdict> {
        let mut said = attempt.headers.get_all("x-signed-user").iter();
        let refused = || Verdict::Reject(Rejection::invalid("not signed by the proxy, or too old"));
        Box::pin(std::future::ready(match (said.next(), said.next(), attempt.credential()) {
            (None, _, _) => Verdict::Abstain,
            (Some(it), None, Credential::Absent) => judge(self, it, attempt).map_or_else(refused, Verdict::Admit),
            // The gate looks for a second credential in `authorization`; who reads another header has to do it.
            (Some(_), _, _) => Verdict::Reject(Rejection::malformed("more than one credential")),
        }))
    }
    fn cost(&self, _: &Attempt<'_>) -> Cost {
        Cost::Cheap
    }
    fn standing(&self, who: &Principal, now: SystemTime) -> Standing {
        let ours = (who.scheme(), who.key().authority()) == (self.scheme(), self.name());
        if ours && !who.expires().passed(now) { Standing::Good } else { Standing::Revoked }
    }
}

fn judge(proxy: &SignedUser, said: &http::HeaderValue, attempt: &Attempt<'_>) -> Option<Principal> {
    let (said, signature) = said.to_str().ok()?.rsplit_once(';')?;
    hmac::verify(&proxy.0, said.as_bytes(), &BASE64_URL_SAFE_NO_PAD.decode(signature).ok()?).ok()?;
    let (name, credential_id) = said.split_once(';').map(|(name, until)| (name.to_owned(), until.to_owned()))?;
    let expires = Expiry::At(UNIX_EPOCH.checked_add(Duration::from_secs(credential_id.parse().ok()?))?);
    let (scheme, authority, subject, roles) = (proxy.scheme(), proxy.name().to_owned(), name.clone(), [].into());
    let who = Assertion { name, scheme, authority, subject, roles, attributes: [].into(), expires, credential_id };
    Principal::assertion(who).ok().filter(|_| !expires.passed(attempt.now))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let key = std::fs::read(std::env::args().nth(1).ok_or("usage: custom_authenticator KEY_FILE")?)?;
    gate::serve(SignedUser(hmac::Key::new(hmac::HMAC_SHA256, &key)), |_| Catalogs::nothing())
}
