//! One run: events in their order, until every job has ended.
//!
//! At each moment first everything that ends, begins and arrives is noted, then each pool that it concerns is planned once.

use crate::attachments::{Attachments, Part};
use crate::meter::Meter;
use crate::policies::{Ground, Policy, stay};
use crate::runtimes::Runtimes;
use crate::scenario::Scenario;
use crate::workload::{SimJob, Workload};
use poolwright_planner::engine::{self, ClassIndex, JobId, Millis, Plan, Pool, Start, replan};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

/// What became of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub job: JobId,
    pub gpus: u32,
    pub submitted: Millis,
    /// When it got its GPUs; they are being attached from then on.
    pub granted: Millis,
    pub began: Millis,
    pub ended: Millis,
    /// Which pool, which class of it, and where.
    pub pool: usize,
    pub class: ClassIndex,
    pub parts: Vec<Part>,
}

/// A whole run.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// In the order in which jobs were granted.
    pub records: Vec<Record>,
    /// Jobs that no host, or no number of hosts, could ever hold.
    pub refused: Vec<JobId>,
    pub meter: Meter,
    /// Nanoseconds of each decision, by the caller's clock.
    pub decisions_ns: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    End,
    Begin,
}

/// A pool: its plan, the events since, and its attachments.
#[derive(Debug)]
pub struct Side {
    /// `None` only within `decide`.
    plan: Option<Plan>,
    since: Vec<engine::Event>,
    pub(crate) attached: Attachments,
    running: BTreeMap<JobId, (ClassIndex, Vec<Part>)>,
}

impl Side {
    pub(crate) fn plan(&self) -> &Plan {
        let Some(plan) = &self.plan else {
            unreachable!("a plan is away only within `decide`")
        };
        plan
    }

    fn decide(&mut self, now: Millis) -> Vec<Start> {
        self.attached.report(&mut self.since);
        let plan = self.plan.take().map(|plan| replan(now, &self.since, plan));
        self.since.clear();
        let starts = plan.as_ref().map_or_else(Vec::new, |plan| plan.starts().to_vec());
        self.plan = plan;
        starts
    }
}

struct Run<'a> {
    scenario: &'a Scenario,
    workload: &'a Workload,
    ground: Ground,
    runtimes: Runtimes,
    sides: Vec<Side>,
    events: BinaryHeap<Reverse<(Millis, Event, JobId)>>,
    records: Vec<Record>,
    /// By job: the class that it was given.
    ran_on: Vec<ClassIndex>,
    meter: Meter,
}

/// Whoever asked for it wants it no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it was stopped before its end")]
pub struct Stopped;

/// Nanoseconds, from any zero. It is asked before and after each decision, and may say that no more are to be made.
pub type Clock<'a, E = Stopped> = dyn FnMut() -> Result<u64, E> + 'a;

/// Why nothing came of a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// In words: the policy cannot work with so few GPUs.
    #[error("{0}")]
    TooFewGpus(String),
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Replays a workload under a policy.
///
/// # Errors
///
/// Why the policy cannot work with so few GPUs; or the clock has stopped it.
pub fn replay(
    policy: &Policy,
    scenario: &Scenario,
    workload: &Workload,
    runtimes: Runtimes,
    clock: &mut Clock<'_>,
) -> Result<Replayed, ReplayError> {
    let pools = policy.pools(scenario, workload);
    let pools = pools.map_err(ReplayError::TooFewGpus)?;
    Ok(replay_on(policy, pools, scenario, workload, runtimes, clock)?)
}

/// The same on pools of the caller's.
///
/// # Errors
///
/// The clock has stopped it.
pub fn replay_on<E>(
    policy: &Policy,
    pools: Vec<Pool>,
    scenario: &Scenario,
    workload: &Workload,
    runtimes: Runtimes,
    clock: &mut Clock<'_, E>,
) -> Result<Replayed, E> {
    let rules = (policy.rules)(scenario);
    let side = |pool: Pool| Side {
        attached: Attachments::of(&pool, stay(scenario)),
        plan: Some(Plan::new(pool, rules)),
        since: Vec::new(),
        running: BTreeMap::new(),
    };
    let run = Run {
        scenario,
        workload,
        ground: policy.ground,
        runtimes,
        meter: Meter::new(scenario, &pools, workload),
        sides: pools.into_iter().map(side).collect(),
        events: BinaryHeap::new(),
        records: Vec::with_capacity(workload.jobs.len()),
        ran_on: vec![0; workload.jobs.len()],
    };
    run.go(clock)
}

