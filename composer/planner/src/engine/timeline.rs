//! Promised windows as constraints: the capacity that jobs may use until each of them begins.
//!
//! A job may be counted on to return its GPUs only at its limit, never at its expected end. So a window is served though
//! every other job runs for as long as it may.

use super::plan::{ClosedHost, Plan, Promised, Standing, WindowKey};
use super::{JobId, Millis};
use crate::room::{Room, Taken};
use std::collections::{BTreeMap, BTreeSet};

/// The begin of windows, and the capacity beside them and all jobs that may still run then.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    pub at: Millis,
    pub room: Room,
}

/// The moments at which windows begin that have not begun, in order of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    pub moments: Vec<Moment>,
}

/// GPUs and slots chosen for windows.
#[derive(Default)]
pub(super) struct Chosen {
    /// Each with whether a job may still run on them when it is to begin.
    pub claims: BTreeMap<WindowKey, (Vec<Taken>, bool)>,
    pub moments: Vec<Moment>,
}

/// The begin or the end of a window, with the GPUs and slots chosen for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge<'w> {
    pub at: Millis,
    pub begins: bool,
    pub taken: &'w [Taken],
}

/// Changes of capacity that windows and closed hosts bring.
#[derive(Clone, Default)]
pub(super) struct Edges<'w> {
    /// In order of time.
    pub list: Vec<Edge<'w>>,
    /// Late windows: from when until when, and what they take as soon as it is free.
    pub late: Vec<(Millis, Millis, &'w [Taken])>,
    pub closures: &'w [ClosedHost],
}

impl Timeline {
    /// How many moments are before the end of a job.
    pub fn reached(&self, end: Millis) -> usize {
        self.moments.partition_point(|moment| moment.at < end)
    }

    /// A job has these until `end` at the latest.
    pub fn charge(&mut self, taken: &[Taken], end: Millis) {
        let reached = self.reached(end);
        let during = self.moments[..reached].iter_mut();
        during.for_each(|moment| moment.room.seize(taken));
    }

    /// A job that might have had these until `end` has returned them.
    pub fn credit(&mut self, taken: &[Taken], end: Millis) {
        let reached = self.reached(end);
        let during = self.moments[..reached].iter_mut();
        during.for_each(|moment| moment.room.put_back(taken));
    }

    /// A window from `from` on has these until `until`. `room`: the capacity at its begin, with it.
    fn add(&mut self, (from, until): (Millis, Millis), taken: &[Taken], room: Room) {
        let first = self.moments.partition_point(|moment| moment.at < from);
        let reached = self.reached(until).max(first);
        let during = self.moments[first..reached].iter_mut();
        during.for_each(|moment| moment.room.seize(taken));
        if self.moments.get(first).is_none_or(|moment| moment.at != from) {
            self.moments.insert(first, Moment { at: from, room });
        }
    }
}

impl Plan {
    /// Chooses GPUs and slots for a new window: such that all others keep theirs, else anew for all. False: not all of
    /// them could be served.
    pub(super) fn admit(&mut self, key: WindowKey, window: Promised, now: Millis) -> bool {
        let (from, until) = (key.0.max(now), window.until.max(now));
        let room = self.room_at(from);
        let mut during = room.clone();
        let moments = self.timeline.moments.iter();
        let later = moments.filter(|moment| (from..until).contains(&moment.at));
        later.for_each(|moment| during.at_most(&moment.room));
        if let Some(claim) = self.shapes[window.shape].take(&mut during) {
            let mut beside = room;
            beside.seize(&claim);
            self.timeline.add((from, until), &claim, beside);
            self.windows.insert(key, Promised { claim, ..window });
            return true;
        }
        let before = self.late();
        let windows = self.windows.clone();
        let timeline = self.timeline.clone();
        self.windows.insert(key, window);
        self.choose_anew(now);
        let fits = self.late() <= before;
        if !fits {
            (self.windows, self.timeline) = (windows, timeline);
        }
        fits
    }

    /// Windows that may be late, because a job may still run then.
    pub(super) fn late(&self) -> usize {
        self.windows.values().filter(|window| window.is_late).count()
    }

    /// The capacity at a moment that no window begins at: all jobs run for as long as they may.
    fn room_at(&self, at: Millis) -> Room {
        let mut room = self.room.clone();
        for (_, job) in self.limits.range(..=(at, JobId::MAX)) {
            let ended = self.running.get(job).map(|running| running.taken.as_slice());
            room.put_back(ended.unwrap_or_default());
        }
        let begun = self.windows.range(..=(at, JobId::MAX));
        let open = begun.filter(|(_, window)| window.is_late || window.until > at);
        open.for_each(|(_, window)| room.seize(&window.claim));
        room
    }

    /// Chooses GPUs and slots for all windows anew.
    pub(super) fn choose_anew(&mut self, now: Millis) {
        let Chosen { claims, moments } = self.chosen(now, Millis::MAX, &BTreeSet::new(), |_| true);
        for (key, (claim, is_late)) in claims {
            if let Some(window) = self.windows.get_mut(&key) {
                (window.claim, window.is_late) = (claim, is_late);
            }
        }
        self.timeline = Timeline { moments };
    }

