//! Whether the files of a plan's tables are there.
//!
//! The engine takes a table whose one file was removed for a table without rows, and a wrong answer is worse than none.
//! Folders may be empty; a file that was named may not be gone. Tells no path.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::listing::ListingTable;
use datafusion::datasource::source_as_provider;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::object_store::ObjectStoreExt;

use super::failure;
use crate::status::{Class, Failure};

/// Fails when a table of `plan` is one file and that file is gone.
pub(super) async fn present(plan: &LogicalPlan, state: &SessionState) -> Result<(), Failure> {
    for (name, provider) in scans(plan)? {
        let Some(table) = provider.downcast_ref::<ListingTable>() else { continue };
        for path in table.table_paths().iter().filter(|path| !path.is_collection() && path.get_glob().is_none()) {
            let store = state.runtime_env().object_store(path).map_err(|error| failure::of_planning(&error))?;
            store.head(path.prefix()).await.map_err(|error| {
                Failure::about_request(Class::Unavailable, format!("the file of table `{name}` cannot be read"))
                    .because(error)
            })?;
        }
    }
    Ok(())
}

type Scan = (String, Arc<dyn TableProvider>);

fn scans(plan: &LogicalPlan) -> Result<Vec<Scan>, Failure> {
    let mut scans = Vec::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Ok(provider) = source_as_provider(&scan.source)
        {
            scans.push((scan.table_name.table().to_owned(), provider));
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map_err(|error| failure::of_planning(&error))?;
    Ok(scans)
}
