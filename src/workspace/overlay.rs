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
use crate::storage::Temporary;

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
        self.overlay.tables.read().get(&self.key(table)).filter(|table| !is_over(table)).map(Arc::clone)
    }
}

#[async_trait]
impl SchemaProvider for OverlaySchema {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.base.table_names();
        let own = self.overlay.tables.read();
        names.extend(
            own.iter()
                .filter(|((catalog, schema, _), table)| {
                    *catalog == self.catalog && *schema == self.name && !is_over(table)
                })
                .map(|((_, _, table), _)| table.clone()),
        );
        names.sort();
        names.dedup();
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        match self.own(name) {
            // A view is put into the plan, where what it reads is judged; a table stands there itself.
            Some(view) if view.get_logical_plan().is_some() => Ok(Some(view)),
            Some(table) => {
                let table = table.downcast_ref::<Temporary>().map_or_else(|| Arc::clone(&table), Temporary::table);
                Ok(Some(Arc::new(Guarded::of_session(table))))
            }
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
        own.retain(|_, table| !is_over(table));
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

fn is_over(table: &Arc<dyn TableProvider>) -> bool {
    table.downcast_ref::<Temporary>().is_some_and(Temporary::is_over)
}

const MAX_OWN: usize = 256;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use std::time::Duration;

    use arrow::datatypes::Schema;
    use datafusion::catalog::{MemoryCatalogProvider, MemoryCatalogProviderList, MemorySchemaProvider};
    use url::Url;

    use super::*;
    use crate::storage::Storage;
    use crate::stores::Stores;

    #[tokio::test]
    async fn a_temporary_table_ends_before_its_rows_do() {
        let folder = std::env::temp_dir().join(format!("portcullis-overlay-{}", std::process::id()));
        let storage = Storage::open(Url::from_directory_path(&folder).unwrap(), &Stores::local_only()).await.unwrap();
        let base = MemoryCatalogProvider::new();
        base.register_schema("s", Arc::new(MemorySchemaProvider::new())).unwrap();
        let all = MemoryCatalogProviderList::new();
        all.register_catalog("c".to_owned(), Arc::new(base));
        let list = OverlayCatalogList::new(Arc::new(all), Arc::default());
        let schema = list.catalog("c").unwrap().schema("s").unwrap();
        for (name, lasts) in [("over", Duration::ZERO), ("here", Temporary::LASTS)] {
            let table = Storage::temporary(&storage.draft().unwrap(), &Arc::new(Schema::empty()), lasts).unwrap();
            schema.register_table(name.to_owned(), Arc::new(table)).unwrap();
        }
        assert!(schema.table("here").await.unwrap().unwrap().is::<Guarded>() && schema.table_exist("here"));
        assert!(schema.table("over").await.unwrap().is_none() && !schema.table_exist("over"));
        assert_eq!(schema.table_names(), ["here"]);
        assert!(Temporary::LASTS < Storage::abandoned(Duration::ZERO), "its rows are there longer");
        drop(std::fs::remove_dir_all(folder));
    }
}
