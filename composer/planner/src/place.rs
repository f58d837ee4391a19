//! Who gets what: finds GPUs and hosts for one need in what is free.
//!
//! The rules, the first that makes a difference decides:
//! 1. One host before several: all alternatives of the need are tried on one host, in their rank order;
//!    only then, where the need may span hosts, spread over several. Of an elastic need each alternative is spread before
//!    the next one is tried.
//! 2. Where the need names no kind: the kind with the smallest memory that suffices, so that large GPUs are
//!    left for those who need them.
//! 3. Fewest hosts.
//! 4. Fewest switches that the GPUs hang on, then fewest switch-to-switch cables to the host.
//! 5. A host that says that it is on.
//! 6. Tightest fit on the host: the fewest slots left over, so that used hosts fill up and empty ones stay
//!    whole for big needs.
//! 7. Tightest fit on the switch: the fewest GPUs of the kind left over, for the same reason.
//! 8. The smallest ids.
//!
//! Units that need nothing done come before dirty ones, and those before units that this plan releases.

use crate::fill::{Cost, Fit, fill};
use crate::room::{Room, Taken};
use poolwright_sizing::need::{GpuSet, Need};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};

/// What one host is given.
#[derive(Debug)]
pub(crate) struct Part {
    pub host: usize,
    pub taken: Vec<Taken>,
}

/// Sets of GPUs of which one is enough, with what suits each.
#[derive(Debug, Clone)]
pub(crate) struct Choices {
    pub sets: Vec<Choice>,
    pub spannable: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Choice {
    pub set: GpuSet,
    /// The shelves that suit it: one list a kind, in the order in which kinds are tried.
    pub kinds: Vec<Vec<usize>>,
}

impl Choices {
    /// The alternatives of a need, which are tried together; those of an elastic need one after the other.
    pub fn in_turn(room: &Room, need: &Need) -> impl Iterator<Item = Self> {
        let together = match need.elastic {
            true => 1,
            false => need.alternatives.len().max(1),
        };
        let sets = need.alternatives.chunks(together);
        sets.map(|sets| Self::of(room, sets, need.spannable))
    }

