//! Binding again what a fabric lost, at the endpoints where that is the policy, and wherever a late request of another
//! manager may have done it; elsewhere it is only told.
//!
//! Only what is held and bound to nothing is bound again: what is bound elsewhere is somebody's. It is done by an
//! operation of its own kind, a few GPUs of an endpoint at a time, and never fought over: what was bound again and is
//! unbound time and again is left alone until somebody says otherwise. A repair that did not come to bind it is no such
//! time: it is tried again, later each time.

use super::Composer;
use super::planning::{How, Wanted};
use super::requests::Request;
use crate::drift::DriftKind;
use crate::endpoint::{Endpoint, Repair, Standing};
use crate::error::ServiceError;
use jiff::{SignedDuration, Timestamp};
use poolwright_executor::{Operation, OperationKind, OperationState, StepState};
use poolwright_model::id::{CompositionId, ControlEndpointId, GpuId, OperationId, UnitId};
use poolwright_model::step::Verb;
use poolwright_planner::{Held, direct};
use poolwright_store::{Batch, Stored, read, read_all};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Units of one endpoint that are bound again between two polls.
const AT_ONCE: usize = 4;
/// What is unbound once more after so many repairs within an hour is left alone.
const REPAIRS: usize = 3;
const WITHIN: SignedDuration = SignedDuration::from_hours(1);

/// From a repair that failed to the next; twice as long each time.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_mins(1);
const LAST_PAUSE: SignedDuration = SignedDuration::from_mins(30);

/// When a unit was bound again, and whether that has stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Repaired {
    unit: UnitId,
    gpus: Vec<GpuId>,
    endpoint: ControlEndpointId,
    /// Within the last hour before the last repair.
    times: Vec<Timestamp>,
    /// The last repair, until it is known what came of it.
    #[serde(default)]
    last: Option<OperationId>,
    /// Repairs in a row that did not bind it, and when the next may begin.
    #[serde(default)]
    failures: u32,
    #[serde(default)]
    not_before: Option<Timestamp>,
    /// It is left alone until somebody lets it go on.
    held_back: bool,
}

impl Stored for Repaired {
    const KIND: &'static str = "repaired";
    fn id(&self) -> &str {
        self.unit.as_str()
    }
}

impl Repaired {
    /// Takes in what came of the last repair; one that nobody knows of any more is taken for done.
    fn came_of(&mut self, operation: Option<&Operation>, now: Timestamp) {
        let is_bound = |operation: &Operation| {
            operation.state == OperationState::Completed
                || operation.steps.iter().any(|record| {
                    record.step.verb == Verb::Bind
                        && record.step.target.unit == self.unit
                        && record.state == StepState::Done
                })
        };
        let Some(failed) = operation.filter(|operation| !is_bound(operation)) else {
            self.times
                .push(operation.and_then(|done| done.ended).unwrap_or(now));
            (self.failures, self.not_before) = (0, None);
            return;
        };
        let pause = FIRST_PAUSE
            .saturating_mul(1 << self.failures.min(8))
            .min(LAST_PAUSE);
        self.failures += 1;
        self.not_before = failed.ended.unwrap_or(now).checked_add(pause).ok();
    }
}

impl Composer {
    /// Sets what is done about a GPU that is held and bound to nothing. What was left alone there may be repaired
    /// again.
    #[crate::boxed]
    pub async fn set_repair(&self, id: &ControlEndpointId, policy: Repair) -> Result<Endpoint, ServiceError> {
        let found = self.kept_endpoint(id).await?;
        let mut batch = Batch::new();
        batch.expect(Endpoint::KIND, id.as_str(), Some(found.revision));
        batch.put(&Endpoint {
            repair: policy,
            ..found.value
        })?;
        for known in self
            .repaired()
            .await?
            .iter()
            .filter(|known| known.endpoint == *id)
        {
            batch.delete(Repaired::KIND, known.id());
        }
        self.store.commit(batch).await?;
        self.endpoint(id).await
    }

    async fn repaired(&self) -> Result<Vec<Repaired>, ServiceError> {
        let found = read_all::<Repaired>(self.store.as_ref()).await?;
        Ok(found.into_iter().map(|found| found.value).collect())
    }

    /// Why GPUs are left alone although they should be bound again.
    pub(super) async fn held_back(&self) -> Result<BTreeMap<GpuId, String>, ServiceError> {
        let held_back = self.repaired().await?.into_iter().filter(|known| known.held_back);
        let told = held_back.flat_map(|known| {
            let why = format!(
                "bound again {} times within an hour and unbound each time: left alone until poolwright endpoint \
                 set {} --repair rebind",
                known.times.len(),
                known.endpoint
            );
            known.gpus.into_iter().map(move |gpu| (gpu, why.clone()))
        });
        Ok(told.collect())
    }

    /// Repairs what may be repaired, for as long as the pool is polled.
    pub(crate) async fn keep_repairing(&self) {
        let Some(every) = self.options.poll else {
            return std::future::pending().await;
        };
        loop {
            self.has_calendar().await;
            tokio::time::sleep(every.max(Duration::from_secs(1))).await;
            if let Err(error) = self.undo_latecomers().await {
                tracing::warn!("what came late can't be undone: {error}");
            }
            if let Err(error) = self.repair().await {
                tracing::warn!("what is not bound as recorded can't be repaired: {error}");
            }
        }
    }

