//! Going on without what fails, where a part is better than nothing: what is left out, and when. That it is so at
//! every step, and after every crash, is swept ([`crate::sweep`], [`crate::crashes`]).

use crate::kit::{Kit, ended, submission, until};
use crate::plans::{Draft, composition};
use crate::rack::{Call, How};
use poolwright_executor::{
    CancelError, Executor, Operation, OperationState, Resolution, Resolve, StepState, Submission,
};
use poolwright_model::id::OperationId;
use poolwright_planner::Plan;

const FOUR: [&str; 4] = ["u1", "u2", "u3", "u4"];

fn compose() -> Plan {
    Draft::new("compose")
        .compose(composition("a", "red", "h1", &FOUR))
        .plan()
}

async fn begin(executor: &Executor, plan: Plan) -> OperationId {
    let in_part = Submission {
        partial_ok: true,
        ..submission(plan)
    };
    executor.submit(in_part).await.unwrap()
}

async fn run(kit: &Kit, plan: Plan) -> Operation {
    let executor = kit.executor();
    let id = begin(&executor, plan).await;
    ended(&executor, &id).await
}

fn left_out(operation: &Operation) -> Vec<String> {
    let units = operation.units_left_out();
    units.iter().map(ToString::to_string).collect()
}

fn state_of(operation: &Operation, unit: &str, nth: usize) -> StepState {
    let mut of_unit = operation
        .steps
        .iter()
        .filter(|record| record.step.target.unit.as_str() == unit);
    of_unit.nth(nth).unwrap().state
}

