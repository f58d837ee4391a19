//! Bundles in the search: placed as one, part by part, and never left with too few.

use super::super::bundle::Bundle;
use super::super::problem::Cost;
use super::Search;
use std::cmp::Reverse;

impl Search<'_> {
    /// Places what is missing of a bundle: the fewest parts at any cost, others where that pays. Takes all of it away
    /// where that fails, or where it was not there and costs more than it is worth.
    pub(super) fn insert_bundle(&mut self, index: usize, blink: usize) {
        let problem = self.state.problem;
        let bundle = &problem.bundles[index];
        let was_there = bundle.demands().any(|part| self.state.placement(part).is_some());
        // What is widest has the fewest places.
        let mut order: Vec<usize> = (0..bundle.phases.len()).collect();
        let width = |phase: &usize| {
            let phase = &bundle.phases[*phase];
            phase.least * usize::from(problem.demands[phase.parts.start].gpus())
        };
        order.sort_by_key(|phase| Reverse(width(phase)));
        let near = std::mem::take(&mut self.inserter.near);
        let costs = order
            .into_iter()
            .map(|phase| self.insert_phase(bundle, phase, blink));
        let cost: Option<Cost> = costs.sum();
        self.inserter.near = near;
        let first = problem.demands[bundle.demands().start].priority > 0;
        if cost.is_none_or(|cost| !was_there && !first && cost >= 0) {
            self.remove_bundle(bundle);
        }
    }

    /// What it costs to place what is missing of a phase; `None` where there is no place for the fewest.
    fn insert_phase(&mut self, bundle: &Bundle, phase: usize, blink: usize) -> Option<Cost> {
        let phase = &bundle.phases[phase];
        let placed = |search: &Self, part: &usize| search.state.placement(*part).is_some();
        let mut served = phase.parts.clone().filter(|part| placed(self, part)).count();
        let mut cost = 0;
        for part in phase.parts.clone() {
            if placed(self, &part) {
                continue;
            }
            let siblings = bundle.demands().filter_map(|part| self.state.placement(part));
            self.inserter.near = siblings.map(|placement| placement.host).collect();
            let needed = served < phase.least;
            let blink = if needed { 0 } else { blink };
            let found = self.inserter.best(&self.state, part, blink, &mut self.rng);
            // The others are like this one.
            let any_cost = needed || self.state.problem.demands[part].priority > 0;
            let Some((found, _)) = found.filter(|(found, _)| any_cost || found.cost < 0) else {
                break;
            };
            cost += found.cost;
            self.place(part, found.placement);
            served += 1;
        }
        (served >= phase.least).then_some(cost)
    }

    fn remove_bundle(&mut self, bundle: &Bundle) {
        for part in bundle.demands() {
            self.remove(part);
        }
    }

    /// Takes away what is left of bundles that were changed and have too few parts in some phase.
    pub(super) fn leave_none_incomplete(&mut self) {
        let problem = self.state.problem;
        if problem.bundles.is_empty() {
            return;
        }
        let shares = self
            .journal
            .iter()
            .filter_map(|(demand, _)| problem.demands[*demand].share);
        let mut bundles: Vec<usize> = shares.map(|share| share.bundle).collect();
        bundles.sort_unstable();
        bundles.dedup();
        for bundle in bundles {
            let bundle = &problem.bundles[bundle];
            let served = |parts: std::ops::Range<usize>| {
                parts.filter(|part| self.state.placement(*part).is_some()).count()
            };
            if bundle
                .phases
                .iter()
                .any(|phase| served(phase.parts.clone()) < phase.least)
            {
                self.remove_bundle(bundle);
            }
        }
    }
}
