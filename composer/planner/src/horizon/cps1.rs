//! The schema `cps-1`: a problem as a file has it, read and judged field by field.
//!
//! Energy is priced as the schema says: watts times the length of a slot in kilowatt-hours times the price,
//! rounded to thousandths, half to even. GPUs of one type behind one switch are one group and must be alike.

use super::classes;
use super::fabric::Fabric;
use super::payable;
use super::problem::{Cost, Costs, Group, Host, Problem, UNIT};
use super::wanted::{self, Wanted};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};

/// More slots, hosts, GPUs or demands than this are taken for a mistake.
const MOST_SLOTS: u64 = 20_000;
const MOST_HOSTS: usize = 100_000;
const MOST_GPUS: usize = 1_000_000;
pub(super) const MOST_DEMANDS: usize = 1_000_000;
/// Hosts times slots: what is kept in memory for each.
const MOST_HOST_SLOTS: u64 = 50_000_000;
/// GPUs that one demand, group or host may have.
pub(super) const MOST_TOGETHER: u64 = 32_767;
/// No single price, weight or number of watts is larger: sums stay exact.
const MOST_VALUE: f64 = 1e7;

/// A file in the schema. Further keys are ignored.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Instance {
    pub schema: String,
    pub horizon_slots: u64,
    pub slot_s: f64,
    pub hosts: Vec<InstanceHost>,
    pub gpus: Vec<InstanceGpu>,
    pub demands: Vec<InstanceDemand>,
    pub costs: InstanceCosts,
}

/// A host of the schema.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstanceHost {
    pub id: String,
    pub slots: u64,
    pub switch: String,
    pub host_on_w: f64,
    pub host_idle_w: f64,
}

/// A GPU of the schema.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstanceGpu {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub mem_gb: f64,
    pub switch: String,
    pub active_w: f64,
    pub idle_w: f64,
    /// A host's id.
    #[serde(default)]
    pub attached_to: Option<String>,
}

/// A demand of the schema.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstanceDemand {
    pub id: String,
    #[serde(default)]
    pub tenant: String,
    pub start: i64,
    /// The first slot after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_mem_gb: Option<f64>,
    pub weight: f64,
}

/// The prices of the schema.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct InstanceCosts {
    pub unmet_per_gpu_slot: f64,
    pub attach: f64,
    pub detach: f64,
    pub host_fire_up: f64,
    pub hop_per_gpu_slot: f64,
    pub energy_per_kwh: f64,
}

impl Default for InstanceCosts {
    /// Those of the schema's own instances.
    fn default() -> Self {
        Self {
            unmet_per_gpu_slot: 500.0,
            attach: 60.0,
            detach: 20.0,
            host_fire_up: 100.0,
            hop_per_gpu_slot: 2.0,
            energy_per_kwh: 100.0,
        }
    }
}

/// What is wrong with an instance: which field, what it says, and what it may say.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {found}; {allowed}")]
pub struct Invalid {
    pub field: String,
    pub found: String,
    pub allowed: String,
}

pub(super) fn invalid<T>(
    field: impl Into<String>,
    found: impl Into<String>,
    allowed: impl Into<String>,
) -> Result<T, Invalid> {
    Err(Invalid {
        field: field.into(),
        found: found.into(),
        allowed: allowed.into(),
    })
}

/// Judges an instance and makes a problem of it.
///
/// # Errors
/// The first field that can't be right.
pub fn read(instance: &Instance) -> Result<Problem, Invalid> {
    let problem = problem(instance, "cps-1", &[])?;
    payable::judge(&problem)?;
    Ok(problem)
}

