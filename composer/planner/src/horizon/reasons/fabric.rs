//! What of the fabric is in a demand's way, though there are GPUs and room: at the host and with the kind that come
//! nearest, the first limit that is too small.

use super::words;
use crate::horizon::problem::{Demand, Need, Problem};
use crate::horizon::state::State;

/// A limit, in the order in which they are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Limit {
    Reach,
    OneSwitch,
    Window,
    Uplink,
}

/// A limit that is too small: where, for which kind, and for how many GPUs it is enough.
#[derive(Debug, Clone, Copy)]
struct Hurdle {
    limit: Limit,
    most: u32,
    host: usize,
    kind: usize,
}

/// What no plan gets past; with a state, what this plan leaves nothing for. `None`: nothing of the fabric is in the way.
pub(super) fn in_the_way(
    problem: &Problem,
    (demand, need): (&Demand, &Need),
    state: Option<&State<'_>>,
) -> Option<(String, Vec<String>)> {
    let gpus = need.gpus;
    let has_room = |host: &usize| {
        let room = match state {
            Some(state) => state.free_room(*host, demand.window.clone()),
            None => problem.hosts[*host].room,
        };
        room >= gpus && problem.may_run(demand, *host, &demand.window)
    };
    let mut nearest: Option<Hurdle> = None;
    for host in (0..problem.hosts.len()).filter(has_room) {
        for choice in &problem.groups_for(need) {
            let hurdle = hurdle(problem, (demand, need), state, host, choice)?;
            if nearest.is_none_or(|nearest| (nearest.limit, nearest.most) < (hurdle.limit, hurdle.most)) {
                nearest = Some(hurdle);
            }
        }
    }
    nearest.map(|hurdle| told(problem, (demand, need), state, hurdle))
}

/// There are GPUs and there is room, and at no host are they together for as long as they stay attached.
pub(super) fn nowhere(problem: &Problem, demand: &Demand) -> (String, Vec<String>) {
    let slots = words::slots(&demand.window);
    let why = if problem.holds() {
        ", where what is attached stays for its hold"
    } else {
        ""
    };
    let reason = format!("in {slots} no host has room and reaches free GPUs for it at once{why}");
    let mut help = vec!["more room, or more GPUs within reach, at a host that it may run on".to_owned()];
    help.extend(problem.holds().then(|| "a shorter hold".to_owned()));
    (reason, help)
}

/// The first limit at a host that is too small for a demand on GPUs of one kind.
fn hurdle(
    problem: &Problem,
    (demand, need): (&Demand, &Need),
    state: Option<&State<'_>>,
    host: usize,
    choice: &[usize],
) -> Option<Hurdle> {
    let free = |group: &usize| {
        u32::from(match state {
            Some(state) => state.free_gpus(*group, demand.window.clone()),
            None => problem.groups[*group].count,
        })
    };
    let uplink = |switch: usize| match state {
        Some(state) => (state.carried()).free_uplink(problem, switch, &demand.window),
        None => problem.fabric.uplink(switch),
    };
    let window = match state {
        Some(state) => state.carried().free_bar(problem, host, &demand.window),
        None => problem.hosts[host].bar.unwrap_or(u64::MAX),
    };
    let reached: Vec<&usize> = choice
        .iter()
        .filter(|group| problem.reaches(host, **group))
        .collect();
    let all: u32 = reached.iter().map(|group| free(group)).sum();
    let largest = reached.iter().map(|group| free(group)).max().unwrap_or(0);
    let smallest = reached
        .iter()
        .map(|group| problem.groups[**group].bar)
        .min()
        .unwrap_or(0);
    let mapped = window
        .checked_div(smallest)
        .unwrap_or(u64::MAX)
        .min(u64::from(u32::MAX)) as u32;
    let is_far = |group: &&&usize| problem.is_far(host, ***group);
    let near: u32 = reached
        .iter()
        .filter(|group| !is_far(group))
        .map(|group| free(group))
        .sum();
    let carried = |group: &&usize| free(group).min(uplink(problem.groups[**group].switch));
    let far: u32 = reached.iter().filter(is_far).map(carried).sum();
    let one_switch = if demand.one_switch { largest } else { u32::MAX };
    let limits = [
        (Limit::Reach, all),
        (Limit::OneSwitch, one_switch),
        (Limit::Window, mapped),
        (
            Limit::Uplink,
            near.saturating_add(far.min(uplink(problem.hosts[host].switch))),
        ),
    ];
    let kind = problem.groups[*choice.first()?].kind;
    let too_small = limits.into_iter().find(|(_, most)| *most < u32::from(need.gpus));
    too_small.map(|(limit, most)| Hurdle {
        limit,
        most,
        host,
        kind,
    })
}

