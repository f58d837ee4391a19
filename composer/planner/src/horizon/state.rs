//! Who is placed where, and what that costs: kept up to date as demands come and go, without adding anything up
//! anew.
//!
//! The cost of a state has five parts: what is not served; what tenants are short of their fair shares; GPUs at work; hosts that are on; and, for each group at
//! each host, attaching, detaching and idling ([`keep`]). The last is found for each group and host alone. Where
//! more would be kept than a group has or a host has room for, the cheapest keeps are given up ([`cover`]): that is
//! the *excess*. It is exact for a group, and for a host; where the same keep is given up for both, the state
//! counts it twice, and [`settle`](super::settle) finds out.

mod guarantees;
mod hold;
mod tenants;

use super::bar::{self, Kept};
use super::classes;
use super::cover::{self, Interval};
use super::fabric::Carried;
use super::keep::{self, Gap, Prices, Run};
use super::problem::{Cost, Problem};
use super::promised::short;
use guarantees::Guarantees;
use std::ops::Range;

/// Where a demand runs, and on GPUs of which groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placement {
    pub host: usize,
    pub parts: Vec<(usize, u16)>,
}

impl Placement {
    /// GPUs of all groups.
    pub fn gpus(&self) -> u32 {
        self.parts.iter().map(|(_, count)| u32::from(*count)).sum()
    }

    pub fn groups(&self) -> Vec<usize> {
        self.parts.iter().map(|(group, _)| *group).collect()
    }
}

/// The GPUs of one group at one host.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub group: usize,
    /// Attached before the first slot.
    pub first: u16,
    /// In use, by slot.
    pub used: Vec<u16>,
    /// Attached, by slot, if this row were alone.
    pub attached: Vec<u16>,
    runs: Vec<Run>,
    cost: Cost,
}

/// How much of something is in use and attached in each slot, and the cost of what must be given up there.
#[derive(Debug, Clone)]
struct Shared {
    used: Vec<u16>,
    attached: Vec<u32>,
    excess: Cost,
    dirty: bool,
}

pub(super) struct State<'p> {
    pub problem: &'p Problem,
    placed: Vec<Option<Placement>>,
    rows: Vec<Vec<Row>>,
    /// Hosts that have a row of a group.
    at: Vec<Vec<usize>>,
    groups: Vec<Shared>,
    hosts: Vec<Shared>,
    dirty_groups: Vec<usize>,
    dirty_hosts: Vec<usize>,
    on: Vec<Cost>,
    prices: Vec<Prices>,
    base: Cost,
    /// What is unmet of each class of priorities, the highest first.
    neglect: Vec<Cost>,
    excess: Cost,
    /// What the excess of groups and hosts was, of those that were looked at since the last mark.
    log: Vec<(Of, Cost)>,
    /// GPUs in use by quota and slot.
    quotas: Vec<Vec<u32>>,
    guarantees: Option<Guarantees>,
    /// Fair shares, by quota and slot.
    shares: Vec<Vec<u32>>,
    carried: Carried,
    held: hold::Held,
    /// Demands that are placed, by host.
    guests: Vec<Vec<usize>>,
    /// Groups by switch.
    behind: Vec<Vec<usize>>,
    /// Every host may have any GPUs that there is room for.
    reaches_all: bool,
    scratch: Scratch,
}

/// Whose excess it is.
#[derive(Debug, Clone, Copy)]
enum Of {
    Group(usize),
    Host(usize),
}

/// What is needed for a moment to price a row.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    lasts: Vec<usize>,
    runs: Vec<Run>,
}

