//! The plan never makes uplinks carry more GPUs than their limit, in any order of its steps.
//!
//! For each uplink that binds cross: the unbinds that all of them wait for come before the first bind. Of the rest, the
//! worst case is the GPUs that the binds add less the maximum flow from them to the unbinds that they wait for, as for
//! [slots](super::slots). Where unbinds serve the binds one after the other, as in the planner's plans, that flow is
//! found at once. An uplink above its limit may stay so, but not gain GPUs.

use super::{Facts, steps, units_of};
use crate::violation::Violation;
use poolwright_model::id::{FabricId, GpuId, HostPortId, SwitchId};
use poolwright_model::step::{Step, Verb};
use poolwright_model::topology::{Gpu, HostPort, SwitchGraph};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

type Uplink<'a> = (&'a FabricId, &'a SwitchId);

pub(super) fn check(facts: &Facts<'_>, found: &mut Vec<Violation>) {
    let most = &facts.world.uplinks.most;
    if most.is_empty() || facts.plan.composes.is_empty() {
        return;
    }
    let mut ends = Ends::of(facts);
    let there = there(facts);
    let mut moves: BTreeMap<Uplink<'_>, Moves<'_>> = BTreeMap::new();
    for step in &facts.plan.steps {
        let port = &step.target.host_port;
        let goes = facts.released.contains(&step.target.unit);
        // A unit that is adopted in place adds nothing.
        let adds = |gpu: &&GpuId| goes || !there.contains(&(*gpu, port));
        let gpus = || step.target.gpus.iter();
        match step.verb {
            Verb::Bind => {
                for (uplink, gpus) in ends.count(gpus().filter(adds).map(|gpu| (gpu, port))) {
                    moves.entry(uplink).or_default().binds.push((step, gpus));
                }
            }
            Verb::Unbind => {
                for (uplink, gpus) in ends.count(gpus().map(|gpu| (gpu, port))) {
                    moves.entry(uplink).or_default().unbinds.push((step, gpus));
                }
            }
            _ => {}
        }
    }
    moves.retain(|_, moves| !moves.binds.is_empty());
    if moves.is_empty() {
        return;
    }
    let carried = ends.count(there.iter().copied());
    for ((fabric, switch), moves) in moves {
        let Some(most) = most.get(&(fabric.clone(), switch.clone())) else {
            continue;
        };
        let carried = carried.get(&(fabric, switch)).copied().unwrap_or(0);
        let limit = i64::from(*most).max(carried);
        let worst = carried + moves.worst(&facts.plan.steps, limit - carried);
        if worst > limit {
            found.push(Violation::TooManyAcross {
                fabric: fabric.clone(),
                switch: switch.clone(),
                worst,
                most: *most,
            });
        }
    }
}

/// GPUs at their observed ports, and at the ports of records and operations.
fn there<'a>(facts: &Facts<'a>) -> BTreeSet<(&'a GpuId, &'a HostPortId)> {
    let mut there = BTreeSet::new();
    for gpu in &facts.world.snapshot.topology.gpus {
        let of_host = || {
            let host = facts.world.snapshot.topology.host(gpu.host.as_ref()?)?;
            let ports = host.ports.iter();
            let near = ports.filter(|port| gpu.ports.iter().any(|at| at.fabric == port.fabric));
            // The port is unknown: assume one at the GPU's switch, if there is one.
            near.min_by_key(|port| {
                let same = |at: &_| is_near(port, at);
                (!gpu.ports.iter().any(same), &port.id)
            })
        };
        let port = match &gpu.host_port {
            Some(port) => Some(port),
            None => of_host().map(|port| &port.id),
        };
        there.extend(port.map(|port| (&gpu.id, port)));
    }
    let recorded = units_of(facts.world.held).map(|(_, held)| held);
    there.extend(recorded.flat_map(|held| held.gpus.iter().map(move |gpu| (gpu, &held.host_port))));
    for reserved in facts.world.reserved {
        let gpus = facts.members.get(&reserved.unit).into_iter().flatten();
        if let Some(port) = &reserved.host_port {
            there.extend(gpus.map(|gpu| (*gpu, port)));
        }
    }
    there
}

fn is_near(port: &HostPort, at: &poolwright_model::topology::FabricPort) -> bool {
    let (here, there) = (port.switch.as_ref(), at.switch.as_ref());
    at.fabric == port.fabric && (here.is_none() || there.is_none() || here == there)
}

/// Between which switches GPUs are attached.
struct Ends<'f, 'a> {
    facts: &'f Facts<'a>,
    graph: SwitchGraph<'a>,
    known: HashMap<Uplink<'a>, BTreeMap<SwitchId, u32>>,
}

impl<'f, 'a> Ends<'f, 'a> {
    fn of(facts: &'f Facts<'a>) -> Self {
        Self {
            facts,
            graph: facts.world.snapshot.topology.switch_graph(),
            known: HashMap::new(),
        }
    }

