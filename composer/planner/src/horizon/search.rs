//! Large-neighbourhood search: some demands are taken away and placed anew, over and over. What costs more is
//! accepted, too, the less often the longer the search has lasted (simulated annealing).

mod first;
mod together;

use super::budget::Budget;
use super::classes::MUST;
use super::insertion::{HOSTS, Inserter};
use super::problem::{Choice, Cost, Problem, UNIT};
use super::repair::{self, Candidate, Repairs};
use super::ruin;
use super::settle;
use super::state::{Placement, State};
use fastrand::Rng;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

/// The shares of the budget after which the search goes back to the best and is as bold again as at first.
const COOLINGS: [f64; 4] = [0.1, 0.3, 0.6, 1.0];
/// Rounds between two looks at the clock, where rounds are short.
const LOOKS: u64 = 8;
/// One host in so many is overlooked, so that not always the same is done.
const BLINK: usize = 30;
/// Unserved demands that are tried in one round.
const TRIED: usize = 8;
/// How much dearer than it is a place may seem, against the losses that are accepted.
const NOISE: f64 = 3.0;
/// Demands that are repaired at once, and places of each that are looked at.
const REPAIRED: usize = 10;
const PLACES: usize = 6;
/// Rounds for each demand that make a small problem's first plan better, and all of them at most.
const POLISHED: usize = 4;
const MOST_POLISHED: usize = 2_000;
/// How small the last accepted losses are.
const COLDEST: f64 = 0.5 * UNIT;

/// The best that was found so far.
pub(super) struct Best {
    /// By class of priorities; what is less there is better, whatever it costs.
    pub neglect: Vec<Cost>,
    pub cost: Cost,
    pub placements: Vec<Option<Placement>>,
}

/// A search under way: the state that it is in, and the best that it saw.
pub(super) struct Search<'p> {
    state: State<'p>,
    inserter: Inserter,
    rng: Rng,
    pub best: Best,
    pub rounds: u64,
    /// Demands that may be placed otherwise than in the best.
    changed: Vec<usize>,
    is_changed: Vec<bool>,
    /// What was placed or taken away in this round, and where it was before.
    journal: Vec<(usize, Option<Placement>)>,
    is_noted: Vec<bool>,
    unserved: Vec<usize>,
    repairs: Repairs,
}

impl<'p> Search<'p> {
    /// Places what was placed before where it still fits, and everything else where it is cheapest: a first plan. What
    /// the time for that is not enough for is left out.
    pub fn start(
        problem: &'p Problem,
        previous: &[Option<Placement>],
        seed: u64,
        budget: &mut Budget<'_>,
    ) -> Self {
        let over = &mut || budget.must_end();
        let mut search = Self {
            state: State::new(problem),
            inserter: Inserter::default(),
            rng: Rng::with_seed(seed),
            best: Best {
                neglect: vec![Cost::MAX; problem.classes.len()],
                cost: Cost::MAX,
                placements: vec![None; problem.demands.len()],
            },
            rounds: 0,
            changed: Vec::new(),
            is_changed: vec![false; problem.demands.len()],
            journal: Vec::new(),
            is_noted: vec![false; problem.demands.len()],
            unserved: Vec::new(),
            repairs: Repairs::default(),
        };
        let runs = |demand: &usize| problem.demands[*demand].priority == MUST;
        search.insert(&(0..problem.demands.len()).filter(runs).collect::<Vec<_>>(), 0);
        for (demand, placement) in previous.iter().enumerate() {
            if let Some(placement) = placement.as_ref().filter(|placement| {
                search.state.placement(demand).is_none() && fits(&search.state, demand, placement)
            }) {
                search.place(demand, placement.clone());
            }
        }
        search.leave_none_incomplete();
        let mut left: Vec<usize> = (0..problem.demands.len())
            .filter(|demand| search.state.placement(*demand).is_none())
            .collect();
        let value = |demand: &usize| {
            let demand = &problem.demands[*demand];
            demand.unmet / (demand.window.len() as Cost * Cost::from(demand.gpus()))
        };
        let start = |demand: &usize| problem.demands[*demand].window.start;
        let first = |demand: &usize| Reverse(problem.demands[*demand].priority);
        // In the order in which they start, whatever is free then stays free, and all are served where there is enough
        // for all. Where there is not, a slot of a GPU that costs most unserved comes first.
        left.sort_by_key(|demand| (first(demand), start(demand), Reverse(value(demand))));
        search.construct(&left, over);
        let is_left = |demand: &usize| search.state.placement(*demand).is_none();
        if (search.is_small() || left.iter().any(is_left)) && !over() {
            left.sort_by_key(|demand| (first(demand), Reverse(value(demand)), start(demand)));
            search.remove_all(&left);
            search.construct(&left, over);
        }
        search.go_back();
        // Where a plan goes on, nothing moves before there is time to search.
        if search.is_small() && previous.iter().all(Option::is_none) {
            search.polish(over);
        }
        search
    }

