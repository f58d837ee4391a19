//! A host, looked at once, and where on it the GPUs are that a manager asks about.
//!
//! Invariant: a slot is a place, never an identity. Where the host knows the names of what sits there, and the manager
//! others, it is another GPU.

use crate::wire::Target;
use poolwright_model::identity::same_name;
use poolwright_pcie::{Address, Function, Look, Machine, Nvml, NvmlGpu, NvmlState, Port, Slot};
use std::collections::BTreeMap;
use std::path::Path;

/// Class of a bridge from PCI to PCI.
const BRIDGE: u32 = 0x0604;

/// What was seen.
pub(crate) struct Sight {
    pub look: Look,
    pub nvml: NvmlState,
    known: Vec<NvmlGpu>,
}

/// A device with all its functions: a GPU may have one for sound beside its own.
#[derive(Debug, Clone)]
pub(crate) struct Device<'a> {
    /// The one that is the GPU comes first.
    pub functions: Vec<&'a Function>,
    pub driver_says: Option<&'a NvmlGpu>,
    pub slot: Option<&'a Slot>,
}

/// Whether a device is the one that is meant, by its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Named {
    Yes(String),
    /// There is nothing to compare.
    Unknown,
    /// It has these names, and others were expected.
    No(String),
}

impl Sight {
    pub fn of(root: &Path, nvml: &Nvml) -> Self {
        let look = Machine::at(root).look();
        let (state, known) = match nvml.gpus() {
            Ok(known) => (nvml.state(), known),
            Err(state) => (state, Vec::new()),
        };
        Self {
            look,
            nvml: state,
            known,
        }
    }

    /// The slot that a target names: as the kernel does, or by the physical number of its port, for the firmware that
    /// drives slots (ACPI) counts them in its own way. The error says which there are.
    pub fn slot(&self, name: &str) -> Result<&Slot, String> {
        let found = self.look.slots.iter().find(|slot| slot.name == name);
        found
            .or_else(|| self.slot_numbered(name.parse().ok()?))
            .ok_or_else(|| {
                let names: Vec<&str> = self.look.slots.iter().map(|slot| slot.name.as_str()).collect();
                match names.is_empty() {
                    true => format!("this host shows no slot {name}, nor any other"),
                    false => format!("this host has no slot {name}: it has {}", names.join(", ")),
                }
            })
    }

    fn slot_numbered(&self, number: u16) -> Option<&Slot> {
        let has_number = |port: &Port| port.hotplug.is_some_and(|slot| slot.number == number);
        let mut slots = self.look.slots.iter();
        slots.find(|slot| self.port_of(slot).is_some_and(has_number))
    }

    /// The port above a slot; on the root bus there is none.
    pub fn port_of(&self, slot: &Slot) -> Option<&Port> {
        let is_above = |port: &&Port| {
            port.address.domain == slot.address.domain
                && port.buses.is_some_and(|(first, _)| first == slot.address.bus)
        };
        self.look.ports.iter().find(is_above)
    }

    /// What sits in a slot, directly or below bridges that do.
    pub fn in_slot<'a>(&'a self, slot: &'a Slot) -> Vec<Device<'a>> {
        let devices = self.devices(|function| self.is_below(function, slot.address));
        let with_slot = |device| Device {
            slot: Some(slot),
            ..device
        };
        devices.into_iter().map(with_slot).collect()
    }

    /// The slot that a function sits in, directly or below bridges that do.
    pub fn slot_of(&self, function: &Function) -> Option<&Slot> {
        let mut slots = self.look.slots.iter();
        slots.find(|slot| self.is_below(function, slot.address))
    }

    /// The devices that are GPUs, wherever they sit.
    pub fn gpus(&self) -> Vec<Device<'_>> {
        self.devices(|_| true)
            .into_iter()
            .filter(|device| device.gpu().is_gpu())
            .collect()
    }

    fn devices(&self, is_one: impl Fn(&Function) -> bool) -> Vec<Device<'_>> {
        let mut groups: BTreeMap<Address, Vec<&Function>> = BTreeMap::new();
        let is_bridge = |function: &Function| function.class.map(|class| class >> 8) == Some(BRIDGE);
        for function in &self.look.functions {
            if !is_bridge(function) && is_one(function) {
                groups.entry(first(function.address)).or_default().push(function);
            }
        }
        groups
            .into_values()
            .map(|functions| self.device(functions))
            .collect()
    }

    fn device<'a>(&'a self, mut functions: Vec<&'a Function>) -> Device<'a> {
        functions.sort_by_key(|function| (!function.is_gpu(), function.address));
        let at = functions.first().map(|function| function.address);
        let place = at.map(first);
        Device {
            driver_says: self.known.iter().find(|gpu| at.is_some() && gpu.address == at),
            slot: self.look.slots.iter().find(|slot| Some(slot.address) == place),
            functions,
        }
    }

    fn is_below(&self, function: &Function, place: Address) -> bool {
        let mut at = Some(function.address);
        // As deep as buses may be nested, and no deeper.
        for _ in 0..=u8::MAX {
            match at {
                Some(address) if first(address) == place => return true,
                Some(address) => at = self.above(address),
                None => return false,
            }
        }
        false
    }

    fn above(&self, address: Address) -> Option<Address> {
        self.function(address)?.port
    }

    fn function(&self, address: Address) -> Option<&Function> {
        let functions = &self.look.functions;
        functions.iter().find(|other| other.address == address)
    }

    /// The other end of a function's link.
    pub fn port_above(&self, function: &Function) -> Option<&Function> {
        self.function(function.port?)
    }
}

impl Device<'_> {
    /// The function that it is used by. A device has one at least.
    pub fn gpu(&self) -> &Function {
        self.functions[0]
    }

    pub fn address(&self) -> Address {
        self.gpu().address
    }

    pub fn uuid(&self) -> Option<&str> {
        self.driver_says?.uuid.as_deref()
    }

    pub fn board_serial(&self) -> Option<&str> {
        self.driver_says?.serial.as_deref()
    }

    pub fn pcie_serial(&self) -> Option<&str> {
        self.gpu().serial.as_deref()
    }

    /// All its identifiers. A dead GPU has none.
    pub fn names(&self) -> Vec<String> {
        let own = [self.uuid(), self.pcie_serial(), self.board_serial()];
        own.into_iter().flatten().map(str::to_owned).collect()
    }

    /// Compares its names with those that the manager knows. A UUID says more than a serial number, of which there are
    /// two that look alike.
    pub fn named(&self, target: &Target) -> Named {
        let own = [self.uuid(), self.board_serial(), self.pcie_serial()];
        let is_known = |name: &&str| target.known_as.iter().any(|known| same_name(known, name));
        if let Some(name) = own.into_iter().flatten().find(is_known) {
            return Named::Yes(name.to_owned());
        }
        let (uuids, serials): (Vec<&String>, Vec<&String>) =
            target.known_as.iter().partition(|known| is_uuid(known));
        match own {
            [Some(uuid), _, _] if !uuids.is_empty() => Named::No(uuid.to_owned()),
            [_, Some(board), Some(pcie)] if uuids.is_empty() && !serials.is_empty() => {
                Named::No(format!("{board} ({pcie})"))
            }
            _ => Named::Unknown,
        }
    }
}

fn first(address: Address) -> Address {
    Address {
        function: 0,
        ..address
    }
}

fn is_uuid(name: &str) -> bool {
    let name = name.trim().to_ascii_lowercase();
    let name = name.strip_prefix("gpu-").unwrap_or(&name);
    name.len() == 36 && uuid::Uuid::parse_str(name).is_ok()
}
