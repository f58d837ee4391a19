//! The engine by itself: turns, reservations, classes, places and shares.

use poolwright_planner::engine::{
    ANY_LARGER, Backfill, Class, Event, Job, Order, Plan, Pool, Preference, Rules, Start, Urgency, Window,
    replan,
};

const SECOND: u64 = 1000;

fn rules(backfill: Backfill) -> Rules {
    Rules {
        order: Order::Arrival,
        backfill,
        preference: Preference::Working,
        fair_share: 0.0,
        slip: None,
    }
}

fn class(name: &str, memory_gib: u32, gpus: u32) -> Class {
    Class {
        name: name.to_owned(),
        memory_gib,
        gpus,
    }
}

fn pool(gpus: u32, slots: &[u32]) -> Pool {
    Pool::composable(vec![class("any", 0, gpus)], slots, 8)
}

fn job(id: u32, submitted_s: u64, gpus: u32, expected_s: u64) -> Job {
    Job {
        id,
        tenant: 0,
        gpus,
        class: 0,
        upto: ANY_LARGER,
        submitted: submitted_s * SECOND,
        expected: expected_s * SECOND,
        limit: None,
        urgency: Urgency::default(),
        avoids_closing_hosts: false,
    }
}

/// A plan with what happens to it between two decisions.
struct Queue {
    plan: Option<Plan>,
    events: Vec<Event>,
}

impl Queue {
    fn new(pool: Pool, rules: Rules) -> Self {
        Self {
            plan: Some(Plan::new(pool, rules)),
            events: Vec::new(),
        }
    }

    fn submit(&mut self, job: Job) {
        self.events.push(Event::Submitted(job));
    }

    fn promise(&mut self, id: u32, gpus: u32, (from_s, until_s): (u64, u64)) {
        self.events.push(Event::Promised(Window {
            job: job(id, 0, gpus, until_s - from_s),
            from: from_s * SECOND,
            until: until_s * SECOND,
        }));
    }

    fn refused(&self) -> &[u32] {
        self.plan.as_ref().unwrap().refused()
    }

    fn finish(&mut self, job: u32, ran: u64) {
        self.events.push(Event::Ended { job, ran });
    }

    fn idle(&mut self, host: usize, gpus: u32) {
        self.events.push(Event::Idle { host, class: 0, gpus });
    }

    fn decide(&mut self, now: u64) -> Vec<Start> {
        let plan = replan(now, &std::mem::take(&mut self.events), self.plan.take().unwrap());
        self.plan.insert(plan).starts().to_vec()
    }

    fn narrowest(&self) -> Vec<Option<u32>> {
        self.plan.as_ref().unwrap().narrowest()
    }
}

fn ids(starts: &[Start]) -> Vec<u32> {
    starts.iter().map(|start| start.job.id).collect()
}

/// One-GPU jobs without end, each of two seconds, one submitted a second: does a job of all GPUs ever start?
fn wide_job_starts(backfill: Backfill) -> bool {
    let mut queue = Queue::new(pool(2, &[2]), rules(backfill));
    // The first ends a second early, so that the two GPUs never come free at one moment.
    queue.submit(job(0, 0, 1, 1));
    let mut ends = vec![];
    for second in 0..60 {
        let now = second * SECOND;
        ends.retain(|(end, id)| {
            let over = *end <= now;
            if over {
                queue.finish(*id, now);
            }
            !over
        });
        if second == 1 {
            queue.submit(job(1000, 1, 2, 2));
        }
        queue.submit(job(second as u32 + 1, second, 1, 2));
        for start in queue.decide(now) {
            if start.job.id == 1000 {
                return true;
            }
            ends.push((now + start.job.expected, start.job.id));
        }
    }
    false
}

#[test]
fn a_reservation_keeps_a_wide_job_from_starving() {
    assert!(wide_job_starts(Backfill::Reserve));
    assert!(!wide_job_starts(Backfill::Any));
}

#[test]
fn what_outlasts_the_wait_may_use_what_is_spared() {
    // Four of eight GPUs are free; the wide job can have six at 100, and two are spared then.
    let mut queue = Queue::new(pool(8, &[8]), rules(Backfill::Reserve));
    queue.submit(job(0, 0, 4, 100));
    assert_eq!(ids(&queue.decide(0)), [0]);
    queue.submit(job(1, 1, 6, 10));
    for (id, gpus) in [(2, 3), (3, 2), (4, 1)] {
        queue.submit(job(id, 2, gpus, 1000));
    }
    assert_eq!(
        ids(&queue.decide(2 * SECOND)),
        [3],
        "three are too many, and after two nothing is spared"
    );
    queue.finish(0, 100 * SECOND);
    assert_eq!(ids(&queue.decide(100 * SECOND)), [1]);
}

