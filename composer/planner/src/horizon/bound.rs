//! A cost that no plan can go below.
//!
//! First what a [relaxation](super::relaxation) says. It serves demands in part, where there is no room for all of one;
//! so then, in a problem that is not too large, there are cases (branch and bound): a demand does one thing, or it does
//! not. The cases are gone through from the cheapest on, and the cheapest that is left is the bound. What a case
//! leaves no GPUs for is ruled out in it.

use super::problem::{Cost, Demand, Problem};
use super::relaxation::{Climb, LEFT_OUT, MOST_CHOICES, Offer, Options, Prices, Relaxation};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Steps to better prices in each case; who was undecided is seen in the last half of them.
const STEPS: u32 = 40;
/// Steps in a case in which everything is decided.
const POLISH: u32 = 10 * STEPS;
/// How long the steps of a case are at first; those of all cases together begin with 1.
const A_CASE: f64 = 0.6;
/// A demand that does one thing in fewer than so many steps is as good as decided.
const UNDECIDED: f64 = 0.04;
/// Demands and slots up to which there are cases.
const MOST_DEMANDS: usize = 400;
const MOST_SLOTS: usize = 400;
/// Numbers that are kept for all cases together.
const MOST_KEPT: usize = 8_000_000;

/// The bound, as far as it is found.
pub(super) struct Bound<'p> {
    problem: &'p Problem,
    relaxation: Relaxation<'p>,
    all: Climb,
    /// What a demand may do at most: so many choices, and being left out.
    width: usize,
    /// `None`: there are no cases yet, or never.
    cases: Option<Cases>,
}

#[derive(Default)]
struct Cases {
    open: BinaryHeap<Case>,
    /// The least of those in which nothing is undecided.
    decided: Option<f64>,
    made: usize,
}

/// A part of all plans: those in which demands do what they may.
struct Case {
    value: f64,
    may: Vec<Options>,
    prices: Prices,
    /// Who is undecided, and about what.
    about: Option<(usize, Options)>,
    /// Whether its prices are as good as they get.
    polished: bool,
    number: usize,
}

/// A value less than what arithmetic may have added to it.
fn surely(value: f64) -> f64 {
    value * (1.0 - 1e-9)
}

impl<'p> Bound<'p> {
    pub fn new(problem: &'p Problem) -> Self {
        let relaxation = Relaxation::new(problem);
        let all = Climb::from(relaxation.no_prices(), 1.0);
        let choices = problem.demands.iter().map(|demand| demand.choices.len());
        Self {
            problem,
            relaxation,
            all,
            width: choices.max().unwrap_or(0) + 1,
            cases: None,
        }
    }

    /// The best bound so far, rounded down so that arithmetic can't lift it above the truth. `target` is what some plan
    /// costs.
    pub fn value(&self, target: Cost) -> Cost {
        let found = match &self.cases {
            None => self.all.best,
            Some(cases) => {
                let open = cases.open.peek().map(|case| case.value);
                let least = [open, cases.decided]
                    .into_iter()
                    .flatten()
                    .fold(target as f64, f64::min);
                least.max(self.all.best)
            }
        };
        // With no case left, the plan is the cheapest; being rounded down must not hide that.
        match &self.cases {
            Some(cases) if cases.open.is_empty() && cases.decided.is_none() => target,
            _ => target.min(surely(found).floor().max(0.0) as Cost),
        }
    }

    /// A step to better prices for all plans. `target` is what some plan costs.
    pub fn improve(&mut self, target: Cost) {
        self.relaxation.climb(&mut self.all, target, None, |_, _| {});
    }

    /// Whether the problem is small enough for cases.
    pub fn divides(&self) -> bool {
        let problem = self.problem;
        let few_choices = |demand: &Demand| demand.choices.len() < MOST_CHOICES;
        problem.demands.len() <= MOST_DEMANDS
            && problem.slots <= MOST_SLOTS
            && problem.demands.iter().all(few_choices)
    }

