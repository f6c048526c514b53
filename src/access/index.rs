//! Finds the grants that apply to one principal and one table without looking at the others.
//!
//! A listing asks for thousands of names, and a configuration may have thousands of grants. Must not judge what a grant
//! says.

use std::collections::HashMap;
use std::sync::Arc;

use portcullis_auth::{Principal, TableName};

use crate::config::{Grant, Grantee, NamePattern};

/// All grants by catalog, schema, table and grantee.
#[derive(Debug, Default)]
pub(super) struct Index(Level<Level<Level<Grantees>>>);

impl Index {
    /// Adds a grant.
    pub(super) fn add(&mut self, grant: &Arc<Grant>) {
        let on = &grant.on;
        self.0.at(&on.catalog).at(&on.schema).at(&on.table).add(grant);
    }

    /// Shows `each` every grant that applies; one that is to several of the principal's roles several times.
    pub(super) fn visit(&self, principal: &Principal, table: TableName<'_>, each: &mut impl FnMut(&Grant)) {
        for schemas in self.0.of(table.catalog) {
            for tables in schemas.of(table.schema) {
                for grantees in tables.of(table.table) {
                    grantees.visit(principal, each);
                }
            }
        }
    }
}

/// What is said of every name, and what of single names.
#[derive(Debug, Default)]
struct Level<T> {
    any: T,
    named: HashMap<String, T>,
}

impl<T: Default> Level<T> {
    fn at(&mut self, pattern: &NamePattern) -> &mut T {
        match pattern {
            NamePattern::Any => &mut self.any,
            NamePattern::Named(name) => self.named.entry(name.clone()).or_default(),
        }
    }

    fn of(&self, name: &str) -> impl Iterator<Item = &T> {
        std::iter::once(&self.any).chain(self.named.get(name))
    }
}

#[derive(Debug, Default)]
struct Grantees {
    everyone: Vec<Arc<Grant>>,
    roles: HashMap<String, Vec<Arc<Grant>>>,
    users: HashMap<String, Vec<Arc<Grant>>>,
}

impl Grantees {
    fn add(&mut self, grant: &Arc<Grant>) {
        for grantee in grant.to.iter() {
            let place = match grantee {
                Grantee::Everyone => &mut self.everyone,
                Grantee::Role(role) => self.roles.entry(role.clone()).or_default(),
                Grantee::User(user) => self.users.entry(user.clone()).or_default(),
            };
            place.push(Arc::clone(grant));
        }
    }

    fn visit(&self, principal: &Principal, each: &mut impl FnMut(&Grant)) {
        let mut show = |grants: &[Arc<Grant>]| grants.iter().for_each(|grant| each(grant));
        show(&self.everyone);
        if let Some(grants) = self.users.get(principal.name()) {
            show(grants);
        }
        // A principal may have hundreds of roles, and a table grants to hundreds: whichever is shorter.
        if self.roles.len() < principal.roles().len() {
            self.roles
                .iter()
                .filter(|(role, _)| principal.roles().contains(*role))
                .for_each(|(_, grants)| show(grants));
        } else {
            principal.roles().iter().filter_map(|role| self.roles.get(role)).for_each(|grants| show(grants));
        }
    }
}
