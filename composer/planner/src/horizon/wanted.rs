//! What is wanted, as a file has it: demands, read and judged one by one. In `cps-1` a demand has a window and one need;
//! a file of the schema [`SCHEMA`](super::extended::SCHEMA) may say more: [`Wanted`].

use super::cps1::{Instance, InstanceDemand, Invalid, MOST_TOGETHER, amount, invalid};
use super::problem::{Cost, Demand, Group, Need, UNIT, choices};
use serde::Deserialize;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

/// What all demands together may cost unserved.
const MOST_COST: f64 = 1e15;

/// What a file may say of a demand beyond `cps-1`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Wanted {
    /// Hosts that it may run on; left out: all.
    #[serde(default)]
    pub hosts: Option<Vec<String>>,
    /// Types of GPU that it may have; left out: all with enough memory.
    #[serde(default)]
    pub types: Option<Vec<String>>,
    /// Slots before its window in which its GPUs are attached and checked already; paid for as at work. What of them
    /// would lie before the horizon is past.
    #[serde(default)]
    pub lead: u64,
    /// All its GPUs are behind one switch.
    #[serde(default)]
    pub one_switch: bool,
    /// Sets of GPUs of which it gets one, the first preferred: in place of `gpus`, `min_mem_gb` and `types`.
    #[serde(default)]
    pub options: Option<Vec<WantedGpus>>,
}

/// A set of GPUs that a demand can do with.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct WantedGpus {
    pub gpus: i64,
    pub min_mem_gb: f64,
    #[serde(default)]
    pub types: Option<Vec<String>>,
    /// What it costs to be served so, in the unit of costs.
    #[serde(default)]
    pub penalty: f64,
}

/// What there is, that a demand may name.
pub(super) struct Known<'a> {
    pub groups: &'a [Group],
    pub kinds: Vec<&'a str>,
    pub hosts: &'a HashMap<String, usize>,
}

/// All demands of a file. What `wanted` lacks at the end is nothing.
pub(super) fn read(
    instance: &Instance,
    wanted: &[Wanted],
    known: &Known<'_>,
) -> Result<Vec<Demand>, Invalid> {
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
    Ok(reader.demands)
}

/// Where something is said.
struct At<'a> {
    index: usize,
    id: &'a str,
}

impl At<'_> {
    fn field(&self, name: &str) -> String {
        format!("demands[{}] ({}).{name}", self.index, self.id)
    }
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
        }
    }

    fn demand(&mut self, at: &At<'_>, demand: &InstanceDemand, more: &Wanted) -> Result<(), Invalid> {
        let window = self.window(at, demand)?;
        let needs = self.needs(at, demand, more)?;
        let weight = amount(at.field("weight"), demand.weight)?;
        let gpus = needs.first().map_or(0, |need| need.gpus);
        let unmet = self.a_gpu_slot * weight * (f64::from(gpus) * window.len() as f64);
        let dearest = needs.iter().map(|need| need.penalty).max().unwrap_or(0);
        self.total += unmet + dearest as f64;
        if self.total > MOST_COST {
            let found =
                format!("{weight}, with which all demands together cost more than {MOST_COST} thousandths");
            return invalid(at.field("weight"), found, "use a larger unit of cost");
        }
        let most = window.end as u64;
        if more.lead > most {
            let allowed = format!("its window ends at {most}: write 0 to {most}");
            return invalid(at.field("lead"), more.lead.to_string(), allowed);
        }
        let lead = window.start.min(more.lead as usize);
        let window = window.start - lead..window.end;
        let hosts = more.hosts.as_deref();
        self.demands.push(Demand {
            id: demand.id.clone(),
            tenant: demand.tenant.clone(),
            lead,
            unmet: unmet.round_ties_even() as Cost,
            choices: choices(self.known.groups, self.known.kinds.len(), &needs, window.len()),
            needs,
            hosts: named(
                at.field("hosts"),
                hosts,
                |host| self.known.hosts.get(host),
                "a host of \"hosts\"",
            )?,
            quota: None,
            one_switch: more.one_switch,
            window,
        });
        Ok(())
    }

    fn window(&self, at: &At<'_>, demand: &InstanceDemand) -> Result<Range<usize>, Invalid> {
        let (start, end, slots) = (demand.start, demand.end, self.slots);
        if !(0..slots).contains(&start) {
            let allowed = format!("the horizon has slots 0 to {}", slots - 1);
            return invalid(at.field("start"), start.to_string(), allowed);
        }
        if end <= start || end > slots {
            let allowed = format!("the window starts at {start} and must end after that, by {slots}");
            return invalid(at.field("end"), end.to_string(), allowed);
        }
        Ok(start as usize..end as usize)
    }

    /// What a demand can do with: its options, or what it says itself.
    fn needs(&self, at: &At<'_>, demand: &InstanceDemand, more: &Wanted) -> Result<Vec<Need>, Invalid> {
        let Some(options) = &more.options else {
            let Some(gpus) = demand.gpus else {
                return invalid(at.field("gpus"), "missing", format!("write 1 to {MOST_TOGETHER}"));
            };
            let Some(min_mem_gb) = demand.min_mem_gb else {
                return invalid(
                    at.field("min_mem_gb"),
                    "missing",
                    "write what a GPU must have, or 0",
                );
            };
            let types = more.types.clone();
            let gpus = WantedGpus {
                gpus,
                min_mem_gb,
                types,
                penalty: 0.0,
            };
            return Ok(vec![self.need(&|name| at.field(name), &gpus)?]);
        };
        let beside = [
            ("gpus", demand.gpus.is_some()),
            ("min_mem_gb", demand.min_mem_gb.is_some()),
            ("types", more.types.is_some()),
        ];
        if let Some((name, _)) = beside.iter().find(|(_, is_there)| *is_there) {
            let allowed = format!("write {name} in each option, and not beside them");
            return invalid(at.field(name), "given beside options", allowed);
        }
        if options.is_empty() {
            let allowed = "write one set of GPUs or more, or leave it out";
            return invalid(at.field("options"), "none", allowed);
        }
        let option = |(index, option): (usize, &WantedGpus)| {
            self.need(&|name| at.field(&format!("options[{index}].{name}")), option)
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
