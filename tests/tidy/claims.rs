//! Claims of documents that must hold: what they name exists, and what they show is what tests and the demo do.
//!
//! Must not judge code: that is `tests/tidy.rs`.

use std::collections::BTreeSet;

use super::files::{File, check, files};
use super::mask::{Mask, is_in_a_name};
use super::text::{lines_naming, numbered};

#[test]
fn what_the_documents_name_exists() {
    let all = files();
    check(all.iter().filter(|file| file.path.ends_with(".md")).cloned(), |file| {
        let mut missing = Vec::new();
        for (number, line) in numbered(&file.text) {
            for claim in claims(line) {
                let (path, test) = claim.split_once("::").unwrap_or((claim, ""));
                let Some(named) = all.iter().find(|other| other.path == path) else {
                    missing.push((number, format!("`{path}` does not exist")));
                    continue;
                };
                let defined = |word: &str| named.text.contains(&format!("{word} {test}("));
                if !test.is_empty() && !defined("fn") && !defined("def") {
                    missing.push((number, format!("`{path}` has no test `{test}`")));
                }
            }
        }
        missing
    });
}

#[test]
fn every_key_of_the_configuration_is_documented() {
    let all = files();
    let page = &all.iter().find(|file| file.path == "docs/configuration.md").unwrap().text;
    // In a table or a heading: a word in a sentence explains no key.
    let explains = |line: &str| line.starts_with("| `") || line.starts_with('#');
    let documented: String = page.lines().filter(|line| explains(line)).map(|line| format!("{line}\n")).collect();
    let readers = [("auth", 10), ("grants", 4), ("parts", 10), ("stores", 10)];
    let least = |file: &File| {
        let found = readers.into_iter().find(|(name, _)| file.path == format!("src/config/file/{name}.rs"));
        found.map(|(_, least)| least)
    };
    check(all.into_iter().filter(|file| least(file).is_some()), |file| {
        let keys: BTreeSet<&str> = KEY_READERS.iter().flat_map(|reader| first_texts(&file.text, reader)).collect();
        assert!(Some(keys.len()) > least(file), "the keys of {} are read in another way", file.path);
        let unknown = keys.into_iter().filter(|key| lines_naming(&documented, key).is_empty());
        unknown.map(|key| (1, format!("`{key}` is not in docs/configuration.md"))).collect()
    });
}

#[test]
fn the_readme_connects_as_the_demo_prints_it() {
    let all = files();
    let text_of = |path: &str| all.iter().find(|file| file.path == path).unwrap().text.clone();
    let mut printed = text_of("src/cli/demo.rs").replace("{{", "{").replace("}}", "}");
    for (name, value) in [
        ("{token_file}", "portcullis-demo/token"),
        ("{ca}", "portcullis-demo/ca.pem"),
        ("{url}", "grpc+tls://127.0.0.1:32010"),
        ("{endpoint}", "https://127.0.0.1:32010"),
        ("{address}", "127.0.0.1:32010"),
    ] {
        printed = printed.replace(name, value);
    }
    let printed: BTreeSet<&str> = printed.lines().collect();
    let readme = text_of("README.md");
    for language in ["python", "rust"] {
        let code = readme.split(&format!("```{language}\n")).nth(1).unwrap().split("```").next().unwrap();
        for line in code.lines() {
            assert!(printed.contains(line), "the demo does not print this line of the README:\n{line}");
        }
    }
    let jdbc = readme.lines().find(|line| line.starts_with("jdbc:")).unwrap();
    assert!(printed.contains(jdbc), "the demo does not print this line of the README:\n{jdbc}");
}

