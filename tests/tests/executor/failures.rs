//! Failures that mean something of their own; those that may befall any step are swept ([`crate::sweep`]).

use crate::kit::{Kit, run};
use crate::plans::{Draft, composition};
use crate::rack::{Call, How};
use poolwright_executor::{OperationState, StepState};
use poolwright_model::lifecycle::GpuState;

#[tokio::test(start_paused = true)]
async fn a_reset_that_is_not_seen_leaves_the_unit_dirty_and_closed_to_others() {
    let kit = Kit::new();
    let composed = || composition("a", "red", "h1", &["u1"]);
    kit.given(Draft::new("before").compose(composed()).plan()).await;
    kit.rack.break_down(Call::Reset, None, How::Lie, 1);
    let executor = kit.executor();
    let released = run(&executor, Draft::new("release").release(composed()).plan()).await;
    assert_eq!(released.state, OperationState::Completed);
    let reset = released.steps.last().unwrap();
    assert!(
        reset.evidence.as_ref().unwrap().contains("not reset"),
        "{reset:?}"
    );
    assert_eq!(kit.gpu("u1").await.state.name(), "dirty");

    let other = Draft::new("other")
        .compose(composition("b", "blue", "h2", &["u1"]))
        .plan();
    let error = executor.submit(crate::kit::submission(other)).await.unwrap_err();
    assert!(error.to_string().contains("tenant red held it"), "{error}");

    let same = Draft::new("same")
        .compose(composition("c", "red", "h2", &["u1"]))
        .plan();
    let same = run(&executor, same).await;
    assert_eq!(same.state, OperationState::Completed, "{:?}", same.error());
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_move_to_another_tenant_stops_where_the_reset_is_not_seen() {
    let kit = Kit::new();
    let red = || composition("a", "red", "h1", &["u1"]);
    kit.given(Draft::new("before").compose(red()).plan()).await;
    kit.rack.break_down(Call::Reset, None, How::Lie, 1);
    let blue = composition("b", "blue", "h2", &["u1"]);
    let done = run(
        &kit.executor(),
        Draft::new("move").release(red()).compose(blue).plan(),
    )
    .await;
    assert_eq!(done.state, OperationState::RolledBack);
    let stop = done.stop.unwrap().message;
    assert!(stop.contains("closed to other tenants"), "{stop}");
    assert_eq!(
        kit.rack.times_asked(Call::Bind, "u1"),
        2,
        "bound at first, and back: never to the other"
    );
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_step_that_failed_keeps_those_that_wait_for_it_from_beginning() {
    let kit = Kit::new();
    kit.rack.break_down(Call::Preflight, Some("u1"), How::Refuse, 1);
    let plan = Draft::new("p")
        .compose(composition("a", "red", "h1", &["u1"]))
        .plan();
    let done = run(&kit.executor(), plan).await;
    let states: Vec<_> = done.steps.iter().map(|record| record.state).collect();
    use StepState::{Failed, Pending};
    assert_eq!(states, [Failed, Pending, Pending, Pending]);
    assert_eq!(kit.rack.times_asked(Call::Bind, "u1"), 0);
    assert_eq!(
        kit.gpu("u1").await.state.name(),
        "free",
        "nobody touched it, so it is as clean as before"
    );
}

#[tokio::test(start_paused = true)]
async fn a_release_that_found_a_gpu_unbound_and_failed_elsewhere_can_be_asked_again() {
    let kit = Kit::new();
    let both = || composition("a", "red", "h1", &["u1", "u2"]);
    kit.given(Draft::new("attach").compose(both()).plan()).await;
    // Somebody else takes one away; the unbind of the other is refused for now.
    kit.rack.rebind("u1", &[]);
    kit.rack.break_down(Call::Unbind, Some("u2"), How::Refuse, 1);
    let release = |id: &str| Draft::new(id).release(both()).plan();
    let failed = run(&kit.executor(), release("first")).await;
    assert_eq!(failed.state, OperationState::RolledBack, "{:?}", failed.error());
    assert_eq!(
        kit.gpu("u1").await.state,
        GpuState::Free,
        "it was reset in the meantime"
    );
    let done = run(&kit.executor(), release("second")).await;
    assert_eq!(done.state, OperationState::Completed, "{:?}", done.error());
    assert!(kit.compositions().await.is_empty());
    assert!(
        kit.rack.bindings().values().all(Vec::is_empty),
        "{:?}",
        kit.rack.bindings()
    );
}
