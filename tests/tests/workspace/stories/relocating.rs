//! Hosts that move to other ports: empty and closed in transit, the same host at the new ports, and recorded in its
//! history.

use crate::stories::calendar::Clockwork;
use crate::stories::kit::{ME, Pool};
use poolwright_emulator::clock::Clock as RackClock;
use poolwright_emulator::{Emulation, Rack};
use poolwright_executor::Clock as _;
use poolwright_model::id::HostId;
use poolwright_service::closure::Close;
use poolwright_service::host::{HostLife, HostTurn, Relocation};
use poolwright_service::{CheckResult, ErrorCode, How, ServiceError};
use poolwright_store::Batch;
use std::time::Duration;

const KIND: &str = "h100-pcie-80gb";
const TO: &str = "rack 7, unit 12";
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Two boxes; each host is cabled to one of them.
fn rack(first: &str, second: &str) -> Rack {
    let file = format!(
        r#"
        name = "carried"
        description = "Two boxes, and hosts that reach one of them"
        style = "zones"
        [[box]]
        count = 2
        gpus = [{{ kind = "{KIND}", count = 4 }}]
        [[host]]
        count = 1
        ports = 1
        slots = 4
        boxes = ["{first}"]
        [[host]]
        count = 1
        ports = 1
        slots = 4
        boxes = ["{second}"]
        "#
    );
    Rack::from_toml("carried.toml", &file).unwrap()
}

impl Pool {
    async fn leaves(&self, host: &HostId) -> Result<HostLife, ServiceError> {
        self.composer().relocate_host(host, TO, ME).await
    }

    /// The cables are plugged in otherwise, while the manager is down.
    async fn recabled(&mut self, rack: Rack) {
        self.crash().await;
        let now = self.emulation.clock().now();
        let clock = RackClock::Real {
            start: now,
            since: tokio::time::Instant::now(),
        };
        self.emulation = Emulation::new(rack, clock);
        self.open().await;
        self.composer().discover(&()).await.unwrap();
    }

    async fn is_closed(&self, host: &HostId) -> bool {
        let shown = self.composer().host_shown(host).await.unwrap();
        shown.unwrap().closure.is_some()
    }

    async fn turns(&self, host: &HostId) -> Vec<HostTurn> {
        let life = self.composer().host_life(host).await.unwrap();
        life.of.events.into_iter().map(|event| event.turn).collect()
    }
}

async fn pool() -> Pool {
    Pool::with(rack("box-1", "box-2")).await
}

