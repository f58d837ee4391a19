//! Endpoints that tell what happens: a hint brings the next look forward, and that is all that it does.

use crate::stories::calendar::Clockwork;
use crate::stories::polling::{Asked, POLL, Slow, WALK};
use poolwright_emulator::Rack;
use poolwright_emulator::rack::BoxIx;
use std::time::Duration;
use tokio::time::{Instant, sleep};

pub const GPU: &str = "box-1/gpu-1";
pub const PORT: &str = "host-1/port-1";
/// Four at a time, half a second each.
pub const ONE_LOOK: Duration = Duration::from_secs(2);

/// A polled pool whose endpoints tell what happens; it listens by now, and is halfway between two looks.
async fn telling() -> (Slow, Clockwork) {
    let mut rack = Rack::builtin("demo").unwrap();
    rack.options.events = true;
    let slow = Slow::of(rack).await;
    let clockwork = Clockwork::of(&slow.pool);
    sleep(WALK * 4 + POLL / 2).await;
    assert!(slow.drifts().await.is_empty());
    (slow, clockwork)
}

impl Slow {
    /// How long it takes until it is told that a GPU is bound that should not be.
    pub async fn noticed_after(&self) -> Duration {
        let began = Instant::now();
        self.pool
            .until("it is noticed", async || !self.drifts().await.is_empty())
            .await;
        began.elapsed()
    }

    /// What nothing tells of costs at most a poll, there and back again.
    pub async fn notices_without_being_told(&self) {
        self.pool.bind_by_others(GPU, PORT);
        let after = self.noticed_after().await;
        assert!(after > ONE_LOOK * 2, "nothing told it: {after:?}");
        assert!(after <= POLL + ONE_LOOK, "{after:?}");
        self.pool.unbind_by_others(GPU);
        sleep(POLL + ONE_LOOK).await;
        assert!(self.drifts().await.is_empty(), "and back again");
    }

    /// Of two minutes full of hints `box-1` is asked no more often than it is given time for, and others as often as before.
    pub async fn stands_a_storm(&self, hint: impl Fn()) {
        const SECONDS: usize = 120;
        let (before, other) = (self.asked("box-1"), self.asked("box-2"));
        for _ in 0..SECONDS {
            (0..10_000).for_each(|_| hint());
            sleep(Duration::from_secs(1)).await;
        }
        let (reads, walks) = self.asked_since(before);
        let most = SECONDS.div_ceil(usize::try_from(ONE_LOOK.as_secs()).unwrap() * 4) + 1;
        assert!(reads > 4, "they were heard: {reads}");
        assert!(reads <= most, "a quarter of its time: {reads} reads");
        assert!(walks <= 5, "one a poll: {walks} walks");
        let others = self.asked("box-2").walks - other.walks;
        assert!(others <= 1, "{others}");
    }

    fn asked_since(&self, before: Asked) -> (usize, u32) {
        let now = self.asked("box-1");
        let units = self.pool.emulation.rack().gpus_of_box(BoxIx(0)).count();
        let reads = usize::try_from(now.units - before.units).unwrap() / units;
        (reads, now.walks - before.walks)
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_endpoint_tells_is_looked_at_soon() {
    let (slow, clockwork) = telling().await;
    slow.pool.bind_by_others(GPU, PORT);
    let after = slow.noticed_after().await;
    assert!(after <= ONE_LOOK * 2, "{after:?}");
    clockwork.stop().await;
}

/// Fault 20: all of them are lost; the end is the same, and at most a poll later.
#[tokio::test(start_paused = true)]
async fn events_that_are_lost_cost_at_most_a_poll() {
    let (slow, clockwork) = telling().await;
    slow.pool.emulation.lose_events(true);
    slow.notices_without_being_told().await;
    clockwork.stop().await;
}

/// Fault 21: forged, doubled and late ones; what is shown is what is so.
#[tokio::test(start_paused = true)]
async fn events_of_what_never_happened_change_nothing() {
    let (slow, clockwork) = telling().await;
    let shown = slow.pool.shown().await;
    for endpoint in ["box-1", "box-1", "host-1-bmc", "box-2", "box-1", "nobody"] {
        slow.pool.emulation.tell_event(endpoint);
    }
    sleep(POLL).await;
    assert_eq!(slow.pool.shown().await, shown);
    assert!(slow.drifts().await.is_empty());

    // The news of a change, told again and again after it was undone.
    slow.pool.bind_by_others(GPU, PORT);
    slow.noticed_after().await;
    slow.pool.unbind_by_others(GPU);
    sleep(POLL).await;
    slow.pool.emulation.tell_event("box-1");
    sleep(POLL).await;
    assert_eq!(slow.pool.shown().await, shown);
    clockwork.stop().await;
}

/// Fault 22: the endpoint is asked no more often than it is given time for, and others as often as before.
#[tokio::test(start_paused = true)]
async fn a_storm_of_events_is_one_hint_at_a_time() {
    let (slow, clockwork) = telling().await;
    slow.stands_a_storm(|| slow.pool.emulation.tell_event("box-1"))
        .await;
    clockwork.stop().await;
}
