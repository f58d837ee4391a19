//! Why a need can't be placed, found when its turn came and it couldn't; and what would help.

use crate::capacity::Capacity;
use crate::composition::Composition;
use crate::decide::{Changes, owners};
use crate::demand::Demand;
use crate::fill::fill;
use crate::place;
use crate::room::Room;
use crate::survey::{Closed, Condition, Survey, UnitFacts};
use crate::unplaced::{Busy, Help, Holder, Reason, Tried, Unplaced};
use poolwright_model::id::CompositionId;
use poolwright_model::units::Bytes;
use poolwright_sizing::need::{GpuSet, Need};
use std::collections::{BTreeMap, BTreeSet};

mod uplinks;

/// Says for every alternative of a demand's need why it is not possible. Leaves the capacity as it was.
pub(crate) fn not_placed(
    survey: &Survey<'_>,
    capacity: &mut Capacity<'_>,
    changes: &Changes,
    demand: &Demand,
) -> Unplaced {
    let owners = owners(survey, changes);
    let sets = demand.need.alternatives.iter();
    let mut tried: Vec<Tried> = sets
        .map(|set| {
            let kinds = census(survey, &owners, set);
            let reason = reason(survey, capacity, &kinds, set, &demand.need);
            let span = !demand.need.spannable && would_span(capacity, set);
            Tried {
                helps: helps(&reason, set, span, &kinds),
                set: set.clone(),
                reason,
            }
        })
        .collect();
    // The sort is stable: of equals, the better alternative stays in front. Of an elastic need the fewest GPUs are nearest.
    let gpus = |tried: &Tried| if demand.need.elastic { tried.set.count } else { 0 };
    tried.sort_by_key(|tried| (distance(&tried.reason), gpus(tried)));
    Unplaced {
        demand: demand.id.clone(),
        tenant: demand.tenant.clone(),
        label: demand.need.label.clone(),
        tried,
        holding: Vec::new(),
    }
}

/// How far a set is from being possible: what passes by itself or takes a word comes before what takes work
/// on the machines, and that before what takes new ones.
fn distance(reason: &Reason) -> u8 {
    match reason {
        Reason::AllBusy { .. } | Reason::Fragmented { .. } | Reason::Uplinks { .. } => 0,
        Reason::NoHostWithSlots { needed, largest, .. } if needed <= largest => 0,
        Reason::NoHost { .. } => 1,
        Reason::NoHostWithSlots { .. } | Reason::NotReachable { .. } => 2,
        Reason::NotEnoughGpus { .. } => 3,
        Reason::MemoryTooSmall { .. } => 4,
        Reason::NoKind { .. } => 5,
        // Found before this was asked.
        Reason::TenantLimit { .. } | Reason::Promised { .. } | Reason::Owed { .. } => 6,
    }
}

/// Where the GPUs of one kind are, counted for one set.
#[derive(Default)]
struct Census<'c> {
    free: u32,
    busy: Busy,
    held_by: BTreeMap<&'c CompositionId, Holder>,
    /// Movable, but with less memory than the set needs.
    too_small: u32,
    /// Memory of the largest movable one.
    largest: Bytes,
    not_composable: u32,
}

impl Census<'_> {
    /// GPUs that could serve the set if all were free.
    fn pool(&self) -> u32 {
        let Busy {
            held,
            reserved,
            foreign,
            cordoned,
            unhealthy,
            unsettled,
            unbindable,
        } = self.busy;
        self.free + held + reserved + foreign + cordoned + unhealthy + unsettled + unbindable
    }
}

type Owners<'c> = [Option<&'c Composition>];

/// Counts the kinds that a set may be of.
fn census<'c>(survey: &Survey<'_>, owners: &Owners<'c>, set: &GpuSet) -> BTreeMap<String, Census<'c>> {
    let mut kinds: BTreeMap<String, Census<'c>> = BTreeMap::new();
    for (unit, owner) in survey.units.iter().zip(owners) {
        let kind = unit
            .kind
            .as_deref()
            .filter(|kind| set.kind.as_deref().is_none_or(|k| k == *kind));
        let Some(kind) = kind else { continue };
        if !kinds.contains_key(kind) {
            kinds.insert(kind.to_owned(), Census::default());
        }
        let Some(census) = kinds.get_mut(kind) else {
            continue;
        };
        let gpus = u32::try_from(unit.gpus.len()).unwrap_or(u32::MAX);
        if unit.condition == Condition::NotComposable {
            census.not_composable += gpus;
            continue;
        }
        census.largest = census.largest.max(unit.memory);
        if unit.memory < set.min_memory_per_gpu {
            census.too_small += gpus;
        } else if let Some(owner) = owner {
            census.busy.held += gpus;
            let holder = census.held_by.entry(&owner.id).or_insert_with(|| Holder {
                composition: owner.id.clone(),
                demand: owner.demand.clone(),
                gpus: 0,
            });
            holder.gpus += gpus;
        } else {
            *count(census, unit) += gpus;
        }
    }
    kinds
}

