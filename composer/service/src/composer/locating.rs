//! The light that shows people where a GPU sits: lit when one fails and somebody has to go there, put out when it is
//! back in use or another one came in its place, and switched by hand.
//!
//! Nothing else depends on it: what came of it is written down with the GPU, and what did not is told there, and tried
//! again by the clock. It is switched at endpoints that were adopted and that nobody paused. What is wanted follows from what is written down at
//! that moment, so that two that come at once end with what was wanted last.

use super::Composer;
use crate::error::{ErrorCode, ServiceError};
use crate::quarantine::{Cause, History, Light, Quarantine};
use poolwright_driver::{ErrorKind, Whereabouts};
use poolwright_executor::{OperationKind, Pause, Paused};
use poolwright_model::id::{ControlEndpointId, GpuId};
use poolwright_model::topology::Gpu;
use poolwright_store::{Batch, read, read_all};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// For switching one, and reading it back.
const DEADLINE: Duration = Duration::from_secs(30);
/// Where what is wanted changes meanwhile.
const TRIES: usize = 5;
/// Who switches by itself.
const BY: &str = "the manager";

/// A light, with whom to ask for it.
struct Place {
    endpoint: ControlEndpointId,
    at: Whereabouts,
}

impl Composer {
    /// Lights the light of a GPU, or puts it out: somebody asks for it.
    pub async fn locate_gpu(&self, id: &GpuId, lit: bool, by: &str) -> Result<History, ServiceError> {
        self.switch_light(id, lit, by).await?;
        self.gpu_history(id).await
    }

    /// Sees to the light of a GPU that failed, came back or was replaced, beside everything else.
    pub(super) fn see_to_light(&self, gpu: &GpuId) {
        let (parts, gpu) = (Arc::downgrade(&self.parts), gpu.clone());
        self.go_on(async move {
            let Some(composer) = Self::within(&parts) else {
                return;
            };
            if let Err(error) = composer.settle_light(&gpu).await {
                tracing::warn!(%gpu, "whether its locator is to be lit can't be looked at: {error}");
            }
        });
    }

    /// The lights that nobody saw to, as their manager stopped after it took the GPU out of use; and those that could not
    /// be switched at their time.
    pub(super) async fn see_to_lights(&self) -> Result<(), ServiceError> {
        let lights = read_all::<Light>(self.store.as_ref()).await?.into_iter();
        let lights: BTreeMap<GpuId, Light> =
            lights.map(|kept| (kept.value.gpu.clone(), kept.value)).collect();
        let now = self.clock.now();
        let due = lights.values().filter(|light| light.is_due(now));
        let mut waiting: BTreeSet<GpuId> = due.map(|light| light.gpu.clone()).collect();
        let failed = self.quarantined().await?.into_iter().filter(shows);
        let unseen = failed.filter(|of| lights.get(&of.gpu).is_none_or(|light| light.at < of.since));
        waiting.extend(unseen.map(|of| of.gpu));
        for gpu in waiting {
            self.settle_light(&gpu).await?;
        }
        Ok(())
    }

    async fn settle_light(&self, gpu: &GpuId) -> Result<(), ServiceError> {
        let mut done = None;
        for _ in 0..TRIES {
            let (failed, last) = (self.lit_for(gpu).await?, self.light_kept(gpu).await?);
            if done == Some(failed.is_some()) {
                return Ok(());
            }
            // What was never lit from here may be lit for somebody else; or somebody has switched it since.
            let is_settled = match (&failed, &last) {
                (_, Some(last)) if last.is_due(self.clock.now()) => false,
                (None, last) => !last.as_ref().is_some_and(|last| last.lit),
                (Some(failed), last) => last.as_ref().is_some_and(|last| last.at > failed.since),
            };
            if is_settled {
                return Ok(());
            }
            done = Some(failed.is_some());
            // What did not come about is written down, and may not be wanted any more.
            if let Err(error) = self.switch_light(gpu, failed.is_some(), BY).await {
                tracing::warn!(%gpu, "its locator is not as it should be: {error}");
            }
        }
        Ok(())
    }

