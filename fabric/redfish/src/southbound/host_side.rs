//! A host as its BMC sees it: how many hot-plug slots are free, and whether a GPU has appeared.
//!
//! A BMC knows nothing of processes, bridge windows or bus numbers: there it answers that it cannot tell.

use super::errors::driver_error;
use super::links;
use super::observe::device::{self, DeviceSeen};
use super::observe::gpu::{GpuSeen, Owner};
use super::observe::systems::{self, SystemSeen};
use super::observe::walk::Walk;
use super::observe::{SERVICE_ROOT, chassis, words};
use crate::client::Client;
use poolwright_driver::{Confirmation, DriverError, HostTarget, Room};
use poolwright_model::fault::{Fault, FaultKind};
use poolwright_model::id::{ControlEndpointId, HostId};
use poolwright_model::identity::{GpuIdentity, same_name};
use poolwright_redfish_model as redfish;
use std::time::Duration;

/// What a BMC can't know; only something on the host could.
pub(crate) fn only_the_host_knows(what: &str) -> DriverError {
    DriverError::cannot_tell(format!("a BMC can't tell {what}"))
        .with_hint("look on the host itself")
        .with_fault(FaultKind::NotSupported)
}

/// One look at a host's BMC.
pub(crate) struct HostLook<'a> {
    client: &'a Client,
    endpoint: &'a ControlEndpointId,
    deadline: Duration,
}

impl<'a> HostLook<'a> {
    pub(crate) fn new(client: &'a Client, endpoint: &'a ControlEndpointId, deadline: Duration) -> Self {
        Self {
            client,
            endpoint,
            deadline,
        }
    }

    /// Whether enough hot-plug slots are free. More than that a BMC can't see.
    pub(crate) async fn preflight(&self, target: &HostTarget) -> Result<Room, DriverError> {
        let (adapters, faults) = self
            .within(async |walk, root| {
                let (chassis, _) = chassis::read(walk, root).await;
                chassis
                    .into_iter()
                    .filter_map(|chassis| chassis.slots)
                    .collect::<Vec<_>>()
            })
            .await?;
        let wanted = u32::try_from(target.gpus.len()).unwrap_or(u32::MAX);
        let (free, all) = adapters
            .iter()
            .fold((0, 0), |(free, all), slots| (free + slots.free, all + slots.all));
        Ok(match (adapters.is_empty(), faults.first()) {
            (true, Some(fault)) => Room::CannotTell {
                reason: unread(fault),
            },
            (true, None) => Room::CannotTell {
                reason: format!("{} shows no hot-plug slots", self.endpoint),
            },
            (false, None) if free < wanted => Room::NotEnough {
                reason: format!("{free} of {all} hot-plug slots are free, {wanted} are needed"),
            },
            _ => Room::CannotTell {
                reason: format!(
                    "{free} of {all} hot-plug slots are free; bridge window and bus numbers are known only on the host"
                ),
            },
        })
    }

    /// Whether the host's processors or PCIe devices show the GPUs, enabled.
    pub(crate) async fn verify(&self, target: &HostTarget) -> Result<Confirmation, DriverError> {
        if target.known_as.is_empty() {
            let reason = "neither UUID nor serial number of the GPUs is known".into();
            return Ok(Confirmation::CannotTell { reason });
        }
        let (looked, faults) = self
            .within(async |walk, root| look_for(walk, root, target).await)
            .await?;
        let Some(found) = looked else {
            return Ok(Confirmation::CannotTell {
                reason: match faults.first() {
                    Some(fault) => unread(fault),
                    None => format!(
                        "{} shows several systems, and none is called {}",
                        self.endpoint, target.host
                    ),
                },
            });
        };
        let not_enabled: Vec<&str> = found
            .iter()
            .filter(|gpu| !gpu.enabled)
            .map(|gpu| gpu.path.as_str())
            .collect();
        let wanted = target.gpus.len();
        Ok(if found.len() >= wanted && not_enabled.is_empty() {
            Confirmation::Seen {
                evidence: format!("bmc {}", self.endpoint),
                learned: Vec::new(),
            }
        } else if let Some(path) = not_enabled.first() {
            Confirmation::not_seen(format!("{path} is there, but not Enabled"))
        } else if let Some(fault) = faults.first() {
            Confirmation::CannotTell {
                reason: unread(fault),
            }
        } else {
            let names = target.known_as.join(", ");
            Confirmation::not_seen(format!(
                "{} shows {} of {wanted} GPUs known as {names}",
                self.endpoint,
                found.len()
            ))
        })
    }

