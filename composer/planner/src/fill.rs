//! Picks GPUs for one host: few switches, near ones first, the tightest fit so that unused hosts and switches stay
//! whole, and within the limits of uplinks.

use crate::room::{Pick, Room};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What a host could be given, and what that costs.
pub(crate) struct Fit {
    pub host: usize,
    pub picks: Vec<Pick>,
    pub gpus: u32,
    pub cost: Cost,
}

/// Rules 4 to 8 of [`crate::place`], in their order: less is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cost {
    switches: usize,
    hops: u32,
    unsure: bool,
    /// See [`Room::avoids`].
    avoided: (bool, bool),
    slots_left: i64,
    gpus_left: u32,
    host: usize,
}

impl Cost {
    /// A lower bound of the cost of `gpus` GPUs on a host: all from one switch, the nearest. `None`: no shelf is in reach.
    /// `largest`: GPUs of the largest unit on the shelves.
    pub fn at_least(
        room: &Room,
        host: usize,
        (shelves, largest): (&[usize], u32),
        gpus: u32,
    ) -> Option<Self> {
        let ports = room.ports(host).filter(|port| port.free > 0);
        let (mut nearest, mut only, mut offers) = (u32::MAX, 0, 0);
        for (shelf, hops) in ports.flat_map(|port| room.in_reach(port, shelves)) {
            (nearest, only, offers) = (nearest.min(hops), shelf, offers + 1);
        }
        let superfluous = largest - 1;
        let gpus_left = match offers {
            0 => return None,
            1 => room.gpus_left(only).saturating_sub(gpus + superfluous),
            _ => 0,
        };
        Some(Self {
            switches: 1,
            hops: nearest * gpus,
            unsure: room.host(host).unsure,
            avoided: room.avoids(host, shelves, gpus),
            slots_left: room.free(host) - i64::from(gpus) - i64::from(superfluous),
            gpus_left,
            host,
        })
    }
}

/// Units of one shelf that a port reaches.
#[derive(Clone, Copy)]
struct Offer<'c> {
    size: u32,
    hops: u32,
    /// How many shelves the port reaches: a port that can do little else is used first.
    choices: usize,
    port: usize,
    shelf: usize,
    /// In which uplinks a unit counts.
    crossing: &'c [(usize, u32)],
}

/// Finds as many of the wanted GPUs as one host can have. Takes from few switches: from one that has
/// all that is still wanted, the nearest and tightest of them, else from the one that gives most.
pub(crate) fn fill(room: &Room, host: usize, shelves: &[usize], want: u32) -> Fit {
    let mut free = Free {
        slots: room.ports(host).map(|port| port.free).collect(),
        crossed: Vec::new(),
    };
    let mut places = offers(room, host, shelves);
    let mut fit = Fit {
        host,
        picks: Vec::new(),
        gpus: 0,
        cost: Cost {
            switches: 0,
            hops: 0,
            unsure: room.host(host).unsure,
            avoided: room.avoids(host, shelves, want),
            slots_left: room.free(host),
            gpus_left: 0,
            host,
        },
    };
    while fit.gpus < want {
        let Some((place, draw)) = best_draw(room, &places, &free, want - fit.gpus) else {
            break;
        };
        places.remove(&place);
        for pick in &draw.picks {
            let crossing = room.crossing(room.port(host, pick.port), pick.shelf);
            free.take(pick, room.shelf(pick.shelf).size, crossing);
        }
        fit.gpus += draw.gpus;
        fit.cost.switches += 1;
        fit.cost.hops += draw.hops;
        fit.cost.gpus_left += draw.left;
        fit.cost.slots_left -= i64::from(draw.gpus);
        fit.picks.extend(draw.picks);
    }
    drop_superfluous(room, &mut fit, want);
    fit
}

/// The free slots of a host, and the uplink room that its picks take.
#[derive(Clone)]
struct Free {
    slots: Vec<i64>,
    /// GPUs, by uplink; few of these are crossed at once.
    crossed: Vec<(usize, i64)>,
}

impl Free {
    /// Units of an offer for which there are slots, and room in uplinks.
    fn units(&self, room: &Room, offer: &Offer<'_>) -> usize {
        let slots = self.slots[offer.port] / i64::from(offer.size);
        let across = offer.crossing.iter().map(|(uplink, gpus)| {
            let crossed = self.crossed.iter().find(|(known, _)| known == uplink);
            let left = room.uplinks[*uplink] - crossed.map_or(0, |(_, gpus)| *gpus);
            left.div_euclid(i64::from(*gpus))
        });
        usize::try_from(across.fold(slots, i64::min)).unwrap_or(0)
    }

    fn take(&mut self, pick: &Pick, size: u32, crossing: &[(usize, u32)]) {
        self.slots[pick.port] -= i64::from(size) * pick.units as i64;
        for (uplink, gpus) in crossing {
            let taken = i64::from(*gpus) * pick.units as i64;
            match self.crossed.iter_mut().find(|(known, _)| known == uplink) {
                Some((_, crossed)) => *crossed += taken,
                None => self.crossed.push((*uplink, taken)),
            }
        }
    }
}

/// What of a switch a host's ports reach.
#[derive(Default)]
struct Place<'c> {
    offers: Vec<Offer<'c>>,
    /// GPUs on all its shelves.
    gpus: u32,
    /// Of the nearest shelf.
    hops: u32,
}

