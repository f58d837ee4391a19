//! One run: events in their order, until every job has ended.
//!
//! At each moment first everything that ends, begins and arrives is noted, then each queue that it concerns decides once.

use crate::meter::Meter;
use crate::policies::{Ground, Policy};
use crate::runtimes::Runtimes;
use crate::scenario::Scenario;
use crate::workload::{SimJob, Workload};
use poolwright_planner::queue::{ClassIndex, History, Job, JobId, Millis, Part, Pool, Queue, Start};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

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

struct Run<'a> {
    scenario: &'a Scenario,
    workload: &'a Workload,
    ground: Ground,
    runtimes: Runtimes,
    queues: Vec<Queue>,
    history: History,
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
    let run = Run {
        scenario,
        workload,
        ground: policy.ground,
        runtimes,
        meter: Meter::new(scenario, &pools, workload),
        queues: pools.into_iter().map(|pool| Queue::new(pool, rules)).collect(),
        history: History::default(),
        events: BinaryHeap::new(),
        records: Vec::with_capacity(workload.jobs.len()),
        ran_on: vec![0; workload.jobs.len()],
    };
    run.go(clock)
}

impl Run<'_> {
    fn go<E>(mut self, clock: &mut Clock<'_, E>) -> Result<Replayed, E> {
        let widest: Vec<Vec<u32>> = self
            .queues
            .iter()
            .map(|queue| {
                let classes = 0..queue.pool().classes().len();
                classes.map(|class| queue.pool().widest_job(class)).collect()
            })
            .collect();
        let (mut arrived, mut refused, mut decisions_ns) = (0, Vec::new(), Vec::new());
        let mut concerned = vec![false; self.queues.len()];
        while let Some(now) = self.next_moment(arrived) {
            self.meter.advance(now, &self.queues);
            for (index, queue) in self.queues.iter_mut().enumerate() {
                let detached = queue.leave(now);
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
                let queue = self.queue_of(job);
                match job.fits(&widest[queue]) {
                    true => {
                        self.submit(arrived, queue);
                        concerned[queue] = true;
                    }
                    false => refused.push(arrived as JobId),
                }
                arrived += 1;
            }
            for (index, _) in concerned.iter().enumerate().filter(|(_, concerned)| **concerned) {
                let before = clock()?;
                let starts = self.queues[index].decide(now);
                decisions_ns.push(clock()?.saturating_sub(before));
                for start in starts {
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
        let leaves = self.queues.iter().filter_map(Queue::next_leave);
        leaves.chain([soonest]).min()
    }

    fn queue_of(&self, job: &SimJob) -> usize {
        match self.ground {
            Ground::Partitions => job.tenant,
            Ground::Servers | Ground::Pool => 0,
        }
    }

    fn submit(&mut self, index: usize, queue: usize) {
        let job = &self.workload.jobs[index];
        let expected =
            self.runtimes
                .expected(job.run_time, job.looseness, &self.history, job.tenant, job.gpus);
        self.queues[queue].submit(Job {
            id: index as JobId,
            tenant: job.tenant,
            gpus: job.gpus,
            class: job.class,
            upto: job.upto,
            submitted: job.submit,
            expected,
        });
    }

    fn grant(&mut self, queue: usize, start: Start, now: Millis) {
        let job = &self.workload.jobs[start.job.id as usize];
        let began = now + self.latency(job, &start.parts);
        self.queues[queue].begins(start.job.id, began);
        self.meter.granted(queue, &start.parts);
        self.ran_on[start.job.id as usize] = start.class;
        self.events.push(Reverse((began, Event::Begin, start.job.id)));
        self.events
            .push(Reverse((began + job.run_time, Event::End, start.job.id)));
        self.records.push(Record {
            job: start.job.id,
            gpus: job.gpus,
            submitted: job.submit,
            granted: now,
            began,
            ended: began + job.run_time,
            pool: queue,
            class: start.class,
            parts: start.parts,
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
        let queue = self.queue_of(sim);
        if let Some(ended) = self.queues[queue].finish(job, now) {
            self.meter.ends(queue, ended.class, sim.gpus, &ended.parts);
        }
        self.history.learn(sim.tenant, sim.gpus, sim.run_time);
        queue
    }
}
