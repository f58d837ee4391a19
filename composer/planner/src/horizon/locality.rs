//! Which of a kind's GPUs a demand gets at a host where the fabric is in the way: what the host does not reach, what uplinks
//! and its window for BARs do not carry, and that GPUs are better or must be behind one switch.

use super::problem::{Cost, Demand, Problem};
use super::state::State;

/// Sets of groups that are priced to find out whether fewer switches are cheaper; more are tried one group at a time.
const GROUPS: usize = 5;

/// What a host and its uplink still carry for a demand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left {
    /// GPUs from behind other switches.
    pub far: u32,
    /// MiB.
    pub bar: u64,
}

impl Left {
    /// Everything.
    pub const ALL: Self = Self {
        far: u32::MAX,
        bar: u64::MAX,
    };

    pub fn at(state: &State<'_>, demand: &Demand, host: usize) -> Self {
        let (problem, carried) = (state.problem, state.carried());
        Self {
            far: carried.free_uplink(problem, problem.hosts[host].switch, &demand.window),
            bar: carried.free_bar(problem, host, &demand.window),
        }
    }

    /// How many GPUs of a group, of so many.
    fn of(self, problem: &Problem, host: usize, group: usize, free: u32) -> u32 {
        let far = if problem.is_far(host, group) {
            self.far
        } else {
            u32::MAX
        };
        let mapped = self
            .bar
            .checked_div(problem.groups[group].bar)
            .unwrap_or(u64::MAX);
        free.min(far).min(mapped.min(u64::from(u32::MAX)) as u32)
    }

    /// Whether one more of a group.
    pub fn has(self, problem: &Problem, host: usize, group: usize) -> bool {
        self.of(problem, host, group, 1) > 0
    }

    pub fn take(&mut self, problem: &Problem, host: usize, group: usize) {
        if problem.is_far(host, group) {
            self.far = self.far.saturating_sub(1);
        }
        self.bar = self.bar.saturating_sub(problem.groups[group].bar);
    }
}

/// Of these groups of one kind, what a demand can have of them at a host. `None`: not enough.
pub(super) fn within_reach(
    state: &State<'_>,
    (demand, gpus): (&Demand, u16),
    host: usize,
    groups: &[(usize, u16)],
) -> Option<Vec<(usize, u16)>> {
    let problem = state.problem;
    let (left, carried) = (Left::at(state, demand, host), state.carried());
    let reached = groups.iter().filter(|(group, _)| problem.reaches(host, *group));
    let within = reached.map(|(group, free)| {
        let uplink = match problem.is_far(host, *group) {
            true => carried.free_uplink(problem, problem.groups[*group].switch, &demand.window),
            false => u32::MAX,
        };
        (
            *group,
            left.of(problem, host, *group, u32::from(*free).min(uplink)) as u16,
        )
    });
    let least = if demand.one_switch { gpus } else { 1 };
    let within: Vec<(usize, u16)> = within.filter(|(_, free)| *free >= least).collect();
    let all: u32 = within.iter().map(|(_, free)| u32::from(*free)).sum();
    (all >= u32::from(gpus)).then_some(within)
}

/// A cost, and GPUs by group.
pub(super) type Share = (Cost, Vec<(usize, u16)>);

/// The cheapest of the ways to take GPUs from fewer groups than all, each as `share` has it.
pub(super) fn fewest(
    problem: &Problem,
    (demand, gpus): (&Demand, u16),
    groups: &[(usize, u16)],
    mut share: impl FnMut(&[(usize, u16)]) -> Option<Share>,
) -> Option<Share> {
    let several = !demand.one_switch && groups.len() <= GROUPS;
    let sets = if several { 1 << groups.len() } else { 1_usize };
    let of_set = |set: usize| -> Vec<(usize, u16)> {
        let chosen = (0..groups.len()).filter(|place| set >> place & 1 > 0);
        chosen.map(|place| groups[place]).collect()
    };
    let single = |group: &(usize, u16)| vec![*group];
    let mut sets: Vec<Vec<(usize, u16)>> = (1..sets).map(of_set).collect();
    if !several {
        sets.extend(groups.iter().map(single));
    }
    if !several && !demand.one_switch {
        sets.push(groups.to_vec());
    }
    let enough = |set: &&Vec<(usize, u16)>| {
        set.iter().map(|(_, free)| u32::from(*free)).sum::<u32>() >= u32::from(gpus)
    };
    let priced = sets.iter().filter(enough).filter_map(|set| {
        let (cost, parts) = share(set)?;
        Some((cost + problem.split(demand, parts.len()), parts))
    });
    priced.min_by_key(|(cost, _)| *cost)
}
