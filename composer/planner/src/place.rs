//! Who gets what: finds GPUs and hosts for one need in what is free.
//!
//! The rules, the first that makes a difference decides:
//! 1. One host before several: all alternatives of the need are tried on one host, in their rank order;
//!    only then, where the need may span hosts, spread over several.
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

use crate::capacity::{Capacity, Pick, Taken};
use poolwright_sizing::need::{GpuSet, Need};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// What one host is given.
#[derive(Debug)]
pub(crate) struct Part {
    pub host: usize,
    pub taken: Vec<Taken>,
}

/// Takes what a need asks for; `None`, and nothing taken, where that is not possible.
pub(crate) fn serve(capacity: &mut Capacity<'_>, need: &Need) -> Option<Vec<Part>> {
    for set in &need.alternatives {
        for shelves in shelves_for(capacity, set) {
            if let Some(part) = on_one_host(capacity, &shelves, set.count) {
                return Some(vec![part]);
            }
        }
    }
    let spread = need.alternatives.iter().filter(|_| need.spannable);
    for set in spread {
        for shelves in shelves_for(capacity, set) {
            if let Some(parts) = over_hosts(capacity, &shelves, set) {
                return Some(parts);
            }
        }
    }
    None
}

/// Takes more GPUs for a host that has some already.
pub(crate) fn more_on(
    capacity: &mut Capacity<'_>,
    host: usize,
    shelves: &[usize],
    gpus: u32,
) -> Option<Vec<Taken>> {
    let fit = fill(capacity, host, shelves, gpus);
    (fit.gpus >= gpus).then(|| capacity.take(host, &fit.picks))
}

/// The shelves that suit a set: one list a kind, in the order in which kinds are tried.
pub(crate) fn shelves_for(capacity: &Capacity<'_>, set: &GpuSet) -> Vec<Vec<usize>> {
    let mut kinds: Vec<(_, &String, Vec<usize>)> = Vec::new();
    for (kind, shelves) in &capacity.kinds {
        let enough = |shelf: &&usize| set.admits(Some(kind), capacity.shelves[**shelf].memory);
        let shelves: Vec<usize> = shelves.iter().filter(enough).copied().collect();
        if let Some(smallest) = shelves.iter().map(|shelf| capacity.shelves[*shelf].memory).min() {
            kinds.push((smallest, kind, shelves));
        }
    }
    kinds.sort();
    kinds.into_iter().map(|(_, _, shelves)| shelves).collect()
}

/// Takes so many GPUs for the host that they suit best.
fn on_one_host(capacity: &mut Capacity<'_>, shelves: &[usize], gpus: u32) -> Option<Part> {
    if gpus_left(capacity, shelves) < gpus {
        return None;
    }
    let none = BTreeSet::new();
    let hosts = capacity.sorts_of_hosts(&none);
    let roomy = hosts.filter(|host| capacity.hosts[*host].free() >= i64::from(gpus));
    let fits = roomy.map(|host| fill(capacity, host, shelves, gpus));
    let best = fits.filter(|fit| fit.gpus >= gpus).min_by_key(|fit| fit.cost)?;
    Some(Part {
        host: best.host,
        taken: capacity.take(best.host, &best.picks),
    })
}

/// Takes a set for several hosts, whole groups on each: the host that takes most first.
pub(crate) fn over_hosts(capacity: &mut Capacity<'_>, shelves: &[usize], set: &GpuSet) -> Option<Vec<Part>> {
    if gpus_left(capacity, shelves) < set.count {
        return None;
    }
    let (parts, missing) = as_many_as_possible(capacity, shelves, set);
    if missing == 0 {
        return Some(parts);
    }
    parts.iter().for_each(|part| capacity.put_back(&part.taken));
    None
}

