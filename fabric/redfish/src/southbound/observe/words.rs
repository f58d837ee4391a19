//! What services write in many ways, in one: identities, PCI ids, link widths, states.

use poolwright_model::identity::is_placeholder;
use poolwright_model::topology::{Health, PciIds, PowerRestorePolicy, PowerState};
use poolwright_model::units::{Lanes, LinkWidth, PcieGeneration};
use poolwright_redfish_model as redfish;

/// Whether a locator is lit; `None` if there is none. A `null` from the service is a locator that is off.
pub(crate) fn lit(shown: Option<bool>, others: &redfish::Extra) -> Option<bool> {
    shown.or_else(|| others.is_null("LocationIndicatorActive").then_some(false))
}

/// A text; `None` for a placeholder of the firmware. Keeps the case, and labels such as `F0`.
pub(crate) fn said(text: Option<&str>) -> Option<String> {
    let text = text?.trim();
    let filler = text.chars().all(|c| matches!(c, '0' | '-' | 'x' | 'X' | '.'));
    (!filler && !is_placeholder(text)).then(|| text.to_owned())
}

/// A UUID in lower case; `None` for the nil one and for what is none.
pub(crate) fn uuid(text: Option<&str>) -> Option<String> {
    let text = said(text)?.to_ascii_lowercase();
    let parts: Vec<usize> = text.split('-').map(str::len).collect();
    let hex = text.chars().all(|c| c == '-' || c.is_ascii_hexdigit());
    (hex && parts == [8, 4, 4, 4, 12]).then_some(text)
}

/// A GPU's UUID in NVIDIA's form, as its driver gives it, unless the vendor is another one.
pub(crate) fn gpu_uuid(text: Option<&str>, vendor: Option<&str>) -> Option<String> {
    let text = said(text)?;
    let (prefixed, bare) = match text.get(..4) {
        Some(prefix) if prefix.eq_ignore_ascii_case("GPU-") => (true, &text[4..]),
        _ => (false, text.as_str()),
    };
    let nvidia = vendor.is_none_or(|vendor| vendor.to_ascii_lowercase().contains("nvidia"));
    match uuid(Some(bare)) {
        Some(uuid) if prefixed || nvidia => Some(format!("GPU-{uuid}")),
        Some(uuid) => Some(uuid),
        None => Some(text.clone()),
    }
}

/// Hexadecimal digits, lower case, without `0x`, as many as asked for; `None` for blanks (all 0 or all f).
pub(crate) fn hex(text: Option<&str>, digits: usize) -> Option<String> {
    let text = text?.trim().to_ascii_lowercase();
    let text = text.strip_prefix("0x").unwrap_or(&text).trim_end_matches('h');
    let blank = text.chars().all(|c| c == '0') || text.chars().all(|c| c == 'f');
    (text.len() == digits && !blank && text.chars().all(|c| c.is_ascii_hexdigit())).then(|| text.to_owned())
}

/// A class code of six digits. Some give base class and subclass only.
pub(crate) fn class_code(text: Option<&str>) -> Option<String> {
    hex(text, 6).or_else(|| hex(text, 4).map(|class| class + "00"))
}

pub(crate) fn pci_ids(function: &redfish::PCIeFunction) -> Option<PciIds> {
    Some(PciIds {
        vendor: hex(function.vendor_id.as_deref(), 4)?,
        device: hex(function.device_id.as_deref(), 4)?,
        subsystem_vendor: hex(function.subsystem_vendor_id.as_deref(), 4),
        subsystem: hex(function.subsystem_id.as_deref(), 4),
    })
}

/// The link as it is now, else as wide as it can be.
pub(crate) fn link_width(interface: Option<&redfish::PCIeDevicePCIeInterface>) -> LinkWidth {
    let Some(interface) = interface else {
        return LinkWidth::default();
    };
    let kind = interface.pcie_type.as_ref().or(interface.max_pcie_type.as_ref());
    LinkWidth {
        generation: kind.and_then(|kind| generation(kind.as_str())),
        lanes: lanes(interface.lanes_in_use).or_else(|| lanes(interface.max_lanes)),
    }
}

pub(crate) fn lanes(number: Option<i64>) -> Option<Lanes> {
    number
        .and_then(|n| u8::try_from(n).ok())
        .filter(|n| *n > 0)
        .map(Lanes)
}

fn generation(text: &str) -> Option<PcieGeneration> {
    text.strip_prefix("Gen")?
        .parse()
        .ok()
        .and_then(PcieGeneration::from_number)
}

