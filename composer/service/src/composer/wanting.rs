//! What is wanted: demands, and the schedules that add and suspend them.

use super::Composer;
use crate::demand::{DemandRecord, DemandSpec, PoolKind};
use crate::error::{ErrorCode, ServiceError};
use crate::schedule::{Calendar, Schedule, ScheduleSpec, wanted};
use jiff::Timestamp;
use poolwright_inventory::Snapshot;
use poolwright_model::id::{DemandId, ScheduleId};
use poolwright_planner::Demand;
use poolwright_store::{Batch, Stored, read, read_all};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A schedule, and when it is next due.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleStatus {
    #[serde(flatten)]
    pub schedule: Schedule,
    pub open: bool,
    /// When it opens or closes next.
    pub next_change: Option<Timestamp>,
    pub next_openings: Vec<Timestamp>,
}

impl Composer {
    pub async fn demands(&self) -> Result<Vec<DemandRecord>, ServiceError> {
        Ok(read_all(self.store.as_ref())
            .await?
            .into_iter()
            .map(|found| found.value)
            .collect())
    }

    pub async fn demand(&self, id: &DemandId) -> Result<DemandRecord, ServiceError> {
        let found = read::<DemandRecord>(self.store.as_ref(), id.as_str()).await?;
        found
            .map(|found| found.value)
            .ok_or_else(|| ServiceError::not_found("demand", id.as_str()))
    }

    /// Keeps a demand. It is served by the next plan that is applied.
    pub async fn add_demand(&self, spec: DemandSpec) -> Result<DemandRecord, ServiceError> {
        let record = self.record_of(spec, None).await?;
        let mut batch = Batch::new();
        batch.expect(DemandRecord::KIND, record.id(), None).put(&record)?;
        self.commit_new(batch, "demand", record.id()).await?;
        Ok(record)
    }

    /// Forgets a demand. What it holds is let go by the next plan that is applied.
    pub async fn remove_demand(&self, id: &DemandId) -> Result<(), ServiceError> {
        let record = self.demand(id).await?;
        if let Some(schedule) = record.schedule {
            return Err(ServiceError::new(
                ErrorCode::Conflict,
                format!("demand {id} belongs to schedule {schedule}"),
            )
            .with_hint(format!(
                "remove or pause the schedule: poolwright schedule pause {schedule}"
            )));
        }
        let mut batch = Batch::new();
        batch.delete(DemandRecord::KIND, id.as_str());
        self.store.commit(batch).await?;
        Ok(())
    }

    pub async fn schedules(&self) -> Result<Vec<ScheduleStatus>, ServiceError> {
        let found = read_all::<Schedule>(self.store.as_ref()).await?;
        found
            .into_iter()
            .map(|found| self.status_of(found.value))
            .collect()
    }

    pub async fn schedule(&self, id: &ScheduleId) -> Result<ScheduleStatus, ServiceError> {
        let found = read::<Schedule>(self.store.as_ref(), id.as_str()).await?;
        self.status_of(
            found
                .ok_or_else(|| ServiceError::not_found("schedule", id.as_str()))?
                .value,
        )
    }

    /// Keeps a schedule with its demands, all or nothing. If its window is open it takes effect at once.
    pub async fn add_schedule(&self, spec: ScheduleSpec) -> Result<ScheduleStatus, ServiceError> {
        let now = self.clock.now();
        spec.window
            .parse(now)
            .map_err(|e| ServiceError::bad_request(format!("schedule {}: {e}", spec.id)))?;
        if spec.demands.is_empty() && spec.suspends.is_empty() {
            return Err(ServiceError::bad_request(format!(
                "schedule {} neither wants nor suspends anything",
                spec.id
            ))
            .with_hint("give at least one demand, or one demand to suspend"));
        }
        for id in &spec.suspends {
            self.demand(id).await?;
        }
        let mut batch = Batch::new();
        for demand in &spec.demands {
            let record = self.record_of(demand.clone(), Some(spec.id.clone())).await?;
            batch.expect(DemandRecord::KIND, record.id(), None).put(&record)?;
        }
        let schedule = Schedule { spec, created: now };
        batch.expect(Schedule::KIND, schedule.id(), None).put(&schedule)?;
        self.commit_new(batch, "schedule", schedule.id()).await?;
        self.calendar_changed.notify_one();
        self.status_of(schedule)
    }

