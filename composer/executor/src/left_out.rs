//! Going on without some units, where whoever asked said that a part is better than nothing.
//!
//! A step that fails takes its unit along, with every step of it, and every unit that waits for one that is left out
//! (for the slot that it was to free, say). What was done for them is undone while the others go on. Where others are
//! left the operation ends as completed, and says what it left out and why; where none is left, as rolled back.

use crate::operation::{Operation, Stop, StopCause};
use crate::state::OperationState;
use poolwright_model::id::{GpuId, UnitId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A unit that an operation goes on without: it is, or will be, where it was before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeftOut {
    pub unit: UnitId,
    pub gpus: Vec<GpuId>,
    /// The step that failed. It is another unit's where this one could not do without that.
    pub step: u32,
    /// What failed, where and why.
    pub why: String,
}

impl Operation {
    /// Done, but not all that was asked for.
    pub fn is_partial(&self) -> bool {
        self.state == OperationState::Completed && !self.left_out.is_empty()
    }

    /// The units that it does, or did, without.
    pub fn units_left_out(&self) -> BTreeSet<UnitId> {
        self.left_out.iter().map(|left| left.unit.clone()).collect()
    }

    /// Whether the step is one of a unit that is left out.
    pub(crate) fn leaves_out(&self, index: u32) -> bool {
        !self.left_out.is_empty()
            && self.step(index).is_some_and(|record| {
                let unit = &record.step.target.unit;
                self.left_out.iter().any(|left| left.unit == *unit)
            })
    }

    /// Nothing of the step begins any more: it is only undone.
    pub(crate) fn turns_back(&self, index: u32) -> bool {
        self.stop.is_some() || self.leaves_out(index)
    }

    /// What is left out, beside what is already, once this step has failed.
    pub(crate) fn without(&self, failed: u32, why: &str) -> Vec<LeftOut> {
        let Some(record) = self.step(failed) else {
            return Vec::new();
        };
        let first = &record.step.target.unit;
        let mut units = BTreeSet::from([first]);
        // Who waits for whom may go back and forth between units.
        loop {
            let before = units.len();
            for record in &self.steps {
                let of_left_out = |index: &u32| {
                    let before = self.step(*index);
                    before.is_some_and(|before| units.contains(&before.step.target.unit))
                };
                if record.step.after.iter().any(of_left_out) {
                    units.insert(&record.step.target.unit);
                }
            }
            if units.len() == before {
                break;
            }
        }
        let known = self.units_left_out();
        let new = units.iter().filter(|unit| !known.contains(**unit));
        let left = new.filter_map(|unit| {
            let mut steps = self.steps.iter();
            let of_unit = steps.find(|record| record.step.target.unit == **unit)?;
            Some(LeftOut {
                unit: (*unit).clone(),
                gpus: of_unit.step.target.gpus.clone(),
                step: failed,
                why: match *unit == first {
                    true => why.to_owned(),
                    false => format!("it waits for {first}, which is left out: {why}"),
                },
            })
        });
        left.collect()
    }

    /// Why it comes to nothing; `None` where something is left to be done.
    pub(crate) fn nothing_left(&self) -> Option<Stop> {
        let first = self.left_out.first()?;
        let all = self.units().len() == self.left_out.len();
        all.then(|| Stop {
            cause: StopCause::Failed(first.step),
            message: first.why.clone(),
        })
    }
}
