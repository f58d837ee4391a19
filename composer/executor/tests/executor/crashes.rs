//! A crash at every point of every scenario, with and without a failure, and crashes during recovery.

use crate::failures::{SCENARIOS, Scenario};
use crate::kit::{FOREVER, Kit, Moments, ended, submission};
use crate::rack::{Call, How, Rack};
use poolwright_executor::{Executor, Operation, OperationState, SubmitError};
use poolwright_model::id::OperationId;
use poolwright_store::SqliteStore;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// What goes wrong besides the crash, so that the undo is crashed into as well.
type Trouble = fn(&Rack);

const TROUBLES: [(&str, Trouble); 6] = [
    ("nothing else", |_| {}),
    ("the last bind is refused", |rack| {
        rack.break_down(Call::Bind, Some("u2"), How::Refuse, 1)
    }),
    ("no host sees a GPU", |rack| {
        rack.break_down(Call::Verify, None, How::Lie, 100_000)
    }),
    ("an unbind lies", |rack| {
        rack.break_down(Call::Unbind, None, How::Lie, 1)
    }),
    ("no host sees a GPU, and the undo gets no answers", |rack| {
        rack.break_down(Call::Verify, None, How::Lie, 100_000);
        rack.break_down(Call::Unbind, None, How::LostAfter, 1);
        rack.break_down(Call::Unbind, None, How::LostBefore, 1);
    }),
    ("answers get lost", |rack| {
        for call in [Call::Bind, Call::Unbind] {
            rack.break_down(call, None, How::LostAfter, 1);
            rack.break_down(call, None, How::LostBefore, 1);
        }
    }),
];

