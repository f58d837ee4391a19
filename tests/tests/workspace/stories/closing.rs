//! Hosts that are closed, at once or for a time that is to come: they are given nothing new, whoever asks, and what they
//! have stays.

use crate::stories::calendar::*;
use crate::stories::kit::{ME, Pool, at, demand_id, gpus};
use crate::stories::managers::two;
use jiff::Timestamp;
use poolwright_executor::Clock as _;
use poolwright_model::id::{GpuId, HostId};
use poolwright_service::closure::{Close, HostClosure};
use poolwright_service::{Change, Composer, ErrorCode, How, ServiceError};
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub const H100: &str = "h100-pcie-80gb";
const TEN: &str = "2026-03-02T22:00:00Z";

pub fn closes(from: Option<&str>, until: Option<&str>) -> Close {
    Close {
        from: from.map(at),
        until: until.map(at),
        reason: "new fans".to_owned(),
    }
}

impl Pool {
    pub async fn close(&self, host: &HostId, close: &Close) -> Result<HostClosure, ServiceError> {
        self.composer().close_host(host, close, ME).await
    }

    pub async fn close_all(&self, close: &Close) {
        for host in &self.snapshot().await.topology.hosts {
            self.close(&host.id, close).await.unwrap();
        }
    }

    async fn close_all_others(&self, host: &HostId) {
        for other in &self.snapshot().await.topology.hosts {
            if other.id != *host {
                self.close(&other.id, &closes(None, None)).await.unwrap();
            }
        }
    }

    pub async fn hosts_of(&self, demand: &str) -> BTreeSet<HostId> {
        let compositions = self.composer().compositions().await.unwrap().into_iter();
        let of_it = compositions.filter(|c| c.demand == Some(demand_id(demand)));
        of_it.map(|c| c.host).collect()
    }

    /// Where two GPUs go first.
    pub async fn first_host(&self) -> HostId {
        self.composed(gpus("probe", H100, 2)).await;
        let host = self.hosts_of("probe").await.pop_first().unwrap();
        self.released("probe").await;
        host
    }
}

async fn attach(composer: &Composer, host: &HostId) -> Result<Change, ServiceError> {
    let snapshot = composer.snapshot().await.unwrap();
    let free = snapshot.topology.gpus.iter().find(|gpu| gpu.host.is_none());
    let free: [GpuId; 1] = [free.unwrap().id.clone()];
    composer.attach(&free, host, ME, &How::default()).await
}

/// By night, two GPUs.
fn small_night(id: &str, opens: &str) -> Value {
    json!({
        "id": id,
        "window": {"opens": opens, "closes": "30 7 * * *"},
        "demands": [gpus(id, H100, 2)],
    })
}

#[tokio::test(start_paused = true)]
async fn a_closed_host_is_given_nothing_and_keeps_what_it_has() {
    let mut pool = Pool::of("demo").await;
    pool.composed(gpus("chat", H100, 2)).await;
    let host = pool.hosts_of("chat").await.pop_first().unwrap();
    let before = pool.truth();
    let closed = pool.close(&host, &closes(None, None)).await.unwrap();
    assert_eq!((closed.by.as_str(), closed.closure.until), (ME, None));
    assert_eq!(
        pool.close(&host, &closes(None, None)).await.unwrap(),
        closed,
        "once more"
    );

    for _ in 0..2 {
        let refused = attach(pool.composer(), &host).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::Conflict);
        for told in [host.as_str(), "is closed from 2026-03-02T12:00", "new fans"] {
            assert!(refused.message.contains(told), "{refused}");
        }
        assert_eq!(pool.truth(), before, "and nothing was pulled");
        // So it is after a restart.
        pool.restart().await;
    }
    let told = pool.because("chat").await;
    assert!(told.contains("what it holds there stays"), "{told}");
    pool.composed(gpus("more", H100, 2)).await;
    assert!(!pool.hosts_of("more").await.contains(&host));
    assert_eq!(pool.hosts_of("chat").await, [host.clone()].into());
    let shown = pool.composer().host_shown(&host).await.unwrap().unwrap();
    assert_eq!(shown.closure, Some(closed));
    let checks = pool.composer().doctor().await.unwrap();
    let check = checks.iter().find(|check| check.name == "closed hosts").unwrap();
    assert!(check.message.contains("there stays"), "{check:?}");

    pool.close_all_others(&host).await;
    let refused = pool.compose(gpus("none", H100, 2)).await.unwrap_err();
    assert!(refused.message.contains("6 hosts are closed"), "{refused}");
    pool.composer().open_host(&host, ME).await.unwrap();
    let change = attach(pool.composer(), &host).await.unwrap();
    pool.done(&change).await;
    let again = pool.composer().open_host(&host, ME).await.unwrap_err();
    assert_eq!(again.code, ErrorCode::NotFound);
    pool.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn what_contradicts_itself_is_refused() {
    let pool = Pool::of("demo").await;
    let host = pool.host_id("host-1").await;
    let noon = pool.clock.now();
    let hour = jiff::SignedDuration::from_hours(1);
    let close = |from: Option<Timestamp>, until: Option<Timestamp>, reason: &str| Close {
        from,
        until,
        reason: reason.to_owned(),
    };
    for (wrong, told) in [
        (
            close(Some(noon + hour), Some(noon + hour), "x"),
            "ends before it begins",
        ),
        (close(Some(noon - hour), None, "x"), "it is 2026-03-02"),
        (close(None, Some(noon - hour), "x"), "ends before it begins"),
        (close(None, None, " "), "without a reason"),
    ] {
        let refused = pool.close(&host, &wrong).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::BadRequest, "{refused}");
        assert!(refused.message.contains(told), "{refused}");
    }
    let unknown = pool
        .close(&HostId::from_lossy("host-99"), &closes(None, None))
        .await;
    assert_eq!(unknown.unwrap_err().code, ErrorCode::NotFound);
    pool.close(&host, &closes(Some(TEN), None)).await.unwrap();
    let second = pool.close(&host, &closes(None, Some(TEN))).await.unwrap_err();
    assert_eq!(second.code, ErrorCode::Conflict);
    assert!(second.message.contains("will be closed"), "{second}");
}

