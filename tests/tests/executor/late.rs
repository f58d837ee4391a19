//! Requests that come true after their deadline: nothing is called free or failed while they may.

use crate::kit::{Kit, ended, submission, until};
use crate::plans::{Draft, attach, composition, release};
use crate::rack::{Call, How};
use poolwright_driver::TaskSeen;
use poolwright_executor::{Executor, Operation, OperationState, StepState};
use poolwright_model::id::OperationId;
use std::time::Duration;
use tokio::time::Instant;

fn failed() -> TaskSeen {
    TaskSeen::Failed {
        reason: "Exception: no lanes".to_owned(),
    }
}

/// Long after everything that is waited for without a task.
const LONG: Duration = Duration::from_secs(4 * 3600);

/// An attach whose bind was taken on as a task, and is held because of it.
async fn overdue(kit: &Kit, executor: &Executor) -> OperationId {
    kit.rack.break_down(Call::Bind, Some("u1"), How::Overdue, 1);
    let id = executor.submit(submission(attach())).await.unwrap();
    let held = until(executor, &id, is_held).await;
    let error = held.error().unwrap();
    assert!(
        error.contains("task /tasks/u1 goes on (Running, 40 %)"),
        "{error}"
    );
    id
}

fn is_held(operation: &Operation) -> bool {
    operation.state == OperationState::Indeterminate
}

/// However long: it is held, and nobody else gets the GPU.
async fn is_still_held(kit: &Kit, executor: &Executor, id: &OperationId) {
    tokio::time::sleep(LONG).await;
    assert!(is_held(&executor.get(id).await.unwrap().unwrap()));
    assert_eq!(kit.gpu("u1").await.state.name(), "indeterminate");
    let rival = Draft::new("rival")
        .compose(composition("b", "red", "h2", &["u1"]))
        .plan();
    let error = executor.submit(submission(rival)).await.unwrap_err();
    assert!(crate::kit::is_claimed(&error), "{error}");
}

