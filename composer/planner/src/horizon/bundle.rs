//! Demands that belong together: the parts of one that spans hosts, and the phases of one that wants other GPUs later.
//!
//! A demand of a file that has parts or phases is several demands here, one for each part in each phase, and a bundle
//! that says what of them must be served. A part that is missing costs what is unmet of it alone; where fewer than the
//! fewest are served in some phase, nothing of the bundle is.

use super::problem::{Demand, Problem};
use std::ops::Range;

/// What must be served together, or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// In the order in which they come; their windows follow each other.
    pub phases: Vec<Phase>,
}

/// The parts of a bundle in one window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phase {
    /// Demands, all alike.
    pub parts: Range<usize>,
    /// Parts that are served, where anything of the bundle is.
    pub least: usize,
    /// Each part has a host of its own.
    pub apart: bool,
}

/// Which part of a bundle a demand is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    pub bundle: usize,
    /// Places in [`Bundle::phases`] and [`Phase::parts`].
    pub phase: usize,
    pub part: usize,
    /// Whether the demand of the file has several phases, and several parts in this one.
    pub phased: bool,
    pub parted: bool,
}

impl Bundle {
    /// All demands of it.
    pub fn demands(&self) -> Range<usize> {
        let ends = (self.phases.first(), self.phases.last());
        match ends {
            (Some(first), Some(last)) => first.parts.start..last.parts.end,
            _ => 0..0,
        }
    }
}

impl Demand {
    /// The phase and the part that this is of a demand of a file, counted from 1; `None` where it has but one.
    pub fn phase(&self) -> Option<usize> {
        self.share
            .filter(|share| share.phased)
            .map(|share| share.phase + 1)
    }

    pub fn part(&self) -> Option<usize> {
        self.share
            .filter(|share| share.parted)
            .map(|share| share.part + 1)
    }

    /// What a plan calls it.
    pub fn key(&self) -> (&str, Option<usize>, Option<usize>) {
        (&self.id, self.phase(), self.part())
    }

    /// Its id, with the phase and the part.
    pub fn name(&self) -> String {
        let mut name = self.id.clone();
        for (what, place) in [("phase", self.phase()), ("part", self.part())] {
            if let Some(place) = place {
                name.push_str(&format!(" {what} {place}"));
            }
        }
        name
    }
}

impl Problem {
    /// The phase that a demand is a part of.
    pub(super) fn phase_of(&self, demand: usize) -> Option<&Phase> {
        let share = self.demands[demand].share?;
        self.bundles.get(share.bundle)?.phases.get(share.phase)
    }

    /// Demands as a file counts them.
    pub fn wanted(&self) -> usize {
        let first = |demand: &&Demand| {
            demand
                .share
                .is_none_or(|share| share.phase == 0 && share.part == 0)
        };
        self.demands.iter().filter(first).count()
    }
}
