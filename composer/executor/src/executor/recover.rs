//! Taking up operations where another run, or another manager, left them.

use super::{Executor, Inner};
use crate::ledger::{Begins, Entry};
use crate::line::Line;
use crate::load::adopt;
use crate::operation::Operation;
use poolwright_model::id::{ControlEndpointId, OperationId};
use poolwright_store::StoreError;
use std::collections::BTreeSet;
use std::sync::{Arc, MutexGuard, PoisonError};

/// What recovery found.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Carried on.
    pub adopted: Vec<OperationId>,
    /// Open, and can't be read: left alone, with the reason.
    pub unreadable: Vec<(OperationId, StoreError)>,
}

impl Executor {
    /// Adopts every open operation that nobody here works at and whose endpoints are in this manager's charge: at
    /// the start, and with several managers ever again. What was done is read back, and each goes on, or is
    /// undone, from where its journal ends.
    pub async fn recover(&self) -> Result<Recovered, StoreError> {
        let inner = &self.inner;
        let mut recovered = Recovered::default();
        let open = inner.cx.store.open_operations().await?;
        inner.leave_what_was_lost();
        inner.leave_what_gives_way();
        inner.elsewhere().retain(|id, _| open.binary_search(id).is_ok());
        for id in open {
            if inner.find(&id).is_some() {
                continue;
            }
            let known = inner.elsewhere().get(&id).cloned();
            if let Some(endpoints) = known.filter(|endpoints| !inner.may_work_at(endpoints)) {
                inner.cx.charge.want(&endpoints);
                continue;
            }
            match Inner::take_up(inner, &id).await {
                Ok(true) => recovered.adopted.push(id),
                Ok(false) => {}
                Err(error @ StoreError::Malformed { .. }) => {
                    inner.tell_unreadable(&id, &error);
                    recovered.unreadable.push((id, error));
                }
                Err(error) => return Err(error),
            }
        }
        inner
            .unreadable()
            .retain(|id| recovered.unreadable.iter().any(|(left, _)| left == id));
        Ok(recovered)
    }
}

impl Inner {
    fn unreadable(&self) -> MutexGuard<'_, BTreeSet<OperationId>> {
        // Each use leaves it whole.
        self.unreadable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Once: with several managers it is found every half second.
    fn tell_unreadable(&self, id: &OperationId, error: &StoreError) {
        if self.unreadable().insert(id.clone()) {
            tracing::error!(operation = %id, %error, "an open operation can't be read, and is left alone");
        }
    }

    /// Somebody else is in charge of an endpoint of theirs: these operations are that manager's. What is on its way
    /// is written down if that manager has not begun to write.
    fn leave_what_was_lost(&self) {
        if !self.cx.charge.is_shared() {
            return;
        }
        self.workers().retain(|_, worker| {
            let kept = self.is_in_charge(&worker.live.ask(Operation::endpoints));
            if !kept {
                worker.live.park();
                worker.live.leave();
            }
            kept
        });
    }

    /// It is in the journal; whoever is in charge of its endpoints works at it.
    pub(super) fn leave(&self, id: &OperationId, endpoints: BTreeSet<ControlEndpointId>) {
        self.cx.charge.want(&endpoints);
        self.elsewhere().insert(id.clone(), endpoints);
    }

    /// Works at an open operation from where its journal ends, if its endpoints are in this manager's charge.
    /// Where there may be others, that is written into the journal first: whoever worked at it before can write
    /// nothing more.
    pub(super) async fn take_up(inner: &Arc<Self>, id: &OperationId) -> Result<bool, StoreError> {
        let live = Arc::new(adopt(&inner.cx, id).await?);
        let endpoints = live.ask(Operation::endpoints);
        if !inner.may_work_at(&endpoints) {
            inner.leave(id, endpoints);
            return Ok(false);
        }
        if inner.cx.charge.is_shared() && !live.ask(|operation| operation.state.has_ended()) {
            let proof = endpoints
                .first()
                .and_then(|endpoint| inner.cx.charge.tenure(endpoint)?.proof);
            let entry = Entry {
                lines: vec![Line::Adopted],
                changes: vec![],
                begins: Begins::Nothing,
                proof,
            };
            if let Err(halt) = live.write(entry).await {
                tracing::info!(operation = %id, ?halt, "somebody else carries it on");
                return Ok(false);
            }
        }
        inner.elsewhere().remove(id);
        Self::work(inner, live);
        Ok(true)
    }
}
