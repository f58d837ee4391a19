//! A demand's record goes with its last composition, and not before: every GPU that is held has a listed owner.

use crate::stories::calendar::*;
use crate::stories::kit::{ME, Pool, demand_id, gpus, spec};
use crate::stories::managers::two;
use crate::stories::queueing::job;
use poolwright_service::demand::DemandRecord;
use poolwright_service::{CheckResult, ErrorCode, How, OperationKind, Release};
use poolwright_store::{Batch, Stored};
use serde_json::json;
use std::time::Duration;

impl Pool {
    async fn removed(&self, demand: &str) -> Result<(), poolwright_service::ServiceError> {
        self.composer().remove_demand(&demand_id(demand)).await
    }

    async fn is_listed(&self) {
        let orphaned = self.composer().orphaned_compositions().await.unwrap();
        assert!(orphaned.is_empty(), "{orphaned:?}");
    }

    /// The check `owners` of `doctor`.
    async fn owners(&self) -> (CheckResult, String, String) {
        let doctor = self.composer().doctor().await.unwrap();
        let owners = doctor.into_iter().find(|check| check.name == "owners").unwrap();
        (owners.result, owners.message, owners.hint.unwrap_or_default())
    }
}

/// Fault 73: another job is submitted, and then the first is done and deleted within milliseconds.
#[tokio::test(start_paused = true)]
async fn a_job_that_is_deleted_while_it_ends_is_deleted_when_its_gpus_are_released() {
    for pause in [0, 1, 5, 40] {
        let pool = Pool::of("demo").await;
        let clockwork = Clockwork::of(&pool);
        pool.submit(job("first", 20, json!({}))).await;
        pool.settles().await;
        assert_eq!(pool.holders().await, holds(&[("first", 20)]));
        pool.submit(job("second", 2, json!({}))).await;
        pool.is_done("first").await;
        tokio::time::sleep(Duration::from_millis(pause)).await;
        if let Err(refused) = pool.removed("first").await {
            let expected = [ErrorCode::Conflict, ErrorCode::NotFound];
            assert!(expected.contains(&refused.code), "after {pause} ms: {refused}");
        }
        pool.is_listed().await;
        pool.settles().await;
        assert_eq!(pool.holders().await, holds(&[("second", 2)]), "after {pause} ms");
        assert_eq!(pool.demands().await, ["second"]);
        clockwork.stop().await;
    }
}

/// Fault 73: before the release of its GPUs begins.
#[tokio::test(start_paused = true)]
async fn a_job_that_has_ended_is_not_deleted_while_it_holds_gpus() {
    let pool = Pool::of("demo").await;
    let clockwork = Clockwork::of(&pool);
    pool.submit(job("first", 4, json!({}))).await;
    pool.settles().await;
    clockwork.stop().await;
    pool.is_done("first").await;
    let refused = pool.removed("first").await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict, "{refused}");
    assert!(refused.hint.unwrap().contains("wait until it is gone"));
    assert_eq!(pool.demands().await, ["first"]);
    let clockwork = Clockwork::of(&pool);
    pool.settles().await;
    assert!(pool.demands().await.is_empty());
    pool.all_is_free().await;
    clockwork.stop().await;
}

/// Fault 73: a demand that is served, and one that just gets its GPUs.
#[tokio::test(start_paused = true)]
async fn a_demand_that_holds_gpus_or_is_getting_them_is_not_deleted() {
    let pool = Pool::of("demo").await;
    let manager = pool.composer();
    let waiting = spec(gpus("chat", "l40s-48gb", 2));
    manager.add_demand(waiting.clone()).await.unwrap();
    pool.removed("chat").await.unwrap();
    assert!(pool.demands().await.is_empty(), "it held nothing");

    manager.add_demand(waiting).await.unwrap();
    let plan = manager.plan().await.unwrap();
    let change = manager
        .apply(plan, OperationKind::Apply, ME, &How::default())
        .await
        .unwrap();
    let refused = pool.removed("chat").await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict, "{refused}");
    assert!(refused.message.contains("is composing demand chat"), "{refused}");
    pool.done(&change).await;
    let refused = pool.removed("chat").await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict, "{refused}");
    assert!(refused.message.contains("holds 2 GPUs on"), "{refused}");
    assert!(refused.hint.unwrap().contains("poolwright release chat"));
    pool.is_listed().await;
    pool.released("chat").await;
    assert!(pool.demands().await.is_empty());
    pool.all_is_free().await;
}

