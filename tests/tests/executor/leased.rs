//! Managers that share a store: one is in charge of everything, by a lease in the store, and another takes over from it.
//!
//! Nobody is told that it was replaced: whoever was in charge is stopped in the middle of what it did, and finds out
//! when it goes on.

use poolwright_executor::{Charge, Executor, Tenure};
use poolwright_model::id::ControlEndpointId;
use poolwright_store::{Batch, Expectation, Store, Stored};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

#[derive(Serialize, Deserialize)]
struct Lease {
    /// The manager in charge: the first, the second.
    manager: u32,
}

impl Stored for Lease {
    const KIND: &'static str = "lease";
    fn id(&self) -> &'static str {
        "everything"
    }
}

/// The lease, and who was replaced.
pub struct Leased {
    store: Arc<dyn Store>,
    now: Mutex<(u32, Tenure)>,
    /// They were stopped, and are not gone.
    stopped: Mutex<Vec<Executor>>,
}

/// A manager, and the lease as it knows it.
pub struct Manager {
    leased: Arc<Leased>,
    nth: u32,
}

impl Leased {
    pub async fn first(store: &Arc<dyn Store>) -> Arc<Self> {
        let tenure = Self::sign(&**store, 1, None).await;
        Arc::new(Self {
            store: Arc::clone(store),
            now: Mutex::new((1, tenure)),
            stopped: Mutex::default(),
        })
    }

    async fn sign(store: &dyn Store, manager: u32, from: Option<Instant>) -> Tenure {
        let lease = Lease { manager };
        let mut batch = Batch::new();
        batch.put(&lease).unwrap();
        let revision = store.commit(batch).await.unwrap().revision;
        Tenure {
            epoch: Some(u64::from(manager)),
            proof: Some(Expectation {
                kind: Lease::KIND.to_owned(),
                id: lease.id().to_owned(),
                revision: Some(revision),
            }),
            from,
        }
    }

    /// The next manager is in charge, once what the one before sent must be over.
    pub async fn take_over(&self, writes: Duration) {
        let next = self.now.lock().unwrap().0 + 1;
        let tenure = Self::sign(&*self.store, next, Some(Instant::now() + writes)).await;
        *self.now.lock().unwrap() = (next, tenure);
    }

    /// The manager that is in charge now.
    pub fn manager(self: &Arc<Self>) -> Manager {
        Manager {
            leased: Arc::clone(self),
            nth: self.now.lock().unwrap().0,
        }
    }

    /// It stands still where it is. What it waits for goes on: an answer may come, or its time be over.
    pub fn stop(&self, executor: Executor) {
        self.stopped.lock().unwrap().push(executor);
    }
}

impl Charge for Manager {
    fn tenure(&self, _: &ControlEndpointId) -> Option<Tenure> {
        let now = self.leased.now.lock().unwrap();
        (now.0 == self.nth).then(|| now.1.clone())
    }

    fn want(&self, _: &BTreeSet<ControlEndpointId>) {}

    fn is_shared(&self) -> bool {
        true
    }

    fn holder(&self, _: &ControlEndpointId) -> String {
        format!("manager {}", self.leased.now.lock().unwrap().0)
    }
}
