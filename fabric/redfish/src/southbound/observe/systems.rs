//! Computer systems, and the GPUs that they see.

use super::gpu::{self, GpuSeen, Owner};
use super::walk::Walk;
use super::{Devices, device_ports, words};
use crate::southbound::links;
use futures_util::future::join_all;
use poolwright_model::fault::FaultKind;
use poolwright_model::topology::{PowerRestorePolicy, PowerState};
use poolwright_redfish_model as redfish;
use poolwright_redfish_model::object::{Node, Object as _};

/// A ComputerSystem: a server, or what a service shows as one.
#[derive(Debug, Clone, Default)]
pub(crate) struct SystemSeen {
    pub(crate) path: String,
    pub(crate) name: String,
    pub(crate) uuid: Option<String>,
    pub(crate) serial: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) power: PowerState,
    pub(crate) power_restore_policy: Option<PowerRestorePolicy>,
    /// Whether it boots: has a BIOS, a boot configuration, a host name. A baseboard has none of these.
    pub(crate) boots: bool,
    /// Whether it is a part of a server: the controller of a baseboard or of storage, or a DPU.
    pub(crate) is_part: bool,
    /// Whether it was made of resource blocks.
    pub(crate) composed: bool,
    pub(crate) chassis: Vec<String>,
    pub(crate) devices: Vec<String>,
    /// Its own ends in fabrics.
    pub(crate) endpoints: Vec<String>,
    /// Its collection of processors.
    pub(crate) processors: Option<String>,
    /// Its collections of memory and storage. Not needed to move GPUs, but a host whose own parts can't be
    /// read is not well, and people want to know.
    pub(crate) parts: Vec<String>,
}

/// All systems, and the devices among their processors.
pub(crate) async fn read(walk: &Walk<'_>, root: &redfish::ServiceRoot) -> (Vec<SystemSeen>, Devices) {
    let systems = read_systems(walk, root).await;
    let devices = join_all(systems.iter().map(|system| devices_of(walk, system))).await;
    (systems, devices.into_iter().collect())
}

/// The servers: all systems that boot and are no part of a server, or all that are no part if none boots.
pub(crate) fn servers<'a>(systems: impl Iterator<Item = &'a SystemSeen>) -> Vec<&'a SystemSeen> {
    let mut servers: Vec<&SystemSeen> = systems.filter(|system| !system.is_part).collect();
    if servers.iter().any(|system| system.boots) {
        servers.retain(|system| system.boots);
    }
    servers
}

/// All systems, without looking into them.
pub(crate) async fn read_systems(walk: &Walk<'_>, root: &redfish::ServiceRoot) -> Vec<SystemSeen> {
    let Some(collection) = links::to(root.systems.as_ref()) else {
        return Vec::new();
    };
    let members = walk.members::<redfish::ComputerSystem>(collection).await.read;
    members
        .iter()
        .map(|(path, system)| SystemSeen::of(path, system))
        .collect()
}

async fn devices_of(walk: &Walk<'_>, system: &SystemSeen) -> Devices {
    let is_server = system.boots && !system.composed && !system.is_part;
    let parts = system.parts.iter().filter(|_| is_server);
    let check = join_all(parts.map(|path| walk.check(path)));
    let Some(collection) = &system.processors else {
        if is_server {
            let message = "this system shows no processors, so it can't be told which GPUs it sees";
            walk.fault(&system.path, FaultKind::Incomplete, message);
        }
        check.await;
        return Devices::default();
    };
    let processors = async {
        let read = walk.members::<redfish::Processor>(collection).await.read;
        gpu::note_accelerators(walk, collection, &read);
        let ports = device_ports::of_processors(walk, &read).await;
        (read, ports)
    };
    let ((processors, ports), _) = tokio::join!(processors, check);
    let owner = Owner::System(system.path.clone());
    let gpus = processors
        .iter()
        .filter_map(|(path, processor)| GpuSeen::of_processor(path, owner.clone(), processor));
    Devices {
        gpus: gpus.collect(),
        ports,
    }
}

impl SystemSeen {
    pub(crate) fn of(path: &str, system: &redfish::ComputerSystem) -> Self {
        let links = system.links.as_deref();
        let serial = words::said(system.serial_number.as_deref());
        let model = words::said(system.model.as_deref());
        let host_name = words::said(system.host_name.as_deref());
        let product = model
            .as_ref()
            .zip(serial.as_ref())
            .map(|(model, serial)| format!("{model} {serial}"));
        let blocks = links
            .and_then(|l| l.resource_blocks.as_ref())
            .is_some_and(|blocks| !blocks.is_empty());
        let composed_type = system.system_type == Some(redfish::ComputerSystemSystemType::Composed);
        let boots = host_name.is_some()
            || system.bios.is_some()
            || words::said(system.bios_version.as_deref()).is_some()
            || system.boot.as_deref().is_some_and(says_something)
            || system.boot_progress.is_some();
        let only_allows = !boots && system.boot.as_deref().is_some_and(lists_allowable_values);
        Self {
            path: path.to_owned(),
            name: host_name
                .or(product)
                .or_else(|| words::said(system.name.as_deref()))
                .unwrap_or_else(|| links::last_part(path).to_owned()),
            uuid: words::uuid(system.uuid.as_deref()),
            serial,
            model,
            power: words::power(system.power_state.as_ref()),
            power_restore_policy: words::power_restore_policy(system.power_restore_policy.as_ref()),
            boots,
            is_part: only_allows || is_device(system),
            composed: composed_type || blocks,
            chassis: links::all(links.and_then(|l| l.chassis.as_ref())),
            devices: links::all(system.pcie_devices.as_ref()),
            endpoints: links::all(links.and_then(|l| l.endpoints.as_ref())),
            processors: links::to(system.processors.as_ref()).map(str::to_owned),
            parts: [&system.memory, &system.storage]
                .into_iter()
                .filter_map(|link| links::to(link.as_ref()).map(str::to_owned))
                .collect(),
        }
    }
}

