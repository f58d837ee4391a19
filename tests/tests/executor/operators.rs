//! What people do: cancel, resolve, shut down; and what the store does to them.

use crate::disk::Disk;
use crate::kit::{FOREVER, Kit, ended, run, submission, until};
use crate::plans::{Draft, attach, composition, release};
use crate::rack::{Call, How};
use futures_util::FutureExt;
use poolwright_executor::{
    CancelError, Operation, OperationState, Resolution, Resolve, ResolveError, Said, StepState, SubmitError,
};
use poolwright_model::id::OperationId;
use poolwright_model::step::Verb;
use poolwright_store::StoreError;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn wish(resolution: Resolution) -> Resolve {
    Resolve {
        resolution,
        by: "operator".to_owned(),
        reason: "I looked".to_owned(),
    }
}

/// An attach whose host never sees the GPU, and whose undo the fabric refuses.
async fn quarantined(kit: &Kit, executor: &poolwright_executor::Executor) -> OperationId {
    kit.rack.hide("u1");
    kit.rack.break_down(Call::Unbind, None, How::Refuse, 10_000);
    let done = run(executor, attach()).await;
    assert_eq!(done.state, OperationState::Quarantined);
    assert_eq!(kit.gpu("u1").await.state.name(), "quarantined");
    done.id
}

/// Fault 5: quarantined, held, also after a restart.
#[tokio::test(start_paused = true)]
async fn an_undo_that_fails_is_quarantined_and_holds_what_it_holds() {
    let kit = Kit::new();
    let executor = kit.executor();
    let id = quarantined(&kit, &executor).await;
    let held = executor.get(&id).await.unwrap().unwrap();
    assert_eq!(held.steps[1].state, StepState::Stuck);
    assert!(held.error().unwrap().contains("refused"), "{:?}", held.error());
    assert_eq!(
        kit.rack.times_asked(Call::Unbind, "u1"),
        kit.options.undo_attempts as usize,
        "tried, but not forever"
    );
    let rival = Draft::new("rival")
        .compose(composition("b", "red", "h2", &["u1"]))
        .plan();
    let error = executor.submit(submission(rival)).await.unwrap_err();
    assert!(matches!(error, SubmitError::Claimed { .. }), "{error}");
    // Not even a restart lets go of it.
    drop(executor);
    let executor = kit.executor();
    assert_eq!(
        executor.recover().await.unwrap().adopted,
        std::slice::from_ref(&id)
    );
    assert_eq!(ended(&executor, &id).await.state, OperationState::Quarantined);
}

