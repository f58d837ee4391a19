//! The most that a plan of a problem can cost, and that it is not too much: what it may be is kept far below what a
//! [`Cost`](super::problem::Cost) holds, and a float holds exactly, so that nothing that is added up overflows.

use super::cps1::{Invalid, invalid};
use super::problem::{Cost, Problem};

/// The most that all together may cost, in thousandths.
pub(super) const MOST_COST: f64 = 1e15;

/// Refuses prices at which a plan might cost more than is counted with.
pub(super) fn judge(problem: &Problem) -> Result<(), Invalid> {
    let parts = parts(problem);
    let all: f64 = parts.iter().map(|(_, most)| most).sum();
    let dearest = parts.iter().max_by(|one, other| one.1.total_cmp(&other.1));
    match dearest {
        Some((field, most)) if all > MOST_COST => invalid(
            *field,
            format!("{most:e} thousandths of the unit of costs, were it paid wherever it can be"),
            format!("all together may cost {MOST_COST:e} at most: use a larger unit of cost"),
        ),
        _ => Ok(()),
    }
}

/// What is paid for, and how much that can be.
fn parts(problem: &Problem) -> [(&'static str, f64); 9] {
    let slots = problem.slots as f64;
    let hosts = problem.hosts.len() as f64;
    let gpus = f64::from(problem.gpus());
    let of_gpus = |a_slot: Cost| gpus * slots * a_slot as f64;
    let watts = |count: u16, a_slot: Cost| f64::from(count) * slots * a_slot as f64;
    let hosts_on: f64 = problem.hosts.iter().map(|host| slots * host.on as f64).sum();
    let at_work = (problem.groups.iter()).map(|group| watts(group.count, group.active.max(group.idle)));
    let far = problem.fabric.hops.iter().flatten().max().copied().unwrap_or(1);
    let unserved = problem.demands.iter().map(|demand| {
        let penalty = demand.needs.iter().map(|need| need.penalty).max().unwrap_or(0);
        demand.unmet as f64 + penalty as f64
    });
    [
        ("demands, unserved", unserved.sum()),
        ("hosts[].host_on_w", hosts_on),
        ("gpus[].active_w", at_work.sum()),
        (
            "costs.hop_per_gpu_slot",
            of_gpus(problem.costs.hop) * f64::from(far),
        ),
        ("costs.split_per_slot", of_gpus(problem.fabric.split)),
        ("costs.unfair_per_gpu_slot", problem.most_unfair()),
        ("costs.attach", of_gpus(problem.costs.attach)),
        ("costs.detach", of_gpus(problem.costs.detach)),
        ("costs.host_fire_up", hosts * slots * problem.costs.fire_up as f64),
    ]
}
