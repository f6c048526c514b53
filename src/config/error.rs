//! What is wrong with a configuration: file, line, key and one sentence for each finding.
//!
//! Made for the operator who has to mend the file. Must not hold the value of anything that could be a secret, and
//! must not print a control character: a sentence is always one line.

use std::fmt;
use std::path::{Path, PathBuf};

/// Every finding of one configuration, in the order of the file.
///
/// Its `Display` prints one finding a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadErrors(Vec<LoadError>);

/// One finding. Its `Display` is one readable sentence, such as
/// ``portcullis.toml:12: server.tls.cert: cannot read `server.pem`: no such file``.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    file: PathBuf,
    key: String,
    line: usize,
    kind: Problem,
}

/// The ways in which a configuration can be unusable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A key whose bytes are all the same is a placeholder, not a key.
    #[error("all bytes of the key are equal, which is not a random key")]
    AllBytesEqual,
    /// A file that the configuration names, as it is written there.
    #[error("cannot read {}: {why}", quoted(.path))]
    CannotRead {
        /// The path as written.
        path: String,
        /// The reason of the operating system.
        why: String,
    },
    /// A table named with too few or too many parts.
    #[error("expected a table, found {found}: tables are configured as `[catalog.<catalog>.<schema>.<table>]`")]
    CatalogShape {
        /// What stands there.
        found: &'static str,
    },
    /// `danger_plaintext` where others can listen.
    #[error(
        "refused, because the scheme {} sends its credential with every call and {} is not a loopback address: \
         use `[server.tls]`",
        quoted(.scheme),
        quoted(.listen)
    )]
    DangerPlaintextReachable {
        /// The name of the first such scheme.
        scheme: String,
        /// The address that others can reach.
        listen: String,
    },
    /// Something that must be unique is not.
    #[error("{} is given twice, first in line {first_line}", quoted(.given))]
    Duplicate {
        /// What is given twice.
        given: String,
        /// Where it was given first.
        first_line: usize,
    },
    /// The same sealing key twice; the key itself is not told.
    #[error("the same key is given twice")]
    DuplicateKey,
    /// A list or a text without content.
    #[error("must not be empty")]
    Empty,
    /// A secret file that others on the machine can read.
    #[error("{} can be read by its group or by everyone: its mode must be 0600 or 0400", quoted(.path))]
    Exposed {
        /// The path as written.
        path: String,
    },
    /// A network whose address has bits behind its prefix.
    #[error(
        "{} has bits behind its prefix: write {} for the whole network, or the address alone for one host",
        quoted(.given),
        quoted(.network)
    )]
    HostBits {
        /// The network as written.
        given: String,
        /// The one that was probably meant.
        network: String,
    },
    /// A value of another form than the key needs.
    #[error("{} is not {expected}", quoted(.given))]
    Malformed {
        /// The value as written; never used for secrets.
        given: String,
        /// What the key needs.
        expected: &'static str,
    },
    /// Two grants that somebody could have on one table at the same time.
    #[error(
        "{} is masked by another expression in line {other_line}, and both grants can apply to one principal and table",
        quoted(.column)
    )]
    MaskConflict {
        /// The column.
        column: String,
        /// Where the other mask is.
        other_line: usize,
    },
    /// A required key.
    #[error("missing, and it has no default")]
    Missing,
    /// A location in a store that is not configured.
    #[error("there is no `[object_store.\"{}\"]`, and only configured stores are reached", OneLine(.store))]
    NoStore {
        /// The store.
        store: String,
    },
    /// No transport was chosen.
    #[error("no transport is chosen: `[server.tls]` with `cert` and `key` is needed")]
    NoTransport,
    /// Not a sealing key; the text itself is not told.
    #[error("not the base64 of exactly 32 bytes: `portcullis new-key` makes one")]
    NotAKey,
    /// Not SQL that a grant can have.
    #[error("{} is not one SQL expression over a table's columns: {}", quoted(.given), OneLine(.why))]
    NotAnExpression {
        /// The text as written.
        given: String,
        /// What is wrong with it.
        why: String,
    },
    /// A word out of a closed list.
    #[error("{} is not known, expected {}", quoted(.given), one_of(.known))]
    NotOneOf {
        /// The word as written.
        given: String,
        /// The words that are known.
        known: Vec<&'static str>,
    },
    /// A number, size or duration outside its range.
    #[error("{} is not between {} and {}", quoted(.given), quoted(.min), quoted(.max))]
    OutOfRange {
        /// The value as written.
        given: String,
        /// The least value.
        min: String,
        /// The greatest value.
        max: String,
    },
    /// Breaks a rule of its key; the sentence says which.
    #[error("{} {rule}", quoted(.given))]
    Rule {
        /// The value as written; never used for secrets.
        given: String,
        /// What the value must be or do.
        rule: &'static str,
    },
    /// A secret that the environment does not hold.
    #[error("the environment variable {} is {why}", quoted(.name))]
    SecretNotSet {
        /// The variable's name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A secret written in none of the three ways.
    #[error("expected a string, `{{ env = \"NAME\" }}` or `{{ file = \"PATH\" }}`, found {found}")]
    SecretShape {
        /// What stands there; never the value.
        found: &'static str,
    },
    /// Not TOML.
    #[error("not valid TOML: {0}")]
    Syntax(String),
    /// Both transports were chosen.
    #[error("excludes `[server.tls]`: choose one of them")]
    TwoTransports,
    /// A key that this version does not know.
    #[error("unknown key {}, expected {}", quoted(.given), one_of(.expected))]
    UnknownKey {
        /// The key as written.
        given: String,
        /// The keys that are known in its place.
        expected: Vec<&'static str>,
    },
    /// The configuration file itself.
    #[error("cannot read the configuration: {0}")]
    Unreadable(String),
    /// Something that this version does not offer; the sentence says what.
    #[error("{0} in this version")]
    Unsupported(String),
    /// A value of another TOML type.
    #[error("expected {expected}, found {found}")]
    WrongType {
        /// What the key needs.
        expected: &'static str,
        /// What stands there; never the value.
        found: &'static str,
    },
}

