//! A principal's view of the catalogs: what it may not see is not there, and what is there cannot be read as it is.
//!
//! Every table is handed out as a [`Guarded`], which has a schema and no rows: a plan over it runs nowhere until
//! `sql/policy.rs` has put the real table behind the policy in its place. So whatever forgets to ask does not leak, it
//! fails. Must not know SQL; asks the [`Authorizer`] each time and remembers nothing.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, Session, TableProvider};
use datafusion::common::Constraints;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use portcullis_auth::{Access, Authorizer, Principal, TableName};

use crate::storage::{FullName, Maker};

/// Who looks, and who says what there is to see.
#[derive(Debug)]
pub(crate) struct Viewer {
    /// Who looks.
    pub(crate) principal: Principal,
    /// Who decides.
    pub(crate) authorizer: Arc<dyn Authorizer>,
    /// The session's own catalog and schema, which are there whatever is in them.
    pub(crate) home: (String, String),
}

impl Viewer {
    /// What the viewer may do with a table of that name.
    pub(crate) fn access(&self, catalog: &str, schema: &str, table: &str) -> Access {
        self.authorizer.table(&self.principal, TableName { catalog, schema, table })
    }

    fn sees(&self, catalog: &str, schema: &str, table: &str) -> bool {
        !self.access(catalog, schema, table).is_none()
    }

    fn sees_schema(&self, catalog: &str, name: &str, schema: &dyn SchemaProvider) -> bool {
        (self.home.0 == catalog && self.home.1 == name)
            || schema.table_names().iter().any(|table| self.sees(catalog, name, table))
    }
}

/// The catalogs that a viewer sees.
#[derive(Debug)]
pub(crate) struct Visible {
    base: Arc<dyn CatalogProviderList>,
    viewer: Arc<Viewer>,
}

impl Visible {
    pub(crate) fn new(base: Arc<dyn CatalogProviderList>, viewer: Arc<Viewer>) -> Self {
        Self { base, viewer }
    }

    fn view(&self, name: &str) -> Option<VisibleCatalog> {
        let base = self.base.catalog(name)?;
        Some(VisibleCatalog { name: name.to_owned(), base, viewer: Arc::clone(&self.viewer) })
    }
}

impl CatalogProviderList for Visible {
    fn register_catalog(&self, _name: String, _catalog: Arc<dyn CatalogProvider>) -> Option<Arc<dyn CatalogProvider>> {
        None
    }

    fn catalog_names(&self) -> Vec<String> {
        let mut names = self.base.catalog_names();
        names.retain(|name| self.view(name).is_some_and(|catalog| catalog.is_visible()));
        names
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        self.view(name).filter(VisibleCatalog::is_visible).map(|catalog| Arc::new(catalog) as Arc<dyn CatalogProvider>)
    }
}

#[derive(Debug)]
struct VisibleCatalog {
    name: String,
    base: Arc<dyn CatalogProvider>,
    viewer: Arc<Viewer>,
}

impl VisibleCatalog {
    fn is_visible(&self) -> bool {
        self.viewer.home.0 == self.name || self.base.schema_names().iter().any(|schema| self.shows(schema))
    }

    fn shows(&self, schema: &str) -> bool {
        self.base.schema(schema).is_some_and(|base| self.viewer.sees_schema(&self.name, schema, base.as_ref()))
    }
}

impl CatalogProvider for VisibleCatalog {
    fn schema_names(&self) -> Vec<String> {
        let mut names = self.base.schema_names();
        names.retain(|schema| self.shows(schema));
        names
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let base = self.base.schema(name).filter(|base| self.viewer.sees_schema(&self.name, name, base.as_ref()))?;
        Some(Arc::new(VisibleSchema {
            catalog: self.name.clone(),
            name: name.to_owned(),
            base,
            viewer: Arc::clone(&self.viewer),
        }))
    }
}

#[derive(Debug)]
struct VisibleSchema {
    catalog: String,
    name: String,
    base: Arc<dyn SchemaProvider>,
    viewer: Arc<Viewer>,
}

