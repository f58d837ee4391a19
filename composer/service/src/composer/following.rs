//! What is done once an operation is over: the demands that hang on it are settled, what it changed is looked
//! at, and whoever waits for GPUs is told.
//!
//! None of it is needed for the answers to be right (they follow from what the operation wrote down), so
//! nothing is lost where the process ends before.

use super::Composer;
use crate::error::ServiceError;
use poolwright_executor::{Operation, OperationKind, OperationState};
use poolwright_model::id::{ControlEndpointId, OperationId};
use std::collections::BTreeSet;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

/// Whether the runner is told of an operation's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tell {
    HoweverItEnds,
    /// The runner knows how its own operations end, and counts its tries.
    UnlessTheRunnerWaits,
}

impl Composer {
    pub(crate) fn follow(&self, id: OperationId, tell: Tell) {
        // Not the composer itself: it shall go when nobody else holds it.
        let (parts, executor) = (Arc::downgrade(&self.0), self.executor.clone());
        let following = async move {
            let settled = executor.wait(&id, Duration::MAX).await;
            drop(executor);
            if let (Some(parts), Ok(Some(operation))) = (parts.upgrade(), settled) {
                Self(parts).after(&operation, tell).await;
            }
        };
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(following);
    }

    async fn after(&self, operation: &Operation, tell: Tell) {
        let id = &operation.id;
        if let Err(error) = self.settle_demands().await {
            tracing::warn!(operation = %id, "its demands are settled at the next start: {error}");
        }
        if let Err(error) = self.look_at_what_is_left(self.touched_by(operation)).await {
            tracing::warn!(operation = %id, "what it left could not be looked at: {error}");
        }
        if operation.kind.is_automatic()
            && let Err(error) = self.pause_after_failures().await
        {
            tracing::warn!(operation = %id, "how it went is judged before the next begins: {error}");
        }
        let runners_own = operation.kind == OperationKind::Schedule;
        let moved_on = operation.state == OperationState::Completed;
        if tell == Tell::HoweverItEnds || !runners_own || moved_on {
            self.calendar_changed.notify_one();
        }
    }

    /// Looks at what operations left. One look does for all that ended before it began: where a thousand end together
    /// each endpoint is walked a few times, and not a thousand.
    async fn look_at_what_is_left(&self, endpoints: BTreeSet<ControlEndpointId>) -> Result<(), ServiceError> {
        self.left().extend(endpoints);
        let _turn = self.looking.lock().await;
        let left = std::mem::take(&mut *self.left());
        match left.is_empty() {
            // Whoever had the turn before began after ours were added.
            true => Ok(()),
            false => self.look_again(&left).await,
        }
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
