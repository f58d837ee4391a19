//! What calendars want, and what tenants are guaranteed, as windows of the engine.

use super::Ahead;
use super::state::{State, is_alike};
use crate::engine::Millis;
use crate::engine::plan::{Promised, Standing};
use crate::promise::{Ledger, width};
use crate::{Composition, Demand, suits};
use poolwright_model::id::DemandId;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A demand that calendars want for a time.
struct Segment<'s> {
    demand: &'s Demand,
    from: Millis,
    until: Millis,
}

impl<'s> State<'s> {
    /// Demands of calendars that hold what they want now, and until when they want it.
    pub(super) fn served_now(
        &self,
        held: &BTreeMap<&DemandId, Vec<&Composition>>,
    ) -> BTreeMap<DemandId, Millis> {
        let now = self
            .segments()
            .into_iter()
            .filter(|segment| segment.from == self.now);
        let served = now.filter(|segment| {
            let has = held.get(&segment.demand.id);
            has.is_some_and(|has| suits::serves(&self.survey, &segment.demand.need, has))
        });
        served
            .map(|segment| (segment.demand.id.clone(), segment.until))
            .collect()
    }

    /// What calendars want and when, those that a plan serves first before the others.
    fn segments(&self) -> Vec<Segment<'s>> {
        let live = self.live;
        let mut segments = Vec::new();
        let mut open: BTreeMap<&DemandId, Segment<'s>> = BTreeMap::new();
        for Ahead { at, wanted, .. } in &live.ahead {
            let at = self.at(*at).max(self.now);
            let wanted: BTreeMap<&DemandId, &'s Demand> =
                wanted.iter().map(|demand| (&demand.id, demand)).collect();
            let goes_on = |id: &DemandId, segment: &Segment<'_>| {
                wanted
                    .get(id)
                    .is_some_and(|demand| is_alike(&demand.need, &segment.demand.need))
            };
            let (goes_on, over): (BTreeMap<_, _>, BTreeMap<_, _>) =
                open.into_iter().partition(|(id, segment)| goes_on(id, segment));
            open = goes_on;
            segments.extend(over.into_values().map(|segment| Segment { until: at, ..segment }));
            for (id, demand) in wanted {
                open.entry(id).or_insert(Segment {
                    demand,
                    from: at,
                    until: Millis::MAX,
                });
            }
        }
        segments.extend(open.into_values());
        segments.retain(|segment| segment.until > segment.from);
        segments.sort_by_cached_key(|Segment { demand, from, .. }| {
            (
                *from,
                Reverse(demand.priority),
                Reverse(width(demand)),
                Reverse(demand.need.least_total_memory()),
                demand.created,
                demand.id.clone(),
            )
        });
        segments
    }

    pub(super) fn promise_windows(&mut self, served: &BTreeMap<DemandId, Millis>) {
        let live = self.live;
        for ahead in &live.ahead {
            let at = self.at(ahead.at).max(self.now);
            self.labels.entry(at).or_insert_with(|| ahead.label.clone());
        }
        let mut before: Vec<(usize, Millis, Millis, u32)> = Vec::new();
        for segment in self.segments() {
            let Segment { demand, from, until } = segment;
            let (tenant, gpus) = (self.tenant(&demand.tenant), width(demand));
            let is_served = from == self.now && served.contains_key(&demand.id);
            let is_guaranteed = self.is_guaranteed(tenant, gpus, from, &before);
            if !is_served {
                before.push((tenant, from, until, gpus));
                let standing = match is_guaranteed {
                    true => Standing::Guaranteed,
                    false => Standing::Plain,
                };
                self.promise(demand, (from, until), standing);
            }
        }
        let ledger = Ledger::new(live.world.promises, live.world.held);
        for demand in ledger.guaranteed(std::iter::empty()).elsewhere {
            self.plan.is_wanted_elsewhere = true;
            self.promise(demand, (self.now, Millis::MAX), Standing::Waiting);
            let label = format!(
                "demand {}, which tenant {} is guaranteed",
                demand.id, demand.tenant
            );
            self.labels.entry(self.now).or_insert(label);
        }
        self.plan.choose_anew(self.now);
    }

    /// Whether a window would be within its tenant's guarantee, beside what the tenant has then.
    fn is_guaranteed(
        &self,
        tenant: usize,
        gpus: u32,
        at: Millis,
        before: &[(usize, Millis, Millis, u32)],
    ) -> bool {
        let guaranteed = self.plan.shares.share(tenant).guaranteed;
        if guaranteed == 0 {
            return false;
        }
        let ended = self.plan.running.values();
        let ended = ended.filter(|running| running.job.tenant == tenant && running.expected_end <= at);
        let ended: u32 = ended.map(|running| running.job.gpus).sum();
        let open = before
            .iter()
            .filter(|(of, from, until, _)| *of == tenant && *from <= at && *until > at);
        let open: u32 = open.map(|(.., gpus)| *gpus).sum();
        let holds = self.plan.shares.held_by(tenant).saturating_sub(ended);
        holds.saturating_add(open).saturating_add(gpus) <= guaranteed
    }

    fn promise(&mut self, demand: &'s Demand, (from, until): (Millis, Millis), standing: Standing) {
        let id = self.new_id();
        let job = self.job(id, demand, from);
        let shape = self.plan.shape_of(&job);
        let window = Promised {
            job,
            shape,
            until,
            claim: Vec::new(),
            is_late: false,
            standing,
        };
        self.plan.windows.insert((from, id), window);
    }
}
