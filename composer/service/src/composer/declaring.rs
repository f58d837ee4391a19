//! What is wanted, declared as a whole: demands and schedules in one file, set against what is kept. What is new is
//! added, what is otherwise is changed, what is as it was stays untouched, and what the file does not name is left alone.
//! All of it is kept by one commit, or nothing.

mod together;

use super::Composer;
use super::changing::may_be_withdrawn;
use super::planning::{Basis, Wanted};
use super::wanting::refuse_queue;
use crate::accounts::ADMIN;
use crate::demand::{DemandRecord, DemandSpec};
use crate::error::{ErrorCode, ServiceError};
use crate::schedule::{Schedule, ScheduleSpec};
use poolwright_model::id::{DemandId, ScheduleId};
use poolwright_planner::Demand;
use poolwright_store::{Batch, Stored, Versioned, read};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What is wanted, as people write it in a file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Declaration {
    /// Standing demands; one with a window is wanted while that is open.
    #[serde(default)]
    pub demands: Vec<DemandSpec>,
    #[serde(default)]
    pub schedules: Vec<ScheduleSpec>,
}

/// What a declaration comes to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Declared {
    pub entries: Vec<DeclaredEntry>,
    /// Nothing was kept.
    pub dry_run: bool,
}

/// One demand or schedule of a declaration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeclaredEntry {
    pub kind: DeclaredKind,
    pub id: String,
    pub difference: Difference,
    /// What is otherwise, a line a field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// Demands of it that would not be served, each with what is lacking and what would help.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub does_not_fit: Vec<DoesNotFit>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum DeclaredKind {
    Demand,
    Schedule,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Difference {
    New,
    Changed,
    Same,
}

/// A demand for which there is no room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DoesNotFit {
    pub demand: DemandId,
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

/// A declaration set against what is kept.
struct Compared {
    /// Who declares it.
    by: String,
    entries: Vec<DeclaredEntry>,
    batch: Batch,
    /// The demands that would be kept, by name, those of schedules among them.
    demands: BTreeMap<DemandId, DemandRecord>,
    /// The schedules of the declaration.
    schedules: Vec<ScheduleSpec>,
    /// As they were before.
    gone: Vec<Schedule>,
    calendar: bool,
}

impl Composer {
    /// Keeps what is declared, unless it is a dry run, and says what is different and whether it fits.
    ///
    /// # Errors
    /// What can't be kept; then nothing is.
    #[crate::boxed]
    pub async fn declare(&self, declaration: Declaration, dry_run: bool) -> Result<Declared, ServiceError> {
        self.declare_by(declaration, ADMIN, dry_run).await
    }

    /// The same, with who asks for it.
    #[crate::boxed]
    pub async fn declare_by(
        &self,
        declaration: Declaration,
        by: &str,
        dry_run: bool,
    ) -> Result<Declared, ServiceError> {
        let declaration = with_windows_as_schedules(declaration)?;
        if dry_run {
            self.refuse_while_damaged()?;
        }
        let _turn = self.turn.lock().await;
        let mut compared = self.compare(declaration, by).await?;
        self.judge_fit(&mut compared).await?;
        let Compared {
            entries,
            batch,
            gone,
            calendar,
            ..
        } = compared;
        if !dry_run && entries.iter().any(|entry| entry.difference != Difference::Same) {
            match calendar {
                true => self.commit_calendar(batch, &gone).await?,
                false => drop(self.store.commit(batch).await?),
            }
            self.queue_changed.notify_one();
        }
        Ok(Declared { entries, dry_run })
    }

    async fn compare(&self, declaration: Declaration, by: &str) -> Result<Compared, ServiceError> {
        let mut compared = Compared {
            by: by.to_owned(),
            entries: Vec::new(),
            batch: Batch::new(),
            demands: BTreeMap::new(),
            schedules: declaration.schedules,
            gone: Vec::new(),
            calendar: false,
        };
        for spec in declaration.demands {
            self.compare_demand(spec, &mut compared).await?;
        }
        let standing: BTreeSet<DemandId> = compared.demands.keys().cloned().collect();
        for spec in compared.schedules.clone() {
            self.compare_schedule(spec, &standing, &mut compared).await?;
        }
        Ok(compared)
    }

