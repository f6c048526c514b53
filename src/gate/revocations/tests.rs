//! What ends at one gate has ended at the other, and what cannot be known is not guessed.
#![expect(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "a failed step fails the test")]

use super::super::fakes::FakeClock;
use super::*;

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("portcullis-revocations-{name}-{}", std::process::id()));
        drop(std::fs::remove_file(&path));
        Self(path)
    }

    fn open(&self, clock: &Arc<FakeClock>) -> Arc<RevocationList> {
        Arc::new(RevocationList::open(&self.0, clock.clone()).unwrap())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

fn id(byte: u8) -> SessionId {
    SessionId::from_slice(&[byte; 16]).unwrap()
}

async fn until(what: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !what() {
        assert!(Instant::now() < deadline, "it did not come in time");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn what_one_gate_ends_the_other_knows() {
    let (place, clock, stop) = (Place::new("two"), FakeClock::new(), CancellationToken::new());
    let (one, other) = (place.open(&clock), place.open(&clock));
    let tasks = [&one, &other].map(|list| tokio::spawn(Arc::clone(list).keep_in_step(stop.clone())));
    assert_eq!(other.has_ended(id(1)), Ok(false));
    one.ended(id(1), Expiry::At(clock.now() + Duration::from_secs(60)));
    assert_eq!(one.has_ended(id(1)), Ok(true), "the gate itself knows at once");
    until(|| other.has_ended(id(1)) == Ok(true)).await;
    assert_eq!(other.has_ended(id(2)), Ok(false));
    assert_eq!(place.open(&clock).has_ended(id(1)), Ok(true), "and a gate that starts later");
    stop.cancel();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn an_operator_denies_a_credential_with_a_line() {
    let (place, clock, stop) = (Place::new("deny"), FakeClock::new(), CancellationToken::new());
    let list = place.open(&clock);
    let task = tokio::spawn(Arc::clone(&list).keep_in_step(stop.clone()));
    assert_eq!(list.denies("jwt", "token 1"), Ok(false));
    let mut file = OpenOptions::new().append(true).open(&place.0).unwrap();
    file.write_all(b"# stolen\ncredential jwt token 1\nnonsense\ncredential api-key half of a li").unwrap();
    until(|| list.denies("jwt", "token 1") == Ok(true)).await;
    assert_eq!(list.denies("mtls", "token 1"), Ok(false), "the id of another scheme is another credential");
    assert_eq!(list.denies("api-key", "half of a li"), Ok(false), "the line is still being written");
    file.write_all(b"ne\n").unwrap();
    until(|| list.denies("api-key", "half of a line") == Ok(true)).await;
    stop.cancel();
    task.await.unwrap();
}

#[test]
fn a_list_that_nobody_could_read_for_a_while_answers_nothing() {
    let (place, clock) = (Place::new("stale"), FakeClock::new());
    let list = place.open(&clock);
    assert_eq!(list.has_ended(id(1)), Ok(false));
    list.known.lock().read_at = Instant::now() - STALE;
    assert_eq!(list.has_ended(id(1)), Err(ListUnreadable));
    assert_eq!(list.denies("jwt", "1"), Err(ListUnreadable));
}

#[tokio::test]
async fn what_ended_by_itself_is_forgotten_and_the_rest_is_kept() {
    let (place, clock) = (Place::new("compact"), FakeClock::new());
    let now = seconds(clock.now());
    let line = |byte: u8, ends| Line { session: id(byte), ends }.to_string();
    let over = line(1, now.saturating_sub(1)).repeat(MANY_OVER);
    std::fs::write(&place.0, over + &line(2, now + 60) + "credential jwt 7\n").unwrap();
    let list = place.open(&clock);
    assert!(std::fs::metadata(&place.0).unwrap().len() > 100_000);
    list.forget_what_is_over().unwrap();
    assert_eq!(std::fs::read_to_string(&place.0).unwrap(), line(2, now + 60) + "credential jwt 7\n");
    list.append(&[Line { session: id(3), ends: now + 60 }]).unwrap();
    list.read_news().unwrap();
    for byte in [2, 3] {
        assert_eq!(list.has_ended(id(byte)), Ok(true), "{byte}");
    }
    assert_eq!((list.has_ended(id(1)), list.denies("jwt", "7")), (Ok(false), Ok(true)));
    clock.advance(Duration::from_secs(61));
    list.read_news().unwrap();
    assert_eq!(list.known.lock().sessions.len(), 0, "memory is given back");
}
