//! Ending the claim on GPUs that are gone, so that the rest of a composition can be let go of.
//!
//! A GPU that isn't seen, or is bound where nobody of ours put it, can't be released: nothing that we could ask
//! would tell. Somebody who knows better says so, with a reason. What is given up counts as not reset since it was
//! held: if it comes back it is dirty, and foreign where it is bound.

use super::Composer;
use super::changing::Release;
use super::planning::Basis;
use crate::error::ServiceError;
use poolwright_executor::{Claim, CompositionRecord, GpuRecord};
use poolwright_model::id::{CompositionId, ControlEndpointId, GpuId};
use poolwright_model::lifecycle::GpuState;
use poolwright_planner::{Composition, Held, direct};
use poolwright_store::{Batch, Stored, Versioned, read};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Composer {
    /// The management services through which a demand or a composition is held.
    pub(super) async fn endpoints_that_hold(
        &self,
        what: &Release,
    ) -> Result<BTreeSet<ControlEndpointId>, ServiceError> {
        let named = |c: &&Composition| match what {
            Release::Demand(id) => c.demand.as_ref() == Some(id),
            Release::Composition(id) => c.id == *id,
        };
        let compositions = self.compositions().await?;
        let held = compositions.iter().filter(named).flat_map(|c| &c.held);
        Ok(held.map(|held| held.unit_at.endpoint.clone()).collect())
    }

    /// Takes what is lost out of a composition and of all others of its demand, and puts into the batch that they
    /// hold it no more. Returns the GPUs that are given up.
    pub(super) async fn give_up_lost(
        &self,
        basis: &mut Basis,
        composition: &CompositionId,
        batch: &mut Batch,
    ) -> Result<Vec<GpuId>, ServiceError> {
        let lost = direct::lost(composition, &self.input(basis));
        for (id, units) in &lost {
            let Some(found) = read::<CompositionRecord>(self.store.as_ref(), id.as_str()).await? else {
                continue;
            };
            self.write_off(found, units, batch).await?;
        }
        let stand = Arc::make_mut(&mut basis.held);
        for composition in stand.iter_mut() {
            if let Some(units) = lost.get(&composition.id) {
                composition.held.retain(|held| !units.contains(held));
            }
        }
        stand.retain(|composition| !composition.held.is_empty());
        let gpus = lost.values().flatten().flat_map(|held| held.gpus.iter().cloned());
        Ok(gpus.collect())
    }

    async fn write_off(
        &self,
        found: Versioned<CompositionRecord>,
        units: &[Held],
        batch: &mut Batch,
    ) -> Result<(), ServiceError> {
        let Versioned { mut value, revision } = found;
        batch.expect(CompositionRecord::KIND, value.id(), Some(revision));
        let is_lost = |held: &Held| units.iter().any(|lost| lost.unit == held.unit);
        value.composition.held.retain(|held| !is_lost(held));
        for held in units {
            value.evidence.remove(&held.unit);
            batch.expect(Claim::KIND, held.unit.as_str(), None);
            for gpu in &held.gpus {
                self.to_be_reset(gpu, &value, held, batch).await?;
            }
        }
        match value.composition.held.is_empty() {
            true => batch.delete(CompositionRecord::KIND, value.id()),
            false => batch.put(&value)?,
        };
        Ok(())
    }

    async fn to_be_reset(
        &self,
        gpu: &GpuId,
        holder: &CompositionRecord,
        held: &Held,
        batch: &mut Batch,
    ) -> Result<(), ServiceError> {
        let known = read::<GpuRecord>(self.store.as_ref(), gpu.as_str()).await?;
        let revision = known.as_ref().map(|known| known.revision);
        batch.expect(GpuRecord::KIND, gpu.as_str(), revision);
        batch.put(&GpuRecord {
            gpu: gpu.clone(),
            unit: held.unit.clone(),
            state: GpuState::Dirty,
            was_attached: false,
            clean: false,
            host: None,
            host_port: None,
            composition: None,
            tenant: holder.composition.tenant.clone(),
            learned: known.as_ref().and_then(|known| known.value.learned.clone()),
            learned_before: known
                .as_ref()
                .and_then(|known| known.value.learned_before.clone()),
            left: known
                .as_ref()
                .map(|known| known.value.left.clone())
                .unwrap_or_default(),
            operation: known.and_then(|known| known.value.operation),
            since: self.clock.now(),
        })?;
        Ok(())
    }
}
