//! What is wanted, as a file has it: demands, read and judged one by one. In `cps-1` a demand has a window and one need;
//! a file of the schema [`SCHEMA`](super::extended::SCHEMA) may say more: [`Wanted`].

mod phases;
mod running;

use super::bundle::{Bundle, Phase, Share};
use super::cps1::{Instance, InstanceDemand, Invalid, MOST_TOGETHER, amount, invalid};
use super::extended::is_default;
use super::payable::MOST_COST;
use super::problem::{Cost, Demand, Group, Need, Problem, UNIT, choices};
use phases::{At, PhaseAt, parts, phases};
pub(super) use running::can_go_on;
pub use running::{Preemptible, Running};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};

/// No priority is higher.
const MOST_PRIORITY: u32 = 1000;

/// What a file may say of a demand beyond `cps-1`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Wanted {
    /// Hosts that it may run on; left out: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// Types of GPU that it may have; left out: all with enough memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub types: Option<Vec<String>>,
    /// Slots before its window in which its GPUs are attached and checked already; paid for as at work. What of them
    /// would lie before the horizon is past.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lead: u64,
    /// All its GPUs are behind one switch.
    #[serde(default, skip_serializing_if = "is_default")]
    pub one_switch: bool,
    /// Higher ones are served first, whatever that costs; 0: as far as it is worth what it costs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: u32,
    /// Sets of GPUs of which it gets one, the first preferred: in place of `gpus`, `min_mem_gb` and `types`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Vec<WantedGpus>>,
    /// It spans hosts: so many times what it wants, each on one host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<WantedParts>,
    /// It runs when the horizon begins, and stays where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Running>,
    /// It may be ended early all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemptible: Option<Preemptible>,
    /// Windows that follow each other from `start` on, each with GPUs and parts of its own; served all, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases: Option<Vec<WantedPhase>>,
}

/// How many parts a demand has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedParts {
    /// With fewer it can do nothing.
    pub least: u64,
    /// Left out: as many as `least`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u64>,
    /// Two of them may run on one host.
    #[serde(default, skip_serializing_if = "is_default")]
    pub same_host_ok: bool,
}

/// What a demand wants in one of several windows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WantedPhase {
    /// How long it is.
    pub slots: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_mem_gb: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub types: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Vec<WantedGpus>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<WantedParts>,
}

/// A set of GPUs that a demand can do with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WantedGpus {
    pub gpus: i64,
    pub min_mem_gb: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub types: Option<Vec<String>>,
    /// What it costs to be served so, in the unit of costs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub penalty: f64,
}

/// What there is, that a demand may name.
pub(super) struct Known<'a> {
    pub groups: &'a [Group],
    pub kinds: Vec<&'a str>,
    pub switches: &'a [String],
    pub hosts: &'a HashMap<String, usize>,
}

/// All demands of a file. What `wanted` lacks at the end is nothing.
pub(super) fn read(
    instance: &Instance,
    wanted: &[Wanted],
    known: &Known<'_>,
) -> Result<(Vec<Demand>, Vec<Bundle>), Invalid> {
    let plain = Wanted::default();
    let more = wanted.iter().chain(std::iter::repeat(&plain));
    let (mut ids, mut reader) = (BTreeSet::new(), Reader::of(instance, known));
    for (index, (demand, more)) in instance.demands.iter().zip(more).enumerate() {
        let at = At {
            index,
            id: &demand.id,
        };
        if !ids.insert(&demand.id) {
            let found = format!("{:?} a second time", demand.id);
            return invalid(at.field("id"), found, "ids of demands differ");
        }
        reader.demand(&at, demand, more)?;
    }
    Ok((reader.demands, reader.bundles))
}

struct Reader<'a> {
    known: &'a Known<'a>,
    kind_of: HashMap<&'a str, usize>,
    slots: i64,
    /// A GPU of a demand of weight 1 unserved for a slot.
    a_gpu_slot: f64,
    /// What everything costs unserved so far.
    total: f64,
    demands: Vec<Demand>,
    bundles: Vec<Bundle>,
}

impl<'a> Reader<'a> {
    fn of(instance: &Instance, known: &'a Known<'a>) -> Self {
        let kinds = known.kinds.iter().enumerate();
        Self {
            known,
            kind_of: kinds.map(|(index, kind)| (*kind, index)).collect(),
            slots: instance.horizon_slots as i64,
            a_gpu_slot: instance.costs.unmet_per_gpu_slot * UNIT,
            total: 0.0,
            demands: Vec::new(),
            bundles: Vec::new(),
        }
    }

