//! Exact repair of a small part: of the places that some demands may have, each priced by itself, those that together fit and
//! cost least. It is a mixed-integer program (`program`), solved by branch and bound; what of it is left when its nodes
//! are spent is a choice that fits, too.
//!
//! Placing one demand after the other takes what the next one needs; here nobody is the first. What the demands share, such
//! as GPUs that stay attached from one to the next, shows only when they are placed: the search judges that.

use super::problem::Cost;
use super::program::Program;
use super::state::{Placement, State};
use std::collections::BTreeMap;
use std::ops::Range;

/// Nodes of branch and bound: nearly all are solved in fewer.
const NODES: u32 = 200;
/// Rounds between two repairs: fewer where they help, more where they do not.
const EVERY: Range<u64> = 64..32_768;

/// A place that a demand may have.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub demand: usize,
    /// By how much the cost changes if it alone is placed there.
    pub cost: Cost,
    pub placement: Placement,
}

/// When the search repairs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Repairs {
    every: u64,
    next: u64,
}

impl Default for Repairs {
    fn default() -> Self {
        let every = EVERY.start * 4;
        Self { every, next: every }
    }
}

impl Repairs {
    pub fn is_due(self, round: u64) -> bool {
        round >= self.next
    }

    /// A repair helped or did not: the next is sooner or later.
    pub fn done(&mut self, round: u64, helped: bool) {
        self.every = if helped {
            (self.every / 4).max(EVERY.start)
        } else {
            (self.every * 2).min(EVERY.end)
        };
        self.next = round + self.every;
    }
}

/// What limits candidates together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Limit {
    Host(usize),
    Group(usize),
}

/// Which of the candidates to take, one for each demand at most. `None`: no answer was found.
pub(super) fn choose(state: &State<'_>, candidates: &[Candidate]) -> Option<Vec<usize>> {
    let mut program = Program::new(candidates.iter().map(|candidate| candidate.cost as f64 / 1000.0));
    let mut by_demand: BTreeMap<usize, Vec<(usize, f64)>> = BTreeMap::new();
    for (index, candidate) in candidates.iter().enumerate() {
        by_demand.entry(candidate.demand).or_default().push((index, 1.0));
    }
    for ways in by_demand.into_values() {
        program.at_most(ways, 1.0);
    }
    for span in spans(state, candidates) {
        for (limit, uses) in uses(state, candidates, &span) {
            let free = match limit {
                Limit::Host(host) => state.free_room(host, span.clone()),
                Limit::Group(group) => state.free_gpus(group, span.clone()),
            };
            program.at_most(uses, f64::from(free));
        }
    }
    program.solve(NODES)
}