impl<'p> State<'p> {
    /// Nothing is placed.
    pub fn new(problem: &'p Problem) -> Self {
        let shared = || Shared {
            used: vec![0; problem.slots],
            attached: vec![0; problem.slots],
            excess: 0,
            dirty: false,
        };
        let prices = problem
            .groups
            .iter()
            .map(|group| Prices::new(group.idle, problem.costs))
            .collect();
        let shares = problem.fair_shares();
        let none_has_any: Cost = shares
            .iter()
            .flatten()
            .map(|share| short(problem.unfair, *share, 0))
            .sum();
        let mut state = Self {
            problem,
            placed: vec![None; problem.demands.len()],
            rows: vec![Vec::new(); problem.hosts.len()],
            at: vec![Vec::new(); problem.groups.len()],
            groups: problem.groups.iter().map(|_| shared()).collect(),
            hosts: problem.hosts.iter().map(|_| shared()).collect(),
            dirty_groups: Vec::new(),
            dirty_hosts: Vec::new(),
            on: vec![0; problem.hosts.len()],
            prices,
            base: problem.demands.iter().map(|demand| demand.unmet).sum::<Cost>() + none_has_any,
            neglect: classes::unmet(problem),
            excess: 0,
            log: Vec::new(),
            quotas: vec![vec![0; problem.slots]; problem.quotas.len()],
            guarantees: Guarantees::of(problem),
            shares,
            carried: Carried::nothing(problem),
            held: hold::Held::default(),
            guests: vec![Vec::new(); problem.hosts.len()],
            behind: problem.groups_behind(),
            reaches_all: problem.reaches_all(),
            scratch: Scratch::default(),
        };
        for (host, known) in problem.hosts.iter().enumerate() {
            for (group, first) in &known.attached {
                let row = state.row(host, *group);
                state.rows[host][row].first = *first;
                state.refresh(host, row);
            }
        }
        state
    }

    pub fn placement(&self, demand: usize) -> Option<&Placement> {
        self.placed[demand].as_ref()
    }

    pub fn rows(&self, host: usize) -> &[Row] {
        &self.rows[host]
    }

    /// Hosts where GPUs of a group are in use, or were attached at first.
    pub fn hosts_of(&self, group: usize) -> &[usize] {
        &self.at[group]
    }

    /// Groups behind a switch.
    pub fn behind(&self, switch: usize) -> &[usize] {
        &self.behind[switch]
    }

    /// Whether the fabric limits nothing: see [`Problem::is_limited`].
    pub fn reaches_all(&self) -> bool {
        self.reaches_all
    }

    /// Demands that are placed at a host.
    pub fn guests(&self, host: usize) -> &[usize] {
        &self.guests[host]
    }

    /// Whether a host is free of other parts that a demand must be apart from.
    pub fn is_apart(&self, demand: usize, host: usize) -> bool {
        let Some(phase) = self.problem.phase_of(demand).filter(|phase| phase.apart) else {
            return true;
        };
        let there = |part: usize| {
            self.placed[part]
                .as_ref()
                .is_some_and(|placed| placed.host == host)
        };
        !phase.parts.clone().any(|part| part != demand && there(part))
    }

    /// GPUs of a group that nobody uses in any slot of a window.
    pub fn free_gpus(&self, group: usize, window: Range<usize>) -> u16 {
        let most = self.groups[group].used[window].iter().copied().max().unwrap_or(0);
        self.problem.groups[group].count - most
    }

    /// GPUs of a group that are neither used nor kept in any slot of a window, but for what is kept at a host.
    pub fn spare_gpus(&self, group: usize, host: usize, window: &Range<usize>) -> u16 {
        let row = self.rows[host].iter().find(|row| row.group == group);
        let elsewhere = |slot| {
            let here = row.map_or(0, |row| row.attached[slot] - row.used[slot]);
            self.groups[group].attached[slot] - u32::from(here)
        };
        let most = window.clone().map(elsewhere).max().unwrap_or(0);
        u32::from(self.problem.groups[group].count).saturating_sub(most) as u16
    }

    /// Room for GPUs at a host, left in every slot of a window.
    pub fn free_room(&self, host: usize, window: Range<usize>) -> u16 {
        let most = self.hosts[host].used[window].iter().copied().max().unwrap_or(0);
        self.problem.hosts[host].room - most
    }

    /// What uplinks carry and hosts map for what is in use.
    pub fn carried(&self) -> &Carried {
        &self.carried
    }

    /// What is unmet of each class of priorities, the highest first.
    pub fn neglect(&self) -> &[Cost] {
        &self.neglect
    }

