//! What the tasks of an embedded cluster may fill and reach.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use datafusion::execution::SessionState;
use datafusion::prelude::{CsvReadOptions, SessionContext};
use futures::{StreamExt, TryStreamExt};

use super::*;
use crate::backend::{BackendError, BackendSession, JobStatus, QueryBackend, Submission};
use crate::stores::testing::{At, Web};

/// A cluster of one executor with one slot.
async fn start(memory: usize, storage: &Storage) -> Embedded {
    let config = EmbeddedConfig {
        executors: NonZeroUsize::MIN,
        vcores: NonZeroUsize::MIN,
        work_dir: std::env::temp_dir(),
        executor_memory: NonZeroUsize::new(memory).unwrap(),
        result_ttl: Duration::from_secs(60),
    };
    Embedded::start_with(&config, storage).await.unwrap()
}

fn state(cluster: &Embedded, stores: &Arc<Stores>) -> SessionState {
    let backend = cluster.backend();
    let mut config = backend.session_config();
    config.options_mut().execution.target_partitions = 1;
    let runtime = stores.within(&datafusion::execution::runtime_env::RuntimeEnv::default()).unwrap();
    backend.planning_state(config).with_runtime_env(runtime).with_default_features().build()
}

/// The number of rows of a query, counted in what executors wrote.
async fn rows(cluster: &Embedded, context: &SessionContext, sql: &str) -> Result<usize, BackendError> {
    let backend = cluster.backend();
    let plan = context.sql(sql).await.unwrap().into_optimized_plan().unwrap();
    let submission = Submission {
        session: BackendSession::new("test"),
        config: context.copied_config(),
        plan,
        label: "test".to_owned(),
    };
    let asked = async {
        let mut statuses = backend.submit(submission).await?;
        while let Some(status) = statuses.next().await {
            match status? {
                (_, JobStatus::Queued | JobStatus::Running) => (),
                (_, JobStatus::Failed(error)) => return Err(error),
                (job, JobStatus::Succeeded(result)) => {
                    let mut counted = 0_u64;
                    for part in &result.parts {
                        backend.fetch(part).await?.messages.try_collect::<Vec<_>>().await?;
                        counted = counted.saturating_add(part.rows.unwrap());
                    }
                    backend.clean(&job).await?;
                    return Ok(usize::try_from(counted).unwrap());
                }
            }
        }
        Err(BackendError::unavailable("no end"))
    };
    tokio::time::timeout(Duration::from_secs(120), asked).await.unwrap()
}

/// Bytes in the files that tasks spill; result and shuffle files are elsewhere in the folder.
fn spilled(folder: &Path) -> u64 {
    let mut bytes = 0_u64;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        // Files come and go while this looks.
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let Ok(found) = entry.metadata() else { continue };
            let inside_of_spills =
                folder.file_name().is_some_and(|name| name.to_string_lossy().contains("datafusion-"));
            if found.is_dir() {
                folders.push(entry.path());
            } else if inside_of_spills {
                bytes = bytes.saturating_add(found.len());
            }
        }
    }
    bytes
}

/// Two hundred bytes a row, in an order that has to be made.
const SORT: &str = "SELECT x FROM (SELECT concat(md5(CAST(v AS VARCHAR)), repeat('x', 170)) AS x \
                    FROM (SELECT unnest(range(0, 600000)) AS v)) ORDER BY x";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sort_larger_than_its_memory_spills_and_leaves_nothing() {
    let storage = Storage::default();
    let cluster = start(64 * 1024 * 1024, &storage).await;
    let context = SessionContext::new_with_state(state(&cluster, &storage.stores));
    let most = Arc::new(Mutex::new(0_u64));
    let watching = tokio::spawn({
        let (most, folder) = (Arc::clone(&most), cluster.work_dir().to_owned());
        async move {
            let mut tick = tokio::time::interval(Duration::from_millis(5));
            loop {
                tick.tick().await;
                let now = spilled(&folder);
                let mut most = most.lock();
                *most = now.max(*most);
            }
        }
    });
    assert_eq!(rows(&cluster, &context, SORT).await.unwrap(), 600_000);
    watching.abort();
    let most = *most.lock();
    assert!(most > 1024 * 1024, "nothing was spilled: {most}");
    assert_eq!(spilled(cluster.work_dir()), 0);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sort_beyond_the_quota_is_refused_and_leaves_nothing() {
    let storage = Storage { spill: NonZeroUsize::new(8 * 1024 * 1024).unwrap(), ..Storage::default() };
    let cluster = start(64 * 1024 * 1024, &storage).await;
    let context = SessionContext::new_with_state(state(&cluster, &storage.stores));
    assert_eq!(rows(&cluster, &context, "SELECT 1").await.unwrap(), 1);
    let error = rows(&cluster, &context, SORT).await.unwrap_err();
    assert!(error.to_string().contains("used disk space"), "{error}");

    // The task that failed may end a little after its job.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while spilled(cluster.work_dir()) > 0 {
        assert!(tokio::time::Instant::now() < deadline, "what was spilled is still there");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(rows(&cluster, &context, "SELECT 1").await.unwrap(), 1, "the executor goes on");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scheduler_and_executors_read_configured_stores_and_no_others() {
    let csv = || At::File(b"a,b\n1,x\n2,y\n3,z\n".to_vec());
    let (known, other) = (Web::serve([("/t.csv", csv())]).await, Web::serve([("/t.csv", csv())]).await);
    let stores = Arc::new(Stores::open(&[known.store()]).unwrap());
    let both = Arc::new(Stores::open(&[known.store(), other.store()]).unwrap());
    let storage = Storage { stores: Arc::clone(&stores), ..Storage::default() };
    let cluster = start(64 * 1024 * 1024, &storage).await;
    // Planned by somebody who knows more than the cluster does.
    let context = SessionContext::new_with_state(state(&cluster, &both));
    for (name, web) in [("known", &known), ("other", &other)] {
        let location = web.url.join("t.csv").unwrap();
        context.register_csv(name, location.as_str(), CsvReadOptions::new()).await.unwrap();
    }
    assert_eq!(rows(&cluster, &context, "SELECT b FROM known WHERE a > 1").await.unwrap(), 2);
    let asked = other.asked().len();
    assert!(rows(&cluster, &context, "SELECT b FROM other WHERE a > 1").await.is_err());
    assert_eq!(other.asked().len(), asked, "a store that is not configured was called");
    cluster.stop().await;
}
