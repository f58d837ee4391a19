//! Why a demand is not served, and what would help: first what could never be, then what the plan leaves no room for,
//! and then what would cost more than it is worth.

mod bundles;
mod ending;
mod fabric;
mod words;

use super::classes::MUST;
use super::problem::{Demand, Host, Need, Problem, UNIT};
use super::solution::Assignment;
use super::solve::placements;
use super::state::State;
use ending::Scratch;
use serde::Serialize;
use std::ops::Range;

/// A demand that is not served, or not all of its parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unserved {
    pub demand: String,
    /// Some of its parts are.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub partly: bool,
    pub reason: String,
    /// What would help, each by itself.
    pub help: Vec<String>,
}

/// The demands that a plan does not serve, each with the reason.
pub fn reasons(problem: &Problem, plan: &Assignment) -> Vec<Unserved> {
    let mut state = State::new(problem);
    for (demand, placement) in placements(problem, plan).into_iter().enumerate() {
        if let Some(placement) = placement {
            state.place(demand, placement);
        }
    }
    let mut scratch = Scratch::of(problem);
    let mut unserved = Vec::new();
    for (index, demand) in problem.demands.iter().enumerate() {
        match demand.share {
            None if state.placement(index).is_none() => {
                unserved.push(explain(&mut state, index, &mut scratch));
            }
            Some(share) if share.phase == 0 && share.part == 0 => {
                let bundle = &problem.bundles[share.bundle];
                unserved.extend(bundles::of_bundle(&mut state, bundle, &mut scratch));
            }
            _ => {}
        }
    }
    unserved
}

/// A reason, and what would help.
pub(super) type Why = (String, Vec<String>);

/// Why a demand can have none of its needs; `None` where it can have one.
fn of_all(demand: &Demand, why: impl Fn(&Need) -> Option<Why>) -> Option<Why> {
    let mut each: Vec<Why> = demand.needs.iter().map(why).collect::<Option<_>>()?;
    if each.len() < 2 {
        return each.pop();
    }
    let (reasons, help): (Vec<String>, Vec<Vec<String>>) = each.into_iter().unzip();
    let mut different: Vec<String> = Vec::new();
    for help in help.into_iter().flatten() {
        if !different.contains(&help) {
            different.push(help);
        }
    }
    let reason = format!(
        "it can have none of its {} options: {}",
        reasons.len(),
        reasons.join("; ")
    );
    Some((reason, different))
}

fn explain(state: &mut State<'_>, index: usize, scratch: &mut Scratch) -> Unserved {
    let (reason, help) = why(state, index, scratch);
    Unserved {
        demand: state.problem.demands[index].id.clone(),
        partly: false,
        reason,
        help,
    }
}

pub(super) fn why(state: &mut State<'_>, index: usize, scratch: &mut Scratch) -> Why {
    let problem = state.problem;
    let demand = &problem.demands[index];
    let (mut reason, mut help) = why_at_all(state, index, scratch);
    let never = of_all(demand, |need| never(problem, demand, need)).is_some();
    if let Some((used, share)) = state.beyond_share(demand).filter(|_| !never) {
        let tenant = &demand.tenant;
        reason.push_str(&format!(
            "; tenant {tenant} uses {} then, and its fair share is {share}",
            words::gpus(used)
        ));
        help.push(format!("a greater weight for tenant {tenant}"));
    }
    if !never {
        help.extend(ending::help(state, index, scratch));
    }
    if !never && (problem.classes.iter()).any(|other| demand.priority < *other && *other < MUST) {
        help.push("a higher priority".to_owned());
    }
    (reason, help)
}

/// Why a demand can have none of its needs in this plan; `None` where there are GPUs and room for one of them.
fn no_place(state: &State<'_>, index: usize) -> Option<Why> {
    let (problem, demand) = (state.problem, &state.problem.demands[index]);
    of_all(demand, |need| {
        never(problem, demand, need).or_else(|| no_room(state, index, need))
    })
}

fn why_at_all(state: &State<'_>, index: usize, scratch: &mut Scratch) -> Why {
    let problem = state.problem;
    let demand = &problem.demands[index];
    of_all(demand, |need| never(problem, demand, need))
        .or_else(|| no_place(state, index))
        .unwrap_or_else(|| {
            let mut rng = fastrand::Rng::with_seed(0);
            let cheapest = scratch.inserter.anywhere(state, index, &mut rng);
            let Some(above) = cheapest.map(|found| found.cost) else {
                return fabric::nowhere(problem, demand);
            };
            if above < 0 {
                let reason = format!(
                    "there is a place for it, with which the plan would cost {} less: the search ended before it was tried",
                    units(-above)
                );
                return (reason, vec!["more time, or more rounds".to_owned()]);
            }
            let reason = format!(
                "serving it costs at least {} more than leaving it, which costs {}",
                units(above),
                units(demand.unmet)
            );
            (reason, vec!["a higher weight".to_owned()])
        })
}

fn units(cost: i64) -> String {
    format!("{:.0}", cost as f64 / UNIT)
}