    /// Whether every host is looked at for every demand.
    fn is_small(&self) -> bool {
        self.state.problem.hosts.len() <= HOSTS
    }

    /// Takes what costs less and nothing else, for so few rounds that nobody waits for it: a first plan of a small problem
    /// is not one of those that any rule of thumb beats.
    fn polish(&mut self, over: &mut dyn FnMut() -> bool) {
        if self.state.problem.demands.is_empty() || self.state.problem.hosts.is_empty() {
            return;
        }
        let rounds = self.state.problem.demands.len().saturating_mul(POLISHED);
        for _ in 0..rounds.min(MOST_POLISHED) {
            if over() {
                break;
            }
            self.round(0.0);
        }
        self.go_back();
    }

    /// Places all of these, as far as there is time, and keeps that if it is the best yet.
    fn construct(&mut self, order: &[usize], over: &mut dyn FnMut() -> bool) {
        // Those that can do with the cheapest kind leave the dearer ones to those that can't, as long as there are enough.
        self.inserter.cheapest_kind = true;
        self.insert_until(order, over);
        self.inserter.cheapest_kind = false;
        let left = order
            .iter()
            .copied()
            .filter(|demand| self.state.placement(*demand).is_none());
        self.insert_until(&left.collect::<Vec<_>>(), over);
        let cost = self.state.cost();
        self.keep_if_best(cost);
    }

    /// Searches until so large a share of the budget is spent, or nothing better than `bound` is possible. `news` hears of
    /// every better plan.
    pub fn run(
        &mut self,
        budget: &mut Budget<'_>,
        until: f64,
        bound: Cost,
        news: &mut dyn FnMut(Cost, Duration),
    ) {
        if self.state.problem.demands.is_empty() || self.state.problem.hosts.is_empty() {
            return;
        }
        let began = budget.spent(self.rounds).min(until);
        let spent_of = |now: f64| (now - began) / (until - began).max(f64::MIN_POSITIVE);
        let (mut spent, mut cooling) = (if began < until { 0.0 } else { 1.0 }, 0);
        let hottest = self.hottest();
        while spent < 1.0 && (self.best.cost > bound || self.best.neglect.iter().any(|unmet| *unmet > 0)) {
            if spent >= COOLINGS[cooling] {
                cooling += 1;
                self.go_back();
            }
            let from = cooling.checked_sub(1).map_or(0.0, |before| COOLINGS[before]);
            let cooled = (spent - from) / (COOLINGS[cooling] - from);
            let heat = hottest * (COLDEST / hottest).powf(cooled);
            if self.round(heat) {
                news(self.best.cost, budget.elapsed());
            }
            self.rounds += 1;
            if self.rounds.is_multiple_of(LOOKS) || !self.is_small() {
                spent = spent_of(budget.spent(self.rounds));
            }
        }
    }

    /// What it costs to move two demands of usual size: losses like that are accepted at first.
    fn hottest(&self) -> f64 {
        let problem = self.state.problem;
        let gpus: u64 = problem
            .demands
            .iter()
            .map(|demand| u64::from(demand.gpus()))
            .sum();
        let a_move = (problem.costs.attach + problem.costs.detach) as f64;
        (2.0 * a_move * gpus as f64 / problem.demands.len() as f64).max(2.0 * COLDEST)
    }