#[test]
fn every_client_page_connects_as_a_test_that_it_names() {
    let all = files();
    check(all.iter().filter(|file| file.path.starts_with(CLIENT_PAGES)).cloned(), |page| {
        let claimed: BTreeSet<&str> = page.text.lines().flat_map(claims).collect();
        let tests: Vec<&File> = all
            .iter()
            .filter(|file| file.path.starts_with("tests/") && !file.path.ends_with(".txt"))
            .filter(|file| claimed.iter().any(|claim| claim.split("::").next() == Some(file.path.as_str())))
            .collect();
        if tests.is_empty() {
            return vec![(1, "names no test".to_owned())];
        }
        let lines = connecting(&page.text);
        if lines.is_empty() && !REPLICAS.contains(&page.path.as_str()) {
            return vec![(1, "has no block of the kind `connect`".to_owned())];
        }
        let unknown = lines.into_iter().filter(|(_, line)| {
            let words = fixed_words(line);
            !tests.iter().any(|test| words.iter().all(|word| !lines_naming(&test.text, word).is_empty()))
        });
        unknown.map(|(number, line)| (number, format!("no test of the page connects by `{line}`"))).collect()
    });
}

#[test]
fn every_expectation_is_compared_with_something() {
    let all = files();
    let tests: String = all
        .iter()
        .filter(|file| file.path.ends_with(".rs") && !file.path.starts_with("tests/tidy"))
        .map(|file| file.text.as_str())
        .collect();
    check(all.iter().filter(|file| file.path.starts_with("tests/expect/")).cloned(), |file| {
        let used = match file.path.strip_prefix("tests/expect/config/").and_then(|name| name.strip_suffix(".txt")) {
            Some(name) => all.iter().any(|other| other.path == format!("tests/config/{name}.toml")),
            None => file.path.rsplit('/').next().is_some_and(|name| tests.contains(name)),
        };
        if used { vec![] } else { vec![(1, "nothing is compared with it".to_owned())] }
    });
}

#[test]
fn what_documents_claim_is_seen() {
    let page = "a\n```connect\nx://HOST:PORT/?key=TOKEN\n```\n```\ny\n```\n```connect\n-f CA\n```\n";
    assert_eq!(connecting(page), [(3, "x://HOST:PORT/?key=TOKEN"), (9, "-f CA")]);
    assert_eq!(fixed_words("x://HOST:PORT/?key=TOKEN&b.c-d=a"), ["x://", "key", "b.c-d", "a"]);
    assert_eq!(fixed_words("HOSTS --port PORT"), ["HOSTS", "--port"]);
    let table =
        "### Operator\n| a | b | shown by |\n|---|---|---|\n| x | y | `f::t` |\n\n| c | d |\n|---|---|\n| z | `q` |\n";
    assert_eq!(mitigations(table).collect::<Vec<_>>(), [(4, "Operator", " `f::t` ")]);
    let code =
        "#[test]\n#[cfg(unix)]\nfn a() {}\n\n#[tokio::test(start_paused = true)]\nasync fn b() {}\n\nfn c() {}\n";
    let python = "def test_a(x):\n    pass\n\ndef b():\n    pass\n";
    let all =
        [("a.rs", code), ("a.py", python)].map(|(path, text)| File { path: path.to_owned(), text: text.to_owned() });
    assert!(["a.rs::a", "a.rs::b", "a.py::test_a"].iter().all(|name| is_a_test(&all, name)));
    assert!(
        ["a.rs::c", "a.rs::d", "a.rs", "b.rs::a", "a.py::b", "a.py::test_b"].iter().all(|name| !is_a_test(&all, name))
    );
    let code = "s.optional(\n    \"a\",\n    1), s.optional(key), s.list(\"b\", c), o.optional(\"d\")";
    assert_eq!(first_texts(code, ".optional(").collect::<Vec<_>>(), ["a", "d"]);
    let named = claims("See `tests/a.rs::b`, (docs/c.md) and src/, not https://example.com/docs/d.md or tests/*.rs.");
    assert_eq!(named.collect::<Vec<_>>(), ["tests/a.rs::b", "docs/c.md"]);
}

/// Files of the repository that a line of a document names, with the test in it if one is named.
fn claims(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|c: char| !(c.is_ascii_alphanumeric() || "_-./:*".contains(c)));
    words.map(|word| word.trim_end_matches(['.', ':'])).filter(|word| {
        let path = word.split("::").next().unwrap_or_default();
        let last = path.rsplit('/').next().unwrap_or_default();
        FOLDERS.iter().any(|folder| path.starts_with(folder)) && last.contains('.') && !path.contains('*')
    })
}

