//! Who has what: one operation a unit, one operation a key.

use crate::disk::Disk;
use crate::kit::{Kit, ended, is_claimed, key, run, submission, until};
use crate::plans::{Draft, composition};
use crate::rack::{Call, Rack};
use poolwright_executor::{OperationState, SubmitError};
use poolwright_store::SqliteStore;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Fault 10: one gets it, and is named to the others.
#[tokio::test(start_paused = true)]
async fn of_many_who_want_one_gpu_exactly_one_gets_it() {
    let kit = Kit::new();
    let executor = Arc::new(kit.executor());
    let rivals: Vec<_> = (0..64)
        .map(|n| {
            let executor = Arc::clone(&executor);
            tokio::spawn(async move {
                let host = format!("h{n}");
                let id = format!("c{n}");
                let wanted = composition(&id, "red", &host, &["u1"]);
                let plan = Draft::new(&format!("plan-{n}")).compose(wanted).plan();
                executor.submit(submission(plan)).await
            })
        })
        .collect();
    let (mut winners, mut losers) = (Vec::new(), Vec::new());
    for rival in rivals {
        match rival.await.unwrap() {
            Ok(id) => winners.push(id),
            Err(error) => losers.push(error),
        }
    }
    assert_eq!(winners.len(), 1);
    for error in losers {
        assert!(is_claimed(&error), "{error}");
        assert!(error.to_string().contains(winners[0].as_str()), "{error}");
    }
    let done = ended(&executor, &winners[0]).await;
    assert_eq!(done.state, OperationState::Completed);
    assert_eq!(kit.compositions().await.len(), 1, "no loser is half applied");
    kit.all_is_well().await;
}

/// With threads and a disk, so that all of them look before the first has committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_who_release_one_gpu_at_once_exactly_one_does() {
    let dir = tempfile::tempdir().unwrap();
    let mut kit = Kit::with(Rack::without_latency());
    kit.store = Arc::new(SqliteStore::open(dir.path()).unwrap());
    let composed = || composition("a", "red", "h1", &["u1"]);
    kit.given(Draft::new("before").compose(composed()).plan()).await;
    let executor = Arc::new(kit.executor());
    let rivals: Vec<_> = (0..32)
        .map(|n| {
            let executor = Arc::clone(&executor);
            let plan = Draft::new(&format!("plan-{n}")).release(composed()).plan();
            tokio::spawn(async move { executor.submit(submission(plan)).await })
        })
        .collect();
    let mut winners = Vec::new();
    for rival in rivals {
        winners.extend(rival.await.unwrap());
    }
    assert_eq!(winners.len(), 1, "{winners:?}");
    let done = ended(&executor, &winners[0]).await;
    assert_eq!(done.state, OperationState::Completed);
    kit.all_is_well().await;
}

/// Fault 11: the same key, the same operation.
#[tokio::test(start_paused = true)]
async fn the_same_key_is_the_same_operation() {
    let kit = Kit::new();
    let executor = kit.executor();
    let keyed = |plan: &str| {
        let wanted = composition("a", "red", "h1", &["u1"]);
        let mut keyed = submission(Draft::new(plan).compose(wanted).plan());
        keyed.key = key("request 17", "attach u1");
        keyed
    };
    let first = executor.submit(keyed("p1")).await.unwrap();
    let while_it_runs = executor.submit(keyed("p2")).await.unwrap();
    assert_eq!(first, while_it_runs);
    ended(&executor, &first).await;
    let after_its_end = executor.submit(keyed("p3")).await.unwrap();
    assert_eq!(first, after_its_end);
    drop(executor);
    let after_a_restart = kit.executor().submit(keyed("p4")).await.unwrap();
    assert_eq!(first, after_a_restart);
    assert_eq!(kit.executor().list(100_000).await.unwrap().len(), 1);
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_key_is_for_one_request() {
    let kit = Kit::new();
    let executor = kit.executor();
    let mut first = submission(
        Draft::new("p1")
            .compose(composition("a", "red", "h1", &["u1"]))
            .plan(),
    );
    first.key = key("k", "attach u1");
    let id = executor.submit(first).await.unwrap();
    ended(&executor, &id).await;
    let mut other = submission(
        Draft::new("p2")
            .compose(composition("b", "red", "h2", &["u2"]))
            .plan(),
    );
    other.key = key("k", "attach u2");
    let error = executor.submit(other).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("the key \"k\" was used for another request before: attach u1 (operation {id})")
    );
    assert!(kit.rack.ports_of("u2").is_empty());
    kit.all_is_well().await;
}

