//! What a GPU holds in a division, estimated once: kinds of one vendor differ in what they have, not in that.

use super::Division;
use crate::calibration::Calibration;
use crate::error::SizingError;
use crate::estimate::Estimate;
use crate::inference;
use crate::job::Job;
use crate::model::Model;
use crate::parallel::Parallel;
use crate::training;
use poolwright_model::units::Bytes;
use std::collections::HashMap;

pub(super) struct Memo<'a> {
    model: &'a Model,
    job: &'a Job,
    calibration: &'a Calibration,
    /// By vendor. None: no formula knows the division.
    safe: HashMap<String, HashMap<Division, Option<Bytes>>>,
}

impl<'a> Memo<'a> {
    pub(super) fn new(model: &'a Model, job: &'a Job, calibration: &'a Calibration) -> Self {
        Memo {
            model,
            job,
            calibration,
            safe: HashMap::new(),
        }
    }

    pub(super) fn model(&self) -> &'a Model {
        self.model
    }

    pub(super) fn job(&self) -> &'a Job {
        self.job
    }

    pub(super) fn estimate(&self, division: Division, vendor: &str) -> Result<Estimate, SizingError> {
        match (self.job, division) {
            (Job::Inference(job), Division::Inference(layout)) => {
                let estimate = inference::estimate(self.model, job, layout, vendor)?;
                Ok(self.calibration.serving(estimate, &job.engine, layout.gpus()))
            }
            (Job::Training(job), Division::Training(parallel)) => {
                let estimate = training::estimate(self.model, job, &parallel, vendor)?;
                if self.calibration.is_empty() {
                    return Ok(estimate);
                }
                let (peak, gpus) = (training::peak(self.model, job, &parallel)?, parallel.gpus());
                Ok(self.calibration.training(estimate, &job.framework, gpus, &peak))
            }
            (Job::Inference(_) | Job::Training(_), _) => Err(SizingError::refused(
                "the job",
                "it is divided as another kind of job",
            )),
        }
    }

    /// What the fullest GPU holds at most; None where no formula knows the division. That plain data parallelism
    /// has none is an error: then nothing is known of the job.
    pub(super) fn safe(&mut self, division: Division, vendor: &str) -> Result<Option<Bytes>, SizingError> {
        let known = self
            .safe
            .get(vendor)
            .and_then(|of_vendor| of_vendor.get(&division));
        if let Some(known) = known {
            return Ok(*known);
        }
        let plain = match division {
            Division::Inference(_) => true,
            Division::Training(parallel) => parallel == Parallel::data(parallel.data),
        };
        let safe = match self.estimate(division, vendor) {
            Ok(estimate) => Some(estimate.safe),
            Err(SizingError::Refused { .. }) if !plain => None,
            Err(error) => return Err(error),
        };
        let of_vendor = match self.safe.get_mut(vendor) {
            Some(of_vendor) => of_vendor,
            None => self.safe.entry(vendor.to_owned()).or_default(),
        };
        of_vendor.insert(division, safe);
        Ok(safe)
    }
}
