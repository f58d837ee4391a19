//! What the store alone needs: nothing that commits is quicker.

use crate::Failed;
use crate::figures::{rate, spread};
use poolwright_model::id::OperationId;
use poolwright_store::{Batch, SqliteStore, Store};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SINGLE: usize = 500;
const TOGETHER: usize = 4000;

/// About what one step of an attach commits: two documents, a journal line and an event.
fn batch(n: usize, seq: u64) -> Result<Batch, Failed> {
    let text = |bytes: usize| to_raw_value(&"x".repeat(bytes));
    let mut batch = Batch::new();
    batch.put_json("operation", &format!("op-{n}"), text(3000)?);
    batch.put_json("gpu", &format!("gpu-{}", n % 1024), text(600)?);
    batch.line(&OperationId::new(format!("op-{n}"))?, seq, &text(250)?)?;
    batch.event(&text(400)?)?;
    Ok(batch)
}

/// The latency of one commit at a time, and commits a second of so many callers.
pub async fn measure(dir: &Path, callers: usize) -> Result<Value, Failed> {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(dir)?);
    let mut times = Vec::new();
    for n in 0..SINGLE {
        let batch = batch(n, 1)?;
        let began = Instant::now();
        store.commit(batch).await?;
        times.push(began.elapsed());
    }
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for caller in 0..callers {
        let store = store.clone();
        tasks.spawn(async move {
            for n in (caller..TOGETHER).step_by(callers) {
                store.commit(batch(SINGLE + n, 1)?).await?;
            }
            Ok::<(), Failed>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let together: Duration = began.elapsed();
    Ok(json!({
        "commit": spread(times),
        "commits_per_s": rate(TOGETHER, together),
        "callers": callers,
    }))
}
