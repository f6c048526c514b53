//! Client programs that come as crates: `flight_sql_client`, the command line of `arrow-flight`.
//!
//! Installed by the ordinary `cargo install` in the version of the lock file, into the target folder, and kept there.
//! Must not use the workspace: features of a tool would be unified with those of the gate.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Places;
use crate::run::{Trouble, answers, say, succeed};
use crate::rust::cargo;

/// TLS by the smaller of the two stacks, with the roots of the machine, so that `SSL_CERT_FILE` names a CA.
const FEATURES: &str = "cli,flight-sql,tls-ring,tls-native-roots";

/// The installed `flight_sql_client`.
pub(crate) fn flight_sql_client(places: &Places) -> Result<PathBuf, Trouble> {
    let lock = places.root.join("Cargo.lock");
    let lock = fs::read_to_string(&lock).map_err(|error| trouble("read", &lock, &error))?;
    let version = locked(&lock, "arrow-flight")
        .ok_or_else(|| Trouble::new("Cargo.lock names no version of `arrow-flight`".to_owned()))?;

    let folder = places.target.join("clients-tools");
    let program = folder.join("bin/flight_sql_client");
    let marker = folder.join("flight_sql_client.txt");
    let wanted = format!("{version} {FEATURES}");
    // The marker is written last, as for the Python environment.
    if fs::read_to_string(&marker).is_ok_and(|installed| installed == wanted)
        && answers(Command::new(&program).arg("--help"))
    {
        say(&format!("flight_sql_client: {} (kept)", folder.display()));
        return Ok(program);
    }
    succeed(
        cargo(places)
            .args(["install", "arrow-flight", "--version", &format!("={version}"), "--bin", "flight_sql_client"])
            .args(["--locked", "--features", FEATURES, "--debug", "--force", "--quiet", "--root"])
            .arg(&folder)
            // A folder of its own, for two builds with other features would undo each other's work.
            .arg("--target-dir")
            .arg(folder.join("target"))
            .env("CARGO_PROFILE_DEV_DEBUG", "false"),
    )?;
    fs::write(&marker, wanted).map_err(|error| trouble("write", &marker, &error))?;
    Ok(program)
}

/// The version of a package in the text of a lock file.
fn locked<'lock>(lock: &'lock str, package: &str) -> Option<&'lock str> {
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name);
    lines.nth(1)?.strip_prefix("version = \"")?.strip_suffix('"')
}

fn trouble(what: &str, path: &Path, error: &std::io::Error) -> Trouble {
    Trouble::new(format!("cannot {what} `{}`: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "[[package]]\nname = \"arrow-flight-x\"\nversion = \"1.0.0\"\n\n[[package]]\n\
                        name = \"arrow-flight\"\nversion = \"59.3.2\"\nsource = \"registry\"\n";

    #[test]
    fn the_locked_version_is_found_by_the_whole_name() {
        assert_eq!(locked(LOCK, "arrow-flight"), Some("59.3.2"));
    }

    #[test]
    fn a_package_that_is_not_locked_has_no_version() {
        assert_eq!(locked(LOCK, "arrow"), None);
    }
}
