//! The host's side: a GPU in use is not pulled, and a host that can't tell is no obstacle.

use crate::kit::{Kit, attached_while, run, submission};
use crate::plans::{attach, release};
use crate::rack::{Call, How, Rack};
use poolwright_executor::{OperationState, StepState};
use poolwright_model::step::Verb;

/// The host keeps u1: it was not unbound, and a drain was taken back.
async fn stays_attached(kit: &Kit) {
    assert!(!kit.rack.is_drained("u1"));
    assert_eq!(kit.rack.times_asked(Call::Unbind, "u1"), 0);
    assert_eq!(kit.gpu("u1").await.state.name(), "attached");
    kit.all_is_well().await;
}

/// Fault 47: refused, with process and command.
#[tokio::test(start_paused = true)]
async fn a_gpu_in_use_is_not_pulled_and_the_answer_names_who_holds_it() {
    let kit = Kit::new();
    kit.given(attach()).await;
    kit.rack.hold("u1", "python3 train.py");
    let done = run(&kit.executor(), release()).await;
    assert_eq!(done.state, OperationState::RolledBack);
    let error = done.error().unwrap();
    assert!(error.contains("python3 train.py (process 4711)"), "{error}");
    stays_attached(&kit).await;
}

/// What a host has confirmed holds where the drain has changed nothing, also where that host says nothing more.
#[tokio::test(start_paused = true)]
async fn a_gpu_whose_host_refuses_and_falls_silent_is_attached_as_before() {
    let kit = Kit::new();
    kit.given(attach()).await;
    kit.rack.hold("u1", "python3 train.py");
    kit.rack.break_down(Call::Verify, None, How::LostBefore, 1000);
    let done = run(&kit.executor(), release()).await;
    assert_eq!(done.state, OperationState::RolledBack);
    stays_attached(&kit).await;
}

/// One that no host has confirmed is not attached for having been refused.
#[tokio::test(start_paused = true)]
async fn a_gpu_that_no_host_confirmed_is_bound_as_before_where_its_host_refuses() {
    let kit = Kit::new();
    kit.rack.break_down(Call::Verify, None, How::CannotTell, 1);
    kit.given(attach()).await;
    assert_eq!(kit.gpu("u1").await.state.name(), "bound");
    kit.rack.hold("u1", "python3 train.py");
    let done = run(&kit.executor(), release()).await;
    assert_eq!(done.state, OperationState::RolledBack);
    assert_eq!(kit.gpu("u1").await.state.name(), "bound");
    kit.all_is_well().await;
}

/// The host stops new work first: who uses a GPU is asked after that, and again once it is to be unbound.
#[tokio::test(start_paused = true)]
async fn what_a_hook_of_the_host_ends_holds_nothing_up() {
    let kit = Kit::new();
    kit.given(attach()).await;
    kit.rack.hold("u1", "python3 train.py");
    kit.rack.end_work();
    let before = kit.rack.asked().len();
    kit.given(release()).await;
    let asked: Vec<_> = kit.rack.asked().split_off(before);
    let calls: Vec<_> = asked.into_iter().map(|(call, _)| call).collect();
    let place = |call| calls.iter().position(|other| *other == call).unwrap();
    assert!(place(Call::Drain) < place(Call::Holders), "{calls:?}");
    assert!(place(Call::Holders) < place(Call::Unbind), "{calls:?}");
    kit.all_is_well().await;
}

/// Fault 47: forced, with a reason.
#[tokio::test(start_paused = true)]
async fn with_a_reason_it_is_pulled_all_the_same() {
    let kit = Kit::new();
    kit.given(attach()).await;
    kit.rack.hold("u1", "python3 train.py");
    let executor = kit.executor();
    let mut forced = submission(release());
    forced.force = Some("the host is on fire".to_owned());
    let id = executor.submit(forced).await.unwrap();
    let done = crate::kit::ended(&executor, &id).await;
    assert_eq!(done.state, OperationState::Completed);
    assert_eq!(done.force.as_deref(), Some("the host is on fire"));
}

/// Fault 46: forced, with a reason.
#[tokio::test(start_paused = true)]
async fn with_a_reason_it_is_pulled_from_a_host_that_does_not_let_go() {
    for how in [How::Refuse, How::HangBefore] {
        let kit = Kit::new();
        kit.given(attach()).await;
        kit.rack.break_down(Call::Drain, None, how, 100);
        let done = run(&kit.executor(), release()).await;
        assert_eq!(done.state, OperationState::RolledBack, "not by itself");
        let executor = kit.executor();
        let mut forced = submission(release());
        forced.id = "op-forced".parse().unwrap();
        forced.plan.id = "forced".parse().unwrap();
        forced.force = Some("the host hangs".to_owned());
        let id = executor.submit(forced).await.unwrap();
        let done = crate::kit::ended(&executor, &id).await;
        assert_eq!(done.state, OperationState::Completed, "{:?}", done.error());
        let evidence = done.steps[0].evidence.as_deref().unwrap();
        assert!(evidence.starts_with("forced, without the host"), "{evidence}");
    }
}

