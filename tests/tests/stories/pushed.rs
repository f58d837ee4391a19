//! Endpoints that push what happens to the manager: each push is a hint, as what is streamed is.

use crate::calendar::Clockwork;
use crate::hearing::{GPU, ONE_LOOK, PORT};
use crate::polling::{POLL, Slow, WALK};
use poolwright_emulator::Rack;
use std::time::Duration;
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
    slow.pool.bind_by_others(GPU, PORT);
    let after = slow.noticed_after().await;
    assert!(after > ONE_LOOK * 2, "nothing told it: {after:?}");
    assert!(after <= POLL + ONE_LOOK, "{after:?}");
    slow.pool.unbind_by_others(GPU);
    sleep(POLL + ONE_LOOK).await;
    assert!(slow.drifts().await.is_empty(), "and back again");
    clockwork.stop().await;
}

/// Fault 22: the endpoint is asked no more often than it is given time for, and others as often as before.
#[tokio::test(start_paused = true)]
async fn a_storm_of_pushes_is_one_hint_at_a_time() {
    const SECONDS: usize = 120;
    let (slow, clockwork) = pushing().await;
    let (before, other) = (slow.asked("box-1"), slow.asked("box-2"));
    for _ in 0..SECONDS {
        assert!((0..10_000).all(|_| slow.push("box-1")));
        sleep(Duration::from_secs(1)).await;
    }
    let (reads, walks) = slow.asked_since(before);
    let most = SECONDS.div_ceil(usize::try_from(ONE_LOOK.as_secs()).unwrap() * 4) + 1;
    assert!(reads > 4, "they were heard: {reads}");
    assert!(reads <= most, "a quarter of its time: {reads} reads");
    assert!(walks <= 5, "one a poll: {walks} walks");
    let others = slow.asked("box-2").walks - other.walks;
    assert!(others <= 1, "{others}");
    clockwork.stop().await;
}
