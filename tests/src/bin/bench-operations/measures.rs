//! What is measured.

use crate::figures::{ms, peak_mib, rate, spread};
use crate::pool::Pool;
use crate::{Arguments, Failed, floor};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A host needs so long to see a GPU, so that a thousand operations wait for theirs together.
const UNSEEN: Duration = Duration::from_secs(20);

pub async fn all(arguments: &Arguments) -> Result<Value, Failed> {
    let made;
    let dir = match &arguments.dir {
        Some(dir) => dir.as_path(),
        None => {
            made = tempfile::tempdir()?;
            made.path()
        }
    };
    eprintln!("the store alone");
    let floor = floor::measure(&dir.join("floor"), arguments.clients).await?;
    eprintln!("{} attaches, one after the other", arguments.single);
    let single = single(&dir.join("single"), arguments).await?;
    eprintln!(
        "{} attaches, {} at a time",
        arguments.sustained, arguments.clients
    );
    let sustained = sustained(&dir.join("sustained"), arguments).await?;
    eprintln!("{} in flight", arguments.in_flight);
    let in_flight = in_flight(&dir.join("in-flight"), arguments).await?;
    Ok(json!({
        "floor": floor,
        "single": single,
        "sustained": sustained,
        "in_flight": in_flight,
        "peak_mib": peak_mib(),
    }))
}

/// One at a time: what the manager adds to the commits that an attach needs.
async fn single(dir: &Path, arguments: &Arguments) -> Result<Value, Failed> {
    let pool = Pool::open(dir, arguments.boxes, Duration::ZERO).await?;
    let (mut totals, mut overheads, mut commits) = (Vec::new(), Vec::new(), Vec::new());
    enough(&pool, arguments.single)?;
    for pair in 0..arguments.single {
        pool.store.take();
        let began = Instant::now();
        let change = pool.attach(pair).await?;
        pool.done(&change).await?;
        let total = began.elapsed();
        let seen = pool.store.take();
        totals.push(total);
        overheads.push(total.saturating_sub(seen.busy));
        commits.extend(seen.commits);
    }
    bound(&pool, arguments.single)?;
    let a_attach = commits.len() as f64 / arguments.single as f64;
    Ok(json!({
        "gpus": pool.pairs.len(),
        "total": spread(totals),
        "overhead": spread(overheads),
        "commit": spread(commits),
        "commits_per_attach": a_attach,
    }))
}

/// As many as go, by clients that each wait for their own.
async fn sustained(dir: &Path, arguments: &Arguments) -> Result<Value, Failed> {
    let pool = Arc::new(Pool::open(dir, arguments.boxes, Duration::ZERO).await?);
    let (all, clients) = (arguments.sustained, arguments.clients);
    enough(&pool, all)?;
    pool.store.take();
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for client in 0..clients {
        let pool = pool.clone();
        tasks.spawn(async move {
            let mut times = Vec::new();
            for pair in (client..all).step_by(clients) {
                let began = Instant::now();
                let change = pool.attach(pair).await?;
                pool.done(&change).await?;
                times.push(began.elapsed());
            }
            Ok::<_, Failed>(times)
        });
    }
    let mut times = Vec::new();
    while let Some(done) = tasks.join_next().await {
        times.extend(done??);
    }
    let took = began.elapsed();
    bound(&pool, all)?;
    let commits = pool.store.take().commits.len();
    Ok(json!({
        "gpus": pool.pairs.len(),
        "attaches_per_s": rate(all, took),
        "attach": spread(times),
        "commits_per_s": rate(commits, took),
        "commits_per_attach": commits as f64 / all as f64,
        "clients": clients,
    }))
}

/// All begun before the first is done.
async fn in_flight(dir: &Path, arguments: &Arguments) -> Result<Value, Failed> {
    let pool = Arc::new(Pool::open(dir, arguments.boxes, UNSEEN).await?);
    let all = arguments.in_flight;
    enough(&pool, all)?;
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for client in 0..arguments.clients {
        let (pool, clients) = (pool.clone(), arguments.clients);
        tasks.spawn(async move {
            let mut asked = Vec::new();
            for pair in (client..all).step_by(clients) {
                let began = Instant::now();
                let change = pool.attach(pair).await?;
                asked.push((change, began.elapsed()));
            }
            Ok::<_, Failed>(asked)
        });
    }
    let (mut changes, mut times) = (Vec::new(), Vec::new());
    while let Some(done) = tasks.join_next().await {
        for (change, took) in done?? {
            changes.push(change);
            times.push(took);
        }
    }
    let begun = began.elapsed();
    let open = pool.composer.unfinished_operations().await?.len();
    for change in &changes {
        pool.done(change).await?;
    }
    let done = began.elapsed();
    bound(&pool, all)?;
    Ok(json!({
        "asked": all,
        "in_flight": open,
        "begun_ms": ms(begun),
        "begun_per_s": rate(all, begun),
        "begin": spread(times),
        "done_ms": ms(done),
        "unseen_ms": ms(UNSEEN),
    }))
}

fn enough(pool: &Pool, wanted: usize) -> Result<(), Failed> {
    match pool.pairs.len() {
        there if there >= wanted => Ok(()),
        there => Err(format!("{wanted} attaches need as many GPUs, and there are {there}: add boxes").into()),
    }
}

/// The figures are worth nothing if it was not done.
fn bound(pool: &Pool, wanted: usize) -> Result<(), Failed> {
    match pool.bound() {
        bound if bound == wanted => Ok(()),
        bound => Err(format!("{bound} GPUs are bound, {wanted} were attached").into()),
    }
}
