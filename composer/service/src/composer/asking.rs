//! Operations, compositions, and why things are as they are.

use super::Composer;
use super::following::Tell;
use super::silence::Silent;
use crate::demand::DemandRecord;
use crate::drift::{Drift, DriftKind};
use crate::error::{ErrorCode, ServiceError};
use jiff::Timestamp;
use poolwright_executor::{
    self as executor, Alarm, CompositionRecord, Operation, OperationState, Pause, Paused, Resolve, Said,
};
use poolwright_model::fault::FaultKind;
use poolwright_model::id::{CompositionId, DemandId, GpuId, OperationId};
use poolwright_model::lifecycle::GpuState;
use poolwright_planner::Composition;
use poolwright_store::{Event, read};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The manager in a few numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Status {
    pub version: String,
    pub now: Timestamp,
    pub endpoints: usize,
    pub gpus: usize,
    /// Composable GPUs with a reachable endpoint.
    pub composable: usize,
    /// Of these, the free ones.
    pub free: usize,
    /// Composable GPUs whose endpoints are all unreachable.
    #[serde(default)]
    pub unreachable: usize,
    /// The last answer for the GPU that is unreachable for longest. Absent without an answer since the manager started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable_since: Option<Timestamp>,
    pub hosts: usize,
    pub compositions: usize,
    pub faults: usize,
    pub open_operations: usize,
    /// Endpoints that do not answer: what is shown of them is as old as their last answer.
    #[serde(default)]
    pub silent: Vec<Silent>,
    /// Operations that somebody must look at.
    #[serde(default)]
    pub alarms: Vec<OperationAlarm>,
    /// Days until the certificate ends that clients of this manager are shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_days: Option<i64>,
}

/// Somebody must look at an operation that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OperationAlarm {
    pub operation: OperationId,
    #[serde(flatten)]
    pub alarm: Alarm,
}

impl fmt::Display for OperationAlarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, alarm } = self;
        write!(
            f,
            "{}: somebody must look at operation {operation} since {}: {}",
            alarm.severity, alarm.at, alarm.message
        )
    }
}

/// Why a demand is served, or is not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Why {
    pub demand: DemandRecord,
    pub wanted_now: bool,
    pub holds: Vec<Composition>,
    /// For people: its GPUs, missing ones, and remedies.
    pub because: Vec<String>,
    /// The derivation of the need.
    #[serde(default)]
    pub explanation: Vec<String>,
}

/// One thing that was looked at for the operator's peace of mind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Check {
    pub name: String,
    pub result: CheckResult,
    pub message: String,
    pub hint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CheckResult {
    Ok,
    Warning,
    Problem,
}

/// What an operator decides about an operation that is indeterminate or quarantined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Resolution {
    /// Look again now, and go on from there.
    Retry,
    /// End it with things as the fabric shows them; refused where the fabric can't say.
    Accept,
    /// The same, and what the fabric can't say anything of is bound to nothing.
    AcceptFree,
    /// The same, and what the fabric can't say anything of is bound where the operation had it.
    AcceptBound,
}

impl From<Resolution> for executor::Resolution {
    fn from(resolution: Resolution) -> Self {
        let accept = |unreadable| executor::Resolution::Accept { unreadable };
        match resolution {
            Resolution::Retry => executor::Resolution::Retry,
            Resolution::Accept => accept(None),
            Resolution::AcceptFree => accept(Some(Said::Free)),
            Resolution::AcceptBound => accept(Some(Said::Bound)),
        }
    }
}

impl Composer {
    /// All operations that are kept, the newest first.
    #[crate::boxed]
    pub async fn operations(&self) -> Result<Vec<Operation>, ServiceError> {
        self.latest_operations(u32::MAX).await
    }

    /// The operations that ended last, at most so many, and all that are unfinished; the newest first.
    #[crate::boxed]
    pub async fn latest_operations(&self, most: u32) -> Result<Vec<Operation>, ServiceError> {
        Ok(self.executor.list(most).await?)
    }

