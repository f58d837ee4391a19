//! For all racks and demands: every plan passes the check, can run in any order that it allows, keeps the limits of
//! uplinks, does not touch served demands, and in the end releases all GPUs.

use crate::support::*;
use poolwright_model::id::{CompositionId, FabricId, SwitchId};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::{Health, PowerState};
use poolwright_planner::{Plan, Reason};
use poolwright_sizing::need::{GpuSet, Need};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const KINDS: [(&str, f64); 3] = [("l4", 22.0), ("a100", 40.0), ("h100", 80.0)];
const PLACES: [&str; 4] = ["f/s1", "f/s2", "f/s3", "g/s1"];

#[derive(Debug, Clone)]
struct Shape {
    /// For each place and kind, how many GPUs.
    gpus: Vec<usize>,
    /// Ports by place and slots.
    hosts: Vec<Vec<(usize, u32)>>,
    cabled: bool,
    soldered: bool,
    spoils: Vec<(u8, usize)>,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let gpus = prop::collection::vec(0..6usize, PLACES.len() * KINDS.len());
    let ports = prop::collection::vec((0..PLACES.len(), 0..9u32), 1..3);
    let hosts = prop::collection::vec(ports, 1..6);
    let spoils = prop::collection::vec((0..6u8, 0..100usize), 0..6);
    (gpus, hosts, any::<bool>(), any::<bool>(), spoils).prop_map(|(gpus, hosts, cabled, soldered, spoils)| {
        Shape {
            gpus,
            hosts,
            cabled,
            soldered,
            spoils,
        }
    })
}

fn rack(shape: &Shape) -> Rack {
    let mut rack = Rack::new();
    for (number, count) in shape.gpus.iter().enumerate() {
        let (kind, memory) = KINDS[number % KINDS.len()];
        let first = rack.snapshot.topology.gpus.len() + 1;
        rack = rack.gpus(PLACES[number / KINDS.len()], kind, memory, *count);
        if shape.soldered && *count >= 4 {
            rack = rack.solder(first..=first + number % 3);
        }
    }
    for (number, ports) in shape.hosts.iter().enumerate() {
        let ports: Vec<_> = ports
            .iter()
            .map(|(place, slots)| (PLACES[*place], *slots))
            .collect();
        rack = rack.host_with(&format!("host-{number}"), &ports);
    }
    if shape.cabled {
        rack = rack.cable("f", "s1", "s2").cable("f", "s2", "s3");
    }
    for (what, at) in &shape.spoils {
        let Some(gpu) = rack
            .snapshot
            .topology
            .gpus
            .get(at % rack.snapshot.topology.gpus.len().max(1))
        else {
            continue;
        };
        let id = gpu.id.to_string();
        let host = format!("host-{}", at % shape.hosts.len());
        match what {
            0 => rack.foreign(&id, &host),
            1 => rack.gpu_mut(&id).state = GpuState::Dirty,
            2 => rack.gpu_mut(&id).health = Health::Critical,
            3 => rack.gpu_mut(&id).state = GpuState::Indeterminate,
            4 => rack.cordoned.gpus = [id.parse().unwrap()].into(),
            _ => rack.host_mut(&host).power_state = PowerState::Off,
        }
    }
    rack
}

fn sets() -> impl Strategy<Value = GpuSet> {
    let kinds = prop::option::of(0..KINDS.len());
    let memories = prop::sample::select(vec![0.0, 20.0, 40.0, 70.0]);
    let groups = prop::sample::select(vec![1, 1, 2, 4]);
    (kinds, 1..5u32, memories, groups).prop_map(|(kind, groups_wanted, memory, group)| {
        let kind = kind.map(|kind| KINDS[kind].0);
        set(kind, groups_wanted * group, memory, group)
    })
}

fn needs() -> impl Strategy<Value = Need> {
    (prop::collection::vec(sets(), 1..4), any::<bool>()).prop_map(|(sets, spannable)| need(sets, spannable))
}

/// What happens between two plans: a demand of this number comes or changes, or goes.
fn changes() -> impl Strategy<Value = Vec<(usize, i32, Option<Need>)>> {
    prop::collection::vec((0..6usize, -1..2i32, prop::option::weighted(0.75, needs())), 1..5)
}