/// Where a unit counts that is in no composition once the plan is done.
fn count<'n>(census: &'n mut Census<'_>, unit: &UnitFacts<'_>) -> &'n mut u32 {
    let condition = match unit.condition {
        Condition::Held(_) => unit.by_itself,
        condition => condition,
    };
    match condition {
        Condition::Free | Condition::Dirty => &mut census.free,
        Condition::Reserved => &mut census.busy.reserved,
        Condition::Foreign => &mut census.busy.foreign,
        Condition::Cordoned => &mut census.busy.cordoned,
        Condition::Unhealthy | Condition::Quarantined => &mut census.busy.unhealthy,
        Condition::Unsettled | Condition::Held(_) => &mut census.busy.unsettled,
        Condition::Unbindable => &mut census.busy.unbindable,
        Condition::NotComposable => &mut census.not_composable,
    }
}

fn reason(
    survey: &Survey<'_>,
    capacity: &mut Capacity<'_>,
    kinds: &BTreeMap<String, Census<'_>>,
    set: &GpuSet,
    need: &Need,
) -> Reason {
    let needed = set.count;
    if kinds.values().all(|census| census.pool() + census.too_small == 0) {
        return Reason::NoKind {
            kind: set.kind.clone(),
            seen: kinds.values().map(|census| census.not_composable).sum(),
        };
    }
    let suitable = kinds.iter().filter(|(_, census)| census.pool() > 0);
    // A kind that can serve the set once others release theirs comes before one that never can.
    let nearest = |census: &Census<'_>| (census.pool() >= needed, census.free, census.pool());
    let Some((kind, census)) = suitable.max_by_key(|(_, census)| nearest(census)) else {
        return Reason::MemoryTooSmall {
            kind: set.kind.clone(),
            needed: set.min_memory_per_gpu,
            largest: kinds
                .values()
                .map(|census| census.largest)
                .max()
                .unwrap_or_default(),
        };
    };
    let (kind, free) = (kind.clone(), census.free);
    if census.pool() < needed {
        return Reason::NotEnoughGpus {
            kind,
            needed,
            free,
            pool: census.pool(),
        };
    }
    if free < needed {
        return Reason::AllBusy {
            kind,
            needed,
            free,
            busy: census.busy.clone(),
            held_by: census.held_by.values().cloned().collect(),
        };
    }
    no_room(survey, capacity, set, need, kind, free)
}

/// There are GPUs enough; then it is the hosts, or the way to them.
fn no_room(
    survey: &Survey<'_>,
    capacity: &mut Capacity<'_>,
    set: &GpuSet,
    need: &Need,
    kind: String,
    free: u32,
) -> Reason {
    let (needed, spannable) = (set.count, need.spannable);
    if capacity.hosts() == 0 {
        let closed = |why: Closed| {
            let hosts = survey.hosts.iter().filter(|host| host.closed == Some(why));
            u32::try_from(hosts.count()).unwrap_or(u32::MAX)
        };
        return Reason::NoHost {
            off: closed(Closed::Off),
            cordoned: closed(Closed::Cordoned),
            unbindable: closed(Closed::Unbindable),
            keeps: closed(Closed::Keeps),
        };
    }
    let on_one = if spannable { set.group } else { needed };
    let free_slots = (0..capacity.hosts())
        .map(|host| capacity.free(host))
        .max()
        .unwrap_or(0);
    let best = u32::try_from(free_slots).unwrap_or(u32::MAX);
    if best < on_one {
        let slots = |host: usize| -> u32 { capacity.ports_of(host).iter().map(|port| port.slots).sum() };
        return Reason::NoHostWithSlots {
            needed: on_one,
            best,
            largest: (0..capacity.hosts()).map(slots).max().unwrap_or(0),
        };
    }
    let shelves = shelves_of(capacity, set, &kind);
    let within = |host: usize| -> u32 {
        let in_reach = shelves.iter().filter(|shelf| {
            let mut ports = capacity.ports(host);
            ports.any(|port| capacity.hops(port, **shelf).is_some())
        });
        in_reach.map(|shelf| capacity.gpus_left(*shelf)).sum()
    };
    let together = (0..capacity.hosts()).map(within).max().unwrap_or(0);
    if together < on_one {
        return Reason::NotReachable {
            kind,
            needed: on_one,
            free,
            best: together,
        };
    }
    let largest = if spannable {
        let (parts, missing) = place::as_many_as_possible(capacity, &shelves, set, BTreeSet::new());
        parts.iter().for_each(|part| capacity.put_back(&part.taken));
        needed - missing
    } else {
        let hosts = 0..capacity.hosts();
        let fits = hosts.map(|host| fill(capacity, host, &shelves, needed).gpus);
        fits.max().unwrap_or(0)
    };
    let full = uplinks::in_the_way(survey, capacity, set, need);
    if full.is_empty() {
        return Reason::Fragmented {
            kind,
            needed,
            free,
            largest,
        };
    }
    // A set of any kind may be served by another kind later.
    let suitable = |kind: &&String| set.kind.as_ref().is_none_or(|wanted| wanted == *kind);
    let ever = |kind: &String| uplinks::ever(survey, capacity, &shelves_of(capacity, set, kind), spannable);
    Reason::Uplinks {
        ever: capacity
            .kinds()
            .keys()
            .filter(suitable)
            .map(ever)
            .max()
            .unwrap_or(0),
        kind,
        needed,
        free,
        largest,
        full,
    }
}

