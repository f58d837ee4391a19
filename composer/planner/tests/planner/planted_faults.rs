//! For each rule a plan that breaks it, which the check must catch.

use crate::support::*;
use poolwright_model::composable::{Composability, WhyNotKind};
use poolwright_model::control::ControlStyle;
use poolwright_model::id::UnitId;
use poolwright_model::lifecycle::GpuState;
use poolwright_model::step::{Step, Verb};
use poolwright_model::topology::{Health, PowerState};
use poolwright_planner::{Deferral, Deferred, Plan, Reserved, Share, Violation, check};
use poolwright_sizing::need::Need;
use std::collections::BTreeSet;

/// A plan with a bit of everything: `goes` is released from a full host, `stays` is kept, `grows` gains a
/// GPU, `moves-in` takes over the slots, a released GPU goes to others, `wide` is spread, one GPU is dirty, and `too-big` is not served.
fn everything() -> (Rack, Plan) {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 11)
        .gpus("g/s", "l4", 22.0, 5)
        .host("host-1", "f/s", 2)
        .host("host-2", "f/s", 4)
        .host("host-3", "f/s", 4)
        .host("host-4", "g/s", 4)
        .want("goes", Need::of_kind("h100", 2))
        .want("stays", Need::of_kind("l4", 1))
        .want("grows", Need::of_kind("l4", 2));
    rack.apply(1);
    rack.forget("goes");
    rack.forget("grows");
    rack.demand("grows", 0, Need::of_kind("l4", 3));
    rack.demand("moves-in", 1, Need::of_kind("h100", 2));
    rack.demand("wide", 2, Need::of_kind("h100", 8).spanning(true));
    rack.demand("too-big", 0, Need::of_kind("h100", 99));
    rack.gpu_mut("g003").state = GpuState::Dirty;
    rack.gpu_mut("g004").state = GpuState::Dirty;
    rack.gpu_mut("g005").state = GpuState::Dirty;
    let plan = rack.plan();
    (rack, plan)
}

/// The place in `composes` of a demand's first composition.
fn at(plan: &Plan, demand: &str) -> usize {
    let is = |id: Option<&str>| id == Some(demand);
    plan.composes
        .iter()
        .position(|c| is(c.demand.as_ref().map(|d| d.as_str())))
        .unwrap()
}

fn step(plan: &Plan, verb: Verb) -> usize {
    plan.steps.iter().position(|step| step.verb == verb).unwrap()
}

/// The GPU that `moves-in` gets first.
fn given(plan: &Plan) -> String {
    plan.composes[at(plan, "moves-in")].held[0].gpus[0].to_string()
}

#[test]
fn the_plan_is_right_before_anything_is_planted() {
    let (rack, plan) = everything();
    assert_eq!(check(&plan, &rack.world()), vec![]);
    assert_eq!(plan.releases.len(), 1);
    assert_eq!(plan.keeps.len(), 2);
    assert_eq!(plan.unplaced.len(), 1);
    assert_eq!(hosts_of(&plan, "wide").len(), 2);
    assert_eq!(hosts_of(&plan, "moves-in"), [("host-1".into(), 2)]);
    assert!(
        plan.steps
            .iter()
            .any(|step| step.verb == Verb::Preflight && !step.after.is_empty())
    );
}

/// A preflight that waits for an unbind of another unit than its own.
fn waits_for_a_slot(plan: &Plan) -> usize {
    let released = |unit: &UnitId| plan.releases[0].held.iter().any(|held| held.unit == *unit);
    let waits = |s: &Step| s.verb == Verb::Preflight && !s.after.is_empty() && !released(&s.target.unit);
    plan.steps.iter().position(waits).unwrap()
}

type Fault = fn(&mut Plan, &mut Rack);
type StepFault = fn(&mut Plan);

