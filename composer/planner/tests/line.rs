//! The queue before a pool as it is seen: who starts now, and for what the others wait.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod support;

use jiff::{SignedDuration, Timestamp};
use poolwright_model::id::{DemandId, TenantId};
use poolwright_planner::queue::{Ahead, Because, Line, Outlook, RunningJob, Share, Verdict, WaitingJob};
use poolwright_planner::{Composition, Demand, PlanInput, World};
use poolwright_sizing::need::Need;
use std::collections::BTreeSet;
use support::Rack;

fn hour(hours: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(hours)
}

fn demand(id: &str, gpus: u32) -> Demand {
    Demand {
        id: DemandId::new(id).unwrap(),
        tenant: TenantId::from_lossy("one"),
        priority: 0,
        need: Need::of_kind("red", gpus),
        created: hour(0),
    }
}

/// Its turn is its number.
fn waits(id: &str, gpus: u32, hours: i64, turn: i64) -> WaitingJob {
    WaitingJob {
        demand: demand(id, gpus),
        turn: hour(turn),
        expected: SignedDuration::from_hours(hours),
        may_stop: false,
        not_before: None,
    }
}

fn of(tenant: &str, mut job: WaitingJob) -> WaitingJob {
    job.demand.tenant = TenantId::from_lossy(tenant);
    job
}

/// Eight GPUs, and two hosts that take four each.
struct Scene {
    rack: Rack,
    running: Vec<RunningJob>,
    ahead: Vec<Ahead>,
    calendars: BTreeSet<DemandId>,
}

impl Scene {
    fn new() -> Self {
        Self {
            rack: Rack::new()
                .gpus("f/s", "red", 80.0, 8)
                .host("h1", "f/s", 4)
                .host("h2", "f/s", 4),
            running: Vec::new(),
            ahead: Vec::new(),
            calendars: BTreeSet::new(),
        }
    }

    fn world(&self) -> World<'_> {
        self.rack.world()
    }

    /// A job that got its GPUs before.
    fn runs(mut self, id: &str, gpus: u32, ends: i64) -> Self {
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
            may_stop: id.starts_with("patient"),
            tenant: demands[0].tenant.clone(),
            priority: 0,
            began: hour(0),
        });
        self
    }

    fn wants(mut self, at: i64, wanted: &[(&str, u32)]) -> Self {
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

    fn guarantees(mut self, tenant: &str, share: Share) -> Self {
        let shares = &mut self.rack.promises.shares;
        shares.insert(TenantId::from_lossy(tenant), share);
        self
    }

    fn outlook(&self, waiting: Vec<WaitingJob>) -> Outlook {
        Line {
            world: self.world(),
            now: hour(0),
            waiting,
            running: self.running.clone(),
            ahead: self.ahead.clone(),
            calendars: self.calendars.clone(),
            fair_share: 2.0,
            in_motion: false,
        }
        .outlook()
    }

    fn starts(&self, waiting: Vec<WaitingJob>) -> Vec<String> {
        let places = self.outlook(waiting).places.into_iter();
        let starts = places.filter(|place| matches!(place.verdict, Verdict::Starts { .. }));
        starts.map(|place| place.demand.to_string()).collect()
    }

    fn because(&self, waiting: Vec<WaitingJob>, id: &str) -> (Because, Option<Timestamp>) {
        let places = self.outlook(waiting).places.into_iter();
        match places
            .filter(|place| place.demand.as_str() == id)
            .last()
            .unwrap()
            .verdict
        {
            Verdict::Waits {
                because, expected, ..
            } => (because, expected),
            Verdict::Starts { .. } => panic!("{id} starts"),
        }
    }
}

#[test]
fn the_first_that_does_not_fit_has_a_place_kept_and_nobody_delays_it() {
    let scene = Scene::new().runs("a", 4, 3);
    let jobs = || {
        vec![
            waits("wide", 4, 1, 1),
            waits("whole", 5, 1, 0),
            waits("short", 2, 3, 2),
            waits("long", 2, 4, 3),
        ]
    };
    // No host takes five, and a need that does not span hosts never fits; it holds nobody up.
    assert_eq!(scene.starts(jobs()), ["wide"]);
    let beside = vec![
        waits("first", 2, 9, 0),
        waits("wide", 4, 1, 1),
        waits("long", 2, 4, 3),
    ];
    assert_eq!(
        scene.starts(beside),
        ["first", "long"],
        "the wide one gets the other host"
    );
    let both = Scene::new().runs("a", 4, 3).runs("b", 2, 5);
    let waiting = || {
        vec![
            waits("wide", 4, 1, 0),
            waits("short", 2, 3, 1),
            waits("long", 2, 6, 2),
        ]
    };
    assert_eq!(both.starts(waiting()), ["short"], "of the two that fit beside b");
    let (because, expected) = both.because(waiting(), "wide");
    assert!(matches!(because, Because::NoRoom(_)), "{because:?}");
    assert_eq!(expected, Some(hour(3)));
}