/// Takes as many GPUs of a set as can be had over several hosts, and says how many are missing.
pub(crate) fn as_many_as_possible(
    capacity: &mut Capacity<'_>,
    shelves: &[usize],
    set: &GpuSet,
) -> (Vec<Part>, u32) {
    let mut missing = set.count;
    let (mut parts, mut used) = (Vec::new(), BTreeSet::new());
    while missing > 0 {
        let hosts = capacity.sorts_of_hosts(&used);
        let fits = hosts.filter_map(|host| fill_groups(capacity, host, shelves, missing, set.group));
        let Some((gpus, fit)) = fits.min_by_key(|(gpus, fit)| (Reverse(*gpus), fit.cost)) else {
            break;
        };
        used.insert(fit.host);
        missing -= gpus.min(missing);
        parts.push(Part {
            host: fit.host,
            taken: capacity.take(fit.host, &fit.picks),
        });
    }
    (parts, missing)
}

/// How many GPUs in whole groups a host can take, and how.
fn fill_groups(
    capacity: &Capacity<'_>,
    host: usize,
    shelves: &[usize],
    gpus: u32,
    group: u32,
) -> Option<(u32, Fit)> {
    let whole = |gpus: u32| gpus / group.max(1) * group.max(1);
    let room = u32::try_from(capacity.hosts[host].free()).unwrap_or(u32::MAX);
    let fit = fill(capacity, host, shelves, gpus.min(whole(room)));
    let count = whole(fit.gpus).min(gpus);
    match count {
        0 => None,
        count if fit.gpus > count => Some((count, fill(capacity, host, shelves, count))),
        count => Some((count, fit)),
    }
}

pub(crate) fn gpus_left(capacity: &Capacity<'_>, shelves: &[usize]) -> u32 {
    let left = shelves.iter().map(|shelf| capacity.shelves[*shelf].gpus_left());
    left.fold(0, u32::saturating_add)
}

/// What a host could be given, and what that costs.
pub(crate) struct Fit {
    host: usize,
    picks: Vec<Pick>,
    pub gpus: u32,
    cost: Cost,
}

/// In the order of the rules: less is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    switches: usize,
    hops: u32,
    unsure: bool,
    slots_left: i64,
    gpus_left: u32,
    host: usize,
}

/// Units of one shelf that a port reaches.
#[derive(Clone, Copy)]
struct Offer {
    size: u32,
    hops: u32,
    /// How many shelves the port reaches: a port that can do little else is used first.
    choices: usize,
    port: usize,
    shelf: usize,
}

/// Finds as many of the wanted GPUs as one host can have. Takes from few switches: from one that has
/// all that is still wanted, the nearest and tightest of them, else from the one that gives most.
pub(crate) fn fill(capacity: &Capacity<'_>, host: usize, shelves: &[usize], want: u32) -> Fit {
    let room = &capacity.hosts[host];
    let mut free: Vec<i64> = room.ports.iter().map(|port| port.free).collect();
    let mut places = offers(capacity, host, shelves);
    let mut fit = Fit {
        host,
        picks: Vec::new(),
        gpus: 0,
        cost: Cost {
            switches: 0,
            hops: 0,
            unsure: room.unsure,
            slots_left: room.free(),
            gpus_left: 0,
            host,
        },
    };
    while fit.gpus < want {
        let draws = places
            .iter()
            .map(|(place, offers)| (*place, draw(capacity, offers, &free, want - fit.gpus)));
        let useful = draws.filter(|(_, draw)| draw.gpus > 0);
        let Some((place, draw)) = useful.min_by_key(|(place, draw)| (draw.rank(want - fit.gpus), *place))
        else {
            break;
        };
        places.remove(&place);
        for pick in &draw.picks {
            free[pick.port] -= gpus_in(capacity, pick);
        }
        fit.gpus += draw.gpus;
        fit.cost.switches += 1;
        fit.cost.hops += draw.hops;
        fit.cost.gpus_left += draw.left;
        fit.cost.slots_left -= i64::from(draw.gpus);
        fit.picks.extend(draw.picks);
    }
    drop_superfluous(capacity, &mut fit, want);
    fit
}

