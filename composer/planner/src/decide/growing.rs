//! Elastic demands: small while other demands would lack GPUs. They grow once all others are served, on their own hosts
//! and, if they may span hosts, on others. They keep the GPUs that they have.

use super::promised::by_any_of;
use super::{Draft, Enough, Wish};
use crate::composition::Composition;
use crate::demand::Demand;
use crate::plan::World;
use std::collections::BTreeSet;

/// All demands, where some are elastic and have nothing yet: those with the fewest GPUs that they are content with.
pub(super) fn modest(world: &World<'_>) -> Option<Vec<Demand>> {
    let has: BTreeSet<_> = world.held.iter().filter_map(|c| c.demand.as_ref()).collect();
    let is_new = |demand: &Demand| demand.need.elastic && !has.contains(&demand.id);
    world.demands.iter().any(is_new).then(|| {
        let demands = world.demands.iter().map(|demand| match is_new(demand) {
            true => by_any_of(
                demand,
                demand.need.alternatives.last().cloned().into_iter().collect(),
            ),
            false => demand.clone(),
        });
        demands.collect()
    })
}

impl<'a> Draft<'a, '_> {
    /// Keeps the GPUs of a served demand, and lists it for growth if it is elastic.
    pub(super) fn keep_elastic(&mut self, demand: &'a Demand, has: &[&'a Composition]) {
        self.keep(has);
        let wish = Wish {
            demand,
            has: has.to_vec(),
        };
        let is_full = demand.need.best().is_none_or(|best| wish.gpus() >= best.count);
        let is_touched = has
            .iter()
            .any(|composition| self.survey.deferral(composition).is_some());
        if demand.need.elastic && !is_full && !is_touched {
            self.elastic.push(wish);
        }
    }

    /// Grows elastic demands in the order of service, but none while another demand lacks GPUs.
    pub(super) fn grow(&mut self) {
        let mut elastic = std::mem::take(&mut self.elastic);
        if !self.changes.unplaced.is_empty() || !self.guaranteed.elsewhere.is_empty() {
            return;
        }
        elastic.sort_by_cached_key(Wish::rank);
        elastic.iter().for_each(|wish| self.give_more(wish));
    }

    fn give_more(&mut self, wish: &Wish<'a>) {
        let (mut sets, _) = self.allowed(wish);
        sets.retain(|set| set.count > wish.gpus());
        for set in sets {
            let wider = by_any_of(wish.demand, vec![set]);
            let grown = match wish.has.as_slice() {
                [only] => self.change_in_place(&wider, only),
                _ => false,
            };
            if grown || self.top_up(wish, &wider, Enough::All) {
                return;
            }
        }
    }
}
