//! One of several managers: keeping alive, taking over from those that died, and working at what is in charge here.

use super::Composer;
use super::readiness::Stage;
use crate::connections::Connections;
use crate::error::{ErrorCode, ServiceError};
use crate::leases::{Leases, Takeover};
use poolwright_driver::{CutOff, DriverError};
use poolwright_executor::Drivers;
use poolwright_model::id::ControlEndpointId;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Between two looks at what others left for this manager.
const TEND: Duration = Duration::from_millis(500);
/// For ending the sessions of a manager that died, and from one try to the next.
const CUT: Duration = Duration::from_secs(10);

impl Composer {
    /// The first round of leases, and from here on all others. Nothing to do for the only manager.
    pub(super) async fn begin_charge(&self) -> Result<(), ServiceError> {
        let Some(leases) = self.leases.clone() else {
            return Ok(());
        };
        self.refuse_copied_directory(&leases).await?;
        self.round(&leases).await?;
        let pause = leases.sharing().pause();
        self.again(
            pause,
            "this manager's leases could not be renewed",
            move |composer| {
                let leases = leases.clone();
                async move { composer.round(&leases).await }
            },
        );
        // Each by itself: what is paused stops within a second, whatever else takes its time.
        let what = "what other managers paused could not be looked at";
        self.again(
            TEND,
            what,
            |composer| async move { composer.recall_pauses().await },
        );
        let what = "what nobody works at could not be taken up";
        self.again(TEND, what, |composer| async move { composer.adopt().await });
        let what = "what other managers ask for could not be looked at";
        self.again(TEND, what, |composer| async move { composer.obey().await });
        let calendar = Arc::new(AtomicU64::new(0));
        let what = "the calendar of other managers could not be looked at";
        self.again(TEND, what, move |composer| {
            let calendar = calendar.clone();
            async move { composer.follow_calendar(&calendar).await }
        });
        Ok(())
    }

    /// Refuses to serve while another manager with the same data directory id is alive: one of the two directories is a
    /// copy of the other.
    async fn refuse_copied_directory(&self, leases: &Leases) -> Result<(), ServiceError> {
        let Some(other) = leases.living_copy(self.clock.now()).await? else {
            return Ok(());
        };
        let message = format!(
            "manager {} ({}), which runs since {}, has the same data directory id ({}): one of the two directories is a \
             copy of the other, so this manager does not serve",
            other.name, other.who.id, other.started, other.who.home
        );
        Err(ServiceError::new(ErrorCode::Conflict, message).with_hint(
            "give this manager a data directory of its own: start it with --data-dir and a new folder",
        ))
    }

    /// Acts again and again, with a pause before each, for as long as the composer is there.
    fn again<F>(&self, pause: Duration, what_failed: &'static str, act: impl Fn(Self) -> F + Send + 'static)
    where
        F: Future<Output = Result<(), ServiceError>> + Send,
    {
        let parts = Arc::downgrade(&self.parts);
        self.go_on(async move {
            // What is as it was is not told again.
            let mut told: Option<String> = None;
            loop {
                tokio::time::sleep(pause).await;
                let Some(composer) = Self::within(&parts) else {
                    return;
                };
                let failed = act(composer).await.err().map(|error| error.to_string());
                if failed != told {
                    match &failed {
                        Some(error) => tracing::warn!("{what_failed}: {error}"),
                        None => tracing::info!("no more of this: {what_failed}"),
                    }
                    told = failed;
                }
            }
        });
    }

    async fn round(&self, leases: &Arc<Leases>) -> Result<(), ServiceError> {
        let mut kept: BTreeSet<ControlEndpointId> = self.kept_endpoints().await?.into_iter().collect();
        self.connections.agents.recall().await?;
        kept.extend(self.connections.agents.endpoints());
        let round = leases.round(&kept, &|| self.busy_at(), self.clock.now()).await;
        // Whatever came of the rest of it.
        for taken in leases.to_cut_off() {
            self.cut_off(leases.clone(), taken);
        }
        let round = round?;
        for endpoint in &round.handed_over {
            self.executor.let_go_of(endpoint);
        }
        for endpoint in leases.overdue() {
            self.executor.give_way(&endpoint);
        }
        Ok(())
    }

    /// Endpoints that may not change hands now.
    fn busy_at(&self) -> BTreeSet<ControlEndpointId> {
        let mut busy = self.executor.busy_at();
        busy.extend(self.rotating_at());
        busy
    }

    /// Adopts what nobody works at and is in charge here.
    async fn adopt(&self) -> Result<(), ServiceError> {
        match self.is_at(Stage::Closed) {
            true => Ok(()),
            false => self.take_up_operations().await,
        }
    }

