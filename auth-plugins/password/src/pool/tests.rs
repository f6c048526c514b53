//! Bounds, order, and what becomes of callers and threads that go away.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use argon2::Params;
use portcullis_auth::Secret;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::{Check, HashingConfig, NoAnswer, Pool};
use crate::held::{Held, until};
use crate::phc::{Memory, Outcome, StoredHash};
use crate::seen::{Question, Seen};

#[tokio::test]
async fn a_question_is_answered_by_its_hash() {
    let pool = Asked::new(&config(1, 1), Arc::new(StoredHash::check));
    assert_eq!(pool.ask(1, "good").await, Ok(Outcome::Fits));
    assert_eq!(pool.ask(2, "bad").await, Ok(Outcome::Wrong));
    assert_eq!(pool.pool.done(), 2);
    assert_eq!(pool.ask(1, "good").await, Ok(Outcome::Fits));
    assert_eq!(pool.pool.done(), 2, "known by now, and not hashed again");
    assert!(pool.seen.knows(&Question::numbered(1), Instant::now()), "what was good is remembered");
    assert!(!pool.seen.knows(&Question::numbered(2), Instant::now()), "what was wrong is not");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_hashing_thread_gives_way() {
    let niceness = || {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // After the name in brackets, of which the 17th is the 19th of all (proc_pid_stat(5)).
        stat.rsplit_once(") ").unwrap().1.split(' ').nth(16).unwrap().parse::<i32>().unwrap()
    };
    let own = niceness();
    let check: Arc<Check> =
        Arc::new(move |_, _, _| if niceness() == own.max(14) { Outcome::Fits } else { Outcome::Wrong });
    assert_eq!(Asked::new(&config(1, 1), check).ask(1, "any").await, Ok(Outcome::Fits));
}

#[tokio::test]
async fn no_more_hashes_run_and_no_more_wait_than_allowed() {
    let held = Held::default();
    let pool = Arc::new(Asked::new(&config(2, 3), held.check()));
    let mut asked = JoinSet::new();
    for number in 0..100 {
        let pool = Arc::clone(&pool);
        asked.spawn(async move { pool.ask(number, "bad").await });
    }
    let mut full = 0;
    while full < 95 {
        assert_eq!(asked.join_next().await.unwrap().unwrap(), Err(NoAnswer::Full));
        full += 1;
    }
    until("both threads hash", || held.begun().len() == 2).await;
    held.let_go();
    while let Some(answer) = asked.join_next().await {
        assert_eq!(answer.unwrap(), Ok(Outcome::Wrong));
    }
    assert_eq!((pool.pool.done(), held.most()), (5, 2));
    assert_eq!(pool.ask(200, "good").await, Ok(Outcome::Fits), "the queue has room again");
}

#[tokio::test]
async fn without_a_queue_only_free_threads_take_a_question() {
    let held = Held::default();
    let pool = Arc::new(Asked::new(&config(1, 0), held.check()));
    let first = pool.spawn(1, "good");
    until("the thread hashes", || held.begun().len() == 1).await;
    assert_eq!(pool.ask(2, "good").await, Err(NoAnswer::Full));
    held.let_go();
    assert_eq!(first.await.unwrap(), Ok(Outcome::Fits));
    assert_eq!(pool.ask(2, "good").await, Ok(Outcome::Fits));
}

#[tokio::test]
async fn the_same_question_is_hashed_once_for_all_who_ask() {
    let held = Held::default();
    let pool = Arc::new(Asked::new(&config(2, 2), held.check()));
    let asked: Vec<_> = (0..50).map(|_| pool.spawn(1, "good")).collect();
    let other = pool.spawn(2, "good");
    until("all fifty wait", || pool.waiting_for(1) == 50 && pool.waiting_for(2) == 1).await;
    held.let_go();
    for answer in asked {
        assert_eq!(answer.await.unwrap(), Ok(Outcome::Fits));
    }
    assert_eq!(other.await.unwrap(), Ok(Outcome::Fits));
    assert_eq!(pool.pool.done(), 2);
    assert!(pool.is_at_rest());
}

#[tokio::test]
async fn a_caller_that_went_away_is_skipped() {
    let held = Held::default();
    let pool = Arc::new(Asked::new(&config(1, 8), held.check()));
    let first = pool.spawn(1, "good");
    until("the thread hashes", || held.begun().len() == 1).await;
    let gone = pool.spawn(2, "gone");
    // Of two that ask the same, one goes away: the other still gets its answer.
    let (half_gone, stays) = (pool.spawn(3, "stays"), pool.spawn(3, "stays"));
    until("all wait", || pool.waiting_for(2) == 1 && pool.waiting_for(3) == 2).await;
    gone.abort();
    half_gone.abort();
    until("two are gone", || pool.waiting_for(2) == 0 && pool.waiting_for(3) == 1).await;

    held.let_go();
    assert_eq!(first.await.unwrap(), Ok(Outcome::Fits));
    assert_eq!(stays.await.unwrap(), Ok(Outcome::Wrong));
    assert_eq!(held.begun(), ["good", "stays"]);
    assert_eq!(pool.ask(2, "good").await, Ok(Outcome::Fits), "what was skipped can be asked again");
    assert!(pool.is_at_rest());
}

#[tokio::test]
async fn callers_that_went_away_do_not_fill_the_queue() {
    let held = Held::default();
    let pool = Arc::new(Asked::new(&config(1, 2), held.check()));
    let first = pool.spawn(0, "good");
    until("the thread hashes", || held.begun().len() == 1).await;
    let gone: Vec<_> = (1..3).map(|number| pool.spawn(number, "gone")).collect();
    until("the queue is full", || pool.waiting_for(1) == 1 && pool.waiting_for(2) == 1).await;
    assert_eq!(pool.ask(3, "good").await, Err(NoAnswer::Full));
    gone.iter().for_each(JoinHandle::abort);
    until("they are gone", || pool.waiting_for(1) == 0 && pool.waiting_for(2) == 0).await;

    let late = pool.spawn(3, "good");
    until("the late one waits", || pool.waiting_for(3) == 1).await;
    held.let_go();
    assert_eq!((first.await.unwrap(), late.await.unwrap()), (Ok(Outcome::Fits), Ok(Outcome::Fits)));
    assert_eq!(held.begun(), ["good", "good"]);
}

#[tokio::test]
async fn who_waits_too_long_is_told_and_what_was_hashed_still_counts() {
    let held = Held::default();
    let config = HashingConfig { wait: Duration::from_millis(20), ..config(1, 8) };
    let pool = Arc::new(Asked::new(&config, held.check()));
    // Again if the thread was too late itself, and skipped the question.
    while held.begun().is_empty() {
        assert_eq!(pool.ask(1, "good").await, Err(NoAnswer::TooLate));
    }
    assert_eq!(pool.ask(2, "late").await, Err(NoAnswer::TooLate));
    held.let_go();
    until("the first is remembered", || pool.seen.knows(&Question::numbered(1), Instant::now())).await;
    until("nothing is left", || pool.is_at_rest()).await;
    assert_eq!(held.begun(), ["good"], "the second had left before its turn");
}

#[tokio::test]
async fn a_hash_that_panics_fails_one_question_and_no_thread() {
    let check = |_: &StoredHash, _: &mut Memory, password: &[u8]| {
        if password == b"bad" { panic!("a check that panics, on purpose") } else { Outcome::Fits }
    };
    let pool = Asked::new(&config(1, 8), Arc::new(check));
    for _ in 0..3 {
        assert_eq!(pool.ask(1, "bad").await, Ok(Outcome::Failed));
        assert_eq!(pool.ask(2, "good").await, Ok(Outcome::Fits));
    }
    assert!(pool.is_at_rest());
}

#[tokio::test]
async fn the_threads_end_with_the_pool() {
    let pool = Asked::new(&config(3, 8), Arc::new(StoredHash::check));
    assert_eq!(pool.ask(1, "good").await, Ok(Outcome::Fits));
    let shared = Arc::downgrade(&pool.pool.shared);
    assert_eq!(shared.strong_count(), 5, "three threads, their pace and the pool");
    drop(pool);
    until("all threads have ended", || shared.strong_count() == 0).await;
}

#[test]
fn the_defaults_are_the_promised_ones() {
    let HashingConfig { threads, queue, wait, remember } = HashingConfig::default();
    assert!((1..=4).contains(&threads.get()));
    assert_eq!((queue, wait, remember), (64, Duration::from_secs(2), Duration::from_secs(60)));
}

fn config(threads: usize, queue: usize) -> HashingConfig {
    let threads = NonZero::new(threads).unwrap();
    HashingConfig { threads, queue, wait: Duration::from_secs(30), remember: Duration::from_secs(60) }
}

/// A pool with one stored hash, of the password `good`.
struct Asked {
    pool: Pool,
    seen: Arc<Seen>,
    stored: Arc<StoredHash>,
}

impl Asked {
    fn new(config: &HashingConfig, check: Arc<Check>) -> Self {
        let seen = Arc::new(Seen::new(config.remember));
        let params = Params::new(64, 1, 1, None).unwrap();
        Self {
            pool: Pool::start(config, Arc::clone(&seen), check).unwrap(),
            seen,
            stored: Arc::new(StoredHash::make(&Secret::new("good"), &params).unwrap()),
        }
    }

    async fn ask(&self, number: u32, password: &str) -> Result<Outcome, NoAnswer> {
        self.pool.ask(Question::numbered(number), &self.stored, &Secret::new(password)).await
    }

    fn spawn(self: &Arc<Self>, number: u32, password: &'static str) -> JoinHandle<Result<Outcome, NoAnswer>> {
        let asked = Arc::clone(self);
        tokio::spawn(async move { asked.ask(number, password).await })
    }

    fn waiting_for(&self, number: u32) -> usize {
        let work = self.pool.shared.work.lock();
        work.asked.get(&Question::numbered(number)).map_or(0, |answer| answer.receiver_count())
    }

    fn is_at_rest(&self) -> bool {
        let work = self.pool.shared.work.lock();
        work.asked.is_empty() && work.waiting.is_empty()
    }
}
