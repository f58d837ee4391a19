//! What stays, what goes, what changes, and in which order.

use crate::support::*;
use poolwright_model::id::CompositionId;
use poolwright_model::lifecycle::GpuState;
use poolwright_model::step::Verb;
use poolwright_planner::{Deferral, Plan, Reserved, Stale};
use poolwright_sizing::need::Need;

fn h100(count: u32) -> Need {
    Need::of_kind("h100", count)
}

/// Eight GPUs, one host for all of them.
fn one_host() -> Rack {
    Rack::new().gpus("f/s", "h100", 80.0, 8).host("h", "f/s", 8)
}

fn verbs(plan: &Plan) -> Vec<String> {
    let step = |step: &poolwright_model::step::Step| format!("{} {}", step.verb, step.target.unit);
    plan.steps.iter().map(step).collect()
}

#[test]
fn what_is_served_stays_and_what_is_not_wanted_goes() {
    let mut rack = one_host().want("stays", h100(3)).want("goes", h100(3));
    rack.apply(1);
    rack.forget("goes");
    let plan = rack.plan();
    assert_eq!(plan.keeps.len(), 1);
    assert_eq!(plan.releases.len(), 1);
    assert_eq!(plan.releases[0].demand.as_ref().unwrap().as_str(), "goes");
    assert_eq!(
        plan.summary().to_string(),
        "compositions: 0 new, 1 released, 1 kept; GPUs: 0 to bind, 3 to unbind"
    );
    rack.apply(2);
    assert!(rack.plan().changes_nothing());
}

#[test]
fn a_release_is_drain_unbind_reset() {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 1)
        .host("h", "f/s", 1)
        .want("d", h100(1));
    let plan = rack.apply(1);
    assert_eq!(
        verbs(&plan),
        ["preflight g001", "bind g001", "verify g001", "ready g001"]
    );
    rack.forget("d");
    let plan = rack.apply(2);
    assert_eq!(verbs(&plan), ["drain g001", "unbind g001", "reset g001"]);
    assert_eq!(
        plan.steps
            .iter()
            .map(|step| step.after.clone())
            .collect::<Vec<_>>(),
        [vec![], vec![0], vec![1]]
    );
}

#[test]
fn what_is_released_serves_others_in_the_same_plan() {
    let mut rack = one_host().want("day", h100(8));
    rack.apply(1);
    rack.forget("day");
    rack.demand("night", 0, h100(8));
    let plan = rack.apply(2);
    assert_eq!(
        (plan.releases.len(), plan.composes.len(), plan.unplaced.len()),
        (1, 1, 0)
    );
    let bind = plan.steps.iter().find(|step| step.verb == Verb::Bind).unwrap();
    let unit = &bind.target.unit;
    let reset = plan
        .steps
        .iter()
        .find(|step| step.verb == Verb::Reset && step.target.unit == *unit);
    assert!(bind.after.contains(&reset.unwrap().index));
    assert_ne!(plan.releases[0].id, plan.composes[0].id);
}

#[test]
fn a_bind_waits_for_a_slot_only_where_it_must() {
    // Two slots, one in use; two are to come, so the first needs not wait.
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 3)
        .host("h", "f/s", 2)
        .want("old", h100(1));
    rack.apply(1);
    rack.forget("old");
    rack.demand("new", 0, h100(2));
    let plan = rack.plan();
    let waits: Vec<bool> = plan
        .steps
        .iter()
        .filter(|step| step.verb == Verb::Preflight)
        .map(|step| !step.after.is_empty())
        .collect();
    assert_eq!(waits, [false, true]);
}

#[test]
fn a_dirty_gpu_is_reset_before_it_is_bound() {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 1)
        .host("h", "f/s", 1)
        .want("d", h100(1));
    rack.gpu_mut("g001").state = GpuState::Dirty;
    let plan = rack.apply(1);
    assert_eq!(
        verbs(&plan),
        [
            "reset g001",
            "preflight g001",
            "bind g001",
            "verify g001",
            "ready g001"
        ]
    );
}

#[test]
fn a_need_that_grows_or_shrinks_changes_in_place() {
    let mut rack = one_host().want("d", h100(2));
    let first = rack.apply(1);
    let id = first.composes[0].id.clone();
    rack.forget("d");
    rack.demand("d", 0, h100(5));
    let plan = rack.apply(2);
    assert_eq!(
        (plan.keeps.as_slice(), plan.releases.len()),
        ([id.clone()].as_slice(), 0)
    );
    assert_eq!((&plan.composes[0].id, plan.composes[0].gpu_count()), (&id, 3));
    assert_eq!(plan.summary().changed, 1);
    assert_eq!(rack.held[0].gpu_count(), 5);
    rack.forget("d");
    rack.demand("d", 0, h100(1));
    let plan = rack.apply(3);
    assert_eq!((&plan.releases[0].id, plan.releases[0].gpu_count()), (&id, 4));
    assert_eq!(rack.held.len(), 1);
    assert_eq!(rack.held[0].gpu_count(), 1);
    assert_eq!(rack.held[0].label, "1 x h100", "the label follows the need");
}