#[tokio::test(start_paused = true)]
async fn somebody_who_came_during_the_drain_is_noticed() {
    let kit = Kit::new();
    kit.given(attach()).await;
    let executor = kit.executor();
    // The drain takes two tries; in between somebody opens the GPU.
    kit.rack.break_down(Call::Drain, None, How::HangAfter, 1);
    let id = executor.submit(submission(release())).await.unwrap();
    crate::kit::until(&executor, &id, |operation| {
        operation.steps[0].state == StepState::Running
    })
    .await;
    kit.rack.hold("u1", "nvidia-persistenced");
    let done = crate::kit::ended(&executor, &id).await;
    assert_eq!(done.state, OperationState::RolledBack, "{:?}", done.error());
    assert!(done.error().unwrap().contains("nvidia-persistenced"));
    stays_attached(&kit).await;
}

/// Fault 46: nothing is unbound.
#[tokio::test(start_paused = true)]
async fn a_host_that_does_not_answer_keeps_its_gpu() {
    let kit = Kit::new();
    kit.given(attach()).await;
    kit.rack.break_down(Call::Drain, None, How::HangBefore, 2);
    let done = run(&kit.executor(), release()).await;
    assert_eq!(done.state, OperationState::RolledBack);
    assert_eq!(kit.rack.times_asked(Call::Unbind, "u1"), 0);
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_host_side_the_evidence_is_the_fabric_alone() {
    let kit = Kit::with(Rack::without_host_side());
    kit.given(attach()).await;
    let evidence = kit.compositions().await["a"]
        .evidence
        .values()
        .next()
        .unwrap()
        .clone();
    assert!(evidence.starts_with("fabric alone"), "{evidence}");
    assert_eq!(
        kit.gpu("u1").await.state.name(),
        "bound",
        "not attached: no host confirmed it"
    );
    kit.given(release()).await;
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn where_the_fabric_alone_is_not_enough_it_is_undone() {
    let mut kit = Kit::with(Rack::without_host_side());
    kit.options.accept_fabric_alone = false;
    let done = run(&kit.executor(), attach()).await;
    assert_eq!(done.state, OperationState::RolledBack);
    assert!(
        done.error().unwrap().contains("alone is not accepted"),
        "{:?}",
        done.error()
    );
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_sees_the_gpu_late_is_waited_for_but_not_forever() {
    let kit = Kit::new();
    let executor = kit.executor();
    kit.rack.hide("u1");
    let id = executor.submit(submission(attach())).await.unwrap();
    let waiting = crate::kit::until(&executor, &id, |operation| {
        operation.waits().iter().any(|wait| wait.contains("h1 to see u1"))
    })
    .await;
    assert_eq!(waiting.state, OperationState::Running);
    kit.rack.unhide_all();
    let done = crate::kit::ended(&executor, &id).await;
    assert_eq!(done.state, OperationState::Completed);
    kit.given(release()).await;

    kit.rack.hide("u1");
    let mut late = attach();
    late.id = "late".parse().unwrap();
    let done = run(&executor, late).await;
    assert_eq!(done.state, OperationState::RolledBack);
    assert!(
        done.error().unwrap().contains("not within 180 s"),
        "{:?}",
        done.error()
    );
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_bmc_that_cannot_tell_anything_is_no_obstacle() {
    let kit = Kit::new();
    for call in [Call::Preflight, Call::Verify, Call::Holders, Call::Drain] {
        kit.rack.break_down(call, None, How::CannotTell, 100);
    }
    kit.given(attach()).await;
    let released = run(&kit.executor(), release()).await;
    assert_eq!(
        released.state,
        OperationState::Completed,
        "{:?}",
        released.error()
    );
    kit.all_is_well().await;

    // What the host could not be made to do is not shown as done, for good.
    let drains = released
        .steps
        .iter()
        .filter(|record| record.step.verb == Verb::Drain);
    let told: Vec<_> = drains
        .map(|record| (record.state, record.evidence.clone().unwrap()))
        .collect();
    assert!(!told.is_empty());
    for (state, evidence) in told {
        assert_eq!(state, StepState::NotPossible);
        assert!(evidence.starts_with("not drained: "), "{evidence}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_was_not_possible_is_no_obstacle_to_going_back() {
    let kit = Kit::new();
    kit.given(attach()).await;
    kit.rack.break_down(Call::Drain, None, How::CannotTell, 100);
    kit.rack.break_down(Call::Unbind, None, How::Refuse, 100);
    let done = run(&kit.executor(), release()).await;
    assert_eq!(done.state, OperationState::RolledBack, "{:?}", done.error());
    kit.all_is_well().await;
}

/// Fault 49: the host says so before anything is bound.
#[tokio::test(start_paused = true)]
async fn no_room_is_told_before_anything_is_bound() {
    let (kit, done) = attached_while(Call::Preflight, How::Lie, 1).await;
    assert_eq!(done.state, OperationState::RolledBack);
    assert!(
        done.error().unwrap().contains("no free slot"),
        "{:?}",
        done.error()
    );
    assert_eq!(kit.rack.times_asked(Call::Bind, "u1"), 0);
}

/// Fault 48: what it let go of before it started it has again, so it is made to let go once more before the unbind.
#[tokio::test(start_paused = true)]
async fn a_host_that_started_again_after_it_let_go_lets_go_once_more() {
    let kit = Kit::new();
    kit.given(attach()).await;
    kit.rack.start_again_after_drains(1);
    kit.given(release()).await;
    assert_eq!(kit.rack.times_asked(Call::Drain, "u1"), 2);
    assert_eq!(kit.rack.times_asked(Call::Unbind, "u1"), 1);
    kit.all_is_well().await;
}

/// Fault 48: and if it does not let go then, it keeps its GPU.
#[tokio::test(start_paused = true)]
async fn a_host_that_started_again_and_does_not_let_go_keeps_its_gpu() {
    for how in [How::Refuse, How::HangBefore, How::LostAfter] {
        let kit = Kit::new();
        kit.given(attach()).await;
        kit.rack.start_again_after_drains(1);
        kit.rack.break_down_after(1, Call::Drain, None, how, 100);
        let done = run(&kit.executor(), release()).await;
        assert_eq!(done.state, OperationState::RolledBack, "{how:?}");
        assert_eq!(kit.rack.times_asked(Call::Unbind, "u1"), 0, "{how:?}");
        let error = done.error().unwrap_or_default();
        assert!(error.contains("does not let go"), "{how:?}: {error}");
        kit.all_is_well().await;
    }
}

/// Fault 48: forced away all the same, nobody knows what it was left at.
#[tokio::test(start_paused = true)]
async fn what_a_host_that_started_again_left_and_does_not_say_is_not_taken_for_nothing() {
    let kit = Kit::new();
    kit.given(attach()).await;
    kit.rack.start_again_after_drains(1);
    kit.rack.break_down_after(1, Call::Drain, None, How::Refuse, 100);
    let mut forced = submission(release());
    forced.force = Some("the host is on fire".to_owned());
    let executor = kit.executor();
    let id = executor.submit(forced).await.unwrap();
    let done = crate::kit::ended(&executor, &id).await;
    assert_eq!(done.state, OperationState::Completed, "{:?}", done.error());
    let left = kit.gpu("u1").await.left.join("; ");
    assert!(
        left.starts_with("its host does not say what it was left at: h1 does not let go"),
        "{left}"
    );
}

/// Fault 48: it is seen under the start that runs, and that it is another one is told.
#[tokio::test(start_paused = true)]
async fn a_host_that_starts_in_the_middle_of_an_attach_is_told_of() {
    for comes in [true, false] {
        let kit = Kit::new();
        let executor = kit.executor();
        kit.rack.hide("u1");
        let id = executor.submit(submission(attach())).await.unwrap();
        crate::kit::until(&executor, &id, |operation| {
            operation.waits().iter().any(|wait| wait.contains("h1 to see u1"))
        })
        .await;
        kit.rack.start_again();
        if comes {
            kit.rack.unhide_all();
        }
        let done = crate::kit::ended(&executor, &id).await;
        let told = match comes {
            true => done.steps[2].evidence.clone().unwrap(),
            false => done.error().unwrap(),
        };
        assert!(
            told.contains("h1 has started again since it was asked for room"),
            "{told}"
        );
        assert_eq!(
            done.state == OperationState::Completed,
            comes,
            "{:?}",
            done.error()
        );
        kit.all_is_well().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_is_told_the_number_of_the_lease_under_which_it_is_to_let_go() {
    let mut kit = Kit::new();
    kit.share().await;
    kit.given(attach()).await;
    kit.given(release()).await;
    assert_eq!(kit.rack.epoch(), Some(1));
    let mut again = attach();
    again.id = "again".parse().unwrap();
    kit.given(again).await;
    kit.taken_over().await;
    let mut after = release();
    after.id = "after".parse().unwrap();
    kit.given(after).await;
    assert_eq!(kit.rack.epoch(), Some(2), "that of the manager in charge now");
    kit.all_is_well().await;
}