    async fn compare_demand(&self, spec: DemandSpec, into: &mut Compared) -> Result<(), ServiceError> {
        let before = self.find_demand(&spec.id).await?;
        let before = before.filter(|before| !before.dropped);
        let (difference, fields) = match &before {
            None => (Difference::New, Vec::new()),
            Some(before) if before.spec == spec => (Difference::Same, Vec::new()),
            Some(before) => (Difference::Changed, differences(&before.spec, &spec)),
        };
        if let Some(schedule) = before.as_ref().and_then(|before| before.schedule.as_ref()) {
            let message = format!("demand {} belongs to schedule {schedule}", spec.id);
            return Err(ServiceError::new(ErrorCode::Conflict, message)
                .with_hint("declare that schedule, or choose another name"));
        }
        if difference != Difference::Same {
            self.may_want(before.iter().map(|before| &before.spec).chain([&spec]))?;
        }
        let record = match before {
            Some(before) if difference == Difference::Same => before,
            Some(before) => {
                may_be_withdrawn(&before)?;
                may_be_changed(&before)?;
                let mut record = self.declared(spec, None).await?;
                record.set_up_by = Some(into.by.clone());
                let found = read::<DemandRecord>(self.store.as_ref(), record.id()).await?;
                let revision = found.map(|found| found.revision);
                into.calendar |= before.course.is_some() || record.course.is_some();
                into.batch
                    .expect(DemandRecord::KIND, record.id(), revision)
                    .put(&record)?;
                record
            }
            None => {
                let mut record = self.declared(spec, None).await?;
                record.set_up_by = Some(into.by.clone());
                self.add_to(&mut into.batch, &record).await?;
                into.calendar |= record.course.is_some();
                record
            }
        };
        into.entries.push(DeclaredEntry {
            kind: DeclaredKind::Demand,
            id: record.spec.id.to_string(),
            difference,
            fields,
            does_not_fit: Vec::new(),
        });
        into.take(record);
        Ok(())
    }

    /// A demand of the declaration, sized. Of several that are declared, a refusal names the one that it is about.
    async fn declared(
        &self,
        spec: DemandSpec,
        schedule: Option<ScheduleId>,
    ) -> Result<DemandRecord, ServiceError> {
        let id = spec.id.clone();
        let sized = self.record_of(spec, schedule).await;
        sized.map_err(|mut refused| {
            if !refused.message.contains(&format!("demand {id}")) {
                refused.message = format!("demand {id}: {}", refused.message);
            }
            refused
        })
    }

    async fn compare_schedule(
        &self,
        spec: ScheduleSpec,
        standing: &BTreeSet<DemandId>,
        into: &mut Compared,
    ) -> Result<(), ServiceError> {
        let before = read::<Schedule>(self.store.as_ref(), spec.id.as_str()).await?;
        let (difference, fields) = match &before {
            None => (Difference::New, Vec::new()),
            Some(before) if before.value.spec == spec => (Difference::Same, Vec::new()),
            Some(before) => (Difference::Changed, differences(&before.value.spec, &spec)),
        };
        into.entries.push(DeclaredEntry {
            kind: DeclaredKind::Schedule,
            id: spec.id.to_string(),
            difference,
            fields,
            does_not_fit: Vec::new(),
        });
        if difference == Difference::Same {
            for demand in &spec.demands {
                into.take(self.demand(&demand.id).await?);
            }
            return Ok(());
        }
        into.calendar = true;
        for of in before.iter().map(|before| &before.value.spec).chain([&spec]) {
            self.may_schedule(of, standing).await?;
        }
        self.judge_schedule(&spec, standing).await?;
        let id = spec.id.clone();
        let records = self.records_of(&spec, before.as_ref(), &mut into.batch).await?;
        for record in records {
            into.take(record);
        }
        let revision = before.as_ref().map(|before| before.revision);
        let mut schedule = Schedule::new(spec, self.clock.now());
        schedule.set_up_by = Some(into.by.clone());
        if let Some(Versioned { value: before, .. }) = &before {
            schedule.created = before.created;
            // One that stays paused stays so by whom it was.
            schedule.stopped = before.stopped.clone().filter(|_| schedule.spec.paused);
            // What is lent is to come back all the same.
            schedule.lend.clone_from(&before.lend);
        }
        into.gone.extend(before.map(|before| before.value));
        into.batch
            .expect(Schedule::KIND, id.as_str(), revision)
            .put(&schedule)?;
        Ok(())
    }

