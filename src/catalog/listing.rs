//! Tables over files: which files there are, what their columns are, and how much of either there may be.
//!
//! One way for the configuration and for `CREATE EXTERNAL TABLE`. The engine's own factory lists without a bound, reads
//! the footer of every file for statistics that only the cluster needs, and tells the cluster to read whatever lies in
//! a folder; this one does not. Must not remember anything: what is opened twice is listed twice.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider, TableProviderFactory};
use datafusion::common::TableReference;
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::logical_expr::CreateExternalTable;
use datafusion::object_store::{ObjectMeta, ObjectStore};
use futures::TryStreamExt;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::beginnings::Beginnings;

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unlisted {
    /// What the engine or a store said; may hold places.
    #[error(transparent)]
    Engine(#[from] DataFusionError),
    /// More than there may be of something; tells no place.
    #[error("{0}")]
    TooMuch(String),
}

/// Makes tables over files for `CREATE EXTERNAL TABLE`.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileTables;

#[async_trait]
impl TableProviderFactory for FileTables {
    async fn create(
        &self,
        state: &dyn Session,
        command: &CreateExternalTable,
    ) -> Result<Arc<dyn TableProvider>, DataFusionError> {
        let columns = Columns::of(command)?;
        match open(state, command, columns).await {
            Ok((table, _)) => Ok(Arc::new(table)),
            Err(Unlisted::Engine(error)) => Err(error),
            Err(Unlisted::TooMuch(told)) => Err(DataFusionError::Plan(told)),
        }
    }
}

/// What is known of a table's columns before its files are looked at.
#[derive(Debug)]
pub(super) enum Columns {
    /// Everything.
    Given {
        /// Of the files.
        files: SchemaRef,
        /// Of their folders.
        partitions: Vec<(String, DataType)>,
    },
    /// Those of the files are in the files. Those of their folders are known, or are to be seen there when there is no
    /// list of them.
    InFiles(Vec<(String, DataType)>),
}

impl Columns {
    fn of(command: &CreateExternalTable) -> Result<Self, DataFusionError> {
        let schema = command.schema.inner();
        let partitions = &command.table_partition_cols;
        if schema.fields().is_empty() {
            return Ok(Self::InFiles(partitions.iter().map(|name| (name.clone(), folder_type())).collect()));
        }
        let typed = partitions
            .iter()
            .map(|name| Ok((name.clone(), schema.field_with_name(name)?.data_type().clone())))
            .collect::<Result<Vec<_>, DataFusionError>>()?;
        let fields = schema.fields().iter().enumerate();
        let of_files: Vec<usize> =
            fields.filter(|(_, field)| !partitions.contains(field.name())).map(|(index, _)| index).collect();
        Ok(Self::Given { files: Arc::new(schema.project(&of_files)?), partitions: typed })
    }
}

/// Tells one state of a table's files from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    files: usize,
    digest: u64,
}

/// The table that a command describes, and the state of its files.
pub(super) async fn open(
    state: &dyn Session,
    command: &CreateExternalTable,
    columns: Columns,
) -> Result<(ListingTable, Stamp), Unlisted> {
    let urls = urls(command)?;
    let format = format(state, command)?;
    let extension = extension(format.as_ref(), &urls)?;
    let options = ListingOptions::new(Arc::clone(&format))
        .with_file_extension(extension)
        .with_file_sort_order(command.order_exprs.clone());
    let (given, partitions) = match columns {
        Columns::Given { files, partitions } => (Some(files), partitions),
        Columns::InFiles(partitions) if partitions.is_empty() => (None, seen_in(state, &options, &urls).await?),
        Columns::InFiles(partitions) => (None, partitions),
    };
    if partitions.len() > MAX_PARTITION_COLUMNS {
        return Err(too_much(&command.name, MAX_PARTITION_COLUMNS, "partition columns"));
    }
    let options = options.with_table_partition_cols(partitions);
    for url in &urls {
        options.validate_partitions(state, url).await?;
    }
    let found = list(state, &command.name, &options, &urls, Keep::upto(&command.file_type)).await?;
    let stamp = found.stamp();
    let files = match given {
        Some(files) => files,
        None => inferred(state, command, format.as_ref(), &urls, found.newest()).await?,
    };
    // With all that is nested in them: one column can hold as much as a table.
    let columns = files.flattened_fields().len().saturating_add(options.table_partition_cols.len());
    if columns > MAX_COLUMNS {
        return Err(too_much(&command.name, MAX_COLUMNS, "columns"));
    }
    let config = ListingTableConfig::new_with_multi_paths(urls).with_listing_options(options).with_schema(files);
    let table = ListingTable::try_new(config)?
        .with_definition(command.definition.clone())
        .with_constraints(command.constraints.clone())
        .with_column_defaults(command.column_defaults.clone());
    Ok((table, stamp))
}

