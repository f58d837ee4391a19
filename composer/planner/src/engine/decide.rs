//! One decision: what starts now, and which places are reserved.

use super::lane::{Lane, Rank, Spans};
use super::order::{Earliest, Turn};
use super::plan::{LaneKey, Plan, Promised, Start};
use super::reserve::{Beside, Forecast, Reserved};
use super::shape::Shape;
use super::{Backfill, ClassIndex, JobId, Millis};
use crate::room::{Room, Taken};
use std::collections::{BTreeMap, BTreeSet};

/// Guaranteed and preempting jobs that have a reservation at a time.
pub(super) const MOST_SURE: usize = 8;

/// A job that may start, and where it stands.
pub(super) struct Decision {
    pub turn: Turn,
    pub rank: Rank,
    pub lane: LaneKey,
}

/// Which jobs of a shape may start now: those whose spans are within either of these.
#[derive(Clone, Copy, Debug)]
struct Verdict {
    /// Beside all reservations.
    beside: Option<Spans>,
    /// Before the first of them.
    before: Option<Spans>,
}

/// A reservation.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub job: JobId,
    /// `None`: it is guaranteed or preempts, and has a place beside that of its group.
    group: Option<ClassIndex>,
    pub reserved: Reserved,
}

/// The jobs of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Whose {
    tenant: usize,
    is_guaranteed: bool,
    avoids_closing_hosts: bool,
}

/// The capacity that some jobs may use.
#[derive(Default)]
pub(super) struct View {
    /// `None`: all jobs.
    of: Option<Whose>,
    /// The moments at which windows begin and hosts close.
    times: Vec<Millis>,
    /// Free capacity that the first of these leave: none of them, one, two …
    pub open: Vec<Room>,
    /// The same less all reservations.
    beside: Vec<Room>,
    /// By shape, once asked.
    verdicts: Vec<Option<Verdict>>,
}

/// Intermediate results of one decision.
pub(super) struct Pass {
    delays: Vec<Millis>,
    earliest: Earliest,
    pub places: Vec<Place>,
    /// Groups of which no job needs a place (any more).
    filled: BTreeSet<ClassIndex>,
    /// By view and shape: the limit of jobs for which no expected end makes room.
    hopeless: BTreeMap<(usize, usize), Millis>,
    pub views: Vec<View>,
    /// The first job for which no expected end makes room, while GPUs are in motion: nothing starts after it.
    pub unsettled: Option<Turn>,
}

impl Plan {
    /// Finds what starts now; its GPUs are taken.
    pub(super) fn decide(&mut self, now: Millis) {
        if !self.closures.is_empty() {
            self.room.close(self.closed_at(now));
        }
        self.starts = self.start_windows(now);
        (self.places, self.unsettled) = (Vec::new(), None);
        if self.waiting.is_empty() {
            return;
        }
        self.put_off_overdue(now);
        self.rank_anew();
        let mut pass = Pass::of(self, now);
        while let Some(decision) = self.next(now, &mut pass) {
            let end = self.waiting[&decision.rank.1].end_at_latest(now);
            let view = pass.view(self, decision.lane, now);
            let retained = self.retained.get(&(decision.lane.tenant, decision.lane.shape));
            let retained = retained.filter(|retained| !retained.is_empty());
            let shape = &self.shapes[decision.lane.shape];
            let Some(taken) = pass.views[view].take(shape, end, retained) else {
                break;
            };
            let expected = self.waiting[&decision.rank.1].expected;
            pass.charge(&taken, now.saturating_add(expected));
            let start = self.begin(&decision, taken, now);
            self.starts.extend(start);
            if view > 0 {
                // Its GPUs may be those of windows that do not bind it.
                self.choose_anew(now);
            }
            pass.measure(self, now);
        }
        (self.places, self.unsettled) = (pass.places, pass.unsettled);
    }

    /// A job starts on GPUs that are free.
    pub(super) fn begin(&mut self, decision: &Decision, taken: Vec<Taken>, now: Millis) -> Option<Start> {
        let end = self.waiting.get(&decision.rank.1)?.end_at_latest(now);
        self.room.seize(&taken);
        self.timeline.charge(&taken, end);
        self.start(decision, taken, now)
    }

