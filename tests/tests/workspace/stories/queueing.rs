//! Jobs that wait for their GPUs: they begin in their order, by themselves, once; and let go when they are done.

use crate::stories::calendar::*;
use crate::stories::kit::{ME, Pool, demand_id, gpus, spec};
use crate::stories::managers;
use poolwright_emulator::fault::{Fault, FaultKind};
use poolwright_emulator::state::Job;
use poolwright_service::{ErrorCode, How, OperationKind, OperationState, Paused, Queue, runner};
use serde_json::{Value, json};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A job for so many of the 24 H100s.
pub fn job(id: &str, count: u32, queue: Value) -> Value {
    let mut job = gpus(id, "h100-pcie-80gb", count);
    job["queue"] = queue;
    job
}

fn hours(hours: u32) -> Value {
    json!({"runs_for": format!("{hours}h")})
}

impl Pool {
    pub async fn submit(&self, job: Value) {
        self.composer().add_demand(spec(job)).await.unwrap();
    }

    pub async fn refused(&self, job: Value) -> poolwright_service::ServiceError {
        self.composer().add_demand(spec(job)).await.unwrap_err()
    }

    pub async fn is_done(&self, job: &str) {
        self.composer().job_done(&demand_id(job)).await.unwrap();
    }

    pub async fn queue(&self) -> Queue {
        self.composer().queue().await.unwrap()
    }

    /// The jobs that wait, in their order.
    pub async fn in_line(&self) -> Vec<String> {
        let waiting = self.queue().await.waiting.into_iter();
        waiting.map(|job| job.demand.to_string()).collect()
    }

    pub async fn why_waits(&self, job: &str) -> String {
        let waiting = self.queue().await.waiting;
        let found = waiting.into_iter().find(|waits| waits.demand.as_str() == job);
        found.unwrap_or_else(|| panic!("{job} does not wait")).because
    }

