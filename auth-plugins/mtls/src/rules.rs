//! From the names of a certificate to a principal: ordered rules, and roles by the name they give.
//!
//! The first rule that matches decides, and none that matches means nobody. Must not parse certificates, and must not
//! fall back on a name the operator did not ask for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use rustls_pki_types::CertificateDer;

use crate::leaf::{Leaf, Value};
use crate::path::Authorities;

mod notes;
mod pattern;

use pattern::{Pattern, Template};

/// Which part of a certificate a rule reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Field {
    /// The common name of the subject, for certificates that carry no name of another kind the rules read.
    Cn,
    /// The DNS name in the subject alternative names.
    Dns,
    /// The e-mail address in the subject alternative names.
    Email,
    /// The URI in the subject alternative names, such as a SPIFFE id.
    Uri,
}

impl Field {
    /// The name of this field in configuration and in subjects.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cn => "cn",
            Self::Dns => "dns",
            Self::Email => "email",
            Self::Uri => "uri",
        }
    }

    /// For sentences.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Self::Cn => "the common name",
            Self::Dns => "the DNS name",
            Self::Email => "the e-mail address",
            Self::Uri => "the URI",
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::Cn, Self::Dns, Self::Email, Self::Uri].into_iter().find(|field| field.name() == name)
    }
}

/// `{ uri = "spiffe://corp/svc/*", as = "svc-$1" }`: a pattern, and the name for whoever matches it.
///
/// The pattern covers the whole name. `*` stands for one or more characters of one segment: no `/` in a URI, no `.` in
/// a DNS name, no `@` in an e-mail address, anything in a common name. A segment has one `*` at most, and the scheme
/// and the host of a URI have none. `$1` to `$9` give what the `*` held, in their order, and `$$` is a dollar.
///
/// A name without `$` under a pattern with `*` is allowed: everybody who matches has that name, its grants and its
/// roles. They are still different identities, so none owns what another made.
#[derive(Clone, Debug)]
pub struct Rule {
    field: Field,
    written: String,
    pattern: Pattern,
    name: Template,
}

impl Rule {
    /// Reads a rule as it is configured.
    ///
    /// # Errors
    ///
    /// If nothing could match the pattern, or the name asks for a capture that is not there.
    pub fn parse(field: Field, pattern: &str, name: &str) -> Result<Self, RuleError> {
        let wrong = |part| {
            move |problem| RuleError { field, pattern: pattern.to_owned(), name: name.to_owned(), part, problem }
        };
        let parsed = Pattern::parse(field, pattern).map_err(wrong(RulePart::Pattern))?;
        let name = Template::parse(name, parsed.holes()).map_err(wrong(RulePart::Name))?;
        Ok(Self { field, written: pattern.to_owned(), pattern: parsed, name })
    }

    /// Which part of a certificate it reads.
    pub fn field(&self) -> Field {
        self.field
    }

    fn name_for(&self, value: &str) -> Option<String> {
        self.pattern.captures(value).map(|captures| self.name.fill(&captures))
    }
}

/// A rule that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{{ {} = \"{pattern}\", as = \"{name}\" }}: {part} {problem}", field.name())]
pub struct RuleError {
    field: Field,
    pattern: String,
    name: String,
    part: RulePart,
    problem: &'static str,
}

impl RuleError {
    /// Which half of the rule is wrong.
    pub fn part(&self) -> RulePart {
        self.part
    }

    /// What is wrong, as it is said of that half: "is empty".
    pub fn problem(&self) -> &'static str {
        self.problem
    }
}

/// A half of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RulePart {
    /// The name to give.
    Name,
    /// The pattern.
    Pattern,
}

impl fmt::Display for RulePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "the name to give",
            Self::Pattern => "the pattern",
        })
    }
}

/// Whether a certificate must say that it is for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eku {
    /// A certificate without extended key usage is accepted. One that has it must still list clients.
    DangerOptional,
    /// The extended key usage must be there and list clients.
    Required,
}

/// Who a certificate names, for every certificate.
#[derive(Debug)]
pub struct Rules {
    principals: Vec<Rule>,
    roles: BTreeMap<String, BTreeSet<String>>,
    authorities: Authorities,
    eku: Eku,
}