    fn of(room: &Room, sets: &[GpuSet], spannable: bool) -> Self {
        let choice = |set: &GpuSet| Choice {
            kinds: shelves_for(room, set),
            set: set.clone(),
        };
        Self {
            sets: sets.iter().map(choice).collect(),
            spannable,
        }
    }
}

/// Takes what a need asks for; `None`, and nothing taken, where that is not possible.
pub(crate) fn serve(room: &mut Room, need: &Need) -> Option<Vec<Part>> {
    let choices: Vec<Choices> = Choices::in_turn(room, need).collect();
    choices.iter().find_map(|choices| serve_chosen(room, choices))
}

/// Takes GPUs and slots for one of the choices; `None`, and nothing taken, if there is no room.
pub(crate) fn serve_chosen(room: &mut Room, choices: &Choices) -> Option<Vec<Part>> {
    for Choice { set, kinds } in &choices.sets {
        for shelves in kinds {
            if let Some(part) = on_one_host(room, shelves, set.count) {
                return Some(vec![part]);
            }
        }
    }
    for Choice { set, kinds } in choices.sets.iter().filter(|_| choices.spannable) {
        for shelves in kinds {
            if let Some(parts) = over_hosts(room, shelves, set) {
                return Some(parts);
            }
        }
    }
    None
}

/// Takes more GPUs for a host that has some already.
pub(crate) fn more_on(room: &mut Room, host: usize, shelves: &[usize], gpus: u32) -> Option<Vec<Taken>> {
    let fit = fill(room, host, shelves, gpus);
    (fit.gpus >= gpus).then(|| room.take(host, &fit.picks))
}

/// The shelves that suit a set: one list a kind, in the order in which kinds are tried.
pub(crate) fn shelves_for(room: &Room, set: &GpuSet) -> Vec<Vec<usize>> {
    let mut kinds: Vec<(_, &String, Vec<usize>)> = Vec::new();
    for (kind, shelves) in room.kinds() {
        let enough = |shelf: &&usize| set.admits(Some(kind), room.shelf(**shelf).memory);
        let shelves: Vec<usize> = shelves.iter().filter(enough).copied().collect();
        if let Some(smallest) = shelves.iter().map(|shelf| room.shelf(*shelf).memory).min() {
            kinds.push((smallest, kind, shelves));
        }
    }
    kinds.sort();
    kinds.into_iter().map(|(_, _, shelves)| shelves).collect()
}

/// Takes so many GPUs for the host that they suit best.
fn on_one_host(room: &mut Room, shelves: &[usize], gpus: u32) -> Option<Part> {
    if gpus_left(room, shelves) < gpus {
        return None;
    }
    let one = Portion {
        most: gpus,
        least: gpus,
        group: 1,
    };
    let (_, best) = best_host(room, shelves, one, &BTreeSet::new())?;
    Some(Part {
        host: best.host,
        taken: room.take(best.host, &best.picks),
    })
}

/// Takes a set for several hosts, whole groups on each: the host that takes most first.
pub(crate) fn over_hosts(room: &mut Room, shelves: &[usize], set: &GpuSet) -> Option<Vec<Part>> {
    if gpus_left(room, shelves) < set.count {
        return None;
    }
    let (mut parts, missing) = as_many_as_possible(room, shelves, set, BTreeSet::new());
    if missing == 0 {
        put_back_superfluous(room, &mut parts, set);
        return Some(parts);
    }
    parts.iter().for_each(|part| room.put_back(&part.taken));
    None
}

/// Where units hold several GPUs, a later part may have made units of an earlier one needless.
fn put_back_superfluous(room: &mut Room, parts: &mut Vec<Part>, set: &GpuSet) {
    let group = set.group.max(1);
    let whole = |gpus: u32| gpus / group * group;
    let mut all: u32 = parts.iter().map(|part| whole(room.gpus_of(&part.taken))).sum();
    for part in parts.iter_mut() {
        let mut here = room.gpus_of(&part.taken);
        part.taken.retain(|taken| {
            let less = here - room.shelf(taken.shelf).size;
            let needed = all - whole(here) + whole(less) < set.count;
            if !needed {
                all -= whole(here) - whole(less);
                here = less;
                room.put_back(std::slice::from_ref(taken));
            }
            needed
        });
    }
    parts.retain(|part| !part.taken.is_empty());
}

/// Takes as many GPUs of a set as can be had over several hosts but these, and says how many are missing.
pub(crate) fn as_many_as_possible(
    room: &mut Room,
    shelves: &[usize],
    set: &GpuSet,
    but: BTreeSet<usize>,
) -> (Vec<Part>, u32) {
    let mut missing = set.count;
    let (mut parts, mut used) = (Vec::new(), but);
    while missing > 0 {
        let portion = Portion {
            most: missing,
            least: 1,
            group: set.group.max(1),
        };
        let Some((gpus, fit)) = best_host(room, shelves, portion, &used) else {
            break;
        };
        used.insert(fit.host);
        missing -= gpus.min(missing);
        parts.push(Part {
            host: fit.host,
            taken: room.take(fit.host, &fit.picks),
        });
    }
    (parts, missing)
}

/// How many GPUs are looked for on a host, in whole groups.
#[derive(Clone, Copy)]
struct Portion {
    most: u32,
    least: u32,
    group: u32,
}

impl Portion {
    fn whole(self, gpus: u32) -> u32 {
        gpus / self.group * self.group
    }
}

/// The host that can have most of a portion, and of equals the one that costs least; with how many it can have.
fn best_host(room: &Room, shelves: &[usize], portion: Portion, but: &BTreeSet<usize>) -> Option<(u32, Fit)> {
    let stocked = shelves
        .iter()
        .copied()
        .filter(|shelf| room.units_left(*shelf) > 0);
    let stocked: Vec<usize> = stocked.collect();
    let largest = stocked.iter().map(|shelf| room.shelf(*shelf).size).max()?;
    let rank = |gpus: u32, cost: Cost| (Reverse(gpus), cost);
    let mut best: Option<(u32, Fit)> = None;
    let mut tried = HashSet::new();
    for host in (0..room.hosts()).filter(|host| !but.contains(host)) {
        let free = u32::try_from(room.free(host)).unwrap_or(u32::MAX);
        let most = portion.whole(portion.most.min(free));
        if most < portion.least {
            continue;
        }
        // Most hosts are told apart by a look at what they could be given at best.
        let Some(bound) = Cost::at_least(room, host, (&stocked, largest), most) else {
            continue;
        };
        if best
            .as_ref()
            .is_some_and(|(gpus, fit)| rank(*gpus, fit.cost) <= rank(most, bound))
            || !tried.insert(room.sort_of(host))
        {
            continue;
        }
        let (gpus, fit) = fill_groups(room, host, &stocked, portion, most);
        let better = best
            .as_ref()
            .is_none_or(|(g, f)| rank(gpus, fit.cost) < rank(*g, f.cost));
        if gpus >= portion.least && better {
            best = Some((gpus, fit));
        }
    }
    best
}

/// How many GPUs in whole groups a host can take, and how.
fn fill_groups(room: &Room, host: usize, shelves: &[usize], portion: Portion, most: u32) -> (u32, Fit) {
    let fit = fill(room, host, shelves, most);
    let count = portion.whole(fit.gpus).min(portion.most);
    if fit.gpus <= count {
        return (count, fit);
    }
    // More than whole groups, be it that the last group has no room or that units are large.
    let fit = fill(room, host, shelves, count);
    (portion.whole(fit.gpus).min(count), fit)
}

pub(crate) fn gpus_left(room: &Room, shelves: &[usize]) -> u32 {
    let left = shelves.iter().map(|shelf| room.gpus_left(*shelf));
    left.fold(0, u32::saturating_add)
}
