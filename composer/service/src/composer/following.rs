//! What is done once an operation is over: the demand that hangs on it is settled, what it changed is looked
//! at, and whoever waits for GPUs is told.
//!
//! None of it is needed for the answers to be right (they follow from what the operation wrote down), so
//! nothing is lost where the process ends before.

use super::Composer;
use crate::error::ServiceError;
use poolwright_executor::{Operation, OperationKind, OperationState};
use poolwright_model::id::{ControlEndpointId, OperationId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// After a look at what operations left, the next is not before so long.
const GATHERS: Duration = Duration::from_secs(1);

/// For each endpoint, held while what operations left there is looked at; when that was done last.
pub(super) type Looking = BTreeMap<ControlEndpointId, Arc<tokio::sync::Mutex<Option<Instant>>>>;

/// Whether the runner is told of an operation's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tell {
    HoweverItEnds,
    /// The runner knows how its own operations end, and counts its tries.
    UnlessTheRunnerWaits,
}

impl Composer {
    pub(crate) fn follow(&self, id: OperationId, tell: Tell) {
        let (parts, executor) = (Arc::downgrade(&self.parts), self.executor.clone());
        self.go_on(async move {
            let settled = executor.wait(&id, Duration::MAX).await;
            drop(executor);
            let (Some(composer), Ok(Some(operation))) = (Self::within(&parts), settled) else {
                return;
            };
            composer.after(&operation, tell).await;
        });
    }

    async fn after(&self, operation: &Operation, tell: Tell) {
        let id = &operation.id;
        if let Err(error) = self.settle_demand_of(id).await {
            tracing::warn!(operation = %id, "its demand is settled at the next start: {error}");
        }
        if let Err(error) = self.look_at_what_is_left(self.touched_by(operation)).await {
            tracing::warn!(operation = %id, "what it left could not be looked at: {error}");
        }
        if operation.kind.is_automatic() {
            self.note_ending(operation).await;
        }
        if operation.kind.is_automatic()
            && let Err(error) = self.pause_after_failures().await
        {
            tracing::warn!(operation = %id, "how it went is judged before the next begins: {error}");
        }
        let runners_own = operation.kind == OperationKind::Schedule;
        let moved_on = operation.state == OperationState::Completed;
        self.queue_changed.notify_one();
        if tell == Tell::HoweverItEnds || !runners_own || moved_on {
            self.calendar_changed.notify_one();
        }
    }

    /// Looks at what operations left, at each endpoint by itself: one that is slow keeps nobody from seeing the others.
    async fn look_at_what_is_left(&self, endpoints: BTreeSet<ControlEndpointId>) -> Result<(), ServiceError> {
        self.left().extend(endpoints.iter().cloned());
        let looks = endpoints.iter().map(|endpoint| self.look_once_at(endpoint));
        let looks = futures_util::future::join_all(looks).await;
        looks.into_iter().collect()
    }

    /// One look does for all operations that ended before it began: where many end the endpoint is walked now and then,
    /// and not for each.
    async fn look_once_at(&self, endpoint: &ControlEndpointId) -> Result<(), ServiceError> {
        let turn = self.looking().entry(endpoint.clone()).or_default().clone();
        let mut looked = turn.lock().await;
        if !self.left().contains(endpoint) {
            // Whoever had the turn before began after ours was added.
            return Ok(());
        }
        if let Some(looked) = *looked {
            tokio::time::sleep_until(looked + GATHERS).await;
        }
        self.left().remove(endpoint);
        let done = self.look_again(&BTreeSet::from([endpoint.clone()])).await;
        *looked = Some(Instant::now());
        done
    }

    /// Nothing is left to be looked at where nobody looks any more.
    pub(super) fn forget_looks_at(&self, endpoint: &ControlEndpointId) {
        self.left().remove(endpoint);
        self.looking().remove(endpoint);
    }

    fn looking(&self) -> MutexGuard<'_, Looking> {
        self.looking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn left(&self) -> MutexGuard<'_, BTreeSet<ControlEndpointId>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The management services at both ends of what an operation changes.
    fn touched_by(&self, operation: &Operation) -> BTreeSet<ControlEndpointId> {
        let targets = operation.steps.iter().map(|record| &record.step.target);
        let ends = targets.flat_map(|target| {
            let speaker = self.connections.speaker(&target.host);
            speaker.into_iter().chain([target.unit_at.endpoint.clone()])
        });
        ends.collect()
    }
}