    /// Everything that is paid.
    pub fn cost(&mut self) -> Cost {
        if self.problem.holds() {
            return self.cost_held();
        }
        for group in std::mem::take(&mut self.dirty_groups) {
            let excess = self.group_excess(group);
            self.log.push((Of::Group(group), self.groups[group].excess));
            self.excess += excess - self.groups[group].excess;
            (self.groups[group].excess, self.groups[group].dirty) = (excess, false);
        }
        for host in std::mem::take(&mut self.dirty_hosts) {
            let excess = self.host_excess(host);
            self.log.push((Of::Host(host), self.hosts[host].excess));
            self.excess += excess - self.hosts[host].excess;
            (self.hosts[host].excess, self.hosts[host].dirty) = (excess, false);
        }
        self.base + self.excess
    }

    /// What is paid, and where [`restore`](Self::restore) goes back to.
    pub fn mark(&mut self) -> Cost {
        let cost = self.cost();
        self.log.clear();
        self.held.mark();
        cost
    }

    /// To be called when everything is placed again as it was at the last mark: then so is the excess, and it need not
    /// be found out again.
    pub fn restore(&mut self) {
        self.held.restore();
        for (of, before) in self.log.drain(..).rev() {
            let shared = match of {
                Of::Group(group) => &mut self.groups[group],
                Of::Host(host) => &mut self.hosts[host],
            };
            self.excess += before - std::mem::replace(&mut shared.excess, before);
        }
        for group in self.dirty_groups.drain(..) {
            self.groups[group].dirty = false;
        }
        for host in self.dirty_hosts.drain(..) {
            self.hosts[host].dirty = false;
        }
    }

    /// Whether a keep may have been given up twice, for a group and for a host: then the state costs less than
    /// [`cost`](Self::cost) says. Call that first.
    pub fn may_cost_less(&self) -> bool {
        let some = |shared: &[Shared]| shared.iter().any(|shared| shared.excess > 0);
        self.excess > 0 && some(&self.groups) && some(&self.hosts)
    }

    /// What is paid if everything were kept that pays by itself: less than which no attaching can cost.
    pub fn base(&self) -> Cost {
        self.base
    }

    /// Serves a demand. There must be room and GPUs for it, and it must not be placed.
    pub fn place(&mut self, demand: usize, placement: Placement) {
        self.change(demand, &placement, true);
        self.guests[placement.host].push(demand);
        self.placed[demand] = Some(placement);
    }

    /// Serves a demand no more; says where it was.
    pub fn remove(&mut self, demand: usize) -> Option<Placement> {
        let placement = self.placed[demand].take()?;
        self.change(demand, &placement, false);
        self.guests[placement.host].retain(|guest| *guest != demand);
        Some(placement)
    }

    fn change(&mut self, demand: usize, placement: &Placement, comes: bool) {
        let problem = self.problem;
        let wanted = &problem.demands[demand];
        let sign = if comes { 1 } else { -1 };
        self.base -= sign * (wanted.unmet - wanted.penalty(&placement.parts));
        if let Some(class) = problem.class(wanted) {
            self.neglect[class] -= sign * wanted.unmet;
        }
        let host = placement.host;
        let gpus = placement.gpus();
        for slot in wanted.window.clone() {
            // Who has no quota is guaranteed nothing, so only the difference counts.
            let before = match wanted.quota {
                Some(quota) => self.quotas[quota][slot],
                None => gpus,
            };
            let after = if comes { before + gpus } else { before - gpus };
            if let Some(guarantees) = &mut self.guarantees {
                guarantees.change(wanted.quota, slot, (before, after), &placement.parts);
            }
            if let Some(quota) = wanted.quota {
                let (unfair, share) = (problem.unfair, self.shares[quota][slot]);
                self.base += short(unfair, share, after) - short(unfair, share, before);
                self.quotas[quota][slot] = after;
            }
        }
        self.base += sign * problem.split(wanted, placement.parts.len());
        for (group, count) in &placement.parts {
            self.base += sign * Cost::from(*count) * problem.work(wanted, host, *group);
            let place = (host, *group);
            self.carried.change(problem, place, *count, &wanted.window, comes);
            let row = self.row(host, *group);
            let of_row = self.rows[host][row].used[wanted.window.clone()].iter_mut();
            let of_group = self.groups[*group].used[wanted.window.clone()].iter_mut();
            let of_host = self.hosts[host].used[wanted.window.clone()].iter_mut();
            for used in of_row.chain(of_group).chain(of_host) {
                *used = if comes { *used + count } else { *used - count };
            }
            self.refresh(host, row);
        }
        let on = self.on_cost(host, 0..0);
        self.base += on - self.on[host];
        self.on[host] = on;
    }

