//! What somebody stops, and lets go on.

use crate::stories::calendar::*;
use crate::stories::kit::{ME, Pool, demand_id, gpus, spec};
use poolwright_emulator::Rack;
use poolwright_model::id::ControlEndpointId;
use poolwright_planner::Plan;
use poolwright_service::{CheckResult, ErrorCode, How, OperationState, Paused};
use poolwright_store::SqliteStore;
use std::sync::Arc;
use std::time::Duration;

impl Pool {
    async fn pause(&self, what: &Paused) {
        self.composer()
            .pause(what.clone(), ME, "the rack is moved")
            .await
            .unwrap();
    }

    async fn resume(&self, what: &Paused) {
        self.composer().resume(what, ME).await.unwrap();
    }

    /// Binds and unbinds that the rack has done so far.
    fn moves(&self) -> u64 {
        let tally = self.emulation.with(|state, _| state.tally());
        tally.binds + tally.unbinds
    }

    /// Waits, in small steps, until so many were done.
    async fn until_moved(&self, moves: u64) {
        for _ in 0..10_000 {
            if self.moves() >= moves {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("only {} moves", self.moves());
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_stops_what_has_not_begun_and_outlives_a_restart() {
    let mut pool = Pool::bare(
        Rack::builtin("demo").unwrap(),
        Arc::new(SqliteStore::in_memory().unwrap()),
    );
    // So that most of it stands in a queue: what has its turn there is looked at once more.
    pool.options.execute.per_endpoint = 2;
    pool.open().await;
    pool.add_all_endpoints().await;
    let change = pool.compose(gpus("chat", "h100-pcie-80gb", 16)).await.unwrap();
    let id = change.operation.as_ref().unwrap().id.clone();
    pool.until_moved(2).await;
    pool.pause(&Paused::All).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let then = pool.moves();
    assert!(then < 16, "{then}");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(pool.moves(), then, "nothing was sent any more");
    let waits = pool.composer().operation(&id).await.unwrap().waits().join("; ");
    for word in [
        "everything is paused by tester",
        "the rack is moved",
        "resume --all",
    ] {
        assert!(waits.contains(word), "{word}: {waits}");
    }

    pool.restart().await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(pool.moves(), then, "nor after a restart");
    let operation = pool.composer().operation(&id).await.unwrap();
    assert!(!operation.state.has_ended());
    assert!(
        operation.waits().join("; ").contains("paused by tester"),
        "{:?}",
        operation.waits()
    );

    // Who asks for more is told why not; what would be done may be seen.
    let refused = pool.compose(gpus("more", "l40s-48gb", 1)).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict);
    assert!(refused.message.contains("the rack is moved"), "{refused}");
    assert!(refused.hint.unwrap().contains("poolwright resume --all"));
    assert_eq!(pool.demands().await, ["chat"], "it is not kept");
    let dry = How {
        dry_run: true,
        ..How::default()
    };
    let more = spec(gpus("more", "l40s-48gb", 1));
    let shown = pool.composer().compose(more, ME, &dry).await.unwrap();
    assert!(!shown.plan.steps.is_empty());
    let doctor = pool.composer().doctor().await.unwrap();
    let pauses = doctor.iter().find(|check| check.name == "pauses").unwrap();
    assert_eq!(pauses.result, CheckResult::Warning, "{}", pauses.message);

    pool.resume(&Paused::All).await;
    pool.done(&change).await;
    assert_eq!(pool.truth().len(), 16);
    pool.all_is_well().await;
    let again = pool.composer().resume(&Paused::All, ME).await.unwrap_err();
    assert_eq!(again.code, ErrorCode::NotFound);
}

#[tokio::test(start_paused = true)]
async fn what_is_to_be_undone_waits_too() {
    let pool = Pool::of("demo").await;
    let change = pool.compose(gpus("chat", "h100-pcie-80gb", 8)).await.unwrap();
    let id = change.operation.as_ref().unwrap().id.clone();
    pool.until_moved(2).await;
    pool.pause(&Paused::All).await;
    pool.composer().cancel(&id, ME, "not now").await.unwrap();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let then = pool.moves();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(pool.moves(), then);
    assert_eq!(
        pool.composer().operation(&id).await.unwrap().state,
        OperationState::Unwinding
    );
    pool.resume(&Paused::All).await;
    assert_eq!(pool.ended(&change).await.state, OperationState::Cancelled);
    pool.all_is_free().await;
}

#[tokio::test(start_paused = true)]
async fn automation_stops_and_operators_go_on() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
    pool.schedule(night()).await;
    let clockwork = Clockwork::of(&pool);
    pool.pause(&Paused::Automation).await;
    pool.pass_until(NIGHT).await;
    assert_eq!(pool.holders().await, holds(&[("chat", 20)]), "nothing ran");
    let status = pool.night().await;
    let trouble = status.trouble.unwrap();
    assert!(
        trouble.reason.contains("automation is paused by tester"),
        "{trouble}"
    );
    let why = pool.composer().why(&demand_id("training")).await.unwrap();
    assert!(why.because.join("; ").contains("automation is paused"), "{why:?}");
    pool.composed(gpus("search", "l40s-48gb", 2)).await;

    pool.resume(&Paused::Automation).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    pool.quiet().await;
    assert_eq!(pool.holders().await, holds(&[("search", 2), ("training", 24)]));
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_is_paused_by_itself() {
    let pool = Pool::of("demo").await;
    let held = pool.composed(gpus("chat", "h100-pcie-80gb", 1)).await;
    let endpoint = held.steps[0].step.target.unit_at.endpoint.clone();
    let what = Paused::Endpoint(endpoint.clone());
    pool.pause(&what).await;
    let refused = pool.release("chat").await.unwrap_err();
    assert!(
        refused
            .message
            .contains(&format!("endpoint {endpoint} is paused")),
        "{refused}"
    );
    pool.resume(&what).await;
    pool.released("chat").await;

    // The others go on meanwhile.
    pool.pause(&what).await;
    let snapshot = pool.snapshot().await;
    let mut elsewhere = snapshot.topology.gpus.iter();
    let elsewhere = elsewhere.find(|gpu| gpu.control.iter().all(|at| at.endpoint != endpoint));
    let gpu = elsewhere.unwrap().id.clone();
    let host = pool.host_id("host-1").await;
    let manager = pool.composer();
    let change = manager.attach(&[gpu], &host, ME, &How::default()).await.unwrap();
    pool.done(&change).await;

    let nobody = Paused::Endpoint(ControlEndpointId::from_lossy("nobody"));
    let unknown = pool.composer().pause(nobody, ME, "").await.unwrap_err();
    assert_eq!(unknown.code, ErrorCode::NotFound);
    let twice = pool
        .composer()
        .pause(what.clone(), "another", "late")
        .await
        .unwrap();
    assert_eq!((twice.len(), twice[0].by.as_str()), (1, ME), "it stays as it was");
}

/// One box is paused, the other has what is wanted: nobody has to name it.
#[tokio::test(start_paused = true)]
async fn what_is_paused_is_not_chosen_while_there_is_enough_elsewhere() {
    let kind = "h100-pcie-80gb";
    let pool = Pool::of("demo").await;
    let boxes = pool
        .snapshot()
        .await
        .topology
        .gpus
        .iter()
        .filter_map(|gpu| {
            let at = gpu
                .control
                .first()
                .filter(|_| gpu.profile.as_deref() == Some(kind));
            at.map(|at| at.endpoint.clone())
        })
        .collect::<Vec<_>>();
    let first = pool.composed(gpus("one", kind, 1)).await;
    let chosen = first.steps[0].step.target.unit_at.endpoint.clone();
    let elsewhere = boxes.iter().filter(|endpoint| **endpoint != chosen).count();
    let here = boxes.len() - elsewhere;
    assert!(here > 1 && elsewhere > 1, "two boxes have the kind: {boxes:?}");
    let what = Paused::Endpoint(chosen.clone());
    pool.pause(&what).await;

    let dry = How {
        dry_run: true,
        ..How::default()
    };
    let second = spec(gpus("two", kind, 1));
    let tried = pool.composer().compose(second.clone(), ME, &dry).await.unwrap();
    let second = pool.composed(gpus("two", kind, 1)).await;
    pool.composer()
        .add_demand(spec(gpus("three", kind, 1)))
        .await
        .unwrap();
    let planned = pool.composer().plan().await.unwrap();
    let chosen_by = |plan: &Plan| plan.steps[0].target.unit_at.endpoint.clone();
    for endpoint in [
        chosen_by(&tried.plan),
        chosen_by(&planned),
        second.steps[0].step.target.unit_at.endpoint.clone(),
    ] {
        assert_ne!(endpoint, chosen);
    }
    pool.applied(planned).await;

    // Where only the paused box is left, that is what stands in the way, and not that there is nothing.
    let rest = gpus("rest", kind, u32::try_from(elsewhere).unwrap());
    let refused = pool.compose(rest).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict, "{refused}");
    assert!(refused.hint.unwrap().contains(&what.resume()));
}

/// A schedule's pause is a pause as any other: listed, with who did it and why, and told by `doctor`.
#[tokio::test(start_paused = true)]
async fn a_schedule_that_is_paused_is_among_the_pauses() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 8)).await;
    pool.schedule(night()).await;
    let what = Paused::Schedule(night_id());
    let nobody = Paused::Schedule("nobody".parse().unwrap());
    let unknown = pool.composer().pause(nobody, ME, "").await.unwrap_err();
    assert_eq!(unknown.code, ErrorCode::NotFound);

    pool.pause(&what).await;
    let status = pool.composer().pause_schedule(&night_id(), true).await.unwrap();
    assert!(status.schedule.spec.paused);
    let pauses = pool.composer().all_pauses().await.unwrap();
    let [pause] = pauses.as_slice() else {
        panic!("{pauses:?}")
    };
    assert_eq!(
        (&pause.what, pause.by.as_str(), pause.reason.as_str()),
        (&what, ME, "the rack is moved")
    );
    let checks = pool.composer().doctor().await.unwrap();
    let check = checks.iter().find(|check| check.name == "pauses").unwrap();
    assert_eq!(check.result, CheckResult::Warning);
    assert!(
        check.message.contains("schedule night is paused by tester"),
        "{check:?}"
    );
    assert!(
        check
            .hint
            .as_ref()
            .unwrap()
            .contains("poolwright resume --schedule night"),
        "{check:?}"
    );
    // It holds nothing else.
    pool.composed(gpus("more", "h100-pcie-80gb", 1)).await;

    pool.resume(&what).await;
    assert_eq!(pool.composer().all_pauses().await.unwrap(), []);
    let again = pool.composer().resume(&what, ME).await.unwrap_err();
    assert_eq!(again.code, ErrorCode::NotFound);
    assert!(!pool.composer().schedules().await.unwrap()[0].schedule.spec.paused);
}
