//! What is asked for by name, as plans: attach these GPUs to that host, detach them, move them, release a composition.
//!
//! Nothing else changes: every other composition is kept, and demands are not looked at. What is not
//! possible is refused with the reason; a refusal changes nothing.

use crate::composition::{Composition, Held};
use crate::decide::{Changes, held};
use crate::names::Names;
use crate::plan::{Deferral, Plan, PlanInput};
use crate::survey::{Closed, Condition, Survey, UnitFacts};
use crate::uplinks::FullUplink;
use poolwright_model::id::{CompositionId, DemandId, GpuId, HostId, TenantId, UnitId};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) mod ports;

/// Why something asked for by name is not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("no GPU was named")]
    NoGpus,
    #[error("there is no GPU {gpu}")]
    UnknownGpu { gpu: GpuId },
    #[error("there is no host {host}")]
    UnknownHost { host: HostId },
    #[error("there is no composition {composition}")]
    UnknownComposition { composition: CompositionId },
    #[error("unit {unit} moves as a whole: also {}", list(missing))]
    WholeUnit { unit: UnitId, missing: Vec<GpuId> },
    #[error("GPU {gpu} is held by {composition}{} on {host}", for_demand(demand.as_ref()))]
    Held {
        gpu: GpuId,
        composition: CompositionId,
        host: HostId,
        /// `None`: it was attached by name.
        demand: Option<DemandId>,
    },
    #[error("GPU {gpu} can't be given away: {because}")]
    NotFree { gpu: GpuId, because: String },
    #[error("host {host} can't be given GPUs: it {because}")]
    HostClosed { host: HostId, because: String },
    #[error("these GPUs are of several kinds ({}), and a composition has one", kinds.join(", "))]
    SeveralKinds { kinds: Vec<String> },
    #[error("these GPUs are held by several tenants, or some of them by none, and a composition has one")]
    SeveralTenants,
    #[error("no port of host {host} reaches GPU {gpu}")]
    NotReachable { gpu: GpuId, host: HostId },
    #[error("host {host} has no free slot left for GPU {gpu}: {free} free before, {needed} needed")]
    NoSlot {
        gpu: GpuId,
        host: HostId,
        needed: u32,
        free: u32,
    },
    #[error(transparent)]
    Uplinks(FullUplink),
    #[error("GPU {gpu} is not held by any composition")]
    NotHeld { gpu: GpuId },
    #[error("GPU {gpu} is at host {host} already")]
    ThereAlready { gpu: GpuId, host: HostId },
    #[error("GPU {gpu} is held by {composition} for demand {demand}")]
    HeldForDemand {
        gpu: GpuId,
        composition: CompositionId,
        demand: DemandId,
    },
    #[error("{composition} can't be touched just now: {because}")]
    PutOff {
        composition: CompositionId,
        because: Deferral,
    },
}

impl Refusal {
    /// What to do next.
    pub fn hint(&self) -> String {
        match self {
            Self::NoGpus => "name at least one GPU; `poolwright get gpus` lists them".to_owned(),
            Self::UnknownGpu { .. } => "`poolwright get gpus` lists the GPUs that are seen".to_owned(),
            Self::UnknownHost { .. } => "`poolwright get hosts` lists the hosts that are seen".to_owned(),
            Self::UnknownComposition { .. } => "`poolwright get compositions` lists them".to_owned(),
            Self::WholeUnit { .. } => "name all GPUs of the unit".to_owned(),
            Self::Held {
                demand: Some(demand), ..
            } => format!(
                "take another (`poolwright get gpus` shows who holds which), or free it with all that {demand} \
                 holds: poolwright release {demand}"
            ),
            Self::Held { gpu, .. } => {
                format!(
                    "take another (`poolwright get gpus` shows who holds which), or free it: poolwright detach {gpu}"
                )
            }
            Self::NotFree { gpu, .. } => format!("poolwright describe gpu {gpu} says more"),
            Self::HostClosed { host, .. } => format!("poolwright describe host {host} says more"),
            Self::SeveralKinds { .. } => "attach each kind by itself".to_owned(),
            Self::SeveralTenants => "move those of each tenant by themselves".to_owned(),
            Self::NotReachable { .. } => {
                "`poolwright get fabrics` shows which hosts and GPUs are on one fabric".to_owned()
            }
            Self::Uplinks(full) => format!(
                "take GPUs at a switch of the host, detach some that are attached across, or let more be: {}",
                full.to_raise()
            ),
            Self::NoSlot { .. } => "release something from the host, or take another host".to_owned(),
            Self::NotHeld { .. } => {
                "there is nothing to detach; a binding of somebody else is left alone".to_owned()
            }
            Self::ThereAlready { .. } => "leave it out, or name another host".to_owned(),
            Self::HeldForDemand { demand, .. } => {
                format!("let go of all that the demand holds: poolwright release {demand}")
            }
            Self::PutOff {
                composition, because, ..
            } if because.is_loss() => format!(
                "if it does not come back, give it up, and let go of the rest: \
                 poolwright release composition/{composition} --force --reason WHY"
            ),
            Self::PutOff { .. } => {
                "wait for the operation, or resolve it; `poolwright ops list` shows it".to_owned()
            }
        }
    }
}

