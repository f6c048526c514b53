//! Repository rules as tests: what may be named where, what may not be written at all, and which claims must hold.
//!
//! Reads the files of the repository and nothing else. Must not use a crate, ours or another's, so that it can also be
//! run without the engine: `CARGO_MANIFEST_DIR=. rustc --test --edition 2024 tests/tidy.rs`.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

#[path = "tidy/mask.rs"]
mod mask;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use mask::{Mask, is_in_a_name};

#[test]
fn every_rust_file_opens_with_what_it_is_for() {
    check(rust_files(), |file| {
        let lines = if file.text.starts_with("//! ") { vec![] } else { vec![1] };
        at(lines, "does not open with `//! …`")
    });
}

#[test]
fn no_rust_file_is_long_or_wide_or_untidy() {
    check(rust_files(), |file| {
        let mask = Mask::of(&file.text);
        let numbered = || file.text.lines().enumerate().map(|(index, line)| (index.saturating_add(1), line));
        let wide = numbered().filter(|(number, line)| {
            // What is printed to a user is as long as it has to be.
            line.chars().count() > MAX_WIDTH && !mask.inside_a_string.contains(number)
        });
        let spaced = numbered().filter(|(_, line)| line.ends_with([' ', '\t', '\r']));
        let mut found = at(wide.map(|(number, _)| number), "is wider than 120 columns");
        found.extend(at(spaced.map(|(number, _)| number), "ends with white space"));
        if file.text.lines().count() > MAX_LINES && !file.path.starts_with("tests/") {
            found.push((MAX_LINES, "the file is too long: split it".to_owned()));
        }
        if !file.text.is_empty() && !file.text.ends_with('\n') {
            found.push((file.text.lines().count(), "the last line does not end".to_owned()));
        }
        found
    });
}

#[test]
fn modules_lie_beside_their_folder() {
    check(rust_files(), |file| {
        let wrong = file.path.ends_with("/mod.rs");
        if wrong { vec![(1, "must be `foo.rs` beside `foo/`".to_owned())] } else { vec![] }
    });
}

#[test]
fn nothing_is_left_undone_or_skipped() {
    check(rust_files(), |file| {
        let code = Mask::of(&file.text).code;
        UNDONE.iter().flat_map(|word| at(lines_with(&code, word), &format!("says `{word}`"))).collect()
    });
}

#[test]
fn nothing_is_unsafe() {
    check(rust_files(), |file| {
        let code = Mask::of(&file.text).code;
        at(lines_naming(&code, UNSAFE), "says what the workspace forbids")
    });
}

#[test]
fn identities_are_born_in_schemes_only() {
    // The one scheme that needs no crate, and tokens that give back what a scheme has said before.
    let makers = ["src/schemes/anonymous.rs", "src/gate/session/token.rs"];
    let outside = product_files()
        .filter(move |file| !file.path.starts_with("auth-plugins/") && !makers.contains(&file.path.as_str()));
    check(outside, |file| at(lines_with(&file.text, "Principal::assertion"), "makes a principal"));
}

#[test]
fn only_one_file_writes_what_clients_read() {
    check(product_files().filter(|file| file.path != "src/status.rs"), |file| {
        let makes_one = |line: &str| {
            let after = split_at_name(line, "Status").filter_map(|rest| rest.strip_prefix("::"));
            after.into_iter().any(|rest| STATUS_MAKERS.contains(&name_at_start(rest)))
        };
        let lines = numbered(&file.text).filter(|(_, line)| makes_one(line)).map(|(number, _)| number);
        at(lines, "builds a `tonic::Status`: use `Failure`")
    });
}

#[test]
fn the_engine_is_named_behind_the_seam_only() {
    let embedded = |path: &str| path.starts_with("src/backend/ballista/embedded");
    check(product_files(), |file| {
        let behind = file.path.starts_with("src/backend");
        let mut found = Vec::new();
        for name in ["ballista_scheduler", "ballista_executor"] {
            if !embedded(&file.path) {
                found.extend(at(lines_naming(&file.text, name), &format!("names `{name}`")));
            }
        }
        // `portcullis version` tells the engine's version.
        if !behind && file.path != "src/cli.rs" {
            found.extend(at(lines_with(&file.text, "ballista_"), "names a crate of Ballista"));
        }
        found
    });
}

