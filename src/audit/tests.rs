//! What becomes of lines when the place they go to is slow, refuses, moves, breaks or ends.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]
#![expect(clippy::panic, reason = "a writer that panics is one of the cases")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex};
use tokio::time::{Instant, sleep};

use super::queue::PLACES;
use super::*;

#[tokio::test]
async fn lines_are_written_in_order_and_a_flush_waits_for_them() {
    let disk = Disk::new(State::Stuck);
    let audit = disk.audit();
    for number in 0..1000 {
        audit.record(event(number, ""));
    }
    assert_eq!(audit.flush(SHORT).await, Err(AuditBehind), "nothing is written");
    disk.turn(State::Good);
    assert_eq!(audit.flush(LONG).await, Ok(()));
    assert_eq!(disk.numbers(), (0..1000).collect::<Vec<_>>());
    assert_eq!(audit.lost(), 0);
}

#[tokio::test]
async fn a_text_is_on_record_as_a_hash_unless_it_is_asked_for() {
    let sql = "SELECT 'secret'";
    let audit = Disk::new(State::Good).audit();
    let hash = |audit: &Audit, sql| match audit.wording_of(sql) {
        StatementText::Hash(hash) => Some(hash),
        StatementText::Danger(_) | StatementText::None => None,
    };
    let first = hash(&audit, sql).unwrap();
    assert_eq!(hash(&audit.clone(), sql), Some(first), "the same again");
    assert_ne!(hash(&audit, "SELECT 'Secret'"), Some(first));
    assert_ne!(hash(&Disk::new(State::Good).audit(), sql), Some(first), "nobody else can look it up");
    assert!(matches!(audit.with_wording(Wording::Danger).wording_of(sql), StatementText::Danger(text) if text == sql));
    assert!(matches!(Audit::off().with_wording(Wording::Danger).wording_of(sql), StatementText::None));
}

#[tokio::test]
async fn a_full_queue_says_on_record_how_many_lines_are_missing() {
    let disk = Disk::new(State::Stuck);
    let audit = disk.audit();
    for number in 0..places().saturating_add(17) {
        audit.record(event(number, ""));
    }
    assert_eq!(audit.lost(), 17);
    disk.turn(State::Good);
    audit.flush(LONG).await.unwrap();
    audit.record(event(9999, ""));
    audit.flush(LONG).await.unwrap();

    let lines = disk.lines();
    let taken: Vec<_> = (0..places()).chain([9999]).collect();
    assert_eq!(disk.numbers(), taken, "what was taken is written");
    let lost = lines.get(PLACES).unwrap();
    assert_eq!(
        lost,
        "{\"v\":1,\"time\":\"1970-01-01T00:00:08.208Z\",\"event\":\"audit.lost\",\"request\":null,\"peer\":null,\
         \"lines\":17,\"since\":\"1970-01-01T00:00:08.192Z\"}",
        "between the last that was taken and the next"
    );
    assert_eq!(lines.len(), PLACES.saturating_add(2), "the loss is told once");
}

#[tokio::test]
async fn a_loss_is_told_although_nothing_follows_it() {
    let disk = Disk::new(State::Stuck);
    let audit = disk.audit();
    for number in 0..places().saturating_add(1) {
        audit.record(event(number, ""));
    }
    disk.turn(State::Good);
    eventually(|| disk.lines().last().is_some_and(|line| line.contains("\"lines\":1,"))).await;
}

#[tokio::test]
async fn long_lines_take_more_room() {
    let disk = Disk::new(State::Stuck);
    let audit = disk.audit();
    let reason = "\0".repeat(256);
    for number in 0..places() {
        audit.record(event(number, &reason));
    }
    assert!(audit.lost() > 0);
    disk.turn(State::Good);
    audit.flush(LONG).await.unwrap();
    let bytes = disk.0.content.lock().bytes.len();
    assert!(bytes > 4 * 1024 * 1024, "{bytes}");
    assert!(bytes <= 8 * 1024 * 1024, "{bytes}");
}

#[tokio::test]
async fn a_disk_that_refuses_for_a_while_loses_and_cuts_nothing() {
    let disk = Disk::new(State::Good);
    let audit = disk.audit();
    audit.record(event(0, ""));
    audit.flush(LONG).await.unwrap();
    disk.turn(State::Full { after: 50 });
    for number in 1..500 {
        audit.record(event(number, ""));
    }
    eventually(|| disk.0.content.lock().refused > 2).await;
    // There is no new file, so that a line that was begun goes on where it is.
    audit.reopen();
    assert_eq!(audit.flush(SHORT).await, Err(AuditBehind));
    disk.turn(State::Good);
    audit.flush(LONG).await.unwrap();
    assert_eq!(disk.numbers(), (0..500).collect::<Vec<_>>());
    assert_eq!(audit.lost(), 0);
}

