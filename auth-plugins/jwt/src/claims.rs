//! From verified claims to a principal: audience, time, what is required, and who it is.
//!
//! Every check is made here and none is left to a library, whose defaults are not a policy. A claim of an unexpected
//! shape refuses the token: nothing is skipped, converted or applied in part.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portcullis_auth::{Assertion, Attempt, Expiry, Principal};

use crate::config::{IssuerConfig, Roles};
use crate::fault::Fault;
use crate::json::{Json, Number, Object};
use crate::path::ClaimPath;
use crate::scheme::{SCHEME, TokenHash};
use crate::token::Verified;

/// What a token that was verified and judged stands for.
#[derive(Clone)]
pub(crate) struct Judged {
    pub(crate) principal: Principal,
    pub(crate) binding: Binding,
    /// Before this time the token does not count yet, leeway included.
    pub(crate) starts: SystemTime,
}

/// Judges verified claims by what is configured for their issuer.
pub(crate) fn judge(
    verified: &Verified,
    token: &TokenHash,
    config: &IssuerConfig,
    attempt: &Attempt<'_>,
) -> Result<Judged, Fault> {
    let claims = verified.claims();
    audience(claims, &config.audience)?;
    let (starts, ends) = period(claims, config, attempt.now)?;
    for (path, expected) in &config.required {
        if !path.find(claims).is_some_and(|claim| says(path, claim, expected)) {
            return Err(Fault::invalid(format!("the claim `{path}` does not say what is required")));
        }
    }
    let binding = Binding::read(claims)?;
    binding.check(attempt)?;
    let principal = principal(claims, token, config, ends)?;
    Ok(Judged { principal, binding, starts })
}

/// What the bearer of a token must prove besides having it (RFC 8705).
#[derive(Clone, Copy)]
pub(crate) enum Binding {
    /// That they hold the key of this certificate: its SHA-256.
    Certificate([u8; SHA256_OUTPUT_LEN]),
    /// Nothing.
    None,
}

impl Binding {
    pub(crate) fn check(&self, attempt: &Attempt<'_>) -> Result<(), Fault> {
        let Self::Certificate(expected) = self else { return Ok(()) };
        let Some(leaf) = attempt.peer_certs.first() else {
            return Err(Fault::invalid("the token is bound to a certificate and none was presented"));
        };
        if digest(&SHA256, leaf).as_ref() == expected {
            return Ok(());
        }
        Err(Fault::invalid("the token is bound to another certificate"))
    }

    fn read(claims: &Object) -> Result<Self, Fault> {
        let Some(confirmation) = claims.get("cnf") else { return Ok(Self::None) };
        // A second member is a second condition, which nobody here would check.
        let only = confirmation.as_object().filter(|members| members.len() == 1);
        let hash = only.and_then(|members| members.get("x5t#S256")).and_then(Json::as_str);
        let hash = hash.and_then(|text| URL_SAFE_NO_PAD.decode(text).ok()).and_then(|hash| hash.try_into().ok());
        hash.map(Self::Certificate).ok_or_else(|| Fault::invalid("the token is bound in a way that is not supported"))
    }
}

fn audience(claims: &Object, ours: &[String]) -> Result<(), Fault> {
    let malformed = || Fault::malformed("`aud` is neither a string nor a short list of strings");
    let theirs = match claims.get("aud") {
        Some(Json::String(one)) => vec![one.as_str()],
        Some(Json::Array(several)) if several.len() <= MAX_AUDIENCES => {
            several.iter().map(Json::as_str).collect::<Option<_>>().ok_or_else(malformed)?
        }
        None | Some(Json::Array(_) | Json::Bool(_) | Json::Null | Json::Number(_) | Json::Object(_)) => {
            return Err(malformed());
        }
    };
    if theirs.into_iter().any(|audience| ours.iter().any(|own| own == audience)) {
        return Ok(());
    }
    Err(Fault::invalid("the token is meant for somebody else"))
}

/// From when to when the token counts, leeway included; an error if that is not now.
fn period(claims: &Object, config: &IssuerConfig, now: SystemTime) -> Result<(SystemTime, SystemTime), Fault> {
    let expires = date(claims, "exp")?.ok_or_else(|| Fault::malformed("`exp` is missing"))?;
    let ends = expires.checked_add(config.leeway).ok_or_else(|| Fault::malformed("`exp` is not a date"))?;
    if ends <= now {
        return Err(Fault::invalid("the token has expired"));
    }

    let issued = date(claims, "iat")?;
    let mut starts = UNIX_EPOCH;
    for (begins, problem) in
        [(date(claims, "nbf")?, "the token is not valid yet"), (issued, "the token was issued in the future")]
    {
        // A time before 1970 is none that a token could name.
        let begins = begins.and_then(|begins| begins.checked_sub(config.leeway)).unwrap_or(UNIX_EPOCH);
        if begins > now {
            return Err(Fault::invalid(problem));
        }
        starts = starts.max(begins);
    }

    let lifetime = match issued {
        Some(issued) => {
            expires.duration_since(issued).map_err(|_| Fault::invalid("the token ends before it begins"))?
        }
        // Without a time of issue only what is left can be judged; a clock ahead of ours makes it look longer.
        None => expires.duration_since(now).unwrap_or_default().saturating_sub(config.leeway),
    };
    if lifetime > config.max_lifetime {
        return Err(Fault::invalid("the token lives too long"));
    }
    Ok((starts, ends))
}

