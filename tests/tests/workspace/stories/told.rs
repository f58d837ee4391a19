//! The events of operations match their final results: the bindings of units, and the creation, deletion or change of
//! compositions.

use crate::stories::kit::{ME, Pool, gpus};
use poolwright_service::{Became, Change, How, OperationState, What};
use std::collections::BTreeMap;

const KIND: &str = "h100-pcie-80gb";

impl Pool {
    /// The last event of each unit: whether it is bound.
    async fn units_told(&self) -> BTreeMap<String, bool> {
        let happened = self.composer().happened_after(0, 10_000).await.unwrap();
        let units = happened.all.into_iter().filter_map(|one| match one.what {
            What::Unit { unit, bound } => Some((unit.to_string(), bound)),
            _ => None,
        });
        units.collect()
    }

    async fn bound_as_told(&self) -> usize {
        self.units_told()
            .await
            .into_values()
            .filter(|bound| *bound)
            .count()
    }

    /// What became of the compositions of a change.
    async fn became(&self, change: &Change) -> Vec<Became> {
        let operation = self.done(change).await;
        let became = self.composer().came_of(&operation.id).await.unwrap();
        let told = self.composer().happened_after(0, 10_000).await.unwrap();
        let last = told.all.into_iter().rev().find_map(|one| match one.what {
            What::Operation {
                operation: of,
                compositions,
                ..
            } if of == operation.id => Some(compositions),
            _ => None,
        });
        assert_eq!(
            last.as_ref(),
            Some(&became),
            "the event says what the operation says"
        );
        became.into_iter().map(|(_, became)| became).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_bound_and_is_undone_is_told_to_be_unused() {
    let pool = Pool::of("demo").await;
    let change = pool.compose(gpus("chat", KIND, 4)).await.unwrap();
    pool.until("something is told to be bound", async || {
        pool.bound_as_told().await > 0
    })
    .await;
    let id = &change.operation.as_ref().unwrap().id;
    pool.composer().cancel(id, ME, "a mistake").await.unwrap();
    assert_eq!(pool.ended(&change).await.state, OperationState::Cancelled);
    assert!(!pool.units_told().await.is_empty());
    assert_eq!(pool.bound_as_told().await, 0, "{:?}", pool.units_told().await);
    pool.all_is_free().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_let_go_of_and_is_bound_again_is_told_to_be_composed() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", KIND, 4)).await;
    assert_eq!(pool.bound_as_told().await, 4);
    // The unbind of the last of four fails.
    pool.refuse_a_move_after(3);
    let change = pool.release("chat").await.unwrap();
    assert_eq!(pool.ended(&change).await.state, OperationState::RolledBack);
    assert_eq!(pool.truth().len(), 4);
    let happened = pool.composer().happened_after(0, 10_000).await.unwrap();
    let is_unbound = |what: &What| matches!(what, What::Unit { bound: false, .. });
    assert!(happened.all.iter().any(|one| is_unbound(&one.what)));
    assert_eq!(pool.bound_as_told().await, 4, "{:?}", pool.units_told().await);
    pool.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_composition_is_made_once_however_often_it_changes() {
    let pool = Pool::of("demo").await;
    let manager = pool.composer();
    let how = How::default();
    let host = pool.host_id("host-6").await;
    let ids = pool.gpu_ids(&["box-1/gpu-15", "box-1/gpu-16"]).await;
    let (first, second) = (&ids[..1], &ids[1..]);

    let made = manager.attach(first, &host, ME, &how).await.unwrap();
    assert_eq!(pool.became(&made).await, [Became::Made]);
    let composition = made.plan.composes[0].id.clone();
    let added = manager.extend(second, &composition, ME, &how).await.unwrap();
    assert_eq!(pool.became(&added).await, [Became::Changed]);
    let less = manager.detach(first, ME, &how).await.unwrap();
    assert_eq!(pool.became(&less).await, [Became::Changed]);
    let other = manager.exchange(first, second, &composition, ME, &how);
    assert_eq!(pool.became(&other.await.unwrap()).await, [Became::Changed]);
    assert_eq!(pool.bound_as_told().await, 1);
    let gone = manager.detach(first, ME, &how).await.unwrap();
    assert_eq!(pool.became(&gone).await, [Became::Removed]);
    pool.all_is_free().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_exchanged_is_exchanged_as_a_whole_or_not_at_all() {
    let pool = Pool::of("demo").await;
    let manager = pool.composer();
    let how = How::default();
    let host = pool.host_id("host-6").await;
    let ids = pool
        .gpu_ids(&["box-1/gpu-13", "box-1/gpu-14", "box-1/gpu-15", "box-1/gpu-16"])
        .await;
    let (had, wanted) = ids.split_at(2);
    let made = manager.attach(had, &host, ME, &how).await.unwrap();
    pool.done(&made).await;
    let composition = &made.plan.composes[0].id;
    let before = pool.truth();

    // Of two that go and two that come, the third move is refused.
    pool.refuse_a_move_after(2);
    let change = manager.exchange(wanted, had, composition, ME, &how).await;
    let change = change.unwrap();
    assert_eq!(pool.ended(&change).await.state, OperationState::RolledBack);
    assert_eq!(pool.truth(), before);
    assert_eq!(pool.bound_as_told().await, 2);
    pool.all_is_well().await;

    let change = manager.exchange(wanted, had, composition, ME, &how).await;
    assert_eq!(pool.became(&change.unwrap()).await, [Became::Changed]);
    let standing = manager.compositions().await.unwrap();
    let gpus: Vec<_> = standing.iter().flat_map(|c| c.gpus().cloned()).collect();
    let mut expected = wanted.to_vec();
    expected.sort();
    assert_eq!((standing.len(), gpus), (1, expected));
    pool.all_is_well().await;
}