    /// The next job that may start.
    fn next(&mut self, now: Millis, pass: &mut Pass) -> Option<Decision> {
        loop {
            if pass.unsettled.is_some() {
                return None;
            }
            let mut best: Option<Decision> = None;
            let mut heads: BTreeMap<ClassIndex, (Decision, Option<ClassIndex>)> = BTreeMap::new();
            let lanes = std::mem::take(&mut self.lanes);
            pass.meet(&lanes);
            for (key, lane) in &lanes {
                if !self.shares.allows(key.tenant, self.shapes[key.shape].gpus) {
                    continue;
                }
                if let Some(found) = self.candidate(*key, lane, now, pass)
                    && best.as_ref().is_none_or(|best| found.turn < best.turn)
                {
                    best = Some(found);
                }
                // The one whose turn it is may need a reservation.
                let Some(group) = self.needs_place(*key, pass) else {
                    continue;
                };
                let view = pass.view(self, *key, now);
                if let Some(rank) = pass.unplaced(lane, (view, key.shape)) {
                    let head = self.found(*key, rank, pass);
                    let at = if self.pool.is_observed() {
                        0
                    } else {
                        self.group(key.shape)
                    };
                    if heads.get(&at).is_none_or(|(other, _)| head.turn < other.turn) {
                        heads.insert(at, (head, group));
                    }
                }
            }
            self.lanes = lanes;
            let (head, group) = match (self.rules.backfill, heads.pop_first()) {
                (Backfill::Any, _) | (_, None) => return best,
                (_, Some((_, head))) => head,
            };
            let starts = best.as_ref().is_some_and(|best| best.turn <= head.turn);
            match (starts, self.rules.backfill) {
                (true, _) => return best,
                (false, Backfill::None) => return None,
                (false, _) => self.reserve(&head, group, now, pass),
            }
        }
    }

    /// The group of the next reservation of a lane; nothing: no reservation.
    fn needs_place(&self, key: LaneKey, pass: &Pass) -> Option<Option<ClassIndex>> {
        let group = self.group(key.shape);
        if !pass.filled.contains(&group) {
            return Some(Some(group));
        }
        let is_sure = key.urgency.preempts || self.is_guaranteed(key);
        let sure = || pass.places.iter().filter(|place| place.group.is_none()).count();
        (is_sure && sure() < MOST_SURE).then_some(None)
    }

    /// Whether a job of a lane would be within its tenant's guarantee.
    pub(super) fn is_guaranteed(&self, key: LaneKey) -> bool {
        self.shares.guarantees(key.tenant, self.shapes[key.shape].width)
    }

    /// Reserves a place for a job that can't start.
    fn reserve(&mut self, head: &Decision, group: Option<ClassIndex>, now: Millis, pass: &mut Pass) {
        let job = head.rank.1;
        let limit = self.waiting[&job].limit.unwrap_or(Millis::MAX);
        let bound = (head.lane.tenant, self.is_guaranteed(head.lane));
        let running = self.ends.iter().filter_map(|(_, job)| self.running.get(job));
        let edges = self.edges(now, |window| window.binds(bound.0, bound.1));
        let forecast = Forecast::new(self.room.clone(), running, &edges, now);
        let reserved = pass.places.iter().map(|place| place.reserved.taken.as_slice());
        let beside = Beside {
            reserved: reserved.collect(),
            limit,
            avoids_closing_hosts: head.lane.avoids_closing_hosts,
        };
        let Some(mut reserved) = forecast.reserve(&self.shapes[head.lane.shape], &beside) else {
            // Without windows and closures the limits of jobs do not matter.
            let is_bound = !self.windows.is_empty() || !self.closures.is_empty();
            let limit = if is_bound { limit } else { 0 };
            let of = (pass.view(self, head.lane, now), head.lane.shape);
            let least = pass.hopeless.entry(of).or_insert(limit);
            *least = limit.min(*least);
            if self.is_in_motion {
                pass.unsettled = Some(head.turn);
            }
            return;
        };
        if let Some(slip) = self.rules.slip {
            let latest = reserved.at.saturating_add(slip);
            if reserved.at > *self.starts_by.entry(job).or_insert(latest) {
                reserved.hold(&self.room);
            }
        }
        pass.filled.extend(group);
        pass.places.push(Place { job, group, reserved });
        let Pass { views, places, .. } = pass;
        views.iter_mut().for_each(|view| view.set_aside(places));
    }

    /// Jobs of which one at a time has a reservation: those that need a class; in a strict order, all of them.
    fn group(&self, shape: usize) -> ClassIndex {
        match self.rules.backfill {
            Backfill::Reserve => self.shapes[shape].group,
            Backfill::None | Backfill::Any => 0,
        }
    }

