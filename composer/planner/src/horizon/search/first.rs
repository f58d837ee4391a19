//! What [priorities](super::super::classes) promise, made true of the state that the search ends with.

use super::super::problem::Cost;
use super::super::state::Placement;
use super::{Search, fits};
use std::cmp::Reverse;

impl Search<'_> {
    /// From the highest priority on: serves what finds a place where lower ones are taken away, and places those again
    /// as far as they still find one.
    pub fn serve_first(&mut self) {
        let problem = self.state.problem;
        (self.inserter.noise, self.inserter.gentle) = (0, false);
        for priority in &problem.classes {
            let demands = problem.demands.iter().enumerate();
            let waiting = demands.filter(|(_, demand)| demand.priority == *priority);
            let waiting: Vec<usize> = waiting
                .map(|(index, _)| index)
                .filter(|index| self.state.placement(*index).is_none())
                .collect();
            if waiting.is_empty() {
                continue;
            }
            self.forget();
            self.state.mark();
            let mut below: Vec<usize> = (0..problem.demands.len()).collect();
            below.retain(|index| problem.demands[*index].priority < *priority);
            below.sort_by_key(|index| Reverse(problem.demands[*index].priority));
            let removed = self.remove_all(&below);
            self.insert_anywhere(&waiting);
            self.put_back(removed);
            self.leave_none_incomplete();
            // What can't be held attached is no plan.
            if self.state.cost() == Cost::MAX {
                self.undo();
            }
        }
    }

    fn insert_anywhere(&mut self, waiting: &[usize]) {
        let problem = self.state.problem;
        for demand in waiting {
            let runs = |bundle: usize| {
                let mut parts = problem.bundles[bundle].demands();
                parts.any(|part| self.state.placement(part).is_some())
            };
            match problem.demands[*demand].share {
                // What is not there at all must come together.
                Some(share) if !runs(share.bundle) => self.insert(&[*demand], 0),
                _ if self.state.placement(*demand).is_some() => {}
                _ => {
                    if let Some(found) = self.inserter.anywhere(&self.state, *demand, &mut self.rng) {
                        self.place(*demand, found.placement);
                    }
                }
            }
        }
    }

    /// Places demands where they were, and those that no longer fit there wherever it is best.
    fn put_back(&mut self, removed: Vec<(usize, Placement)>) {
        let mut left = Vec::new();
        for (demand, placement) in removed {
            match fits(&self.state, demand, &placement) {
                true => self.place(demand, placement),
                false => left.push(demand),
            }
        }
        self.insert(&left, 0);
    }
}
