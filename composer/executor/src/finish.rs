//! How an operation ends: the last line, the GPUs' states, the compositions, and the claims let go of, in
//! one commit.

use crate::context::Context;
use crate::gpus::Change;
use crate::hooks::Moment;
use crate::host::FABRIC_ALONE;
use crate::line::Line;
use crate::live::{Begins, Entry, Halt, Live};
use crate::operation::{Operation, StepRecord};
use crate::record::{Claim, CompositionRecord};
use crate::reset;
use crate::state::StepState;
use futures_util::future::join_all;
use jiff::Timestamp;
use poolwright_model::id::{CompositionId, HostPortId, UnitId};
use poolwright_model::step::{Target, Verb};
use poolwright_planner::Composition;
use poolwright_store::{Batch, StoreError, Stored, Versioned, read};
use std::collections::{BTreeMap, BTreeSet};

/// How often a composition that another operation changed in between is read anew.
const TRIES: u32 = 20;

/// Every goal holds: the compositions are as the plan wanted them.
pub(crate) async fn completed(cx: &Context, live: &Live) -> Result<(), Halt> {
    let (stopping, through) = live.ask(|operation| {
        let through = operation.steps.iter().all(|record| record.state.is_through());
        (operation.stop.is_some(), through)
    });
    if stopping {
        return Ok(());
    }
    if !through {
        return Err(Halt::Broken("no step can begin, and not all are done".to_owned()));
    }
    let ending = Ending {
        line: Line::Completed,
        changes: live.ask(|operation| {
            let units = one_a_unit(operation);
            units.map(|record| (record.step.index, Change::LetGo)).collect()
        }),
        begins: Begins::Step,
        compositions: &|before| Some(live.plan.after(before)),
        evidence: &|unit| live.ask(|operation| evidence(operation, unit)),
    };
    match ending.write(cx, live).await {
        // Cancelled at the last moment.
        Err(Halt::Stopped) => Ok(()),
        result => result,
    }
}

/// Everything is as it was before; or, if an undo failed, somebody must look.
pub(crate) async fn rolled_back(cx: &Context, live: &Live) -> Result<(), Halt> {
    let stuck = |record: &StepRecord| record.state == StepState::Stuck;
    if live.ask(|operation| operation.steps.iter().any(stuck)) {
        let entry = Entry {
            lines: vec![Line::Quarantined],
            changes: vec![],
            begins: Begins::Nothing,
        };
        return live.write(cx, entry).await;
    }
    let units: Vec<_> = live.ask(|operation| one_a_unit(operation).cloned().collect());
    // What was bound and unbound again was in a host's hands, if only for a moment.
    let cleaned = units.iter().map(|record| async move {
        let (change, _) = reset::clean(cx, live, &record.step.target).await;
        (record.step.index, change)
    });
    let mut changes = Vec::new();
    for (index, change) in join_all(cleaned).await {
        changes.extend(change.map(|change| (index, change)));
        changes.push((index, Change::LetGo));
    }
    let ending = Ending {
        line: Line::RolledBack,
        changes,
        begins: Begins::Nothing,
        // They were not touched: they say what stands, and it stands again.
        compositions: &|_| None,
        evidence: &|_| FABRIC_ALONE.to_owned(),
    };
    ending.write(cx, live).await
}

/// What an operator takes for the truth about a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Truth {
    Free,
    /// Bound to the port of the step with this index.
    Ours(u32),
    Foreign,
}

/// Ends the operation with things as they are.
pub(crate) async fn accepted(
    cx: &Context,
    live: &Live,
    (by, reason): (&str, &str),
    truths: &BTreeMap<UnitId, Truth>,
) -> Result<(), Halt> {
    let units: Vec<_> = live.ask(|operation| one_a_unit(operation).cloned().collect());
    let changes = units.iter().map(|record| {
        let index = record.step.index;
        match truths.get(&record.step.target.unit) {
            Some(Truth::Ours(index)) => (*index, Change::AcceptBound),
            Some(Truth::Free) => (index, Change::AcceptFree),
            Some(Truth::Foreign) | None => (index, Change::SeenForeign),
        }
    });
    let at: BTreeMap<UnitId, Option<HostPortId>> = live.ask(|operation| {
        let port = |truth: &Truth| match truth {
            Truth::Ours(index) => operation.step(*index).map(|r| r.step.target.host_port.clone()),
            Truth::Free | Truth::Foreign => None,
        };
        truths
            .iter()
            .map(|(unit, truth)| (unit.clone(), port(truth)))
            .collect()
    });
    let ending = Ending {
        line: Line::Accepted {
            by: by.to_owned(),
            reason: reason.to_owned(),
        },
        changes: changes.collect(),
        begins: Begins::Nothing,
        compositions: &|before| Some(as_found(before, &live.plan.composes, &at)),
        evidence: &|_| format!("{FABRIC_ALONE}: accepted by {by}: {reason}"),
    };
    ending.write(cx, live).await
}

