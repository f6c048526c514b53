//! Folders of tables, a store that counts and waits, and a backend that only plans.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow::array::ArrayRef;
use async_trait::async_trait;
use datafusion::execution::object_store::{DefaultObjectStoreRegistry, ObjectStoreRegistry};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::object_store::local::LocalFileSystem;
use datafusion::object_store::path::Path as Place;
use datafusion::object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::prelude::SessionConfig;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use portcullis_auth::{Assertion, Expiry, Principal};
use tokio::sync::watch;
use url::Url;

use super::{SessionBuilder, batch};
use crate::backend::{
    BackendError, BackendSession, JobId, PartStream, QueryBackend, ResultPart, StatusStream, Submission,
};
use crate::catalog::slot::Times;
use crate::catalog::{ConfiguredCatalogs, without_listings};
use crate::config::{Format, Table};

/// A folder of one test's own, removed with it.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("portcullis-catalog-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).unwrap();
        Self(path.canonicalize().unwrap())
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub(super) fn parquet(&self, name: &str, columns: &[(&str, ArrayRef)]) {
        let batch = batch(columns);
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        self.write(name, &bytes);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// `sales.public.<name>` over the folder of that name.
pub(super) fn table(folder: &Folder, name: &str, format: Format) -> Table {
    Table {
        catalog: "sales".to_owned(),
        schema: "public".to_owned(),
        name: name.to_owned(),
        location: Url::from_directory_path(folder.path(name)).unwrap(),
        format,
        partitions: Vec::new(),
        options: [].into(),
        line: 1,
    }
}

pub(super) fn catalogs(tables: &[Table]) -> ConfiguredCatalogs {
    with_times(tables, Times::default())
}

pub(super) fn with_times(tables: &[Table], times: Times) -> ConfiguredCatalogs {
    catalogs_over(&Counting::new(), tables, times)
}

pub(super) fn catalogs_over(store: &Counting, tables: &[Table], times: Times) -> ConfiguredCatalogs {
    let registry = DefaultObjectStoreRegistry::new();
    registry.register_store(&Url::parse("file://").unwrap(), Arc::new(store.clone()));
    let runtime = RuntimeEnvBuilder::new().with_object_store_registry(Arc::new(registry)).build().unwrap();
    assert!(without_listings(&runtime).unwrap().cache_manager.get_list_files_cache().is_none());
    let homes = vec![("home".to_owned(), "public".to_owned())];
    ConfiguredCatalogs::with_times(tables, homes, Arc::new(Planning), &runtime, times).unwrap()
}

/// A session of somebody.
pub(super) async fn session(catalogs: &ConfiguredCatalogs) -> SessionState {
    let somebody = Principal::assertion(Assertion {
        name: "alice".to_owned(),
        scheme: "badge",
        authority: "door".to_owned(),
        subject: "alice".to_owned(),
        roles: [].into(),
        attributes: [].into(),
        expires: Expiry::Never,
        credential_id: "badge".to_owned(),
    });
    catalogs.build(&somebody.unwrap(), SessionConfig::new()).await.unwrap()
}

/// This machine's files, with what was asked of them.
#[derive(Clone, Debug)]
pub(super) struct Counting(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    files: LocalFileSystem,
    listings: AtomicUsize,
    /// As many files as each listing shall seem to have, when it is not zero.
    pretended: AtomicUsize,
    open: watch::Sender<Door>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Open,
    Shut,
}

impl Counting {
    pub(super) fn new() -> Self {
        Self(Arc::new(Counted {
            files: LocalFileSystem::new(),
            listings: AtomicUsize::new(0),
            pretended: AtomicUsize::new(0),
            open: watch::Sender::new(Door::Open),
        }))
    }

    pub(super) fn listings(&self) -> usize {
        self.0.listings.load(Ordering::SeqCst)
    }

    pub(super) fn pretend(&self, files: usize) {
        self.0.pretended.store(files, Ordering::SeqCst);
    }

    /// Nothing is listed until [`let_go`](Self::let_go).
    pub(super) fn hold(&self) {
        self.0.open.send_replace(Door::Shut);
    }

    pub(super) fn let_go(&self) {
        self.0.open.send_replace(Door::Open);
    }
}

impl fmt::Display for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("counted files")
    }
}

#[async_trait]
impl ObjectStore for Counting {
    fn list(&self, prefix: Option<&Place>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.listings.fetch_add(1, Ordering::SeqCst);
        let pretended = self.0.pretended.load(Ordering::SeqCst);
        let files = self.0.files.list(prefix);
        let mut door = self.0.open.subscribe();
        let waiting = async move {
            drop(door.wait_for(|door| *door == Door::Open).await);
            if pretended == 0 {
                return files;
            }
            // The first file, and so many others that are empty.
            let first: Vec<_> = files.try_collect().await.unwrap();
            let file = first.first().unwrap().clone();
            let others = (1..pretended).map(move |number| {
                let location = Place::from(format!("{}-{number}.parquet", file.location));
                Ok(ObjectMeta { location, size: 0, ..file.clone() })
            });
            futures::stream::iter(first.into_iter().map(Ok)).chain(futures::stream::iter(others)).boxed()
        };
        futures::stream::once(waiting).flatten().boxed()
    }

    async fn get_opts(&self, location: &Place, options: GetOptions) -> Result<GetResult> {
        self.0.files.get_opts(location, options).await
    }

    async fn put_opts(&self, location: &Place, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.0.files.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Place,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.files.put_multipart_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Place>>) -> BoxStream<'static, Result<Place>> {
        self.0.files.delete_stream(locations)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Place>) -> Result<ListResult> {
        self.0.files.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Place, to: &Place, options: CopyOptions) -> Result<()> {
        self.0.files.copy_opts(from, to, options).await
    }
}

/// A cluster that plans and nothing else.
#[derive(Debug)]
struct Planning;

#[async_trait]
impl QueryBackend for Planning {
    fn result_ttl(&self) -> Duration {
        Duration::ZERO
    }

    fn session_config(&self) -> SessionConfig {
        SessionConfig::new()
    }

    fn planning_state(&self, config: SessionConfig) -> SessionStateBuilder {
        SessionStateBuilder::new().with_config(config).with_default_features()
    }

    async fn submit(&self, _query: Submission) -> std::result::Result<StatusStream, BackendError> {
        Err(BackendError::unavailable("nothing runs here"))
    }

    async fn fetch(&self, _part: &ResultPart) -> std::result::Result<PartStream, BackendError> {
        Err(BackendError::unavailable("nothing runs here"))
    }

    async fn cancel(&self, _job: &JobId) -> std::result::Result<(), BackendError> {
        Ok(())
    }

    async fn clean(&self, _job: &JobId) -> std::result::Result<(), BackendError> {
        Ok(())
    }

    async fn close(&self, _session: &BackendSession) -> std::result::Result<(), BackendError> {
        Ok(())
    }
}

/// Where a path leads as a location in SQL.
pub(super) fn location(path: &Path) -> String {
    path.display().to_string()
}