#[test]
fn tls_is_named_at_the_socket_only() {
    let tls = |path: &str| path == "src/tls.rs" || path.starts_with("src/tls/");
    let allowed = |path: &str| tls(path) || path == "src/listen.rs" || path.starts_with("src/listen/");
    check(product_files().filter(|file| !allowed(&file.path)), |file| {
        let named = ["rustls", "tokio_rustls"].iter().flat_map(|name| lines_naming(&file.text, name));
        at(named, "names the TLS library")
    });
}

#[test]
fn schemes_are_named_where_they_are_made_only() {
    let allowed = |path: &str| path == "src/schemes.rs" || path == "src/cli.rs" || path.starts_with("src/cli/");
    check(product_files().filter(|file| file.path.starts_with("src/") && !allowed(&file.path)), |file| {
        at(lines_with(&file.text, "portcullis_auth_"), "names an authentication scheme's crate")
    });
}

#[test]
fn the_flight_service_reads_no_header() {
    let flight = product_files().filter(|file| file.path == "src/flight.rs" || file.path.starts_with("src/flight/"));
    check(flight, |file| {
        let lines = ["HeaderMap", "headers()", "request.metadata"].iter().flat_map(|text| lines_with(&file.text, text));
        at(lines, "reads a header: identity comes as `Caller`")
    });
}

#[test]
fn text_becomes_a_plan_in_one_place() {
    check(product_files().filter(|file| file.path.starts_with("src/") && file.path != "src/sql.rs"), |file| {
        let made = PLAN_MAKERS.iter().flat_map(|name| lines_naming(&file.text, name));
        at(made, "plans SQL: what `Statements::compile` has not seen is not authorized")
    });
}

#[test]
fn nothing_of_a_client_is_decoded_as_arrow() {
    let results = |path: &str| path == "src/flight/results.rs" || path.starts_with("src/backend");
    check(product_files().filter(|file| file.path.starts_with("src/") && !results(&file.path)), |file| {
        let decoded = ARROW_READERS.iter().flat_map(|name| lines_naming(&file.text, name));
        at(decoded, "decodes Arrow IPC: only the cluster's results are")
    });
}

#[test]
fn schemes_depend_on_the_contract_only() {
    let manifests =
        files().into_iter().filter(|file| file.path.starts_with("auth-plugins/") && file.path.ends_with("/Cargo.toml"));
    check(manifests, |file| {
        let forbidden = |name: &str| {
            let ours = name.starts_with("portcullis") && name != "portcullis-auth";
            ours || HEAVY.iter().any(|heavy| name == *heavy || name.starts_with(&format!("{heavy}-")))
        };
        let lines = dependencies(&file.text).into_iter().filter(|(_, name)| forbidden(name));
        lines.map(|(line, name)| (line, format!("depends on `{name}`"))).collect()
    });
}

#[test]
fn every_crate_is_under_the_lints_of_the_workspace() {
    check(files().into_iter().filter(|file| file.path.ends_with("Cargo.toml")), |file| {
        let inherits = file.text.contains("[lints]\nworkspace = true");
        if inherits { vec![] } else { vec![(1, "has no `[lints]` with `workspace = true`".to_owned())] }
    });
}

#[test]
fn no_private_key_is_kept() {
    check(files(), |file| private_keys(&file.text).map(|line| (line, "holds a private key".to_owned())).collect());
}

