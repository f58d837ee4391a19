//! A second client that reads the rack itself, so that the manager is not its own witness.
//!
//! It shares nothing with our driver: plain HTTP and JSON, and the standard's own words. It looks at all
//! fabric managers over and over while the demonstration runs, and keeps what it saw: who was bound to whom,
//! and whether any GPU ever had two hosts.

mod rack_view;

use crate::exit_code::ExitCode;
use crate::failure::Failure;
use poolwright_emulator::Running;
use rack_view::RackView;
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
    last: BTreeSet<Binding>,
    double_owned: BTreeSet<String>,
}

/// The client, at work until it is told to stop.
pub struct Auditor {
    view: Arc<RackView>,
    ledger: Arc<Mutex<Ledger>>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Auditor {
    /// Reads who is who, and begins to look.
    pub async fn begin(rack: &Running) -> Result<Self, Failure> {
        let view = Arc::new(RackView::read(rack).await.map_err(unread)?);
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let stop = CancellationToken::new();
        let task = tokio::spawn(keep_looking(view.clone(), ledger.clone(), stop.clone()));
        Ok(Self {
            view,
            ledger,
            stop,
            task,
        })
    }

    pub fn gpus(&self) -> usize {
        self.view.gpus.len()
    }

    pub fn hosts(&self) -> usize {
        self.view.hosts.len()
    }

    /// What is bound to what, read now.
    pub async fn look(&self) -> Result<BTreeSet<Binding>, Failure> {
        look(&self.view, &self.ledger).await.map_err(unread)
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

/// One look at everything. A look takes a while, and a GPU may move meanwhile; so one that was seen at two
/// hosts is looked for again at the first: only if it is still there it had both at once.
async fn look(view: &RackView, ledger: &Mutex<Ledger>) -> Result<BTreeSet<Binding>, String> {
    let seen = view.bindings().await?;
    let mut hosts: BTreeMap<&String, BTreeSet<&String>> = BTreeMap::new();
    for (gpu, host, _) in &seen {
        hosts.entry(gpu).or_default().insert(host);
    }
    let mut double = BTreeSet::new();
    for (gpu, hosts) in hosts.into_iter().filter(|(_, hosts)| hosts.len() > 1) {
        let Some((_, first, place)) = seen.iter().find(|(seen, ..)| seen == gpu) else {
            continue;
        };
        if view
            .bindings_at(place)
            .await?
            .iter()
            .any(|(again, host, _)| again == gpu && host == first)
        {
            tracing::error!(%gpu, ?hosts, "a GPU has two hosts");
            double.insert(gpu.clone());
        }
    }
    let bindings: BTreeSet<Binding> = seen.into_iter().map(|(gpu, host, _)| (gpu, host)).collect();
    let mut ledger = lock(ledger);
    ledger.looks += 1;
    ledger.double_owned.extend(double);
    ledger.last.clone_from(&bindings);
    Ok(bindings)
}

fn lock(ledger: &Mutex<Ledger>) -> std::sync::MutexGuard<'_, Ledger> {
    // Every change of it is whole, so a panic elsewhere does not spoil it.
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}
