//! The plan: an immutable value, made on one snapshot, that says what to change and in which order.

use crate::composition::Composition;
use crate::demand::Demand;
use crate::promise::Promises;
use crate::reads::{Reads, Stale};
use crate::unplaced::Unplaced;
use crate::uplinks::Uplinks;
use jiff::Timestamp;
use poolwright_inventory::Snapshot;
use poolwright_model::id::{CompositionId, DemandId, GpuId, HostId, HostPortId, PlanId, UnitId};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::step::{Step, Verb};
use poolwright_sizing::need::GpuSet;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What is known and wanted when a plan is made or checked.
#[derive(Debug, Clone, Copy)]
pub struct World<'a> {
    pub snapshot: &'a Snapshot,
    /// All compositions that stand, also those that a running operation builds or takes down.
    pub held: &'a [Composition],
    /// What running operations have in hand. It is left alone.
    pub reserved: &'a [Reserved],
    /// All demands that are wanted now; ids are unique.
    pub demands: &'a [Demand],
    pub cordoned: &'a Cordoned,
    pub promises: &'a Promises,
    pub uplinks: &'a Uplinks,
}

/// A unit that a running operation has in hand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved {
    pub unit: UnitId,
    /// Where the operation puts it, if it does: its slots there are taken.
    pub host_port: Option<HostPortId>,
}

/// What an operator closed: it is given nothing new, and keeps what it has. And what a return does without for now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cordoned {
    #[serde(default)]
    pub hosts: BTreeSet<HostId>,
    /// Hosts that are closed for a time, with why, as it goes after a host's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub closed: BTreeMap<HostId, String>,
    #[serde(default)]
    pub gpus: BTreeSet<GpuId>,
    /// Units that somebody uses, and who: what is not wanted any more stays there, and all else of it goes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub in_use: BTreeMap<UnitId, String>,
    /// Demands that take what there is of what they want, where they can't have all of it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub in_part: BTreeSet<DemandId>,
}

impl Cordoned {
    /// Whether a host is given nothing new.
    pub fn closes(&self, host: &HostId) -> bool {
        self.hosts.contains(host) || self.closed.contains_key(host)
    }
}

/// Everything that a plan is made of.
#[derive(Debug, Clone)]
pub struct PlanInput<'a> {
    pub id: PlanId,
    /// The plan that was the target before, for history.
    pub parent: Option<PlanId>,
    pub now: Timestamp,
    /// For choices between equals. This version breaks ties by id and needs none.
    pub seed: u64,
    pub world: World<'a>,
}

/// What to change, why not more, and what that rests on.
///
/// `releases` and `composes` say which units leave and join, by composition: an id that is in `keeps` too
/// goes on with the units that stay, less those released, plus those composed. An id in `releases` that is
/// not in `keeps` ends. [`Plan::after`] does the sum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Plan {
    pub id: PlanId,
    pub parent: Option<PlanId>,
    pub made_at: Timestamp,
    pub seed: u64,
    pub reads: Reads,
    pub keeps: Vec<CompositionId>,
    pub releases: Vec<Composition>,
    pub composes: Vec<Composition>,
    pub unplaced: Vec<Unplaced>,
    /// What should go and can't yet. It stands in `keeps`.
    pub deferred: Vec<Deferred>,
    /// In an order in which they may be done one by one; `after` says which may run side by side.
    pub steps: Vec<Step>,
    /// The demands that it composes for, as they were when it was made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wanted: Vec<Wanted>,
}

/// What a demand asked for, which outlives the demand with the plan that served it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Wanted {
    pub demand: DemandId,
    pub since: Timestamp,
    pub alternatives: Vec<GpuSet>,
}

/// A composition that is no longer wanted, or not like this, and is left alone all the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Deferred {
    pub composition: CompositionId,
    pub because: Deferral,
}

/// Why it is left alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "why", rename_all = "kebab-case")]
pub enum Deferral {
    /// A running operation has the unit in hand.
    InOperation { unit: UnitId },
    /// The GPU is in a state from which it can't be released.
    Unsettled { gpu: GpuId, state: GpuState },
    /// The snapshot doesn't show the unit.
    NotSeen { unit: UnitId },
    /// Somebody uses the unit: all else of the composition goes.
    InUse { unit: UnitId, by: String },
    /// The unit is bound to another port than was recorded.
    Elsewhere {
        unit: UnitId,
        recorded: HostPortId,
        seen: HostPortId,
    },
}

impl Deferral {
    /// Whether the unit is gone from where it was put: waiting may not bring it back.
    pub fn is_loss(&self) -> bool {
        match self {
            Self::NotSeen { .. } | Self::Elsewhere { .. } => true,
            // Foreign: bound to something at which no host is shown.
            Self::Unsettled { state, .. } => matches!(state, GpuState::Missing | GpuState::Foreign),
            Self::InOperation { .. } | Self::InUse { .. } => false,
        }
    }
}

