//! GPUs that stay attached for a while once they are: after GPUs of a group are attached to a host, none of the group is
//! detached from it for so many slots. Whichever idle one is taken away then was attached for long enough.
//!
//! What a group costs at a host is found by the cheapest way through the slots, over how many are attached and for how
//! long none may go ([`least`]). Where groups and hosts have no room for all of those ways, they are found anew one after
//! the other within what is left; what must stay attached at least ([`soonest`]) always has its place, or a demand is not
//! placed.

use super::{Row, State};
use crate::horizon::keep::Prices;
use crate::horizon::problem::{Cost, Problem};
use std::collections::BTreeMap;
use std::ops::Range;

/// Attached GPUs by host and group, by slot.
type Attached = BTreeMap<(usize, usize), Vec<u16>>;

/// What a state costs with all that is held.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Held {
    cost: Option<Cost>,
    marked: Option<Cost>,
}

impl Held {
    pub fn mark(&mut self) {
        self.marked = self.cost;
    }

    pub fn restore(&mut self) {
        self.cost = self.marked;
    }

    pub fn change(&mut self) {
        self.cost = None;
    }
}

/// One group at one host.
struct Way {
    host: usize,
    group: usize,
    used: Vec<u16>,
    attached: Vec<u16>,
    cost: Cost,
    /// As long as it alone would.
    alone: bool,
}

impl State<'_> {
    /// All that is paid where GPUs are held; more than anything where they can't be.
    pub(super) fn cost_held(&mut self) -> Cost {
        if let Some(cost) = self.held.cost {
            return cost;
        }
        let cost = self.settle_held().map_or(Cost::MAX, |(_, cost)| cost);
        self.held.cost = Some(cost);
        cost
    }

    /// By how much a row costs more if so many more GPUs are used.
    pub(super) fn more_held(&self, (host, group): (usize, usize), count: u16, window: &Range<usize>) -> Cost {
        let row = self.rows[host].iter().find(|row| row.group == group);
        let (used, first) = with_more(row, self.problem.slots, count, window);
        let (hold, prices) = (self.problem.hosts[host].hold, self.prices[group]);
        let least = least(&used, None, first, prices, hold, false).map_or(Cost::MAX / 4, |(cost, _)| cost);
        least - row.map_or(0, |row| row.cost)
    }

    /// Whether what must stay attached has its place, with these GPUs in use at a host, too.
    pub fn fits_held(&self, host: usize, parts: &[(usize, u16)], window: &Range<usize>) -> bool {
        let problem = self.problem;
        if !problem.holds() {
            return true;
        }
        let hold = problem.hosts[host].hold;
        let mut at_host: Vec<(usize, Vec<u16>)> = Vec::new();
        for row in self.rows[host]
            .iter()
            .filter(|row| parts.iter().all(|(group, _)| row.group != *group))
        {
            at_host.push((row.group, soonest(&row.used, row.first, hold)));
        }
        for (group, count) in parts {
            let row = self.rows[host].iter().find(|row| row.group == *group);
            let (used, first) = with_more(row, problem.slots, *count, window);
            let mine = soonest(&used, first, hold);
            let mut all: Vec<u32> = mine.iter().map(|count| u32::from(*count)).collect();
            for other in self.at[*group].iter().filter(|other| **other != host) {
                let rows = self.rows[*other].iter().filter(|row| row.group == *group);
                rows.for_each(|row| {
                    add(
                        &mut all,
                        &soonest(&row.used, row.first, problem.hosts[*other].hold),
                    )
                });
            }
            if all
                .iter()
                .any(|all| *all > u32::from(problem.groups[*group].count))
            {
                return false;
            }
            at_host.push((*group, mine));
        }
        let (mut room, mut bar) = (vec![0; problem.slots], vec![0; problem.slots]);
        for (group, attached) in &at_host {
            add(&mut room, attached);
            map(&mut bar, attached, problem.groups[*group].bar);
        }
        room.iter()
            .all(|room| *room <= u32::from(problem.hosts[host].room))
            && problem.hosts[host]
                .bar
                .is_none_or(|most| bar.iter().all(|bar| *bar <= most))
    }

    /// What is attached where, so that it fits, and what everything costs with that. `None`: it does not fit.
    pub fn settle_held(&self) -> Option<(Attached, Cost)> {
        let problem = self.problem;
        let mut ways = Vec::new();
        for (host, rows) in self.rows.iter().enumerate() {
            ways.extend(rows.iter().map(|row| Way {
                host,
                group: row.group,
                used: row.used.clone(),
                attached: row.attached.clone(),
                cost: row.cost,
                alone: true,
            }));
        }
        let mut totals = Totals::of(problem, &ways);
        // Who has no room goes as soon as may be; that may take room from others.
        loop {
            let crowded: Vec<usize> = (0..ways.len())
                .filter(|way| ways[*way].alone && totals.crowd(problem, &ways[*way]))
                .collect();
            if crowded.is_empty() {
                break;
            }
            for way in crowded {
                let hold = problem.hosts[ways[way].host].hold;
                let first = self.first(&ways[way]);
                let soonest = soonest(&ways[way].used, first, hold);
                totals.exchange(problem, &mut ways[way], soonest);
                ways[way].alone = false;
            }
        }
        let mut again: Vec<usize> = (0..ways.len()).filter(|way| !ways[*way].alone).collect();
        again.sort_by_key(|way| (std::cmp::Reverse(self.prices[ways[*way].group].idle), *way));
        let mut more = 0;
        for index in again {
            let way = &mut ways[index];
            let most = totals.left(problem, way);
            let (hold, prices) = (problem.hosts[way.host].hold, self.prices[way.group]);
            let (cost, attached) = least(&way.used, Some(&most), self.first(way), prices, hold, true)?;
            more += cost - way.cost;
            totals.exchange(problem, way, attached);
        }
        let attached = ways.into_iter().map(|way| ((way.host, way.group), way.attached));
        Some((attached.collect(), self.base + more))
    }

    fn first(&self, way: &Way) -> u16 {
        let row = self.rows[way.host].iter().find(|row| row.group == way.group);
        row.map_or(0, |row| row.first)
    }
}