    /// Changes something, and decides whether to stay there. Says whether that is the best yet.
    fn round(&mut self, heat: f64) -> bool {
        let before = self.state.mark();
        let neglect = self.state.neglect().to_vec();
        self.inserter.noise = if self.rng.bool() {
            (NOISE * heat * self.rng.f64()) as Cost
        } else {
            0
        };
        self.inserter.gentle = self.rng.u8(..3) == 0;
        self.forget();
        // What a class of priorities is worth has no price that a program could add up.
        let repairs = self.state.problem.classes.is_empty() && self.repairs.is_due(self.rounds);
        if repairs {
            self.repair();
        } else if self.state.problem.hosts.len() > 1 && self.rng.u8(..7) == 0 {
            self.exchange_hosts();
        } else {
            self.place_anew();
        }
        self.leave_none_incomplete();
        let after = self.state.cost();
        let loss = -heat * self.rng.f64().max(f64::MIN_POSITIVE).ln();
        let best = self.keep_if_best(after);
        // What is lost of the highest class in which anything changes, or of the cost where nothing does.
        let classes = self.state.neglect().iter().zip(&neglect);
        let of_classes = classes
            .map(|(after, before)| after - before)
            .find(|lost| *lost != 0);
        let lost = of_classes.unwrap_or(after - before);
        if repairs {
            self.repairs.done(self.rounds, best || lost < 0);
        }
        if best || after < Cost::MAX && lost as f64 <= loss {
            self.list_changes();
        } else {
            self.undo();
        }
        best
    }

    /// Takes some demands away and places them where they cost least by then.
    fn place_anew(&mut self) {
        let mut order = ruin::choose(&self.state, &self.unserved, &mut self.rng);
        let forced = order
            .first()
            .copied()
            .filter(|demand| self.state.placement(*demand).is_none());
        let removed = self.remove_all(&order);
        self.inserter.near = removed.iter().map(|(_, placement)| placement.host).collect();
        for _ in 0..self.unserved.len().min(TRIED) {
            let other = self.unserved[self.rng.usize(..self.unserved.len())];
            if !order.contains(&other) {
                order.push(other);
            }
        }
        if !removed.is_empty() && self.rng.u8(..4) == 0 {
            let placement = &removed[self.rng.usize(..removed.len())].1;
            self.inserter.shunned = Some((
                placement.host,
                placement.parts[self.rng.usize(..placement.parts.len())].0,
            ));
        }
        self.arrange(&mut order);
        if let Some(place) = order.iter().position(|demand| Some(*demand) == forced) {
            order[..=place].rotate_right(1);
        }
        self.insert(&order, BLINK);
        self.inserter.shunned = None;
    }

    /// Takes a few demands away, and places all of them at once where they cost least together.
    fn repair(&mut self) {
        let mut order = ruin::choose(&self.state, &self.unserved, &mut self.rng);
        order.truncate(REPAIRED);
        let removed = self.remove_all(&order);
        for _ in 0..self.unserved.len().min(REPAIRED / 2) {
            let other = self.unserved[self.rng.usize(..self.unserved.len())];
            if !order.contains(&other) {
                order.push(other);
            }
        }
        let all = self.state.problem.hosts.len();
        let mut hosts: Vec<usize> = removed.iter().map(|(_, placement)| placement.host).collect();
        hosts.extend((0..REPAIRED).map(|_| self.rng.usize(..all)));
        hosts.sort_unstable();
        hosts.dedup();
        self.inserter.noise = 0;
        let mut candidates: Vec<Candidate> = Vec::new();
        for demand in &order {
            let mut mine = Vec::new();
            for host in &hosts {
                mine.extend(self.inserter.each_at(&self.state, *demand, *host, &mut self.rng));
            }
            mine.sort_by_key(|candidate| candidate.cost);
            mine.truncate(PLACES);
            candidates.append(&mut mine);
        }
        for index in repair::choose(&self.state, &candidates).unwrap_or_default() {
            let Candidate {
                demand, placement, ..
            } = &candidates[index];
            // There may be more to keep than room and GPUs.
            if fits(&self.state, *demand, placement) {
                self.place(*demand, placement.clone());
            }
        }
        let is_left = |demand: &usize| self.state.placement(*demand).is_none();
        let left: Vec<usize> = order.iter().copied().filter(is_left).collect();
        self.inserter.near = hosts;
        self.insert(&left, 0);
    }

