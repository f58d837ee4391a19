//! What a problem may say beyond `cps-1`, in a file of the schema [`SCHEMA`]: which hosts are closed when, which GPUs are
//! pinned, how many GPUs a tenant may use at a time and is guaranteed, what the fabric between hosts and GPUs carries, and
//! more of [what is wanted](super::wanted).

mod fabric;

pub use fabric::{CostsExtension, FabricExtension, Hops, HostFabric, Switch};

use super::cps1::{self, Instance, Invalid, invalid, written};
use super::problem::{Cost, Problem, Quota, UNIT};
use super::wanted::Wanted;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

/// The name of the schema: `cps-1`, and what is here.
pub const SCHEMA: &str = "poolwright-horizon-1";
/// No quota is larger.
const MOST_GPUS: u64 = 1_000_000;
const MOST_WEIGHT: u32 = 1_000_000;

/// What a file of the schema has beside what `cps-1` has. Further keys are ignored.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Extension {
    pub hosts: Vec<HostExtension>,
    #[serde(default)]
    pub gpus: Vec<GpuExtension>,
    pub demands: Vec<Wanted>,
    #[serde(default)]
    pub tenants: Vec<Tenant>,
    #[serde(default)]
    pub costs: CostsExtension,
    #[serde(flatten)]
    pub fabric: FabricExtension,
}

/// When a host is closed, and what it reaches.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostExtension {
    /// Windows in which nothing runs there. What is attached may stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closed: Vec<Window>,
    #[serde(flatten)]
    pub fabric: HostFabric,
}

/// Whether a GPU may be moved, and what a host must map for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuExtension {
    /// It stays where it is, attached or not, takes its room there, and serves no demand.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pinned: bool,
    /// GiB of its BARs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bar_gib: f64,
}

/// Slots, the end not among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    pub start: i64,
    pub end: i64,
}

/// What a tenant may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    pub id: String,
    /// GPUs in use at a time; left out: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_gpus: Option<u64>,
    /// GPUs that others leave for it whenever it has demands for as many.
    #[serde(default, skip_serializing_if = "is_default")]
    pub guaranteed_gpus: u64,
    /// Its weight among tenants that share fairly; left out: 1, where any has one or being short has a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
}

/// Whether a file says no more of it than where it is left out.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Judges a file of the schema and makes a problem of it. Both are read from the same file.
///
/// # Errors
/// The first field that can't be right.
pub fn read(instance: &Instance, extension: &Extension) -> Result<Problem, Invalid> {
    let mut problem = cps1::problem(instance, SCHEMA, &extension.demands)?;
    for (index, (host, more)) in problem.hosts.iter_mut().zip(&extension.hosts).enumerate() {
        let name = format!("hosts[{index}] ({})", host.id);
        host.closed = closed(&name, &more.closed, problem.slots)?;
    }
    fabric::read(&mut problem, instance, extension)?;
    pinned(&mut problem, instance, &extension.gpus)?;
    quotas(&mut problem, &extension.tenants)?;
    problem.unfair = unfair(instance, extension)?;
    super::payable::judge(&problem)?;
    super::wanted::can_go_on(&problem)?;
    Ok(problem)
}

fn closed(host: &str, windows: &[Window], slots: usize) -> Result<Vec<Range<usize>>, Invalid> {
    let mut closed: Vec<(Range<usize>, usize)> = Vec::new();
    for (index, window) in windows.iter().enumerate() {
        let found = format!("slots {} to {}", window.start, window.end);
        if window.start < 0 || window.end <= window.start || window.end > slots as i64 {
            let allowed = format!("a window starts at 0 or later, ends after that, and by {slots}");
            return invalid(format!("{host}.closed[{index}]"), found, allowed);
        }
        let window = window.start as usize..window.end as usize;
        let overlaps =
            |(other, _): &&(Range<usize>, usize)| window.start < other.end && other.start < window.end;
        if let Some((_, other)) = closed.iter().find(overlaps) {
            let found = format!("{found}, some of which are in closed[{other}]");
            return invalid(
                format!("{host}.closed[{index}]"),
                found,
                "windows of one host don't overlap",
            );
        }
        closed.push((window, index));
    }
    Ok(closed.into_iter().map(|(window, _)| window).collect())
}