    /// The quarantine for which it is to be lit.
    async fn lit_for(&self, gpu: &GpuId) -> Result<Option<Quarantine>, ServiceError> {
        let failed = read::<Quarantine>(self.store.as_ref(), gpu.as_str()).await?;
        let failed = failed.map(|failed| failed.value).filter(shows);
        let (history, _) = self.gpu_history_of(gpu).await?;
        Ok(failed.filter(|_| history.replaced_by.is_none()))
    }

    /// What was done about it last.
    pub(super) async fn light_kept(&self, gpu: &GpuId) -> Result<Option<Light>, ServiceError> {
        let found = read::<Light>(self.store.as_ref(), gpu.as_str()).await?;
        Ok(found.map(|found| found.value))
    }

    /// Switches it, and writes down what came of that.
    async fn switch_light(&self, gpu: &GpuId, lit: bool, by: &str) -> Result<(), ServiceError> {
        // One after the other: each may have an endpoint looked at, and the last that was switched is the last that is told.
        let _light = self.lights.lock().await;
        let last = self.light_kept(gpu).await?;
        let seen = self.known_gpu(gpu).await;
        let place = match (&seen, &last) {
            (Ok(seen), last) => place_of(seen).or_else(|| last.as_ref().and_then(place_before)),
            (Err(_), Some(last)) => place_before(last),
            (Err(error), None) if by != BY => return Err(error.clone()),
            (Err(_), None) => None,
        };
        // Where another manager is in charge that one sees to it, and nothing is written down here.
        if let Some(place) = &place {
            self.in_charge(&place.endpoint)?;
        }
        let switched = match &place {
            // What is lit there by now is not its light.
            Some(place) if !lit && self.is_lit_for_another(gpu, place, last.as_ref()).await? => Ok(()),
            Some(place) => match self.switch(place, lit, by).await {
                Err(error) if !lit && error.code == ErrorCode::Conflict => {
                    self.put_out_beside_successor(gpu, place, by, error).await
                }
                switched => switched,
            },
            None => Err(ServiceError::new(
                ErrorCode::Conflict,
                format!("no manager shows where GPU {gpu} sits"),
            )
            .with_hint("poolwright describe gpu says who shows it")),
        };
        let again = last.filter(|last| last.lit == lit).map_or(0, |last| last.tries);
        let tries = match by == BY && switched.is_err() {
            true => again.saturating_add(1),
            false => 0,
        };
        let light = Light {
            gpu: gpu.clone(),
            at: self.clock.now(),
            by: by.to_owned(),
            lit,
            failed: switched.as_ref().err().map(ToString::to_string),
            endpoint: place.as_ref().map(|place| place.endpoint.clone()),
            place: place.map(|place| place.at).unwrap_or_default(),
            tries,
        };
        // The latest counts, whoever else notes one.
        let mut batch = Batch::new();
        batch.put(&light)?;
        self.store.commit(batch).await?;
        switched?;
        let endpoint = light.endpoint.into_iter().collect();
        // What is shown of it is as old as the last look; it is switched all the same.
        if let Err(error) = self.look_again(&endpoint).await {
            tracing::info!(%gpu, "its locator is not looked at again: {error}");
        }
        Ok(())
    }

    /// Whether another GPU came to where this one was lit, and was lit there since.
    async fn is_lit_for_another(
        &self,
        gpu: &GpuId,
        place: &Place,
        last: Option<&Light>,
    ) -> Result<bool, ServiceError> {
        let Some(last) = last else {
            return Ok(false);
        };
        let lights = read_all::<Light>(self.store.as_ref()).await?;
        let mut others = lights.iter().map(|kept| &kept.value);
        Ok(others.any(|other| {
            let same = |of: &Whereabouts| (of.locator.clone(), of.chassis.clone(), of.slot.clone());
            let is_there =
                other.endpoint.as_ref() == Some(&place.endpoint) && same(&other.place) == same(&place.at);
            other.gpu != *gpu && is_there && other.lit && other.failed.is_none() && other.at > last.at
        }))
    }

