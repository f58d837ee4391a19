//! From operations and their plans to who held which GPUs from when to when.
//!
//! A demand's compositions that one operation made are one stay. Invariant: a composition belongs to one stay, and only
//! while it stands.

use super::{Asked, TurnedAway};
use crate::demand::DemandRecord;
use jiff::Timestamp;
use poolwright_executor::{Operation, OperationKind};
use poolwright_model::id::{CompositionId, DemandId};
use poolwright_model::topology::Topology;
use poolwright_model::units::Bytes;
use poolwright_planner::{Composition, Plan, Wanted};
use poolwright_sizing::need::GpuSet;
use std::collections::{BTreeMap, BTreeSet};

pub(super) struct Stays<'a> {
    topology: &'a Topology,
    /// By demand: when it was asked for, and what would do.
    wishes: BTreeMap<DemandId, Vec<(Timestamp, Vec<GpuSet>)>>,
    open: Vec<Stay>,
    over: Vec<Stay>,
}

struct Stay {
    demand: Option<DemandId>,
    asked: Asked,
    /// Those of its compositions that stand.
    standing: BTreeSet<CompositionId>,
    /// Seen to stand in the end.
    confirmed: bool,
    /// Asked for and served by the same operation.
    at_once: bool,
}

impl<'a> Stays<'a> {
    pub fn new(topology: &'a Topology) -> Self {
        Self {
            topology,
            wishes: BTreeMap::new(),
            open: Vec::new(),
            over: Vec::new(),
        }
    }

    /// Somebody wanted this.
    pub fn wish(&mut self, record: &DemandRecord) {
        let need = &record.demand.need;
        self.wanted(&record.spec.id, record.demand.created, &need.alternatives);
    }

    fn wanted(&mut self, demand: &DemandId, since: Timestamp, alternatives: &[GpuSet]) {
        let wish = (since, alternatives.to_vec());
        let wishes = self.wishes.entry(demand.clone()).or_default();
        if !wishes.contains(&wish) {
            wishes.push(wish);
            wishes.sort_by_key(|(at, _)| *at);
        }
    }

    /// An operation has done what its plan says; to be told in the order in which they ended.
    pub fn note(&mut self, operation: &Operation, plan: &Plan) {
        let Some(ended) = operation.ended else { return };
        let made: BTreeSet<&CompositionId> = plan.composes.iter().map(|made| &made.id).collect();
        for gone in plan.releases.iter().filter(|gone| !made.contains(&gone.id)) {
            self.release(&gone.id, ended);
        }
        for Wanted {
            demand,
            since,
            alternatives,
        } in &plan.wanted
        {
            self.wanted(demand, *since, alternatives);
        }
        let mut new: Vec<(Option<&DemandId>, Vec<&Composition>)> = Vec::new();
        for made in &plan.composes {
            if let Some(stay) = self.of(&made.id) {
                stay.asked.gpus = stay.asked.gpus.max(made.gpu_count());
                continue;
            }
            let demand = made.demand.as_ref();
            match new
                .iter_mut()
                .find(|(known, _)| known.is_some() && *known == demand)
            {
                Some((_, parts)) => parts.push(made),
                None => new.push((demand, vec![made])),
            }
        }
        for (_, parts) in new {
            let mut stay = self.begun(&parts, operation.created, ended);
            if operation.kind == OperationKind::Schedule {
                // Until its window opened nobody waited.
                stay.asked.asked = operation.created.min(ended);
            }
            stay.asked.operation = Some(operation.id.clone());
            stay.at_once = operation.kind == OperationKind::Compose;
            self.open.push(stay);
        }
    }

    /// A composition stands now. One that nobody has told of is older than the record.
    pub fn stands(&mut self, composition: &Composition, since: Option<Timestamp>) {
        if let Some(stay) = self.of(&composition.id) {
            stay.confirmed = true;
            return;
        }
        if let Some(since) = since {
            let mut stay = self.begun(&[composition], since, since);
            stay.confirmed = true;
            self.open.push(stay);
        }
    }

