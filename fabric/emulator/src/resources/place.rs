//! Where a GPU is shown: in its box, and on the host that sees it just now. Each has its own names for it.

use super::resource::uri;
use super::{Service, View};
use crate::rack::{GpuIx, Home};

impl View<'_> {
    /// The GPUs that this service shows just now.
    pub fn gpus(&self) -> Vec<GpuIx> {
        match self.service {
            Service::Box(at) => self
                .rack
                .gpus_of_box(at)
                .filter(|&gpu| self.state.present(gpu))
                .collect(),
            Service::Bmc(at) => self.state.gpus_of_host(at, self.now),
        }
    }

    /// The GPU of the rack file whose names it has at its box.
    pub fn label(&self, gpu: GpuIx) -> GpuIx {
        self.state.label(gpu)
    }

    /// What this service calls a GPU. A BMC knows only where it is plugged in.
    pub fn gpu_id(&self, gpu: GpuIx) -> String {
        let at = &self.rack[gpu];
        match (self.service, self.state.binding(gpu)) {
            (Service::Box(_), _) => self.rack[self.label(gpu)].name.clone(),
            (Service::Bmc(_), Some(binding)) => {
                format!("adapter-{}-slot-{}", self.rack[binding.port].number, binding.slot)
            }
            (Service::Bmc(_), None) => format!("baseboard-{}", at.slot),
        }
    }

    /// The GPU that this service calls so.
    pub fn gpu_with_id(&self, id: &str) -> Option<GpuIx> {
        // A box has as many as it has: no need to make all their names.
        if let Service::Box(at) = self.service {
            let found = self.rack.gpus_of_box(at).find(|&gpu| self.rack[gpu].name == id);
            let gpu = found.map(|label| self.state.labelled(label));
            return gpu.filter(|&gpu| self.state.present(gpu));
        }
        self.gpus().into_iter().find(|&gpu| self.gpu_id(gpu) == id)
    }

    pub fn processor_uri(&self, gpu: GpuIx) -> String {
        let id = self.gpu_id(gpu);
        match self.service {
            Service::Box(at) => uri(format_args!("Chassis/{}/Processors/{id}", self.rack[at].name)),
            Service::Bmc(_) => uri(format_args!("Systems/1/Processors/{id}")),
        }
    }

    pub fn device_uri(&self, gpu: GpuIx) -> String {
        uri(format_args!(
            "Chassis/{}/PCIeDevices/{}",
            self.main_chassis(),
            self.gpu_id(gpu)
        ))
    }

    /// The id of the chassis that the service is about.
    pub fn main_chassis(&self) -> &str {
        match self.service {
            Service::Box(at) => &self.rack[at].name,
            Service::Bmc(_) => "1",
        }
    }

    /// The slot that this service shows a GPU in: its number, and whether it is a slot at all.
    pub fn slot_of(&self, gpu: GpuIx) -> (usize, bool) {
        match (self.service, self.state.binding(gpu)) {
            (Service::Bmc(_), Some(binding)) => (binding.slot as usize, true),
            _ => (self.rack[gpu].slot, matches!(self.rack[gpu].home, Home::Box(..))),
        }
    }
}