/// A plan in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Compositions that go on, changed or not.
    pub kept: usize,
    /// Compositions that end.
    pub released: usize,
    /// Compositions that are new.
    pub composed: usize,
    /// Compositions that gain or lose units.
    pub changed: usize,
    pub unplaced: usize,
    pub deferred: usize,
    /// GPUs that are bound and unbound.
    pub gpus_bound: usize,
    pub gpus_unbound: usize,
    pub steps: usize,
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn changes_nothing(&self) -> bool {
        self.steps.is_empty() && self.releases.is_empty() && self.composes.is_empty()
    }

    /// The units that it moves, with where it puts each, if it does.
    pub fn moves(&self) -> BTreeMap<&UnitId, Option<&HostPortId>> {
        let mut moves = BTreeMap::new();
        for step in &self.steps {
            let goes_to = moves.entry(&step.target.unit).or_insert(None);
            if step.verb == Verb::Bind {
                *goes_to = Some(&step.target.host_port);
            }
        }
        moves
    }

    /// The compositions that stand once the plan is done, in the order of their ids.
    pub fn after(&self, held: &[Composition]) -> Vec<Composition> {
        let mut after: BTreeMap<&CompositionId, Composition> =
            held.iter().map(|c| (&c.id, c.clone())).collect();
        for release in &self.releases {
            let gone: BTreeSet<&UnitId> = release.held.iter().map(|held| &held.unit).collect();
            if let Some(composition) = after.get_mut(&release.id) {
                composition.label = release.label.clone();
                composition.held.retain(|held| !gone.contains(&held.unit));
            }
        }
        for compose in &self.composes {
            match after.get_mut(&compose.id) {
                Some(composition) => {
                    composition.label = compose.label.clone();
                    composition.held.extend(compose.held.iter().cloned());
                    composition.held.sort_by(|a, b| a.unit.cmp(&b.unit));
                }
                None => {
                    after.insert(&compose.id, compose.clone());
                }
            }
        }
        after.into_values().filter(|c| !c.held.is_empty()).collect()
    }

    /// What is left of the plan where these units stay as they are. Its steps are all that there were.
    pub fn without(&self, units: &BTreeSet<UnitId>) -> Self {
        if units.is_empty() {
            return self.clone();
        }
        let rest = |compositions: &[Composition]| -> Vec<Composition> {
            let rest = compositions.iter().map(|composition| {
                let held = composition.held.iter();
                composition.with(held.filter(|held| !units.contains(&held.unit)).cloned().collect())
            });
            rest.filter(|composition| !composition.held.is_empty()).collect()
        };
        let mut composes = rest(&self.composes);
        if composes.len() < self.composes.len() {
            number_parts(&mut composes);
        }
        let stays = |c: &&Composition| c.held.iter().any(|held| units.contains(&held.unit));
        let stays = self.releases.iter().filter(stays).map(|c| c.id.clone());
        let keeps: BTreeSet<CompositionId> = self.keeps.iter().cloned().chain(stays).collect();
        Self {
            keeps: keeps.into_iter().collect(),
            releases: rest(&self.releases),
            composes,
            ..self.clone()
        }
    }

    /// What no longer is as the plan saw it; it may be applied only if this is empty.
    pub fn stale(&self, now: &Snapshot) -> Vec<Stale> {
        self.reads.stale(now)
    }

    pub fn summary(&self) -> Summary {
        let kept: BTreeSet<_> = self.keeps.iter().collect();
        let changed: BTreeSet<_> = self
            .releases
            .iter()
            .chain(&self.composes)
            .map(|c| &c.id)
            .filter(|id| kept.contains(id))
            .collect();
        let fresh = |list: &[Composition]| list.iter().filter(|c| !kept.contains(&c.id)).count();
        let gpus = |verb: Verb| {
            let steps = self.steps.iter().filter(|step| step.verb == verb);
            steps.map(|step| step.target.gpus.len()).sum()
        };
        Summary {
            kept: self.keeps.len(),
            released: fresh(&self.releases),
            composed: fresh(&self.composes),
            changed: changed.len(),
            unplaced: self.unplaced.len(),
            deferred: self.deferred.len(),
            gpus_bound: gpus(Verb::Bind),
            gpus_unbound: gpus(Verb::Unbind),
            steps: self.steps.len(),
        }
    }
}

/// The compositions of one demand are parts 1 to n of n.
fn number_parts(compositions: &mut [Composition]) {
    let mut of_demand: BTreeMap<DemandId, Vec<&mut Composition>> = BTreeMap::new();
    for composition in compositions {
        if let Some(demand) = composition.demand.clone() {
            of_demand.entry(demand).or_default().push(composition);
        }
    }
    for parts in of_demand.into_values() {
        let count = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        for (composition, number) in parts.into_iter().zip(1..) {
            (composition.part, composition.parts) = (number, count);
        }
    }
}

impl fmt::Display for Summary {
    /// Such as `compositions: 3 new, 1 released, 2 kept; GPUs: 14 to bind, 4 to unbind; 1 demand not served`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            composed,
            released,
            kept,
            ..
        } = self;
        write!(
            f,
            "compositions: {composed} new, {released} released, {kept} kept"
        )?;
        if self.changed > 0 {
            write!(f, " ({} of them changed)", self.changed)?;
        }
        write!(
            f,
            "; GPUs: {} to bind, {} to unbind",
            self.gpus_bound, self.gpus_unbound
        )?;
        if self.deferred > 0 {
            write!(f, "; {} put off", self.deferred)?;
        }
        match self.unplaced {
            0 => Ok(()),
            1 => f.write_str("; 1 demand not served"),
            n => write!(f, "; {n} demands not served"),
        }
    }
}
