//! What is forgotten of the past, by a clock that may be wrong.

use crate::stories::calendar::Clockwork;
use crate::stories::kit::{ME, Pool, gpus, spec};
use jiff::SignedDuration;
use poolwright_emulator::rack::Rack;
use poolwright_service::How;
use poolwright_store::SqliteStore;
use poolwright_tests::torture::clock::JumpingClock;
use std::sync::Arc;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A clock that is wrong at a start, or for some hours, costs neither the history nor the keys; one that is right all
/// the time does forget.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_wrong_for_hours_makes_nothing_be_forgotten() {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    let mut pool = Pool::bare(Rack::builtin("demo").unwrap(), store);
    let clock = Arc::new(JumpingClock::new());
    pool.managers_clock = clock.clone();
    (pool.options.poll, pool.options.walk) = (Some(DAY / 24), DAY / 4);
    pool.open().await;
    pool.add_all_endpoints().await;
    let keyed = How {
        key: Some("k".to_owned()),
        ..How::default()
    };
    let compose = async |pool: &Pool| {
        let chat = spec(gpus("chat", "l40s-48gb", 2));
        pool.composer().compose(chat, ME, &keyed).await.unwrap()
    };
    let first = pool.done(&compose(&pool).await).await;
    let clockwork = Clockwork::of(&pool);
    tokio::time::sleep(2 * DAY).await;
    clockwork.stop().await;

    let wrong = SignedDuration::from_hours(200 * 24);
    clock.jump(wrong);
    pool.restart().await;
    let clockwork = Clockwork::of(&pool);
    tokio::time::sleep(Duration::from_secs(12 * 3600)).await;
    clock.jump(-wrong);
    tokio::time::sleep(DAY).await;
    let again = compose(&pool).await;
    assert!(again.replayed, "its key is known still");
    assert_eq!(again.operation.unwrap().id, first.id);

    tokio::time::sleep(6 * DAY).await;
    pool.released("chat").await;
    let after = compose(&pool).await;
    assert!(!after.replayed, "after nine days its key is not known any more");
    assert!(pool.done(&after).await.id != first.id);
    clockwork.stop().await;
    pool.all_is_well().await;
}
