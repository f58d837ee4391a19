//! An observed pool as the problem of the engine: free capacity by count, what runs and until when, what is promised.

use super::reasons::Judged;
use super::{Observed, RunningJob, Stop, WaitingJob};
use crate::capacity::Capacity;
use crate::engine::plan::{ClosedHost, Running};
use crate::engine::{
    Backfill, Event, Job, JobId, Millis, Order, Plan, Pool, Preference, Rules, Urgency, replan,
};
use crate::promise::{Share, width};
use crate::room::{Freshness, NO_HOST, Taken};
use crate::survey::Survey;
use crate::{Composition, Cordoned, Demand, World, kept};
use jiff::{SignedDuration, Timestamp};
use poolwright_model::id::{DemandId, HostPortId, TenantId, UnitId};
use poolwright_sizing::need::Need;
use std::collections::{BTreeMap, BTreeSet};

/// The engine's time begins so long before now: no job in a queue is older, priority included.
const BEFORE: SignedDuration = SignedDuration::from_hours(20 * 366 * 24);

pub(super) struct State<'s> {
    pub live: &'s Observed<'s>,
    pub survey: Survey<'s>,
    pub capacity: Capacity<'s>,
    pub plan: Plan,
    pub now: Millis,
    pub waiting: BTreeMap<JobId, &'s WaitingJob>,
    pub running: BTreeMap<JobId, &'s RunningJob>,
    /// Jobs that are not to be tried before.
    pub put_off: BTreeMap<JobId, Job>,
    /// What calendars hold and do not want any more.
    pub closing: BTreeSet<JobId>,
    /// For people: what is wanted at a moment.
    pub labels: BTreeMap<Millis, String>,
    /// Idle units that stay attached, by where.
    pub retained: BTreeMap<(usize, usize), Vec<usize>>,
    /// Units that others hold, by shelf, with when they are expected to return them.
    pub returns: BTreeMap<usize, Vec<(Millis, usize)>>,
    tenants: BTreeMap<&'s TenantId, usize>,
    needs: Vec<Wanted<'s>>,
    /// GPUs that tenants hold.
    holds: BTreeMap<TenantId, u32>,
    submitted: Vec<Event>,
    last_id: JobId,
}

/// A need, with the most GPUs that its tenant may still get where that rules alternatives out.
struct Wanted<'s> {
    need: &'s Need,
    most: Option<u32>,
}

impl<'s> Wanted<'s> {
    fn of(demand: &'s Demand, live: &Observed<'_>, holds: &BTreeMap<TenantId, u32>) -> Self {
        let held = holds.get(&demand.tenant).copied().unwrap_or_default();
        let most = live.world.promises.share(&demand.tenant).most;
        let most = most.map(|most| most.saturating_sub(held));
        let counts = || demand.need.alternatives.iter().map(|set| set.count);
        let rules_out =
            |most: &u32| counts().any(|count| count > *most) && counts().any(|count| count <= *most);
        Self {
            need: &demand.need,
            most: most.filter(rules_out),
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        self.most == other.most && is_alike(self.need, other.need)
    }

    fn need(&self) -> Need {
        let mut need = self.need.clone();
        need.alternatives
            .retain(|set| self.most.is_none_or(|most| set.count <= most));
        need
    }
}

impl<'s> State<'s> {
    pub fn of(live: &'s Observed<'s>, open: &'s Cordoned) -> Self {
        let world = World {
            cordoned: open,
            ..live.world
        };
        let survey = Survey::of(&world);
        let mut capacity = Capacity::with_units_in_motion(&survey, &live.suspects);
        let mut retained: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
        let kept = live.world.held.iter().filter(|c| c.kept.is_some());
        for held in kept
            .filter(|c| survey.deferral(c).is_none())
            .flat_map(|c| &c.held)
        {
            let unit = survey.unit_place(&held.unit);
            if let Some(unit) = unit.filter(|unit| survey.units[*unit].is_usable()) {
                let takes = (held.slots(), &survey.load.crossing_of(held));
                capacity.release(unit, &held.host_port, takes);
                let at = capacity.port_place(&held.host_port);
                retained.entry(at.unwrap_or((NO_HOST, 0))).or_default().push(unit);
            }
        }
        let holds = live.world.promises.holds(live.world.held);
        let mut needs: Vec<Wanted<'_>> = Vec::new();
        let wanted = live.ahead.iter().flat_map(|ahead| &ahead.wanted);
        let jobs = live.waiting.iter().map(|job| &job.demand);
        for demand in jobs.chain(wanted).chain(&live.world.promises.waiting) {
            let wanted = Wanted::of(demand, live, &holds);
            if !needs.iter().any(|other| other.is_like(&wanted)) {
                needs.push(wanted);
            }
        }
        let gpus = u32::try_from(live.world.snapshot.topology.gpus.len()).unwrap_or(u32::MAX);
        let pool = Pool::observed(
            capacity.room.clone(),
            gpus,
            needs.iter().map(Wanted::need).collect(),
        );
        let rules = Rules {
            order: Order::Arrival,
            backfill: Backfill::Reserve,
            preference: Preference::BestFit,
            fair_share: live.fair_share,
            slip: Some(span(live.slip)),
        };
        let mut state = Self {
            now: 0,
            plan: Plan::new(pool, rules),
            live,
            survey,
            capacity,
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            put_off: BTreeMap::new(),
            closing: BTreeSet::new(),
            labels: BTreeMap::new(),
            retained,
            returns: BTreeMap::new(),
            tenants: BTreeMap::new(),
            needs,
            holds,
            submitted: Vec::new(),
            last_id: 0,
        };
        state.now = state.at(live.now);
        state.plan.is_in_motion = live.in_motion;
        state.plan.has_in_hand = live.reservations.len() < live.world.reserved.len();
        state.know_tenants();
        state.close_hosts();
        let served = state.take_holdings();
        state.promise_windows(&served);
        state.line_up();
        state
    }

