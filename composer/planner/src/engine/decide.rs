//! One decision: what starts now, and which places are reserved.

use super::lane::{Lane, Rank, Spans};
use super::plan::{LaneKey, Plan, Start};
use super::reserve::{Forecast, Reserved};
use super::shape::Shape;
use super::timeline::{Moment, Timeline};
use super::{Backfill, ClassIndex, JobId, Millis};
use crate::room::{Room, Taken};
use std::collections::BTreeMap;

/// A job that may start, and where it stands.
pub(super) struct Decision {
    turn: (Millis, JobId),
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

/// Intermediate results of one decision.
struct Pass {
    delays: Vec<Millis>,
    /// By smallest sufficient class: the reservation of its first job, which can't start. `None`: no expected end makes
    /// room for it.
    kept: BTreeMap<ClassIndex, Option<Reserved>>,
    /// Free capacity that the first windows leave: none of them, one, two …
    open: Vec<Room>,
    /// The same less all reservations.
    beside: Vec<Room>,
    /// By shape, once asked.
    verdicts: Vec<Option<Verdict>>,
}

impl Plan {
    /// What starts now; its GPUs are taken.
    pub(super) fn decide(&mut self, now: Millis) -> Vec<Start> {
        let mut starts = self.start_windows(now);
        if self.waiting.is_empty() {
            return starts;
        }
        self.put_off_overdue(now);
        self.rank_anew();
        let mut pass = Pass {
            delays: self.shares.delays(self.rules.fair_share),
            kept: BTreeMap::new(),
            open: Vec::new(),
            beside: Vec::new(),
            verdicts: vec![None; self.shapes.len()],
        };
        pass.measure(&self.room, &self.timeline);
        while let Some(decision) = self.next(now, &mut pass) {
            let job = self.waiting[&decision.rank.1];
            let reached = self.timeline.reached(job.end_at_latest(now));
            let Some(taken) = pass.take(&self.shapes[decision.lane.1], reached) else {
                break;
            };
            self.room.seize(&taken);
            self.timeline.charge(&taken, job.end_at_latest(now));
            pass.charge(&taken, now.saturating_add(job.expected));
            pass.measure(&self.room, &self.timeline);
            starts.extend(self.start(&decision, taken, now));
        }
        starts
    }

    /// The next job that may start.
    fn next(&mut self, now: Millis, pass: &mut Pass) -> Option<Decision> {
        loop {
            let mut best: Option<Decision> = None;
            let mut heads: BTreeMap<ClassIndex, Decision> = BTreeMap::new();
            let lanes = std::mem::take(&mut self.lanes);
            for (key, lane) in &lanes {
                if let Some(found) = self.candidate(*key, lane, now, pass)
                    && best.as_ref().is_none_or(|best| found.turn < best.turn)
                {
                    best = Some(found);
                }
                // The one whose turn it is may need a reservation.
                let group = self.group(key.1);
                if !pass.kept.contains_key(&group)
                    && let Some(rank) = lane.first()
                {
                    let head = pass.found(*key, rank);
                    if heads.get(&group).is_none_or(|other| head.turn < other.turn) {
                        heads.insert(group, head);
                    }
                }
            }
            self.lanes = lanes;
            let (group, head) = match (self.rules.backfill, heads.pop_first()) {
                (Backfill::Any, _) | (_, None) => return best,
                (_, Some(head)) => head,
            };
            let starts = best.as_ref().is_some_and(|best| best.turn <= head.turn);
            match (starts, self.rules.backfill) {
                (true, _) => return best,
                (false, Backfill::None) => return None,
                (false, _) => self.reserve(group, &head, now, pass),
            }
        }
    }

