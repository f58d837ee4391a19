//! A crash at every moment of every registered operation, with and without a failure besides, and crashes
//! again during recovery.

use crate::kit::{Kit, ended, submission_of, until};
use crate::rack::{Call, How, Rack};
use crate::registered::{Form, Managers, each_form, prepare, prepared};
use crate::runs::{Calm, Crash, Moments, Start, Told, Way, bindings, calm, crash, go, id_of, recover};
use poolwright_executor::{Operation, OperationKind, OperationState, SubmitError};
use poolwright_store::SqliteStore;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// What goes wrong besides the crash, so that the undo is crashed into as well.
type Trouble = fn(&Rack);

/// What goes wrong on the way there, and on the way back.
fn troubles(way: Way) -> Vec<Trouble> {
    let lost: Trouble = |rack| {
        for call in [Call::Bind, Call::Unbind] {
            rack.break_down(call, None, How::LostAfter, 1);
            rack.break_down(call, None, How::LostBefore, 1);
        }
    };
    let refused: Trouble = |rack| {
        rack.break_down(Call::Bind, Some("u2"), How::Refuse, 1);
    };
    let unseen: Trouble = |rack| {
        rack.break_down(Call::Verify, None, How::Lie, 100_000);
        rack.break_down(Call::Unbind, None, How::LostAfter, 1);
        rack.break_down(Call::Unbind, None, How::LostBefore, 1);
    };
    // What a host could not put back is heard just before the unbind: where it starts again after its drain, and in an
    // undo.
    let leaving: Trouble = |rack| {
        rack.start_again_after_drains(1);
        rack.leaves_once_started("ECC could not be set back to on: it hangs");
    };
    let leaving_in_an_undo: Trouble = |rack| {
        rack.start_again();
        rack.leaves_once_started("ECC could not be set back to on: it hangs");
    };
    match way {
        Way::Do => vec![lost, refused, unseen, leaving],
        Way::Undo => vec![lost, leaving_in_an_undo],
    }
}

async fn as_it_should_be(kit: &Kit, done: &Operation, calm: &Calm, way: Way) {
    let expected = match (done.state, way) {
        (OperationState::Completed, Way::Do) => calm.bindings_after(done),
        (OperationState::Cancelled, Way::Undo) => calm.after.clone(),
        (OperationState::RolledBack, Way::Do) => calm.before.clone(),
        (other, _) => panic!("ended as {other}: {:?}", done.error()),
    };
    assert_eq!(bindings(kit), expected);
    what_was_left_is_known(kit).await;
    kit.all_is_well().await;
}

/// What a host could not put back on a GPU is with the record of each that was unbound.
async fn what_was_left_is_known(kit: &Kit) {
    let moves = kit.rack.moves();
    for (_, unit) in moves.iter().filter(|(call, _)| *call == Call::Unbind) {
        let known: BTreeSet<_> = kit.gpu(unit).await.left.into_iter().collect();
        assert_eq!(known, kit.rack.left_of(unit), "{unit}: known, and left");
    }
}

async fn crash_at_each_moment(form: Form) -> usize {
    let mut crashes = 0;
    for way in form.ways().iter().copied() {
        let undisturbed = calm(form, way, |_| {}).await;
        crashes += crash_with(form, way, |_| {}, &undisturbed, &undisturbed).await;
        for trouble in troubles(way) {
            let troubled = calm(form, way, trouble).await;
            if troubled.was_hit {
                crashes += crash_with(form, way, trouble, &troubled, &undisturbed).await;
            }
        }
    }
    crashes
}

async fn crash_with(form: Form, way: Way, trouble: Trouble, troubled: &Calm, undisturbed: &Calm) -> usize {
    for n in troubled.moments.clone() {
        let (kit, plan) = prepared(form).await;
        let moments = Moments::new(Crash::At(n));
        let done = go(&kit, &moments, Start::Submit(form, &plan, way), trouble).await;
        let at = moments.seen().get(n).cloned();
        let _told = Told(format!("{form:?}, {way:?}, crash at {at:?}"));
        assert!(done.is_none(), "it did not crash");
        let done = recover(&kit, &id_of(&plan)).await;
        as_it_should_be(&kit, &done, undisturbed, way).await;
    }
    troubled.moments.len()
}

fn crash_at_all(managers: Managers) {
    let crashes = each_form(managers, crash_at_each_moment);
    for (form, crashes) in &crashes {
        // The smallest has its submission, and four moments of its one step.
        assert!(
            *crashes >= 5,
            "{form:?} has only {crashes} crashes: the hooks are gone"
        );
    }
    let all: usize = crashes.iter().map(|(_, crashes)| crashes).sum();
    eprintln!("{} forms of operations, {all} crashes", crashes.len());
}

/// Fault 1: killed at any moment, the manager carries the operation on at its next start.
#[test]
fn crash_at_every_moment_of_every_operation() {
    crash_at_all(Managers::Alone);
}