/// What a host's ports reach, by switch.
fn offers<'c>(room: &'c Room, host: usize, shelves: &[usize]) -> BTreeMap<usize, Place<'c>> {
    let mut places: BTreeMap<usize, Place<'c>> = BTreeMap::new();
    for (port, at) in room.ports(host).enumerate() {
        let in_reach = room.in_reach(at, shelves).filter_map(|(shelf, hops)| {
            let size = room.shelf(shelf).size;
            let fits = room.units_left(shelf) > 0 && at.free >= i64::from(size);
            fits.then_some((shelf, size, hops))
        });
        let in_reach: Vec<_> = in_reach.collect();
        for (shelf, size, hops) in in_reach.iter().copied() {
            let place = places.entry(room.shelf(shelf).place).or_default();
            if place.offers.iter().all(|offer| offer.shelf != shelf) {
                place.gpus += room.gpus_left(shelf);
            }
            place.hops = if place.offers.is_empty() {
                hops
            } else {
                place.hops.min(hops)
            };
            place.offers.push(Offer {
                size,
                hops,
                choices: in_reach.len(),
                port,
                shelf,
                crossing: room.crossing(at, shelf),
            });
        }
    }
    places
}

/// What the best switch gives, and which that is; of equals the first.
fn best_draw(
    room: &Room,
    places: &BTreeMap<usize, Place<'_>>,
    free: &Free,
    want: u32,
) -> Option<(usize, Draw)> {
    let mut best: Option<(usize, Draw)> = None;
    for (number, place) in places {
        let beaten = |(_, best): &(usize, Draw)| best.rank(want) <= place.at_best(want);
        if best.as_ref().is_some_and(beaten) {
            continue;
        }
        let draw = draw(room, &place.offers, free, want);
        let better = best
            .as_ref()
            .is_none_or(|(_, best)| draw.rank(want) < best.rank(want));
        if draw.gpus > 0 && better {
            best = Some((*number, draw));
        }
    }
    best
}

impl Place<'_> {
    /// A rank that no draw from here is less than.
    fn at_best(&self, want: u32) -> Rank {
        let left = match self.offers.as_slice() {
            [only] => self.gpus.saturating_sub(want + only.size - 1),
            _ => 0,
        };
        match self.gpus >= want {
            true => (false, 0, self.hops * want, left),
            false => (true, u32::MAX - self.gpus, self.hops * self.gpus, 0),
        }
    }
}

/// Less is better: all that is wanted from near and with little left over, else as much as possible.
type Rank = (bool, u32, u32, u32);

/// What one switch gives.
struct Draw {
    picks: Vec<Pick>,
    gpus: u32,
    hops: u32,
    /// GPUs of the kind that stay on the shelves drawn from.
    left: u32,
}

impl Draw {
    fn rank(&self, want: u32) -> Rank {
        match self.gpus >= want {
            true => (false, 0, self.hops, self.left),
            false => (true, u32::MAX - self.gpus, self.hops, self.left),
        }
    }
}

/// Draws from one switch, near before far. Of units of several sizes first the largest that are not too
/// large, then the smallest that are; where that leaves no room for a large one, the large ones first.
fn draw(room: &Room, offers: &[Offer<'_>], free: &Free, want: u32) -> Draw {
    let near = |offer: &Offer<'_>| (offer.hops, offer.choices, offer.port, offer.shelf);
    let mut offers = offers.to_vec();
    offers.sort_by_key(|offer| match offer.size > want {
        false => (false, u32::MAX - offer.size, near(offer)),
        true => (true, offer.size, near(offer)),
    });
    let fitting = draw_in_order(room, &offers, free, want);
    if fitting.gpus >= want || offers.iter().all(|offer| offer.size == offers[0].size) {
        return fitting;
    }
    offers.sort_by_key(|offer| (Reverse(offer.size), near(offer)));
    let large = draw_in_order(room, &offers, free, want);
    if large.rank(want) < fitting.rank(want) {
        large
    } else {
        fitting
    }
}

fn draw_in_order(room: &Room, offers: &[Offer<'_>], free: &Free, want: u32) -> Draw {
    let mut free = free.clone();
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
        let there = room.units_left(offer.shelf) - *units;
        let wanted = (want - result.gpus).div_ceil(offer.size) as usize;
        let take = there.min(free.units(room, offer)).min(wanted);
        if take == 0 {
            continue;
        }
        *units += take;
        let gpus = u32::try_from(take).unwrap_or(u32::MAX) * offer.size;
        let pick = Pick {
            port: offer.port,
            shelf: offer.shelf,
            units: take,
        };
        free.take(&pick, offer.size, offer.crossing);
        result.gpus += gpus;
        result.hops += gpus * offer.hops;
        result.picks.push(pick);
    }
    drawn.retain(|_, units| *units > 0);
    let left = drawn.iter().map(|(shelf, units)| {
        let units = u32::try_from(*units).unwrap_or(u32::MAX);
        room.gpus_left(*shelf) - units * room.shelf(*shelf).size
    });
    result.left = left.sum();
    result
}

/// Where units hold several GPUs, a later large one may have made an earlier small one needless.
fn drop_superfluous(room: &Room, fit: &mut Fit, want: u32) {
    for pick in &mut fit.picks {
        let size = room.shelf(pick.shelf).size;
        while pick.units > 0 && fit.gpus >= want.saturating_add(size) {
            pick.units -= 1;
            fit.gpus -= size;
            fit.cost.slots_left += i64::from(size);
        }
    }
    fit.picks.retain(|pick| pick.units > 0);
}