    /// Divides the cheapest case in two. `false`: there is none to divide.
    pub fn divide(&mut self, target: Cost) -> bool {
        let problem = self.problem;
        if !self.divides() {
            return false;
        }
        let Some(cases) = &mut self.cases else {
            let everything = |demand: &Demand| LEFT_OUT | ((1 << demand.choices.len()) - 1);
            let all = Case {
                value: self.all.best,
                may: problem.demands.iter().map(everything).collect(),
                prices: self.all.at.clone(),
                about: None,
                polished: false,
                number: 0,
            };
            self.cases = Some(Cases::default());
            self.judge(all, STEPS, target);
            return true;
        };
        let kept = problem.demands.len() + (problem.kinds.len() + 1) * problem.slots;
        if cases.open.len() * kept > MOST_KEPT {
            return false;
        }
        let Some(case) = cases.open.pop() else {
            return false;
        };
        let Some((demand, option)) = case.about else {
            if case.polished {
                cases.decided = Some(cases.decided.map_or(case.value, |least| least.min(case.value)));
                // Nothing open is cheaper than that: dividing others would not lift the bound.
                return false;
            }
            self.judge(
                Case {
                    polished: true,
                    ..case
                },
                POLISH,
                target,
            );
            return true;
        };
        for may in [case.may[demand] & option, case.may[demand] & !option] {
            let mut half = Case {
                may: case.may.clone(),
                prices: case.prices.clone(),
                ..case
            };
            half.may[demand] = may;
            if rule_out(problem, &self.relaxation, &mut half.may) {
                self.judge(half, STEPS, target);
            }
        }
        true
    }

    /// Finds out what a case costs at least, which is no less than what it says already; keeps it unless it is dearer than
    /// a plan that there is.
    fn judge(&mut self, mut case: Case, steps: u32, target: Cost) {
        let mut climb = Climb::from(case.prices, A_CASE);
        let width = self.width;
        let mut counts = vec![0_u16; case.may.len() * width];
        for step in 0..steps {
            self.relaxation
                .climb(&mut climb, target, Some(&case.may), |demand, choice| {
                    if step >= steps / 2 {
                        counts[demand * width + choice.unwrap_or(width - 1)] += 1;
                    }
                });
            // Costs are integers.
            if surely(climb.best) > (target - 1) as f64 {
                return;
            }
        }
        case.about = self.undecided(&case.may, &counts, width);
        case.value = case.value.max(climb.best);
        case.prices = climb.at;
        if let Some(cases) = &mut self.cases {
            cases.made += 1;
            case.number = cases.made;
            cases.open.push(case);
        }
    }

    /// Who was most undecided, by what that may cost, and about what; where all were decided, who stands in the way of
    /// another.
    fn undecided(&self, may: &[Options], counts: &[u16], width: usize) -> Option<(usize, Options)> {
        let mut most = (0.0, None);
        for (index, demand) in self.problem.demands.iter().enumerate() {
            let of = &counts[index * width..][..width];
            let all = of.iter().map(|count| f64::from(*count)).sum::<f64>();
            let offers = &self.relaxation.offers[index];
            let cheapest = offers
                .iter()
                .map(|offer| offer.work)
                .fold(f64::INFINITY, f64::min);
            let choices = offers.iter().enumerate();
            let choices = choices.map(|(choice, offer)| (choice, 1 << choice, offer.work - cheapest));
            for (place, option, matters) in choices.chain([(width - 1, LEFT_OUT, demand.unmet as f64)]) {
                let share = f64::from(of[place]) / all;
                let share = share.min(1.0 - share);
                let score = share * (1.0 + matters);
                if is_open(may[index], option) && share >= UNDECIDED && score > most.0 {
                    most = (score, Some((index, option)));
                }
            }
        }
        most.1.or_else(|| self.in_the_way(may, counts, width))
    }

