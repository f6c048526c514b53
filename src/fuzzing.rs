//! What fuzz targets attack inside the gate; exists under `cfg(fuzzing)` only, which no product build sets.
//!
//! Every function takes any bytes and asserts what the parser behind it promises. Private parsers are compiled here a
//! second time, from the very same files, so that nothing is opened for the sake of fuzzing. Must hold no parser of its
//! own and must not make an identity: the caller brings them.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a broken promise is a finding")]

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use portcullis_auth::{Clock, Principal, Secret};

use crate::seal::Sealer;

mod messages;
mod sealed;
#[cfg(feature = "substrait")]
mod substrait;
mod text;

mod input;

#[path = "sql/callable.rs"]
mod callable;
#[expect(dead_code, unreachable_pub, reason = "a second copy, of which only a part is attacked")]
#[path = "sql/caps.rs"]
mod caps;
#[expect(dead_code, reason = "a second copy, of which only a part is attacked")]
#[path = "flight/command.rs"]
mod command;
#[path = "flight/handle.rs"]
mod handle;
#[path = "flight/metadata/pattern.rs"]
mod pattern;
#[expect(dead_code, unreachable_pub, reason = "a second copy, of which only a part is attacked")]
#[path = "listen/proxy.rs"]
mod proxy;
#[expect(dead_code, reason = "a second copy, of which only a part is attacked")]
#[path = "flight/session_actions.rs"]
mod session_actions;

pub use messages::{action, command, session_options};
#[cfg(feature = "substrait")]
pub use substrait::substrait;
pub use text::{pattern, proxy_header, sql_caps};

/// A gate's keys and two who call it. The time stands still, and the keys are known to everybody.
pub struct Gate {
    caller: Principal,
    stranger: Principal,
    sealer: Arc<Sealer>,
    /// Keys that never seal anything. The fuzzer looks over the targets' shoulders and puts what was sealed into its
    /// inputs, so that bytes of which none may open are given to these.
    unused: Arc<Sealer>,
}

impl Gate {
    /// Two identities that differ.
    pub fn new(caller: Principal, stranger: Principal) -> Self {
        assert_ne!(caller.key(), stranger.key());
        let sealer = |key: Vec<u8>| Arc::new(Sealer::new(vec![Secret::new(key)]).unwrap());
        Self { caller, stranger, sealer: sealer((0..32).collect()), unused: sealer((32..64).collect()) }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now(&self) -> SystemTime {
        now()
    }
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(1_750_000_000)).unwrap()
}
