//! The threads that hash, and the queue in front of them.
//!
//! However many strangers knock, no more than so many hashes run and no more than so many wait: the rest is told to
//! come back. A question nobody waits for any more is skipped, and the same question is asked once. Must not know
//! users, and must not run on the threads that serve calls.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use portcullis_auth::Secret;
use thread_priority::{ThreadPriority, ThreadPriorityValue, set_current_thread_priority};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::phc::{Memory, Outcome, StoredHash};
use crate::seen::{Question, Seen};

/// How much of the machine may be spent on passwords.
#[derive(Clone, Debug)]
pub struct HashingConfig {
    /// How many passwords are hashed at the same time, each on a thread and in memory of its own.
    pub threads: NonZero<usize>,
    /// How many more may wait.
    pub queue: usize,
    /// How long a call waits for its answer, the hashing included.
    pub wait: Duration,
    /// How long a good credential is not hashed again; zero hashes it every time.
    pub remember: Duration,
}

impl Default for HashingConfig {
    fn default() -> Self {
        let cores = thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        Self {
            threads: NonZero::new(cores.get().div_ceil(2).min(MAX_DEFAULT_THREADS)).unwrap_or(NonZero::<usize>::MIN),
            queue: 64,
            wait: Duration::from_secs(2),
            remember: Duration::from_secs(60),
        }
    }
}

/// Why passwords cannot be checked at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The operating system gave no random bytes.
    #[error("the operating system gave no random bytes")]
    Random,
    /// A hashing thread could not be started.
    #[error("a hashing thread could not be started")]
    Thread(#[source] io::Error),
}

/// What a hashing thread does with a question; tests put something quicker or slower in its place.
pub(crate) type Check = dyn Fn(&StoredHash, &mut Memory, &[u8]) -> Outcome + Send + Sync;

/// The hashing threads. They end when it is dropped, each after the hash it is at.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    wait: Duration,
}

impl Pool {
    pub(crate) fn start(config: &HashingConfig, seen: Arc<Seen>, check: Arc<Check>) -> Result<Self, StartError> {
        let threads = config.threads.get();
        let shared = Arc::new(Shared {
            work: Mutex::new(Work { open: true, idle: threads, ..Work::default() }),
            ready: Condvar::new(),
            begun: Condvar::new(),
            threads,
            queue: config.queue,
            done: AtomicU64::new(0),
            seen,
            check,
        });
        // ORDER: before the threads, so that those that have started end if one cannot.
        let pool = Self { shared, wait: config.wait };
        for _ in 0..threads {
            pool.spawn(THREAD_NAME, Shared::answer_all)?;
        }
        pool.spawn(PACE_NAME, Shared::pace)?;
        Ok(pool)
    }

    fn spawn(&self, name: &str, run: fn(&Shared)) -> Result<(), StartError> {
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name(name.to_owned());
        thread.spawn(move || run(&shared)).map(drop).map_err(StartError::Thread)
    }

    /// Asks, and waits for the answer. Dropping the future takes the question back if its turn has not come.
    pub(crate) async fn ask(
        &self,
        question: Question,
        stored: &Arc<StoredHash>,
        password: &Secret,
    ) -> Result<Outcome, NoAnswer> {
        let mut answer = self.shared.put(question, stored, password)?;
        match timeout(self.wait, answer.wait_for(Option::is_some)).await {
            Ok(Ok(answered)) => (*answered).ok_or(NoAnswer::Stopped),
            Ok(Err(_)) => Err(NoAnswer::Stopped),
            Err(_) => Err(NoAnswer::TooLate),
        }
    }

    /// How many hashes were made.
    pub(crate) fn done(&self) -> u64 {
        self.shared.done.load(Ordering::Relaxed)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut work = self.shared.work.lock();
        work.open = false;
        work.waiting.clear();
        work.asked.clear();
        drop(work);
        self.shared.ready.notify_all();
        self.shared.begun.notify_all();
    }
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// Too many others wait.
    Full,
    /// The threads have ended.
    Stopped,
    /// It did not come in time.
    TooLate,
}

struct Shared {
    work: Mutex<Work>,
    ready: Condvar,
    /// Something is hashed where nothing was.
    begun: Condvar,
    threads: usize,
    queue: usize,
    done: AtomicU64,
    seen: Arc<Seen>,
    check: Arc<Check>,
}

#[derive(Default)]
struct Work {
    open: bool,
    idle: usize,
    waiting: VecDeque<Job>,
    /// INVARIANT: holds exactly the questions that wait or are being answered, so the queue bounds it.
    asked: HashMap<Question, Answer>,
}

