//! Limits of uplinks, set by an operator: no request of any kind attaches more GPUs, and existing attachments stay.

use crate::stories::kit::{FOREVER, ME, Pool, gpus, spec};
use crate::stories::managers::{Manager, all_is_well, manager};
use poolwright_emulator::Rack;
use poolwright_executor::OperationKind;
use poolwright_model::id::{GpuId, HostId};
use poolwright_service::uplink::{NewUplink, UplinkStatus};
use poolwright_service::{Change, CheckResult, Composer, ErrorCode, How, OperationState, ServiceError};
use serde_json::{Value, json};

const H100: &str = "h100-pcie-80gb";

/// Two switches with four GPUs each, and a host of eight slots at the first.
const TWO_SWITCHES: &str = r#"
name = "uplinks"
style = "zones"

[[box]]
switches = 2
gpus = [{ kind = "h100-pcie-80gb", count = 8 }]

[[host]]
slots = 8
"#;

fn rack() -> Rack {
    Rack::from_toml("uplinks", TWO_SWITCHES).unwrap()
}

/// The uplinks of the switches, by their order.
async fn uplinks(composer: &Composer) -> Vec<UplinkStatus> {
    let all = composer.uplinks().await.unwrap();
    let behind: Vec<(u32, u32)> = all.iter().map(|status| (status.gpus, status.ports)).collect();
    assert_eq!(behind, [(4, 1), (4, 0)], "{all:#?}");
    all
}

async fn carried(composer: &Composer) -> Vec<u32> {
    uplinks(composer)
        .await
        .iter()
        .map(|status| status.carried)
        .collect()
}

async fn says(composer: &Composer, switch: usize, gpus: u32) -> UplinkStatus {
    let id = uplinks(composer).await[switch].id.clone();
    composer.set_uplink(&id, &NewUplink { gpus }, ME).await.unwrap()
}

/// GPUs at the second switch, and the host at the first.
async fn far(composer: &Composer) -> (Vec<GpuId>, HostId) {
    let all = uplinks(composer).await;
    let topology = &composer.snapshot().await.unwrap().topology;
    let second = topology
        .gpus
        .iter()
        .filter(|gpu| gpu.ports[0].switch.as_ref() == Some(&all[1].switch));
    let mut hosts = topology.hosts.iter();
    let first = hosts
        .find(|host| host.ports[0].switch.as_ref() == Some(&all[0].switch))
        .unwrap();
    (second.map(|gpu| gpu.id.clone()).collect(), first.id.clone())
}