#[test]
fn what_calendars_will_want_is_left_to_them() {
    let scene = Scene::new()
        .wants(0, &[])
        .wants(4, &[("night", 8)])
        .wants(12, &[]);
    let jobs = || vec![waits("long", 4, 5, 0), waits("short", 4, 4, 1)];
    // Eight on two hosts is a need that spans them.
    let mut scene = scene;
    scene.ahead[1].wanted[0].need.spannable = true;
    assert_eq!(scene.starts(jobs()), ["short"]);
    let (because, _) = scene.because(jobs(), "long");
    assert!(
        matches!(&because, Because::Calendar { label, at } if label == "hour 4" && *at == hour(4)),
        "{because:?}"
    );
    let mut patient = jobs();
    patient[0].may_stop = true;
    assert_eq!(scene.starts(patient), ["long", "short"]);
    // Half of it is enough for the night: the long one may have the other.
    scene.ahead[1].wanted[0] = demand("night", 4);
    assert_eq!(scene.starts(jobs()), ["long", "short"]);
}

#[test]
fn of_those_that_may_be_stopped_only_what_must_goes() {
    let scene = Scene::new()
        .runs("busy", 2, 99)
        .runs("patient-1", 2, 99)
        .runs("patient-2", 2, 99);
    let mut scene = scene.wants(0, &[]).wants(4, &[("night", 4)]);
    let stops = |scene: &Scene| -> Vec<String> {
        scene
            .outlook(vec![])
            .stops
            .iter()
            .map(|stop| format!("{} {}", stop.demand, stop.at))
            .collect()
    };
    // Two GPUs are free on one host, and four are wanted on one.
    assert_eq!(
        stops(&scene),
        ["patient-2 1970-01-01T04:00:00Z"],
        "the other host has one that stays"
    );
    scene.ahead[1].wanted[0] = demand("night", 2);
    assert_eq!(stops(&scene), [] as [&str; 0], "there is room");
    scene.ahead[1].wanted[0] = demand("night", 9);
    assert_eq!(stops(&scene), [] as [&str; 0], "it would be in vain");
}

#[test]
fn the_guaranteed_go_first_and_others_no_further_than_they_may() {
    let lab = Share {
        guaranteed: 4,
        most: Some(6),
        weight: 1,
    };
    let scene = Scene::new().guarantees("lab", lab);
    let jobs = || {
        vec![
            waits("early", 4, 9, 0),
            waits("next", 4, 9, 1),
            of("lab", waits("ours", 4, 1, 9)),
        ]
    };
    assert_eq!(scene.starts(jobs()), ["ours", "early"]);
    let more = vec![
        of("lab", waits("ours", 4, 1, 0)),
        of("lab", waits("more", 4, 1, 1)),
    ];
    let (because, _) = scene.because(more, "more");
    assert!(
        matches!(because, Because::Share { holds: 4, most: 6 }),
        "{because:?}"
    );
}

#[test]
fn tenants_come_near_their_shares() {
    let scene = Scene::new().runs("a", 2, 9);
    // The first tenant holds two of two, with two that want something.
    let jobs = || vec![waits("mine", 4, 1, 0), of("two", waits("theirs", 4, 1, 1))];
    assert_eq!(scene.starts(jobs()), ["theirs"], "put back by two hours");
    let heavy = Share {
        weight: 1000,
        ..Share::default()
    };
    let scene = Scene::new().runs("a", 2, 9).guarantees("one", heavy);
    assert_eq!(
        scene.starts(jobs()),
        ["mine"],
        "hardly anything is the other's share"
    );
}

/// Whatever comes: each job has one place, what starts fits together, and the same asked twice is answered the same.
#[test]
fn all_that_starts_fits_beside_what_runs() {
    let mut state = 7_u64;
    let mut next = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for round in 0..60 {
        let mut scene = Scene::new();
        let mut free = 8;
        for n in 0..next(3) {
            let gpus = 1 + next(2) as u32;
            free -= gpus;
            scene = scene.runs(&format!("runs-{n}"), gpus, 1 + next(9) as i64);
        }
        if next(2) == 0 {
            scene = scene
                .wants(0, &[])
                .wants(1 + next(6) as i64, &[("night", 1 + next(4) as u32)]);
        }
        let jobs: Vec<WaitingJob> = (0..next(12))
            .map(|n| {
                let tenant = ["one", "two", "three"][next(3) as usize];
                let job = waits(
                    &format!("job-{n}"),
                    1 + next(5) as u32,
                    1 + next(9) as i64,
                    next(5) as i64,
                );
                of(tenant, job)
            })
            .collect();
        let outlook = scene.outlook(jobs.clone());
        assert_eq!(outlook.places.len(), jobs.len(), "round {round}");
        let names: BTreeSet<_> = outlook.places.iter().map(|place| &place.demand).collect();
        assert_eq!(names.len(), jobs.len());
        let started = scene.starts(jobs.clone());
        let gpus: u32 = jobs
            .iter()
            .filter(|job| started.iter().any(|name| name == job.demand.id.as_str()))
            .map(|job| job.demand.need.alternatives[0].count)
            .sum();
        assert!(gpus <= free, "round {round}: {gpus} of {free}");
        assert_eq!(started, scene.starts(jobs));
    }
}