    /// The operations that have not ended, the newest first.
    #[crate::boxed]
    pub async fn unfinished_operations(&self) -> Result<Vec<Operation>, ServiceError> {
        Ok(self.executor.unfinished().await?)
    }

    #[crate::boxed]
    pub async fn operation(&self, id: &OperationId) -> Result<Operation, ServiceError> {
        let found = self.executor.get(id).await?;
        found.ok_or_else(|| ServiceError::not_found("operation", id.as_str()))
    }

    /// Waits until an operation is over or needs somebody. After `within` an error of code Timeout names it;
    /// it goes on.
    #[crate::boxed]
    pub async fn wait(&self, id: &OperationId, within: Duration) -> Result<Operation, ServiceError> {
        let operation = self.executor.wait(id, within).await?;
        let operation = operation.ok_or_else(|| ServiceError::not_found("operation", id.as_str()))?;
        if operation.state.has_ended() || operation.state == OperationState::Quarantined {
            return Ok(operation);
        }
        let waits = operation.waits().join("; ");
        let what = if waits.is_empty() {
            operation.state.to_string()
        } else {
            format!("{}: {waits}", operation.state)
        };
        Err(ServiceError {
            operation: Some(id.to_string()),
            ..ServiceError::new(
                ErrorCode::Timeout,
                format!("operation {id} is not over after {} s ({what})", within.as_secs()),
            )
            .with_hint(format!("it goes on; poolwright ops wait {id}"))
        })
    }

    /// Stops an operation and undoes what it did.
    #[crate::boxed]
    pub async fn cancel(&self, id: &OperationId, by: &str, reason: &str) -> Result<Operation, ServiceError> {
        self.may_end(id).await?;
        self.executor.cancel(id, by, reason).await?;
        self.operation(id).await
    }

    /// Brings an operation that is indeterminate or quarantined to an end, after somebody has looked.
    #[crate::boxed]
    pub async fn resolve(
        &self,
        id: &OperationId,
        how: Resolution,
        by: &str,
        reason: &str,
    ) -> Result<Operation, ServiceError> {
        self.may_end(id).await?;
        let wish = Resolve {
            resolution: how.into(),
            by: by.to_owned(),
            reason: reason.to_owned(),
        };
        self.executor.resolve(id, wish).await?;
        // Whoever followed a quarantined operation took it for settled.
        self.follow(id.clone(), Tell::HoweverItEnds);
        self.operation(id).await
    }

    #[crate::boxed]
    pub async fn compositions(&self) -> Result<Vec<Composition>, ServiceError> {
        Ok(Vec::clone(&*self.held().await?))
    }

    /// All compositions that stand, in the order of their ids.
    #[crate::boxed]
    pub async fn held(&self) -> Result<Arc<Vec<Composition>>, ServiceError> {
        self.books.refresh(self.store.as_ref()).await?;
        Ok(self.books.pages().compositions.clone())
    }

    #[crate::boxed]
    pub async fn composition(&self, id: &CompositionId) -> Result<CompositionRecord, ServiceError> {
        let found = read::<CompositionRecord>(self.store.as_ref(), id.as_str()).await?;
        found
            .map(|found| found.value)
            .ok_or_else(|| ServiceError::not_found("composition", id.as_str()))
    }

    #[crate::boxed]
    pub async fn events_after(&self, seq: u64, limit: u32) -> Result<Vec<Event>, ServiceError> {
        Ok(self.store.events_after(seq, limit).await?)
    }

