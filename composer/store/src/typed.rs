//! From documents to the types of their owners and back.

use crate::{Document, Order, Store, StoreError};
use serde::{Serialize, de::DeserializeOwned};

/// A type that is kept as a document. Its owner implements it; the store itself knows only JSON.
pub trait Stored: Serialize + DeserializeOwned {
    /// Such as `composition`. Never changed once released.
    const KIND: &'static str;

    fn id(&self) -> &str;
}

/// A value with the revision under which it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned<T> {
    pub value: T,
    pub revision: u64,
}

impl<T: Stored> Versioned<T> {
    /// A document as what it is; whoever can do without one that is not reads them one by one.
    pub fn parse(document: &Document) -> Result<Self, StoreError> {
        let value = serde_json::from_str(document.json.get())
            .map_err(|e| StoreError::malformed(&document.kind, &document.id, &e))?;
        Ok(Self {
            value,
            revision: document.revision,
        })
    }
}

/// Reads one document as what it is.
pub async fn read<T: Stored>(store: &dyn Store, id: &str) -> Result<Option<Versioned<T>>, StoreError> {
    let document = store.get(T::KIND, id).await?;
    document.as_ref().map(Versioned::parse).transpose()
}

/// Reads all documents of a kind, in the order of their ids.
pub async fn read_all<T: Stored>(store: &dyn Store) -> Result<Vec<Versioned<T>>, StoreError> {
    let documents = store.list(T::KIND).await?;
    documents.iter().map(Versioned::parse).collect()
}

/// Reads at most `limit` documents of a kind, in the order in which they were written last.
pub async fn written<T: Stored>(
    store: &dyn Store,
    order: Order,
    limit: u32,
) -> Result<Vec<Versioned<T>>, StoreError> {
    let documents = store.written(T::KIND, order, limit).await?;
    documents.iter().map(Versioned::parse).collect()
}
