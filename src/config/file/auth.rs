//! `[[auth]]`: each scheme's keys, and what no chain may be.
//!
//! An entry that could never be asked, or never be answered, is a finding here and not a surprise later. Must not look
//! into the files that an entry names.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Surroundings;
use super::parts::{non_empty, unique};
use super::section::{At, Item, Section};
use super::values;
use crate::config::auth::{
    Anonymous, CertificateField, CertificateRule, Certificates, Entry, ExtendedKeyUsage, Http, Issuer, Keys, Scheme,
    TokenUser,
};
use crate::config::error::Problem;
use crate::config::{CertificateRole, ClientAuth, ClientCertificates, NonEmpty, Server, Transport};
use crate::schemes::{self, WrongRule};

/// The chain, each entry with its place. An empty chain cannot be written, only reported.
pub(super) fn chain(root: &mut Section<'_>, around: &Surroundings<'_>) -> Option<NonEmpty<(At, Entry)>> {
    let mut names = Vec::new();
    let entries = root.required_sections("auth", |section| {
        let at = section.at().clone();
        entry(section, around, &mut names).map(|entry| (at, entry))
    });
    let entries = non_empty(entries)?;
    each_can_be_asked(root, &entries);
    Some(entries)
}

/// What the chain and the transport make of each other.
pub(super) fn fits_transport(root: &Section<'_>, at: &At, server: &Server, chain: &NonEmpty<(At, Entry)>) {
    let certificates = chain.iter().find(|(_, entry)| matches!(entry.scheme, Scheme::Mtls(_)));
    let asked = match &server.transport {
        Transport::DangerPlaintext => {
            if !server.listen.ip().to_canonical().is_loopback() {
                stays_here(root, at, &server.listen.to_string(), chain);
            }
            None
        }
        Transport::Tls(files) => match files.clients {
            ClientCertificates::Asked { auth, role, .. } => Some((auth, role)),
            ClientCertificates::NotAsked => None,
        },
    };
    match (asked, certificates) {
        (None, Some((mtls, _))) => {
            root.report(
                mtls,
                values::rule("mtls", "needs `server.tls.client_ca`: clients are asked for no certificate"),
            );
        }
        (Some((_, CertificateRole::Channel)), Some((mtls, _))) => {
            let problem = "is never asked: `server.tls.client_cert` is `channel`, so a certificate is no credential";
            root.report(mtls, values::rule("mtls", problem));
        }
        (Some((_, CertificateRole::Identity)), None) => {
            let problem = "is a credential that no `[[auth]]` entry reads: add `mtls`, or write `channel`";
            root.report(at, values::rule("client_cert", problem));
        }
        (Some((ClientAuth::Required, CertificateRole::Identity)), Some(_)) => {
            // Every request would then bring two credentials.
            for (other, entry) in chain.iter().filter(|(_, entry)| !matches!(entry.scheme, Scheme::Mtls(_))) {
                let problem = "can never be used: every client shows a certificate, and two credentials are refused; \
                               write `client_auth = \"optional\"` or `client_cert = \"channel\"`";
                root.report(other, values::rule(&entry.name, problem));
            }
        }
        (None, None)
        | (Some((_, CertificateRole::Channel)), None)
        | (Some((ClientAuth::Optional, CertificateRole::Identity)), Some(_)) => (),
    }
    for (place, entry) in chain.iter() {
        let Scheme::DangerAnonymous(_) = entry.scheme else { continue };
        if !server.listen.ip().to_canonical().is_loopback() {
            let problem = "lets everybody in who reaches the port: `server.listen` must be a loopback address";
            root.report(place, values::rule("danger-anonymous", problem));
        }
    }
}

