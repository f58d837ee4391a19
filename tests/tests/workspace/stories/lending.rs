//! What a schedule lends comes back: the borrower is told and asked, the lender is told where that takes too long, and
//! nothing more is lent of what is late.

use crate::stories::calendar::*;
use crate::stories::kit::{Pool, at, gpus};
use crate::stories::managers::{Manager, manager};
use async_trait::async_trait;
use jiff::Timestamp;
use poolwright_emulator::state::Job;
use poolwright_service::ErrorCode;
use poolwright_service::hooks::{HookCall, HookEnd, Hooks, HowItEnded, Occasion};
use poolwright_service::lend::Returned;
use poolwright_service::occurrence::Fate;
use poolwright_service::runner::{self, OfLend, ScheduleRun};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What a checkpoint does.
#[derive(Debug, Clone, Copy)]
pub enum Does {
    /// Ends with this, after so many seconds.
    Ends(i32, u64),
    Hangs,
}

/// Hooks that do as they are told, and remember what they were run for.
#[derive(Debug)]
pub struct Told {
    does: Mutex<Does>,
    pub calls: Mutex<Vec<HookCall>>,
}

#[async_trait]
impl Hooks for Told {
    fn names(&self) -> Vec<String> {
        ["tell", "save", "page"].map(str::to_owned).to_vec()
    }

    async fn run(&self, call: &HookCall) -> HookEnd {
        self.calls.lock().unwrap().push(call.clone());
        let does = *self.does.lock().unwrap();
        match (call.occasion, does) {
            (Occasion::Checkpoint, Does::Hangs) => {
                tokio::time::sleep(call.limit).await;
                let after_s = call.limit.as_secs();
                HookEnd::new(HowItEnded::TimedOut { after_s }, "")
            }
            (Occasion::Checkpoint, Does::Ends(code, after_s)) => {
                tokio::time::sleep(Duration::from_secs(after_s)).await;
                HookEnd::new(HowItEnded::Exited { code }, "step 41 of 50\n")
            }
            _ => HookEnd::new(HowItEnded::Exited { code: 0 }, ""),
        }
    }
}

impl Told {
    pub fn new(does: Does) -> Arc<Self> {
        Arc::new(Self {
            does: Mutex::new(does),
            calls: Mutex::default(),
        })
    }

    pub fn does(&self, does: Does) {
        *self.does.lock().unwrap() = does;
    }

    /// What was run, and how often.
    pub fn ran(&self) -> Vec<(Occasion, u32)> {
        let calls = self.calls.lock().unwrap();
        calls.iter().map(|call| (call.occasion, call.attempt)).collect()
    }

    pub fn times(&self, occasion: Occasion) -> usize {
        self.ran().iter().filter(|(ran, _)| *ran == occasion).count()
    }
}

/// Twenty GPUs of `chat`, lent by night. Five minutes are assumed for the return, so the run ends by 7:25, the checkpoint
/// comes at 7:20, and the notice at 7:10.
fn lend(may_stop: bool) -> Value {
    let mut lend = night();
    lend["back_by_close"] = json!(true);
    lend["reclaim_s"] = json!(1800);
    lend["alert"] = json!("page");
    lend["ladder"] = json!({
        "notice_s": 600, "notify": "tell", "checkpoint": "save", "checkpoint_s": 120, "grace_s": 180,
        "may_stop": may_stop,
    });
    lend
}

pub async fn pool_with(hooks: &Arc<Told>) -> Pool {
    pool_lending(hooks, 20).await
}

/// The same, where so many GPUs of `chat` are lent.
async fn pool_lending(hooks: &Arc<Told>, count: u32) -> Pool {
    let mut pool = Pool::bare(
        poolwright_emulator::Rack::builtin("demo").unwrap(),
        Arc::new(poolwright_store::SqliteStore::in_memory().unwrap()),
    );
    pool.options.hooks = hooks.clone();
    pool.open().await;
    pool.add_all_endpoints().await;
    pool.composed(gpus("chat", "h100-pcie-80gb", count)).await;
    pool
}

pub fn lent() -> std::collections::BTreeMap<String, u32> {
    holds(&[("training", 24)])
}