    /// What shows another one by now is left as it is, for somebody may have lit it by hand for that one; unless that came
    /// in the place of this one, and nobody has to go there any more.
    async fn put_out_beside_successor(
        &self,
        gpu: &GpuId,
        place: &Place,
        by: &str,
        refused: ServiceError,
    ) -> Result<(), ServiceError> {
        let (history, _) = self.gpu_history_of(gpu).await?;
        let Some(successor) = history.replaced_by else {
            return Err(refused);
        };
        let Ok(successor) = self.known_gpu(&successor.gpu).await else {
            return Err(refused);
        };
        let shown = successor.locator.and_then(|light| light.serial);
        let Some(serial) = shown.or(successor.serial) else {
            return Err(refused);
        };
        let (endpoint, mut at) = (place.endpoint.clone(), place.at.clone());
        at.serial = Some(serial);
        self.switch(&Place { endpoint, at }, false, by)
            .await
            .map_err(|_| refused)
    }

    async fn switch(&self, place: &Place, lit: bool, by: &str) -> Result<(), ServiceError> {
        let Place { endpoint, at } = place;
        if self.observed().await?.contains(endpoint) {
            let message = format!("endpoint {endpoint} is only observed");
            return Err(ServiceError::new(ErrorCode::Conflict, message)
                .with_hint(format!("adopt it first: poolwright endpoint adopt {endpoint}")));
        }
        let Some(fabric) = self.reach(endpoint).await? else {
            let message = format!("endpoint {endpoint} can't be reached");
            return Err(ServiceError::new(ErrorCode::Unavailable, message)
                .with_hint(format!("see why: poolwright describe endpoint {endpoint}")));
        };
        // A pause stops at the last moment.
        let pauses = self.pauses().await?;
        let holds = |pause: &&Pause| {
            pause.holds(OperationKind::Attach, endpoint) || by == BY && pause.what == Paused::Automation
        };
        if let Some(pause) = pauses.iter().find(holds) {
            return Err(ServiceError::new(ErrorCode::Conflict, pause.to_string())
                .with_hint("poolwright resume lets it go on"));
        }
        self.in_charge(endpoint)?;
        match fabric.locate(at, lit, DEADLINE).await {
            Err(error) if error.kind == ErrorKind::CannotTell => {
                let message = format!("{endpoint} can switch no locator of it: {error}");
                let by_hand = "go by its slot and its serial number: poolwright gpu history";
                let hint = error.hint.unwrap_or_else(|| by_hand.to_owned());
                Err(ServiceError::new(ErrorCode::Conflict, message).with_hint(hint))
            }
            done => Ok(done?),
        }
    }
}

/// Whether somebody has to go where it sits. What its last host has left on it can be seen to from afar.
fn shows(quarantine: &Quarantine) -> bool {
    quarantine.cause != Cause::Unclean
}

/// Its own manager, else the one that can bind it.
fn place_of(gpu: &Gpu) -> Option<Place> {
    let light = gpu.locator.as_ref();
    let endpoint = light.map(|light| &light.endpoint);
    let endpoint = endpoint.or_else(|| gpu.control.first().map(|at| &at.endpoint))?;
    // Two boxes may call what they are the same; then it is told apart by who says so.
    let chassis = gpu.chassis.as_ref().map(|chassis| chassis.as_str());
    let own = format!("{endpoint}:");
    let chassis = chassis.map(|chassis| chassis.strip_prefix(&own).unwrap_or(chassis));
    Some(Place {
        endpoint: endpoint.clone(),
        at: Whereabouts {
            locator: light.map(|light| light.address.clone()),
            chassis: chassis.map(str::to_owned),
            slot: gpu.slot.clone(),
            serial: light.and_then(|light| light.serial.clone()),
        },
    })
}

fn place_before(light: &Light) -> Option<Place> {
    Some(Place {
        endpoint: light.endpoint.clone()?,
        at: light.place.clone(),
    })
}
