//! What can be read of a store while it does not answer.

use crate::conformance::hold_promises;
use poolwright_model::id::OperationId;
use poolwright_store::{
    Batch, Committed, Document, Layer, Order, Remembering, SqliteStore, Store, StoreError,
};
use serde_json::value::to_raw_value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

/// A store on another machine, which may fall silent.
struct Far {
    store: SqliteStore,
    silent: AtomicBool,
    asked: AtomicU32,
}

impl Far {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            store: SqliteStore::in_memory().unwrap(),
            silent: AtomicBool::new(false),
            asked: AtomicU32::new(0),
        })
    }

    fn ask(&self) -> Result<(), StoreError> {
        self.asked.fetch_add(1, SeqCst);
        match self.silent.load(SeqCst) {
            false => Ok(()),
            true => Err(StoreError::Unavailable {
                reason: "the cable is cut".to_owned(),
                hint: "mend it",
            }),
        }
    }
}

impl Layer for Far {
    fn below(&self) -> &dyn Store {
        &self.store
    }

    async fn read<T: Send>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.ask()?;
        call.await
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        self.ask()?;
        self.store.commit(batch).await
    }
}

fn writing(id: &str) -> Batch {
    let mut batch = Batch::new();
    batch.put_json("thing", id, to_raw_value(&1).unwrap());
    batch
}

fn ids(documents: &[Document]) -> Vec<&str> {
    documents.iter().map(|document| document.id.as_str()).collect()
}

#[tokio::test]
async fn with_a_memory_the_promises_hold() {
    hold_promises(Arc::new(Remembering::new(Far::new()))).await;
}

/// Fault 57: reads are told from memory.
#[tokio::test(start_paused = true)]
async fn while_a_store_is_silent_documents_are_told_as_they_were_last_and_nothing_is_committed() {
    let far = Far::new();
    let store = Remembering::new(far.clone());
    for id in ["a", "b"] {
        store.commit(writing(id)).await.unwrap();
    }
    assert_eq!(ids(&store.list("thing").await.unwrap()), ["a", "b"]);
    assert_eq!(
        ids(&store.written("thing", Order::LatestFirst, 5).await.unwrap()),
        ["b", "a"]
    );
    assert!(store.get("note", "x").await.unwrap().is_none());
    let mut batch = writing("c");
    batch.delete("thing", "a");
    let last = store.commit(batch).await.unwrap();
    assert_eq!(store.revision().await.unwrap(), last.revision);
    assert_eq!(store.silence(), None);

    far.silent.store(true, SeqCst);
    assert_eq!(
        ids(&store.list("thing").await.unwrap()),
        ["b", "c"],
        "with what was written since"
    );
    let why = store.silence().unwrap();
    assert!(why.contains("the cable is cut"), "{why}");
    assert_eq!(
        ids(&store.written("thing", Order::LatestFirst, 5).await.unwrap()),
        ["c", "b"]
    );
    assert_eq!(
        ids(&store.written("thing", Order::LatestFirst, 1).await.unwrap()),
        ["c"]
    );
    assert_eq!(store.count("thing").await.unwrap(), 2);
    assert_eq!(store.revision().await.unwrap(), last.revision);
    assert!(store.get("thing", "a").await.unwrap().is_none());
    assert_eq!(
        store.get("thing", "c").await.unwrap().unwrap().revision,
        last.revision
    );
    assert!(store.get("note", "x").await.unwrap().is_none());
    let unknown = store.list("never-asked").await.unwrap_err();
    assert!(matches!(unknown, StoreError::Unavailable { .. }), "{unknown}");
    let refused = store.commit(writing("d")).await.unwrap_err();
    assert!(matches!(refused, StoreError::Unavailable { .. }), "{refused}");
    assert_eq!(
        ids(&store.list("thing").await.unwrap()),
        ["b", "c"],
        "what was refused is not told"
    );
    // By these one carries on.
    let op = OperationId::new("op").unwrap();
    store.open_operations().await.unwrap_err();
    store.journal(&op, 0).await.unwrap_err();
    store.events_after(0, 1).await.unwrap_err();

    // Nobody waits for it again and again.
    let asked = far.asked.load(SeqCst);
    for _ in 0..10 {
        store.list("thing").await.unwrap();
    }
    for _ in 0..10 {
        let refused = store.commit(writing("d")).await.unwrap_err();
        assert!(refused.to_string().contains("the cable is cut"), "{refused}");
    }
    assert!(far.asked.load(SeqCst) <= asked + 1);
    far.silent.store(false, SeqCst);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(ids(&store.list("thing").await.unwrap()), ["b", "c"]);
    assert_eq!(store.silence(), None, "it comes back by itself");
    store.commit(writing("d")).await.unwrap();
}