/// Gives tasks that were cut off the time to be gone.
async fn crash(executor: Executor) {
    drop(executor);
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// Runs until the end or until the crash at the n-th moment; `None` where it crashed.
async fn run_until(kit: &Kit, moments: &Arc<Moments>, start: Start<'_>) -> Option<Operation> {
    let executor = kit.executor_with(Arc::clone(moments) as _);
    let going = async {
        let id = match start {
            Start::Submit(scenario) => executor.submit(submission(scenario.plan())).await.unwrap(),
            Start::Recover(id) => {
                executor.recover().await.unwrap();
                id.clone()
            }
        };
        executor.wait(&id, FOREVER).await.unwrap()
    };
    let done = tokio::select! {
        biased;
        () = moments.crashed.notified() => None,
        done = going => done,
    };
    crash(executor).await;
    done
}

#[derive(Clone, Copy)]
enum Start<'a> {
    Submit(&'a Scenario),
    Recover(&'a OperationId),
}

async fn prepared(scenario: &Scenario, trouble: Trouble) -> Kit {
    let mut kit = Kit::new();
    // The host's patience is of no interest here.
    kit.options.verify_deadline = Duration::from_secs(3);
    scenario.prepare(&kit).await;
    trouble(&kit.rack);
    kit
}

/// The moments that an undisturbed run goes through.
async fn moments_of(scenario: &Scenario, trouble: Trouble) -> usize {
    let kit = prepared(scenario, trouble).await;
    let moments = Arc::new(Moments::default());
    run_until(&kit, &moments, Start::Submit(scenario)).await.unwrap();
    moments.seen().len()
}

async fn as_it_should_be(kit: &Kit, done: &Operation, ends: &[Vec<(String, Vec<String>)>; 2], case: &str) {
    let now: Vec<_> = kit.rack.bindings().into_iter().collect();
    match done.state {
        OperationState::RolledBack => assert_eq!(now, ends[0], "{case}"),
        OperationState::Completed => assert_eq!(now, ends[1], "{case}"),
        other => panic!("{case}: ended as {other}: {:?}", done.error()),
    }
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn crash_at_every_point() {
    let mut crashes = 0;
    for scenario in &SCENARIOS {
        let ends = scenario.before_and_after().await;
        for (trouble_name, trouble) in TROUBLES {
            for n in 0..moments_of(scenario, trouble).await {
                let kit = prepared(scenario, trouble).await;
                let moments = Arc::new(Moments::crash_at(n));
                let done = run_until(&kit, &moments, Start::Submit(scenario)).await;
                let point = moments.seen().get(n).cloned();
                let case = format!("{}, {trouble_name}, crash at {point:?}", scenario.name);
                assert!(done.is_none(), "{case}: it did not crash");
                crashes += 1;

                let id = submission(scenario.plan()).id;
                let done = run_until(&kit, &Arc::default(), Start::Recover(&id))
                    .await
                    .unwrap();
                as_it_should_be(&kit, &done, &ends, &case).await;
            }
        }
    }
    assert!(crashes > 300, "only {crashes} crashes: the hooks are gone");
}

#[tokio::test(start_paused = true)]
async fn crash_again_during_recovery() {
    for scenario in &SCENARIOS {
        let ends = scenario.before_and_after().await;
        for (trouble_name, trouble) in [TROUBLES[0], TROUBLES[2]] {
            for n in 0..moments_of(scenario, trouble).await {
                // Three crashes in a row: at the n-th moment, and then after each few moments more.
                for m in [0, 1, 3] {
                    let kit = prepared(scenario, trouble).await;
                    let case = format!(
                        "{}, {trouble_name}, crash at {n} and thrice after {m}",
                        scenario.name
                    );
                    let moments = Arc::new(Moments::crash_at(n));
                    assert!(
                        run_until(&kit, &moments, Start::Submit(scenario)).await.is_none(),
                        "{case}"
                    );
                    let id = submission(scenario.plan()).id;
                    for _ in 0..3 {
                        let moments = Arc::new(Moments::crash_at(m));
                        let _ = run_until(&kit, &moments, Start::Recover(&id)).await;
                    }
                    let done = run_until(&kit, &Arc::default(), Start::Recover(&id))
                        .await
                        .unwrap();
                    as_it_should_be(&kit, &done, &ends, &case).await;
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn recovering_twice_is_as_good_as_once() {
    let scenario = &SCENARIOS[0];
    let kit = prepared(scenario, TROUBLES[0].1).await;
    let moments = Arc::new(Moments::crash_at(9));
    assert!(run_until(&kit, &moments, Start::Submit(scenario)).await.is_none());
    let id = submission(scenario.plan()).id;
    let executor = kit.executor();
    assert_eq!(
        executor.recover().await.unwrap().adopted,
        std::slice::from_ref(&id)
    );
    assert!(
        executor.recover().await.unwrap().adopted.is_empty(),
        "it is adopted already"
    );
    assert_eq!(ended(&executor, &id).await.state, OperationState::Completed);
    assert!(executor.recover().await.unwrap().adopted.is_empty());
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn of_two_managers_on_one_store_the_slower_steps_back() {
    let scenario = &SCENARIOS[0];
    let kit = prepared(scenario, TROUBLES[0].1).await;
    kit.rack.hide("u1");
    let first = kit.executor();
    let id = first.submit(submission(scenario.plan())).await.unwrap();
    crate::kit::until(&first, &id, |operation| {
        operation.waits().iter().any(|wait| wait.contains("to see"))
    })
    .await;
    // The second one adopts it, as if the first were dead, and finishes it.
    let second = kit.executor();
    second.recover().await.unwrap();
    kit.rack.unhide_all();
    assert_eq!(ended(&second, &id).await.state, OperationState::Completed);
    let seen_by_first = ended(&first, &id).await;
    assert_eq!(seen_by_first.state, OperationState::Completed);
    kit.all_is_well().await;
}

/// What a kill -9 leaves behind: the files as they are.
fn killed(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
    }
    to
}

#[tokio::test]
async fn killed_at_every_point_with_the_journal_on_disk() {
    let scenario = &SCENARIOS[2];
    let ends = [
        vec![("u1".to_owned(), vec!["h1/p0".to_owned()])],
        vec![("u1".to_owned(), vec!["h2/p0".to_owned()])],
    ];
    let on_disk = |dir: &Path, rack: Arc<Rack>| {
        let mut kit = Kit::with(Rack::without_latency());
        kit.store = Arc::new(SqliteStore::open(dir).unwrap());
        kit.rack = rack;
        kit.options.first_pause = Duration::from_millis(1);
        kit.options.settle = Duration::from_millis(1);
        kit.options.late = Duration::from_millis(1);
        kit.options.act_deadline = Duration::from_millis(1);
        kit
    };
    for n in 0.. {
        let dir = tempfile::tempdir().unwrap();
        let kit = on_disk(dir.path(), Arc::new(Rack::without_latency()));
        scenario.prepare(&kit).await;
        let moments = Arc::new(Moments::crash_at(n));
        if run_until(&kit, &moments, Start::Submit(scenario)).await.is_some() {
            assert!(n > 20, "only {n} points");
            break;
        }
        let left = killed(dir.path());
        let kit = on_disk(left.path(), Arc::clone(&kit.rack));
        let id = submission(scenario.plan()).id;
        let done = run_until(&kit, &Arc::default(), Start::Recover(&id))
            .await
            .unwrap();
        as_it_should_be(
            &kit,
            &done,
            &ends,
            &format!("killed at {:?}", moments.seen().get(n)),
        )
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_was_acknowledged_is_never_forgotten() {
    let scenario = &SCENARIOS[0];
    let kit = prepared(scenario, TROUBLES[0].1).await;
    let executor = kit.executor();
    let id = executor.submit(submission(scenario.plan())).await.unwrap();
    crash(executor).await;
    let executor = kit.executor();
    // Before recovery it is there to be read, and its units are held.
    assert!(executor.get(&id).await.unwrap().is_some());
    let mut rival = scenario.plan();
    rival.id = "rival".parse().unwrap();
    let error = executor.submit(submission(rival)).await.unwrap_err();
    assert!(matches!(error, SubmitError::Claimed { .. }), "{error}");
    executor.recover().await.unwrap();
    assert_eq!(ended(&executor, &id).await.state, OperationState::Completed);
}
