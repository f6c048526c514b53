//! Configured schemes into authenticators: the one file of the library that names plugin crates.
//!
//! Reads what a scheme keeps outside the configuration. Must not see a request.

use std::path::Path;
use std::sync::Arc;

use portcullis_auth::Authenticator;
use portcullis_auth_api_key::{ApiKeys, KeyFile};

use crate::config::{NonEmpty, Scheme};
use crate::gate::chain::{Chain, DuplicateName};

/// Why a scheme cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SchemeError {
    /// Two schemes have one name.
    #[error(transparent)]
    Duplicate(#[from] DuplicateName),
    /// The scheme's file does not hold what it should.
    #[error("{file}:{line}: {problem}")]
    File {
        /// The scheme's file.
        file: String,
        /// The line in it.
        line: usize,
        /// What is wrong there.
        problem: String,
    },
    /// The scheme's file cannot be read.
    #[error("cannot read `{file}`: {cause}")]
    Read {
        /// The scheme's file.
        file: String,
        /// What the system said.
        cause: std::io::Error,
    },
}

/// The chain in the order of the configuration.
pub fn chain(schemes: &NonEmpty<Scheme>) -> Result<Chain, SchemeError> {
    let mut chain = Chain::new(authenticator(&schemes.first)?);
    for scheme in &schemes.rest {
        chain = chain.then(authenticator(scheme)?)?;
    }
    Ok(chain)
}

fn authenticator(scheme: &Scheme) -> Result<Arc<dyn Authenticator>, SchemeError> {
    match scheme {
        Scheme::ApiKey { name, keys } => Ok(Arc::new(ApiKeys::new(name.clone(), key_file(keys)?))),
    }
}

fn key_file(path: &Path) -> Result<KeyFile, SchemeError> {
    let file = || path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|cause| SchemeError::Read { file: file(), cause })?;
    KeyFile::parse(&text).map_err(|error| SchemeError::File {
        file: file(),
        line: error.line(),
        problem: error.to_string(),
    })
}
