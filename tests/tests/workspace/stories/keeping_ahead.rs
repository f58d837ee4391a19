//! GPUs that their tenant is expected to want soon stay attached, or are attached ahead; whoever needs them gets them.

use crate::stories::calendar::{Clockwork, holds};
use crate::stories::kit::{ME, Pool, demand_id, gpus};
use poolwright_emulator::rack::Rack;
use poolwright_emulator::state::Job;
use poolwright_executor::Clock as _;
use poolwright_service::keep::{Keep, Level};
use poolwright_service::quarantine::{Cause, Failure};
use poolwright_service::{Change, How, Kinds, OperationKind, OperationState, Release};
use poolwright_store::SqliteStore;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const H100: &str = "h100-pcie-80gb";

fn policy() -> Keep {
    Keep {
        level: Level::P50,
        ahead_h: 2,
        most_gpus: 8,
        attach: false,
    }
}

async fn pool(keep: Option<Keep>) -> Pool {
    let mut pool = Pool::bare(
        Rack::builtin("demo").unwrap(),
        Arc::new(SqliteStore::in_memory().unwrap()),
    );
    (pool.options.poll, pool.options.walk) = (Some(HOUR), 6 * HOUR);
    pool.options.keep = keep;
    pool.open().await;
    pool.add_all_endpoints().await;
    pool
}

/// One in which `chat` has had four GPUs for days.
async fn pool_with_chat(keep: Option<Keep>) -> Pool {
    let pool = pool(keep).await;
    pool.composed(gpus("chat", H100, 4)).await;
    let days_ago = pool.clock.now() - jiff::SignedDuration::from_hours(90);
    pool.composer().note_wants(days_ago).await.unwrap();
    pool
}

fn of_tenant(mut demand: Value, tenant: &str) -> Value {
    demand["tenant"] = json!(tenant);
    demand
}

fn nothing_was_done(change: &Change) {
    assert!(change.operation.is_none(), "{change:?}");
}

/// By day a shop wants four GPUs.
fn shop() -> Value {
    json!({
        "id": "day",
        "window": {"opens": "0 8 * * *", "closes": "0 18 * * *"},
        "demands": [gpus("shop", H100, 4)],
    })
}

impl Pool {
    async fn kept_ahead(&self) -> u32 {
        let ahead = BTreeSet::from([1]);
        self.composer()
            .forecast(None, &Kinds::Together, &ahead)
            .await
            .unwrap()[0]
            .kept
    }

