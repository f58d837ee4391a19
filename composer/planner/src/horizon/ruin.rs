//! What is taken away so that it can be placed better: demands that have something to do with each other.

use super::problem::Problem;
use super::state::State;
use fastrand::Rng;
use std::collections::BTreeSet;

/// Most demands that are taken away at once; fewer where there are many, of which most have nothing to do with another.
const MOST: usize = 24;
const MOST_OF_MANY: usize = 10;
const MANY: usize = 300;
/// Demands that are looked through for what has to do with another, at most.
const SCANNED: usize = 1000;

/// Says what is to be taken away. Where room is made for one that is not served, that one is named first.
pub(super) fn choose(state: &State<'_>, unserved: &[usize], rng: &mut Rng) -> Vec<usize> {
    let mut chosen = choose_some(state, unserved, rng);
    // Of a bundle all, now and then: what is left of it keeps the rest where it is.
    if !state.problem.bundles.is_empty() {
        for place in 0..chosen.len() {
            if let Some(share) = state.problem.demands[chosen[place]].share
                && rng.bool()
            {
                chosen.extend(state.problem.bundles[share.bundle].demands());
            }
        }
        let mut known = BTreeSet::new();
        chosen.retain(|demand| known.insert(*demand));
    }
    chosen
}

fn choose_some(state: &State<'_>, unserved: &[usize], rng: &mut Rng) -> Vec<usize> {
    let problem = state.problem;
    let count = problem.demands.len();
    if !unserved.is_empty() && rng.u8(..4) == 0 {
        return room_for(state, unserved[rng.usize(..unserved.len())], rng);
    }
    let seed = rng.usize(..count);
    if rng.u8(..6) == 0 {
        return served(state, of_kind_at_hosts(state, seed, rng));
    }
    let most = if count > MANY { MOST_OF_MANY } else { MOST };
    let most = most.min(count.div_ceil(2)).max(1);
    // A few are tried quickly and most often enough; one time in five it is more than half as many as may be.
    let share = rng.f64();
    let most = 1 + if count > MANY {
        rng.usize(..most)
    } else {
        (share * share * share * most as f64) as usize
    };
    let mut chosen: Vec<usize> = match rng.u8(..10) {
        0 => (0..most).map(|_| rng.usize(..count)).collect(),
        1..=3 => in_window(problem, seed, rng).collect(),
        4..=6 => at_hosts(state, seed, rng),
        7 => of_tenant(problem, seed, rng).collect(),
        _ => of_kind(state, seed, rng),
    };
    rng.shuffle(&mut chosen);
    chosen.truncate(most);
    chosen.push(seed);
    served(state, chosen)
}

fn served(state: &State<'_>, mut chosen: Vec<usize>) -> Vec<usize> {
    chosen.retain(|demand| state.placement(*demand).is_some());
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

/// All demands, or some in a row where there are very many.
fn some(problem: &Problem, rng: &mut Rng) -> impl Iterator<Item = usize> + use<> {
    let count = problem.demands.len();
    let first = if count > SCANNED { rng.usize(..count) } else { 0 };
    (0..count.min(SCANNED)).map(move |index| (first + index) % count)
}

fn overlap(problem: &Problem, one: usize, other: usize) -> bool {
    let (one, other) = (&problem.demands[one].window, &problem.demands[other].window);
    one.start < other.end && other.start < one.end
}

/// Those that run in a slot near one.
fn in_window<'p>(problem: &'p Problem, seed: usize, rng: &mut Rng) -> impl Iterator<Item = usize> + 'p {
    let window = &problem.demands[seed].window;
    let slot = rng.usize(window.clone());
    let reach = rng.usize(..=problem.slots / 8);
    let (from, to) = (slot.saturating_sub(reach), slot + reach);
    some(problem, rng).filter(move |demand| {
        let window = &problem.demands[*demand].window;
        window.start <= to && from < window.end
    })
}

/// Those at the host of one, and at another, all of them or only what overlaps with it.
fn at_hosts(state: &State<'_>, seed: usize, rng: &mut Rng) -> Vec<usize> {
    let problem = state.problem;
    let host = state
        .placement(seed)
        .map_or_else(|| rng.usize(..problem.hosts.len()), |placed| placed.host);
    let other = rng.usize(..problem.hosts.len());
    let (two, near) = (rng.bool() && other != host, rng.bool());
    let there = if two { state.guests(other) } else { &[] };
    let guests = state.guests(host).iter().chain(there).copied();
    guests
        .filter(|demand| !near || overlap(problem, seed, *demand))
        .collect()
}

fn of_tenant<'p>(problem: &'p Problem, seed: usize, rng: &mut Rng) -> impl Iterator<Item = usize> + 'p {
    let tenant = &problem.demands[seed].tenant;
    some(problem, rng).filter(move |demand| problem.demands[*demand].tenant == *tenant)
}

/// The kind of GPU that a placed demand uses.
fn kind(state: &State<'_>, demand: usize) -> Option<usize> {
    let (group, _) = *state.placement(demand)?.parts.first()?;
    Some(state.problem.groups[group].kind)
}