/// Fault 1: or another manager does, which can't know whether the first is gone.
/// Fault 8: one that stops at any moment of an operation and is taken for dead changes nothing any more.
#[test]
fn another_manager_takes_over_at_every_moment_of_every_operation() {
    crash_at_all(Managers::Several);
}

/// A crash at each moment, and then each recovery is killed a moment later in its course than the one before,
/// until one gets through. So there are at least three in a row from wherever the first one was, and each moment
/// is crashed at in a first, a second and a third recovery.
async fn crash_again(form: Form) -> (usize, usize) {
    let (mut cases, mut crashes) = (0, 0);
    for way in form.ways().iter().copied() {
        let undisturbed = calm(form, way, |_| {}).await;
        for n in undisturbed.moments.clone() {
            let _told = Told(format!("{form:?}, {way:?}, crash at {n}, and in each recovery"));
            let (kit, plan) = prepared(form).await;
            let start = Start::Submit(form, &plan, way);
            assert!(
                go(&kit, &Moments::new(Crash::At(n)), start, |_| {})
                    .await
                    .is_none()
            );
            let id = id_of(&plan);
            let mut recoveries = 0;
            let done = loop {
                let moments = Moments::new(Crash::At(recoveries));
                recoveries += 1;
                if let Some(done) = go(&kit, &moments, Start::Recover(&id), |_| {}).await {
                    break done;
                }
            };
            as_it_should_be(&kit, &done, &undisturbed, way).await;
            cases += 1;
            crashes += recoveries;
        }
    }
    (cases, crashes)
}

fn crash_again_at_all(managers: Managers) {
    let all = each_form(managers, crash_again);
    for (form, (cases, crashes)) in &all {
        eprintln!("{form:?}: {cases} crashes, then {crashes} in the recoveries");
        assert!(*crashes >= 2 * cases, "{form:?}: the recoveries did not crash");
    }
}

/// Fault 2: killed again and again while it recovers, wherever it had been killed.
#[test]
fn crash_again_at_every_moment_of_every_recovery() {
    crash_again_at_all(Managers::Alone);
}

/// Fault 2: each time by another manager, which stops as well.
#[test]
fn manager_after_manager_takes_over_and_stops_at_every_moment() {
    crash_again_at_all(Managers::Several);
}

/// Fault 2: a recovery that is asked for twice adopts once.
#[tokio::test(start_paused = true)]
async fn recovering_twice_is_as_good_as_once() {
    let kind = OperationKind::Compose;
    let (kit, plan) = prepared(Form::whole(kind)).await;
    let moments = Moments::new(Crash::At(9));
    let start = Start::Submit(Form::whole(kind), &plan, Way::Do);
    assert!(go(&kit, &moments, start, |_| {}).await.is_none());
    let id = id_of(&plan);
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
    let kind = OperationKind::Compose;
    let (kit, plan) = prepared(Form::whole(kind)).await;
    kit.rack.hide("u1");
    let first = kit.executor();
    let id = first.submit(submission_of(kind, plan)).await.unwrap();
    until(&first, &id, |operation| {
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

/// Fault 1: with the journal in a file, as a kill leaves it.
#[tokio::test]
async fn killed_at_every_point_with_the_journal_on_disk() {
    let form = Form::whole(OperationKind::Apply);
    let undisturbed = calm(form, Way::Do, |_| {}).await;
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
        let plan = prepare(&kit, form).await;
        let moments = Moments::new(Crash::At(n));
        let start = Start::Submit(form, &plan, Way::Do);
        if go(&kit, &moments, start, |_| {}).await.is_some() {
            assert!(n > 20, "only {n} points");
            break;
        }
        let _told = Told(format!("killed at {:?}", moments.seen().get(n)));
        let left = killed(dir.path());
        let kit = on_disk(left.path(), Arc::clone(&kit.rack));
        let done = recover(&kit, &id_of(&plan)).await;
        as_it_should_be(&kit, &done, &undisturbed, Way::Do).await;
    }
}

/// Fault 1: what was acknowledged is there, and holds its units.
#[tokio::test(start_paused = true)]
async fn an_operation_that_was_acknowledged_is_never_forgotten() {
    let kind = OperationKind::Compose;
    let (kit, plan) = prepared(Form::whole(kind)).await;
    let executor = kit.executor();
    let id = executor.submit(submission_of(kind, plan.clone())).await.unwrap();
    crash(executor).await;
    let executor = kit.executor();
    // Before recovery it is there to be read, and its units are held.
    assert!(executor.get(&id).await.unwrap().is_some());
    let mut rival = plan;
    rival.id = "rival".parse().unwrap();
    let error = executor.submit(submission_of(kind, rival)).await.unwrap_err();
    assert!(matches!(error, SubmitError::Claimed { .. }), "{error}");
    executor.recover().await.unwrap();
    assert_eq!(ended(&executor, &id).await.state, OperationState::Completed);
}
