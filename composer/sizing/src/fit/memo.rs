//! What a GPU holds in a division, estimated once and as seldom as can be.
//!
//! Kinds differ in what they have, not in what they must hold, so what was found for one kind brackets the search
//! for the next: memory falls with the units of a layout, and every known number of units is a bound. In training
//! only context and communication library depend on the card; they are added to what all cards share.

use super::Division;
use super::layouts::Found;
use crate::calibration::Calibration;
use crate::error::SizingError;
use crate::estimate::Estimate;
use crate::inference;
use crate::job::Job;
use crate::model::Model;
use crate::overhead::{self, Card};
use crate::parallel::Parallel;
use crate::roofline::Launches;
use crate::training;
use poolwright_model::units::Bytes;
use std::collections::{BTreeMap, HashMap};

/// Terms are rounded up to whole bytes one by one: no estimate has as many.
const ROUNDING: u64 = 64;

/// By the layout that one unit has.
type Known = HashMap<Division, BTreeMap<u64, Option<Bytes>>>;

pub(super) struct Memo<'a> {
    pub(super) model: &'a Model,
    pub(super) job: &'a Job,
    calibration: &'a Calibration,
    /// Serving, by card; training, under no card and without what depends on it. None: no formula knows it.
    known: HashMap<Option<Card>, Known>,
    estimates: HashMap<Card, HashMap<Division, Estimate>>,
    steps: training::Once,
    pub(super) launches: Option<Launches>,
}

impl<'a> Memo<'a> {
    pub(super) fn new(model: &'a Model, job: &'a Job, calibration: &'a Calibration) -> Self {
        Memo {
            model,
            job,
            calibration,
            known: HashMap::new(),
            estimates: HashMap::new(),
            steps: training::Once::default(),
            launches: Launches::of(model, job),
        }
    }

    /// The estimate in words.
    pub(super) fn estimate(&mut self, division: Division, card: Card) -> Result<Estimate, SizingError> {
        if let Some(known) = self.estimates.get(&card).and_then(|of| of.get(&division)) {
            return Ok(known.clone());
        }
        let estimate = self.estimated(division, card)?;
        let of_card = self.estimates.entry(card).or_default();
        of_card.insert(division, estimate.clone());
        Ok(estimate)
    }

    fn estimated(&self, division: Division, card: Card) -> Result<Estimate, SizingError> {
        match (self.job, division) {
            (Job::Inference(job), Division::Inference(layout)) => {
                let estimate = inference::estimate(self.model, job, layout, card)?;
                let estimate = self.calibration.corrected(estimate, &job.engine, layout.gpus());
                Ok(inference::within_share(estimate, job))
            }
            (Job::Training(job), Division::Training(parallel)) => {
                let estimate = training::estimate_once(self.model, job, &parallel, card, &self.steps)?;
                Ok(self
                    .calibration
                    .corrected(estimate, &job.framework, parallel.gpus()))
            }
            (Job::Inference(_) | Job::Training(_), _) => Err(SizingError::refused(
                "the job",
                "it is divided as another kind of job",
            )),
        }
    }

    /// The fewest units of a layout, of at most so many, whose GPUs hold no more than they have.
    pub(super) fn fewest(
        &mut self,
        layout: impl Fn(u64) -> Division,
        most: u64,
        card: Card,
        memory: Bytes,
    ) -> Result<Option<Found>, SizingError> {
        // The second unit may add what is gathered from the others, and the communication library takes its part
        // with the second and more with the third: before it, memory need not fall.
        let uneven = 2;
        for units in 1..=most.min(uneven) {
            if let Some(found) = self.fits(&layout, units, card, memory)? {
                return Ok(Some(found));
            }
        }
        let (mut too_few, known) = self.bracket(&layout, uneven, card, memory);
        if most <= too_few {
            return Ok(None);
        }
        let mut enough = known.map_or(most, |known| known.min(most));
        let Some(mut found) = self.fits(&layout, enough, card, memory)? else {
            return Ok(None);
        };
        let mut guessed = 0;
        while enough - too_few > 1 {
            let low = self.safe(layout(1), too_few, layout(too_few), card)?;
            let guess = guess((too_few, low), (enough, found.safe), memory);
            // A guess is right at once as a rule; where it is not, halving ends it.
            guessed += 1;
            let half = too_few + (enough - too_few) / 2;
            let units = guess.filter(|_| guessed % 3 != 0).unwrap_or(half);
            match self.fits(&layout, units, card, memory)? {
                Some(fewer) => (enough, found) = (units, fewer),
                None => too_few = units,
            }
        }
        Ok(Some(found))
    }