#[test]
fn a_need_of_another_kind_moves() {
    let mut rack = one_host().gpus("f/s", "h200", 141.0, 4).want("d", h100(8));
    rack.apply(1);
    rack.forget("d");
    rack.demand("d", 0, Need::of_kind("h200", 4));
    let plan = rack.apply(2);
    assert_eq!(
        (plan.releases.len(), plan.composes.len(), plan.keeps.len()),
        (1, 1, 0)
    );
}

#[test]
fn a_changed_need_that_finds_no_place_keeps_what_it_has() {
    let mut rack = one_host().want("d", h100(4)).want("other", h100(3));
    rack.apply(1);
    rack.forget("d");
    rack.demand("d", 0, h100(6));
    let plan = rack.plan();
    assert!(plan.changes_nothing());
    assert_eq!(plan.keeps.len(), 2);
    assert_eq!(plan.unplaced[0].holding.len(), 1);
    assert!(
        plan.unplaced[0].to_string().contains("until then it keeps d-"),
        "{}",
        plan.unplaced[0]
    );
}

#[test]
fn parts_go_together() {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 8)
        .host("host-1", "f/s", 4)
        .host("host-2", "f/s", 4)
        .want("wide", h100(8).spanning(true));
    rack.apply(1);
    assert_eq!(rack.held.len(), 2);
    assert!(rack.plan().changes_nothing());
    // One part is lost: the demand is served anew as a whole.
    rack.held.pop();
    let gpus = rack.held[0].gpu_count() as usize;
    for gpu in rack.topology().gpus.iter_mut().skip(gpus) {
        (gpu.host, gpu.host_port, gpu.state) = (None, None, GpuState::Dirty);
    }
    let plan = rack.apply(2);
    assert_eq!((plan.releases.len(), plan.composes.len()), (1, 2));
    rack.forget("wide");
    let plan = rack.apply(3);
    assert_eq!(plan.releases.len(), 2);
    assert!(rack.used_slots().is_empty());
}

#[test]
fn what_cannot_be_touched_now_is_put_off() {
    type Spoil = fn(&mut Rack);
    type Expected = fn(&Deferral) -> bool;
    let spoils: [(Spoil, Expected); 4] = [
        (
            |rack| {
                rack.reserved = vec![Reserved {
                    unit: "g001".parse().unwrap(),
                    host_port: None,
                }];
            },
            |because| matches!(because, Deferral::InOperation { .. }),
        ),
        (
            |rack| rack.gpu_mut("g001").state = GpuState::Indeterminate,
            |because| matches!(because, Deferral::Unsettled { .. }),
        ),
        (
            |rack| {
                rack.topology().gpus.remove(0);
                rack.topology().units.remove(0);
            },
            |because| matches!(because, Deferral::NotSeen { .. }),
        ),
        (
            |rack| rack.foreign("g001", "other"),
            |because| matches!(because, Deferral::Elsewhere { .. }),
        ),
    ];
    for (spoil, expected) in spoils {
        let mut rack = one_host().host("other", "f/s", 2).want("d", h100(7));
        rack.apply(1);
        spoil(&mut rack);
        rack.forget("d");
        let plan = rack.plan();
        assert!(plan.changes_nothing());
        assert_eq!(plan.keeps.len(), 1);
        assert!(expected(&plan.deferred[0].because), "{}", plan.deferred[0]);
    }
}

#[test]
fn a_binding_that_the_fabric_lost_is_released_like_any_other() {
    let mut rack = one_host().want("d", h100(8));
    rack.apply(1);
    for gpu in &mut rack.topology().gpus {
        (gpu.host, gpu.host_port, gpu.state) = (None, None, GpuState::Free);
    }
    assert!(
        rack.plan().changes_nothing(),
        "drift is not for the planner to repair"
    );
    rack.forget("d");
    rack.demand("new", 0, h100(8));
    let plan = rack.plan();
    assert_eq!((plan.releases.len(), plan.composes.len()), (1, 1));
}

#[test]
fn what_running_operations_have_in_hand_takes_its_slots() {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 4)
        .host("h", "f/s", 3)
        .want("d", h100(2));
    rack.reserved = vec![Reserved {
        unit: "g004".parse().unwrap(),
        host_port: Some("h/p0".parse().unwrap()),
    }];
    assert_eq!(rack.plan().composes.len(), 1);
    rack.reserved.push(Reserved {
        unit: "g003".parse().unwrap(),
        host_port: Some("h/p0".parse().unwrap()),
    });
    assert_eq!(rack.plan().composes.len(), 0, "1 slot is left");
}

