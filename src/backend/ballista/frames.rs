//! Cuts a stream of raw Arrow IPC bytes into messages without decoding them.
//!
//! An executor sends a shuffle file in blocks that know nothing of message borders; this finds the borders and hands
//! out slices of the received blocks where a message lies in one of them. Must not look into a body, and holds at most
//! one message.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use arrow::ipc::root_as_message;
use bytes::{Buf, Bytes, BytesMut};
use futures::Stream;
use futures::stream::BoxStream;

use crate::backend::{BackendError, IpcMessage};

/// Messages of the encapsulated IPC streaming format, cut out of `blocks`.
pub(super) struct Frames {
    blocks: BoxStream<'static, Result<Bytes, BackendError>>,
    held: Held,
    state: State,
}

enum State {
    Reading,
    /// After the end-of-stream marker, an error or the last block.
    Finished,
}

impl Frames {
    pub(super) fn new(blocks: BoxStream<'static, Result<Bytes, BackendError>>) -> Self {
        Self { blocks, held: Held::default(), state: State::Reading }
    }
}

impl Stream for Frames {
    type Item = Result<IpcMessage, BackendError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let State::Finished = self.state {
                return Poll::Ready(None);
            }
            match self.held.cut() {
                Ok(Cut::Message(message)) => return Poll::Ready(Some(Ok(message))),
                Ok(Cut::End) => {
                    self.state = State::Finished;
                    continue;
                }
                Ok(Cut::More) => (),
                Err(error) => {
                    self.state = State::Finished;
                    return Poll::Ready(Some(Err(error)));
                }
            }
            match ready!(self.blocks.as_mut().poll_next(context)) {
                Some(Ok(block)) => self.held.push(block),
                Some(Err(error)) => {
                    self.state = State::Finished;
                    return Poll::Ready(Some(Err(error)));
                }
                None => {
                    self.state = State::Finished;
                    if self.held.len() != 0 {
                        return Poll::Ready(Some(Err(truncated())));
                    }
                }
            }
        }
    }
}

enum Cut {
    End,
    Message(IpcMessage),
    More,
}

/// Received bytes that do not make a message yet.
#[derive(Default)]
struct Held {
    /// Consumed from the front. Joined with the next block only when a message crosses the border.
    bytes: Bytes,
    rest: Vec<Bytes>,
    rest_len: usize,
}

impl Held {
    fn len(&self) -> usize {
        self.bytes.len().saturating_add(self.rest_len)
    }

    fn push(&mut self, block: Bytes) {
        if self.bytes.is_empty() && self.rest.is_empty() {
            self.bytes = block;
        } else {
            self.rest_len = self.rest_len.saturating_add(block.len());
            self.rest.push(block);
        }
    }

    /// Makes the first `wanted` bytes contiguous; false when there are not as many yet.
    fn contiguous(&mut self, wanted: usize) -> bool {
        if self.bytes.len() >= wanted {
            return true;
        }
        if self.len() < wanted {
            return false;
        }
        let mut joined = BytesMut::with_capacity(self.len());
        joined.extend_from_slice(&self.bytes);
        for block in self.rest.drain(..) {
            joined.extend_from_slice(&block);
        }
        self.rest_len = 0;
        self.bytes = joined.freeze();
        true
    }

    fn cut(&mut self) -> Result<Cut, BackendError> {
        if !self.contiguous(PREFIX) {
            return Ok(Cut::More);
        }
        let (continuation, header_len) = match self.bytes.first_chunk::<PREFIX>() {
            Some([a, b, c, d, e, f, g, h]) => {
                (u32::from_le_bytes([*a, *b, *c, *d]), i32::from_le_bytes([*e, *f, *g, *h]))
            }
            None => return Ok(Cut::More),
        };
        if continuation != CONTINUATION {
            return Err(BackendError::protocol("a result part is not an IPC stream"));
        }
        if header_len == 0 {
            return Ok(Cut::End);
        }
        let header_len = usize::try_from(header_len).ok().filter(|len| *len <= MAX_HEADER).ok_or_else(oversized)?;
        let body_at = PREFIX.saturating_add(header_len);
        if !self.contiguous(body_at) {
            return Ok(Cut::More);
        }
        let header = self.bytes.slice(PREFIX..body_at);
        let message = root_as_message(&header)
            .map_err(|error| BackendError::protocol(format!("a result part has a broken message: {error}")))?;
        let body_len =
            usize::try_from(message.bodyLength()).ok().filter(|len| *len <= MAX_BODY).ok_or_else(oversized)?;
        let end = body_at.saturating_add(body_len);
        if !self.contiguous(end) {
            return Ok(Cut::More);
        }
        let body = self.bytes.slice(body_at..end);
        self.bytes.advance(end);
        if self.bytes.is_empty() && self.rest.len() == 1 {
            // One whole block is left: take it as it is instead of copying it at the next border.
            self.bytes = self.rest.pop().unwrap_or_default();
            self.rest_len = 0;
        }
        Ok(Cut::Message(IpcMessage { header, body }))
    }
}