    fn demand(&mut self, at: &At<'_>, demand: &InstanceDemand, more: &Wanted) -> Result<(), Invalid> {
        let weight = amount(at.field("weight"), demand.weight)?;
        if more.priority > MOST_PRIORITY {
            let allowed = format!("write 0 to {MOST_PRIORITY}");
            return invalid(at.field("priority"), more.priority.to_string(), allowed);
        }
        let phases = phases(at, demand, more, self.slots)?;
        let end = phases.last().map_or(0, |phase| phase.window.end) as u64;
        if more.lead > end {
            let allowed = format!("its window ends at {end}: write 0 to {end}");
            return invalid(at.field("lead"), more.lead.to_string(), allowed);
        }
        let hosts = more.hosts.as_deref();
        let hosts = named(
            at.field("hosts"),
            hosts,
            |host| self.known.hosts.get(host),
            "a host of \"hosts\"",
        )?;
        let (first, alone) = (
            self.demands.len(),
            phases.iter().all(|phase| phase.parts.is_none()),
        );
        let mut bundle = Bundle { phases: Vec::new() };
        for (place, phase) in phases.iter().enumerate() {
            let needs = self.needs(phase)?;
            let parts = parts(phase, self.demands.len())?;
            let unmet = self.unmet(at, weight, &needs, phase.window.len(), parts.1)?;
            // What of the lead would lie before the horizon is past.
            let lead = if place == 0 {
                phase.window.start.min(more.lead as usize)
            } else {
                0
            };
            let window = phase.window.start - lead..phase.window.end;
            let demand = Demand {
                id: demand.id.clone(),
                tenant: demand.tenant.clone(),
                lead,
                unmet,
                choices: choices(self.known.groups, self.known.kinds.len(), &needs, window.len()),
                needs,
                hosts: hosts.clone(),
                quota: None,
                one_switch: more.one_switch,
                priority: more.priority,
                share: None,
                runs: None,
                window,
            };
            if more.running.is_some() || more.preemptible.is_some() {
                return self.running(at, more, &phases, demand);
            }
            let start = self.demands.len();
            self.demands.resize(start + parts.1, demand);
            bundle.phases.push(Phase {
                parts: start..start + parts.1,
                least: parts.0,
                apart: phase.parts.is_some_and(|parts| !parts.same_host_ok),
            });
        }
        if !(alone && phases.len() == 1) {
            self.bundle(first, bundle);
        }
        Ok(())
    }

    fn bundle(&mut self, first: usize, bundle: Bundle) {
        for (phase, of_phase) in bundle.phases.iter().enumerate() {
            for place in of_phase.parts.clone() {
                self.demands[place].share = Some(Share {
                    bundle: self.bundles.len(),
                    phase,
                    part: place - of_phase.parts.start,
                    phased: bundle.phases.len() > 1,
                    parted: of_phase.parts.len() > 1,
                });
            }
        }
        debug_assert_eq!(bundle.demands(), first..self.demands.len());
        self.bundles.push(bundle);
    }

    /// What one part unserved costs, where there are so many.
    fn unmet(
        &mut self,
        at: &At<'_>,
        weight: f64,
        needs: &[Need],
        slots: usize,
        parts: usize,
    ) -> Result<Cost, Invalid> {
        let gpus = needs.first().map_or(0, |need| need.gpus);
        let unmet = self.a_gpu_slot * weight * (f64::from(gpus) * slots as f64);
        let dearest = needs.iter().map(|need| need.penalty).max().unwrap_or(0);
        self.total += parts as f64 * (unmet + dearest as f64);
        if self.total > MOST_COST {
            let found =
                format!("{weight}, with which all demands together cost more than {MOST_COST} thousandths");
            return invalid(at.field("weight"), found, "use a larger unit of cost");
        }
        Ok(unmet.round_ties_even() as Cost)
    }

    /// What one part of a phase can do with: its options, or what it says itself.
    fn needs(&self, phase: &PhaseAt<'_>) -> Result<Vec<Need>, Invalid> {
        let Some(options) = phase.options else {
            let Some(gpus) = phase.gpus else {
                return invalid(
                    phase.field("gpus"),
                    "missing",
                    format!("write 1 to {MOST_TOGETHER}"),
                );
            };
            let Some(min_mem_gb) = phase.min_mem_gb else {
                return invalid(
                    phase.field("min_mem_gb"),
                    "missing",
                    "write what a GPU must have, or 0",
                );
            };
            let types = phase.types.cloned();
            let gpus = WantedGpus {
                gpus,
                min_mem_gb,
                types,
                penalty: 0.0,
            };
            return Ok(vec![self.need(&|name| phase.field(name), &gpus)?]);
        };
        let beside = [
            ("gpus", phase.gpus.is_some()),
            ("min_mem_gb", phase.min_mem_gb.is_some()),
            ("types", phase.types.is_some()),
        ];
        if let Some((name, _)) = beside.iter().find(|(_, is_there)| *is_there) {
            let allowed = format!("write {name} in each option, and not beside them");
            return invalid(phase.field(name), "given beside options", allowed);
        }
        if options.is_empty() {
            let allowed = "write one set of GPUs or more, or leave it out";
            return invalid(phase.field("options"), "none", allowed);
        }
        let option = |(index, option): (usize, &WantedGpus)| {
            self.need(&|name| phase.field(&format!("options[{index}].{name}")), option)
        };
        options.iter().enumerate().map(option).collect()
    }

    fn need(&self, field: &dyn Fn(&str) -> String, wanted: &WantedGpus) -> Result<Need, Invalid> {
        if !(1..=MOST_TOGETHER as i64).contains(&wanted.gpus) {
            let allowed = format!("write 1 to {MOST_TOGETHER}");
            return invalid(field("gpus"), wanted.gpus.to_string(), allowed);
        }
        let types = wanted.types.as_deref();
        Ok(Need {
            gpus: wanted.gpus as u16,
            memory_gb: amount(field("min_mem_gb"), wanted.min_mem_gb)?,
            kinds: named(
                field("types"),
                types,
                |kind| self.kind_of.get(kind),
                "a type of \"gpus\"",
            )?,
            penalty: (amount(field("penalty"), wanted.penalty)? * UNIT).round_ties_even() as Cost,
        })
    }
}

/// The indices of names, in order.
pub(super) fn named<'k>(
    field: String,
    names: Option<&[String]>,
    known: impl Fn(&str) -> Option<&'k usize>,
    what: &str,
) -> Result<Option<Vec<usize>>, Invalid> {
    let Some(names) = names else { return Ok(None) };
    if names.is_empty() {
        return invalid(field, "none", format!("name {what}, or leave it out"));
    }
    let mut found = Vec::new();
    for name in names {
        match known(name) {
            Some(index) => found.push(*index),
            None => return invalid(field, format!("{name:?}"), format!("name {what}")),
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(Some(found))
}
