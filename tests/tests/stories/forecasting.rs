//! The manager notes what is wanted, and forecasts from that.

use crate::calendar::Clockwork;
use crate::kit::{Pool, gpus};
use poolwright_emulator::rack::Rack;
use poolwright_service::ErrorCode;
use poolwright_store::SqliteStore;
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
    let refused = pool.composer().forecast(None, &ahead).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Unavailable, "{refused}");

    let clockwork = Clockwork::of(&pool);
    pool.composed(gpus("chat", "l40s-48gb", 2)).await;
    let waits = crate::kit::spec(gpus("later", "l40s-48gb", 100));
    pool.composer().add_demand(waits).await.unwrap();
    tokio::time::sleep(100 * HOUR).await;
    clockwork.stop().await;
    pool.restart().await;

    let found = pool.composer().forecast(None, &ahead).await.unwrap();
    let names: Vec<&str> = found.iter().map(|one| one.tenant.as_str()).collect();
    assert_eq!(names, ["(all)", "default"]);
    assert_eq!((found[0].wanted, found[0].held), (102.0, 2.0));
    for horizon in &found[1].forecast.horizons {
        assert_eq!((horizon.p50, horizon.p90), (102.0, 102.0));
        assert_eq!(horizon.measured.unwrap().ours.coverage, 1.0);
    }
    let nobody = pool
        .composer()
        .forecast(Some("nobody"), &ahead)
        .await
        .unwrap_err();
    assert_eq!(nobody.code, ErrorCode::NotFound);
    pool.composer()
        .remove_demand(&crate::kit::demand_id("later"))
        .await
        .unwrap();
    pool.all_is_well().await;
}
