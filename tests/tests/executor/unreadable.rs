//! An open operation that can't be read, for a newer Poolwright began it or its journal is damaged: nothing else waits
//! for it, it is shown with what there is to do, and an operator may end it.

use crate::kit::{Kit, is_claimed, key, run, submission, until};
use crate::plans::{Draft, composition};
use crate::rack::{Call, How};
use jiff::{SignedDuration, Timestamp};
use poolwright_executor::{
    CancelError, Claim, Executor, Operation, OperationKind, OperationState, PlanRecord, Resolution, Resolve,
    ResolveError, Severity,
};
use poolwright_model::id::OperationId;
use poolwright_model::lifecycle::GpuState;
use poolwright_planner::Plan;
use poolwright_store::{Batch, Store, Stored};

fn attach(plan: &str, unit: &str) -> Plan {
    let wanted = composition(plan, "red", "h1", &[unit]);
    Draft::new(plan).compose(wanted).plan()
}

/// An operation that binds u1 and is held up, as a manager leaves it that was killed.
async fn left_open(kit: &Kit) -> OperationId {
    kit.rack.break_down(Call::Bind, Some("u1"), How::Overdue, 1);
    let executor = kit.executor();
    let id = executor.submit(submission(attach("newer", "u1"))).await.unwrap();
    let held_up = |operation: &Operation| operation.state == OperationState::Indeterminate;
    until(&executor, &id, held_up).await;
    kit.rack.mend();
    id
}

/// Writes a word into a document, as something else than we know of.
async fn rewrite(store: &dyn Store, kind: &str, id: &str, (was, is): (&str, &str)) {
    let found = store.get(kind, id).await.unwrap().unwrap();
    let text = found.json.get().replace(was, is);
    assert_ne!(text, found.json.get(), "{kind} {id}: {text}");
    let mut batch = Batch::new();
    batch.put_json(kind, id, serde_json::value::RawValue::from_string(text).unwrap());
    store.commit(batch).await.unwrap();
}

/// As if a newer Poolwright had begun it: its kind is none that we know.
async fn of_a_newer_kind(kit: &Kit, id: &OperationId) {
    let newer = (r#""kind":"apply""#, r#""kind":"rebalance""#);
    rewrite(&*kit.store, Operation::KIND, id.as_str(), newer).await;
    rewrite(&*kit.store, Claim::KIND, "u1", newer).await;
}

fn wish(resolution: Resolution) -> Resolve {
    Resolve {
        resolution,
        by: "ops".to_owned(),
        reason: "looked at the rack".to_owned(),
    }
}

const ACCEPT: Resolution = Resolution::Accept { unreadable: None };

/// It is shown as held for somebody, with the reason and the way out; all that lists or forgets goes on.
async fn is_shown_and_keeps_nobody_waiting(executor: &Executor, id: &OperationId, kind: OperationKind) {
    for listed in [
        executor.list(100).await.unwrap(),
        executor.unfinished().await.unwrap(),
    ] {
        let shown = listed.iter().find(|operation| operation.id == *id).unwrap();
        assert_eq!((shown.kind, shown.state), (kind, OperationState::Quarantined));
        let waits = shown.waits().join("; ");
        assert!(waits.contains("ops resolve"), "{waits}");
    }
    let alarms = executor.alarms().await.unwrap();
    let [(of, alarm)] = &alarms[..] else {
        panic!("{alarms:?}")
    };
    assert_eq!((of, alarm.severity), (id, Severity::Critical));
    assert!(alarm.message.contains("can't be read"), "{}", alarm.message);
    assert_eq!(executor.claims().await.unwrap()[0].operation, *id);
    let quarter = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * 91);
    let pruned = executor.prune(quarter, &[]).await.unwrap();
    assert!(pruned.operations > 0, "what is old is forgotten beside it");
    assert!(executor.get(id).await.unwrap().is_some(), "and it is not");
}

/// Fault 60: an operation of a newer Poolwright. The rest goes on, it is shown, and somebody who has looked ends it.
#[tokio::test(start_paused = true)]
async fn an_operation_of_a_newer_kind_breaks_nothing_else_and_can_be_ended() {
    let kit = Kit::new();
    let id = left_open(&kit).await;
    of_a_newer_kind(&kit, &id).await;
    let original = kit
        .store
        .get(Operation::KIND, id.as_str())
        .await
        .unwrap()
        .unwrap();

    let executor = kit.executor();
    let recovered = executor.recover().await.unwrap();
    assert_eq!(recovered.unreadable[0].0, id);
    run(&executor, attach("beside", "u2")).await;
    is_shown_and_keeps_nobody_waiting(&executor, &id, OperationKind::Unreadable).await;
    let mut again = submission(attach("again", "u1"));
    again.key = key("again", "attach u1");
    assert!(
        is_claimed(&executor.submit(again).await.unwrap_err()),
        "its claims hold"
    );
    let error = executor.cancel(&id, "ops", "?").await.unwrap_err();
    assert!(matches!(error, CancelError::TooLate { .. }), "{error}");
    let error = executor.resolve(&id, wish(Resolution::Retry)).await.unwrap_err();
    assert!(error.to_string().contains("can't be read"), "{error}");

    executor.resolve(&id, wish(ACCEPT)).await.unwrap();
    let ended = executor.get(&id).await.unwrap().unwrap();
    assert_eq!(ended.state, OperationState::Failed);
    let why = ended.error().unwrap();
    for part in ["ops", "looked at the rack", "rebalance"] {
        assert!(why.contains(part), "{why}");
    }
    assert!(executor.claims().await.unwrap().is_empty());
    assert!(kit.store.open_operations().await.unwrap().is_empty());
    assert!(executor.alarms().await.unwrap().is_empty());
    let gpu = kit.gpu("u1").await;
    assert_eq!((gpu.state, gpu.clean, gpu.host), (GpuState::Dirty, false, None));
    let kept = kit
        .store
        .get("unreadable-operation", id.as_str())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(kept.json.get(), original.json.get(), "the original is kept");
    let error = executor.resolve(&id, wish(ACCEPT)).await.unwrap_err();
    assert!(matches!(error, ResolveError::NotNeeded { .. }), "{error}");
}

/// What is damaged is what belongs to an operation, which can be read itself.
#[tokio::test(start_paused = true)]
async fn an_operation_whose_plan_is_damaged_is_shown_and_what_a_composition_holds_stays_held() {
    let kit = Kit::new();
    let plan = attach("stands", "u1");
    kit.given(plan.clone()).await;
    let release = Draft::new("release").release(plan.composes[0].clone()).plan();
    kit.rack.break_down(Call::Unbind, Some("u1"), How::Overdue, 1);
    let executor = kit.executor();
    let id = executor.submit(submission(release)).await.unwrap();
    let held_up = |operation: &Operation| operation.state == OperationState::Indeterminate;
    until(&executor, &id, held_up).await;
    drop(executor);
    rewrite(
        &*kit.store,
        PlanRecord::KIND,
        id.as_str(),
        (r#""steps""#, r#""stairs""#),
    )
    .await;

    let executor = kit.executor();
    let recovered = executor.recover().await.unwrap();
    assert_eq!(recovered.unreadable[0].0, id);
    is_shown_and_keeps_nobody_waiting(&executor, &id, OperationKind::Apply).await;
    executor.resolve(&id, wish(ACCEPT)).await.unwrap();
    let gpu = kit.gpu("u1").await;
    assert_eq!(gpu.state, GpuState::Bound);
    assert!(gpu.composition.is_some() && gpu.host_port.is_some(), "{gpu:?}");
    assert_eq!(kit.compositions().await.len(), 1);
}