    /// All stays, and what was turned away and not served soon after. Of what ended unseen nothing is told.
    pub fn told(self, mut turned_away: Vec<TurnedAway>) -> Vec<Asked> {
        let open = self.open.into_iter().filter(|stay| stay.confirmed);
        let mut asked: Vec<Asked> = Vec::new();
        for mut stay in self.over.into_iter().chain(open) {
            // Refused at first, and asked for again until it was served.
            let before = turned_away.iter().position(|one| {
                let waited = stay.asked.asked.duration_since(one.last);
                Some(&one.demand) == stay.demand.as_ref()
                    && stay.at_once
                    && !waited.is_negative()
                    && waited <= super::SAME
            });
            if let Some(place) = before {
                stay.asked.asked = turned_away.remove(place).first;
            }
            asked.push(stay.asked);
        }
        asked.extend(turned_away.into_iter().map(TurnedAway::told));
        asked
    }

    fn of(&mut self, id: &CompositionId) -> Option<&mut Stay> {
        self.open.iter_mut().find(|stay| stay.standing.contains(id))
    }

    fn release(&mut self, id: &CompositionId, at: Timestamp) {
        let Some(place) = self.open.iter().position(|stay| stay.standing.contains(id)) else {
            return;
        };
        self.open[place].standing.remove(id);
        if self.open[place].standing.is_empty() {
            let mut stay = self.open.swap_remove(place);
            stay.asked.ended = Some(at);
            self.over.push(stay);
        }
    }

    fn begun(&self, parts: &[&Composition], created: Timestamp, served: Timestamp) -> Stay {
        let first = parts[0];
        let (since, sets) = self.wish_for(first.demand.as_ref(), served);
        // Before that it was wanted for a stay that is over.
        let free = self.over.iter().chain(&self.open);
        let mut others = free.filter(|stay| stay.demand.is_some() && stay.demand == first.demand);
        let again = others.any(|stay| stay.asked.asked >= since.unwrap_or(Timestamp::MIN));
        let held = parts.iter().flat_map(|part| part.gpus()).next();
        let held = held
            .and_then(|gpu| self.topology.gpu(gpu))
            .and_then(|gpu| gpu.profile.clone());
        // Any kind would do only where the need names none.
        let any = sets.len() == 1 && sets[0].kind.is_none();
        let least = sets.first().map(|set| set.min_memory_per_gpu);
        let hosts: BTreeSet<_> = parts.iter().map(|part| part.host.clone()).collect();
        Stay {
            demand: first.demand.clone(),
            asked: Asked {
                name: match &first.demand {
                    Some(demand) => demand.to_string(),
                    None => first.id.to_string(),
                },
                tenant: first.tenant.clone(),
                asked: since.filter(|_| !again).unwrap_or(created).min(served),
                served: Some(served),
                ended: None,
                gpus: parts.iter().map(|part| part.gpu_count()).sum(),
                kind: held.filter(|_| !any),
                min_memory: least.filter(|least| any && *least > Bytes::ZERO),
                hosts: hosts.into_iter().collect(),
                refused: None,
                withdrawn: false,
                operation: None,
                expected_s: None,
            },
            standing: parts.iter().map(|part| part.id.clone()).collect(),
            confirmed: false,
            at_once: false,
        }
    }

    /// The last wish for a demand before it was served.
    fn wish_for(&self, demand: Option<&DemandId>, served: Timestamp) -> (Option<Timestamp>, &[GpuSet]) {
        let wishes = demand.and_then(|demand| self.wishes.get(demand));
        let last = wishes.and_then(|wishes| wishes.iter().rev().find(|(at, _)| *at <= served));
        match last {
            Some((at, sets)) => (Some(*at), sets),
            None => (None, &[]),
        }
    }
}
