//! A host that is closed while something is on its way there: a plan that was made before, a repair, an exchange, a move,
//! an undo.

use crate::stories::calendar::Clockwork;
use crate::stories::closing::{H100, closes};
use crate::stories::kit::{FOREVER, ME, Pool, gpus};
use crate::stories::managers::two;
use poolwright_executor::OperationKind;
use poolwright_model::id::GpuId;
use poolwright_service::{ErrorCode, How, OperationState};
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn a_plan_that_was_made_before_it_was_closed_is_refused_and_moves_nothing() {
    let pool = Pool::of("demo").await;
    let first = pool.first_host().await;
    pool.composer()
        .add_demand(crate::stories::kit::spec(gpus("chat", H100, 2)))
        .await
        .unwrap();
    let plan = pool.composer().plan().await.unwrap();
    let goes_to = plan.composes[0].host.clone();
    assert_eq!(goes_to, first);
    pool.close(&goes_to, &closes(None, None)).await.unwrap();
    let how = How::default();
    let apply = || {
        pool.composer()
            .apply(plan.clone(), OperationKind::Apply, ME, &how)
    };
    let refused = apply().await.unwrap_err();
    assert!(
        matches!(refused.code, ErrorCode::Conflict | ErrorCode::Stale),
        "{refused}"
    );
    assert!(refused.message.contains(goes_to.as_str()), "{refused}");
    assert!(pool.truth().is_empty());
    pool.composer().open_host(&goes_to, ME).await.unwrap();
    let change = apply().await.unwrap();
    pool.done(&change).await;
    assert_eq!(pool.hosts_of("chat").await, [goes_to].into());
    pool.all_is_well().await;
}

/// One manager has planned and checked the cordons, and is about to commit; the other then closes the host.
#[tokio::test(start_paused = true)]
async fn one_that_another_manager_closes_before_the_commit_is_given_nothing() {
    let (pool, a, b) = two("demo").await;
    let snapshot = b.composer.snapshot().await.unwrap();
    let host = snapshot.topology.hosts[0].id.clone();
    let gpu: [GpuId; 1] = [snapshot.topology.gpus[0].id.clone()];
    a.gate.stop_before("commit");
    let attaching = tokio::spawn({
        let (composer, gpu, host) = (a.composer.clone(), gpu.clone(), host.clone());
        async move { composer.attach(&gpu, &host, ME, &How::default()).await }
    });
    a.gate.is_stopped().await;
    b.composer
        .close_host(&host, &closes(None, None), ME)
        .await
        .unwrap();
    a.gate.go_on();
    match attaching.await.unwrap() {
        Err(refused) => assert_eq!(refused.code, ErrorCode::Stale, "{refused}"),
        Ok(change) => {
            let id = change.operation.unwrap().id;
            let ended = b.composer.wait(&id, FOREVER).await.unwrap();
            panic!("it was given to a closed host: {:?}", ended.state);
        }
    }
    assert!(pool.truth().is_empty());
    b.composer.open_host(&host, ME).await.unwrap();
    let change = a.composer.attach(&gpu, &host, ME, &How::default()).await.unwrap();
    let ended = a
        .composer
        .wait(&change.operation.unwrap().id, FOREVER)
        .await
        .unwrap();
    assert_eq!(ended.state, OperationState::Completed);
}

/// Lost GPUs of a closed host are bound again once it is open.
#[tokio::test(start_paused = true)]
async fn a_repair_waits_until_it_is_open() {
    let (pool, clockwork) = crate::stories::repairing::repairing().await;
    pool.composed(gpus("chat", H100, 2)).await;
    let truth = pool.truth();
    let host = pool.hosts_of("chat").await.pop_first().unwrap();
    pool.close(&host, &closes(None, None)).await.unwrap();
    pool.unbind_by_others(truth.keys().next().unwrap());
    let lost = async || !pool.composer().drift().await.unwrap().is_empty();
    pool.until("it is told that it is lost", lost).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(pool.truth().len(), 1, "nothing is bound at a closed host");
    pool.composer().open_host(&host, ME).await.unwrap();
    pool.until("it is bound again", async || pool.truth() == truth)
        .await;
    pool.quiet().await;
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_failed_there_is_exchanged_elsewhere_or_once_it_is_open() {
    let pool = Pool::of("demo").await;
    let clockwork = Clockwork::of(&pool);
    pool.composed(gpus("two", H100, 2)).await;
    let before = pool.truth();
    let gpu = pool.gpu(before.keys().next().unwrap()).await;
    let host = pool.hosts_of("two").await.pop_first().unwrap();
    pool.close_all(&closes(None, None)).await;
    pool.fails(&gpu.id).await;
    let plan = pool.composer().plan().await.unwrap();
    assert!(plan.composes.is_empty(), "{plan:?}");
    assert!(plan.releases.is_empty(), "nor is it taken away: {plan:?}");
    assert_eq!(pool.truth(), before);
    pool.composer().open_host(&host, ME).await.unwrap();
    let plan = pool.composer().plan().await.unwrap();
    assert!(plan.composes.iter().all(|c| c.host == host), "{plan:?}");
    pool.applied(plan).await;
    assert_eq!(pool.truth().len(), 2);
    assert_ne!(pool.truth(), before);
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_moved_to_it_and_what_it_has_may_be_moved_away() {
    let pool = Pool::of("demo").await;
    let [from, to] = [pool.host_id("host-1").await, pool.host_id("host-2").await];
    let gpu = pool.gpu_ids(&["box-1/gpu-1"]).await;
    let change = pool
        .composer()
        .attach(&gpu, &from, ME, &How::default())
        .await
        .unwrap();
    pool.done(&change).await;
    let before = pool.truth();
    pool.close(&to, &closes(None, None)).await.unwrap();
    let how = How::default();
    let moved = || pool.composer().move_to(&gpu, &to, ME, &how);
    let refused = moved().await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict, "{refused}");
    assert!(refused.message.contains("new fans"), "{refused}");
    assert_eq!(pool.truth(), before, "it was not taken away first");
    pool.close(&from, &closes(None, None)).await.unwrap();
    pool.composer().open_host(&to, ME).await.unwrap();
    let change = moved().await.unwrap();
    pool.done(&change).await;
    assert_ne!(pool.truth(), before);
    pool.all_is_well().await;
}

/// An undo would attach GPUs again, which a closed host does not allow.
#[tokio::test(start_paused = true)]
async fn an_undo_does_not_give_it_back_what_it_had() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", H100, 2)).await;
    let bound = pool.truth();
    let host = pool.hosts_of("chat").await.pop_first().unwrap();
    let released = pool.released("chat").await;
    pool.close(&host, &closes(None, None)).await.unwrap();
    let how = How::default();
    let undo = || pool.composer().undo_operation(&released.id, ME, &how);
    let refused = undo().await.unwrap_err();
    assert!(refused.message.contains("new fans"), "{refused}");
    pool.all_is_free().await;
    pool.composer().open_host(&host, ME).await.unwrap();
    let change = undo().await.unwrap();
    pool.done(&change).await;
    assert_eq!(pool.truth(), bound);
    // An undo that only detaches is allowed at a closed host.
    pool.close(&host, &closes(None, None)).await.unwrap();
    let undone = change.operation.unwrap().id;
    let back = pool.composer().undo_operation(&undone, ME, &how).await.unwrap();
    pool.done(&back).await;
    pool.all_is_free().await;
}
