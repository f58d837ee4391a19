//! In which order a plan is done: the steps, and which must wait for which.
//!
//! For a unit that goes: drain → unbind → reset. For a unit that comes: (reset, where it is dirty) → preflight
//! → bind → verify → ready. A bind waits for the reset of its unit and, if its host port has no slot to spare or
//! uplinks carry no more, for the unbinds that make room. A unit that comes to a host waits until the GPUs retained
//! there for another tenant are gone. So the steps may run in any order that `after` allows, and no port and no uplink
//! ever exceeds its limit. All other steps may run in parallel.

use crate::composition::{Composition, Held};
use crate::survey::{Condition, Survey};
use poolwright_model::id::{HostId, HostPortId, TenantId, UnitId};
use poolwright_model::step::{Step, Verb};
use std::collections::{HashMap, VecDeque};

/// The steps of a plan, each after all that it waits for.
pub(crate) fn steps(survey: &Survey<'_>, releases: &[Composition], composes: &[Composition]) -> Vec<Step> {
    let mut steps = Steps::default();
    let mut freed: HashMap<&HostPortId, VecDeque<(u32, i64)>> = HashMap::new();
    let mut freed_across: HashMap<usize, VecDeque<(u32, i64)>> = HashMap::new();
    let mut reset: HashMap<&UnitId, u32> = HashMap::new();
    // At each host the unbinds of what was kept.
    let mut kept: HashMap<&HostId, Vec<(Option<&TenantId>, u32)>> = HashMap::new();
    for (composition, held) in each(releases) {
        let drain = steps.push(Verb::Drain, composition, held, vec![]);
        let unbind = steps.push(Verb::Unbind, composition, held, vec![drain]);
        reset.insert(
            &held.unit,
            steps.push(Verb::Reset, composition, held, vec![unbind]),
        );
        if composition.kept.is_some() {
            let unbinds = kept.entry(&composition.host).or_default();
            unbinds.push((composition.tenant.as_ref(), unbind));
        }
        let slots = (unbind, i64::from(held.slots()));
        freed.entry(&held.host_port).or_default().push_back(slots);
        for (uplink, gpus) in survey.load.crossing_of(held) {
            let across = freed_across.entry(uplink).or_default();
            across.push_back((unbind, i64::from(gpus)));
        }
    }
    let mut slots: HashMap<&HostPortId, Room> = HashMap::new();
    let mut across: HashMap<usize, Room> = HashMap::new();
    for composition in composes {
        let mut binds = Vec::new();
        for held in &composition.held {
            let dirty = survey
                .unit(&held.unit)
                .is_some_and(|unit| unit.condition == Condition::Dirty);
            if dirty {
                reset.insert(&held.unit, steps.push(Verb::Reset, composition, held, vec![]));
            }
            let port = slots.entry(&held.host_port).or_insert_with(|| {
                let free = survey.port(&held.host_port).map_or(0, |port| port.free);
                Room::new(free, freed.remove(&held.host_port).unwrap_or_default())
            });
            let mut room = port.take(i64::from(held.slots()));
            for (uplink, gpus) in survey.load.crossing_of(held) {
                let uplink = across.entry(uplink).or_insert_with(|| {
                    let coming = freed_across.remove(&uplink).unwrap_or_default();
                    Room::new(survey.load.uplinks[uplink].free(), coming)
                });
                room.extend(uplink.take(i64::from(gpus)));
            }
            let others = kept.get(&composition.host).into_iter().flatten();
            let others = others.filter(|(tenant, _)| *tenant != composition.tenant.as_ref());
            room.extend(others.map(|(_, unbind)| *unbind));
            let preflight = steps.push(Verb::Preflight, composition, held, room);
            let before = reset.get(&held.unit).copied().into_iter().chain([preflight]);
            binds.push((held, steps.push(Verb::Bind, composition, held, before.collect())));
        }
        for (held, bind) in binds {
            let verify = steps.push(Verb::Verify, composition, held, vec![bind]);
            steps.push(Verb::Ready, composition, held, vec![verify]);
        }
    }
    steps.0
}

/// The steps that see whether units are where they were found, each unit by itself.
pub(crate) fn found(composes: &[Composition]) -> Vec<Step> {
    let mut steps = Steps::default();
    for (composition, held) in each(composes) {
        let bind = steps.push(Verb::Bind, composition, held, vec![]);
        steps.push(Verb::Verify, composition, held, vec![bind]);
    }
    steps.0
}

fn each(compositions: &[Composition]) -> impl Iterator<Item = (&Composition, &Held)> {
    compositions
        .iter()
        .flat_map(|c| c.held.iter().map(move |held| (c, held)))
}

#[derive(Default)]
struct Steps(Vec<Step>);

impl Steps {
    /// Adds a step and returns its place.
    fn push(&mut self, verb: Verb, composition: &Composition, held: &Held, mut after: Vec<u32>) -> u32 {
        let index = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        after.sort_unstable();
        after.dedup();
        self.0.push(Step {
            index,
            after,
            verb,
            target: held.target(&composition.host),
            composition: Some(composition.id.clone()),
        });
        index
    }
}

/// Room for GPUs at a host port or across an uplink: free from the start, or freed by unbinds.
struct Room {
    now: i64,
    coming: VecDeque<(u32, i64)>,
    /// Unbinds that every bind waits for, because more is there than the limit says.
    owed: Vec<u32>,
}

impl Room {
    fn new(free: i64, mut coming: VecDeque<(u32, i64)>) -> Self {
        let (mut now, mut owed) = (free, Vec::new());
        while now < 0
            && let Some((unbind, freed)) = coming.pop_front()
        {
            now += freed;
            owed.push(unbind);
        }
        Self { now, coming, owed }
    }

    /// Takes room for a number of GPUs, and returns the unbinds that free it.
    fn take(&mut self, mut gpus: i64) -> Vec<u32> {
        let mut wait_for = self.owed.clone();
        let at_once = self.now.clamp(0, gpus);
        self.now -= at_once;
        gpus -= at_once;
        while gpus > 0
            && let Some((unbind, freed)) = self.coming.front_mut()
        {
            wait_for.push(*unbind);
            let used = gpus.min(*freed);
            gpus -= used;
            *freed -= used;
            if *freed == 0 {
                self.coming.pop_front();
            }
        }
        wait_for
    }
}
