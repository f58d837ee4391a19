//! Widths of a layout that are asked for, in place of those that the search would look at.

use crate::error::SizingError;
use crate::job::{Job, within};
use crate::model::Model;
use crate::parallel::Parallel;
use serde::{Deserialize, Serialize};

/// Widths as in [`Parallel`]; None: whatever fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Widths {
    pub tensor: Option<u64>,
    pub pipeline: Option<u64>,
    /// For training, as all that follow.
    pub interleave: Option<u64>,
    pub context: Option<u64>,
    pub expert: Option<u64>,
}

impl Widths {
    /// Refuses what the model's dimensions do not divide into, and what the job has no use for.
    pub(super) fn check(self, model: &Model, job: &Job) -> Result<(), SizingError> {
        let laid_out = Parallel {
            tensor: self.tensor.unwrap_or(1),
            pipeline: self.pipeline.unwrap_or(1),
            interleave: self.interleave.unwrap_or(1),
            context: self.context.unwrap_or(1),
            expert: self.expert.unwrap_or(1),
            // As many replicas as the experts need.
            data: self.expert.unwrap_or(1),
            ..Parallel::SINGLE
        };
        laid_out.check(model)?;
        match job {
            Job::Training(step) => {
                within("context", laid_out.context, 1, step.seq_len)?;
                if laid_out.pipeline > 1 {
                    let allowed = format!(
                        "1 to the micro-batches of a step (accumulation), {}",
                        step.accumulation
                    );
                    if laid_out.pipeline > step.accumulation {
                        return Err(SizingError::bad("pipeline", laid_out.pipeline, &allowed));
                    }
                }
                Ok(())
            }
            Job::Inference(_) => {
                for (key, found) in [
                    ("interleave", laid_out.interleave),
                    ("context", laid_out.context),
                    ("expert", laid_out.expert),
                ] {
                    if found > 1 {
                        return Err(SizingError::bad(key, found, "1 where a model is served"));
                    }
                }
                Ok(())
            }
        }
    }

    /// One of each that is not asked for.
    pub(super) fn or_one(self) -> Widths {
        let one = |asked: Option<u64>| asked.or(Some(1));
        Widths {
            tensor: one(self.tensor),
            pipeline: one(self.pipeline),
            interleave: one(self.interleave),
            context: one(self.context),
            expert: one(self.expert),
        }
    }

    pub(super) fn any(self) -> bool {
        self != Widths::default()
    }
}