#[test]
fn no_file_names_a_machine_or_a_registry() {
    // The lock file names its registry by its well-known name, for everybody the same.
    check(files().into_iter().filter(|file| file.path != "Cargo.lock"), |file| {
        let paths = MACHINE_PATHS.iter().flat_map(|path| {
            let starts_at = |line: &str, index: usize| !line.split_at(index).0.ends_with(is_inside_a_path);
            let named = |line: &str| line.match_indices(*path).any(|(index, _)| starts_at(line, index));
            let lines = numbered(&file.text).filter(|(_, line)| named(line)).map(|(number, _)| number);
            at(lines, &format!("names `{path}`"))
        });
        let hosts = REGISTRIES.iter().flat_map(|host| at(lines_with(&file.text, host), &format!("names `{host}`")));
        paths.chain(hosts).collect()
    });
}

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
fn every_mitigation_names_a_test_that_exists() {
    let all = files();
    check(all.iter().filter(|file| file.path == "SECURITY.md").cloned(), |file| {
        let mut found = Vec::new();
        for boundary in BOUNDARIES {
            if mitigations(&file.text).all(|(_, section, _)| section != boundary) {
                found.push((1, format!("has no mitigation under `{boundary}`")));
            }
        }
        for (number, _, shown_by) in mitigations(&file.text) {
            let named = shown_by.split('`').skip(1).step_by(2);
            let unknown = named.clone().filter(|name| !is_a_test(&all, name));
            found.extend(unknown.map(|name| (number, format!("`{name}` is not a test"))));
            if named.count() == 0 {
                found.push((number, "names no test".to_owned()));
            }
        }
        found
    });
}