    /// How many of these count in each uplink.
    fn count<'i>(
        &mut self,
        attached: impl Iterator<Item = (&'i GpuId, &'i HostPortId)>,
    ) -> BTreeMap<Uplink<'a>, i64> {
        let mut counts = BTreeMap::new();
        for (gpu, port) in attached {
            let known = self.facts.gpus.get(gpu).zip(self.facts.ports.get(port));
            let Some((gpu, (_, port))) = known else { continue };
            for switch in self.between(port, gpu).into_iter().flatten() {
                *counts.entry((&port.fabric, switch)).or_insert(0) += 1;
            }
        }
        counts
    }

    /// The switches of a port and a GPU, where these are two.
    fn between(&mut self, port: &'a HostPort, gpu: &'a Gpu) -> Option<[&'a SwitchId; 2]> {
        let here = port.switch.as_ref()?;
        if gpu.ports.iter().any(|at| is_near(port, at)) {
            return None;
        }
        let there = gpu.ports.iter().filter(|at| at.fabric == port.fabric);
        let there: BTreeSet<&SwitchId> = there.filter_map(|at| at.switch.as_ref()).collect();
        if there.len() < 2 {
            return there.into_iter().next().map(|there| [here, there]);
        }
        let graph = &self.graph;
        let far = self.known.entry((&port.fabric, here)).or_insert_with(|| {
            let far = graph.distances(&port.fabric, here).into_iter();
            far.map(|(switch, hops)| (switch.clone(), hops)).collect()
        });
        let nearest = there
            .into_iter()
            .min_by_key(|there| (far.get(*there).copied().unwrap_or(u32::MAX), *there));
        nearest.map(|there| [here, there])
    }
}

/// What a plan does across one uplink, with how many GPUs.
#[derive(Default)]
struct Moves<'s> {
    binds: Vec<(&'s Step, i64)>,
    unbinds: Vec<(&'s Step, i64)>,
}

impl Moves<'_> {
    /// By how much more than before the uplink may carry at the worst moment of any of its binds; more precisely only where
    /// it may be more than this.
    fn worst(&self, steps: &[Step], allowed: i64) -> i64 {
        let added: i64 = self.binds.iter().map(|(_, gpus)| gpus).sum();
        if added <= allowed {
            return added;
        }
        let places: HashMap<u32, usize> = (self.unbinds.iter().enumerate())
            .map(|(at, (step, _))| (step.index, at))
            .collect();
        let needs = |(bind, _): &(&Step, i64)| -> BTreeSet<usize> {
            let before = steps::before(steps, bind.index).into_iter();
            before.filter_map(|step| places.get(&step).copied()).collect()
        };
        let mut needs: Vec<BTreeSet<usize>> = self.binds.iter().map(needs).collect();
        let mut common = needs.first().cloned().unwrap_or_default();
        for others in &needs {
            common.retain(|unbind| others.contains(unbind));
        }
        let first: i64 = common.iter().map(|unbind| self.unbinds[*unbind].1).sum();
        for needs in &mut needs {
            needs.retain(|unbind| !common.contains(unbind));
        }
        added - first - self.flow(&needs)
    }

    /// The maximum flow from binds to the unbinds that they wait for; each carries as much as its GPUs.
    fn flow(&self, needs: &[BTreeSet<usize>]) -> i64 {
        let mut room: Vec<i64> = self.unbinds.iter().map(|(_, gpus)| *gpus).collect();
        // The flow from each bind to each unbind.
        let mut sent: Vec<BTreeMap<usize, i64>> = vec![BTreeMap::new(); needs.len()];
        let mut users: Vec<Vec<usize>> = vec![Vec::new(); room.len()];
        for (bind, needs) in needs.iter().enumerate() {
            needs.iter().for_each(|unbind| users[*unbind].push(bind));
        }
        let mut total = 0;
        for (bind, (_, gpus)) in self.binds.iter().enumerate() {
            let mut left = *gpus;
            for unbind in &needs[bind] {
                let sends = left.min(room[*unbind]);
                if sends > 0 {
                    room[*unbind] -= sends;
                    *sent[bind].entry(*unbind).or_default() += sends;
                    left -= sends;
                }
            }
            total += gpus - left;
            while left > 0 && push(bind, needs, &users, &mut room, &mut sent) {
                left -= 1;
                total += 1;
            }
        }
        total
    }
}

/// Sends one more GPU from a bind, moving others aside: along the shortest way to an unbind that has room.
fn push(
    bind: usize,
    needs: &[BTreeSet<usize>],
    users: &[Vec<usize>],
    room: &mut [i64],
    sent: &mut [BTreeMap<usize, i64>],
) -> bool {
    // From which bind each unbind was come to.
    let mut from: HashMap<usize, usize> = HashMap::new();
    let mut through: HashMap<usize, usize> = HashMap::new();
    let mut seen = HashSet::from([bind]);
    let mut open = std::collections::VecDeque::from([bind]);
    while let Some(at) = open.pop_front() {
        for unbind in &needs[at] {
            if from.contains_key(unbind) {
                continue;
            }
            from.insert(*unbind, at);
            if room[*unbind] > 0 {
                room[*unbind] -= 1;
                let mut last = *unbind;
                loop {
                    let by = from[&last];
                    *sent[by].entry(last).or_default() += 1;
                    let Some(before) = through.get(&by).copied() else {
                        return true;
                    };
                    if let Some(less) = sent[by].get_mut(&before) {
                        *less -= 1;
                    }
                    last = before;
                }
            }
            for other in &users[*unbind] {
                if sent[*other].get(unbind).is_some_and(|sent| *sent > 0) && seen.insert(*other) {
                    through.insert(*other, *unbind);
                    open.push_back(*other);
                }
            }
        }
    }
    false
}
