//! Stops the work of a cancelled task.
//!
//! Ballista 55 runs each partition of a task as a tokio task of its own and drops only the handles when the task is
//! cancelled: the partitions run to their end. Here the executor's engine watches its own future, and every leaf and
//! join asks before each batch whether it was dropped, and yields now and then: a join that makes many batches of one
//! input batch would otherwise hold its thread for minutes. Must not change what a plan computes.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use ballista_core::JobId;
use ballista_core::serde::protobuf::{RuntimeStatsReport, ShuffleWritePartition, TaskColumnStats, WindowStateReport};
use ballista_executor::execution_engine::{DefaultExecutionEngine, ExecutionEngine, QueryStageExecutor};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties};
use datafusion::prelude::SessionConfig;
use futures::StreamExt;
use tokio_util::sync::CancellationToken;

/// Ballista's own engine, whose tasks stop when they are cancelled.
#[derive(Default)]
pub(super) struct StoppingEngine(DefaultExecutionEngine);

impl ExecutionEngine for StoppingEngine {
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
        let stop = CancellationToken::new();
        let plan = until_stopped(plan, &stop)?;
        let ids = global_output_partition_ids;
        let stage = self.0.create_query_stage_exec(job_id, stage_id, task_id, ids, plan, work_dir, config)?;
        Ok(Arc::new(Stage { stage, stop }))
    }
}

/// A stage that stops when its execution is dropped.
#[derive(Debug)]
struct Stage {
    stage: Arc<dyn QueryStageExecutor>,
    stop: CancellationToken,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stage.fmt(f)
    }
}

#[async_trait]
impl QueryStageExecutor for Stage {
    async fn execute_query_stage(
        &self,
        task_id: usize,
        context: Arc<TaskContext>,
    ) -> Result<Vec<ShuffleWritePartition>> {
        // Dropped at the end as well, when nothing is left to stop.
        let _stops = self.stop.clone().drop_guard();
        self.stage.execute_query_stage(task_id, context).await
    }

    fn collect_plan_metrics(&self) -> Vec<MetricsSet> {
        self.stage.collect_plan_metrics()
    }

    fn collect_runtime_stats_reports(&self) -> Vec<RuntimeStatsReport> {
        self.stage.collect_runtime_stats_reports()
    }

    fn collect_window_state_reports(&self) -> Result<Vec<WindowStateReport>> {
        self.stage.collect_window_state_reports()
    }

    fn collect_column_stats(&self) -> Vec<TaskColumnStats> {
        self.stage.collect_column_stats()
    }
}

/// `plan` with a question above every leaf and join: below an aggregate, those are what can go on for long.
fn until_stopped(plan: Arc<dyn ExecutionPlan>, stop: &CancellationToken) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        Ok(if node.children().is_empty() || JOINS.contains(&node.name()) {
            let stopping = UntilStoppedExec { input: node, stop: stop.clone() };
            Transformed::yes(Arc::new(stopping) as Arc<dyn ExecutionPlan>)
        } else {
            Transformed::no(node)
        })
    })
    .data()
}

/// Its input, until it is told to stop.
#[derive(Debug)]
struct UntilStoppedExec {
    input: Arc<dyn ExecutionPlan>,
    stop: CancellationToken,
}

impl DisplayAs for UntilStoppedExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ExecutionPlan for UntilStoppedExec {
    fn name(&self) -> &str {
        "UntilStoppedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.pop().ok_or_else(|| DataFusionError::Internal("no input".to_owned()))?;
        Ok(Arc::new(Self { input, stop: self.stop.clone() }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let rows = self.input.execute(partition, context)?;
        let schema = rows.schema();
        let watched = futures::stream::unfold((rows, self.stop.clone(), 0), |(mut rows, stop, batches)| async move {
            if batches == 0 {
                // The cancellation is carried out on the executor's threads as well: one of them has to be let go.
                tokio::task::yield_now().await;
            }
            let batch = if stop.is_cancelled() {
                Err(DataFusionError::Execution("the task was cancelled".to_owned()))
            } else {
                rows.next().await?
            };
            Some((batch, (rows, stop, next(batches))))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, watched)))
    }
}

fn next(batches: usize) -> usize {
    if batches.saturating_add(1) == YIELD_EVERY { 0 } else { batches.saturating_add(1) }
}

/// Batches between two looks at what else there is to do.
const YIELD_EVERY: usize = 8;
const JOINS: &[&str] = &[
    "CrossJoinExec",
    "HashJoinExec",
    "NestedLoopJoinExec",
    "PiecewiseMergeJoinExec",
    "SortMergeJoinExec",
    "SymmetricHashJoinExec",
];
