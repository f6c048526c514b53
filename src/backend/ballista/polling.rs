//! Following a job on a remote scheduler by asking for its status.
//!
//! Ballista 55's push stream tells a job's id with its last status, too late to cancel anything; a submission that is
//! answered at once tells it first, and then somebody has to ask. Asks often at first, since most queries are short,
//! and seldom later. A scheduler that is away for a moment is no lost job; one that came back without its memory is.

use std::time::Duration;

use futures::StreamExt;
use tokio::time::Instant;

use crate::backend::{BackendError, JobId, JobStatus, StatusStream};

/// What a scheduler says when it is asked for a job.
pub(super) enum Answer {
    /// What it says of the job.
    Known(JobStatus),
    /// That there is no such job.
    Unknown,
}

/// The statuses of `job`: queued at once, so that its id is known, then the terminal one.
pub(super) fn statuses<F>(job: JobId, ask: impl FnMut() -> F + Send + 'static) -> StatusStream
where
    F: Future<Output = Result<Answer, BackendError>> + Send + 'static,
{
    let first = futures::stream::iter([Ok((job.clone(), JobStatus::Queued))]);
    first.chain(futures::stream::once(async move { ended(ask).await.map(|status| (job, status)) })).boxed()
}

/// The terminal status.
async fn ended<F>(mut ask: impl FnMut() -> F) -> Result<JobStatus, BackendError>
where
    F: Future<Output = Result<Answer, BackendError>>,
{
    let started = Instant::now();
    let mut pause = FIRST_PAUSE;
    let mut seen = Seen::NotYet;
    let mut away_since = None;
    loop {
        tokio::time::sleep(pause).await;
        pause = pause.mul_f32(LENGTHENED).min(LONGEST_PAUSE);
        match ask().await {
            Ok(Answer::Known(status)) => {
                away_since = None;
                seen = Seen::Once;
                match status {
                    JobStatus::Queued | JobStatus::Running => (),
                    JobStatus::Failed(_) | JobStatus::Succeeded(_) => return Ok(status),
                }
            }
            Ok(Answer::Unknown) => {
                // A job is known a moment after its submission was answered.
                if matches!(seen, Seen::Once) || started.elapsed() > UNKNOWN_AT_FIRST {
                    return Err(BackendError::unavailable("the scheduler does not know the job any more"));
                }
                away_since = None;
            }
            Err(BackendError::Unavailable(cause)) => {
                if away_since.get_or_insert_with(Instant::now).elapsed() > AWAY {
                    return Err(BackendError::Unavailable(cause));
                }
            }
            Err(error) => return Err(error),
        }
    }
}

enum Seen {
    NotYet,
    Once,
}

const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LENGTHENED: f32 = 1.5;
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// How long a scheduler may be away while a job runs.
const AWAY: Duration = Duration::from_secs(5);
const UNKNOWN_AT_FIRST: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

    use super::*;
    use crate::backend::JobResult;

    /// Asks a scheduler that gives these answers and the last one for ever.
    async fn followed(answers: Vec<fn() -> Result<Answer, BackendError>>) -> Result<JobStatus, BackendError> {
        let job = JobId::parse("job").unwrap();
        let mut asked = 0_usize;
        let mut statuses = statuses(job.clone(), move || {
            let answer = answers.get(asked).or(answers.last()).unwrap();
            asked = asked.saturating_add(1);
            std::future::ready(answer())
        });
        let (id, first) = statuses.next().await.unwrap().unwrap();
        assert!(id == job && matches!(first, JobStatus::Queued), "the id comes first");
        statuses.next().await.unwrap().map(|(_, status)| status)
    }

    fn away() -> Result<Answer, BackendError> {
        Err(BackendError::unavailable("connection refused"))
    }

    fn done() -> Result<Answer, BackendError> {
        Ok(Answer::Known(JobStatus::Succeeded(JobResult { parts: Vec::new() })))
    }

    fn running() -> Result<Answer, BackendError> {
        Ok(Answer::Known(JobStatus::Running))
    }

    fn unknown() -> Result<Answer, BackendError> {
        Ok(Answer::Unknown)
    }

    #[tokio::test]
    async fn a_job_is_followed_to_its_end_through_a_moment_of_silence() {
        for answers in [vec![done as fn() -> _], vec![unknown, running, done], vec![running, away, away, running, done]]
        {
            assert!(matches!(followed(answers).await.unwrap(), JobStatus::Succeeded(_)));
        }
        let failed = || Ok(Answer::Known(JobStatus::Failed(BackendError::protocol("x"))));
        assert!(matches!(followed(vec![failed]).await.unwrap(), JobStatus::Failed(_)));
    }

    #[tokio::test]
    async fn a_scheduler_that_forgot_the_job_or_stays_away_is_unavailable() {
        for (answers, within) in
            [(vec![running as fn() -> _, unknown], 1), (vec![unknown], 4), (vec![running, away], 8)]
        {
            let started = Instant::now();
            match followed(answers).await {
                Err(BackendError::Unavailable(_)) => assert!(started.elapsed() < Duration::from_secs(within)),
                other => panic!("{other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn what_a_scheduler_refuses_is_not_asked_again() {
        let refused = || Err(BackendError::protocol("no"));
        assert!(matches!(followed(vec![refused, done]).await, Err(BackendError::Protocol(_))));
    }
}