fn for_demand(demand: Option<&DemandId>) -> String {
    demand.map_or_else(String::new, |demand| format!(" for demand {demand}"))
}

fn list(ids: &[GpuId]) -> String {
    ids.iter().map(GpuId::as_str).collect::<Vec<_>>().join(", ")
}

/// What the composition is said to be for where nobody said it.
const BY_NAME: &str = "attached by name";

/// What GPUs are attached for by name.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Purpose {
    /// Said to people.
    pub label: Option<String>,
    /// Who holds them from then on.
    pub tenant: Option<TenantId>,
}

impl Purpose {
    pub fn labelled(label: impl Into<String>) -> Self {
        Self {
            label: Some(label.into()),
            tenant: None,
        }
    }
}

/// A plan that attaches these GPUs, and nothing else, to a host, in one new composition without a demand.
pub fn attach(gpus: &[GpuId], host: &HostId, input: &PlanInput<'_>) -> Result<Plan, Refusal> {
    attach_for(gpus, host, &Purpose::default(), input)
}

/// The same, in a composition that says what it is for.
pub fn attach_for(
    gpus: &[GpuId],
    host: &HostId,
    purpose: &Purpose,
    input: &PlanInput<'_>,
) -> Result<Plan, Refusal> {
    let survey = survey_of(gpus, host, input);
    let units = whole_units(&survey, gpus)?;
    let composed = on_host(&survey, &units, host, &[], input)?;
    let composed = Composition {
        label: purpose.label.clone().unwrap_or_else(|| BY_NAME.to_owned()),
        tenant: purpose.tenant.clone(),
        ..composed
    };
    Ok(attached(composed, input, &survey))
}

/// A plan that attaches these GPUs to the host of a composition that was attached by name, as a part of it.
pub fn extend(gpus: &[GpuId], composition: &CompositionId, input: &PlanInput<'_>) -> Result<Plan, Refusal> {
    let standing = by_name(composition, input)?;
    let survey = survey_of(gpus, &standing.host, input);
    let units = whole_units(&survey, gpus)?;
    let added = on_host(&survey, &units, &standing.host, &[], input)?;
    Ok(attached(standing.with(added.held), input, &survey))
}

/// A plan that gives such a composition GPUs for others that it has: all of it or nothing.
pub fn exchange(
    gains: &[GpuId],
    gives: &[GpuId],
    composition: &CompositionId,
    input: &PlanInput<'_>,
) -> Result<Plan, Refusal> {
    let standing = by_name(composition, input)?;
    let Going { releases, keeps } = going(gives, input)?;
    if let Some(other) = releases.iter().find(|c| c.id != *composition) {
        return Err(Refusal::Held {
            gpu: other.held[0].gpus[0].clone(),
            composition: other.id.clone(),
            host: other.host.clone(),
            demand: None,
        });
    }
    let survey = survey_of([gains, gives].concat().as_slice(), &standing.host, input);
    can_go(&survey, &releases)?;
    let units = whole_units(&survey, gains)?;
    let added = on_host(&survey, &units, &standing.host, &releases, input)?;
    let changes = Changes {
        keeps,
        composes: vec![standing.with(added.held)],
        releases,
        ..Changes::default()
    };
    Ok(changes.into_plan(input, &survey))
}

/// A composition that was attached by name.
fn by_name<'w>(composition: &CompositionId, input: &PlanInput<'w>) -> Result<&'w Composition, Refusal> {
    let standing = input.world.held.iter().find(|c| c.id == *composition);
    let standing = standing.ok_or_else(|| Refusal::UnknownComposition {
        composition: composition.clone(),
    })?;
    if let Some(demand) = &standing.demand {
        return Err(Refusal::HeldForDemand {
            gpu: standing.held[0].gpus[0].clone(),
            composition: composition.clone(),
            demand: demand.clone(),
        });
    }
    Ok(standing)
}