    /// Long enough for the queue to have looked, and for what it began to be over.
    pub async fn settles(&self) {
        tokio::time::sleep(Duration::from_secs(6)).await;
        self.quiet().await;
        tokio::time::sleep(Duration::from_secs(6)).await;
        self.quiet().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_waits_for_its_gpus_begins_by_itself_and_is_gone_when_it_is_done() {
    let pool = Pool::of("demo").await;
    let clockwork = Clockwork::of(&pool);
    pool.submit(job("first", 20, hours(2))).await;
    pool.settles().await;
    assert_eq!(pool.holders().await, holds(&[("first", 20)]));
    let begun = pool.composer().operations().await.unwrap().remove(0);
    assert_eq!((begun.kind, begun.by.as_str()), (OperationKind::Queue, "queue"));

    pool.submit(job("second", 8, hours(1))).await;
    pool.settles().await;
    assert_eq!(pool.in_line().await, ["second"]);
    let queue = pool.queue().await;
    assert!(queue.waiting[0].because.contains('8'), "{queue:?}");
    assert_eq!(
        queue.waiting[0].begins,
        Some(queue.running[0].ends),
        "when the first is expected to be over"
    );
    assert_eq!(queue.waiting[0].kept.len(), 8);
    // Neither an operator's plan nor one for somebody else serves a job before its turn, or takes from one that runs.
    let plan = pool.composer().plan().await.unwrap();
    assert!(plan.changes_nothing() && plan.unplaced.is_empty(), "{plan:?}");
    let why = pool.composer().why(&demand_id("second")).await.unwrap();
    assert!(
        why.because.iter().any(|line| line.contains("place 1 of 1")),
        "{:?}",
        why.because
    );

    pool.is_done("first").await;
    pool.settles().await;
    assert_eq!(pool.holders().await, holds(&[("second", 8)]));
    assert_eq!(pool.demands().await, ["second"]);
    pool.is_done("second").await;
    pool.settles().await;
    assert!(pool.demands().await.is_empty());
    pool.all_is_free().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_wide_job_is_not_starved_and_what_does_not_delay_it_goes_before_it() {
    let pool = Pool::of("demo").await;
    let clockwork = Clockwork::of(&pool);
    pool.submit(job("runs", 16, hours(4))).await;
    pool.settles().await;
    pool.submit(job("wide", 24, hours(1))).await;
    pool.settles().await;
    // Eight are free. What is over before the wide one could begin may have them.
    pool.submit(job("long", 8, hours(9))).await;
    pool.submit(job("short", 8, hours(2))).await;
    pool.settles().await;
    assert_eq!(pool.holders().await, holds(&[("runs", 16), ("short", 8)]));
    assert!(
        pool.why_waits("long").await.contains("h100"),
        "{}",
        pool.why_waits("long").await
    );
    pool.is_done("short").await;
    pool.settles().await;
    assert_eq!(
        pool.holders().await,
        holds(&[("runs", 16)]),
        "eight stay free for the wide one"
    );
    let why = pool.why_waits("long").await;
    assert!(why.contains("it would delay job wide"), "{why}");
    pool.is_done("runs").await;
    pool.settles().await;
    assert_eq!(pool.holders().await, holds(&[("wide", 24)]));
    pool.is_done("wide").await;
    pool.settles().await;
    assert_eq!(pool.holders().await, holds(&[("long", 8)]));
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_ran_tells_how_long_the_next_ones_run() {
    let pool = Pool::of("demo").await;
    let clockwork = Clockwork::of(&pool);
    for n in 0..5 {
        let name = format!("job-{n}");
        pool.submit(job(&name, 4, json!({}))).await;
        pool.settles().await;
        tokio::time::sleep(Duration::from_secs(1800)).await;
        pool.is_done(&name).await;
        pool.settles().await;
    }
    pool.submit(job("next", 4, json!({}))).await;
    let next = pool
        .composer()
        .demand(&demand_id("next"))
        .await
        .unwrap()
        .job
        .unwrap();
    assert!((1790..1850).contains(&next.expected_s), "{next:?}");
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_ran_as_long_as_it_may_lets_go_unless_it_is_in_use() {
    let pool = Pool::of("demo").await;
    let clockwork = Clockwork::of(&pool);
    pool.submit(job("idle", 4, json!({"at_most": "1h"}))).await;
    pool.settles().await;
    assert_eq!(pool.holders().await, holds(&[("idle", 4)]));
    pool.pass_until("2026-03-02T13:10:00Z").await;
    assert!(pool.demands().await.is_empty());

    pool.submit(job("busy", 4, json!({"at_most": "1h"}))).await;
    pool.settles().await;
    let bound: Vec<String> = pool.truth().into_keys().collect();
    let computes = Job {
        pid: 7,
        command: "python train.py".into(),
    };
    for gpu in bound.iter().map(|name| pool.gpu_ix(name)) {
        let started = pool
            .emulation
            .with(|state, now| state.start_job(gpu, computes.clone(), now));
        started.unwrap();
    }
    pool.pass_until("2026-03-02T15:00:00Z").await;
    assert_eq!(
        pool.holders().await,
        holds(&[("busy", 4)]),
        "a busy GPU is never pulled"
    );
    let state = pool.queue().await.running.remove(0).state;
    assert!(state.contains("it ran for as long as it may"), "{state}");
    for gpu in bound.iter().map(|name| pool.gpu_ix(name)) {
        assert!(pool.emulation.with(|state, _| state.end_job(gpu, computes.pid)));
    }
    pool.pass_until("2026-03-02T15:30:00Z").await;
    assert!(pool.demands().await.is_empty());
    pool.all_is_free().await;
    clockwork.stop().await;
}

/// Killed while a job is given its GPUs, and while it lets go of them.
#[tokio::test(start_paused = true)]
async fn a_job_begins_once_also_where_the_manager_dies_meanwhile() {
    let mut pool = Pool::of("demo").await;
    let slow = Fault::new(FaultKind::Slow {
        by: Duration::from_secs(5),
    });
    pool.fault(slow.on("PATCH", "/redfish/v1/Fabrics/*/Zones/*"));
    let mut clockwork = Clockwork::of(&pool);
    pool.submit(job("one", 8, hours(1))).await;
    pool.submit(job("two", 20, hours(1))).await;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(7)).await;
        clockwork.stop().await;
        pool.restart().await;
        clockwork = Clockwork::of(&pool);
    }
    pool.settles().await;
    assert_eq!(pool.holders().await, holds(&[("one", 8)]));
    pool.is_done("one").await;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(7)).await;
        clockwork.stop().await;
        pool.restart().await;
        clockwork = Clockwork::of(&pool);
    }
    pool.settles().await;
    assert_eq!(pool.holders().await, holds(&[("two", 20)]));
    assert_eq!(pool.demands().await, ["two"]);
    let begun = pool.composer().operations().await.unwrap();
    assert_eq!(begun.len(), 3, "each began once, and one let go: {begun:#?}");
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_could_not_be_given_its_gpus_waits_and_is_tried_again() {
    let pool = Pool::of("demo").await;
    let clockwork = Clockwork::of(&pool);
    let blind = Fault::new(FaultKind::Status {
        code: 503,
        retry_after: None,
    });
    pool.fault(blind.on("GET", "/redfish/v1/Systems/*/Processors"));
    pool.submit(job("one", 4, hours(1))).await;
    tokio::time::sleep(Duration::from_secs(1200)).await;
    pool.quiet().await;
    assert_eq!(pool.in_line().await, ["one"]);
    let job = pool
        .composer()
        .demand(&demand_id("one"))
        .await
        .unwrap()
        .job
        .unwrap();
    assert!(job.failures == 3 && job.failure.is_some(), "{job:?}");
    assert!(
        pool.why_waits("one")
            .await
            .contains("what runs by itself is paused")
    );
    pool.emulation.clear_faults();
    // Three failures in a row have paused what runs by itself.
    pool.composer().resume(&Paused::Automation, ME).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1000)).await;
    pool.settles().await;
    assert_eq!(pool.holders().await, holds(&[("one", 4)]));
    pool.all_is_well().await;
    clockwork.stop().await;
}