fn told(
    problem: &Problem,
    (demand, need): (&Demand, &Need),
    state: Option<&State<'_>>,
    hurdle: Hurdle,
) -> (String, Vec<String>) {
    let Hurdle {
        limit,
        most,
        host,
        kind,
    } = hurdle;
    let (gpus, lacking) = (
        u32::from(need.gpus),
        words::more_gpus(u32::from(need.gpus) - most),
    );
    let bars = bars(problem, (demand, need), state, &hurdle);
    let (host, kind) = (&problem.hosts[host], &problem.kinds[kind]);
    let id = &host.id;
    let free = if state.is_some() {
        format!(" that are free in {}", words::slots(&demand.window))
    } else {
        String::new()
    };
    let wants = format!("it wants {} of one kind on one host", words::gpus(gpus));
    match limit {
        Limit::Reach => (
            format!("{wants}, and no host reaches more than {most}{free} ({id}, of {kind})"),
            vec![
                format!("{lacking} of {kind} behind a switch that {id} reaches"),
                format!("a switch with GPUs of {kind} in the reach of {id}"),
            ],
        ),
        Limit::OneSwitch => (
            format!(
                "{wants} and behind one switch, and behind none are more than {most}{free} ({kind} for {id})"
            ),
            vec![
                format!("{lacking} of {kind} behind one switch"),
                "GPUs that may be behind several switches (one_switch: false)".to_owned(),
            ],
        ),
        Limit::Window => (
            format!(
                "{wants}, and no host maps BARs of more than {most}{free} ({id}, of {kind}): those of a GPU are {} \
GiB, and the window of {id} has {} GiB{}",
                gib(bars.of_a_gpu),
                gib(bars.window),
                match bars.taken {
                    0 => String::new(),
                    taken => format!(", of which others take {}", gib(taken)),
                }
            ),
            vec![format!(
                "a window for BARs of {} GiB at {id} (bar_gib)",
                gib(bars.taken + u64::from(gpus) * bars.of_a_gpu)
            )],
        ),
        Limit::Uplink => (
            format!("{wants}, and uplinks carry no more than {most}{free} to a host ({id}, of {kind})"),
            vec![
                format!("{lacking} in the uplink of {}", problem.switches[host.switch]),
                format!("{lacking} of {kind} behind {}", problem.switches[host.switch]),
            ],
        ),
    }
}

/// What the window of a host must hold, in MiB.
struct Bars {
    of_a_gpu: u64,
    window: u64,
    /// By what runs there meanwhile.
    taken: u64,
}

fn bars(
    problem: &Problem,
    (demand, need): (&Demand, &Need),
    state: Option<&State<'_>>,
    hurdle: &Hurdle,
) -> Bars {
    let groups = problem.groups_for(need);
    let reached = groups
        .iter()
        .flatten()
        .filter(|group| problem.groups[**group].kind == hurdle.kind && problem.reaches(hurdle.host, **group));
    let window = problem.hosts[hurdle.host].bar.unwrap_or(0);
    let free = state.map_or(window, |state| {
        state.carried().free_bar(problem, hurdle.host, &demand.window)
    });
    Bars {
        of_a_gpu: reached.map(|group| problem.groups[*group].bar).min().unwrap_or(0),
        window,
        taken: window.saturating_sub(free),
    }
}

fn gib(mib: u64) -> f64 {
    mib as f64 / 1024.0
}
