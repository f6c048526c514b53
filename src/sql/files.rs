//! Whether the files of a plan's tables are there, and are not too many.
//!
//! The engine takes a table whose one file was removed for a table without rows, and a wrong answer is worse than none.
//! Folders may be empty; a file that was named may not be gone. A folder's files are listed in memory by whoever plans
//! the query, which may be this process: they are counted before. Tells no path.

use std::sync::Arc;
use std::time::Duration;

use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::listing::ListingTable;
use datafusion::datasource::source_as_provider;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::object_store::ObjectStoreExt;

use super::failure;
use crate::catalog::listing::{self, Counted, Unlisted};
use crate::status::{Class, Failure};

/// Fails when a table of `plan` is one file and that file is gone, or has more files than a table may have.
pub(super) async fn present(plan: &LogicalPlan, state: &SessionState) -> Result<(), Failure> {
    // A planning thread is held meanwhile.
    tokio::time::timeout(TIME, all_present(plan, state)).await.unwrap_or_else(|_| {
        Err(Failure::new(Class::Unavailable, "the files of a table were not found in time; try again"))
    })
}

async fn all_present(plan: &LogicalPlan, state: &SessionState) -> Result<(), Failure> {
    for (name, provider) in scans(plan)? {
        let Some(table) = provider.downcast_ref::<ListingTable>() else { continue };
        for path in table.table_paths().iter().filter(|path| !path.is_collection() && path.get_glob().is_none()) {
            let store = state.runtime_env().object_store(path).map_err(|error| failure::of_planning(&error))?;
            store.head(path.prefix()).await.map_err(|error| {
                Failure::about_request(
                    Class::Unavailable,
                    format!("the file of table `{}` cannot be read", name.table()),
                )
                .because(error)
            })?;
        }
        let counted = state.config().get_extension::<Counted>();
        let folder = table.table_paths().iter().any(|path| path.is_collection());
        if !folder || counted.as_ref().is_some_and(|counted| counted.recently(table)) {
            continue;
        }
        match listing::look(state, &name, table).await {
            Ok(_) => drop(counted.map(|counted| counted.note(table))),
            Err(Unlisted::TooMuch(told)) => return Err(Failure::about_request(Class::InvalidArgument, told)),
            Err(Unlisted::Engine(error)) => return Err(failure::of_planning(&error)),
        }
    }
    Ok(())
}

type Scan = (TableReference, Arc<dyn TableProvider>);

fn scans(plan: &LogicalPlan) -> Result<Vec<Scan>, Failure> {
    let mut scans = Vec::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Ok(provider) = source_as_provider(&scan.source)
        {
            scans.push((scan.table_name.clone(), provider));
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map_err(|error| failure::of_planning(&error))?;
    Ok(scans)
}

const TIME: Duration = Duration::from_secs(5);