/// A NumericDate: seconds since 1970, with or without a fraction, up to the year 9999.
fn date(claims: &Object, name: &'static str) -> Result<Option<SystemTime>, Fault> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let seconds = match value {
        Json::Number(Number::Float(seconds)) => Duration::try_from_secs_f64(*seconds).ok(),
        Json::Number(Number::Whole(seconds)) => Some(Duration::from_secs(*seconds)),
        Json::Number(Number::Negative(_))
        | Json::Array(_)
        | Json::Bool(_)
        | Json::Null
        | Json::Object(_)
        | Json::String(_) => None,
    };
    let date = seconds.filter(|seconds| *seconds <= YEAR_9999).and_then(|seconds| UNIX_EPOCH.checked_add(seconds));
    date.map(Some).ok_or_else(|| Fault::malformed(format!("`{name}` is not a date")))
}

/// Whether a claim is the expected text, or a list that holds it.
fn says(path: &ClaimPath, claim: &Json, expected: &str) -> bool {
    match claim {
        Json::Array(values) => values.iter().any(|value| value.as_str() == Some(expected)),
        Json::Bool(value) => expected == if *value { "true" } else { "false" },
        // Scopes are words in one string (RFC 8693); anywhere else a space is part of the text.
        Json::String(text) if matches!(path.as_str(), "scope" | "scp") => text.split(' ').any(|word| word == expected),
        Json::String(text) => text == expected,
        Json::Null | Json::Number(_) | Json::Object(_) => false,
    }
}

fn principal(claims: &Object, token: &TokenHash, config: &IssuerConfig, ends: SystemTime) -> Result<Principal, Fault> {
    let text = |json: &Json| json.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let name = config.principal_claim.find(claims).and_then(text);
    let name = name.ok_or_else(|| Fault::invalid("the principal claim is missing, empty or not a string"))?;
    let subject = match claims.get("sub") {
        Some(subject) => text(subject).ok_or_else(|| Fault::malformed("`sub` is empty or not a string"))?,
        None => name.clone(),
    };
    let credential_id = match claims.get("jti") {
        Some(Json::String(id)) if is_token_id(id) => id.clone(),
        None | Some(Json::String(_)) => token.id(),
        Some(Json::Array(_) | Json::Bool(_) | Json::Null | Json::Number(_) | Json::Object(_)) => {
            return Err(Fault::malformed("`jti` is not a string"));
        }
    };
    let assertion = Assertion {
        name,
        scheme: SCHEME,
        authority: config.issuer.clone(),
        subject,
        roles: roles(claims, &config.roles_claim)?,
        attributes: attributes(claims, &config.attributes)?,
        expires: Expiry::At(ends),
        credential_id,
    };
    // It names the field and the kind of problem, never the value.
    Principal::assertion(assertion).map_err(|invalid| Fault::invalid(format!("not usable as an identity: {invalid}")))
}

fn roles(claims: &Object, roles: &Roles) -> Result<BTreeSet<String>, Fault> {
    let Roles::Claim(path) = roles else { return Ok(BTreeSet::new()) };
    let wrong = || Fault::invalid(format!("the claim `{path}` is neither a string nor a list of strings"));
    match path.find(claims) {
        None => Ok(BTreeSet::new()),
        Some(Json::String(role)) => Ok([role.clone()].into()),
        Some(Json::Array(roles)) => {
            roles.iter().map(|role| role.as_str().map(str::to_owned)).collect::<Option<_>>().ok_or_else(wrong)
        }
        Some(Json::Bool(_) | Json::Null | Json::Number(_) | Json::Object(_)) => Err(wrong()),
    }
}

fn attributes(claims: &Object, paths: &BTreeMap<String, ClaimPath>) -> Result<BTreeMap<String, String>, Fault> {
    let mut attributes = BTreeMap::new();
    for (name, path) in paths {
        let value = match path.find(claims) {
            None => continue,
            Some(Json::Bool(value)) => value.to_string(),
            Some(Json::Number(Number::Negative(value))) => value.to_string(),
            Some(Json::Number(Number::Whole(value))) => value.to_string(),
            Some(Json::String(value)) => value.clone(),
            Some(Json::Array(_) | Json::Null | Json::Number(Number::Float(_)) | Json::Object(_)) => {
                return Err(Fault::invalid(format!("the claim `{path}` is not a plain value")));
            }
        };
        attributes.insert(name.clone(), value);
    }
    Ok(attributes)
}

/// Whether a `jti` can be shown and listed as it is.
fn is_token_id(id: &str) -> bool {
    (1..=MAX_TOKEN_ID).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic())
}

const MAX_AUDIENCES: usize = 16;
const MAX_TOKEN_ID: usize = 256;
const YEAR_9999: Duration = Duration::from_secs(253_402_300_799);

#[cfg(test)]
mod tests;
