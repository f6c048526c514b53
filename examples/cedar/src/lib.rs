//! Cedar policies as the authorizer of a gate: an example of an embedder's own policy engine.
//!
//! A principal is a `User` whose parents are its roles and whose tags are its attributes; a table has its schema and
//! its catalog as parents; `gate.cedarschema` has the names. Cedar answers yes or no, so what is between comes as
//! annotations of policies that permit to select: `@rows("…")` is an SQL predicate over the rows that it is about,
//! `@mask_email("…")` an SQL expression in place of the column `email`. Several such policies add up: a row is seen if
//! one of them shows it, a column is masked if all of them mask it. A `forbid` takes the action as a whole.
//!
//! Starts from *no*: policies that are not sound are refused as a whole when they are loaded, and an answer that cannot
//! be had is nothing at all. Must not read a file or ask a service; whoever reloads policies makes a new one.
//!
//! ```
//! use portcullis_example_cedar::CedarAuthorizer;
//!
//! let policies = r#"
//!     permit(principal in Role::"admin", action, resource in Catalog::"sales");
//!
//!     @rows("region = user_attribute('region')")
//!     @mask_email("'***'")
//!     permit(principal in Role::"analyst", action == Action::"select", resource in Schema::"sales.public");
//!
//!     forbid(principal, action, resource == Table::"sales.public.salaries") unless { principal in Role::"admin" };
//!
//!     permit(principal in Role::"analyst", action == Action::"read", resource)
//!     when { resource.url like "s3://lake/public/*" };
//! "#;
//! assert!(CedarAuthorizer::new(policies).is_ok());
//! assert!(CedarAuthorizer::new(&policies.replace("@rows", "@row")).is_err());
//! ```

mod annotations;
mod names;

use std::collections::{BTreeSet, HashSet};
use std::fmt;

use cedar_policy::{
    Context, Entities, Entity, EntityUid, Policy, PolicySet, Request, Schema, ValidationMode, Validator,
};
use portcullis_auth::{Access, Action, Authorizer, Decision, Principal, Reach, Rows, TableName};

use crate::names::{id, text, texts, uid, word};

/// What a set of policies permits. Every question is answered from memory.
#[derive(Debug)]
pub struct CedarAuthorizer {
    policies: PolicySet,
    schema: Schema,
}

impl CedarAuthorizer {
    /// Takes `policies` in Cedar's own syntax.
    ///
    /// # Errors
    ///
    /// If they do not parse, do not pass the validator without a warning, or have templates or annotations that would
    /// do nothing: a misspelt `@rows` must not show all rows.
    pub fn new(policies: &str) -> Result<Self, Undecided> {
        let (schema, _) = Schema::from_cedarschema_str(SCHEMA).map_err(because)?;
        let policies: PolicySet = policies.parse().map_err(because)?;
        let found = Validator::new(schema.clone()).validate(&policies, ValidationMode::Strict);
        if !found.validation_passed_without_warnings() {
            let warnings = found.validation_warnings().map(ToString::to_string);
            let findings: Vec<_> = found.validation_errors().map(ToString::to_string).chain(warnings).collect();
            return Err(because(findings.join("; ")));
        }
        if policies.num_of_templates() > 0 {
            return Err(because("nothing links a template"));
        }
        policies.policies().try_for_each(annotations::check)?;
        Ok(Self { policies, schema })
    }

