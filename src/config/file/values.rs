//! Reads single values: text, numbers, durations, sizes, words, URLs, keys.
//!
//! Every function judges one value and says in one [`Problem`] what is wrong with it. Must not touch the file system or
//! the environment, and must not know where a value stands.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Component, Path};
use std::time::Duration;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use portcullis_auth::Secret;
use toml::de::DeValue;
use tonic::metadata::{Ascii, MetadataValue};
use url::Url;

use super::section::{Item, kind};
use crate::backend::ballista::ExecutorPattern;
use crate::config::error::Problem;
use crate::config::{Grantee, PartitionType};
use crate::limits::Rate;
use crate::listen::Network;

/// A string that is not empty.
pub(super) fn text<'a>(item: &Item<'a>) -> Result<&'a str, Problem> {
    match string(item, "a string")? {
        "" => Err(Problem::Empty),
        text => Ok(text),
    }
}

/// Any string, the empty one included.
pub(super) fn any_text<'a>(item: &Item<'a>) -> Result<&'a str, Problem> {
    string(item, "a string")
}

/// `true` or `false`, as one of two words of the caller: a bare `bool` says nothing where it is used.
pub(super) fn switch<T>(yes: T, no: T) -> impl FnOnce(&Item<'_>) -> Result<T, Problem> {
    move |item| match item.value.as_bool() {
        Some(true) => Ok(yes),
        Some(false) => Ok(no),
        None => Err(wrong(item, "`true` or `false`")),
    }
}

/// A whole number within `range`.
pub(super) fn count(range: RangeInclusive<usize>) -> impl FnOnce(&Item<'_>) -> Result<usize, Problem> {
    move |item| {
        let DeValue::Integer(integer) = item.value else { return Err(wrong(item, "a whole number")) };
        match usize::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(number) if range.contains(&number) => Ok(number),
            Ok(_) | Err(_) => Err(Problem::OutOfRange {
                given: integer.to_string(),
                min: range.start().to_string(),
                max: range.end().to_string(),
            }),
        }
    }
}

/// One word of a closed list.
pub(super) fn word<T: Copy>(known: &'static [(&'static str, T)]) -> impl Fn(&Item<'_>) -> Result<T, Problem> {
    move |item| {
        let given = string(item, "a string")?;
        let unknown =
            || Problem::NotOneOf { given: given.to_owned(), known: known.iter().map(|(word, _)| *word).collect() };
        known.iter().find(|(word, _)| *word == given).map(|(_, meaning)| *meaning).ok_or_else(unknown)
    }
}

/// A duration such as `30s`, from `min` (written in the same way) to `max`.
pub(super) fn duration(min: &'static str, max: &'static str) -> impl FnOnce(&Item<'_>) -> Result<Duration, Problem> {
    move |item| {
        let expected = "a duration such as `30s` (units: ms, s, m, h, d)";
        let given = string(item, expected)?;
        let millis = scaled(given, DURATION_UNITS).ok_or_else(|| malformed(given, expected))?;
        let (low, high) = (scaled(min, DURATION_UNITS), scaled(max, DURATION_UNITS));
        if low.is_some_and(|low| millis >= low) && high.is_some_and(|high| millis <= high) {
            return Ok(Duration::from_millis(millis));
        }
        Err(Problem::OutOfRange { given: given.to_owned(), min: min.to_owned(), max: max.to_owned() })
    }
}

/// A size such as `1MiB` in bytes, from 1 byte to `max` (written in the same way).
pub(super) fn size(max: &'static str) -> impl FnOnce(&Item<'_>) -> Result<usize, Problem> {
    size_between("1B", max)
}

/// A size such as `1MiB` in bytes, from `min` to `max` (written in the same way).
pub(super) fn size_between(min: &'static str, max: &'static str) -> impl FnOnce(&Item<'_>) -> Result<usize, Problem> {
    move |item| {
        let expected = "a size such as `1MiB` (units: B, KiB, MiB, GiB)";
        let given = string(item, expected)?;
        let bytes = scaled(given, SIZE_UNITS).ok_or_else(|| malformed(given, expected))?;
        let fits = scaled(min, SIZE_UNITS).is_some_and(|min| bytes >= min)
            && scaled(max, SIZE_UNITS).is_some_and(|max| bytes <= max);
        match usize::try_from(bytes) {
            Ok(bytes) if fits => Ok(bytes),
            Ok(_) | Err(_) => {
                Err(Problem::OutOfRange { given: given.to_owned(), min: min.to_owned(), max: max.to_owned() })
            }
        }
    }
}

