//! The host's side: what its BMC sees, and what an agent on it could do.

use super::call::Line;
use crate::rack::{GpuIx, HostIx, PortIx};
use crate::state::{HostPower, State};
use async_trait::async_trait;
use jiff::Timestamp;
use poolwright_driver::{Confirmation, DriverError, Holder, HostSide, HostTarget, Room, in_use};
use poolwright_model::id::{ControlEndpointId, GpuId};
use std::time::Duration;

pub(super) struct InProcessHost {
    pub line: Line,
    pub at: HostIx,
}

#[async_trait]
impl HostSide for InProcessHost {
    fn endpoint(&self) -> &ControlEndpointId {
        &self.line.endpoint
    }

    /// Counts the free slots of the ports that lead to the GPUs' boxes.
    async fn preflight(&self, target: &HostTarget, deadline: Duration) -> Result<Room, DriverError> {
        let wanted = target.gpus.len();
        let look = |state: &State, _| {
            if state.power(self.at) == HostPower::Off {
                return Room::NotEnough {
                    reason: format!("{} is switched off", self.name()),
                };
            }
            let ports = self.ports_to(state, target);
            if ports.is_empty() {
                return Room::CannotTell {
                    reason: "no port leads to these GPUs".to_owned(),
                };
            }
            let free: usize = ports.iter().map(|&port| free_slots(state, port)).sum();
            match free >= wanted {
                true => Room::Enough,
                false => Room::NotEnough {
                    reason: format!("{free} slots are free, {wanted} are needed"),
                },
            }
        };
        self.line.read("/redfish/v1/Chassis", deadline, look).await
    }

    async fn verify(&self, target: &HostTarget, deadline: Duration) -> Result<Confirmation, DriverError> {
        if target.known_as.is_empty() {
            let reason = "neither UUID nor serial number of the GPUs is known".to_owned();
            return Ok(Confirmation::CannotTell { reason });
        }
        let look = |state: &State, now: Timestamp| {
            let seen = self.named(state, now, target).len();
            match seen >= target.gpus.len() {
                true => Confirmation::Seen {
                    evidence: format!("agent {}", self.name()),
                    learned: Vec::new(),
                },
                false => Confirmation::not_seen(format!(
                    "{} sees {seen} of {} GPUs",
                    self.name(),
                    target.gpus.len()
                )),
            }
        };
        self.line
            .read("/redfish/v1/Systems/1/Processors", deadline, look)
            .await
    }

    async fn holders(&self, target: &HostTarget, deadline: Duration) -> Result<Vec<Holder>, DriverError> {
        self.line
            .read("/agent/holders", deadline, |state, now| {
                self.holders_now(state, now, target)
            })
            .await
    }

    /// Lets in nothing new. Refused, with the holders, while something runs: nothing is killed.
    async fn drain(&self, target: &HostTarget, deadline: Duration) -> Result<(), DriverError> {
        let holders = self
            .line
            .read("/agent/drain", deadline, |state, now| {
                self.holders_now(state, now, target)
            })
            .await?;
        if !holders.is_empty() {
            return Err(in_use(&format!(" on {}", target.host), &holders));
        }
        self.set_draining(target, true);
        Ok(())
    }

    async fn undrain(&self, target: &HostTarget, deadline: Duration) -> Result<(), DriverError> {
        self.line.read("/agent/undrain", deadline, |_, _| ()).await?;
        self.set_draining(target, false);
        Ok(())
    }
}

impl InProcessHost {
    fn name(&self) -> &str {
        &self.line.rack()[self.at].name
    }

    /// Whether a GPU goes by one of these names.
    fn is_named(&self, gpu: GpuIx, known_as: &[String]) -> bool {
        let own = &self.line.rack()[gpu];
        let uuid = own.uuid.to_string();
        known_as.iter().any(|name| {
            let bare = name.to_lowercase();
            let bare = bare.strip_prefix("gpu-").unwrap_or(&bare);
            bare == uuid || *name == own.serial
        })
    }

    /// Those of the target that the host sees just now.
    fn named(&self, state: &State, now: Timestamp, target: &HostTarget) -> Vec<GpuIx> {
        let seen = state.gpus_of_host(self.at, now);
        seen.into_iter()
            .filter(|&gpu| self.is_named(gpu, &target.known_as))
            .collect()
    }

    /// The host's ports that are cabled to the boxes of the target's GPUs.
    fn ports_to(&self, state: &State, target: &HostTarget) -> Vec<PortIx> {
        let rack = state.rack();
        let boxes: Vec<_> = rack
            .box_ixs()
            .filter(|&of_box| {
                rack.gpus_of_box(of_box)
                    .any(|gpu| self.is_named(gpu, &target.known_as))
            })
            .collect();
        rack.ports_of_host(self.at)
            .filter(|&port| boxes.contains(&rack[port].gpu_box))
            .collect()
    }

    fn holders_now(&self, state: &State, now: Timestamp, target: &HostTarget) -> Vec<Holder> {
        let mut holders = Vec::new();
        for gpu in self.named(state, now, target) {
            let id = self.id_in(target, gpu);
            holders.extend(state.jobs(gpu).iter().map(|job| Holder {
                gpu: id.clone(),
                pid: Some(job.pid),
                command: job.command.clone(),
            }));
        }
        holders
    }

    /// What the caller calls a GPU: the lists of a target go side by side where they are of one length.
    fn id_in(&self, target: &HostTarget, gpu: GpuIx) -> GpuId {
        let place = target
            .known_as
            .iter()
            .position(|name| self.is_named(gpu, std::slice::from_ref(name)));
        let same_length = target.known_as.len() == target.gpus.len();
        place
            .filter(|_| same_length)
            .and_then(|place| target.gpus.get(place).cloned())
            .unwrap_or_else(|| GpuId::from_lossy(&self.line.rack()[gpu].uuid.to_string()))
    }

    fn set_draining(&self, target: &HostTarget, draining: bool) {
        self.line.emulation.with(|state, now| {
            for gpu in self.named(state, now, target) {
                state.set_draining(gpu, draining);
            }
        });
    }
}

fn free_slots(state: &State, port: PortIx) -> usize {
    (state.rack()[port].slots as usize).saturating_sub(state.at_port(port).count())
}