    /// Chooses GPUs and slots for the windows that begin until a moment, in order of their begin, but for those that do
    /// not bind a job. These jobs are stopped in time.
    pub(super) fn chosen(
        &self,
        now: Millis,
        until: Millis,
        stopped: &BTreeSet<JobId>,
        binds: impl Fn(&Promised) -> bool,
    ) -> Chosen {
        let mut chosen = Chosen::default();
        let mut room = self.room.clone();
        for running in stopped.iter().filter_map(|job| self.running.get(job)) {
            room.put_back(&running.taken);
        }
        let limits = self.limits.iter().filter(|(_, job)| !stopped.contains(job));
        let mut limits = limits.peekable();
        let mut open: BTreeMap<(Millis, JobId), Vec<Taken>> = BTreeMap::new();
        let mut late: Vec<(Millis, Vec<Taken>)> = Vec::new();
        let mut windows = self.windows.iter().peekable();
        for at in self.moments_until(now, until) {
            while let Some((_, job)) = limits.next_if(|(limit, _)| *limit <= at) {
                let ended = self.running.get(job).map(|running| running.taken.as_slice());
                room.put_back(ended.unwrap_or_default());
            }
            while let Some(over) = open.first_entry().filter(|over| over.key().0 <= at) {
                room.put_back(&over.remove());
            }
            late.retain(|(until, _)| *until > at);
            room.close(self.closed_at(at));
            let mut free = room.clone();
            late.iter().for_each(|(_, claim)| free.seize(claim));
            while let Some((key, window)) = windows.next_if(|(key, _)| key.0 <= at) {
                if !binds(window) {
                    continue;
                }
                let in_time = self.shapes[window.shape].take(&mut free);
                let is_late = in_time.is_none();
                let claim = in_time.unwrap_or_else(|| {
                    let claims = late.iter().map(|(_, claim)| claim.as_slice());
                    self.late_claim(window, (&room, &mut free), claims, (at, stopped))
                });
                match is_late {
                    true => late.push((self.late_end(window), claim.clone())),
                    false => {
                        room.seize(&claim);
                        open.insert((window.until.max(at), key.1), claim.clone());
                    }
                }
                chosen.claims.insert(*key, (claim, is_late));
            }
            chosen.moments.push(Moment { at, room: free });
        }
        chosen
    }

    /// The moments at which windows begin and hosts close, until a moment.
    fn moments_until(&self, now: Millis, until: Millis) -> BTreeSet<Millis> {
        let windows = self.windows.keys().map(|key| key.0.max(now));
        let closures = self.closures.iter().map(|closed| closed.from);
        let closures = closures.filter(|from| *from > now);
        windows.chain(closures).filter(|at| *at <= until).collect()
    }

    /// All that a late window will need once the jobs have ended that are expected to end before it does, so that nothing
    /// else takes the free part.
    fn late_claim<'c>(
        &self,
        window: &Promised,
        (room, free): (&Room, &mut Room),
        others: impl Iterator<Item = &'c [Taken]>,
        (at, stopped): (Millis, &BTreeSet<JobId>),
    ) -> Vec<Taken> {
        let mut later = room.clone();
        let remaining = self.running.iter().filter(|(job, running)| {
            let ends = running.limit > at && running.expected_end < self.late_end(window);
            ends && !stopped.contains(job)
        });
        remaining.for_each(|(_, running)| later.put_back(&running.taken));
        others.for_each(|claim| later.seize(claim));
        let shape = &self.shapes[window.shape];
        match shape.take(&mut later) {
            Some(claim) => {
                free.seize(&claim);
                claim
            }
            None if self.has_in_hand || window.standing == Standing::Waiting => shape.take_some(free),
            None => Vec::new(),
        }
    }

    /// Until when a late window holds what it has got: the manager serves none after its end.
    fn late_end(&self, window: &Promised) -> Millis {
        match self.pool.is_observed() {
            true => window.until,
            false => Millis::MAX,
        }
    }

    /// The windows that have not begun, for forecasts, but for those that do not bind a job.
    pub(super) fn edges(&self, now: Millis, binds: impl Fn(&Promised) -> bool) -> Edges<'_> {
        let mut edges = Edges::default();
        for (key, window) in self.windows.iter().filter(|(_, window)| binds(window)) {
            let at = key.0.max(now);
            let taken = window.claim.as_slice();
            if window.is_late {
                edges.late.push((at, self.late_end(window), taken));
                continue;
            }
            edges.list.push(Edge {
                at,
                begins: true,
                taken,
            });
            edges.list.push(Edge {
                at: window.until.max(at),
                begins: false,
                taken,
            });
        }
        edges.list.sort_by_key(|edge| edge.at);
        edges.closures = &self.closures;
        edges
    }
}
