//! A catalog of an embedder whose tables take their time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow::datatypes::{DataType, Field, Schema};
use arrow_flight::sql::{CommandGetTables, ProstMessageExt};
use async_trait::async_trait;
use datafusion::catalog::{
    CatalogProvider, MemTable, MemoryCatalogProvider, MemoryCatalogProviderList, SchemaProvider, TableProvider,
};
use datafusion::common::{Constraint, Constraints};
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::logical_expr::TableType;
use datafusion::prelude::SessionConfig;
use portcullis::backend::QueryBackend;
use portcullis::catalog::{BuildError, SessionBuilder};
use portcullis_auth::Principal;

use super::keys::keys_of;
use super::{rows, tables, with_schema};
use crate::support::client::as_text;
use crate::support::login::Login;
use crate::support::{Gate, Settings, on_runtime};

/// Rule R23.
#[test]
fn a_catalog_far_away_is_asked_for_what_the_filters_leave_and_a_few_at_a_time() {
    on_runtime(async {
        let mut settings = Settings::shared().await;
        let far = Arc::new(Far::default());
        settings.builder = Some(Arc::new(Embedder { backend: Arc::clone(&settings.backend), far: Arc::clone(&far) }));
        let gate = Gate::start(settings).await;
        let client = gate.client(&Login::key("alice"));
        assert_eq!(tables(&client, with_schema("t7")).await.len(), 1);
        assert_eq!(far.opened.swap(0, Ordering::SeqCst), 1, "one table was asked for");
        for nothing in [
            CommandGetTables { catalog: Some("other".to_owned()), ..with_schema("%") },
            CommandGetTables { db_schema_filter_pattern: Some("other".to_owned()), ..with_schema("%") },
            CommandGetTables { table_types: vec!["BASE TABLE".to_owned()], ..with_schema("%") },
            CommandGetTables { table_types: vec!["VIEW".to_owned()], ..with_schema("%") },
            with_schema("t1000"),
        ] {
            assert_eq!(rows(&client, nothing.as_any()).await.num_rows(), 0);
        }
        let names = CommandGetTables { table_types: vec!["TABLE".to_owned()], ..CommandGetTables::default() };
        assert_eq!(rows(&client, names.as_any()).await.num_rows(), TABLES);
        assert_eq!(far.opened.load(Ordering::SeqCst), 0, "nothing of this needs a table");
        let all = tables(&client, with_schema("%")).await;
        assert_eq!((all.len(), far.opened.load(Ordering::SeqCst)), (TABLES, TABLES), "each once");
        let most = far.most.load(Ordering::SeqCst);
        assert!((2..=32).contains(&most), "{most} at a time");
        assert_eq!(as_text(&[rows(&client, keys_of(None, None, "t3")).await]), ["far|public|t3|k|1|"]);
    });
}

/// A catalog whose tables take their time.
#[derive(Debug, Default)]
struct Far {
    opened: AtomicUsize,
    opening: AtomicUsize,
    most: AtomicUsize,
}

#[async_trait]
impl SchemaProvider for Far {
    fn table_names(&self) -> Vec<String> {
        (0..TABLES).map(|number| format!("t{number}")).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        if !self.table_exist(name) {
            return Ok(None);
        }
        self.most.fetch_max(self.opening.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        // The way there.
        tokio::time::sleep(Duration::from_millis(5)).await;
        self.opening.fetch_sub(1, Ordering::SeqCst);
        self.opened.fetch_add(1, Ordering::SeqCst);
        let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, false)]));
        let key = Constraints::new_unverified(vec![Constraint::PrimaryKey(vec![0])]);
        Ok(Some(Arc::new(MemTable::try_new(schema, vec![Vec::new()])?.with_constraints(key))))
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>, DataFusionError> {
        Ok(self.table_exist(name).then_some(TableType::Base))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.table_names().iter().any(|known| known == name)
    }
}

/// An embedder with that catalog.
#[derive(Debug)]
struct Embedder {
    backend: Arc<dyn QueryBackend>,
    far: Arc<Far>,
}

#[async_trait]
impl SessionBuilder for Embedder {
    async fn build(&self, _principal: &Principal, config: SessionConfig) -> Result<SessionState, BuildError> {
        let catalog = Arc::new(MemoryCatalogProvider::new());
        catalog.register_schema("public", Arc::clone(&self.far) as _).map_err(|error| BuildError(error.to_string()))?;
        let list = Arc::new(MemoryCatalogProviderList::new());
        datafusion::catalog::CatalogProviderList::register_catalog(list.as_ref(), "far".to_owned(), catalog);
        Ok(self.backend.planning_state(config).with_catalog_list(list).build())
    }
}

/// How many tables are far away.
const TABLES: usize = 200;
