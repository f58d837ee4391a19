//! The truth about a rack: what is bound to what, which GPUs are there, what is going on.
//!
//! A pure value: time comes in as `now`, nothing ticks, nothing waits. What takes time is a [`Change`] with an
//! instant at which it is due; it comes true when the state is next asked for at or after that instant, in the
//! order of the instants.
//!
//! Invariants, which no call can break:
//! * a GPU is bound to at most one host port, and only to one that is cabled to its box;
//! * each slot of a port holds at most one GPU, and no port more than its slots;
//! * a GPU that is gone, or soldered to a server, is not bound;
//! * a GPU has at most one change going on.

mod change;
mod incident;
mod saved;

use crate::clock::later;
use crate::rack::{GpuIx, HostIx, PortIx, Rack};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use change::{Change, ChangeId, Course, Refusal, SystemFate, TaskInfo, TaskView};
pub use incident::HostPower;
pub use saved::{Saved, SavedError};

/// Where a GPU is bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    pub port: PortIx,
    /// The slot of the port that it appears in, from 1.
    pub slot: u32,
    /// When the host has enumerated it.
    pub visible_at: Timestamp,
}

/// Something on a host that uses a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub pid: u32,
    pub command: String,
}

/// What is so about one GPU.
#[derive(Debug, Clone, Default)]
struct GpuTruth {
    bound: Option<Binding>,
    busy: Option<ChangeId>,
    gone: bool,
    /// Was bound, and has not been reset since.
    dirty: bool,
    resets: u32,
    jobs: Vec<Job>,
    draining: bool,
    /// The light at its slot.
    lit: bool,
}

#[derive(Debug, Clone, Default)]
struct PortTruth {
    /// A system is composed around this port (style resource blocks).
    composed: bool,
}

#[derive(Debug, Clone)]
struct HostTruth {
    power: HostPower,
    /// When it was last switched on: nothing is enumerated before.
    on_since: Timestamp,
}

/// What has happened so far, for tests to compare with what they asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub binds: u64,
    pub unbinds: u64,
    pub resets: u64,
    /// Asked to bind a GPU that was bound; refused.
    pub double_binds_refused: u64,
    /// Unbound while a job ran on it.
    pub pulled_in_use: u64,
    /// Resets that were asked for while it was free, and came while it was bound; a real one would have lost its work.
    pub resets_in_use: u64,
    /// Bound without a reset since it was last bound.
    pub bound_dirty: u64,
}

/// The truth about a rack.
#[derive(Debug)]
pub struct State {
    rack: Arc<Rack>,
    gpus: Vec<GpuTruth>,
    /// By GPU: the one of the rack file whose names, and so whose addresses, it has at its box.
    labels: Vec<GpuIx>,
    ports: Vec<PortTruth>,
    hosts: Vec<HostTruth>,
    changes: BTreeMap<ChangeId, change::Record>,
    queue: BTreeSet<(Timestamp, ChangeId)>,
    next_change: u64,
    /// The owner's marks of services, by their names.
    marks: BTreeMap<String, String>,
    revision: u64,
    /// The services that show something else since somebody asked, by their names.
    touched: BTreeSet<String>,
    tally: Tally,
}

impl State {
    /// A rack as it is switched on: only what was bound before is bound, and seen by its host.
    pub fn new(rack: Arc<Rack>, now: Timestamp) -> Self {
        let host = HostTruth {
            power: HostPower::On,
            on_since: now,
        };
        let mut state = Self {
            gpus: vec![GpuTruth::default(); rack.gpus.len()],
            labels: (0..rack.gpus.len()).map(GpuIx).collect(),
            ports: vec![PortTruth::default(); rack.ports.len()],
            hosts: vec![host; rack.hosts.len()],
            changes: BTreeMap::new(),
            queue: BTreeSet::new(),
            next_change: 0,
            marks: BTreeMap::new(),
            revision: 0,
            touched: BTreeSet::new(),
            tally: Tally::default(),
            rack,
        };
        let rack = Arc::clone(&state.rack);
        for &(gpu, port) in &rack.prebound {
            // The rack file was checked for this.
            let _ = state.bind_by_others(gpu, port, now);
            if let Some(binding) = &mut state.gpus[gpu.0].bound {
                binding.visible_at = now;
            }
        }
        state.tally = Tally::default();
        state
    }

