//! Looking at the hardware, and what is known from the last look.

use super::Composer;
use crate::error::{ErrorCode, ServiceError};
use crate::view::{Known, overlay};
use poolwright_collector::{Look, assemble, look};
use poolwright_driver::{Fabric, Progress};
use poolwright_inventory::Snapshot;
use poolwright_model::id::ControlEndpointId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard, PoisonError};

/// What was seen last, by endpoint, and all of it together.
#[derive(Default)]
pub(super) struct Seen {
    looks: BTreeMap<ControlEndpointId, Look>,
    /// Endpoints that operations have worked at since they were looked at.
    touched: BTreeSet<ControlEndpointId>,
    joined: Option<Arc<Snapshot>>,
}

impl Composer {
    /// Looks at every endpoint.
    pub async fn discover(&self, progress: &dyn Progress) -> Result<Arc<Snapshot>, ServiceError> {
        let began = tokio::time::Instant::now();
        let now = self.clock.now();
        let unreached = self.connect_kept().await?;
        let unreached = unreached
            .into_iter()
            .map(|(id, error)| Look::failed(id, &error, now))
            .collect();
        let looks = look(&self.connections.fabrics(), now, self.options.collect, progress).await;
        self.take_in([looks, unreached].concat());
        let seen = self.joined()?;
        let mut snapshot = (*self.with_known(&seen).await?).clone();
        snapshot.elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(Arc::new(snapshot))
    }

    /// Looks at some endpoints again; the others are as they were seen last.
    pub(super) async fn look_again(&self, endpoints: &BTreeSet<ControlEndpointId>) {
        let fabrics: Vec<Arc<dyn Fabric>> = endpoints
            .iter()
            .filter_map(|id| self.connections.get(id))
            .map(|connected| connected.fabric)
            .collect();
        self.take_in(look(&fabrics, self.clock.now(), self.options.collect, &()).await);
    }

    /// The pool as it is after all that was done to it: what operations worked at is looked at again.
    pub(super) async fn fresh_snapshot(&self) -> Result<Arc<Snapshot>, ServiceError> {
        let touched = std::mem::take(&mut self.lock_seen().touched);
        if !touched.is_empty() {
            self.look_again(&touched).await;
            // What is still being worked at must be looked at once more.
            let busy = self.endpoints_at_work().await?;
            self.lock_seen()
                .touched
                .extend(touched.into_iter().filter(|endpoint| busy.contains(endpoint)));
        }
        self.snapshot().await
    }

    /// An operation works, or has worked, at these.
    pub(super) fn touch(&self, endpoints: impl IntoIterator<Item = ControlEndpointId>) {
        self.lock_seen().touched.extend(endpoints);
    }

    /// The management services that open operations speak to.
    async fn endpoints_at_work(&self) -> Result<BTreeSet<ControlEndpointId>, ServiceError> {
        let operations = self.executor.list().await?;
        let open = operations.iter().filter(|operation| !operation.state.has_ended());
        let targets = open
            .flat_map(|operation| &operation.steps)
            .map(|record| &record.step.target);
        let endpoints = targets.flat_map(|target| {
            [
                Some(target.unit_at.endpoint.clone()),
                self.connections.speaker(&target.host),
            ]
            .into_iter()
            .flatten()
        });
        Ok(endpoints.collect())
    }

    fn lock_seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pool as last seen, with what we know of it. Looks first if it was never looked at.
    pub async fn snapshot(&self) -> Result<Arc<Snapshot>, ServiceError> {
        match self.joined() {
            Ok(seen) => self.with_known(&seen).await,
            Err(_) => self.discover(&()).await,
        }
    }

    /// Forgets what an endpoint showed.
    pub(super) fn forget(&self, endpoint: &ControlEndpointId) {
        let mut seen = self.lock_seen();
        seen.looks.remove(endpoint);
        self.rejoin(&mut seen);
    }

    fn take_in(&self, looks: Vec<Look>) {
        let mut seen = self.lock_seen();
        for mut look in looks {
            let source = look.view.source.clone();
            // Two looks may overtake each other; the later one counts.
            if seen.looks.get(&source).is_some_and(|last| last.at > look.at) {
                continue;
            }
            // An endpoint that is silent just now still has what it had; its fault says how old that is.
            if let (false, Some(last)) = (look.answered, seen.looks.get(&source)) {
                look.view.topology = last.view.topology.clone();
                look.at = last.at;
            }
            seen.looks.insert(source, look);
        }
        self.rejoin(&mut seen);
    }

    fn rejoin(&self, seen: &mut Seen) {
        let last = seen.joined.take();
        let looks = seen.looks.values().cloned().collect();
        let joined = assemble(
            looks,
            last.as_deref().map(|last| &last.topology),
            self.clock.now(),
        );
        let speaks = joined
            .topology
            .hosts
            .iter()
            .filter_map(|host| Some((host.id.clone(), host.bmc.clone()?)));
        self.connections.set_speakers(speaks.collect());
        seen.joined = Some(Arc::new(joined));
    }

    fn joined(&self) -> Result<Arc<Snapshot>, ServiceError> {
        let seen = self.lock_seen();
        seen.joined
            .clone()
            .ok_or_else(|| ServiceError::new(ErrorCode::Unavailable, "the pool was not looked at yet"))
    }

    async fn with_known(&self, seen: &Snapshot) -> Result<Arc<Snapshot>, ServiceError> {
        let mut snapshot = seen.clone();
        overlay(&mut snapshot, &self.known().await?);
        Ok(Arc::new(snapshot))
    }

    async fn known(&self) -> Result<Known, ServiceError> {
        let states = self.gpu_states().await?;
        let ours = self
            .compositions()
            .await?
            .into_iter()
            .flat_map(|c| c.held)
            .map(|held| held.unit)
            .collect();
        let in_hand = self
            .reserved()
            .await?
            .into_iter()
            .map(|reserved| reserved.unit)
            .collect();
        Ok(Known {
            states,
            ours,
            in_hand,
        })
    }
}