/// Fault 19: the others stay, and the operation says which is missing and why.
#[tokio::test(start_paused = true)]
async fn three_of_four_are_kept_and_the_fourth_is_named() {
    let kit = Kit::new();
    kit.rack.break_down(Call::Bind, Some("u3"), How::Refuse, 9);
    let done = run(&kit, compose()).await;
    assert_eq!(done.state, OperationState::Completed, "{:?}", done.error());
    assert!(done.is_partial());
    assert_eq!(left_out(&done), ["u3"]);
    let why = &done.left_out[0].why;
    assert!(why.contains("bind u3"), "{why}");
    assert!(done.error().unwrap().contains("without u3"), "{:?}", done.error());
    let composition = &kit.compositions().await["a"].composition;
    let held: Vec<_> = composition.held.iter().map(|held| held.unit.as_str()).collect();
    assert_eq!(held, ["u1", "u2", "u4"]);
    assert_eq!(kit.gpu("u3").await.state.name(), "free");
    kit.all_is_well().await;
    // After a restart it says the same.
    let again = kit.executor().get(&done.id).await.unwrap().unwrap();
    assert_eq!(again.left_out, done.left_out);
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_undone_at_once_and_not_after_the_others() {
    let kit = Kit::new();
    // One that is never seen by its host, and one that takes longer.
    kit.rack
        .break_down(Call::Verify, Some("u1"), How::Refuse, 100_000);
    let executor = kit.executor();
    let id = begin(&executor, compose()).await;
    let until_undone = until(&executor, &id, |operation| {
        if state_of(operation, "u1", 2) == StepState::Pending {
            kit.rack.hide("u2");
        }
        state_of(operation, "u1", 1) == StepState::Undone
    });
    let seen = until_undone.await;
    assert_eq!(seen.state, OperationState::Running, "the others go on");
    assert!(kit.rack.ports_of("u1").is_empty());
    kit.rack.unhide_all();
    let done = ended(&executor, &id).await;
    // Both looked for as long: the second may have been given up as well.
    assert!(done.is_partial() && left_out(&done).contains(&"u1".to_owned()));
    assert_eq!(kit.gpu("u1").await.state.name(), "free", "and clean again");
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_the_slot_of_one_that_stays_is_left_out_too() {
    let kit = Kit::new();
    let red = || composition("a", "red", "h1", &["u1", "u2"]);
    kit.given(Draft::new("before").compose(red()).plan()).await;
    let mut plan = Draft::new("change")
        .release(red())
        .compose(composition("b", "blue", "h1", &["u3", "u4"]))
        .plan();
    let step = |plan: &Plan, unit: &str, nth: usize| {
        let mut of_unit = plan.steps.iter().filter(|s| s.target.unit.as_str() == unit);
        of_unit.nth(nth).unwrap().index
    };
    // u3 comes into the slot of u1, and u4 into that of u2.
    for (goes, comes) in [("u1", "u3"), ("u2", "u4")] {
        let (unbind, preflight) = (step(&plan, goes, 1), step(&plan, comes, 0));
        plan.steps[preflight as usize].after = vec![unbind];
    }
    kit.rack.hold("u1", "train");
    let done = run(&kit, plan).await;
    assert!(done.is_partial(), "{:?}", done.error());
    assert_eq!(left_out(&done), ["u1", "u3"]);
    let whys: Vec<_> = done.left_out.iter().map(|left| left.why.as_str()).collect();
    assert!(whys.iter().all(|why| why.contains("in use on h1")), "{whys:?}");
    assert!(whys.iter().any(|why| why.contains("it waits for u1")), "{whys:?}");
    assert_eq!(kit.rack.times_asked(Call::Preflight, "u3"), 0);
    let compositions = kit.compositions().await;
    let held = |id: &str| compositions[id].composition.held[0].unit.to_string();
    assert_eq!((held("a"), held("b")), ("u1".to_owned(), "u4".to_owned()));
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_can_not_be_moved_stays_where_it_was() {
    let kit = Kit::new();
    let from = || composition("a", "red", "h1", &["u1", "u2"]);
    kit.given(Draft::new("before").compose(from()).plan()).await;
    kit.rack.break_down(Call::Bind, Some("u2"), How::Refuse, 1);
    let to = composition("b", "red", "h2", &["u1", "u2"]);
    let done = run(&kit, Draft::new("move").release(from()).compose(to).plan()).await;
    assert!(done.is_partial(), "{:?}", done.error());
    assert_eq!(kit.rack.ports_of("u1"), ["h2/p0"]);
    assert_eq!(kit.rack.ports_of("u2"), ["h1/p0"]);
    let compositions = kit.compositions().await;
    assert_eq!(compositions["a"].composition.gpu_count(), 1);
    assert_eq!(compositions["b"].composition.gpu_count(), 1);
    kit.all_is_well().await;
}

/// Nothing is no part.
#[tokio::test(start_paused = true)]
async fn where_none_is_left_it_is_rolled_back() {
    let kit = Kit::new();
    kit.rack.break_down(Call::Bind, None, How::Refuse, 9);
    let done = run(&kit, compose()).await;
    assert_eq!(done.state, OperationState::RolledBack);
    assert!(done.error().unwrap().contains("bind u"), "{:?}", done.error());
    assert!(kit.compositions().await.is_empty());
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancel_undoes_what_was_kept_as_well() {
    let kit = Kit::new();
    kit.rack.break_down(Call::Bind, Some("u3"), How::Refuse, 1);
    kit.rack.hide("u1");
    let executor = kit.executor();
    let id = begin(&executor, compose()).await;
    until(&executor, &id, |operation| {
        !operation.left_out.is_empty() && state_of(operation, "u2", 2) == StepState::Done
    })
    .await;
    executor.cancel(&id, "operator", "").await.unwrap();
    let done = ended(&executor, &id).await;
    assert_eq!(done.state, OperationState::Cancelled);
    assert!(!done.is_partial());
    assert!(kit.rack.bindings().is_empty());
    kit.all_is_well().await;
}

/// Fault 5: also where only a part is undone. The rest is done first, and stands once the undo works.
#[tokio::test(start_paused = true)]
async fn an_undo_of_what_is_left_out_that_fails_is_held_for_an_operator() {
    for retry in [true, false] {
        let kit = Kit::new();
        kit.rack
            .break_down(Call::Verify, Some("u4"), How::Refuse, 100_000);
        kit.rack
            .break_down(Call::Unbind, Some("u4"), How::Refuse, 100_000);
        let executor = kit.executor();
        let id = begin(&executor, compose()).await;
        let held = ended(&executor, &id).await;
        assert_eq!(held.state, OperationState::Quarantined);
        assert_eq!(state_of(&held, "u2", 2), StepState::Done, "the rest was done");
        assert_eq!(kit.gpu("u4").await.state.name(), "quarantined");
        let error = executor.cancel(&id, "operator", "").await.unwrap_err();
        assert!(matches!(error, CancelError::TooLate { .. }), "{error}");
        if retry {
            kit.rack.mend();
        }
        let wish = Resolve {
            resolution: match retry {
                true => Resolution::Retry,
                false => Resolution::Accept { unreadable: None },
            },
            by: "operator".to_owned(),
            reason: "looked".to_owned(),
        };
        executor.resolve(&id, wish).await.unwrap();
        let done = ended(&executor, &id).await;
        match retry {
            true => assert!(done.is_partial(), "{:?}", done.error()),
            false => assert_eq!(done.state, OperationState::Failed),
        }
        // What an operator accepts as it is has all four; else the fourth is free.
        let kept = if retry { 3 } else { 4 };
        assert_eq!(kit.compositions().await["a"].composition.gpu_count(), kept);
        kit.all_is_well().await;
    }
}