    /// Reserves a place for a job that can't start.
    fn reserve(&mut self, group: ClassIndex, head: &Decision, now: Millis, pass: &mut Pass) {
        let job = head.rank.1;
        let limit = self.waiting[&job].limit.unwrap_or(Millis::MAX);
        let running = self.ends.iter().filter_map(|(_, job)| self.running.get(job));
        let edges = self.edges(now);
        let forecast = Forecast::new(running, &edges);
        let mut place = Reserved::of(&self.room, &self.shapes[head.lane.1], limit, forecast, now);
        if let Some(place) = &mut place {
            let promised = *self.promised.entry(job).or_insert(place.at);
            let latest = self.rules.slip.map(|slip| promised.saturating_add(slip));
            if latest.is_some_and(|latest| place.at > latest) {
                place.hold(&self.room);
            }
            pass.beside
                .iter_mut()
                .for_each(|beside| beside.at_most(&place.spare));
        }
        pass.kept.insert(group, place);
        pass.forget_but_refusals();
    }

    /// Jobs of which one at a time has a reservation: those that need a class; in a strict order, all of them.
    fn group(&self, shape: usize) -> ClassIndex {
        match self.rules.backfill {
            Backfill::Reserve => self.shapes[shape].classes.start,
            Backfill::None | Backfill::Any => 0,
        }
    }

    /// The first job of a lane that may start.
    fn candidate(&mut self, key: LaneKey, lane: &Lane, now: Millis, pass: &mut Pass) -> Option<Decision> {
        let Verdict { beside, before } = match pass.verdicts[key.1] {
            Some(verdict) => verdict,
            None => {
                let verdict = pass.judge(&self.shapes[key.1], &self.timeline, now);
                pass.verdicts[key.1] = Some(verdict);
                verdict
            }
        };
        let ranks = [beside, before].into_iter().flatten();
        let rank = ranks.filter_map(|most| lane.first_within(most)).min();
        Some(pass.found(key, rank?))
    }
}

impl Pass {
    fn found(&self, lane: LaneKey, rank: Rank) -> Decision {
        let delay = self.delays.get(lane.0).copied().unwrap_or(0);
        Decision {
            turn: (rank.0.saturating_add(delay), rank.1),
            rank,
            lane,
        }
    }

    /// Finds the capacity for jobs, by the windows that begin before they have to be over.
    fn measure(&mut self, room: &Room, timeline: &Timeline) {
        self.open.clear();
        self.open.push(room.clone());
        for (before, moment) in timeline.moments.iter().enumerate() {
            let mut least = self.open[before].clone();
            least.at_most(&moment.room);
            self.open.push(least);
        }
        self.beside.clone_from(&self.open);
        for place in self.kept.values().flatten() {
            self.beside
                .iter_mut()
                .for_each(|beside| beside.at_most(&place.spare));
        }
    }

    fn judge(&mut self, shape: &Shape, timeline: &Timeline, now: Millis) -> Verdict {
        let moments = &timeline.moments;
        let beside =
            longest(&mut self.beside, shape, moments, now).map(|limit| Spans { limit, ..Spans::ANY });
        if self.kept.is_empty() || beside.is_some_and(|most| most == Spans::ANY) {
            return Verdict { beside, before: None };
        }
        let places = self.kept.values().flatten();
        let until = places
            .map(|place| if place.is_strict { 0 } else { place.at })
            .min();
        let expected = until
            .and_then(|until| until.checked_sub(now))
            .filter(|span| *span > 0);
        let before = expected.and_then(|expected| {
            let limit = longest(&mut self.open, shape, moments, now)?;
            Some(Spans { expected, limit })
        });
        Verdict { beside, before }
    }

    /// Takes GPUs and slots for a job that ends before window `reached`: from unreserved capacity if that suffices.
    fn take(&mut self, shape: &Shape, reached: usize) -> Option<Vec<Taken>> {
        let all = self.beside.len() - 1;
        let unreserved = shape.take(&mut self.beside[all]);
        let unreserved = unreserved.or_else(|| shape.take(&mut self.beside[reached]));
        unreserved.or_else(|| shape.take(&mut self.open[reached]))
    }

    /// Charges the GPUs and slots of a started job to the reservations that begin before its end.
    fn charge(&mut self, taken: &[Taken], ends: Millis) {
        for place in self.kept.values_mut().flatten().filter(|place| ends > place.at) {
            place.spare.seize(taken);
        }
        self.forget_but_refusals();
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
fn longest(rooms: &mut [Room], shape: &Shape, moments: &[Moment], now: Millis) -> Option<Millis> {
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
    Some(moments[most].at - now)
}