/// What no plan could serve.
fn never(problem: &Problem, demand: &Demand, need: &Need) -> Option<Why> {
    let (gpus, choices) = (need.gpus, problem.groups_for(need));
    let wanted = words::gpus(gpus);
    if let Some(kinds) = need.kinds.as_ref().filter(|_| choices.is_empty()) {
        let kinds: Vec<&str> = kinds.iter().map(|kind| problem.kinds[*kind].as_str()).collect();
        let reason = format!(
            "it may have GPUs of {}, and none of them has {} GB or more",
            kinds.join(" or "),
            need.memory_gb
        );
        return Some((reason, vec!["other types of GPU in its list".to_owned()]));
    }
    if problem.groups.is_empty() {
        let reason = format!("it wants {wanted}, and there are none at all");
        return Some((reason, vec![format!("GPUs of {} GB or more", need.memory_gb)]));
    }
    if choices.is_empty() {
        let most = problem
            .groups
            .iter()
            .map(|group| group.memory_gb)
            .fold(0.0, f64::max);
        let reason = format!(
            "it wants GPUs of {} GB or more, and the largest have {most} GB",
            need.memory_gb
        );
        return Some((
            reason,
            vec![format!(
                "GPUs of {} GB or more, or a demand that is satisfied with less",
                need.memory_gb
            )],
        ));
    }
    if let Some(quota) = demand.quota.map(|quota| &problem.quotas[quota])
        && u32::from(gpus) > quota.most
    {
        let (tenant, most) = (&quota.tenant, quota.most);
        let reason = format!("it wants {wanted}, and tenant {tenant} may use {most} at a time");
        return Some((reason, vec![format!("a limit of {wanted} for {tenant}")]));
    }
    let may = |host: &usize| demand.hosts.as_ref().is_none_or(|hosts| hosts.contains(host));
    let (which, hosts): (_, Vec<usize>) = match demand.hosts {
        Some(_) => (
            "the largest that it may run on",
            (0..problem.hosts.len()).filter(may).collect(),
        ),
        None => ("the largest host", (0..problem.hosts.len()).collect()),
    };
    let room = hosts
        .iter()
        .map(|host| problem.hosts[*host].room)
        .max()
        .unwrap_or(0);
    let large = |host: &&usize| problem.hosts[**host].room >= gpus;
    if room >= gpus
        && !(hosts.iter().filter(large)).any(|host| problem.may_run(demand, *host, &demand.window))
    {
        let slots = words::slots(&demand.window);
        let large = hosts.iter().filter(large).map(|host| &problem.hosts[*host]);
        let reason = format!(
            "every host that it may run on with room for {wanted} is closed at some time in {slots}{}",
            closings(large, &demand.window)
        );
        return Some((reason, vec!["one of them open for all of its window".to_owned()]));
    }
    if gpus > room {
        let reason = format!("it wants {wanted} on one host, and {which} has room for {room}");
        let smaller = match room {
            0 => String::new(),
            room => format!(", or a demand for {room} at most"),
        };
        return Some((reason, vec![format!("a host with room for {wanted}{smaller}")]));
    }
    let count = |choice: &&Vec<usize>| {
        choice
            .iter()
            .map(|group| u32::from(problem.groups[*group].count))
            .sum::<u32>()
    };
    let most = choices.iter().max_by_key(count)?;
    if count(&most) < u32::from(gpus) {
        let (kind, count) = (&problem.kinds[problem.groups[most[0]].kind], count(&most));
        let pinned: u32 = most
            .iter()
            .map(|group| u32::from(problem.groups[*group].pinned))
            .sum();
        let lacking = u32::from(gpus) - count;
        let mut help = vec![format!("{} of {kind}", words::more_gpus(lacking))];
        let beside = match pinned {
            0 => String::new(),
            pinned => {
                help.push(format!(
                    "{} of those that are pinned let go (pinned: false)",
                    lacking.min(pinned)
                ));
                format!(" beside {pinned} that are pinned")
            }
        };
        let reason = format!(
            "it wants {wanted} of one kind with {} GB, and of {kind} there are {count}{beside}",
            need.memory_gb
        );
        return Some((reason, help));
    }
    fabric::in_the_way(problem, (demand, need), None)
}

