//! A store around another one: it says what it does otherwise, and everything else is asked of the store below.

use crate::{Batch, Committed, Damaged, Document, Event, JournalLine, Order, Original, Store, StoreError};
use async_trait::async_trait;
use poolwright_model::id::OperationId;

/// What lies around a store. Whatever has this is a [`Store`].
pub trait Layer: Send + Sync {
    fn below(&self) -> &dyn Store;

    /// Around everything that is read: `call` asks the store below.
    fn read<T: Send>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> impl Future<Output = Result<T, StoreError>> + Send {
        call
    }

    /// See [`Store::commit`].
    fn commit(&self, batch: Batch) -> impl Future<Output = Result<Committed, StoreError>> + Send {
        self.below().commit(batch)
    }

    /// See [`Store::is_remote`].
    fn is_remote(&self) -> bool {
        self.below().is_remote()
    }
}

#[async_trait]
impl<L: Layer> Store for L {
    async fn get(&self, kind: &str, id: &str) -> Result<Option<Document>, StoreError> {
        self.read(self.below().get(kind, id)).await
    }

    async fn list(&self, kind: &str) -> Result<Vec<Document>, StoreError> {
        self.read(self.below().list(kind)).await
    }

    async fn written(&self, kind: &str, order: Order, limit: u32) -> Result<Vec<Document>, StoreError> {
        self.read(self.below().written(kind, order, limit)).await
    }

    async fn count(&self, kind: &str) -> Result<u64, StoreError> {
        self.read(self.below().count(kind)).await
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        Layer::commit(self, batch).await
    }

    async fn revision(&self) -> Result<u64, StoreError> {
        self.read(self.below().revision()).await
    }

    async fn restored(&self) -> Result<Option<String>, StoreError> {
        self.read(self.below().restored()).await
    }

    async fn cluster(&self) -> Result<Option<String>, StoreError> {
        self.read(self.below().cluster()).await
    }

    fn silence(&self) -> Option<String> {
        self.below().silence()
    }

    fn unwritable(&self) -> Option<String> {
        self.below().unwritable()
    }

    fn damaged(&self) -> Vec<Damaged> {
        self.below().damaged()
    }

    async fn verify(&self) -> Result<Vec<Damaged>, StoreError> {
        self.read(self.below().verify()).await
    }

    async fn before_flip(&self, kind: &str, id: &str) -> Result<Option<Vec<Original>>, StoreError> {
        self.read(self.below().before_flip(kind, id)).await
    }

    fn is_remote(&self) -> bool {
        Layer::is_remote(self)
    }

    async fn close(&self) {
        self.below().close().await;
    }

    async fn journal(&self, operation: &OperationId, after: u64) -> Result<Vec<JournalLine>, StoreError> {
        self.read(self.below().journal(operation, after)).await
    }

    async fn open_operations(&self) -> Result<Vec<OperationId>, StoreError> {
        self.read(self.below().open_operations()).await
    }

    async fn events_after(&self, seq: u64, limit: u32) -> Result<Vec<Event>, StoreError> {
        self.read(self.below().events_after(seq, limit)).await
    }
}
