//! Running jobs with their expected ends, waiting jobs in order, and the starts of this moment.

use super::decide::Decision;
use super::history::History;
use super::lane::Lane;
use super::order::{self, Shares};
use super::pool::Pool;
use super::shape::{Asks, Shape, asks};
use super::{ClassIndex, HostIndex, Job, JobId, Millis, Rules};
use crate::room::{Room, Taken};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Waiting jobs are sorted again once the backlog has changed by this factor: a tenth changes the order little, and ten
/// thousand waiting jobs are not sorted at each event.
const ANOTHER: f64 = 1.1;

/// What happened since the previous plan.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    Submitted(Job),
    /// The GPUs of a job are attached at that time: its end is expected from then.
    Began {
        job: JobId,
        at: Millis,
    },
    /// A job has ended. It has run for so long.
    Ended {
        job: JobId,
        ran: Millis,
    },
    /// The number of idle GPUs of a class that are attached to a host.
    Idle {
        host: HostIndex,
        class: ClassIndex,
        gpus: u32,
    },
}

/// A job that starts now, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    pub job: Job,
    pub class: ClassIndex,
    /// GPUs by host.
    pub parts: Vec<(HostIndex, u32)>,
}

/// A job that runs, or whose GPUs are being attached.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub job: Job,
    pub taken: Vec<Taken>,
    pub began: Millis,
    pub expected_end: Millis,
}

/// Jobs of one tenant that ask for the same.
pub(super) type LaneKey = (usize, usize);

#[derive(Clone, Debug)]
pub struct Plan {
    pub(super) rules: Rules,
    pub(super) pool: Pool,
    /// Free capacity.
    pub(super) room: Room,
    pub(super) shapes: Vec<Shape>,
    shape_of: HashMap<Asks, usize>,
    pub(super) waiting: HashMap<JobId, Job>,
    pub(super) lanes: BTreeMap<LaneKey, Lane>,
    pub(super) running: BTreeMap<JobId, Running>,
    pub(super) ends: BTreeSet<(Millis, JobId)>,
    pub(super) shares: Shares,
    /// When reserved jobs were first expected to begin.
    pub(super) promised: BTreeMap<JobId, Millis>,
    history: History,
    /// GPU-milliseconds that waiting jobs are expected to take.
    backlog: u128,
    /// The backlog, in hours of the whole pool, by which waiting jobs are in order.
    ranked_by: f64,
    starts: Vec<Start>,
}

/// The next plan: what happened, and what starts now for it.
#[must_use]
pub fn replan(now: Millis, events: &[Event], mut previous: Plan) -> Plan {
    for event in events {
        previous.take_note(event);
    }
    previous.starts = previous.decide(now);
    previous
}

impl Plan {
    /// Of a pool in which nothing runs or waits.
    #[must_use]
    pub fn new(pool: Pool, rules: Rules) -> Self {
        Self {
            room: pool.room(rules.preference),
            rules,
            pool,
            shapes: Vec::new(),
            shape_of: HashMap::new(),
            waiting: HashMap::new(),
            lanes: BTreeMap::new(),
            running: BTreeMap::new(),
            ends: BTreeSet::new(),
            shares: Shares::default(),
            promised: BTreeMap::new(),
            history: History::default(),
            backlog: 0,
            ranked_by: 0.0,
            starts: Vec::new(),
        }
    }

    /// The jobs that start now.
    #[must_use]
    pub fn starts(&self) -> &[Start] {
        &self.starts
    }

    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Jobs that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// For each class the width of the narrowest job that waits and may run on it.
    #[must_use]
    pub fn narrowest(&self) -> Vec<Option<u32>> {
        let mut narrowest = vec![None; self.pool.classes().len()];
        for (_, shape) in self.lanes.keys() {
            let Shape { gpus, classes, .. } = &self.shapes[*shape];
            for narrowest in narrowest.get_mut(classes.clone()).unwrap_or_default() {
                *narrowest = Some(narrowest.map_or(*gpus, |least: u32| least.min(*gpus)));
            }
        }
        narrowest
    }

    /// Whether a job would have room if nothing else ran.
    #[must_use]
    pub fn holds(&self, job: &Job) -> bool {
        Shape::of(&self.pool, asks(job)).fits(&mut self.pool.room(self.rules.preference))
    }

    fn take_note(&mut self, event: &Event) {
        match *event {
            Event::Submitted(job) => self.submit(job),
            Event::Began { job, at } => self.begins(job, at),
            Event::Ended { job, ran } => self.finish(job, ran),
            Event::Idle { host, class, gpus } => self.room.set_ready(host, class, gpus),
        }
    }