/// What is said of a problem in every schema that begins with this one.
pub(super) fn problem(instance: &Instance, schema: &str, wanted: &[Wanted]) -> Result<Problem, Invalid> {
    if instance.schema != schema {
        let allowed = format!("this program reads \"cps-1\" and {:?}", super::extended::SCHEMA);
        return invalid("schema", format!("{:?}", instance.schema), allowed);
    }
    sizes(instance)?;
    let slot_s = amount("slot_s", instance.slot_s)?;
    if slot_s <= 0.0 {
        return invalid("slot_s", slot_s.to_string(), "a slot lasts more than no time");
    }
    let costs = costs(&instance.costs)?;
    let per_watt = slot_s / 3600.0 / 1000.0 * instance.costs.energy_per_kwh * UNIT;
    let energy = |watts: f64| (watts * per_watt).round_ties_even() as Cost;
    let mut reader = Reader::default();
    let mut hosts = reader.hosts(instance, energy)?;
    let groups = reader.groups(instance, energy, &mut hosts)?;
    let known = wanted::Known {
        groups: &groups,
        kinds: reader.kinds.iter().map(String::as_str).collect(),
        switches: &reader.switches,
        hosts: &reader.host_of,
    };
    let (demands, bundles) = wanted::read(instance, wanted, &known)?;
    let classes = classes::of(&demands);
    Ok(Problem {
        slots: instance.horizon_slots as usize,
        hosts,
        groups,
        demands,
        kinds: reader.kinds,
        switches: reader.switches,
        costs,
        quotas: Vec::new(),
        unfair: 0,
        fabric: Fabric::default(),
        bundles,
        classes,
    })
}

fn sizes(instance: &Instance) -> Result<(), Invalid> {
    let slots = instance.horizon_slots;
    if !(1..=MOST_SLOTS).contains(&slots) {
        return invalid(
            "horizon_slots",
            slots.to_string(),
            format!("write 1 to {MOST_SLOTS}"),
        );
    }
    let lists = [
        ("hosts", instance.hosts.len(), MOST_HOSTS),
        ("gpus", instance.gpus.len(), MOST_GPUS),
        ("demands", instance.demands.len(), MOST_DEMANDS),
    ];
    for (field, found, most) in lists {
        if found > most {
            return invalid(field, format!("{found} of them"), format!("at most {most}"));
        }
    }
    if instance.hosts.len() as u64 * slots > MOST_HOST_SLOTS {
        let found = format!("{} hosts for {slots} slots", instance.hosts.len());
        return invalid(
            "hosts",
            found,
            format!("at most {MOST_HOST_SLOTS} hosts times slots: use longer slots"),
        );
    }
    Ok(())
}

/// A number that is there, and is not negative.
pub(super) fn amount(field: impl Into<String>, value: f64) -> Result<f64, Invalid> {
    match (0.0..=MOST_VALUE).contains(&value) {
        true => Ok(value),
        false => invalid(field, written(value), format!("write 0 to {MOST_VALUE}")),
    }
}

/// A number as it may have been written: not with three hundred digits.
pub(super) fn written(value: f64) -> String {
    const LONG: f64 = 1e15;
    match value.abs() < LONG {
        true => value.to_string(),
        false => format!("{value:e}"),
    }
}

fn costs(costs: &InstanceCosts) -> Result<Costs, Invalid> {
    let cost = |field: &str, value: f64| {
        amount(format!("costs.{field}"), value).map(|value| (value * UNIT).round_ties_even() as Cost)
    };
    cost("unmet_per_gpu_slot", costs.unmet_per_gpu_slot)?;
    cost("energy_per_kwh", costs.energy_per_kwh)?;
    Ok(Costs {
        attach: cost("attach", costs.attach)?,
        detach: cost("detach", costs.detach)?,
        fire_up: cost("host_fire_up", costs.host_fire_up)?,
        hop: cost("hop_per_gpu_slot", costs.hop_per_gpu_slot)?,
    })
}

#[derive(Default)]
struct Reader {
    kinds: Vec<String>,
    switches: Vec<String>,
    host_of: HashMap<String, usize>,
}

/// The place of a name in a list; added where it is new.
fn place(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}

