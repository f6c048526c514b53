//! `new-key`: secrets from the system's generator, printed once and kept nowhere.

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis_auth::Expiry;

use super::{Ended, NewKeyArguments, say};

pub(super) fn run(arguments: &NewKeyArguments) -> Result<(), Ended> {
    if !arguments.api_key {
        let mut key = [0_u8; 32];
        rand::fill(&mut key).map_err(|_| Ended::Internal("no random numbers".to_owned()))?;
        return say(STANDARD.encode(key));
    }
    let roles: Vec<&str> = arguments.roles.iter().map(String::as_str).collect();
    let new = portcullis_auth_api_key::generate(&arguments.principal, &roles, Expiry::Never)
        .map_err(|error| Ended::Configuration(error.to_string()))?;
    let key = std::str::from_utf8(new.key.expose()).map_err(|error| Ended::Internal(error.to_string()))?;
    say(format_args!(
        "# the key, for its owner; it is not stored anywhere\n{key}\n\n# for the file that `keys` names"
    ))?;
    say(new.record.trim_end())
}
