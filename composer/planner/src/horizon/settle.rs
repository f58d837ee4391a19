//! What is attached where in each slot, so that it fits: the keeps that pay, less those that must be given up.

use super::bar::{self, Kept};
use super::cover::{self, Interval};
use super::keep::Gap;
use super::problem::Cost;
use super::state::{State, beyond};
use std::collections::BTreeMap;

/// Attached GPUs by host and group, by slot.
pub(super) type Attached = BTreeMap<(usize, usize), Vec<u16>>;

/// One GPU of a group at a host, kept over a gap.
#[derive(Clone, Copy)]
struct Keep {
    host: usize,
    group: usize,
    gap: Gap,
    given_up: bool,
}

/// What is attached, and what all of the state costs with that.
pub(super) fn settle(state: &State<'_>) -> (Attached, Cost) {
    if state.problem.holds() {
        // No plan is kept in which they can't be held.
        return state.settle_held().unwrap_or_default();
    }
    let mut settling = Settling::of(state);
    for group in 0..state.problem.groups.len() {
        settling.give_up(
            |keep| keep.group == group,
            |settling| beyond(&settling.groups[group], settling.count(group)),
        );
    }
    for host in 0..state.problem.hosts.len() {
        if settling.give_up_mapped(host) {
            continue;
        }
        settling.give_up(
            |keep| keep.host == host,
            |settling| beyond(&settling.hosts[host], settling.room(host)),
        );
    }
    settling.take_back();
    let given_up = settling.keeps.iter().filter(|keep| keep.given_up);
    let cost = state.base() + given_up.map(|keep| keep.gap.saving).sum::<Cost>();
    (settling.attached, cost)
}

struct Settling<'s> {
    state: &'s State<'s>,
    keeps: Vec<Keep>,
    attached: Attached,
    groups: Vec<Vec<u32>>,
    hosts: Vec<Vec<u32>>,
}

impl<'s> Settling<'s> {
    fn of(state: &'s State<'_>) -> Self {
        let problem = state.problem;
        let mut settling = Self {
            state,
            keeps: Vec::new(),
            attached: Attached::new(),
            groups: vec![vec![0; problem.slots]; problem.groups.len()],
            hosts: vec![vec![0; problem.slots]; problem.hosts.len()],
        };
        for host in 0..problem.hosts.len() {
            for row in state.rows(host) {
                let group = row.group;
                state.gaps(row, |gap| {
                    settling.keeps.push(Keep {
                        host,
                        group,
                        gap,
                        given_up: false,
                    });
                });
                for (slot, attached) in row.attached.iter().enumerate() {
                    settling.groups[group][slot] += u32::from(*attached);
                    settling.hosts[host][slot] += u32::from(*attached);
                }
                settling.attached.insert((host, group), row.attached.clone());
            }
        }
        settling
    }

    fn count(&self, group: usize) -> u32 {
        u32::from(self.state.problem.groups[group].count)
    }

    fn room(&self, host: usize) -> u32 {
        u32::from(self.state.problem.hosts[host].room)
    }

    fn give_up(&mut self, concerns: impl Fn(&Keep) -> bool, wanted: impl Fn(&Self) -> Option<Vec<u32>>) {
        let Some(wanted) = wanted(self) else { return };
        let concerned: Vec<usize> = (0..self.keeps.len())
            .filter(|index| !self.keeps[*index].given_up && concerns(&self.keeps[*index]))
            .collect();
        let interval = |index: &usize| {
            let gap = self.keeps[*index].gap;
            Interval {
                from: gap.from,
                to: gap.to,
                most: 1,
                cost: gap.saving,
            }
        };
        let intervals: Vec<Interval> = concerned.iter().map(interval).collect();
        let taken = cover::cover(&wanted, &intervals).unwrap_or_default();
        for (index, _) in concerned.into_iter().zip(taken).filter(|(_, taken)| *taken > 0) {
            self.set(index, true);
        }
    }

    /// Gives up what a host has no window for, and no room. `false`: it has a window for all.
    fn give_up_mapped(&mut self, host: usize) -> bool {
        let Some(mib) =
            (self.state.problem.hosts[host].bar).and_then(|most| bar::beyond(self.mapped(host), most))
        else {
            return false;
        };
        let gpus = beyond(&self.hosts[host], self.room(host)).unwrap_or_else(|| vec![0; mib.len()]);
        let concerned: Vec<usize> = (0..self.keeps.len())
            .filter(|index| !self.keeps[*index].given_up && self.keeps[*index].host == host)
            .collect();
        let kept = |index: &usize| Kept::of(self.keeps[*index].gap, self.bar(*index));
        let kept: Vec<Kept> = concerned.iter().map(kept).collect();
        let given_up = bar::give_up(&gpus, &mib, &kept);
        for (index, _) in concerned
            .into_iter()
            .zip(given_up)
            .filter(|(_, given_up)| *given_up)
        {
            self.set(index, true);
        }
        true
    }

    /// MiB of a keep's GPU.
    fn bar(&self, index: usize) -> u64 {
        self.state.problem.groups[self.keeps[index].group].bar
    }

    /// MiB that a host maps, by slot.
    fn mapped(&self, host: usize) -> Vec<u64> {
        let problem = self.state.problem;
        let mut mapped = vec![0; problem.slots];
        for ((_, group), row) in self.attached.range((host, 0)..(host + 1, 0)) {
            let slots = mapped.iter_mut().zip(row);
            slots.for_each(|(mapped, count)| *mapped += u64::from(*count) * problem.groups[*group].bar);
        }
        mapped
    }

    /// Keeps again what fits after all, the most valuable first.
    fn take_back(&mut self) {
        let mut given_up: Vec<usize> = (0..self.keeps.len())
            .filter(|index| self.keeps[*index].given_up)
            .collect();
        given_up.sort_by_key(|index| std::cmp::Reverse(self.keeps[*index].gap.saving));
        for index in given_up {
            let Keep { host, group, gap, .. } = self.keeps[index];
            let fits = |slot: usize| {
                self.groups[group][slot] < self.count(group) && self.hosts[host][slot] < self.room(host)
            };
            let maps = self.state.problem.hosts[host].bar.is_none_or(|most| {
                let mapped = &self.mapped(host)[gap.from..gap.to];
                mapped.iter().all(|mapped| mapped + self.bar(index) <= most)
            });
            if maps && (gap.from..gap.to).all(fits) {
                self.set(index, false);
            }
        }
    }

    fn set(&mut self, index: usize, given_up: bool) {
        let keep = &mut self.keeps[index];
        keep.given_up = given_up;
        let (host, group, slots) = (keep.host, keep.group, keep.gap.from..keep.gap.to);
        let Some(attached) = self.attached.get_mut(&(host, group)) else {
            return;
        };
        for slot in slots {
            if given_up {
                attached[slot] -= 1;
                self.groups[group][slot] -= 1;
                self.hosts[host][slot] -= 1;
            } else {
                attached[slot] += 1;
                self.groups[group][slot] += 1;
                self.hosts[host][slot] += 1;
            }
        }
    }
}
