//! Rows on their way to the client: one schema message, then record batches that fit into a message.
//!
//! What the cluster wrote is forwarded as it is when the client can take it, and decoded, cast and cut when it cannot
//! (another type than declared, compression, size). Must not hold more than the message in hand.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::buffer::Buffer;
use arrow::compute::{cast, sum};
use arrow::datatypes::{Schema, SchemaRef, UInt64Type};
use arrow::ipc::reader::{read_dictionary, read_record_batch};
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow::ipc::{MessageHeader, root_as_message};
use arrow_flight::{FlightData, SchemaAsIpc};
use futures::stream::{BoxStream, StreamExt, TryStreamExt};

use crate::backend::{IpcMessage, PartStream, QueryBackend, ResultPart};
use crate::sql::failure;
use crate::status::{Class, Failure};

/// A stream of one result, the schema first.
pub(super) type FlightStream = BoxStream<'static, Result<FlightData, Failure>>;

/// Rows that the gate itself has or computes.
pub(super) fn of_batches(
    declared: SchemaRef,
    batches: BoxStream<'static, Result<RecordBatch, Failure>>,
) -> FlightStream {
    let first = schema_message(&declared);
    let rest = batches.flat_map(move |batch| {
        let encoded = batch.and_then(|batch| conform(&batch, &declared)).and_then(|batch| encode(&batch));
        futures::stream::iter(one_or_many(encoded))
    });
    futures::stream::iter([Ok(first)]).chain(rest).boxed()
}

/// The parts of a job's result, in order.
pub(super) fn of_parts(declared: SchemaRef, backend: Arc<dyn QueryBackend>, parts: Vec<ResultPart>) -> FlightStream {
    let first = schema_message(&declared);
    let rest = futures::stream::iter(parts)
        .map(move |part| {
            let backend = Arc::clone(&backend);
            async move { backend.fetch(&part).await }
        })
        // The next part is asked for while one is read; more would only fill memory.
        .buffered(AHEAD)
        .flat_map(move |part| match part {
            Ok(part) => of_part(Arc::clone(&declared), part),
            Err(error) => futures::stream::iter([Err(failure::of_backend(error))]).boxed(),
        });
    futures::stream::iter([Ok(first)]).chain(rest).boxed()
}

/// The numbers in the first column of a job's result, all together: what a COPY answers with.
pub(super) async fn total(backend: &dyn QueryBackend, parts: Vec<ResultPart>) -> Result<u64, Failure> {
    let mut total = 0_u64;
    for part in parts {
        let PartStream { schema, mut messages } = backend.fetch(&part).await.map_err(failure::of_backend)?;
        while let Some(message) = messages.try_next().await.map_err(failure::of_backend)? {
            let header = root_as_message(&message.header).map_err(Failure::internal)?;
            let Some(batch) = header.header_as_record_batch() else { continue };
            let (body, schema) = (Buffer::from(message.body), Arc::clone(&schema));
            let rows = read_record_batch(&body, batch, schema, &HashMap::new(), None, &header.version())
                .map_err(Failure::internal)?;
            let numbers = rows.columns().first().and_then(|column| column.as_primitive_opt::<UInt64Type>());
            let numbers = numbers.ok_or_else(|| Failure::internal("a result was to be a number and is not"))?;
            total = total.saturating_add(sum(numbers).unwrap_or_default());
        }
    }
    Ok(total)
}

/// The rows of a record batch; anything else has none.
pub(super) fn rows_of(message: &FlightData) -> u64 {
    let batch = root_as_message(&message.data_header).ok().and_then(|header| header.header_as_record_batch());
    batch.and_then(|batch| u64::try_from(batch.length()).ok()).unwrap_or_default()
}

fn of_part(declared: SchemaRef, part: PartStream) -> FlightStream {
    let mut forwarder = Forwarder {
        as_declared: same_types(&declared, &part.schema),
        declared,
        written: part.schema,
        dictionaries: HashMap::new(),
    };
    part.messages
        .flat_map(move |message| {
            let forwarded = message.map_err(failure::of_backend).and_then(|message| forwarder.forward(message));
            futures::stream::iter(one_or_many(forwarded))
        })
        .boxed()
}

