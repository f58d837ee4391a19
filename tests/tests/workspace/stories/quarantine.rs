//! A GPU that fails: out of use with its evidence, exchanged by the next plan, and back once it was burnt in.

use crate::stories::calendar::{Clockwork, holds};
use crate::stories::kit::{ME, Pool, demand_id, gpus};
use crate::stories::queueing::job;
use crate::stories::tending::was_told;
use async_trait::async_trait;
use poolwright_executor::Paused;
use poolwright_model::composable::WhyNotKind;
use poolwright_model::id::GpuId;
use poolwright_model::topology::Gpu;
use poolwright_service::ErrorCode;
use poolwright_service::hooks::{HookCall, HookEnd, Hooks, HowItEnded, Occasion};
use poolwright_service::quarantine::{Cause, Failure, Quarantine};
use serde_json::json;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const KIND: &str = "h100-pcie-80gb";
pub const HOUR: Duration = Duration::from_secs(3600);

/// Commands of the operator's: one tells the scheduler, one burns in for ten minutes and ends as it is told to.
#[derive(Debug, Default)]
pub struct Commands {
    names: Vec<&'static str>,
    ends: AtomicI32,
    calls: Mutex<Vec<HookCall>>,
}

#[async_trait]
impl Hooks for Commands {
    fn names(&self) -> Vec<String> {
        self.names.iter().map(ToString::to_string).collect()
    }

    async fn run(&self, call: &HookCall) -> HookEnd {
        self.calls.lock().unwrap().push(call.clone());
        if call.occasion == Occasion::BurnIn {
            tokio::time::sleep(Duration::from_secs(600)).await;
        }
        let code = self.ends.load(Ordering::SeqCst);
        HookEnd::new(HowItEnded::Exited { code }, "")
    }
}

/// A demand for two GPUs, and the first of them.
pub async fn pool(names: &[&'static str]) -> (Pool, Arc<Commands>, Gpu) {
    let commands = Arc::new(Commands {
        names: names.to_vec(),
        ..Commands::default()
    });
    let rack = poolwright_emulator::Rack::builtin("demo").unwrap();
    let store = Arc::new(poolwright_store::SqliteStore::in_memory().unwrap());
    let mut pool = Pool::bare(rack, store);
    pool.options.hooks = commands.clone();
    pool.open().await;
    pool.add_all_endpoints().await;
    pool.composed(gpus("two", KIND, 2)).await;
    let held = pool.truth().into_keys().next().unwrap();
    let gpu = pool.gpu(&held).await;
    (pool, commands, gpu)
}

fn xid() -> Failure {
    Failure {
        cause: Cause::Xid(79),
        says: "GPU has fallen off the bus".to_owned(),
        firmware: Some("96.00.5E".to_owned()),
        event: None,
    }
}

impl Pool {
    pub async fn fails(&self, gpu: &GpuId) -> Quarantine {
        self.composer().quarantine_gpu(gpu, &xid(), ME).await.unwrap()
    }

    pub async fn is_out_of_use(&self, gpu: &GpuId) -> bool {
        let all = self.composer().quarantined().await.unwrap();
        all.iter().any(|one| one.gpu == *gpu)
    }

    /// What the last burn-in came to.
    pub async fn burnt_in(&self, gpu: &GpuId) -> Option<HookEnd> {
        self.composer().return_gpu(gpu, HOUR, ME).await.unwrap();
        let ended = async || {
            let quarantine = self.composer().gpu_history(gpu).await.unwrap().quarantine;
            quarantine.is_none_or(|one| one.burn_in.unwrap().ended.is_some())
        };
        self.until("the burn-in is over", ended).await;
        let quarantine = self.composer().gpu_history(gpu).await.unwrap().quarantine;
        quarantine.and_then(|one| one.burn_in.unwrap().ended)
    }
}

/// Fault 45: out of use at once, the scheduler is told, and whoever holds it is given another one; counted by serial.
#[tokio::test(start_paused = true)]
async fn a_gpu_that_failed_is_exchanged_by_the_next_plan_and_given_to_nobody() {
    let (mut pool, commands, gpu) = pool(&["quarantine"]).await;
    let before = pool.truth();
    pool.fails(&gpu.id).await;
    let told = async || commands.calls.lock().unwrap().first().cloned();
    pool.until("the scheduler is told", async || told().await.is_some())
        .await;
    let call = told().await.unwrap();
    assert_eq!(
        (call.occasion, call.gpu),
        (Occasion::Quarantine, Some(gpu.id.clone()))
    );
    assert!(
        call.why.contains("Xid 79 (GPU has fallen off the bus)"),
        "{}",
        call.why
    );
    assert_eq!(pool.truth(), before, "it is not pulled");

    // It is so after a restart, too.
    pool.restart().await;
    let shown = pool.snapshot().await;
    let shown = shown
        .topology
        .gpus
        .iter()
        .find(|shown| shown.id == gpu.id)
        .unwrap();
    assert_eq!(
        shown.composability.0.as_ref().unwrap().kind,
        WhyNotKind::Quarantined
    );

    let plan = pool.composer().plan().await.unwrap();
    let goes: Vec<&GpuId> = plan
        .releases
        .iter()
        .flat_map(|c| &c.held)
        .flat_map(|held| &held.gpus)
        .collect();
    assert_eq!(goes, [&gpu.id], "one goes");
    assert_eq!(
        plan.composes.iter().map(|c| c.held.len()).sum::<usize>(),
        1,
        "one comes"
    );
    pool.applied(plan).await;
    assert_eq!(pool.truth().len(), 2);
    pool.all_is_well().await;
    pool.released("two").await;

    // Whoever wants all of its kind gets all but that one.
    let all = pool
        .snapshot()
        .await
        .topology
        .gpus
        .iter()
        .filter(|other| other.model == gpu.model)
        .count();
    let all = u32::try_from(all).unwrap();
    let refused = pool.compose(gpus("all", KIND, all)).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Unplaced);
    assert!(refused.message.contains("quarantined"), "{}", refused.message);
}

