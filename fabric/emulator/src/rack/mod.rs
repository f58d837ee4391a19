//! A rack: GPU boxes with their switches and GPUs, hosts with their ports, and how they are cabled.
//!
//! Read from a short TOML file (see `file`), in which things come by counts; this module holds them counted
//! out, each with its name, UUID and serial number. These are made from the rack's name and seed, so that the
//! same file gives the same rack every time. A rack does not change; what changes is in [`crate::state`].
//!
//! Each box has one fabric. A host port is cabled to one switch of one box.

mod build;
mod file;
mod identity;

use crate::fault::Fault;
use poolwright_model::profile::GpuKind;
use poolwright_model::units::LinkWidth;
use std::ops::{Index, Range};
use std::time::Duration;
use uuid::Uuid;

pub(crate) use file::duration;
pub use file::{Expand, Style};
pub(crate) use identity::Identity;

macro_rules! places {
    ($($(#[$doc:meta])* $name:ident in $list:ident: $item:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub usize);

        impl Index<$name> for Rack {
            type Output = $item;
            fn index(&self, at: $name) -> &$item {
                &self.$list[at.0]
            }
        }
    )*};
}

places! {
    /// A box of this rack.
    BoxIx in boxes: GpuBox;
    /// A host of this rack.
    HostIx in hosts: Host;
    /// An upstream port of a host of this rack.
    PortIx in ports: HostPort;
    /// A GPU of this rack.
    GpuIx in gpus: Gpu;
}

/// A rack, counted out.
#[derive(Debug, Clone)]
pub struct Rack {
    pub name: String,
    pub style: Style,
    pub options: Options,
    pub latency: Latency,
    pub boxes: Vec<GpuBox>,
    pub hosts: Vec<Host>,
    pub ports: Vec<HostPort>,
    /// Those in boxes first, box by box; then those soldered into hosts.
    pub gpus: Vec<Gpu>,
    /// What somebody else had bound before the rack was switched on.
    pub prebound: Vec<(GpuIx, PortIx)>,
    pub faults: Vec<Fault>,
    pub(crate) identity: Identity,
}

/// The version that every GPU tells of its own firmware.
pub(crate) const GPU_FIRMWARE: &str = "96.00.01.00.01";

/// In what the rack's managers differ from each other in the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Writes that bind or unbind answer 202 with a task, and do it later.
    pub tasks: bool,
    /// The box tells a GPU's UUID; else only the host knows it, and the serial number joins the two views.
    pub box_knows_uuid: bool,
    /// The box shows GPUs as processors; else as PCIe devices only.
    pub processors: bool,
    /// Zones offer the actions AddEndpoint and RemoveEndpoint.
    pub zone_actions: bool,
    /// Composed systems offer the actions AddResourceBlock and RemoveResourceBlock; else PATCH only.
    pub block_actions: bool,
    /// GPUs offer the action Reset.
    pub reset_action: bool,
    /// Services carry an owner's mark (`ServiceIdentification`).
    pub owner_mark: bool,
    /// Boxes have a light at each slot (`LocationIndicatorActive`).
    pub locators: bool,
    /// Services tell what happens, as server-sent events.
    pub events: bool,
    /// Services push what happens to whoever subscribed.
    pub pushes: bool,
    pub expand: Expand,
    /// Sessions at one endpoint at once; 0: it has none, and takes Basic alone.
    pub max_sessions: usize,
    /// A session that is not used for so long ends.
    pub session_idle: Duration,
}

/// How long things take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latency {
    /// Every answer.
    pub request: Duration,
    pub bind: Duration,
    pub unbind: Duration,
    /// From the bind to the host's seeing the GPU.
    pub enumeration: Duration,
    pub reset: Duration,
}

/// A GPU box: a chassis, its manager and its fabric.
#[derive(Debug, Clone)]
pub struct GpuBox {
    /// Names the endpoint and the chassis: `box-1`.
    pub name: String,
    pub manufacturer: String,
    pub model: String,
    pub serial: String,
    pub uuid: Uuid,
    pub switches: Vec<Switch>,
    /// Cables between switches, by their places in `switches`.
    pub cables: Vec<(usize, usize)>,
    pub gpus: Range<usize>,
    /// The host ports cabled to it.
    pub ports: Vec<PortIx>,
    pub gpu_link: LinkWidth,
    pub host_link: LinkWidth,
    pub switch_link: LinkWidth,
}

/// A switch of a box, with what is plugged into it.
#[derive(Debug, Clone, Default)]
pub struct Switch {
    /// `switch-1`.
    pub name: String,
    pub serial: String,
    /// Upstream: port `U1` is the first.
    pub hosts: Vec<PortIx>,
    /// Downstream: port `D1` is the first.
    pub gpus: Vec<GpuIx>,
    /// The switches at the other ends: port `I1` is the first.
    pub switches: Vec<usize>,
}

/// A server.
#[derive(Debug, Clone)]
pub struct Host {
    /// Also its host name: `host-1`.
    pub name: String,
    pub manufacturer: String,
    pub model: String,
    pub serial: String,
    pub uuid: Uuid,
    /// Indices into [`Rack::ports`].
    pub ports: Range<usize>,
    /// Indices into [`Rack::gpus`]: those on its own baseboard.
    pub soldered: Range<usize>,
}

/// An upstream port of a host: an adapter card, and the cable to a switch.
#[derive(Debug, Clone)]
pub struct HostPort {
    pub host: HostIx,
    /// From 1, within its host.
    pub number: usize,
    pub gpu_box: BoxIx,
    /// Its place in the box's switches.
    pub switch: usize,
    /// The adapter's durable name.
    pub uuid: Uuid,
    /// How many GPUs it can take.
    pub slots: u32,
}

