//! What a demand has lent is given to nobody else past its return: it is planned around, or refused with the lender and
//! the time.

use crate::stories::calendar::*;
use crate::stories::kit::{ME, Pool, gpus, spec};
use poolwright_model::topology::Gpu;
use poolwright_planner::Reason;
use poolwright_service::{ErrorCode, How, ServiceError};
use serde_json::json;

/// `chat` has lent 20 of 24 GPUs to `training`, which takes 8.
async fn lent_in_part() -> (Pool, Clockwork) {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
    let mut lend = night();
    lend["demands"] = json!([gpus("training", "h100-pcie-80gb", 8)]);
    pool.schedule(lend).await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until(NIGHT).await;
    assert_eq!(pool.holders().await, holds(&[("training", 8)]));
    (pool, clockwork)
}

fn names_lender_and_time(refused: &ServiceError) {
    let said = refused.to_string();
    for word in ["demand chat", "schedule night", "2026-03-03T07:30:00Z"] {
        assert!(said.contains(word), "{said}");
    }
}

async fn free_h100s(pool: &Pool) -> Vec<Gpu> {
    let snapshot = pool.snapshot().await;
    let free = |gpu: &&Gpu| {
        gpu.profile.as_deref() == Some("h100-pcie-80gb")
            && gpu.state == poolwright_model::lifecycle::GpuState::Free
    };
    snapshot.topology.gpus.iter().filter(free).cloned().collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_owed_back_is_given_to_nobody_else() {
    let (pool, clockwork) = lent_in_part().await;
    // Four are nobody's; the other twelve that are free are owed.
    pool.composed(gpus("small", "h100-pcie-80gb", 4)).await;
    let refused = pool.compose(gpus("more", "h100-pcie-80gb", 1)).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Unplaced);
    names_lender_and_time(&refused);

    let free = free_h100s(&pool).await;
    assert_eq!(free.len(), 12);
    let host = pool.host_id("host-4").await;
    let attached = pool
        .composer()
        .attach(&[free[0].id.clone()], &host, ME, &How::default())
        .await;
    let refused = attached.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict);
    names_lender_and_time(&refused);

    // What somebody may have of another kind is planned around it.
    pool.composer()
        .add_demand(spec(gpus("more", "h100-pcie-80gb", 1)))
        .await
        .unwrap();
    pool.composer()
        .add_demand(spec(json!({"id": "any", "gpus": 1})))
        .await
        .unwrap();
    let plan = pool.composer().plan().await.unwrap();
    let reason = &plan.unplaced[0].tried[0].reason;
    assert_eq!(plan.unplaced.len(), 1, "{:?}", plan.unplaced);
    assert!(
        matches!(reason, Reason::Owed { lender, .. } if lender.as_str() == "chat"),
        "{reason}"
    );
    let any = plan
        .composes
        .iter()
        .find(|c| c.demand.as_ref().is_some_and(|id| id.as_str() == "any"));
    assert!(any.is_some(), "{:?}", plan.composes);

    pool.pass_until("2026-03-03T08:00:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("chat", 20), ("small", 4)]));
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_over_by_the_return_may_have_what_is_owed() {
    let (pool, clockwork) = lent_in_part().await;
    let run = json!({"id": "run", "model": "8B", "kind": "h100-pcie-80gb", "phase": [
        {"kind": "main", "hours": 1, "gpus": 12},
    ]});
    pool.composed(run).await;
    pool.pass_until("2026-03-03T08:00:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("chat", 20)]));
    clockwork.stop().await;
}

/// With `lab`'s chat, which has lent 20 of the 24 that its tenant may hold; `training` is another tenant's.
async fn lent_by_a_tenant_with_a_limit() -> (Pool, Clockwork) {
    let pool = Pool::of("demo").await;
    pool.promise("lab", 0, Some(24)).await.unwrap();
    let mut chat = gpus("chat", "h100-pcie-80gb", 20);
    chat["tenant"] = json!("lab");
    pool.composed(chat).await;
    let mut lend = night();
    lend["demands"] = json!([gpus("training", "h100-pcie-80gb", 8)]);
    pool.schedule(lend).await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until(NIGHT).await;
    (pool, clockwork)
}

#[tokio::test(start_paused = true)]
async fn what_a_tenant_may_hold_is_owed_to_its_lender_too() {
    let (pool, clockwork) = lent_by_a_tenant_with_a_limit().await;
    // There are GPUs of another kind and hosts for them, but the tenant could hold no more in the morning.
    let mut other = gpus("other", "l40s-48gb", 5);
    other["tenant"] = json!("lab");
    let refused = pool.compose(other.clone()).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Unplaced);
    names_lender_and_time(&refused);
    // A plan leaves out that one alone.
    pool.composer().add_demand(spec(other)).await.unwrap();
    let another = gpus("another", "l40s-48gb", 2);
    pool.composer().add_demand(spec(another)).await.unwrap();
    let plan = pool.composer().plan().await.unwrap();
    let served: Vec<&str> = plan
        .composes
        .iter()
        .filter_map(|c| Some(c.demand.as_ref()?.as_str()))
        .collect();
    assert_eq!(served, ["another"]);
    let unplaced = &plan.unplaced[0];
    assert_eq!(unplaced.demand.as_str(), "other", "{unplaced:?}");
    assert!(
        matches!(unplaced.tried[0].reason, Reason::Owed { .. }),
        "{unplaced:?}"
    );
    pool.pass_until("2026-03-03T08:00:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("chat", 20)]));
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_begins_by_the_clock_takes_nothing_of_what_is_owed_either() {
    for what in ["schedule", "phases"] {
        let (pool, clockwork) = lent_in_part().await;
        // 16 are free until the morning, and four of them are nobody's.
        match what {
            "schedule" => {
                let late = json!({
                    "id": "late", "window": {"opens": "30 23 * * *", "closes": "0 12 * * *"},
                    "demands": [gpus("reports", "h100-pcie-80gb", 8), gpus("mail", "h100-pcie-80gb", 4)],
                });
                drop(pool.schedule(late).await);
            }
            _ => {
                let run = json!({"id": "reports", "model": "8B", "kind": "h100-pcie-80gb", "phase": [
                    {"kind": "main", "hours": 12, "gpus": 8},
                ], "starts": "2026-03-02T23:30:00Z"});
                drop(pool.composer().add_demand(spec(run)).await.unwrap());
            }
        }
        pool.pass_until("2026-03-02T23:45:00Z").await;
        let night = match what {
            "schedule" => holds(&[("mail", 4), ("training", 8)]),
            _ => holds(&[("training", 8)]),
        };
        assert_eq!(pool.holders().await, night, "{what}");
        let why = pool
            .composer()
            .why(&crate::stories::kit::demand_id("reports"))
            .await
            .unwrap();
        let told = why.because.join("; ");
        assert!(
            told.contains("chat") && told.contains("2026-03-03T07:30:00Z"),
            "{told}"
        );
        pool.pass_until("2026-03-03T08:00:00Z").await;
        assert_eq!(pool.holders().await.get("chat"), Some(&20), "{what}");
        // What it lacked is there once the day's demand makes way.
        pool.released("chat").await;
        pool.pass_until("2026-03-03T08:30:00Z").await;
        assert_eq!(pool.holders().await.get("reports"), Some(&8), "{what}");
        pool.all_is_well().await;
        clockwork.stop().await;
    }
}