fn survey_of<'a>(gpus: &[GpuId], host: &HostId, input: &PlanInput<'a>) -> Survey<'a> {
    let named: BTreeSet<&GpuId> = gpus.iter().collect();
    let seen = input.world.snapshot.topology.gpus.iter();
    let units = seen.filter(|gpu| named.contains(&gpu.id)).map(|gpu| &gpu.unit);
    Survey::near(&input.world, units, [host])
}

fn attached(composed: Composition, input: &PlanInput<'_>, survey: &Survey<'_>) -> Plan {
    let changes = Changes {
        keeps: input.world.held.iter().map(|c| c.id.clone()).collect(),
        composes: vec![composed],
        ..Changes::default()
    };
    changes.into_plan(input, survey)
}

/// A plan that moves GPUs, which were attached by name, to another host: detached here and attached there, all of
/// them or none. They stay with their tenant.
pub fn move_to(gpus: &[GpuId], host: &HostId, input: &PlanInput<'_>) -> Result<Plan, Refusal> {
    let Going { releases, keeps } = going(gpus, input)?;
    let going = releases.iter().flat_map(|c| &c.held).map(|held| &held.unit);
    let survey = Survey::near(&input.world, going, [host]);
    let mut units = BTreeSet::new();
    for (composition, held) in releases
        .iter()
        .flat_map(|c| c.held.iter().map(move |held| (c, held)))
    {
        let gpu = &held.gpus[0];
        if composition.host == *host {
            let (gpu, host) = (gpu.clone(), host.clone());
            return Err(Refusal::ThereAlready { gpu, host });
        }
        let unit = survey.unit_place(&held.unit);
        let unit = unit.ok_or_else(|| Refusal::UnknownGpu { gpu: gpu.clone() })?;
        units.insert(unit);
    }
    can_go(&survey, &releases)?;
    let composed = Composition {
        tenant: tenant_of(&releases)?,
        ..on_host(&survey, &units, host, &releases, input)?
    };
    let changes = Changes {
        keeps,
        composes: vec![composed],
        releases,
        ..Changes::default()
    };
    Ok(changes.into_plan(input, &survey))
}

/// The one tenant that holds these. What is kept for one is nobody's.
fn tenant_of(compositions: &[Composition]) -> Result<Option<TenantId>, Refusal> {
    let held = compositions.iter();
    let tenants = held.map(|c| c.tenant.as_ref().filter(|_| c.kept.is_none()));
    let tenants: BTreeSet<Option<&TenantId>> = tenants.collect();
    match tenants.len() {
        0 | 1 => Ok(tenants.into_iter().flatten().next().cloned()),
        _ => Err(Refusal::SeveralTenants),
    }
}

/// These units in one new composition without a demand, once these have left.
fn on_host(
    survey: &Survey<'_>,
    units: &BTreeSet<usize>,
    host: &HostId,
    goes: &[Composition],
    input: &PlanInput<'_>,
) -> Result<Composition, Refusal> {
    let kinds = units
        .iter()
        .filter_map(|unit| survey.units[*unit].kind.as_deref());
    let kinds: BTreeSet<&str> = kinds.collect();
    if kinds.len() > 1 {
        let kinds = kinds.into_iter().map(str::to_owned).collect();
        return Err(Refusal::SeveralKinds { kinds });
    }
    is_open(survey, host)?;
    let placed = ports::choose(survey, units, host, goes)?;
    let held = placed.iter().map(|(unit, port)| {
        held(survey, *unit, port).ok_or_else(|| Refusal::NotReachable {
            gpu: survey.units[*unit].gpus[0].id.clone(),
            host: host.clone(),
        })
    });
    let held = held.collect::<Result<Vec<Held>, Refusal>>()?;
    let taken = input.world.held.iter().map(|c| &c.id);
    Ok(Composition {
        id: Names::new(&input.id, taken).give(host.as_str()),
        demand: None,
        tenant: None,
        host: host.clone(),
        held,
        part: 1,
        parts: 1,
        label: BY_NAME.to_owned(),
        kept: None,
    })
}

/// A plan that releases a composition, with all others of its demand: they stand together or not at all.
/// A demand that is still wanted would be served anew by the next plan; withdraw it first.
pub fn release(composition: &CompositionId, input: &PlanInput<'_>) -> Result<Plan, Refusal> {
    let all = input.world.held;
    let named = all.iter().find(|c| c.id == *composition);
    let named = named.ok_or_else(|| Refusal::UnknownComposition {
        composition: composition.clone(),
    })?;
    let together = |c: &&Composition| stand_together(c, named);
    let releases = all.iter().filter(together).cloned().collect();
    let keeps = all
        .iter()
        .filter(|c| !together(c))
        .map(|c| c.id.clone())
        .collect();
    take_down(input, releases, keeps)
}