/// Fault 5: the way out, once it is mended.
#[tokio::test(start_paused = true)]
async fn a_quarantined_operation_can_be_tried_again() {
    let kit = Kit::new();
    let executor = kit.executor();
    let id = quarantined(&kit, &executor).await;
    executor.resolve(&id, wish(Resolution::Retry)).await.unwrap();
    assert_eq!(
        ended(&executor, &id).await.state,
        OperationState::Quarantined,
        "still refused"
    );
    kit.rack.mend();
    executor.resolve(&id, wish(Resolution::Retry)).await.unwrap();
    assert_eq!(ended(&executor, &id).await.state, OperationState::RolledBack);
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_quarantined_operation_can_be_accepted_as_the_fabric_shows_it() {
    for unbound_by_hand in [true, false] {
        let kit = Kit::new();
        let executor = kit.executor();
        let id = quarantined(&kit, &executor).await;
        if unbound_by_hand {
            kit.rack.rebind("u1", &[]);
        }
        let accept = Resolution::Accept { unreadable: None };
        executor.resolve(&id, wish(accept)).await.unwrap();
        let done = executor.get(&id).await.unwrap().unwrap();
        assert_eq!(done.state, OperationState::Failed);
        let gpu = kit.gpu("u1").await.state.name();
        assert_eq!(gpu, if unbound_by_hand { "dirty" } else { "bound" });
        // A unit that stays bound stays in its composition, with an operator's word as evidence.
        let compositions = kit.compositions().await;
        assert_eq!(compositions.is_empty(), unbound_by_hand);
        if let Some(record) = compositions.get("a") {
            let evidence = record.evidence.values().next().unwrap();
            assert!(evidence.contains("accepted by operator: I looked"), "{evidence}");
        }
        kit.all_is_well().await;
        let error = executor.resolve(&id, wish(Resolution::Retry)).await.unwrap_err();
        assert!(
            matches!(error, ResolveError::NotFound(_) | ResolveError::NotNeeded { .. }),
            "{error}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_fabric_is_read_before_an_operators_word_is_taken() {
    for said in [Said::Free, Said::Bound] {
        let kit = Kit::new();
        kit.given(attach()).await;
        let executor = kit.executor();
        kit.rack.break_down(Call::Unbind, None, How::LostAfter, 1);
        let id = executor.submit(submission(release())).await.unwrap();
        until(&executor, &id, |operation| {
            operation.steps[1].state == StepState::Running
        })
        .await;
        kit.rack.break_down(Call::Bound, None, How::LostBefore, 10_000);
        until(&executor, &id, |operation| {
            operation.state == OperationState::Indeterminate
        })
        .await;

        let accept = |unreadable| wish(Resolution::Accept { unreadable });
        let error = executor.resolve(&id, accept(None)).await.unwrap_err();
        assert!(matches!(error, ResolveError::Unreadable { .. }), "{error}");
        let still = executor.get(&id).await.unwrap().unwrap();
        assert_eq!(still.state, OperationState::Indeterminate, "it is as it was");

        executor.resolve(&id, accept(Some(said))).await.unwrap();
        let done = executor.get(&id).await.unwrap().unwrap();
        assert_eq!(done.state, OperationState::Failed);
        let bound = said == Said::Bound;
        assert_eq!(
            kit.gpu("u1").await.state.name(),
            if bound { "bound" } else { "dirty" }
        );
        assert_eq!(kit.compositions().await.contains_key("a"), bound);
    }
}

#[tokio::test(start_paused = true)]
async fn retrying_an_indeterminate_operation_looks_at_once() {
    let kit = Kit::new();
    let executor = kit.executor();
    kit.rack.break_down(Call::Bind, None, How::LostAfter, 1);
    let id = executor.submit(submission(attach())).await.unwrap();
    until(&executor, &id, |operation| {
        operation.steps[1].state == StepState::Running
    })
    .await;
    kit.rack.break_down(Call::Bound, None, How::LostBefore, 20);
    until(&executor, &id, |operation| {
        operation.state == OperationState::Indeterminate
    })
    .await;
    for _ in 0..40 {
        match executor.resolve(&id, wish(Resolution::Retry)).await {
            Ok(()) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            Err(error) => assert!(matches!(
                error,
                ResolveError::NotNeeded { .. } | ResolveError::NotFound(_)
            )),
        }
    }
    assert_eq!(ended(&executor, &id).await.state, OperationState::Completed);
    kit.all_is_well().await;
}

/// Fault 59: what was done is undone.
#[tokio::test(start_paused = true)]
async fn cancelled_means_as_before() {
    let kit = Kit::new();
    let executor = kit.executor();
    kit.rack.hide("u1");
    let id = executor.submit(submission(attach())).await.unwrap();
    until(&executor, &id, |operation| {
        operation.steps[1].state == StepState::Done
    })
    .await;
    executor.cancel(&id, "operator", "changed my mind").await.unwrap();
    let done = ended(&executor, &id).await;
    assert_eq!(done.state, OperationState::Cancelled);
    assert_eq!(
        done.stop.unwrap().message,
        "cancelled by operator: changed my mind"
    );
    kit.all_is_well().await;
    let error = executor.cancel(&id, "operator", "again").await.unwrap_err();
    assert!(matches!(error, CancelError::TooLate { .. }), "{error}");
}

/// Fault 59: nothing new begins.
#[tokio::test(start_paused = true)]
async fn once_a_cancel_is_acknowledged_nothing_is_sent() {
    let kit = Kit::new();
    let executor = kit.executor();
    let id = executor.submit(submission(attach())).await.unwrap();
    // The step has begun, and is about to be sent.
    for _ in 0..10_000 {
        if kit.rack.times_asked(Call::Preflight, "u1") == 1
            && executor.get(&id).await.unwrap().unwrap().steps[1]
                .waiting_for
                .is_some()
        {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_micros(100)).await;
    }
    assert_eq!(kit.rack.times_asked(Call::Bind, "u1"), 0);
    executor.cancel(&id, "operator", "stop").await.unwrap();
    assert_eq!(ended(&executor, &id).await.state, OperationState::Cancelled);
    assert_eq!(kit.rack.times_asked(Call::Bind, "u1"), 0);
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_parks_and_the_next_start_goes_on() {
    let kit = Kit::new();
    let executor = kit.executor();
    kit.rack.hide("u1");
    let id = executor.submit(submission(attach())).await.unwrap();
    until(&executor, &id, |operation| {
        operation.steps[1].state == StepState::Done
    })
    .await;
    executor.shutdown(FOREVER).await;
    let error = executor.submit(submission(release())).await.unwrap_err();
    assert_eq!(error, SubmitError::Closing);
    drop(executor);

    kit.rack.unhide_all();
    let executor = kit.executor();
    assert_eq!(
        executor.recover().await.unwrap().adopted,
        std::slice::from_ref(&id)
    );
    assert_eq!(ended(&executor, &id).await.state, OperationState::Completed);
    assert_eq!(kit.rack.times_asked(Call::Bind, "u1"), 1);
    kit.all_is_well().await;
}

/// Fault 6: the operation is carried on.
#[tokio::test(start_paused = true)]
async fn a_panic_in_a_driver_ends_neither_the_process_nor_the_operation() {
    let kit = Kit::new();
    let executor = kit.executor();
    kit.rack.break_down(Call::Verify, Some("u1"), How::Panic, 1);
    let done = run(&executor, attach()).await;
    assert_eq!(done.state, OperationState::Completed);
    kit.rack.break_down(Call::Unbind, Some("u1"), How::Panic, 1);
    let done = run(&executor, release()).await;
    assert_eq!(done.state, OperationState::Completed);
    kit.all_is_well().await;
}

/// Fault 6: the other steps in flight are not lost.
#[tokio::test(start_paused = true)]
async fn a_panic_beside_steps_in_flight_loses_none_of_them() {
    let units = ["u1", "u2", "u3", "u4", "u5", "u6"];
    for call in [Call::Bound, Call::Bind, Call::Preflight] {
        let kit = Kit::new();
        kit.rack.break_down(call, Some("u3"), How::Panic, 2);
        let mut draft = Draft::new("wide");
        for (n, unit) in units.iter().enumerate() {
            let (id, host) = (format!("c{n}"), format!("h{n}"));
            draft = draft.compose(composition(&id, "red", &host, &[unit]));
        }
        let done = run(&kit.executor(), draft.plan()).await;
        assert!(
            matches!(done.state, OperationState::Completed | OperationState::RolledBack),
            "{call:?}: {}",
            done.state
        );
        kit.all_is_well().await;
    }
}

/// Fault 12: whenever it hangs up.
#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_leaves_nothing_half_done() {
    // Polled so often, then dropped; the store answers late, so that there is something to interrupt.
    for polls in 0..40 {
        let mut kit = Kit::new();
        let disk = Disk::new();
        disk.slow_ms.store(4, Ordering::SeqCst);
        kit.store = Arc::new(disk);
        let executor = kit.executor();
        let mut call = Box::pin(executor.submit(submission(attach())));
        for _ in 0..polls {
            if call.as_mut().now_or_never().is_some() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        drop(call);
        tokio::time::sleep(std::time::Duration::from_secs(60)).await;
        // Begun and finished, or never begun: nothing in between.
        kit.all_is_well().await;
        assert_eq!(
            kit.compositions().await.len(),
            usize::from(polls > 0),
            "{polls} polls"
        );
    }
    for polls in 0..6 {
        let kit = Kit::new();
        let executor = kit.executor();
        kit.rack.hide("u1");
        let id = executor.submit(submission(attach())).await.unwrap();
        until(&executor, &id, |operation| {
            operation.steps[1].state == StepState::Done
        })
        .await;
        let mut call = Box::pin(executor.cancel(&id, "operator", "changed my mind"));
        for _ in 0..polls {
            if call.as_mut().now_or_never().is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(call);
        kit.rack.unhide_all();
        let done = ended(&executor, &id).await;
        let expected = if polls > 0 {
            OperationState::Cancelled
        } else {
            OperationState::Completed
        };
        assert_eq!(done.state, expected, "{polls} polls");
        kit.all_is_well().await;
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_that_is_not_written_down_first() {
    let mut kit = Kit::new();
    let store = Disk::new();
    kit.store = Arc::new(store.clone());
    let executor = kit.executor();
    let id = executor.submit(submission(attach())).await.unwrap();
    store.full.store(true, Ordering::SeqCst);
    let waiting = until(&executor, &id, |operation| operation.waiting_for.is_some()).await;
    assert!(waiting.waiting_for.unwrap().contains("disk full"));
    tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
    assert_eq!(kit.rack.times_asked(Call::Bind, "u1"), 0);
    let refused = Draft::new("other")
        .compose(composition("b", "red", "h2", &["u2"]))
        .plan();
    let error = executor.submit(submission(refused)).await.unwrap_err();
    assert!(
        matches!(error, SubmitError::Store(StoreError::Unavailable { .. })),
        "{error}"
    );

    store.full.store(false, Ordering::SeqCst);
    assert_eq!(
        ended(&executor, &id).await.state,
        OperationState::Completed,
        "it goes on by itself"
    );
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn steps_that_wait_for_each_other_while_the_store_is_away_are_not_undone_for_that() {
    let mut kit = Kit::new();
    let store = Disk::new();
    kit.store = Arc::new(store.clone());
    let executor = kit.executor();
    let both = composition("a", "red", "h1", &["u1", "u2"]);
    let plan = Draft::new("both").compose(both).plan();
    let id = executor.submit(submission(plan)).await.unwrap();
    let binds = |operation: &Operation| {
        let mut steps = operation.steps.iter();
        steps.any(|record| record.step.verb == Verb::Bind && record.state == StepState::Running)
    };
    until(&executor, &id, binds).await;
    store.full.store(true, Ordering::SeqCst);
    // Far longer than anybody waits for a turn at a host port.
    tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
    store.full.store(false, Ordering::SeqCst);
    let done = ended(&executor, &id).await;
    assert_eq!(done.state, OperationState::Completed, "{:?}", done.error());
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn everything_that_happens_is_told_in_order() {
    let kit = Kit::new();
    kit.given(attach()).await;
    let events = kit.store.events_after(0, 1000).await.unwrap();
    let told: Vec<_> = events
        .iter()
        .map(|event| {
            let event: serde_json::Value = serde_json::from_str(event.json.get()).unwrap();
            let what = event["what"].as_str().unwrap_or("operation").to_owned();
            format!("{what}: {}", event["state"].as_str().unwrap())
        })
        .collect();
    assert_eq!(
        told,
        [
            "operation: pending",
            "operation: running",
            "ask h1 for room for u1: done",
            "bind u1 to h1 (port h1/p0): running",
            "bind u1 to h1 (port h1/p0): done",
            "confirm u1 on h1: done",
            "make u1 ready on h1: running",
            "make u1 ready on h1: done",
            "operation: completed",
        ]
    );
}
