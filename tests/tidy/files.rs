//! The files that rules look at, and what is said of a line that breaks one.
//!
//! Must not know a rule.

use std::fs;
use std::path::Path;

use super::mask::Mask;

/// One text file of the repository.
#[derive(Clone, Debug)]
pub(crate) struct File {
    /// From the root of the repository, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Line and complaint.
pub(crate) type Found = Vec<(usize, String)>;

/// Fails with everything that `rule` finds.
pub(crate) fn check(files: impl IntoIterator<Item = File>, rule: impl Fn(&File) -> Found) {
    let mut looked_at = 0_usize;
    let mut complaints = Vec::new();
    for file in files {
        looked_at = looked_at.saturating_add(1);
        complaints.extend(rule(&file).into_iter().map(|(line, text)| format!("{}:{line}: {text}", file.path)));
    }
    assert!(looked_at > 0, "the rule looked at no file at all");
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

pub(crate) fn at(lines: impl IntoIterator<Item = usize>, complaint: &str) -> Found {
    lines.into_iter().map(|line| (line, complaint.to_owned())).collect()
}

/// Every text file that is not ignored.
pub(crate) fn files() -> Vec<File> {
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

pub(crate) fn rust_files() -> Vec<File> {
    files().into_iter().filter(|file| file.path.ends_with(".rs")).collect()
}

/// The code that ships: no tests, and neither comments nor the insides of strings.
pub(crate) fn product_files() -> impl Iterator<Item = File> {
    let files = rust_files();
    let tests: Vec<String> = files.iter().flat_map(|file| test_modules(&file.path, &file.text)).collect();
    files
        .into_iter()
        .filter(move |file| {
            let shipped = file.path.starts_with("src/") || file.path.contains("/src/");
            shipped && !is_of_tests(&tests, &file.path)
        })
        .map(|file| File { text: without_tests(&Mask::of(&file.text).code), ..file })
}

/// Whether `path` is one of `tests`, or the file of a module inside one.
pub(crate) fn is_of_tests(tests: &[String], path: &str) -> bool {
    let inside = |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    tests.iter().any(|test| path == test || inside(test.trim_end_matches(".rs")))
}

/// The files of modules that are declared behind `#[cfg(test)]`.
pub(crate) fn test_modules(path: &str, text: &str) -> Vec<String> {
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
pub(crate) fn without_tests(text: &str) -> String {
    let Some((before, rest)) = text.split_once("\n#[cfg(test)]\nmod tests {") else { return text.to_owned() };
    let (tests, after) = rest.split_once("\n}").unwrap_or((rest, ""));
    // The header has three line ends, of which the tests' own text holds none.
    let lines = tests.matches('\n').count().saturating_add(3);
    format!("{before}{}{after}", "\n".repeat(lines))
}
