//! What a principal's SQL is planned against: the seam for embedders and the configured tables.
//!
//! [`SessionBuilder`] makes a state per principal; [`ConfiguredCatalogs`] is the one behind `[catalog…]`. The tables
//! are opened once and shared: a session costs pointers. Must not know a request or a token.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use async_trait::async_trait;
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemoryCatalogProvider, MemoryCatalogProviderList, MemorySchemaProvider,
    SchemaProvider, TableProviderFactory,
};
use datafusion::common::{Constraints, DFSchema, TableReference};
use datafusion::datasource::listing_table_factory::ListingTableFactory;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::CreateExternalTable;
use datafusion::prelude::SessionConfig;
use portcullis_auth::Principal;

use crate::backend::QueryBackend;
use crate::config::{Format, PartitionType, Table};

/// Builds the state that a principal's SQL is planned with.
///
/// Embedders give their own. What the returned state's catalogs do not hold does not exist for the principal.
#[async_trait]
pub trait SessionBuilder: fmt::Debug + Send + Sync + 'static {
    /// A state for `principal` that starts from `config`, which holds what the cluster needs.
    async fn build(&self, principal: &Principal, config: SessionConfig) -> Result<SessionState, BuildError>;
}

/// Why a session's catalog cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("the session's catalog cannot be built: {0}")]
pub struct BuildError(pub String);

/// Catalogs from the configuration, the same for everybody in this version.
#[derive(Debug)]
pub struct ConfiguredCatalogs {
    backend: Arc<dyn QueryBackend>,
    catalogs: Arc<MemoryCatalogProviderList>,
    runtime: Arc<RuntimeEnv>,
}

impl ConfiguredCatalogs {
    /// Opens every configured table: its files must be there and their schema readable.
    pub async fn open(
        tables: &[Table],
        default_catalog: &str,
        default_schema: &str,
        backend: Arc<dyn QueryBackend>,
        runtime: Arc<RuntimeEnv>,
    ) -> Result<Self, OpenError> {
        let catalogs = Arc::new(MemoryCatalogProviderList::new());
        let state = backend.planning_state(backend.session_config()).with_runtime_env(Arc::clone(&runtime)).build();
        // The session's defaults exist even when nothing is configured in them, so that names resolve.
        schema(&catalogs, default_catalog, default_schema)
            .map_err(|error| OpenError::new(0, default_catalog, &error))?;
        for table in tables {
            let name = format!("{}.{}.{}", table.catalog, table.schema, table.name);
            let provider =
                open_table(&state, table).await.map_err(|error| OpenError::new(table.line, &name, &error))?;
            schema(&catalogs, &table.catalog, &table.schema)
                .and_then(|schema| schema.register_table(table.name.clone(), provider))
                .map_err(|error| OpenError::new(table.line, &name, &error))?;
        }
        Ok(Self { backend, catalogs, runtime })
    }
}

#[async_trait]
impl SessionBuilder for ConfiguredCatalogs {
    async fn build(&self, _principal: &Principal, config: SessionConfig) -> Result<SessionState, BuildError> {
        Ok(self
            .backend
            .planning_state(config)
            .with_catalog_list(Arc::clone(&self.catalogs) as Arc<dyn CatalogProviderList>)
            .with_runtime_env(Arc::clone(&self.runtime))
            .build())
    }
}

/// A configured table that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{line}: catalog.{table}: the table cannot be opened: {cause}")]
pub struct OpenError {
    line: usize,
    table: String,
    cause: String,
}

impl OpenError {
    fn new(line: usize, table: &str, cause: &DataFusionError) -> Self {
        Self { line, table: table.to_owned(), cause: cause.strip_backtrace() }
    }
}

fn schema(
    catalogs: &MemoryCatalogProviderList,
    catalog: &str,
    schema: &str,
) -> Result<Arc<dyn SchemaProvider>, DataFusionError> {
    let catalog = match catalogs.catalog(catalog) {
        Some(known) => known,
        None => {
            let made: Arc<dyn CatalogProvider> = Arc::new(MemoryCatalogProvider::new());
            catalogs.register_catalog(catalog.to_owned(), Arc::clone(&made));
            made
        }
    };
    match catalog.schema(schema) {
        Some(known) => Ok(known),
        None => {
            let made: Arc<dyn SchemaProvider> = Arc::new(MemorySchemaProvider::new());
            catalog.register_schema(schema, Arc::clone(&made))?;
            Ok(made)
        }
    }
}

/// Options of a configured table are its format's; the engine wants that said.
fn format_option(key: &str) -> String {
    if key.starts_with("format.") { key.to_owned() } else { format!("format.{key}") }
}

fn partition_type(kind: PartitionType) -> DataType {
    match kind {
        PartitionType::Bigint => DataType::Int64,
        PartitionType::Date => DataType::Date32,
        PartitionType::Int => DataType::Int32,
        PartitionType::Varchar => DataType::Utf8,
    }
}

async fn open_table(
    state: &SessionState,
    table: &Table,
) -> Result<Arc<dyn datafusion::catalog::TableProvider>, DataFusionError> {
    let name = TableReference::full(table.catalog.clone(), table.schema.clone(), table.name.clone());
    let format = match table.format {
        Format::Arrow => "ARROW",
        Format::Csv => "CSV",
        Format::Json => "JSON",
        Format::Parquet => "PARQUET",
    };
    let mut command = CreateExternalTable {
        schema: Arc::new(DFSchema::empty()),
        name,
        locations: vec![table.location.to_string()],
        file_type: format.to_owned(),
        table_partition_cols: Vec::new(),
        if_not_exists: false,
        or_replace: false,
        temporary: false,
        definition: None,
        order_exprs: Vec::new(),
        unbounded: false,
        options: table.options.iter().map(|(key, value)| (format_option(key), value.clone())).collect(),
        constraints: Constraints::default(),
        column_defaults: HashMap::new(),
    };
    let flat = ListingTableFactory::new().create(state, &command).await?;
    if table.partitions.is_empty() {
        return Ok(flat);
    }
    // The factory takes the partition columns' types from a whole schema only: the files', with those behind.
    let files = flat.schema();
    let partitions = table.partitions.iter().map(|(name, kind)| Field::new(name, partition_type(*kind), true));
    let fields: Vec<Field> = files.fields().iter().map(|field| field.as_ref().clone()).chain(partitions).collect();
    command.schema = Arc::new(DFSchema::try_from(Schema::new(fields))?);
    command.table_partition_cols = table.partitions.iter().map(|(name, _)| name.clone()).collect();
    ListingTableFactory::new().create(state, &command).await
}
