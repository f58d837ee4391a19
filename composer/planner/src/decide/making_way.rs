//! The warm pool makes way for demands that need its GPUs, and stays otherwise.

use super::{Draft, Kept};
use crate::composition::Composition;
use poolwright_model::id::{HostPortId, UnitId};
use std::collections::{BTreeMap, BTreeSet};

impl Draft<'_, '_> {
    /// Runs after all demands are placed. Releases a retained composition if a demand took a part of it, or if another
    /// tenant comes to its host.
    pub(super) fn see_to_kept(&mut self, kept: Kept) {
        let given = self.changes.composes.iter().flat_map(|c| &c.held);
        let crossed = given.clone().flat_map(|held| self.survey.load.crossing_of(held));
        let crossed: BTreeSet<usize> = crossed.map(|(uplink, _)| uplink).collect();
        let given: BTreeSet<UnitId> = given.map(|held| held.unit.clone()).collect();
        for composition in std::mem::take(&mut self.kept) {
            let others = self.changes.composes.iter();
            let mut others = others.filter(|other| other.host == composition.host);
            let meets_another = others.any(|other| other.tenant != composition.tenant);
            let lacks = kept == Kept::MakesWay && self.was_taken(composition, &given, &crossed);
            if meets_another || lacks {
                self.changes.releases.push(composition.clone());
                continue;
            }
            self.keep(&[composition]);
            if kept == Kept::MakesWay {
                self.hold_again(&[composition]);
            }
        }
    }

    /// Whether a demand got one of its GPUs, or a slot or uplink capacity that it needs.
    fn was_taken(
        &self,
        composition: &Composition,
        given: &BTreeSet<UnitId>,
        crossed: &BTreeSet<usize>,
    ) -> bool {
        let mut needs: BTreeMap<&HostPortId, i64> = BTreeMap::new();
        let mut across: BTreeMap<usize, i64> = BTreeMap::new();
        for held in &composition.held {
            *needs.entry(&held.host_port).or_default() += i64::from(held.slots());
            for (uplink, gpus) in self.survey.load.crossing_of(held) {
                *across.entry(uplink).or_default() += i64::from(gpus);
            }
        }
        let is_full = |(uplink, gpus): (&usize, &i64)| {
            crossed.contains(uplink) && self.capacity.uplinks[*uplink] < *gpus
        };
        let has_room = |(port, slots): (&&HostPortId, &i64)| {
            let free = self.capacity.free_at(port);
            free.is_none_or(|free| free >= *slots)
        };
        composition.held.iter().any(|held| given.contains(&held.unit))
            || !needs.iter().all(has_room)
            || across.iter().any(is_full)
    }
}
