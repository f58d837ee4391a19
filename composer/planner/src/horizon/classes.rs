//! Priorities as classes. A demand of priority 0 is served as far as it is worth what it costs. Above 0, higher
//! priorities go first, whatever that costs: of two plans that one is better that leaves less unmet (in cost) of the
//! highest priority; where that is the same, of the next; and where all are the same, the one that costs less.
//!
//! The search compares plans like that. What is promised of every plan, however short the search: no demand of a higher
//! priority is left unserved where it would find a place if demands of lower ones were taken away, while those of its
//! own and of higher ones stay as they are. The check judges that for demands of one part and one phase and for missing
//! parts of those that run, where hosts and GPUs are limited in number alone; for what must be served together, places
//! are tried part by part. The bound is of the cost, and knows of no priorities.

use super::problem::{Cost, Demand, Problem};

/// Above all priorities that anybody may give: what runs and may not be ended.
pub(super) const MUST: u32 = u32::MAX;

/// The priorities above 0 of these, the highest first.
pub(super) fn of(demands: &[Demand]) -> Vec<u32> {
    let priorities = demands.iter().map(|demand| demand.priority);
    let mut classes: Vec<u32> = priorities.filter(|priority| *priority > 0).collect();
    classes.sort_unstable_by(|one, other| other.cmp(one));
    classes.dedup();
    classes
}

/// What is unmet of each class where nothing is served.
pub(super) fn unmet(problem: &Problem) -> Vec<Cost> {
    let mut unmet = vec![0; problem.classes.len()];
    for demand in &problem.demands {
        if let Some(class) = problem.class(demand) {
            unmet[class] += demand.unmet;
        }
    }
    unmet
}

impl Problem {
    /// The place of a demand's priority in [`Problem::classes`]; `None` for 0.
    pub(super) fn class(&self, demand: &Demand) -> Option<usize> {
        match demand.priority {
            0 => None,
            priority => self.classes.iter().position(|class| *class == priority),
        }
    }
}
