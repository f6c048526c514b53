//! The deadline a client sends with a call (`grpc-timeout`), answered as one.
//!
//! tonic ends a call whose time is over with CANCELLED; a client that is waiting should read DEADLINE_EXCEEDED, and
//! whatever the call started is dropped, which cancels it. Must not know what the call does.

use std::time::Duration;

use http::HeaderMap;
use http::Response;
use tonic::body::Body;

use crate::status::{Class, Failure, RequestId};

/// `answer`, or the failure when the client's time is nearly over.
pub(super) async fn within<E>(
    wait: Wait,
    answer: impl Future<Output = Result<Response<Body>, E>>,
) -> Result<Response<Body>, E> {
    match wait {
        Wait::Forever => answer.await,
        Wait::For(time) => tokio::time::timeout(time, answer).await.unwrap_or_else(|_| {
            let failure = Failure::new(Class::DeadlineExceeded, "the deadline that the client set is over");
            Ok(failure.into_status(&RequestId::fresh()).into_http())
        }),
    }
}

/// How long a client waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Until the answer comes.
    For(Duration),
    /// It did not say.
    Forever,
}

impl Wait {
    /// Reads the header. What is not of its form is as if it were not there, as in tonic itself.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        headers
            .get("grpc-timeout")
            .and_then(|value| value.to_str().ok())
            .and_then(parse)
            .map_or(Self::Forever, |time| {
                Self::For(time.saturating_sub(time.checked_div(20).unwrap_or_default().min(MARGIN)))
            })
    }
}

/// At most eight digits and a unit (gRPC over HTTP/2, "Timeout").
fn parse(text: &str) -> Option<Duration> {
    let (at, unit) = text.char_indices().next_back()?;
    let digits = text.get(..at).filter(|digits| (1..=8).contains(&digits.len()))?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        'H' => Some(Duration::from_secs(count.checked_mul(3600)?)),
        'M' => Some(Duration::from_secs(count.checked_mul(60)?)),
        'S' => Some(Duration::from_secs(count)),
        'm' => Some(Duration::from_millis(count)),
        'u' => Some(Duration::from_micros(count)),
        'n' => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

/// So that the answer is there before the client gives up and before tonic does.
const MARGIN: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;

    #[test]
    fn timeouts_are_read_and_nonsense_is_not() {
        for (text, time) in [
            ("3S", Some(Duration::from_secs(3))),
            ("100m", Some(Duration::from_millis(100))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
            ("0n", Some(Duration::ZERO)),
            ("-1S", None),
            ("S", None),
            ("", None),
            ("123456789S", None),
            ("1x", None),
            ("1é", None),
            ("+1S", None),
        ] {
            assert_eq!(parse(text), time, "{text}");
        }
    }

    #[tokio::test]
    async fn a_call_ends_with_its_deadline() {
        let mut headers = HeaderMap::new();
        let answer = || async { Ok::<_, ()>(Response::new(Body::empty())) };
        assert_eq!(Wait::of(&headers), Wait::Forever);
        assert!(!within(Wait::of(&headers), answer()).await.unwrap().headers().contains_key("grpc-status"));
        headers.insert("grpc-timeout", "20m".parse().unwrap());
        assert!(!within(Wait::of(&headers), answer()).await.unwrap().headers().contains_key("grpc-status"));
        let late = within(Wait::of(&headers), std::future::pending::<Result<_, ()>>()).await.unwrap();
        assert_eq!(late.headers().get("grpc-status").unwrap(), "4");
    }
}
