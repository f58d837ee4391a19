//! One GPU under all the names that its host has for it, and whether what is told of it later is told of the same.

use poolwright_model::id::GpuId;
use poolwright_model::identity::same_name;
use poolwright_model::units::Bytes;
use serde::{Deserialize, Serialize};

/// What a host tells of one GPU. `None`: it doesn't say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Learned {
    pub gpu: GpuId,
    /// Where it sits on this host, such as `0000:41:00.0`: a place, never an identity.
    pub address: String,
    pub slot: Option<String>,
    /// The Device Serial Number of its PCIe function.
    pub pcie_serial: Option<String>,
    pub board_serial: Option<String>,
    /// As the NVIDIA driver has it: `GPU-…`.
    pub uuid: Option<String>,
    /// Its link as it is. An idle GPU slows it down.
    pub link: Option<LinkSeen>,
    pub best_link: Option<LinkSeen>,
    /// What its largest register wants of the window for what prefetches.
    #[serde(default)]
    pub largest_bar: Option<Bytes>,
    /// The version of its firmware (VBIOS), as the NVIDIA driver has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
}

/// A link as a host sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LinkSeen {
    /// Megatransfers a second on each lane: 32000 is the fifth generation.
    pub mt_per_s: u32,
    /// Lanes.
    pub width: u8,
}

impl Learned {
    /// Which name of it is another than before; `None` where it may be the same GPU.
    pub fn differs_from(&self, before: &Self) -> Option<String> {
        let names = [
            ("UUID", &self.uuid, &before.uuid),
            ("board's serial number", &self.board_serial, &before.board_serial),
            ("PCIe serial number", &self.pcie_serial, &before.pcie_serial),
        ];
        names.into_iter().find_map(|(what, now, before)| {
            let (now, before) = (now.as_deref()?, before.as_deref()?);
            (!same_name(now, before)).then(|| format!("its {what} is {now}, and was {before}"))
        })
    }

    /// With what was known of the same GPU before, where this says nothing.
    pub fn beside(self, before: &Self) -> Self {
        Self {
            pcie_serial: self.pcie_serial.or_else(|| before.pcie_serial.clone()),
            board_serial: self.board_serial.or_else(|| before.board_serial.clone()),
            uuid: self.uuid.or_else(|| before.uuid.clone()),
            best_link: self.best_link.or(before.best_link),
            largest_bar: self.largest_bar.or(before.largest_bar),
            firmware: self.firmware.or_else(|| before.firmware.clone()),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(uuid: Option<&str>, board_serial: Option<&str>) -> Learned {
        Learned {
            gpu: GpuId::from_lossy("gpu-1"),
            address: "0000:41:00.0".to_owned(),
            slot: None,
            pcie_serial: None,
            board_serial: board_serial.map(str::to_owned),
            uuid: uuid.map(str::to_owned),
            link: None,
            best_link: None,
            largest_bar: None,
            firmware: None,
        }
    }

    #[test]
    fn another_serial_number_is_another_gpu_and_another_way_to_write_it_is_not() {
        let before = told(Some("GPU-0f00-1"), Some("1650"));
        assert_eq!(told(Some("0F001"), None).differs_from(&before), None);
        assert_eq!(told(None, None).differs_from(&before), None);
        let why = told(Some("GPU-0f00-1"), Some("1651")).differs_from(&before);
        assert_eq!(
            why.as_deref(),
            Some("its board's serial number is 1651, and was 1650")
        );
    }

    #[test]
    fn what_is_not_told_this_time_is_known_from_before() {
        let before = told(Some("GPU-0f00-1"), Some("1650"));
        let now = told(None, Some("1650")).beside(&before);
        assert_eq!(now.uuid, before.uuid);
    }
}
