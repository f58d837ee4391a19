//! At no moment does a host port hold more than it can, in whatever order the steps are done.
//!
//! For each bind we ask for the worst moment at which it may be done: it and all that it waits for are done;
//! of the other steps any set may be done that is closed under "waits for". Each other bind adds, and brings
//! the unbinds that it waits for along. The worst set is a maximum closure, which is what the binds add less
//! the maximum flow from them to the unbinds that they bring.

use super::{Facts, steps, units_of};
use crate::violation::Violation;
use poolwright_model::id::{GpuId, HostPortId};
use poolwright_model::step::{Step, Verb};
use std::collections::{BTreeMap, HashMap, HashSet};

pub(super) fn check(facts: &Facts<'_>, found: &mut Vec<Violation>) {
    let mut binds: BTreeMap<&HostPortId, Vec<&Step>> = BTreeMap::new();
    let mut unbinds: HashMap<&HostPortId, Vec<&Step>> = HashMap::new();
    for step in &facts.plan.steps {
        match step.verb {
            Verb::Bind => binds.entry(&step.target.host_port).or_default().push(step),
            Verb::Unbind => unbinds.entry(&step.target.host_port).or_default().push(step),
            _ => {}
        }
    }
    let used = used(facts);
    for (id, binds) in binds {
        let Some((host, port)) = facts.ports.get(id) else {
            continue;
        };
        let unbinds = unbinds.get(id).map_or(&[][..], Vec::as_slice);
        let more = worst(&facts.plan.steps, &binds, unbinds);
        let Used { seen, recorded } = used.get(id).cloned().unwrap_or_default();
        let hidden = facts.world.snapshot.topology.gpus.iter().filter(|gpu| {
            let here = gpu.host.as_ref() == Some(&host.id) && gpu.host_port.is_none();
            here && gpu.ports.iter().any(|at| at.fabric == port.fabric)
        });
        let limits = [
            (
                Some(i64::from(port.slots)),
                seen.union(&recorded).count() + hidden.count(),
            ),
            (port.free_buses.map(i64::from), recorded.difference(&seen).count()),
        ];
        for (limit, used) in limits {
            let worst = used as i64 + more;
            if let Some(limit) = limit.filter(|limit| worst > *limit) {
                let port = id.clone();
                found.push(Violation::TooManySlots { port, worst, limit });
            }
        }
    }
}

/// GPUs at a port before the plan begins: those seen there, and those that records or operations put there.
#[derive(Default, Clone)]
struct Used<'a> {
    seen: HashSet<&'a GpuId>,
    recorded: HashSet<&'a GpuId>,
}

fn used<'a>(facts: &Facts<'a>) -> HashMap<&'a HostPortId, Used<'a>> {
    let mut used: HashMap<&HostPortId, Used<'_>> = HashMap::new();
    for gpu in &facts.world.snapshot.topology.gpus {
        if let Some(port) = &gpu.host_port {
            used.entry(port).or_default().seen.insert(&gpu.id);
        }
    }
    for (_, held) in units_of(facts.world.held) {
        used.entry(&held.host_port)
            .or_default()
            .recorded
            .extend(&held.gpus);
    }
    for reserved in facts.world.reserved {
        let gpus = facts.members.get(&reserved.unit).into_iter().flatten().copied();
        if let Some(port) = &reserved.host_port {
            used.entry(port).or_default().recorded.extend(gpus);
        }
    }
    used
}

fn gpus(step: &Step) -> i64 {
    step.target.gpus.len() as i64
}

/// By how much more than before a port may hold at the worst moment of any of its binds.
fn worst(steps: &[Step], binds: &[&Step], unbinds: &[&Step]) -> i64 {
    let sizes: Vec<i64> = unbinds.iter().map(|step| gpus(step)).collect();
    let needs: Vec<HashSet<usize>> = binds
        .iter()
        .map(|bind| {
            let before = steps::before(steps, bind.index);
            let waits = |(_, unbind): &(usize, &&Step)| before.contains(&unbind.index);
            unbinds
                .iter()
                .enumerate()
                .filter(waits)
                .map(|(at, _)| at)
                .collect()
        })
        .collect();
    let at_bind = |this: usize| {
        let done: i64 = needs[this].iter().map(|unbind| sizes[*unbind]).sum();
        let others: Vec<(i64, Vec<usize>)> = (0..binds.len())
            .filter(|other| *other != this)
            .map(|other| {
                (
                    gpus(binds[other]),
                    needs[other].difference(&needs[this]).copied().collect(),
                )
            })
            .collect();
        let added: i64 = others.iter().map(|(gpus, _)| gpus).sum();
        gpus(binds[this]) - done + added - flow(&others, &sizes)
    };
    (0..binds.len()).map(at_bind).max().unwrap_or(0)
}

/// The maximum flow from binds to the unbinds that they wait for; each carries as much as its GPUs.
fn flow(binds: &[(i64, Vec<usize>)], unbinds: &[i64]) -> i64 {
    let mut net = Net {
        edges: binds.iter().map(|(_, needs)| needs.as_slice()).collect(),
        carried: HashMap::new(),
        room: unbinds.to_vec(),
    };
    let mut total = 0;
    for (bind, (gpus, _)) in binds.iter().enumerate() {
        for _ in 0..*gpus {
            if !net.push(bind, &mut HashSet::new()) {
                break;
            }
            total += 1;
        }
    }
    total
}

struct Net<'n> {
    edges: Vec<&'n [usize]>,
    /// What goes from a bind to an unbind.
    carried: HashMap<(usize, usize), i64>,
    /// What an unbind can still take.
    room: Vec<i64>,
}

impl Net<'_> {
    /// Sends one more GPU from a bind, moving others aside where that helps.
    fn push(&mut self, bind: usize, tried: &mut HashSet<usize>) -> bool {
        for unbind in self.edges[bind] {
            if !tried.insert(*unbind) {
                continue;
            }
            if self.room[*unbind] > 0 {
                self.room[*unbind] -= 1;
                *self.carried.entry((bind, *unbind)).or_default() += 1;
                return true;
            }
            let into = (0..self.edges.len()).filter(|other| *other != bind);
            let others: Vec<usize> = into
                .filter(|other| self.carried.get(&(*other, *unbind)).is_some_and(|n| *n > 0))
                .collect();
            for other in others {
                if self.push(other, tried) {
                    *self.carried.entry((other, *unbind)).or_default() -= 1;
                    *self.carried.entry((bind, *unbind)).or_default() += 1;
                    return true;
                }
            }
        }
        false
    }
}
