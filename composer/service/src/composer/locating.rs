//! The locator LED of a GPU. The manager switches it on when a GPU fails and needs a technician on site, and off when
//! the GPU is back in use or replaced. Operators switch it by hand.
//!
//! Nothing else depends on the LED. The GPU's record holds the result or the error, and the clock retries failures.
//! Only endpoints that are adopted and not paused are switched. Each attempt reads the desired state from the store, so
//! concurrent attempts end with the latest one.

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

/// Timeout for switching a locator and reading it back.
const DEADLINE: Duration = Duration::from_secs(30);
/// Attempts while the desired state changes.
const TRIES: usize = 5;
/// The actor of automatic changes.
const BY: &str = "the manager";

/// A locator, and the endpoint that switches it.
struct Place {
    endpoint: ControlEndpointId,
    at: Whereabouts,
}

impl Composer {
    /// Switches the locator of a GPU on or off at an operator's request.
    #[crate::boxed]
    pub async fn locate_gpu(&self, id: &GpuId, lit: bool, by: &str) -> Result<History, ServiceError> {
        self.switch_light(id, lit, by).await?;
        self.gpu_history(id).await
    }

    /// Updates the locator of a GPU that failed, came back or was replaced, in a background task.
    pub(super) fn see_to_light(&self, gpu: &GpuId) {
        let (parts, gpu) = (Arc::downgrade(&self.parts), gpu.clone());
        self.go_on(async move {
            let Some(composer) = Self::within(&parts) else {
                return;
            };
            if let Err(error) = composer.settle_light(&gpu).await {
                tracing::warn!(%gpu, "locator state not updated: {error}");
            }
        });
    }

    /// Updates the locators that their manager left pending when it stopped after it quarantined the GPU, and retries
    /// those that could not be switched.
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
        // A manager may have stopped before it put out the light of a GPU that is back in use.
        let lit = lights.values().filter(|light| light.lit && light.by == BY);
        waiting.extend(lit.map(|light| light.gpu.clone()));
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
            // A locator that this manager never switched on may be on for another reason; or an operator has switched
            // it since.
            let is_settled = match (&failed, &last) {
                (_, Some(last)) if last.is_due(self.clock.now()) => false,
                (None, last) => !last.as_ref().is_some_and(|last| last.lit),
                (Some(failed), last) => last.as_ref().is_some_and(|last| last.at > failed.since),
            };
            if is_settled {
                return Ok(());
            }
            done = Some(failed.is_some());
            // The record holds the failure, and the desired state may have changed.
            if let Err(error) = self.switch_light(gpu, failed.is_some(), BY).await {
                tracing::warn!(%gpu, "its locator is not as it should be: {error}");
            }
        }
        Ok(())
    }

    /// The quarantine that requires the locator.
    async fn lit_for(&self, gpu: &GpuId) -> Result<Option<Quarantine>, ServiceError> {
        let failed = read::<Quarantine>(self.store.as_ref(), gpu.as_str()).await?;
        let failed = failed.map(|failed| failed.value).filter(shows);
        let (history, _) = self.gpu_history_of(gpu).await?;
        Ok(failed.filter(|_| history.replaced_by.is_none()))
    }

    /// Record of the last attempt to switch the locator.
    pub(super) async fn light_kept(&self, gpu: &GpuId) -> Result<Option<Light>, ServiceError> {
        let found = read::<Light>(self.store.as_ref(), gpu.as_str()).await?;
        Ok(found.map(|found| found.value))
    }

    /// Switches the locator and records the result.
    async fn switch_light(&self, gpu: &GpuId, lit: bool, by: &str) -> Result<(), ServiceError> {
        // Serialized, so that the last record is that of the last switch; each switch may also poll an endpoint.
        let _light = self.lights.lock().await;
        let last = self.light_kept(gpu).await?;
        let seen = self.known_gpu(gpu).await;
        let place = match (&seen, &last) {
            (Ok(seen), last) => place_of(seen).or_else(|| last.as_ref().and_then(place_before)),
            (Err(_), Some(last)) => place_before(last),
            (Err(error), None) if by != BY => return Err(error.clone()),
            (Err(_), None) => None,
        };
        // If another manager holds the endpoint's lease, that manager switches the locator, and this one records
        // nothing.
        if let Some(place) = &place {
            self.in_charge(&place.endpoint)?;
        }
        let switched = match &place {
            // The locator is now on for another GPU.
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
        // The last write wins, also over other managers.
        let mut batch = Batch::new();
        batch.put(&light)?;
        self.store.commit(batch).await?;
        switched?;
        let endpoint = light.endpoint.into_iter().collect();
        // The shown state is as old as the last poll. The switch succeeded even if this poll fails.
        if let Err(error) = self.look_again(&endpoint).await {
            tracing::info!(%gpu, "its locator is not looked at again: {error}");
        }
        Ok(())
    }

    /// Whether another GPU took this one's place and its locator was switched on there since.
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

    /// Switches off a locator that now shows another GPU, but only if that GPU replaced this one and no visit is needed
    /// any more. Otherwise an operator may have switched it on for the other GPU.
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

/// Whether the quarantine needs a visit on site. An unclean GPU can be cleaned remotely.
fn shows(quarantine: &Quarantine) -> bool {
    quarantine.cause != Cause::Unclean
}

/// The endpoint that reports the GPU's locator, else the first that can bind the GPU.
fn place_of(gpu: &Gpu) -> Option<Place> {
    let light = gpu.locator.as_ref();
    let endpoint = light.map(|light| &light.endpoint);
    let endpoint = endpoint.or_else(|| gpu.control.first().map(|at| &at.endpoint))?;
    // Two GPU boxes may have the same chassis id; the prefix of the endpoint tells them apart.
    let chassis = gpu.chassis.as_ref().map(|chassis| chassis.as_str());
    let own = format!("{endpoint}:");
    let chassis = chassis.map(|chassis| chassis.strip_prefix(&own).unwrap_or(chassis));
    Some(Place {
        endpoint: endpoint.clone(),
        at: Whereabouts {
            locator: light.map(|light| light.address.clone()),
            chassis: chassis.map(str::to_owned),
            slot: gpu.slot.clone(),
            // A slot shows no serial number of its own: the GPU's tells whether it still sits there.
            serial: light
                .and_then(|light| light.serial.clone())
                .or_else(|| gpu.serial.clone()),
        },
    })
}

fn place_before(light: &Light) -> Option<Place> {
    Some(Place {
        endpoint: light.endpoint.clone()?,
        at: light.place.clone(),
    })
}