impl Rules {
    /// Rules in their order, the roles of each name they give, and the CAs that TLS verifies clients with.
    ///
    /// # Errors
    ///
    /// If there is no rule or no CA, a rule stands there twice, or a role or a CA cannot be used.
    pub fn new(
        principals: Vec<Rule>,
        roles: BTreeMap<String, BTreeSet<String>>,
        authorities: &[CertificateDer<'_>],
        eku: Eku,
    ) -> Result<Self, RulesError> {
        if principals.is_empty() {
            return Err(RulesError::NoRule);
        }
        let same = |a: &Rule, b: &Rule| a.pattern == b.pattern && a.field == b.field;
        for (at, rule) in principals.iter().enumerate() {
            if principals.iter().take(at).any(|earlier| same(earlier, rule)) {
                return Err(RulesError::Repeated { rule: at.saturating_add(1) });
            }
        }
        for (principal, given) in &roles {
            let wrong = |error| RulesError::Role { principal: principal.clone(), error };
            check_roles(principal, given.iter().map(String::as_str)).map_err(wrong)?;
        }
        Ok(Self { principals, roles, authorities: Authorities::new(authorities)?, eku })
    }

    /// What an operator should know about rules that are not wrong, one sentence each; rules are counted from one.
    ///
    /// A rule that is never reached, two that fit one certificate and name somebody else, and one that takes every name
    /// of its kind.
    pub fn notes(&self) -> Vec<String> {
        notes::of(&self.principals)
    }

    pub(crate) fn authorities(&self) -> &Authorities {
        &self.authorities
    }

    pub(crate) fn eku(&self) -> Eku {
        self.eku
    }

    /// Whom this leaf names.
    pub(crate) fn decide(&self, leaf: &Leaf) -> Result<Named, Unnamed> {
        // A certificate that names itself in a way the rules read is judged by that alone: its common name is text
        // for people, and often the holder's own choice.
        let beyond_cn = self.principals.iter().any(|rule| {
            rule.field != Field::Cn && matches!(leaf.value(rule.field), Value::One(_) | Value::Unusable(_))
        });
        for rule in &self.principals {
            if rule.field == Field::Cn && beyond_cn {
                continue;
            }
            match leaf.value(rule.field) {
                Value::Absent => (),
                Value::Unusable(problem) => return Err(Unnamed::Unusable(problem.clone())),
                Value::One(value) => {
                    if let Some(name) = rule.name_for(value) {
                        return Ok(Named { name, field: rule.field, value: value.clone() });
                    }
                }
            }
        }
        Err(Unnamed::NoRule)
    }

    /// Whom the rules name now by a subject that [`Named::subject`] made.
    pub(crate) fn name_of(&self, subject: &str) -> Option<String> {
        let (field, value) = subject.split_once(':')?;
        let field = Field::named(field)?;
        self.principals.iter().filter(|rule| rule.field == field).find_map(|rule| rule.name_for(value))
    }

    pub(crate) fn roles_of(&self, name: &str) -> BTreeSet<String> {
        self.roles.get(name).cloned().unwrap_or_default()
    }
}

/// A set of rules that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RulesError {
    /// A CA's certificate cannot be read.
    #[error("certificate {number} of the client CAs cannot be used")]
    Authority {
        /// Which one, counted from one.
        number: usize,
    },
    /// No CA was given.
    #[error("there is no CA for client certificates")]
    NoAuthority,
    /// No rule was given.
    #[error("there is no rule, so no certificate would name anybody")]
    NoRule,
    /// A pattern was given before.
    #[error("rule {rule} has the pattern of an earlier one and would never be used")]
    Repeated {
        /// Which one, counted from one.
        rule: usize,
    },
    /// Roles that a principal cannot have.
    #[error("roles of `{principal}`: {error}")]
    Role {
        /// Whose roles.
        principal: String,
        /// What is wrong with them.
        error: RoleError,
    },
}

/// Whether somebody of this name can have these roles.
///
/// # Errors
///
/// If the name or a role is empty, too long or not plain, or the roles are too many.
pub fn check_roles<'a>(principal: &'a str, roles: impl IntoIterator<Item = &'a str>) -> Result<(), RoleError> {
    let wrong = |given: &str, problem| RoleError { given: given.to_owned(), problem };
    for (before, text) in std::iter::once(principal).chain(roles).enumerate() {
        if before > MAX_ROLES {
            return Err(wrong(principal, "has more than 200 roles"));
        }
        crate::names::canonical(Field::Cn, text).map_err(|problem| wrong(text, problem))?;
    }
    Ok(())
}

/// A name or a role that nobody can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` {problem}")]
pub struct RoleError {
    given: String,
    problem: &'static str,
}

impl RoleError {
    /// The name or role as it was given.
    pub fn given(&self) -> &str {
        &self.given
    }

    /// What is wrong, as it is said of it: "is empty".
    pub fn problem(&self) -> &'static str {
        self.problem
    }
}

/// A principal's name, and the one name in the certificate that gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) name: String,
    field: Field,
    value: String,
}

impl Named {
    /// The kind in front, so that a common name cannot pass for a URI.
    pub(crate) fn subject(&self) -> String {
        format!("{}:{}", self.field.name(), self.value)
    }
}

/// Why a leaf names nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unnamed {
    NoRule,
    Unusable(String),
}

const MAX_ROLES: usize = 200;

#[cfg(test)]
mod tests;
