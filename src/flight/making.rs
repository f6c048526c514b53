//! Tables and views that are kept: written, counted and only then published.
//!
//! Whatever goes wrong before the last step leaves no table, and what was written for it is removed. Must not
//! authorize: what is made here was compiled by [`Statements`](crate::sql::Statements).

use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::parquet::arrow::ArrowWriter;
use futures::StreamExt;

use super::{Core, jobs, results};
use crate::gate::caller::Caller;
use crate::sql::{Keep, Lasts, Making, Missing, RowsOf, Unmaking, failure, taken};
use crate::status::{Class, Failure};
use crate::storage::{Draft, FullName, New, Storage, Temporary, Unpublished};
use crate::workspace::Workspace;

impl Core {
    /// Makes a table, and says how many rows are in it.
    pub(super) async fn make(
        &self,
        caller: &Caller,
        workspace: &Workspace,
        state: Arc<SessionState>,
        making: Making,
    ) -> Result<i64, Failure> {
        let Making { storage, name, draft, schema, lasts, rows } = making;
        // Also when the client goes away meanwhile.
        let unfinished = Unfinished::of(&storage, &draft);
        let rows = match rows {
            RowsOf::Nothing => 0,
            RowsOf::Here(plan) => self.write_here(caller, &storage, &draft, &schema, (plan, state)).await?,
            RowsOf::Cluster(copy) => self.write_there(caller, workspace, &state, copy).await?,
        };
        let unless = match lasts {
            Lasts::Kept(unless) => unless,
            Lasts::Session => {
                let table = Storage::temporary(&draft, &schema, Temporary::LASTS).map_err(Failure::internal)?;
                workspace.adopt(&name, table).await?;
                unfinished.disarm();
                return Ok(rows);
            }
        };
        // From here on the storage alone knows whether the rows belong to a table, and nothing interrupts it.
        unfinished.disarm();
        let maker = caller.principal().key().clone();
        let published = tokio::spawn(async move {
            let published = storage.publish(&name, New::Table(&draft), &schema, &maker, unless).await;
            match &published {
                Err(Unpublished::Contended | Unpublished::Full | Unpublished::Taken | Unpublished::Worn) => {
                    storage.discard(&draft).await;
                }
                // What a store did that failed is not known.
                Ok(()) | Err(Unpublished::Gone | Unpublished::Store(_)) => (),
            }
            published.map_err(|unpublished| not_kept(&name, unpublished))
        });
        published.await.map_err(Failure::internal)?.map(|()| rows)
    }

    /// Makes a view.
    pub(super) async fn keep(&self, caller: &Caller, keep: Keep) -> Result<i64, Failure> {
        let Keep { storage, name, definition, schema, unless } = keep;
        let maker = caller.principal().key().clone();
        // Nothing interrupts it.
        let published = tokio::spawn(async move {
            let published = storage.publish(&name, New::View(&definition), &schema, &maker, unless).await;
            published.map_err(|unpublished| not_kept(&name, unpublished))
        });
        published.await.map_err(Failure::internal)?.map(|()| 0)
    }

    /// Takes a kept table or view away.
    pub(super) async fn unmake(&self, unmaking: Unmaking) -> Result<i64, Failure> {
        let Unmaking { storage, name, missing } = unmaking;
        match (storage.withdraw(&name).await, missing) {
            (Ok(()), _) | (Err(Unpublished::Gone), Missing::Fine) => Ok(0),
            (Err(unpublished), _) => Err(not_kept(&name, unpublished)),
        }
    }

    async fn write_there(
        &self,
        caller: &Caller,
        workspace: &Workspace,
        state: &SessionState,
        copy: LogicalPlan,
    ) -> Result<i64, Failure> {
        let finished = self.on_cluster(caller, workspace, state, copy).await?;
        let count = tokio::time::timeout(COUNT, results::total(self.backend.as_ref(), finished.result.parts)).await;
        jobs::clean(self.backend.as_ref(), &finished.job).await;
        let lost = |_| Failure::new(Class::Unavailable, "the cluster did not say how many rows it wrote");
        i64::try_from(count.map_err(lost)??).map_err(Failure::internal)
    }

    async fn write_here(
        &self,
        caller: &Caller,
        storage: &Storage,
        draft: &Draft,
        schema: &SchemaRef,
        (plan, state): (LogicalPlan, Arc<SessionState>),
    ) -> Result<i64, Failure> {
        let _slot = self.slot(caller).await?;
        let written = async {
            let mut file = ArrowWriter::try_new(Vec::new(), Arc::clone(schema), None).map_err(Failure::internal)?;
            let mut rows = 0_usize;
            let mut batches = self.local.run(plan, state);
            while let Some(batch) = batches.next().await {
                let batch = batch.map_err(|error| failure::of_execution(&error))?;
                let batch = results::conform(&batch, schema)?;
                rows = rows.saturating_add(batch.num_rows());
                file.write(&batch).map_err(Failure::internal)?;
                if file.memory_size().saturating_add(file.bytes_written()) > MOST_HERE {
                    return Err(Failure::new(
                        Class::ResourceExhausted,
                        "a table of constants may not be that large; make it from tables",
                    ));
                }
            }
            let content = file.into_inner().map_err(Failure::internal)?;
            if rows > 0 {
                storage.write(draft, content).await.map_err(Failure::internal)?;
            }
            i64::try_from(rows).map_err(Failure::internal)
        };
        tokio::time::timeout(self.limits.timeout, written).await.unwrap_or_else(|_| Err(jobs::too_late()))
    }
}

fn not_kept(name: &FullName, unpublished: Unpublished) -> Failure {
    match unpublished {
        Unpublished::Taken => taken(name),
        Unpublished::Gone => {
            Failure::about_request(Class::InvalidArgument, format!("table `{}` does not exist", name.table))
        }
        Unpublished::Contended => Failure::new(
            Class::Unavailable,
            "a table of that name is made and dropped by others at the same time; try again",
        ),
        Unpublished::Full => {
            Failure::new(Class::ResourceExhausted, "this server keeps no more tables; drop some first")
        }
        Unpublished::Worn => Failure::new(
            Class::ResourceExhausted,
            "a table of that name was made too often lately; take another name, or try again tomorrow",
        ),
        Unpublished::Store(error) => {
            Failure::new(Class::Unavailable, "the place where tables are kept is away for the moment").because(error)
        }
    }
}

/// What is written for a table that is not one yet; removed when it does not become one.
struct Unfinished<'a> {
    what: Option<(&'a Arc<Storage>, &'a Draft)>,
}

impl<'a> Unfinished<'a> {
    fn of(storage: &'a Arc<Storage>, draft: &'a Draft) -> Self {
        Self { what: Some((storage, draft)) }
    }

    fn disarm(mut self) {
        self.what = None;
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        let Some((storage, draft)) = self.what else { return };
        // An executor may still be writing; the sweep finds what comes later.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (storage, draft) = (Arc::clone(storage), draft.clone());
            drop(runtime.spawn(async move { storage.discard(&draft).await }));
        }
    }
}

/// What a table of constants may take in memory, in bytes.
const MOST_HERE: usize = 64 * 1024 * 1024;
const COUNT: Duration = Duration::from_secs(30);