impl Reader {
    fn hosts(&mut self, instance: &Instance, energy: impl Fn(f64) -> Cost) -> Result<Vec<Host>, Invalid> {
        let mut hosts = Vec::new();
        for (index, host) in instance.hosts.iter().enumerate() {
            let field = |name: &str| format!("hosts[{index}] ({}).{name}", host.id);
            if self.host_of.insert(host.id.clone(), index).is_some() {
                return invalid(
                    field("id"),
                    format!("{:?} a second time", host.id),
                    "ids of hosts differ",
                );
            }
            if host.slots > MOST_TOGETHER {
                return invalid(
                    field("slots"),
                    host.slots.to_string(),
                    format!("write 0 to {MOST_TOGETHER}"),
                );
            }
            let on = amount(field("host_on_w"), host.host_on_w)?;
            let idle = amount(field("host_idle_w"), host.host_idle_w)?;
            if on < idle {
                let found = format!("{on} W, below the {idle} W of host_idle_w");
                return invalid(
                    field("host_on_w"),
                    found,
                    "a host that is on needs no less than an idle one",
                );
            }
            hosts.push(Host {
                id: host.id.clone(),
                room: host.slots as u16,
                switch: place(&mut self.switches, &host.switch),
                on: energy(on - idle),
                attached: Vec::new(),
                closed: Vec::new(),
                reach: None,
                bar: None,
                hold: 0,
            });
        }
        Ok(hosts)
    }

    fn groups(
        &mut self,
        instance: &Instance,
        energy: impl Fn(f64) -> Cost,
        hosts: &mut [Host],
    ) -> Result<Vec<Group>, Invalid> {
        let (mut groups, mut first): (Vec<Group>, Vec<&InstanceGpu>) = (Vec::new(), Vec::new());
        let (mut ids, mut known) = (BTreeSet::new(), HashMap::new());
        for (index, gpu) in instance.gpus.iter().enumerate() {
            let field = |name: &str| format!("gpus[{index}] ({}).{name}", gpu.id);
            if !ids.insert(&gpu.id) {
                return invalid(
                    field("id"),
                    format!("{:?} a second time", gpu.id),
                    "ids of GPUs differ",
                );
            }
            if gpu.kind.contains('@') {
                return invalid(
                    field("type"),
                    format!("{:?}", gpu.kind),
                    "solutions write TYPE@SWITCH: no @ in a type",
                );
            }
            let values = [
                ("mem_gb", gpu.mem_gb),
                ("active_w", gpu.active_w),
                ("idle_w", gpu.idle_w),
            ];
            for (name, value) in values {
                amount(field(name), value)?;
            }
            let (kind, switch) = (
                place(&mut self.kinds, &gpu.kind),
                place(&mut self.switches, &gpu.switch),
            );
            let group = *known.entry((kind, switch)).or_insert_with(|| {
                first.push(gpu);
                groups.push(Group {
                    kind,
                    switch,
                    count: 0,
                    pinned: 0,
                    memory_gb: gpu.mem_gb,
                    active: energy(gpu.active_w),
                    idle: energy(gpu.idle_w),
                    bar: 0,
                });
                groups.len() - 1
            });
            let like = first[group];
            let others = [like.mem_gb, like.active_w, like.idle_w];
            if let Some(((name, value), other)) = values
                .iter()
                .zip(others)
                .find(|((_, value), other)| value != other)
            {
                let found = format!("{value}, but {other} at {}", like.id);
                return invalid(field(name), found, "GPUs of one type behind one switch are alike");
            }
            if u64::from(groups[group].count) == MOST_TOGETHER {
                let allowed = format!("at most {MOST_TOGETHER} of a type behind one switch");
                return invalid(field("type"), "one too many", allowed);
            }
            groups[group].count += 1;
            if let Some(host) = &gpu.attached_to {
                let Some(host) = self.host_of.get(host) else {
                    return invalid(
                        field("attached_to"),
                        format!("{host:?}"),
                        "name a host of \"hosts\", or null",
                    );
                };
                let attached = &mut hosts[*host].attached;
                match attached.iter_mut().find(|(of, _)| *of == group) {
                    Some((_, count)) => *count += 1,
                    None => attached.push((group, 1)),
                }
            }
        }
        Ok(groups)
    }
}