async fn attached(pool: &Pool, gpu: &str, host: &HostId) -> Result<(), ServiceError> {
    let gpus = pool.gpu_ids(&[gpu]).await;
    let change = pool.composer().attach(&gpus, host, ME, &How::default()).await?;
    pool.done(&change).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_carried_away_is_given_nothing_until_it_is_seen_elsewhere() {
    let mut pool = pool().await;
    let host = pool.host_id("host-1").await;
    attached(&pool, "box-1/gpu-1", &host).await.unwrap();
    let holds = pool.leaves(&host).await.unwrap_err();
    assert_eq!(holds.code, ErrorCode::Conflict);
    assert!(holds.message.contains("can't be moved"), "{holds}");
    assert!(holds.hint.unwrap().contains("poolwright detach"));
    assert!(!pool.is_closed(&host).await);

    let gpus = pool.gpu_ids(&["box-1/gpu-1"]).await;
    let detached = pool.composer().detach(&gpus, ME, &How::default()).await.unwrap();
    pool.done(&detached).await;
    let life = pool.leaves(&host).await.unwrap();
    assert_eq!(life.relocation.as_ref().unwrap().to, TO);
    assert_eq!(pool.leaves(&host).await.unwrap(), life, "once more is the same");
    let composer = pool.composer();
    for refused in [
        composer.relocate_host(&host, "rack 8", ME).await,
        composer.retire_host(&host, "", ME).await,
    ] {
        assert_eq!(refused.unwrap_err().code, ErrorCode::Conflict);
    }
    let refused = attached(&pool, "box-1/gpu-1", &host).await.unwrap_err();
    assert!(refused.message.contains(TO), "{refused}");
    let refused = composer.open_host(&host, ME).await.unwrap_err();
    assert!(
        refused.hint.unwrap().contains("--cancel"),
        "it is closed until it arrives"
    );
    assert!(pool.is_closed(&host).await);

    // Where it was, it has not come.
    pool.options.poll = Some(Duration::from_secs(30));
    pool.restart().await;
    let clockwork = Clockwork::of(&pool);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(
        pool.composer()
            .host_life(&host)
            .await
            .unwrap()
            .relocation
            .is_some()
    );
    clockwork.stop().await;

    pool.recabled(rack("box-2", "box-2")).await;
    let clockwork = Clockwork::of(&pool);
    pool.until("it has come", async || {
        pool.composer()
            .host_life(&host)
            .await
            .unwrap()
            .relocation
            .is_none()
    })
    .await;
    assert_eq!(pool.host_id("host-1").await, host, "it is the same");
    let turns = pool.turns(&host).await;
    let [HostTurn::Leaves { .. }, HostTurn::Moved { to, from, now }] = &turns[..] else {
        panic!("{turns:?}")
    };
    assert_eq!(to, TO);
    assert!(from.ports.is_disjoint(&now.ports), "from {from} to {now}");
    assert!(!pool.is_closed(&host).await);
    attached(&pool, "box-2/gpu-1", &host).await.unwrap();
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_closed_before_stays_closed_and_somebody_may_say_how_it_ended() {
    let pool = pool().await;
    let host = pool.host_id("host-1").await;
    let composer = pool.composer();
    let none = composer.cancel_relocation(&host, ME).await.unwrap_err();
    assert_eq!(none.code, ErrorCode::Conflict);
    let nowhere = composer.relocate_host(&host, " ", ME).await.unwrap_err();
    assert_eq!(nowhere.code, ErrorCode::BadRequest);
    let nobody = composer
        .relocate_host(&HostId::from_lossy("host-77"), TO, ME)
        .await;
    assert_eq!(nobody.unwrap_err().code, ErrorCode::NotFound);

    let close = |from| Close {
        from,
        until: None,
        reason: "new fans".to_owned(),
    };
    composer.close_host(&host, &close(None), ME).await.unwrap();
    pool.leaves(&host).await.unwrap();
    let stays = composer.cancel_relocation(&host, ME).await.unwrap();
    assert!(stays.relocation.is_none() && pool.is_closed(&host).await);
    composer.open_host(&host, ME).await.unwrap();

    let later = pool.clock.now() + DAY;
    composer.close_host(&host, &close(Some(later)), ME).await.unwrap();
    let refused = pool.leaves(&host).await.unwrap_err();
    assert_eq!(
        refused.code,
        ErrorCode::Conflict,
        "it is closed for something else"
    );
    composer.open_host(&host, ME).await.unwrap();

    pool.leaves(&host).await.unwrap();
    composer.host_has_moved(&host, ME).await.unwrap();
    assert!(!pool.is_closed(&host).await);
    let turns = pool.turns(&host).await;
    assert!(
        matches!(
            &turns[..],
            [HostTurn::Leaves { .. }, HostTurn::Stays, HostTurn::Leaves { .. }, HostTurn::Moved { from, now, .. }]
                if from == now
        ),
        "{turns:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_host_that_does_not_come_within_a_day_is_told() {
    let pool = pool().await;
    let host = pool.host_id("host-1").await;
    pool.leaves(&host).await.unwrap();
    let told = async || {
        let checks = pool.composer().doctor().await.unwrap();
        checks
            .into_iter()
            .find(|check| check.name == "hosts that are moved")
    };
    assert_eq!(told().await, None);
    tokio::time::sleep(DAY + Duration::from_secs(60)).await;
    let told = told().await.unwrap();
    assert_eq!(told.result, CheckResult::Warning);
    assert!(told.message.contains(TO), "{}", told.message);
    assert!(told.hint.unwrap().contains("--done"));
}

#[tokio::test(start_paused = true)]
async fn what_is_given_to_a_host_at_this_very_moment_keeps_it_where_it_is_or_is_refused() {
    let pool = pool().await;
    let host = pool.host_id("host-1").await;
    let (left, composed) = tokio::join!(pool.leaves(&host), attached(&pool, "box-1/gpu-1", &host));
    assert!(left.is_ok() != composed.is_ok(), "{left:?} {composed:?}");
    assert_eq!(pool.is_closed(&host).await, left.is_ok());
    pool.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_move_whose_manager_stopped_before_it_looked_is_looked_at_when_it_is_asked_for_again() {
    let pool = pool().await;
    let host = pool.host_id("host-1").await;
    let life = pool.leaves(&host).await.unwrap();
    pool.composer().cancel_relocation(&host, ME).await.unwrap();
    // A GPU was attached to the host while it was closed, and no poll has run since.
    attached(&pool, "box-1/gpu-1", &host).await.unwrap();
    tokio::time::sleep(DAY).await;
    let begun = Relocation {
        since: pool.emulation.clock().now(),
        ..life.relocation.unwrap()
    };
    let mut batch = Batch::new();
    batch.put(&begun).unwrap();
    pool.store.commit(batch).await.unwrap();
    let holds = pool.leaves(&host).await.unwrap_err();
    assert!(holds.message.contains("can't be moved"), "{holds}");
    let life = pool.composer().host_life(&host).await.unwrap();
    assert_eq!(life.relocation, None);
}
