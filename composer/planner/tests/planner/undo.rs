//! Taking a plan back: everything is as before, or nothing is done and what has changed is named.

use crate::support::*;
use poolwright_model::id::{GpuId, HostId};
use poolwright_model::step::Verb;
use poolwright_planner::direct::{self, attach, detach, release};
use poolwright_planner::undo::{Refusal, undo};
use poolwright_planner::{Composition, Plan, Reserved};

fn ids(names: &[&str]) -> Vec<GpuId> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

fn host(name: &str) -> HostId {
    name.parse().unwrap()
}

fn rack() -> Rack {
    Rack::new()
        .gpus("f/s", "h100", 80.0, 6)
        .host("h", "f/s", 3)
        .host("other", "f/s", 4)
}

/// Carries a plan out; returns it with what stood before.
fn done(rack: &mut Rack, plan: Plan) -> (Plan, Vec<Composition>) {
    let before = rack.held.clone();
    rack.holds(&plan);
    rack.execute(&plan, 3);
    (plan, before)
}

fn verbs(plan: &Plan) -> Vec<Verb> {
    plan.steps.iter().map(|step| step.verb).collect()
}

fn attached(rack: &mut Rack, gpus: &[&str], to: &str) -> Plan {
    let plan = attach(&ids(gpus), &host(to), &rack.input()).unwrap();
    done(rack, plan).0
}

#[test]
fn what_was_attached_is_detached() {
    let mut rack = rack();
    let plan = attached(&mut rack, &["g001", "g002"], "h");
    let back = undo(&plan, &rack.input()).unwrap();
    assert!(back.composes.is_empty() && back.keeps.is_empty());
    assert_eq!(verbs(&back)[..3], [Verb::Drain, Verb::Unbind, Verb::Reset]);
    done(&mut rack, back);
    assert!(rack.held.is_empty());
}

#[test]
fn what_was_released_comes_back_to_where_it_was() {
    let mut rack = rack();
    attached(&mut rack, &["g001", "g002"], "h");
    attached(&mut rack, &["g003"], "other");
    let id = rack.held[0].id.clone();
    let plan = release(&id, &rack.input()).unwrap();
    let (plan, before) = done(&mut rack, plan);
    let back = undo(&plan, &rack.input()).unwrap();
    done(&mut rack, back.clone());
    assert_eq!(rack.held, before);
    // And the undo can be undone.
    let again = undo(&back, &rack.input()).unwrap();
    done(&mut rack, again);
    assert_eq!(rack.held.len(), 1);
}

#[test]
fn a_composition_that_lost_one_gets_it_again() {
    let mut rack = rack();
    attached(&mut rack, &["g001", "g002"], "h");
    let plan = detach(&ids(&["g001"]), &rack.input()).unwrap();
    let (plan, before) = done(&mut rack, plan);
    let back = undo(&plan, &rack.input()).unwrap();
    assert_eq!(back.keeps.len(), 1, "it goes on");
    done(&mut rack, back);
    assert_eq!(rack.held, before);
}

#[test]
fn what_has_changed_since_is_named() {
    let mut rack = rack();
    let begun = attached(&mut rack, &["g001", "g002"], "h");
    let id = rack.held[0].id.clone();
    let lost = detach(&ids(&["g001"]), &rack.input()).unwrap();
    done(&mut rack, lost.clone());
    let error = undo(&begun, &rack.input()).unwrap_err();
    assert_eq!(
        error,
        Refusal::Changed {
            composition: id.clone(),
            unit: "g001".parse().unwrap()
        }
    );
    let ended = release(&id, &rack.input()).unwrap();
    done(&mut rack, ended.clone());
    assert_eq!(
        undo(&lost, &rack.input()),
        Err(Refusal::Ended { composition: id })
    );

    // Somebody else has the GPU by now; then the host has no room; then it is off.
    let taken = attached(&mut rack, &["g002"], "other");
    let error = undo(&ended, &rack.input()).unwrap_err();
    assert!(matches!(&error, Refusal::Gone(direct::Refusal::Held { gpu, .. }) if gpu.as_str() == "g002"));
    let back = undo(&taken, &rack.input()).unwrap();
    done(&mut rack, back);
    attached(&mut rack, &["g003", "g004", "g005"], "h");
    let error = undo(&ended, &rack.input()).unwrap_err();
    assert!(
        matches!(error, Refusal::Gone(direct::Refusal::NoSlot { .. })),
        "{error}"
    );
    let full = rack.held[0].id.clone();
    let plan = release(&full, &rack.input()).unwrap();
    done(&mut rack, plan);
    rack.reserved.push(Reserved {
        unit: "g002".parse().unwrap(),
        host_port: None,
    });
    let error = undo(&ended, &rack.input()).unwrap_err();
    assert!(error.to_string().contains("running operation"), "{error}");
    rack.reserved.clear();
    rack.host_mut("h").power_state = poolwright_model::topology::PowerState::Off;
    let error = undo(&ended, &rack.input()).unwrap_err();
    assert!(
        matches!(error, Refusal::Gone(direct::Refusal::HostClosed { .. })),
        "{error}"
    );
}
