//! One PCI function as the kernel shows it.

use crate::address::Address;
use crate::aer::{self, ErrorCounts};
use crate::attribute::{Reader, Why, decimal, hexadecimal};
use crate::bar::{self, Bar, Resource};
use crate::config::Config;
use crate::link::{self, Link};
use serde::{Serialize, Serializer};
use std::path::Path;

/// Who made it, and what it is. Written in four hexadecimal digits, as everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Ids {
    #[serde(serialize_with = "four_digits")]
    pub vendor: u16,
    #[serde(serialize_with = "four_digits")]
    pub device: u16,
    #[serde(serialize_with = "four_digits")]
    pub subsystem_vendor: u16,
    #[serde(rename = "subsystem", serialize_with = "four_digits")]
    pub subsystem_device: u16,
}

fn four_digits<S: Serializer>(id: &u16, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{id:04x}"))
}

fn six_digits<S: Serializer>(class: &Option<u32>, serializer: S) -> Result<S::Ok, S::Error> {
    class.map(|class| format!("{class:06x}")).serialize(serializer)
}

/// What is known of a function. `None`: it has none, or it can't be read; a fault says which.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Function {
    pub address: Address,
    pub ids: Option<Ids>,
    /// 24 bits: base class, class, interface. 0x0302xx is a 3D controller. Written in six hexadecimal digits.
    #[serde(serialize_with = "six_digits")]
    pub class: Option<u32>,
    /// The port that it sits under; on the root bus none.
    pub port: Option<Address>,
    /// Config space is not all ones. sysfs keeps the ids of one that has died.
    pub answers: Option<bool>,
    pub bars: Vec<Bar>,
    /// Registers that the kernel found no address for.
    pub bars_without_room: Option<Vec<u8>>,
    pub link: Option<Link>,
    pub best_link: Option<Link>,
    pub driver: Option<String>,
    pub numa_node: Option<u32>,
    pub iommu_group: Option<u32>,
    pub errors: Option<ErrorCounts>,
    /// Its Device Serial Number, as `lspci` writes it. Only root sees it.
    pub serial: Option<String>,
}

impl Function {
    /// A display or 3D controller, or a processing accelerator: what GPUs are.
    pub fn is_gpu(&self) -> bool {
        matches!(self.class.map(|class| class >> 8), Some(0x0300 | 0x0302 | 0x1200))
    }
}

/// A function with what its port needs to know of it.
pub(crate) struct Seen {
    pub function: Function,
    pub resources: Vec<Resource>,
    pub config: Option<Config>,
}

/// Reads a function. `None`: it went away meanwhile.
pub(crate) fn read(reader: &Reader, address: Address, path: &Path) -> Option<Seen> {
    // The link of sysfs leads to where it sits among its ports.
    let place = path.canonicalize().ok()?;
    let config = Config::read(reader, &place.join("config"));
    if config.as_ref().is_some_and(|config| !config.answers()) {
        reader.blame(&place.join("config"), Why::AllOnes, "");
    }
    let resources = bar::resources(reader, &place.join("resource")).unwrap_or_default();
    let registers = config
        .as_ref()
        .filter(|config| config.answers())
        .and_then(Config::registers);
    let function = Function {
        address,
        ids: ids(reader, &place),
        class: reader.value(&place.join("class"), |text| {
            u32::try_from(hexadecimal(text)?).ok()
        }),
        port: place
            .parent()
            .and_then(|parent| parent.file_name()?.to_str()?.parse().ok()),
        answers: config.as_ref().map(Config::answers),
        bars: bar::assigned(&resources),
        bars_without_room: registers.map(|registers| bar::unassigned(&registers, &resources)),
        link: link::read(reader, &place, "current"),
        best_link: link::read(reader, &place, "max"),
        driver: target(&place.join("driver")),
        // -1 where the machine has one node.
        numa_node: reader
            .text_if_any(&place.join("numa_node"))
            .and_then(|node| node.parse().ok()),
        iommu_group: target(&place.join("iommu_group")).and_then(|group| decimal(&group)),
        errors: aer::read(reader, &place),
        serial: config.as_ref().and_then(Config::serial),
    };
    // What vanished while it was read is no function with faults.
    place.exists().then_some(Seen {
        function,
        resources,
        config,
    })
}

fn ids(reader: &Reader, place: &Path) -> Option<Ids> {
    let id = |name: &str| {
        let read = |text: &str| u16::try_from(hexadecimal(text)?).ok();
        reader.value(&place.join(name), read)
    };
    Some(Ids {
        vendor: id("vendor")?,
        device: id("device")?,
        subsystem_vendor: id("subsystem_vendor")?,
        subsystem_device: id("subsystem_device")?,
    })
}

/// The last part of what a link leads to.
fn target(link: &Path) -> Option<String> {
    Some(link.read_link().ok()?.file_name()?.to_str()?.to_string())
}
