//! Attach, detach and release by name.

use crate::support::*;
use poolwright_model::composable::{Composability, WhyNotKind};
use poolwright_model::id::{GpuId, HostId};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::step::Verb;
use poolwright_planner::direct::{
    Purpose, Refusal, attach, attach_for, detach, exchange, extend, move_to, release, repair,
};
use poolwright_planner::{Plan, Reserved, check};
use poolwright_sizing::need::Need;

fn ids(names: &[&str]) -> Vec<GpuId> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

fn host(name: &str) -> HostId {
    name.parse().unwrap()
}

fn rack() -> Rack {
    Rack::new()
        .gpus("f/s", "h100", 80.0, 6)
        .gpus("f/s", "l4", 22.0, 1)
        .solder(5..=6)
        .host("h", "f/s", 3)
        .host("other", "f/s", 4)
}

/// Carries out a direct plan, held to all that must be so for every plan.
#[track_caller]
fn done(rack: &mut Rack, plan: Result<Plan, Refusal>) -> Plan {
    let plan = plan.unwrap();
    rack.holds(&plan);
    rack.execute(&plan, 3);
    plan
}

#[test]
fn what_was_attached_by_name_is_extended() {
    let mut rack = rack();
    let plan = attach_for(
        &ids(&["g001"]),
        &host("h"),
        &Purpose::labelled("render farm"),
        &rack.input(),
    );
    done(&mut rack, plan);
    let composition = rack.held[0].id.clone();
    let plan = extend(&ids(&["g002", "g003"]), &composition, &rack.input());
    done(&mut rack, plan);
    assert_eq!(rack.held.len(), 1, "it is one composition");
    let held = &rack.held[0];
    assert_eq!((held.gpu_count(), held.label.as_str()), (3, "render farm"));
    let full = extend(&ids(&["g004"]), &composition, &rack.input());
    assert!(matches!(full, Err(Refusal::NoSlot { .. })), "{full:?}");
    let again = extend(&ids(&["g001"]), &composition, &rack.input());
    assert!(matches!(again, Err(Refusal::Held { .. })), "{again:?}");
    let plan = release(&composition, &rack.input());
    done(&mut rack, plan);
    let gone = extend(&ids(&["g001"]), &composition, &rack.input());
    assert!(
        matches!(gone, Err(Refusal::UnknownComposition { .. })),
        "{gone:?}"
    );
}

#[test]
fn what_was_attached_by_name_has_gpus_exchanged_at_a_full_host_too() {
    let mut rack = rack();
    let plan = attach(&ids(&["g001", "g002", "g003"]), &host("h"), &rack.input());
    done(&mut rack, plan);
    let composition = rack.held[0].id.clone();
    let plan = exchange(&ids(&["g004"]), &ids(&["g001"]), &composition, &rack.input());
    let plan = done(&mut rack, plan);
    let place_of = |verb| plan.steps.iter().position(|step| step.verb == verb).unwrap();
    let unbind = plan.steps[place_of(Verb::Unbind)].index;
    assert!(
        plan.steps[place_of(Verb::Preflight)].after.contains(&unbind),
        "it waits for the slot"
    );
    let has = |rack: &Rack| {
        let held = rack.held.iter().find(|c| c.id == composition);
        let mut gpus: Vec<String> = held.unwrap().gpus().map(ToString::to_string).collect();
        gpus.sort();
        gpus
    };
    assert_eq!(has(&rack), ["g002", "g003", "g004"]);
    assert_eq!(rack.gpu_mut("g001").state, GpuState::Free);

    // All its GPUs, for one.
    let all = ids(&["g002", "g003", "g004"]);
    let plan = exchange(&ids(&["g001"]), &all, &composition, &rack.input());
    done(&mut rack, plan);
    assert_eq!(has(&rack), ["g001"]);

    let plan = attach(&ids(&["g002"]), &host("other"), &rack.input());
    done(&mut rack, plan);
    let refused = |gains: &[&str], gives: &[&str]| {
        exchange(&ids(gains), &ids(gives), &composition, &rack.input()).unwrap_err()
    };
    let foreign = refused(&["g003"], &["g002"]);
    assert!(matches!(foreign, Refusal::Held { .. }), "{foreign:?}");
    let taken = refused(&["g002"], &["g001"]);
    assert!(matches!(taken, Refusal::Held { .. }), "{taken:?}");
    let free = refused(&["g003"], &["g004"]);
    assert!(matches!(free, Refusal::NotHeld { .. }), "{free:?}");
}