/// A compose, a job that begins and the calendar change what they are for, and nobody else's GPUs.
#[tokio::test(start_paused = true)]
async fn what_failed_stays_where_it_is_until_somebody_applies_a_plan_for_all() {
    let (pool, _, gpu) = pool(&[]).await;
    let shop = json!({
        "id": "day",
        "window": {"opens": "0 0 * * *", "closes": "59 23 * * *"},
        "demands": [gpus("shop", KIND, 2)],
    });
    pool.schedule(shop).await;
    let clockwork = Clockwork::of(&pool);
    pool.settles().await;
    let shops = pool.composer().compositions().await.unwrap().into_iter();
    let mut shops = shops.filter(|c| c.demand == Some(demand_id("shop")));
    let of_shop = shops.next().unwrap().held[0].gpus[0].clone();
    let before = pool.truth();
    let nobody_moved = || {
        before
            .iter()
            .all(|(gpu, port)| pool.truth().get(gpu) == Some(port))
    };
    pool.fails(&gpu.id).await;
    pool.fails(&of_shop).await;

    pool.composed(gpus("other", KIND, 2)).await;
    assert!(nobody_moved(), "by a compose for somebody else");
    pool.submit(job("job", 2, json!({"runs_for": "2h"}))).await;
    pool.settles().await;
    assert!(nobody_moved(), "by a job that begins");
    tokio::time::sleep(HOUR).await;
    assert!(nobody_moved(), "by the calendar");
    let all = holds(&[("job", 2), ("other", 2), ("shop", 2), ("two", 2)]);
    assert_eq!(pool.holders().await, all);

    let plan = pool.composer().plan().await.unwrap();
    pool.applied(plan).await;
    assert_eq!(pool.holders().await, all);
    let (goes, stays): (Vec<_>, Vec<_>) = before
        .iter()
        .partition(|(gpu, _)| !pool.truth().contains_key(*gpu));
    assert_eq!((goes.len(), stays.len()), (2, 2), "only what failed is exchanged");
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn it_comes_back_when_a_burn_in_has_passed_and_in_no_other_way() {
    let (pool, commands, gpu) = pool(&["burn-in"]).await;
    let refused = pool.composer().return_gpu(&gpu.id, HOUR, ME).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::NotFound, "it is in use");
    pool.fails(&gpu.id).await;
    for limit in [Duration::ZERO, HOUR * 25] {
        let refused = pool.composer().return_gpu(&gpu.id, limit, ME).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::BadRequest);
    }

    commands.ends.store(1, Ordering::SeqCst);
    let end = pool.burnt_in(&gpu.id).await.unwrap();
    assert_eq!(end.how, HowItEnded::Exited { code: 1 });
    assert!(pool.is_out_of_use(&gpu.id).await);

    // One that fails again while it is burnt in, is not well, whatever the burn-in says.
    commands.ends.store(0, Ordering::SeqCst);
    pool.composer().return_gpu(&gpu.id, HOUR, ME).await.unwrap();
    let twice = pool.composer().return_gpu(&gpu.id, HOUR, ME).await.unwrap_err();
    assert_eq!(twice.code, ErrorCode::Conflict, "one at a time");
    tokio::time::sleep(Duration::from_secs(60)).await;
    pool.fails(&gpu.id).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(pool.is_out_of_use(&gpu.id).await);

    assert_eq!(pool.burnt_in(&gpu.id).await, None);
    assert!(!pool.is_out_of_use(&gpu.id).await);
    assert!(
        pool.composer().plan().await.unwrap().changes_nothing(),
        "and stays where it is"
    );
    let history = pool.composer().gpu_history(&gpu.id).await.unwrap().of;
    assert_eq!((history.strikes.len(), history.passed.len()), (2, 1));
}

