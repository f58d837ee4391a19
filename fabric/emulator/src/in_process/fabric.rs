//! The fabric's side of a box. A host's BMC shows what it sees by the same trait, and binds nothing.

use super::address;
use super::call::Line;
use super::observe;
use crate::rack::{BoxIx, GpuIx, PortIx};
use crate::resources::Service;
use crate::state::{Change, State};
use async_trait::async_trait;
use poolwright_driver::{
    Bindings, Bound, ControlPoint, DriverError, ErrorKind, Fabric, GpuIdentity, Listened, Observation,
    Progress, PushTo, ResetSeen, Whereabouts, read_each,
};
use poolwright_model::driver_label::DriverLabel;
use poolwright_model::fault::FaultKind;
use poolwright_model::id::ControlEndpointId;
use std::time::Duration;

/// Nobody waits longer for a look at everything.
const OBSERVE: Duration = Duration::from_secs(120);

pub(super) struct InProcessFabric {
    pub line: Line,
    pub service: Service,
}

#[async_trait]
impl Fabric for InProcessFabric {
    fn endpoint(&self) -> &ControlEndpointId {
        &self.line.endpoint
    }

    async fn observe(&self, progress: &dyn Progress) -> Result<Observation, DriverError> {
        let look = |state: &_, now| match self.service {
            Service::Box(at) => observe::of_box(state, at, &self.line.endpoint),
            Service::Bmc(at) => observe::of_host(state, at, &self.line.endpoint, now),
        };
        let topology = self.line.read("/redfish/v1", OBSERVE, look).await?;
        progress.advanced(1, 0);
        Ok(Observation {
            topology,
            label: DriverLabel::emulated(None),
            mark: self.mark(),
            requests: 1,
            ..Observation::default()
        })
    }

    async fn bind(
        &self,
        unit: &ControlPoint,
        port: &ControlPoint,
        deadline: Duration,
    ) -> Result<(), DriverError> {
        let (gpu, port) = (self.gpu(unit)?, self.port(port)?);
        let request = address::bind_request(self.line.rack(), port);
        self.line.change(request, Change::bind(gpu, port), deadline).await
    }

    async fn unbind(
        &self,
        unit: &ControlPoint,
        port: &ControlPoint,
        deadline: Duration,
    ) -> Result<(), DriverError> {
        let (gpu, port) = (self.gpu(unit)?, self.port(port)?);
        let request = address::unbind_request(self.line.rack(), port, self.label(unit)?);
        self.line
            .change(request, Change::unbind(gpu, port), deadline)
            .await
    }

    async fn bound(&self, unit: &ControlPoint, deadline: Duration) -> Result<Bound, DriverError> {
        let label = self.label(unit)?;
        let bound = self.line.read(&unit.address, deadline, |state, _| {
            let gpu = state.labelled(label);
            state.present(gpu).then(|| state.bound_to(gpu))
        });
        match bound.await? {
            Some(Some(port)) => Ok(Bound::To {
                port_address: address::of_port(self.line.rack(), port),
            }),
            Some(None) => Ok(Bound::Free),
            None => Err(
                DriverError::no_effect(format!("{} is gone", self.line.rack().gpu_name(label)))
                    .with_fault(FaultKind::Missing),
            ),
        }
    }

    async fn identify(
        &self,
        unit: &ControlPoint,
        deadline: Duration,
    ) -> Result<Vec<GpuIdentity>, DriverError> {
        let label = self.label(unit)?;
        let options = &self.line.rack().options;
        let knows_uuid = options.processors && options.box_knows_uuid;
        let look = |state: &State, _| {
            let gpu = state.labelled(label);
            let own = &state.rack()[gpu];
            state.present(gpu).then(|| GpuIdentity {
                uuid: knows_uuid.then(|| format!("GPU-{}", own.uuid)),
                serial: Some(own.serial.clone()),
                ids: own.kind.pci_ids.first().cloned(),
            })
        };
        let found = self.line.read(&unit.address, deadline, look).await?;
        Ok(found.into_iter().collect())
    }

    async fn bindings(&self, units: &[ControlPoint], deadline: Duration) -> Result<Bindings, DriverError> {
        if units.is_empty() {
            self.line.read("/redfish/v1", deadline, |_, _| ()).await?;
            return Ok(Bindings {
                requests: 1,
                ..Bindings::default()
            });
        }
        let read = |unit: ControlPoint, left| async move { self.bound(&unit, left).await };
        read_each(units, deadline, read).await
    }

    async fn reset(&self, unit: &ControlPoint, deadline: Duration) -> Result<ResetSeen, DriverError> {
        let gpu = self.gpu(unit)?;
        if !self.line.rack().options.reset_action {
            return Ok(ResetSeen::CannotTell);
        }
        let count = || self.line.emulation.with(|state, _| state.resets(gpu));
        let before = count();
        let request = address::reset_request(self.line.rack(), self.label(unit)?);
        self.line.change(request, Change::Reset { gpu }, deadline).await?;
        Ok(if count() > before {
            ResetSeen::Done
        } else {
            ResetSeen::CannotTell
        })
    }

