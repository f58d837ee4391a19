//! A pool with jobs before it.

use crate::support::Rack;
use jiff::{SignedDuration, Timestamp};
use poolwright_model::id::{DemandId, TenantId};
use poolwright_planner::engine::observed::{
    Ahead, Because, Expected, MayStop, Observed, Outlook, RunningJob, Verdict, WaitingJob,
};
use poolwright_planner::{Closure, Composition, Demand, PlanInput, Reserved, Share, World};
use poolwright_sizing::need::Need;
use std::collections::BTreeSet;

pub fn hour(hours: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(hours)
}

pub fn demand(id: &str, gpus: u32) -> Demand {
    Demand {
        id: DemandId::new(id).unwrap(),
        tenant: TenantId::from_lossy("one"),
        priority: 0,
        need: Need::of_kind("red", gpus),
        created: hour(0),
    }
}

/// Its turn is its number. It ends when it is expected to, at the latest.
pub fn waits(id: &str, gpus: u32, hours: i64, turn: i64) -> WaitingJob {
    WaitingJob {
        demand: demand(id, gpus),
        turn: hour(turn),
        expected: SignedDuration::from_hours(hours),
        limit: Some(SignedDuration::from_hours(hours)),
        ends_within: Some(SignedDuration::from_hours(hours)),
        preempts: false,
        not_before: None,
        starts_by: None,
    }
}

pub fn of(tenant: &str, mut job: WaitingJob) -> WaitingJob {
    job.demand.tenant = TenantId::from_lossy(tenant);
    job
}

/// On several hosts.
pub fn spanning(mut job: WaitingJob) -> WaitingJob {
    job.demand.need.spannable = true;
    job
}

/// Eight GPUs, and two hosts that take four each.
pub struct Scene {
    pub rack: Rack,
    pub running: Vec<RunningJob>,
    pub ahead: Vec<Ahead>,
    pub calendars: BTreeSet<DemandId>,
    pub reservations: Vec<(Timestamp, Reserved)>,
    pub ahead_until: Option<Timestamp>,
    pub in_motion: bool,
    pub closures: Vec<Closure>,
}

impl Scene {
    pub fn new() -> Self {
        Self {
            rack: Rack::new()
                .gpus("f/s", "red", 80.0, 8)
                .host("h1", "f/s", 4)
                .host("h2", "f/s", 4),
            running: Vec::new(),
            ahead: Vec::new(),
            calendars: BTreeSet::new(),
            reservations: Vec::new(),
            ahead_until: None,
            in_motion: false,
            closures: Vec::new(),
        }
    }

    pub fn world(&self) -> World<'_> {
        self.rack.world()
    }

    /// A job that got its GPUs before.
    pub fn runs(mut self, id: &str, gpus: u32, ends: i64) -> Self {
        let demands = [demand(id, gpus)];
        let plan = poolwright_planner::plan(&PlanInput {
            id: format!("plan-{id}").parse().unwrap(),
            parent: None,
            now: hour(0),
            seed: 0,
            world: World {
                demands: &demands,
                held: &self
                    .rack
                    .held
                    .iter()
                    .map(|c| Composition {
                        demand: None,
                        ..c.clone()
                    })
                    .collect::<Vec<_>>(),
                ..self.world()
            },
        });
        assert!(plan.unplaced.is_empty(), "{plan:?}");
        self.rack.execute(&plan, 1);
        self.running.push(RunningJob {
            demand: demands[0].id.clone(),
            ends: hour(ends),
            limit: Some(hour(ends)),
            stops: id.starts_with("patient").then_some(MayStop {
                within: SignedDuration::ZERO,
                checkpoints: false,
            }),
            is_leaving: id.starts_with("leaving"),
            tenant: demands[0].tenant.clone(),
            priority: 0,
            began: hour(0),
        });
        self
    }

    pub fn wants(mut self, at: i64, wanted: &[(&str, u32)]) -> Self {
        let wanted: Vec<Demand> = wanted.iter().map(|(id, gpus)| demand(id, *gpus)).collect();
        self.calendars
            .extend(wanted.iter().map(|demand| demand.id.clone()));
        self.ahead.push(Ahead {
            at: hour(at),
            wanted,
            label: format!("hour {at}"),
        });
        self
    }

    /// In these hours.
    pub fn closes(mut self, host: &str, from: i64, until: Option<i64>) -> Self {
        self.closures.push(Closure {
            host: host.parse().unwrap(),
            from: hour(from),
            until: until.map(hour),
            reason: "new fans".to_owned(),
        });
        self
    }

    pub fn guarantees(mut self, tenant: &str, share: Share) -> Self {
        let shares = &mut self.rack.promises.shares;
        shares.insert(TenantId::from_lossy(tenant), share);
        self
    }

    pub fn observed(&self, waiting: Vec<WaitingJob>) -> Observed<'_> {
        Observed {
            world: self.world(),
            now: hour(0),
            waiting,
            running: self.running.clone(),
            ahead: self.ahead.clone(),
            ahead_until: self.ahead_until,
            calendars: self.calendars.clone(),
            fair_share: 2.0,
            slip: SignedDuration::from_hours(24),
            in_motion: self.in_motion,
            reservations: self.reservations.clone(),
            suspects: BTreeSet::new(),
            closures: self.closures.clone(),
        }
    }

    pub fn outlook(&self, waiting: Vec<WaitingJob>) -> Outlook {
        self.observed(waiting).outlook()
    }

    /// When they are expected to begin, in the order of their names.
    pub fn begins_at(&self, waiting: Vec<WaitingJob>, told: impl Fn(SignedDuration) -> i64) -> Vec<String> {
        let begins = self.expected(waiting).begins.into_iter();
        let begins = begins.map(|(job, at)| format!("{job} {}", told(at.duration_since(hour(0)))));
        begins.collect()
    }

    /// Those for which nothing that is known makes room.
    pub fn never(&self, waiting: Vec<WaitingJob>) -> Vec<String> {
        let never = self.expected(waiting).never.into_iter();
        never.map(|job| job.to_string()).collect()
    }

    /// All that is known of when they begin.
    pub fn expected(&self, waiting: Vec<WaitingJob>) -> Expected {
        self.observed(waiting).expected().1
    }

    /// A client has reserved this GPU.
    pub fn reserves(mut self, gpu: usize, until: i64) -> Self {
        let reserved = Reserved {
            unit: format!("g{gpu:03}").parse().unwrap(),
            host_port: None,
        };
        self.rack.reserved.push(reserved.clone());
        self.reservations.push((hour(until), reserved));
        self
    }

    /// The same in hours.
    pub fn begins(&self, waiting: Vec<WaitingJob>) -> Vec<String> {
        self.begins_at(waiting, |span| span.as_hours())
    }

    pub fn starts(&self, waiting: Vec<WaitingJob>) -> Vec<String> {
        let places = self.outlook(waiting).places.into_iter();
        let starts = places.filter(|place| matches!(place.verdict, Verdict::Starts(_)));
        starts.map(|place| place.demand.to_string()).collect()
    }

    pub fn because(&self, waiting: Vec<WaitingJob>, id: &str) -> (Because, Option<Timestamp>) {
        let places = self.outlook(waiting).places.into_iter();
        match places
            .filter(|place| place.demand.as_str() == id)
            .last()
            .unwrap()
            .verdict
        {
            Verdict::Waits { because, reserved } => (because, reserved.map(|reserved| reserved.at)),
            Verdict::Starts(_) => panic!("{id} starts"),
        }
    }
}