/// A list of texts, none of them empty.
pub(super) fn texts(item: &Item<'_>) -> Result<Vec<String>, Problem> {
    let array = item.value.as_array().ok_or_else(|| wrong(item, "an array of strings"))?;
    let one = |element: &toml::Spanned<DeValue<'_>>| match element.get_ref().as_str() {
        Some("") => Err(Problem::Empty),
        Some(text) => Ok(text.to_owned()),
        None => Err(wrong(item, "an array of strings")),
    };
    array.iter().map(one).collect()
}

/// A rate such as `200/s`.
pub(super) fn rate(item: &Item<'_>) -> Result<Rate, Problem> {
    let expected = "a rate such as `200/s` or `10/m`, from 1 on";
    let given = string(item, expected)?;
    given.parse().map_err(|_| malformed(given, expected))
}

/// A network such as `10.0.0.0/8`, but not all of them.
pub(super) fn network(item: &Item<'_>) -> Result<Network, Problem> {
    let given = text(item)?;
    no_host_bits(given, given)?;
    let network: Network =
        given.parse().map_err(|_| malformed(given, "a network such as `10.0.0.0/8` or `fd00::/8`"))?;
    if network.is_everything() {
        return Err(rule(given, "is every address: whoever connects could say that it is somebody else"));
    }
    Ok(network)
}

/// An address and a port.
pub(super) fn address(item: &Item<'_>) -> Result<SocketAddr, Problem> {
    let expected = "an address with a port, such as `127.0.0.1:32010`";
    let given = string(item, expected)?;
    given.parse().map_err(|_| malformed(given, expected))
}

/// The address of a scheduler or of its proxy: `http` or `https`, a host, a port, nothing more.
pub(super) fn cluster_url(item: &Item<'_>) -> Result<Url, Problem> {
    let given = text(item)?;
    let url = url(given)?;
    if !matches!(url.scheme(), "http" | "https") || url.port_or_known_default().is_none() || url.path() != "/" {
        return Err(rule(given, "must be written as `http://HOST:PORT` or `https://HOST:PORT`"));
    }
    Ok(url)
}

/// Whether a URL stays on this machine.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// An entry of `cluster.executors`.
pub(super) fn executor(item: &Item<'_>) -> Result<ExecutorPattern, Problem> {
    let given = text(item)?;
    let host = given.rsplit_once(':').map_or(given, |(host, _)| host);
    no_host_bits(given, host.trim_matches(['[', ']']))?;
    given.parse().map_err(|why| rule(given, why))
}

/// Whether the network in `given` begins with its first address; a text that is no network has none.
fn no_host_bits(given: &str, network: &str) -> Result<(), Problem> {
    let parsed = network.split_once('/').and_then(|(address, bits)| {
        let (address, bits): (IpAddr, u32) = (address.parse().ok()?, bits.parse().ok()?);
        let first: IpAddr = match address {
            IpAddr::V4(four) => {
                let unused = u32::BITS.checked_sub(bits)?;
                Ipv4Addr::from_bits(four.to_bits() & u32::MAX.checked_shl(unused)?).into()
            }
            IpAddr::V6(six) => {
                let unused = u128::BITS.checked_sub(bits)?;
                Ipv6Addr::from_bits(six.to_bits() & u128::MAX.checked_shl(unused)?).into()
            }
        };
        Some((address, first, bits))
    });
    match parsed {
        Some((address, first, bits)) if address != first => {
            Err(Problem::HostBits { given: given.to_owned(), network: format!("{first}/{bits}") })
        }
        Some(_) | None => Ok(()),
    }
}

/// A secret that can be the value of a header. Nothing of it is told.
pub(super) fn header_value(secret: &Secret) -> Result<MetadataValue<Ascii>, Problem> {
    let text = secret.expose().trim_ascii();
    if text.is_empty() {
        return Err(Problem::Empty);
    }
    MetadataValue::try_from(text).map_err(|_| rule("…", "is not the value of a header: visible ASCII characters"))
}

/// A name that ends up in logs and on command lines.
pub(super) fn label(item: &Item<'_>) -> Result<String, Problem> {
    let given = text(item)?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if given.len() <= 64 && given.bytes().all(plain) {
        return Ok(given.to_owned());
    }
    Err(malformed(given, "a name of at most 64 letters, digits and `_`, `-`, `.`"))
}

/// The name of a catalog, schema, table or column.
pub(super) fn identifier(given: &str) -> Result<String, Problem> {
    if given.is_empty() {
        return Err(Problem::Empty);
    }
    if given.len() > 128 || given.chars().any(char::is_control) {
        return Err(malformed(given, "a name of at most 128 bytes without control characters"));
    }
    Ok(given.to_owned())
}

