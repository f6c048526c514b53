//! Which functions of a plan a stock executor does not have.
//!
//! Scheduler and gate know all of DataFusion's functions, but a stock Ballista 55 executor only those of its own list,
//! which lacks the ones on nested types; all it says of a task with another one is that it could not be prepared. This
//! finds the likely culprits so that the author of the query learns a name. It forbids nothing: executors may be built
//! with more.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use ballista_core::registry::BallistaFunctionRegistry;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::DataFusionError;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::expr::WindowFunctionDefinition;
use datafusion::logical_expr::{Expr, LogicalPlan};

use crate::backend::BackendError;

/// The functions of `plan` that stock executors lack, by name.
pub(super) fn missing(plan: &LogicalPlan) -> BTreeSet<String> {
    let mut missing = BTreeSet::new();
    let walked = plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                missing.extend(name(part).filter(|name| !STOCK.contains(*name)).map(str::to_owned));
                Ok::<_, DataFusionError>(TreeNodeRecursion::Continue)
            })
        })
    });
    // The walk itself cannot fail; what it found so far is as good a hint.
    drop(walked);
    missing
}

/// What a failed job means when its plan used `missing`.
pub(super) fn explained(error: BackendError, missing: &BTreeSet<String>) -> BackendError {
    let BackendError::Failed(cause) = &error else { return error };
    if missing.is_empty() || !cause.contains(NOT_PREPARED) {
        return error;
    }
    let names: Vec<_> = missing.iter().map(|name| format!("`{name}`")).collect();
    let about = format!("the cluster's executors do not have the function {}", names.join(", "));
    BackendError::Unsupported { about, cause: cause.clone() }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "every other expression names no function")]
fn name(part: &Expr) -> Option<&str> {
    match part {
        Expr::ScalarFunction(call) => Some(call.func.name()),
        Expr::AggregateFunction(call) => Some(call.func.name()),
        Expr::WindowFunction(call) => Some(match &call.fun {
            WindowFunctionDefinition::AggregateUDF(function) => function.name(),
            WindowFunctionDefinition::WindowUDF(function) => function.name(),
        }),
        _ => None,
    }
}

static STOCK: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let registry = BallistaFunctionRegistry::default();
    registry.udfs().into_iter().chain(registry.udafs()).chain(registry.udwfs()).collect()
});

const NOT_PREPARED: &str = "could not be prepared";