    pub fn rack(&self) -> &Arc<Rack> {
        &self.rack
    }

    /// Counts what has changed in what outlives a restart: as long as it stays, [`State::save`] gives the same.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The names of the services that show something else than when this was asked last.
    pub fn take_touched(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.touched)
    }

    /// The box of a GPU shows something else, and the host at the port.
    fn touch(&mut self, gpu: GpuIx, port: Option<PortIx>) {
        use crate::resources::Service;
        let of_box = self.rack.box_of(gpu).map(Service::Box);
        let of_host = port.map(|port| Service::Bmc(self.rack[port].host));
        for service in of_box.into_iter().chain(of_host) {
            self.touched.insert(service.name(&self.rack));
        }
    }

    pub fn tally(&self) -> Tally {
        self.tally
    }

    pub fn binding(&self, gpu: GpuIx) -> Option<&Binding> {
        self.gpus[gpu.0].bound.as_ref()
    }

    /// The GPU of the rack file whose names, and so whose addresses, this one has at its box.
    pub fn label(&self, gpu: GpuIx) -> GpuIx {
        self.labels[gpu.0]
    }

    /// The other way round than [`State::label`].
    pub fn labelled(&self, label: GpuIx) -> GpuIx {
        // Almost always the one of the rack file.
        match self.labels[label.0] == label {
            true => label,
            false => GpuIx(self.labels.iter().position(|at| *at == label).unwrap_or(label.0)),
        }
    }

    /// The port that a GPU is bound to.
    pub fn bound_to(&self, gpu: GpuIx) -> Option<PortIx> {
        self.binding(gpu).map(|binding| binding.port)
    }

    /// The GPUs bound to a port, in the order of their places in the box.
    pub fn at_port(&self, port: PortIx) -> impl Iterator<Item = GpuIx> {
        let of_box = self.rack.gpus_of_box(self.rack[port].gpu_box);
        of_box.filter(move |&gpu| self.bound_to(gpu) == Some(port))
    }

    /// Whether the box still has it.
    pub fn present(&self, gpu: GpuIx) -> bool {
        !self.gpus[gpu.0].gone
    }

    /// Something is being done to it: bind, unbind or reset.
    pub fn busy(&self, gpu: GpuIx) -> bool {
        self.gpus[gpu.0].busy.is_some()
    }

    /// It is starting again after a reset.
    pub fn resetting(&self, gpu: GpuIx) -> bool {
        let change = self.gpus[gpu.0].busy.and_then(|id| self.changes.get(&id));
        change.is_some_and(change::Record::is_real_reset)
    }

    /// It was bound, and has not been reset since.
    pub fn dirty(&self, gpu: GpuIx) -> bool {
        self.gpus[gpu.0].dirty
    }

    /// How often it was reset.
    pub fn resets(&self, gpu: GpuIx) -> u32 {
        self.gpus[gpu.0].resets
    }

    pub fn jobs(&self, gpu: GpuIx) -> &[Job] {
        &self.gpus[gpu.0].jobs
    }

    pub fn power(&self, host: HostIx) -> HostPower {
        self.hosts[host.0].power
    }

    /// Whether a system is composed around this port.
    pub fn composed(&self, port: PortIx) -> bool {
        self.ports[port.0].composed
    }

    /// Whether its host sees a GPU just now: bound, enumerated, the host on. A soldered one is seen whenever
    /// its host is on.
    pub fn seen_by_host(&self, gpu: GpuIx, now: Timestamp) -> bool {
        let on = |host: HostIx| self.hosts[host.0].power == HostPower::On;
        let ready = |host: HostIx| now >= later(self.hosts[host.0].on_since, self.rack.latency.enumeration);
        match (self.rack[gpu].home, self.binding(gpu)) {
            _ if !self.present(gpu) => false,
            (crate::rack::Home::Host(host), _) => on(host),
            (_, None) => false,
            (_, Some(binding)) => {
                let host = self.rack[binding.port].host;
                // A host that was on before the bind has nothing of its own start to wait for.
                let started = self.hosts[host.0].on_since <= binding.visible_at || ready(host);
                on(host) && now >= binding.visible_at && started
            }
        }
    }

    /// The GPUs that a host sees just now, soldered ones first.
    pub fn gpus_of_host(&self, host: HostIx, now: Timestamp) -> Vec<GpuIx> {
        let soldered = self.rack[host].soldered.clone().map(GpuIx);
        let pooled = self.rack.ports_of_host(host).flat_map(|port| self.at_port(port));
        soldered
            .chain(pooled)
            .filter(|&gpu| self.seen_by_host(gpu, now))
            .collect()
    }

    /// All bindings, in the order of the GPUs.
    pub fn bindings(&self) -> impl Iterator<Item = (GpuIx, &Binding)> {
        let all = self.gpus.iter().enumerate();
        all.filter_map(|(at, truth)| truth.bound.as_ref().map(|binding| (GpuIx(at), binding)))
    }

    /// Puts a job on a GPU. Refused where its host does not see it, or lets nothing new in.
    pub fn start_job(&mut self, gpu: GpuIx, job: Job, now: Timestamp) -> Result<(), Refusal> {
        self.settle(now);
        let name = self.rack.gpu_name(gpu);
        if !self.seen_by_host(gpu, now) {
            return Err(Refusal::NotSeen { gpu: name });
        }
        let truth = &mut self.gpus[gpu.0];
        if truth.draining {
            return Err(Refusal::Draining { gpu: name });
        }
        truth.jobs.push(job);
        Ok(())
    }

    /// Ends a job; whether there was one.
    pub fn end_job(&mut self, gpu: GpuIx, pid: u32) -> bool {
        let jobs = &mut self.gpus[gpu.0].jobs;
        let before = jobs.len();
        jobs.retain(|job| job.pid != pid);
        jobs.len() < before
    }

    /// Lets no new jobs onto a GPU, or lets them again.
    pub fn set_draining(&mut self, gpu: GpuIx, draining: bool) {
        self.gpus[gpu.0].draining = draining;
    }

    /// Whether the light at its slot is lit.
    pub fn lit(&self, gpu: GpuIx) -> bool {
        self.gpus[gpu.0].lit
    }

    pub fn set_lit(&mut self, gpu: GpuIx, lit: bool) {
        self.revision += 1;
        self.gpus[gpu.0].lit = lit;
        self.touch(gpu, None);
    }

    /// The owner's mark of a service, by the service's name.
    pub fn mark(&self, service: &str) -> Option<&str> {
        self.marks.get(service).map(String::as_str)
    }

    /// Marks a service; an empty mark is none.
    pub fn set_mark(&mut self, service: &str, mark: &str) {
        self.revision += 1;
        match mark {
            "" => self.marks.remove(service),
            mark => self.marks.insert(service.to_owned(), mark.to_owned()),
        };
    }

    /// Looks whether all invariants hold. They always do; tests ask after every step.
    pub fn check(&self) -> Result<(), String> {
        let mut taken = BTreeSet::new();
        for (gpu, binding) in self.bindings() {
            let (name, port) = (self.rack.gpu_name(gpu), self.rack.port_name(binding.port));
            if self.rack.box_of(gpu) != Some(self.rack[binding.port].gpu_box) {
                return Err(format!("{name} is bound to {port}, which is not cabled to it"));
            }
            if self.gpus[gpu.0].gone {
                return Err(format!("{name} is gone, and bound to {port}"));
            }
            if !(1..=self.rack[binding.port].slots).contains(&binding.slot) {
                return Err(format!(
                    "{name} is in slot {} of {port}, which has none such",
                    binding.slot
                ));
            }
            if !taken.insert((binding.port, binding.slot)) {
                return Err(format!("slot {} of {port} holds two GPUs", binding.slot));
            }
        }
        for (at, truth) in self.gpus.iter().enumerate() {
            if truth
                .busy
                .is_some_and(|id| !self.changes.get(&id).is_some_and(change::Record::is_running))
            {
                return Err(format!(
                    "{} waits for a change that has ended",
                    self.rack.gpu_name(GpuIx(at))
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