/// [`identifier`], for a schema.
pub(super) fn schema(given: &str) -> Result<String, Problem> {
    if given.eq_ignore_ascii_case("information_schema") {
        return Err(Problem::Rule {
            given: given.to_owned(),
            rule: "is the name of a schema that every catalog has already",
        });
    }
    identifier(given)
}

/// `role:NAME`, `user:NAME` or `*`.
pub(super) fn grantee(item: &Item<'_>) -> Result<Grantee, Problem> {
    let given = text(item)?;
    match given.split_once(':') {
        None if given == "*" => Ok(Grantee::Everyone),
        // Not a name, and not every name either: that is `*` alone.
        Some(("role" | "user", "*")) => Err(malformed(given, "`role:NAME`, `user:NAME` or `*`")),
        Some(("role", name)) if !name.trim().is_empty() => Ok(Grantee::Role(name.to_owned())),
        Some(("user", name)) if !name.trim().is_empty() => Ok(Grantee::User(name.to_owned())),
        None | Some(_) => Err(malformed(given, "`role:NAME`, `user:NAME` or `*`")),
    }
}

/// A partition column such as `year int`.
pub(super) fn partition(item: &Item<'_>) -> Result<(String, PartitionType), Problem> {
    let given = text(item)?;
    let bad =
        || malformed(given, "a column and its type, such as `year int` (types: int, bigint, varchar, string, date)");
    let mut words = given.split_whitespace();
    let (Some(name), Some(kind), None) = (words.next(), words.next(), words.next()) else { return Err(bad()) };
    let kind = match kind.to_ascii_lowercase().as_str() {
        "bigint" => PartitionType::Bigint,
        "date" => PartitionType::Date,
        "int" => PartitionType::Int,
        "string" | "varchar" => PartitionType::Varchar,
        _ => return Err(bad()),
    };
    if name.contains(['=', '/']) {
        return Err(bad());
    }
    Ok((identifier(name)?, kind))
}

/// The prefix of a `[[location]]`; a path is relative to `dir`.
pub(super) fn prefix(given: &str, dir: &Path) -> Result<Url, Problem> {
    if !is_url(given) {
        let path = Path::new(given);
        if path.components().any(|component| component == Component::ParentDir) {
            return Err(rule(given, "must not contain `..`"));
        }
        let url = Url::from_directory_path(dir.join(path)).map_err(|()| rule(given, "cannot be written as a URL"))?;
        return not_everything(given, url);
    }
    let url = url(given)?;
    if !url.path().ends_with('/') {
        return Err(rule(given, "must end with `/`"));
    }
    match url.scheme() {
        "file" => not_everything(given, url),
        _ => in_a_store(given, url),
    }
}

/// A URL of something in an object store.
pub(super) fn in_a_store(given: &str, url: Url) -> Result<Url, Problem> {
    match url.scheme() {
        "http" | "https" => Ok(url),
        "az" | "gs" | "s3" => {
            let bucket = url.host_str().unwrap_or_default();
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            if bucket.is_empty() || !bucket.bytes().all(plain) || url.port().is_some() {
                return Err(rule(given, "must name a bucket, such as `s3://bucket/prefix/`"));
            }
            Ok(url)
        }
        _ => Err(rule(given, "must be a path or a URL of the scheme `file`, `s3`, `gs`, `az` or `https`")),
    }
}

/// The name of a store: `SCHEME://BUCKET` or `https://HOST[:PORT]`, nothing more.
pub(super) fn store(given: &str) -> Result<Url, Problem> {
    let unknown =
        || malformed(given, "a store, such as `s3://bucket`, `gs://bucket`, `az://container`, `https://host`");
    if !is_url(given) {
        return Err(unknown());
    }
    let mut url = url(given)?;
    if !matches!(url.scheme(), "az" | "gs" | "http" | "https" | "s3") {
        return Err(unknown());
    }
    if !matches!(url.path(), "" | "/") {
        return Err(rule(given, "is a whole store: its name ends before the path"));
    }
    url.set_path("/");
    in_a_store(given, url)
}

/// A secret that travels in a header or in a URL. Nothing of it is told.
pub(super) fn plain_secret(secret: Secret) -> Result<Secret, Problem> {
    let text = secret.expose().trim_ascii();
    if text.is_empty() {
        return Err(Problem::Empty);
    }
    if !text.iter().all(u8::is_ascii_graphic) {
        return Err(rule("…", "has characters that no such secret has"));
    }
    Ok(Secret::new(text))
}

/// The JSON of a service account's key. Nothing of it is told.
pub(super) fn service_account(secret: Secret) -> Result<Secret, Problem> {
    let has = |value: &serde_json::Value, key| value.get(key).is_some_and(serde_json::Value::is_string);
    match serde_json::from_slice::<serde_json::Value>(secret.expose()) {
        Ok(value) if has(&value, "private_key") && has(&value, "client_email") => Ok(secret),
        Ok(_) | Err(_) => Err(rule("…", "is not the JSON of a service account's key")),
    }
}

