//! Whether a GPU can be moved, as far as one endpoint knows: a baseboard stays where it is, and unknown means
//! not composable.

use super::Seen;
use super::chassis;
use super::gpu::{GpuSeen, Owner};
use crate::southbound::links;
use poolwright_model::composable::{Composability, WhyNotKind};
use poolwright_model::control::ControlPoint;
use poolwright_model::topology::FabricPort;
use std::collections::BTreeSet;

/// The baseboard that a GPU is part of for good, and what says so; by the GPU's own word or its chassis'.
pub(crate) struct Baseboard {
    pub(crate) name: String,
    why: String,
}

impl Baseboard {
    pub(crate) fn of(seen: &Seen, gpu: &GpuSeen) -> Option<Self> {
        let by_chassis = || {
            let chassis = seen
                .chassis
                .iter()
                .find(|chassis| Some(&chassis.path) == gpu.chassis.as_ref())?;
            Some(format!("in its chassis' words, {}", chassis.permanent.as_ref()?))
        };
        let why = gpu.permanent.clone().or_else(by_chassis)?;
        Some(Self {
            name: name(seen, gpu),
            why,
        })
    }
}

/// The outermost thing that its chassis is contained in and that is no whole machine, else the system that
/// shows it.
fn name(seen: &Seen, gpu: &GpuSeen) -> String {
    let is_machine = |path: &str| {
        seen.chassis
            .iter()
            .any(|chassis| chassis.path == path && chassis.is_enclosure)
    };
    let around = gpu
        .chassis
        .as_deref()
        .map(|path| chassis::containers(&seen.chassis, path));
    let board = around
        .into_iter()
        .flatten()
        .take_while(|path| !is_machine(path))
        .last();
    let system = match &gpu.owner {
        Owner::System(path) => Some(path.as_str()),
        Owner::Chassis | Owner::Block => None,
    };
    links::last_part(board.or(system).unwrap_or(&gpu.path)).to_owned()
}

/// The first reason against moving it. `conflict` says who holds it twice.
pub(crate) fn composability(
    gpu: &GpuSeen,
    baseboard: Option<&Baseboard>,
    conflict: Option<String>,
    control: &[ControlPoint],
    ports: &BTreeSet<FabricPort>,
) -> Composability {
    if let Some(Baseboard { name, why }) = baseboard {
        return Composability::no(WhyNotKind::Soldered, format!("part of baseboard {name}: {why}"));
    }
    if let Some(why) = conflict {
        return Composability::no(WhyNotKind::Conflict, why);
    }
    if gpu.uuid.is_none() && gpu.serial.is_none() {
        let why = "identified by location only: it shows neither UUID nor serial number";
        return Composability::no(WhyNotKind::NoIdentity, why);
    }
    match (control.is_empty(), ports.is_empty()) {
        (false, _) => Composability::YES,
        (true, true) => Composability::no(
            WhyNotKind::NoFabric,
            "this endpoint shows no fabric that reaches it",
        ),
        (true, false) => Composability::no(
            WhyNotKind::NoControl,
            "its fabric offers no way to bind it that we know",
        ),
    }
}