#[test]
fn what_is_on_its_way_takes_bus_numbers_that_are_counted_as_free() {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 4)
        .host("h", "f/s", 8)
        .want("d", h100(2));
    rack.host_mut("h").ports[0].free_buses = Some(3);
    assert_eq!(rack.plan().composes.len(), 1);
    rack.reserved = ["g003", "g004"]
        .map(|unit| Reserved {
            unit: unit.parse().unwrap(),
            host_port: Some("h/p0".parse().unwrap()),
        })
        .to_vec();
    assert_eq!(rack.plan().composes.len(), 0, "1 number is left");
}

#[test]
fn a_released_gpu_that_may_not_be_given_away_is_not() {
    let mut rack = one_host().want("day", h100(8));
    rack.apply(1);
    rack.forget("day");
    rack.demand("night", 0, h100(8));
    rack.cordoned.gpus = ["g005".parse().unwrap()].into();
    let plan = rack.plan();
    assert_eq!((plan.releases.len(), plan.composes.len()), (1, 0));
    assert!(
        plan.unplaced[0].to_string().contains("1 cordoned"),
        "{}",
        plan.unplaced[0]
    );
}

#[test]
fn a_composition_in_the_making_is_kept() {
    let mut rack = one_host().want("d", h100(2));
    let plan = rack.plan();
    rack.held = plan.after(&rack.held);
    rack.reserved = plan
        .reads
        .units
        .keys()
        .map(|unit| Reserved {
            unit: unit.clone(),
            host_port: None,
        })
        .collect();
    let plan = rack.plan();
    assert!(plan.changes_nothing());
    assert_eq!((plan.keeps.len(), plan.deferred.len()), (1, 0));
}

#[test]
fn ids_are_readable_and_never_reused() {
    let mut rack = one_host().want("web", h100(1));
    let first = rack.apply(1).composes[0].id.clone();
    assert!(first.as_str().starts_with("web-"), "{first}");
    rack.forget("web");
    rack.apply(2);
    rack.demand("web", 0, h100(1));
    assert_ne!(rack.plan().composes[0].id, first);
    let long = "x".repeat(200);
    rack.demand(&long, 0, h100(1));
    let plan = rack.plan();
    let ids: Vec<&CompositionId> = plan.composes.iter().map(|c| &c.id).collect();
    assert_eq!(ids.len(), 2);
    assert!(ids[1].as_str().len() < 200);
}

#[test]
fn a_plan_is_stale_when_what_it_rests_on_has_changed() {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 4)
        .host("h", "f/s", 3)
        .want("d", h100(2));
    let plan = rack.plan();
    rack.gpu_mut("g004").state = GpuState::Dirty;
    assert_eq!(plan.stale(&rack.snapshot), vec![], "that one is not the plan's");
    rack.gpu_mut("g001").state = GpuState::Dirty;
    assert!(matches!(
        plan.stale(&rack.snapshot).as_slice(),
        [Stale::Unit { .. }]
    ));
    rack.gpu_mut("g001").state = GpuState::Free;
    rack.foreign("g004", "h");
    let stale = plan.stale(&rack.snapshot);
    assert_eq!(
        stale.iter().map(Stale::to_string).collect::<Vec<_>>(),
        ["host port h/p0 had 3 slots, nothing bound, and has 3 slots, bound: g004 now"]
    );
    rack.topology().hosts.clear();
    assert!(matches!(
        plan.stale(&rack.snapshot).as_slice(),
        [Stale::Port { now: None, .. }]
    ));
}

#[test]
fn a_unit_stands_as_its_least_free_gpu_does() {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 2)
        .solder(1..=2)
        .host("h", "f/s", 3)
        .want("d", h100(2));
    let plan = rack.plan();
    rack.gpu_mut("g002").state = GpuState::Dirty;
    let stale = plan.stale(&rack.snapshot);
    assert_eq!(
        stale.iter().map(Stale::to_string).collect::<Vec<_>>(),
        ["unit board-1 was free, and is unbound and not reset yet now"]
    );
}

#[test]
fn what_is_to_keep_fewer_stays_on_gpus_that_it_has_whatever_stands_first() {
    let sets = |first, second| {
        let (first, second) = (
            set(Some("h100"), first, 80.0, 1),
            set(Some("l40s"), second, 48.0, 1),
        );
        need(vec![first, second], false)
    };
    // Of the first set there is one GPU only, so the second serves it.
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 1)
        .gpus("f/s", "l40s", 48.0, 4)
        .host("h", "f/s", 8)
        .want("lends", sets(2, 4));
    rack.apply(1);
    let all = rack.held[0].held.clone();
    rack.forget("lends");
    rack.demand("lends", 0, sets(1, 1));
    rack.apply(2);
    let kept: Vec<_> = rack
        .held
        .iter()
        .flat_map(|composition| &composition.held)
        .collect();
    assert_eq!((all.len(), kept.len()), (4, 1));
    assert!(all.contains(kept[0]), "{kept:?} of {all:?}");
}