#[test]
fn every_key_of_the_configuration_is_documented() {
    let all = files();
    let page = &all.iter().find(|file| file.path == "docs/configuration.md").unwrap().text;
    // In a table or a heading: a word in a sentence explains no key.
    let explains = |line: &str| line.starts_with("| `") || line.starts_with('#');
    let documented: String = page.lines().filter(|line| explains(line)).map(|line| format!("{line}\n")).collect();
    let readers = all
        .into_iter()
        .filter(|file| ["src/config/file/auth.rs", "src/config/file/parts.rs"].contains(&file.path.as_str()));
    check(readers, |file| {
        let keys: BTreeSet<&str> = KEY_READERS.iter().flat_map(|reader| first_texts(&file.text, reader)).collect();
        assert!(keys.len() > 10, "the keys of {} are read in another way", file.path);
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
        .filter(|file| file.path.ends_with(".rs") && file.path != "tests/tidy.rs")
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
fn the_rules_see_what_they_look_for() {
    assert_eq!(lines_naming("use rustls;\nuse rustls_pki_types;\nx::rustls::y", "rustls"), [1, 3]);
    assert_eq!(without_tests("a\n#[cfg(test)]\nmod tests {\n    b\n}\nc"), "a\n\n\n\n\nc");
    assert_eq!(test_modules("src/a.rs", "#[cfg(test)]\nmod b;\nmod c;\n"), ["src/a/b.rs"]);
    assert_eq!(test_modules("src/lib.rs", "#[cfg(test)]\nmod b;\n"), ["src/b.rs"]);
    let manifest = "[package]\nname = \"a\"\n[dependencies]\nb.workspace = true\n[dev-dependencies.c]\npath = \"c\"\n";
    assert_eq!(dependencies(manifest), [(4, "b".to_owned()), (5, "c".to_owned())]);
    let key =
        |kind: &str, body: &str| format!("\n-----BEGIN {kind}PRIVATE {KEY}\n{body}\n-----END {kind}PRIVATE {KEY}\n");
    for kind in ["", "EC ", "RSA ", "OPENSSH ", "ENCRYPTED "] {
        assert_eq!(private_keys(&key(kind, &"Ab+/".repeat(16))).collect::<Vec<_>>(), [2], "{kind}");
        assert_eq!(private_keys(&key(kind, "MAA=")).count(), 0, "{kind}: an example without a key in it");
    }
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

/// One text file of the repository.
#[derive(Clone, Debug)]
struct File {
    /// From the root of the repository, with `/`.
    path: String,
    text: String,
}

/// Line and complaint.
type Found = Vec<(usize, String)>;

/// Fails with everything that `rule` finds.
fn check(files: impl IntoIterator<Item = File>, rule: impl Fn(&File) -> Found) {
    let mut looked_at = 0_usize;
    let mut complaints = Vec::new();
    for file in files {
        looked_at = looked_at.saturating_add(1);
        complaints.extend(rule(&file).into_iter().map(|(line, text)| format!("{}:{line}: {text}", file.path)));
    }
    assert!(looked_at > 0, "the rule looked at no file at all");
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

fn at(lines: impl IntoIterator<Item = usize>, complaint: &str) -> Found {
    lines.into_iter().map(|line| (line, complaint.to_owned())).collect()
}

/// Every text file that is not ignored.
fn files() -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let ignored: Vec<String> = fs::read_to_string(root.join(".gitignore"))
        .unwrap()
        .lines()
        .map(|line| line.trim().trim_matches('/').to_owned())
        .filter(|line| !line.is_empty())
        .chain([".git".to_owned()])
        .collect();
    let mut files = Vec::new();
    walk(root, "", &ignored, &mut files);
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files
}

fn walk(folder: &Path, prefix: &str, ignored: &[String], files: &mut Vec<File>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().to_str().unwrap().to_owned();
        if ignored.contains(&name) {
            continue;
        }
        let path = format!("{prefix}{name}");
        if entry.file_type().unwrap().is_dir() {
            walk(&entry.path(), &format!("{path}/"), ignored, files);
        } else if let Ok(text) = String::from_utf8(fs::read(entry.path()).unwrap()) {
            files.push(File { path, text });
        }
    }
}

fn rust_files() -> Vec<File> {
    files().into_iter().filter(|file| file.path.ends_with(".rs")).collect()
}

/// The code that ships: no tests, and neither comments nor the insides of strings.
fn product_files() -> impl Iterator<Item = File> {
    let files = rust_files();
    let tests: Vec<String> = files.iter().flat_map(|file| test_modules(&file.path, &file.text)).collect();
    files
        .into_iter()
        .filter(move |file| {
            let shipped = file.path.starts_with("src/") || file.path.contains("/src/");
            shipped && !tests.contains(&file.path)
        })
        .map(|file| File { text: without_tests(&Mask::of(&file.text).code), ..file })
}

/// The files of modules that are declared behind `#[cfg(test)]`.
fn test_modules(path: &str, text: &str) -> Vec<String> {
    let stem = path.trim_end_matches(".rs");
    let folder = match stem.rsplit_once('/') {
        Some((folder, "lib" | "main")) => folder,
        Some(_) | None => stem,
    };
    let after_cfg = text.split("#[cfg(test)]\n").skip(1);
    let names = after_cfg.filter_map(|rest| rest.lines().next()?.strip_prefix("mod ")?.strip_suffix(';'));
    names.map(|name| format!("{folder}/{name}.rs")).collect()
}

/// Without the inline test module; lines stay.
fn without_tests(text: &str) -> String {
    let Some((before, rest)) = text.split_once("\n#[cfg(test)]\nmod tests {") else { return text.to_owned() };
    let (tests, after) = rest.split_once("\n}").unwrap_or((rest, ""));
    // The header has three line ends, of which the tests' own text holds none.
    let lines = tests.matches('\n').count().saturating_add(3);
    format!("{before}{}{after}", "\n".repeat(lines))
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index.saturating_add(1), line))
}

fn lines_with(text: &str, part: &str) -> Vec<usize> {
    numbered(text).filter(|(_, line)| line.contains(part)).map(|(number, _)| number).collect()
}

/// Lines in which `name` stands as a whole name.
fn lines_naming(text: &str, name: &str) -> Vec<usize> {
    let named = |line: &str| split_at_name(line, name).next().is_some();
    numbered(text).filter(|(_, line)| named(line)).map(|(number, _)| number).collect()
}

/// What follows each occurrence of `name` as a whole name.
fn split_at_name<'a>(line: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    line.match_indices(name).filter_map(move |(index, _)| {
        let (before, here) = line.split_at(index);
        let after = here.strip_prefix(name)?;
        (!before.ends_with(is_in_a_name) && !after.starts_with(is_in_a_name)).then_some(after)
    })
}

fn name_at_start(text: &str) -> &str {
    text.split(|c: char| !is_in_a_name(c)).next().unwrap_or_default()
}

