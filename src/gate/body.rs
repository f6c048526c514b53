//! A response body that keeps its session in use until the last byte is out, and ends with the credential of its call.
//!
//! A result may take longer to read than a session may rest; without this the sweep would end a session under a
//! running stream. And a stream that was asked for with a token goes no further than the token. HTTP/2 asks for nothing
//! while a client's window is closed, so that a task of its own lets go of what nobody reads. Must not look at the
//! bytes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use portcullis_auth::{Clock, Expiry};
use tokio::time::{Instant, Sleep};
use tokio_util::task::AbortOnDropHandle;
use tonic::body::Body;

use super::session::InUse;
use crate::status::{Class, Failure, RequestId};

/// A body and the use of a session, which end together.
pub(super) struct Used {
    kept: Arc<Mutex<Kept>>,
    life: Life,
    _watched: AbortOnDropHandle<()>,
}

/// What a body is worth, as long as somebody reads it.
enum Kept {
    Going {
        body: Body,
        reader: Reader,
        in_use: InUse,
    },
    /// Nobody did.
    LetGo,
}

/// What the other side does.
enum Reader {
    RestsSince(Instant),
    /// For the next bytes, and is to be woken when there are none any more.
    Waits(Waker),
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
    /// A body that is let go of when its reader has rested for `patience`. To be made on a runtime.
    pub(super) fn new(body: Body, in_use: InUse, life: Life, patience: Duration) -> Self {
        let going = Kept::Going { body, reader: Reader::RestsSince(Instant::now()), in_use };
        let kept = Arc::new(Mutex::new(going));
        let watching = watch(Arc::clone(&kept), life.ends, Arc::clone(&life.clock), patience);
        Self { kept, life, _watched: AbortOnDropHandle::new(tokio::spawn(watching)) }
    }
}

impl Drop for Used {
    /// At once, and not when the task beside it has ended.
    fn drop(&mut self) {
        let gone = std::mem::replace(&mut *self.kept.lock(), Kept::LetGo);
        drop(gone);
    }
}

async fn watch(kept: Arc<Mutex<Kept>>, ends: Expiry, clock: Arc<dyn Clock>, patience: Duration) {
    loop {
        let rested = match &*kept.lock() {
            Kept::Going { reader: Reader::RestsSince(since), .. } => since.elapsed(),
            Kept::Going { reader: Reader::Waits(_), .. } => Duration::ZERO,
            Kept::LetGo => return,
        };
        let now = clock.now();
        if rested >= patience || ends.passed(now) {
            let gone = std::mem::replace(&mut *kept.lock(), Kept::LetGo);
            // Not under the lock: what ends here is whole queries.
            if let Kept::Going { body, reader, in_use } = gone {
                drop((body, in_use));
                if let Reader::Waits(waker) = reader {
                    waker.wake();
                }
            }
            return;
        }
        let left = match ends {
            Expiry::At(end) => end.duration_since(now).unwrap_or_default().max(SHORTEST),
            Expiry::Never => LONGEST,
        };
        tokio::time::sleep(patience.saturating_sub(rested).min(left).min(LONGEST)).await;
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
        let failure = if this.life.is_over(cx) {
            Failure::unauthenticated().because("the credential of the call has expired")
        } else {
            match &mut *this.kept.lock() {
                Kept::Going { body, reader, .. } => {
                    let frame = Pin::new(body).poll_frame(cx);
                    *reader = match frame.is_pending() {
                        true => Reader::Waits(cx.waker().clone()),
                        false => Reader::RestsSince(Instant::now()),
                    };
                    return frame;
                }
                Kept::LetGo => Failure::new(Class::DeadlineExceeded, "the answer was not read for too long"),
            }
        };
        this.life.over = Over::Told;
        *this.kept.lock() = Kept::LetGo;
        let ended = failure.into_status(&this.life.request);
        let mut trailers = http::HeaderMap::new();
        Poll::Ready(Some(ended.add_header(&mut trailers).map(|()| Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        match &*self.kept.lock() {
            Kept::Going { body, .. } => self.life.over == Over::Told || body.is_end_stream(),
            Kept::LetGo => self.life.over == Over::Told,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &*self.kept.lock() {
            Kept::Going { body, .. } => body.size_hint(),
            Kept::LetGo => SizeHint::default(),
        }
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

/// A clock that lags behind its timer is asked again after this.
const SHORTEST: Duration = Duration::from_millis(10);
/// A timer cannot be set to the end of time.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
