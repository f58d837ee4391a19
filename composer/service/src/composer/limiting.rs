//! Limits of automation: each automatic operation is noted with its submission, in one commit, and the next
//! recomposition by the calendar is measured against those of the last hour. Jobs of the queue are requests: their
//! operations count for failures in a row, and not for limits.

use super::Composer;
use crate::error::{ErrorCode, ServiceError};
use crate::limits::{Counted, Exceeded, Limits, Moves, NewLimits, Ran, judge, moved, next_expiry, spent};
use poolwright_executor::{Operation, OperationKind};
use poolwright_model::id::{CompositionId, GpuId, HostId, OperationId, TenantId};
use poolwright_model::step::{Step, Verb};
use poolwright_planner::Plan;
use poolwright_store::{Batch, StoreError, Stored, read};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The limits, and what ran by itself within them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitsStatus {
    #[serde(flatten)]
    pub limits: Limits,
    /// Moves by itself in the last hour.
    pub moved: u32,
    /// Of the host, the tenant and the GPU that had the most of them.
    pub moved_most: MovedMost,
    /// Operations in a row that ran by themselves and ended badly, so far.
    pub failed: u32,
}

/// GPUs and hosts of which the limits leave no move now.
#[derive(Debug, Clone, Default)]
pub(super) struct Spent {
    pub gpus: BTreeSet<GpuId>,
    pub hosts: BTreeSet<HostId>,
}

/// The most moves that any one had.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MovedMost {
    pub host: u32,
    pub tenant: u32,
    pub gpu: u32,
}

impl Composer {
    /// What may happen by itself, and how much of it did in the last hour.
    #[crate::boxed]
    pub async fn limits(&self) -> Result<LimitsStatus, ServiceError> {
        let ran = self.ran().await?;
        let now = self.clock.now();
        let mut most = MovedMost::default();
        let counts = ran.iter().filter(|ran| ran.counts(now));
        for whose in counts.flat_map(|ran| ran.moves.whose()) {
            let most = match whose {
                Counted::All => continue,
                Counted::Host(_) => &mut most.host,
                Counted::Tenant(_) => &mut most.tenant,
                Counted::Gpu(_) => &mut most.gpu,
            };
            *most = (*most).max(moved(&ran, whose, now));
        }
        let limits = self.kept_limits().await?;
        let failed = self.failed_in_a_row(limits.failures).await?.len();
        Ok(LimitsStatus {
            limits,
            failed: u32::try_from(failed).unwrap_or(u32::MAX),
            moved: moved(&ran, &Counted::All, now),
            moved_most: most,
        })
    }

    /// Sets some limits, and tries at once what they held back.
    #[crate::boxed]
    pub async fn set_limits(&self, new: &NewLimits) -> Result<LimitsStatus, ServiceError> {
        let limits = self.put_limits(new).await?;
        tracing::info!(?limits, "limits of what runs by itself");
        self.calendar_changed.notify_one();
        self.queue_changed.notify_one();
        self.limits().await
    }

    /// What others set meanwhile stays.
    async fn put_limits(&self, new: &NewLimits) -> Result<Limits, ServiceError> {
        /// Each but the last finds that somebody else has just set some.
        const TRIES: usize = 8;
        let mut tries = 0;
        loop {
            let found = read::<Limits>(self.store.as_ref(), Limits::default().id()).await?;
            let revision = found.as_ref().map(|found| found.revision);
            let limits = found.map(|found| found.value).unwrap_or_default();
            let limits = limits.with(new).map_err(ServiceError::bad_request)?;
            let mut batch = Batch::new();
            batch.expect(Limits::KIND, limits.id(), revision).put(&limits)?;
            tries += 1;
            match self.store.commit(batch).await {
                Err(StoreError::Conflict { .. }) if tries < TRIES => {}
                Err(error @ StoreError::Conflict { .. }) => {
                    return Err(
                        ServiceError::from(error).with_hint("somebody else sets limits just now; try again")
                    );
                }
                committed => return committed.map(|_| limits).map_err(ServiceError::from),
            }
        }
    }

    pub(super) async fn kept_limits(&self) -> Result<Limits, ServiceError> {
        let found = read::<Limits>(self.store.as_ref(), Limits::default().id()).await?;
        Ok(found.map(|found| found.value).unwrap_or_default())
    }

