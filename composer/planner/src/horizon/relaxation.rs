//! What a plan costs at least, at given prices.
//!
//! Three things are let go: which host GPUs are attached to, that a demand runs on one host, and that GPUs in use
//! are attached and hosts with GPUs in use are on. The last two are priced instead (Lagrangian relaxation): using a
//! GPU of a kind for a slot has a price, and so has using a host's room. At any prices what is left falls apart into
//! parts that are solved exactly: each demand takes the cheapest kind or is left out, each GPU and each host takes
//! the cheapest way through the slots, on or off. Their sum is never more than the optimum, whatever the prices are;
//! better prices are found by a subgradient.

use super::problem::{Choice, Cost, Problem};
use super::room::Room;

/// Rounds without a better value before steps get shorter.
const PATIENCE: u32 = 12;
/// How much of a step's direction is that of the step before: a way that turns less gets farther.
const INERTIA: f64 = 0.6;

/// What a demand may do: a bit for each of its choices, and one for being left out.
pub(super) type Options = u32;
/// The bit for being left out.
pub(super) const LEFT_OUT: Options = 1 << 31;
/// Choices beyond that many have no bit of their own, and are always possible.
pub(super) const MOST_CHOICES: usize = 31;

/// Prices of using a GPU, by kind and slot, and of room, by way to see it and slot.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Prices {
    gpus: Vec<Vec<f64>>,
    room: Vec<Vec<f64>>,
}

/// A way towards better prices.
pub(super) struct Climb {
    /// The most that was found, and where.
    pub best: f64,
    pub at: Prices,
    prices: Prices,
    direction: Prices,
    step: f64,
    waited: u32,
}

impl Climb {
    pub fn from(prices: Prices, step: f64) -> Self {
        let mut still = prices.clone();
        still.all_mut().for_each(|price| *price = 0.0);
        Self {
            best: 0.0,
            at: prices.clone(),
            prices,
            direction: still,
            step,
            waited: 0,
        }
    }

    /// Remembers the value at the prices, and takes a step along the subgradient, as long as Polyak's rule says.
    fn go_on(&mut self, value: f64, target: f64, more_used: &Prices) {
        if value > self.best {
            (self.best, self.waited) = (value, 0);
            self.at.clone_from(&self.prices);
        } else {
            self.waited += 1;
            if self.waited > PATIENCE {
                (self.step, self.waited) = (self.step * 0.7, 0);
            }
        }
        let mut norm = 0.0;
        for (direction, more) in self.direction.all_mut().zip(more_used.all()) {
            *direction = INERTIA * *direction + (1.0 - INERTIA) * more;
            norm += *direction * *direction;
        }
        let missing = target - value;
        if norm <= 0.0 || missing <= 0.0 {
            return;
        }
        let step = self.step * missing / norm;
        for (price, direction) in self.prices.all_mut().zip(self.direction.all()) {
            *price = (*price + step * direction).max(0.0);
        }
    }
}

impl Prices {
    fn none(kinds: usize, ways: usize, slots: usize) -> Self {
        Self {
            gpus: vec![vec![0.0; slots]; kinds],
            room: vec![vec![0.0; slots]; ways],
        }
    }

    fn all(&self) -> impl Iterator<Item = &f64> {
        self.gpus.iter().chain(&self.room).flatten()
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut f64> {
        self.gpus.iter_mut().chain(&mut self.room).flatten()
    }
}

/// What is left of a problem without what is let go.
pub(super) struct Relaxation<'p> {
    problem: &'p Problem,
    kinds: Vec<Kind>,
    hosts: Vec<Hosts>,
    /// By demand and choice.
    pub offers: Vec<Vec<Offer>>,
    pub room: Room,
    /// How much more is used than is there: the direction in which prices rise.
    more_used: Prices,
    /// What a window costs is the difference of two sums.
    sums: Prices,
}

/// A kind that a demand may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offer {
    pub kind: usize,
    pub gpus: u16,
    /// What the demand costs so, beyond what its GPUs cost idle.
    pub work: f64,
}

/// GPUs of a kind: how many start attached, how many don't, and the least that each can cost.
struct Kind {
    attached: f64,
    free: f64,
    idle: f64,
}