/// Two entries that look for the same credential: the second would never be asked.
fn each_can_be_asked(root: &Section<'_>, chain: &NonEmpty<(At, Entry)>) {
    let mut earlier: Vec<(&At, &Entry)> = Vec::new();
    for (at, entry) in chain.iter() {
        let rival = earlier.iter().find(|(_, other)| match (&other.scheme, &entry.scheme) {
            // Each issuer has tokens of its own.
            (Scheme::Jwt(one), Scheme::Jwt(other)) => one.issuer == other.issuer,
            (one, other) => one.word() == other.word(),
        });
        if let Some((first, _)) = rival {
            let given = match &entry.scheme {
                Scheme::Jwt(issuer) => format!("issuer {}", issuer.issuer),
                Scheme::ApiKey(_) | Scheme::DangerAnonymous(_) | Scheme::Mtls(_) | Scheme::Password(_) => {
                    format!("scheme {}", entry.scheme.word())
                }
            };
            root.report(at, Problem::Duplicate { given, first_line: first.line() });
        }
        if let TokenUser::Named(user) = &entry.token_user {
            if let Some((first, _)) = earlier.iter().find(|(_, other)| other.token_user == entry.token_user) {
                root.report(at, Problem::Duplicate { given: format!("token_user {user}"), first_line: first.line() });
            } else if matches!(entry.scheme, Scheme::Jwt(_))
                && earlier.iter().any(|(_, other)| matches!(other.scheme, Scheme::Jwt(_)))
            {
                let problem =
                    "counts in the first `jwt` entry only: one user name stands for the tokens of all issuers";
                root.report(at, values::rule("token_user", problem));
            }
            if earlier.iter().any(|(_, other)| matches!(other.scheme, Scheme::Password(_))) {
                let problem = "stands behind `password`, which claims every user: put this entry in front of it";
                root.report(at, values::rule("token_user", problem));
            }
        }
        earlier.push((at, entry));
    }
}

/// `danger_plaintext` together with a scheme that sends its secret is for this machine only.
fn stays_here(root: &Section<'_>, at: &At, listen: &str, chain: &NonEmpty<(At, Entry)>) {
    let sends_its_secret = chain.iter().find(|(_, entry)| match entry.scheme {
        Scheme::ApiKey(_) | Scheme::Jwt(_) | Scheme::Password(_) => true,
        Scheme::DangerAnonymous(_) | Scheme::Mtls(_) => false,
    });
    if let Some((_, entry)) = sends_its_secret {
        let (scheme, listen) = (entry.name.clone(), listen.to_owned());
        root.report(at, Problem::DangerPlaintextReachable { scheme, listen });
    }
}

#[derive(Clone, Copy)]
enum Word {
    ApiKey,
    DangerAnonymous,
    Jwt,
    Mtls,
    Password,
}

fn entry(section: &mut Section<'_>, around: &Surroundings<'_>, names: &mut Vec<(At, String)>) -> Option<Entry> {
    const WORDS: &[(&str, Word)] = &[
        ("api-key", Word::ApiKey),
        ("jwt", Word::Jwt),
        ("mtls", Word::Mtls),
        ("password", Word::Password),
        ("danger-anonymous", Word::DangerAnonymous),
    ];
    let Some(word) = section.required("scheme", values::word(WORDS)) else {
        // Which keys are known depends on the scheme.
        section.skip_rest();
        return None;
    };
    let named = WORDS.iter().find(|(_, other)| std::mem::discriminant(other) == std::mem::discriminant(&word));
    let default = named.map(|(name, _)| (*name).to_owned()).unwrap_or_default();
    let named_at = section.at().clone();
    let (at, name) = section.optional("name", (named_at, default), |item| Ok((item.at.clone(), values::label(item)?)));
    unique(section, names, &at, &name);
    let scheme = match word {
        Word::ApiKey => section.required("keys", |item| around.readable(item)).map(Scheme::ApiKey),
        Word::DangerAnonymous => Some(Scheme::DangerAnonymous(anonymous(section))),
        Word::Jwt => issuer(section, around).map(|issuer| Scheme::Jwt(Box::new(issuer))),
        Word::Mtls => certificates(section).map(Scheme::Mtls),
        Word::Password => section.required("users", |item| around.readable(item)).map(Scheme::Password),
    };
    let token_user = match word {
        Word::ApiKey | Word::Jwt => section
            .optional("token_user", TokenUser::Refused, |item| Ok(TokenUser::Named(values::text(item)?.to_owned()))),
        Word::DangerAnonymous | Word::Mtls | Word::Password => TokenUser::Refused,
    };
    Some(Entry { name, scheme: scheme?, token_user })
}

