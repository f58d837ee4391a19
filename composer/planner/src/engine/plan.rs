//! Running jobs with their expected ends, waiting jobs in order, and the starts of this moment.

use super::decide::{Decision, Place};
use super::history::History;
use super::lane::{Lane, Spans};
use super::order::{self, Shares, Turn};
use super::pool::Pool;
use super::shape::{Asks, Shape, asks};
use super::timeline::Timeline;
use super::{ClassIndex, HostIndex, Job, JobId, Millis, Rules, Urgency, Window};
use crate::room::{Room, Taken};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Waiting jobs are sorted again once the backlog has changed by this factor: a tenth changes the order little, and ten
/// thousand waiting jobs are not sorted at each event.
const ANOTHER: f64 = 1.1;

/// What happened since the previous plan.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    Submitted(Job),
    /// GPUs are promised for a time. The promise is refused if the GPUs are not certain to be free then.
    Promised(Window),
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
    /// It has returned its GPUs by then; [`Millis::MAX`] without a limit.
    pub limit: Millis,
    pub is_window: bool,
}

/// A promised window that has not begun.
#[derive(Clone, Debug)]
pub(super) struct Promised {
    pub job: Job,
    pub shape: usize,
    pub until: Millis,
    /// Its GPUs and slots. All that runs has been started beside them.
    pub claim: Vec<Taken>,
    /// A job may still run on them when it is to begin.
    pub is_late: bool,
    pub standing: Standing,
}

/// Which jobs leave a window its GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Standing {
    /// All but those within the guarantee of another tenant.
    #[default]
    Plain,
    /// All: it is within its tenant's guarantee.
    Guaranteed,
    /// As a guaranteed one, but for jobs of its own tenant: it is wanted now, and somebody else serves it.
    Waiting,
}

impl Promised {
    /// Whether a job of a tenant leaves it its GPUs. `is_guaranteed`: the job is within its tenant's guarantee.
    pub fn binds(&self, tenant: usize, is_guaranteed: bool) -> bool {
        match self.standing {
            Standing::Plain => !is_guaranteed || self.job.tenant == tenant,
            Standing::Guaranteed => true,
            Standing::Waiting => self.job.tenant != tenant,
        }
    }
}

/// A host that is closed for a time: no job may run into it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClosedHost {
    pub host: HostIndex,
    pub from: Millis,
    pub until: Millis,
}

/// The begin of a window, and its number.
pub(super) type WindowKey = (Millis, JobId);

/// Jobs of one tenant that ask for the same, with the same urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LaneKey {
    pub tenant: usize,
    pub shape: usize,
    pub urgency: Urgency,
    pub avoids_closing_hosts: bool,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub(super) rules: Rules,
    pub(super) pool: Pool,
    /// Free capacity.
    pub(super) room: Room,
    pub(super) shapes: Vec<Shape>,
    pub(super) shape_of: HashMap<Asks, usize>,
    pub(super) waiting: HashMap<JobId, Job>,
    pub(super) lanes: BTreeMap<LaneKey, Lane>,
    pub(super) running: BTreeMap<JobId, Running>,
    pub(super) ends: BTreeSet<(Millis, JobId)>,
    /// When running jobs have returned their GPUs at the latest.
    pub(super) limits: BTreeSet<(Millis, JobId)>,
    /// By begin.
    pub(super) windows: BTreeMap<WindowKey, Promised>,
    pub(super) timeline: Timeline,
    pub(super) closures: Vec<ClosedHost>,
    /// GPUs of an observed pool are being attached or detached, which may be all that a job lacks.
    pub(super) is_in_motion: bool,
    /// Operations have GPUs in hand, which may be all that a window lacks.
    pub(super) has_in_hand: bool,
    /// Among the windows are demands that somebody else serves.
    pub(super) is_wanted_elsewhere: bool,
    /// Idle GPUs that stay attached for a tenant, and the jobs that they serve as they are.
    pub(super) retained: BTreeMap<(usize, usize), Vec<Taken>>,
    refused: Vec<JobId>,
    pub(super) shares: Shares,
    /// When reserved jobs start at the latest, if running jobs end by then. See [`Rules::slip`].
    pub(super) starts_by: BTreeMap<JobId, Millis>,
    history: History,
    /// GPU-milliseconds that waiting jobs are expected to take.
    backlog: u128,
    /// The backlog, in hours of the whole pool, by which waiting jobs are in order.
    ranked_by: f64,
    pub(super) starts: Vec<Start>,
    /// The places that are reserved, in order of their turns.
    pub(super) places: Vec<Place>,
    /// Nothing starts after this turn while GPUs are in motion.
    pub(super) unsettled: Option<Turn>,
}