#[tokio::test]
async fn a_decision_waits_for_room_and_is_told_when_there_is_none() {
    let disk = Disk::new(State::Good);
    let audit = disk.audit();
    assert_eq!(audit.record_or_wait(event(0, ""), LONG).await, Ok(()));
    audit.flush(LONG).await.unwrap();
    disk.turn(State::Stuck);
    for number in 1..=places() {
        assert_eq!(audit.record_or_wait(event(number, ""), LONG).await, Ok(()), "there is room");
    }
    assert_eq!(audit.record_or_wait(event(9000, ""), SHORT).await, Err(AuditBehind));
    assert_eq!(audit.lost(), 1, "and it is counted");

    let waits = tokio::spawn({
        let audit = audit.clone();
        async move { audit.record_or_wait(event(9001, ""), LONG).await }
    });
    tokio::task::yield_now().await;
    disk.turn(State::Good);
    assert_eq!(waits.await.unwrap(), Ok(()));
    audit.flush(LONG).await.unwrap();
    assert_eq!(disk.numbers(), (0..=places()).chain([9001]).collect::<Vec<_>>());
    assert!(disk.lines().iter().any(|line| line.contains("\"event\":\"audit.lost\"") && line.contains("\"lines\":1,")));
}

#[tokio::test]
async fn a_call_that_is_dropped_while_it_waits_is_counted() {
    let disk = Disk::new(State::Stuck);
    let audit = disk.audit();
    for number in 0..places() {
        audit.record(event(number, ""));
    }
    let waits = tokio::spawn({
        let audit = audit.clone();
        async move { audit.record_or_wait(event(9000, ""), LONG).await }
    });
    tokio::task::yield_now().await;
    assert_eq!(audit.lost(), 0);
    waits.abort();
    assert!(waits.await.unwrap_err().is_cancelled());
    assert_eq!(audit.lost(), 1);
    disk.turn(State::Good);
    audit.flush(LONG).await.unwrap();
}

#[tokio::test]
async fn a_writer_that_panics_is_one_that_refuses() {
    let disk = Disk::new(State::Good);
    let audit = disk.audit();
    audit.record(event(0, ""));
    audit.flush(LONG).await.unwrap();
    disk.turn(State::Broken);
    audit.record(event(1, ""));
    assert_eq!(audit.flush(SHORT).await, Err(AuditBehind));
    assert_eq!(audit.record_or_wait(event(2, ""), LONG).await, Ok(()));
    disk.turn(State::Good);
    audit.flush(LONG).await.unwrap();
    assert_eq!(disk.numbers(), [0, 1, 2]);
    assert_eq!(audit.lost(), 0);
}

#[tokio::test]
async fn a_renamed_file_is_followed_by_a_new_one_and_no_line_is_lost() {
    let folder = TestFolder::new("rotate");
    let (path, old) = (folder.0.join("audit.jsonl"), folder.0.join("audit.jsonl.1"));
    let audit = Audit::to_file(&path).unwrap();
    let recorders: Vec<_> = (0..4_u64)
        .map(|lane| {
            let audit = audit.clone();
            let first = lane.saturating_mul(10_000);
            std::thread::spawn(move || {
                for number in first..first.saturating_add(1000) {
                    audit.record(event(number, ""));
                }
            })
        })
        .collect();
    audit.record(event(100_000, ""));
    audit.flush(LONG).await.unwrap();
    fs::rename(&path, &old).unwrap();
    audit.record(event(100_001, ""));
    audit.reopen();
    audit.record(event(100_002, ""));
    recorders.into_iter().for_each(|recorder| recorder.join().unwrap());
    audit.flush(LONG).await.unwrap();
    assert_eq!(audit.lost(), 0);

    let (old, new) = (numbers_of(&read(&old)), numbers_of(&read(&path)));
    assert!(old.contains(&100_000) && old.contains(&100_001), "what was recorded before is in the old file");
    assert!(new.contains(&100_002), "what was recorded after is in the new one");
    let mut all = [old, new].concat();
    for lane in 0..4_u64 {
        let first = lane.saturating_mul(10_000);
        let of_lane = || all.iter().copied().filter(|number| (first..first.saturating_add(1000)).contains(number));
        assert!(
            of_lane().eq(first..first.saturating_add(1000)),
            "each in order, in the first file and then the second"
        );
    }
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 4003);
}

