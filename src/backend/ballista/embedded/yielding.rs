//! Lets a cancelled task stop inside a join.
//!
//! DataFusion makes leaves and exchanges yield, and a join that makes many batches of one input batch never reaches
//! them: under an aggregate such a task holds its thread until the input ends, however long ago it was cancelled. A
//! yield above each join ends that. Done where a task starts, because the scheduler's adaptive planner takes no rules.
//! Must not change what a plan computes.

use std::sync::Arc;

use ballista_core::JobId;
use ballista_executor::execution_engine::{DefaultExecutionEngine, ExecutionEngine, QueryStageExecutor};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::prelude::SessionConfig;

/// Ballista's own engine, with a yield above every join.
#[derive(Default)]
pub(super) struct YieldingEngine(DefaultExecutionEngine);

impl ExecutionEngine for YieldingEngine {
    fn create_query_stage_exec(
        &self,
        job_id: JobId,
        stage_id: usize,
        task_id: usize,
        global_output_partition_ids: Vec<usize>,
        plan: Arc<dyn ExecutionPlan>,
        work_dir: &str,
        config: &SessionConfig,
    ) -> Result<Arc<dyn QueryStageExecutor>> {
        let plan = yielding(plan)?;
        self.0.create_query_stage_exec(job_id, stage_id, task_id, global_output_partition_ids, plan, work_dir, config)
    }
}

fn yielding(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        Ok(if JOINS.contains(&node.name()) {
            Transformed::yes(Arc::new(CooperativeExec::new(node)) as Arc<dyn ExecutionPlan>)
        } else {
            Transformed::no(node)
        })
    })
    .data()
}

const JOINS: &[&str] = &[
    "CrossJoinExec",
    "HashJoinExec",
    "NestedLoopJoinExec",
    "PiecewiseMergeJoinExec",
    "SortMergeJoinExec",
    "SymmetricHashJoinExec",
];