/// Takes pinned GPUs out of the pool, and their room from the hosts where they are.
fn pinned(problem: &mut Problem, instance: &Instance, gpus: &[GpuExtension]) -> Result<(), Invalid> {
    let group_of: HashMap<String, usize> = (0..problem.groups.len())
        .map(|group| (problem.group_name(group), group))
        .collect();
    for (index, (gpu, _)) in instance
        .gpus
        .iter()
        .zip(gpus)
        .enumerate()
        .filter(|(_, (_, more))| more.pinned)
    {
        // Every GPU is of a group that was made of it.
        let Some(group) = group_of.get(&format!("{}@{}", gpu.kind, gpu.switch)) else {
            continue;
        };
        problem.groups[*group].count -= 1;
        problem.groups[*group].pinned += 1;
        let Some(host) = problem
            .hosts
            .iter_mut()
            .find(|host| Some(&host.id) == gpu.attached_to.as_ref())
        else {
            continue;
        };
        if host.room == 0 {
            let found = format!("true, at {} where all room is pinned already", host.id);
            let field = format!("gpus[{index}] ({}).pinned", gpu.id);
            return invalid(
                field,
                found,
                "no more GPUs are attached to a host than it has room for",
            );
        }
        host.room -= 1;
        for (_, count) in host.attached.iter_mut().filter(|(of, _)| of == group) {
            *count -= 1;
        }
        host.attached.retain(|(_, count)| *count > 0);
    }
    Ok(())
}

/// What a GPU-slot costs that a tenant is short of its fair share.
fn unfair(instance: &Instance, extension: &Extension) -> Result<Cost, Invalid> {
    let weighed = extension.tenants.iter().any(|tenant| tenant.weight.is_some());
    let usual = if weighed {
        instance.costs.unmet_per_gpu_slot
    } else {
        0.0
    };
    let price = extension.costs.unfair_per_gpu_slot.unwrap_or(usual);
    if !(0.0..=fabric::MOST_VALUE).contains(&price) {
        let allowed = format!("write 0 to {}", fabric::MOST_VALUE);
        return invalid("costs.unfair_per_gpu_slot", written(price), allowed);
    }
    Ok((price * UNIT).round_ties_even() as Cost)
}

fn quotas(problem: &mut Problem, tenants: &[Tenant]) -> Result<(), Invalid> {
    let (mut known, mut guaranteed) = (BTreeSet::new(), 0);
    for (index, tenant) in tenants.iter().enumerate() {
        let field = |name: &str| format!("tenants[{index}] ({}).{name}", tenant.id);
        if !known.insert(&tenant.id) {
            let found = format!("{:?} a second time", tenant.id);
            return invalid(field("id"), found, "a tenant has one limit");
        }
        let most = tenant.most_gpus.unwrap_or(MOST_GPUS);
        for (name, value) in [("most_gpus", most), ("guaranteed_gpus", tenant.guaranteed_gpus)] {
            if value > MOST_GPUS {
                return invalid(field(name), value.to_string(), format!("write 0 to {MOST_GPUS}"));
            }
        }
        guaranteed += tenant.guaranteed_gpus;
        if guaranteed > u64::from(problem.gpus()) {
            let found = format!(
                "{}, with which tenants are guaranteed {guaranteed}",
                tenant.guaranteed_gpus
            );
            let allowed = format!("there are {} GPUs that may be moved", problem.gpus());
            return invalid(field("guaranteed_gpus"), found, allowed);
        }
        if tenant.guaranteed_gpus > most {
            let found = tenant.guaranteed_gpus.to_string();
            return invalid(
                field("guaranteed_gpus"),
                found,
                format!("most_gpus allows it {most}"),
            );
        }
        let weight = tenant.weight.unwrap_or(1);
        if !(1..=MOST_WEIGHT).contains(&weight) {
            return invalid(
                field("weight"),
                weight.to_string(),
                format!("write 1 to {MOST_WEIGHT}"),
            );
        }
        problem.quotas.push(Quota {
            tenant: tenant.id.clone(),
            most: most as u32,
            guaranteed: tenant.guaranteed_gpus as u32,
            weight,
        });
        for demand in problem
            .demands
            .iter_mut()
            .filter(|demand| demand.tenant == tenant.id)
        {
            demand.quota = Some(index);
        }
    }
    Ok(())
}
