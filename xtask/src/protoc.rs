//! `protoc`, without which the gate's feature `substrait` cannot be built: the one of a Python package.
//!
//! Must not be needed by anything that is built without the feature.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::run::Trouble;
use crate::{Places, python};

/// Fetches it where it is not here yet.
pub(crate) fn prepare(places: &Places) -> Result<(), Trouble> {
    let python = python::prepare(places, "xtask/protoc.txt", FOLDER)?;
    let script = path(places);
    let cannot = |error| Trouble::new(format!("cannot write `{}`: {error}", script.display()));
    fs::write(&script, format!("#!/bin/sh\nexec '{}' -m grpc_tools.protoc \"$@\"\n", python.display()))
        .and_then(|()| fs::set_permissions(&script, fs::Permissions::from_mode(0o755)))
        .map_err(cannot)
}

/// Where cargo finds it, once it is prepared.
pub(crate) fn path(places: &Places) -> PathBuf {
    places.target.join(FOLDER).join("protoc")
}

const FOLDER: &str = "protoc-venv";
