//! Open operations that can't be read: left alone, shown, and ended by an operator. See [`crate::unreadable`].

use super::{Executor, Inner, detached};
use crate::load::load;
use crate::operation::Operation;
use crate::order::Wish;
use crate::resolve::{Resolve, ResolveError};
use crate::unreadable;
use poolwright_model::id::OperationId;
use poolwright_store::StoreError;
use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};

impl Executor {
    /// The same for one that nobody here works at: another manager does, or nobody can read it.
    pub(super) async fn resolve_elsewhere(
        &self,
        id: &OperationId,
        wish: Resolve,
    ) -> Result<(), ResolveError> {
        let inner = Arc::clone(&self.inner);
        match load(&*inner.cx.store, id).await {
            Ok(None) if !inner.is_open(id).await? => {
                return Err(ResolveError::NotFound(id.clone()));
            }
            Ok(Some(operation)) if operation.state.has_ended() => {
                return Err(ResolveError::NotNeeded {
                    operation: id.clone(),
                    state: operation.state,
                });
            }
            Ok(_) => {}
            Err(error) if error.is_unreadable() => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(why) = unreadable::reason(&inner.cx, id).await? {
            let id = id.clone();
            let given_up = async move { unreadable::give_up(&inner.cx, &id, &why, &wish).await };
            return detached(given_up).await;
        }
        match inner.cx.charge.is_shared() {
            true => Ok(self.order(id, Wish::Resolve(wish)).await?),
            false => Err(ResolveError::NotFound(id.clone())),
        }
    }
}

impl Inner {
    pub(super) fn unreadable(&self) -> MutexGuard<'_, BTreeMap<OperationId, String>> {
        self.unreadable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is shown of an open operation that can't be read; of one that has ended there is nothing to show.
    pub(super) async fn stand_in(
        &self,
        id: &OperationId,
        error: StoreError,
    ) -> Result<Operation, StoreError> {
        if !self.is_open(id).await? {
            return Err(error);
        }
        let why = error.to_string();
        unreadable::stand_in(&*self.cx.store, id, &why, self.cx.clock.now()).await
    }

    /// Also where its document is missing, as after damage to the document's id.
    pub(super) async fn is_open(&self, id: &OperationId) -> Result<bool, StoreError> {
        Ok(self.cx.store.open_operations().await?.binary_search(id).is_ok())
    }

    /// Told once for each reason, however often it is looked at.
    pub(super) fn leave_unread(&self, id: &OperationId, error: &StoreError) {
        let why = error.to_string();
        let known = self.unreadable().insert(id.clone(), why.clone());
        if known.as_ref() != Some(&why) {
            tracing::error!(operation = %id, why, "an open operation can't be read, and is left alone");
        }
    }
}