/// Decides message by message whether it can go as it is.
struct Forwarder {
    declared: SchemaRef,
    written: SchemaRef,
    as_declared: TypesMatch,
    dictionaries: HashMap<i64, ArrayRef>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TypesMatch {
    Differ,
    Same,
}

impl Forwarder {
    fn forward(&mut self, message: IpcMessage) -> Result<Vec<FlightData>, Failure> {
        let header = root_as_message(&message.header).map_err(Failure::internal)?;
        if let Some(batch) = header.header_as_record_batch() {
            let fits = message.body.len().saturating_add(message.header.len()) <= MESSAGE;
            if fits && self.as_declared == TypesMatch::Same && batch.compression().is_none() {
                return Ok(vec![FlightData::new().with_data_header(message.header).with_data_body(message.body)]);
            }
            let body = Buffer::from(message.body);
            let rows =
                read_record_batch(&body, batch, Arc::clone(&self.written), &self.dictionaries, None, &header.version())
                    .map_err(Failure::internal)?;
            return encode(&conform(&rows, &self.declared)?);
        }
        if let Some(dictionary) = header.header_as_dictionary_batch() {
            let body = Buffer::from(message.body);
            read_dictionary(&body, dictionary, &self.written, &mut self.dictionaries, &header.version())
                .map_err(Failure::internal)?;
            return Ok(Vec::new());
        }
        match header.header_type() {
            // Some writers repeat the schema before each run of batches.
            MessageHeader::Schema => Ok(Vec::new()),
            other => Err(Failure::internal(format!("a result part holds a message of kind {other:?}"))),
        }
    }
}

/// Same types in the same order; names, nullability and metadata are the declaration's affair.
fn same_types(declared: &Schema, written: &Schema) -> TypesMatch {
    let same = declared.fields().len() == written.fields().len()
        && declared
            .fields()
            .iter()
            .zip(written.fields())
            .all(|(one, other)| one.data_type().equals_datatype(other.data_type()));
    if same { TypesMatch::Same } else { TypesMatch::Differ }
}

/// `batch` under the declared schema.
pub(super) fn conform(batch: &RecordBatch, declared: &SchemaRef) -> Result<RecordBatch, Failure> {
    if batch.num_columns() != declared.fields().len() {
        return Err(Failure::internal("a result has another number of columns than was declared"));
    }
    let columns = batch
        .columns()
        .iter()
        .zip(declared.fields())
        .map(|(column, field)| {
            if column.data_type() == field.data_type() {
                Ok(Arc::clone(column))
            } else {
                cast(column, field.data_type()).map_err(Failure::internal)
            }
        })
        .collect::<Result<Vec<_>, _>>()?;
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(declared), columns, &rows).map_err(Failure::internal)
}

/// Encodes a batch, cut into as many messages as its size needs.
fn encode(batch: &RecordBatch) -> Result<Vec<FlightData>, Failure> {
    let mut messages = Vec::new();
    let mut todo = vec![batch.clone()];
    while let Some(batch) = todo.pop() {
        let message = encode_whole(&batch)?;
        let size = message.data_body.len().saturating_add(message.data_header.len());
        let half = batch.num_rows() / 2;
        if size <= MESSAGE || half == 0 {
            if size > SINGLE_ROW {
                return Err(Failure::about_request(
                    Class::ResourceExhausted,
                    format!("a row of {size} bytes is too large to be sent; the limit is {SINGLE_ROW}"),
                ));
            }
            messages.push(message);
        } else {
            // The first half is taken next.
            todo.push(batch.slice(half, batch.num_rows().saturating_sub(half)));
            todo.push(batch.slice(0, half));
        }
    }
    Ok(messages)
}

fn encode_whole(batch: &RecordBatch) -> Result<FlightData, Failure> {
    let mut dictionaries = DictionaryTracker::new(false);
    let (_, encoded) = IpcDataGenerator::default()
        .encode(batch, &mut dictionaries, &IpcWriteOptions::default(), &mut IpcWriteContext::default())
        .map_err(Failure::internal)?;
    Ok(FlightData::new().with_data_header(encoded.ipc_message).with_data_body(encoded.arrow_data))
}

fn schema_message(schema: &Schema) -> FlightData {
    SchemaAsIpc::new(schema, &IpcWriteOptions::default()).into()
}

fn one_or_many(messages: Result<Vec<FlightData>, Failure>) -> Vec<Result<FlightData, Failure>> {
    match messages {
        Ok(messages) => messages.into_iter().map(Ok).collect(),
        Err(failure) => vec![Err(failure)],
    }
}

