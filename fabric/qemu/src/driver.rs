//! The lab through the traits of the metal.

use crate::lab::{Gpu, Host, Lab, Port};
use crate::look::{Look, connect, look, unanswered};
use crate::monitor::{Monitor, Trouble};
use crate::observe::observation;
use crate::unplug::{Ended, unplug};
use async_trait::async_trait;
use poolwright_driver::{
    Bindings, Bound, Confirmation, ControlPoint, DriverError, ErrorKind, Fabric, Holder, HostSide,
    HostTarget, Late, Observation, Progress, ResetSeen, Room,
};
use poolwright_model::fault::FaultKind;
use poolwright_model::id::ControlEndpointId;
use poolwright_model::identity::GpuIdentity;
use serde_json::{Value, json};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};

/// A look at everything; each guest has its own patience.
const OBSERVE: Duration = Duration::from_secs(30);

/// The guests and devices of one lab file.
#[derive(Debug, Clone)]
pub struct QemuDriver {
    name: ControlEndpointId,
    file: PathBuf,
}

impl QemuDriver {
    /// `name` is what the endpoint is called in observations and control points. The file is read once to see that it
    /// is one; no guest is asked.
    pub fn open(name: ControlEndpointId, file: &Path) -> Result<Self, DriverError> {
        Lab::read(file)?;
        let file = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
        Ok(Self { name, file })
    }

    fn lab(&self) -> Result<Lab, DriverError> {
        Lab::read(&self.file)
    }

    fn gpu<'a>(&self, lab: &'a Lab, unit: &ControlPoint) -> Result<&'a Gpu, DriverError> {
        let found = lab.gpu(&unit.address).filter(|_| unit.endpoint == self.name);
        found.ok_or_else(|| self.unknown("device", unit))
    }

    fn port<'a>(&self, lab: &'a Lab, port: &ControlPoint) -> Result<(&'a Host, &'a Port), DriverError> {
        let found = lab.port(&port.address).filter(|_| port.endpoint == self.name);
        found.ok_or_else(|| self.unknown("port", port))
    }

    fn unknown(&self, what: &str, point: &ControlPoint) -> DriverError {
        let at = &point.endpoint;
        let message = format!("{} has no {what} {} (of {at})", self.name, point.address);
        DriverError::no_effect(message).with_fault(FaultKind::Missing)
    }
}

#[async_trait]
impl Fabric for QemuDriver {
    fn endpoint(&self) -> &ControlEndpointId {
        &self.name
    }

    async fn observe(&self, progress: &dyn Progress) -> Result<Observation, DriverError> {
        let lab = self.lab()?;
        let look = look(&lab, OBSERVE).await;
        let seen = observation(&look, &self.name, &self.file);
        progress.advanced(seen.requests, 0);
        Ok(seen)
    }

    async fn bind(
        &self,
        unit: &ControlPoint,
        port: &ControlPoint,
        deadline: Duration,
    ) -> Result<(), DriverError> {
        let end = Instant::now() + deadline;
        let lab = self.lab()?;
        let (gpu, (host, at)) = (self.gpu(&lab, unit)?, self.port(&lab, port)?);
        may_come(&look(&lab, deadline).await, gpu, host, at)?;
        let ready = async {
            let mut monitor = connect(host).await?;
            if let Some(socket) = &gpu.socket {
                let open = UnixStream::connect(socket).await.map_err(|error| {
                    Trouble::Refused(format!("{} at {}: {error}", gpu.id, socket.display()))
                })?;
                monitor.give_file(&gpu.id, open).await?;
            }
            Ok(monitor)
        };
        let mut monitor = before(end, host, ready).await?;
        let added = async {
            monitor.execute("device_add", arguments(gpu, at)).await?;
            monitor.plugged().await
        };
        match timeout_at(end, added).await {
            Ok(Ok(there)) if there.get(&gpu.id) == Some(&at.id) => Ok(()),
            Ok(Ok(_)) => Err(DriverError::unknown(format!(
                "QEMU took {} into {}, and does not show it there",
                gpu.id, port.address
            ))),
            Ok(Err(Trouble::Refused(why))) => {
                Err(DriverError::no_effect(format!("guest {}: {why}", host.id))
                    .with_hint("see the lab file, and the arguments that QEMU was started with"))
            }
            Ok(Err(Trouble::Off(why) | Trouble::Lost(why))) => {
                Err(DriverError::unknown(format!("guest {}: {why}", host.id)))
            }
            Err(_) => {
                let message = format!("guest {}: no answer to device_add in time", host.id);
                Err(DriverError::unknown(message).with_fault(FaultKind::Timeout))
            }
        }
    }

    async fn unbind(
        &self,
        unit: &ControlPoint,
        port: &ControlPoint,
        deadline: Duration,
    ) -> Result<(), DriverError> {
        let end = Instant::now() + deadline;
        let lab = self.lab()?;
        let (gpu, (host, at)) = (self.gpu(&lab, unit)?, self.port(&lab, port)?);
        let ready = async {
            let mut monitor = connect(host).await?;
            let there = monitor.plugged().await?;
            Ok((monitor, there))
        };
        let (monitor, there): (Monitor, _) = before(end, host, ready).await?;
        match there.get(&gpu.id) {
            Some(found) if *found == at.id => {}
            Some(found) => {
                let message = format!("{} is at {}/{found}, not at {}", gpu.id, host.id, port.address);
                return Err(DriverError::new(ErrorKind::Conflict, message));
            }
            None => {
                let message = format!("{} is not plugged in at {}", gpu.id, port.address);
                return Err(DriverError::new(ErrorKind::Conflict, message));
            }
        }
        match unplug(monitor, host, &gpu.id, end).await {
            Ended::Out => Ok(()),
            Ended::Refused(why) => Err(DriverError::no_effect(format!("guest {}: {why}", host.id))),
            Ended::Pending(why) => Err(DriverError::unknown(format!("guest {}: {why}", host.id))
                .with_hint("see what the guest's kernel says about the slot")
                .with_late(Late::Perhaps)
                .with_fault(FaultKind::Timeout)),
        }
    }