/// Before a `/`: the path goes on to the left, so that it does not start at the root of a machine.
fn is_inside_a_path(c: char) -> bool {
    is_in_a_name(c) || matches!(c, '.' | '-' | '}' | '>' | ')' | '*' | '$')
}

/// Line and name of every dependency in a manifest, whatever it is for.
fn dependencies(manifest: &str) -> Vec<(usize, String)> {
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
fn private_keys(text: &str) -> impl Iterator<Item = usize> {
    text.match_indices(KEY).filter_map(move |(index, _)| {
        let (before, block) = text.split_at(index);
        let marks = before.rsplit_once("-----").is_some_and(|(_, mark)| mark.starts_with("BEGIN "));
        let body = block.strip_prefix(KEY)?.split("-----").next()?;
        let base64 = body.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=')).count();
        (marks && base64 >= LEAST_KEY).then(|| before.matches('\n').count().saturating_add(1))
    })
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
fn mitigations(page: &str) -> impl Iterator<Item = (usize, &str, &str)> {
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
fn is_a_test(files: &[File], claim: &str) -> bool {
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

/// The sections of the threat model.
const BOUNDARIES: [&str; 5] = ["Client network", "Plugin", "Configuration", "Cluster network", "Operator"];
/// Where the pages about clients are.
const CLIENT_PAGES: &str = "docs/clients/";
const MAX_WIDTH: usize = 120;
const MAX_LINES: usize = 600;
/// Base64 of a private key: the shortest kind, Ed25519, has 64 characters.
const LEAST_KEY: usize = 64;
/// What reads Arrow's IPC format.
const ARROW_READERS: &[&str] = &[
    "FileDecoder",
    "FileReader",
    "FlightDataDecoder",
    "FlightRecordBatchStream",
    "StreamDecoder",
    "StreamReader",
    "flight_data_to_arrow_batch",
    "flight_data_to_batches",
    "read_dictionary",
    "read_record_batch",
    "root_as_message",
];
const FOLDERS: &[&str] = &["auth-plugins/", "certs/", "docs/", "src/", "tests/", "xtask/"];
const HEAVY: &[&str] = &["arrow", "ballista", "datafusion", "tonic", "tower"];
/// What a reader of a client's page puts in.
const PLACEHOLDERS: &[&str] = &["CA", "HOST", "PORT", "TOKEN"];
/// The pages of clients that cannot be run here: their calls are repeated, so no test has their string.
const REPLICAS: &[&str] = &["docs/clients/grafana.md", "docs/clients/odbc-powerbi.md"];
/// What makes a plan of text.
const PLAN_MAKERS: &[&str] = &[
    "DFParser",
    "SqlToRel",
    "create_logical_expr",
    "create_logical_plan",
    "sql_to_expr",
    "sql_to_statement",
    "sql_with_options",
    "statement_to_plan",
];
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
/// The functions of `tonic::Status` that make one.
const STATUS_MAKERS: &[&str] = &[
    "aborted",
    "already_exists",
    "cancelled",
    "data_loss",
    "deadline_exceeded",
    "failed_precondition",
    "from_error",
    "internal",
    "invalid_argument",
    "new",
    "not_found",
    "ok",
    "out_of_range",
    "permission_denied",
    "resource_exhausted",
    "unauthenticated",
    "unavailable",
    "unimplemented",
    "unknown",
    "with_details",
    "with_details_and_metadata",
    "with_error_details",
    "with_error_details_vec",
    "with_metadata",
];
// Apart, so that this file does not say them itself.
const KEY: &str = concat!("KEY", "-----");
const MACHINE_PATHS: &[&str] = &[concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/ho", "me/")];
const REGISTRIES: &[&str] = &[
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("python", "hosted.org"),
    concat!("maven", ".org"),
    concat!("proxy.", "golang.org"),
    concat!("npm", "js.org"),
];
const UNDONE: &[&str] = &["#[ignore", "#[should_panic", "todo!", "unimplemented!", "dbg!"];
const UNSAFE: &str = "unsafe";