fn tells(refused: &ServiceError, words: &[&str]) {
    let hint = refused.hint.clone().unwrap_or_default();
    let said = format!("{refused} {hint}");
    for word in words {
        assert!(said.contains(word), "{word}: {said}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_is_attached_across_than_was_said_and_whoever_asks_is_told() {
    let mut pool = Pool::with(rack()).await;
    let first = uplinks(pool.composer()).await[0].clone();
    assert_eq!((first.most, first.carried), (None, 0));
    let set = says(pool.composer(), 0, 2).await;
    assert_eq!((set.most, set.by.as_deref(), set.over()), (Some(2), Some(ME), 0));
    let id = set.id;

    let refused = pool.compose(gpus("wide", H100, 7)).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Unplaced);
    let would_be =
        format!("the uplinks of switch {id} may carry 2 GPUs and carry 0: with these it would be 3");
    tells(
        &refused,
        &[&would_be, &format!("poolwright uplink set {id} --gpus 3")],
    );

    pool.composed(gpus("wide", H100, 6)).await;
    assert_eq!(carried(pool.composer()).await, [2, 2]);
    // Two are left, at one switch: beside them there is room, and none across.
    let left = pool.snapshot().await;
    let left = left.topology.gpus.iter().filter(|gpu| gpu.host.is_none());
    let left: Vec<GpuId> = left.map(|gpu| gpu.id.clone()).collect();
    let there = pool.composer().compositions().await.unwrap()[0].host.clone();
    let attach = |gpus: Vec<GpuId>| {
        let (composer, there) = (pool.composer().clone(), there.clone());
        async move { composer.attach(&gpus, &there, ME, &How::default()).await }
    };
    let refused = attach(left.clone()).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict);
    tells(
        &refused,
        &[
            "may carry 2 GPUs and carry 2: with these it would be 4",
            "--gpus 4",
        ],
    );

    // Nothing is forgotten with the manager, and nothing pulled where less may be.
    pool.restart().await;
    let lowered = says(pool.composer(), 0, 1).await;
    assert_eq!((lowered.most, lowered.carried, lowered.over()), (Some(1), 2, 1));
    let checks = pool.composer().doctor().await.unwrap();
    let told = checks.iter().find(|check| check.name == "uplinks").unwrap();
    assert_eq!(told.result, CheckResult::Warning);
    assert!(
        told.message.contains("2 GPUs are attached across"),
        "{}",
        told.message
    );
    assert!(pool.composer().plan().await.unwrap().changes_nothing());
    pool.released("wide").await;
    assert_eq!(carried(pool.composer()).await, [0, 0]);
    pool.composed(gpus("less", H100, 5)).await;

    pool.composer().remove_uplink(&id, ME).await.unwrap();
    assert_eq!(uplinks(pool.composer()).await[0].most, None);
    pool.released("less").await;
    pool.composed(gpus("wide", H100, 8)).await;
    assert_eq!(carried(pool.composer()).await, [4, 4]);
    pool.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn what_nobody_can_mean_is_refused_with_what_there_is() {
    let pool = Pool::with(rack()).await;
    let composer = pool.composer();
    let known = uplinks(composer).await;
    let refused = composer
        .set_uplink("nowhere", &NewUplink { gpus: 1 }, ME)
        .await
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::NotFound);
    tells(
        &refused,
        &["no switch nowhere is seen", &known[0].id, &known[1].id],
    );
    let many = NewUplink { gpus: 2_000_000 };
    let refused = composer.set_uplink(&known[0].id, &many, ME).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::BadRequest);
    tells(
        &refused,
        &["2000000 GPUs are refused", "poolwright uplink remove"],
    );
    let refused = composer.remove_uplink(&known[0].id, ME).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::NotFound);
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_was_made_before_is_refused_where_the_room_is_gone() {
    let pool = Pool::with(rack()).await;
    let composer = pool.composer();
    composer.add_demand(spec(gpus("wide", H100, 6))).await.unwrap();
    let plan = composer.plan().await.unwrap();
    let how = How::default();
    let apply = || composer.apply(plan.clone(), OperationKind::Apply, ME, &how);
    says(composer, 0, 1).await;
    let refused = apply().await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Stale);
    tells(&refused, &["may have to carry 2 GPUs at once, and may carry 1"]);
    assert!(pool.truth().is_empty());
    let because = composer.why(&"wide".parse().unwrap()).await.unwrap().because;
    assert!(
        because.iter().any(|line| line.contains("the uplinks of switch")),
        "{because:#?}"
    );
    says(composer, 0, 2).await;
    let change = apply().await.unwrap();
    pool.done(&change).await;
    assert_eq!(pool.truth().len(), 6);
    pool.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_on_its_way_takes_its_part() {
    let pool = Pool::with(rack()).await;
    let composer = pool.composer();
    says(composer, 0, 1).await;
    let (far, first) = far(composer).await;
    let attach = |gpu: usize| {
        let (gpu, first) = ([far[gpu].clone()], first.clone());
        async move { composer.attach(&gpu, &first, ME, &How::default()).await }
    };
    let change = attach(0).await.unwrap();
    assert_eq!(carried(composer).await, [1, 1]);
    let refused = attach(1).await.unwrap_err();
    tells(
        &refused,
        &["may carry 1 GPU and carry 1: with these it would be 2"],
    );
    pool.done(&change).await;
    assert_eq!(pool.truth().len(), 1);
    // One goes for the other.
    let moved = composer
        .detach(&[far[0].clone()], ME, &How::default())
        .await
        .unwrap();
    pool.done(&moved).await;
    let change = attach(1).await.unwrap();
    pool.done(&change).await;
    pool.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_calendar_as_a_file_says_what_uplinks_carry() {
    let pool = Pool::with(rack()).await;
    let composer = pool.composer();
    let posed = composer.problem_ahead(12, None).await.unwrap();
    assert_eq!(posed.problem.get("switches"), None);
    let status = says(composer, 0, 3).await;
    let posed = composer.problem_ahead(12, None).await.unwrap();
    assert_eq!(
        posed.problem["switches"],
        json!([{"id": status.id, "uplink_gpus": 3}])
    );
    // A GPU attached by name is not at work in a file, and uses the uplink all the same.
    let (far, first) = far(composer).await;
    let change = composer
        .attach(&far[..1], &first, ME, &How::default())
        .await
        .unwrap();
    pool.done(&change).await;
    pool.composed(gpus("wide", H100, 6)).await;
    let posed = composer.problem_ahead(12, None).await.unwrap();
    assert_eq!(posed.problem["switches"][0]["uplink_gpus"], 2);
    assert!(posed.objective.is_some(), "{posed:#?}");
    let lowered = says(composer, 0, 1).await;
    assert_eq!(lowered.over(), 2);
    let posed = composer.problem_ahead(12, None).await.unwrap();
    assert_eq!(posed.problem["switches"][0]["uplink_gpus"], 2);
    assert!(
        posed.not_said.iter().any(|line| line.contains("than may be")),
        "{:#?}",
        posed.not_said
    );
}

async fn two() -> (Pool, Manager, Manager) {
    let mut pool = Pool::with(rack()).await;
    pool.composer().close().await;
    pool.crash().await;
    let a = manager(&pool, "a").await;
    let b = manager(&pool, "b").await;
    (pool, a, b)
}

/// Each would fit alone: one manager has planned, counted and is about to commit; the other attaches something across just
/// then.
#[tokio::test(start_paused = true)]
async fn of_two_managers_that_take_the_last_of_it_the_second_is_refused() {
    let (mut pool, a, b) = two().await;
    says(&a.composer, 0, 1).await;
    let (far, first) = far(&b.composer).await;
    let compose = |demand: Value| {
        let composer = a.composer.clone();
        tokio::spawn(async move { composer.compose(spec(demand), ME, &How::default()).await })
    };
    a.gate.stop_before("commit");
    let composing = compose(gpus("wide", H100, 5));
    a.gate.is_stopped().await;
    // The one that is taken is not one that the other has planned with, if that can be.
    let change = b
        .composer
        .attach(&far[3..], &first, ME, &How::default())
        .await
        .unwrap();
    a.gate.go_on();
    let refused = composing.await.unwrap().unwrap_err();
    assert_eq!(refused.code, ErrorCode::Unplaced, "{refused}");
    tells(
        &refused,
        &["may carry 1 GPU and carry 1", "release 1 GPU attached across"],
    );
    let id = change.operation.unwrap().id;
    let ended = b.composer.wait(&id, FOREVER).await.unwrap();
    assert_eq!(ended.state, OperationState::Completed);
    assert_eq!(pool.truth().len(), 1);

    // By name: the error of the second names the obstacle.
    let detached = b.composer.detach(&far[3..], ME, &How::default()).await.unwrap();
    let id = detached.operation.unwrap().id;
    b.composer.wait(&id, FOREVER).await.unwrap();
    let refused = attached_second(&a, &b, &far, &first).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict, "{refused}");
    tells(
        &refused,
        &["may carry 1 GPU and carry 1: with these it would be 2"],
    );
    pool.quiet().await;
    assert_eq!(pool.truth().len(), 1);
    all_is_well(&mut pool, &[&a, &b]).await;
}

/// The result for the first GPU if the other manager attaches the second one before this one's commit.
async fn attached_second(
    a: &Manager,
    b: &Manager,
    far: &[GpuId],
    host: &HostId,
) -> Result<Change, ServiceError> {
    a.gate.stop_before("commit");
    let attaching = tokio::spawn({
        let (composer, gpu, host) = (a.composer.clone(), far[..1].to_vec(), host.clone());
        async move { composer.attach(&gpu, &host, ME, &How::default()).await }
    });
    a.gate.is_stopped().await;
    b.composer
        .attach(&far[1..2], host, ME, &How::default())
        .await
        .unwrap();
    a.gate.go_on();
    attaching.await.unwrap()
}

/// With room for both, neither manager is refused.
#[tokio::test(start_paused = true)]
async fn two_managers_that_find_room_side_by_side_are_both_served() {
    let (mut pool, a, b) = two().await;
    says(&a.composer, 0, 2).await;
    let (far, first) = far(&b.composer).await;
    attached_second(&a, &b, &far, &first).await.unwrap();
    pool.quiet().await;
    assert_eq!(pool.truth().len(), 2);
    all_is_well(&mut pool, &[&a, &b]).await;
}