const FAULTS: [(&str, Fault); 59] = [
    ("KeptNotHeld", |plan, _| {
        plan.keeps.push("nobody".parse().unwrap())
    }),
    ("NeitherKeptNorReleased", |plan, _| drop(plan.keeps.pop())),
    ("NeitherKeptNorReleased", |plan, _| {
        plan.keeps.push(plan.releases[0].id.clone())
    }),
    ("NeitherKeptNorReleased", |plan, _| {
        drop(plan.releases[0].held.pop())
    }),
    ("ReleaseNotHeld", |plan, _| {
        let again = plan.releases[0].clone();
        plan.releases.push(again);
    }),
    ("ReleaseNotHeld", |plan, _| {
        plan.releases[0].held[0].host_port = "host-2/p0".parse().unwrap()
    }),
    ("IdTaken", |plan, _| {
        plan.composes[0].id = plan.releases[0].id.clone()
    }),
    ("IdTaken", |plan, _| {
        let at = at(plan, "wide");
        plan.composes[at + 1].id = plan.composes[at].id.clone();
    }),
    ("IdTaken", |plan, _| {
        let at = at(plan, "grows");
        plan.composes[at].host = "host-3".parse().unwrap();
    }),
    ("Empty", |plan, _| plan.composes[0].held.clear()),
    ("DeferredChanged", |plan, _| {
        plan.deferred.push(Deferred {
            composition: plan.releases[0].id.clone(),
            because: Deferral::NotSeen {
                unit: "x".parse().unwrap(),
            },
        });
    }),
    ("PlacedAndUnplaced", |plan, _| {
        plan.unplaced[0].demand = "wide".parse().unwrap()
    }),
    ("GpuTwice", |plan, _| {
        let from = at(plan, "moves-in");
        let held = plan.composes[from].held[0].clone();
        let to = at(plan, "wide");
        plan.composes[to].held[0] = held;
    }),
    ("GpuTwice", |plan, rack| {
        // What somebody keeps is given away once more.
        let kept = rack.held.iter().find(|c| plan.keeps.contains(&c.id)).unwrap();
        let held = kept.held[0].clone();
        plan.composes[0].held[0] = held;
    }),
    ("NotTheUnit", |plan, _| {
        plan.composes[0].held[0].unit = "g001".parse().unwrap()
    }),
    ("NotTheUnit", |plan, _| {
        let gpu = plan.composes[0].held[0].gpus[0].clone();
        plan.composes[0].held[0].gpus.push(gpu);
    }),
    ("NotTheUnit", |plan, rack| {
        let unit: UnitId = given(plan).parse().unwrap();
        let units = &mut rack.topology().units;
        let unit = units.iter_mut().find(|u| u.id == unit).unwrap();
        unit.gpus.push("g999".parse().unwrap());
    }),
    ("NotOurs", |plan, rack| {
        let wide = gpus_of(plan, "wide");
        rack.foreign(wide.last().unwrap(), "host-4");
    }),
    ("NotFree", |plan, rack| {
        rack.gpu_mut(&given(plan)).state = GpuState::Indeterminate
    }),
    ("NotComposable", |plan, rack| {
        rack.gpu_mut(&given(plan)).composability = Composability::no(WhyNotKind::Conflict, "seen twice");
    }),
    ("UnknownGpu", |plan, rack| {
        rack.gpu_mut(&given(plan)).memory_bytes = None
    }),
    ("UnknownGpu", |plan, rack| {
        rack.gpu_mut(&given(plan)).profile = None
    }),
    ("UnknownGpu", |plan, rack| {
        let gpu = given(plan);
        rack.topology().gpus.retain(|other| other.id.as_str() != gpu);
    }),
    ("Unhealthy", |plan, rack| {
        rack.gpu_mut(&given(plan)).health = Health::Critical
    }),
    ("GpuCordoned", |plan, rack| {
        rack.cordoned.gpus = [given(plan).parse().unwrap()].into()
    }),
    ("InOperation", |plan, rack| {
        rack.reserved = vec![Reserved {
            unit: given(plan).parse().unwrap(),
            host_port: None,
        }];
    }),
    ("InOperation", |plan, rack| {
        rack.reserved = vec![Reserved {
            unit: plan.releases[0].held[0].unit.clone(),
            host_port: None,
        }];
    }),
    ("ReleasedElsewhere", |plan, rack| {
        let gpu = plan.releases[0].held[0].gpus[0].to_string();
        rack.gpu_mut(&gpu).host_port = Some("host-2/p0".parse().unwrap());
    }),
    ("NoSuchPort", |plan, _| {
        plan.composes[0].held[0].host_port = "host-9/p0".parse().unwrap()
    }),
    ("NoSuchPort", |plan, _| {
        let wide = at(plan, "wide");
        plan.composes[wide].host = "host-1".parse().unwrap();
    }),
    ("HostOff", |_, rack| {
        rack.host_mut("host-2").power_state = PowerState::Off
    }),
    ("HostCordoned", |_, rack| {
        rack.cordoned.hosts = ["host-2".parse().unwrap()].into()
    }),
    ("NotReachable", |_, rack| {
        rack.host_mut("host-2").ports[0].switch = Some("far".parse().unwrap())
    }),
    ("NotReachable", |plan, rack| {
        rack.gpu_mut(&given(plan)).ports[0].fabric = "g".parse().unwrap()
    }),
    ("ControlMismatch", |plan, _| {
        plan.composes[0].held[0].unit_at.address = "another".into()
    }),
    ("ControlMismatch", |plan, _| {
        plan.composes[0].held[0].port_at.address = "another".into()
    }),
    ("ControlMismatch", |plan, rack| {
        // Both as the snapshot shows them, but not at one manager.
        let held = &mut plan.composes[0].held[0];
        held.port_at = point("elsewhere", "p");
        let host = plan.composes[0].host.to_string();
        rack.host_mut(&host).ports[0].control = Some(point("elsewhere", "p"));
    }),
    ("ControlMismatch", |plan, rack| {
        let held = &mut plan.composes[0].held[0];
        held.unit_at.style = ControlStyle::ReadOnly;
        held.port_at.style = ControlStyle::ReadOnly;
        let (gpu, host) = (held.gpus[0].to_string(), plan.composes[0].host.to_string());
        rack.gpu_mut(&gpu).control[0].style = ControlStyle::ReadOnly;
        rack.host_mut(&host).ports[0].control.as_mut().unwrap().style = ControlStyle::ReadOnly;
    }),
    ("WrongNames", |plan, _| {
        plan.composes[0].held[0].known_as = vec!["GPU-of-somebody".into()]
    }),
    ("WrongNames", |plan, _| {
        let ids = |device: &str| serde_json::json!({"vendor": "10de", "device": device});
        plan.composes[0].held[0].ids = serde_json::from_value(ids("20b0")).unwrap()
    }),
    ("TooManySlots", |_, rack| {
        rack.host_mut("host-2").ports[0].slots = 3
    }),
    ("TooManySlots", |_, rack| {
        rack.host_mut("host-2").ports[0].free_buses = Some(3)
    }),
    ("TooManySlots", |plan, rack| {
        // Somebody else is there meanwhile.
        let free = rack.snapshot.topology.gpus.iter().find(|gpu| {
            let used = plan.composes.iter().any(|c| c.gpus().any(|id| *id == gpu.id));
            !used && gpu.state == GpuState::Free
        });
        let free = free.unwrap().id.to_string();
        rack.foreign(&free, "host-2");
    }),
    ("TooManySlots", |plan, _| {
        // In the end it is right, but a bind no longer waits for the slot.
        let waits = waits_for_a_slot(plan);
        plan.steps[waits].after.clear();
    }),
    ("TooManySlots", |plan, _| {
        // Two binds wait for the same unbind: that of the unit that one of them is for.
        let waits = waits_for_a_slot(plan);
        let unbinds = plan.steps.iter().filter(|s| s.verb == Verb::Unbind);
        let other: Vec<u32> = unbinds
            .map(|s| s.index)
            .filter(|i| !plan.steps[waits].after.contains(i))
            .collect();
        assert_eq!(other.len(), 1);
        plan.steps[waits].after = other;
    }),
    ("TooManyAcross", |_, rack| {
        rack.host_mut("host-2").ports[0].switch = Some("t".parse().unwrap());
        rack.uplinks.most.insert(switch_at("f/t"), 3);
    }),
    ("NoSuchDemand", |_, rack| rack.forget("moves-in")),
    ("WrongTenant", |plan, _| {
        plan.composes[0].tenant = Some("other".parse().unwrap())
    }),
    ("AboveTheLimit", |plan, rack| {
        let tenant = plan.composes[0].tenant.clone().unwrap();
        let most = Some(1);
        rack.promises.shares.insert(
            tenant,
            Share {
                most,
                ..Share::default()
            },
        );
    }),
    ("SeveralKinds", |plan, rack| {
        rack.gpu_mut(&given(plan)).profile = Some("h200".into())
    }),
    ("MemoryTooSmall", |_, rack| {
        rack.forget("moves-in");
        rack.demand("moves-in", 1, need(vec![set(Some("h100"), 2, 90.0, 1)], false));
    }),
    ("NeedNotMet", |_, rack| {
        rack.forget("moves-in");
        rack.demand("moves-in", 1, Need::of_kind("h100", 3));
    }),
    ("NeedNotMet", |_, rack| {
        rack.forget("moves-in");
        rack.demand("moves-in", 1, Need::of_kind("h100", 1));
    }),
    ("NeedNotMet", |_, rack| {
        rack.forget("wide");
        rack.demand("wide", 1, Need::of_kind("h100", 8));
    }),
    ("NeedNotMet", |_, rack| {
        rack.forget("wide");
        rack.demand("wide", 1, need(vec![set(Some("h100"), 8, 0.0, 8)], true));
    }),
    ("GroupBroken", |plan, _| {
        let wide = at(plan, "wide");
        plan.composes.remove(wide);
    }),
    ("GroupBroken", |plan, _| {
        let wide = at(plan, "wide");
        plan.composes[wide].part = 2;
    }),
    ("NotRead", |plan, _| plan.reads.units.clear()),
    ("NotRead", |plan, _| plan.reads.ports.clear()),
];