/// Slots from one to the next at which a candidate's demand begins or ends.
fn spans(state: &State<'_>, candidates: &[Candidate]) -> Vec<Range<usize>> {
    let windows = candidates
        .iter()
        .map(|candidate| &state.problem.demands[candidate.demand].window);
    let mut borders: Vec<usize> = windows.flat_map(|window| [window.start, window.end]).collect();
    borders.sort_unstable();
    borders.dedup();
    borders.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

/// What candidates use in a span, by what limits it.
fn uses(
    state: &State<'_>,
    candidates: &[Candidate],
    span: &Range<usize>,
) -> BTreeMap<Limit, Vec<(usize, f64)>> {
    let mut uses: BTreeMap<Limit, Vec<(usize, f64)>> = BTreeMap::new();
    for (index, candidate) in candidates.iter().enumerate() {
        if !state.problem.demands[candidate.demand]
            .window
            .contains(&span.start)
        {
            continue;
        }
        let placement = &candidate.placement;
        let room = (Limit::Host(placement.host), f64::from(placement.gpus()));
        let groups = placement.parts.iter();
        let groups = groups.map(|(group, count)| (Limit::Group(*group), f64::from(*count)));
        for (limit, gpus) in groups.chain([room]) {
            uses.entry(limit).or_default().push((index, gpus));
        }
    }
    uses
}

#[cfg(test)]
mod tests {
    use super::super::cps1;
    use super::super::insertion::Inserter;
    use super::super::problem::Problem;
    use super::super::search::fits;
    use super::*;
    use serde_json::{Value, json};

    /// Two hosts that are too small for all demands, and too few GPUs of each kind.
    fn scarce(seed: u64) -> Problem {
        let mut rng = fastrand::Rng::with_seed(seed);
        let host = |id: &str, slots: u8| json!({"id": id, "slots": slots, "switch": "s0", "host_on_w": 350, "host_idle_w": 150});
        let kinds = [("T24", 24, 150), ("T40", 40, 300)];
        let gpus: Vec<Value> = (0..8)
            .map(|index| {
                let (kind, memory, watts) = kinds[usize::from(index > 4)];
                json!({"id": format!("g{index}"), "type": kind, "mem_gb": memory, "switch": "s0", "active_w": watts,
                    "idle_w": 25, "attached_to": null})
            })
            .collect();
        let demands: Vec<Value> = (0..4)
            .map(|index| {
                let start = rng.u8(..4);
                json!({"id": format!("d{index}"), "start": start, "end": rng.u8(start + 1..7), "gpus": rng.u8(1..4),
                    "min_mem_gb": 24, "weight": rng.u8(1..4)})
            })
            .collect();
        let costs = json!({"unmet_per_gpu_slot": 500, "attach": 60, "detach": 20, "host_fire_up": 100,
            "hop_per_gpu_slot": 2, "energy_per_kwh": 100});
        let file = json!({"schema": "cps-1", "horizon_slots": 6, "slot_s": 3600, "hosts": [host("a", 3), host("b", 2)],
            "gpus": gpus, "demands": demands, "costs": costs});
        cps1::read(&serde_json::from_value(file).unwrap()).unwrap()
    }

    /// The least that the candidates of the demands from one on cost, tried one by one.
    fn least(state: &mut State<'_>, demand: usize, candidates: &[Candidate]) -> Cost {
        if demand == state.problem.demands.len() {
            return 0;
        }
        let mut best = least(state, demand + 1, candidates);
        for candidate in candidates.iter().filter(|candidate| candidate.demand == demand) {
            if fits(state, demand, &candidate.placement) {
                state.place(demand, candidate.placement.clone());
                best = best.min(candidate.cost + least(state, demand + 1, candidates));
                state.remove(demand);
            }
        }
        best
    }

    #[test]
    fn of_all_choices_that_fit_the_cheapest_is_taken() {
        let mut left_out = 0;
        for seed in 0..60 {
            let problem = scarce(seed);
            let mut state = State::new(&problem);
            let (mut inserter, mut rng) = (Inserter::default(), fastrand::Rng::with_seed(seed));
            let mut candidates = Vec::new();
            for demand in 0..problem.demands.len() {
                for host in 0..problem.hosts.len() {
                    candidates.extend(inserter.each_at(&state, demand, host, &mut rng));
                }
            }
            let chosen = choose(&state, &candidates).unwrap();
            let cost: Cost = chosen.iter().map(|index| candidates[*index].cost).sum();
            assert_eq!(
                cost,
                least(&mut state, 0, &candidates),
                "seed {seed}: {candidates:?}"
            );
            left_out += usize::from(chosen.len() < problem.demands.len());
        }
        assert!(left_out > 20, "there was room for all: {left_out}");
    }

    #[test]
    fn repairs_are_seldom_where_they_do_not_help() {
        let mut repairs = Repairs::default();
        let mut done = 0;
        for round in 0..100_000 {
            if repairs.is_due(round) {
                repairs.done(round, false);
                done += 1;
            }
        }
        assert!((5..20).contains(&done), "{done}");
        repairs.done(100_000, true);
        assert!(repairs.is_due(100_000 + EVERY.end / 2));
    }
}
