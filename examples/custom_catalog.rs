//! An embedder's catalog: everybody sees the notes in a file of their own, and nobody sees another's.
//!
//! `custom_catalog KEYS FOLDER`: API keys as `portcullis new-key --api-key` prints them, and one `NAME.csv` for each
//! principal, which is `portcullis.public.notes` to that principal and does not exist for others.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, CatalogProviderList};
use datafusion::catalog::{MemoryCatalogProvider, MemoryCatalogProviderList, MemorySchemaProvider};
use datafusion::execution::SessionState;
use datafusion::prelude::{CsvReadOptions, SessionConfig, SessionContext};
use portcullis::backend::QueryBackend;
use portcullis::catalog::{BuildError, SessionBuilder};
use portcullis::server::Catalogs;
use portcullis_auth::Principal;
use portcullis_auth_api_key::{ApiKeys, KeyFile};

#[path = "support/gate.rs"]
mod gate;

#[derive(Debug)]
struct Notes {
    backend: Arc<dyn QueryBackend>,
    folder: PathBuf,
}

#[async_trait]
impl SessionBuilder for Notes {
    async fn build(&self, principal: &Principal, config: SessionConfig) -> Result<SessionState, BuildError> {
        let failed = |error: &dyn Error| BuildError(error.to_string());
        let (catalog, catalogs) = (MemoryCatalogProvider::new(), MemoryCatalogProviderList::new());
        catalog.register_schema("public", Arc::new(MemorySchemaProvider::new())).map_err(|error| failed(&error))?;
        catalogs.register_catalog("portcullis".to_owned(), Arc::new(catalog));
        let state = self.backend.planning_state(config).with_catalog_list(Arc::new(catalogs)).build();
        let context = SessionContext::new_with_state(state);
        let mut files = tokio::fs::read_dir(&self.folder).await.map_err(|error| failed(&error))?;
        while let Some(file) = files.next_entry().await.map_err(|error| failed(&error))? {
            // Compared and not joined, so that a name such as `../bob` leads nowhere.
            if file.file_name().to_str() == Some(&format!("{}.csv", principal.name())) {
                let path = file.path().display().to_string();
                let notes = context.register_csv("portcullis.public.notes", path, CsvReadOptions::default());
                notes.await.map_err(|error| failed(&error))?;
            }
        }
        Ok(context.state())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [keys, folder] = arguments.as_slice() else { return Err("usage: custom_catalog KEYS FOLDER".into()) };
    let (keys, folder) = (KeyFile::parse(&std::fs::read_to_string(keys)?)?, std::fs::canonicalize(folder)?);
    gate::serve(ApiKeys::new("keys", keys), |backend| Catalogs::Built(Arc::new(Notes { backend, folder })))
}
