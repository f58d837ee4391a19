//! What every store must do. [`hold_promises`] takes an empty store, whichever it is.

use poolwright_model::id::OperationId;
use poolwright_store::{Batch, Order, Store, StoreError, Stored, read, read_all, written};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Thing {
    name: String,
    weight: u32,
}

impl Stored for Thing {
    const KIND: &'static str = "thing";
    fn id(&self) -> &str {
        &self.name
    }
}

fn thing(name: &str, weight: u32) -> Thing {
    Thing {
        name: name.to_owned(),
        weight,
    }
}

fn operation(name: &str) -> OperationId {
    OperationId::new(name).unwrap()
}

/// Runs the whole suite, each part under names of its own, so one store serves all parts.
pub async fn hold_promises(store: Arc<dyn Store>) {
    documents_come_back_as_they_were(&*store).await;
    a_stale_revision_is_refused_and_nothing_of_the_batch_stays(&*store).await;
    a_revision_never_comes_back(&*store).await;
    the_last_revision_tells_of_every_write(&*store).await;
    the_journal_has_one_writer_and_no_gaps(&*store).await;
    events_are_numbered_in_the_order_of_their_commits(&*store).await;
    of_many_rivals_one_wins(Arc::clone(&store)).await;
    what_is_not_what_it_should_be_is_named(&*store).await;
    documents_are_told_in_the_order_of_their_writing(&*store).await;
    what_is_forgotten_is_gone_and_nothing_else(&*store).await;
    old_events_go_and_numbers_go_on(&*store).await;
}

async fn documents_come_back_as_they_were(store: &dyn Store) {
    assert_eq!(read::<Thing>(store, "a").await.unwrap(), None);
    let mut batch = Batch::new();
    batch.put(&thing("b", 2)).unwrap().put(&thing("a", 1)).unwrap();
    let committed = store.commit(batch).await.unwrap();

    let all = read_all::<Thing>(store).await.unwrap();
    let values: Vec<_> = all.iter().map(|read| read.value.clone()).collect();
    assert_eq!(values, [thing("a", 1), thing("b", 2)], "in the order of ids");
    assert!(all.iter().all(|read| read.revision == committed.revision));

    let mut batch = Batch::new();
    batch.put(&thing("a", 9)).unwrap().delete("thing", "b");
    batch.delete("thing", "never-was");
    let later = store.commit(batch).await.unwrap();
    assert_eq!(
        store.revision().await.unwrap(),
        later.revision,
        "a deletion counts too"
    );
    let all = read_all::<Thing>(store).await.unwrap();
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].value, thing("a", 9));
    assert!(all[0].revision > committed.revision);
}

async fn a_stale_revision_is_refused_and_nothing_of_the_batch_stays(store: &dyn Store) {
    let mut batch = Batch::new();
    batch.put(&thing("cas", 1)).unwrap();
    let first = store.commit(batch).await.unwrap();
    let mut batch = Batch::new();
    batch.expect("thing", "cas", Some(first.revision));
    batch.put(&thing("cas", 2)).unwrap();
    let second = store.commit(batch).await.unwrap();

    let before = store.events_after(0, 1000).await.unwrap().len();
    let mut stale = Batch::new();
    stale
        .put(&thing("cas", 3))
        .unwrap()
        .put(&thing("cas-other", 3))
        .unwrap();
    stale.line(&operation("cas"), 1, &"line").unwrap();
    stale.event(&"event").unwrap();
    stale.expect("thing", "cas", Some(first.revision));
    let error = store.commit(stale).await.unwrap_err();
    assert_eq!(
        error,
        StoreError::Conflict {
            kind: "thing".to_owned(),
            id: "cas".to_owned(),
            expected: Some(first.revision),
            found: Some(second.revision),
        }
    );
    assert_eq!(
        read::<Thing>(store, "cas").await.unwrap().unwrap().value.weight,
        2
    );
    assert_eq!(read::<Thing>(store, "cas-other").await.unwrap(), None);
    assert!(store.journal(&operation("cas"), 0).await.unwrap().is_empty());
    assert_eq!(store.events_after(0, 1000).await.unwrap().len(), before);

    let mut absent = Batch::new();
    absent.expect("thing", "cas", None).put(&thing("cas", 4)).unwrap();
    let error = store.commit(absent).await.unwrap_err();
    assert!(error.to_string().contains("expected none"), "{error}");
}

