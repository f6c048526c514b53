//! Learning a job's id at its submission.
//!
//! Ballista 55's push stream says nothing before a job ends, so a job that is to be cancelled has no name yet. A
//! scheduler in this process asks us for the id while it handles the submission, in the very task that submits; that
//! is where it is caught. A remote scheduler tells the id with its first status, whenever that comes.

use std::sync::{Arc, OnceLock};

use crate::backend::{BackendError, JobId};

tokio::task_local! {
    static SUBMITTING: Arc<OnceLock<JobId>>;
}

/// Runs a submission and says which id was handed out meanwhile, if any was.
pub(super) async fn catching<T>(submission: impl Future<Output = T>) -> (T, Option<JobId>) {
    let caught = Arc::new(OnceLock::new());
    let answer = SUBMITTING.scope(Arc::clone(&caught), submission).await;
    (answer, caught.get().cloned())
}

/// A fresh id for the job whose submission this task handles.
pub(super) fn hand_out() -> Result<JobId, BackendError> {
    let mut random = [0_u8; 16];
    aws_lc_rs::rand::fill(&mut random).map_err(|_| BackendError::protocol("no random numbers"))?;
    let id = JobId::parse(&format!("p{:032x}", u128::from_le_bytes(random)))?;
    // Outside a submission of ours (a retry inside the scheduler) nobody listens.
    drop(SUBMITTING.try_with(|caught| caught.set(id.clone())));
    Ok(id)
}
