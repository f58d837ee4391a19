//! What a file says of the fabric: who reaches whom, hops, uplinks, windows for BARs, and GPUs behind one switch.

use super::super::cps1::{Instance, Invalid, invalid, written};
use super::super::problem::{Cost, Problem, UNIT};
use super::super::wanted::named;
use super::Extension;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// More hops than this between two switches are taken for a mistake.
const MOST_HOPS: u64 = 100;
/// Switches up to which hops may be told.
const MOST_SWITCHES: usize = 2000;
/// No uplink carries more GPUs.
const MOST_GPUS: u64 = 1_000_000;
/// No window for BARs is larger, in GiB.
const MOST_GIB: f64 = 1e6;
const MIB: f64 = 1024.0;
/// No price is larger.
pub(super) const MOST_VALUE: f64 = 1e7;

/// What is said of the fabric as a whole.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct FabricExtension {
    /// Hops between switches, both ways; left out: one between any two.
    #[serde(default)]
    pub hops: Vec<Hops>,
    #[serde(default)]
    pub switches: Vec<Switch>,
    /// Slots for which GPUs stay attached, once they are: none of a group is detached from a host for so long after any
    /// of it was attached to it.
    #[serde(default)]
    pub hold: u64,
}

/// Hops between two switches, both ways.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hops {
    pub from: String,
    pub to: String,
    pub hops: u64,
}

/// What a switch's uplink carries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    pub id: String,
    /// GPUs at work at a time between this switch and others; left out: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink_gpus: Option<u64>,
}

/// What a host reaches and can map.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFabric {
    /// Switches whose GPUs can be attached to it; left out: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<Vec<String>>,
    /// GiB of BARs that it can map at a time; left out: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bar_gib: Option<f64>,
    /// In place of what is said for all hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<u64>,
}

/// What the schema has among `costs`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub struct CostsExtension {
    /// Each further switch that a demand's GPUs are behind, for a slot.
    #[serde(default)]
    pub split_per_slot: f64,
    /// A GPU that a tenant is short of its fair share, for a slot; left out: what is unmet costs, where tenants have weights.
    #[serde(default)]
    pub unfair_per_gpu_slot: Option<f64>,
}

/// Reads all of it into a problem. Before pinned GPUs are taken out of the pool.
pub(super) fn read(problem: &mut Problem, instance: &Instance, more: &Extension) -> Result<(), Invalid> {
    let switch_of: HashMap<String, usize> = (problem.switches.iter().enumerate())
        .map(|(index, switch)| (switch.clone(), index))
        .collect();
    hops(problem, &more.fabric.hops, &switch_of)?;
    uplinks(problem, &more.fabric.switches, &switch_of)?;
    let slots = problem.slots as u64;
    let held = |field: String, hold: u64| match hold <= slots {
        true => Ok(hold as usize),
        false => invalid(field, hold.to_string(), format!("write 0 to {slots} slots")),
    };
    let usual = held("hold".to_owned(), more.fabric.hold)?;
    let split = more.costs.split_per_slot;
    if !(0.0..=MOST_VALUE).contains(&split) {
        let allowed = format!("write 0 to {MOST_VALUE}");
        return invalid("costs.split_per_slot", split.to_string(), allowed);
    }
    problem.fabric.split = (split * UNIT).round_ties_even() as Cost;
    for (index, (host, more)) in problem.hosts.iter_mut().zip(&more.hosts).enumerate() {
        let field = |name: &str| format!("hosts[{index}] ({}).{name}", host.id);
        let reach = more.fabric.reach.as_deref();
        let what = "a switch of \"hosts\" or \"gpus\"";
        host.reach = named(field("reach"), reach, |switch| switch_of.get(switch), what)?;
        let mib = |gib: f64| size(field("bar_gib"), gib).map(|size| size as u64);
        let own = more.fabric.hold.map(|hold| held(field("hold"), hold));
        host.hold = own.transpose()?.unwrap_or(usual);
        host.bar = more.fabric.bar_gib.map(mib).transpose()?;
    }
    problem.fabric.holds = problem.hosts.iter().any(|host| host.hold > 1);
    gpus(problem, instance, more)
}

/// MiB of so many GiB.
fn size(field: String, gib: f64) -> Result<f64, Invalid> {
    match (0.0..=MOST_GIB).contains(&gib) {
        true => Ok(gib * MIB),
        false => invalid(field, written(gib), format!("write 0 to {MOST_GIB} GiB")),
    }
}

fn switch(field: String, name: &str, known: &HashMap<String, usize>) -> Result<usize, Invalid> {
    match known.get(name) {
        Some(switch) => Ok(*switch),
        None => invalid(
            field,
            format!("{name:?}"),
            "name a switch of \"hosts\" or \"gpus\"",
        ),
    }
}

