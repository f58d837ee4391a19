//! A machine, looked at once.

use crate::address::Address;
use crate::attribute::{Fault, Reader, Why, decimal};
use crate::config::Config;
use crate::function::{self, Function, Seen};
use crate::port::{self, Port};
use crate::slot::{self, Slot};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// More functions than 256 buses in a few domains have.
const MOST: usize = 65_536;

/// A machine's PCIe, under a root.
#[derive(Debug, Clone)]
pub struct Machine {
    root: PathBuf,
}

/// What a look at a machine shows, each in the order of addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Look {
    pub functions: Vec<Function>,
    pub ports: Vec<Port>,
    pub slots: Vec<Slot>,
    pub faults: Vec<Fault>,
}

impl Look {
    /// The functions that are GPUs.
    pub fn gpus(&self) -> impl Iterator<Item = &Function> {
        self.functions.iter().filter(|function| function.is_gpu())
    }
}

impl Machine {
    /// `root` is the folder that holds `sys`: `/` on a real host.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Reads all functions, ports and slots. What can't be read is among the faults.
    pub fn look(&self) -> Look {
        let reader = Reader::new(&self.root);
        let devices = reader.root().join("sys/bus/pci/devices");
        let seen: Vec<Seen> = entries(&reader, &devices)
            .into_iter()
            .filter_map(|(name, path)| match name.parse::<Address>() {
                Ok(address) => function::read(&reader, address, &path),
                Err(_) => {
                    reader.blame(&path, Why::Garbled, &name);
                    None
                }
            })
            .collect();
        let ports = ports(&reader, &devices, &seen);
        // A kernel without hot-plug has no such folder.
        let slots = reader.root().join("sys/bus/pci/slots");
        let slots = if slots.exists() {
            entries(&reader, &slots)
        } else {
            Vec::new()
        };
        let mut slots: Vec<Slot> = slots
            .into_iter()
            .filter_map(|(name, path)| slot::read(&reader, &name, &path))
            .collect();
        slots.sort_by_key(|slot| slot.address);
        let mut functions: Vec<Function> = seen.into_iter().map(|seen| seen.function).collect();
        functions.sort_by_key(|function| function.address);
        Look {
            functions,
            ports,
            slots,
            faults: reader.into_faults(),
        }
    }
}

fn ports(reader: &Reader, devices: &Path, functions: &[Seen]) -> Vec<Port> {
    let below = port::below(functions);
    // Class 0x0604: a bridge from PCI to PCI.
    let is_bridge = |seen: &&Seen| seen.function.class.map(|class| class >> 8) == Some(0x0604);
    let ports = functions.iter().filter(is_bridge).map(|seen| {
        let address = seen.function.address;
        let place = devices.join(address.to_string());
        let bus = |name: &str| reader.value_if_any(&place.join(name), decimal::<u8>);
        let config = seen.config.as_ref().filter(|config| config.answers());
        Port {
            address,
            kind: config.and_then(Config::port),
            above: seen.function.port,
            buses: bus("secondary_bus_number").zip(bus("subordinate_bus_number")),
            windows: port::windows(seen, below.get(&address).map(Vec::as_slice).unwrap_or_default()),
            hotplug: config.and_then(Config::hotplug),
            // The service of the port that pciehp drives; 4 is hot-plug.
            native: place.join(format!("{address}:pcie004/driver")).exists(),
            link_active: config.and_then(Config::link_active),
        }
    });
    let mut ports: Vec<Port> = ports.collect();
    ports.sort_by_key(|port| port.address);
    ports
}

/// What a folder that there must be holds, by name.
fn entries(reader: &Reader, folder: &Path) -> Vec<(String, PathBuf)> {
    let Ok(found) = folder.read_dir() else {
        reader.blame(folder, Why::Missing, "");
        return Vec::new();
    };
    let entries = found.flatten().take(MOST);
    let mut entries: Vec<_> = entries
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
        .collect();
    entries.sort();
    entries
}
