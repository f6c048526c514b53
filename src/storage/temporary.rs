//! A table that one session has made for itself.
//!
//! No record names its rows, so the sweep of any gate takes them for abandoned after a day: it ends well before,
//! however long its session lasts. Has no rows itself; the session hands out the table inside.

use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::listing::ListingTable;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use tokio::time::Instant;

/// A table and its end.
#[derive(Debug)]
pub(crate) struct Temporary {
    table: Arc<ListingTable>,
    made: Instant,
    lasts: Duration,
}

impl Temporary {
    /// How long it is there at most.
    pub(crate) const LASTS: Duration = Duration::from_secs(12 * 3600);

    pub(super) fn new(table: ListingTable, lasts: Duration) -> Self {
        Self { table: Arc::new(table), made: Instant::now(), lasts }
    }

    /// Whether it is over.
    pub(crate) fn is_over(&self) -> bool {
        self.made.elapsed() >= self.lasts
    }

    /// The table itself.
    pub(crate) fn table(&self) -> Arc<dyn TableProvider> {
        Arc::clone(&self.table) as Arc<dyn TableProvider>
    }
}

#[async_trait]
impl TableProvider for Temporary {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        Err(DataFusionError::Internal("a session's table was about to be read without its end".to_owned()))
    }
}
