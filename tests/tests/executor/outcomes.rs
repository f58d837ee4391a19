//! Unknown outcomes: read back, never guessed, never resent blindly.

use crate::kit::{Kit, attached_while, run, submission, until};
use crate::plans::{Draft, attach, composition, release};
use crate::rack::{Call, How};
use poolwright_executor::{OperationState, StepState};

/// Fault 14: read back, and not asked again.
#[tokio::test(start_paused = true)]
async fn no_answer_but_done_goes_on_without_asking_twice() {
    for how in [How::LostAfter, How::HangAfter] {
        let (kit, done) = attached_while(Call::Bind, how, 1).await;
        assert_eq!(done.state, OperationState::Completed, "{how:?}");
        assert_eq!(kit.rack.times_asked(Call::Bind, "u1"), 1, "{how:?}");
        kit.rack.break_down(Call::Unbind, None, how, 1);
        let done = run(&kit.executor(), release()).await;
        assert_eq!(done.state, OperationState::Completed, "{how:?}");
        assert_eq!(kit.rack.times_asked(Call::Unbind, "u1"), 1, "{how:?}");
        kit.all_is_well().await;
    }
}

/// Fault 13: read back, and asked once more.
#[tokio::test(start_paused = true)]
async fn no_answer_and_not_done_is_asked_once_more() {
    for how in [How::LostBefore, How::HangBefore] {
        let (kit, done) = attached_while(Call::Bind, how, 1).await;
        assert_eq!(done.state, OperationState::Completed, "{how:?}");
        assert_eq!(kit.rack.times_asked(Call::Bind, "u1"), 2, "{how:?}");
        assert_eq!(done.steps[1].attempts, 2);
        kit.all_is_well().await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_answer_twice_is_a_failure() {
    let (kit, done) = attached_while(Call::Bind, How::LostBefore, 9).await;
    assert_eq!(done.state, OperationState::RolledBack);
    assert_eq!(kit.rack.times_asked(Call::Bind, "u1"), 2);
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_has_its_effect_late_is_undone() {
    let kit = Kit::new();
    kit.rack.break_down(Call::Bind, Some("u1"), How::LostBefore, 2);
    // Something else takes long, so that the late effect comes before the undo.
    kit.rack.break_down(Call::Bind, Some("u2"), How::HangAfter, 1);
    let executor = kit.executor();
    let plan = Draft::new("p")
        .compose(composition("a", "red", "h1", &["u1"]))
        .compose(composition("b", "red", "h2", &["u2"]))
        .plan();
    let id = executor.submit(submission(plan)).await.unwrap();
    until(&executor, &id, |operation| {
        operation.steps[1].state == StepState::Failed
    })
    .await;
    kit.rack.rebind("u1", &["h1/p0"]);
    let done = crate::kit::ended(&executor, &id).await;
    assert_eq!(done.state, OperationState::RolledBack, "{:?}", done.error());
    assert!(kit.rack.ports_of("u1").is_empty());
    kit.all_is_well().await;
}

/// Fault 16: the read-back tells.
#[tokio::test(start_paused = true)]
async fn says_yes_and_does_nothing_is_caught() {
    let (kit, done) = attached_while(Call::Bind, How::Lie, 1).await;
    assert_eq!(done.state, OperationState::RolledBack);
    let stop = done.stop.unwrap().message;
    assert!(stop.contains("said that it is done, and it is not"), "{stop}");
    assert_eq!(
        kit.rack.times_asked(Call::Bind, "u1"),
        1,
        "a liar is not asked again"
    );
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_cannot_be_read_is_held_until_it_can() {
    let kit = Kit::new();
    kit.rack.break_down(Call::Bind, None, How::LostAfter, 1);
    let executor = kit.executor();
    let id = executor.submit(submission(attach())).await.unwrap();
    until(&executor, &id, |operation| {
        operation.steps[1].state == StepState::Running
    })
    .await;
    kit.rack.break_down(Call::Bound, None, How::LostBefore, u32::MAX);
    let held = until(&executor, &id, |operation| {
        operation.state == OperationState::Indeterminate
    })
    .await;
    assert!(
        held.error().unwrap().contains("can't be read back"),
        "{:?}",
        held.error()
    );

    // A week later nothing has changed: time does not clear it.
    tokio::time::sleep(std::time::Duration::from_secs(7 * 86_400)).await;
    let held = executor.get(&id).await.unwrap().unwrap();
    assert_eq!(held.state, OperationState::Indeterminate);
    assert_eq!(held.steps[1].state, StepState::Indeterminate);
    assert!(
        held.waits()[0].contains("box-1 to say where u1 is bound"),
        "{:?}",
        held.waits()
    );
    assert_eq!(kit.gpu("u1").await.state.name(), "indeterminate");
    // Both ends are held: the unit by its claim, the host port until the wait for it ends.
    let rival = Draft::new("rival")
        .compose(composition("b", "red", "h2", &["u1"]))
        .plan();
    let error = executor.submit(submission(rival)).await.unwrap_err();
    assert!(error.to_string().contains("op-attach"), "{error}");
    kit.rack.mend();
    let beside = Draft::new("beside")
        .compose(composition("c", "red", "h1", &["u2"]))
        .plan();
    kit.rack
        .break_down(Call::Bound, Some("u1"), How::LostBefore, u32::MAX);
    let beside = run(&executor, beside).await;
    assert_eq!(beside.state, OperationState::RolledBack);
    assert!(
        beside.error().unwrap().contains("operation op-attach"),
        "{:?}",
        beside.error()
    );

    kit.rack.mend();
    let done = crate::kit::ended(&executor, &id).await;
    assert_eq!(done.state, OperationState::Completed);
    assert_eq!(kit.rack.times_asked(Call::Bind, "u1"), 1);
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_fabric_is_sent_nothing() {
    let (kit, done) = attached_while(Call::Bound, How::Refuse, 1).await;
    assert_eq!(done.state, OperationState::RolledBack);
    assert!(
        done.error().unwrap().contains("nothing was sent"),
        "{:?}",
        done.error()
    );
    assert_eq!(kit.rack.times_asked(Call::Bind, "u1"), 0);
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_bound_there_already_is_somebody_elses_and_stays() {
    let kit = Kit::new();
    kit.rack.rebind("u1", &["h1/p0"]);
    let plan = Draft::new("p")
        .compose(composition("a", "red", "h1", &["u1", "u2"]))
        .plan();
    let done = run(&kit.executor(), plan).await;
    assert_eq!(done.state, OperationState::RolledBack);
    let stop = done.stop.unwrap().message;
    assert!(
        stop.contains("bound there already, which is not of our doing"),
        "{stop}"
    );
    assert_eq!(kit.rack.times_asked(Call::Bind, "u1"), 0);
    assert_eq!(kit.rack.times_asked(Call::Unbind, "u1"), 0);
    assert_eq!(kit.gpu("u1").await.state.name(), "foreign");
    assert_eq!(kit.rack.ports_of("u1"), ["h1/p0"], "it was there before us");
}

#[tokio::test(start_paused = true)]
async fn what_is_free_already_is_not_asked_for_and_not_undone() {
    let kit = Kit::new();
    kit.given(attach()).await;
    kit.rack.rebind("u1", &[]);
    let done = run(&kit.executor(), release()).await;
    assert_eq!(done.state, OperationState::Completed, "{:?}", done.error());
    assert!(done.steps.iter().any(|step| step.state == StepState::Skipped));
    assert_eq!(kit.rack.times_asked(Call::Unbind, "u1"), 0);
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_bound_is_left_alone() {
    let kit = Kit::new();
    kit.rack.rebind("u1", &["h9/p0"]);
    let done = run(&kit.executor(), attach()).await;
    assert_eq!(done.state, OperationState::RolledBack);
    assert!(done.error().unwrap().contains("h9/p0"), "{:?}", done.error());
    assert_eq!(kit.rack.times_asked(Call::Bind, "u1"), 0);
    assert_eq!(kit.rack.times_asked(Call::Unbind, "u1"), 0);
    assert_eq!(kit.rack.times_asked(Call::Reset, "u1"), 0);
    assert_eq!(kit.gpu("u1").await.state.name(), "foreign");
    assert_eq!(kit.rack.ports_of("u1"), ["h9/p0"]);
}

#[tokio::test(start_paused = true)]
async fn a_unit_bound_to_several_ports_is_reported_not_repaired() {
    let kit = Kit::new();
    kit.given(attach()).await;
    kit.rack.rebind("u1", &["h1/p0", "h2/p0"]);
    let done = run(&kit.executor(), release()).await;
    assert_ne!(done.state, OperationState::Completed);
    assert!(
        done.error().unwrap().contains("several ports"),
        "{:?}",
        done.error()
    );
    assert_eq!(kit.rack.times_asked(Call::Unbind, "u1"), 0);
}

#[tokio::test(start_paused = true)]
async fn refused_credentials_are_not_tried_again() {
    let kit = Kit::new();
    kit.rack
        .break_down(Call::Bind, None, How::CredentialsRefused, u32::MAX);
    let executor = kit.executor();
    let done = run(&executor, attach()).await;
    assert_eq!(done.state, OperationState::RolledBack);
    assert_eq!(kit.rack.times_asked(Call::Bind, "u1"), 1);
    kit.all_is_well().await;

    // Not even for an undo: it would lock the account, and an operator must look anyway.
    kit.rack.mend();
    kit.rack.hide("u1");
    kit.rack
        .break_down(Call::Unbind, None, How::CredentialsRefused, u32::MAX);
    let mut again = attach();
    again.id = "again".parse().unwrap();
    let done = run(&executor, again).await;
    assert_eq!(done.state, OperationState::Quarantined);
    assert_eq!(kit.rack.times_asked(Call::Unbind, "u1"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_undo_without_an_answer_is_read_back_too() {
    for how in [
        How::LostAfter,
        How::HangAfter,
        How::LostBefore,
        How::HangBefore,
        How::Lie,
    ] {
        let kit = Kit::new();
        kit.rack.hide("u1");
        kit.rack.break_down(Call::Unbind, None, how, 1);
        let done = run(&kit.executor(), attach()).await;
        assert_eq!(
            done.state,
            OperationState::RolledBack,
            "{how:?}: {:?}",
            done.error()
        );
        let asked = match how {
            How::LostAfter | How::HangAfter => 1,
            _ => 2,
        };
        assert_eq!(kit.rack.times_asked(Call::Unbind, "u1"), asked, "{how:?}");
        kit.all_is_well().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_undo_waits_for_an_operation_that_holds_the_port() {
    let kit = Kit::new();
    let executor = kit.executor();
    kit.rack.hide("u2");
    let beside = Draft::new("beside")
        .compose(composition("b", "red", "h1", &["u2"]))
        .plan();
    let beside = executor.submit(submission(beside)).await.unwrap();
    until(&executor, &beside, |operation| {
        operation.steps[1].state == StepState::Done
    })
    .await;
    // Now the other one loses the answer to its bind at the same port.
    kit.rack.break_down(Call::Bind, Some("u1"), How::LostAfter, 1);
    let lost = executor.submit(submission(attach())).await.unwrap();
    until(&executor, &lost, |operation| {
        operation.steps[1].state == StepState::Running
    })
    .await;
    kit.rack
        .break_down(Call::Bound, Some("u1"), How::LostBefore, u32::MAX);
    until(&executor, &lost, |operation| {
        operation.state == OperationState::Indeterminate
    })
    .await;

    let waiting = until(&executor, &beside, |operation| {
        operation
            .waits()
            .iter()
            .any(|wait| wait.contains("operation op-attach"))
    })
    .await;
    assert_eq!(waiting.state, OperationState::Unwinding);
    kit.rack.mend();
    assert_eq!(
        crate::kit::ended(&executor, &lost).await.state,
        OperationState::Completed
    );
    assert_eq!(
        crate::kit::ended(&executor, &beside).await.state,
        OperationState::RolledBack
    );
    kit.all_is_well().await;
}
