//! Looking by the clock: each endpoint by itself, and as often as its own speed allows.
//!
//! Who is bound where is little and read often; everything else is walked through now and then. Neither takes more
//! than a set share of an endpoint's time, and none waits for another endpoint. Nothing is locked while an answer
//! is waited for.

use super::Composer;
use super::hearing::{Hints, SOONEST};
use crate::connections::NotReached;
use crate::endpoint::Endpoint;
use crate::error::ServiceError;
use crate::sight::{Began, Sight};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use poolwright_collector::{CollectOptions, Look, look};
use poolwright_driver::Fabric;
use poolwright_model::id::ControlEndpointId;
use poolwright_store::read;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep};

/// Reading who is bound where takes at most one part in so many of an endpoint's time; so does walking through it.
const SHARE: u32 = 4;

/// Nobody waits for a walk by the clock, so it may take long: BMCs were seen that took 45 minutes.
const LONGEST_WALK: Duration = Duration::from_secs(2 * 3600);

/// From one look of a kind at an endpoint to the next, counted from their beginnings, where the last took so long.
pub(super) fn period(wanted: Duration, took: Duration) -> Duration {
    wanted.max(took.saturating_mul(SHARE))
}

/// Something was told; but not sooner than in so long.
async fn hinted(hints: &Hints, soonest: Duration) {
    sleep(soonest).await;
    hints.all.notified().await;
}

/// What came of a look by the clock.
enum Looked {
    /// Something is otherwise than it was known to be.
    Anew,
    AsBefore,
    /// The endpoint is not ours to look at any more.
    NotKept,
}

impl Composer {
    /// Looks at all endpoints for as long as it is polled.
    pub(crate) async fn keep_looking(&self) {
        let Some(every) = self.options.poll else {
            return std::future::pending().await;
        };
        let walks = Semaphore::new(self.options.collect.endpoints_at_once.max(1));
        let (mut watched, mut watches) = (BTreeSet::new(), FuturesUnordered::new());
        let mut pause = Duration::ZERO;
        loop {
            let mut listed = std::pin::pin!(self.listed_after(pause));
            // The watches go on while it is asked which there are: what they hold meanwhile may be what that waits for.
            let kept = loop {
                tokio::select! {
                    biased;
                    Some(ended) = watches.next() => {
                        watched.remove(&ended);
                    }
                    kept = &mut listed => break kept,
                }
            };
            match kept {
                Ok(kept) => {
                    let ids = kept.into_iter().map(|kept| kept.spec.id);
                    let new = ids.filter(|id| watched.insert(id.clone()));
                    watches.extend(new.map(|id| self.watch(id, every, &walks)));
                }
                Err(error) => tracing::warn!("which endpoints there are can't be read: {error}"),
            }
            pause = every;
        }
    }

    async fn listed_after(&self, pause: Duration) -> Result<Vec<Endpoint>, ServiceError> {
        sleep(pause).await;
        self.endpoints().await
    }

    /// Looks at one endpoint for as long as it is kept.
    async fn watch(&self, id: ControlEndpointId, every: Duration, walks: &Semaphore) -> ControlEndpointId {
        let (news, hints) = (Notify::new(), Arc::new(Hints::default()));
        tokio::select! {
            biased;
            () = self.watch_owners(&id, every, &news, &hints) => {}
            () = self.watch_all(&id, every, walks, &news, &hints) => {}
            () = self.hear(&id, every, &hints) => {}
        }
        // Another manager may have removed it.
        if matches!(self.is_kept(&id).await, Ok(false)) {
            self.connections.drop_driver(&id).await;
            self.forget(&id);
        }
        id
    }

    async fn watch_owners(&self, id: &ControlEndpointId, every: Duration, news: &Notify, hints: &Hints) {
        let mut took = Duration::ZERO;
        loop {
            let least = period(every.min(SOONEST), took) - took;
            sleep(least).await;
            tokio::select! {
                biased;
                () = sleep(period(every, took) - took - least) => {}
                () = hints.owners.notified() => {}
            }
            let began = Instant::now();
            match self.read_owners(id).await {
                Ok(Looked::NotKept) => return,
                // What that is, a walk tells.
                Ok(Looked::Anew) => news.notify_one(),
                Ok(Looked::AsBefore) => {}
                Err(error) => tracing::warn!(endpoint = %id, "who is bound where can't be noted: {error}"),
            }
            took = began.elapsed();
            self.tell_what_was_seen(id).await;
        }
    }

    /// Tells whoever listens what a look has shown, so that nobody need ask for it to be told.
    async fn tell_what_was_seen(&self, id: &ControlEndpointId) {
        if let Err(error) = self.tell_silence(id).await {
            tracing::warn!(endpoint = %id, "that it answers, or does not, can't be told: {error}");
        }
        self.tell_news().await;
    }

