//! How a job comes into the queue, how it is said to be done, and what is told of those that wait.

use super::Composer;
use super::planning::{Basis, Wanted};
use super::queue_told::Begins;
use super::queueing::SOON;
use super::sizing::{most_slots, pool_kinds};
use crate::demand::{DemandRecord, DemandSpec, Pending};
use crate::error::{ErrorCode, ServiceError};
use crate::job::{Asked, Because, FAIR_SHARE_H, Job, JobRun, JobSpec};
use crate::run_times::RunTimes;
use crate::schedule::{Calendar, next_change, wanted_ahead};
use jiff::{SignedDuration, Timestamp};
use poolwright_executor::OperationState;
use poolwright_model::composable::WhyNotKind;
use poolwright_model::id::{DemandId, GpuId, TenantId};
use poolwright_planner::engine::Found;
use poolwright_planner::engine::observed::{self, Ahead, Expected, MayStop, Observed, Outlook, WaitingJob};
use poolwright_planner::promise::width;
use poolwright_planner::{Composition, Demand, PlanInput, Reserved, World};
use poolwright_store::{read, read_all};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Edges of calendars that are looked ahead to, and how far.
const MOST_EDGES: usize = 48;
const FARTHEST: SignedDuration = SignedDuration::from_hours(31 * 24);
/// For so long nothing new is learned from finished jobs.
const LEARNED_FOR: SignedDuration = SignedDuration::from_mins(1);

/// The queue, as it is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Queue {
    pub now: Timestamp,
    /// Why no job begins by itself just now, if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    /// Those that have their GPUs, or are getting them or letting go of them.
    pub running: Vec<RunningJob>,
    /// In the order of their turns.
    pub waiting: Vec<QueuedJob>,
}

/// A job that has its turn behind it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunningJob {
    pub demand: DemandId,
    pub tenant: TenantId,
    pub label: String,
    /// GPUs that it holds.
    pub gpus: u32,
    pub begun: Timestamp,
    /// When it is expected to let go of them.
    pub ends: Timestamp,
    /// For people: how far it is.
    pub state: String,
    /// Something failed or is forbidden for it, and is tried again.
    #[serde(default)]
    pub held_up: bool,
}

/// A job that waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueuedJob {
    /// From 1.
    pub position: u32,
    pub demand: DemandId,
    pub tenant: TenantId,
    pub label: String,
    pub gpus: u32,
    pub submitted: Timestamp,
    pub expected_s: u64,
    /// It is within what its tenant is guaranteed.
    pub guaranteed: bool,
    /// How often it was stopped.
    #[serde(default)]
    pub stopped: u32,
    /// For people.
    pub because: String,
    /// It is not its turn nor room that it waits for: something failed or is forbidden.
    #[serde(default)]
    pub held_up: bool,
    /// When it is expected to begin, by what is known of those that run and of those that wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins: Option<Timestamp>,
    /// The GPUs that are kept for it then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<GpuId>,
}

/// All that the order of jobs rests on, read at one time.
pub(super) struct Line {
    basis: Basis,
    jobs: Vec<DemandRecord>,
    now: Timestamp,
    ahead: Vec<Ahead>,
    /// Calendars go on after it.
    ahead_until: Option<Timestamp>,
    calendars: BTreeSet<DemandId>,
    in_motion: bool,
    /// How long it takes until the GPUs of each job are returned.
    returns: BTreeMap<DemandId, SignedDuration>,
    reservations: Vec<(Timestamp, Reserved)>,
    slip: SignedDuration,
    suspects: BTreeSet<GpuId>,
    /// What waits now.
    found: Found,
}

/// As the line knows a job that waits.
fn asked(record: &DemandRecord) -> Option<Asked> {
    let job = record.job.as_ref().filter(|job| job.waits())?;
    Some(job.asked(width(&record.demand), record.spec.priority))
}

