//! What tenants are promised binds whatever is wanted for them: composed now, by the calendar, or in the queue.

use crate::stories::calendar::*;
use crate::stories::kit::{ME, Pool, demand_id, gpus};
use crate::stories::queueing::job;
use poolwright_model::id::TenantId;
use poolwright_service::tenant::{NewTenant, TenantStatus};
use poolwright_service::{Declaration, ErrorCode, Purpose, ServiceError};
use serde_json::{Value, json};

/// For a tenant so many of the 24 H100s.
fn for_tenant(tenant: &str, mut demand: Value) -> Value {
    demand["tenant"] = json!(tenant);
    demand
}

fn of(tenant: &str, id: &str, count: u32) -> Value {
    for_tenant(tenant, gpus(id, "h100-pcie-80gb", count))
}

impl Pool {
    pub async fn promise(
        &self,
        tenant: &str,
        guaranteed: u32,
        most: Option<u32>,
    ) -> Result<TenantStatus, ServiceError> {
        let new = NewTenant {
            guaranteed: Some(guaranteed),
            most,
            weight: None,
        };
        let tenant = TenantId::from_lossy(tenant);
        self.composer().set_tenant(&tenant, &new).await
    }

    pub async fn tenant(&self, tenant: &str) -> TenantStatus {
        let tenant = TenantId::from_lossy(tenant);
        self.composer().tenant(&tenant).await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_composed_above_what_a_tenant_may_hold_is_refused_with_the_limit() {
    let pool = Pool::of("demo").await;
    pool.promise("lab", 0, Some(10)).await.unwrap();
    pool.composed(of("lab", "one", 8)).await;
    let refused = pool.compose(of("lab", "two", 4)).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Unplaced);
    let told = "it needs 4 GPUs, and tenant lab holds 8 beside it and may hold 10 at most";
    assert!(refused.message.contains(told), "{refused}");
    assert!(
        refused
            .hint
            .as_deref()
            .unwrap()
            .contains("release 2 GPUs of tenant lab"),
        "{refused}"
    );
    assert!(
        refused
            .details
            .iter()
            .any(|line| line.contains("poolwright tenant set lab --most 12")),
        "{:?}",
        refused.details
    );
    // Others are not concerned, and two at once are not each taken for the only one.
    pool.composed(of("web", "three", 4)).await;
    let both = tokio::join!(
        pool.compose(of("lab", "four", 2)),
        pool.compose(of("lab", "five", 2))
    );
    assert!(both.0.is_ok() != both.1.is_ok(), "{both:?}");
    pool.quiet().await;
    assert_eq!(pool.tenant("lab").await.holds, 10);
    // A file that asks for more is told what of it will not be served.
    let declaration: Declaration = serde_json::from_value(json!({"demands": [of("lab", "six", 1)]})).unwrap();
    let declared = pool.composer().declare(declaration, true).await.unwrap();
    let lacks = &declared.entries[0].does_not_fit;
    assert!(lacks[0].reason.contains("may hold 10 at most"), "{declared:?}");
    pool.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_calendar_wants_above_what_its_tenant_may_hold_is_not_served_and_says_so() {
    let pool = Pool::of("demo").await;
    pool.promise("lab", 0, Some(8)).await.unwrap();
    let mut night = night();
    night["suspends"] = json!([]);
    night["demands"] = json!([of("lab", "training", 12), of("web", "other", 4)]);
    pool.schedule(night).await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until(NIGHT).await;
    assert_eq!(pool.holders().await, holds(&[("other", 4)]));
    let trouble = pool.night().await.trouble.unwrap();
    assert!(
        trouble
            .reason
            .contains("tenant lab holds 0 beside it and may hold 8 at most"),
        "{trouble}"
    );
    let why = pool.composer().why(&demand_id("training")).await.unwrap();
    let said = format!("{why:?}");
    assert!(said.contains("may hold 8 at most"), "{said}");
    // As soon as it may, it gets it.
    pool.promise("lab", 0, Some(12)).await.unwrap();
    pool.pass_until("2026-03-02T23:30:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("other", 4), ("training", 12)]));
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_guaranteed_and_wanted_goes_to_nobody_else_by_whatever_way() {
    let pool = Pool::of("demo").await;
    let clockwork = Clockwork::of(&pool);
    pool.composed(of("web", "chat", 12)).await;
    // A job of sixteen that is guaranteed has twelve, and waits for the others.
    pool.promise("lab", 16, None).await.unwrap();
    pool.submit(for_tenant("lab", job("ours", 16, json!({"runs_for": "4h"}))))
        .await;
    pool.settles().await;
    assert_eq!(pool.in_line().await, ["ours"]);
    let refused = pool.compose(of("web", "more", 4)).await.unwrap_err();
    assert!(
        refused
            .message
            .contains("left for what tenant lab is guaranteed and wants: demand ours"),
        "{refused}"
    );
    // A window that opens gets none of it either, nor a job of others; nor is either in its way afterwards.
    let mut night = night();
    night["suspends"] = json!([]);
    night["demands"] = json!([of("web", "training", 10)]);
    pool.schedule(night).await;
    pool.submit(for_tenant("web", job("theirs", 4, json!({"runs_for": "20h"}))))
        .await;
    pool.pass_until(EVENING).await;
    pool.settles().await;
    assert_eq!(pool.holders().await, holds(&[("chat", 12)]));
    let trouble = pool.night().await.trouble.unwrap();
    assert!(trouble.reason.contains("demand ours"), "{trouble}");
    pool.released("chat").await;
    pool.settles().await;
    pool.pass_until(NIGHT).await;
    let holders = pool.holders().await;
    assert_eq!(holders.get("ours"), Some(&16), "{holders:?}");
    // Withdrawn, it is in nobody's way.
    pool.is_done("ours").await;
    pool.settles().await;
    pool.pass_until("2026-03-02T23:30:00Z").await;
    assert_eq!(pool.holders().await.get("training"), Some(&10));
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_attached_by_name_for_a_tenant_counts_and_is_bound_by_its_limit() {
    let pool = Pool::of("demo").await;
    pool.promise("lab", 0, Some(4)).await.unwrap();
    pool.composed(of("lab", "one", 2)).await;
    let lab = Purpose {
        tenant: Some(TenantId::from_lossy("lab")),
        ..Purpose::default()
    };
    let how = poolwright_service::How::default();
    let (here, there) = (pool.host_id("host-4").await, pool.host_id("host-5").await);
    let free = pool
        .gpu_ids(&["box-2/gpu-9", "box-2/gpu-10", "box-2/gpu-11"])
        .await;
    let composer = pool.composer();
    let refused = composer
        .attach_for(&free, &here, &lab, ME, &how)
        .await
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict);
    let told = "tenant lab holds 2 GPUs and may hold 4 at most: with these it would hold 5";
    assert!(refused.message.contains(told), "{refused}");
    let attached = composer
        .attach_for(&free[..2], &here, &lab, ME, &how)
        .await
        .unwrap();
    pool.done(&attached).await;
    assert_eq!(pool.tenant("lab").await.holds, 4);
    assert_eq!(
        pool.compose(of("lab", "two", 1)).await.unwrap_err().code,
        ErrorCode::Unplaced
    );
    // It stays the tenant's at another host, and counts once.
    let moved = composer.move_to(&free[..2], &there, ME, &how).await.unwrap();
    pool.done(&moved).await;
    assert_eq!(pool.tenant("lab").await.holds, 4);
    // What nobody holds for anybody is not mixed with it.
    let nobodys = composer.attach(&free[2..], &here, ME, &how).await.unwrap();
    pool.done(&nobodys).await;
    assert_eq!(pool.tenant("lab").await.holds, 4);
    let third = pool.host_id("host-6").await;
    let mixed = composer.move_to(&free, &third, ME, &how).await.unwrap_err();
    assert!(mixed.message.contains("several tenants"), "{mixed}");
    let detached = composer.detach(&free[..2], ME, &how).await.unwrap();
    pool.done(&detached).await;
    assert_eq!(pool.tenant("lab").await.holds, 2);
    pool.all_is_well().await;
}

/// The second is judged with what the first takes, also before its commit is on the disk.
#[tokio::test(start_paused = true)]
async fn two_who_attach_for_a_tenant_at_once_stay_within_what_it_may_hold() {
    let pool = Pool::of("demo").await;
    pool.promise("lab", 0, Some(2)).await.unwrap();
    let lab = Purpose {
        tenant: Some(TenantId::from_lossy("lab")),
        ..Purpose::default()
    };
    let how = poolwright_service::How::default();
    let host = pool.host_id("host-4").await;
    let [one, two] = [["box-2/gpu-9", "box-2/gpu-10"], ["box-2/gpu-11", "box-2/gpu-12"]];
    let (one, two) = (pool.gpu_ids(&one).await, pool.gpu_ids(&two).await);
    let composer = pool.composer();
    let both = tokio::join!(
        composer.attach_for(&one, &host, &lab, ME, &how),
        composer.attach_for(&two, &host, &lab, ME, &how),
    );
    let (Ok(attached), Err(refused)) = &both else {
        panic!("{both:#?}");
    };
    assert!(refused.message.contains("may hold 2 at most"), "{refused}");
    pool.done(attached).await;
    assert_eq!(pool.tenant("lab").await.holds, 2);
    pool.all_is_well().await;
}