fn change(rack: &mut Rack, changes: &[(usize, i32, Option<Need>)]) -> BTreeSet<String> {
    let mut changed = BTreeSet::new();
    for (number, priority, need) in changes {
        let id = format!("demand-{number}");
        rack.forget(&id);
        if let Some(need) = need {
            rack.demand(&id, *priority, need.clone());
        }
        changed.insert(id);
    }
    changed
}

/// What some uplinks may carry.
fn uplinks() -> impl Strategy<Value = BTreeMap<(FabricId, SwitchId), u32>> {
    let some = prop::collection::vec((0..PLACES.len(), 0..6u32), 0..4);
    some.prop_map(|some| {
        let some = some.into_iter();
        some.map(|(place, gpus)| (switch_at(PLACES[place]), gpus))
            .collect()
    })
}

/// Compositions that the plan doesn't touch.
fn untouched(plan: &Plan) -> BTreeSet<&CompositionId> {
    let touched: BTreeSet<_> = plan
        .releases
        .iter()
        .chain(&plan.composes)
        .map(|c| &c.id)
        .collect();
    plan.keeps.iter().filter(|id| !touched.contains(id)).collect()
}

proptest! {
    #[test]
    fn a_life_of_a_rack(
        shape in shapes(),
        rounds in prop::collection::vec((changes(), uplinks()), 1..6),
        seed in any::<u64>(),
    ) {
        let mut rack = rack(&shape);
        for (round, (changes, uplinks)) in rounds.iter().enumerate() {
            // Each round sets new limits, some below the current number.
            rack.uplinks.most = uplinks.clone();
            let changed = change(&mut rack, changes);
            let before = rack.held.clone();
            let plan = rack.apply(seed.wrapping_add(round as u64));
            for composition in before.iter().filter(|c| !changed.contains(c.demand.as_ref().unwrap().as_str())) {
                let waiting = plan.unplaced.iter().any(|u| u.holding.contains(&composition.id));
                let stays = untouched(&plan).contains(&composition.id);
                prop_assert!(stays || !waiting, "{composition:?} was served and not changed\n{plan:#?}");
            }
            let again = rack.plan();
            prop_assert!(again.changes_nothing(), "there is no rest: {again:#?}");
        }
        rack.demands.clear();
        rack.apply(seed);
        prop_assert!(rack.held.is_empty());
        let mut fresh = self::rack(&shape);
        for (gpu, at_first) in rack.topology().gpus.iter_mut().zip(&mut fresh.topology().gpus) {
            // A dirty one that was used is clean now.
            if (gpu.state, at_first.state) == (GpuState::Free, GpuState::Dirty) {
                at_first.state = GpuState::Free;
            }
            prop_assert_eq!(&*gpu, &*at_first);
        }
    }

    /// One more demand changes nothing for those who are served.
    #[test]
    fn a_demand_more_unplaces_nobody(shape in shapes(), first in changes(), more in needs(), priority in -5..5i32) {
        let mut rack = rack(&shape);
        change(&mut rack, &first);
        rack.apply(1);
        rack.demand("one-more", priority, more);
        let plan = rack.plan();
        prop_assert!(plan.releases.is_empty());
        prop_assert_eq!(untouched(&plan).len(), rack.held.len());
    }

    /// Limits above the number of GPUs are like no limits.
    #[test]
    fn wide_uplinks_change_nothing(shape in shapes(), first in changes(), second in changes()) {
        let mut rack = rack(&shape);
        change(&mut rack, &first);
        rack.apply(1);
        change(&mut rack, &second);
        let plan = rack.plan();
        rack.uplinks.most = PLACES.iter().map(|place| (switch_at(place), 1000)).collect();
        prop_assert_eq!(plan, rack.plan());
    }

    /// Uplinks are the reason if and only if the demand would be served without their limits. The suggested help serves
    /// it.
    #[test]
    fn uplinks_are_told_where_they_are_in_the_way(
        shape in shapes(),
        first in changes(),
        more in sets(),
        spans in any::<bool>(),
        uplinks in uplinks(),
    ) {
        let mut rack = rack(&shape);
        change(&mut rack, &first);
        rack.apply(1);
        rack.demands.retain(|demand| rack.held.iter().any(|c| c.demand.as_ref() == Some(&demand.id)));
        rack.demand("last", 0, need(vec![more], spans));
        rack.uplinks.most = uplinks;
        let plan = rack.plan();
        let Some(unplaced) = plan.unplaced.iter().find(|unplaced| unplaced.demand.as_str() == "last") else {
            return Ok(());
        };
        let mut free = rack.clone();
        free.uplinks.most.clear();
        let served = free.plan().unplaced.iter().all(|unplaced| unplaced.demand.as_str() != "last");
        match &unplaced.tried[0].reason {
            Reason::Uplinks { full, largest, needed, ever, .. } => {
                prop_assert!(served && largest < needed && largest <= ever, "{unplaced}");
                if ever < needed {
                    // Nor would it be in an empty pool.
                    let mut empty = rack.clone();
                    empty.demands.retain(|demand| demand.id.as_str() == "last");
                    let plan = empty.plan();
                    prop_assert!(plan.unplaced.iter().any(|unplaced| unplaced.demand.as_str() == "last"), "{unplaced}");
                }
                for full in full {
                    let switch = (full.fabric.clone(), full.switch.clone());
                    rack.uplinks.most.insert(switch, full.needed);
                }
                let raised = rack.plan();
                prop_assert!(raised.unplaced.iter().all(|unplaced| unplaced.demand.as_str() != "last"), "{unplaced}");
            }
            // A need for any kind reports the nearest kind.
            _ if unplaced.tried[0].set.kind.is_none() => {}
            reason => prop_assert!(!served, "{reason}"),
        }
    }

    /// What is not served really has no place: counted by brute force where units are single GPUs.
    #[test]
    fn what_is_not_served_has_no_place(
        shape in shapes().prop_map(|shape| Shape { soldered: false, ..shape }),
        first in changes(),
        one in sets(),
    ) {
        let mut rack = rack(&shape);
        change(&mut rack, &first);
        rack.apply(1);
        rack.demands.retain(|demand| rack.held.iter().any(|c| c.demand.as_ref() == Some(&demand.id)));
        rack.demand("last", 0, need(vec![one.clone()], false));
        let plan = rack.plan();
        let served = plan.composes.iter().any(|c| c.demand.as_ref().unwrap().as_str() == "last");
        prop_assert_eq!(served, most_on_one_host(&rack, &shape, &one) >= u64::from(one.count));
    }
}

