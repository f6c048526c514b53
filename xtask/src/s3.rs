//! The S3 server of the client suites: one process for all of them, started once and stopped at the end.
//!
//! The work is that of `tests/clients/s3/serve.py`, in a Python environment of its own. Must not know which server it
//! is, and must not see its keys.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::run::Trouble;
use crate::service::Running;
use crate::{Places, python};

/// A server that can be started.
pub(crate) struct Server {
    python: PathBuf,
    script: PathBuf,
    /// Where the suites find its address and its keys.
    folder: PathBuf,
}

/// Fetches what is not here yet.
pub(crate) fn prepare(places: &Places) -> Result<Server, Trouble> {
    Ok(Server {
        python: python::prepare(places, "tests/clients/s3/requirements.txt", "clients-s3-venv")?,
        script: places.root.join("tests/clients/s3/serve.py"),
        folder: places.target.join("clients-s3-run"),
    })
}

impl Server {
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts it and returns when it says that it answers.
    pub(crate) fn start(&self) -> Result<Running, Trouble> {
        let mut command = Command::new(&self.python);
        command.arg(&self.script).arg(&self.folder).env("PYTHONDONTWRITEBYTECODE", "1");
        Running::start("the S3 server", command, START)
    }
}

/// For a machine that is busy with other things; a quiet one needs a few seconds.
const START: Duration = Duration::from_secs(120);
