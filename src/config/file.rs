//! Reads a configuration: the TOML file, the files that it names and the environment variables that it names.
//!
//! Turns what is written into a [`Config`] of usable values, or into every finding at once. The only reader of files
//! and of the environment for the configuration; what the keys mean is in `parts.rs`, what a single value looks like in
//! `values.rs`. The TOML is walked by hand (`section.rs`) and not derived with serde, because serde stops at its first
//! finding, prints the value that it did not expect (which may be a secret) and loses the line of what is wrong with a
//! value.

mod auth;
mod grants;
mod parts;
mod section;
mod stores;
mod values;

use std::env::VarError;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use portcullis_auth::Secret;
use toml::de::{DeTable, DeValue};
use url::Url;

use self::section::{Findings, Item, Section, kind};
use self::stores::Stores;
use super::error::{LoadError, LoadErrors, Problem};
use super::{Config, WorkDir};

/// Reads the file at `path`.
pub(super) fn load(path: &Path) -> Result<Config, LoadErrors> {
    let unreadable = |why| LoadErrors::new(vec![LoadError::new(path, String::new(), 0, Problem::Unreadable(why))]);
    let bytes = open(path).and_then(content).map_err(|error| unreadable(why(&error)))?;
    let text = String::from_utf8(bytes).map_err(|_| unreadable("it is not UTF-8".to_owned()))?;
    parse(&text, path)
}

/// Reads `text` as if it stood at `path`.
pub(super) fn parse(text: &str, path: &Path) -> Result<Config, LoadErrors> {
    #[expect(clippy::disallowed_methods, reason = "the one place where the configuration reads the environment")]
    parse_with(text, path, &|name| std::env::var(name))
}

/// [`parse`] with an environment of the caller's.
pub(super) fn parse_with(text: &str, path: &Path, environment: &Environment<'_>) -> Result<Config, LoadErrors> {
    let findings = Findings::new(path, text);
    let (document, syntax) = DeTable::parse_recoverable(text);
    let config = if syntax.is_empty() {
        let around = Surroundings { dir: folder(path), environment };
        Section::root(&findings, document.get_ref()).read(|root| parts::config(root, &around))
    } else {
        // What can be guessed of a broken file would only add findings that are not there.
        syntax.iter().for_each(|error| findings.report_syntax(error));
        None
    };
    let found = findings.into_inner();
    match config {
        Some(config) if found.is_empty() => Ok(config),
        // INVARIANT: a part is absent only after a finding, so `found` is not empty here.
        Some(_) | None => Err(LoadErrors::new(found)),
    }
}

type Environment<'a> = dyn Fn(&str) -> Result<String, VarError> + 'a;

/// What a configuration refers to.
struct Surroundings<'a> {
    /// The folder of the file, absolute.
    dir: PathBuf,
    environment: &'a Environment<'a>,
}

