//! Why a bundle is not served, or not all of its parts: what of it is in the way is said of the first part that finds no
//! place beside the others.

use super::super::bundle::{Bundle, Phase};
use super::super::problem::Problem;
use super::super::state::State;
use super::ending::Scratch;
use super::{Unserved, Why, units, why, words};
use fastrand::Rng;

/// What is to be said of a bundle; `None` where all of it is served.
pub(super) fn of_bundle(state: &mut State<'_>, bundle: &Bundle, scratch: &mut Scratch) -> Option<Unserved> {
    let problem = state.problem;
    let served = |part: &usize| state.placement(*part).is_some();
    let missing = bundle.demands().find(|part| !served(part))?;
    let partly = bundle.demands().any(|part| served(&part));
    let (reason, help) = match partly {
        true => of_missing(state, bundle, missing, scratch),
        false => (bundle.phases.iter().enumerate())
            .find_map(|(place, phase)| {
                let (reason, help) = short_of(problem, phase)?;
                Some((format!("{}{reason}", named(bundle, place)), help))
            })
            .unwrap_or_else(|| tried(state, bundle, scratch)),
    };
    Some(Unserved {
        demand: problem.demands[missing].id.clone(),
        partly,
        reason,
        help,
    })
}

/// Of a phase, where there are several.
fn named(bundle: &Bundle, place: usize) -> String {
    match bundle.phases.len() {
        1 => String::new(),
        _ => format!("phase {}: ", place + 1),
    }
}

/// What no plan has for the fewest parts of a phase.
fn short_of(problem: &Problem, phase: &Phase) -> Option<Why> {
    let demand = &problem.demands[phase.parts.start];
    let (least, gpus) = (phase.least, demand.fewest());
    let hosts = (0..problem.hosts.len()).filter(|host| problem.may_run(demand, *host, &demand.window));
    let take = |host: usize| usize::from(problem.hosts[host].room / gpus.max(1));
    let places: usize = match phase.apart {
        true => hosts.filter(|host| take(*host) > 0).count(),
        false => hosts.map(take).sum(),
    };
    if places < least && least > 1 {
        let (whose, help) = match phase.apart {
            true => (
                " on a host of its own",
                "several parts on one host (same_host_ok)",
            ),
            false => ("", "narrower parts"),
        };
        let reason = format!(
            "it wants {least} parts of {} or more, each{whose}, and hosts have room for {places} in its window",
            words::gpus(gpus)
        );
        let more = format!("room for {} more of them", least - places);
        return Some((reason, vec![more, help.to_owned()]));
    }
    let of_kind = |kind: usize| {
        let choices = demand.choices.iter();
        let choices = choices.filter(|choice| problem.groups[choice.groups[0]].kind == kind);
        let parts = |count: u32, gpus: u16| (count / u32::from(gpus.max(1))) as usize;
        let count = |groups: &[usize]| {
            groups
                .iter()
                .map(|group| u32::from(problem.groups[*group].count))
                .sum()
        };
        choices
            .map(|choice| parts(count(&choice.groups), choice.gpus))
            .max()
            .unwrap_or(0)
    };
    let enough: usize = (0..problem.kinds.len()).map(of_kind).sum();
    if enough < least && enough > 0 {
        let reason = format!("it wants {least} parts, and there are GPUs for {enough} of them");
        return Some((reason, vec![format!("GPUs for {} more", least - enough)]));
    }
    None
}

/// Why parts are missing of what runs.
fn of_missing(state: &mut State<'_>, bundle: &Bundle, missing: usize, scratch: &mut Scratch) -> Why {
    let phase = bundle
        .phases
        .iter()
        .position(|phase| phase.parts.contains(&missing))
        .unwrap_or(0);
    let parts = &bundle.phases[phase].parts;
    let unserved = parts
        .clone()
        .filter(|part| state.placement(*part).is_none())
        .count();
    let problem = state.problem;
    let (reason, help) = why(state, missing, scratch);
    if problem.demands[missing].runs.is_some() {
        let from = problem.demands[missing].window.start;
        return (format!("it runs and is ended before slot {from}: {reason}"), help);
    }
    let reason = format!(
        "{}{unserved} of its {} parts are not served, and of the next of them: {reason}",
        named(bundle, phase),
        parts.len()
    );
    (reason, of_phases(bundle, help))
}

/// Places the fewest parts as long as there is a place for them, and says what is in the way of the first that has none.
fn tried(state: &mut State<'_>, bundle: &Bundle, scratch: &mut Scratch) -> Why {
    let mut placed = Vec::new();
    let (mut cost, mut reason) = (0, None);
    'phases: for (place, phase) in bundle.phases.iter().enumerate() {
        for part in phase.parts.clone().take(phase.least) {
            let hosts = 0..state.problem.hosts.len();
            let found =
                hosts.filter_map(|host| scratch.inserter.at(state, part, host, &mut Rng::with_seed(0)));
            let Some(found) = found.min_by_key(|found| found.cost) else {
                let (said, help) = why(state, part, scratch);
                let beside = match part - phase.parts.start {
                    0 => String::new(),
                    others => format!(
                        "beside {others} of its {} parts there is no place for the next: ",
                        phase.least
                    ),
                };
                reason = Some((
                    format!("{}{beside}{said}", named(bundle, place)),
                    of_phases(bundle, help),
                ));
                break 'phases;
            };
            cost += found.cost;
            state.place(part, found.placement);
            placed.push(part);
        }
    }
    for part in placed {
        state.remove(part);
    }
    reason.unwrap_or_else(|| {
        let unmet: i64 = bundle
            .demands()
            .map(|part| state.problem.demands[part].unmet)
            .sum();
        let reason = format!(
            "serving it costs at least {} more than leaving it, which costs {}",
            units(cost.max(0)),
            units(unmet)
        );
        (reason, vec!["a higher weight".to_owned()])
    })
}

/// What would help where phases follow each other: not another window for one of them.
fn of_phases(bundle: &Bundle, mut help: Vec<String>) -> Vec<String> {
    if bundle.phases.len() > 1 {
        help.retain(|help| !help.starts_with("a window"));
        if help.is_empty() {
            help.push("an earlier or a later start".to_owned());
        }
    }
    help
}