#[test]
fn attach_and_detach() {
    let mut rack = rack();
    let plan = attach(&ids(&["g001", "g002"]), &host("h"), &rack.input());
    let plan = done(&mut rack, plan);
    assert_eq!(plan.composes.len(), 1);
    assert_eq!(plan.composes[0].demand, None);
    assert_eq!(rack.gpu_mut("g001").host, Some(host("h")));

    assert!(rack.plan().changes_nothing(), "no demand, and kept all the same");

    let plan = detach(&ids(&["g001"]), &rack.input());
    let plan = done(&mut rack, plan);
    assert_eq!(plan.keeps.len(), 1, "the composition goes on with the other GPU");
    assert_eq!(rack.held[0].gpu_count(), 1);
    let plan = detach(&ids(&["g002"]), &rack.input());
    done(&mut rack, plan);
    assert!(rack.held.is_empty());
    assert_eq!(rack.gpu_mut("g002").state, GpuState::Free);
}

#[test]
fn a_move_is_a_detach_and_an_attach_in_one() {
    let mut rack = rack();
    let plan = attach(&ids(&["g001", "g002"]), &host("h"), &rack.input());
    done(&mut rack, plan);
    let plan = move_to(&ids(&["g002"]), &host("other"), &rack.input());
    let plan = done(&mut rack, plan);
    let verbs: Vec<Verb> = plan.steps.iter().map(|step| step.verb).collect();
    use Verb::{Bind, Drain, Preflight, Ready, Reset, Unbind, Verify};
    assert_eq!(verbs, [Drain, Unbind, Reset, Preflight, Bind, Verify, Ready]);
    assert!(plan.steps[4].after.contains(&2), "it is bound once it was reset");
    assert_eq!(rack.gpu_mut("g002").host, Some(host("other")));
    assert_eq!(rack.gpu_mut("g001").host, Some(host("h")), "it was not named");

    let there = move_to(&ids(&["g002"]), &host("other"), &rack.input());
    assert!(matches!(there, Err(Refusal::ThereAlready { .. })));
    let free = move_to(&ids(&["g003"]), &host("other"), &rack.input());
    assert!(matches!(free, Err(Refusal::NotHeld { .. })));
    let nowhere = move_to(&ids(&["g001"]), &host("nobody"), &rack.input());
    assert!(matches!(nowhere, Err(Refusal::UnknownHost { .. })));
}

#[test]
fn a_dirty_gpu_is_reset_first() {
    let mut rack = rack();
    rack.gpu_mut("g001").state = GpuState::Dirty;
    let plan = attach(&ids(&["g001"]), &host("h"), &rack.input());
    assert_eq!(done(&mut rack, plan).steps[0].verb, Verb::Reset);
}

#[test]
fn the_nearest_port_with_room_is_taken() {
    let mut rack = Rack::new()
        .gpus("f/s1", "h100", 80.0, 3)
        .host_with("h", &[("f/s2", 8), ("f/s1", 2)])
        .cable("f", "s1", "s2");
    let plan = attach(&ids(&["g001", "g002", "g003"]), &host("h"), &rack.input());
    let plan = done(&mut rack, plan);
    let ports: Vec<&str> = plan.composes[0]
        .held
        .iter()
        .map(|held| held.host_port.as_str())
        .collect();
    assert_eq!(ports, ["h/p1", "h/p1", "h/p0"]);
}

#[test]
fn a_release_takes_all_parts() {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 8)
        .host("a", "f/s", 4)
        .host("b", "f/s", 4)
        .want("wide", Need::of_kind("h100", 6).spanning(true))
        .want("other", Need::of_kind("h100", 1));
    rack.apply(1);
    let wide = rack.held.iter().find(|c| c.parts == 2).unwrap().id.clone();
    let plan = release(&wide, &rack.input());
    let plan = done(&mut rack, plan);
    assert_eq!((plan.releases.len(), plan.keeps.len()), (2, 1));
    assert_eq!(
        release(&wide, &rack.input()),
        Err(Refusal::UnknownComposition { composition: wide })
    );
}