/// What schedules will want is left to them.
#[tokio::test(start_paused = true)]
async fn a_job_that_is_not_over_by_the_evening_does_not_begin_on_what_the_night_wants() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 4)).await;
    pool.schedule(night()).await;
    let clockwork = Clockwork::of(&pool);
    // It is noon. The night takes all of them at eight.
    let at_most = |hours: u32| json!({"at_most": format!("{hours}h")});
    pool.submit(job("long", 8, at_most(12))).await;
    pool.submit(job("short", 8, at_most(2))).await;
    pool.settles().await;
    assert_eq!(pool.holders().await, holds(&[("chat", 4), ("short", 8)]));
    let why = pool.why_waits("long").await;
    assert!(
        why.contains("schedule night") && why.contains("2026-03-02T20"),
        "{why}"
    );
    pool.is_done("short").await;
    pool.pass_until(NIGHT).await;
    assert_eq!(pool.holders().await, holds(&[("training", 24)]));
    pool.pass_until("2026-03-03T07:50:00Z").await;
    assert_eq!(
        pool.holders().await,
        holds(&[("chat", 4), ("long", 8)]),
        "the day is long enough"
    );
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_may_be_stopped_makes_way_and_waits_again() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 4)).await;
    pool.schedule(night()).await;
    let clockwork = Clockwork::of(&pool);
    let patient = json!({"runs_for": "40h", "may_stop": true, "notice": "10m"});
    pool.submit(job("patient", 8, patient)).await;
    pool.settles().await;
    assert_eq!(pool.holders().await, holds(&[("chat", 4), ("patient", 8)]));
    pool.pass_until("2026-03-02T19:51:00Z").await;
    let state = pool.queue().await.running.remove(0).state;
    assert!(
        state.contains("is stopped at 2026-03-02T20:00:00Z for schedule night"),
        "{state}"
    );
    pool.pass_until(NIGHT).await;
    assert_eq!(pool.holders().await, holds(&[("training", 24)]));
    let waits = pool.queue().await.waiting.remove(0);
    assert_eq!((waits.demand.as_str(), waits.stopped), ("patient", 1));
    pool.pass_until("2026-03-03T07:50:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("chat", 4), ("patient", 8)]));
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_tenant_is_guaranteed_is_not_taken_while_it_is_wanted() {
    let pool = Pool::of("demo").await;
    let clockwork = Clockwork::of(&pool);
    let vast = pool.promise("lab", 10_000, None).await.unwrap_err();
    assert!(vast.message.contains("the pool has"), "{vast}");
    pool.promise("lab", 16, Some(20)).await.unwrap();
    let of_lab = |id: &str, count, queue| {
        let mut job = job(id, count, queue);
        job["tenant"] = json!("lab");
        job
    };
    let wider = pool.refused(of_lab("wider", 21, hours(1))).await;
    assert!(wider.message.contains("may hold 20 at most"), "{wider}");
    // Others may have all of it while nobody wants it, and make way if they may be stopped.
    pool.submit(job("burst", 24, json!({"runs_for": "9h", "may_stop": true})))
        .await;
    pool.settles().await;
    assert_eq!(pool.holders().await, holds(&[("burst", 24)]));
    pool.submit(of_lab("ours", 16, hours(1))).await;
    pool.submit(job("theirs", 16, hours(1))).await;
    pool.settles().await;
    pool.settles().await;
    assert_eq!(pool.holders().await, holds(&[("ours", 16)]));
    // More than it may hold waits, though there is room.
    pool.submit(of_lab("more", 8, hours(1))).await;
    pool.settles().await;
    let why = pool.why_waits("more").await;
    assert!(why.contains("may hold 20 at most"), "{why}");
    let status = pool.tenant("lab").await;
    assert_eq!((status.holds, status.waiting), (16, 1));
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_can_never_be_is_refused_with_the_limit() {
    let pool = Pool::of("demo").await;
    let never = pool.refused(job("vast", 4_000, hours(1))).await;
    assert_eq!(never.code, ErrorCode::Unplaced);
    assert!(
        never.message.contains("would wait for ever") && never.message.contains("4000"),
        "{never}"
    );
    for count in [0, 1_000_000_000] {
        let refused = pool.refused(job("many", count, hours(1))).await;
        assert!(refused.message.contains("1 to 65536"), "{refused}");
    }
    let now = pool.compose(job("now", 1, hours(1))).await.unwrap_err();
    assert!(
        now.message.contains("waits in the queue, and is composed now"),
        "{now}"
    );
    let mut windowed = job("windowed", 1, hours(1));
    windowed["window"] = json!({"weekly": ["SAT 08:00-09:00"]});
    assert!(pool.refused(windowed).await.message.contains("has a window"));
    let unknown = pool.composer().job_done(&demand_id("nobody")).await.unwrap_err();
    assert_eq!(unknown.code, ErrorCode::NotFound);
    pool.composed(gpus("chat", "h100-pcie-80gb", 1)).await;
    let none = pool.composer().job_done(&demand_id("chat")).await.unwrap_err();
    assert!(none.message.contains("is no job"), "{none}");
    pool.submit(job("waits", 24, hours(1))).await;
    let early = pool.composer().job_done(&demand_id("waits")).await.unwrap_err();
    assert!(early.message.contains("has not begun"), "{early}");
    pool.composer().remove_demand(&demand_id("waits")).await.unwrap();
    assert_eq!(pool.demands().await, ["chat"]);
}

#[tokio::test(start_paused = true)]
async fn what_the_queue_began_is_not_undone_behind_its_back() {
    let pool = Pool::of("demo").await;
    let clockwork = Clockwork::of(&pool);
    pool.submit(job("one", 4, hours(1))).await;
    pool.settles().await;
    let begun = pool.composer().operations().await.unwrap().remove(0);
    let undone = pool
        .composer()
        .undo_operation(&begun.id, ME, &How::default())
        .await;
    assert!(undone.unwrap_err().message.contains("the queue decides"));
    let job = pool
        .composer()
        .demand(&demand_id("one"))
        .await
        .unwrap()
        .job
        .unwrap();
    assert!(job.runs(), "{job:?}");
    pool.composer().remove_demand(&demand_id("one")).await.unwrap();
    pool.settles().await;
    assert!(pool.demands().await.is_empty());
    pool.all_is_free().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_begins_by_itself_while_that_is_paused() {
    let pool = Pool::of("demo").await;
    let clockwork = Clockwork::of(&pool);
    pool.composer()
        .pause(Paused::Automation, ME, "a look")
        .await
        .unwrap();
    pool.submit(job("one", 4, hours(1))).await;
    pool.settles().await;
    assert_eq!(pool.in_line().await, ["one"]);
    assert!(pool.queue().await.paused.unwrap().contains("a look"));
    pool.composer().resume(&Paused::Automation, ME).await.unwrap();
    pool.settles().await;
    assert_eq!(pool.holders().await, holds(&[("one", 4)]));
    clockwork.stop().await;
}

/// Two managers see to one queue, and one of them is stopped while it begins a job.
#[tokio::test(start_paused = true)]
async fn two_managers_begin_each_job_once() {
    let (mut pool, a, b) = managers::two("demo").await;
    let stop = CancellationToken::new();
    let runs = [&a, &b].map(|manager| tokio::spawn(runner::run(manager.composer.clone(), stop.clone())));
    for n in 0..6 {
        let manager = if n % 2 == 0 { &a } else { &b };
        let job = spec(job(&format!("job-{n}"), 8, hours(1 + n)));
        manager.composer.add_demand(job).await.unwrap();
    }
    let jobs = async || b.composer.queue().await.unwrap();
    let has_gpus = |queue: &Queue| queue.running.iter().filter(|job| job.gpus == 8).count();
    pool.until("three of them have their GPUs", async || {
        has_gpus(&jobs().await) == 3
    })
    .await;
    assert_eq!(jobs().await.waiting.len(), 3);
    let begun = jobs().await.running.remove(0).demand;
    b.composer.job_done(&begun).await.unwrap();
    // The other goes on, whoever was about to.
    a.gate.stop();
    pool.until("the next has its GPUs", async || {
        let queue = jobs().await;
        queue.waiting.len() == 2 && has_gpus(&queue) == 3
    })
    .await;
    a.gate.go_on();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(jobs().await.waiting.len(), 2);
    let operations = b.composer.operations().await.unwrap();
    let done = operations
        .iter()
        .filter(|operation| operation.state == OperationState::Completed);
    assert_eq!(done.count(), 5, "four began, one let go: {operations:#?}");
    stop.cancel();
    for run in runs {
        run.await.unwrap();
    }
    managers::all_is_well(&mut pool, &[&a, &b]).await;
}
