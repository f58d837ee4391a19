//! The plan that takes over what somebody else bound at an endpoint: a composition a host, of the units that were
//! found there. Nothing is moved. A bind whose goal holds already sends nothing, so the plan's steps only read
//! back that each unit is where it was seen; whoever runs them must refuse to bind.

use crate::composition::{Composition, Held};
use crate::decide::{Changes, held};
use crate::names::Names;
use crate::plan::{Plan, PlanInput};
use crate::sequence;
use crate::survey::{Condition, Survey, UnitFacts};
use poolwright_model::id::{ControlEndpointId, GpuId, HostId, UnitId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What would become ours, and what would not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adoption {
    pub plan: Plan,
    pub left: Vec<Left>,
}

/// A GPU that somebody bound and that can't be taken over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Left {
    pub gpu: GpuId,
    pub because: String,
}

/// Takes over all that is bound by somebody else and that this endpoint can bind.
pub fn adopt(endpoint: &ControlEndpointId, input: &PlanInput<'_>) -> Adoption {
    let survey = Survey::of(&input.world);
    let label = format!("found bound when {endpoint} was adopted");
    take_over(endpoint, &survey, |_| true, &label, input)
}

/// Takes over these units alone, as far as they are bound by somebody else and this endpoint can bind them.
pub fn adopt_units(
    endpoint: &ControlEndpointId,
    units: &BTreeSet<UnitId>,
    label: &str,
    input: &PlanInput<'_>,
) -> Adoption {
    let survey = Survey::of(&input.world);
    take_over(endpoint, &survey, |unit| units.contains(unit), label, input)
}

fn take_over(
    endpoint: &ControlEndpointId,
    survey: &Survey<'_>,
    is_meant: impl Fn(&UnitId) -> bool,
    label: &str,
    input: &PlanInput<'_>,
) -> Adoption {
    let mut found: BTreeMap<HostId, Vec<Held>> = BTreeMap::new();
    let mut left = Vec::new();
    for (at, unit) in survey.units.iter().enumerate() {
        let is_there = unit
            .gpus
            .iter()
            .any(|gpu| gpu.control.iter().any(|at| at.endpoint == *endpoint));
        let is_bound = unit
            .gpus
            .iter()
            .any(|gpu| gpu.host.is_some() || gpu.host_port.is_some());
        let is_ours = matches!(unit.condition, Condition::Held(_) | Condition::Reserved);
        if !is_there || !is_bound || is_ours || !is_meant(unit.id) {
            continue;
        }
        match as_found(survey, at, unit, endpoint) {
            Ok((host, held)) => found.entry(host).or_default().push(held),
            Err(because) => left.extend(unit.gpus.iter().map(|gpu| Left {
                gpu: gpu.id.clone(),
                because: because.clone(),
            })),
        }
    }
    let mut names = Names::new(&input.id, input.world.held.iter().map(|c| &c.id));
    let composes = found.into_iter().map(|(host, mut held)| {
        held.sort_by(|a, b| a.unit.cmp(&b.unit));
        Composition {
            id: names.give(host.as_str()),
            demand: None,
            tenant: None,
            host,
            held,
            part: 1,
            parts: 1,
            label: label.to_owned(),
            kept: None,
        }
    });
    let changes = Changes {
        keeps: input.world.held.iter().map(|c| c.id.clone()).collect(),
        composes: composes.collect(),
        ..Changes::default()
    };
    let mut plan = changes.into_plan(input, survey);
    plan.steps = sequence::found(&plan.composes);
    Adoption { plan, left }
}

/// The unit where it was found; or why it stays somebody else's.
fn as_found(
    survey: &Survey<'_>,
    at: usize,
    unit: &UnitFacts<'_>,
    endpoint: &ControlEndpointId,
) -> Result<(HostId, Held), String> {
    if unit.condition != Condition::Foreign {
        let why = unit.gpus.iter().find_map(|gpu| gpu.composability.0.as_ref());
        return Err(why.map_or_else(|| format!("it is {}", unit.gpus[0].state), ToString::to_string));
    }
    let (Some(host), Some(port)) = (&unit.gpus[0].host, &unit.gpus[0].host_port) else {
        return Err("nobody says to which host port it is bound".to_owned());
    };
    if unit.gpus.iter().any(|gpu| gpu.host_port.as_ref() != Some(port)) {
        return Err(format!("the GPUs of {} are bound to several ports", unit.id));
    }
    held(survey, at, port)
        .filter(|held| held.unit_at.endpoint == *endpoint)
        .map(|held| (host.clone(), held))
        .ok_or_else(|| format!("{endpoint} can't bind it to {port}, or its kind is unknown"))
}