#[test]
fn a_job_takes_the_smallest_class_that_suffices_and_is_free() {
    let classes = vec![class("80gb", 80, 2), class("24gb", 24, 1)];
    let pool = Pool::composable(classes, &[4], 8);
    let mut queue = Queue::new(pool, rules(Backfill::Reserve));
    (0..4).for_each(|id| queue.submit(job(id, 0, 1, 10)));
    queue.submit(Job {
        class: 1,
        ..job(4, 0, 1, 10)
    });
    let starts = queue.decide(0);
    let classes: Vec<(u32, usize)> = starts.iter().map(|start| (start.job.id, start.class)).collect();
    assert_eq!(
        classes,
        [(0, 0), (1, 1), (2, 1)],
        "of what needs little, some goes on larger cards"
    );
}

#[test]
fn a_job_goes_where_its_gpus_are_attached_and_leaves_a_sleeping_host_asleep() {
    let mut queue = Queue::new(pool(8, &[8, 8, 4]), rules(Backfill::Reserve));
    queue.idle(1, 3);
    queue.submit(job(0, 0, 3, 10));
    assert_eq!(queue.decide(0)[0].parts, [(1, 3)]);
    queue.idle(1, 0);
    queue.idle(0, 2);
    queue.submit(job(1, 0, 2, 10));
    assert_eq!(
        queue.decide(0)[0].parts,
        [(1, 2)],
        "two are attached to the first, which sleeps"
    );
    queue.submit(job(2, 0, 2, 10));
    queue.finish(0, 10 * SECOND);
    queue.finish(1, 10 * SECOND);
    queue.idle(1, 0);
    assert_eq!(queue.decide(10 * SECOND)[0].parts, [(0, 2)], "all sleep");
}

/// A scenario may name two memory classes alike.
#[test]
fn classes_of_one_name_are_told_apart_by_their_memory() {
    let classes = vec![class("gpu", 40, 4), class("gpu", 80, 4)];
    let mut queue = Queue::new(Pool::composable(classes, &[8, 8], 8), rules(Backfill::Reserve));
    for host in [0, 1] {
        queue.events.push(Event::Idle {
            host,
            class: 1,
            gpus: 2 * host as u32,
        });
    }
    queue.submit(Job {
        class: 1,
        ..job(0, 0, 2, 10)
    });
    assert_eq!(queue.decide(0)[0].parts, [(1, 2)]);
}

#[test]
fn a_tenant_above_its_share_is_put_back() {
    let order_with = |fair_share: f64| {
        let rules = Rules {
            fair_share,
            ..rules(Backfill::Reserve)
        };
        let mut queue = Queue::new(pool(4, &[4]), rules);
        let of = |tenant: usize, job: Job| Job { tenant, ..job };
        queue.submit(of(0, job(0, 0, 3, 100)));
        queue.submit(of(1, job(1, 0, 1, 100)));
        queue.decide(0);
        queue.submit(of(0, job(2, 1, 1, 100)));
        queue.submit(of(1, job(3, 2, 1, 100)));
        queue.finish(1, 50 * SECOND);
        ids(&queue.decide(50 * SECOND))
    };
    assert_eq!(order_with(0.0), [2], "first come, first served");
    assert_eq!(
        order_with(1.0),
        [3],
        "who holds three of three waits for who holds none"
    );
}

/// A job of an hour came before the burst, a short one after it: the hour yields for as long as the burst waits.
#[test]
fn a_job_yields_by_what_waits_now_and_not_by_what_waited_when_it_came() {
    let starts = |burst: u32| {
        let order = Order::Ageing {
            pace: 0.3,
            most: 25.0,
        };
        let rules = Rules {
            order,
            ..rules(Backfill::Reserve)
        };
        let mut queue = Queue::new(pool(16, &[16]), rules);
        queue.submit(job(0, 0, 16, 1000));
        assert_eq!(ids(&queue.decide(0)), [0]);
        queue.submit(job(1, 1, 1, 3600));
        assert!(queue.decide(SECOND).is_empty());
        (0..burst).for_each(|n| queue.submit(job(10 + n, 2, 16, 36_000)));
        assert!(queue.decide(2 * SECOND).is_empty());
        queue.submit(job(2, 600, 1, 36));
        queue.finish(0, 1000 * SECOND);
        ids(&queue.decide(1000 * SECOND))
    };
    assert_eq!(starts(0), [1, 2], "little waits: first come, first served");
    assert_eq!(starts(10), [2, 1]);
}