/// What is used with so many more in a window, and what is attached at first.
fn with_more(row: Option<&Row>, slots: usize, count: u16, window: &Range<usize>) -> (Vec<u16>, u16) {
    let mut used = row.map_or_else(|| vec![0; slots], |row| row.used.clone());
    used[window.clone()].iter_mut().for_each(|used| *used += count);
    (used, row.map_or(0, |row| row.first))
}

fn add(all: &mut [u32], attached: &[u16]) {
    let slots = all.iter_mut().zip(attached);
    slots.for_each(|(all, attached)| *all += u32::from(*attached));
}

fn map(mapped: &mut [u64], attached: &[u16], bar: u64) {
    let slots = mapped.iter_mut().zip(attached);
    slots.for_each(|(mapped, attached)| *mapped += u64::from(*attached) * bar);
}

/// What is attached of all groups, at all hosts, by slot.
struct Totals {
    groups: Vec<Vec<u32>>,
    hosts: Vec<Vec<u32>>,
    bars: Vec<Vec<u64>>,
}

impl Totals {
    fn of(problem: &Problem, ways: &[Way]) -> Self {
        let mut totals = Self {
            groups: vec![vec![0; problem.slots]; problem.groups.len()],
            hosts: vec![vec![0; problem.slots]; problem.hosts.len()],
            bars: vec![vec![0; problem.slots]; problem.hosts.len()],
        };
        for way in ways {
            add(&mut totals.groups[way.group], &way.attached);
            add(&mut totals.hosts[way.host], &way.attached);
            map(
                &mut totals.bars[way.host],
                &way.attached,
                problem.groups[way.group].bar,
            );
        }
        totals
    }

    /// Whether there is too much where a way has a share in it.
    fn crowd(&self, problem: &Problem, way: &Way) -> bool {
        let (count, room) = (problem.groups[way.group].count, problem.hosts[way.host].room);
        let (of_group, of_host) = (&self.groups[way.group], &self.hosts[way.host]);
        of_group.iter().any(|attached| *attached > u32::from(count))
            || of_host.iter().any(|attached| *attached > u32::from(room))
            || (problem.hosts[way.host].bar)
                .is_some_and(|most| self.bars[way.host].iter().any(|mapped| *mapped > most))
    }