fn says_something(boot: &redfish::ComputerSystemBoot) -> bool {
    let mut slots = (0..).map_while(|index| boot.slot(index));
    slots.any(|slot| !matches!(slot.node(), Node::Absent))
}

fn lists_allowable_values(boot: &redfish::ComputerSystemBoot) -> bool {
    let mut others = boot.extra.iter();
    others.any(|(name, _)| name.ends_with("@Redfish.AllowableValues"))
}

/// Whether it is a computer inside a server: a DPU, which has processors of its own, or a controller of storage.
fn is_device(system: &redfish::ComputerSystem) -> bool {
    use redfish::{ComputerSystemHostingRole as Role, ComputerSystemSystemType as Kind};
    let texts = [&system.model, &system.name, &system.id].into_iter().flatten();
    let texts: Vec<String> = texts.map(|text| text.to_ascii_lowercase()).collect();
    let calls_itself = |word: &str| texts.iter().any(|text| text.contains(word));
    if system.system_type == Some(Kind::DPU) || calls_itself("bluefield") {
        return true;
    }
    let summary = system.processor_summary.as_deref();
    let has_processors = summary.and_then(|summary| summary.count).unwrap_or(0) > 0;
    let stores =
        |roles: &Vec<Role>| !roles.is_empty() && roles.iter().all(|role| *role == Role::StorageServer);
    let is_named = words::said(system.host_name.as_deref()).is_some();
    let controls = !is_named && (calls_itself("raid") || calls_itself("storage controller"));
    !has_processors && (controls || system.hosting_roles.as_ref().is_some_and(stores))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn system(json: serde_json::Value) -> SystemSeen {
        SystemSeen::of("/redfish/v1/Systems/1", &serde_json::from_value(json).unwrap())
    }

    #[test]
    fn the_power_restore_policy_is_what_the_service_says_and_else_unknown() {
        let policy =
            |said: serde_json::Value| system(json!({ "PowerRestorePolicy": said })).power_restore_policy;
        assert_eq!(policy(json!("AlwaysOff")), Some(PowerRestorePolicy::AlwaysOff));
        assert_eq!(policy(json!("LastState")), Some(PowerRestorePolicy::LastState));
        assert_eq!(policy(json!("Sometimes")), None);
        assert_eq!(system(json!({})).power_restore_policy, None);
    }

    #[test]
    fn people_call_a_host_by_its_name_else_by_product_and_serial_number() {
        let named = json!({"HostName": "node-7", "Model": "R760", "SerialNumber": "S1", "Name": "System"});
        assert_eq!(system(named).name, "node-7");
        let nameless = json!({"HostName": null, "Model": "R760", "SerialNumber": "S1", "Name": "System"});
        assert_eq!(system(nameless).name, "R760 S1");
        assert_eq!(system(json!({})).name, "1");
    }

    #[test]
    fn a_baseboard_does_not_boot() {
        assert!(!system(json!({"Name": "HGX_Baseboard_0", "PowerState": "On"})).boots);
        assert!(system(json!({"Boot": {"BootSourceOverrideEnabled": "Disabled"}})).boots);
    }

    #[test]
    fn a_controller_or_a_dpu_is_a_part_of_a_server() {
        for part in [
            json!({"Name": "HGX_Baseboard_0", "Boot": {"BootSourceOverrideEnabled": null,
                "BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Pxe"]}}),
            json!({"SystemType": "DPU", "HostName": "dpu-1", "BiosVersion": "4.5"}),
            json!({"Id": "Bluefield", "BiosVersion": "4.5", "ProcessorSummary": {"Count": 1}}),
            json!({"Name": "MegaRAID 9560-8i", "BiosVersion": "7.19"}),
            json!({"HostingRoles": ["StorageServer"], "HostName": "array-1"}),
        ] {
            assert!(system(part.clone()).is_part, "{part}");
        }
        for server in [
            json!({"Name": "System"}),
            json!({"Boot": {}}),
            json!({"Boot": {"BootSourceOverrideTarget": "None",
                "BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Pxe"]}}),
            json!({"HostName": "web-1",
                "Boot": {"BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Pxe"]}}),
            json!({"Name": "Server with RAID", "ProcessorSummary": {"Count": 2}}),
            json!({"Name": "System of raid-1", "HostName": "raid-1"}),
            json!({"HostingRoles": ["StorageServer"], "ProcessorSummary": {"Count": 2}}),
        ] {
            assert!(!system(server.clone()).is_part, "{server}");
        }
    }
}