    #[crate::boxed]
    pub async fn status(&self) -> Result<Status, ServiceError> {
        let snapshot = self.snapshot().await?;
        let composable = self.composable_gpus(&snapshot);
        Ok(Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            now: self.clock.now(),
            endpoints: self.endpoints().await?.len(),
            gpus: snapshot.topology.gpus.len(),
            composable: composable.reachable,
            free: composable.free,
            unreachable: composable.unreachable,
            unreachable_since: composable.since,
            hosts: snapshot.topology.hosts.len(),
            compositions: self.compositions().await?.len(),
            faults: snapshot.faults.len(),
            open_operations: self.store.open_operations().await?.len(),
            silent: self.silent(),
            alarms: self.alarms().await?,
            certificate_days: self.certificate_days(),
        })
    }

    async fn alarms(&self) -> Result<Vec<OperationAlarm>, ServiceError> {
        let alarms = self.executor.alarms().await?.into_iter();
        Ok(alarms
            .map(|(operation, alarm)| OperationAlarm { operation, alarm })
            .collect())
    }

    /// Why a demand holds what it holds, and what it lacks.
    #[crate::boxed]
    pub async fn why(&self, id: &DemandId) -> Result<Why, ServiceError> {
        let record = self.demand(id).await?;
        let wanted_now = self.wanted_now().await?.iter().any(|demand| demand.id == *id);
        let holds: Vec<Composition> = self
            .compositions()
            .await?
            .into_iter()
            .filter(|c| c.demand.as_ref() == Some(id))
            .collect();
        let now = self.clock.now();
        let current = record.demand_at(now);
        let damaged = self.pauses_for_damage().into_iter();
        let mut because: Vec<String> = damaged
            .map(|pause| format!("possibly incomplete: {}", pause.reason))
            .collect();
        let need = current.unwrap_or_else(|| record.demand.clone()).need;
        because.extend(record.course.as_ref().map(|course| course.tell(now)));
        for composition in &holds {
            let gpus: Vec<&str> = composition.gpus().map(GpuId::as_str).collect();
            because.push(format!(
                "holds {} on {}: {}",
                composition.id,
                composition.host,
                gpus.join(", ")
            ));
        }
        because.extend(self.at_closed_hosts(&holds).await?);
        let snapshot = self.snapshot().await?;
        let held: BTreeSet<&GpuId> = holds.iter().flat_map(Composition::gpus).collect();
        let gpus = snapshot.topology.gpus.iter();
        let missing = gpus.filter(|gpu| gpu.state == GpuState::Missing && held.contains(&gpu.id));
        because.extend(missing.map(|gpu| {
            let why = gpu.composability.0.as_ref().map(|why| why.detail.as_str());
            format!("{} of these is missing: {}", gpu.id, why.unwrap_or_default())
        }));
        let serving = self.underway().await?.serving;
        let lends = match (&record.schedule, &record.job) {
            (None, None) => self.suspended_by(&record).await?,
            (Some(schedule), _) => self.early_for(schedule, id).await?,
            _ => Vec::new(),
        };
        match (&record.schedule, wanted_now) {
            _ if serving.contains_key(id) => {
                because.push(format!("operation {} serves it just now", serving[id]));
            }
            _ if record.pending.is_some() => because.push("an operation releases it just now".to_owned()),
            (_, true) => {
                let plan = self.plan().await?;
                let missing = plan.unplaced.iter().filter(|unplaced| unplaced.demand == *id);
                for unplaced in missing {
                    because.push(unplaced.shortfall());
                    because.extend(unplaced.alternatives().iter().map(|tried| format!("  {tried}")));
                    because.extend(self.closed_hosts_told().await?);
                }
                if lends.is_empty() && plan.composes.iter().any(|c| c.demand.as_ref() == Some(id)) {
                    because.push("could be served now; `poolwright plan` shows how".to_owned());
                }
            }
            (None, false) if record.job.is_some() => {}
            (Some(_), false) if record.dropped => because.push(
                "not wanted any more: its schedule has dropped it; it is deleted once its GPUs are released"
                    .to_owned(),
            ),
            (Some(schedule), false) => {
                let so = self.why_not_open(schedule).await?;
                because.push(format!("not wanted now: {so}"));
            }
            (None, false) if record.demand_at(now).is_none() => {
                because.push("not wanted now: no phase of it is on".to_owned());
            }
            (None, false) => because.push("not wanted now".to_owned()),
        }
        because.extend(lends);
        if record.job.is_some() {
            because.extend(self.why_it_waits(id).await?);
            because.extend(self.closed_hosts_told().await?);
        }
        let trouble = self.trouble().filter(|trouble| trouble.demands.contains(id));
        because.extend(trouble.map(|trouble| format!("not as the calendar wants it: {trouble}")));
        Ok(Why {
            demand: record,
            wanted_now,
            holds,
            because,
            explanation: need.explanation,
        })
    }

    /// What an operator should know.
    #[crate::boxed]
    pub async fn doctor(&self) -> Result<Vec<Check>, ServiceError> {
        let mut checks = vec![self.store_check().await, self.damage_check().await];
        checks.extend(self.certificate_check());
        match self.check_pool(&mut checks).await {
            Err(error) if !self.store.damaged().is_empty() => {
                let hint = "recover the damaged documents, then repeat: poolwright doctor";
                checks.push(Check::problem("other checks", error.message, hint));
            }
            checked => checked?,
        }
        Ok(checks)
    }

    async fn check_pool(&self, checks: &mut Vec<Check>) -> Result<(), ServiceError> {
        let snapshot = self.discover(&()).await?;
        let about_endpoints = checks.len();
        for endpoint in self.endpoints().await? {
            let id = endpoint.spec.id.as_str();
            // A fault of the endpoint itself, and not of a place there, is of all that it has.
            let troubled = snapshot.faults.iter().filter(|fault| fault.source == id);
            let troubled = troubled.min_by_key(|fault| fault.kind != FaultKind::Missing);
            checks.push(match troubled {
                None => Check::ok(
                    format!("endpoint {id}"),
                    format!("answers at {}", endpoint.spec.url),
                ),
                Some(fault) => Check::problem(
                    format!("endpoint {id}"),
                    fault.message.clone(),
                    match fault.kind {
                        FaultKind::Missing => {
                            format!("poolwright endpoint accept {id}, if they were taken out")
                        }
                        _ => format!("poolwright endpoint test {id}"),
                    },
                ),
            });
        }
        if checks.len() == about_endpoints {
            checks.push(Check::problem(
                "endpoints",
                "none is known",
                "poolwright endpoint add NAME --url URL",
            ));
        }
        checks.push(self.gpus_check(&snapshot));
        let faults = snapshot.faults.len();
        checks.push(match faults {
            0 => Check::ok("faults", "none was met while looking"),
            n => Check::warning(
                "faults",
                format!("{n} {} met while looking", if n == 1 { "was" } else { "were" }),
                "poolwright get faults",
            ),
        });
        checks.push(self.operations_check().await?);
        checks.push(match self.trouble() {
            None => Check::ok("calendar", "nothing keeps the pool from following it"),
            Some(trouble) => Check::warning(
                "calendar",
                format!("the pool does not follow it: {trouble}"),
                "poolwright schedule list",
            ),
        });
        checks.push(match self.queue_check().await {
            // So many ask about it that its turn did not come. What else there is is told all the same.
            Err(error) if error.code == ErrorCode::Unavailable => Check::warning(
                "queue",
                format!("not looked at: {error}"),
                "poolwright doctor, in a moment",
            ),
            checked => checked?,
        });
        checks.push(self.returns_check().await?);
        checks.push(self.suspects_check().await?);
        let mut pauses = self.all_pauses().await?;
        // The check of documents has these, with the next steps.
        let is_damaged = |pause: &Pause| matches!(pause.what, Paused::Damaged(_));
        let is_paused_by_damage = pauses.iter().any(is_damaged);
        pauses.retain(|pause| !is_damaged(pause));
        let told: Vec<String> = pauses.iter().map(ToString::to_string).collect();
        checks.push(match pauses.first() {
            _ if is_paused_by_damage => {
                let damage = "everything, until the damaged documents are recovered".to_owned();
                let all: Vec<String> = [damage].into_iter().chain(told).collect();
                let hint = "recover them, then repeat: poolwright doctor";
                Check::problem("pauses", all.join("; "), hint)
            }
            None => Check::ok("pauses", "nothing is paused"),
            Some(first) => Check::warning(
                "pauses",
                told.join("; "),
                format!("{}, once that is right", first.what.resume()),
            ),
        });
        checks.extend(self.closures_check().await?);
        checks.extend(self.uplinks_check().await?);
        checks.extend(self.relocations_check().await?);
        checks.push(self.owners_check().await?);
        let held_back = self.held_back().await?;
        if let Some(why) = held_back.values().next() {
            let message = format!("{} of the GPUs that drift: {why}", held_back.len());
            let hint = "find out who unbinds them: poolwright diff";
            checks.push(Check::problem("repairs", message, hint));
        }
        let drift = self.drift_in(&snapshot).await?;
        // A foreign binding may be intended, and a GPU that moved is bound as recorded.
        let (foreign, lost): (Vec<_>, Vec<_>) = drift
            .iter()
            .partition(|drift| matches!(drift.kind, DriftKind::Foreign | DriftKind::Moved));
        checks.push(match (lost.is_empty(), foreign.is_empty()) {
            (true, true) => Check::ok("bindings", "all compositions are bound as recorded"),
            (true, false) => Check::warning("bindings", some(&foreign), "poolwright diff"),
            (false, _) => Check::problem("bindings", some(&lost), "poolwright diff"),
        });
        Ok(())
    }

    /// Operations at which somebody must look, which are late, and which look themselves.
    async fn operations_check(&self) -> Result<Check, ServiceError> {
        let (mut needy, mut late, mut unsure) = (Vec::new(), Vec::new(), Vec::new());
        for id in self.store.open_operations().await? {
            let operation = self.operation(&id).await?;
            let is_late = operation.late_by(self.clock.now()).is_some();
            match operation.state {
                OperationState::Quarantined => needy.push(id),
                OperationState::Indeterminate if is_late => needy.push(id),
                OperationState::Indeterminate => unsure.push(id),
                _ if is_late => late.push(id),
                _ => {}
            }
        }
        let ids = |ids: &[OperationId]| {
            let ids: Vec<&str> = ids.iter().map(OperationId::as_str).collect();
            ids.join(", ")
        };
        let show = |ids: &[OperationId]| ids.first().map(|id| format!("poolwright ops show {id}"));
        Ok(if let Some(show) = show(&needy) {
            Check::problem(
                "operations",
                format!("somebody must look at {}", ids(&needy)),
                show,
            )
        } else if let Some(show) = show(&late) {
            let told = format!("longer at work than is usual: {}", ids(&late));
            Check::warning("operations", told, show)
        } else if let Some(show) = show(&unsure) {
            let told = format!(
                "what came of it is not known yet, and is looked at again by itself: {}",
                ids(&unsure)
            );
            Check::warning("operations", told, show)
        } else {
            Check::ok("operations", "none needs somebody")
        })
    }
}

/// The first of many.
fn some(all: &[&Drift]) -> String {
    const SHOWN: usize = 3;
    let shown = &all[..all.len().min(SHOWN)];
    // Reports a detail that all of them share only once.
    let common = shown.first().and_then(|first| first.detail.clone());
    let common = common.filter(|_| shown.iter().all(|drift| drift.detail == shown[0].detail));
    let told = shown.iter().map(|drift| match &common {
        Some(_) => Drift {
            detail: None,
            ..(*drift).clone()
        }
        .to_string(),
        None => drift.to_string(),
    });
    let mut shown = told.collect::<Vec<_>>().join("; ");
    if let Some(common) = common {
        shown.push_str(&format!(" ({common})"));
    }
    match all.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}

impl Check {
    pub(super) fn ok(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            result: CheckResult::Ok,
            message: message.into(),
            hint: None,
        }
    }

    pub(super) fn warning(
        name: impl Into<String>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            result: CheckResult::Warning,
            hint: Some(hint.into()),
            ..Self::ok(name, message)
        }
    }

    pub(super) fn problem(
        name: impl Into<String>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            result: CheckResult::Problem,
            ..Self::warning(name, message, hint)
        }
    }
}
