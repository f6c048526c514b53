//! One job on the cluster from submission to its end, whatever becomes of the client.
//!
//! The job is watched by a task of its own. When the caller's future is dropped (the client went away, its deadline
//! passed) the task cancels the job, also when its id is not known yet; a result nobody waits for is cleaned. Must not
//! know Flight.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::backend::{BackendError, JobId, JobResult, JobStatus, QueryBackend, StatusStream, Submission};
use crate::sql::failure;
use crate::status::{Class, Failure};

/// A job that ran to its end.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) job: JobId,
    pub(super) result: JobResult,
}

/// Runs `submission`; dropping the future cancels it.
pub(super) async fn run(
    backend: Arc<dyn QueryBackend>,
    submission: Submission,
    deadline: Duration,
) -> Result<Finished, Failure> {
    let gone = CancellationToken::new();
    let (sender, receiver) = oneshot::channel();
    tokio::spawn(watch(backend, submission, deadline, gone.clone(), sender));
    let _cancels: DropGuard = gone.drop_guard();
    receiver.await.unwrap_or_else(|_| Err(Failure::internal("the task that watched a job ended")))
}

async fn watch(
    backend: Arc<dyn QueryBackend>,
    submission: Submission,
    deadline: Duration,
    gone: CancellationToken,
    result: oneshot::Sender<Result<Finished, Failure>>,
) {
    let ends = Instant::now().checked_add(deadline).unwrap_or_else(Instant::now);
    // Not interrupted: once the request has left, only its answer tells whether there is a job to cancel.
    let mut statuses = match backend.submit(submission).await {
        Ok(statuses) => statuses,
        Err(error) => {
            drop(result.send(Err(failure::of_backend(error))));
            return;
        }
    };
    let mut job = None;
    let outcome = tokio::select! {
        outcome = follow(&mut statuses, &mut job) => outcome.map_err(failure::of_backend),
        () = tokio::time::sleep_until(ends) => {
            Err(too_late())
        }
        () = gone.cancelled() => Err(Failure::new(Class::Cancelled, "the client went away")),
    };
    match outcome {
        Ok(finished) => {
            let job = finished.job.clone();
            if result.send(Ok(finished)).is_err() {
                clean(&*backend, &job).await;
            }
        }
        Err(failure) => {
            // The client need not wait for what is done about the job.
            drop(result.send(Err(failure)));
            if job.is_none() {
                job = first_id(&mut statuses).await;
            }
            if let Some(job) = job {
                if let Err(error) = backend.cancel(&job).await {
                    tracing::warn!(%error, "a job could not be cancelled");
                }
                clean(&*backend, &job).await;
            }
        }
    }
}

/// Reads statuses to a terminal one; `job` holds the id as soon as it is known, also when this is dropped.
async fn follow(statuses: &mut StatusStream, job: &mut Option<JobId>) -> Result<Finished, BackendError> {
    while let Some(status) = statuses.next().await {
        let (id, status) = status?;
        *job = Some(id.clone());
        match status {
            JobStatus::Queued | JobStatus::Running => (),
            JobStatus::Failed(error) => return Err(error),
            JobStatus::Succeeded(result) => return Ok(Finished { job: id, result }),
        }
    }
    Err(BackendError::unavailable("the scheduler closed the status stream before the job ended"))
}

/// The id of a job that was not told yet.
async fn first_id(statuses: &mut StatusStream) -> Option<JobId> {
    let ends = Instant::now().checked_add(FIRST_STATUS)?;
    match timeout_at(ends, statuses.next()).await {
        Ok(Some(Ok((id, _)))) => Some(id),
        Ok(Some(Err(_)) | None) | Err(_) => None,
    }
}

/// Removes a job's data; what cannot be removed now expires on the cluster by itself.
pub(super) async fn clean(backend: &dyn QueryBackend, job: &JobId) {
    match timeout(CLEAN, backend.clean(job)).await {
        Ok(Ok(())) => (),
        Ok(Err(error)) => tracing::warn!(%error, "a job's data could not be removed"),
        Err(_) => tracing::warn!("a job's data could not be removed in time"),
    }
}

/// What is said when `query_timeout` is over, wherever the query runs.
pub(super) fn too_late() -> Failure {
    Failure::new(Class::DeadlineExceeded, "the query did not finish within the server's time for a query")
}

const FIRST_STATUS: Duration = Duration::from_secs(30);
const CLEAN: Duration = Duration::from_secs(20);
