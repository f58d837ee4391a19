//! Config space: what a function says of itself. Only root reads more than its first 64 bytes.
//!
//! Offsets and bits are those of PCI Local Bus 3.0, chapter 6, and PCI Express Base 4.0, chapter 7, as in Linux'
//! `include/uapi/linux/pci_regs.h`.

use crate::attribute::Reader;
use crate::bar::BARS;
use crate::port::{Hotplug, PortKind};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Capabilities in a list: more than fit into 192 bytes, so that a list that bites its tail ends.
const CAPABILITIES: usize = 48;
const EXTENDED: usize = 480;
/// Before all capabilities.
const HEADER: u64 = 0x40;
/// The length before the extended capabilities. Only ports are searched for capabilities within it.
const HEAD: u64 = 0x100;
const PCI_EXPRESS: u8 = 0x10;
const SERIAL_NUMBER: u16 = 0x0003;

/// The bytes of a function's config space, as many as could be read.
#[derive(Debug, Clone)]
pub(crate) struct Config(Vec<u8>);

impl Config {
    /// Reads only the fields that are parsed below: each double word is a request to the device.
    pub fn read(reader: &Reader, path: &Path) -> Option<Self> {
        let mut config = Self(reader.first_bytes(path, HEADER)?);
        if config.is_bridge() == Some(true) {
            config = Self(reader.first_bytes(path, HEAD)?);
        }
        if let Ok(file) = File::open(path) {
            extend(&file, &mut config.0);
        }
        Some(config)
    }

    #[cfg(test)]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// It answers. One that is gone or dead reads as all ones, while sysfs still has its vendor.
    pub fn answers(&self) -> bool {
        self.0.iter().take(4).any(|byte| *byte != 0xff)
    }

    fn is_bridge(&self) -> Option<bool> {
        Some(self.byte(0x0e)? & 0x7f != 0)
    }

    /// The base address registers of a function that is no bridge.
    pub fn registers(&self) -> Option<[u32; BARS]> {
        if self.is_bridge()? {
            return None;
        }
        let mut registers = [0; BARS];
        for (index, register) in registers.iter_mut().enumerate() {
            *register = self.double(0x10 + 4 * index)?;
        }
        Some(registers)
    }

    /// Its Device Serial Number, as `lspci` writes it. `None`: it has none, or not enough could be read.
    pub fn serial(&self) -> Option<String> {
        let at = self.extended(SERIAL_NUMBER)?;
        let (low, high) = (self.double(at + 4)?, self.double(at + 8)?);
        let number = u64::from(high) << 32 | u64::from(low);
        // All zeros and all ones are what a function without one answers.
        let is_one = number != 0 && number != u64::MAX;
        let bytes = number.to_be_bytes().map(|byte| format!("{byte:02x}"));
        is_one.then(|| bytes.join("-"))
    }

    /// What kind of port it is. `None`: it is none, or that could not be read.
    pub fn port(&self) -> Option<PortKind> {
        match self.word(self.capability(PCI_EXPRESS)? + 2)? >> 4 & 0xf {
            0x4 => Some(PortKind::Root),
            0x5 => Some(PortKind::Upstream),
            0x6 => Some(PortKind::Downstream),
            _ => None,
        }
    }

    /// What its slot can do, of a port that has one.
    pub fn hotplug(&self) -> Option<Hotplug> {
        let at = self.capability(PCI_EXPRESS)?;
        let has_slot = self.word(at + 2)? & 0x100 != 0;
        let can = self.double(at + 0x14)?;
        let is_there = |bit: u32| can >> bit & 1 == 1;
        has_slot.then(|| Hotplug {
            capable: is_there(6),
            surprise: is_there(5),
            power_control: is_there(1),
            attention_button: is_there(0),
            number: (can >> 19) as u16,
        })
    }

    /// Whether its link is up. `None`: the port doesn't report it (xio3130 doesn't).
    pub fn link_active(&self) -> Option<bool> {
        let at = self.capability(PCI_EXPRESS)?;
        let reports = self.double(at + 0xc)? >> 20 & 1 == 1;
        let is_up = self.word(at + 0x12)? >> 13 & 1 == 1;
        reports.then_some(is_up)
    }

    /// Where a capability lies.
    fn capability(&self, id: u8) -> Option<usize> {
        let has_list = self.word(0x06)? & 0x10 != 0;
        let mut at = usize::from(self.byte(0x34)? & 0xfc);
        for _ in 0..CAPABILITIES {
            if !has_list || at < 0x40 {
                return None;
            }
            if self.byte(at)? == id {
                return Some(at);
            }
            at = usize::from(self.byte(at + 1)? & 0xfc);
        }
        None
    }

