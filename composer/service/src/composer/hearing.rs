//! Listening to endpoints. What they tell is a hint, and nothing else: the next look comes sooner. Events that are lost,
//! doubled, out of order or forged change nothing but when that is; and however many come, an endpoint is asked no
//! more often than it is given time for.

use super::Composer;
use poolwright_driver::{Fabric, Listened};
use poolwright_model::id::ControlEndpointId;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// From one look at who is bound where to the next, at least, however much an endpoint tells.
pub(super) const SOONEST: Duration = Duration::from_secs(1);

/// Before a stream that ended is opened again; doubled each time, up to the longest.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(600);

/// That an endpoint told something. Many hints before a look are one.
#[derive(Default)]
pub(super) struct Hints {
    /// For who looks at who is bound where.
    pub owners: Notify,
    /// For who looks at everything.
    pub all: Notify,
}

impl Hints {
    fn hint(&self) {
        self.owners.notify_one();
        self.all.notify_one();
    }
}

impl Composer {
    /// Listens to an endpoint for as long as it is polled.
    pub(super) async fn hear(&self, id: &ControlEndpointId, every: Duration, hints: &Hints) {
        let mut pause = FIRST;
        loop {
            // Nobody is connected to for this alone.
            let Some(connected) = self.connections.get(id) else {
                sleep(every).await;
                continue;
            };
            let began = Instant::now();
            let hint = || hints.hint();
            let heard = tokio::select! {
                biased;
                heard = connected.fabric.listen(&hint) => heard,
                () = self.is_replaced(id, &connected.fabric, every) => continue,
            };
            pause = match heard {
                // It may learn to, with its next firmware.
                Ok(Listened::NotOffered) => LONGEST,
                Ok(Listened::Ended) if began.elapsed() > LONGEST => FIRST,
                Ok(Listened::Ended) => pause,
                Err(error) => {
                    tracing::debug!(endpoint = %id, %error, "it can't be listened to; it is polled");
                    pause
                }
            };
            sleep(pause).await;
            pause = LONGEST.min(pause * 2);
        }
    }

    /// Waits until another connection is in use, or none.
    async fn is_replaced(&self, id: &ControlEndpointId, used: &Arc<dyn Fabric>, every: Duration) {
        let in_use = || {
            let now = self.connections.get(id);
            now.is_some_and(|now| Arc::ptr_eq(&now.fabric, used))
        };
        while in_use() {
            sleep(every).await;
        }
    }
}
