//! A response body that keeps its session in use until the last byte is out, and ends with the credential of its call.
//!
//! A result may take longer to read than a session may rest; without this the sweep would end a session under a
//! running stream. And a stream that was asked for with a token goes no further than the token. Must not look at the
//! bytes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use portcullis_auth::{Clock, Expiry};
use tokio::time::Sleep;
use tonic::body::Body;

use super::session::InUse;
use crate::status::{Class, Failure, RequestId};

/// A body and the use of a session, which end together.
pub(super) struct Used {
    body: Body,
    life: Life,
    _in_use: InUse,
}

/// Until when a body may go on.
pub(super) struct Life {
    ends: Expiry,
    clock: Arc<dyn Clock>,
    request: RequestId,
    /// So that a stream which waits for its next row ends in time as well.
    alarm: Option<Pin<Box<Sleep>>>,
    over: Over,
}

/// Whether the end was told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    No,
    Told,
}

impl Life {
    pub(super) fn new(ends: Expiry, clock: Arc<dyn Clock>, request: RequestId) -> Self {
        let alarm = match ends {
            Expiry::At(end) => {
                let left = end.duration_since(clock.now()).unwrap_or_default().min(LONGEST);
                Some(Box::pin(tokio::time::sleep(left)))
            }
            Expiry::Never => None,
        };
        Self { ends, clock, request, alarm, over: Over::No }
    }

    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        if let Some(alarm) = &mut self.alarm
            && alarm.as_mut().poll(cx).is_ready()
        {
            self.alarm = None;
        }
        self.ends.passed(self.clock.now())
    }
}

impl Used {
    pub(super) fn new(body: Body, in_use: InUse, life: Life) -> Self {
        Self { body, life, _in_use: in_use }
    }
}

impl http_body::Body for Used {
    type Data = Bytes;
    type Error = <Body as http_body::Body>::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if this.life.over == Over::Told {
            return Poll::Ready(None);
        }
        if this.life.is_over(cx) {
            this.life.over = Over::Told;
            this.body = Body::empty();
            let failure = Failure::unauthenticated().because("the credential of the call has expired");
            let ended = failure.into_status(&this.life.request);
            let mut trailers = http::HeaderMap::new();
            return Poll::Ready(Some(ended.add_header(&mut trailers).map(|()| Frame::trailers(trailers))));
        }
        Pin::new(&mut this.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.life.over == Over::Told || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a request that holds one message: it arrives within a time, or fails. A call that is waited for takes a
/// place among those of everybody.
pub(super) struct Whole {
    body: Body,
    patience: Pin<Box<Sleep>>,
}

impl Whole {
    pub(super) fn within(time: Duration, body: Body) -> Self {
        Self { body, patience: Box::pin(tokio::time::sleep(time)) }
    }
}

impl http_body::Body for Whole {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        let frame = Pin::new(&mut this.body).poll_frame(cx);
        if frame.is_pending() && this.patience.as_mut().poll(cx).is_ready() {
            let late = Failure::new(Class::DeadlineExceeded, "the message of the call did not arrive in time");
            return Poll::Ready(Some(Err(late.into_status(&RequestId::fresh()))));
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A timer cannot be set to the end of time.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