/// A plan that binds units again where their compositions hold them: each is let go of, reset, and bound anew.
pub fn repair(units: &BTreeSet<UnitId>, input: &PlanInput<'_>) -> Result<Plan, Refusal> {
    let all = input.world.held;
    let is_lost = |held: &&Held| units.contains(&held.unit);
    let lost: Vec<Composition> = all
        .iter()
        .map(|c| c.with(c.held.iter().filter(is_lost).cloned().collect()))
        .filter(|c| !c.held.is_empty())
        .collect();
    let stays = |c: &&Composition| c.held.iter().any(|held| !is_lost(&held));
    let survey = Survey::of(&input.world);
    for composition in &lost {
        is_open(&survey, &composition.host)?;
        if let Some(because) = survey.deferral(composition) {
            let composition = composition.id.clone();
            return Err(Refusal::PutOff { composition, because });
        }
    }
    let changes = Changes {
        keeps: all.iter().filter(stays).map(|c| c.id.clone()).collect(),
        releases: lost.clone(),
        composes: lost,
        ..Changes::default()
    };
    Ok(changes.into_plan(input, &survey))
}

/// What a composition, and all others of its demand, hold and can't be asked to let go of: it is not seen, or bound
/// to another port.
pub fn lost(composition: &CompositionId, input: &PlanInput<'_>) -> BTreeMap<CompositionId, Vec<Held>> {
    let survey = Survey::of(&input.world);
    let is_lost = |held: &&Held| survey.deferral_of(held).is_some_and(|because| because.is_loss());
    let all = input.world.held;
    let Some(named) = all.iter().find(|c| c.id == *composition) else {
        return BTreeMap::new();
    };
    all.iter()
        .filter(|c| stand_together(c, named))
        .map(|c| (c.id.clone(), c.held.iter().filter(is_lost).cloned().collect()))
        .filter(|(_, lost): &(_, Vec<Held>)| !lost.is_empty())
        .collect()
}

fn stand_together(one: &Composition, other: &Composition) -> bool {
    one.id == other.id || one.demand.is_some() && one.demand == other.demand
}

/// A plan that detaches these GPUs from the hosts that they were attached to by name.
pub fn detach(gpus: &[GpuId], input: &PlanInput<'_>) -> Result<Plan, Refusal> {
    let Going { releases, keeps } = going(gpus, input)?;
    take_down(input, releases, keeps)
}

/// What GPUs that go take with them.
struct Going {
    /// The parts of compositions that go.
    releases: Vec<Composition>,
    /// Compositions of which something stays.
    keeps: BTreeSet<CompositionId>,
}

fn going(gpus: &[GpuId], input: &PlanInput<'_>) -> Result<Going, Refusal> {
    let holder = |gpu: &GpuId| {
        let all = input.world.held.iter();
        let mut units = all.flat_map(|c| c.held.iter().map(move |held| (c, held)));
        units.find(|(_, held)| held.gpus.contains(gpu))
    };
    if gpus.is_empty() {
        return Err(Refusal::NoGpus);
    }
    let mut goes: BTreeMap<&CompositionId, (&Composition, BTreeMap<&UnitId, &Held>)> = BTreeMap::new();
    for gpu in gpus {
        let (composition, held) = holder(gpu).ok_or_else(|| Refusal::NotHeld { gpu: gpu.clone() })?;
        if let Some(demand) = &composition.demand {
            return Err(Refusal::HeldForDemand {
                gpu: gpu.clone(),
                composition: composition.id.clone(),
                demand: demand.clone(),
            });
        }
        whole(&held.unit, held.gpus.iter(), gpus)?;
        let (_, units) = goes
            .entry(&composition.id)
            .or_insert((composition, BTreeMap::new()));
        units.insert(&held.unit, held);
    }
    let ends = |c: &Composition| {
        goes.get(&c.id)
            .is_some_and(|(_, units)| units.len() == c.held.len())
    };
    let keeps = input.world.held.iter().filter(|c| !ends(c));
    let releases = goes
        .values()
        .map(|(composition, units)| composition.with(units.values().copied().cloned().collect()));
    Ok(Going {
        keeps: keeps.map(|c| c.id.clone()).collect(),
        releases: releases.collect(),
    })
}