/// A GPU.
#[derive(Debug, Clone)]
pub struct Gpu {
    /// Within its chassis: `gpu-3`.
    pub name: String,
    pub kind: &'static GpuKind,
    pub home: Home,
    /// From 1, within its home.
    pub slot: usize,
    pub uuid: Uuid,
    pub serial: String,
    /// It drives displays: class VGA, and an audio function.
    pub display: bool,
    /// What its link runs at: the slower of the card and the box.
    pub link: LinkWidth,
}

/// Where a GPU lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// In a box, at a switch: its place in the box's switches.
    Box(BoxIx, usize),
    /// Soldered on a host's baseboard.
    Host(HostIx),
}

/// Why a rack file was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RackError {
    /// Not TOML, an unknown or missing key, a value of the wrong type: the message shows the line.
    #[error("{file}: {message}")]
    Toml { file: String, message: String },
    #[error("{file}: {key} is {found}; allowed: {allowed}")]
    Value {
        file: String,
        key: String,
        found: String,
        allowed: String,
    },
    #[error("there is no built-in rack {name:?}; there are: {known}")]
    NotBuiltIn { name: String, known: String },
}

/// The racks that come with Poolwright: name and file.
const BUILTIN: [(&str, &str); 6] = [
    ("demo", include_str!("../../../../hw-profiles/racks/demo.toml")),
    (
        "blocks",
        include_str!("../../../../hw-profiles/racks/blocks.toml"),
    ),
    ("zones", include_str!("../../../../hw-profiles/racks/zones.toml")),
    (
        "connections",
        include_str!("../../../../hw-profiles/racks/connections.toml"),
    ),
    ("small", include_str!("../../../../hw-profiles/racks/small.toml")),
    (
        "pod-4096",
        include_str!("../../../../hw-profiles/racks/pod-4096.toml"),
    ),
];

impl Rack {
    /// Reads a rack file. `file` is its name, for messages.
    pub fn from_toml(file: &str, text: &str) -> Result<Rack, RackError> {
        let raw: file::RawRack = toml::from_str(text).map_err(|error| RackError::Toml {
            file: file.to_owned(),
            message: error.to_string().trim_end().to_owned(),
        })?;
        build::build(file, raw)
    }

    /// One of the racks that come with Poolwright, by name: `demo`, `small`, …
    pub fn builtin(name: &str) -> Result<Rack, RackError> {
        match BUILTIN.iter().find(|(known, _)| *known == name) {
            Some((name, text)) => Rack::from_toml(&format!("racks/{name}.toml"), text),
            None => Err(RackError::NotBuiltIn {
                name: name.to_owned(),
                known: Rack::builtin_names().collect::<Vec<_>>().join(", "),
            }),
        }
    }

    pub fn builtin_names() -> impl Iterator<Item = &'static str> {
        BUILTIN.iter().map(|(name, _)| *name)
    }

    pub fn box_ixs(&self) -> impl Iterator<Item = BoxIx> + use<> {
        (0..self.boxes.len()).map(BoxIx)
    }

    pub fn host_ixs(&self) -> impl Iterator<Item = HostIx> + use<> {
        (0..self.hosts.len()).map(HostIx)
    }

    pub fn gpus_of_box(&self, at: BoxIx) -> impl Iterator<Item = GpuIx> + use<> {
        self[at].gpus.clone().map(GpuIx)
    }

    pub fn ports_of_host(&self, at: HostIx) -> impl Iterator<Item = PortIx> + use<> {
        self[at].ports.clone().map(PortIx)
    }

    /// `box-1/gpu-3`, or `host-1/gpu-3` where it is soldered.
    pub fn gpu_name(&self, gpu: GpuIx) -> String {
        let home = match self[gpu].home {
            Home::Box(at, _) => &self[at].name,
            Home::Host(at) => &self[at].name,
        };
        format!("{home}/{}", self[gpu].name)
    }

    /// `host-1/port-2`.
    pub fn port_name(&self, port: PortIx) -> String {
        let at = &self[port];
        format!("{}/port-{}", self[at.host].name, at.number)
    }

    /// The other way round than [`Rack::gpu_name`].
    pub fn gpu_named(&self, name: &str) -> Option<GpuIx> {
        let (home, gpu) = name.split_once('/')?;
        let of_box = self.boxes.iter().find(|b| b.name == home).map(|b| &b.gpus);
        let of_host = || self.hosts.iter().find(|h| h.name == home).map(|h| &h.soldered);
        let mut range = of_box.or_else(of_host)?.clone();
        range.find(|&at| self.gpus[at].name == gpu).map(GpuIx)
    }

    /// The other way round than [`Rack::port_name`].
    pub fn port_named(&self, name: &str) -> Option<PortIx> {
        let (host, port) = name.split_once('/')?;
        let host = self.host_named(host)?;
        let number: usize = port.strip_prefix("port-")?.parse().ok()?;
        self.ports_of_host(host).find(|&at| self[at].number == number)
    }

    pub fn box_named(&self, name: &str) -> Option<BoxIx> {
        self.boxes.iter().position(|b| b.name == name).map(BoxIx)
    }

    pub fn host_named(&self, name: &str) -> Option<HostIx> {
        self.hosts.iter().position(|h| h.name == name).map(HostIx)
    }

    /// The box whose fabric a GPU is in; `None` for a soldered one.
    pub fn box_of(&self, gpu: GpuIx) -> Option<BoxIx> {
        match self[gpu].home {
            Home::Box(at, _) => Some(at),
            Home::Host(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