async fn a_revision_never_comes_back(store: &dyn Store) {
    let mut seen = Vec::new();
    for _ in 0..3 {
        let mut batch = Batch::new();
        batch.put(&thing("phoenix", 1)).unwrap();
        seen.push(store.commit(batch).await.unwrap().revision);
        let mut batch = Batch::new();
        batch.delete("thing", "phoenix");
        store.commit(batch).await.unwrap();
    }
    assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
}

async fn the_last_revision_tells_of_every_write(store: &dyn Store) {
    let before = store.revision().await.unwrap();
    let mut batch = Batch::new();
    batch.put(&thing("watched", 1)).unwrap();
    let committed = store.commit(batch).await.unwrap();
    assert_eq!(store.revision().await.unwrap(), committed.revision);
    assert!(committed.revision > before);
    let mut batch = Batch::new();
    batch.delete("thing", "watched");
    store.commit(batch).await.unwrap();
    let deleted = store.revision().await.unwrap();
    assert!(deleted > committed.revision, "a deletion is a write");
    let mut refused = Batch::new();
    refused.expect("thing", "watched", Some(1));
    refused.put(&thing("watched", 2)).unwrap();
    assert!(store.commit(refused).await.unwrap_err().is_conflict());
    assert_eq!(store.revision().await.unwrap(), deleted);
}

async fn the_journal_has_one_writer_and_no_gaps(store: &dyn Store) {
    let op = operation("journal");
    let line = |seq: u64| {
        let mut batch = Batch::new();
        batch.line(&op, seq, &format!("line {seq}")).unwrap();
        batch
    };
    let mut two = line(1);
    two.line(&op, 2, &"line 2").unwrap();
    store.commit(two).await.unwrap();
    assert!(store.open_operations().await.unwrap().contains(&op));
    for wrong in [1, 2, 4] {
        let error = store.commit(line(wrong)).await.unwrap_err();
        assert!(error.is_conflict(), "{wrong}: {error}");
    }
    let mut last = line(3);
    last.end(&op);
    store.commit(last).await.unwrap();
    assert!(!store.open_operations().await.unwrap().contains(&op));
    assert!(
        store.commit(line(4)).await.unwrap_err().is_conflict(),
        "an ended operation takes no more lines"
    );

    let lines = store.journal(&op, 1).await.unwrap();
    let texts: Vec<_> = lines.iter().map(|l| (l.seq, l.json.get())).collect();
    assert_eq!(texts, [(2, "\"line 2\""), (3, "\"line 3\"")]);
}

async fn events_are_numbered_in_the_order_of_their_commits(store: &dyn Store) {
    let last = store
        .events_after(0, u32::MAX)
        .await
        .unwrap()
        .last()
        .map_or(0, |e| e.seq);
    for pair in [["a", "b"], ["c", "d"]] {
        let mut batch = Batch::new();
        batch.event(&pair[0]).unwrap().event(&pair[1]).unwrap();
        store.commit(batch).await.unwrap();
    }
    let events = store.events_after(last, 3).await.unwrap();
    let told: Vec<_> = events.iter().map(|e| (e.seq - last, e.json.get())).collect();
    assert_eq!(told, [(1, "\"a\""), (2, "\"b\""), (3, "\"c\"")]);
}

async fn of_many_rivals_one_wins(store: Arc<dyn Store>) {
    let rivals: Vec<_> = (0..64)
        .map(|rival| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let mut batch = Batch::new();
                batch.expect("thing", "prize", None);
                batch.put(&thing("prize", rival)).unwrap();
                store.commit(batch).await
            })
        })
        .collect();
    let mut winners = Vec::new();
    for (rival, task) in rivals.into_iter().enumerate() {
        match task.await.unwrap() {
            Ok(_) => winners.push(rival as u32),
            Err(error) => assert!(error.is_conflict(), "{error}"),
        }
    }
    let prize = read::<Thing>(&*store, "prize").await.unwrap().unwrap();
    assert_eq!(winners, [prize.value.weight]);
}

