//! Which running jobs are to make way: for windows, for what tenants are guaranteed, and for jobs of higher priority that
//! preempt. The fewest, of the lowest priority, with the least work to lose. GPUs that are being released count as free.

use super::reasons::{Judged, Why};
use super::state::{State, span};
use super::{RunningJob, Stop};
use crate::engine::decide::MOST_SURE;
use crate::engine::plan::{Plan, Promised, Standing};
use crate::engine::{JobId, Millis};
use crate::room::Taken;
use jiff::SignedDuration;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A job that is expected to end in time is stopped all the same once its notice would be late.
const MARGIN: SignedDuration = SignedDuration::from_secs(10);

impl State<'_> {
    fn stop(&self, job: JobId, at: Millis, label: &str) -> Option<(JobId, Stop)> {
        let stop = Stop {
            demand: self.running.get(&job)?.demand.clone(),
            at: self.timestamp(at),
            label: label.to_owned(),
        };
        Some((job, stop))
    }

    /// For windows that would begin late.
    pub(super) fn stop_for_windows(&self, stops: &mut BTreeMap<JobId, Stop>) {
        let is_served_here = |window: &Promised| window.standing != Standing::Waiting;
        let windows = self
            .plan
            .windows
            .iter()
            .filter(|(_, window)| is_served_here(window));
        let begins: BTreeSet<Millis> = windows.map(|(key, _)| key.0).collect();
        for at in begins {
            let may_stop = self.least_first(|id| !stops.contains_key(&id));
            if may_stop.is_empty() {
                return;
            }
            let plan = self.unless_stopped(at, stops);
            let runs_on = |id: &JobId| plan.running.get(id).is_some_and(|job| job.limit > at);
            let mut candidates = may_stop;
            candidates.retain(runs_on);
            let late = |gone: &BTreeSet<JobId>| -> Vec<&Promised> {
                let claims = plan.chosen(self.now, at, gone, is_served_here).claims.into_iter();
                let late = claims.filter(|(key, (_, is_late))| *is_late && key.0 == at);
                late.filter_map(|(key, _)| self.plan.windows.get(&key)).collect()
            };
            let before: BTreeSet<JobId> = stops.keys().copied().collect();
            let lacking = late(&before);
            candidates.retain(|id| !self.is_spared(*id, &lacking));
            for job in fewest(&candidates, &before, |gone| late(gone).len()) {
                stops.extend(self.stop(job, at, &self.label(at)));
            }
        }
    }

    /// The plan if no more jobs are stopped than these. A job that is expected to end before a moment does, as long as
    /// there is time to stop it.
    fn unless_stopped(&self, at: Millis, stops: &BTreeMap<JobId, Stop>) -> Plan {
        let mut plan = self.plan.clone();
        for (id, job) in self.running.iter().filter(|(id, _)| !stops.contains_key(id)) {
            let (Some(stops), false) = (job.stops, job.is_leaving) else {
                continue;
            };
            let ends = self.at(job.ends);
            let has_time = self.now.saturating_add(span(stops.within) + span(MARGIN)) < at;
            if ends <= at && has_time {
                plan.limit_to(*id, ends);
            }
        }
        plan
    }

    /// Whether a job is within its tenant's guarantee, and that goes before all windows that lack GPUs.
    fn is_spared(&self, job: JobId, lacking: &[&Promised]) -> bool {
        let Some(running) = self.running.get(&job) else {
            return false;
        };
        let tenant = self.tenant(&running.tenant);
        let is_within = self.plan.shares.held_by(tenant) <= self.plan.shares.share(tenant).guaranteed;
        is_within && !lacking.iter().any(|window| window.binds(tenant, true))
    }

    /// For jobs that have no room: those that are guaranteed, and those that preempt. What starts in an earlier turn has its
    /// GPUs; `before`: the plan before anything started.
    pub(super) fn stop_for_waiting(
        &self,
        judged: &[Judged],
        before: &Plan,
        stops: &mut BTreeMap<JobId, Stop>,
    ) {
        let leaving = self.running.iter().filter(|(_, job)| job.is_leaving);
        let leaving = leaving.map(|(id, _)| *id).chain(self.closing.iter().copied());
        let leaving: BTreeSet<JobId> = leaving.collect();
        let mut plan = before.clone();
        let mut served: Vec<Vec<Taken>> = Vec::new();
        let mut looked_at = 0;
        for Judged {
            job,
            is_guaranteed,
            why,
        } in judged
        {
            if *why == Why::Starts {
                let taken = self.plan.running.get(job).map(|started| started.taken.as_slice());
                plan.room.seize(taken.unwrap_or_default());
            }
            let Some((waits, engine)) = self.waiting.get(job).zip(self.plan.waiting.get(job)) else {
                continue;
            };
            if *why != Why::NoRoom || !(*is_guaranteed || waits.preempts) || looked_at == MOST_SURE {
                continue;
            }
            looked_at += 1;
            let gone: BTreeSet<JobId> = stops.keys().copied().chain(leaving.iter().copied()).collect();
            let shape = &self.plan.shapes[self.plan.known_shape(engine)];
            let binds = |window: &Promised| window.binds(engine.tenant, *is_guaranteed);
            let room = |gone: &BTreeSet<JobId>| {
                let mut room = plan.room_now(self.now, gone, binds);
                served.iter().for_each(|taken| room.seize(taken));
                room
            };
            let mut may_go = self.lower_than(*job, &gone);
            if *is_guaranteed {
                may_go.extend(self.above_their_share(engine.tenant));
            }
            let candidates = self.least_first(|id| may_go.contains(&id) && !gone.contains(&id));
            let new = fewest(&candidates, &gone, |gone| {
                usize::from(!shape.fits(&mut room(gone)))
            });
            let gone = gone.iter().chain(&new).copied().collect();
            let taken = shape.take(&mut room(&gone));
            served.extend(taken);
            let label = match is_guaranteed {
                true => format!("what tenant {} is guaranteed", waits.demand.tenant),
                false => format!("job {}, of priority {}", waits.demand.id, waits.demand.priority),
            };
            let told = new.into_iter().filter_map(|new| self.stop(new, self.now, &label));
            stops.extend(told.collect::<Vec<_>>());
        }
    }

    /// Running jobs that may be stopped, in the order in which they are: by priority, then by the work that they lose.
    fn least_first(&self, takes: impl Fn(JobId) -> bool) -> Vec<JobId> {
        let jobs = self.running.iter().filter_map(|(id, job)| {
            let stops = job.stops.filter(|_| !job.is_leaving && takes(*id))?;
            Some((
                job.priority,
                self.lost(*id, job, stops.checkpoints),
                Reverse(job.began),
                *id,
            ))
        });
        let mut jobs: Vec<_> = jobs.collect();
        jobs.sort_unstable();
        jobs.into_iter().map(|(.., id)| id).collect()
    }

    /// GPU-seconds of work that a job loses if it is stopped.
    fn lost(&self, id: JobId, job: &RunningJob, checkpoints: bool) -> u128 {
        let gpus = self.plan.running.get(&id).map_or(0, |running| running.job.gpus);
        let ran = u64::try_from(self.live.now.duration_since(job.began).as_secs()).unwrap_or(0);
        match checkpoints {
            true => 0,
            false => u128::from(ran) * u128::from(gpus),
        }
    }

    /// Jobs of other tenants that hold more than they are guaranteed.
    fn above_their_share(&self, but: usize) -> BTreeSet<JobId> {
        let shares = &self.plan.shares;
        let is_above = |tenant: usize| shares.held_by(tenant) > shares.share(tenant).guaranteed;
        let jobs = self.running.iter().filter(|(_, job)| {
            let tenant = self.tenant(&job.tenant);
            tenant != but && is_above(tenant)
        });
        jobs.map(|(id, _)| *id).collect()
    }

    /// Jobs of lower priority that a waiting one may preempt besides those that are stopped before. Every other tenant
    /// keeps its guarantee, even if all of them stop.
    fn lower_than(&self, job: JobId, before: &BTreeSet<JobId>) -> BTreeSet<JobId> {
        let Some(waits) = self.waiting.get(&job).filter(|job| job.preempts) else {
            return BTreeSet::new();
        };
        let gpus = |id: JobId| self.plan.running.get(&id).map_or(0, |running| running.job.gpus);
        let shares = &self.plan.shares;
        let mut holds: BTreeMap<usize, u32> = BTreeMap::new();
        for (id, stopped) in self.running.iter().filter(|(id, _)| before.contains(id)) {
            let tenant = self.tenant(&stopped.tenant);
            let holds = holds.entry(tenant).or_insert_with(|| shares.held_by(tenant));
            *holds = holds.saturating_sub(gpus(*id));
        }
        let lower = self
            .least_first(|id| !before.contains(&id) && self.running[&id].priority < waits.demand.priority);
        let own = self.tenant(&waits.demand.tenant);
        let free = lower.into_iter().filter(|id| {
            let tenant = self.tenant(&self.running[id].tenant);
            let holds = holds.entry(tenant).or_insert_with(|| shares.held_by(tenant));
            let left = holds.saturating_sub(gpus(*id));
            let is_free = tenant == own || left >= shares.share(tenant).guaranteed;
            if is_free {
                *holds = left;
            }
            is_free
        });
        free.collect()
    }
}

/// Of the candidates those that must go so that as little is lacking as if all went; none, if that is no less.
fn fewest(
    candidates: &[JobId],
    gone_anyway: &BTreeSet<JobId>,
    lacks: impl Fn(&BTreeSet<JobId>) -> usize,
) -> Vec<JobId> {
    if candidates.is_empty() {
        return Vec::new();
    }
    let mut gone: BTreeSet<JobId> = gone_anyway.iter().chain(candidates).copied().collect();
    let least = lacks(&gone);
    if lacks(gone_anyway) <= least {
        return Vec::new();
    }
    for candidate in candidates.iter().rev() {
        gone.remove(candidate);
        if lacks(&gone) > least {
            gone.insert(*candidate);
        }
    }
    candidates
        .iter()
        .filter(|candidate| gone.contains(candidate))
        .copied()
        .collect()
}
