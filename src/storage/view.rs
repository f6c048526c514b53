//! A kept view: its text and its columns.
//!
//! Has no rows and is read nowhere: `sql/views.rs` puts what the text reads, for the one who asks, in its place. What
//! forgets to fails.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;

use super::record::Definition;

/// A view as its maker wrote it.
#[derive(Debug)]
pub(crate) struct KeptView {
    definition: Definition,
    schema: SchemaRef,
}

impl KeptView {
    pub(super) fn new(definition: Definition, schema: SchemaRef) -> Self {
        Self { definition, schema }
    }

    /// What it reads.
    pub(crate) fn definition(&self) -> &Definition {
        &self.definition
    }
}

#[async_trait]
impl TableProvider for KeptView {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn get_table_definition(&self) -> Option<&str> {
        Some(&self.definition.sql)
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        Err(DataFusionError::Internal("a view was about to be read as a table".to_owned()))
    }
}
