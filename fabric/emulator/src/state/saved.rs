//! The part of the truth that outlives a restart of the emulator, in a form that can be read by people.

use super::{HostPower, State};
use crate::rack::{GpuIx, HostIx, PortIx};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What is kept of a [`State`]. Changes that were going on, tasks and jobs are not: as at a real manager,
/// they end with it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    /// GPU and port, by name.
    pub bindings: Vec<(String, String)>,
    /// Ports that are part of a composed system.
    pub composed: Vec<String>,
    pub gone: Vec<String>,
    pub dirty: Vec<String>,
    /// Those whose slots have their lights on.
    #[serde(default)]
    pub lit: Vec<String>,
    /// GPUs that have the names of others, with those.
    #[serde(default)]
    pub renumbered: Vec<(String, String)>,
    /// Hosts that are switched off.
    pub off: Vec<String>,
    /// The owner's marks of services, by their names.
    #[serde(default)]
    pub marks: std::collections::BTreeMap<String, String>,
}

/// What was kept does not fit the rack: the rack file has changed since.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the kept state does not fit the rack: {0}")]
pub struct SavedError(String);

impl State {
    pub fn save(&self) -> Saved {
        let gpus = |wanted: &dyn Fn(GpuIx) -> bool| {
            let all = (0..self.gpus.len()).map(GpuIx);
            all.filter(|gpu| wanted(*gpu))
                .map(|gpu| self.rack.gpu_name(gpu))
                .collect()
        };
        let ports = (0..self.ports.len())
            .map(PortIx)
            .filter(|port| self.composed(*port));
        let off = self
            .rack
            .host_ixs()
            .filter(|host| self.power(*host) == HostPower::Off);
        Saved {
            bindings: self
                .bindings()
                .map(|(gpu, binding)| (self.rack.gpu_name(gpu), self.rack.port_name(binding.port)))
                .collect(),
            composed: ports.map(|port| self.rack.port_name(port)).collect(),
            gone: gpus(&|gpu| !self.present(gpu)),
            dirty: gpus(&|gpu| self.dirty(gpu)),
            lit: gpus(&|gpu| self.lit(gpu)),
            renumbered: (0..self.gpus.len())
                .map(GpuIx)
                .filter(|gpu| self.label(*gpu) != *gpu)
                .map(|gpu| (self.rack.gpu_name(gpu), self.rack.gpu_name(self.label(gpu))))
                .collect(),
            off: off.map(|host| self.rack[host].name.clone()).collect(),
            marks: self.marks.clone(),
        }
    }

    /// Takes up what was kept, in place of all there is.
    pub fn restore(&mut self, saved: &Saved, now: Timestamp) -> Result<(), SavedError> {
        let rack = std::sync::Arc::clone(&self.rack);
        let unknown = |name: &String| SavedError(format!("it has no {name}"));
        let gpu = |name: &String| rack.gpu_named(name).ok_or_else(|| unknown(name));
        let port = |name: &String| rack.port_named(name).ok_or_else(|| unknown(name));
        let host = |name: &String| rack.host_named(name).ok_or_else(|| unknown(name));
        let gone: Vec<GpuIx> = saved.gone.iter().map(gpu).collect::<Result<_, _>>()?;
        let dirty: Vec<GpuIx> = saved.dirty.iter().map(gpu).collect::<Result<_, _>>()?;
        let lit: Vec<GpuIx> = saved.lit.iter().map(gpu).collect::<Result<_, _>>()?;
        let off: Vec<HostIx> = saved.off.iter().map(host).collect::<Result<_, _>>()?;
        let composed: Vec<PortIx> = saved.composed.iter().map(port).collect::<Result<_, _>>()?;

        let mut fresh = State::new(std::sync::Arc::clone(&rack), now);
        for of_box in rack.box_ixs() {
            fresh.lose_bindings(of_box, now);
        }
        for (gpu_name, port_name) in &saved.bindings {
            let bound = fresh.bind_by_others(gpu(gpu_name)?, port(port_name)?, now);
            bound.map_err(|refusal| SavedError(refusal.to_string()))?;
        }
        for (own, label) in &saved.renumbered {
            fresh.labels[gpu(own)?.0] = gpu(label)?;
        }
        for truth in &mut fresh.gpus {
            truth.dirty = false;
        }
        for at in dirty {
            fresh.gpus[at.0].dirty = true;
        }
        for at in lit {
            fresh.gpus[at.0].lit = true;
        }
        for at in &mut fresh.ports {
            at.composed = false;
        }
        for at in composed {
            fresh.ports[at.0].composed = true;
        }
        for at in gone {
            fresh.vanish(at, now);
        }
        for at in off {
            fresh.set_power(at, HostPower::Off, now);
        }
        fresh.marks.clone_from(&saved.marks);
        fresh.tally = super::Tally::default();
        *self = fresh;
        Ok(())
    }
}
