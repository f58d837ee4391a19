//! To which ports of a host GPUs go that are asked for by name.

use super::Refusal;
use crate::capacity::Capacity;
use crate::composition::Composition;
use crate::survey::Survey;
use crate::uplinks::FullUplink;
use poolwright_model::id::{HostId, HostPortId};
use std::collections::{BTreeMap, BTreeSet};

/// The GPUs that may still be attached across each uplink after the detachments, by its place. Above its limit, an
/// uplink takes as many GPUs as leave it.
pub(crate) struct Across {
    left: Vec<i64>,
}

impl Across {
    pub fn without(survey: &Survey<'_>, leaving: &[Composition]) -> Self {
        let uplinks = survey.load.uplinks.iter();
        let mut left: Vec<i64> = uplinks.map(|uplink| uplink.free().max(0)).collect();
        let leaving = leaving.iter().flat_map(|c| &c.held);
        for (uplink, gpus) in leaving.flat_map(|held| survey.load.crossing_of(held)) {
            left[uplink] += i64::from(gpus);
        }
        Self { left }
    }

    /// Takes room for a unit; or says which uplink has none.
    pub fn take(&mut self, crossing: &[(usize, u32)]) -> Result<(), usize> {
        let full = crossing
            .iter()
            .find(|(uplink, gpus)| self.left[*uplink] < i64::from(*gpus));
        if let Some((uplink, _)) = full {
            return Err(*uplink);
        }
        for (uplink, gpus) in crossing {
            self.left[*uplink] -= i64::from(*gpus);
        }
        Ok(())
    }

    /// The full uplink that blocks a total of `gpus`. Valid only before a GPU of them is taken.
    pub fn full(self, survey: &Survey<'_>, uplink: usize, gpus: u32) -> FullUplink {
        let known = &survey.load.uplinks[uplink];
        let room = i64::from(known.most.max(known.carried));
        // Detached GPUs no longer count.
        let stays = (room - self.left[uplink]).max(0);
        FullUplink {
            carried: u32::try_from(stays).unwrap_or(u32::MAX),
            ..known.needing(u32::try_from(stays).unwrap_or(u32::MAX).saturating_add(gpus))
        }
    }
}

/// For each unit, the nearest port of the host that reaches it and has room, in the uplinks on the way as well; if none
/// has, the nearest one that has room after the detachments.
pub(super) fn choose<'a>(
    survey: &Survey<'a>,
    units: &BTreeSet<usize>,
    host: &HostId,
    goes: &[Composition],
) -> Result<Vec<(usize, &'a HostPortId)>, Refusal> {
    let capacity = Capacity::of(survey);
    let at = capacity.host_place(host);
    let mut free: Vec<i64> =
        at.map_or_else(Vec::new, |at| capacity.ports(at).map(|port| port.free).collect());
    let mut freed: BTreeMap<&HostPortId, i64> = BTreeMap::new();
    for held in goes.iter().flat_map(|c| &c.held) {
        *freed.entry(&held.host_port).or_default() += i64::from(held.slots());
    }
    let mut across = Across::without(survey, goes);
    let mut placed = Vec::new();
    for unit in units {
        let first = || survey.units[*unit].gpus[0].id.clone();
        let reach = reach(&capacity, at, *unit);
        if reach.is_empty() {
            let (gpu, host) = (first(), host.clone());
            return Err(Refusal::NotReachable { gpu, host });
        }
        let size = survey.units[*unit].gpus.len() as i64;
        let has_room = |(at, ..): &&(usize, &HostPortId, _)| free[*at] >= size;
        let will_have = |(at, port, _): &&(usize, &HostPortId, _)| {
            free[*at] + freed.get(port).copied().unwrap_or_default() >= size
        };
        let at_once = reach.iter().filter(has_room);
        let (mut chosen, mut full) = (None, None);
        for (at, port, crossing) in at_once.chain(reach.iter().filter(will_have)) {
            match across.take(crossing) {
                Ok(()) => {
                    chosen = Some((*at, *port));
                    break;
                }
                Err(uplink) => full = full.or(Some(uplink)),
            }
        }
        let Some((place, port)) = chosen else {
            if let Some(uplink) = full {
                let all = units.iter().flat_map(|unit| {
                    let nearest = self::reach(&capacity, at, *unit).into_iter().next();
                    nearest.map_or(&[][..], |(_, _, crossing)| crossing)
                });
                let gpus = all.filter(|(at, _)| *at == uplink).map(|(_, gpus)| gpus).sum();
                let before = Across::without(survey, goes);
                return Err(Refusal::Uplinks(before.full(survey, uplink, gpus)));
            }
            let needed = units.iter().map(|unit| survey.units[*unit].gpus.len());
            return Err(Refusal::NoSlot {
                gpu: first(),
                host: host.clone(),
                needed: u32::try_from(needed.sum::<usize>()).unwrap_or(u32::MAX),
                free: u32::try_from(at.map_or(0, |at| capacity.free(at))).unwrap_or(u32::MAX),
            });
        };
        free[place] -= size;
        placed.push((*unit, port));
    }
    Ok(placed)
}

/// A port by its place among those of the host, and the uplinks that are crossed from there, with how many GPUs.
type Reached<'c, 'a> = (usize, &'a HostPortId, &'c [(usize, u32)]);

/// Ports of a host that reach a unit, the nearest first, with the uplinks that are crossed then.
fn reach<'c, 'a>(capacity: &'c Capacity<'a>, host: Option<usize>, unit: usize) -> Vec<Reached<'c, 'a>> {
    let Some(host) = host else { return Vec::new() };
    let ports = capacity.ports(host).zip(capacity.ports_of(host));
    let reach = ports.enumerate().filter_map(|(at, (room, port))| {
        let shelf = capacity.shelf_of(unit)?;
        let hops = capacity.hops(room, shelf)?;
        Some((hops, at, &port.id, capacity.crossing(room, shelf)))
    });
    let mut reach: Vec<_> = reach.collect();
    reach.sort();
    reach
        .into_iter()
        .map(|(_, at, port, crossing)| (at, port, crossing))
        .collect()
}