    /// The row of a group at a host; made where there is none.
    fn row(&mut self, host: usize, group: usize) -> usize {
        let rows = &mut self.rows[host];
        rows.iter().position(|row| row.group == group).unwrap_or_else(|| {
            let slots = self.problem.slots;
            rows.push(Row {
                group,
                first: 0,
                used: vec![0; slots],
                attached: vec![0; slots],
                runs: vec![(0, 0)],
                cost: 0,
            });
            self.at[group].push(host);
            rows.len() - 1
        })
    }

    /// Finds out anew what a row costs and what it keeps; takes away one that is empty.
    fn refresh(&mut self, host: usize, index: usize) {
        self.held.change();
        let hold = self.problem.hosts[host].hold;
        let row = &mut self.rows[host][index];
        let group = row.group;
        let (of_group, of_host) = (&mut self.groups[group], &mut self.hosts[host]);
        let totals = of_group.attached.iter_mut().zip(&mut of_host.attached);
        for ((of_group, of_host), attached) in totals.zip(&row.attached) {
            *of_group -= u32::from(*attached);
            *of_host -= u32::from(*attached);
        }
        row.attached.copy_from_slice(&row.used);
        keep::runs(&row.used, &mut row.runs);
        let attached = &mut row.attached;
        let (slots, prices) = (row.used.len(), self.prices[group]);
        let cost = if hold > 1 {
            let least = hold::least(&row.used, None, row.first, prices, hold, true);
            let (cost, held) = least.unwrap_or_default();
            *attached = held;
            cost
        } else {
            let lasts = &mut self.scratch.lasts;
            keep::cost(&row.runs, slots, row.first, prices, lasts, |gap| {
                let kept = attached[gap.from..gap.to].iter_mut();
                kept.for_each(|attached| *attached += 1);
            })
        };
        self.base += cost - row.cost;
        row.cost = cost;
        let totals = of_group.attached.iter_mut().zip(&mut of_host.attached);
        for ((of_group, of_host), attached) in totals.zip(&row.attached) {
            *of_group += u32::from(*attached);
            *of_host += u32::from(*attached);
        }
        if !std::mem::replace(&mut of_group.dirty, true) {
            self.dirty_groups.push(group);
        }
        if !std::mem::replace(&mut of_host.dirty, true) {
            self.dirty_hosts.push(host);
        }
        if row.first == 0 && row.used.iter().all(|used| *used == 0) {
            self.rows[host].swap_remove(index);
            self.at[group].retain(|at| *at != host);
        }
    }

    /// What a host costs that is on when it is used, and in a window; over gaps it stays on where that is cheaper.
    fn on_cost(&self, host: usize, window: Range<usize>) -> Cost {
        let (on, fire_up) = (self.problem.hosts[host].on, self.problem.costs.fire_up);
        let (mut cost, mut last) = (0, None);
        for (slot, used) in self.hosts[host].used.iter().enumerate() {
            if *used > 0 || window.contains(&slot) {
                let gap = last.map_or(Cost::MAX, |last| on.saturating_mul((slot - last - 1) as Cost));
                cost += on + gap.min(fire_up);
                last = Some(slot);
            }
        }
        cost
    }

    /// By how much a host costs more if it is used in a window, too.
    pub fn more_on(&self, host: usize, window: Range<usize>) -> Cost {
        if self.hosts[host].used[window.clone()].iter().all(|used| *used > 0) {
            return 0;
        }
        self.on_cost(host, window) - self.on[host]
    }