impl Line {
    /// When something is to be done next that nobody tells of: by calendars, or for a job whose time has come.
    pub fn due(&self) -> Option<Timestamp> {
        let of_job = |record: &DemandRecord| {
            let (job, spec) = (record.job.as_ref()?, record.spec.queue.as_ref()?);
            let length = spec.makes_way().then(|| spec.ladder().length());
            let called = |ahead: &Ahead| ahead.at.checked_sub(length?).ok()?.checked_sub(SOON).ok();
            let notices = self.ahead.iter().filter_map(called).filter(|at| *at > self.now);
            let stopping = job.stopping.as_ref();
            let returns = self.returns.get(&record.spec.id).copied().unwrap_or_default();
            let stops = stopping.and_then(|stopping| stopping.looked_at(spec, returns, self.now));
            let single = [stops, job.limit(spec), job.not_before].into_iter().flatten();
            single.chain(notices.min()).filter(|at| *at > self.now).min()
        };
        let edges = self.ahead.iter().map(|ahead| ahead.at).find(|at| *at > self.now);
        let waits = || self.jobs.iter().filter(|record| asked(record).is_some());
        let closures = self.basis.maintenance.closures.iter();
        let hosts = closures.filter_map(|closure| closure.next_edge(self.now));
        let freed = self.reservations.iter().map(|(until, _)| *until).chain(hosts);
        let freed = freed.filter(|_| waits().next().is_some()).min();
        self.jobs
            .iter()
            .filter_map(of_job)
            .chain(edges)
            .chain(freed)
            .min()
    }

    /// What starts now and why the others don't, and when these will, if anything begins.
    fn foreseen(&self, any_begins: bool) -> (Outlook, Expected) {
        let observed = self.observed();
        match any_begins {
            true => observed.expected(),
            false => (observed.outlook(), Expected::default()),
        }
    }

    /// As the planning engine is told it.
    pub fn observed(&self) -> Observed<'_> {
        let returns = |id: &DemandId| self.returns.get(id).copied().unwrap_or_default();
        let stops = |spec: &JobSpec| spec.makes_way().then(|| spec.ladder().length());
        let waits = |record: &DemandRecord| {
            let job = record.job.as_ref()?;
            let spec = record.spec.queue.clone().unwrap_or_default();
            // It is attached first, which takes as long as a return at most.
            let ends = spec
                .at_most
                .map(|most| most.saturating_add(returns(&record.spec.id) * 2));
            (job.waits() && record.pending.is_none()).then(|| WaitingJob {
                demand: record.demand.clone(),
                turn: asked(record).map_or(job.turn, |asked| asked.turn(self.found)),
                expected: job.expected(),
                limit: ends.into_iter().chain(stops(&spec)).min(),
                ends_within: ends,
                preempts: spec.preempts,
                not_before: job.not_before,
                starts_by: job.starts_by,
            })
        };
        let runs = |record: &DemandRecord| {
            let job = record.job.as_ref()?;
            let spec = record.spec.queue.clone().unwrap_or_default();
            let may_stop = stops(&spec).filter(|_| job.stopping.is_none() && job.ended.is_none());
            let longer = if record.pending.is_some() { 2 } else { 1 };
            let returned = |limit: Timestamp| limit.saturating_add(returns(&record.spec.id) * longer).ok();
            Some(observed::RunningJob {
                demand: record.spec.id.clone(),
                ends: job.ends(&spec, self.now)?,
                limit: job.limit(&spec).and_then(returned),
                stops: may_stop.map(|within| MayStop {
                    within,
                    checkpoints: spec.checkpoint.is_some(),
                }),
                is_leaving: matches!(record.pending, Some(Pending::Releasing(_))) || job.is_leaving(),
                tenant: record.spec.tenant.clone(),
                priority: record.spec.priority,
                began: job.begun?,
            })
        };
        Observed {
            world: self.basis.world(),
            now: self.now,
            waiting: self.jobs.iter().filter_map(waits).collect(),
            running: self.jobs.iter().filter_map(runs).collect(),
            ahead: self.ahead.clone(),
            ahead_until: self.ahead_until,
            calendars: self.calendars.clone(),
            fair_share: FAIR_SHARE_H,
            slip: self.slip,
            in_motion: self.in_motion,
            reservations: self.reservations.clone(),
            suspects: self.suspects.clone(),
            closures: self.basis.maintenance.closures.clone(),
        }
    }
}

