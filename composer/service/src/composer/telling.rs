//! What happened, for whoever listens: the log of events, each with what it is about. Written here is only what no
//! operation tells: what came into the pool, left it, or changed, and the events of a test.
//!
//! Invariant: what is told follows from the log and from what is kept of an operation, so that whoever lost a part of it
//! is told the same again.

use super::Composer;
use crate::error::ServiceError;
use jiff::Timestamp;
use poolwright_executor::{Event, Operation, OperationState, PlanRecord, Severity, StepState};
use poolwright_model::id::{ChassisId, CompositionId, ControlEndpointId, GpuId, OperationId, UnitId};
use poolwright_model::step::Verb;
use poolwright_store::{Batch, StoreError, read};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// A part of the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Happened {
    /// The number of the last entry that was read; what comes after it was not.
    pub upto: u64,
    /// Entries that tell something, in order.
    pub all: Vec<Happening>,
}

/// One entry of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Happening {
    pub seq: u64,
    pub at: Timestamp,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// An operation came into a state. Of one that is completed: what became of its compositions.
    Operation {
        operation: OperationId,
        state: OperationState,
        compositions: Vec<(CompositionId, Became)>,
    },
    /// A unit was bound, or let go of.
    Unit { unit: UnitId, bound: bool },
    /// Somebody must look at an operation.
    Alarm {
        operation: OperationId,
        severity: Severity,
        message: String,
    },
    /// Something that no operation changes is otherwise than before.
    Thing { thing: Thing, became: Turn },
    /// Somebody tries out who listens.
    Test(TestEvent),
}

/// What is there without any operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Thing {
    Gpu { id: GpuId, chassis: Option<ChassisId> },
    Endpoint(ControlEndpointId),
    Account(String),
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Turn {
    Added,
    Changed,
    Removed,
    /// It gives no answer, or none that is believed.
    Lost {
        because: String,
    },
    /// It does again.
    Back,
    /// It may be about to fail.
    Suspect {
        because: String,
    },
    /// It is suspect no more.
    Sound,
}

/// What became of a composition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Became {
    Made,
    Changed,
    Removed,
}

/// What somebody who tries out who listens wants to have told.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TestEvent {
    pub message_id: String,
    #[serde(default)]
    pub message: Option<String>,
    #[serde(default)]
    pub args: Vec<String>,
    #[serde(default)]
    pub severity: Option<String>,
    #[serde(default)]
    pub origin: Option<String>,
    #[serde(default)]
    pub event_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// Time of the event; left out: the time at which it is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub happened: Option<Timestamp>,
}

/// In the log beside the executor's.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Ours {
    Test {
        at: Timestamp,
        by: String,
        test: TestEvent,
    },
    Thing {
        at: Timestamp,
        thing: Thing,
        became: Turn,
    },
}

/// Has a commit tell what became of something.
pub(crate) fn tell(batch: &mut Batch, at: Timestamp, thing: Thing, became: Turn) -> Result<(), StoreError> {
    batch.event(&Ours::Thing { at, thing, became }).map(drop)
}

/// What the log holds.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
#[cfg_attr(feature = "schema", schemars(rename = "LoggedEvent"))]
pub enum Entry {
    Executor(Event),
    Ours(Ours),
}

impl Composer {
    /// What was told after an entry of the log, of at most `limit` entries.
    #[crate::boxed]
    pub async fn happened_after(&self, seq: u64, limit: u32) -> Result<Happened, ServiceError> {
        let events = self.store.events_after(seq, limit).await?;
        let mut happened = Happened {
            upto: events.last().map_or(seq, |last| last.seq),
            all: Vec::new(),
        };
        let mut operations = HashMap::new();
        for event in events {
            // Of a newer Poolwright: whoever knows it tells it.
            let Ok(entry) = serde_json::from_str(event.json.get()) else {
                continue;
            };
            if let Some((at, what)) = self.meaning(entry, &mut operations).await? {
                let seq = event.seq;
                happened.all.push(Happening { seq, at, what });
            }
        }
        Ok(happened)
    }

    /// The number of the last entry of the log; 0 where there is none. The log knows only what comes after a number, so it
    /// is looked for in ever smaller steps.
    #[crate::boxed]
    pub async fn last_happened(&self) -> Result<u64, ServiceError> {
        let Some(first) = self.store.events_after(0, 1).await?.pop() else {
            return Ok(0);
        };
        let mut known = first.seq;
        let mut step = 1_u64;
        let mut growing = true;
        loop {
            let found = self
                .store
                .events_after(known.saturating_add(step - 1), 1)
                .await?
                .pop();
            match found {
                Some(event) => known = event.seq,
                None => growing = false,
            }
            match (growing, step) {
                (true, _) => step = step.saturating_mul(2),
                (false, 1) => return Ok(known),
                (false, _) => step /= 2,
            }
        }
    }