    /// The first job of a lane that may start.
    fn candidate(&self, key: LaneKey, lane: &Lane, now: Millis, pass: &mut Pass) -> Option<Decision> {
        let view = pass.view(self, key, now);
        let Verdict { beside, before } = match pass.views[view].verdicts[key.shape] {
            Some(verdict) => verdict,
            None => {
                let verdict = pass.views[view].judge(&self.shapes[key.shape], &pass.places, now);
                pass.views[view].verdicts[key.shape] = Some(verdict);
                verdict
            }
        };
        let ranks = [beside, before].into_iter().flatten();
        let rank = ranks.filter_map(|most| lane.first_within(most)).min();
        Some(self.found(key, rank?, pass))
    }

    pub(super) fn found(&self, lane: LaneKey, rank: Rank, pass: &Pass) -> Decision {
        let own = (rank.0.saturating_add(pass.delay(lane)), rank.1);
        Decision {
            turn: pass.earliest.turn(own, lane.urgency, self.is_guaranteed(lane)),
            rank,
            lane,
        }
    }
}

impl Pass {
    pub fn of(plan: &Plan, now: Millis) -> Self {
        let mut pass = Self {
            delays: plan.shares.delays(plan.rules.fair_share),
            earliest: Earliest::default(),
            places: Vec::new(),
            filled: BTreeSet::new(),
            hopeless: BTreeMap::new(),
            views: vec![View::default()],
            unsettled: None,
        };
        pass.measure(plan, now);
        pass
    }

    fn delay(&self, lane: LaneKey) -> Millis {
        self.delays.get(lane.tenant).copied().unwrap_or(0)
    }

    /// Takes note of the earliest jobs of each priority.
    pub fn meet(&mut self, lanes: &BTreeMap<LaneKey, Lane>) {
        self.earliest = Earliest::default();
        if lanes.keys().any(|key| key.urgency.preempts) {
            for (key, lane) in lanes {
                if let Some(rank) = lane.first() {
                    let own = rank.0.saturating_add(self.delay(*key));
                    self.earliest.meet(key.urgency.priority, own);
                }
            }
        }
    }

    /// The first job of a lane that has no place, and may get one.
    fn unplaced(&self, lane: &Lane, of: (usize, usize)) -> Option<Rank> {
        let hopeless = self.hopeless.get(&of);
        let has_place = |id: JobId| self.places.iter().any(|place| place.job == id);
        let mut jobs = lane.jobs();
        let found = jobs
            .find(|(rank, spans)| hopeless.is_none_or(|least| spans.limit < *least) && !has_place(rank.1));
        found.map(|(rank, _)| rank)
    }

    /// The view of the jobs of a lane.
    pub fn view(&mut self, plan: &Plan, lane: LaneKey, now: Millis) -> usize {
        let whose = Whose {
            tenant: lane.tenant,
            is_guaranteed: plan.is_guaranteed(lane),
            avoids_closing_hosts: lane.avoids_closing_hosts,
        };
        let binds = |window: &Promised| window.binds(whose.tenant, whose.is_guaranteed);
        let is_own = (whose.avoids_closing_hosts && !plan.closures.is_empty())
            || ((whose.is_guaranteed || plan.is_wanted_elsewhere) && !plan.windows.values().all(binds));
        if !is_own {
            return 0;
        }
        if let Some(known) = self.views.iter().position(|view| view.of == Some(whose)) {
            return known;
        }
        let mut view = View {
            of: Some(whose),
            ..View::default()
        };
        view.measure(plan, now);
        view.set_aside(&self.places);
        self.views.push(view);
        self.views.len() - 1
    }

    /// Finds the capacity for jobs, by the windows that begin before they have to be over.
    pub fn measure(&mut self, plan: &Plan, now: Millis) {
        self.delays = plan.shares.delays(plan.rules.fair_share);
        for view in &mut self.views {
            view.measure(plan, now);
            view.set_aside(&self.places);
        }
    }

    /// Charges the GPUs and slots of a started job to the reservations that begin before its end.
    fn charge(&mut self, taken: &[Taken], ends: Millis) {
        let places = self.places.iter_mut().map(|place| &mut place.reserved);
        for place in places.filter(|place| ends > place.at) {
            place.spare.seize(taken);
        }
    }
}

