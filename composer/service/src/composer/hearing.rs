//! Listening to endpoints. What they tell is a hint, and nothing else: the next look comes sooner. Events that are lost,
//! doubled, out of order or forged change nothing but when that is; and however many come, an endpoint is asked no
//! more often than it is given time for.
//!
//! A service that only pushes is given an address with a secret of its own in it. What comes there is not read: whoever
//! knows the secret can say that a look is worth while, and nothing else.

use super::Composer;
use crate::endpoint::{Endpoint, Standing};
use crate::error::ServiceError;
use crate::sessions::random;
use poolwright_driver::{Fabric, Listened, PushTo};
use poolwright_model::id::ControlEndpointId;
use poolwright_store::read;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// From one look at who is bound where to the next, at least, however much an endpoint tells.
pub(super) const SOONEST: Duration = Duration::from_secs(1);

/// Between two looks, in memory, at whether an endpoint is connected, and by the connection that is listened to.
const NOTICED: Duration = Duration::from_secs(1);

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

/// Where on the manager endpoints push what happens.
pub const LETTERBOXES: &str = "/endpoint-events/";

/// Whom a push is a hint for, by the secret that stands in the address.
#[derive(Default)]
pub(super) struct Letterboxes(Mutex<BTreeMap<String, Arc<Hints>>>);

/// Open for as long as it is there.
struct Letterbox<'a> {
    of: &'a Letterboxes,
    secret: String,
    push_to: PushTo,
}

impl Letterboxes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Hints>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, manager: &str, hints: &Arc<Hints>) -> Result<Letterbox<'_>, ServiceError> {
        let secret = random::<16>()?;
        self.lock().insert(secret.clone(), hints.clone());
        let ours = format!("{manager}{LETTERBOXES}");
        let address = format!("{ours}{secret}");
        Ok(Letterbox {
            of: self,
            secret,
            push_to: PushTo { address, ours },
        })
    }
}

impl Drop for Letterbox<'_> {
    fn drop(&mut self) {
        self.of.lock().remove(&self.secret);
    }
}

impl Composer {
    /// Something came for the letterbox of this secret; `false` where there is none.
    pub fn pushed(&self, secret: &str) -> bool {
        let hints = self.letterboxes.lock().get(secret).cloned();
        hints.inspect(|hints| hints.hint()).is_some()
    }

    /// A letterbox for an endpoint; `None` where nothing may be changed there, or it can't reach us.
    async fn letterbox(
        &self,
        id: &ControlEndpointId,
        hints: &Arc<Hints>,
    ) -> Result<Option<Letterbox<'_>>, ServiceError> {
        let Some(manager) = &self.options.pushed_to else {
            return Ok(None);
        };
        let kept = read::<Endpoint>(self.store.as_ref(), id.as_str()).await?;
        let adopted = kept.is_some_and(|kept| kept.value.standing == Standing::Adopted);
        if !adopted || self.paused_endpoints().await?.contains_key(id) {
            return Ok(None);
        }
        self.letterboxes.open(manager, hints).map(Some)
    }

    /// Listens to an endpoint for as long as it is polled.
    pub(super) async fn hear(&self, id: &ControlEndpointId, every: Duration, hints: &Arc<Hints>) {
        let mut pause = FIRST;
        loop {
            // Nobody is connected to for this alone.
            let Some(connected) = self.connections.get(id) else {
                sleep(NOTICED).await;
                continue;
            };
            let began = Instant::now();
            let hint = || hints.hint();
            let letterbox = self.letterbox(id, hints).await.unwrap_or_else(|error| {
                tracing::warn!(endpoint = %id, "it can't be subscribed at: {error}");
                None
            });
            let push_to = letterbox.as_ref().map(|letterbox| &letterbox.push_to);
            let heard = tokio::select! {
                biased;
                heard = connected.fabric.listen(push_to, &hint) => heard,
                () = self.is_replaced(id, &connected.fabric) => continue,
            };
            if let Err(error) = &heard {
                tracing::debug!(endpoint = %id, %error, "it can't be listened to; it is polled");
            }
            pause = match heard {
                // It may be subscribed at as soon as it is adopted, or goes on.
                Ok(Listened::NotOffered) if letterbox.is_none() && self.options.pushed_to.is_some() => every,
                // It may learn to, with its next firmware.
                Ok(Listened::NotOffered) => LONGEST,
                Ok(Listened::Ended) | Err(_) => before_the_next(pause, began.elapsed()),
            };
            sleep(pause).await;
            pause = LONGEST.min(pause * 2);
        }
    }

    /// Waits until another connection is in use, or none.
    async fn is_replaced(&self, id: &ControlEndpointId, used: &Arc<dyn Fabric>) {
        let in_use = || {
            let now = self.connections.get(id);
            now.is_some_and(|now| Arc::ptr_eq(&now.fabric, used))
        };
        while in_use() {
            sleep(NOTICED).await;
        }
    }
}

/// Before a stream is opened again that was open so long: one that lasted begins anew, however it ended.
fn before_the_next(pause: Duration, lasted: Duration) -> Duration {
    match lasted > LONGEST {
        true => FIRST,
        false => pause,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_lasted_is_opened_again_at_once_and_one_that_did_not_is_after_a_longer_pause() {
        let pause = FIRST * 64;
        assert_eq!(before_the_next(pause, LONGEST * 2), FIRST);
        assert_eq!(before_the_next(pause, FIRST), pause);
    }
}
