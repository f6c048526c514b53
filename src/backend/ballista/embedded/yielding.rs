//! Lets a cancelled task stop inside a join.
//!
//! DataFusion makes leaves and exchanges yield, and a join that makes many batches of one input batch never reaches
//! them: under an aggregate such a task holds its thread until the input ends, however long ago it was cancelled. A
//! yield above each join ends that. Must not change what a plan computes.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;

/// Puts a yield above every join.
#[derive(Debug)]
pub(super) struct YieldAboveJoins;

impl PhysicalOptimizerRule for YieldAboveJoins {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            Ok(if JOINS.contains(&node.name()) {
                Transformed::yes(Arc::new(CooperativeExec::new(node)) as Arc<dyn ExecutionPlan>)
            } else {
                Transformed::no(node)
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "yield_above_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

const JOINS: &[&str] = &[
    "CrossJoinExec",
    "HashJoinExec",
    "NestedLoopJoinExec",
    "PiecewiseMergeJoinExec",
    "SortMergeJoinExec",
    "SymmetricHashJoinExec",
];