/// The texts that calls of a method begin with.
fn first_texts<'a>(code: &'a str, method: &'a str) -> impl Iterator<Item = &'a str> {
    code.split(method).skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
}

/// The rows of the tables that say which test shows a mitigation: line, section, and the last cell.
pub(crate) fn mitigations(page: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    let (mut section, mut inside) = ("", false);
    numbered(page).filter_map(move |(number, line)| {
        if let Some(title) = line.strip_prefix("### ") {
            section = title;
        }
        let Some(row) = line.strip_prefix('|').and_then(|row| row.strip_suffix('|')) else {
            inside = false;
            return None;
        };
        let last = row.rsplit('|').next().unwrap_or_default();
        let heads = last.trim() == "shown by";
        let is_row = inside && !last.starts_with("---");
        inside = inside || heads;
        is_row.then_some((number, section, last))
    })
}

/// Whether `path::name` is a test: of Rust with the attribute of one, of Python with the name of one.
pub(crate) fn is_a_test(files: &[File], claim: &str) -> bool {
    let Some((path, test)) = claim.split_once("::") else { return false };
    let Some(file) = files.iter().find(|file| file.path == path) else { return false };
    if path.ends_with(".py") {
        let head = format!("def {test}(");
        return test.starts_with("test_") && file.text.lines().any(|line| line.starts_with(&head));
    }
    let head = format!("fn {test}(");
    let code = Mask::of(&file.text).code;
    let lines: Vec<&str> = code.lines().map(str::trim).collect();
    lines.iter().enumerate().any(|(at, line)| {
        let defined = line.strip_prefix("async ").unwrap_or(line).starts_with(&head);
        let mut above = lines.iter().take(at).rev().take_while(|line| line.starts_with("#["));
        defined && above.any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
    })
}

/// The lines of the blocks by which a client's page says how it connects.
fn connecting(page: &str) -> Vec<(usize, &str)> {
    let mut inside = false;
    let mut found = Vec::new();
    for (number, line) in numbered(page) {
        if line.starts_with("```") {
            inside = line == "```connect";
        } else if inside {
            found.push((number, line));
        }
    }
    found
}

/// What is left of such a line without its placeholders: schemes, keys, names and fixed values, which a test that puts
/// the line together from parts has as well.
fn fixed_words(line: &str) -> Vec<&str> {
    let parts = line.split(|c: char| !(is_in_a_name(c) || "-.+:/".contains(c)));
    let words = parts.flat_map(|part| {
        // The address stands right behind its scheme.
        let scheme = part.find("://").map_or(0, |at| at.saturating_add(3));
        let (scheme, rest) = part.split_at(scheme);
        std::iter::once(scheme).chain(rest.split(['/', ':']))
    });
    words
        .map(|word| if word.ends_with("://") { word } else { word.trim_matches(['.', ':', '/', '+']) })
        .filter(|word| word.contains(is_in_a_name) && !PLACEHOLDERS.contains(word))
        .collect()
}

/// Where the pages about clients are.
const CLIENT_PAGES: &str = "docs/clients/";
const FOLDERS: &[&str] = &["auth-plugins/", "certs/", "docs/", "src/", "tests/", "xtask/"];
/// What a reader of a client's page puts in.
const PLACEHOLDERS: &[&str] = &["CA", "HOST", "PORT", "TOKEN"];
/// The pages of clients that cannot be run here: their calls are repeated, so no test has their string.
const REPLICAS: &[&str] = &["docs/clients/grafana.md", "docs/clients/odbc-powerbi.md"];
/// The methods of `Section` that read a key by its name.
const KEY_READERS: &[&str] = &[
    ".given(",
    ".given_section(",
    ".list(",
    ".optional(",
    ".required(",
    ".required_list(",
    ".required_sections(",
    ".section(",
    ".sections(",
    ".take(",
];
