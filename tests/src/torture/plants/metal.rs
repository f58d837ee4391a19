//! Drivers that lie, and hosts that do.

use super::super::gate::unpoisoned;
use super::Plant;
use async_trait::async_trait;
use poolwright_driver::{
    Bound, Confirmation, ControlPoint, CutOff, DriverError, Fabric, GpuIdentity, Holder, HostSide,
    HostTarget, Observation, Progress, ResetSeen, Room, TaskSeen,
};
use poolwright_model::id::ControlEndpointId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub struct BadFabric {
    pub plant: Plant,
    pub fabric: Arc<dyn Fabric>,
    /// Where it says that units are bound, whatever is so; `None` is nowhere.
    pub said: Mutex<BTreeMap<String, Option<String>>>,
}

impl BadFabric {
    fn says(&self, unit: &ControlPoint, port: Option<&ControlPoint>) {
        let port = port.map(|port| port.address.clone());
        unpoisoned(&self.said).insert(unit.address.clone(), port);
    }

    fn said(&self, unit: &ControlPoint) -> Option<Option<String>> {
        unpoisoned(&self.said).get(&unit.address).cloned()
    }
}

#[async_trait]
impl Fabric for BadFabric {
    fn endpoint(&self) -> &ControlEndpointId {
        self.fabric.endpoint()
    }
    async fn observe(&self, progress: &dyn Progress) -> Result<Observation, DriverError> {
        let mut seen = self.fabric.observe(progress).await?;
        if self.plant == Plant::TakesForeign {
            for gpu in &mut seen.topology.gpus {
                (gpu.host, gpu.host_port) = (None, None);
            }
        }
        Ok(seen)
    }
    async fn bind(
        &self,
        unit: &ControlPoint,
        port: &ControlPoint,
        deadline: Duration,
    ) -> Result<(), DriverError> {
        match self.plant {
            Plant::DreamsOfBinds => {
                self.says(unit, Some(port));
                Ok(())
            }
            Plant::TakesForeign => {
                if let Ok(Bound::To { port_address }) = self.fabric.bound(unit, deadline).await {
                    let other = ControlPoint {
                        address: port_address,
                        ..port.clone()
                    };
                    self.fabric.unbind(unit, &other, deadline).await?;
                }
                self.says(unit, Some(port));
                self.fabric.bind(unit, port, deadline).await
            }
            _ => self.fabric.bind(unit, port, deadline).await,
        }
    }
    async fn unbind(
        &self,
        unit: &ControlPoint,
        port: &ControlPoint,
        deadline: Duration,
    ) -> Result<(), DriverError> {
        if matches!(
            self.plant,
            Plant::Leaks | Plant::DreamsOfBinds | Plant::TakesForeign
        ) {
            self.says(unit, None);
        }
        match self.plant {
            Plant::Leaks | Plant::DreamsOfBinds => Ok(()),
            _ => self.fabric.unbind(unit, port, deadline).await,
        }
    }
    async fn bound(&self, unit: &ControlPoint, deadline: Duration) -> Result<Bound, DriverError> {
        let bound = self.fabric.bound(unit, deadline).await?;
        Ok(match (self.said(unit), self.plant) {
            (Some(Some(port_address)), Plant::DreamsOfBinds) => Bound::To { port_address },
            (Some(None), _) | (None, Plant::TakesForeign) => Bound::Free,
            _ => bound,
        })
    }
    async fn identify(&self, unit: &ControlPoint, d: Duration) -> Result<Vec<GpuIdentity>, DriverError> {
        match self.plant {
            Plant::IgnoresIdentity => Ok(vec![GpuIdentity::default()]),
            _ => self.fabric.identify(unit, d).await,
        }
    }
    async fn task(&self, task: &str, deadline: Duration) -> Result<TaskSeen, DriverError> {
        self.fabric.task(task, deadline).await
    }
    async fn end_other_sessions(&self, deadline: Duration) -> Result<CutOff, DriverError> {
        self.fabric.end_other_sessions(deadline).await
    }
    async fn reset(&self, unit: &ControlPoint, deadline: Duration) -> Result<ResetSeen, DriverError> {
        match self.plant {
            Plant::SkipsResets => Ok(ResetSeen::Done),
            _ => self.fabric.reset(unit, deadline).await,
        }
    }
}

pub struct BadHost {
    pub plant: Plant,
    pub host: Arc<dyn HostSide>,
}

#[async_trait]
impl HostSide for BadHost {
    fn endpoint(&self) -> &ControlEndpointId {
        self.host.endpoint()
    }
    async fn started(&self, target: &HostTarget, deadline: Duration) -> Result<Option<String>, DriverError> {
        self.host.started(target, deadline).await
    }
    async fn preflight(&self, target: &HostTarget, deadline: Duration) -> Result<Room, DriverError> {
        self.host.preflight(target, deadline).await
    }
    async fn verify(&self, target: &HostTarget, deadline: Duration) -> Result<Confirmation, DriverError> {
        match self.plant {
            Plant::DreamsOfBinds => Ok(Confirmation::CannotTell {
                reason: "it dreams".to_owned(),
            }),
            _ => self.host.verify(target, deadline).await,
        }
    }
    async fn holders(&self, target: &HostTarget, deadline: Duration) -> Result<Vec<Holder>, DriverError> {
        match self.plant {
            Plant::PullsInUse => Ok(Vec::new()),
            _ => self.host.holders(target, deadline).await,
        }
    }
    async fn drain(&self, target: &HostTarget, deadline: Duration) -> Result<(), DriverError> {
        match self.plant {
            Plant::PullsInUse => Ok(()),
            _ => self.host.drain(target, deadline).await,
        }
    }
    async fn undrain(&self, target: &HostTarget, deadline: Duration) -> Result<(), DriverError> {
        self.host.undrain(target, deadline).await
    }
}