fn hops(problem: &mut Problem, hops: &[Hops], known: &HashMap<String, usize>) -> Result<(), Invalid> {
    let switches = problem.switches.len();
    if hops.is_empty() {
        return Ok(());
    }
    if switches > MOST_SWITCHES {
        let allowed = format!("hops are told of {MOST_SWITCHES} switches at most");
        return invalid("hops", format!("{switches} switches"), allowed);
    }
    let usual = |from: usize| (0..switches).map(|to| u16::from(from != to)).collect();
    problem.fabric.hops = (0..switches).map(usual).collect();
    let mut told = HashMap::new();
    for (index, pair) in hops.iter().enumerate() {
        let field = |name: &str| format!("hops[{index}].{name}");
        let from = switch(field("from"), &pair.from, known)?;
        let to = switch(field("to"), &pair.to, known)?;
        if from == to {
            let found = format!("{:?}, as from", pair.to);
            return invalid(field("to"), found, "from a switch to itself there are no hops");
        }
        if let Some(other) = told.insert((from.min(to), from.max(to)), index) {
            let found = format!("{:?} and {:?}, as hops[{other}]", pair.from, pair.to);
            return invalid(field("to"), found, "two switches are named once, for both ways");
        }
        if pair.hops > MOST_HOPS {
            let allowed = format!("write 0 to {MOST_HOPS}");
            return invalid(field("hops"), pair.hops.to_string(), allowed);
        }
        problem.fabric.hops[from][to] = pair.hops as u16;
        problem.fabric.hops[to][from] = pair.hops as u16;
    }
    Ok(())
}

fn uplinks(
    problem: &mut Problem,
    switches: &[Switch],
    known: &HashMap<String, usize>,
) -> Result<(), Invalid> {
    let mut told = HashMap::new();
    for (index, one) in switches.iter().enumerate() {
        let field = |name: &str| format!("switches[{index}] ({}).{name}", one.id);
        let place = switch(field("id"), &one.id, known)?;
        if let Some(other) = told.insert(place, index) {
            let found = format!("{:?}, as switches[{other}]", one.id);
            return invalid(field("id"), found, "a switch is named once");
        }
        let Some(gpus) = one.uplink_gpus else { continue };
        if gpus > MOST_GPUS {
            let allowed = format!("write 0 to {MOST_GPUS}, or leave it out");
            return invalid(field("uplink_gpus"), gpus.to_string(), allowed);
        }
        problem.fabric.uplinks.resize(known.len(), None);
        problem.fabric.uplinks[place] = Some(gpus as u32);
    }
    Ok(())
}

/// BARs of GPUs; and that what is attached can be.
fn gpus(problem: &mut Problem, instance: &Instance, more: &Extension) -> Result<(), Invalid> {
    let group_of: HashMap<String, usize> = (0..problem.groups.len())
        .map(|group| (problem.group_name(group), group))
        .collect();
    let host_of: HashMap<String, usize> = (problem.hosts.iter().enumerate())
        .map(|(index, host)| (host.id.clone(), index))
        .collect();
    let mut first: HashMap<usize, &str> = HashMap::new();
    for (index, (gpu, more)) in instance.gpus.iter().zip(&more.gpus).enumerate() {
        let field = |name: &str| format!("gpus[{index}] ({}).{name}", gpu.id);
        // Every GPU is of a group that was made of it.
        let Some(group) = group_of.get(&format!("{}@{}", gpu.kind, gpu.switch)) else {
            continue;
        };
        let bar = size(field("bar_gib"), more.bar_gib)?.ceil() as u64;
        match first.get(group) {
            Some(like) if problem.groups[*group].bar != bar => {
                let other = problem.groups[*group].bar as f64 / MIB;
                let found = format!("{}, but {other} at {like}", more.bar_gib);
                let allowed = "GPUs of one type behind one switch are alike";
                return invalid(field("bar_gib"), found, allowed);
            }
            _ => drop(first.insert(*group, &gpu.id)),
        }
        problem.groups[*group].bar = bar;
        let Some(host) = gpu.attached_to.as_ref().and_then(|host| host_of.get(host)) else {
            continue;
        };
        if !problem.reaches(*host, *group) {
            let id = &problem.hosts[*host].id;
            let found = format!("{id:?}, which does not reach {}", gpu.switch);
            let allowed = format!("name the switch in the reach of {id}, or write null");
            return invalid(field("attached_to"), found, allowed);
        }
        if let (true, Some(left)) = (more.pinned, problem.hosts[*host].bar) {
            let Some(left) = left.checked_sub(bar) else {
                let id = &problem.hosts[*host].id;
                let found = format!("{}, pinned at {id}", more.bar_gib);
                let gib = left as f64 / MIB;
                let allowed = format!("{id} has a window of {gib} GiB beside what is pinned there");
                return invalid(field("bar_gib"), found, allowed);
            };
            problem.hosts[*host].bar = Some(left);
        }
    }
    Ok(())
}
