//! What runs and may be ended: where a demand finds no place, those of it without which it would.

use super::super::classes::MUST;
use super::super::insertion::Inserter;
use super::super::problem::Problem;
use super::super::state::State;
use super::{no_place, words};

/// Most that are tried for a demand.
const TRIED: usize = 8;

/// What explaining one demand after the other goes on with.
#[derive(Default)]
pub(in crate::horizon) struct Scratch {
    pub inserter: Inserter,
    /// Demands that run and may be ended.
    endable: Vec<usize>,
}

impl Scratch {
    pub fn of(problem: &Problem) -> Self {
        let may_be_ended = |index: &usize| {
            let demand = &problem.demands[*index];
            demand.runs.is_some() && demand.priority < MUST
        };
        Self {
            inserter: Inserter::default(),
            endable: (0..problem.demands.len()).filter(may_be_ended).collect(),
        }
    }
}

/// What of the plan might be ended for a demand that finds no place in it: each by itself, else all together.
pub(super) fn help(state: &mut State<'_>, index: usize, scratch: &Scratch) -> Vec<String> {
    let problem = state.problem;
    let demand = &problem.demands[index];
    let in_the_way = |other: &usize| {
        let window = &problem.demands[*other].window;
        let meets = window.start < demand.window.end && demand.window.start < window.end;
        meets && *other != index && state.placement(*other).is_some()
    };
    let tried: Vec<usize> = (scratch.endable.iter().copied().filter(in_the_way))
        .take(TRIED)
        .collect();
    if tried.is_empty() || no_place(state, index).is_none() {
        return Vec::new();
    }
    let alone = tried
        .iter()
        .filter(|other| has_place_without(state, index, &[**other]));
    let alone: Vec<String> = alone.map(|other| ended(problem, &[*other])).collect();
    match alone.is_empty() && has_place_without(state, index, &tried) {
        true => vec![ended(problem, &tried)],
        false => alone,
    }
}

fn has_place_without(state: &mut State<'_>, index: usize, others: &[usize]) -> bool {
    let removed: Vec<_> = others
        .iter()
        .map(|other| (*other, state.remove(*other)))
        .collect();
    let has_place = no_place(state, index).is_none();
    for (other, placement) in removed {
        if let Some(placement) = placement {
            state.place(other, placement);
        }
    }
    has_place
}

/// What it would take to have these ended.
fn ended(problem: &Problem, others: &[usize]) -> String {
    let named = others.iter().map(|other| {
        let demand = &problem.demands[*other];
        let from = demand.window.start;
        let of = demand.runs.map_or_else(String::new, |runs| {
            format!(
                " of {} at {}",
                problem.group_name(runs.group),
                problem.hosts[runs.host].id
            )
        });
        format!(
            "{} ended from slot {from} on, which may be ({}{of})",
            demand.id,
            words::gpus(demand.gpus())
        )
    });
    let highest = others.iter().map(|other| problem.demands[*other].priority).max();
    format!(
        "{}: by a higher weight, or a priority above {}",
        named.collect::<Vec<_>>().join(" and "),
        highest.unwrap_or_default()
    )
}
