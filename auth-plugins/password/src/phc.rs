//! One stored hash: its text form, its making and its check.
//!
//! The form is the PHC string of argon2id, `$argon2id$v=19$m=…,t=…,p=…$salt$output`, read more strictly than the format
//! allows: its numbers decide how much memory a stranger can make this process use. Must not show a salt or an output.

use std::fmt;
use std::ops::RangeInclusive;

use argon2::{Algorithm, Argon2, Block, Params, Version};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::rand;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use portcullis_auth::Secret;
use zeroize::Zeroizing;

/// The hash of a new password, for `users.toml`: argon2id with OWASP's parameters and a random salt, as a PHC string.
/// It takes as long as a login, so it does not belong on a thread that serves calls.
///
/// # Errors
///
/// If no client could send this password in a `Basic` credential, or if there is not enough memory or randomness.
pub fn hash(password: &Secret) -> Result<String, HashError> {
    check_sendable(password.expose())?;
    StoredHash::make(password, &Params::DEFAULT).map(|stored| stored.to_string())
}

/// Why a password was not hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HashError {
    /// It holds a line end, a tab or another control character.
    #[error("the password holds a control character")]
    ControlCharacter,
    /// There is none.
    #[error("the password is empty")]
    Empty,
    /// There is not enough memory to hash it.
    #[error("there is not enough memory to hash the password")]
    Memory,
    /// It is not text.
    #[error("the password is not UTF-8")]
    NotText,
    /// The operating system gave no random bytes.
    #[error("the operating system gave no random bytes")]
    Random,
    /// It is longer than a client may send.
    #[error("the password is longer than 1024 bytes")]
    TooLong,
}

/// A hash with everything needed to check a password against it. Without `PartialEq`: the only comparison takes
/// constant time.
#[derive(Clone)]
pub(crate) struct StoredHash {
    params: Params,
    salt: Vec<u8>,
    output: Vec<u8>,
}

impl StoredHash {
    /// Reads a PHC string; the error says what is wrong and repeats nothing.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let rest = text.strip_prefix("$argon2id$").ok_or(NOT_ARGON2ID)?;
        let rest = rest.strip_prefix("v=19$").ok_or("must be of version 19 (`v=19`)")?;
        let mut parts = rest.split('$');
        let (Some(numbers), Some(salt), Some(output), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err("must have parameters, a salt and an output, and nothing else");
        };

        let mut numbers = numbers.split(',');
        let mut number = |name| numbers.next().and_then(|part| decimal(part.strip_prefix(name)?));
        let (Some(m), Some(t), Some(p), None) = (number("m="), number("t="), number("p="), numbers.next()) else {
            return Err("must have the parameters `m=…,t=…,p=…`, and nothing else");
        };
        if !MEMORY_KIB.contains(&m) {
            return Err("must have an `m` from 7168 to 262144 (KiB of memory)");
        }
        if !PASSES.contains(&t) {
            return Err("must have a `t` from 1 to 10 (passes)");
        }
        if !LANES.contains(&p) {
            return Err("must have a `p` from 1 to 4 (lanes)");
        }

        let salt = BASE64_STANDARD_NO_PAD.decode(salt).ok().filter(|salt| SALT_BYTES.contains(&salt.len()));
        let salt = salt.ok_or("must have a salt of 8 to 64 bytes, in base64 without padding")?;
        let output = BASE64_STANDARD_NO_PAD.decode(output).ok().filter(|output| OUTPUT_BYTES.contains(&output.len()));
        let output = output.ok_or("must have an output of 16 to 64 bytes, in base64 without padding")?;