    /// So many units, if their GPUs hold no more than they have.
    pub(super) fn fits(
        &mut self,
        layout: &impl Fn(u64) -> Division,
        units: u64,
        card: Card,
        memory: Bytes,
    ) -> Result<Option<Found>, SizingError> {
        let division = layout(units);
        let safe = self.safe(layout(1), units, division, card)?;
        let safe = safe.filter(|safe| *safe <= memory);
        Ok(safe.map(|safe| Found { division, safe }))
    }

    /// From what is known of other kinds: a number of units, at least `uneven`, that is too small, and one that is
    /// enough.
    fn bracket(
        &self,
        layout: &impl Fn(u64) -> Division,
        uneven: u64,
        card: Card,
        memory: Bytes,
    ) -> (u64, Option<u64>) {
        let known = self
            .known
            .get(&self.shelf(card))
            .and_then(|of| of.get(&layout(1)));
        let Some(known) = known else { return (uneven, None) };
        let fits = |units: u64, safe: &Option<Bytes>| {
            safe.is_some_and(|safe| safe + self.outside(layout(units), card) <= memory)
        };
        let beyond = || known.range(uneven + 1..);
        let enough = beyond()
            .find(|(units, safe)| fits(**units, safe))
            .map(|(units, _)| *units);
        let too_few = beyond()
            .rev()
            .find(|(units, safe)| !fits(**units, safe) && enough.is_none_or(|enough| **units < enough));
        (too_few.map_or(uneven, |(units, _)| *units), enough)
    }

    /// What the fullest GPU holds at most; None where no formula knows the division. That plain data parallelism
    /// has none is an error: then nothing is known of the job.
    pub(super) fn safe(
        &mut self,
        unit: Division,
        units: u64,
        division: Division,
        card: Card,
    ) -> Result<Option<Bytes>, SizingError> {
        let outside = self.outside(division, card);
        let shelf = self.shelf(card);
        let known = self.known.get(&shelf).and_then(|of| of.get(&unit)?.get(&units));
        let safe = match known {
            Some(known) => *known,
            None => {
                let found = self.shared(division, card)?;
                let of_shelf = self.known.entry(shelf).or_default();
                of_shelf.entry(unit).or_default().insert(units, found);
                found
            }
        };
        Ok(safe.map(|safe| safe + outside))
    }

    /// Under what a card's figures are kept.
    fn shelf(&self, card: Card) -> Option<Card> {
        match self.job {
            Job::Inference(_) => Some(card),
            Job::Training(_) => None,
        }
    }

    /// What does not depend on the card, in training.
    fn shared(&self, division: Division, card: Card) -> Result<Option<Bytes>, SizingError> {
        let (Job::Training(job), Division::Training(parallel)) = (self.job, division) else {
            return Ok(Some(self.estimated(division, card)?.safe));
        };
        let plain = parallel == Parallel::data(parallel.data);
        let peak = match training::bare_peak(self.model, job, &parallel) {
            Err(SizingError::Refused { .. }) if !plain => return Ok(None),
            peak => peak?,
        };
        let found = training::reserved(self.model, &peak, job, &parallel, &self.steps)?;
        let calibration = self.calibration;
        let bound = calibration.reserved(&job.framework, parallel.gpus(), found, peak.safe_bytes);
        Ok(Some(Bytes(
            (bound.safe.max(0.0).ceil() as u64).saturating_add(ROUNDING),
        )))
    }

    /// What a GPU holds outside tensors, where that is not in the shared part.
    fn outside(&self, division: Division, card: Card) -> Bytes {
        match (self.job, division) {
            (Job::Training(job), Division::Training(ways)) => {
                let found = overhead::safe(card, &job.software(), &ways);
                self.calibration.overhead_safe(&job.framework, ways.gpus(), found)
            }
            (Job::Inference(_) | Job::Training(_), _) => Bytes(0),
        }
    }
}

/// Where memory falls to what there is, if a part of it is divided by the units and the rest is not: between a number
/// that is too small and one that is enough.
fn guess(low: (u64, Option<Bytes>), high: (u64, Bytes), memory: Bytes) -> Option<u64> {
    let at = |units: u64| 1.0 / units as f64;
    let (more, less) = (low.1?.0 as f64, high.1.0 as f64);
    let divided = (more - less) / (at(low.0) - at(high.0));
    let rest = less - divided * at(high.0);
    let units = (divided / (memory.0 as f64 - rest)).ceil();
    // On either side of it, whichever is left.
    let within = (low.0 + 1) as f64..=(high.0 - 1) as f64;
    let before = units - 1.0;
    let guess = if units == high.0 as f64 { before } else { units };
    within.contains(&guess).then_some(guess as u64)
}