fn take_down(
    input: &PlanInput<'_>,
    releases: Vec<Composition>,
    keeps: BTreeSet<CompositionId>,
) -> Result<Plan, Refusal> {
    let going = releases.iter().flat_map(|c| &c.held).map(|held| &held.unit);
    let survey = Survey::near(&input.world, going, releases.iter().map(|c| &c.host));
    can_go(&survey, &releases)?;
    let changes = Changes {
        keeps,
        releases,
        ..Changes::default()
    };
    Ok(changes.into_plan(input, &survey))
}

/// Nothing puts off what is to be let go of.
fn can_go(survey: &Survey<'_>, releases: &[Composition]) -> Result<(), Refusal> {
    for composition in releases {
        if let Some(because) = survey.deferral(composition) {
            let composition = composition.id.clone();
            return Err(Refusal::PutOff { composition, because });
        }
    }
    Ok(())
}

/// The units of these GPUs, which must be free, and named completely.
fn whole_units(survey: &Survey<'_>, gpus: &[GpuId]) -> Result<BTreeSet<usize>, Refusal> {
    if gpus.is_empty() {
        return Err(Refusal::NoGpus);
    }
    let all = survey.units.iter().enumerate();
    let unit_of: BTreeMap<&GpuId, usize> = all
        .flat_map(|(at, unit)| unit.gpus.iter().map(move |gpu| (&gpu.id, at)))
        .collect();
    let mut units = BTreeSet::new();
    for gpu in gpus {
        let unit = unit_of
            .get(gpu)
            .ok_or_else(|| Refusal::UnknownGpu { gpu: gpu.clone() })?;
        let facts = &survey.units[*unit];
        // Naming the rest of its unit helps only where it can be moved at all.
        may_be_given(survey, facts, gpu)?;
        whole(facts.id, facts.gpus.iter().map(|gpu| &gpu.id), gpus)?;
        units.insert(*unit);
    }
    Ok(units)
}

fn whole<'g>(
    unit: &UnitId,
    members: impl Iterator<Item = &'g GpuId>,
    named: &[GpuId],
) -> Result<(), Refusal> {
    let missing: Vec<GpuId> = members.filter(|gpu| !named.contains(gpu)).cloned().collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Refusal::WholeUnit {
            unit: unit.clone(),
            missing,
        }),
    }
}

pub(crate) fn is_free(survey: &Survey<'_>, unit: &UnitFacts<'_>) -> Result<(), Refusal> {
    may_be_given(survey, unit, &unit.gpus[0].id)
}

/// Whether the unit may be given away; a refusal names the GPU of it that was asked for.
fn may_be_given(survey: &Survey<'_>, unit: &UnitFacts<'_>, named: &GpuId) -> Result<(), Refusal> {
    let gpu = unit.gpus[0];
    let because = match unit.condition {
        Condition::Free | Condition::Dirty => return Ok(()),
        Condition::Held(at) => {
            let composition = &survey.world.held[at];
            return Err(Refusal::Held {
                gpu: named.clone(),
                composition: composition.id.clone(),
                host: composition.host.clone(),
                demand: composition.demand.clone(),
            });
        }
        Condition::Reserved => "a running operation has it in hand".to_owned(),
        Condition::Foreign => match &gpu.host {
            Some(host) => format!("somebody else bound it to {host}"),
            None => "somebody else bound it".to_owned(),
        },
        Condition::NotComposable => match unit.gpus.iter().find_map(|gpu| gpu.composability.0.as_ref()) {
            Some(why) => why.to_string(),
            None => "its memory size is unknown".to_owned(),
        },
        Condition::Unsettled => format!("it is {}", gpu.state),
        Condition::Unhealthy => "its health is critical".to_owned(),
        Condition::Quarantined => "it is quarantined".to_owned(),
        Condition::Cordoned => "it is cordoned".to_owned(),
        Condition::Unbindable => "no manager can bind its unit, or its kind is unknown".to_owned(),
    };
    Err(Refusal::NotFree {
        gpu: named.clone(),
        because,
    })
}

pub(crate) fn is_open(survey: &Survey<'_>, host: &HostId) -> Result<(), Refusal> {
    let facts = survey
        .host(host)
        .ok_or_else(|| Refusal::UnknownHost { host: host.clone() })?;
    let because = match facts.closed {
        None => return Ok(()),
        Some(Closed::Off) => "is not powered on",
        Some(Closed::Cordoned) => match survey.world.cordoned.closed.get(host) {
            Some(why) => why,
            None => "is cordoned",
        },
        Some(Closed::Unbindable) => "has no port that can be bound to",
        Some(Closed::Keeps) => "keeps GPUs for a tenant that can't be let go of just now",
    };
    Err(Refusal::HostClosed {
        host: host.clone(),
        because: because.to_owned(),
    })
}
