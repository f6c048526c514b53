//! Kept tables and views as a principal's planner sees them, beside the tables of the configuration or of an embedder.
//!
//! What a viewer sees of those hides a kept table of the same name, and a kept table is only in schemas that they have.
//! Does no I/O: what a table's columns are is known from its record.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::TableType;
use portcullis_auth::{Access, Action, TableName};
use url::Url;

use super::Storage;
use super::record::Maker;
use super::view::KeptView;
use crate::catalog::guarded::{Guarded, Viewer};

/// One table or view that is there.
#[derive(Debug)]
pub(super) struct Kept {
    maker: Maker,
    what: What,
}

#[derive(Debug)]
enum What {
    Table(Arc<ListingTable>),
    View(Arc<KeptView>),
}

impl Kept {
    pub(super) fn table(maker: Maker, place: Url, schema: SchemaRef) -> Result<Self, DataFusionError> {
        Ok(Self { maker, what: What::Table(Arc::new(rows(place, schema)?)) })
    }

    pub(super) fn view(maker: Maker, view: KeptView) -> Self {
        Self { maker, what: What::View(Arc::new(view)) }
    }

    fn kind(&self) -> TableType {
        match self.what {
            What::Table(_) => TableType::Base,
            What::View(_) => TableType::View,
        }
    }

    fn provider(&self) -> Arc<dyn TableProvider> {
        match &self.what {
            What::Table(table) => Arc::clone(table) as Arc<dyn TableProvider>,
            What::View(view) => Arc::clone(view) as Arc<dyn TableProvider>,
        }
    }

    #[cfg(test)]
    pub(super) fn maker(&self) -> &Maker {
        &self.maker
    }

    #[cfg(test)]
    pub(super) fn schema(&self) -> SchemaRef {
        self.provider().schema()
    }
}

/// The table of the rows in one folder.
pub(super) fn rows(place: Url, schema: SchemaRef) -> Result<ListingTable, DataFusionError> {
    let options = ListingOptions::new(Arc::new(ParquetFormat::default())).with_file_extension(".parquet");
    let config = ListingTableConfig::new(ListingTableUrl::try_new(place, None)?)
        .with_listing_options(options)
        .with_schema(schema);
    ListingTable::try_new(config)
}

/// What a viewer sees: the catalogs that it sees, and with them the kept tables.
#[derive(Debug)]
pub(crate) struct WithKept {
    /// Every catalog there is.
    all: Arc<dyn CatalogProviderList>,
    /// What the viewer sees of them.
    seen: Arc<dyn CatalogProviderList>,
    looker: Looker,
}

/// Who looks at which tables.
#[derive(Clone, Debug)]
struct Looker {
    storage: Arc<Storage>,
    viewer: Arc<Viewer>,
}

impl Looker {
    fn access(&self, name: TableName<'_>, kept: &Kept) -> Access {
        if kept.maker.is(self.viewer.principal.key()) {
            return Access::to(Action::ALL);
        }
        let access = self.viewer.access(name.catalog, name.schema, name.table);
        match kept.what {
            What::Table(_) => access,
            // A view holds nothing: rows and columns are hidden in the tables that it reads.
            What::View(_) => Access::to(Action::ALL.into_iter().filter(|action| access.allows(*action))),
        }
    }

    fn find(&self, name: TableName<'_>) -> Option<(Arc<Kept>, Access)> {
        let kept = self.storage.kept(name)?;
        let access = self.access(name, &kept);
        (!access.is_none()).then_some((kept, access))
    }

    fn sees_in(&self, catalog: &str, schema: &str) -> Vec<String> {
        let mut names = self.storage.in_schema(catalog, schema);
        names.retain(|table| self.find(TableName { catalog, schema, table }).is_some());
        names
    }

    /// Whether there is a reason to see a schema: a table in it, or that one can be made there.
    fn sees_schema(&self, catalog: &str, schema: &str) -> bool {
        let any = self.viewer.access(catalog, schema, "");
        any.allows(Action::Create) || !self.sees_in(catalog, schema).is_empty()
    }
}

impl WithKept {
    pub(crate) fn new(
        all: Arc<dyn CatalogProviderList>,
        seen: Arc<dyn CatalogProviderList>,
        storage: Arc<Storage>,
        viewer: Arc<Viewer>,
    ) -> Self {
        Self { all, seen, looker: Looker { storage, viewer } }
    }
}

impl CatalogProviderList for WithKept {
    fn register_catalog(&self, _name: String, _catalog: Arc<dyn CatalogProvider>) -> Option<Arc<dyn CatalogProvider>> {
        None
    }

    fn catalog_names(&self) -> Vec<String> {
        let mut names = self.all.catalog_names();
        names.retain(|name| self.catalog(name).is_some());
        names
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        let all = self.all.catalog(name)?;
        let catalog =
            Catalog { name: name.to_owned(), all, seen: self.seen.catalog(name), looker: self.looker.clone() };
        let visible = catalog.seen.is_some() || !catalog.schema_names().is_empty();
        visible.then(|| Arc::new(catalog) as Arc<dyn CatalogProvider>)
    }
}

#[derive(Debug)]
struct Catalog {
    name: String,
    all: Arc<dyn CatalogProvider>,
    /// None where the viewer sees nothing of it but what is kept.
    seen: Option<Arc<dyn CatalogProvider>>,
    looker: Looker,
}

impl CatalogProvider for Catalog {
    fn schema_names(&self) -> Vec<String> {
        let mut names = self.all.schema_names();
        names.retain(|name| self.schema(name).is_some());
        names
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        self.all.schema(name)?;
        let seen = self.seen.as_ref().and_then(|seen| seen.schema(name));
        if seen.is_none() && !self.looker.sees_schema(&self.name, name) {
            return None;
        }
        let looker = self.looker.clone();
        Some(Arc::new(Schema { catalog: self.name.clone(), name: name.to_owned(), seen, looker }))
    }
}

#[derive(Debug)]
struct Schema {
    catalog: String,
    name: String,
    /// None where the viewer sees nothing of it but what is kept.
    seen: Option<Arc<dyn SchemaProvider>>,
    looker: Looker,
}

impl Schema {
    fn name_of<'a>(&'a self, table: &'a str) -> TableName<'a> {
        TableName { catalog: &self.catalog, schema: &self.name, table }
    }

    /// What the viewer sees under this name that is not kept.
    fn seen(&self, table: &str) -> Option<&Arc<dyn SchemaProvider>> {
        self.seen.as_ref().filter(|seen| seen.table_exist(table))
    }
}

#[async_trait]
impl SchemaProvider for Schema {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.seen.as_ref().map(|seen| seen.table_names()).unwrap_or_default();
        names.extend(self.looker.sees_in(&self.catalog, &self.name));
        names.sort();
        names.dedup();
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        if let Some(seen) = self.seen(name) {
            return seen.table(name).await;
        }
        let place = self.name_of(name);
        Ok(self.looker.find(place).map(|(kept, access)| {
            let guarded = Guarded::of_kept(kept.provider(), place.into(), kept.maker.clone(), &access);
            let own = kept.maker.is(self.looker.viewer.principal.key());
            // The names in a text may be of what others do not see.
            Arc::new(if own { guarded.defined() } else { guarded }) as Arc<dyn TableProvider>
        }))
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>, DataFusionError> {
        match self.seen(name) {
            Some(seen) => seen.table_type(name).await,
            None => Ok(self.looker.find(self.name_of(name)).map(|(kept, _)| kept.kind())),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.seen(name).is_some() || self.looker.find(self.name_of(name)).is_some()
    }
}