impl Composer {
    /// The jobs that wait, each with why, and those that run.
    #[crate::boxed]
    pub async fn queue(&self) -> Result<Queue, ServiceError> {
        let line = self.line_of(self.demands().await?).await?;
        let paused = self.queue_is_paused().await?;
        // While nothing begins, nobody can tell when it will.
        let begins = paused.is_none();
        let foresee = move || {
            let (outlook, expected) = line.foreseen(begins);
            Ok((line, outlook, expected))
        };
        let (line, outlook, expected) = self.foreseeing.work(foresee).await?;
        let jobs: BTreeMap<&DemandId, &DemandRecord> =
            line.jobs.iter().map(|job| (&job.spec.id, job)).collect();
        let mut waiting = Vec::new();
        for (place, position) in outlook.places.into_iter().zip(1..) {
            let Some((record, job)) = jobs.get(&place.demand).and_then(|r| Some((r, r.job.as_ref()?))) else {
                continue;
            };
            let begins = match expected.begins.get(&place.demand) {
                _ if paused.is_some() => Begins::Paused,
                Some(at) => Begins::At(*at),
                None => expected
                    .cut
                    .get(&place.demand)
                    .map_or(Begins::Never, |cut| Begins::Cut(*cut)),
            };
            waiting.push(self.told_waiting((place, position), (record, job), begins));
        }
        let running = line
            .jobs
            .iter()
            .filter_map(|record| self.told_running(record, &line))
            .collect();
        Ok(Queue {
            now: line.now,
            paused,
            running,
            waiting,
        })
    }

    /// How many jobs run, and how many wait.
    #[crate::boxed]
    pub async fn queue_lengths(&self) -> Result<(usize, usize), ServiceError> {
        let demands = self.demands().await?;
        let jobs = demands
            .iter()
            .filter_map(|record| Some((record, record.job.as_ref()?)));
        let (waiting, running): (Vec<_>, Vec<_>) =
            jobs.partition(|(record, job)| job.waits() && record.pending.is_none());
        Ok((running.len(), waiting.len()))
    }

    fn told_running(&self, record: &DemandRecord, line: &Line) -> Option<RunningJob> {
        let job = record.job.as_ref()?;
        let spec = record.spec.queue.clone().unwrap_or_default();
        let held = line
            .basis
            .held
            .iter()
            .filter(|c| c.demand.as_ref() == Some(&record.spec.id));
        let failure = job.failure.as_ref().map(|why| format!("; {why}"));
        let held_up = self.held_up(&record.spec.id).map(|why| format!("; {why}"));
        let state = match (&record.pending, &job.ended, &job.stopping) {
            (Some(Pending::Composing(operation)), ..) => {
                format!("gets its GPUs by {operation}")
            }
            (Some(Pending::Releasing(operation)), ..) => {
                format!("lets go of its GPUs by {operation}")
            }
            (None, Some(ended), _) => format!("over ({}), and still has its GPUs", ended.because),
            (None, None, Some(stopping)) => stopping.to_string(),
            (None, None, None) => match job.limit(&spec) {
                Some(limit) => format!("runs, until {limit} at most"),
                None => "runs".to_owned(),
            },
        };
        Some(RunningJob {
            held_up: failure.is_some() || held_up.is_some(),
            demand: record.spec.id.clone(),
            tenant: record.spec.tenant.clone(),
            label: record.demand.need.label.clone(),
            gpus: held.map(Composition::gpu_count).sum(),
            begun: job.begun?,
            ends: job.ends(&spec, line.now)?,
            state: format!(
                "{state}{}{}",
                failure.unwrap_or_default(),
                held_up.unwrap_or_default()
            ),
        })
    }

    /// Says that a job is done: its GPUs are let go of, and its time is kept for those that come.
    #[crate::boxed]
    pub async fn job_done(&self, id: &DemandId) -> Result<DemandRecord, ServiceError> {
        self.end_by_hand(id, Because::Done).await?;
        self.demand(id).await
    }

    /// Says that a job is over. One that waits has nothing to let go of.
    pub(super) async fn end_by_hand(&self, id: &DemandId, because: Because) -> Result<(), ServiceError> {
        let _turn = self.turn.lock().await;
        if let Some(found) = read::<DemandRecord>(self.store.as_ref(), id.as_str()).await? {
            self.settle(found).await?;
        }
        let found = read::<DemandRecord>(self.store.as_ref(), id.as_str()).await?;
        let found = found.ok_or_else(|| ServiceError::not_found("demand", id.as_str()))?;
        self.may_want([&found.value.spec])?;
        super::changing::may_be_withdrawn(&found.value)?;
        let conflict =
            |what: String, hint: String| Err(ServiceError::new(ErrorCode::Conflict, what).with_hint(hint));
        match &found.value.job {
            None => conflict(
                format!("demand {id} is no job of the queue"),
                format!("let go of it: poolwright release {id}"),
            ),
            Some(job) if job.ended.is_some() => conflict(
                format!("job {id} has ended, and its GPUs are being released"),
                "wait until it is gone: poolwright queue".to_owned(),
            ),
            Some(job) if job.waits() => conflict(
                format!("job {id} has not begun"),
                format!("take it out of the queue: poolwright demand remove {id}"),
            ),
            Some(_) => self.end_job(&found, because).await,
        }
    }