fn truncated() -> BackendError {
    BackendError::unavailable("a result part ended inside a message")
}

fn oversized() -> BackendError {
    BackendError::protocol("a result part holds a message of impossible size")
}

const CONTINUATION: u32 = 0xFFFF_FFFF;
const PREFIX: usize = 8;
/// A schema of 100,000 columns is about 10 MiB.
const MAX_HEADER: usize = 64 * 1024 * 1024;
/// One batch of an executor is at most as large as its memory share.
const MAX_BODY: usize = 4 * 1024 * 1024 * 1024 - 1;

#[cfg(test)]
mod tests {
    #![expect(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "a failed step fails the test"
    )]

    use std::sync::Arc;

    use arrow::array::{Int32Array, RecordBatch, StringArray};
    use arrow::ipc::writer::StreamWriter;
    use futures::{StreamExt, TryStreamExt};

    use super::*;

    fn stream_bytes() -> Vec<u8> {
        let batch = |from: i32| {
            RecordBatch::try_from_iter([
                ("n", Arc::new(Int32Array::from_iter_values(from..from + 100)) as _),
                ("s", Arc::new(StringArray::from_iter_values((from..from + 100).map(|n| n.to_string()))) as _),
            ])
            .unwrap()
        };
        let mut writer = StreamWriter::try_new(Vec::new(), &batch(0).schema()).unwrap();
        for from in [0, 100, 200] {
            writer.write(&batch(from)).unwrap();
        }
        writer.into_inner().unwrap()
    }

    async fn frames_of(bytes: &[u8], block: usize) -> Result<Vec<IpcMessage>, BackendError> {
        let blocks: Vec<_> = bytes.chunks(block).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
        Frames::new(futures::stream::iter(blocks).boxed()).try_collect().await
    }

    #[tokio::test]
    async fn messages_are_the_same_however_the_blocks_fall() {
        let bytes = stream_bytes();
        let whole = frames_of(&bytes, bytes.len()).await.unwrap();
        assert_eq!(whole.len(), 4, "a schema and three batches");
        for block in [1, 2, 3, 7, 8, 9, 64, 1000, bytes.len() - 1] {
            let cut = frames_of(&bytes, block).await.unwrap();
            assert_eq!(cut.len(), whole.len(), "blocks of {block}");
            for (one, other) in cut.iter().zip(&whole) {
                assert_eq!((&one.header, &one.body), (&other.header, &other.body), "blocks of {block}");
            }
        }
    }

    #[tokio::test]
    async fn a_stream_that_ends_inside_a_message_is_an_error() {
        let bytes = stream_bytes();
        assert!(frames_of(&bytes, 100).await.is_ok());
        for end in (1..bytes.len() - 8).step_by(13) {
            let got = frames_of(&bytes[..end], 100).await;
            let on_border = got.as_ref().is_ok_and(|messages| {
                let used: usize = messages.iter().map(|m| 8 + m.header.len() + m.body.len()).sum();
                used == end
            });
            assert!(got.is_err() || on_border, "a stream cut at {end} was taken as whole");
        }
    }

    #[tokio::test]
    async fn bytes_that_are_no_ipc_stream_are_an_error() {
        assert!(frames_of(&stream_bytes(), 100).await.is_ok());
        for bad in [&b"ARROW1\0\0\0\0\0\0"[..], &[0xFF; 64], &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F]] {
            assert!(frames_of(bad, 100).await.is_err());
        }
    }
}
