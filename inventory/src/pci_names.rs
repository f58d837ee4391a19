//! Names of vendors and devices, from the PCI id database.
//!
//! The text form is the one of `pci.ids` (The PCI ID Project): a vendor's line starts with four
//! hexadecimal digits, its devices follow with a tab before them, subsystems with two.

use pci_ids::FromId;
use poolwright_model::topology::PciIds;
use std::collections::HashMap;

/// Looks names up: in the system's database where there is one, else in the one that is built in.
#[derive(Debug, Clone, Default)]
pub struct PciNames {
    vendors: HashMap<u16, String>,
    devices: HashMap<(u16, u16), String>,
}

impl PciNames {
    /// Only the built-in database.
    pub fn builtin() -> Self {
        Self::default()
    }

    /// Reads the text of a `pci.ids` file; lines that it doesn't understand are left out.
    pub fn parse(text: &str) -> Self {
        let mut names = Self::default();
        let mut vendor = None;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            // Device classes come last, and are not ours.
            if line.starts_with("C ") {
                break;
            }
            match line.strip_prefix('\t') {
                Some(rest) if !rest.starts_with('\t') => {
                    if let (Some(vendor), Some((id, name))) = (vendor, id_and_name(rest)) {
                        names.devices.insert((vendor, id), name);
                    }
                }
                Some(_) => {}
                None => {
                    vendor = id_and_name(line).map(|(id, name)| {
                        names.vendors.insert(id, name);
                        id
                    });
                }
            }
        }
        names
    }

    pub fn vendor(&self, ids: &PciIds) -> Option<&str> {
        let id = number(&ids.vendor)?;
        let builtin = || pci_ids::Vendor::from_id(id).map(pci_ids::Vendor::name);
        self.vendors.get(&id).map(String::as_str).or_else(builtin)
    }

    pub fn device(&self, ids: &PciIds) -> Option<&str> {
        let key = (number(&ids.vendor)?, number(&ids.device)?);
        let builtin = || pci_ids::Device::from_vid_pid(key.0, key.1).map(pci_ids::Device::name);
        self.devices.get(&key).map(String::as_str).or_else(builtin)
    }
}

fn id_and_name(line: &str) -> Option<(u16, String)> {
    let (id, name) = line.split_once("  ")?;
    Some((number(id)?, name.trim().to_owned()))
}

fn number(hex: &str) -> Option<u16> {
    u16::from_str_radix(hex, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(vendor: &str, device: &str) -> PciIds {
        PciIds {
            vendor: vendor.into(),
            device: device.into(),
            subsystem_vendor: None,
            subsystem: None,
        }
    }

    #[test]
    fn the_systems_database_comes_first() {
        let text = "# comment\n10de  NVIDIA Corporation\n\t2330  A name of today\n\t\t10de 1234  Subsystem\nC 00  Class\n\t01  Not a device\n";
        let names = PciNames::parse(text);
        assert_eq!(names.device(&ids("10de", "2330")), Some("A name of today"));
        assert_eq!(names.vendor(&ids("10de", "2330")), Some("NVIDIA Corporation"));
        assert_eq!(names.devices.len(), 1);
    }

    #[test]
    fn without_one_the_built_in_database_answers() {
        let names = PciNames::builtin();
        assert!(
            names
                .device(&ids("10de", "2330"))
                .is_some_and(|name| name.contains("H100"))
        );
        assert_eq!(names.device(&ids("10de", "fffe")), None);
        assert_eq!(names.vendor(&ids("not hex", "0")), None);
    }
}