    /// What `principal` may do with `table`.
    ///
    /// # Errors
    ///
    /// If a policy could not be evaluated, and why: for the log of an embedder.
    pub fn access(&self, principal: &Principal, table: TableName<'_>) -> Result<Access, Undecided> {
        let parents = [uid("Catalog", &id([table.catalog]))?, uid("Schema", &id([table.catalog, table.schema]))?];
        let resource = uid("Table", &id([table.catalog, table.schema, table.table]))?;
        let question = self.question(principal, resource, [("name", table.table)], parents)?;
        let mut actions = BTreeSet::new();
        let mut reading = Vec::new();
        for action in Action::ALL {
            let permits = self.permits(&question, word(action))?;
            if !permits.is_empty() {
                actions.insert(action);
            }
            if action == Action::Select {
                reading = permits;
            }
        }
        let access = Access::to(actions);
        let access = match annotations::rows(&reading) {
            Rows::All => access,
            Rows::AnyOf(predicates) => access.only_rows(predicates),
        };
        let masks = annotations::masks(&reading);
        Ok(masks.into_iter().fold(access, |access, (column, mask)| access.masking(column, mask)))
    }

    /// Whether `principal` may reach `location`.
    ///
    /// # Errors
    ///
    /// If a policy could not be evaluated, and why.
    pub fn reaches(&self, principal: &Principal, location: &str, reach: Reach) -> Result<Decision, Undecided> {
        let action = match reach {
            Reach::Read => "read",
            Reach::Write => "write",
        };
        let question = self.question(principal, uid("Location", location)?, [("url", location)], [])?;
        Ok(if self.permits(&question, action)?.is_empty() { Decision::Deny } else { Decision::Allow })
    }

    fn question<const A: usize, const P: usize>(
        &self,
        principal: &Principal,
        resource: EntityUid,
        attributes: [(&str, &str); A],
        parents: [EntityUid; P],
    ) -> Result<Question, Undecided> {
        let key = principal.key();
        let about = [("scheme", key.scheme()), ("authority", key.authority()), ("subject", key.subject())];
        let roles = principal.roles().iter().map(|role| uid("Role", role)).collect::<Result<Vec<_>, _>>()?;
        let tags = principal.attributes().iter().map(|(name, value)| (name.clone(), text(value)));
        let user = uid("User", principal.name())?;
        let entities = [
            Entity::new_with_tags(user.clone(), texts(about), roles, tags).map_err(because)?,
            Entity::new(resource.clone(), texts(attributes), HashSet::from(parents)).map_err(because)?,
        ];
        let entities = Entities::from_entities(entities, Some(&self.schema)).map_err(because)?;
        Ok(Question { user, resource, entities })
    }

    /// The policies that permit it; none if it is forbidden.
    fn permits(&self, question: &Question, action: &str) -> Result<Vec<&Policy>, Undecided> {
        let Question { user, resource, entities } = question;
        let action = uid("Action", action)?;
        let request = Request::new(user.clone(), action, resource.clone(), Context::empty(), Some(&self.schema));
        let request = request.map_err(because)?;
        let answer = cedar_policy::Authorizer::new().is_authorized(&request, &self.policies, entities);
        // Cedar passes over a policy that fails, and it may be the one that forbids.
        if let Some(error) = answer.diagnostics().errors().next() {
            return Err(because(error));
        }
        match answer.decision() {
            cedar_policy::Decision::Allow => {
                let named = answer.diagnostics().reason().map(|id| self.policies.policy(id));
                named.collect::<Option<_>>().ok_or_else(|| because("a policy is not known"))
            }
            cedar_policy::Decision::Deny => Ok(Vec::new()),
        }
    }
}

impl Authorizer for CedarAuthorizer {
    fn table(&self, principal: &Principal, table: TableName<'_>) -> Access {
        self.access(principal, table).unwrap_or_else(|_| Access::none())
    }

    fn location(&self, principal: &Principal, location: &str, reach: Reach) -> Decision {
        self.reaches(principal, location, reach).unwrap_or(Decision::Deny)
    }
}

/// Why policies are refused, or gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecided(String);

impl fmt::Display for Undecided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Undecided {}

struct Question {
    user: EntityUid,
    resource: EntityUid,
    entities: Entities,
}

fn because(cause: impl fmt::Display) -> Undecided {
    Undecided(cause.to_string())
}

const SCHEMA: &str = include_str!("gate.cedarschema");

#[cfg(test)]
mod tests;