    async fn watch_all(
        &self,
        id: &ControlEndpointId,
        every: Duration,
        walks: &Semaphore,
        news: &Notify,
        hints: &Hints,
    ) {
        let mut took = self
            .with_sight(id, |sight| sight.last_walk().took)
            .unwrap_or_default();
        // What is only known from before the restart is looked at first of all.
        let mut at_once = self.with_sight(id, Sight::is_recalled) == Some(true);
        loop {
            let known = self.with_sight(id, |sight| sight.has_answered()) == Some(true);
            // One that was never read is tried as often as others are polled.
            let wanted = if known { self.options.walk } else { every };
            if !std::mem::take(&mut at_once) {
                let least = period(Duration::ZERO, took) - took;
                sleep(least).await;
                tokio::select! {
                    biased;
                    () = sleep(period(wanted, took) - took - least) => {}
                    () = news.notified() => {}
                    () = hinted(hints, period(every, took) - took - least) => {}
                }
            }
            let Ok(permit) = walks.acquire().await else { return };
            let began = Instant::now();
            match self.walk(id).await {
                Ok(Looked::NotKept) => return,
                Ok(_) => {}
                Err(error) => tracing::warn!(endpoint = %id, "what it has can't be noted: {error}"),
            }
            drop(permit);
            took = began.elapsed();
            self.tell_what_was_seen(id).await;
        }
    }

    /// Looks at everything that one endpoint has.
    async fn walk(&self, id: &ControlEndpointId) -> Result<Looked, ServiceError> {
        let Some(fabric) = self.reach(id).await? else {
            return self.as_before(id).await;
        };
        let options = CollectOptions {
            endpoint_deadline: self.options.collect.endpoint_deadline.max(LONGEST_WALK),
            ..self.options.collect
        };
        self.recall_baselines([id]).await?;
        let began = self.begin_look().await?;
        let looks = look(&[fabric], began.at, options, &()).await;
        self.take_in_if_kept(id, began, looks).await
    }

    /// Reads who is bound where at one endpoint.
    async fn read_owners(&self, id: &ControlEndpointId) -> Result<Looked, ServiceError> {
        let Some(fabric) = self.reach(id).await? else {
            return self.as_before(id).await;
        };
        // What was never walked through has no units that are known.
        let units = self.with_sight(id, |sight| sight.has_answered().then(|| sight.units()));
        let Some(Some(units)) = units else {
            return Ok(Looked::AsBefore);
        };
        let began = self.begin_look().await?;
        // Slow as it may be, a unit is given a few seconds: several are asked side by side.
        let all = Duration::from_secs(1).saturating_mul(u32::try_from(units.len()).unwrap_or(u32::MAX));
        let deadline = self.options.collect.endpoint_deadline.max(all);
        match fabric.bindings(&units, deadline).await {
            Ok(read) => Ok(match self.take_in_owners(id, &units, read, began) {
                true => Looked::Anew,
                false => Looked::AsBefore,
            }),
            Err(error) => {
                let failed = vec![Look::failed(id.clone(), &error, began.at)];
                self.take_in_if_kept(id, began, failed).await
            }
        }
    }

    /// Takes looks in, unless the endpoint was removed while it was looked at.
    async fn take_in_if_kept(
        &self,
        id: &ControlEndpointId,
        began: Began,
        looks: Vec<Look>,
    ) -> Result<Looked, ServiceError> {
        self.drop_refused(&looks).await;
        let looked = self.as_before(id).await?;
        if !matches!(looked, Looked::NotKept) {
            self.take_in(began, looks);
            self.heed_marks().await?;
        }
        Ok(looked)
    }

    /// Reads who is bound where at some endpoints, side by side.
    pub(super) async fn read_owners_of(
        &self,
        endpoints: impl IntoIterator<Item = &ControlEndpointId>,
    ) -> Result<(), ServiceError> {
        let reads = endpoints.into_iter().map(|id| self.read_owners(id));
        let read = futures_util::future::join_all(reads).await;
        read.into_iter().try_for_each(|read| read.map(drop))
    }

    /// The driver of an endpoint, connected if need be. `None` where it can't be reached, which is noted, and where it
    /// is not kept.
    pub(super) async fn reach(
        &self,
        id: &ControlEndpointId,
    ) -> Result<Option<Arc<dyn Fabric>>, ServiceError> {
        if let Some(connected) = self.connections.get(id) {
            return Ok(self.is_kept(id).await?.then_some(connected.fabric));
        }
        let began = self.begin_look().await?;
        match self.connections.reach(id).await {
            Ok(reached) => Ok(reached.map(|connected| connected.fabric)),
            Err(NotReached::Store(error)) => Err(error.into()),
            Err(NotReached::Endpoint(error)) => {
                let failed = vec![Look::failed(id.clone(), &error, began.at)];
                self.take_in_if_kept(id, began, failed).await?;
                Ok(None)
            }
        }
    }

    async fn as_before(&self, id: &ControlEndpointId) -> Result<Looked, ServiceError> {
        Ok(match self.is_kept(id).await? {
            true => Looked::AsBefore,
            false => Looked::NotKept,
        })
    }

    async fn is_kept(&self, id: &ControlEndpointId) -> Result<bool, ServiceError> {
        let kept = read::<Endpoint>(self.store.as_ref(), id.as_str()).await?;
        Ok(kept.is_some())
    }
}