#[test]
fn a_job_wider_than_a_host_spreads_over_few_and_a_static_one_takes_whole_servers() {
    let mut queue = Queue::new(pool(24, &[16, 16, 16]), rules(Backfill::Reserve));
    queue.submit(job(0, 0, 20, 10));
    let parts: Vec<u32> = queue.decide(0)[0].parts.iter().map(|(_, gpus)| *gpus).collect();
    assert_eq!(parts, [15, 5], "whole groups of five, of at most eight");
    let mut queue = Queue::new(
        Pool::fixed(vec![class("any", 0, 24)], 8),
        rules(Backfill::Reserve),
    );
    queue.submit(job(0, 0, 12, 10));
    queue.submit(job(1, 0, 8, 10));
    let starts = queue.decide(0);
    let parts: Vec<u32> = starts[0].parts.iter().map(|(_, gpus)| *gpus).collect();
    assert_eq!((parts, starts.len()), (vec![8, 8], 2));
    queue.submit(job(2, 0, 4, 10));
    assert!(
        queue.decide(0).is_empty(),
        "what is left of a whole server is nobody's"
    );
}

#[test]
fn a_job_that_runs_longer_than_expected_does_not_hold_a_reservation_in_the_past() {
    let mut queue = Queue::new(pool(2, &[2]), rules(Backfill::Reserve));
    queue.submit(job(0, 0, 1, 10));
    queue.decide(0);
    queue.submit(job(1, 1, 2, 10));
    queue.submit(job(2, 2, 1, 500));
    // At 600 job 0 is expected to end at any moment: nothing is known to run so long.
    assert!(queue.decide(600 * SECOND).is_empty());
    queue.submit(job(3, 600, 1, 50));
    assert_eq!(ids(&queue.decide(600 * SECOND)), [3]);
}

/// Two of four GPUs run for a day, the two others hold short jobs that never end when they say.
#[test]
fn a_gang_slips_no_more_than_it_may() {
    let starts = |slip: Option<u64>| {
        let mut queue = Queue::new(
            pool(4, &[4]),
            Rules {
                slip,
                ..rules(Backfill::Reserve)
            },
        );
        for (id, gpus) in [(0, 1), (1, 1), (2, 1), (3, 1)] {
            queue.submit(job(id, 0, gpus, 20));
        }
        assert_eq!(ids(&queue.decide(0)), [0, 1, 2, 3]);
        queue.submit(job(100, 1, 3, 60));
        let mut ends: Vec<(u64, u32)> = (0..4_u64).map(|id| (100 + 10 * id, id as u32)).collect();
        for second in 1..3000_u64 {
            let now = second * SECOND;
            ends.retain(|(end, id)| {
                if *end <= second {
                    queue.finish(*id, 100 * SECOND);
                }
                *end > second
            });
            if second % 20 == 0 {
                queue.submit(job(1000 + second as u32, second, 1, 20));
            }
            for start in queue.decide(now) {
                if start.job.id == 100 {
                    return Some(second);
                }
                ends.push((second + 100, start.job.id));
            }
        }
        None
    };
    let limited = starts(Some(60 * SECOND)).unwrap();
    assert!(limited < 300, "{limited}");
    let unlimited = starts(None);
    assert!(unlimited.is_none_or(|at| at > limited), "{unlimited:?}");
}

#[test]
fn a_job_that_needs_one_class_waits_for_it_beside_larger_ones() {
    let classes = vec![class("24gb", 24, 1), class("80gb", 80, 1)];
    let mut queue = Queue::new(Pool::composable(classes, &[4], 8), rules(Backfill::Reserve));
    let of_class = |id| Job {
        upto: 0,
        ..job(id, 0, 1, 10)
    };
    queue.submit(of_class(0));
    queue.submit(of_class(1));
    queue.submit(job(2, 0, 1, 10));
    assert_eq!(ids(&queue.decide(0)), [0, 2], "the third may run on the larger");
    assert_eq!(queue.narrowest(), [Some(1), None], "nobody waits for the larger");
    queue.finish(2, 5 * SECOND);
    assert!(queue.decide(5 * SECOND).is_empty());
    queue.finish(0, 10 * SECOND);
    assert_eq!(ids(&queue.decide(10 * SECOND)), [1]);
}

/// A job that returns its GPUs at its limit.
fn limited(id: u32, gpus: u32, limit_s: u64) -> Job {
    Job {
        limit: Some(limit_s * SECOND),
        ..job(id, 0, gpus, limit_s)
    }
}