        let params = Params::new(m, t, p, Some(output.len())).map_err(|_| "has parameters that do not fit together")?;
        Ok(Self { params, salt, output })
    }

    /// The hash of `password` under a new random salt.
    pub(crate) fn make(password: &Secret, params: &Params) -> Result<Self, HashError> {
        let mut salt = vec![0; NEW_SALT_BYTES];
        rand::fill(&mut salt).map_err(|_| HashError::Random)?;
        let params = Params::new(params.m_cost(), params.t_cost(), params.p_cost(), Some(NEW_OUTPUT_BYTES))
            .map_err(|_| HashError::Memory)?;
        let mut stored = Self { params, salt, output: vec![0; NEW_OUTPUT_BYTES] };
        let output = stored.output_of(&mut Memory::default(), password.expose()).ok_or(HashError::Memory)?;
        stored.output = output.to_vec();
        Ok(stored)
    }

    /// What no password hashes to, and that costs as much to check as `like`.
    pub(crate) fn nobody(like: Option<&Self>) -> Self {
        let (params, salt, output) = match like {
            Some(like) => (like.params.clone(), like.salt.len(), like.output.len()),
            None => (Params::DEFAULT, NEW_SALT_BYTES, NEW_OUTPUT_BYTES),
        };
        Self { params, salt: vec![0; salt], output: vec![0; output] }
    }

    /// How much a check costs, for comparison: blocks of memory times passes over them.
    pub(crate) fn cost(&self) -> u64 {
        u64::from(self.params.m_cost()).saturating_mul(u64::from(self.params.t_cost()))
    }

    /// Whether a check costs less than each of the parameter sets that OWASP gives as a minimum.
    pub(crate) fn is_weak(&self) -> bool {
        self.cost() < OWASP_MINIMUM
    }

    /// Hashes `password` and compares. Takes tens of milliseconds, and the memory that the parameters say.
    pub(crate) fn check(&self, memory: &mut Memory, password: &[u8]) -> Outcome {
        match self.output_of(memory, password) {
            Some(output) if verify_slices_are_equal(&output, &self.output).is_ok() => Outcome::Fits,
            Some(_) => Outcome::Wrong,
            None => Outcome::Failed,
        }
    }

    fn output_of(&self, memory: &mut Memory, password: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let blocks = memory.blocks(self.params.block_count())?;
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, self.params.clone());
        let mut output = Zeroizing::new(vec![0; self.output.len()]);
        let hashed = argon2.hash_password_into_with_memory(password, &self.salt, &mut output, &mut *blocks);
        // The first blocks are a fast hash of the password: left behind, they would undo what the slow one is for.
        blocks.fill(Block::new());
        hashed.ok().map(|()| output)
    }
}

impl fmt::Display for StoredHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (m, t, p) = (self.params.m_cost(), self.params.t_cost(), self.params.p_cost());
        let (salt, output) = (BASE64_STANDARD_NO_PAD.encode(&self.salt), BASE64_STANDARD_NO_PAD.encode(&self.output));
        write!(f, "$argon2id$v=19$m={m},t={t},p={p}${salt}${output}")
    }
}

impl fmt::Debug for StoredHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Passwords can be guessed from the whole of it.
        f.write_str("$argon2id$…")
    }
}

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It could not be made: there was not enough memory.
    Failed,
    /// It is the password.
    Fits,
    /// It is another.
    Wrong,
}

/// The memory of one hashing thread, kept between hashes. It never grows beyond what the dearest hash needs.
#[derive(Default)]
pub(crate) struct Memory(Vec<Block>);

impl Memory {
    fn blocks(&mut self, count: usize) -> Option<&mut [Block]> {
        // Reserved by hand, since running out of memory is to fail one login and not the process.
        self.0.try_reserve_exact(count.saturating_sub(self.0.len())).ok()?;
        if self.0.len() < count {
            self.0.resize(count, Block::new());
        }
        self.0.get_mut(..count)
    }
}

/// The rules of a `Basic` credential, so that what is hashed can be sent.
fn check_sendable(password: &[u8]) -> Result<(), HashError> {
    if password.is_empty() {
        return Err(HashError::Empty);
    }
    if password.len() > MAX_PASSWORD {
        return Err(HashError::TooLong);
    }
    let text = std::str::from_utf8(password).map_err(|_| HashError::NotText)?;
    if text.chars().any(char::is_control) { Err(HashError::ControlCharacter) } else { Ok(()) }
}

/// Digits as they are printed: no sign, no leading zero.
fn decimal(text: &str) -> Option<u32> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

const NOT_ARGON2ID: &str = "must be an argon2id hash, `$argon2id$v=19$…`, as `portcullis hash-password` prints it";

const MEMORY_KIB: RangeInclusive<u32> = 7168..=262_144;
const PASSES: RangeInclusive<u32> = 1..=10;
const LANES: RangeInclusive<u32> = 1..=4;
const SALT_BYTES: RangeInclusive<usize> = 8..=64;
const OUTPUT_BYTES: RangeInclusive<usize> = 16..=64;

const NEW_SALT_BYTES: usize = 16;
const NEW_OUTPUT_BYTES: usize = 32;
const MAX_PASSWORD: usize = 1024;

// The cheapest set of OWASP's password storage cheat sheet: m=7168, t=5, p=1.
const OWASP_MINIMUM: u64 = 7168 * 5;

#[cfg(test)]
mod tests;