fn shelves_of(capacity: &Room, set: &GpuSet, kind: &str) -> Vec<usize> {
    let shelves = capacity.kinds().get(kind).into_iter().flatten();
    let enough = |shelf: &&usize| capacity.shelf(**shelf).memory >= set.min_memory_per_gpu;
    shelves.filter(enough).copied().collect()
}

/// Whether the set would fit on several hosts.
fn would_span(capacity: &mut Room, set: &GpuSet) -> bool {
    place::shelves_for(capacity, set).iter().any(|shelves| {
        let Some(parts) = place::over_hosts(capacity, shelves, set) else {
            return false;
        };
        parts.iter().for_each(|part| capacity.put_back(&part.taken));
        true
    })
}

fn helps(reason: &Reason, set: &GpuSet, span: bool, kinds: &BTreeMap<String, Census<'_>>) -> Vec<Help> {
    let least = set.min_memory_per_gpu;
    let add = |kind: Option<String>, gpus: u32| Help::AddGpus {
        kind,
        gpus,
        min_memory: least,
    };
    let mut helps = match reason {
        Reason::NoKind { kind, seen } => {
            let see = (*seen > 0).then_some(Help::SeeWhyNotComposable { gpus: *seen });
            see.into_iter().chain([add(kind.clone(), set.count)]).collect()
        }
        Reason::MemoryTooSmall { kind, .. } => vec![add(kind.clone(), set.count)],
        Reason::NotEnoughGpus {
            kind, needed, pool, ..
        } => {
            let seen = kinds.get(kind).map_or(0, |census| census.not_composable);
            let see = (seen > 0).then_some(Help::SeeWhyNotComposable { gpus: seen });
            let add = add(Some(kind.clone()), needed - pool);
            see.into_iter().chain([add]).collect()
        }
        Reason::AllBusy {
            kind,
            needed,
            free,
            busy,
            ..
        } => when_busy(kind, needed - free, busy),
        Reason::NoHost { off, cordoned, .. } => {
            let on = (*off > 0).then_some(Help::PowerOnHosts { hosts: *off });
            let open = (*cordoned > 0).then_some(Help::Uncordon {
                gpus: 0,
                hosts: *cordoned,
            });
            let add = Help::AddHost { slots: set.count };
            on.into_iter().chain(open).chain([add]).collect()
        }
        Reason::NoHostWithSlots {
            needed,
            best,
            largest,
        } if needed <= largest => {
            vec![Help::FreeSlots { slots: needed - best }]
        }
        Reason::NoHostWithSlots { needed, .. } => vec![Help::AddHost { slots: *needed }],
        Reason::NotReachable { .. } => vec![Help::Connect],
        Reason::Fragmented {
            kind,
            needed,
            largest,
            ..
        } => vec![Help::ReleaseGpus {
            kind: kind.clone(),
            gpus: needed - largest,
        }],
        Reason::Uplinks { full, .. } => uplinks::helps(full),
        Reason::TenantLimit { .. } | Reason::Promised { .. } | Reason::Owed { .. } => Vec::new(),
    };
    if span {
        helps.insert(0, Help::AllowSpanning);
    }
    helps
}

/// What gets busy GPUs free, the gentlest first.
fn when_busy(kind: &str, missing: u32, busy: &Busy) -> Vec<Help> {
    let some = |gpus: u32, help: Help| (gpus > 0).then_some(help);
    let helps = [
        some(busy.reserved, Help::WaitForOperations { gpus: busy.reserved }),
        some(
            busy.cordoned,
            Help::Uncordon {
                gpus: busy.cordoned,
                hosts: 0,
            },
        ),
        some(
            busy.held,
            Help::ReleaseGpus {
                kind: kind.to_owned(),
                gpus: missing.min(busy.held),
            },
        ),
        some(busy.foreign, Help::FreeForeign { gpus: busy.foreign }),
        some(busy.unsettled, Help::ResolveGpus { gpus: busy.unsettled }),
        some(busy.unhealthy, Help::RepairGpus { gpus: busy.unhealthy }),
    ];
    helps.into_iter().flatten().collect()
}