    /// A moment by the engine's time.
    pub fn at(&self, at: Timestamp) -> Millis {
        let since = at.duration_since(self.live.now).saturating_add(BEFORE);
        span(since)
    }

    pub fn timestamp(&self, at: Millis) -> Timestamp {
        let since = SignedDuration::from_millis(i64::try_from(at).unwrap_or(i64::MAX));
        let since = since.saturating_sub(BEFORE);
        self.live.now.saturating_add(since).unwrap_or(Timestamp::MAX)
    }

    fn until(&self, until: Option<Timestamp>) -> Millis {
        until.map_or(Millis::MAX, |until| self.at(until))
    }

    pub(super) fn new_id(&mut self) -> JobId {
        self.last_id += 1;
        self.last_id
    }

    pub fn tenant(&self, tenant: &TenantId) -> usize {
        self.tenants.get(tenant).copied().unwrap_or(self.tenants.len())
    }

    fn know_tenants(&mut self) {
        let live = self.live;
        let waiting = live.waiting.iter().map(|job| &job.demand.tenant);
        let running = live.running.iter().map(|job| &job.tenant);
        let wanted = live.ahead.iter().flat_map(|ahead| &ahead.wanted);
        let wanted = wanted
            .chain(&live.world.promises.waiting)
            .map(|demand| &demand.tenant);
        let holding = live.world.held.iter().filter_map(|c| c.tenant.as_ref());
        let shares = live.world.promises.shares.keys();
        let all: BTreeSet<&TenantId> = waiting
            .chain(running)
            .chain(wanted)
            .chain(holding)
            .chain(shares)
            .collect();
        for (index, tenant) in all.into_iter().enumerate() {
            self.tenants.insert(tenant, index);
            let gpus = self.holds.get(tenant).copied().unwrap_or_default();
            let share = live.world.promises.share(tenant);
            self.plan.shares.has(index, share, gpus);
        }
        // Reservations of clients are nobody's.
        let share = Share {
            weight: 0,
            ..Share::default()
        };
        self.plan.shares.has(self.tenants.len(), share, 0);
    }

    fn close_hosts(&mut self) {
        let closed = self.live.closures.iter().filter_map(|closure| {
            Some(ClosedHost {
                host: self.capacity.host_place(&closure.host)?,
                from: self.at(closure.from),
                until: self.until(closure.until),
            })
        });
        self.plan.closures = closed.collect();
        self.plan.room.close(self.plan.closed_at(self.now));
    }