/// The key of a storage account, in base64. Nothing of it is told.
pub(super) fn account_key(secret: Secret) -> Result<Secret, Problem> {
    let secret = plain_secret(secret)?;
    match base64::engine::general_purpose::STANDARD.decode(secret.expose()) {
        Ok(_) => Ok(secret),
        Err(_) => Err(rule("…", "is not the key of a storage account: it must be base64")),
    }
}

/// Whether `given` is a URL rather than a path.
pub(super) fn is_url(given: &str) -> bool {
    let scheme = given.split_once(':').map(|(scheme, _)| scheme).unwrap_or_default();
    // One letter is a drive, not a scheme.
    scheme.len() > 1 && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// A URL in which nothing is hidden. Judged as it is written: the parser silently drops `..`, line breaks and tabs.
pub(super) fn url(given: &str) -> Result<Url, Problem> {
    let lower = given.to_ascii_lowercase();
    let authority =
        given.split_once("://").and_then(|(_, rest)| rest.split(['/', '?', '#']).next()).unwrap_or_default();
    if authority.contains('@') {
        // First, and not quoted: it may be a credential.
        return Err(rule("…", "must not contain a user or a password"));
    }
    if given.chars().any(char::is_control) || given.contains('\\') {
        return Err(rule(given, "must not contain control characters or backslashes"));
    }
    if ["%2e", "%2f", "%5c", "%00"].iter().any(|hidden| lower.contains(hidden)) {
        return Err(rule(given, "must not contain percent-encoded dots, separators or zeros"));
    }
    if given.split('/').any(|segment| segment == "..") {
        return Err(rule(given, "must not contain `..`"));
    }
    if !lower.contains("://") || (lower.starts_with("file:") && !lower.starts_with("file:///")) {
        return Err(rule(given, "must be written as `scheme://…`, for a file as `file:///…`"));
    }
    let url = Url::parse(given).map_err(|_| rule(given, "is not a URL"))?;
    if url.query().is_some() || url.fragment().is_some() {
        return Err(rule(given, "must not contain a query or a fragment"));
    }
    if url.path().contains("//") {
        return Err(rule(given, "must not contain empty segments"));
    }
    Ok(url)
}

/// Exactly 32 bytes, in base64 of either alphabet, padded or not. Nothing of the text is told.
pub(super) fn seal_key(text: &Secret) -> Result<Secret, Problem> {
    let text = text.expose().trim_ascii();
    let alphabet = if text.contains(&b'-') || text.contains(&b'_') { &alphabet::URL_SAFE } else { &alphabet::STANDARD };
    let lenient = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let key = GeneralPurpose::new(alphabet, lenient).decode(text).map(Secret::new).map_err(|_| Problem::NotAKey)?;
    let bytes = key.expose();
    if bytes.len() != 32 {
        return Err(Problem::NotAKey);
    }
    if bytes.iter().all(|byte| Some(byte) == bytes.first()) {
        return Err(Problem::AllBytesEqual);
    }
    Ok(key)
}

/// A rule that `given` breaks.
pub(super) fn rule(given: &str, rule: &'static str) -> Problem {
    Problem::Rule { given: given.to_owned(), rule }
}

/// A value of another TOML type than the key needs.
pub(super) fn wrong(item: &Item<'_>, expected: &'static str) -> Problem {
    Problem::WrongType { expected, found: kind(item.value) }
}

fn string<'a>(item: &Item<'a>, expected: &'static str) -> Result<&'a str, Problem> {
    item.value.as_str().ok_or_else(|| wrong(item, expected))
}

fn malformed(given: &str, expected: &'static str) -> Problem {
    Problem::Malformed { given: given.to_owned(), expected }
}

/// The whole file system as one location would include the gate's own keys.
fn not_everything(given: &str, url: Url) -> Result<Url, Problem> {
    if url.path().bytes().all(|byte| byte == b'/') {
        return Err(rule(given, "is the whole file system: name a folder"));
    }
    Ok(url)
}

/// Digits and a unit, with nothing between or around them.
fn scaled(given: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = given.trim_end_matches(|character: char| !character.is_ascii_digit());
    let unit = given.strip_prefix(digits)?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    // A number too large to hold is out of every range, not a number of another form.
    Some(digits.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(*scale))
}

/// In milliseconds.
const DURATION_UNITS: &[(&str, u64)] = &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
/// In bytes.
const SIZE_UNITS: &[(&str, u64)] = &[("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