/// What a host's ports reach, by switch.
fn offers(capacity: &Capacity<'_>, host: usize, shelves: &[usize]) -> BTreeMap<usize, Vec<Offer>> {
    let mut places: BTreeMap<usize, Vec<Offer>> = BTreeMap::new();
    for (port, room) in capacity.hosts[host].ports.iter().enumerate() {
        let in_reach = shelves.iter().filter_map(|shelf| {
            let size = capacity.shelves[*shelf].size;
            let fits = capacity.shelves[*shelf].units_left() > 0 && room.free >= i64::from(size);
            Some((*shelf, size, capacity.hops(room, *shelf).filter(|_| fits)?))
        });
        let in_reach: Vec<_> = in_reach.collect();
        for (shelf, size, hops) in &in_reach {
            let offers = places.entry(capacity.shelves[*shelf].place).or_default();
            offers.push(Offer {
                size: *size,
                hops: *hops,
                choices: in_reach.len(),
                port,
                shelf: *shelf,
            });
        }
    }
    places
}

/// What one switch gives.
struct Draw {
    picks: Vec<Pick>,
    gpus: u32,
    hops: u32,
    /// GPUs of the kind that stay on the shelves drawn from.
    left: u32,
}

impl Draw {
    /// Less is better: all that is wanted from near and with little left over, else as much as possible.
    fn rank(&self, want: u32) -> (bool, u32, u32, u32) {
        match self.gpus >= want {
            true => (false, 0, self.hops, self.left),
            false => (true, u32::MAX - self.gpus, self.hops, self.left),
        }
    }
}

fn draw(capacity: &Capacity<'_>, offers: &[Offer], free: &[i64], want: u32) -> Draw {
    let mut offers = offers.to_vec();
    // The largest units that are not too large, then the smallest that are.
    offers.sort_by_key(|offer| {
        let too_large = offer.size > want;
        let size = if too_large {
            offer.size
        } else {
            u32::MAX - offer.size
        };
        (
            too_large,
            size,
            offer.hops,
            offer.choices,
            offer.port,
            offer.shelf,
        )
    });
    let mut free = free.to_vec();
    let mut drawn: BTreeMap<usize, usize> = BTreeMap::new();
    let mut result = Draw {
        picks: Vec::new(),
        gpus: 0,
        hops: 0,
        left: 0,
    };
    for offer in offers {
        if result.gpus >= want {
            break;
        }
        let units = drawn.entry(offer.shelf).or_default();
        let there = capacity.shelves[offer.shelf].units_left() - *units;
        let room = usize::try_from(free[offer.port] / i64::from(offer.size)).unwrap_or(0);
        let wanted = (want - result.gpus).div_ceil(offer.size) as usize;
        let take = there.min(room).min(wanted);
        if take == 0 {
            continue;
        }
        *units += take;
        let gpus = u32::try_from(take).unwrap_or(u32::MAX) * offer.size;
        free[offer.port] -= i64::from(gpus);
        result.gpus += gpus;
        result.hops += gpus * offer.hops;
        result.picks.push(Pick {
            port: offer.port,
            shelf: offer.shelf,
            units: take,
        });
    }
    drawn.retain(|_, units| *units > 0);
    let left = drawn.iter().map(|(shelf, units)| {
        let shelf = &capacity.shelves[*shelf];
        shelf.gpus_left() - u32::try_from(*units).unwrap_or(u32::MAX) * shelf.size
    });
    result.left = left.sum();
    result
}

/// Where units hold several GPUs, a later large one may have made an earlier small one needless.
fn drop_superfluous(capacity: &Capacity<'_>, fit: &mut Fit, want: u32) {
    for pick in &mut fit.picks {
        let size = capacity.shelves[pick.shelf].size;
        while pick.units > 0 && fit.gpus >= want.saturating_add(size) {
            pick.units -= 1;
            fit.gpus -= size;
            fit.cost.slots_left += i64::from(size);
        }
    }
    fit.picks.retain(|pick| pick.units > 0);
}

fn gpus_in(capacity: &Capacity<'_>, pick: &Pick) -> i64 {
    i64::from(capacity.shelves[pick.shelf].size) * pick.units as i64
}