    /// Exchanges what runs at two hosts, from some slot on: GPU by GPU, each step of that would cost more.
    fn exchange_hosts(&mut self) {
        let problem = self.state.problem;
        let one = self.rng.usize(..problem.hosts.len());
        let other = (one + self.rng.usize(1..problem.hosts.len())) % problem.hosts.len();
        let from = if self.rng.bool() {
            0
        } else {
            self.rng.usize(..problem.slots)
        };
        let guests = self.state.guests(one).iter().chain(self.state.guests(other));
        let concerned = |demand: &usize| problem.demands[*demand].window.start >= from;
        let mut order: Vec<usize> = guests.copied().filter(concerned).collect();
        self.rng.shuffle(&mut order);
        order.sort_by_key(|demand| Reverse(problem.demands[*demand].gpus()));
        let removed = self.remove_all(&order);
        self.inserter.near = vec![one, other];
        let mut left = Vec::new();
        for (demand, placement) in &removed {
            let host = if placement.host == one { other } else { one };
            match self.inserter.at(&self.state, *demand, host, &mut self.rng) {
                Some(found) => self.place(*demand, found.placement),
                None => left.push(*demand),
            }
        }
        self.insert(&left, 0);
    }

    fn remove_all(&mut self, order: &[usize]) -> Vec<(usize, Placement)> {
        order
            .iter()
            .filter_map(|demand| Some((*demand, self.remove(*demand)?)))
            .collect()
    }

    fn arrange(&mut self, order: &mut [usize]) {
        let problem = self.state.problem;
        self.rng.shuffle(order);
        let demand = |index: &usize| &problem.demands[*index];
        let work = |index: &usize| demand(index).window.len() as Cost * Cost::from(demand(index).gpus());
        match self.rng.u8(..8) {
            0..=2 => {}
            3 => order.sort_by_key(|index| Reverse(demand(index).unmet)),
            4 => order.sort_by_key(|index| Reverse(demand(index).unmet / work(index))),
            5 => order.sort_by_key(|index| Reverse(demand(index).gpus())),
            6 => order.sort_by_key(|index| demand(index).window.start),
            _ => order.sort_by_key(|index| Reverse(demand(index).window.len())),
        }
        if !problem.classes.is_empty() {
            order.sort_by_key(|index| Reverse(demand(index).priority));
        }
    }

    /// Places each where it is cheapest, unless leaving it costs less.
    fn insert(&mut self, order: &[usize], blink: usize) {
        let problem = self.state.problem;
        let of_bundle = |demand: &usize| problem.demands[*demand].share.is_some();
        if order.len() <= 6 && blink > 0 && self.rng.u8(..3) == 0 && !order.iter().any(of_bundle) {
            return self.insert_with_regret(order, blink);
        }
        let mut bundles = BTreeSet::new();
        for demand in order {
            self.insert_one(*demand, blink, &mut bundles);
        }
    }

    /// The same of as many as there is time for, and of all that have a priority: no plan may pass those over.
    fn insert_until(&mut self, order: &[usize], over: &mut dyn FnMut() -> bool) {
        let mut bundles = BTreeSet::new();
        for demand in order {
            if self.state.problem.demands[*demand].priority > 0 || !over() {
                self.insert_one(*demand, 0, &mut bundles);
            }
        }
    }

    /// Places one, or all of its bundle unless that is among those that had their turn.
    fn insert_one(&mut self, demand: usize, blink: usize, bundles: &mut BTreeSet<usize>) {
        let wanted = &self.state.problem.demands[demand];
        if let Some(share) = wanted.share.filter(|_| wanted.runs.is_none()) {
            if bundles.insert(share.bundle) {
                self.insert_bundle(share.bundle, blink);
            }
            return;
        }
        if self.state.placement(demand).is_some() {
            return;
        }
        let found = self.inserter.best(&self.state, demand, blink, &mut self.rng);
        if let Some((found, _)) = found.filter(|(found, _)| wanted.priority > 0 || found.cost < 0) {
            self.place(demand, found.placement);
        }
    }

    /// Places first what would lose most by having to take its second-best host (regret-2).
    fn insert_with_regret(&mut self, order: &[usize], blink: usize) {
        let mut left = order.to_vec();
        while !left.is_empty() {
            let mut next = None;
            for (index, demand) in left.iter().enumerate() {
                let Some((found, regret)) = self.inserter.best(&self.state, *demand, blink, &mut self.rng)
                else {
                    continue;
                };
                let wanted = &self.state.problem.demands[*demand];
                let regret = (wanted.priority, regret);
                if (wanted.priority > 0 || found.cost < 0)
                    && next.as_ref().is_none_or(|(_, _, most)| regret > *most)
                {
                    next = Some((index, found, regret));
                }
            }
            let Some((index, found, _)) = next else { return };
            self.place(left.swap_remove(index), found.placement);
        }
    }

