//! What is promised is kept: windows have their GPUs though jobs end late, guarantees stop no more jobs than they need, and
//! a gang starts though the jobs beside it overrun.

use crate::stories::calendar::*;
use crate::stories::kit::{Pool, gpus};
use crate::stories::queueing::job;
use poolwright_emulator::fault::{Fault, FaultKind};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

fn limited(id: &str, count: u32, runs_for: &str, at_most: &str) -> Value {
    job(id, count, json!({"runs_for": runs_for, "at_most": at_most}))
}

/// From one to two in the afternoon a schedule wants 16 of the 24 GPUs.
fn afternoon() -> Value {
    json!({
        "id": "afternoon",
        "window": {"opens": "0 13 * * *", "closes": "0 14 * * *"},
        "demands": [gpus("win", "h100-pcie-80gb", 16)],
    })
}

#[tokio::test(start_paused = true)]
async fn a_job_leaves_a_window_its_gpus_though_another_job_ends_late() {
    let pool = Pool::of("demo").await;
    pool.schedule(afternoon()).await;
    let clockwork = Clockwork::of(&pool);
    pool.sleep_until("2026-03-02T12:44:00Z").await;
    // It is expected to end a minute before it is ended.
    pool.submit(limited("short", 12, "4m", "5m")).await;
    pool.settles().await;
    // None of these would have returned its GPUs at one o'clock; the narrow one needs none of the window's.
    pool.submit(limited("long", 12, "9m", "10m")).await;
    pool.submit(job("endless", 9, json!({"runs_for": "1m"}))).await;
    pool.settles().await;
    let why = pool.why_waits("long").await;
    assert!(
        why.contains("schedule afternoon") && why.contains("may still run"),
        "{why}"
    );
    let why = pool.why_waits("endless").await;
    assert!(why.contains("--at-most"), "{why}");
    pool.submit(limited("narrow", 8, "10m", "20m")).await;
    pool.settles().await;
    assert_eq!(pool.holders().await, holds(&[("narrow", 8), ("short", 12)]));
    pool.pass_until("2026-03-02T12:59:49Z").await;
    assert_eq!(
        pool.holders().await,
        holds(&[("narrow", 8)]),
        "eleven seconds before"
    );
    pool.pass_until("2026-03-02T13:00:30Z").await;
    assert_eq!(pool.holders().await, holds(&[("narrow", 8), ("win", 16)]));
    pool.pass_until("2026-03-02T14:01:00Z").await;
    // Tomorrow's window wants the GPUs of the endless one, too.
    assert_eq!(pool.holders().await, holds(&[("long", 12)]));
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_guarantee_stops_no_more_jobs_than_it_needs_though_one_is_slow_to_release() {
    let pool = Pool::of("demo").await;
    let clockwork = Clockwork::of(&pool);
    pool.promise("lab", 16, None).await.unwrap();
    for id in ["first", "second", "third"] {
        pool.submit(job(id, 8, json!({"runs_for": "9h", "may_stop": true})))
            .await;
        pool.settles().await;
    }
    assert_eq!(
        pool.holders().await,
        holds(&[("first", 8), ("second", 8), ("third", 8)])
    );
    let slow = Fault::new(FaultKind::Slow {
        by: Duration::from_secs(20),
    });
    pool.fault(slow.on("PATCH", "/redfish/v1/Fabrics/*/Zones/*"));
    let mut ours = job("ours", 16, json!({"runs_for": "1h"}));
    ours["tenant"] = json!("lab");
    pool.submit(ours).await;
    for _ in 0..40 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let stopped = pool.queue().await.running.into_iter();
        let stopped = stopped.filter(|job| job.state.contains("stopped") || job.state.contains("lets go"));
        assert!(stopped.count() <= 2);
    }
    pool.emulation.clear_faults();
    pool.pass_until("2026-03-02T12:30:00Z").await;
    // The oldest has most work to lose.
    assert_eq!(pool.holders().await, holds(&[("first", 8), ("ours", 16)]));
    let waiting = pool.queue().await.waiting;
    let stopped: BTreeMap<String, u32> = waiting
        .into_iter()
        .map(|job| (job.demand.to_string(), job.stopped))
        .collect();
    assert_eq!(stopped, holds(&[("second", 1), ("third", 1)]));
    pool.all_is_well().await;
    clockwork.stop().await;
}

/// Jobs of two GPUs say 20 s, and run for 40 to 160 s.
#[tokio::test(start_paused = true)]
async fn a_gang_starts_though_short_jobs_overrun_again_and_again() {
    let pool = Pool::of("demo").await;
    let clockwork = Clockwork::of(&pool);
    let mut chance = fastrand::Rng::with_seed(7);
    let mut ends: BTreeMap<String, u64> = BTreeMap::new();
    let (mut next, mut began_after) = (0, 0);
    for ten_seconds in 0..130_u64 {
        let queue = pool.queue().await;
        if queue.running.iter().any(|job| job.demand.as_str() == "gang") {
            assert!(ten_seconds > 12, "nothing ran before it");
            assert!(began_after < 60, "{began_after} jobs began before it");
            pool.all_is_well().await;
            return clockwork.stop().await;
        }
        for running in &queue.running {
            let id = running.demand.to_string();
            if !ends.contains_key(&id) && pool.holders().await.contains_key(&id) {
                began_after += u64::from(ten_seconds > 12);
                ends.insert(id, ten_seconds + chance.u64(4..=16));
            }
        }
        let over = ends.iter().filter(|(_, end)| **end <= ten_seconds);
        let over: Vec<String> = over.map(|(id, _)| id.clone()).collect();
        for id in over {
            ends.insert(id.clone(), u64::MAX);
            pool.is_done(&id).await;
        }
        for _ in queue.waiting.len()..14 {
            pool.submit(job(&format!("job-{next}"), 2, json!({"runs_for": "20s"})))
                .await;
            next += 1;
        }
        if ten_seconds == 12 {
            pool.submit(job("gang", 16, json!({"runs_for": "1m"}))).await;
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    panic!(
        "{began_after} jobs began, and the gang waits: {:?}",
        pool.why_waits("gang").await
    );
}
