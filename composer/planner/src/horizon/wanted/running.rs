//! Demands that run already when the horizon begins: they stay where they are, or are ended after a notice.
//!
//! Such a demand is one or two here: what runs in any case, of the priority [`MUST`], and the rest, which the plan may
//! end. Both may have but the GPUs that it runs on.

use super::super::bundle::{Bundle, Phase};
use super::super::classes::MUST;
use super::super::cps1::{Invalid, amount, invalid};
use super::super::problem::{Choice, Cost, Demand, Need, Runs, UNIT};
use super::super::reasons;
use super::super::state::{Placement, State};
use super::phases::{At, PhaseAt};
use super::{Problem, Reader, Wanted};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where a demand runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    pub host: String,
    /// GPUs as `TYPE@SWITCH`.
    pub gpus: BTreeMap<String, u64>,
}

/// How a demand that runs may be ended.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Preemptible {
    /// Slots that it still runs in any case.
    pub notice: u64,
    /// What that costs beside what is unmet, in the unit of costs.
    #[serde(default)]
    pub stop: f64,
}

impl Reader<'_> {
    /// Where a demand runs, as it says.
    fn runs(&self, at: &At<'_>, running: &Running, needs: &[Need]) -> Result<Runs, Invalid> {
        let Some(host) = self.known.hosts.get(&running.host) else {
            return invalid(
                at.field("running.host"),
                format!("{:?}", running.host),
                "name a host of \"hosts\"",
            );
        };
        let field = at.field("running.gpus");
        let mut gpus = running.gpus.iter();
        let (Some((name, count)), None) = (gpus.next(), gpus.next()) else {
            let found = format!("GPUs of {} groups", running.gpus.len());
            let allowed =
                "write TYPE@SWITCH and how many of them; a demand for each, where there are several";
            return invalid(field, found, allowed);
        };
        let is_named = |kind: usize, switch: usize| {
            *name == format!("{}@{}", self.known.kinds[kind], self.known.switches[switch])
        };
        let mut groups = self.known.groups.iter();
        let Some(group) = groups.position(|group| is_named(group.kind, group.switch)) else {
            return invalid(field, format!("{name:?}"), "name GPUs of \"gpus\" as TYPE@SWITCH");
        };
        if !needs.iter().any(|need| u64::from(need.gpus) == *count) {
            let allowed = "write as many as it wants, or as one of its options has";
            return invalid(field, format!("{count} of {name}"), allowed);
        }
        Ok(Runs { host: *host, group })
    }

    /// Adds a demand that runs, where everything else about it is in `demand`.
    pub(super) fn running(
        &mut self,
        at: &At<'_>,
        more: &Wanted,
        phases: &[PhaseAt<'_>],
        mut demand: Demand,
    ) -> Result<(), Invalid> {
        let Some(running) = &more.running else {
            return invalid(
                at.field("preemptible"),
                "of what does not run",
                "write running, too, or leave it out",
            );
        };
        if phases.iter().any(|phase| phase.parts.is_some()) || phases.len() > 1 {
            return invalid(
                at.field("running"),
                "beside parts or phases",
                "write what runs as a demand of one part",
            );
        }
        if demand.window.start > 0 || more.lead > 0 {
            let found = format!("{} and a lead of {}", demand.window.start, more.lead);
            return invalid(
                at.field("start"),
                found,
                "what runs starts at slot 0 and has no lead",
            );
        }
        let runs = self.runs(at, running, &demand.needs)?;
        let of_group = &self.known.groups[runs.group];
        let gpus = running.gpus.values().sum::<u64>() as u16;
        demand.needs = vec![Need {
            gpus,
            memory_gb: 0.0,
            kinds: Some(vec![of_group.kind]),
            penalty: 0,
        }];
        demand.choices = vec![Choice {
            gpus,
            penalty: 0,
            groups: vec![runs.group],
        }];
        (demand.hosts, demand.runs) = (Some(vec![runs.host]), Some(runs));
        let end = demand.window.end;
        let (notice, stop) = match more.preemptible {
            Some(preemptible) => {
                let stop = amount(at.field("preemptible.stop"), preemptible.stop)?;
                (
                    preemptible.notice.min(end as u64) as usize,
                    (stop * UNIT).round_ties_even() as Cost,
                )
            }
            None => (end, 0),
        };
        let (unmet, slots) = (i128::from(demand.unmet), end as i128);
        let first = (unmet * notice as i128 / slots) as Cost;
        let mut stays = demand.clone();
        (stays.window.end, stays.priority) = (notice, MUST);
        // It counts, also where it is worth nothing.
        stays.unmet = first.max(1);
        (demand.window.start, demand.unmet) = (notice, demand.unmet - first + stop);
        let at = self.demands.len();
        match (notice, notice == end) {
            (_, true) => self.demands.push(stays),
            (0, _) => self.demands.push(demand),
            _ => {
                self.demands.extend([stays, demand]);
                let phase = |place: usize, least| Phase {
                    parts: place..place + 1,
                    least,
                    apart: false,
                };
                self.bundle(
                    at,
                    Bundle {
                        phases: vec![phase(at, 1), phase(at + 1, 0)],
                    },
                );
            }
        }
        Ok(())
    }
}

/// Whether all that runs can go on: each has its GPUs, and nothing is in the way of any.
pub(in crate::horizon) fn can_go_on(problem: &Problem) -> Result<(), Invalid> {
    let mut state = State::new(problem);
    for (index, demand) in problem.demands.iter().enumerate() {
        let Some(runs) = demand.runs.filter(|_| demand.window.start == 0) else {
            continue;
        };
        let field = format!("demand {}, running", demand.id);
        let host = &problem.hosts[runs.host];
        let of_group = host.attached.iter().filter(|(group, _)| *group == runs.group);
        let attached: u32 = of_group.map(|(_, count)| u32::from(*count)).sum();
        let others = problem.demands[..index].iter();
        let others = others.filter(|other| other.runs == Some(runs) && other.window.start == 0);
        let used: u32 = others.map(|other| u32::from(other.gpus())).sum();
        if used + u32::from(demand.gpus()) > attached {
            let found = format!("{} GPUs of {}", demand.gpus(), problem.group_name(runs.group));
            let allowed = format!("of {attached} that are attached to {} others use {used}", host.id);
            return invalid(field, found, allowed);
        }
        if demand.priority < MUST {
            continue;
        }
        let placement = Placement {
            host: runs.host,
            parts: vec![(runs.group, demand.gpus())],
        };
        if !super::super::search::fits(&state, index, &placement) {
            let (reason, _) = reasons::why(&mut state, index, &mut Default::default());
            let allowed = "what runs and may not be ended stays: it must have its place";
            return invalid(field, reason, allowed);
        }
        state.place(index, placement);
    }
    Ok(())
}