    /// Forgets a schedule and its demands; what they hold is let go at once.
    pub async fn remove_schedule(&self, id: &ScheduleId) -> Result<(), ServiceError> {
        let status = self.schedule(id).await?;
        let mut batch = Batch::new();
        batch.delete(Schedule::KIND, id.as_str());
        for demand in &status.schedule.spec.demands {
            batch.delete(DemandRecord::KIND, demand.id.as_str());
        }
        self.store.commit(batch).await?;
        self.calendar_changed.notify_one();
        Ok(())
    }

    /// Pauses a schedule or lets it go on.
    pub async fn pause_schedule(
        &self,
        id: &ScheduleId,
        paused: bool,
    ) -> Result<ScheduleStatus, ServiceError> {
        let found = read::<Schedule>(self.store.as_ref(), id.as_str()).await?;
        let mut found = found.ok_or_else(|| ServiceError::not_found("schedule", id.as_str()))?;
        found.value.spec.paused = paused;
        let mut batch = Batch::new();
        batch
            .expect(Schedule::KIND, id.as_str(), Some(found.revision))
            .put(&found.value)?;
        self.store.commit(batch).await?;
        self.calendar_changed.notify_one();
        self.status_of(found.value)
    }

    pub(crate) async fn calendars(&self) -> Result<Vec<Calendar>, ServiceError> {
        let now = self.clock.now();
        let found = read_all::<Schedule>(self.store.as_ref()).await?;
        let calendars = found.into_iter().map(|found| {
            let calendar = found.value.calendar(now);
            calendar.map_err(|e| {
                ServiceError::new(
                    ErrorCode::Internal,
                    format!("schedule {}: {e}", found.value.spec.id),
                )
            })
        });
        calendars.filter_map(Result::transpose).collect()
    }

    /// The demands that are wanted now.
    pub(super) async fn wanted_now(&self) -> Result<Vec<Demand>, ServiceError> {
        Ok(wanted(
            &self.demands().await?,
            &self.calendars().await?,
            self.clock.now(),
        ))
    }

    /// Sizes a demand for the pool as it is.
    pub(super) async fn record_of(
        &self,
        spec: DemandSpec,
        schedule: Option<ScheduleId>,
    ) -> Result<DemandRecord, ServiceError> {
        let snapshot = self.snapshot().await?;
        let need = spec.need(&pool_kinds(&snapshot), most_slots(&snapshot))?;
        let demand = Demand {
            id: spec.id.clone(),
            tenant: spec.tenant.clone(),
            priority: spec.priority,
            need,
            created: self.clock.now(),
        };
        Ok(DemandRecord {
            spec,
            demand,
            schedule,
        })
    }

    fn status_of(&self, schedule: Schedule) -> Result<ScheduleStatus, ServiceError> {
        let now = self.clock.now();
        let window = schedule
            .spec
            .window
            .parse(now)
            .map_err(|e| ServiceError::new(ErrorCode::Internal, e.to_string()))?;
        Ok(ScheduleStatus {
            open: !schedule.spec.paused && window.is_open(now),
            next_change: window.next_change(now),
            next_openings: window.next_openings(now, 3),
            schedule,
        })
    }

    async fn commit_new(&self, batch: Batch, kind: &str, id: &str) -> Result<(), ServiceError> {
        let done = self.store.commit(batch).await;
        done.map(drop).map_err(|error| match error {
            poolwright_store::StoreError::Conflict { kind, id, .. } => {
                ServiceError::new(ErrorCode::Conflict, format!("there is a {kind} {id} already"))
                    .with_hint("choose another name, or remove it first")
            }
            error => {
                tracing::warn!("{kind} {id} was not kept: {error}");
                error.into()
            }
        })
    }
}

/// The kinds of movable GPUs in the pool, and how many of each there are, in use or not.
pub fn pool_kinds(snapshot: &Snapshot) -> Vec<PoolKind> {
    let mut kinds: BTreeMap<&str, u32> = BTreeMap::new();
    let movable = snapshot
        .topology
        .gpus
        .iter()
        .filter(|gpu| gpu.composability.is_composable());
    for kind in movable.filter_map(|gpu| gpu.profile.as_deref()) {
        *kinds.entry(kind).or_default() += 1;
    }
    kinds
        .into_iter()
        .map(|(kind, count)| PoolKind {
            kind: kind.to_owned(),
            count,
        })
        .collect()
}

/// GPUs that the largest host takes; `None` where no host is known.
pub fn most_slots(snapshot: &Snapshot) -> Option<u32> {
    snapshot
        .topology
        .hosts
        .iter()
        .map(|host| host.ports.iter().map(|port| port.slots).sum())
        .max()
}