/// Faults in the steps alone: in the order of [`Verb`], what is missing, what is too much, what is wrong.
const STEP_FAULTS: [(&str, StepFault); 19] = [
    ("StepPlace", |plan| plan.steps[1].index = 7),
    ("StepPlace", |plan| {
        let last = plan.steps.len() as u32 - 1;
        plan.steps[0].after.push(last);
    }),
    ("StepPlace", |plan| plan.steps.swap(0, 1)),
    ("StepMissing", |plan| drop(plan.steps.pop())),
    ("StepMissing", |plan| {
        let reset = step(plan, Verb::Reset);
        plan.steps[reset].verb = Verb::Drain;
    }),
    ("StepExtra", |plan| {
        let mut again = plan.steps[0].clone();
        again.index = plan.steps.len() as u32;
        plan.steps.push(again);
    }),
    ("StepExtra", |plan| plan.steps[0].composition = None),
    ("StepExtra", |plan| {
        plan.steps[0].target.unit = "another".parse().unwrap()
    }),
    ("StepTarget", |plan| {
        plan.steps[0].target.host = "another".parse().unwrap()
    }),
    ("StepTarget", |plan| drop(plan.steps[0].target.gpus.pop())),
    ("StepTarget", |plan| {
        plan.steps[0].target.port_at = point("elsewhere", "x")
    }),
    ("StepTarget", |plan| {
        let bind = step(plan, Verb::Bind);
        plan.steps[bind].target.unit_at = point("elsewhere", "x");
    }),
    ("StepOrder", |plan| {
        let at = step(plan, Verb::Unbind);
        plan.steps[at].after.clear();
    }),
    ("StepOrder", |plan| {
        let at = step(plan, Verb::Reset);
        plan.steps[at].after.clear();
    }),
    ("StepOrder", |plan| {
        let at = step(plan, Verb::Verify);
        plan.steps[at].after.clear();
    }),
    ("StepOrder", |plan| {
        let at = step(plan, Verb::Ready);
        plan.steps[at].after.clear();
    }),
    ("StepOrder", |plan| {
        let at = step(plan, Verb::Bind);
        plan.steps[at].after.clear();
    }),
    ("StepOrder", |plan| {
        // A dirty unit is bound without waiting for its reset.
        let dirty = plan
            .steps
            .iter()
            .find(|s| s.verb == Verb::Reset && s.target.unit.as_str() == "g003");
        let reset = dirty.unwrap().index;
        plan.steps
            .iter_mut()
            .for_each(|s| s.after.retain(|after| *after != reset));
    }),
    ("StepOrder", |plan| {
        // What is released and given to others is bound without waiting for its reset.
        let given = |unit: &UnitId| {
            plan.composes
                .iter()
                .flat_map(|c| &c.held)
                .any(|held| held.unit == *unit)
        };
        let released = plan.releases[0].held.iter().map(|held| held.unit.clone());
        let unit = released.into_iter().find(given).unwrap();
        let of_unit = plan
            .steps
            .iter()
            .find(|s| s.verb == Verb::Reset && s.target.unit == unit);
        let reset = of_unit.unwrap().index;
        plan.steps
            .iter_mut()
            .for_each(|s| s.after.retain(|after| *after != reset));
    }),
];