/// What the plan has no GPUs or no room for while the demand would run.
fn no_room(state: &State<'_>, index: usize, need: &Need) -> Option<Why> {
    let problem = state.problem;
    let demand = &problem.demands[index];
    let (gpus, choices) = (u32::from(need.gpus), problem.groups_for(need));
    let wanted = words::gpus(gpus);
    // How many are free of each kind all the time: a demand must get all its GPUs of one kind.
    let free = |choice: &Vec<usize>, window: Range<usize>| {
        choice
            .iter()
            .map(|group| u32::from(state.free_gpus(*group, window.clone())))
            .sum::<u32>()
    };
    let room = |window: Range<usize>| {
        (0..problem.hosts.len())
            .filter(|host| problem.may_run(demand, *host, &window) && state.is_apart(index, *host))
            .map(|host| state.free_room(host, window.clone()))
            .max()
    };
    let window = demand.window.clone();
    let (kind, most) = choices
        .iter()
        .map(|choice| {
            (
                &problem.kinds[problem.groups[choice[0]].kind],
                free(choice, window.clone()),
            )
        })
        .max_by_key(|(_, free)| *free)?;
    let most_room = room(window.clone()).unwrap_or(0);
    let span = words::slots(&window);
    let mut help = Vec::new();
    let left = state.within_limit(demand);
    if let Some(quota) = demand.quota.map(|quota| &problem.quotas[quota])
        && left < gpus
    {
        let tenant = &quota.tenant;
        let reason = format!("it wants {wanted}, and in {span} tenant {tenant} may use {left} more at most");
        return Some((
            reason,
            vec![format!(
                "{} in the limit of {tenant}",
                words::more_gpus(gpus - left)
            )],
        ));
    }
    let enough = choices
        .iter()
        .filter(|choice| free(choice, window.clone()) >= gpus);
    let beside = enough.map(|choice| (state.beside_guarantees(demand, choice), choice));
    if let Some((beside, choice)) = beside.max_by_key(|(beside, _)| *beside)
        && beside < gpus
    {
        return Some(guaranteed(state, (demand, gpus), choice));
    }
    let reason = if most < gpus {
        help.push(format!("{} of {kind} in {span}", words::more_gpus(gpus - most)));
        let throughout = match window.len() {
            1 => "",
            _ => " throughout",
        };
        let free = match most {
            0 => format!("none of {} is free", kinds(problem, &choices)),
            1 => format!("at most 1 of one kind ({kind}) is free"),
            most => format!("at most {most} of one kind ({kind}) are free"),
        };
        format!("it wants {wanted}, and in {span} {free}{throughout}")
    } else if u32::from(most_room) < gpus {
        help.push(format!(
            "room for {} at a host in {span}",
            words::more_gpus(gpus - u32::from(most_room))
        ));
        format!(
            "it wants {wanted} on one host, and in {span} no host has room for more than {most_room} more"
        )
    } else {
        return fabric::in_the_way(problem, (demand, need), Some(state));
    };
    let length = window.len();
    let fits = |start: &usize| {
        let window = *start..start + length;
        choices.iter().any(|choice| free(choice, window.clone()) >= gpus)
            && room(window).is_some_and(|room| u32::from(room) >= gpus)
    };
    let mut starts: Vec<usize> = (0..=problem.slots - length).collect();
    starts.sort_by_key(|start| start.abs_diff(window.start));
    if let Some(start) = starts.into_iter().find(fits) {
        help.push(format!(
            "a window that starts at slot {}, and not at {}",
            start + demand.lead,
            window.start + demand.lead
        ));
    }
    Some((reason, help))
}

/// The kinds of these choices, none of which is free.
fn kinds(problem: &Problem, choices: &[Vec<usize>]) -> String {
    let mut kinds: Vec<&str> = choices
        .iter()
        .map(|choice| problem.kinds[problem.groups[choice[0]].kind].as_str())
        .collect();
    kinds.dedup();
    kinds.join(" or ")
}

/// For whom GPUs of these groups are kept that a demand would need.
fn guaranteed(state: &State<'_>, (demand, gpus): (&Demand, u32), groups: &[usize]) -> Why {
    let quotas = &state.problem.quotas;
    let in_the_way = state.guarantees_in_the_way(demand, groups);
    let (left, kept) = in_the_way.map_or((0, Vec::new()), |found| (found.left, found.kept));
    let for_whom: Vec<String> = kept
        .iter()
        .map(|(quota, count)| format!("{count} for tenant {}", quotas[*quota].tenant))
        .collect();
    let reason = format!(
        "it needs {}, but in {} at most {left} are left beside the guarantees: {}",
        words::gpus(gpus),
        words::slots(&demand.window),
        for_whom.join(", ")
    );
    let who = match demand.tenant.as_str() {
        "" => "its tenant",
        tenant => tenant,
    };
    let more = gpus.saturating_sub(left);
    let help = vec![
        format!("a guarantee of more GPUs for {who}"),
        words::more_gpus(more),
    ];
    (reason, help)
}

/// Which of these hosts are closed when, within a window: the first of them.
fn closings<'p>(hosts: impl Iterator<Item = &'p Host>, window: &Range<usize>) -> String {
    const SHOWN: usize = 3;
    let told = hosts.filter_map(|host| {
        let meets = |closed: &&Range<usize>| window.start < closed.end && closed.start < window.end;
        let closed = host.closed.iter().find(meets)?;
        Some(format!("{} in {}", host.id, words::slots(closed)))
    });
    let mut told: Vec<String> = told.collect();
    if told.len() > SHOWN {
        let more = told.len() - SHOWN;
        told.truncate(SHOWN);
        told.push(format!("and {more} more"));
    }
    match told.is_empty() {
        true => String::new(),
        false => format!(": {}", told.join(", ")),
    }
}