    fn place(&mut self, demand: usize, placement: Placement) {
        self.note(demand);
        self.state.place(demand, placement);
        self.mark(demand);
    }

    fn remove(&mut self, demand: usize) -> Option<Placement> {
        self.state.placement(demand)?;
        self.note(demand);
        let placement = self.state.remove(demand)?;
        self.mark(demand);
        Some(placement)
    }

    /// Remembers where a demand was before this round.
    fn note(&mut self, demand: usize) {
        if !std::mem::replace(&mut self.is_noted[demand], true) {
            let before = self.state.placement(demand).cloned();
            self.journal.push((demand, before));
        }
    }

    /// Begins a round.
    fn forget(&mut self) {
        for (demand, _) in self.journal.drain(..) {
            self.is_noted[demand] = false;
        }
    }

    fn mark(&mut self, demand: usize) {
        if !std::mem::replace(&mut self.is_changed[demand], true) {
            self.changed.push(demand);
        }
    }

    /// Places everything again as it was before this round.
    fn undo(&mut self) {
        let journal = std::mem::take(&mut self.journal);
        for (demand, _) in &journal {
            self.is_noted[*demand] = false;
            self.state.remove(*demand);
        }
        for (demand, before) in journal {
            if let Some(placement) = before {
                self.state.place(demand, placement);
            }
        }
        self.state.restore();
    }

    fn list_unserved(&mut self) {
        let served = |demand: &usize| self.state.placement(*demand).is_some();
        self.unserved = (0..self.state.problem.demands.len())
            .filter(|demand| !served(demand))
            .collect();
    }

    /// Keeps the list of the unserved after demands were placed or not.
    fn list_changes(&mut self) {
        self.unserved
            .retain(|demand| self.state.placement(*demand).is_none());
        for (demand, _) in &self.journal {
            if self.state.placement(*demand).is_none() && !self.unserved.contains(demand) {
                self.unserved.push(*demand);
            }
        }
    }

    /// Remembers the state if it is the best yet. `cost` is what it costs at most.
    fn keep_if_best(&mut self, mut cost: Cost) -> bool {
        let order = self.state.neglect().cmp(&self.best.neglect);
        let may_be_best = order.is_lt() || self.state.base() < self.best.cost;
        if self.is_small() && may_be_best && self.state.may_cost_less() {
            cost = settle::settle(&self.state).1;
        }
        if cost == Cost::MAX || order.is_gt() || order.is_eq() && cost >= self.best.cost {
            return false;
        }
        self.best.neglect.clear();
        self.best.neglect.extend(self.state.neglect());
        self.best.cost = cost;
        for demand in self.changed.drain(..) {
            self.is_changed[demand] = false;
            self.best.placements[demand] = self.state.placement(demand).cloned();
        }
        true
    }

    /// Goes back to the best.
    pub fn go_back(&mut self) {
        let changed = std::mem::take(&mut self.changed);
        for demand in &changed {
            self.state.remove(*demand);
        }
        for demand in changed {
            self.is_changed[demand] = false;
            if let Some(placement) = self.best.placements[demand].clone() {
                self.state.place(demand, placement);
            }
        }
        self.list_unserved();
    }

    /// The state that it is in.
    pub fn state(&mut self) -> &mut State<'p> {
        &mut self.state
    }

    pub fn into_state(self) -> State<'p> {
        self.state
    }
}

/// Whether a demand can be placed like that.
pub(super) fn fits(state: &State<'_>, demand: usize, placement: &Placement) -> bool {
    let wanted = &state.problem.demands[demand];
    let window = || wanted.window.clone();
    let count = placement.gpus();
    let meets = |choice: &Choice| {
        u32::from(choice.gpus) == count
            && placement
                .parts
                .iter()
                .all(|(group, _)| choice.groups.contains(group))
    };
    wanted.choices.iter().any(meets)
        && state.problem.may_run(wanted, placement.host, &wanted.window)
        && state.is_apart(demand, placement.host)
        && state.free_quota(wanted, &placement.groups()) >= count
        && u32::from(state.free_room(placement.host, window())) >= count
        && placement
            .parts
            .iter()
            .all(|(group, count)| state.free_gpus(*group, window()) >= *count)
        && (state.carried()).fits(state.problem, wanted, placement.host, &placement.parts)
        && state.fits_held(placement.host, &placement.parts, &wanted.window)
}
