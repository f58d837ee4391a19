//! Many at once, and never one lock for all.

use crate::disk::Disk;
use crate::kit::{Kit, ended, submission, until};
use crate::plans::{Draft, composition};
use poolwright_executor::OperationState;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const MANY: usize = 250;

#[tokio::test(start_paused = true)]
async fn hundreds_of_operations_are_in_flight_at_once() {
    let kit = Kit::new();
    let executor = kit.executor();
    let names: Vec<_> = (0..MANY)
        .map(|n| (format!("u{n}"), format!("h{n}"), format!("c{n}")))
        .collect();
    let mut ids = Vec::new();
    for (unit, host, id) in &names {
        // No host sees its GPU, so every operation waits where it holds something.
        kit.rack.hide(unit);
        let plan = Draft::new(id)
            .compose(composition(id, "red", host, &[unit]))
            .plan();
        ids.push(executor.submit(submission(plan)).await.unwrap());
    }
    for id in &ids {
        until(&executor, id, |operation| {
            operation.waits().iter().any(|wait| wait.contains("to see"))
        })
        .await;
    }
    let running = executor.list(100_000).await.unwrap();
    assert_eq!(
        running
            .iter()
            .filter(|o| o.state == OperationState::Running)
            .count(),
        MANY
    );
    assert_eq!(executor.claims().await.unwrap().len(), MANY);
    kit.rack.unhide_all();
    for id in &ids {
        assert_eq!(ended(&executor, id).await.state, OperationState::Completed);
    }
    assert_eq!(kit.rack.bindings().len(), MANY);
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn one_endpoint_is_asked_so_many_things_at_a_time_and_no_more() {
    let mut kit = Kit::new();
    kit.options.per_endpoint = 5;
    let executor = Arc::new(kit.executor());
    let units: Vec<_> = (0..40).map(|n| format!("u{n}")).collect();
    let mut draft = Draft::new("wide");
    for (n, unit) in units.iter().enumerate() {
        let (id, host) = (format!("c{n}"), format!("h{n}"));
        draft = draft.compose(composition(&id, "red", &host, &[unit]));
    }
    let id = executor.submit(submission(draft.plan())).await.unwrap();
    assert_eq!(ended(&executor, &id).await.state, OperationState::Completed);
    assert_eq!(kit.rack.most_in_flight(), 5, "side by side, and bounded");
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_wide_plan_does_not_pay_a_flush_for_each_line() {
    let mut kit = Kit::new();
    let store = Disk::new();
    kit.store = Arc::new(store.clone());
    kit.options.per_endpoint = 64;
    let executor = kit.executor();
    let units: Vec<_> = (0..500).map(|n| format!("u{n}")).collect();
    let mut draft = Draft::new("wide");
    for (n, unit) in units.iter().enumerate() {
        let (id, host) = (format!("c{n}"), format!("h{n}"));
        draft = draft.compose(composition(&id, "red", &host, &[unit]));
    }
    let id = executor.submit(submission(draft.plan())).await.unwrap();
    let done = ended(&executor, &id).await;
    assert_eq!(done.state, OperationState::Completed);
    assert!(done.seq > 2000, "an intent and an outcome each: {}", done.seq);
    let commits = store.commits.load(Ordering::SeqCst) as u64;
    assert!(
        commits * 10 < done.seq,
        "{commits} commits for {} lines",
        done.seq
    );
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn operations_that_cross_each_other_at_ports_never_wait_in_a_circle() {
    let kit = Kit::new();
    let executor = kit.executor();
    let mut ids = Vec::new();
    for n in 0..30 {
        // Each binds to the same three ports, in another order.
        let mut draft = Draft::new(&format!("p{n}"));
        for k in 0..3 {
            let host = format!("h{}", (n + k) % 3);
            let (id, unit) = (format!("c{n}-{k}"), format!("u{n}-{k}"));
            draft = draft.compose(composition(&id, "red", &host, &[&unit]));
        }
        ids.push(executor.submit(submission(draft.plan())).await.unwrap());
    }
    for id in &ids {
        assert_eq!(ended(&executor, id).await.state, OperationState::Completed);
    }
    kit.all_is_well().await;
}