/// Fault 15: held for as long as the task goes on.
#[tokio::test(start_paused = true)]
async fn a_bind_that_comes_long_after_its_deadline_is_waited_for() {
    let kit = Kit::new();
    let executor = kit.executor();
    let id = overdue(&kit, &executor).await;
    is_still_held(&kit, &executor, &id).await;
    let looks = kit.rack.times_asked(Call::Task, "/tasks/u1");
    assert!(looks < 300, "{looks} looks: the pauses grow");
    // The effect comes before the task says that it has ended.
    kit.rack.rebind("u1", &["h1/p0"]);
    let done = ended(&executor, &id).await;
    assert_eq!(done.state, OperationState::Completed, "{:?}", done.error());
    assert_eq!(kit.rack.times_asked(Call::Bind, "u1"), 1);
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn an_unbind_that_comes_late_is_waited_for_too() {
    let kit = Kit::new();
    kit.given(attach()).await;
    let executor = kit.executor();
    kit.rack.break_down(Call::Unbind, Some("u1"), How::Overdue, 1);
    let id = executor.submit(submission(release())).await.unwrap();
    until(&executor, &id, is_held).await;
    is_still_held(&kit, &executor, &id).await;
    kit.rack.end_task("u1", TaskSeen::Done, Some(&[]));
    assert_eq!(ended(&executor, &id).await.state, OperationState::Completed);
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_fails_is_asked_for_once_more_and_then_undone() {
    let kit = Kit::new();
    let executor = kit.executor();
    let id = overdue(&kit, &executor).await;
    kit.rack.break_down(Call::Bind, Some("u1"), How::Overdue, 1);
    kit.rack.end_task("u1", failed(), None);
    let again = |operation: &Operation| is_held(operation) && operation.steps[1].attempts == 2;
    until(&executor, &id, again).await;
    kit.rack.end_task("u1", failed(), None);
    let done = ended(&executor, &id).await;
    assert_eq!(done.state, OperationState::RolledBack);
    assert!(done.error().unwrap().contains("no lanes"), "{:?}", done.error());
    assert_eq!(kit.rack.times_asked(Call::Bind, "u1"), 2);
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_gone_is_read_back() {
    for came_true in [true, false] {
        let kit = Kit::new();
        let executor = kit.executor();
        let id = overdue(&kit, &executor).await;
        kit.rack.break_down(Call::Bind, Some("u1"), How::Refuse, 9);
        kit.rack.end_task("u1", TaskSeen::Gone, None);
        if came_true {
            // Shortly after the service has forgotten it.
            tokio::time::sleep(Duration::from_secs(10)).await;
            kit.rack.rebind("u1", &["h1/p0"]);
        }
        let done = ended(&executor, &id).await;
        let end = if came_true {
            OperationState::Completed
        } else {
            OperationState::RolledBack
        };
        assert_eq!(done.state, end, "{:?}", done.error());
        kit.all_is_well().await;
    }
}

/// Fault 16: a task says that it is done.
#[tokio::test(start_paused = true)]
async fn a_task_that_lies_is_caught() {
    let kit = Kit::new();
    let executor = kit.executor();
    let id = overdue(&kit, &executor).await;
    kit.rack.end_task("u1", TaskSeen::Done, None);
    let done = ended(&executor, &id).await;
    assert_eq!(done.state, OperationState::RolledBack);
    let error = done.error().unwrap();
    assert!(error.contains("said that it is done, and it is not"), "{error}");
    kit.all_is_well().await;
}

/// Cancelled: the undo has nothing to do yet, and knows that it may.
#[tokio::test(start_paused = true)]
async fn a_cancelled_bind_is_undone_when_it_comes() {
    for end in [TaskSeen::Done, failed()] {
        let kit = Kit::new();
        let executor = kit.executor();
        let id = overdue(&kit, &executor).await;
        executor.cancel(&id, "me", "too slow").await.unwrap();
        is_still_held(&kit, &executor, &id).await;
        let came_true = end == TaskSeen::Done;
        kit.rack
            .end_task("u1", end, came_true.then_some(&["h1/p0"] as &[&str]));
        let done = ended(&executor, &id).await;
        assert_eq!(done.state, OperationState::Cancelled, "{:?}", done.error());
        let unbinds = kit.rack.times_asked(Call::Unbind, "u1");
        assert_eq!(unbinds, usize::from(came_true));
        assert!(kit.rack.ports_of("u1").is_empty());
        kit.all_is_well().await;
    }
}

/// Fault 15: and after a restart too.
#[tokio::test(start_paused = true)]
async fn after_a_restart_it_is_still_waited_for() {
    for cancelled in [false, true] {
        let kit = Kit::new();
        let executor = kit.executor();
        let id = overdue(&kit, &executor).await;
        if cancelled {
            executor.cancel(&id, "me", "too slow").await.unwrap();
        }
        drop(executor);
        let executor = kit.executor();
        executor.recover().await.unwrap();
        is_still_held(&kit, &executor, &id).await;
        kit.rack.end_task("u1", TaskSeen::Done, Some(&["h1/p0"]));
        let done = ended(&executor, &id).await;
        let (end, ports) = match cancelled {
            true => (OperationState::Cancelled, vec![]),
            false => (OperationState::Completed, vec!["h1/p0"]),
        };
        assert_eq!(done.state, end, "{:?}", done.error());
        assert_eq!(kit.rack.ports_of("u1"), ports);
        kit.all_is_well().await;
    }
}

/// A manager that dies while a slow service works at its bind: what comes true after that is still waited for, be
/// the bind wanted or taken back.
#[tokio::test(start_paused = true)]
async fn a_bind_that_was_on_its_way_at_a_crash_is_waited_for_as_long_as_it_would_have_been() {
    for cancelled in [false, true] {
        let kit = Kit::new();
        let executor = kit.executor();
        let id = executor.submit(submission(attach())).await.unwrap();
        let is_sent = async || {
            let operation = executor.get(&id).await.unwrap().unwrap();
            operation.steps[1].state == StepState::Running
        };
        while !is_sent().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(executor);
        let executor = kit.executor();
        executor.recover().await.unwrap();
        until(&executor, &id, is_held).await;
        if cancelled {
            executor.cancel(&id, "me", "no").await.unwrap();
        }
        tokio::time::sleep(kit.options.act_deadline).await;
        assert!(is_held(&executor.get(&id).await.unwrap().unwrap()));
        kit.rack.rebind("u1", &["h1/p0"]);
        let done = ended(&executor, &id).await;
        let end = match cancelled {
            true => OperationState::Cancelled,
            false => OperationState::Completed,
        };
        assert_eq!(done.state, end, "{:?}", done.error());
        assert_eq!(
            kit.rack.times_asked(Call::Bind, "u1"),
            0,
            "it is not asked for again"
        );
        kit.all_is_well().await;
    }
}

/// What a crash leaves unknown is known with the first read where it has come true, and else once it can't come true
/// any more: after 80 s, which the guide promises.
#[tokio::test(start_paused = true)]
async fn what_a_crash_leaves_unknown_is_held_no_longer_than_it_may_come_true() {
    for (how, came_true) in [(How::HangAfter, true), (How::HangBefore, false)] {
        let kit = Kit::new();
        kit.rack.break_down(Call::Bind, Some("u1"), how, 1);
        let executor = kit.executor();
        let id = executor.submit(submission(attach())).await.unwrap();
        kit.rack.hangs.notified().await;
        drop(executor);
        let restarted = Instant::now();
        let executor = kit.executor();
        executor.recover().await.unwrap();
        let done = ended(&executor, &id).await;
        assert_eq!(done.state, OperationState::Completed, "{:?}", done.error());
        let took = restarted.elapsed();
        let longest = Duration::from_secs(80);
        assert_eq!(kit.options.longest_hold(), longest);
        match came_true {
            true => assert!(took < Duration::from_secs(5), "{took:?}"),
            // A pause between two reads, at most, is added.
            false => assert!(
                (longest..longest + Duration::from_secs(5)).contains(&took),
                "{took:?}"
            ),
        }
        assert_eq!(
            kit.rack.times_asked(Call::Bind, "u1"),
            if came_true { 1 } else { 2 }
        );
        kit.all_is_well().await;
    }
}

/// No task tells: it is held for as long as a lost request may take.
#[tokio::test(start_paused = true)]
async fn a_lost_request_is_held_for_a_while() {
    let kit = Kit::new();
    kit.rack.break_down(Call::Bind, Some("u1"), How::LostBefore, 1);
    let executor = kit.executor();
    let id = executor.submit(submission(attach())).await.unwrap();
    until(&executor, &id, is_held).await;
    executor.cancel(&id, "me", "no").await.unwrap();
    // Longer than a fabric takes to show what it did, shorter than a lost request may take.
    tokio::time::sleep(kit.options.settle * 2).await;
    assert!(is_held(&executor.get(&id).await.unwrap().unwrap()));
    kit.rack.rebind("u1", &["h1/p0"]);
    let done = ended(&executor, &id).await;
    assert_eq!(done.state, OperationState::Cancelled, "{:?}", done.error());
    assert_eq!(kit.rack.times_asked(Call::Bind, "u1"), 1);
    kit.all_is_well().await;
}

/// A task that can't be asked for proves nothing either.
#[tokio::test(start_paused = true)]
async fn a_task_that_is_not_told_of_is_waited_for() {
    let kit = Kit::new();
    let executor = kit.executor();
    let id = overdue(&kit, &executor).await;
    kit.rack.break_down(Call::Task, None, How::Refuse, u32::MAX);
    is_still_held(&kit, &executor, &id).await;
    let held = executor.get(&id).await.unwrap().unwrap();
    assert_eq!(held.steps[1].state, StepState::Indeterminate);
    assert!(held.waits()[0].contains("can't be read"), "{:?}", held.waits());
    kit.rack.mend();
    kit.rack.end_task("u1", TaskSeen::Done, Some(&["h1/p0"]));
    assert_eq!(ended(&executor, &id).await.state, OperationState::Completed);
    kit.all_is_well().await;
}