    async fn bound(&self, unit: &ControlPoint, deadline: Duration) -> Result<Bound, DriverError> {
        let lab = self.lab()?;
        let gpu = self.gpu(&lab, unit)?;
        look(&lab, deadline).await.bound(&gpu.id)
    }

    /// The lab file names each device, and QEMU is told to make just that one.
    async fn identify(
        &self,
        unit: &ControlPoint,
        _deadline: Duration,
    ) -> Result<Vec<GpuIdentity>, DriverError> {
        let lab = self.lab()?;
        let gpu = self.gpu(&lab, unit)?;
        Ok(vec![GpuIdentity {
            uuid: gpu.uuid.clone(),
            serial: gpu.serial.clone(),
            ids: gpu.pci_ids(),
        }])
    }

    async fn bindings(&self, units: &[ControlPoint], deadline: Duration) -> Result<Bindings, DriverError> {
        let lab = self.lab()?;
        let look = look(&lab, deadline).await;
        let read = |unit: &ControlPoint| match self.gpu(&lab, unit) {
            Ok(gpu) => look.bound(&gpu.id).map(Some),
            Err(_) => Ok(None),
        };
        Ok(Bindings {
            units: units.iter().map(read).collect(),
            requests: u64::try_from(lab.hosts.len()).unwrap_or(u64::MAX),
        })
    }

    /// A device that is plugged in nowhere is nothing: QEMU makes it anew, as after power on.
    async fn reset(&self, unit: &ControlPoint, deadline: Duration) -> Result<ResetSeen, DriverError> {
        match self.bound(unit, deadline).await? {
            Bound::Free => Ok(ResetSeen::Done),
            _ => {
                let message = format!("{} is plugged in, so it is not reset", unit.address);
                Err(DriverError::new(ErrorKind::Conflict, message))
            }
        }
    }
}

/// Whether nobody has the device, and nothing is in the port.
fn may_come(look: &Look<'_>, gpu: &Gpu, host: &Host, port: &Port) -> Result<(), DriverError> {
    let conflict = |message| Err(DriverError::new(ErrorKind::Conflict, message));
    match look.bound(&gpu.id)? {
        Bound::Free => {}
        Bound::To { port_address } => return conflict(format!("{} is at {port_address}", gpu.id)),
        Bound::Several { port_addresses } => {
            return conflict(format!("{} is at {}", gpu.id, port_addresses.join(" and ")));
        }
    }
    match look.taken_by(&host.id, &port.id) {
        Some(other) => conflict(format!("{other} is in port {}/{}", host.id, port.id)),
        None => Ok(()),
    }
}

fn arguments(gpu: &Gpu, port: &Port) -> Value {
    let mut all = gpu.device.clone();
    all.insert("id".to_owned(), json!(gpu.id));
    all.insert("bus".to_owned(), json!(port.id));
    if gpu.socket.is_some() {
        all.insert("fd".to_owned(), json!(gpu.id));
    }
    Value::Object(all)
}

/// What is done before anything is asked for: whatever goes wrong, nothing changed.
async fn before<T>(
    end: Instant,
    host: &Host,
    what: impl Future<Output = Result<T, Trouble>>,
) -> Result<T, DriverError> {
    let left = end.saturating_duration_since(Instant::now());
    match timeout_at(end, what).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(trouble)) => {
            let fault = match &trouble {
                Trouble::Off(_) => FaultKind::Unreachable,
                _ => FaultKind::ServerError,
            };
            let message = format!("guest {}: {}", host.id, trouble.message());
            Err(DriverError::no_effect(message).with_fault(fault))
        }
        Err(_) => {
            let message = format!("guest {}: {}", host.id, unanswered(left));
            Err(DriverError::no_effect(message).with_fault(FaultKind::Timeout))
        }
    }
}

/// QEMU knows what is plugged in, and nothing of what a guest makes of it.
fn only_the_guest_knows() -> DriverError {
    DriverError::cannot_tell("QEMU can't tell what a guest makes of it")
        .with_hint("run `poolwright-agent` in the guest")
        .with_fault(FaultKind::NotSupported)
}

#[async_trait]
impl HostSide for QemuDriver {
    fn endpoint(&self) -> &ControlEndpointId {
        &self.name
    }

    async fn preflight(&self, _target: &HostTarget, _deadline: Duration) -> Result<Room, DriverError> {
        Err(only_the_guest_knows())
    }

    async fn verify(&self, _target: &HostTarget, _deadline: Duration) -> Result<Confirmation, DriverError> {
        Err(only_the_guest_knows())
    }

    async fn holders(&self, _target: &HostTarget, _deadline: Duration) -> Result<Vec<Holder>, DriverError> {
        Err(only_the_guest_knows())
    }

    fn can_drain(&self) -> bool {
        false
    }

    async fn drain(&self, _target: &HostTarget, _deadline: Duration) -> Result<(), DriverError> {
        Err(only_the_guest_knows())
    }

    async fn undrain(&self, _target: &HostTarget, _deadline: Duration) -> Result<(), DriverError> {
        Err(only_the_guest_knows())
    }
}