/// Hosts with the same room, seen in each way, and the same cost.
struct Hosts {
    room: Vec<u32>,
    on: Cost,
    count: f64,
}

impl<'p> Relaxation<'p> {
    pub fn new(problem: &'p Problem) -> Self {
        let kinds: Vec<Kind> = (0..problem.kinds.len())
            .map(|kind| Kind::of(problem, kind))
            .collect();
        let room = Room::of(problem);
        let mut hosts: Vec<Hosts> = Vec::new();
        for (index, host) in problem.hosts.iter().enumerate() {
            let of_host: Vec<u32> = room.most.iter().map(|most| most[index]).collect();
            match hosts
                .iter_mut()
                .find(|known| known.on == host.on && known.room == of_host)
            {
                Some(known) => known.count += 1.0,
                None => hosts.push(Hosts {
                    room: of_host,
                    on: host.on,
                    count: 1.0,
                }),
            }
        }
        let offers = problem.demands.iter().map(|demand| {
            let offer = |choice: &Choice| {
                let (kind, gpus) = (problem.groups[choice.groups[0]].kind, choice.gpus);
                let active = choice.groups.iter().map(|group| problem.groups[*group].active);
                let work = active.min().unwrap_or(0) as f64 - kinds[kind].idle;
                let work = f64::from(gpus) * demand.window.len() as f64 * work + choice.penalty as f64;
                Offer { kind, gpus, work }
            };
            demand.choices.iter().map(offer).collect()
        });
        let (ways, slots) = (room.weights.len(), problem.slots);
        Self {
            problem,
            offers: offers.collect(),
            hosts,
            more_used: Prices::none(kinds.len(), ways, slots),
            sums: Prices::none(kinds.len(), ways, slots + 1),
            room,
            kinds,
        }
    }

    /// Prices of nothing, to begin with.
    pub fn no_prices(&self) -> Prices {
        Prices::none(self.kinds.len(), self.room.weights.len(), self.problem.slots)
    }

    /// GPUs by kind.
    pub fn counts(&self) -> Vec<u32> {
        self.kinds
            .iter()
            .map(|kind| (kind.attached + kind.free) as u32)
            .collect()
    }

    /// Judges where a way has come to, and goes on by a step. `target` is what some plan costs; `may` is what each demand
    /// may do, where that is less than everything; `chosen` hears what each does: a choice, or `None`.
    pub fn climb(
        &mut self,
        climb: &mut Climb,
        target: Cost,
        may: Option<&[Options]>,
        chosen: impl FnMut(usize, Option<usize>),
    ) {
        let prices = climb.prices.gpus.iter().chain(&climb.prices.room);
        for (prices, sums) in prices.zip(self.sums.gpus.iter_mut().chain(&mut self.sums.room)) {
            add_up(prices, sums);
        }
        self.more_used.all_mut().for_each(|value| *value = 0.0);
        let value = self.demands(may, chosen) + self.chains(&climb.prices);
        climb.go_on(value, target as f64, &self.more_used);
    }

    /// Each demand does what costs least.
    fn demands(&mut self, may: Option<&[Options]>, mut chosen: impl FnMut(usize, Option<usize>)) -> f64 {
        let mut total = 0.0;
        let over = |sums: &[f64], from: usize, to: usize| sums[to] - sums[from];
        for (index, demand) in self.problem.demands.iter().enumerate() {
            let may = may.map_or(Options::MAX, |may| may[index]);
            let (from, to) = (demand.window.start, demand.window.end);
            let weights = self.room.weights.iter().map(|weights| f64::from(weights[index]));
            let prices = self.sums.room.iter().map(|sums| over(sums, from, to));
            let room: f64 = weights
                .clone()
                .zip(prices)
                .map(|(weight, price)| weight * price)
                .sum();
            let left_out = if may & LEFT_OUT > 0 {
                demand.unmet as f64
            } else {
                f64::INFINITY
            };
            let mut best = (left_out, None);
            for (choice, offer) in self.offers[index].iter().enumerate() {
                if choice < MOST_CHOICES && may >> choice & 1 == 0 {
                    continue;
                }
                let gpus = f64::from(offer.gpus);
                let cost = offer.work + room + gpus * over(&self.sums.gpus[offer.kind], from, to);
                if cost < best.0 {
                    best = (cost, Some((choice, offer.kind, gpus)));
                }
            }
            chosen(index, best.1.map(|(choice, _, _)| choice));
            total += best.0;
            if let Some((_, kind, size)) = best.1 {
                // Only where use begins and ends; it is added up in `chains`.
                let rows = [(&mut self.more_used.gpus[kind], size)].into_iter();
                for (row, weight) in rows.chain(self.more_used.room.iter_mut().zip(weights)) {
                    row[from] += weight;
                    if let Some(end) = row.get_mut(to) {
                        *end -= weight;
                    }
                }
            }
        }
        total
    }

