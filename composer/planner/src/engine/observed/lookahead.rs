//! A plan looked at beside its decisions: the order of jobs, and later moments.

use crate::engine::decide::{Decision, Pass};
use crate::engine::plan::{Plan, Promised};
use crate::engine::shape::asks;
use crate::engine::{Job, JobId, Millis};
use crate::room::Room;
use std::collections::BTreeSet;

impl Plan {
    /// Lines up jobs, and decides nothing.
    pub(in crate::engine) fn line_up_all(&mut self, jobs: impl IntoIterator<Item = Job>, now: Millis) {
        jobs.into_iter().for_each(|job| self.submit(job));
        self.start_windows(now);
        self.rank_anew();
    }

    /// The waiting job whose turn is first.
    pub(in crate::engine) fn first(&self, pass: &mut Pass) -> Option<Decision> {
        pass.meet(&self.lanes);
        let first = self
            .lanes
            .iter()
            .filter_map(|(key, lane)| Some((*key, lane.first()?)));
        let first = first.map(|(key, rank)| self.found(key, rank, pass));
        first.min_by_key(|decision| decision.turn)
    }

    /// A job does not wait any more.
    pub(in crate::engine) fn forget(&mut self, decision: &Decision) {
        self.waiting.remove(&decision.rank.1);
        let lane = self.lanes.get_mut(&decision.lane);
        if lane.is_some_and(|lane| lane.remove(decision.rank) && lane.is_empty()) {
            self.lanes.remove(&decision.lane);
        }
    }

    /// The shape of a job that was submitted.
    pub(in crate::engine) fn known_shape(&self, job: &Job) -> usize {
        self.shape_of.get(&asks(job)).copied().unwrap_or_default()
    }

    /// A running job has returned its GPUs by then.
    pub(in crate::engine) fn limit_to(&mut self, job: JobId, limit: Millis) {
        if let Some(running) = self.running.get_mut(&job) {
            self.limits.remove(&(running.limit, job));
            running.limit = limit;
            self.limits.insert((limit, job));
        }
    }

    /// A running job is expected to end no later than then.
    pub(in crate::engine) fn stop_at(&mut self, job: JobId, at: Millis) {
        if let Some(running) = self.running.get_mut(&job) {
            self.ends.remove(&(running.expected_end, job));
            running.expected_end = running.expected_end.min(at);
            self.ends.insert((running.expected_end, job));
        }
    }

    /// Free capacity if these jobs were gone, less what windows that are open want.
    pub(in crate::engine) fn room_now(
        &self,
        now: Millis,
        gone: &BTreeSet<JobId>,
        binds: impl Fn(&Promised) -> bool,
    ) -> Room {
        if let Some(moment) = self.chosen(now, now, gone, binds).moments.pop() {
            return moment.room;
        }
        let mut room = self.room.clone();
        let gone = gone.iter().filter_map(|job| self.running.get(job));
        gone.for_each(|running| room.put_back(&running.taken));
        room
    }

    /// The next moment at which anything is expected to change.
    pub(in crate::engine) fn next_change(&self, now: Millis) -> Option<Millis> {
        let ends = self.ends.first().map(|(end, _)| (*end).max(now + 1));
        let windows = self
            .windows
            .iter()
            .flat_map(|(key, window)| [key.0, window.until]);
        let hosts = self
            .closures
            .iter()
            .flat_map(|closed| [closed.from, closed.until]);
        let changes = windows.chain(hosts).filter(|at| *at > now).chain(ends);
        changes.filter(|at| *at < Millis::MAX).min()
    }

    /// Running jobs that are expected to have ended by then.
    pub(in crate::engine) fn ended_by(&self, at: Millis) -> Vec<JobId> {
        let ended = self.ends.range(..=(at, JobId::MAX));
        ended.map(|(_, job)| *job).collect()
    }
}
