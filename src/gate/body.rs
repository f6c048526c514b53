//! A response body that keeps its session in use until the last byte is out.
//!
//! A result may take longer to read than a session may rest; without this the sweep would end a session under a
//! running stream. Must not look at the bytes.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tonic::body::Body;

use super::session::InUse;

/// A body and the use of a session, which end together.
pub(super) struct Used {
    body: Body,
    _in_use: InUse,
}

impl Used {
    pub(super) fn new(body: Body, in_use: InUse) -> Self {
        Self { body, _in_use: in_use }
    }
}

impl http_body::Body for Used {
    type Data = Bytes;
    type Error = <Body as http_body::Body>::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
