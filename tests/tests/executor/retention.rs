//! What is kept of the past, what is forgotten, and what a list shows of it.

use crate::kit::{Kit, ended, key, run, submission, until};
use crate::plans::{Draft, composition};
use crate::rack::{Call, How};
use jiff::{SignedDuration, Timestamp};
use poolwright_executor::{KeyRecord, OperationState, PlanRecord, Pruned};
use poolwright_store::{Batch, Stored};

fn after_days(days: i64) -> Timestamp {
    // The kit's clock stands at the epoch.
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * days)
}

fn pruned(operations: u64, keys: u64) -> Pruned {
    Pruned { operations, keys }
}

#[tokio::test(start_paused = true)]
async fn what_is_over_is_kept_for_a_quarter_and_its_key_for_a_week() {
    let kit = Kit::new();
    let executor = kit.executor();
    let attach = |plan: &str| {
        let wanted = composition("a", "red", "h1", &["u1"]);
        let mut keyed = submission(Draft::new(plan).compose(wanted).plan());
        keyed.key = key("k", "attach u1");
        keyed
    };
    let id = executor.submit(attach("p1")).await.unwrap();
    ended(&executor, &id).await;
    let mut batch = Batch::new();
    batch.put_json("note", id.as_str(), serde_json::value::to_raw_value("x").unwrap());
    kit.store.commit(batch).await.unwrap();
    // One that is stuck, and one that waits.
    kit.rack.break_down(Call::Bind, Some("u2"), How::Overdue, 1);
    let plan = Draft::new("p2")
        .compose(composition("b", "red", "h2", &["u2"]))
        .plan();
    let waits = executor.submit(submission(plan)).await.unwrap();
    until(&executor, &waits, |operation| {
        operation.state == OperationState::Indeterminate
    })
    .await;

    assert_eq!(
        executor.prune(after_days(7), &["note"]).await.unwrap(),
        pruned(0, 0)
    );
    assert_eq!(
        executor.submit(attach("p3")).await.unwrap(),
        id,
        "the key still tells of it"
    );
    assert_eq!(
        executor.prune(after_days(8), &["note"]).await.unwrap(),
        pruned(0, 1)
    );
    assert!(executor.get(&id).await.unwrap().is_some());
    assert_eq!(
        executor.prune(after_days(90), &["note"]).await.unwrap(),
        pruned(0, 0)
    );
    assert_eq!(
        executor.prune(after_days(91), &["note"]).await.unwrap(),
        pruned(1, 0)
    );

    assert!(executor.get(&id).await.unwrap().is_none());
    assert!(kit.store.journal(&id, 0).await.unwrap().is_empty());
    for kind in [PlanRecord::KIND, "note"] {
        assert!(
            kit.store.get(kind, id.as_str()).await.unwrap().is_none(),
            "{kind}"
        );
    }
    assert!(kit.store.get(KeyRecord::KIND, "k").await.unwrap().is_none());
    // What stands, stands; what is open goes on.
    assert!(kit.compositions().await.contains_key("a"));
    assert!(executor.get(&waits).await.unwrap().is_some());
    drop(executor);
    let executor = kit.executor();
    let adopted = executor.recover().await.unwrap().adopted;
    assert_eq!(adopted, std::slice::from_ref(&waits));
    kit.rack.rebind("u2", &["h2/p0"]);
    assert_eq!(ended(&executor, &waits).await.state, OperationState::Completed);
    kit.all_is_well().await;
}

/// More than anybody looks back at: the oldest go, but none that a key may still tell of.
#[tokio::test(start_paused = true)]
async fn of_very_many_the_newest_are_kept() {
    let kit = Kit::new();
    let executor = kit.executor();
    let first = run(&executor, Draft::new("first").plan()).await;
    let last = run(&executor, Draft::new("last").plan()).await;
    // As many more between them as are kept at most, as the store would have them.
    let mut batch = Batch::new();
    for n in 0..9_999 {
        let mut copy = first.clone();
        copy.id = format!("copy-{n}").parse().unwrap();
        batch.put(&copy).unwrap();
    }
    kit.store.commit(batch).await.unwrap();
    let mut batch = Batch::new();
    batch.put(&last).unwrap();
    kit.store.commit(batch).await.unwrap();

    assert_eq!(executor.prune(after_days(7), &[]).await.unwrap(), pruned(0, 0));
    assert_eq!(executor.prune(after_days(8), &[]).await.unwrap(), pruned(1, 0));
    assert!(executor.get(&first.id).await.unwrap().is_none());
    assert!(executor.get(&last.id).await.unwrap().is_some());
    assert_eq!(executor.prune(after_days(8), &[]).await.unwrap(), pruned(0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_list_has_the_newest_and_all_that_are_unfinished() {
    let kit = Kit::new();
    let executor = kit.executor();
    kit.rack.break_down(Call::Bind, Some("u1"), How::Overdue, 1);
    let plan = Draft::new("waits")
        .compose(composition("a", "red", "h1", &["u1"]))
        .plan();
    let waits = executor.submit(submission(plan)).await.unwrap();
    until(&executor, &waits, |operation| {
        operation.state == OperationState::Indeterminate
    })
    .await;
    for n in 0..5 {
        run(&executor, Draft::new(&format!("p{n}")).plan()).await;
    }
    let ids = async |most| {
        let listed = executor.list(most).await.unwrap();
        listed
            .into_iter()
            .map(|operation| operation.id.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(0).await, ["op-waits"]);
    assert_eq!(ids(2).await, ["op-waits", "op-p4", "op-p3"]);
    assert_eq!(ids(u32::MAX).await.len(), 6);
    let unfinished = executor.unfinished().await.unwrap();
    assert_eq!(unfinished.len(), 1);
    assert_eq!(
        unfinished[0].state,
        OperationState::Indeterminate,
        "as it is just now"
    );
}