    /// A demand's job, in the line from now on. Refused where it could never have its GPUs.
    pub(super) async fn job_of(
        &self,
        spec: &DemandSpec,
        demand: &Demand,
    ) -> Result<Option<Job>, ServiceError> {
        let Some(queue) = &spec.queue else { return Ok(None) };
        self.could_be_held(demand).await?;
        let gpus = width(demand);
        let runs = self.run_times().await?;
        let expected = match queue.runs_for {
            Some(said) => runs.corrected(&demand.tenant, *said),
            None => runs.expected(&demand.tenant, gpus),
        };
        let expected = queue.at_most.map_or(expected, |most| expected.min(*most));
        let asked = Asked {
            at: self.clock.now(),
            gpus,
            priority: spec.priority,
            expected,
        };
        let others = self.demands().await?;
        let others = others.iter().filter(|other| other.spec.id != spec.id);
        let waiting = others.filter_map(self::asked).chain([asked]);
        let found = self.found(waiting).await?;
        Ok(Some(Job::new(asked, found)))
    }

    /// What finished jobs tell; read again after a minute, for there may be many.
    pub(super) async fn run_times(&self) -> Result<Arc<RunTimes>, ServiceError> {
        let now = self.clock.now();
        let mut learned = self.learned.lock().await;
        let known = learned
            .as_ref()
            .filter(|(at, _)| now.duration_since(*at).abs() < LEARNED_FOR);
        if let Some((_, known)) = known {
            return Ok(known.clone());
        }
        let runs = read_all::<JobRun>(self.store.as_ref()).await?;
        let runs = RunTimes::of(runs.into_iter().map(|found| found.value).collect());
        let (_, known) = learned.insert((now, Arc::new(runs)));
        Ok(known.clone())
    }

    /// What jobs that wait are to a pool like this.
    async fn found(&self, waiting: impl Iterator<Item = Asked>) -> Result<Found, ServiceError> {
        let service_h: f64 = waiting.map(|asked| asked.service_h()).sum();
        let snapshot = self.snapshot().await?;
        let gpus: u32 = pool_kinds(&snapshot).iter().map(|kind| kind.count).sum();
        Ok(Found {
            backlog_hours: service_h / f64::from(gpus.max(1)),
            widest_host: most_slots(&snapshot).unwrap_or(1).max(1),
        })
    }

    /// Refuses what the pool could not hold if nobody had anything, with the limit.
    async fn could_be_held(&self, demand: &Demand) -> Result<(), ServiceError> {
        let mut basis = self.basis(Wanted::Named).await?;
        // A host that is closed for a time is not gone.
        basis.open_all();
        basis.promises.shares = self.shares().await?;
        let mut held = Vec::clone(&basis.held);
        // Nobody of that name wants anything, so all of it is free.
        held.iter_mut()
            .for_each(|c| c.demand = Some(DemandId::from_lossy("-")));
        let plan = poolwright_planner::plan(&PlanInput {
            world: World {
                held: &held,
                reserved: &[],
                demands: std::slice::from_ref(demand),
                ..basis.world()
            },
            ..self.input(&basis)
        });
        let Some(unplaced) = plan.unplaced.first() else {
            return Ok(());
        };
        if !unplaced.is_never() {
            return Ok(());
        }
        let message = format!("it would wait for ever: {}", unplaced.shortfall());
        let error = ServiceError::new(ErrorCode::Unplaced, message).with_details(unplaced.alternatives());
        Err(match unplaced.help() {
            Some(help) => error.with_hint(help),
            None => error,
        })
    }

