//! Whether the capacity of uplinks keeps a need from being served, and which change would help.

use crate::capacity::Capacity;
use crate::place::{self, Part};
use crate::room::{Port, Room};
use crate::survey::Survey;
use crate::unplaced::Help;
use crate::uplinks::FullUplink;
use poolwright_model::topology::HostPort;
use poolwright_sizing::need::{GpuSet, Need};
use std::collections::BTreeMap;

/// Uplinks that would carry more than they may, if a set were placed as if they carried any number; none where it has no
/// place then either. Leaves the capacity as it was.
pub(super) fn in_the_way(
    survey: &Survey<'_>,
    capacity: &mut Capacity<'_>,
    set: &GpuSet,
    need: &Need,
) -> Vec<FullUplink> {
    if capacity.uplinks.is_empty() {
        return Vec::new();
    }
    let alone = Need {
        alternatives: vec![set.clone()],
        ..need.clone()
    };
    // More than any pool has, and far from where counting ends.
    let any = vec![i64::from(u32::MAX); capacity.uplinks.len()];
    let free = std::mem::replace(&mut capacity.uplinks, any);
    let parts = place::serve(capacity, &alone).unwrap_or_default();
    parts.iter().for_each(|part| capacity.put_back(&part.taken));
    capacity.uplinks = free;
    let full = crossed(capacity, &parts).into_iter().filter_map(|(at, gpus)| {
        let (uplink, free) = (&survey.load.uplinks[at], capacity.uplinks[at]);
        // As it is when its turn comes: with what the plan has given to others.
        let carried = u32::try_from(i64::from(uplink.most) - free).unwrap_or(u32::MAX);
        (i64::from(gpus) > free).then(|| FullUplink {
            carried,
            ..uplink.needing(carried.saturating_add(gpus))
        })
    });
    full.collect()
}

fn crossed(capacity: &Room, parts: &[Part]) -> BTreeMap<usize, u32> {
    let mut crossed = BTreeMap::new();
    for taken in parts.iter().flat_map(|part| &part.taken) {
        let port = capacity.port(taken.host, taken.port);
        for (uplink, gpus) in capacity.crossing(port, taken.shelf) {
            *crossed.entry(*uplink).or_default() += *gpus;
        }
    }
    crossed
}

/// An upper bound for the GPUs of these shelves on one host, or with `spread` on all hosts together, if nothing else
/// were attached across uplinks.
pub(super) fn ever(survey: &Survey<'_>, capacity: &Capacity<'_>, shelves: &[usize], spread: bool) -> u32 {
    let mut all: BTreeMap<usize, u32> = shelves.iter().map(|shelf| (*shelf, 0)).collect();
    for unit in 0..survey.units.len() {
        if let Some(gpus) = capacity.shelf_of(unit).and_then(|shelf| all.get_mut(&shelf)) {
            *gpus += u32::try_from(survey.units[unit].gpus.len()).unwrap_or(u32::MAX);
        }
    }
    let hosts = capacity.sorts_of_hosts();
    let ports = |host: usize| {
        let rooms = capacity.ports(host);
        rooms.zip(capacity.ports_of(host).iter().copied())
    };
    if spread {
        let sites: BTreeMap<usize, Known<'_>> =
            hosts.flat_map(ports).map(|port| (port.0.site, port)).collect();
        let ports: Vec<Known<'_>> = sites.into_values().collect();
        return most_at(survey, capacity, &ports, &all);
    }
    let most = hosts.map(|host| most_at(survey, capacity, &ports(host).collect::<Vec<_>>(), &all));
    most.max().unwrap_or(0)
}

type Known<'p> = (Port, &'p HostPort);

fn most_at(
    survey: &Survey<'_>,
    capacity: &Capacity<'_>,
    ports: &[Known<'_>],
    all: &BTreeMap<usize, u32>,
) -> u32 {
    let (mut near, mut far) = (0_u32, 0_u32);
    for (shelf, gpus) in all {
        let reach = ports
            .iter()
            .filter(|(port, _)| capacity.hops(*port, *shelf).is_some());
        let mut crossings = reach.map(|(port, _)| capacity.crossing(*port, *shelf)).peekable();
        if crossings.peek().is_none() {
            continue;
        }
        // By several ports it may be more than by any one.
        let by_port = crossings.map(|crossing| {
            let units = crossing.iter();
            let units = units.map(|(uplink, across)| survey.load.uplinks[*uplink].most / across);
            units.min()
        });
        match by_port.collect::<Option<Vec<u32>>>() {
            None => near = near.saturating_add(*gpus),
            Some(units) => {
                let size = capacity.shelf(*shelf).size;
                let units = units.into_iter().fold(0, u32::saturating_add);
                far = far.saturating_add(units.saturating_mul(size).min(*gpus));
            }
        }
    }
    // Of boards some GPUs may be near.
    let single = all.keys().all(|shelf| capacity.shelf(*shelf).size == 1);
    let of_ports = ports
        .iter()
        .map(|(_, port)| survey.load.of_port(port).map(|uplink| uplink.most));
    if let (true, Some(of_ports)) = (single, of_ports.collect::<Option<Vec<u32>>>()) {
        far = far.min(of_ports.into_iter().fold(0, u32::saturating_add));
    }
    near.saturating_add(far)
}

/// Alternatives, each sufficient: release GPUs across an uplink, or raise its limit.
pub(super) fn helps(full: &[FullUplink]) -> Vec<Help> {
    let release = full.iter().map(|full| Help::ReleaseAcross {
        fabric: full.fabric.clone(),
        switch: full.switch.clone(),
        gpus: (full.needed - full.most).min(full.carried),
    });
    // Without GPUs across the uplink, there is none to release.
    let release = release.filter(|help| !matches!(help, Help::ReleaseAcross { gpus: 0, .. }));
    let raise = full.iter().map(|full| Help::RaiseUplinks {
        fabric: full.fabric.clone(),
        switch: full.switch.clone(),
        gpus: full.needed,
    });
    release.chain(raise).collect()
}
