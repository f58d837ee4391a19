//! One of several managers: keeping alive, taking over from those that died, and working at what is in charge here.

use super::Composer;
use super::following::Tell;
use super::readiness::Stage;
use crate::error::ServiceError;
use crate::leases::{Leases, Takeover};
use poolwright_driver::CutOff;
use poolwright_model::id::ControlEndpointId;
use std::collections::BTreeSet;
use std::sync::Arc;
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
        self.round(&leases).await?;
        let parts = Arc::downgrade(&self.parts);
        self.go_on(async move {
            loop {
                tokio::time::sleep(leases.sharing().pause()).await;
                let Some(composer) = Self::within(&parts) else {
                    return;
                };
                if let Err(error) = composer.round(&leases).await {
                    tracing::warn!("this manager's leases could not be renewed: {error}");
                }
            }
        });
        let parts = Arc::downgrade(&self.parts);
        self.go_on(async move {
            let mut calendar = None;
            loop {
                tokio::time::sleep(TEND).await;
                let Some(composer) = Self::within(&parts) else {
                    return;
                };
                if let Err(error) = composer.tend(&mut calendar).await {
                    tracing::warn!("what other managers left could not be looked at: {error}");
                }
            }
        });
        Ok(())
    }

    async fn round(&self, leases: &Arc<Leases>) -> Result<(), ServiceError> {
        let kept: BTreeSet<ControlEndpointId> = self
            .endpoints()
            .await?
            .into_iter()
            .map(|kept| kept.spec.id)
            .collect();
        let round = leases
            .round(&kept, &self.executor.busy_at(), self.clock.now())
            .await?;
        for endpoint in &round.handed_over {
            self.executor.let_go_of(endpoint);
        }
        for taken in round.taken_over {
            self.cut_off(leases.clone(), taken);
        }
        Ok(())
    }

    /// Adopts what nobody works at and is in charge here, and does what was asked of it elsewhere.
    async fn tend(&self, calendar: &mut Option<u64>) -> Result<(), ServiceError> {
        // What was paused at another manager is paused here too.
        self.recall_pauses().await?;
        if self.is_at(Stage::Closed) {
            return Ok(());
        }
        for adopted in self.executor.recover().await?.adopted {
            self.follow(adopted, Tell::HoweverItEnds);
        }
        self.executor.obey().await?;
        // Somebody may have changed the calendar at another manager.
        let changed = self.calendar_change().await?.map(|change| change.revision);
        if changed != *calendar {
            *calendar = changed;
            self.calendar_changed.notify_one();
        }
        Ok(())
    }

    /// Ends the sessions that a dead manager left at an endpoint, for as long as it takes: nothing is sent there
    /// before.
    fn cut_off(&self, leases: Arc<Leases>, taken: Takeover) {
        let parts = Arc::downgrade(&self.parts);
        self.go_on(async move {
            loop {
                let Some(parts) = parts.upgrade() else { return };
                let connected = parts.connections.get(&taken.endpoint);
                drop(parts);
                let cut = match connected {
                    Some(connected) => connected
                        .fabric
                        .end_other_sessions(CUT)
                        .await
                        .map_err(|error| error.to_string()),
                    None => Err("it can't be reached".to_owned()),
                };
                match cut {
                    Ok(cut) => {
                        tracing::info!(endpoint = %taken.endpoint, ?cut, "what the manager before may have sent is cut off");
                        if cut == CutOff::NoSessions {
                            tracing::warn!(
                                endpoint = %taken.endpoint,
                                "it has no sessions to end: a late request of the manager before would be found by read-back"
                            );
                        }
                        leases.cut_off(&taken);
                        return;
                    }
                    Err(error) => {
                        tracing::warn!(endpoint = %taken.endpoint, error, "the sessions of the manager before are not ended yet");
                    }
                }
                tokio::time::sleep(CUT).await;
            }
        });
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
