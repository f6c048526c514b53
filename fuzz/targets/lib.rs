//! Fuzz targets: each takes any bytes, gives them to one parser of client bytes, and asserts what must hold then.
//!
//! No panic is the least of it. A target also asserts what its parser promises: nothing that was not signed is
//! admitted, what was read is written back as it was, two looks see the same. Every target is deterministic, so that
//! an input that was found once is found again: keys come from fixed seeds and the time stands still. Must not read
//! files, sleep, or use the network beyond a loopback socket.
//!
//! An input begins with one byte that chooses what is attacked, a digit in the seeds; `Input` says how the rest is
//! read.

use portcullis_auth::{Attempt, Authenticator, Verdict};

mod authorization;
mod certificate;
#[cfg(feature = "gate")]
mod gate;
mod jwt;

#[path = "../../src/fuzzing/input.rs"]
mod input;

/// A target: its name, which is also that of its seeds' folder, and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// Every target that this build has.
pub fn targets() -> Vec<Target> {
    let outside: [Target; 3] =
        [("authorization", authorization::run), ("certificate", certificate::run), ("jwt", jwt::run)];
    #[cfg(feature = "gate")]
    let inside = gate::TARGETS;
    #[cfg(not(feature = "gate"))]
    let inside: [Target; 0] = [];
    outside.into_iter().chain(inside).collect()
}

/// What a scheme says at once. None of those that are fuzzed may wait for anything.
#[expect(clippy::panic, reason = "a broken promise is a finding")]
fn judged(scheme: &dyn Authenticator, attempt: &Attempt<'_>) -> Verdict {
    let mut verdict = scheme.authenticate(attempt);
    match verdict.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(verdict) => verdict,
        std::task::Poll::Pending => panic!("the scheme `{}` waits", scheme.scheme()),
    }
}

#[cfg(test)]
mod tests {
    //! The seeds as a regression test, without a fuzzer.
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed step fails the test")]

    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_target_takes_its_seeds_and_what_they_can_be_cut_to() {
        for (name, run) in targets() {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
            let seeds: Vec<_> =
                fs::read_dir(&folder).unwrap().map(|seed| fs::read(seed.unwrap().path()).unwrap()).collect();
            assert!(!seeds.is_empty(), "{name} has no seeds");
            for seed in seeds {
                for length in 0..=seed.len() {
                    run(&seed[..length]);
                }
            }
        }
    }
}
