//! What runs by itself, in the audit log: for which schedule, demand or tenant, who set that up, and how it ended.
//!
//! Invariant: an automatic operation that can't be written down is not begun.

use super::Composer;
use crate::audit::{Kind, Record};
use crate::demand::DemandRecord;
use crate::error::ServiceError;
use crate::schedule::Schedule;
use poolwright_executor::{Operation, OperationKind};
use poolwright_model::id::{DemandId, OperationId};
use poolwright_planner::{Composition, Plan};
use poolwright_store::read_all;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The longest list of causes that is written down.
const LONGEST: usize = 256;

/// What something is done for.
#[derive(Default)]
struct Causes {
    /// Such as `schedule/night`.
    what: BTreeSet<String>,
    set_up_by: BTreeSet<String>,
}

impl Composer {
    /// Writes down that an operation is about to begin by itself.
    pub(super) async fn note_beginning(
        &self,
        id: &OperationId,
        kind: OperationKind,
        by: &str,
        plan: &Plan,
    ) -> Result<(), ServiceError> {
        let causes = self.causes_of(kind, plan).await?;
        let mut said = Map::new();
        if !causes.set_up_by.is_empty() {
            said.insert("set_up_by".to_owned(), joined(causes.set_up_by).into());
        }
        let record = record(Kind::Began, by, kind, joined(causes.what), id, said);
        self.audit().note(record).await.map(drop)
    }

    /// Writes down how it ended. What is not written is in the operation itself.
    pub(super) async fn note_ending(&self, operation: &Operation) {
        let mut said = Map::new();
        said.insert("state".to_owned(), operation.state.to_string().into());
        let (by, on) = (&operation.by, format!("operation/{}", operation.id));
        let record = record(Kind::Ended, by, operation.kind, on, &operation.id, said);
        if let Err(error) = self.audit().note(record).await {
            tracing::warn!(operation = %operation.id, "that it ended is not in the audit log: {error}");
        }
    }

    /// Of a schedule's recomposition the schedules that concern what changes; else the demands, and what holds GPUs
    /// without any.
    async fn causes_of(&self, kind: OperationKind, plan: &Plan) -> Result<Causes, ServiceError> {
        let changed = || plan.releases.iter().chain(&plan.composes);
        let demands: BTreeSet<DemandId> = changed().filter_map(|c| c.demand.clone()).collect();
        let mut causes = Causes::default();
        if kind == OperationKind::Schedule {
            for found in read_all::<Schedule>(self.store.as_ref()).await? {
                let schedule = found.value;
                if demands.iter().any(|demand| schedule.concerns(demand)) {
                    causes.what.insert(format!("schedule/{}", schedule.spec.id));
                    causes.set_up_by.extend(schedule.set_up_by);
                }
            }
        }
        let records = read_all::<DemandRecord>(self.store.as_ref()).await?.into_iter();
        for record in records.map(|found| found.value) {
            let is_of_schedule = kind == OperationKind::Schedule && record.schedule.is_some();
            if demands.contains(&record.spec.id) && !is_of_schedule {
                causes.what.insert(format!("demand/{}", record.spec.id));
                causes.set_up_by.extend(record.set_up_by);
            }
        }
        let without: Vec<&Composition> = changed().filter(|c| c.demand.is_none()).collect();
        let named = without.iter().map(|c| format!("composition/{}", c.id));
        causes.what.extend(named);
        Ok(causes)
    }
}

fn joined(all: BTreeSet<String>) -> String {
    let all: Vec<String> = all.into_iter().collect();
    all.join(", ").chars().take(LONGEST).collect()
}

/// The kind, as it is written everywhere.
fn word(kind: OperationKind) -> String {
    let word = serde_json::to_value(kind).unwrap_or_default();
    word.as_str().unwrap_or_default().to_owned()
}

fn record(
    kind: Kind,
    by: &str,
    what: OperationKind,
    on: String,
    made: &OperationId,
    said: Map<String, Value>,
) -> Record {
    Record {
        said,
        made: Some(made.to_string()),
        ..Record::without_request(kind, by, word(what), on)
    }
}