/// The next plan: what happened, and what starts now for it.
#[must_use]
pub fn replan(now: Millis, events: &[Event], mut previous: Plan) -> Plan {
    previous.refused.clear();
    for event in events {
        previous.take_note(event, now);
    }
    previous.decide(now);
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
            limits: BTreeSet::new(),
            windows: BTreeMap::new(),
            timeline: Timeline::default(),
            closures: Vec::new(),
            is_in_motion: false,
            has_in_hand: false,
            is_wanted_elsewhere: false,
            retained: BTreeMap::new(),
            refused: Vec::new(),
            shares: Shares::default(),
            starts_by: BTreeMap::new(),
            history: History::default(),
            backlog: 0,
            ranked_by: 0.0,
            starts: Vec::new(),
            places: Vec::new(),
            unsettled: None,
        }
    }

    /// The jobs that start now.
    #[must_use]
    pub fn starts(&self) -> &[Start] {
        &self.starts
    }

    /// The windows whose promise was refused in this plan.
    #[must_use]
    pub fn refused(&self) -> &[JobId] {
        &self.refused
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
        for LaneKey { shape, .. } in self.lanes.keys() {
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
        let mut room = self.pool.room(self.rules.preference);
        Shape::of(&self.pool, &room, asks(job)).fits(&mut room)
    }

    fn take_note(&mut self, event: &Event, now: Millis) {
        match *event {
            Event::Submitted(job) => self.submit(job),
            Event::Promised(window) => self.promise(window, now),
            Event::Began { job, at } => self.begins(job, at),
            Event::Ended { job, ran } => self.finish(job, ran),
            Event::Idle { host, class, gpus } => self.room.set_ready(host, class, gpus),
        }
    }

    pub(super) fn submit(&mut self, job: Job) {
        self.backlog += service(&job);
        self.line_up(&job);
        self.shares.wants(job.tenant);
        self.waiting.insert(job.id, job);
    }

    fn promise(&mut self, window: Window, now: Millis) {
        let Window { job, from, until } = window;
        let key = (from, job.id);
        let shape = self.shape_of(&job);
        let window = Promised {
            job,
            shape,
            until,
            claim: Vec::new(),
            is_late: false,
            standing: Standing::default(),
        };
        if !self.admit(key, window, now) {
            self.refused.push(job.id);
        }
    }

    /// Starts the windows that begin by now.
    pub(super) fn start_windows(&mut self, now: Millis) -> Vec<Start> {
        if self.pool.is_observed() {
            self.end_windows(now);
            return Vec::new();
        }
        let due = self.windows.range(..=(now, JobId::MAX));
        let due: Vec<WindowKey> = due.map(|(key, _)| *key).collect();
        let mut starts = Vec::new();
        let mut is_late = false;
        for key in &due {
            let Some(window) = self.windows.remove(key) else {
                continue;
            };
            if window.is_late || !self.room.seize_all(&window.claim) {
                is_late = true;
                self.windows.insert(*key, window);
                continue;
            }
            starts.extend(self.start_window(window, now));
        }
        self.timeline.moments.retain(|moment| moment.at > now);
        if is_late {
            self.start_late(&due, now, &mut starts);
        }
        starts
    }

    /// The windows of an observed pool are served beside the engine: until their end it holds what they have to get.
    fn end_windows(&mut self, now: Millis) {
        let before = self.windows.len();
        self.windows.retain(|_, window| window.until > now);
        let is_late = self.late() > 0;
        let is_past = self.timeline.moments.first().is_none_or(|moment| moment.at < now);
        if is_late || is_past || self.windows.len() < before {
            self.choose_anew(now);
        }
    }

    /// Starts late windows that fit now, and holds the free part of the GPUs that the others need.
    fn start_late(&mut self, due: &[WindowKey], now: Millis, starts: &mut Vec<Start>) {
        self.choose_anew(now);
        for key in due {
            let Some(window) = self.windows.remove(key) else {
                continue;
            };
            match window.is_late || !self.room.seize_all(&window.claim) {
                true => drop(self.windows.insert(*key, window)),
                false => starts.extend(self.start_window(window, now)),
            }
        }
        self.choose_anew(now);
    }

    fn start_window(&mut self, window: Promised, now: Millis) -> Option<Start> {
        self.shares.wants(window.job.tenant);
        let until = window.until.max(now);
        self.run(window.job, window.claim, now, (until, true))
    }

    /// Puts a job where it belongs among those that wait.
    fn line_up(&mut self, job: &Job) {
        let found = order::Found {
            backlog_hours: self.ranked_by,
            widest_host: self.pool.widest(),
        };
        let rank = (self.rules.order.rank(job, found), job.id);
        let lane = self.lane_of(job);
        let spans = Spans::of(job);
        self.lanes.entry(lane).or_default().insert(rank, spans);
    }

    fn lane_of(&mut self, job: &Job) -> LaneKey {
        LaneKey {
            tenant: job.tenant,
            shape: self.shape_of(job),
            urgency: job.urgency,
            avoids_closing_hosts: job.avoids_closing_hosts,
        }
    }

    pub(super) fn shape_of(&mut self, job: &Job) -> usize {
        let asks = asks(job);
        let (pool, room, shapes) = (&self.pool, &self.room, &mut self.shapes);
        *self.shape_of.entry(asks).or_insert_with(|| {
            shapes.push(Shape::of(pool, room, asks));
            shapes.len() - 1
        })
    }

    /// Sorts waiting jobs again if the backlog has changed enough.
    pub(super) fn rank_anew(&mut self) {
        let backlog = self.backlog as f64 / 3.6e6 / f64::from(self.pool.gpus().max(1));
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
            if !running.is_window {
                running.expected_end = at.saturating_add(running.job.expected);
            }
            self.ends.insert((running.expected_end, job));
        }
    }

    pub(super) fn finish(&mut self, job: JobId, ran: Millis) {
        let Some(ended) = self.running.remove(&job) else {
            return;
        };
        self.ends.remove(&(ended.expected_end, job));
        self.limits.remove(&(ended.limit, job));
        self.room.put_back(&ended.taken);
        self.timeline.credit(&ended.taken, ended.limit);
        self.shares.gives_back(ended.job.tenant, ended.job.gpus);
        if !ended.is_window {
            self.history.learn(ended.job.tenant, ended.job.gpus, ran);
        }
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
        self.starts_by.remove(&job.id);
        let end = now.saturating_add(job.expected);
        self.run(job, taken, now, (end, false))
    }

    fn run(
        &mut self,
        job: Job,
        taken: Vec<Taken>,
        now: Millis,
        (expected_end, is_window): (Millis, bool),
    ) -> Option<Start> {
        let class = self.pool.class_of(taken.first()?.shelf);
        let gpus = match self.pool.is_observed() {
            true => self.room.gpus_of(&taken),
            false => job.gpus,
        };
        let job = Job { gpus, ..job };
        self.shares.takes(job.tenant, job.gpus);
        let mut parts: BTreeMap<HostIndex, u32> = BTreeMap::new();
        let mut hosts = Vec::new();
        for taken in &taken {
            let gpus = parts.entry(taken.host).or_default();
            if *gpus == 0 {
                hosts.push(taken.host);
            }
            *gpus += 1;
        }
        let limit = match is_window {
            true => expected_end,
            false => job.end_at_latest(now),
        };
        self.runs(Running {
            job,
            taken,
            began: now,
            expected_end,
            limit,
            is_window,
        });
        Some(Start {
            job,
            class,
            parts: hosts.into_iter().map(|host| (host, parts[&host])).collect(),
        })
    }
}

impl Plan {
    /// A job has its GPUs.
    pub(super) fn runs(&mut self, running: Running) {
        let id = running.job.id;
        self.ends.insert((running.expected_end, id));
        self.limits.insert((running.limit, id));
        self.running.insert(id, running);
    }

    /// The hosts that are closed at some time from a moment until another.
    pub(super) fn closed_within(&self, from: Millis, until: Millis) -> BTreeSet<HostIndex> {
        let met = self
            .closures
            .iter()
            .filter(|closed| closed.until > from && (closed.from <= from || closed.from < until));
        met.map(|closed| closed.host).collect()
    }

    pub(super) fn closed_at(&self, at: Millis) -> BTreeSet<HostIndex> {
        self.closed_within(at, at)
    }
}

/// GPU-milliseconds that a job is expected to take.
fn service(job: &Job) -> u128 {
    u128::from(job.expected) * u128::from(job.gpus)
}
