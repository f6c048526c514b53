//! The configured tables as catalogs: names that cost nothing to look up, and tables that are opened when used.
//!
//! A newer configuration replaces all names at once. Must not do I/O for a name.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::TableType;
use futures::StreamExt;
use parking_lot::RwLock;

use super::slot::{Opener, Slot, Unopened};
use crate::config::Table;

type Tables = BTreeMap<String, Entry>;
type Schemas = BTreeMap<String, Arc<Tables>>;
type Catalogs = BTreeMap<String, Arc<Schemas>>;
/// A catalog and a schema.
pub(super) type Home = (String, String);

/// Every configured table by name.
#[derive(Debug)]
pub(super) struct Configured {
    catalogs: RwLock<Arc<Catalogs>>,
    opener: Arc<Opener>,
    homes: Vec<Home>,
}

#[derive(Clone, Debug)]
struct Entry {
    slot: Arc<Slot>,
    line: usize,
}

/// A table that cannot be opened, and where the configuration names it.
pub(super) struct Broken {
    pub(super) line: usize,
    pub(super) table: String,
    pub(super) why: Unopened,
}

impl Configured {
    /// Knows `tables`, and the catalogs and schemas that sessions begin in, which are there whatever is in them.
    pub(super) fn new(tables: &[Table], homes: Vec<Home>, opener: Opener) -> Self {
        let opener = Arc::new(opener);
        let catalogs = RwLock::new(Arc::new(arrange(tables, &homes, &Catalogs::new(), &opener)));
        Self { catalogs, opener, homes }
    }

    /// Knows these tables and no others from here on. A table that is the same as before stays as open as it was.
    pub(super) fn replace(&self, tables: &[Table]) {
        // Nobody waits for a lock while tables are compared.
        let before = self.now();
        let after = Arc::new(arrange(tables, &self.homes, &before, &self.opener));
        *self.catalogs.write() = after;
    }

    /// Opens every table and waits for it, however long that takes, and tells those that cannot be opened.
    pub(super) async fn open_all(&self) -> Vec<Broken> {
        let catalogs = self.now();
        let entries = catalogs.iter().flat_map(|(catalog, schemas)| {
            schemas.iter().flat_map(move |(schema, tables)| {
                tables.iter().map(move |(name, entry)| (format!("{catalog}.{schema}.{name}"), entry.clone()))
            })
        });
        let mut broken: Vec<Broken> = futures::stream::iter(entries.collect::<Vec<_>>())
            .map(|(table, Entry { slot, line })| async move {
                slot.outcome().await.err().map(|why| Broken { line, table, why })
            })
            .buffer_unordered(AT_A_TIME)
            .filter_map(std::future::ready)
            .collect()
            .await;
        broken.sort_by(|one, other| (one.line, &one.table).cmp(&(other.line, &other.table)));
        broken
    }

    fn now(&self) -> Arc<Catalogs> {
        Arc::clone(&self.catalogs.read())
    }
}

fn arrange(tables: &[Table], homes: &[Home], before: &Catalogs, opener: &Arc<Opener>) -> Catalogs {
    let mut plain: BTreeMap<&str, BTreeMap<&str, Tables>> = BTreeMap::new();
    for (catalog, schema) in homes {
        plain.entry(catalog).or_default().entry(schema).or_default();
    }
    for table in tables {
        let known = before
            .get(&table.catalog)
            .and_then(|schemas| schemas.get(&table.schema))
            .and_then(|tables| tables.get(&table.name))
            .filter(|known| known.slot.is(table));
        let slot = match known {
            Some(known) => Arc::clone(&known.slot),
            None => Arc::new(Slot::new(table.clone(), Arc::clone(opener))),
        };
        let entry = Entry { slot, line: table.line };
        let schemas = plain.entry(&table.catalog).or_default();
        schemas.entry(&table.schema).or_default().insert(table.name.clone(), entry);
    }
    let shared = |schemas: BTreeMap<&str, Tables>| -> Arc<Schemas> {
        Arc::new(schemas.into_iter().map(|(name, tables)| (name.to_owned(), Arc::new(tables))).collect())
    };
    plain.into_iter().map(|(name, schemas)| (name.to_owned(), shared(schemas))).collect()
}

impl CatalogProviderList for Configured {
    fn register_catalog(&self, _name: String, _catalog: Arc<dyn CatalogProvider>) -> Option<Arc<dyn CatalogProvider>> {
        // Not offered: they are the configuration's.
        None
    }

    fn catalog_names(&self) -> Vec<String> {
        self.now().keys().cloned().collect()
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        self.now().get(name).map(|schemas| Arc::new(Catalog(Arc::clone(schemas))) as Arc<dyn CatalogProvider>)
    }
}

#[derive(Debug)]
struct Catalog(Arc<Schemas>);

impl CatalogProvider for Catalog {
    fn schema_names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        self.0.get(name).map(|tables| Arc::new(Schema(Arc::clone(tables))) as Arc<dyn SchemaProvider>)
    }
}

#[derive(Debug)]
struct Schema(Arc<Tables>);

#[async_trait]
impl SchemaProvider for Schema {
    fn table_names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        match self.0.get(name) {
            Some(entry) => Ok(Some(entry.slot.provider().await?)),
            None => Ok(None),
        }
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>, DataFusionError> {
        Ok(self.0.contains_key(name).then_some(TableType::Base))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

/// Tables that are waited for at the same time when all are opened.
const AT_A_TIME: usize = 16;
