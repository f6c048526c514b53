//! Planning threads: few, with large stacks, and a queue with an end.
//!
//! DataFusion plans recursively: a flat chain of a few hundred operators overflows the 2 MiB stack of a reactor thread
//! and takes the process with it (finding F6). Planning also cannot be cancelled, so that a slot is given back only
//! when its thread is really done. Must not know SQL.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// A bounded pool of planning threads.
pub(super) struct Planner {
    queue: SyncSender<Job>,
    deadline: Duration,
}

/// Why a job has no result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PlannerError {
    /// The queue is full.
    Busy,
    /// The job was not done in time; its thread goes on until it is.
    Deadline,
    /// The job's thread ended under it.
    Lost,
}

type Job = Box<dyn FnOnce() + Send>;

impl Planner {
    /// Starts `threads` threads behind a queue of `queue` jobs.
    pub(super) fn start(threads: usize, queue: usize, deadline: Duration) -> std::io::Result<Self> {
        let (sender, receiver) = sync_channel::<Job>(queue);
        let receiver = Arc::new(Mutex::new(receiver));
        for number in 0..threads {
            let receiver = Arc::clone(&receiver);
            thread::Builder::new()
                .name(format!("planner-{number}"))
                .stack_size(STACK)
                .spawn(move || work(&receiver))?;
        }
        Ok(Self { queue: sender, deadline })
    }

    /// Runs `job` on a planning thread, inside the caller's runtime.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PlannerError> {
        let (done, result) = oneshot::channel();
        let runtime = Handle::current();
        let job = Box::new(move || {
            if done.is_closed() {
                // The client left or the deadline passed while the job was queued.
                return;
            }
            // Catalogs and file listings need the reactor's timers and sockets.
            let _inside = runtime.enter();
            drop(done.send(job()));
        });
        self.queue.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => PlannerError::Busy,
            TrySendError::Disconnected(_) => PlannerError::Lost,
        })?;
        match tokio::time::timeout(self.deadline, result).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(_)) => Err(PlannerError::Lost),
            Err(_) => Err(PlannerError::Deadline),
        }
    }
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planner").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

fn work(queue: &Mutex<Receiver<Job>>) {
    loop {
        // The lock is held while waiting for a job and given back before the job runs.
        let job = queue.lock().recv();
        let Ok(job) = job else { return };
        // A panic inside the engine costs one statement, not a planning thread.
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err() {
            tracing::error!("a statement made the planner panic");
        }
    }
}

/// Enough for chains and nesting at the caps in a debug build, measured by the test in `tests/it`.
const STACK: usize = 64 * 1024 * 1024;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_full_queue_says_so_and_a_late_job_keeps_its_slot() {
        let planner = Arc::new(Planner::start(1, 1, Duration::from_millis(200)).unwrap());
        assert_eq!(planner.run(|| 7).await, Ok(7));

        let (release, held) = std::sync::mpsc::channel::<()>();
        let (started, running) = oneshot::channel();
        let first = tokio::spawn({
            let planner = Arc::clone(&planner);
            async move {
                planner
                    .run(move || {
                        started.send(()).unwrap();
                        // Ends when the test lets go of the other side.
                        assert!(held.recv().is_err());
                    })
                    .await
            }
        });
        running.await.unwrap();
        let second = tokio::spawn({
            let planner = Arc::clone(&planner);
            async move { planner.run(|| ()).await }
        });
        assert_eq!(first.await.unwrap(), Err(PlannerError::Deadline));
        assert_eq!(second.await.unwrap(), Err(PlannerError::Deadline), "the slot is still taken");
        assert_eq!(planner.run(|| ()).await, Err(PlannerError::Busy), "and the queue holds one");
        drop(release);
        let back = async {
            while planner.run(|| 7).await != Ok(7) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), back).await.unwrap();
    }

    #[tokio::test]
    async fn a_panic_costs_one_statement() {
        let planner = Planner::start(1, 4, Duration::from_secs(5)).unwrap();
        assert_eq!(planner.run(|| panic!("for the test")).await, Err::<(), _>(PlannerError::Lost));
        assert_eq!(planner.run(|| 7).await, Ok(7));
    }
}
