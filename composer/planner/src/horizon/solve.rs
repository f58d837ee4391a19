//! The whole way from a problem to a plan over time.

use super::bound::Bound;
use super::budget::Budget;
use super::problem::{Cost, Demand, Problem};
use super::search::Search;
use super::settle;
use super::solution::{Assignment, Served};
use super::state::{Placement, State};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Steps of the bound at first, and the share of the budget that they may take.
const BOUND_STEPS: u32 = 400;
const BOUND_SHARE: f64 = 0.05;
/// Where the bound can go on by cases, it does so between two searches: the share of the budget after which the first ends,
/// and after which the second begins.
const CASES_SHARE: (f64, f64) = (0.25, 0.4);
/// Cases that are divided where nobody has a clock.
const CASES: u32 = 100;
/// The share of the time after which the search ends where what it found is put right after it.
const SEARCHED: f64 = 0.95;

/// What is asked for besides the problem.
pub struct Request<'r> {
    /// Decides every choice that is left to chance.
    pub seed: u64,
    pub budget: Budget<'r>,
    /// A plan to begin with: what it serves stays there unless something else is cheaper.
    pub previous: Option<&'r Assignment>,
    /// Hears the cost of each better plan, and what passed until then.
    pub news: &'r mut dyn FnMut(Cost, Duration),
}

/// A plan over time and how good it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub assignment: Assignment,
    pub cost: Cost,
    /// No plan costs less.
    pub bound: Cost,
    /// Rounds of the search.
    pub rounds: u64,
}

impl Plan {
    /// How far the cost may be from the least, as a share of it.
    pub fn gap(&self) -> f64 {
        match self.cost {
            0 => 0.0,
            cost => (cost - self.bound) as f64 / cost as f64,
        }
    }
}

/// Plans a problem over time.
pub fn solve(problem: &Problem, request: Request<'_>) -> Plan {
    let Request {
        seed,
        mut budget,
        previous,
        news,
    } = request;
    let before = previous.map(|plan| placements(problem, plan)).unwrap_or_default();
    let mut search = Search::start(problem, &before, seed, &mut budget);
    news(search.best.cost, budget.elapsed());
    let mut bound = Bound::new(problem);
    let timed = matches!(budget, Budget::Time { .. });
    let share = BOUND_SHARE + if timed { budget.spent(0) } else { 0.0 };
    for _ in 0..BOUND_STEPS {
        bound.improve(search.best.cost);
        if timed && budget.spent(0) > share {
            break;
        }
    }
    if bound.divides() {
        search.run(&mut budget, CASES_SHARE.0, bound.value(search.best.cost), news);
        let best = search.best.cost;
        for cases in 0.. {
            let enough = if timed {
                budget.spent(0) > CASES_SHARE.1
            } else {
                cases == CASES
            };
            if enough || bound.value(best) >= best || !bound.divide(best) {
                break;
            }
        }
    }
    let is_put_right = !problem.classes.is_empty() || before.iter().any(Option::is_some);
    let until = if timed && is_put_right { SEARCHED } else { 1.0 };
    search.run(&mut budget, until, bound.value(search.best.cost), news);
    let rounds = search.rounds;
    search.go_back();
    settle_back(search.state(), &before, &mut || budget.must_end());
    search.serve_first();
    let state = search.into_state();
    let (attached, cost) = settle::settle(&state);
    Plan {
        assignment: assignment(&state, &attached),
        cost,
        bound: bound.value(cost),
        rounds,
    }
}

/// Puts back what was moved from where it was for nothing, as far as there is time.
fn settle_back(state: &mut State<'_>, before: &[Option<Placement>], over: &mut dyn FnMut() -> bool) {
    let mut cost = state.cost();
    for (demand, placement) in before.iter().enumerate() {
        let Some(placement) = placement else { continue };
        let Some(now) = state.placement(demand).filter(|now| *now != placement).cloned() else {
            continue;
        };
        if over() {
            return;
        }
        state.remove(demand);
        if super::search::fits(state, demand, placement) {
            state.place(demand, placement.clone());
            let put_back = state.cost();
            if put_back <= cost {
                cost = put_back;
                continue;
            }
            state.remove(demand);
        }
        state.place(demand, now);
    }
}

fn assignment(state: &State<'_>, attached: &settle::Attached) -> Assignment {
    let problem = state.problem;
    let name = |(group, count): &(usize, u16)| (problem.group_name(*group), *count);
    let served = problem.demands.iter().enumerate().map(|(index, demand)| {
        let placed = state.placement(index);
        Served {
            demand: demand.id.clone(),
            phase: demand.phase(),
            part: demand.part(),
            host: placed.map(|placed| problem.hosts[placed.host].id.clone()),
            gpus: placed
                .map(|placed| placed.parts.iter().map(name).collect())
                .unwrap_or_default(),
        }
    });
    let mut rows: BTreeMap<String, BTreeMap<String, Vec<u16>>> = BTreeMap::new();
    for ((host, group), row) in attached
        .iter()
        .filter(|(_, row)| row.iter().any(|count| *count > 0))
    {
        let of_host = rows.entry(problem.hosts[*host].id.clone()).or_default();
        of_host.insert(problem.group_name(*group), row.clone());
    }
    Assignment {
        demands: served.collect(),
        attached: rows,
    }
}

/// Where a plan of perhaps another problem has the demands of this one; what this one doesn't know is left out.
pub(super) fn placements(problem: &Problem, plan: &Assignment) -> Vec<Option<Placement>> {
    let hosts: HashMap<&str, usize> = problem
        .hosts
        .iter()
        .enumerate()
        .map(|(index, host)| (host.id.as_str(), index))
        .collect();
    let groups: HashMap<String, usize> = (0..problem.groups.len())
        .map(|index| (problem.group_name(index), index))
        .collect();
    let served: HashMap<_, &Served> = plan.demands.iter().map(|served| (served.key(), served)).collect();
    let placement = |demand: &Demand| {
        let served = served.get(&demand.key())?;
        let host = *hosts.get(served.host.as_deref()?)?;
        let part = |(name, count): (&String, &u16)| groups.get(name).map(|group| (*group, *count));
        Some(Placement {
            host,
            parts: served
                .gpus
                .iter()
                .filter(|(_, count)| **count > 0)
                .map(part)
                .collect::<Option<_>>()?,
        })
    };
    problem.demands.iter().map(placement).collect()
}