    async fn listen(
        &self,
        _push_to: Option<&PushTo>,
        hint: &(dyn Fn() + Send + Sync),
    ) -> Result<Listened, DriverError> {
        if !self.line.rack().options.events {
            return Ok(Listened::NotOffered);
        }
        let mut told = self.line.emulation.listen(self.line.endpoint.as_str());
        hint();
        while told.next().await.is_some() {
            hint();
        }
        Ok(Listened::Ended)
    }

    async fn set_mark(
        &self,
        mark: Option<&str>,
        instead: Option<&str>,
        deadline: Duration,
    ) -> Result<(), DriverError> {
        if !self.line.rack().options.owner_mark {
            let message = format!("{} can carry no owner's mark", self.line.endpoint);
            return Err(DriverError::cannot_tell(message));
        }
        let path = match self.service {
            Service::Box(_) => "/redfish/v1/Managers/manager",
            Service::Bmc(_) => "/redfish/v1/Managers/bmc",
        };
        self.line.read(path, deadline, |_, _| ()).await?;
        let stands = self.mark();
        if stands.as_deref() != instead && stands.as_deref() != mark {
            let message = format!(
                "{} carries {} by now",
                self.line.endpoint,
                stands.unwrap_or_default()
            );
            return Err(DriverError::new(ErrorKind::Conflict, message));
        }
        let name = self.line.endpoint.as_str();
        self.line
            .emulation
            .with(|state, _| state.set_mark(name, mark.unwrap_or_default()));
        Ok(())
    }

    async fn locate(&self, at: &Whereabouts, lit: bool, deadline: Duration) -> Result<(), DriverError> {
        let rack = self.line.rack();
        let of_box = match self.service {
            Service::Box(of_box) if rack.options.locators => of_box,
            _ => return Err(self.no_locator()),
        };
        let is_meant = |gpu: &GpuIx| match &at.locator {
            Some(locator) => self.light(*gpu) == *locator,
            None => at.slot == Some(format!("Slot {}", rack[*gpu].slot)),
        };
        let Some(gpu) = rack.gpus_of_box(of_box).find(is_meant) else {
            return Err(self.no_locator());
        };
        if at
            .serial
            .as_ref()
            .is_some_and(|serial| *serial != rack[gpu].serial)
        {
            let message = format!("another one sits there by now: {}", rack[gpu].serial);
            return Err(DriverError::cannot_tell(message));
        }
        self.line.read(&self.light(gpu), deadline, |_, _| ()).await?;
        self.line.emulation.with(|state, _| state.set_lit(gpu, lit));
        Ok(())
    }
}

impl InProcessFabric {
    fn mark(&self) -> Option<String> {
        let mark = |state: &mut State| state.mark(self.line.endpoint.as_str()).map(str::to_owned);
        self.line.emulation.with(|state, _| mark(state))
    }

    /// The GPU that is at this address now.
    fn gpu(&self, unit: &ControlPoint) -> Result<GpuIx, DriverError> {
        let label = self.label(unit)?;
        Ok(self.line.emulation.with(|state, _| state.labelled(label)))
    }

    /// The GPU of the rack file whose address it is.
    fn label(&self, unit: &ControlPoint) -> Result<GpuIx, DriverError> {
        let found = |at: BoxIx| address::gpu_at(self.line.rack(), at, &unit.address);
        self.own_box(unit)
            .and_then(found)
            .ok_or_else(|| self.unknown(unit))
    }

    fn light(&self, gpu: GpuIx) -> String {
        let label = self.line.emulation.with(|state, _| state.label(gpu));
        address::light(self.line.rack(), label)
    }

    fn port(&self, port: &ControlPoint) -> Result<PortIx, DriverError> {
        let found = |at: BoxIx| address::port_at(self.line.rack(), at, &port.address);
        self.own_box(port)
            .and_then(found)
            .ok_or_else(|| self.unknown(port))
    }

    /// The box, if it is one and the point is at this endpoint.
    fn own_box(&self, point: &ControlPoint) -> Option<BoxIx> {
        match self.service {
            Service::Box(at) if point.endpoint == self.line.endpoint => Some(at),
            _ => None,
        }
    }

    fn no_locator(&self) -> DriverError {
        DriverError::cannot_tell(format!("{} has no such locator", self.line.endpoint))
    }

    fn unknown(&self, point: &ControlPoint) -> DriverError {
        DriverError::no_effect(format!(
            "{} has no {} at {}",
            self.line.endpoint, point.address, point.endpoint
        ))
    }
}