#[tokio::test(start_paused = true)]
async fn an_opening_that_goes_on_into_it_is_served_elsewhere() {
    let pool = Pool::of("demo").await;
    let host = pool.first_host().await;
    pool.schedule(small_night("night", "0 20 * * *")).await;
    pool.close(&host, &closes(Some(TEN), Some(NIGHT))).await.unwrap();
    let clockwork = Clockwork::of(&pool);
    pool.pass_until("2026-03-02T21:00:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("night", 2)]));
    assert!(!pool.hosts_of("night").await.contains(&host));
    pool.composer().open_host(&host, ME).await.unwrap();
    pool.pass_until("2026-03-03T21:00:00Z").await;
    assert_eq!(pool.hosts_of("night").await, [host].into(), "no longer");
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn where_all_close_it_is_told_and_they_open_by_themselves() {
    let pool = Pool::of("demo").await;
    pool.close_all(&closes(Some(TEN), Some(NIGHT))).await;
    pool.schedule(small_night("late", "30 22 * * *")).await;
    let change = pool.compose(gpus("chat", H100, 2)).await.unwrap();
    let advice = change.advice.join("\n");
    assert!(
        advice.contains("will be closed from 2026-03-02T22:00:00Z until"),
        "{advice}"
    );
    pool.done(&change).await;
    let ahead = pool.composer().plan_ahead(24).await.unwrap();
    let told = ahead
        .moments
        .iter()
        .find(|moment| moment.at == at("2026-03-02T22:30:00Z"));
    let told = told
        .unwrap()
        .unserved
        .iter()
        .map(|unserved| unserved.reason.clone());
    assert!(told.collect::<String>().contains("6 hosts are closed"));
    let served = ahead
        .held
        .iter()
        .find(|held| held.demand == Some(demand_id("late")));
    assert_eq!(served.unwrap().from, at(NIGHT), "it is known when it will be");

    let clockwork = Clockwork::of(&pool);
    pool.sleep_until("2026-03-02T22:59:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("chat", 2)]), "what is there stays");
    let told = pool.because("late").await;
    assert!(told.contains("is given nothing new"), "{told}");
    pool.pass_until(NIGHT).await;
    assert_eq!(pool.holders().await, holds(&[("chat", 2), ("late", 2)]));
    assert!(pool.clock.now() < at("2026-03-02T23:00:10Z"), "at once");
    assert_eq!(pool.composer().closures().await.unwrap(), []);
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_one_manager_closes_is_closed_for_the_other() {
    let (pool, a, b) = two("demo").await;
    b.composer.snapshot().await.unwrap();
    let hosts = &a.composer.snapshot().await.unwrap().topology.hosts;
    let host = hosts[0].id.clone();
    a.composer
        .close_host(&host, &closes(None, None), ME)
        .await
        .unwrap();
    for composer in [&b.composer, &a.composer] {
        let refused = attach(composer, &host).await.unwrap_err();
        assert!(refused.message.contains("new fans"), "{refused}");
    }
    b.composer.open_host(&host, ME).await.unwrap();
    let change = attach(&a.composer, &host).await.unwrap();
    let id = &change.operation.unwrap().id;
    a.composer.wait(id, crate::stories::kit::FOREVER).await.unwrap();
    assert_eq!(pool.truth().len(), 1);
}
