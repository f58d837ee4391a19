//! A second client that reads the rack itself, so that the manager is not its own witness.
//!
//! It shares nothing with our driver: plain HTTP and JSON, and the standard's own words. It looks at all
//! fabric managers over and over while the demonstration runs, and keeps what it saw: who was bound to whom,
//! and whether any GPU ever had two hosts.

mod rack_view;

use crate::exit_code::ExitCode;
use crate::failure::Failure;
use rack_view::{Door, RackView, Seen};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A GPU by its serial number, a host by its UUID.
pub type Binding = (String, String);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(150);

/// What was seen in all looks so far.
#[derive(Debug, Default)]
struct Ledger {
    looks: u64,
    missed: u64,
    double_owned: BTreeSet<String>,
    last: BTreeSet<Binding>,
    /// GPUs whose binding changed from one look to the next, since somebody asked.
    moved: BTreeSet<String>,
}

/// What differs from before, once everything is released.
#[derive(Debug)]
pub struct Left {
    /// Still bound.
    pub leaked: BTreeSet<Binding>,
    /// Somebody else's, and no longer bound.
    pub gone: BTreeSet<Binding>,
}

/// The client, at work until it is told to stop.
pub struct Auditor {
    view: Arc<RackView>,
    ledger: Arc<Mutex<Ledger>>,
    stop: CancellationToken,
    task: JoinHandle<()>,
    /// What was bound before anything was done: somebody else's.
    foreign: BTreeSet<Binding>,
}

impl Auditor {
    /// Reads who is who and what is bound already, and begins to look.
    pub async fn begin(rack: impl Into<Door<'_>>) -> Result<Self, Failure> {
        let view = Arc::new(RackView::read(rack.into()).await.map_err(unread)?);
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let foreign = look(&view, &ledger).await.map_err(unread)?;
        lock(&ledger).moved.clear();
        let stop = CancellationToken::new();
        let task = tokio::spawn(keep_looking(view.clone(), ledger.clone(), stop.clone()));
        Ok(Self {
            view,
            ledger,
            stop,
            task,
            foreign,
        })
    }

    pub fn gpus(&self) -> usize {
        self.view.gpus.len()
    }

    pub fn hosts(&self) -> usize {
        self.view.hosts.len()
    }

    /// What was bound before anything was done.
    pub fn foreign(&self) -> &BTreeSet<Binding> {
        &self.foreign
    }

    /// How many GPUs were seen to move since this was asked last.
    pub fn moved(&self) -> usize {
        std::mem::take(&mut lock(&self.ledger).moved).len()
    }

    /// What is bound to what, read now.
    pub async fn look(&self) -> Result<BTreeSet<Binding>, Failure> {
        look(&self.view, &self.ledger).await.map_err(unread)
    }

    /// Looks, and says how what is bound differs from what was before anything was done.
    pub async fn left(&self) -> Result<Left, Failure> {
        let now = self.look().await?;
        let only_in =
            |one: &BTreeSet<Binding>, other: &BTreeSet<Binding>| one.difference(other).cloned().collect();
        Ok(Left {
            leaked: only_in(&now, &self.foreign),
            gone: only_in(&self.foreign, &now),
        })
    }

    /// GPUs that had two hosts at any look.
    pub fn double_owned(&self) -> BTreeSet<String> {
        lock(&self.ledger).double_owned.clone()
    }

    /// How often it looked.
    pub fn looks(&self) -> u64 {
        lock(&self.ledger).looks
    }

    /// Stops looking. Fails where it saw too little to be a witness.
    pub async fn end(self) -> Result<(), Failure> {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            return Err(unread(format!("it broke down: {error}")));
        }
        let Ledger { looks, missed, .. } = *lock(&self.ledger);
        match missed > looks {
            true => Err(unread(format!("{missed} of {} looks failed", looks + missed))),
            false => Ok(()),
        }
    }
}

fn unread(why: String) -> Failure {
    Failure::new(
        ExitCode::Generic,
        format!("the second client could not read the rack: {why}"),
    )
    .with_hint("run it again with -v; the rack's own messages are on stderr")
}

async fn keep_looking(view: Arc<RackView>, ledger: Arc<Mutex<Ledger>>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        if let Err(why) = look(&view, &ledger).await {
            tracing::warn!("the second client missed a look: {why}");
            lock(&ledger).missed += 1;
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = stop.cancelled() => {}
        }
    }
}

/// One look at everything.
async fn look(view: &RackView, ledger: &Mutex<Ledger>) -> Result<BTreeSet<Binding>, String> {
    let seen = view.bindings().await?;
    let double = doubly_owned(view, &seen).await?;
    let bindings: BTreeSet<Binding> = seen.into_iter().map(|(gpu, host, _)| (gpu, host)).collect();
    let mut ledger = lock(ledger);
    ledger.looks += 1;
    ledger.double_owned.extend(double);
    let last = std::mem::replace(&mut ledger.last, bindings.clone());
    ledger
        .moved
        .extend(bindings.symmetric_difference(&last).map(|(gpu, _)| gpu.clone()));
    Ok(bindings)
}

/// GPUs that have two hosts. A look takes a while, and a GPU may move meanwhile; so one that was seen at two
/// hosts is looked for again at the first: only if it is still there it had both at once.
async fn doubly_owned(view: &RackView, seen: &[Seen]) -> Result<BTreeSet<String>, String> {
    let mut double = BTreeSet::new();
    for first in twice_seen(seen) {
        if view.bindings_at(&first.2).await?.contains(first) {
            tracing::error!(gpu = first.0, host = first.1, "this GPU has another host too");
            double.insert(first.0.clone());
        }
    }
    Ok(double)
}

/// Of each GPU that was seen at two hosts the first sight.
fn twice_seen(seen: &[Seen]) -> BTreeSet<&Seen> {
    let mut first: BTreeMap<&String, &Seen> = BTreeMap::new();
    let sights = seen.iter().filter_map(|sight| {
        let before = *first.entry(&sight.0).or_insert(sight);
        (before.1 != sight.1).then_some(before)
    });
    sights.collect()
}

fn lock(ledger: &Mutex<Ledger>) -> std::sync::MutexGuard<'_, Ledger> {
    // Every change of it is whole, so a panic elsewhere does not spoil it.
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
