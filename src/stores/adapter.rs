//! A store of the one version of `object_store` behind the trait of the other.
//!
//! The engine's version is built without clients for the network, because those would bring a second provider of
//! cryptography. Says what a store answered in the engine's words and loses no kind of error; what is told of an error
//! never has a credential of the store in it. Must not decide what may be reached.

mod translated;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::object_store::path::Path;
use datafusion::object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, RenameOptions, Result, UploadPart,
};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};

use self::translated::{Told, back, there};

/// A store from the network, as the engine wants to see one.
pub(super) struct Adapter {
    store: Arc<dyn object_stores::ObjectStore>,
    /// What it is called in messages: the key of its section.
    name: String,
    told: Arc<Told>,
}

impl Adapter {
    /// `unspeakable` are texts that are never repeated, whatever a store answers.
    pub(super) fn new(store: Arc<dyn object_stores::ObjectStore>, name: &str, unspeakable: Vec<Vec<u8>>) -> Self {
        Self { store, name: name.to_owned(), told: Arc::new(Told::without(unspeakable)) }
    }
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the store itself: its clients hold credentials.
        f.debug_struct("Adapter").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Display for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[async_trait]
impl ObjectStore for Adapter {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let (location, payload) = (there::path(location)?, there::payload(payload));
        let done = self.store.put_opts(&location, payload, there::put_options(opts)).await;
        done.map(back::put_result).map_err(|error| self.told.error(error))
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let location = there::path(location)?;
        let upload = self.store.put_multipart_opts(&location, there::multipart_options(opts)).await;
        let upload = upload.map_err(|error| self.told.error(error))?;
        Ok(Box::new(Upload { upload, told: Arc::clone(&self.told) }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let location = there::path(location)?;
        let got = self.store.get_opts(&location, there::get_options(options)).await;
        back::get_result(got.map_err(|error| self.told.error(error))?, &self.told)
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let location = there::path(location)?;
        self.store.get_ranges(&location, ranges).await.map_err(|error| self.told.error(error))
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let told = Arc::clone(&self.told);
        let locations = locations.map(|location| there::path(&location.map_err(there::error)?).map_err(there::error));
        let deleted = self.store.delete_stream(locations.boxed());
        deleted.map(move |path| back::path(&path.map_err(|error| told.error(error))?)).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match prefix.map(there::path).transpose() {
            Ok(prefix) => self.metas(self.store.list(prefix.as_ref())),
            Err(error) => failed(error),
        }
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        match (prefix.map(there::path).transpose(), there::path(offset)) {
            (Ok(prefix), Ok(offset)) => self.metas(self.store.list_with_offset(prefix.as_ref(), &offset)),
            (Err(error), _) | (_, Err(error)) => failed(error),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let prefix = prefix.map(there::path).transpose()?;
        let listed = self.store.list_with_delimiter(prefix.as_ref()).await;
        back::list_result(listed.map_err(|error| self.told.error(error))?)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let (from, to) = (there::path(from)?, there::path(to)?);
        let copied = self.store.copy_opts(&from, &to, there::copy_options(options)).await;
        copied.map_err(|error| self.told.error(error))
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let (from, to) = (there::path(from)?, there::path(to)?);
        let renamed = self.store.rename_opts(&from, &to, there::rename_options(options)).await;
        renamed.map_err(|error| self.told.error(error))
    }
}

impl Adapter {
    fn metas(
        &self,
        listed: BoxStream<'static, object_stores::Result<object_stores::ObjectMeta>>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let told = Arc::clone(&self.told);
        listed.map(move |meta| back::meta(meta.map_err(|error| told.error(error))?)).boxed()
    }
}

fn failed<T: Send + 'static>(error: datafusion::object_store::Error) -> BoxStream<'static, Result<T>> {
    futures::stream::once(async { Err(error) }).boxed()
}

/// An upload in parts.
#[derive(Debug)]
struct Upload {
    upload: Box<dyn object_stores::MultipartUpload>,
    told: Arc<Told>,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let told = Arc::clone(&self.told);
        let part = self.upload.put_part(there::payload(data));
        async move { part.await.map_err(|error| told.error(error)) }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.upload.complete().await.map(back::put_result).map_err(|error| self.told.error(error))
    }

    async fn abort(&mut self) -> Result<()> {
        self.upload.abort().await.map_err(|error| self.told.error(error))
    }
}

#[cfg(test)]
mod tests;