/// The store commits, and says that it did not: the operation is found, and nobody begins it twice.
/// Fault 57: a commit whose answer was lost is found.
#[tokio::test(start_paused = true)]
async fn a_beginning_whose_answer_was_lost_is_found() {
    for silent_for in [0, 30_000] {
        let mut kit = Kit::new();
        let disk = Disk::new();
        kit.store = Arc::new(disk.clone());
        let executor = kit.executor();
        let wanted = || {
            submission(
                Draft::new("p")
                    .compose(composition("a", "red", "h1", &["u1"]))
                    .plan(),
            )
        };
        disk.lie_once.store(true, Ordering::SeqCst);
        disk.silent_for(silent_for);
        let id = match executor.submit(wanted()).await {
            Ok(id) => id,
            Err(SubmitError::Unknown { operation, .. }) if silent_for > 0 => operation,
            Err(error) => panic!("{error}"),
        };
        tokio::time::sleep(std::time::Duration::from_secs(120)).await;
        let done = ended(&executor, &id).await;
        assert_eq!(done.state, OperationState::Completed);
        assert_eq!(kit.rack.times_asked(Call::Bind, "u1"), 1);
        kit.all_is_well().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_journal_line_that_was_committed_and_said_not_to_be_is_our_own() {
    for lie_after in 0.. {
        let mut kit = Kit::new();
        let disk = Disk::new();
        disk.lie_after.store(lie_after, Ordering::SeqCst);
        kit.store = Arc::new(disk.clone());
        let wanted = composition("a", "red", "h1", &["u1", "u2"]);
        let done = crate::kit::run(&kit.executor(), Draft::new("p").compose(wanted).plan()).await;
        assert_eq!(
            done.state,
            OperationState::Completed,
            "commit {lie_after}: {:?}",
            done.error()
        );
        kit.all_is_well().await;
        if disk.commits.load(Ordering::SeqCst) <= lie_after {
            assert!(lie_after > 4, "only {lie_after} commits");
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_with_one_key_at_the_same_time_are_one() {
    let kit = Kit::new();
    let executor = Arc::new(kit.executor());
    let both = [1, 2].map(|n| {
        let executor = Arc::clone(&executor);
        tokio::spawn(async move {
            let wanted = composition("a", "red", "h1", &["u1"]);
            let mut keyed = submission(Draft::new(&format!("p{n}")).compose(wanted).plan());
            keyed.key = key("once", "attach u1");
            executor.submit(keyed).await.unwrap()
        })
    });
    let mut ids = Vec::new();
    for one in both {
        ids.push(one.await.unwrap());
    }
    assert_eq!(ids[0], ids[1]);
    ended(&executor, &ids[0]).await;
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_attached_is_not_attached_again() {
    let kit = Kit::new();
    kit.given(
        Draft::new("p1")
            .compose(composition("a", "red", "h1", &["u1"]))
            .plan(),
    )
    .await;
    let again = Draft::new("p2")
        .compose(composition("b", "red", "h2", &["u1"]))
        .plan();
    let error = kit.executor().submit(submission(again)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "u1 is attached, so it can't be bound: make a new plan"
    );
}

#[tokio::test(start_paused = true)]
async fn a_plan_over_compositions_that_changed_is_refused() {
    let kit = Kit::new();
    let a = || composition("a", "red", "h1", &["u1"]);
    kit.given(Draft::new("p1").compose(a()).plan()).await;
    kit.given(Draft::new("p2").release(a()).plan()).await;
    let executor = kit.executor();
    let twice = Draft::new("p3").release(a()).plan();
    let error = executor.submit(submission(twice)).await.unwrap_err();
    assert!(
        matches!(error, SubmitError::GpuState { .. } | SubmitError::Stale { .. }),
        "{error}"
    );

    kit.given(Draft::new("p4").compose(a()).plan()).await;
    let same_name = Draft::new("p5")
        .compose(composition("a", "red", "h2", &["u2"]))
        .plan();
    let error = executor.submit(submission(same_name)).await.unwrap_err();
    assert!(
        error.to_string().contains("there is one of this name already"),
        "{error}"
    );
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_makes_no_sense_is_refused_and_says_why() {
    let kit = Kit::new();
    let mut plan = Draft::new("p")
        .compose(composition("a", "red", "h1", &["u1"]))
        .plan();
    plan.steps[0].after = vec![2];
    let error = kit.executor().submit(submission(plan)).await.unwrap_err();
    assert!(error.to_string().contains("step 0 comes after step 2"), "{error}");
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_plan_is_done_at_once() {
    let kit = Kit::new();
    let done = run(&kit.executor(), Draft::new("nothing").plan()).await;
    assert_eq!(done.state, OperationState::Completed);
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn two_operations_may_change_one_composition_with_different_units() {
    let mut kit = Kit::new();
    let disk = Disk::new();
    kit.store = Arc::new(disk.clone());
    let with = |units: &[&str]| composition("a", "red", "h1", units);
    kit.given(Draft::new("before").compose(with(&["u1"])).plan())
        .await;
    let executor = kit.executor();
    let mut ids = Vec::new();
    for unit in ["u2", "u3"] {
        kit.rack.hide(unit);
        let plan = Draft::new(unit).keep("a").compose(with(&[unit])).plan();
        ids.push(executor.submit(submission(plan)).await.unwrap());
    }
    for id in &ids {
        until(&executor, id, |operation| {
            operation.waits().iter().any(|wait| wait.contains("to see"))
        })
        .await;
    }
    // Both are about to end, and read the composition before either writes it.
    disk.slow_ms.store(1500, Ordering::SeqCst);
    kit.rack.unhide_all();
    for id in &ids {
        assert_eq!(ended(&executor, id).await.state, OperationState::Completed);
    }
    assert_eq!(kit.compositions().await["a"].composition.gpu_count(), 3);
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn every_call_can_be_made_from_a_task() {
    let executor = Arc::new(Kit::new().executor());
    let calls = async move {
        let id = executor
            .submit(submission(Draft::new("nothing").plan()))
            .await
            .unwrap();
        executor.wait(&id, crate::kit::FOREVER).await.unwrap();
        executor.cancel(&id, "me", "too late").await.unwrap_err();
        let wish = poolwright_executor::Resolve {
            resolution: poolwright_executor::Resolution::Retry,
            by: "me".to_owned(),
            reason: "none".to_owned(),
        };
        executor.resolve(&id, wish).await.unwrap_err();
        executor.list(100_000).await.unwrap();
        executor.claims().await.unwrap();
        executor.recover().await.unwrap();
        executor.shutdown(crate::kit::FOREVER).await;
    };
    tokio::spawn(calls).await.unwrap();
}
