//! Which jobs that run are to make way: for what calendars want, for what tenants are guaranteed, and for jobs of higher
//! priority that preempt.

use super::line::{Lacking, Line, RunningJob, Then, WaitingJob};
use super::outlook::{MOST_KEPT, Place, Stop};
use crate::{Composition, Demand, World};
use jiff::Timestamp;
use poolwright_model::id::{DemandId, TenantId};
use std::collections::{BTreeMap, BTreeSet};

impl Line<'_> {
    /// Which jobs that may be stopped are to make way, and when. The highest priority and the longest run go last.
    pub(super) fn stops(&self, places: &[Place]) -> Vec<Stop> {
        let mut stops = self.for_calendars();
        if !places.iter().any(Place::claims_room) {
            return stops;
        }
        // GPUs that are being released, or that an operation has in hand, count as available: no other job stops for
        // them.
        let world = World {
            reserved: &self.of_clients(),
            ..self.world
        };
        let settled = Line {
            world,
            ..self.clone()
        };
        settled.for_waiting(places, &mut stops);
        stops
    }

    /// For what calendars want.
    fn for_calendars(&self) -> Vec<Stop> {
        let mut stops: Vec<Stop> = Vec::new();
        for ahead in &self.ahead {
            let told = |id: &DemandId| stops.iter().any(|stop| stop.demand == *id);
            let there = |id: &DemandId| {
                self.may_stop()
                    .any(|(other, ends)| other == id && ends > ahead.at)
            };
            let mut candidates = self.least_first(|id| there(id) && !told(id));
            // Each edge takes a trial plan, and calendars have edges for weeks.
            if candidates.is_empty() {
                continue;
            }
            let lacking = self.lacking_at(ahead.at, &[], &BTreeSet::new());
            let spared = self.within_their_share(&lacking);
            candidates.retain(|id| !spared.contains(id));
            let lacks = |gone: &BTreeSet<DemandId>| self.lacking_at(ahead.at, &[], gone).count();
            let before: BTreeSet<DemandId> = stops.iter().map(|stop| stop.demand.clone()).collect();
            for demand in fewest(&candidates, &before, lacks) {
                stops.push(Stop {
                    demand,
                    at: ahead.at,
                    label: ahead.label.clone(),
                });
            }
        }
        stops
    }

    /// For jobs that have no room: those that are guaranteed, and those that preempt.
    fn for_waiting(&self, places: &[Place], stops: &mut Vec<Stop>) {
        let leaving = self.running.iter().filter(|job| job.is_leaving);
        let leaving: BTreeSet<DemandId> = leaving.map(|job| job.demand.clone()).collect();
        let mut kept: Vec<Composition> = Vec::new();
        for place in places.iter().filter(|place| place.claims_room()).take(MOST_KEPT) {
            let Some(job) = self.waiting_job(&place.demand) else {
                continue;
            };
            let told = stops.iter().map(|stop| &stop.demand);
            let before: BTreeSet<DemandId> = told.chain(&leaving).cloned().collect();
            let served = |gone: &BTreeSet<DemandId>| {
                let then = Then {
                    at: self.now,
                    beside: &kept,
                    gone,
                    spare: &BTreeSet::new(),
                };
                self.at(&job.demand, &then)
            };
            let lacks = |gone: &BTreeSet<DemandId>| usize::from(served(gone).is_err());
            let mut may_go = self.lower_than(job, &before);
            if place.guaranteed {
                may_go.extend(self.above_their_share(&job.demand.tenant));
            }
            let candidates = self.least_first(|id| may_go.contains(id) && !before.contains(id));
            let new = fewest(&candidates, &before, lacks);
            let gone = before.iter().chain(&new).cloned().collect();
            let composes = served(&gone).unwrap_or_default();
            kept.extend(composes);
            let Demand {
                id, tenant, priority, ..
            } = &job.demand;
            let label = match place.guaranteed {
                true => format!("what tenant {tenant} is guaranteed"),
                false => format!("job {id}, of priority {priority}"),
            };
            stops.extend(new.into_iter().map(|demand| Stop {
                demand,
                at: self.now,
                label: label.clone(),
            }));
        }
    }

    fn may_stop(&self) -> impl Iterator<Item = (&DemandId, Timestamp)> {
        self.running
            .iter()
            .filter(|job| job.may_stop)
            .map(|job| (&job.demand, job.ends))
    }

    /// Running jobs that may be stopped, whoever is to be stopped first before the others.
    fn least_first(&self, takes: impl Fn(&DemandId) -> bool) -> Vec<DemandId> {
        let mut jobs: Vec<_> = self
            .running
            .iter()
            .filter(|job| job.may_stop && takes(&job.demand))
            .collect();
        jobs.sort_by(|a, b| (a.priority, b.began, &a.demand).cmp(&(b.priority, a.began, &b.demand)));
        jobs.into_iter().map(|job| job.demand.clone()).collect()
    }

    /// Jobs of tenants that hold no more than they are guaranteed, where that goes before all that is lacking.
    fn within_their_share(&self, lacking: &Lacking) -> BTreeSet<DemandId> {
        let holds = self.holds();
        let within = |job: &&RunningJob| {
            let holds = holds.get(&job.tenant).copied().unwrap_or_default();
            holds <= self.share(&job.tenant).guaranteed && lacking.count_before(&job.tenant, true) == 0
        };
        let jobs = self.running.iter().filter(within);
        jobs.map(|job| job.demand.clone()).collect()
    }

    /// Jobs of other tenants that hold more than they are guaranteed.
    fn above_their_share(&self, but: &TenantId) -> BTreeSet<DemandId> {
        let above = self.above();
        let jobs = self
            .running
            .iter()
            .filter(|job| job.tenant != *but && above.contains(&job.tenant));
        jobs.map(|job| job.demand.clone()).collect()
    }

    /// Jobs of lower priority that a waiting one may preempt besides those that are stopped before. Every other tenant
    /// keeps its guarantee, even if all of them stop.
    fn lower_than(&self, job: &WaitingJob, before: &BTreeSet<DemandId>) -> BTreeSet<DemandId> {
        if !job.preempts {
            return BTreeSet::new();
        }
        let running: BTreeMap<&DemandId, &RunningJob> =
            self.running.iter().map(|job| (&job.demand, job)).collect();
        let gpus = |of: &DemandId| -> u32 {
            let held = self.world.held.iter().filter(|c| c.demand.as_ref() == Some(of));
            held.map(Composition::gpu_count).sum()
        };
        let mut holds = self.holds();
        for stopped in before.iter().filter_map(|stopped| running.get(stopped)) {
            if let Some(holds) = holds.get_mut(&stopped.tenant) {
                *holds = holds.saturating_sub(gpus(&stopped.demand));
            }
        }
        let Demand { tenant, priority, .. } = &job.demand;
        let mut lower = self.least_first(|id| !before.contains(id) && running[id].priority < *priority);
        lower.retain(|id| {
            let of = &running[id].tenant;
            let (has, goes) = (holds.get(of).copied().unwrap_or_default(), gpus(id));
            let is_free = of == tenant || has.saturating_sub(goes) >= self.share(of).guaranteed;
            if is_free {
                holds.insert(of.clone(), has.saturating_sub(goes));
            }
            is_free
        });
        lower.into_iter().collect()
    }

    /// Tenants that hold more than they are guaranteed.
    fn above(&self) -> BTreeSet<TenantId> {
        let holds = self.holds().into_iter();
        let above = holds.filter(|(tenant, holds)| *holds > self.share(tenant).guaranteed);
        above.map(|(tenant, _)| tenant).collect()
    }
}

/// Of the candidates those that must go so that as little is lacking as if all went; none, if that is no less.
fn fewest(
    candidates: &[DemandId],
    gone_anyway: &BTreeSet<DemandId>,
    lacks: impl Fn(&BTreeSet<DemandId>) -> usize,
) -> Vec<DemandId> {
    if candidates.is_empty() {
        return Vec::new();
    }
    let mut gone: BTreeSet<DemandId> = gone_anyway.iter().chain(candidates).cloned().collect();
    let least = lacks(&gone);
    if lacks(gone_anyway) <= least {
        return Vec::new();
    }
    for candidate in candidates.iter().rev() {
        gone.remove(candidate);
        if lacks(&gone) > least {
            gone.insert(candidate.clone());
        }
    }
    candidates
        .iter()
        .filter(|candidate| gone.contains(*candidate))
        .cloned()
        .collect()
}
