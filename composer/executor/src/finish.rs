//! How an operation ends: the last line, the GPUs' states, the compositions, and the claims let go of, in
//! one commit.

use crate::alarm;
use crate::context::Context;
use crate::gpus::Change;
use crate::hooks::Moment;
use crate::host::FABRIC_ALONE;
use crate::ledger::{Begins, Entry, Halt};
use crate::line::Line;
use crate::live::Live;
use crate::operation::{Operation, OperationKind, StepRecord};
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

/// Every goal holds, but for what was left out: the compositions are as the plan wanted them.
pub(crate) async fn completed(cx: &Context, live: &Live) -> Result<(), Halt> {
    match try_complete(cx, live).await {
        // Cancelled at the last moment.
        Err(Halt::Stopped) => Ok(()),
        result => result,
    }
}

async fn try_complete(cx: &Context, live: &Live) -> Result<(), Halt> {
    let at_end = |operation: &Operation| {
        let mut steps = operation.steps.iter();
        steps.all(|record| match operation.leaves_out(record.step.index) {
            true => !record.needs_undo(),
            false => record.state.is_through(),
        })
    };
    let (stopping, at_end, nothing_left) = live.ask(|operation| {
        let stopping = operation.stop.is_some();
        (stopping, at_end(operation), operation.nothing_left())
    });
    if stopping {
        return Ok(());
    }
    if !at_end {
        return Err(Halt::Broken("no step can begin, and not all are done".to_owned()));
    }
    if let Some(stop) = nothing_left {
        return live.write(line(Line::Unwind(stop), Begins::Step)).await;
    }
    if live.ask(is_stuck) {
        return quarantined(live, Begins::Step).await;
    }
    let left_out: Vec<_> = live.ask(|operation| {
        let left_out = one_a_unit(operation).filter(|record| operation.leaves_out(record.step.index));
        left_out.cloned().collect()
    });
    clean(cx, live, &left_out).await?;
    let ending = live.ask(|operation| Ending {
        line: Line::Completed,
        changes: let_go(one_a_unit(operation)),
        begins: Begins::Step,
        compositions: After::Planned {
            without: operation.units_left_out(),
        },
        evidence: evidence(operation),
        or_else: FABRIC_ALONE.to_owned(),
    });
    ending.write(cx, live).await
}

/// An entry with nothing but this line.
fn line(line: Line, begins: Begins) -> Entry {
    Entry {
        lines: vec![line],
        changes: vec![],
        begins,
        proof: None,
    }
}

/// Held for somebody, who is told.
async fn quarantined(live: &Live, begins: Begins) -> Result<(), Halt> {
    live.write(line(Line::Quarantined, begins)).await?;
    alarm::tell(live);
    Ok(())
}

fn is_stuck(operation: &Operation) -> bool {
    let mut steps = operation.steps.iter();
    steps.any(|record| record.state == StepState::Stuck)
}

fn let_go<'a>(units: impl Iterator<Item = &'a StepRecord>) -> Vec<(u32, Change)> {
    units.map(|record| (record.step.index, Change::LetGo)).collect()
}

/// What was bound and unbound again was in a host's hands, if only for a moment.
async fn clean(cx: &Context, live: &Live, units: &[StepRecord]) -> Result<(), Halt> {
    let cleaned = units.iter().map(|record| reset::clean_up(cx, live, record));
    // Each to its end: what was sent is waited for, and written down.
    join_all(cleaned)
        .await
        .into_iter()
        .try_for_each(|cleaned| cleaned.map(drop))
}

/// Everything is as it was before; or, if an undo failed, somebody must look.
pub(crate) async fn rolled_back(cx: &Context, live: &Live) -> Result<(), Halt> {
    if live.ask(is_stuck) {
        return quarantined(live, Begins::Nothing).await;
    }
    let units: Vec<_> = live.ask(|operation| one_a_unit(operation).cloned().collect());
    if live.ask(|operation| operation.kind == OperationKind::Adopt) {
        return given_up(cx, live, &units).await;
    }
    // What nobody had is as it was.
    if !live.ask(Operation::is_untouched) {
        clean(cx, live, &units).await?;
    }
    let ending = Ending {
        line: Line::RolledBack,
        changes: let_go(units.iter()),
        begins: Begins::Nothing,
        compositions: After::Unchanged,
        evidence: BTreeMap::new(),
        or_else: FABRIC_ALONE.to_owned(),
    };
    ending.write(cx, live).await
}