    fn extended(&self, id: u16) -> Option<usize> {
        let mut at = 0x100;
        for _ in 0..EXTENDED {
            let head = self.double(at)?;
            if head == 0 || head == u32::MAX {
                return None;
            }
            if head as u16 == id {
                return Some(at);
            }
            at = (head >> 20 & 0xffc) as usize;
            if at < 0x100 {
                return None;
            }
        }
        None
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    fn word(&self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes(self.0.get(at..at + 2)?.try_into().ok()?))
    }

    fn double(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.0.get(at..at + 4)?.try_into().ok()?))
    }
}

/// Adds the heads of the extended capabilities up to the serial number, and that; nothing lies between them.
fn extend(file: &File, bytes: &mut Vec<u8>) {
    let mut read = |at: usize| {
        let mut part = [0; 4];
        file.read_exact_at(&mut part, at as u64).ok()?;
        bytes.resize(bytes.len().max(at + part.len()), 0);
        bytes[at..at + part.len()].copy_from_slice(&part);
        Some(u32::from_le_bytes(part))
    };
    let mut at = HEAD as usize;
    for _ in 0..EXTENDED {
        let Some(head) = read(at).filter(|head| *head != 0 && *head != u32::MAX) else {
            return;
        };
        if head as u16 == SERIAL_NUMBER {
            let _ = (read(at + 4), read(at + 8));
            return;
        }
        at = (head >> 20 & 0xffc) as usize;
        if at < HEAD as usize {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A function with a PCI Express capability at 0x40, and a serial number behind another extended capability.
    fn endpoint() -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        bytes[..4].copy_from_slice(&[0xde, 0x10, 0x30, 0x23]);
        (bytes[0x06], bytes[0x34]) = (0x10, 0x40);
        bytes[0x40] = PCI_EXPRESS;
        bytes[0x100..0x104].copy_from_slice(&0x1401_0001_u32.to_le_bytes());
        bytes[0x140..0x144].copy_from_slice(&0x0001_0003_u32.to_le_bytes());
        bytes[0x144..0x14c].copy_from_slice(&0x4825_2d00_0a3b_11c7_u64.to_le_bytes());
        bytes
    }

    #[test]
    fn a_serial_number_is_found_behind_other_capabilities() {
        let serial = Config::new(endpoint()).serial();
        assert_eq!(serial.as_deref(), Some("48-25-2d-00-0a-3b-11-c7"));
        assert_eq!(
            Config::new(endpoint()[..64].to_vec()).serial(),
            None,
            "only root sees it"
        );
    }

    #[test]
    fn a_list_that_bites_its_tail_ends() {
        let mut bytes = endpoint();
        (bytes[0x40], bytes[0x41]) = (0x05, 0x40);
        bytes[0x140..0x144].copy_from_slice(&0x1001_0009_u32.to_le_bytes());
        let config = Config::new(bytes);
        assert_eq!((config.port(), config.serial()), (None, None));
    }

    #[test]
    fn a_dead_function_answers_all_ones() {
        assert!(Config::new(endpoint()).answers());
        assert!(!Config::new(vec![0xff; 4096]).answers());
        assert!(!Config::new(Vec::new()).answers());
    }

    /// The partial read of a file, and its full content.
    fn both(bytes: &[u8]) -> (Config, Config) {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, bytes).unwrap();
        let reader = Reader::new(folder.path());
        (Config::read(&reader, &path).unwrap(), Config::new(bytes.to_vec()))
    }

    #[test]
    fn what_is_read_says_the_same_as_all_of_it() {
        for length in [64, 256, 258, 0x142, 0x148, 4096] {
            let (read, all) = both(&endpoint()[..length]);
            assert_eq!(read.serial(), all.serial(), "{length}");
            assert_eq!((read.port(), read.registers()), (all.port(), all.registers()));
            assert!(read.0.len() <= 0x14c, "{length}: no more than that");
        }
    }

    proptest! {
        #[test]
        fn whatever_it_holds_what_is_read_says_the_same(
            bytes in proptest::collection::vec(0_u8..4, 256..1200),
        ) {
            let (read, all) = both(&bytes);
            prop_assert_eq!(read.serial(), all.serial());
        }

        #[test]
        fn nothing_that_it_holds_panics(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let config = Config::new(bytes);
            let _ = (config.serial(), config.port(), config.hotplug(), config.link_active(), config.registers());
        }
    }
}