type Answer = Arc<watch::Sender<Option<Outcome>>>;

struct Job {
    question: Question,
    stored: Arc<StoredHash>,
    password: Secret,
    answer: Answer,
}

impl Shared {
    fn put(
        &self,
        question: Question,
        stored: &Arc<StoredHash>,
        password: &Secret,
    ) -> Result<watch::Receiver<Option<Outcome>>, NoAnswer> {
        let mut work = self.work.lock();
        if let Some(answer) = work.asked.get(&question) {
            return Ok(answer.subscribe());
        }
        // Under the lock, since the answer may have come after the caller looked.
        if self.seen.knows(&question, Instant::now()) {
            let (_, receiver) = watch::channel(Some(Outcome::Fits));
            return Ok(receiver);
        }
        if !work.open {
            return Err(NoAnswer::Stopped);
        }
        let room = self.queue.saturating_add(work.idle);
        if work.waiting.len() >= room {
            work.forget_abandoned();
        }
        if work.waiting.len() >= room {
            return Err(NoAnswer::Full);
        }
        let (sender, receiver) = watch::channel(None);
        let answer = Arc::new(sender);
        work.asked.insert(question, Arc::clone(&answer));
        work.waiting.push_back(Job { question, stored: Arc::clone(stored), password: password.clone(), answer });
        drop(work);
        self.ready.notify_one();
        Ok(receiver)
    }

    /// What a thread does until the pool is dropped.
    fn answer_all(&self) {
        // Calls that are signed in come first. A thread that stays as it was works all the same.
        if let Ok(share) = ThreadPriorityValue::try_from(SHARE) {
            let _ = set_current_thread_priority(ThreadPriority::Crossplatform(share));
        }
        let mut memory = Memory::default();
        while let Some(job) = self.next() {
            let hash = || (self.check)(&job.stored, &mut memory, job.password.expose());
            // A thread that ended here would be missing until the next start.
            let outcome = catch_unwind(AssertUnwindSafe(hash)).unwrap_or(Outcome::Failed);
            self.done.fetch_add(1, Ordering::Relaxed);
            // ORDER: remembered before it is forgotten as a question, so that whoever finds neither asks first.
            if outcome == Outcome::Fits {
                self.seen.remember(job.question, Instant::now());
            }
            let mut work = self.work.lock();
            work.asked.remove(&job.question);
            work.idle = work.idle.saturating_add(1);
            drop(work);
            job.answer.send_replace(Some(outcome));
        }
    }

    /// The next job that somebody waits for; none when the pool is gone.
    fn next(&self) -> Option<Job> {
        let mut work = self.work.lock();
        loop {
            if !work.open {
                return None;
            }
            match work.waiting.pop_front() {
                // Looked at under the lock, so nobody can join in between.
                Some(job) if job.answer.is_closed() => {
                    work.asked.remove(&job.question);
                }
                Some(job) => {
                    work.idle = work.idle.saturating_sub(1);
                    self.begun.notify_one();
                    return Some(job);
                }
                None => self.ready.wait(&mut work),
            }
        }
    }

    /// Wakes up often while something is hashed, and does nothing.
    ///
    /// A low priority alone does not end a hash when a call wants its processor. Linux (6.18, `SCHED_OTHER`) looks who
    /// comes next when somebody wakes up there, and may find that the thread of the call has had its share for the
    /// moment; the next look is the next tick, up to 4 ms later at 250 Hz. A wake-up is one more look. The example
    /// `flood` measures it.
    fn pace(&self) {
        let mut work = self.work.lock();
        while work.open {
            if work.idle == self.threads {
                self.begun.wait(&mut work);
            } else {
                self.begun.wait_for(&mut work, PACE);
            }
        }
    }
}

impl Work {
    /// Makes room by dropping the questions of callers that have gone away.
    fn forget_abandoned(&mut self) {
        let Self { waiting, asked, .. } = self;
        waiting.retain(|job| {
            let kept = !job.answer.is_closed();
            if !kept {
                asked.remove(&job.question);
            }
            kept
        });
    }
}

const MAX_DEFAULT_THREADS: usize = 4;

// Of 0 to 99; on Linux nice 14, beside a busy thread on the same core a 24th of it, so that a sign-in there still ends
// within its wait. At the least, nice 19, it would not beside two.
const SHARE: u8 = 12;

// Waking up takes 2 % of a processor, as long as something is hashed.
const PACE: Duration = Duration::from_micros(500);

// No longer than the 15 bytes that Linux shows.
const THREAD_NAME: &str = "password-hash";
const PACE_NAME: &str = "password-pace";

#[cfg(test)]
mod tests;
