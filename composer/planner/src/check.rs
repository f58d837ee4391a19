//! A second opinion on every plan: reads the plan, the snapshot and the records from the start, and shares
//! no code with the making of a plan. Run by the planner's tests on every plan, before the first step of
//! every apply, and on a saved plan by whoever wants to know.
//!
//! Invariant: a plan for which [`check`] finds nothing can be done in any order that its steps allow, and at
//! no moment is a GPU in two hands, a host port over its limit, or more attached across uplinks because of it than may be.

mod books;
mod gpus;
mod needs;
mod slots;
mod steps;
mod uplinks;

use crate::composition::{Composition, Held};
use crate::plan::{Plan, World};
use crate::violation::Violation;
use poolwright_model::id::{CompositionId, GpuId, HostPortId, UnitId};
use poolwright_model::topology::{Gpu, Host, HostPort};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Every rule that the plan breaks; empty for a plan that may be applied.
pub fn check(plan: &Plan, world: &World<'_>) -> Vec<Violation> {
    let facts = Facts::of(plan, world);
    let mut found = Vec::new();
    books::check(&facts, &mut found);
    gpus::check(&facts, &mut found);
    needs::check(&facts, &mut found);
    steps::check(&facts, &mut found);
    slots::check(&facts, &mut found);
    uplinks::check(&facts, &mut found);
    found
}

/// The plan, what it was made on, and ways to look things up.
struct Facts<'a> {
    plan: &'a Plan,
    world: &'a World<'a>,
    gpus: HashMap<&'a GpuId, &'a Gpu>,
    members: HashMap<&'a UnitId, Vec<&'a GpuId>>,
    ports: HashMap<&'a HostPortId, (&'a Host, &'a HostPort)>,
    held: BTreeMap<&'a CompositionId, &'a Composition>,
    /// Units that the plan releases.
    released: HashSet<&'a UnitId>,
    /// Each composition as it stands when the plan is done, with its units.
    after: BTreeMap<&'a CompositionId, (&'a Composition, Vec<&'a Held>)>,
}

impl<'a> Facts<'a> {
    fn of(plan: &'a Plan, world: &'a World<'a>) -> Self {
        let topology = &world.snapshot.topology;
        let mut members: HashMap<&UnitId, Vec<&GpuId>> = HashMap::new();
        for unit in &topology.units {
            members.insert(&unit.id, unit.gpus.iter().collect());
        }
        for gpu in &topology.gpus {
            let gpus = members.entry(&gpu.unit).or_default();
            if !gpus.contains(&&gpu.id) {
                gpus.push(&gpu.id);
            }
        }
        let ports = topology.hosts.iter();
        let ports = ports.flat_map(|host| host.ports.iter().map(move |port| (&port.id, (host, port))));
        let mut after: BTreeMap<_, (&Composition, Vec<&Held>)> = BTreeMap::new();
        for c in world.held {
            let gone = plan.releases.iter().filter(|release| release.id == c.id);
            let gone: HashSet<&UnitId> = gone.flat_map(|c| &c.held).map(|held| &held.unit).collect();
            let stays = c.held.iter().filter(|held| !gone.contains(&held.unit)).collect();
            after.insert(&c.id, (c, stays));
        }
        for c in &plan.composes {
            let (_, units) = after.entry(&c.id).or_insert((c, Vec::new()));
            units.extend(&c.held);
        }
        after.retain(|_, (_, units)| !units.is_empty());
        Self {
            plan,
            world,
            gpus: topology.gpus.iter().map(|gpu| (&gpu.id, gpu)).collect(),
            members,
            ports: ports.collect(),
            held: world.held.iter().map(|c| (&c.id, c)).collect(),
            released: units_of(&plan.releases).map(|(_, held)| &held.unit).collect(),
            after,
        }
    }
}

/// Every unit of some compositions, with its composition.
fn units_of(compositions: &[Composition]) -> impl Iterator<Item = (&Composition, &Held)> {
    compositions
        .iter()
        .flat_map(|c| c.held.iter().map(move |held| (c, held)))
}
