//! Taking up operations where another run, or another manager, left them.

use super::{Executor, Inner};
use crate::ledger::{Begins, Entry};
use crate::line::Line;
use crate::load::adopt;
use crate::log;
use crate::operation::Operation;
use crate::record::Claim;
use poolwright_model::id::OperationId;
use poolwright_store::{Batch, StoreError, Stored, read, read_all};
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
        inner.unreadable().retain(|id, _| open.binary_search(id).is_ok());
        for id in open {
            if inner.find(&id).is_some() {
                continue;
            }
            let known = inner.elsewhere().get(&id).cloned();
            if let Some(apart) = known.filter(|apart| !inner.may_work_at(&apart.endpoints)) {
                inner.cx.charge.want(&apart.endpoints);
                inner.give_up_late(&id, apart).await?;
                continue;
            }
            match Inner::take_up(inner, &id).await {
                Ok(is_ours) => {
                    inner.unreadable().remove(&id);
                    recovered.adopted.extend(is_ours.then_some(id));
                }
                Err(error) if error.is_unreadable() => {
                    inner.leave_unread(&id, &error);
                    recovered.unreadable.push((id, error));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(recovered)
    }

    /// Lists operations as open again that are not listed, have not ended and have claims: the list has no checksums, and
    /// without its worker an operation would keep its claims for ever.
    pub async fn reopen(&self) -> Result<(), StoreError> {
        let store = &*self.inner.cx.store;
        // An operation that ends in between has ended in its document.
        let claims = read_all::<Claim>(store).await?;
        let open = store.open_operations().await?;
        let claiming: BTreeSet<_> = claims.into_iter().map(|claim| claim.value.operation).collect();
        for id in claiming.iter().filter(|id| open.binary_search(id).is_err()) {
            let mut batch = Batch::new();
            match read::<Operation>(store, id.as_str()).await {
                Ok(Some(found)) if found.value.state.has_ended() => continue,
                Ok(Some(found)) => {
                    batch.expect(Operation::KIND, id.as_str(), Some(found.revision));
                }
                Err(error) if !error.is_unreadable() => return Err(error),
                _ => {}
            }
            batch.reopen(id);
            match store.commit(batch).await {
                Ok(_) => tracing::error!(operation = %id, "operation was not listed as open"),
                // Another manager ends it.
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// An operation that is begun or taken up here just now. Once this is dropped its worker is there, if it has one.
pub(super) struct Taking {
    inner: Arc<Inner>,
    id: OperationId,
}

impl Drop for Taking {
    fn drop(&mut self) {
        self.inner.taking().remove(&self.id);
    }
}

impl Inner {
    /// `None` where that is going on already: two workers at one operation would halt each other for ever.
    pub(super) fn takes(inner: &Arc<Self>, id: &OperationId) -> Option<Taking> {
        let is_first = inner.taking().insert(id.clone());
        is_first.then(|| Taking {
            inner: Arc::clone(inner),
            id: id.clone(),
        })
    }

    fn taking(&self) -> MutexGuard<'_, BTreeSet<OperationId>> {
        self.taking.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Works at an open operation from where its journal ends, if its endpoints are in this manager's charge.
    /// Where there may be others, that is written into the journal first: whoever worked at it before can write
    /// nothing more.
    pub(super) async fn take_up(inner: &Arc<Self>, id: &OperationId) -> Result<bool, StoreError> {
        let Some(_taking) = Self::takes(inner, id) else {
            return Ok(false);
        };
        if inner.find(id).is_some() {
            return Ok(false);
        }
        let live = Arc::new(adopt(&inner.cx, id).await?);
        let endpoints = live.ask(Operation::endpoints);
        if !inner.may_work_at(&endpoints) {
            inner.leave(&live);
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
        live.span().in_scope(|| live.ask(log::resumed));
        Self::work(inner, live);
        Ok(true)
    }
}
