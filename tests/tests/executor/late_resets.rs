//! Resets that come after their deadline: a unit goes to nobody while one may still hit it.

use crate::kit::{Kit, ended, is_claimed, submission, until};
use crate::plans::{Draft, attach, composition, release};
use crate::rack::{Call, How};
use poolwright_driver::TaskSeen;
use poolwright_executor::{Executor, Operation, OperationState, StepState};
use poolwright_model::id::OperationId;
use std::time::Duration;
use tokio::time::Instant;

fn is_held(operation: &Operation) -> bool {
    operation.state == OperationState::Indeterminate
}

/// A release whose first resets go wrong, so many of them, as far as it is held because of that.
async fn held_release(kit: &Kit, executor: &Executor, how: How, times: u32) -> OperationId {
    kit.given(attach()).await;
    kit.rack.break_down(Call::Reset, Some("u1"), how, times);
    let id = executor.submit(submission(release())).await.unwrap();
    let held = until(executor, &id, is_held).await;
    assert!(
        held.error().unwrap().contains("reset of u1"),
        "{:?}",
        held.error()
    );
    id
}

/// It is held, and nobody is given the GPU.
async fn goes_to_nobody(kit: &Kit, executor: &Executor, id: &OperationId) {
    assert!(is_held(&executor.get(id).await.unwrap().unwrap()));
    let rival = Draft::new("rival")
        .compose(composition("b", "red", "h2", &["u1"]))
        .plan();
    let error = executor.submit(submission(rival)).await.unwrap_err();
    assert!(is_claimed(&error), "{error}");
    assert!(kit.rack.ports_of("u1").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_reset_without_an_answer_is_waited_out_before_it_is_asked_for_again() {
    let kit = Kit::new();
    let executor = kit.executor();
    let id = held_release(&kit, &executor, How::LostBefore, 1).await;
    tokio::time::sleep(kit.options.late - Duration::from_secs(1)).await;
    goes_to_nobody(&kit, &executor, &id).await;
    assert_eq!(kit.rack.times_asked(Call::Reset, "u1"), 1);
    kit.rack.reset_arrives("u1");
    let done = ended(&executor, &id).await;
    assert_eq!(done.state, OperationState::Completed, "{:?}", done.error());
    assert_eq!(kit.rack.times_asked(Call::Reset, "u1"), 2);
    assert!(kit.gpu("u1").await.clean);
    kit.all_is_well().await;
}

/// The same GPU for the same tenant, at once: nothing may hit it any more.
#[tokio::test(start_paused = true)]
async fn no_answer_twice_leaves_it_dirty_once_none_can_come() {
    let kit = Kit::new();
    let executor = kit.executor();
    let id = held_release(&kit, &executor, How::LostBefore, 2).await;
    let began = Instant::now();
    let done = ended(&executor, &id).await;
    assert!(began.elapsed() >= kit.options.late * 2, "{:?}", began.elapsed());
    assert_eq!(done.state, OperationState::Completed, "{:?}", done.error());
    let reset = done.steps.last().unwrap();
    assert_eq!((reset.state, reset.attempts), (StepState::Done, 2));
    let evidence = reset.evidence.as_ref().unwrap();
    assert!(evidence.starts_with("not reset:"), "{evidence}");
    assert_eq!(kit.gpu("u1").await.state.name(), "dirty");
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_reset_that_goes_on_as_a_task_is_waited_for() {
    let kit = Kit::new();
    let executor = kit.executor();
    let id = held_release(&kit, &executor, How::Overdue, 1).await;
    tokio::time::sleep(Duration::from_secs(4 * 3600)).await;
    goes_to_nobody(&kit, &executor, &id).await;
    let held = executor.get(&id).await.unwrap().unwrap();
    assert!(
        held.waits()[0].contains("task /tasks/u1 goes on"),
        "{:?}",
        held.waits()
    );
    assert_eq!(kit.rack.times_asked(Call::Reset, "u1"), 1);
    kit.rack.reset_arrives("u1");
    kit.rack.end_task("u1", TaskSeen::Done, None);
    assert_eq!(ended(&executor, &id).await.state, OperationState::Completed);
    assert!(kit.gpu("u1").await.clean);
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_before_a_crash_is_waited_out() {
    let kit = Kit::new();
    kit.given(attach()).await;
    kit.rack.break_down(Call::Reset, Some("u1"), How::HangBefore, 1);
    let executor = kit.executor();
    let id = executor.submit(submission(release())).await.unwrap();
    kit.rack.hangs.notified().await;
    drop(executor);
    let restarted = Instant::now();
    let executor = kit.executor();
    executor.recover().await.unwrap();
    until(&executor, &id, is_held).await;
    tokio::time::sleep(kit.options.longest_hold() - Duration::from_secs(1)).await;
    goes_to_nobody(&kit, &executor, &id).await;
    kit.rack.reset_arrives("u1");
    let done = ended(&executor, &id).await;
    assert_eq!(done.state, OperationState::Completed, "{:?}", done.error());
    assert!(restarted.elapsed() >= kit.options.longest_hold());
    assert_eq!(kit.rack.times_asked(Call::Reset, "u1"), 2);
    kit.all_is_well().await;
}

/// It is bound again, but not before.
#[tokio::test(start_paused = true)]
async fn what_is_cancelled_meanwhile_is_undone_after_it() {
    let kit = Kit::new();
    let executor = kit.executor();
    let id = held_release(&kit, &executor, How::LostBefore, 1).await;
    executor.cancel(&id, "tester", "").await.unwrap();
    tokio::time::sleep(kit.options.late - Duration::from_secs(1)).await;
    goes_to_nobody(&kit, &executor, &id).await;
    kit.rack.reset_arrives("u1");
    let done = ended(&executor, &id).await;
    assert_eq!(done.state, OperationState::Cancelled, "{:?}", done.error());
    assert_eq!(kit.rack.ports_of("u1"), ["h1/p0"]);
    kit.all_is_well().await;
}

/// A unit that is given back is reset beside the steps; that is in the journal too.
#[tokio::test(start_paused = true)]
async fn the_reset_of_what_is_given_back_is_waited_out_across_a_crash() {
    for how in [How::LostBefore, How::HangBefore, How::Overdue] {
        let kit = Kit::new();
        kit.rack.hide("u1");
        kit.rack.break_down(Call::Reset, Some("u1"), how, 1);
        let executor = kit.executor();
        let id = executor.submit(submission(attach())).await.unwrap();
        match how {
            How::HangBefore => kit.rack.hangs.notified().await,
            _ => drop(until(&executor, &id, is_held).await),
        }
        drop(executor);
        let executor = kit.executor();
        executor.recover().await.unwrap();
        until(&executor, &id, is_held).await;
        tokio::time::sleep(kit.options.longest_hold() - Duration::from_secs(1)).await;
        goes_to_nobody(&kit, &executor, &id).await;
        assert_eq!(kit.rack.times_asked(Call::Reset, "u1"), 1, "{how:?}");
        kit.rack.reset_arrives("u1");
        kit.rack.end_task("u1", TaskSeen::Done, None);
        let done = ended(&executor, &id).await;
        assert_eq!(
            done.state,
            OperationState::RolledBack,
            "{how:?}: {:?}",
            done.error()
        );
        assert_eq!(kit.rack.times_asked(Call::Reset, "u1"), 2, "{how:?}");
        assert!(kit.gpu("u1").await.clean);
        kit.all_is_well().await;
    }
}