    /// The widest of those who do, all together, what there are not enough GPUs for.
    fn in_the_way(&self, may: &[Options], counts: &[u16], width: usize) -> Option<(usize, Options)> {
        let problem = self.problem;
        let does = |index: usize| {
            let of = counts[index * width..][..width].iter().enumerate();
            let choice = of
                .max_by_key(|(_, count)| **count)
                .map_or(width - 1, |(choice, _)| choice);
            Some((choice, self.relaxation.offers[index].get(choice)?))
        };
        let mut used = vec![vec![0_u32; problem.slots]; problem.kinds.len()];
        for (index, demand) in problem.demands.iter().enumerate() {
            if let Some((_, offer)) = does(index) {
                let row = used[offer.kind][demand.window.clone()].iter_mut();
                row.for_each(|used| *used += u32::from(offer.gpus));
            }
        }
        let count = self.relaxation.counts();
        let stands = (0..problem.demands.len()).filter_map(|index| {
            let (choice, Offer { kind, gpus, .. }) = does(index)?;
            let demand = &problem.demands[index];
            let too_many = used[*kind][demand.window.clone()]
                .iter()
                .any(|used| *used > count[*kind]);
            (too_many && is_open(may[index], 1 << choice)).then_some((index, 1 << choice, *gpus))
        });
        let widest = stands.max_by_key(|(_, _, gpus)| *gpus);
        widest.map(|(index, option, _)| (index, option))
    }
}

/// Whether a demand may do this, or something else.
fn is_open(may: Options, option: Options) -> bool {
    may & option > 0 && may != option
}

/// Rules out what those who have no other choice leave no GPUs for. `false`: somebody is left with nothing to do.
fn rule_out(problem: &Problem, relaxation: &Relaxation<'_>, may: &mut [Options]) -> bool {
    let count = relaxation.counts();
    let ways = &relaxation.room;
    let room: Vec<u32> = ways.most.iter().map(|most| most.iter().sum()).collect();
    let largest = problem.hosts.iter().map(|host| host.room).max().unwrap_or(0);
    let mut used = vec![vec![0_u32; problem.slots]; problem.kinds.len()];
    let mut filled = vec![vec![0_u32; problem.slots]; room.len()];
    let mut counted = vec![false; may.len()];
    loop {
        let mut news = false;
        for (index, demand) in problem.demands.iter().enumerate() {
            let served = may[index] & LEFT_OUT == 0 && may[index].is_power_of_two();
            if served && !std::mem::replace(&mut counted[index], true) {
                let Offer { kind, gpus, .. } = relaxation.offers[index][may[index].trailing_zeros() as usize];
                let take = |row: &mut [u32], weight: u32, most: u32| {
                    row[demand.window.clone()].iter_mut().all(|taken| {
                        *taken += weight;
                        *taken <= most
                    })
                };
                let enough = take(&mut used[kind], u32::from(gpus), count[kind]);
                let mut filled = filled.iter_mut().zip(&ways.weights).zip(&room);
                if !enough || !filled.all(|((filled, weights), most)| take(filled, weights[index], *most)) {
                    return false;
                }
                news = true;
            }
        }
        for (index, demand) in problem
            .demands
            .iter()
            .enumerate()
            .filter(|(index, _)| !counted[*index])
        {
            let left = |row: &[u32], more: u32, most: u32| {
                row[demand.window.clone()]
                    .iter()
                    .all(|taken| taken + more <= most)
            };
            let has_room = demand.fewest() <= largest
                && filled
                    .iter()
                    .zip(&ways.weights)
                    .zip(&room)
                    .all(|((filled, weights), most)| left(filled, weights[index], *most));
            for (choice, Offer { kind, gpus, .. }) in relaxation.offers[index].iter().enumerate() {
                let fits = has_room && *gpus <= largest && left(&used[*kind], u32::from(*gpus), count[*kind]);
                if !fits && may[index] >> choice & 1 > 0 {
                    may[index] &= !(1 << choice);
                    news = true;
                }
            }
            if may[index] == 0 {
                return false;
            }
        }
        if !news {
            return true;
        }
    }
}

// The cheapest is the greatest: it comes off the heap first.
impl Ord for Case {
    fn cmp(&self, other: &Self) -> Ordering {
        let cheaper = other.value.total_cmp(&self.value);
        cheaper.then_with(|| other.number.cmp(&self.number))
    }
}

impl PartialOrd for Case {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Case {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Case {}
