//! Requests per identity, by the most generous rate that its roles have.
//!
//! Counted by identity key: another token, connection or address of the same identity brings no new quota. Must not
//! know what a request is.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use portcullis_auth::Principal;

use super::keyed::Keyed;
use super::{Exceeded, MOST_KEYS, Rate, Ticks};

/// How many requests an identity may make.
#[derive(Debug)]
pub struct PerPrincipal {
    common: Keyed<u64>,
    /// The most generous one first.
    by_role: Vec<(String, Keyed<u64>)>,
    /// A key has two texts of any length: their hash stands for it.
    hasher: RandomState,
}

impl PerPrincipal {
    /// `common` for those of whose roles none has a rate in `by_role`.
    pub fn new(common: Rate, by_role: BTreeMap<String, Rate>, ticks: &Ticks) -> Self {
        let keyed = |rate| Keyed::new(REQUESTS_PER_PRINCIPAL, rate, MOST_KEYS, ticks.clone());
        let mut by_role: Vec<(String, Rate)> = by_role.into_iter().collect();
        by_role
            .sort_by(|(_, one), (_, other)| other.is_more_generous_than(*one).cmp(&one.is_more_generous_than(*other)));
        Self {
            common: keyed(common),
            by_role: by_role.into_iter().map(|(role, rate)| (role, keyed(rate))).collect(),
            hasher: RandomState::new(),
        }
    }

    /// Counts a request of `principal`.
    pub fn check(&self, principal: &Principal) -> Result<(), Exceeded> {
        let own = self.by_role.iter().find(|(role, _)| principal.roles().contains(role));
        let limit = own.map_or(&self.common, |(_, limit)| limit);
        limit.check(&self.hasher.hash_one(principal.key()))
    }

    /// Forgets who has come to rest and gives the memory back. To be called every [`SWEEP_EVERY`](super::SWEEP_EVERY).
    pub fn sweep(&self) {
        self.all().for_each(Keyed::sweep);
    }

    /// Identities held: at most [`MOST_KEYS`] for each role that has a rate, and for the rest.
    pub fn keys_held(&self) -> usize {
        self.all().map(Keyed::len).fold(0, usize::saturating_add)
    }

    fn all(&self) -> impl Iterator<Item = &Keyed<u64>> {
        self.by_role.iter().map(|(_, limit)| limit).chain([&self.common])
    }
}

const REQUESTS_PER_PRINCIPAL: &str = "requests_per_principal";
