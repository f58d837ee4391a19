//! Why jobs wait: each is looked at in its turn, beside all that starts before it.

use super::state::State;
use super::{Because, Chosen, Place, Reservation, Verdict};
use crate::decide::Changes;
use crate::engine::decide::{Decision, Pass};
use crate::engine::plan::Plan;
use crate::engine::{Job, JobId, Millis};
use crate::room::{Freshness, Taken};
use crate::why;
use crate::{Demand, Unplaced};
use std::collections::{BTreeMap, BTreeSet};

/// A job in its turn.
pub(super) struct Judged {
    pub job: JobId,
    pub is_guaranteed: bool,
    pub why: Why,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    Starts,
    NoRoom,
    Behind(JobId),
    Wanted(Millis),
    Share { holds: u32, most: u32 },
    NotBefore,
    InMotion,
}

/// How long jobs of a view and a shape may run at most, once asked.
type Longest = BTreeMap<(usize, usize), Option<Millis>>;

impl State<'_> {
    /// Looks at all jobs in the order of their turns; `before` is the plan before what starts now.
    pub(super) fn judge(&self, before: Plan) -> Vec<Judged> {
        let mut walker = before;
        walker.line_up_all(self.jobs(), self.now);
        let mut pass = Pass::of(&walker, self.now);
        let mut longest = Longest::new();
        let mut judged = Vec::new();
        while let Some(decision) = walker.first(&mut pass) {
            let job = decision.rank.1;
            let is_guaranteed = walker.is_guaranteed(decision.lane);
            let why = match self.plan.running.get(&job) {
                Some(started) => {
                    let taken = started.taken.clone();
                    walker.begin(&decision, taken, self.now);
                    pass.measure(&walker, self.now);
                    longest.clear();
                    Why::Starts
                }
                None => {
                    let why = self.why(&walker, &decision, &mut pass, &mut longest);
                    walker.forget(&decision);
                    why
                }
            };
            judged.push(Judged {
                job,
                is_guaranteed,
                why,
            });
        }
        judged
    }

    fn jobs(&self) -> Vec<Job> {
        let starts = self.plan.starts().iter().map(|start| start.job);
        let others = self.plan.waiting.values().chain(self.put_off.values());
        starts.chain(others.copied()).collect()
    }

    fn why(&self, walker: &Plan, decision: &Decision, pass: &mut Pass, known: &mut Longest) -> Why {
        let Decision { lane, rank, turn } = decision;
        let shape = &walker.shapes[lane.shape];
        if !walker.shares.allows(lane.tenant, shape.gpus) {
            let holds = walker.shares.held_by(lane.tenant);
            let most = walker.shares.share(lane.tenant).most.unwrap_or_default();
            return Why::Share { holds, most };
        }
        let job = match (self.put_off.contains_key(&rank.1), walker.waiting.get(&rank.1)) {
            (true, _) | (_, None) => return Why::NotBefore,
            (false, Some(job)) => job,
        };
        if self.plan.unsettled.is_some_and(|first| first < *turn) {
            return Why::InMotion;
        }
        let end = job
            .limit
            .map_or(Millis::MAX, |limit| self.now.saturating_add(limit));
        let view = pass.view(walker, *lane, self.now);
        let rooms = &mut pass.views[view];
        if !walker.closures.is_empty() {
            let mut open = rooms.open[0].clone();
            open.close(walker.closed_within(self.now, end));
            if !shape.fits(&mut open) {
                return Why::NoRoom;
            }
        }
        let longest = known
            .entry((view, lane.shape))
            .or_insert_with(|| rooms.longest(shape, self.now));
        match longest {
            None => Why::NoRoom,
            Some(most) if end > self.now.saturating_add(*most) => Why::Wanted(self.now.saturating_add(*most)),
            Some(_) => {
                let others = self.plan.places.iter().filter(|place| place.job != rank.1);
                let own = self.plan.places.iter().position(|place| place.job == rank.1);
                let before = others.take(own.unwrap_or(usize::MAX)).next();
                before.map_or(Why::InMotion, |place| Why::Behind(place.job))
            }
        }
    }

    /// In the manager's terms.
    pub(super) fn places(&mut self, judged: Vec<Judged>) -> Vec<Place> {
        let mut shortages: BTreeMap<(usize, Vec<usize>), Unplaced> = BTreeMap::new();
        let places = judged.into_iter().filter_map(|judged| {
            let waits = *self.waiting.get(&judged.job)?;
            Some(Place {
                demand: waits.demand.id.clone(),
                guaranteed: judged.is_guaranteed,
                preempts: waits.preempts,
                verdict: match judged.why {
                    Why::Starts => Verdict::Starts(self.chosen(judged.job)),
                    why => Verdict::Waits {
                        because: self.because(&judged, why, &mut shortages),
                        reserved: self.reservation(judged.job),
                    },
                },
            })
        });
        places.collect()
    }

    fn because(
        &mut self,
        judged: &Judged,
        why: Why,
        shortages: &mut BTreeMap<(usize, Vec<usize>), Unplaced>,
    ) -> Because {
        let waits = self.waiting[&judged.job];
        match why {
            Why::NoRoom => Because::NoRoom(self.shortage(judged.job, &waits.demand, shortages)),
            Why::Behind(job) => Because::Behind {
                job: self
                    .waiting
                    .get(&job)
                    .map_or_else(|| waits.demand.id.clone(), |job| job.demand.id.clone()),
                at: self.place_of(job).map_or(self.live.now, |at| self.timestamp(at)),
            },
            Why::Wanted(at) => Because::Wanted {
                label: self.label(at),
                at: self.timestamp(at),
            },
            Why::Share { holds, most } => Because::Share { holds, most },
            Why::NotBefore => Because::NotBefore(waits.not_before.unwrap_or(self.live.now)),
            Why::Starts | Why::InMotion => Because::InMotion,
        }
    }

    fn place_of(&self, job: JobId) -> Option<Millis> {
        let place = self.plan.places.iter().find(|place| place.job == job)?;
        Some(place.reserved.at)
    }

    /// What a job lacks, found once for all that want the same.
    fn shortage(
        &mut self,
        job: JobId,
        demand: &Demand,
        known: &mut BTreeMap<(usize, Vec<usize>), Unplaced>,
    ) -> Unplaced {
        let waiting = self.plan.waiting.get(&job).copied();
        let (class, end) = waiting.map_or((usize::MAX, self.now), |job| {
            (
                job.class,
                job.limit
                    .map_or(Millis::MAX, |limit| self.now.saturating_add(limit)),
            )
        });
        let closed = self.plan.closed_within(self.now, end);
        let key = (class, closed.iter().copied().collect());
        let known = known.entry(key).or_insert_with(|| {
            let mut room = self.plan.room.clone();
            room.close(closed);
            std::mem::swap(&mut self.capacity.room, &mut room);
            let found = why::not_placed(&self.survey, &mut self.capacity, &Changes::default(), demand);
            self.capacity.room = room;
            found
        });
        Unplaced {
            demand: demand.id.clone(),
            tenant: demand.tenant.clone(),
            label: demand.need.label.clone(),
            ..known.clone()
        }
    }

    /// The units that a job starts on.
    fn chosen(&mut self, job: JobId) -> Chosen {
        let taken = self
            .plan
            .running
            .get(&job)
            .map(|running| running.taken.clone())
            .unwrap_or_default();
        let hosts = taken
            .iter()
            .map(|taken| self.capacity.host_id(taken.host).clone())
            .collect();
        let units = self.units(&taken);
        let gpus = units.into_iter().flat_map(|unit| &self.survey.units[unit].gpus);
        Chosen {
            gpus: gpus.map(|gpu| gpu.id.clone()).collect(),
            hosts,
        }
    }

    /// Chooses free units; retained ones where they are attached, if possible.
    fn units(&mut self, taken: &[Taken]) -> Vec<usize> {
        let mut units = Vec::new();
        for unit in taken {
            let is_alike = |other: &usize| self.capacity.shelf_of(*other) == Some(unit.shelf);
            let here = self.retained.get(&(unit.host, unit.port)).into_iter().flatten();
            let here = here
                .copied()
                .filter(|_| unit.freshness == Freshness::Released)
                .find(is_alike);
            let chosen = match here {
                Some(retained) => {
                    self.capacity.choose(retained);
                    Some(retained)
                }
                None => self.capacity.name(&[*unit]).first().map(|(unit, _)| *unit),
            };
            let is_left = |other: &usize| Some(*other) != chosen;
            self.retained
                .values_mut()
                .for_each(|retained| retained.retain(is_left));
            units.extend(chosen);
        }
        units
    }

    /// The place that is reserved for a job, on GPUs that are free by then.
    fn reservation(&mut self, job: JobId) -> Option<Reservation> {
        let place = self.plan.places.iter().find(|place| place.job == job)?;
        let (at, taken) = (place.reserved.at, place.reserved.taken.clone());
        let starts_by = self.plan.starts_by.get(&job).copied().unwrap_or(at);
        let mut units: Vec<usize> = Vec::new();
        let mut used: BTreeSet<usize> = BTreeSet::new();
        for unit in &taken {
            let free = self.capacity.free_units(unit.shelf);
            let returned = self.returns.get(&unit.shelf).into_iter().flatten();
            let returned = returned.filter(|(ends, _)| *ends <= at).map(|(_, unit)| *unit);
            let found = free.chain(returned).find(|unit| !used.contains(unit));
            used.extend(found);
            units.extend(found);
        }
        let gpus = units.into_iter().flat_map(|unit| &self.survey.units[unit].gpus);
        Some(Reservation {
            at: self.timestamp(at),
            gpus: gpus.map(|gpu| gpu.id.clone()).collect(),
            starts_by: self.timestamp(starts_by),
        })
    }
}
