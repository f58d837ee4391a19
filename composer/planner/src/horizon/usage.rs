//! What a plan over time uses in each slot: GPUs at work and attached, and the hosts that are on.

use super::problem::Problem;
use super::solution::Assignment;
use std::collections::HashMap;

/// What is used when. A plan that was not checked may name what there is not: that is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// GPUs at work, by group and slot.
    pub used: Vec<Vec<u32>>,
    /// GPUs attached, at work or idle, by group and slot.
    pub attached: Vec<Vec<u32>>,
    /// Whether a host is on, by host and slot: where something runs, and between, where that is cheaper than to fire it
    /// up again.
    pub on: Vec<Vec<bool>>,
}

impl Usage {
    #[must_use]
    pub fn of(problem: &Problem, plan: &Assignment) -> Self {
        let hosts = problem.hosts.iter().enumerate();
        let host_of: HashMap<&str, usize> = hosts.map(|(place, host)| (host.id.as_str(), place)).collect();
        let group_of: HashMap<String, usize> = (0..problem.groups.len())
            .map(|group| (problem.group_name(group), group))
            .collect();
        let none = || vec![vec![0_u32; problem.slots]; problem.groups.len()];
        let (mut used, mut attached) = (none(), none());
        let mut on = vec![vec![false; problem.slots]; problem.hosts.len()];
        for (demand, served) in problem.demands.iter().zip(&plan.demands) {
            let Some(host) = served.host.as_deref().and_then(|host| host_of.get(host)) else {
                continue;
            };
            on[*host][demand.window.clone()].fill(true);
            for (group, count) in &served.gpus {
                let Some(group) = group_of.get(group) else {
                    continue;
                };
                for slot in demand.window.clone() {
                    used[*group][slot] += u32::from(*count);
                }
            }
        }
        for (group, row) in plan.attached.values().flatten() {
            let Some(group) = group_of.get(group) else {
                continue;
            };
            for (sum, count) in attached[*group].iter_mut().zip(row) {
                *sum += u32::from(*count);
            }
        }
        for (host, busy) in problem.hosts.iter().zip(&mut on) {
            stay_on(busy, host.on, problem.costs.fire_up);
        }
        Self { used, attached, on }
    }
}

/// Fills the gaps that are cheaper to stay on through than to fire up again after.
fn stay_on(busy: &mut [bool], a_slot: i64, fire_up: i64) {
    let mut last = None;
    for slot in 0..busy.len() {
        if !busy[slot] {
            continue;
        }
        if let Some(last) = last
            && (slot - last - 1) as i64 * a_slot < fire_up
        {
            busy[last..slot].fill(true);
        }
        last = Some(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_stays_on_through_a_gap_that_is_shorter_than_a_fire_up_is_dear() {
        let filled = |fire_up| {
            let mut busy = [false, true, false, false, true, false];
            stay_on(&mut busy, 10, fire_up);
            busy
        };
        assert_eq!(filled(21), [false, true, true, true, true, false]);
        assert_eq!(filled(20), [false, true, false, false, true, false]);
    }
}
