//! Runs what needs no cluster: constants and `information_schema`, on threads of its own and within a memory bound.
//!
//! The reactor's threads only wait; a client's arithmetic must not slow another client's handshake. Must not be given a
//! plan that was not authorized.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::DataFusionError;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::execute_stream;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// The gate's own engine.
pub struct Local {
    runtime: Option<Runtime>,
    environment: Arc<RuntimeEnv>,
}

impl Local {
    /// Starts `threads` threads; all statements together may use `memory` bytes, and none spills to disk.
    pub fn start(threads: NonZeroUsize, memory: NonZeroUsize) -> Result<Self, StartError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads.get())
            .thread_name("local-engine")
            .thread_stack_size(STACK)
            .enable_time()
            .build()
            .map_err(|error| StartError(error.to_string()))?;
        let environment = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(FairSpillPool::new(memory.get())))
            .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled))
            .build_arc()
            .map_err(|error| StartError(error.strip_backtrace()))?;
        Ok(Self { runtime: Some(runtime), environment })
    }

    /// The bounded environment that sessions are planned and run in.
    pub fn environment(&self) -> Arc<RuntimeEnv> {
        Arc::clone(&self.environment)
    }

    /// Of `state` what [`Self::run`] needs for `plan`, since a result waits longer for its reader than a session needs
    /// a state. Functions are most of a state, an optimized plan brings its own along, and none but the tables of
    /// `information_schema` list the others.
    pub fn kept_for(plan: &LogicalPlan, state: Arc<SessionState>) -> Arc<SessionState> {
        let mut scans = false;
        let walked = plan.apply_with_subqueries(|node| {
            scans |= matches!(node, LogicalPlan::TableScan(_));
            Ok(TreeNodeRecursion::Continue)
        });
        if scans || walked.is_err() {
            return state;
        }
        let kept = SessionStateBuilder::new()
            .with_session_id(state.session_id().to_owned())
            .with_config(state.config().clone())
            .with_runtime_env(Arc::clone(state.runtime_env()))
            .with_catalog_list(Arc::clone(state.catalog_list()))
            .with_execution_props(state.execution_props().clone())
            .with_query_planner(Arc::clone(state.query_planner()))
            .with_analyzer_rules(Vec::new())
            .with_optimizer_rules(Vec::new())
            .with_physical_optimizer_rules(state.physical_optimizers().to_vec())
            .build();
        Arc::new(kept)
    }

    /// The rows of an optimized plan. Dropping the stream stops the work.
    pub fn run(
        &self,
        plan: LogicalPlan,
        state: Arc<SessionState>,
    ) -> BoxStream<'static, Result<RecordBatch, DataFusionError>> {
        let (sender, receiver) = mpsc::channel(2);
        let Some(runtime) = &self.runtime else {
            return futures::stream::iter([Err(DataFusionError::Internal("the local engine has stopped".to_owned()))])
                .boxed();
        };
        runtime.spawn(async move {
            let work = async {
                let physical = state.query_planner().create_physical_plan(&plan, state.as_ref()).await?;
                execute_stream(physical, state.task_ctx())
            };
            let started = tokio::select! {
                started = work => started,
                () = sender.closed() => return,
            };
            let mut rows = match started {
                Ok(rows) => rows,
                Err(error) => {
                    drop(sender.send(Err(error)).await);
                    return;
                }
            };
            loop {
                let batch = tokio::select! {
                    batch = rows.next() => batch,
                    () = sender.closed() => return,
                };
                let Some(batch) = batch else { return };
                if sender.send(batch).await.is_err() {
                    return;
                }
            }
        });
        ReceiverStream::new(receiver).boxed()
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // A runtime may not be waited for inside another one.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").finish_non_exhaustive()
    }
}

/// Why the local engine did not start.
#[derive(Debug, thiserror::Error)]
#[error("the local engine did not start: {0}")]
pub struct StartError(String);

/// Physical planning and evaluation recurse over what the caps let through.
const STACK: usize = 32 * 1024 * 1024;
