//! The forms a name must have before a rule sees it: one spelling for one name.
//!
//! Whatever could be read in two ways (another case, an escape, a dot segment, a hidden character) is refused, or is
//! brought to the one spelling where standards call the two equal. Must not decide who somebody is.

use crate::rules::Field;

/// The one spelling of a name, or why it names nobody, as what is said of the name ("has no scheme"). Every byte may
/// come from a stranger with a CA's signature.
pub(crate) fn canonical(field: Field, name: &str) -> Result<String, &'static str> {
    match field {
        Field::Uri => uri(name),
        Field::Dns => dns(name),
        Field::Email => email(name),
        Field::Cn => common_name(name),
    }
}

fn uri(name: &str) -> Result<String, &'static str> {
    if name.len() > MAX_URI {
        return Err("is too long for a URI");
    }
    // An escape, a query or a fragment would give one place several spellings.
    let plain = |b: u8| b.is_ascii_graphic() && !b"\"#%<>?\\^`{|}".contains(&b);
    if !name.bytes().all(plain) {
        return Err("holds a character that a URI must not");
    }
    let (scheme, rest) = name.split_once(':').ok_or("has no scheme")?;
    let of_a_scheme = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.');
    if !scheme.starts_with(|c: char| c.is_ascii_lowercase()) || !scheme.bytes().all(of_a_scheme) {
        return Err("has a scheme that is not in lower case letters");
    }
    if rest.is_empty() {
        return Err("ends behind its scheme");
    }
    if rest.split('/').any(|segment| matches!(segment, "." | "..")) {
        return Err("holds a dot segment");
    }
    match rest.strip_prefix("//") {
        Some(rest) => authority(rest.split_once('/').map_or(rest, |(authority, _)| authority))?,
        None if scheme == SPIFFE => return Err("has no trust domain, which a SPIFFE id must have"),
        None => (),
    }
    if scheme == SPIFFE {
        spiffe(rest)?;
    }
    Ok(name.to_owned())
}

fn authority(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("has no host");
    }
    if name.contains('@') {
        return Err("holds user information");
    }
    if name.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err("has a host that is not in lower case");
    }
    Ok(())
}

/// The SPIFFE-ID standard, section 2, without its leniency about what a workload may have as an id: a path there must
/// be.
fn spiffe(rest: &str) -> Result<(), &'static str> {
    let id = rest.trim_start_matches('/');
    let (domain, path) =
        id.split_once('/').ok_or("names a trust domain and no workload, which a SPIFFE id must name")?;
    let of_a_domain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'_');
    if domain.is_empty() || domain.len() > MAX_TRUST_DOMAIN || !domain.bytes().all(of_a_domain) {
        return Err("has a trust domain that is not one of a SPIFFE id");
    }
    let of_a_path = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    if path.split('/').any(|segment| segment.is_empty() || !segment.bytes().all(of_a_path)) {
        return Err("has a segment that is empty or not plain, which a SPIFFE id has not");
    }
    Ok(())
}

fn dns(name: &str) -> Result<String, &'static str> {
    if name.len() > MAX_DNS {
        return Err("is too long for a DNS name");
    }
    // A wildcard stands for many hosts, so it names none.
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    let good = |label: &str| {
        (1..=MAX_LABEL).contains(&label.len())
            && label.bytes().all(plain)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if !name.split('.').all(good) {
        return Err("has a label that is not one of a DNS name");
    }
    Ok(name.to_ascii_lowercase())
}

fn email(name: &str) -> Result<String, &'static str> {
    let (local, domain) = name.split_once('@').ok_or("has no `@`")?;
    // Quoted local parts can hold anything, spaces and `@` included.
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"!#$&'+-./=?^_`{|}~".contains(&b);
    if !(1..=MAX_LOCAL).contains(&local.len()) || !local.bytes().all(plain) {
        return Err("has a local part that is not plain");
    }
    Ok(format!("{local}@{}", dns(domain)?))
}

fn common_name(name: &str) -> Result<String, &'static str> {
    if name.is_empty() {
        return Err("is empty");
    }
    if name.len() > MAX_CN {
        return Err("is too long");
    }
    if name.chars().any(is_misleading) {
        return Err("holds a control, invisible or bidirectional character");
    }
    if name.trim() != name {
        return Err("begins or ends with white space");
    }
    Ok(name.to_owned())
}

/// Characters that end, hide or reorder text, so that what an operator reads is not what was compared.
fn is_misleading(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{AD}' | '\u{61C}' | '\u{180E}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFF9}'..='\u{FFFB}'
            | '\u{E0000}'..='\u{E0FFF}')
}

const SPIFFE: &str = "spiffe";
/// With its kind in front it is the subject of an identity, which may have 2048 bytes.
const MAX_URI: usize = 2000;
const MAX_TRUST_DOMAIN: usize = 255;
const MAX_DNS: usize = 253;
const MAX_LABEL: usize = 63;
const MAX_LOCAL: usize = 64;
const MAX_CN: usize = 250;

#[cfg(test)]
mod tests;