    /// Refuses a recomposition by the calendar that exceeds a limit; notes in the batch that the operation began. To be
    /// called with the turn.
    pub(super) async fn within_limits(
        &self,
        id: &OperationId,
        kind: OperationKind,
        plan: &Plan,
        with: &mut Batch,
    ) -> Result<(), ServiceError> {
        let now = self.clock.now();
        let mut automatic = self.automatic().await?;
        if automatic.come_back_to(now) {
            let mut batch = Batch::new();
            automatic.put_into(&mut batch)?;
            self.store.commit(batch).await?;
        }
        let is_limited = kind != OperationKind::Queue;
        if is_limited && let Some(exceeded) = self.exceeds(plan).await? {
            return Err(ServiceError::new(ErrorCode::Conflict, exceeded.to_string()));
        }
        let mut automatic = self.automatic().await?;
        automatic.add(id, is_limited, now);
        automatic.put_into(with)?;
        Ok(())
    }

    /// The limit that keeps this from beginning now, if one does.
    pub(super) async fn exceeds(&self, plan: &Plan) -> Result<Option<Exceeded>, ServiceError> {
        let (limits, ran) = (self.kept_limits().await?, self.ran().await?);
        Ok(judge(&limits, &ran, &moves_of_plan(plan), self.clock.now()).err())
    }

    /// GPUs and hosts that no recomposition by the calendar may move now.
    pub(super) async fn spent(&self) -> Result<Spent, ServiceError> {
        let (limits, ran) = (self.kept_limits().await?, self.ran().await?);
        let mut all = Spent::default();
        for whose in spent(&limits, &ran, self.clock.now()) {
            match whose {
                Counted::Gpu(gpu) => drop(all.gpus.insert(gpu.clone())),
                Counted::Host(host) => drop(all.hosts.insert(host.clone())),
                Counted::All | Counted::Tenant(_) => {}
            }
        }
        Ok(all)
    }

    /// Time until the next limit expires; `None` if no recent move counts against a limit.
    pub(crate) async fn next_limit_expiry(&self) -> Result<Option<Duration>, ServiceError> {
        let (limits, ran) = (self.kept_limits().await?, self.ran().await?);
        let now = self.clock.now();
        let at = next_expiry(&limits, &ran, now);
        Ok(at.and_then(|at| Duration::try_from(at.duration_since(now)).ok()))
    }

    /// Limited operations of the last hour.
    async fn ran(&self) -> Result<Vec<Ran>, ServiceError> {
        let now = self.clock.now();
        let mut ran = Vec::new();
        let begun = self.automatic().await?.begun;
        for begun in begun.into_iter().filter(|begun| begun.limited) {
            let mut one = Ran {
                at: begun.at,
                moves: Moves::default(),
            };
            if one.counts(now) {
                one.moves = self
                    .begun(&begun)
                    .await?
                    .as_ref()
                    .map(moves_of)
                    .unwrap_or_default();
                ran.push(one);
            }
        }
        Ok(ran)
    }
}

/// What an operation has moved; all that it is to move, for as long as it is not over.
fn moves_of(operation: &Operation) -> Moves {
    let over = operation.state.has_ended();
    let moved = operation
        .steps
        .iter()
        .filter(|record| !over || record.has_moved());
    moves(moved.map(|record| (&record.step, record.tenant.as_ref())))
}

fn moves_of_plan(plan: &Plan) -> Moves {
    let compositions = plan.releases.iter().chain(&plan.composes);
    let tenants: BTreeMap<&CompositionId, Option<&TenantId>> =
        compositions.map(|c| (&c.id, c.tenant.as_ref())).collect();
    let tenant = |step: &Step| tenants.get(step.composition.as_ref()?).copied().flatten();
    moves(plan.steps.iter().map(|step| (step, tenant(step))))
}

fn moves<'a>(steps: impl Iterator<Item = (&'a Step, Option<&'a TenantId>)>) -> Moves {
    let mut moved = BTreeMap::new();
    for (step, tenant) in steps.filter(|(step, _)| matches!(step.verb, Verb::Bind | Verb::Unbind)) {
        for gpu in &step.target.gpus {
            let (hosts, tenants): &mut (BTreeSet<_>, BTreeSet<_>) = moved.entry(gpu.clone()).or_default();
            hosts.insert(step.target.host.clone());
            tenants.extend(tenant.cloned());
        }
    }
    Moves::of(&moved)
}