/// From the transfer rate of one lane, in GT/s.
pub(crate) fn generation_of_lane(gigatransfers: f64) -> Option<PcieGeneration> {
    const RATES: [f64; 6] = [2.5, 5.0, 8.0, 16.0, 32.0, 64.0];
    let index = RATES
        .iter()
        .position(|rate| (rate - gigatransfers).abs() < 0.05)?;
    u8::try_from(index + 1).ok().and_then(PcieGeneration::from_number)
}

pub(crate) fn health(status: Option<&redfish::Status>) -> Health {
    match status.and_then(|status| status.health.as_ref()) {
        Some(redfish::Health::OK) => Health::Ok,
        Some(redfish::Health::Warning) => Health::Warning,
        Some(redfish::Health::Critical) => Health::Critical,
        _ => Health::Unknown,
    }
}

pub(crate) fn power(state: Option<&redfish::PowerState>) -> PowerState {
    match state {
        Some(redfish::PowerState::On) => PowerState::On,
        Some(redfish::PowerState::Off) => PowerState::Off,
        Some(redfish::PowerState::PoweringOn) => PowerState::PoweringOn,
        Some(redfish::PowerState::PoweringOff) => PowerState::PoweringOff,
        _ => PowerState::Unknown,
    }
}

pub(crate) fn power_restore_policy(
    policy: Option<&redfish::ComputerSystemPowerRestorePolicyTypes>,
) -> Option<PowerRestorePolicy> {
    use redfish::ComputerSystemPowerRestorePolicyTypes as Told;
    match policy? {
        Told::AlwaysOn => Some(PowerRestorePolicy::AlwaysOn),
        Told::AlwaysOff => Some(PowerRestorePolicy::AlwaysOff),
        Told::LastState => Some(PowerRestorePolicy::LastState),
        _ => None,
    }
}

/// Whether the place for it is there, and it is not.
pub(crate) fn is_absent(status: Option<&redfish::Status>) -> bool {
    status.and_then(|status| status.state.as_ref()) == Some(&redfish::State::Absent)
}

/// Enabled, or not said to be anything else.
pub(crate) fn is_enabled(status: Option<&redfish::Status>) -> bool {
    matches!(
        status.and_then(|status| status.state.as_ref()),
        None | Some(redfish::State::Enabled)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpus_uuid_is_written_as_its_driver_writes_it() {
        let bare = "9DAD5BFD-a732-23fe-40ad-465d0cbe5f95";
        let full = "GPU-9dad5bfd-a732-23fe-40ad-465d0cbe5f95";
        assert_eq!(gpu_uuid(Some(bare), Some("NVIDIA")).as_deref(), Some(full));
        assert_eq!(gpu_uuid(Some(bare), None).as_deref(), Some(full));
        assert_eq!(gpu_uuid(Some(full), Some("whoever")).as_deref(), Some(full));
        assert_eq!(
            gpu_uuid(Some(bare), Some("AMD")).as_deref(),
            Some(&bare.to_lowercase()[..])
        );
        for nothing in ["", "00000000-0000-0000-0000-000000000000", "N/A"] {
            assert_eq!(gpu_uuid(Some(nothing), None), None, "{nothing:?}");
        }
        assert_eq!(uuid(Some("STATIC:3:0")), None);
    }

    #[test]
    fn pci_ids_come_in_any_spelling() {
        for text in ["0x10DE", "10de", "0X10de", " 0x10de "] {
            assert_eq!(hex(Some(text), 4).as_deref(), Some("10de"), "{text}");
        }
        for nothing in ["0x0000", "0xFFFF", "", "10d", "xyzw", "é10d"] {
            assert_eq!(hex(Some(nothing), 4), None, "{nothing}");
        }
        assert_eq!(class_code(Some("0x0302")).as_deref(), Some("030200"));
        assert_eq!(class_code(Some("0x030200")).as_deref(), Some("030200"));
        assert_eq!(class_code(Some("")), None);
    }

    #[test]
    fn a_generation_is_told_by_the_speed_of_a_lane() {
        assert_eq!(generation_of_lane(32.0), Some(PcieGeneration::Gen5));
        assert_eq!(generation_of_lane(2.5), Some(PcieGeneration::Gen1));
        assert_eq!(generation_of_lane(12.0), None);
        assert_eq!(generation("Gen5"), Some(PcieGeneration::Gen5));
        assert_eq!(generation("Gen9"), None);
    }
}