    async fn kinds(&self) -> Vec<OperationKind> {
        let operations = self.composer().operations().await.unwrap();
        operations.iter().map(|operation| operation.kind).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_expected_again_stays_attached_and_is_taken_up_as_it_is() {
    let mut pool = pool_with_chat(Some(policy())).await;
    let bound = pool.truth();
    let dry = How {
        dry_run: true,
        ..How::default()
    };
    let what = Release::Demand(demand_id("chat"));
    let shown = pool.composer().release(what, ME, &dry).await.unwrap();
    let released = pool.release("chat").await.unwrap();
    nothing_was_done(&released);
    assert!(shown.plan.steps.is_empty(), "{shown:?}");
    assert!(shown.advice[0].contains("4 expected by"), "{shown:?}");
    assert!(released.advice[0].contains("4 expected by"), "{released:?}");
    assert_eq!((pool.demands().await.len(), pool.kept_ahead().await), (0, 4));
    assert_eq!(pool.holders().await, holds(&[("nobody", 4)]));
    assert_eq!(pool.truth(), bound, "the rack was asked for nothing");
    // No plan touches it, a restart forgets nothing of it, and a demand of another size is served beside it.
    assert!(pool.composer().plan().await.unwrap().changes_nothing());
    pool.restart().await;
    pool.composed(gpus("small", H100, 2)).await;
    assert_eq!(pool.holders().await, holds(&[("nobody", 4), ("small", 2)]));

    let again = pool.compose(gpus("again", H100, 4)).await.unwrap();
    nothing_was_done(&again);
    assert_eq!(pool.holders().await, holds(&[("again", 4), ("small", 2)]));
    assert_eq!(pool.kept_ahead().await, 0);
    assert!(
        bound
            .iter()
            .all(|(gpu, port)| pool.truth().get(gpu) == Some(port))
    );
    pool.all_is_well().await;
}

/// What it held before is not undone under whoever has it now.
#[tokio::test(start_paused = true)]
async fn what_composed_it_can_not_be_undone_any_more() {
    let pool = pool_with_chat(Some(policy())).await;
    let composed = pool.composer().operations().await.unwrap().remove(0);
    pool.release("chat").await.unwrap();
    pool.compose(gpus("again", H100, 4)).await.unwrap();
    let how = How::default();
    let undone = pool.composer().undo_operation(&composed.id, ME, &how);
    let refused = undone.await.unwrap_err().to_string();
    assert!(refused.contains("since"), "{refused}");
    assert_eq!(pool.holders().await, holds(&[("again", 4)]));
    pool.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_needs_it_gets_it_reset() {
    let pool = pool_with_chat(Some(policy())).await;
    pool.release("chat").await.unwrap();
    // All there are: those that are kept are drained, unbound and reset in the same operation.
    let all = of_tenant(gpus("all", H100, 24), "other");
    let operation = pool.composed(all).await;
    assert_eq!(operation.state, OperationState::Completed);
    assert_eq!(pool.holders().await, holds(&[("all", 24)]));
    pool.all_is_well().await;
    pool.released("all").await;
    pool.all_is_free().await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_detaches_it_as_anything_else() {
    let pool = pool_with_chat(Some(policy())).await;
    pool.release("chat").await.unwrap();
    let composition = pool.composer().compositions().await.unwrap().remove(0);
    let what = Release::Composition(composition.id);
    let change = pool.composer().release(what, ME, &How::default()).await.unwrap();
    pool.done(&change).await;
    pool.all_is_free().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_without_a_reason_to() {
    // Nobody asked for it.
    let pool = pool_with_chat(None).await;
    pool.released("chat").await;
    pool.all_is_free().await;
    // More than may be kept.
    let few = Keep {
        most_gpus: 3,
        ..policy()
    };
    let pool = pool_with_chat(Some(few)).await;
    pool.released("chat").await;
    pool.all_is_free().await;
    // Somebody waits.
    let pool = pool_with_chat(Some(policy())).await;
    let waits = crate::stories::kit::spec(gpus("later", "l40s-48gb", 100));
    pool.composer().add_demand(waits).await.unwrap();
    pool.released("chat").await;
    assert_eq!(pool.kept_ahead().await, 0);
    // Of what is noted for a short time nothing is known.
    let pool = pool_of_today().await;
    pool.released("chat").await;
    pool.all_is_free().await;
}

async fn pool_of_today() -> Pool {
    let pool = pool(Some(policy())).await;
    pool.composed(gpus("chat", H100, 4)).await;
    pool.composer().note_wants(pool.clock.now()).await.unwrap();
    pool
}

/// A GPU that somebody uses is not idle.
#[tokio::test(start_paused = true)]
async fn what_is_in_use_is_not_kept_and_its_user_is_named() {
    let pool = pool_with_chat(Some(policy())).await;
    let gpu = pool.truth().keys().next().unwrap().clone();
    let gpu = pool.gpu_ix(&gpu);
    let computes = Job {
        pid: 4711,
        command: "train".into(),
    };
    let started = pool
        .emulation
        .with(|state, now| state.start_job(gpu, computes, now));
    started.unwrap();
    let change = pool.release("chat").await.unwrap();
    let ended = pool.ended(&change).await;
    assert_eq!(ended.state, OperationState::RolledBack);
    assert!(ended.error().unwrap().contains("4711"), "{:?}", ended.error());
    assert_eq!(pool.holders().await, holds(&[("chat", 4)]));
}

#[tokio::test(start_paused = true)]
async fn what_is_expected_no_longer_is_let_go_of_by_itself() {
    let pool = pool_with_chat(Some(policy())).await;
    pool.release("chat").await.unwrap();
    let clockwork = Clockwork::of(&pool);
    tokio::time::sleep(HOUR / 2).await;
    assert_eq!(pool.kept_ahead().await, 4, "its time has not come yet");
    tokio::time::sleep(72 * HOUR).await;
    clockwork.stop().await;
    assert_eq!(pool.kept_ahead().await, 0);
    pool.all_is_free().await;
    assert_eq!(pool.kinds().await[0], OperationKind::Keep);
}

#[tokio::test(start_paused = true)]
async fn a_manager_without_the_policy_lets_go_of_what_one_before_kept() {
    let mut pool = pool_with_chat(Some(policy())).await;
    pool.release("chat").await.unwrap();
    pool.options.keep = None;
    pool.restart().await;
    let clockwork = Clockwork::of(&pool);
    tokio::time::sleep(HOUR).await;
    clockwork.stop().await;
    pool.all_is_free().await;
}

/// What the shop wants is attached before it opens.
#[tokio::test(start_paused = true)]
async fn what_comes_every_morning_is_attached_ahead() {
    let attach = Keep {
        attach: true,
        ..policy()
    };
    let pool = pool(Some(attach)).await;
    pool.schedule(shop()).await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until("2026-03-03T03:00:00Z").await;
    assert_eq!(pool.holders().await, holds(&[]), "by night nothing is expected");
    pool.pass_until("2026-03-03T07:50:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("nobody", 4)]));
    assert_eq!(pool.kinds().await[0], OperationKind::Keep);
    let operations = pool.kinds().await.len();
    pool.pass_until("2026-03-03T08:01:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("shop", 4)]));
    assert_eq!(pool.kinds().await.len(), operations, "nothing had to be attached");
    clockwork.stop().await;
    assert!(pool.composer().demand(&demand_id("shop")).await.is_ok());
    pool.all_is_well().await;
}

/// What somebody else holds and what failed of it is no part of what is attached ahead.
#[tokio::test(start_paused = true)]
async fn nobody_is_given_another_gpu_for_what_is_attached_ahead() {
    let attach = Keep {
        attach: true,
        ..policy()
    };
    let pool = pool(Some(attach)).await;
    pool.composed(gpus("night", H100, 2)).await;
    let before = pool.truth();
    let failed = pool.gpu(before.keys().next().unwrap()).await;
    let xid = Failure {
        cause: Cause::Xid(79),
        says: String::new(),
        firmware: None,
        event: None,
    };
    pool.composer()
        .quarantine_gpu(&failed.id, &xid, ME)
        .await
        .unwrap();
    pool.schedule(shop()).await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until("2026-03-03T07:50:00Z").await;
    clockwork.stop().await;
    assert_eq!(pool.holders().await, holds(&[("night", 2), ("nobody", 4)]));
    assert!(
        before
            .iter()
            .all(|(gpu, port)| pool.truth().get(gpu) == Some(port))
    );
    pool.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_demand_held_at_several_hosts_stays_at_all_of_them_and_is_taken_up_together() {
    let keep = Keep {
        most_gpus: 16,
        ..policy()
    };
    let pool = pool(Some(keep)).await;
    pool.composed(gpus("wide", H100, 12)).await;
    let days_ago = pool.clock.now() - jiff::SignedDuration::from_hours(90);
    pool.composer().note_wants(days_ago).await.unwrap();
    let bound = pool.truth();
    assert!(pool.composer().compositions().await.unwrap().len() > 1);
    let released = pool.release("wide").await.unwrap();
    nothing_was_done(&released);
    assert!(
        released.advice[0].contains("stay attached to host-"),
        "{released:?}"
    );
    assert_eq!((pool.kept_ahead().await, pool.truth() == bound), (12, true));
    let again = pool.compose(gpus("again", H100, 12)).await.unwrap();
    nothing_was_done(&again);
    assert_eq!(pool.holders().await, holds(&[("again", 12)]));
    assert_eq!((pool.kept_ahead().await, pool.truth() == bound), (0, true));
    // It is a demand like any other: it is let go of as a whole, for whoever needs it.
    pool.release("again").await.unwrap();
    pool.composed(of_tenant(gpus("all", H100, 24), "other")).await;
    assert_eq!(pool.holders().await, holds(&[("all", 24)]));
    pool.all_is_well().await;
}
