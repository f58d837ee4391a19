//! One run: events in their order, until every job has ended.
//!
//! At each moment first everything that ends, begins and arrives is noted, then each pool that it concerns is planned once.

use crate::attachments::{Attachments, Part};
use crate::meter::Meter;
use crate::policies::{Ground, Policy, stay};
use crate::runtimes::Runtimes;
use crate::scenario::Scenario;
use crate::workload::{SimJob, SimWindow, Workload};
use poolwright_planner::engine::{
    self, ANY_LARGER, ClassIndex, Job, JobId, Millis, Plan, Pool, Start, Urgency, replan,
};
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
    pub windows: Vec<BegunWindow>,
    /// Admitted and refused windows; an admitted one that never began is in no other figure.
    pub requested_windows: usize,
    pub refused_windows: usize,
    pub meter: Meter,
    /// Nanoseconds of each decision, by the caller's clock.
    pub decisions_ns: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    End,
    Promise,
    Window,
    Begin,
}

/// An admitted window that got its GPUs, in time or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BegunWindow {
    pub from: Millis,
    /// When its GPUs were attached.
    pub began: Millis,
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
    /// Numbered after the jobs.
    windows: Vec<SimWindow>,
    begun: Vec<BegunWindow>,
    refused_windows: usize,
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
    let windows = match policy.ground {
        // Servers of one tenant are not promised to another.
        Ground::Partitions => Vec::new(),
        Ground::Servers | Ground::Pool => workload.windows(scenario),
    };
    let mut run = Run {
        scenario,
        workload,
        begun: Vec::new(),
        refused_windows: 0,
        ground: policy.ground,
        runtimes,
        meter: Meter::new(scenario, &pools, workload),
        sides: pools.into_iter().map(side).collect(),
        events: BinaryHeap::new(),
        records: Vec::with_capacity(workload.jobs.len()),
        ran_on: vec![0; workload.jobs.len() + windows.len()],
        windows,
    };
    run.expect_windows();
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
                    Event::Promise => {
                        self.promise(job);
                        concerned[0] = true;
                    }
                    Event::Window => concerned[0] = true,
                    Event::Begin => self.begin(job),
                }
            }
            while let Some(job) = self.workload.jobs.get(arrived).filter(|job| job.submit <= now) {
                let side = self.side_of(job);
                let asks = (side, job.class, job.upto, job.gpus);
                let plan = self.sides[side].plan();
                match *possible
                    .entry(asks)
                    .or_insert_with(|| plan.holds(&job.job(0, 0, None)))
                {
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
                self.refused_windows += self.sides[index].plan().refused().len();
                for start in &starts {
                    self.grant(index, start, now);
                }
            }
        }
        Ok(Replayed {
            records: self.records,
            refused,
            windows: self.begun,
            requested_windows: self.windows.len(),
            refused_windows: self.refused_windows,
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

    fn window(&self, id: JobId) -> Option<&SimWindow> {
        self.windows
            .get((id as usize).checked_sub(self.workload.jobs.len())?)
    }

    fn expect_windows(&mut self) {
        for (id, window) in (self.workload.jobs.len() as JobId..).zip(&self.windows) {
            let from = window.from.saturating_sub(self.longest_latency(window.gpus));
            self.events.push(Reverse((window.asked, Event::Promise, id)));
            self.events.push(Reverse((from, Event::Window, id)));
        }
    }

    fn promise(&mut self, id: JobId) {
        let Some(window) = self.window(id) else { return };
        let (from, until) = (window.from, window.until);
        let job = Job {
            id,
            tenant: self.workload.tenants,
            gpus: window.gpus,
            class: 0,
            upto: ANY_LARGER,
            submitted: from,
            expected: until - from,
            limit: None,
            urgency: Urgency::default(),
            avoids_closing_hosts: false,
        };
        let from = from.saturating_sub(self.longest_latency(job.gpus));
        let window = engine::Window { job, from, until };
        self.sides[0].since.push(engine::Event::Promised(window));
    }

    fn submit(&mut self, index: usize, side: usize) {
        let job = &self.workload.jobs[index];
        let history = self.sides[side].plan().history();
        let expected = self
            .runtimes
            .expected(job.run_time, job.looseness, history, job.tenant, job.gpus);
        let limit = self
            .runtimes
            .are_limits()
            .then(|| expected + self.longest_latency(job.gpus));
        let job = job.job(index as JobId, expected, limit);
        self.sides[side].since.push(engine::Event::Submitted(job));
    }

    fn grant(&mut self, index: usize, start: &Start, now: Millis) {
        let Start { job, class, .. } = start;
        let id = job.id;
        let parts = self.sides[index].attached.take(*class, &start.parts);
        let noise = match self.window(id) {
            Some(window) => window.noise,
            None => self.workload.jobs[id as usize].noise,
        };
        let began = now + self.latency(noise, &parts);
        let ended = match self.window(id) {
            Some(window) => window.until.max(began),
            None => began + self.workload.jobs[id as usize].run_time,
        };
        let side = &mut self.sides[index];
        side.since.push(engine::Event::Began { job: id, at: began });
        side.running.insert(id, (*class, parts.clone()));
        self.meter.granted(index, &parts);
        self.ran_on[id as usize] = *class;
        self.events.push(Reverse((began, Event::Begin, id)));
        self.events.push(Reverse((ended, Event::End, id)));
        if let Some(window) = self.window(id) {
            let from = window.from;
            self.begun.push(BegunWindow { from, began });
            return;
        }
        self.records.push(Record {
            job: id,
            gpus: job.gpus,
            submitted: job.submitted,
            granted: now,
            began,
            ended,
            pool: index,
            class: *class,
            parts,
        });
    }

    /// The longest that attaching and detaching may take, but for one in a thousand.
    fn longest_latency(&self, gpus: u32) -> Millis {
        const VARIATE: f64 = 3.0;
        let (attach, detach) = (&self.scenario.attach, &self.scenario.detach);
        match self.ground {
            Ground::Pool => {
                ((attach.seconds(gpus, VARIATE) + detach.seconds(gpus, VARIATE)) * 1000.0) as Millis
            }
            Ground::Servers | Ground::Partitions => 0,
        }
    }

    /// How long it takes until all hosts of a job have their GPUs: they attach side by side.
    fn latency(&self, noise: [f64; 2], parts: &[Part]) -> Millis {
        if self.ground != Ground::Pool {
            return 0;
        }
        let seconds = parts.iter().map(|part| {
            self.scenario.attach.seconds(part.attached, noise[0])
                + self.scenario.detach.seconds(part.detached, noise[1])
        });
        (seconds.fold(0.0, f64::max) * 1000.0) as Millis
    }

    fn gpus(&self, id: JobId) -> u32 {
        let job = self.workload.jobs.get(id as usize).map(|job| job.gpus);
        job.or_else(|| Some(self.window(id)?.gpus)).unwrap_or(0)
    }

    fn begin(&mut self, job: JobId) {
        self.meter.begins(self.ran_on[job as usize], self.gpus(job));
    }

    fn end(&mut self, job: JobId, now: Millis) -> usize {
        let of_job = self.workload.jobs.get(job as usize);
        let index = of_job.map_or(0, |sim| self.side_of(sim));
        let gpus = self.gpus(job);
        let side = &mut self.sides[index];
        if let Some((class, parts)) = side.running.remove(&job) {
            side.attached.give_back(class, &parts, now);
            self.meter.ends(index, class, gpus, &parts);
        }
        let ran = of_job.map_or(0, |sim| sim.run_time);
        side.since.push(engine::Event::Ended { job, ran });
        index
    }
}