/// What was found stays whose it was.
async fn given_up(cx: &Context, live: &Live, units: &[StepRecord]) -> Result<(), Halt> {
    let changes = units.iter().map(|record| {
        // The first step of a unit is the look whether it is bound.
        let change = match record.state.is_through() {
            true => Change::SeenForeign,
            false => Change::LetGo,
        };
        (record.step.index, change)
    });
    let ending = Ending {
        line: Line::RolledBack,
        changes: changes.collect(),
        begins: Begins::Nothing,
        compositions: After::Unchanged,
        evidence: BTreeMap::new(),
        or_else: FABRIC_ALONE.to_owned(),
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
        compositions: After::Found(at),
        evidence: BTreeMap::new(),
        or_else: format!("{FABRIC_ALONE}: accepted by {by}: {reason}"),
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

/// Who confirmed each unit.
fn evidence(operation: &Operation) -> BTreeMap<UnitId, String> {
    let verified = operation.steps.iter().filter(|r| r.step.verb == Verb::Verify);
    verified
        .filter_map(|record| Some((record.step.target.unit.clone(), record.evidence.clone()?)))
        .collect()
}

/// What becomes of the compositions that the plan touches.
enum After {
    /// As planned, as far as the plan goes without these units.
    Planned { without: BTreeSet<UnitId> },
    /// They were not touched: they say what stands, and it stands again.
    Unchanged,
    /// With those units only that are where they say.
    Found(BTreeMap<UnitId, Option<HostPortId>>),
}

/// The last line, and all that is committed with it.
struct Ending {
    line: Line,
    changes: Vec<(u32, Change)>,
    begins: Begins,
    compositions: After,
    /// For units that joined.
    evidence: BTreeMap<UnitId, String>,
    /// For those of which the above says nothing.
    or_else: String,
}

/// The compositions that a plan touches, as they stand.
type Standing = BTreeMap<CompositionId, Option<Versioned<CompositionRecord>>>;

impl Ending {
    async fn write(self, cx: &Context, live: &Live) -> Result<(), Halt> {
        cx.at(live, None, false, Moment::BeforeIntent).await;
        for _ in 0..TRIES {
            let standing = touched(cx, live).await?;
            let after = self.records(live, &standing, cx.clock.now());
            let entry = Entry {
                lines: vec![self.line.clone()],
                changes: self.changes.clone(),
                begins: self.begins,
                proof: None,
            };
            let more = move |operation: &Operation, batch: &mut Batch| {
                if let Some(after) = after {
                    replace(&standing, &after, batch)?;
                }
                for unit in operation.units() {
                    batch.delete(Claim::KIND, unit.as_str());
                }
                batch.put(operation)?.end(&operation.id);
                Ok(())
            };
            match live.write_with(entry, Box::new(more)).await {
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

    /// The compositions that stand from now on, of those that the plan touches; `None` leaves them alone.
    fn records(&self, live: &Live, standing: &Standing, at: Timestamp) -> Option<Vec<CompositionRecord>> {
        let records = standing.values().flatten();
        let before: Vec<_> = records.map(|record| record.value.composition.clone()).collect();
        let after = match &self.compositions {
            After::Unchanged => return None,
            After::Planned { without } => live.plan.without(without).after(&before),
            After::Found(at) => as_found(&before, &live.plan.composes, at),
        };
        let records = after.into_iter().map(|composition| {
            let known = standing.get(&composition.id).and_then(Option::as_ref);
            let evidence = composition.held.iter().map(|held| {
                let kept = known
                    .filter(|record| record.value.composition.held.contains(held))
                    .and_then(|record| record.value.evidence.get(&held.unit));
                let evidence = kept.or_else(|| self.evidence.get(&held.unit));
                (held.unit.clone(), evidence.unwrap_or(&self.or_else).clone())
            });
            CompositionRecord {
                evidence: evidence.collect(),
                composition,
                operation: live.id.clone(),
                since: at,
            }
        });
        Some(records.collect())
    }
}

/// Writes the compositions in the place of those that stand, if those still stand.
fn replace(standing: &Standing, after: &[CompositionRecord], batch: &mut Batch) -> Result<(), StoreError> {
    let kind = CompositionRecord::KIND;
    for (id, record) in standing {
        let revision = record.as_ref().map(|record| record.revision);
        batch.expect(kind, id.as_str(), revision);
        if after.iter().all(|record| record.composition.id != *id) {
            batch.delete(kind, id.as_str());
        }
    }
    for record in after {
        batch.put(record)?;
    }
    Ok(())
}

async fn touched(cx: &Context, live: &Live) -> Result<Standing, Halt> {
    let mut touched = BTreeMap::new();
    for composition in live.plan.releases.iter().chain(&live.plan.composes) {
        if touched.contains_key(&composition.id) {
            continue;
        }
        let id = composition.id.as_str();
        let record = live
            .patiently(|| read::<CompositionRecord>(&*cx.store, id))
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