/// The state of an open table's files as it is now, or that there are too many of them.
pub(crate) async fn look(state: &dyn Session, name: &TableReference, table: &ListingTable) -> Result<Stamp, Unlisted> {
    let found = list(state, name, table.options(), table.table_paths(), Keep(0)).await?;
    Ok(found.stamp())
}

/// Tables whose files were counted a moment ago, so that they need not be counted for each query. Part of a session's
/// configuration, and shared by all sessions.
#[derive(Debug, Default)]
pub(crate) struct Counted(Mutex<HashMap<Vec<ListingTableUrl>, Instant>>);

impl Counted {
    /// Whether this table was counted within some minutes.
    pub(crate) fn recently(&self, table: &ListingTable) -> bool {
        self.0.lock().get(table.table_paths()).is_some_and(|when| when.elapsed() < COUNTED)
    }

    /// It was just counted.
    pub(crate) fn note(&self, table: &ListingTable) {
        let mut counted = self.0.lock();
        if counted.len() >= MAX_COUNTED {
            counted.retain(|_, when| when.elapsed() < COUNTED);
        }
        // One that finds no place is counted once more.
        if counted.len() < MAX_COUNTED {
            counted.insert(table.table_paths().clone(), Instant::now());
        }
    }
}

fn urls(command: &CreateExternalTable) -> Result<Vec<ListingTableUrl>, DataFusionError> {
    let mut urls = Vec::with_capacity(command.locations.len());
    for location in &command.locations {
        urls.push(ListingTableUrl::parse(location)?.with_table_ref(command.name.clone()));
    }
    let Some(first) = urls.first() else {
        return Err(DataFusionError::Plan("a table over files needs a location".to_owned()));
    };
    // All are read from the store of the first.
    if urls.iter().any(|url| url.object_store() != first.object_store()) {
        return Err(DataFusionError::Plan("the locations of one table must be in one store".to_owned()));
    }
    if urls.iter().collect::<HashSet<_>>().len() < urls.len() {
        return Err(DataFusionError::Plan("a location is named twice".to_owned()));
    }
    Ok(urls)
}

fn format(state: &dyn Session, command: &CreateExternalTable) -> Result<Arc<dyn FileFormat>, DataFusionError> {
    let session = state
        .as_any()
        .downcast_ref::<SessionState>()
        .ok_or_else(|| DataFusionError::Internal("a table over files needs a whole session".to_owned()))?;
    session
        .get_file_format_factory(&command.file_type)
        .ok_or_else(|| DataFusionError::Plan(format!("there is no format `{}`", command.file_type)))?
        .create(session, &command.options)
}

/// What the names of a folder's files must end with. The cluster goes by it as well: what else lies in the folder, such
/// as the marks that other engines leave, would otherwise be read as data.
fn extension(format: &dyn FileFormat, urls: &[ListingTableUrl]) -> Result<String, DataFusionError> {
    if !urls.iter().all(ListingTableUrl::is_collection) {
        // A file that was named is read whatever its name.
        return Ok(String::new());
    }
    let bare = match format.compression_type() {
        Some(compression) => format.get_ext_with_compression(&compression)?,
        None => format.get_ext(),
    };
    Ok(format!(".{bare}"))
}

/// The partition columns that the names of the folders tell, where an option of the engine wants them.
async fn seen_in(
    state: &dyn Session,
    options: &ListingOptions,
    urls: &[ListingTableUrl],
) -> Result<Vec<(String, DataType)>, DataFusionError> {
    match urls.first() {
        Some(first) if state.config_options().execution.listing_table_factory_infer_partitions => {
            let names = options.infer_partitions(state, first).await?;
            Ok(names.into_iter().map(|name| (name, folder_type())).collect())
        }
        Some(_) | None => Ok(Vec::new()),
    }
}

/// What the engine takes names of folders for when nobody says what they are.
fn folder_type() -> DataType {
    DataType::Dictionary(Box::new(DataType::UInt16), Box::new(DataType::Utf8))
}

async fn inferred(
    state: &dyn Session,
    command: &CreateExternalTable,
    format: &dyn FileFormat,
    urls: &[ListingTableUrl],
    files: Vec<ObjectMeta>,
) -> Result<SchemaRef, DataFusionError> {
    let Some(first) = urls.first().filter(|_| !files.is_empty()) else {
        let places: Vec<_> = command.locations.iter().map(String::as_str).collect();
        let wanted = extension(format, urls)?;
        let wanted = if wanted.is_empty() { "with something in it".to_owned() } else { format!("named `*{wanted}`") };
        return Err(DataFusionError::Plan(format!("there is no file {wanted} at {}", places.join(", "))));
    };
    let store = state.runtime_env().object_store(first)?;
    let store: Arc<dyn ObjectStore> =
        if reads_whole_files(&command.file_type) { Arc::new(Beginnings::of(store)) } else { store };
    format.infer_schema(state, &store, &files).await.map(without_views)
}

