//! What just happens to a rack, asked by nobody: GPUs are pulled, managers forget, others bind.

use super::change::Record;
use super::{Change, Refusal, State};
use crate::rack::{BoxIx, GpuIx, HostIx, PortIx};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Whether a host runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostPower {
    On,
    Off,
}

impl State {
    /// A GPU is pulled out of its box. Its binding goes with it.
    pub fn vanish(&mut self, gpu: GpuIx, now: Timestamp) {
        self.settle(now);
        self.revision += 1;
        self.let_go(gpu);
        self.gpus[gpu.0].gone = true;
        self.touch(gpu, None);
    }

    /// A pulled GPU is put back, free.
    pub fn reappear(&mut self, gpu: GpuIx) {
        self.revision += 1;
        self.gpus[gpu.0].gone = false;
        self.touch(gpu, None);
    }

    /// A box gives two of its GPUs each other's names and addresses, as firmware may after an update. Everything else of
    /// them stays.
    pub fn renumber(&mut self, one: GpuIx, other: GpuIx) {
        self.revision += 1;
        self.labels.swap(one.0, other.0);
        self.touch(one, None);
        self.touch(other, None);
    }

    /// Two GPUs of a box change slots. Bindings belong to slots, so each GPU gets the other's binding.
    pub fn exchange(&mut self, one: GpuIx, other: GpuIx, now: Timestamp) {
        self.settle(now);
        let ports = [one, other].map(|gpu| self.bound_to(gpu));
        self.let_go(one);
        self.let_go(other);
        self.renumber(one, other);
        for (gpu, port) in [other, one].into_iter().zip(ports) {
            if let Some(port) = port {
                self.take(gpu, port, now);
            }
        }
    }

    /// A box's manager forgets all bindings and composed systems; the GPUs are free.
    pub fn lose_bindings(&mut self, of_box: BoxIx, now: Timestamp) {
        self.settle(now);
        self.revision += 1;
        for gpu in self.rack.gpus_of_box(of_box) {
            self.let_go(gpu);
        }
        for port in 0..self.ports.len() {
            if self.rack[PortIx(port)].gpu_box == of_box {
                self.ports[port].composed = false;
            }
        }
    }

    /// A box's manager restarts: what would never have ended is over, without effect. Bindings stay.
    pub fn restart_manager(&mut self, of_box: BoxIx, now: Timestamp) {
        self.settle(now);
        self.revision += 1;
        for gpu in self.rack.gpus_of_box(of_box) {
            let stuck = self.gpus[gpu.0]
                .busy
                .filter(|id| self.changes.get(id).is_some_and(Record::never_ends));
            if let Some(id) = stuck {
                self.queue.retain(|(_, queued)| *queued != id);
                self.finish(id, now);
            }
        }
    }

    /// Somebody else binds a GPU, at once. Refused as a bind of ours would be.
    pub fn bind_by_others(&mut self, gpu: GpuIx, port: PortIx, now: Timestamp) -> Result<(), Refusal> {
        self.settle(now);
        self.allowed(&Change::bind(gpu, port), None)?;
        self.revision += 1;
        self.take(gpu, port, now);
        if self.rack.style == crate::rack::Style::ResourceBlocks {
            self.ports[port.0].composed = true;
        }
        Ok(())
    }

    /// Somebody else unbinds a GPU, at once.
    pub fn unbind_by_others(&mut self, gpu: GpuIx, now: Timestamp) {
        self.settle(now);
        self.revision += 1;
        self.let_go(gpu);
    }

    /// Switches a host on or off. Its bindings stay; off, it sees nothing and runs nothing.
    pub fn set_power(&mut self, host: HostIx, power: HostPower, now: Timestamp) {
        self.settle(now);
        self.revision += 1;
        let truth = &mut self.hosts[host.0];
        if truth.power == HostPower::Off && power == HostPower::On {
            truth.on_since = now;
        }
        truth.power = power;
        if power == HostPower::Off {
            self.stop_jobs(host);
        }
    }

    /// Restarts a host: its jobs end, and it enumerates anew.
    pub fn restart(&mut self, host: HostIx, now: Timestamp) {
        self.set_power(host, HostPower::Off, now);
        self.set_power(host, HostPower::On, now);
    }

    fn stop_jobs(&mut self, host: HostIx) {
        let rack = std::sync::Arc::clone(&self.rack);
        for port in rack.ports_of_host(host) {
            let held: Vec<GpuIx> = self.at_port(port).collect();
            for gpu in held {
                self.gpus[gpu.0].jobs.clear();
            }
        }
    }
}
