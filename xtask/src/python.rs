//! The Python virtual environments of the client suites, and of what else comes as a Python package.
//!
//! Made from the requirements in the repository by the ordinary pip, kept in the target folder and made anew when
//! the requirements or the interpreter change. Must not touch the machine's own Python packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Places;
use crate::run::{Trouble, answers, say, succeed};

/// The interpreter of the ready environment `folder` with what the file `requirements` of the repository names.
pub(crate) fn prepare(places: &Places, requirements: &str, folder: &str) -> Result<PathBuf, Trouble> {
    let version = version()?;
    let requirements = places.root.join(requirements);
    let wanted = read(&requirements)?;
    let wanted = format!("{version}\n{wanted}");

    let folder = places.target.join(folder);
    let python = folder.join("bin/python");
    let marker = folder.join("installed.txt");
    // The marker is written last, so an environment that was interrupted while it was made is made again.
    if fs::read_to_string(&marker).is_ok_and(|installed| installed == wanted)
        && answers(Command::new(&python).arg("--version"))
    {
        say(&format!("python environment: {} (kept)", folder.display()));
        return Ok(python);
    }
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| trouble("remove", &folder, &error))?;
    }
    succeed(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    succeed(
        Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"])
            .arg("--requirement")
            .arg(&requirements),
    )?;
    fs::write(&marker, wanted).map_err(|error| trouble("write", &marker, &error))?;
    Ok(python)
}

/// The machine's Python, if it can do what is needed.
fn version() -> Result<String, Trouble> {
    let found = Command::new("python3").args(["-c", PROBE]).stdin(Stdio::null()).output();
    match found {
        Err(_) => {
            Err(Trouble::new("`python3` was not found; install Python 3.11 or newer (Debian: `python3`)".to_owned()))
        }
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        Ok(_) => Err(Trouble::new(
            "`python3` is older than 3.11 or cannot make a virtual environment; install Debian's `python3-venv`"
                .to_owned(),
        )),
    }
}

fn read(path: &Path) -> Result<String, Trouble> {
    fs::read_to_string(path).map_err(|error| trouble("read", path, &error))
}

fn trouble(what: &str, path: &Path, error: &std::io::Error) -> Trouble {
    Trouble::new(format!("cannot {what} `{}`: {error}", path.display()))
}

/// Prints what an environment depends on, and fails where none can be made.
const PROBE: &str = "import ensurepip, sys, venv
assert sys.version_info >= (3, 11)
print(sys.version, sys.base_prefix)";
