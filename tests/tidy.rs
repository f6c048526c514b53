//! Repository rules as tests: what may be named where, what may not be written at all, and which claims must hold.
//!
//! Reads the files of the repository and nothing else. Must not use a crate, ours or another's, so that it can also be
//! run without the engine: `CARGO_MANIFEST_DIR=. rustc --test --edition 2024 tests/tidy.rs`.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

#[path = "tidy/claims.rs"]
mod claims;
#[path = "tidy/files.rs"]
mod files;
#[path = "tidy/mask.rs"]
mod mask;
#[path = "tidy/text.rs"]
mod text;

use claims::{is_a_test, mitigations};
use files::{File, at, check, files, is_of_tests, product_files, rust_files, test_modules, without_tests};
use mask::Mask;
use text::{
    KEY, dependencies, is_inside_a_path, lines_naming, lines_with, name_at_start, numbered, private_keys, split_at_name,
};

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
    // An example that is a workspace of its own repeats them.
    let all = files();
    let lints = |file: &File| file.text.split_once("[workspace.lints.").map(|(_, lints)| lints.to_owned());
    let ours = all.iter().find(|file| file.path == "Cargo.toml").and_then(lints);
    check(all.into_iter().filter(|file| file.path.ends_with("Cargo.toml") && lints(file).is_some()), |file| {
        if lints(file) == ours { vec![] } else { vec![(1, "has other lints than the gate".to_owned())] }
    });
}

#[test]
fn no_private_key_is_kept() {
    check(files(), |file| private_keys(&file.text).map(|line| (line, "holds a private key".to_owned())).collect());
}

#[test]
fn no_file_names_a_machine_or_a_registry() {
    // A lock file names its registry by its well-known name, for everybody the same.
    check(files().into_iter().filter(|file| !file.path.ends_with("Cargo.lock")), |file| {
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
fn the_rules_see_what_they_look_for() {
    assert_eq!(lines_naming("use rustls;\nuse rustls_pki_types;\nx::rustls::y", "rustls"), [1, 3]);
    assert_eq!(without_tests("a\n#[cfg(test)]\nmod tests {\n    b\n}\nc"), "a\n\n\n\n\nc");
    assert_eq!(test_modules("src/a.rs", "#[cfg(test)]\nmod b;\nmod c;\n"), ["src/a/b.rs"]);
    assert_eq!(test_modules("src/lib.rs", "#[cfg(test)]\nmod b;\n"), ["src/b.rs"]);
    let of_tests = |path| is_of_tests(&["src/a/tests.rs".to_owned()], path);
    assert!(of_tests("src/a/tests.rs") && of_tests("src/a/tests/b.rs"));
    assert!(!of_tests("src/a/tests_of.rs") && !of_tests("src/a.rs"));
    let manifest = "[package]\nname = \"a\"\n[dependencies]\nb.workspace = true\n[dev-dependencies.c]\npath = \"c\"\n";
    assert_eq!(dependencies(manifest), [(4, "b".to_owned()), (5, "c".to_owned())]);
    let key =
        |kind: &str, body: &str| format!("\n-----BEGIN {kind}PRIVATE {KEY}\n{body}\n-----END {kind}PRIVATE {KEY}\n");
    for kind in ["", "EC ", "RSA ", "OPENSSH ", "ENCRYPTED "] {
        assert_eq!(private_keys(&key(kind, &"Ab+/".repeat(16))).collect::<Vec<_>>(), [2], "{kind}");
        assert_eq!(private_keys(&key(kind, "MAA=")).count(), 0, "{kind}: an example without a key in it");
    }
}

/// The sections of the threat model.
const BOUNDARIES: [&str; 5] = ["Client network", "Plugin", "Configuration", "Cluster network", "Operator"];
const MAX_WIDTH: usize = 120;
const MAX_LINES: usize = 600;
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
const HEAVY: &[&str] = &["arrow", "ballista", "datafusion", "tonic", "tower"];
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
