//! Jobs of the queue make way by a ladder: told, asked by their checkpoint, given a grace, and stopped only where they may be.

use crate::stories::calendar::*;
use crate::stories::kit::Pool;
use crate::stories::lending::{Does, Told, each_ran_once, lent, pool_with};
use crate::stories::queueing::job;
use poolwright_emulator::state::Job;
use poolwright_service::hooks::Occasion;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Four GPUs beside the twenty of `chat`. The night wants all of them at eight: it is told at a quarter to, and asked ten
/// minutes later.
fn ladder(may_stop: bool) -> Value {
    json!({
        "runs_for": "40h", "may_stop": may_stop, "notice": "10m", "notify": "tell", "checkpoint": "save",
        "checkpoint_limit": "2m", "grace": "3m", "alert": "page",
    })
}

async fn evening(hooks: &Arc<Told>, may_stop: bool) -> (Pool, Clockwork) {
    let pool = pool_with(hooks).await;
    pool.schedule(night()).await;
    let clockwork = Clockwork::of(&pool);
    pool.submit(job("patient", 4, ladder(may_stop))).await;
    pool.pass_until("2026-03-02T19:44:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("chat", 20), ("patient", 4)]));
    assert_eq!(hooks.ran(), []);
    (pool, clockwork)
}

/// How far the one job that has GPUs is, for people.
async fn state(pool: &Pool) -> String {
    pool.queue().await.running.remove(0).state
}

#[tokio::test(start_paused = true)]
async fn a_job_makes_way_as_soon_as_its_checkpoint_has_succeeded() {
    let hooks = Told::new(Does::Ends(0, 20));
    let (pool, clockwork) = evening(&hooks, false).await;
    pool.pass_until("2026-03-02T19:46:00Z").await;
    assert_eq!(hooks.ran(), [(Occasion::Notice, 1)]);
    pool.pass_until("2026-03-02T19:57:00Z").await;
    assert_eq!(hooks.ran(), [(Occasion::Notice, 1), (Occasion::Checkpoint, 1)]);
    assert_eq!(pool.holders().await, holds(&[("chat", 20)]), "it has saved");
    pool.pass_until(NIGHT).await;
    assert_eq!(pool.holders().await, lent());
    let waits = pool.queue().await.waiting.remove(0);
    assert_eq!((waits.demand.as_str(), waits.stopped), ("patient", 1));
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_may_be_stopped_is_stopped_after_its_grace() {
    for (does, asked) in [(Does::Ends(1, 5), 4), (Does::Hangs, 2)] {
        let hooks = Told::new(does);
        let (pool, clockwork) = evening(&hooks, true).await;
        pool.pass_until("2026-03-02T19:57:30Z").await;
        assert_eq!(
            pool.holders().await["patient"],
            4,
            "{does:?}: its grace is its own"
        );
        let said = state(&pool).await;
        assert!(said.contains("checkpoint"), "{said}");
        pool.pass_until("2026-03-02T20:10:00Z").await;
        assert_eq!(pool.holders().await, lent(), "{does:?}");
        let times = hooks.times(Occasion::Checkpoint);
        assert!((2..=asked).contains(&times), "{does:?}: {times}");
        assert_eq!(hooks.times(Occasion::Alert), 0, "{does:?}");
        each_ran_once(&hooks);
        pool.all_is_well().await;
        clockwork.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_without_its_checkpoint_keeps_its_gpus_and_that_it_is_late_is_told_beforehand() {
    let hooks = Told::new(Does::Ends(1, 5));
    let (mut pool, clockwork) = evening(&hooks, false).await;
    pool.pass_until("2026-03-02T19:59:50Z").await;
    assert_eq!(hooks.times(Occasion::Alert), 1, "{:?}", hooks.ran());
    let call = hooks.calls.lock().unwrap().last().unwrap().clone();
    assert!(call.why.contains("it ended with 1"), "{}", call.why);
    let said = state(&pool).await;
    assert!(
        said.contains("it makes way late") && said.contains("step 41 of 50"),
        "{said}"
    );
    let doctor = pool.composer().doctor().await.unwrap();
    let check = doctor.iter().find(|check| check.name == "returns").unwrap();
    assert!(check.message.contains("patient"), "{check:?}");
    pool.pass_until("2026-03-02T21:00:00Z").await;
    assert_eq!(
        pool.holders().await["patient"],
        4,
        "nothing is taken without a checkpoint"
    );

    // What is kept of it outlives the manager, and the alert is not told again.
    clockwork.stop().await;
    pool.restart().await;
    let clockwork = Clockwork::of(&pool);
    hooks.does(Does::Ends(0, 5));
    pool.pass_until("2026-03-02T21:30:00Z").await;
    assert_eq!(pool.holders().await, lent(), "then the night has all");
    assert_eq!(hooks.times(Occasion::Alert), 1);
    each_ran_once(&hooks);
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_in_use_when_its_time_is_over_is_not_pulled_and_its_holder_is_named() {
    let hooks = Told::new(Does::Ends(0, 20));
    let (pool, clockwork) = evening(&hooks, true).await;
    let computes = Job {
        pid: 77,
        command: "train".into(),
    };
    let gpus: Vec<_> = pool.truth().into_keys().map(|name| pool.gpu_ix(&name)).collect();
    for gpu in &gpus {
        let started = pool
            .emulation
            .with(|state, now| state.start_job(*gpu, computes.clone(), now));
        started.unwrap();
    }
    pool.pass_until("2026-03-02T20:02:00Z").await;
    assert_eq!(pool.holders().await["patient"], 4);
    assert_eq!(hooks.times(Occasion::Alert), 1, "{:?}", hooks.ran());
    let why = hooks.calls.lock().unwrap().last().unwrap().why.clone();
    assert!(why.contains("train (process 77)"), "{why}");
    for gpu in gpus {
        assert!(pool.emulation.with(|state, _| state.end_job(gpu, 77)));
    }
    pool.pass_until("2026-03-02T21:00:00Z").await;
    assert_eq!(pool.holders().await, lent());
    let tally = pool.emulation.with(|state, _| state.tally());
    assert_eq!((tally.pulled_in_use, tally.resets_in_use), (0, 0));
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_dies_while_a_job_makes_way_goes_on_from_the_rung_where_it_was() {
    for dies in ["19:45:00", "19:50:00", "19:55:05", "19:55:21"] {
        let hooks = Told::new(Does::Ends(0, 20));
        let (mut pool, clockwork) = evening(&hooks, false).await;
        pool.sleep_until(&format!("2026-03-02T{dies}Z")).await;
        clockwork.stop().await;
        pool.crash().await;
        pool.open().await;
        let clockwork = Clockwork::of(&pool);
        pool.pass_until("2026-03-02T20:10:00Z").await;
        assert_eq!(pool.holders().await, lent(), "{dies}");
        each_ran_once(&hooks);
        assert!(
            hooks.times(Occasion::Checkpoint) <= 2,
            "{dies}: {:?}",
            hooks.ran()
        );
        pool.all_is_well().await;
        clockwork.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_is_told_by_its_hook_once_before_it_is_stopped() {
    let hooks = Told::new(Does::Ends(0, 0));
    let mut pool = pool_with(&hooks).await;
    let queue =
        |notify: &str| json!({"runs_for": "40h", "may_stop": true, "notice": "10m", "notify": notify});
    let refused = pool.refused(job("patient", 4, queue("shout"))).await;
    assert!(
        refused.message.contains("names hook shout") && refused.hint.is_some(),
        "{refused}"
    );
    pool.schedule(night()).await;
    let clockwork = Clockwork::of(&pool);
    pool.submit(job("patient", 4, queue("tell"))).await;
    pool.pass_until("2026-03-02T19:49:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("chat", 20), ("patient", 4)]));
    assert_eq!(hooks.ran(), []);
    pool.pass_until("2026-03-02T19:52:00Z").await;
    let call = hooks.calls.lock().unwrap()[0].clone();
    assert_eq!((call.occasion, call.schedule()), (Occasion::Notice, ""));
    assert_eq!(
        call.borrowers.iter().map(|job| job.as_str()).collect::<Vec<_>>(),
        ["patient"]
    );
    assert!(
        call.why
            .contains("is stopped at 2026-03-02T20:00:00Z for schedule night"),
        "{}",
        call.why
    );
    let state = pool.queue().await.running.remove(0).state;
    assert!(state.contains("told by its hook: it ended with 0"), "{state}");
    // A manager that comes back does not tell it again.
    clockwork.stop().await;
    pool.restart().await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until(NIGHT).await;
    assert_eq!(pool.holders().await, lent());
    assert_eq!(hooks.ran(), [(Occasion::Notice, 1)]);
    pool.all_is_well().await;
    clockwork.stop().await;
}

/// A preempting job of higher priority makes jobs of lower priority go, with their guaranteed notice, and no more of
/// them than it needs, however long that takes.
#[tokio::test(start_paused = true)]
async fn a_job_that_preempts_gets_the_gpus_of_one_of_lower_priority() {
    let pool = Pool::of("demo").await;
    let clockwork = Clockwork::of(&pool);
    let patient = json!({"runs_for": "40h", "may_stop": true, "notice": "10m"});
    for (id, count) in [("early", 8), ("late", 16)] {
        pool.submit(job(id, count, patient.clone())).await;
        pool.settles().await;
    }
    assert_eq!(pool.holders().await, holds(&[("early", 8), ("late", 16)]));
    pool.submit(job("next", 16, json!({"runs_for": "1h"}))).await;
    let mut urgent = job("urgent", 8, json!({"runs_for": "1h", "preempts": true}));
    urgent["priority"] = json!(50);
    pool.submit(urgent).await;
    pool.settles().await;
    let stopping = || async {
        let running = pool.queue().await.running.into_iter();
        let stopping = running.filter(|job| job.state.contains("for job urgent, of priority 50"));
        stopping.map(|job| job.demand.to_string()).collect::<Vec<_>>()
    };
    let told = stopping().await;
    assert_eq!(told.len(), 1, "{told:?}");
    tokio::time::sleep(Duration::from_secs(5 * 60)).await;
    pool.settles().await;
    assert_eq!(
        stopping().await,
        told,
        "one is enough, however long its notice is"
    );
    pool.until("it has its GPUs", async || {
        pool.holders().await.get("urgent") == Some(&8)
    })
    .await;
    pool.settles().await;
    assert_eq!(stopping().await, <[String; 0]>::default());
    pool.all_is_well().await;
    clockwork.stop().await;
}
