//! What a rule can look for in a text: names, dependencies, keys.
//!
//! Must not open a file or judge.

use super::mask::is_in_a_name;

pub(crate) fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index.saturating_add(1), line))
}

pub(crate) fn lines_with(text: &str, part: &str) -> Vec<usize> {
    numbered(text).filter(|(_, line)| line.contains(part)).map(|(number, _)| number).collect()
}

/// Lines in which `name` stands as a whole name.
pub(crate) fn lines_naming(text: &str, name: &str) -> Vec<usize> {
    let named = |line: &str| split_at_name(line, name).next().is_some();
    numbered(text).filter(|(_, line)| named(line)).map(|(number, _)| number).collect()
}

/// What follows each occurrence of `name` as a whole name.
pub(crate) fn split_at_name<'a>(line: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    line.match_indices(name).filter_map(move |(index, _)| {
        let (before, here) = line.split_at(index);
        let after = here.strip_prefix(name)?;
        (!before.ends_with(is_in_a_name) && !after.starts_with(is_in_a_name)).then_some(after)
    })
}

pub(crate) fn name_at_start(text: &str) -> &str {
    text.split(|c: char| !is_in_a_name(c)).next().unwrap_or_default()
}

/// Before a `/`: the path goes on to the left, so that it does not start at the root of a machine.
pub(crate) fn is_inside_a_path(c: char) -> bool {
    is_in_a_name(c) || matches!(c, '.' | '-' | '}' | '>' | ')' | '*' | '$')
}

/// Line and name of every dependency in a manifest, whatever it is for.
pub(crate) fn dependencies(manifest: &str) -> Vec<(usize, String)> {
    let mut among_dependencies = false;
    let mut found = Vec::new();
    for (number, line) in numbered(manifest) {
        if let Some(header) = line.strip_prefix('[') {
            let header = header.trim_end_matches(']');
            among_dependencies = header.ends_with("dependencies");
            if let Some((_, name)) = header.split_once("dependencies.") {
                found.push((number, name.to_owned()));
            }
        } else if among_dependencies && !line.trim().is_empty() && !line.starts_with('#') {
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            found.push((number, name.to_owned()));
        }
    }
    found
}

/// The lines at which PEM blocks begin that are long enough to be private keys.
pub(crate) fn private_keys(text: &str) -> impl Iterator<Item = usize> {
    text.match_indices(KEY).filter_map(move |(index, _)| {
        let (before, block) = text.split_at(index);
        let marks = before.rsplit_once("-----").is_some_and(|(_, mark)| mark.starts_with("BEGIN "));
        let body = block.strip_prefix(KEY)?.split("-----").next()?;
        let base64 = body.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=')).count();
        (marks && base64 >= LEAST_KEY).then(|| before.matches('\n').count().saturating_add(1))
    })
}

/// Base64 of a private key: the shortest kind, Ed25519, has 64 characters.
const LEAST_KEY: usize = 64;
// Apart, so that this file does not say them itself.
pub(crate) const KEY: &str = concat!("KEY", "-----");
