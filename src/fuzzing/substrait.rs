//! Substrait plans: protobuf of clients that becomes a plan of the engine.

use std::sync::{LazyLock, Once};

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::empty::EmptyTable;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;
use futures::executor::block_on;

use crate::sql::substrait::planned;
use crate::status::Class;

/// The bytes of a plan over a session with one table. What the engine's reader trips over is caught, as in a gate: only
/// what gets out of there is a finding.
pub fn substrait(data: &[u8]) {
    // The fuzzer's own hook ends the process at a panic that is caught.
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| ())));
    match block_on(planned(data, &STATE)) {
        Ok(plan) => only_plain_scans(&plan),
        Err(failure) => {
            assert!(matches!(failure.class(), Class::InvalidArgument | Class::Unimplemented | Class::Internal));
        }
    }
}

/// What is behind the reader takes scans for those of SQL.
fn only_plain_scans(plan: &LogicalPlan) {
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            assert!(scan.filters.is_empty() && scan.projection.is_none() && scan.fetch.is_none());
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .unwrap();
}

static QUIET: Once = Once::new();
static STATE: LazyLock<SessionState> = LazyLock::new(|| {
    let session = SessionContext::new();
    let columns = [
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true),
        Field::new("amount", DataType::Float64, true),
    ];
    let table = EmptyTable::new(Schema::new(columns.to_vec()).into());
    session.register_table("orders", std::sync::Arc::new(table)).unwrap();
    session.state()
});