fn anonymous(section: &mut Section<'_>) -> Anonymous {
    Anonymous {
        principal: section.optional("principal", "anonymous".to_owned(), |item| Ok(values::text(item)?.to_owned())),
        roles: texts(section, "roles"),
    }
}

fn issuer(section: &mut Section<'_>, around: &Surroundings<'_>) -> Option<Issuer> {
    let http = section.optional("danger_http", Http::Refused, values::switch(Http::DangerLoopback, Http::Refused));
    let reachable = |url: &url::Url| match (url.scheme(), http) {
        ("https", _) => Ok(()),
        ("http", Http::DangerLoopback) if values::is_loopback(url) => Ok(()),
        ("http", Http::DangerLoopback) => Err("must be a loopback address to be fetched without TLS"),
        (_, _) => Err("must be an `https` URL"),
    };
    let name = section.required("issuer", |item| {
        let given = values::text(item)?;
        let url = url::Url::parse(given).map_err(|_| values::rule(given, "is not a URL"))?;
        reachable(&url).map_err(|why| values::rule(given, why))?;
        Ok(given.to_owned())
    });
    let audience = section.required_list("audience", |item| Ok(values::text(item)?.to_owned()));
    let algorithms = section.required_list("algorithms", algorithm);
    let at = section.at().clone();
    let discovery = section.optional("discovery", None, |item| values::switch(Some(item.at.clone()), None)(item));
    let keys = section.take("jwks").map(|item| (item.at.clone(), keys(&item, around, &reachable)));
    let keys = match (discovery, keys) {
        (Some(_), None) => Some(Keys::Discovery),
        (None, Some((_, Ok(keys)))) => Some(keys),
        (None, Some((at, Err(problem)))) => {
            section.report(&at, problem);
            None
        }
        (Some(at), Some(_)) => {
            section.report(&at, values::rule("true", "and `jwks` exclude each other: where are the keys?"));
            None
        }
        (None, None) => {
            section.report_absence(&at, values::rule("jwt", "needs `jwks` or `discovery = true`"));
            None
        }
    };
    let ca = section.optional("ca", None, |item| around.readable(item).map(Some));
    let principal_claim = section.optional("principal_claim", "sub".to_owned(), claim);
    let roles_claim = section.optional("roles_claim", None, |item| claim(item).map(Some));
    let attributes = section.section("attributes", |claims| claims.values(claim)).into_iter().collect();
    let required = required(section);
    let leeway = section.optional("leeway", Duration::from_secs(30), values::duration("0s", "120s"));
    let max_lifetime =
        section.optional("max_lifetime", Duration::from_secs(24 * 60 * 60), values::duration("1s", "7d"));
    let types = texts(section, "typ");
    let denied = section.optional("denied", None, |item| around.readable(item).map(Some));
    Some(Issuer {
        issuer: name?,
        audience: texts_of(audience?)?,
        algorithms: texts_of(algorithms?)?,
        keys: keys?,
        ca,
        principal_claim,
        roles_claim,
        attributes,
        required,
        leeway,
        max_lifetime,
        types,
        denied,
        http,
    })
}

/// A URL, or `{ file = "PATH" }`.
fn keys(
    item: &Item<'_>,
    around: &Surroundings<'_>,
    reachable: &impl Fn(&url::Url) -> Result<(), &'static str>,
) -> Result<Keys, Problem> {
    if item.value.as_str().is_some() {
        let given = values::text(item)?;
        let url = values::url(given)?;
        reachable(&url).map_err(|why| values::rule(given, why))?;
        return Ok(Keys::Url(url));
    }
    around.file_of(item).map(Keys::File)
}

fn algorithm(item: &Item<'_>) -> Result<String, Problem> {
    const KNOWN: &[(&str, &str)] = &[
        ("RS256", "RS256"),
        ("RS384", "RS384"),
        ("RS512", "RS512"),
        ("PS256", "PS256"),
        ("PS384", "PS384"),
        ("PS512", "PS512"),
        ("ES256", "ES256"),
        ("ES384", "ES384"),
        ("EdDSA", "EdDSA"),
    ];
    if let given @ ("HS256" | "HS384" | "HS512") = values::text(item)? {
        return Err(values::rule(given, "is symmetric: whoever can verify such a token can make one"));
    }
    values::word(KNOWN)(item).map(str::to_owned)
}