fn back() -> std::collections::BTreeMap<String, u32> {
    holds(&[("chat", 20)])
}

/// What was achieved, of each return.
fn returned(runs: &[ScheduleRun]) -> Vec<Returned> {
    let returned = runs.iter().filter_map(|run| match &run.lend {
        Some(OfLend::Returned(returned)) => Some(returned.clone()),
        _ => None,
    });
    returned.collect()
}

#[tokio::test(start_paused = true)]
async fn whoever_adds_a_window_that_is_open_is_told_so_at_once() {
    let pool = pool_with(&Told::new(Does::Ends(0, 20))).await;
    pool.pass_until("2026-03-02T22:00:00Z").await;
    let status = pool.schedule(lend(false)).await;
    assert!(status.open, "{status:?}");
    assert_eq!(status.next_change, Some(at("2026-03-03T07:25:00Z")));
}

#[tokio::test(start_paused = true)]
async fn what_is_lent_is_called_back_rung_by_rung_and_is_back_in_time() {
    let hooks = Told::new(Does::Ends(0, 20));
    let pool = pool_with(&hooks).await;
    pool.schedule(lend(false)).await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until("2026-03-03T07:09:00Z").await;
    assert_eq!((pool.holders().await, hooks.ran()), (lent(), vec![]));
    pool.pass_until("2026-03-03T07:11:00Z").await;
    assert_eq!(hooks.ran(), [(Occasion::Notice, 1)]);
    let status = pool.night().await;
    let told = status.return_told().unwrap();
    assert!(told.contains("called back at 2026-03-03T07:10"), "{told}");
    pool.pass_until("2026-03-03T07:19:00Z").await;
    assert_eq!(
        pool.holders().await,
        lent(),
        "it keeps all until the notice is over"
    );
    pool.pass_until("2026-03-03T07:23:00Z").await;
    assert_eq!(hooks.ran(), [(Occasion::Notice, 1), (Occasion::Checkpoint, 1)]);
    assert_eq!(pool.holders().await, back(), "as soon as it has saved");
    pool.all_is_well().await;

    let call = hooks.calls.lock().unwrap()[1].clone();
    assert_eq!((call.limit.as_secs(), call.due), (120, Some(at(MORNING))));
    assert_eq!(
        (call.borrowers[0].as_str(), call.lenders[0].as_str()),
        ("training", "chat")
    );
    let runs = pool.runs().await;
    let achieved = returned(&runs);
    assert_eq!(achieved.len(), 1, "{runs:?}");
    assert!(
        !achieved[0].late && (620..900).contains(&achieved[0].took_s),
        "{achieved:?}"
    );
    assert!(
        runs.iter()
            .any(|run| run.outcome.contains("of 1800 s guaranteed: held")),
        "{runs:?}"
    );
    let saved = runs
        .iter()
        .find(|run| run.outcome.starts_with("checkpoint 1"))
        .unwrap();
    assert!(
        saved.succeeded && saved.outcome.contains("step 41 of 50"),
        "{saved:?}"
    );
    // And the next night again.
    pool.pass_until("2026-03-03T23:00:00Z").await;
    assert_eq!(pool.holders().await, lent());
    pool.pass_until("2026-03-04T07:31:00Z").await;
    assert_eq!((pool.holders().await, hooks.ran().len()), (back(), 4));
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_may_be_stopped_is_taken_after_its_grace() {
    for (does, asked) in [(Does::Ends(1, 5), 3), (Does::Hangs, 2)] {
        let hooks = Told::new(does);
        let pool = pool_with(&hooks).await;
        pool.schedule(lend(true)).await;
        let clockwork = Clockwork::of(&pool);
        pool.pass_until("2026-03-03T07:21:30Z").await;
        assert_eq!(pool.holders().await, lent(), "{does:?}");
        pool.pass_until("2026-03-03T07:29:50Z").await;
        assert_eq!(pool.holders().await, back(), "{does:?}");
        assert_eq!(hooks.times(Occasion::Checkpoint), asked, "{does:?}");
        assert_eq!(hooks.times(Occasion::Alert), 0, "{does:?}");
        let runs = pool.runs().await;
        assert!(
            runs.iter()
                .any(|run| run.outcome.contains("the grace is over, and it may be stopped")),
            "{runs:?}"
        );
        assert!(!returned(&runs)[0].late, "{runs:?}");
        pool.all_is_well().await;
        clockwork.stop().await;
    }
}

/// From eight in the morning `chat` makes way again: by a schedule that promises nothing to anybody, too.
fn morning(promises: bool) -> Value {
    let mut morning = json!({
        "id": "morning", "suspends": ["chat"],
        "window": {"opens": "0 8 * * *", "closes": "0 12 * * *"},
        "demands": [gpus("reports", "h100-pcie-80gb", 16)],
    });
    if promises {
        morning["back_by_close"] = json!(true);
    }
    morning
}

#[tokio::test(start_paused = true)]
async fn a_return_that_will_be_late_is_told_beforehand_and_blocks_the_next_lend() {
    for promises in [false, true] {
        let hooks = Told::new(Does::Ends(1, 5));
        let mut pool = pool_with(&hooks).await;
        pool.schedule(lend(false)).await;
        pool.schedule(morning(promises)).await;
        let clockwork = Clockwork::of(&pool);
        pool.pass_until("2026-03-03T07:29:00Z").await;
        assert_eq!(hooks.times(Occasion::Alert), 1, "before it is due");
        let status = pool.night().await;
        assert!(
            !status.late && status.return_told().unwrap().contains("will be late"),
            "{status:?}"
        );
        let why = hooks
            .calls
            .lock()
            .unwrap()
            .iter()
            .find_map(|call| (call.occasion == Occasion::Alert).then(|| call.why.clone()));
        assert!(why.clone().unwrap().contains("it ended with 1"), "{why:?}");

        pool.pass_until("2026-03-03T09:00:00Z").await;
        assert_eq!(
            pool.holders().await,
            lent(),
            "nothing is taken without a checkpoint"
        );
        let manager = pool.composer();
        let status = manager.schedule(&night_id()).await.unwrap();
        assert!(status.late && status.open, "{status:?}");
        let blocked = manager.schedule(&"morning".parse().unwrap()).await.unwrap();
        assert_eq!(
            (blocked.open, blocked.fate),
            (false, Some(Fate::Blocked { by: night_id() }))
        );
        let doctor = manager.doctor().await.unwrap();
        let check = doctor.iter().find(|check| check.name == "returns").unwrap();
        assert!(check.message.contains("night"), "{check:?}");
        let refused = manager
            .run_schedule(&"morning".parse().unwrap(), None, "me")
            .await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code, ErrorCode::Conflict, "{refused}");
        assert!(
            refused.message.contains("what schedule night lent is not back"),
            "{refused}"
        );
        // It is asked less and less often, and nobody is told twice.
        let asked = hooks.times(Occasion::Checkpoint);
        assert!((8..14).contains(&asked), "{asked}");

        // What is kept of it outlives the manager.
        clockwork.stop().await;
        pool.restart().await;
        let clockwork = Clockwork::of(&pool);
        hooks.does(Does::Ends(0, 5));
        pool.pass_until("2026-03-03T09:30:00Z").await;
        assert_eq!(
            pool.holders().await,
            holds(&[("reports", 16)]),
            "then what waited begins"
        );
        assert_eq!(hooks.times(Occasion::Alert), 1);
        let runs = pool.runs().await;
        let achieved = returned(&runs);
        pool.pass_until("2026-03-03T13:00:00Z").await;
        assert_eq!(pool.holders().await, back());
        assert!(achieved[0].late && achieved[0].took_s > 1800, "{achieved:?}");
        pool.all_is_well().await;
        clockwork.stop().await;
    }
}

