//! The manager notes what is wanted, and forecasts from that.

use crate::stories::calendar::{Clockwork, holds};
use crate::stories::kit::{Pool, gpus};
use crate::stories::queueing::job;
use poolwright_emulator::rack::Rack;
use poolwright_service::{ErrorCode, Kinds};
use poolwright_store::SqliteStore;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// What waits for GPUs is wanted as much as what has them; a restart forgets nothing of it.
#[tokio::test(start_paused = true)]
async fn what_was_wanted_for_days_is_expected_tomorrow() {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    let mut pool = Pool::bare(Rack::builtin("demo").unwrap(), store);
    (pool.options.poll, pool.options.walk) = (Some(HOUR), 6 * HOUR);
    pool.open().await;
    pool.add_all_endpoints().await;
    let ahead = BTreeSet::from([1, 24]);
    let refused = pool
        .composer()
        .forecast(None, &Kinds::Together, &ahead)
        .await
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::Unavailable, "{refused}");

    let clockwork = Clockwork::of(&pool);
    pool.composed(gpus("chat", "l40s-48gb", 2)).await;
    let waits = crate::stories::kit::spec(gpus("later", "l40s-48gb", 100));
    pool.composer().add_demand(waits).await.unwrap();
    tokio::time::sleep(100 * HOUR).await;
    clockwork.stop().await;
    pool.restart().await;

    let found = pool
        .composer()
        .forecast(None, &Kinds::Together, &ahead)
        .await
        .unwrap();
    let names: Vec<&str> = found.iter().map(|one| one.tenant.as_str()).collect();
    assert_eq!(names, ["(all)", "default"]);
    assert_eq!((found[0].wanted, found[0].held), (102.0, 2.0));
    for horizon in &found[1].forecast.horizons {
        assert_eq!((horizon.p50, horizon.p90), (102.0, 102.0));
        assert_eq!(horizon.measured.unwrap().ours.coverage, 1.0);
    }
    let nobody = pool
        .composer()
        .forecast(Some("nobody"), &Kinds::Together, &ahead)
        .await
        .unwrap_err();
    assert_eq!(nobody.code, ErrorCode::NotFound);
    pool.composer()
        .remove_demand(&crate::stories::kit::demand_id("later"))
        .await
        .unwrap();
    pool.all_is_well().await;
}

/// A job of the queue, a night of the calendar: what is known to end is expected no longer, nor kept.
#[tokio::test(start_paused = true)]
async fn what_is_known_to_end_is_expected_no_longer() {
    let mut pool = Pool::bare(
        Rack::builtin("demo").unwrap(),
        Arc::new(SqliteStore::in_memory().unwrap()),
    );
    (pool.options.poll, pool.options.walk) = (Some(HOUR), 6 * HOUR);
    pool.open().await;
    pool.add_all_endpoints().await;
    pool.composed(gpus("chat", "l40s-48gb", 2)).await;
    let clockwork = Clockwork::of(&pool);
    pool.submit(job("train", 4, json!({"runs_for": "101h"}))).await;
    tokio::time::sleep(98 * HOUR).await;
    pool.schedule(json!({
        "id": "night",
        "window": {"opens": "0 0 * * *", "closes": "59 23 * * *", "zone": "UTC"},
        "demands": [gpus("batch", "h100-pcie-80gb", 3)],
    }))
    .await;
    tokio::time::sleep(2 * HOUR + HOUR / 4).await;
    assert_eq!(
        pool.holders().await,
        holds(&[("batch", 3), ("chat", 2), ("train", 4)])
    );

    let ahead = BTreeSet::from([1, 24]);
    let found = pool
        .composer()
        .forecast(Some("default"), &Kinds::Each, &ahead)
        .await;
    let said: Vec<_> = found
        .unwrap()
        .into_iter()
        .map(|one| {
            let horizons = one.forecast.horizons.into_iter();
            let said: Vec<_> = horizons.map(|horizon| (horizon.p50, horizon.ends)).collect();
            (one.kind.unwrap_or_default(), one.wanted, said)
        })
        .collect();
    let of = |kind: &str, wanted, said: [(f64, f64); 2]| (kind.to_owned(), wanted, said.to_vec());
    assert_eq!(
        said,
        [
            of("", 9.0, [(9.0, 0.0), (2.0, 7.0)]),
            of("h100-pcie-80gb", 7.0, [(7.0, 0.0), (0.0, 7.0)]),
            of("l40s-48gb", 2.0, [(2.0, 0.0), (2.0, 0.0)]),
        ]
    );
    clockwork.stop().await;
    pool.all_is_well().await;
}
