//! The queue by itself: turns, reservations, classes, places, shares and idle GPUs.

use poolwright_planner::queue::{
    ANY_LARGER, Backfill, Class, Job, Order, Pool, Preference, Queue, Rules, Start,
};

const SECOND: u64 = 1000;

fn rules(backfill: Backfill) -> Rules {
    Rules {
        order: Order::Arrival,
        backfill,
        preference: Preference::Working,
        fair_share: 0.0,
        idle: Some(60 * SECOND),
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
    assert_eq!(
        (
            pool.smallest_class(20),
            pool.smallest_class(25),
            pool.smallest_class(81)
        ),
        (Some(0), Some(1), None)
    );
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
fn a_job_goes_where_its_gpus_are_attached() {
    let mut queue = Queue::new(pool(6, &[8, 8]), rules(Backfill::Reserve));
    queue.submit(job(0, 0, 3, 10));
    queue.submit(job(1, 0, 2, 20));
    let first = queue.decide(0);
    assert_eq!(first[0].parts[0].attached, 3);
    queue.finish(0, 10 * SECOND);
    queue.submit(job(2, 10, 4, 10));
    let next = queue.decide(10 * SECOND);
    assert_eq!(
        (next[0].parts[0].host, next[0].parts[0].attached),
        (first[0].parts[0].host, 1)
    );
}

#[test]
fn a_host_is_left_asleep_while_one_that_works_has_room() {
    let mut queue = Queue::new(pool(8, &[4, 4]), rules(Backfill::Reserve));
    queue.submit(job(0, 0, 2, 100));
    queue.submit(job(1, 0, 4, 10));
    let hosts: Vec<usize> = queue.decide(0).iter().map(|start| start.parts[0].host).collect();
    assert_ne!(hosts[0], hosts[1]);
    queue.finish(1, 10 * SECOND);
    queue.submit(job(2, 10, 2, 10));
    let next = queue.decide(10 * SECOND);
    assert_eq!(
        (next[0].parts[0].host, next[0].parts[0].attached),
        (hosts[0], 2),
        "four are attached and idle at the other, which sleeps"
    );
}

#[test]
fn idle_gpus_leave_after_a_while_unless_they_are_wanted() {
    let mut queue = Queue::new(pool(4, &[4]), rules(Backfill::Reserve));
    queue.submit(job(0, 0, 2, 10));
    assert_eq!(queue.decide(0).len(), 1);
    queue.finish(0, 10 * SECOND);
    assert_eq!(
        (queue.next_leave(), queue.leave(69 * SECOND)),
        (Some(70 * SECOND), 0)
    );
    assert_eq!(queue.pool().loose(0), 2);
    // Given back again at 65: the earlier moment no longer counts.
    queue.submit(job(1, 60, 1, 5));
    assert_eq!(queue.decide(60 * SECOND)[0].parts[0].attached, 0);
    queue.finish(1, 65 * SECOND);
    assert_eq!(queue.leave(70 * SECOND), 0);
    assert_eq!(queue.leave(125 * SECOND), 2);
    assert_eq!((queue.pool().loose(0), queue.next_leave()), (4, None));
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
    let parts: Vec<u32> = queue.decide(0)[0].parts.iter().map(|part| part.gpus).collect();
    assert_eq!(parts, [16, 4]);
    let mut queue = Queue::new(
        Pool::fixed(vec![class("any", 0, 24)], 8),
        rules(Backfill::Reserve),
    );
    queue.submit(job(0, 0, 12, 10));
    queue.submit(job(1, 0, 8, 10));
    let starts = queue.decide(0);
    let parts: Vec<u32> = starts[0].parts.iter().map(|part| part.gpus).collect();
    assert_eq!((parts, starts.len()), (vec![8, 8], 2));
    assert_eq!(
        queue.pool().free(0),
        0,
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
    // At 600 job 0 is expected to run for another 600.
    assert_eq!(ids(&queue.decide(600 * SECOND)), [2]);
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
