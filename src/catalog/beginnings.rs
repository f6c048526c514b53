//! A store that shows the beginning of each object and no more.
//!
//! The engine looks for the columns of text and Avro files in memory: all of an object, or a whole line of it. A large
//! one would be the gate's end. Must not be read for rows: what lies behind the beginning is not there.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::object_store::path::Path;
use datafusion::object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use futures::StreamExt;
use futures::stream::BoxStream;

/// The beginnings of another store's objects.
#[derive(Debug)]
pub(super) struct Beginnings {
    store: Arc<dyn ObjectStore>,
    longest: u64,
}

impl Beginnings {
    /// Those of `store`.
    pub(super) fn of(store: Arc<dyn ObjectStore>) -> Self {
        Self { store, longest: LONGEST }
    }

    #[cfg(test)]
    pub(super) fn of_length(store: Arc<dyn ObjectStore>, longest: u64) -> Self {
        Self { store, longest }
    }
}

impl fmt::Display for Beginnings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the beginnings of {}", self.store)
    }
}

#[async_trait]
impl ObjectStore for Beginnings {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.range.is_some() || options.head {
            return Err(not_here("a part of an object"));
        }
        let options = GetOptions { range: Some(GetRange::Bounded(0..self.longest)), ..options };
        let found = self.store.get_opts(location, options).await?;
        let (meta, attributes) = (found.meta.clone(), found.attributes.clone());
        let whole = meta.size <= self.longest;
        let bytes = found.bytes().await?;
        let bytes = if whole { bytes } else { without_half_a_line(bytes) };
        let range = 0..u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        // Never as a file: who gets one of those reads on.
        let payload = GetResultPayload::Stream(futures::stream::iter([Ok(bytes)]).boxed());
        Ok(GetResult { payload, meta, range, attributes })
    }

    async fn put_opts(&self, _location: &Path, _payload: PutPayload, _options: PutOptions) -> Result<PutResult> {
        Err(not_here("a write"))
    }

    async fn put_multipart_opts(
        &self,
        _location: &Path,
        _options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(not_here("a write"))
    }

    fn delete_stream(&self, _locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        futures::stream::iter([Err(not_here("a removal"))]).boxed()
    }

    fn list(&self, _prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        futures::stream::iter([Err(not_here("a listing"))]).boxed()
    }

    async fn list_with_delimiter(&self, _prefix: Option<&Path>) -> Result<ListResult> {
        Err(not_here("a listing"))
    }

    async fn copy_opts(&self, _from: &Path, _to: &Path, _options: CopyOptions) -> Result<()> {
        Err(not_here("a copy"))
    }
}

/// Up to the last end of a line, where there is one.
fn without_half_a_line(bytes: Bytes) -> Bytes {
    match bytes.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => bytes.slice(..=end),
        None => bytes,
    }
}

fn not_here(operation: &str) -> Error {
    Error::NotSupported { source: format!("{operation} is not for the beginnings of objects").into() }
}

/// A thousand records of 16 KiB, which is how many the engine looks at.
const LONGEST: u64 = 16 * 1024 * 1024;