impl View {
    fn measure(&mut self, plan: &Plan, now: Millis) {
        let own = self.of.map(|whose| {
            let binds = |window: &Promised| window.binds(whose.tenant, whose.is_guaranteed);
            plan.chosen(now, Millis::MAX, &BTreeSet::new(), binds).moments
        });
        let moments = own.as_ref().unwrap_or(&plan.timeline.moments);
        self.times = moments.iter().map(|moment| moment.at).collect();
        self.verdicts.resize(plan.shapes.len(), None);
        let mut room = plan.room.clone();
        if self.of.is_some_and(|whose| whose.avoids_closing_hosts) {
            room.close(plan.closed_within(now, Millis::MAX));
        }
        self.open.clear();
        self.open.push(room);
        for (before, moment) in moments.iter().enumerate() {
            let mut least = self.open[before].clone();
            least.at_most(&moment.room);
            self.open.push(least);
        }
    }

    /// Subtracts all reservations.
    fn set_aside(&mut self, places: &[Place]) {
        self.beside.clone_from(&self.open);
        for place in places {
            let beside = self.beside.iter_mut();
            beside.for_each(|beside| beside.at_most(&place.reserved.spare));
        }
        self.forget_but_refusals();
    }

    fn judge(&mut self, shape: &Shape, places: &[Place], now: Millis) -> Verdict {
        let beside =
            longest(&mut self.beside, shape, &self.times, now).map(|limit| Spans { limit, ..Spans::ANY });
        if places.is_empty() || beside.is_some_and(|most| most == Spans::ANY) {
            return Verdict { beside, before: None };
        }
        let places = places.iter().map(|place| &place.reserved);
        let until = places
            .map(|place| if place.is_strict { 0 } else { place.at })
            .min();
        let expected = until
            .and_then(|until| until.checked_sub(now))
            .filter(|span| *span > 0);
        let before = expected.and_then(|expected| {
            let limit = longest(&mut self.open, shape, &self.times, now)?;
            Some(Spans { expected, limit })
        });
        Verdict { beside, before }
    }

    /// The longest run time of a job of a shape, without regard to reservations; `None`: no room.
    pub fn longest(&mut self, shape: &Shape, now: Millis) -> Option<Millis> {
        longest(&mut self.open, shape, &self.times, now)
    }

    /// How many of the moments are before the end of a job.
    fn reached(&self, end: Millis) -> usize {
        self.times.partition_point(|at| *at < end)
    }

    /// Takes GPUs and slots for a job that ends at a moment at the latest: retained ones that serve it as they are, then
    /// unreserved ones if they suffice.
    fn take(&mut self, shape: &Shape, end: Millis, retained: Option<&Vec<Taken>>) -> Option<Vec<Taken>> {
        let reached = self.reached(end);
        if let Some(retained) = retained
            && let Some(taken) = self.beside[reached].take_alike(retained)
        {
            return Some(taken);
        }
        let all = self.beside.len() - 1;
        let unreserved = shape.take(&mut self.beside[all]);
        let unreserved = unreserved.or_else(|| shape.take(&mut self.beside[reached]));
        unreserved.or_else(|| shape.take(&mut self.open[reached]))
    }

    /// Room only shrinks within a decision, so refusals stay.
    fn forget_but_refusals(&mut self) {
        let is_refusal = |verdict: &Verdict| verdict.beside.is_none() && verdict.before.is_none();
        let stale = self.verdicts.iter_mut();
        let stale = stale.filter(|verdict| verdict.is_none_or(|verdict| !is_refusal(&verdict)));
        stale.for_each(|verdict| *verdict = None);
    }
}

/// How long a job of a shape may run at most, by the windows that would miss its GPUs; `None`: it does not fit now.
fn longest(rooms: &mut [Room], shape: &Shape, times: &[Millis], now: Millis) -> Option<Millis> {
    let all = rooms.len() - 1;
    let mut fits = |windows: usize| shape.fits(&mut rooms[windows]);
    if !fits(0) {
        return None;
    }
    if all == 0 || fits(all) {
        return Some(Millis::MAX);
    }
    // The windows leave less and less.
    let (mut most, mut too_many) = (0, all);
    while most + 1 < too_many {
        let middle = usize::midpoint(most, too_many);
        match fits(middle) {
            true => most = middle,
            false => too_many = middle,
        }
    }
    Some(times[most].saturating_sub(now))
}
