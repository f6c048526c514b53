//! How large a statement becomes when its common table expressions and views are put in where they are named.
//!
//! The planner puts them in before anybody can count, and a chain in which each step names the one before twice doubles
//! at each step: a few lines fill the memory. So it is counted on the parsed statement, where that costs a walk. Kept
//! views count as one here; `views.rs` counts what it puts in their place.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Ident, ObjectName, ObjectNamePart, Query, Visit, Visitor};

use crate::status::{Class, Failure};

/// Refuses a statement that reads more than [`MAX_RELATIONS`] relations when it is written out.
pub(super) async fn check(statement: &Statement, state: &SessionState) -> Result<(), Failure> {
    let mut inner = statement;
    while let Statement::Explain(explain) = inner {
        inner = &explain.statement;
    }
    let Statement::Statement(statement) = inner else { return Ok(()) };

    let mut names = Names::default();
    // Nothing there breaks off.
    let _: ControlFlow<()> = statement.visit(&mut names);
    let mut views = HashMap::new();
    for name in names.0 {
        let relations = view_size(&name, state).await;
        views.insert(name, relations);
    }
    let mut expansion = Expansion { views, open: vec![Frame::default()] };
    let _: ControlFlow<()> = statement.visit(&mut expansion);
    let relations = expansion.open.iter().fold(0_usize, |sum, frame| sum.saturating_add(frame.relations));
    if relations > MAX_RELATIONS { Err(too_many()) } else { Ok(()) }
}

pub(super) fn too_many() -> Failure {
    Failure::about_request(
        Class::InvalidArgument,
        format!("the statement reads more than {MAX_RELATIONS} relations, its views and WITH queries written out"),
    )
}

/// Every relation that is named, once.
#[derive(Default)]
struct Names(Vec<Vec<String>>);

impl Visitor for Names {
    type Break = ();

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        let name = normal(relation);
        if self.0.len() < MAX_RELATIONS && !self.0.contains(&name) {
            self.0.push(name);
        }
        ControlFlow::Continue(())
    }
}

/// Sizes from the inside out: a query's frame is open while what is in it is visited.
struct Expansion {
    views: HashMap<Vec<String>, usize>,
    open: Vec<Frame>,
}

#[derive(Default)]
struct Frame {
    /// Of the query so far, without its WITH queries until they are named.
    relations: usize,
    /// The WITH queries of this query that are complete.
    with: HashMap<String, usize>,
    /// The names of those to come, by where their queries are in memory: the visitor shows a query without its name.
    pending: Vec<(*const Query, String)>,
}

impl Expansion {
    fn size(&self, relation: &ObjectName) -> usize {
        let name = normal(relation);
        if let [name] = name.as_slice()
            && let Some(size) = self.open.iter().rev().find_map(|frame| frame.with.get(name))
        {
            return *size;
        }
        self.views.get(&name).copied().unwrap_or(1)
    }
}

impl Visitor for Expansion {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        let pending =
            tables.map(|cte| (std::ptr::from_ref(cte.query.as_ref()), normal_part(&cte.alias.name))).collect();
        self.open.push(Frame { pending, ..Frame::default() });
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        let size = self.size(relation);
        if let Some(frame) = self.open.last_mut() {
            frame.relations = frame.relations.saturating_add(size);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let Some(done) = self.open.pop() else { return ControlFlow::Continue(()) };
        let size = done.relations.max(1);
        if let Some(around) = self.open.last_mut() {
            match around.pending.iter().find(|(pending, _)| std::ptr::eq(*pending, query)) {
                Some((_, name)) => drop(around.with.insert(name.clone(), size)),
                None => around.relations = around.relations.saturating_add(size),
            }
        }
        ControlFlow::Continue(())
    }
}

/// The relations behind a view; one for a table, and for what is not there.
async fn view_size(name: &[String], state: &SessionState) -> usize {
    let defaults = &state.config_options().catalog;
    let (catalog, schema, table) = match name {
        [table] => (&defaults.default_catalog, &defaults.default_schema, table),
        [schema, table] => (&defaults.default_catalog, schema, table),
        [catalog, schema, table] => (catalog, schema, table),
        _ => return 1,
    };
    let Some(schema) = state.catalog_list().catalog(catalog).and_then(|catalog| catalog.schema(schema)) else {
        return 1;
    };
    match schema.table(table).await {
        Ok(Some(provider)) => provider.get_logical_plan().map_or(1, |plan| scans(&plan)),
        Ok(None) | Err(_) => 1,
    }
}

/// The relations that a plan reads; at least one.
pub(super) fn scans(plan: &LogicalPlan) -> usize {
    let mut count = 0_usize;
    let walked = plan.apply_with_subqueries(|node| {
        count = count.saturating_add(usize::from(node.inputs().is_empty()));
        Ok(if count > MAX_RELATIONS { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    // A view that cannot be walked cannot be planned either.
    walked.map_or(MAX_RELATIONS, |_| count.max(1))
}

fn normal(name: &ObjectName) -> Vec<String> {
    name.0
        .iter()
        .map(|part| match part {
            ObjectNamePart::Identifier(identifier) => normal_part(identifier),
            ObjectNamePart::Function(function) => function.to_string(),
        })
        .collect()
}

fn normal_part(identifier: &Ident) -> String {
    match identifier.quote_style {
        Some(_) => identifier.value.clone(),
        None => identifier.value.to_lowercase(),
    }
}

pub(super) const MAX_RELATIONS: usize = 2000;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use datafusion::prelude::SessionContext;
    use futures::executor::block_on;

    use super::*;

    fn refused(sql: &str) -> bool {
        let state = SessionContext::new().state();
        let statement = state.sql_to_statement(sql, &state.config_options().sql_parser.dialect).unwrap();
        block_on(check(&statement, &state)).is_err()
    }

    fn doubling(steps: usize) -> String {
        let chain =
            (1..steps).map(|n| format!("c{n} AS (SELECT a.k FROM c{p} a CROSS JOIN C{p} b)", p = n.saturating_sub(1)));
        let chain: Vec<String> = std::iter::once("c0 AS (SELECT 1 AS k FROM t)".to_owned()).chain(chain).collect();
        format!("WITH {} SELECT * FROM c{}", chain.join(", "), steps.saturating_sub(1))
    }

    #[test]
    fn statements_of_people_pass_and_doubling_chains_do_not() {
        for sql in [
            "SELECT 1".to_owned(),
            "WITH a AS (SELECT * FROM t), b AS (SELECT * FROM a JOIN a x ON true) SELECT * FROM b, (SELECT * FROM b) c"
                .to_owned(),
            "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r".to_owned(),
            doubling(10),
        ] {
            assert!(!refused(&sql), "{sql}");
        }
        for steps in [12, 20, 60, 500] {
            assert!(refused(&doubling(steps)), "{steps} steps");
            assert!(refused(&format!("EXPLAIN {}", doubling(steps))), "{steps} steps");
            assert!(refused(&format!("CREATE VIEW v AS {}", doubling(steps))), "{steps} steps");
            assert!(refused(&format!("SELECT * FROM ({}) x", doubling(steps))), "{steps} steps, nested");
        }
    }
}