/// The compositions with those units only that are where they say: `at` has the units that the operation
/// had in hand, with the port that each is bound to.
fn as_found(
    before: &[Composition],
    wanted: &[Composition],
    at: &BTreeMap<UnitId, Option<HostPortId>>,
) -> Vec<Composition> {
    let mut after: BTreeMap<&CompositionId, Composition> = BTreeMap::new();
    for composition in before.iter().chain(wanted) {
        let into = after
            .entry(&composition.id)
            .or_insert_with(|| composition.with(vec![]));
        for held in &composition.held {
            let there = at
                .get(&held.unit)
                .is_none_or(|port| port.as_ref() == Some(&held.host_port));
            if there && into.held.iter().all(|known| known.unit != held.unit) {
                into.held.push(held.clone());
            }
        }
        into.held.sort_by(|a, b| a.unit.cmp(&b.unit));
    }
    after.into_values().filter(|c| !c.held.is_empty()).collect()
}

/// One step for each unit that the operation has in hand.
fn one_a_unit(operation: &Operation) -> impl Iterator<Item = &StepRecord> {
    let mut seen = BTreeSet::new();
    operation
        .steps
        .iter()
        .filter(move |record| seen.insert(&record.step.target.unit))
}

/// Who confirmed a unit.
fn evidence(operation: &Operation, unit: &UnitId) -> String {
    operation
        .steps
        .iter()
        .rev()
        .find(|record| record.step.verb == Verb::Verify && record.step.target.unit == *unit)
        .and_then(|record| record.evidence.clone())
        .unwrap_or_else(|| FABRIC_ALONE.to_owned())
}

/// The last line, and all that is committed with it.
struct Ending<'a> {
    line: Line,
    changes: Vec<(u32, Change)>,
    begins: Begins,
    /// From the compositions that the plan touches, as they stand, to what stands from now on; `None`
    /// leaves them alone.
    compositions: &'a (dyn Fn(&[Composition]) -> Option<Vec<Composition>> + Sync),
    /// For a unit that joined.
    evidence: &'a (dyn Fn(&UnitId) -> String + Sync),
}

impl Ending<'_> {
    async fn write(self, cx: &Context, live: &Live) -> Result<(), Halt> {
        cx.at(live, None, false, Moment::BeforeIntent).await;
        for _ in 0..TRIES {
            let before = touched(cx, live).await?;
            let entry = Entry {
                lines: vec![self.line.clone()],
                changes: self.changes.clone(),
                begins: self.begins,
            };
            let at = cx.clock.now();
            let written = live.write_with(cx, entry, |operation, batch| {
                self.compositions(operation, &before, at, batch)?;
                for unit in operation.units() {
                    batch.delete(Claim::KIND, unit.as_str());
                }
                batch.put(operation)?.end(&operation.id);
                Ok(())
            });
            match written.await {
                // Another operation changed it in between, with other units.
                Err(Halt::Fenced { kind, .. }) if kind == CompositionRecord::KIND => {}
                Err(halt) => return Err(halt),
                Ok(()) => {
                    cx.at(live, None, false, Moment::AfterOutcome).await;
                    return Ok(());
                }
            }
        }
        Err(Halt::Broken(
            "the compositions change faster than they can be read".to_owned(),
        ))
    }

    fn compositions(
        &self,
        operation: &Operation,
        before: &BTreeMap<CompositionId, Option<Versioned<CompositionRecord>>>,
        at: Timestamp,
        batch: &mut Batch,
    ) -> Result<(), StoreError> {
        let standing = before.values().flatten();
        let held: Vec<_> = standing.map(|record| record.value.composition.clone()).collect();
        let Some(after) = (self.compositions)(&held) else {
            return Ok(());
        };
        for (id, record) in before {
            batch.expect(
                CompositionRecord::KIND,
                id.as_str(),
                record.as_ref().map(|record| record.revision),
            );
            if after.iter().all(|composition| composition.id != *id) {
                batch.delete(CompositionRecord::KIND, id.as_str());
            }
        }
        for composition in after {
            let known = before.get(&composition.id).and_then(Option::as_ref);
            let evidence = composition.held.iter().map(|held| {
                let kept = known
                    .filter(|record| record.value.composition.held.contains(held))
                    .and_then(|record| record.value.evidence.get(&held.unit));
                let evidence = kept.cloned().unwrap_or_else(|| (self.evidence)(&held.unit));
                (held.unit.clone(), evidence)
            });
            let record = CompositionRecord {
                evidence: evidence.collect(),
                composition,
                operation: operation.id.clone(),
                since: at,
            };
            batch.put(&record)?;
        }
        Ok(())
    }
}

/// The compositions that the plan touches, as they stand.
async fn touched(
    cx: &Context,
    live: &Live,
) -> Result<BTreeMap<CompositionId, Option<Versioned<CompositionRecord>>>, Halt> {
    let mut touched = BTreeMap::new();
    for composition in live.plan.releases.iter().chain(&live.plan.composes) {
        if touched.contains_key(&composition.id) {
            continue;
        }
        let id = composition.id.as_str();
        let record = live
            .patiently(cx, || read::<CompositionRecord>(&*cx.store, id))
            .await?;
        touched.insert(composition.id.clone(), record);
    }
    Ok(touched)
}

/// Where a target's unit is, in the words of an operator's resolution.
pub(crate) fn truth_of(operation: &Operation, unit: &UnitId, port_address: &str) -> Truth {
    let ours = operation.steps.iter().find(|record| {
        let Target {
            unit: of, port_at, ..
        } = &record.step.target;
        of == unit && port_at.address == port_address
    });
    ours.map_or(Truth::Foreign, |record| Truth::Ours(record.step.index))
}