#[track_caller]
fn catches(rule: &str, number: usize, plan: &Plan, rack: &Rack) {
    let found = check(plan, &rack.world());
    assert!(
        found.iter().any(|v| rule_of(v) == rule),
        "fault {number}, {rule}: {found:#?}"
    );
    assert!(found.iter().all(|v| !v.to_string().is_empty()));
}

#[test]
fn each_planted_fault_is_caught() {
    for (number, (rule, plant)) in FAULTS.iter().enumerate() {
        let (mut rack, mut plan) = everything();
        plant(&mut plan, &mut rack);
        catches(rule, number, &plan, &rack);
    }
    for (number, (rule, plant)) in STEP_FAULTS.iter().enumerate() {
        let (rack, mut plan) = everything();
        plant(&mut plan);
        catches(rule, number, &plan, &rack);
    }
}

#[test]
fn each_rule_has_a_planted_fault() {
    let planted: BTreeSet<&str> = FAULTS.iter().map(|(rule, _)| *rule).collect();
    let in_steps = STEP_FAULTS.iter().map(|(rule, _)| *rule);
    let planted: BTreeSet<&str> = planted.into_iter().chain(in_steps).collect();
    assert_eq!(planted, RULES.into());
}

/// All rules; [`rule_of`] makes the compiler ask for a new one.
const RULES: [&str; 38] = [
    "KeptNotHeld",
    "NeitherKeptNorReleased",
    "ReleaseNotHeld",
    "IdTaken",
    "Empty",
    "DeferredChanged",
    "PlacedAndUnplaced",
    "GpuTwice",
    "NotTheUnit",
    "NotOurs",
    "NotFree",
    "NotComposable",
    "UnknownGpu",
    "Unhealthy",
    "GpuCordoned",
    "InOperation",
    "ReleasedElsewhere",
    "NoSuchPort",
    "HostOff",
    "HostCordoned",
    "NotReachable",
    "ControlMismatch",
    "WrongNames",
    "TooManySlots",
    "NoSuchDemand",
    "WrongTenant",
    "AboveTheLimit",
    "SeveralKinds",
    "MemoryTooSmall",
    "NeedNotMet",
    "GroupBroken",
    "StepPlace",
    "StepMissing",
    "StepExtra",
    "StepTarget",
    "StepOrder",
    "NotRead",
    "TooManyAcross",
];

