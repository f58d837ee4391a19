//! Giving a demand more beside what it has: where it has parts on several hosts, and where a part of it is better than
//! nothing. What it has stays where it is.

use crate::composition::{Composition, Held};
use crate::decide::{Draft, Enough, Wish};
use crate::demand::Demand;
use crate::place::{self, Part};
use crate::room::Taken;
use crate::suits;
use poolwright_sizing::need::GpuSet;
use std::collections::BTreeSet;

/// What a demand gains: on hosts where it has something, and on others.
struct Gain<'a> {
    grows: Vec<(&'a Composition, Vec<Taken>)>,
    parts: Vec<Part>,
    missing: u32,
}

impl<'a> Draft<'a, '_> {
    /// Gives a demand what it lacks of the first alternative of its need that this is possible for, on the hosts where it
    /// has something, and then, where it may span hosts or has nothing, on others.
    pub(crate) fn top_up(&mut self, wish: &Wish<'a>, demand: &Demand, enough: Enough) -> bool {
        let admits = |set: &&GpuSet| {
            let mut has = wish.has.iter();
            has.all(|composition| suits::all_admitted(self.survey, set, composition))
        };
        let sets: Vec<&GpuSet> = demand.need.alternatives.iter().filter(admits).collect();
        for set in sets {
            let gain = self.gain(wish, set);
            let comes_to_nothing = gain.grows.is_empty() && gain.parts.is_empty();
            if comes_to_nothing
                || (enough == Enough::All && gain.missing > 0)
                || !self.take(wish, demand, &gain, enough)
            {
                self.put_back(&gain);
                continue;
            }
            return true;
        }
        false
    }

    /// GPUs that its tenant may still be given.
    fn may_gain(&self, wish: &Wish<'a>) -> u32 {
        let tenant = &wish.demand.tenant;
        let most = self.ledger.most(tenant).unwrap_or(u32::MAX);
        most.saturating_sub(self.ledger.held_by(tenant))
    }

    fn gain(&mut self, wish: &Wish<'a>, set: &GpuSet) -> Gain<'a> {
        let has: u32 = wish.has.iter().map(|c| c.gpu_count()).sum();
        let mut gain = Gain {
            grows: Vec::new(),
            parts: Vec::new(),
            missing: set.count.saturating_sub(has).min(self.may_gain(wish)),
        };
        let group = set.group.max(1);
        for composition in &wish.has {
            let free = self
                .shelves_like(composition)
                .map_or(0, |shelves| place::gpus_left(&self.capacity, &shelves));
            let most = gain.missing.min(free) / group * group;
            let counts = (1..=most).rev().filter(|count| count % group == 0);
            let mut grown = counts.filter_map(|count| Some((count, self.more(composition, count)?)));
            if let Some((count, taken)) = grown.next() {
                gain.missing -= count;
                gain.grows.push((composition, taken));
            }
        }
        if gain.missing > 0 && (wish.has.is_empty() || wish.demand.need.spannable) {
            self.gain_parts(wish, set, &mut gain);
        }
        gain
    }

    /// As many as can be had on other hosts; on one, where the need may not span several.
    fn gain_parts(&mut self, wish: &Wish<'a>, set: &GpuSet, gain: &mut Gain<'a>) {
        let rest = GpuSet {
            count: gain.missing,
            ..set.clone()
        };
        let hosts = wish.has.iter().filter_map(|c| self.capacity.host_place(&c.host));
        let hosts: BTreeSet<usize> = hosts.collect();
        let kinds = match wish.has.first() {
            Some(has) => self.shelves_like(has).into_iter().collect(),
            None => place::shelves_for(&self.capacity, &rest),
        };
        for shelves in kinds {
            let (mut parts, missing) =
                place::as_many_as_possible(&mut self.capacity, &shelves, &rest, hosts.clone());
            if parts.is_empty() {
                continue;
            }
            gain.missing = missing;
            if !wish.demand.need.spannable {
                for part in parts.drain(1..) {
                    gain.missing += self.capacity.gpus_of(&part.taken);
                    self.capacity.put_back(&part.taken);
                }
            }
            gain.parts = parts;
            return;
        }
    }

    fn put_back(&mut self, gain: &Gain<'a>) {
        let grows = gain.grows.iter().map(|(_, taken)| taken);
        for taken in grows.chain(gain.parts.iter().map(|part| &part.taken)) {
            self.capacity.put_back(taken);
        }
    }

    /// Writes down what it gains; not where that is no more what was asked for, such as a unit too many.
    fn take(&mut self, wish: &Wish<'a>, demand: &Demand, gain: &Gain<'a>, enough: Enough) -> bool {
        let mut more: Vec<Composition> = Vec::new();
        for (composition, taken) in &gain.grows {
            let mut grown = composition.with(self.held(taken));
            grown.label.clone_from(&demand.need.label);
            more.push(grown);
        }
        let first = wish.has.len() as u32;
        let parts = self.parts_of(demand, &gain.parts, first);
        if enough == Enough::All {
            let whole = wish.has.iter().map(|composition| {
                let gained = more.iter().filter(|more| more.id == composition.id);
                let gained = gained.flat_map(|more| &more.held);
                let all: Vec<Held> = composition.held.iter().chain(gained).cloned().collect();
                composition.with(all)
            });
            let whole: Vec<Composition> = whole.chain(parts.iter().cloned()).collect();
            if !suits::serves(self.survey, &demand.need, &whole.iter().collect::<Vec<_>>()) {
                more.iter()
                    .chain(&parts)
                    .for_each(|gained| self.unname(&gained.held));
                return false;
            }
        }
        for composition in more.into_iter().chain(parts) {
            self.ledger.takes(&composition);
            self.changes.composes.push(composition);
        }
        true
    }
}