    /// What a way may have attached by slot, beside all others.
    fn left(&self, problem: &Problem, way: &Way) -> Vec<u16> {
        let (count, room) = (problem.groups[way.group].count, problem.hosts[way.host].room);
        let bar = problem.groups[way.group].bar;
        let of = |slot: usize| {
            let mine = way.attached[slot];
            let left = |most: u16, all: u32| {
                u32::from(most) + u32::from(mine) - all.min(u32::from(most) + u32::from(mine))
            };
            let mut most =
                left(count, self.groups[way.group][slot]).min(left(room, self.hosts[way.host][slot]));
            if let Some(window) = problem.hosts[way.host].bar.filter(|_| bar > 0) {
                let others = self.bars[way.host][slot] - u64::from(mine) * bar;
                most = most.min((window.saturating_sub(others) / bar).min(u64::from(u16::MAX)) as u32);
            }
            most.min(u32::from(u16::MAX)) as u16
        };
        (0..problem.slots).map(of).collect()
    }

    fn exchange(&mut self, problem: &Problem, way: &mut Way, attached: Vec<u16>) {
        let bar = problem.groups[way.group].bar;
        for (slot, (before, now)) in way.attached.iter().zip(&attached).enumerate() {
            let change = |all: &mut u32| *all = *all + u32::from(*now) - u32::from(*before);
            change(&mut self.groups[way.group][slot]);
            change(&mut self.hosts[way.host][slot]);
            let mapped = &mut self.bars[way.host][slot];
            *mapped = *mapped + u64::from(*now) * bar - u64::from(*before) * bar;
        }
        way.attached = attached;
    }
}

/// What is attached where every GPU goes as soon as it may.
pub(super) fn soonest(used: &[u16], first: u16, hold: usize) -> Vec<u16> {
    let (mut now, mut locked) = (first, 0_usize);
    let attached = used.iter().map(|used| {
        locked = locked.saturating_sub(1);
        if *used > now {
            (now, locked) = (*used, hold);
        } else if locked == 0 {
            now = *used;
        }
        now
    });
    attached.collect()
}

