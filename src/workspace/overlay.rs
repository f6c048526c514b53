//! A session's views and tables laid over shared, read-only catalogs.
//!
//! Names the session made come first; nothing of the base can be dropped or replaced. Bounded in number.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::TableType;
use parking_lot::RwLock;

use crate::catalog::guarded::Guarded;

/// What the session made, by catalog, schema and name.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    tables: RwLock<HashMap<Name, Arc<dyn TableProvider>>>,
}

impl Overlay {
    /// Another overlay with the same tables; what is made in one later is not in the other.
    pub(super) fn copy(&self) -> Self {
        Self { tables: RwLock::new(self.tables.read().clone()) }
    }
}

/// Catalog, schema, table.
type Name = (String, String, String);

/// The base's catalogs with the overlay on top.
#[derive(Debug)]
pub(super) struct OverlayCatalogList {
    base: Arc<dyn CatalogProviderList>,
    overlay: Arc<Overlay>,
}

impl OverlayCatalogList {
    pub(super) fn new(base: Arc<dyn CatalogProviderList>, overlay: Arc<Overlay>) -> Self {
        Self { base, overlay }
    }
}

/// A session's catalogs without what the session made.
pub(crate) fn without_session(list: &Arc<dyn CatalogProviderList>) -> Arc<dyn CatalogProviderList> {
    let any: &dyn Any = list.as_ref();
    Arc::clone(any.downcast_ref::<OverlayCatalogList>().map_or(list, |overlay| &overlay.base))
}

impl CatalogProviderList for OverlayCatalogList {
    fn register_catalog(&self, _name: String, _catalog: Arc<dyn CatalogProvider>) -> Option<Arc<dyn CatalogProvider>> {
        // Not offered: CREATE DATABASE is refused before it comes here.
        None
    }

    fn catalog_names(&self) -> Vec<String> {
        self.base.catalog_names()
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        let base = self.base.catalog(name)?;
        Some(Arc::new(OverlayCatalog { name: name.to_owned(), base, overlay: Arc::clone(&self.overlay) }))
    }
}

#[derive(Debug)]
struct OverlayCatalog {
    name: String,
    base: Arc<dyn CatalogProvider>,
    overlay: Arc<Overlay>,
}

impl CatalogProvider for OverlayCatalog {
    fn schema_names(&self) -> Vec<String> {
        self.base.schema_names()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let base = self.base.schema(name)?;
        Some(Arc::new(OverlaySchema {
            catalog: self.name.clone(),
            name: name.to_owned(),
            base,
            overlay: Arc::clone(&self.overlay),
        }))
    }
}

#[derive(Debug)]
struct OverlaySchema {
    catalog: String,
    name: String,
    base: Arc<dyn SchemaProvider>,
    overlay: Arc<Overlay>,
}

impl OverlaySchema {
    fn key(&self, table: &str) -> Name {
        (self.catalog.clone(), self.name.clone(), table.to_owned())
    }

    fn own(&self, table: &str) -> Option<Arc<dyn TableProvider>> {
        self.overlay.tables.read().get(&self.key(table)).map(Arc::clone)
    }
}

#[async_trait]
impl SchemaProvider for OverlaySchema {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.base.table_names();
        let own = self.overlay.tables.read();
        names.extend(
            own.keys()
                .filter(|(catalog, schema, _)| *catalog == self.catalog && *schema == self.name)
                .map(|(_, _, table)| table.clone()),
        );
        names.sort();
        names.dedup();
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        match self.own(name) {
            // A view is put into the plan, where what it reads is judged; a table stands there itself.
            Some(view) if view.get_logical_plan().is_some() => Ok(Some(view)),
            Some(table) => Ok(Some(Arc::new(Guarded::of_session(table)))),
            None => self.base.table(name).await,
        }
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>, DataFusionError> {
        match self.own(name) {
            Some(table) => Ok(Some(table.table_type())),
            None => self.base.table_type(name).await,
        }
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        if self.base.table_exist(&name) {
            return Err(DataFusionError::Plan(format!("table `{name}` already exists")));
        }
        let mut own = self.overlay.tables.write();
        if own.len() >= MAX_OWN && !own.contains_key(&self.key(&name)) {
            return Err(DataFusionError::Plan(format!("a session may have {MAX_OWN} views and tables of its own")));
        }
        Ok(own.insert(self.key(&name), table))
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        match self.overlay.tables.write().remove(&self.key(name)) {
            Some(table) => Ok(Some(table)),
            None if self.base.table_exist(name) => {
                Err(DataFusionError::Plan(format!("table `{name}` is not one that this session made")))
            }
            None => Ok(None),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.own(name).is_some() || self.base.table_exist(name)
    }
}

const MAX_OWN: usize = 256;
