//! Our states in Redfish's words.

use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::{self, Gpu};
use poolwright_model::units::{LinkWidth, PcieGeneration};
use poolwright_redfish_model as redfish;
use poolwright_redfish_model::{Health, PCIeDevicePCIeTypes, State, Status};

/// Something that works.
pub(crate) fn enabled() -> Option<Box<Status>> {
    status(State::Enabled, Some(Health::OK))
}

pub(crate) fn status(state: State, health: Option<Health>) -> Option<Box<Status>> {
    Some(Box::new(Status {
        state: Some(state),
        health,
        ..Status::default()
    }))
}

pub(crate) fn of_gpu(gpu: &Gpu) -> Option<Box<Status>> {
    let state = match gpu.state {
        GpuState::Missing => State::Absent,
        GpuState::Quarantined | GpuState::Indeterminate => State::UnavailableOffline,
        GpuState::Free | GpuState::Dirty => State::StandbySpare,
        GpuState::Reserved | GpuState::Binding => State::Starting,
        GpuState::Draining | GpuState::Unbinding => State::Quiesced,
        GpuState::Bound | GpuState::Attached | GpuState::Foreign => State::Enabled,
    };
    status(state, health(gpu.health))
}

/// Nothing where nothing is known.
pub(crate) fn health(health: topology::Health) -> Option<Health> {
    match health {
        topology::Health::Ok => Some(Health::OK),
        topology::Health::Warning => Some(Health::Warning),
        topology::Health::Critical => Some(Health::Critical),
        topology::Health::Unknown => None,
    }
}

pub(crate) fn power(state: topology::PowerState) -> Option<redfish::PowerState> {
    match state {
        topology::PowerState::On => Some(redfish::PowerState::On),
        topology::PowerState::Off => Some(redfish::PowerState::Off),
        topology::PowerState::PoweringOn => Some(redfish::PowerState::PoweringOn),
        topology::PowerState::PoweringOff => Some(redfish::PowerState::PoweringOff),
        topology::PowerState::Unknown => None,
    }
}

pub(crate) fn power_restore_policy(
    host: &topology::Host,
) -> Option<redfish::ComputerSystemPowerRestorePolicyTypes> {
    use redfish::ComputerSystemPowerRestorePolicyTypes as Told;
    Some(match host.power_restore_policy? {
        topology::PowerRestorePolicy::AlwaysOn => Told::AlwaysOn,
        topology::PowerRestorePolicy::AlwaysOff => Told::AlwaysOff,
        topology::PowerRestorePolicy::LastState => Told::LastState,
    })
}

pub(crate) fn pcie_type(link: LinkWidth) -> Option<PCIeDevicePCIeTypes> {
    Some(match link.generation? {
        PcieGeneration::Gen1 => PCIeDevicePCIeTypes::Gen1,
        PcieGeneration::Gen2 => PCIeDevicePCIeTypes::Gen2,
        PcieGeneration::Gen3 => PCIeDevicePCIeTypes::Gen3,
        PcieGeneration::Gen4 => PCIeDevicePCIeTypes::Gen4,
        PcieGeneration::Gen5 => PCIeDevicePCIeTypes::Gen5,
        PcieGeneration::Gen6 => PCIeDevicePCIeTypes::Gen6,
    })
}

pub(crate) fn lanes(link: LinkWidth) -> Option<i64> {
    link.lanes.map(|lanes| i64::from(lanes.0))
}