fn rule_of(violation: &Violation) -> &'static str {
    use Violation as V;
    let at = match violation {
        V::KeptNotHeld { .. } => 0,
        V::NeitherKeptNorReleased { .. } => 1,
        V::ReleaseNotHeld { .. } => 2,
        V::IdTaken { .. } => 3,
        V::Empty { .. } => 4,
        V::DeferredChanged { .. } => 5,
        V::PlacedAndUnplaced { .. } => 6,
        V::GpuTwice { .. } => 7,
        V::NotTheUnit { .. } => 8,
        V::NotOurs { .. } => 9,
        V::NotFree { .. } => 10,
        V::NotComposable { .. } => 11,
        V::UnknownGpu { .. } => 12,
        V::Unhealthy { .. } => 13,
        V::GpuCordoned { .. } => 14,
        V::InOperation { .. } => 15,
        V::ReleasedElsewhere { .. } => 16,
        V::NoSuchPort { .. } => 17,
        V::HostOff { .. } => 18,
        V::HostCordoned { .. } => 19,
        V::NotReachable { .. } => 20,
        V::ControlMismatch { .. } => 21,
        V::WrongNames { .. } => 22,
        V::TooManySlots { .. } => 23,
        V::NoSuchDemand { .. } => 24,
        V::WrongTenant { .. } => 25,
        V::AboveTheLimit { .. } => 26,
        V::SeveralKinds { .. } => 27,
        V::MemoryTooSmall { .. } => 28,
        V::NeedNotMet { .. } => 29,
        V::GroupBroken { .. } => 30,
        V::StepPlace { .. } => 31,
        V::StepMissing { .. } => 32,
        V::StepExtra { .. } => 33,
        V::StepTarget { .. } => 34,
        V::StepOrder { .. } => 35,
        V::NotRead { .. } => 36,
        V::TooManyAcross { .. } => 37,
    };
    RULES[at]
}