    /// Tells whoever listens an event that is none.
    #[crate::boxed]
    pub async fn tell_test_event(&self, by: &str, test: TestEvent) -> Result<(), ServiceError> {
        let mut batch = Batch::new();
        batch.event(&Ours::Test {
            at: self.clock.now(),
            by: by.to_owned(),
            test,
        })?;
        self.store.commit(batch).await?;
        Ok(())
    }

    /// What an entry tells; `None` where that is of no use to others.
    async fn meaning(
        &self,
        entry: Entry,
        known: &mut HashMap<OperationId, Option<Operation>>,
    ) -> Result<Option<(Timestamp, What)>, ServiceError> {
        let event = match entry {
            Entry::Ours(Ours::Test { at, test, .. }) => return Ok(Some((at, What::Test(test)))),
            Entry::Ours(Ours::Thing { at, thing, became }) => {
                return Ok(Some((at, What::Thing { thing, became })));
            }
            Entry::Executor(event) => event,
        };
        Ok(match event {
            Event::Operation {
                at, operation, state, ..
            } => {
                let compositions = match state {
                    OperationState::Completed => self.came_of(&operation).await?,
                    _ => Vec::new(),
                };
                let what = What::Operation {
                    operation,
                    state,
                    compositions,
                };
                Some((at, what))
            }
            Event::Step {
                at,
                operation,
                step,
                state: state @ (StepState::Done | StepState::Undone),
                ..
            } => {
                if !known.contains_key(&operation) {
                    let found = read::<Operation>(self.store.as_ref(), operation.as_str()).await;
                    // One that can't be read, or is forgotten, tells no less of itself by its state.
                    known.insert(operation.clone(), found.ok().flatten().map(|found| found.value));
                }
                let operation = known.get(&operation).and_then(Option::as_ref);
                let record = operation.and_then(|operation| operation.step(step));
                record.and_then(|record| {
                    // Undoing a step restores the earlier state. Subscribers that got the opposite event need this one,
                    // too.
                    let is_done = state == StepState::Done;
                    let bound = match record.step.verb {
                        Verb::Bind => is_done,
                        Verb::Unbind => !is_done,
                        _ => return None,
                    };
                    let unit = record.step.target.unit.clone();
                    Some((at, What::Unit { unit, bound }))
                })
            }
            Event::Step { .. } => None,
            Event::Alarm {
                at,
                operation,
                severity,
                message,
            } => {
                let what = What::Alarm {
                    operation,
                    severity,
                    message,
                };
                Some((at, what))
            }
        })
    }

    /// What became of the compositions of an operation that is completed: as its plan wanted it, but for what was left
    /// out.
    #[crate::boxed]
    pub async fn came_of(
        &self,
        operation: &OperationId,
    ) -> Result<Vec<(CompositionId, Became)>, ServiceError> {
        let store = self.store.as_ref();
        let Some(plan) = read::<PlanRecord>(store, operation.as_str()).await? else {
            return Ok(Vec::new());
        };
        let found = read::<Operation>(store, operation.as_str()).await.ok().flatten();
        let left_out = found.map(|found| found.value.left_out).unwrap_or_default();
        let plan = plan.value.plan;
        // A composition that continues with other units exists before and after the plan.
        let goes_on = |id: &CompositionId| plan.keeps.contains(id);
        let or_changed = |id: &CompositionId, became| if goes_on(id) { Became::Changed } else { became };
        let mut became: BTreeMap<CompositionId, Became> = BTreeMap::new();
        for gone in &plan.releases {
            became.insert(gone.id.clone(), or_changed(&gone.id, Became::Removed));
        }
        for made in &plan.composes {
            let is_left_out = |unit: &UnitId| left_out.iter().any(|left| left.unit == *unit);
            if made.held.iter().all(|held| is_left_out(&held.unit)) {
                continue;
            }
            let change = |was: &mut Became| *was = Became::Changed;
            let made_or_changed = or_changed(&made.id, Became::Made);
            became
                .entry(made.id.clone())
                .and_modify(change)
                .or_insert(made_or_changed);
        }
        Ok(became.into_iter().collect())
    }
}