impl Run<'_> {
    fn go<E>(mut self, clock: &mut Clock<'_, E>) -> Result<Replayed, E> {
        let mut possible: HashMap<(usize, ClassIndex, ClassIndex, u32), bool> = HashMap::new();
        let (mut arrived, mut refused, mut decisions_ns) = (0, Vec::new(), Vec::new());
        let mut concerned = vec![false; self.sides.len()];
        while let Some(now) = self.next_moment(arrived) {
            self.meter.advance(now, &self.sides);
            for (index, side) in self.sides.iter_mut().enumerate() {
                let detached = side.attached.leave(now);
                self.meter.detached(detached);
                concerned[index] = false;
            }
            while let Some(Reverse((_, event, job))) =
                self.events.peek().copied().filter(|next| next.0.0 <= now)
            {
                self.events.pop();
                match event {
                    Event::End => concerned[self.end(job, now)] = true,
                    Event::Begin => self.begin(job),
                }
            }
            while let Some(job) = self.workload.jobs.get(arrived).filter(|job| job.submit <= now) {
                let side = self.side_of(job);
                let asks = (side, job.class, job.upto, job.gpus);
                let plan = self.sides[side].plan();
                match *possible.entry(asks).or_insert_with(|| plan.holds(&job.job(0, 0))) {
                    true => {
                        self.submit(arrived, side);
                        concerned[side] = true;
                    }
                    false => refused.push(arrived as JobId),
                }
                arrived += 1;
            }
            for (index, _) in concerned.iter().enumerate().filter(|(_, concerned)| **concerned) {
                let before = clock()?;
                let starts = self.sides[index].decide(now);
                decisions_ns.push(clock()?.saturating_sub(before));
                for start in &starts {
                    self.grant(index, start, now);
                }
            }
        }
        Ok(Replayed {
            records: self.records,
            refused,
            meter: self.meter,
            decisions_ns,
        })
    }

    /// When anything happens next; nothing does after the last job has ended.
    fn next_moment(&self, arrived: usize) -> Option<Millis> {
        let arrival = self.workload.jobs.get(arrived).map(|job| job.submit);
        let event = self.events.peek().map(|next| next.0.0);
        let soonest = arrival.into_iter().chain(event).min()?;
        let leaves = self.sides.iter().filter_map(|side| side.attached.next_leave());
        leaves.chain([soonest]).min()
    }

    fn side_of(&self, job: &SimJob) -> usize {
        match self.ground {
            Ground::Partitions => job.tenant,
            Ground::Servers | Ground::Pool => 0,
        }
    }

    fn submit(&mut self, index: usize, side: usize) {
        let job = &self.workload.jobs[index];
        let history = self.sides[side].plan().history();
        let expected = self
            .runtimes
            .expected(job.run_time, job.looseness, history, job.tenant, job.gpus);
        let job = job.job(index as JobId, expected);
        self.sides[side].since.push(engine::Event::Submitted(job));
    }

    fn grant(&mut self, index: usize, start: &Start, now: Millis) {
        let id = start.job.id;
        let job = &self.workload.jobs[id as usize];
        let parts = self.sides[index].attached.take(start.class, &start.parts);
        let began = now + self.latency(job, &parts);
        let side = &mut self.sides[index];
        side.since.push(engine::Event::Began { job: id, at: began });
        side.running.insert(id, (start.class, parts.clone()));
        self.meter.granted(index, &parts);
        self.ran_on[id as usize] = start.class;
        self.events.push(Reverse((began, Event::Begin, id)));
        self.events.push(Reverse((began + job.run_time, Event::End, id)));
        self.records.push(Record {
            job: id,
            gpus: job.gpus,
            submitted: job.submit,
            granted: now,
            began,
            ended: began + job.run_time,
            pool: index,
            class: start.class,
            parts,
        });
    }

    /// How long it takes until all hosts of a job have their GPUs: they attach side by side.
    fn latency(&self, job: &SimJob, parts: &[Part]) -> Millis {
        if self.ground != Ground::Pool {
            return 0;
        }
        let seconds = parts.iter().map(|part| {
            self.scenario.attach.seconds(part.attached, job.noise[0])
                + self.scenario.detach.seconds(part.detached, job.noise[1])
        });
        (seconds.fold(0.0, f64::max) * 1000.0) as Millis
    }

    fn begin(&mut self, job: JobId) {
        let index = job as usize;
        self.meter
            .begins(self.ran_on[index], self.workload.jobs[index].gpus);
    }

    fn end(&mut self, job: JobId, now: Millis) -> usize {
        let sim = &self.workload.jobs[job as usize];
        let index = self.side_of(sim);
        let side = &mut self.sides[index];
        if let Some((class, parts)) = side.running.remove(&job) {
            side.attached.give_back(class, &parts, now);
            self.meter.ends(index, class, sim.gpus, &parts);
        }
        side.since.push(engine::Event::Ended {
            job,
            ran: sim.run_time,
        });
        index
    }
}