/// The cheapest way to have as many attached as are used and no more than may be; `None`: there is none. Says what is
/// attached only where that is asked for.
pub(super) fn least(
    used: &[u16],
    most: Option<&[u16]>,
    first: u16,
    prices: Prices,
    hold: usize,
    path: bool,
) -> Option<(Cost, Vec<u16>)> {
    const NEVER: Cost = Cost::MAX / 4;
    let locks = hold.max(1);
    let top = usize::from(used.iter().copied().max().unwrap_or(0).max(first));
    let place = |count: usize, lock: usize| count * locks + lock;
    let mut now = vec![NEVER; (top + 1) * locks];
    now[place(usize::from(first), 0)] = 0;
    // From where each came, by slot.
    let mut came: Vec<Vec<u32>> = Vec::new();
    let mut next = now.clone();
    for (slot, used) in used.iter().enumerate() {
        let may = most.map_or(top, |most| usize::from(most[slot]).min(top));
        next.fill(NEVER);
        let mut from = vec![0_u32; if path { next.len() } else { 0 }];
        let mut reach = |to: usize, cost: Cost, origin: usize| {
            if cost < next[to] {
                next[to] = cost;
                if path {
                    from[to] = origin as u32;
                }
            }
        };
        // More than before: from the cheapest below.
        let (mut below, mut origin) = (NEVER, 0);
        for count in 0..=may {
            let idle = prices.idle * (count as Cost - Cost::from(*used));
            if count >= usize::from(*used) {
                for lock in 0..locks {
                    let before = place(count, lock);
                    if now[before] < NEVER {
                        reach(place(count, lock.saturating_sub(1)), now[before] + idle, before);
                    }
                }
                if below < NEVER {
                    let cost = below + prices.attach * count as Cost + idle;
                    reach(place(count, locks - 1), cost, origin);
                }
            }
            for lock in 0..locks {
                let before = place(count, lock);
                let cost = now[before] - prices.attach * count as Cost;
                if now[before] < NEVER && cost < below {
                    (below, origin) = (cost, before);
                }
            }
        }
        // Fewer than before: from the cheapest above of which any may go.
        let (mut above, mut origin) = (NEVER, 0);
        for count in (usize::from(*used)..=top).rev() {
            if count <= may && above < NEVER {
                let idle = prices.idle * (count as Cost - Cost::from(*used));
                reach(
                    place(count, 0),
                    above - prices.detach * count as Cost + idle,
                    origin,
                );
            }
            let before = place(count, 0);
            let cost = now[before] + prices.detach * count as Cost;
            if now[before] < NEVER && cost < above {
                (above, origin) = (cost, before);
            }
        }
        std::mem::swap(&mut now, &mut next);
        came.extend(path.then_some(from));
    }
    let (at, cost) = now.iter().enumerate().min_by_key(|(_, cost)| **cost)?;
    let cost = Some(*cost).filter(|cost| *cost < NEVER)?;
    let mut attached = vec![0; came.len()];
    let mut at = at;
    for (attached, came) in attached.iter_mut().zip(&came).rev() {
        *attached = (at / locks) as u16;
        at = came[at] as usize;
    }
    Some((cost, attached))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICES: Prices = Prices {
        idle: 5,
        attach: 6,
        detach: 2,
    };

    fn paid(used: &[u16], attached: &[u16], first: u16) -> Cost {
        let mut before = first;
        let slots = used.iter().zip(attached).map(|(used, now)| {
            let moved = PRICES.attach * Cost::from(now.saturating_sub(before))
                + PRICES.detach * Cost::from(before.saturating_sub(*now));
            before = *now;
            moved + PRICES.idle * Cost::from(now - used)
        });
        slots.sum()
    }

    fn holds(attached: &[u16], first: u16, hold: usize) -> bool {
        let before = |slot: usize| if slot == 0 { first } else { attached[slot - 1] };
        let rises = |slot: usize| attached[slot] > before(slot);
        (0..attached.len())
            .all(|slot| attached[slot] >= before(slot) || !(slot.saturating_sub(hold - 1)..slot).any(rises))
    }

    #[test]
    fn the_cheapest_of_all_ways_that_hold_is_found() {
        let mut rng = fastrand::Rng::with_seed(9);
        let mut dearer = 0;
        for _ in 0..300 {
            let (slots, hold, first) = (rng.usize(1..7), rng.usize(1..5), rng.u16(..3));
            let used: Vec<u16> = (0..slots).map(|_| rng.u16(..3) * u16::from(rng.bool())).collect();
            let most: Vec<u16> = (0..slots).map(|_| rng.u16(1..4)).collect();
            let all = (0..4_usize.pow(slots as u32)).map(|way| -> Vec<u16> {
                (0..slots)
                    .map(|slot| (way / 4_usize.pow(slot as u32) % 4) as u16)
                    .collect()
            });
            let fits = |way: &Vec<u16>| {
                (0..slots).all(|slot| way[slot] >= used[slot] && way[slot] <= most[slot])
                    && holds(way, first, hold)
            };
            let cheapest = all.filter(fits).map(|way| paid(&used, &way, first)).min();
            let found = least(&used, Some(&most), first, PRICES, hold, true);
            assert_eq!(
                found.as_ref().map(|(cost, _)| *cost),
                cheapest,
                "{used:?} {most:?} {first} {hold}"
            );
            if let Some((cost, way)) = found {
                assert!(fits(&way) && paid(&used, &way, first) == cost, "{way:?}");
                let free = least(&used, Some(&most), first, PRICES, 1, false);
                dearer += u32::from(free.is_some_and(|(free, _)| free < cost));
            }
            let soonest = soonest(&used, first, hold);
            assert!(holds(&soonest, first, hold) && soonest.iter().zip(&used).all(|(now, used)| now >= used));
        }
        assert!(dearer > 20, "{dearer}");
    }
}