/// Of two that hosts took for one, one is burnt in while an operation has the other in hand.
#[tokio::test(start_paused = true)]
async fn a_burn_in_that_passed_counts_once_nothing_moves_the_other_gpu_any_more() {
    let (mut pool, _, gpu) = pool(&["burn-in"]).await;
    pool.options.poll = Some(Duration::from_secs(30));
    pool.restart().await;
    let clockwork = Clockwork::of(&pool);
    let mut held = Vec::new();
    for name in pool.truth().into_keys() {
        held.push(pool.gpu(&name).await);
    }
    for one in &held {
        was_told(&pool, one, "GPU-0e2b7f0c-9a51-4c1e-8f7a-4d2f9c1b7a01").await;
    }
    let other = held.into_iter().find(|one| one.id != gpu.id).unwrap();
    pool.until("neither is in use", async || {
        pool.is_out_of_use(&gpu.id).await && pool.is_out_of_use(&other.id).await
    })
    .await;
    pool.composer().return_gpu(&gpu.id, HOUR, ME).await.unwrap();
    let release = pool.release("two").await.unwrap();
    pool.composer()
        .pause(Paused::All, ME, "the other one is looked at")
        .await
        .unwrap();
    let passed = async || {
        let quarantine = pool.composer().gpu_history(&gpu.id).await.unwrap().quarantine;
        quarantine.and_then(|one| one.burn_in.unwrap().ended)
    };
    pool.until("the burn-in is over", async || passed().await.is_some())
        .await;
    assert!(passed().await.unwrap().is_success());
    tokio::time::sleep(HOUR).await;
    assert!(
        pool.is_out_of_use(&gpu.id).await,
        "an operation may be asking its host who it is"
    );

    pool.composer().resume(&Paused::All, ME).await.unwrap();
    pool.done(&release).await;
    pool.until("it is in use again", async || !pool.is_out_of_use(&gpu.id).await)
        .await;
    let history = pool.composer().gpu_history(&gpu.id).await.unwrap().of;
    assert_eq!(history.passed.len(), 1);
    assert!(
        pool.is_out_of_use(&other.id).await,
        "nobody has burnt that one in"
    );
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn where_no_command_burns_in_nothing_comes_back_and_it_is_said_what_is_missing() {
    let (pool, _, gpu) = pool(&[]).await;
    pool.fails(&gpu.id).await;
    let refused = pool.composer().return_gpu(&gpu.id, HOUR, ME).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict);
    assert!(refused.hint.unwrap().contains("serve --hooks"));
    assert!(pool.is_out_of_use(&gpu.id).await);
}

#[tokio::test(start_paused = true)]
async fn failures_are_counted_by_gpu_and_by_slot_and_stay_with_both_when_one_replaces_the_other() {
    let (pool, _, gpu) = pool(&[]).await;
    pool.fails(&gpu.id).await;
    pool.fails(&gpu.id).await;
    let history = pool.composer().gpu_history(&gpu.id).await.unwrap();
    assert_eq!((history.of.strikes.len(), history.strikes_of_slot), (2, 2));
    let evidence = &history.of.strikes[0].evidence;
    assert_eq!((&evidence.serial, &evidence.slot), (&gpu.serial, &gpu.slot));
    assert_eq!(evidence.firmware.as_deref(), Some("96.00.5E"));

    let topology = &pool.snapshot().await.topology;
    let other = topology
        .gpus
        .iter()
        .find(|other| other.model == gpu.model && other.id != gpu.id);
    let other = &other.unwrap().id;
    pool.composer().replace_gpu(&gpu.id, other, ME).await.unwrap();
    let of = async |id| pool.composer().gpu_history(id).await.unwrap();
    assert_eq!(of(&gpu.id).await.of.replaced_by.unwrap().gpu, *other);
    assert_eq!(of(other).await.of.replaces.unwrap().gpu, gpu.id);
    assert_eq!(of(&gpu.id).await.of.strikes.len(), 2, "they stay with it");
    assert_eq!(of(other).await.of.strikes.len(), 0, "and are not the other's");
    let third = topology
        .gpus
        .iter()
        .find(|third| third.id != gpu.id && third.id != *other)
        .unwrap();
    let refused = pool
        .composer()
        .replace_gpu(&gpu.id, &third.id, ME)
        .await
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict);
    let nobody = GpuId::from_lossy("gpu-nobody");
    let refused = pool
        .composer()
        .replace_gpu(&gpu.id, &nobody, ME)
        .await
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::NotFound);
}