    /// Each GPU and each host takes its cheapest way; takes what they offer off what is used.
    fn chains(&mut self, prices: &Prices) -> f64 {
        let costs = self.problem.costs;
        let mut value = 0.0;
        for used in self.more_used.gpus.iter_mut().chain(&mut self.more_used.room) {
            let mut so_far = 0.0;
            for used in used {
                so_far += *used;
                *used = so_far;
            }
        }
        for ((kind, prices), used) in self.kinds.iter().zip(&prices.gpus).zip(&mut self.more_used.gpus) {
            for (count, starts_on) in [(kind.attached, true), (kind.free, false)] {
                if count > 0.0 {
                    let on = prices.iter().map(|price| kind.idle - price);
                    let (cost, ways) = chain(on, costs.attach as f64, costs.detach as f64, starts_on);
                    value += count * cost;
                    let offered = used.iter_mut().zip(ways).filter(|(_, on)| *on);
                    offered.for_each(|(used, _)| *used -= count);
                }
            }
        }
        for hosts in &self.hosts {
            let mut on = vec![hosts.on as f64; self.problem.slots];
            for (prices, room) in prices.room.iter().zip(&hosts.room) {
                let paid = on.iter_mut().zip(prices);
                paid.for_each(|(on, price)| *on -= price * f64::from(*room));
            }
            let (cost, ways) = chain(on.into_iter(), costs.fire_up as f64, 0.0, false);
            value += hosts.count * cost;
            for (used, room) in self.more_used.room.iter_mut().zip(&hosts.room) {
                let offered = used.iter_mut().zip(&ways).filter(|(_, on)| **on);
                offered.for_each(|(used, _)| *used -= hosts.count * f64::from(*room));
            }
        }
        value
    }
}

impl Kind {
    fn of(problem: &Problem, kind: usize) -> Self {
        let groups = || problem.groups.iter().filter(move |group| group.kind == kind);
        let count: f64 = groups().map(|group| f64::from(group.count)).sum();
        let on = problem.hosts.iter().flat_map(|host| &host.attached);
        let attached: f64 = on
            .filter(|(group, _)| problem.groups[*group].kind == kind)
            .map(|(_, count)| f64::from(*count))
            .sum();
        Self {
            attached,
            free: count - attached,
            idle: groups().map(|group| group.idle).min().unwrap_or(0) as f64,
        }
    }
}

fn add_up(values: &[f64], sums: &mut [f64]) {
    let mut so_far = 0.0;
    for (value, sum) in values.iter().zip(&mut sums[1..]) {
        so_far += value;
        *sum = so_far;
    }
}

/// The cheapest way through the slots for something that is on or off, and when it is on. `on` is the cost of a slot
/// on.
fn chain(on: impl Iterator<Item = f64>, up: f64, down: f64, starts_on: bool) -> (f64, Vec<bool>) {
    let (mut is_off, mut is_on) = if starts_on {
        (f64::INFINITY, 0.0)
    } else {
        (0.0, f64::INFINITY)
    };
    let mut came_from_on = Vec::new();
    for cost in on {
        let (stay, start) = (is_on, is_off + up);
        let (rest, stop) = (is_off, is_on + down);
        came_from_on.push((stop < rest, stay <= start));
        (is_off, is_on) = (rest.min(stop), stay.min(start) + cost);
    }
    let mut state = is_on < is_off;
    let least = is_on.min(is_off);
    let mut ways = vec![false; came_from_on.len()];
    for (way, (to_off, to_on)) in ways.iter_mut().zip(&came_from_on).rev() {
        *way = state;
        state = if state { *to_on } else { *to_off };
    }
    (least, ways)
}
