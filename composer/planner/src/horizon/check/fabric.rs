//! Whether a plan keeps what the fabric says, slot by slot.

use super::Judge;
use crate::horizon::problem::{Cost, Demand};
use crate::horizon::solution::Served;

/// A rule of the fabric that a plan breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OffFabric {
    #[error("slot {slot}: GPUs of {group} are attached to {host}, which does not reach them")]
    Unreached {
        host: String,
        group: String,
        slot: usize,
    },
    #[error("slot {slot}: the uplink of {switch} carries {carried} GPUs at work, and {most} at most")]
    Uplink {
        switch: String,
        slot: usize,
        carried: u32,
        most: u32,
    },
    #[error("slot {slot}: {host} maps {mib} MiB of BARs, and has a window of {most}")]
    Window {
        host: String,
        slot: usize,
        mib: u64,
        most: u64,
    },
    #[error(
        "slot {slot}: GPUs of {group} leave {host}, where some were attached in slot {since} and stay for {hold}"
    )]
    NotHeld {
        host: String,
        group: String,
        slot: usize,
        since: usize,
        hold: usize,
    },
    #[error("demand {demand} gets GPUs behind {switches} switches and wants them behind one")]
    SeveralSwitches { demand: String, switches: usize },
}

impl Judge<'_> {
    /// What it costs that a demand's GPUs are behind the switches that they are behind.
    pub(super) fn switches(&self, demand: &Demand, served: &Served) -> Result<Cost, OffFabric> {
        let groups = served.gpus.iter().filter(|(_, count)| **count > 0);
        let groups = groups.filter_map(|(name, _)| self.groups.get(name));
        let mut switches: Vec<usize> = groups.map(|group| self.problem.groups[*group].switch).collect();
        switches.sort_unstable();
        switches.dedup();
        if demand.one_switch && switches.len() > 1 {
            return Err(OffFabric::SeveralSwitches {
                demand: demand.id.clone(),
                switches: switches.len(),
            });
        }
        let further = switches.len().max(1) - 1;
        Ok(self.problem.fabric.split * (further * demand.window.len()) as Cost)
    }

    /// What is attached is reached and mapped, and what is in use is carried.
    pub(super) fn fabric(&self) -> Result<(), OffFabric> {
        for slot in 0..self.problem.slots {
            self.attached_in(slot)?;
            self.carried_in(slot)?;
        }
        self.held()
    }

    /// None of a group leaves a host too soon after some of it were attached.
    fn held(&self) -> Result<(), OffFabric> {
        for ((host, group), row) in &self.attached {
            let at = &self.problem.hosts[*host];
            let first = at.attached.iter().find(|(of, _)| of == group);
            let (mut before, mut since) = (first.map_or(0, |(_, count)| *count), None);
            for (slot, now) in row.iter().enumerate() {
                if *now > before {
                    since = Some(slot);
                }
                if let Some(since) = since.filter(|since| *now < before && slot < since + at.hold) {
                    return Err(OffFabric::NotHeld {
                        host: at.id.clone(),
                        group: self.problem.group_name(*group),
                        slot,
                        since,
                        hold: at.hold,
                    });
                }
                before = *now;
            }
        }
        Ok(())
    }

    fn attached_in(&self, slot: usize) -> Result<(), OffFabric> {
        let problem = self.problem;
        let mut mapped = vec![0_u64; problem.hosts.len()];
        for ((host, group), row) in &self.attached {
            let (at, of) = (&problem.hosts[*host], &problem.groups[*group]);
            mapped[*host] += u64::from(row[slot]) * of.bar;
            let reached = at.reach.as_ref().is_none_or(|reach| reach.contains(&of.switch));
            if row[slot] > 0 && !reached {
                let (host, group) = (at.id.clone(), problem.group_name(*group));
                return Err(OffFabric::Unreached { host, group, slot });
            }
        }
        for (host, mib) in problem.hosts.iter().zip(mapped) {
            if let Some(most) = host.bar.filter(|most| mib > *most) {
                let host = host.id.clone();
                return Err(OffFabric::Window {
                    host,
                    slot,
                    mib,
                    most,
                });
            }
        }
        Ok(())
    }

    fn carried_in(&self, slot: usize) -> Result<(), OffFabric> {
        let problem = self.problem;
        for (switch, most) in problem.fabric.uplinks.iter().enumerate() {
            let Some(most) = *most else { continue };
            let mut carried = 0;
            for ((host, group), row) in &self.used {
                let ends = [problem.hosts[*host].switch, problem.groups[*group].switch];
                if ends[0] != ends[1] && ends.contains(&switch) {
                    carried += row[slot];
                }
            }
            if carried > most {
                let switch = problem.switches[switch].clone();
                return Err(OffFabric::Uplink {
                    switch,
                    slot,
                    carried,
                    most,
                });
            }
        }
        Ok(())
    }
}
