//! Endpoints in several hands: an operation needs one manager that is in charge of all of its endpoints.
//!
//! Whoever collects them waits for those that others have. So that this comes to an end, a manager begins nothing
//! more at an endpoint that another one waits for, and after a while what runs there gives way too: it pauses once
//! what was sent is answered, and whoever is in charge next carries it on. Until an operation has all of its
//! endpoints it says what it waits for; and anybody can cancel it, for nobody works at it. So does its deadline: whoever
//! sees first that it has passed gives it up.

use super::{CancelError, Executor, Inner};
use crate::deadline;
use crate::finish;
use crate::ledger::{Begins, Entry, Halt};
use crate::line::Line;
use crate::live::Live;
use crate::load::adopt;
use crate::operation::{Operation, Stop};
use jiff::Timestamp;
use poolwright_model::id::{ControlEndpointId, OperationId};
use poolwright_store::StoreError;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::task::JoinHandle;

impl Executor {
    /// Pauses what runs at an endpoint that another manager has waited for long enough, and leaves it to whoever is
    /// in charge next: with the next [`Executor::recover`] that finds that what was sent is answered.
    pub fn give_way(&self, endpoint: &ControlEndpointId) {
        for worker in self.inner.workers().values_mut() {
            let live = &worker.live;
            let runs =
                live.ask(|operation| !operation.is_settled() && operation.endpoints().contains(endpoint));
            if runs && !worker.gives_way {
                worker.gives_way = true;
                live.park();
            }
        }
    }
}

/// What is known of an operation that nobody here works at.
#[derive(Debug, Clone)]
pub(super) struct Apart {
    pub endpoints: BTreeSet<ControlEndpointId>,
    /// When it is given up if it waits still. `None`: never, or it is being undone already.
    deadline: Option<Timestamp>,
}

impl Inner {
    /// It is in the journal; whoever is in charge of its endpoints works at it.
    pub(super) fn leave(&self, live: &Live) {
        let apart = live.ask(|operation| Apart {
            endpoints: operation.endpoints(),
            deadline: operation.deadline.filter(|_| operation.stop.is_none()),
        });
        self.cx.charge.want(&apart.endpoints);
        self.elsewhere().insert(live.id.clone(), apart);
    }

    /// Gives up what waits for one manager in charge of all of its endpoints, once it should have been done. Where there
    /// is one, that is for it to do.
    pub(super) async fn give_up_late(&self, id: &OperationId, apart: Apart) -> Result<(), StoreError> {
        if !deadline::has_passed(&self.cx, apart.deadline) {
            return Ok(());
        }
        let turned = match self.cancel_apart(id, &Stop::too_late(apart.deadline)).await {
            Ok(turned) => turned,
            Err(CancelError::Store(error)) => return Err(error),
            // It was turned, or ended, before.
            Err(_) => true,
        };
        if let Some(known) = self.elsewhere().get_mut(id).filter(|_| turned) {
            known.deadline = None;
        }
        Ok(())
    }

    pub(super) fn is_in_charge(&self, endpoints: &BTreeSet<ControlEndpointId>) -> bool {
        let mut endpoints = endpoints.iter();
        endpoints.all(|endpoint| self.cx.charge.tenure(endpoint).is_some())
    }

    /// In charge, and nobody else waits for it.
    pub(super) fn may_work_at(&self, endpoints: &BTreeSet<ControlEndpointId>) -> bool {
        let mut wanted = endpoints.iter();
        self.is_in_charge(endpoints) && !wanted.any(|endpoint| self.cx.charge.is_wanted_elsewhere(endpoint))
    }

    /// What gives way and has nothing on its way any more is in nobody's hands here.
    pub(super) fn leave_what_gives_way(&self) {
        let mut left = Vec::new();
        self.workers().retain(|_, worker| {
            let is_over = worker.task.as_ref().is_some_and(JoinHandle::is_finished);
            let kept = !worker.gives_way || !is_over;
            if !kept {
                worker.live.leave();
                left.push(Arc::clone(&worker.live));
            }
            kept
        });
        for live in left {
            self.leave(&live);
        }
    }

    /// What an open operation that nobody here works at waits for, where that is who is in charge; for people.
    pub(super) fn waits_for_charge(&self, endpoints: &BTreeSet<ControlEndpointId>) -> Option<String> {
        if let Some(apart) = self.apart(endpoints) {
            return Some(apart);
        }
        let mut wanted = endpoints.iter();
        let wanted = wanted.find(|endpoint| self.cx.charge.is_wanted_elsewhere(endpoint))?;
        Some(format!("{wanted} to change hands: another manager waits for it"))
    }

    /// Who is in charge of what, where no manager is in charge of all.
    fn apart(&self, endpoints: &BTreeSet<ControlEndpointId>) -> Option<String> {
        if !self.cx.charge.is_shared() {
            return None;
        }
        let holders = endpoints.iter().map(|endpoint| self.cx.charge.holder(endpoint));
        if holders.collect::<BTreeSet<_>>().len() < 2 {
            return None;
        }
        let each = endpoints.iter().map(|endpoint| {
            let holder = self.cx.charge.holder(endpoint);
            format!("{holder} is in charge of {endpoint}")
        });
        let each: Vec<_> = each.collect();
        Some(format!(
            "one manager for all of its endpoints: {}",
            each.join(", ")
        ))
    }

    /// Cancels an operation that nobody can work at just now, by its journal alone: whoever adopts it in this very
    /// moment finds that line, or is first. What has begun is undone by whoever gets all of its endpoints. `false`
    /// where somebody is in charge of them all.
    pub(super) async fn cancel_apart(&self, id: &OperationId, stop: &Stop) -> Result<bool, CancelError> {
        let live = adopt(&self.cx, id).await?;
        if self.apart(&live.ask(Operation::endpoints)).is_none() {
            return Ok(false);
        }
        let entry = Entry {
            lines: vec![Line::Adopted, Line::Unwind(stop.clone())],
            changes: vec![],
            begins: Begins::Step,
            proof: None,
        };
        match live.write(entry).await {
            Ok(()) => {}
            Err(Halt::Stopped) => {
                return Err(CancelError::TooLate {
                    operation: id.clone(),
                    state: live.ask(|operation| operation.state),
                });
            }
            // Somebody has just begun with it.
            Err(_) => return Ok(false),
        }
        if live.ask(Operation::is_untouched)
            && let Err(halt) = finish::rolled_back(&self.cx, &live).await
        {
            tracing::info!(operation = %id, ?halt, "whoever adopts it ends it");
        }
        Ok(true)
    }
}