/// Those that overlap with one and use a kind that it may have.
fn of_kind(state: &State<'_>, seed: usize, rng: &mut Rng) -> Vec<usize> {
    let problem = state.problem;
    let choices = problem.demands[seed].choices.iter();
    let may_have: Vec<usize> = choices
        .map(|choice| problem.groups[choice.groups[0]].kind)
        .collect();
    some(problem, rng)
        .filter(|demand| overlap(problem, seed, *demand))
        .filter(|demand| kind(state, *demand).is_some_and(|kind| may_have.contains(&kind)))
        .collect()
}

/// Those that use GPUs of the same kind at the same host, or at another: what they share stays attached as long as one
/// of them is left.
fn of_kind_at_hosts(state: &State<'_>, seed: usize, rng: &mut Rng) -> Vec<usize> {
    let problem = state.problem;
    let Some(placed) = state.placement(seed) else {
        return Vec::new();
    };
    let (host, of) = (placed.host, kind(state, seed));
    let other = if rng.bool() {
        rng.usize(..problem.hosts.len())
    } else {
        host
    };
    let there = if other == host { &[] } else { state.guests(other) };
    let guests = state.guests(host).iter().chain(there).copied();
    let mut chosen: Vec<usize> = guests.filter(|demand| kind(state, *demand) == of).collect();
    rng.shuffle(&mut chosen);
    chosen.truncate(2 * MOST);
    chosen
}

/// Those that stand in the way of one until it would fit, and of what must be served with it.
fn room_for(state: &State<'_>, demand: usize, rng: &mut Rng) -> Vec<usize> {
    let problem = state.problem;
    let mut chosen = vec![demand];
    let Some(share) = problem.demands[demand].share else {
        in_the_way(state, demand, 1, &mut chosen, rng);
        return chosen;
    };
    for (place, phase) in problem.bundles[share.bundle].phases.iter().enumerate() {
        let served = |part: &usize| state.placement(*part).is_some();
        let there = phase.parts.clone().filter(served).count();
        // One more than there is, where that is enough.
        let missing = phase
            .least
            .saturating_sub(there)
            .max(usize::from(place == share.phase));
        if missing > 0 && there < phase.parts.len() {
            in_the_way(state, phase.parts.start, missing, &mut chosen, rng);
        }
    }
    chosen
}

/// Those that stand in the way of so many like one: at as many hosts, and of a kind.
fn in_the_way(state: &State<'_>, demand: usize, times: usize, chosen: &mut Vec<usize>, rng: &mut Rng) {
    let problem = state.problem;
    let wanted = &problem.demands[demand];
    if wanted.choices.is_empty() {
        return;
    }
    let choice = &wanted.choices[rng.usize(..wanted.choices.len())];
    let of_one = i64::from(choice.gpus);
    let wants = of_one * times as i64;
    let mut rooms: Vec<(usize, i64)> = Vec::new();
    for _ in 0..times {
        let host = match &wanted.hosts {
            Some(hosts) => hosts[rng.usize(..hosts.len())],
            None => rng.usize(..problem.hosts.len()),
        };
        match rooms.iter_mut().find(|(known, _)| *known == host) {
            Some((_, room)) => *room += of_one,
            None => rooms.push((
                host,
                of_one - i64::from(state.free_room(host, wanted.window.clone())),
            )),
        }
    }
    let free: u32 = choice
        .groups
        .iter()
        .map(|group| u32::from(state.free_gpus(*group, wanted.window.clone())))
        .sum();
    let mut gpus = wants - i64::from(free);
    let mut quota = wants - i64::from(state.free_quota(wanted, &choice.groups));
    // What others are guaranteed is in the way: anybody may make room.
    let guarded = i64::from(state.beside_guarantees(wanted, &choice.groups)) < wants;
    let mut others: Vec<usize> = some(problem, rng)
        .filter(|other| overlap(problem, demand, *other))
        .collect();
    rng.shuffle(&mut others);
    for other in others {
        let Some(placed) = state.placement(other) else {
            continue;
        };
        let of_choice: u16 = placed
            .parts
            .iter()
            .filter(|(group, _)| choice.groups.contains(group))
            .map(|(_, count)| count)
            .sum();
        let room = rooms.iter_mut().find(|(host, _)| *host == placed.host);
        let room = room.filter(|(_, room)| *room > 0);
        let of_quota = match problem.demands[other].quota {
            _ if guarded => i64::from(placed.gpus()),
            Some(other_quota) if wanted.quota == Some(other_quota) => i64::from(placed.gpus()),
            _ => 0,
        };
        // What runs elsewhere on other GPUs for other tenants is in nobody's way.
        if (gpus > 0 && of_choice > 0) || room.is_some() || (quota > 0 && of_quota > 0) {
            quota -= of_quota;
            gpus -= i64::from(of_choice);
            if let Some((_, room)) = room {
                *room -= i64::from(placed.gpus());
            }
            chosen.push(other);
        }
        let enough = gpus <= 0 && quota <= 0 && rooms.iter().all(|(_, room)| *room <= 0);
        if enough || chosen.len() > MOST {
            break;
        }
    }
}
