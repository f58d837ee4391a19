//! An operation and its GPUs as the journal has them, line by line.

use crate::event::Event;
use crate::gpus::{self, Change, Gpus};
use crate::line::{Line, Noted, StepLine};
use crate::operation::{Operation, StepRecord};
use crate::record::GpuRecord;
use crate::state::{OperationState, StepState};
use jiff::Timestamp;
use poolwright_model::id::GpuId;
use poolwright_store::{Batch, Expectation, StoreError};
use std::collections::BTreeMap;

/// What is to be written together.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub lines: Vec<Line>,
    /// What happens to which step's unit.
    pub changes: Vec<(u32, Change)>,
    pub begins: Begins,
    /// What must still be so for it to be written: that this manager is in charge.
    pub proof: Option<Expectation>,
}

/// Whether something new begins with an entry. If so, it is refused while the operation is parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begins {
    /// A step: refused once the operation is being undone, or goes on without its unit.
    Step,
    /// An undo.
    Undo,
    /// Nothing; it says what was seen.
    Nothing,
}

/// Why the work at an operation pauses or ends here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Halt {
    /// The operation is being undone: nothing new begins.
    Stopped,
    /// The process shuts down, or an operator steps in: everything is in the journal, to be carried on.
    Parked,
    /// Somebody else wrote what only this operation should: its journal, or the document of this kind.
    Fenced { kind: String, message: String },
    /// A mistake of ours; the operation stays as it is until somebody looks.
    Broken(String),
}

impl Halt {
    pub fn broken(error: &StoreError) -> Self {
        Self::Broken(error.to_string())
    }
}

pub(crate) struct Ledger {
    pub operation: Operation,
    pub gpus: Gpus,
}

/// What a ledger was, as far as entries touched it.
#[derive(Default)]
pub(crate) struct Before {
    head: Option<Operation>,
    steps: BTreeMap<u32, StepRecord>,
    gpus: BTreeMap<GpuId, GpuRecord>,
}

impl Ledger {
    /// Why an entry can't be written now.
    pub fn refuses(&self, entry: &Entry, parked: bool) -> Option<Halt> {
        let operation = &self.operation;
        let left_out = |line: &Line| matches!(line, Line::Step(step) if operation.leaves_out(step.index));
        let stopped = entry.begins == Begins::Step
            && (operation.stop.is_some()
                || operation.state == OperationState::Quarantined
                || entry.lines.iter().any(left_out));
        if operation.state.has_ended() || stopped {
            return Some(Halt::Stopped);
        }
        (parked && entry.begins != Begins::Nothing).then_some(Halt::Parked)
    }

    /// Adds an entry to the ledger, and to the batch that makes it true. Returns the lines.
    pub fn add(
        &mut self,
        entry: Entry,
        at: Timestamp,
        batch: &mut Batch,
        before: &mut Before,
    ) -> Result<Vec<Noted>, Halt> {
        self.remember(&entry, before);
        if let Some(proof) = &entry.proof {
            batch.expect(&proof.kind, &proof.id, proof.revision);
        }
        let mut noted = Vec::with_capacity(entry.lines.len());
        // Each record is written once, as it is after all of it.
        let mut changed: BTreeMap<GpuId, GpuRecord> = BTreeMap::new();
        let mut keep = |records: Vec<GpuRecord>| {
            changed.extend(records.into_iter().map(|record| (record.gpu.clone(), record)));
        };
        for line in entry.lines {
            let line = Noted { at, line };
            self.add_line(&line, batch)?;
            if let Line::Step(step) = &line.line {
                keep(self.learn(step));
            }
            noted.push(line);
        }
        for (index, change) in entry.changes {
            let Some(record) = self.operation.step(index) else {
                continue;
            };
            let of = gpus::Context {
                operation: &self.operation.id,
                composition: record.step.composition.as_ref(),
                tenant: record.tenant.as_ref(),
                at,
            };
            keep(self.gpus.change(&record.step.target, change, &of));
        }
        for record in changed.values() {
            batch.put(record).map_err(|e| Halt::broken(&e))?;
        }
        Ok(noted)
    }

    /// Keeps what a host told with its GPUs; returns the records that are different now.
    fn learn(&mut self, line: &StepLine) -> Vec<GpuRecord> {
        let of = self.operation.step(line.index);
        of.map_or_else(Vec::new, |record| {
            self.gpus
                .learn(&record.step.target.unit, &line.learned, &line.left)
        })
    }

    /// Adds a line, with the events that tell of it.
    fn add_line(&mut self, line: &Noted, batch: &mut Batch) -> Result<(), Halt> {
        let operation = &mut self.operation;
        let (state, alarm) = (operation.state, operation.alarm.clone());
        operation
            .apply(line)
            .map_err(|misfit| Halt::Broken(misfit.to_string()))?;
        let step = match &line.line {
            Line::Step(step) => Event::step(line.at, operation, step.index),
            _ => None,
        };
        let all = (operation.state != state).then(|| Event::operation(line.at, operation));
        let written = batch.line(&operation.id, operation.seq, line);
        written.map_err(|e| Halt::broken(&e))?;
        let alarm = (operation.alarm != alarm)
            .then(|| Event::alarm(operation))
            .flatten();
        for event in step.into_iter().chain(all).chain(alarm) {
            batch.event(&event).map_err(|e| Halt::broken(&e))?;
        }
        Ok(())
    }

    /// Keeps what an entry is about to change; what was kept before stays.
    fn remember(&mut self, entry: &Entry, before: &mut Before) {
        if before.head.is_none() {
            // The head alone: an operation may have thousands of steps.
            let steps = std::mem::take(&mut self.operation.steps);
            before.head = Some(self.operation.clone());
            self.operation.steps = steps;
        }
        for line in &entry.lines {
            match line {
                Line::Step(line) => {
                    if let Some(record) = self.operation.step(line.index) {
                        before.steps.entry(line.index).or_insert_with(|| record.clone());
                    }
                }
                Line::Retried { .. } => {
                    let stuck = self
                        .operation
                        .steps
                        .iter()
                        .filter(|r| r.state == StepState::Stuck);
                    for record in stuck {
                        before
                            .steps
                            .entry(record.step.index)
                            .or_insert_with(|| record.clone());
                    }
                }
                _ => {}
            }
        }
        let learning = entry.lines.iter().filter_map(|line| match line {
            Line::Step(line) if !line.learned.is_empty() || !line.left.is_empty() => Some(line.index),
            _ => None,
        });
        for index in entry.changes.iter().map(|(index, _)| *index).chain(learning) {
            let Some(record) = self.operation.step(index) else {
                continue;
            };
            for gpu in self.gpus.of_unit(&record.step.target.unit) {
                before.gpus.entry(gpu.gpu.clone()).or_insert_with(|| gpu.clone());
            }
        }
    }

    /// Takes back what was added since: it was not committed.
    pub fn restore(&mut self, before: Before) {
        if let Some(head) = before.head {
            let steps = std::mem::take(&mut self.operation.steps);
            self.operation = Operation { steps, ..head };
        }
        for (index, record) in before.steps {
            if let Some(step) = self.operation.steps.get_mut(index as usize) {
                *step = record;
            }
        }
        for record in before.gpus.into_values() {
            self.gpus.insert(record);
        }
    }
}