/// Fault 73: a schedule's demand is listed until its GPUs are released, or a new demand of its name takes them over.
#[tokio::test(start_paused = true)]
async fn a_demand_of_a_removed_schedule_can_be_released_or_taken_over() {
    let pool = Pool::of("demo").await;
    let manager = pool.composer();
    for taken_over in [false, true] {
        let mut now = night();
        now["window"] = json!({"opens": "0 0 * * *", "closes": "59 23 * * *"});
        now["suspends"] = json!([]);
        now["demands"] = json!([gpus("training", "h100-pcie-80gb", 4)]);
        let clockwork = Clockwork::of(&pool);
        assert!(pool.schedule(now).await.open);
        pool.until("it has its GPUs", async || {
            pool.holders().await == holds(&[("training", 4)])
        })
        .await;
        pool.quiet().await;
        clockwork.stop().await;
        manager.remove_schedule(&night_id()).await.unwrap();
        assert_eq!(pool.demands().await, ["training"]);
        pool.is_listed().await;
        if taken_over {
            let again = spec(gpus("training", "h100-pcie-80gb", 4));
            manager.add_demand(again).await.unwrap();
            assert!(manager.plan().await.unwrap().changes_nothing(), "it has its GPUs");
        }
        pool.released("training").await;
        assert!(pool.demands().await.is_empty());
        pool.all_is_free().await;
    }
}

/// Fault 74: as an earlier version left it.
#[tokio::test(start_paused = true)]
async fn a_composition_without_an_owner_is_reported_with_the_command_that_releases_it() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "l40s-48gb", 2)).await;
    assert_eq!(pool.owners().await.0, CheckResult::Ok);
    let mut batch = Batch::new();
    batch.delete(DemandRecord::KIND, "chat");
    pool.store.commit(batch).await.unwrap();
    let orphaned = pool.composer().orphaned_compositions().await.unwrap();
    let [orphan] = &orphaned[..] else {
        panic!("{orphaned:?}")
    };
    let (result, message, hint) = pool.owners().await;
    assert_eq!(result, CheckResult::Problem);
    assert!(
        message.contains("2 GPUs") && message.contains("demand chat"),
        "{message}"
    );
    let command = format!("poolwright release composition/{}", orphan.id);
    assert!(hint.contains(&command), "{hint}");

    let what = Release::Composition(orphan.id.clone());
    let change = pool.composer().release(what, ME, &How::default()).await.unwrap();
    pool.done(&change).await;
    assert_eq!(pool.owners().await.0, CheckResult::Ok);
    pool.all_is_free().await;
}

/// Fault 73: the manager that deletes a demand does not see yet the operation that another manager begins for it.
#[tokio::test(start_paused = true)]
async fn a_demand_that_is_deleted_and_served_at_once_is_one_or_the_other() {
    for first in [0, 1, 2, 3, 5, 8, 13] {
        let (pool, a, b) = two("demo").await;
        let waiting = spec(gpus("chat", "l40s-48gb", 2));
        a.composer.add_demand(waiting).await.unwrap();
        let plan = a.composer.plan().await.unwrap();
        let how = How::default();
        let remove = async {
            for _ in 0..first {
                tokio::task::yield_now().await;
            }
            b.composer.remove_demand(&demand_id("chat")).await
        };
        let apply = a.composer.apply(plan, OperationKind::Apply, ME, &how);
        let (applied, removed) = tokio::join!(apply, remove);
        pool.quiet().await;
        assert!(applied.is_ok() || removed.is_ok(), "{applied:?} {removed:?}");
        let orphaned = b.composer.orphaned_compositions().await.unwrap();
        assert!(
            orphaned.is_empty(),
            "{first}: {orphaned:?} {applied:?} {removed:?}"
        );
        let kept = b.composer.demands().await.unwrap();
        assert_eq!(kept.is_empty(), removed.is_ok(), "{first}");
        assert_eq!(pool.truth().is_empty(), kept.is_empty(), "{first}");
        a.composer.close().await;
        b.composer.close().await;
    }
}
