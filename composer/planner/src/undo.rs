//! The plan that takes a plan back which was carried out: what it bound is unbound, what it unbound is bound
//! again to the ports where it was, in an order that slots and resets allow.
//!
//! Only where everything still is as the plan left it: what has changed since is named, and nothing is done.
//! Demands are not looked at.

use crate::composition::{Composition, Held};
use crate::decide::{Changes, held};
use crate::direct::ports::Across;
use crate::direct::{self, is_free, is_open};
use crate::plan::{Plan, PlanInput};
use crate::survey::Survey;
use poolwright_model::id::{CompositionId, GpuId, HostPortId, UnitId};
use std::collections::{BTreeMap, BTreeSet};

/// Why a plan can't be taken back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("it moved no GPU, so there is nothing to take back")]
    NothingMoved,
    /// It ended, or let go of the unit, or holds it elsewhere.
    #[error("composition {composition} no longer holds {unit} where it was put")]
    Changed {
        composition: CompositionId,
        unit: UnitId,
    },
    #[error("composition {composition}, which it ended, is there again")]
    Back { composition: CompositionId },
    #[error("composition {composition}, which it took GPUs from, has ended since")]
    Ended { composition: CompositionId },
    /// Something that it let go of can't be had again.
    #[error(transparent)]
    Gone(#[from] direct::Refusal),
}

/// A plan that takes `done` back.
pub fn undo(done: &Plan, input: &PlanInput<'_>) -> Result<Plan, Refusal> {
    if done.composes.is_empty() && done.releases.is_empty() {
        return Err(Refusal::NothingMoved);
    }
    let survey = Survey::of(&input.world);
    let standing: BTreeMap<&CompositionId, &Composition> =
        input.world.held.iter().map(|c| (&c.id, c)).collect();
    let goes_on = |id: &CompositionId| done.keeps.contains(id);
    let begun: BTreeSet<&CompositionId> = done.composes.iter().map(|c| &c.id).collect();

    for composed in &done.composes {
        still_held(composed, standing.get(&composed.id).copied())?;
        if let Some(because) = survey.deferral(composed) {
            let composition = composed.id.clone();
            return Err(direct::Refusal::PutOff { composition, because }.into());
        }
    }
    for released in &done.releases {
        let composition = released.id.clone();
        match (standing.contains_key(&composition), goes_on(&composition)) {
            (true, false) if !begun.contains(&composition) => return Err(Refusal::Back { composition }),
            (false, true) => return Err(Refusal::Ended { composition }),
            _ => {}
        }
    }
    can_be_had(&survey, &done.releases, &done.composes)?;

    let stays = |c: &&&Composition| goes_on(&c.id) || !begun.contains(&c.id);
    let changes = Changes {
        keeps: standing.values().filter(stays).map(|c| c.id.clone()).collect(),
        releases: done.composes.iter().map(|c| as_held(c, &standing)).collect(),
        composes: done.releases.iter().map(|c| as_seen(c, &survey)).collect(),
        ..Changes::default()
    };
    Ok(changes.into_plan(input, &survey))
}

/// The GPUs that the plan attached, at their current addresses.
fn as_held(composed: &Composition, standing: &BTreeMap<&CompositionId, &Composition>) -> Composition {
    let now = standing.get(&composed.id).into_iter().flat_map(|c| &c.held);
    let now = now.filter(|now| composed.held.iter().any(|held| now.is_same(held)));
    composed.with(now.cloned().collect())
}

/// The GPUs that the plan detached, at their current addresses.
fn as_seen(released: &Composition, survey: &Survey<'_>) -> Composition {
    let now = |before: &Held| held(survey, survey.unit_place(&before.unit)?, &before.host_port);
    let units = released
        .held
        .iter()
        .map(|before| now(before).unwrap_or_else(|| before.clone()));
    released.with(units.collect())
}

fn still_held(composed: &Composition, now: Option<&Composition>) -> Result<(), Refusal> {
    let holds = |held: &&Held| now.is_some_and(|now| now.held.iter().any(|now| now.is_same(held)));
    match composed.held.iter().find(|held| !holds(held)) {
        None => Ok(()),
        Some(held) => Err(Refusal::Changed {
            composition: composed.id.clone(),
            unit: held.unit.clone(),
        }),
    }
}

/// What was let go of is free, its hosts take it, and there is room at its ports once the others are gone.
fn can_be_had(
    survey: &Survey<'_>,
    wanted: &[Composition],
    leaving: &[Composition],
) -> Result<(), direct::Refusal> {
    let leaves: BTreeSet<&UnitId> = leaving
        .iter()
        .flat_map(|c| &c.held)
        .map(|held| &held.unit)
        .collect();
    let mut across = Across::without(survey, leaving);
    let mut room: BTreeMap<&HostPortId, i64> = BTreeMap::new();
    for held in leaving.iter().flat_map(|c| &c.held) {
        *room.entry(&held.host_port).or_default() += i64::from(held.slots());
    }
    for composition in wanted {
        is_open(survey, &composition.host)?;
        for held in &composition.held {
            let gpu: GpuId = held.gpus[0].clone();
            let unit = survey.unit(&held.unit);
            let unit = unit.ok_or_else(|| direct::Refusal::UnknownGpu { gpu: gpu.clone() })?;
            if !leaves.contains(&held.unit) {
                is_free(survey, unit)?;
            }
            let host = composition.host.clone();
            let Some(port) = survey.port(&held.host_port) else {
                return Err(direct::Refusal::NotReachable { gpu, host });
            };
            let used = room.entry(&held.host_port).or_default();
            *used -= i64::from(held.slots());
            if port.free + *used < 0 {
                return Err(direct::Refusal::NoSlot {
                    gpu,
                    host,
                    needed: held.slots(),
                    free: u32::try_from(port.free).unwrap_or_default(),
                });
            }
            if let Err(uplink) = across.take(&survey.load.crossing_of(held)) {
                let all = wanted.iter().flat_map(|c| &c.held);
                let all = all.flat_map(|held| survey.load.crossing_of(held));
                let gpus = all.filter(|(at, _)| *at == uplink).map(|(_, gpus)| gpus).sum();
                let before = Across::without(survey, leaving);
                return Err(direct::Refusal::Uplinks(before.full(survey, uplink, gpus)));
            }
        }
    }
    Ok(())
}