impl LoadErrors {
    /// INVARIANT: `findings` is not empty; [`super::file`] is the only caller.
    pub(super) fn new(mut findings: Vec<LoadError>) -> Self {
        findings.sort_by_key(|finding| finding.line);
        Self(findings)
    }

    /// The findings, in the order of the file.
    pub fn iter(&self) -> std::slice::Iter<'_, LoadError> {
        self.0.iter()
    }
}

impl fmt::Display for LoadErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, finding) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{finding}")?;
        }
        Ok(())
    }
}

impl std::error::Error for LoadErrors {}

impl<'a> IntoIterator for &'a LoadErrors {
    type Item = &'a LoadError;
    type IntoIter = std::slice::Iter<'a, LoadError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl LoadError {
    /// An empty key means the file as a whole, line 0 that the finding has no line: a missing section, an unreadable
    /// file.
    pub(super) fn new(file: &Path, key: String, line: usize, kind: Problem) -> Self {
        Self { file: file.to_owned(), key, line, kind }
    }

    /// The configuration file, as it was named when it was loaded.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The full key, such as `server.tls.cert` or `auth[0].scheme`; empty when the finding is about the whole file.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The line in the file, from 1; 0 when what is wrong is that something is not there.
    pub fn line(&self) -> usize {
        self.line
    }

    /// What is wrong.
    pub fn kind(&self) -> &Problem {
        &self.kind
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", OneLine(&self.file.to_string_lossy()))?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", OneLine(&self.key))?;
        }
        write!(f, ": {}", self.kind)
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The sentence already holds the problem; a source would print it twice.
        None
    }
}

/// User input in backticks.
fn quoted(text: &str) -> String {
    format!("`{}`", OneLine(text))
}

/// `a` or one of `a`, `b`.
fn one_of(words: &[&str]) -> String {
    let list = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(", ");
    if words.len() > 1 { format!("one of {list}") } else { list }
}

/// Text that cannot break a line, hide part of it, or fill a screen.
struct OneLine<'a>(&'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, character) in self.0.chars().enumerate() {
            if index >= LONGEST_QUOTE {
                return f.write_str("…");
            }
            // `escape_debug` also knows invisible and bidirectional characters; quotes and backslashes can stay.
            match character {
                '"' | '\'' | '\\' => write!(f, "{character}")?,
                other => write!(f, "{}", other.escape_debug())?,
            }
        }
        Ok(())
    }
}

const LONGEST_QUOTE: usize = 300;
