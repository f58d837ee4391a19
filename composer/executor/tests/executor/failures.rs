//! A failure at every step of every scenario: all or nothing.

use crate::kit::{Kit, run};
use crate::plans::{Draft, composition};
use crate::rack::{Call, How};
use poolwright_executor::{OperationState, StepState};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::step::Verb;
use poolwright_planner::Plan;

/// A plan, and what stands before it.
pub struct Scenario {
    pub name: &'static str,
    given: fn() -> Vec<Plan>,
    plan: fn() -> Plan,
}

/// One of each kind of thing that an operation does.
pub const SCENARIOS: [Scenario; 4] = [
    Scenario {
        name: "attach two GPUs to one host and one to another",
        given: Vec::new,
        plan: || {
            Draft::new("attach")
                .compose(composition("a", "red", "h1", &["u1", "u2"]))
                .compose(composition("b", "red", "h2", &["u3"]))
                .plan()
        },
    },
    Scenario {
        name: "release two GPUs",
        given: || {
            vec![
                Draft::new("before")
                    .compose(composition("a", "red", "h1", &["u1", "u2"]))
                    .plan(),
            ]
        },
        plan: || {
            Draft::new("release")
                .release(composition("a", "red", "h1", &["u1", "u2"]))
                .plan()
        },
    },
    Scenario {
        name: "move a GPU from one tenant's host to another's",
        given: || {
            vec![
                Draft::new("before")
                    .compose(composition("a", "red", "h1", &["u1"]))
                    .plan(),
            ]
        },
        plan: || {
            Draft::new("move")
                .release(composition("a", "red", "h1", &["u1"]))
                .compose(composition("b", "blue", "h2", &["u1"]))
                .plan()
        },
    },
    Scenario {
        name: "shrink one composition, grow another",
        given: || {
            vec![
                Draft::new("before")
                    .compose(composition("a", "red", "h1", &["u1", "u2"]))
                    .compose(composition("b", "red", "h2", &["u3"]))
                    .plan(),
            ]
        },
        plan: || {
            Draft::new("shift")
                .keep("a")
                .keep("b")
                .release(composition("a", "red", "h1", &["u2"]))
                .compose(composition("b", "red", "h2", &["u2"]))
                .plan()
        },
    },
];

impl Scenario {
    pub fn plan(&self) -> Plan {
        (self.plan)()
    }

    pub async fn prepare(&self, kit: &Kit) {
        for plan in (self.given)() {
            kit.given(plan).await;
        }
    }

    /// What is bound where before and after.
    pub async fn before_and_after(&self) -> [Vec<(String, Vec<String>)>; 2] {
        let kit = Kit::new();
        self.prepare(&kit).await;
        let before = kit.rack.bindings().into_iter().collect();
        kit.given(self.plan()).await;
        kit.all_is_well().await;
        [before, kit.rack.bindings().into_iter().collect()]
    }
}

fn call(verb: Verb) -> Call {
    match verb {
        Verb::Preflight => Call::Preflight,
        Verb::Bind => Call::Bind,
        Verb::Verify => Call::Verify,
        Verb::Drain => Call::Drain,
        Verb::Unbind => Call::Unbind,
        Verb::Reset => Call::Reset,
    }
}

/// How often a fault must come, so that the step fails although an unknown outcome is tried again. No
/// more, so that the undo works.
fn enough(verb: Verb, how: How) -> u32 {
    match (verb, how) {
        (Verb::Verify, _) => 10_000,
        (_, How::LostBefore) => 2,
        _ => 1,
    }
}

#[tokio::test(start_paused = true)]
async fn fail_at_every_step() {
    for scenario in &SCENARIOS {
        let [before, _] = scenario.before_and_after().await;
        for step in scenario.plan().steps {
            for how in [How::Refuse, How::Lie, How::LostBefore] {
                // A drain can't be read back, and a reset that isn't seen is no failure.
                if (step.verb == Verb::Drain && how == How::Lie) || step.verb == Verb::Reset {
                    continue;
                }
                let case = format!("{}: {step}, {how:?}", scenario.name);
                let kit = Kit::new();
                scenario.prepare(&kit).await;
                let times = enough(step.verb, how);
                let unit = step.target.unit.as_str();
                kit.rack.break_down(call(step.verb), Some(unit), how, times);
                let done = run(&kit.executor(), scenario.plan()).await;

                assert_eq!(
                    done.state,
                    OperationState::RolledBack,
                    "{case}: {:?}",
                    done.error()
                );
                let failed = done.steps.iter().find(|r| r.step.index == step.index).unwrap();
                assert!(failed.error.is_some(), "{case}");
                let stop = done.stop.as_ref().unwrap();
                assert!(stop.message.contains(unit), "{case}: {}", stop.message);
                let now: Vec<_> = kit.rack.bindings().into_iter().collect();
                assert_eq!(now, before, "{case}");
                kit.all_is_well().await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_does_not_stand_in_the_way_of_the_next_try() {
    for scenario in &SCENARIOS {
        let [_, after] = scenario.before_and_after().await;
        let kit = Kit::new();
        scenario.prepare(&kit).await;
        let last_bind_or_unbind = scenario.plan().steps.into_iter().rfind(|s| s.verb == Verb::Bind);
        let call = last_bind_or_unbind.map_or(Call::Unbind, |_| Call::Bind);
        kit.rack.break_down(call, None, How::Refuse, 1);
        let executor = kit.executor();
        let first = run(&executor, scenario.plan()).await;
        assert_eq!(first.state, OperationState::RolledBack, "{}", scenario.name);
        let mut again = scenario.plan();
        again.id = "again".parse().unwrap();
        let second = run(&executor, again).await;
        assert_eq!(
            second.state,
            OperationState::Completed,
            "{}: {:?}",
            scenario.name,
            second.error()
        );
        let now: Vec<_> = kit.rack.bindings().into_iter().collect();
        assert_eq!(now, after, "{}", scenario.name);
        kit.all_is_well().await;
    }
}

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
    let scenario = &SCENARIOS[2];
    scenario.prepare(&kit).await;
    kit.rack.break_down(Call::Reset, None, How::Lie, 1);
    let done = run(&kit.executor(), scenario.plan()).await;
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
    assert_eq!(
        states,
        [StepState::Failed, StepState::Pending, StepState::Pending]
    );
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