/// How many GPUs for a set one host can have at most. Within one group of cabled switches any port reaches any
/// GPU, so it is the lesser of the slots and the GPUs there, summed over the groups.
fn most_on_one_host(rack: &Rack, shape: &Shape, set: &GpuSet) -> u64 {
    let group = |fabric: &str, switch: &str| match (fabric, shape.cabled) {
        ("f", true) => "f".to_owned(),
        _ => format!("{fabric}/{switch}"),
    };
    let used = rack.used_slots();
    let mut most = 0;
    for (kind, memory) in KINDS
        .iter()
        .filter(|(kind, memory)| set.admits(Some(kind), gib(*memory)))
    {
        let mut free: BTreeMap<String, u64> = BTreeMap::new();
        for gpu in &rack.snapshot.topology.gpus {
            let usable = matches!(gpu.state, GpuState::Free | GpuState::Dirty)
                && gpu.host_port.is_none()
                && gpu.health != Health::Critical
                && !rack.cordoned.gpus.contains(&gpu.id)
                && gpu.profile.as_deref() == Some(kind)
                && gpu.memory_bytes == Some(gib(*memory));
            let at = &gpu.ports[0];
            let group = group(at.fabric.as_str(), at.switch.as_ref().unwrap().as_str());
            *free.entry(group).or_default() += u64::from(usable);
        }
        for host in rack
            .snapshot
            .topology
            .hosts
            .iter()
            .filter(|host| host.power_state == PowerState::On)
        {
            let mut slots: BTreeMap<String, u64> = BTreeMap::new();
            for port in &host.ports {
                let used = used.get(&port.id).copied().unwrap_or(0);
                let group = group(port.fabric.as_str(), port.switch.as_ref().unwrap().as_str());
                *slots.entry(group).or_default() += u64::from(port.slots.saturating_sub(used));
            }
            let can = slots
                .iter()
                .map(|(group, slots)| slots.min(free.get(group).unwrap_or(&0)));
            most = most.max(can.sum());
        }
    }
    most
}
