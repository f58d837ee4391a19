//! After a host was seen to have its GPUs it makes them ready; an attach succeeds when it has.

use crate::kit::{Kit, attached_while, run, submission};
use crate::plans::{attach, release};
use crate::rack::{Call, How, Rack};
use poolwright_executor::{Operation, OperationState, StepRecord, StepState};
use poolwright_model::step::Verb;

fn ready_step(operation: &Operation) -> &StepRecord {
    let mut steps = operation.steps.iter();
    steps.find(|record| record.step.verb == Verb::Ready).unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_was_seen_and_done_is_the_evidence_of_the_step() {
    let kit = Kit::new();
    let done = run(&kit.executor(), attach()).await;
    assert_eq!(done.state, OperationState::Completed);
    let step = ready_step(&done);
    assert_eq!(
        step.evidence.as_deref(),
        Some("healthy, and told to its software")
    );
    assert!(kit.rack.is_ready("u1"));
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_gpu_that_is_not_well_is_given_back() {
    let (kit, done) = attached_while(Call::Ready, How::Refuse, 1).await;
    assert_eq!(done.state, OperationState::RolledBack);
    let error = done.error().unwrap();
    assert!(
        error.contains("make u1 ready on h1: Ready of u1: refused"),
        "{error}"
    );
    assert_eq!(
        kit.rack.times_asked(Call::Unready, "u1"),
        0,
        "the host left nothing of it"
    );
    assert_eq!(kit.rack.ports_of("u1"), Vec::<String>::new());
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn what_may_have_been_set_is_set_back_before_the_gpu_goes() {
    let (kit, done) = attached_while(Call::Ready, How::LostAfter, 2).await;
    assert_eq!(done.state, OperationState::RolledBack);
    let asked: Vec<Call> = kit.rack.asked().into_iter().map(|(call, _)| call).collect();
    let first = |call: Call| asked.iter().position(|other| *other == call).unwrap();
    assert!(first(Call::Unready) < first(Call::Drain), "{asked:?}");
    assert!(first(Call::Drain) < first(Call::Unbind), "{asked:?}");
    assert!(!kit.rack.is_ready("u1"));
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_host_without_an_agent_is_no_obstacle_and_that_it_did_nothing_is_said() {
    for rack in [Rack::without_agents(), Rack::without_host_side()] {
        let kit = Kit::with(rack);
        let done = run(&kit.executor(), attach()).await;
        assert_eq!(done.state, OperationState::Completed);
        let step = ready_step(&done);
        assert_eq!((step.state, step.attempts), (StepState::NotPossible, 0));
        let evidence = step.evidence.as_deref().unwrap();
        assert!(evidence.starts_with("not made ready: "), "{evidence}");
        kit.given(release()).await;
        kit.all_is_well().await;
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_host_that_was_asked_for_nothing_nothing_is_put_back() {
    let kit = Kit::with(Rack::without_agents());
    // Another unit fails once this one is through.
    let both = crate::plans::composition("a", "red", "h1", &["u1", "u2"]);
    kit.rack.break_down(Call::Verify, Some("u2"), How::Lie, 100_000);
    let plan = crate::plans::Draft::new("both").compose(both).plan();
    let done = run(&kit.executor(), plan).await;
    assert_eq!(done.state, OperationState::RolledBack);
    assert_eq!(
        ready_step(&done).state,
        StepState::NotPossible,
        "{:?}",
        done.steps
    );
    assert_eq!(kit.rack.times_asked(Call::Unready, "u1"), 0);
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_host_could_not_put_back_is_closed_to_other_tenants_also_after_its_reset() {
    let mut kit = Kit::new();
    let held_by = |tenant: &str, name: &str| {
        let held = crate::plans::composition("a", tenant, "h1", &["u1"]);
        crate::plans::Draft::new(name).compose(held).plan()
    };
    kit.given(held_by("red", "first")).await;
    kit.rack
        .leaves("u1", "MIG could not be set back to off: it hangs");
    kit.rack.leaves("u1", "ECC could not be set back to on: it hangs");
    let released = run(&kit.executor(), release()).await;
    assert_eq!(released.state, OperationState::Completed, "it goes all the same");
    let evidence = released.steps[0].evidence.as_deref().unwrap();
    assert!(
        evidence.ends_with(
            "MIG could not be set back to off: it hangs; ECC could not be set back to on: it hangs"
        ),
        "{evidence}"
    );
    let record = kit.gpu("u1").await;
    assert_eq!(
        (record.state.name(), record.clean, record.left.len()),
        ("dirty", false, 2)
    );
    for without_reset in [false, true] {
        kit.options.reuse_without_reset = without_reset;
        let asked = submission(held_by("blue", "other"));
        let refused = kit.executor().submit(asked).await.unwrap_err().to_string();
        assert!(
            refused.contains("closed to other tenants: MIG could not be set back"),
            "{refused}"
        );
    }
    kit.given(held_by("red", "again")).await;
    kit.all_is_well().await;
}
