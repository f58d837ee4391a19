//! Endpoints that push what happens to the manager: each push is a hint, as what is streamed is.

use crate::stories::calendar::Clockwork;
use crate::stories::hearing::{GPU, ONE_LOOK, PORT};
use crate::stories::polling::{POLL, Slow, WALK};
use poolwright_emulator::Rack;
use tokio::time::sleep;

/// A polled pool whose endpoints push; it is subscribed by now, and halfway between two looks.
async fn pushing() -> (Slow, Clockwork) {
    let slow = Slow::pushed_to(Rack::builtin("demo").unwrap()).await;
    let clockwork = Clockwork::of(&slow.pool);
    sleep(WALK * 4 + POLL / 2).await;
    assert!(slow.drifts().await.is_empty());
    (slow, clockwork)
}

#[tokio::test(start_paused = true)]
async fn what_an_endpoint_pushes_is_looked_at_soon() {
    let (slow, clockwork) = pushing().await;
    slow.pool.bind_by_others(GPU, PORT);
    assert!(slow.push("box-1"), "it is subscribed at");
    let after = slow.noticed_after().await;
    assert!(after <= ONE_LOOK * 2, "{after:?}");
    clockwork.stop().await;
}

/// Fault 20: a subscription through which nothing comes; the end is the same, and at most a poll later.
#[tokio::test(start_paused = true)]
async fn pushes_that_are_lost_cost_at_most_a_poll() {
    let (slow, clockwork) = pushing().await;
    slow.notices_without_being_told().await;
    clockwork.stop().await;
}

/// Fault 22: the endpoint is asked no more often than it is given time for, and others as often as before.
#[tokio::test(start_paused = true)]
async fn a_storm_of_pushes_is_one_hint_at_a_time() {
    let (slow, clockwork) = pushing().await;
    slow.stands_a_storm(|| assert!(slow.push("box-1"))).await;
    clockwork.stop().await;
}