    /// A unit at a port, as it is returned.
    fn taken(&self, unit: &UnitId, port: Option<&HostPortId>) -> Option<(usize, Taken)> {
        let unit = self.survey.unit_place(unit)?;
        let shelf = self.capacity.shelf_of(unit)?;
        let (host, port) = port
            .and_then(|port| self.capacity.port_place(port))
            .unwrap_or((NO_HOST, 0));
        let taken = Taken {
            shelf,
            host,
            port,
            freshness: Freshness::Released,
        };
        Some((unit, taken))
    }

    /// What is held, and until when. Returns the demands of calendars that have what they want now.
    fn take_holdings(&mut self) -> BTreeMap<DemandId, Millis> {
        let live = self.live;
        let mut held: BTreeMap<&DemandId, Vec<&Composition>> = BTreeMap::new();
        for composition in live.world.held.iter().filter(|c| c.kept.is_none()) {
            if let Some(demand) = &composition.demand {
                held.entry(demand).or_default().push(composition);
            }
        }
        for job in &live.running {
            let id = self.new_id();
            self.running.insert(id, job);
            let has = held.remove(&job.demand).unwrap_or_default();
            let ends = self.at(job.ends).max(self.now + 1);
            let limit = match job.is_leaving {
                true => ends,
                false => self.until(job.limit).max(ends),
            };
            self.holds(id, &job.tenant, &has, (ends, limit));
        }
        let served = self.served_now(&held);
        for id in &live.calendars {
            let Some(has) = held.get(id) else { continue };
            let Some(tenant) = has.iter().find_map(|c| c.tenant.as_ref()) else {
                continue;
            };
            let job = self.new_id();
            let until = served.get(id).copied().unwrap_or_else(|| {
                self.closing.insert(job);
                self.now + 1
            });
            self.holds(job, tenant, has, (until, until));
        }
        for (until, reserved) in &live.reservations {
            let (at, job) = (self.at(*until).max(self.now + 1), self.new_id());
            let taken = self.taken(&reserved.unit, reserved.host_port.as_ref());
            self.runs(
                (job, self.tenants.len(), 0),
                taken.into_iter().collect(),
                (at, at),
                true,
            );
        }
        served
    }

    fn holds(&mut self, job: JobId, tenant: &TenantId, has: &[&Composition], ends: (Millis, Millis)) {
        let units = has.iter().flat_map(|c| &c.held);
        let taken = units.filter_map(|held| self.taken(&held.unit, Some(&held.host_port)));
        let taken: Vec<(usize, Taken)> = taken.collect();
        let gpus = has.iter().map(|c| c.gpu_count()).sum();
        let is_window = !self.running.contains_key(&job);
        self.runs((job, self.tenant(tenant), gpus), taken, ends, is_window);
    }

    fn runs(
        &mut self,
        (id, tenant, gpus): (JobId, usize, u32),
        taken: Vec<(usize, Taken)>,
        (expected_end, limit): (Millis, Millis),
        is_window: bool,
    ) {
        for (unit, taken) in &taken {
            self.returns
                .entry(taken.shelf)
                .or_default()
                .push((expected_end, *unit));
        }
        let job = Job {
            id,
            tenant,
            gpus,
            class: 0,
            upto: 0,
            submitted: 0,
            expected: expected_end.saturating_sub(self.now),
            limit: None,
            urgency: Urgency::default(),
            avoids_closing_hosts: false,
        };
        self.plan.shares.wants(tenant);
        self.plan.runs(Running {
            job,
            taken: taken.into_iter().map(|(_, taken)| taken).collect(),
            began: self.now,
            expected_end,
            limit,
            is_window,
        });
    }

    pub(super) fn job(&self, id: JobId, demand: &Demand, submitted: Millis) -> Job {
        let wanted = Wanted::of(demand, self.live, &self.holds);
        let class = self
            .needs
            .iter()
            .position(|other| other.is_like(&wanted))
            .unwrap_or_default();
        Job {
            id,
            tenant: self.tenant(&demand.tenant),
            gpus: width(demand),
            class,
            upto: class,
            submitted,
            expected: 0,
            limit: None,
            urgency: Urgency {
                priority: demand.priority,
                preempts: false,
            },
            avoids_closing_hosts: false,
        }
    }