/// Files whose writer had views are read without: what the cluster cuts into slices would carry whole buffers along.
#[expect(clippy::wildcard_enum_match_arm, reason = "all other types are read as they are")]
fn without_views(schema: SchemaRef) -> SchemaRef {
    let plain = |field: &Arc<Field>| match field.data_type() {
        DataType::Utf8View => Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8)),
        DataType::BinaryView => Arc::new(field.as_ref().clone().with_data_type(DataType::Binary)),
        _ => Arc::clone(field),
    };
    let fields: Fields = schema.fields().iter().map(plain).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// Lists what a table would read.
async fn list(
    state: &dyn Session,
    name: &TableReference,
    options: &ListingOptions,
    urls: &[ListingTableUrl],
    keep: Keep,
) -> Result<Found, Unlisted> {
    let mut found = Found::new(keep);
    for url in urls {
        let store = state.runtime_env().object_store(url)?;
        let mut files = url.list_all_files(state, store.as_ref(), &options.file_extension).await?;
        while let Some(file) = files.try_next().await? {
            if found.count >= MAX_FILES {
                return Err(too_much(name, MAX_FILES, "files"));
            }
            found.add(file);
        }
    }
    Ok(found)
}

fn too_much(name: &TableReference, limit: usize, what: &str) -> Unlisted {
    Unlisted::TooMuch(format!("table `{name}` has more than {limit} {what}"))
}

/// How many files are looked into for the columns.
#[derive(Clone, Copy, Debug)]
struct Keep(usize);

impl Keep {
    fn upto(file_type: &str) -> Self {
        // Footers are fetched side by side, the others one after the other.
        Self(if file_type.eq_ignore_ascii_case("parquet") { FOOTERS } else { HEADS })
    }
}

/// What a listing has found so far. Bounded, however many files there are.
#[derive(Debug)]
struct Found {
    count: usize,
    digest: u64,
    keep: Keep,
    kept: Vec<ObjectMeta>,
}

impl Found {
    fn new(keep: Keep) -> Self {
        Self { count: 0, digest: 0, keep, kept: Vec::new() }
    }

    fn add(&mut self, file: ObjectMeta) {
        let mut hasher = DefaultHasher::new();
        (file.location.as_ref(), file.size, file.last_modified, &file.e_tag, &file.version).hash(&mut hasher);
        self.count = self.count.saturating_add(1);
        // The same in whatever order a store lists.
        self.digest = self.digest.wrapping_add(hasher.finish());
        // An empty file has no columns, and some formats do not read it.
        if self.keep.0 > 0 && file.size > 0 {
            self.kept.push(file);
            if self.kept.len() >= self.keep.0.saturating_mul(2) {
                self.cut();
            }
        }
    }

    fn stamp(&self) -> Stamp {
        Stamp { files: self.count, digest: self.digest }
    }

    /// The newest of them, in the order of their names.
    fn newest(mut self) -> Vec<ObjectMeta> {
        self.cut();
        self.kept.sort_by(|one, other| one.location.cmp(&other.location));
        self.kept
    }

    fn cut(&mut self) {
        self.kept.sort_by(|one, other| {
            other.last_modified.cmp(&one.last_modified).then_with(|| one.location.cmp(&other.location))
        });
        self.kept.truncate(self.keep.0);
    }
}

/// Formats whose columns the engine looks for in all of a file, or line by line.
fn reads_whole_files(file_type: &str) -> bool {
    ["AVRO", "CSV", "JSON", "NDJSON"].iter().any(|known| file_type.eq_ignore_ascii_case(known))
}

/// Files of one table. A list of these takes 20 MiB in a scheduler.
pub(super) const MAX_FILES: usize = 100_000;
/// Columns of one table, with all that is nested in them.
pub(crate) const MAX_COLUMNS: usize = 2_000;
/// Partition columns of one table.
pub(super) const MAX_PARTITION_COLUMNS: usize = 64;
/// Parquet files that are looked into for the columns: the newest.
const FOOTERS: usize = 1_000;
/// Files of other formats that are looked into for the columns: the newest.
const HEADS: usize = 64;
const COUNTED: Duration = Duration::from_secs(5 * 60);
/// Tables that are remembered as counted.
const MAX_COUNTED: usize = 16_384;