    /// Does what was asked elsewhere of operations here, side by side: some of it waits for hardware.
    async fn obey(&self) -> Result<(), ServiceError> {
        if self.is_at(Stage::Closed) {
            return Ok(());
        }
        for order in self.executor.take_orders().await? {
            let executor = Arc::downgrade(&self.executor);
            self.go_on(async move {
                let Some(executor) = executor.upgrade() else {
                    return;
                };
                if let Err(error) = executor.carry_out(order).await {
                    tracing::warn!("what came of an order could not be told: {error}");
                }
            });
        }
        Ok(())
    }

    /// Somebody may have changed the calendar at another manager.
    async fn follow_calendar(&self, seen: &AtomicU64) -> Result<(), ServiceError> {
        let revision = self.calendar_change().await?.map_or(0, |change| change.revision);
        if seen.swap(revision, Ordering::Relaxed) != revision {
            self.calendar_changed.notify_one();
        }
        Ok(())
    }

    /// Ends the sessions that a dead manager left at an endpoint, for as long as it takes and the endpoint is kept:
    /// nothing is sent there before.
    fn cut_off(&self, leases: Arc<Leases>, taken: Takeover) {
        let parts = Arc::downgrade(&self.parts);
        self.go_on(async move {
            loop {
                let Some(connections) = parts.upgrade().map(|parts| parts.connections.clone()) else {
                    return;
                };
                let cut = end_sessions(&connections, &taken.endpoint).await;
                drop(connections);
                let Some(composer) = Self::within(&parts) else {
                    return;
                };
                if composer.is_cut_off(&leases, &taken, cut).await {
                    return;
                }
                drop(composer);
                tokio::time::sleep(CUT).await;
            }
        });
    }

    /// Takes note of how a try went to end the sessions of the manager before. Says whether it was the last.
    async fn is_cut_off(
        &self,
        leases: &Leases,
        taken: &Takeover,
        cut: Result<Option<CutOff>, DriverError>,
    ) -> bool {
        let endpoint = &taken.endpoint;
        match cut {
            Ok(Some(cut)) => {
                tracing::info!(%endpoint, ?cut, "what the manager before may have sent is cut off");
                match self.beware_of_latecomers(endpoint, cut).await {
                    Ok(()) => {
                        leases.cut_off(taken);
                        return true;
                    }
                    Err(error) => {
                        tracing::warn!(%endpoint, "what may come late is not written down yet: {error}");
                    }
                }
            }
            Ok(None) => match leases.abandon(taken, self.clock.now()).await {
                Ok(()) => {
                    tracing::info!(%endpoint, "it is not kept any more: nothing is to be cut off there");
                    return true;
                }
                Err(error) => tracing::warn!(%endpoint, "its lease could not be given up yet: {error}"),
            },
            Err(error) => {
                tracing::warn!(%endpoint, %error, "the sessions of the manager before are not ended yet");
            }
        }
        false
    }

    async fn beware_of_latecomers(
        &self,
        endpoint: &ControlEndpointId,
        cut: CutOff,
    ) -> Result<(), ServiceError> {
        if cut != CutOff::NoSessions {
            return Ok(());
        }
        tracing::warn!(%endpoint, "it has no sessions to end: a late request of the manager before is found by read-back");
        self.note_latecomers(endpoint).await
    }

    /// Waits until it is for this manager to recompose by the calendar.
    pub(crate) async fn has_calendar(&self) {
        while self.leases.as_ref().is_some_and(|leases| !leases.has_calendar()) {
            tokio::time::sleep(TEND).await;
        }
    }

    /// Ends in order: others take over at once. Not where something is still on its way.
    pub(super) async fn give_back(&self, nothing_on_its_way: bool) {
        let Some(leases) = &self.leases else { return };
        if !nothing_on_its_way {
            return;
        }
        if let Err(error) = leases.give_back(self.clock.now()).await {
            tracing::warn!("the leases could not be given back; others wait for them to end: {error}");
        }
    }
}

/// `None`: the endpoint is not kept any more.
async fn end_sessions(
    connections: &Connections,
    endpoint: &ControlEndpointId,
) -> Result<Option<CutOff>, DriverError> {
    if connections.agents.endpoints().contains(endpoint) {
        // It has no sessions: whoever asks it under an older lease than it has heard of is refused.
        return Ok(Some(CutOff::Ended(0)));
    }
    match connections.fabric(endpoint).await? {
        Some(fabric) => fabric.end_other_sessions(CUT).await.map(Some),
        None => Ok(None),
    }
}
