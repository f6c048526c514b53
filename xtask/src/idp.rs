//! The identity provider of the client suites: one process for all of them, started once and stopped at the end.
//!
//! The work is that of `tests/clients/idp.py`, in the Python environment of the suites. Must not know which provider it
//! is, and must not see its passwords.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Places;
use crate::run::{Trouble, say};
use crate::service::Running;

/// A provider that is built and can be started.
pub(crate) struct Provider {
    python: PathBuf,
    script: PathBuf,
    home: String,
    java: String,
    /// Where the suites find its address, its CA and its administrator.
    folder: PathBuf,
}

/// Fetches and builds what is not here yet; the first time takes a minute.
pub(crate) fn prepare(places: &Places, python: &Path) -> Result<Provider, Trouble> {
    let script = places.root.join("tests/clients/idp.py");
    let folder = places.target.join("clients-idp");
    say(&format!("\nidentity provider: {}", folder.display()));
    let output = script_command(python, &script)
        .arg("prepare")
        .arg(&folder)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Trouble::new(format!("cannot run `idp.py`: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match (output.status.success(), homes(&text)) {
        (true, Some((home, java))) => Ok(Provider {
            python: python.to_path_buf(),
            script,
            home: home.to_owned(),
            java: java.to_owned(),
            folder: places.target.join("clients-idp-run"),
        }),
        (true | false, _) => {
            Err(Trouble::new(format!("`idp.py` could not prepare the identity provider ({})", output.status)))
        }
    }
}

impl Provider {
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts it and returns when it says that it answers.
    pub(crate) fn start(&self) -> Result<Running, Trouble> {
        let mut command = script_command(&self.python, &self.script);
        command.args(["serve", &self.home, &self.java]).arg(&self.folder);
        Running::start("the identity provider", command, START)
    }
}

fn script_command(python: &Path, script: &Path) -> Command {
    let mut command = Command::new(python);
    command.arg(script).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// The two last lines: the provider's home and Java's.
fn homes(text: &str) -> Option<(&str, &str)> {
    let mut lines = text.lines().rev();
    let (java, home) = (lines.next()?, lines.next()?);
    (home.starts_with('/') && java.starts_with('/')).then_some((home, java))
}

/// Longer than what `idp.py` allows itself.
const START: Duration = Duration::from_secs(240);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_homes_are_the_two_last_lines() {
        assert_eq!(homes("fetching\n/target/idp\n/usr/lib/jvm/x\n"), Some(("/target/idp", "/usr/lib/jvm/x")));
    }

    #[test]
    fn without_both_homes_there_are_none() {
        for text in ["", "/target/idp\n", "fetching\n/usr/lib/jvm/x\n", "/target/idp\nno Java\n"] {
            assert_eq!(homes(text), None, "{text}");
        }
    }
}