#[async_trait]
impl SchemaProvider for VisibleSchema {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.base.table_names();
        names.retain(|table| self.viewer.sees(&self.catalog, &self.name, table));
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let access = self.viewer.access(&self.catalog, &self.name, name);
        if access.is_none() {
            return Ok(None);
        }
        Ok(self.base.table(name).await?.map(|table| {
            let place = FullName { catalog: self.catalog.clone(), schema: self.name.clone(), table: name.to_owned() };
            Arc::new(Guarded::of_catalog(table, place, &access)) as Arc<dyn TableProvider>
        }))
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>, DataFusionError> {
        match self.viewer.sees(&self.catalog, &self.name, name) {
            true => self.base.table_type(name).await,
            false => Ok(None),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.base.table_exist(name) && self.viewer.sees(&self.catalog, &self.name, name)
    }
}

/// A table that has a schema and no rows.
#[derive(Debug)]
pub(crate) struct Guarded {
    real: Arc<dyn TableProvider>,
    schema: SchemaRef,
    constraints: Option<Constraints>,
    owner: Owner,
    definition: Definition,
}

/// Whether a view's text is for the one who looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Definition {
    Hidden,
    Shown,
}

/// Whose table it is.
#[derive(Debug)]
pub(crate) enum Owner {
    /// A catalog's: the policy decides.
    Catalog(FullName),
    /// Somebody's, who made it to be kept: its maker may do with it what it likes, others what the policy says.
    Kept(FullName, Maker),
    /// The session's own: it may do with it what it likes.
    Session,
}

impl Guarded {
    /// A table of a catalog, of which `access` may hide something.
    fn of_catalog(real: Arc<dyn TableProvider>, name: FullName, access: &Access) -> Self {
        Self::hiding(real, Owner::Catalog(name), access)
    }

    /// A kept table, of which `access` may hide something.
    pub(crate) fn of_kept(real: Arc<dyn TableProvider>, name: FullName, maker: Maker, access: &Access) -> Self {
        Self::hiding(real, Owner::Kept(name, maker), access)
    }

    fn hiding(real: Arc<dyn TableProvider>, owner: Owner, access: &Access) -> Self {
        let schema = real.schema();
        let masked = |field: &str| access.masks().contains_key(field);
        let hides = schema.fields().iter().any(|field| masked(field.name()));
        // What stands in a column's place may be NULL and need not be unique.
        let (schema, constraints) = if hides {
            let shown = schema.fields().iter().map(|field| match masked(field.name()) {
                true => Arc::new(Field::new(field.name(), field.data_type().clone(), true)),
                false => Arc::clone(field),
            });
            (Arc::new(Schema::new(shown.collect::<Vec<_>>())), None)
        } else {
            (schema, real.constraints().cloned())
        };
        Self { real, schema, constraints, owner, definition: Definition::Hidden }
    }

    /// The same, with the text that defines it.
    pub(crate) fn defined(self) -> Self {
        Self { definition: Definition::Shown, ..self }
    }

    /// A table that a session made for itself.
    pub(crate) fn of_session(real: Arc<dyn TableProvider>) -> Self {
        let (schema, constraints) = (real.schema(), real.constraints().cloned());
        Self { real, schema, constraints, owner: Owner::Session, definition: Definition::Hidden }
    }

    /// The table itself, for what has asked the policy.
    pub(crate) fn real(&self) -> &Arc<dyn TableProvider> {
        &self.real
    }

    /// Whose it is.
    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }
}

#[async_trait]
impl TableProvider for Guarded {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn constraints(&self) -> Option<&Constraints> {
        self.constraints.as_ref()
    }

    fn table_type(&self) -> TableType {
        self.real.table_type()
    }

    fn get_table_definition(&self) -> Option<&str> {
        match self.definition {
            Definition::Hidden => None,
            Definition::Shown => self.real.get_table_definition(),
        }
    }

    fn get_column_default(&self, column: &str) -> Option<&Expr> {
        self.real.get_column_default(column)
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        Err(DataFusionError::Internal("a table was about to be read without its policy".to_owned()))
    }
}
