//! The Linux side of a host: its PCIe functions, slots and bridges, as the kernel shows them in sysfs.
//!
//! [`Machine::at`] is the way in: it names the root under which `sys` lies, `/` on a real host and a folder in tests.
//! [`Machine::look`] reads everything once.
//!
//! * [`Function`]: one PCI function, with its BARs, link, driver and whether it still answers.
//! * [`Slot`]: a hot-plug slot and its power; [`Port`]: the bridge above, with its windows and bus numbers and what still
//!   fits there.
//! * [`Nvml`]: what the NVIDIA driver says of its GPUs, where there is one.
//! * [`Log`]: what the kernel's log tells of functions that failed.
//! * [`Uevents`]: what the kernel tells of functions that come and go: hints to look.
//! * `config` reads capabilities from config space, `attribute` one file of sysfs.
//! * `change`: drivers, functions and slots, each changed and read back.
//!
//! Invariants: reading changes nothing and panics on nothing, whatever a file holds and whenever it vanishes. What can't
//! be read is a [`Fault`] beside what could, and `None` where it would have stood, never a guess. What is bounded in a
//! real machine is bounded here: files, capabilities, devices.

mod address;
mod aer;
mod attribute;
mod bar;
mod change;
mod config;
mod function;
mod link;
mod log;
mod machine;
mod nvml;
mod port;
mod setting;
mod slot;
mod uevent;
mod xid;

pub use address::{Address, NotAnAddress};
pub use aer::{ErrorCounts, FatalError};
pub use attribute::{Fault, Why};
pub use bar::Bar;
pub use change::ChangeError;
pub use function::{Function, Ids};
pub use link::{Link, NoLink};
pub use log::Log;
pub use machine::{Look, Machine};
pub use nvml::{Nvml, NvmlGpu, NvmlState, Process};
pub use port::{Hotplug, Port, PortKind, Window};
pub use setting::{ComputeMode, Set, Setting};
pub use slot::Slot;
pub use uevent::{Action, Heard, Uevent, Uevents};
pub use xid::Xid;