    /// The jobs that wait.
    fn line_up(&mut self) {
        let mut waiting: Vec<&WaitingJob> = self.live.waiting.iter().collect();
        waiting.sort_by(|a, b| a.demand.id.cmp(&b.demand.id));
        // Jobs are told apart by priority only if any preempts.
        let any_preempts = waiting.iter().any(|job| job.preempts);
        for waits in waiting {
            let id = self.new_id();
            let priority = if any_preempts { waits.demand.priority } else { 0 };
            let job = Job {
                avoids_closing_hosts: self.avoids_closing_hosts(waits),
                expected: span(waits.expected).max(1),
                limit: waits.limit.map(span),
                urgency: Urgency {
                    priority,
                    preempts: waits.preempts,
                },
                ..self.job(id, &waits.demand, self.at(waits.turn))
            };
            self.waiting.insert(id, waits);
            if let Some(starts_by) = waits.starts_by {
                self.plan.starts_by.insert(id, self.at(starts_by));
            }
            match waits.not_before {
                Some(at) if at > self.live.now => drop(self.put_off.insert(id, job)),
                _ => self.submitted.push(Event::Submitted(job)),
            }
            self.know_retained(&job, &waits.demand);
        }
    }

    /// For people: what is wanted at a moment.
    pub fn label(&self, at: Millis) -> String {
        let label = self
            .labels
            .range(..=at)
            .next_back()
            .map(|(_, label)| label.clone());
        label.unwrap_or_else(|| "a host that closes".to_owned())
    }

    /// Whether a host closes before a job has to end that may be stopped for windows, and not for that.
    fn avoids_closing_hosts(&self, job: &WaitingJob) -> bool {
        let ends = job
            .ends_within
            .map_or(Millis::MAX, |limit| self.now.saturating_add(span(limit)));
        job.limit != job.ends_within && !self.plan.closed_within(self.now, ends).is_empty()
    }

    /// Retained GPUs that serve a job as they are.
    fn know_retained(&mut self, job: &Job, demand: &Demand) {
        if self.retained.is_empty() {
            return;
        }
        let key = (job.tenant, self.plan.shape_of(job));
        if self.plan.retained.contains_key(&key) {
            return;
        }
        let serves = kept::serves_by(&self.survey, demand);
        let units = serves.iter().flat_map(|c| &c.held);
        let taken = units.filter_map(|held| self.taken(&held.unit, Some(&held.host_port)));
        let taken: Vec<Taken> = taken.map(|(_, taken)| taken).collect();
        let is_whole = taken.iter().all(|taken| taken.host != NO_HOST);
        self.plan
            .retained
            .insert(key, if is_whole { taken } else { Vec::new() });
    }

    /// What starts now, in the plan, why other jobs don't, and which running ones are stopped. Windows come first: a job
    /// starts beside those whose GPUs others return because they are stopped.
    pub fn decide(&mut self) -> (Vec<Judged>, Vec<Stop>) {
        let mut stops = BTreeMap::new();
        self.stop_for_windows(&mut stops);
        self.heed(&stops);
        let (mut judged, mut before) = self.decide_once();
        let for_windows = stops.len();
        self.stop_for_waiting(&judged, &before, &mut stops);
        if stops.len() > for_windows {
            // What starts now delays none for which others are stopped.
            std::mem::swap(&mut self.plan, &mut before);
            self.heed(&stops);
            (judged, _) = self.decide_once();
        }
        (judged, stops.into_values().collect())
    }

    fn decide_once(&mut self) -> (Vec<Judged>, Plan) {
        let next = replan(self.now, &self.submitted, self.plan.clone());
        let before = std::mem::replace(&mut self.plan, next);
        (self.judge(before.clone()), before)
    }

    /// Jobs that are to be stopped are expected to have ended by then.
    fn heed(&mut self, stops: &BTreeMap<JobId, Stop>) {
        for (job, stop) in stops {
            let within = self.running.get(job).and_then(|job| job.stops);
            let soonest = self.now + within.map_or(0, |stops| span(stops.within)).max(1);
            let at = self.at(stop.at).max(soonest);
            self.plan.limit_to(*job, at);
            self.plan.stop_at(*job, at);
        }
        self.plan.choose_anew(self.now);
    }
}

/// Whether two needs are served by the same GPUs.
pub(super) fn is_alike(one: &Need, other: &Need) -> bool {
    one.alternatives == other.alternatives && one.spannable == other.spannable && one.elastic == other.elastic
}

pub(super) fn span(span: SignedDuration) -> Millis {
    Millis::try_from(span.as_millis()).unwrap_or(0)
}
