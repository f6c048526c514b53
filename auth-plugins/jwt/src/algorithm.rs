//! The signature algorithms a token may be made with.
//!
//! Only asymmetric ones exist here: `none` and the `HS` family cannot be configured, parsed or reached. Must not guess:
//! names are compared exactly.

use std::fmt;
use std::str::FromStr;

use jsonwebtoken::Algorithm as Library;

/// A signature algorithm, as RFC 7518 and RFC 8037 name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Algorithm {
    /// `EdDSA` with Ed25519.
    EdDsa,
    /// `ES256`, with P-256.
    Es256,
    /// `ES384`, with P-384.
    Es384,
    /// `PS256`.
    Ps256,
    /// `PS384`.
    Ps384,
    /// `PS512`.
    Ps512,
    /// `RS256`.
    Rs256,
    /// `RS384`.
    Rs384,
    /// `RS512`.
    Rs512,
}

impl Algorithm {
    /// All there are.
    pub const ALL: [Self; 9] = [
        Self::EdDsa,
        Self::Es256,
        Self::Es384,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
    ];

    /// The name in a token and in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::EdDsa => "EdDSA",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
        }
    }

    pub(crate) fn library(self) -> Library {
        match self {
            Self::EdDsa => Library::EdDSA,
            Self::Es256 => Library::ES256,
            Self::Es384 => Library::ES384,
            Self::Ps256 => Library::PS256,
            Self::Ps384 => Library::PS384,
            Self::Ps512 => Library::PS512,
            Self::Rs256 => Library::RS256,
            Self::Rs384 => Library::RS384,
            Self::Rs512 => Library::RS512,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(text: &str) -> Result<Self, UnknownAlgorithm> {
        Self::ALL.into_iter().find(|algorithm| algorithm.as_str() == text).ok_or(UnknownAlgorithm)
    }
}

/// Not the name of an algorithm that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not one of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 and EdDSA")]
pub struct UnknownAlgorithm;

#[cfg(test)]
mod tests {
    use super::{Algorithm, UnknownAlgorithm};

    #[test]
    fn an_algorithm_is_known_by_its_exact_name() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.as_str().parse(), Ok(algorithm));
        }
    }

    #[test]
    fn none_and_shared_secrets_do_not_exist() {
        // J01, J03, J04, J05.
        for bad in ["", "none", "None", "NoNe", "HS256", "HS384", "HS512", "rs256", "RS256 ", "ES512", "ES256K", "dir"]
        {
            assert_eq!(bad.parse::<Algorithm>(), Err(UnknownAlgorithm), "{bad}");
        }
    }
}