    fn submit(&mut self, job: Job) {
        self.backlog += service(&job);
        self.line_up(&job);
        self.shares.wants(job.tenant);
        self.waiting.insert(job.id, job);
    }

    /// Puts a job where it belongs among those that wait.
    fn line_up(&mut self, job: &Job) {
        let found = order::Found {
            backlog_hours: self.ranked_by,
            widest_host: self.pool.widest(),
        };
        let rank = (self.rules.order.rank(job, found), job.id);
        let lane = self.lane_of(job);
        self.lanes.entry(lane).or_default().insert(rank, job.expected);
    }

    fn lane_of(&mut self, job: &Job) -> LaneKey {
        let asks = asks(job);
        let (pool, shapes) = (&self.pool, &mut self.shapes);
        let shape = *self.shape_of.entry(asks).or_insert_with(|| {
            shapes.push(Shape::of(pool, asks));
            shapes.len() - 1
        });
        (job.tenant, shape)
    }

    /// Sorts waiting jobs again if the backlog has changed enough.
    pub(super) fn rank_anew(&mut self) {
        let gpus: u32 = self.pool.classes().iter().map(|class| class.gpus).sum();
        let backlog = self.backlog as f64 / 3.6e6 / f64::from(gpus.max(1));
        let same = self.ranked_by / ANOTHER..=self.ranked_by * ANOTHER;
        if !self.rules.order.rests_on_backlog() || same.contains(&backlog) {
            return;
        }
        self.ranked_by = backlog;
        self.lanes.clear();
        let waiting: Vec<Job> = self.waiting.values().copied().collect();
        waiting.iter().for_each(|job| self.line_up(job));
    }

    fn begins(&mut self, job: JobId, at: Millis) {
        if let Some(running) = self.running.get_mut(&job) {
            self.ends.remove(&(running.expected_end, job));
            running.began = at;
            running.expected_end = at.saturating_add(running.job.expected);
            self.ends.insert((running.expected_end, job));
        }
    }

    fn finish(&mut self, job: JobId, ran: Millis) {
        let Some(ended) = self.running.remove(&job) else {
            return;
        };
        self.ends.remove(&(ended.expected_end, job));
        self.room.put_back(&ended.taken);
        self.shares.gives_back(ended.job.tenant, ended.job.gpus);
        self.history.learn(ended.job.tenant, ended.job.gpus, ran);
    }

    /// Jobs that run longer than expected: as much longer as others like them that ran so long.
    pub(super) fn put_off_overdue(&mut self, now: Millis) {
        while let Some((end, job)) = self.ends.first().copied().filter(|(end, _)| *end <= now) {
            self.ends.remove(&(end, job));
            if let Some(running) = self.running.get_mut(&job) {
                let ran = now.saturating_sub(running.began);
                let remaining = self.history.remaining(running.job.tenant, ran);
                running.expected_end = now.saturating_add(remaining);
                self.ends.insert((running.expected_end, job));
            }
        }
    }

    /// A job runs from now on.
    pub(super) fn start(&mut self, decision: &Decision, taken: Vec<Taken>, now: Millis) -> Option<Start> {
        let job = self.waiting.remove(&decision.rank.1)?;
        self.backlog -= service(&job);
        let lane = self.lanes.get_mut(&decision.lane)?;
        lane.remove(decision.rank);
        if lane.is_empty() {
            self.lanes.remove(&decision.lane);
        }
        self.promised.remove(&job.id);
        let class = self.pool.class_of(taken.first()?.shelf);
        let mut parts: BTreeMap<HostIndex, u32> = BTreeMap::new();
        let mut hosts = Vec::new();
        for taken in &taken {
            let gpus = parts.entry(taken.host).or_default();
            if *gpus == 0 {
                hosts.push(taken.host);
            }
            *gpus += 1;
        }
        self.shares.takes(job.tenant, job.gpus);
        let expected_end = now.saturating_add(job.expected);
        self.ends.insert((expected_end, job.id));
        let running = Running {
            job,
            taken,
            began: now,
            expected_end,
        };
        self.running.insert(job.id, running);
        Some(Start {
            job,
            class,
            parts: hosts.into_iter().map(|host| (host, parts[&host])).collect(),
        })
    }
}

/// GPU-milliseconds that a job is expected to take.
fn service(job: &Job) -> u128 {
    u128::from(job.expected) * u128::from(job.gpus)
}