    /// The demands of a schedule that takes the place of another of its name; those that it no longer has are dropped.
    async fn records_of(
        &self,
        spec: &ScheduleSpec,
        before: Option<&Versioned<Schedule>>,
        batch: &mut Batch,
    ) -> Result<Vec<DemandRecord>, ServiceError> {
        let old: BTreeSet<&DemandId> = before
            .iter()
            .flat_map(|before| before.value.own_demands())
            .collect();
        let mut records = Vec::new();
        for demand in &spec.demands {
            let record = self.declared(demand.clone(), Some(spec.id.clone())).await?;
            match old.contains(&demand.id) {
                true => {
                    batch.put(&record)?;
                }
                false => self.add_to(batch, &record).await?,
            }
            records.push(record);
        }
        for gone in old {
            if records.iter().all(|record| record.spec.id != *gone) {
                self.drop_demand(batch, gone).await?;
            }
        }
        Ok(records)
    }

    /// Plans all that is wanted with what is declared, and for each schedule what is wanted while it is open.
    async fn judge_fit(&self, compared: &mut Compared) -> Result<(), ServiceError> {
        let now = self.clock.now();
        let mut standing: BTreeMap<DemandId, Demand> = BTreeMap::new();
        for record in self
            .demands()
            .await?
            .into_iter()
            .filter(|record| record.schedule.is_none())
        {
            standing.extend(record.demand_at(now).map(|demand| (demand.id.clone(), demand)));
        }
        // A job that has no room waits, as it is meant to.
        for record in compared
            .demands
            .values()
            .filter(|record| record.schedule.is_none() && record.job.is_none())
        {
            // Of a run that has not begun: its first phase.
            let demand = record.demand_at(now).unwrap_or_else(|| record.demand.clone());
            standing.insert(demand.id.clone(), demand);
        }
        let basis = self.basis(Wanted::OnceDone).await?;
        let by_day = self.unplaced_of(&basis, standing.values().cloned().collect());
        for entry in &mut compared.entries {
            if entry.kind == DeclaredKind::Demand {
                entry.does_not_fit = by_day
                    .iter()
                    .filter(|lack| lack.demand.as_str() == entry.id)
                    .cloned()
                    .collect();
            }
        }
        for spec in &compared.schedules {
            let own: BTreeSet<&DemandId> = spec.demands.iter().map(|demand| &demand.id).collect();
            let stays = standing
                .values()
                .filter(|demand| !spec.suspends.contains(&demand.id));
            let comes = compared
                .demands
                .values()
                .filter(|record| own.contains(&record.spec.id));
            let comes = comes.map(|record| record.demand.clone());
            let lacking = self.unplaced_of(&basis, stays.cloned().chain(comes).collect());
            let entry = compared.entries.iter_mut();
            let entry = entry.filter(|entry| entry.kind == DeclaredKind::Schedule);
            for entry in entry.filter(|entry| entry.id == spec.id.as_str()) {
                let of_it = lacking.iter().filter(|lack| own.contains(&lack.demand));
                entry.does_not_fit = of_it.cloned().collect();
            }
        }
        self.judge_together(compared, &basis).await
    }

    fn unplaced_of(&self, basis: &Basis, demands: Vec<Demand>) -> Vec<DoesNotFit> {
        let plan = poolwright_planner::plan(&self.input(&basis.clone().wanting(demands)));
        let unplaced = plan.unplaced.iter().map(|unplaced| DoesNotFit {
            demand: unplaced.demand.clone(),
            reason: unplaced.shortfall(),
            help: unplaced.help(),
        });
        unplaced.collect()
    }
}

impl Compared {
    fn take(&mut self, record: DemandRecord) {
        self.demands.insert(record.spec.id.clone(), record);
    }
}

/// A demand with a window is a schedule of its name that wants it alone.
fn with_windows_as_schedules(declaration: Declaration) -> Result<Declaration, ServiceError> {
    let Declaration {
        demands,
        mut schedules,
    } = declaration;
    if demands.is_empty() && schedules.is_empty() {
        return Err(
            ServiceError::bad_request("neither a demand nor a schedule is declared")
                .with_hint("declare at least one under demands or schedules"),
        );
    }
    let (windowed, standing): (Vec<DemandSpec>, Vec<DemandSpec>) =
        demands.into_iter().partition(|demand| demand.window.is_some());
    for demand in windowed {
        refuse_queue(&demand, "has a window")?;
        schedules.push(schedule_of(demand));
    }
    let declaration = Declaration {
        demands: standing,
        schedules,
    };
    is_named_once(&declaration)?;
    suspends_no_other(&declaration)?;
    Ok(declaration)
}