    /// Runs a look within the deadline; its faults come beside.
    async fn within<T>(
        &self,
        look: impl AsyncFnOnce(&Walk<'_>, &redfish::ServiceRoot) -> T,
    ) -> Result<(T, Vec<Fault>), DriverError> {
        let whole = async {
            let root = self.client.read::<redfish::ServiceRoot>(SERVICE_ROOT).await;
            let root = root.map_err(|error| driver_error(&error))?.value;
            let walk = Walk::new(self.client, self.endpoint, &());
            let seen = look(&walk, &root).await;
            Ok((seen, walk.into_findings().told(self.endpoint).0))
        };
        tokio::time::timeout(self.deadline, whole)
            .await
            .unwrap_or_else(|_| {
                Err(DriverError::no_effect(format!(
                    "{} was not read within {:?}",
                    self.endpoint, self.deadline
                ))
                .with_fault(FaultKind::Timeout))
            })
    }
}

fn unread(fault: &Fault) -> String {
    format!("{} can't be read: {}", fault.source, fault.message)
}

/// A GPU that was looked for, as the host shows it.
struct Found {
    path: String,
    enabled: bool,
}

/// The GPUs of the target that the host shows: among its processors, else among its PCIe devices. `None`
/// where it can't be told which system the host is.
async fn look_for(walk: &Walk<'_>, root: &redfish::ServiceRoot, target: &HostTarget) -> Option<Vec<Found>> {
    let systems = systems::read_systems(walk, root).await;
    let system = the_host(&systems, &target.host)?;
    let mut found = Vec::new();
    if let Some(collection) = &system.processors {
        for (path, processor) in walk.members::<redfish::Processor>(collection).await.read {
            let Some(gpu) = GpuSeen::of_processor(&path, Owner::System(system.path.clone()), &processor)
            else {
                continue;
            };
            if is_known_as(target, [gpu.uuid.as_deref(), gpu.serial.as_deref()]) {
                found.push(Found {
                    path,
                    enabled: words::is_enabled(processor.status.as_deref()),
                });
            }
        }
    }
    if found.is_empty() {
        found = among_devices(walk, root, system, target).await;
    }
    Some(found)
}

async fn among_devices(
    walk: &Walk<'_>,
    root: &redfish::ServiceRoot,
    system: &SystemSeen,
    target: &HostTarget,
) -> Vec<Found> {
    let (chassis, _) = chassis::read(walk, root).await;
    let mut devices: Vec<DeviceSeen> = Vec::new();
    for collection in chassis.iter().filter_map(|chassis| chassis.devices.as_deref()) {
        devices.extend(device::read_all(walk, collection).await);
    }
    for path in &system.devices {
        if !devices.iter().any(|device| device.path == *path) {
            devices.extend(device::read(walk, path).await);
        }
    }
    devices
        .into_iter()
        .filter(|device| is_known_as(target, [device.uuid.as_deref(), device.serial.as_deref()]))
        .map(|device| Found {
            enabled: device.enabled,
            path: device.path,
        })
        .collect()
}

/// The only server, else the one that is called so.
fn the_host<'a>(systems: &'a [SystemSeen], host: &HostId) -> Option<&'a SystemSeen> {
    let servers = systems::servers(systems.iter());
    match servers[..] {
        [only] => Some(only),
        _ => servers.into_iter().find(|system| {
            HostId::from_lossy(&system.name) == *host || links::last_part(&system.path) == host.as_str()
        }),
    }
}

/// By its UUID where both have one: the GPUs of one board may share a serial number.
fn is_known_as(target: &HostTarget, [uuid, serial]: [Option<&str>; 2]) -> bool {
    let known = &target.known_as;
    let is_known = |name: &str| known.iter().any(|one| same_name(one, name));
    match uuid {
        Some(uuid) if known.iter().any(|one| GpuIdentity::named(one).uuid.is_some()) => is_known(uuid),
        _ => uuid.into_iter().chain(serial).any(is_known),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolwright_model::id::HostPortId;

    fn target(known_as: &[&str]) -> HostTarget {
        HostTarget {
            host: HostId::from_lossy("node-7"),
            host_port: HostPortId::from_lossy("node-7:PCIe"),
            gpus: vec![],
            known_as: known_as.iter().map(|name| (*name).to_owned()).collect(),
            slot: None,
            seen_at: Vec::new(),
            ids: None,
            largest_bar: None,
            epoch: None,
        }
    }

    #[test]
    fn a_gpu_is_known_by_uuid_in_either_form_or_by_serial() {
        let uuid = "GPU-9dad5bfd-a732-23fe-40ad-465d0cbe5f95";
        assert!(is_known_as(&target(&[&uuid[4..]]), [Some(uuid), None]));
        assert!(is_known_as(
            &target(&["1652923003067"]),
            [Some(uuid), Some("1652923003067")]
        ));
        assert!(!is_known_as(&target(&["1652923003067"]), [Some(uuid), Some("7")]));
        assert!(!is_known_as(&target(&[uuid]), [None, None]));
        // Another GPU of the same board.
        let other = "GPU-00000000-0000-0000-0000-000000000004";
        assert!(!is_known_as(
            &target(&[uuid, "board-1"]),
            [Some(other), Some("board-1")]
        ));
        assert!(is_known_as(&target(&[uuid, "board-1"]), [None, Some("board-1")]));
    }

    #[test]
    fn of_several_systems_the_one_that_is_called_so_is_the_host() {
        let system = |name: &str, boots| SystemSeen {
            name: name.into(),
            boots,
            ..SystemSeen::default()
        };
        let host = HostId::from_lossy("node-7");
        let baseboard = [system("whatever", true), system("HGX_Baseboard_0", false)];
        assert_eq!(the_host(&baseboard, &host).unwrap().name, "whatever");
        let nodes = [system("node-6", true), system("node-7", true)];
        assert_eq!(the_host(&nodes, &host).unwrap().name, "node-7");
        assert!(the_host(&[system("a", true), system("b", true)], &host).is_none());
        assert!(the_host(&[], &host).is_none());
    }
}