    /// By how much attaching, detaching and idling cost more if so many more GPUs of a group are used at a host.
    pub fn more_attached(
        &self,
        host: usize,
        group: usize,
        count: u16,
        window: &Range<usize>,
        scratch: &mut Scratch,
    ) -> Cost {
        let prices = self.prices[group];
        if self.problem.hosts[host].hold > 1 {
            return self.more_held((host, group), count, window);
        }
        let Some(row) = self.rows[host].iter().find(|row| row.group == group) else {
            let tail = prices.idle * (self.problem.slots - window.end) as Cost;
            return Cost::from(count) * (prices.attach + tail.min(prices.detach));
        };
        keep::more(&row.runs, window, count, &mut scratch.runs);
        keep::cost(
            &scratch.runs,
            self.problem.slots,
            row.first,
            prices,
            &mut scratch.lasts,
            |_| {},
        ) - row.cost
    }

    /// Every gap over which a row keeps a GPU, one for each GPU.
    pub fn gaps(&self, row: &Row, gap: impl FnMut(Gap)) {
        keep::cost(
            &row.runs,
            self.problem.slots,
            row.first,
            self.prices[row.group],
            &mut Vec::new(),
            gap,
        );
    }

    fn group_excess(&self, group: usize) -> Cost {
        let most = u32::from(self.problem.groups[group].count);
        let Some(wanted) = beyond(&self.groups[group].attached, most) else {
            return 0;
        };
        let rows = self.at[group]
            .iter()
            .flat_map(|host| self.rows[*host].iter().filter(|row| row.group == group));
        self.given_up(rows, &wanted)
    }

    fn host_excess(&self, host: usize) -> Cost {
        let most = u32::from(self.problem.hosts[host].room);
        if let Some(mib) = self.mapped_beyond(host) {
            let gpus = beyond(&self.hosts[host].attached, most);
            return self.unmapped(host, &gpus.unwrap_or_else(|| vec![0; mib.len()]), &mib);
        }
        let Some(wanted) = beyond(&self.hosts[host].attached, most) else {
            return 0;
        };
        self.given_up(self.rows[host].iter(), &wanted)
    }

    /// MiB beyond what a host can map, by slot; `None` where it is nowhere.
    fn mapped_beyond(&self, host: usize) -> Option<Vec<u64>> {
        let most = self.problem.hosts[host].bar?;
        let of = |row: &Row| self.problem.groups[row.group].bar;
        let mut mapped = vec![0; self.problem.slots];
        for row in &self.rows[host] {
            let slots = mapped.iter_mut().zip(&row.attached);
            slots.for_each(|(mapped, attached)| *mapped += u64::from(*attached) * of(row));
        }
        bar::beyond(mapped, most)
    }

    /// What it costs to keep so many GPUs and MiB less at a host.
    fn unmapped(&self, host: usize, gpus: &[u32], mib: &[u64]) -> Cost {
        let mut kept = Vec::new();
        for row in &self.rows[host] {
            let bar = self.problem.groups[row.group].bar;
            self.gaps(row, |gap| kept.push(Kept::of(gap, bar)));
        }
        let given_up = bar::give_up(gpus, mib, &kept);
        let gone = kept.iter().zip(given_up).filter(|(_, given_up)| *given_up);
        gone.map(|(kept, _)| kept.saving).sum()
    }

    fn given_up<'s>(&'s self, rows: impl Iterator<Item = &'s Row>, wanted: &[u32]) -> Cost {
        let mut keeps: Vec<Interval> = Vec::new();
        for row in rows {
            self.gaps(row, |gap| match keeps.last_mut() {
                Some(last) if (last.from, last.to, last.cost) == (gap.from, gap.to, gap.saving) => {
                    last.most += 1
                }
                _ => keeps.push(Interval {
                    from: gap.from,
                    to: gap.to,
                    most: 1,
                    cost: gap.saving,
                }),
            });
        }
        // What is in use alone always fits, so giving up every keep is enough.
        let taken = cover::cover(wanted, &keeps).unwrap_or_default();
        taken
            .iter()
            .zip(&keeps)
            .map(|(taken, keep)| Cost::from(*taken) * keep.cost)
            .sum()
    }
}

/// How much more there is than may be, by slot; `None` where it is nowhere.
pub(super) fn beyond(attached: &[u32], most: u32) -> Option<Vec<u32>> {
    attached.iter().any(|attached| *attached > most).then(|| {
        attached
            .iter()
            .map(|attached| attached.saturating_sub(most))
            .collect()
    })
}
