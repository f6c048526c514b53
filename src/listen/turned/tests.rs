//! Lines for the operator are few, and tell of those that were left out.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::sync::Arc;

use parking_lot::Mutex;
use tracing::Level;
use tracing::subscriber::DefaultGuard;

use super::*;

/// What is logged on this thread while it lives.
pub(in crate::listen) struct Log {
    text: Arc<Mutex<Vec<u8>>>,
    _until: DefaultGuard,
}

struct Page(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(in crate::listen) fn of_this_thread() -> Self {
        let text = Arc::new(Mutex::new(Vec::new()));
        let page = Arc::clone(&text);
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(Level::INFO)
            .with_ansi(false)
            .with_writer(move || Page(Arc::clone(&page)))
            .finish();
        let log = Self { text, _until: tracing::subscriber::set_default(subscriber) };
        // Whether anybody reads a line is remembered per place in the code. If another thread, where nobody does, is
        // the first to come by, what it finds would count here too: come by, and have it asked again.
        reports(Ticks::still()).closed(peer(0), &Turned::Full);
        tracing::callsite::rebuild_interest_cache();
        log.text.lock().clear();
        log
    }

    pub(in crate::listen) fn lines(&self) -> Vec<String> {
        String::from_utf8_lossy(&self.text.lock()).lines().map(str::to_owned).collect()
    }
}

impl io::Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn peer(number: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], number))
}

fn reports(ticks: Ticks) -> Reports {
    Reports::new(ticks, Audit::off(), Arc::new(portcullis_auth::SystemClock))
}

#[test]
fn a_flood_makes_few_lines_and_the_next_one_counts_the_rest() {
    let (log, ticks) = (Log::of_this_thread(), Ticks::still());
    let reports = self::reports(ticks.clone());
    let most = LINES_PER_SECOND.get();
    for number in 1..=1_000 {
        reports.closed(peer(number), &Turned::NotTls);
    }
    let lines = log.lines();
    assert_eq!(lines.len(), usize::try_from(most).unwrap());
    let first = lines.first().unwrap();
    assert!(first.contains("INFO") && first.contains("peer=192.0.2.1:1 "), "{first}");
    assert!(first.contains("reason=it does not speak TLS") && first.contains("left_out=0"), "{first}");

    ticks.advance(Duration::from_secs(1));
    reports.closed(peer(2_000), &Turned::Late);
    let last = log.lines().pop().unwrap();
    assert!(last.contains(":2000 ") && last.contains(&format!("left_out={}", 1_000 - most)), "{last}");
    reports.closed(peer(2_001), &Turned::Late);
    assert!(log.lines().pop().unwrap().contains("left_out=0"));
}

#[tokio::test]
async fn a_limit_of_connections_is_on_record_and_a_mistake_is_not() {
    let page = Arc::new(Mutex::new(Vec::new()));
    let audit = Audit::to_writer(Box::new(Page(Arc::clone(&page)))).unwrap();
    let ticks = Ticks::still();
    let reports = Reports::new(ticks.clone(), audit.clone(), Arc::new(portcullis_auth::SystemClock));
    let too_fast = Exceeded { limit: "preauth_per_ip", retry_after: Duration::from_secs(1) };
    for reason in [Turned::Full, Turned::NotTls, Turned::Crowded, Turned::TooFast(too_fast), Turned::Silent] {
        ticks.advance(Duration::from_secs(1));
        reports.closed(peer(1), &reason);
    }
    // A flood: as many are on record as are in the log.
    for _ in 0..1_000 {
        reports.closed(peer(2), &Turned::Crowded);
    }
    audit.flush(Duration::from_secs(10)).await.unwrap();
    let text = String::from_utf8(page.lock().clone()).unwrap();
    let limits: Vec<&str> =
        text.lines().filter_map(|line| line.split_once("\"limit\":\"")?.1.strip_suffix("\"}")).collect();
    assert_eq!(limits.get(..3), Some(["connections", "connections_per_ip", "preauth_per_ip"].as_slice()), "{text}");
    assert!(
        text.lines().all(|line| line.contains("\"limit.exceeded\",\"request\":null,\"peer\":\"192.0.2.1:")),
        "{text}"
    );
    assert!(limits.len() <= 3_usize.saturating_add(usize::try_from(LINES_PER_SECOND.get()).unwrap()), "{text}");
}

#[test]
fn who_only_looks_whether_the_port_is_open_makes_no_line() {
    let log = Log::of_this_thread();
    let reports = self::reports(Ticks::still());
    for _ in 0..100 {
        reports.closed(peer(1), &Turned::Silent);
    }
    assert!(log.lines().is_empty());
    reports.closed(peer(1), &Turned::Full);
    assert!(log.lines().pop().unwrap().contains("left_out=0"), "nor does it count");
}
