//! One decision: what starts now, and which places are reserved.

use super::lane::{Lane, Rank};
use super::plan::{LaneKey, Plan, Start};
use super::reserve::Reserved;
use super::{Backfill, ClassIndex, JobId, Millis};
use crate::room::{Room, Taken};
use std::collections::BTreeMap;

/// A job that may start, and where it stands.
pub(super) struct Decision {
    turn: (Millis, JobId),
    pub rank: Rank,
    pub lane: LaneKey,
}

/// Whether jobs of a shape may start now.
#[derive(Clone, Copy, Debug)]
enum Verdict {
    No,
    /// Those that are expected to run no longer.
    Within(Millis),
    Any,
}

/// Intermediate results of one decision.
struct Pass {
    delays: Vec<Millis>,
    /// By smallest sufficient class: the reservation of its first job, which can't start. `None`: no expected end makes
    /// room for it.
    kept: BTreeMap<ClassIndex, Option<Reserved>>,
    /// Free capacity that is not reserved.
    beside: Room,
    /// By shape, once asked.
    verdicts: Vec<Option<Verdict>>,
}

impl Plan {
    /// What starts now; its GPUs are taken.
    pub(super) fn decide(&mut self, now: Millis) -> Vec<Start> {
        let mut starts = Vec::new();
        if self.waiting.is_empty() {
            return starts;
        }
        self.put_off_overdue(now);
        self.rank_anew();
        let mut pass = Pass {
            delays: self.shares.delays(self.rules.fair_share),
            kept: BTreeMap::new(),
            beside: self.room.clone(),
            verdicts: vec![None; self.shapes.len()],
        };
        while let Some(decision) = self.next(now, &mut pass) {
            let shape = &self.shapes[decision.lane.1];
            let taken = match shape.take(&mut pass.beside) {
                Some(taken) => {
                    self.room.seize(&taken);
                    Some(taken)
                }
                None => shape.take(&mut self.room),
            };
            let Some(taken) = taken else { break };
            let ends = now.saturating_add(self.waiting[&decision.rank.1].expected);
            pass.charge(&self.room, &taken, ends);
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
        let running = self.ends.iter().filter_map(|(_, job)| self.running.get(job));
        let mut place = Reserved::of(&self.room, &self.shapes[head.lane.1], running, now);
        if let Some(place) = &mut place {
            let promised = *self.promised.entry(job).or_insert(place.at);
            let latest = self.rules.slip.map(|slip| promised.saturating_add(slip));
            if latest.is_some_and(|latest| place.at > latest) {
                place.hold(&self.room);
            }
            pass.beside.at_most(&place.spare);
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
        let verdict = match pass.verdicts[key.1] {
            Some(verdict) => verdict,
            None => {
                let verdict = self.judge(key.1, now, pass);
                pass.verdicts[key.1] = Some(verdict);
                verdict
            }
        };
        let rank = match verdict {
            Verdict::No => None,
            Verdict::Within(limit) => lane.first_within(limit),
            Verdict::Any => lane.first(),
        };
        Some(pass.found(key, rank?))
    }

    fn judge(&mut self, shape: usize, now: Millis, pass: &mut Pass) -> Verdict {
        let shape = &self.shapes[shape];
        if shape.fits(&mut pass.beside) {
            return Verdict::Any;
        }
        if pass.kept.is_empty() || !shape.fits(&mut self.room) {
            return Verdict::No;
        }
        let places = pass.kept.values().flatten();
        let until = places
            .map(|place| if place.is_strict { 0 } else { place.at })
            .min();
        match until {
            Some(until) if until > now => Verdict::Within(until - now),
            _ => Verdict::No,
        }
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

    /// Notes what starts: reservations have it as long as it outlasts the wait for them.
    fn charge(&mut self, room: &Room, taken: &[Taken], ends: Millis) {
        self.beside = room.clone();
        for place in self.kept.values_mut().flatten() {
            if ends > place.at {
                place.spare.seize(taken);
            }
            self.beside.at_most(&place.spare);
        }
        self.forget_but_refusals();
    }

    /// Room only shrinks within a decision, so refusals stay.
    fn forget_but_refusals(&mut self) {
        let stale = self.verdicts.iter_mut();
        let stale = stale.filter(|verdict| !matches!(verdict, Some(Verdict::No)));
        stale.for_each(|verdict| *verdict = None);
    }
}
