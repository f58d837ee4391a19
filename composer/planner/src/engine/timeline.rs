//! Promised windows as constraints: the capacity that jobs may use until each of them begins.
//!
//! A job may be counted on to return its GPUs only at its limit, never at its expected end. So a window is served though
//! every other job runs for as long as it may.

use super::plan::{Plan, Promised, WindowKey};
use super::{JobId, Millis};
use crate::room::{Room, Taken};
use std::collections::BTreeMap;

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

/// The begin or the end of a window, with the GPUs and slots chosen for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge<'w> {
    pub at: Millis,
    pub begins: bool,
    pub taken: &'w [Taken],
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

    /// Chooses GPUs and slots for all windows in order of their begin. For one that may be late: all that it will need once
    /// every job has ended, so that nothing else takes the free part.
    pub(super) fn choose_anew(&mut self, now: Millis) {
        let mut moments: Vec<Moment> = Vec::new();
        let mut room = self.room.clone();
        let mut limits = self.limits.iter().peekable();
        let mut open: BTreeMap<(Millis, JobId), Vec<Taken>> = BTreeMap::new();
        for (key, window) in &mut self.windows {
            let at = key.0.max(now);
            while let Some((_, job)) = limits.next_if(|(limit, _)| *limit <= at) {
                let ended = self.running.get(job).map(|running| running.taken.as_slice());
                room.put_back(ended.unwrap_or_default());
            }
            while let Some(over) = open.first_entry().filter(|over| over.key().0 <= at) {
                room.put_back(&over.remove());
            }
            let shape = &self.shapes[window.shape];
            let in_time = shape.take(&mut room);
            window.is_late = in_time.is_none();
            window.claim = in_time.unwrap_or_else(|| {
                let mut later = room.clone();
                let running = self.running.values().filter(|running| running.limit > at);
                running.for_each(|running| later.put_back(&running.taken));
                let claim = shape.take(&mut later).unwrap_or_default();
                room.seize(&claim);
                claim
            });
            if !window.is_late {
                open.insert((window.until.max(at), key.1), window.claim.clone());
            }
            match moments.last_mut().filter(|moment| moment.at == at) {
                Some(moment) => moment.room = room.clone(),
                None => moments.push(Moment {
                    at,
                    room: room.clone(),
                }),
            }
        }
        self.timeline = Timeline { moments };
    }

    /// The windows that have not begun, for forecasts; how long a late one lasts is open.
    pub(super) fn edges(&self, now: Millis) -> Vec<Edge<'_>> {
        let mut edges = Vec::with_capacity(2 * self.windows.len());
        for (key, window) in &self.windows {
            let at = key.0.max(now);
            let taken = window.claim.as_slice();
            edges.push(Edge {
                at,
                begins: true,
                taken,
            });
            if !window.is_late {
                let at = window.until.max(at);
                edges.push(Edge {
                    at,
                    begins: false,
                    taken,
                });
            }
        }
        edges.sort_by_key(|edge| edge.at);
        edges
    }
}
