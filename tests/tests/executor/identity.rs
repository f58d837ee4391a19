//! Addresses that show another GPU than the one that is meant: firmware renumbered its resources, or cards were exchanged.

use crate::kit::{Kit, ended, run, submission, until};
use crate::plans::{Draft, attach, composed, release, serial};
use crate::rack::{Call, How, Rack};
use poolwright_executor::{OperationState, StepState};
use poolwright_model::lifecycle::GpuState;
use poolwright_planner::Plan;

/// Attaches `u1`, and returns the kit: the address shows its GPU.
async fn attached() -> Kit {
    let kit = Kit::new();
    kit.rack.shows("u1", &serial("u1"));
    kit.given(attach()).await;
    kit
}

/// Another plan that releases it.
fn released(plan: &str) -> Plan {
    Draft::new(plan).release(composed()).plan()
}

/// Fault 72: nothing is sent, and it can be released once its address is known again.
#[tokio::test(start_paused = true)]
async fn a_gpu_is_not_detached_at_an_address_that_shows_another_one() {
    let kit = attached().await;
    kit.rack.shows("u1", "another");
    let done = run(&kit.executor(), release()).await;
    assert_eq!(done.state, OperationState::RolledBack);
    let why = done.error().unwrap_or_default();
    for words in [
        "identity changed",
        "u1",
        "serial-u1",
        "another",
        "nothing was sent",
    ] {
        assert!(why.contains(words), "{words}: {why}");
    }
    assert_eq!(kit.rack.times_asked(Call::Unbind, "u1"), 0);
    assert_eq!(kit.gpu("u1").await.state, GpuState::Attached);
    kit.all_is_well().await;

    kit.rack.shows("u1", &serial("u1"));
    kit.given(released("again")).await;
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_gpu_is_detached_at_its_new_address() {
    let kit = attached().await;
    kit.rack.shows("u1", "another");
    kit.rack.readdress("u1", "u7");
    kit.rack.shows("u7", &serial("u1"));
    let mut moved = composed();
    moved.held[0].unit_at.address = "u7".to_owned();
    kit.given(Draft::new("moved").release(moved).plan()).await;
    assert_eq!(kit.rack.times_asked(Call::Unbind, "u1"), 0);
    assert_eq!(kit.rack.times_asked(Call::Unbind, "u7"), 1);
    assert!(kit.compositions().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_gpu_is_not_attached_at_an_address_that_shows_another_one() {
    let kit = Kit::new();
    kit.rack.shows("u1", "another");
    let done = run(&kit.executor(), attach()).await;
    assert_eq!(done.state, OperationState::RolledBack);
    assert_eq!(kit.rack.times_asked(Call::Bind, "u1"), 0);
    kit.all_is_well().await;
}

/// The address changes while the operation runs, after the check of the step before.
#[tokio::test(start_paused = true)]
async fn a_gpu_is_not_reset_at_an_address_that_shows_another_one() {
    let kit = attached().await;
    kit.rack.shows_after(Call::Unbind, "u1", "another");
    let executor = kit.executor();
    let id = executor.submit(submission(release())).await.unwrap();
    // What became of the unbind can't be read there.
    until(&executor, &id, |operation| {
        operation.steps[1].state == StepState::Indeterminate
    })
    .await;
    kit.rack.shows("u1", &serial("u1"));
    assert_eq!(ended(&executor, &id).await.state, OperationState::Completed);
    kit.all_is_well().await;

    kit.given(Draft::new("attached-again").compose(composed()).plan())
        .await;
    kit.rack.shows_after(Call::Reset, "u1", "another");
    kit.rack.break_down(Call::Reset, Some("u1"), How::LostBefore, 1);
    let resets = kit.rack.times_asked(Call::Reset, "u1");
    run(&kit.executor(), released("again")).await;
    assert_eq!(
        kit.rack.times_asked(Call::Reset, "u1"),
        resets + 1,
        "not asked again"
    );
    assert_eq!(kit.gpu("u1").await.state, GpuState::Dirty);
}

/// The address changes during the reset: another GPU may have been reset.
#[tokio::test(start_paused = true)]
async fn a_gpu_whose_address_changes_during_its_reset_counts_as_not_reset() {
    let kit = attached().await;
    kit.rack.shows_after(Call::Reset, "u1", "another");
    run(&kit.executor(), release()).await;
    assert_eq!(kit.gpu("u1").await.state, GpuState::Dirty);
}

/// Fault 72: a reset counts once its address was read back. A service that restarts meanwhile is waited for.
#[tokio::test(start_paused = true)]
async fn a_reset_counts_once_it_is_read_back() {
    let kit = attached().await;
    let attach = |plan: &str| Draft::new(plan).compose(composed()).plan();
    let reads = || kit.rack.times_asked(Call::Bound, "u1");
    let before = reads();
    kit.given(release()).await;
    assert_eq!(kit.gpu("u1").await.state, GpuState::Free);
    // The last read of a release is that after the reset.
    let earlier = u32::try_from(reads() - before - 1).unwrap();

    kit.given(attach("attached-again")).await;
    kit.rack
        .break_down_after(earlier, Call::Bound, Some("u1"), How::CannotTell, 1);
    run(&kit.executor(), released("untold")).await;
    assert_eq!(kit.gpu("u1").await.state, GpuState::Dirty);
    kit.rack.mend();

    kit.given(attach("attached-at-last")).await;
    let resets = kit.rack.times_asked(Call::Reset, "u1");
    kit.rack
        .break_down_after(earlier, Call::Bound, Some("u1"), How::LostBefore, 10_000);
    let executor = kit.executor();
    let id = executor.submit(submission(released("silent"))).await.unwrap();
    until(&executor, &id, |operation| {
        operation.steps[2].state == StepState::Indeterminate
    })
    .await;
    assert_ne!(kit.gpu("u1").await.state, GpuState::Free);
    kit.rack.mend();
    assert_eq!(ended(&executor, &id).await.state, OperationState::Completed);
    assert_eq!(kit.gpu("u1").await.state, GpuState::Free);
    assert_eq!(kit.rack.times_asked(Call::Reset, "u1"), resets + 1);
}

/// Fault 72: an address without an identity is used only while the unit was observed nowhere else.
#[tokio::test(start_paused = true)]
async fn a_gpu_is_not_detached_at_an_address_without_identity_while_it_was_observed_at_another() {
    let kit = attached().await;
    kit.rack.shows_no_identity("u1");
    kit.rack.observes("u1", "u7");
    let done = run(&kit.executor(), release()).await;
    assert_eq!(done.state, OperationState::RolledBack);
    let why = done.error().unwrap_or_default();
    assert!(why.contains("identity changed"), "{why}");
    assert_eq!(kit.rack.times_asked(Call::Unbind, "u1"), 0);

    kit.rack.readdress("u1", "u7");
    kit.rack.shows("u7", &serial("u1"));
    kit.given(released("again")).await;
    assert_eq!(kit.rack.times_asked(Call::Unbind, "u1"), 0);
    assert_eq!(kit.rack.times_asked(Call::Unbind, "u7"), 1);
}

/// Another manager bound it elsewhere, and put it back.
#[tokio::test(start_paused = true)]
async fn a_gpu_that_was_found_at_another_host_can_be_released_once_it_is_back() {
    let kit = attached().await;
    kit.rack.bind_by_others("u1", "h2/p0");
    let done = run(&kit.executor(), release()).await;
    assert_eq!(done.state, OperationState::RolledBack);
    assert_eq!(kit.gpu("u1").await.state, GpuState::Foreign);

    kit.rack.rebind("u1", &["h1/p0"]);
    kit.given(released("again")).await;
    assert!(kit.compositions().await.is_empty());
    assert_eq!(kit.rack.sins(), Vec::<String>::new());
}

/// A service that shows neither UUID nor serial number: the address is all there is.
#[tokio::test(start_paused = true)]
async fn a_gpu_that_shows_no_identity_is_bound_and_released_by_its_address() {
    let kit = Kit::with(Rack::without_agents());
    kit.given(attach()).await;
    kit.given(release()).await;
    kit.all_is_well().await;
}
