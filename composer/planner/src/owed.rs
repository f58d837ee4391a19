//! What was lent is owed back: who lent gets it all at a time, and nobody else is given what that takes.
//!
//! Nothing is set aside for it beforehand. A plan is held against the pool as it will be then, with it and without it:
//! whoever lent must get as many GPUs beside what the plan gives away as it would without the plan. So what is lacking
//! already keeps nobody from anything.

use crate::composition::Composition;
use crate::demand::Demand;
use crate::plan::{Cordoned, Plan, PlanInput, Reserved, World};
use crate::settled::settle;
use crate::unplaced::{Help, Reason, Tried, Unplaced};
use jiff::Timestamp;
use poolwright_model::id::{CompositionId, DemandId, HostId, PlanId};
use poolwright_sizing::need::GpuSet;
use std::collections::{BTreeMap, BTreeSet};

/// What is owed at one time.
#[derive(Debug, Clone)]
pub struct Debt {
    pub due: Timestamp,
    /// Who lent, with all that they want then.
    pub lenders: Vec<Demand>,
    /// For people: to whom each of them lent.
    pub lent_to: BTreeMap<DemandId, String>,
    /// Demands that are over by then, as those that borrow: what they hold is free then.
    pub over: BTreeSet<DemandId>,
}

/// A lender that would not get all of it back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    pub lender: DemandId,
    pub lent_to: String,
    pub due: Timestamp,
    /// GPUs that it would lack.
    pub gpus: u32,
}

impl Debt {
    /// What a return takes that nobody has now, and the hosts that it goes to; without what lenders take that are to be
    /// served in this world as they are then.
    pub fn takes(&self, world: &World<'_>) -> (Vec<Reserved>, BTreeSet<HostId>) {
        let has: BTreeSet<_> = world
            .held
            .iter()
            .flat_map(|c| &c.held)
            .map(|held| &held.unit)
            .collect();
        let comes_by_itself = |lender: &&Demand| {
            let mut wanted = world.demands.iter();
            wanted.any(|demand| demand.id == lender.id && demand.need == lender.need)
        };
        let by_themselves = self.lenders.iter().filter(comes_by_itself);
        let by_themselves: BTreeSet<&DemandId> = by_themselves.map(|lender| &lender.id).collect();
        let (_, mut plan) = self.returned(world, world.held);
        plan.composes
            .retain(|c| c.demand.as_ref().is_none_or(|id| !by_themselves.contains(id)));
        let goes_to = plan.composes.iter().map(|c| c.host.clone());
        let taken = plan.composes.iter().flat_map(|c| &c.held);
        let free = taken.filter(|held| !has.contains(&held.unit));
        let free = free.map(|held| Reserved {
            unit: held.unit.clone(),
            host_port: Some(held.host_port.clone()),
        });
        (free.collect(), goes_to.collect())
    }

    /// The first lender that has less of it in the world as it is then than in the world as it is.
    fn breach(&self, world: &World<'_>, then: &World<'_>) -> Option<Breach> {
        let (owed, _) = self.returned(world, world.held);
        let (left, _) = self.returned(then, then.held);
        owed.into_iter().find_map(|(lender, owed)| {
            let gpus = owed.saturating_sub(left.get(&lender).copied().unwrap_or_default());
            (gpus > 0).then(|| Breach {
                lent_to: self.lent_to.get(&lender).cloned().unwrap_or_default(),
                due: self.due,
                lender,
                gpus,
            })
        })
    }

    /// How many GPUs each lender has once all is back that can be, beside these; and the plan of that return.
    fn returned(&self, world: &World<'_>, held: &[Composition]) -> (BTreeMap<DemandId, u32>, Plan) {
        let lenders: BTreeSet<DemandId> = self.lenders.iter().map(|demand| demand.id.clone()).collect();
        let moves = |demand: &DemandId| self.over.contains(demand) || lenders.contains(demand);
        let held: Vec<Composition> = held
            .iter()
            .map(|c| Composition {
                demand: c.demand.clone().filter(moves),
                ..c.clone()
            })
            .collect();
        let cordoned = Cordoned {
            in_part: lenders.clone(),
            ..world.cordoned.clone()
        };
        let plan = crate::plan(&PlanInput {
            id: PlanId::from_lossy("return"),
            parent: None,
            now: self.due,
            seed: 0,
            world: World {
                held: &held,
                demands: &self.lenders,
                cordoned: &cordoned,
                ..*world
            },
        });
        let mut has: BTreeMap<DemandId, u32> = lenders.into_iter().map(|id| (id, 0)).collect();
        for composition in plan.after(&held) {
            if let Some(has) = composition.demand.as_ref().and_then(|id| has.get_mut(id)) {
                *has += composition.gpu_count();
            }
        }
        (has, plan)
    }
}

/// Who would not get back what it lent, if this stood and not what stands in that world.
pub fn breach(debts: &[Debt], world: &World<'_>, after: &[Composition]) -> Option<Breach> {
    let held = world.held.iter().chain(after).flat_map(|c| &c.held);
    let units = held.map(|held| held.unit.clone()).collect();
    let mut snapshot = world.snapshot.clone();
    settle(&mut snapshot.topology, after, &units);
    let then = World {
        snapshot: &snapshot,
        held: after,
        ..*world
    };
    debts.iter().find_map(|debt| debt.breach(world, &then))
}

impl Breach {
    /// Says of a demand that this is why it is not served.
    pub fn explain(&self, unplaced: &mut Unplaced) {
        for tried in &mut unplaced.tried {
            *tried = self.why(&tried.set);
        }
    }

    /// A demand that is not served for this reason, though there is what it needs.
    pub fn keeps(&self, demand: &Demand, holding: Vec<CompositionId>) -> Unplaced {
        Unplaced {
            demand: demand.id.clone(),
            tenant: demand.tenant.clone(),
            label: demand.need.label.clone(),
            tried: demand.need.alternatives.iter().map(|set| self.why(set)).collect(),
            holding,
        }
    }

    fn why(&self, set: &GpuSet) -> Tried {
        Tried {
            set: set.clone(),
            reason: Reason::Owed {
                lender: self.lender.clone(),
                lent_to: self.lent_to.clone(),
                due: self.due,
                gpus: self.gpus,
            },
            helps: vec![Help::WaitForReturn { due: self.due }],
        }
    }
}