/// Fault 47: nothing that is in use is pulled for a return, and who uses it is named; what is idle goes back at once.
#[tokio::test(start_paused = true)]
async fn a_gpu_in_use_is_not_pulled_for_a_return_and_its_holder_is_named() {
    let hooks = Told::new(Does::Ends(1, 5));
    let mut pool = pool_lending(&hooks, 24).await;
    pool.schedule(lend(true)).await;
    pool.schedule(morning(false)).await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until(NIGHT).await;
    let names: Vec<String> = pool.truth().into_keys().take(2).collect();
    let gpus: Vec<_> = names.iter().map(|name| pool.gpu_ix(name)).collect();
    let job = Job {
        pid: 77,
        command: "train".into(),
    };
    for gpu in &gpus {
        let started = pool
            .emulation
            .with(|state, now| state.start_job(*gpu, job.clone(), now));
        started.unwrap();
    }
    pool.pass_until("2026-03-03T07:29:00Z").await;
    assert_eq!(hooks.times(Occasion::Alert), 1);
    let why = hooks.calls.lock().unwrap().last().unwrap().why.clone();
    assert!(why.contains("train (process 77)"), "{why}");
    let in_part = holds(&[("chat", 22), ("training", 2)]);
    assert_eq!(pool.holders().await, in_part, "what is idle is back");
    let moved = pool.emulation.with(|state, _| state.tally()).unbinds;
    pool.pass_until("2026-03-03T07:40:00Z").await;
    let status = pool.night().await;
    assert!(status.late, "{status:?}");
    let told = status.return_told().unwrap();
    assert!(
        told.contains("late") && told.contains("chat lacks 2 GPUs"),
        "{told}"
    );
    assert!(names.iter().all(|name| pool.truth().contains_key(name)));

    // One of them is idle, and goes back by itself; a manager that comes back knows no less.
    pool.emulation.with(|state, _| state.end_job(gpus[0], 77));
    clockwork.stop().await;
    pool.restart().await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until("2026-03-03T08:10:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("chat", 23), ("training", 1)]));
    let blocked = pool
        .composer()
        .schedule(&"morning".parse().unwrap())
        .await
        .unwrap();
    assert_eq!(
        (blocked.open, blocked.fate),
        (false, Some(Fate::Blocked { by: night_id() })),
        "nothing more is lent until all is back"
    );
    let tally = pool.emulation.with(|state, _| state.tally());
    assert_eq!(tally.unbinds, moved + 1, "nothing else was moved");
    assert_eq!((tally.pulled_in_use, tally.resets_in_use), (0, 0));

    pool.emulation.with(|state, _| state.end_job(gpus[1], 77));
    pool.composer()
        .pause_schedule(&"morning".parse().unwrap(), true)
        .await
        .unwrap();
    pool.pass_until("2026-03-03T08:40:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("chat", 24)]));
    assert!(returned(&pool.runs().await)[0].late);
    assert_eq!(hooks.times(Occasion::Alert), 1);
    pool.all_is_well().await;
    clockwork.stop().await;
}

/// Whoever has all of it again is not kept waiting by what the borrower still uses.
#[tokio::test(start_paused = true)]
async fn what_can_be_had_elsewhere_is_back_in_time_whatever_the_borrower_still_uses() {
    let hooks = Told::new(Does::Ends(0, 20));
    let pool = pool_with(&hooks).await;
    pool.schedule(lend(true)).await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until(NIGHT).await;
    let name = pool.truth().into_keys().next().unwrap();
    let gpu = pool.gpu_ix(&name);
    let job = Job {
        pid: 77,
        command: "train".into(),
    };
    pool.emulation
        .with(|state, now| state.start_job(gpu, job, now))
        .unwrap();
    pool.pass_until("2026-03-03T07:30:30Z").await;
    assert_eq!(pool.holders().await, holds(&[("chat", 20), ("training", 1)]));
    assert!(!returned(&pool.runs().await)[0].late);
    let trouble = pool.night().await.trouble;
    assert!(trouble.unwrap().reason.contains("train (process 77)"));
    pool.emulation.with(|state, _| state.end_job(gpu, 77));
    pool.pass_until("2026-03-03T08:10:00Z").await;
    assert_eq!(pool.holders().await, back());
    let tally = pool.emulation.with(|state, _| state.tally());
    assert_eq!((tally.pulled_in_use, tally.resets_in_use), (0, 0));
    pool.all_is_well().await;
    clockwork.stop().await;
}

/// No run of a hook comes twice, and none is taken for a success that nobody saw the end of.
pub fn each_ran_once(hooks: &Told) {
    let ran = hooks.ran();
    let once: BTreeSet<String> = ran.iter().map(|run| format!("{run:?}")).collect();
    assert_eq!(once.len(), ran.len(), "{ran:?}");
    assert_eq!(hooks.times(Occasion::Notice), 1, "{ran:?}");
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_dies_on_the_ladder_goes_on_from_the_rung_where_it_was() {
    // Before the notice, with it, while the checkpoint is run, and when it is over.
    for dies in [
        "07:09:59", "07:10:00", "07:15:00", "07:20:00", "07:20:15", "07:20:20", "07:20:21",
    ] {
        let hooks = Told::new(Does::Ends(0, 20));
        let mut pool = pool_with(&hooks).await;
        pool.schedule(lend(false)).await;
        let clockwork = Clockwork::of(&pool);
        pool.pass_until("2026-03-03T07:05:00Z").await;
        pool.sleep_until(&format!("2026-03-03T{dies}Z")).await;
        clockwork.stop().await;
        pool.crash().await;
        pool.open().await;
        let clockwork = Clockwork::of(&pool);
        pool.pass_until("2026-03-03T07:30:00Z").await;
        assert_eq!(pool.holders().await, back(), "{dies}");
        each_ran_once(&hooks);
        assert!(
            hooks.times(Occasion::Checkpoint) <= 2,
            "{dies}: {:?}",
            hooks.ran()
        );
        assert_eq!(returned(&pool.runs().await).len(), 1, "{dies}");
        pool.all_is_well().await;
        clockwork.stop().await;
    }
}

/// Where nobody was there when it should have been called back, no rung is left out, and the delay is told at once.
#[tokio::test(start_paused = true)]
async fn a_borrower_is_told_and_asked_also_where_the_manager_was_away() {
    let hooks = Told::new(Does::Ends(0, 20));
    let mut pool = pool_with(&hooks).await;
    pool.schedule(lend(false)).await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until(NIGHT).await;
    clockwork.stop().await;
    pool.crash().await;
    pool.sleep_until("2026-03-03T07:28:00Z").await;
    pool.open().await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until("2026-03-03T07:28:30Z").await;
    let ran = hooks.ran();
    assert!(
        ran.contains(&(Occasion::Alert, 1)) && ran.contains(&(Occasion::Notice, 1)),
        "{ran:?}"
    );
    pool.pass_until("2026-03-03T07:37:00Z").await;
    assert_eq!(pool.holders().await, lent(), "the notice is owed");
    pool.pass_until("2026-03-03T07:41:00Z").await;
    assert_eq!(pool.holders().await, back());
    each_ran_once(&hooks);
    clockwork.stop().await;
}

struct Running {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    fn of(manager: &Manager) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(runner::run(manager.composer.clone(), stop.clone()));
        Self { stop, task }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

/// Two managers, and the one in charge of the calendar stops at each rung: the other goes on, and nothing is run twice.
#[tokio::test(start_paused = true)]
async fn of_two_managers_one_climbs_the_ladder_also_where_the_first_dies() {
    for dies in ["07:12:00", "07:20:05"] {
        let dies: Timestamp = format!("2026-03-03T{dies}Z").parse().unwrap();
        let hooks = Told::new(Does::Ends(0, 20));
        let mut pool = pool_with(&hooks).await;
        pool.schedule(lend(true)).await;
        let clockwork = Clockwork::of(&pool);
        pool.pass_until("2026-03-03T07:05:00Z").await;
        clockwork.stop().await;
        pool.composer().close().await;
        pool.crash().await;
        let (a, b) = (manager(&pool, "a").await, manager(&pool, "b").await);
        let (first, second) = (Running::of(&a), Running::of(&b));
        pool.pass_until(&dies.to_string()).await;
        a.gate.stop();
        first.stop().await;
        drop(a);
        pool.sleep_until("2026-03-03T07:40:00Z").await;
        pool.quiet().await;
        let compositions = b.composer.compositions().await.unwrap();
        let chat = compositions
            .iter()
            .filter(|c| c.demand.as_ref().is_some_and(|d| d.as_str() == "chat"));
        assert_eq!(
            chat.map(|c| c.gpu_count()).sum::<u32>(),
            20,
            "{dies}: {:?}",
            hooks.ran()
        );
        each_ran_once(&hooks);
        second.stop().await;
        b.composer.close().await;
    }
}