#[tokio::test]
async fn a_file_that_cannot_be_made_anew_is_written_on() {
    let folder = TestFolder::new("kept");
    let (here, there) = (folder.0.join("here"), folder.0.join("there"));
    fs::create_dir(&here).unwrap();
    let audit = Audit::to_file(here.join("audit.jsonl")).unwrap();
    audit.record(event(0, ""));
    audit.flush(LONG).await.unwrap();
    fs::rename(&here, &there).unwrap();
    audit.reopen();
    audit.record(event(1, ""));
    audit.flush(LONG).await.unwrap();
    assert_eq!(numbers_of(&read(&there.join("audit.jsonl"))), [0, 1]);

    fs::create_dir(&here).unwrap();
    audit.reopen();
    audit.record(event(2, ""));
    audit.flush(LONG).await.unwrap();
    assert_eq!(numbers_of(&read(&here.join("audit.jsonl"))), [2], "and made at the next signal");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn lines_that_wait_for_a_full_disk_go_to_the_new_file() {
    let folder = TestFolder::new("full");
    let path = folder.0.join("audit.jsonl");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let audit = Audit::to_file(&path).unwrap();
    for number in 0..100 {
        audit.record(event(number, ""));
    }
    assert_eq!(audit.flush(SHORT).await, Err(AuditBehind));
    fs::remove_file(&path).unwrap();
    audit.reopen();
    audit.flush(LONG).await.unwrap();
    assert_eq!(numbers_of(&read(&path)), (0..100).collect::<Vec<_>>());
    assert_eq!(audit.lost(), 0);
}

#[tokio::test]
async fn the_last_owner_leaves_and_all_is_still_written() {
    let disk = Disk::new(State::Stuck);
    let audit = disk.audit();
    for number in 0..500 {
        audit.record(event(number, ""));
    }
    drop(audit);
    disk.turn(State::Good);
    eventually(|| disk.numbers().len() == 500).await;
    assert_eq!(disk.numbers(), (0..500).collect::<Vec<_>>());
}

#[tokio::test]
async fn nobody_waits_for_a_full_disk_when_the_last_owner_has_left() {
    let disk = Disk::new(State::Full { after: 0 });
    let audit = disk.audit();
    audit.record(event(0, ""));
    eventually(|| disk.0.content.lock().refused > 0).await;
    drop(audit);
    // The writer's end of the disk goes with its thread.
    eventually(|| Arc::strong_count(&disk.0) == 1).await;
}

#[tokio::test]
async fn an_audit_that_is_off_accepts_everything() {
    let audit = Audit::off();
    audit.record(event(0, ""));
    audit.reopen();
    assert_eq!(audit.record_or_wait(event(1, ""), SHORT).await, Ok(()));
    assert_eq!(audit.flush(SHORT).await, Ok(()));
    assert_eq!(audit.lost(), 0);
}

/// A place for lines that a test controls.
#[derive(Clone)]
struct Disk(Arc<Shared>);

struct Shared {
    content: Mutex<Content>,
    turned: Condvar,
}

struct Content {
    bytes: Vec<u8>,
    state: State,
    refused: usize,
}

#[derive(Clone, Copy)]
enum State {
    /// It panics.
    Broken,
    /// It takes some more bytes and then no more.
    Full {
        after: usize,
    },
    Good,
    /// It does not answer.
    Stuck,
}

impl Disk {
    fn new(state: State) -> Self {
        let content = Mutex::new(Content { bytes: Vec::new(), state, refused: 0 });
        Self(Arc::new(Shared { content, turned: Condvar::new() }))
    }

    fn audit(&self) -> Audit {
        Audit::to_writer(Box::new(self.clone())).unwrap()
    }

    fn turn(&self, state: State) {
        self.0.content.lock().state = state;
        self.0.turned.notify_all();
    }

    fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.content.lock().bytes.clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    fn numbers(&self) -> Vec<u64> {
        numbers_of(&self.lines())
    }
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut content = self.0.content.lock();
        while matches!(content.state, State::Stuck) {
            self.0.turned.wait(&mut content);
        }
        let taken = match content.state {
            State::Broken => panic!("the disk is broken"),
            State::Full { after: 0 } => {
                content.refused = content.refused.saturating_add(1);
                return Err(io::ErrorKind::StorageFull.into());
            }
            State::Full { after } => {
                let taken = after.min(bytes.len());
                content.state = State::Full { after: after.saturating_sub(taken) };
                taken
            }
            State::Good | State::Stuck => bytes.len(),
        };
        content.bytes.extend(bytes.iter().take(taken));
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A folder that goes with its test.
struct TestFolder(PathBuf);

impl TestFolder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("portcullis-audit-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _left = fs::remove_dir_all(&self.0);
    }
}

/// One that is told from others by its time, `number` milliseconds after the epoch.
fn event(number: u64, reason: &str) -> Event<'_> {
    let time = UNIX_EPOCH.checked_add(Duration::from_millis(number)).unwrap_or(SystemTime::UNIX_EPOCH);
    Event { time, origin: Origin::Gate, what: What::TlsFailed { reason } }
}

fn read(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
}

/// The numbers of all events but losses; every line is whole.
fn numbers_of(lines: &[String]) -> Vec<u64> {
    let number = |line: &String| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let time = line.get("time").unwrap().as_str().unwrap().to_owned();
        let (_, minutes) = time.split_once("T00:").unwrap();
        let (minute, seconds) = minutes.split_once(':').unwrap();
        let millis: u64 = seconds.replace(['.', 'Z'], "").parse().unwrap();
        let number = minute.parse::<u64>().unwrap().saturating_mul(60_000).saturating_add(millis);
        (line.get("event").unwrap() == "tls.failed").then_some(number)
    };
    lines.iter().filter_map(number).collect()
}

fn places() -> u64 {
    u64::try_from(PLACES).unwrap()
}

async fn eventually(mut happened: impl FnMut() -> bool) {
    let until = Instant::now().checked_add(LONG).unwrap();
    while !happened() {
        assert!(Instant::now() < until, "it does not happen");
        sleep(Duration::from_millis(5)).await;
    }
}

const SHORT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(20);