#[test]
fn refusals_of_attach() {
    type Spoil = fn(&mut Rack);
    let nothing: Spoil = |_| {};
    let table: [(&[&str], &str, Spoil, &str); 14] = [
        (&[], "h", nothing, "no GPU was named"),
        (&["g999"], "h", nothing, "there is no GPU g999"),
        (&["g001"], "nowhere", nothing, "there is no host nowhere"),
        (
            &["g005"],
            "h",
            nothing,
            "unit board-5 moves as a whole: also g006",
        ),
        (
            &["g001", "g007"],
            "h",
            nothing,
            "these GPUs are of several kinds (h100, l4), and a composition has one",
        ),
        (
            &["g001", "g002", "g003", "g004"],
            "h",
            nothing,
            "host h has no free slot left for GPU g004: 3 free before, 4 needed",
        ),
        (
            &["g001"],
            "h",
            |rack| rack.gpu_mut("g001").ports[0].fabric = "elsewhere".parse().unwrap(),
            "no port of host h reaches GPU g001",
        ),
        (
            &["g001"],
            "h",
            |rack| rack.foreign("g001", "other"),
            "GPU g001 can't be given away: somebody else bound it to other",
        ),
        (
            &["g001"],
            "h",
            |rack| rack.gpu_mut("g001").state = GpuState::Quarantined,
            "GPU g001 can't be given away: it is quarantined",
        ),
        (
            &["g001"],
            "h",
            |rack| {
                rack.reserved = vec![Reserved {
                    unit: "g001".parse().unwrap(),
                    host_port: None,
                }];
            },
            "GPU g001 can't be given away: a running operation has it in hand",
        ),
        (
            &["g001"],
            "h",
            |rack| {
                rack.cordoned.hosts.insert("h".parse().unwrap());
            },
            "host h can't be given GPUs: it is cordoned",
        ),
        (
            &["g001"],
            "h",
            |rack| rack.gpu_mut("g001").control.clear(),
            "GPU g001 can't be given away: no manager can bind its unit, or its kind is unknown",
        ),
        (
            &["g001"],
            "h",
            |rack| {
                rack.cordoned.gpus.insert("g001".parse().unwrap());
            },
            "GPU g001 can't be given away: it is cordoned",
        ),
        (
            &["g001"],
            "h",
            |rack| rack.host_mut("h").ports[0].control = None,
            "host h can't be given GPUs: it has no port that can be bound to",
        ),
    ];
    for (gpus, to, spoil, words) in table {
        let mut rack = rack();
        spoil(&mut rack);
        let refusal = attach(&ids(gpus), &host(to), &rack.input()).unwrap_err();
        assert_eq!(refusal.to_string(), words);
        assert!(!refusal.hint().is_empty());
    }
}

#[test]
fn what_is_held_is_not_attached_twice() {
    let mut rack = rack();
    let plan = attach(&ids(&["g001"]), &host("h"), &rack.input());
    done(&mut rack, plan);
    let refusal = attach(&ids(&["g001"]), &host("other"), &rack.input()).unwrap_err();
    assert!(matches!(refusal, Refusal::Held { .. }), "{refusal}");
    assert!(
        refusal.hint().contains("poolwright detach g001"),
        "{}",
        refusal.hint()
    );
}

#[test]
fn refusals_of_detach() {
    let mut rack = rack().want("d", Need::of_kind("h100", 1));
    rack.apply(1);
    let plan = attach(&ids(&["g005", "g006"]), &host("h"), &rack.input());
    done(&mut rack, plan);
    rack.foreign("g004", "other");
    let refuses = |gpus: &[&str]| detach(&ids(gpus), &rack.input()).unwrap_err();
    assert_eq!(refuses(&[]), Refusal::NoGpus);
    assert!(matches!(refuses(&["g001"]), Refusal::HeldForDemand { .. }));
    assert!(matches!(refuses(&["g004"]), Refusal::NotHeld { .. }), "not ours");
    assert!(matches!(refuses(&["g005"]), Refusal::WholeUnit { .. }));
    rack.gpu_mut("g006").state = GpuState::Indeterminate;
    let refusal = detach(&ids(&["g005", "g006"]), &rack.input()).unwrap_err();
    assert!(matches!(refusal, Refusal::PutOff { .. }), "{refusal}");
}

/// Naming the rest of a board would not help: it can't be moved at all.
#[test]
fn what_cannot_be_moved_is_not_asked_to_be_named_as_a_whole() {
    let mut rack = rack();
    for gpu in ["g005", "g006"] {
        rack.gpu_mut(gpu).composability = Composability::no(WhyNotKind::Soldered, "on a baseboard");
    }
    let refusal = attach(&ids(&["g006"]), &host("h"), &rack.input()).unwrap_err();
    assert!(matches!(refusal, Refusal::NotFree { .. }), "{refusal}");
    assert!(
        refusal.to_string().contains("GPU g006") && refusal.to_string().contains("baseboard"),
        "{refusal}"
    );
}

/// Whole or in part, a composition that a fabric lost is made anew of what it was, and of nothing else.
#[test]
fn what_a_fabric_lost_is_bound_again_where_it_was() {
    let mut rack = rack();
    let plan = attach(&ids(&["g001", "g002"]), &host("h"), &rack.input());
    done(&mut rack, plan);
    let held = rack.held.clone();
    for gpu in ["g001", "g002"] {
        let lost = rack.gpu_mut(gpu);
        (lost.host, lost.host_port, lost.state) = (None, None, GpuState::Dirty);
    }
    for units in [vec!["g001"], vec!["g001", "g002"]] {
        let units = units.iter().map(|unit| unit.parse().unwrap()).collect();
        let plan = repair(&units, &rack.input()).unwrap();
        assert_eq!(check(&plan, &rack.input().world), []);
        assert_eq!(plan.after(&rack.held), held);
        assert_eq!(
            plan.steps.len(),
            7 * units.len(),
            "drain, unbind, reset; preflight, bind, verify, ready"
        );
    }
    rack.gpu_mut("g001").state = GpuState::Indeterminate;
    let units = ["g001".parse().unwrap()].into();
    let refusal = repair(&units, &rack.input()).unwrap_err();
    assert!(matches!(refusal, Refusal::PutOff { .. }), "{refusal}");
}