    /// Begins an operation for each composition of which something may be repaired.
    async fn repair(&self) -> Result<(), ServiceError> {
        let kept = read_all::<Endpoint>(self.store.as_ref()).await?.into_iter();
        let adopted = kept
            .map(|kept| kept.value)
            .filter(|kept| kept.standing == Standing::Adopted);
        let (always, seldom): (Vec<_>, Vec<_>) = adopted.partition(|kept| kept.repair == Repair::Rebind);
        let late = self.late_units().await?;
        if always.is_empty() && late.is_empty() {
            return Ok(());
        }
        let seldom: BTreeSet<ControlEndpointId> = seldom.into_iter().map(|kept| kept.spec.id).collect();
        let always = always.into_iter().map(|kept| kept.spec.id);
        let mut places: BTreeMap<ControlEndpointId, usize> = always
            .chain(seldom.iter().cloned())
            .map(|id| (id, AT_ONCE))
            .collect();
        let mut lost = self.unbound().await?;
        for units in lost.values_mut() {
            units.retain(|held| late.contains(&held.unit) || !seldom.contains(&held.unit_at.endpoint));
        }
        self.less_under_way(&mut places).await?;
        for (composition, units) in lost {
            let mut chosen = Vec::new();
            for held in units {
                let Some(place) = places.get_mut(&held.unit_at.endpoint).filter(|left| **left > 0) else {
                    continue;
                };
                if let Some(repaired) = self.next_repair(&held).await? {
                    *place -= 1;
                    chosen.push(repaired);
                }
            }
            if !chosen.is_empty()
                && let Err(error) = self.bind_again(&composition, chosen).await
            {
                tracing::warn!(%composition, "what it lost is not bound again: {error}");
            }
        }
        Ok(())
    }

    /// What compositions hold and what is bound to nothing, as was read last.
    async fn unbound(&self) -> Result<BTreeMap<CompositionId, Vec<Held>>, ServiceError> {
        let snapshot = self.snapshot().await?;
        let drifts = self.drift_in(&snapshot).await?.into_iter();
        let unbound: BTreeSet<GpuId> = drifts
            .filter(|drift| drift.kind == DriftKind::Unbound)
            .map(|drift| drift.gpu)
            .collect();
        // What failed is not brought back: it may be a ghost.
        let failed: BTreeSet<GpuId> = self.books.pages().quarantined.keys().cloned().collect();
        let is_lost = |held: &Held| {
            held.gpus
                .iter()
                .all(|gpu| unbound.contains(gpu) && !failed.contains(gpu))
        };
        let compositions = self.compositions().await?.into_iter();
        let lost = compositions.map(|c| (c.id, c.held.into_iter().filter(is_lost).collect::<Vec<_>>()));
        Ok(lost.filter(|(_, held)| !held.is_empty()).collect())
    }

    /// What is being bound again just now has its place.
    async fn less_under_way(
        &self,
        places: &mut BTreeMap<ControlEndpointId, usize>,
    ) -> Result<(), ServiceError> {
        let claims = self.executor.claims().await?.into_iter();
        let repairs = claims.filter(|claim| claim.kind == OperationKind::Repair);
        let units: BTreeSet<UnitId> = repairs.map(|claim| claim.unit).collect();
        for held in self.compositions().await?.iter().flat_map(|c| &c.held) {
            if units.contains(&held.unit)
                && let Some(left) = places.get_mut(&held.unit_at.endpoint)
            {
                *left = left.saturating_sub(1);
            }
        }
        Ok(())
    }

    /// The next repair of a unit; `None` where it is not time yet, or it was bound again so often that it is left alone.
    async fn next_repair(&self, held: &Held) -> Result<Option<Repaired>, ServiceError> {
        let now = self.clock.now();
        let known = read::<Repaired>(self.store.as_ref(), held.unit.as_str()).await?;
        let mut repaired = known.map_or_else(
            || Repaired {
                unit: held.unit.clone(),
                gpus: held.gpus.clone(),
                endpoint: held.unit_at.endpoint.clone(),
                times: Vec::new(),
                last: None,
                failures: 0,
                not_before: None,
                held_back: false,
            },
            |known| known.value,
        );
        if repaired.held_back {
            return Ok(None);
        }
        if let Some(last) = repaired.last.take() {
            let last = self.executor.get(&last).await?;
            if last.as_ref().is_some_and(|last| !last.state.has_ended()) {
                return Ok(None);
            }
            repaired.came_of(last.as_ref(), now);
        }
        repaired
            .times
            .retain(|time| now.duration_since(*time).abs() <= WITHIN);
        repaired.held_back = repaired.times.len() >= REPAIRS;
        if repaired.held_back {
            tracing::warn!(unit = %repaired.unit, "unbound again after {REPAIRS} repairs within an hour: left alone");
        } else if repaired.not_before.is_none_or(|time| time <= now) {
            return Ok(Some(repaired));
        }
        let mut batch = Batch::new();
        batch.put(&repaired)?;
        self.store.commit(batch).await?;
        Ok(None)
    }

    async fn bind_again(&self, composition: &CompositionId, lost: Vec<Repaired>) -> Result<(), ServiceError> {
        let units: BTreeSet<UnitId> = lost.iter().map(|lost| lost.unit.clone()).collect();
        let how = How::default();
        let what = format!("repair composition {composition}");
        let request = Request::new(OperationKind::Repair, what, &units, "repair", &how)?;
        let _turn = self.turn.lock().await;
        let basis = self.basis(Wanted::Named).await?;
        let plan = direct::repair(&units, &self.input(&basis))?;
        let operation = self.new_operation();
        let mut with = Batch::new();
        for repaired in lost {
            with.put(&Repaired {
                last: Some(operation.clone()),
                ..repaired
            })?;
        }
        self.submit(request, operation, plan, with).await?;
        Ok(())
    }
}