impl Surroundings<'_> {
    /// A path as written, relative to the file.
    fn path(&self, written: &str) -> PathBuf {
        self.dir.join(written)
    }

    /// The path of a file that can be read.
    fn readable(&self, item: &Item<'_>) -> Result<PathBuf, Problem> {
        let written = values::text(item)?;
        let path = self.path(written);
        open(&path).map_err(|error| cannot_read(written, &error))?;
        Ok(path)
    }

    /// The text of a file.
    fn text_of(&self, item: &Item<'_>) -> Result<String, Problem> {
        let written = values::text(item)?;
        let bytes = open(&self.path(written)).and_then(content).map_err(|error| cannot_read(written, &error))?;
        String::from_utf8(bytes).map_err(|_| values::rule(written, "is not text"))
    }

    /// The path of a file that can be read, written as `{ file = "PATH" }`.
    fn file_of(&self, item: &Item<'_>) -> Result<PathBuf, Problem> {
        let shape = || values::wrong(item, "a URL or `{ file = \"PATH\" }`");
        let DeValue::Table(table) = item.value else { return Err(shape()) };
        let mut members = table.iter();
        let (Some((name, value)), None) = (members.next(), members.next()) else { return Err(shape()) };
        if name.get_ref() != "file" {
            return Err(shape());
        }
        self.readable(&Item { value: value.get_ref(), at: item.at.clone() })
    }

    /// The path of a file that is written to: its folder exists.
    fn writable(&self, item: &Item<'_>) -> Result<PathBuf, Problem> {
        let written = values::text(item)?;
        let path = self.path(written);
        if path.is_dir() {
            return Err(values::rule(written, "is a folder"));
        }
        match path.parent() {
            Some(folder) if folder.is_dir() => Ok(path),
            Some(_) | None => Err(values::rule(written, "lies in a folder that does not exist")),
        }
    }

    /// A folder that exists or can come to exist.
    fn work_dir(&self, item: &Item<'_>) -> Result<WorkDir, Problem> {
        let written = values::text(item)?;
        let path = self.path(written);
        match fs::metadata(&path) {
            Ok(found) if found.is_dir() => Ok(WorkDir::At(path)),
            Ok(_) => Err(values::rule(written, "is not a folder")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(WorkDir::At(path)),
            Err(error) => Err(cannot_read(written, &error)),
        }
    }

    /// The URL of a local file or folder that exists, or of something in a configured store.
    fn table_location(&self, item: &Item<'_>, stores: &Stores) -> Result<Url, Problem> {
        let written = values::text(item)?;
        let unusable = || values::rule(written, "cannot be used as the path of a local file");
        let path = if values::is_url(written) {
            let url = values::url(written)?;
            if url.scheme() != "file" {
                return stores.known(values::in_a_store(written, url)?);
            }
            url.to_file_path().map_err(|()| unusable())?
        } else {
            self.path(written)
        };
        let found = fs::metadata(&path).map_err(|error| cannot_read(written, &error))?;
        let path = without_parents(path).map_err(|error| cannot_read(written, &error))?;
        let url = if found.is_dir() { Url::from_directory_path(path) } else { Url::from_file_path(path) };
        url.map_err(|()| unusable())
    }

    /// A secret as text: `"…"`, `{ env = "NAME" }` or `{ file = "PATH" }`.
    fn secret(&self, item: &Item<'_>) -> Result<Secret, Problem> {
        if let Some(plain) = item.value.as_str() {
            return Ok(Secret::new(plain));
        }
        let shape = || Problem::SecretShape { found: kind(item.value) };
        let DeValue::Table(table) = item.value else { return Err(shape()) };
        let mut members = table.iter();
        let (Some((name, value)), None) = (members.next(), members.next()) else { return Err(shape()) };
        match (name.get_ref().as_ref(), value.get_ref().as_str()) {
            ("env", Some(name)) => self.variable(name),
            ("file", Some(written)) => self.secret_file(written),
            (_, _) => Err(shape()),
        }
    }

    /// A secret in a variable of the environment.
    fn variable(&self, name: &str) -> Result<Secret, Problem> {
        let not_set = |why| Problem::SecretNotSet { name: name.to_owned(), why };
        match (self.environment)(name) {
            Ok(secret) => Ok(Secret::new(secret)),
            Err(VarError::NotPresent) => Err(not_set("not set")),
            Err(VarError::NotUnicode(_)) => Err(not_set("not UTF-8")),
        }
    }

    /// A secret in the file that a variable names.
    fn file_of_variable(&self, name: &str) -> Result<Secret, Problem> {
        let path = self.variable(name)?;
        match std::str::from_utf8(path.expose()) {
            Ok(path) if !path.is_empty() => self.secret_file(path),
            Ok(_) | Err(_) => Err(Problem::SecretNotSet { name: name.to_owned(), why: "not a path" }),
        }
    }

    /// A secret in a file that others cannot read.
    fn secret_file(&self, written: &str) -> Result<Secret, Problem> {
        let unreadable = |error| cannot_read(written, &error);
        let file = open(&self.path(written)).map_err(unreadable)?;
        match file.metadata().map(|found| exposed(&found)).map_err(unreadable)? {
            Exposure::Others => Err(Problem::Exposed { path: written.to_owned() }),
            Exposure::OwnerOnly => content(file).map(Secret::new).map_err(unreadable),
        }
    }
}

/// The folder of `path`, absolute, so that it stays what it is when the process changes its own.
fn folder(path: &Path) -> PathBuf {
    let parent = path.parent().unwrap_or(Path::new(""));
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let absolute = std::path::absolute(parent).unwrap_or_else(|_| parent.to_owned());
    without_parents(absolute.clone()).unwrap_or(absolute)
}

/// Resolves `..`, which must not get into a URL. Other paths stay as they are, so that a symbolic link can be turned.
fn without_parents(path: PathBuf) -> io::Result<PathBuf> {
    if path.components().any(|component| component == Component::ParentDir) { fs::canonicalize(path) } else { Ok(path) }
}

/// Opens a regular file. Looks before it opens: opening a pipe would wait for its other end.
fn open(path: &Path) -> io::Result<File> {
    let found = fs::metadata(path)?;
    if found.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !found.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    File::open(path)
}

fn content(mut file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Who can read a file besides its owner.
enum Exposure {
    Others,
    OwnerOnly,
}

#[cfg(unix)]
fn exposed(found: &fs::Metadata) -> Exposure {
    use std::os::unix::fs::MetadataExt as _;
    if found.mode() & 0o077 == 0 { Exposure::OwnerOnly } else { Exposure::Others }
}

/// Elsewhere rights are not in the mode; the operator's own care has to do.
#[cfg(not(unix))]
fn exposed(_: &fs::Metadata) -> Exposure {
    Exposure::OwnerOnly
}

fn cannot_read(written: &str, error: &io::Error) -> Problem {
    Problem::CannotRead { path: written.to_owned(), why: why(error) }
}

/// The reason in the words of an operator.
fn why(error: &io::Error) -> String {
    let known = [
        (io::ErrorKind::IsADirectory, "it is a folder"),
        (io::ErrorKind::NotFound, "no such file"),
        (io::ErrorKind::PermissionDenied, "permission denied"),
    ];
    let words = known.iter().find(|(kind, _)| *kind == error.kind()).map(|(_, words)| (*words).to_owned());
    words.unwrap_or_else(|| error.to_string())
}