/// A claim, or a path of claims with dots.
fn claim(item: &Item<'_>) -> Result<String, Problem> {
    let given = values::text(item)?;
    if !schemes::leads_to_a_claim(given) {
        return Err(no_claim(given));
    }
    Ok(given.to_owned())
}

/// Claims, and what they must say.
fn required(section: &mut Section<'_>) -> BTreeMap<String, String> {
    section.section("required", |claims| {
        let required = claims.values(|item| Ok((item.at.clone(), values::text(item)?.to_owned())));
        for (name, (at, _)) in &required {
            if !schemes::leads_to_a_claim(name) {
                claims.report(at, no_claim(name));
            }
        }
        required.into_iter().map(|(name, (_, value))| (name, value)).collect()
    })
}

fn no_claim(given: &str) -> Problem {
    values::rule(given, "is not the name of a claim, or names with dots between them")
}

fn certificates(section: &mut Section<'_>) -> Option<Certificates> {
    let mut seen = Vec::new();
    let principals = section.required_sections("principal", |rule| certificate_rule(rule, &mut seen));
    let roles = section.section("roles", certificate_roles);
    let usage = section.optional(
        "danger_any_usage",
        ExtendedKeyUsage::Required,
        values::switch(ExtendedKeyUsage::DangerOptional, ExtendedKeyUsage::Required),
    );
    Some(Certificates { principals: non_empty(principals)?, roles, usage })
}

/// `{ uri = "spiffe://corp/svc/*", as = "svc-$1" }`: one field, and the name that it gives.
fn certificate_rule(section: &mut Section<'_>, seen: &mut Vec<(At, String)>) -> Option<CertificateRule> {
    let mut fields = Vec::new();
    for (key, field) in [
        ("uri", CertificateField::Uri),
        ("dns", CertificateField::Dns),
        ("email", CertificateField::Email),
        ("cn", CertificateField::Cn),
    ] {
        if let Some(item) = section.take(key) {
            fields.push((key, field, item));
        }
    }
    let name = section.required("as", |item| Ok((item.at.clone(), values::text(item)?.to_owned())));
    let Ok([(key, field, item)]) = <[_; 1]>::try_from(fields) else {
        section.report_absence(
            section.at(),
            values::rule("principal", "must name exactly one of `uri`, `dns`, `email` and `cn`"),
        );
        return None;
    };
    let pattern = match values::text(&item) {
        Ok(pattern) => pattern.to_owned(),
        Err(problem) => {
            section.report(&item.at, problem);
            return None;
        }
    };
    unique(section, seen, &item.at, &format!("{key} = \"{pattern}\""));
    let (name_at, name) = name?;
    let rule = CertificateRule { field, pattern, name };
    match schemes::judge_rule(&rule) {
        Ok(()) => return Some(rule),
        Err(WrongRule::Pattern(problem)) => section.report(&item.at, values::rule(&rule.pattern, problem)),
        Err(WrongRule::Name(problem)) => section.report(&name_at, values::rule(&rule.name, problem)),
    }
    None
}

/// Roles by the principal's name.
fn certificate_roles(section: &mut Section<'_>) -> BTreeMap<String, Vec<String>> {
    let given = section.values(|item| Ok((item.at.clone(), values::texts(item)?)));
    let judged = given.into_iter().map(|(principal, (at, roles))| {
        if let Err((wrong, problem)) = schemes::judge_roles(&principal, &roles) {
            section.report(&at, values::rule(&wrong, problem));
        }
        (principal, roles)
    });
    judged.collect()
}

fn texts(section: &mut Section<'_>, key: &'static str) -> Vec<String> {
    let given = section.list(key, |item| Ok(values::text(item)?.to_owned())).unwrap_or_default();
    given.into_iter().map(|(_, text)| text).collect()
}

fn texts_of(given: Vec<(At, String)>) -> Option<NonEmpty<String>> {
    non_empty(given.into_iter().map(|(_, text)| text).collect())
}