async fn what_is_not_what_it_should_be_is_named(store: &dyn Store) {
    let mut batch = Batch::new();
    let json = serde_json::value::to_raw_value(&["not", "a", "thing"]).unwrap();
    batch.put_json("thing", "odd", json);
    store.commit(batch).await.unwrap();
    let error = read::<Thing>(store, "odd").await.unwrap_err();
    assert!(error.to_string().contains("thing odd"), "{error}");
    let mut batch = Batch::new();
    batch.delete("thing", "odd");
    store.commit(batch).await.unwrap();
}

async fn documents_are_told_in_the_order_of_their_writing(store: &dyn Store) {
    // A kind of its own.
    let put = async |id: &str| {
        let mut batch = Batch::new();
        batch.put_json("diary", id, serde_json::value::to_raw_value(&id).unwrap());
        store.commit(batch).await.unwrap().revision
    };
    assert_eq!(store.count("diary").await.unwrap(), 0);
    for id in ["c", "a", "b"] {
        put(id).await;
    }
    let rewritten = put("c").await;
    assert_eq!(store.count("diary").await.unwrap(), 3);
    let told = async |order, limit| {
        let found = store.written("diary", order, limit).await.unwrap();
        assert!(found.iter().all(|document| document.kind == "diary"));
        found.into_iter().map(|document| document.id).collect::<Vec<_>>()
    };
    assert_eq!(told(Order::LatestFirst, 2).await, ["c", "b"]);
    assert_eq!(told(Order::LatestFirst, u32::MAX).await, ["c", "b", "a"]);
    let from_the_start = Order::EarliestFirst { after: 0 };
    assert_eq!(told(from_the_start, 2).await, ["a", "b"]);
    let second = store.written("diary", from_the_start, 2).await.unwrap()[1].revision;
    assert_eq!(told(Order::EarliestFirst { after: second }, 2).await, ["c"]);
    assert!(
        told(Order::EarliestFirst { after: rewritten }, 2)
            .await
            .is_empty()
    );
    assert!(told(Order::LatestFirst, 0).await.is_empty());
    let things = written::<Thing>(store, Order::LatestFirst, 1).await.unwrap();
    assert_eq!(things.len(), 1, "other kinds are not mixed in");
}

async fn what_is_forgotten_is_gone_and_nothing_else(store: &dyn Store) {
    let (over, open) = (operation("over"), operation("still-open"));
    for op in [&over, &open] {
        let mut batch = Batch::new();
        batch.line(op, 1, &"one").unwrap().line(op, 2, &"two").unwrap();
        store.commit(batch).await.unwrap();
    }
    let mut batch = Batch::new();
    batch.end(&over);
    store.commit(batch).await.unwrap();
    let mut batch = Batch::new();
    batch.forget(&over).forget(&open).forget(&operation("never-was"));
    store.commit(batch).await.unwrap();
    assert!(store.journal(&over, 0).await.unwrap().is_empty());
    assert_eq!(
        store.journal(&open, 0).await.unwrap().len(),
        2,
        "it is to be carried on"
    );
    assert!(store.open_operations().await.unwrap().contains(&open));
}

async fn old_events_go_and_numbers_go_on(store: &dyn Store) {
    let mut batch = Batch::new();
    for event in ["a", "b", "c"] {
        batch.event(&event).unwrap();
    }
    let last = store.commit(batch).await.unwrap().last_event;
    let left = async || {
        let events = store.events_after(0, u32::MAX).await.unwrap();
        events.iter().map(|event| event.seq).collect::<Vec<_>>()
    };
    let mut batch = Batch::new();
    batch.keep_events(last + 5);
    store.commit(batch).await.unwrap();
    assert!(left().await.len() >= 3, "all are kept");
    let mut batch = Batch::new();
    batch.event(&"d").unwrap().keep_events(2);
    assert_eq!(store.commit(batch).await.unwrap().last_event, last + 1);
    assert_eq!(left().await, [last, last + 1]);
    let mut batch = Batch::new();
    batch.keep_events(0);
    store.commit(batch).await.unwrap();
    let mut batch = Batch::new();
    batch.event(&"e").unwrap();
    assert_eq!(store.commit(batch).await.unwrap().last_event, last + 2);
    assert_eq!(left().await, [last + 2]);
}