    /// Reads all that the order of these jobs rests on; other demands among them are what calendars decide about.
    pub(super) async fn line_of(&self, demands: Vec<DemandRecord>) -> Result<Line, ServiceError> {
        let now = self.clock.now();
        let mut basis = self.basis(Wanted::Named).await?;
        let jobs = demands.iter().filter(|record| record.job.is_some());
        let jobs = jobs.map(|record| &record.spec.id).collect();
        // What is left for jobs is decided by the order of the queue.
        basis.promises = self
            .promises(&basis.held, &self.underway().await?.composes, &jobs)
            .await?;
        self.leave_out_stale(&mut basis);
        let paused = self.paused_endpoints().await?;
        basis.close(WhyNotKind::Paused, &paused);
        let calendars = self.calendars().await?;
        let mut decided = self.scheduled().await?;
        decided.extend(
            calendars
                .iter()
                .flat_map(|calendar| calendar.suspends.iter().cloned()),
        );
        decided.retain(|id| {
            !demands
                .iter()
                .any(|record| record.spec.id == *id && record.job.is_some())
        });
        let (ahead, ahead_until) = self.ahead(&demands, &calendars, &decided, now).await?;
        let mut jobs = demands;
        jobs.retain(|record| record.job.is_some());
        let found = self.found(jobs.iter().filter_map(asked)).await?;
        let reservations = self.reserved_until().await?;
        // Nothing else rests on how long returns take.
        let any_begins = !(ahead.is_empty() && basis.maintenance.closures.is_empty());
        let is_limited = |record: &&DemandRecord| {
            let (Some(job), Some(spec)) = (&record.job, &record.spec.queue) else {
                return false;
            };
            job.stopping.is_some() || (spec.at_most.is_some() && any_begins)
        };
        let limited: Vec<&DemandRecord> = jobs.iter().filter(is_limited).collect();
        let mut returns = BTreeMap::new();
        if !limited.is_empty() {
            let measured = self.measured().await?;
            let of_any = measured.of([]).early();
            returns.extend(limited.into_iter().map(|record| {
                let id = &record.spec.id;
                let waits = record.job.as_ref().is_some_and(Job::waits);
                (id.clone(), if waits { of_any } else { measured.of([id]).early() })
            }));
        }
        let mut in_motion = false;
        for pending in jobs.iter().filter_map(|record| record.pending.as_ref()) {
            let operation = match self.executor.get(pending.operation()).await {
                // Somebody must look at it, and it keeps nobody waiting.
                Err(error) if error.is_unreadable() => None,
                found => found?,
            };
            let moves = |state| matches!(state, OperationState::Pending | OperationState::Running);
            in_motion |= operation.is_some_and(|operation| moves(operation.state));
        }
        Ok(Line {
            basis,
            jobs,
            now,
            ahead,
            ahead_until,
            calendars: decided,
            in_motion,
            returns,
            reservations,
            slip: self.kept_limits().await?.slip(),
            suspects: self.books.pages().suspects.keys().cloned().collect(),
            found,
        })
    }

    /// What calendars want from now on, at each of their edges; and until when, where they go on after that.
    async fn ahead(
        &self,
        demands: &[DemandRecord],
        calendars: &[Calendar],
        decided: &BTreeSet<DemandId>,
        now: Timestamp,
    ) -> Result<(Vec<Ahead>, Option<Timestamp>), ServiceError> {
        let courses = self.courses().await?;
        if calendars.is_empty() && courses.is_empty() {
            return Ok((Vec::new(), None));
        }
        let farthest = now.saturating_add(FARTHEST).unwrap_or(Timestamp::MAX);
        let (mut edges, mut until) = (vec![now], None);
        while let Some(next) = edges
            .last()
            .and_then(|last| next_change(calendars, &courses, *last))
        {
            if next > farthest || edges.len() == MOST_EDGES {
                until = edges.last().copied();
                break;
            }
            edges.push(next);
        }
        let mut before: BTreeSet<String> = BTreeSet::new();
        let ahead = edges.into_iter().map(|at| {
            let open = calendars.iter().filter(|calendar| calendar.may_be_open(at));
            let names: BTreeSet<String> = open.map(|calendar| calendar.id.to_string()).collect();
            let told = |names: Vec<&String>, what: &str| {
                let mut names = names.into_iter();
                names.next().map(|name| format!("schedule {name}, which {what}"))
            };
            let label = match at == now {
                true => told(names.iter().collect(), "is open"),
                false => told(names.difference(&before).collect(), "opens")
                    .or_else(|| told(before.difference(&names).collect(), "closes")),
            };
            before = names;
            let mut wanted = wanted_ahead(demands, calendars, at);
            wanted.retain(|demand| decided.contains(&demand.id));
            Ahead {
                at,
                wanted,
                label: label.unwrap_or_else(|| "a demand with phases".to_owned()),
            }
        });
        Ok((ahead.collect(), until))
    }
}