/// Parts whose first bytes are on the way while one is read.
const AHEAD: usize = 2;
/// Rust clients refuse 4 MiB by default (rule R29); protobuf and padding need some of it.
const MESSAGE: usize = 4 * 1024 * 1024 - 64 * 1024;
/// ADBC refuses 16 MiB; only a single row may come near it.
pub(super) const SINGLE_ROW: usize = 16 * 1024 * 1024 - 64 * 1024;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

    use arrow::array::{DictionaryArray, Int32Array, StringArray, StringViewArray};
    use arrow::datatypes::{DataType, Field, Int8Type};
    use arrow::ipc::CompressionType;
    use arrow::ipc::convert::fb_to_schema;
    use arrow_flight::utils::flight_data_to_batches;

    use super::*;

    fn declared() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("n", DataType::Int32, true), Field::new("s", DataType::Utf8, true)]))
    }

    /// A part as an executor would write it.
    fn part(batch: &RecordBatch, options: &IpcWriteOptions) -> (SchemaRef, Vec<IpcMessage>) {
        let generator = IpcDataGenerator::default();
        let mut dictionaries = DictionaryTracker::new(false);
        let schema = generator.schema_to_bytes_with_dictionary_tracker(&batch.schema(), &mut dictionaries, options);
        let schema = fb_to_schema(root_as_message(&schema.ipc_message).unwrap().header_as_schema().unwrap());
        let (before, main) =
            generator.encode(batch, &mut dictionaries, options, &mut IpcWriteContext::default()).unwrap();
        let messages = before
            .into_iter()
            .chain([main])
            .map(|data| IpcMessage { header: data.ipc_message.into(), body: data.arrow_data.into() })
            .collect();
        (Arc::new(schema), messages)
    }

    async fn through(batch: &RecordBatch, options: &IpcWriteOptions) -> (Vec<FlightData>, Vec<RecordBatch>) {
        let (schema, messages) = part(batch, options);
        let messages = futures::stream::iter(messages.into_iter().map(Ok)).boxed();
        let sent: Vec<FlightData> = futures::stream::iter([Ok(schema_message(&declared()))])
            .chain(of_part(declared(), PartStream { schema, messages }))
            .map(|data: Result<FlightData, Failure>| data.unwrap_or_else(|failure| panic!("{failure:?}")))
            .collect()
            .await;
        let rows = flight_data_to_batches(&sent).unwrap();
        (sent, rows)
    }

    #[tokio::test]
    async fn what_is_as_declared_is_forwarded_without_a_copy() {
        let batch = RecordBatch::try_new(
            declared(),
            vec![Arc::new(Int32Array::from(vec![1, 2])), Arc::new(StringArray::from(vec!["a", "b"]))],
        )
        .unwrap();
        let (_, mut messages) = part(&batch, &IpcWriteOptions::default());
        let message = messages.pop().unwrap();
        let (sent, rows) = through(&batch, &IpcWriteOptions::default()).await;
        assert_eq!(rows, [batch]);
        assert_eq!(sent.last().unwrap().data_body, message.body);
    }

    #[tokio::test]
    async fn compressed_and_differently_typed_parts_arrive_as_declared() {
        let plain: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
        let lz4 = IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME)).unwrap();
        let texts: [ArrayRef; 3] = [
            Arc::new(StringArray::from(vec!["a", "b"])),
            Arc::new(StringViewArray::from(vec!["a", "b"])),
            Arc::new(DictionaryArray::<Int8Type>::from_iter(["a", "b"])),
        ];
        for text in texts {
            let batch = RecordBatch::try_from_iter([("x", Arc::clone(&plain)), ("y", text)]).unwrap();
            for options in [&lz4, &IpcWriteOptions::default()] {
                let (_, rows) = through(&batch, options).await;
                let [rows] = rows.as_slice() else { panic!("{rows:?}") };
                assert_eq!(rows.schema(), declared());
                assert_eq!(rows.column(1).as_ref(), &StringArray::from(vec!["a", "b"]) as &dyn arrow::array::Array);
            }
        }
    }

    #[tokio::test]
    async fn a_large_batch_is_cut_and_a_giant_row_is_refused() {
        let text = |rows: usize, bytes: usize| {
            let value = "x".repeat(bytes);
            RecordBatch::try_new(
                declared(),
                vec![
                    Arc::new(Int32Array::from_iter_values(0..i32::try_from(rows).unwrap())),
                    Arc::new(StringArray::from_iter_values((0..rows).map(|_| value.as_str()))),
                ],
            )
            .unwrap()
        };
        let (sent, rows) = through(&text(8192, 2048), &IpcWriteOptions::default()).await;
        assert!(sent.len() > 4 && sent.iter().all(|data| data.data_body.len() < 4 * 1024 * 1024));
        let numbers: Vec<i32> = rows
            .iter()
            .flat_map(|batch| batch.column(0).as_any().downcast_ref::<Int32Array>().unwrap().values().to_vec())
            .collect();
        assert_eq!(numbers, (0..8192).collect::<Vec<_>>(), "in order");
        assert_eq!(encode(&text(1, 10 * 1024 * 1024)).unwrap().len(), 1, "10 MiB goes");
        assert_eq!(encode(&text(1, 20 * 1024 * 1024)).unwrap_err().class(), Class::ResourceExhausted);
    }
}