#[test]
fn jobs_leave_the_gpus_of_a_window_unless_their_limit_is_before_it() {
    let mut queue = Queue::new(pool(24, &[8; 6]), rules(Backfill::Reserve));
    queue.promise(100, 16, (100, 200));
    queue.submit(limited(0, 4, 59));
    assert_eq!(ids(&queue.decide(0)), [0]);
    // Job 1 is expected to end before the window, and nothing says that it will.
    queue.submit(job(1, 1, 12, 10));
    queue.submit(limited(2, 12, 100));
    queue.submit(limited(3, 12, 99));
    queue.submit(job(4, 1, 8, 600));
    assert_eq!(ids(&queue.decide(SECOND)), [3, 4]);
    queue.finish(3, 10 * SECOND);
    // Job 0 is late: the 10-minute job has to leave the free part of the window alone.
    queue.submit(job(5, 1, 4, 600));
    assert!(queue.decide(89 * SECOND).is_empty());
    queue.finish(0, 90 * SECOND);
    assert!(queue.decide(90 * SECOND).is_empty());
    assert_eq!(ids(&queue.decide(100 * SECOND)), [100]);
    queue.finish(100, 100 * SECOND);
    assert_eq!(ids(&queue.decide(200 * SECOND)), [2, 5]);
}

#[test]
fn a_window_is_refused_if_a_job_without_a_limit_may_have_its_gpus() {
    let mut queue = Queue::new(pool(24, &[8; 6]), rules(Backfill::Reserve));
    queue.submit(job(0, 0, 12, 10));
    queue.decide(0);
    queue.promise(100, 16, (100, 200));
    queue.promise(101, 12, (100, 200));
    queue.promise(102, 12, (200, 300));
    queue.promise(103, 1, (199, 201));
    queue.decide(SECOND);
    assert_eq!(queue.refused(), [100, 103]);
    queue.decide(2 * SECOND);
    assert!(queue.refused().is_empty());
    assert_eq!(ids(&queue.decide(100 * SECOND)), [101]);
}

#[test]
fn a_reservation_leaves_windows_their_gpus() {
    let mut queue = Queue::new(pool(8, &[8]), rules(Backfill::Reserve));
    queue.promise(100, 6, (100, 200));
    queue.submit(limited(0, 4, 50));
    assert_eq!(ids(&queue.decide(0)), [0]);
    // At 50 there is room for it, and it might stay beyond 100: its place is from 200 on.
    queue.submit(limited(1, 6, 60));
    queue.submit(limited(2, 4, 90));
    assert_eq!(ids(&queue.decide(SECOND)), [2], "before the window");
    queue.finish(0, 50 * SECOND);
    queue.finish(2, 90 * SECOND);
    assert!(queue.decide(91 * SECOND).is_empty());
    assert_eq!(ids(&queue.decide(100 * SECOND)), [100]);
    queue.submit(limited(3, 2, 150));
    assert_eq!(ids(&queue.decide(101 * SECOND)), [3], "2 of 8 are spared at 200");
    queue.submit(limited(4, 2, 150));
    queue.finish(3, 20 * SECOND);
    assert_eq!(ids(&queue.decide(121 * SECOND)), [4]);
}

/// Jobs that keep to their limits, and windows that are promised at any time: each admitted window begins in time.
#[test]
fn admitted_windows_are_served_in_time() {
    let mut served = 0;
    for seed in 0..40 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let hosts: Vec<u32> = (0..chance.u32(2..6)).map(|_| chance.u32(4..9)).collect();
        let gpus = hosts.iter().sum::<u32>() - chance.u32(0..4);
        let mut queue = Queue::new(pool(gpus, &hosts), rules(Backfill::Reserve));
        let (mut ends, mut due) = (Vec::<(u64, u32)>::new(), Vec::<(u64, u64, u32)>::new());
        for second in 0..600_u32 {
            let now = u64::from(second) * SECOND;
            for (_, id) in ends.extract_if(.., |(end, _)| *end <= now) {
                queue.finish(id, SECOND);
            }
            let asked = chance.u32(0..30) == 0;
            if asked {
                let from = u64::from(second) + chance.u64(0..80);
                let until = from + chance.u64(1..60);
                queue.promise(10_000 + second, chance.u32(1..=gpus), (from, until));
                due.push((from, until, 10_000 + second));
            }
            let mut new = limited(second, chance.u32(1..9), chance.u64(1..90));
            new.expected = chance.u64(1..120) * SECOND;
            if chance.u32(0..20) == 0 {
                new.limit = None;
            }
            queue.submit(new);
            let starts = queue.decide(now);
            if asked && queue.refused().contains(&(10_000 + second)) {
                due.pop();
            }
            for Start { job, .. } in starts {
                let ran = match due.iter().find(|(_, _, id)| *id == job.id) {
                    Some((_, until, _)) => until * SECOND,
                    None => now + chance.u64(1..=job.limit.unwrap_or(90 * SECOND) / SECOND) * SECOND,
                };
                ends.push((ran, job.id));
                let before = due.len();
                due.retain(|(_, _, id)| *id != job.id);
                served += before - due.len();
            }
            let late = due.iter().find(|(from, ..)| from * SECOND <= now);
            assert_eq!(late, None, "seed {seed}");
        }
    }
    assert!(served > 100, "{served}");
}
