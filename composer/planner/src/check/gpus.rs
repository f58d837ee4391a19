//! Only what may be given away is given away, once, to a place that can take it.

use super::{Facts, units_of};
use crate::composition::{Composition, Held};
use crate::violation::Violation;
use poolwright_model::composable::WhyNotKind;
use poolwright_model::control::ControlStyle;
use poolwright_model::id::{FabricId, GpuId, SwitchId};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::{Gpu, Health, PowerState, SwitchGraph};
use std::collections::{BTreeSet, HashMap, HashSet};

pub(super) fn check(facts: &Facts<'_>, found: &mut Vec<Violation>) {
    once(facts, found);
    let reserved: HashSet<_> = facts.world.reserved.iter().map(|r| &r.unit).collect();
    for (_, held) in units_of(&facts.plan.releases).chain(units_of(&facts.plan.composes)) {
        if reserved.contains(&held.unit) {
            let unit = held.unit.clone();
            found.push(Violation::InOperation { unit });
        }
    }
    for (_, held) in units_of(&facts.plan.releases) {
        let gpus = held.gpus.iter().filter_map(|id| facts.gpus.get(id));
        let mut seen_at = gpus.filter_map(|gpu| gpu.host_port.as_ref());
        if seen_at.any(|port| *port != held.host_port) {
            found.push(Violation::ReleasedElsewhere {
                unit: held.unit.clone(),
                recorded: held.host_port.clone(),
            });
        }
    }
    let mut ways = Ways::of(facts);
    for (composition, held) in units_of(&facts.plan.composes) {
        is_the_unit(facts, held, found);
        for id in &held.gpus {
            match facts.gpus.get(id) {
                Some(gpu) => may_be_given(facts, held, gpu, found),
                None => found.push(Violation::UnknownGpu { gpu: id.clone() }),
            }
        }
        may_be_given_to(facts, composition, held, &mut ways, found);
    }
}

fn once(facts: &Facts<'_>, found: &mut Vec<Violation>) {
    let mut owner: HashMap<&GpuId, _> = HashMap::new();
    for (id, (_, units)) in &facts.after {
        for gpu in units.iter().flat_map(|held| &held.gpus) {
            if let Some(one) = owner.insert(gpu, *id) {
                found.push(Violation::GpuTwice {
                    gpu: gpu.clone(),
                    one: one.clone(),
                    other: (*id).clone(),
                });
            }
        }
    }
}

fn is_the_unit(facts: &Facts<'_>, held: &Held, found: &mut Vec<Violation>) {
    let named: BTreeSet<&GpuId> = held.gpus.iter().collect();
    let members = facts.members.get(&held.unit);
    let members: BTreeSet<&GpuId> = members.into_iter().flatten().copied().collect();
    if named != members || named.len() != held.gpus.len() || named.is_empty() {
        let unit = held.unit.clone();
        found.push(Violation::NotTheUnit { unit });
    }
    let names: BTreeSet<&String> = named
        .iter()
        .filter_map(|id| facts.gpus.get(*id))
        .flat_map(|gpu| gpu.uuid.iter().chain(&gpu.serial))
        .collect();
    let mut gpus = named.iter().filter_map(|id| facts.gpus.get(*id));
    let has_other_ids = held.ids.is_some() && gpus.any(|gpu| gpu.pci_ids != held.ids);
    if has_other_ids || held.known_as.iter().any(|name| !names.contains(name)) {
        let unit = held.unit.clone();
        found.push(Violation::WrongNames { unit });
    }
}

fn may_be_given(facts: &Facts<'_>, held: &Held, gpu: &Gpu, found: &mut Vec<Violation>) {
    use GpuState as S;
    let id = || gpu.id.clone();
    let ours = facts.released.contains(&held.unit);
    if let Some(why) = &gpu.composability.0
        && !(ours && why.kind == WhyNotKind::Foreign)
    {
        let why = why.clone();
        found.push(Violation::NotComposable { gpu: id(), why });
    }
    if !ours && (gpu.host.is_some() || gpu.host_port.is_some()) {
        found.push(Violation::NotOurs { gpu: id() });
    }
    let free = match gpu.state {
        S::Free | S::Dirty => true,
        S::Bound | S::Attached | S::Foreign => ours,
        _ => false,
    };
    if !free {
        let state = gpu.state;
        found.push(Violation::NotFree { gpu: id(), state });
    }
    let named = gpu.profile.is_some() || gpu.model.is_some() || gpu.pci_ids.is_some();
    if gpu.memory_bytes.is_none() || !named {
        found.push(Violation::UnknownGpu { gpu: id() });
    }
    if gpu.health == Health::Critical {
        found.push(Violation::Unhealthy { gpu: id() });
    }
    if facts.world.cordoned.gpus.contains(&gpu.id) {
        found.push(Violation::GpuCordoned { gpu: id() });
    }
}

fn may_be_given_to<'a>(
    facts: &Facts<'a>,
    composition: &Composition,
    held: &'a Held,
    ways: &mut Ways<'a>,
    found: &mut Vec<Violation>,
) {
    let known = facts.ports.get(&held.host_port);
    let Some((host, port)) = known.filter(|(host, _)| host.id == composition.host) else {
        found.push(Violation::NoSuchPort {
            host: composition.host.clone(),
            port: held.host_port.clone(),
        });
        return;
    };
    if !matches!(host.power_state, PowerState::On | PowerState::Unknown) {
        found.push(Violation::HostOff {
            host: host.id.clone(),
            power: host.power_state,
        });
    }
    if facts.world.cordoned.closes(&host.id) {
        let host = host.id.clone();
        found.push(Violation::HostCordoned { host });
    }
    let gpus = || held.gpus.iter().filter_map(|id| facts.gpus.get(id).copied());
    let named = gpus().all(|gpu| gpu.control.contains(&held.unit_at));
    let one_manager =
        held.unit_at.endpoint == held.port_at.endpoint && held.unit_at.style == held.port_at.style;
    let bindable = held.unit_at.style != ControlStyle::ReadOnly;
    if !(named && one_manager && bindable && port.control.as_ref() == Some(&held.port_at)) {
        found.push(Violation::ControlMismatch {
            unit: held.unit.clone(),
            port: held.host_port.clone(),
        });
    }
    for gpu in gpus() {
        let there = gpu.ports.iter().filter(|at| at.fabric == port.fabric);
        let mut there = there.map(|at| at.switch.as_ref());
        if !there.any(|switch| ways.joined(&port.fabric, port.switch.as_ref(), switch)) {
            found.push(Violation::NotReachable {
                gpu: gpu.id.clone(),
                port: port.id.clone(),
            });
        }
    }
}

/// Which switches are joined by cables, each question asked of the graph once.
struct Ways<'a> {
    graph: SwitchGraph<'a>,
    known: HashMap<(&'a FabricId, &'a SwitchId), HashSet<SwitchId>>,
}

impl<'a> Ways<'a> {
    fn of(facts: &Facts<'a>) -> Self {
        Self {
            graph: facts.world.snapshot.topology.switch_graph(),
            known: HashMap::new(),
        }
    }

    /// A fabric whose switches are not shown counts as one switch.
    fn joined(&mut self, fabric: &'a FabricId, from: Option<&'a SwitchId>, to: Option<&SwitchId>) -> bool {
        let (Some(from), Some(to)) = (from, to) else {
            return true;
        };
        let graph = &self.graph;
        let reached = self.known.entry((fabric, from)).or_insert_with(|| {
            let distances = graph.distances(fabric, from);
            distances.into_keys().cloned().collect()
        });
        reached.contains(to)
    }
}