/// What a schedule suspends is of no schedule, so that none waits for another.
fn suspends_no_other(declaration: &Declaration) -> Result<(), ServiceError> {
    let takes = |one: &ScheduleSpec, from: &ScheduleSpec| {
        let mut own = from.demands.iter().map(|demand| &demand.id);
        own.find(|demand| one.suspends.contains(demand)).cloned()
    };
    for one in &declaration.schedules {
        for other in declaration.schedules.iter().filter(|other| other.id != one.id) {
            let Some(demand) = takes(one, other) else { continue };
            let mut message = format!(
                "schedule {} suspends demand {demand} of schedule {}",
                one.id, other.id
            );
            if let Some(back) = takes(other, one) {
                message = format!("{message}, which suspends demand {back} of schedule {}", one.id);
            }
            return Err(ServiceError::bad_request(message).with_hint(
                "a schedule suspends standing demands only: let windows that exclude each other not overlap",
            ));
        }
    }
    Ok(())
}

/// What runs is not changed under way.
fn may_be_changed(before: &DemandRecord) -> Result<(), ServiceError> {
    if before.job.as_ref().is_none_or(|job| job.waits()) {
        return Ok(());
    }
    let id = &before.spec.id;
    let message = format!("job {id} has its GPUs, and stays as it is until it is done");
    Err(ServiceError::new(ErrorCode::Conflict, message).with_hint(format!(
        "say that it is done (poolwright demand done {id}), or choose another name"
    )))
}

/// Each demand, those of schedules among them, and each schedule has a name of its own.
fn is_named_once(declaration: &Declaration) -> Result<(), ServiceError> {
    let (mut demands, mut schedules) = (BTreeSet::new(), BTreeSet::new());
    let of_schedules = declaration
        .schedules
        .iter()
        .flat_map(|schedule| &schedule.demands);
    let mut all = declaration.demands.iter().chain(of_schedules);
    let twice = match all.find(|demand| !demands.insert(&demand.id)) {
        Some(demand) => Some(format!("demand {}", demand.id)),
        None => {
            let mut all = declaration.schedules.iter();
            let twice = all.find(|schedule| !schedules.insert(&schedule.id));
            twice.map(|schedule| format!("schedule {}", schedule.id))
        }
    };
    match twice {
        None => Ok(()),
        Some(what) => Err(ServiceError::bad_request(format!("{what} is declared twice"))
            .with_hint("give each a name of its own; a demand with a window is a schedule of its name")),
    }
}

/// The schedule that a demand with a window stands for.
pub fn schedule_of(mut demand: DemandSpec) -> ScheduleSpec {
    ScheduleSpec {
        id: ScheduleId::from_lossy(demand.id.as_str()),
        window: demand.window.take().unwrap_or_default(),
        demands: vec![demand],
        suspends: Vec::new(),
        paused: false,
        overlap: Default::default(),
        missed: Default::default(),
        back_by_close: false,
        ladder: None,
        reclaim_s: None,
        alert: None,
    }
}

/// What differs, a line a field: `priority: 0, was 5`.
fn differences<T: Serialize>(before: &T, after: &T) -> Vec<String> {
    let fields = |value: &T| match serde_json::to_value(value) {
        Ok(Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let (before, after) = (fields(before), fields(after));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let told = |value: Option<&Value>| match value {
        None => "nothing".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    let differing = names
        .into_iter()
        .filter(|name| before.get(*name) != after.get(*name));
    differing
        .map(|name| {
            format!(
                "{name}: {}, was {}",
                told(after.get(name)),
                told(before.get(name))
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(value: Value) -> DemandSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_differs_is_told_by_its_field() {
        let before = spec(json!({"id": "a", "gpus": 4, "priority": 5, "kind": "l4-24gb"}));
        let after = spec(json!({"id": "a", "gpus": 8, "priority": 5}));
        assert_eq!(
            differences(&before, &after),
            ["gpus: 8, was 4", "kind: nothing, was l4-24gb"]
        );
        assert_eq!(differences(&before, &before), [] as [&str; 0]);
    }

    #[test]
    fn a_demand_with_a_window_is_a_schedule_of_its_name() {
        let window = json!({"weekly": ["MON 08:00-09:00"], "zone": "Asia/Tokyo"});
        let declaration = Declaration {
            demands: vec![
                spec(json!({"id": "a", "gpus": 1, "window": window})),
                spec(json!({"id": "b", "gpus": 1})),
            ],
            schedules: Vec::new(),
        };
        let all = with_windows_as_schedules(declaration).unwrap();
        assert_eq!((all.demands.len(), all.schedules.len()), (1, 1));
        assert_eq!(all.schedules[0].id.as_str(), "a");
        assert_eq!(all.schedules[0].window.zone, "Asia/Tokyo");
        assert_eq!(all.schedules[0].demands[0].window, None);
        assert!(with_windows_as_schedules(Declaration::default()).is_err());
    }
}
